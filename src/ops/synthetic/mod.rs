//! Synthetic operations: `nop` and `spin`.

pub(super) mod work;

use crate::base::units::Dimension;

use super::kernels::kernel::{kernel, launch, param};
use super::*;

/// `nop()`.
pub struct Nop;

impl Operation for Nop {
    signature! {
        name: "nop",
        summary: "an empty kernel with one thread",
        category: Category::Synthetic,
        ..Signature::NOTHING
    }

    fn cost(&self, _: &Spec) -> Cost {
        Cost { blocks: 1, share: 1, ..Cost::default() }
    }

    fn launch(&self, _: &Spec) -> Vec<Launch> {
        vec![launch("nop", "", &[], "", 1, 1)]
    }
}

/// `spin(time)`.
pub struct Spin;

impl Operation for Spin {
    signature! {
        name: "spin",
        summary: "a kernel that occupies a number of SMs (compute units) for a given time",
        category: Category::Synthetic,
        inputs: &[Input::Scalar(OptionSpec::required(
            "time",
            OptionType::Number(Dimension::TIME),
            "how long each block spins",
        ))],
        outputs: &[],
        options: &[OptionSpec::int("units", 1, 65_535, 1, "number of SMs (compute units) to occupy")],
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::OnHost]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let time = call.attrs.number("time");
        if !(0.0..=10e9).contains(&time) {
            let why = "it has to be between 0 and 10 s".to_owned();
            return Err(call.bad_option("time", why, "write a time in between: `spin(10us)`"));
        }
        Ok(Vec::new())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Cost {
            blocks: spec.attrs.int("units") as u64,
            share: Cost::WHOLE_UNIT,
            hold: Some(Hold::Block(Nanos::rounded(spec.attrs.number("time")))),
            ..Cost::default()
        }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let body = "  if (threadIdx.x == 0) {\n    u64 start = WHOLE_CLOCK();\n    while (WHOLE_CLOCK() - start < ticks) {}\n  }\n  \
                    __syncthreads();\n";
        let time = Nanos::rounded(spec.attrs.number("time"));
        let params = [param("u64 ticks", Arg::Ticks(time))];
        let spin = kernel("spin", "", &params, body, spec.attrs.int("units") as u64, 1024);
        vec![Launch::Kernel(Kernel { shared: Shared::All, ..spin })]
    }
}

/// Returns a kernel that occupies `units` SMs for a time, or a single thread if `units` is 0. It replaces an operation that cannot
/// run on this machine.
pub fn stand_in(time: Nanos, units: u32) -> Spec {
    let attrs = Attrs::of([("time", Attr::number(time.0 as f64)), ("units", Attr::Int(i64::from(units)))]);
    let operation: &'static dyn Operation = if units == 0 { &Thread } else { &Spin };
    Spec::new(operation, attrs, Vec::new(), Vec::new())
}

/// The internal operation of a spin of one thread, which leaves the rest of its SM free. No file can name it.
struct Thread;

impl Operation for Thread {
    signature! {
        name: "thread",
        summary: "one thread that spins for a given time",
        category: Category::Synthetic,
        ..Signature::NOTHING
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Cost { blocks: 1, share: 1, ..Spin.cost(spec) }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let spin = Spin.launch(spec).into_iter().filter_map(|launch| match launch {
            Launch::Kernel(kernel) => Some(Kernel { grid: [1; 3], block: [1; 3], shared: Shared::Bytes(0), ..kernel }),
            _ => None,
        });
        spin.map(Launch::Kernel).collect()
    }
}
