//! `scatter`: rows that go where indices say, and their sums.

use crate::base::{DType, Dims};

use super::ball::Precision;
use super::kernel::{BLOCK, c_type, geometry_param, geometry_words, source};
use super::movement::{Columns, head_geometry};
use super::sort::RowSort;
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
        call.needs_dtype(i, i.tensor.dtype == DType::I32, "indices of type i32")?;
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
        let (found, of_indices, blocks) = match split.adds {
            true => (split.sort.moved(), split.sort.instructions(), split.sort.blocks()),
            false => {
                let blocks = |count: u64| count.div_ceil(u64::from(BLOCK));
                (
                    split.found,
                    OF_AN_INDEX * indices.elements() as f64,
                    blocks(spec.outputs[0].dims[0]) + blocks(indices.elements()),
                )
            }
        };
        let found = Traffic::of(Space::Device, found);
        Cost {
            flops: (adds + weights) as f64,
            instructions: of_indices + OF_AN_ELEMENT * spec.inputs[0].elements() as f64,
            read: Spec::bytes_of(&spec.inputs) + found,
            written: Spec::bytes_of(&spec.outputs) + found,
            blocks: blocks + split.windows + split.summers,
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

    /// Where terms are added, kernels before the last sort the places of indices by row; where a row has very many terms,
    /// one adds up pieces of it. Else they find the last place of each row. The last kernel has some threads for each row.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let split = Split::of(spec);
        let columns = &split.columns;
        let lead = i.dims.len();
        let outer = head_geometry(x, i, lead);
        let dtype = c_type(x.dtype);
        let mut params = vec![
            "u8* workspace".to_owned(),
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
        ];
        let partials = split.windows * columns.length * scatter_type(spec).size();
        let partials_at = split.found.next_multiple_of(16);
        let mut args = vec![
            Arg::Workspace(partials_at + partials),
            Arg::U64(partials_at),
            Arg::Operand(spec.inputs.len() as u8),
            Arg::Operand(0),
            Arg::Operand(1),
            Arg::Words(geometry_words(&outer)),
            Arg::Words(geometry_words(&columns.geometry)),
            Arg::U64(i.elements()),
            Arg::U64(y.dims[0]),
            Arg::U64(y.strides[0]),
            Arg::U64(columns.length),
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
            "{}typedef {} C;\n#define WINDOW {WINDOW}\n#define ADDS {}\n#define WINDOWS {}\n#define SIDE {}\n\
             #define WEIGHT(p) {weight}\n#define ELEMENT {dtype}\n{}",
            split.sort.text(),
            c_type(scatter_type(spec)),
            u32::from(split.adds),
            u32::from(split.windows > 0),
            split.sort.side(),
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
        let threads = |count: u64| count.div_ceil(u64::from(BLOCK)).max(1);
        let mut launches = match split.adds {
            true => split.sort.launches(i, 1, &outer, 1),
            false => vec![
                launch("scatter_clear", CLEAR, threads(y.dims[0])),
                launch("scatter_last", LAST, threads(i.elements())),
            ],
        };
        if split.windows > 0 {
            launches.push(launch("scatter_pieces", &format!("{TERMS}{PIECES}"), split.windows));
        }
        launches.push(launch("scatter", &format!("{TERMS}{ROWS}"), split.summers));
        launches
    }
}

/// Terms that are added up apart, where all of them go to the same row.
const WINDOW: u64 = 128;

/// Instructions for each element that is added, and for each index where the last of a row is found.
const OF_AN_ELEMENT: f64 = 3.0;
const OF_AN_INDEX: f64 = 12.0;

/// How the work is divided among blocks.
struct Split {
    columns: Columns,
    /// Whether terms of a row are added up; else the last of them stays.
    adds: bool,
    sort: RowSort,
    /// Pieces of rows that are added up apart.
    windows: u64,
    /// Blocks of the last kernel.
    summers: u64,
    /// Bytes of what is known of the indices: the sorted ones, or the last place of each row.
    found: u64,
}

impl Split {
    fn of(spec: &Spec) -> Split {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let columns = Columns::of(y, 1, x, i.dims.len());
        let (rows, count) = (y.dims[0], i.elements());
        let adds = spec.attrs.word("combine") == "add";
        let sort = RowSort::of(count, rows);
        Split {
            adds,
            windows: if adds && count >= 2 * WINDOW { count / WINDOW } else { 0 },
            summers: rows.div_ceil(u64::from(BLOCK) / columns.threads).max(1),
            found: if adds { sort.workspace() } else { 8 * rows },
            sort,
            columns,
        }
    }
}

/// No place is known for any row.
const CLEAR: &str = r#"  if (GLOBAL_INDEX < rows) ((P*)workspace)[GLOBAL_INDEX] = 0;
"#;

/// Finds the last place of each row, counted from 1: the result does not depend on the order of threads.
const LAST: &str = r#"  if (GLOBAL_INDEX >= count) return;
  i64 row = (i64)i[outer.offset((P)GLOBAL_INDEX, 1)];
  if (row >= 0 && (u64)row < rows) atomicMax((P*)workspace + row, (P)GLOBAL_INDEX + 1);
"#;

/// How the terms from `l` to `end` are added to a pack of columns: of sorted places, or of a single place.
const TERMS: &str = r#"  const Row* sorted = rows_of(workspace, SIDE, count);
  const P* order = places_of(workspace, SIDE, count);
  C* partials = (C*)(workspace + partials_at);
  auto add = [&](P l, P end, u64 j, C* sum) {
#pragma unroll 4
    for (; l < end; l++) {
      P p = ADDS ? order[l] : l;
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
  if (live(workspace) < begin + WINDOW || sorted[begin] != sorted[begin + WINDOW - 1]) return;
  for (u64 j = threadIdx.x * V; j < n; j += blockDim.x * V) {
    C sum[V] = {};
    add(begin, begin + WINDOW, j, sum);
    for (int c = 0; c < V; c++) partials[blockIdx.x * n + j + c] = sum[c];
  }
"#;

/// Some threads make a row: of equal places the last, or all, whole windows by what the kernel before has made of them.
const ROWS: &str = r#"  u64 row = (u64)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
  if (row >= rows) return;
#if ADDS
  // The first sorted place whose row is not below.
  auto first = [&](u64 row, P from, P to) {
    while (from < to) {
      P middle = from + (to - from) / 2;
      if (sorted[middle] < row) from = middle + 1;
      else to = middle;
    }
    return from;
  };
  P all = live(workspace), begin = first(row, 0, all), end = first(row + 1, 0, all);
#else
  P end = ((const P*)workspace)[row], begin = end > 0 ? end - 1 : 0;
#endif
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
