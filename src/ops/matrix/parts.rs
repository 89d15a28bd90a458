//! `f32` products with few results of many terms: the library multiplies parts of the depth as a batch, and a generated kernel adds up
//! their sums.
//!
//! A library divides the depth of such a product among fewer blocks than the device has room for.

use super::epilogue::Finish;
use super::tiling::{product_cost, product_time};
use super::{batches, scales};
use crate::base::DType;
use crate::ops::kernels::kernel::{kernel, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::share;
use crate::ops::{Arg, Arithmetic, Cost, Kernel, Launch, Matrix, Space, Spec, Traffic, launch};

/// Numbers of parts of the depth.
const PARTS: [u64; 3] = [16, 32, 64];
/// Minimum number of terms of a part, in which a block multiplies for as long as it takes to begin.
const MIN_TERMS: u64 = 128;
/// Alignment of parts in elements.
const ALIGNMENT: u64 = 4;

/// Threads of a block of the kernel that adds up.
const THREADS: u32 = 128;
/// Number of sums that a thread loads at once.
const AT_ONCE: u64 = 16;
/// Time in ns of launching the kernel and of its first loads.
const LAUNCH: f64 = 3000.0;
/// Bytes that the kernel reads per ns.
const BANDWIDTH: f64 = 2500.0;

/// Description of the launches.
pub const IMPLEMENTATION: &str =
    "the library multiplies parts of the depth as a batch, and a generated kernel adds up their sums";

/// A product in parts.
pub struct Parts {
    /// The products of the parts, a batch whose results lie in the workspace.
    product: launch::Gemm,
}

impl Parts {
    /// Returns the product in parts; `None` if the library computes the given one in less time, or another kernel does.
    pub fn of(spec: &Spec, products: &[launch::Gemm]) -> Option<Parts> {
        let [given] = products else { return None };
        let is_wide = given.arithmetic == Arithmetic::F32 && given.c.dtype == DType::F32;
        let is_one = given.batch == 1 && batches(spec).dims.iter().all(|&size| size == 1);
        let is_near = spec.inputs[..2].iter().chain(&spec.outputs).all(|tensor| tensor.space == Space::Device);
        if !is_wide || !is_one || !is_near || scales(spec).is_some() || given.m.min(given.n) <= 1 {
            return None;
        }
        let parts =
            PARTS.into_iter().filter(|parts| given.k.is_multiple_of(parts * ALIGNMENT) && given.k >= parts * MIN_TERMS);
        let timed = parts.map(|parts| Parts::with(given, parts)).map(|parts| (parts.time(), parts));
        let (time, parts) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (time < product_time(given)).then_some(parts)
    }

    fn with(given: &launch::Gemm, parts: u64) -> Parts {
        let terms = given.k / parts;
        let part = |matrix: &Matrix, is_along: bool| Matrix {
            batch: if is_along { terms } else { terms * matrix.row },
            ..matrix.clone()
        };
        let (a, b) = (part(&given.a, !given.a.transposed), part(&given.b, given.b.transposed));
        let c = Matrix {
            operand: Matrix::WORKSPACE,
            offset: 0,
            row: given.n,
            batch: given.m * given.n,
            align: 16,
            ..given.c.clone()
        };
        let product =
            launch::Gemm { k: terms, batch: parts, a, b, c, accumulate: false, epilogue: None, ..given.clone() };
        Parts { product }
    }

    /// Number of results.
    fn results(&self) -> u64 {
        self.product.m * self.product.n
    }

    /// Bytes of the sums of all parts.
    fn bytes(&self) -> u64 {
        4 * self.results() * self.product.batch
    }

    /// Returns the estimated time in ns of all launches.
    fn time(&self) -> f64 {
        product_time(&self.product) + LAUNCH + self.bytes() as f64 / BANDWIDTH
    }

    /// Returns the cost of each launch.
    pub fn costs(&self, spec: &Spec) -> Vec<Cost> {
        let expression = Finish::of(spec).expression();
        let results = self.results() as f64;
        let join = Cost {
            flops: results * (self.product.batch as f64 + f64::from(expression.flops())),
            instructions: results * (2.0 * self.product.batch as f64 + f64::from(expression.instructions())),
            special: results * f64::from(expression.special()),
            read: Traffic::of(Space::Device, self.bytes()) + Spec::bytes_of(&spec.inputs[2..]),
            written: Spec::bytes_of(&spec.outputs),
            blocks: self.results().div_ceil(u64::from(THREADS)),
            share: share(u64::from(THREADS)),
            waits: self.product.batch.div_ceil(AT_ONCE) as f64,
            ..Cost::default()
        };
        vec![product_cost(&self.product), join]
    }

    /// Returns the cost of all launches. `flops` is the number of operations of the product.
    pub fn cost(&self, spec: &Spec, flops: f64) -> Cost {
        let all: Cost = self.costs(spec).into_iter().sum();
        let (read, written) = (Spec::bytes_of(&spec.inputs), Spec::bytes_of(&spec.outputs));
        let scratch =
            Traffic::of(Space::Device, (all.read + all.written).total().saturating_sub((read + written).total()));
        let finish = Finish::of(spec);
        let each = f64::from(finish.expression().flops()) + if finish.before.is_some() { 1.0 } else { 0.0 };
        Cost { flops: flops + each * self.results() as f64, read, written, scratch, ..all }
    }

    /// Returns the launches: the products, and the kernel that adds up their sums.
    pub fn launches(&self, spec: &Spec) -> Vec<Launch> {
        vec![Launch::Gemm(self.product.clone(), None), Launch::Kernel(self.join(spec))]
    }

    fn join(&self, spec: &Spec) -> Kernel {
        let (finish, c) = (Finish::of(spec), &spec.outputs[0]);
        let mut params = vec![
            param("C* c", Arg::Operand(spec.inputs.len() as u8)),
            param("const C* parts", Arg::Workspace(self.bytes())),
            u32_param("columns", self.product.n),
            u64_param("row", c.strides[c.dims.len() - 2]),
            u64_param("count", self.results()),
        ];
        if let Some(bias) = finish.bias {
            params.push(param("const C* bias", Arg::Operand(bias as u8)));
            params.push(u64_param("bias_step", spec.inputs[bias].strides[0]));
        }
        let before = format!(
            "typedef f32 C;\n{}#undef BOUNDS\n#define BOUNDS __launch_bounds__({THREADS})\n#define PARTS {}\n#define AT_ONCE {AT_ONCE}\n\
             #define ADDS {}\n#define BIAS {}\n",
            finish.function_text(),
            self.product.batch,
            u32::from(finish.before.is_some()),
            u32::from(finish.bias.is_some()),
        );
        let blocks = self.results().div_ceil(u64::from(THREADS));
        kernel("gemm_parts", &before, &params, TEXT, blocks, THREADS)
    }
}

/// Kernel text: each thread adds up the parts of a result, in their order.
const TEXT: &str = r#"  const u64 index = GLOBAL_INDEX;
  if (index >= count) return;
  const u64 column = index % columns;
  C* to = c + index / columns * row + column;
  C sum = 0;
  for (u32 first = 0; first < PARTS; first += AT_ONCE) {
    C some[AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) some[i] = parts[(first + i) * count + index];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) sum += some[i];
  }
#if ADDS
  sum += *to;
#endif
#if BIAS
  *to = finished(sum, bias[column * bias_step]);
#else
  *to = finished(sum);
#endif
"#;

#[cfg(test)]
mod tests {
    use super::super::aligned::tests::product_of;
    use super::super::products;
    use super::*;

    fn call(sizes: [u64; 3], turned: [bool; 2], accumulate: bool) -> Spec {
        product_of(DType::F32, &[], sizes, turned, accumulate)
    }

    /// The parts of the depth follow each other in both factors, whichever way these lie in memory.
    #[test]
    fn deep_products_of_few_tiles_are_multiplied_in_parts() {
        for (turned, accumulate) in [([false, false], true), ([true, true], false), ([false, true], true)] {
            let spec = call([130, 32, 16384], turned, accumulate);
            let found = Parts::of(&spec, &products(&spec)).expect("parts save time");
            let product = &found.product;
            assert_eq!(product.batch * product.k, 16384);
            assert_eq!(product.a.batch, product.k * if turned[0] { 130 } else { 1 });
            assert_eq!(product.b.batch, product.k * if turned[1] { 1 } else { 32 });
            assert!(!product.accumulate && product.uses_workspace());
            let launches = found.launches(&spec);
            assert_eq!(launches.len(), found.costs(&spec).len());
        }
        for sizes in [[130, 32, 16383], [4096, 4096, 4096], [1024, 128, 8192], [130, 32, 512]] {
            let spec = call(sizes, [false, false], true);
            assert!(Parts::of(&spec, &products(&spec)).is_none(), "{sizes:?}");
        }
    }
}
