//! Kernel text of the soft cap of scores.

use super::*;

/// Instructions of a capped score, and special functions among them: an exponential and a reciprocal.
const PER_CAP: [f64; 2] = [6.0, 2.0];

/// Largest cap of scores in tiles whose error is relative to the cap instead of the score. It stays below the errors of weights with 16 bits.
const MAX_FAST: f64 = 1024.0;

/// True if the error of capped scores is relative to the cap, in kernels that multiply 16-bit types by matrix units.
pub fn is_fast(cap: f64) -> bool {
    cap <= MAX_FAST
}

/// Returns the kernel text with the definitions of a call's soft cap: `SOFTCAP`, which is 1 if it has one, the cap, also for scores that are
/// exponents of 2, and functions of one score. Without a cap, these change nothing.
pub fn definitions(spec: &Spec) -> String {
    let cap = spec.attrs.number(SOFTCAP);
    let (is_capped, functions) = if cap > 0.0 { (1, WITH) } else { (0, WITHOUT) };
    let log2 = cap * std::f64::consts::LOG2_E;
    let is_fast = u32::from(is_fast(cap));
    format!(
        "#define SOFTCAP {is_capped}\n#define CAP {cap:e}\n#define CAP_LOG2 ((f32)({log2:e}))\n#define FAST_CAP {is_fast}\n{functions}"
    )
}

/// Returns the instructions that limit a score, and the special functions among them; zeros without a cap.
pub fn cost(spec: &Spec) -> [f64; 2] {
    if spec.attrs.number(SOFTCAP) > 0.0 { PER_CAP } else { [0.0; 2] }
}

const WITHOUT: &str = r#"
#define CAPPED_EXPONENT(score) (score)
template <typename V> __device__ inline V capped(V score, V cap) { return score; }
template <typename V> __device__ inline V capped_slope(V score, V cap) { return V(1); }
"#;

/// Functions of a cap that is known when the kernel is compiled.
///
/// `CAPPED_EXPONENT` is for scores that are exponents of 2. Unless the cap is large, it takes one exponential and one reciprocal.
const WITH: &str = r#"
#define CAPPED_EXPONENT(score)                                                                                     \
  (FAST_CAP ? CAP_LOG2 - __fdividef(2 * CAP_LOG2, exp2_fast((score) * (f32)(2 / CAP)) + 1) : capped(score, CAP_LOG2))
template <typename V> __device__ inline V capped(V score, V cap) { return cap * f_tanh(score * (V(1) / cap)); }
// Derivative of `capped`, from its result.
template <typename V> __device__ inline V capped_slope(V score, V cap) {
  V ratio = score * (V(1) / cap);
  return V(1) - ratio * ratio;
}
"#;
