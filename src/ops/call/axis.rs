//! The option `dim` of operations that work along one dimension.

use crate::base::Dims;
use crate::ops::{Attrs, Call, OpError, OptionSpec};

/// Returns the definition of `dim` with this default. Negative values count from the end: -1 is the last dimension.
pub const fn option(default: i64, doc: &'static str) -> OptionSpec {
    OptionSpec::int("dim", -(Dims::MAX as i64), Dims::MAX as i64 - 1, default, doc)
}

/// Index of the dimension that `dim` selects in a tensor of `rank` dimensions. [`Call::axis`] has checked the call.
pub fn of(attrs: &Attrs, rank: usize) -> usize {
    attrs.int("dim").rem_euclid(rank as i64) as usize
}

impl Call<'_> {
    /// Returns the index of the dimension that `dim` selects; an error at the option if the shape has no such
    /// dimension.
    pub(in crate::ops) fn axis(&self, dims: Dims) -> Result<usize, OpError> {
        let (dim, rank) = (self.attrs.int("dim"), dims.len() as i64);
        if (-rank..rank).contains(&dim) {
            return Ok(of(self.attrs, dims.len()));
        }
        let help = match rank {
            1 => "write `dim: 0`, or remove `dim`".to_owned(),
            _ => format!("write 0 to {0} or -{rank} to -1: `dim: {0}` is the last", rank - 1),
        };
        Err(self.bad_option("dim", format!("{dims} has no dimension {dim}"), help))
    }
}
