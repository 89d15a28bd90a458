//! Whether a backend computes what the reference does: every output, as streams and as a graph.

use crate::base::{DType, MemoryId, Nanos};
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, Rank, Ranks};
use crate::model::{MemoryKind, Program};
use crate::ops::Spec;
use crate::plan::Plan;
use crate::schedule::{self, Schedule};

use super::record::{OutputVerification, VariantVerification, VerificationRecord};

/// An error larger than anything that rounding explains, where there is no number.
const BEYOND: f64 = 1e30;

/// What one row may be off by, in multiples of what the whole may: a row can be harder to compute than most.
const ROW: f64 = 4.0;

/// The same for one element. Rounding errors are spread about like a bell curve. Where the whole is within its bound,
/// none lies this many standard deviations out.
const ELEMENT: f64 = 8.0;

/// One output on both sides.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// For floats see [`compare`]; for integers the share of elements that differ.
    pub error: f64,
    pub bound: f64,
}

/// The outcome of a verification.
#[derive(Debug)]
pub struct Verification {
    pub record: VerificationRecord,
    pub warnings: Vec<String>,
}

/// How many roundings of the coarsest kind may explain a relative error. An operation rounds its result once; a chain
/// of some tens stays below this.
const ROUNDINGS: f64 = 16.0;

/// The relative error that rounding may explain after a chain of operations of which the coarsest rounds like that.
fn bound(dtype: DType, coarsest: f64) -> f64 {
    match dtype.is_float() {
        true => ROUNDINGS * dtype.epsilon().max(coarsest),
        false => 0.0,
    }
}

/// Compares two stretches of memory whose last dimension is `row` long.
///
/// The error of floats is the largest of three, each of them relative, and each divided by how much more of it rounding
/// explains:
///
/// - of the whole: the norm of the difference over that of the reference;
/// - of a row, so that one wrong row among many is seen;
/// - of an element, so that one wrong element in a row is seen.
///
/// A sum whose terms cancel is as far off as its terms are large, however small it is itself. So a row is never
/// measured by less than the root mean square of all rows, and an element by no less than that of its row and of all
/// elements: beside these, a small value may be wrong unseen.
pub fn compare(dtype: DType, row: usize, actual: &[u8], expected: &[u8], bound: f64) -> Comparison {
    let size = dtype.size() as usize;
    let load = |bytes: &[u8]| bytes.chunks_exact(size).map(|bytes| dtype.load(bytes)).collect::<Vec<f64>>();
    let (actual, expected) = (load(actual), load(expected));
    let error = match dtype.is_float() {
        true => float_error(row.max(1), &actual, &expected).min(BEYOND),
        false => {
            let differing = actual.iter().zip(&expected).filter(|(a, b)| a != b).count();
            differing as f64 / expected.len().max(1) as f64
        }
    };
    Comparison { error, bound }
}

fn float_error(row: usize, actual: &[f64], expected: &[f64]) -> f64 {
    // Everything is measured in the largest value, so that no square overflows or vanishes.
    let finite = expected.iter().map(|value| value.abs()).filter(|value| value.is_finite());
    let unit = finite.fold(0.0, f64::max);
    let mut pairs = Vec::with_capacity(expected.len());
    for (&a, &b) in actual.iter().zip(expected) {
        let same = a == b || (a.is_nan() && b.is_nan());
        let difference = if same { 0.0 } else { (a - b).abs() / unit };
        // A number against a NaN or an infinity, or anything against zeros alone.
        if !difference.is_finite() {
            return BEYOND;
        }
        pairs.push((difference.powi(2), if b.is_finite() { (b / unit).powi(2) } else { 0.0 }));
    }
    // Sums of squares.
    let sums = |pairs: &[(f64, f64)]| pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let (difference, norm) = sums(&pairs);
    if difference == 0.0 {
        return 0.0;
    }
    let mean = norm / pairs.len() as f64;
    let mut worst = difference / norm;
    for row in pairs.chunks(row) {
        let (difference, norm) = sums(row);
        let length = row.len() as f64;
        worst = worst.max(difference / norm.max(mean * length) / ROW.powi(2));
        let scale = mean.max(norm / length);
        let elements = row.iter().map(|(difference, value)| difference / value.max(scale));
        worst = worst.max(elements.fold(0.0, f64::max) / ELEMENT.powi(2));
    }
    worst.sqrt()
}

/// How long an iteration of the reference may take: a day.
const PATIENCE: Nanos = Nanos(86_400_000_000_000);

/// The bytes of each buffer.
pub type Contents = Vec<(MemoryId, Vec<u8>)>;

/// What is compared with what.
pub struct Question<'a> {
    /// The ranks of the world, each with its number.
    pub ranks: &'a [(u32, &'a Program, &'a Plan)],
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
    let Question { ranks, backend, reference, streams, modes, ref options, control } = *question;
    let placed = |backend: &dyn Backend| -> Vec<Schedule> {
        // Scratch memory is kept apart, so that each output can be read at the end.
        let options = schedule::Options { streams, share_scratch: false };
        ranks.iter().map(|(_, program, plan)| schedule::place(program, plan, backend.topology(), &options)).collect()
    };
    let open = |schedules: &[Schedule], backend, options: &exec::Options| {
        let rank = |(&(number, program, _), schedule)| Rank { number, program, schedule };
        exec::prepare_ranks(&ranks.iter().zip(schedules).map(rank).collect::<Vec<_>>(), backend, options)
    };
    let (schedules, reference_schedules) = (placed(backend), placed(reference));
    let outputs: Vec<(usize, MemoryId)> = ranks
        .iter()
        .zip(&schedules)
        .enumerate()
        .flat_map(|(rank, ((_, program, _), schedule))| {
            outputs(program, schedule).into_iter().map(move |memory| (rank, memory))
        })
        .collect();
    // One round of the period and the first iteration again: what one leaves to the next is seen too.
    let iterations = schedules.iter().map(|schedule| schedule.period.len()).max().unwrap_or(0) as u64 + 1;
    // What the device does in a moment takes the CPU minutes: the limit is for the device.
    let patient = exec::Options { timeout: PATIENCE, ..*options };
    let computed = || {
        let mut session = open(&reference_schedules, reference, &patient)?;
        let stopped = session.iterate(LaunchMode::Stream, 0, iterations, control)?.slowest.stopped;
        if stopped { Ok(None) } else { read(&mut session, &outputs).map(Some) }
    };
    let expected = computed();
    // Each process has the reference for itself; only whether all have it is told.
    let stopped = expected.as_ref().map(Option::is_none).map_err(ExecError::clone);
    let stopped = exec::agree(backend.peers().as_deref(), "reference", stopped)?.contains(&true);
    let Some(expected) = expected?.filter(|_| !stopped) else { return Ok(None) };

    let coarsest: Vec<Vec<f64>> = ranks.iter().map(|(_, program, _)| coarsest(program)).collect();
    let mut session = open(&schedules, backend, options)?;
    let mut warnings = Vec::new();
    let mut variants = Vec::new();
    for &mode in modes {
        if mode == LaunchMode::Graph
            && let Err(error) = session.capture(control)
        {
            warnings.push(format!("the graph could not be verified: {error}"));
            continue;
        }
        session.reset(control)?;
        if session.iterate(mode, 0, iterations, control)?.slowest.stopped {
            return Ok(None);
        }
        let actual = read(&mut session, &outputs);
        let compare_output = |(&(rank, memory), (actual, expected)): (&(usize, MemoryId), (&Read, &Read))| {
            let (number, program, _) = ranks[rank];
            let (dtype, dims) = program.shapes.get(program.memory(memory).shape);
            let row = dims.last().map_or(1, |&length| length as usize);
            let bound = bound(dtype, coarsest[rank][memory.index()]);
            let comparison = compare(dtype, row, actual.as_ref()?, expected.as_ref()?, bound);
            Some(OutputVerification {
                name: match ranks.len() {
                    1 => name(program, memory),
                    _ => format!("{} on rank {number}", name(program, memory)),
                },
                shape: format!("{dtype}{dims}"),
                error: comparison.error,
                bound: comparison.bound,
                held: comparison.error <= comparison.bound,
            })
        };
        // Each process compares the rank that it runs.
        let compared = actual.map(|actual| {
            let pairs = outputs.iter().zip(actual.iter().zip(&expected));
            pairs.filter_map(compare_output).collect::<Vec<_>>()
        });
        let compared: Vec<OutputVerification> = session.agree("outputs", compared)?.into_iter().flatten().collect();
        if compared.is_empty() {
            warnings.push(format!("{}: nothing was verified: there was nothing to compare", mode.name()));
            continue;
        }
        let launch = mode.name().to_owned();
        variants.push(VariantVerification { launch, outputs: compared, witnessed: None, missed: Vec::new() });
    }
    drop(session);
    if !witness_order(question, &schedules, &mut variants)? {
        return Ok(None);
    }
    let held = !variants.is_empty()
        && variants.iter().all(|variant| variant.outputs.iter().all(|output| output.held) && variant.missed.is_empty());
    let record = VerificationRecord { iterations: iterations as u32, held, variants };
    Ok(Some(Verification { record, warnings }))
}

/// Runs the schedules with a mark behind each operation and a look before it; false when it was stopped.
fn witness_order(
    question: &Question,
    schedules: &[Schedule],
    variants: &mut [VariantVerification],
) -> Result<bool, ExecError> {
    let Question { ranks, backend, ref options, control, .. } = *question;
    let rank = |(&(number, program, _), schedule)| Rank { number, program, schedule };
    let opened: Vec<Rank> = ranks.iter().zip(schedules).map(rank).collect();
    let plans: Vec<&Plan> = ranks.iter().map(|(_, _, plan)| *plan).collect();
    let mut witness = exec::witness(&opened, &plans, backend, options)?;
    // Twice round the period, so that each iteration has had others before it.
    let period = schedules.iter().map(|schedule| schedule.period.len()).max().unwrap_or(0) as u64;
    for variant in variants {
        let mode = if variant.launch == LaunchMode::Graph.name() { LaunchMode::Graph } else { LaunchMode::Stream };
        // With its marks an iteration may be too large to be captured: then there is nothing to say.
        if mode == LaunchMode::Graph && witness.ranks.capture(control).is_err() {
            continue;
        }
        witness.ranks.reset(control)?;
        if witness.ranks.iterate(mode, 0, 2 * period + 1, control)?.slowest.stopped {
            return Ok(false);
        }
        let own = seen(question, &mut witness);
        for (witnessed, missed) in witness.ranks.agree("witnessed edges", own)? {
            if let Some(edges) = witnessed {
                variant.witnessed = Some(variant.witnessed.unwrap_or(0) + edges);
            }
            variant.missed.extend(missed);
        }
    }
    Ok(true)
}

/// How many edges this process has looked at, where it could, and those that did not hold, in words.
fn seen(question: &Question, witness: &mut exec::Witness) -> Result<(Option<u64>, Vec<String>), ExecError> {
    let (mut witnessed, mut all) = (None, Vec::new());
    for index in witness.ranks.own() {
        let (number, program, _) = question.ranks[index];
        let Some(missed) = witness.missed(index)? else { continue };
        witnessed = Some(witness.edges() as u64);
        let name = |(step, op): (usize, crate::base::OpId)| program.op_text(program.cycle[step].op(op));
        let told = |(edge, count): &(exec::Edge, u32)| {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            let at = if question.ranks.len() == 1 { String::new() } else { format!(" on rank {number}") };
            format!("`{}` began {times} before `{}` was done{at}", name(edge.to), name(edge.from))
        };
        all.extend(missed.iter().map(told));
    }
    Ok((witnessed, all))
}

/// Runs one round of the period on `backend`, and gives every buffer of every rank as it then is, none of a rank that
/// another process runs; nothing when it was stopped.
pub fn buffers(
    ranks: &[Rank],
    backend: &dyn Backend,
    options: &exec::Options,
    control: &Control,
) -> Result<Option<Vec<Contents>>, ExecError> {
    let mut session = exec::prepare_ranks(ranks, backend, options)?;
    let period = ranks.iter().map(|rank| rank.schedule.period.len()).max().unwrap_or(0) as u64;
    if session.iterate(LaunchMode::Stream, 0, period, control)?.slowest.stopped {
        return Ok(None);
    }
    let mut read = || {
        let mut all = Vec::with_capacity(ranks.len());
        for (index, rank) in ranks.iter().enumerate() {
            let mut buffers = Vec::new();
            for memory in (0..rank.program.memories.len()).map(MemoryId::from) {
                if let MemoryKind::Buffer(_) = rank.program.memory(memory).kind
                    && let Some(bytes) = session.read(index, memory)?
                {
                    buffers.push((memory, bytes));
                }
            }
            all.push(buffers);
        }
        Ok(all)
    };
    let all = read();
    session.agree("buffers", all.as_ref().map(|_| ()).map_err(ExecError::clone))?;
    all.map(Some)
}

fn name(program: &Program, memory: MemoryId) -> String {
    let info = program.memory(memory);
    let name = program.names.name(info.name);
    match info.kind {
        MemoryKind::Scratch => format!("output of {name}"),
        _ => name.to_owned(),
    }
}

/// For each memory the coarsest rounding among the operations that its contents come from: what follows from a 16-bit
/// value is no more exact than that, whatever its type.
fn coarsest(program: &Program) -> Vec<f64> {
    let mut coarsest = vec![0.0f64; program.memories.len()];
    // What one iteration leaves, the next may read: until nothing changes.
    loop {
        let mut changed = false;
        for step in &program.cycle {
            for op in step.ids() {
                let Some(spec) = program.op_spec(step.op(op)) else { continue };
                let inputs = step.inputs(op).iter().map(|&view| coarsest[program.views.memory(view).index()]);
                let found = inputs.fold(rounding(spec), f64::max);
                for &view in step.outputs(op) {
                    let known = &mut coarsest[program.views.memory(view).index()];
                    changed |= found > *known;
                    *known = known.max(found);
                }
            }
        }
        if !changed {
            return coarsest;
        }
    }
}

/// The largest rounding of an operation's operands. What is rounded for the matrix unit (`tf32`) counts as 16 bits.
fn rounding(spec: &Spec) -> f64 {
    let tf32 = spec.operation.name() == "gemm" && spec.attrs.word("compute") == "tf32";
    let operands = spec.inputs.iter().chain(&spec.outputs).map(|tensor| tensor.dtype.epsilon());
    let coarsest = operands.chain(tf32.then_some(DType::F16.epsilon())).fold(0.0, f64::max);
    coarsest.max(sum(spec) / ROUNDINGS)
}

/// What summing up rounds: each term once, in f32 at least, and such errors add up like the steps of a random walk.
fn sum(spec: &Spec) -> f64 {
    let Some(output) = spec.outputs.first() else { return 0.0 };
    let terms = match spec.operation.name() {
        "gemm" => spec.cost().flops / (2.0 * output.elements() as f64),
        "softmax" => output.dims.last().map_or(1.0, |&length| length as f64),
        _ => return 0.0,
    };
    terms.sqrt() * output.dtype.epsilon().min(DType::F32.epsilon())
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

/// What a memory holds; nothing where this process cannot know.
type Read = Option<Vec<u8>>;

fn read(session: &mut Ranks, outputs: &[(usize, MemoryId)]) -> Result<Vec<Read>, ExecError> {
    outputs.iter().map(|&(rank, memory)| session.read(rank, memory)).collect()
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

    fn error(dtype: DType, row: usize, actual: &[f64], expected: &[f64]) -> f64 {
        compare(dtype, row, &bytes(dtype, actual), &bytes(dtype, expected), 0.0).error
    }

    /// 256 rows of 64 numbers of both signs; the rows' sizes differ by a factor of 256.
    fn matrix() -> Vec<f64> {
        (0..256 * 64).map(|i| (i as f64 * 0.7).sin() * (1 + i / 64) as f64).collect()
    }

    #[test]
    fn tells_rounding_from_mistakes() {
        let limit = bound(DType::BF16, 0.0);
        let expected = [1.0, 2.0, 3.0];
        assert!(error(DType::BF16, 3, &[1.0, 2.01, 3.0], &expected) <= limit);
        assert!(error(DType::BF16, 3, &[1.0, 0.0, 3.0], &expected) > limit);
        assert!(error(DType::BF16, 3, &[1.0, f64::NAN, 3.0], &expected) > limit);
        assert_eq!(error(DType::BF16, 3, &expected, &[0.0; 3]), BEYOND);
        assert_eq!(error(DType::F64, 1, &[1e200, 1e-200], &[1e200, 1e-200]), 0.0);
        assert!(error(DType::F64, 2, &[1e200, 2e200], &[1e200, 1e200]) > 0.1);
        assert_eq!(error(DType::I32, 2, &[1.0, 2.0], &[1.0, 3.0]), 0.5);
    }

    #[test]
    fn rounding_is_within_the_bound() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            // Four roundings up, of every element.
            let off = |value: &f64| value * (1.0 + 4.0 * dtype.epsilon());
            let (expected, actual) = (matrix(), matrix().iter().map(off).collect::<Vec<f64>>());
            let found = error(dtype, 64, &actual, &expected);
            assert!(found > dtype.epsilon() && found <= bound(dtype, 0.0), "{dtype}: {found}");
        }
    }

    #[test]
    fn a_wrong_row_is_seen() {
        let limit = bound(DType::BF16, 0.0);
        for row in [96, 128, 255] {
            let mut actual = matrix();
            // That of another place: its norm is much the same.
            actual[row * 64..][..64].rotate_left(5);
            assert!(error(DType::BF16, 64, &actual, &matrix()) > limit, "row {row}");
            let mut missing = matrix();
            missing[row * 64..][..64].fill(0.0);
            assert!(error(DType::BF16, 64, &missing, &matrix()) > limit, "row {row}");
        }
        // As a whole it is nothing.
        let mut actual = vec![1.0; 256 * 64];
        actual[..64].fill(0.5);
        assert!(error(DType::BF16, 256 * 64, &actual, &vec![1.0; 256 * 64]) <= limit);
        assert!(error(DType::BF16, 64, &actual, &vec![1.0; 256 * 64]) > limit);
    }

    #[test]
    fn a_wrong_element_is_seen() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let mut actual = vec![1.0; 256 * 64];
            actual[1000] = 0.0;
            assert!(error(dtype, 64, &actual, &vec![1.0; 256 * 64]) > bound(dtype, 0.0), "{dtype}");
        }
    }

    #[test]
    fn terms_that_cancel_are_no_mistake() {
        // A small value between large ones, off by what these are rounded by; and a row of such.
        let mut expected = matrix();
        expected[9000] = 1e-6;
        expected[64 * 200..][..64].fill(1e-6);
        let mut actual = expected.clone();
        actual[9000] = 0.5;
        actual[64 * 200..][..64].fill(0.5);
        assert!(error(DType::BF16, 64, &actual, &expected) <= bound(DType::BF16, 0.0));
    }

    /// The bound of each buffer that is written, and of no others.
    fn bounds(text: &str) -> Vec<(String, f64)> {
        let (ast, errors) = crate::syntax::parse(text, 0, &crate::syntax::Limits::default());
        assert!(errors.is_empty(), "{errors:?}");
        let program = crate::model::analyze(&ast, &crate::model::Options::default()).expect("no mistakes");
        let coarsest = coarsest(&program);
        let memories = (0..program.memories.len()).map(MemoryId::from).filter(|memory| coarsest[memory.index()] > 0.0);
        memories.map(|memory| (name(&program, memory), coarsest[memory.index()])).collect()
    }

    #[test]
    fn bounds_follow_the_data() {
        let text = "\
buffer a, b: f64[4]
buffer c, d: f32[4]
buffer e: bf16[4]
buffer i: i32[4]
buffer g, h: f32[4, 4]
buffer long: f64[4, 4096]
buffer wide: f64[4096, 4]
buffer sum: f64[4, 4]
step {
  map(a + 1 -> b)
  cast(i -> d)
  map(c + 1 -> c)
  cast(e -> i)
  map(b * 2 -> a)
  gemm(g, g, compute: tf32 -> h)
  gemm(long, wide -> sum)
}
";
        // `d` gets what `e` left in `i` an iteration before.
        let of = |name: &str, dtype: DType| (name.to_owned(), dtype.epsilon());
        let expected = [
            of("a", DType::F64),
            of("b", DType::F64),
            of("c", DType::F32),
            of("d", DType::BF16),
            of("i", DType::BF16),
            of("h", DType::F16),
            // 64 roundings for its 4096 terms, where 16 are allowed anyway.
            ("sum".to_owned(), 4.0 * DType::F64.epsilon()),
        ];
        assert_eq!(bounds(text), expected);
    }

    #[test]
    fn every_operation_in_f64_has_the_bound_of_f64() {
        let text = include_str!("../../tests/workloads/operations.aorta");
        let text = text.replace("param dtype = f32", "param dtype = f64");
        let coarse: Vec<String> = bounds(&text)
            .into_iter()
            .filter(|(_, coarsest)| *coarsest > DType::F64.epsilon())
            .map(|(name, _)| name)
            .collect();
        assert_eq!(coarse, ["back", "whole", "half", "brain", "output of cast"]);
    }
}
