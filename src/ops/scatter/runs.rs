//! The kernels of a `scatter` with `combine: add` of wide rows: positions sorted by row, and windows of them.
//!
//! First kernels sort the positions of indices by row. Then each block adds the terms of a window of sorted positions, whatever rows they
//! belong to. So the terms are divided evenly among blocks, however often indices name a row. Rows without terms are set to zero by blocks of
//! their own or, if they are most rows, before. A row that goes on beyond a window leaves the sum of each window to a last kernel. Windows
//! depend on the number of positions alone, so that every run adds terms in the same order.

use super::super::layout::packs_of_rows;
use super::direct::VOTES;
use super::*;
use crate::ops::kernels::occupancy::{SECTOR, UNITS, WARP, sectors_of, share, share_among};
use crate::ops::movement::gather::Columns;

/// Maximum number of indices whose places in the sorted order are found by comparing each with all others, and maximum number if the same
/// kernel sets zeros meanwhile. The time grows with the square of the number of indices: 4096 take as long as two launches of a radix sort.
const MAX_COMPARED: [u64; 2] = [4096, 8192];

/// Number of positions of a block that compares indices: one for each lane of its warps, which share the others.
const COMPARED: u64 = WARP;

/// Minimum number of positions of a window for each group of threads, and maximum number of all, which shared memory holds.
const EACH: [u64; 2] = [4, 2048];

/// Maximum size in bytes of a sum for each thread of a block, beside its window.
const SUMS: u64 = 24 << 10;

/// Number of bytes that memory moves in the time of a launch.
const LAUNCH_BYTES: u64 = 5 << 20;

/// Number of terms that a thread reads at once.
const AHEAD: u64 = 4;

/// Number of resident blocks per SM that add aligned packs of up to four elements, and others, which take more registers.
const RESIDENT: [u64; 2] = [4, 3];

/// Instructions per pair of indices that are compared. This and the following are estimates.
const PER_PAIR: f64 = 2.5;
/// Other instructions per thread of the kernel that compares.
const PER_COMPARER: f64 = 100.0;
/// Instructions per 16 bytes of zeros.
const PER_ZEROS: f64 = 8.0;
/// Instructions of the kernel that adds, per thread and term.
const PER_TERM: f64 = 40.0;
/// Instructions of the kernel that adds, per thread that writes a pack.
const PER_SUM: f64 = 25.0;
/// Other instructions of the kernel that adds, per thread.
const PER_THREAD: f64 = 300.0;
/// Instructions of the last kernel per thread.
const PER_JOINER: f64 = 40.0;

/// The division of terms, rows and columns among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    sort: RowSort,
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of threads that process neighbouring packs of a row.
    lanes: u64,
    /// Number of blocks that share the columns of a row.
    chunks: u64,
    /// Number of positions of a window for each group of threads.
    each: u64,
    /// Number of windows.
    windows: u64,
    /// Number of blocks that set rows without terms to zero.
    zeroing: u64,
    /// True if the output is set to zero first, since most rows have no term.
    clears: bool,
    /// Number of rows of the output.
    rows: u64,
    /// Number of indices.
    count: u64,
}

impl Runs {
    /// Returns the division; `None` if rows or positions need more than 31 bits, or if the sums of a block do not fit shared memory. `clears`
    /// means that most rows of a contiguous output have no term.
    pub fn of(spec: &Spec, columns: &Columns, clears: bool) -> Option<Runs> {
        let (rows, count) = (spec.outputs[0].dims[0].max(1), spec.inputs[1].elements());
        let (pack, ragged) = columns.packs(spec.inputs[0].dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = super::search::lanes(packs, [WARP / 2, WARP]);
        let chunks = packs.div_ceil(lanes).max(1);
        let groups = u64::from(BLOCK) / lanes;
        // As many blocks as run at the same time, so that the sums of a popular row are few.
        let blocks = UNITS * resident(pack, ragged);
        let zeroing = if clears { 0 } else { rows.div_ceil(u64::from(BLOCK)) * chunks };
        let blocks = blocks.saturating_sub(zeroing).max(blocks / 2);
        let [least, most] = EACH;
        let each = (count * chunks).div_ceil(blocks * groups).clamp(least, most / groups).next_multiple_of(AHEAD);
        let windows = count.div_ceil(groups * each).max(1);
        let sort = RowSort::of(count, rows);
        let runs = Runs { sort, ragged, pack, lanes, chunks, each, windows, zeroing, clears, rows, count };
        let sums = u64::from(BLOCK) * pack * scatter_type(spec).size();
        (rows < 1 << 31 && count < 1 << 31 && sums <= SUMS).then_some(runs)
    }

    /// Number of bytes that memory moves in the time of the launches.
    pub fn bytes_of_launches(&self) -> u64 {
        let ordering = if self.compares() { 1 } else { 2 * u64::from(self.sort.radix().passes()) };
        (2 + ordering) * LAUNCH_BYTES
    }

    /// True if one kernel sorts the indices and sets the output to zero meanwhile.
    pub fn clears_meanwhile(&self) -> bool {
        self.clears && self.compares()
    }

    /// True if blocks share a row.
    pub fn divides_rows(&self) -> bool {
        self.chunks > 1
    }

    /// True if indices are sorted by comparing each with all others.
    fn compares(&self) -> bool {
        self.count <= MAX_COMPARED[usize::from(self.clears)]
    }

    /// Number of the half of the workspace that holds the sorted positions.
    fn side(&self) -> u32 {
        if self.compares() { 0 } else { self.sort.radix().side() }
    }

    /// Number of blocks that add the terms of a window.
    fn adding(&self) -> u64 {
        self.windows * self.chunks
    }

    /// Number of blocks of the kernel that compares indices, and of those that set zeros beside them.
    fn ordering(&self, spec: &Spec) -> u64 {
        let zeroing = spec.outputs[0].bytes() / (16 * AHEAD * u64::from(BLOCK));
        let zeroing = if self.clears { zeroing.min(RESIDENT_BLOCKS) } else { 0 };
        self.count.div_ceil(COMPARED).max(zeroing).max(1)
    }

    /// Number of elements of a row, rounded up to whole chunks.
    fn width(&self) -> u64 {
        self.chunks * self.lanes * self.pack
    }

    /// Number of sums of windows: each has up to two, of a row that goes on from the window before and of one that goes on in the next window.
    fn partials(&self) -> u64 {
        2 * self.windows * self.width()
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let device = |bytes| Traffic { device: bytes, host: 0 };
        let block = u64::from(BLOCK);
        let (count, lanes) = (self.count as f64, (self.chunks * self.lanes) as f64);
        let entries = self.count * self.sort.radix().entry();
        let zeros = if self.clears { Spec::bytes_of(&spec.outputs) } else { Traffic::NONE };
        let of_zeros = y.bytes() as f64 / 16.0 * if self.clears { PER_ZEROS } else { 0.0 };
        let mut costs = match self.compares() {
            true => vec![Cost {
                instructions: PER_PAIR * count * count + PER_COMPARER * (self.ordering(spec) * block) as f64 + of_zeros,
                read: Spec::bytes_of(&spec.inputs[1..2]),
                written: device(entries) + zeros,
                exchanges: 2.0,
                blocks: self.ordering(spec),
                share: share(block),
                ..Cost::default()
            }],
            false => self.sort.radix().launch_costs(i.dtype.size(), self.sort.radix().entry()),
        };
        if self.clears && !self.compares() {
            costs.push(Cost { written: zeros, ..Cost::default() });
        }
        let written = match self.clears {
            true => device((x.bytes() / self.count.max(1)) * self.count.min(self.rows)),
            false => Spec::bytes_of(&spec.outputs),
        };
        // A window leaves sums only of rows that go on.
        let terms = self.count / self.rows.min(self.count).max(1);
        let left = self.count.div_ceil(self.each * block / self.lanes) * 2 * u64::from(terms > 1);
        let partials = device(left * self.width() * scatter_type(spec).size());
        let of_terms = count * self.chunks as f64 * sectors_of(x.bytes() / (self.count * self.chunks).max(1));
        costs.push(Cost {
            instructions: PER_TERM * count * lanes
                + PER_SUM * self.rows.min(self.count) as f64 * lanes
                + PER_THREAD * ((self.zeroing + self.adding()) * block) as f64,
            read: Spec::bytes_of(&spec.inputs) + device(entries),
            written: written + partials,
            sectors: (written.device / SECTOR) as f64 + of_terms,
            waits: (2 + self.each / AHEAD) as f64,
            exchanges: 2.0,
            blocks: self.zeroing + self.adding(),
            share: share_among(resident(self.pack, self.ragged)),
            ..Cost::default()
        });
        costs.push(Cost {
            instructions: PER_JOINER * (self.adding() * block) as f64,
            read: partials,
            blocks: self.adding(),
            share: share(block),
            waits: 1.0,
            ..Cost::default()
        });
        costs
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let sums = self.partials() * scatter_type(spec).size();
        let parts = Parts::of(spec, columns, self.sort.radix().workspace(), sums);
        let before = format!(
            "{}{VOTES}{SET_ZERO}#define SIDE {}\n#define LANES {}\n#define CHUNKS {}\n#define EACH {}u\n#define WINDOWS {}u\n#define ZERO_BLOCKS {}u\n#define AHEAD {AHEAD}\n#define COUNT {}\n#define CLEARS {}\n{}",
            self.sort.radix().text(),
            self.side(),
            self.lanes,
            self.chunks,
            self.each,
            self.windows,
            self.zeroing,
            self.count.max(1),
            u32::from(self.clears),
            columns.text_of_packs(self.pack, self.ragged),
        );
        let launch = |name, body: &str, grid: u64, resident: u64| {
            let bounds = format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({BLOCK}, {resident})\n");
            parts.launch(name, &format!("{before}{bounds}"), body, grid, BLOCK)
        };
        let mut launches = match self.compares() {
            true => vec![launch("scatter_order", &format!("{CLEAR}{ORDER}"), self.ordering(spec), 1)],
            false => self.sort.launches(&spec.inputs[1], 1, &parts.outer, 1),
        };
        if self.clears && !self.compares() {
            let bytes = spec.outputs[0].bytes();
            launches.push(Launch::Memset { operand: spec.inputs.len() as u8, value: 0, bytes });
        }
        launches.push(launch(
            "scatter",
            &format!("{OWN}{ZEROS}{ADD}"),
            self.zeroing + self.adding(),
            resident(self.pack, self.ragged),
        ));
        launches.push(launch("scatter_join", &format!("{OWN}{JOIN}"), self.adding(), 1));
        launches
    }
}

/// Number of resident blocks per SM of the kernel that adds packs of this many elements.
fn resident(pack: u64, ragged: bool) -> u64 {
    RESIDENT[usize::from(pack > 4 || ragged)]
}

/// Kernel text: the blocks set the output to zero, if most of its rows have no term.
const CLEAR: &str = r#"#if CLEARS
  set_zero(y, y + rows * n, (u64)blockIdx.x * 256 + threadIdx.x, (u64)gridDim.x * 256);
#endif
"#;

/// Kernel text: a block finds the places of 32 positions in the order of rows. Each warp compares their rows with those of a part of all
/// positions. Further blocks only set zeros.
const ORDER: &str = r#"  if (blockIdx.x * 32 >= COUNT) return;
  const u32 NONE = 0xffffffffu, FOURS = (COUNT + 31) / 32 * 8;
  typedef Pack<u32, 4> Four;
  __shared__ Four keys[FOURS];
  __shared__ u32 lowers[8][32], named;
  const u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32, own = blockIdx.x * 32 + lane32;
  if (t == 0) named = 0;
  __syncthreads();
  u32 valid = 0;
#pragma unroll 8
  for (u32 p = t; p < FOURS * 4; p += 256) {
    const i64 index = p < COUNT ? (i64)INDEX(p) : -1;
    const bool names = index >= 0 && (u64)index < rows;
    ((u32*)keys)[p] = names ? (u32)index : NONE;
    valid += names;
  }
  valid = sum32(valid);
  if (lane32 == 0) atomicAdd(&named, valid);
  __syncthreads();
  const u32 mine = ((const u32*)keys)[own], before = blockIdx.x * 8;
  u32 lowest[4] = {};
  auto compare = [&](u32 from, u32 to, u32 limit) {
#pragma unroll 8
    for (u32 four = from + warp; four < to; four += 8) {
      const Four other = keys[four];
#pragma unroll
      for (u32 o = 0; o < 4; o++) lowest[o] += other.at[o] < limit;
    }
  };
  // Positions before the block's are lower if their rows are the same.
  compare(0, before, mine + 1);
  compare(before + 8, FOURS, mine);
  const Four other = keys[before + warp];
  u32 lower = lowest[0] + lowest[1] + lowest[2] + lowest[3];
#pragma unroll
  for (u32 o = 0; o < 4; o++) lower += other.at[o] < mine || (other.at[o] == mine && warp * 4 + o < lane32);
  lowers[warp][lane32] = lower;
  __syncthreads();
  if (blockIdx.x == 0 && t == 0) live(workspace) = named;
  if (warp > 0 || mine == NONE) return;
  u32 at = 0;
#pragma unroll
  for (u32 w = 0; w < 8; w++) at += lowers[w][lane32];
  keys_of(workspace, 0)[at] = mine;
  places_of(workspace, 0)[at] = own;
"#;

/// Kernel text: the block's window, whose positions each group of `LANES` threads has `EACH` of, and its columns.
const OWN: &str = r#"  typedef Pack<C, V> Sum;
  const u32 GROUPS = 256 / LANES, ALL_EACH = GROUPS * EACH, NO_ROW = 0xffffffffu;
  const u32 t = threadIdx.x, lane32 = t % 32, lane = t % LANES, group = t / LANES;
  const u32 chunk = blockIdx.x % CHUNKS;
  u32 window = blockIdx.x / CHUNKS;
  const Key* sorted = keys_of(workspace, SIDE);
  const P* order = places_of(workspace, SIDE);
  const u32 all = (u32)live(workspace);
  auto column_of = [&](u32 row) { return (i64)(chunk * LANES + lane) * V - LEAD(y + row * sy); };
  auto write = [&](u32 row, const C* sum) {
    const i64 column = column_of(row);
    if (column >= (i64)n) return;
    Pack<E, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
    PUT(y + row * sy, column, v);
  };
  auto partial_of = [&](u32 of_window, u32 which) { return (Sum*)partials + ((u64)(2 * of_window + which) * CHUNKS + chunk) * LANES + lane; };
"#;

/// Kernel text: the first blocks set rows without terms to zero. Each thread searches the sorted rows for one row.
const ZEROS: &str = r#"#if ZERO_BLOCKS > 0
  if (blockIdx.x < ZERO_BLOCKS) {
    __shared__ u32 empty[8];
    const u32 first = blockIdx.x / CHUNKS * 256, row = first + t;
    u32 low = 0, high = row < rows ? all : 0;
    while (low < high) {
      const u32 middle = (low + high) / 2;
      if (sorted[middle] < row) low = middle + 1;
      else high = middle;
    }
    const u32 votes = votes32(row < rows && (low == all || sorted[low] != row));
    if (lane32 == 0) empty[t / 32] = votes;
    __syncthreads();
    C zeros[V] = {};
    for (u32 other = group; other < 256; other += GROUPS) {
      if ((empty[other / 32] >> other % 32 & 1) != 0) write(first + other, zeros);
    }
    return;
  }
#endif
  window -= ZERO_BLOCKS / CHUNKS;
"#;

/// Kernel text: each group adds its terms row by row, and writes the rows that begin and end among them. The sum of a row that goes on from
/// the group before is carried: the group in which the row begins adds it.
const ADD: &str = r#"  __shared__ Sum carries[GROUPS * LANES];
  __shared__ bool through[GROUPS];
  __shared__ u32 rows_of[ALL_EACH], places[ALL_EACH];
  const u32 block_begin = window * ALL_EACH;
  if (block_begin >= all) return;
#pragma unroll
  for (u32 k = t; k < ALL_EACH; k += 256) {
    if (block_begin + k >= all) continue;
    rows_of[k] = (u32)sorted[block_begin + k];
    places[k] = (u32)order[block_begin + k];
  }
  const u32 here = all - block_begin < ALL_EACH ? all - block_begin : ALL_EACH;
  const u32 begin = group * EACH < here ? group * EACH : here, end = begin + EACH < here ? begin + EACH : here;
  const bool is_filled = begin < end;
  // The row before the group's first position, and the row behind its last one.
  const u32 before = is_filled && block_begin + begin > 0 ? (u32)sorted[block_begin + begin - 1] : NO_ROW;
  const u32 behind = is_filled && block_begin + end < all ? (u32)sorted[block_begin + end] : NO_ROW;
  __syncthreads();
  u32 row = is_filled ? rows_of[begin] : 0;
  const bool continues = is_filled && before == row;
  bool is_carried = continues;
  C sum[V] = {};
  auto carry = [&](bool goes_on) {
#pragma unroll
    for (int c = 0; c < V; c++) carries[group * LANES + lane].at[c] = sum[c];
    if (lane == 0) through[group] = goes_on;
  };
  for (u32 l = begin; l < end; l += AHEAD) {
    Raw raw[AHEAD];
    C weight[AHEAD];
    // Loads without branches are under way at the same time.
#pragma unroll
    for (u32 a = 0; a < AHEAD; a++) {
      const u32 k = l + a < end ? l + a : end - 1;
      const P p = places[k];
      const i64 column = column_of(rows_of[k]);
      raw[a] = READ_ROW(x + outer.offset(p, 0), column < (i64)n ? column : 0);
      weight[a] = WEIGHT(p);
    }
#pragma unroll
    for (u32 a = 0; a < AHEAD; a++) {
      if (l + a >= end) continue;
      if (rows_of[l + a] != row) {
        if (is_carried) carry(false);
        else write(row, sum);
        is_carried = false;
        row = rows_of[l + a];
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] = 0;
      }
      const Pack<E, V> v = ELEMENTS(raw[a]);
#pragma unroll
      for (int c = 0; c < V; c++) sum[c] += weight[a] * load<C>(v.at[c]);
    }
  }
  const bool goes_on = is_filled && behind == row;
  const bool leads = goes_on && !is_carried;
  if (is_carried) carry(goes_on);
  else if (is_filled && !goes_on) write(row, sum);
  __syncthreads();
  // Adds the carried sums of the groups behind; true if the row ends among them.
  auto follow = [&]() {
    for (u32 other = group + 1; other < GROUPS; other++) {
#pragma unroll
      for (int c = 0; c < V; c++) sum[c] += carries[other * LANES + lane].at[c];
      if (!through[other]) return true;
    }
    return false;
  };
  if (leads) {
    if (follow()) {
      write(row, sum);
    } else {
#pragma unroll
      for (int c = 0; c < V; c++) partial_of(window, 1)->at[c] = sum[c];
    }
  }
  if (group == 0 && continues) {
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] = carries[lane].at[c];
    if (through[0]) follow();
#pragma unroll
    for (int c = 0; c < V; c++) partial_of(window, 0)->at[c] = sum[c];
  }
"#;

/// Kernel text: if a row begins in the block's window and goes on behind it, the block adds the sums of all windows of the row.
const JOIN: &str = r#"  const u32 begin = window * ALL_EACH, end = begin + ALL_EACH;
  if (end >= all) return;
  const u32 row = sorted[end];
  if (sorted[end - 1] != row || (begin > 0 && sorted[begin - 1] == row)) return;
  __shared__ Sum sums[GROUPS * LANES];
  C sum[V] = {};
#pragma unroll 4
  for (u32 other = window + 1 + group; other < WINDOWS; other += GROUPS) {
    if ((u64)other * ALL_EACH >= all || sorted[other * ALL_EACH] != row) break;
    const Sum* more = partial_of(other, 0);
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += more->at[c];
  }
#pragma unroll
  for (int c = 0; c < V; c++) sums[group * LANES + lane].at[c] = sum[c];
  __syncthreads();
  if (group > 0) return;
  const Sum first = *partial_of(window, 1);
#pragma unroll
  for (int c = 0; c < V; c++) sum[c] += first.at[c];
  for (u32 other = 1; other < GROUPS; other++) {
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += sums[other * LANES + lane].at[c];
  }
  write(row, sum);
"#;
