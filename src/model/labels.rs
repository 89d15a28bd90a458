//! Labels: what they name, and the dependencies that are declared with them.

use std::cell::OnceCell;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::base::{LabelId, OpId, SrcSpan, StreamId, Symbol, ViewId, suggest};
use crate::syntax::ast::{Call, Edge, Expr, ExprKind, LabelName, Name};

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::expand::Previous;
use super::program::{After, Label, OpKind};
use super::value::Value;

/// Dependencies that count as much as a turn of a loop.
const DEPENDENCIES_PER_TURN: usize = 4;

/// What a label stands for, while its iteration is expanded.
#[derive(Debug)]
pub(super) struct LabelData {
    pub ops: Range<u32>,
    /// The last of them on each stream, once something has waited for the label.
    last: OnceCell<Box<[OpId]>>,
    /// The outputs and labels of a call of a definition; nothing for an operation.
    members: Option<Box<[(Symbol, Value)]>>,
    span: SrcSpan,
}

impl LabelData {
    pub fn operation(op: OpId) -> Self {
        LabelData { ops: op.0..op.0 + 1, last: OnceCell::new(), members: None, span: SrcSpan::default() }
    }

    pub fn call(ops: Range<u32>, members: Vec<(Symbol, Value)>) -> Self {
        LabelData { ops, last: OnceCell::new(), members: Some(members.into()), span: SrcSpan::default() }
    }
}

/// The labels `f[0]`, `f[1]`, … of a step or a call.
#[derive(Debug, Default)]
pub(super) struct Family {
    members: FxHashMap<Box<[i64]>, LabelId>,
    order: Vec<LabelId>,
    /// The last operation of the first members on each stream, and how many members these are.
    last: FxHashMap<StreamId, OpId>,
    counted: usize,
}

/// The labels of a complete iteration.
pub(super) type StepLabels = FxHashMap<Symbol, StepLabel>;

/// The operations that a label waits for, the last on each stream.
pub(super) enum StepLabel {
    One(Vec<OpId>),
    Family(FxHashMap<Box<[i64]>, Vec<OpId>>),
}

impl<'a> Analyzer<'a> {
    /// The indices behind a label's or a phase's name.
    pub(super) fn label_index(&mut self, label: &LabelName) -> Option<Box<[i64]>> {
        label.index.iter().map(|index| self.eval_whole(index)).collect::<Option<Vec<_>>>().map(Vec::into)
    }

    /// Makes the label of a call, so that what is inside can name it as the one around.
    pub(super) fn open_label(&mut self, call: &Call) -> Option<LabelId> {
        let label = call.label.as_ref()?;
        let Some(index) = self.label_index(label) else {
            self.forget_label(call);
            return None;
        };
        let parent = self.expansion.label;
        self.program.labels.push(Label { name: Some(label.name.symbol), index, parent });
        let empty = LabelData::call(0..0, Vec::new());
        self.expansion.labels.push(empty);
        Some(LabelId::from(self.program.labels.len() - 1))
    }

    /// Says what a label stands for, and makes its name known.
    pub(super) fn close_label(&mut self, call: &Call, label: LabelId, data: LabelData) {
        let name = call.label.as_ref().expect("only calls with a label open one").name;
        let slot = label.index() - self.expansion.first_label;
        self.expansion.labels[slot] = LabelData { span: name.span, ..data };
        let index = self.program.labels[label.index()].index.clone();
        if index.is_empty() {
            self.scopes.declare(name.symbol, Value::Label(label));
            return;
        }
        let known = self.scopes.in_frame(name.symbol).then(|| self.scopes.get(name.symbol).cloned()).flatten();
        let family = match known {
            Some(Value::Labels(family)) => family,
            // Another member has failed.
            Some(Value::Unknown) => return,
            _ => {
                self.expansion.families.push(Family::default());
                let family = self.expansion.families.len() as u32 - 1;
                self.scopes.declare_in_frame(name.symbol, Value::Labels(family));
                family
            }
        };
        let family = &mut self.expansion.families[family as usize];
        family.order.push(label);
        if let Some(first) = family.members.insert(index.clone(), label) {
            let first = self.label_data(first).span;
            let index: Vec<String> = index.iter().map(i64::to_string).collect();
            let name_text = format!("{}[{}]", self.names.name(name.symbol), index.join(", "));
            let help = "each member of a family is given once: choose the index so that every turn has its own";
            self.error(ModelError::LabelTwice { name: name_text, help, at: name.span.into(), first: first.into() });
        }
    }

    fn label_data(&self, label: LabelId) -> &LabelData {
        &self.expansion.labels[label.index() - self.expansion.first_label]
    }

    /// `f[l]`.
    pub(super) fn member(&mut self, family: u32, base: &Expr, items: &[Expr], span: SrcSpan) -> Value {
        let index: Option<Vec<i64>> = items.iter().map(|item| self.eval_whole(item)).collect();
        let Some(index) = index else { return Value::Unknown };
        let known = self.expansion.families.get(family as usize);
        match known.and_then(|family| family.members.get(index.as_slice())) {
            Some(&label) => Value::Label(label),
            None => {
                let index: Vec<String> = index.iter().map(i64::to_string).collect();
                let name = self.text_of(base);
                self.error(ModelError::NoMember { name, index: format!("[{}]", index.join(", ")), at: span.into() });
                Value::Unknown
            }
        }
    }

    /// `f.y`: an output of an operation, or an output or label inside a call.
    pub(super) fn label_member(&mut self, label: LabelId, base: &Expr, member: Name) -> Value {
        let data = self.label_data(label);
        let known: Vec<String> = match &data.members {
            Some(members) => {
                if let Some((_, value)) = members.iter().find(|(name, _)| *name == member.symbol) {
                    return match value {
                        Value::Output(cell) => self.written_output(*cell, member.symbol, member.span),
                        value => value.clone(),
                    };
                }
                members.iter().map(|(name, _)| self.names.name(*name).to_owned()).collect()
            }
            None => {
                let op = OpId(data.ops.start);
                let names = match self.expansion.step.ops.get(op.index()).map(|op| op.kind) {
                    Some(OpKind::Run(spec)) => self.program.spec(spec).operation.signature().outputs,
                    _ => &[],
                };
                let wanted = self.names.name(member.symbol);
                if let Some(place) = names.iter().position(|name| *name == wanted) {
                    let view = self.expansion.step.outputs(op)[place];
                    return Value::Tensor { view, family: 0 };
                }
                names.iter().map(|name| (*name).to_owned()).collect()
            }
        };
        let text = self.names.name(member.symbol).to_owned();
        let help = match known.is_empty() {
            true => Some("it has no outputs and no labels inside".to_owned()),
            false => suggest::did_you_mean(&text, known.iter().map(String::as_str)),
        };
        let name = self.text_of(base);
        self.error(ModelError::UnknownMember { name, member: text, at: member.span.into(), help });
        Value::Unknown
    }

    /// The slice that a value stands for as an operand: a tensor, or the only output of a label.
    pub(super) fn view_of(&mut self, value: &Value, span: SrcSpan) -> Option<ViewId> {
        match value {
            Value::Unknown => None,
            Value::Tensor { view, .. } => Some(*view),
            Value::Label(_) => self.single_output(value, span),
            other => self.wrong_type("a tensor", other, span),
        }
    }

    pub(super) fn single_output(&mut self, value: &Value, span: SrcSpan) -> Option<ViewId> {
        let Value::Label(label) = value else { return None };
        let data = self.label_data(*label);
        if data.members.iter().flatten().any(|(_, value)| matches!(value, Value::Unknown)) {
            return None;
        }
        let (outputs, names): (Vec<ViewId>, Vec<String>) = match &data.members {
            Some(members) => members
                .iter()
                .filter_map(|(name, value)| match value {
                    Value::Tensor { view, .. } => Some((*view, self.names.name(*name).to_owned())),
                    _ => None,
                })
                .unzip(),
            None => {
                let op = OpId(data.ops.start);
                let names = match self.expansion.step.ops.get(op.index()).map(|op| op.kind) {
                    Some(OpKind::Run(spec)) => self.program.spec(spec).operation.signature().outputs,
                    _ => &[],
                };
                let outputs = self.expansion.step.outputs(op).to_vec();
                (outputs, names.iter().map(|name| (*name).to_owned()).collect())
            }
        };
        match outputs.as_slice() {
            [only] => Some(*only),
            several => {
                let (found, help) = match several.len() {
                    0 => {
                        let help = "read something that has an output: an operation that writes, or a call of a \
                                    `def f(x -> y) { … }`";
                        ("a label of something that has no output".to_owned(), Some(help.to_owned()))
                    }
                    count => {
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        let help = format!("write one of its outputs behind a dot: {}", suggest::listed(&names));
                        (format!("a label of something that has {count} outputs"), Some(help))
                    }
                };
                self.error(ModelError::WrongType { expected: "a tensor".to_owned(), found, at: span.into(), help });
                None
            }
        }
    }

    // --- Dependencies -----------------------------------------------------------------------------------------

    /// What `after …` stands for, those whose `when` does not hold left out.
    pub(super) fn edges(&mut self, edges: &[Edge]) -> Vec<After> {
        let mut ops = Vec::new();
        for edge in edges {
            match edge.when.as_ref().map(|when| self.eval_bool(when)) {
                None | Some(Some(true)) => {}
                Some(_) => continue,
            }
            if edge.previous {
                self.previous(&edge.label, &mut ops);
            } else {
                let value = self.eval(&edge.label);
                ops.extend(self.waited_for(&value, edge.label.span));
            }
        }
        ops
    }

    /// `prev(label)`: noted, and filled in when the labels of all iterations are known.
    fn previous(&mut self, path: &Expr, ops: &mut Vec<After>) {
        let (name, index) = match &path.kind {
            ExprKind::Name(symbol) => (Some(*symbol), None),
            ExprKind::Index { base, items } => {
                let index: Option<Vec<i64>> = items.iter().map(|item| self.eval_whole(item)).collect();
                let Some(index) = index else { return };
                (base.as_name(), Some(index.into()))
            }
            _ => (None, None),
        };
        let Some(name) = name else {
            self.error(ModelError::WrongType {
                expected: "a label of the step".to_owned(),
                found: "a path".to_owned(),
                at: path.span.into(),
                help: Some("`prev` takes `f` or `f[i]`".to_owned()),
            });
            return;
        };
        let step = self.program.cycle.len();
        self.expansion.previous.push(Previous { step, name, index, span: path.span });
        let note = OpId(self.expansion.previous.len() as u32 - 1);
        ops.push(After { op: note, previous: true, span: path.span });
    }

    /// Puts the operations of the iteration before in the place of each `prev(…)`.
    pub(super) fn resolve_previous(&mut self, labels: &[StepLabels]) {
        let notes = std::mem::take(&mut self.expansion.previous);
        let mut found: Vec<Vec<OpId>> = Vec::with_capacity(notes.len());
        for note in &notes {
            let before = (note.step + labels.len() - 1) % labels.len();
            let ops = match (labels[before].get(&note.name), &note.index) {
                (Some(StepLabel::One(ops)), None) => Some(ops.clone()),
                (Some(StepLabel::Family(members)), Some(index)) => members.get(index).cloned(),
                (Some(StepLabel::Family(members)), None) => {
                    let mut all: Vec<OpId> = members.values().flatten().copied().collect();
                    all.sort_unstable();
                    Some(all)
                }
                _ => None,
            };
            if ops.is_none() {
                let name = self.names.name(note.name).to_owned();
                self.error(ModelError::UnknownName {
                    name,
                    at: note.span.into(),
                    help: Some(
                        "`prev` looks for a label that the step itself gives, not one inside a loop or a call"
                            .to_owned(),
                    ),
                });
            }
            found.push(ops.unwrap_or_default());
        }
        for step in &mut self.program.cycle {
            step.resolve_previous(|note| &found[note.index()]);
        }
    }

    /// The labels that the step itself has at its end, with their operations.
    pub(super) fn step_labels(&self, names: Vec<(Symbol, Value)>) -> StepLabels {
        let ops = |label: LabelId| self.last_of_label(label).to_vec();
        names
            .into_iter()
            .filter_map(|(name, value)| match value {
                Value::Label(label) => Some((name, StepLabel::One(ops(label)))),
                Value::Labels(family) => {
                    let members = &self.expansion.families[family as usize].members;
                    let members = members.iter().map(|(index, &label)| (index.clone(), ops(label)));
                    Some((name, StepLabel::Family(members.collect())))
                }
                _ => None,
            })
            .collect()
    }

    /// The operations that a label stands for: the last on each stream, since a stream runs in order.
    pub(super) fn waited_for(&mut self, value: &Value, span: SrcSpan) -> Vec<After> {
        let ops = match value {
            Value::Unknown => return Vec::new(),
            Value::Label(label) => self.last_of_label(*label).to_vec(),
            Value::Labels(family) => self.last_of_family(*family as usize),
            other => {
                self.wrong_type::<()>("a label", other, span);
                return Vec::new();
            }
        };
        // Where many streams are waited for again and again, that is work too.
        if !self.room_for_turns(ops.len() / DEPENDENCIES_PER_TURN, span) {
            return Vec::new();
        }
        ops.into_iter().map(|op| After { op, previous: false, span }).collect()
    }

    fn last_of_label(&self, label: LabelId) -> &[OpId] {
        let data = self.label_data(label);
        data.last.get_or_init(|| {
            let mut last = FxHashMap::default();
            data.ops.clone().for_each(|op| self.note_last(OpId(op), &mut last));
            sorted(&last).into()
        })
    }

    /// All members so far. Those that were there when this was asked last are not gone through again.
    fn last_of_family(&mut self, family: usize) -> Vec<OpId> {
        let Some(known) = self.expansion.families.get_mut(family) else { return Vec::new() };
        let mut last = std::mem::take(&mut known.last);
        let new = known.order[known.counted..].to_vec();
        known.counted = known.order.len();
        for label in new {
            self.last_of_label(label).iter().for_each(|&op| self.note_last(op, &mut last));
        }
        let ops = sorted(&last);
        self.expansion.families[family].last = last;
        ops
    }

    fn note_last(&self, op: OpId, last: &mut FxHashMap<StreamId, OpId>) {
        let stream = self.expansion.step.op(op).stream;
        let slot = last.entry(stream).or_insert(op);
        *slot = (*slot).max(op);
    }
}

fn sorted(last: &FxHashMap<StreamId, OpId>) -> Vec<OpId> {
    let mut ops: Vec<OpId> = last.values().copied().collect();
    ops.sort_unstable();
    ops
}
