//! Modelled duration of each operation without concurrent operations, shared by plans, advice and the simulator.

use crate::base::{OpId, Space};
use crate::config::Profile;
use crate::cost;
use crate::cost::cache::{self, OperationAccesses};
use crate::model::{OpKind, Program, Step};
use crate::ops::{Category, Launch};

use super::{Command, Predecessors, Schedule, StepSchedule};

/// Duration of each operation in ns, by slot of the cycle and number of the operation; 0 for markers. Assumes that each
/// operation has the device and all links to itself, that the cache holds the data that earlier operations left there,
/// and that no operation waits for another rank. `rank` is the one that runs the schedule.
pub fn durations(program: &Program, schedule: &Schedule, rank: u32, profile: &Profile) -> Vec<Vec<f64>> {
    durations_and_shares(program, schedule, rank, profile).0
}

/// [`durations`], and the shares that [`cached`] returns, with a warm cache.
pub(super) fn durations_and_shares(
    program: &Program,
    schedule: &Schedule,
    rank: u32,
    profile: &Profile,
) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let mut durations: Vec<Vec<f64>> = program.cycle.iter().map(|step| vec![0.0; step.ops.len()]).collect();
    let mut cached = durations.clone();
    let members = members(program, rank);
    let mut known = rustc_hash::FxHashMap::default();
    for ((planned, op, spec), share) in shares(program, schedule, &members, false, profile) {
        let duration = if launches_nothing(program, &program.cycle[planned.step], op) {
            0.0
        } else {
            *known.entry((spec, share)).or_insert_with(|| {
                let spec = program.spec(spec);
                cost::duration(spec, &members[spec.team.group.index()], fraction(share), profile)
            })
        };
        durations[planned.step][op.index()] = duration;
        cached[planned.step][op.index()] = fraction(share);
    }
    (durations, cached)
}

/// Share, from 0 to 1, of each operation's bytes in device memory that the cache serves by the model: by slot of the
/// cycle and number of the operation. `rank` is the one that runs the schedule. `cold` is true if the cache is flushed before each
/// iteration.
pub fn cached(program: &Program, schedule: &Schedule, rank: u32, cold: bool, profile: &Profile) -> Vec<Vec<f64>> {
    let mut cached: Vec<Vec<f64>> = program.cycle.iter().map(|step| vec![0.0; step.ops.len()]).collect();
    for ((planned, op, _), share) in shares(program, schedule, &members(program, rank), cold, profile) {
        cached[planned.step][op.index()] = fraction(share);
    }
    cached
}

/// True if an operation launches nothing on a device: a marker, or collectives of one rank whose results are in place.
pub fn launches_nothing(program: &Program, step: &Step, op: OpId) -> bool {
    let Some(spec) = program.op_spec(step.op(op)) else { return true };
    if spec.operation.category() != Category::Collective {
        return false;
    }
    let views = [step.inputs(op), step.outputs(op)].concat();
    let place = |operand: u8| {
        let view = views[usize::from(operand)];
        let memory = program.views.memory(view);
        (memory, program.views.offset(view, &program.layout(memory).dims))
    };
    spec.launch().iter().flat_map(Launch::collectives).all(|one| one.is_in_place(place))
}

/// The ranks of each group with this rank.
fn members(program: &Program, rank: u32) -> Vec<Vec<u32>> {
    program.groups.iter().map(|group| group.members_with(rank).collect()).collect()
}

fn fraction(share: u8) -> f64 {
    f64::from(share) / f64::from(cache::WHOLE)
}

/// Each operation of the period in the order of issue, with the share of its bytes that the cache serves, in eighths.
fn shares<'a>(
    program: &'a Program,
    schedule: &'a Schedule,
    members: &[Vec<u32>],
    cold: bool,
    profile: &Profile,
) -> impl Iterator<Item = (LaunchedOp<'a>, u8)> + use<'a> {
    let runs: Vec<LaunchedOp> = schedule.period.iter().flat_map(|planned| launches(program, planned)).collect();
    // The first launch of an iteration, before which a cold cache is flushed.
    let is_first = |number: usize| number == 0 || !std::ptr::eq(runs[number - 1].0, runs[number].0);
    let access = |number: u32| {
        let (planned, op, spec) = runs[number as usize];
        let step = &program.cycle[planned.step];
        let views = step.inputs(op).iter().chain(step.outputs(op));
        let offsets = views.map(|&view| {
            let memory = program.views.memory(view);
            let layout = program.layout(memory);
            let (space, base) = schedule.memory.offset(memory, planned.copy);
            (space == Space::Device).then(|| base + program.views.offset(view, &layout.dims) * layout.dtype.size())
        });
        OperationAccesses {
            spec: program.spec(spec),
            offsets: offsets.collect(),
            cold: cold && is_first(number as usize),
        }
    };
    let mut known = rustc_hash::FxHashMap::default();
    let mut takes = |(_, _, id): LaunchedOp| {
        *known.entry(id).or_insert_with(|| {
            let spec = program.spec(id);
            let launches = spec.launch();
            let ranks = &members[spec.team.group.index()];
            let duration = cost::duration_of(spec, &launches, ranks, 0.0, profile);
            (duration, launches.iter().any(Launch::occupies_units))
        })
    };
    let takes: Vec<(f64, bool)> = runs.iter().map(|&run| takes(run)).collect();
    let order = Predecessors::of(schedule).begin_order(|number| takes[number].0, |number| takes[number].1);
    let shares = cache::shares(&order, access, profile);
    runs.into_iter().zip(shares)
}

/// An operation that is launched in an iteration of the period.
type LaunchedOp<'a> = (&'a StepSchedule, OpId, crate::base::SpecId);

fn launches<'a>(program: &'a Program, planned: &'a StepSchedule) -> impl Iterator<Item = LaunchedOp<'a>> {
    planned.commands.iter().filter_map(move |command| match *command {
        Command::Launch { op, .. } => match program.cycle[planned.step].op(op).kind {
            OpKind::Run(spec) => Some((planned, op, spec)),
            _ => None,
        },
        Command::Record { .. } | Command::Wait { .. } | Command::HostSync => None,
    })
}
