//! Kernels of a scan whose lines are not divided among blocks. Along the last dimension, the threads of a block share a line
//! and exchange prefix sums. Along any other dimension, each thread processes its own lines, and neighbouring threads
//! read neighbouring elements.

use super::super::layout::{collapse, halves};
use super::*;
use crate::ops::kernels::kernel::{
    BLOCK, bounds, c_type, geometry_param, index_type, launch, param, replaced, u64_param,
};
use crate::ops::kernels::occupancy::{UNIT_REGISTERS, UNIT_THREADS, UNITS, WARP, share};

/// Maximum number of elements of a pack, which a thread holds in registers.
pub const MAX_PACK: u64 = 8;

/// Maximum number of packs that a thread loads before it uses them; minimum number for threads with lines of their own.
const UNDER_WAY: u64 = 4;
/// Number of elements that a thread with lines of its own loads before it uses them.
const ELEMENTS_UNDER_WAY: u64 = 16;

/// Number of registers of a thread, apart from those for elements.
const OTHER_REGISTERS: u64 = 40;

/// Instructions per element.
pub const EACH: f64 = 5.0;
/// Instructions per pack for the exchange between threads.
pub const PER_PACK: f64 = 40.0;

/// Additional instructions per element of a pack that may hold elements of other lines, for comparing its index with
/// the line's.
const EACH_LEADING: f64 = 2.0;

/// Instructions of a thread that shares a line, for its indices and for exchanging values.
const PER_THREAD: f64 = 60.0;

/// Lines of a scan: along each, elements are accumulated.
pub struct Lines {
    /// Geometry of the lines: strides of the output, followed by those of the input.
    pub geometry: Geometry,
    /// Number of lines.
    pub count: u64,
    /// Number of elements of a line.
    pub length: u64,
    /// Stride along a line in the output and in the input, in elements.
    pub steps: [u64; 2],
    /// True if lines are along the last dimension, so that the threads of a block share a line.
    pub along: bool,
}

impl Lines {
    pub fn of(spec: &Spec) -> Lines {
        let tensors = [&spec.outputs[0], &spec.inputs[0]];
        let (dims, axis) = (tensors[0].dims, axis(spec));
        let others = |all: &Dims| {
            let sizes: Vec<u64> = (0..dims.len()).filter(|&other| other != axis).map(|other| all[other]).collect();
            Dims::from_slice(&sizes).expect("fewer than there are")
        };
        let strides: Vec<Dims> = tensors.iter().map(|tensor| others(&tensor.strides)).collect();
        Lines {
            geometry: collapse(others(&dims), &strides),
            count: others(&dims).iter().product(),
            length: dims[axis],
            steps: tensors.map(|tensor| tensor.strides[axis]),
            // True if all later dimensions have size 1.
            along: dims[axis + 1..].iter().all(|&size| size == 1),
        }
    }
}

/// Returns kernel text that defines the types of elements and of the arithmetic, `C`, and the function that the scan applies.
pub fn definitions(scan: &Scan, spec: &Spec) -> String {
    let (join, none) = if scan.multiplies { ("*", "1") } else { ("+", "0") };
    format!(
        "{}typedef {} C;\ntypedef {} X;\ntypedef {} Y;\n#define NONE C({none})\n#define JOIN(a, b) ((a) {join} (b))\n{STORE_WHOLE}",
        bounds(BLOCK),
        c_type(compute_type(spec)),
        c_type(spec.inputs[0].dtype),
        c_type(spec.outputs[0].dtype),
    )
}

/// Kernel text that stores a pack by one instruction. The compiler would join an assignment with the stores of single elements in
/// another branch.
const STORE_WHOLE: &str = r#"
template <typename P> __device__ inline void store_whole(P* to, const P& pack) {
#if defined(__CUDA_ARCH__)
  union Words { u32 w[(sizeof(P) + 3) / 4]; P pack; __device__ Words() {} } own;
  own.pack = pack;
  if constexpr (sizeof(P) == 16)
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(own.w[0]), "r"(own.w[1]), "r"(own.w[2]), "r"(own.w[3]) : "memory");
  else if constexpr (sizeof(P) == 8)
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(own.w[0]), "r"(own.w[1]) : "memory");
  else if constexpr (sizeof(P) == 4)
    asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(own.w[0]) : "memory");
  else
#endif
  *to = pack;
}
"#;

/// Division of lines among threads.
pub struct Split {
    lines: Lines,
    /// Number of elements per pack: neighbours in a line or, if threads have lines of their own, of neighbouring lines.
    pack: u64,
    /// True if lines that threads share may begin inside a pack. Then the first and the last pack may be partial.
    leads: bool,
    /// Number of threads per line.
    threads: u64,
    /// Number of packs that a thread loads before it uses them.
    under_way: u64,
}

impl Split {
    pub fn of(spec: &Spec) -> Split {
        let lines = Lines::of(spec);
        let Lines { count, length, along, .. } = lines;
        let aligned = aligned_pack(spec, &lines);
        let wide = wide_pack(spec, &lines)
            .filter(|wide| packed_instructions(length, *wide, true) < packed_instructions(length, aligned, false));
        let leads = wide.is_some();
        let pack = match along {
            true => wide.unwrap_or(aligned),
            // Few short lines are spread over more threads.
            false => halves(aligned).find(|pack| count / pack >= UNITS * WARP).unwrap_or(1),
        };
        let reach = reach(length, pack, leads);
        let threads = if along { threads_of(reach.div_ceil(pack), count) } else { 1 };
        let under_way = match along {
            true => reach.div_ceil(threads * pack).clamp(1, UNDER_WAY),
            false => (ELEMENTS_UNDER_WAY / pack).max(UNDER_WAY).min(length.max(1)),
        };
        Split { lines, pack, leads, threads, under_way }
    }

    /// Number of elements of a line, plus those of other lines in its first and last pack at most.
    fn reach(&self) -> u64 {
        reach(self.lines.length, self.pack, self.leads)
    }

    /// Number of lines, or of packs of lines, that a block processes at the same time.
    fn beside(&self) -> u64 {
        u64::from(BLOCK) / self.threads
    }

    /// Number of lines, or of packs of lines.
    fn groups(&self) -> u64 {
        if self.lines.along { self.lines.count } else { self.lines.count / self.pack }
    }

    /// Number of blocks of a launch.
    fn blocks(&self) -> u64 {
        self.groups().div_ceil(self.beside())
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let elements = spec.inputs[0].elements() as f64;
        let along = self.lines.along;
        // Loads of a thread that has its own lines depend on a condition, so that only few overlap.
        let rounds = match along {
            true => self.reach().div_ceil(self.threads * self.pack).div_ceil(self.under_way),
            false => self.lines.length.div_ceil(UNDER_WAY),
        };
        let of_elements = match along {
            true => {
                let of_threads = PER_THREAD * (self.blocks() * u64::from(BLOCK)) as f64;
                self.lines.count as f64 * packed_instructions(self.lines.length, self.pack, self.leads) + of_threads
            }
            false => EACH * elements,
        };
        Cost {
            instructions: of_elements,
            blocks: self.blocks(),
            share: share(u64::from(BLOCK)).max(self.registers_share(compute_type(spec))),
            waits: rounds.saturating_sub(1) as f64,
            exchanges: if along { rounds as f64 } else { 0.0 },
            ..spec.streaming_cost(elements, 1)
        }
    }

    /// Returns the share of an SM that the registers of a block occupy. A thread holds each element as it was read, with
    /// the sum of its own elements and with that of lower threads.
    fn registers_share(&self, compute: DType) -> u32 {
        let held = if self.lines.along { self.under_way * self.pack * compute.size() / 4 } else { 0 };
        let registers = (OTHER_REGISTERS + 3 * held).next_multiple_of(8) * u64::from(BLOCK);
        Cost::WHOLE_UNIT / (UNIT_REGISTERS / registers).clamp(1, 8) as u32
    }

    pub fn launch(&self, scan: &Scan, spec: &Spec) -> Launch {
        let Lines { geometry, count, length, steps, along } = &self.lines;
        let params = [
            param(format!("{}* y", c_type(spec.outputs[0].dtype)), Arg::Operand(1)),
            param(format!("const {}* x", c_type(spec.inputs[0].dtype)), Arg::Operand(0)),
            geometry_param("g", geometry),
            u64_param("groups", self.groups()),
            u64_param("n", *length),
            u64_param("sy", steps[0]),
            u64_param("sx", steps[1]),
        ];
        let index = index_type(count * length + u64::from(BLOCK) * self.pack * ELEMENTS_UNDER_WAY * 2);
        let before = format!(
            "{}typedef {index} Index;\n#define T {}\n#define B {}\n#define V {}\n#define U {}\n\
             #define SHORT {}\n#define LEADS {}\n",
            definitions(scan, spec),
            self.threads,
            self.beside(),
            self.pack,
            self.under_way,
            *along && (self.leads || !length.is_multiple_of(self.pack)),
            self.leads,
        );
        let body = if *along { SHARED_LINES } else { OWN_LINES };
        let body = if reverse(spec) { replaced(body, &REVERSED) } else { body.to_owned() };
        launch(scan.name(), &before, &params, &body, self.blocks(), BLOCK)
    }
}

/// Number of elements of a line, plus those of other lines in its first and last pack at most.
fn reach(length: u64, pack: u64, leads: bool) -> u64 {
    length + if leads { pack - 1 } else { 0 }
}

/// Number of instructions for the elements of a line that threads share.
fn packed_instructions(length: u64, pack: u64, leads: bool) -> f64 {
    let each = if leads { EACH + EACH_LEADING } else { EACH };
    reach(length, pack, leads).div_ceil(pack) as f64 * (PER_PACK + each * pack as f64)
}

/// Returns the number of elements of the widest packs that divide lines, or rows of neighbouring lines.
pub fn aligned_pack(spec: &Spec, lines: &Lines) -> u64 {
    let tensors = [&spec.outputs[0], &spec.inputs[0]];
    let Lines { geometry, length, steps, along, .. } = lines;
    let inner = geometry.dims.last().copied().unwrap_or(1);
    let fits = |pack: &u64| {
        tensors.iter().enumerate().all(|(which, tensor)| {
            let own = geometry.strides[which].iter().rev().skip(usize::from(!along));
            let bytes = pack * tensor.dtype.size();
            let next = if *along { Some(&steps[which]) } else { geometry.strides[which].last() };
            let across = if *along { None } else { Some(&steps[which]) };
            bytes <= 16
                && u64::from(tensor.align).is_multiple_of(bytes)
                && next == Some(&1)
                && own.chain(across).all(|stride| stride.is_multiple_of(*pack))
        }) && (*along || inner.is_multiple_of(*pack))
            // In reverse, packs are aligned only if they divide a line.
            && !(*along && reverse(spec) && !length.is_multiple_of(*pack))
    };
    let widest = 16 / tensors[1].dtype.size();
    halves(widest.min(MAX_PACK)).find(fits).unwrap_or(1)
}

/// Returns the number of elements of the widest packs for which all lines along the last dimension begin at the same
/// position in a pack of both tensors; `None` if there are none, and for a scan in reverse, whose packs end where the
/// line ends.
fn wide_pack(spec: &Spec, lines: &Lines) -> Option<u64> {
    let tensors = [&spec.outputs[0], &spec.inputs[0]];
    let fits = |pack: &u64| {
        let is_aligned = |tensor: &&Tensor| {
            let bytes = pack * tensor.dtype.size();
            bytes <= 16 && u64::from(tensor.align).is_multiple_of(bytes)
        };
        let mut strides = lines.geometry.strides[0].iter().zip(&*lines.geometry.strides[1]);
        tensors.iter().all(is_aligned) && strides.all(|(to, from)| to % pack == from % pack)
    };
    let is_simple = lines.along && lines.steps == [1, 1] && !reverse(spec);
    std::iter::successors(is_simple.then_some(MAX_PACK), |pack| (*pack > 2).then_some(pack / 2)).find(fits)
}

/// Returns the number of threads that share a line of this many packs: one for each pack if the device can run so many at the same
/// time; otherwise about one for each two packs, or fewer that have fewer positions without a pack, if there are enough lines to
/// occupy the device.
fn threads_of(packs: u64, lines: u64) -> u64 {
    // If the device has room for them, a thread for each pack takes the least time.
    let has_room = lines * packs.next_power_of_two() <= UNITS * UNIT_THREADS;
    let most = packs.div_ceil(if has_room { 1 } else { 2 }).next_power_of_two().min(u64::from(BLOCK));
    let places = |threads: u64| threads * packs.div_ceil(threads);
    let fits = |threads: &u64| packs.div_ceil(*threads) <= UNDER_WAY && lines * threads >= UNITS * UNIT_THREADS;
    halves(most)
        .skip(1)
        .take_while(fits)
        .fold(most, |best, threads| if places(threads) < places(best) { threads } else { best })
}

/// Each thread processes `V` neighbouring lines.
const OWN_LINES: &str = r#"  Index group = (Index)blockIdx.x * B + threadIdx.x;
  if (group >= groups) return;
  const auto* from = x + g.offset(group * V, 1);
  auto* to = y + g.offset(group * V, 0);
  C sum[V];
#pragma unroll
  for (int v = 0; v < V; v++) sum[v] = NONE;
  for (Index base = 0; base < (Index)n; base += U) {
    Pack<X, V> packs[U];
#pragma unroll
    for (int u = 0; u < U; u++)
      if (base + u < (Index)n) packs[u] = *(const Pack<X, V>*)(from + (u64)(base + u) * sx);
#pragma unroll
    for (int u = 0; u < U; u++)
      if (base + u < (Index)n) {
        Pack<Y, V> r;
#pragma unroll
        for (int v = 0; v < V; v++) {
          sum[v] = JOIN(sum[v], load<C>(packs[u].at[v]));
          store<C>(r.at[v], sum[v]);
        }
        *(Pack<Y, V>*)(to + (u64)(base + u) * sy) = r;
      }
  }
"#;

/// `T` threads share a line. Each has `U` packs that are `T` packs apart. The last pack of a line may be partial.
const SHARED_LINES: &str = r#"  __shared__ C warps[2][U][B * T / 32];
  u32 side = threadIdx.x / T, lane = threadIdx.x % T;
  Index group = (Index)blockIdx.x * B + side;
  bool live = group < groups;
  if (!live) group = 0;
  const X* from = x + g.offset(group, 1);
  Y* to = y + g.offset(group, 0);
  // Positions count from the first pack, which may begin before the line.
  const Index lead = LEADS ? (Index)((u64)from / sizeof(X) % V) : 0, end = (Index)n + lead;
  from -= lead;
  to -= lead;
  C carry = NONE;
  u32 turn = 0;
  for (Index base = 0; base < end; base += T * V * U) {
    C held[U][V], before[U], all[U];
    Pack<X, V> packs[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      Index j = base + (u * T + lane) * V;
      // A partial pack is loaded whole: allocated memory never begins or ends within 16 bytes.
      if (j < end) packs[u] = *(const Pack<X, V>*)(from + (u64)j * sx);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      Index j = base + (u * T + lane) * V;
      C sum = NONE;
#pragma unroll
      for (int v = 0; v < V; v++) {
        if ((!LEADS || j + v >= lead) && (SHORT ? j + v < end : j < end)) sum = JOIN(sum, load<C>(packs[u].at[v]));
        held[u][v] = sum;
      }
      // Sums over the lower threads of the warp, and over all its threads.
      before[u] = NONE;
      all[u] = sum;
#pragma unroll
      for (int mask = 1; mask < (T < 32 ? T : 32); mask *= 2) {
        C other = SHUFFLE_XOR(all[u], mask);
        if (lane & mask) before[u] = JOIN(other, before[u]);
        all[u] = lane & mask ? JOIN(other, all[u]) : JOIN(all[u], other);
      }
    }
    if (T > 32) {
      u32 warp = threadIdx.x / 32, first = warp - warp % (T > 32 ? T / 32 : 1);
#pragma unroll
      for (int u = 0; u < U; u++)
        if (threadIdx.x % 32 == 0) warps[turn][u][warp] = all[u];
      __syncthreads();
#pragma unroll
      for (int u = 0; u < U; u++) {
        C sum = NONE;
#pragma unroll
        for (u32 w = 0; w < (T > 32 ? T / 32 : 1); w++) {
          if (first + w == warp) before[u] = JOIN(sum, before[u]);
          sum = JOIN(sum, warps[turn][u][first + w]);
        }
        all[u] = sum;
      }
      // After this barrier, no thread reads memory that the next round overwrites.
      turn = 1 - turn;
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      Index j = base + (u * T + lane) * V;
      if (live && j < end) {
        C own = JOIN(carry, before[u]);
        Pack<Y, V> r;
#pragma unroll
        for (int v = 0; v < V; v++) store<C>(r.at[v], JOIN(own, held[u][v]));
        if (!SHORT || ((!LEADS || j >= lead) && j + V <= end)) {
          store_whole((Pack<Y, V>*)(to + (u64)j * sy), r);
        } else {
#pragma unroll
          for (int v = 0; v < V; v++) if ((!LEADS || j + v >= lead) && j + v < end) to[(u64)(j + v) * sy] = r.at[v];
        }
      }
      carry = JOIN(carry, all[u]);
    }
  }
"#;

/// Substitutions that reverse the direction of the scan. Elements inside a pack keep their order.
pub const REVERSED: [(&str, &str); 6] = [
    ("(from + (u64)(base + u) * sx)", "(from + (u64)((Index)n - 1 - base - u) * sx)"),
    ("(to + (u64)(base + u) * sy)", "(to + (u64)((Index)n - 1 - base - u) * sy)"),
    ("(from + (u64)j * sx)", "(from + (u64)((Index)n - V - j) * sx)"),
    ("(to + (u64)j * sy)", "(to + (u64)((Index)n - V - j) * sy)"),
    ("sum = JOIN(sum, load<C>(packs[u].at[v]))", "sum = JOIN(sum, load<C>(packs[u].at[V - 1 - v]))"),
    ("store<C>(r.at[v], JOIN(own, held[u][v]))", "store<C>(r.at[V - 1 - v], JOIN(own, held[u][v]))"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverse_scans_change_parts_that_exist() {
        for (plain, _) in REVERSED {
            let count: usize = [OWN_LINES, SHARED_LINES].map(|text| text.matches(plain).count()).iter().sum();
            assert_eq!(count, 1, "{plain}");
        }
    }

    /// 70 packs of many lines fill three rounds of 32 threads better than two of 64; 256 packs fill both. Few lines have a thread
    /// for each pack.
    #[test]
    fn many_lines_have_threads_that_their_packs_fill() {
        assert_eq!((threads_of(70, 1 << 16), threads_of(70, 64)), (32, 128));
        assert_eq!(threads_of(256, 1 << 16), 128);
        for packs in 1..2000 {
            let (few, many) = (threads_of(packs, 1), threads_of(packs, 1 << 20));
            let places = |threads: u64| packs.div_ceil(threads) * threads;
            assert!(many.is_power_of_two() && places(many) <= places(few), "{packs}");
        }
    }

    #[test]
    fn lines_of_odd_length_are_read_in_wide_packs() {
        let split = |dtype, dims: &[u64], reverse| {
            let x = Tensor::packed(dtype, dims);
            let attrs = Attrs::of([("dim", Attr::Int(-1)), ("reverse", Attr::Bool(reverse))]);
            let split = Split::of(&Spec::new(&Scan { multiplies: false }, attrs, vec![x], vec![x]));
            (split.pack, split.leads)
        };
        assert_eq!(split(DType::F32, &[25284, 273], false), (4, true));
        assert_eq!(split(DType::BF16, &[25284, 272], false), (8, false));
        assert_eq!(split(DType::F32, &[25284, 273], true), (1, false));
    }
}
