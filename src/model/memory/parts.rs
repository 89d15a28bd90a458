//! Buffers with parts: `buffer w { up: bf16[d, f], down: bf16[f, d] }`.
//!
//! Parts of one type lie one after another in one memory with one dimension, which is the buffer as a whole. A part is
//! a range of it in its own dimensions. Parts of several types are memories of their own, and there is no whole.

use std::sync::Arc;

use crate::base::{DType, Dims, Space, SrcSpan, Symbol, ViewId, suggest};
use crate::syntax::ast::{Buffer, Expr, Layout, Name};

use super::slice::Selected;
use super::views::Extent;
use crate::model::analyzer::Analyzer;
use crate::model::error::{ModelError, SliceError, StructureError};
use crate::model::program::{BufferPart, MemoryKind, Program};
use crate::model::values::value::Value;

/// The type of a buffer: of a tensor, or of each of its parts.
#[derive(Clone, Debug)]
pub(in crate::model) enum BufferType {
    Tensor(DType, Dims),
    Parts(Vec<(Symbol, DType, Dims)>),
}

/// The attributes of a buffer besides its name and its type.
#[derive(Clone)]
pub(in crate::model) struct BufferAttributes {
    pub kind: MemoryKind,
    pub space: Space,
    /// The sizes of the buffer's family.
    pub count: Dims,
}

impl Analyzer<'_> {
    /// Evaluates the type of a buffer. `None` after an error, which has been reported.
    pub(in crate::model) fn buffer_type(&mut self, buffer: &Buffer) -> Option<BufferType> {
        match &buffer.layout {
            Layout::Tensor(expr) => self.tensor_type(expr).map(|(dtype, dims)| BufferType::Tensor(dtype, dims)),
            Layout::Like(path) => self.like(path),
            Layout::Parts(parts) => self.part_types(parts),
        }
    }

    fn part_types(&mut self, parts: &[(Name, Expr)]) -> Option<BufferType> {
        let mut types = Some(Vec::with_capacity(parts.len()));
        for (place, (name, ty)) in parts.iter().enumerate() {
            if let Some((first, _)) = parts[..place].iter().find(|(other, _)| other.symbol == name.symbol) {
                let text = self.names.name(name.symbol).to_owned();
                self.error(StructureError::PartTwice { name: text, at: name.span.into(), first: first.span.into() });
                types = None;
            }
            let found = self.tensor_type(ty);
            types = types.zip(found).map(|(mut types, (dtype, dims))| {
                types.push((name.symbol, dtype, dims));
                types
            });
        }
        types.map(BufferType::Parts)
    }

    /// Returns the type of another buffer, a slice or an output; for a family, the type of a member. `None` after an
    /// error.
    fn like(&mut self, path: &Expr) -> Option<BufferType> {
        let value = self.eval(path);
        if let Some(parts) = self.parts_of(&value, true) {
            return Some(BufferType::Parts(parts.iter().map(|part| (part.name, part.dtype, part.dims)).collect()));
        }
        if let Value::Parts(parts) = &value {
            let of_part = |(name, value): &(Symbol, Value)| match self.member_type(value)? {
                BufferType::Tensor(dtype, dims) => Some((*name, dtype, dims)),
                BufferType::Parts(_) => None,
            };
            return parts.iter().map(of_part).collect::<Option<Vec<_>>>().map(BufferType::Parts);
        }
        match &value {
            Value::Tensor { .. } => self.member_type(&value),
            Value::Label(_) => {
                let view = self.single_output(&value, path.span)?;
                self.member_type(&Value::Tensor { view, family: 0 })
            }
            other => self.wrong_type("a buffer", other, path.span),
        }
    }

    /// The type of a tensor, without the dimensions of its family.
    fn member_type(&self, value: &Value) -> Option<BufferType> {
        let Value::Tensor { view, family } = value else { return None };
        let tensor = self.program.views.tensor(*view);
        let dims = Dims::from_slice(&tensor.dims[usize::from(*family)..])?;
        Some(BufferType::Tensor(tensor.dtype, dims))
    }

    /// Creates the memory of a buffer or a family, and returns the value of its name: `Value::Unknown` if it is too
    /// large; then an error is reported. Parts of one type share one memory, parts of several types have one each.
    pub(in crate::model) fn add_buffer(&mut self, name: Name, attributes: BufferAttributes, ty: &BufferType) -> Value {
        let parts = match ty {
            BufferType::Tensor(dtype, dims) => {
                return self.add_family(name, attributes.kind, attributes.space, attributes.count, (*dtype, *dims));
            }
            BufferType::Parts(parts) => parts,
        };
        let dtype = parts[0].1;
        if parts.iter().any(|(_, other, _)| *other != dtype) {
            let text = self.names.name(name.symbol).to_owned();
            let values = parts.iter().map(|(part, dtype, dims)| {
                let full = format!("{text}.{}", self.names.name(*part));
                let symbol = self.names.intern(&full);
                let name = Name { symbol, ..name };
                (
                    *part,
                    self.add_family(name, attributes.kind.clone(), attributes.space, attributes.count, (*dtype, *dims)),
                )
            });
            return Value::Parts(Arc::new(values.collect()));
        }
        let mut places: Vec<BufferPart> = Vec::with_capacity(parts.len());
        let mut start = 0u64;
        for (name, dtype, dims) in parts {
            places.push(BufferPart { name: *name, dtype: *dtype, dims: *dims, start });
            start = start.saturating_add(dims.elements().unwrap_or(u64::MAX));
        }
        let all = Dims::from([start]);
        let value = self.add_family(name, attributes.kind, attributes.space, attributes.count, (dtype, all));
        if let Value::Tensor { view, .. } = value {
            self.program.parts.insert(self.program.views.memory(view), places.into());
        }
        value
    }

    /// The parts of a buffer, or of a member of a family; with `family`, of a whole family too. `None` for any other
    /// value.
    fn parts_of(&self, value: &Value, family: bool) -> Option<Arc<[BufferPart]>> {
        let Value::Tensor { view, family: open } = *value else { return None };
        let views = &self.program.views;
        let memory = views.memory(view);
        let parts = self.program.parts.get(&memory)?;
        let last = *self.program.layout(memory).dims.last()?;
        let is_whole = !views.is_reshaped(view) && views.extents(view).last()?.len == last;
        let is_one = views.kept(view).count() == 1 || (family && open > 0);
        (is_whole && is_one).then(|| parts.clone())
    }

    /// Evaluates `w.up` of a buffer with parts of one type. `None` if the value has no parts.
    pub(super) fn buffer_part(&mut self, value: &Value, base: &Expr, member: Name) -> Option<Value> {
        let parts = self.parts_of(value, true)?;
        let Value::Tensor { view, family } = *value else { return None };
        if family > 0 {
            return Some(self.part_of_family(base, member));
        }
        let Some(part) = parts.iter().find(|part| part.name == member.symbol) else {
            let known: Vec<Symbol> = parts.iter().map(|part| part.name).collect();
            return Some(self.no_part(base, member, &known));
        };
        let mut extents: Vec<Extent> = self.program.views.extents(view).to_vec();
        let elements = part.dims.elements().expect("the whole buffer has been checked");
        *extents.last_mut()? = Extent { start: part.start, len: elements };
        Some(Value::Tensor { view: self.range_of(view, &extents, part.dims), family: 0 })
    }

    /// Evaluates `w.up` of a buffer with parts of several types.
    pub(super) fn part_of_several(&mut self, parts: &[(Symbol, Value)], base: &Expr, member: Name) -> Value {
        let family = parts.iter().any(|(_, value)| matches!(value, Value::Tensor { family: 1.., .. }));
        if family {
            return self.part_of_family(base, member);
        }
        match parts.iter().find(|(name, _)| *name == member.symbol) {
            Some((_, value)) => value.clone(),
            None => {
                let known: Vec<Symbol> = parts.iter().map(|(name, _)| *name).collect();
                self.no_part(base, member, &known)
            }
        }
    }

    /// The member of a family of buffers with parts of several types, or an error for a single one.
    pub(super) fn index_parts(&mut self, parts: &[(Symbol, Value)], base: &Expr, items: &[Expr], at: SrcSpan) -> Value {
        if parts.iter().any(|(_, value)| matches!(value, Value::Tensor { family: 0, .. })) {
            let name = self.text_of(base);
            let part = self.names.name(parts[0].0).to_owned();
            return self.fail_value(StructureError::NoWhole { name, part, at: at.into() });
        }
        let members: Vec<(Symbol, Value)> =
            parts.iter().map(|(name, value)| (*name, self.index(value.clone(), base, items, at))).collect();
        match members.iter().any(|(_, value)| matches!(value, Value::Unknown)) {
            true => Value::Unknown,
            false => Value::Parts(Arc::new(members)),
        }
    }

    /// Reports a part of all members of a family at once.
    fn part_of_family(&mut self, base: &Expr, member: Name) -> Value {
        let (name, text) = (self.text_of(base), self.names.name(member.symbol).to_owned());
        let help = Some(format!("`{name}` is a family of buffers: pick a member, `{name}[0].{text}`"));
        self.fail_value(ModelError::UnknownMember { name, member: text, at: member.span.into(), help })
    }

    /// Reports a name that no part has.
    fn no_part(&mut self, base: &Expr, member: Name, known: &[Symbol]) -> Value {
        let text = self.names.name(member.symbol).to_owned();
        let known: Vec<&str> = known.iter().map(|name| self.names.name(*name)).collect();
        let help = suggest::nearest(&text, known.iter().copied()).map_or_else(
            || format!("its parts are {}", suggest::listed(&known)),
            |near| format!("did you mean `{near}`?"),
        );
        let name = self.text_of(base);
        self.fail_value(ModelError::UnknownMember { name, member: text, at: member.span.into(), help: Some(help) })
    }

    /// A range of a memory in the last of its dimensions, seen in other dimensions.
    fn range_of(&mut self, view: ViewId, extents: &[Extent], dims: Dims) -> ViewId {
        let views = &self.program.views;
        let (memory, kept) = (views.memory(view), views.kept_mask(view));
        let layout = self.program.layout(memory);
        let flat = self.program.views.intern(memory, extents, kept, &layout);
        self.program.views.reshape(flat, dims, dims.contiguous_strides(), &layout)
    }

    /// A slice of a part. Its elements must be contiguous, since a buffer with parts has one dimension.
    pub(in crate::model) fn slice_of_part(
        &mut self,
        view: ViewId,
        base: &Expr,
        items: &[Selected],
        span: SrcSpan,
    ) -> Value {
        let tensor = *self.program.views.tensor(view);
        let strides = tensor.dims.contiguous_strides();
        let selected = |axis: usize| items.get(axis).copied().unwrap_or(Selected::all(tensor.dims[axis]));
        let (mut start, mut elements, mut is_wide) = (0, 1, false);
        let mut dims = Dims::new();
        for axis in 0..tensor.dims.len() {
            let Selected { extent, is_kept } = selected(axis);
            if is_wide && extent.len != tensor.dims[axis] {
                let name = self.text_of(base);
                return self.fail_value(SliceError::GapsInPart { name, axis, at: span.into() });
            }
            is_wide |= extent.len > 1;
            start += extent.start * strides[axis];
            elements *= extent.len;
            if is_kept {
                dims.push(extent.len).expect("no more dimensions than the part has");
            }
        }
        let mut extents: Vec<Extent> = self.program.views.extents(view).to_vec();
        let last = extents.last_mut().expect("a buffer with parts has a dimension");
        *last = Extent { start: last.start + start, len: elements };
        Value::Tensor { view: self.range_of(view, &extents, dims), family: 0 }
    }

    /// True if the slice is of a part, or of a view of one.
    pub(super) fn is_part(&self, view: ViewId) -> bool {
        let views = &self.program.views;
        self.program.parts.contains_key(&views.memory(view)) && views.kept(view).count() == 1
    }
}

impl Program {
    /// The name of a part and the indices of a slice in it, such as `.up[0..4]`. `None` if the slice does not lie in a
    /// single part.
    pub(in crate::model) fn part_text(&self, view: ViewId) -> Option<String> {
        let parts = self.parts.get(&self.views.memory(view))?;
        let extent = *self.views.extents(view).last()?;
        let part = parts.iter().find(|part| {
            let elements = part.dims.elements().unwrap_or(0);
            Extent { start: part.start, len: elements }.contains(extent)
        })?;
        let name = self.names.name(part.name);
        let found = self.views.tensor(view).dims;
        if extent.len == part.dims.elements()? {
            return match found == part.dims {
                true => Some(format!(".{name}")),
                false => None,
            };
        }
        // The outermost dimension along which the slice is a range; it has a single index along earlier ones.
        let (strides, start) = (part.dims.contiguous_strides(), extent.start - part.start);
        let axis = (0..part.dims.len())
            .find(|&axis| extent.len.is_multiple_of(strides[axis]) && start.is_multiple_of(strides[axis]))?;
        let place = |axis: usize| start / strides[axis] % part.dims[axis];
        let (from, len) = (place(axis), extent.len / strides[axis]);
        let mut items: Vec<String> = (0..axis).map(|axis| place(axis).to_string()).collect();
        let rest = &part.dims[axis + 1..];
        let (is_index, is_range) = (len == 1 && *found == *rest, *found == *[&[len][..], rest].concat());
        match (is_index, is_range && from + len <= part.dims[axis]) {
            (true, _) => items.push(from.to_string()),
            (_, true) => items.push(format!("{from}..{}", from + len)),
            _ => return None,
        }
        Some(format!(".{name}[{}]", items.join(", ")))
    }
}
