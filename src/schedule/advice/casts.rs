//! Needless casts: of values that never change, back to the original type, and for readers that accept the narrower
//! type.

use crate::base::{DType, OpId, ViewId};
use crate::model::MemoryKind;
use crate::ops::Spec;
use crate::plan::InputUse;

use super::scene::{Savings, Scene};

/// Finds needless casts.
pub fn find(scene: &Scene) -> Vec<Savings> {
    let casts: Vec<OpId> = scene.step.ids().filter(|&op| scene.named(op, "cast").is_some()).collect();
    // A round trip removes two casts, so it is preferred to advice about the first of them.
    let round_trips = casts.iter().filter_map(|&op| round_trip(scene, op));
    let others = casts.iter().filter_map(|&op| widened(scene, op).or_else(|| of_constant(scene, op)));
    round_trips.chain(others).collect()
}

/// Types before and after a cast.
fn types(spec: &Spec) -> (DType, DType) {
    (spec.inputs[0].dtype, spec.outputs[0].dtype)
}

/// True if `to` holds each value of `from` exactly.
fn holds_all(to: DType, from: DType) -> bool {
    let finer = || to.epsilon() <= from.epsilon() && to.smallest() <= from.smallest();
    to == from || to.is_float() && from.is_float() && to.size() > from.size() && finer()
}

/// A cast to a type that holds all values, and back: readers of the result can read the original; `None` if the operation is no such
/// cast.
fn round_trip(scene: &Scene, op: OpId) -> Option<Savings> {
    let (wide, narrow) = types(scene.spec(op)?);
    // A cast to the same type is a round trip by itself.
    let first = if wide == narrow { op } else { scene.source(InputUse { op, input: 0 })? };
    let before = types(scene.named(first, "cast")?);
    if first != op && (before != (narrow, wide) || !holds_all(wide, narrow)) {
        return None;
    }
    let reader = InputUse { op: first, input: 0 };
    let source = scene.input(reader);
    let readers = scene.readers(op)?;
    if !readers.iter().all(|&one| scene.kept(source, first, one.op) && !overwrites(scene, one, source)) {
        return None;
    }
    let mut changes = vec![(op, None)];
    changes.extend(scene.reading(readers, &scene.spec(first)?.inputs[0])?);
    if first != op && scene.reader(first).is_some() {
        changes.push((first, None));
    }
    let message = match first == op {
        true => format!("`{}` casts from {wide} to {narrow}, which is the same type", scene.name(op)),
        false => {
            format!("`{}` casts back to {narrow} what was {narrow} before `{}`", scene.name(op), scene.name(first))
        }
    };
    let mut places = vec![(scene.span(op), "adds nothing".to_owned())];
    if first != op {
        places.push((scene.span(first), format!("from {narrow} to {wide}, which holds each value exactly")));
    }
    let named = scene.operand(reader).map_or("its input".to_owned(), |name| format!("`{name}`"));
    Some(Savings { message, help: format!("let the operations behind it read {named}"), places, changes })
}

/// True if a reader also writes elements of a slice, so that it could not read the slice instead.
fn overwrites(scene: &Scene, reader: InputUse, view: ViewId) -> bool {
    scene.step.outputs(reader.op).iter().any(|&output| scene.program.views.overlap(output, view))
}

/// A cast to a wider type, all of whose readers take the narrower one and compute in the same precision; `None` if the
/// operation is no such cast.
fn widened(scene: &Scene, op: OpId) -> Option<Savings> {
    let (from, to) = types(scene.spec(op)?);
    if !holds_all(to, from) || from.compute() != to.compute() {
        return None;
    }
    let mut changes = vec![(op, None)];
    let mut names = Vec::new();
    for &reader in scene.readers(op)? {
        let (spec, others) = narrowed(scene, reader.op, from, to)?;
        if changes.iter().any(|(known, _)| *known == reader.op) {
            continue;
        }
        names.push(format!("`{}`", scene.name(reader.op)));
        changes.push((reader.op, Some(spec)));
        for other in others {
            if other != op && scene.readers(other).is_some_and(|all| all.iter().all(|one| one.op == reader.op)) {
                changes.push((other, None));
            }
        }
    }
    names.dedup();
    let casts: Vec<OpId> = changes.iter().filter(|(_, spec)| spec.is_none()).map(|(op, _)| *op).collect();
    let message = format!("`{}` casts to {to} what {} can read as {from}", scene.name(op), names.join(" and "));
    let places = casts.iter().map(|&cast| (scene.span(cast), format!("{from} to {to}"))).collect();
    let named: Vec<String> = casts.iter().filter_map(|&op| scene.operand(InputUse { op, input: 0 })).collect();
    let what = if named.is_empty() { "what is cast".to_owned() } else { format!("`{}`", named.join("` and `")) };
    Some(Savings {
        message,
        help: format!("let {} read {what}, and remove the cast", names.join(" and ")),
        places,
        changes,
    })
}

/// Returns the spec that an operation would have if it read the inputs of its casts from `from` to `to` instead of their results,
/// and these casts; `None` without such casts.
fn narrowed(scene: &Scene, op: OpId, from: DType, to: DType) -> Option<(Spec, Vec<OpId>)> {
    let spec = scene.spec(op).filter(|spec| spec.threads.is_none())?;
    let mut inputs = spec.inputs.clone();
    let mut casts = Vec::new();
    for (input, tensor) in inputs.iter_mut().enumerate() {
        let Some(cast) = scene.source(InputUse { op, input }) else { continue };
        let Some(before) = scene.named(cast, "cast").filter(|spec| types(spec) == (from, to)) else { continue };
        let source = scene.input(InputUse { op: cast, input: 0 });
        if tensor.dims != before.outputs[0].dims || !scene.kept(source, cast, op) {
            return None;
        }
        if overwrites(scene, InputUse { op, input }, source) {
            return None;
        }
        *tensor = before.inputs[0];
        casts.push(cast);
    }
    Some((spec.on(inputs, scene.is_free(op))?, casts))
}

/// A cast of memory that no iteration writes, so that each iteration casts the same values; `None` for others.
fn of_constant(scene: &Scene, op: OpId) -> Option<Savings> {
    let (from, to) = types(scene.spec(op)?);
    let reader = InputUse { op, input: 0 };
    let (source, result) = (scene.input(reader), scene.output(op));
    let program = scene.program;
    scene.readers(op)?;
    let writes = |&other: &OpId| {
        other != op && scene.step.outputs(other).iter().any(|&view| program.views.overlap(view, result))
    };
    let is_buffer = matches!(program.memory(program.views.memory(source)).kind, MemoryKind::Buffer(_));
    if !is_buffer || !scene.flow.constant(source) || program.cycle.len() > 1 || scene.step.ids().any(|op| writes(&op)) {
        return None;
    }
    let name = program.view_text(source);
    Some(Savings {
        message: format!(
            "`{}` casts `{name}` in each iteration, and no operation of the step writes it",
            scene.name(op)
        ),
        help: format!("if `{name}` holds weights, cast it once in `setup`, or declare it as {to}"),
        places: vec![(scene.span(op), format!("{from} to {to}, the same values each time"))],
        changes: vec![(op, None)],
    })
}
