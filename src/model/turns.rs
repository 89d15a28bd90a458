//! Loop turns and calls that contain an operation.

use rustc_hash::FxHashSet;

use crate::base::{LabelId, SrcSpan, Symbol, TurnId};

/// A turn of a loop, or a call of a definition.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The enclosing turn; 0 is the step itself.
    pub outer: TurnId,
    pub origin: TurnOrigin,
}

/// The loop or the call that a turn belongs to.
#[derive(Clone, Copy, Debug)]
pub enum TurnOrigin {
    Loop {
        /// Location of the loop.
        span: SrcSpan,
        variable: Symbol,
        /// The variable's value; `None` if it is not a plain whole number.
        value: Option<i64>,
    },
    Call {
        definition: Symbol,
        span: SrcSpan,
        /// Label of operations inside that have none of their own: the label of the call, or the enclosing one.
        label: LabelId,
    },
}

/// The loop turns and calls of a program. Kept only where a later error may name them: in programs with declared order,
/// and in those of several ranks.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    turns: Vec<Turn>,
    kept: bool,
}

impl Turns {
    /// Keeps turns from now on.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }

    /// Adds a turn and returns its id; returns `outer` if turns are not kept.
    pub(super) fn enter(&mut self, outer: TurnId, origin: TurnOrigin) -> TurnId {
        if !self.kept {
            return outer;
        }
        self.turns.push(Turn { outer, origin });
        TurnId::from(self.turns.len())
    }

    /// The turn with this id, which is not 0.
    pub fn get(&self, turn: TurnId) -> &Turn {
        &self.turns[turn.index() - 1]
    }

    /// The values of the loop variables around a turn within the same definition, outermost first, for each turn of
    /// these loops in all calls and iterations. Turns with other values than plain whole numbers are left out.
    pub fn sibling_values(&self, turn: Option<TurnId>) -> FxHashSet<Vec<i64>> {
        let Some(turn) = turn else { return FxHashSet::default() };
        let spans = |turn: TurnId| self.loops(turn).map(|(span, _)| span);
        let loops: Vec<SrcSpan> = spans(turn).collect();
        let all = (1..=self.turns.len()).map(TurnId::from).filter(|&other| spans(other).eq(loops.iter().copied()));
        let values = |turn: TurnId| -> Option<Vec<i64>> {
            let mut values: Vec<i64> = self.loops(turn).map(|(_, value)| value).collect::<Option<_>>()?;
            values.reverse();
            Some(values)
        };
        all.filter_map(values).collect()
    }

    /// The loops around a turn within the same definition, innermost first: location and value of the variable.
    fn loops(&self, turn: TurnId) -> impl Iterator<Item = (SrcSpan, Option<i64>)> {
        let next = move |turn: &TurnId| (*turn != TurnId(0)).then(|| self.get(*turn).outer);
        let turns = std::iter::successors(Some(turn), next).take_while(|turn| *turn != TurnId(0));
        turns.map_while(|turn| match self.get(turn).origin {
            TurnOrigin::Loop { span, value, .. } => Some((span, value)),
            TurnOrigin::Call { .. } => None,
        })
    }

    /// A turn and those around it, the outermost first; empty for the step itself.
    pub fn enclosing(&self, mut turn: TurnId) -> Vec<TurnId> {
        let mut chain = Vec::new();
        while turn != TurnId(0) {
            chain.push(turn);
            turn = self.get(turn).outer;
        }
        chain.reverse();
        chain
    }
}
