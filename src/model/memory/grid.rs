//! The grid of a memory: dimensions in which every slice of it is a box.
//!
//! The grid begins as the dimensions of the memory. A slice of a view in finer dimensions, such as some elements of each head of
//! `[tokens, heads * elements]`, divides a dimension of the grid.

use crate::base::Dims;

/// A range in one dimension of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    pub start: u64,
    pub len: u64,
}

impl Extent {
    /// Index after the last element.
    pub fn end(self) -> u64 {
        self.start + self.len
    }

    /// True if both ranges have an element in common.
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// True if all elements of `other` are in this range.
    pub fn contains(self, other: Extent) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

/// The reason why elements are no box in a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum NoBox {
    /// The elements may be one box if this dimension is divided into parts of `part` elements.
    Divide { axis: usize, part: u64 },
    /// The elements are no box in any finer grid.
    Never,
}

/// Returns the box of the elements of a tensor with these dimensions and strides that begins at an offset in a memory.
pub(in crate::model) fn boxed(grid: &Dims, offset: u64, dims: &[u64], strides: &[u64]) -> Result<Vec<Extent>, NoBox> {
    let steps = grid.contiguous_strides();
    let digit = |axis: usize| Extent { start: offset / steps[axis] % grid[axis], len: 1 };
    let mut extents: Vec<Extent> = (0..grid.len()).map(digit).collect();
    for (size, stride) in merged(dims, strides) {
        let Some(mut axis) = (0..grid.len()).find(|&axis| steps[axis] == stride && grid[axis] > 1) else {
            let of_axis = |axis: usize| {
                let whole = steps[axis] * grid[axis];
                steps[axis] < stride
                    && stride < whole
                    && stride.is_multiple_of(steps[axis])
                    && whole.is_multiple_of(stride)
            };
            let axis = (0..grid.len()).find(|&axis| of_axis(axis)).ok_or(NoBox::Never)?;
            return Err(NoBox::Divide { axis, part: stride / steps[axis] });
        };
        let mut left = size;
        loop {
            let Extent { start, len } = extents[axis];
            if len > 1 {
                return Err(NoBox::Never);
            }
            if start + left <= grid[axis] {
                extents[axis].len = left;
                break;
            }
            if start > 0 || !left.is_multiple_of(grid[axis]) {
                return Err(NoBox::Never);
            }
            extents[axis].len = grid[axis];
            left /= grid[axis];
            axis = (0..axis).rev().find(|&outer| grid[outer] > 1).ok_or(NoBox::Never)?;
        }
    }
    Ok(extents)
}

/// Returns sizes and strides without dimensions of size 1, with neighbours merged whose elements have no gaps between them.
fn merged(dims: &[u64], strides: &[u64]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::with_capacity(dims.len());
    for (&size, &stride) in dims.iter().zip(strides).filter(|(size, _)| **size > 1) {
        match all.last_mut() {
            Some((outer, step)) if *step == size * stride => (*outer, *step) = (*outer * size, stride),
            _ => all.push((size, stride)),
        }
    }
    all
}

/// Returns a grid with this dimension divided into parts; `None` if it has the maximum number of dimensions.
pub(in crate::model) fn divided(grid: &Dims, axis: usize, part: u64) -> Option<Dims> {
    let mut sizes = grid.to_vec();
    sizes[axis] /= part;
    sizes.insert(axis + 1, part);
    Dims::from_slice(&sizes)
}

/// Returns the dimensions of a box that a slice with these sizes keeps, as a mask; `None` if the sizes are not those of the
/// box without some dimensions of size 1.
pub(in crate::model) fn kept(extents: &[Extent], sizes: &[u64]) -> Option<u8> {
    let (mut mask, mut left) = (0, sizes);
    for (axis, extent) in extents.iter().enumerate() {
        match left.split_first() {
            Some((size, rest)) if *size == extent.len => {
                mask |= 1 << axis;
                left = rest;
            }
            _ if extent.len == 1 => {}
            _ => return None,
        }
    }
    left.is_empty().then_some(mask)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn elements(offset: u64, dims: &[u64], strides: &[u64]) -> BTreeSet<u64> {
        let mut all = BTreeSet::from([offset]);
        for (&size, &stride) in dims.iter().zip(strides) {
            all = all.iter().flat_map(|at| (0..size).map(move |i| at + i * stride)).collect();
        }
        all
    }

    /// Every slice of every view of a memory of 24 elements is found as the box of its elements, or is none.
    #[test]
    fn a_box_has_the_elements_of_the_slice() {
        let shapes: [&[u64]; 7] = [&[24], &[4, 6], &[2, 12], &[2, 3, 4], &[1, 24, 1], &[2, 1, 2, 6], &[3, 8]];
        let (mut boxes, mut never) = (0, 0);
        for shape in shapes {
            let view = Dims::from_slice(shape).unwrap();
            let strides = view.contiguous_strides();
            for declared in shapes {
                for (axis, from, to) in (0..view.len())
                    .flat_map(|axis| (0..view[axis]).flat_map(move |a| (a + 1..=24).map(move |b| (axis, a, b))))
                    .filter(|(axis, _, to)| *to <= view[*axis])
                {
                    let mut dims = view;
                    dims.set(axis, to - from);
                    let offset = from * strides[axis];
                    let mut grid = Dims::from_slice(declared).unwrap();
                    let found = loop {
                        match boxed(&grid, offset, &dims, &strides) {
                            Err(NoBox::Divide { axis, part }) => grid = divided(&grid, axis, part).unwrap(),
                            found => break found.ok(),
                        }
                    };
                    let Some(found) = found else {
                        assert!(declared != shape, "{declared:?}");
                        never += 1;
                        continue;
                    };
                    boxes += 1;
                    let steps = grid.contiguous_strides();
                    let start = found.iter().zip(steps.iter()).map(|(extent, step)| extent.start * step).sum();
                    let lens: Vec<u64> = found.iter().map(|extent| extent.len).collect();
                    assert_eq!(elements(start, &lens, &steps), elements(offset, &dims, &strides));
                }
            }
        }
        assert!(boxes > 1000 && never > 100, "{boxes} {never}");
    }

    #[test]
    fn a_slice_keeps_dimensions_of_its_box() {
        let extents = [3, 1, 1, 5].map(|len| Extent { start: 0, len });
        assert_eq!(kept(&extents, &[3, 5]), Some(0b1001));
        assert_eq!(kept(&extents, &[3, 1, 5]), Some(0b1011));
        assert_eq!(kept(&extents, &[15]), None);
        assert_eq!(kept(&extents, &[3, 5, 1]), None);
    }
}
