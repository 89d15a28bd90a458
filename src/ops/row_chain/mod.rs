//! Softmax and norms of rows with functions of an element before and behind them, in one kernel. Only fusion makes these
//! operations: no text names them.

mod accuracy;
mod kernel;

use crate::base::{DType, Dims};

use super::elementwise::{compute_type, side_by_side};
use super::expression::{Binary, Node};
use super::layout::broadcast;
use super::*;
use kernel::Split;

/// The operation along rows in the middle of a chain, which works on values that an expression computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    Softmax,
    RmsNorm,
    LayerNorm,
}

/// A core with expressions before and behind it. The spec's expression has the core's result as input 0 and the spec's
/// inputs as the next ones. Its first output is what the core works on; the others are the spec's outputs.
pub struct RowChain(Core);

static SOFTMAX: RowChain = RowChain(Core::Softmax);
static RMS_NORM: RowChain = RowChain(Core::RmsNorm);
static LAYER_NORM: RowChain = RowChain(Core::LayerNorm);

const OUTPUTS: [&str; 8] = ["y", "y2", "y3", "y4", "y5", "y6", "y7", "y8"];

impl Core {
    const ALL: [Core; 3] = [Core::Softmax, Core::RmsNorm, Core::LayerNorm];

    /// The chain's operation.
    pub fn operation(self) -> &'static dyn Operation {
        match self {
            Core::Softmax => &SOFTMAX,
            Core::RmsNorm => &RMS_NORM,
            Core::LayerNorm => &LAYER_NORM,
        }
    }

    /// The operation of the catalogue that does the same without expressions.
    fn plain(self) -> &'static dyn Operation {
        let name = match self {
            Core::Softmax => "softmax",
            Core::RmsNorm => "rms_norm",
            Core::LayerNorm => "layer_norm",
        };
        find(name).expect("the catalogue has it")
    }
}

/// The core and the expression of an operation that a chain can be made of: a softmax, a norm or a chain. `None` for others.
pub fn form(spec: &Spec) -> Option<(Core, Expression)> {
    let name = spec.operation.name();
    if let Some(core) = Core::ALL.into_iter().find(|core| core.operation().name() == name) {
        return Some((core, spec.expression.as_deref()?.clone()));
    }
    let core = Core::ALL.into_iter().find(|core| core.plain().name() == name)?;
    let mut expression = Expression::default();
    let mut result = expression.push(Node::Input(0))?;
    let before = expression.push(Node::Input(1))?;
    // A weight and a bias are functions of an element behind the core.
    for (input, function) in (2..=spec.inputs.len()).zip([Binary::Multiply, Binary::Add]) {
        let operand = expression.push(Node::Input(input as u8))?;
        result = expression.push(Node::Binary(function, result, operand))?;
    }
    expression.finish(before);
    expression.finish(result);
    Some((core, expression))
}

/// True if blocks keep a device busy with a chain: rows that are few and too long for one block each are divided better
/// without expressions.
pub fn suits(spec: &Spec) -> bool {
    Split::of(spec).keeps_busy()
}

impl RowChain {
    /// The core alone, without gaps, in the type that the kernel computes in.
    fn plain(&self, spec: &Spec) -> Spec {
        let dims = spec.outputs[0].dims;
        let (dtype, strides) = (compute_type(spec), dims.contiguous_strides());
        let tensor = Tensor { dtype, dims, strides, space: Space::Device, align: 16 };
        Spec {
            operation: self.0.plain(),
            expression: None,
            inputs: vec![tensor],
            outputs: vec![tensor],
            ..spec.clone()
        }
    }

    /// The tensors of the expression's inputs: the core's result, then the spec's inputs.
    fn tensors(&self, spec: &Spec) -> Vec<Tensor> {
        let result = self.plain(spec).outputs[0];
        std::iter::once(result).chain(spec.inputs.iter().copied()).collect()
    }
}

impl Operation for RowChain {
    fn name(&self) -> &'static str {
        match self.0 {
            Core::Softmax => "fused_softmax",
            Core::RmsNorm => "fused_rms_norm",
            Core::LayerNorm => "fused_layer_norm",
        }
    }

    fn summary(&self) -> &'static str {
        "a softmax or a norm of rows with functions of an element before and behind it"
    }

    fn category(&self) -> Category {
        Category::RowWise
    }

    fn signature(&self) -> &'static Signature {
        &Signature { inputs: &[Input::Expressions], outputs: &OUTPUTS, options: &[] }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
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
        Ok(outputs.iter().map(|output| (output.dtype, first.dims)).collect())
    }

    fn outputs(&self, _: usize, given: usize) -> usize {
        given.clamp(1, OUTPUTS.len())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let plain = self.plain(spec);
        let core = plain.operation.cost(&plain);
        let (elements, expression) = (spec.outputs[0].elements() as f64, spec.expression.as_deref());
        let each = |count: fn(&Expression) -> u32| expression.map_or(0.0, |one| f64::from(count(one)) * elements);
        let mut cost = Split::of(spec).cost(spec, core.flops + each(Expression::flops));
        cost.instructions = core.instructions + each(Expression::instructions);
        cost.special = core.special + each(Expression::special);
        cost
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        self.enclose(spec, inputs, outputs);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        accuracy::enclose(self, spec, inputs, outputs)
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        check::broadcast_rows(spec).filter(|_| spec.outputs[0].dims.len() > 1)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        vec![Split::of(spec).launch(self.0, self.name(), spec)]
    }

    fn in_place(&self) -> bool {
        true
    }
}
