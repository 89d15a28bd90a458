//! `aorta sweep --search`: finds the best point of the axes without running every case.

use std::collections::BTreeMap;

use super::{Sweep, axes, fits};
use crate::cli::commands::ab;
use crate::cli::error::CliError;
use crate::cli::io::output;
use crate::cli::processes::cases::{PlannedCase, Runner};
use crate::cli::{CliResult, DONE, FAILED, INTERRUPTED};
use crate::measure::cases::{Axis, Case, Status};
use crate::measure::pace::Pace;
use crate::measure::paired::AbSide;
use crate::measure::scaling;
use crate::measure::search::{self, Objective, SearchOptions, SearchResult};
use crate::report::{self, page};

/// Options that set the length of a measurement or request verification. The final comparison sets its own.
const BY_ITSELF: [&str; 3] = ["--effort=", "--iterations=", "--verify"];

/// Searches within a budget of runs, shows the result, and compares the best case with the unchanged file in
/// alternating blocks.
pub fn run(sweep: &Sweep, budget: usize, seed: u64, runner: &mut Runner) -> CliResult {
    let header = &sweep.header;
    let orders: Vec<Option<Vec<usize>>> = header.axes.iter().map(order).collect();
    let axes = header.axes.iter().zip(&orders);
    let axes =
        axes.map(|(axis, order)| search::SearchAxis { values: axis.values.len(), ordered: order.is_some() }).collect();
    let search = SearchOptions { axes, budget, seed };
    let mut cases = SearchCases {
        sweep,
        orders,
        runner,
        fitting: BTreeMap::new(),
        left: budget,
        runs: BTreeMap::new(),
        taken: BTreeMap::new(),
        last: BTreeMap::new(),
        pace: Pace::Headline,
    };
    let (mut found, mut ended) = search.run(&mut cases);
    if let Some(EarlyEnd::Mixed) = ended {
        // The runs made so far are known, so the repeated search reuses them and then continues.
        (cases.pace, cases.taken, cases.last) = (Pace::Host, BTreeMap::new(), BTreeMap::new());
        (found, ended) = search.run(&mut cases);
    }
    cases.runner.clear_progress();
    let shown = report::Searched {
        header,
        points: search.points(),
        unfit: cases.fitting.values().filter(|fits| !**fits).count(),
        found: &found,
        last: &|point| cases.last.get(&cases.planned(point).name),
        pace: cases.pace,
    };
    output::print(&page::text(&[report::search(&shown)]));
    match ended {
        Some(EarlyEnd::Failed(error)) => return Err(error),
        Some(EarlyEnd::Interrupted) => return Ok(INTERRUPTED),
        Some(EarlyEnd::BudgetSpent | EarlyEnd::Mixed) | None => {}
    }
    cases.compare_with_default(&found)
}

/// Indices of an axis's values in ascending order; `None` if a value is not a number.
fn order(axis: &Axis) -> Option<Vec<usize>> {
    let numbers: Option<Vec<f64>> = axis.values.iter().map(|value| value.trim().parse().ok()).collect();
    let numbers = numbers?;
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    Some(order)
}

/// The cases of the axes as the search sees them.
struct SearchCases<'a> {
    sweep: &'a Sweep,
    /// For each axis, indices of its values in ascending order; `None` if a value is not a number.
    orders: Vec<Option<Vec<usize>>>,
    runner: &'a mut Runner,
    fitting: BTreeMap<Vec<usize>, bool>,
    /// Number of runs left in the budget.
    left: usize,
    /// The runs of each case by name.
    runs: BTreeMap<String, Vec<Case>>,
    /// Number of runs of each case that this search has used.
    taken: BTreeMap<String, usize>,
    /// The last run of each case that this search has used.
    last: BTreeMap<String, Case>,
    /// Kind of times that are compared.
    pace: Pace,
}

/// Reason why a search ended early.
enum EarlyEnd {
    Interrupted,
    Failed(CliError),
    /// A case could not be gated although another was, so their times cannot be compared.
    Mixed,
    BudgetSpent,
}

impl SearchCases<'_> {
    fn planned(&self, point: &[usize]) -> PlannedCase {
        let place = |(order, &place): (&Option<Vec<usize>>, &usize)| order.as_ref().map_or(place, |order| order[place]);
        let places: Vec<usize> = self.orders.iter().zip(point).map(place).collect();
        axes::case(&self.sweep.header.axes, &self.sweep.header.arguments, &places)
    }

    fn arguments(&self, point: &[usize]) -> Vec<String> {
        self.planned(point).command.unwrap_or_default()
    }

    /// The next run of a case: a known one, or a new one.
    fn next(&mut self, planned: &PlannedCase) -> Result<Case, EarlyEnd> {
        let taken = self.taken.entry(planned.name.clone()).or_default();
        let known = self.runs.entry(planned.name.clone()).or_default();
        if known.len() == *taken {
            // A resumed search has used up some of its budget already.
            self.left = self.left.checked_sub(1).ok_or(EarlyEnd::BudgetSpent)?;
            let run = self.runner.case(&planned.name, |interrupt| self.sweep.run(planned, interrupt));
            known.push(run.map_err(EarlyEnd::Failed)?.ok_or(EarlyEnd::Interrupted)?);
        }
        *taken += 1;
        Ok(known[*taken - 1].clone())
    }

    /// True if the known runs no longer have the compared times in common.
    fn is_mixed(&self) -> bool {
        let records = self.runs.values().flatten().filter_map(|case| case.record.as_ref()?.variants.first());
        self.pace != Pace::common(records)
    }

    /// Compares the best case with the unchanged file in alternating blocks, or with the worst measured case if the
    /// file cannot run.
    fn compare_with_default(&self, found: &SearchResult) -> CliResult {
        let Some(best) = found.best() else { return Ok(FAILED) };
        let mut default = self.sweep.header.arguments.clone();
        if fits(&default).is_ok() {
            output::print("\nThe file as it is (a) and the best point (b), measured in turn:\n\n");
        } else {
            let worst = found.tried.iter().rfind(|tried| !tried.lost);
            default = worst.map_or(default, |worst| self.arguments(&worst.point));
            output::print("\nThe file does not run as it is: a is the worst point that was measured.\n\n");
        }
        let sides = [(AbSide::A, default), (AbSide::B, self.arguments(&best.point))].map(|(side, mut arguments)| {
            arguments.retain(|word| !BY_ITSELF.iter().any(|option| word.starts_with(option)));
            ab::SideArgs { side, arguments }
        });
        ab::compare(sides, &self.runner.interrupt).map(|complete| if complete { DONE } else { INTERRUPTED })
    }
}

impl Objective for SearchCases<'_> {
    type End = EarlyEnd;

    fn fits(&mut self, point: &[usize]) -> bool {
        if let Some(&fits) = self.fitting.get(point) {
            return fits;
        }
        let fits = fits(&self.arguments(point)).is_ok();
        self.fitting.insert(point.to_owned(), fits);
        fits
    }

    fn run(&mut self, point: &[usize]) -> Result<Option<f64>, EarlyEnd> {
        let planned = self.planned(point);
        let case = self.next(&planned)?;
        if self.pace == Pace::Headline && self.is_mixed() {
            return Err(EarlyEnd::Mixed);
        }
        let cost = scaling::cost(&case, self.pace).filter(|_| case.status != Status::NotHeld);
        self.last.insert(planned.name, case);
        Ok(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_an_order_and_words_have_none() {
        let axis = |values: &[&str]| Axis {
            option: "set".to_owned(),
            name: "n".to_owned(),
            values: values.iter().map(|&value| value.to_owned()).collect(),
        };
        assert_eq!(order(&axis(&["8", "1", "2.5"])), Some(vec![1, 2, 0]));
        assert_eq!(order(&axis(&["1", "graph"])), None);
        assert_eq!(order(&axis(&["[1, 2]", "3"])), None);
    }
}
