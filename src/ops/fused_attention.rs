//! Attention as libraries have it: one call over tensors of four dimensions.

use super::Tensor;

/// Memory that a library needs for itself, in bytes: it needed at most 1 MiB.
const LIBRARY_SCRATCH: u64 = 4 << 20;

/// Attention, or its gradients, in equal calls over a part of the batch each.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedAttention {
    pub form: AttentionForm,
    /// Operands of one call: `[batch, heads, positions, elements]`, whose elements are neighbours. `lse` has one element. Those
    /// of the forward form are q, k, v, o, lse and, if there is one, the bias, whose batch and heads may be 1; those of the
    /// backward form are q, k, v, o, lse, dy, dq, dk and dv.
    pub operands: Vec<(u8, Tensor)>,
    /// Number of calls.
    pub calls: u64,
    pub causal: bool,
    /// The most keys that a causal query sees; 0 for all.
    pub window: u64,
    pub scale: f32,
}

/// Which results a call of attention computes: the output, or the gradients of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionForm {
    Forward,
    Backward,
}

impl FusedAttention {
    /// Place of the bias in the list of operands; `None` if the use has none.
    pub fn bias(&self) -> Option<usize> {
        (self.form == AttentionForm::Forward && self.operands.len() > 5).then_some(5)
    }

    /// The tensor with this place in the list of operands.
    pub fn tensor(&self, place: usize) -> &Tensor {
        &self.operands[place].1
    }

    /// Bytes between what two calls in a row read or write of an operand.
    pub fn step(&self, place: usize) -> u64 {
        let tensor = self.tensor(place);
        tensor.dims[0] * tensor.strides[0] * tensor.dtype.size()
    }

    /// Bytes of scratch memory that a library may need for a call.
    pub fn scratch(&self) -> u64 {
        self.scratch_of(self.tensor(0).dims[0])
    }

    /// The gradients of scores lie in memory between two kernels of a library, unless it adds them up in an arbitrary order.
    /// Where heads share keys, so do the gradients of keys and values of each head.
    pub(super) fn scratch_of(&self, batch: u64) -> u64 {
        if self.form == AttentionForm::Forward {
            return LIBRARY_SCRATCH;
        }
        let [q, k, v] = [0, 1, 2].map(|place| &self.tensor(place).dims);
        let [queries, keys] = [q[2], k[2]].map(|positions| positions.next_multiple_of(64));
        let of_a_head = queries * keys + (queries + keys) * q[3] + keys * v[3];
        LIBRARY_SCRATCH + batch * q[1] * (2 * of_a_head + 4 * queries)
    }

    /// Floating-point operations of one call.
    pub fn flops(&self) -> f64 {
        let [q, k, v] = [0, 1, 2].map(|place| &self.tensor(place).dims);
        let seen = if self.causal { 0.5 } else { 1.0 };
        let products = if self.form == AttentionForm::Forward { 2.0 } else { 5.0 };
        products * seen * (q[0] * q[1]) as f64 * (q[2] * k[2]) as f64 * (q[3] + v[3]) as f64
    }
}
