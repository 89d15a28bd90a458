//! Transposition of elements of one or two bytes through shared memory, which threads access in words: each thread loads packs
//! of two or four rows, and transposes them in registers into words of neighbouring elements of the output.

use crate::ops::kernels::kernel::{BLOCK, bounds, c_type, geometry_param, index_type, launch, param, u64_param};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, LINE, MOVED_AT_ONCE, RESIDENT_BLOCKS, UNITS, WARP};
use crate::ops::kernels::ragged::RAGGED;
use crate::ops::layout::halves;
use crate::ops::*;

/// Size of a block's tiles in bytes: four packs of 16 bytes for each thread, whose loads are in flight at the same time.
const TILE: u64 = 4 * 16 * BLOCK as u64;
/// Size in bytes of a word of shared memory.
const WORD: u64 = 4;
/// Size in bytes of a pack.
const PACK: u64 = 16;

/// Instructions per pack that a thread loads or stores, for its address, for shifting it, and for transposing it.
const PER_PACK: f64 = 60.0;

/// Tiles of a transposition.
#[derive(Debug)]
pub struct WordTiles {
    /// Dimensions that belong to neither side, with the strides of the output and of the input.
    others: Geometry,
    /// Dimensions whose elements are contiguous in the input.
    read: Geometry,
    /// Dimensions whose elements are contiguous in the output.
    written: Geometry,
    /// Number of elements of a tile along both sides, multiples of a pack.
    tile: [u64; 2],
    /// Number of tiles of a block, a power of two. They have different positions in the other dimensions.
    several: u64,
    /// Size of an element in bytes.
    size: u64,
    /// True if all rows of the output begin and end at packs.
    is_aligned: bool,
    /// Type of the offset of an element.
    offset: &'static str,
}

/// Returns the number of neighbouring tiles, of `tiles`, that blocks take before they go on along the other side, so that the tiles of all
/// resident blocks are about as long in one tensor as in the other. A tile has `near` contiguous elements along the first side and `far`
/// along the other.
fn strip(tiles: u64, near: u64, far: u64) -> u64 {
    let most = (RESIDENT_BLOCKS * far / near).isqrt().clamp(1, tiles);
    tiles.div_ceil(tiles.div_ceil(most))
}

/// Number of elements of a geometry.
fn length(geometry: &Geometry) -> u64 {
    geometry.dims.iter().product()
}

impl WordTiles {
    /// Returns the tiles; `all` has the sizes, and the strides of output and input. `None` for other sizes of elements, if the
    /// contiguous elements of either tensor are shorter than a pack, or if there are fewer tiles than SMs.
    pub fn of(spec: &Spec, all: &Geometry) -> Option<WordTiles> {
        let (y, rank) = (&spec.outputs[0], all.dims.len());
        let [to, from] = [0, 1].map(|tensor| &all.strides[tensor]);
        let along = from.iter().position(|&stride| stride == 1)?;
        let (size, last) = (y.dtype.size(), rank - 1);
        if size > 2 || to[last] != 1 || along == last || y.bytes() < UNITS * TILE {
            return None;
        }
        // The shorter side takes the next dimension that continues its contiguous elements, until it has a cache line.
        let mut sides = [vec![along], vec![last]];
        loop {
            let lengths = [0, 1].map(|side| sides[side].iter().map(|&axis| all.dims[axis]).product::<u64>());
            let next = |side: usize| {
                let strides = [from, to][side];
                let is_free = |axis: &usize| !sides.iter().any(|side| side.contains(axis));
                (0..rank).filter(is_free).find(|&axis| strides[axis] == lengths[side] && lengths[side] * size < LINE)
            };
            let order = if lengths[0] < lengths[1] { [0, 1] } else { [1, 0] };
            match order.into_iter().find_map(|side| Some((side, next(side)?))) {
                Some((side, axis)) => sides[side].insert(0, axis),
                None => break,
            }
        }
        let others: Vec<usize> = (0..rank).filter(|axis| !sides.iter().any(|side| side.contains(axis))).collect();
        let [read, written] = [0, 1].map(|side| all.part(&sides[side]));
        if length(&read).min(length(&written)) * size < PACK {
            return None;
        }
        let pack = PACK / size;
        let rest = |other: u64| TILE / size / other / pack * pack;
        let fitted = |side: &Geometry, most: u64| length(side).next_multiple_of(pack).min(most);
        let tile_read = fitted(&read, MOVED_AT_ONCE / size);
        let tile_written = fitted(&written, rest(tile_read));
        let tile_read = fitted(&read, rest(tile_written));
        let tiles = length(&read).div_ceil(tile_read) * length(&written).div_ceil(tile_written);
        let others = all.part(&others);
        // Two short sides make a small tile, whose loads do not occupy all threads of a block.
        let fits = |several: &u64| {
            let has_room = several * tile_read * tile_written * size <= TILE && *several <= length(&others);
            has_room && length(&others).div_ceil(*several) * tiles >= BUSY_BLOCKS
        };
        let several = halves(u64::from(BLOCK)).find(fits).unwrap_or(1);
        let is_packed = |axis: usize| sides[1].contains(&axis) || to[axis].is_multiple_of(pack);
        Some(WordTiles {
            is_aligned: u64::from(y.align) >= PACK && length(&written).is_multiple_of(pack) && (0..rank).all(is_packed),
            others,
            read,
            written,
            tile: [tile_read, tile_written],
            several,
            size,
            offset: index_type(spec.inputs[0].reach().max(y.reach())),
        })
    }

    /// Number of tiles in both dimensions.
    fn tiles(&self) -> [u64; 2] {
        [length(&self.read).div_ceil(self.tile[0]), length(&self.written).div_ceil(self.tile[1])]
    }

    /// Number of blocks of the kernel, some of which may have no tile.
    fn blocks(&self) -> u64 {
        let [strip, strips, far] = self.strips();
        length(&self.others).div_ceil(self.several) * strip * strips * far
    }

    /// True if neighbouring blocks take tiles along the side that is contiguous in the output, so that tiles that share sectors are processed
    /// at about the same time.
    fn is_down(&self) -> bool {
        let [read, written] = self.tiles();
        written < read && !self.is_aligned
    }

    /// Number of tiles of a strip, in which neighbouring blocks take neighbouring tiles; of strips; and of tiles along the other side.
    fn strips(&self) -> [u64; 3] {
        let (near, far) = if self.is_down() { (1, 0) } else { (0, 1) };
        let tiles = self.tiles();
        let is_large = tiles[0] * tiles[1] > RESIDENT_BLOCKS;
        let strip = if is_large { strip(tiles[near], self.tile[near], self.tile[far]) } else { tiles[near] };
        [strip, tiles[near].div_ceil(strip), tiles[far]]
    }

    /// Number of words of shared memory between packs of rows. Neighbouring threads store words of neighbouring packs, which then
    /// begin in different banks.
    fn pad(&self) -> u64 {
        (WARP * PACK / self.size / self.tile[0]).next_multiple_of(4).max(4)
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let packs = 2.0 * (spec.outputs[0].bytes() / PACK) as f64;
        let (instructions, blocks) = (PER_PACK * packs, self.blocks());
        Cost { instructions, exchanges: 1.0, blocks, ..spec.streaming_cost(0.0, TILE / self.size) }
    }

    pub fn launch(&self, spec: &Spec) -> Launch {
        let element = c_type(spec.outputs[0].dtype);
        let (pack, rows, [tr, tw]) = (PACK / self.size, WORD / self.size, self.tile);
        let [tiles_read, tiles_written] = self.tiles();
        let (columns, group) = (tr / pack, u64::from(BLOCK) / self.several);
        let pad = self.pad();
        let pitch = tw / rows;
        let [strip, strips, far_tiles] = self.strips();
        // Rows of a tile that follow each other in the output are written as one.
        let width = length(&self.written);
        let is_flat = !self.is_aligned && *self.read.strides[0] == [width] && tiles_written == 1;
        // Divides once for each row of a tile whose offset takes a division.
        let table = |side: &Geometry| u32::from(side.dims.len() > 1);
        let params = [
            param("E* __restrict__ y", Arg::Operand(1)),
            param("const E* __restrict__ x", Arg::Operand(0)),
            geometry_param("others", &self.others),
            geometry_param("read", &self.read),
            geometry_param("written", &self.written),
            u64_param("count", length(&self.others)),
            u64_param("length_read", length(&self.read)),
            u64_param("length_written", width),
            u64_param("near_tiles", if self.is_down() { tiles_written } else { tiles_read }),
            u64_param("far_tiles", far_tiles),
            u64_param("strip", strip),
            u64_param("strips", strips),
        ];
        let before = format!(
            "{}typedef {element} E;\n#define V {pack}\n#define ROWS {rows}\n#define TR {tr}\n#define TW {tw}\n#define COLUMNS {columns}\n\
             #define PITCH {pitch}\n#define PAD {pad}\n#define SEVERAL {}\n#define GROUP {group}\n#define UNITS {}\n#define DOWN {}\n#define ALIGNED {}\n#define WRITTEN {}\n\
             #define ROW_TABLE {}\n#define COLUMN_TABLE {}\ntypedef {} Index;\ntypedef {} Offset;\n{RAGGED}{TRANSPOSED}",
            bounds(BLOCK),
            self.several,
            (columns * tw / rows).div_ceil(group),
            u32::from(self.is_down()),
            u32::from(self.is_aligned),
            if is_flat { width } else { 0 },
            table(&self.read),
            table(&self.written),
            index_type(self.blocks() * self.several),
            self.offset,
        );
        launch("transpose_words", &before, &params, BODY, self.blocks(), BLOCK)
    }
}

/// Kernel text that transposes words in registers.
const TRANSPOSED: &str = r#"
// Four of the eight bytes of two words, each selected by four bits.
__device__ inline u32 picked(u32 a, u32 b, u32 which) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, which);
#else
  u32 v = 0;
  for (int i = 0; i < 4; i++) v |= (u32)(((u64)b << 32 | a) >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
  return v;
#endif
}
"#;

/// Kernel text: each group of a block's threads transposes a tile.
const BODY: &str = r#"  const u32 own = threadIdx.x % GROUP, group = threadIdx.x / GROUP;
  __shared__ Pack<u32, 4> tiles[SEVERAL][(4 + TR * PITCH + COLUMNS * PAD + 4) / 4];
  Pack<u32, 4>* const packs = tiles[group];
  u32* const words = (u32*)packs + 4;
  const Index block = (Index)blockIdx.x, rest = block / (Index)strip, column = rest / (Index)far_tiles, first = column / (Index)strips;
  const Index which = first * SEVERAL + group;
  const u64 near = (column - first * (Index)strips) * (Index)strip + (block - rest * (Index)strip), far = rest - column * (Index)far_tiles;
  if (near >= near_tiles) return;
  const u64 r0 = (DOWN ? far : near) * TR, w0 = (DOWN ? near : far) * TW;
  u32 live_r = (u32)(length_read - r0 < TR ? length_read - r0 : TR);
  u32 live_w = (u32)(length_written - w0 < TW ? length_written - w0 : TW);
#if ROW_TABLE
  __shared__ Offset rows_at[TR];
  for (u32 i = threadIdx.x; i < live_r; i += 256) rows_at[i] = (Offset)read.offset((Offset)(r0 + i), 0);
#define ROW(r) rows_at[r]
#else
#define ROW(r) read.offset(r0 + (r), 0)
#endif
#if COLUMN_TABLE
  __shared__ Offset columns_at[TW];
  for (u32 i = threadIdx.x; i < live_w; i += 256) columns_at[i] = (Offset)written.offset((Offset)(w0 + i), 1);
  __syncthreads();
#define COLUMN(w) columns_at[w]
#else
#define COLUMN(w) written.offset(w0 + (w), 1)
#endif
  if (SEVERAL > 1 && which >= (Index)count) live_r = live_w = 0;
  const E* from = x + others.offset(which, 1) + r0;
  Held<E> held[UNITS][ROWS];
#pragma unroll
  for (u32 u = 0; u < UNITS; u++) {
    const u32 unit = own + u * GROUP, c = unit % COLUMNS, w = unit / COLUMNS * ROWS;
#pragma unroll
    for (u32 k = 0; k < ROWS; k++) {
      held[u][k] = Held<E>();
      if (w + k < live_w) held[u][k] = read_row(from + COLUMN(w + k), (int)(c * V), (int)live_r);
    }
  }
#pragma unroll
  for (u32 u = 0; u < UNITS; u++) {
    const u32 unit = own + u * GROUP, c = unit % COLUMNS, g = unit / COLUMNS;
    union Words { Pack<E, V> elements; u32 w[4]; __device__ Words() {} } a[ROWS];
#pragma unroll
    for (u32 k = 0; k < ROWS; k++) a[k].elements = held[u][k].elements();
    if (g * ROWS >= live_w) continue;
    u32* to = words + c * (V * PITCH + PAD) + g;
#pragma unroll
    for (u32 q = 0; q < 4; q++) {
      if (ROWS == 4) {
        const u32 l = picked(a[0].w[q], a[1 % ROWS].w[q], 0x5140), m = picked(a[2 % ROWS].w[q], a[3 % ROWS].w[q], 0x5140);
        const u32 n = picked(a[0].w[q], a[1 % ROWS].w[q], 0x7362), o = picked(a[2 % ROWS].w[q], a[3 % ROWS].w[q], 0x7362);
        to[(4 * q) % V * PITCH] = picked(l, m, 0x5410);
        to[(4 * q + 1) % V * PITCH] = picked(l, m, 0x7632);
        to[(4 * q + 2) % V * PITCH] = picked(n, o, 0x5410);
        to[(4 * q + 3) % V * PITCH] = picked(n, o, 0x7632);
      } else {
        to[2 * q * PITCH] = picked(a[0].w[q], a[1].w[q], 0x5410);
        to[(2 * q + 1) * PITCH] = picked(a[0].w[q], a[1].w[q], 0x7632);
      }
    }
  }
  __syncthreads();
  // The elements of row `r` of the output from `w` on, which may be negative.
  auto taken = [&](u32 r, int w) -> Pack<E, V> {
    Held<E> held = {};
    held.shift = ALIGNED ? 0 : (u32)(w + V) % V * (u32)sizeof(E);
    const Pack<u32, 4>* first = packs + 1 + (int)((r * PITCH + r / V * PAD) / 4) + (w + V) / V - 1;
    held.packs[0] = first[0];
    if (!ALIGNED) held.packs[1] = first[1];
    return held.elements();
  };
  E* to = y + others.offset(which, 0) + w0;
#if WRITTEN
  to += ROW(0);
  const int n = (int)(live_r * WRITTEN), lead = (int)lead_of(to);
  for (int first = (int)own * V - lead; first < n; first += GROUP * V) {
    const u32 r = first < 0 ? 0 : (u32)first / WRITTEN;
    const int w = first - (int)(r * WRITTEN), left = WRITTEN - w;
    Pack<E, V> v = taken(r, w);
    if (left < V && r + 1 < live_r) {
      const Pack<E, V> next = taken(r + 1, -left);
#pragma unroll
      for (int c = 0; c < V; c++) if (c >= left) v.at[c] = next.at[c];
    }
    put_row(to, first, n, v);
  }
#else
  // Whole packs of rows, then the elements at their ends.
  const u32 packs_of_row = TW / V;
#pragma unroll 4
  for (u32 i = own; i < live_r * packs_of_row; i += GROUP) {
    const u32 r = i / packs_of_row;
    E* row = to + ROW(r);
    const int first = (int)((i - r * packs_of_row) * V) + (ALIGNED ? 0 : (int)(V - lead_of(row)) % V);
    union Words { Pack<E, V> elements; u32 w[4]; __device__ Words() {} } all;
    if (first + V > (int)live_w) continue;
    all.elements = taken(r, first);
    store_words(row + first, all.w);
  }
  if (ALIGNED) return;
  const E* const elements = (const E*)words;
  for (u32 i = own; i < live_r * 2 * V; i += GROUP) {
    const u32 r = i / (2 * V), e = i % V;
    E* row = to + ROW(r);
    // Elements before the first whole pack, and behind the last.
    const u32 ahead = (V - lead_of(row)) % V, whole = live_w > ahead ? ahead + (live_w - ahead) / V * V : live_w;
    const u32 w = i % (2 * V) < V ? e : whole + e;
    if (w < (i % (2 * V) < V && ahead < live_w ? ahead : live_w)) row[w] = elements[(r * PITCH + r / V * PAD) * ROWS + w];
  }
#endif
"#;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ops::kernels::occupancy::DEFAULT_SHARED;
    use proptest::prelude::*;

    /// Transpositions that rotate the dimensions of a contiguous tensor, or of its short rows, each with the sizes and the strides of output and
    /// input.
    pub fn rotations(dtypes: &'static [DType]) -> impl Strategy<Value = (Spec, Geometry)> {
        let sizes = prop::collection::vec(prop_oneof![1..9u64, 1..200u64, 1..70_000u64], 2..5)
            .prop_filter("too large", |sizes| sizes.iter().map(|&size| size as f64).product::<f64>() < 1e10);
        let row = prop_oneof![3 => Just(1), 1 => 2..20u64];
        (sizes, 1..4usize, row, prop::sample::select(dtypes)).prop_map(|(mut sizes, turn, row, dtype)| {
            let mut axes: Vec<i64> = (0..sizes.len()).map(|axis| ((axis + turn) % sizes.len()) as i64).collect();
            axes.push(sizes.len() as i64);
            sizes.push(row);
            let turned: Vec<u64> = axes.iter().map(|&axis| sizes[axis as usize]).collect();
            let (x, y) = (Tensor::packed(dtype, &sizes), Tensor::packed(dtype, &turned));
            let strides: Vec<u64> = axes.iter().map(|&axis| x.strides[axis as usize]).collect();
            let all = layout::by_output(y.dims, &[y.strides, Dims::from_slice(&strides).unwrap()]);
            (Spec::new(find("transpose").unwrap(), Attrs::of([("dims", Attr::Axes(axes))]), vec![x], vec![y]), all)
        })
    }

    proptest! {
        /// Sides are contiguous, tiles fit shared memory, and each thread has a word of its own for every element.
        #[test]
        fn tiles_fit_shared_memory((spec, all) in rotations(&[DType::U8, DType::BF16])) {
            let Some(tiles) = WordTiles::of(&spec, &all) else { return Ok(()) };
            let ([tr, tw], size) = (tiles.tile, tiles.size);
            prop_assert!(tiles.several * tr * tw * size <= TILE && tiles.several <= u64::from(BLOCK));
            let words = tr * tw * size / WORD + tr * size / PACK * tiles.pad() + 8;
            prop_assert!(tiles.several * words * WORD + 8 * (tr + tw) <= DEFAULT_SHARED);
            prop_assert!((tr * size).is_multiple_of(PACK) && (tw * size).is_multiple_of(PACK));
            prop_assert_eq!(length(&tiles.others) * length(&tiles.read) * length(&tiles.written), spec.outputs[0].elements());
            for (side, which) in [(&tiles.read, 1), (&tiles.written, 0)] {
                prop_assert_eq!(side.strides[which], side.dims.contiguous_strides());
                prop_assert!(length(side) * size >= PACK);
            }
        }
    }
}
