//! `paged_attention`: attention whose keys and values lie in blocks of a pool, as servers of language models keep them.

use super::shape::Axes;
use super::*;

/// `paged_attention(q, k, v, pages, lengths -> o, lse)`.
pub struct PagedAttention;

impl PagedAttention {
    /// Whether a use is of this operation.
    pub fn is(spec: &Spec) -> bool {
        spec.operation.name() == PagedAttention.name()
    }
}

impl Operation for PagedAttention {
    fn name(&self) -> &'static str {
        "paged_attention"
    }

    fn summary(&self) -> &'static str {
        "`attention` with a paged key-value cache: `pages` lists the blocks of each sequence, `lengths` its number of keys"
    }

    fn category(&self) -> Category {
        Category::Matrix
    }

    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                inputs: &[
                    Input::Tensor("q"),
                    Input::Tensor("k"),
                    Input::Tensor("v"),
                    Input::Tensor("pages"),
                    Input::Tensor("lengths"),
                ],
                outputs: &["o", "lse"],
                options: OPTIONS,
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        let [q, k, pages] = [0, 1, 3].map(|input| &call.inputs[input].tensor);
        for (index, rank, needs) in [
            (0, 4, "four dimensions: sequences, heads, queries and elements"),
            (1, 4, "four dimensions: blocks of the pool, heads, keys of a block and elements"),
            (2, 4, "four dimensions: blocks of the pool, heads, keys of a block and elements"),
            (3, 2, "two dimensions: sequences and the blocks of each"),
            (4, 1, "one dimension: the number of keys of each sequence"),
        ] {
            let input = &call.inputs[index];
            if input.tensor.dims.len() != rank {
                let (op, needs, found) = (self.name(), needs.to_owned(), input.tensor.to_string());
                return Err(OpError::Rank { op, needs, found, at: input.span.into() });
            }
        }
        call.needs_indices(&call.inputs[3])?;
        call.needs_indices(&call.inputs[4])?;
        call.needs_heads()?;
        for (index, name) in [(3, "pages"), (4, "lengths")] {
            let found = call.inputs[index].tensor.dims[0];
            if found != q.dims[0] {
                let help = "each sequence has its queries, a row of pages and a number of keys";
                let (left, right) = (format!("{} sequences", q.dims[0]), format!("{name} of {found} sequences"));
                return Err(call.differs(0, left, index, right, help));
            }
        }
        let axes = Axes::of(call.attrs, 4);
        let keys = k.dims[axes.positions].saturating_mul(pages.dims[1]);
        let group = axes.heads_of(&q.dims) / axes.heads_of(&k.dims).max(1);
        if keys.saturating_mul(group) > MOST_POSITIONS || k.dims[0] > MOST_POSITIONS {
            let (op, found) = (self.name(), pages.to_string());
            let needs = format!("at most {MOST_POSITIONS} keys in the blocks of a sequence");
            return Err(OpError::Rank { op, needs, found, at: call.inputs[3].span.into() });
        }
        call.infer_results()
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Split::of(spec).cost(spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        reference::attend(spec, inputs, outputs, false);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        reference::attend(spec, inputs, outputs, true).map(Tolerance::Within).into()
    }

    /// By sequences: the pool belongs to all of them.
    fn pieces(&self, _: &Spec) -> Option<Pieces> {
        Some(Pieces::Rows(vec![true, false, false, true, true]))
    }

    /// As for `attention`, by the kernels of aorta.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        fused::launches(None, Split::of(spec).kernels(spec))
    }

    fn outputs(&self, _: &Attrs, _: usize, _: usize) -> usize {
        2
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("keys and values of a pool serve inference; `attention` of keys and values in order has gradients")
    }
}
