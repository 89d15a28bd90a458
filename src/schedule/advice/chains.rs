//! Chains of operations that `--fuse` would merge.

use crate::base::{OpId, SrcSpan};
use crate::model::Op;
use crate::ops::Spec;

use super::scene::{Savings, Scene};

/// Finds the chains that fusion merges in this slot.
pub fn find(scene: &Scene) -> Vec<Savings> {
    scene.chains.iter().map(|(members, spec)| savings(scene, members, spec)).collect()
}

fn savings(scene: &Scene, members: &[OpId], spec: &Spec) -> Savings {
    let (&last, before) = members.split_last().expect("a chain has operations");
    let mut changes: Vec<(OpId, Option<Spec>)> = before.iter().map(|&op| (op, None)).collect();
    changes.push((last, Some(spec.clone())));
    let ops: Vec<Op> = members.iter().map(|&op| *scene.step.op(op)).collect();
    let mut places: Vec<(SrcSpan, String)> = Vec::new();
    for &op in members {
        // Operations of all turns of a loop have the same location, which is listed once.
        if !places.iter().any(|(span, _)| *span == scene.span(op)) {
            places.push((scene.span(op), scene.spec(op).map_or("", |spec| spec.name()).to_owned()));
        }
    }
    Savings {
        message: format!(
            "`--fuse` would merge the {} operations of `{}` into one `{}`",
            members.len(),
            scene.program.name_of(&ops),
            spec.operation.name()
        ),
        help: "run it with `--fuse`; `aorta plan --fuse` lists all that it merges".to_owned(),
        places,
        changes,
    }
}
