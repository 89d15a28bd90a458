//! Kernel text of clusters: blocks that run at the same time and can wait for one another.

/// Kernel text: a cluster of `CLUSTER_BLOCKS` blocks of `THREADS` threads, and its barrier, on devices that have clusters. On others,
/// `CLUSTER` is 1.
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
