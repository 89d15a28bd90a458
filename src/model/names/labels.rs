//! Labels: the operations that they name, and dependencies on them.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::base::{LabelId, OpId, SrcSpan, StreamId, Symbol, ViewId, suggest};
use crate::syntax::ast::{Call, DeclKind, Edge, Expr, ExprKind, LabelName, Name, StmtKind};
use crate::syntax::walk;

use super::callee::GRADIENT;
use super::index::Index;
use super::unknown;
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::expand::{Expansion, PreviousDependency};
use crate::model::program::{After, Label, OpKind, Step};
use crate::model::values::value::Value;

/// Number of dependencies that count as one turn of a loop.
const DEPENDENCIES_PER_TURN: usize = 4;

/// The operations and values that a label refers to, while its iteration is expanded.
#[derive(Debug)]
pub(in crate::model) struct LabelData {
    pub ops: Range<u32>,
    /// The outputs and labels inside a call of a definition; `None` for an operation.
    members: Option<Box<[(Symbol, Value)]>>,
    /// The tensors of a call before and after its arrow; `None` for an operation.
    pub tensors: Option<Box<Tensors>>,
    span: SrcSpan,
}

/// The tensors that a call reads and writes, with the names that they have in the definition.
#[derive(Debug, Default)]
pub(in crate::model) struct Tensors {
    pub inputs: Vec<(Symbol, ViewId)>,
    pub outputs: Vec<(Symbol, ViewId)>,
    /// Number of definitions whose calls are open around the call.
    pub depth: u8,
    /// True if a mistake, which has been reported, leaves some labels unknown.
    pub incomplete: bool,
}

impl LabelData {
    /// Returns the label of a single operation.
    pub fn operation(op: OpId) -> Self {
        LabelData { ops: op.0..op.0 + 1, members: None, tensors: None, span: SrcSpan::default() }
    }

    /// Returns the label with the tensors of a call.
    pub fn with_tensors(self, tensors: Tensors) -> Self {
        LabelData { tensors: Some(tensors.into()), ..self }
    }

    /// True for an operation that belongs to no group.
    pub fn is_operation(&self) -> bool {
        self.members.is_none()
    }

    /// Returns the label of a call that was expanded into these operations. `members` are its outputs and inner labels.
    pub fn call(ops: Range<u32>, members: Vec<(Symbol, Value)>) -> Self {
        LabelData { ops, members: Some(members.into()), tensors: None, span: SrcSpan::default() }
    }
}

/// The labels `f[0]`, `f[1]`, … of a step or a call.
#[derive(Debug, Default)]
pub(in crate::model) struct Family {
    order: Vec<LabelId>,
    /// Index of the first member.
    first: i64,
    /// Number of members with consecutive indices from `first`. Loops mostly create such members, which need no table.
    in_order: usize,
    /// Members outside of the range from `first`, hashed by their index.
    others: HashTable<LabelId>,
    /// The last operations on each stream, of the first `counted` members.
    last: LastOps,
    counted: usize,
}

impl Family {
    fn find(&self, index: &[i64], labels: &[Label]) -> Option<LabelId> {
        if let &[index] = index
            && let Some(place) = index.checked_sub(self.first).and_then(|place| usize::try_from(place).ok())
            && place < self.in_order
        {
            return Some(self.order[place]);
        }
        self.others.find(hash(index), |label| *labels[label.index()].index == *index).copied()
    }

    /// Indices of the first and the last member; `None` if the family has several indices or gaps.
    fn members(&self) -> Option<(i64, i64)> {
        let last = self.first + self.in_order as i64 - 1;
        (self.in_order > 0 && self.in_order == self.order.len()).then_some((self.first, last))
    }

    /// Adds a member. Returns an existing member with the same index; `None` if the index is new.
    fn add(&mut self, label: LabelId, labels: &[Label]) -> Option<LabelId> {
        let index = &labels[label.index()].index;
        let known = self.find(index, labels);
        if let (&[only], true) = (&**index, self.order.is_empty()) {
            self.first = only;
        }
        match **index {
            [only]
                if self.in_order == self.order.len() && only.checked_sub(self.first) == Some(self.in_order as i64) =>
            {
                self.in_order += 1;
            }
            _ if known.is_none() => {
                self.others.insert_unique(hash(index), label, |label| hash(&labels[label.index()].index));
            }
            _ => {}
        }
        self.order.push(label);
        known
    }
}

fn hash(index: &[i64]) -> u64 {
    FxBuildHasher.hash_one(index)
}

/// The last operation on each stream.
#[derive(Debug, Default)]
struct LastOps {
    by_stream: FxHashMap<StreamId, u32>,
}

impl LastOps {
    fn add(&mut self, ops: Range<u32>, step: &Step) {
        for op in ops {
            let slot = self.by_stream.entry(step.ops[op as usize].stream).or_insert(op);
            *slot = (*slot).max(op);
        }
    }

    fn sorted(&self) -> Vec<OpId> {
        let mut ops: Vec<OpId> = self.by_stream.values().copied().map(OpId).collect();
        ops.sort_unstable();
        ops
    }
}

/// The labels of a complete iteration.
pub(in crate::model) type StepLabels = FxHashMap<Symbol, StepLabel>;

/// The operations that a label means in dependencies: the last on each stream.
pub(in crate::model) enum StepLabel {
    One(Vec<OpId>),
    Family(FxHashMap<Index, Vec<OpId>>),
}

/// Help for a missing member of a family. `members` are the first and the last one, if there are no gaps.
fn missing_member(name: &str, given: &[i64], members: Option<(i64, i64)>) -> String {
    match (members, given) {
        _ if given.iter().any(|index| *index < 0) => format!(
            "leave the first turn of the loop out: `after {name}[i - 1] when i > 0`, or \
             `if i == 0 {{ … }} else {{ {name}[i - 1] }}` for an operand"
        ),
        (Some((first, last)), &[given]) if given > last => {
            let there = match first == last {
                true => format!("is `{name}[{first}]` alone"),
                false => format!("are `{name}[{first}]` to `{name}[{last}]`"),
            };
            format!("a label is known below its operation, and above this there {there}: move the operation up")
        }
        (Some((first, _)), &[given]) if given < first => format!(
            "above this the first is `{name}[{first}]`: give `{name}[{given}]` above the loop, as a prefetch needs, or \
             leave this turn out by `when`"
        ),
        _ => format!(
            "a label is known below its operation: move that up, or issue it a turn ahead, with `{name}[0]: …` above \
             the loop and `{name}[i + 1]: …` in it, before what waits for `{name}[i]`"
        ),
    }
}

impl<'a> Analyzer<'a> {
    /// Evaluates the indices after a label's or a phase's name. `None` after an error, which has been reported.
    pub(in crate::model) fn label_index(&mut self, label: &LabelName) -> Option<Index> {
        self.numbers(&label.index)
    }

    fn numbers(&mut self, items: &[Expr]) -> Option<Index> {
        items.iter().map(|item| self.eval_whole(item)).collect()
    }

    /// Creates the label of a call before its body is expanded, as the parent of labels inside. `None` for a call without a label,
    /// or if its index is wrong.
    pub(in crate::model) fn open_label(&mut self, call: &Call) -> Option<LabelId> {
        let label = call.label.as_ref()?;
        let Some(index) = self.label_index(label) else {
            self.declare_unknown_label(call);
            return None;
        };
        let parent = self.expansion.label;
        self.program.labels.push(Label { name: Some(label.name.symbol), index, parent });
        let empty = LabelData::call(0..0, Vec::new());
        self.expansion.labels.push(empty);
        Some(LabelId::from(self.program.labels.len() - 1))
    }

    /// The first member of a family as it is written, such as `f[0]`.
    pub(in crate::model) fn first_label(&self, family: u32) -> String {
        // A family without members has no entry.
        let members = self.expansion.families.get(family as usize);
        let first = members.and_then(|family| family.order.first());
        let label = first.map(|label| &self.program.labels[label.index()]);
        let name = label.and_then(|label| label.name).map_or("f", |name| self.names.name(name));
        let index: Vec<String> = label.iter().flat_map(|label| label.index.iter().map(i64::to_string)).collect();
        format!("{name}[{}]", index.join(", "))
    }

    /// Completes a label and declares its name.
    pub(in crate::model) fn close_label(&mut self, call: &Call, label: LabelId, data: LabelData) {
        let name = call.label.as_ref().expect("only calls with a label open one").name;
        let slot = label.index() - self.expansion.first_label;
        self.expansion.labels[slot] = LabelData { span: name.span, ..data };
        if self.program.labels[label.index()].index.is_empty() {
            self.declare(name, Value::Label(label));
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
                let value = Value::Labels(family);
                let value = if self.bad_names.contains(&(name.span.start as usize)) { Value::Unknown } else { value };
                self.scopes.declare_in_frame(name.symbol, value);
                family
            }
        };
        let family = &mut self.expansion.families[family as usize];
        if let Some(first) = family.add(label, &self.program.labels) {
            let first = self.label_data(first).span;
            let index: Vec<String> = self.program.labels[label.index()].index.iter().map(i64::to_string).collect();
            let name_text = format!("{}[{}]", self.names.name(name.symbol), index.join(", "));
            let help = "each member of a family is given once: choose the index so that every turn has its own";
            self.error(ModelError::LabelTwice { name: name_text, help, at: name.span.into(), first: first.into() });
        }
    }

    /// The only slice that a value names; `None` if it names none or several.
    pub(in crate::model) fn tensor_of(&self, value: &Value) -> Option<ViewId> {
        match value {
            Value::Tensor { view, .. } => Some(*view),
            Value::Label(label) => match self.outputs_of(*label).0.as_slice() {
                [only] => Some(*only),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a label of the step or block that is being expanded.
    pub(in crate::model) fn label_data(&self, label: LabelId) -> &LabelData {
        &self.expansion.labels[label.index() - self.expansion.first_label]
    }

    /// Evaluates `f[l]`.
    pub(in crate::model) fn member(&mut self, family: u32, base: &Expr, items: &[Expr], span: SrcSpan) -> Value {
        let Some(index) = self.numbers(items) else { return Value::Unknown };
        let known = self.expansion.families.get(family as usize);
        match known.and_then(|family| family.find(&index, &self.program.labels)) {
            Some(label) => Value::Label(label),
            None => {
                let given = index;
                let index: Vec<String> = given.iter().map(i64::to_string).collect();
                let name = self.text_of(base);
                let help = missing_member(&name, &given, known.and_then(Family::members));
                let index = format!("[{}]", index.join(", "));
                self.fail_value(ModelError::NoMember { name, index, help, at: span.into() })
            }
        }
    }

    /// Evaluates `f.y`: an output of an operation, or an output or label inside a call.
    pub(in crate::model) fn label_member(&mut self, label: LabelId, base: &Expr, member: Name) -> Value {
        let data = self.label_data(label);
        let span = data.span;
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
                let names = self.output_names(op);
                let wanted = self.names.name(member.symbol);
                if let Some(place) = names.iter().position(|name| *name == wanted) {
                    let view = self.expansion.step.outputs(op)[place];
                    return Value::Tensor { view, family: 0 };
                }
                names.iter().map(|name| (*name).to_owned()).collect()
            }
        };
        let text = self.names.name(member.symbol).to_owned();
        let name = self.text_of(base);
        let help = match known.as_slice() {
            [] => Some("it has no outputs and no labels inside".to_owned()),
            _ if self.labelled_call(span).is_some_and(|call| self.is_gradient(call))
                && suggest::nearest(&text, known.iter().map(String::as_str)).is_none() =>
            {
                Some(format!(
                    "`{name}` has {}; to get `{text}`, name it after the arrow of `{GRADIENT}` too, or leave the arrow out for all gradients",
                    suggest::listed(&known.iter().map(String::as_str).collect::<Vec<_>>())
                ))
            }
            [_] if unknown::is_tensor_member(&text) => Some(unknown::tensor_member(&name, &text)),
            [only] => Some(format!("`{name}` alone means its only output, `{name}.{only}`")),
            _ => suggest::did_you_mean(&text, known.iter().map(String::as_str)),
        };
        self.fail_value(ModelError::UnknownMember { name, member: text, at: member.span.into(), help })
    }

    /// The call whose label has its name at `label`; `None` if there is none.
    fn labelled_call(&self, label: SrcSpan) -> Option<&'a Call> {
        let mut found = None;
        walk::stmts(self.ast, &mut |stmt| {
            if let StmtKind::Call(call) = &stmt.kind
                && call.label.as_ref().is_some_and(|name| name.name.span == label)
            {
                found = Some(call);
            }
        });
        found
    }

    /// True if a call is a gradient.
    fn is_gradient(&self, call: &Call) -> bool {
        matches!(&call.callee[..], [name] if self.names.name(name.symbol) == GRADIENT)
    }

    /// The definition that the call with this label calls, and its first output; `None` if it has none.
    fn first_output(&self, label: SrcSpan) -> Option<(&str, &str)> {
        let [callee] = self.labelled_call(label)?.callee.as_slice() else { return None };
        let DeclKind::Def { signature, .. } = &self.defs.get(&callee.symbol)?.kind else { return None };
        let output = signature.outputs.first()?;
        Some((self.names.name(callee.symbol), self.names.name(output.name.symbol)))
    }

    /// Returns the slice of a value used as an operand: a tensor, or the only output of a label. `None` after an error, which has
    /// been reported.
    pub(in crate::model) fn view_of(&mut self, value: &Value, span: SrcSpan) -> Option<ViewId> {
        match value {
            Value::Unknown => None,
            Value::Tensor { view, .. } => Some(*view),
            Value::Label(_) => self.single_output(value, span),
            other => self.wrong_type("a tensor", other, span),
        }
    }

    /// Names of the outputs of an operation; none for a marker.
    fn output_names(&self, op: OpId) -> Vec<&str> {
        match self.expansion.step.ops.get(op.index()).map(|op| op.kind) {
            Some(OpKind::Run(spec)) => self.program.spec(spec).output_names(),
            _ => Vec::new(),
        }
    }

    /// The outputs of an operation or a call, with their names.
    fn outputs_of(&self, label: LabelId) -> (Vec<ViewId>, Vec<String>) {
        let data = self.label_data(label);
        match &data.members {
            Some(members) => members
                .iter()
                .filter_map(|(name, value)| match value {
                    Value::Tensor { view, .. } => Some((*view, self.names.name(*name).to_owned())),
                    _ => None,
                })
                .unzip(),
            None => {
                let op = OpId(data.ops.start);
                let names = self.output_names(op);
                let outputs = self.expansion.step.outputs(op).to_vec();
                (outputs, names.iter().map(|name| (*name).to_owned()).collect())
            }
        }
    }

    /// Returns the only output of a label. `None` after an error, which has been reported, and for a value that is no label.
    pub(in crate::model) fn single_output(&mut self, value: &Value, span: SrcSpan) -> Option<ViewId> {
        let Value::Label(label) = value else { return None };
        let data = self.label_data(*label);
        let label_at = data.span;
        if data.members.iter().flatten().any(|(_, value)| matches!(value, Value::Unknown)) {
            return None;
        }
        let (outputs, names) = self.outputs_of(*label);
        match outputs.as_slice() {
            [only] => Some(*only),
            // A statement that could not be parsed may write the output.
            [] if !self.ast.unparsed.is_empty() => None,
            several => {
                let (found, help) = match several.len() {
                    0 => {
                        let help = match self.first_output(label_at) {
                            Some((of, output)) => {
                                format!(
                                    "`{of}` never writes its output `{output}`: end an operation in it with `-> {output}`"
                                )
                            }
                            None => "read something that has an output: an operation that writes, or a call of a \
                                     `def f(x -> y) { … }`"
                                .to_owned(),
                        };
                        ("a label without an output".to_owned(), Some(help))
                    }
                    count => {
                        let names: Vec<String> = names.iter().map(|name| format!("`.{name}`")).collect();
                        let help = format!("write after it which output is meant: {}", names.join(" or "));
                        (format!("a label with {count} outputs"), Some(help))
                    }
                };
                self.fail(ModelError::WrongType { expected: "a tensor".to_owned(), found, at: span.into(), help })
            }
        }
    }

    // --- Dependencies -----------------------------------------------------------------------------------------

    /// Resolves the dependencies of `after …`, except those whose `when` is false.
    pub(in crate::model) fn edges(&mut self, edges: &[Edge]) -> Vec<After> {
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

    /// Records `prev(label)`, to be resolved when the labels of all iterations are known.
    fn previous(&mut self, path: &Expr, ops: &mut Vec<After>) {
        if self.iteration.is_none() {
            self.error(ModelError::OutsideStep { name: "prev(…)".to_owned(), more: "", at: path.span.into() });
            return;
        }
        let (name, index) = match &path.kind {
            ExprKind::Name(symbol) => (Some(*symbol), None),
            ExprKind::Index { base, items } => {
                let Some(index) = self.numbers(items) else { return };
                (base.as_name(), Some(index))
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
        self.expansion.previous.push(PreviousDependency { step, name, index, span: path.span });
        let note = OpId(self.expansion.previous.len() as u32 - 1);
        ops.push(After { op: note, previous: true, span: path.span });
    }

    /// Replaces each `prev(…)` by operations of the previous iteration.
    pub(in crate::model) fn resolve_previous(&mut self, labels: &[StepLabels]) {
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

    /// The step's labels at its end, with their operations, if a `prev(…)` names them.
    pub(in crate::model) fn step_labels(&mut self, names: Vec<(Symbol, Value)>) -> StepLabels {
        let named = |name: Symbol| self.expansion.previous_names.contains(&name);
        let names: Vec<(Symbol, Value)> = names.into_iter().filter(|(name, _)| named(*name)).collect();
        let mut found = StepLabels::default();
        for (name, value) in names {
            let label = match value {
                Value::Label(label) => StepLabel::One(self.last_of(label)),
                Value::Labels(family) => {
                    let members = self.expansion.families[family as usize].order.clone();
                    let index = |label: LabelId| self.program.labels[label.index()].index.clone();
                    let indices: Vec<Index> = members.iter().map(|&label| index(label)).collect();
                    let ops = members.into_iter().map(|label| self.last_of(label));
                    StepLabel::Family(indices.into_iter().zip(ops).collect())
                }
                _ => continue,
            };
            found.insert(name, label);
        }
        found
    }

    /// The operations that a label means: the last on each stream, since a stream executes in order.
    pub(in crate::model) fn waited_for(&mut self, value: &Value, span: SrcSpan) -> Vec<After> {
        let ops = match value {
            Value::Unknown => return Vec::new(),
            Value::Label(label) => self.last_of(*label),
            Value::Labels(family) => self.last_of_family(*family),
            other => {
                self.wrong_type::<()>("a label", other, span);
                return Vec::new();
            }
        };
        // Waiting for many streams often counts against the limit too.
        if !self.room_for_turns(ops.len() / DEPENDENCIES_PER_TURN, span) {
            return Vec::new();
        }
        ops.into_iter().map(|op| After { op, previous: false, span }).collect()
    }

    /// Returns the last operations of a label. The result is cached for calls, which may have many operations.
    fn last_of(&mut self, label: LabelId) -> Vec<OpId> {
        let ops = self.label_data(label).ops.clone();
        if ops.len() <= 1 {
            return ops.map(OpId).collect();
        }
        let expansion = &mut self.expansion;
        let known = expansion.last_of.entry(label).or_insert_with(|| {
            let mut last = LastOps::default();
            last.add(ops, &expansion.step);
            last.sorted()
        });
        known.clone()
    }

    /// Returns the last operations of a family's members. Only members created since the last call are added to the result of
    /// that call.
    fn last_of_family(&mut self, family: u32) -> Vec<OpId> {
        let Expansion { families, labels, first_label, step, .. } = &mut self.expansion;
        let Some(family) = families.get_mut(family as usize) else { return Vec::new() };
        for label in &family.order[family.counted..] {
            family.last.add(labels[label.index() - *first_label].ops.clone(), step);
        }
        family.counted = family.order.len();
        family.last.sorted()
    }
}
