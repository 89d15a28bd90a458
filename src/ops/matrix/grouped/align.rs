//! Copies of a factor whose rows are not aligned to 16 bytes, so that the product reads whole packs.

use super::super::super::kernel::{c_type, index_type, kernel, param, u32_param, u64_param};
use super::super::super::layout::{aligned, in_packs};
use super::super::super::mma;
use super::super::super::occupancy::UNITS;
use super::*;

/// Elements of a pack of 16 bytes.
const PACK: u64 = 8;

/// Time that the product gains per operation if one of its factors is aligned, in seconds: without, threads shift packs into place. From
/// an earlier kernel on an H100, which took 14.3 ms for 882 GFLOP with two unaligned factors (docs/measurements/2026-11-26-products.md); a
/// product of aligned factors runs at 550 TFLOP/s.
const GAIN: f64 = 7e-15;

/// Time of a copy: seconds of its launch, and bytes per second that it reads and writes.
const LAUNCH: f64 = 3e-6;
const BANDWIDTH: f64 = 2.5e12;

/// Maximum size of a copy in bytes.
const MOST: u64 = 1 << 32;

/// Threads of a block of the copy, and resident blocks.
const THREADS: u32 = 256;
const BLOCKS: u64 = 8 * UNITS;

/// A factor of 16-bit elements as the product reads it: the operand itself, or an aligned copy in the workspace.
#[derive(Clone, Debug)]
pub struct Source {
    /// Operand of the factor, its tensor, and the tensor that the product reads.
    operand: u8,
    given: Tensor,
    pub tensor: Tensor,
    /// Offset of the copy in the workspace in bytes; `None` without a copy.
    pub offset: Option<u64>,
}

impl Source {
    /// Chooses how the product reads a factor. A copy begins at `offset` in the workspace.
    pub fn of(operand: u8, given: &Tensor, flops: f64, offset: u64) -> Source {
        let as_given = Source::given(operand, given);
        let last = given.dims.len() - 1;
        let mut padded = given.dims;
        padded.set(last, given.dims[last].next_multiple_of(PACK));
        let copy = Tensor::packed(given.dtype, &padded);
        let bytes = copy.bytes();
        let copy = Tensor { dims: given.dims, ..copy };
        let time = LAUNCH + (given.bytes() + bytes) as f64 / BANDWIDTH;
        let pays = !aligned(given, PACK) && bytes <= MOST && GAIN * flops > time;
        if pays { Source { tensor: copy, offset: Some(offset), ..as_given } } else { as_given }
    }

    /// A factor that the product reads as it is.
    pub fn given(operand: u8, given: &Tensor) -> Source {
        Source { operand, given: *given, tensor: *given, offset: None }
    }

    /// Whether rows begin at packs.
    pub fn is_aligned(&self) -> bool {
        aligned(&self.tensor, PACK)
    }

    /// Whether the product can read whole packs, also at the end of a row.
    pub fn in_packs(&self) -> bool {
        self.offset.is_some() || in_packs(&self.tensor, PACK)
    }

    /// End of the copy in the workspace, in bytes; 0 without a copy.
    pub fn end(&self) -> u64 {
        self.offset.map_or(0, |offset| offset + self.tensor.dims[0] * self.tensor.strides[0] * self.tensor.dtype.size())
    }

    /// The argument by which the product finds the factor.
    pub fn arg(&self) -> Arg {
        match self.offset {
            Some(offset) => Arg::WorkspaceAt { offset, bytes: self.end() },
            None => Arg::Operand(self.operand),
        }
    }

    /// The factor as a tensor map with boxes of these extents: elements of a row, and rows.
    pub fn map(&self, extent: [u32; 2]) -> Arg {
        let Tensor { dims, strides, dtype, .. } = &self.tensor;
        let last = dims.len() - 1;
        let (groups, group) = if last == 2 { (dims[0], strides[0]) } else { (1, dims[0] * strides[0]) };
        Arg::TensorMap(Box::new(TensorMap {
            base: self.offset.map_or(MapBase::Operand(self.operand), MapBase::Workspace),
            dims: [dims[last], dims[last - 1], groups].map(|size| size.max(1)),
            strides: [strides[last - 1], group].map(|stride| stride * dtype.size()),
            extent,
        }))
    }

    /// The kernel that makes the copy; `None` without one.
    pub fn copy(&self) -> Option<Launch> {
        self.offset?;
        let (Tensor { dims, strides, dtype, .. }, to) = (&self.given, &self.tensor);
        let last = dims.len() - 1;
        let (row_packs, rows) = (to.strides[last - 1] / PACK, dims[..last].iter().product::<u64>());
        let of_group = if last == 2 { dims[1] } else { rows };
        let params = [
            param("const T* from", Arg::Operand(self.operand)),
            param("Pack<u16, 8>* to", self.arg()),
            u64_param("packs", rows * row_packs),
            u32_param("row_packs", row_packs),
            u32_param("group_rows", of_group.max(1)),
            u32_param("width", dims[last]),
            u64_param("group", if last == 2 { strides[0] } else { 0 }),
            u64_param("row", strides[last - 1]),
            u64_param("step", strides[last]),
        ];
        let before = format!(
            "{}typedef {} T;\ntypedef {} I;\n",
            mma::FUNCTIONS,
            c_type(*dtype),
            index_type(rows * row_packs + BLOCKS * u64::from(THREADS))
        );
        let blocks = (rows * row_packs).div_ceil(u64::from(THREADS)).clamp(1, BLOCKS);
        Some(Launch::Kernel(kernel("grouped_gemm_align", &before, &params, TEXT, blocks, THREADS)))
    }
}

/// Each thread copies packs of the aligned rows; elements behind a row are zero.
const TEXT: &str = r#"  for (I i = (I)GLOBAL_INDEX; i < (I)packs; i += (I)gridDim.x * blockDim.x) {
    I number = i / row_packs;
    u32 column = (u32)(i - number * row_packs) * 8;
    const T* own = from + (i64)(number / group_rows) * (i64)group + (i64)(number % group_rows) * (i64)row;
    Pack<u16, 8> pack = {};
    if (step == 1) {
      pack = neighbours(own, column, width);
    } else {
#pragma unroll
      for (u32 e = 0; e < 8; e++)
        if (column + e < width) pack.at[e] = own[(i64)(column + e) * (i64)step].bits;
    }
    to[i] = pack;
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_products_read_unaligned_rows_from_a_copy() {
        let (odd, even) = (Tensor::packed(DType::BF16, &[3, 1000, 333]), Tensor::packed(DType::BF16, &[3, 1000, 336]));
        let copied = Source::of(1, &odd, 1e12, 512);
        assert_eq!(copied.tensor.dims, odd.dims);
        assert_eq!((copied.tensor.strides, copied.offset), (even.strides, Some(512)));
        assert_eq!(copied.end(), 512 + even.bytes());
        assert!(copied.is_aligned() && copied.in_packs() && copied.copy().is_some());
        for source in [Source::of(1, &odd, 1e6, 0), Source::of(1, &even, 1e12, 0)] {
            assert!(source.offset.is_none() && source.copy().is_none() && source.arg() == Arg::Operand(1));
        }
    }
}
