//! The kernel of a `scatter` with `combine: add` of a few hundred rows into many: a warp for each index.
//!
//! Each warp compares all indices with its own one, and its votes tell which of them name the same row. The terms of a row are divided into
//! parts of [`Owned::part`] terms in the order of their positions. The warp of a part's first term adds the part; the other warps have no
//! work. The last warp of a row to finish adds up the sums of the row's parts in their order. An earlier launch sets the output to zero.

use super::super::movement::{Columns, packs_of_rows};
use super::super::occupancy::WARP;
use super::super::radix::EQUALS;
use super::direct::{VOTES, lanes_of_warp};
use super::*;

/// Maximum number of instructions of all warps, unless the operation moves many bytes: about as many as the SMs execute in the time of two
/// launches.
const MAX_INSTRUCTIONS: u64 = 3 << 19;

/// Maximum number of indices.
const MAX_COUNT: u64 = 512;

/// Number of bytes that allows one more instruction of a warp, since SMs search while memory is busy.
const BYTES_OF_AN_INSTRUCTION: u64 = 4;

/// Instructions of a warp per word of 32 indices, per part of a row, and others.
const PER_WORD: u64 = 12;
const OF_TERMS: u64 = 300;
const PER_WARP: u64 = 100;

/// Minimum number of terms of a part.
const PART: u64 = 16;

/// Number of words that a warp reads at once.
const EACH: u64 = 8;

/// Number of terms that a thread reads at once.
const AHEAD: u64 = 4;

/// Bytes that a thread of the kernel for zeros writes.
const ZEROS: u64 = 64;

/// The division of indices and columns among warps.
#[derive(Clone, Copy, Debug)]
pub struct Owned {
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack, of threads that process neighbouring packs of a row, and of warps that share its columns.
    pack: u64,
    lanes: u64,
    chunks: u64,
    count: u64,
}

impl Owned {
    /// Returns the division; `None` if warps would examine too many indices, or the output has gaps.
    pub fn of(spec: &Spec, columns: &Columns) -> Option<Owned> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let (pack, ragged) = columns.packs(x.dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = lanes_of_warp(packs);
        let chunks = packs.div_ceil(lanes).max(1);
        let owned = Owned { ragged, pack, lanes, chunks, count: i.elements() };
        let most = MAX_INSTRUCTIONS + (x.bytes() + y.bytes()) / BYTES_OF_AN_INSTRUCTION;
        let is_small = owned.count <= MAX_COUNT && owned.instructions() <= most;
        (is_small && y.contiguous() && y.space == Space::Device).then_some(owned)
    }

    /// Number of warps.
    fn warps(&self) -> u64 {
        self.count.saturating_mul(self.chunks)
    }

    /// Number of words of 32 indices.
    fn words(&self) -> u64 {
        self.count.div_ceil(WARP)
    }

    /// Number of instructions of all warps.
    fn instructions(&self) -> u64 {
        self.warps().saturating_mul(PER_WARP + PER_WORD * self.words() + OF_TERMS)
    }

    /// Number of terms of a part: about as many as a row can have parts.
    fn part(&self) -> u64 {
        PART.max(self.count.isqrt()).next_power_of_two()
    }

    /// Maximum number of parts of a row.
    fn parts(&self) -> u64 {
        self.count.div_ceil(self.part())
    }

    fn blocks(&self) -> u64 {
        self.warps().div_ceil(u64::from(BLOCK) / WARP).max(1)
    }

    /// Size in bytes of the counters of finished parts, and of these and the positions of each row's parts.
    fn counters(&self) -> u64 {
        if self.parts() == 1 { 0 } else { 4 * self.warps() }
    }

    fn workspace(&self) -> u64 {
        if self.parts() == 1 { 0 } else { self.counters() + 4 * self.count * self.parts() }
    }

    /// Number of threads that set the output and the counters to zero.
    fn zeroing(&self, bytes: u64) -> u64 {
        bytes.div_ceil(ZEROS).max(self.counters() / 4)
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let bytes = spec.outputs[0].bytes();
        let rounds = self.words().div_ceil(EACH);
        let kernel = Cost {
            instructions: (self.instructions() * WARP) as f64,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.inputs[..1]),
            blocks: self.blocks(),
            share: super::super::occupancy::share(u64::from(BLOCK)),
            // A warp reads its own index, then all, then its terms.
            waits: (1 + rounds) as f64,
            ..Cost::default()
        };
        let zeros = Cost {
            written: Spec::bytes_of(&spec.outputs),
            blocks: if self.parts() == 1 { 1 } else { self.zeroing(bytes).div_ceil(u64::from(BLOCK)) },
            ..Cost::default()
        };
        vec![zeros, kernel]
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let sums = if self.parts() == 1 { 0 } else { self.warps() * self.lanes * self.pack };
        let mut parts = Parts::of(spec, columns, self.workspace(), sums * scatter_type(spec).size());
        let (operand, bytes) = (spec.inputs.len() as u8, spec.outputs[0].bytes());
        parts.bind("bytes", bytes);
        let before = format!(
            "typedef u32 P;\ntypedef {} Index;\n{EQUALS}{VOTES}#define LANES {}\n#define CHUNKS {}\n#define EACH {EACH}\n#define AHEAD {AHEAD}\n\
             #define PART {}u\n#define PARTS {}u\n#define COUNTERS {}u\n#define ZEROS {ZEROS}\n{}",
            c_type(spec.inputs[1].dtype),
            self.lanes,
            self.chunks,
            self.part(),
            self.parts(),
            self.counters() / 4,
            columns.text_of_packs(self.pack, self.ragged),
        );
        let kernel = |name, body: &str, grid: u64| parts.launch(name, &before, body, grid, BLOCK);
        let zeros = match self.parts() {
            1 => Launch::Memset { operand, value: 0, bytes },
            _ => kernel("scatter_clear", CLEAR, self.zeroing(bytes).div_ceil(u64::from(BLOCK))),
        };
        vec![zeros, kernel("scatter", &format!("{SEARCH}{ADD}"), self.blocks())]
    }
}

/// Kernel text: sets the output and the counters to zero.
const CLEAR: &str = r#"  const u64 own = GLOBAL_INDEX, lead = (0 - (u64)y) % 16, head = lead < bytes ? lead : bytes, packs = (bytes - head) / 16;
  u8* from = (u8*)y;
#pragma unroll
  for (u32 k = 0; k < ZEROS / 16; k++) {
    const u64 at = (u64)blockIdx.x * (256 * ZEROS / 16) + k * 256 + threadIdx.x;
    if (at < packs) ((Pack<u32, 4>*)(from + head))[at] = {};
  }
  if (own < head) from[own] = 0;
  if (own < bytes - head - packs * 16) from[head + packs * 16 + own] = 0;
  if (own < COUNTERS) ((u32*)workspace)[own] = 0;
"#;

/// Kernel text: a group of `LANES` threads has `LANES` of the 32 positions of a word. `before` and `found` count the row's terms before the
/// warp's own index and from there on; `first` is the position of the row's first term.
const SEARCH: &str = r#"  const u32 lane32 = threadIdx.x % 32, lane = lane32 % LANES, group = lane32 / LANES, all = (u32)count;
  const u32 item = blockIdx.x * 8 + threadIdx.x / 32, chunk = item % CHUNKS, owner = item / CHUNKS;
  const i64 row = owner < all ? (i64)INDEX(owner) : -1;
  const bool makes = row >= 0 && (u64)row < rows;
  const i64 column = (i64)(chunk * LANES + lane) * V - (makes ? LEAD(y + row * sy) : 0);
  const bool is_inside = makes && column < (i64)n;
  C sum[V] = {};
  u32 before = 0, found = 0, first = owner;
  Index index[EACH];
  auto read = [&](u32 base) {
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      const u32 p = base + 32 * e + lane32;
      index[e] = p < all ? INDEX(p) : (Index)-1;
    }
  };
  // The votes of a group's positions of some words have 64 bits.
  const u32 WORDS = 64 / LANES < EACH ? 64 / LANES : EACH;
  for (u32 base = 0; base < all; base += 32 * EACH) {
    read(base);
#pragma unroll
    for (u32 word = 0; word < EACH; word += WORDS) {
      u64 bits = 0;
#pragma unroll
      for (u32 e = 0; e < WORDS; e++) {
        const u32 begin = base + 32 * (word + e);
        u32 votes = votes32(makes && (i64)index[word + e] == row);
        if (votes != 0) {
          const u32 lower = owner >= begin + 32 ? 0xffffffffu : owner > begin ? (1u << (owner - begin)) - 1 : 0;
          if (before == 0 && (votes & lower) != 0) first = begin + __ffsll((i64)votes) - 1;
          before += __popc(votes & lower);
          votes &= ~lower;
          const u32 here = __popc(votes), room = found < PART ? PART - found : 0;
          found += here;
          // The terms of later parts are those of other warps.
          if (PARTS > 1 && here > room) {
            u32 left = votes;
            votes = 0;
            for (u32 k = 0; k < room; k++, left &= left - 1) votes |= left & (~left + 1);
          }
        }
        bits |= (u64)(LANES == 32 ? votes : votes >> group * LANES & ((1u << LANES % 32) - 1)) << e * LANES;
      }
      // A warp whose index does not begin a part has no work.
      if (owner < base + 32 * (word + WORDS) && (PARTS > 1 ? before % PART : before) != 0) return;
      while (bits != 0 && is_inside) {
        Raw raw[AHEAD];
        C weight[AHEAD];
        u32 taken = 0;
#pragma unroll
        for (u32 a = 0; a < AHEAD; a++) {
          if (bits == 0) continue;
          const u32 bit = __ffsll((i64)bits) - 1, p = base + 32 * (word + bit / LANES) + group * LANES + bit % LANES;
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
  }
  if (!makes) return;
#pragma unroll
  for (u32 mask = LANES; mask < 32; mask *= 2) {
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += SHUFFLE_XOR(sum[c], mask);
  }
"#;

/// Kernel text: writes the sum of a row of one part. Of several parts, each leaves its sum, and the last one adds up all.
const ADD: &str = r#"#if PARTS > 1
  const u32 parts = (before + found + PART - 1) / PART;
  if (parts > 1) {
    typedef Pack<C, V> Sum;
    // The positions of the parts' first terms, for each first term of a row.
    volatile u32* begins = (u32*)workspace + COUNTERS + (u64)first * PARTS;
    Sum* sums = (Sum*)partials + (u64)chunk * LANES + lane;
    if (lane32 < LANES) {
      Sum own;
#pragma unroll
      for (int c = 0; c < V; c++) own.at[c] = sum[c];
      sums[(u64)owner * (CHUNKS * LANES)] = own;
    }
    // All chunks write the same position.
    if (lane32 == 0) begins[before / PART] = owner;
    __threadfence();
    order_warp();
    u32 done = 0;
    if (lane32 == 0) done = atomicAdd((u32*)workspace + first * CHUNKS + chunk, 1u) + 1;
    if (SHUFFLE(done, 0) != parts) return;
    __threadfence();
    order_warp();
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] = 0;
    for (u32 base = 0; base < parts; base += 8) {
      Sum part[8];
#pragma unroll
      for (u32 k = 0; k < 8; k++) {
        if (base + k >= parts) continue;
        const volatile C* from = (const volatile C*)&sums[(u64)begins[base + k] * (CHUNKS * LANES)];
#pragma unroll
        for (int c = 0; c < V; c++) part[k].at[c] = from[c];
      }
#pragma unroll
      for (u32 k = 0; k < 8; k++) {
        if (base + k >= parts) continue;
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] += part[k].at[c];
      }
    }
  }
#endif
  if (!is_inside || lane32 >= LANES) return;
  Pack<E, V> v;
#pragma unroll
  for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
  PUT(y + row * sy, column, v);
"#;
