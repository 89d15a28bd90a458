//! Kernel text of windows whose parts the blocks of a cluster read.

/// Kernel text: the first block of a cluster joins the results of a window's parts, one for each block. `partial` is read after the
/// barrier, which also orders the zeros of all blocks before the gradient.
pub const JOIN_CLUSTER: &str = r#"#if CLUSTER == 1
  return;
#else
  cluster_barrier();
  if (part > 0 || lane >= 32) return;
  best = nothing();
  if (lane < PARTS) best = partial[index * PARTS + lane];
  join(PARTS);
"#;

/// Kernel text: the barrier of a cluster, on devices that have clusters.
pub const CLUSTER: &str = r#"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTER CLUSTER_BLOCKS
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS) __cluster_dims__(CLUSTER, 1, 1)
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
#else
#define CLUSTER 1
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS)
#endif
"#;
