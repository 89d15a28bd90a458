//! Shapes: a few sizes stored inline, without allocation.

use std::fmt;
use std::ops::Deref;
use std::slice::SliceIndex;

use super::dtype::DType;
use super::equal_by::equal_by;

/// Sizes (or strides) of up to [`Dims::MAX`] dimensions, outermost first.
#[derive(Clone, Copy)]
pub struct Dims {
    len: u8,
    sizes: [u64; Dims::MAX],
}

impl Dims {
    /// Maximum number of dimensions of a tensor, including those of its family.
    pub const MAX: usize = 8;

    pub fn new() -> Self {
        Dims { len: 0, sizes: [0; Dims::MAX] }
    }

    /// Returns the given sizes; `None` if there are too many.
    pub fn from_slice(sizes: &[u64]) -> Option<Self> {
        let mut dims = Dims::new();
        for &size in sizes {
            dims.push(size)?;
        }
        Some(dims)
    }

    /// Returns the sizes in a range of dimensions.
    pub fn part(&self, range: impl SliceIndex<[u64], Output = [u64]>) -> Dims {
        self[range].iter().copied().collect()
    }

    /// Adds an innermost dimension; `None` if there is no room.
    pub fn push(&mut self, size: u64) -> Option<()> {
        let slot = self.sizes.get_mut(usize::from(self.len))?;
        *slot = size;
        self.len += 1;
        Some(())
    }

    /// Sets the size of a dimension.
    pub fn set(&mut self, index: usize, size: u64) {
        self.sizes[..usize::from(self.len)][index] = size;
    }

    /// Number of elements; `None` if it exceeds 2^63.
    pub fn elements(&self) -> Option<u64> {
        self.iter()
            .try_fold(1u64, |product, &size| product.checked_mul(size))
            .filter(|&elements| elements <= i64::MAX as u64)
    }

    /// Strides, in elements, of a contiguous tensor of this shape.
    pub fn contiguous_strides(&self) -> Dims {
        let mut strides = *self;
        let mut step = 1;
        for index in (0..self.len()).rev() {
            strides.sizes[index] = step;
            step *= self.sizes[index].max(1);
        }
        strides
    }

    /// The type of a tensor with these dimensions, as a file writes it: `f32[4, 8]`, or `f32` without dimensions.
    pub fn of(&self, dtype: DType) -> String {
        if self.is_empty() { dtype.to_string() } else { format!("{dtype}{self}") }
    }
}

/// Panics if there are more than [`Dims::MAX`] sizes. Callers pass sizes of another tensor, or a fixed number of them; [`Dims::from_slice`]
/// checks others.
impl FromIterator<u64> for Dims {
    fn from_iter<I: IntoIterator<Item = u64>>(sizes: I) -> Self {
        let mut dims = Dims::new();
        sizes.into_iter().for_each(|size| dims.push(size).expect("no more dimensions than a tensor has room for"));
        dims
    }
}

impl<const N: usize> From<[u64; N]> for Dims {
    fn from(sizes: [u64; N]) -> Self {
        sizes.into_iter().collect()
    }
}

impl Default for Dims {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Dims {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.sizes[..usize::from(self.len)]
    }
}

equal_by!(Dims, |dims| &**dims);

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.iter().map(u64::to_string).collect();
        write!(f, "[{}]", sizes.join(", "))
    }
}
