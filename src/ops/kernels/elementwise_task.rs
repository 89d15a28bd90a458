//! Tasks of elementwise kernels: an expression, the shape over which it is evaluated, and its operands.

use crate::base::{DType, Dims};
use crate::ops::{Expression, Spec, Tensor};

/// An elementwise expression with the shape over which it is evaluated, and its operands.
#[derive(Debug)]
pub struct Task<'a> {
    pub expression: &'a Expression,
    pub dims: Dims,
    /// Operand of each output of the expression.
    pub outputs: Vec<Operand>,
    /// Operand of each input of the expression.
    pub inputs: Vec<Operand>,
}

/// An input or an output of a [`Task`].
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub origin: ElementSource,
    /// Type and alignment of the elements.
    pub tensor: Tensor,
    /// Stride of each dimension of the task, in elements.
    pub strides: Dims,
    /// Offset of the first element from the start of the memory, in elements.
    pub start: u64,
}

/// Source of an input's elements, or target of an output's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementSource {
    /// Memory of the operation's operand with this number: inputs are counted first, then outputs.
    Memory(u8),
    /// The operation's workspace, from this offset in bytes on.
    Workspace(u64),
    /// Random zeros and ones. Element `index`, in row-major order, is [`philox::keeps`]`(seed, index, least)`.
    Mask { seed: u64, least: u32 },
}

impl Operand {
    /// Returns the whole tensor with this operand number, accessed with these strides.
    pub fn of(operand: usize, tensor: &Tensor, strides: Dims) -> Operand {
        Operand { origin: ElementSource::Memory(operand as u8), tensor: *tensor, strides, start: 0 }
    }

    /// Returns a tensor at this offset in bytes in the operation's workspace, accessed with these strides.
    pub fn in_workspace(offset: u64, tensor: &Tensor, strides: Dims) -> Operand {
        Operand { origin: ElementSource::Workspace(offset), tensor: *tensor, strides, start: 0 }
    }

    /// Returns the elements `from..from + length` along a dimension. Other dimensions stay whole.
    pub fn cut(mut self, axis: usize, from: u64, length: u64) -> Operand {
        self.tensor.dims.set(axis, length);
        self.start += from * self.tensor.strides[axis];
        let begin = self.start * self.size();
        self.tensor.align = 1 << (begin | u64::from(self.tensor.align)).trailing_zeros();
        self
    }

    /// Returns a random zero or one per element. Four neighbouring ones are computed together, like the elements of a pack.
    pub fn mask(seed: u64, least: u32, dims: Dims) -> Operand {
        let tensor = Tensor::packed(DType::F32, &dims);
        Operand { origin: ElementSource::Mask { seed, least }, tensor, strides: tensor.strides, start: 0 }
    }

    /// Bytes of an element.
    pub fn size(&self) -> u64 {
        self.tensor.dtype.size()
    }
}

/// Returns the task of an operation with one output. `strides` has the strides of the output, then those of each input, along the dimensions
/// `dims`.
pub fn task<'a>(expression: &'a Expression, dims: Dims, strides: &[Dims], spec: &Spec) -> Task<'a> {
    let inputs = spec.inputs.iter().zip(&strides[1..]).enumerate();
    Task {
        expression,
        dims,
        outputs: vec![Operand::of(spec.inputs.len(), &spec.outputs[0], strides[0])],
        inputs: inputs.map(|(place, (tensor, strides))| Operand::of(place, tensor, *strides)).collect(),
    }
}
