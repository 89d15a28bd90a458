//! Sets of operations, selected by stream, label or phase.

use crate::base::{StreamId, Symbol, suggest};
use crate::syntax::ast::*;
use crate::syntax::written;

use super::analyzer::Analyzer;
use super::declared::stream_name;
use super::error::{ModelError, SliceError};
use super::program::{Label, Op, Program};
use super::value::Value;

/// A set of operations: the union of its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct OpSet {
    pub parts: Vec<SetPart>,
    /// The set in source form.
    pub text: String,
}

/// A part of a set: the operations on some streams, under a label, or in a phase.
#[derive(Clone, Debug, PartialEq)]
pub enum SetPart {
    /// Consecutive streams, starting with `first`.
    Streams {
        first: u32,
        count: u32,
    },
    /// A label, or a member of a family of labels.
    Label {
        name: Symbol,
        index: Option<Box<[i64]>>,
    },
    Phase {
        name: Symbol,
        index: Option<Box<[i64]>>,
    },
}

impl OpSet {
    pub fn contains(&self, program: &Program, op: &Op) -> bool {
        self.parts.iter().any(|part| match part {
            SetPart::Streams { first, count } => (*first..first + count).contains(&op.stream.0),
            SetPart::Label { name, index } => has_name(&program.labels, op.label.index(), *name, index.as_deref()),
            SetPart::Phase { name, index } => has_name(&program.phases, op.phase.index(), *name, index.as_deref()),
        })
    }
}

/// True if a label, or an enclosing one, has that name and index.
fn has_name(labels: &[Label], mut at: usize, name: Symbol, index: Option<&[i64]>) -> bool {
    while let Some(own) = labels[at].name {
        if own == name && index.is_none_or(|index| *index == *labels[at].index) {
            return true;
        }
        at = labels[at].parent.index();
    }
    false
}

impl Analyzer<'_> {
    /// Evaluates a set of streams, families, labels and phases. `None` after an error, which has been reported.
    pub(super) fn set(&mut self, args: &[Expr]) -> Option<OpSet> {
        let mut parts = Vec::new();
        let mut texts = Vec::new();
        let mut good = true;
        for arg in args {
            let (name, index) = match &arg.kind {
                ExprKind::Name(symbol) => (Some(*symbol), None),
                ExprKind::Index { base, items } => {
                    let index: Option<Vec<i64>> = items.iter().map(|item| self.eval_whole(item)).collect();
                    (base.as_name(), Some(index?))
                }
                _ => (None, None),
            };
            let Some(name) = name else {
                let (name, help) = match &arg.kind {
                    ExprKind::Text(text) => (text.clone(), format!("write the name without quotes: `{text}`")),
                    ExprKind::List(_) => {
                        let list = written(arg, &self.names);
                        let bare = list.trim_start_matches('[').trim_end_matches(']').to_owned();
                        (list, format!("write the names without brackets: `{bare}`"))
                    }
                    ExprKind::Field { name, .. } => {
                        let inner = self.names.name(name.symbol);
                        let help = format!(
                            "a label inside a definition is selected by its own name, in all calls together: `{inner}`; one \
                             call by its label"
                        );
                        (written(arg, &self.names), help)
                    }
                    _ => (written(arg, &self.names), "write a name, or a member: `time(f)`, `time(f[0])`".to_owned()),
                };
                let help = Some(help);
                self.error(ModelError::UnknownSet { name, at: arg.span.into(), help });
                good = false;
                continue;
            };
            let mut text = self.names.name(name).to_owned();
            if let Some(index) = &index {
                let items: Vec<String> = index.iter().map(i64::to_string).collect();
                text += &format!("[{}]", items.join(", "));
            }
            match self.set_part(name, index, arg) {
                Some(part) => parts.push(part),
                None => good = false,
            }
            texts.push(text);
        }
        good.then(|| OpSet { parts, text: texts.join(", ") })
    }

    fn set_part(&mut self, name: Symbol, index: Option<Vec<i64>>, arg: &Expr) -> Option<SetPart> {
        if let Some(&Value::Stream { first, count, .. }) = self.scopes.get(name) {
            return match (index.as_deref(), count) {
                (None, count) => Some(SetPart::Streams { first, count: count.unwrap_or(1) }),
                (Some(&[member]), Some(count)) if (0..i64::from(count)).contains(&member) => {
                    Some(SetPart::Streams { first: first + member as u32, count: 1 })
                }
                (Some(_), count) => {
                    let size = u64::from(count.unwrap_or(0));
                    let name = self.text_of(arg);
                    let index = index.and_then(|index| index.first().copied()).unwrap_or(0);
                    let (last, at) = (size as i64 - 1, arg.span.into());
                    self.fail(SliceError::IndexOutOfRange { name, index, size, last, at })
                }
            };
        }
        if name == self.builtins.main
            && let Some(main) = self.program.streams.iter().position(|stream| stream.family == name)
        {
            return Some(SetPart::Streams { first: StreamId::from(main).0, count: 1 });
        }
        if matches!(self.scopes.get(name), Some(Value::Unknown)) {
            return None;
        }
        let index = index.map(Vec::into_boxed_slice);
        let (labels, phases) = &self.sets;
        if labels.contains(&name) {
            return Some(SetPart::Label { name, index });
        }
        if phases.contains(&name) {
            return Some(SetPart::Phase { name, index });
        }
        if !self.has_room_for_errors() {
            return None;
        }
        let text = self.names.name(name).to_owned();
        let streams = self.ast.decls.iter().filter_map(stream_name);
        let known: Vec<Symbol> = labels.iter().chain(phases).copied().chain(streams).collect();
        let known: Vec<&str> = known.iter().map(|symbol| self.names.name(*symbol)).collect();
        let help = suggest::did_you_mean(&text, known.iter().copied())
            .unwrap_or_else(|| match self.scopes.get(name) {
                Some(Value::Tensor { .. }) => format!(
                    "figures are of operations, and `{text}` is a buffer: label the operation that uses it, `f: …`, and write `f`"
                ),
                _ => format!("label an operation of the step: `{text}: nop()`"),
            });
        let help = Some(help);
        self.fail(ModelError::UnknownSet { name: text, at: arg.span.into(), help })
    }
}
