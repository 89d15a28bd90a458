//! Internal operations that verify order at run time: producers increment counters, and consumers compare them before
//! they start. No file can name them.

use super::kernels::kernel::{launch, param, u32_param};
use super::*;

/// Duration of an increment on a device, so that a consumer that does not wait probably starts too early. On the CPU
/// it takes no time.
const LATE: Nanos = Nanos(5_000);

/// The element type of all counters.
pub const COUNTER: DType = DType::I32;

fn spec(operation: &'static dyn Operation, attrs: Attrs, inputs: usize) -> Spec {
    let counter = Tensor { align: 4, ..Tensor::packed(COUNTER, &[1]) };
    Spec::new(operation, attrs, vec![counter; inputs], vec![counter])
}

/// Increments a counter: an operation has completed once more.
pub fn mark() -> Spec {
    spec(&WitnessMark, Attrs::default(), 0)
}

/// Increments the last of three counters, unless the first is ahead of the second, or less than `rounds` behind it:
/// the awaited operation has completed, and the waiting one has not started.
pub fn check(rounds: i64) -> Spec {
    spec(&WitnessCheck, Attrs::of([("rounds", Attr::Int(rounds))]), 2)
}

struct WitnessMark;

impl Operation for WitnessMark {
    signature! {
        name: "witness mark",
        summary: "counts how often an operation has been done",
        category: Category::Synthetic,
        ..Signature::NOTHING
    }

    fn cost(&self, _: &Spec) -> Cost {
        Cost { blocks: 1, share: 1, ..Cost::default() }
    }

    fn reference(&self, _: &Spec, _: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0][0] += 1.0;
    }

    fn launch(&self, _: &Spec) -> Vec<Launch> {
        let body = "  u64 start = WHOLE_CLOCK();\n  while (WHOLE_CLOCK() - start < ticks) {}\n  \
                    volatile i32* count = done;\n  *count = *count + 1;\n  __threadfence();\n";
        let params = [param("i32* done", Arg::Operand(0)), param("u64 ticks", Arg::Ticks(LATE))];
        vec![launch("mark", "", &params, body, 1, 1)]
    }
}

struct WitnessCheck;

impl Operation for WitnessCheck {
    signature! {
        name: "witness check",
        summary: "counts the dependencies that were not complete",
        category: Category::Synthetic,
        ..Signature::NOTHING
    }

    fn cost(&self, _: &Spec) -> Cost {
        Cost { blocks: 1, share: 1, ..Cost::default() }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let needed = inputs[1][0] + 1.0 - spec.attrs.int("rounds") as f64;
        if inputs[0][0] < needed {
            outputs[0][0] += 1.0;
        }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let body = "  volatile const i32* first = from;\n  volatile const i32* second = to;\n  \
                    if (*first < *second + 1 - (i32)rounds) *missed = *missed + 1;\n";
        let params = [
            param("const i32* from", Arg::Operand(0)),
            param("const i32* to", Arg::Operand(1)),
            param("i32* missed", Arg::Operand(2)),
            u32_param("rounds", spec.attrs.int("rounds") as u64),
        ];
        vec![launch("check", "", &params, body, 1, 1)]
    }
}
