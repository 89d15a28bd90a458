//! Kernels of a scan of few and long lines along a dimension that is not the last. The threads of a block share some
//! neighbouring lines, its columns. A block scans whole columns, or a tile of them, and then continues the sums of
//! [earlier tiles](super::look_back), so that memory is read once.

use super::kernel::{EACH, Lines, PER_PACK, aligned_pack, definitions};
use super::look_back::{LookBack, MAX_COLUMNS};
use super::*;
use crate::ops::kernels::kernel::{BLOCK, geometry_param, index_type, launch, param, replaced, u32_param, u64_param};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, MOVED_AT_ONCE, SECTOR, WARP, share};

/// Number of bytes of a row of a block's columns: as many as memory moves at once for two accesses.
const ROW_BYTES: u64 = 2 * MOVED_AT_ONCE;

/// Maximum number of bytes of a thread, which registers hold.
const BYTES: u64 = 128;
/// Maximum number of packs of a thread.
const PACKS: u64 = 16;

/// Minimum length of lines that several threads share.
const MIN_LENGTH: u64 = 32;

/// Maximum number of rounds of a block that scans whole columns, for which tiles would save no time.
const ROUNDS: u64 = 2;

/// Division of neighbouring lines among blocks and threads.
pub struct Columns {
    lines: Lines,
    /// Number of elements per pack, which are elements of neighbouring lines.
    pack: u64,
    /// Number of packs of a row of a block: a power of two, at most a warp.
    width: u64,
    /// Number of packs of a thread in a tile, one below the other.
    packs: u64,
    /// Number of tiles of a column; 1 if a block scans whole columns.
    tiles: u64,
    /// True if the rows of a tile are contiguous and shorter than a sector, so that threads exchange elements in shared memory.
    flat: bool,
}

impl Columns {
    /// Returns the division; `None` if lines are short, along the last dimension, or so many that each can have a
    /// thread of its own.
    pub fn of(spec: &Spec) -> Option<Columns> {
        let lines = Lines::of(spec);
        let pack = aligned_pack(spec, &lines);
        let groups = lines.count / pack;
        if lines.along || lines.length < MIN_LENGTH || groups >= BUSY_BLOCKS * u64::from(BLOCK) {
            return None;
        }
        let bytes = pack * spec.inputs[0].dtype.size().max(spec.outputs[0].dtype.size());
        let inner = lines.geometry.dims.last().map_or(1, |inner| inner / pack).max(1);
        let widest = (ROW_BYTES / bytes).min(WARP).min(MAX_COLUMNS / pack);
        let width = inner.next_power_of_two().min(widest);
        let most = (BYTES / bytes).min(PACKS);
        let rows = u64::from(BLOCK) / width;
        let side_by_side = groups.div_ceil(width);
        let tiles = |packs: u64| lines.length.div_ceil(rows * packs);
        let is_whole = tiles(most) <= ROUNDS || side_by_side >= BUSY_BLOCKS;
        // Smaller tiles if there are few.
        let few =
            if is_whole { lines.length.div_ceil(rows) } else { side_by_side * lines.length / (BUSY_BLOCKS * rows) };
        let packs = few.clamp(1, most);
        let tiles = if is_whole { 1 } else { tiles(packs) };
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let flat = x.dtype == y.dtype
            && [x, y].iter().all(|tensor| tensor.contiguous())
            && lines.steps[1] == lines.count
            && lines.count * x.dtype.size() < SECTOR
            && tiles > 1;
        Some(Columns { lines, pack, width, packs, tiles, flat })
    }

    /// Number of packs of lines.
    fn groups(&self) -> u64 {
        self.lines.count / self.pack
    }

    /// Number of blocks that have different columns.
    fn side_by_side(&self) -> u64 {
        self.groups().div_ceil(self.width)
    }

    /// Number of rows of a tile.
    fn rows(&self) -> u64 {
        u64::from(BLOCK) / self.width * self.packs
    }

    /// Number of blocks.
    fn blocks(&self) -> u64 {
        self.side_by_side() * self.tiles
    }

    fn look_back(&self) -> LookBack {
        LookBack { chains: self.side_by_side(), tiles: self.tiles, columns: self.width * self.pack }
    }

    /// Returns the costs of the launch that clears the totals, if there are tiles, and of the scan.
    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let elements = spec.inputs[0].elements() as f64;
        let is_whole = self.tiles == 1;
        let rounds = if is_whole { self.lines.length.div_ceil(self.rows()) } else { 1 };
        let scan = Cost {
            instructions: EACH * elements + PER_PACK * elements / self.pack as f64,
            blocks: self.blocks(),
            share: share(u64::from(BLOCK)),
            // A block exchanges the totals of its warps. One with a tile receives the totals of the tiles before it.
            exchanges: rounds as f64 + if is_whole { 0.0 } else { 2.0 },
            waits: (rounds - 1) as f64,
            handoffs: if is_whole { 0.0 } else { 1.0 },
            ..spec.streaming_cost(elements, 1)
        };
        let clear = (!is_whole).then(|| self.look_back().totals(compute_type(spec)).clear_cost());
        clear.into_iter().chain([scan]).collect()
    }

    pub fn launches(&self, scan: &Scan, spec: &Spec) -> Vec<Launch> {
        let Lines { geometry, count, length, steps, .. } = &self.lines;
        let look_back = self.look_back();
        let totals = look_back.totals(compute_type(spec));
        let is_whole = self.tiles == 1;
        let mut params = vec![
            param("Y* y", Arg::Operand(1)),
            param("const X* x", Arg::Operand(0)),
            geometry_param("g", geometry),
            u64_param("groups", self.groups()),
            u64_param("n", *length),
            u64_param("sy", steps[0]),
            u64_param("sx", steps[1]),
        ];
        if !is_whole {
            params.extend([
                totals.parameter(),
                u64_param("chain", look_back.chain()),
                u32_param("tiles", self.tiles),
                u32_param("side_by_side", self.side_by_side()),
            ]);
        }
        let before = format!(
            "{}typedef {} Index;\n#define T {BLOCK}\n#define V {}\n#define U {}\n#define WIDTH {}\n#define FLAT {}\n#define REVERSE {}\n#define ROW {}\n{}{}",
            definitions(scan, spec),
            index_type(count * length + 2 * self.rows() * self.width * self.pack),
            self.pack,
            self.packs,
            self.width,
            u8::from(self.flat),
            u8::from(reverse(spec)),
            count,
            totals.text(),
            look_back.text(),
        );
        let body = replaced(COLUMNS, if is_whole { &WHOLE } else { &TILED });
        let body = if reverse(spec) { replaced(&body, &REVERSED) } else { body };
        let main = launch(scan.name(), &before, &params, &body, self.blocks(), BLOCK);
        let clear = (!is_whole).then(|| totals.clear(scan));
        clear.into_iter().chain([main]).collect()
    }
}

/// A block scans `WIDTH` packs of columns. A thread has `U` rows of a pack, one below the other, and the threads of a
/// warp have different columns and rows.
const COLUMNS: &str = r#"  __shared__ C warps[T / 32][COLUMNS];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, side = threadIdx.x % WIDTH * V;
  const Index rows = T / WIDTH * U;
DECLARE
  const bool live = group < (Index)groups;
  const X* from = x + g.offset(live ? group * V : 0, 1);
  Y* to = y + g.offset(live ? group * V : 0, 0);
  C carry[V];
#pragma unroll
  for (int v = 0; v < V; v++) carry[v] = NONE;
  EACH_ROUND {
    const Index first = base + threadIdx.x / WIDTH * U;
    Pack<X, V> packs[U];
#if FLAT
    // Neighbouring threads read and write neighbouring elements. In shared memory, those of a thread have a gap after them, so that
    // the threads of a warp access different banks.
    const u32 ELEMENTS = T / WIDTH * U * ROW;
    __shared__ X held[ELEMENTS + T / WIDTH];
    const u32 tile_rows = (Index)n - base < rows ? (u32)((Index)n - base) : (u32)rows;
    const u64 start = (u64)(REVERSE ? (Index)n - base - tile_rows : base) * ROW;
    auto place = [&](u32 element) { return element + element / (U * ROW); };
    auto place_of_row = [&](int u) { return (REVERSE ? tile_rows - 1 - (u32)(first - base + u) : (u32)(first - base + u)) * ROW + side; };
    X own[(ELEMENTS + T - 1) / T];
#pragma unroll
    for (u32 k = 0; k < (ELEMENTS + T - 1) / T; k++) if (k * T + threadIdx.x < tile_rows * ROW) own[k] = x[start + k * T + threadIdx.x];
#pragma unroll
    for (u32 k = 0; k < (ELEMENTS + T - 1) / T; k++)
      if (k * T + threadIdx.x < tile_rows * ROW) held[place(k * T + threadIdx.x)] = own[k];
    __syncthreads();
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int v = 0; v < V; v++)
        if (live && first + u < (Index)n) packs[u].at[v] = held[place(place_of_row(u) + v)];
#else
#pragma unroll
    for (int u = 0; u < U; u++)
      if (live && first + u < (Index)n) packs[u] = *(const Pack<X, V>*)(from + (u64)(first + u) * sx);
#endif
    // Totals of the thread, and those of the rows above it.
    C all[V], sum[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
      all[v] = NONE;
      sum[v] = NONE;
    }
#pragma unroll
    for (int u = 0; u < U; u++)
      if (live && first + u < (Index)n)
#pragma unroll
        for (int v = 0; v < V; v++) all[v] = JOIN(all[v], load<C>(packs[u].at[v]));
#pragma unroll
    for (int v = 0; v < V; v++)
#pragma unroll
      for (int mask = WIDTH; mask < 32; mask *= 2) {
        C other = SHUFFLE_XOR(all[v], mask);
        if (lane & mask) sum[v] = JOIN(other, sum[v]);
        all[v] = lane & mask ? JOIN(other, all[v]) : JOIN(all[v], other);
      }
    if (lane < WIDTH)
#pragma unroll
      for (int v = 0; v < V; v++) warps[warp][side + v] = all[v];
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; v++) {
      C total = NONE;
#pragma unroll
      for (u32 w = 0; w < T / 32; w++) {
        if (w == warp) sum[v] = JOIN(total, sum[v]);
        total = JOIN(total, warps[w][side + v]);
      }
      all[v] = total;
    }
LOOK_BACK
#pragma unroll
    for (int v = 0; v < V; v++) sum[v] = JOIN(carry[v], sum[v]);
#pragma unroll
    for (int u = 0; u < U; u++)
      if (live && first + u < (Index)n) {
        Pack<Y, V> r;
#pragma unroll
        for (int v = 0; v < V; v++) {
          sum[v] = JOIN(sum[v], load<C>(packs[u].at[v]));
          store<C>(r.at[v], sum[v]);
        }
#if FLAT
#pragma unroll
        for (int v = 0; v < V; v++) held[place(place_of_row(u) + v)] = r.at[v];
#else
        *(Pack<Y, V>*)(to + (u64)(first + u) * sy) = r;
#endif
      }
#if FLAT
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < (ELEMENTS + T - 1) / T; k++)
      if (k * T + threadIdx.x < tile_rows * ROW) y[start + k * T + threadIdx.x] = held[place(k * T + threadIdx.x)];
#endif
#pragma unroll
    for (int v = 0; v < V; v++) carry[v] = JOIN(carry[v], all[v]);
END
  }
"#;

/// Parts of the kernel whose blocks scan whole columns, in rounds.
const WHOLE: [(&str, &str); 4] = [
    ("DECLARE\n", "  const Index group = (Index)blockIdx.x * WIDTH + threadIdx.x % WIDTH;\n"),
    ("EACH_ROUND {", "for (Index base = 0; base < (Index)n; base += rows) {"),
    ("LOOK_BACK\n", ""),
    (
        "END\n",
        "    // No thread may still read the totals of warps when the next round overwrites them.\n    __syncthreads();\n",
    ),
];

/// Parts of the kernel whose blocks scan a tile.
const TILED: [(&str, &str); 4] = [
    (
        "DECLARE\n",
        "  __shared__ C found[ROWS_FOUND][COLUMNS];
  const u32 beside = blockIdx.x % side_by_side, tile = blockIdx.x / side_by_side;
  const Index group = (Index)beside * WIDTH + threadIdx.x % WIDTH, base = tile * rows;
",
    ),
    ("EACH_ROUND {", "{"),
    (
        "LOOK_BACK\n",
        "    C total = NONE;
#pragma unroll
    for (u32 w = 0; w < T / 32; w++) total = JOIN(total, warps[w][threadIdx.x % COLUMNS]);
    look_back(totals + beside * (chain * WORDS), tile, tiles, total, found);
#pragma unroll
    for (int r = 0; r < ROWS_FOUND; r++)
#pragma unroll
      for (int v = 0; v < V; v++) carry[v] = JOIN(carry[v], found[r][side + v]);
",
    ),
    ("END\n", ""),
];

/// Substitutions that reverse the direction of the scan.
const REVERSED: [(&str, &str); 2] = [
    ("(from + (u64)(first + u) * sx)", "(from + (u64)((Index)n - 1 - first - u) * sx)"),
    ("(to + (u64)(first + u) * sy)", "(to + (u64)((Index)n - 1 - first - u) * sy)"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn substitutions_change_parts_that_exist() {
        for (plain, _) in WHOLE.iter().chain(&TILED).chain(&REVERSED) {
            assert_eq!(COLUMNS.matches(plain).count(), 1, "{plain}");
        }
    }

    proptest! {
        /// The blocks process every element, registers hold a thread's packs, and a tile has no more columns than threads can wait for.
        #[test]
        fn tiles_cover_their_columns(
            (outer, length, inner) in (1..5u64, 1..300_000u64, 1..3000u64),
            dtype in prop::sample::select(vec![DType::F64, DType::F32, DType::BF16]),
        ) {
            let x = Tensor::packed(dtype, &[outer, length, inner]);
            let attrs = Attrs::of([("dim", Attr::Int(1)), ("reverse", Attr::Bool(false))]);
            let spec = Spec::new(&Scan { multiplies: false }, attrs, vec![x], vec![x]);
            let Some(columns) = Columns::of(&spec) else { return Ok(()) };
            let Columns { pack, width, packs, tiles, .. } = columns;
            prop_assert!(width.is_power_of_two() && width <= WARP && width * pack <= MAX_COLUMNS);
            prop_assert!(columns.side_by_side() * width * pack >= outer * inner);
            prop_assert!(tiles == 1 || (tiles * columns.rows() >= length && (tiles - 1) * columns.rows() < length));
            prop_assert!(packs * pack * dtype.size() <= BYTES);
        }
    }
}
