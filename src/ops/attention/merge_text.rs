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
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS) __cluster_dims__(CLUSTER, 1, 1)
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
#endif
"#;

/// Combines the partial results of blocks that share the keys of a row. A block computes 32 elements of a row, and its
/// warps divide the parts.
pub const MERGE: &str = r#"  const u32 WARPS = THREADS / 32;
  __shared__ f32 weights[MOST_SPLITS], sums[WARPS][32];
  u32 groups = (dv + 31) / 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32, element = blockIdx.x % groups * 32 + lane;
  u64 row = blockIdx.x / groups;
  u32 parts_of_row = splits / CLUSTER;
  const f32* logs = parts + count * parts_of_row * dv + row * parts_of_row;
  const f32* values = parts + row * parts_of_row * dv;
  // Each warp computes the same values.
  f32 top = LOWEST, total = 0;
  for (u32 s = lane; s < parts_of_row; s += 32) top = logs[s] > top || !(logs[s] == logs[s]) ? logs[s] : top;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    f32 other = SHUFFLE_XOR(top, mask);
    top = other > top || !(other == other) ? other : top;
  }
  f32 base = top == LOWEST ? 0 : top;
  for (u32 s = lane; s < parts_of_row; s += 32) total += expf(logs[s] - base);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) total += SHUFFLE_XOR(total, mask);
  if (warp == 0)
    for (u32 s = lane; s < parts_of_row; s += 32) weights[s] = total == 0 ? 0 : expf(logs[s] - base) / total;
  __syncthreads();
  f32 sum = 0;
  if (element < dv) {
#pragma unroll 8
    for (u32 s = warp; s < parts_of_row; s += WARPS) sum += weights[s] * values[(u64)s * dv + element];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || element >= dv) return;
#pragma unroll
  for (u32 w = 1; w < WARPS; w++) sum += sums[w][lane];
  i64 at[OPERANDS];
  g.offsets(row / rows, at);
  u32 own = (u32)(row % rows);
  store<f32>(o[at[3] + place(so, own, queries) + (i64)element * so.element], sum);
  if (element == 0) lse[at[4] + place(sl, own, queries)] = total == 0 ? LOWEST : top + logf(total);
"#;
