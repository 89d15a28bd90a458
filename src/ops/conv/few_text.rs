//! Text of the kernel for few rows. [`super::few`] defines the macros that it uses.

/// Kernel text: dimensions, values of a thread, and places of results.
///
/// Dimensions are counted as three, of which the first ones have a single position if there are fewer. `OWN` positions of a
/// thread are neighbours along the second. Those of a tensor with one dimension are `SPACING` apart in it.
pub const DIMENSIONS: &str = r#"
#define SKIP (3 - DIMS)
#define K(j) KERNEL(j - SKIP)
#define S(j) STRIDE(j - SKIP)
#define D(j) DILATION(j - SKIP)
// Number of gathered elements along a dimension for `own` positions, and the one for a position and an element of the kernel.
#if TURNED
#define LAST(j) ((K(j) - 1) * D(j) / S(j))
#define VALUES(j, own) ((own) + LAST(j))
#define VALUE(j, i, k) ((i) - (k) * D(j) / S(j) + LAST(j))
#define PHASE(j, k) ((k) * D(j) % S(j))
#define PHASES(j) S(j)
#else
#define VALUES(j, own) (((own) - 1) * S(j) + (K(j) - 1) * D(j) + 1)
#define VALUE(j, i, k) ((i) * S(j) + (k) * D(j))
#define LAST(j) 0
#define PHASE(j, k) 0
#define PHASES(j) 1
#endif
#define ALL_PHASES (PHASES(0) * PHASES(1) * PHASES(2))
#define SUMS (OWN * ALL_PHASES * ROWS)
#if DIMS == 1
#define VALUES_1 OWN
#define VALUE_1(i, k) (i)
#else
#define VALUES_1 VALUES(1, OWN)
#define VALUE_1(i, k) VALUE(1, i, k)
#endif
#define WIDE (THREADS / SLICES)
#define PADDED ((ROWS * ELEMENTS + 3) / 4 * 4)
struct Extents { i64 first[3], count[3]; };
"#;

/// Kernel text: a thread computes all rows of `OWN` positions; of a transposed convolution, of all positions between two windows
/// there. `SLICES` threads share the channels, and `CHUNK` of these have their weights in shared memory.
pub const FEW: &str = r#"  __shared__ Pack<C, 4> memory[MEMORY / 4];
  const u32 slice = threadIdx.x / WIDE, lane = threadIdx.x % WIDE, group = blockIdx.x / group_blocks;
  u32 rest = blockIdx.x % group_blocks * WIDE + lane;
  const bool exists = rest < count;
  gathered += group * sg.group;
  factor += group * sf.group;
  out += group * so.group;
  u32 at[3];
  at[2] = rest % (u32)extents.count[2];
  rest /= (u32)extents.count[2];
  at[1] = rest % (u32)extents.count[1] * OWN;
  rest /= (u32)extents.count[1];
  at[0] = rest % (u32)extents.count[0];
  const u32 sample = exists ? rest / (u32)extents.count[0] : 0;
  // Strides in elements along a dimension.
  auto step = [&](int j) { return j == 2 && UNIT_GATHERED ? (i64)1 : sg.at[j - SKIP]; };
  auto out_step = [&](int j) { return j == 2 && UNIT_OUT ? (i64)1 : so.at[j - SKIP]; };
  // First gathered elements and results of the thread along each dimension.
  i32 from[3], to[3];
  const T* origin = gathered + sample * sg.outer;
  T* target = out + sample * so.outer;
#pragma unroll
  for (int j = SKIP; j < 3; j++) {
    const i32 own = DIMS == 1 ? (i32)(at[1] * SPACING + at[2]) : (i32)at[j], first = (i32)extents.first[j] + own;
    from[j] = TURNED ? first - LAST(j) : own * S(j) - (i32)sizes.padding[j - SKIP];
    to[j] = TURNED ? first * S(j) - (i32)sizes.padding[j - SKIP] : own;
    origin += from[j] * step(j);
    target += to[j] * out_step(j);
  }
  // Offset of a gathered element from the first, whether it exists, and whether all exist.
#if DIMS == 1
#define GATHERED(t, u, v) (((u) * SPACING * (TURNED ? 1 : S(2)) + (v)) * step(2))
#define MEETS(t, u, v) (exists && (u32)(from[2] + (u) * SPACING * (TURNED ? 1 : S(2)) + (v)) < (u32)sizes.sources[0])
  const bool whole = exists && from[2] >= 0 && from[2] + (OWN - 1) * SPACING * (TURNED ? 1 : S(2)) + VALUES(2, 1) <= (i32)sizes.sources[0];
#else
#define GATHERED(t, u, v) ((DIMS == 3 ? (t) * step(0) : 0) + (u) * step(1) + (v) * step(2))
  bool in_outer[VALUES(0, 1)], in_middle[VALUES_1], in_inner[VALUES(2, 1)], whole = exists;
  auto locate = [&](bool* inside, int values, int j) {
#pragma unroll
    for (int t = 0; t < values; t++) {
      inside[t] = exists && (u32)(from[j] + t) < (u32)sizes.sources[j - SKIP];
      whole = whole && inside[t];
    }
  };
#if DIMS == 3
  locate(in_outer, VALUES(0, 1), 0);
#else
  in_outer[0] = true;
#endif
  locate(in_middle, VALUES_1, 1);
  locate(in_inner, VALUES(2, 1), 2);
#define MEETS(t, u, v) (in_outer[t] && in_middle[u] && in_inner[v])
#endif
  C sums[OWN][ALL_PHASES][ROWS];
  EACH(i, OWN) EACH(p, ALL_PHASES) EACH(r, ROWS) sums[i][p][r] = 0;
  C* shared = memory->at;
  for (u32 start = 0; start < CHANNELS; start += CHUNK) {
    if (start > 0) __syncthreads();
    const u32 part = CHANNELS - start < CHUNK ? CHANNELS - start : CHUNK;
    for (u32 i = threadIdx.x; i < part * ROWS * ELEMENTS; i += THREADS) {
      const u32 channel = i / (ROWS * ELEMENTS), row = i / ELEMENTS % ROWS, e = i % ELEMENTS;
      shared[channel * PADDED + e * ROWS + row] = load<C>(factor[weight_of((start + channel) * ELEMENTS + e, sf) + row * sf.outer]);
    }
    __syncthreads();
    for (u32 channel = slice; channel < part; channel += SLICES) {
      const T* own = origin + (start + channel) * sg.channel;
      C values[VALUES(0, 1)][VALUES_1][VALUES(2, 1)];
#define EACH_VALUE EACH(t, VALUES(0, 1)) EACH(u, VALUES_1) EACH(v, VALUES(2, 1))
      if (whole) {
        EACH_VALUE values[t][u][v] = load<C>(own[GATHERED(t, u, v)]);
      } else {
        EACH_VALUE values[t][u][v] = MEETS(t, u, v) ? load<C>(own[GATHERED(t, u, v)]) : C(0);
      }
      const Pack<C, 4>* weights = memory + channel * (PADDED / 4);
      EACH(e, ELEMENTS) {
        const int k2 = e % K(2), k1 = e / K(2) % K(1), k0 = e / (K(1) * K(2));
        const int phase = (PHASE(0, k0) * PHASES(1) + PHASE(1, k1)) * PHASES(2) + PHASE(2, k2);
        EACH(r, ROWS) {
          const C weight = weights[(e * ROWS + r) / 4].at[(e * ROWS + r) % 4];
          EACH(i, OWN) sums[i][phase][r] += values[VALUE(0, 0, k0)][VALUE_1(i, k1)][VALUE(2, 0, k2)] * weight;
        }
      }
    }
  }
  auto put = [&](int index, C sum) {
    const int row = index % ROWS, phase = index / ROWS % ALL_PHASES, i = index / (ROWS * ALL_PHASES);
    const int phases[3] = {phase / (PHASES(1) * PHASES(2)), phase / PHASES(2) % PHASES(1), phase % PHASES(2)};
    bool inside = exists;
    i64 at = row * so.channel;
#pragma unroll
    for (int j = SKIP; j < 3; j++) {
      const int apart = DIMS == 1 ? SPACING : j == 1, place = (TURNED ? S(j) : 1) * i * apart + phases[j];
      inside = inside && (u32)(to[j] + place) < (u32)sizes.positions[j - SKIP];
      at += place * out_step(j);
    }
    if (inside) store<C>(target[at], finished(sum, bias, group * ROWS + row));
  };
#if SLICES == 1
  EACH(i, OWN) EACH(p, ALL_PHASES) EACH(r, ROWS) put((i * ALL_PHASES + p) * ROWS + r, sums[i][p][r]);
#else
  // Each slice adds every `SLICES`-th sum of all slices.
#pragma unroll
  for (int first = 0; first < SUMS; first += SLICES) {
    __syncthreads();
#pragma unroll
    for (int own = 0; own < SLICES; own++) {
      const int index = first + own;
      if (index < SUMS) shared[own * THREADS + threadIdx.x] = sums[index / (ROWS * ALL_PHASES)][index / ROWS % ALL_PHASES][index % ROWS];
    }
    __syncthreads();
    if (first + slice < SUMS) {
      C sum = shared[slice * THREADS + lane];
      for (u32 other = 1; other < SLICES; other++) sum += shared[slice * THREADS + other * WIDE + lane];
      put(first + slice, sum);
    }
  }
#endif
"#;
