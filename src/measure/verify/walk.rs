//! Verifies the operations of a run one by one, each with the inputs that the device itself computed.
//!
//! Iterations run separately, each as a whole, so that operations overlap as usual. After an iteration its operations
//! are checked in the order of issue, with the inputs from the host's copy of memory. The device's own result then
//! replaces the one in the copy, so that errors do not propagate.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::computing::compute;
use crate::base::{Dims, MemoryId, OnceBlock, stage};
use crate::exec::{self, Backend, Control, ExecError, Inspection, LaunchMode, RankSchedule, Ranks};
use crate::ops::{self, Method, TensorBytes, user_kernel};

use super::BEYOND;
use super::collectives::{self, CheckResult, Contribution, DeviceOutputs, MatchKey, NumberedProgram};
use super::memory::VerifiedMemory;
use super::record::{CheckedOperations, WrongLaunch};

/// A session whose operations are verified one by one.
pub struct Verifier<'a> {
    ranks: &'a [RankSchedule<'a>],
    inspection: Inspection,
    /// The host's copy of each rank's memory, for the ranks of this process.
    memories: Vec<VerifiedMemory>,
    /// Keys of operations between ranks, for each rank of this process and iteration.
    keys: Vec<Vec<Vec<Option<MatchKey>>>>,
    /// Keys of the operations between ranks that are checked.
    live: BTreeSet<MatchKey>,
    operations: BTreeMap<String, CheckedOperations>,
    mistakes: Vec<WrongLaunch>,
    /// Value of [`Findings::unread`] so far.
    unread: u64,
    /// Value of [`Findings::taken`] so far.
    taken: u64,
    room: Buffers,
}

/// Buffers that are reused between launches, since fresh pages are slow.
#[derive(Default)]
struct Buffers {
    /// The contents that a device left in the outputs of a launch.
    bytes: Vec<Vec<u8>>,
    values: ops::ValueBuffers,
}

/// Bytes of a memory on the device, and in the host's copy after the last walk.
type CurrentAndPrevious<'a> = (&'a [u8], &'a [u8]);

/// A part of a run: one of its iterations, or a block around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPart {
    Iteration(u64),
    Block(OnceBlock),
}

/// End of a walk over the iterations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkOutcome {
    /// Each iteration has run and was checked.
    Done,
    /// The user has stopped the run.
    Stopped,
    /// The backend has no memory to check.
    Blind,
}

/// Results of an iteration's local operations, and the data needed to check those between ranks.
#[derive(Default)]
struct IterationResults {
    brought: Vec<Contribution>,
    /// Contents that the device left in the outputs of operations between ranks.
    left: Vec<DeviceOutputs>,
    /// True if the backend has no memory to check.
    blind: bool,
}

/// Results of all processes.
pub struct Findings {
    pub operations: Vec<CheckedOperations>,
    pub mistakes: Vec<WrongLaunch>,
    /// Number of launches whose results are overwritten before anything reads them.
    pub unread: u64,
    /// Number of launches of kernels without a reference, whose results are taken as they are.
    pub taken: u64,
}

impl<'a> Verifier<'a> {
    /// Opens sessions whose results can be read, for the ranks of this process.
    pub fn open(
        ranks: &'a [RankSchedule<'a>],
        backend: &dyn Backend,
        options: &exec::SessionOptions,
    ) -> Result<Verifier<'a>, ExecError> {
        let inspection = exec::inspect(ranks, backend, options)?;
        let keys: Vec<_> = inspection.inspected.iter().map(collectives::keys).collect();
        let live = collectives::live(&inspection.ranks, &inspection.inspected.iter().zip(&keys).collect::<Vec<_>>())?;
        Ok(Verifier {
            ranks,
            inspection,
            memories: Vec::new(),
            keys,
            live,
            operations: BTreeMap::new(),
            mistakes: Vec::new(),
            unread: 0,
            taken: 0,
            room: Buffers::default(),
        })
    }

    /// The sessions of the ranks.
    pub fn ranks(&mut self) -> &mut Ranks {
        &mut self.inspection.ranks
    }

    /// Current contents of a rank's memory, and those after the last walk; `None` if another process runs the rank, or
    /// the backend has no memory.
    pub fn current_and_previous(
        &mut self,
        rank: usize,
        memory: MemoryId,
    ) -> Result<Option<CurrentAndPrevious<'_>>, ExecError> {
        let Verifier { inspection: Inspection { ranks, inspected }, memories, room, .. } = self;
        let own = rank.checked_sub(ranks.own().start).filter(|own| *own < inspected.len().min(memories.len()));
        let Some(own) = own else { return Ok(None) };
        let (at, bytes) = inspected[own].places[memory.index()];
        room.bytes.resize_with(room.bytes.len().max(1), Vec::new);
        let read = ranks.read_at(rank, at, bytes, &mut room.bytes[0])?;
        Ok(read.then(|| (room.bytes[0].as_slice(), memories[own].bytes(at, bytes))))
    }

    /// The programs of a part of the run.
    fn verified(&self, part: RunPart) -> Vec<NumberedProgram<'a>> {
        let of_part = |rank: &RankSchedule<'a>| match part {
            RunPart::Iteration(_) => (rank.number, rank.program),
            RunPart::Block(which) => (rank.number, rank.program.around.get(which).map_or(rank.program, |block| block)),
        };
        self.ranks.iter().map(of_part).collect()
    }

    /// Runs iterations from the start, with the blocks around them, and checks each operation.
    pub fn run(&mut self, mode: LaunchMode, iterations: u64, control: &Control) -> Result<WalkOutcome, ExecError> {
        self.memories = self.inspection.inspected.iter().map(VerifiedMemory::new).collect();
        self.inspection.ranks.reset(control)?;
        let blocks = OnceBlock::ALL.map(RunPart::Block);
        let parts = (0..iterations).map(RunPart::Iteration);
        let stage = stage::enter_counted("verifying", "iteration", iterations as usize);
        for part in [blocks[0]].into_iter().chain(parts).chain([blocks[1]]) {
            if control.stopped() {
                return Ok(WalkOutcome::Stopped);
            }
            match part {
                RunPart::Iteration(iteration) => self.inspection.ranks.once(mode, iteration, control)?,
                RunPart::Block(OnceBlock::Setup) => self.inspection.ranks.set_up(control)?,
                RunPart::Block(OnceBlock::Teardown) => self.inspection.ranks.tear_down(control)?,
            }
            let (brought, left, blind) = match self.check_part(mode, part) {
                Ok(IterationResults { brought, left, blind }) => (Ok(brought), left, blind),
                Err(error) => (Err(error), Vec::new(), false),
            };
            let brought = collectives::shared(&self.inspection.ranks, brought)?;
            if blind {
                return Ok(WalkOutcome::Blind);
            }
            for found in collectives::check(&self.verified(part), &brought, &left) {
                self.note(mode, part, &found);
            }
            if matches!(part, RunPart::Iteration(_)) {
                stage.step();
            }
        }
        Ok(WalkOutcome::Done)
    }

    /// Checks a completed iteration or block on all ranks of this process.
    fn check_part(&mut self, mode: LaunchMode, part: RunPart) -> Result<IterationResults, ExecError> {
        let mut results = IterationResults::default();
        for own in 0..self.inspection.inspected.len() {
            let inspected = &self.inspection.inspected[own];
            let turn = match part {
                RunPart::Iteration(iteration) => Some((iteration % inspected.period as u64) as usize),
                RunPart::Block(which) => inspected.around.get(which).copied(),
            };
            let Some(turn) = turn else { continue };
            for place in 0..self.inspection.inspected[own].steps[turn].len() {
                if let Some(found) = self.launch(own, turn, place, &mut results)? {
                    self.note(mode, part, &found);
                }
            }
        }
        Ok(results)
    }

    /// Checks a launch and takes over its result; `None` if it cannot be checked yet.
    fn launch(
        &mut self,
        own: usize,
        turn: usize,
        place: usize,
        results: &mut IterationResults,
    ) -> Result<Option<CheckResult>, ExecError> {
        let Verifier { inspection: Inspection { ranks, inspected }, memories, keys, live, unread, taken, room, .. } =
            self;
        let (launched, memory, rank) =
            (&inspected[own].steps[turn][place], &mut memories[own], ranks.own().start + own);
        let spec = &launched.work.spec;
        let key = keys[own][turn][place].as_ref().filter(|key| live.contains(*key));
        let bytes = |elements: Vec<TensorBytes>| elements.iter().map(|one| one.bytes.to_vec()).collect::<Vec<_>>();
        if let Some(key) = key {
            let inputs = bytes(memory.elements(&spec.inputs, &launched.inputs));
            results.brought.push(Contribution { key: key.clone(), rank, op: launched.op, inputs });
        }
        if spec.outputs.is_empty() {
            return Ok(None);
        }
        let Some(places) = &launched.found else {
            *unread += 1;
            return Ok(None);
        };
        room.bytes.resize_with(places.len().max(room.bytes.len()), Vec::new);
        for ((tensor, at), bytes) in spec.outputs.iter().zip(places).zip(&mut room.bytes) {
            if !ranks.read_at(rank, *at, tensor.reach(), bytes)? {
                results.blind = true;
                return Ok(None);
            }
        }
        let elements =
            spec.outputs.iter().zip(&room.bytes).map(|(tensor, bytes)| TensorBytes { tensor: *tensor, bytes });
        let elements: Vec<TensorBytes> = elements.collect();
        let inputs = memory.elements(&spec.inputs, &launched.inputs);
        let before = memory.elements(&spec.outputs, &launched.outputs);
        let is_known = user_kernel(spec).is_none_or(|kernel| kernel.reference.is_some());
        *taken += u64::from(!is_known);
        let found = match key {
            None if !is_known => None,
            None => Some(CheckResult {
                rank,
                op: launched.op,
                checks: compute(|| ops::check(spec, &inputs, &before, &elements, &mut room.values)),
            }),
            Some(_) => None,
        };
        let before = key.map(|key| (key.clone(), bytes(before)));
        for (elements, at) in elements.iter().zip(&launched.outputs) {
            memory.store(elements, *at);
        }
        if let Some((key, before)) = before {
            let actual = room.bytes.drain(..places.len()).collect();
            results.left.push(DeviceOutputs { key, rank, op: launched.op, before, actual });
        }
        Ok(found)
    }

    /// Records the result of a launch.
    fn note(&mut self, mode: LaunchMode, part: RunPart, CheckResult { rank, op: (step, id), checks }: &CheckResult) {
        let ((number, program), step, id) = (self.verified(part)[*rank], *step, *id);
        let op = program.cycle[step].op(id);
        let name = program.op_name(op);
        // The name is looked up before it is copied, since a loop brings many operations of one name.
        if !self.operations.contains_key(name) {
            self.operations.insert(name.to_owned(), CheckedOperations::default());
        }
        let Some(known) = self.operations.get_mut(name) else { return };
        known.count += 1;
        known.declared |= program.op_spec(op).is_some_and(|spec| user_kernel(spec).is_some());
        known.by_vectors += u64::from(checks.iter().any(|check| check.method == Method::Vectors));
        for check in checks {
            known.elements += check.elements;
            known.undecided += check.undecided;
            known.error = known.error.max(check.worst.error.min(BEYOND));
        }
        let worst = checks.iter().enumerate().max_by(|a, b| a.1.worst.error.total_cmp(&b.1.worst.error));
        let Some((output, check)) = worst.filter(|(_, check)| !check.held()) else { return };
        let dims = program.op_spec(op).map_or(Dims::new(), |spec| spec.outputs[output].dims);
        self.mistakes.push(WrongLaunch {
            operation: program.op_text(op),
            launch: mode.name().to_owned(),
            rank: (self.ranks.len() > 1).then_some(number),
            iteration: match part {
                RunPart::Iteration(iteration) => iteration,
                RunPart::Block(_) => 0,
            },
            block: match part {
                RunPart::Iteration(_) => None,
                RunPart::Block(which) => Some(which.name().to_owned()),
            },
            output: program.view_text(program.cycle[step].outputs(id)[output]),
            element: coordinates(check.worst.index, dims),
            actual: format!("{:?}", check.worst.actual),
            expected: format!("{:?}", check.worst.expected),
            allowed: check.worst.allowed,
            error: check.worst.error.min(BEYOND),
        });
    }

    /// Results so far, of all processes.
    pub fn findings(&self) -> Result<Findings, ExecError> {
        let named = |(name, known): (&String, &CheckedOperations)| CheckedOperations {
            operation: name.clone(),
            ..known.clone()
        };
        let checked_operations: Vec<CheckedOperations> = self.operations.iter().map(named).collect();
        let all = self
            .inspection
            .ranks
            .agree("operations", Ok((checked_operations, self.mistakes.clone(), (self.unread, self.taken))))?;
        let mut operations: BTreeMap<String, CheckedOperations> = BTreeMap::new();
        let mut findings = Findings { operations: Vec::new(), mistakes: Vec::new(), unread: 0, taken: 0 };
        for (checked_operations, mistakes, (unread, taken)) in all {
            for one in checked_operations {
                operations.entry(one.operation.clone()).or_default().add(one);
            }
            findings.mistakes.extend(mistakes);
            findings.unread += unread;
            findings.taken += taken;
        }
        findings.operations = operations.into_values().collect();
        Ok(findings)
    }
}

/// Indices of an element from its number in row-major order.
fn coordinates(mut index: u64, dims: Dims) -> Vec<u64> {
    let mut coordinates = vec![0; dims.len()];
    for (coordinate, &size) in coordinates.iter_mut().zip(dims.iter()).rev() {
        *coordinate = index % size.max(1);
        index /= size.max(1);
    }
    coordinates
}
