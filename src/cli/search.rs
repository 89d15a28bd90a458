//! `aorta sweep --search`: the best point of the axes, without trying each.

use std::collections::BTreeMap;

use crate::measure::cases::{Axis, Case, Header, Status};
use crate::measure::pace::Pace;
use crate::measure::paired::Side;
use crate::measure::search::{self, Found, Objective, Search};
use crate::report;

use super::ab;
use super::case::Interrupt;
use super::error::CliError;
use super::sweep::Planned;
use super::{CliResult, DONE, FAILED, INTERRUPTED, output};

/// What a search needs of the sweep that it is one of.
pub struct Searching<'a> {
    pub header: &'a Header,
    /// Runs at most.
    pub budget: usize,
    pub seed: u64,
    /// The case that has these values, by their places in each axis.
    pub case: &'a dyn Fn(&[usize]) -> Planned,
    /// Whether arguments make a run, as far as that is known without a device.
    pub fits: &'a dyn Fn(&[String]) -> bool,
    /// Runs a case, or takes what is known of it; nothing where somebody has pressed Ctrl-C.
    pub run: &'a mut dyn FnMut(&Planned) -> Result<Option<Case>, CliError>,
    pub interrupt: &'a Interrupt,
}

/// Options of `aorta exec` that say how long to measure, or what to do besides: what runs in turn has its own.
const BY_ITSELF: [&str; 3] = ["--effort=", "--iterations=", "--verify"];

/// Searches, shows what was found, and measures the best in turn with the file as it is.
pub fn run(searching: Searching) -> CliResult {
    let Searching { header, budget, seed, case, fits, run, interrupt } = searching;
    let orders: Vec<Option<Vec<usize>>> = header.axes.iter().map(order).collect();
    let axes = header.axes.iter().zip(&orders);
    let axes = axes.map(|(axis, order)| search::Axis { values: axis.values.len(), ordered: order.is_some() }).collect();
    let search = Search { axes, budget, seed };
    let place = |(order, &place): (&Option<Vec<usize>>, &usize)| order.as_ref().map_or(place, |order| order[place]);
    let planned = |point: &[usize]| case(&orders.iter().zip(point).map(place).collect::<Vec<_>>());
    let mut cases = Cases {
        header,
        planned: &planned,
        fits,
        run,
        fitting: BTreeMap::new(),
        left: budget,
        runs: BTreeMap::new(),
        taken: BTreeMap::new(),
        last: BTreeMap::new(),
        pace: Pace::Headline,
    };
    let (mut found, mut ended) = search.run(None, &mut cases);
    if let Some(End::Mixed) = ended {
        // The points that were run are known: the search goes through them again, and then further.
        (cases.pace, cases.taken, cases.last) = (Pace::Host, BTreeMap::new(), BTreeMap::new());
        (found, ended) = search.run(None, &mut cases);
    }
    let Cases { fitting, last, pace, .. } = cases;
    let shown = report::Searched {
        header,
        points: search.points(),
        unfit: fitting.values().filter(|fits| !**fits).count(),
        found: &found,
        case: &|point| planned(point).values,
        last: &|point| last.get(&planned(point).name),
        pace,
    };
    output::print(&report::search(&shown));
    match ended {
        Some(End::Failed(error)) => return Err(error),
        Some(End::Interrupted) => {
            output::eprint("Interrupted: the same command with `--resume` goes on.\n");
            return Ok(INTERRUPTED);
        }
        Some(End::Spent | End::Mixed) | None => {}
    }
    let Some(best) = found.best() else { return Ok(FAILED) };
    let best = [&header.arguments[..], &planned(&best.point).arguments[..]].concat();
    beside_default(header, &found, best, &planned, fits, interrupt)
}

/// Measures the best in turn with the file as it is; where that cannot run, with the point that was run first.
fn beside_default(
    header: &Header,
    found: &Found,
    best: Vec<String>,
    planned: &dyn Fn(&[usize]) -> Planned,
    fits: &dyn Fn(&[String]) -> bool,
    interrupt: &Interrupt,
) -> CliResult {
    let mut default = header.arguments.clone();
    if !fits(&default) {
        let worst = found.tried.iter().rfind(|tried| !tried.lost);
        default.extend(worst.into_iter().flat_map(|tried| planned(&tried.point).arguments));
        output::print("The file does not run as it is: a is the worst point that was measured.\n\n");
    } else {
        output::print("The file as it is (a) and the best point (b), measured in turn:\n\n");
    }
    let mut sides = [default, best];
    for arguments in &mut sides {
        arguments.retain(|word| !BY_ITSELF.iter().any(|option| word.starts_with(option)));
    }
    let [a, b] = sides;
    let sides = [(Side::A, a), (Side::B, b)].map(|(side, arguments)| ab::SideArgs { side, arguments });
    ab::compare(sides, interrupt).map(|complete| if complete { DONE } else { INTERRUPTED })
}

/// The places of an axis's values in the order of their numbers; nothing of one whose values are not all numbers.
fn order(axis: &Axis) -> Option<Vec<usize>> {
    let numbers: Option<Vec<f64>> = axis.values.iter().map(|value| value.trim().parse().ok()).collect();
    let numbers = numbers?;
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    Some(order)
}

/// The cases of the axes, as a search sees them.
struct Cases<'a> {
    header: &'a Header,
    planned: &'a dyn Fn(&[usize]) -> Planned,
    fits: &'a dyn Fn(&[String]) -> bool,
    run: &'a mut dyn FnMut(&Planned) -> Result<Option<Case>, CliError>,
    fitting: BTreeMap<Vec<usize>, bool>,
    /// Runs that may still be made.
    left: usize,
    /// All runs of each case, by its name, and how many of them this search has taken.
    runs: BTreeMap<String, Vec<Case>>,
    taken: BTreeMap<String, usize>,
    /// The last run of each case that this search has taken.
    last: BTreeMap<String, Case>,
    /// Which times are compared.
    pace: Pace,
}

/// Why a search has ended early.
enum End {
    Interrupted,
    Failed(CliError),
    /// A case could not be held at the gate and another was: the costs so far cannot be compared.
    Mixed,
    /// All runs have been made.
    Spent,
}

impl Cases<'_> {
    /// The next run of a case: one that an earlier search has had, or a new one.
    fn next(&mut self, planned: &Planned) -> Result<Case, End> {
        let taken = self.taken.entry(planned.name.clone()).or_default();
        let known = self.runs.entry(planned.name.clone()).or_default();
        if known.len() == *taken {
            // A search that begins again has spent some already.
            self.left = self.left.checked_sub(1).ok_or(End::Spent)?;
            known.push((self.run)(planned).map_err(End::Failed)?.ok_or(End::Interrupted)?);
        }
        *taken += 1;
        Ok(known[*taken - 1].clone())
    }

    /// Whether the runs that are known have other times in common than those that are compared.
    fn is_mixed(&self) -> bool {
        let records = self.runs.values().flatten().filter_map(|case| case.record.as_ref()?.variants.first());
        self.pace != Pace::common(records)
    }
}

impl Objective for Cases<'_> {
    type End = End;

    fn fits(&mut self, point: &[usize]) -> bool {
        if let Some(&fits) = self.fitting.get(point) {
            return fits;
        }
        let arguments = [&self.header.arguments[..], &(self.planned)(point).arguments[..]].concat();
        let fits = (self.fits)(&arguments);
        self.fitting.insert(point.to_owned(), fits);
        fits
    }

    fn run(&mut self, point: &[usize]) -> Result<Option<f64>, End> {
        let planned = (self.planned)(point);
        let case = self.next(&planned)?;
        if self.pace == Pace::Headline && self.is_mixed() {
            return Err(End::Mixed);
        }
        let cost = report::cost(&case, self.pace).filter(|_| case.status != Status::NotHeld);
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
