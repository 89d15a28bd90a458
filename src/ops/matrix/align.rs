//! Aligned copies of factors whose rows are not aligned to 16 bytes, so that the product reads whole packs.

use super::super::kernel::{c_type, index_type, kernel, param, u32_param, u64_param};
use super::super::layout::{aligned, in_packs};
use super::super::mma;
use super::super::occupancy::UNITS;
use crate::ops::{Arg, Cost, Launch, MapBase, Space, Tensor, TensorMap, Traffic};

/// Number of 16-bit elements in a pack of 16 bytes.
pub const PACK: u64 = 8;

/// Time in seconds per operation that the product saves if one of its factors is aligned; otherwise, threads shift its
/// packs. From an earlier kernel on an H100, which took 14.3 ms for 882 GFLOP with two unaligned factors
/// (docs/measurements/2026-11-26-products.md); a product of aligned factors runs at 550 TFLOP/s.
const GAIN: f64 = 7e-15;

/// Time in seconds of launching a copy.
const LAUNCH: f64 = 3e-6;
/// Bytes per second that a copy reads and writes.
const BANDWIDTH: f64 = 2.5e12;

/// Maximum size of a copy in bytes.
pub const MOST: u64 = 1 << 32;

/// Number of threads of a block of the copy.
const THREADS: u32 = 256;
/// Number of blocks of the copy.
const BLOCKS: u64 = 8 * UNITS;

/// Source of a factor of 16-bit elements: the operand itself, or an aligned copy in the workspace.
#[derive(Clone, Debug)]
pub struct Source {
    /// Number of the operand in the call.
    operand: u8,
    /// Tensor of the operand.
    given: Tensor,
    /// Tensor that the product reads: the operand or its copy.
    pub tensor: Tensor,
    /// Offset in bytes of the copy in the workspace; `None` without a copy.
    pub offset: Option<u64>,
}

impl Source {
    /// Returns the source of a factor: a copy that begins at `offset` in the workspace, if it saves time in a product
    /// of this many operations, otherwise the operand.
    pub fn of(operand: u8, given: &Tensor, flops: f64, offset: u64) -> Source {
        let as_given = Source::given(operand, given);
        let last = given.dims.len() - 1;
        let mut padded = given.dims;
        padded.set(last, given.dims[last].next_multiple_of(PACK));
        let copy = Tensor::packed(given.dtype, &padded);
        let bytes = copy.bytes();
        let copy = Tensor { dims: given.dims, ..copy };
        let pays = !aligned(given, PACK) && bytes <= MOST && GAIN * flops > copy_time(given.bytes() + bytes);
        if pays { Source { tensor: copy, offset: Some(offset), ..as_given } } else { as_given }
    }

    /// Returns a copy of a factor whose matrices have these numbers of rows and of columns: the given ones, or more that are
    /// zero. The copy begins at `offset` in the workspace.
    pub fn padded(operand: u8, given: &Tensor, [rows, columns]: [u64; 2], offset: u64) -> Source {
        let (mut dims, last) = (given.dims, given.dims.len() - 1);
        dims.set(last - 1, rows);
        dims.set(last, columns.next_multiple_of(PACK));
        let mut tensor = Tensor::packed(given.dtype, &dims);
        tensor.dims.set(last, columns);
        Source { tensor, offset: Some(offset), ..Source::given(operand, given) }
    }

    /// Returns a factor's operand as its source.
    pub fn given(operand: u8, given: &Tensor) -> Source {
        Source { operand, given: *given, tensor: *given, offset: None }
    }

    /// Whether all rows begin at multiples of 16 bytes.
    pub fn is_aligned(&self) -> bool {
        aligned(&self.tensor, PACK)
    }

    /// Whether the product can read whole packs, including those at the end of a row.
    pub fn in_packs(&self) -> bool {
        self.offset.is_some() || in_packs(&self.tensor, PACK)
    }

    /// End of the copy in the workspace, in bytes; 0 without a copy.
    pub fn end(&self) -> u64 {
        self.offset.map_or(0, |offset| offset + self.tensor.dims[0] * self.tensor.strides[0] * self.tensor.dtype.size())
    }

    /// Returns the kernel argument with the address of the factor.
    pub fn arg(&self) -> Arg {
        match self.offset {
            Some(offset) => Arg::WorkspaceAt { offset, bytes: self.end() },
            None => Arg::Operand(self.operand),
        }
    }

    /// Returns the kernel argument with a tensor map of the factor, whose boxes have these extents: elements of a row,
    /// and rows.
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

    /// Returns the cost of the kernel that writes the copy; `None` without a copy.
    pub fn copy_cost(&self) -> Option<Cost> {
        self.offset?;
        Some(Cost {
            instructions: 4.0 * self.tensor.elements() as f64,
            read: Traffic::of(self.given.space, self.given.bytes()),
            written: Traffic::of(Space::Device, self.tensor.bytes()),
            blocks: UNITS,
            ..Cost::default()
        })
    }

    /// Returns the launch of the kernel that writes the copy; `None` without a copy.
    pub fn copy(&self) -> Option<Launch> {
        self.offset?;
        let (Tensor { dims, strides, dtype, .. }, to) = (&self.given, &self.tensor);
        let last = dims.len() - 1;
        let (row_packs, rows) = (to.strides[last - 1] / PACK, to.dims[..last].iter().product::<u64>());
        let params = [
            param("const T* from", Arg::Operand(self.operand)),
            param("Pack<u16, 8>* to", self.arg()),
            u64_param("packs", rows * row_packs),
            u32_param("row_packs", row_packs),
            u32_param("group_rows", to.dims[last - 1].max(1)),
            u32_param("rows", dims[last - 1]),
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
        Some(Launch::Kernel(kernel("gemm_align", &before, &params, TEXT, blocks, THREADS)))
    }
}

/// Returns the time in seconds of a copy that reads and writes this many bytes in all.
pub fn copy_time(bytes: u64) -> f64 {
    LAUNCH + bytes as f64 / BANDWIDTH
}

/// Kernel text: each thread copies packs of the aligned rows. Elements after the end of a row are zero, and so are rows that only the
/// copy has.
const TEXT: &str = r#"  for (I i = (I)GLOBAL_INDEX; i < (I)packs; i += (I)gridDim.x * blockDim.x) {
    I number = i / row_packs;
    u32 column = (u32)(i - number * row_packs) * 8, index = (u32)(number % group_rows);
    const T* own = from + (i64)(number / group_rows) * (i64)group + (i64)index * (i64)row;
    Pack<u16, 8> pack = {};
    if (index < rows && step == 1) {
      pack = neighbours(own, column, width);
    } else if (index < rows) {
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
    use crate::base::DType;

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
