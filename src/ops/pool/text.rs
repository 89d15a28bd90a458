//! Kernel text of pools. Sizes, strides and windows are macros, so that the compiler replaces divisions by multiplications.
//! Unused dimensions come first, with one element and one window.

/// Kernel text: positions of windows and elements.
pub const WINDOWS: &str = r#"
#define EACH_DIM(j) _Pragma("unroll") for (int j = 0; j < 3; j++)
#define EACH_PLANE(r) _Pragma("unroll") for (u32 r = 0; r < PLANES; r++)
#define EACH_WINDOW_OF_THREAD(t) _Pragma("unroll") for (u32 t = 0; t < TALL; t++)
#define SPAN(j) (DILATION(j) * (SIZE(j) - 1) + 1)
#define OFFSET(steps, at) ((Offset)(at)[0] * steps(0) + (Offset)(at)[1] * steps(1) + (Offset)(at)[2] * steps(2))
#define NOWHERE 0xffffffffu
struct Steps { i64 sample, channel; };
struct Range { u32 from[3], to[3]; };
__device__ inline void split(u32 index, u32 rows, u32 columns, u32 (&at)[3]) {
  const u32 row = index / columns;
  at[0] = row / rows, at[1] = row % rows, at[2] = index % columns;
}
__device__ inline i64 plane_at(u32 plane, const Steps& steps) {
  return FOLDED ? plane * steps.channel : plane / CHANNELS * steps.sample + plane % CHANNELS * steps.channel;
}
// Finds the range of a window's elements along a dimension that are inside the tensor.
__device__ inline void range_along(int j, u32 window, u32& first, u32& last) {
  if (X(j) == 1) {
    first = 0, last = 1;
  } else if (ADAPTIVE) {
    first = (u32)((Wide)window * X(j) / Y(j));
    last = (u32)((((Wide)window + 1) * X(j) + Y(j) - 1) / Y(j));
  } else {
    u32 from = window * STRIDE(j), to = from + SPAN(j);
    if (from < PADDING(j)) from += (PADDING(j) - from + DILATION(j) - 1) / DILATION(j) * DILATION(j);
    first = from - PADDING(j);
    to = to < PADDING(j) ? 0 : to - PADDING(j);
    last = PADDING(j) == 0 || to < X(j) ? to : X(j);
  }
}
__device__ inline Range range_of(const u32 (&window)[3]) {
  Range range;
  EACH_DIM(j) range_along(j, window[j], range.from[j], range.to[j]);
  return range;
}
// Returns the divisor of a mean of this many elements inside the tensor.
__device__ inline C divisor_of(u32 inside) {
  // The number of elements with padding may exceed 32 bits.
  return WHOLE_DIVISOR ? (C)((u64)SIZE(0) * SIZE(1) * SIZE(2)) : (C)inside;
}
__device__ inline C divisor_of(const Range& range) {
  u32 inside = 1;
  EACH_DIM(j) inside *= range.to[j] - range.from[j];
  return divisor_of(inside);
}
// Returns the range of the windows whose span includes an element. If dilation skips it in a window, it is not the window's maximum.
__device__ inline Range windows_of(const u32 (&own)[3]) {
  Range windows;
  EACH_DIM(j) {
    if (COVERS(j)) {
      windows.from[j] = 0, windows.to[j] = 1;
    } else if (ADAPTIVE) {
      windows.from[j] = (u32)((Wide)own[j] * Y(j) / X(j));
      windows.to[j] = (u32)((((Wide)own[j] + 1) * Y(j) + X(j) - 1) / X(j));
    } else {
      const u32 padded = own[j] + PADDING(j), last = padded / STRIDE(j) + 1;
      windows.from[j] = padded < SPAN(j) ? 0 : (padded - SPAN(j)) / STRIDE(j) + 1;
      windows.to[j] = last < Y(j) ? last : Y(j);
    }
  }
  return windows;
}
// Returns the place of an element as the kernels store it for the maximum of a window.
__device__ inline u32 place_in(const u32 (&own)[3], const u32 (&window)[3]) {
  if (!RELATIVE) return (own[0] * X(1) + own[1]) * X(2) + own[2];
  u32 relative[3];
  EACH_DIM(j) relative[j] = own[j] + PADDING(j) - window[j] * STRIDE(j);
  return (relative[0] * SIZE(1) + relative[1]) * SIZE(2) + relative[2];
}
// Returns the larger number, or NaN if one is NaN.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ inline f32 larger(f32 a, f32 b) { f32 c; asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
#else
__device__ inline f32 larger(f32 a, f32 b) { return f_max(a, b); }
#endif
__device__ inline f64 larger(f64 a, f64 b) { return f_max(a, b); }
__device__ inline f32 multiply_add(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
__device__ inline f64 multiply_add(f64 a, f64 b, f64 c) { return fma(a, b, c); }
// Divides by a number whose inverse is known, and corrects the rounding.
__device__ inline C quotient(C value, C divisor, C inverse) {
  const C near = value * inverse, corrected = multiply_add(multiply_add(-near, divisor, value), inverse, near);
  return f_abs(near) < INFINITE ? corrected : near;
}
struct Best {
  C value;
  u32 place;
  // Joins an element whose place comes after those of all elements joined before.
  __device__ inline void join_later(C other, u32 from) {
    if ((other <= value || value != value) && place != NOWHERE) return;
    value = other;
    place = from;
  }
  __device__ inline void join(C other, u32 from) {
    bool larger = other > value || (other != other && value == value);
    bool same = other == value || (other != other && value != value);
    if (larger || (same && from < place)) {
      value = other;
      place = from;
    }
  }
  __device__ inline void take(C other, u32 from) {
    if (PLACES) join_later(other, from);
    else if (MAX) value = larger(value, other);
    else value += other;
  }
};
__device__ inline Best nothing() { return {MAX ? -C(INFINITE) : C(0), NOWHERE}; }
// Returns the largest element of a pack, or NaN if one is NaN; the sum of the elements for a mean.
__device__ inline C joined_pack(const Pack<T, V>& pack) {
#if HALVES && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  // A single instruction compares two elements of 16 bits.
  union Words { Pack<T, V> pack; u32 w[V / 2]; __device__ Words() {} } words;
  words.pack = pack;
#pragma unroll
  for (i32 w = 1; w < V / 2; w++) asm("max.NaN." PAIR " %0, %0, %1;" : "+r"(words.w[0]) : "r"(words.w[w]));
  return larger(load<C>(words.pack.at[0]), load<C>(words.pack.at[1]));
#else
  C joined = load<C>(pack.at[0]);
#pragma unroll
  for (i32 v = 1; v < V; v++) joined = MAX ? larger(joined, load<C>(pack.at[v])) : joined + load<C>(pack.at[v]);
  return joined;
#endif
}
"#;

/// Kernel text: neighbouring elements of a cell.
pub const ELEMENTS: &str = r#"
#if PACKED
typedef Pack<T, STRIDE(2)> Elements;
#else
struct Elements { T at[STRIDE(2)]; };
#endif
// Positions before the first element wrap around to large numbers.
__device__ inline void write(const Elements& elements, T* to, u32 first) {
#if PACKED
  *(Elements*)to = elements;
#else
#pragma unroll
  for (u32 k = 0; k < STRIDE(2); k++) if (first + k < X(2)) to[k * SD(2)] = elements.at[k];
#endif
}
"#;

/// Kernel text: a thread reads the windows at one position of `PLANES` planes, which are `groups` planes apart; `TALL` windows that
/// follow each other along the second dimension and share elements.
pub const PER_THREAD: &str = r#"  const Index index = (Index)GLOBAL_INDEX;
  if (index >= count) return;
  u32 window[3];
  const u32 first = (u32)(index / (CELLS(0) * CELLS(1) * CELLS(2)));
  split((u32)(index % (CELLS(0) * CELLS(1) * CELLS(2))), CELLS(1), CELLS(2), window);
  window[1] *= TALL;
  const T* from[PLANES];
  Best best[TALL][PLANES];
#if UNROLLED
  // Position of the window's first element, which may be outside.
  i64 begin = 0;
  EACH_DIM(j) begin += (i32)(window[j] * STRIDE(j) - PADDING(j)) * (i64)(j == 0 ? SX(0) : j == 1 ? SX(1) : SX(2));
#else
  const i64 begin = 0;
#endif
  EACH_PLANE(r) {
    const u32 plane = first + r * groups;
    from[r] = x + plane_at(plane < planes ? plane : first, sx) + begin;
    EACH_WINDOW_OF_THREAD(t) best[t][r] = nothing();
  }
#if UNROLLED
  // Elements of all windows of the thread: rows of `SIZE(2)` elements, `HEIGHT` of them along the second dimension. Positions before the
  // first element wrap around to large numbers.
#define HEIGHT ((TALL - 1) * STRIDE(1) + SIZE(1))
#define EACH_ROW _Pragma("unroll") for (u32 row = 0; row < SIZE(0) * HEIGHT; row++)
#define EACH_OF_ROW _Pragma("unroll") for (u32 c = 0; c < SIZE(2); c++)
  bool exists = true;
  EACH_DIM(j) exists = exists && (CELLS(j) == Y(j) || window[j] < Y(j));
  auto at = [&](int j, u32 e) { return window[j] * STRIDE(j) + e * DILATION(j) - PADDING(j); };
  // The last windows of a thread may not exist.
  auto is_inside = [&](int j, u32 e) { return (PADDING(j) == 0 && (j != 1 || Y(1) % TALL == 0)) || at(j, e) < X(j); };
  auto has_row = [&](u32 row) { return is_inside(0, row / HEIGHT) && is_inside(1, row % HEIGHT); };
  // Loads do not wait for each other, since elements are converted after all of them.
  T values[SIZE(0) * HEIGHT][SIZE(2)][PLANES];
  if (exists) {
    EACH_ROW {
      const i64 start = row / HEIGHT * DILATION(0) * SX(0) + row % HEIGHT * DILATION(1) * SX(1);
      // A condition for each load: a branch around a row would wait for the loads of the row before.
      EACH_OF_ROW EACH_PLANE(r) {
        if (!PLACES) store<C>(values[row][c][r], nothing().value);
        if (has_row(row) && is_inside(2, c)) values[row][c][r] = from[r][start + c * DILATION(2) * SX(2)];
      }
    }
    EACH_ROW {
      // Without places, an element outside changes nothing.
      if (PLACES && !has_row(row)) continue;
      const u32 place = RELATIVE ? 0 : (at(0, row / HEIGHT) * X(1) + at(1, row % HEIGHT)) * X(2);
      EACH_PLANE(r) {
        // Windows of a thread that share a row take its result.
        Best joined = nothing();
        Best& taker = TALL > 1 ? joined : best[0][r];
        const u32 before = RELATIVE && TALL == 1 ? row * SIZE(2) : place;
        EACH_OF_ROW if (!PLACES || is_inside(2, c)) taker.take(load<C>(values[row][c][r]), before + (RELATIVE ? c : at(2, c)));
        if (TALL == 1) continue;
        EACH_WINDOW_OF_THREAD(t) {
          const u32 a = row / HEIGHT, b = row % HEIGHT - t * STRIDE(1);
          if (b < SIZE(1)) best[t][r].take(joined.value, joined.place + (RELATIVE ? (a * SIZE(1) + b) * SIZE(2) : 0));
        }
      }
    }
  }
#else
  const Range range = range_of(window);
  u32 at[3];
  for (at[0] = range.from[0]; at[0] < range.to[0]; at[0] += DILATION(0))
    for (at[1] = range.from[1]; at[1] < range.to[1]; at[1] += DILATION(1))
#pragma unroll 4
      for (at[2] = range.from[2]; at[2] < range.to[2]; at[2] += DILATION(2))
        EACH_PLANE(r) best[0][r].take(load<C>(from[r][OFFSET(SX, at)]), (at[0] * X(1) + at[1]) * X(2) + at[2]);
#endif
"#;

/// Kernel text: writes the results of the windows of a thread.
pub const STORE_OF_A_THREAD: &str = r#"  EACH_WINDOW_OF_THREAD(t) {
    const u32 own[3] = {window[0], window[1] + t, window[2]};
    if (TALL > 1 && own[1] >= Y(1)) break;
    const C divisor = divisor_of(range_of(own)), inverse = C(1) / divisor;
    EACH_PLANE(r) {
      const u32 plane = first + r * groups;
      if (plane >= planes) break;
#if PLACES
      places[(u64)plane * (Y(0) * Y(1) * Y(2)) + (own[0] * Y(1) + own[1]) * Y(2) + own[2]] = (Place)best[t][r].place;
#endif
#if RESULTS
      store<C>(y[plane_at(plane, sy) + OFFSET(SY, own)], MAX ? best[t][r].value : quotient(best[t][r].value, divisor, inverse));
#endif
    }
  }
"#;

/// Kernel text: writes the gradients of maxima of windows without overlap. The cell of a window begins with it and ends before the
/// next one.
pub const STORE_CELL: &str = r#"  // Position of the cell's first element, which may be outside.
  i64 cell = 0;
  EACH_DIM(j) cell += (i32)(window[j] * STRIDE(j) - PADDING(j)) * (i64)(j == 0 ? SD(0) : j == 1 ? SD(1) : SD(2));
  EACH_PLANE(r) {
    const u32 plane = first + r * groups;
    if (plane >= planes) return;
    const C gradient = exists ? load<C>(y[plane_at(plane, sy) + OFFSET(SY, window)]) : C(0);
    T* to = dx + plane_at(plane, so) + cell;
#pragma unroll
    for (u32 i = 0; i < STRIDE(0); i++)
#pragma unroll
      for (u32 j = 0; j < STRIDE(1); j++) {
        if (window[0] * STRIDE(0) + i - PADDING(0) >= X(0) || window[1] * STRIDE(1) + j - PADDING(1) >= X(1)) continue;
        Elements row;
#pragma unroll
        for (u32 k = 0; k < STRIDE(2); k++) {
          const bool is_inside = i < SIZE(0) && j < SIZE(1) && k < SIZE(2);
          store<C>(row.at[k], is_inside && best[0][r].place == (i * SIZE(1) + j) * SIZE(2) + k ? gradient : C(0));
        }
        write(row, to + i * SD(0) + j * SD(1), window[2] * STRIDE(2) - PADDING(2));
      }
  }
"#;

/// Kernel text: writes zeros to all gradients, as many packs per thread as the size of the grid requires.
pub const ZERO: &str = r#"  const u64 elements = (u64)planes * X(0) * X(1) * X(2);
  for (u64 first = GLOBAL_INDEX * ZERO_PACK; first < elements; first += (u64)gridDim.x * blockDim.x * ZERO_PACK) {
    if (ZERO_PACK > 1 && first + ZERO_PACK <= elements) {
      *(Pack<T, ZERO_PACK>*)(dx + first) = {};
      continue;
    }
    for (u64 next = first; next < first + ZERO_PACK && next < elements; next++) {
      u32 own[3];
      split((u32)(next % (X(0) * X(1) * X(2))), X(1), X(2), own);
      store<C>(dx[plane_at((u32)(next / (X(0) * X(1) * X(2))), so) + OFFSET(SD, own)], C(0));
    }
  }
"#;

/// Kernel text: `LANES` threads read a window, or one of `PARTS` equal parts of its packs. A row of a window has up to `PACKS` packs of
/// `V` elements. They are aligned, so the first and the last one may contain elements outside of the row.
pub const SHARED: &str = r#"  Index index = (Index)(GLOBAL_INDEX / LANES);
  const u32 lane = threadIdx.x % LANES, part = (u32)(index % PARTS);
  index /= PARTS;
  if (index >= count) return;
  const u32 plane = (u32)(index / (Y(0) * Y(1) * Y(2)));
  u32 window[3], inside[3];
  split((u32)(index % (Y(0) * Y(1) * Y(2))), Y(1), Y(2), window);
  const Range range = range_of(window);
  EACH_DIM(j) inside[j] = range.from[j] < range.to[j] ? (range.to[j] - range.from[j] - 1) / DILATION(j) + 1 : 1;
  const i32 length = (i32)inside[2];
  const u32 all = ROWS(0) * ROWS(1) * PACKS, each = (all + PARTS - 1) / PARTS;
  const u32 begin = (u64)part * each < all ? part * each : all, end = all - begin < each ? all : begin + each;
  // Finds the row of a pack, which is null beyond the end of the window, and the place of the pack in it.
#define FIND_ROW(base, steps, leads) \
  u32 own[3]; \
  split(next, ROWS(1), PACKS, own); \
  const u32 at[3] = {range.from[0] + own[0] * DILATION(0), range.from[1] + own[1] * DILATION(1), range.from[2]}; \
  auto* row = base + OFFSET(steps, at); \
  const i32 first = (i32)(own[2] * V) - (leads ? (i32)((u64)row / sizeof(T) % V) : 0); \
  const bool exists = next < end && own[0] < inside[0] && own[1] < inside[1] && first < length;
  const T* from = x + plane_at(plane, sx);
#if SPREADS
  T* to = dx + plane_at(plane, so);
#endif
  Best best = nothing();
  // The pack with the maximum, its place in its row, and the place of the row in the plane.
  Pack<T, V> kept;
  i32 kept_first = length;
  u32 kept_row = 0;
  for (u32 base = begin + lane; base < end; base += AHEAD * LANES) {
    Pack<T, V> packs[AHEAD];
    i32 firsts[AHEAD];
    u32 rows[AHEAD];
#pragma unroll
    for (u32 u = 0; u < AHEAD; u++) {
      const u32 next = base + u * LANES;
      FIND_ROW(from, SX, LEADS_X)
      firsts[u] = exists ? first : length;
      rows[u] = (at[0] * X(1) + at[1]) * X(2) + at[2];
      if (exists) packs[u] = *(const Pack<T, V>*)(row + (i64)first * (V == 1 ? DILATION(2) * SX(2) : 1));
    }
#if SPREADS
    // Writes zeros while the loads are under way.
#pragma unroll
    for (u32 u = 0; u < AHEAD; u++) {
      const u32 next = base + u * LANES;
      FIND_ROW(to, SD, LEADS_D)
      if (!exists) continue;
      const Pack<T, V> zeros = {};
      if (first >= 0 && first + V <= length) {
        *(Pack<T, V>*)(row + (i64)first * (V == 1 ? SD(2) : 1)) = zeros;
        continue;
      }
#pragma unroll
      for (i32 v = 0; !EDGES && v < V; v++) if (first + v >= 0 && first + v < length) row[first + v] = zeros.at[v];
    }
#endif
#pragma unroll
    for (u32 u = 0; u < AHEAD; u++) {
      if (firsts[u] == length) continue;
      if (!WHOLE && (firsts[u] < 0 || firsts[u] + V > length)) {
        T none;
        store<C>(none, nothing().value);
#pragma unroll
        for (i32 v = 0; v < V; v++) if ((u32)(firsts[u] + v) >= (u32)length) packs[u].at[v] = none;
      }
      const C joined = joined_pack(packs[u]);
      if (!PLACES) {
        best.value = MAX ? larger(best.value, joined) : best.value + joined;
      } else if (joined > best.value || (joined != joined && best.value == best.value) || kept_first == length) {
        best.value = joined, kept = packs[u], kept_first = firsts[u], kept_row = rows[u];
      }
    }
  }
#if EDGES
  // Neighbouring threads write the elements of a row's first and last pack if it is not whole, so that one access writes all of them. A
  // row belongs to the part with its first pack.
  const u32 begin_row = (begin + PACKS - 1) / PACKS, end_row = (end + PACKS - 1) / PACKS;
  for (u32 item = lane; item < (end_row - begin_row) * (2 * V); item += LANES) {
    const u32 own = begin_row + item / (2 * V), own0 = own / ROWS(1), own1 = own % ROWS(1);
    if (own0 >= inside[0] || own1 >= inside[1]) continue;
    const u32 at[3] = {range.from[0] + own0 * DILATION(0), range.from[1] + own1 * DILATION(1), range.from[2]};
    T* row = to + OFFSET(SD, at);
    const i32 lead = LEADS_D ? (i32)((u64)row / sizeof(T) % V) : 0, last = (length + lead) / V * V - lead;
    const bool is_last = item / V % 2 == 1;
    const i32 i = (is_last ? last : -lead) + (i32)(item % V);
    // A row within one pack has no last one.
    if ((is_last ? last >= 0 : lead > 0) && i >= 0 && i < length) store<C>(row[i], C(0));
  }
#endif
#if PLACES
  if (kept_first < length) {
#pragma unroll
    for (i32 v = V - 1; v >= 0; v--) {
      const C value = load<C>(kept.at[v]);
      const bool same = value == best.value || (value != value && best.value != best.value);
      if (same && (u32)(kept_first + v) < (u32)length) best.place = kept_row + (u32)(kept_first + v) * DILATION(2);
    }
  }
#endif
"#;

/// Kernel text: a block reads the results of a window's parts.
pub const FINISH: &str = r#"  const Index index = (Index)blockIdx.x;
  const u32 lane = threadIdx.x, plane = (u32)(index / (Y(0) * Y(1) * Y(2)));
  u32 window[3];
  split((u32)(index % (Y(0) * Y(1) * Y(2))), Y(1), Y(2), window);
  const Range range = range_of(window);
  Best best = nothing();
  for (u32 part = lane; part < PARTS; part += LANES) {
    const Best other = partial[index * PARTS + part];
    if (PLACES) best.join(other.value, other.place);
    else best.take(other.value, other.place);
  }
"#;

/// Kernel text: joins the results of the threads of a window in each of them.
pub const JOIN: &str = r#"  auto join = [&](int masks) {
#pragma unroll
    for (int mask = masks / 2; mask > 0; mask /= 2) {
      const C other = SHUFFLE_XOR(best.value, mask);
      if (PLACES) best.join(other, SHUFFLE_XOR(best.place, mask));
      else best.take(other, 0);
    }
  };
  join(LANES < 32 ? LANES : 32);
#if LANES > 32
  __shared__ Best joined[BLOCK / 32];
  if (lane % 32 == 0) joined[threadIdx.x / 32] = best;
  __syncthreads();
  best = joined[threadIdx.x / LANES * (LANES / 32) + lane % (LANES / 32)];
  join(LANES / 32);
#endif
"#;

/// Kernel text: writes the result of a part of a window.
pub const STORE_PART: &str = "  if (lane == 0) partial[index * PARTS + part] = best;\n";

/// Kernel text: writes the gradient of a maximum.
pub const STORE_SUM: &str = "  if (leads) store<C>(dx[plane_at(plane, so) + OFFSET(SD, own)], sum);\n";

/// Kernel text: writes the result of a window.
pub const STORE: &str = r#"  if (lane > 0) return;
#if PLACES
  places[index] = best.place;
#endif
#if RESULTS
  store<C>(y[plane_at(plane, sy) + OFFSET(SY, window)], MAX ? best.value : best.value / divisor_of(range));
#endif
"#;

/// Kernel text: writes the gradient of a window with parts to its maximum. All other gradients are written already.
pub const STORE_GRADIENT: &str = r#"  if (lane > 0) return;
  u32 at[3];
  split(best.place, X(1), X(2), at);
  store<C>(*(dx + plane_at(plane, so) + OFFSET(SD, at)), load<C>(y[plane_at(plane, sy) + OFFSET(SY, window)]));
"#;

/// Kernel text: the gradient of a window is written after the zeros of all of its threads.
pub const AFTER_ZEROS: &str = "  __syncthreads();\n";

/// Kernel text: a thread reads the place of a window's maximum. If no window before it has the same maximum, it adds the gradients of
/// all windows that have. All elements are zero already.
pub const SCATTER: &str = r#"  const Index index = (Index)GLOBAL_INDEX;
  if (index >= count) return;
  const u32 plane = (u32)(index / (Y(0) * Y(1) * Y(2)));
  u32 window[3], own[3];
  split((u32)(index % (Y(0) * Y(1) * Y(2))), Y(1), Y(2), window);
  split(places[index], RELATIVE ? SIZE(1) : X(1), RELATIVE ? SIZE(2) : X(2), own);
  if (RELATIVE) EACH_DIM(j) own[j] += window[j] * STRIDE(j) - PADDING(j);
  const u32 first_window = 0;
  const Place* own_places = places + (u64)plane * (Y(0) * Y(1) * Y(2));
  const T* gradients = y + plane_at(plane, sy);
  auto gradient_of = [&](const u32 (&at)[3], u32) { return load<C>(gradients[OFFSET(SY, at)]); };
"#;

/// Kernel text: adds the gradients of all windows with the same maximum. `leads` is true if none comes before this window. `own_places`
/// begins with the window of number `first_window`, and `gradient_of` returns the gradient of a window.
pub const ADD_ALIKE: &str = r#"  const Range windows = windows_of(own);
  bool leads = true;
  C sum = 0;
  u32 at[3];
  for (at[0] = windows.from[0]; at[0] < windows.to[0]; at[0]++)
    for (at[1] = windows.from[1]; at[1] < windows.to[1]; at[1]++)
#pragma unroll 4
      for (at[2] = windows.from[2]; at[2] < windows.to[2]; at[2]++) {
        const u32 number = (at[0] * Y(1) + at[1]) * Y(2) + at[2];
        if (own_places[number - first_window] != place_in(own, at)) continue;
        leads = leads && number >= (window[0] * Y(1) + window[1]) * Y(2) + window[2];
        sum += gradient_of(at, number);
      }
"#;
