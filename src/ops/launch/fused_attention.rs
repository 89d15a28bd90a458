//! Attention in the form that libraries compute: one call over tensors of four dimensions.

use crate::ops::Tensor;

/// Additional bytes of workspace that the library may need. The measured maximum was 1 MiB.
const LIBRARY_SCRATCH: u64 = 4 << 20;

/// Maximum bytes of scratch memory of a call of the library. Attention that needs more is divided among several calls.
const MAX_SCRATCH: u64 = 2 << 30;

/// Multiple of bytes at which the library's vectorized accesses begin.
const ALIGN: u64 = 16;

/// Attention or its gradients, in the form that a library computes.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedAttention {
    pub form: AttentionForm,
    /// Operands, as `[batch, heads, positions, elements]` with contiguous elements; `lse` has one element
    /// per position. Forward: q, k, v, o, lse. Backward: q, k, v, o, lse, dy, dq, dk and dv. Optionally followed by
    /// the bias, whose batch and heads may be 1.
    pub operands: Vec<(u8, Tensor)>,
    pub causal: bool,
    /// Maximum number of keys that a causal query attends to; 0 for all.
    pub window: u64,
    pub scale: f32,
    /// False if the library may add up the gradients of queries in an arbitrary order; true for the forward form.
    pub deterministic: bool,
}

/// The results that a call computes: the output, or the gradients of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionForm {
    Forward,
    Backward,
}

/// Scratch memory in which a library adds up the gradients of queries over the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuerySums {
    /// The gradients of all scores in the type of the operands, which a product multiplies with the keys.
    Stored,
    /// Sums in `f32`, to which blocks add in an arbitrary order.
    Atomic,
}

/// Equal calls of a library that together compute an attention.
pub struct AttentionCalls {
    /// The attention of the first call.
    pub piece: FusedAttention,
    /// Number of parts of the batch, and of the heads.
    pub parts: [u64; 2],
    /// For each operand, bytes from a part of the batch to the next, and from a part of the heads to the next; 0 for a bias that is
    /// broadcast along the dimension.
    pub steps: Vec<[u64; 2]>,
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

    /// Bytes of scratch memory that a library may need for its calls.
    pub fn scratch(&self) -> u64 {
        let of_calls = |sums: &QuerySums| self.calls(*sums).piece.scratch_of(*sums);
        let stored = of_calls(&QuerySums::Stored);
        if self.deterministic { stored } else { stored.max(of_calls(&QuerySums::Atomic)) }
    }

    /// Returns the fewest equal calls that each need at most `MAX_SCRATCH` bytes; the smallest possible ones if even
    /// these need more. Parts of heads begin at aligned addresses.
    pub fn calls(&self, sums: QuerySums) -> AttentionCalls {
        let [batch, shared] = [self.tensor(0).dims[0], self.tensor(1).dims[1]];
        let divisors = |size: u64| (1..=size).filter(move |parts| size.is_multiple_of(*parts));
        let mut all: Vec<[u64; 2]> =
            divisors(batch).flat_map(|of_batch| divisors(shared).map(move |of_heads| [of_batch, of_heads])).collect();
        all.sort_by_key(|[of_batch, of_heads]| (of_batch * of_heads, *of_heads));
        let mut most = [1, 1];
        for parts in all {
            let calls = self.divided(parts);
            // Calls with some of the heads may begin in the middle of a row of `lse`.
            if parts[1] > 1 && calls.steps.iter().any(|step| !step[1].is_multiple_of(ALIGN)) {
                continue;
            }
            // With a bias, a call copies its part of `lse`, which has to be contiguous.
            if parts[1] > 1 && self.bias().is_some() && calls.piece.tensor(0).dims[0] > 1 {
                continue;
            }
            if calls.piece.scratch_of(sums) <= MAX_SCRATCH {
                return calls;
            }
            most = parts;
        }
        self.divided(most)
    }

    /// Returns the calls for this number of parts of the batch and of the heads of keys.
    fn divided(&self, parts: [u64; 2]) -> AttentionCalls {
        let [batch, heads] = [0, 1].map(|axis| self.tensor(0).dims[axis]);
        let (mut piece, mut steps) = (self.clone(), Vec::new());
        for (_, tensor) in &mut piece.operands {
            let (whole, mut step) = (*tensor, [0; 2]);
            for (axis, (count, of_queries)) in parts.into_iter().zip([batch, heads]).enumerate() {
                // A bias can be broadcast along the dimension.
                if whole.dims[axis] > 1 || of_queries == 1 {
                    tensor.dims.set(axis, whole.dims[axis] / count);
                    step[axis] = tensor.dims[axis] * whole.strides[axis] * whole.dtype.size();
                }
            }
            steps.push(step);
        }
        AttentionCalls { piece, parts, steps }
    }

    /// Returns the bytes of scratch memory of one call. If heads share keys, a library also stores the gradients of keys and values of
    /// each head, and with a bias a copy of `lse`.
    fn scratch_of(&self, sums: QuerySums) -> u64 {
        if self.form == AttentionForm::Forward {
            return LIBRARY_SCRATCH;
        }
        let [q, k, v] = [0, 1, 2].map(|place| &self.tensor(place).dims);
        let [queries, keys] = [q[2], k[2]].map(|positions| positions.next_multiple_of(64));
        let of_queries = match sums {
            QuerySums::Stored => 2 * queries * keys,
            QuerySums::Atomic => 4 * queries * q[3],
        };
        let of_a_head = 2 * ((queries + keys) * q[3] + keys * v[3]);
        let rows = if self.bias().is_some() { 2 } else { 1 };
        LIBRARY_SCRATCH + q[0] * q[1] * (of_a_head + of_queries + 4 * rows * queries)
    }

    /// Number of floating-point operations.
    pub fn flops(&self) -> f64 {
        let [q, k, v] = [0, 1, 2].map(|place| &self.tensor(place).dims);
        let seen = if self.causal { 0.5 } else { 1.0 };
        let products = if self.form == AttentionForm::Forward { 2.0 } else { 5.0 };
        products * seen * (q[0] * q[1]) as f64 * (q[2] * k[2]) as f64 * (q[3] + v[3]) as f64
    }
}
