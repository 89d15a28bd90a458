//! Visits the operations of a call from the last to the first, and records the gradients of each on a tape.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{DType, Dims, MemoryId, OpId, ViewId};
use crate::model::memory::regions::{Region, common, without};
use crate::model::memory::views::Extent;
use crate::model::program::{OpKind, Program, Step};
use crate::ops::backward::{Backward, NoRule, Tape, TensorId, widened};
use crate::ops::{Category, Operation, parts};

/// Maximum number of comparisons of slices for one `grad`.
const MAX_COMPARISONS: usize = 1 << 24;

/// A tensor of the program that the backward pass uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramTensor {
    pub view: ViewId,
    /// The operation that has the tensor as an operand, and whether it is an output; `None` for a gradient that the
    /// text names.
    pub by: Option<(OpId, bool)>,
}

/// Reason why a walk ends early.
#[derive(Debug)]
pub(super) enum GradientStop {
    /// An operation has no gradients.
    NoRule(OpId, NoRule),
    /// A copy goes to another rank.
    ToPeer(OpId),
    /// The target has too many slices to compare.
    TooMuch,
}

/// Gradients of a memory, contributed by later operations.
#[derive(Debug)]
struct Pending {
    /// Gradient of the whole `region`, in its dimensions.
    value: TensorId,
    region: Region,
    /// The parts of the region that are still valid: no earlier visited operation has overwritten them.
    live: Vec<Region>,
}

/// The state of a walk.
pub(super) struct GradientWalk<'p> {
    program: &'p Program,
    step: &'p Step,
    pub tape: Tape,
    /// Tensors of the program on the tape, by number.
    pub used: Vec<ProgramTensor>,
    pending: FxHashMap<MemoryId, Vec<Pending>>,
    /// The slices that depend on requested inputs.
    active: FxHashMap<MemoryId, Vec<ViewId>>,
    /// Slices that `active` has.
    seen: FxHashSet<ViewId>,
    /// Number of comparisons of slices that may still be made, which bounds the time.
    left: usize,
    /// Type to which gradients are rounded before products with 8-bit factors.
    quantize: Option<DType>,
}

impl<'p> GradientWalk<'p> {
    pub fn new(program: &'p Program, step: &'p Step, quantize: Option<DType>) -> GradientWalk<'p> {
        GradientWalk {
            program,
            step,
            tape: Tape::default(),
            used: Vec::new(),
            pending: FxHashMap::default(),
            active: FxHashMap::default(),
            seen: FxHashSet::default(),
            left: MAX_COMPARISONS,
            quantize,
        }
    }

    /// Adds a tensor of the program to the tape.
    pub fn value(&mut self, view: ViewId, by: Option<(OpId, bool)>) -> TensorId {
        let tensor = self.program.views.tensor(view);
        self.used.push(ProgramTensor { view, by });
        self.tape.program(self.used.len() as u32 - 1, tensor.dtype, tensor.dims)
    }

    /// Records the gradients of these operations. `wanted` are the inputs whose gradients are requested.
    pub fn run(&mut self, ops: std::ops::Range<u32>, wanted: &[ViewId]) -> Result<(), GradientStop> {
        wanted.iter().for_each(|&view| self.activate(view));
        for op in ops.clone().map(OpId) {
            if self.needs(self.step.inputs(op))?.contains(&true) {
                self.step.outputs(op).iter().for_each(|&view| self.activate(view));
            }
        }
        for op in ops.rev().map(OpId) {
            self.operation(op)?;
        }
        Ok(())
    }

    fn activate(&mut self, view: ViewId) {
        if self.seen.insert(view) {
            self.active.entry(self.program.views.memory(view)).or_default().push(view);
        }
    }

    /// Returns for each slice whether it depends on a requested input.
    fn needs(&mut self, views: &[ViewId]) -> Result<Vec<bool>, GradientStop> {
        let mut needed = Vec::with_capacity(views.len());
        for view in views {
            let known = self.active.get(&self.program.views.memory(*view));
            self.left = self.left.checked_sub(known.map_or(0, Vec::len)).ok_or(GradientStop::TooMuch)?;
            let overlaps = |other: &ViewId| self.program.views.overlap(*view, *other);
            let is_float = self.program.views.tensor(*view).dtype.is_float();
            needed.push(is_float && known.is_some_and(|known| known.iter().any(overlaps)));
        }
        Ok(needed)
    }

    /// Adds a gradient of a slice.
    pub fn add(&mut self, view: ViewId, value: TensorId) {
        let region: Region = self.program.views.extents(view).to_vec();
        let value = self.tape.reshape(value, sizes(&region));
        let memory = self.program.views.memory(view);
        self.pending.entry(memory).or_default().push(Pending { value, live: vec![region.clone()], region });
    }

    fn operation(&mut self, op: OpId) -> Result<(), GradientStop> {
        let OpKind::Run(spec) = self.step.op(op).kind else { return Ok(()) };
        let (program, step) = (self.program, self.step);
        let spec = program.spec(spec);
        let (inputs, outputs) = (step.inputs(op), step.outputs(op));
        self.tape.origin = op.0;
        let wanted = self.needs(inputs)?;
        if let Some(peer) = step.peer(op) {
            // The gradient of what this rank sends is on another rank. What arrives here becomes known when all ranks have
            // been analyzed, so any gradient of that memory may belong to another rank.
            let depends = |view: &ViewId| {
                let pending = self.pending.get(&program.views.memory(*view));
                pending.is_some_and(|pending| !pending.is_empty())
            };
            if (peer.to.is_some() && wanted.contains(&true)) || outputs.iter().any(depends) {
                return Err(GradientStop::ToPeer(op));
            }
            return Ok(());
        }
        let mut given = Vec::with_capacity(outputs.len());
        for &view in outputs {
            given.push(self.take(view)?);
        }
        let pairs = parts(spec).any(|part| is_transfer(part.spec.operation));
        let carries = wanted.contains(&true) && given.iter().any(Option::is_some);
        if !pairs && !carries {
            return Ok(());
        }
        let operands = |walk: &mut Self, views: &[ViewId], output: bool| -> Vec<TensorId> {
            views.iter().map(|&view| walk.value(view, Some((op, output)))).collect()
        };
        let (input_values, output_values) = (operands(self, inputs, false), operands(self, outputs, true));
        let mut gradients = Vec::with_capacity(inputs.len());
        let first_step = self.tape.steps.len();
        // Orders steps before, among and after the collectives of a group.
        let mut order = Vec::new();
        let mut in_group = 0;
        for part in parts(spec) {
            in_group += 1;
            let before = self.tape.steps.len();
            let wide = widened(part.spec);
            let rule = Backward::new(
                wide.as_ref().unwrap_or(part.spec),
                &mut self.tape,
                (&input_values[part.inputs.clone()], &output_values[part.outputs.clone()]),
                &given[part.outputs],
                &wanted[part.inputs],
                self.quantize,
            );
            gradients.extend(rule.run().map_err(|why| GradientStop::NoRule(op, why))?);
            let added = &self.tape.steps[before..];
            let is_collective =
                |step: &crate::ops::backward::TapeOperation| step.operation.category() == Category::Collective;
            let place = added.iter().position(is_collective).unwrap_or(added.len());
            order.extend((0..added.len()).map(|index| index.cmp(&place)));
        }
        if in_group > 1 {
            self.together(first_step, &order);
        }
        for ((&view, gradient), wanted) in inputs.iter().zip(gradients).zip(wanted) {
            if let Some(gradient) = gradient.filter(|_| wanted) {
                self.add(view, gradient);
            }
        }
        Ok(())
    }

    /// Orders steps so that their collectives are consecutive and are issued as one group.
    fn together(&mut self, first: usize, order: &[std::cmp::Ordering]) {
        let mut steps: Vec<_> = self.tape.steps.drain(first..).zip(order).collect();
        steps.sort_by_key(|(_, order)| **order);
        let together = Some(self.tape.origin);
        for (step, order) in &mut steps {
            step.together = together.filter(|_| order.is_eq());
        }
        self.tape.steps.extend(steps.into_iter().map(|(step, _)| step));
    }

    /// Removes and returns the gradient of a slice that an operation writes; `None` if it is zero. Earlier operations
    /// do not affect this memory, because the slice is overwritten.
    fn take(&mut self, view: ViewId) -> Result<Option<TensorId>, GradientStop> {
        let region: Region = self.program.views.extents(view).to_vec();
        let found = self.contributions(view, &region)?;
        let gradient = self.sum(view, found)?;
        if let Some(list) = self.pending.get_mut(&self.program.views.memory(view)) {
            for pending in list.iter_mut() {
                let live = std::mem::take(&mut pending.live);
                pending.live = live.into_iter().flat_map(|part| without(part, &region)).collect();
            }
            list.retain(|pending| !pending.live.is_empty());
        }
        Ok(gradient)
    }

    /// Writes the gradient of a slice to `goal`, or adds it to its contents. Returns the goal on the tape; `None` if the gradient
    /// is zero.
    pub fn write(&mut self, view: ViewId, goal: ViewId, adds: bool) -> Result<Option<TensorId>, GradientStop> {
        let views = &self.program.views;
        let region: Region = views.extents(view).to_vec();
        let can_cut = !views.is_reshaped(goal) && equal_without_ones(sizes(&region), views.tensor(view).dims);
        let found = self.contributions(view, &region)?;
        let in_parts = found.iter().any(|(part, _)| *part != region);
        if !(adds && can_cut && in_parts) {
            let Some(gradient) = self.sum(view, found)? else { return Ok(None) };
            let to = self.value(goal, None);
            match adds {
                true => self.tape.add_to(gradient, to),
                false => self.tape.move_to(gradient, to),
            }
            return Ok(Some(to));
        }
        // The goal holds all parts already, so that each contribution is added in its place.
        let to = self.value(goal, None);
        let whole = self.tape.reshape(to, sizes(&region));
        for (part, value) in found {
            let place = self.tape.slice(whole, offset(&part, &region), sizes(&part));
            self.tape.add_to(value, place);
        }
        Ok(Some(to))
    }

    /// Returns the contributions to the gradient of a slice that covers `region`, each with its box.
    fn contributions(&mut self, view: ViewId, region: &Region) -> Result<Vec<(Region, TensorId)>, GradientStop> {
        let mut found: Vec<(Region, TensorId)> = Vec::new();
        for pending in self.pending.get(&self.program.views.memory(view)).into_iter().flatten() {
            self.left = self.left.checked_sub(pending.live.len()).ok_or(GradientStop::TooMuch)?;
            for part in pending.live.iter().filter_map(|live| common(live, region)) {
                let start = offset(&part, &pending.region);
                let value = self.tape.slice(pending.value, start, sizes(&part));
                found.push((part, value));
            }
        }
        Ok(found)
    }

    /// Returns the sum of the contributions to a slice; `None` if there are none.
    fn sum(&mut self, view: ViewId, found: Vec<(Region, TensorId)>) -> Result<Option<TensorId>, GradientStop> {
        if found.is_empty() {
            return Ok(None);
        }
        let tensor = *self.program.views.tensor(view);
        let dtype = tensor.dtype.gradient();
        let region: Region = self.program.views.extents(view).to_vec();
        // In the tensor's dimensions, gradients can be computed in their destination, and fusion sees one slice.
        let dims = if equal_without_ones(sizes(&region), tensor.dims) { tensor.dims } else { sizes(&region) };
        let whole = match found.iter().all(|(part, _)| *part == region) {
            true => {
                let values: Vec<TensorId> =
                    found.into_iter().map(|(_, value)| self.tape.reshape(value, dims)).collect();
                self.tape.sum_of(&values, (dtype, dims))
            }
            false => self.assembled(found, &region, (dtype, dims))?,
        };
        Ok(Some(self.tape.reshape(whole, tensor.dims)))
    }

    /// Returns the gradient of a region in dimensions that only differ from those of the region by dimensions of size 1,
    /// assembled from contributions to parts of it.
    fn assembled(
        &mut self,
        found: Vec<(Region, TensorId)>,
        region: &Region,
        (dtype, dims): (DType, Dims),
    ) -> Result<TensorId, GradientStop> {
        let own = self.tape.scratch(dtype, dims);
        let whole = self.tape.reshape(own, sizes(region));
        // Boxes that have been written. They do not overlap.
        let mut written: Vec<Region> = Vec::new();
        for (part, value) in found {
            self.left = self.left.checked_sub(written.len()).ok_or(GradientStop::TooMuch)?;
            let again: Vec<Region> = written.iter().filter_map(|before| common(before, &part)).collect();
            let fresh = again.iter().fold(vec![part.clone()], |left, taken| {
                left.into_iter().flat_map(|piece| without(piece, taken)).collect()
            });
            for (piece, adds) in
                again.into_iter().map(|piece| (piece, true)).chain(fresh.iter().map(|piece| (piece.clone(), false)))
            {
                let from = self.tape.slice(value, offset(&piece, &part), sizes(&piece));
                let to = self.tape.slice(whole, offset(&piece, region), sizes(&piece));
                match adds {
                    true => self.tape.add_to(from, to),
                    false => self.tape.move_to(from, to),
                }
            }
            written.extend(fresh);
        }
        let rest = written.iter().fold(vec![region.clone()], |left, taken| {
            left.into_iter().flat_map(|piece| without(piece, taken)).collect()
        });
        for piece in rest {
            let to = self.tape.slice(whole, offset(&piece, region), sizes(&piece));
            self.tape.fill(0.0, to);
        }
        Ok(own)
    }
}

/// True if an operation is one side of a transfer. The other side waits for it, so its gradient must be transferred
/// even if it is zero.
pub(super) fn is_transfer(operation: &dyn Operation) -> bool {
    let signature = operation.signature();
    operation.category() == Category::Collective && (signature.inputs.is_empty() || signature.outputs.is_empty())
}

/// True if two shapes are equal except for dimensions of size 1.
fn equal_without_ones(a: Dims, b: Dims) -> bool {
    let long = |dims: Dims| dims.iter().copied().filter(|&size| size > 1).collect::<Vec<u64>>();
    long(a) == long(b)
}

/// Returns the sizes of a box.
fn sizes(region: &[Extent]) -> Dims {
    region.iter().map(|extent| extent.len).collect()
}

/// Returns the offset of a box within another, by dimension.
fn offset(part: &[Extent], whole: &[Extent]) -> Dims {
    part.iter().zip(whole).map(|(part, whole)| part.start - whole.start).collect()
}
