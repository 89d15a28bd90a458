//! Contents of small tensors of whole numbers, as far as the text determines them: lengths of sequences, and ends of groups.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::base::{DType, MemoryId, OpId, SpecId, ViewId};
use crate::ops::init::Init;
use crate::ops::{self, Category, Spec};

use super::program::{MemoryKind, OpKind, Program, Step};

/// Maximum number of elements of a tensor whose contents are computed.
const MAX_ELEMENTS: u64 = 1 << 16;

/// Contents of memories at a point of the run.
#[derive(Clone, Default)]
struct Contents {
    /// Elements of the memories that operations have written, in row-major order; `None` if they are unknown. A missing memory has
    /// its initial contents.
    written: FxHashMap<MemoryId, Option<Arc<[f64]>>>,
}

impl Contents {
    /// Elements of a memory; `None` if they are unknown.
    fn memory(&self, memory: MemoryId, program: &Program) -> Option<Arc<[f64]>> {
        if let Some(known) = self.written.get(&memory) {
            return known.clone();
        }
        let (MemoryKind::Buffer(init) | MemoryKind::Bare(init)) = program.memory(memory).kind else { return None };
        let layout = program.layout(memory);
        let elements: u64 = layout.dims.iter().product();
        // Ranks with one program differ in their random contents.
        let is_known = !matches!(init, Init::Random { .. }) || program.world == 1;
        (is_known && is_whole(layout.dtype) && elements <= MAX_ELEMENTS)
            .then(|| (0..elements).map(|index| init.value(layout.dtype, index)).collect())
    }

    /// Elements of a slice in row-major order; `None` if they are unknown.
    fn view(&self, view: ViewId, program: &Program) -> Option<Vec<f64>> {
        if program.views.tensor(view).elements() > MAX_ELEMENTS {
            return None;
        }
        let all = self.memory(program.views.memory(view), program)?;
        Some(places(view, program).map(|place| all[place]).collect())
    }

    /// Notes that an operation wrote a slice. `values` are its elements; `None` if they are unknown.
    fn write(&mut self, view: ViewId, values: Option<Vec<f64>>, program: &Program) {
        let memory = program.views.memory(view);
        if !is_whole(program.layout(memory).dtype) {
            return;
        }
        let elements: u64 = program.layout(memory).dims.iter().product();
        let before = match self.memory(memory, program) {
            None if program.views.tensor(view).elements() == elements => Some(vec![0.0; elements as usize].into()),
            before => before,
        };
        let after = before.zip(values).map(|(mut all, values)| {
            let elements = Arc::make_mut(&mut all);
            places(view, program).zip(values).for_each(|(place, value)| elements[place] = value);
            all
        });
        self.written.insert(memory, after);
    }

    /// Executes an operation whose inputs are known, and forgets the outputs of any other.
    fn run(&mut self, op: OpId, step: &Step, program: &Program) {
        let OpKind::Run(id) = step.op(op).kind else { return };
        let results = self.results(program.spec(id), step.inputs(op), step.outputs(op), program);
        let mut results = results.into_iter().flatten();
        for view in step.outputs(op) {
            self.write(*view, results.next(), program);
        }
    }

    /// Elements of the outputs of an operation; `None` if they are unknown.
    fn results(&self, spec: &Spec, inputs: &[ViewId], outputs: &[ViewId], program: &Program) -> Option<Vec<Vec<f64>>> {
        let computes = matches!(spec.operation.category(), Category::Elementwise | Category::Copy | Category::RowWise);
        let are_whole = spec.inputs.iter().chain(&spec.outputs).all(|tensor| is_whole(tensor.dtype));
        let are_small = spec.outputs.iter().all(|tensor| tensor.elements() <= MAX_ELEMENTS);
        if !computes || !are_whole || !are_small || spec.outputs.len() != outputs.len() || ops::crossing(spec).is_some()
        {
            return None;
        }
        let of_inputs = inputs.get(..spec.inputs.len())?;
        let known: Vec<Vec<f64>> = of_inputs.iter().map(|view| self.view(*view, program)).collect::<Option<_>>()?;
        let updates = spec.operation.updates(&spec.attrs);
        let before = |view: &ViewId| match self.view(*view, program) {
            None if !updates => Some(vec![0.0; program.views.tensor(*view).elements() as usize]),
            before => before,
        };
        let mut results: Vec<Vec<f64>> = outputs.iter().map(before).collect::<Option<_>>()?;
        let slices: Vec<&[f64]> = known.iter().map(Vec::as_slice).collect();
        spec.operation.reference(spec, &slices, &mut results);
        for (tensor, values) in spec.outputs.iter().zip(&mut results) {
            values.iter_mut().for_each(|value| *value = tensor.dtype.round(*value));
        }
        Some(results)
    }

    /// Keeps what two states have in common.
    fn joined(&self, other: &Contents, program: &Program) -> Contents {
        let memories = self.written.keys().chain(other.written.keys()).copied();
        let common = |memory| {
            let contents = self.memory(memory, program).filter(|own| other.memory(memory, program).as_ref() == Some(own));
            (memory, contents)
        };
        Contents { written: memories.map(common).collect() }
    }
}

/// Whether elements of a type are whole numbers that can be lengths.
fn is_whole(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::I64)
}

/// Places of the elements of a slice in its memory, in row-major order of the slice.
fn places(view: ViewId, program: &Program) -> impl Iterator<Item = usize> {
    let tensor = program.views.tensor(view);
    let first = program.views.offset(view, &program.layout(program.views.memory(view)).dims);
    ops::offsets(tensor.dims, tensor.strides).map(move |offset| (first + offset) as usize)
}

impl Program {
    /// Sets [`Spec::sizes`] of all operations whose sizes the text determines, in every iteration.
    pub fn derive_sizes(&mut self) {
        if self.specs.iter().all(|spec| spec.operation.sizing(spec).is_empty()) {
            return;
        }
        let mut contents = Contents::default();
        if let Some(setup) = self.around.setup.clone() {
            setup.cycle.iter().for_each(|step| step.ids().for_each(|op| contents.run(op, step, &setup)));
        }
        // Contents that a cycle changes are unknown at the beginning of the next one.
        loop {
            let mut after = contents.clone();
            self.cycle.iter().for_each(|step| step.ids().for_each(|op| after.run(op, step, self)));
            let joined = contents.joined(&after, self);
            let is_settled = joined.written.iter().all(|(memory, now)| contents.memory(*memory, self) == *now);
            contents = joined;
            if is_settled {
                break;
            }
        }
        for slot in 0..self.cycle.len() {
            for op in self.cycle[slot].ids() {
                self.set_sizes(slot, op, &contents);
                contents.run(op, &self.cycle[slot], self);
            }
        }
    }

    /// Sets the sizes of an operation from the contents before it.
    fn set_sizes(&mut self, slot: usize, op: OpId, contents: &Contents) {
        let OpKind::Run(id) = self.cycle[slot].op(op).kind else { return };
        let (spec, inputs) = (self.spec(id), self.cycle[slot].inputs(op));
        let sizing = spec.operation.sizing(spec);
        if sizing.is_empty() {
            return;
        }
        let whole = |values: Vec<f64>| values.into_iter().map(|value| value as i64).collect();
        let known = sizing.iter().map(|input| contents.view(inputs[*input], self).map(whole));
        let sizes: Option<Vec<Vec<i64>>> = known.collect();
        if sizes.is_some() {
            let spec = Spec { sizes: sizes.map(Arc::new), ..spec.clone() };
            let id = SpecId::from(self.specs.insert_full(spec).0);
            self.cycle[slot].ops[op.index()].kind = OpKind::Run(id);
        }
    }
}
