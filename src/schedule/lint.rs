//! Advice about a schedule on a device: too little memory, shared hardware queues, formats that it lacks, operations shorter
//! than their launch. All times are modelled from a profile, never measured.

use miette::{Diagnostic, LabeledSpan, SourceSpan};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::base::{Bytes, DType, LaneId, MemoryId, Nanos, Space, SrcSpan, counted};
use crate::config::{MAX_QUEUES, Profile, QueueRule, queues_variable};
use crate::cost;
use crate::model::{Memory, OpKind, Program};
use crate::ops::{Arithmetic, Spec};
use crate::plan::Plan;

use super::{Schedule, durations};

/// A schedule that cannot run.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum ScheduleError {
    #[error("the program takes {needed} of {space} memory at its peak, and {has} {available}")]
    #[diagnostic(
        code(aorta::schedule::too_much_memory),
        help("the largest: {largest}; lower a parameter, or use a preset")
    )]
    TooMuchMemory {
        needed: String,
        space: &'static str,
        has: String,
        available: String,
        largest: String,
        #[label("the largest")]
        at: SourceSpan,
    },
}

/// A schedule that could be better on a device.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum ScheduleAdvice {
    #[error("{streams} streams share {queues} hardware queues of an {device}")]
    #[diagnostic(code(aorta::schedule::shared_queues), severity(Advice), help("{help}"))]
    SharedQueues {
        streams: usize,
        queues: usize,
        device: String,
        #[label("{which}")]
        at: SourceSpan,
        which: String,
        help: String,
    },

    #[error(
        "as a graph, {streams} streams become {streams} branches, of which {branches} run side by side on an {device}"
    )]
    #[diagnostic(
        code(aorta::schedule::graph_branches),
        severity(Advice),
        help(
            "HIP runs {branches} branches of a graph at once, from version 6.4 on by AMD's source, and the others \
             after them; use fewer streams, raise the number with `--env DEBUG_HIP_FORCE_GRAPH_QUEUES={streams}`, or \
             launch without a graph: `--launch stream`"
        )
    )]
    GraphBranches {
        streams: usize,
        branches: usize,
        device: String,
        #[label("the first beyond them")]
        at: SourceSpan,
    },

    #[error("`{operation}` multiplies {what} that an {device} does not have")]
    #[diagnostic(code(aorta::schedule::missing_format), severity(Warning), help("{help}"))]
    MissingFormat {
        operation: &'static str,
        what: String,
        device: String,
        help: String,
        #[label("multiplies `{dtype}`")]
        at: SourceSpan,
        dtype: DType,
    },

    #[error(
        "issuing an iteration takes the host {host}, and its critical path is {path} (modelled on an {device}): \
         launching takes longer than the work"
    )]
    #[diagnostic(
        code(aorta::schedule::launch_bound),
        severity(Advice),
        help("give each operation more work, or issue the iteration with one call: `--launch graph`")
    )]
    LaunchBound {
        host: String,
        path: String,
        device: String,
        #[label(collection)]
        operations: Vec<LabeledSpan>,
    },
}

/// Maximum number of operations that are listed as shorter than their launch.
const MAX_SHORT: usize = 5;

/// Fails if a program needs more device memory than there is, before anything is allocated. `has` names the owner of
/// the memory: `an NVIDIA H200 has`.
pub fn check_memory(
    program: &Program,
    schedule: &Schedule,
    available: u64,
    has: &str,
) -> Result<(), Box<ScheduleError>> {
    let needed = schedule.bytes(Space::Device);
    if needed <= available {
        return Ok(());
    }
    let (first, largest) = largest(program, |memory| memory.space == Space::Device);
    Err(Box::new(ScheduleError::TooMuchMemory {
        needed: Bytes(needed).to_string(),
        space: Space::Device.name(),
        has: has.to_owned(),
        available: Bytes(available).to_string(),
        largest,
        at: first.map_or(SrcSpan::default(), |id| program.memory(id).span).into(),
    }))
}

/// The largest memory that `counts`, and a text with the names and sizes of the three largest.
pub fn largest(program: &Program, counts: impl Fn(&Memory) -> bool) -> (Option<MemoryId>, String) {
    let ids = (0..program.memories.len()).map(MemoryId::from).filter(|&id| counts(program.memory(id)));
    let mut sizes: Vec<(u64, MemoryId)> = ids.map(|id| (program.memory_bytes(id), id)).collect();
    sizes.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
    let text = |&(bytes, id): &(u64, MemoryId)| {
        let memory = program.memory(id);
        format!("{}{} {}", memory.kind.prefix(), program.names.name(memory.name), Bytes(bytes))
    };
    let texts: Vec<String> = sizes.iter().take(3).map(text).collect();
    (sizes.first().map(|&(_, id)| id), texts.join(", "))
}

/// Returns advice for the device of a profile.
pub fn lint(program: &Program, plan: &Plan, schedule: &Schedule, profile: &Profile) -> Vec<ScheduleAdvice> {
    let queues = shared_queues(program, schedule, profile);
    let branches = graph_branches(program, schedule, profile);
    let formats = missing_format(program, profile);
    queues.into_iter().chain(branches).chain(launch_bound(program, plan, schedule, profile)).chain(formats).collect()
}

/// True if a product of 8-bit floats is in a format that a device lacks: the matrix units of gfx942 have AMD's `fnuz` formats
/// instead of those of the Open Compute Project.
pub fn lacks_format(spec: &Spec, profile: &Profile) -> bool {
    let is_float8 = |(_, arithmetic): ([u64; 4], Arithmetic)| arithmetic == Arithmetic::F8;
    profile.architecture.starts_with("gfx94") && spec.operation.product(spec).is_some_and(is_float8)
}

/// True if both factors of a product are `e5m2`, which NVIDIA's library does not multiply.
fn lacks_pair(spec: &Spec, profile: &Profile) -> bool {
    let is_e5m2 = |input: usize| spec.inputs[input].dtype == DType::E5M2;
    profile.architecture.starts_with("sm_") && spec.operation.product(spec).is_some() && is_e5m2(0) && is_e5m2(1)
}

/// The warning at the first product in a format that the device lacks; `None` if there is none.
fn missing_format(program: &Program, profile: &Profile) -> Option<ScheduleAdvice> {
    let lacks = |spec: &&Spec| lacks_format(spec, profile) || lacks_pair(spec, profile);
    let mut ops = program.cycle.iter().flat_map(|step| &step.ops);
    let (op, spec) = ops.find_map(|op| Some((op, program.op_spec(op).filter(lacks)?)))?;
    let dtype = spec.inputs[0].dtype;
    let (what, help) = if lacks_pair(spec, profile) {
        let help = "cuBLASLt multiplies `e4m3` by `e4m3` or `e5m2`, but has no product of two `e5m2` matrices: `--backend cuda` stops \
                    there; `cast` one of them to `e4m3` before the product, or both to `f16`, which holds all values of `e5m2`";
        ("`e5m2` by `e5m2`, a product".to_owned(), help.to_owned())
    } else {
        let help = format!(
            "{} multiplies AMD's `fnuz` formats only, in which the same bits have other values, so AMD's library has no product of these \
             matrices: `--backend hip` stops there, and the simulator assumes the rate of the `fnuz` formats; multiply `bf16` or `f16` \
             instead, or use a device with the formats of the Open Compute Project, such as MI355X",
            profile.architecture
        );
        (format!("`{dtype}` matrices in a format"), help)
    };
    let (operation, device, at) = (spec.operation.name(), profile.name.clone(), op.span.into());
    Some(ScheduleAdvice::MissingFormat { operation, what, device, help, at, dtype })
}

/// Streams with work, in order.
fn used(schedule: &Schedule) -> Vec<LaneId> {
    let mut used: Vec<LaneId> = schedule.period.iter().flat_map(|step| &step.used).copied().collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// The advice that a graph has more streams than AMD's runtime runs concurrently; `None` if it has not.
fn graph_branches(program: &Program, schedule: &Schedule, profile: &Profile) -> Option<ScheduleAdvice> {
    /// Default of DEBUG_HIP_FORCE_GRAPH_QUEUES.
    const BRANCHES: usize = 4;
    let used = used(schedule);
    let &beyond = used.get(BRANCHES).filter(|_| profile.vendor == "amd")?;
    Some(ScheduleAdvice::GraphBranches {
        streams: used.len(),
        branches: BRANCHES,
        device: profile.name.clone(),
        at: program.streams[schedule.lanes[beyond.index()].streams[0].index()].span.into(),
    })
}

/// The advice that more streams have work than there are hardware queues; `None` if there are enough.
fn shared_queues(program: &Program, schedule: &Schedule, profile: &Profile) -> Option<ScheduleAdvice> {
    let used = used(schedule);
    // With queues per priority, streams compete only within their priority.
    let queue = |lane: LaneId| {
        let info = &schedule.lanes[lane.index()];
        (profile.queues.by_priority.then_some(info.priority), info.queue)
    };
    let mut on_queue: Vec<Vec<LaneId>> = Vec::new();
    for &lane in &used {
        match on_queue.iter_mut().find(|lanes| queue(lanes[0]) == queue(lane)) {
            Some(lanes) => lanes.push(lane),
            None => on_queue.push(vec![lane]),
        }
    }
    let crowded = on_queue.iter().find(|lanes| lanes.len() > 1)?;
    let lane = |lane: LaneId| &schedule.lanes[lane.index()];
    let names: Vec<String> = crowded.iter().take(4).map(|&id| format!("`{}`", lane(id).name)).collect();
    let more = if crowded.len() > names.len() { ", …" } else { "" };
    let (variable, count) = (queues_variable(&profile.vendor), used.len());
    let set = format!("`--env {variable}={}`", count.min(MAX_QUEUES));
    let help = match count <= MAX_QUEUES {
        true => format!("use fewer streams, or set the number of queues: {set}"),
        false if on_queue.len() < MAX_QUEUES => {
            format!("use at most {MAX_QUEUES} streams, and set as many queues: {set}")
        }
        false => format!("use at most {MAX_QUEUES} streams, since a device has no more queues"),
    };
    let effect = match profile.queues.rule {
        QueueRule::HeadOfLine => "operations after a waiting one wait too, even on other streams",
        QueueRule::Serial => "streams that share one run one after the other",
    };
    Some(ScheduleAdvice::SharedQueues {
        streams: count,
        queues: on_queue.len(),
        device: profile.name.clone(),
        at: program.streams[lane(crowded[1]).streams[0].index()].span.into(),
        which: format!("{}{more} share one", names.join(", ")),
        help: format!("{effect}; {help}"),
    })
}

/// Host time for issuing an operation, in ns.
pub(super) fn launch_cost(spec: &Spec, profile: &Profile) -> f64 {
    spec.launch().iter().map(|launch| cost::issue(launch, profile)).sum()
}

/// The advice that the host issues an iteration more slowly than the device runs it, with the operations that cause
/// this; `None` if it does not.
fn launch_bound(program: &Program, plan: &Plan, schedule: &Schedule, profile: &Profile) -> Option<ScheduleAdvice> {
    let (mut host, mut path) = (0.0, 0.0);
    // For each source location: number of launches, device time, and launch time.
    let mut places: FxHashMap<SrcSpan, (usize, f64, f64)> = FxHashMap::default();
    let mut known: FxHashMap<OpKind, f64> = FxHashMap::default();
    let durations = durations(program, schedule, program.rank, profile);
    for ((step, graph), durations) in program.cycle.iter().zip(&plan.steps).zip(&durations) {
        for (op, &work) in step.ops.iter().zip(durations) {
            let launch = *known
                .entry(op.kind)
                .or_insert_with(|| program.op_spec(op).map_or(0.0, |spec| launch_cost(spec, profile)));
            host += launch;
            if work < launch {
                let place = places.entry(op.span).or_default();
                *place = (place.0 + 1, place.1 + work, place.2 + launch);
            }
        }
        path += graph.critical_path(durations).length;
    }
    let iterations = program.cycle.len() as f64;
    let waits = schedule.waits() as f64 * (profile.host.record.value() + profile.host.wait.value());
    let host = (host + waits / schedule.period.len() as f64 * iterations) / iterations;
    let path = path / iterations;
    if host <= path || places.is_empty() {
        return None;
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by(|(a, (_, work_a, launch_a)), (b, (_, work_b, launch_b))| {
        (launch_b - work_b).total_cmp(&(launch_a - work_a)).then(a.cmp(b))
    });
    places.truncate(MAX_SHORT);
    places.sort_by_key(|(span, _)| *span);
    let each = |total: f64, count: usize| Nanos::rounded(total / count as f64);
    let label = |(span, (count, work, launch)): (SrcSpan, (usize, f64, f64))| {
        let often = if count > 1 { format!(", {}", counted(count, "time")) } else { String::new() };
        let text = format!("{} of work, {} to launch{often}", each(work, count), each(launch, count));
        LabeledSpan::new_with_span(Some(text), SourceSpan::from(span))
    };
    Some(ScheduleAdvice::LaunchBound {
        host: Nanos::rounded(host).to_string(),
        path: Nanos::rounded(path).to_string(),
        device: profile.name.clone(),
        operations: places.into_iter().map(label).collect(),
    })
}
