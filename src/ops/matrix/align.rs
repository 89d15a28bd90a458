//! Copies of factors in the form that a product reads: with rows of whole packs of 16 bytes, or of the transposed factor.

use super::super::layout::{aligned, in_packs};
use super::tiling::ALIGNMENT;
use crate::base::DType;
use crate::ops::kernels::kernel::{index_type, kernel, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::UNITS;
use crate::ops::kernels::ragged::RAGGED;
use crate::ops::{Arg, Cost, Launch, MapBase, Space, Tensor, TensorMap, Traffic};

/// Time in seconds of launching a copy.
const LAUNCH: f64 = 3e-6;
/// Bytes per second that a copy reads and writes.
const BANDWIDTH: f64 = 2.5e12;

/// Maximum size of a copy in bytes.
pub const MAX_COPY: u64 = 1 << 32;

/// Number of threads of a block of the copy.
const THREADS: u32 = 256;
/// Number of blocks of the copy.
const BLOCKS: u64 = 8 * UNITS;

/// Numbers of rows and of columns of the tiles that are transposed: the larger ones read and write whole lines of the cache.
const SIDES: [u64; 2] = [128, 64];

/// Instructions per element of a copy, and of one that transposes: the second is a count in code for sm_90a by NVRTC 13.0.
const PER_ELEMENT: [f64; 2] = [4.0, 15.0];

/// Number of elements in a pack of 16 bytes.
pub fn pack(dtype: DType) -> u64 {
    ALIGNMENT / dtype.size()
}

/// Source of a factor: the operand itself, or a copy in the workspace.
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
    /// True if the copy is that of the transposed operand.
    is_turned: bool,
    /// Number of elements of the operand before the first that is copied.
    start: u64,
}

/// Returns the kernel argument with a tensor map of a matrix, or of one for each group, whose boxes have these extents: elements of a
/// row, and rows.
pub fn tensor_map(tensor: &Tensor, base: MapBase, extent: [u32; 2]) -> Arg {
    let Tensor { dims, strides, dtype, .. } = tensor;
    let last = dims.len() - 1;
    let (groups, group) = if last == 2 { (dims[0], strides[0]) } else { (1, dims[0] * strides[0]) };
    Arg::TensorMap(Box::new(TensorMap {
        base,
        dims: [dims[last], dims[last - 1], groups].map(|size| size.max(1)),
        strides: [strides[last - 1], group].map(|stride| stride * dtype.size()),
        extent,
    }))
}

impl Source {
    /// Returns a copy of a factor with aligned rows at the beginning of the workspace; `None` if the factor has such rows, or the copy would
    /// be too large.
    pub fn aligned(operand: u8, given: &Tensor) -> Option<Source> {
        let [rows, columns] = [2, 1].map(|from_end| given.dims[given.dims.len() - from_end]);
        let copy = Source::padded(operand, given, [rows, columns], 0);
        (!Source::given(operand, given).is_aligned() && copy.end() <= MAX_COPY).then_some(copy)
    }

    /// Returns the source with its copy, if any, behind that of another factor.
    pub fn after(self, other: &Source) -> Source {
        Source { offset: self.offset.map(|_| other.end()), ..self }
    }

    /// Returns a copy of a factor whose matrices have these numbers of rows and of columns: the given ones, or more that are
    /// zero. The copy begins at `offset` in the workspace.
    pub fn padded(operand: u8, given: &Tensor, [rows, columns]: [u64; 2], offset: u64) -> Source {
        let (mut dims, last) = (given.dims, given.dims.len() - 1);
        dims.set(last - 1, rows);
        dims.set(last, columns.next_multiple_of(pack(given.dtype)));
        let mut tensor = Tensor::packed(given.dtype, &dims);
        tensor.dims.set(last, columns);
        Source { tensor, offset: Some(offset), ..Source::given(operand, given) }
    }

    /// Returns a copy of the transposed factor, whose elements have 8 bits. Its matrices have these numbers of rows and of columns: those
    /// of the transposed factor, or more that are zero. The copy begins at `offset` in the workspace.
    pub fn turned(operand: u8, given: &Tensor, sides: [u64; 2], offset: u64) -> Source {
        Source { is_turned: true, ..Source::padded(operand, given, sides, offset) }
    }

    /// Returns the copy of elements that begin at this element of the operand.
    pub fn starting_at(self, start: u64) -> Source {
        Source { start, ..self }
    }

    /// Returns a factor's operand as its source.
    pub fn given(operand: u8, given: &Tensor) -> Source {
        Source { operand, given: *given, tensor: *given, offset: None, is_turned: false, start: 0 }
    }

    /// True if all rows begin at multiples of 16 bytes.
    pub fn is_aligned(&self) -> bool {
        aligned(&self.tensor, pack(self.tensor.dtype))
    }

    /// True if the product can read whole packs, including those at the end of a row.
    pub fn in_packs(&self) -> bool {
        self.offset.is_some() || in_packs(&self.tensor, pack(self.tensor.dtype))
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
        tensor_map(&self.tensor, self.offset.map_or(MapBase::Operand(self.operand), MapBase::Workspace), extent)
    }

    /// Time in ns of writing the copy; 0 without a copy.
    pub fn copy_time(&self) -> f64 {
        self.offset.map_or(0.0, |_| 1e9 * copy_time(self.given.bytes() + self.tensor.bytes()))
    }

    /// Returns the cost of the kernel that writes the copy; `None` without a copy.
    pub fn copy_cost(&self) -> Option<Cost> {
        self.offset?;
        let turned = usize::from(self.is_turned);
        Some(Cost {
            instructions: PER_ELEMENT[turned] * self.tensor.elements() as f64,
            exchanges: turned as f64,
            read: Traffic::of(self.given.space, self.given.bytes()),
            written: Traffic::of(Space::Device, self.tensor.bytes()),
            blocks: UNITS,
            ..Cost::default()
        })
    }

    /// Returns the launch of the kernel that writes the copy; `None` without a copy.
    pub fn copy(&self) -> Option<Launch> {
        self.offset?;
        Some(if self.is_turned { self.turning_copy() } else { self.straight_copy() })
    }

    /// Returns the launch of the kernel that copies rows.
    fn straight_copy(&self) -> Launch {
        let (Tensor { dims, strides, dtype, .. }, to) = (&self.given, &self.tensor);
        let last = dims.len() - 1;
        let (row_packs, rows) = (to.strides[last - 1] / pack(*dtype), to.dims[..last].iter().product::<u64>());
        let params = [
            param("const E* from", Arg::Operand(self.operand)),
            param("Pack<E, V>* to", self.arg()),
            u64_param("packs", rows * row_packs),
            u32_param("row_packs", row_packs),
            u32_param("group_rows", to.dims[last - 1].max(1)),
            u32_param("rows", dims[last - 1]),
            u32_param("width", dims[last]),
            u64_param("group", if last == 2 { strides[0] } else { 0 }),
            u64_param("row", strides[last - 1]),
            u64_param("step", strides[last]),
            u64_param("start", self.start),
        ];
        let index = index_type(rows * row_packs + BLOCKS * u64::from(THREADS));
        let before = format!("{}typedef {index} I;\n{RAGGED}", elements(*dtype));
        let blocks = (rows * row_packs).div_ceil(u64::from(THREADS)).clamp(1, BLOCKS);
        Launch::Kernel(kernel("gemm_align", &before, &params, TEXT, blocks, THREADS))
    }

    /// Returns the launch of the kernel that copies the transposed operand.
    fn turning_copy(&self) -> Launch {
        let (Tensor { dims, strides, dtype, .. }, to) = (&self.given, &self.tensor);
        let last = dims.len() - 1;
        let groups: u64 = to.dims[..last - 1].iter().product();
        let (rows, pitch) = (to.dims[last - 1], to.strides[last - 1]);
        let tiles = |side: u64| [rows.div_ceil(side), pitch.div_ceil(side)];
        let blocks = |side: u64| groups * tiles(side).iter().product::<u64>();
        let side = SIDES.into_iter().find(|&side| blocks(side) >= UNITS).unwrap_or(SIDES[1]);
        let [across, down] = tiles(side);
        let params = [
            param("const E* from", Arg::Operand(self.operand)),
            param("E* to", self.arg()),
            u32_param("across", across),
            u32_param("down", down),
            u32_param("rows", dims[last - 1]),
            u32_param("width", dims[last]),
            u32_param("to_rows", rows),
            u64_param("pitch", pitch),
            u64_param("group", if last == 2 { strides[0] } else { 0 }),
            u64_param("row", strides[last - 1]),
            u64_param("step", strides[last]),
            u64_param("start", self.start),
        ];
        let before = format!("{}#define SIDE {side}\n{RAGGED}", elements(*dtype));
        Launch::Kernel(kernel("gemm_turn", &before, &params, TURNED, blocks(side), THREADS))
    }
}

/// Returns kernel text that defines the type `E`, the bits of an element, and the number `V` of elements in a pack.
fn elements(dtype: DType) -> String {
    let bits = ["unsigned char", "unsigned short", "unsigned int", "unsigned long long"][dtype.size().ilog2() as usize];
    format!("typedef {bits} E;\n#define V {}\n", pack(dtype))
}

/// Returns the time in seconds of a copy that reads and writes this many bytes in all.
pub fn copy_time(bytes: u64) -> f64 {
    LAUNCH + bytes as f64 / BANDWIDTH
}

/// Kernel text: each thread copies packs of the aligned rows. Elements after the end of a row are zero, and so are rows that only the
/// copy has.
const TEXT: &str = r#"  for (I i = (I)GLOBAL_INDEX; i < (I)packs; i += (I)gridDim.x * blockDim.x) {
    I number = i / row_packs;
    u32 column = (u32)(i - number * row_packs) * V, index = (u32)(number % group_rows);
    const E* own = from + (i64)start + (i64)(number / group_rows) * (i64)group + (i64)index * (i64)row;
    Pack<E, V> pack = {};
    if (index < rows && step == 1) {
      pack = fetch_row(own, (i64)column, (i64)width);
#pragma unroll
      for (u32 e = 0; e < V; e++)
        if (column + e >= width) pack.at[e] = 0;
    } else if (index < rows) {
#pragma unroll
      for (u32 e = 0; e < V; e++)
        if (column + e < width) pack.at[e] = own[(i64)(column + e) * (i64)step];
    }
    to[i] = pack;
  }
"#;

/// Kernel text: a block transposes a tile of bytes through shared memory. Rows there are one word longer than a tile, and those of each
/// pack of the copy begin four words later, so that neighbouring threads read from different banks. Elements that only the copy has are
/// zero.
const TURNED: &str = r#"  const u32 PITCH = SIDE / 4 + 1, PACKS = SIDE / V, UNITS = SIDE * PACKS / 256;
  __shared__ u32 words[SIDE * PITCH + PACKS * 4];
  const u32 tile = (u32)(blockIdx.x % ((u64)across * down)), c0 = tile % across * SIDE, r0 = tile / across * SIDE;
  const u64 number = blockIdx.x / ((u64)across * down);
  const E* tile_from = from + (i64)start + (i64)number * (i64)group + (i64)r0 * (i64)row + (i64)c0 * (i64)step;
  const u32 live_r = r0 < rows ? rows - r0 : 0, live_c = c0 < width ? width - c0 : 0;
  Held<E> held[UNITS];
#pragma unroll
  for (u32 u = 0; u < UNITS; u++) {
    const u32 unit = threadIdx.x + u * 256, r = unit / PACKS, c = unit % PACKS * V;
    held[u] = Held<E>();
    if (r >= live_r || c >= live_c) continue;
    if (step == 1) {
      held[u] = read_row(tile_from + (i64)r * (i64)row, (i64)c, (i64)live_c);
    } else {
      for (u32 e = 0; e < V; e++)
        if (c + e < live_c) held[u].packs[0].at[e / 4] |= (u32)tile_from[(i64)r * (i64)row + (i64)(c + e) * (i64)step] << e % 4 * 8;
    }
  }
#pragma unroll
  for (u32 u = 0; u < UNITS; u++) {
    const u32 unit = threadIdx.x + u * 256, r = unit / PACKS, c = unit % PACKS * V;
    union Words { Pack<E, V> elements; u32 w[4]; __device__ Words() {} } all;
    all.elements = held[u].elements();
#pragma unroll
    for (u32 q = 0; q < 4; q++) words[r * PITCH + r / V * 4 + c / 4 + q] = all.w[q];
  }
  __syncthreads();
  const E* elements = (const E*)words;
#pragma unroll
  for (u32 u = 0; u < UNITS; u++) {
    const u32 unit = threadIdx.x + u * 256, c = unit / PACKS, r = unit % PACKS * V;
    if (c0 + c >= to_rows || r0 + r >= pitch) continue;
    Pack<E, V> pack = {};
#pragma unroll
    for (u32 e = 0; e < V; e++)
      if (c < live_c && r + e < live_r) pack.at[e] = elements[((r + e) * PITCH + r / V * 4) * 4 + c];
    *(Pack<E, V>*)(to + ((i64)number * to_rows + c0 + c) * (i64)pitch + r0 + r) = pack;
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;

    #[test]
    fn copies_have_aligned_rows() {
        let (odd, even) = (Tensor::packed(DType::BF16, &[3, 1000, 333]), Tensor::packed(DType::BF16, &[3, 1000, 336]));
        let copied = Source::aligned(1, &odd).expect("a copy").after(&Source::padded(0, &odd, [1000, 333], 0));
        assert_eq!((copied.tensor.dims, copied.tensor.strides), (odd.dims, even.strides));
        assert_eq!((copied.offset, copied.end()), (Some(even.bytes()), 2 * even.bytes()));
        assert!(copied.is_aligned() && copied.in_packs() && copied.copy().is_some());
        assert!(Source::aligned(1, &even).is_none());
    }
}
