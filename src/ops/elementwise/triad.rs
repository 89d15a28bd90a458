//! `triad`: the STREAM benchmark of memory bandwidth.

use crate::base::units::Dimension;

use crate::ops::expression::formula::formula;
use crate::ops::*;

/// `triad(bytes -> a)`: the kernel `a = b + 3 c` of STREAM (McCalpin, "Memory bandwidth and machine balance in current high
/// performance computers", 1995).
pub struct Triad;

fn dims(attrs: &Attrs) -> Dims {
    let elements = (attrs.number("bytes").clamp(4.0, 1e15) / 4.0) as u64;
    Dims::from([elements])
}

impl Operation for Triad {
    signature! {
        name: "triad",
        summary: "STREAM triad, `a = b + 3 * c` in `f32`: measures the sustained memory bandwidth",
        category: Category::Synthetic,
        inputs: &[Input::Scalar(OptionSpec::required(
            "bytes",
            OptionType::Number(Dimension::BYTES),
            "bytes of each of the three tensors",
        ))],
        outputs: &["a"],
        options: &[],
    }

    fn own_inputs(&self, attrs: &Attrs) -> Vec<(DType, Dims)> {
        vec![(DType::F32, dims(attrs)); 2]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        if !(4.0..=1e15).contains(&call.attrs.number("bytes")) {
            let why = "it has to be between 4 B and 1e15 B".to_owned();
            return Err(call.bad_option("bytes", why, "write a size in between: `triad(256MiB)`"));
        }
        Ok(vec![call.output(0, DType::F32, dims(call.attrs))?])
    }

    fn elements(&self, _: &Spec) -> Option<Expression> {
        Some(formula(|[b, c]| [b + 3.0 * c]))
    }
}
