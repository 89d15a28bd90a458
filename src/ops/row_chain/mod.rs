//! Softmax, norms and sums of rows fused with elementwise expressions before and after them. Only fusion creates these
//! operations, and only gradients those of `sums`; no file can name them.

mod accuracy;
mod kernel;
pub mod sums;

use crate::base::named::named;

use super::elementwise::{OUTPUTS, visit_groups};
use super::expression::{Binary, ExprNode};
use super::kernels::kernel::compute_type;
use super::layout::broadcast;
use super::reductions::{Extent, Function, Group};
use super::*;
use kernel::ChainPartition;

named! {
    /// The core of a chain: its operation along rows, which is applied to the values of an expression. It has the name of the
    /// catalogue operation that computes the core alone.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Core {
        Softmax = "softmax",
        RmsNorm = "rms_norm",
        LayerNorm = "layer_norm",
        /// The sum of a row, broadcast to all its elements.
        Sum = "sum",
        Mean = "mean",
    }
}

/// A softmax, norm or sum of rows with an expression before and after it. Inputs of the spec's expression: 0 is the
/// core's result, the next ones are the spec's. Outputs: 0 is the core's operand, the next ones are the spec's.
pub struct RowChain(Core);

/// The chain with each core, in the order of [`Core::ALL`].
static CHAINS: [RowChain; 5] = [
    RowChain(Core::Softmax),
    RowChain(Core::RmsNorm),
    RowChain(Core::LayerNorm),
    RowChain(Core::Sum),
    RowChain(Core::Mean),
];

/// Instructions of a sum per element.
const PER_ELEMENT: f64 = 2.0;
/// Instructions per thread of a row, for its part of the sum.
const PER_THREAD: f64 = 10.0;
/// Instructions per exchange among the threads of a warp, of which there is one for each halving of their number.
const PER_EXCHANGE: f64 = 4.0;

/// Instructions of a sum of a row by this many threads, besides those of each element.
fn row_instructions(threads: u64) -> f64 {
    threads as f64 * (PER_THREAD + PER_EXCHANGE * (threads.min(WARP) as f64).log2())
}

impl Core {
    /// The operation of a chain with this core.
    pub fn operation(self) -> &'static dyn Operation {
        &CHAINS[self as usize]
    }

    /// The reduction whose result is broadcast to the row; `None` for other cores.
    fn reduction(self) -> Option<Function> {
        match self {
            Core::Softmax | Core::RmsNorm | Core::LayerNorm => None,
            Core::Sum => Some(Function::Sum),
            Core::Mean => Some(Function::Mean),
        }
    }
}

/// An operation as a chain along rows.
pub struct ChainForm {
    pub core: Core,
    /// Expression in the form that [`RowChain`] describes.
    pub expression: Expression,
    /// Shape of the rows.
    pub dims: Dims,
    /// True if the operation has one result per row instead of one per element.
    pub is_reduction: bool,
}

/// Returns the chain that an operation is equivalent to: a softmax, a norm, a sum along rows, or a chain; `None` for
/// other operations.
pub fn form(spec: &Spec) -> Option<ChainForm> {
    let name = spec.operation.name();
    let dims = spec.outputs.first()?.dims;
    if let Some(core) = Core::ALL.into_iter().find(|core| core.operation().name() == name) {
        let expression = spec.expression.as_deref()?.clone();
        return Some(ChainForm { core, expression, dims, is_reduction: false });
    }
    let core = Core::from_name(name)?;
    let mut expression = Expression::default();
    let mut result = expression.push(ExprNode::Input(0))?;
    if core.reduction().is_some() {
        let Extent { dims, reduced } = Extent::of(spec);
        let is_last = (0..dims.len()).all(|axis| reduced[axis] == (axis + 1 == dims.len()));
        let own = spec.expression.as_deref().filter(|_| is_last && spec.attrs.bool("keepdim"))?;
        let mut input = |number: usize| expression.push(ExprNode::Input(u8::try_from(number).ok()?));
        let inputs: Option<Vec<u16>> = (1..=spec.inputs.len()).map(&mut input).collect();
        let before = expression.graft(own, &inputs?)?;
        expression.finish(before[0]);
        expression.finish(result);
        return Some(ChainForm { core, expression, dims, is_reduction: true });
    }
    let before = expression.push(ExprNode::Input(1))?;
    // Weight and bias become elementwise functions after the core.
    for (input, function) in (2..=spec.inputs.len()).zip([Binary::Multiply, Binary::Add]) {
        let operand = expression.push(ExprNode::Input(input as u8))?;
        result = expression.push(ExprNode::Binary(function, result, operand))?;
    }
    expression.finish(before);
    expression.finish(result);
    Some(ChainForm { core, expression, dims, is_reduction: false })
}

/// True if a chain with one block per row keeps the device busy. Rows that are few and long are divided better without
/// expressions.
pub fn keeps_device_busy(spec: &Spec) -> bool {
    ChainPartition::of(spec).keeps_busy()
}

/// Returns the outputs of a call, of which the first one has the shape of the rows. Fails without outputs, and unless each input
/// broadcasts to that shape.
fn outputs_of_rows(call: &Call) -> Result<Vec<Tensor>, OpError> {
    let outputs: Vec<Tensor> = call.outputs.iter().flatten().map(|output| output.tensor).collect();
    let Some(first) = outputs.first() else {
        return Err(OpError::NoTensor { op: call.operation.name(), at: call.span.into() });
    };
    call.needs_row_length(first.dims.last().copied().unwrap_or(0))?;
    for (index, input) in call.inputs.iter().enumerate() {
        if broadcast(input.tensor.dims, first.dims) != Some(first.dims) {
            let has = format!("the result is {}", first.dims);
            return Err(call.differs(0, has, index, format!("this is {}", input.tensor), "sizes have to agree"));
        }
    }
    Ok(outputs)
}

impl RowChain {
    /// Returns the spec of the core alone, without gaps, in the compute type; `None` for a reduction.
    fn plain(&self, spec: &Spec) -> Option<Spec> {
        let tensor = self.tensor(spec);
        let operation = find(self.0.name()).filter(|_| self.0.reduction().is_none())?;
        Some(Spec { operation, expression: None, inputs: vec![tensor], outputs: vec![tensor], ..spec.clone() })
    }

    /// Returns the core's operand, which has the shape of its result, as a tensor without gaps.
    fn tensor(&self, spec: &Spec) -> Tensor {
        Tensor::packed(compute_type(spec), &spec.outputs[0].dims)
    }

    /// Returns the tensors of the expression's inputs: the core's result, then the spec's inputs.
    fn tensors(&self, spec: &Spec) -> Vec<Tensor> {
        std::iter::once(self.tensor(spec)).chain(spec.inputs.iter().copied()).collect()
    }
}

impl Operation for RowChain {
    fn signature(&self) -> &'static Signature {
        const fn of(name: &'static str) -> Signature {
            Signature {
                name,
                summary: "a softmax, a norm or a sum of rows with functions of an element before and behind it",
                category: Category::RowWise,
                inputs: &[Input::Expressions],
                outputs: &OUTPUTS,
                options: &[],
            }
        }
        match self.0 {
            Core::Softmax => const { &of("fused_softmax") },
            Core::RmsNorm => const { &of("fused_rms_norm") },
            Core::LayerNorm => const { &of("fused_layer_norm") },
            Core::Sum => const { &of("fused_sum") },
            Core::Mean => const { &of("fused_mean") },
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let outputs = outputs_of_rows(call)?;
        Ok(outputs.iter().map(|output| (output.dtype, outputs[0].dims)).collect())
    }

    fn outputs(&self, _: &Attrs, _: usize, given: usize) -> usize {
        given.clamp(1, OUTPUTS.len())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let (elements, expression) = (spec.outputs[0].elements() as f64, spec.expression.as_deref());
        let core = match self.plain(spec) {
            Some(plain) => plain.operation.cost(&plain),
            None => {
                let rows = elements / spec.outputs[0].dims.last().map_or(1.0, |&length| length as f64);
                let of_row = row_instructions(ChainPartition::of(spec).sharing.threads);
                let instructions = PER_ELEMENT * elements + of_row * rows;
                Cost { flops: elements, instructions, ..Cost::default() }
            }
        };
        let each = |count: fn(&Expression) -> u32| expression.map_or(0.0, |one| f64::from(count(one)) * elements);
        let mut cost = ChainPartition::of(spec).cost(spec, core.flops + each(Expression::flops));
        cost.instructions = core.instructions + each(Expression::instructions);
        cost.special = core.special + each(Expression::special);
        cost
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        accuracy::enclose(self, spec, inputs, outputs)
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        check::broadcast_rows(spec).filter(|_| spec.outputs[0].dims.len() > 1)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        vec![ChainPartition::of(spec).launch(self.0, self.name(), spec)]
    }
}
