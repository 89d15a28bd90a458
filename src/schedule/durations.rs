//! How long each operation takes by the model when nothing runs beside it: the same figures for plans, advice and the
//! simulator.

use crate::base::Space;
use crate::config::Profile;
use crate::cost;
use crate::cost::cache::{self, Access};
use crate::model::{OpKind, Program};

use super::{Command, Schedule, StepSchedule};

/// For each iteration of the cycle the duration of each operation, by its number, in ns; 0 for markers. Each operation has
/// the device and all links alone, finds in the cache what the operations before it have left there, and meets no late
/// rank. `rank` is the one that runs the schedule.
pub fn durations(program: &Program, schedule: &Schedule, rank: u32, profile: &Profile) -> Vec<Vec<f64>> {
    let mut durations: Vec<Vec<f64>> = program.cycle.iter().map(|step| vec![0.0; step.ops.len()]).collect();
    let runs = || schedule.period.iter().flat_map(|planned| launches(program, planned));
    let access = |(planned, op, spec): Run| {
        let step = &program.cycle[planned.step];
        let views = step.inputs(op).iter().chain(step.outputs(op));
        let offsets = views.map(|&view| {
            let memory = program.views.memory(view);
            let layout = program.layout(memory);
            let (space, base) = schedule.memory.offset(memory, planned.copy);
            (space == Space::Device).then(|| base + program.views.offset(view, &layout.dims) * layout.dtype.size())
        });
        Access { spec: program.spec(spec), offsets: offsets.collect(), cold: false }
    };
    let shares = cache::shares(|| runs().map(access), profile);
    let members: Vec<Vec<u32>> = program.groups.iter().map(|group| group.members_with(rank).collect()).collect();
    let mut known = rustc_hash::FxHashMap::default();
    for ((planned, op, spec), share) in runs().zip(shares) {
        let duration = *known.entry((spec, share)).or_insert_with(|| {
            let cached = f64::from(share) / f64::from(cache::WHOLE);
            let spec = program.spec(spec);
            cost::duration(spec, &members[spec.team.group.index()], cached, profile)
        });
        durations[planned.step][op.index()] = duration;
    }
    durations
}

/// An operation that is launched in an iteration of the period.
type Run<'a> = (&'a StepSchedule, crate::base::OpId, crate::base::SpecId);

fn launches<'a>(program: &'a Program, planned: &'a StepSchedule) -> impl Iterator<Item = Run<'a>> {
    planned.commands.iter().filter_map(move |command| match *command {
        Command::Launch { op, .. } => match program.cycle[planned.step].op(op).kind {
            OpKind::Run(spec) => Some((planned, op, spec)),
            _ => None,
        },
        Command::Record { .. } | Command::Wait { .. } => None,
    })
}
