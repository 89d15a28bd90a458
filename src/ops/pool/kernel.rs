//! The kernels of pools.

use super::super::kernel::{BLOCK, c_type, index_type, launch, param, replaced, u64_param};
use super::super::occupancy::{UNIT_THREADS, UNITS, WARP, share};
use super::*;

/// Maximum number of elements of a window that one thread reads. A warp reads a larger window.
const LARGE: u64 = 64;
/// Maximum number of elements of a window that a warp reads. A block reads a larger window, and a smaller one if too few windows
/// exist to fill the device with warps.
const LARGER: u64 = 1024;

/// Maximum number of elements of a window that a thread reads at once.
const AT_ONCE: u64 = 32;

/// Number of elements that a thread reads before it uses the first, if several threads share a window.
const AHEAD: u64 = 4;

/// Instructions per element of a window that one thread reads, and that several threads share, which divide to find an element's
/// place. The latter are 39 for means and 43 for maxima in code for sm_90 by NVRTC 13.0.
const OF_A_TERM: f64 = 8.0;
const OF_A_SHARED_TERM: f64 = 40.0;

/// A kernel of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Computes the results of windows.
    Forward,
    /// Finds the index of the maximum of each window, stored in the workspace.
    Places,
    /// Computes the gradients of elements.
    Backward,
}

/// Generates the kernels of a pool.
pub struct Kernels<'a> {
    pub spec: &'a Spec,
    pub shape: Shape,
}

/// Kernel text: positions of windows. Unused dimensions come first, with one element and one window.
const WINDOWS: &str = r#"
#define EACH_DIM(j) _Pragma("unroll") for (int j = 0; j < 3; j++)
struct Steps { i64 sample, channel, at[3]; };
struct Sizes { u64 channels, x[3], y[3]; };
struct Range { u32 from[3], to[3]; };
__device__ inline u32 plane_of(Index index, const u64 (&sizes)[3], u32 (&at)[3]) {
#pragma unroll
  for (int j = 2; j >= 0; j--) {
    Index rest = index / (Index)sizes[j];
    at[j] = (u32)(index - rest * (Index)sizes[j]);
    index = rest;
  }
  return (u32)index;
}
__device__ inline i64 offset_of(u32 plane, const u32 (&at)[3], const Steps& steps, const Sizes& sizes) {
  u32 channels = (u32)sizes.channels;
  i64 offset = plane / channels * steps.sample + plane % channels * steps.channel;
  EACH_DIM(j) offset += at[j] * steps.at[j];
  return offset;
}
// Returns the range of a window's elements that are inside the tensor.
__device__ inline Range range_of(const u32 (&window)[3], const Sizes& sizes) {
  Range range;
  EACH_DIM(j) {
    Wide x = (Wide)sizes.x[j], y = (Wide)sizes.y[j];
    if (ADAPTIVE) {
      range.from[j] = (u32)(window[j] * x / y);
      range.to[j] = (u32)(((window[j] + 1) * x + y - 1) / y);
    } else {
      u32 from = window[j] * STRIDE(j), to = from + SIZE(j) - PADDING(j);
      range.from[j] = from < PADDING(j) ? 0 : from - PADDING(j);
      range.to[j] = to < x ? to : (u32)x;
    }
  }
  return range;
}
__device__ inline C divisor_of(const Range& range) {
  u32 inside = 1;
  EACH_DIM(j) inside *= range.to[j] - range.from[j];
  // Padding counts too, and the number of elements may exceed 32 bits.
  return COUNTS_PADDING ? (C)((u64)SIZE(0) * SIZE(1) * SIZE(2)) : (C)inside;
}
struct Best {
  C value;
  u32 place;
  // Joins an element whose place comes after those of all elements joined before.
  __device__ inline void join_later(C other, u32 from) {
    if ((other <= value || value != value) && place != 0xffffffffu) return;
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
};
"#;

/// Kernel text: `LANES` threads read a window, or one of `PARTS` equal parts of its elements.
const FORWARD: &str = r#"  Index index = (Index)(GLOBAL_INDEX / LANES);
  u32 lane = threadIdx.x % LANES;
  const u32 part = (u32)(index % PARTS);
  index /= PARTS;
  if (index >= count) return;
  u32 window[3], plane = plane_of(index, sizes.y, window);
  Range range = range_of(window, sizes);
  const u32 none[3] = {0, 0, 0};
  const T* from = x + offset_of(plane, none, sx, sizes);
  Best best = {-C(INFINITE), 0xffffffffu};
  C sum = 0;
  const u32 x0 = (u32)sizes.x[0], x1 = (u32)sizes.x[1], x2 = (u32)sizes.x[2];
  auto read = [&](u32 a, u32 b, u32 c) { return load<C>(from[a * sx.at[0] + b * sx.at[1] + c * sx.at[2]]); };
  auto take = [&](C value, u32 a, u32 b, u32 c) {
    // A thread takes its elements in the order of their places.
    if (MAX && PLACES) best.join_later(value, (a * x1 + b) * x2 + c);
    else if (MAX) best.value = f_max(best.value, value);
    else sum += value;
  };
  auto visit = [&](u32 a, u32 b, u32 c) { take(read(a, b, c), a, b, c); };
#if LANES == 1 && !ADAPTIVE && AT_ONCE
  // Positions before the first element wrap around to large numbers.
#define EACH_PLACE \
  _Pragma("unroll") for (u32 e = 0; e < SIZE(0) * SIZE(1) * SIZE(2); e++) \
    if (u32 a = window[0] * STRIDE(0) + e / (SIZE(1) * SIZE(2)) * DILATION(0) - PADDING(0), \
            b = window[1] * STRIDE(1) + e / SIZE(2) % SIZE(1) * DILATION(1) - PADDING(1), \
            c = window[2] * STRIDE(2) + e % SIZE(2) * DILATION(2) - PADDING(2); a < x0 && b < x1 && c < x2)
  C values[SIZE(0) * SIZE(1) * SIZE(2)];
  EACH_PLACE values[e] = read(a, b, c);
  EACH_PLACE take(values[e], a, b, c);
#elif LANES == 1
  for (u32 a = range.from[0]; a < range.to[0]; a++)
    for (u32 b = range.from[1]; b < range.to[1]; b++)
      for (u32 c = range.from[2]; c < range.to[2]; c++) visit(a, b, c);
#else
  u32 columns = range.to[2] - range.from[2], rows = range.to[1] - range.from[1];
  u32 all = (range.to[0] - range.from[0]) * rows * columns;
  auto at = [&](u32 i, u32& a, u32& b, u32& c) {
    u32 row = i / columns, slab = row / rows;
    a = range.from[0] + slab, b = range.from[1] + row - slab * rows, c = range.from[2] + i - row * columns;
  };
  const u32 each = (all + PARTS - 1) / PARTS, begin = (u64)part * each < all ? part * each : all;
  const u32 end = all - begin < each ? all : begin + each;
  // Past the last element, reads the last one again.
  for (u32 first = begin + lane; first < end; first += 4 * LANES) {
    C values[4];
    u32 a[4], b[4], c[4];
#pragma unroll
    for (u32 u = 0; u < 4; u++) {
      at(first + u * LANES < end ? first + u * LANES : end - 1, a[u], b[u], c[u]);
      values[u] = read(a[u], b[u], c[u]);
    }
#pragma unroll
    for (u32 u = 0; u < 4; u++) if (first + u * LANES < end) take(values[u], a[u], b[u], c[u]);
  }
#endif
"#;

/// Kernel text: a block reads the results of a window's parts.
const FINISH: &str = r#"  Index index = (Index)blockIdx.x;
  u32 lane = threadIdx.x;
  u32 window[3], plane = plane_of(index, sizes.y, window);
  Range range = range_of(window, sizes);
  Best best = {-C(INFINITE), 0xffffffffu};
  C sum = 0;
  for (u32 part = lane; part < PARTS; part += LANES) {
    Best other = partial[index * PARTS + part];
    if (MAX && PLACES) best.join(other.value, other.place);
    else if (MAX) best.value = f_max(best.value, other.value);
    else sum += other.value;
  }
"#;

/// Kernel text: joins the results of the threads of a window in its first thread.
const JOIN: &str = r#"#if LANES > 1
  auto join = [&](int masks) {
#pragma unroll
    for (int mask = masks / 2; mask > 0; mask /= 2) {
      if (MAX) {
        C other = SHUFFLE_XOR(best.value, mask);
        if (PLACES) best.join(other, SHUFFLE_XOR(best.place, mask));
        else best.value = f_max(best.value, other);
      } else {
        sum += SHUFFLE_XOR(sum, mask);
      }
    }
  };
  join(32);
#if LANES > 32
  __shared__ C parts[LANES / 32];
  __shared__ u32 own_places[LANES / 32];
  if (lane % 32 == 0) {
    parts[lane / 32] = MAX ? best.value : sum;
    own_places[lane / 32] = best.place;
  }
  __syncthreads();
  best.value = sum = parts[lane % (LANES / 32)];
  best.place = own_places[lane % (LANES / 32)];
  join(LANES / 32);
#endif
#endif
  if (lane > 0) return;
"#;

/// Kernel text: writes the result of a part of a window.
const STORE_PART: &str = r#"  partial[index * PARTS + part] = {MAX ? best.value : sum, best.place};
"#;

/// Kernel text: writes the result of a window.
const STORE: &str = r#"#if PLACES
  places[index] = best.place;
#else
  store<C>(y[offset_of(plane, window, sy, sizes)], MAX ? best.value : sum / divisor_of(range));
#endif
"#;

/// Kernel text: a thread computes the gradient of one element from the windows that contain it.
const BACKWARD: &str = r#"  Index index = (Index)GLOBAL_INDEX;
  if (index >= count) return;
  u32 own[3], plane = plane_of(index, sizes.x, own);
  u32 place = (own[0] * (u32)sizes.x[1] + own[1]) * (u32)sizes.x[2] + own[2];
  u32 from[3], to[3];
  EACH_DIM(j) {
    Wide x = (Wide)sizes.x[j], y = (Wide)sizes.y[j];
    if (ADAPTIVE) {
      from[j] = (u32)(own[j] * y / x);
      to[j] = (u32)(((own[j] + 1) * y + x - 1) / x);
    } else {
      u32 padded = own[j] + PADDING(j), last = padded / STRIDE(j) + 1;
      from[j] = padded < SIZE(j) ? 0 : (padded - SIZE(j)) / STRIDE(j) + 1;
      to[j] = last < y ? last : (u32)y;
    }
  }
  const u32 none[3] = {0, 0, 0};
  const T* gradients = y + offset_of(plane, none, sy, sizes);
  const u32* own_places = places + plane * (sizes.y[0] * sizes.y[1] * sizes.y[2]);
  C sum = 0;
  const u32 y1 = (u32)sizes.y[1], y2 = (u32)sizes.y[2];
  for (u32 a = from[0]; a < to[0]; a++)
    for (u32 b = from[1]; b < to[1]; b++) {
      const u32* row_places = own_places + (a * y1 + b) * y2;
      const T* row = gradients + (a * sy.at[0] + b * sy.at[1]);
#pragma unroll 4
      for (u32 c = from[2]; c < to[2]; c++) {
        if (MAX && row_places[c] != place) continue;
        C gradient = load<C>(row[c * sy.at[2]]);
        const u32 window[3] = {a, b, c};
        sum += MAX ? gradient : gradient / divisor_of(range_of(window, sizes));
      }
    }
  store<C>(dx[offset_of(plane, own, so, sizes)], sum);
"#;

/// Kernel text: defines `SPAN`, the extent of a window including elements that dilation skips.
const SPAN: &str = "#define SPAN(j) (DILATION(j) * (SIZE(j) - 1) + 1)\n";

/// Substitutions in the texts above for dilated windows.
const DILATED: [(&str, &str); 7] = [
    (
        "to = from + SIZE(j) - PADDING(j);
      range.from[j] = from < PADDING(j) ? 0 : from - PADDING(j);",
        "to = from + SPAN(j);
      if (from < PADDING(j)) from += (PADDING(j) - from + DILATION(j) - 1) / DILATION(j) * DILATION(j);
      range.from[j] = from - PADDING(j);
      to = to < PADDING(j) ? 0 : to - PADDING(j);",
    ),
    ("a < range.to[0]; a++)", "a < range.to[0]; a += DILATION(0))"),
    ("b < range.to[1]; b++)", "b < range.to[1]; b += DILATION(1))"),
    ("c < range.to[2]; c++)", "c < range.to[2]; c += DILATION(2))"),
    (
        "u32 columns = range.to[2] - range.from[2], rows = range.to[1] - range.from[1];
  u32 all = (range.to[0] - range.from[0]) * rows * columns;",
        "u32 inside[3], all = 1;
  EACH_DIM(j) {
    inside[j] = range.from[j] < range.to[j] ? (range.to[j] - range.from[j] - 1) / DILATION(j) + 1 : 0;
    all *= inside[j];
  }
  u32 columns = inside[2], rows = inside[1];",
    ),
    (
        "a = range.from[0] + slab, b = range.from[1] + row - slab * rows, c = range.from[2] + i - row * columns;",
        "a = range.from[0] + slab * DILATION(0);
    b = range.from[1] + (row - slab * rows) * DILATION(1);
    c = range.from[2] + (i - row * columns) * DILATION(2);",
    ),
    // Visits windows whose span includes the element. If dilation skips the element in a window, the element is not its
    // maximum.
    (
        "from[j] = padded < SIZE(j) ? 0 : (padded - SIZE(j)) / STRIDE(j) + 1;",
        "from[j] = padded < SPAN(j) ? 0 : (padded - SPAN(j)) / STRIDE(j) + 1;",
    ),
];

/// Extends sizes to three dimensions, with `absent` for the missing first ones.
fn three(sizes: Dims, absent: u64) -> Vec<u64> {
    std::iter::repeat_n(absent, 3 - sizes.len()).chain(sizes.iter().copied()).collect()
}

impl Kernels<'_> {
    /// Number of threads per window.
    fn lanes(&self) -> u64 {
        let window = self.shape.window();
        if window <= LARGE || self.has_short_rows() {
            1
        } else if window <= LARGER && (window <= AHEAD * WARP || self.windows() * WARP >= UNITS * UNIT_THREADS) {
            WARP
        } else {
            u64::from(BLOCK)
        }
    }

    /// True if rows of windows are shorter than a warp, and there are enough windows to occupy the device with one
    /// thread each. Then threads of neighbouring windows read neighbouring elements, which several threads of one
    /// window would not.
    fn has_short_rows(&self) -> bool {
        self.shape.window_row() < WARP && self.windows() >= UNITS * UNIT_THREADS
    }

    fn windows(&self) -> u64 {
        self.shape.planes * self.shape.windows() as u64
    }

    fn elements(&self) -> u64 {
        self.shape.planes * self.shape.elements() as u64
    }

    /// Returns the number of windows or elements that are computed, and the number of threads for each.
    fn count(&self, task: Task) -> (u64, u64) {
        if task == Task::Backward { (self.elements(), 1) } else { (self.windows(), self.lanes()) }
    }

    /// Number of parts of a window. A block reads a part, and a second kernel joins the parts. The number depends on the shape alone,
    /// so every device adds in the same order.
    fn parts(&self, task: Task) -> u64 {
        match self.count(task) {
            (windows, lanes) if lanes == u64::from(BLOCK) => parts(windows, self.shape.window() / lanes, AHEAD),
            _ => 1,
        }
    }

    /// Returns the cost of the forward kernel, or of all kernels of the gradient.
    pub fn cost(&self, task: Task) -> Cost {
        let (count, lanes) = self.count(task);
        let terms = self.windows() as f64 * self.shape.window() as f64;
        let shared = self.lanes() > 1;
        let passes = if task == Task::Backward && self.shape.is_max { 2.0 } else { 1.0 };
        let places = if passes > 1.0 { Traffic::of(Space::Device, 4 * self.windows()) } else { Traffic::NONE };
        Cost {
            flops: terms,
            instructions: if shared { OF_A_SHARED_TERM } else { OF_A_TERM } * terms * passes,
            read: Spec::bytes_of(&self.spec.inputs) + places,
            written: Spec::bytes_of(&self.spec.outputs) + places,
            blocks: (count * lanes * self.parts(task)).div_ceil(u64::from(BLOCK)).max(1),
            share: share(u64::from(BLOCK)),
            ..Cost::default()
        }
    }

    /// Returns the strides of samples, channels and spatial dimensions as an argument.
    fn steps(&self, operand: usize) -> Arg {
        let strides = self.spec.operand(operand).strides;
        let spatial = Dims::from_slice(&strides[2..]).expect("fewer dimensions than the tensor has");
        Arg::Words(strides[..2].iter().copied().chain(three(spatial, 0)).collect())
    }

    /// Returns the kernel of a task, and the kernel that joins the parts of windows if there are any.
    pub fn launches(&self, task: Task) -> Vec<Launch> {
        let joins = (self.parts(task) > 1).then(|| self.launch(task, true));
        std::iter::once(self.launch(task, false)).chain(joins).collect()
    }

    /// Size in bytes of the places in the workspace, and of the results of parts after them.
    fn workspace(&self, task: Task) -> (u64, u64) {
        let places = if task == Task::Forward || !self.shape.is_max { 0 } else { 4 * self.windows() };
        let parts = if task == Task::Backward { 1 } else { self.parts(task) };
        let each = 2 * self.spec.inputs[0].dtype.compute().size();
        (places.next_multiple_of(each), if parts > 1 { parts * self.windows() * each } else { 0 })
    }

    /// Returns a kernel of a task: the one that joins the parts of windows if `joins`.
    fn launch(&self, task: Task, joins: bool) -> Launch {
        let Kernels { spec, shape } = self;
        let (count, lanes) = self.count(task);
        let parts = self.parts(task);
        let dtype = spec.inputs[0].dtype;
        let sizes = [vec![shape.channels], three(shape.x, 1), three(shape.y, 1)].concat();
        let mut params = vec![
            param("const Sizes sizes", Arg::Words(sizes)),
            u64_param("count", count),
            param("const Steps sx", self.steps(0)),
            param("const Steps sy", self.steps(1)),
        ];
        let operands: &[(&str, u8)] = match task {
            Task::Forward => &[("const T* x", 0), ("T* y", 1)],
            Task::Places => &[("const T* x", 0)],
            Task::Backward => &[("const T* y", 1), ("T* dx", 2)],
        };
        params.extend(operands.iter().map(|(declaration, operand)| param(*declaration, Arg::Operand(*operand))));
        let (places, of_parts) = self.workspace(task);
        if task != Task::Forward || parts > 1 {
            params.push(param("u32* places", Arg::Workspace(places + of_parts)));
        }
        if parts > 1 {
            params.push(u64_param("partial_at", places));
        }
        if task == Task::Backward {
            params.push(param("const Steps so", self.steps(2)));
        }
        let each = |name: &str, place: usize, absent: u64| {
            let values = shape.steps.map_or(vec![absent; 3], |steps| three(steps[place], absent));
            format!("#define {name}(j) (j == 0 ? {}u : j == 1 ? {}u : {}u)\n", values[0], values[1], values[2])
        };
        let is_dilated = shape.is_dilated();
        let dilation = each("DILATION", 3, 1) + if is_dilated { SPAN } else { "" };
        let threads = count * lanes * parts;
        let index = index_type(threads + u64::from(BLOCK));
        // Upper bounds of the products from which the ranges of adaptive windows are computed.
        let bounds = shape.x.iter().zip(shape.y.iter()).map(|(x, y)| x * y + x + y);
        let wide = index_type(if shape.steps.is_none() { bounds.max().unwrap_or(0) } else { 0 });
        let text = |plain: &str| if is_dilated { replaced(plain, &DILATED) } else { plain.to_owned() };
        let before = format!(
            "typedef {} T;\ntypedef {} C;\ntypedef {index} Index;\ntypedef {wide} Wide;\n#define AT_ONCE {}\n#define MAX {}\n#define ADAPTIVE {}\n#define COUNTS_PADDING {}\n#define LANES {lanes}\n\
             #define PARTS {parts}\n#define PLACES {}\n{}{}{}{dilation}{}",
            c_type(dtype),
            c_type(dtype.compute()),
            u32::from(shape.window() <= AT_ONCE),
            u32::from(shape.is_max),
            u32::from(shape.steps.is_none()),
            u32::from(shape.counts_padding),
            u32::from(task == Task::Places),
            each("SIZE", 0, 1),
            each("STRIDE", 1, 1),
            each("PADDING", 2, 0),
            text(WINDOWS),
        );
        let partial = if parts > 1 { "  Best* partial = (Best*)((char*)places + partial_at);\n" } else { "" };
        let body = match (task, joins) {
            (Task::Backward, _) => text(BACKWARD),
            (_, true) => format!("{partial}{FINISH}{JOIN}{STORE}"),
            (_, false) if parts > 1 => format!("{partial}{}{JOIN}{STORE_PART}", text(FORWARD)),
            (_, false) => format!("{}{JOIN}{STORE}", text(FORWARD)),
        };
        let name = match (task, joins) {
            (Task::Forward, false) => "pool",
            (Task::Forward, true) => "pool_join",
            (Task::Places, false) => "pool_places",
            (Task::Places, true) => "pool_places_join",
            (Task::Backward, _) => "pool_backward",
        };
        let blocks = if joins { count } else { threads.div_ceil(u64::from(BLOCK)) };
        launch(name, &before, &params, &body, blocks, BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dilated_windows_change_lines_that_exist() {
        for (plain, _) in DILATED {
            let count: usize = [WINDOWS, FORWARD, BACKWARD].map(|text| text.matches(plain).count()).iter().sum();
            assert_eq!(count, 1, "{plain}");
        }
    }
}
