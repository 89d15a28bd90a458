//! The program: the meaning of a file for one rank, with everything evaluated.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::base::named::named;
use crate::base::{
    Around, DType, Dims, Interner, LabelId, MemoryId, OpId, PhaseId, Space, SpecId, SrcSpan, StreamId, Symbol, TurnId,
    ViewId,
};
use crate::ops::Spec;
use crate::ops::init::Init;

use super::memory::grid;
use super::memory::views::{Extent, Layout, Views};
use super::metrics::figures::{Expectation, Metric};
use super::names::index::Index;
use super::ranks::group::Group;
use super::streams::units::Units;
use super::turns::Turns;

/// The program of one rank.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub rank: u32,
    pub world: u32,
    /// True if the program depends on its rank's number. Otherwise it is the same for every rank, and `rank` and the
    /// teams of its specs are those of rank 0.
    pub by_rank: bool,
    /// Every parameter with its value, in source form.
    pub params: Vec<(String, String)>,
    pub names: Interner,
    /// Groups of ranks; the first one is the world.
    pub groups: Vec<Group>,
    pub streams: Vec<Stream>,
    pub memories: Vec<Memory>,
    pub shapes: Shapes,
    /// The parts of buffers that have parts of one type.
    pub(super) parts: FxHashMap<MemoryId, Arc<[BufferPart]>>,
    pub views: Views,
    pub specs: IndexSet<Spec, FxBuildHasher>,
    pub labels: Vec<Label>,
    /// Every `grad`, in the order of the text.
    pub gradients: Vec<Gradient>,
    pub phases: Vec<Label>,
    pub turns: Turns,
    /// Order of iterations, and of operations within an iteration.
    pub step: StepOptions,
    /// The operations of each slot of the cycle.
    pub cycle: Vec<Step>,
    /// `setup` and `teardown`: programs with the same streams and memories, whose cycles have one slot.
    pub around: Around<Arc<Program>>,
    /// Number of copies between ranks in the whole cycle, the same on all ranks.
    pub crossings: u32,
    pub metrics: Vec<Metric>,
    pub expectations: Vec<Expectation>,
}

/// A declared stream: a single one, or a member of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// The name with its index, such as `expert[3]`.
    pub name: String,
    pub family: Symbol,
    /// Index in the family; `None` for a single stream.
    pub member: Option<u32>,
    pub priority: Priority,
    /// The part of the device that the stream is restricted to; `None` for the whole device.
    pub units: Option<Units>,
    /// Number of the hardware queue that the stream requests: streams with one number share a queue. `None` leaves the
    /// choice to the vendor.
    pub queue: Option<u32>,
    /// Number of threads of the CPU that do the work of a host stream; `None` for a stream of the device.
    pub threads: Option<NonZeroU32>,
    pub span: SrcSpan,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    High,
    #[default]
    Normal,
    Low,
    /// The vendor's number; lower is more urgent.
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

/// A range of memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The buffer's name, or the name of the operation that creates it.
    pub name: Symbol,
    pub kind: MemoryKind,
    pub space: Space,
    /// Number of dimensions, from the outermost, that are indices of the family.
    pub family: u8,
    pub shape: u32,
    pub span: SrcSpan,
}

/// The origin of a memory, which determines its lifetime.
#[derive(Clone, Debug, PartialEq)]
pub enum MemoryKind {
    /// A declared buffer, which lives as long as the run.
    Buffer(Init),
    /// An operand given only as a type: filled once, never written.
    Bare(Init),
    /// An output without a name, or a buffer of a block: lives from its first write to its last use in an iteration.
    Scratch,
}

impl MemoryKind {
    /// Text before the name of a memory in messages: a memory that the text does not declare has the name of an operation.
    pub fn prefix(&self) -> &'static str {
        match self {
            MemoryKind::Buffer(_) => "",
            MemoryKind::Bare(_) => "input of ",
            MemoryKind::Scratch => "output of ",
        }
    }
}

/// A part of a buffer: a range of its memory, with dimensions of its own.
#[derive(Clone, Copy, Debug)]
pub struct BufferPart {
    pub name: Symbol,
    pub dtype: DType,
    pub dims: Dims,
    /// Index of the part's first element in the buffer.
    pub start: u64,
}

/// Distinct element types with shapes.
#[derive(Clone, Debug, Default)]
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

/// A label or a phase at one location and loop turn.
#[derive(Clone, Debug, Default)]
pub struct Label {
    /// `None` for the label of operations without one.
    pub name: Option<Symbol>,
    /// The indices after the name.
    pub index: Index,
    /// The enclosing labelled call or phase.
    pub parent: LabelId,
}

/// A `grad` that has become operations.
#[derive(Clone, Debug)]
pub struct Gradient {
    /// The label of the gradient's operations, or the parent of their labels.
    pub label: LabelId,
    /// The label of the operation or call whose gradients they compute.
    pub of: LabelId,
    /// Memory of the input gradients of the `grad` and of the gradients that it computes.
    pub own: Vec<MemoryId>,
}

/// The order of iterations, and of operations within an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOptions {
    pub sync: Sync,
    /// Maximum number of iterations under way if they overlap.
    pub depth: u32,
    /// True if only declared dependencies order operations; otherwise data does too.
    pub declared_order: bool,
    pub allow_races: bool,
}

impl Default for StepOptions {
    fn default() -> Self {
        StepOptions { sync: Sync::Iteration, depth: 1, declared_order: false, allow_races: false }
    }
}

impl StepOptions {
    /// Number of iterations that can be under way at once.
    pub fn under_way(&self) -> u32 {
        match self.sync {
            Sync::Iteration => 1,
            Sync::End => self.depth.max(1),
        }
    }
}

named! {
    /// The order of consecutive iterations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Sync {
        /// An iteration begins when the previous one is complete.
        Iteration = "iteration",
        /// Streams and data alone order iterations.
        End = "end",
    }
}

/// The operations of one iteration, in the order of the text.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub ops: Vec<Op>,
    operands: Vec<ViewId>,
    after: Vec<After>,
    /// Copies to other ranks, in the order of the text.
    peers: Vec<Peer>,
    /// The turn of each operation, up to the last one inside a loop or call.
    turns: Vec<TurnId>,
}

/// A copy to another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub op: OpId,
    /// The receiving rank, and the slice that is written there as a slice of this rank's buffer of the same name; `None`
    /// if this rank sends nothing.
    pub to: Option<(u32, ViewId)>,
    /// Number of the copy, the same on all ranks that execute it; set by [`super::link`].
    pub crossing: u32,
}

/// An operation of a step.
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
    /// Records an event.
    Signal,
    /// Waits for events.
    Wait,
    /// Waits for everything before it, and everything after waits for it.
    Sync,
    /// A `sync()` at which the host also waits until all work that it has issued is complete.
    HostSync,
}

impl OpKind {
    /// True if all streams wait for each other here.
    pub fn joins_all(self) -> bool {
        matches!(self, OpKind::Sync | OpKind::HostSync)
    }
}

/// A declared dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    pub op: OpId,
    /// True if the dependency is on an operation of the previous iteration.
    pub previous: bool,
    /// Location of the declaration.
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

    /// Marks the operation added last as a copy to another rank.
    pub(super) fn push_peer(&mut self, to: Option<(u32, ViewId)>) {
        let op = OpId::from(self.ops.len() - 1);
        self.peers.push(Peer { op, to, crossing: 0 });
    }

    /// Copies to other ranks, in the order of the text.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    pub(super) fn peers_mut(&mut self) -> &mut [Peer] {
        &mut self.peers
    }

    /// The copy to another rank that an operation is; `None` for any other operation.
    pub fn peer(&self, op: OpId) -> Option<&Peer> {
        self.peers.binary_search_by_key(&op, |peer| peer.op).ok().map(|index| &self.peers[index])
    }

    /// Replaces an operation's kind and operands.
    pub(super) fn replace(&mut self, op: OpId, kind: OpKind, inputs: &[ViewId], outputs: &[ViewId]) {
        let operands = self.operands.len() as u32;
        let changed = &mut self.ops[op.index()];
        *changed = Op { kind, operands, inputs: inputs.len() as u8, outputs: outputs.len() as u16, ..*changed };
        self.operands.extend_from_slice(inputs);
        self.operands.extend_from_slice(outputs);
    }

    /// Releases unused capacity once no more operations come.
    pub(super) fn finish(&mut self) {
        self.ops.shrink_to_fit();
        self.operands.shrink_to_fit();
        self.after.shrink_to_fit();
    }

    /// Adds a dependency to the operation added last.
    pub(super) fn push_after(&mut self, after: After) {
        self.after.push(after);
    }

    /// Replaces each dependency on the previous iteration by the operations that `found` returns for it.
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

    /// The innermost turn that contains the operation; 0 if the program keeps no turns.
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

    /// The operation's inputs, then its outputs; the flag is true for outputs.
    pub fn operands(&self, op: OpId) -> impl Iterator<Item = (ViewId, bool)> {
        let Op { operands, inputs, outputs, .. } = self.ops[op.index()];
        let views = &self.operands[operands as usize..][..usize::from(inputs) + usize::from(outputs)];
        views.iter().enumerate().map(move |(place, &view)| (view, place >= usize::from(inputs)))
    }

    /// The declared dependencies of the operation.
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
    /// The steps of the cycle, then those of the blocks around it.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.cycle.iter().chain(self.around.iter().flat_map(|(_, block)| &block.cycle))
    }

    /// Returns the program of a block that runs once, with the same tables as this program.
    pub(super) fn once(&self, block: Step) -> Program {
        Program {
            step: StepOptions { sync: Sync::Iteration, depth: 1, ..self.step },
            cycle: vec![block],
            metrics: Vec::new(),
            expectations: Vec::new(),
            ..self.clone()
        }
    }

    /// Releases tables that only the analysis of slices needs. If ranks copy to each other, `link` releases them after
    /// it has added the arrivals.
    pub(super) fn finish(mut self) -> Program {
        if self.cycle.iter().all(|step| step.peers().is_empty()) {
            self.views.finish();
        }
        self
    }

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

    /// The operation's spec; `None` for a marker.
    pub fn op_spec(&self, op: &Op) -> Option<&Spec> {
        match op.kind {
            OpKind::Run(spec) => Some(self.spec(spec)),
            _ => None,
        }
    }

    /// The kind, such as `gemm` or `signal`.
    pub fn op_name(&self, op: &Op) -> &str {
        match op.kind {
            OpKind::Run(spec) => self.spec(spec).name(),
            OpKind::Signal => "signal",
            OpKind::Wait => "wait",
            OpKind::Sync => "sync",
            OpKind::HostSync => "host_sync",
        }
    }

    /// The path of a label, such as `f[3].up`; `None` for an operation without one.
    pub fn label_text(&self, label: LabelId) -> Option<String> {
        self.path(&self.labels, label)
    }

    /// The path of a phase, such as `forward.layer[3]`; `None` outside of phases.
    pub fn phase_text(&self, phase: PhaseId) -> Option<String> {
        self.path(&self.phases, LabelId(phase.0))
    }

    fn path(&self, table: &[Label], label: LabelId) -> Option<String> {
        path(&self.names, table, label)
    }

    /// Name of the operation in tables: its label, otherwise its kind.
    pub fn op_text(&self, op: &Op) -> String {
        self.label_text(op.label).unwrap_or_else(|| self.op_name(op).to_owned())
    }

    /// A slice in source form, such as `x[0..4, 2]`.
    pub fn view_text(&self, view: ViewId) -> String {
        let memory = self.views.memory(view);
        let (info, views) = (self.memory(memory), &self.views);
        let dims = self.layout(memory).dims;
        let mut text = String::from(info.kind.prefix());
        let (extents, kept, is_reshaped) = match views.grid(memory) {
            None => (views.extents(view).to_vec(), views.kept_mask(view), views.is_reshaped(view)),
            Some(grid) => match self.own_box(view, &dims) {
                Some(found) => found,
                None => {
                    let slice = slice_text(views.extents(view), views.kept_mask(view), &grid, 0..grid.len());
                    let sliced = format!("view({text}{}, {grid}){slice}", self.names.name(info.name));
                    return if views.is_reshaped(view) {
                        format!("view({sliced}, {})", views.tensor(view).dims)
                    } else {
                        sliced
                    };
                }
            },
        };
        // The index of a family precedes the part: `w[0].up`.
        let name = self.names.name(info.name);
        let (name, later) = match info.family > 0 {
            true => name.split_once('.').unwrap_or((name, "")),
            false => (name, ""),
        };
        text.push_str(name);
        let family = usize::from(info.family);
        let of_part = self.part_text(view);
        let own = if of_part.is_some() { 0..0 } else { family..extents.len() };
        for (number, part) in [0..family, own].into_iter().enumerate() {
            if number == 1 && !later.is_empty() {
                let _ = write!(text, ".{later}");
            }
            text.push_str(&slice_text(&extents, kept, &dims, part));
        }
        if let Some(of_part) = of_part {
            return text + &of_part;
        }
        match is_reshaped {
            true => format!("view({text}, {})", self.views.tensor(view).dims),
            false => text,
        }
    }

    /// Returns a slice of a memory with a finer grid as a box in the memory's own dimensions, with the dimensions that the slice keeps,
    /// and true if operations see the slice in other dimensions; `None` if the slice is no such box.
    fn own_box(&self, view: ViewId, dims: &Dims) -> Option<(Vec<Extent>, u8, bool)> {
        let tensor = self.views.tensor(view);
        let extents = grid::boxed(dims, self.views.offset(view, dims), &tensor.dims, &tensor.strides).ok()?;
        let kept = grid::kept(&extents, &tensor.dims);
        Some((extents, kept.unwrap_or(u8::MAX), kept.is_none()))
    }
}

/// Returns the indices of a slice in some dimensions of its memory, such as `[0..4, 2]`; empty if the slice covers these dimensions.
fn slice_text(extents: &[Extent], kept: u8, dims: &Dims, part: Range<usize>) -> String {
    let whole = |axis: usize| kept >> axis & 1 == 1 && extents[axis].len == dims[axis];
    // Trailing dimensions that are whole are left out.
    let end = part.clone().rev().find(|&axis| !whole(axis)).map_or(part.start, |last| last + 1);
    let mut text = String::new();
    for (axis, extent) in extents.iter().enumerate().take(end).skip(part.start) {
        text.push_str(if axis == part.start { "[" } else { ", " });
        // Writing to a string cannot fail.
        let _ = match kept >> axis & 1 == 1 {
            false => write!(text, "{}", extent.start),
            true if whole(axis) => write!(text, ".."),
            true => write!(text, "{}..{}", extent.start, extent.end()),
        };
    }
    text.push_str(if end > part.start { "]" } else { "" });
    text
}

/// The path of a label or a phase in a table, such as `f[3].up`; `None` for the one without a name.
pub(super) fn path(names: &Interner, table: &[Label], mut label: LabelId) -> Option<String> {
    let mut parts = Vec::new();
    while let Some(name) = table[label.index()].name {
        let entry = &table[label.index()];
        let mut part = names.name(name).to_owned();
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

pub(super) fn layout(memories: &[Memory], shapes: &Shapes, memory: MemoryId) -> Layout {
    let info = &memories[memory.index()];
    let (dtype, dims) = shapes.get(info.shape);
    Layout { dtype, dims, space: info.space }
}
