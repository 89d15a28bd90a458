//! Attention in the form that libraries compute: one call over tensors of four dimensions.

use super::Tensor;

/// Additional bytes of workspace that the library may need. The measured maximum was 1 MiB.
const LIBRARY_SCRATCH: u64 = 4 << 20;

/// Attention or its gradients, as equal calls that each process a part of the batch.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedAttention {
    pub form: AttentionForm,
    /// Operands of one call, as `[batch, heads, positions, elements]` with contiguous elements; `lse` has one element
    /// per position. Forward: q, k, v, o, lse. Backward: q, k, v, o, lse, dy, dq, dk and dv. Optionally followed by
    /// the bias, whose batch and heads may be 1.
    pub operands: Vec<(u8, Tensor)>,
    /// Number of calls.
    pub calls: u64,
    pub causal: bool,
    /// Maximum number of keys that a causal query attends to; 0 for all.
    pub window: u64,
    pub scale: f32,
    /// Whether all calls read the same bias, because it is broadcast along the batch.
    pub shares_bias: bool,
    /// False if the library may add up the gradients of queries in an arbitrary order; true for the forward form.
    pub deterministic: bool,
}

/// The results that a call computes: the output, or the gradients of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionForm {
    Forward,
    Backward,
}

impl FusedAttention {
    /// Index of the bias in the list of operands; `None` without a bias.
    pub fn bias(&self) -> Option<usize> {
        let place = if self.form == AttentionForm::Forward { 5 } else { 9 };
        (self.operands.len() > place).then_some(place)
    }

    /// Returns the tensor at this index in the list of operands.
    pub fn tensor(&self, place: usize) -> &Tensor {
        &self.operands[place].1
    }

    /// Returns this attention with the numbers of queries and keys rounded up to powers of two, without gaps between
    /// positions or heads. Uses with equal classes differ little in how fast each engine and kernel computes them.
    pub fn class(&self) -> FusedAttention {
        let (mut class, bias) = (self.clone(), self.bias());
        for (place, (_, tensor)) in class.operands.iter_mut().enumerate() {
            let mut axes = [0, 1, 2, 3];
            axes.sort_by_key(|&axis| std::cmp::Reverse(tensor.strides[axis]));
            for axis in 2..if bias == Some(place) { 4 } else { 3 } {
                tensor.dims.set(axis, tensor.dims[axis].next_power_of_two());
            }
            let mut step = 1;
            for axis in axes.into_iter().rev() {
                tensor.strides.set(axis, step);
                step *= tensor.dims[axis];
            }
        }
        class
    }

    /// Bytes between the parts of an operand that consecutive calls access; 0 for a bias that all calls read.
    pub fn step(&self, place: usize) -> u64 {
        if self.shares_bias && self.bias() == Some(place) {
            return 0;
        }
        let tensor = self.tensor(place);
        tensor.dims[0] * tensor.strides[0] * tensor.dtype.size()
    }

    /// Bytes of scratch memory that a library may need for a call.
    pub fn scratch(&self) -> u64 {
        self.scratch_of(self.tensor(0).dims[0])
    }

    /// Returns the bytes of scratch memory for a call on `batch` samples. A library stores the gradients of scores
    /// between two kernels, or sums of the gradients of queries in `f32` if their order may be arbitrary. If heads share
    /// keys, it also stores the gradients of keys and values of each head, and with a bias a copy of `lse`.
    pub(super) fn scratch_of(&self, batch: u64) -> u64 {
        if self.form == AttentionForm::Forward {
            return LIBRARY_SCRATCH;
        }
        let [q, k, v] = [0, 1, 2].map(|place| &self.tensor(place).dims);
        let [queries, keys] = [q[2], k[2]].map(|positions| positions.next_multiple_of(64));
        let of_a_head = queries * keys + (queries + keys) * q[3] + keys * v[3];
        let sums = if self.deterministic { 0 } else { 4 * queries * q[3] };
        let rows = if self.bias().is_some() { 2 } else { 1 };
        LIBRARY_SCRATCH + batch * q[1] * (2 * of_a_head + sums + 4 * rows * queries)
    }

    /// Number of floating-point operations of one call.
    pub fn flops(&self) -> f64 {
        let [q, k, v] = [0, 1, 2].map(|place| &self.tensor(place).dims);
        let seen = if self.causal { 0.5 } else { 1.0 };
        let products = if self.form == AttentionForm::Forward { 2.0 } else { 5.0 };
        products * seen * (q[0] * q[1]) as f64 * (q[2] * k[2]) as f64 * (q[3] + v[3]) as f64
    }
}
