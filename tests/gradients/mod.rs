//! Gradients against central differences in double precision, for operations on drawn shapes and for chains of them.
//!
//! Programs are evaluated here by the operations' references, without rounding, so that differences are exact to many
//! digits. The host backend then has to compute the same gradients.

use aorta::backend::host::Host;
use aorta::base::random::hash;
use aorta::base::{MemoryId, OpId, ViewId};
use aorta::exec::LaunchMode;
use aorta::model::{MemoryKind, OpKind, Program};
use aorta::ops::{self, Category, RankMember};

use crate::common;

mod cases;
mod chains;
mod float8;

/// Operations that have no gradients, each with the reason.
const WITHOUT: &[(&str, &str)] = &[
    ("argmax", "its result is a place"),
    ("argmin", "its result is a place"),
    ("spin", "it computes nothing"),
    ("work", "its data has no meaning"),
    ("nop", "it computes nothing"),
    ("read", "no gradient goes into a file, and it runs on the CPU"),
    ("triad", "its data has no meaning"),
    (
        "paged_attention",
        "keys and values of a pool serve inference; `attention` of keys and values in order has gradients",
    ),
    ("ragged_attention_backward", "gradients of gradients of attention are not in this version"),
    ("attention_backward", "gradients of gradients of attention are not in this version"),
    ("biased_attention_backward", "gradients of gradients of attention are not in this version"),
    ("pool_backward", "gradients of gradients of pools are not in this version"),
    ("adamw", "a step's gradients end at the update of its parameters"),
    ("sgd", "a step's gradients end at the update of its parameters"),
];

/// Operations whose results depend on no tensor, or that carry none: no gradient goes further, and none is asked for.
const ENDS: &[&str] = &["fill", "memset", "barrier"];

// --- Evaluation ------------------------------------------------------------------------------------------------

/// The contents of the memories of each rank.
type World = Vec<Vec<Vec<f64>>>;

/// Numbers that random memories begin with.
#[derive(Clone, Copy)]
enum Contents {
    /// Numbers of the type of the memory, as a backend stores them.
    Stored,
    /// Numbers before they are rounded to the type of the memory. Of few bits, many would be equal, and the largest of them has
    /// no derivative.
    Drawn,
}

/// The contents at the start.
fn initial(programs: &[Program], contents: Contents) -> World {
    let of = |(rank, program): (usize, &Program)| {
        let memories = (0..program.memories.len()).map(MemoryId::from);
        let of_memory = |memory: MemoryId| {
            let layout = program.layout(memory);
            let count = layout.dims.iter().product::<u64>();
            match &program.memory(memory).kind {
                MemoryKind::Buffer(init) | MemoryKind::Bare(init) => {
                    let value = |index| init.of_rank(rank as u32).value(layout.dtype, index);
                    let round = |value| match contents {
                        Contents::Stored => layout.dtype.round(value),
                        Contents::Drawn => value,
                    };
                    (0..count).map(|index| round(value(index))).collect()
                }
                MemoryKind::Scratch => vec![f64::NAN; count as usize],
            }
        };
        memories.map(of_memory).collect()
    };
    programs.iter().enumerate().map(of).collect()
}

/// The places of a slice's elements in its memory, in row-major order.
fn places(program: &Program, view: ViewId) -> Vec<usize> {
    let tensor = program.views.tensor(view);
    let first = program.views.offset(view, &program.layout(program.views.memory(view)).dims);
    let mut places = vec![first];
    for (&size, &stride) in tensor.dims.iter().zip(tensor.strides.iter()) {
        places = places.iter().flat_map(|place| (0..size).map(move |index| place + index * stride)).collect();
    }
    places.into_iter().map(|place| place as usize).collect()
}

/// Executes one iteration on all ranks, an operation at a time.
fn evaluate(programs: &[Program], world: &mut World) {
    let first = &programs[0].cycle[0];
    for op in (0..first.ops.len()).map(OpId::from) {
        let OpKind::Run(_) = first.op(op).kind else { continue };
        let read = |rank: usize, views: &[ViewId]| -> Vec<Vec<f64>> {
            let program = &programs[rank];
            let of = |view: &ViewId| {
                let memory = &world[rank][program.views.memory(*view).index()];
                places(program, *view).into_iter().map(|place| memory[place]).collect()
            };
            views.iter().map(of).collect()
        };
        let ranks = 0..programs.len();
        let steps = || programs.iter().map(|program| &program.cycle[0]);
        let inputs: Vec<Vec<Vec<f64>>> =
            ranks.clone().zip(steps()).map(|(rank, step)| read(rank, step.inputs(op))).collect();
        let mut outputs: Vec<Vec<Vec<f64>>> =
            ranks.zip(steps()).map(|(rank, step)| read(rank, step.outputs(op))).collect();
        let spec = |program: &'_ Program| program.op_spec(program.cycle[0].op(op)).expect("an operation").clone();
        let specs: Vec<ops::Spec> = programs.iter().map(spec).collect();
        let operation = specs[0].operation;
        let shares = specs.iter().zip(&inputs).zip(&mut outputs);
        let mut members: Vec<RankMember> =
            shares.map(|((spec, inputs), outputs)| RankMember { spec, inputs, outputs }).collect();
        if operation.category() == Category::Collective || specs.iter().any(|spec| ops::crossing(spec).is_some()) {
            operation.exchange(&mut members);
        } else {
            for member in &mut members {
                let inputs: Vec<&[f64]> = member.inputs.iter().map(Vec::as_slice).collect();
                operation.reference(member.spec, &inputs, member.outputs);
            }
        }
        for ((program, memories), outputs) in programs.iter().zip(world.iter_mut()).zip(outputs) {
            for (&view, values) in program.cycle[0].outputs(op).iter().zip(outputs) {
                let memory = &mut memories[program.views.memory(view).index()];
                places(program, view).into_iter().zip(values).for_each(|(place, value)| memory[place] = value);
            }
        }
    }
}

fn memory(program: &Program, name: &str) -> MemoryId {
    let found = (0..program.memories.len()).map(MemoryId::from).find(|memory| {
        let info = program.memory(*memory);
        matches!(info.kind, MemoryKind::Buffer(_)) && program.names.name(info.name) == name
    });
    found.unwrap_or_else(|| panic!("no buffer `{name}`"))
}

// --- Cases -----------------------------------------------------------------------------------------------------

/// A part of a buffer, as an operand.
#[derive(Clone, Debug)]
struct Part {
    buffer: String,
    dtype: &'static str,
    /// Sizes of the buffer, and where the part begins in it.
    whole: Vec<u64>,
    start: Vec<u64>,
    dims: Vec<u64>,
}

impl Part {
    /// A buffer as a whole, or with gaps around the part.
    fn new(buffer: &str, dtype: &'static str, dims: &[u64], gaps: Option<u64>) -> Part {
        let start: Vec<u64> = (0..dims.len() as u64).map(|axis| gaps.map_or(0, |seed| hash(seed, axis) % 2)).collect();
        let behind = |axis: usize| gaps.map_or(0, |seed| hash(seed, 10 + axis as u64) % 3);
        let whole = dims.iter().enumerate().map(|(axis, size)| start[axis] + size + behind(axis)).collect();
        Part { buffer: buffer.to_owned(), dtype, whole, start, dims: dims.to_vec() }
    }

    fn declared(&self, init: &str) -> String {
        // A single value has a type without brackets.
        let sizes = if self.whole.is_empty() { String::new() } else { format!("{:?}", self.whole) };
        format!("buffer {}: {}{sizes}{init}\n", self.buffer, self.dtype)
    }

    fn text(&self) -> String {
        if self.whole == self.dims {
            return self.buffer.clone();
        }
        let ranges = self.start.iter().zip(&self.dims).map(|(start, size)| format!("{start}..{}", start + size));
        format!("{}[{}]", self.buffer, ranges.collect::<Vec<_>>().join(", "))
    }

    fn places(&self) -> Vec<usize> {
        let mut places = vec![0];
        for ((whole, start), size) in self.whole.iter().zip(&self.start).zip(&self.dims) {
            places =
                places.iter().flat_map(|place| (0..*size).map(move |index| place * whole + start + index)).collect();
        }
        places.into_iter().map(|place| place as usize).collect()
    }
}

/// A program with gradients, and what they are of.
#[derive(Debug)]
struct Case {
    text: String,
    /// Inputs with their gradients, and outputs with theirs.
    inputs: Vec<(Part, Part)>,
    outputs: Vec<(Part, Part)>,
    ranks: u32,
}

/// A function of the inputs, whose gradients are checked.
struct Function<'a> {
    /// Declarations besides inputs and outputs.
    more: &'a str,
    /// The statement, with `$0` for each input, `@0` for each output; its label is `f`.
    statement: &'a str,
    inputs: Vec<Vec<u64>>,
    outputs: Vec<Vec<u64>>,
    /// Types of the inputs, for which outputs and gradients are `f32`; `None` if all tensors are `f64`.
    types: Option<&'a [&'static str]>,
    /// Options of `grad`, each after a comma.
    options: &'a str,
    /// Mean and deviation are those of the init; whether operands may have gaps.
    gaps: bool,
    init: &'a str,
    /// Names of the gradients after the arrow where they are not those of all inputs.
    order: Option<&'a str>,
    ranks: u32,
}

/// A function with one rank, whose operands may have gaps.
const PLAIN: Function = Function {
    more: "",
    statement: "",
    inputs: Vec::new(),
    outputs: Vec::new(),
    types: None,
    options: "",
    gaps: true,
    init: "",
    order: None,
    ranks: 1,
};

impl Function<'_> {
    fn case(&self, seed: u64) -> Case {
        let draw = |place: u64| (self.gaps && hash(seed, place).is_multiple_of(2)).then(|| hash(seed, 100 + place));
        let named = |prefix: &str, all: &[Vec<u64>], salt: u64| -> Vec<Part> {
            let dtype = |index: usize| match self.types {
                None => "f64",
                Some(types) if prefix == "x" => types[index],
                Some(_) => "f32",
            };
            let part = |(index, dims): (usize, &Vec<u64>)| {
                Part::new(&format!("{prefix}{index}"), dtype(index), dims, draw(salt + index as u64))
            };
            all.iter().enumerate().map(part).collect()
        };
        let (x, dx) = (named("x", &self.inputs, 0), named("dx", &self.inputs, 20));
        let (y, dy) = (named("y", &self.outputs, 40), named("dy", &self.outputs, 60));
        let mut text = self.more.to_owned();
        x.iter().for_each(|part| text += &part.declared(self.init));
        dx.iter().chain(&y).for_each(|part| text += &part.declared(" = zeros"));
        dy.iter().for_each(|part| text += &part.declared(""));
        let mut statement = self.statement.to_owned();
        for (prefix, parts) in [("$", &x), ("@", &y)] {
            for (index, part) in parts.iter().enumerate() {
                statement = statement.replace(&format!("{prefix}{index}"), &part.text());
            }
        }
        let list = |parts: &[Part]| parts.iter().map(Part::text).collect::<Vec<_>>().join(", ");
        let comma = if dy.is_empty() { "" } else { ", " };
        let order = self.order.map_or_else(
            || list(&dx),
            |order| {
                let filled = |(order, (index, part)): (String, (usize, &Part))| {
                    order.replace(&format!("${index}"), &part.text())
                };
                dx.iter().enumerate().fold(order.to_owned(), |order, one| filled((order, one)))
            },
        );
        text += &format!("step {{\n  {statement}\n  grad(f{comma}{}{} -> {order})\n}}\n", list(&dy), self.options);
        let pairs = |a: Vec<Part>, b: Vec<Part>| a.into_iter().zip(b).collect();
        Case { text, inputs: pairs(x, dx), outputs: pairs(y, dy), ranks: self.ranks }
    }
}

/// The sum of all outputs of all ranks, each times its gradient.
fn value(case: &Case, programs: &[Program], mut world: World) -> f64 {
    evaluate(programs, &mut world);
    let mut sum = 0.0;
    for (program, memories) in programs.iter().zip(&world) {
        for (y, dy) in &case.outputs {
            let of = |part: &Part| &memories[memory(program, &part.buffer).index()];
            sum += y.places().iter().zip(dy.places()).map(|(&y_at, dy_at)| of(y)[y_at] * of(dy)[dy_at]).sum::<f64>();
        }
    }
    sum
}

/// Checks all gradients of a case.
fn judge(case: &Case) {
    let end = judge_differences(case, Contents::Stored);
    if case.ranks == 1 {
        judge_host(case, &end[0]);
    }
}

/// Compares all gradients of a case with differences. Returns the contents of the memories.
fn judge_differences(case: &Case, contents: Contents) -> World {
    let text = &case.text;
    let planned = common::planned_ranks(text, case.ranks);
    let programs: Vec<Program> = planned.into_iter().map(|(program, _)| program).collect();
    let begin = initial(&programs, contents);
    let mut end = begin.clone();
    evaluate(&programs, &mut end);
    for (rank, program) in programs.iter().enumerate() {
        for (x, dx) in &case.inputs {
            let (x_memory, dx_memory) = (memory(program, &x.buffer).index(), memory(program, &dx.buffer).index());
            for (place, at) in x.places().into_iter().zip(dx.places()) {
                let found = end[rank][dx_memory][at];
                const STEP: f64 = 1e-4;
                let by = |distance: f64| {
                    let mut world = begin.clone();
                    world[rank][x_memory][place] += distance * STEP;
                    value(case, &programs, world)
                };
                let expected = (8.0 * (by(1.0) - by(-1.0)) - (by(2.0) - by(-2.0))) / (12.0 * STEP);
                let off = (found - expected).abs();
                assert!(
                    off <= 1e-6 * (1.0 + expected.abs()),
                    "{}[{place}] of rank {rank}: {found}, not {expected}\n{text}",
                    x.buffer
                );
            }
        }
    }
    end
}

/// Compares the gradients that the host backend computes with those in memories without rounding.
fn judge_host(case: &Case, end: &[Vec<f64>]) {
    let text = &case.text;
    let (program, plan) = common::planned(text);
    for mode in [LaunchMode::Stream, LaunchMode::Graph] {
        let found = common::written(&program, &plan, &Host, None, mode, 1);
        for (_, dx) in &case.inputs {
            let contents = found.iter().find(|contents| contents.name == dx.buffer).expect("it is written");
            for at in dx.places() {
                let found = contents.dtype.load(&contents.bytes[at * contents.dtype.size() as usize..]);
                let expected = end[memory(&program, &dx.buffer).index()][at];
                let accuracy = if dx.dtype == "f64" { 1e-9 } else { 1e-5 };
                let close = (found - expected).abs() <= accuracy * (1.0 + expected.abs());
                assert!(close, "{}[{at}] on the host, {mode:?}: {found}, not {expected}\n{text}", dx.buffer);
            }
        }
    }
}
