//! The kernels of a `scatter` without a sort: each block searches the indices for the terms of its rows.
//!
//! A block owns some rows and searches all indices, or one segment of them. It collects the positions of its rows' terms in
//! order, groups them by row, and adds the terms up. With several segments, a second kernel adds the segments' sums for each row.
//! So one or two launches suffice, and every run adds terms in the same order.

use super::super::kernel::index_type;
use super::super::movement::{Columns, packs_of_rows};
use super::super::occupancy::{BUSY_BLOCKS, RESIDENT_BLOCKS, WARP};
use super::*;

/// Maximum number of indices that all blocks examine together; more take longer than the launches of a sort. Also the number of
/// moved bytes that allows one more examined index, since SMs search while memory is busy.
const LOOKS: u64 = 1 << 26;
const BYTES_OF_A_LOOK: u64 = 2;

/// Maximum number of indices that a block searches. All of them can be terms of one row.
const OF_A_BLOCK: u64 = 1 << 14;

/// Number of indices up to which a sort never pays off.
const FEW: u64 = 256;

/// Number of steps of a block, each of which waits for memory, that justifies a second launch; and number of steps per segment.
const STEPS: u64 = 4;
const STEPS_OF_A_SEGMENT: u64 = 2;

/// Other instructions per thread: about a quarter of the kernel's code, which has 30 to 50 KB for compute capability 9.0.
const OF_A_THREAD: f64 = 500.0;

/// Number of indices that a block examines per step.
const ROUND: u64 = 2048;

/// Maximum number of terms that a thread reads at once.
const AHEAD: u64 = 4;

/// Minimum average number of terms per row and segment, unless the segments' sums are few bytes.
const LEAST_TERMS: u64 = 16;

/// Size in bytes of segments' sums that a device can write and read in the time of a launch.
const LIGHT: u64 = 8 << 20;

/// Minimum size in bytes of a mostly zero output for which a launch that only sets it to zero pays off.
const ZEROS: u64 = 1 << 20;

/// Number of resident blocks per SM: while one waits for memory, others search.
const RESIDENT: u64 = 4;

/// Maximum number of sums in the registers of a thread, and of rows per block.
const HELD: u64 = 32;
const MOST_ROWS: u64 = 256;

/// The division of rows, columns and indices among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack, of threads that process neighbouring packs of a row, and of blocks that share a row.
    pack: u64,
    lanes: u64,
    chunks: u64,
    /// Number of threads that share the terms of a pack, and of rows per thread.
    terms: u64,
    several: u64,
    segments: u64,
    /// Number of terms that a thread reads at once.
    ahead: u64,
    /// True if the output is set to zero first, and the kernel writes only rows with a term.
    sparse: bool,
    rows: u64,
    count: u64,
}

impl Look {
    /// Returns the division; `None` if there are too many indices to search. `sparse` means that most rows of the output have no
    /// term.
    pub fn of(spec: &Spec, columns: &Columns, adds: bool, sparse: bool) -> Option<Look> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let (rows, count) = (y.dims[0].max(1), i.elements());
        let (pack, ragged) = columns.packs(x.dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = lanes(packs);
        let chunks = packs.div_ceil(lanes).max(1);
        let beside = u64::from(BLOCK) / lanes;
        let average = count / rows;
        let sharing = |average: u64| match adds {
            true => (average / AHEAD).max(1).next_power_of_two().min(beside),
            false => 1,
        };
        let mut terms = sharing(average);
        let steps = average / (AHEAD * terms) + count / ROUND;
        let mut segments = 1;
        if adds && steps > STEPS {
            let of_rows = rows.saturating_mul(chunks * lanes * pack * scatter_type(spec).size());
            let light = (count / rows / LEAST_TERMS).max(LIGHT / of_rows);
            let room = (2 * RESIDENT_BLOCKS).div_ceil(rows.div_ceil(beside).saturating_mul(chunks));
            segments = (steps / STEPS_OF_A_SEGMENT).min(light).min(room).max(1);
            if segments > 1 {
                terms = sharing(average / segments);
            }
        }
        let beside = beside / terms;
        let blocks = |several: u64| rows.div_ceil(beside * several).saturating_mul(chunks * segments);
        let mut several = 1;
        while terms == 1
            && 2 * several * pack <= HELD
            && 2 * several * beside <= MOST_ROWS
            && blocks(2 * several) >= BUSY_BLOCKS
        {
            several *= 2;
        }
        let ahead = (average / (segments * terms)).next_power_of_two().clamp(2, AHEAD);
        let sparse = sparse && segments == 1 && y.bytes() >= ZEROS;
        let look = Look { ragged, pack, lanes, chunks, terms, several, segments, ahead, sparse, rows, count };
        // In a mostly zero output, few blocks would find a term.
        if look.sparse && look.blocks() > RESIDENT_BLOCKS {
            return None;
        }
        let fits =
            look.looks() <= LOOKS.max((x.bytes() + y.bytes()) / BYTES_OF_A_LOOK) && count / segments <= OF_A_BLOCK;
        (count <= FEW || fits).then_some(look)
    }

    /// Number of rows per block.
    fn own(&self) -> u64 {
        u64::from(BLOCK) / (self.lanes * self.terms) * self.several
    }

    fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.own()).saturating_mul(self.chunks * self.segments)
    }

    /// Number of indices that all blocks examine together.
    fn looks(&self) -> u64 {
        self.rows.div_ceil(self.own()).saturating_mul(self.chunks).saturating_mul(self.count)
    }

    /// Number of elements of a row, rounded up to whole chunks.
    fn width(&self) -> u64 {
        self.chunks * self.lanes * self.pack
    }

    /// Number of blocks of the kernel that adds the segments' sums.
    fn joining(&self) -> u64 {
        match self.segments {
            1 => 0,
            _ => self.rows.saturating_mul(self.chunks * self.lanes).div_ceil(u64::from(BLOCK)),
        }
    }

    /// Size in bytes of the segments' sums of all rows.
    fn partials(&self, spec: &Spec) -> u64 {
        let segments = if self.segments > 1 { self.segments } else { 0 };
        (segments * self.width() * scatter_type(spec).size()).saturating_mul(self.rows)
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let partials = Traffic::of(Space::Device, self.partials(spec));
        Cost {
            instructions: OF_AN_INDEX * self.looks() as f64
                + OF_AN_ELEMENT * spec.inputs[0].elements() as f64
                + OF_A_THREAD * self.blocks() as f64 * f64::from(BLOCK),
            read: Spec::bytes_of(&spec.inputs) + partials,
            written: Spec::bytes_of(&spec.outputs) + partials,
            blocks: self.blocks() + self.joining(),
            ..Cost::default()
        }
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns, adds: bool) -> Vec<Launch> {
        let mut parts = Parts::of(spec, columns, 0, self.partials(spec));
        parts.bind("segment", self.count.div_ceil(self.segments));
        let before = format!(
            "typedef {} Row;\ntypedef u32 P;\ntypedef {} Index;\n#define ADDS {}\n#define LANES {}\n#define CHUNKS {}\n\
             #define TERMS {}\n#define SEVERAL {}\n#define SEGMENTS {}\n#define AHEAD {}\n#define SPARSE {}\n\
             #define PLACE(l) ((P)from + found[order[l]])\n#define TERM(row, j) FETCH(row, j)\n{}",
            index_type(self.rows),
            c_type(spec.inputs[1].dtype),
            u32::from(adds),
            self.lanes,
            self.chunks,
            self.terms,
            self.several,
            self.segments,
            self.ahead,
            u32::from(self.sparse),
            columns.text_of_packs(self.pack, self.ragged),
        ) + &format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({BLOCK}, {RESIDENT})\n");
        let mut launches = Vec::new();
        if self.sparse {
            let (operand, bytes) = (spec.inputs.len() as u8, spec.outputs[0].bytes());
            launches.push(Launch::Memset { operand, value: 0, bytes });
        }
        launches.push(parts.launch(
            "scatter",
            &before,
            &format!("{OWN_PLACE}{FIND}{ROWS_OF_BLOCK}{ADDING}{ADD}{LOOK}"),
            self.blocks(),
        ));
        if self.segments > 1 {
            launches.push(parts.launch("scatter_join", &before, JOIN, self.joining()));
        }
        launches
    }
}

/// Returns the number of threads that share the packs of a row: a power of two that leaves few threads idle.
fn lanes(packs: u64) -> u64 {
    if packs <= WARP {
        return packs.next_power_of_two();
    }
    let all = [32, 64, 128, 256].map(|lanes| (packs.div_ceil(lanes) * lanes, lanes));
    let least = all.iter().map(|(idle, _)| *idle).min().unwrap_or(packs);
    all.into_iter().filter(|(idle, _)| idle * 8 <= least * 9).map(|(_, lanes)| lanes).max().unwrap_or(WARP)
}

/// Kernel text: groups the `m` positions found by row. Each warp takes a contiguous range of them, counts the positions of each
/// row, and places them behind those of earlier warps.
const FIND: &str = r#"  const u32 ROUND = 2048, EACH = ROUND / 256, BESIDE = 256 / (LANES * TERMS), OWN = BESIDE * SEVERAL;
  __shared__ u32 found[ROUND], cursor[8][OWN], starts[OWN + 1], counted[2][8];
  __shared__ unsigned short row_of[ROUND], order[ROUND];
  u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32;
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
      u32 begin = l < to ? cursor[warp][row] : 0, before = 0, same = 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
      u32 equal = __match_any_sync(0xffffffffu, row);
      before = __popc(equal & ((1u << lane32) - 1));
      same = __popc(equal);
#else
      for (u32 mask = 1; mask < 32; mask++) {
        bool equal = SHUFFLE_XOR(row, mask) == row;
        same += equal;
        before += equal && (lane32 ^ mask) < lane32;
      }
#endif
      __syncthreads();
      if (l < to) {
        order[begin + before] = (unsigned short)l;
        if (before + 1 == same) cursor[warp][row] = begin + same;
      }
      __syncthreads();
    }
  };
"#;

/// Kernel text: the rows of a block, and the segment of indices that it searches.
const ROWS_OF_BLOCK: &str = r#"  u32 chunk = blockIdx.x % CHUNKS;
  u64 rest = blockIdx.x / CHUNKS, number = rest % SEGMENTS, first = rest / SEGMENTS * OWN;
  u32 own_rows = (u32)(rows - first < OWN ? rows - first : OWN);
  u64 from = number * segment, to = count - from < segment ? count : from + segment;
  if (from > count) from = to = count;
"#;

/// Kernel text: adds the grouped terms to a thread's sums.
const ADD: &str = r#"  C sum[SEVERAL][V] = {};
  // One bit per row with a term.
  u32 made = 0;
  i64 column[SEVERAL];
#pragma unroll
  for (u32 s = 0; s < SEVERAL; s++) {
    column[s] = (i64)(chunk * LANES + lane) * V;
    column[s] -= LEAD(y + (first + s * BESIDE + group) * sy);
  }
  auto add = [&]() {
#pragma unroll
    for (u32 s = 0; s < SEVERAL; s++) {
      u32 own = s * BESIDE + group, l = starts[own], end = starts[own + 1];
      if (l < end) made |= 1u << s;
      if (!ADDS && l < end) l = end - 1;
      if (column[s] >= (i64)n) continue;
      add_terms(l, end, column[s], sum[s]);
    }
  };
"#;

/// Kernel text: searches the indices, and adds the terms found whenever its list is full.
const LOOK: &str = r#"  u32 held = 0, turn = 0;
  Index next[EACH];
  auto look = [&](u64 base) {
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      u64 p = base + warp * (32 * EACH) + e * 32 + lane32;
      next[e] = p < to ? i[outer.offset((P)p, 1)] : (Index)-1;
    }
  };
  look(from);
  for (u64 base = from;; base += ROUND) {
    bool last = base >= to;
    u32 own[EACH], mine = 0, before = 0, all = 0;
    if (!last) {
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        u64 behind = (u64)((i64)next[e] - (i64)first);
        own[e] = behind < own_rows ? (u32)behind : OWN;
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
      add();
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
        found[to_write] = (u32)(base - from) + warp * (32 * EACH) + e * 32 + lane32;
        row_of[to_write] = (unsigned short)own[e];
      }
      at += (u32)(flags >> 8 * e & 255);
    }
    held += all;
  }
  total(sum[0]);
  if (own_term > 0) return;
#pragma unroll
  for (u32 s = 0; s < SEVERAL; s++) {
    u32 own = s * BESIDE + group;
    if (own >= own_rows || column[s] >= (i64)n || (SPARSE && !(made >> s & 1))) continue;
#if SEGMENTS > 1
    C* partial = partials + ((number * rows + first + own) * (CHUNKS * LANES) + chunk * LANES + lane) * V;
#pragma unroll
    for (int c = 0; c < V; c++) partial[c] = sum[s][c];
#else
    Pack<E, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(v.at[c], sum[s][c]);
    PUT(y + (first + own) * sy, column[s], v);
#endif
  }
"#;

/// Kernel text: a thread adds the segments' sums of one pack of a row.
const JOIN: &str = r#"  u64 row = GLOBAL_INDEX / (CHUNKS * LANES), pack = GLOBAL_INDEX % (CHUNKS * LANES);
  if (row >= rows) return;
  i64 column = (i64)pack * V;
  column -= LEAD(y + row * sy);
  if (column >= (i64)n) return;
  C sum[V] = {};
#pragma unroll 8
  for (u64 number = 0; number < SEGMENTS; number++) {
    const C* partial = partials + ((number * rows + row) * (CHUNKS * LANES) + pack) * V;
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += partial[c];
  }
  Pack<E, V> v;
#pragma unroll
  for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
  PUT(y + row * sy, column, v);
"#;
