//! Totals that the blocks of a scan exchange while they run. Each block publishes the totals of its tile, waits for those of
//! earlier tiles, and continues their sums. Totals are combined in a fixed order, so that results are reproducible.
//!
//! The totals of several tiles, a group, are combined to one, and those of as many groups to that of all tiles up to the last of
//! these groups. A block reads the totals of the earlier tiles of its group, of the earlier groups, and of all tiles
//! before those, all at the same time and at most one or a few per thread.
//!
//! Blocks start in the order of their numbers, and a block waits only for blocks with lower numbers, so that no block
//! waits for one that cannot start.

use super::*;
use crate::ops::kernels::kernel::{BLOCK, Parameter, bounds, launch, param, u64_param};
use crate::ops::kernels::occupancy::{WARP, share};

/// Minimum number of tiles of a group.
const MIN_RADIX: u64 = 16;

/// Maximum number of columns, for each of which at least two threads read totals.
pub const MAX_COLUMNS: u64 = BLOCK as u64 / 2;

/// Totals that blocks publish in memory. A 64-bit word has a mark and 32 bits of a total, so that a reader sees both or neither.
pub struct Totals {
    /// Number of words of all totals.
    words: u64,
    /// Number of words of a total.
    each: u64,
}

impl Totals {
    /// Returns this many totals of a type.
    pub fn of(count: u64, compute: DType) -> Totals {
        let each = compute.size() / 4;
        Totals { words: count * each, each }
    }

    /// Returns the parameter of the totals, `totals`.
    pub fn parameter(&self) -> Parameter {
        param("volatile u64* totals", Arg::Workspace(8 * self.words))
    }

    /// Returns the launch that marks all totals as unpublished.
    pub fn clear(&self, scan: &Scan) -> Launch {
        let params = [self.parameter(), u64_param("all", self.words)];
        let body = "  if (GLOBAL_INDEX < all) totals[GLOBAL_INDEX] = 0;\n";
        let blocks = self.words.div_ceil(u64::from(BLOCK));
        launch(&format!("{}_clear", scan.name()), &bounds(BLOCK), &params, body, blocks, BLOCK)
    }

    /// Returns the cost of [`Totals::clear`].
    pub fn clear_cost(&self) -> Cost {
        Cost {
            written: Traffic::of(Space::Device, 8 * self.words),
            blocks: self.words.div_ceil(u64::from(BLOCK)),
            share: share(u64::from(BLOCK)),
            ..Cost::default()
        }
    }

    /// Returns kernel text that defines `publish`, and the parts of a total, for the type `C`.
    pub fn text(&self) -> String {
        format!("#define WORDS {}\n{PUBLISH}", self.each)
    }
}

/// Kernel text that publishes a total.
const PUBLISH: &str = r#"
union Total { C total; u32 bits[WORDS]; __device__ Total() {} };
__device__ inline void publish(volatile u64* to, C total) {
  Total own;
  own.total = total;
#pragma unroll
  for (int w = 0; w < WORDS; w++) to[w] = (u64)1 << 32 | own.bits[w];
}
"#;

/// Sequences of tiles, each of which continues the sums of the tiles before it.
pub struct LookBack {
    /// Number of sequences that do not depend on one another.
    pub chains: u64,
    /// Number of tiles of a sequence.
    pub tiles: u64,
    /// Number of totals of a tile: a power of two, at most [`MAX_COLUMNS`].
    pub columns: u64,
}

impl LookBack {
    /// Number of tiles of a group, and of groups that are combined.
    fn radix(&self) -> u64 {
        (u64::from(BLOCK) / self.columns / 2).max(MIN_RADIX)
    }

    /// Number of totals of a sequence: those of tiles, then those of groups, then those of all tiles up to a group.
    pub fn chain(&self) -> u64 {
        let groups = self.tiles.div_ceil(self.radix());
        self.columns * (self.tiles + groups + groups.div_ceil(self.radix()))
    }

    /// Returns the totals of all sequences.
    pub fn totals(&self, compute: DType) -> Totals {
        Totals::of(self.chains * self.chain(), compute)
    }

    /// Returns kernel text that defines `look_back`, for blocks of [`BLOCK`] threads. The types and `JOIN` must
    /// have been [defined](super::kernel::definitions), and [`Totals::text`] comes before it.
    pub fn text(&self) -> String {
        format!(
            "#define COLUMNS {}\n#define RADIX {}\n#define ROWS_FOUND {}\n#define READERS ({BLOCK} / COLUMNS)\n{LOOK_BACK}",
            self.columns,
            self.radix(),
            u64::from(BLOCK) / self.columns.max(WARP),
        )
    }
}

/// Kernel text that publishes the totals of a tile and waits for those of earlier tiles.
const LOOK_BACK: &str = r#"
// Totals that a thread waits for.
#define AWAITED (2 * RADIX / READERS)
struct Awaited {
  C total[AWAITED];
  // The totals are neighbours, apart from the last one.
  const volatile u64 *first, *last;
  u32 missing;
  // Reads missing totals. All loads are issued before the first is used. Returns whether none is missing any more.
  __device__ bool read() {
    u64 words[AWAITED][WORDS];
#pragma unroll
    for (int e = 0; e < AWAITED; e++)
#pragma unroll
      for (int w = 0; w < WORDS; w++) {
        words[e][w] = 0;
        if (missing >> e & 1) words[e][w] = (e == AWAITED - 1 ? last : first + e * (COLUMNS * WORDS))[w];
      }
#pragma unroll
    for (int e = 0; e < AWAITED; e++) {
      Total other;
      bool is_published = true;
#pragma unroll
      for (int w = 0; w < WORDS; w++) {
        other.bits[w] = (u32)words[e][w];
        is_published = is_published && words[e][w] >> 32 != 0;
      }
      if (is_published) {
        total[e] = other.total;
        missing &= ~(1u << e);
      }
    }
    return missing == 0;
  }
  // Waits, and combines the totals of the threads of a warp that have the same column.
  __device__ C sum() {
    while (!read()) {}
    C sum = total[0];
#pragma unroll
    for (int e = 1; e < AWAITED; e++) sum = JOIN(sum, total[e]);
#pragma unroll
    for (int mask = COLUMNS; mask < 32; mask *= 2) sum = JOIN(sum, SHUFFLE_XOR(sum, mask));
    return sum;
  }
};
// Publishes the totals of a tile of a sequence, and waits for those of earlier tiles: the rows of `found` have parts of their sums.
// `total` is that of column `threadIdx.x % COLUMNS`.
__device__ inline void look_back(volatile u64* totals, u32 tile, u32 tiles, C total, C (&found)[ROWS_FOUND][COLUMNS]) {
  const u32 column = threadIdx.x % COLUMNS, reader = threadIdx.x / COLUMNS, row = threadIdx.x / (COLUMNS < 32 ? 32 : COLUMNS);
  const u32 group = tile / RADIX, all = group / RADIX, groups = (tiles + RADIX - 1) / RADIX;
  const u32 earlier = tile % RADIX, earlier_groups = group % RADIX;
  totals += column * WORDS;
  if (reader == 0) publish(totals + (u64)tile * (COLUMNS * WORDS), total);
  // The lower half of the threads reads the totals of tiles, the upper half those of groups and that of all tiles before these.
  const bool of_tiles = reader < READERS / 2, is_last = earlier == RADIX - 1;
  const u32 i = reader % (READERS / 2) * AWAITED, count = of_tiles ? earlier : earlier_groups;
  Awaited awaited;
  awaited.first = totals + (u64)((of_tiles ? tile - earlier : tiles + group - earlier_groups) + i) * (COLUMNS * WORDS);
  awaited.last = awaited.first + (AWAITED - 1) * (COLUMNS * WORDS);
  awaited.missing = i >= count ? 0 : (1u << (count - i < AWAITED ? count - i : AWAITED)) - 1;
  if (!of_tiles && i + AWAITED == RADIX && all > 0) {
    awaited.last = totals + (u64)(tiles + groups + all - 1) * (COLUMNS * WORDS);
    awaited.missing |= 1u << (AWAITED - 1);
  }
#pragma unroll
  for (int e = 0; e < AWAITED; e++) awaited.total[e] = NONE;
  awaited.read();
  if (of_tiles) {
    const C sum = awaited.sum();
    if (COLUMNS >= 32 || threadIdx.x % 32 < COLUMNS) found[row][column] = sum;
  }
  if (is_last) {
    __syncthreads();
    C sum = total;
#pragma unroll
    for (int r = 0; r < ROWS_FOUND / 2; r++) sum = JOIN(found[r][column], sum);
    if (reader == 0) publish(totals + (u64)(tiles + group) * (COLUMNS * WORDS), sum);
  }
  if (!of_tiles) {
    const C sum = awaited.sum();
    if (COLUMNS >= 32 || threadIdx.x % 32 < COLUMNS) found[row][column] = sum;
  }
  __syncthreads();
  if (is_last && earlier_groups == RADIX - 1) {
    C sum = total;
#pragma unroll
    for (int r = 0; r < ROWS_FOUND; r++) sum = JOIN(found[r][column], sum);
    if (reader == 0) publish(totals + (u64)(tiles + groups + all) * (COLUMNS * WORDS), sum);
  }
}
"#;
