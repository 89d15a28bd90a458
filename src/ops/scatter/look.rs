//! The kernel of a `scatter` with `combine: set` whose blocks search all indices for the terms of their rows.
//!
//! A block collects the positions of its rows' terms in order, groups them by row, and keeps the last term of each row. There are two
//! ways to divide the work ([`Search`]): blocks own consecutive rows or, with a mostly zero output, the rows that some indices name.

use super::super::movement::{Columns, packs_of_rows};
use super::super::occupancy::{BUSY_BLOCKS, UNITS, WARP};
use super::super::radix::EQUALS;
use super::*;

/// Maximum number of steps, over all waves of blocks, for which a search is not slower than a sort. In a step, a block waits for
/// memory and examines [`ROUND`] indices.
const MAX_STEPS: u64 = 8;

/// Number of moved bytes that allows one more step, since SMs search while memory is busy.
const BYTES_OF_A_STEP: u64 = 4 << 20;

/// Maximum number of indices that a block searches. All of them can be terms of one row.
const PER_BLOCK: u64 = 1 << 14;

/// Number of indices up to which a sort never pays off.
const FEW: u64 = 256;

/// Other instructions per thread: about a quarter of the kernel's code, which has 30 to 50 KB for compute capability 9.0.
const PER_THREAD: f64 = 500.0;

/// Number of indices that a block examines per step.
const ROUND: u64 = 2048;

/// Minimum size in bytes of a mostly zero output for which a launch that only sets it to zero pays off.
const ZEROS: u64 = 1 << 20;

/// Number of resident blocks per SM: while one waits for memory, others search.
const RESIDENT: u64 = 4;

/// Maximum number of elements in the registers of a thread, and of rows per block.
const HELD: u64 = 32;
const MAX_ROWS: u64 = 256;

/// The rows that a block owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// A block owns consecutive rows.
    Rows,
    /// A block has consecutive indices and owns each row whose first index is among them. The output is set to zero first.
    Indices,
}

/// The division of rows and columns among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    search: Search,
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack, of threads that process neighbouring packs of a row, and of blocks that share a row.
    pack: u64,
    lanes: u64,
    chunks: u64,
    /// Number of rows per thread.
    several: u64,
    rows: u64,
    count: u64,
}

impl Look {
    /// Returns the division; `None` if it exceeds the limit. `sparse` means that most rows of the output have no term.
    pub fn of(spec: &Spec, columns: &Columns, sparse: bool) -> Option<Look> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let count = i.elements();
        let bytes = x.bytes() + y.bytes();
        let is_fast = |look: &Look| {
            count <= FEW || {
                let steps = count.div_ceil(ROUND) * look.blocks().div_ceil(RESIDENT * UNITS);
                count <= PER_BLOCK && steps <= MAX_STEPS + bytes / BYTES_OF_A_STEP
            }
        };
        // Few blocks would find a term in a mostly zero output, and a launch that sets it to zero pays off if it is large.
        let mut looks = Vec::new();
        if !sparse || y.bytes() < ZEROS {
            looks.push(Look::with(spec, columns, Search::Rows));
        }
        if sparse {
            looks.push(Look::with(spec, columns, Search::Indices));
        }
        looks.into_iter().find(is_fast)
    }

    fn with(spec: &Spec, columns: &Columns, search: Search) -> Look {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let (rows, count) = (y.dims[0].max(1), i.elements());
        let (pack, ragged) = columns.packs(x.dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = lanes(packs);
        let chunks = packs.div_ceil(lanes).max(1);
        let mut look = Look { search, ragged, pack, lanes, chunks, several: 1, rows, count };
        while 2 * look.several * pack <= HELD && 2 * look.own() <= MAX_ROWS {
            let twice = Look { several: 2 * look.several, ..look };
            if twice.blocks() < BUSY_BLOCKS {
                break;
            }
            look = twice;
        }
        look
    }

    /// Number of rows per block.
    fn own(&self) -> u64 {
        u64::from(BLOCK) / self.lanes * self.several
    }

    fn blocks(&self) -> u64 {
        let owned = if self.search == Search::Indices { self.count } else { self.rows };
        owned.div_ceil(self.own()).saturating_mul(self.chunks).max(1)
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let looks = self.blocks().saturating_mul(self.count);
        let is_sparse = self.search == Search::Indices;
        let kernel = Cost {
            instructions: PER_INDEX * looks as f64
                + PER_ELEMENT * spec.inputs[0].elements() as f64
                + PER_THREAD * self.blocks() as f64 * f64::from(BLOCK),
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(if is_sparse { &spec.inputs[..1] } else { &spec.outputs }),
            blocks: self.blocks(),
            share: super::super::occupancy::share(u64::from(BLOCK)),
            waits: (self.count.div_ceil(ROUND) + u64::from(is_sparse)) as f64,
            ..Cost::default()
        };
        zeros(is_sparse, spec).into_iter().chain([kernel]).collect()
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let parts = Parts::of(spec, columns, 0, 0);
        let index = c_type(spec.inputs[1].dtype);
        let is_sparse = self.search == Search::Indices;
        let rows = if is_sparse { INDICES } else { CONSECUTIVE };
        let before = format!(
            "typedef u32 P;\ntypedef {index} Index;\n{EQUALS}#define LANES {}\n#define CHUNKS {}\n#define SEVERAL {}\n#define SPARSE {}\n{}\
             #undef BOUNDS\n#define BOUNDS __launch_bounds__({BLOCK}, {RESIDENT})\n",
            self.lanes,
            self.chunks,
            self.several,
            u32::from(is_sparse),
            columns.text_of_packs(self.pack, self.ragged),
        );
        let (operand, bytes) = (spec.inputs.len() as u8, spec.outputs[0].bytes());
        let zeros = is_sparse.then_some(Launch::Memset { operand, value: 0, bytes });
        let body = format!("{FIND}{rows}{KEEP}{LOOK}");
        zeros.into_iter().chain([parts.launch("scatter", &before, &body, self.blocks(), BLOCK)]).collect()
    }
}

/// Returns the number of threads that share the packs of a row: a power of two that leaves few threads idle.
pub fn lanes(packs: u64) -> u64 {
    if packs <= WARP {
        return packs.next_power_of_two();
    }
    let all = [32, 64, 128, 256].map(|lanes| (packs.div_ceil(lanes) * lanes, lanes));
    let least = all.iter().map(|(idle, _)| *idle).min().unwrap_or(packs);
    all.into_iter().filter(|(idle, _)| idle * 8 <= least * 9).map(|(_, lanes)| lanes).max().unwrap_or(WARP)
}

/// Kernel text: groups the `m` positions found by row. Each warp takes a contiguous range of them, counts the positions of each
/// row, and places them behind those of earlier warps.
const FIND: &str = r#"  const u32 ROUND = 2048, EACH = ROUND / 256, BESIDE = 256 / LANES, OWN = BESIDE * SEVERAL;
  __shared__ u32 found[ROUND], cursor[8][OWN], starts[OWN + 1], counted[2][8];
  __shared__ unsigned short row_of[ROUND], order[ROUND];
  u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32, lane = t % LANES, group = t / LANES;
  Block block = {0};
  auto arrange = [&](u32 m) {
    for (u32 k = t; k < 8 * OWN; k += 256) (&cursor[0][0])[k] = 0;
    __syncthreads();
    u32 each = (m + 255) / 256 * 32, from = warp * each, to = from + each < m ? from + each : m;
    for (u32 l = from + lane32; l < to; l += 32) atomicAdd(&cursor[warp][row_of[l]], 1u);
    __syncthreads();
    u32 all = 0, total = 0;
    if (t < OWN) {
#pragma unroll
      for (u32 w = 0; w < 8; w++) all += cursor[w][t];
    }
    u32 at = block.before(all, total);
    if (t < OWN) {
      starts[t] = at;
#pragma unroll
      for (u32 w = 0; w < 8; w++) {
        u32 of_warp = cursor[w][t];
        cursor[w][t] = at;
        at += of_warp;
      }
    }
    if (t == 0) starts[OWN] = m;
    __syncthreads();
    for (u32 turn = 0; turn < each; turn += 32) {
      u32 l = from + turn + lane32, row = l < to ? row_of[l] : 0xffffu;
      u32 same, leader, lower = equals32(row, same, leader), begin = 0;
      if (lower == 0 && l < to) begin = atomicAdd(&cursor[warp][row], same);
      u32 at = SHUFFLE(begin, leader) + lower;
      if (l < to) order[at] = (unsigned short)l;
    }
    __syncthreads();
  };
"#;

/// Kernel text: the rows of a block. `own_of` is the number of an index's row within the block, or `OWN` if it belongs to another;
/// `row_at` is the row with such a number, and `writes` whether this block writes it.
const CONSECUTIVE: &str = r#"  const u32 chunk = blockIdx.x % CHUNKS;
  const u64 first = (u64)(blockIdx.x / CHUNKS) * OWN;
  const u32 own_rows = (u32)(rows - first < OWN ? rows - first : OWN);
  auto own_of = [&](u64, Index index) {
    u64 behind = (u64)((i64)index - (i64)first);
    return behind < own_rows ? (u32)behind : OWN;
  };
  auto row_at = [&](u32 own) { return first + own; };
  auto writes = [&](u32 own) { return own < own_rows; };
"#;

/// Kernel text: the same for a block that owns the rows of `OWN` indices. A table finds the first of the block's
/// indices with the same row: an entry is 0, or counts from the last index of the block, so that the first one is the largest. It has
/// many more entries than rows, so that few other indices meet an entry.
const INDICES: &str = r#"  const u32 chunk = blockIdx.x % CHUNKS;
  const u64 first = (u64)(blockIdx.x / CHUNKS) * OWN;
  const u32 ENTRIES = 16 * OWN;
  __shared__ u32 table[ENTRIES], is_earlier[OWN];
  __shared__ i64 own_row[OWN];
  for (u32 k = t; k < ENTRIES; k += 256) table[k] = 0;
  for (u32 k = t; k < OWN; k += 256) {
    i64 row = first + k < count ? (i64)INDEX((P)(first + k)) : -1;
    own_row[k] = row < 0 || (u64)row >= rows ? -1 : row;
    is_earlier[k] = 0;
  }
  __syncthreads();
  auto entry = [](i64 row) { return (u32)row * 0x9e3779b1u / (0x10000000u / OWN); };
  for (u32 k = t; k < OWN; k += 256) {
    const i64 row = own_row[k];
    if (row < 0) continue;
    for (u32 at = entry(row);; at = (at + 1) % ENTRIES) {
      const u32 held = atomicCAS(&table[at], 0u, OWN - k);
      if (held == 0) break;
      if (own_row[OWN - held] != row) continue;
      atomicMax(&table[at], OWN - k);
      break;
    }
  }
  __syncthreads();
  auto own_of = [&](u64 p, Index index) {
    for (u32 at = entry((i64)index);; at = (at + 1) % ENTRIES) {
      const u32 held = table[at];
      if (held == 0) return OWN;
      if (own_row[OWN - held] != (i64)index) continue;
      if (p < first) is_earlier[OWN - held] = 1;
      return OWN - held;
    }
  };
  auto row_at = [&](u32 own) { return (u64)(own_row[own] < 0 ? 0 : own_row[own]); };
  auto writes = [&](u32 own) { return own_row[own] >= 0 && is_earlier[own] == 0; };
"#;

/// Kernel text: keeps the last term of each row among the grouped ones.
const KEEP: &str = r#"  C kept[SEVERAL][V] = {};
  // One bit per row with a term.
  u32 made = 0;
  i64 column[SEVERAL];
#pragma unroll
  for (u32 s = 0; s < SEVERAL; s++) {
    column[s] = (i64)(chunk * LANES + lane) * V;
    column[s] -= LEAD(y + row_at(s * BESIDE + group) * sy);
  }
  auto keep = [&]() {
#pragma unroll
    for (u32 s = 0; s < SEVERAL; s++) {
      const u32 own = s * BESIDE + group, end = starts[own + 1];
      if (starts[own] == end) continue;
      made |= 1u << s;
      if (column[s] >= (i64)n) continue;
      const P p = (P)found[order[end - 1]];
      const Pack<E, V> v = FETCH(x + outer.offset(p, 0), column[s]);
      const C weight = WEIGHT(p);
#pragma unroll
      for (int c = 0; c < V; c++) kept[s][c] = weight * load<C>(v.at[c]);
    }
  };
"#;

/// Kernel text: searches the indices, and reads the terms found whenever its list is full.
const LOOK: &str = r#"  u32 held = 0, turn = 0;
  Index next[EACH];
  auto look = [&](u64 base) {
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      u64 p = base + warp * (32 * EACH) + e * 32 + lane32;
      next[e] = p < count ? INDEX((P)p) : (Index)-1;
    }
  };
  look(0);
  for (u64 base = 0;; base += ROUND) {
    bool last = base >= count;
    u32 own[EACH], mine = 0, before = 0, all = 0;
    if (!last) {
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        u64 p = base + warp * (32 * EACH) + e * 32 + lane32;
        own[e] = p < count ? own_of(p, next[e]) : OWN;
        mine += own[e] < OWN;
      }
      look(base + ROUND);
      u32 of_warp = sum32(mine);
      if (lane32 == 0) counted[turn][warp] = of_warp;
      __syncthreads();
#pragma unroll
      for (u32 w = 0; w < 8; w++) {
        if (w == warp) before = all;
        all += counted[turn][w];
      }
      turn = 1 - turn;
    }
    if (held > 0 && (last || held + all > ROUND)) {
      __syncthreads();
      arrange(held);
      keep();
      __syncthreads();
      held = 0;
    }
    if (last) break;
    if (all == 0) continue;
    // One byte per step of a warp; there are eight.
    u64 flags = 0;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) flags |= (u64)(own[e] < OWN) << 8 * e;
    u64 left = scan32(flags);
    u32 at = held + before;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      u32 to_write = at + (u32)(left >> 8 * e & 255);
      if (own[e] < OWN) {
        found[to_write] = (u32)(base + warp * (32 * EACH) + e * 32 + lane32);
        row_of[to_write] = (unsigned short)own[e];
      }
      at += (u32)(flags >> 8 * e & 255);
    }
    held += all;
  }
#pragma unroll
  for (u32 s = 0; s < SEVERAL; s++) {
    u32 own = s * BESIDE + group;
    if (!writes(own) || column[s] >= (i64)n || (SPARSE && !(made >> s & 1))) continue;
    Pack<E, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(v.at[c], kept[s][c]);
    PUT(y + row_at(own) * sy, column[s], v);
  }
"#;
