//! Chains of operations that `--fuse` would merge.

use crate::base::OpId;
use crate::ops::Spec;

use super::scene::{Found, Scene};

/// Finds the chains that fusion merges in this slot.
pub fn find(scene: &Scene) -> Vec<Found> {
    scene.chains.iter().map(|(members, spec)| one(scene, members, spec)).collect()
}

fn one(scene: &Scene, members: &[OpId], spec: &Spec) -> Found {
    let (&last, before) = members.split_last().expect("a chain has operations");
    let mut changes: Vec<(OpId, Option<Spec>)> = before.iter().map(|&op| (op, None)).collect();
    changes.push((last, Some(spec.clone())));
    let names: Vec<String> = scene.names(members);
    let place = |&op: &OpId| (scene.span(op), scene.spec(op).map_or("", |spec| spec.name()).to_owned());
    Found {
        message: format!("`--fuse` would merge {} into one `{}`", super::list(&names), spec.operation.name()),
        help: "run it with `--fuse`; `aorta plan --fuse` lists all that it merges".to_owned(),
        places: members.iter().map(place).collect(),
        changes,
    }
}
