//! A stable radix sort of keys with their positions. Its time does not depend on the keys.
//!
//! Each pass sorts by one digit of the keys. A block processes a tile of consecutive positions: one kernel counts the keys of each
//! tile per digit, and the next moves them behind those of smaller digits and of earlier tiles, which preserves their order.
//! Between the two, a third kernel adds up the counts if there are many. A list of one tile is sorted by a single kernel.

use super::kernel::{
    BLOCK, Parameter, bounds, c_type, geometry_param, index_type, launch, param, u32_param, u64_param,
};
use super::occupancy::{LARGEST_BLOCK, SECTOR, UNITS, share, share_with};
use super::select::GROUPS;
use crate::ops::{Arg, Cost, Geometry, Launch, Tensor, Traffic};

/// Maximum number of bits per digit for keys of 4 bytes. Each warp has a counter for each digit in shared memory.
const BITS: u32 = 9;
/// Maximum number of bits per digit for keys or positions of 8 bytes.
const BITS_WIDE: u32 = 8;

/// Minimum number of bits per digit, since counters are read in packs of 16 bytes.
const MIN_BITS: u32 = 5;

/// Minimum number of positions per thread, which registers hold, in lists of several tiles.
const MIN_HELD: u64 = 4;
/// Maximum number of positions per thread in lists of several tiles. A warp ranks its positions one after the other; more tiles with
/// fewer positions hide more of that latency. With 8 positions instead of 16, a row of 562,200 `f32` took 73 µs instead of 85 on an
/// H100.
const MAX_HELD: u64 = 8;
/// Maximum number of positions per thread in a list of one tile, which a single kernel sorts.
const MAX_HELD_ALONE: u64 = 16;

/// Maximum number of bytes of counts that all blocks of a pass read to add up those of their lists themselves. Reading more takes longer
/// than another launch: about 5 µs on an H100, with the counts in the second-level cache.
const ADDED_BYTES: u64 = 24 << 20;

/// Instructions per position and pass of the kernel that counts, from hardware counters of an H100.
const PER_COUNTED: f64 = 53.0;
/// Instructions per position and pass of the kernel that moves, from hardware counters of an H100.
const PER_MOVED: f64 = 75.0;

/// Instructions per thread and pass of the kernel that moves, with digits of [`BITS`] bits; most of them are for the
/// counters.
const PER_MOVER: f64 = 700.0;

/// Instructions per position that an SM could issue while the kernel that moves waits for conflicting accesses to
/// shared memory and for comparisons of digits: on an H100, four passes over 16.8 million positions in 16 lists took 1250 µs with
/// 8 positions per thread.
const CONFLICTS: f64 = 280.0;
/// Instructions per position, as for [`CONFLICTS`], of the single kernel that sorts a short list.
const CONFLICTS_ALONE: f64 = 110.0;
/// Instructions per position, as for [`CONFLICTS`], of the kernel that counts.
const COUNT_CONFLICTS: f64 = 30.0;

/// Registers of a thread of the kernel that moves, besides those for its positions, and per position: it has 64 with 4 positions and 110
/// with 16 (measured on an H100).
const OTHER_REGISTERS: u64 = 49;
const PER_HELD: u64 = 4;

/// Number of exchanges of values among a block per pass: two sums over all threads, and eight barriers.
const EXCHANGES: f64 = 4.0;

/// Instructions for adding up one count of a tile.
const PER_COUNT: f64 = 10.0;

/// Size in bytes of a count of a tile, if no kernel replaces it by a sum.
const COUNT_BYTES: u64 = 2;

/// Number of tiles whose counts a thread of the kernel that adds up counts reads at once.
const SUMMED_AT_ONCE: u64 = 8;
/// Number of tiles whose counts a thread of the kernel that moves reads at once.
const ADDED_AT_ONCE: u64 = 4;

/// A sort of several lists of the same length, each on its own.
///
/// The workspace begins with the number of sorted positions, followed by two halves of keys and two halves of
/// positions. Each pass reads one half and writes the other.
#[derive(Clone, Copy, Debug)]
pub struct Radix {
    lists: u64,
    length: u64,
    /// Size of a key in bytes, 4 or 8.
    key: u64,
    /// Number of bits per digit.
    bits: u32,
    /// Number of digits. There is one pass for each.
    passes: u32,
    /// Number of positions per thread, which registers hold.
    held: u64,
    /// Number of tiles per list.
    tiles: u64,
}

/// Kernel text, parameters and names that an operation adds to a radix sort: how keys are loaded, and how results are
/// stored.
pub struct Client<'a> {
    /// Kernel text that includes [`GROUPS`] and defines these macros. `DROPS` is 1 if some positions are left out,
    /// otherwise 0; a sort of several lists cannot leave out any, since the workspace has one number of sorted
    /// positions for all. `FIRST(list, p, key)` assigns the key of position `p` to `key`, and is false if the position
    /// is left out. `LEAVE(list, at, key, place)` stores an element of the result; without it, the last pass writes to
    /// the workspace.
    pub text: &'a str,
    pub params: &'a [Parameter],
    /// Names of the kernels: of the single one for short lists, and of those that count, add up counts, and move.
    pub names: [&'static str; 4],
}

impl Radix {
    /// Returns the sort of `lists` lists by the lowest `all` bits of keys, which have `key` bytes.
    pub fn of(lists: u64, length: u64, key: u64, all: u32) -> Radix {
        let all = all.max(1);
        let is_wide = key.max(bytes(index_type(length))) == 8;
        let passes = all.div_ceil(if is_wide { BITS_WIDE } else { BITS });
        let threads = u64::from(BLOCK);
        let held = match length.div_ceil(threads) {
            held @ 0..=MAX_HELD_ALONE => held.max(1),
            _ => (lists * length).div_ceil(threads * UNITS).clamp(MIN_HELD, MAX_HELD).next_power_of_two(),
        };
        let tiles = length.div_ceil(held * threads).max(1);
        Radix { lists, length, key, bits: all.div_ceil(passes).max(MIN_BITS), passes, held, tiles }
    }

    /// Number of passes, one for each digit.
    pub fn passes(&self) -> u32 {
        self.passes
    }

    /// True if a single kernel sorts each list.
    pub fn is_alone(&self) -> bool {
        self.tiles == 1
    }

    /// True if a kernel of its own adds up the counts of tiles. Otherwise, the blocks that move do so.
    fn is_summed(&self) -> bool {
        self.lists * self.tiles * self.tiles * self.buckets() * COUNT_BYTES > ADDED_BYTES
    }

    /// Number of different values of a digit.
    fn buckets(&self) -> u64 {
        1 << self.bits
    }

    /// Size in bytes of a key with its position.
    pub fn entry(&self) -> u64 {
        self.key + self.place()
    }

    fn place(&self) -> u64 {
        bytes(index_type(self.length))
    }

    /// Offset in bytes of the counts in the workspace, after the number of positions, the keys and the positions.
    fn halves(&self) -> u64 {
        (16 + 2 * self.lists * self.length * (self.key + self.place())).next_multiple_of(16)
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> u64 {
        let counted = match self.tiles {
            1 => 0,
            _ => self.lists * (self.tiles * if self.is_summed() { 4 } else { COUNT_BYTES } + 4) * self.buckets(),
        };
        self.halves() + counted
    }

    /// Bytes of keys and positions that all passes read; they write as many.
    pub fn moved(&self) -> u64 {
        u64::from(self.passes) * self.lists * self.length * (self.key + self.place())
    }

    /// Number of instructions of all launches.
    pub fn instructions(&self) -> f64 {
        self.launch_costs(self.key, self.entry()).iter().map(|cost| cost.instructions).sum()
    }

    /// Returns the cost of each launch. `given` is the size in bytes of a key as the first pass reads it. `left` is the
    /// size of an element of the result, which takes the place of a key and a position in the workspace.
    pub fn launch_costs(&self, given: u64, left: u64) -> Vec<Cost> {
        let (positions, entry) = (self.lists * self.length, self.entry());
        let device = |bytes| Traffic { device: bytes, host: 0 };
        let tiles = self.lists * self.tiles;
        let with = |instructions, read, written, blocks, threads| Cost {
            instructions,
            read: device(read),
            written: device(written),
            blocks,
            share: share(threads),
            ..Cost::default()
        };
        let threads = u64::from(BLOCK);
        let movers = PER_MOVER * self.buckets() as f64 / f64::from(1 << BITS) * (tiles * threads) as f64;
        if self.is_alone() {
            let of_passes = PER_MOVED * positions as f64 + movers;
            let passes = f64::from(self.passes);
            let cost = with(passes * of_passes, positions * given, positions * left, tiles, threads);
            let conflicts = CONFLICTS_ALONE * passes * positions as f64;
            return vec![Cost { conflicts, waits: 1.0, exchanges: EXCHANGES * passes, ..cost }];
        }
        let size = if self.is_summed() { 4 } else { COUNT_BYTES };
        let counts = tiles * self.buckets();
        // A tile writes a contiguous range for each digit that it has.
        let ranges = (2 * counts.min(positions)) as f64;
        let mut costs = Vec::new();
        for pass in 0..self.passes {
            let (of_key, of_entry) = if pass == 0 { (given, given) } else { (self.key, entry) };
            let is_last = pass + 1 == self.passes;
            let written = if is_last { left } else { entry };
            let cost = with(PER_COUNTED * positions as f64, positions * of_key, counts * size, tiles, threads);
            costs.push(Cost { conflicts: COUNT_CONFLICTS * positions as f64, exchanges: 1.0, ..cost });
            if self.is_summed() {
                let each = self.tiles.div_ceil(32);
                let cost =
                    with(2.0 * PER_COUNT * counts as f64, counts * size, counts * size, self.summing(), LARGEST_BLOCK);
                costs.push(Cost { waits: (2 * each.div_ceil(SUMMED_AT_ONCE)) as f64, ..cost });
            }
            // Without sums, each tile adds up the counts of all tiles of its list.
            let added = if self.is_summed() { 0 } else { counts * self.tiles };
            let rounds = (added / tiles / 8).div_ceil(threads).div_ceil(ADDED_AT_ONCE);
            let instructions = PER_MOVED * positions as f64 + movers + PER_COUNT / 2.0 * added as f64;
            let cost = with(instructions, positions * of_entry, positions * written, tiles, threads);
            costs.push(Cost {
                reread: device(added * size),
                sectors: (positions * (of_entry + written) / SECTOR) as f64 + ranges,
                conflicts: CONFLICTS * positions as f64,
                waits: (rounds + u64::from(is_last)) as f64,
                exchanges: EXCHANGES,
                share: share_with(threads, OTHER_REGISTERS + PER_HELD * self.held),
                ..cost
            });
        }
        costs
    }

    /// Total number of blocks of all kernels.
    pub fn blocks(&self) -> u64 {
        let tiles = self.lists * self.tiles;
        match self.tiles {
            1 => tiles,
            _ => u64::from(self.passes) * (2 * tiles + if self.is_summed() { self.summing() } else { 0 }),
        }
    }

    /// Number of blocks that add up counts: each has 32 digits of a list.
    fn summing(&self) -> u64 {
        self.lists * self.buckets() / 32
    }

    /// Number of the half of the workspace, 0 or 1, that holds the result.
    pub fn side(&self) -> u32 {
        (self.passes - 1) % 2
    }

    /// Returns kernel text with the types of keys and positions, and functions that find the parts of the workspace:
    /// `live(workspace)` is the number of positions that were not left out; `keys_of(workspace, side)` and
    /// `places_of(workspace, side)` are the sorted keys and positions.
    pub fn text(&self) -> String {
        let all = self.lists * self.length;
        format!(
            "typedef {} Key;\ntypedef {} P;\n#define SORTED {all}ull\n{PARTS}",
            if self.key == 8 { "u64" } else { "u32" },
            index_type(self.length),
        )
    }

    pub fn launches(&self, client: &Client) -> Vec<Launch> {
        let counted = if self.is_summed() { "u32" } else { "unsigned short" };
        let before = format!(
            "{}{}#define DIGIT {}\n#define PASSES {}\n#define HELD {}\n#define TILES {}\n#define SUMMED {}\n\
             #define COUNTED_AT {}ull\ntypedef {counted} Counted;\n{EQUALS}",
            self.text(),
            client.text,
            self.bits,
            self.passes,
            self.held,
            self.tiles,
            u32::from(self.is_summed()),
            self.halves(),
        );
        let [alone, count, sum, mover] = client.names;
        let step = |name, body: &str, pass: u32, grid: u64, threads: u32| {
            let mut params = vec![
                param("u8* workspace", Arg::Workspace(self.workspace())),
                u64_param("length", self.length),
                u32_param("pass", u64::from(pass)),
            ];
            params.extend_from_slice(client.params);
            let before = format!("{}{before}", bounds(threads));
            launch(name, &before, &params, &format!("{TILE}{body}"), grid, threads)
        };
        let tiles = self.lists * self.tiles;
        if self.tiles == 1 {
            return vec![step(alone, MOVE, 0, tiles, BLOCK)];
        }
        let mut launches = Vec::new();
        for pass in 0..self.passes {
            launches.push(step(count, COUNT, pass, tiles, BLOCK));
            if self.is_summed() {
                launches.push(step(sum, SUM, pass, self.summing(), LARGEST_BLOCK as u32));
            }
            launches.push(step(mover, MOVE, pass, tiles, BLOCK));
        }
        launches
    }
}

/// Sorts the positions of indices by the row that each index names. Positions whose index names no row are left out.
#[derive(Clone, Copy, Debug)]
pub struct RowSort {
    radix: Radix,
    rows: u64,
}

impl RowSort {
    pub fn of(count: u64, rows: u64) -> RowSort {
        let high = u64::BITS - rows.saturating_sub(1).leading_zeros();
        RowSort { radix: Radix::of(1, count, bytes(index_type(rows)), high), rows }
    }

    /// The sort of the positions by row.
    pub fn radix(&self) -> &Radix {
        &self.radix
    }

    /// Returns the kernels. `indices` is the operand with number `operand`, and the tensor with number `which` in
    /// `walk`.
    pub fn launches(&self, indices: &Tensor, operand: u8, walk: &Geometry, which: usize) -> Vec<Launch> {
        let text = format!("#define WHICH {which}\n#define DROPS 1\n{GROUPS}{ROWS}");
        let params = [
            param(format!("const {}* __restrict__ i", c_type(indices.dtype)), Arg::Operand(operand)),
            geometry_param("walk", walk),
            u64_param("rows", self.rows),
        ];
        let names = ["sort_rows", "sort_count", "sort_sum", "sort_move"];
        self.radix.launches(&Client { text: &text, params: &params, names })
    }
}

/// Size in bytes of an index type.
fn bytes(index: &str) -> u64 {
    if index == "u32" { 4 } else { 8 }
}

/// Kernel text: the key of a position is the row that its index names.
const ROWS: &str = r#"
#define FIRST(list, p, key) ([&]() { \
  i64 index = (i64)i[walk.offset(p, WHICH)]; \
  key = (Key)index; \
  return index >= 0 && (u64)index < rows; \
}())
"#;

const PARTS: &str = r#"
__device__ inline P& live(void* workspace) { return *(P*)workspace; }
__device__ inline Key* keys_of(void* workspace, u32 side) { return (Key*)((u8*)workspace + 16) + side * SORTED; }
__device__ inline P* places_of(void* workspace, u32 side) {
  return (P*)((u8*)workspace + 16 + 2 * SORTED * sizeof(Key)) + side * SORTED;
}
"#;

/// Kernel text: compares a value with those of the 32 threads of a warp.
pub const EQUALS: &str = r#"
// Returns the value of a lane of the 32 threads.
#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define SHUFFLE(value, lane) __shfl(value, (int)(lane), 32)
#else
#define SHUFFLE(value, lane) __shfl_sync(0xffffffffu, value, (int)(lane))
#endif
// Returns how many lower threads have the same value; `same` becomes the number of threads with it, and `leader` the lowest.
__device__ inline u32 equals32(u32 value, u32& same, u32& leader) {
  u32 lane = threadIdx.x % 32;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  u32 equal = __match_any_sync(0xffffffffu, value);
#else
  u32 equal = 1u << lane;
#pragma unroll
  for (u32 mask = 1; mask < 32; mask++) equal |= (u32)(SHUFFLE_XOR(value, mask) == value) << (lane ^ mask);
#endif
  same = __popc(equal);
  leader = __popc((equal & (~equal + 1)) - 1);
  return __popc(equal & ((1u << lane) - 1));
}
"#;

/// Kernel text: the block's tile. Each warp has consecutive positions, of which each thread has every 32nd.
const TILE: &str = r#"  const u32 BINS = 1u << DIGIT;
  u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
  Counted* counted = (Counted*)(workspace + COUNTED_AT);
  const u32 each_tile = HELD * 256;
  u64 list = blockIdx.x / TILES, begin = (u64)(blockIdx.x % TILES) * each_tile;
  auto position = [&](u32 h) { return warp * (32 * HELD) + h * 32 + lane; };
  auto digit = [&](Key key, u32 of_pass) { return (u32)(key >> of_pass * DIGIT) & (BINS - 1); };
  // Number of positions of the tile.
  auto size = [&]() {
    u64 all = DROPS && pass > 0 ? (u64)live(workspace) : length;
    return all < begin ? 0u : all - begin < each_tile ? (u32)(all - begin) : each_tile;
  };
  // Reads a key of the tile; false if there is none.
  auto read = [&](u32 l, u32 all, Key& key) {
    if (l >= all) return false;
    if (pass == 0) return (bool)FIRST(list, (P)(begin + l), key);
    key = keys_of(workspace, (pass - 1) % 2)[list * length + begin + l];
    return true;
  };
"#;

/// Kernel text: counts the keys of the block's tile per digit.
const COUNT: &str = r#"  __shared__ u32 counts[8][1 << DIGIT];
  for (u32 b = t; b < 8 * BINS; b += 256) (&counts[0][0])[b] = 0;
  u32 all = size();
  Key key[HELD];
  bool is_read[HELD];
#pragma unroll
  for (u32 h = 0; h < HELD; h++) is_read[h] = read(position(h), all, key[h]);
  __syncthreads();
#pragma unroll
  for (u32 h = 0; h < HELD; h++) if (is_read[h]) atomicAdd(&counts[warp][digit(key[h], pass)], 1u);
  __syncthreads();
  for (u32 b = t; b < BINS; b += 256) {
    u32 sum = 0;
#pragma unroll
    for (u32 w = 0; w < 8; w++) sum += counts[w][b];
    counted[(u64)blockIdx.x * BINS + b] = (Counted)sum;
  }
"#;

/// Kernel text: replaces the counts of tiles by sums over earlier tiles, and writes the total of each digit behind them. A block has
/// 32 digits of a list, and each of its warps some tiles.
const SUM: &str = r#"  __shared__ u32 parts[32][32];
  list = blockIdx.x / (BINS / 32);
  u32 b = blockIdx.x % (BINS / 32) * 32 + lane;
  const u32 each = (TILES + 31) / 32;
  u32 from = warp * each < TILES ? warp * each : TILES, to = from + each < TILES ? from + each : TILES, sum = 0;
  Counted* of_list = counted + list * TILES * BINS + b;
#pragma unroll 8
  for (u32 tile = from; tile < to; tile++) sum += of_list[(u64)tile * BINS];
  parts[warp][lane] = sum;
  __syncthreads();
  u32 before = 0, all = 0;
#pragma unroll
  for (u32 w = 0; w < 32; w++) {
    if (w == warp) before = all;
    all += parts[w][lane];
  }
#pragma unroll 8
  for (u32 tile = from; tile < to; tile++) {
    u32 of_tile = of_list[(u64)tile * BINS];
    of_list[(u64)tile * BINS] = (Counted)before;
    before += of_tile;
  }
  u32* totals = (u32*)(counted + gridDim.x / (BINS / 32) * (u64)TILES * BINS);
  if (warp == 0) totals[list * BINS + b] = all;
"#;

/// Kernel text: moves the keys and positions of the block's tile. Each warp ranks its keys among those with the same digit. The tile
/// is put into order in shared memory, so that neighbouring threads write neighbouring elements.
const MOVE: &str = r#"  __shared__ u32 cursor[8][1 << DIGIT], local[1 << DIGIT], before[1 << DIGIT], total[1 << DIGIT];
  __shared__ P starts[1 << DIGIT];
  __shared__ union { Key keys[HELD * 256]; P places[HELD * 256]; } slots;
  Block block = {0};
  u32 all = size();
  Key key[HELD];
  P place[HELD];
  u32 bin[HELD], rank[HELD];
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    u32 l = position(h);
    bin[h] = read(l, all, key[h]) ? digit(key[h], pass) : BINS;
    place[h] = l >= all || pass == 0 ? (P)(begin + l) : places_of(workspace, (pass - 1) % 2)[list * length + begin + l];
  }
  for (u32 b = t; b < BINS; b += 256) before[b] = total[b] = 0;
  __syncthreads();
  if (TILES > 1 && !SUMMED) {
    // A thread adds up eight digits of some tiles.
    typedef Pack<Counted, 8> Counts;
    const u32 packs = BINS / 8, own = t % packs, tile = blockIdx.x % TILES;
    u32 sums[8] = {}, earlier[8] = {};
#pragma unroll 4
    for (u32 other = t / packs; other < TILES; other += 256 / packs) {
      Counts counts = ((const Counts*)(counted + (list * TILES + other) * BINS))[own];
#pragma unroll
      for (int c = 0; c < 8; c++) {
        sums[c] += counts.at[c];
        if (other < tile) earlier[c] += counts.at[c];
      }
    }
#pragma unroll
    for (int c = 0; c < 8; c++) {
      if (sums[c] > 0) atomicAdd(&total[own * 8 + c], sums[c]);
      if (earlier[c] > 0) atomicAdd(&before[own * 8 + c], earlier[c]);
    }
  }
#if SUMMED
  const u32* totals = (const u32*)(counted + (u64)gridDim.x * BINS);
  for (u32 b = t; b < BINS; b += 256) {
    before[b] = counted[(u64)blockIdx.x * BINS + b];
    total[b] = totals[list * BINS + b];
  }
#endif
  for (u32 now = pass; now < (TILES == 1 ? PASSES : pass + 1); now++) {
    for (u32 b = t; b < 8 * BINS; b += 256) (&cursor[0][0])[b] = 0;
    __syncthreads();
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      u32 same, leader, lower = equals32(bin[h], same, leader), first = 0;
      if (lower == 0 && bin[h] < BINS) first = atomicAdd(&cursor[warp][bin[h]], same);
      rank[h] = SHUFFLE(first, leader) + lower;
    }
    __syncthreads();
    // Each thread has neighbouring digits.
    const u32 own = (BINS + 255) / 256;
    u32 of_digit[own], of_thread = 0, all_here = 0;
    P in_list[own], in_thread = 0, all_of_list = 0;
#pragma unroll
    for (u32 c = 0; c < own; c++) {
      u32 b = t * own + c, sum = 0;
      if (b < BINS) {
#pragma unroll
        for (u32 w = 0; w < 8; w++) {
          u32 of_warp = cursor[w][b];
          cursor[w][b] = sum;
          sum += of_warp;
        }
      }
      of_digit[c] = of_thread;
      of_thread += sum;
      in_list[c] = in_thread;
      in_thread += TILES == 1 ? sum : b < BINS ? total[b] : 0u;
    }
    u32 at = block.before(of_thread, all_here);
    P at_list = block.before(in_thread, all_of_list);
#pragma unroll
    for (u32 c = 0; c < own; c++) {
      u32 b = t * own + c;
      if (b >= BINS) continue;
      local[b] = at + of_digit[c];
      starts[b] = at_list + in_list[c] + before[b] - local[b];
    }
    if (blockIdx.x == 0 && t == 0 && now == 0) live(workspace) = all_of_list;
    __syncthreads();
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      if (bin[h] == BINS) continue;
      rank[h] += local[bin[h]] + cursor[warp][bin[h]];
      slots.keys[rank[h]] = key[h];
    }
    __syncthreads();
#pragma unroll
    for (u32 h = 0; h < HELD; h++) if (position(h) < all_here) key[h] = slots.keys[position(h)];
    __syncthreads();
#pragma unroll
    for (u32 h = 0; h < HELD; h++) if (bin[h] < BINS) slots.places[rank[h]] = place[h];
    __syncthreads();
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      const bool is_held = position(h) < all_here;
      if (is_held) place[h] = slots.places[position(h)];
      rank[h] = is_held ? digit(key[h], now) : BINS;
      bin[h] = is_held && now + 1 < PASSES ? digit(key[h], now + 1) : BINS;
    }
    if (TILES == 1 && now + 1 < PASSES) continue;
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      if (rank[h] == BINS) continue;
      u64 to = (P)(starts[rank[h]] + position(h));
#ifdef LEAVE
      if (now + 1 == PASSES) {
        LEAVE(list, to, key[h], place[h])
        continue;
      }
#endif
      keys_of(workspace, now % 2)[list * length + to] = key[h];
      places_of(workspace, now % 2)[list * length + to] = place[h];
    }
  }
"#;
