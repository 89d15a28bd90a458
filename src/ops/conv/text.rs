//! Texts of the convolution kernels. [`super::kernel`] defines the macros that they use.
//!
//! Each group of a convolution is an implicit matrix product: `factor`, a matrix in memory, times elements of `gathered`, which
//! windows select. A gathered element belongs to a place and a tap: a place is a sample and a window of it, a tap is a channel
//! and an element of the convolution's kernel. In a transposed convolution (`TURNED`) places are elements of the result, and
//! taps select the windows that cover them.

/// Kernel text: positions of the operands' elements.
pub const PLACES: &str = r#"
#define EACH_DIM(j) _Pragma("unroll") for (int j = 0; j < DIMS; j++)
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < n; i++)
// Strides in elements: of groups; of samples, or rows of weights; of channels; of neighbours.
struct Steps { i64 group, outer, channel, at[DIMS]; };
struct Sizes { i64 positions[DIMS], sources[DIMS], padding[DIMS]; };
struct Position { u32 sample, at[DIMS]; };
// Offset of a place, and the offset of a tap from there, also along each dimension.
struct Place { i64 at; i32 start[DIMS]; };
struct Tap { i64 at; i32 shift[DIMS]; };
// A coordinate so far outside that no tap reaches the tensor.
#define OUTSIDE (-(1 << 30))

__device__ inline Position position_of(u32 place, const Sizes& sizes) {
  Position p;
#pragma unroll
  for (int j = DIMS - 1; j >= 0; j--) {
    u32 size = (u32)sizes.positions[j], rest = place / size;
    p.at[j] = place - rest * size;
    place = rest;
  }
  p.sample = place;
  return p;
}
__device__ inline void next(Position& p, const Sizes& sizes) {
  bool carries = true;
#pragma unroll
  for (int j = DIMS - 1; j >= 0; j--) {
    p.at[j] += carries;
    carries = carries && p.at[j] == (u32)sizes.positions[j];
    if (carries) p.at[j] = 0;
  }
  p.sample += carries;
}
// Moves a position by some places.
__device__ inline void advance(Position& p, u32 places, const Sizes& sizes) {
  p.at[DIMS - 1] += places;
#pragma unroll
  for (int j = DIMS - 1; j >= 0; j--)
    for (const u32 size = (u32)sizes.positions[j]; p.at[j] >= size; p.at[j] -= size) (j > 0 ? p.at[j - (j > 0)] : p.sample)++;
}
__device__ inline i64 offset_of(const Position& p, const Steps& steps) {
  i64 at = p.sample * steps.outer;
  EACH_DIM(j) at += p.at[j] * steps.at[j];
  return at;
}
__device__ inline Place place_of(const Position& p, bool exists, const Steps& steps, const Sizes& sizes) {
  Place place;
  place.at = p.sample * steps.outer;
  EACH_DIM(j) {
    i32 padding = (i32)sizes.padding[j], start = TURNED ? (i32)p.at[j] + padding : (i32)p.at[j] * STRIDE(j) - padding;
    if (!TURNED) place.at += start * steps.at[j];
    place.start[j] = exists ? start : OUTSIDE;
  }
  return place;
}
__device__ inline Tap tap_of(u32 channel, u32 element, bool exists, const Steps& steps) {
  Tap tap;
  tap.at = channel * steps.channel;
#pragma unroll
  for (int j = DIMS - 1; j >= 0; j--) {
    i32 shift = (i32)(element % KERNEL(j)) * DILATION(j);
    element /= KERNEL(j);
    if (!TURNED) tap.at += shift * steps.at[j];
    tap.shift[j] = !exists ? OUTSIDE : TURNED ? -shift : shift;
  }
  return tap;
}
__device__ inline i64 weight_of(u32 tap, const Steps& steps) {
  u32 element = tap % ELEMENTS;
  i64 at = tap / ELEMENTS * steps.channel;
#pragma unroll
  for (int j = DIMS - 1; j >= 0; j--) {
    at += element % KERNEL(j) * steps.at[j];
    element /= KERNEL(j);
  }
  return at;
}
// Whether a position and a tap select an element, and the element's offset.
__device__ inline bool meet(const Place& place, const Tap& tap, const Steps& steps, const Sizes& sizes, i64& at) {
  bool inside = true;
  at = place.at + tap.at;
  EACH_DIM(j) {
    i32 source = place.start[j] + tap.shift[j];
    if (TURNED) {
      inside = inside && source >= 0 && source % STRIDE(j) == 0;
      source /= STRIDE(j);
      at += source * steps.at[j];
    }
    inside = inside && (u32)source < (u32)sizes.sources[j];
  }
  return inside;
}
// Stride in elements from one place of a row to the next, for the same tap.
#define RUN_STEP ((TURNED ? 1 : STRIDE(DIMS - 1)) * sg.at[DIMS - 1])
#ifdef V
// Whether `V` places lie in one row; then all elements between two existing ones exist too.
__device__ inline bool is_run(const Position& first, u32 place, u32 places, const Sizes& sizes) {
  return (!TURNED || STRIDE(DIMS - 1) == 1) && first.at[DIMS - 1] + V <= (u32)sizes.positions[DIMS - 1] && place + V <= places;
}
#endif
// Offset of the results of a column, and the offset of a row from there.
#if WEIGHTS
#define COLUMN(column) weight_of(column, so)
#define ROW_STEP so.outer
#else
#define COLUMN(column) offset_of(position_of(column, sizes), so)
#define ROW_STEP so.channel
#endif
__device__ inline C finished(C sum, const T* bias, u32 channel) { return BIAS ? sum + load<C>(bias[channel]) : sum; }
"#;

/// Kernel text: tiles of the product in the registers of warps, which multiply with the matrix units.
pub const UNITS: &str = r#"
typedef u16 E;
__device__ inline E element(T x) { return x.bits; }
#define WARPS (THREADS / LANES)
#define ROW_WARPS (BM < 64 ? 1 : 2)
#define COLUMN_WARPS (WARPS / ROW_WARPS)
#define MT (BM / 16 / ROW_WARPS)
#define NT (BN / 16 / COLUMN_WARPS)
typedef Tile<BM, BK> FactorTile;
#if WEIGHTS
typedef Tile<BN, BK> WindowTile;
#else
typedef Tile<BK, BN> WindowTile;
#endif
struct Stage {
  FactorTile a;
  WindowTile b;
  enum { WORDS = (FactorTile::SIZE + WindowTile::SIZE) / 8 };
  __device__ inline Stage(Pack<u32, 4>* memory, int number) {
    a.at = (u16*)(memory + number * WORDS);
    b.at = a.at + FactorTile::SIZE;
  }
  __device__ inline void put_factor(u32 row, u32 depth, const Pack<E, V>& values) { *(Pack<E, V>*)a.chunk(row, depth) = values; }
  __device__ inline void put_windows(u32 row, u32 column, const Pack<E, V>& values) { *(Pack<E, V>*)b.chunk(row, column) = values; }
};
#define MEMORY __shared__ Pack<u32, 4> memory[2 * Stage::WORDS]
struct Total {
  Sums at[MT][NT];
  u32 row, column;
  __device__ inline Total() {
    u32 warp = threadIdx.x / LANES;
    row = warp % ROW_WARPS * MT * 16;
    column = warp / ROW_WARPS * NT * 16;
    EACH(m, MT) EACH(n, NT) EACH(h, LANE_ROWS) EACH(i, 4) at[m][n].at[h][i] = 0;
  }
  __device__ inline void add(const Stage& stage) {
    EACH(c, BK / 16) {
      Factor rows[MT];
      EACH(m, MT) rows[m] = left(stage.a, row + m * 16, c * 16);
      EACH(n, NT) {
#if WEIGHTS
        Factor columns = right(stage.b, column + n * 16, c * 16);
#else
        Factor columns = right_turned(stage.b, c * 16, column + n * 16);
#endif
        EACH(m, MT) multiply<T>(at[m][n], rows[m], columns);
      }
    }
  }
  // Calls `begin` for each column, and `put` for each of its rows with the result of `begin`.
  template <typename B, typename P> __device__ inline void finish(B begin, P put) const {
    EACH(n, NT) EACH(i, 4) {
      u32 own = column + n * 16 + lane_column(i);
      auto at_column = begin(own);
      EACH(m, MT) EACH(h, LANE_ROWS) put(at_column, row + m * 16 + lane_row(h), own, at[m][n].at[h][i]);
    }
  }
};
"#;

/// Kernel text: multiplies a tile with the vector units. A thread computes neighbouring rows, and columns or pairs of
/// columns that are apart.
pub const THREADS: &str = r#"
typedef C E;
__device__ inline E element(T x) { return load<C>(x); }
#define COLUMN_THREADS (THREADS / ROW_THREADS)
#define EACH_ROWS (BM / ROW_THREADS)
#define EACH_COLUMNS (BN / COLUMN_THREADS)
#define ROW_PACK (EACH_ROWS < 4 ? EACH_ROWS : 4)
#define COLUMN_PACK (2 - EACH_COLUMNS % 2)
#define COLUMN_OF(j) ((j) / COLUMN_PACK * (COLUMN_PACK * COLUMN_THREADS) + (j) % COLUMN_PACK)
struct Stage {
  C (*a)[BM + 4];
  C (*b)[BN + 4];
  enum { WORDS = BK * (BM + BN + 8) };
  __device__ inline Stage(Pack<C, 4>* memory, int number) {
    C* own = memory->at + number * WORDS;
    a = (C (*)[BM + 4])own;
    b = (C (*)[BN + 4])(own + BK * (BM + 4));
  }
  __device__ inline void put_factor(u32 row, u32 depth, const Pack<E, V>& values) { EACH(i, V) a[depth + i][row] = values.at[i]; }
  __device__ inline void put_windows(u32 row, u32 column, const Pack<E, V>& values) {
    EACH(i, V) {
      if (WEIGHTS) b[column + i][row] = values.at[i];
      else b[row][column + i] = values.at[i];
    }
  }
};
#define MEMORY __shared__ Pack<C, 4> memory[2 * Stage::WORDS / 4]
struct Total {
  C at[EACH_ROWS][EACH_COLUMNS];
  u32 row, column;
  __device__ inline Total() {
    row = threadIdx.x / COLUMN_THREADS * EACH_ROWS;
    column = threadIdx.x % COLUMN_THREADS * COLUMN_PACK;
    EACH(i, EACH_ROWS) EACH(j, EACH_COLUMNS) at[i][j] = 0;
  }
  __device__ inline void add(const Stage& stage) {
    EACH(d, BK) {
      Pack<C, ROW_PACK> rows[EACH_ROWS / ROW_PACK];
      Pack<C, COLUMN_PACK> columns[EACH_COLUMNS / COLUMN_PACK];
      EACH(i, EACH_ROWS / ROW_PACK) rows[i] = *(const Pack<C, ROW_PACK>*)&stage.a[d][row + i * ROW_PACK];
      EACH(j, EACH_COLUMNS / COLUMN_PACK) columns[j] = *(const Pack<C, COLUMN_PACK>*)&stage.b[d][column + COLUMN_OF(j * COLUMN_PACK)];
      EACH(i, EACH_ROWS) EACH(j, EACH_COLUMNS) {
        at[i][j] += rows[i / ROW_PACK].at[i % ROW_PACK] * columns[j / COLUMN_PACK].at[j % COLUMN_PACK];
      }
    }
  }
  template <typename B, typename P> __device__ inline void finish(B begin, P put) const {
    EACH(j, EACH_COLUMNS) {
      u32 own = column + COLUMN_OF(j);
      auto at_column = begin(own);
      EACH(i, EACH_ROWS) put(at_column, row + i, own, at[i][j]);
    }
  }
};
"#;

/// Kernel text: computes the product in tiles of `BM` × `BN`. Threads gather the elements of the next `BK` steps of the depth
/// while the matrix units multiply.
pub const TILES: &str = r#"  MEMORY;
  u32 row_tiles = (rows + BM - 1) / BM, column_tiles = (columns + BN - 1) / BN, rest = blockIdx.x;
  u32 first_row = rest % row_tiles * BM;
  rest /= row_tiles;
  u32 first_column = rest % column_tiles * BN;
  rest /= column_tiles;
  u32 group = rest % groups, split = rest / groups, first = split * share, last = first + share < depth ? first + share : depth;
  gathered += group * sg.group;
  factor += group * sf.group;
  // A thread loads `V` neighbouring elements along the depth, for some rows of the factor.
  const int ALONG = BK / V, FACTOR_ROWS = THREADS / ALONG, FACTOR_PASSES = (BM + FACTOR_ROWS - 1) / FACTOR_ROWS;
  u32 own_depth = threadIdx.x % ALONG * V, own_row = threadIdx.x / ALONG;
#if WEIGHTS
  // The gathered elements along the depth, for some columns.
  const int PASSES = (BN + FACTOR_ROWS - 1) / FACTOR_ROWS;
  Tap taps[PASSES];
  EACH(p, PASSES) {
    u32 own = own_row + p * FACTOR_ROWS, column = first_column + own;
    taps[p] = tap_of(column / ELEMENTS, column % ELEMENTS, own < BN && column < columns, sg);
  }
#else
  // The gathered elements of `V` neighbouring columns, for some steps of the depth.
  const int ACROSS = BN / V, DEPTH_ROWS = THREADS / ACROSS, PASSES = BK / DEPTH_ROWS;
  u32 own_column = threadIdx.x % ACROSS * V, depth_row = threadIdx.x / ACROSS;
  Place places[V];
  bool run;
  {
    Position position = position_of(first_column + own_column, sizes);
    run = is_run(position, first_column + own_column, columns, sizes);
    EACH(i, V) {
      places[i] = place_of(position, first_column + own_column + i < columns, sg, sizes);
      next(position, sizes);
    }
  }
#endif
  // The elements of neighbouring places for a tap. Their stride is known if all of them are inside.
  auto gather = [&](const Place (&places)[V], bool run, const Tap& tap) {
    Pack<E, V> found;
    i64 at, end;
    if (run && meet(places[0], tap, sg, sizes, at) && meet(places[V - 1], tap, sg, sizes, end)) {
      const T* from = gathered + at;
      EACH(i, V) found.at[i] = element(from[i * RUN_STEP]);
    } else {
      EACH(i, V) found.at[i] = meet(places[i], tap, sg, sizes, at) ? element(gathered[at]) : E(0);
    }
    return found;
  };
  Pack<E, V> own_factor[FACTOR_PASSES], own_windows[PASSES];
#if WEIGHTS
  Position own_position = position_of(first + own_depth, sizes);
#endif
  auto fetch = [&](u32 start) {
    u32 from = start + own_depth;
    i64 of_factor[V];
#if WEIGHTS
    Position position = own_position;
    advance(own_position, BK, sizes);
    Place places[V];
    bool run = is_run(position, from, last, sizes);
    if (run) {
      places[0] = places[V - 1] = place_of(position, true, sg, sizes);
      places[V - 1].at += (V - 1) * RUN_STEP;
      places[V - 1].start[DIMS - 1] += (V - 1) * STRIDE(DIMS - 1);
      i64 at = offset_of(position, sf);
      EACH(i, V) of_factor[i] = at + i * sf.at[DIMS - 1];
      // The window lies partly outside.
      EACH(i, V - 2) {
        places[i + 1] = places[i];
        places[i + 1].at += RUN_STEP;
        places[i + 1].start[DIMS - 1] += STRIDE(DIMS - 1);
      }
    } else {
      EACH(i, V) {
        places[i] = place_of(position, from + i < last, sg, sizes);
        of_factor[i] = offset_of(position, sf);
        next(position, sizes);
      }
    }
    EACH(p, PASSES) own_windows[p] = gather(places, run, taps[p]);
    const i64 row_step = sf.channel;
#else
    EACH(p, PASSES) {
      u32 tap = start + depth_row + p * DEPTH_ROWS;
      own_windows[p] = gather(places, run, tap_of(tap / ELEMENTS, tap % ELEMENTS, tap < last, sg));
    }
    EACH(i, V) of_factor[i] = DENSE ? from + i : weight_of(from + i, sf);
    const i64 row_step = sf.outer;
#endif
    EACH(p, FACTOR_PASSES) {
      u32 row = first_row + own_row + p * FACTOR_ROWS;
      const T* at = factor + row * row_step;
      if (PACKS && row < rows && from < last) {
        own_factor[p] = *(const Pack<E, V>*)(at + from);
      } else {
        EACH(i, V) own_factor[p].at[i] = row < rows && from + i < last ? element(at[of_factor[i]]) : E(0);
      }
    }
  };
  auto put = [&](Stage stage) {
    EACH(p, FACTOR_PASSES) if (own_row + p * FACTOR_ROWS < BM) stage.put_factor(own_row + p * FACTOR_ROWS, own_depth, own_factor[p]);
#if WEIGHTS
    EACH(p, PASSES) if (own_row + p * FACTOR_ROWS < BN) stage.put_windows(own_row + p * FACTOR_ROWS, own_depth, own_windows[p]);
#else
    EACH(p, PASSES) stage.put_windows(depth_row + p * DEPTH_ROWS, own_column, own_windows[p]);
#endif
  };
  Total total;
  u32 current = 0;
  fetch(first);
  put(Stage(memory, 0));
  __syncthreads();
  for (u32 start = first; start < last; start += BK) {
    bool more = start + BK < last;
    if (more) fetch(start + BK);
    total.add(Stage(memory, current));
    if (more) put(Stage(memory, 1 - current));
    __syncthreads();
    current = 1 - current;
  }
  auto begin = [&](u32 column) { return first_column + column < columns ? COLUMN(first_column + column) : 0; };
  total.finish(begin, [&](i64 at, u32 own_row, u32 own_column, C sum) {
    u32 row = first_row + own_row, column = first_column + own_column;
    if (row >= rows || column >= columns) return;
    if (splits > 1) parts[(((u64)split * groups + group) * rows + row) * columns + column] = sum;
    else store<C>(out[group * so.group + at + row * ROW_STEP], finished(sum, bias, group * rows + row));
  });
"#;

/// Kernel text: adds the partial sums of blocks that share the depth. `SHARERS` threads share the sums of a result.
pub const JOIN: &str = r#"  const u32 results = THREADS / SHARERS, own = threadIdx.x % results, sharer = threadIdx.x / results;
  const u64 index = (u64)blockIdx.x * results + own;
  C sum = 0;
  if (index < count) {
#pragma unroll 16
    for (u32 split = sharer; split < splits; split += SHARERS) sum += parts[split * count + index];
  }
#if SHARERS > 1
  __shared__ C sums[THREADS];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (sharer > 0) return;
  for (u32 other = 1; other < SHARERS; other++) sum += sums[other * results + own];
#endif
  if (index >= count) return;
  u32 column = (u32)(index % columns), row = (u32)(index / columns % rows), group = (u32)(index / columns / rows);
  store<C>(out[group * so.group + COLUMN(column) + row * ROW_STEP], finished(sum, bias, group * rows + row));
"#;

/// Kernel text: a thread computes one place of all rows, for groups with few rows.
pub const DIRECT: &str = r#"  u64 index = GLOBAL_INDEX;
  if (index >= count) return;
  u32 column = (u32)(index % columns), group = (u32)(index / columns);
  gathered += group * sg.group;
  factor += group * sf.group;
  Place place = place_of(position_of(column, sizes), true, sg, sizes);
  bool inner = !TURNED;
  EACH_DIM(j) inner = inner && place.start[j] >= 0 && place.start[j] + (KERNEL(j) - 1) * DILATION(j) < sizes.sources[j];
  C sums[ROWS];
  EACH(row, ROWS) sums[row] = 0;
  for (u32 channel = 0; channel < depth / ELEMENTS; channel++) {
#if ELEMENTS <= 32
#pragma unroll
#else
#pragma unroll 4
#endif
    for (u32 e = 0; e < ELEMENTS; e++) {
      Tap tap = tap_of(channel, e, true, sg);
      i64 at = place.at + tap.at;
      C value = inner || meet(place, tap, sg, sizes, at) ? load<C>(gathered[at]) : C(0);
      const T* weights = factor + weight_of(channel * ELEMENTS + e, sf);
      EACH(row, ROWS) sums[row] += value * load<C>(weights[row * sf.outer]);
    }
  }
  T* to = out + group * so.group + COLUMN(column);
  EACH(row, ROWS) store<C>(to[row * ROW_STEP], finished(sums[row], bias, group * ROWS + row));
"#;

/// Kernel text: a block sums up `ROWS` × `COLUMNS` weights over `share` places. Each thread sums up all of them over some places.
pub const DIRECT_WEIGHTS: &str = r#"  __shared__ C shared[THREADS / 32][ROWS * COLUMNS];
  const u32 row_parts = (rows + ROWS - 1) / ROWS, column_parts = (columns + COLUMNS - 1) / COLUMNS;
  u32 rest = blockIdx.x;
  const u32 first_column = rest % column_parts * COLUMNS;
  rest /= column_parts;
  const u32 first_row = rest % row_parts * ROWS;
  rest /= row_parts;
  const u32 group = rest % groups, split = rest / groups, begin = split * share;
  const u32 end = depth - begin < share ? depth : begin + share;
  gathered += group * sg.group;
  factor += group * sf.group + first_row * sf.channel;
#if COLUMNS == 1
  const Tap tap = tap_of(first_column / ELEMENTS, first_column % ELEMENTS, true, sg);
#else
  const u32 channels = columns / ELEMENTS;
  gathered += first_column / ELEMENTS * sg.channel;
#endif
  C sums[ROWS][COLUMNS];
  EACH(r, ROWS) EACH(c, COLUMNS) sums[r][c] = 0;
  // Elements that do not exist are replaced by existing ones, so that no load depends on a branch.
  Position position = position_of(begin + threadIdx.x, sizes);
  const Position step = position_of(THREADS, sizes);
  for (u32 number = begin + threadIdx.x; number < end; number += THREADS) {
    const T* from = factor + offset_of(position, sf);
    const Place place = place_of(position, true, sg, sizes);
    C factors[ROWS], values[COLUMNS];
    EACH(r, ROWS) factors[r] = first_row + r < rows ? load<C>(from[r * sf.channel]) : C(0);
#if COLUMNS == 1
    i64 at;
    const bool exists = meet(place, tap, sg, sizes, at);
    const C value = load<C>(gathered[exists ? at : 0]);
    values[0] = exists ? value : C(0);
#else
    // Offsets along each dimension, for each kernel element.
    Offset along[DIMS][LONGEST];
    bool inside[DIMS][LONGEST];
    EACH_DIM(j) EACH(k, KERNEL(j)) {
      const u32 source = place.start[j] + k * DILATION(j);
      inside[j][k] = source < (u32)sizes.sources[j];
      along[j][k] = (inside[j][k] ? source : 0) * (Offset)sg.at[j];
    }
    const Offset sample = position.sample * (Offset)sg.outer;
    EACH(c, COLUMNS) {
      Offset at = sample + (first_column / ELEMENTS + c / ELEMENTS < channels ? c / ELEMENTS : 0) * (Offset)sg.channel;
      bool exists = true;
      int element = c % ELEMENTS;
#pragma unroll
      for (int j = DIMS - 1; j >= 0; j--) {
        at += along[j][element % KERNEL(j)];
        exists = exists && inside[j][element % KERNEL(j)];
        element /= KERNEL(j);
      }
      const C value = load<C>(gathered[at]);
      values[c] = exists ? value : C(0);
    }
#endif
    EACH(r, ROWS) EACH(c, COLUMNS) sums[r][c] += factors[r] * values[c];
    u32 carry = 0;
#pragma unroll
    for (int j = DIMS - 1; j >= 0; j--) {
      const u32 size = (u32)sizes.positions[j], next = position.at[j] + step.at[j] + carry;
      carry = next >= size;
      position.at[j] = carry ? next - size : next;
    }
    position.sample += step.sample + carry;
  }
  EACH(r, ROWS) EACH(c, COLUMNS) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sums[r][c] += SHUFFLE_XOR(sums[r][c], mask);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32][r * COLUMNS + c] = sums[r][c];
  }
  __syncthreads();
  for (u32 own = threadIdx.x; own < ROWS * COLUMNS; own += THREADS) {
    const u32 row = first_row + own / COLUMNS, column = first_column + own % COLUMNS;
    if (row >= rows || column >= columns) continue;
    C sum = shared[0][own];
    for (int warp = 1; warp < THREADS / 32; warp++) sum += shared[warp][own];
    if (splits > 1) parts[(((u64)split * groups + group) * rows + row) * columns + column] = sum;
    else store<C>(out[group * so.group + COLUMN(column) + row * ROW_STEP], sum);
  }
"#;
