//! Attention in the form that libraries compute: one call over tensors of four dimensions.

use std::ops::Range;

use super::Tensor;

/// Additional bytes of workspace that the library may need. The measured maximum was 1 MiB.
const LIBRARY_SCRATCH: u64 = 4 << 20;

/// Maximum bytes of scratch memory of a call of the library. Attention that needs more is divided among several calls.
const MAX_SCRATCH: u64 = 2 << 30;

/// Number of queries of which each range except the last has a multiple: two tiles of the library's kernels.
const RANGE_QUERIES: u64 = 256;

/// Indices in the list of operands of the backward form: keys and values.
const OF_KEYS: [usize; 2] = [1, 2];

/// Indices in the list of operands of the backward form: the gradients of keys and values.
pub const KEY_GRADIENTS: [usize; 2] = [7, 8];

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

/// Calls of a library that together compute an attention: equal parts of the batch and of the heads, each divided into ranges of
/// queries.
pub struct AttentionCalls {
    /// The attention of the first call.
    pub piece: FusedAttention,
    /// Number of parts of the batch, and of the heads.
    pub parts: [u64; 2],
    /// For each operand, bytes from a part of the batch to the next, and from a part of the heads to the next; 0 for a bias that is
    /// broadcast along the dimension.
    pub steps: Vec<[u64; 2]>,
    /// Ranges of queries, each of which is a call. There are several only if the gradients of all scores need too much scratch
    /// memory; the gradients of keys and values are then added up over the ranges.
    pub ranges: Vec<Range<u64>>,
}

/// The part of a call for a range of queries.
pub struct QueryRange {
    pub attention: FusedAttention,
    /// For each operand, bytes from its begin to that of the part.
    pub starts: Vec<u64>,
}

impl AttentionCalls {
    /// Scratch memory of a call in bytes. Several ranges also need memory for the sums of the gradients of keys and values.
    fn scratch(&self, sums: QuerySums) -> u64 {
        match &self.ranges[..] {
            [_] => self.piece.scratch_of(sums),
            [first, ..] => self.piece.of_queries(first).attention.scratch_of(sums) + self.piece.range_sums(),
            [] => 0,
        }
    }
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
        let of_calls = |sums: QuerySums| self.calls(sums).scratch(sums);
        let stored = of_calls(QuerySums::Stored);
        if self.deterministic { stored } else { stored.max(of_calls(QuerySums::Atomic)) }
    }

    /// Returns the fewest equal calls that each need at most `MAX_SCRATCH` bytes. If even the smallest possible parts of the batch
    /// and of the heads need more, these are divided into ranges of queries. Parts of heads begin at aligned addresses.
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
        let mut calls = self.divided(most);
        calls.ranges = calls.piece.query_ranges(sums);
        calls
    }

    /// Returns the fewest ranges of queries whose calls each need at most `MAX_SCRATCH` bytes, or the shortest possible ones; a
    /// single one if the form cannot be divided. All but the last have equal lengths, multiples of [`RANGE_QUERIES`]. cuDNN 9.19 has no engine that stores the gradients
    /// of causal scores of fewer queries than keys.
    fn query_ranges(&self, sums: QuerySums) -> Vec<Range<u64>> {
        let queries = self.tensor(0).dims[2];
        let divisible =
            self.form == AttentionForm::Backward && sums == QuerySums::Stored && !self.causal && self.bias().is_none();
        let fits =
            |size: u64| self.of_queries(&(0..size)).attention.scratch_of(sums) + self.range_sums() <= MAX_SCRATCH;
        let mut sizes = (1..=queries.div_ceil(RANGE_QUERIES))
            .map(|count| queries.div_ceil(count).next_multiple_of(RANGE_QUERIES).min(queries));
        let size = if divisible { sizes.find(|&size| fits(size)).unwrap_or(RANGE_QUERIES) } else { queries };
        (0..queries).step_by(size as usize).map(|begin| begin..(begin + size).min(queries)).collect()
    }

    /// Returns the gradients with respect to the queries of a range, and as contiguous gradients of keys and values what this range
    /// contributes to them.
    pub fn of_queries(&self, range: &Range<u64>) -> QueryRange {
        let (mut attention, mut starts) = (self.clone(), Vec::with_capacity(self.operands.len()));
        for (place, (_, tensor)) in attention.operands.iter_mut().enumerate() {
            if KEY_GRADIENTS.contains(&place) {
                *tensor = Tensor::packed(tensor.dtype, &tensor.dims);
            }
            let of_keys = OF_KEYS.contains(&place) || KEY_GRADIENTS.contains(&place);
            starts.push(if of_keys { 0 } else { range.start * tensor.strides[2] * tensor.dtype.size() });
            if !of_keys {
                tensor.dims.set(2, range.end - range.start);
            }
        }
        QueryRange { attention, starts }
    }

    /// Bytes in which the gradients of keys and values are added up over ranges: those of a range, and their sums in `f32`.
    fn range_sums(&self) -> u64 {
        let bytes = |place: usize| (self.tensor(place).dtype.size() + 4) * self.tensor(place).elements();
        KEY_GRADIENTS.into_iter().map(bytes).sum()
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
        let queries = piece.tensor(0).dims[2];
        AttentionCalls { piece, parts, steps, ranges: std::iter::once(0..queries).collect() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;

    /// Gradients of one head of keys, with 8 heads of queries.
    fn gradients(queries: u64, keys: u64, causal: bool) -> FusedAttention {
        let tensor = |heads, positions, size| Tensor::packed(DType::BF16, &[1, heads, positions, size]);
        let (q, k) = (tensor(8, queries, 64), tensor(1, keys, 64));
        let rows = Tensor::packed(DType::F32, &[1, 8, queries, 1]);
        let all = [q, k, k, q, rows, q, q, k, k];
        FusedAttention {
            form: AttentionForm::Backward,
            operands: (0..).zip(all).collect(),
            causal,
            window: 0,
            scale: 1.0,
            deterministic: true,
        }
    }

    #[test]
    fn ranges_cover_all_queries_within_the_scratch_memory() {
        for (queries, keys) in [(300, 300), (12_288, 12_288), (65_536, 40_001), (100_001, 9_000), (257, 4_000_000)] {
            let calls = gradients(queries, keys, false).calls(QuerySums::Stored);
            let mut next = 0;
            for range in &calls.ranges {
                assert_eq!(range.start, next);
                assert!(range.end > range.start);
                next = range.end;
            }
            assert_eq!(next, queries);
            let lengths: Vec<u64> = calls.ranges.iter().map(|range| range.end - range.start).collect();
            assert!(lengths[..lengths.len() - 1].iter().all(|&length| length == lengths[0]), "{lengths:?}");
            assert!(calls.ranges.iter().all(|range| range.start.is_multiple_of(RANGE_QUERIES)), "{lengths:?}");
            let shortest = lengths[0] <= RANGE_QUERIES;
            assert!(calls.scratch(QuerySums::Stored) <= MAX_SCRATCH || shortest, "{queries} x {keys}: {lengths:?}");
        }
    }

    #[test]
    fn a_range_begins_at_its_queries_and_sees_all_keys() {
        let piece = gradients(1000, 700, false);
        let QueryRange { attention, starts } = piece.of_queries(&(256..512));
        assert_eq!(attention.tensor(0).dims[2], 256);
        assert_eq!(attention.tensor(1).dims[2], 700);
        // Heads stay as far apart as in the whole.
        assert_eq!(attention.tensor(0).strides, piece.tensor(0).strides);
        assert_eq!(starts, [256 * 64 * 2, 0, 0, 256 * 64 * 2, 256 * 4, 256 * 64 * 2, 256 * 64 * 2, 0, 0]);
    }

    #[test]
    fn causal_gradients_are_one_call() {
        assert_eq!(gradients(65_536, 65_536, true).calls(QuerySums::Stored).ranges.len(), 1);
    }
}
