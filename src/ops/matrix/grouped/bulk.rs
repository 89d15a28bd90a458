//! Source text of products on Hopper whose factors a single thread copies in bulk, by tensor maps.

/// Barriers, clusters and bulk copies. `wgmma` reads a box of 64 × 64 elements with the 128-byte swizzle that the copy
/// writes.
///
/// - `init_barrier(barrier, arrivals)`: initializes a barrier. A phase ends after this many arrivals, and after the bytes that
///   `expect_bytes` announces.
/// - `arrive(barrier, block, when)`: arrives at the barrier of a block of the cluster, if `when` holds. It has no
///   branch, because the compiler lets `wgmma` run asynchronously only between few of them.
/// - `wait_for_phase(barrier, parity)`: waits until the phase of this parity has ended.
/// - `copy_box<TO_ALL>(map, to, barrier, x, y, z)`: copies a box to shared memory and signals the barrier; with `TO_ALL`, in all
///   blocks of the cluster. Elements outside of the tensor are zero.
pub const COPIES: &str = r#"
struct alignas(64) TensorMap { u64 words[16]; };
#if BULK
#define BOX (64 * 64)
__device__ inline void init_barrier(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
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
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Number of boxes that cover this many rows or columns of a tile.
__device__ inline u32 boxes_of(u32 left, u32 tile) { return (left < tile ? left + 63 : tile) / 64; }
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
#endif
"#;

/// Product of 16-bit factors. A warp behind the first `THREADS` copies the factors.
pub const BODY: &str = r#"  u16* stages = (u16*)memory;
  O* rooms = (O*)(stages + STAGES * STAGE);
  u64* full = (u64*)(rooms + WARPS * WARP_ROOM);
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
  u32 own_row = blockIdx.x % CLUSTER / CLUSTER_COLUMNS, own_column = blockIdx.x % CLUSTER_COLUMNS;
  if (threadIdx.x == 0) {
    EACH(stage, STAGES) {
      init_barrier(full + stage, 1);
      init_barrier(empty + stage, CLUSTER * WARPS);
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
    if (threadIdx.x == THREADS) {
      // Each block copies its part of every box that several blocks of the cluster read.
      const u32 part_a = own_column * (64 / CLUSTER_COLUMNS), part_b = own_row * (64 / CLUSTER_ROWS);
      while (work.next(schedule, shares, rows, depth)) {
        const Place& place = work.place;
        u32 row = place.row + own_row * BM, column = place.column + own_column * BN, group = IN_DEPTH ? 0 : place.group;
        // Boxes behind the group's rows, or behind the last column, are not copied: no result depends on them.
        u32 boxes_a = boxes_of(left_of(place.row_end, row), BM), boxes_b = boxes_of(left_of(columns, column), BN);
        for (u32 step = 0; step < work.steps; step++) {
          u32 k = place.depth + step * BK;
          u16 *to_a = stages + stage * STAGE + part_a * 64, *to_b = stages + stage * STAGE + BM * BK + part_b * 64;
          wait_for_phase(empty + stage, parity ^ 1);
          expect_bytes(full + stage, (boxes_a + boxes_b) * (2 * BOX));
          for (u32 box = 0; box < boxes_a; box++, row += 64)
            copy_box<(CLUSTER_COLUMNS > 1)>(map_a, to_a + box * BOX, full + stage, TURNED_A ? row : k, (TURNED_A ? k : row) + part_a, 0);
          for (u32 box = 0; box < boxes_b; box++, column += 64)
            copy_box<(CLUSTER_ROWS > 1)>(map_b, to_b + box * BOX, full + stage, TURNED_B ? k : column, (TURNED_B ? column : k) + part_b, group);
          row -= boxes_a * 64, column -= boxes_b * 64;
          next_stage();
        }
      }
    }
  } else {
    O* room = rooms + threadIdx.x / LANES * WARP_ROOM;
    auto release = [&](u32 stage) { arrive(empty + stage, lane_of(), lane_of() < CLUSTER); };
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
#if SPLIT
      if (!work.part.is_whole()) {
        if (threadIdx.x == 0 && work.begins_shared()) *own_shared = {place, work.others};
        Pack<f32, 4>* room = own_parts(workspace, blockIdx.x, work.part.first == 0);
        EACH(m, MT) EACH(n, NT) EACH(h, LANE_ROWS) {
          Pack<f32, 4> four;
          EACH(i, 4) four.at[i] = sum[m][n].at[h][i];
          room[((m * NT + n) * LANE_ROWS + h) * THREADS + threadIdx.x] = four;
        }
        continue;
      }
#endif
      store_tile(c, sc, place, columns, work.steps, sum, room);
    }
  }
  // Other blocks of the cluster may still copy to this one, and arrive at its barriers.
  cluster_sync();
"#;
