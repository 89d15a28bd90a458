//! Source text by which thread blocks that share the keys of a row combine their results.

/// Number of blocks that combine their results through each other's shared memory, on devices that have clusters.
pub const CLUSTERS: &str = r#"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTER CLUSTER_BLOCKS
#else
#define CLUSTER 1
#endif
"#;

/// Barrier of a cluster, and access to the shared memory of its blocks.
pub const CLUSTER_FUNCTIONS: &str = r#"
#if CLUSTER > 1
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ inline f32 of_block(const f32* at, u32 block) {
  u32 there;
  f32 value;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there));
  return value;
}
__device__ inline Pack<f32, 4> four_of_block(const f32* at, u32 block) {
  u32 there;
  Pack<f32, 4> value;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(block));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
    : "=f"(value.at[0]), "=f"(value.at[1]), "=f"(value.at[2]), "=f"(value.at[3]) : "r"(there));
  return value;
}
#endif
"#;

/// Combines the partial results of blocks that share the keys of a row. `DIVISIONS` groups of a block's threads divide the
/// parts, and the threads of a group compute neighbouring elements of the row. A thread holds `HELD` parts of its element.
pub const MERGE: &str = r#"  const u32 WIDTH = THREADS / DIVISIONS;
  __shared__ f32 weights[HELD * DIVISIONS + 31], sums[DIVISIONS][WIDTH];
  u32 blocks = (dv + WIDTH - 1) / WIDTH, lane = threadIdx.x % 32, division = threadIdx.x / WIDTH, own = threadIdx.x % WIDTH;
  u32 element = blockIdx.x % blocks * WIDTH + own;
  u64 row = blockIdx.x / blocks;
  u32 parts_of_row = splits / CLUSTER;
  const f32* logs = parts + count * parts_of_row * dv + row * parts_of_row;
  const f32* values = parts + row * parts_of_row * dv;
  // Loads do not wait for the weights. Each warp computes the same ones.
  const u32 LOGS = (HELD * DIVISIONS + 31) / 32;
  f32 held[HELD], log[LOGS], top = LOWEST, total = 0;
#pragma unroll
  for (u32 i = 0; i < LOGS; i++) log[i] = lane + i * 32 < parts_of_row ? logs[lane + i * 32] : LOWEST;
#pragma unroll
  for (u32 i = 0; i < HELD; i++) {
    u32 s = division + i * DIVISIONS;
    held[i] = element < dv && s < parts_of_row ? values[(u64)s * dv + element] : 0;
  }
#pragma unroll
  for (u32 i = 0; i < LOGS; i++) top = log[i] > top || !(log[i] == log[i]) ? log[i] : top;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    f32 other = SHUFFLE_XOR(top, mask);
    top = other > top || !(other == other) ? other : top;
  }
  f32 base = top == LOWEST ? 0 : top;
#pragma unroll
  for (u32 i = 0; i < LOGS; i++) total += log[i] = expf(log[i] - base);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) total += SHUFFLE_XOR(total, mask);
  if (threadIdx.x < 32)
#pragma unroll
    for (u32 i = 0; i < LOGS; i++) weights[lane + i * 32] = total == 0 ? 0 : log[i] / total;
  __syncthreads();
  f32 sum = 0;
#pragma unroll
  for (u32 i = 0; i < HELD; i++) {
    u32 s = division + i * DIVISIONS;
    if (s < parts_of_row) sum += weights[s] * held[i];
  }
  sums[division][own] = sum;
  __syncthreads();
  if (division > 0 || element >= dv) return;
#pragma unroll
  for (u32 other = 1; other < DIVISIONS; other++) sum += sums[other][own];
  i64 at[OPERANDS];
  g.offsets(row / rows, at);
  u32 r = (u32)(row % rows);
  store<f32>(o[at[3] + place(so, r, queries) + (i64)element * so.element], sum);
  if (element == 0) lse[at[4] + place(sl, r, queries)] = total == 0 ? LOWEST : top + logf(total);
"#;
