//! Attention: for each query, the mean of the values, weighted by the softmax of the query's products with the keys.
//!
//! A single type implements `attention`, its variants for pages and for packed sequences, and their gradients, since these
//! operations share options, shape rules, references and kernels.

mod backward_kernel;
mod backward_reference;
mod backward_text;
mod bias_text;
mod composed;
mod composed_text;
mod cost;
mod fused;
mod infer;
mod kernel;
mod merge_text;
mod reference;
mod rows_text;
mod sequences_text;
mod shape;
mod softcap_text;
mod text;
mod tiles;
mod wide_text;

use super::kernels::occupancy::WARP;
use super::*;
use composed::Composed;
pub use shape::scores;
use shape::{Axes, Shape};

/// `attention`, as `torch.nn.functional.scaled_dot_product_attention`, and the operations that share its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// `attention(q, k, v, [bias] -> o, lse)`.
    Forward,
    /// `attention_backward(q, k, v, o, lse, dy, [dlse] -> dq, dk, dv)`.
    Backward,
    /// `biased_attention_backward(q, k, v, o, lse, dy, bias, [dlse] -> dq, dk, dv, ds)`.
    BiasedBackward,
    /// `paged_attention(q, k, v, pages, lengths -> o, lse)`: keys and values are blocks of a pool, as in vLLM's
    /// key-value cache.
    Paged,
    /// `ragged_attention(q, k, v, ends, key_ends -> o, lse)`: sequences of different lengths, packed one after another
    /// in one tensor.
    Ragged,
    /// `ragged_attention_backward(q, k, v, o, lse, dy, ends, key_ends, [dlse] -> dq, dk, dv)`.
    RaggedBackward,
}

/// Name of the input with numbers that are added to the scores.
const BIAS: &str = "bias";
/// Name of the input with the gradients of `lse`.
const DLSE: &str = "dlse";
/// Name of the input that lists the pages of each sequence.
const PAGES: &str = "pages";
/// Name of the input with the number of keys of each sequence.
const LENGTHS: &str = "lengths";
/// Name of the input with the end of the queries of each packed sequence.
const ENDS: &str = "ends";
/// Name of the input with the end of the keys of each packed sequence.
const KEY_ENDS: &str = "key_ends";

/// True if a tensor of a call holds the lengths of its sequences.
pub fn has_lengths(spec: &Spec) -> bool {
    let inputs = spec.operation.signature().inputs;
    inputs.iter().any(|input| matches!(input, Input::Tensor(LENGTHS | KEY_ENDS)))
}

/// Returns the index of the input with this name in a call with this number of inputs; `None` if the call does not have
/// it.
fn place(operation: &dyn Operation, inputs: usize, name: &str) -> Option<usize> {
    let is = |input: &Input| matches!(input, Input::Tensor(known) | Input::Optional(known) if *known == name);
    operation.signature().inputs.iter().position(is).filter(|place| *place < inputs)
}

/// Returns the index of the input with this name in a spec; `None` if the spec does not have it.
fn input(spec: &Spec, name: &str) -> Option<usize> {
    place(spec.operation, spec.inputs.len(), name)
}

impl Attention {
    /// True if the operation computes gradients.
    fn is_backward(self) -> bool {
        matches!(self, Attention::Backward | Attention::BiasedBackward | Attention::RaggedBackward)
    }

    /// Returns the library's matrix products for an attention; `None` if kernels or the library's fused attention
    /// compute it.
    fn composed(self, spec: &Spec) -> Option<Composed<'_>> {
        if FusedAttention::of(spec).is_some() {
            return None;
        }
        if self.is_backward() {
            let has_tiles = backward_kernel::BackwardPartition::of(spec).has_tiles();
            return if has_tiles { None } else { Composed::of(spec) };
        }
        let partition = kernel::ForwardPartition::of(spec);
        if partition.has_tiles() && !partition.is_wide() {
            return None;
        }
        let composed = Composed::of(spec)?;
        (!partition.is_wide() || cost::total_time(&composed.launch_costs()) < cost::total_time(&partition.costs(spec)))
            .then_some(composed)
    }

    /// Returns the cost of each kernel of this folder, or of all together.
    fn kernel_costs(self, spec: &Spec) -> Vec<Cost> {
        match self.is_backward() {
            true => backward_kernel::BackwardPartition::of(spec).costs(spec),
            false => kernel::ForwardPartition::of(spec).costs(spec),
        }
    }
}

impl Operation for Attention {
    fn signature(&self) -> &'static Signature {
        const Q: Input = Input::Tensor("q");
        const K: Input = Input::Tensor("k");
        const V: Input = Input::Tensor("v");
        const O: Input = Input::Tensor("o");
        const LSE: Input = Input::Tensor("lse");
        const DY: Input = Input::Tensor("dy");
        const OF_LSE: Input = Input::Optional(DLSE);
        const FORWARD: Signature = Signature {
            name: "attention",
            summary: "scaled dot product attention, softmax(q kᵀ · scale + bias) v, with optional bias, causal mask and sliding \
                      window; also returns the logsumexp of each query",
            category: Category::Matrix,
            inputs: &[Q, K, V, Input::Optional(BIAS)],
            outputs: &["o", "lse"],
            options: OPTIONS,
        };
        const BACKWARD: Signature = Signature {
            name: "attention_backward",
            summary: "the gradients of `attention` with respect to `q`, `k` and `v`; recomputes the attention weights from `lse`",
            inputs: &[Q, K, V, O, LSE, DY, OF_LSE],
            outputs: &["dq", "dk", "dv"],
            ..FORWARD
        };
        const BIASED_BACKWARD: Signature = Signature {
            name: "biased_attention_backward",
            summary: "the gradients of `attention` with a bias: those of `attention_backward`, and `ds`, those of the biased scores",
            inputs: &[Q, K, V, O, LSE, DY, Input::Tensor(BIAS), OF_LSE],
            outputs: &["dq", "dk", "dv", "ds"],
            ..FORWARD
        };
        const PAGED: Signature = Signature {
            name: "paged_attention",
            summary: "`attention` with a paged key-value cache: `pages` lists the blocks of each sequence, `lengths` its number of keys",
            inputs: &[Q, K, V, Input::Tensor(PAGES), Input::Tensor(LENGTHS)],
            ..FORWARD
        };
        const RAGGED: Signature = Signature {
            name: "ragged_attention",
            summary: "`attention` of packed sequences of different lengths in one tensor; `ends` and `key_ends` hold the end of each",
            inputs: &[Q, K, V, Input::Tensor(ENDS), Input::Tensor(KEY_ENDS)],
            ..FORWARD
        };
        const RAGGED_BACKWARD: Signature = Signature {
            name: "ragged_attention_backward",
            summary: "the gradients of `ragged_attention` with respect to `q`, `k` and `v`; recomputes the attention weights from `lse`",
            inputs: &[Q, K, V, O, LSE, DY, Input::Tensor(ENDS), Input::Tensor(KEY_ENDS), OF_LSE],
            ..BACKWARD
        };
        match self {
            Attention::Forward => &FORWARD,
            Attention::Backward => &BACKWARD,
            Attention::BiasedBackward => &BIASED_BACKWARD,
            Attention::Paged => &PAGED,
            Attention::Ragged => &RAGGED,
            Attention::RaggedBackward => &RAGGED_BACKWARD,
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        match self {
            Attention::Forward | Attention::Backward | Attention::BiasedBackward => {
                call.needs_attention()?;
                call.needs_bias()?;
            }
            Attention::Paged => call.needs_pages()?,
            Attention::Ragged | Attention::RaggedBackward => call.needs_sequences()?,
        }
        if self.is_backward() { call.infer_gradients() } else { call.infer_results() }
    }

    fn cost(&self, spec: &Spec) -> Cost {
        if let Some(composed) = self.composed(spec) {
            return composed.cost();
        }
        cost::cheaper(spec, &Shape::of(spec), self.kernel_costs(spec))
    }

    /// Returns the costs of the products and of the kernels between them, or of the kernels of attention; none if one launch, or
    /// launches of equal cost, compute attention.
    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        match self.composed(spec) {
            Some(composed) => composed.launch_costs(),
            None if FusedAttention::of(spec).is_some() => Vec::new(),
            None => self.kernel_costs(spec),
        }
    }

    fn sizing(&self, spec: &Spec) -> Vec<usize> {
        [LENGTHS, ENDS, KEY_ENDS].iter().filter_map(|name| input(spec, name)).collect()
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        match self.is_backward() {
            true => drop(backward_reference::gradients(spec, inputs, outputs, false)),
            false => drop(reference::attend(spec, inputs, outputs, false)),
        }
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let radii = match self.is_backward() {
            true => backward_reference::gradients(spec, inputs, outputs, true),
            false => reference::attend(spec, inputs, outputs, true).into(),
        };
        radii.into_iter().map(Tolerance::Within).collect()
    }

    /// Returns the division along the first dimension if it is the batch or the sequences. Each piece reads the whole
    /// pool, and the whole bias if it is broadcast along the batch.
    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let q = &spec.inputs[0].dims;
        match self {
            Attention::Paged => Some(Pieces::Rows(vec![true, false, false, true, true])),
            Attention::Ragged | Attention::RaggedBackward => None,
            _ if q.len() <= 3 => None,
            _ => {
                let bias = input(spec, BIAS);
                let of_piece = |place: usize, tensor: &Tensor| {
                    bias != Some(place) || (tensor.dims.len() == q.len() && tensor.dims[0] == q[0])
                };
                Some(Pieces::Rows(spec.inputs.iter().enumerate().map(|(place, one)| of_piece(place, one)).collect()))
            }
        }
    }

    /// Returns one launch for the library's attention, with the kernels that can replace it; or the kernels; or
    /// products with kernels between them.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        if let Some(composed) = self.composed(spec) {
            return composed.launches();
        }
        let kernels = match self.is_backward() {
            true => backward_kernel::BackwardPartition::of(spec).kernels(spec),
            false => kernel::ForwardPartition::of(spec).kernels(spec),
        };
        match FusedAttention::of(spec) {
            Some(fused) => vec![Launch::Attention(std::sync::Arc::new(fused), kernels)],
            None => kernels.into_iter().map(Launch::Kernel).collect(),
        }
    }

    fn implementation(&self, spec: &Spec) -> Option<&'static str> {
        let is_in_library = matches!(self, Attention::Forward | Attention::Backward | Attention::BiasedBackward);
        if is_in_library && spec.attrs.number(SOFTCAP) > 0.0 && fused::may_take(spec) {
            return Some("kernels of aorta, since the library is not asked for soft caps");
        }
        (input(spec, BIAS).is_some() && fused::may_take(spec) && FusedAttention::of(spec).is_none()).then_some(match self {
            Attention::BiasedBackward if spec.outputs.len() > 3 || input(spec, DLSE).is_some() => {
                "kernels of aorta, since the library is not asked for gradients of biased scores, and does not use those of `lse`"
            }
            _ => {
                "kernels of aorta, since the library takes a bias only of the queries' type, not broadcast along queries or keys, \
                 aligned to 16 bytes"
            }
        })
    }

    /// Returns the number of outputs of a call. The gradients of the biased scores are computed only if the call names
    /// them.
    fn outputs(&self, _: &Attrs, _: usize, given: usize) -> usize {
        let all = self.signature().outputs.len();
        if *self == Attention::BiasedBackward { given.clamp(all - 1, all) } else { all }
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        match self {
            Attention::Forward | Attention::Ragged => backward::attention(rule),
            Attention::Paged => {
                Err("keys and values of a pool serve inference; `attention` of keys and values in order has gradients")
            }
            _ => Err("gradients of gradients of attention are not in this version"),
        }
    }
}

/// Value of the option `layout` for tensors with positions before heads.
const POSITIONS_FIRST: &str = "positions_first";

/// Value of the option `algorithm` that takes the library's fused attention or kernels of aorta, whichever is faster.
const AUTO: &str = "auto";
/// Value of the option `algorithm` for the kernels of aorta.
const FUSED: &str = "fused";
/// Value of the option `algorithm` for the kernel without matrix units.
const NAIVE: &str = "naive";

/// Name of the option that limits scores.
const SOFTCAP: &str = "softcap";

/// Name of the option that requires sums in a fixed order.
const DETERMINISTIC: &str = "deterministic";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::bool("causal", false, "causal mask, aligned at the last query and the last key"),
    OptionSpec::int(
        "window",
        0,
        infer::MAX_POSITIONS as i64,
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
        &[AUTO, FUSED, NAIVE],
        "`auto` takes the faster of the library's engines and the kernels of aorta; `fused` these kernels; `naive` the plain kernel, \
         which multiplies without matrix units",
    ),
    OptionSpec::bool(
        DETERMINISTIC,
        true,
        "whether gradients have the same bits in every run; `false` lets a library add up those of the queries in any order",
    ),
    OptionSpec::number(
        "scale",
        0.0,
        "scaling factor of the products; 0 (the default) means `1 / sqrt(d)`, where d is the head dimension",
    ),
    OptionSpec::number(
        SOFTCAP,
        0.0,
        "soft cap: a score `s` becomes `softcap · tanh(s / softcap)` before the bias is added; 0 (the default) for none",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// By definition, each tensor counts once, whether or not the algorithm stores intermediate results.
    #[test]
    fn bytes_are_those_of_the_tensors() {
        let spec = |heads: u64, key_heads: u64, queries: u64, keys: u64, size: u64| {
            let tensor = |dims: &[u64]| Tensor::packed(DType::BF16, dims);
            let (q, k) = (tensor(&[heads, queries, size]), tensor(&[key_heads, keys, size]));
            let lse = Tensor::packed(DType::F32, &[heads, queries]);
            let attrs =
                [("layout", Attr::Word("heads_first")), ("algorithm", Attr::Word(AUTO)), ("scale", Attr::number(0.0))];
            let more = [("causal", Attr::Bool(false)), ("window", Attr::Int(0)), (DETERMINISTIC, Attr::Bool(true))];
            let attrs = Attrs::of([attrs.as_slice(), more.as_slice(), &[(SOFTCAP, Attr::number(0.0))]].concat());
            Spec::new(&Attention::Forward, attrs, vec![q, k, k], vec![q, lse])
        };
        let mut stores = [false; 2];
        // Few queries whose blocks share keys, wide heads, and many queries.
        for spec in [spec(32, 8, 16, 4096, 128), spec(128, 1, 1, 4096, 576), spec(16, 16, 1024, 1024, 64)] {
            let cost = spec.cost();
            assert_eq!(cost.bytes(), Spec::bytes_of(&spec.inputs).total() + Spec::bytes_of(&spec.outputs).total());
            stores[usize::from(cost.scratch != Traffic::NONE)] = true;
        }
        assert_eq!(stores, [true, true]);
    }
}
