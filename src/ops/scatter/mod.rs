//! `scatter`: writes or adds rows at the positions that indices give.

mod bucket_kernels;
mod buckets;
mod direct;
mod finder;
mod lists;
mod runs;
mod search;
mod search_kernels;
mod spread;
mod sweep;

use super::expression::ball::Precision;
use super::kernels::kernel::{BLOCK, Parameter, c_type, geometry_param, launch, param, u64_param};
use super::kernels::occupancy::{RESIDENT_BLOCKS, WARP};
use super::kernels::radix::RowSort;
use super::kernels::select::GROUPS;
use super::movement::gather::{Columns, head_geometry};
use super::*;

use finder::Finder;

/// `scatter(x, i, w -> y)`.
pub struct Scatter;

impl Operation for Scatter {
    signature! {
        name: "scatter",
        summary: "writes each row of `x` to row `i` of a zero tensor; for duplicate indices the last row or the sum of all",
        category: Category::Movement,
        inputs: &[Input::Tensor("x"), Input::Tensor("i"), Input::Optional("w")],
        outputs: &["y"],
        options: &[OptionSpec::word(
            "combine",
            &["set", "add"],
            "for duplicate indices: keep the last row (`set`) or the sum of all (`add`)",
        )],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let (x, i) = (&call.inputs[0].tensor, &call.inputs[1]);
        call.needs_indices(i)?;
        let lead = i.tensor.dims.len();
        if x.dims.len() < lead || x.dims[..lead] != *i.tensor.dims {
            return Err(call.differs(
                0,
                format!("this is {x}"),
                1,
                format!("this is {}", i.tensor),
                "the first dimensions of the scattered tensor have to be those of the indices",
            ));
        }
        if let Some(w) = call.inputs.get(2) {
            call.needs_float(w, "floating-point weights")?;
            if w.tensor.dims != i.tensor.dims {
                return Err(call.differs(
                    2,
                    format!("this is {}", w.tensor),
                    1,
                    format!("this is {}", i.tensor),
                    "each index needs one weight",
                ));
            }
        }
        let Some(output) = call.outputs[0] else {
            return Err(call.no_output("write `-> y`: the number of rows does not follow from the indices"));
        };
        let sizes: Vec<u64> = output.tensor.dims.first().into_iter().chain(&x.dims[lead..]).copied().collect();
        let dims = Dims::from_slice(&sizes).expect("no more than the input and one");
        Ok(vec![call.output(0, x.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let split = Split::of(spec);
        let costs = split.launch_costs(spec);
        if !costs.is_empty() {
            return costs.into_iter().sum();
        }
        let count = spec.inputs[1].elements();
        let blocks = |items: u64| items.div_ceil(u64::from(BLOCK));
        let (found, of_indices, before) = match split.finder {
            Finder::Sort(sort) => (sort.radix().moved(), sort.radix().instructions(), sort.radix().blocks()),
            _ => (split.found(spec), PER_INDEX * count as f64, blocks(spec.outputs[0].dims[0]) + blocks(count)),
        };
        let found = Traffic::of(Space::Device, found);
        Cost {
            flops: split.flops(spec),
            instructions: of_indices + PER_ELEMENT * spec.inputs[0].elements() as f64,
            read: Spec::bytes_of(&spec.inputs) + found,
            written: Spec::bytes_of(&spec.outputs) + found,
            blocks: before + split.windows * split.chunks(split.columns.threads) + split.summers,
            share: 4,
            ..Cost::default()
        }
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        Split::of(spec).launch_costs(spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        scattered(spec, inputs, &mut outputs[0], |x| x);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let terms = scattered(spec, inputs, &mut outputs[0], |x| x);
        let mut sizes = vec![0.0; outputs[0].len()];
        scattered(spec, inputs, &mut sizes, f64::abs);
        let unit = Precision::of(scatter_type(spec)).unit();
        // Each weighting of a term rounds, and so does each addition.
        let weighed = usize::from(spec.inputs.len() > 2);
        let rows = sizes.chunks(row_length(&spec.outputs[0])).zip(terms);
        let radii = rows.flat_map(|(row, terms)| {
            let roundings = terms.saturating_sub(1) + weighed;
            row.iter().map(move |size| roundings as f64 * unit * size)
        });
        vec![Tolerance::Within(radii.collect())]
    }

    /// Returns kernels that find the terms of each row in one of the ways of [`Finder`].
    ///
    /// The last two ways are those of this file: kernels that sort the positions of indices by row and sum up parts of very long rows, or,
    /// if terms are not added, that find the last position of each row; then a kernel with several threads per row.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (i, y) = (&spec.inputs[1], &spec.outputs[0]);
        let split = Split::of(spec);
        let columns = &split.columns;
        if let Some(launches) = split.finder.launches(spec, columns) {
            return launches;
        }
        let partials = split.windows * columns.length * scatter_type(spec).size();
        let parts = Parts::of(spec, columns, split.found(spec), partials);
        let launch = |name, body: &str, terms, chunks, grid| {
            let side = if let Finder::Sort(sort) = split.finder { sort.radix().side() } else { 0 };
            let before = format!(
                "{}#define WINDOW {}\n#define WINDOWS {}\n#define ADDS {}\n#define TERMS {terms}\n\
                 #define CHUNKS {chunks}\n#define AHEAD 8\n#define PLACE(l) (ADDS || SPARSE ? order[l] : (l))\n\
                 #define Raw Pack<E, V>\n#define READ_ROW(row, j) fetch((row) + COLUMN(j, 1))\n#define ELEMENTS(raw) (raw)\n#define SIDE {side}\n#define SPARSE {}\n{}",
                split.sort.radix().text(),
                split.window,
                u32::from(split.windows > 0),
                u32::from(split.adds),
                u32::from(split.sparse),
                columns.text(),
            );
            parts.launch(name, &before, body, grid, BLOCK)
        };
        let each = |name, body: &str, count: u64| launch(name, body, 1, 1, count.div_ceil(u64::from(BLOCK)).max(1));
        let mut launches = match split.finder {
            Finder::Sort(sort) => sort.launches(i, 1, &parts.outer, 1),
            _ => vec![each("scatter_clear", CLEAR, y.dims[0]), each("scatter_last", LAST, i.elements())],
        };
        if split.sparse {
            launches.push(Launch::Memset { operand: spec.inputs.len() as u8, value: 0, bytes: y.bytes() });
        }
        if split.windows > 0 {
            let (terms, chunks) = (u64::from(BLOCK) / columns.threads, split.chunks(columns.threads));
            launches.push(launch(
                "scatter_pieces",
                &format!("{OWN_PLACE}{TERMS}{ADDING}{PIECES}"),
                terms,
                chunks,
                split.windows * chunks,
            ));
        }
        launches.push(launch(
            "scatter",
            &format!("{OWN_PLACE}{TERMS}{ADDING}{ROWS}"),
            split.terms,
            split.row_chunks,
            split.summers,
        ));
        launches
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::scatter(rule)
    }
}

/// Minimum number of terms of one row that form a part with a sum of its own.
const WINDOW: u64 = 128;

/// Approximate number of terms per thread, if several threads share the terms of a row.
const TERMS_OF_A_THREAD: u64 = 8;

/// Instructions per element that is added.
const PER_ELEMENT: f64 = 3.0;
/// Instructions per index that is examined.
const PER_INDEX: f64 = 12.0;

/// Parameters, arguments and text of all kernels that read terms.
struct Parts {
    /// Geometry of the indices: strides of the terms, then of the indices.
    outer: Geometry,
    before: String,
    params: Vec<Parameter>,
}

impl Parts {
    /// Returns the parameters for a workspace of `found` bytes of search results, followed by partial sums.
    fn of(spec: &Spec, columns: &Columns, found: u64, partials: u64) -> Parts {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let outer = head_geometry(x, i, i.dims.len());
        let dtype = c_type(x.dtype);
        let partials_at = found.next_multiple_of(16);
        let mut params = vec![
            param("u8* workspace", Arg::Workspace(partials_at + partials)),
            u64_param("partials_at", partials_at),
            param(format!("{dtype}* __restrict__ y"), Arg::Operand(spec.inputs.len() as u8)),
            param(format!("const {dtype}* __restrict__ x"), Arg::Operand(0)),
            param(format!("const {}* __restrict__ i", c_type(i.dtype)), Arg::Operand(1)),
            geometry_param("outer", &outer),
            geometry_param("inner", &columns.geometry),
            u64_param("count", i.elements()),
            u64_param("rows", y.dims[0]),
            u64_param("sy", y.strides[0]),
            u64_param("n", columns.length),
        ];
        let mut weight = "C(1)".to_owned();
        if let Some(w) = spec.inputs.get(2) {
            params.push(param(format!("const {}* __restrict__ w", c_type(w.dtype)), Arg::Operand(2)));
            params.push(geometry_param("outer_w", &head_geometry(w, i, i.dims.len())));
            weight = "load<C>(w[outer_w.offset(p, 0)])".to_owned();
        }
        let is_plain = matches!(&*outer.strides[1], [] | [1]);
        let index = if is_plain { "i[p]" } else { "i[outer.offset(p, 1)]" };
        let compute = c_type(scatter_type(spec));
        let before = format!(
            "#define INDEX(p) {index}\ntypedef {compute} C;\ntypedef {dtype} E;\n#define WEIGHT(p) {weight}\n{GROUPS}"
        );
        Parts { outer, before, params }
    }

    /// Adds an integer parameter.
    fn bind(&mut self, name: &str, value: u64) {
        self.params.push(u64_param(name, value));
    }

    fn launch(&self, name: &str, before: &str, body: &str, grid: u64, threads: u32) -> Launch {
        let body = format!("  C* partials = (C*)(workspace + partials_at);\n{body}");
        launch(name, &format!("{}{before}", self.before), &self.params, &body, grid, threads)
    }
}

/// The division of the work among blocks.
struct Split {
    columns: Columns,
    /// True if the terms of a row are added; otherwise the last one is kept.
    adds: bool,
    /// True if most rows have no term. Then the output is set to zero first, and the last kernel has threads for each index; those of
    /// a row's first index write the row.
    sparse: bool,
    finder: Finder,
    sort: RowSort,
    /// Number of terms of a part of a row.
    window: u64,
    /// Number of parts.
    windows: u64,
    /// Number of threads of the last kernel that share the terms of a row.
    terms: u64,
    /// Number of blocks of the last kernel that share the columns of a row.
    row_chunks: u64,
    /// Number of blocks of the last kernel.
    summers: u64,
}

impl Split {
    /// The cost of each launch; empty if only the cost of all launches together is known.
    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let mut costs = self.finder.launch_costs(spec);
        if let Some(adds) = costs.iter_mut().max_by(|a, b| a.instructions.total_cmp(&b.instructions)) {
            adds.flops = self.flops(spec);
        }
        costs
    }

    /// Number of additions and multiplications by weights.
    fn flops(&self, spec: &Spec) -> f64 {
        (spec.inputs[0].elements() * (u64::from(self.adds) + u64::from(spec.inputs.len() > 2))) as f64
    }

    fn of(spec: &Spec) -> Split {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let mut columns = Columns::of(y, 1, x, i.dims.len());
        let (rows, count) = (y.dims[0], i.elements());
        let adds = spec.attrs.word("combine") == "add";
        let sort = RowSort::of(count, rows);
        let sparse = count <= rows / 2 && y.contiguous() && y.space == Space::Device;
        let finder = Finder::of(spec, &columns, sparse);
        // Groups of threads, one for each row with terms.
        let items = if sparse { count } else { rows };
        let wanted = if adds { (count / rows.max(1) / TERMS_OF_A_THREAD).max(1).next_power_of_two() } else { 1 };
        if wanted > 1 {
            // The threads of a warp share the columns of a row before they share its terms.
            columns.threads = columns.threads.min(WARP);
        }
        let terms = wanted.min(u64::from(BLOCK) / columns.threads);
        let groups = items.div_ceil(u64::from(BLOCK) / (columns.threads * terms)).max(1);
        let window = WINDOW.max(count.isqrt());
        let mut split = Split {
            adds,
            sparse,
            finder,
            sort,
            window,
            windows: if adds && matches!(finder, Finder::Sort(_)) && count >= 2 * window { count / window } else { 0 },
            terms,
            row_chunks: 1,
            summers: groups,
            columns,
        };
        // Several blocks share a row if there are too few rows, or if threads share the terms of a row.
        let all = split.chunks(split.columns.threads);
        split.row_chunks = if terms > 1 { all } else { all.min(RESIDENT_BLOCKS.div_ceil(groups)) };
        split.summers *= split.row_chunks;
        split
    }

    /// Number of blocks per row if this many threads process a pack of columns each.
    fn chunks(&self, threads: u64) -> u64 {
        self.columns.length.div_ceil(threads * self.columns.pack).max(1)
    }

    /// Size in bytes of the search results: sorted positions, or the last position of each row.
    fn found(&self, spec: &Spec) -> u64 {
        match self.finder {
            Finder::Sort(sort) => sort.radix().workspace(),
            Finder::Last => 8 * spec.outputs[0].dims[0],
            _ => 0,
        }
    }
}

/// Kernel text of a function that sets the elements from `low` to before `high` to zero: whole packs, and the elements before and behind
/// them. The caller is number `t` of `threads` threads, which are at least as many as a pack has elements.
const SET_ZERO: &str = r#"
template <typename T> __device__ inline void set_zero(T* low, T* high, u64 t, u64 threads) {
  const T zero = {};
  const u32 OF_PACK = 16 / sizeof(T);
  T* low_pack = low + (0 - (u64)low / sizeof(T)) % OF_PACK;
  T* high_pack = high - (u64)high / sizeof(T) % OF_PACK;
  if (low_pack > high_pack) low_pack = high_pack = high;
#pragma unroll 4
  for (Pack<u32, 4>* pack = (Pack<u32, 4>*)low_pack + t; pack < (Pack<u32, 4>*)high_pack; pack += threads) *pack = {};
  if (t < low_pack - low) low[t] = zero;
  if (t < high - high_pack) high_pack[t] = zero;
}
"#;

/// Kernel text: clears the last position of each row.
const CLEAR: &str = r#"  if (GLOBAL_INDEX < rows) ((P*)workspace)[GLOBAL_INDEX] = 0;
"#;

/// Kernel text: finds the last position of each row, counted from 1. The result does not depend on the order of threads.
const LAST: &str = r#"  if (GLOBAL_INDEX >= count) return;
  i64 row = (i64)INDEX((P)GLOBAL_INDEX);
  if (row >= 0 && (u64)row < rows) atomicMax((P*)workspace + row, (P)GLOBAL_INDEX + 1);
"#;

/// Kernel text: the position of a thread among those that share a row.
const OWN_PLACE: &str = "  u32 lane = threadIdx.x % LANES, own_term = threadIdx.x / LANES % TERMS, group = threadIdx.x / (LANES * TERMS);\n";

/// Kernel text that adds up the terms of a row. `LANES` threads process neighbouring packs of columns, and `TERMS` such groups
/// share the terms: `add_terms` adds a thread's terms to its sum, and `total` combines the sums of the groups.
///
/// `PLACE(l)` is the position of a term. `READ_ROW(row, j)` loads its pack from column `j` on, and `ELEMENTS(raw)` waits for it.
const ADDING: &str = r#"  // Adds the terms from `l` to `end` to a pack of columns.
  auto add_terms = [&](P l, P end, i64 j, C* sum) {
    for (l += own_term; l < end; l += AHEAD * TERMS) {
      Raw raw[AHEAD];
      C weight[AHEAD];
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (end - l <= a * TERMS) continue;
        P p = PLACE(l + a * TERMS);
        raw[a] = READ_ROW(x + outer.offset(p, 0), j);
        weight[a] = WEIGHT(p);
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (end - l <= a * TERMS) continue;
        const Pack<E, V> v = ELEMENTS(raw[a]);
#pragma unroll
        for (int c = 0; c < V; c++) {
          C term = weight[a] * load<C>(v.at[c]);
          sum[c] = ADDS ? sum[c] + term : term;
        }
      }
    }
  };
  // The first group of threads gets the total.
  auto total = [&](C* sum) {
    if (TERMS == 1) return;
    __shared__ C sums[256][V];
#pragma unroll
    for (u32 step = TERMS / 2; step > 0; step /= 2) {
      __syncthreads();
      if (own_term >= step && own_term < 2 * step) {
        for (int c = 0; c < V; c++) sums[threadIdx.x][c] = sum[c];
      }
      __syncthreads();
      if (own_term < step) {
        for (int c = 0; c < V; c++) sum[c] += sums[threadIdx.x + step * LANES][c];
      }
    }
  };
"#;

/// Kernel text: the work items of a block, and the sorted positions.
const TERMS: &str = r#"  u32 chunk = blockIdx.x % CHUNKS;
  const u32 groups = 256 / (LANES * TERMS);
  u64 item = (u64)blockIdx.x / CHUNKS * groups + group;
  const Key* sorted = keys_of(workspace, SIDE);
  const P* order = places_of(workspace, SIDE);
"#;

/// Kernel text: a block adds up the terms of a window if all of them belong to one row.
const PIECES: &str = r#"  P begin = (P)item * WINDOW;
  if (live(workspace) < begin + WINDOW || sorted[begin] != sorted[begin + WINDOW - 1]) return;
  u64 j = ((u64)chunk * LANES + lane) * V;
  C sum[V] = {};
  if (j < n) add_terms(begin, begin + WINDOW, (i64)j, sum);
  total(sum);
  if (j >= n || own_term > 0) return;
  for (int c = 0; c < V; c++) partials[item * n + j + c] = sum[c];
"#;

/// Kernel text: a group of threads writes a row from the last or from all of its terms. Whole windows of terms are taken from the
/// partial sums of the earlier kernel.
const ROWS: &str = r#"#if ADDS || SPARSE
  // Finds the first sorted position whose row is not less.
  P all = live(workspace);
  auto first = [&](u64 row, P from, P to) {
#if LANES * TERMS >= 32 && !SPARSE
    // 32 threads, which have the same row, probe 32 positions at once. All threads of a wavefront of 64 take the same number of steps.
    for (P most = all; most > 0; most = (most + 31) / 32 - 1) {
      P step = (to - from + 31) / 32, probe = from + threadIdx.x % 32 * step;
      u32 less = sum32((u32)(probe < to && sorted[probe] < row));
      P end = from + less * step < to ? from + less * step : to;
      from = less == 0 ? from : from + (less - 1) * step + 1;
      to = less == 0 ? from : end;
    }
    return from;
#endif
    while (from < to) {
      P middle = from + (to - from) / 2;
      if (sorted[middle] < row) from = middle + 1;
      else to = middle;
    }
    return from;
  };
#if SPARSE
  bool makes = item < all && (item == 0 || sorted[item - 1] != sorted[item]);
  u64 row = makes ? sorted[item] : 0;
  P begin = makes ? (P)item : 0, end = makes ? first(row + 1, begin, all) : 0;
  if (!ADDS && begin < end) begin = end - 1;
#else
  P begin = first(item, 0, all), end = first(item + 1, 0, all);
#endif
#else
  P end = item < rows ? ((const P*)workspace)[item] : 0, begin = end > 0 ? end - 1 : 0;
#endif
#if !SPARSE
  u64 row = item;
  bool makes = row < rows;
#endif
  // Range of whole windows among the row's terms.
  P head = end, tail = end;
#if WINDOWS
  P window = (begin + WINDOW - 1) / WINDOW, last = end / WINDOW;
  if (window < last) { head = window * WINDOW; tail = last * WINDOW; }
#endif
  for (u64 base = (u64)chunk * LANES * V; base < n; base += (u64)CHUNKS * LANES * V) {
    u64 j = base + lane * V;
    C sum[V] = {};
    if (j < n) {
      add_terms(begin, head, (i64)j, sum);
#if WINDOWS
#pragma unroll 4
      for (P w = window + own_term; w < last; w += TERMS) {
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] += partials[(u64)w * n + j + c];
      }
#endif
      add_terms(tail, end, (i64)j, sum);
    }
    total(sum);
    if (j >= n || own_term > 0 || !makes) continue;
    Pack<E, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
    put(y + row * sy + COLUMN(j, 0), v);
  }
"#;

/// Returns the number of elements per index of the first dimension.
fn row_length(tensor: &Tensor) -> usize {
    (tensor.elements() / tensor.dims[0]).max(1) as usize
}

/// Returns the type in which `scatter` weights and adds terms.
fn scatter_type(spec: &Spec) -> DType {
    let x = spec.inputs[0].dtype.compute();
    spec.inputs.get(2).map_or(x, |weights| x.promote(weights.dtype.compute()))
}

/// Adds `of` of each term to a zero tensor. Returns the number of terms of each row.
fn scattered(spec: &Spec, inputs: &[&[f64]], output: &mut [f64], of: impl Fn(f64) -> f64) -> Vec<usize> {
    let rows = spec.outputs[0].dims[0];
    let inner = row_length(&spec.outputs[0]);
    let add = spec.attrs.word("combine") == "add";
    let mut terms = vec![0; rows as usize];
    output.fill(0.0);
    for (place, &index) in inputs[1].iter().enumerate() {
        if index < 0.0 || index >= rows as f64 {
            continue;
        }
        let weight = inputs.get(2).map_or(1.0, |weights| weights[place]);
        let row = index as usize;
        terms[row] = if add { terms[row] + 1 } else { 1 };
        for (to, x) in output[row * inner..][..inner].iter_mut().zip(&inputs[0][place * inner..]) {
            let term = of(weight * x);
            *to = if add { *to + term } else { term };
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each way to find terms knows the cost of each of its launches, which together move all operands.
        #[test]
        fn each_launch_has_a_cost(
            count in prop_oneof![1..40u64, 40..5_000u64, 5_000..2_000_000u64],
            rows in prop_oneof![1..40u64, 40..5_000u64, 5_000..200_000u64],
            inner in prop_oneof![1..20u64, 20..2_000u64],
            dtype in prop::sample::select(vec![DType::BF16, DType::F32]),
            combine in prop::sample::select(vec!["add", "set"]),
        ) {
            prop_assume!(count.max(rows) * inner < 1 << 30);
            let inputs = vec![Tensor::packed(dtype, &[count, inner]), Tensor::packed(DType::I32, &[count])];
            let attrs = Attrs::of([("combine", Attr::Word(combine))]);
            let spec = Spec::new(&Scatter, attrs, inputs, vec![Tensor::packed(dtype, &[rows, inner])]);
            let launches = spec.launch();
            let is_known = !matches!(Split::of(&spec).finder, Finder::Sort(_) | Finder::Last);
            prop_assert_eq!(is_known, launches.len() == 1 || spec.launch_costs(launches.len()).is_some());
            let Some(costs) = spec.launch_costs(launches.len()) else { return Ok(()) };
            let all: Cost = costs.iter().copied().sum();
            prop_assert!(all.read.device >= spec.inputs.iter().map(Tensor::bytes).sum());
            prop_assert!(all.written.device >= spec.outputs[0].bytes());
            for (launch, cost) in launches.iter().zip(&costs) {
                let Launch::Kernel(kernel) = launch else { continue };
                prop_assert_eq!(kernel.grid.iter().product::<u64>(), cost.blocks);
                prop_assert!((1..=Cost::WHOLE_UNIT).contains(&cost.share));
                prop_assert!(cost.waits >= 0.0 && cost.exchanges >= 0.0);
            }
        }
    }
}
