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
