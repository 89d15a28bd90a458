//! `route`: the assignment of tokens to experts.

use crate::base::{DType, Dims};

use super::ball::Precision;
use super::kernel::{BLOCK, bounds, c_type, source};
use super::select::{is_wide, keys};
use super::top_k::ahead;
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
        const {
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
                    OptionSpec::bool("normalize", false, "divide the weights of a row by the sum of its k"),
                ],
            }
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
        let (tokens, experts) = (spec.inputs[0].dims[0], spec.inputs[0].dims[1]);
        // Each thread of a row finds the keys of its elements, then counts them once for each bit of the threshold.
        let each = (experts.div_ceil(TOGETHER) * 2 + 20) * ROUNDS;
        let words = tokens.div_ceil(TOGETHER);
        let workspace = Traffic::of(Space::Device, experts * words * 4);
        Cost {
            instructions: (tokens * TOGETHER * each) as f64,
            read: Spec::bytes_of(&spec.inputs) + workspace,
            written: Spec::bytes_of(&spec.outputs) + workspace,
            blocks: words + experts,
            share: 16,
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

    /// The first kernel has 32 threads choose a row's experts, and sets a bit for each row and expert. The second has a
    /// block for each expert, which finds the slots of its rows by counting bits.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let probs = &spec.inputs[0];
        let [slots, weights, dropped] = &*spec.outputs else { unreachable!("the signature has three outputs") };
        let (tokens, experts) = (probs.dims[0], probs.dims[1]);
        let words = tokens.div_ceil(TOGETHER).max(1);
        let compute = probs.dtype.compute();
        let dtype = c_type(probs.dtype);
        let workspace = Arg::Workspace(tokens * compute.size() + experts * words * 4);
        let number = |value: u64| Arg::U32(value as u32);
        let flag = |name| number(u64::from(spec.attrs.bool(name)));
        let common = [
            "void* workspace".to_owned(),
            format!("const {dtype}* __restrict__ probs"),
            "u32 tokens".into(),
            "u32 experts".into(),
            "u32 normalize".into(),
            "i64 st".into(),
            "i64 se".into(),
        ];
        let own = [
            workspace,
            Arg::Operand(0),
            number(tokens),
            number(experts),
            flag("normalize"),
            Arg::U64(probs.strides[0]),
            Arg::U64(probs.strides[1]),
        ];
        // Few enough keys stay in registers; else each round reads the row again.
        let held = experts.div_ceil(TOGETHER);
        let held = if held <= if is_wide(probs.dtype) { 8 } else { 16 } { held } else { 0 };
        let before = format!(
            "{}typedef {} C;\n#define HELD {held}\n{}",
            bounds(BLOCK_OF_ROWS),
            c_type(compute),
            keys(probs.dtype),
        );
        let choose = Kernel {
            source: source("route_choose", &before, &[&common[..], &["u32 k".to_owned()]].concat(), CHOOSE),
            grid: Kernel::along_x(words),
            block: Kernel::along_x(BLOCK_OF_ROWS),
            shared: Shared::Bytes(0),
            args: [&own[..], &[number(spec.attrs.int("k") as u64)]].concat(),
        };
        let outputs = [
            "i32* __restrict__ slots".to_owned(),
            format!("{dtype}* __restrict__ weights"),
            "i32* dropped".into(),
            "u32 capacity".into(),
            "const Geometry<1, 4> g".into(),
            "u64 sd".into(),
        ];
        let strides = [slots.strides[0], slots.strides[1], weights.strides[0], weights.strides[1]];
        let results = [
            Arg::Operand(1),
            Arg::Operand(2),
            Arg::Operand(3),
            number(spec.attrs.int("capacity") as u64),
            Arg::Words([&[0], &strides[..]].concat()),
            Arg::U64(dropped.strides[0]),
        ];
        let place = Kernel {
            source: source("route_place", &before, &[&common[..], &outputs].concat(), PLACE),
            grid: Kernel::along_x(experts),
            block: Kernel::along_x(if words > u64::from(BLOCK) / TOGETHER { BLOCK_OF_ROWS } else { BLOCK }),
            shared: Shared::Bytes(0),
            args: [&own[..], &results].concat(),
        };
        vec![Launch::Kernel(choose), Launch::Kernel(place)]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::route(rule)
    }
}

/// Threads that choose a row's experts, and rows that share a word of bits.
const TOGETHER: u64 = 32;

/// Threads of a block that serves as many rows as a word has bits.
const BLOCK_OF_ROWS: u32 = 1024;

/// Bits of the threshold that are looked at until it separates `k` random probabilities from the others, for the cost.
const ROUNDS: u64 = 20;

/// The workspace holds the sum of each row, then bits: for each expert a word for each block of rows.
const CHOOSE: &str = r#"  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, words = gridDim.x;
  C* sums = (C*)workspace;
  u32* bits = (u32*)(sums + tokens) + blockIdx.x;
  for (u32 e = threadIdx.x; e < experts; e += blockDim.x) bits[(u64)e * words] = 0;
  __syncthreads();
  u32 t = blockIdx.x * 32 + warp, n = (experts + 31) / 32;
  if (t >= tokens) return;
  const auto* row = probs + (i64)t * st;
  auto place = [&](u32 r) { return r * 32 + lane; };
  auto read = [&](u32 r) { return place(r) < experts ? order(row[place(r) * se]) : (K)0; };
#if HELD
  K held[HELD];
#pragma unroll
  for (u32 r = 0; r < HELD; r++) held[r] = read(r);
  auto key = [&](u32 r) { return held[r]; };
#else
  auto key = read;
#endif
  Warp group;
  K least = threshold<K, HELD>(key, n, BITS, k, 0, group);
  u32 last = last_equal<K, HELD>(key, place, n, least, k, group);
  C sum = 0;
#pragma unroll
  for (u32 r = 0; r < (HELD > 0 ? HELD : n); r++) {
    if (key(r) < least || (key(r) == least && ~place(r) < last)) continue;
    atomicOr(bits + (u64)place(r) * words, 1u << warp);
    if (normalize) sum += load<C>(row[place(r) * se]);
  }
  if (!normalize) return;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += SHUFFLE_XOR(sum, mask);
  if (lane == 0) sums[t] = sum;
"#;

const PLACE: &str = r#"  __shared__ u32 chosen[1024], starts[1024];
  u32 lane = threadIdx.x % 32, words = (tokens + 31) / 32, e = blockIdx.x, taken = 0;
  const C* sums = (const C*)workspace;
  const u32* bits = (const u32*)(sums + tokens) + (u64)e * words;
  auto* own_slots = slots + e * g.strides[0][0];
  auto* own_weights = weights + e * g.strides[2][0];
  Block block = {0};
  for (u32 base = 0; base < words; base += blockDim.x) {
    u32 w = base + threadIdx.x, found;
    u32 word = w < words ? bits[w] : 0;
    chosen[threadIdx.x] = word;
    starts[threadIdx.x] = taken + block.before((u32)__popc(word), found);
    __syncthreads();
    for (u32 i = threadIdx.x / 32; i < blockDim.x && base + i < words; i += blockDim.x / 32) {
      u32 slot = starts[i] + __popc(chosen[i] & ((1u << lane) - 1));
      if ((chosen[i] >> lane & 1) == 0 || slot >= capacity) continue;
      u32 t = (base + i) * 32 + lane;
      C p = load<C>(probs[(i64)t * st + e * se]);
      own_slots[slot * g.strides[1][0]] = (i32)t;
      store<C>(own_weights[slot * g.strides[3][0]], normalize ? p / sums[t] : p);
    }
    taken += found;
    __syncthreads();
  }
  for (u32 slot = taken + threadIdx.x; slot < capacity; slot += blockDim.x) {
    own_slots[slot * g.strides[1][0]] = -1;
    store<C>(own_weights[slot * g.strides[3][0]], C(0));
  }
  if (threadIdx.x == 0) dropped[e * sd] = taken > capacity ? (i32)(taken - capacity) : 0;
"#;

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
