//! `sort`: sorts rows, and returns the original index of each element.
//!
//! A block sorts a run of a row, or several short rows, in shared memory by a bitonic network. If rows have several
//! runs, passes merge them, each of which halves their number; rows of many runs are sorted by the digits of their keys
//! instead. Time depends on the shape alone, and not on the values.

use super::kernel::{
    BLOCK, bounds, c_type, compute_type, geometry_param, i64_param, index_type, launch, param, u32_param, u64_param,
};
use super::occupancy::{BUSY_BLOCKS, SECTOR, WARP, share};
use super::radix::{Client, Radix};
use super::rows::{Rows, row_length};
use super::select::{sorted_bits, sorted_keys};
use super::walk::{self, Operand, Task};
use super::*;

/// `sort(x)`, as `torch.sort` of the last dimension with `stable=True`.
pub struct Sort;

/// Maximum number of elements that a block sorts or merges at once. With indices and keys of 8 bytes, they take half of
/// the shared memory that every device offers to a block.
const RUN: u64 = 2048;

/// Maximum number of threads of a sorting block.
const MAX_THREADS: u64 = 512;

/// Number of contiguous elements that a thread sorts in registers, for keys of at most 32 bits.
const EACH: u64 = 8;
/// Number of contiguous elements that a thread sorts in registers, for keys of 64 bits.
const EACH_WIDE: u64 = 4;

/// Maximum length of a row with keys of 64 bits that a single block sorts by the network instead of by digits.
const ALONE_WIDE: u64 = 1024;

/// Instructions per pair of elements and step of the network, for entries of 4, 8 and 12 bytes. These and the following
/// numbers are executed instructions of 14 sorts on an H100, from hardware counters.
const PER_PAIR: [f64; 3] = [7.5, 12.5, 50.0];
/// Instructions per element that the network's kernel loads and stores.
const PER_ENTRY: f64 = 75.0;
/// Instructions per element and merge pass.
const PER_MERGE: f64 = 100.0;

/// The division of rows among blocks.
struct Split {
    rows: Rows,
    /// Number of elements of a run, a power of two; and number of runs of a row.
    run: u64,
    runs: u64,
    /// Number of rows that a block sorts; more than 1 for short rows only.
    several: u64,
    /// Size in bytes of an element's key with its index.
    entry: u64,
    /// Number of neighbouring elements that a thread sorts in registers.
    each: u64,
    /// The sort by digits; `None` if rows are sorted in runs that are merged.
    radix: Option<Radix>,
}

impl Split {
    fn of(spec: &Spec) -> Split {
        let rows = Rows::of(&[&spec.inputs[0], &spec.outputs[0], &spec.outputs[1]]);
        let run = rows.length.next_power_of_two().min(RUN);
        let runs = rows.length.div_ceil(run);
        // Uses all SMs before a block gets more rows than its threads need.
        let spread = (rows.count / BUSY_BLOCKS).max(1).next_power_of_two();
        let dtype = spec.inputs[0].dtype;
        let each = run.min(if dtype.size() == 8 { EACH_WIDE } else { EACH });
        let most = RUN.min(MAX_THREADS * each);
        let several = if runs == 1 { spread.clamp((WARP * each).div_ceil(run), (most / run).max(1)) } else { 1 };
        let bits = sorted_bits(dtype);
        let key = if bits > 32 { 8 } else { 4 };
        let radix = Radix::of(rows.count, rows.length, key, bits);
        let merges = runs.next_power_of_two().ilog2();
        // The network sorts padding as well. Comparing numbers of 64 bits takes more instructions than their digits do.
        let is_padded = rows.length * 10 <= run * runs.next_power_of_two() * 9;
        let is_short = if key == 8 { rows.length <= ALONE_WIDE } else { runs == 1 || !is_padded };
        let is_faster = radix.passes() < merges || (radix.is_alone() && !is_short);
        let radix = is_faster.then_some(radix);
        Split { rows, run, runs, several, entry: key + 4, each, radix }
    }

    /// Number of elements that a block holds in shared memory.
    fn list(&self) -> u64 {
        self.run * self.several
    }

    fn threads(&self) -> u64 {
        self.list() / self.each
    }

    fn blocks(&self) -> u64 {
        (self.rows.count * self.runs).div_ceil(self.several).max(1)
    }

    /// Number of passes, each of which merges pairs of runs.
    fn passes(&self) -> u64 {
        u64::from(self.runs.next_power_of_two().ilog2())
    }

    /// Size in bytes of the keys and indices of all elements between two kernels; 0 if one kernel sorts each row.
    fn entries(&self) -> u64 {
        if self.runs > 1 { self.rows.count * self.rows.length * self.entry } else { 0 }
    }
}

impl Operation for Sort {
    signature! {
        name: "sort",
        summary: "sorts the elements of each row (stable, in ascending order by default), and returns their original indices",
        category: Category::RowWise,
        inputs: &[Input::Tensor("x")],
        outputs: &["values", "indices"],
        options: &[OptionSpec::bool("descending", false, "sort in descending order")],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rows()?;
        let x = &call.inputs[0].tensor;
        let places = call.given_dtype(1).filter(|dtype| *dtype == DType::I64).unwrap_or(DType::I32);
        Ok(vec![call.output(0, x.dtype, x.dims)?, call.output(1, places, x.dims)?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        if row_length(spec) == 1 {
            let walk::Work { sectors, instructions, blocks } = with_single_elements(spec, walk::work);
            return vec![Cost { sectors, instructions, blocks, ..spec.streaming_cost(0.0, 1) }];
        }
        let split = Split::of(spec);
        let (read, written) = (Spec::bytes_of(&spec.inputs), Spec::bytes_of(&spec.outputs));
        let elements = spec.inputs[0].elements();
        if let Some(radix) = split.radix {
            let mut costs = radix.launch_costs(spec.inputs[0].dtype.size(), written.total() / elements.max(1));
            // Buffers of integers hold numbers below 100 unless a program writes others, so that only the lowest digits
            // differ. Equal digits cause no conflicts.
            if !spec.inputs[0].dtype.is_float() {
                let passes = radix.passes() as usize;
                let of_a_pass = costs.len() / passes;
                match radix.is_alone() {
                    true => costs.iter_mut().for_each(|cost| cost.conflicts /= passes as f64),
                    false => costs.iter_mut().skip(of_a_pass).for_each(|cost| cost.conflicts = 0.0),
                }
            }
            // The last pass reads each element again, from a sector of its own.
            if let Some(last) = costs.last_mut() {
                last.reread = last.reread + read;
                last.sectors += if radix.is_alone() { 0.0 } else { elements as f64 };
            }
            return costs;
        }
        let listed = (split.blocks() * split.list()) as f64;
        let steps = f64::from(split.run.ilog2() * (split.run.ilog2() + 1) / 2);
        let passes = split.passes();
        let entries = Traffic::of(Space::Device, split.entries());
        let leaves = |pass: u64| if pass == passes { written } else { entries };
        let of_pair = PER_PAIR[match spec.inputs[0].dtype.size() {
            0..=2 => 0,
            3..=4 => 1,
            _ => 2,
        }];
        // In these steps, threads compare elements of other warps.
        let wide = (split.run / (WARP * split.each)).max(1).ilog2();
        let runs = Cost {
            instructions: of_pair * listed / 2.0 * steps + PER_ENTRY * listed,
            read,
            written: leaves(0),
            blocks: split.blocks(),
            share: share(split.threads()),
            // A thread loads one element after the other, each under a condition. Before it stores a result, it loads the element again, which
            // no later load can precede.
            waits: (split.each - 1 + if passes == 0 { split.each } else { 0 }) as f64,
            exchanges: f64::from(wide * (wide + 1) / 2),
            ..Cost::default()
        };
        let merge = |pass: u64| Cost {
            instructions: PER_MERGE * elements as f64,
            read: entries,
            written: leaves(pass),
            blocks: split.rows.count * split.rows.length.div_ceil(RUN),
            share: share(u64::from(BLOCK)),
            // The last pass reads each element again, from a sector of its own.
            sectors: if pass == passes { ((read + entries + written).total() / SECTOR + elements) as f64 } else { 0.0 },
            exchanges: 3.0,
            // A warp finds a cut by steps, each of which leaves a 32nd of a run, before the block reads the elements; they name elements.
            waits: f64::from((RUN << (pass - 1)).ilog2() / WARP.ilog2() + 1) + if pass == passes { 1.0 } else { 0.0 },
            ..Cost::default()
        };
        std::iter::once(runs).chain((1..=passes).map(merge)).collect()
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let (length, descends) = (row_length(spec), spec.attrs.bool("descending"));
        let [values, indices] = outputs else { unreachable!("the signature has two outputs") };
        let rows = inputs[0].chunks(length).zip(values.chunks_mut(length).zip(indices.chunks_mut(length)));
        for (row, (values, indices)) in rows {
            let mut order: Vec<usize> = (0..length).collect();
            // Positive and negative zero are equal, and so are all NaN.
            let ascending = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(a.is_nan().cmp(&b.is_nan()));
            order.sort_by(|&i, &j| if descends { ascending(row[j], row[i]) } else { ascending(row[i], row[j]) });
            for (place, index) in order.into_iter().enumerate() {
                values[place] = row[index];
                indices[place] = index as f64;
            }
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (spec.inputs[0].dims.len() > 1).then(|| Pieces::Rows(vec![true]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        if row_length(spec) == 1 {
            return vec![with_single_elements(spec, |tasks| walk::launch_all("sort", tasks, compute_type(spec)))];
        }
        let split = Split::of(spec);
        let (x, indices) = (&spec.inputs[0], &spec.outputs[1]);
        let (rows, dtype) = (&split.rows, c_type(x.dtype));
        if let Some(radix) = split.radix {
            return by_digits(spec, rows, &radix);
        }
        let elements = rows.count * rows.length;
        let pass = |name: &str, body: &str, threads: u64, blocks: u64, is_last: bool, width: u64, side: u64| {
            let before = format!(
                "{}{}#define DESCENDS {}\n#define LAST {}\n#define RUN {}\n#define LIST {}\n#define EACH {}\n\
                 #define THREADS {threads}\ntypedef {} Packed;\ntypedef {} Index;\n{ENTRIES}",
                bounds(threads as u32),
                sorted_keys(x.dtype),
                u32::from(spec.attrs.bool("descending")),
                u32::from(is_last),
                split.run,
                split.list(),
                split.list() / threads,
                if x.dtype.size() <= 2 { "u32" } else { "u64" },
                index_type(elements.max(blocks * split.several)),
            );
            let params = [
                param(format!("{dtype}* values"), Arg::Operand(1)),
                param(format!("{}* indices", c_type(indices.dtype)), Arg::Operand(2)),
                param(format!("const {dtype}* x"), Arg::Operand(0)),
                param("K* keys", Arg::Workspace(2 * split.entries())),
                i64_param("sx", rows.steps[0]),
                i64_param("sv", rows.steps[1]),
                i64_param("si", rows.steps[2]),
                geometry_param("g", &rows.geometry),
                u64_param("rows", rows.count),
                u32_param("n", rows.length),
                u32_param("runs", split.runs),
                u32_param("width", width),
                u32_param("side", side),
            ];
            launch(name, &before, &params, body, blocks, threads as u32)
        };
        let passes = split.passes();
        let mut launches = vec![pass("sort_runs", RUNS, split.threads(), split.blocks(), passes == 0, 0, 0)];
        launches.extend((0..passes).map(|number| {
            let blocks = rows.count * rows.length.div_ceil(RUN);
            pass("sort_merge", MERGE, u64::from(BLOCK), blocks, number + 1 == passes, RUN << number, number % 2)
        }));
        launches
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::top_k(rule)
    }
}

/// Passes the elementwise tasks that sort rows of one element to `work`: a copy of the values, and indices of zero.
fn with_single_elements<R>(spec: &Spec, work: impl FnOnce(&[Task]) -> R) -> R {
    let operand = |number: usize, tensor: &Tensor| Operand::of(number, tensor, tensor.strides);
    let (dims, [values, indices]) =
        (spec.inputs[0].dims, [0, 1].map(|output| operand(output + 1, &spec.outputs[output])));
    let (copy, zero) = (Expression::identity(), Expression::constant(0.0));
    work(&[
        Task { expression: &copy, dims, outputs: vec![values], inputs: vec![operand(0, &spec.inputs[0])] },
        Task { expression: &zero, dims, outputs: vec![indices], inputs: Vec::new() },
    ])
}

/// Kernels that sort rows by the digits of their keys.
fn by_digits(spec: &Spec, rows: &Rows, radix: &Radix) -> Vec<Launch> {
    let (x, indices) = (&spec.inputs[0], &spec.outputs[1]);
    let dtype = c_type(x.dtype);
    let text = format!(
        "{}#define DESCENDS {}\n#define DROPS 0\ntypedef {} Index;\n{DIGITS}",
        sorted_keys(x.dtype),
        u32::from(spec.attrs.bool("descending")),
        index_type(rows.count),
    );
    let params = [
        param(format!("{dtype}* __restrict__ values"), Arg::Operand(1)),
        param(format!("{}* __restrict__ indices", c_type(indices.dtype)), Arg::Operand(2)),
        param(format!("const {dtype}* __restrict__ x"), Arg::Operand(0)),
        i64_param("sx", rows.steps[0]),
        i64_param("sv", rows.steps[1]),
        i64_param("si", rows.steps[2]),
        geometry_param("g", &rows.geometry),
    ];
    radix.launches(&Client { text: &text, params: &params, names: ["sort", "sort_count", "sort_sum", "sort_move"] })
}

/// Kernel text: the key of an element, and the way in which it is stored.
const DIGITS: &str = r#"
#define FIRST(list, p, key) (key = (Key)order(x[g.offset((Index)(list), 0) + (i64)(p) * sx]), key = DESCENDS ? ~key : key, true)
#define LEAVE(list, at, key, place) \
  values[g.offset((Index)(list), 1) + (i64)(at) * sv] = x[g.offset((Index)(list), 0) + (i64)(place) * sx]; \
  indices[g.offset((Index)(list), 2) + (i64)(at) * si] = (i32)(place);
"#;

/// Kernel text: list entries with a key, which ascends in the order of the result, and an index. `leave` stores an entry as
/// element `j` of a row.
const ENTRIES: &str = r#"
template <typename E> __device__ inline K key_of(E x) { return DESCENDS ? (K)~order(x) : order(x); }
__device__ inline u32* places_of(K* keys, u64 all) { return (u32*)(keys + 2 * all); }
#define LEAVE(row, j, key, place, side) \
  if (LAST) { \
    values[g.offset((Index)(row), 1) + (i64)(j) * sv] = x[g.offset((Index)(row), 0) + (i64)(place) * sx]; \
    indices[g.offset((Index)(row), 2) + (i64)(j) * si] = (i32)(place); \
  } else { \
    u64 at = (side) * rows * n + (u64)(row) * n + (j); \
    keys[at] = key; \
    places_of(keys, rows * n)[at] = place; \
  }
"#;

/// Kernel text: sorts each run of `RUN` elements by a bitonic network. A thread holds `EACH` neighbouring elements in registers. It
/// compares them with its own elements directly, with those of its warp by shuffles, and with others through shared memory. An
/// entry is one number with the key and the index in the run, or two numbers if keys have 64 bits. Padding at the end of a row
/// sorts after all its elements.
const RUNS: &str = r#"#if BITS == 64
  struct Entry {
    K key;
    u32 place;
    __device__ inline bool before(const Entry& other) const {
      return key < other.key || (key == other.key && place < other.place);
    }
    __device__ inline Entry of_lane(u32 mask) const { return {SHUFFLE_XOR(key, mask), SHUFFLE_XOR(place, mask)}; }
  };
  auto entry = [](K key, u32 place) { return Entry{key, place}; };
  auto key_of_entry = [](const Entry& e) { return e.key; };
  auto place_of_entry = [](const Entry& e) { return e.place; };
  const Entry last = {~(K)0, ~0u};
#else
  typedef Packed Number;
  struct Entry {
    Number all;
    __device__ inline bool before(const Entry& other) const { return all < other.all; }
    __device__ inline Entry of_lane(u32 mask) const { return {SHUFFLE_XOR(all, mask)}; }
  };
  auto entry = [](K key, u32 place) { return Entry{((Number)key & (((Number)1 << BITS) - 1)) << 16 | place}; };
  auto key_of_entry = [](const Entry& e) { return (K)(e.all >> 16); };
  auto place_of_entry = [](const Entry& e) { return (u32)e.all & 0xffffu; };
  const Entry last = {~(Number)0};
#endif
  // The neighbouring elements of a thread lie in different banks.
  __shared__ Entry list[LIST + LIST / 32];
  auto padded = [](u32 i) { return i + i / 32; };
  for (u32 i = threadIdx.x; i < LIST; i += THREADS) {
    Index unit = (Index)blockIdx.x * (LIST / RUN) + i / RUN, row = unit / runs;
    u32 j = (u32)(unit - row * runs) * RUN + i % RUN;
    list[padded(i)] = row < rows && j < n ? entry(key_of(x[g.offset(row, 0) + (i64)j * sx]), i % RUN) : last;
  }
  __syncthreads();
  const u32 first = threadIdx.x * EACH;
  Entry own[EACH];
#pragma unroll
  for (u32 e = 0; e < EACH; e++) own[e] = list[padded(first + e)];
  // Orders the pairs of a thread: the smaller element first, or the larger one in every second part of `size` elements.
  auto pairs = [&](u32 size, u32 step) {
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      if (e & step) continue;
      const bool ascends = ((first + e) & (RUN - 1) & size) == 0;
      Entry a = own[e], b = own[e | step];
      const bool stays = a.before(b) == ascends;
      own[e] = stays ? a : b;
      own[e | step] = stays ? b : a;
    }
  };
  auto keep = [&](Entry& mine, const Entry& other, bool smaller) {
    if (other.before(mine) == smaller) mine = other;
  };
#pragma unroll
  for (u32 size = 2; size <= EACH; size *= 2) {
#pragma unroll
    for (u32 step = size / 2; step > 0; step /= 2) pairs(size, step);
  }
  for (u32 size = 2 * EACH; size <= RUN; size *= 2) {
    const bool ascends = (first & (RUN - 1) & size) == 0;
    u32 step = size / 2;
    for (; step >= 32 * EACH; step /= 2) {
      __syncthreads();
#pragma unroll
      for (u32 e = 0; e < EACH; e++) list[padded(first + e)] = own[e];
      __syncthreads();
#pragma unroll
      for (u32 e = 0; e < EACH; e++) keep(own[e], list[padded((first ^ step) + e)], ((first & step) == 0) == ascends);
    }
    for (; step >= EACH; step /= 2) {
#pragma unroll
      for (u32 e = 0; e < EACH; e++) keep(own[e], own[e].of_lane(step / EACH), ((first & step) == 0) == ascends);
    }
#pragma unroll
    for (u32 near = EACH / 2; near > 0; near /= 2) pairs(size, near);
  }
  __syncthreads();
#pragma unroll
  for (u32 e = 0; e < EACH; e++) list[padded(first + e)] = own[e];
  __syncthreads();
  for (u32 i = threadIdx.x; i < LIST; i += THREADS) {
    Index unit = (Index)blockIdx.x * (LIST / RUN) + i / RUN, row = unit / runs;
    const u32 begin = (u32)(unit - row * runs) * RUN, j = begin + i % RUN;
    if (row < rows && j < n) { LEAVE(row, j, key_of_entry(list[padded(i)]), begin + place_of_entry(list[padded(i)]), 0) }
  }
"#;

/// Kernel text: merges pairs of runs of `width` elements. A block computes one tile of the result: it finds the elements of both
/// runs that belong to the tile and loads them into shared memory, and its threads merge equal numbers of them (Green, McColl,
/// Bader, "GPU merge path", 2012). Equal keys of the first run precede those of the second.
const MERGE: &str = r#"  __shared__ K list[RUN];
  __shared__ u32 places[RUN], cuts[2];
  // Returns how many of the result's first `d` elements come from `a`.
  auto cut = [](const K* a, u32 of_a, const K* b, u32 of_b, u32 d) {
    u32 low = d > of_b ? d - of_b : 0, high = d < of_a ? d : of_a;
    while (low < high) {
      u32 middle = (low + high) / 2;
      if (a[middle] <= b[d - 1 - middle]) low = middle + 1; else high = middle;
    }
    return low;
  };
  // Does the same with 32 threads, which probe 32 positions of memory at once. All threads of a wavefront of 64 take the same
  // number of steps.
  auto cut_together = [](const K* a, u32 of_a, const K* b, u32 of_b, u32 d, u32 width) {
    u32 low = d > of_b ? d - of_b : 0, high = d < of_a ? d : of_a;
    for (u32 most = width; most > 0; most = (most - 1) / 32) {
      auto probe = [&](u32 lane) { return low + (u32)((u64)(high - low) * lane / 32); };
      const u32 middle = probe(threadIdx.x % 32);
      const u32 count = sum32((u32)(low < high && a[middle] <= b[d - 1 - middle]));
      if (low == high) continue;
      const u32 from = count > 0 ? probe(count - 1) + 1 : low;
      high = count == 0 ? low : count < 32 ? probe(count) : high;
      low = from;
    }
    return low;
  };
  u32 tiles = (n + RUN - 1) / RUN, begin = blockIdx.x % tiles * RUN;
  u64 row = blockIdx.x / tiles;
  u32 pair = begin / (2 * width) * (2 * width), left = n - pair;
  u32 of_a = left < width ? left : width, of_b = left - of_a < width ? left - of_a : width;
  const K* a = keys + side * rows * n + row * n + pair;
  const u32* a_places = places_of(keys, rows * n) + side * rows * n + row * n + pair;
  u32 from = begin - pair, to = of_a + of_b - from < RUN ? of_a + of_b : from + RUN, count = to - from;
  if (threadIdx.x < 64) {
    const u32 found = cut_together(a, of_a, a + of_a, of_b, threadIdx.x < 32 ? from : to, width);
    if (threadIdx.x % 32 == 0) cuts[threadIdx.x / 32] = found;
  }
  __syncthreads();
  u32 first_a = cuts[0], some_a = cuts[1] - first_a, some_b = count - some_a;
  for (u32 i = threadIdx.x; i < count; i += THREADS) {
    u32 at = i < some_a ? first_a + i : of_a + (from - first_a) + (i - some_a);
    list[i] = a[at];
    places[i] = a_places[at];
  }
  __syncthreads();
  u32 own = threadIdx.x * EACH < count ? threadIdx.x * EACH : count;
  u32 i = cut(list, some_a, list + some_a, some_b, own), j = own - i;
  K key[EACH];
  u32 place[EACH];
#pragma unroll
  for (u32 e = 0; e < EACH; e++) {
    if (own + e >= count) continue;
    bool first = j >= some_b || (i < some_a && list[i] <= list[some_a + j]);
    u32 at = first ? i++ : some_a + j++;
    key[e] = list[at];
    place[e] = places[at];
  }
  __syncthreads();
#pragma unroll
  for (u32 e = 0; e < EACH; e++)
    if (own + e < count) { list[own + e] = key[e]; places[own + e] = place[e]; }
  __syncthreads();
  for (u32 i = threadIdx.x; i < count; i += THREADS) {
    LEAVE(row, begin + i, list[i], places[i], 1 - side)
  }
"#;
