//! Indices in brackets: slices of tensors, members of families, elements of lists, sizes of types.

use std::sync::Arc;

use crate::base::units::Dimension;
use crate::base::{Dims, SrcSpan, ViewId};
use crate::ops;
use crate::syntax::ast::{Expr, ExprKind, Name};
use crate::syntax::written;

use super::views::{Extent, Unplaced};
use crate::model::analyzer::Analyzer;
use crate::model::error::{ModelError, SliceError};
use crate::model::names::unknown;
use crate::model::values::value::Value;

/// The part of a dimension that an index selects.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Selected {
    pub extent: Extent,
    /// False for a single index, which removes the dimension.
    pub is_kept: bool,
}

impl Selected {
    /// Selects all elements of a dimension with this size.
    pub fn all(size: u64) -> Selected {
        Selected { extent: Extent { start: 0, len: size }, is_kept: true }
    }
}

/// Help for a size of -1, which other tools infer from the others.
const NOT_INFERRED: &str = "write the size: none is inferred from the others";

impl Analyzer<'_> {
    /// Evaluates brackets after a value: a slice, a member of a family, an element of a list, or a tensor type.
    pub(in crate::model) fn index(&mut self, value: Value, base: &Expr, items: &[Expr], span: SrcSpan) -> Value {
        match value {
            Value::Unknown => {
                for item in items {
                    self.eval(item);
                }
                Value::Unknown
            }
            Value::DType(dtype) => match self.sizes(items) {
                Some(dims) => Value::Type(dtype, Box::new(dims)),
                None => Value::Unknown,
            },
            Value::Stream { first, count: Some(count), family } => {
                let [item] = items else { return self.index_count(base, (true, false), 1, items, span) };
                match self.place(base, item, u64::from(count)) {
                    Some(index) => Value::Stream { first: first + index as u32, count: None, family },
                    None => Value::Unknown,
                }
            }
            Value::Tensor { view, family } => self.slice(view, family, base, items, span),
            Value::Parts(parts) => self.index_parts(&parts, base, items, span),
            Value::Label(_) => match self.single_output(&value, base.span) {
                Some(view) => self.slice(view, 0, base, items, span),
                None => Value::Unknown,
            },
            Value::Labels(family) => self.member(family, base, items, span),
            Value::List(list) => {
                let [item] = items else { return self.index_count(base, (true, false), 1, items, span) };
                match self.eval(item) {
                    Value::Range { from, to, .. } => {
                        if from < 0 || to > list.len() as i64 || from > to {
                            self.slice_out_of_range(base, from, to, list.len() as u64, item.span);
                            return Value::Unknown;
                        }
                        match self.room_for_members((to - from) as usize, span) {
                            true => Value::List(Arc::new(list[from as usize..to as usize].to_vec())),
                            false => Value::Unknown,
                        }
                    }
                    Value::Whole => Value::List(list),
                    value => match self.place_of(base, &value, item.span, list.len() as u64) {
                        Some(index) => list[index as usize].clone(),
                        None => Value::Unknown,
                    },
                }
            }
            Value::Type(dtype, ref dims) => {
                let all = dims.iter().map(u64::to_string).chain(items.iter().map(|item| written(item, &self.names)));
                let all = all.collect::<Vec<_>>().join(", ");
                self.fail_value(ModelError::WrongType {
                    expected: "an element type before `[`".to_owned(),
                    found: value.describe(&self.names),
                    at: base.span.into(),
                    help: Some(format!("write all sizes in one bracket: `{dtype}[{all}]`")),
                })
            }
            stream @ Value::Stream { count: None, .. } => {
                let name = self.text_of(base);
                self.fail_value(ModelError::WrongType {
                    expected: "a family of streams".to_owned(),
                    found: stream.describe(&self.names),
                    at: base.span.into(),
                    help: Some(format!("it is one stream: write `{name}`, or declare a family: `stream {name}[4]`")),
                })
            }
            other => {
                self.wrong_type::<()>(
                    "something with an index: a buffer, a family, a list or a type",
                    &other,
                    base.span,
                );
                Value::Unknown
            }
        }
    }

    /// Evaluates the sizes of a type, which must be whole numbers of at least 1. `None` after an error, which has been reported.
    pub(in crate::model) fn sizes(&mut self, items: &[Expr]) -> Option<Dims> {
        let mut dims = Dims::new();
        let mut good = true;
        for item in items {
            let Some(size) = self.eval_whole(item) else {
                good = false;
                continue;
            };
            if size < 1 {
                self.error(ModelError::BadSize {
                    what: "a dimension".to_owned(),
                    value: size.to_string(),
                    at: item.span.into(),
                    help: match &item.kind {
                        ExprKind::Int(0) if item.span.len == 3 => {
                            "a comma separates dimensions: digits are grouped by `_`, as in `1_000`"
                        }
                        _ if size == -1 => NOT_INFERRED,
                        _ => "sizes begin at 1",
                    },
                });
                good = false;
            } else if dims.push(size as u64).is_none() {
                return self.fail(ModelError::BadSize {
                    what: "the number of dimensions".to_owned(),
                    value: items.len().to_string(),
                    at: item.span.into(),
                    help: "a tensor has at most 8, those of its family included",
                });
            }
        }
        if good && dims.elements().and_then(|n| n.checked_mul(8)).is_none_or(|bytes| bytes > 1 << 60) {
            let at = items[0].span.to(items[items.len() - 1].span);
            self.error(ModelError::BadSize {
                what: "the number of elements".to_owned(),
                value: "past 2^57".to_owned(),
                at: at.into(),
                help: "lower a dimension",
            });
            good = false;
        }
        good.then_some(dims)
    }

    /// Reports a wrong number of indices. `slices` is true if the members of a family can be sliced.
    fn index_count(
        &mut self,
        base: &Expr,
        (family, slices): (bool, bool),
        has: usize,
        items: &[Expr],
        span: SrcSpan,
    ) -> Value {
        let name = self.text_of(base);
        let given = items.len();
        let is_draw = base.as_name().is_some_and(|symbol| matches!(self.scopes.get(symbol), Some(Value::Draw(_))));
        let help = match (family, has) {
            (true, 1) if slices && given > 1 => {
                let texts: Vec<String> = items.iter().map(|item| written(item, &self.names)).collect();
                format!(
                    "the first brackets choose a member, further ones a slice of it: `{name}[{}][{}]`",
                    texts[0],
                    texts[1..].join(", ")
                )
            }
            (true, 1) if given > 1 && is_draw => {
                let texts: Vec<String> = items.iter().map(|item| format!("[{}]", written(item, &self.names))).collect();
                format!(
                    "the value of a draw is a list of lists: write each index in its own brackets, `{name}{}`",
                    texts.concat()
                )
            }
            (true, 1) => {
                format!("write one index: `{name}[0]`; a slice of the member follows: `{name}[0][0..4]`")
            }
            (true, _) => {
                let index: Vec<&str> = ["i", "j", "k", "l"].into_iter().cycle().take(has).collect();
                format!("write {has} indices: `{name}[{}]`", index.join(", "))
            }
            (false, 0) => format!("it is a single number: write `{name}`"),
            (false, _) => "write at most one index for each dimension; `..` selects all of one".to_owned(),
        };
        let has = match (family, has) {
            (true, 1) => "one index".to_owned(),
            (true, has) => format!("{has} indices"),
            (false, 1) => "one dimension".to_owned(),
            (false, 0) => "no dimensions".to_owned(),
            (false, has) => format!("{has} dimensions"),
        };
        let given = format!("{given} {}", if given == 1 { "index" } else { "indices" });
        self.fail_value(SliceError::IndexCount { name, has, given, at: span.into(), help: Some(help) })
    }

    /// Evaluates an index below `size`.
    fn place(&mut self, base: &Expr, item: &Expr, size: u64) -> Option<u64> {
        let value = self.plain_whole(item).map_or_else(|| self.eval(item), Value::int);
        self.place_of(base, &value, item.span, size)
    }

    fn place_of(&mut self, base: &Expr, value: &Value, at: SrcSpan, size: u64) -> Option<u64> {
        let index = match value {
            Value::Unknown => return None,
            Value::Number(number) if number.dimension == Dimension::NONE => self.whole(*number, at)?,
            other => return self.wrong_type("an index: a whole number", other, at),
        };
        if index >= 0 && (index as u64) < size {
            return Some(index as u64);
        }
        let name = self.text_of(base);
        self.fail(SliceError::IndexOutOfRange { name, index, size, last: size as i64 - 1, at: at.into() })
    }

    fn slice_out_of_range(&mut self, base: &Expr, from: i64, to: i64, size: u64, at: SrcSpan) {
        let name = self.text_of(base);
        self.error(SliceError::SliceOutOfRange { name, from, to, size, at: at.into() });
    }

    /// Evaluates a slice of a tensor. The first bracket after a family selects from the family's dimensions.
    fn slice(&mut self, view: ViewId, family: u8, base: &Expr, items: &[Expr], span: SrcSpan) -> Value {
        let is_view = self.program.views.is_reshaped(view);
        let sizes = self.program.views.tensor(view).dims;
        let open = if family > 0 { usize::from(family) } else { sizes.len() };
        if items.len() > open || (family > 0 && items.len() != open) {
            return self.index_count(base, (family > 0, true), open, items, span);
        }
        let Some(selected) = self.select(base, items, &sizes) else { return Value::Unknown };
        if is_view && self.is_part(view) {
            return self.slice_of_part(view, base, &selected, span);
        }
        if is_view {
            return self.slice_of_view(view, base, &selected, span);
        }
        let memory = self.program.views.memory(view);
        let mut extents: Vec<Extent> = self.program.views.extents(view).to_vec();
        let mut mask = self.program.views.kept_mask(view);
        for (Selected { extent, is_kept }, axis) in selected.into_iter().zip(self.program.views.kept(view)) {
            extents[axis] = Extent { start: extents[axis].start + extent.start, len: extent.len };
            mask &= !(u8::from(!is_kept) << axis);
        }
        let layout = self.program.layout(memory);
        let view = self.program.views.intern(memory, &extents, mask, &layout);
        Value::Tensor { view, family: 0 }
    }

    /// Evaluates a slice of a tensor in other dimensions than those of its memory.
    fn slice_of_view(&mut self, view: ViewId, base: &Expr, items: &[Selected], span: SrcSpan) -> Value {
        let memory = self.program.views.memory(view);
        let (tensor, layout) = (*self.program.views.tensor(view), self.program.layout(memory));
        let mut offset = self.program.views.offset(view, &layout.dims);
        let (mut dims, mut strides) = (Dims::new(), Dims::new());
        for (axis, (&size, &stride)) in tensor.dims.iter().zip(tensor.strides.iter()).enumerate() {
            let Selected { extent, is_kept } = items.get(axis).copied().unwrap_or(Selected::all(size));
            offset += extent.start * stride;
            if is_kept {
                let fits = "a slice has no more dimensions than its view";
                dims.push(extent.len).expect(fits);
                strides.push(stride).expect(fits);
            }
        }
        // A buffer with parts keeps its one dimension.
        let fixed = match self.program.parts.contains_key(&memory) {
            true => Dims::MAX,
            false => usize::from(self.program.memory(memory).family),
        };
        let unplaced = match self.program.views.place(memory, (offset, dims, strides), fixed, &layout) {
            Ok(view) => return Value::Tensor { view, family: 0 },
            Err(unplaced) => unplaced,
        };
        let name = written(base, &self.names);
        let dims = self.program.views.grid(memory).unwrap_or(layout.dims);
        let memory = self.names.name(self.program.memory(memory).name).to_owned();
        let why = match unplaced {
            Unplaced::Slice => format!("not one range in each dimension of {dims}"),
            Unplaced::Other(other) => {
                // The analysis has the names until it ends.
                std::mem::swap(&mut self.names, &mut self.program.names);
                let other = self.program.view_text(other);
                std::mem::swap(&mut self.names, &mut self.program.names);
                format!("it divides a dimension of {dims} in parts, and `{other}` above is no box of such parts")
            }
        };
        self.fail_value(SliceError::SliceOfView { name, memory, why, at: span.into() })
    }

    /// Returns the part of each dimension that its index in `items` selects; `sizes` are the dimensions of `base`. Reports
    /// each index that does not fit; `None` if one does not.
    fn select(&mut self, base: &Expr, items: &[Expr], sizes: &[u64]) -> Option<Vec<Selected>> {
        let mut selected = Some(Vec::with_capacity(items.len()));
        for (item, &size) in items.iter().zip(sizes) {
            let value = self.plain_whole(item).map(Value::int);
            let found = match value.unwrap_or_else(|| self.eval(item)) {
                Value::Whole => Some(Selected::all(size)),
                Value::Range { from, to, reversed: false } => {
                    if from >= to && from >= 0 && to >= 0 && from <= size as i64 {
                        self.fail(SliceError::EmptySlice { at: item.span.into(), from, to })
                    } else if from < 0 || from >= to || to > size as i64 {
                        self.slice_out_of_range(base, from, to, size, item.span);
                        None
                    } else {
                        Some(Selected { extent: Extent { start: from as u64, len: (to - from) as u64 }, is_kept: true })
                    }
                }
                value => self
                    .place_of(base, &value, item.span, size)
                    .map(|index| Selected { extent: Extent { start: index, len: 1 }, is_kept: false }),
            };
            selected = selected.zip(found).map(|(mut selected, found)| {
                selected.push(found);
                selected
            });
        }
        selected
    }

    /// `view(x, [a, b])`: the elements of a slice in other dimensions.
    pub(in crate::model) fn reshape(&mut self, value: &Value, items: &[Value], args: &[Expr], span: SrcSpan) -> Value {
        let Some(view) = self.view_of(value, args[0].span) else { return Value::Unknown };
        let tensor = *self.program.views.tensor(view);
        let mut dims = Dims::new();
        for item in items {
            let size = match item {
                Value::Number(number) if number.dimension == Dimension::NONE => self.whole(*number, args[1].span),
                other => self.wrong_type("a list of sizes, such as `[4, 8]`", other, args[1].span),
            };
            let Some(size) = size else { return Value::Unknown };
            if size < 1 || dims.push(size as u64).is_none() {
                let (what, value, help) = match size {
                    -1 => ("a dimension", size, NOT_INFERRED),
                    ..1 => ("a dimension", size, "sizes begin at 1"),
                    _ => ("the number of dimensions", items.len() as i64, "a tensor has at most 8"),
                };
                let (what, value) = (what.to_owned(), value.to_string());
                return self.fail_value(ModelError::BadSize { what, value, at: args[1].span.into(), help });
            }
        }
        // `Dims::elements` is `None` for more than 2^63: `ops::reshaped` would overflow there.
        let has = match dims.elements() {
            Some(elements) if elements == tensor.elements() => Ok(ops::reshaped(&tensor, dims)),
            Some(elements) => Err(elements.to_string()),
            None => Err("more than 2^63".to_owned()),
        };
        // Most calls are valid, so the expression is written only for an error.
        let name = || written(&args[0], &self.names);
        let (why, help) = match has {
            Err(has) => (
                format!("{} has {} elements, and {dims} has {has}", name(), tensor.elements()),
                "choose sizes whose product is the number of elements".to_owned(),
            ),
            Ok(Ok(strides)) => {
                let layout = self.program.layout(self.program.views.memory(view));
                let view = self.program.views.reshape(view, dims, strides, &layout);
                return Value::Tensor { view, family: 0 };
            }
            Ok(Err(axis)) => (
                format!(
                    "dimension {axis} of {}, {tensor}, has gaps between its elements, so it does not merge with dimension {}",
                    name(),
                    axis + 1
                ),
                format!(
                    "keep dimension {axis} as one of the new sizes, or make a copy without gaps first: `c: copy({})`",
                    name()
                ),
            ),
        };
        self.fail_value(SliceError::View { why, help, at: span.into() })
    }

    /// Evaluates `value.member`, such as an output of a labelled call or a part of a buffer.
    pub(in crate::model) fn field(&mut self, value: &Value, base: &Expr, member: Name) -> Value {
        match value {
            Value::Unknown => Value::Unknown,
            Value::Label(label) => self.label_member(*label, base, member),
            Value::Group(group) => self.group_member(*group, member),
            Value::Parts(parts) => self.part_of_several(parts, base, member),
            other => {
                if let Some(part) = self.buffer_part(other, base, member) {
                    return part;
                }
                let name = self.text_of(base);
                let member_text = self.names.name(member.symbol).to_owned();
                let help = match (other, member_text.as_str()) {
                    (Value::Labels(_), _) => {
                        format!("`{name}` is a family of labels: pick a member, `{name}[0].{member_text}`")
                    }
                    (Value::Tensor { .. }, member) => unknown::tensor_member(&name, member),
                    (other, _) => {
                        let found = other.describe(&self.names);
                        format!("`{name}` is {found}; only labels and groups of ranks have members")
                    }
                };
                self.fail_value(ModelError::UnknownMember {
                    name,
                    member: member_text,
                    at: member.span.into(),
                    help: Some(help),
                })
            }
        }
    }
}
