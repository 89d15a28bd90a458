//! Whether a backend computes what the reference does: every output, as streams and as a graph.

use crate::base::{DType, MemoryId};
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, Session};
use crate::model::{MemoryKind, Program};
use crate::plan::Plan;
use crate::schedule::{self, Schedule};

use super::record::{OutputVerification, VariantVerification, VerificationRecord};

/// An error larger than anything that rounding explains, where there is no number.
const BEYOND: f64 = 1e30;

/// One output on both sides.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The norm of the difference over that of the reference; for integers, the share of elements that differ.
    pub error: f64,
    pub bound: f64,
}

/// The outcome of a verification.
#[derive(Debug)]
pub struct Verification {
    pub record: VerificationRecord,
    pub warnings: Vec<String>,
}

/// The relative error that rounding may explain after a chain of operations in that type. Inputs of a GEMM that are
/// rounded for the matrix unit (`tf32`) count as 16-bit ones.
fn bound(dtype: DType, coarsest: f64) -> f64 {
    match dtype.is_float() {
        // An operation rounds its result once; a chain of some tens with sums in between stays below this.
        true => 16.0 * dtype.epsilon().max(coarsest),
        false => 0.0,
    }
}

/// Compares two stretches of memory element by element.
pub fn compare(dtype: DType, actual: &[u8], expected: &[u8], bound: f64) -> Comparison {
    let size = dtype.size() as usize;
    let mut difference = 0.0f64;
    let mut norm = 0.0f64;
    let mut differing = 0usize;
    let mut count = 0usize;
    for (actual, expected) in actual.chunks_exact(size).zip(expected.chunks_exact(size)) {
        let (a, b) = (dtype.load(actual), dtype.load(expected));
        count += 1;
        if a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) {
            norm += if b.is_finite() { b * b } else { 0.0 };
            continue;
        }
        if !dtype.is_float() || !a.is_finite() || !b.is_finite() {
            differing += 1;
            continue;
        }
        difference += (a - b).powi(2);
        norm += b * b;
    }
    let error = match (differing, dtype.is_float()) {
        (0, true) if difference == 0.0 => 0.0,
        (0, true) if norm > 0.0 => (difference / norm).sqrt(),
        (0, false) => 0.0,
        (_, false) => differing as f64 / count.max(1) as f64,
        _ => BEYOND,
    };
    Comparison { error: error.min(BEYOND), bound }
}

/// The bytes of each buffer.
pub type Contents = Vec<(MemoryId, Vec<u8>)>;

/// What is compared with what.
pub struct Question<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub backend: &'a dyn Backend,
    pub reference: &'a dyn Backend,
    /// Real streams at most.
    pub streams: Option<u32>,
    pub modes: &'a [LaunchMode],
    pub options: exec::Options,
    pub control: &'a Control,
}

/// Runs the same iterations on both backends and compares what they leave in memory; nothing when it was stopped.
pub fn verify(question: &Question) -> Result<Option<Verification>, ExecError> {
    let Question { program, plan, backend, reference, streams, modes, ref options, control } = *question;
    let placed = |backend: &dyn Backend| {
        // Scratch memory is kept apart, so that each output can be read at the end.
        let options = schedule::Options { streams, share_scratch: false };
        schedule::place(program, plan, backend.topology(), &options)
    };
    let (schedule, reference_schedule) = (placed(backend), placed(reference));
    let outputs = outputs(program, &schedule);
    // One round of the period and the first iteration again: what one leaves to the next is seen too.
    let iterations = schedule.period.len() as u64 + 1;
    let mut expected_session = exec::prepare(program, &reference_schedule, reference, options)?;
    if expected_session.iterate(LaunchMode::Stream, 0, iterations, control)?.stopped {
        return Ok(None);
    }
    let expected = read(&mut expected_session, &outputs)?;
    drop(expected_session);

    let coarsest = coarsest(program);
    let mut session = exec::prepare(program, &schedule, backend, options)?;
    let mut warnings = Vec::new();
    let mut variants = Vec::new();
    for &mode in modes {
        if mode == LaunchMode::Graph
            && let Err(error) = session.capture()
        {
            warnings.push(format!("the graph could not be verified: {error}"));
            continue;
        }
        session.reset()?;
        if session.iterate(mode, 0, iterations, control)?.stopped {
            return Ok(None);
        }
        let actual = read(&mut session, &outputs)?;
        let compared = outputs
            .iter()
            .zip(actual.iter().zip(&expected))
            .filter_map(|(&memory, (actual, expected))| {
                let (dtype, dims) = program.shapes.get(program.memory(memory).shape);
                let comparison = compare(dtype, actual.as_ref()?, expected.as_ref()?, bound(dtype, coarsest));
                Some(OutputVerification {
                    name: name(program, memory),
                    shape: format!("{dtype}{dims}"),
                    error: comparison.error,
                    bound: comparison.bound,
                    held: comparison.error <= comparison.bound,
                })
            })
            .collect();
        variants.push(VariantVerification { launch: mode.name().to_owned(), outputs: compared });
    }
    let held = !variants.is_empty() && variants.iter().all(|variant| variant.outputs.iter().all(|output| output.held));
    let record = VerificationRecord { iterations: iterations as u32, held, variants };
    Ok(Some(Verification { record, warnings }))
}

/// Runs one round of the period on `backend`, and gives every buffer as it then is; nothing when it was stopped.
pub fn buffers(
    program: &Program,
    schedule: &Schedule,
    backend: &dyn Backend,
    options: &exec::Options,
    control: &Control,
) -> Result<Option<Contents>, ExecError> {
    let mut session = exec::prepare(program, schedule, backend, options)?;
    if session.iterate(LaunchMode::Stream, 0, schedule.period.len() as u64, control)?.stopped {
        return Ok(None);
    }
    let mut buffers = Vec::new();
    for memory in (0..program.memories.len()).map(MemoryId::from) {
        if let MemoryKind::Buffer(_) = program.memory(memory).kind
            && let Some(bytes) = session.read(memory)?
        {
            buffers.push((memory, bytes));
        }
    }
    Ok(Some(buffers))
}

fn name(program: &Program, memory: MemoryId) -> String {
    let info = program.memory(memory);
    let name = program.names.name(info.name);
    match info.kind {
        MemoryKind::Scratch => format!("output of {name}"),
        _ => name.to_owned(),
    }
}

/// The largest rounding of any operand: what follows from a 16-bit value is no more exact than that, whatever its type.
fn coarsest(program: &Program) -> f64 {
    program
        .specs
        .iter()
        .flat_map(|spec| {
            let tf32 = spec.operation.name() == "gemm" && spec.attrs.word("compute") == "tf32";
            let operands = spec.inputs.iter().chain(&spec.outputs).map(|tensor| tensor.dtype.epsilon());
            operands.chain(tf32.then_some(DType::F16.epsilon()))
        })
        .fold(0.0, f64::max)
}

/// Everything that the first iteration of the period writes, and every buffer that any iteration writes.
fn outputs(program: &Program, schedule: &Schedule) -> Vec<MemoryId> {
    let mut outputs: Vec<MemoryId> = Vec::new();
    for (index, planned) in schedule.period.iter().enumerate() {
        let step = &program.cycle[planned.step];
        for op in step.ids() {
            for &view in step.outputs(op) {
                let memory = program.views.memory(view);
                let scratch = program.memory(memory).kind == MemoryKind::Scratch;
                if !scratch || index == 0 {
                    outputs.push(memory);
                }
            }
        }
    }
    outputs.sort_unstable();
    outputs.dedup();
    outputs
}

fn read(session: &mut Session, outputs: &[MemoryId]) -> Result<Vec<Option<Vec<u8>>>, ExecError> {
    outputs.iter().map(|&memory| session.read(memory)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
        let mut bytes = vec![0; values.len() * dtype.size() as usize];
        for (value, place) in values.iter().zip(bytes.chunks_mut(dtype.size() as usize)) {
            dtype.store(*value, place);
        }
        bytes
    }

    #[test]
    fn tells_rounding_from_mistakes() {
        let expected = bytes(DType::BF16, &[1.0, 2.0, 3.0]);
        let rounded = bytes(DType::BF16, &[1.0, 2.01, 3.0]);
        let wrong = bytes(DType::BF16, &[1.0, 0.0, 3.0]);
        let missing = bytes(DType::BF16, &[1.0, f64::NAN, 3.0]);
        let limit = bound(DType::BF16, 0.0);
        assert!(compare(DType::BF16, &rounded, &expected, limit).error <= limit);
        assert!(compare(DType::BF16, &wrong, &expected, limit).error > limit);
        assert!(compare(DType::BF16, &missing, &expected, limit).error > limit);
        let (a, b) = (bytes(DType::I32, &[1.0, 2.0]), bytes(DType::I32, &[1.0, 3.0]));
        assert_eq!(compare(DType::I32, &a, &b, 0.0).error, 0.5);
    }
}
