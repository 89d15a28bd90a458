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
#if DIMS == 1
  // A thread has every `SPACING`-th position of a part of the row.
  const i32 position = (i32)(at[1] * SPACING + at[2]);
#endif
  // First gathered element of a position along a dimension.
  auto begin = [&](i32 position, int j) {
    return TURNED ? (i32)extents.first[j] + position - (VALUES(j, 1) - 1) : position * S(j) - (i32)sizes.padding[j - SKIP];
  };
  gathered += sample * sg.outer;
#if DIMS == 1
  i32 along[OWN][VALUES(2, 1)];
  EACH(i, OWN) EACH(t, VALUES(2, 1)) {
    const i32 source = begin(position + i * SPACING, 2) + t;
    along[i][t] = exists && (u32)source < (u32)sizes.sources[0] ? source : -1;
  }
#define MEETS(t, u, v) (along[u][v] >= 0)
#define SOURCE(t, u, v) ((Offset)along[u][v] * (Offset)sg.at[0])
#else
  Offset outer[VALUES(0, 1)], middle[VALUES_1], inner[VALUES(2, 1)];
  bool in_outer[VALUES(0, 1)], in_middle[VALUES_1], in_inner[VALUES(2, 1)];
  // Elements outside have the offset 0.
  auto locate = [&](Offset* offsets, bool* inside, int values, int j) {
    const i32 first = begin((i32)at[j], j);
#pragma unroll
    for (int t = 0; t < values; t++) {
      inside[t] = exists && (u32)(first + t) < (u32)sizes.sources[j - SKIP];
      offsets[t] = inside[t] ? (Offset)(first + t) * (Offset)sg.at[j - SKIP] : 0;
    }
  };
#if DIMS == 3
  locate(outer, in_outer, VALUES(0, 1), 0);
#else
  outer[0] = 0;
  in_outer[0] = true;
#endif
  locate(middle, in_middle, VALUES_1, 1);
  locate(inner, in_inner, VALUES(2, 1), 2);
#define MEETS(t, u, v) (in_outer[t] && in_middle[u] && in_inner[v])
#define SOURCE(t, u, v) (outer[t] + middle[u] + inner[v])
#endif
  C sums[OWN][ALL_PHASES][ROWS];
  EACH(i, OWN) EACH(p, ALL_PHASES) EACH(r, ROWS) sums[i][p][r] = 0;
  C* shared = memory->at;
  for (u32 start = 0; start < channels; start += CHUNK) {
    if (start > 0) __syncthreads();
    const u32 part = channels - start < CHUNK ? channels - start : CHUNK;
    for (u32 i = threadIdx.x; i < part * ROWS * ELEMENTS; i += THREADS) {
      const u32 channel = i / (ROWS * ELEMENTS), row = i / ELEMENTS % ROWS, e = i % ELEMENTS;
      shared[channel * PADDED + e * ROWS + row] = load<C>(factor[weight_of((start + channel) * ELEMENTS + e, sf) + row * sf.outer]);
    }
    __syncthreads();
    for (u32 channel = slice; channel < part; channel += SLICES) {
      const T* from = gathered + (start + channel) * sg.channel;
      C values[VALUES(0, 1)][VALUES_1][VALUES(2, 1)];
      EACH(t, VALUES(0, 1)) EACH(u, VALUES_1) EACH(v, VALUES(2, 1)) values[t][u][v] = MEETS(t, u, v) ? load<C>(from[SOURCE(t, u, v)]) : C(0);
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
    i64 to = sample * so.outer + row * so.channel;
#pragma unroll
    for (int j = SKIP; j < 3; j++) {
#if DIMS == 1
      const i32 own = position + i * SPACING;
#else
      const i32 own = (i32)at[j] + (j == 1 ? i : 0);
#endif
      const i32 place = TURNED ? ((i32)extents.first[j] + own) * S(j) + phases[j] - (i32)sizes.padding[j - SKIP] : own;
      inside = inside && (u32)place < (u32)sizes.positions[j - SKIP];
      to += place * so.at[j - SKIP];
    }
    if (inside) store<C>(out[to], finished(sum, bias, group * ROWS + row));
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
