//! Kernel texts of accumulators, the states of threads that compute a reduction.

use super::*;
use crate::ops::kernels::kernel::EXP_BELOW;

/// Returns kernel text of an accumulator, the state of a thread for one result: `none` is the initial state, `take`
/// adds a term, `join` merges the state of another thread.
pub fn accumulator(function: Function) -> String {
    let plain = |none: &str, joined: &str| {
        format!(
            r#"struct Acc {{ C v; }};
__device__ inline Acc none() {{ Acc a = {{{none}}}; return a; }}
__device__ inline Acc join(Acc a, Acc b) {{ Acc r = {{{joined}}}; return r; }}
__device__ inline Acc shuffled(Acc a, int mask) {{ a.v = SHUFFLE_XOR(a.v, mask); return a; }}
__device__ inline void take(Acc& a, C x, u64) {{ Acc b = {{x}}; a = join(a, b); }}
"#
        )
    };
    // A thread takes its terms in order, so it keeps the first of equal terms. If no term is better than `none`,
    // `settled` sets the position to that of the thread's first term.
    let place = |before: &str, none: &str| {
        format!(
            r#"{better}// Whether the better of two numbers is not the first one.
__device__ inline bool differs(f64 best, f64 a) {{ return best != a && a == a; }}
__device__ inline bool differs(f32 best, f32 a) {{ return float_to_bits(best) != float_to_bits(a); }}
struct Acc {{ C v; u32 place; }};
__device__ inline bool ahead(C x, C y) {{ return x {before} y || (x != x && y == y); }}
__device__ inline Acc none() {{ Acc a = {{{none}, ~0u}}; return a; }}
__device__ inline Acc join(Acc a, Acc b) {{
  return ahead(b.v, a.v) || (!ahead(a.v, b.v) && b.place < a.place) ? b : a;
}}
__device__ inline Acc shuffled(Acc a, int mask) {{
  a.v = SHUFFLE_XOR(a.v, mask);
  a.place = SHUFFLE_XOR(a.place, mask);
  return a;
}}
__device__ inline void take(Acc& a, C x, u64 place) {{
  // Adding zero turns a negative zero, which equals zero, into zero.
  const C best = better(a.v, x + C(0));
  a.place = differs(best, a.v) ? (u32)place : a.place;
  a.v = best;
}}
__device__ inline void settled(Acc& a, u64 first) {{ if (a.place == ~0u) a.place = (u32)first; }}
"#,
            better = better(before),
        )
    };
    match function {
        Function::Sum | Function::Mean => plain("0", "a.v + b.v"),
        Function::Prod => plain("1", "a.v * b.v"),
        Function::Max => better(">") + &plain("-C(INFINITE)", "better(a.v, b.v)"),
        Function::Min => better("<") + &plain("C(INFINITE)", "better(a.v, b.v)"),
        Function::ArgMax => place(">", "-C(INFINITE)"),
        Function::ArgMin => place("<", "C(INFINITE)"),
        Function::LogSumExp => log_sum_exp(false),
        Function::LogSumExpAndSum => log_sum_exp(true),
        Function::Sums(count) => sums(count),
    }
}

/// Returns a function that returns the better of two numbers, of which the first comes `before` the other, or NaN if one is NaN.
fn better(before: &str) -> String {
    let instruction = if before == ">" { "max" } else { "min" };
    format!(
        r#"__device__ inline f64 better(f64 a, f64 b) {{ return a {before} b || a != a ? a : b; }}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ inline f32 better(f32 a, f32 b) {{ f32 c; asm("{instruction}.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }}
#else
__device__ inline f32 better(f32 a, f32 b) {{ return a {before} b || a != a ? a : b; }}
#endif
"#
    )
}

/// Returns an accumulator of several sums, one for each output of the expression.
fn sums(count: u8) -> String {
    format!(
        r#"#define SUMS {count}
#define EACH_SUM _Pragma("unroll") for (int s = 0; s < SUMS; s++)
struct Acc {{ C v[SUMS]; }};
struct Values {{ C at[SUMS]; }};
__device__ inline Acc none() {{ Acc a; EACH_SUM a.v[s] = 0; return a; }}
__device__ inline Acc join(Acc a, Acc b) {{ EACH_SUM a.v[s] += b.v[s]; return a; }}
__device__ inline Acc shuffled(Acc a, int mask) {{ EACH_SUM a.v[s] = SHUFFLE_XOR(a.v[s], mask); return a; }}
__device__ inline void take(Acc& a, const Values& x, u64) {{ EACH_SUM a.v[s] += x.at[s]; }}
"#
    )
}

/// Returns an accumulator of the largest term so far and the sum of exponentials relative to it; with `adds`, also of
/// the sum of the terms. A term equal to the largest counts as 1, because the difference of two infinities is NaN. Exponentials are
/// computed without branches, so that those of several terms overlap.
fn log_sum_exp(adds: bool) -> String {
    let with = |text: &'static str| if adds { text } else { "" };
    format!(
        r#"{EXP_BELOW}struct Acc {{ C most, sum{field}; }};
__device__ inline Acc none() {{ Acc a = {{-C(INFINITE), 0{zero}}}; return a; }}
// Returns the larger value, or the second one if the first is no number.
__device__ inline f32 larger_of(f32 a, f32 b) {{ return fmaxf(a, b); }}
__device__ inline f64 larger_of(f64 a, f64 b) {{ return a > b ? a : b; }}
__device__ inline C relative(C x, C most) {{ return exp_below(x == most ? C(0) : x - most); }}
__device__ inline Acc join(Acc a, Acc b) {{
  const C most = b.most > a.most ? b.most : a.most;
  a.sum = a.sum * relative(a.most, most) + b.sum * relative(b.most, most);
  a.most = most;
{joined}  return a;
}}
__device__ inline Acc shuffled(Acc a, int mask) {{
  a.most = SHUFFLE_XOR(a.most, mask);
  a.sum = SHUFFLE_XOR(a.sum, mask);
{shuffled}  return a;
}}
__device__ inline void take(Acc& a, C x, u64) {{
  const C most = x > a.most ? x : a.most;
  a.sum = a.sum * relative(a.most, most) + relative(x, most);
  a.most = most;
{taken}}}
// Takes several terms, of which those with a bit set are valid. The sum of an accumulator without terms is not scaled.
template <int N> __device__ inline void take(Acc& a, const C (&all)[N], u32 live, bool are_first = false) {{
  C x[N], most = a.most;
#pragma unroll
  for (int v = 0; v < N; v++) {{
    x[v] = live >> v & 1 ? all[v] : -C(INFINITE);
    most = larger_of(x[v], most);
  }}
  if (!are_first) a.sum *= relative(a.most, most);
  a.most = most;
  // The difference of two infinities would be NaN.
  const C origin = -C(INFINITE) < most && most < C(INFINITE) ? most : C(0);
#pragma unroll
  for (int v = 0; v < N; v++) a.sum += exp_below(x[v] - origin);
{each}}}
"#,
        field = with(", total"),
        zero = with(", 0"),
        joined = with("  a.total += b.total;\n"),
        shuffled = with("  a.total = SHUFFLE_XOR(a.total, mask);\n"),
        taken = with("  a.total += x;\n"),
        each = with("#pragma unroll\n  for (int v = 0; v < N; v++) a.total += live >> v & 1 ? all[v] : C(0);\n",),
    )
}
