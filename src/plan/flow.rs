//! Data flow: the operation that wrote an input, and the operations that read an output.

use crate::base::{MemoryId, OpId, ViewId};
use crate::model::{MemoryKind, Program, Step};

use super::regions::Regions;

/// A use of a result: an operation, and the number of the input through which it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputUse {
    pub op: OpId,
    pub input: usize,
}

/// The operations that read an output of an operation, in whole or in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Readers {
    /// Readers in the same iteration, in the order of the text.
    uses: Vec<InputUse>,
    /// True if a later iteration, or the `teardown`, also reads the output.
    later: bool,
}

/// The data flow of all slots of a program's cycle. Operations execute in the order of the text.
#[derive(Debug)]
pub struct Flow<'a> {
    program: &'a Program,
    steps: Vec<StepFlow>,
    /// For each slice, whether an operation of the cycle writes any of its elements.
    written: Vec<bool>,
}

/// The data flow of one slot.
#[derive(Debug)]
struct StepFlow {
    /// For each operation, the index of its first operand in `sources` and `readers`. Inputs come before outputs.
    starts: Vec<u32>,
    /// For each input, the operation and the number of its output that wrote all elements of the input; `None` if there
    /// is no single such output in the same iteration, and for outputs.
    sources: Vec<Option<(OpId, usize)>>,
    /// For each output, the operations that read it; empty for inputs.
    readers: Vec<Readers>,
}

impl StepFlow {
    fn new(step: &Step) -> StepFlow {
        let mut starts = Vec::with_capacity(step.ops.len());
        let mut count = 0;
        for op in step.ids() {
            starts.push(count);
            count += (step.inputs(op).len() + step.outputs(op).len()) as u32;
        }
        let count = count as usize;
        StepFlow { starts, sources: vec![None; count], readers: vec![Readers::default(); count] }
    }

    fn place(&self, op: OpId, operand: usize) -> usize {
        self.starts[op.index()] as usize + operand
    }
}

/// A result that is still in memory.
#[derive(Clone, Copy)]
struct LiveValue {
    /// Number of the iteration, over both rounds of the walk.
    iteration: usize,
    op: OpId,
    output: usize,
    view: ViewId,
    /// True if a later operation has overwritten a part of the value.
    torn: bool,
}

/// A walk through the cycle's iterations, two rounds long: the second round reads the values that the first one has
/// left.
struct FlowWalk<'a> {
    program: &'a Program,
    regions: &'a Regions,
    /// For each slice, the value that was last written through it; `None` if none was, or if all of it has been
    /// overwritten.
    live: Vec<Option<LiveValue>>,
    /// Slices of scratch memory that the current iteration has written.
    scratch: Vec<ViewId>,
    steps: Vec<StepFlow>,
    iteration: usize,
}

impl FlowWalk<'_> {
    fn overlapping(&self, view: ViewId) -> impl Iterator<Item = ViewId> {
        std::iter::once(view).chain(self.regions.of(view).iter().map(|neighbour| neighbour.view()))
    }

    fn read(&mut self, slot: usize, reader: InputUse, view: ViewId) {
        let found: Vec<LiveValue> = self.overlapping(view).filter_map(|other| self.live[other.index()]).collect();
        let program = self.program;
        let inputs = |slot: usize, op: OpId| program.cycle[slot].inputs(op).len();
        let cycle = program.cycle.len();
        for value in &found {
            let of = value.iteration % cycle;
            let place = self.steps[of].place(value.op, inputs(of, value.op) + value.output);
            let readers = &mut self.steps[of].readers[place];
            match value.iteration == self.iteration {
                false => readers.later = true,
                true if self.iteration < cycle => readers.uses.push(reader),
                true => {}
            }
        }
        let whole = |value: &LiveValue| {
            let views = &self.program.views;
            value.iteration == self.iteration && !value.torn && views.extents(value.view) == views.extents(view)
        };
        if let [value] = found[..]
            && whole(&value)
        {
            let place = self.steps[slot].place(reader.op, reader.input);
            self.steps[slot].sources[place] = Some((value.op, value.output));
        }
    }

    fn write(&mut self, op: OpId, output: usize, view: ViewId) {
        for neighbour in self.regions.of(view) {
            let value = &mut self.live[neighbour.view().index()];
            match neighbour.covered() {
                true => *value = None,
                false => value.iter_mut().for_each(|value| value.torn = true),
            }
        }
        self.live[view.index()] = Some(LiveValue { iteration: self.iteration, op, output, view, torn: false });
        let program = self.program;
        if program.memory(program.views.memory(view)).kind == MemoryKind::Scratch {
            self.scratch.push(view);
        }
    }

    /// Removes the values in scratch memory, of which each iteration has its own copy.
    fn end_iteration(&mut self) {
        for view in self.scratch.drain(..) {
            self.live[view.index()] = None;
        }
    }

    /// Marks the values that are in these memories after the last iteration as read later.
    fn read_at_last(&mut self, memories: &[MemoryId]) {
        let cycle = self.program.cycle.len();
        for value in self.live.iter().flatten() {
            if memories.contains(&self.program.views.memory(value.view)) {
                let of = value.iteration % cycle;
                let inputs = self.program.cycle[of].inputs(value.op).len();
                let place = self.steps[of].place(value.op, inputs + value.output);
                self.steps[of].readers[place].later = true;
            }
        }
    }
}

impl<'a> Flow<'a> {
    /// Returns the data flow of a program; `None` if too many of its slices overlap.
    pub fn of(program: &'a Program) -> Option<Flow<'a>> {
        let regions = Regions::new(program, false).ok()?;
        let count = program.views.len();
        let steps = program.cycle.iter().map(StepFlow::new).collect();
        let (live, scratch) = (vec![None; count], Vec::new());
        let mut walk = FlowWalk { program, regions: &regions, live, scratch, steps, iteration: 0 };
        let mut written = vec![false; count];
        for iteration in 0..2 * program.cycle.len() {
            let slot = iteration % program.cycle.len();
            let step = &program.cycle[slot];
            walk.iteration = iteration;
            for op in step.ids() {
                for (input, &view) in step.inputs(op).iter().enumerate() {
                    walk.read(slot, InputUse { op, input }, view);
                }
                for (output, &view) in step.outputs(op).iter().enumerate() {
                    walk.write(op, output, view);
                    walk.overlapping(view).for_each(|view| written[view.index()] = true);
                }
            }
            walk.end_iteration();
        }
        if let Some(block) = &program.around.teardown {
            let steps = block.cycle.iter();
            let views = steps.flat_map(|step| step.ids().flat_map(|op| step.inputs(op).iter().copied()));
            let memories: Vec<MemoryId> = views.map(|view| block.views.memory(view)).collect();
            walk.read_at_last(&memories);
        }
        Some(Flow { program, steps: walk.steps, written })
    }

    /// The operation that wrote all elements of an input in the same iteration, and the number of its output; `None` if
    /// an earlier iteration, several operations or none wrote them.
    pub fn source(&self, slot: usize, reader: InputUse) -> Option<(OpId, usize)> {
        let step = &self.steps[slot];
        step.sources[step.place(reader.op, reader.input)]
    }

    /// Returns the operations that read an output, in whole or in part, if they are all in its own iteration; `None` if another
    /// iteration or the `teardown` also reads it.
    pub fn readers(&self, slot: usize, op: OpId, output: usize) -> Option<&[InputUse]> {
        let step = &self.steps[slot];
        let inputs = self.program.cycle[slot].inputs(op).len();
        let readers = &step.readers[step.place(op, inputs + output)];
        (!readers.later).then_some(&readers.uses)
    }

    /// True if no operation of the cycle writes any element of a slice.
    pub fn constant(&self, view: ViewId) -> bool {
        !self.written[view.index()]
    }

    /// True if no operation strictly between `from` and `to`, in the order of the text, writes an element of a slice. With
    /// `reads`, reads count as writes do.
    pub fn untouched(&self, slot: usize, view: ViewId, (from, to): (OpId, OpId), reads: bool) -> bool {
        let step = &self.program.cycle[slot];
        let touches = |op: OpId| {
            let mut operands = step.operands(op).filter(|(_, writes)| reads || *writes);
            operands.any(|(other, _)| self.program.views.overlap(view, other))
        };
        !(from.0 + 1..to.0).any(|op| touches(OpId(op)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{self, AnalysisOptions};

    fn flow<T>(text: &str, check: impl FnOnce(&Flow) -> T) -> T {
        let program = model::analyze_text(text, &AnalysisOptions::default()).expect("the text is valid");
        check(&Flow::of(&program).expect("few slices overlap"))
    }

    fn uses(flow: &Flow, op: u32) -> Option<Vec<u32>> {
        Some(flow.readers(0, OpId(op), 0)?.iter().map(|found| found.op.0).collect())
    }

    #[test]
    fn readers_of_this_iteration_and_of_others() {
        let text = "
buffer x, y: f32[4, 4]
buffer z: f32[4, 4] = zeros
step {
  a: map(x + 1)
  map(a[0..2] * 2 -> y[0..2])
  map(a * 2 -> z)
  map(y[0] + 1 -> y[1])
  map(y * 2)
  map(z + x -> x)
}
teardown { map(z + 1) }
";
        flow(text, |flow| {
            assert_eq!(uses(flow, 0), Some(vec![1, 2]));
            // An operation reads a part of a result, and another reads values of which a part comes from elsewhere.
            assert_eq!(flow.source(0, InputUse { op: OpId(1), input: 0 }), None);
            assert_eq!(flow.source(0, InputUse { op: OpId(2), input: 0 }), Some((OpId(0), 0)));
            assert_eq!((uses(flow, 1), uses(flow, 3)), (Some(vec![3, 4]), Some(vec![4])));
            assert_eq!(flow.source(0, InputUse { op: OpId(4), input: 0 }), None);
            assert_eq!(uses(flow, 2), None, "the teardown reads it");
            assert_eq!(uses(flow, 5), None, "the next iteration reads it");
            let inputs = |op| flow.program.cycle[0].inputs(OpId(op)).to_vec();
            assert!(!flow.constant(inputs(0)[0]) && !flow.constant(inputs(3)[0]));
            assert!(!flow.untouched(0, inputs(0)[0], (OpId(0), OpId(6)), false));
            assert!(flow.untouched(0, inputs(0)[0], (OpId(0), OpId(5)), false));
            assert!(!flow.untouched(0, inputs(2)[0], (OpId(0), OpId(5)), true));
        });
    }
}
