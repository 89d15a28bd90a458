//! Search for the best point of a space that is too large to enumerate, within a budget of runs. The search does not
//! depend on the meaning of a point.
//!
//! The search combines known simple methods:
//!
//! - *Spread*: a quarter of the runs go to a Latin hypercube, which covers every part of every axis (McKay and others,
//!   1979).
//! - *Descend* from the best of them after Hooke and Jeeves ("Direct search", 1961): a step along each axis in turn, a
//!   larger one in a direction that helped, and half the step if nothing helps. An ordered axis is walked along its
//!   order; of an unordered one every value is tried.
//! - *Race*: a quarter of the runs is reserved for points that noise does not distinguish from the best. The one with
//!   the fewest runs is run again, until one is left or all have had several runs.
//! - The rest goes to a descent from another start, and another race.
//!
//! The same seed gives the same search as long as the results are the same.

use std::collections::BTreeMap;

use crate::base::random;

use crate::measure::statistics::stats::{Moments, student};

/// An axis: its number of values, and whether neighbouring values are similar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchAxis {
    /// Number of values.
    pub values: usize,
    /// True if neighbouring values are similar.
    pub ordered: bool,
}

/// Index of a value on each axis.
pub type Point = Vec<usize>;

/// Parameters of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    pub axes: Vec<SearchAxis>,
    /// Maximum number of runs.
    pub budget: usize,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Runs points for a search.
pub trait Objective {
    /// Error that ends the search.
    type End;

    /// True if a point can be run at all. Costs no run.
    fn fits(&mut self, point: &[usize]) -> bool;

    /// Runs a point and returns its cost: positive, lower is better. `None` if the run failed.
    fn run(&mut self, point: &[usize]) -> Result<Option<f64>, Self::End>;
}

/// A point that was run.
#[derive(Clone, Debug, PartialEq)]
pub struct TriedPoint {
    pub point: Point,
    /// Logarithms of the costs of the point's runs.
    logs: Vec<f64>,
    /// True if a run of the point failed. The point does not run again, and is never the best.
    pub lost: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult {
    /// Points by cost, best first; then points without a cost, in the order of their runs.
    pub tried: Vec<TriedPoint>,
    pub runs: usize,
    /// Standard deviation of a run's logarithm, with its degrees of freedom; `None` with fewer than `SCOUTS` repetitions.
    pub noise: Option<(f64, usize)>,
}

/// Maximum number of runs per point.
const REPEATED: usize = 8;

/// Number of repetitions that estimate the noise before the race.
const SCOUTS: usize = 3;

/// Reciprocal of the share of runs reserved for a race.
const KEPT: usize = 4;

/// State of a running search.
struct SearchState<'a, O: Objective> {
    search: &'a SearchOptions,
    objective: &'a mut O,
    tried: BTreeMap<Point, TriedPoint>,
    /// The order in which points were first run.
    first: Vec<Point>,
    runs: usize,
    /// Runs reserved for the race.
    kept: usize,
    draws: u64,
}

/// Reason why a search ends.
enum SearchEnd<E> {
    /// The budget is spent.
    Spent,
    Ended(E),
}

type SearchStep<T, O> = Result<T, SearchEnd<<O as Objective>::End>>;

impl SearchOptions {
    /// Searches. Also returns the error that ended it early, if any.
    pub fn run<O: Objective>(&self, objective: &mut O) -> (SearchResult, Option<O::End>) {
        let (tried, first, draws) = (BTreeMap::new(), Vec::new(), 0);
        let mut state = SearchState { search: self, objective, tried, first, runs: 0, kept: 0, draws };
        let ended = match state.all() {
            Ok(()) | Err(SearchEnd::Spent) => None,
            Err(SearchEnd::Ended(end)) => Some(end),
        };
        (state.found(), ended)
    }

    /// Number of points of the space; saturates.
    pub fn points(&self) -> usize {
        self.axes.iter().fold(1, |all: usize, axis| all.saturating_mul(axis.values))
    }
}

impl TriedPoint {
    /// Number of runs of the point.
    pub fn runs(&self) -> usize {
        self.logs.len()
    }

    /// Geometric mean of the costs of the point's runs; `None` if a run failed.
    pub fn value(&self) -> Option<f64> {
        self.mean().map(f64::exp)
    }

    fn mean(&self) -> Option<f64> {
        Moments::of(&self.logs).filter(|_| !self.lost).map(|moments| moments.mean)
    }
}

impl SearchResult {
    /// The best point; `None` if no point has a cost.
    pub fn best(&self) -> Option<&TriedPoint> {
        self.tried.first().filter(|tried| tried.mean().is_some())
    }

    /// Cost of a point relative to the best, with a 95 % interval if points were repeated. `None` if one has no cost.
    pub fn relative_to_best(&self, other: &TriedPoint) -> Option<(f64, Option<(f64, f64)>)> {
        let best = self.best()?;
        let change = other.mean()? - best.mean()?;
        let interval = self.noise.map(|noise| {
            let reach = half_width(noise, best.runs(), other.runs());
            ((change - reach).exp(), (change + reach).exp())
        });
        Some((change.exp(), interval))
    }

    /// The points that noise does not distinguish from the best, including the best.
    pub fn within_noise(&self) -> Vec<&TriedPoint> {
        let near = |tried: &&TriedPoint| match self.relative_to_best(tried) {
            Some((_, Some((low, _)))) => low <= 1.0,
            Some((ratio, None)) => ratio <= 1.0,
            None => false,
        };
        self.tried.iter().filter(near).collect()
    }
}

/// Half the width of the interval of the difference of two means, of `a` and `b` runs.
fn half_width((noise, freedom): (f64, usize), a: usize, b: usize) -> f64 {
    student(freedom as f64) * noise * (1.0 / a as f64 + 1.0 / b as f64).sqrt()
}

impl<O: Objective> SearchState<'_, O> {
    fn all(&mut self) -> SearchStep<(), O> {
        self.kept = self.search.budget / KEPT;
        for point in self.spread(self.search.budget / 4) {
            self.mean(&point)?;
        }
        let mut starts = 0;
        loop {
            let before = self.runs;
            match self.run_descents(&mut starts) {
                Ok(()) | Err(SearchEnd::Spent) => {}
                ended => return ended,
            }
            self.kept = 0;
            self.race()?;
            if self.runs == before {
                return Ok(());
            }
            self.kept = (self.search.budget - self.runs) / KEPT;
        }
    }

    /// Descends from the best point, and from other starts while the budget lasts.
    fn run_descents(&mut self, starts: &mut usize) -> SearchStep<(), O> {
        loop {
            let start = match *starts {
                0 => self.found().best().map(|best| best.point.clone()),
                _ => self.another_start(),
            };
            let Some(start) = start else { return Ok(()) };
            *starts += 1;
            self.descend(start)?;
        }
    }

    /// The most distant of several random untried points; `None` if there is none.
    fn another_start(&mut self) -> Option<Point> {
        let few = 2 + self.search.axes.len();
        let drawn: Vec<Point> = (0..16 * few).map(|_| self.drawn()).collect();
        let mut new: Vec<Point> = drawn.into_iter().filter(|point| !self.tried.contains_key(point)).collect();
        new.truncate(few);
        // The distance to the nearest point that was tried. A start that is far from all of them can lead to another minimum.
        let apart = |point: &Point| self.tried.keys().map(|known| self.apart(point, known)).min().unwrap_or(0);
        new.into_iter().map(|point| (apart(&point), point)).max().map(|(_, point)| point)
    }

    /// Distance of two points, in thousandths of the axes.
    fn apart(&self, a: &[usize], b: &[usize]) -> usize {
        let along = |(axis, (a, b)): (&SearchAxis, (&usize, &usize))| match (a == b, axis.ordered) {
            (true, _) => 0,
            (false, true) => 1000 * a.abs_diff(*b) / axis.values,
            (false, false) => 1000,
        };
        self.search.axes.iter().zip(a.iter().zip(b)).map(along).sum()
    }

    fn draw(&mut self, below: usize) -> usize {
        self.draws += 1;
        (random::hash(self.search.seed, self.draws) % below.max(1) as u64) as usize
    }

    fn drawn(&mut self) -> Point {
        (0..self.search.axes.len()).map(|axis| self.draw(self.search.axes[axis].values)).collect()
    }

    /// A Latin hypercube: each axis is divided into as many parts as there are points, and each point is in a different
    /// part.
    fn spread(&mut self, count: usize) -> Vec<Point> {
        let mut points = vec![Vec::new(); count];
        for axis in 0..self.search.axes.len() {
            let mut parts: Vec<usize> = (0..count).collect();
            for at in (1..count).rev() {
                let other = self.draw(at + 1);
                parts.swap(at, other);
            }
            for (point, part) in points.iter_mut().zip(parts) {
                let within = self.draw(1 << 20) as f64 / f64::from(1 << 20);
                let values = self.search.axes[axis].values;
                let position = (part as f64 + within) / count as f64 * values as f64;
                point.push((position as usize).min(values - 1));
            }
        }
        points
    }

    /// Mean logarithm of a point's costs. Runs the point if needed; infinite if it fails.
    fn mean(&mut self, point: &Point) -> SearchStep<f64, O> {
        if !self.tried.contains_key(point) {
            if !self.objective.fits(point) {
                return Ok(f64::INFINITY);
            }
            self.run(point)?;
        }
        Ok(self.tried.get(point).and_then(TriedPoint::mean).unwrap_or(f64::INFINITY))
    }

    fn run(&mut self, point: &Point) -> SearchStep<(), O> {
        if self.runs + self.kept >= self.search.budget {
            return Err(SearchEnd::Spent);
        }
        let value = self.objective.run(point).map_err(SearchEnd::Ended)?;
        self.runs += 1;
        let tried = self.tried.entry(point.clone()).or_insert_with(|| {
            self.first.push(point.clone());
            TriedPoint { point: point.clone(), logs: Vec::new(), lost: false }
        });
        match value.filter(|value| *value > 0.0 && value.is_finite()) {
            Some(value) => tried.logs.push(value.ln()),
            None => tried.lost = true,
        }
        Ok(())
    }

    /// Moves from a point to a local minimum.
    fn descend(&mut self, start: Point) -> SearchStep<(), O> {
        let longest = self.search.axes.iter().filter(|axis| axis.ordered).map(|axis| axis.values).max().unwrap_or(1);
        let mut step = (longest / 4).max(1);
        let mut base = start;
        let mut value = self.mean(&base)?;
        loop {
            let (mut next, mut better) = self.explore_axes(base.clone(), value, step)?;
            if better >= value {
                if step == 1 {
                    return Ok(());
                }
                step /= 2;
                continue;
            }
            // Repeat the same step in a direction that helped, as long as it helps.
            while better < value {
                let ahead = self.ahead(&base, &next);
                (base, value) = (next.clone(), better);
                if ahead == base {
                    break;
                }
                let there = self.mean(&ahead)?;
                let (point, found) = self.explore_axes(ahead, there, step)?;
                if found < better {
                    (next, better) = (point, found);
                }
            }
        }
    }

    /// The point as far beyond `to` as `to` is from `from`. Stays at `to` on an axis without an order.
    fn ahead(&self, from: &[usize], to: &[usize]) -> Point {
        let beyond = |(axis, (from, to)): (&SearchAxis, (&usize, &usize))| match axis.ordered {
            true => (2 * to).saturating_sub(*from).min(axis.values - 1),
            false => *to,
        };
        self.search.axes.iter().zip(from.iter().zip(to)).map(beyond).collect()
    }

    /// Tries a step along each axis, in random order; keeps each improvement.
    fn explore_axes(&mut self, mut point: Point, mut value: f64, step: usize) -> SearchStep<(Point, f64), O> {
        let axes = self.search.axes.len();
        let mut order: Vec<usize> = (0..axes).collect();
        for at in (1..axes).rev() {
            let other = self.draw(at + 1);
            order.swap(at, other);
        }
        for axis in order {
            for place in self.places(axis, point[axis], step) {
                let mut next = point.clone();
                next[axis] = place;
                let there = self.mean(&next)?;
                if there < value {
                    (point, value) = (next, there);
                    if self.search.axes[axis].ordered {
                        break;
                    }
                }
            }
        }
        Ok((point, value))
    }

    /// Values reached by a step along an axis.
    fn places(&mut self, axis: usize, from: usize, step: usize) -> Vec<usize> {
        let SearchAxis { values, ordered } = self.search.axes[axis];
        if !ordered {
            return (0..values).filter(|place| *place != from).collect();
        }
        let step = step.min((values / 4).max(1));
        let (up, down) = ((from + step).min(values - 1), from.saturating_sub(step));
        let both = if self.draw(2) == 0 { [up, down] } else { [down, up] };
        both.into_iter().filter(|place| *place != from).collect()
    }

    /// Repeats the points that noise does not distinguish from the best.
    fn race(&mut self) -> SearchStep<(), O> {
        loop {
            let found = self.found();
            let near: Vec<&TriedPoint> = match found.noise {
                Some(_) => found.within_noise(),
                None => found.tried.iter().filter(|tried| !tried.lost).take(SCOUTS).collect(),
            };
            if near.len() < 2 && found.noise.is_some() {
                return Ok(());
            }
            let fewest = near.into_iter().min_by_key(|tried| tried.runs()).filter(|tried| tried.runs() < REPEATED);
            let Some(next) = fewest.map(|tried| tried.point.clone()) else { return Ok(()) };
            self.run(&next)?;
        }
    }

    /// The results so far.
    fn found(&self) -> SearchResult {
        let mut tried: Vec<TriedPoint> = self.first.iter().map(|point| self.tried[point].clone()).collect();
        tried.sort_by(|a, b| {
            let value = |tried: &TriedPoint| tried.mean().unwrap_or(f64::INFINITY);
            value(a).total_cmp(&value(b))
        });
        let known = || tried.iter().filter_map(|tried| Moments::of(&tried.logs));
        let squares: f64 = known().map(|moments| moments.squares).sum();
        let freedom: usize = known().map(|moments| moments.n - 1).sum();
        // With few repetitions the noise estimate would be unreliable.
        let noise = (freedom >= SCOUTS).then(|| ((squares / freedom as f64).sqrt(), freedom));
        SearchResult { tried, runs: self.runs, noise }
    }
}

#[cfg(test)]
mod tests;
