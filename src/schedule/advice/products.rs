//! Products of one matrix with several others, which could be one product with all of them side by side.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::base::{Dims, OpId, StreamId, ViewId};
use crate::model::MemoryKind;
use crate::ops::{Spec, Tensor};
use crate::plan::InputUse;

use super::scene::{Savings, Scene, list};

/// Finds products that could be one.
pub fn find(scene: &Scene) -> Vec<Savings> {
    let mut alike: FxHashMap<(StreamId, ViewId), Vec<OpId>> = FxHashMap::default();
    let mut order = Vec::new();
    for op in scene.step.ids().filter(|&op| scene.named(op, "gemm").is_some_and(is_simple)) {
        let key = (scene.stream(op), scene.step.inputs(op)[0]);
        let group = alike.entry(key).or_insert_with(|| {
            order.push(key);
            Vec::new()
        });
        group.push(op);
    }
    order.into_iter().flat_map(|key| joined(scene, &alike[&key])).collect()
}

/// True if a product has a single matrix on the right and does not accumulate.
fn is_simple(spec: &Spec) -> bool {
    spec.inputs[1].dims.len() == 2 && !spec.attrs.bool("accumulate")
}

/// Returns the advice to join products that share the left matrix, one for each group that could be a single product.
fn joined(scene: &Scene, ops: &[OpId]) -> Vec<Savings> {
    let mut found = Vec::new();
    let mut rest = ops.to_vec();
    while let Some(&first) = rest.first() {
        let (mut group, mut others) = (vec![first], Vec::new());
        for &op in &rest[1..] {
            // Products whose weights overlap cannot lie side by side in one buffer.
            let again = group.iter().any(|&known| shares_weights(scene, known, op));
            let place = if !again && goes_with(scene, first, op) { &mut group } else { &mut others };
            place.push(op);
        }
        found.extend((group.len() > 1).then(|| joint_product(scene, &group)).flatten());
        rest = others;
    }
    found
}

/// True if the right matrices of two products have elements in common.
fn shares_weights(scene: &Scene, a: OpId, b: OpId) -> bool {
    scene.program.views.overlap(scene.step.inputs(a)[1], scene.step.inputs(b)[1])
}

/// True if a product could be computed together with an earlier one.
fn goes_with(scene: &Scene, first: OpId, op: OpId) -> bool {
    let (Some(a), Some(b)) = (scene.spec(first), scene.spec(op)) else { return false };
    let left = scene.step.inputs(first)[0];
    // The weights must already be written, in memory that the text can declare differently.
    let settled = |view: &ViewId| {
        let kind = &scene.program.memory(scene.program.views.memory(*view)).kind;
        *kind != MemoryKind::Scratch && scene.kept(*view, first, op)
    };
    a.attrs == b.attrs
        && a.inputs.len() == b.inputs.len()
        && a.inputs[1].dtype == b.inputs[1].dtype
        && a.outputs[0].dtype == b.outputs[0].dtype
        && scene.kept(left, first, op)
        && scene.step.inputs(op)[1..].iter().all(settled)
        && !scene.program.views.overlap(scene.output(first), left)
        && scene.flow.untouched(scene.slot, scene.output(op), (first, op), true)
}

/// Columns of a product's right matrix.
fn columns(spec: &Spec) -> u64 {
    let dims = &spec.outputs[0].dims;
    dims[dims.len() - 1]
}

/// A tensor with another size in its dimension `axis`, without gaps.
fn resized(tensor: &Tensor, axis: usize, size: u64) -> Tensor {
    let mut dims: Dims = tensor.dims;
    dims.set(axis, size);
    Tensor { dims, strides: dims.contiguous_strides(), ..*tensor }
}

/// The product of all right matrices side by side; `None` if a reader cannot take a part of its rows.
fn joint_product(scene: &Scene, group: &[OpId]) -> Option<Savings> {
    let specs: Vec<&Spec> = group.iter().filter_map(|&op| scene.spec(op)).collect();
    let all: u64 = specs.iter().map(|spec| columns(spec)).sum();
    let first = specs.first()?;
    let rank = first.outputs[0].dims.len();
    let output = resized(&first.outputs[0], rank - 1, all);
    let mut reading: BTreeMap<OpId, Spec> = BTreeMap::new();
    for (&op, spec) in group.iter().zip(&specs) {
        let part = Tensor { dims: spec.outputs[0].dims, ..output };
        let readers = scene.readers(op)?;
        if readers.iter().any(|reader| group.contains(&reader.op)) {
            return None;
        }
        for (reader, changed) in scene.reading(readers, &part)? {
            let (Some(changed), Some(spec)) = (changed, scene.spec(reader)) else { continue };
            // A reader of several products has a change for each.
            let spec = reading.entry(reader).or_insert_with(|| spec.clone());
            for read in readers.iter().filter(|read| read.op == reader) {
                spec.inputs[read.input] = changed.inputs[read.input];
            }
        }
    }
    let mut inputs = first.inputs.clone();
    inputs[1] = resized(&inputs[1], usize::from(!first.attrs.bool("transpose_b")), all);
    if let Some(bias) = inputs.get_mut(2) {
        *bias = resized(bias, 0, all);
    }
    let joint = Spec { inputs, ..(*first).clone() }.with_outputs(&[Some(output)])?;
    let mut changes: Vec<(OpId, Option<Spec>)> = group.iter().map(|&op| (op, None)).collect();
    changes[0].1 = Some(joint);
    changes.extend(reading.into_iter().map(|(op, spec)| (op, Some(spec))));
    let names = scene.names(group);
    let left = scene.operand(InputUse { op: group[0], input: 0 });
    let left = left.map_or("the same matrix".to_owned(), |name| format!("`{name}`"));
    let weights: Vec<String> = group
        .iter()
        .filter_map(|&op| scene.operand(InputUse { op, input: 1 }))
        .map(|name| format!("`{name}`"))
        .collect();
    let weights = if weights.is_empty() { "their weights".to_owned() } else { weights.join(", ") };
    let side = if first.attrs.bool("transpose_b") { "below each other" } else { "side by side" };
    Some(Savings {
        message: format!("{} multiply {left}, one after the other", list(&names)),
        help: format!("declare {weights} as one buffer, {side}, multiply once, and read slices of the product"),
        places: group
            .iter()
            .zip(&specs)
            .map(|(&op, spec)| (scene.span(op), format!("{} columns", columns(spec))))
            .collect(),
        changes,
    })
}
