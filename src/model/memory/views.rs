//! Distinct slices of memory.

use std::hash::{Hash, Hasher};

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHasher};

use crate::base::{DType, Dims, MemoryId, Space, ViewId};
use crate::ops::Tensor;

use super::buckets::Buckets;
pub use super::grid::Extent;
use super::grid::{self, NoBox, boxed};

/// A slice: a box in the grid of its memory (family dimensions first), of which the slice keeps some dimensions.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub memory: MemoryId,
    first: u32,
    rank: u8,
    /// Bit `i` is set if dimension `i` belongs to the slice; the others were selected by an index.
    kept: u8,
    /// Index of the tensor that operations see.
    tensor: u32,
    /// True if operations see the elements in other dimensions than those that the slice keeps.
    is_reshaped: bool,
}

/// Every slice of a program.
#[derive(Clone, Debug, Default)]
pub struct Views {
    views: Vec<View>,
    extents: Vec<Extent>,
    tensors: IndexSet<Tensor, FxBuildHasher>,
    /// For each tensor that covers the whole of some memory, the start of such slices' extents.
    whole_extents: Vec<u32>,
    /// For each memory, the slice that covers all of it.
    wholes: Vec<u32>,
    /// The slices created last; the next one is often equal.
    recent: [Option<u32>; 2],
    /// Slices that do not cover all of a memory, by hash.
    table: Buckets,
    /// The dimensions in which slices are boxes, for memories where these are finer than their own.
    grids: FxHashMap<MemoryId, Dims>,
}

/// The slice that is no box in any grid of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// The new slice.
    Slice,
    /// An existing slice, in the grid that the new one needs.
    Other(ViewId),
}

const NONE: u32 = u32::MAX;

/// Properties of a memory that a view depends on.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub dtype: DType,
    pub dims: Dims,
    pub space: Space,
}

fn hash(memory: MemoryId, kept: u8, extents: &[Extent]) -> u32 {
    let mut hasher = FxHasher::default();
    (memory, kept).hash(&mut hasher);
    for extent in extents {
        extent.hash(&mut hasher);
    }
    let hash = hasher.finish();
    (hash ^ hash >> 32) as u32
}

/// The hash of a slice that operations see as another tensor.
fn reshaped_hash(memory: MemoryId, kept: u8, extents: &[Extent], tensor: u32) -> u32 {
    hash(memory, kept, extents) ^ tensor.wrapping_mul(0x9e37_79b9)
}

impl Views {
    /// The slice of `memory` with these extents, one per dimension of its grid.
    pub fn intern(&mut self, memory: MemoryId, extents: &[Extent], kept: u8, layout: &Layout) -> ViewId {
        let layout = &self.on_grid(memory, layout);
        let all = kept == all_kept(extents.len()) && self.grid(memory).is_none();
        if all && extents.iter().zip(layout.dims.iter()).all(|(extent, len)| extent.len == *len) {
            return self.whole(memory, layout);
        }
        let key = hash(memory, kept, extents);
        let (views, stored) = (&self.views, &self.extents);
        let same = |index: u32| {
            let view = &views[index as usize];
            view.memory == memory && view.kept == kept && !view.is_reshaped && extents_of(stored, view) == extents
        };
        if let Some(index) = self.table.find(key, same) {
            return ViewId(index);
        }
        let tensor = self.tensor_of(memory, extents, kept, layout);
        let first = self.extents.len() as u32;
        self.extents.extend_from_slice(extents);
        let index = self.push(View { memory, first, rank: extents.len() as u8, kept, tensor, is_reshaped: false });
        self.recent = [Some(index), self.recent[0]];
        self.table.insert(key, index);
        ViewId(index)
    }

    /// Returns a view of a slice's elements in other dimensions, with the strides that
    /// [`reshaped`](crate::ops::reshaped) returns.
    pub fn reshape(&mut self, view: ViewId, dims: Dims, strides: Dims, layout: &Layout) -> ViewId {
        let base = *self.get(view);
        let layout = &self.on_grid(base.memory, layout);
        let extents: Vec<Extent> = self.extents(view).to_vec();
        let plain = tensor(&extents, base.kept, layout);
        if plain.dims == dims {
            return self.intern(base.memory, &extents, base.kept, layout);
        }
        let tensor = self.tensors.insert_full(Tensor { dims, strides, ..plain }).0 as u32;
        let key = reshaped_hash(base.memory, base.kept, &extents, tensor);
        let (views, stored) = (&self.views, &self.extents);
        let same = |index: u32| {
            let view = &views[index as usize];
            (view.memory, view.tensor, view.kept, view.is_reshaped) == (base.memory, tensor, base.kept, true)
                && extents_of(stored, view) == extents
        };
        if let Some(index) = self.table.find(key, same) {
            return ViewId(index);
        }
        let index = self.push(View { tensor, is_reshaped: true, ..base });
        self.table.insert(key, index);
        ViewId(index)
    }

    /// Returns the slice of a memory that begins at this element and has these dimensions and strides. Divides dimensions of
    /// the grid behind the first `fixed` if the slice is no box without that.
    pub fn place(
        &mut self,
        memory: MemoryId,
        (offset, dims, strides): (u64, Dims, Dims),
        fixed: usize,
        layout: &Layout,
    ) -> Result<ViewId, Unplaced> {
        let mut grid = self.on_grid(memory, layout).dims;
        let extents = loop {
            match boxed(&grid, offset, &dims, &strides) {
                Ok(extents) => break extents,
                Err(NoBox::Divide { axis, part }) if axis >= fixed => {
                    grid = grid::divided(&grid, axis, part).ok_or(Unplaced::Slice)?;
                }
                Err(_) => return Err(Unplaced::Slice),
            }
        };
        if grid != self.on_grid(memory, layout).dims {
            self.refine(memory, grid, layout).map_err(Unplaced::Other)?;
        }
        let kept = grid::kept(&extents, &dims);
        let view = self.intern(memory, &extents, kept.unwrap_or(all_kept(extents.len())), layout);
        Ok(if kept.is_some() { view } else { self.reshape(view, dims, strides, layout) })
    }

    /// Replaces the grid of a memory by a finer one.
    ///
    /// # Errors
    ///
    /// A slice is no box there; nothing has changed.
    fn refine(&mut self, memory: MemoryId, grid: Dims, layout: &Layout) -> Result<(), ViewId> {
        // The first slice of a memory covers all of it, unless this one belongs to another rank's analysis, which is over.
        let first = self.wholes.get(memory.index()).copied().filter(|&first| first != NONE).unwrap_or(0) as usize;
        debug_assert!(self.views[..first].iter().all(|view| view.memory != memory));
        let fine = Layout { dims: grid, ..*layout };
        let steps = self.on_grid(memory, layout).dims.contiguous_strides();
        let mut moved = Vec::new();
        for (index, view) in self.views.iter().enumerate().skip(first).filter(|(_, view)| view.memory == memory) {
            let extents = extents_of(&self.extents, view);
            let offset = extents.iter().zip(steps.iter()).map(|(extent, step)| extent.start * step).sum();
            let lens: Vec<u64> = extents.iter().map(|extent| extent.len).collect();
            moved.push((index, boxed(&grid, offset, &lens, &steps).map_err(|_| ViewId(index as u32))?));
        }
        for (index, extents) in moved {
            let own = *self.tensors.get_index(self.views[index].tensor as usize).expect("stored when the view was");
            let plain = grid::kept(&extents, &own.dims).filter(|kept| tensor(&extents, *kept, &fine) == own);
            let kept = plain.unwrap_or(all_kept(extents.len()));
            let view = &mut self.views[index];
            (view.first, view.rank) = (self.extents.len() as u32, extents.len() as u8);
            (view.kept, view.is_reshaped) = (kept, plain.is_none());
            let key = match plain {
                Some(_) => hash(memory, kept, &extents),
                None => reshaped_hash(memory, kept, &extents, view.tensor),
            };
            self.extents.extend_from_slice(&extents);
            self.table.insert(key, index as u32);
        }
        self.recent = [None; 2];
        self.grids.insert(memory, grid);
        Ok(())
    }

    /// Returns the layout of a memory with the dimensions of its grid.
    fn on_grid(&self, memory: MemoryId, layout: &Layout) -> Layout {
        Layout { dims: self.grid(memory).unwrap_or(layout.dims), ..*layout }
    }

    /// The dimensions in which slices of a memory are boxes; `None` if these are the memory's own.
    pub fn grid(&self, memory: MemoryId) -> Option<Dims> {
        self.grids.get(&memory).copied()
    }

    /// True if a slice covers all of its memory, which has these dimensions.
    pub fn covers_all(&self, view: ViewId, dims: &Dims) -> bool {
        let grid = self.grid(self.memory(view)).unwrap_or(*dims);
        self.extents(view).iter().zip(grid.iter()).all(|(extent, size)| extent.len == *size)
    }

    /// True if operations see a slice in other dimensions than those that it keeps.
    pub fn is_reshaped(&self, view: ViewId) -> bool {
        self.get(view).is_reshaped
    }

    /// Returns the index of the tensor through which operations access a slice.
    fn tensor_of(&mut self, memory: MemoryId, extents: &[Extent], kept: u8, layout: &Layout) -> u32 {
        let align = align(extents, layout);
        let alike = |view: &View| {
            let lens = extents_of(&self.extents, view).iter().map(|extent| extent.len);
            view.memory == memory
                && view.kept == kept
                && lens.eq(extents.iter().map(|extent| extent.len))
                && self.tensors.get_index(view.tensor as usize).is_some_and(|tensor| tensor.align == align)
        };
        let known = self.recent.iter().flatten().map(|&index| self.views[index as usize]).find(alike);
        known.map_or_else(|| self.tensors.insert_full(tensor(extents, kept, layout)).0 as u32, |view| view.tensor)
    }

    /// Releases unused capacity and lookup tables once no more slices come.
    pub(in crate::model) fn finish(&mut self) {
        self.views.shrink_to_fit();
        self.extents.shrink_to_fit();
        self.tensors.shrink_to_fit();
        self.wholes = Vec::new();
        self.whole_extents = Vec::new();
        self.table = Buckets::default();
    }

    fn push(&mut self, view: View) -> u32 {
        self.views.push(view);
        self.views.len() as u32 - 1
    }

    /// The slice that covers all of a memory. Most memories are never sliced, so this needs no lookup and little
    /// memory.
    pub fn whole(&mut self, memory: MemoryId, layout: &Layout) -> ViewId {
        if self.wholes.len() <= memory.index() {
            self.wholes.resize(memory.index() + 1, NONE);
        }
        let known = self.wholes[memory.index()];
        if known != NONE {
            return ViewId(known);
        }
        if let Some(grid) = self.grid(memory) {
            let extents: Vec<Extent> = grid.iter().map(|&len| Extent { start: 0, len }).collect();
            let plain = self.intern(memory, &extents, all_kept(grid.len()), layout);
            return self.reshape(plain, layout.dims, layout.dims.contiguous_strides(), layout);
        }
        let mut extents = [Extent { start: 0, len: 0 }; Dims::MAX];
        for (extent, &len) in extents.iter_mut().zip(layout.dims.iter()) {
            extent.len = len;
        }
        let extents = &extents[..layout.dims.len()];
        let kept = all_kept(extents.len());
        let tensor = self.tensors.insert_full(tensor(extents, kept, layout)).0;
        if self.whole_extents.len() <= tensor {
            self.whole_extents.resize(tensor + 1, NONE);
        }
        if self.whole_extents[tensor] == NONE {
            self.whole_extents[tensor] = self.extents.len() as u32;
            self.extents.extend_from_slice(extents);
        }
        let first = self.whole_extents[tensor];
        let tensor = tensor as u32;
        let index = self.push(View { memory, first, rank: extents.len() as u8, kept, tensor, is_reshaped: false });
        self.wholes[memory.index()] = index;
        ViewId(index)
    }

    /// Returns a slice.
    pub fn get(&self, view: ViewId) -> &View {
        &self.views[view.index()]
    }

    /// The memory that a slice belongs to.
    pub fn memory(&self, view: ViewId) -> MemoryId {
        self.views[view.index()].memory
    }

    /// The box that a view covers, in the grid of its memory.
    pub fn extents(&self, view: ViewId) -> &[Extent] {
        extents_of(&self.extents, &self.views[view.index()])
    }

    /// The tensor that operations see.
    pub fn tensor(&self, view: ViewId) -> &Tensor {
        let index = self.views[view.index()].tensor as usize;
        self.tensors.get_index(index).expect("stored when the view was")
    }

    /// A number that is equal for equal [`Views::tensor`]s.
    pub fn tensor_key(&self, view: ViewId) -> u32 {
        self.views[view.index()].tensor
    }

    /// True if two views have an element in common.
    pub fn overlap(&self, a: ViewId, b: ViewId) -> bool {
        self.memory(a) == self.memory(b) && self.extents(a).iter().zip(self.extents(b)).all(|(a, b)| a.overlaps(*b))
    }

    /// The dimensions of the grid that belong to the slice.
    pub fn kept(&self, view: ViewId) -> impl Iterator<Item = usize> + Clone + use<> {
        let view = self.views[view.index()];
        (0..usize::from(view.rank)).filter(move |axis| view.kept >> axis & 1 == 1)
    }

    /// Bits of the dimensions that a slice keeps, the first dimension in the lowest bit.
    pub fn kept_mask(&self, view: ViewId) -> u8 {
        self.views[view.index()].kept
    }

    /// Offset of the slice's first element from the start of its memory, which has these dimensions, in elements.
    pub fn offset(&self, view: ViewId, dims: &Dims) -> u64 {
        let strides = self.grid(self.memory(view)).unwrap_or(*dims).contiguous_strides();
        self.extents(view).iter().zip(strides.iter()).map(|(extent, stride)| extent.start * stride).sum()
    }

    pub fn len(&self) -> usize {
        self.views.len()
    }

    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }
}

/// The mask of a slice that keeps `rank` dimensions.
fn all_kept(rank: usize) -> u8 {
    ((1u16 << rank) - 1) as u8
}

fn extents_of<'a>(extents: &'a [Extent], view: &View) -> &'a [Extent] {
    &extents[view.first as usize..][..usize::from(view.rank)]
}

/// Alignment of the slice's first byte, at most 16.
fn align(extents: &[Extent], layout: &Layout) -> u8 {
    let steps = layout.dims.contiguous_strides();
    let offset: u64 = extents.iter().zip(steps.iter()).map(|(extent, step)| extent.start * step).sum();
    // Every memory begins at a multiple of 256 bytes.
    1 << ((offset * layout.dtype.size()) | 16).trailing_zeros()
}

fn tensor(extents: &[Extent], kept: u8, layout: &Layout) -> Tensor {
    let steps = layout.dims.contiguous_strides();
    let mut dims = Dims::new();
    let mut strides = Dims::new();
    for (axis, extent) in extents.iter().enumerate() {
        if kept >> axis & 1 == 1 {
            let fits = "a slice has no more dimensions than its memory";
            dims.push(extent.len).expect(fits);
            strides.push(steps[axis]).expect(fits);
        }
    }
    Tensor { dtype: layout.dtype, dims, strides, space: layout.space, align: align(extents, layout) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_slices_are_one() {
        let mut views = Views::default();
        let dims = Dims::from([4, 8]);
        let layout = Layout { dtype: DType::F32, dims, space: Space::Device };
        let row = [Extent { start: 2, len: 1 }, Extent { start: 0, len: 8 }];
        let a = views.intern(MemoryId(0), &row, 0b10, &layout);
        let b = views.intern(MemoryId(0), &row, 0b10, &layout);
        let kept = views.intern(MemoryId(0), &row, 0b11, &layout);
        let all = views.whole(MemoryId(0), &layout);
        assert_eq!(a, b);
        assert_ne!(a, kept);
        assert!(views.overlap(a, all) && views.overlap(a, kept));
        assert_eq!(views.tensor(a).to_string(), "f32[8]");
        assert_eq!(views.tensor(kept).to_string(), "f32[1, 8]");
        assert_eq!(views.offset(a, &dims), 16);

        // A view with other dimensions covers the same box; viewed in its own dimensions it equals the original slice.
        let [long, flat] = [&[2, 16][..], &[32]].map(|sizes| Dims::from_slice(sizes).unwrap());
        let pairs = views.reshape(all, long, long.contiguous_strides(), &layout);
        assert_eq!(pairs, views.reshape(all, long, long.contiguous_strides(), &layout));
        assert_ne!(pairs, views.reshape(all, flat, flat.contiguous_strides(), &layout));
        assert_eq!(all, views.reshape(pairs, dims, dims.contiguous_strides(), &layout));
        assert!(views.overlap(pairs, a) && views.is_reshaped(pairs) && !views.is_reshaped(all));
        assert_eq!(views.tensor(pairs).to_string(), "f32[2, 16]");
    }

    #[test]
    fn slices_of_views_are_boxes_in_a_finer_grid() {
        let mut views = Views::default();
        let [dims, heads] = [&[4, 8][..], &[4, 2, 4]].map(|sizes| Dims::from_slice(sizes).unwrap());
        let layout = Layout { dtype: DType::F32, dims, space: Space::Device };
        let all = views.whole(MemoryId(0), &layout);
        let row = [Extent { start: 2, len: 1 }, Extent { start: 0, len: 8 }];
        let row = views.intern(MemoryId(0), &row, 0b10, &layout);
        let fine = views.reshape(all, heads, heads.contiguous_strides(), &layout);
        let mut place = |offset, sizes: [u64; 3]| {
            let sizes = (offset, Dims::from_slice(&sizes).unwrap(), heads.contiguous_strides());
            views.place(MemoryId(0), sizes, 0, &layout)
        };
        let (low, high) = (place(0, [4, 2, 2]).unwrap(), place(2, [4, 2, 2]).unwrap());
        assert_eq!(place(2, [4, 2, 2]), Ok(high));
        // Three elements from the third on lie in two heads.
        assert_eq!(place(2, [4, 1, 3]), Err(Unplaced::Slice));
        assert!(!views.overlap(low, high) && views.overlap(low, row) && views.overlap(all, high));
        assert_eq!(views.grid(MemoryId(0)), Some(heads));
        // Slices that exist keep their tensors and places.
        assert_eq!([all, row, fine, low].map(|view| views.tensor(view).dims.len()), [2, 1, 3, 3]);
        assert_eq!((views.offset(row, &dims), views.offset(high, &dims)), (16, 2));
        assert_eq!(views.reshape(all, heads, heads.contiguous_strides(), &layout), fine);
        assert_eq!(views.reshape(fine, dims, dims.contiguous_strides(), &layout), all);
        assert_eq!(views.whole(MemoryId(0), &layout), all);
        assert!(views.covers_all(fine, &dims) && !views.covers_all(low, &dims));
    }
}
