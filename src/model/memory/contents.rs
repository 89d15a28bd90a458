//! Computes the contents of small integer tensors that the text determines, such as lengths of sequences and ends of
//! groups.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::base::{DType, MemoryId, OpId, SpecId, ViewId};
use crate::ops::init::Init;
use crate::ops::{self, Category, Spec};

use crate::model::program::{MemoryKind, OpKind, Program, Step};

/// Maximum number of elements of a tensor whose contents are computed.
const MAX_ELEMENTS: u64 = 1 << 16;

/// Maximum number of cycles that are executed to find what no cycle changes.
const MAX_CYCLES: u32 = 8;

/// Value of an element that is unknown.
const UNKNOWN: f64 = f64::NAN;

/// Contents of memories at a point of the run.
#[derive(Clone)]
struct Contents {
    /// True if elements that rounding determines count as unknown, since a device may compute another value than the reference.
    are_certain: bool,
    /// Elements of the memories that operations have written, in row-major order. A missing memory has its initial contents.
    written: FxHashMap<MemoryId, Arc<[f64]>>,
}

impl Contents {
    /// Contents before the first operation.
    fn initial(are_certain: bool) -> Contents {
        Contents { are_certain, written: FxHashMap::default() }
    }

    /// Elements of a memory; `None` if it is too large or does not hold whole numbers.
    fn memory(&self, memory: MemoryId, program: &Program) -> Option<Arc<[f64]>> {
        if let Some(known) = self.written.get(&memory) {
            return Some(known.clone());
        }
        let layout = program.layout(memory);
        let elements: u64 = layout.dims.iter().product();
        if !is_whole(layout.dtype) || elements > MAX_ELEMENTS {
            return None;
        }
        let value = |index| match &program.memory(memory).kind {
            // Ranks with one program differ in their random contents.
            MemoryKind::Buffer(Init::Random { .. }) | MemoryKind::Bare(Init::Random { .. }) if program.world > 1 => {
                UNKNOWN
            }
            MemoryKind::Buffer(init) | MemoryKind::Bare(init) => init.value(layout.dtype, index),
            MemoryKind::Scratch => UNKNOWN,
        };
        Some((0..elements).map(value).collect())
    }

    /// Elements of a slice in row-major order; `None` if any is unknown.
    fn view(&self, view: ViewId, program: &Program) -> Option<Vec<f64>> {
        if program.views.tensor(view).elements() > MAX_ELEMENTS {
            return None;
        }
        let all = self.memory(program.views.memory(view), program)?;
        places(view, program).map(|place| Some(all[place]).filter(|value| !value.is_nan())).collect()
    }

    /// Notes that an operation wrote a slice. `values` are its elements; `None` if they are unknown.
    fn write(&mut self, view: ViewId, values: Option<Vec<f64>>, program: &Program) {
        let memory = program.views.memory(view);
        let Some(mut all) = self.memory(memory, program) else { return };
        let elements = Arc::make_mut(&mut all);
        for (number, place) in places(view, program).enumerate() {
            elements[place] = values.as_ref().map_or(UNKNOWN, |values| values[number]);
        }
        self.written.insert(memory, all);
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
        let certain = self.are_certain.then(|| spec.certain_elements(&slices, results.clone()));
        spec.operation.reference(spec, &slices, &mut results);
        for (tensor, values) in spec.outputs.iter().zip(&mut results) {
            values.iter_mut().for_each(|value| *value = tensor.dtype.round(*value));
        }
        for (values, certain) in results.iter_mut().zip(certain.iter().flatten()) {
            values
                .iter_mut()
                .zip(certain)
                .for_each(|(value, is_certain)| *value = if *is_certain { *value } else { UNKNOWN });
        }
        Some(results)
    }

    /// Returns the contents that two states have in common. Elements that differ are unknown.
    fn joined(&self, other: &Contents, program: &Program) -> Contents {
        let common = |memory| {
            let (own, others) = (self.memory(memory, program)?, other.memory(memory, program)?);
            let both = own.iter().zip(&*others).map(|(own, other)| if own == other { *own } else { UNKNOWN });
            Some((memory, both.collect()))
        };
        Contents { written: other.written.keys().filter_map(|memory| common(*memory)).collect(), ..*self }
    }

    /// Number of unknown elements of the memories that operations have written.
    fn unknown(&self) -> usize {
        self.written.values().flat_map(|all| all.iter()).filter(|value| value.is_nan()).count()
    }
}

/// True if elements of a type are whole numbers that can be lengths.
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
    /// Sets [`Spec::sizes`] and [`Spec::has_certain_sizes`] of all operations whose sizes the text determines, in every iteration.
    /// A second pass, for sizes that rounding may change, runs only if the first one leaves an operation without sizes.
    pub fn derive_sizes(&mut self) {
        if self.specs.iter().all(|spec| spec.operation.sizing(spec).is_empty()) {
            return;
        }
        for are_certain in [true, false] {
            let mut contents = self.contents_before_cycle(Contents::initial(are_certain));
            let mut has_all_sizes = true;
            for slot in 0..self.cycle.len() {
                for op in self.cycle[slot].ids() {
                    has_all_sizes &= self.set_sizes(slot, op, &contents);
                    contents.run(op, &self.cycle[slot], self);
                }
            }
            if has_all_sizes {
                break;
            }
        }
    }

    /// Contents at the beginning of every cycle, from those before the setup.
    fn contents_before_cycle(&self, mut contents: Contents) -> Contents {
        if let Some(setup) = self.around.setup.clone() {
            setup.cycle.iter().for_each(|step| step.ids().for_each(|op| contents.run(op, step, &setup)));
        }
        // Contents that a cycle changes are unknown at the beginning of the next one.
        for round in 0.. {
            let mut after = contents.clone();
            self.cycle.iter().for_each(|step| step.ids().for_each(|op| after.run(op, step, self)));
            let joined = contents.joined(&after, self);
            let is_settled = joined.written.len() == contents.written.len() && joined.unknown() == contents.unknown();
            contents = joined;
            if is_settled {
                break;
            }
            // Elements that move along a memory from one cycle to the next become unknown one by one.
            if round == MAX_CYCLES {
                contents.written.values_mut().for_each(|all| *all = all.iter().map(|_| UNKNOWN).collect());
                break;
            }
        }
        contents
    }

    /// Sets the sizes of an operation from the contents before it. Returns false if they stay unknown.
    fn set_sizes(&mut self, slot: usize, op: OpId, contents: &Contents) -> bool {
        let OpKind::Run(id) = self.cycle[slot].op(op).kind else { return true };
        let (spec, inputs) = (self.spec(id), self.cycle[slot].inputs(op));
        let sizing = spec.operation.sizing(spec);
        if sizing.is_empty() || spec.sizes.is_some() {
            return true;
        }
        let whole = |values: Vec<f64>| values.into_iter().map(|value| value as i64).collect();
        let known = sizing.iter().map(|input| contents.view(inputs[*input], self).map(whole));
        let Some(sizes) = known.collect::<Option<Vec<Vec<i64>>>>() else { return false };
        let sizes = Some(Arc::new(sizes));
        let spec = Spec { sizes, has_certain_sizes: contents.are_certain, ..spec.clone() };
        let id = SpecId::from(self.specs.insert_full(spec).0);
        self.cycle[slot].ops[op.index()].kind = OpKind::Run(id);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use crate::ops::Launch;

    /// The program of a text, with the sizes of its operations.
    fn program(text: &str) -> Program {
        let mut program = model::analyze_text(text, &model::AnalysisOptions::default()).expect("the text is valid");
        program.derive_sizes();
        program
    }

    /// Contents that determine the size of the attention in a file with these statements around and in its step.
    fn sizes(around: &str, step: &str) -> Option<Vec<Vec<i64>>> {
        let program = program(&format!(
            "buffer q: bf16[2, 64, 16]
             buffer first: i32[3] = iota
             buffer ends: i32[3] = zeros
             stream s
             {around}
             step {{ on s {{ {step} ragged_attention(q, q, q, ends, ends -> _, _) }} }}"
        ));
        let attention = |op| program.op_spec(op).filter(|spec| spec.operation.name() == "ragged_attention");
        let spec = program.cycle[0].ops.iter().find_map(attention).expect("the step has one");
        spec.sizes.as_deref().cloned()
    }

    #[test]
    fn contents_follow_from_the_operations_before() {
        let ends = |ends: [i64; 3]| Some(vec![ends.to_vec(); 2]);
        assert_eq!(sizes("", ""), ends([0, 0, 0]));
        assert_eq!(sizes("", "map((first + 1) * 20 -> ends)"), ends([20, 40, 60]));
        assert_eq!(sizes("setup { on s { fill(5 -> first[1]) cumsum(first -> ends) } }", ""), ends([0, 5, 7]));
        assert_eq!(sizes("setup { on s { fill(9 -> ends) } }", "fill(8 -> ends[0..2])"), ends([8, 8, 9]));
    }

    #[test]
    fn contents_that_iterations_change_are_unknown() {
        assert_eq!(sizes("", "map(ends + 1 -> ends)"), None);
        // The first iteration reads what the setup wrote, and later ones what the step wrote.
        assert_eq!(sizes("setup { on s { fill(9 -> ends) } }", "map(ends * 0 + first -> ends) fill(1 -> first)"), None);
        assert_eq!(sizes("buffer x: f32[3]", "cast(x -> ends)"), None);
    }

    /// The only `grouped_gemm` of a file whose setup has this statement, of 32 rows or terms in one group that ends at `end`.
    fn product(setup: &str, operands: &str) -> Spec {
        let program = program(&format!(
            "buffer end: i32[1] = zeros
             setup {{ {setup} }}
             step {{ grouped_gemm({operands}, end -> _) }}"
        ));
        let grouped = |op| program.op_spec(op).filter(|spec| spec.operation.name() == "grouped_gemm");
        program.cycle[0].ops.iter().find_map(grouped).expect("the step has one").clone()
    }

    #[test]
    fn the_library_multiplies_a_single_group_that_is_certain() {
        let (rows, depth) = ("bf16[32, 64], bf16[1, 64, 128]", "bf16[64, 32], bf16[32, 128]");
        let depth_of = |spec: &Spec| match &spec.launch()[..] {
            [Launch::Gemm(gemm, None)] => Some((gemm.k, gemm.a.operand, gemm.b.operand, gemm.c.operand)),
            _ => None,
        };
        assert_eq!(depth_of(&product("map(end + 32 -> end)", rows)), Some((64, 0, 1, 3)));
        assert_eq!(depth_of(&product("map(floor(32 * pow(end + 1, 0.3)) -> end)", rows)), Some((64, 0, 1, 3)));
        assert_eq!(depth_of(&product("fill(24 -> end)", depth)), Some((24, 0, 1, 3)));
        // Rows behind the group are zero, and so is the result of a group without terms.
        assert_eq!(depth_of(&product("fill(24 -> end)", rows)), None);
        assert_eq!(depth_of(&product("", depth)), None);
        // A device may round the power to less than 32.
        let rounded = product("map(floor(pow(end + 2, 5)) -> end)", rows);
        assert_eq!((rounded.sizes.as_deref(), rounded.has_certain_sizes), (Some(&vec![vec![32]]), false));
        assert_eq!(depth_of(&rounded), None);
    }

    /// The same text computes the same numbers whether or not the lengths of several groups or sequences are known ahead.
    #[test]
    fn kernels_do_not_depend_on_contents() {
        let program = program(
            "buffer q: bf16[4, 4096, 128]
             buffer k: bf16[1, 4096, 128]
             buffer lse: f32[4, 4096]
             buffer pool: bf16[64, 8, 16, 128]
             buffer one: bf16[8, 8, 1, 128]
             buffer pages: i32[8, 8] = iota
             buffer first: i32[8] = iota
             buffer b: bf16[8, 4096, 256]
             setup { map((first + 1) * 64 -> first) }
             step {
               ragged_attention(q, k, k, first, first -> _, _)
               ragged_attention_backward(q, k, k, q, lse, q, first, first -> _, _, _)
               paged_attention(one, pool, pool, pages, first -> _)
               grouped_gemm(bf16[4096, 4096], b, first -> _)
             }",
        );
        let sized: Vec<&Spec> = program.specs.iter().filter(|spec| spec.sizes.is_some()).collect();
        assert_eq!(sized.len(), 4);
        for spec in sized {
            let unknown = Spec { sizes: None, ..spec.clone() };
            assert_eq!(spec.operation.launch(spec), spec.operation.launch(&unknown), "{}", spec.operation.name());
        }
    }
}
