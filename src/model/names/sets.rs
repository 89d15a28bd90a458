//! Sets of operations, selected by stream, label or phase.

use crate::base::{StreamId, Symbol, suggest};
use crate::syntax::ast::*;
use crate::syntax::written;

use super::declared::stream_name;
use super::index::Index;
use crate::model::analyzer::Analyzer;
use crate::model::error::{ModelError, SliceError};
use crate::model::program::{Label, Op, Program};
use crate::model::values::value::Value;

/// A set of operations: the union of its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct OpSet {
    pub parts: Vec<SetPart>,
    /// The set in source form.
    pub text: String,
}

/// A part of a set: the operations on some streams, under a label, or in a phase.
#[derive(Clone, Debug, PartialEq)]
pub enum SetPart {
    /// Consecutive streams, starting with `first`.
    Streams {
        first: u32,
        count: u32,
    },
    /// A label after the labels that enclose it, the outermost first: `f[0].attended`.
    Label(Vec<Member>),
    Phase(Member),
}

/// A label or a phase, or a member of a family of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    name: Symbol,
    index: Option<Box<[i64]>>,
}

/// Maximum number of members that a help lists.
const SHOWN: usize = 8;

impl OpSet {
    /// True if the set contains an operation of the program.
    pub fn contains(&self, program: &Program, op: &Op) -> bool {
        self.parts.iter().any(|part| match part {
            SetPart::Streams { first, count } => (*first..first + count).contains(&op.stream.0),
            SetPart::Label(path) => is_within(&program.labels, op.label.index(), path),
            SetPart::Phase(phase) => is_within(&program.phases, op.phase.index(), std::slice::from_ref(phase)),
        })
    }
}

/// True if a label, or an enclosing one, is the last member of the path, and labels around it are the others.
fn is_within(labels: &[Label], mut at: usize, path: &[Member]) -> bool {
    let Some((last, outer)) = path.split_last() else { return true };
    while let Some(name) = labels[at].name {
        let Label { index, parent, .. } = &labels[at];
        let is_last = name == last.name && last.index.as_ref().is_none_or(|of| **of == **index);
        at = parent.index();
        if is_last && is_within(labels, at, outer) {
            return true;
        }
    }
    false
}

fn unknown_set(name: String, arg: &Expr, help: String) -> ModelError {
    ModelError::UnknownSet { name, at: arg.span.into(), help }
}

/// A name, with the indices written after it.
type NameIndices<'e> = (Symbol, Option<&'e [Expr]>);

/// The names in `f[0].attended`, each with its indices; `None` for another expression.
fn path(expr: &Expr) -> Option<Vec<NameIndices<'_>>> {
    match &expr.kind {
        ExprKind::Name(symbol) => Some(vec![(*symbol, None)]),
        ExprKind::Field { base, name } => {
            let mut path = path(base)?;
            path.push((name.symbol, None));
            Some(path)
        }
        ExprKind::Index { base, items } => {
            let mut path = path(base)?;
            let (_, index) = path.last_mut().filter(|(_, index)| index.is_none())?;
            *index = Some(items);
            Some(path)
        }
        _ => None,
    }
}

impl Analyzer<'_> {
    /// Evaluates a set of streams, families, labels and phases. `None` after an error, which has been reported.
    pub(in crate::model) fn set(&mut self, args: &[Expr]) -> Option<OpSet> {
        let parts: Vec<Option<(SetPart, String)>> = args.iter().map(|arg| self.named_part(arg)).collect();
        let (parts, texts): (Vec<SetPart>, Vec<String>) =
            parts.into_iter().collect::<Option<Vec<_>>>()?.into_iter().unzip();
        Some(OpSet { parts, text: texts.join(", ") })
    }

    /// Evaluates a part of a set, and returns it with its text.
    fn named_part(&mut self, arg: &Expr) -> Option<(SetPart, String)> {
        let Some(path) = path(arg) else {
            let (name, help) = match &arg.kind {
                ExprKind::Text(text) => (text.clone(), format!("write the name without quotes: `{text}`")),
                ExprKind::List(_) => {
                    let list = written(arg, &self.names);
                    let bare = list.trim_start_matches('[').trim_end_matches(']').to_owned();
                    (list, format!("write the names without brackets: `{bare}`"))
                }
                _ => (written(arg, &self.names), "write a name, or a member: `time(f)`, `time(f[0])`".to_owned()),
            };
            return self.fail(unknown_set(name, arg, help));
        };
        let mut whole: Option<SetPart> = None;
        let mut names = Vec::new();
        for (name, items) in path {
            let index = match items {
                Some(items) => Some(items.iter().map(|item| self.eval_whole(item)).collect::<Option<Vec<i64>>>()?),
                None => None,
            };
            let index_text = index.as_ref().map(|index| format!("{index:?}")).unwrap_or_default();
            names.push(format!("{}{index_text}", self.names.name(name)));
            let part = self.set_part(name, index, arg)?;
            whole = Some(match (whole, part) {
                (None, part) => part,
                (Some(SetPart::Label(outer)), SetPart::Label(inner)) => SetPart::Label([outer, inner].concat()),
                _ => {
                    let help = "before the point is the label of a call: `f.g` is `g` inside `f`".to_owned();
                    return self.fail(unknown_set(written(arg, &self.names), arg, help));
                }
            });
        }
        Some((whole?, names.join(".")))
    }

    fn set_part(&mut self, name: Symbol, index: Option<Vec<i64>>, arg: &Expr) -> Option<SetPart> {
        if let Some(&Value::Stream { first, count, .. }) = self.scopes.get(name) {
            return match (index.as_deref(), count) {
                (Some(_), None) => {
                    self.eval(arg);
                    None
                }
                (None, count) => Some(SetPart::Streams { first, count: count.unwrap_or(1) }),
                (Some(&[member]), Some(count)) if (0..i64::from(count)).contains(&member) => {
                    Some(SetPart::Streams { first: first + member as u32, count: 1 })
                }
                (Some(index), Some(count)) => {
                    let name = self.names.name(name).to_owned();
                    let index = index.first().copied().unwrap_or(0);
                    let (size, last, at) = (u64::from(count), i64::from(count) - 1, arg.span.into());
                    self.fail(SliceError::IndexOutOfRange { name, index, size, last, at })
                }
            };
        }
        if name == self.builtins.main
            && let Some(main) = self.program.streams.iter().position(|stream| stream.family == name)
        {
            return Some(SetPart::Streams { first: StreamId::from(main).0, count: 1 });
        }
        if matches!(self.scopes.get(name), Some(Value::Unknown)) {
            return None;
        }
        let is_label = self.sets.0.contains_key(&name);
        if is_label || self.sets.1.contains_key(&name) {
            if let Some(index) = &index {
                self.check_member(name, is_label, index, arg)?;
            }
            let member = Member { name, index: index.map(Vec::into_boxed_slice) };
            return Some(if is_label { SetPart::Label(vec![member]) } else { SetPart::Phase(member) });
        }
        if !self.has_room_for_errors() {
            return None;
        }
        let text = self.names.name(name).to_owned();
        let streams = self.ast.decls.iter().filter_map(stream_name);
        let (labels, phases) = &self.sets;
        let known: Vec<Symbol> = labels.keys().chain(phases.keys()).copied().chain(streams).collect();
        let known: Vec<&str> = known.iter().map(|symbol| self.names.name(*symbol)).collect();
        let help = suggest::did_you_mean(&text, known.iter().copied())
            .unwrap_or_else(|| match self.scopes.get(name) {
                Some(Value::Tensor { .. }) => format!(
                    "figures are of operations, and `{text}` is a buffer: label the operation that uses it, `f: …`, and write `f`"
                ),
                _ if ["step", "iteration"].contains(&text.as_str()) => "a figure without a set is of the whole iteration: `time`".to_owned(),
                _ => format!("label an operation of the step: `{text}: nop()`"),
            });
        self.fail(unknown_set(text, arg, help))
    }

    /// Fails if a label or a phase cannot have a member with this index. A member that a condition, another iteration or another
    /// rank may have counts as there.
    fn check_member(&mut self, name: Symbol, is_label: bool, index: &[i64], arg: &Expr) -> Option<()> {
        let are_alike = self.slots == Some(1) && self.program.world == 1;
        let (set, labels) = match is_label {
            true => (self.sets.0.get_mut(&name)?, &self.program.labels),
            false => (self.sets.1.get_mut(&name)?, &self.program.phases),
        };
        let text = self.names.name(name);
        let help = if !set.indices.contains(&index.len()) {
            match set.indices.last() {
                Some(&count) if count > 0 => {
                    format!(
                        "its members have {}",
                        if count == 1 { "one index".to_owned() } else { format!("{count} indices") }
                    )
                }
                _ => format!("`{text}` has no members: write `{text}`"),
            }
        } else if are_alike && !set.is_conditional {
            let all = labels.iter().filter(|label| label.name == Some(name)).map(|label| label.index.clone());
            let members = set.members.get_or_insert_with(|| all.collect());
            if members.contains(index) {
                return Some(());
            }
            let mut sorted: Vec<&Index> = members.iter().collect();
            sorted.sort_unstable_by_key(|index| index.to_vec());
            let shown = |index: &&Index| {
                format!("`{text}[{}]`", index.iter().map(i64::to_string).collect::<Vec<_>>().join(", "))
            };
            match sorted.as_slice() {
                [] => format!("no loop of the step makes a member of `{text}`"),
                [only] => format!("its only member is {}", shown(only)),
                [first, .., last] if first.len() == 1 && last[0] - first[0] + 1 == sorted.len() as i64 => {
                    format!("its members are {} to {}", shown(first), shown(last))
                }
                all => {
                    let more = if all.len() > SHOWN { ", …" } else { "" };
                    format!(
                        "its members are {}{more}",
                        all.iter().take(SHOWN).map(shown).collect::<Vec<_>>().join(", ")
                    )
                }
            }
        } else {
            return Some(());
        };
        let error = unknown_set(self.text_of(arg), arg, help);
        self.fail(error)
    }
}
