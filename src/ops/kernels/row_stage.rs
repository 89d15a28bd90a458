//! Kernel texts by which a block of `rows` stages short rows in shared memory.

/// Kernel text that loads a block's `ROWS` rows of `LENGTH` elements into shared memory. `block` is the block's number.
pub const STAGE: &str = r#"  typedef Pack<u32, 4> Packed;
  __shared__ Packed staged[(ROWS * LENGTH * sizeof(*x) + 15) / 16];
  const u64 begin = (u64)block * ROWS * LENGTH, behind = rows * LENGTH;
  const u32 count = behind - begin < ROWS * LENGTH ? (u32)(behind - begin) : ROWS * LENGTH, of_pack = 16 / sizeof(*x);
  // A pack never crosses the end of allocated memory.
  for (u32 i = threadIdx.x; i * of_pack < count; i += BLOCK) staged[i] = ((const Packed*)(x + begin))[i];
  __syncthreads();
"#;

/// Kernel text that makes the body read and overwrite the staged rows.
pub const STAGED_ROWS: &str = r#"  EACH_ROW {
    auto* own = (decltype(y))staged + (threadIdx.x / T + r * (BLOCK / T)) * LENGTH;
    from[r] = own;
    to[r] = own;
  }
"#;

/// Kernel text that stores the staged rows.
pub const UNSTAGE: &str = r#"  __syncthreads();
  for (u32 i = threadIdx.x; i * of_pack < count; i += BLOCK) {
    if ((i + 1) * of_pack <= count) ((Packed*)(y + begin))[i] = staged[i];
    else for (u32 e = i * of_pack; e < count; e++) y[begin + e] = ((decltype(y))staged)[e];
  }
"#;
