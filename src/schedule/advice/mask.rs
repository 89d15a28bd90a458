//! Maps that multiply each element by one number, possibly with a causal mask. `attention` has options for both.

use std::ops::Range;

use crate::base::{OpId, ViewId};
use crate::model::MemoryKind;
use crate::ops::init::Init;
use crate::ops::{Spec, broadcast_strides};

use super::scene::{MaskEffect, Scene};

/// Value below which a score counts as masked: its weight is zero in every type.
const MASKED: f64 = -1e4;

/// Maximum number of pairs of a query and a key that are all evaluated; of larger masks, only some rows are.
const ALL: u64 = 1 << 16;

/// Rows of a larger mask that are evaluated.
const ROWS: u64 = 16;

impl MaskEffect {
    /// The effect of an operation; `None` if it is no `map`, or has another effect.
    pub fn of(scene: &Scene, op: OpId) -> Option<MaskEffect> {
        let spec = scene.named(op, "map").filter(|spec| spec.outputs.len() == 1)?;
        let inputs = scene.step.inputs(op);
        let place = |&view: &ViewId| {
            let memory = scene.program.views.memory(view);
            (memory, scene.program.views.offset(view, &scene.program.layout(memory).dims))
        };
        let key = (scene.step.op(op).kind, inputs.iter().map(place).collect());
        *scene.effects.borrow_mut().entry(key).or_insert_with(|| MaskEffect::find(scene, spec, inputs))
    }

    fn find(scene: &Scene, spec: &Spec, inputs: &[ViewId]) -> Option<MaskEffect> {
        let known: Vec<Option<ConstantPattern>> =
            inputs.iter().enumerate().map(|(input, &view)| ConstantPattern::of(scene, spec, input, view)).collect();
        let mut open = known.iter().enumerate().filter(|(_, known)| known.is_none()).map(|(input, _)| input);
        let input = open.next()?;
        if open.next().is_some() || spec.inputs[input].dims != spec.outputs[0].dims {
            return None;
        }
        let evaluated = Evaluated { spec, known: &known };
        match known.len() {
            1 => {
                let scale = evaluated.scale(0, 0)?;
                (scale > 0.0).then_some(MaskEffect { input, scale, causal: false })
            }
            _ => evaluated.causal().map(|scale| MaskEffect { input, scale, causal: true }),
        }
    }
}

/// The contents of an input that never changes, by the row and the column of the output's last two dimensions.
struct ConstantPattern {
    init: Init,
    dtype: crate::base::DType,
    offset: u64,
    row: u64,
    column: u64,
}

impl ConstantPattern {
    /// The contents of a slice; `None` if an operation writes it, if they are random, or if they differ from matrix to
    /// matrix.
    fn of(scene: &Scene, spec: &Spec, input: usize, view: ViewId) -> Option<ConstantPattern> {
        let program = scene.program;
        let memory = program.views.memory(view);
        let (MemoryKind::Buffer(init) | MemoryKind::Bare(init)) = &program.memory(memory).kind else { return None };
        let mut setup = program.around.setup.iter().flat_map(|block| {
            let steps = block.cycle.iter();
            steps.flat_map(|step| step.ids().flat_map(|op| step.outputs(op))).map(move |&view| block.views.memory(view))
        });
        if !matches!(init, Init::Iota | Init::Zeros | Init::Ones)
            || !scene.flow.constant(view)
            || setup.any(|written| written == memory)
        {
            return None;
        }
        let layout = program.layout(memory);
        let strides = broadcast_strides(&spec.inputs[input], spec.outputs[0].dims);
        let rank = strides.len();
        if rank < 2 || strides[..rank - 2].iter().any(|&stride| stride != 0) {
            return None;
        }
        let offset = program.views.offset(view, &layout.dims);
        Some(ConstantPattern {
            init: init.clone(),
            dtype: layout.dtype,
            offset,
            row: strides[rank - 2],
            column: strides[rank - 1],
        })
    }

    fn at(&self, row: u64, column: u64) -> f64 {
        self.init.value(self.dtype, self.offset + row * self.row + column * self.column)
    }
}

/// A `map` that is evaluated element by element.
struct Evaluated<'a> {
    spec: &'a Spec,
    known: &'a [Option<ConstantPattern>],
}

/// Values of an unknown input from which its factor is found: the first is 1, and the others check that the output is
/// proportional.
const SCORES: [f64; 5] = [1.0, 0.0, -2.5, 3.0, 700.0];

impl Evaluated<'_> {
    /// The output elements of some columns of a row for each of [`SCORES`] in the unknown input.
    fn values(&self, row: u64, columns: Range<u64>) -> Option<[Vec<f64>; SCORES.len()]> {
        let expression = self.spec.expression.as_ref()?;
        let of_score = |score: f64| {
            let element =
                |known: &Option<ConstantPattern>, column| known.as_ref().map_or(score, |known| known.at(row, column));
            let input =
                |known: &Option<ConstantPattern>| columns.clone().map(|column| element(known, column)).collect();
            let inputs: Vec<Vec<f64>> = self.known.iter().map(input).collect();
            let inputs: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
            expression.evaluate(inputs[0].len(), &inputs, &mut Vec::new()).to_vec()
        };
        Some(SCORES.map(of_score))
    }

    /// The number by which the element of a row and a column is multiplied; `None` if the output is not proportional to
    /// it.
    fn scale(&self, row: u64, column: u64) -> Option<f64> {
        factor(&self.values(row, column..column + 1)?, 0)
    }

    /// Returns the factor of the keys that a query attends to, if these are exactly the keys up to its own position;
    /// `None` otherwise. The last query has the position of the last key.
    fn causal(&self) -> Option<f64> {
        let dims = self.spec.outputs[0].dims;
        let (queries, keys) = (dims[dims.len() - 2], dims[dims.len() - 1]);
        let before = keys.checked_sub(queries)?;
        let scale = self.scale(0, 0).filter(|scale| *scale > 0.0)?;
        let step = if queries * keys <= ALL { 1 } else { (queries / ROWS).max(1) };
        let right = |row: u64| {
            let Some(values) = self.values(row, 0..keys) else { return false };
            (0..keys).all(|column| match column <= row + before {
                true => factor(&values, column as usize).is_some_and(|found| (found - scale).abs() <= 1e-9 * scale),
                false => values.iter().all(|outputs| outputs[column as usize] <= MASKED),
            })
        };
        let mut rows = (0..queries).step_by(step as usize).chain(queries.checked_sub(1));
        rows.all(right).then_some(scale)
    }
}

/// The number by which an element is multiplied, from its outputs for [`SCORES`]; `None` if they are not proportional.
fn factor(values: &[Vec<f64>; SCORES.len()], element: usize) -> Option<f64> {
    let scale = values[0][element];
    let is_linear = values
        .iter()
        .zip(SCORES)
        .all(|(outputs, score)| (outputs[element] - scale * score).abs() <= 1e-9 * (scale * score).abs());
    (is_linear && scale.is_finite()).then_some(scale)
}
