//! `scatter`: rows that go where indices say, and their sums.

use crate::base::{DType, Dims};

use super::ball::Precision;
use super::kernel::{BLOCK, c_type, geometry_param, geometry_words, index_type, source};
use super::movement::{Columns, head_geometry};
use super::select::GROUPS;
use super::*;

/// `scatter(x, i, w -> y)`.
pub struct Scatter;

impl Operation for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn summary(&self) -> &'static str {
        "into zeros: `y[i]` becomes `x` for each index, the last of equals or their sum, times a weight where one is given"
    }

    fn category(&self) -> Category {
        Category::Movement
    }

    fn signature(&self) -> &'static Signature {
        &Signature {
            inputs: &[Input::Tensor("x"), Input::Tensor("i"), Input::Optional("w")],
            outputs: &["y"],
            options: &[OptionSpec {
                name: "combine",
                kind: OptionType::Word(&["set", "add"]),
                default: Preset::Word("set"),
                doc: "what happens where an index occurs twice",
            }],
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        let (x, i) = (&call.inputs[0].tensor, &call.inputs[1]);
        call.needs_indices(i)?;
        let lead = i.tensor.dims.len();
        if x.dims.len() < lead || x.dims[..lead] != *i.tensor.dims {
            return Err(call.differs(
                0,
                format!("this is {x}"),
                1,
                format!("this is {}", i.tensor),
                "the first dimensions of what is scattered have to be those of the indices",
            ));
        }
        if let Some(w) = call.inputs.get(2) {
            call.needs_dtype(w, w.tensor.dtype.is_float(), "floating-point weights")?;
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
            return Err(OpError::OutputMissing {
                op: "scatter",
                help: "write `-> y`: the indices do not tell how many rows there are",
                at: call.span.into(),
            });
        };
        let sizes: Vec<u64> = output.tensor.dims.first().into_iter().chain(&x.dims[lead..]).copied().collect();
        let dims = Dims::from_slice(&sizes).expect("no more than the input and one");
        Ok(vec![call.output(0, x.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let adds = if spec.attrs.word("combine") == "add" { spec.inputs[0].elements() } else { 0 };
        let weights = if spec.inputs.len() > 2 { spec.inputs[0].elements() } else { 0 };
        let split = Split::of(spec);
        let indices = &spec.inputs[1];
        // Each block of the sort walks all indices twice.
        let walked = 2 * split.sorters * indices.elements();
        let listed = Traffic::of(Space::Device, split.listed);
        Cost {
            flops: (adds + weights) as f64,
            instructions: OF_AN_INDEX * walked as f64 + OF_AN_ELEMENT * spec.inputs[0].elements() as f64,
            read: Spec::bytes_of(&spec.inputs) + listed,
            written: Spec::bytes_of(&spec.outputs) + listed,
            reread: Traffic::of(indices.space, split.sorters.saturating_sub(1) * indices.bytes()),
            blocks: split.sorters + split.windows + split.summers,
            share: 4,
            ..Cost::default()
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        scattered(spec, inputs, &mut outputs[0], |x| x);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let terms = scattered(spec, inputs, &mut outputs[0], |x| x);
        let mut sizes = vec![0.0; outputs[0].len()];
        scattered(spec, inputs, &mut sizes, f64::abs);
        let unit = Precision::of(scatter_type(spec)).unit();
        // Each term is rounded when it is weighed, and the sum once for each term but the first.
        let weighed = usize::from(spec.inputs.len() > 2);
        let rows = sizes.chunks(row_length(&spec.outputs[0])).zip(terms);
        let radii = rows.flat_map(|(row, terms)| {
            let roundings = terms.saturating_sub(1) + weighed;
            row.iter().map(move |size| roundings as f64 * unit * size)
        });
        vec![Tolerance::Within(radii.collect())]
    }

    /// The first kernel sorts the places of indices by row, in their order. The last has some threads for each row, which
    /// add up what goes there; where a row has very many terms, a kernel before has added up pieces of it.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let split = Split::of(spec);
        let columns = &split.columns;
        let lead = i.dims.len();
        let outer = head_geometry(x, i, lead);
        let dtype = c_type(x.dtype);
        let mut params = vec![
            "void* workspace".to_owned(),
            "u64 partials_at".into(),
            format!("{dtype}* __restrict__ y"),
            format!("const {dtype}* __restrict__ x"),
            format!("const {}* __restrict__ i", c_type(i.dtype)),
            geometry_param(&outer).replace(" g", " outer"),
            geometry_param(&columns.geometry).replace(" g", " inner"),
            "u64 count".into(),
            "u64 rows".into(),
            "u64 sy".into(),
            "u64 n".into(),
            "u32 own_rows".into(),
        ];
        let partials = split.windows * columns.length * scatter_type(spec).size();
        let mut args = vec![
            Arg::Workspace(split.listed + partials),
            Arg::U64(split.listed),
            Arg::Operand(spec.inputs.len() as u8),
            Arg::Operand(0),
            Arg::Operand(1),
            Arg::Words(geometry_words(&outer)),
            Arg::Words(geometry_words(&columns.geometry)),
            Arg::U64(i.elements()),
            Arg::U64(y.dims[0]),
            Arg::U64(y.strides[0]),
            Arg::U64(columns.length),
            Arg::U32(split.own_rows as u32),
        ];
        let mut weight = "C(1)".to_owned();
        if let Some(w) = spec.inputs.get(2) {
            let geometry = head_geometry(w, i, lead);
            params.push(format!("const {}* __restrict__ w", c_type(w.dtype)));
            params.push(geometry_param(&geometry).replace(" g", " outer_w"));
            args.push(Arg::Operand(2));
            args.push(Arg::Words(geometry_words(&geometry)));
            weight = "load<C>(w[outer_w.offset(p, 0)])".to_owned();
        }
        let before = format!(
            "typedef {} C;\ntypedef {} P;\n#define WINDOW {WINDOW}\n#define ADDS {}\n#define WINDOWS {}\n\
             #define WEIGHT(p) {weight}\n#define ELEMENT {dtype}\n#define ROOM {}\n{GROUPS}{}",
            c_type(scatter_type(spec)),
            index_type(i.elements()),
            u32::from(spec.attrs.word("combine") == "add"),
            u32::from(split.windows > 0),
            u64::from(BLOCK) * split.most_rows,
            columns.text(),
        );
        let launch = |name, body: &str, grid| {
            Launch::Kernel(Kernel {
                source: source(name, &before, &params, body),
                grid,
                block: BLOCK,
                shared: Shared::Bytes(0),
                args: args.clone(),
            })
        };
        let mut launches = vec![launch("scatter_sort", SORT, split.sorters)];
        if split.windows > 0 {
            launches.push(launch("scatter_pieces", &format!("{LISTS}{PIECES}"), split.windows));
        }
        launches.push(launch("scatter", &format!("{LISTS}{ROWS}"), split.summers));
        launches
    }
}

/// Terms that are added up apart, where all of them go to the same row.
const WINDOW: u64 = 128;

/// Blocks that sort, where each may have several rows: as many as keep a large device busy.
const SORTERS: u64 = 132;

/// Bytes of shared memory for the counters of a block that sorts.
const COUNTERS: u64 = 32 << 10;

/// Instructions for each index that is looked at, and for each element that is added.
const OF_AN_INDEX: f64 = 12.0;
const OF_AN_ELEMENT: f64 = 3.0;

/// How the work is divided among blocks.
struct Split {
    columns: Columns,
    /// Rows of a block that sorts, and the most that it can have.
    own_rows: u64,
    most_rows: u64,
    /// Blocks of each kernel.
    sorters: u64,
    windows: u64,
    summers: u64,
    /// Bytes of the lists: for each row where its list begins, and for each place of the lists an index.
    listed: u64,
}

impl Split {
    fn of(spec: &Spec) -> Split {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let columns = Columns::of(y, 1, x, i.dims.len());
        let (rows, count) = (y.dims[0], i.elements());
        let place = if index_type(count) == "u32" { 4 } else { 8 };
        let most_rows = COUNTERS / (place * u64::from(BLOCK));
        let own_rows = rows.div_ceil(SORTERS).clamp(1, most_rows);
        let adds = spec.attrs.word("combine") == "add";
        Split {
            own_rows,
            most_rows,
            sorters: rows.div_ceil(own_rows).max(1),
            windows: if adds && count >= 2 * WINDOW { count / WINDOW } else { 0 },
            summers: rows.div_ceil(u64::from(BLOCK) / columns.threads).max(1),
            listed: (place * (rows + 1 + count)).next_multiple_of(16),
            columns,
        }
    }
}

/// A block lists the places of indices that go to its rows. A thread counts those among neighbouring indices; the sums
/// over the threads before tell it where in the lists to put them, so that their order stays.
const SORT: &str = r#"  __shared__ P counts[ROOM];
  __shared__ P totals[ROOM / 256];
  P* starts = (P*)workspace;
  P* order = starts + rows + 1;
  u32 lane = threadIdx.x % 32;
  i64 first = (i64)blockIdx.x * own_rows;
  P each = (P)((count + 255) / 256), from = each * threadIdx.x;
  if (from > count) from = (P)count;
  P to = count - from < each ? (P)count : from + each;
  for (u32 r = 0; r < own_rows; r++) counts[r * 256 + threadIdx.x] = 0;
  P below = 0;
#pragma unroll 4
  for (P p = from; p < to; p++) {
    i64 row = i[outer.offset(p, 1)];
    below += row >= 0 && row < first;
    u64 own = (u64)(row - first);
    if (own < own_rows) counts[own * 256 + threadIdx.x]++;
  }
  __syncthreads();
  // All threads of a wave, which may be 64, go round as often.
  for (u32 base = 0; base < own_rows; base += 8) {
    u32 r = base + threadIdx.x / 32;
    bool live = r < own_rows;
    P all = 0;
    for (u32 t = lane; t < 256; t += 32) {
      P sum = live ? counts[r * 256 + t] : 0, left = scan32(sum);
      if (live) counts[r * 256 + t] = all + left;
      all += sum;
    }
    if (live && lane == 0) totals[r] = all;
  }
  Block block = {0};
  P start;
  block.before(below, start);
  for (u32 r = 0; r < own_rows; r++) {
    if (threadIdx.x == 0 && first + r < (i64)rows) starts[first + r] = start;
    counts[r * 256 + threadIdx.x] += start;
    start += totals[r];
  }
  if (threadIdx.x == 0 && first + own_rows >= (i64)rows && first <= (i64)rows) {
    P end = start;
    for (u32 r = 0; r < own_rows; r++) if (first + r >= (i64)rows) end -= totals[r];
    starts[rows] = end;
  }
#pragma unroll 4
  for (P p = from; p < to; p++) {
    u64 own = (u64)((i64)i[outer.offset(p, 1)] - first);
    if (own < own_rows) order[counts[own * 256 + threadIdx.x]++] = p;
  }
"#;

/// What the lists are, and how the terms from `l` to `end` are added to a pack of columns.
const LISTS: &str = r#"  const P* starts = (const P*)workspace;
  const P* order = starts + rows + 1;
  C* partials = (C*)((u8*)workspace + partials_at);
  auto add = [&](P l, P end, u64 j, C* sum) {
#pragma unroll 4
    for (; l < end; l++) {
      P p = order[l];
      auto v = fetch(x + outer.offset(p, 0) + COLUMN(j, 1));
      C weight = WEIGHT(p);
#pragma unroll
      for (int c = 0; c < V; c++) {
        C term = weight * load<C>(v.at[c]);
        sum[c] = ADDS ? sum[c] + term : term;
      }
    }
  };
"#;

/// A block adds up as many terms as a window has, if all of them go to the same row.
const PIECES: &str = r#"  P begin = (P)blockIdx.x * WINDOW;
  if (starts[rows] < begin + WINDOW) return;
  if (i[outer.offset(order[begin], 1)] != i[outer.offset(order[begin + WINDOW - 1], 1)]) return;
  for (u64 j = threadIdx.x * V; j < n; j += blockDim.x * V) {
    C sum[V] = {};
    add(begin, begin + WINDOW, j, sum);
    for (int c = 0; c < V; c++) partials[blockIdx.x * n + j + c] = sum[c];
  }
"#;

/// Some threads make a row: of equal places the last, or all, whole windows by what the kernel before has made of them.
const ROWS: &str = r#"  u64 row = (u64)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
  if (row >= rows) return;
  P begin = starts[row], end = starts[row + 1];
  if (!ADDS && begin < end) begin = end - 1;
  for (u64 j = threadIdx.x % LANES * V; j < n; j += LANES * V) {
    C sum[V] = {};
#if WINDOWS
    for (P l = begin; l < end;) {
      P next = l / WINDOW * WINDOW + WINDOW;
      if (next - l == WINDOW && end - l >= WINDOW) {
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] += partials[l / WINDOW * n + j + c];
      } else {
        add(l, next < end ? next : end, j, sum);
      }
      l = next;
    }
#else
    add(begin, end, j, sum);
#endif
    Pack<ELEMENT, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
    put(y + row * sy + COLUMN(j, 0), v);
  }
"#;

/// The elements behind one index of the first dimension.
fn row_length(tensor: &Tensor) -> usize {
    (tensor.elements() / tensor.dims[0]).max(1) as usize
}

/// The type that `scatter` weighs and adds in.
fn scatter_type(spec: &Spec) -> DType {
    let x = spec.inputs[0].dtype.compute();
    spec.inputs.get(2).map_or(x, |weights| x.promote(weights.dtype.compute()))
}

/// Scatters what `of` makes of each term into zeros; returns how many terms each row has got.
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
