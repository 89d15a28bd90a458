//! The kernel of a small `scatter` with `combine: add`: warps compare indices with one row each.
//!
//! A warp reads 32 indices at a time, and its votes tell which of them name its row. If several warps of a block share
//! a row, they take the words of 32 indices in turn. A thread adds terms in an order that depends on positions alone.

use super::super::layout::packs_of_rows;
use super::*;
use crate::ops::kernels::occupancy::{LARGEST_BLOCK, UNITS, WARP};
use crate::ops::movement::gather::Columns;

/// Maximum number of instructions of all warps, unless the operation moves many bytes: about as many as the SMs execute in the time of a
/// launch.
const MAX_INSTRUCTIONS: u64 = 3 << 19;

/// Number of bytes that allows one more instruction of a warp, since SMs search while memory is busy.
const BYTES_OF_AN_INSTRUCTION: u64 = 4;

/// Maximum number of words that one warp examines.
const MAX_STEPS: u64 = 24;
/// Number of moved bytes that allows a warp to examine one more word.
const BYTES_OF_A_STEP: u64 = 4 << 20;

/// Maximum number of times that a thread reads terms if all indices name its row, since no other warps share them. For half of the indices, ten
/// times take 4.6 µs on an H100, as long as a search whose blocks divide such a row.
const MAX_BATCHES: u64 = 12;

/// Maximum number of times that a thread reads terms if all rows have as many.
const MAX_EVEN_BATCHES: u64 = 4;

/// Number of times up to which a thread reads terms while words of indices are not divided among more warps than words.
const FEW_BATCHES: u64 = 4;

/// Number of warps per SM up to which more warps share a row, and up to which they do so if a row could have many terms: three quarters
/// of those that an SM can run at the same time.
const ENOUGH_WARPS: u64 = 16;
const MAX_WARPS: u64 = 48;

/// Instructions of a warp per word. This and the following are from machine code for sm_90 by NVRTC 13.0.
const PER_WORD: u64 = 9;
/// Instructions of a warp per batch of terms.
const OF_TERMS: u64 = 200;
/// Other instructions of a warp.
const PER_WARP: u64 = 100;

/// Number of bits that hold the votes of several words for a group of threads.
const BITS: u64 = 64;

/// Maximum number of words that a warp reads at once.
const MAX_EACH: u64 = 16;

/// Maximum number of sums that the warps of a block leave in shared memory.
const MAX_SUMS: u64 = 4096;

/// Number of terms that a thread reads at once.
const AHEAD: u64 = 4;

/// The division of rows, columns and indices among warps.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of threads that process neighbouring packs of a row.
    lanes: u64,
    /// Number of warps that share the columns of a row.
    chunks: u64,
    /// Number of warps that share the indices.
    segments: u64,
    /// Number of rows of the output.
    rows: u64,
    /// Number of indices.
    count: u64,
}

impl Direct {
    /// Returns the division; `None` if warps would examine too many indices.
    pub fn of(spec: &Spec, columns: &Columns) -> Option<Direct> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let bytes = x.bytes() + y.bytes();
        let (rows, count) = (y.dims[0].max(1), i.elements());
        let (pack, ragged) = columns.packs(x.dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = lanes_of_warp(packs);
        let chunks = packs.div_ceil(lanes).max(1);
        let most = (MAX_SUMS / (lanes * pack)).min(LARGEST_BLOCK / WARP);
        let with = |warps: u64| {
            let room = UNITS * warps / rows.saturating_mul(chunks);
            let division = |words: u64| {
                let segments = words.min(room).clamp(1, most);
                Direct { ragged, pack, lanes, chunks, segments: 1 << segments.ilog2(), rows, count }
            };
            // Some warps without a word do not matter if a row could have many terms, unless a pack takes two loads.
            let words = count.div_ceil(WARP);
            let fewer = Some(division(words)).filter(|direct| ragged || direct.batches() <= FEW_BATCHES);
            fewer.unwrap_or_else(|| division(words.next_power_of_two()))
        };
        // Each warp has instructions besides those for its indices, so that more warps pay off only if a popular row needs them.
        let direct = Some(with(ENOUGH_WARPS)).filter(|direct| direct.batches() <= MAX_BATCHES);
        let direct = direct.unwrap_or_else(|| with(MAX_WARPS));
        let is_small = direct.instructions() <= MAX_INSTRUCTIONS + bytes / BYTES_OF_AN_INSTRUCTION
            && direct.steps() <= MAX_STEPS + bytes / BYTES_OF_A_STEP
            && direct.batches() <= MAX_BATCHES
            && direct.batches_of(count.div_ceil(rows)) <= MAX_EVEN_BATCHES;
        is_small.then_some(direct)
    }

    /// Number of warps, or of groups of warps, that own a part of a row.
    fn items(&self) -> u64 {
        self.rows.saturating_mul(self.chunks)
    }

    /// Number of instructions of all warps.
    fn instructions(&self) -> u64 {
        let warps = self.items().saturating_mul(self.segments);
        let terms = self.count.saturating_mul(self.chunks);
        // Few warps have more terms than their threads read at once.
        let batches = warps.min(terms).max(terms * self.lanes / (WARP * AHEAD));
        warps.saturating_mul(PER_WARP + PER_WORD * self.steps()) + OF_TERMS * batches
    }

    /// Number of times that a thread reads terms if all indices name its row.
    pub fn batches(&self) -> u64 {
        self.batches_of(self.count)
    }

    /// Number of times that a thread reads terms of a row with this many.
    fn batches_of(&self, terms: u64) -> u64 {
        terms.div_ceil(self.segments * (WARP / self.lanes) * AHEAD)
    }

    /// Number of words that each warp examines.
    fn steps(&self) -> u64 {
        self.count.div_ceil(WARP * self.segments)
    }

    /// Number of words that a warp reads at once: the same number in each round, since it examines all of them.
    fn each(&self) -> u64 {
        let rounds = self.steps().div_ceil((BITS / self.lanes).min(MAX_EACH));
        self.steps().div_ceil(rounds.max(1)).max(1)
    }

    /// Number of threads of a block, at least those of a wavefront of 64. Few warps are divided among the SMs.
    fn threads(&self) -> u64 {
        let of_unit = 1 << (self.items().saturating_mul(self.segments) / UNITS).max(1).ilog2();
        WARP * self.segments.max(of_unit).clamp(2, self.segments.max(u64::from(BLOCK) / WARP))
    }

    fn blocks(&self) -> u64 {
        self.items().div_ceil(self.threads() / (WARP * self.segments)).max(1)
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let rounds = self.steps().div_ceil(self.each());
        let of_warp = self.count.div_ceil(self.rows * self.segments);
        let batches = (of_warp * self.lanes / WARP).div_ceil(AHEAD);
        let kernel = Cost {
            instructions: (self.instructions() * WARP) as f64,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            blocks: self.blocks(),
            share: crate::ops::kernels::occupancy::share(self.threads()),
            // The indices of the next round are on their way while a thread waits for terms.
            waits: rounds.max(batches) as f64,
            // The groups of a warp add their sums, and then the warps of a block.
            exchanges: if self.segments > 1 { 2.0 } else { 1.0 },
            ..Cost::default()
        };
        vec![kernel]
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let parts = Parts::of(spec, columns, 0, 0);
        let before = format!(
            "typedef u32 P;\ntypedef {} Index;\n{VOTES}#define LANES {}\n#define CHUNKS {}\n#define SEGMENTS {}\n#define WARPS {}\n#define EACH {}\n\
             #define AHEAD {AHEAD}\n#define ROWS {}u\n{}#undef BOUNDS\n#define BOUNDS __launch_bounds__({})\n",
            c_type(spec.inputs[1].dtype),
            self.lanes,
            self.chunks,
            self.segments,
            self.threads() / WARP,
            self.each(),
            self.rows,
            columns.text_of_packs(self.pack, self.ragged),
            self.threads(),
        );
        vec![parts.launch("scatter", &before, SEARCH, self.blocks(), self.threads() as u32)]
    }
}

/// Returns the number of threads of a warp that share the packs of a row: a power of two that leaves few threads idle.
pub fn lanes_of_warp(packs: u64) -> u64 {
    let half = WARP / 2;
    match packs > WARP && packs.next_multiple_of(half) * 8 <= packs.next_multiple_of(WARP) * 7 {
        true => half,
        false => packs.next_power_of_two().min(WARP),
    }
}

/// Kernel text: the votes of a warp, or of half a wave; whether any thread of the warp or wave agrees; a barrier that orders the accesses
/// of its threads to shared memory; and a bit for each of the 32 threads that has the same number of `BITS` bits.
pub const VOTES: &str = r#"
#if defined(__HIPCC_RTC__) || defined(__HIP__)
__device__ inline u32 votes32(bool vote) { return (u32)(__ballot(vote) >> (threadIdx.x & 32 & (warpSize - 1))); }
__device__ inline bool any_vote(bool vote) { return __ballot(vote) != 0; }
__device__ inline void order_warp() { __threadfence_block(); }
#else
__device__ inline u32 votes32(bool vote) { return __ballot_sync(0xffffffffu, vote); }
__device__ inline bool any_vote(bool vote) { return __any_sync(0xffffffffu, vote); }
__device__ inline void order_warp() { __syncwarp(); }
#endif
template <u32 BITS> __device__ inline u32 equal_bits(u32 value) {
  u32 equal = 0xffffffffu;
#pragma unroll
  for (u32 bit = 0; bit < BITS; bit++) {
    const bool is_set = (value >> bit & 1) != 0;
    const u32 votes = votes32(is_set);
    equal &= is_set ? votes : ~votes;
  }
  return equal;
}
"#;

/// Kernel text: a group of `LANES` threads has `LANES` of the 32 positions of a word. All warps of a block take the same number of steps.
const SEARCH: &str = r#"  const u32 lane32 = threadIdx.x % 32, warp = threadIdx.x / 32, lane = lane32 % LANES, group = lane32 / LANES;
  const u32 segment = warp % SEGMENTS, item = (blockIdx.x * WARPS + warp) / SEGMENTS;
  const u32 chunk = item % CHUNKS, owner = item / CHUNKS, all = (u32)count;
  const i64 row = owner;
  const bool makes = owner < ROWS;
  const i64 column = (i64)(chunk * LANES + lane) * V - (makes ? LEAD(y + row * sy) : 0);
  const bool is_inside = makes && column < (i64)n;
  C sum[V] = {};
  const u32 ROUND = 32 * SEGMENTS * EACH;
  Index index[EACH];
  auto position_of = [&](u32 step, u32 e) { return step + 32 * (segment + SEGMENTS * e) + lane32; };
  auto read = [&](u32 step) {
#pragma unroll
    for (u32 e = 0; e < EACH; e++) index[e] = position_of(step, e) < all ? INDEX(position_of(step, e)) : (Index)-1;
  };
  read(0);
  for (u32 step = 0; step < all; step += ROUND) {
    const u32 base = step + 32 * segment;
    // The votes of the group's positions: LANES bits for each word.
    u64 bits = 0;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      const bool is_own = makes && index[e] == (Index)owner;
      const u32 own = LANES == 1 ? is_own : LANES == 32 ? votes32(is_own) : votes32(is_own) >> group * LANES & ((1u << LANES % 32) - 1);
      bits |= (u64)own << e * LANES;
    }
    // The next indices are on their way while the thread waits for terms.
    if (all - step > ROUND) read(step + ROUND);
    while (bits != 0 && is_inside) {
      Raw raw[AHEAD];
      C weight[AHEAD];
      u32 taken = 0;
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (bits == 0) continue;
        const u32 bit = __ffsll((i64)bits) - 1, p = base + 32 * SEGMENTS * (bit / LANES) + group * LANES + bit % LANES;
        bits &= bits - 1;
        taken++;
        raw[a] = READ_ROW(x + outer.offset(p, 0), column);
        weight[a] = WEIGHT(p);
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (a >= taken) continue;
        const Pack<E, V> v = ELEMENTS(raw[a]);
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] += weight[a] * load<C>(v.at[c]);
      }
    }
  }
#pragma unroll
  for (u32 mask = LANES; mask < 32; mask *= 2) {
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += SHUFFLE_XOR(sum[c], mask);
  }
#if SEGMENTS > 1
  typedef Pack<C, V> Sum;
  __shared__ Sum sums[WARPS * LANES];
  if (lane32 < LANES) {
#pragma unroll
    for (int c = 0; c < V; c++) sums[warp * LANES + lane].at[c] = sum[c];
  }
  __syncthreads();
  if (segment > 0) return;
#pragma unroll
  for (u32 other = 1; other < SEGMENTS; other++) {
    const Sum more = sums[(warp + other) * LANES + lane];
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += more.at[c];
  }
#endif
  if (!is_inside || lane32 >= LANES) return;
  Pack<E, V> v;
#pragma unroll
  for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
  PUT(y + row * sy, column, v);
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_warps_are_divided_among_the_units() {
        let blocks = |segments, rows| {
            let direct = Direct { ragged: true, pack: 8, lanes: 32, chunks: 7, segments, rows, count: 39 };
            (direct.blocks(), direct.threads())
        };
        assert_eq!(blocks(2, 16), (112, 64));
        assert_eq!(blocks(2, 64), (224, 128));
        assert_eq!(blocks(2, 1000), (1750, 256));
        assert_eq!(blocks(16, 16), (112, 512));
    }
}
