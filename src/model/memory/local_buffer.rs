//! Buffers of a block: scratch memory with a name. An init is an operation that fills the buffer at its declaration.

use crate::base::{GroupId, Space, SrcSpan};
use crate::ops::init::Init;
use crate::ops::{CATALOGUE, Input};
use crate::syntax::ast::{Buffer, Call, Expr, ExprKind, Layout};
use crate::syntax::written;

use super::parts::{BufferAttributes, BufferType};
use crate::model::analyzer::Analyzer;
use crate::model::calls::call::{Inputs, Output};
use crate::model::declare::FamilyOf;
use crate::model::error::ModelError;
use crate::model::program::{MemoryKind, OpKind};
use crate::model::values::value::{Number, Value};

impl Analyzer<'_> {
    /// Declares a buffer of a block: scratch memory on the device, undefined until the step writes it.
    pub(in crate::model) fn local_buffer(&mut self, buffer: &Buffer) {
        let ty = self.buffer_type(buffer);
        let value = self.first_value(buffer, ty.as_ref());
        for family in &buffer.families {
            let count = self.family(&family.count, FamilyOf::Buffers, family.name);
            let attributes =
                count.map(|count| BufferAttributes { kind: MemoryKind::Scratch, space: Space::Device, count });
            let buffer_value = match (attributes, &ty) {
                (Some(attributes), Some(ty)) => self.add_buffer(family.name, attributes, ty),
                _ => Value::Unknown,
            };
            if let Some((value, at)) = value {
                self.fill(&buffer_value, value, at);
            }
            self.declare(family.name, buffer_value);
        }
    }

    /// Returns the initial value of a buffer of a block, with its location; `None` without one. Reports an error if a
    /// memory space is given, or if the init is not a single value.
    fn first_value(&mut self, buffer: &Buffer, ty: Option<&BufferType>) -> Option<(f64, SrcSpan)> {
        let space = self.space(buffer.space.as_ref());
        let at_space = buffer.space.filter(|_| space != Space::Device).map(|name| name.span);
        let init = buffer.init.as_ref().and_then(|init| Some((self.init(init, ty?)?, init.span)));
        match (at_space, init) {
            (None, None) => return None,
            (None, Some((Init::Zeros, at))) => return Some((0.0, at)),
            (None, Some((Init::Ones, at))) => return Some((1.0, at)),
            (None, Some((Init::Listed(numbers), at))) if numbers.len() == 1 => return Some((numbers[0], at)),
            (Some(at), _) => self.not_local(buffer, space, true, at),
            (None, Some((_, at))) => self.not_local(buffer, space, false, at),
        }
        None
    }

    /// Reports an attribute that a buffer of a block cannot have.
    fn not_local(&mut self, buffer: &Buffer, space: Space, is_space: bool, at: SrcSpan) {
        let (family, text) = (&buffer.families[0], |expr: &Expr| written(expr, &self.names));
        let name = self.names.name(family.name.symbol).to_owned();
        let index = match family.count.iter().map(text).collect::<Vec<_>>() {
            count if count.is_empty() => String::new(),
            count => format!("[{}]", count.join(", ")),
        };
        let ty = match &buffer.layout {
            Layout::Tensor(ty) => format!(": {}", text(ty)),
            Layout::Like(path) => format!(" like {}", text(path)),
            Layout::Parts(_) => " { … }".to_owned(),
        };
        let in_space = if space == Space::Device { String::new() } else { format!(" in {}", space.name()) };
        let init = buffer.init.as_ref().map(|init| format!(" = {}", text(init))).unwrap_or_default();
        let (wants, why) = match is_space {
            true => (format!("be in `{}` memory", space.name()), "buffers of a block are in device memory"),
            false => ("be filled before the run".to_owned(), "a buffer of a block is filled with one number alone"),
        };
        let help = format!("declare it above the step: `buffer {name}{index}{ty}{in_space}{init}`");
        self.error(ModelError::LocalBuffer { name, wants, why, help, at: at.into() });
    }

    /// Adds operations that fill a buffer, or each of its parts, with a value.
    fn fill(&mut self, buffer: &Value, value: f64, at: SrcSpan) {
        match buffer {
            Value::Parts(parts) => parts.iter().for_each(|(_, part)| self.fill(part, value, at)),
            Value::Tensor { view, .. } if self.expansion.batch.is_none() => {
                let place = CATALOGUE.iter().position(|operation| operation.name() == "fill");
                let place = place.expect("the catalogue has it");
                let Some(Input::Scalar(option)) = CATALOGUE[place].signature().input(0) else {
                    unreachable!("its input is a number");
                };
                let call = Call {
                    label: None,
                    callee: Vec::new(),
                    inputs: Vec::new(),
                    outputs: Vec::new(),
                    options: Vec::new(),
                    over: None,
                    span: at,
                };
                let mut inputs = Inputs::default();
                let number = match Number::float(value).whole() {
                    Some(whole) => ExprKind::Int(whole),
                    None => ExprKind::Float(value),
                };
                let number = self.attr(option, &Expr { span: at, kind: number });
                let Some(number) = number else { return };
                inputs.attrs.push(option.name, number, None);
                let (team, outputs) = (self.team(GroupId(0)), [Output::Given(*view, at)]);
                if let Some(spec) = self.spec(place, &call, &inputs, (&inputs.attrs, team), &outputs) {
                    // If the operation cannot be added, the limit has been reported.
                    let _ = self.push_op(OpKind::Run(spec), at, None, &[], &[*view]);
                }
            }
            Value::Tensor { .. } => {
                let help = "a group holds collectives, `send` and `recv`: declare the buffer above it";
                self.not_in_group("the init of a buffer", help, at);
            }
            _ => {}
        }
    }
}
