//! Sliding windows over the spatial dimensions of `[samples, channels, spatial…]`, shared by convolutions and pools.

use crate::base::{DType, Dims};
use crate::ops::{Call, OpError, Operand, Tensor};

/// Maximum number of spatial dimensions.
pub const MAX_SPATIAL: usize = 3;

/// Maximum number of elements of a channel in all samples, and of a kernel in all channels. Kernels index them by 32
/// bits, which must also represent positions outside of the tensor.
const MAX_NARROW: u64 = 1 << 29;

/// Maximum value of an option.
pub const MAX_VALUE: i64 = 1 << 20;

/// The spatial sizes of a tensor.
pub fn spatial(tensor: &Tensor) -> Dims {
    tensor.dims.part(2..)
}

/// Returns the shape of samples, channels and spatial sizes.
pub fn shape(samples: u64, channels: u64, spatial: Dims) -> Dims {
    [samples, channels].iter().chain(spatial.iter()).copied().collect()
}

/// Extent of a window along a dimension, including elements skipped by `dilation`.
pub fn span(size: u64, dilation: u64) -> u64 {
    dilation * (size - 1) + 1
}

impl Call<'_> {
    /// Returns an error unless an input has one of the types that convolutions and pools support.
    pub(in crate::ops) fn needs_wide_float(&self, index: usize) -> Result<(), OpError> {
        let operand = &self.inputs[index];
        let fits = matches!(operand.tensor.dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        self.needs_dtype(operand, fits, "elements of type f16, bf16, f32 or f64")
    }

    /// Returns the number of spatial dimensions of an input, or an error unless it is 1, 2 or 3.
    pub(in crate::ops) fn needs_spatial(&self, index: usize, layout: &str) -> Result<usize, OpError> {
        let operand = &self.inputs[index];
        let rank = operand.tensor.dims.len();
        if (3..=2 + MAX_SPATIAL).contains(&rank) {
            return Ok(rank - 2);
        }
        Err(self.bad_shape(operand, format!("three to five dimensions, {layout}")))
    }

    /// Value of an option for each spatial dimension; `None` if absent.
    pub(in crate::ops) fn each_spatial(&self, name: &'static str, count: usize) -> Result<Option<Dims>, OpError> {
        let Some(list) = self.attrs.axes(name) else { return Ok(self.attrs.spatial(name, count)) };
        match self.attrs.spatial(name, count) {
            Some(sizes) => Ok(Some(sizes)),
            None => {
                let found = crate::base::counted(list.len(), "number");
                let why = format!("it has {found} for {}", crate::base::counted(count, "spatial dimension"));
                let help = format!("write a list such as `{:?}`, or one number for all", vec![1; count]);
                Err(self.bad_option(name, why, help))
            }
        }
    }

    /// Returns an error if an operand has too many elements for 32-bit indices. Dimensions in `apart` are indexed
    /// separately. The operand may be an output, whose size has not been limited yet.
    pub(in crate::ops) fn needs_narrow_indices(&self, operand: &Operand, apart: &[usize]) -> Result<(), OpError> {
        let elements = operand.tensor.dims.elements();
        let is_small = |&axis: &usize| elements.is_some_and(|all| all / operand.tensor.dims[axis] <= MAX_NARROW);
        if apart.iter().all(is_small) {
            return Ok(());
        }
        Err(self.too_large(operand, format!("at most {MAX_NARROW} elements for each channel")))
    }
}
