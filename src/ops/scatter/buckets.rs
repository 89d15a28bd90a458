//! The kernels of a `scatter` with `combine: add` whose blocks own buckets of consecutive rows.
//!
//! A block collects the positions of its rows' terms in their order, groups them by row, and divides all terms evenly among its threads,
//! however many belong to one row. So every run adds terms in the same order, and a row that most indices name takes no longer than
//! others. There are two ways to collect positions ([`Source`]): few indices are searched by every block; for more, a first kernel
//! sorts the positions of each tile of indices by bucket, and blocks read the runs of their bucket in all tiles.

use super::super::movement::{Columns, packs_of_rows};
use super::super::occupancy::{BUSY_BLOCKS, LARGEST_BLOCK, SECTOR, UNITS, WARP, share};
use super::super::radix::EQUALS;
use super::direct::VOTES;
use super::look::lanes;
use super::*;

/// Number of positions that a block groups by row at once.
const ROUND: u64 = 2048;

/// Maximum number of indices that blocks search, in all and each.
const MOST_LOOKS: u64 = 1 << 22;
const MOST_SEARCHED: u64 = 1 << 15;

/// Number of bytes that allows one more index, since SMs search while memory is busy.
const BYTES_OF_A_LOOK: u64 = 4;

/// Maximum size in bytes of a block's sums and cursors in shared memory.
const ROOM: u64 = 20 << 10;

/// Size in bytes of the positions of a round, where threads leave sums as well.
const FOUND: u64 = 4 * ROUND;

/// Maximum number of rows per bucket.
const MOST_ROWS: u64 = 1 << 10;

/// Maximum number of buckets that a tile is sorted by, and number up to which tiles can have their maximum size: the kernel has counts
/// of each warp and the sorted positions in shared memory.
const MOST_BUCKETS: u64 = 1 << 11;
const FEW_BUCKETS: u64 = 1 << 10;

/// Minimum and maximum number of indices per tile, and number of tiles that suffices.
const TILE: [u64; 2] = [1024, 4096];
const ENOUGH_TILES: u64 = 256;

/// Average number of terms of a bucket.
const OF_A_BUCKET: u64 = 1024;

/// Maximum average number of terms of a block before blocks share a bucket.
const OF_A_BLOCK: u64 = 4096;

/// Number of indices that a thread reads at once, and of terms.
const EACH: u64 = 8;
const AHEAD: u64 = 4;

/// Instructions per index that a block examines, per position that is sorted by bucket and by row, and per thread.
const OF_A_LOOK: f64 = 6.0;
const OF_A_PLACE: f64 = 60.0;
const OF_A_THREAD: f64 = 300.0;

/// The way in which a block finds the positions of its rows' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// It searches all indices.
    All,
    /// It reads the runs of its bucket in tiles of this many indices.
    Tiles(u64),
}

/// The division of rows, columns and indices among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    source: Source,
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack, of threads that process neighbouring packs of a row, and of blocks that share a row.
    pack: u64,
    lanes: u64,
    chunks: u64,
    /// Number of rows per bucket, of threads per block, and of blocks that share the tiles of a bucket.
    own: u64,
    threads: u64,
    segments: u64,
    rows: u64,
    count: u64,
}

impl Buckets {
    /// Returns the division; `None` if neither source is fast.
    pub fn of(spec: &Spec, columns: &Columns) -> Option<Buckets> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let (rows, count) = (y.dims[0].max(1), i.elements());
        let (pack, ragged) = columns.packs(x.dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = lanes(packs);
        let chunks = packs.div_ceil(lanes).max(1);
        let sum = pack * scatter_type(spec).size();
        let most = (ROOM / (lanes * sum + 2 * u64::from(BLOCK) / WARP)).clamp(1, MOST_ROWS);
        let one = Buckets { source: Source::All, ragged, pack, lanes, chunks, own: 1, threads: BLOCK.into(), segments: 1, rows, count };

        // Threads leave a sum for each warp, or for each group of threads.
        let threads = if LARGEST_BLOCK / WARP * lanes * sum <= FOUND && lanes <= WARP { LARGEST_BLOCK } else { BLOCK.into() };
        let cursors = 2 * threads / WARP;
        let most_here = (ROOM / (lanes * sum + cursors)).clamp(1, MOST_ROWS);
        let own = rows.div_ceil((BUSY_BLOCKS / 2 / chunks).max(1)).clamp(1, most_here);
        let all = Buckets { own, threads, ..one };
        let looks = all.blocks().saturating_mul(count);
        if count <= MOST_SEARCHED && looks <= MOST_LOOKS + (x.bytes() + y.bytes()) / BYTES_OF_A_LOOK {
            return Some(all);
        }

        let [least_tile, most_tile] = TILE;
        let wanted = (count / OF_A_BUCKET).clamp(BUSY_BLOCKS / chunks.min(BUSY_BLOCKS), FEW_BUCKETS);
        let own = rows.div_ceil(wanted).next_power_of_two().min(1 << most.ilog2());
        let most_tile = if rows.div_ceil(own) <= FEW_BUCKETS { most_tile } else { most_tile / 2 };
        let tile = count.div_ceil(ENOUGH_TILES).next_power_of_two().clamp(least_tile, most_tile);
        let mut tiled = Buckets { source: Source::Tiles(tile), own, ..one };
        let average = count / tiled.buckets();
        tiled.segments = (average / OF_A_BLOCK).min(4 * UNITS / tiled.blocks().max(1)).min(tiled.tiles()).max(1);
        let fits = count < 1 << 31 && tiled.buckets() <= MOST_BUCKETS;
        fits.then_some(tiled)
    }

    fn buckets(&self) -> u64 {
        self.rows.div_ceil(self.own)
    }

    fn tile(&self) -> u64 {
        if let Source::Tiles(tile) = self.source { tile } else { 0 }
    }

    fn tiles(&self) -> u64 {
        self.count.div_ceil(self.tile().max(1))
    }

    /// Number of blocks of the kernel that adds.
    fn blocks(&self) -> u64 {
        self.buckets().saturating_mul(self.chunks * self.segments)
    }

    /// Number of words that hold the offsets of buckets in a tile, two each, and the number of the tile's positions.
    fn words(&self) -> u64 {
        self.buckets().div_ceil(2) + 1
    }

    /// Offset in bytes of the tiles' offsets in the workspace, behind the sorted positions.
    fn offsets_at(&self) -> u64 {
        4 * self.tiles() * self.tile()
    }

    fn workspace(&self) -> u64 {
        if self.source == Source::All { 0 } else { self.offsets_at() + 4 * self.tiles() * self.words() }
    }

    /// Number of elements of a row, rounded up to whole chunks.
    fn width(&self) -> u64 {
        self.chunks * self.lanes * self.pack
    }

    /// Size in bytes of the segments' sums of all rows.
    fn partials(&self, spec: &Spec) -> u64 {
        if self.segments == 1 { 0 } else { self.segments * self.rows * self.width() * scatter_type(spec).size() }
    }

    /// Number of blocks of the kernel that adds the segments' sums.
    fn joining(&self) -> u64 {
        if self.segments == 1 { 0 } else { (self.rows * self.chunks * self.lanes).div_ceil(u64::from(BLOCK)) }
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let count = self.count as f64;
        let (found, before) = match self.source {
            Source::All => (OF_A_LOOK * count * self.blocks() as f64, 0),
            Source::Tiles(_) => (OF_A_PLACE * count, self.tiles()),
        };
        let partials = Traffic::of(Space::Device, self.partials(spec));
        Cost {
            instructions: found
                + OF_A_PLACE * count * self.chunks as f64
                + OF_AN_ELEMENT * spec.inputs[0].elements() as f64
                + OF_A_THREAD * (self.blocks() * self.threads) as f64,
            read: Spec::bytes_of(&spec.inputs) + partials,
            written: Spec::bytes_of(&spec.outputs) + partials,
            sectors: self.sectors(spec),
            blocks: before + self.blocks() + self.joining(),
            share: share(self.threads),
            ..Cost::default()
        }
    }

    /// Number of sectors of memory that the kernels access. A row of terms and the run of a bucket begin in any sector.
    fn sectors(&self, spec: &Spec) -> f64 {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let streamed = (i.bytes() + y.bytes() + self.workspace()) / SECTOR;
        let runs = self.tiles() * self.buckets() * self.chunks;
        let of_runs = if self.source == Source::All { 0.0 } else { runs as f64 * (1.0 + sectors_of(4 * self.count / runs.max(1))) };
        streamed as f64 + of_runs + self.count as f64 * sectors_of(x.bytes() / self.count.max(1))
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let mut parts = Parts::of(spec, columns, self.workspace(), self.partials(spec));
        parts.bind("offsets_at", self.offsets_at());
        let buckets = self.buckets();
        let run = self.count / (self.tiles() * buckets).max(1);
        let before = format!(
            "typedef u32 P;\ntypedef {} Index;\n{EQUALS}{VOTES}#define ROUND {ROUND}\n#define LANES {}\n#define CHUNKS {}\n#define OWN {}u\n\
             #define OWN_BITS {}\n#define BUCKETS {buckets}u\n#define TILE {}\n#define TILES {}u\n#define MATES {}\n#define SEGMENTS {}u\n\
             #define EACH {EACH}\n#define AHEAD {AHEAD}\n#define TERM(row, j) FETCH(row, j)\n{}",
            c_type(spec.inputs[1].dtype),
            self.lanes,
            self.chunks,
            self.own,
            self.own.ilog2(),
            self.tile(),
            self.tiles(),
            run.clamp(1, WARP).next_power_of_two(),
            self.segments,
            columns.text_of_packs(self.pack, self.ragged),
        );
        let launch = |name, body: &str, grid: u64, threads: u64| {
            let bounds = format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({threads})\n#define THREADS {threads}u\n");
            parts.launch(name, &format!("{before}{bounds}"), body, grid, threads as u32)
        };
        let mut launches = Vec::new();
        let find = if self.source == Source::All { ALL } else { RUNS };
        if let Source::Tiles(_) = self.source {
            launches.push(launch("scatter_split", SPLIT, self.tiles(), BLOCK.into()));
        }
        launches.push(launch("scatter", &format!("{OWN_ROWS}{GROUP}{ADD}{find}{WRITE}"), self.blocks(), self.threads));
        if self.segments > 1 {
            launches.push(launch("scatter_join", JOIN, self.joining(), BLOCK.into()));
        }
        launches
    }
}

/// Average number of sectors that hold a part of a row of this many bytes, over all rows of a contiguous tensor.
fn sectors_of(bytes: u64) -> f64 {
    let divisor = 1 << bytes.trailing_zeros().min(SECTOR.ilog2());
    (bytes + SECTOR - divisor) as f64 / SECTOR as f64
}

/// Kernel text: a block sorts the positions of its tile by bucket, and writes them and the offset of each bucket. A word has the counts
/// of two buckets.
const SPLIT: &str = r#"  const u32 HELD = TILE / 256, WORDS = (BUCKETS + 1) / 2, WORDS_EACH = (WORDS + 255) / 256;
  __shared__ u32 cursor[8][WORDS], starts[WORDS], sorted[TILE];
  const u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32;
  u32* entries = (u32*)workspace + (u64)blockIdx.x * TILE;
  u32* offsets = (u32*)(workspace + offsets_at) + (u64)blockIdx.x * (WORDS + 1);
  Block block = {0};
  i64 index[HELD];
  u32 rank[HELD];
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    const u64 p = (u64)blockIdx.x * TILE + warp * (32 * HELD) + h * 32 + lane32;
    index[h] = p < count ? (i64)i[outer.offset((P)p, 1)] : -1;
  }
  for (u32 k = t; k < 8 * WORDS; k += 256) (&cursor[0][0])[k] = 0;
  __syncthreads();
  auto bucket_of = [&](i64 index) { return index >= 0 && (u64)index < rows ? (u32)index >> OWN_BITS : BUCKETS; };
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    const u32 bucket = bucket_of(index[h]), shift = bucket % 2 * 16;
    u32 same, leader, lower = equals32(bucket, same, leader), first = 0;
    if (lower == 0 && bucket < BUCKETS) first = atomicAdd(&cursor[warp][bucket / 2], same << shift) >> shift & 0xffffu;
    rank[h] = SHUFFLE(first, leader) + lower;
  }
  __syncthreads();
  u32 of_thread = 0, all = 0, sums[WORDS_EACH];
#pragma unroll
  for (u32 c = 0; c < WORDS_EACH; c++) {
    const u32 word = t * WORDS_EACH + c;
    sums[c] = 0;
    if (word < WORDS) {
#pragma unroll
      for (u32 w = 0; w < 8; w++) {
        const u32 of_warp = cursor[w][word];
        cursor[w][word] = sums[c];
        sums[c] += of_warp;
      }
    }
    of_thread += (sums[c] & 0xffffu) + (sums[c] >> 16);
  }
  u32 at = block.before(of_thread, all);
#pragma unroll
  for (u32 c = 0; c < WORDS_EACH; c++) {
    const u32 word = t * WORDS_EACH + c, next = at + (sums[c] & 0xffffu);
    if (word < WORDS) offsets[word] = starts[word] = at | next << 16;
    at = next + (sums[c] >> 16);
  }
  if (t == 0) offsets[WORDS] = all;
  __syncthreads();
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    const u32 bucket = bucket_of(index[h]), shift = bucket % 2 * 16;
    if (bucket == BUCKETS) continue;
    const u32 to = (starts[bucket / 2] + cursor[warp][bucket / 2] >> shift & 0xffffu) + rank[h];
    sorted[to] = (u32)index[h] % (1u << OWN_BITS) << 16 | (warp * (32 * HELD) + h * 32 + lane32);
  }
  __syncthreads();
  for (u32 k = t; k < all; k += 256) entries[k] = sorted[k];
"#;

/// Kernel text: the rows of a block, and the positions that it has found.
const OWN_ROWS: &str = r#"  typedef Pack<C, V> Sum;
  const u32 WARPS = THREADS / 32, GROUPS = THREADS / LANES, CARRIES = LANES < 32 ? WARPS : GROUPS;
  const u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32, lane = t % LANES, group = t / LANES;
  const u32 chunk = blockIdx.x % CHUNKS, segment = blockIdx.x / CHUNKS % SEGMENTS, bucket = blockIdx.x / CHUNKS / SEGMENTS;
  const u64 first = (u64)bucket * OWN;
  const u32 own_rows = (u32)(rows - first < OWN ? rows - first : OWN);
  __shared__ union Found { u32 at[ROUND]; Sum carries[CARRIES * LANES]; } found;
  __shared__ unsigned short row_of[ROUND], order[ROUND];
  __shared__ u32 carry_rows[CARRIES];
  __shared__ Sum sums[OWN * LANES];
  Block block = {0};
  for (u32 k = t; k < OWN * LANES; k += THREADS) {
#pragma unroll
    for (int c = 0; c < V; c++) sums[k].at[c] = 0;
  }
  auto column_of = [&](u32 own) { return (i64)(chunk * LANES + lane) * V - LEAD(y + (first + own) * sy); };
"#;

/// Kernel text: groups the `m` positions found by row. A word has the counts of two rows.
const GROUP: &str = r#"#if OWN > 1
  const u32 WORDS = (OWN + 1) / 2, WORDS_EACH = (WORDS + THREADS - 1) / THREADS, PLACES = ROUND / THREADS;
  __shared__ u32 cursor[WARPS][WORDS];
#endif
  auto arrange = [&](u32 m) {
#if OWN > 1
    for (u32 k = t; k < WARPS * WORDS; k += THREADS) (&cursor[0][0])[k] = 0;
    __syncthreads();
    const u32 each = (m + THREADS - 1) / THREADS;
    u32 row[PLACES], rank[PLACES];
#pragma unroll
    for (u32 e = 0; e < PLACES; e++) {
      if (e >= each) continue;
      const u32 l = warp * (32 * each) + e * 32 + lane32;
      row[e] = l < m ? row_of[l] : OWN;
      const u32 shift = row[e] % 2 * 16;
      u32 same, leader, lower = equals32(row[e], same, leader), begin = 0;
      if (lower == 0 && row[e] < OWN) begin = atomicAdd(&cursor[warp][row[e] / 2], same << shift) >> shift & 0xffffu;
      rank[e] = SHUFFLE(begin, leader) + lower;
    }
    __syncthreads();
    u32 of_thread = 0, all = 0, totals[WORDS_EACH];
#pragma unroll
    for (u32 c = 0; c < WORDS_EACH; c++) {
      const u32 word = t * WORDS_EACH + c;
      totals[c] = 0;
      if (word < WORDS) {
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) totals[c] += cursor[w][word];
      }
      of_thread += (totals[c] & 0xffffu) + (totals[c] >> 16);
    }
    u32 at = block.before(of_thread, all);
#pragma unroll
    for (u32 c = 0; c < WORDS_EACH; c++) {
      const u32 word = t * WORDS_EACH + c, next = at + (totals[c] & 0xffffu);
      u32 here = at | next << 16;
      if (word < WORDS) {
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) {
          const u32 of_warp = cursor[w][word];
          cursor[w][word] = here;
          here += of_warp;
        }
      }
      at = next + (totals[c] >> 16);
    }
    __syncthreads();
#pragma unroll
    for (u32 e = 0; e < PLACES; e++) {
      if (e >= each || row[e] == OWN) continue;
      const u32 to = (cursor[warp][row[e] / 2] >> row[e] % 2 * 16 & 0xffffu) + rank[e];
      order[to] = (unsigned short)(warp * (32 * each) + e * 32 + lane32);
    }
    __syncthreads();
#endif
  };
"#;

/// Kernel text: adds the terms of `m` grouped positions to the block's sums. A group of threads has consecutive terms. It adds the sum of
/// each row that begins among them but at its first term to the block's sums itself; the sum of the row of its first term is carried: over
/// the groups of a warp by shuffles, then over the warps.
const ADD: &str = r#"  auto add = [&](u32 m) {
    const u32 NONE = 0xffffffffu, each = (m + GROUPS - 1) / GROUPS, from = group * each, to = from + each < m ? from + each : m;
    C sum[V] = {}, carry[V] = {};
    u32 row = NONE, carry_row = NONE;
    auto flush = [&]() {
      if (carry_row == NONE) {
        carry_row = row;
#pragma unroll
        for (int c = 0; c < V; c++) carry[c] = sum[c];
        return;
      }
#pragma unroll
      for (int c = 0; c < V; c++) sums[row * LANES + lane].at[c] += sum[c];
    };
    for (u32 l = from; l < to; l += AHEAD) {
      Pack<E, V> v[AHEAD];
      C weight[AHEAD];
      u32 rows_here[AHEAD];
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (l + a >= to) continue;
        const u32 k = OWN > 1 ? order[l + a] : l + a, p = found.at[k];
        rows_here[a] = OWN > 1 ? row_of[k] : 0;
        const i64 column = column_of(rows_here[a]);
        v[a] = {};
        if (column < (i64)n) v[a] = TERM(x + outer.offset(p, 0), column);
        weight[a] = WEIGHT(p);
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (l + a >= to) continue;
        if (rows_here[a] != row) {
          if (row != NONE) flush();
          row = rows_here[a];
#pragma unroll
          for (int c = 0; c < V; c++) sum[c] = 0;
        }
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] += weight[a] * load<C>(v[a].at[c]);
      }
    }
    if (row != NONE) flush();
    bool leads = true;
#if LANES < 32
#pragma unroll
    for (u32 step = LANES; step < 32; step *= 2) {
      const bool is_same = SHUFFLE(carry_row, (lane32 + step) % 32) == carry_row && lane32 + step < 32;
#pragma unroll
      for (int c = 0; c < V; c++) {
        const C other = SHUFFLE(carry[c], (lane32 + step) % 32);
        if (is_same) carry[c] += other;
      }
    }
    leads = SHUFFLE(carry_row, (lane32 + 32 - LANES) % 32) != carry_row && lane32 >= LANES;
#endif
    __syncthreads();
#if LANES < 32
    if (leads && carry_row != NONE) {
#pragma unroll
      for (int c = 0; c < V; c++) sums[carry_row * LANES + lane].at[c] += carry[c];
    }
#endif
    const u32 number = LANES < 32 ? warp : group;
    if (LANES >= 32 || lane32 < LANES) {
#pragma unroll
      for (int c = 0; c < V; c++) found.carries[number * LANES + lane].at[c] = carry[c];
      carry_rows[number] = carry_row;
    }
    __syncthreads();
    // Rows increase, so that carried sums of a row are neighbours.
    const u32 carried = group < CARRIES ? carry_rows[group] : NONE;
    if (carried != NONE && (group == 0 || carry_rows[group - 1] != carried)) {
      Sum all = found.carries[group * LANES + lane];
      for (u32 other = group + 1; other < CARRIES && carry_rows[other] == carried; other++) {
#pragma unroll
        for (int c = 0; c < V; c++) all.at[c] += found.carries[other * LANES + lane].at[c];
      }
#pragma unroll
      for (int c = 0; c < V; c++) sums[carried * LANES + lane].at[c] += all.at[c];
    }
    __syncthreads();
  };
"#;

/// Kernel text: a block searches all indices for those of its rows, and adds the terms found whenever its list is full.
const ALL: &str = r#"  __shared__ u32 counted[2][32];
  u32 held = 0, turn = 0;
  __syncthreads();
  for (u64 base = 0; base < count; base += THREADS * EACH) {
    const u64 own = base + warp * (32 * EACH) + lane32;
    Index index[EACH];
    u32 votes[EACH], of_warp = 0;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) index[e] = own + 32 * e < count ? i[outer.offset((P)(own + 32 * e), 1)] : (Index)-1;
    auto row_at = [&](u32 e) { return (u64)((i64)index[e] - (i64)first); };
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      votes[e] = votes32(row_at(e) < own_rows);
      of_warp += __popc(votes[e]);
    }
    if (lane32 == 0) counted[turn][warp] = of_warp;
    __syncthreads();
    const u32 of_lane = lane32 < WARPS ? counted[turn][lane32] : 0u, all = sum32(of_lane), before = sum32(lane32 < warp ? of_lane : 0u);
    turn = 1 - turn;
    const bool is_last = base + THREADS * EACH >= count;
    u32 placed = 0;
    do {
      u32 at = held + before - placed;
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        const u32 slot = at + __popc(votes[e] & ((1u << lane32) - 1));
        if ((votes[e] >> lane32 & 1) && slot >= held && slot < ROUND) {
          found.at[slot] = (u32)(own + 32 * e);
          row_of[slot] = (unsigned short)row_at(e);
        }
        at += __popc(votes[e]);
      }
      const u32 taken = all - placed < ROUND - held ? all - placed : ROUND - held;
      placed += taken;
      held += taken;
      if (held == 0 || (held < ROUND && !is_last)) break;
      __syncthreads();
      arrange(held);
      add(held);
      held = 0;
    } while (placed < all);
  }
"#;

/// Kernel text: a block reads the runs of its bucket, one for each tile. `MATES` threads read a run.
const RUNS: &str = r#"  __shared__ u32 left_of[THREADS], run_of[THREADS];
  const u32 WORDS_OF_TILE = (BUCKETS + 1) / 2 + 1, TILES_EACH = (TILES + SEGMENTS - 1) / SEGMENTS, begin = segment * TILES_EACH;
  const u32 end = begin + TILES_EACH < TILES ? begin + TILES_EACH : TILES;
  const u32* entries = (const u32*)workspace;
  const unsigned short* offsets = (const unsigned short*)(workspace + offsets_at);
  for (u32 base = begin; base < end; base += THREADS) {
    u32 at = 0, length = 0, all = 0;
    if (base + t < end) {
      const unsigned short* of_tile = offsets + (u64)(base + t) * WORDS_OF_TILE * 2 + bucket;
      at = of_tile[0];
      length = of_tile[1] - at;
    }
    left_of[t] = block.before(length, all);
    run_of[t] = at << 16 | length;
    __syncthreads();
    const u32 runs = end - base < THREADS ? end - base : THREADS;
    for (u32 window = 0; window < all; window += ROUND) {
#pragma unroll 4
      for (u32 r = t / MATES; r < runs; r += THREADS / MATES) {
        const u32 left = left_of[r], run = run_of[r], tile = (base + r) * TILE;
        const u32 from = window > left ? window - left : 0, most = window + ROUND > left ? window + ROUND - left : 0;
        const u32 to = most < (run & 0xffffu) ? most : run & 0xffffu;
        for (u32 k = from + t % MATES; k < to; k += MATES) {
          const u32 entry = entries[(u64)tile + (run >> 16) + k], slot = left + k - window;
          found.at[slot] = tile + (entry & 0xffffu);
          row_of[slot] = (unsigned short)(entry >> 16);
        }
      }
      __syncthreads();
      const u32 here = all - window < ROUND ? all - window : ROUND;
      arrange(here);
      add(here);
    }
    __syncthreads();
  }
"#;

/// Kernel text: writes the block's sums.
const WRITE: &str = r#"  for (u32 own = group; own < own_rows; own += GROUPS) {
    const i64 column = column_of(own);
    if (column >= (i64)n) continue;
    const Sum sum = sums[own * LANES + lane];
#if SEGMENTS > 1
    ((Sum*)partials)[(((u64)segment * rows + first + own) * CHUNKS + chunk) * LANES + lane] = sum;
#else
    Pack<E, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(v.at[c], sum.at[c]);
    PUT(y + (first + own) * sy, column, v);
#endif
  }
"#;

/// Kernel text: a thread adds the segments' sums of one pack of a row.
const JOIN: &str = r#"  const u64 row = GLOBAL_INDEX / (CHUNKS * LANES), pack = GLOBAL_INDEX % (CHUNKS * LANES);
  if (row >= rows) return;
  const i64 column = (i64)pack * V - LEAD(y + row * sy);
  if (column >= (i64)n) return;
  C sum[V] = {};
#pragma unroll 8
  for (u32 number = 0; number < SEGMENTS; number++) {
    const Pack<C, V> partial = ((const Pack<C, V>*)partials)[(number * rows + row) * (CHUNKS * LANES) + pack];
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += partial.at[c];
  }
  Pack<E, V> v;
#pragma unroll
  for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
  PUT(y + row * sy, column, v);
"#;
