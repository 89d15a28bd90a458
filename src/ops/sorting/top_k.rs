//! `top_k`: the largest elements along the last dimension.

use crate::ops::kernels::kernel::{
    BLOCK, bounds, c_type, geometry_param, i64_param, index_type, launch, param, u32_param, u64_param,
};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, UNIT_THREADS, UNITS, WARP, share_with};
use crate::ops::kernels::rows::{Rows, row_length};
use crate::ops::kernels::select::{is_wide, keys};
use crate::ops::*;

/// `top_k(x, k: n)`.
pub struct TopK;

/// True if element `a` at index `i` precedes `b` at `j`: larger first, NaN before all numbers, and the lower index
/// among equals. The kernels' [`keys`] have the same order.
pub fn ahead(a: f64, i: usize, b: f64, j: usize) -> bool {
    let above = |a: f64, b: f64| a > b || (a.is_nan() && !b.is_nan());
    above(a, b) || (!above(b, a) && i < j)
}

impl Operation for TopK {
    signature! {
        name: "top_k",
        summary: "the k largest elements of each row in descending order, and their indices",
        category: Category::RowWise,
        inputs: &[Input::Tensor("x")],
        outputs: &["values", "indices"],
        options: &[OptionSpec::required("k", OptionType::Int(1, 1024), "number of elements per row")],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rows()?;
        let tensor = &call.inputs[0].tensor;
        let k = call.attrs.int("k") as u64;
        let last = tensor.dims.len() - 1;
        if k > tensor.dims[last] {
            let length = tensor.dims[last];
            let why = format!("it asks for {k} of the {length} elements of a row");
            return Err(call.bad_option("k", why, format!("write 1 to {length}")));
        }
        let mut dims = tensor.dims;
        dims.set(last, k);
        Ok(vec![call.output(0, tensor.dtype, dims)?, call.output(1, DType::I32, dims)?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let x = &spec.inputs[0];
        let rows = x.elements() / row_length(spec).max(1) as u64;
        let k = spec.attrs.int("k") as u64;
        let bits = if is_wide(x.dtype) { 32 } else { 16 };
        let cost = |stage: &Stage| {
            let elements = rows * stage.length;
            let threads = u64::from(stage.threads);
            let span = stage.length.div_ceil(stage.parts);
            let pieces = span.div_ceil(threads * stage.held);
            let is_long = span > FEW;
            // The list holds all elements of a short row; otherwise those above a threshold, which are more than `k`.
            let listed = if is_long { (3 * k).min(ROOM) } else { stage.length }.next_power_of_two();
            let steps = listed.ilog2() * (listed.ilog2() + 1) / 2;
            let (each, exchanges) = match stage.source {
                Candidates::Short => (of_rounds(k, stage.held) + PER_HELD * stage.held + PER_THREAD, 0.0),
                Candidates::Sorted => (of_sort(stage.held) + PER_HELD * stage.held + PER_THREAD, 0.0),
                _ => {
                    let sorts = PER_PAIR * u64::from(steps) * (listed / 2).div_ceil(threads);
                    let searches = if is_long { PER_BIT * bits } else { 0 };
                    let own = pieces * (PER_CANDIDATE * stage.held + PER_PIECE) + searches + sorts + PER_SELECTION;
                    (own, (4 * pieces) as f64 + f64::from(steps) / 4.0 + if is_long { bits as f64 / 4.0 } else { 0.0 })
                }
            };
            let places = Traffic::of(Space::Device, rows * k * stage.parts * 4);
            // A thread reads the elements of a piece at once.
            let loads = if matches!(stage.source, Candidates::Row | Candidates::Parts) { pieces } else { 1 };
            Cost {
                instructions: (each * stage.blocks * threads) as f64,
                exchanges,
                read: Traffic::of(x.space, elements * x.dtype.size()),
                written: if stage.parts > 1 { places } else { Spec::bytes_of(&spec.outputs) },
                blocks: stage.blocks,
                share: share_with(threads, OTHER_REGISTERS + 2 * stage.held),
                // The chosen elements are read again, and candidates by their places.
                waits: (loads - 1 + u64::from(stage.parts == 1) + u64::from(matches!(stage.source, Candidates::Parts)))
                    as f64,
                ..Cost::default()
            }
        };
        stages(spec).iter().map(cost).collect()
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let length = row_length(spec);
        let k = spec.attrs.int("k") as usize;
        let [values, indices] = outputs else { unreachable!("the signature has two outputs") };
        for (row, (values, indices)) in inputs[0].chunks(length).zip(values.chunks_mut(k).zip(indices.chunks_mut(k))) {
            let mut order: Vec<usize> = (0..length).collect();
            order.sort_by(|&i, &j| ahead(row[j], j, row[i], i).cmp(&ahead(row[i], i, row[j], j)));
            for (place, &index) in order.iter().take(k).enumerate() {
                values[place] = row[index];
                indices[place] = index as f64;
            }
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (spec.inputs[0].dims.len() > 1).then(|| Pieces::Rows(vec![true]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, values, indices) = (&spec.inputs[0], &spec.outputs[0], &spec.outputs[1]);
        let rows = Rows::of(&[x, values, indices]);
        let k = spec.attrs.int("k") as u64;
        let dtype = c_type(x.dtype);
        let stages = stages(spec);
        let workspace = if stages.len() > 1 { rows.count * stages[0].parts * k * 4 } else { 0 };
        let of_stage = |stage: &Stage| {
            let (name, place, body) = match stage.source {
                Candidates::Short => ("top_k_short", "(j)", SHORT),
                Candidates::Sorted => ("top_k_sorted", "(j)", SORTED),
                Candidates::Row => ("top_k", "(j)", LONG),
                Candidates::Parts => ("top_k_rest", "chosen[row * n + (j)]", LONG),
            };
            let before = format!(
                "{}#define ROOM {ROOM}\n#define FEW {FEW}\n#define T {}\n#define HELD {}\n#define PLACE(j) {place}\n#define LAST {}\ntypedef {} Index;\n{}{SORT}",
                bounds(stage.threads),
                stage.threads,
                stage.held,
                stage.parts == 1,
                index_type(rows.count),
                keys(x.dtype),
            );
            let params = [
                param(format!("{dtype}* values"), Arg::Operand(1)),
                param("i32* indices", Arg::Operand(2)),
                param(format!("const {dtype}* x"), Arg::Operand(0)),
                param("u32* chosen", Arg::Workspace(workspace)),
                u32_param("k", k),
                i64_param("sx", rows.steps[0]),
                i64_param("sv", rows.steps[1]),
                i64_param("si", rows.steps[2]),
                geometry_param("g", &rows.geometry),
                u64_param("rows", rows.count),
                u32_param("n", stage.length),
                u32_param("parts", stage.parts),
                u32_param("span", stage.length.div_ceil(stage.parts)),
            ];
            launch(name, &before, &params, body, stage.blocks, stage.threads)
        };
        stages.iter().map(of_stage).collect()
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::top_k(rule)
    }
}

/// Input of a selection kernel.
enum Candidates {
    /// The row; the registers of 32 threads hold all of it.
    Short,
    /// The row; 32 threads sort all of it.
    Sorted,
    /// The kernel reads the elements of the row.
    Row,
    /// The candidates that the previous kernel selected from parts of each row.
    Parts,
}

/// A kernel of a selection.
struct Stage {
    source: Candidates,
    /// Number of elements of a row.
    length: u64,
    /// Number of parts of a row.
    parts: u64,
    /// Number of threads of a block.
    threads: u32,
    /// Elements per thread, in registers.
    held: u64,
    blocks: u64,
}

/// Maximum `k` for which `k` searches of a maximum are faster than a selection.
const FEW_ROUNDS: u64 = 16;

/// Maximum number of elements of a row that each of 32 threads has when they sort it.
const MAX_SORTED: u64 = 4;

/// Minimum number of elements of a row that several blocks share.
const LONG_ROW: u64 = 1 << 15;
/// Minimum number of elements of a part of such a row.
const MIN_PART: u64 = 1 << 12;

/// Maximum number of threads of a row.
const MAX_THREADS: u64 = 512;

/// Capacity of the list of candidates.
const ROOM: u64 = 2048;
/// Number of elements that enter the list without a comparison.
const FEW: u64 = 512;

/// Instructions of a thread that keeps a short row in registers, per element. This and the following are executed instructions of
/// 16 selections on an H100, from hardware counters.
const PER_HELD: u64 = 25;
/// Other instructions of such a thread, once.
const PER_THREAD: u64 = 60;
/// Instructions of such a thread per round, apart from its elements.
const PER_ROUND: u64 = 45;

/// Instructions of a thread per element and step of the sort by 32 threads.
const PER_STEP: u64 = 8;

/// Instructions of a thread of the long form per element.
const PER_CANDIDATE: u64 = 14;
/// Instructions of such a thread per piece of a row.
const PER_PIECE: u64 = 150;
/// Instructions of such a thread per bit of a threshold.
const PER_BIT: u64 = 12;
/// Instructions of such a thread per pair of elements of the list and step of its sort.
const PER_PAIR: u64 = 28;
/// Other instructions of such a thread.
const PER_SELECTION: u64 = 300;

/// Registers of a thread besides its elements, of which each takes two.
const OTHER_REGISTERS: u64 = 16;

/// Number of instructions of a thread with `held` elements that takes part in `k` searches of a maximum.
fn of_rounds(k: u64, held: u64) -> u64 {
    k * (3 * held + PER_ROUND)
}

/// Number of instructions of a thread with `held` elements that takes part in a bitonic sort by 32 threads.
fn of_sort(held: u64) -> u64 {
    let widths = u64::from((WARP * held).ilog2());
    PER_STEP * held * widths * (widths + 1) / 2
}

/// Returns the selection kernels: one, or two for few long rows, where the second selects from the results of the
/// parts.
fn stages(spec: &Spec) -> Vec<Stage> {
    let rows = Rows::of(&[&spec.inputs[0]]);
    let (length, count, k) = (rows.length, rows.count, spec.attrs.int("k") as u64);
    let is_wide = is_wide(spec.inputs[0].dtype);
    let most = if is_wide { 8 } else { 16 };
    let held = length.div_ceil(WARP).next_power_of_two();
    let searches = k <= FEW_ROUNDS && length <= 64 * most;
    let sorts = !is_wide && held <= MAX_SORTED && (!searches || of_sort(held) < of_rounds(k, held));
    if searches || sorts {
        let source = if sorts { Candidates::Sorted } else { Candidates::Short };
        let blocks = count.div_ceil(u64::from(BLOCK) / WARP).max(1);
        return vec![Stage { source, length, parts: 1, threads: BLOCK, held, blocks }];
    }
    let stage = |source, length: u64, parts: u64| {
        let span = length.div_ceil(parts);
        let mut threads = span.div_ceil(most).next_power_of_two().clamp(64, MAX_THREADS);
        // Few rows have more threads each, up to one for each pair of elements that a step of the sort compares.
        while threads < MAX_THREADS && 2 * threads < span && 2 * threads * count * parts <= UNITS * UNIT_THREADS / 2 {
            threads *= 2;
        }
        let held = span.div_ceil(threads).next_power_of_two().min(most);
        Stage { source, length, parts, threads: threads as u32, held, blocks: (count * parts).max(1) }
    };
    let parts = match length > LONG_ROW && count > 0 {
        true => (BUSY_BLOCKS / count).min(length / MIN_PART.max(4 * k)).max(1),
        false => 1,
    };
    match parts {
        1 => vec![stage(Candidates::Row, length, 1)],
        _ => vec![stage(Candidates::Row, length, parts), stage(Candidates::Parts, parts * k, 1)],
    }
}

/// Kernel text: 32 threads hold a row in registers and find its maximum `k` times.
const SHORT: &str = r#"  u32 lane = threadIdx.x % 32;
  u64 row = (u64)blockIdx.x * (T / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const auto* from = x + g.offset((Index)row, 0);
  K held[HELD];
#pragma unroll
  for (u32 r = 0; r < HELD; r++) {
    u32 j = r * 32 + lane;
    held[r] = j < n ? order(from[j * sx]) : (K)0;
  }
  u32 own = 0;
  for (u32 round = 0; round < k; round++) {
    K most = 0;
    u32 place = 0;
#pragma unroll
    for (u32 r = 0; r < HELD; r++)
      if (held[r] > most) { most = held[r]; place = r * 32 + lane; }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      K other = SHUFFLE_XOR(most, mask);
      u32 there = SHUFFLE_XOR(place, mask);
      if (other > most || (other == most && there < place)) { most = other; place = there; }
    }
#pragma unroll
    for (u32 r = 0; r < HELD; r++)
      if (place == r * 32 + lane) held[r] = 0;
    if (round == lane) own = place;
  }
  if (lane >= k) return;
  values[g.offset((Index)row, 1) + lane * sv] = from[own * sx];
  indices[g.offset((Index)row, 2) + lane * si] = (i32)own;
"#;

/// 32 threads sort a row: element `32 r + lane` has the rank of its place. An item is a key, and below it the complement of the element's
/// place, so that all items differ.
const SORTED: &str = r#"  u32 lane = threadIdx.x % 32;
  u64 row = (u64)blockIdx.x * (T / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const auto* from = x + g.offset((Index)row, 0);
#if BITS <= 16
  typedef u32 Item;
  const u32 PLACES = 0xffffu;
#else
  typedef u64 Item;
  const u32 PLACES = 0xffffffffu;
#endif
  Item items[HELD];
#pragma unroll
  for (u32 r = 0; r < HELD; r++) {
    u32 j = r * 32 + lane;
    K key = j < n ? order(from[j * sx]) : (K)0;
    items[r] = (Item)key * ((Item)PLACES + 1) + (PLACES - j);
  }
#pragma unroll
  for (u32 level = 1; 1u << level <= 32 * HELD; level++) {
#pragma unroll
    for (u32 bit = level; bit-- > 0;) {
      const u32 width = 1u << level, step = 1u << bit;
#pragma unroll
      for (u32 r = 0; r < HELD; r++) {
        const u32 beside = r ^ step / 32;
        const bool descends = ((r * 32 + lane) & width) == 0;
        if (step < 32) {
          const Item other = SHUFFLE_XOR(items[r], step);
          const bool takes_larger = ((lane & step) == 0) == descends;
          items[r] = (other > items[r]) == takes_larger ? other : items[r];
        } else if (beside > r) {
          const Item one = items[r], other = items[beside];
          const bool swaps = (other > one) == descends;
          items[r] = swaps ? other : one;
          items[beside] = swaps ? one : other;
        }
      }
    }
  }
#pragma unroll
  for (u32 r = 0; r < HELD; r++) {
    u32 j = r * 32 + lane, place = PLACES - (u32)(items[r] & PLACES);
    if (j >= k) continue;
    values[g.offset((Index)row, 1) + j * sv] = from[place * sx];
    indices[g.offset((Index)row, 2) + j * si] = (i32)place;
  }
"#;

/// Sorts a list in shared memory by descending key; of equal keys, the lower index comes first.
const SORT: &str = r#"
#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define ORDER_WARP() __syncthreads()
#else
#define ORDER_WARP() __syncwarp()
#endif
__device__ inline void sort(K* best, u32* places, u32 count) {
  // The 32 pairs of a warp lie in 64 neighbouring elements if they are at most 32 apart.
  u32 size = 2, before = ~0u;
  while (size < count) size *= 2;
  for (u32 i = count + threadIdx.x; i < size; i += blockDim.x) { best[i] = 0; places[i] = ~0u; }
  for (u32 width = 2; width <= size; width *= 2)
    for (u32 step = width / 2; step > 0; before = step, step /= 2) {
      if (before > 32 || step > 32) __syncthreads();
      else ORDER_WARP();
      for (u32 pair = threadIdx.x; pair < size / 2; pair += blockDim.x) {
        u32 i = 2 * pair - (pair & (step - 1)), j = i + step;
        K a = best[i], b = best[j];
        u32 p = places[i], q = places[j];
        bool first = a > b || (a == b && p < q);
        if (first == ((i & width) == 0)) continue;
        best[i] = b; best[j] = a;
        places[i] = q; places[j] = p;
      }
    }
  __syncthreads();
}
"#;

/// Kernel text: a block selects from a row or from a part of it, which it reads once. It lists candidates for the `k` largest: from
/// the first piece of the row, elements not below the k-th largest of the threads' maxima; then larger elements.
const LONG: &str = r#"  __shared__ K best[ROOM];
  __shared__ u32 places[ROOM];
  Block block = {0};
  u64 row = blockIdx.x / parts;
  u32 part = blockIdx.x % parts, begin = part * span, end = n - begin < span ? n : begin + span;
  if (row >= rows) return;
  if (begin >= n) end = begin;
  const auto* from = x + g.offset((Index)row, 0);
  // Number of elements in the list. Unless `least` is 0, at least `k` of them precede all remaining elements whose key
  // is at most `least`.
  u32 listed = 0;
  K least = 0;
  for (u32 base = begin; base < end; base += T * HELD) {
    K held[HELD], most = 0;
    u32 count = 0;
#pragma unroll
    for (u32 r = 0; r < HELD; r++) {
      u32 j = base + r * T + threadIdx.x;
      u32 place = j < end ? PLACE(j) : ~0u;
      held[r] = place != ~0u ? order(from[place * sx]) : (K)0;
    }
#pragma unroll
    for (u32 r = 0; r < HELD; r++) {
      if (held[r] <= least) held[r] = 0;
      if (held[r] > most) most = held[r];
      count += held[r] != 0;
    }
    count = block.sum(count);
    if (count == 0) continue;
    auto key = [&](u32 r) { return held[r]; };
    auto place = [&](u32 r) { u32 j = base + r * T + threadIdx.x; return j < end ? PLACE(j) : ~0u; };
    K low = 1;
    u32 last = 0;
    if (listed == 0 && count > FEW) {
      auto own = [&](u32) { return most; };
      K found = threshold<K, 1>(own, 1, BITS, k, k, block);
      if (found != 0) {
        low = least = found;
        count = 0;
#pragma unroll
        for (u32 r = 0; r < HELD; r++) count += held[r] >= low;
        count = block.sum(count);
      }
    }
    // A search among all elements takes fewer steps than sorting many more than `k`.
    if (listed + count > ROOM || (listed == 0 && count > FEW && count > 2 * k)) {
      sort(best, places, listed);
      if (listed >= k) {
        listed = k;
        if (best[k - 1] > least) least = best[k - 1];
      }
      K found = threshold<K, HELD>(key, HELD, BITS, k, 0, block);
      if (found != 0) {
        last = last_equal<K, HELD>(key, place, HELD, found, k, block);
        low = found;
        if (found > least) least = found;
      }
    }
    u32 mine = 0, all;
#pragma unroll
    for (u32 r = 0; r < HELD; r++) {
      bool taken = held[r] > low || (held[r] == low && ~place(r) >= last);
      if (!taken) held[r] = 0;
      mine += taken;
    }
    u32 slot = listed + block.before(mine, all);
#pragma unroll
    for (u32 r = 0; r < HELD; r++)
      if (held[r] != 0) { best[slot] = held[r]; places[slot] = place(r); slot++; }
    listed += all;
    __syncthreads();
  }
  sort(best, places, listed);
  for (u32 i = threadIdx.x; i < k; i += T) {
    u32 place = i < listed ? places[i] : ~0u;
    if (!LAST) {
      chosen[(u64)blockIdx.x * k + i] = place;
    } else {
      values[g.offset((Index)row, 1) + i * sv] = from[place * sx];
      indices[g.offset((Index)row, 2) + i * si] = (i32)place;
    }
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rows_are_sorted_if_searches_of_each_maximum_take_longer() {
        let is_sorted = |dtype, length, k| {
            let (x, outputs) = (Tensor::packed(dtype, &[100, length]), [dtype, DType::I32]);
            let outputs = outputs.map(|dtype| Tensor::packed(dtype, &[100, k])).to_vec();
            let attrs = Attrs::of([("k", Attr::Int(k as i64))]);
            let stages = stages(&Spec::new(&TopK, attrs, vec![x], outputs));
            matches!(&*stages, [Stage { source: Candidates::Sorted, .. }])
        };
        for (dtype, length, k, expected) in [
            (DType::BF16, 27, 27, true),
            (DType::F32, 128, 100, true),
            (DType::F32, 32, 1, false),
            (DType::F16, 128, 8, false),
            (DType::F32, 129, 100, false),
            (DType::I32, 32, 32, false),
            (DType::U8, 64, 40, true),
        ] {
            assert_eq!(is_sorted(dtype, length, k), expected, "{dtype:?}, {length}, k {k}");
        }
    }
}
