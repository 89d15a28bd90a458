//! Verification of order: each operation sets a mark when it ends, and checks first that all operations that it waits
//! for have set theirs. Correct results can be a matter of luck; the marks show that the dependencies hold.
//!
//! Marks and checks are ordinary launches on the operations' own lanes, so they work in streams and graphs, on a GPU
//! and on the CPU.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::base::{OpId, Space};
use crate::exec::prepare::image::{ImageCommand, StepCommands};
use crate::exec::ranks::prepare_with;
use crate::exec::{Address, Backend, ExecError, Fill, Image, RankSchedule, Ranks, SessionOptions};
use crate::model::{OpKind, Program, Sync};
use crate::ops::init::Init;
use crate::ops::witness as ops;
use crate::plan::{Plan, StepPlan};

/// Bytes of a counter.
const BYTES: u64 = 4;

/// Maximum number of dependencies that are checked; further ones are skipped.
const MAX_DEPENDENCIES: usize = 1 << 20;

/// Sessions with checks of dependencies.
pub struct Witness {
    pub ranks: Ranks,
    counters: Vec<CheckCounters>,
}

/// Counters of a rank that its checks increase.
#[derive(Debug, Default)]
struct CheckCounters {
    /// The checked dependencies, one per counter.
    edges: Vec<CheckedDependency>,
    /// Byte offset of the first counter of violations.
    misses: u64,
}

/// A checked dependency. Each side is a slot and an operation: the one that is waited for, and the one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedDependency {
    pub from: (usize, OpId),
    pub to: (usize, OpId),
}

/// Opens a backend for the ranks, with a mark and checks around each operation.
pub fn witness(ranks: &[RankSchedule], backend: &dyn Backend, options: &SessionOptions) -> Result<Witness, ExecError> {
    let mut counters: Vec<CheckCounters> = ranks.iter().map(|_| CheckCounters::default()).collect();
    let opened = prepare_with(ranks, backend, options, |index, image, commands| {
        let period = &mut commands.period;
        let found = dependencies(ranks[index].program, ranks[index].plan, image, period);
        let misses = insert(image, period, &found);
        counters[index] = CheckCounters { edges: found.iter().map(|dependency| dependency.edge).collect(), misses };
    })?;
    Ok(Witness { ranks: opened, counters })
}

impl Witness {
    /// Number of checked dependencies of all ranks of this process.
    pub fn edges(&self) -> usize {
        self.counters.iter().map(|counters| counters.edges.len()).sum()
    }

    /// Returns the dependencies of a rank that were violated so far, each with the number of violations; `None` if the
    /// backend has no memory.
    pub fn missed(&mut self, index: usize) -> Result<Option<Vec<(CheckedDependency, u32)>>, ExecError> {
        let CheckCounters { edges, misses } = &self.counters[index];
        if edges.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let at = Address { space: Space::Device, offset: *misses };
        let mut bytes = Vec::new();
        let read = self.ranks.read_at(index, at, edges.len() as u64 * BYTES, &mut bytes)?;
        Ok(read.then(|| {
            let counts = bytes.chunks_exact(BYTES as usize);
            let counts = counts.map(|count| u32::from_le_bytes(count.try_into().expect("four bytes")));
            edges.iter().copied().zip(counts).filter(|(_, count)| *count > 0).collect()
        }))
    }
}

/// A dependency between two launches of the image, by number.
struct Dependency {
    from: u32,
    to: u32,
    /// Number of periods by which the first launch precedes the second.
    rounds: u32,
    edge: CheckedDependency,
}

/// Returns every dependency of the plan between operations that run; under `sync: iteration` also those on the previous
/// iteration. A marker, such as a `sync`, passes on its own dependencies.
fn dependencies(program: &Program, plan: &Plan, image: &Image, period: &[StepCommands]) -> Vec<Dependency> {
    let mut first = 0;
    let launches: Vec<BTreeMap<OpId, u32>> = period
        .iter()
        .map(|step| {
            let numbers = step.ops.iter().copied().zip(first..).collect();
            first += step.ops.len() as u32;
            numbers
        })
        .collect();
    // The operations of the blocks around the iterations follow.
    debug_assert!(first as usize <= image.ops.len());
    let sources: Vec<Vec<Vec<OpId>>> =
        plan.steps.iter().enumerate().map(|(step, graph)| running(program, step, graph)).collect();
    let mut found = Vec::new();
    let steps = period.len();
    let mut add = |index: usize, distance: usize, from: OpId, to: OpId| {
        // `from` is `distance` iterations back, which is in this or an earlier period.
        let at = (index + steps - distance % steps) % steps;
        let rounds = distance.saturating_sub(index).div_ceil(steps) as u32;
        if let (Some(&producer), Some(&consumer)) = (launches[at].get(&from), launches[index].get(&to))
            && found.len() < MAX_DEPENDENCIES
        {
            let edge = CheckedDependency { from: (period[at].step, from), to: (period[index].step, to) };
            found.push(Dependency { from: producer, to: consumer, rounds, edge });
        }
    };
    for (index, step) in period.iter().enumerate() {
        for &to in &step.ops {
            for &from in &sources[step.step][to.index()] {
                add(index, 0, from, to);
            }
        }
        for edge in &plan.steps[step.step].across {
            add(index, edge.distance as usize, edge.from, edge.to);
        }
    }
    if program.step.sync == Sync::Iteration {
        for (index, step) in period.iter().enumerate() {
            let mut before = (1..=steps).map(|distance| (distance, &period[(index + steps - distance) % steps]));
            let Some((distance, before)) = before.find(|(_, step)| !step.ops.is_empty()) else { continue };
            // If one awaited operation is ordered before another of the same iteration, checking the last one suffices.
            let awaited: FxHashSet<OpId> = sources[before.step].iter().flatten().copied().collect();
            let last: Vec<OpId> = before.ops.iter().copied().filter(|op| !awaited.contains(op)).collect();
            for &to in step.ops.iter().filter(|op| sources[step.step][op.index()].is_empty()) {
                last.iter().for_each(|&from| add(index, distance, from, to));
            }
        }
    }
    found
}

/// Returns for each operation of a step the running operations that it depends on, through markers.
fn running(program: &Program, step: usize, graph: &StepPlan) -> Vec<Vec<OpId>> {
    let ops = &program.cycle[step];
    let mut sources: Vec<Vec<OpId>> = Vec::with_capacity(graph.operations());
    for op in ops.ids() {
        let mut known = Vec::new();
        for edge in graph.incoming(op) {
            match ops.op(edge.from).kind {
                OpKind::Run(_) => known.push(edge.from),
                _ => known.extend(&sources[edge.from.index()]),
            }
        }
        known.sort_unstable();
        known.dedup();
        sources.push(known);
    }
    sources
}

/// Inserts marks and checks into an image; returns the offset of the first counter of violations.
fn insert(image: &mut Image, period: &mut [StepCommands], dependencies: &[Dependency]) -> u64 {
    let operations = image.ops.len() as u64;
    let base = image.bytes[0].next_multiple_of(256);
    let counters = operations + dependencies.len() as u64;
    image.bytes[0] = base + counters * BYTES;
    let fill = Fill { space: Space::Device, offset: base, dtype: ops::COUNTER, elements: counters, init: Init::Zeros };
    image.fills.push(fill);
    let misses = base + operations * BYTES;

    let mut maker = CheckBuilder { image, mark: None, checks: BTreeMap::new() };
    let mut looks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (dependency, miss) in dependencies.iter().zip((misses..).step_by(BYTES as usize)) {
        let lane = maker.image.ops[dependency.to as usize].lane;
        let counter = |op: u32| base + u64::from(op) * BYTES;
        let work = maker.check(dependency.rounds);
        let look = maker.add(work, lane, &[counter(dependency.from), counter(dependency.to), miss]);
        looks.entry(dependency.to).or_default().push(look);
    }
    for step in period {
        let mut commands = Vec::with_capacity(3 * step.commands.len());
        for command in std::mem::take(&mut step.commands) {
            let ImageCommand::Launch { op, lane } = command else {
                commands.push(command);
                continue;
            };
            let before = looks.get(&op).into_iter().flatten();
            commands.extend(before.map(|&look| ImageCommand::Launch { op: look, lane }));
            commands.push(command);
            let work = maker.mark();
            let mark = maker.add(work, lane, &[base + u64::from(op) * BYTES]);
            commands.push(ImageCommand::Launch { op: mark, lane });
        }
        step.commands = commands;
    }
    misses
}

/// Adds works and operations to an image.
struct CheckBuilder<'a> {
    image: &'a mut Image,
    /// Index of the work that marks; `None` before the first mark.
    mark: Option<u32>,
    /// Works that check, by the number of periods that they allow.
    checks: BTreeMap<u32, u32>,
}

impl CheckBuilder<'_> {
    fn mark(&mut self) -> u32 {
        *self.mark.get_or_insert_with(|| self.image.add_work(ops::mark()))
    }

    fn check(&mut self, rounds: u32) -> u32 {
        *self.checks.entry(rounds).or_insert_with(|| self.image.add_work(ops::check(i64::from(rounds))))
    }

    fn add(&mut self, work: u32, lane: u32, offsets: &[u64]) -> u32 {
        self.image.add_op(work, lane, offsets.iter().map(|&offset| Address { space: Space::Device, offset }))
    }
}
