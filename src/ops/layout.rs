//! Layout of tensors in memory: contiguity, merging of dimensions, strides of views and broadcasts.

use crate::base::Dims;

use super::{DType, Geometry, Tensor};

/// Returns the contiguous runs of a tensor: their length, and the offset of each from the first element, both in
/// elements.
pub fn contiguous_runs(tensor: &Tensor) -> (u64, impl Iterator<Item = u64> + use<>) {
    let geometry = collapse(tensor.dims, &[tensor.strides]);
    let rank = geometry.dims.len();
    let (length, outer) = match (geometry.dims.last(), geometry.strides[0].last()) {
        (Some(&length), Some(1)) => (length, rank - 1),
        _ => (1, rank),
    };
    (length, offsets(geometry.dims.part(..outer), geometry.strides[0].part(..outer)))
}

/// True if a tensor is contiguous in memory, in row-major order.
pub fn contiguous(tensor: &Tensor) -> bool {
    let geometry = collapse(tensor.dims, &[tensor.strides]);
    match (&*geometry.dims, &*geometry.strides[0]) {
        ([], _) | ([_], [1]) => true,
        _ => tensor.elements() == 0,
    }
}

/// Merges dimensions: drops dimensions of size 1, and joins each dimension with the next one where the pair is
/// contiguous in every operand. The row-major order of elements stays the same.
pub fn collapse(dims: Dims, strides: &[Dims]) -> Geometry {
    let mut sizes: Vec<u64> = Vec::new();
    let mut steps: Vec<Vec<u64>> = vec![Vec::new(); strides.len()];
    for axis in 0..dims.len() {
        let size = dims[axis];
        if size == 1 {
            continue;
        }
        let merges = sizes.last().is_some()
            && strides.iter().zip(&steps).all(|(stride, step)| step.last() == Some(&(stride[axis] * size)));
        if merges {
            *sizes.last_mut().expect("checked above") *= size;
            for (stride, step) in strides.iter().zip(&mut steps) {
                *step.last_mut().expect("as long as the sizes") = stride[axis];
            }
        } else {
            sizes.push(size);
            for (stride, step) in strides.iter().zip(&mut steps) {
                step.push(stride[axis]);
            }
        }
    }
    Geometry { dims: sizes.into_iter().collect(), strides: steps.into_iter().map(Dims::from_iter).collect() }
}

/// Returns the strides of a tensor viewed in other dimensions with the same number of elements. The error is the index
/// of a dimension that the view would have to merge with the next one although there are gaps between their elements.
pub fn reshaped(tensor: &Tensor, dims: Dims) -> Result<Dims, usize> {
    let mut strides = dims.contiguous_strides();
    // From the innermost dimension outwards, each contiguous run of the tensor is divided into whole new dimensions.
    let (mut left, mut length, mut made) = (dims.len(), 1, 1);
    let mut step = tensor.strides.last().copied().unwrap_or(1);
    for axis in (0..tensor.dims.len()).rev() {
        length *= tensor.dims[axis];
        let merges = |outer: usize| tensor.dims[outer] == 1 || tensor.strides[outer] == length * step;
        if axis > 0 && merges(axis - 1) {
            continue;
        }
        while left > 0 && (made < length || dims[left - 1] == 1) {
            left -= 1;
            strides.set(left, made * step);
            made *= dims[left];
        }
        if made != length {
            return Err(axis.saturating_sub(1));
        }
        if axis > 0 {
            (length, made, step) = (1, 1, tensor.strides[axis - 1]);
        }
    }
    Ok(strides)
}

/// Returns the broadcast shape of two shapes; `None` if the shapes are incompatible.
pub fn broadcast(a: Dims, b: Dims) -> Option<Dims> {
    let rank = a.len().max(b.len());
    let mut out = Dims::new();
    for axis in 0..rank {
        let size = |dims: &Dims| (axis + dims.len()).checked_sub(rank).map_or(1, |axis| dims[axis]);
        let size = match (size(&a), size(&b)) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => return None,
        };
        out.push(size)?;
    }
    Some(out)
}

/// Strides of a tensor broadcast to the shape `dims`, in elements: 0 along the dimensions in which it is repeated.
pub fn broadcast_strides(tensor: &Tensor, dims: Dims) -> Dims {
    let mut strides = Dims::new();
    for axis in 0..dims.len() {
        let stride = match (axis + tensor.dims.len()).checked_sub(dims.len()) {
            Some(own) if tensor.dims[own] == dims[axis] => tensor.strides[own],
            _ => 0,
        };
        strides.push(stride).expect("no more dimensions than the shape has");
    }
    strides
}

/// Returns the offset of each element of a shape with these strides, in row-major order, in elements.
pub fn offsets(dims: Dims, strides: Dims) -> impl Iterator<Item = u64> {
    let total: u64 = dims.iter().product();
    let mut index = [0u64; Dims::MAX];
    let mut offset = 0u64;
    (0..total).map(move |_| {
        let current = offset;
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            offset = offset.wrapping_add(strides[axis]);
            if index[axis] < dims[axis] {
                break;
            }
            offset = offset.wrapping_sub(strides[axis].wrapping_mul(dims[axis]));
            index[axis] = 0;
        }
        current
    })
}

/// Returns `most`, half of it, a quarter, and so on down to 1: sizes of packs, or numbers of threads, in the order in which kernels
/// try them. `most` is a power of two.
pub fn halves(most: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(most), |size| (*size > 1).then_some(size / 2))
}

/// Returns the largest type of elements of which these numbers of bytes are multiples, for kernels that only move bytes. `None` for
/// multiples of a pack of 16 bytes, which all kernels move at once.
pub fn moved_type(bytes: impl IntoIterator<Item = u64>) -> Option<DType> {
    let zeros = bytes.into_iter().map(u64::trailing_zeros).min()?;
    [DType::U8, DType::F16, DType::I32, DType::I64].get(zeros as usize).copied()
}

/// Number of packs that contain elements of a row of `length` elements. With `ragged`, the row may begin inside a pack.
pub fn packs_of_rows(length: u64, pack: u64, ragged: bool) -> u64 {
    (length + if ragged { pack - 1 } else { 0 }).div_ceil(pack)
}

/// True if packs of `pack` elements cover every row exactly: each pack is aligned, and none crosses the end of a row.
pub fn in_packs(tensor: &Tensor, pack: u64) -> bool {
    aligned(tensor, pack) && tensor.dims[tensor.dims.len() - 1].is_multiple_of(pack)
}

/// True if every row is contiguous and begins at a multiple of `pack` elements. The last pack of a row may cross its
/// end.
pub fn aligned(tensor: &Tensor, pack: u64) -> bool {
    let last = tensor.dims.len() - 1;
    tensor.strides[last] == 1
        && u64::from(tensor.align).is_multiple_of(pack * tensor.dtype.size())
        && tensor.strides[..last].iter().all(|stride| stride.is_multiple_of(pack))
}

/// Sorts the dimensions by descending stride of the first output, and merges them where possible. The order in which
/// elements are computed does not matter.
pub fn by_output(dims: Dims, strides: &[Dims]) -> Geometry {
    let mut axes: Vec<usize> = (0..dims.len()).collect();
    axes.sort_by_key(|&axis| std::cmp::Reverse(strides[0][axis]));
    let ordered = Geometry { dims, strides: strides.to_vec() }.part(&axes);
    collapse(ordered.dims, &ordered.strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(sizes: &[u64]) -> Dims {
        Dims::from_slice(sizes).unwrap()
    }

    #[test]
    fn contiguous_dimensions_are_merged() {
        let all = collapse(dims(&[2, 3, 4]), &[dims(&[12, 4, 1])]);
        assert_eq!((all.dims, all.strides[0]), (dims(&[24]), dims(&[1])));
        let rows = collapse(dims(&[2, 3, 4]), &[dims(&[12, 4, 1]), dims(&[40, 4, 1])]);
        assert_eq!((rows.dims, rows.strides[1]), (dims(&[2, 12]), dims(&[40, 1])));
        let repeated = collapse(dims(&[2, 3]), &[dims(&[3, 1]), dims(&[0, 0])]);
        assert_eq!((repeated.dims, repeated.strides[1]), (dims(&[6]), dims(&[0])));
    }

    #[test]
    fn walks_in_row_major_order() {
        let walk: Vec<u64> = offsets(dims(&[2, 2]), dims(&[1, 10])).collect();
        assert_eq!(walk, [0, 10, 1, 11]);
        assert_eq!(offsets(Dims::new(), Dims::new()).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn other_dimensions_of_the_same_elements() {
        let tensor = |sizes: &[u64], strides: &[u64]| Tensor {
            dtype: crate::base::DType::F32,
            dims: dims(sizes),
            strides: dims(strides),
            space: crate::base::Space::Device,
            align: 16,
        };
        assert_eq!(reshaped(&tensor(&[4, 6], &[6, 1]), dims(&[2, 12])), Ok(dims(&[12, 1])));
        assert_eq!(reshaped(&tensor(&[4, 6], &[6, 1]), dims(&[1, 24, 1])), Ok(dims(&[24, 1, 1])));
        // Rows with gaps between them can be split, but not merged.
        assert_eq!(reshaped(&tensor(&[4, 6], &[8, 1]), dims(&[2, 2, 3, 2])), Ok(dims(&[16, 8, 2, 1])));
        assert_eq!(reshaped(&tensor(&[4, 6], &[8, 1]), dims(&[24])), Err(0));
        assert_eq!(reshaped(&tensor(&[2, 4, 6], &[48, 8, 1]), dims(&[2, 24])), Err(1));
        assert_eq!(reshaped(&tensor(&[2, 3, 4], &[30, 8, 2]), dims(&[6, 4])), Err(0));
        assert_eq!(reshaped(&tensor(&[2, 3, 4], &[24, 8, 2]), dims(&[6, 4])), Ok(dims(&[8, 2])));
        assert_eq!(reshaped(&tensor(&[2, 3, 4], &[24, 8, 2]), dims(&[2, 12])), Ok(dims(&[24, 2])));
        assert_eq!(reshaped(&tensor(&[], &[]), dims(&[1, 1])), Ok(dims(&[1, 1])));
    }

    /// A view preserves the address of each element, for any sizes and gaps.
    #[test]
    fn elements_stay_in_their_places() {
        for case in 0..2000 {
            let draw = |place: u64, limit: u64| crate::base::random::hash(case, place) % limit;
            let sizes: Vec<u64> = (0..draw(0, 4)).map(|axis| 1 + draw(10 + axis, 6)).collect();
            let (mut strides, mut step) = (vec![0; sizes.len()], 1);
            for axis in (0..sizes.len()).rev() {
                step += if draw(20 + axis as u64, 3) == 0 { draw(30 + axis as u64, 5) } else { 0 };
                strides[axis] = step;
                step *= sizes[axis];
            }
            let tensor = Tensor {
                dtype: crate::base::DType::F32,
                dims: dims(&sizes),
                strides: dims(&strides),
                space: crate::base::Space::Device,
                align: 16,
            };
            let mut left: u64 = sizes.iter().product();
            let mut new = Vec::new();
            for place in 0..draw(40, 4) {
                let divisors: Vec<u64> = (1..=left).filter(|size| left.is_multiple_of(*size)).collect();
                new.push(divisors[draw(50 + place, divisors.len() as u64) as usize]);
                left /= new[new.len() - 1];
            }
            new.push(left);
            let places = |dims: Dims, strides: Dims| offsets(dims, strides).collect::<Vec<_>>();
            if let Ok(strides) = reshaped(&tensor, dims(&new)) {
                assert_eq!(places(dims(&new), strides), places(tensor.dims, tensor.strides), "{tensor:?} to {new:?}");
            } else {
                assert!(!contiguous(&tensor), "{tensor:?} to {new:?}");
            }
        }
    }

    #[test]
    fn broadcasts_from_the_innermost() {
        assert_eq!(broadcast(dims(&[4, 1]), dims(&[3])), Some(dims(&[4, 3])));
        assert_eq!(broadcast(dims(&[4]), dims(&[3])), None);
    }
}
