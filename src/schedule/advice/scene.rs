//! A slot of the cycle as the finders of advice see it.

use std::cell::RefCell;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{MemoryId, OpId, SrcSpan, StreamId, ViewId};
use crate::config::Profile;
use crate::cost;
use crate::fuse;
use crate::model::{MemoryKind, OpKind, Program, Step};
use crate::ops::{Spec, Tensor, reshaped};
use crate::plan::{Flow, InputUse};

/// The effect of a `map` on the elements of one of its inputs.
#[derive(Clone, Copy)]
pub struct MaskEffect {
    /// The index of the input that the elements come from.
    pub input: usize,
    /// The factor of the elements; above 0.
    pub scale: f64,
    /// True if the scores of keys after the query's own position become so negative that their weights are 0.
    pub causal: bool,
}

/// Results of [`MaskEffect::of`], by the kind of the operation, and the memory and offset of each input. The layers of a model often
/// share a mask.
pub type KnownEffects = RefCell<FxHashMap<(OpKind, Vec<(MemoryId, u64)>), Option<MaskEffect>>>;

/// A slot of the cycle with its data flow and modelled times.
pub struct Scene<'a> {
    pub program: &'a Program,
    pub flow: &'a Flow<'a>,
    pub slot: usize,
    pub step: &'a Step,
    /// Share of each operation's bytes that the cache serves.
    pub cached: &'a [f64],
    /// Ranks of each group.
    pub members: &'a [Vec<u32>],
    /// Chains that fusion merges, each with the operation in its place.
    pub chains: &'a [fuse::Chain],
    /// Effects of maps that were found before.
    pub effects: &'a KnownEffects,
    pub profile: &'a Profile,
}

/// Operations that another form of the text would save.
#[derive(Clone, Debug)]
pub struct Savings {
    pub message: String,
    pub help: String,
    pub places: Vec<(SrcSpan, String)>,
    /// Operations that the new text changes, each with its new spec; `None` for one that it no longer has.
    pub changes: Vec<(OpId, Option<Spec>)>,
}

impl<'a> Scene<'a> {
    /// The spec of an operation; `None` for a marker, which runs nothing.
    pub fn spec(&self, op: OpId) -> Option<&'a Spec> {
        self.program.op_spec(self.step.op(op))
    }

    /// The spec of an operation of that name on a stream of the device; `None` for all others.
    pub fn named(&self, op: OpId, name: &str) -> Option<&'a Spec> {
        self.spec(op).filter(|spec| spec.threads.is_none() && spec.operation.name() == name)
    }

    /// Stream of an operation.
    pub fn stream(&self, op: OpId) -> StreamId {
        self.step.op(op).stream
    }

    /// Source location of an operation.
    pub fn span(&self, op: OpId) -> SrcSpan {
        self.step.op(op).span
    }

    /// The slice that an operation reads as this input.
    pub fn input(&self, reader: InputUse) -> ViewId {
        self.step.inputs(reader.op)[reader.input]
    }

    /// The first slice that an operation writes.
    pub fn output(&self, op: OpId) -> ViewId {
        self.step.outputs(op)[0]
    }

    /// The operation whose first output an input reads as a whole; `None` if there is none in the same iteration.
    pub fn source(&self, reader: InputUse) -> Option<OpId> {
        self.flow.source(self.slot, reader).filter(|(_, output)| *output == 0).map(|(op, _)| op)
    }

    /// The readers of an operation's first output, each of which reads all of it; `None` if nothing reads it, or if a reader
    /// reads only a part.
    pub fn readers(&self, op: OpId) -> Option<&'a [InputUse]> {
        let readers = self.flow.readers(self.slot, op, 0)?;
        let whole = readers.iter().all(|&reader| self.source(reader) == Some(op));
        (whole && !readers.is_empty()).then_some(readers)
    }

    /// The only reader of an operation's first output; `None` if it has another number of readers.
    pub fn reader(&self, op: OpId) -> Option<InputUse> {
        match self.readers(op)? {
            [reader] => Some(*reader),
            _ => None,
        }
    }

    /// True if a slice holds the same values at `to` as at `from`.
    pub fn kept(&self, view: ViewId, from: OpId, to: OpId) -> bool {
        self.flow.untouched(self.slot, view, (from, to), false)
    }

    /// True if the text leaves out the type of one of the operation's outputs, so that its inputs decide it.
    pub fn is_free(&self, op: OpId) -> bool {
        let scratch = |&view: &ViewId| self.program.memory(self.program.views.memory(view)).kind == MemoryKind::Scratch;
        self.step.outputs(op).iter().any(scratch)
    }

    /// Returns the specs of readers that read `tensor` in place of their inputs, viewed in the dimensions of those inputs.
    /// `None` if one of the readers cannot.
    pub fn reading(&self, readers: &[InputUse], tensor: &Tensor) -> Option<Vec<(OpId, Option<Spec>)>> {
        let mut changes: Vec<(OpId, Option<Spec>)> = Vec::new();
        for reader in readers {
            let spec = self.spec(reader.op).filter(|spec| spec.threads.is_none())?;
            if changes.iter().any(|(known, _)| *known == reader.op) {
                continue;
            }
            let mut inputs = spec.inputs.clone();
            for one in readers.iter().filter(|one| one.op == reader.op) {
                let dims = inputs[one.input].dims;
                inputs[one.input] = Tensor { dims, strides: reshaped(tensor, dims).ok()?, ..*tensor };
            }
            changes.push((reader.op, Some(spec.on(inputs, self.is_free(reader.op))?)));
        }
        Some(changes)
    }

    /// Modelled duration of an operation in ns if the cache serves this share of its bytes.
    pub fn duration(&self, spec: &Spec, cached: f64) -> f64 {
        cost::duration(spec, &self.members[spec.team.group.index()], cached, self.profile)
    }

    /// The name of an operation in the text: the last part of its label, otherwise its kind.
    pub fn name(&self, op: OpId) -> String {
        let info = self.step.op(op);
        let label = self.program.label_text(info.label);
        let label = label.as_deref().map(|label| label.rsplit('.').next().unwrap_or(label).to_owned());
        label.unwrap_or_else(|| self.program.op_name(info).to_owned())
    }

    /// The names of operations in the text, each with the calls around it if they would be the same otherwise.
    pub fn names(&self, ops: &[OpId]) -> Vec<String> {
        let names: Vec<String> = ops.iter().map(|&op| self.name(op)).collect();
        let distinct: FxHashSet<&String> = names.iter().collect();
        let label = |op: OpId| self.program.label_text(self.step.op(op).label);
        let full =
            || ops.iter().map(|&op| label(op).map_or_else(|| self.name(op), |label| label.to_string())).collect();
        let names: Vec<String> = if distinct.len() < names.len() { full() } else { names };
        names.iter().map(|name| format!("`{name}`")).collect()
    }

    /// An operand as the text would name it: the slice of a buffer, or the label of the operation that made it; `None`
    /// if it has no name.
    pub fn operand(&self, reader: InputUse) -> Option<String> {
        let view = self.input(reader);
        match self.program.memory(self.program.views.memory(view)).kind {
            MemoryKind::Buffer(_) => Some(self.program.view_text(view)),
            MemoryKind::Bare(_) => None,
            MemoryKind::Scratch => {
                let op = self.source(reader)?;
                self.program.label_text(self.step.op(op).label).map(|_| self.name(op))
            }
        }
    }
}

/// Names as a list in a sentence: `a`, `b` and `c`.
pub fn list(names: &[String]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        names => names.join(""),
    }
}
