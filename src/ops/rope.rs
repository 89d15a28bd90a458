//! `rope`: rotary position embedding.

use super::elementwise::{compare, compute_type, cost, evaluate};
use super::formula::formula;
use super::layout::{broadcast, broadcast_strides};
use super::walk::{Operand, Task};
use super::*;

/// `rope(x, cos, sin -> y)`: pairs of elements from both halves of a row are rotated by an angle (Su et al., "RoFormer",
/// 2021; the halves as in GPT-NeoX and Llama: `x * cos + rotate_half(x) * sin`).
pub struct Rope;

/// The rotated pair, as an expression of both halves of a row and the cosine and sine of the angle.
fn expression() -> Expression {
    formula(|[first, second, cos, sin]| {
        let (a, b) = (first * cos, second * sin);
        let (c, d) = (second * cos, first * sin);
        [a - b, c + d]
    })
}

/// Dimensions of half a tensor's rows.
fn half(dims: Dims) -> Dims {
    let (mut half, last) = (dims, dims.len() - 1);
    half.set(last, dims[last] / 2);
    half
}

/// Returns the spec with each half of the rows as an operand.
fn in_halves(spec: &Spec) -> Spec {
    let of = |tensor: &Tensor| Tensor { dims: half(tensor.dims), ..*tensor };
    let [x, cos, sin] = [0, 1, 2].map(|input| spec.inputs[input]);
    Spec { inputs: vec![of(&x), of(&x), cos, sin], outputs: vec![of(&spec.outputs[0]); 2], ..spec.clone() }
}

/// The first and the second half of each row.
fn halves(values: &[f64], row: usize) -> [Vec<f64>; 2] {
    let rows = || values.chunks(row);
    [
        rows().flat_map(|row| &row[..row.len() / 2]).copied().collect(),
        rows().flat_map(|row| &row[row.len() / 2..]).copied().collect(),
    ]
}

fn row(spec: &Spec) -> usize {
    spec.outputs[0].dims.last().copied().unwrap_or(1) as usize
}

impl Operation for Rope {
    fn signature(&self) -> &'static Signature {
        &Signature {
            name: "rope",
            summary: "rotary position embedding in the rotate-half form of GPT-NeoX and Llama",
            category: Category::Elementwise,
            inputs: &[Input::Tensor("x"), Input::Tensor("cos"), Input::Tensor("sin")],
            outputs: &["y"],
            options: &[],
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_rank(0, 1, "whose last is rotated")?;
        for input in call.inputs {
            call.needs_dtype(input, input.tensor.dtype.is_float(), "floating-point types")?;
        }
        let x = &call.inputs[0];
        let (dims, last) = (x.tensor.dims, x.tensor.dims.len() - 1);
        if dims[last] % 2 != 0 {
            return Err(call.bad_shape(x, "an even last dimension, whose halves are rotated with each other"));
        }
        for (index, angles) in call.inputs.iter().enumerate().skip(1) {
            if broadcast(half(dims), angles.tensor.dims) != Some(half(dims)) {
                return Err(call.differs(
                    0,
                    format!("this is {}", x.tensor),
                    index,
                    format!("this is {}", angles.tensor),
                    &format!(
                        "`cos` and `sin` hold an angle for each pair of elements: their shapes have to broadcast to {}",
                        half(dims)
                    ),
                ));
            }
        }
        let dtype = call.given_dtype(0).unwrap_or(x.tensor.dtype);
        Ok(vec![call.output(0, dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        cost(&expression(), &in_halves(spec))
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let [first, second] = halves(inputs[0], row(spec));
        let mut results = vec![vec![0.0; first.len()]; 2];
        evaluate(&expression(), &in_halves(spec), &[&first, &second, inputs[1], inputs[2]], &mut results);
        let half = row(spec) / 2;
        for (index, row) in outputs[0].chunks_mut(2 * half).enumerate() {
            row[..half].copy_from_slice(&results[0][index * half..][..half]);
            row[half..].copy_from_slice(&results[1][index * half..][..half]);
        }
    }

    fn check(&self, spec: &Spec, inputs: &[&[f64]], _: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        let [first, second] = halves(inputs[0], row(spec));
        let inputs = [&first, &second, inputs[1], inputs[2]];
        let found = compare(&expression(), &in_halves(spec), &inputs, &halves(&actual[0], row(spec)));
        let (mut all, half) = (Check::none(), row(spec) as u64 / 2);
        for (number, part) in (0..).zip(&found) {
            all.add(part, |index| index / half * 2 * half + number * half + index % half);
        }
        vec![all]
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        check::broadcast_rows(spec).filter(|_| spec.outputs[0].dims.len() > 1)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, y, expression) = (&spec.inputs[0], &spec.outputs[0], expression());
        let (last, dims) = (x.dims.len() - 1, half(x.dims));
        let both = |operand: Operand| [0, dims[last]].map(|from| operand.cut(last, from, dims[last]));
        let angles =
            |input: usize| Operand::of(input, &spec.inputs[input], broadcast_strides(&spec.inputs[input], dims));
        let task = Task {
            expression: &expression,
            dims,
            outputs: both(Operand::of(3, y, y.strides)).to_vec(),
            inputs: [both(Operand::of(0, x, x.strides)), [angles(1), angles(2)]].concat(),
        };
        vec![walk::launch_all("rope", &[task], compute_type(spec))]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::rope(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x * cos + rotate_half(x) * sin`, with the angles of a pair given for both of its elements.
    #[test]
    fn rows_are_rotated_as_in_llama() {
        let tensor = |sizes: &[u64]| Tensor::packed(DType::F64, sizes);
        let inputs = vec![tensor(&[2, 3, 4]), tensor(&[3, 2]), tensor(&[3, 1])];
        let spec = Spec::new(&Rope, Attrs::default(), inputs, vec![tensor(&[2, 3, 4])]);
        let value = |index: usize| (index as f64 * 0.37).sin();
        let x: Vec<f64> = (0..24).map(value).collect();
        let (cos, sin): (Vec<f64>, Vec<f64>) = ((30..36).map(value).collect(), (40..43).map(value).collect());
        let mut y = vec![vec![0.0; 24]];
        Rope.reference(&spec, &[&x, &cos, &sin], &mut y);
        for (index, found) in y[0].iter().enumerate() {
            let (row, position, column) = (index / 4, index / 4 % 3, index % 4);
            let turned = if column < 2 { -x[row * 4 + column + 2] } else { x[row * 4 + column - 2] };
            let expected = x[index] * cos[position * 2 + column % 2] + turned * sin[position];
            assert!((found - expected).abs() < 1e-15, "element {index}: {found}, not {expected}");
        }
        assert!(Rope.check(&spec, &[&x, &cos, &sin], &Vec::new, &y)[0].held());
        y[0][23] += 1e-9;
        let check = &Rope.check(&spec, &[&x, &cos, &sin], &Vec::new, &y)[0];
        assert_eq!((check.held(), check.worst.index, check.elements), (false, 23, 24));
    }
}
