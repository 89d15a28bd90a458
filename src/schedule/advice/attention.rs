//! A product, its softmax and another product, which one `attention` would replace without storing the scores.

use crate::base::{Bytes, OpId};
use crate::ops::{Attr, Spec, dims_order, exchanges_last};
use crate::plan::InputUse;

use super::scene::{MaskEffect, Savings, Scene};

/// Finds products of queries with keys, followed by a softmax and a product with values, whose intermediate results
/// nothing else reads.
pub fn find(scene: &Scene) -> Vec<Savings> {
    scene.step.ids().filter_map(|op| around(scene, op)).collect()
}

/// The operations of an attention, collected from its softmax in both directions.
struct AttentionChain {
    /// Operations of the attention except its last product.
    ops: Vec<OpId>,
    scale: f64,
    causal: bool,
}

impl AttentionChain {
    /// Adds a factor, and possibly a mask, of the scores or of the queries.
    fn multiply(&mut self, op: OpId, factor: &MaskEffect) {
        self.ops.push(op);
        self.scale *= factor.scale;
        self.causal |= factor.causal;
    }
}

/// The attention that contains a softmax; `None` if its neighbours do not form one.
fn around(scene: &Scene, softmax: OpId) -> Option<Savings> {
    let spec = scene.named(softmax, "softmax")?;
    let mut chain = AttentionChain { ops: vec![softmax], scale: spec.attrs.number("scale"), causal: false };
    let scores = scores(scene, softmax, &mut chain)?;
    let values = weighed(scene, softmax, &mut chain)?;

    let products = scene.spec(scores)?;
    let queries = queries(scene, scores, &mut chain)?;
    let keys = keys(scene, scores, &mut chain)?;
    let mut ends = AttentionOperands {
        inputs: [queries, keys, InputUse { op: values, input: 1 }],
        output: values,
        options: Vec::new(),
    };
    ends.before_transposes(scene, &mut chain);
    let AttentionOperands { inputs, output, options } = ends;
    if chain.ops.iter().any(|&op| scene.stream(op) != scene.stream(values)) {
        return None;
    }
    let result = scene.output(output);
    let is_kept = |reader: &InputUse| {
        let view = scene.input(*reader);
        scene.kept(view, reader.op, values) && !scene.program.views.overlap(view, result)
    };
    if !inputs.iter().all(is_kept) || !scene.flow.untouched(scene.slot, result, (values, output), true) {
        return None;
    }
    let tensors = inputs.map(|reader| scene.spec(reader.op).map(|spec| spec.inputs[reader.input]));
    let tensors: Vec<_> = tensors.into_iter().collect::<Option<_>>()?;
    let size = *tensors[0].dims.last()? as f64;
    let usual = (chain.scale * size.sqrt() - 1.0).abs() < 1e-6;
    let given = if usual { 0.0 } else { chain.scale };
    let mut all = vec![("causal", Attr::Bool(chain.causal)), ("scale", Attr::number(given))];
    all.extend(options.iter().map(|&(name, word)| (name, Attr::Word(word))));
    let attention = Spec::of_use("attention", &all, tensors, &[Some(scene.spec(output)?.outputs[0]), None])?;

    let names = inputs.map(|reader| scene.operand(reader));
    let names = ["q", "k", "v"].iter().zip(&names).map(|(plain, name)| name.clone().unwrap_or((*plain).to_owned()));
    let mut call = names.collect::<Vec<_>>().join(", ");
    if chain.causal {
        call += ", causal: true";
    }
    options.iter().for_each(|(name, word)| call += &format!(", {name}: {word}"));
    if !usual {
        call += &format!(", scale: {}", chain.scale);
    }
    let count = chain.ops.len() + 1;
    let bytes = Bytes(products.outputs[0].bytes());
    let help = format!("write `attention({call})` in their place, which keeps the scores ({bytes}) out of memory");
    let places = vec![
        (scene.span(scores), "products of queries and keys".to_owned()),
        (scene.span(softmax), "their weights".to_owned()),
        (scene.span(values), "weighted sums of values".to_owned()),
    ];
    let mut changes: Vec<(OpId, Option<Spec>)> = chain.ops.iter().map(|&op| (op, None)).collect();
    changes.push((values, Some(attention)));
    let [first, second, third] = [scores, softmax, values].map(|op| scene.name(op));
    let message = format!("`{first}`, `{second}` and `{third}` compute an attention in {count} operations");
    Some(Savings { message, help, places, changes })
}

/// The operands of an attention.
struct AttentionOperands {
    inputs: [InputUse; 3],
    /// The operation whose result becomes that of the attention.
    output: OpId,
    options: Vec<(&'static str, &'static str)>,
}

impl AttentionOperands {
    /// Replaces the operands by those before the transposes that move heads before positions, and the output by that of the
    /// transpose after the last product: `attention` has an option for this layout. Returns `None`, and changes nothing, unless
    /// all four transposes exist.
    fn before_transposes(&mut self, scene: &Scene, chain: &mut AttentionChain) -> Option<()> {
        let swaps = |op: OpId| {
            let order = dims_order(scene.spec(op)?)?;
            let mut heads: Vec<usize> = (0..order.len()).collect();
            let rank = heads.len().checked_sub(3)?;
            heads.swap(rank, rank + 1);
            (order == heads).then_some(op)
        };
        let mut inputs = self.inputs;
        for reader in &mut inputs {
            let op = scene.source(*reader).filter(|&op| scene.reader(op) == Some(*reader)).and_then(swaps)?;
            let same = scene.spec(reader.op)?.inputs[reader.input].dims == scene.spec(op)?.outputs[0].dims;
            *reader = same.then_some(InputUse { op, input: 0 })?;
        }
        let last = scene.reader(self.output)?;
        let same = scene.spec(last.op)?.inputs.first()?.dims == scene.spec(self.output)?.outputs[0].dims;
        let output = swaps(last.op).filter(|_| same)?;
        chain.ops.extend(inputs.map(|reader| reader.op));
        chain.ops.push(output);
        *self = AttentionOperands { inputs, output, options: vec![("layout", "positions_first")] };
        Some(())
    }
}

/// True if an operation is a product of two matrices and nothing else.
fn is_plain(spec: &Spec) -> bool {
    spec.inputs.len() == 2
        && !spec.attrs.bool("accumulate")
        && !spec.attrs.bool("transpose_a")
        && spec.attrs.word("epilogue") == "none"
}

/// The product whose results the softmax reads, through factors, a mask and casts that nothing else reads; `None` if the
/// operations have another form.
fn scores(scene: &Scene, softmax: OpId, chain: &mut AttentionChain) -> Option<OpId> {
    let mut reader = InputUse { op: softmax, input: 0 };
    loop {
        let op = scene.source(reader)?;
        if scene.reader(op)? != reader {
            return None;
        }
        if scene.named(op, "gemm").is_some_and(is_plain) {
            chain.ops.push(op);
            return Some(op);
        }
        reader = before(scene, op, chain)?;
    }
}

/// The operand of a cast, or of a `map` that is a factor with or without a mask; `None` for other operations.
fn before(scene: &Scene, op: OpId, chain: &mut AttentionChain) -> Option<InputUse> {
    if let Some(cast) = scene.named(op, "cast") {
        chain.ops.push(op);
        return (cast.inputs[0].dtype.is_float() && cast.outputs[0].dtype.is_float())
            .then_some(InputUse { op, input: 0 });
    }
    let factor = MaskEffect::of(scene, op)?;
    chain.multiply(op, &factor);
    Some(InputUse { op, input: factor.input })
}

/// The product that reads the softmax's results, perhaps through a cast; `None` if the operations have another form.
fn weighed(scene: &Scene, softmax: OpId, chain: &mut AttentionChain) -> Option<OpId> {
    let mut op = softmax;
    loop {
        let reader = scene.reader(op)?;
        let spec = scene.spec(reader.op)?;
        if scene.named(reader.op, "gemm").is_some_and(is_plain) {
            return (reader.input == 0 && !spec.attrs.bool("transpose_b")).then_some(reader.op);
        }
        scene.named(reader.op, "cast").filter(|cast| cast.outputs[0].dtype.is_float())?;
        chain.ops.push(reader.op);
        op = reader.op;
    }
}

/// The queries of a product; the input of the scaling if only this product reads its result.
fn queries(scene: &Scene, scores: OpId, chain: &mut AttentionChain) -> Option<InputUse> {
    let reader = InputUse { op: scores, input: 0 };
    let scaled = scene.source(reader).filter(|&op| scene.reader(op) == Some(reader));
    let factor = scaled.and_then(|op| Some((op, MaskEffect::of(scene, op).filter(|factor| !factor.causal)?)));
    let Some((op, factor)) = factor else { return Some(reader) };
    let spec = scene.spec(op)?;
    let before = InputUse { op, input: factor.input };
    let same = spec.inputs[factor.input].dtype == spec.outputs[0].dtype;
    // The elements of a head must be contiguous, as in the result.
    if !same || scene.spec(scores)?.inputs[0].dims != spec.outputs[0].dims {
        return Some(reader);
    }
    chain.multiply(op, &factor);
    Some(before)
}

/// The keys of a product, with one position per row; the input of the transpose if only this product reads its result.
fn keys(scene: &Scene, scores: OpId, chain: &mut AttentionChain) -> Option<InputUse> {
    let reader = InputUse { op: scores, input: 1 };
    if scene.spec(scores)?.attrs.bool("transpose_b") {
        return Some(reader);
    }
    let op = scene.source(reader)?;
    let is_transpose = exchanges_last(scene.spec(op)?) && scene.reader(op) == Some(reader);
    let same = scene.spec(scores)?.inputs[1].dims == scene.spec(op)?.outputs[0].dims;
    (is_transpose && same).then(|| chain.ops.push(op))?;
    Some(InputUse { op, input: 0 })
}
