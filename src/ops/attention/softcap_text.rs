//! Kernel text of the soft cap of scores.

use super::*;

/// Instructions of a capped score, and special functions among them: those of `tanh`, and two multiplications.
const PER_CAP: [f64; 2] = [17.0, 2.0];

/// Returns the kernel text with the definitions of a call's soft cap: `SOFTCAP`, which is 1 if it has one, the cap, also for scores that are
/// exponents of 2, and functions of one score. Without a cap, these change nothing.
pub fn definitions(spec: &Spec) -> String {
    let cap = spec.attrs.number(SOFTCAP);
    let (is_capped, functions) = if cap > 0.0 { (1, WITH) } else { (0, WITHOUT) };
    format!("#define SOFTCAP {is_capped}\n#define CAP {cap:e}\n#define CAP_LOG2 ((f32)({:e}))\n{functions}", cap * std::f64::consts::LOG2_E)
}

/// Returns the instructions that limit a score, and the special functions among them; zeros without a cap.
pub fn cost(spec: &Spec) -> [f64; 2] {
    if spec.attrs.number(SOFTCAP) > 0.0 { PER_CAP } else { [0.0; 2] }
}

const WITHOUT: &str = r#"
template <typename V> __device__ inline V capped(V score, V cap) { return score; }
template <typename V> __device__ inline V capped_slope(V score, V cap) { return V(1); }
"#;

/// Functions of a cap that is known when the kernel is compiled.
const WITH: &str = r#"
template <typename V> __device__ inline V capped(V score, V cap) { return cap * f_tanh(score * (V(1) / cap)); }
// Derivative of `capped`, from its result.
template <typename V> __device__ inline V capped_slope(V score, V cap) {
  V ratio = score * (V(1) / cap);
  return V(1) - ratio * ratio;
}
"#;
