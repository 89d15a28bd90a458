//! The kernels of `route`.

use crate::ops::kernels::kernel::{BLOCK, bounds, c_type, i64_param, launch, param, u32_param, u64_param};
use crate::ops::kernels::select::{is_wide, keys};
use crate::ops::{Arg, Launch, Spec};

use super::THREADS_OF_A_ROW;
use super::choice::SelectionRules;

/// Threads of a block that processes as many rows as a word has bits.
pub const BLOCK_OF_ROWS: u32 = 1024;

/// True if weights are divided by a sum over the row.
fn is_divided(spec: &Spec) -> bool {
    spec.attrs.bool("normalize") || spec.attrs.word("scores") == "softmax"
}

/// Workspace per row, in bytes: the largest element and the divisor of the weights, if they are divided.
pub fn row_bytes(spec: &Spec) -> u64 {
    if is_divided(spec) { 2 * spec.inputs[0].dtype.compute().size() } else { 0 }
}

/// Threads of a block that places the rows of an expert, which this many words of bits name.
pub fn placing_threads(words: u64) -> u32 {
    if words > u64::from(BLOCK) / THREADS_OF_A_ROW { BLOCK_OF_ROWS } else { BLOCK }
}

pub fn launches(spec: &Spec) -> Vec<Launch> {
    let probs = &spec.inputs[0];
    let [slots, weights, dropped] = &*spec.outputs else { unreachable!("the signature has three outputs") };
    let (tokens, experts) = (probs.dims[0], probs.dims[1]);
    let words = tokens.div_ceil(THREADS_OF_A_ROW).max(1);
    let choice = SelectionRules::of(spec);
    let bias = spec.inputs.get(1);
    let scores = spec.attrs.word("scores");
    let compute = probs.dtype.compute();
    let dtype = c_type(probs.dtype);
    let common = [
        param("void* workspace", Arg::Workspace(tokens * row_bytes(spec) + experts * words * 4)),
        param(format!("const {dtype}* __restrict__ probs"), Arg::Operand(0)),
        u32_param("tokens", tokens),
        u32_param("experts", experts),
        i64_param("st", probs.strides[0]),
        i64_param("se", probs.strides[1]),
    ];
    // Experts are ranked by their elements, or by scores of the compute type.
    let ranked = if choice.by_score { compute } else { probs.dtype };
    // If there are few keys per thread, they stay in registers; otherwise each round reads the row again.
    let held = experts.div_ceil(THREADS_OF_A_ROW);
    let held = if held <= if is_wide(ranked) { 8 } else { 16 } { held } else { 0 };
    let before = format!(
        "{}typedef {} C;\n#define HELD {held}\n#define {}\n#define BY_SCORE {}\n#define BIASED {}\n#define GROUPS {}\n\
         #define BY_TWO {}\n#define NORMALIZED {}\n#define DIVIDED {}\n{}{SCORES}",
        bounds(BLOCK_OF_ROWS),
        c_type(compute),
        scores.to_uppercase(),
        u32::from(choice.by_score),
        u32::from(bias.is_some()),
        choice.groups,
        u32::from(choice.by_best_two),
        u32::from(spec.attrs.bool("normalize")),
        u32::from(is_divided(spec)),
        keys(ranked),
    );
    let mut params = common.to_vec();
    params.push(u32_param("k", spec.attrs.int("k") as u64));
    params.push(u32_param("group_k", choice.group_k as u64));
    if let Some(bias) = bias {
        params.push(param(format!("const {}* __restrict__ bias", c_type(bias.dtype)), Arg::Operand(1)));
        params.push(i64_param("sb", bias.strides[0]));
    }
    let choose = launch("route_choose", &before, &params, CHOOSE, words, BLOCK_OF_ROWS);
    let first = spec.inputs.len() as u8;
    let strides = vec![0, slots.strides[0], slots.strides[1], weights.strides[0], weights.strides[1]];
    let mut params = common.to_vec();
    params.extend([
        param("i32* __restrict__ slots", Arg::Operand(first)),
        param(format!("{dtype}* __restrict__ weights"), Arg::Operand(first + 1)),
        param("i32* dropped", Arg::Operand(first + 2)),
        u32_param("capacity", spec.attrs.int("capacity") as u64),
        param("const Geometry<1, 4> g", Arg::Words(strides)),
        u64_param("sd", dropped.strides[0]),
    ]);
    vec![choose, launch("route_place", &before, &params, PLACE, experts, placing_threads(words))]
}

/// Kernel text of scores: `raw` of an element is its score; for a softmax, its score times the sum of the row.
const SCORES: &str = r#"
#if defined(SOFTMAX)
__device__ inline C raw(C x, C top) { return f_exp(x - top); }
#elif defined(SIGMOID)
__device__ inline C raw(C x, C) { return f_sigmoid(x); }
#else
__device__ inline C raw(C x, C) { return x; }
#endif
template <typename T> __device__ inline T sum_across(T v) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += SHUFFLE_XOR(v, mask);
  return v;
}
template <typename T> __device__ inline T max_across(T v) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) { T other = SHUFFLE_XOR(v, mask); if (other > v) v = other; }
  return v;
}
"#;

/// Kernel text: 32 threads choose the experts of a row. The workspace has two numbers per row if weights are divided, then bits, one word for each expert and each block of rows.
const CHOOSE: &str = r#"  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, words = gridDim.x;
  C* rows = (C*)workspace;
  u32* bits = (u32*)(rows + DIVIDED * 2 * (u64)tokens) + blockIdx.x;
  for (u32 e = threadIdx.x; e < experts; e += blockDim.x) bits[(u64)e * words] = 0;
  __syncthreads();
  u32 t = blockIdx.x * 32 + warp, n = (experts + 31) / 32;
  if (t >= tokens) return;
  const auto* row = probs + (i64)t * st;
  auto place = [&](u32 r) { return r * 32 + lane; };
  auto value = [&](u32 r) { return load<C>(row[place(r) * se]); };
  C top = 0, whole = 1;
#if defined(SOFTMAX)
  top = -C(INFINITE), whole = 0;
  for (u32 r = 0; r < n; r++) if (place(r) < experts && value(r) > top) top = value(r);
  top = max_across(top);
  for (u32 r = 0; r < n; r++) if (place(r) < experts) whole += raw(value(r), top);
  whole = sum_across(whole);
#endif
#if BY_SCORE
  auto score = [&](u32 r) {
    C s = raw(value(r), top) / whole;
#if BIASED
    s += load<C>(bias[place(r) * sb]);
#endif
    return s;
  };
  auto read = [&](u32 r) { return place(r) < experts ? order(score(r)) : (K)0; };
#else
  auto read = [&](u32 r) { return place(r) < experts ? order(row[place(r) * se]) : (K)0; };
#endif
#if HELD
  K held[HELD];
#pragma unroll
  for (u32 r = 0; r < HELD; r++) held[r] = read(r);
  auto all = [&](u32 r) { return held[r]; };
#else
  auto all = read;
#endif
#if GROUPS > 1
  // Thread g counts the groups that rank before group g.
  u32 size = experts / GROUPS, ahead = 0;
  K mine = 0;
  for (u32 g = 0; g < GROUPS; g++) {
#if BY_TWO
    C best = -C(INFINITE), next = best;
#pragma unroll
    for (u32 r = 0; r < (HELD > 0 ? HELD : n); r++) {
      if (place(r) >= experts || place(r) / size != g) continue;
      C s = score(r);
      if (s > best) { next = best; best = s; } else if (s > next) next = s;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      C other = SHUFFLE_XOR(best, mask), after = SHUFFLE_XOR(next, mask);
      if (other > best) { next = best > after ? best : after; best = other; }
      else if (other > next) next = other;
    }
    K found = order(best + next);
#else
    K found = 0;
#pragma unroll
    for (u32 r = 0; r < (HELD > 0 ? HELD : n); r++) if (place(r) / size == g && all(r) > found) found = all(r);
    found = max_across(found);
#endif
    if (lane == g) mine = found;
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask++) {
    K other = SHUFFLE_XOR(mine, mask);
    ahead += other > mine || (other == mine && (lane ^ mask) < lane);
  }
  u32 open = sum_across(lane < GROUPS && ahead < group_k ? 1u << lane : 0u);
  auto key = [&](u32 r) { return place(r) < experts && open >> place(r) / size & 1 ? all(r) : (K)0; };
#else
  auto key = all;
#endif
  Warp group;
  K least = threshold<K, HELD>(key, n, BITS, k, 0, group);
  u32 last = last_equal<K, HELD>(key, place, n, least, k, group);
  C sum = 0;
#pragma unroll
  for (u32 r = 0; r < (HELD > 0 ? HELD : n); r++) {
    if (key(r) < least || (key(r) == least && ~place(r) < last)) continue;
    atomicOr(bits + (u64)place(r) * words, 1u << warp);
    if (NORMALIZED) sum += raw(value(r), top);
  }
  if (NORMALIZED) whole = sum_across(sum);
  if (DIVIDED && lane == 0) { rows[2 * (u64)t] = top; rows[2 * (u64)t + 1] = whole; }
"#;

const PLACE: &str = r#"  __shared__ u32 chosen[1024], starts[1024];
  u32 lane = threadIdx.x % 32, words = (tokens + 31) / 32, e = blockIdx.x, taken = 0;
  const C* rows = (const C*)workspace;
  const u32* bits = (const u32*)(rows + DIVIDED * 2 * (u64)tokens) + (u64)e * words;
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
      if (DIVIDED) p = raw(p, rows[2 * (u64)t]) / rows[2 * (u64)t + 1];
      else p = raw(p, C(0));
      own_slots[slot * g.strides[1][0]] = (i32)t;
      store<C>(own_weights[slot * g.strides[3][0]], p);
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
