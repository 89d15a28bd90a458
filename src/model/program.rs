//! What a file means for one rank: everything evaluated, nothing left by name.

use std::fmt::Write as _;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::base::{
    DType, Dims, Interner, LabelId, MemoryId, OpId, PhaseId, Space, SpecId, SrcSpan, StreamId, Symbol, TurnId, ViewId,
};
use crate::ops::Spec;
use crate::ops::init::Init;

use super::figures::{Expectation, Metric};
use super::index::Index;
use super::turns::Turns;
use super::units::Units;
use super::views::{Layout, Views};

/// The program of one rank.
#[derive(Debug)]
pub struct Program {
    pub rank: u32,
    pub world: u32,
    /// Whether the program depends on the number of its rank. One that does not is every rank's: what is said of `rank`
    /// in it, and in the teams of its specs, then holds for the first alone.
    pub by_rank: bool,
    /// Every parameter with the value that it has in this program, as it would be written.
    pub params: Vec<(String, String)>,
    pub names: Interner,
    /// Groups of ranks; the first is all of them.
    pub groups: Vec<Group>,
    pub streams: Vec<Stream>,
    pub memories: Vec<Memory>,
    pub shapes: Shapes,
    pub views: Views,
    pub specs: IndexSet<Spec, FxBuildHasher>,
    pub labels: Vec<Label>,
    pub phases: Vec<Label>,
    pub turns: Turns,
    /// How iterations follow each other.
    pub step: StepOptions,
    /// The operations of each slot of the cycle, which then repeats.
    pub cycle: Vec<Step>,
    /// Places of the text at which ranks copy to each other, in all of the cycle; the same on all ranks.
    pub crossings: u32,
    pub metrics: Vec<Metric>,
    pub expectations: Vec<Expectation>,
}

/// Ranks that take part in collectives together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `world`, or the name of a factor of the mesh.
    pub name: String,
    /// Its ranks, in the order of its own numbers; this program's is one of them.
    pub ranks: Vec<u32>,
    /// How far its members lie apart, in ranks of the world.
    pub stride: u32,
    /// Where it is declared; nothing for the world.
    pub span: SrcSpan,
}

impl Group {
    /// The group that has `size` members, `stride` apart, as `rank` of the world sees it.
    pub(super) fn new(name: String, (size, stride): (u32, u32), rank: u32, span: SrcSpan) -> Group {
        let first = rank - (rank / stride) % size * stride;
        Group { name, ranks: (0..size).map(|member| first + member * stride).collect(), stride, span }
    }

    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The number in the group of any rank of the world; other ranks may have other members in theirs.
    pub fn number_of(&self, rank: u32) -> u32 {
        rank / self.stride % self.size()
    }

    /// The ranks of the group of that name that any rank of the world is in, in the order of the group's own numbers.
    pub fn members_with(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let (stride, first) = (self.stride, rank - self.number_of(rank) * self.stride);
        (0..self.size()).map(move |member| first + member * stride)
    }
}

/// A logical stream: one, or a member of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// `expert[3]`.
    pub name: String,
    pub family: Symbol,
    /// The place in the family; nothing for a stream that is none.
    pub member: Option<u32>,
    pub priority: Priority,
    /// The part of the device that it keeps to; all of it where nobody says.
    pub units: Option<Units>,
    pub span: SrcSpan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    High,
    Normal,
    Low,
    /// The vendor's own number; lower is more urgent.
    Level(i32),
}

impl Priority {
    pub fn name(self) -> String {
        match self {
            Priority::High => "high".to_owned(),
            Priority::Normal => "normal".to_owned(),
            Priority::Low => "low".to_owned(),
            Priority::Level(level) => level.to_string(),
        }
    }
}

/// A stretch of memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The buffer's name, or that of the operation that makes or takes it.
    pub name: Symbol,
    pub kind: MemoryKind,
    pub space: Space,
    /// Dimensions, outermost first, that are those of its family.
    pub family: u8,
    pub shape: u32,
    pub span: SrcSpan,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryKind {
    /// A declared buffer: lives as long as the run.
    Buffer(Init),
    /// An operand that was given as a type alone: filled once, never written.
    Bare(Init),
    /// An output that has no name, or a buffer of a block: lives from its first write to its last use in an iteration.
    Scratch,
}

/// Element types with shapes, each distinct one stored once.
#[derive(Debug, Default)]
pub struct Shapes {
    shapes: IndexSet<(DType, Dims), FxBuildHasher>,
}

impl Shapes {
    pub fn intern(&mut self, dtype: DType, dims: Dims) -> u32 {
        self.shapes.insert_full((dtype, dims)).0 as u32
    }

    pub fn get(&self, shape: u32) -> (DType, Dims) {
        *self.shapes.get_index(shape as usize).expect("only made by `intern`")
    }
}

/// A label, or a phase, at one place and loop turn.
#[derive(Clone, Debug, Default)]
pub struct Label {
    pub name: Option<Symbol>,
    /// `[l]` behind the name.
    pub index: Index,
    /// The labelled call, or the phase, around it.
    pub parent: LabelId,
}

/// How iterations follow each other, and what orders operations within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOptions {
    pub sync: Sync,
    /// Iterations that may be under way where they overlap.
    pub depth: u32,
    /// Only what the text declares orders operations; else data does too.
    pub declared_order: bool,
    pub allow_races: bool,
}

impl StepOptions {
    /// Iterations that may be under way at once.
    pub fn under_way(&self) -> u32 {
        match self.sync {
            Sync::Iteration => 1,
            Sync::End => self.depth.max(1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// An iteration begins when the last is complete.
    Iteration,
    /// Only streams and data order iterations.
    End,
}

impl Sync {
    pub fn name(self) -> &'static str {
        match self {
            Sync::Iteration => "iteration",
            Sync::End => "end",
        }
    }
}

/// The operations of one iteration, in the order of the text.
#[derive(Debug, Default)]
pub struct Step {
    pub ops: Vec<Op>,
    operands: Vec<ViewId>,
    after: Vec<After>,
    /// Copies to other ranks, in the order of the text.
    peers: Vec<Peer>,
    /// The turn of each operation up to the last that is not the step's own.
    turns: Vec<TurnId>,
}

/// A copy to another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub op: OpId,
    /// The rank that gets it; nothing where this one sends nothing.
    pub to: Option<u32>,
    /// What is written there, as a slice of this rank's own buffer of that name.
    pub target: ViewId,
    /// The number of its place in the text, the same on all ranks that come by it; given by [`super::link`].
    pub crossing: u32,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub kind: OpKind,
    pub stream: StreamId,
    pub label: LabelId,
    pub phase: PhaseId,
    pub span: SrcSpan,
    operands: u32,
    after: u32,
    inputs: u8,
    outputs: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    Run(SpecId),
    /// A bare event record.
    Signal,
    /// A bare wait.
    Wait,
    /// Waits for everything before, and everything after waits for it.
    Sync,
}

/// A dependency that the text declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    pub op: OpId,
    /// The operation is the previous iteration's.
    pub previous: bool,
    /// Where it is declared.
    pub span: SrcSpan,
}

impl Step {
    pub(super) fn push(&mut self, op: NewOp, inputs: &[ViewId], outputs: &[ViewId]) -> OpId {
        let id = OpId::from(self.ops.len());
        if op.turn != TurnId(0) {
            self.turns.resize(self.ops.len(), TurnId(0));
            self.turns.push(op.turn);
        }
        self.ops.push(Op {
            kind: op.kind,
            stream: op.stream,
            label: op.label,
            phase: op.phase,
            span: op.span,
            operands: self.operands.len() as u32,
            after: self.after.len() as u32,
            inputs: inputs.len() as u8,
            outputs: outputs.len() as u16,
        });
        self.operands.extend_from_slice(inputs);
        self.operands.extend_from_slice(outputs);
        id
    }

    /// Notes that the operation pushed last is a copy to another rank.
    pub(super) fn push_peer(&mut self, to: Option<u32>, target: ViewId) {
        let op = OpId::from(self.ops.len() - 1);
        self.peers.push(Peer { op, to, target, crossing: 0 });
    }

    /// Copies to other ranks, in the order of the text.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    pub(super) fn peers_mut(&mut self) -> &mut [Peer] {
        &mut self.peers
    }

    /// What an operation is as a copy to another rank, if it is one.
    pub fn peer(&self, op: OpId) -> Option<&Peer> {
        self.peers.binary_search_by_key(&op, |peer| peer.op).ok().map(|index| &self.peers[index])
    }

    /// Gives an operation another kind and other operands.
    pub(super) fn replace(&mut self, op: OpId, kind: OpKind, inputs: &[ViewId], outputs: &[ViewId]) {
        let operands = self.operands.len() as u32;
        let changed = &mut self.ops[op.index()];
        *changed = Op { kind, operands, inputs: inputs.len() as u8, outputs: outputs.len() as u16, ..*changed };
        self.operands.extend_from_slice(inputs);
        self.operands.extend_from_slice(outputs);
    }

    /// No more operations come: gives back the room that was taken ahead.
    pub(super) fn finish(&mut self) {
        self.ops.shrink_to_fit();
        self.operands.shrink_to_fit();
        self.after.shrink_to_fit();
    }

    /// Adds a dependency to the operation pushed last.
    pub(super) fn push_after(&mut self, after: After) {
        self.after.push(after);
    }

    /// Replaces each dependency on the previous iteration, whose operation is a note's number, by what `found` gives.
    pub(super) fn resolve_previous<'f>(&mut self, found: impl Fn(OpId) -> &'f [OpId]) {
        if !self.after.iter().any(|after| after.previous) {
            return;
        }
        let old = std::mem::take(&mut self.after);
        for index in 0..self.ops.len() {
            let start = self.ops[index].after as usize;
            let end = self.ops.get(index + 1).map_or(old.len(), |next| next.after as usize);
            self.ops[index].after = self.after.len() as u32;
            for after in &old[start..end] {
                match after.previous {
                    false => self.after.push(*after),
                    true => self.after.extend(found(after.op).iter().map(|&op| After { op, ..*after })),
                }
            }
        }
    }

    pub fn op(&self, op: OpId) -> &Op {
        &self.ops[op.index()]
    }

    /// The innermost turn that the operation stands in, where the program keeps turns.
    pub fn turn(&self, op: OpId) -> TurnId {
        self.turns.get(op.index()).copied().unwrap_or_default()
    }

    pub fn inputs(&self, op: OpId) -> &[ViewId] {
        let Op { operands, inputs, .. } = self.ops[op.index()];
        &self.operands[operands as usize..][..usize::from(inputs)]
    }

    pub fn outputs(&self, op: OpId) -> &[ViewId] {
        let Op { operands, inputs, outputs, .. } = self.ops[op.index()];
        &self.operands[operands as usize + usize::from(inputs)..][..usize::from(outputs)]
    }

    /// Its inputs, then its outputs, each with whether it is written.
    pub fn operands(&self, op: OpId) -> impl Iterator<Item = (ViewId, bool)> {
        let Op { operands, inputs, outputs, .. } = self.ops[op.index()];
        let views = &self.operands[operands as usize..][..usize::from(inputs) + usize::from(outputs)];
        views.iter().enumerate().map(move |(place, &view)| (view, place >= usize::from(inputs)))
    }

    /// What the text says that the operation waits for.
    pub fn after(&self, op: OpId) -> &[After] {
        let start = self.ops[op.index()].after as usize;
        let end = self.ops.get(op.index() + 1).map_or(self.after.len(), |next| next.after as usize);
        &self.after[start..end]
    }

    pub fn ids(&self) -> impl Iterator<Item = OpId> + use<> {
        (0..self.ops.len()).map(OpId::from)
    }
}

/// An operation about to be added.
pub(super) struct NewOp {
    pub kind: OpKind,
    pub stream: StreamId,
    pub label: LabelId,
    pub phase: PhaseId,
    pub turn: TurnId,
    pub span: SrcSpan,
}

impl Program {
    pub fn memory(&self, memory: MemoryId) -> &Memory {
        &self.memories[memory.index()]
    }

    pub fn layout(&self, memory: MemoryId) -> Layout {
        layout(&self.memories, &self.shapes, memory)
    }

    pub fn memory_bytes(&self, memory: MemoryId) -> u64 {
        let layout = self.layout(memory);
        layout.dims.iter().product::<u64>() * layout.dtype.size()
    }

    pub fn spec(&self, spec: SpecId) -> &Spec {
        self.specs.get_index(spec.index()).expect("ids come from this set")
    }

    /// The operation's spec; nothing for a marker.
    pub fn op_spec(&self, op: &Op) -> Option<&Spec> {
        match op.kind {
            OpKind::Run(spec) => Some(self.spec(spec)),
            _ => None,
        }
    }

    /// `gemm`, `signal`, …
    pub fn op_name(&self, op: &Op) -> &'static str {
        match op.kind {
            OpKind::Run(spec) => self.spec(spec).operation.name(),
            OpKind::Signal => "signal",
            OpKind::Wait => "wait",
            OpKind::Sync => "sync",
        }
    }

    /// `f[3].up`, or nothing where no label is around.
    pub fn label_text(&self, label: LabelId) -> Option<String> {
        self.path(&self.labels, label)
    }

    /// `forward.layer[3]`.
    pub fn phase_text(&self, phase: PhaseId) -> Option<String> {
        self.path(&self.phases, LabelId(phase.0))
    }

    fn path(&self, table: &[Label], mut label: LabelId) -> Option<String> {
        let mut parts = Vec::new();
        while let Some(name) = table[label.index()].name {
            let entry = &table[label.index()];
            let mut part = self.names.name(name).to_owned();
            if !entry.index.is_empty() {
                let index: Vec<String> = entry.index.iter().map(i64::to_string).collect();
                part += &format!("[{}]", index.join(", "));
            }
            parts.push(part);
            label = entry.parent;
        }
        parts.reverse();
        (!parts.is_empty()).then(|| parts.join("."))
    }

    /// What tables call the operation: its label, else its name.
    pub fn op_text(&self, op: &Op) -> String {
        self.label_text(op.label).unwrap_or_else(|| self.op_name(op).to_owned())
    }

    /// `x[0..4, 2]`: a slice as it would be written.
    pub fn view_text(&self, view: ViewId) -> String {
        let memory = self.views.memory(view);
        let info = self.memory(memory);
        let dims = self.layout(memory).dims;
        let mut text = String::from(match info.kind {
            MemoryKind::Bare(_) => "input of ",
            MemoryKind::Scratch => "output of ",
            MemoryKind::Buffer(_) => "",
        });
        text.push_str(self.names.name(info.name));
        let extents = self.views.extents(view);
        let kept = self.views.kept_mask(view);
        let whole = |axis: usize| kept >> axis & 1 == 1 && extents[axis].len == dims[axis];
        let family = usize::from(info.family);
        for part in [0..family, family..extents.len()] {
            // What is whole at the end is not written.
            let end = part.clone().rev().find(|&axis| !whole(axis)).map_or(part.start, |last| last + 1);
            for (axis, extent) in extents.iter().enumerate().take(end).skip(part.start) {
                text.push_str(if axis == part.start { "[" } else { ", " });
                // Writing to a string does not fail.
                let _ = match kept >> axis & 1 == 1 {
                    false => write!(text, "{}", extent.start),
                    true if whole(axis) => write!(text, ".."),
                    true => write!(text, "{}..{}", extent.start, extent.end()),
                };
            }
            text.push_str(if end > part.start { "]" } else { "" });
        }
        match self.views.is_reshaped(view) {
            true => format!("view({text}, {})", self.views.tensor(view).dims),
            false => text,
        }
    }
}

pub(super) fn layout(memories: &[Memory], shapes: &Shapes, memory: MemoryId) -> Layout {
    let info = &memories[memory.index()];
    let (dtype, dims) = shapes.get(info.shape);
    Layout { dtype, dims, space: info.space }
}
