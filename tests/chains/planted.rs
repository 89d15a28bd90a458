//! Planted mistakes: the device executes something different from its instructions, while the reference does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use aorta::base::{DType, OpId};
use aorta::exec::Image;
use aorta::model::Program;
use aorta::ops::expression::{Binary, ExprNode, Expression};
use aorta::ops::{Attr, Attrs, Kernel, KernelSource, Launch, Spec, Tensor};
use aorta::schedule::{Command, Schedule};

use crate::generate::chain_of;
use crate::random::Random;
use crate::rough::{Style, roughened};

/// Kinds of mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An input is read from a wrong address: one step along a dimension further, or that of another input.
    WrongIndex,
    /// A term of a sum or a factor of a product is left out.
    MissingTerm,
    /// An operation reads before the operation that it waits for has written.
    StaleRead,
    /// Arithmetic keeps 10 bits of the fraction, like `tf32`.
    TenBits,
    /// Arithmetic keeps 7 bits, like `bf16`.
    SevenBits,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::WrongIndex, Kind::MissingTerm, Kind::StaleRead, Kind::TenBits, Kind::SevenBits];

    pub fn name(self) -> &'static str {
        match self {
            Kind::WrongIndex => "wrong index",
            Kind::MissingTerm => "missing term",
            Kind::StaleRead => "stale read",
            Kind::TenBits => "f32 as tf32",
            Kind::SevenBits => "f32 as bf16",
        }
    }

    fn bits(self) -> u32 {
        if self == Kind::TenBits { 10 } else { 7 }
    }
}

/// One mistake in each chain that allows it.
#[derive(Debug, Default)]
pub struct Planted {
    /// The label of the wrong operation, by chain.
    pub chains: BTreeMap<usize, String>,
    changes: BTreeMap<u32, Change>,
    /// Delayed launches, each with the launch that it follows.
    pub late: BTreeMap<u32, u32>,
}

/// The change of a launch.
#[derive(Clone, Debug)]
enum Change {
    /// An input's address moves by a number of bytes, forwards or backwards.
    Shift(usize, u64, bool),
    /// The operation is replaced by another, with these of its operands.
    Other(Box<Spec>, Vec<usize>),
    /// The kernel truncates its results.
    Cut(u32),
}

/// Whether the device runs kernels or references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Kernels,
    References(Style),
}

/// A launch of a schedule, by its number in the image.
struct Place {
    number: u32,
    /// The iteration of the period.
    turn: usize,
    step: usize,
    op: OpId,
    label: String,
}

/// Plants mistakes of one kind.
pub fn plant(kind: Kind, program: &Program, schedule: &Schedule, device: Device, random: &mut Random) -> Planted {
    let mut chains: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
    let mut number = 0;
    for (turn, planned) in schedule.period.iter().enumerate() {
        for command in &planned.commands {
            let Command::Launch { op, .. } = *command else { continue };
            let label = program.op_text(program.cycle[planned.step].op(op));
            if let Some(chain) = chain_of(&label) {
                chains.entry(chain).or_default().push(Place { number, turn, step: planned.step, op, label });
            }
            number += 1;
        }
    }
    let mut planted = Planted::default();
    for (chain, places) in &chains {
        let mut labels: Vec<&str> = places.iter().map(|place| place.label.as_str()).collect();
        labels.dedup();
        let first = random.below(labels.len());
        labels.rotate_left(first);
        for label in labels {
            let same: Vec<&Place> = places.iter().filter(|place| place.label == label).collect();
            let done = match kind {
                Kind::StaleRead => stale(program, places, &same, &mut planted.late),
                _ => changed(kind, program, &same, device, random, &mut planted.changes),
            };
            if done {
                planted.chains.insert(*chain, label.to_owned());
                break;
            }
        }
    }
    planted
}

/// Delays the operation until after the next one that reads its result.
fn stale(program: &Program, places: &[Place], same: &[&Place], late: &mut BTreeMap<u32, u32>) -> bool {
    let mut pairs = Vec::new();
    for writer in same {
        let writes = program.cycle[writer.step].outputs(writer.op);
        let reads = |place: &&Place| {
            let inputs = program.cycle[place.step].inputs(place.op);
            let memory = |view| program.views.memory(view);
            place.turn == writer.turn
                && place.number > writer.number
                && inputs.iter().any(|&input| writes.iter().any(|&output| memory(input) == memory(output)))
        };
        match places.iter().find(reads) {
            Some(reader) => pairs.push((writer.number, reader.number)),
            None => return false,
        }
    }
    late.extend(pairs);
    true
}

fn changed(
    kind: Kind,
    program: &Program,
    same: &[&Place],
    device: Device,
    random: &mut Random,
    changes: &mut BTreeMap<u32, Change>,
) -> bool {
    let mut found = Vec::new();
    // The same choice each time that the operation runs.
    let choice = random.clone();
    random.below(1);
    for place in same {
        let mut random = choice.clone();
        let step = &program.cycle[place.step];
        let Some(spec) = program.op_spec(step.op(place.op)) else { return false };
        let change = match kind {
            Kind::WrongIndex => wrong_index(spec, &mut random),
            Kind::MissingTerm => missing_term(spec, &mut random),
            Kind::StaleRead => None,
            Kind::TenBits | Kind::SevenBits => coarser(kind.bits(), spec, device),
        };
        match change {
            Some(change) => found.push((place.number, change)),
            None => return false,
        }
    }
    changes.extend(found);
    true
}

/// The operands of an operation, in order.
fn all(spec: &Spec) -> Vec<usize> {
    (0..spec.inputs.len() + spec.outputs.len()).collect()
}

fn wrong_index(spec: &Spec, random: &mut Random) -> Option<Change> {
    if spec.inputs.is_empty() {
        return None;
    }
    let input = random.below(spec.inputs.len());
    let tensor = &spec.inputs[input];
    if let Some(other) = (0..spec.inputs.len()).find(|other| *other != input && spec.inputs[*other] == *tensor)
        && random.once_in(2)
    {
        let mut operands = all(spec);
        operands.swap(input, other);
        return Some(Change::Other(Box::new(spec.clone()), operands));
    }
    let axis = random.below(tensor.dims.len());
    (tensor.elements() > 1)
        .then(|| Change::Shift(input, tensor.strides[axis].max(1) * tensor.dtype.size(), random.once_in(2)))
}

fn missing_term(spec: &Spec, random: &mut Random) -> Option<Change> {
    let mut other = spec.clone();
    let mut operands = all(spec);
    match spec.operation.name() {
        "map" => {
            let expression = spec.expression.as_ref()?;
            let joins = |node: &ExprNode| {
                matches!(node, ExprNode::Binary(Binary::Add | Binary::Subtract | Binary::Multiply, ..))
            };
            let places: Vec<usize> =
                expression.nodes().iter().enumerate().filter(|(_, node)| joins(node)).map(|(place, _)| place).collect();
            if places.is_empty() {
                return None;
            }
            other.expression = Some(Arc::new(without(expression, random.of(&places), random.once_in(2))));
        }
        "gemm" => {
            // One term less for each element.
            let (a, b) = (spec.attrs.bool("transpose_a"), spec.attrs.bool("transpose_b"));
            let axis_a = spec.inputs[0].dims.len() - if a { 2 } else { 1 };
            let axis_b = spec.inputs[1].dims.len() - if b { 1 } else { 2 };
            let depth = spec.inputs[0].dims[axis_a];
            if depth < 2 {
                return None;
            }
            other.inputs[0].dims.set(axis_a, depth - 1);
            other.inputs[1].dims.set(axis_b, depth - 1);
        }
        "scatter" if spec.inputs.len() > 2 => {
            other.inputs.truncate(2);
            operands.remove(2);
        }
        "softmax" if spec.attrs.number("scale") != 1.0 => {
            let mut attrs = Attrs::default();
            attrs.push("scale", Attr::number(1.0), None);
            other.attrs = attrs;
        }
        _ => return None,
    }
    Some(Change::Other(Box::new(other), operands))
}

/// The expression with an operation on two operands replaced by one of them.
fn without(expression: &Expression, place: usize, first: bool) -> Expression {
    let mut shorter = Expression::default();
    let mut known: Vec<u16> = Vec::new();
    let at = |known: &[u16], index: u16| known[usize::from(index)];
    for (index, node) in expression.nodes().iter().enumerate() {
        let same = match *node {
            ExprNode::Binary(_, x, y) if index == place => {
                known.push(at(&known, if first { x } else { y }));
                continue;
            }
            ExprNode::Input(input) => ExprNode::Input(input),
            ExprNode::Constant(constant) => {
                let value = expression.constants()[usize::from(constant)];
                known.push(shorter.push_constant(value).expect("no longer than before"));
                continue;
            }
            ExprNode::Unary(function, x) => ExprNode::Unary(function, at(&known, x)),
            ExprNode::Binary(function, x, y) => ExprNode::Binary(function, at(&known, x), at(&known, y)),
            ExprNode::Select(c, x, y) => ExprNode::Select(at(&known, c), at(&known, x), at(&known, y)),
        };
        known.push(shorter.push(same).expect("no longer than before"));
    }
    shorter.finish(*known.last().expect("an expression has a value"));
    shorter
}

fn coarser(bits: u32, spec: &Spec, device: Device) -> Option<Change> {
    let name = spec.operation.name();
    let wide = |tensor: &Tensor| tensor.dtype.compute() == DType::F64;
    let float = spec.outputs.first().is_some_and(|output| output.dtype.is_float());
    let tf32 = name == "gemm" && spec.attrs.word("compute") == "tf32";
    // Types that are as coarse themselves cannot show the mistake.
    if !float || spec.inputs.iter().chain(&spec.outputs).any(wide) || (tf32 && bits == 10) {
        return None;
    }
    match device {
        Device::References(style) if ["map", "softmax", "gemm"].contains(&name) => {
            let coarse = roughened(spec, Style { bits: Some(bits), ..style });
            Some(Change::Other(Box::new(coarse), all(spec)))
        }
        Device::Kernels if name == "map" => Some(Change::Cut(bits)),
        Device::Kernels if name == "gemm" && bits == 10 && spec.inputs[0].dtype == DType::F32 => {
            let mut other = spec.clone();
            other.attrs = Attrs::default();
            for option in ["transpose_a", "transpose_b"] {
                other.attrs.push(option, Attr::Bool(spec.attrs.bool(option)), None);
            }
            other.attrs.push("compute", Attr::Word("tf32"), None);
            Some(Change::Other(Box::new(other), all(spec)))
        }
        _ => None,
    }
}

impl Planted {
    /// Applies the mistakes to an image.
    pub fn apply(&self, image: &mut Image) {
        for (&number, change) in &self.changes {
            let op = image.ops[number as usize];
            let mut work = image.works[op.work as usize].clone();
            let mut operands = image.operands(&op).to_vec();
            match change {
                Change::Shift(input, bytes, forwards) => {
                    let mut spec = (*work.spec).clone();
                    let tensor = &mut spec.inputs[*input];
                    // Its alignment is no longer known.
                    tensor.align = tensor.dtype.size() as u8;
                    let at = &mut operands[*input];
                    let room = image.bytes[[0, 1, 2][at.space as usize]] - at.offset - tensor.reach();
                    let ahead = *forwards && room >= *bytes || at.offset < *bytes;
                    at.offset = if ahead { at.offset + bytes.min(&room) } else { at.offset - bytes };
                    work.launches = spec.launch().into();
                    work.spec = Arc::new(spec);
                }
                Change::Other(spec, order) => {
                    operands = order.iter().map(|&operand| operands[operand]).collect();
                    work.launches = spec.launch().into();
                    work.spec = Arc::new((**spec).clone());
                }
                Change::Cut(bits) => work.launches = work.launches.iter().map(|launch| cut(launch, *bits)).collect(),
            }
            image.works.push(work);
            let place = image.addresses.len() as u32;
            image.addresses.extend(operands);
            let op = &mut image.ops[number as usize];
            (op.work, op.operands) = (image.works.len() as u32 - 1, place);
        }
    }
}

/// The kernel of an expression with each of its values truncated to fewer bits.
fn cut(launch: &Launch, bits: u32) -> Launch {
    let Launch::Kernel(kernel) = launch else { return launch.clone() };
    let half = 1u32 << (22 - bits);
    let function = format!(
        "__device__ inline f32 cut(f32 x) {{\n  u32 bits = float_to_bits(x);\n  \
         return (bits & 0x7f800000u) == 0x7f800000u ? x : bits_to_float((bits + {half}u) & ~{}u);\n}}\ntypedef f32 C;\n",
        2 * half - 1
    );
    let text = kernel.source.text.replacen("typedef f32 C;\n", &function, 1);
    let line = |line: &str| match line.strip_prefix("  C v").and_then(|rest| rest.split_once(" = ")) {
        Some((name, value)) => format!("  C v{name} = cut({});\n", value.trim_end_matches(';')),
        None => format!("{line}\n"),
    };
    let text = text.lines().map(line).collect();
    let source = Arc::new(KernelSource { name: kernel.source.name.clone(), text, code: None });
    Launch::Kernel(Kernel { source, ..kernel.clone() })
}
