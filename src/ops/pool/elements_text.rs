//! Kernel text of gradients that threads compute from the windows of an element, or of a cell of elements.

/// Kernel text: a thread computes the gradients of the element at one position of `PLANES` planes, which are `groups` planes apart,
/// from the windows that contain it. The next elements of the row, `ALIKE` in all, have the same gradient.
pub const BACKWARD: &str = r#"  const Index index = (Index)GLOBAL_INDEX;
  if (index >= count) return;
  u32 own[3];
  const u32 first = (u32)(index / (X(0) * X(1) * (X(2) / ALIKE)));
  split((u32)(index % (X(0) * X(1) * (X(2) / ALIKE))), X(1), X(2) / ALIKE, own);
  own[2] *= ALIKE;
  const Range windows = windows_of(own);
  const u32 (&from)[3] = windows.from, (&to)[3] = windows.to;
  const T* gradients[PLANES];
  const Place* own_places[PLANES];
  C sums[PLANES];
  EACH_PLANE(r) {
    const u32 plane = first + r * groups, valid = plane < planes ? plane : first;
    gradients[r] = y + plane_at(valid, sy) + OFFSET(SY, from);
    own_places[r] = places + (u64)valid * (Y(0) * Y(1) * Y(2)) + (from[0] * Y(1) + from[1]) * Y(2) + from[2];
    sums[r] = 0;
  }
  auto gradient_of = [&](u32 r, u32 a, u32 b, u32 c) { return load<C>(gradients[r][(Offset)(a * SY(0) + b * SY(1) + c * SY(2))]); };
  auto place_of = [&](u32 r, u32 a, u32 b, u32 c) { return MAX ? (u32)own_places[r][(a * Y(1) + b) * Y(2) + c] : 0; };
#if !MAX && MOST(0) * MOST(1) * MOST(2) <= FEW_WINDOWS
  // Number of elements of a window along a dimension.
  auto length_of = [&](int j, u32 window) {
    u32 first = 0, last = 1;
    if (!WHOLE_DIVISOR) range_along(j, window, first, last);
    return last - first;
  };
  // Loads every gradient before it uses the first, so that the loads overlap.
  T held[MOST(0) * MOST(1) * MOST(2)][PLANES];
#define EACH_WINDOW _Pragma("unroll") for (u32 e = 0; e < MOST(0) * MOST(1) * MOST(2); e++)
  auto after = [&](u32 e, int j) { return j == 0 ? e / (MOST(1) * MOST(2)) : j == 1 ? e / MOST(2) % MOST(1) : e % MOST(2); };
  auto exists = [&](u32 e) { return from[0] + after(e, 0) < to[0] && from[1] + after(e, 1) < to[1] && from[2] + after(e, 2) < to[2]; };
  EACH_WINDOW EACH_PLANE(r) {
    store<C>(held[e][r], C(0));
    if (exists(e)) held[e][r] = gradients[r][(Offset)(after(e, 0) * SY(0) + after(e, 1) * SY(1) + after(e, 2) * SY(2))];
  }
  EACH_WINDOW {
    u32 inside = 1;
    EACH_DIM(j) inside *= length_of(j, from[j] + after(e, j));
    const C share = exists(e) ? C(1) / divisor_of(inside) : C(0);
    EACH_PLANE(r) sums[r] += load<C>(held[e][r]) * share;
  }
#else
  // Adds the gradients of a window, whose distance to the first one is given.
  auto add = [&](u32 a, u32 b, u32 c, const C (&values)[PLANES], const u32 (&found)[PLANES]) {
    const u32 window[3] = {from[0] + a, from[1] + b, from[2] + c};
    if (MAX) {
      const u32 place = place_in(own, window);
      EACH_PLANE(r) sums[r] += found[r] == place ? values[r] : C(0);
    } else {
      const C share = C(1) / divisor_of(range_of(window));
      EACH_PLANE(r) sums[r] += values[r] * share;
    }
  };
  for (u32 a = 0; from[0] + a < to[0]; a++)
    for (u32 b = 0; from[1] + b < to[1]; b++)
      for (u32 c = 0; from[2] + c < to[2]; c++) {
        C values[PLANES];
        u32 found[PLANES];
        EACH_PLANE(r) values[r] = gradient_of(r, a, b, c), found[r] = place_of(r, a, b, c);
        add(a, b, c, values, found);
      }
#endif
  EACH_PLANE(r) {
    const u32 plane = first + r * groups;
    if (plane >= planes) return;
    Pack<T, ALIKE> alike;
#pragma unroll
    for (u32 v = 0; v < ALIKE; v++) store<C>(alike.at[v], sums[r]);
    *(Pack<T, ALIKE>*)(dx + plane_at(plane, so) + OFFSET(SD, own)) = alike;
  }
"#;

/// Kernel text: a thread computes the gradients of a cell, `CELL` elements along each dimension, at one position of `PLANES` planes.
/// Elements of a cell share their windows, and their places in these are constants.
pub const GATHER: &str = r#"  const Index index = (Index)GLOBAL_INDEX;
  if (index >= count) return;
  u32 cell[3], start[3], last[3];
  const u32 first = (u32)(index / (CELLS(0) * CELLS(1) * CELLS(2)));
  split((u32)(index % (CELLS(0) * CELLS(1) * CELLS(2))), CELLS(1), CELLS(2), cell);
  EACH_DIM(j) start[j] = cell[j] * CELL(j), last[j] = cell[j] * (CELL(j) / STRIDE(j)) + NEXT(j);
  // The window with the number `e`: along each dimension, `BACK` windows before the last one that contains an element of the cell.
#define BACK(j, e) (j == 0 ? e / (MOST(1) * MOST(2)) : j == 1 ? e / MOST(2) % MOST(1) : e % MOST(2))
#define EACH_NUMBER _Pragma("unroll") for (u32 e = 0; e < MOST(0) * MOST(1) * MOST(2); e++)
#define EACH_WINDOW \
  EACH_NUMBER if (const u32 window[3] = {last[0] - BACK(0, e), last[1] - BACK(1, e), last[2] - BACK(2, e)}; \
                  window[0] < Y(0) && window[1] < Y(1) && window[2] < Y(2))
  const T* gradients[PLANES];
  const Place* own_places[PLANES];
  C values[MOST(0) * MOST(1) * MOST(2)][PLANES];
  u32 found[MOST(0) * MOST(1) * MOST(2)][PLANES];
  EACH_PLANE(r) {
    const u32 plane = first + r * groups, valid = plane < planes ? plane : first;
    gradients[r] = y + plane_at(valid, sy) + OFFSET(SY, last);
    own_places[r] = places + (u64)valid * (Y(0) * Y(1) * Y(2)) + (last[0] * Y(1) + last[1]) * Y(2) + last[2];
    EACH_NUMBER values[e][r] = 0, found[e][r] = NOWHERE;
  }
  EACH_WINDOW {
    EACH_PLANE(r) {
      values[e][r] = load<C>(*(gradients[r] - (BACK(0, e) * SY(0) + BACK(1, e) * SY(1) + BACK(2, e) * SY(2))));
      if (MAX) found[e][r] = *(own_places[r] - ((BACK(0, e) * Y(1) + BACK(1, e)) * Y(2) + BACK(2, e)));
      // Distance from the first element of the cell.
      if (MAX && !RELATIVE) found[e][r] -= (start[0] * X(1) + start[1]) * X(2) + start[2];
    }
  }
  if (!MAX) {
    EACH_WINDOW {
      const C share = C(1) / divisor_of(range_of(window));
      EACH_PLANE(r) values[e][r] *= share;
    }
  }
  EACH_PLANE(r) {
    const u32 plane = first + r * groups;
    if (plane >= planes) return;
    T* to = dx + plane_at(plane, so) + OFFSET(SD, start);
#pragma unroll
    for (i32 i = 0; i < CELL(0); i++)
#pragma unroll
      for (i32 j = 0; j < CELL(1); j++) {
        if ((X(0) % CELL(0) > 0 && start[0] + i >= X(0)) || (X(1) % CELL(1) > 0 && start[1] + j >= X(1))) continue;
        Elements row;
#pragma unroll
        for (i32 k = 0; k < CELL(2); k++) {
          C sum = 0;
          EACH_NUMBER {
            // Place of the element in the window.
#define PLACE_IN(j, own) (own + (i32)PADDING(j) - ((i32)NEXT(j) - (i32)BACK(j, e)) * (i32)STRIDE(j))
            const i32 a = PLACE_IN(0, i), b = PLACE_IN(1, j), c = PLACE_IN(2, k);
            if (a < 0 || a >= SIZE(0) || b < 0 || b >= SIZE(1) || c < 0 || c >= SIZE(2)) continue;
            const u32 place = RELATIVE ? (a * SIZE(1) + b) * SIZE(2) + c : (i * X(1) + j) * X(2) + k;
            if (!MAX || found[e][r] == place) sum += values[e][r];
          }
          store<C>(row.at[k], sum);
        }
        write(row, to + i * SD(0) + j * SD(1), start[2]);
      }
  }
"#;
