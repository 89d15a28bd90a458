//! The kernels of a `scatter` of some ten thousand indices, or into rows with few terms: a list of the terms of each output row.
//!
//! A thread per index appends its position to the list of the row, in any order. Then each block sorts the lists of its rows in
//! shared memory, and adds up the terms in the order of their positions. So every run adds terms in the same order.
//!
//! A list begins in an array of [`Lists::capacity`] positions. A list that grows beyond takes further arrays from a pool, each several
//! times as long as the one before. Such rows have blocks of their own: a block for each row, or several for a huge row, each for some windows
//! of positions. In a window, a bit for each position gives the order of terms; the last block of a row adds up the sums of all blocks.

use super::super::layout::packs_of_rows;
use super::*;
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, SECTOR, UNITS, WARP, sectors_of, share, share_among};
use crate::ops::kernels::radix::EQUALS;
use crate::ops::movement::gather::Columns;

/// Number of positions that a block sorts in shared memory.
const SLOTS: u64 = 2048;

/// Minimum capacity of a list: a sector of 32 bytes. A thread reads and sorts this many positions.
const MIN_CAPACITY: u64 = 8;

/// Maximum average number of terms per row: of rows of up to [`WIDE`] bytes, and of longer ones.
pub const MAX_TERMS: [u64; 2] = [32, 64];
/// Maximum number of indices for which lists are fast whatever the size of a row. Above it, [`super::buckets`] are faster for rows shorter
/// than [`WIDE`], unless most rows have no term.
const MANY: u64 = 1 << 16;
/// Size in bytes of a row from which on lists are fast for any number of indices.
const WIDE: u64 = 128;

/// Average number of terms that one thread adds up.
const TERMS_EACH: u64 = 2;

/// Maximum number of rows per block.
const MAX_ROWS: u64 = 256;

/// Maximum number of blocks that share a row; each sorts the list of the row.
const MAX_CHUNKS: u64 = 4;

/// Minimum length of a list that is divided into windows, of up to [`MANY`] indices and of more.
const HUGE: [u64; 2] = [256, 512];

/// Minimum and maximum number of words, of 32 positions each, that a group of threads has in a window.
const WORDS_EACH: [u64; 2] = [4, 16];

/// Number of sectors that the cache serves in the time of an atomic operation on any of some thousand addresses: a million took 21 µs on an
/// H100 (docs/measurements/2026-11-26-simulator.md).
const ATOMIC_SECTORS: u64 = 5;

/// Number of terms that a thread reads at once.
const AHEAD: u64 = 4;

/// Factor by which each further array lengthens a list: with up to [`MANY`] indices, and with more. A thread reads the places of all arrays
/// before its own, one after the other.
const GROWTH: [u64; 2] = [8, 2];

/// Number of blocks for long lists that start first.
const LONG_BLOCKS: u64 = UNITS;
/// Number of blocks for long lists that start behind the blocks for other rows.
const LATER_BLOCKS: u64 = 3 * UNITS;

/// Number of resident blocks per SM if terms are not aligned, so that registers can hold all terms that a thread reads at once.
const RESIDENT: u64 = 4;

/// Instructions per position that is appended, and per thread of the kernel that adds: machine code for sm_90 by NVRTC 13.0 without
/// the instructions of long lists, which are about half of the 832 to 1168 of the second.
const PER_PLACE: f64 = 80.0;
const PER_THREAD: f64 = 500.0;

/// Exchanges among the threads of a block that sorts lists.
const EXCHANGES: f64 = 2.0;

/// The division of rows and columns among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Lists {
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of threads that process neighbouring packs of a row.
    lanes: u64,
    /// Number of blocks that share a row.
    chunks: u64,
    /// Number of threads that share the terms of a pack.
    terms: u64,
    /// Number of rows that such threads process one after the other.
    several: u64,
    /// Number of positions of the first array of a list.
    capacity: u64,
    /// Number of rows of the output.
    rows: u64,
    /// Number of indices.
    count: u64,
}

impl Lists {
    /// Returns the division; `None` if positions need more than 32 bits, or rows have too many terms or bytes.
    pub fn of(spec: &Spec, columns: &Columns) -> Option<Lists> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let (rows, count) = (y.dims[0].max(1), i.elements());
        let average = count.div_ceil(rows);
        // Four standard deviations above the average of random indices, and room for small averages.
        let capacity = (average + 4 * average.isqrt() + 3).next_power_of_two().max(MIN_CAPACITY);
        let is_listed = count <= MANY || columns.length * x.dtype.size() >= WIDE;
        let most_terms = MAX_TERMS[usize::from(columns.length * x.dtype.size() > WIDE)];
        let is_fast = if is_listed { average <= most_terms } else { count < rows };
        let fits = rows.saturating_mul(capacity) < 1 << 31 && count < 1 << 24;
        let (pack, ragged) = columns.packs(x.dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = super::search::lanes(packs, [WARP, u64::from(BLOCK)]);
        let chunks = packs.div_ceil(lanes).max(1);
        if !is_fast || !fits || chunks > MAX_CHUNKS {
            return None;
        }
        let beside = u64::from(BLOCK) / lanes;
        let mut terms = (average / TERMS_EACH).max(1).next_power_of_two().min(beside);
        while beside / terms * capacity > SLOTS {
            terms *= 2;
        }
        let mut lists = Lists { ragged, pack, lanes, chunks, terms, several: 1, capacity, rows, count };
        while 2 * lists.own() <= MAX_ROWS && 2 * lists.own() * capacity <= SLOTS {
            let twice = Lists { several: 2 * lists.several, ..lists };
            if twice.blocks() < 2 * BUSY_BLOCKS {
                break;
            }
            lists = twice;
        }
        Some(lists)
    }

    /// Number of rows per block.
    fn own(&self) -> u64 {
        u64::from(BLOCK) / (self.lanes * self.terms) * self.several
    }

    /// Number of blocks of the kernel that adds.
    fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.own()).saturating_mul(self.chunks)
    }

    /// Number of blocks that share the columns of a long list, and of groups of threads of each that share its terms.
    fn pieces(&self) -> u64 {
        self.chunks * self.lanes.div_ceil(WARP)
    }

    fn groups(&self) -> u64 {
        u64::from(BLOCK) / self.lanes.min(WARP)
    }

    /// Number of words of bits of a window, and of windows of a huge list.
    fn words(&self) -> u64 {
        let [least, most] = WORDS_EACH;
        (self.count >> 14).next_power_of_two().clamp(least, most) * self.groups()
    }

    fn windows(&self) -> u64 {
        self.count.div_ceil(32 * self.words())
    }

    /// Length from which on a list is huge: partial sums of windows are then fewer than terms.
    fn huge(&self) -> u64 {
        HUGE[usize::from(self.count > MANY)]
            .max(self.count / (WORDS_EACH[1] * 16 * self.groups()))
            .max(self.capacity)
            .next_power_of_two()
            .min(SLOTS)
    }

    /// Maximum number of long and of huge lists.
    fn longs(&self) -> u64 {
        self.count / self.capacity + 1
    }

    fn huges(&self) -> u64 {
        self.count / self.huge() + 1
    }

    /// Number of words that are set to zero first:
    /// - the length of the pool in use, and the number of long and of huge lists;
    /// - for each row, the length of its list and the place of its second array;
    /// - for each huge list, the number of windows that are done.
    fn heads(&self) -> u64 {
        4 + 2 * self.rows + self.huges() * self.pieces()
    }

    /// Factor by which a further array lengthens a list.
    fn growth(&self) -> u64 {
        GROWTH[usize::from(self.count > MANY)]
    }

    /// Offset in bytes of the lists' first arrays in the workspace, of the rows with long and with huge lists, and of the pool.
    fn arrays_at(&self) -> u64 {
        (4 * self.heads()).next_multiple_of(32)
    }

    fn longs_at(&self) -> u64 {
        self.arrays_at() + 4 * self.rows * self.capacity
    }

    fn huges_at(&self) -> u64 {
        self.longs_at() + 4 * self.longs()
    }

    fn pool_at(&self) -> u64 {
        self.huges_at() + 4 * self.huges()
    }

    /// Size in bytes of the workspace before the partial sums. The arrays of a list behind its first have fewer than [`GROWTH`] times its
    /// positions in all, and each of these arrays has the place of the next one.
    fn workspace(&self) -> u64 {
        self.pool_at() + 4 * (2 + self.growth() * self.count + self.longs())
    }

    /// Number of elements of a row, rounded up to whole chunks.
    fn width(&self) -> u64 {
        self.chunks * self.lanes * self.pack
    }

    /// Size in bytes of the sums of windows of huge lists.
    fn partials(&self, spec: &Spec) -> u64 {
        if self.windows() == 1 { 0 } else { self.huges() * self.windows() * self.width() * scatter_type(spec).size() }
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let (x, i) = (&spec.inputs[0], &spec.inputs[1]);
        let device = |bytes| Traffic { device: bytes, host: 0 };
        let of_each = |items: u64| items.div_ceil(u64::from(BLOCK));
        let (heads, places) = (4 * self.heads(), 4 * self.count);
        let cost = |instructions, read, written, blocks| Cost {
            instructions,
            read,
            written,
            blocks,
            share: share(u64::from(BLOCK)),
            ..Cost::default()
        };
        let blocks = LONG_BLOCKS + self.blocks() + LATER_BLOCKS;
        let adding = PER_ELEMENT * x.elements() as f64 + PER_THREAD * (blocks * u64::from(BLOCK)) as f64;
        let terms = (self.count.div_ceil(self.rows * self.terms)).div_ceil(AHEAD) * self.several;
        let found = device(places + 4 * self.rows);
        vec![
            cost(0.0, Traffic::NONE, device(heads), of_each(self.heads())),
            // An index counts its position atomically and writes it, each in a sector of its own.
            Cost {
                sectors: (i.bytes() / SECTOR + (ATOMIC_SECTORS + 1) * self.count) as f64,
                waits: 1.0,
                ..cost(
                    PER_PLACE * self.count as f64,
                    Spec::bytes_of(&spec.inputs[1..2]),
                    device(places),
                    of_each(self.count),
                )
            },
            // A block reads the lengths of its lists, then the lists, then their terms.
            Cost {
                sectors: self.sectors(spec),
                share: if self.ragged { share_among(RESIDENT) } else { share(u64::from(BLOCK)) },
                waits: (2 + terms) as f64,
                exchanges: EXCHANGES + if self.terms > 1 { self.several as f64 } else { 0.0 },
                ..cost(adding, Spec::bytes_of(&spec.inputs) + found, Spec::bytes_of(&spec.outputs), blocks)
            },
        ]
    }

    /// Number of sectors of memory that the kernel which adds accesses. A list and a row of terms begin in any sector.
    fn sectors(&self, spec: &Spec) -> f64 {
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let streamed = (y.bytes() + 12 * self.rows) / SECTOR + self.rows;
        streamed as f64 + self.count as f64 * sectors_of(x.bytes() / self.count.max(1))
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let parts = Parts::of(spec, columns, self.workspace(), self.partials(spec));
        let bounds = format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({BLOCK}, {RESIDENT})\n");
        let before = format!(
            "typedef u32 P;\n{EQUALS}#define ADDS 1\n#define LANES {}\n#define CHUNKS {}\n#define TERMS {}\n#define SEVERAL {}\n\
             #define AHEAD {AHEAD}\n#define CAPACITY {}u\n#define HUGE {}u\n#define WORDS {}u\n#define WINDOWS {}u\n#define LONG_BLOCKS {LONG_BLOCKS}\n#define LATER_BLOCKS {LATER_BLOCKS}\n#define GROWTH {}u\n\
             #define HEADS {}\n#define ARRAYS_AT {}ull\n#define LONGS_AT {}ull\n#define HUGES_AT {}ull\n#define POOL_AT {}ull\n\
             #define PLACE(l) order[l]\n{}{}",
            self.lanes,
            self.chunks,
            self.terms,
            self.several,
            self.capacity,
            self.huge(),
            self.words(),
            self.windows(),
            self.growth(),
            self.heads(),
            self.arrays_at(),
            self.longs_at(),
            self.huges_at(),
            self.pool_at(),
            columns.text_of_packs(self.pack, self.ragged),
            if self.ragged { bounds } else { String::new() },
        );
        let launch = |name, body: &str, grid: u64| parts.launch(name, &before, &format!("{PARTS}{body}"), grid, BLOCK);
        let of_each = |items: u64| items.div_ceil(u64::from(BLOCK)).max(1);
        vec![
            launch("scatter_clear", CLEAR, of_each(self.heads())),
            launch("scatter_append", APPEND, of_each(self.count)),
            launch(
                "scatter",
                &format!("{OWN_PLACE}{SHARED}{ADDING}{WRITE}{LONG}{SORT}"),
                LONG_BLOCKS + self.blocks() + LATER_BLOCKS,
            ),
        ]
    }
}

/// Kernel text: the parts of the workspace. `next[row]` is the place in the pool of the second array of a list, whose first word is
/// the place of the third, and so on; 0 if there is none.
const PARTS: &str = r#"  u32* used = (u32*)workspace;
  u32* lengths = used + 4;
  u32* next = lengths + rows;
  u32* done = next + rows;
  u32* arrays = (u32*)(workspace + ARRAYS_AT);
  u32* longs = (u32*)(workspace + LONGS_AT);
  u32* huges = (u32*)(workspace + HUGES_AT);
  u32* pool = (u32*)(workspace + POOL_AT);
"#;

/// Kernel text: empties all lists.
const CLEAR: &str = r#"  if (GLOBAL_INDEX < HEADS) used[GLOBAL_INDEX] = 0;
"#;

/// Kernel text: a thread appends a position to the list of the row that its index names. The thread that appends the first position
/// of an array takes the array from the pool; others wait for its place. A thread waits only for threads with lower places, which have
/// started, so that threads of a wave can wait for each other.
const APPEND: &str = r#"  const u32 p = (u32)GLOBAL_INDEX, none = 0xffffffffu;
  const i64 index = p < count ? (i64)i[outer.offset(p, 1)] : -1;
  const u32 row = index >= 0 && (u64)index < rows ? (u32)index : none;
  u32 same, leader, lower = equals32(row, same, leader), slot = 0;
  if (lower == 0 && row != none) slot = atomicAdd(&lengths[row], same);
  slot = SHUFFLE(slot, leader) + lower;
  if (row == none) return;
  if (slot == HUGE) huges[atomicAdd(&used[2], 1u)] = row;
  if (slot < CAPACITY) {
    arrays[(u64)row * CAPACITY + slot] = p;
    return;
  }
  if (slot == CAPACITY) longs[atomicAdd(&used[1], 1u)] = row;
  u32* link = &next[row];
  for (u32 begin = CAPACITY;; begin *= GROWTH) {
    if (slot == begin) {
      const u32 taken = 1 + atomicAdd(used, (GROWTH - 1) * begin + 1);
      pool[taken] = 0;
      __threadfence();
      atomicExch(link, taken);
    }
    u32 at = 0;
    while (at == 0) at = *(volatile u32*)link;
    if (slot < GROWTH * begin) {
      pool[at + 1 + slot - begin] = p;
      return;
    }
    link = &pool[at];
  }
"#;

/// Kernel text: the lists of a block in shared memory, before and after they are sorted, or the bits of a window, or sums.
const SHARED: &str = r#"  const u32 BESIDE = 256 / (LANES * TERMS), OWN = BESIDE * SEVERAL, ALL = OWN * CAPACITY, NONE = 0xffffffffu;
  const u32 EACH = ALL > HUGE ? ALL : HUGE, SUMS = 256 * V * sizeof(C) / 4, BITS = WORDS > SUMS ? WORDS : SUMS;
  const u32 ROOM = 2 * EACH > BITS ? 2 * EACH : BITS;
  typedef Pack<u32, 4> Four;
  __shared__ Four room[ROOM / 4];
  __shared__ u32 length[OWN];
  u32 *found = (u32*)room, *order = found + EACH, *all_bits = found;
  const u32 t = threadIdx.x;
"#;

/// Kernel text: `column_of` is the column of a thread's pack in a row, and `write` writes a sum there.
const WRITE: &str = r#"  auto column_of = [&](u64 row, u32 chunk) { return (i64)(chunk * LANES + lane) * V - LEAD(y + row * sy); };
  auto write = [&](u64 row, i64 column, C* sum) {
    Pack<E, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
    PUT(y + row * sy, column, v);
  };
"#;

/// Kernel text: the first and the last blocks add up the rows of long lists. Groups of `NARROW` threads share the terms.
const LONG: &str = r#"  const u32 LATER = gridDim.x - LATER_BLOCKS;
  if (blockIdx.x < LONG_BLOCKS || blockIdx.x >= LATER) {
    const u32 own_block = blockIdx.x < LONG_BLOCKS ? blockIdx.x : blockIdx.x - LATER + LONG_BLOCKS;
    // Number of windows that fit shared memory, and minimum number of parts of a list with so many.
    const u32 FITTING = ROOM / WORDS, LEAST_PARTS = (WINDOWS + FITTING - 1) / FITTING;
    const u32 NARROW = LANES < 32 ? LANES : 32, PIECES = CHUNKS * (LANES / NARROW);
    const u32 GROUPS = 256 / NARROW, mate = t / NARROW, own_lane = t % NARROW;
    C(*sums)[V] = (C(*)[V])room;
    __shared__ bool is_last;
    // Adds the sums of all groups; the first group gets the total.
    auto combine = [&](C* sum) {
      for (u32 step = GROUPS / 2; step > 0; step /= 2) {
        __syncthreads();
        if (mate >= step && mate < 2 * step) {
          for (int c = 0; c < V; c++) sums[t][c] = sum[c];
        }
        __syncthreads();
        if (mate < step) {
          for (int c = 0; c < V; c++) sum[c] += sums[t + step * NARROW][c];
        }
      }
    };
    const u32 all_longs = used[1] * PIECES, items = all_longs + used[2] * WINDOWS * PIECES;
    for (u32 item = own_block; item < items; item += LONG_BLOCKS + LATER_BLOCKS) {
      const bool is_huge = item >= all_longs;
      const u32 number = is_huge ? item - all_longs : item, piece = number % PIECES;
      const u32 part = is_huge ? number / PIECES % WINDOWS : 0, which = number / PIECES / (is_huge ? WINDOWS : 1);
      const u64 row = is_huge ? huges[which] : longs[which];
      const u32 held = lengths[row];
      if (!is_huge && held > HUGE) continue;
      // A part of a huge list has several windows, so that it has some terms for each group.
      u32 parts = (held + HUGE - 1) / HUGE;
      if (parts < LEAST_PARTS) parts = LEAST_PARTS;
      if (parts > WINDOWS) parts = WINDOWS;
      if (is_huge && part >= parts) continue;
      const u32 span = (WINDOWS + parts - 1) / parts, words = span * WORDS;
      const i64 column = (i64)(piece * NARROW + own_lane) * V - LEAD(y + row * sy);
      C sum[V] = {};
      __syncthreads();
      for (u32 k = t; is_huge && k < words; k += 256) all_bits[k] = 0;
      __syncthreads();
      const u32 base = part * 32 * words;
      auto put_position = [&](u32 l, u32 p) {
        if (!is_huge) found[l] = p;
        else if (p - base < 32 * words) atomicOr(&all_bits[(p - base) / 32], 1u << p % 32);
      };
      for (u32 l = t; l < CAPACITY; l += 256) put_position(l, arrays[row * CAPACITY + l]);
      u32 link = next[row];
      for (u32 begin = CAPACITY; begin < held; begin *= GROWTH) {
        const u32 here = held - begin < (GROWTH - 1) * begin ? held - begin : (GROWTH - 1) * begin;
#pragma unroll 4
        for (u32 l = t; l < here; l += 256) put_position(begin + l, pool[link + 1 + l]);
        link = pool[link];
      }
      if (!is_huge && t < (0 - held) % 4) found[held + t] = NONE;
      __syncthreads();
      for (u32 k = t; !is_huge && k < held; k += 256) {
        const u32 mine = found[k];
        u32 rank = 0;
#pragma unroll 4
        for (u32 other = 0; other < held; other += 4) {
          const Four four = *(const Four*)(found + other);
#pragma unroll
          for (u32 o = 0; o < 4; o++) rank += four.at[o] < mine;
        }
        order[rank] = mine;
      }
      __syncthreads();
      // Group g has positions g, g + GROUPS, and so on of a sorted list, or these words of bits.
      u32 at = mate, bits = is_huge ? all_bits[mate] : 0;
      auto has_next = [&](u32& p) {
        if (!is_huge) {
          if (at >= held) return false;
          p = order[at];
          at += GROUPS;
          return true;
        }
        while (bits == 0) {
          at += GROUPS;
          if (at >= words) return false;
          bits = all_bits[at];
        }
        p = base + 32 * at + __popc((bits & (~bits + 1)) - 1);
        bits &= bits - 1;
        return true;
      };
      for (bool has_more = column < (i64)n; has_more;) {
        Raw raw[AHEAD];
        C weight[AHEAD];
        u32 taken = 0;
#pragma unroll
        for (u32 a = 0; a < AHEAD; a++) {
          u32 p = 0;
          if (!has_next(p)) continue;
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
        has_more = taken == AHEAD;
      }
      combine(sum);
      if (is_huge && WINDOWS > 1) {
        C* partial = partials + (((u64)which * WINDOWS * PIECES + piece) * NARROW + own_lane) * V;
        if (mate == 0) {
          for (int c = 0; c < V; c++) partial[(u64)part * PIECES * NARROW * V + c] = sum[c];
          __threadfence();
        }
        __syncthreads();
        if (t == 0) is_last = atomicAdd(&done[which * PIECES + piece], 1u) + 1 == parts;
        __syncthreads();
        if (!is_last) continue;
        __threadfence();
        for (int c = 0; c < V; c++) sum[c] = 0;
        for (u32 other = mate; other < parts; other += GROUPS) {
          const volatile C* from = partial + (u64)other * PIECES * NARROW * V;
          for (int c = 0; c < V; c++) sum[c] += from[c];
        }
        combine(sum);
      }
      if (mate == 0 && column < (i64)n) write(row, column, sum);
    }
    return;
  }
"#;

/// Kernel text: a block sorts the lists of its rows, and adds up the terms of each. A thread has eight positions of a list: the rank
/// of each is the number of smaller ones in the list.
const SORT: &str = r#"  const u32 block = blockIdx.x - LONG_BLOCKS, chunk = block % CHUNKS;
  const u64 first = (u64)(block / CHUNKS) * OWN;
  const u32 own_rows = (u32)(rows - first < OWN ? rows - first : OWN);
  const u32 at = 8 * t, list = at / CAPACITY, slot = at % CAPACITY;
  u32 held = 0;
  Four mine[2] = {};
  if (list < own_rows) {
    const Four* from = (const Four*)(arrays + first * CAPACITY + at);
    if (slot == 0) {
      mine[0] = from[0];
      mine[1] = from[1];
    }
    held = lengths[first + list];
    if (slot == 0) length[list] = held;
    if (slot > 0 && slot < held) {
      mine[0] = from[0];
      mine[1] = from[1];
    }
    if (held > CAPACITY) held = 0;
#pragma unroll
    for (u32 c = 0; c < 8; c++) if (slot + c >= held) mine[c / 4].at[c % 4] = NONE;
    ((Four*)(found + at))[0] = mine[0];
    ((Four*)(found + at))[1] = mine[1];
  }
  __syncthreads();
  if (slot < held) {
    u32 rank[8] = {};
    for (u32 other = 0; other < held; other += 4) {
      const Four four = *(const Four*)(found + at - slot + other);
#pragma unroll
      for (u32 o = 0; o < 4; o++) {
#pragma unroll
        for (u32 c = 0; c < 8; c++) rank[c] += four.at[o] < mine[c / 4].at[c % 4];
      }
    }
#pragma unroll
    for (u32 c = 0; c < 8; c++) if (slot + c < held) order[at - slot + rank[c]] = mine[c / 4].at[c % 4];
  }
  __syncthreads();
#pragma unroll
  for (u32 s = 0; s < SEVERAL; s++) {
    const u32 own = s * BESIDE + group;
    const bool is_short = own < own_rows && length[own] <= CAPACITY;
    const i64 column = own < own_rows ? column_of(first + own, chunk) : 0;
    C sum[V] = {};
    if (is_short && column < (i64)n) add_terms(own * CAPACITY, own * CAPACITY + length[own], column, sum);
    total(sum);
    if (is_short && column < (i64)n && own_term == 0) write(first + own, column, sum);
  }
"#;
