//! Chains of operations that `--fuse` would merge.

use crate::base::{Bytes, OpId, Space, SrcSpan};
use crate::config::Profile;
use crate::fuse;
use crate::model::{Op, Program};
use crate::ops::Spec;
use crate::plan;

use super::super::{Schedule, ScheduleOptions, Topology, place};
use super::scene::{Savings, Scene};

/// Share by which device memory must grow to be mentioned.
const GROWTH: f64 = 0.01;

/// The device memory that the program needs without and with `--fuse`, as the end of a sentence. A merged operation keeps what its
/// members read until the last of them. `None` if fusion needs no more.
pub fn added_memory(program: &Program, schedule: &Schedule, profile: &Profile) -> Option<String> {
    let (fused, _) = fuse::fuse(program.clone());
    let plan = plan::build(&fused).ok()?;
    let options = ScheduleOptions { streams: Some(schedule.lanes.len() as u32), ..ScheduleOptions::default() };
    let after = place(&fused, &plan, Topology::of(profile), &options).bytes(Space::Device);
    let before = schedule.bytes(Space::Device);
    let grows = after as f64 > (1.0 + GROWTH) * before as f64;
    grows.then(|| format!("; with all that it merges, device memory grows from {} to {}", Bytes(before), Bytes(after)))
}

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
