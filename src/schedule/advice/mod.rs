//! Advice about a plan: operations that another form of the text would save, and the approximate gain.
//!
//! Each kind of advice is a row of [`KINDS`]: its code, and the function that finds it in a slot of the cycle. A
//! finding lists the operations that vanish or change, from which the gain of every kind is calculated in the same way.
//! Times come from a profile; nothing here is measured.

mod attention;
mod casts;
mod chains;
mod copies;
mod mask;
mod products;
mod scene;

use std::collections::BTreeSet;
use std::fmt;

use indexmap::IndexMap;
use miette::{Diagnostic, LabeledSpan, Severity, SourceSpan};
use serde::{Deserialize, Serialize};

use crate::base::{Bytes, Nanos, OpId, SrcSpan};
use crate::config::Profile;
use crate::fuse;
use crate::model::Program;
use crate::ops::Spec;
use crate::plan::{Flow, Plan};

use super::Schedule;
use super::durations::durations_and_shares;
use super::lint::launch_cost;

use scene::{KnownEffects, Savings, Scene};

struct AdviceKind {
    code: &'static str,
    /// Finds advice of this kind in a slot of the cycle.
    find: fn(&Scene) -> Vec<Savings>,
}

macro_rules! kinds {
    ($($find:path, code($code:path);)*) => {
        &[$(AdviceKind { code: stringify!($code), find: $find }),*]
    };
}

/// The kinds of advice, in the order in which the plan is searched for them. An operation that one piece of advice would remove
/// is not part of a later one.
const KINDS: &[AdviceKind] = kinds! {
    attention::find, code(aorta::schedule::split_attention);
    products::find, code(aorta::schedule::joint_products);
    casts::find, code(aorta::schedule::needless_cast);
    copies::find, code(aorta::schedule::needless_copy);
    chains::find, code(aorta::schedule::unfused_chain);
};

/// Share of the time of all operations below which a gain is not mentioned.
const MIN_GAIN: f64 = 0.01;

/// Number of operations above which a program gets no advice, since finding it would take seconds.
const MAX_OPERATIONS: usize = 200_000;

/// Estimated gain per iteration from following a piece of advice, averaged over the cycle. All values are modelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Time of the operations that vanish minus the time of their replacements, each alone on the device.
    pub most_ns: Nanos,
    /// Time of all operations, one after the other.
    pub whole_ns: Nanos,
    /// Time by which the critical path becomes shorter.
    pub path_ns: Nanos,
    /// Bytes that need not be moved.
    pub bytes: u64,
    /// Launches that are saved.
    pub launches: f64,
    /// Host time of the saved launches.
    pub host_ns: Nanos,
    /// The device whose profile the times are modelled with.
    pub modelled_on: String,
}

impl Gain {
    /// The other savings, as text: bytes and launches; `None` if there are none.
    pub fn also(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.bytes > 0 {
            parts.push(format!("{} less to move", Bytes(self.bytes)));
        }
        let launches = (10.0 * self.launches).round() / 10.0;
        if launches > 0.0 {
            parts.push(format!("{launches} {} fewer", if launches == 1.0 { "launch" } else { "launches" }));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The savings of time, that of the critical path first.
impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path_ns {
            Nanos(0) => f.write_str("saves nothing of the critical path")?,
            path => write!(f, "saves {path} of the critical path")?,
        }
        let Gain { most_ns, whole_ns, modelled_on, .. } = self;
        write!(
            f,
            "; saves roughly {most_ns} of {whole_ns} of summed operation time (each alone, modelled on an {modelled_on})"
        )
    }
}

/// A piece of advice about a plan.
#[derive(Clone, Debug)]
pub struct PlanAdvice {
    pub code: &'static str,
    /// The finding in one sentence.
    pub message: String,
    /// The change to make.
    pub help: String,
    /// Locations, that of the operation that decides first, each with its part in the finding.
    pub places: Vec<(SrcSpan, String)>,
    /// Number of occurrences per iteration, averaged over the cycle as the gain is.
    pub times: f64,
    pub gain: Gain,
}

impl fmt::Display for PlanAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {}", self.message, often(self.times), self.gain)
    }
}

/// The suffix of a finding that occurs this often in an iteration; empty for once.
pub fn often(times: f64) -> String {
    match times {
        1.0 => String::new(),
        _ if times.fract() == 0.0 => format!(", {times} times"),
        _ => format!(", {times:.1} times an iteration on average"),
    }
}

impl std::error::Error for PlanAdvice {}

impl Diagnostic for PlanAdvice {
    fn code(&self) -> Option<Box<dyn fmt::Display + '_>> {
        Some(Box::new(self.code))
    }

    fn severity(&self) -> Option<Severity> {
        Some(Severity::Advice)
    }

    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        let also = self.gain.also().map(|also| format!("; {also}")).unwrap_or_default();
        Some(Box::new(format!("{}{also}", self.help)))
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label =
            |(span, text): &(SrcSpan, String)| LabeledSpan::new_with_span(Some(text.clone()), SourceSpan::from(*span));
        Some(Box::new(self.places.iter().map(label)))
    }
}

/// Findings of one kind at the same locations.
struct FindingGroup {
    kind: &'static AdviceKind,
    found: Savings,
    times: usize,
    /// The operations that vanish or change, each with its slot.
    changes: Vec<(usize, OpId, Option<Spec>)>,
}

/// Costs of an operation other than its time on the device.
#[derive(Clone, Copy, Default)]
struct Expense {
    bytes: f64,
    launches: f64,
    host_ns: f64,
}

impl Expense {
    fn of(spec: &Spec, profile: &Profile) -> Self {
        Self {
            bytes: spec.cost().bytes() as f64,
            launches: spec.launch().len() as f64,
            host_ns: launch_cost(spec, profile),
        }
    }
}

/// Advice about a program for the device of a profile, that with the largest gain first.
pub fn advise(program: &Program, plan: &Plan, schedule: &Schedule, profile: &Profile) -> Vec<PlanAdvice> {
    if program.cycle.iter().map(|step| step.ops.len()).sum::<usize>() > MAX_OPERATIONS {
        return Vec::new();
    }
    let Some(flow) = Flow::of(program) else { return Vec::new() };
    let (durations, cached) = durations_and_shares(program, schedule, program.rank, profile);
    let members: Vec<Vec<u32>> =
        program.groups.iter().map(|group| group.members_with(program.rank).collect()).collect();
    let chains = fuse::chains(program);
    let effects = KnownEffects::default();
    let mut groups: IndexMap<(&str, Vec<SrcSpan>), FindingGroup> = IndexMap::new();
    let scene = |slot: usize| Scene {
        program,
        flow: &flow,
        slot,
        step: &program.cycle[slot],
        cached: &cached[slot],
        members: &members,
        chains: &chains[slot],
        effects: &effects,
        profile,
    };
    for slot in 0..program.cycle.len() {
        let scene = scene(slot);
        let mut claimed: BTreeSet<OpId> = BTreeSet::new();
        for kind in KINDS {
            for found in (kind.find)(&scene) {
                // A reader that only changes an input or an option keeps its cost.
                let stays = |op: OpId, spec: &Option<Spec>| {
                    let before = scene.spec(op).map(|spec| spec.operation.name());
                    spec.as_ref().map(|spec| spec.operation.name()) == before
                };
                let removed = found.changes.iter().filter(|(op, spec)| !stays(*op, spec)).map(|(op, _)| *op);
                let removed: Vec<OpId> = removed.collect();
                if removed.iter().any(|op| claimed.contains(op)) {
                    continue;
                }
                claimed.extend(removed);
                let key = (kind.code, found.places.iter().map(|(span, _)| *span).collect());
                let changes: Vec<_> = found.changes.iter().map(|(op, spec)| (slot, *op, spec.clone())).collect();
                let group =
                    groups.entry(key).or_insert_with(|| FindingGroup { kind, found, times: 0, changes: Vec::new() });
                group.times += 1;
                group.changes.extend(changes);
            }
        }
    }
    let cycle = program.cycle.len() as f64;
    let whole: f64 = durations.iter().flatten().sum();
    let paths: Vec<f64> =
        plan.steps.iter().zip(&durations).map(|(step, durations)| step.critical_path(durations).length).collect();
    // Layers of a model often share an operation, whose launches take long to generate.
    let mut expenses: IndexMap<Spec, Expense> = IndexMap::new();
    let mut expense = |spec: &Spec| *expenses.entry(spec.clone()).or_insert_with(|| Expense::of(spec, profile));
    let mut times: IndexMap<(Spec, u64), f64> = IndexMap::new();
    let advice = groups.into_values().map(|group| {
        let [mut time, mut path, mut bytes, mut launches, mut host] = [0.0f64; 5];
        for slot in group.changes.iter().map(|(slot, ..)| *slot).collect::<BTreeSet<_>>() {
            let mut changed = durations[slot].clone();
            let scene = scene(slot);
            for (_, op, spec) in group.changes.iter().filter(|(of, ..)| *of == slot) {
                let Some(old) = scene.spec(*op) else { continue };
                let share = scene.cached[op.index()];
                changed[op.index()] = spec.as_ref().map_or(0.0, |spec| {
                    let duration = times.entry((spec.clone(), share.to_bits()));
                    *duration.or_insert_with(|| scene.duration(spec, share))
                });
                let old = expense(old);
                let new = spec.as_ref().map_or_else(Expense::default, &mut expense);
                bytes += old.bytes - new.bytes;
                launches += old.launches - new.launches;
                host += old.host_ns - new.host_ns;
            }
            time += durations[slot].iter().sum::<f64>() - changed.iter().sum::<f64>();
            path += (paths[slot] - plan.steps[slot].critical_path(&changed).length).max(0.0);
        }
        let nanos = |time: f64| Nanos::rounded(time / cycle);
        let Savings { message, help, places, .. } = group.found;
        let gain = Gain {
            most_ns: nanos(time),
            whole_ns: nanos(whole),
            path_ns: nanos(path),
            bytes: (bytes / cycle).round().max(0.0) as u64,
            launches: launches / cycle,
            host_ns: nanos(host),
            modelled_on: profile.name.clone(),
        };
        PlanAdvice { code: group.kind.code, message, help, places, times: group.times as f64 / cycle, gain }
    });
    let worth = |one: &PlanAdvice| one.gain.most_ns.0 as f64 >= (MIN_GAIN * whole / cycle).max(1.0);
    let mut advice: Vec<PlanAdvice> = advice.filter(worth).collect();
    let is_chain = |one: &PlanAdvice| one.code.ends_with("unfused_chain");
    if advice.iter().any(is_chain)
        && let Some(memory) = chains::added_memory(program, schedule, profile)
    {
        advice.iter_mut().filter(|one| is_chain(one)).for_each(|one| one.help += &memory);
    }
    advice.sort_by_key(|one| (std::cmp::Reverse(one.gain.most_ns), one.places.first().map(|(span, _)| *span)));
    advice
}
