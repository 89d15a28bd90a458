//! The kernel of a `scatter` of a few thousand narrow rows with `combine: add`: blocks add fixed-point numbers in any order.
//!
//! A block owns consecutive rows and searches all indices for their terms. For each element of its rows it finds the largest magnitude of
//! a term, and scales the terms to integers of 36 bits relative to it. Sums of integers do not depend on their order, so threads add them
//! atomically in shared memory. The sum is rounded once: its error is far below the rounding errors of a sum of 32-bit floats.

use super::super::movement::{Columns, packs_of_rows};
use super::super::occupancy::{BUSY_BLOCKS, share};
use super::super::radix::EQUALS;
use super::direct::VOTES;
use super::*;

/// Number of indices that a thread examines, and of terms that it reads at once.
const EACH: u64 = 8;
const AHEAD: u64 = 4;

/// Numbers of threads of a block. A block examines all indices at once.
const THREADS: [u64; 3] = [256, 512, 1024];

/// Maximum number of threads that process the packs of a row.
const MAX_LANES: u64 = 4;

/// Size in bytes of the shared memory of a block, and of the sums of an element.
const SHARED: u64 = 46 << 10;
const OF_ELEMENT: u64 = 12;

/// Minimum number of neighbouring terms of a warp with the same row that are added by shuffles.
const CROWD: u64 = 4;

/// Instructions per index that a block examines, per element of a term, and others per thread: machine code for sm_90 by NVRTC 13.0.
const PER_LOOK: f64 = 7.0;
const PER_ADDED: f64 = 60.0;
const PER_THREAD: f64 = 200.0;

/// The division of rows among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack, and of threads that process neighbouring packs of a row.
    pack: u64,
    lanes: u64,
    /// Number of rows per block, and of its threads.
    own: u64,
    threads: u64,
    rows: u64,
    count: u64,
}

impl Fixed {
    /// Returns the division; `None` if there are too many indices, rows or elements of a row, or sums are no 32-bit floats.
    pub fn of(spec: &Spec, columns: &Columns) -> Option<Fixed> {
        let (rows, count) = (spec.outputs[0].dims[0].max(1), spec.inputs[1].elements());
        let (pack, ragged) = columns.packs(spec.inputs[0].dtype);
        let lanes = packs_of_rows(columns.length, pack, ragged).next_power_of_two();
        let threads = THREADS.into_iter().find(|threads| count <= threads * EACH)?;
        let own = rows.div_ceil(BUSY_BLOCKS);
        let shared = 4 * threads * EACH + own * lanes * pack * OF_ELEMENT;
        let fits = lanes <= MAX_LANES && shared <= SHARED && rows < 1 << 31;
        (fits && scatter_type(spec) == DType::F32).then_some(Fixed { ragged, pack, lanes, own, threads, rows, count })
    }

    fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.own)
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let threads = self.blocks() * self.threads;
        let looks = self.blocks() * self.count;
        let elements = self.count * self.lanes * self.pack;
        vec![Cost {
            instructions: PER_LOOK * looks as f64 + PER_ADDED * elements as f64 + PER_THREAD * threads as f64,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            blocks: self.blocks(),
            share: share(self.threads),
            // A block reads the indices, and the terms twice.
            waits: 2.0,
            ..Cost::default()
        }]
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let parts = Parts::of(spec, columns, 0, 0);
        let before = format!(
            "typedef u32 P;\ntypedef {} Index;\n{EQUALS}{VOTES}#define LANES {}\n#define OWN {}u\n#define THREADS {}u\n#define EACH {EACH}\n\
             #define AHEAD {AHEAD}\n#define CROWD {CROWD}\n{}#undef BOUNDS\n#define BOUNDS __launch_bounds__({})\n",
            c_type(spec.inputs[1].dtype),
            self.lanes,
            self.own,
            self.threads,
            columns.text_of_packs(self.pack, self.ragged),
            self.threads,
        );
        vec![parts.launch("scatter", &before, &format!("{SEARCH}{SUM}"), self.blocks(), self.threads as u32)]
    }
}

/// Kernel text: lists the terms of the block's rows in any order. An entry has the row in its upper, and the position in its lower half.
const SEARCH: &str = r#"  const u32 GROUPS = THREADS / LANES, PLACES = OWN * LANES, SLOTS = PLACES * V, LIST = THREADS * EACH;
  const u32 t = threadIdx.x, lane32 = t % 32, lane = t % LANES, group = t / LANES;
  const u64 first = (u64)blockIdx.x * OWN;
  const u32 own_rows = (u32)(rows - first < OWN ? rows - first : OWN);
  __shared__ u32 list[LIST], held, largest[SLOTS];
  __shared__ i32 high[SLOTS], low[SLOTS];
  Index index[EACH];
#pragma unroll
  for (u32 e = 0; e < EACH; e++) index[e] = e * THREADS + t < count ? INDEX(e * THREADS + t) : (Index)-1;
  for (u32 k = t; k < SLOTS; k += THREADS) {
    largest[k] = 0;
    high[k] = low[k] = 0;
  }
  if (t == 0) held = 0;
  __syncthreads();
#pragma unroll
  for (u32 e = 0; e < EACH; e++) {
    const u64 own = (u64)((i64)index[e] - (i64)first);
    const bool is_own = own < own_rows;
    const u32 votes = votes32(is_own);
    if (!any_vote(votes != 0)) continue;
    u32 at = 0;
    if (lane32 == 0 && votes != 0) at = atomicAdd(&held, (u32)__popc(votes));
    at = SHUFFLE(at, 0) + __popc(votes & ((1u << lane32) - 1));
    if (is_own) list[at] = (u32)own << 16 | (e * THREADS + t);
  }
  __syncthreads();
"#;

/// Kernel text: finds the largest magnitude of each element, as the bits of a float, adds the terms, and writes the sums. With the largest
/// exponent, an element below 2 to the power of 17 is the sum of a whole number, in `high`, and of a multiple of 2 to the power of -18, in
/// `low`. If a term is not finite, `low` counts positive infinities, `high` negative ones, and both count NaNs.
const SUM: &str = r#"  const u32 m = held, INFINITY_BITS = 0x7f800000u;
  auto column_of = [&](u32 own) { return (i64)lane * V - LEAD(y + (first + own) * sy); };
  // Calls `visit` for the terms of a pack; all threads of a block call it equally often.
  auto each_term = [&](auto visit) {
    for (u32 from = 0; from < m; from += GROUPS * AHEAD) {
      Raw raw[AHEAD];
      C weight[AHEAD];
      u32 own[AHEAD];
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        const u32 l = from + a * GROUPS + group, entry = l < m ? list[l] : 0xffffffffu, p = entry & 0xffffu;
        own[a] = OWN;
        raw[a] = {};
        weight[a] = 0;
        if (l >= m || column_of(entry >> 16) >= (i64)n) continue;
        own[a] = entry >> 16;
        raw[a] = READ_ROW(x + outer.offset(p, 0), column_of(own[a]));
        weight[a] = WEIGHT(p);
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        const Pack<E, V> v = ELEMENTS(raw[a]);
        C term[V];
#pragma unroll
        for (int c = 0; c < V; c++) term[c] = weight[a] * load<C>(v.at[c]);
        visit(own[a], term);
      }
    }
  };
  auto slot_of = [&](u32 own, int c) { return c * PLACES + own * LANES + lane; };
  each_term([&](u32 own, const C* term) {
    if (own == OWN) return;
#pragma unroll
    for (int c = 0; c < V; c++) {
      const u32 bits = float_to_bits(term[c]) & 0x7fffffffu;
      if (bits > *(volatile u32*)&largest[slot_of(own, c)]) atomicMax(&largest[slot_of(own, c)], bits);
    }
  });
  __syncthreads();
  auto exponent_of = [&](u32 bits) { return bits >> 23 == 0 ? 1 : (i32)(bits >> 23); };
  // Multiplies by a power of two, which may exceed the range of a float.
  auto scaled = [&](f32 value, i32 power) {
    const i32 half = power / 2;
    return value * bits_to_float((u32)(half + 127) << 23) * bits_to_float((u32)(power - half + 127) << 23);
  };
  // Rounds a number below 2 to the power of 22; `value` becomes the rest.
  auto whole_of = [&](f32& value) {
    const f32 whole = value + 12582912.0f;
    value -= whole - 12582912.0f;
    return (i32)(float_to_bits(whole) - 0x4b400000u);
  };
  each_term([&](u32 own, const C* term) {
    bool adds = own < OWN;
    i32 upper[V], lower[V];
#pragma unroll
    for (int c = 0; c < V; c++) {
      const u32 most = adds ? largest[slot_of(own, c)] : 0, bits = float_to_bits(term[c]), size = bits & 0x7fffffffu;
      if (most >= INFINITY_BITS) {
        upper[c] = size > INFINITY_BITS || bits == (INFINITY_BITS | 0x80000000u);
        lower[c] = size > INFINITY_BITS || bits == INFINITY_BITS;
      } else {
        f32 rest = scaled(term[c], 143 - exponent_of(most));
        upper[c] = whole_of(rest);
        rest *= 262144.0f;
        lower[c] = whole_of(rest);
      }
    }
#if LANES <= 2
    // Many threads of a warp with the same row would wait for each other.
    const bool is_led = adds && own == SHUFFLE(own, 0);
    const bool is_crowd = __popc(votes32(is_led)) >= CROWD * LANES;
    if (any_vote(is_crowd)) {
#pragma unroll
      for (int c = 0; c < V; c++) {
        i32 up = is_led ? upper[c] : 0, down = is_led ? lower[c] : 0;
#pragma unroll
        for (u32 mask = 16; mask >= LANES; mask /= 2) {
          up += SHUFFLE_XOR(up, mask);
          down += SHUFFLE_XOR(down, mask);
        }
        if (is_led && is_crowd) {
          upper[c] = up;
          lower[c] = down;
        }
      }
      adds = adds && !(is_led && is_crowd && lane32 >= LANES);
    }
#endif
    if (!adds) return;
#pragma unroll
    for (int c = 0; c < V; c++) {
      atomicAdd(&high[slot_of(own, c)], upper[c]);
      atomicAdd(&low[slot_of(own, c)], lower[c]);
    }
  });
  __syncthreads();
  for (u32 own = group; own < own_rows; own += GROUPS) {
    const i64 column = column_of(own);
    if (column >= (i64)n) continue;
    Pack<E, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) {
      const u32 slot = slot_of(own, c), most = largest[slot];
      const i64 all = (i64)high[slot] * 262144 + low[slot];
      C sum = scaled((f32)all, exponent_of(most) - 161);
      if (most >= INFINITY_BITS) sum = bits_to_float(high[slot] == 0 ? INFINITY_BITS : low[slot] == 0 ? INFINITY_BITS | 0x80000000u : 0x7fc00000u);
      store<C>(v.at[c], sum);
    }
    PUT(y + (first + own) * sy, column, v);
  }
"#;
