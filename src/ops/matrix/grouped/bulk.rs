//! Source text of products on Hopper whose factors a single thread copies in bulk, by tensor maps.

/// Barriers, clusters and bulk copies. `wgmma` reads a box of 64 × 64 elements with the 128-byte swizzle that the copy
/// writes.
///
/// - `init_barrier(barrier, arrivals)`: initializes a barrier. A phase ends after this many arrivals, and after the bytes that
///   `expect_bytes` announces.
/// - `arrive(barrier, block, when)`: arrives at the barrier of a block of the cluster, if `when` holds. It has no
///   branch, because the compiler lets `wgmma` run asynchronously only between few of them.
/// - `wait_for_phase(barrier, parity)`: waits until the phase of this parity has ended.
/// - `prefetch_map(map)`: loads a tensor map into the cache.
/// - `copy_box<TO_ALL>(map, to, barrier, x, y, z)`: copies a box to shared memory and signals the barrier; with `TO_ALL`, in all
///   blocks of the cluster. Elements outside of the tensor are zero.
/// - `exchange(stages, sum)`: adds the sums of blocks of a cluster that divide the depth of a tile, through the stages in shared memory.
pub const COPIES: &str = r#"
struct alignas(64) TensorMap { u64 words[16]; };
#if BULK
#define BOX (64 * 64)
__device__ inline void init_barrier(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void prefetch_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory"); }
__device__ inline void expect_bytes(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ inline void arrive(u64* barrier, u32 block, bool when) {
  asm volatile("{\n.reg .pred p;\n.reg .b32 at;\nsetp.ne.b32 p, %2, 0;\n@p mapa.shared::cluster.u32 at, %0, %1;\n"
    "@p mbarrier.arrive.shared::cluster.b64 _, [at];\n}"
    :: "r"(shared_address(barrier)), "r"(block), "r"((u32)when) : "memory");
}
__device__ inline void wait_for_phase(u64* barrier, u32 parity) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}"
    :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}
template <bool TO_ALL> __device__ inline void copy_box(const TensorMap& map, u16* to, u64* barrier, u32 x, u32 y, u32 z) {
  if (TO_ALL) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6}], [%2], %3;"
      :: "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "h"((u16)((1 << CLUSTER) - 1)), "r"(x), "r"(y), "r"(z) : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
      :: "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z) : "memory");
  }
}
// Waits for all threads of the cluster.
__device__ inline void cluster_sync() {
  if (CLUSTER == 1) return __syncthreads();
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Rows or columns of a tile that a copy covers: as many as possible of a factor whose rows lie along the depth, else 64.
#define EXTENT_A (TURNED_A ? 64 : BM / CLUSTER_COLUMNS)
#define EXTENT_B (TURNED_B ? BN / CLUSTER_ROWS : 64)
// Number of copies for the rows or columns of a tile that exist.
__device__ inline u32 copies_of(u32 left, u32 tile, u32 extent) { return ((left < tile ? left : tile) + extent - 1) / extent; }
// Issues copies `0..count` of a factor, in a cluster of `BLOCKS` blocks that share them: each block issues some, or its terms of each.
template <int BLOCKS, int TILE, int EXTENT, bool ALONG_DEPTH>
__device__ inline void copy_tile(const TensorMap& map, u16* to, u64* barrier, u32 first, u32 k, u32 group, u32 count, u32 own) {
  const bool TERMS = TILE / EXTENT % BLOCKS != 0;
  u32 term = TERMS ? own * (64 / BLOCKS) : 0;
  for (u32 i = TERMS ? 0 : own; i < count; i += TERMS ? 1 : BLOCKS) {
    u32 at = first + i * EXTENT;
    copy_box<(BLOCKS > 1)>(map, to + (i * EXTENT + term) * 64, barrier, ALONG_DEPTH ? k : at, ALONG_DEPTH ? at : k + term, group);
  }
}
// Sets the terms of boxes outside of `first..end` to zero. The terms are the rows of the boxes, or their columns.
template <int COUNT, bool ROWS> __device__ inline void keep_terms(u16* boxes, u32 first, u32 end) {
  for (u32 i = threadIdx.x; i < COUNT / 8; i += THREADS) {
    u32 row = i * 8 % BOX / 64, term = ROWS ? row : (i % 8 ^ row % 8) * 8;
    if (term >= first && term + (ROWS ? 1 : 8) <= end) continue;
    Pack<u16, 8> pack = {};
    if (!ROWS) pack = *(Pack<u16, 8>*)(boxes + i * 8);
    EACH(e, 8) if (ROWS || term + e < first || term + e >= end) pack.at[e] = 0;
    *(Pack<u16, 8>*)(boxes + i * 8) = pack;
  }
}
#if DEPTH_PARTS > 1
// Number of tiles of 16 columns in a piece: sums of a warp that a block of the cluster adds up for all blocks. Number of pieces of a
// warp, and of those that a block adds up at most.
#define PIECE 2
#define PIECES (MT * NT / PIECE)
#define OWN_PIECES ((PIECES + DEPTH_PARTS - 1) / DEPTH_PARTS)
static_assert(NT % PIECE == 0, "pieces have 32 columns");
static_assert((DEPTH_PARTS - 1) * WARPS * OWN_PIECES * PIECE * 1024 <= STAGES * STAGE * 2, "the stages hold the pieces of all other blocks");
// Returns the block of the cluster that adds up a piece of the sums of a warp.
__device__ inline u32 owner_of(u32 piece) { return (piece + threadIdx.x / LANES) % DEPTH_PARTS; }
// Returns the memory of a piece that another block has sent. The senders `0..DEPTH_PARTS - 1` are the blocks before and behind the owner.
__device__ inline Pack<f32, 4>* piece_from(u16* stages, u32 sender, u32 piece) {
  return (Pack<f32, 4>*)stages + ((sender * WARPS + threadIdx.x / LANES) * OWN_PIECES + piece / DEPTH_PARTS) * (PIECE * LANE_ROWS * LANES) + lane_of();
}
// Adds the sums of all blocks of the cluster, in the order of the depth. Each block gets the totals of the pieces that it owns. The stages
// are free again when all threads of the block have passed the next barrier.
__device__ inline void exchange(u16* stages, Sums (&sum)[MT][NT]) {
  u32 own = blockIdx.x % DEPTH_PARTS;
  // The stages of a block are free once it has multiplied: no block sends sums before all have.
  cluster_sync();
  EACH(m, MT) EACH(n, NT / PIECE) {
    u32 piece = m * (NT / PIECE) + n, owner = owner_of(piece), to;
    if (owner == own) continue;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(piece_from(stages, own - (own > owner), piece))), "r"(owner));
    EACH(i, PIECE) EACH(h, LANE_ROWS) {
      const auto& four = sum[m][n * PIECE + i].at[h];
      asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
        :: "r"(to + (i * LANE_ROWS + h) * LANES * 16), "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3]) : "memory");
    }
  }
  cluster_sync();
  EACH(m, MT) EACH(n, NT / PIECE) {
    u32 piece = m * (NT / PIECE) + n;
    if (owner_of(piece) != own) continue;
    EACH(i, PIECE) EACH(h, LANE_ROWS) {
      auto& sums = sum[m][n * PIECE + i].at[h];
      f32 total[4] = {};
      EACH(part, DEPTH_PARTS) {
        Pack<f32, 4> four;
        if (part == own) EACH(e, 4) four.at[e] = sums[e];
        else four = piece_from(stages, part - (part > own), piece)[(i * LANE_ROWS + h) * LANES];
        EACH(e, 4) total[e] += four.at[e];
      }
      EACH(e, 4) sums[e] = total[e];
    }
  }
  // The fence orders these reads before the next bulk copies to the stages.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif
#if MAPS_C
// Waits until at most `LEFT` of this thread's copies from shared memory still read it.
template <int LEFT> __device__ inline void wait_for_reads() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(LEFT) : "memory"); }
// Writes a tile from the sums of all warps, in boxes of 16 rows. The last `ROOMS` of them are copied while the next tile is multiplied. `turn` counts the boxes
// of the warp.
__device__ inline void copy_results(const TensorMap& map, const Place& place, u32 columns, const Sums (&sum)[MT][NT], O* room, u32& turn) {
  const int WIDTH = CHUNK * 16;
  u32 warp = threadIdx.x / LANES;
  EACH(m, MT) {
    u32 row = place.row + row_of(warp, m);
    EACH(n, NT / CHUNK) {
      u32 column = place.column + n * WIDTH;
      if (row >= place.row_end || column >= columns) continue;
      O* to = room + turn % ROOMS * (16 * 64);
      turn++;
      if (lane_of() == 0) wait_for_reads<ROOMS - 1>();
      WARP_BARRIER;
      EACH(h, LANE_ROWS) EACH(i, CHUNK) EACH(j, 2) {
        Pack<O, 2> two;
        EACH(e, 2) store<f32>(two.at[e], finished(sum[m][n * CHUNK + i].at[h][2 * j + e]));
        u32 at = (lane_row(h) * WIDTH + i * 16 + lane_column(2 * j)) * sizeof(O);
        *(Pack<O, 2>*)((char*)to + (at ^ (at >> 7 & 7) << 4)) = two;
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      WARP_BARRIER;
      if (lane_of() == 0) {
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];\ncp.async.bulk.commit_group;"
          :: "l"(&map), "r"(shared_address(to)), "r"(column), "r"(row), "r"(place.group) : "memory");
      }
    }
  }
}
#endif
#endif
"#;

/// Product of 16-bit factors. A thread behind the first `THREADS` copies the factors. If it is in a warpgroup of its own, this gives
/// registers to those that multiply. With `DEPTH_PARTS > 1`, all further threads follow the tiles as well, since each takes part in the
/// barriers of the cluster.
pub const BODY: &str = r#"  if (threadIdx.x == THREADS) {
    prefetch_map(map_a);
    prefetch_map(map_b);
#if MAPS_C
    prefetch_map(map_c);
#endif
  }
  u16* stages = (u16*)memory;
  O* rooms = (O*)(stages + STAGES * STAGE);
  u64* full = (u64*)(rooms + WARPS * RESULTS_ROOM);
  u64* empty = full + STAGES;
  u32* table = (u32*)(empty + STAGES);
  Schedule schedule(table, (u32*)stages, ends, se, groups, rows, columns, depth);
#if SPLIT
  Shares shares(schedule, (u32*)stages, table + 2 * (groups + 1));
  Shared* own_shared = (Shared*)own_parts(workspace, gridDim.x, false) + blockIdx.x;
  if (threadIdx.x == 0) own_shared->others = 0;
#else
  const Schedule& shares = schedule;
#endif
  u32 own_row = blockIdx.x % SHARERS / CLUSTER_COLUMNS, own_column = blockIdx.x % CLUSTER_COLUMNS;
  if (threadIdx.x == 0) {
    EACH(stage, STAGES) {
      init_barrier(full + stage, 1);
      init_barrier(empty + stage, SHARERS * WARPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();
  // A stage, and the parity of the phase of its barriers.
  u32 stage = 0, parity = 0;
  auto next_stage = [&]() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  };
  Work work(shares);
  if (threadIdx.x >= THREADS) {
#if COPIERS == 128
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COPIER_REGISTERS));
#endif
    if (threadIdx.x == THREADS || DEPTH_PARTS > 1) {
      while (work.next(schedule, shares, rows, depth)) {
        const Place& place = work.place;
        u32 row = place.row + own_row * BM, column = place.column + own_column * BN, group = IN_DEPTH ? 0 : place.group;
        // Nothing behind the group's rows or behind the last column is copied: no result depends on it.
        u32 copies_a = copies_of(left_of(place.row_end, row), BM, EXTENT_A), copies_b = copies_of(left_of(columns, column), BN, EXTENT_B);
        for (u32 step = 0; step < work.steps && threadIdx.x == THREADS; step++) {
          u32 k = place.depth + step * BK;
          u16* to = stages + stage * STAGE;
          wait_for_phase(empty + stage, parity ^ 1);
          expect_bytes(full + stage, 2 * BK * (copies_a * EXTENT_A + copies_b * EXTENT_B));
          copy_tile<CLUSTER_COLUMNS, BM, EXTENT_A, !TURNED_A>(map_a, to, full + stage, row, k, 0, copies_a, own_column);
          copy_tile<CLUSTER_ROWS, BN, EXTENT_B, TURNED_B>(map_b, to + BM * BK, full + stage, column, k, group, copies_b, own_row);
          next_stage();
        }
#if DEPTH_PARTS > 1
        // The blocks exchange sums in the stages before the next tile is copied to them.
        __syncwarp();
        if (work.tile_steps > 0) {
          cluster_sync();
          cluster_sync();
          __syncthreads();
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
#endif
      }
    }
  } else {
#if COPIERS == 128
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(REGISTERS));
#endif
    O* room = rooms + threadIdx.x / LANES * RESULTS_ROOM;
    u32 turn = 0;
    auto release = [&](u32 stage) { arrive(empty + stage, DEPTH_PARTS > 1 ? blockIdx.x % CLUSTER : lane_of(), lane_of() < SHARERS); };
    while (work.next(schedule, shares, rows, depth)) {
      Place place = work.place;
      place.row += own_row * BM, place.column += own_column * BN;
      Sums sum[MT][NT];
      EACH(m, MT) EACH(n, NT) EACH(h, LANE_ROWS) EACH(i, 4) sum[m][n].at[h][i] = 0;
      u32 before = 0;
#pragma unroll 1
      for (u32 step = 0; step < work.steps; step++) {
        wait_for_phase(full + stage, parity);
        u16* a_at = stages + stage * STAGE;
        u16* b_at = a_at + BM * BK;
#if IN_DEPTH
        // The other terms of the boxes are those of the groups before and behind.
        u32 k = place.depth + step * BK, begin = place.group > 0 ? schedule.ends[place.group - 1] : 0;
        if (k < begin || k + BK > place.depth_end) {
          u32 first = left_of(begin, k), end = left_of(place.depth_end, k);
          keep_terms<BM * BK, TURNED_A>(a_at, first, end);
          keep_terms<BN * BK, !TURNED_B>(b_at, first, end);
          written_before();
          asm volatile("bar.sync 1, %0;" :: "n"(THREADS) : "memory");
        }
#endif
        multiply_begin();
        EACH(c, BK / 16) EACH(m, MT) {
          u32 row = threadIdx.x / 128 * (MT * 64) + m * 64;
          u16* of_a = TURNED_A ? a_at + (row + c * 16) * 64 : a_at + row * 64 + c * 16;
          u16* of_b = TURNED_B ? b_at + c * 16 : b_at + c * 16 * 64;
          multiply_together(sum[m], described<BK>(of_a), described<BK>(of_b), true);
        }
        multiply_end();
        multiply_wait<1>();
        if (step > 0) release(before);
        before = stage;
        next_stage();
      }
      multiply_wait<0>();
      if (work.steps > 0) release(before);
#if DEPTH_PARTS > 1
      if (work.tile_steps > 0) {
        exchange(stages, sum);
        __syncthreads();
        EACH(m, MT) EACH(n, NT / PIECE) {
          if (owner_of(m * (NT / PIECE) + n) == blockIdx.x % DEPTH_PARTS)
            store_chunk<PIECE>(c, sc, place, columns, threadIdx.x / LANES, m, n * PIECE, sum[m] + n * PIECE, room, true, true);
        }
        continue;
      }
      if (blockIdx.x % DEPTH_PARTS > 0) continue;
#endif
#if SPLIT
      if (!work.part.is_whole()) {
        if (threadIdx.x == 0 && work.begins_shared()) *own_shared = {place, work.others};
        store_part(own_parts(workspace, blockIdx.x, work.part.first == 0), place, columns, sum);
        continue;
      }
#endif
#if MAPS_C
      if (work.steps > 0) {
        copy_results(map_c, place, columns, sum, room, turn);
        continue;
      }
#endif
      store_tile(c, sc, place, columns, work.steps, sum, room);
    }
#if MAPS_C
    if (lane_of() == 0) wait_for_reads<0>();
#endif
  }
  // Other blocks of the cluster may still copy to this one, and arrive at its barriers.
  cluster_sync();
"#;
