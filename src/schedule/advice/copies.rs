//! Copies and transposes whose readers could read the original: by a slice or a `view`, or by an option of a product.

use crate::base::{OpId, Space};
use crate::model::Sync;
use crate::ops::{Spec, exchanges_last, has_library_layout, keeps_order};
use crate::plan::InputUse;

use super::scene::{Savings, Scene, list};

/// Finds needless copies.
pub fn find(scene: &Scene) -> Vec<Savings> {
    scene.step.ids().filter_map(|op| viewed(scene, op).or_else(|| transposed(scene, op))).collect()
}

/// The readers of a copy's result, if they can read the original in its place: all on the copy's stream, and before the
/// original is overwritten. `None` if one of them cannot.
fn readers<'a>(scene: &Scene<'a>, op: OpId) -> Option<&'a [InputUse]> {
    let spec = scene.spec(op).filter(|spec| spec.threads.is_none())?;
    let (from, to) = (&spec.inputs[0], &spec.outputs[0]);
    let original = scene.input(InputUse { op, input: 0 });
    // If iterations overlap, a copy may let the next iteration overwrite the original.
    let settled = scene.program.step.sync == Sync::Iteration || scene.flow.constant(original);
    if from.dtype != to.dtype || from.space != Space::Device || to.space != Space::Device || !settled {
        return None;
    }
    let readers = scene.readers(op)?;
    let fits = |reader: &InputUse| {
        let outputs = scene.step.outputs(reader.op);
        scene.stream(reader.op) == scene.stream(op)
            && scene.kept(original, op, reader.op)
            && !outputs.iter().any(|&output| scene.program.views.overlap(output, original))
    };
    readers.iter().all(fits).then_some(readers)
}

/// The names of the operations that change.
fn names(scene: &Scene, changes: &[(OpId, Option<Spec>)]) -> String {
    let changed: Vec<OpId> = changes[1..].iter().map(|(op, _)| *op).collect();
    let mut names = scene.names(&changed);
    names.dedup();
    list(&names)
}

/// A copy whose readers could read a view of the original; `None` for others.
fn viewed(scene: &Scene, op: OpId) -> Option<Savings> {
    let spec = scene.spec(op).filter(|spec| keeps_order(spec))?;
    let original = spec.inputs[0];
    let mut changes = vec![(op, None)];
    changes.extend(scene.reading(readers(scene, op)?, &original)?);
    let named = scene.operand(InputUse { op, input: 0 });
    let dims = spec.outputs[0].dims;
    let form = match named {
        None => "the original".to_owned(),
        Some(named) if original.dims == dims => format!("`{named}`"),
        Some(named) => format!("`view({named}, {dims})`"),
    };
    let readers = names(scene, &changes);
    Some(Savings {
        message: format!("`{}` moves elements that {readers} can read where they are", scene.name(op)),
        help: format!("let {readers} read {form}"),
        places: vec![(scene.span(op), "nobody changes the original or the copy before it is read".to_owned())],
        changes,
    })
}

/// A transpose whose readers are products, which can read the matrix without it by an option.
fn transposed(scene: &Scene, op: OpId) -> Option<Savings> {
    let spec = scene.spec(op).filter(|spec| exchanges_last(spec))?;
    let mut changes = vec![(op, None)];
    let mut options = Vec::new();
    for reader in readers(scene, op)? {
        let product = scene.spec(reader.op)?;
        let name = ["transpose_a", "transpose_b"].get(reader.input)?;
        let value = !product.option(name)?;
        let mut inputs = product.inputs.clone();
        // A product that multiplies the matrix by itself would need both options at once.
        if changes.iter().any(|(known, _)| *known == reader.op) || inputs[reader.input].dims != spec.outputs[0].dims {
            return None;
        }
        inputs[reader.input] = spec.inputs[0];
        let changed = product.with_option(name, value)?.on(inputs, scene.is_free(reader.op))?;
        if !has_library_layout(&changed) {
            return None;
        }
        changes.push((reader.op, Some(changed)));
        options.push(format!("`{name}: {value}`"));
    }
    options.dedup();
    let named = scene.operand(InputUse { op, input: 0 });
    let named = named.map_or_else(|| "the original".to_owned(), |named| format!("`{named}`"));
    let readers = names(scene, &changes);
    Some(Savings {
        message: format!("`{}` transposes a matrix for {readers}, which can do so while reading", scene.name(op)),
        help: format!("let {readers} read {named} with {}", options.join(" and ")),
        places: vec![(scene.span(op), "not needed in memory".to_owned())],
        changes,
    })
}
