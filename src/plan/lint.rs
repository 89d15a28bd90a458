//! Warns about declared dependencies that exist anyway.

use miette::{Diagnostic, SourceSpan};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::base::{OpId, SrcSpan};
use crate::model::{OpKind, Program, Step, Sync};

use super::clocks::{Clocks, QueuePosition};
use super::graph::StepPlan;
use super::hazards;

/// A warning about a plan.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum PlanWarning {
    #[error("`after {label}` is redundant")]
    #[diagnostic(
        code(aorta::plan::redundant_after),
        severity(Warning),
        help("remove it: `aorta plan` shows what orders the operations")
    )]
    RedundantAfter {
        label: String,
        #[label("{why}")]
        at: SourceSpan,
        why: &'static str,
    },
}

/// Finds every `after` that is redundant in all loop iterations. `label` returns the text at a location. Finds none if
/// the file declares its whole order itself, since redundancy is intended there.
pub fn lint(program: &Program, label: impl Fn(SrcSpan) -> String) -> Vec<PlanWarning> {
    let declared = program.cycle.iter().any(|step| step.ids().any(|op| !step.after(op).is_empty()));
    // A dependency that is redundant on this rank may be needed on another.
    let of_others = program.by_rank && program.world > 1;
    if !declared || of_others || program.step.declared_order {
        return Vec::new();
    }
    let Ok(inferred) = hazards::find(program, false) else { return Vec::new() };
    let mut needed: FxHashMap<SrcSpan, WaitVerdict> = FxHashMap::default();
    for (step, graph) in program.cycle.iter().zip(&inferred.steps) {
        LintWalk::new(program, step).run(step, graph, &mut needed);
    }
    let mut spans: Vec<(SrcSpan, WaitVerdict)> = needed.into_iter().collect();
    spans.sort_unstable_by_key(|(span, _)| *span);
    let why = |verdict| match verdict {
        WaitVerdict::Needed => None,
        WaitVerdict::Previous => Some("an iteration begins when the one before is complete"),
        WaitVerdict::Implied => Some("data, streams or other waits order this already"),
    };
    let warning = |(span, verdict)| {
        let label = if verdict == WaitVerdict::Previous { format!("prev({})", label(span)) } else { label(span) };
        why(verdict).map(|why| PlanWarning::RedundantAfter { label, at: span.into(), why })
    };
    spans.into_iter().filter_map(warning).collect()
}

/// Result of checking a declared wait: needed, or the reason why it is not.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WaitVerdict {
    /// Another dependency implies the wait.
    Implied,
    /// The dependency exists because iterations do not overlap.
    Previous,
    Needed,
}

/// A walk through one iteration with the clocks of its streams.
struct LintWalk<'a> {
    program: &'a Program,
    clocks: Clocks,
    places: Vec<QueuePosition>,
    /// For each operation, the number of operations that wait for it.
    uses: Vec<u32>,
}

impl<'a> LintWalk<'a> {
    fn new(program: &'a Program, step: &Step) -> Self {
        let count = step.ops.len();
        let clocks = Clocks::new(program.streams.len());
        LintWalk { program, clocks, places: Vec::with_capacity(count), uses: vec![0; count] }
    }

    fn run(&mut self, step: &Step, graph: &StepPlan, needed: &mut FxHashMap<SrcSpan, WaitVerdict>) {
        let before: Vec<Vec<(OpId, Option<SrcSpan>)>> = step.ids().map(|op| self.before(step, graph, op)).collect();
        for (from, _) in before.iter().flatten() {
            self.uses[from.index()] += 1;
        }
        for op in step.ids() {
            let queue = step.op(op).stream.0;
            let before = &before[op.index()];
            for (from, span) in before {
                let Some(span) = span else { continue };
                let verdict =
                    if self.implied(queue, *from, *span, before) { WaitVerdict::Implied } else { WaitVerdict::Needed };
                note(needed, *span, verdict);
            }
            for after in step.after(op).iter().filter(|after| after.previous && is_block(step, op)) {
                let overlapping = self.program.step.sync == Sync::End;
                note(needed, after.span, if overlapping { WaitVerdict::Needed } else { WaitVerdict::Previous });
            }
            for (from, _) in before {
                self.clocks.wait(queue, self.places[from.index()]);
            }
            let clock = self.clocks.push(queue, self.uses[op.index()]);
            self.places.push(clock);
        }
    }

    /// Dependencies of an operation besides the order of its stream, each with the location of the `after` that
    /// declares it, if any.
    fn before(&self, step: &Step, graph: &StepPlan, op: OpId) -> Vec<(OpId, Option<SrcSpan>)> {
        let inferred = graph.incoming(op).map(|edge| (edge.from, None));
        let spelled = step.after(op).iter().filter(|after| !after.previous);
        let spelled = spelled.map(|after| (after.op, is_block(step, op).then_some(after.span)));
        inferred.chain(spelled).collect()
    }

    /// True if an operation on `queue` runs after `from` even without this declaration.
    ///
    /// Among equivalent declarations, the first in the text is kept: one that implies another is never removed
    /// because of that other, so all redundant ones can be removed at once.
    fn implied(&self, queue: u32, from: OpId, span: SrcSpan, before: &[(OpId, Option<SrcSpan>)]) -> bool {
        let place = self.places[from.index()];
        if queue == place.queue {
            // The member of a family may depend on a parameter, so its stream order is not guaranteed.
            return self.program.streams[queue as usize].member.is_none();
        }
        self.clocks.knows(queue, place)
            || before.iter().any(|&(other, at)| match other == from {
                true => at < Some(span),
                false => at != Some(span) && self.clocks.implies(self.places[other.index()], place),
            })
    }
}

/// True if the dependencies were declared at a block of which the operation is a part. An explicit `wait` is always
/// issued.
fn is_block(step: &Step, op: OpId) -> bool {
    step.op(op).kind != OpKind::Wait
}

/// Notes a verdict on a declaration. If it is needed in one loop iteration, it is needed.
fn note(needed: &mut FxHashMap<SrcSpan, WaitVerdict>, span: SrcSpan, verdict: WaitVerdict) {
    let known = needed.entry(span).or_insert(verdict);
    if verdict == WaitVerdict::Needed {
        *known = verdict;
    }
}
