//! `attention`: for each query the mean of values, weighted by the softmax of its products with keys.

mod backward_kernel;
mod backward_reference;
mod backward_text;
mod fused;
mod gradient;
mod kernel;
mod paged;
mod ragged;
mod reference;
mod shape;
mod text;

use crate::base::{DType, Dims};

use super::occupancy::WARP;
use super::*;
pub use gradient::AttentionBackward;
use kernel::Split;
pub use paged::PagedAttention;
pub use ragged::RaggedAttention;
use shape::{Axes, Shape};

/// `attention(q, k, v -> o, lse)`, as `torch.nn.functional.scaled_dot_product_attention`.
pub struct Attention;

/// The most positions in all heads of queries that share a head of keys, since kernels number these by 32 bits.
const MOST_POSITIONS: u64 = 1 << 30;

/// The most elements of a head, since 32 threads hold them in registers.
const LARGEST_HEAD: u64 = 1024;

impl Operation for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn summary(&self) -> &'static str {
        "scaled dot product attention, softmax(q kᵀ · scale) v, with optional causal mask and sliding window; also returns the \
         logsumexp of each query"
    }

    fn category(&self) -> Category {
        Category::Matrix
    }

    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                inputs: &[Input::Tensor("q"), Input::Tensor("k"), Input::Tensor("v")],
                outputs: &["o", "lse"],
                options: OPTIONS,
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_attention()?;
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

    /// By the first dimension, if it is that of a batch.
    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (spec.inputs[0].dims.len() > 3).then(|| Pieces::Rows(vec![true; spec.inputs.len()]))
    }

    /// A library's call, or one kernel; where few rows see many keys, blocks share the keys of a row, and a second kernel joins
    /// what they found.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let kernels = Split::of(spec).kernels(spec);
        fused::launches(FusedAttention::of(spec, AttentionForm::Forward, &[0, 1, 2, 3, 4]), kernels)
    }

    fn outputs(&self, _: &Attrs, _: usize, _: usize) -> usize {
        2
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::attention(rule)
    }
}

/// The dimensions of the mean values and of their logarithms.
fn results(call: &Call, q: &Tensor, v: &Tensor) -> (Dims, Dims) {
    let (axes, last) = (Axes::of(call.attrs, q.dims.len()), q.dims.len() - 1);
    let (mut dims, mut rows) =
        (q.dims, Dims::from_slice(&q.dims[..last]).expect("fewer dimensions than the queries have"));
    dims.set(last, v.dims[last]);
    if let Some(heads) = axes.heads {
        rows.set(last - 2, q.dims[heads]);
        rows.set(last - 1, q.dims[axes.positions]);
    }
    (dims, rows)
}

/// The word of `layout` for heads behind positions.
const POSITIONS_FIRST: &str = "positions_first";

/// The words of `algorithm` for the kernels of aorta, and for the plain kernel among them.
const FUSED: &str = "fused";
const NAIVE: &str = "naive";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::bool("causal", false, "causal mask, aligned at the last query and the last key"),
    OptionSpec::int(
        "window",
        0,
        MOST_POSITIONS as i64,
        0,
        "sliding window: the number of keys that a causal query attends to, its own position included; 0 for all",
    ),
    OptionSpec::word(
        "layout",
        &["heads_first", POSITIONS_FIRST],
        "`[.., heads, positions, d]`, or `[.., positions, heads, d]` as projections have it; `lse` is `[.., heads, queries]`",
    ),
    OptionSpec::word(
        "algorithm",
        &["auto", FUSED, NAIVE],
        "`auto` takes the faster of the library's engines and the kernels of aorta; `fused` these kernels; `naive` the plain kernel, \
         which multiplies without matrix units",
    ),
    OptionSpec::number(
        "scale",
        0.0,
        "scaling factor of the products; 0 (the default) means `1 / sqrt(d)`, where d is the head dimension",
    ),
];

impl Call<'_> {
    /// The types and dimensions of the mean values and of their logarithms.
    fn infer_results(&self) -> Result<Vec<(DType, Dims)>, OpError> {
        let [q, v] = [0, 2].map(|input| self.inputs[input].tensor);
        if let Some(output) = &self.outputs[0] {
            self.needs_dtype(output, output.tensor.dtype.is_float(), "a floating-point output")?;
        }
        let (dims, rows) = results(self, &q, &v);
        let o = self.output(0, self.given_dtype(0).unwrap_or(q.dtype), dims)?;
        Ok(vec![o, self.output(1, q.dtype.compute(), rows)?])
    }

    /// The types and dimensions of the gradients. `more` are the places of `o`, `lse`, `dy` and `dlse`; the last may be absent.
    fn infer_gradients(&self, more: &[usize; 4]) -> Result<Vec<(DType, Dims)>, OpError> {
        let [q, k, v] = [0, 1, 2].map(|input| self.inputs[input].tensor);
        let (o, rows) = results(self, &q, &v);
        let wanted = [(q.dtype, o), (q.dtype.compute(), rows), (q.dtype, o), (q.dtype.compute(), rows)];
        for (&index, (dtype, dims)) in more.iter().zip(wanted) {
            let Some(found) = self.inputs.get(index).map(|input| &input.tensor) else { continue };
            if (found.dtype, found.dims) != (dtype, dims) {
                let help = format!("for these queries and values it has to be {dtype}{dims}");
                return Err(self.differs(0, format!("the queries are {q}"), index, format!("this is {found}"), &help));
            }
        }
        let types = [q, k, v].into_iter().enumerate().map(|(index, tensor)| {
            if let Some(output) = &self.outputs[index] {
                self.needs_dtype(output, output.tensor.dtype.is_float(), "a floating-point output")?;
            }
            self.output(index, self.given_dtype(index).unwrap_or(tensor.dtype), tensor.dims)
        });
        types.collect()
    }

    /// Fails unless queries, keys and values of the same sequences fit together, and the options make sense.
    fn needs_attention(&self) -> Result<(), OpError> {
        let q = &self.inputs[0].tensor;
        let rank = q.dims.len();
        for (index, name) in [(1, "keys"), (2, "values")] {
            let other = &self.inputs[index].tensor;
            if other.dims.len() != rank || other.dims[..rank.saturating_sub(3)] != q.dims[..rank.saturating_sub(3)] {
                let help = "all have the same dimensions before those of heads, positions and elements: \
                            q[.., heads, queries, d], k[.., kv_heads, keys, d], or positions first by `layout`";
                let found = format!("these {name} are {other}");
                return Err(self.differs(0, format!("this is {q}"), index, found, help));
            }
        }
        self.needs_heads()
    }

    /// Fails unless heads of queries, keys and values fit together, and the options make sense.
    fn needs_heads(&self) -> Result<(), OpError> {
        for index in 0..3 {
            self.needs_dtype(
                &self.inputs[index],
                self.inputs[index].tensor.dtype.is_float(),
                "floating-point queries, keys and values",
            )?;
            self.needs_rank(index, 2, "positions and the elements of a head")?;
        }
        let q = &self.inputs[0].tensor;
        let rank = q.dims.len();
        for (index, name) in [(1, "keys"), (2, "values")] {
            let other = &self.inputs[index].tensor;
            let found = |text: String| format!("these {name} {text}");
            if other.dtype != q.dtype {
                let help = "queries, keys and values need the same element type; `cast(x -> y)` changes one";
                return Err(self.differs(
                    0,
                    format!("this is {}", q.dtype),
                    index,
                    found(format!("are {}", other.dtype)),
                    help,
                ));
            }
        }
        let [k, v] = [1, 2].map(|index| &self.inputs[index].tensor);
        if k.dims[rank - 1] != q.dims[rank - 1] {
            let help = "a query and a key have as many elements, since their product is a sum over them";
            let (left, right) = (q.dims[rank - 1], k.dims[rank - 1]);
            let found = format!("these keys have {right} elements");
            return Err(self.differs(0, format!("these queries have {left} elements"), 1, found, help));
        }
        if k.dims[..rank - 1] != v.dims[..rank - 1] {
            let help = "there is a value for each key, so all their dimensions but the last are alike";
            return Err(self.differs(1, format!("the keys are {k}"), 2, format!("the values are {v}"), help));
        }
        let axes = Axes::of(self.attrs, rank);
        let [heads, shared] = [q, k].map(|tensor| axes.heads_of(&tensor.dims));
        if !heads.is_multiple_of(shared.max(1)) {
            let help = "heads of queries share those of keys in groups of one size: \
                        write a number of heads that the keys' divides";
            return Err(self.differs(
                0,
                format!("{heads} heads of queries"),
                1,
                format!("{shared} heads of keys"),
                help,
            ));
        }
        let group = heads / shared.max(1);
        for input in &self.inputs[..3] {
            let (positions, size) = (input.tensor.dims[axes.positions], input.tensor.dims[rank - 1]);
            let needs = if size > LARGEST_HEAD {
                format!("heads of at most {LARGEST_HEAD} elements")
            } else if positions.saturating_mul(group) > MOST_POSITIONS {
                format!("at most {MOST_POSITIONS} positions in all {group} heads of queries that share a head of keys")
            } else {
                continue;
            };
            let (op, found) = (self.operation.name(), input.tensor.to_string());
            return Err(OpError::Rank { op, needs, found, at: input.span.into() });
        }
        let scale = self.attrs.number("scale");
        if !(0.0..=1e30).contains(&scale) {
            let why = format!("{scale} is not a factor between 0 and 1e30");
            return Err(self.bad_option("scale", why, "write a positive number, or remove it for `1 / sqrt(d)`"));
        }
        if self.attrs.int("window") > 0 && !self.attrs.bool("causal") {
            let why = "only causal queries have a window".to_owned();
            return Err(self.bad_option("window", why, "add `causal: true`, or remove `window`"));
        }
        Ok(())
    }
}
