//! Converts a tape to operations: allocates memory for its tensors, and omits steps whose results are not used.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{DType, Dims, LabelId, Space, SpecId, SrcSpan, StreamId, ViewId};
use crate::model::analyzer::Analyzer;
use crate::model::memory::views::Extent;
use crate::model::names::labels::LabelData;
use crate::model::program::{Label, Memory, MemoryKind, OpKind};
use crate::ops::backward::{Tape, TapeOperation, TensorId, TensorOrigin};
use crate::ops::init::Init;
use crate::ops::{self, OpError, Spec, Tensor};

use super::walk::{ProgramTensor, is_transfer};

/// A backward pass that is being converted to operations.
pub(super) struct Emission<'t> {
    pub tape: &'t Tape,
    pub used: &'t [ProgramTensor],
    /// Location of the `grad`.
    pub span: SrcSpan,
    /// The label of all operations; operations with labels of their own have it as their parent.
    pub label: LabelId,
    /// The label of the operation or call whose gradients are computed.
    pub of: LabelId,
    /// Number of definitions whose calls are open around the call whose gradients are computed; `None` for an operation.
    depth: Option<u8>,
    /// The slices of tensors that have memory.
    memory: FxHashMap<TensorId, ViewId>,
    /// Tensors whose only use is a move after they have been computed, with the destination: they are computed there
    /// directly.
    targets: FxHashMap<TensorId, TensorId>,
    /// Tensors of which only parts are read or written at some point.
    cut: FxHashSet<TensorId>,
    labels: FxHashMap<u32, LabelId>,
    /// Number of tensors with scratch memory, by label.
    scratch: FxHashMap<LabelId, u32>,
}

impl<'t> Emission<'t> {
    pub fn new(
        tape: &'t Tape,
        used: &'t [ProgramTensor],
        span: SrcSpan,
        (label, of): (LabelId, LabelId),
        depth: Option<u8>,
    ) -> Emission<'t> {
        Emission {
            tape,
            used,
            span,
            label,
            of,
            depth,
            memory: FxHashMap::default(),
            targets: FxHashMap::default(),
            cut: FxHashSet::default(),
            labels: FxHashMap::default(),
            scratch: FxHashMap::default(),
        }
    }
}

/// Returns the steps whose results are used, in order: steps that write tensors of the program, transfers, and the
/// steps that these depend on.
pub(super) fn needed(tape: &Tape) -> Vec<usize> {
    let mut read: FxHashSet<TensorId> = FxHashSet::default();
    let mut needed = Vec::new();
    for (index, step) in tape.steps.iter().enumerate().rev() {
        let is_read = |output: &TensorId| {
            let root = tape.root(*output);
            read.contains(&root) || matches!(tape.get(root).source, TensorOrigin::Program(_))
        };
        if step.outputs.iter().any(is_read) || is_transfer(step.operation) {
            needed.push(index);
            read.extend(step.inputs.iter().map(|input| tape.root(*input)));
        }
    }
    needed.reverse();
    needed
}

impl Analyzer<'_> {
    /// Adds the operations of these steps to the program.
    pub(super) fn emit(&mut self, emission: &mut Emission, steps: &[usize]) {
        find_targets(emission, steps);
        let tape = emission.tape;
        let mut rest = steps;
        while let Some(&first) = rest.first() {
            let together = tape.steps[first].together;
            let alike = |index: &&usize| together.is_some() && tape.steps[**index].together == together;
            let count = rest.iter().take_while(alike).count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            if !self.emit_together(emission, now) {
                return;
            }
        }
    }

    /// Adds one operation for steps that are issued together. Returns false if an error ends the emission.
    fn emit_together(&mut self, emission: &mut Emission, steps: &[usize]) -> bool {
        let tape = emission.tape;
        let (mut specs, mut inputs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        let mut team = None;
        for &index in steps {
            let step = &tape.steps[index];
            if is_done(emission, step) {
                continue;
            }
            let Some((spec, from, to)) = self.made(emission, step) else { return false };
            team = Some(step.team);
            specs.push(spec);
            inputs.extend(from);
            outputs.extend(to);
        }
        let (Some(team), Some(&first)) = (team, steps.first()) else { return true };
        let spec = match specs.len() {
            1 => specs.swap_remove(0),
            _ => ops::Batch::of(specs, team),
        };
        self.push_backward(emission, tape.steps[first].origin, spec, &inputs, &outputs)
    }

    /// Returns the spec of a step and the slices that it reads and writes; `None` after an error.
    fn made(&mut self, emission: &mut Emission, step: &TapeOperation) -> Option<(Spec, Vec<ViewId>, Vec<ViewId>)> {
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for &input in &step.inputs {
            inputs.push(self.view_to_read(emission, step.origin, input)?);
        }
        let mut spec = self.with_outputs(emission, step, &inputs);
        if let Err(OpError::Gaps { .. }) = spec {
            // Library calls of products and collectives do not accept tensors with gaps.
            for (view, &value) in inputs.iter_mut().zip(&step.inputs) {
                let tensor = self.program.views.tensor(*view);
                if !tensor.contiguous() {
                    let dims = tensor.dims;
                    *view = self.moved(emission, (step.origin, value), *view, dims)?;
                }
            }
            spec = self.with_outputs(emission, step, &inputs);
        }
        match spec {
            Ok((spec, outputs)) => Some((spec, inputs, outputs)),
            Err(error) => self.fail(error),
        }
    }

    /// Returns the spec of a step that reads these slices, and the slices that it writes. Results are written to the
    /// destination of a later move if the operation can write there.
    fn with_outputs(
        &mut self,
        emission: &mut Emission,
        step: &TapeOperation,
        inputs: &[ViewId],
    ) -> Result<(Spec, Vec<ViewId>), OpError> {
        let direct: Option<Vec<ViewId>> =
            step.outputs.iter().map(|&output| self.view_to_write(emission, step.origin, output)).collect();
        if let Some(views) = direct
            && let Ok(spec) = self.backward_spec(emission.span, step, inputs, &views)
        {
            let roots = step.outputs.iter().zip(&views);
            for (&output, &view) in roots {
                if emission.tape.whole(output) == Some(output) {
                    emission.memory.insert(output, view);
                }
            }
            return Ok((spec, views));
        }
        step.outputs.iter().for_each(|output| {
            emission.targets.remove(&emission.tape.root(*output));
        });
        let own: Vec<ViewId> =
            step.outputs.iter().filter_map(|&output| self.view_to_write(emission, step.origin, output)).collect();
        Ok((self.backward_spec(emission.span, step, inputs, &own)?, own))
    }

    /// Returns the spec of a step on these slices.
    fn backward_spec(
        &mut self,
        span: SrcSpan,
        step: &TapeOperation,
        inputs: &[ViewId],
        outputs: &[ViewId],
    ) -> Result<Spec, OpError> {
        let tensors = |views: &[ViewId]| views.iter().map(|&view| *self.program.views.tensor(view)).collect::<Vec<_>>();
        let spec = Spec {
            expression: step.expression.clone().map(Into::into),
            team: step.team,
            ..Spec::new(step.operation, step.attrs.clone(), tensors(inputs), tensors(outputs))
        };
        let given: Vec<Option<Tensor>> = spec.outputs.iter().copied().map(Some).collect();
        spec.infer(&given, span)?;
        Ok(spec)
    }

    fn push_backward(
        &mut self,
        emission: &mut Emission,
        origin: u32,
        spec: Spec,
        inputs: &[ViewId],
        outputs: &[ViewId],
    ) -> bool {
        self.program.by_rank |= crate::model::calls::specs::depends_on_rank(&spec);
        let spec = SpecId::from(self.program.specs.insert_full(spec).0);
        let label = self.label_of(emission, origin);
        let outer = (self.expansion.stream, self.expansion.on_depth);
        if let Some((stream, depth)) = self.placed(emission, origin) {
            (self.expansion.stream, self.expansion.on_depth) = (Some(stream), depth);
        }
        let pushed = self.push_op(OpKind::Run(spec), emission.span, Some(label), inputs, outputs);
        (self.expansion.stream, self.expansion.on_depth) = outer;
        pushed.is_some()
    }

    /// Returns the stream of a forward operation that the called definition has placed by an `on`, and the number of calls open at
    /// that `on`. `None` if the operation runs where its call does, or on a host stream, whose threads compute no gradients.
    fn placed(&self, emission: &Emission, origin: u32) -> Option<(StreamId, u8)> {
        let depth = *self.expansion.on_depths.get(origin as usize)?;
        let stream = self.expansion.step.ops[origin as usize].stream;
        let is_inside = emission.depth.is_some_and(|outer| depth > outer);
        (is_inside && self.program.streams[stream.index()].threads.is_none()).then_some((stream, depth))
    }

    /// Returns the label of the operations that compute the gradients of one operation. Its path below the `grad`
    /// equals the path of that operation below the target.
    fn label_of(&mut self, emission: &mut Emission, origin: u32) -> LabelId {
        if let Some(&known) = emission.labels.get(&origin) {
            return known;
        }
        let mut path = Vec::new();
        // Steps that belong to no forward operation have the label of the `grad`.
        let mut at = self.expansion.step.ops.get(origin as usize).map_or(emission.of, |op| op.label);
        while at != emission.of && at != LabelId(0) {
            path.push(at);
            at = self.program.labels[at.index()].parent;
        }
        let mut label = emission.label;
        for part in path.into_iter().rev() {
            let Label { name, index, .. } = self.program.labels[part.index()].clone();
            label = self.inner_label(Label { name, index, parent: label });
        }
        emission.labels.insert(origin, label);
        label
    }

    /// Adds a label that no text can name.
    pub(super) fn inner_label(&mut self, label: Label) -> LabelId {
        self.program.labels.push(label);
        self.expansion.labels.push(LabelData::call(0..0, Vec::new()));
        LabelId::from(self.program.labels.len() - 1)
    }

    // --- Memory -----------------------------------------------------------------------------------------------

    /// Returns the slice to which a value is written; `None` if the value has no memory yet that can be written.
    fn view_to_write(&mut self, emission: &mut Emission, origin: u32, value: TensorId) -> Option<ViewId> {
        let entry = emission.tape.get(value);
        match entry.source {
            TensorOrigin::Program(number) => Some(emission.used[number as usize].view),
            TensorOrigin::Slice(of, start) => {
                let of = self.view_to_write(emission, origin, of)?;
                self.cut(of, start, entry.dims)
            }
            TensorOrigin::Reshaped(of) => {
                let of = self.view_to_write(emission, origin, of)?;
                self.reshaped(of, entry.dims)
            }
            TensorOrigin::Iota => None,
            TensorOrigin::Scratch => {
                if let Some(&known) = emission.memory.get(&value) {
                    return Some(known);
                }
                if let Some(target) = emission.targets.get(&value).copied() {
                    return self
                        .view_to_write(emission, origin, target)
                        .and_then(|view| self.reshaped(view, entry.dims));
                }
                let view = self.own_memory(emission, origin, (entry.dtype, entry.dims));
                emission.memory.insert(value, view);
                Some(view)
            }
        }
    }

    /// Returns the slice from which a value is read. A value that is not a slice of its memory is first copied to one.
    fn view_to_read(&mut self, emission: &mut Emission, origin: u32, value: TensorId) -> Option<ViewId> {
        let entry = emission.tape.get(value);
        match entry.source {
            TensorOrigin::Program(_) | TensorOrigin::Scratch => self.view_to_write(emission, origin, value),
            TensorOrigin::Iota => Some(self.iota((entry.dtype, entry.dims), emission.span)),
            TensorOrigin::Slice(of, start) => {
                let whole = self.view_to_read(emission, origin, of)?;
                if let Some(view) = self.cut(whole, start, entry.dims) {
                    return Some(view);
                }
                let dims = emission.tape.dims(of);
                let plain = self.moved(emission, (origin, of), whole, dims)?;
                self.cut(plain, start, entry.dims)
            }
            TensorOrigin::Reshaped(of) => {
                let base = self.view_to_read(emission, origin, of)?;
                if let Some(view) = self.reshaped(base, entry.dims) {
                    return Some(view);
                }
                let dims = emission.tape.dims(of);
                let plain = self.moved(emission, (origin, of), base, dims)?;
                self.reshaped(plain, entry.dims)
            }
        }
    }

    /// Creates scratch memory of a type and a shape, named after its operation, with a number from the second of a name on.
    fn own_memory(&mut self, emission: &mut Emission, origin: u32, (dtype, dims): (DType, Dims)) -> ViewId {
        let label = self.label_of(emission, origin);
        let number = emission.scratch.entry(label).or_default();
        *number += 1;
        let name = match *number {
            1 => self.label_path(label),
            number => format!("{} ({number})", self.label_path(label)),
        };
        let memory = Memory {
            name: self.names.intern(&name),
            kind: MemoryKind::Scratch,
            space: Space::Device,
            family: 0,
            shape: self.program.shapes.intern(dtype, dims),
            span: emission.span,
        };
        let memory = self.add_memory(memory);
        self.all_of(memory)
    }

    /// Copies a slice to memory of its own, without gaps.
    fn moved(
        &mut self,
        emission: &mut Emission,
        (origin, value): (u32, TensorId),
        from: ViewId,
        dims: Dims,
    ) -> Option<ViewId> {
        let dtype = emission.tape.dtype(value);
        let to = self.own_memory(emission, origin, (dtype, dims));
        let mut tape = Tape::default();
        let (a, b) = (tape.program(0, dtype, dims), tape.program(1, dtype, dims));
        tape.move_to(a, b);
        let spec = self.backward_spec(emission.span, &tape.steps[0], &[from], &[to]).ok()?;
        self.push_backward(emission, origin, spec, &[from], &[to]).then_some(to)
    }

    fn cut(&mut self, view: ViewId, start: Dims, dims: Dims) -> Option<ViewId> {
        let views = &self.program.views;
        if views.is_reshaped(view) {
            return None;
        }
        let mut extents: Vec<Extent> = views.extents(view).to_vec();
        for ((axis, &start), &len) in views.kept(view).zip(start.iter()).zip(dims.iter()) {
            extents[axis] = Extent { start: extents[axis].start + start, len };
        }
        let (memory, kept) = (views.memory(view), views.kept_mask(view));
        let layout = self.program.layout(memory);
        Some(self.program.views.intern(memory, &extents, kept, &layout))
    }

    fn reshaped(&mut self, view: ViewId, dims: Dims) -> Option<ViewId> {
        let tensor = *self.program.views.tensor(view);
        if tensor.dims == dims {
            return Some(view);
        }
        let strides = ops::reshaped(&tensor, dims).ok()?;
        let layout = self.program.layout(self.program.views.memory(view));
        Some(self.program.views.reshape(view, dims, strides, &layout))
    }

    /// Returns memory with the contents 0, 1, 2, …, one for each shape.
    fn iota(&mut self, (dtype, dims): (DType, Dims), span: SrcSpan) -> ViewId {
        let shape = self.program.shapes.intern(dtype, dims);
        if let Some(&memory) = self.expansion.iotas.get(&shape) {
            return self.all_of(memory);
        }
        let (name, kind) = (self.names.intern("grad"), MemoryKind::Bare(Init::Iota));
        let memory = self.add_memory(Memory { name, kind, space: Space::Device, family: 0, shape, span });
        self.expansion.iotas.insert(shape, memory);
        self.all_of(memory)
    }
}

/// True if a move is unnecessary because its tensor was computed at the destination.
fn is_done(emission: &Emission, step: &TapeOperation) -> bool {
    let target = step.inputs.first().and_then(|&input| emission.tape.whole(input));
    step.is_move() && target.is_some_and(|root| emission.targets.get(&root) == Some(&step.outputs[0]))
}

/// Finds the tensors whose only reader is a move.
fn find_targets(emission: &mut Emission, steps: &[usize]) {
    let tape = emission.tape;
    let mut reads: FxHashMap<TensorId, usize> = FxHashMap::default();
    for step in steps.iter().map(|&index| &tape.steps[index]) {
        let own: Vec<TensorId> = step.outputs.iter().map(|output| tape.root(*output)).collect();
        for &input in &step.inputs {
            let root = tape.root(input);
            *reads.entry(root).or_default() += usize::from(!own.contains(&root));
        }
        for &value in step.inputs.iter().chain(&step.outputs).filter(|value| tape.whole(**value).is_none()) {
            emission.cut.insert(tape.root(value));
        }
    }
    for step in steps.iter().map(|&index| &tape.steps[index]).filter(|step| step.is_move()) {
        let (from, to) = (step.inputs[0], step.outputs[0]);
        let Some(root) = tape.whole(from) else { continue };
        let (dims, goal) = (tape.dims(root), tape.dims(to));
        let fits = dims == goal || !emission.cut.contains(&root) && dims.elements() == goal.elements();
        if matches!(tape.get(root).source, TensorOrigin::Scratch) && reads[&root] == 1 && fits {
            emission.targets.insert(root, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{self, AnalysisOptions};

    /// Operations of the text, each with its stream, in order.
    fn streams(text: &str) -> Vec<String> {
        let program = model::analyze_text(text, &AnalysisOptions::default()).expect("the text is valid");
        let ops = program.cycle[0].ops.iter();
        ops.map(|op| format!("{} on {}", program.op_name(op), program.streams[op.stream.index()].name)).collect()
    }

    #[test]
    fn gradients_run_where_the_definition_placed_their_operation() {
        let text = "
stream work
stream back
stream link
buffer x, dx, dy: f32[4, 4]

def sum(x, link -> y) { on link { all_reduce(x -> y) } }

// The first sum is on a stream that the call gives, the second on that of the call.
def both(x, link -> y) {
  a: sum(x, link)
  b: map(a * 2)
  all_reduce(b -> y)
}

step {
  on work { f: both(x, link) }
  on back { grad(f, dy -> dx) }
  on link { g: both(x, link) }
  on back { h: grad(g, dy) }
}
";
        let forward = |stream: &str| {
            ["all_reduce on link".to_owned(), format!("map on {stream}"), format!("all_reduce on {stream}")]
        };
        let backward = ["all_reduce on back", "map on back", "all_reduce on link"].map(str::to_owned);
        // The `on link` of `sum` decides, also where the call is on that stream too.
        let expected = [forward("work"), backward.clone(), forward("link"), backward].concat();
        assert_eq!(streams(text), expected);
    }
}
