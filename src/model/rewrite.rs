//! Replaces operations of a program, for passes such as fusion.

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::base::{LabelId, OpId, PhaseId, SpecId, TurnId, ViewId};
use crate::ops::Spec;

use super::metrics::figures::FigureExpr;
use super::names::index::Index;
use super::names::sets::OpSet;
use super::program::{After, Label, NewOp, Op, OpKind, Peer, Program, Step, path};

/// Names of operations in the label of the one that replaces them; others are left out.
const MAX_NAMES: usize = 6;

/// An operation of a step that a pass has rewritten.
#[derive(Debug)]
pub struct Rewritten {
    /// The operations of the original step that this one replaces: at least one, all on one stream, in the order of the
    /// text.
    pub members: Vec<OpId>,
    /// The operation that replaces them; `None` to keep the only one.
    pub replacement: Option<Replacement>,
}

/// An operation that replaces others.
#[derive(Debug)]
pub struct Replacement {
    pub spec: Spec,
    pub inputs: Vec<ViewId>,
    pub outputs: Vec<ViewId>,
}

impl Program {
    /// Returns the program with the operations in `slots` in each slot of its cycle, in an order in which every operation
    /// follows its dependencies.
    pub fn rewritten(mut self, slots: &[Vec<Rewritten>]) -> Program {
        let places: Vec<Vec<OpId>> = self.cycle.iter().zip(slots).map(|(step, slot)| places(step, slot)).collect();
        let cycle = std::mem::take(&mut self.cycle);
        for (number, (step, slot)) in cycle.iter().zip(slots).enumerate() {
            let before = &places[(number + cycle.len() - 1) % cycle.len()];
            let mut written = Step::default();
            for one in slot {
                self.push(step, one, (&places[number], before), &mut written);
            }
            written.finish();
            self.cycle.push(written);
        }
        self
    }

    fn push(&mut self, step: &Step, one: &Rewritten, (places, before): (&[OpId], &[OpId]), written: &mut Step) {
        let last = *one.members.last().expect("an operation stands for one at least");
        let info = *step.op(last);
        let (kind, inputs, outputs, label, phase) = match &one.replacement {
            None => (info.kind, step.inputs(last), step.outputs(last), info.label, info.phase),
            Some(Replacement { spec, inputs, outputs }) => {
                let spec = SpecId::from(self.specs.insert_full(spec.clone()).0);
                let op = self.replaced(step, &one.members);
                (OpKind::Run(spec), &**inputs, &**outputs, op.label, op.phase)
            }
        };
        let turn: TurnId = step.turn(last);
        let op = NewOp { kind, stream: info.stream, label, phase, turn, span: info.span };
        let id = written.push(op, inputs, outputs);
        let mut known = FxHashSet::default();
        for after in one.members.iter().flat_map(|member| step.after(*member)) {
            let target = if after.previous { before } else { places }[after.op.index()];
            if (after.previous || target != id) && known.insert((target, after.previous)) {
                written.push_after(After { op: target, ..*after });
            }
        }
        if let Some(peer) = step.peer(last) {
            written.push_peer(peer.to);
            if let Some(new) = written.peers_mut().last_mut() {
                *new = Peer { op: id, ..*peer };
            }
        }
    }

    /// Returns the last of the members with a new label that names all members, such as `f[3].up+act`.
    fn replaced(&mut self, step: &Step, members: &[OpId]) -> Op {
        let ops: Vec<Op> = members.iter().map(|member| *step.op(*member)).collect();
        let mut op = self.enclosing(&ops);
        let name = self.joined_name(&ops, op.label);
        let name = self.names.intern(&name);
        self.labels.push(Label { name: Some(name), index: Index::None, parent: op.label });
        op.label = LabelId::from(self.labels.len() - 1);
        op
    }

    /// Returns the last of these operations with the innermost label and phase that all of them have in common.
    pub fn enclosing(&self, ops: &[Op]) -> Op {
        let label = common(&self.labels, ops.iter().map(|op| op.label));
        let phase = common(&self.phases, ops.iter().map(|op| LabelId(op.phase.0)));
        let mut last = *ops.last().expect("there is an operation");
        (last.label, last.phase) = (label, PhaseId(phase.0));
        last
    }

    /// The names of operations inside of a label, such as `up+act`.
    fn joined_name(&self, ops: &[Op], inside: LabelId) -> String {
        let outer = path(&self.names, &self.labels, inside).map_or(0, |path| path.len() + 1);
        let name = |op: &Op| match self.label_text(op.label) {
            Some(text) if text.len() > outer => text[outer..].to_owned(),
            _ => self.op_name(op).to_owned(),
        };
        listed(ops.len(), |range| ops[range].iter().map(name).collect())
    }

    /// Returns the common name of operations, such as `f[3].up+act`.
    pub fn name_of(&self, ops: &[Op]) -> String {
        let label = self.enclosing(ops).label;
        let inner = self.joined_name(ops, label);
        self.label_text(label).map_or_else(|| inner.clone(), |outer| format!("{outer}.{inner}"))
    }

    /// Returns the sets of operations that metrics and expectations refer to.
    pub fn sets(&self) -> Vec<&OpSet> {
        let mut sets = Vec::new();
        self.metrics.iter().for_each(|metric| add_sets(&metric.value, &mut sets));
        for expectation in &self.expectations {
            add_sets(&expectation.condition, &mut sets);
            expectation.when.iter().for_each(|when| add_sets(when, &mut sets));
        }
        sets
    }
}

/// The names of some operations, joined by `+`.
fn listed(count: usize, names: impl Fn(Range<usize>) -> Vec<String>) -> String {
    match count {
        ..=MAX_NAMES => names(0..count).join("+"),
        _ => format!("{}+…+{}", names(0..MAX_NAMES - 2).join("+"), names(count - 1..count).join("+")),
    }
}

/// For each operation of the original step, the operation that replaces it.
fn places(step: &Step, slot: &[Rewritten]) -> Vec<OpId> {
    let mut places = vec![OpId(0); step.ops.len()];
    for (place, one) in slot.iter().enumerate() {
        one.members.iter().for_each(|member| places[member.index()] = OpId::from(place));
    }
    places
}

/// The innermost label that is, or encloses, all of these.
fn common(labels: &[Label], mut all: impl Iterator<Item = LabelId>) -> LabelId {
    let chain = |label: LabelId| {
        let outer = |label: &LabelId| labels[label.index()].name.map(|_| labels[label.index()].parent);
        let mut chain: Vec<LabelId> = std::iter::successors(Some(label), outer).collect();
        chain.reverse();
        chain
    };
    let first = chain(all.next().unwrap_or_default());
    let shared = all.fold(first, |shared, label| {
        shared.into_iter().zip(chain(label)).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    });
    shared.last().copied().unwrap_or_default()
}

fn add_sets<'a>(expr: &'a FigureExpr, sets: &mut Vec<&'a OpSet>) {
    for leaf in expr.leaves() {
        if let FigureExpr::Figure { set, beside, .. } = leaf {
            sets.extend(set.iter().chain(beside));
        }
    }
}
