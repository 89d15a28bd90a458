//! Attention and its gradients as graphs of cuDNN.
//!
//! The library recognizes these graphs by their form and computes each with kernels that keep scores in on-chip memory.
//! The gradients of queries are computed by a product with the gradients of all scores, which are stored in the
//! workspace. With `deterministic: false`, the library may also sum them with atomics, in an arbitrary order.

use std::sync::Arc;

use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Call, EngineNumber};
use crate::ops::{AttentionCalls, AttentionForm, FusedAttention, QuerySums};

use super::cudnn::Cudnn;
use super::cudnn_graph::{
    Element, EngineNote, EnginePlan, EngineSearch, Graph, GraphTensor, Pointwise, Reduction, Sizes, contiguous,
};

/// Maximum number of engines that are compiled for each form of a graph. Compiling one takes a second or two.
const ENGINES: usize = 2;

/// Attention, or its gradients, by one engine of the library.
pub struct EngineAttention {
    pub engine: EngineNumber,
    plan: EnginePlan,
    /// Number of parts of the batch, and of the heads. Each part is a call.
    parts: [u64; 2],
    /// Bytes between the parts of each operand: of the batch, and of the heads.
    steps: Vec<[u64; 2]>,
    /// Sizes in bytes of those operands of the graph that are in the workspace instead of the operation's memory.
    workspace_operands: Vec<u64>,
    /// Copies `lse` to the workspace, for gradients with a bias; `None` without one.
    copy_of_lse: Option<Arc<EnginePlan>>,
}

impl Cudnn {
    /// Returns attention by the engines that the library proposes, the most promising first: at most `wanted` for each
    /// form of the graph, and at most [`ENGINES`]. With `engine`, returns this engine alone. Fails with the library's
    /// reason if no engine is left.
    pub fn attentions(
        library: &Arc<Cudnn>,
        attention: &FusedAttention,
        workspace: u64,
        (wanted, engine): (u32, Option<EngineNumber>),
    ) -> Call<Vec<EngineAttention>> {
        let (mut all, mut failed) = (Vec::new(), None);
        let is_biased = attention.form == AttentionForm::Backward && attention.bias().is_some();
        for (number, form) in (0..).zip(forms(library, attention)) {
            if engine.is_some_and(|engine| engine.form != number) {
                continue;
            }
            let AttentionCalls { piece, parts, steps } = attention.calls(form.sums());
            let copy_of_lse = if is_biased { Some(Arc::new(finite_lse(library, &piece)?)) } else { None };
            let copied = if is_biased { 4 * piece.tensor(LSE).elements() + ALIGN } else { 0 };
            let workspace_operands = form.workspace_operands(&piece);
            let graph = match form {
                GraphForm::Forward => forward(library, &piece),
                GraphForm::Stored => backward(library, &piece, false),
                GraphForm::Atomic => backward(library, &piece, true),
            };
            let left =
                workspace.saturating_sub(workspace_operands.iter().map(|bytes| bytes + ALIGN).sum::<u64>() + copied);
            let most = ENGINES.min(wanted.max(1) as usize);
            let search = EngineSearch {
                workspace: left,
                wanted: most,
                excluded: if attention.deterministic { &[EngineNote::Nondeterministic] } else { &[] },
                engine: engine.map(|engine| engine.number),
                exhaustive: false,
            };
            match graph.and_then(|graph| graph.plans(&search)) {
                Ok(plans) => all.extend(plans.into_iter().map(|plan| EngineAttention {
                    engine: EngineNumber { form: number, number: plan.engine },
                    plan,
                    parts,
                    steps: steps.clone(),
                    workspace_operands: workspace_operands.clone(),
                    copy_of_lse: copy_of_lse.clone(),
                })),
                Err(fault) => failed = Some(fault),
            }
        }
        match failed {
            Some(fault) if all.is_empty() => Err(fault),
            _ => Ok(all),
        }
    }
}

/// First version of cuDNN that itself clears the sums of the queries' gradients before it adds to them atomically.
const ATOMIC_SINCE: usize = 90_600;

/// The graph by which the library computes attention or its gradients.
#[derive(Clone, Copy)]
enum GraphForm {
    Forward,
    /// Gradients: those of the scores are stored, and their product with the keys gives the gradients of the queries.
    Stored,
    /// Gradients: atomics add up the gradients of the queries, in an arbitrary order.
    Atomic,
}

/// Returns the graphs that compute an attention, the most promising first.
fn forms(library: &Cudnn, attention: &FusedAttention) -> &'static [GraphForm] {
    match attention.form {
        AttentionForm::Forward => &[GraphForm::Forward],
        AttentionForm::Backward if attention.deterministic || library.release < ATOMIC_SINCE => &[GraphForm::Stored],
        AttentionForm::Backward => &[GraphForm::Atomic, GraphForm::Stored],
    }
}

impl GraphForm {
    /// Scratch memory that the library needs for this form to add up the gradients of the queries.
    fn sums(self) -> QuerySums {
        match self {
            GraphForm::Forward | GraphForm::Stored => QuerySums::Stored,
            GraphForm::Atomic => QuerySums::Atomic,
        }
    }

    /// Sizes in bytes of the graph's operands in the workspace: the row sums of `dy * o`, and the sums of the queries'
    /// gradients.
    fn workspace_operands(self, attention: &FusedAttention) -> Vec<u64> {
        let sums = |place: usize| 4 * attention.tensor(place).elements();
        match self {
            GraphForm::Forward => Vec::new(),
            GraphForm::Stored => vec![sums(4)],
            GraphForm::Atomic => vec![sums(4), sums(6)],
        }
    }
}

/// Alignment of an operand in the workspace, in bytes.
const ALIGN: u64 = 256;

/// Index of `lse` in the operands.
const LSE: usize = 4;

/// The least `lse` with which the library computes gradients: finite also as an exponent of 2. That of a query that attends to no
/// key is -inf, and its weights would be exp(-inf + inf) = NaN instead of 0.
const MIN_LSE: f32 = -2e38;

/// Keys of a tile of the library's kernels for gradients, and of each of its halves.
const TILE_KEYS: u64 = 128;
const HALF_TILE: u64 = 64;

/// Maximum number of operands of a graph.
const MAX_OPERANDS: usize = 12;

impl EngineAttention {
    /// Launches all calls, with the addresses of the operands.
    ///
    /// # Safety
    ///
    /// The addresses are device memory that holds the operands, the workspace has at least the size with which the engine was
    /// chosen, and the stream is alive.
    pub unsafe fn attend(&self, operands: &[u64], workspace: u64, stream: Stream) -> Call {
        let mut addresses = [0; MAX_OPERANDS];
        let [of_batch, of_heads] = self.parts;
        for (sample, head) in (0..of_batch).flat_map(|sample| (0..of_heads).map(move |head| (sample, head))) {
            for (place, (address, step)) in operands.iter().zip(&self.steps).enumerate() {
                addresses[place] = address + sample * step[0] + head * step[1];
            }
            let (mut count, mut free) = (operands.len(), workspace + self.plan.workspace);
            for bytes in &self.workspace_operands {
                addresses[count] = free.next_multiple_of(ALIGN);
                free = addresses[count] + bytes;
                count += 1;
            }
            if let Some(copy) = &self.copy_of_lse {
                let given = addresses[LSE];
                addresses[LSE] = free.next_multiple_of(ALIGN);
                // SAFETY: the caller vouches for memory and stream.
                unsafe { copy.execute(&[given, addresses[LSE]], workspace, stream)? };
            }
            // SAFETY: the caller vouches for memory and stream.
            unsafe { self.plan.execute(&addresses[..count], workspace, stream)? };
        }
        Ok(())
    }
}

/// Dimensions and types of the tensors in an attention call.
struct AttentionDims<'a> {
    attention: &'a FusedAttention,
    /// Dimensions of the scores: batch, heads, queries, keys.
    scores: Sizes,
    /// Dimensions of a tensor with one number per query, such as `lse`.
    rows: Sizes,
    /// Type of the operands.
    element: Element,
}

/// Exchanges the last two dimensions.
fn transposed(sizes: Sizes) -> Sizes {
    [sizes[0], sizes[1], sizes[3], sizes[2]]
}

impl<'a> AttentionDims<'a> {
    fn of(attention: &'a FusedAttention) -> AttentionDims<'a> {
        let [q, k] = [0, 1].map(|place| sizes(&attention.tensor(place).dims));
        AttentionDims {
            attention,
            scores: [q[0], q[1], q[2], k[2]],
            rows: [q[0], q[1], q[2], 1],
            element: Element::of(attention.tensor(0).dtype),
        }
    }

    /// Adds the operand with this number, transposed if `is_transposed`.
    fn operand(&self, graph: &mut Graph, place: usize, is_transposed: bool) -> Call<GraphTensor> {
        let tensor = self.attention.tensor(place);
        let (dims, strides) = (sizes(&tensor.dims), sizes(&tensor.strides));
        let (dims, strides) = if is_transposed { (transposed(dims), transposed(strides)) } else { (dims, strides) };
        graph.operand(dims, strides, Element::of(tensor.dtype))
    }

    fn score(
        &self,
        graph: &mut Graph,
        function: Pointwise,
        x: GraphTensor,
        b: Option<GraphTensor>,
    ) -> Call<GraphTensor> {
        let y = graph.virtual_tensor(self.scores, Element::F32)?;
        graph.pointwise(function, x, b, y, Element::F32)
    }

    /// Adds the scaled products of queries and keys, with the bias if there is one.
    fn biased_products(
        &self,
        graph: &mut Graph,
        q: GraphTensor,
        keys: GraphTensor,
        bias: Option<GraphTensor>,
    ) -> Call<GraphTensor> {
        let products = graph.virtual_tensor(self.scores, Element::F32)?;
        graph.multiply(q, keys, products)?;
        let scale = graph.number(self.attention.scale)?;
        let scaled = self.score(graph, Pointwise::Multiply, products, Some(scale))?;
        match bias {
            Some(bias) => self.score(graph, Pointwise::Add, scaled, Some(bias)),
            None => Ok(scaled),
        }
    }

    /// Masks scores beyond the last key or query. For some of these, the library (cuDNN 9.19 on an H100) computes
    /// gradients as if they were 0, which overflows to NaN if `lse` is less than -88. This concerns scores beside a
    /// single query. It also concerns the second half of a tile of keys where atomics add up the gradients of queries,
    /// unless a causal mask covers them.
    fn mask_padding(&self, graph: &mut Graph, mut scores: GraphTensor) -> Call<GraphTensor> {
        let FusedAttention { form, causal, deterministic, .. } = *self.attention;
        let [_, _, queries, keys] = self.scores;
        let half_empty = keys % TILE_KEYS == HALF_TILE && !causal && !deterministic;
        for (axis, size, masks) in [(3, keys, half_empty), (2, queries, queries == 1)] {
            if form == AttentionForm::Backward && masks {
                let index = graph.virtual_tensor(self.scores, Element::I32)?;
                let index = graph.index(scores, axis, index)?;
                let size = graph.integer(size as i32)?;
                scores = self.keep(graph, (Pointwise::Less, index, size), scores)?;
            }
        }
        Ok(scores)
    }

    /// Masks the keys after a query's own position, and those before its window.
    fn mask(&self, graph: &mut Graph, scores: GraphTensor) -> Call<GraphTensor> {
        let FusedAttention { causal, window, .. } = *self.attention;
        let scores = self.mask_padding(graph, scores)?;
        if !causal {
            return Ok(scores);
        }
        let (queries, keys) = (self.scores[2] as i32, self.scores[3] as i32);
        let (mut query, key) = self.indices(graph, scores)?;
        if queries != keys {
            for (function, size) in [(Pointwise::Add, keys), (Pointwise::Subtract, queries)] {
                let size = graph.integer(size)?;
                let moved = graph.virtual_tensor(self.scores, Element::I32)?;
                query = graph.pointwise(function, query, Some(size), moved, Element::I32)?;
            }
        }
        let masked = self.keep(graph, (Pointwise::GreaterOrEqual, query, key), scores)?;
        if window == 0 {
            return Ok(masked);
        }
        let (query, key) = self.indices(graph, masked)?;
        let first = graph.number((window as i64 - i64::from(keys) + i64::from(queries)) as f32)?;
        let moved = graph.virtual_tensor(self.scores, Element::F32)?;
        let key = graph.pointwise(Pointwise::Add, key, Some(first), moved, Element::F32)?;
        self.keep(graph, (Pointwise::Greater, key, query), masked)
    }

    /// Adds two tensors with the dimensions of the scores: the position of each score's query, and that of its key.
    fn indices(&self, graph: &mut Graph, scores: GraphTensor) -> Call<(GraphTensor, GraphTensor)> {
        let [query, key] =
            [graph.virtual_tensor(self.scores, Element::I32)?, graph.virtual_tensor(self.scores, Element::I32)?];
        Ok((graph.index(scores, 2, query)?, graph.index(scores, 3, key)?))
    }

    /// Replaces the scores for which a comparison fails by -inf.
    fn keep(
        &self,
        graph: &mut Graph,
        (compare, a, b): (Pointwise, GraphTensor, GraphTensor),
        scores: GraphTensor,
    ) -> Call<GraphTensor> {
        let holds = graph.virtual_tensor(self.scores, Element::BOOL)?;
        graph.pointwise(compare, a, Some(b), holds, Element::BOOL)?;
        let least = graph.number(f32::NEG_INFINITY)?;
        let kept = graph.virtual_tensor(self.scores, Element::F32)?;
        graph.select(holds, scores, least, kept)
    }
}

fn sizes(dims: &[u64]) -> Sizes {
    [dims[0], dims[1], dims[2], dims[3]]
}

/// Builds the forward graph. Operands in the order of their addresses: q, k, v, o, lse, and the bias if there is one.
fn forward(library: &Arc<Cudnn>, attention: &FusedAttention) -> Call<Graph> {
    let mut owned = Graph::new(library);
    let (graph, shape) = (&mut owned, AttentionDims::of(attention));
    let q = shape.operand(graph, 0, false)?;
    let keys = shape.operand(graph, 1, true)?;
    let [v, o, lse] =
        [shape.operand(graph, 2, false)?, shape.operand(graph, 3, false)?, shape.operand(graph, 4, false)?];
    let bias = attention.bias().map(|place| shape.operand(graph, place, false)).transpose()?;
    let scores = shape.biased_products(graph, q, keys, bias)?;
    let scores = shape.mask(graph, scores)?;
    let [top, sum, log] = [(); 3].map(|()| graph.virtual_tensor(shape.rows, Element::F32));
    let (top, sum, log) = (top?, sum?, log?);
    graph.reduce(Reduction::Max, scores, top)?;
    let relative = shape.score(graph, Pointwise::Subtract, scores, Some(top))?;
    let weights = shape.score(graph, Pointwise::Exp, relative, None)?;
    graph.reduce(Reduction::Sum, weights, sum)?;
    graph.pointwise(Pointwise::Log, sum, None, log, Element::F32)?;
    graph.pointwise(Pointwise::Add, top, Some(log), lse, Element::F32)?;
    let shares = graph.virtual_tensor(shape.scores, shape.element)?;
    graph.pointwise(Pointwise::Divide, weights, Some(sum), shares, Element::F32)?;
    graph.multiply(shares, v, o)?;
    Ok(owned)
}

/// Compiles the graph that copies `lse` and replaces numbers below [`MIN_LSE`]. It needs no workspace.
fn finite_lse(library: &Arc<Cudnn>, attention: &FusedAttention) -> Call<EnginePlan> {
    let count = AttentionDims::of(attention).rows.iter().product();
    // The library has engines for functions of elements whose second dimension is contiguous.
    let (dims, strides) = ([1, count, 1, 1], [count, 1, count, count]);
    let mut graph = Graph::new(library);
    let [lse, copy] = [graph.operand(dims, strides, Element::F32)?, graph.operand(dims, strides, Element::F32)?];
    let least = graph.number(MIN_LSE)?;
    graph.pointwise(Pointwise::Max, lse, Some(least), copy, Element::F32)?;
    let search = EngineSearch { workspace: 0, wanted: 1, excluded: &[], engine: None, exhaustive: false };
    Ok(graph.plans(&search)?.remove(0))
}

/// Builds the graph of the gradients. Operands in the order of their addresses: q, k, v, o, lse, dy, dq, dk, dv, the
/// bias if there is one, the row sums of `dy * o`, and with `atomic` the sums of the queries' gradients.
fn backward(library: &Arc<Cudnn>, attention: &FusedAttention, atomic: bool) -> Call<Graph> {
    let mut owned = Graph::new(library);
    let (graph, shape) = (&mut owned, AttentionDims::of(attention));
    let place = |graph: &mut Graph, place: usize| shape.operand(graph, place, (1..=2).contains(&place));
    let (q, keys, values) = (place(graph, 0)?, place(graph, 1)?, place(graph, 2)?);
    let (o, lse, dy) = (place(graph, 3)?, place(graph, 4)?, place(graph, 5)?);
    let (dq, dk, dv) = (place(graph, 6)?, place(graph, 7)?, place(graph, 8)?);
    let bias = attention.bias().map(|place| shape.operand(graph, place, false)).transpose()?;
    let sums = graph.operand(shape.rows, contiguous(shape.rows), Element::F32)?;

    let products = graph.virtual_tensor(sizes(&attention.tensor(3).dims), Element::F32)?;
    graph.pointwise(Pointwise::Multiply, dy, Some(o), products, Element::F32)?;
    let reduced = graph.virtual_tensor(shape.rows, Element::F32)?;
    graph.reduce(Reduction::Sum, products, reduced)?;
    let one = graph.number(1.0)?;
    graph.pointwise(Pointwise::Multiply, reduced, Some(one), sums, Element::F32)?;

    let scores = shape.biased_products(graph, q, keys, bias)?;
    let relative = shape.score(graph, Pointwise::Subtract, scores, Some(lse))?;
    let relative = shape.mask(graph, relative)?;
    let weights = shape.score(graph, Pointwise::Exp, relative, None)?;
    shape.of_keys(graph, (weights, dy), (dv, 8))?;

    let slopes = graph.virtual_tensor(shape.scores, Element::F32)?;
    graph.multiply(dy, values, slopes)?;
    let slopes = shape.score(graph, Pointwise::Subtract, slopes, Some(sums))?;
    let slopes = shape.score(graph, Pointwise::Multiply, slopes, Some(weights))?;
    let scale = graph.number(attention.scale)?;
    let slopes = shape.score(graph, Pointwise::Multiply, slopes, Some(scale))?;
    shape.of_keys(graph, (slopes, q), (dk, 7))?;

    let k = attention.tensor(1);
    let keys_again = graph.virtual_with(sizes(&k.dims), sizes(&k.strides), shape.element)?;
    graph.reshape(keys, keys_again)?;
    if !atomic {
        graph.multiply(slopes, keys_again, dq)?;
        return Ok(owned);
    }
    let dims = sizes(&attention.tensor(6).dims);
    let added = graph.operand(dims, contiguous(dims), Element::F32)?;
    graph.multiply(slopes, keys_again, added)?;
    graph.pointwise(Pointwise::Identity, added, None, dq, Element::F32)?;
    Ok(owned)
}

impl AttentionDims<'_> {
    /// Adds the product of the transposed scores with rows of queries: the gradient of the keys or of the values,
    /// summed over the heads of queries that share them. Each head's gradient is rounded to the operands' type before
    /// this sum; the error bound of verification relies on it (`ops/attention/backward_reference.rs`).
    fn of_keys(
        &self,
        graph: &mut Graph,
        (scores, rows): (GraphTensor, GraphTensor),
        (result, place): (GraphTensor, usize),
    ) -> Call {
        let [batch, heads, queries, keys] = self.scores;
        let strides = [heads * queries * keys, queries * keys, 1, keys];
        let across = graph.virtual_with(transposed(self.scores), strides, self.element)?;
        graph.reshape(scores, across)?;
        let dims = sizes(&self.attention.tensor(place).dims);
        if dims[1] == heads {
            graph.multiply(across, rows, result)?;
            return Ok(());
        }
        let each = graph.virtual_tensor([batch, heads, keys, dims[3]], self.element)?;
        graph.multiply(across, rows, each)?;
        graph.reduce(Reduction::Sum, each, result)?;
        Ok(())
    }
}
