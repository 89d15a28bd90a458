//! Source text that divides the tiles of all groups among blocks.

/// Tiles of a block, and its parts of tiles. The text follows [`super::text::TILES`].
///
/// With `SPLIT`, blocks share the depth of the last tiles if that takes fewer steps ("stream-k": Osama et al.,
/// "Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication on the GPU", 2023). A second
/// kernel adds up the parts of a tile. If groups are parts of the depth, and each block takes the next tile as soon as
/// it is free, whole tiles may take no longer. Blocks then share none: they would read parts of the factors at
/// different times, and the L2 cache would hold these for none of them. Blocks assign tiles so only if this takes at
/// most half of the time that it can save. The assignment of tiles and steps to blocks depends only on the ends of the
/// groups, so results are reproducible.
pub const SHARES: &str = r#"
#define SHARES Schedule
#if SPLIT
#undef SHARES
#define SHARES Shares
// Whether blocks can take whole tiles by lists.
#define LISTS (IN_DEPTH && BULK)
#if LISTS
// Returns the smallest number of steps that any assignment of whole tiles can take: not less than the mean of all blocks, and
// if the largest tiles are more than there are blocks, some block takes several of them. `room` has space for two numbers per group.
__device__ inline u32 least_steps(const Schedule& schedule, u32 even, u32* room) {
  u32 *steps = room, *least = room + schedule.groups, each = schedule.row_tiles * schedule.columns;
  for (u32 g = threadIdx.x; g < schedule.groups; g += ALL_THREADS) steps[g] = schedule.tiles[g] - (g > 0 ? schedule.tiles[g - 1] : 0);
  if (threadIdx.x == 0) *least = even;
  __syncthreads();
  for (u32 g = threadIdx.x; g < schedule.groups; g += ALL_THREADS) {
    u32 as_large = 0;
    for (u32 other = 0; other < schedule.groups; other++) as_large += steps[other] >= steps[g];
    atomicMax(least, (as_large * each + AT_ONCE - 1) / AT_ONCE * steps[g]);
  }
  __syncthreads();
  u32 result = *least;
  __syncthreads();
  return result;
}
// Assigns each tile to the block that is free first, in the order of the groups (list scheduling). `own` gets the tiles of this block,
// their number, and the number of steps until the last block is free: the largest number if a block has more tiles than fit.
//
// A warp keeps the times at which blocks are free, in steps. The tiles of a group take equally long, so that all blocks
// that are free before any of them could complete a tile take one at the same time.
__device__ inline void assign(const Schedule& schedule, u32* own) {
  if (threadIdx.x < 32) {
    const int EACH_LANE = (AT_ONCE + 31) / 32;
    u32 lane = threadIdx.x, each = schedule.row_tiles * schedule.columns, free[EACH_LANE], counts[EACH_LANE];
    auto is_block = [&](int i) { return i * 32 + lane < AT_ONCE; };
    EACH(i, EACH_LANE) free[i] = is_block(i) ? 0 : ~0u, counts[i] = 0;
    auto before = [&](u32 time) {
      u32 count = 0;
      EACH(i, EACH_LANE) count += free[i] < time;
      return __reduce_add_sync(~0u, count);
    };
    for (u32 g = 0; g < schedule.groups; g++) {
      u32 steps = schedule.tiles[g] - (g > 0 ? schedule.tiles[g - 1] : 0), tile = g * each, end = tile + each;
      while (tile < end) {
        u32 first = ~0u;
        EACH(i, EACH_LANE) first = free[i] < first ? free[i] : first;
        first = __reduce_min_sync(~0u, first);
        // Latest time before which no more blocks are free than tiles are left.
        u32 low = first, high = first + steps;
        bool all = before(high) <= end - tile;
        if (all) low = high;
        while (low + 1 < high) {
          u32 middle = (low + high) / 2;
          if (before(middle) <= end - tile) low = middle; else high = middle;
        }
        // Blocks that are free then take what is left.
        for (u32 later = 0; later < (all ? 1 : 2); later++) {
          EACH(i, EACH_LANE) {
            bool takes = later ? free[i] == low : free[i] < low;
            u32 mask = __ballot_sync(~0u, takes), number = tile + __popc(mask & (1u << lane) - 1);
            if (takes && number < end) {
              if (i * 32 + lane == blockIdx.x / CLUSTER && counts[i] < MAX_OWN) own[counts[i]] = number;
              free[i] += steps;
              counts[i]++;
            }
            tile += __popc(mask);
          }
        }
      }
    }
    u32 most = 0, last = 0;
    EACH(i, EACH_LANE) {
      most = counts[i] > most ? counts[i] : most;
      last = is_block(i) && free[i] > last ? free[i] : last;
      if (i * 32 + lane == blockIdx.x / CLUSTER) own[MAX_OWN] = counts[i];
    }
    most = __reduce_max_sync(~0u, most);
    last = __reduce_max_sync(~0u, last);
    if (lane == 0) own[MAX_OWN + 1] = most > MAX_OWN ? ~0u : last;
  }
  __syncthreads();
}
#endif
// Division of the last tiles' depth among blocks. The steps of a block can belong to several tiles. Blocks whose whole tiles
// had more steps than those of others have fewer of these.
struct Shares {
  // First tile whose steps are shared, number of steps before it, number of steps of all tiles, and number of blocks.
  u32 tile, begin, end, blocks;
  // Sums of the blocks' parts of these steps, by block; null if the parts are equal.
  const u32* parts;
#if LISTS
  // The tiles of this block and their number, or null if blocks take every tile that is whole in turn.
  const u32* own;
  u32 count;
#endif

  // `room` has space for two numbers per group and one per block. `table` has one number per block and `MAX_OWN + 2` more, and must
  // stay valid.
  __device__ inline Shares(const Schedule& schedule, u32* room, u32* table) {
    u32 total = schedule.total, at_once = gridDim.x / CLUSTER;
    u32 most = schedule.steps, rounds = total / at_once;
    // Equal number of steps of all blocks.
    u32 even = schedule.steps_before(total) / at_once;
    if (IN_DEPTH) {
      for (u32 g = threadIdx.x; g < schedule.groups; g += ALL_THREADS) room[g] = schedule.tiles[g] - (g > 0 ? schedule.tiles[g - 1] : 0);
      __syncthreads();
      join_all(room, room + schedule.groups, schedule.groups, Larger());
      most = room[schedule.groups - 1];
      __syncthreads();
      // No block's whole tiles have more steps than that.
      if (threadIdx.x == 0) *room = 0;
      __syncthreads();
      for (u32 block = threadIdx.x; block < at_once; block += ALL_THREADS) {
        u32 round = 0, own = 0;
        while (round < rounds && (own += schedule.steps_of_tile(round * at_once + block)) <= even) round++;
        atomicMax(room, rounds - round);
      }
      __syncthreads();
      rounds -= *room;
      __syncthreads();
    }
    tile = rounds * at_once;
    begin = schedule.steps_before(tile);
    end = schedule.steps_before(total);
    blocks = (end - begin) / MIN_STEPS;
    // Adding the parts of more blocks than that takes longer than they save.
    u32 worthwhile = (u32)sqrtf((f32)(end - begin) * at_once / JOIN_STEPS);
    if (blocks > worthwhile) blocks = worthwhile;
    // Behind whole tiles, all blocks share the rest, as far as each has a step.
    if (IN_DEPTH && tile > 0) blocks = end - begin;
    blocks = blocks > at_once ? at_once : blocks < 1 ? 1 : blocks;
    // Time in steps if blocks compute whole tiles, and if they share tiles.
    u32 whole = (total - tile + at_once - 1) / at_once * most, shared = (end - begin) / blocks + JOIN_LAUNCH_STEPS + JOIN_STEPS * blocks / at_once;
    parts = 0;
#if LISTS
    own = 0;
    u32 time = begin / at_once + (shared < whole ? shared : whole);
    // Lists seldom end after the smallest number of steps, so that the assignment may take half of the time that they save at most.
    if (total > at_once && even + 2 * ASSIGNMENT_STEPS <= time && least_steps(schedule, even, room) + 2 * ASSIGNMENT_STEPS <= time) {
      assign(schedule, table + at_once);
      if (table[at_once + MAX_OWN + 1] <= time) {
        own = table + at_once, count = own[MAX_OWN];
        tile = total, begin = end, blocks = 1;
        return;
      }
    }
#endif
    if (shared >= whole) {
      tile = total, begin = end;
    } else if (IN_DEPTH && tile > 0) {
      for (u32 block = threadIdx.x; block < at_once; block += ALL_THREADS) {
        u32 own = 0;
        for (u32 round = 0; round < rounds; round++) own += schedule.steps_of_tile(round * at_once + block);
        table[block] = even - own + 1;
      }
      __syncthreads();
      join_all(table, room, at_once, Total());
      parts = table;
    }
  }

  // First step of a block. Each block has at least one step, because others look for their tile's parts in all blocks that
  // follow.
  __device__ inline u32 first(u32 block) const {
    if (block == 0 || block >= blocks || begin == end) return block == 0 ? begin : end;
    u32 left = end - begin - blocks;
    // A division of 64 bits takes several times as long.
    if (!parts) return begin + block + left / blocks * block + left % blocks * block / blocks;
    return begin + block + (u32)((u64)left * parts[block - 1] / parts[blocks - 1]);
  }

  // Number of blocks behind this one, at least one, whose first step is before `end`. Divisions of one block after the other
  // would delay the first loads if many blocks share a tile.
  __device__ inline u32 followers(u32 block, u32 end) const {
    u32 few = 1, many = 2;
    while (first(block + many) < end) few = many, many *= 2;
    while (few + 1 < many) {
      u32 middle = (few + many) / 2;
      if (first(block + middle) < end) few = middle; else many = middle;
    }
    return few;
  }
};

// A tile that several blocks share. It begins among the steps of one block; the next `others` blocks have the rest.
struct Shared { Place place; u32 others; };
#endif

// The tiles of a block, and its parts of tiles, one after the other.
struct Work {
  // The current tile; its depth is the range of this block.
  Place place;
  u32 steps, tile, whole;
#if DEPTH_PARTS > 1
  // Number of steps of the tile, of which the cluster's other blocks have parts.
  u32 tile_steps;
#endif
#if SPLIT
  Part part;
  u32 others, shared, shared_end;
  __device__ inline explicit Work(const Shares& shares) : tile(blockIdx.x / CLUSTER), whole(shares.tile) {
    shared = shares.first(tile), shared_end = shares.first(tile + 1);
#if LISTS
    if (shares.own) tile = 0, whole = shares.count;
#endif
  }
  // Whether the current tile begins in this block's steps and ends in those of others.
  __device__ inline bool begins_shared() const { return part.first == 0 && !part.is_whole(); }
#else
  __device__ inline explicit Work(const Schedule& schedule) : tile(blockIdx.x / CLUSTER), whole(schedule.total) {}
#endif

  // Takes the next tile, or part of one. Returns false if there is none.
  __device__ inline bool next(const Schedule& schedule, const SHARES& shares, u32 rows, u32 depth) {
    if (tile < whole) {
      u32 number = tile, next = tile + gridDim.x / CLUSTER;
#if SPLIT && LISTS
      if (shares.own) number = shares.own[tile], next = tile + 1;
#endif
      tile = next;
      place = schedule.place(number, rows, depth);
#if SPLIT
      part = {number, 0, 1, 1};
#endif
#if SPLIT
    } else if (shared < shared_end) {
      part = schedule.part(shared);
      u32 left = shared_end - shared;
      if (left < part.last - part.first) part.last = part.first + left;
      shared += part.last - part.first;
      place = schedule.place(part.tile, rows, depth);
      others = begins_shared() ? shares.followers(blockIdx.x / CLUSTER, schedule.steps_before(part.tile + 1)) : 0;
      u32 end = place.depth + part.last * BK;
      place.depth += part.first * BK;
      if (end < place.depth_end) place.depth_end = end;
#endif
    } else {
      return false;
    }
    steps = (place.depth_end - place.depth + BK - 1) / BK;
#if DEPTH_PARTS > 1
    // Each block of a cluster multiplies its part of the depth.
    tile_steps = steps;
    u32 own = blockIdx.x % DEPTH_PARTS, first = tile_steps * own / DEPTH_PARTS, last = tile_steps * (own + 1) / DEPTH_PARTS;
    u32 end = place.depth + last * BK;
    place.depth += first * BK;
    if (end < place.depth_end) place.depth_end = end;
    steps = last - first;
#endif
    return true;
  }
};
"#;
