//! Operations that move elements about on the chip.

use crate::base::{DType, Dims};

use super::ball::Precision;
use super::kernel::{BLOCK, c_type, geometry_param, geometry_words, index_type, source};
use super::layout::collapse;
use super::*;

/// The dimensions behind the first `skip`, with the strides of two tensors that have them last.
fn tail_geometry(a: &Tensor, skip_a: usize, b: &Tensor, skip_b: usize) -> Geometry {
    let tail = |dims: &Dims, skip: usize| Dims::from_slice(&dims[skip..]).unwrap_or_default();
    collapse(tail(&a.dims, skip_a), &[tail(&a.strides, skip_a), tail(&b.strides, skip_b)])
}

/// The first `count` dimensions, with the strides of two tensors that have them first.
fn head_geometry(a: &Tensor, b: &Tensor, count: usize) -> Geometry {
    let head = |dims: &Dims| Dims::from_slice(&dims[..count]).unwrap_or_default();
    collapse(head(&a.dims), &[head(&a.strides), head(&b.strides)])
}

/// `gather(x, i)`.
pub struct Gather;

impl Operation for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn summary(&self) -> &'static str {
        "`x[i]` for each index; an index outside of `x`, such as -1, gives zeros"
    }

    fn category(&self) -> Category {
        Category::Movement
    }

    fn signature(&self) -> &'static Signature {
        &Signature { inputs: &[Input::Tensor("x"), Input::Tensor("i")], outputs: &["y"], options: &[] }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_rank(0, 1, "whose first is picked from")?;
        let (x, i) = (&call.inputs[0].tensor, &call.inputs[1]);
        call.needs_dtype(i, i.tensor.dtype == DType::I32, "indices of type i32")?;
        let sizes: Vec<u64> = i.tensor.dims.iter().chain(&x.dims[1..]).copied().collect();
        let dims = Dims::from_slice(&sizes).ok_or_else(|| OpError::Rank {
            op: "gather",
            needs: format!("a result of at most {} dimensions", Dims::MAX),
            found: x.to_string(),
            at: call.span.into(),
        })?;
        Ok(vec![call.output(0, x.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let rows = Traffic::of(spec.inputs[0].space, spec.outputs[0].bytes());
        Cost {
            read: rows + Spec::bytes_of(&spec.inputs[1..]),
            written: Spec::bytes_of(&spec.outputs),
            blocks: spec.inputs[1].elements().max(1),
            share: 4,
            ..Cost::default()
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let rows = spec.inputs[0].dims[0];
        let inner = (spec.inputs[0].elements() / rows) as usize;
        for (out, &index) in outputs[0].chunks_mut(inner.max(1)).zip(inputs[1]) {
            if index >= 0.0 && index < rows as f64 {
                out.copy_from_slice(&inputs[0][index as usize * inner..][..inner]);
            } else {
                out.fill(0.0);
            }
        }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let lead = i.dims.len();
        let inner = tail_geometry(x, 1, y, lead);
        let outer = head_geometry(y, i, lead);
        let length: u64 = x.dims[1..].iter().product();
        let dtype = c_type(x.dtype);
        // Whole packs where rows lie without gaps and begin at multiples of 16 bytes.
        let lane = 16 / x.dtype.size();
        let even = |tensor: &Tensor, axes: usize| tensor.strides[..axes].iter().all(|s| s.is_multiple_of(lane));
        let flat = inner.strides.iter().all(|strides| matches!(&**strides, [] | [1]));
        let packed =
            flat && x.align == 16 && y.align == 16 && even(x, 1) && even(y, lead) && length.is_multiple_of(lane);
        let (element, step) = if packed { (format!("Pack<{dtype}, {lane}>"), lane) } else { (dtype.to_owned(), 1) };
        let params = [
            format!("{dtype}* y"),
            format!("const {dtype}* x"),
            "const i32* i".into(),
            geometry_param(&outer).replace(" g", " outer"),
            geometry_param(&inner).replace(" g", " inner"),
            "u64 rows".into(),
            "u64 sx".into(),
            "u64 n".into(),
        ];
        let (count, length_index) = (index_type(i.elements()), index_type(length));
        let place = |which: usize| {
            if flat { "j".to_owned() } else { format!("inner.offset(({length_index})j, {which})") }
        };
        let body = format!(
            r#"  {count} which = ({count})blockIdx.x;
  i64 index = i[outer.offset(which, 1)];
  {dtype}* to = y + outer.offset(which, 0);
  bool inside = index >= 0 && (u64)index < rows;
  const {dtype}* from = x + (inside ? index : 0) * (i64)sx;
  for (u64 j = threadIdx.x * {step}; j < n; j += blockDim.x * {step}) {{
    {element} v = {{}};
    if (inside) v = *(const {element}*)(from + {});
    *({element}*)(to + {}) = v;
  }}
"#,
            place(0),
            place(1)
        );
        vec![Launch::Kernel(Kernel {
            source: source("gather", "", &params, &body),
            grid: i.elements().max(1),
            block: BLOCK,
            shared: Shared::Bytes(0),
            args: vec![
                Arg::Operand(2),
                Arg::Operand(0),
                Arg::Operand(1),
                Arg::Words(geometry_words(&outer)),
                Arg::Words(geometry_words(&inner)),
                Arg::U64(x.dims[0]),
                Arg::U64(x.strides[0]),
                Arg::U64(length),
            ],
        })]
    }
}

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
        Cost {
            flops: (adds + weights) as f64,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            blocks: spec.outputs[0].dims[0].max(1),
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

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let weights = spec.inputs.get(2);
        let lead = i.dims.len();
        let inner = tail_geometry(y, 1, x, lead);
        let outer = head_geometry(x, i, lead);
        let outer_weights = weights.map(|w| head_geometry(w, i, lead));
        let length: u64 = y.dims[1..].iter().product();
        let compute = scatter_type(spec);
        let (dtype, count, length_index) = (c_type(x.dtype), index_type(i.elements()), index_type(length));
        let mut params = vec![
            format!("{dtype}* y"),
            format!("const {dtype}* x"),
            "const i32* i".to_owned(),
            geometry_param(&outer).replace(" g", " outer"),
            geometry_param(&inner).replace(" g", " inner"),
            "u64 count".into(),
            "u64 sy".into(),
            "u64 n".into(),
        ];
        let mut args = vec![
            Arg::Operand(spec.inputs.len() as u8),
            Arg::Operand(0),
            Arg::Operand(1),
            Arg::Words(geometry_words(&outer)),
            Arg::Words(geometry_words(&inner)),
            Arg::U64(i.elements()),
            Arg::U64(y.strides[0]),
            Arg::U64(length),
        ];
        let mut weight = "C(1)".to_owned();
        if let (Some(w), Some(geometry)) = (weights, &outer_weights) {
            params.push(format!("const {}* w", c_type(w.dtype)));
            params.push(geometry_param(geometry).replace(" g", " outer_w"));
            args.push(Arg::Operand(2));
            args.push(Arg::Words(geometry_words(geometry)));
            weight = format!("load<C>(w[outer_w.offset(({count})p, 0)])");
        }
        let add = spec.attrs.word("combine") == "add";
        let combine = if add { "sum +=" } else { "sum =" };
        // A block makes one row. It first lists the places that go there, in their order, so that sums come out the same
        // in every run; a row with more of them than the list holds looks through all indices for each element.
        let before = format!("typedef {} C;\n#define ROOM 1024\n", c_type(compute));
        let first = if add { "0" } else { "(listed > 0 ? listed - 1 : 0)" };
        let body = format!(
            r#"  __shared__ u32 scan[{BLOCK}];
  __shared__ u64 list[ROOM];
  i64 row = (i64)blockIdx.x;
  u64 listed = 0;
  for (u64 base = 0; base < count; base += blockDim.x) {{
    u64 p = base + threadIdx.x;
    u32 hit = p < count && (i64)i[outer.offset(({count})p, 1)] == row;
    if (!__syncthreads_or((int)hit)) continue;
    scan[threadIdx.x] = hit;
    for (u32 step = 1; step < blockDim.x; step *= 2) {{
      __syncthreads();
      u32 left = threadIdx.x >= step ? scan[threadIdx.x - step] : 0;
      __syncthreads();
      scan[threadIdx.x] += left;
    }}
    u64 slot = listed + scan[threadIdx.x] - 1;
    if (hit && slot < ROOM) list[slot] = p;
    __syncthreads();
    listed += scan[blockDim.x - 1];
    __syncthreads();
  }}
  __syncthreads();
  {dtype}* to = y + row * (i64)sy;
  for (u64 j = threadIdx.x; j < n; j += blockDim.x) {{
    i64 column = inner.offset(({length_index})j, 1);
    C sum = 0;
    if (listed <= ROOM) {{
      for (u64 l = {first}; l < listed; l++) {{
        u64 p = list[l];
        {combine} {weight} * load<C>(x[outer.offset(({count})p, 0) + column]);
      }}
    }} else {{
      for (u64 p = 0; p < count; p++)
        if ((i64)i[outer.offset(({count})p, 1)] == row) {combine} {weight} * load<C>(x[outer.offset(({count})p, 0) + column]);
    }}
    store<C>(to[inner.offset(({length_index})j, 0)], sum);
  }}
"#
        );
        vec![Launch::Kernel(Kernel {
            source: source("scatter", &before, &params, &body),
            grid: y.dims[0].max(1),
            block: BLOCK,
            shared: Shared::Bytes(0),
            args,
        })]
    }
}

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
