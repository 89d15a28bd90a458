//! Suggests the text that declares a missing dependency between two operations.
//!
//! In a loop over several buffers, the operation to wait for is usually not in the previous loop iteration: it is the
//! one that used the same buffer last. So the loop iteration is inferred from the colliding accesses.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{LabelId, OpId, SrcSpan, StreamId, Symbol, TurnId};
use crate::model::{Program, Step, TurnOrigin};

use super::accesses::IssuedOp;
use super::affine::{Affine, fit};

/// Two operations, as issued in their iterations, that access the same memory without a dependency between them.
#[derive(Clone, Copy, Debug)]
pub struct Collision {
    pub first: IssuedOp,
    pub second: IssuedOp,
}

impl Collision {
    /// Number of iterations between the two operations.
    fn before(&self) -> u32 {
        self.second.iteration() - self.first.iteration()
    }
}

/// A statement of the innermost block that contains both operations of a collision: one of these operations, or a call
/// of the definition that contains it.
#[derive(Clone, Debug)]
struct Statement {
    op: OpId,
    span: SrcSpan,
    /// Name of the operation or of the called definition.
    callee: String,
    /// True if the statement is a call of a definition.
    is_call: bool,
    /// The label of the statement; `None` without one.
    label: Option<LabelId>,
    /// The loop iterations around the statement within that block, outermost first.
    loops: Vec<TurnId>,
}

/// Rule by which the members of a family of labels are numbered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Numbering {
    /// Uses the index that the label has in the text.
    Own,
    /// Uses the variables of the surrounding loops.
    Variables,
    /// Uses a single number that counts all loop iterations.
    Count,
}

/// Collisions of two statements: all within one iteration, or all between an iteration and the next one.
struct CollisionGroup {
    /// Number of iterations between the two operations of each pair.
    before: u32,
    pairs: Vec<(Statement, Statement)>,
    /// The operations that an iteration makes from the first statement.
    firsts: Vec<Statement>,
    /// The operations that an iteration makes from the second statement.
    seconds: Vec<Statement>,
    /// Streams of the operations of the second statement.
    streams: Vec<StreamId>,
    /// The loop iterations around the second statement, by the values of their variables. Includes those in which a
    /// condition keeps the statement from running.
    turns: FxHashSet<Vec<i64>>,
}

/// The label of a statement for which others must wait.
struct Naming {
    name: String,
    /// Suggestion to add or change the label; `None` if the text has the label already.
    give: Option<String>,
    /// Numbering of the label's index; `None` if the label has no index.
    numbering: Option<Numbering>,
}

/// Suggests, for each race, the text that makes the second statement wait for the first one. A race is given by its
/// collisions.
pub fn remedies(program: &Program, races: &[&[Collision]]) -> Vec<String> {
    let search = RemedySearch { program };
    let groups: Vec<Vec<CollisionGroup>> = races.iter().map(|collisions| search.groups(collisions)).collect();
    // A statement gets one label for all waiters.
    let mut waited_for: Vec<(SrcSpan, Vec<&CollisionGroup>)> = Vec::new();
    for group in groups.iter().flatten() {
        match waited_for.iter_mut().find(|(span, _)| *span == group.first().span) {
            Some((_, known)) => known.push(group),
            None => waited_for.push((group.first().span, vec![group])),
        }
    }
    let mut names = FxHashMap::default();
    let mut new_names = (1..).map(|number| if number == 1 { "done".to_owned() } else { format!("done_{number}") });
    for (span, groups) in waited_for {
        let mut free = || new_names.find(|name| program.names.get(name).is_none()).expect("there are enough numbers");
        names.insert(span, search.naming(&groups, &mut free));
    }
    let remedies = races.iter().zip(&groups).map(|(collisions, groups)| {
        let too_far = collisions.iter().map(Collision::before).filter(|before| *before > 1).min();
        let depth = too_far.map(|before| {
            format!("lower `depth` to {before}, or let the iterations wait for each other: `sync: iteration`")
        });
        let parts: Vec<String> = search.waits(groups, &names).into_iter().chain(depth).collect();
        parts.join("; ")
    });
    remedies.collect()
}

/// Searches the text of a program for the statements of races and a place for what orders them.
struct RemedySearch<'a> {
    program: &'a Program,
}

impl<'a> RemedySearch<'a> {
    fn step(&self, at: IssuedOp) -> &'a Step {
        &self.program.cycle[at.iteration() as usize % self.program.cycle.len()]
    }

    // --- Collisions -----------------------------------------------------------------------------------------------

    /// Groups the collisions of a race that a wait can resolve. On one stream, a wait for the last operation suffices.
    fn groups(&self, collisions: &[Collision]) -> Vec<CollisionGroup> {
        let mut last: FxHashMap<(IssuedOp, u32, StreamId), Collision> = FxHashMap::default();
        for collision in collisions {
            let stream = self.step(collision.first).op(collision.first.op).stream;
            let kept = last.entry((collision.second, collision.before(), stream)).or_insert(*collision);
            kept.first = kept.first.max(collision.first);
        }
        let mut kept: Vec<Collision> = last.into_values().collect();
        kept.sort_unstable_by_key(|collision| (collision.second, collision.first));
        let near = [0, 1].map(|before| kept.iter().filter(|one| one.before() == before).copied().collect::<Vec<_>>());
        let split = near.iter().flat_map(|collisions| self.by_statements(collisions));
        let mut groups: Vec<CollisionGroup> = split.map(|same| self.group(&same)).collect();
        groups.sort_by_key(|group| (group.first().span, group.second().span));
        groups
    }

    /// Divides collisions by the statements that collide, since the operations of one definition may belong to several
    /// calls of it.
    fn by_statements(&self, collisions: &[Collision]) -> Vec<Vec<Collision>> {
        let mut split: Vec<Vec<Collision>> = Vec::new();
        let mut places = FxHashMap::default();
        for collision in collisions {
            let depth = self.depth(collision);
            let spans = [collision.first, collision.second].map(|at| self.statement(self.step(at), at.op, depth).span);
            let place = *places.entry(spans).or_insert(split.len());
            match split.get_mut(place) {
                Some(same) => same.push(*collision),
                None => split.push(vec![*collision]),
            }
        }
        split
    }

    fn group(&self, collisions: &[Collision]) -> CollisionGroup {
        let Collision { first, second } = collisions[0];
        let depth = self.depth(&collisions[0]);
        let frame = |at: IssuedOp, op: OpId| {
            let chain = self.program.turns.enclosing(self.step(at).turn(op));
            chain.get(..depth).map(<[TurnId]>::to_vec)
        };
        let own = frame(second, second.op);
        // Calls of the same definition have the same collisions, so one call suffices.
        let pairs = collisions.iter().filter(|collision| frame(collision.second, collision.second.op) == own);
        let pairs = pairs.map(|collision| {
            let of = |at: IssuedOp| self.statement(self.step(at), at.op, depth);
            (of(collision.first), of(collision.second))
        });
        let all = |at: IssuedOp| -> Vec<Statement> {
            let step = self.step(at);
            let span = step.op(at.op).span;
            let same = step.ids().filter(|&op| step.op(op).span == span && frame(at, op) == own);
            let whole = self.statement(step, at.op, depth).span;
            same.map(|op| self.statement(step, op, depth)).filter(|statement| statement.span == whole).collect()
        };
        let seconds = all(second);
        let step = self.step(second);
        let streams = seconds.iter().map(|second| step.op(second.op).stream).collect();
        let turns = self.program.turns.sibling_values(seconds.last().and_then(|second| second.loops.last().copied()));
        CollisionGroup {
            before: collisions[0].before(),
            pairs: pairs.collect(),
            firsts: all(first),
            seconds,
            streams,
            turns,
        }
    }

    /// Number of the enclosing loop iterations and calls of an operation, up to the innermost call that contains both
    /// operations. Across iterations it is 0, since only labels of the step itself can be named.
    fn depth(&self, collision: &Collision) -> usize {
        if collision.before() > 0 {
            return 0;
        }
        let turns = &self.program.turns;
        let around = |at: IssuedOp| turns.enclosing(self.step(at).turn(at.op));
        let (first, second) = (around(collision.first), around(collision.second));
        let common = first.iter().zip(&second).take_while(|(a, b)| a == b).map(|(turn, _)| *turn);
        let is_call = |turn: &TurnId| matches!(turns.get(*turn).origin, TurnOrigin::Call { .. });
        common.enumerate().filter(|(_, turn)| is_call(turn)).map(|(place, _)| place + 1).last().unwrap_or(0)
    }

    /// Returns the statement that contains an operation, in the block at this depth.
    fn statement(&self, step: &Step, op: OpId, depth: usize) -> Statement {
        let turns = &self.program.turns;
        let chain = turns.enclosing(step.turn(op));
        let outer = match chain[..depth].last().map(|turn| turns.get(*turn).origin) {
            Some(TurnOrigin::Call { label, .. }) => label,
            _ => LabelId(0),
        };
        let label_inside = |label: LabelId| (label != outer).then_some(label);
        let mut loops = Vec::new();
        for &turn in &chain[depth..] {
            match turns.get(turn).origin {
                TurnOrigin::Loop { .. } => loops.push(turn),
                TurnOrigin::Call { definition, span, label } => {
                    let callee = self.program.names.name(definition).to_owned();
                    return Statement { op, span, callee, is_call: true, label: label_inside(label), loops };
                }
            }
        }
        let found = step.op(op);
        let callee = self.program.op_name(found).to_owned();
        Statement { op, span: found.span, callee, is_call: false, label: label_inside(found.label), loops }
    }

    /// Variables of the loops around a statement, outermost first, each with its value; `None` for a value that is not
    /// a whole number.
    fn variables(&self, statement: &Statement) -> Vec<(Symbol, Option<i64>)> {
        let loops = statement.loops.iter().filter_map(|turn| match self.program.turns.get(*turn).origin {
            TurnOrigin::Loop { variable, value, .. } => Some((variable, value)),
            TurnOrigin::Call { .. } => None,
        });
        loops.collect()
    }

    /// Names of the variables of the loops around a statement, outermost first.
    fn names(&self, statement: &Statement) -> Vec<&'a str> {
        self.variables(statement).into_iter().map(|(variable, _)| self.program.names.name(variable)).collect()
    }

    /// Values of the variables of the loops around a statement; `None` if one of them is unknown.
    fn values(&self, statement: &Statement) -> Option<Vec<i64>> {
        self.variables(statement).into_iter().map(|(_, value)| value).collect()
    }

    // --- Labels ---------------------------------------------------------------------------------------------------

    fn index(&self, statement: &Statement) -> &[i64] {
        statement.label.map_or(&[], |label| &self.program.labels[label.index()].index)
    }

    /// Returns the label for the first statement of these groups. `free` returns an unused name.
    fn naming(&self, groups: &[&CollisionGroup], free: &mut dyn FnMut() -> String) -> Naming {
        let first = groups[0].first();
        let label_name = first.label.and_then(|label| self.program.labels[label.index()].name);
        let label_name = label_name.map(|name| self.program.names.name(name).to_owned());
        let (is_family, is_new) = (!self.index(first).is_empty(), label_name.is_none());
        let name = label_name.unwrap_or_else(free);
        let write = |index: &str| {
            let what = if first.is_call { "the call" } else { "the first" };
            match is_new {
                true => format!("name {what}, `{name}{index}: {}(…)`", first.callee),
                false => format!("give `{name}` an index, `{name}{index}: {}(…)`", first.callee),
            }
        };
        let plain = first.loops.is_empty() || groups.iter().all(|group| group.precedes_in_same_iteration());
        if plain && !is_family {
            let give = is_new.then(|| write(""));
            return Naming { name, give, numbering: None };
        }
        let preferred = if is_family { Numbering::Own } else { Numbering::Variables };
        let fits = |numbering| groups.iter().all(|group| self.member(numbering, group, "").is_some());
        let count = self.count(groups[0]).filter(|_| !fits(preferred) && fits(Numbering::Count));
        let (numbering, give) = match (count, is_family) {
            (Some(count), _) => (Numbering::Count, Some(write(&format!("[{count}]")))),
            (None, true) => (Numbering::Own, None),
            (None, false) => (Numbering::Variables, Some(write(&format!("[{}]", self.names(first).join(", "))))),
        };
        Naming { name, give, numbering: Some(numbering) }
    }

    /// The number of the first statement's loop iteration, counted from 0, as an expression in the loop variables;
    /// `None` if it is no affine function of them.
    fn count(&self, group: &CollisionGroup) -> Option<String> {
        let points = group.firsts.iter().zip(0..).map(|(first, place)| Some((self.values(first)?, place)));
        let count = fit(&points.collect::<Option<Vec<_>>>()?, None)?;
        Some(count.text(&self.names(group.first())))
    }

    /// Returns the index of the first statement's label under a numbering; `None` if a loop variable has no known value
    /// there.
    fn numbers(&self, numbering: Numbering, group: &CollisionGroup, first: &Statement) -> Option<Vec<i64>> {
        match numbering {
            Numbering::Own => Some(self.index(first).to_vec()),
            Numbering::Variables => self.values(first),
            Numbering::Count => {
                let index = group.firsts.binary_search_by_key(&first.op, |other| other.op).ok()?;
                Some(vec![index as i64])
            }
        }
    }

    // --- Waits ----------------------------------------------------------------------------------------------------

    /// Returns the suggested waits for the groups of one race: a single one, unless the groups have different
    /// statements.
    fn waits(&self, groups: &[CollisionGroup], names: &FxHashMap<SrcSpan, Naming>) -> Vec<String> {
        let spans_of = |group: &CollisionGroup| (group.first().span, group.second().span);
        let waits = groups.chunk_by(|a, b| spans_of(a) == spans_of(b)).map(|groups| {
            let (first, second) = (groups[0].first(), groups[0].second());
            let naming = &names[&first.span];
            let edges: Vec<String> = groups.iter().map(|group| self.edge(naming, group)).collect();
            let edges = edges.join(", ");
            let stream = groups[0].streams[0];
            let mut write = match groups.iter().flat_map(|group| &group.streams).all(|other| *other == stream) {
                true => format!("write `on {} after {edges} {{ … }}`", self.program.streams[stream.index()].name),
                false => format!("let the block of the second wait: `after {edges}`"),
            };
            if second.is_call {
                write += &format!(" around `{}(…)`", second.callee);
            }
            naming.give.as_ref().map_or(write.clone(), |give| format!("{give}, and {write}"))
        });
        waits.collect()
    }

    /// Returns the text to write after the word `after`: one member of a family if a rule determines it, otherwise the
    /// whole family.
    fn edge(&self, naming: &Naming, group: &CollisionGroup) -> String {
        let member = naming.numbering.and_then(|numbering| self.member(numbering, group, &naming.name));
        let (label, guards) = member.unwrap_or((naming.name.clone(), Vec::new()));
        let label = if group.before > 0 { format!("prev({label})") } else { label };
        if guards.is_empty() { label } else { format!("{label} when {}", guards.join(" and ")) }
    }

    /// Returns the member of the family `name` for which the second statement must wait, as an expression in its loop
    /// variables, and the conditions under which the member exists; `None` if no rule fits all collisions.
    fn member(&self, numbering: Numbering, group: &CollisionGroup, name: &str) -> Option<(String, Vec<String>)> {
        let names = self.names(group.second());
        if names.is_empty() {
            return None;
        }
        let pairs = group.pairs.iter().map(|(first, second)| {
            let same = self.names(second) == names;
            Some((self.values(second).filter(|_| same)?, self.numbers(numbering, group, first)?))
        });
        let pairs: Vec<(Vec<i64>, Vec<i64>)> = pairs.collect::<Option<_>>()?;
        let dims = 0..pairs[0].1.len();
        let rules = dims.map(|dim| self.rule(numbering, group, &names, &pairs, dim));
        let rules: Vec<Affine> = rules.collect::<Option<_>>()?;
        let mut members = FxHashMap::default();
        for first in &group.firsts {
            members.insert(self.numbers(numbering, group, first)?, first.op);
        }
        let mut seconds = FxHashMap::default();
        for second in &group.seconds {
            seconds.insert(self.values(second)?, second.op);
        }
        let guards = guards(&rules, &members, &group.turns, &names)?;
        let guarded = |turn: &&Vec<i64>| guards.iter().all(|guard| guard.holds(turn));
        let given = group.turns.iter().filter(guarded).all(|turn| {
            let index: Vec<i64> = rules.iter().map(|rule| rule.of(turn)).collect();
            // A statement cannot wait for a later operation or for one that does not run.
            let first = members.get(&index);
            first.is_some_and(|first| group.before > 0 || seconds.get(turn).is_none_or(|second| first < second))
        });
        let index: Vec<String> = rules.iter().map(|rule| rule.text(&names)).collect();
        let guards = guards.into_iter().map(|guard| guard.text).collect();
        given.then(|| (format!("{name}[{}]", index.join(", ")), guards))
    }

    /// Finds the affine rule by which an index of the first statement depends on the loop variables of the second one;
    /// `None` if there is none.
    fn rule(
        &self,
        numbering: Numbering,
        group: &CollisionGroup,
        names: &[&str],
        pairs: &[(Vec<i64>, Vec<i64>)],
        dim: usize,
    ) -> Option<Affine> {
        // If both are in the same loops, the index usually changes like that of the first statement.
        let alike = self.names(group.first()) == names;
        let own = group
            .firsts
            .iter()
            .filter(|_| alike)
            .map(|first| Some((self.values(first)?, *self.numbers(numbering, group, first)?.get(dim)?)));
        let own: Vec<(Vec<i64>, i64)> = own.collect::<Option<_>>().unwrap_or_default();
        let points: Vec<(Vec<i64>, i64)> = pairs.iter().map(|(turn, index)| (turn.clone(), index[dim])).collect();
        fit(&points, fit(&own, None).as_ref())
    }
}

impl CollisionGroup {
    fn first(&self) -> &Statement {
        &self.pairs[0].0
    }

    fn second(&self) -> &Statement {
        &self.pairs[0].1
    }

    /// True if the first statement precedes the second one in the same iteration of all surrounding loops.
    fn precedes_in_same_iteration(&self) -> bool {
        let together = |(first, second): &(Statement, Statement)| {
            second.loops.starts_with(&first.loops) && first.span <= second.span
        };
        self.before == 0 && self.pairs.iter().all(together)
    }
}

/// A condition on loop variables that excludes some loop iterations.
struct Guard {
    rule: Affine,
    least: i64,
    most: i64,
    text: String,
}

impl Guard {
    fn holds(&self, turn: &[i64]) -> bool {
        (self.least..=self.most).contains(&self.rule.of(turn))
    }
}

/// Returns the conditions on loop variables under which each index is that of a member; `None` if there are no members.
fn guards(
    rules: &[Affine],
    members: &FxHashMap<Vec<i64>, OpId>,
    turns: &FxHashSet<Vec<i64>>,
    names: &[&str],
) -> Option<Vec<Guard>> {
    let mut guards = Vec::new();
    for (dim, rule) in rules.iter().enumerate() {
        let least = members.keys().map(|index| index[dim]).min()?;
        let most = members.keys().map(|index| index[dim]).max()?;
        let (text, constant) = (rule.without_constant().text(names), rule.constant);
        if turns.iter().any(|turn| rule.of(turn) < least) {
            let text = format!("{text} > {}", least.saturating_sub(constant).saturating_sub(1));
            guards.push(Guard { rule: rule.clone(), least, most: i64::MAX, text });
        }
        if turns.iter().any(|turn| rule.of(turn) > most) {
            let text = format!("{text} < {}", most.saturating_sub(constant).saturating_add(1));
            guards.push(Guard { rule: rule.clone(), least: i64::MIN, most, text });
        }
    }
    Some(guards)
}
