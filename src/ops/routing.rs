//! Which token goes to which expert.

use crate::base::{DType, Dims};

use super::ball::Precision;
use super::kernel::{BLOCK, c_type, source};
use super::top_k::{AHEAD, ahead};
use super::*;

/// `route(probs, k: n, capacity: m)`.
pub struct Route;

impl Operation for Route {
    fn name(&self) -> &'static str {
        "route"
    }

    fn summary(&self) -> &'static str {
        "for each expert the rows that chose it among their top k, in order, -1 where a slot stays empty; \
         what is over capacity is dropped and counted"
    }

    fn category(&self) -> Category {
        Category::Movement
    }

    fn signature(&self) -> &'static Signature {
        &Signature {
            inputs: &[Input::Tensor("probs")],
            outputs: &["slots", "weights", "dropped"],
            options: &[
                OptionSpec {
                    name: "k",
                    kind: OptionType::Int(1, 1024),
                    default: Preset::Required,
                    doc: "experts that each row chooses; of equal ones the earlier",
                },
                OptionSpec {
                    name: "capacity",
                    kind: OptionType::Int(1, 1 << 30),
                    default: Preset::Required,
                    doc: "rows that an expert takes",
                },
                OptionSpec {
                    name: "normalize",
                    kind: OptionType::Bool,
                    default: Preset::Bool(false),
                    doc: "divide the weights of a row by the sum of its k",
                },
            ],
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        let probs = &call.inputs[0];
        call.needs_dtype(probs, probs.tensor.dtype.is_float(), "floating-point probabilities")?;
        let &[tokens, experts] = &*probs.tensor.dims else {
            return Err(OpError::Rank {
                op: "route",
                needs: "two dimensions: rows and experts".to_owned(),
                found: probs.tensor.to_string(),
                at: probs.span.into(),
            });
        };
        let k = call.attrs.int("k") as u64;
        if k > experts {
            let why = format!("it asks for {k} of {experts} experts");
            return Err(call.bad_option("k", why, format!("write 1 to {experts}")));
        }
        if tokens > i32::MAX as u64 {
            return Err(OpError::Rank {
                op: "route",
                needs: "at most 2^31 rows".to_owned(),
                found: probs.tensor.to_string(),
                at: probs.span.into(),
            });
        }
        let slots = Dims::from_slice(&[experts, call.attrs.int("capacity") as u64]).expect("two dimensions");
        let dropped = Dims::from_slice(&[experts]).expect("one dimension");
        Ok(vec![
            call.output(0, DType::I32, slots)?,
            call.output(1, probs.tensor.dtype, slots)?,
            call.output(2, DType::I32, dropped)?,
        ])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let experts = spec.inputs[0].dims[1];
        Cost {
            // Each expert compares its probability with those of all.
            flops: spec.inputs[0].elements() as f64 * experts as f64,
            blocks: experts,
            ..spec.streaming_cost(0.0, 1)
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        routed(spec, inputs[0], outputs);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let spread = routed(spec, inputs[0], outputs);
        let mut tolerances = check::exactly(outputs);
        if spec.attrs.bool("normalize") {
            // The sum of k terms, which may cancel, and the quotient.
            let unit = Precision::of(spec.inputs[0].dtype.compute()).unit();
            let k = spec.attrs.int("k") as f64;
            let radius = |(slot, weight): (&f64, &f64)| match *slot >= 0.0 {
                true => {
                    let lost = (k - 1.0) * unit * spread[*slot as usize];
                    if lost < 0.5 { weight.abs() * (lost / (1.0 - lost) + unit) } else { f64::INFINITY }
                }
                false => 0.0,
            };
            tolerances[1] = Tolerance::Within(outputs[0].iter().zip(&outputs[1]).map(radius).collect());
        }
        tolerances
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let probs = &spec.inputs[0];
        let [slots, weights, dropped] = &*spec.outputs else { unreachable!("the signature has three outputs") };
        let dtype = c_type(probs.dtype);
        let before = format!("typedef {} C;\n{AHEAD}", c_type(probs.dtype.compute()));
        let params = [
            "i32* slots".to_owned(),
            format!("{dtype}* weights"),
            "i32* dropped".into(),
            format!("const {dtype}* probs"),
            "u32 tokens".into(),
            "u32 experts".into(),
            "u32 k".into(),
            "u32 capacity".into(),
            "u32 normalize".into(),
            "const Geometry<2, 3> g".into(),
            "u64 sd".into(),
        ];
        let strides = |tensor: &Tensor| tensor.strides.iter().copied().collect::<Vec<_>>();
        let words = [[0; 2].to_vec(), strides(probs), strides(slots), strides(weights)].concat();
        let number = |value: u64| Arg::U32(value as u32);
        // A block serves one expert and walks the rows in order.
        let body = format!(
            r#"  __shared__ u32 scan[{BLOCK}];
  u32 e = blockIdx.x;
  u32 taken = 0;
  i32* own_slots = slots + e * g.strides[1][0];
  {dtype}* own_weights = weights + e * g.strides[2][0];
  for (u32 base = 0; base < tokens; base += blockDim.x) {{
    u32 t = base + threadIdx.x;
    const {dtype}* row = probs + (u64)(t < tokens ? t : 0) * g.strides[0][0];
    C p = load<C>(row[e * g.strides[0][1]]);
    u32 before = 0;
    for (u32 j = 0; j < experts; j++) before += ahead(load<C>(row[j * g.strides[0][1]]), j, p, e);
    u32 hit = t < tokens && before < k;
    scan[threadIdx.x] = hit;
    for (u32 step = 1; step < blockDim.x; step *= 2) {{
      __syncthreads();
      u32 left = threadIdx.x >= step ? scan[threadIdx.x - step] : 0;
      __syncthreads();
      scan[threadIdx.x] += left;
    }}
    u32 slot = taken + scan[threadIdx.x] - 1;
    if (hit && slot < capacity) {{
      C sum = 1;
      if (normalize) {{
        sum = 0;
        for (u32 j = 0; j < experts; j++) {{
          C q = load<C>(row[j * g.strides[0][1]]);
          u32 place = 0;
          for (u32 l = 0; l < experts; l++) place += ahead(load<C>(row[l * g.strides[0][1]]), l, q, j);
          if (place < k) sum += q;
        }}
      }}
      own_slots[slot * g.strides[1][1]] = (i32)t;
      store<C>(own_weights[slot * g.strides[2][1]], p / sum);
    }}
    __syncthreads();
    taken += scan[blockDim.x - 1];
    __syncthreads();
  }}
  for (u32 slot = taken + threadIdx.x; slot < capacity; slot += blockDim.x) {{
    own_slots[slot * g.strides[1][1]] = -1;
    store<C>(own_weights[slot * g.strides[2][1]], C(0));
  }}
  if (threadIdx.x == 0) dropped[e * sd] = taken > capacity ? (i32)(taken - capacity) : 0;
"#
        );
        vec![Launch::Kernel(Kernel {
            source: source("route", &before, &params, &body),
            grid: probs.dims[1],
            block: BLOCK,
            shared: Shared::Bytes(0),
            args: vec![
                Arg::Operand(1),
                Arg::Operand(2),
                Arg::Operand(3),
                Arg::Operand(0),
                number(probs.dims[0]),
                number(probs.dims[1]),
                number(spec.attrs.int("k") as u64),
                number(spec.attrs.int("capacity") as u64),
                number(u64::from(spec.attrs.bool("normalize"))),
                Arg::Words(words),
                Arg::U64(dropped.strides[0]),
            ],
        })]
    }
}

/// Routes each row; returns for each how many times larger the sizes of its k probabilities are in sum than their sum.
fn routed(spec: &Spec, probs: &[f64], outputs: &mut [Vec<f64>]) -> Vec<f64> {
    let experts = spec.inputs[0].dims[1] as usize;
    let (k, capacity) = (spec.attrs.int("k") as usize, spec.attrs.int("capacity") as usize);
    let normalize = spec.attrs.bool("normalize");
    let [slots, weights, dropped] = outputs else { unreachable!("the signature has three outputs") };
    slots.fill(-1.0);
    weights.fill(0.0);
    let mut taken = vec![0usize; experts];
    let mut spread = Vec::with_capacity(probs.len() / experts);
    for (token, row) in probs.chunks(experts).enumerate() {
        let place = |e: usize| (0..experts).filter(|&j| ahead(row[j], j, row[e], e)).count();
        let chosen: Vec<usize> = (0..experts).filter(|&e| place(e) < k).collect();
        let sum: f64 = if normalize { chosen.iter().map(|&e| row[e]).sum() } else { 1.0 };
        spread.push(chosen.iter().map(|&e| row[e].abs()).sum::<f64>() / sum.abs());
        for e in chosen {
            if taken[e] < capacity {
                slots[e * capacity + taken[e]] = token as f64;
                weights[e * capacity + taken[e]] = row[e] / sum;
            }
            taken[e] += 1;
        }
    }
    for (dropped, taken) in dropped.iter_mut().zip(taken) {
        *dropped = taken.saturating_sub(capacity) as f64;
    }
    spread
}
