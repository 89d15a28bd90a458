//! `sort`: sorts rows, and returns the original index of each element.
//!
//! A block sorts one or several short rows in shared memory by a bitonic network. Longer rows are sorted by the digits of their keys.
//! Time depends on the shape alone, and not on the values.

use crate::ops::kernels::kernel::{
    Parameter, bounds, c_type, compute_type, geometry_param, i64_param, index_type, launch, param, u32_param, u64_param,
};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, WARP, share};
use crate::ops::kernels::radix::{Client, Radix};
use crate::ops::kernels::rows::{Rows, row_length};
use crate::ops::kernels::select::{sorted_bits, sorted_keys};
use crate::ops::kernels::walk::{self, Operand, Task};
use crate::ops::*;

/// `sort(x)`, as `torch.sort` of the last dimension with `stable=True`.
pub struct Sort;

/// Maximum number of elements that a block sorts by the network.
const MAX_SORTED: u64 = 2048;

/// Maximum number of threads of a sorting block.
const MAX_THREADS: u64 = 512;

/// Number of contiguous elements that a thread sorts in registers, for keys of at most 32 bits.
const EACH: u64 = 8;
/// Number of contiguous elements that a thread sorts in registers, for keys of 64 bits.
const EACH_WIDE: u64 = 4;

/// Maximum length of a row with keys of 64 bits that a block sorts by the network. Comparing numbers of 64 bits takes more instructions than
/// their digits do.
const MAX_WIDE: u64 = 1024;

/// Instructions per pair of elements and step of the network, for entries of 4, 8 and 12 bytes. These and the following
/// numbers are executed instructions of 14 sorts on an H100, from hardware counters.
const PER_PAIR: [f64; 3] = [7.5, 12.5, 50.0];
/// Instructions per element that the network's kernel loads and stores.
const PER_ENTRY: f64 = 75.0;

/// The division of rows among blocks.
struct Split {
    rows: Rows,
    /// Number of elements that the network sorts for a row, a power of two.
    padded: u64,
    /// Number of rows that a block sorts.
    several: u64,
    /// Number of neighbouring elements that a thread sorts in registers.
    each: u64,
    /// The sort by digits; `None` if the network sorts rows.
    radix: Option<Radix>,
}

impl Split {
    fn of(spec: &Spec) -> Split {
        let rows = Rows::of(&[&spec.inputs[0], &spec.outputs[0], &spec.outputs[1]]);
        let padded = rows.length.next_power_of_two();
        // Uses all SMs before a block gets more rows than its threads need.
        let spread = (rows.count / BUSY_BLOCKS).max(1).next_power_of_two();
        let dtype = spec.inputs[0].dtype;
        let each = padded.min(if dtype.size() == 8 { EACH_WIDE } else { EACH });
        let most = MAX_SORTED.min(MAX_THREADS * each);
        let several = spread.clamp((WARP * each).div_ceil(padded), (most / padded).max(1));
        let bits = sorted_bits(dtype);
        let (key, shortest) = if bits > 32 { (8, MAX_WIDE) } else { (4, MAX_SORTED) };
        let radix = (rows.length > shortest).then(|| Radix::of(rows.count, rows.length, key, bits));
        Split { rows, padded, several, each, radix }
    }

    /// Number of elements that a block holds in shared memory.
    fn list(&self) -> u64 {
        self.padded * self.several
    }

    fn threads(&self) -> u64 {
        self.list() / self.each
    }

    fn blocks(&self) -> u64 {
        self.rows.count.div_ceil(self.several).max(1)
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
        let steps = f64::from(split.padded.ilog2() * (split.padded.ilog2() + 1) / 2);
        let of_pair = PER_PAIR[match spec.inputs[0].dtype.size() {
            0..=2 => 0,
            3..=4 => 1,
            _ => 2,
        }];
        // In these steps, threads compare elements of other warps.
        let wide = (split.padded / (WARP * split.each)).max(1).ilog2();
        vec![Cost {
            instructions: of_pair * listed / 2.0 * steps + PER_ENTRY * listed,
            read,
            written,
            blocks: split.blocks(),
            share: share(split.threads()),
            // A thread loads one element after the other, each under a condition, and loads each again before it stores a result.
            waits: (2 * split.each - 1) as f64,
            exchanges: f64::from(wide * (wide + 1) / 2),
            ..Cost::default()
        }]
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
        let (x, rows) = (&spec.inputs[0], &split.rows);
        if let Some(radix) = split.radix {
            return by_digits(spec, rows, &radix);
        }
        let before = format!(
            "{}{}#define DESCENDS {}\n#define ROW {}\n#define LIST {}\n#define EACH {}\n#define THREADS {}\ntypedef {} Packed;\n\
             typedef {} Index;\n{STORE}",
            bounds(split.threads() as u32),
            sorted_keys(x.dtype),
            u32::from(spec.attrs.bool("descending")),
            split.padded,
            split.list(),
            split.each,
            split.threads(),
            if x.dtype.size() <= 2 { "u32" } else { "u64" },
            index_type(split.blocks() * split.several),
        );
        let mut params = operands(spec, rows);
        params.extend([u64_param("rows", rows.count), u32_param("n", rows.length)]);
        vec![launch("sort_rows", &before, &params, NETWORK, split.blocks(), split.threads() as u32)]
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

/// The operands of a sort as parameters of a kernel.
fn operands(spec: &Spec, rows: &Rows) -> Vec<Parameter> {
    let (dtype, indices) = (c_type(spec.inputs[0].dtype), &spec.outputs[1]);
    vec![
        param(format!("{dtype}* __restrict__ values"), Arg::Operand(1)),
        param(format!("{}* __restrict__ indices", c_type(indices.dtype)), Arg::Operand(2)),
        param(format!("const {dtype}* __restrict__ x"), Arg::Operand(0)),
        i64_param("sx", rows.steps[0]),
        i64_param("sv", rows.steps[1]),
        i64_param("si", rows.steps[2]),
        geometry_param("g", &rows.geometry),
    ]
}

/// Kernels that sort rows by the digits of their keys.
fn by_digits(spec: &Spec, rows: &Rows, radix: &Radix) -> Vec<Launch> {
    let text = format!(
        "{}#define DESCENDS {}\n#define DROPS 0\ntypedef {} Index;\n{KEY}{STORE}",
        sorted_keys(spec.inputs[0].dtype),
        u32::from(spec.attrs.bool("descending")),
        index_type(rows.count),
    );
    let params = operands(spec, rows);
    radix.launches(&Client { text: &text, params: &params, names: ["sort", "sort_count", "sort_sum", "sort_move"] })
}

/// Kernel text: the way in which an element is stored.
const STORE: &str = r#"
#define LEAVE(list, at, key, place) \
  values[g.offset((Index)(list), 1) + (i64)(at) * sv] = x[g.offset((Index)(list), 0) + (i64)(place) * sx]; \
  indices[g.offset((Index)(list), 2) + (i64)(at) * si] = (i32)(place);
"#;

/// Kernel text: the key of an element.
const KEY: &str = r#"
#define FIRST(list, p, key) (key = (Key)order(x[g.offset((Index)(list), 0) + (i64)(p) * sx]), key = DESCENDS ? ~key : key, true)
"#;

/// Kernel text: sorts rows of at most `ROW` elements by a bitonic network. A thread holds `EACH` neighbouring elements in registers. It
/// compares them with its own elements directly, with those of its warp by shuffles, and with others through shared memory. An
/// entry is one number with the key and the index in the row, or two numbers if keys have 64 bits. Padding at the end of a row
/// sorts after all its elements.
const NETWORK: &str = r#"#if BITS == 64
  struct Entry {
    K key;
    u32 place;
    __device__ inline bool before(const Entry& other) const {
      return key < other.key || (key == other.key && place < other.place);
    }
    __device__ inline Entry of_lane(u32 mask) const { return {SHUFFLE_XOR(key, mask), SHUFFLE_XOR(place, mask)}; }
  };
  auto entry = [](K key, u32 place) { return Entry{key, place}; };
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
  auto place_of_entry = [](const Entry& e) { return (u32)e.all & 0xffffu; };
  const Entry last = {~(Number)0};
#endif
  // The neighbouring elements of a thread lie in different banks.
  __shared__ Entry list[LIST + LIST / 32];
  auto padded = [](u32 i) { return i + i / 32; };
  for (u32 i = threadIdx.x; i < LIST; i += THREADS) {
    const Index row = (Index)blockIdx.x * (LIST / ROW) + i / ROW;
    const u32 j = i % ROW;
    Entry read = last;
    if (row < rows && j < n) {
      const K key = order(x[g.offset(row, 0) + (i64)j * sx]);
      read = entry(DESCENDS ? ~key : key, j);
    }
    list[padded(i)] = read;
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
      const bool ascends = ((first + e) & (ROW - 1) & size) == 0;
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
  for (u32 size = 2 * EACH; size <= ROW; size *= 2) {
    const bool ascends = (first & (ROW - 1) & size) == 0;
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
    const Index row = (Index)blockIdx.x * (LIST / ROW) + i / ROW;
    const u32 j = i % ROW;
    if (row < rows && j < n) { LEAVE(row, j, 0, place_of_entry(list[padded(i)])) }
  }
"#;
