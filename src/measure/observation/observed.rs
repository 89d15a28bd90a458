//! Figures of one observed iteration for a set of operations, from their start and end times.

use crate::base::LaneId;
use crate::exec::Span;
use crate::model::{OpSet, Program};
use crate::ops::{Category, Spec};
use crate::plan::Plan;

use super::solo_durations::SoloDurations;
use super::spans::{self, TimeRange};
use super::waiting::Iteration;

/// True if a category is computation. Copies and collectives move data, and markers do nothing.
pub fn computes(category: Category) -> bool {
    !matches!(category, Category::Copy | Category::Collective | Category::Marker)
}

/// A set of operations in an observed iteration. Times are in ns from the start of the iteration.
pub struct ObservedOperations<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub iteration: &'a Iteration<'a>,
    pub spans: Vec<Span>,
}

impl<'a> ObservedOperations<'a> {
    /// Selects the operations of a set; all if there is no set.
    pub fn of(
        program: &'a Program,
        plan: &'a Plan,
        iteration: &'a Iteration<'a>,
        set: Option<&OpSet>,
    ) -> ObservedOperations<'a> {
        let step = &program.cycle[iteration.trace.step];
        let belongs = |span: &&Span| set.is_none_or(|set| set.contains(program, step.op(span.op)));
        let spans = iteration.trace.spans.iter().filter(belongs).copied().collect();
        ObservedOperations { program, plan, iteration, spans }
    }

    /// Selects those of the operations that match a predicate.
    pub fn only(&self, wanted: impl Fn(&Spec) -> bool) -> ObservedOperations<'a> {
        let spans = self.spans.iter().filter(|span| self.spec(span).is_some_and(&wanted)).copied().collect();
        ObservedOperations { spans, ..*self }
    }

    /// Spec of a span's operation; `None` for a marker.
    pub fn spec(&self, span: &Span) -> Option<&'a Spec> {
        self.program.op_spec(self.program.cycle[self.iteration.trace.step].op(span.op))
    }

    /// Specs of the operations.
    pub fn specs(&self) -> impl Iterator<Item = &'a Spec> {
        self.spans.iter().filter_map(|span| self.spec(span))
    }

    /// Intervals in which at least one operation runs. With overlapping iterations, they may begin before the iteration.
    pub fn running_spans(&self) -> Vec<TimeRange> {
        spans::union(self.spans.iter().map(|span| (span.start.0 as f64, span.end.0 as f64)).collect())
    }

    /// Intervals in which at least one operation works, that is, does not wait for other ranks.
    pub fn working(&self) -> Vec<TimeRange> {
        let work = |span: &Span| ((span.end - self.iteration.work(span)).0 as f64, span.end.0 as f64);
        spans::union(self.spans.iter().map(work).collect())
    }

    /// Total length of intervals within an iteration. With overlapping iterations, an operation may start before its
    /// iteration begins; all iterations are assumed to look like this one.
    pub fn within(&self, ranges: &[TimeRange]) -> f64 {
        spans::length(&self.folded(ranges))
    }

    /// Shifts intervals by whole iterations into this one.
    pub fn folded(&self, ranges: &[TimeRange]) -> Vec<TimeRange> {
        spans::folded(ranges, self.iteration.trace.time.0 as f64)
    }

    /// Time from the first start to the last end.
    pub fn span(&self) -> f64 {
        let start = self.spans.iter().map(|span| span.start.0).min().unwrap_or(0);
        let end = self.spans.iter().map(|span| span.end.0).max().unwrap_or(0);
        (end - start) as f64
    }

    /// Intervals within the iteration in which at least one operation runs.
    pub fn running(&self) -> Vec<TimeRange> {
        self.folded(&self.running_spans())
    }

    /// Time in which at least one operation runs.
    pub fn busy(&self) -> f64 {
        spans::length(&self.running())
    }

    /// Time in which operations of both sets run.
    pub fn common(&self, others: &ObservedOperations) -> f64 {
        spans::length(&spans::common(&self.running(), &others.running()))
    }

    /// The computations of the iteration.
    pub fn computation(&self) -> ObservedOperations<'a> {
        let all = ObservedOperations::of(self.program, self.plan, self.iteration, None);
        all.only(|spec| computes(spec.operation.category()))
    }

    /// Exposed time: some operation runs and no computation does.
    pub fn exposed(&self) -> f64 {
        spans::outside(&self.running(), &self.computation().running())
    }

    /// Gaps: for each operation with a predecessor on its real stream, the time from that one's end to its start.
    pub fn gaps(&self) -> Vec<f64> {
        let lanes = self.iteration.trace.spans.iter().map(|span| span.lane.index() + 1).max().unwrap_or(0);
        let mut before: Vec<Option<Span>> = vec![None; lanes];
        let mut spans = self.spans.iter().peekable();
        let mut gaps = Vec::new();
        // Spans are in the order of issue, also on each real stream.
        for span in &self.iteration.trace.spans {
            let LaneId(lane) = span.lane;
            let neighbour = before[lane as usize].replace(*span);
            if spans.next_if(|spans| spans.op == span.op).is_some()
                && let Some(neighbour) = neighbour
            {
                gaps.push((span.start - neighbour.end).0 as f64);
            }
        }
        gaps
    }

    /// End of each operation, by number; `None` for operations that did not run.
    fn ends(&self) -> Vec<Option<f64>> {
        let mut ends = vec![None; self.plan.steps[self.iteration.trace.step].operations()];
        for span in &self.iteration.trace.spans {
            ends[span.op.index()] = Some(span.end.0 as f64);
        }
        ends
    }

    /// Delays: for each operation with dependencies in its iteration, the time from the last one's end to its start.
    pub fn delays(&self) -> Vec<f64> {
        let ends = self.ends();
        let step = &self.plan.steps[self.iteration.trace.step];
        let delay = |span: &Span| {
            let last = step.incoming(span.op).filter_map(|edge| ends[edge.from.index()]).max_by(f64::total_cmp)?;
            Some(span.start.0 as f64 - last)
        };
        self.spans.iter().filter_map(delay).collect()
    }

    /// Total working time, and total time when run alone; `None` unless each was timed alone.
    pub fn together_and_alone(&self, alone: &SoloDurations) -> Option<(f64, f64)> {
        let together = self.spans.iter().map(|span| self.iteration.work(span).0 as f64).sum();
        let step = self.iteration.trace.step;
        let apart: Option<Vec<f64>> = self.spans.iter().map(|span| alone.of(step, span.op)).collect();
        Some((together, apart?.iter().sum()))
    }

    /// Duration of each operation, by number; 0 for operations that did not run.
    pub fn durations(&self) -> Vec<f64> {
        let mut durations = vec![0.0; self.plan.steps[self.iteration.trace.step].operations()];
        for span in &self.iteration.trace.spans {
            durations[span.op.index()] = span.duration().0 as f64;
        }
        durations
    }

    /// Slack: how much later each operation could end without lengthening the critical path.
    pub fn slacks(&self) -> Vec<f64> {
        let slack = self.plan.steps[self.iteration.trace.step].timing(&self.durations()).slack;
        self.spans.iter().map(|span| slack[span.op.index()]).collect()
    }

    /// Length of the critical path with the observed durations.
    pub fn critical_path(&self) -> f64 {
        self.plan.steps[self.iteration.trace.step].critical_path(&self.durations()).length
    }
}
