//! The best point of a space that is too large to try each: a direct search within a budget of runs. Knows no unit, and
//! nothing of what a point stands for.
//!
//! Four steps, each a known simple method:
//! 1. *Spread*: a quarter of the runs go to a Latin hypercube, which has every part of every axis alike (McKay and others,
//!    1979).
//! 2. *Descend* from the best of them after Hooke and Jeeves ("Direct search", 1961): a step along each axis in turn, with
//!    a larger one in the direction that has helped, and half the step where nothing does. An axis whose values have an
//!    order is walked along it; of another one every value is tried.
//! 3. *Race*: a quarter of the runs is kept for those points that noise does not tell from the best. The one of them with
//!    the fewest runs has the next, until one is left, or all have had several.
//! 4. What is left goes to a descent from another start, and a race again.
//!
//! The same seed makes the same search, as long as the answers are the same.

use std::collections::BTreeMap;

use crate::base::random;

use super::stats::{Moments, student};

/// An axis: how many values it has, and whether neighbours in their order resemble each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchAxis {
    pub values: usize,
    pub ordered: bool,
}

/// The place of a point on each axis.
pub type Point = Vec<usize>;

/// What a search has to go on.
#[derive(Clone, Debug)]
pub struct Search {
    pub axes: Vec<SearchAxis>,
    /// Runs at most.
    pub budget: usize,
    pub seed: u64,
}

/// Whoever runs a point.
pub trait Objective {
    /// What ends the search.
    type End;

    /// Whether a point can be run at all. To ask costs no run.
    fn fits(&mut self, point: &[usize]) -> bool;

    /// Runs a point; less is better, and above 0. Nothing where the run has failed.
    fn run(&mut self, point: &[usize]) -> Result<Option<f64>, Self::End>;
}

/// A point that was run.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    pub point: Point,
    /// The logarithms of what its runs gave.
    logs: Vec<f64>,
    /// One of its runs has failed: it is not run again, and never the best.
    pub lost: bool,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best first; of points without figures, those first that were run first.
    pub tried: Vec<Tried>,
    pub runs: usize,
    /// The standard deviation of a run's logarithm, where points had several; and how well it is known.
    pub noise: Option<(f64, usize)>,
}

/// Runs of a point at most.
const REPEATED: usize = 8;

/// Points that are run again before it is known how much runs differ.
const SCOUTS: usize = 3;

/// The share of what is left that a race may have, as its inverse.
const KEPT: usize = 4;

/// A search under way.
struct State<'a, O: Objective> {
    search: &'a Search,
    objective: &'a mut O,
    tried: BTreeMap<Point, Tried>,
    /// The order in which points were first run.
    first: Vec<Point>,
    runs: usize,
    /// Runs that are kept for a race.
    kept: usize,
    draws: u64,
}

/// Why a search stops to look further.
enum Stop<E> {
    /// Its runs are spent.
    Spent,
    Ended(E),
}

type Step<T, O> = Result<T, Stop<<O as Objective>::End>>;

impl Search {
    /// Searches, from `begin` where that is given. What ended it early comes along.
    pub fn run<O: Objective>(&self, begin: Option<Point>, objective: &mut O) -> (Found, Option<O::End>) {
        let (tried, first, draws) = (BTreeMap::new(), Vec::new(), 0);
        let mut state = State { search: self, objective, tried, first, runs: 0, kept: 0, draws };
        let ended = match state.all(begin) {
            Ok(()) | Err(Stop::Spent) => None,
            Err(Stop::Ended(end)) => Some(end),
        };
        (state.found(), ended)
    }

    /// How many points there are; at most what a number can hold.
    pub fn points(&self) -> usize {
        self.axes.iter().fold(1, |all: usize, axis| all.saturating_mul(axis.values))
    }
}

impl Tried {
    pub fn runs(&self) -> usize {
        self.logs.len()
    }

    /// The geometric mean of its runs; nothing of one that was lost.
    pub fn value(&self) -> Option<f64> {
        self.mean().map(f64::exp)
    }

    fn mean(&self) -> Option<f64> {
        Moments::of(&self.logs).filter(|_| !self.lost).map(|moments| moments.mean)
    }
}

impl Found {
    /// The best point.
    pub fn best(&self) -> Option<&Tried> {
        self.tried.first().filter(|tried| tried.mean().is_some())
    }

    /// What a point takes over what the best takes, and the interval that holds that with 95 %. No interval where no point
    /// was run twice.
    pub fn beside_best(&self, other: &Tried) -> Option<(f64, Option<(f64, f64)>)> {
        let best = self.best()?;
        let change = other.mean()? - best.mean()?;
        let interval = self.noise.map(|noise| {
            let reach = reach(noise, best.runs(), other.runs());
            ((change - reach).exp(), (change + reach).exp())
        });
        Some((change.exp(), interval))
    }

    /// The points that noise does not tell from the best, which is one of them.
    pub fn within_noise(&self) -> Vec<&Tried> {
        let near = |tried: &&Tried| match self.beside_best(tried) {
            Some((_, Some((low, _)))) => low <= 1.0,
            Some((ratio, None)) => ratio <= 1.0,
            None => false,
        };
        self.tried.iter().filter(near).collect()
    }
}

/// Half the interval of the difference of two means of so many runs.
fn reach((noise, freedom): (f64, usize), a: usize, b: usize) -> f64 {
    student(freedom as f64) * noise * (1.0 / a as f64 + 1.0 / b as f64).sqrt()
}

impl<O: Objective> State<'_, O> {
    fn all(&mut self, begin: Option<Point>) -> Step<(), O> {
        self.kept = self.search.budget / KEPT;
        for point in begin.into_iter().chain(self.spread(self.search.budget / 4)) {
            self.mean(&point)?;
        }
        let mut starts = 0;
        loop {
            let before = self.runs;
            match self.descents(&mut starts) {
                Ok(()) | Err(Stop::Spent) => {}
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

    /// A descent from the best point, and one from another start each time that there is room for it.
    fn descents(&mut self, starts: &mut usize) -> Step<(), O> {
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

    /// The better of a few points that nobody has looked at: a random one is rarely good.
    fn another_start(&mut self) -> Option<Point> {
        let few = 2 + self.search.axes.len();
        let drawn: Vec<Point> = (0..16 * few).map(|_| self.drawn()).collect();
        let mut new: Vec<Point> = drawn.into_iter().filter(|point| !self.tried.contains_key(point)).collect();
        new.truncate(few);
        // Far from all that is known: another basin, if there is one.
        let apart = |point: &Point| self.tried.keys().map(|known| self.apart(point, known)).min().unwrap_or(0);
        new.into_iter().map(|point| (apart(&point), point)).max().map(|(_, point)| point)
    }

    /// How far two points lie apart, in thousandths of the axes.
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

    /// A Latin hypercube: each axis is cut into as many parts as there are points, and each point has another part.
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
                let place = (part as f64 + within) / count as f64 * values as f64;
                point.push((place as usize).min(values - 1));
            }
        }
        points
    }

    /// The mean logarithm of a point's runs, which is run where it has not been; infinite where it fails.
    fn mean(&mut self, point: &Point) -> Step<f64, O> {
        if !self.tried.contains_key(point) {
            if !self.objective.fits(point) {
                return Ok(f64::INFINITY);
            }
            self.run(point)?;
        }
        Ok(self.tried.get(point).and_then(Tried::mean).unwrap_or(f64::INFINITY))
    }

    fn run(&mut self, point: &Point) -> Step<(), O> {
        if self.runs + self.kept >= self.search.budget {
            return Err(Stop::Spent);
        }
        let value = self.objective.run(point).map_err(Stop::Ended)?;
        self.runs += 1;
        let tried = self.tried.entry(point.clone()).or_insert_with(|| {
            self.first.push(point.clone());
            Tried { point: point.clone(), logs: Vec::new(), lost: false }
        });
        match value.filter(|value| *value > 0.0 && value.is_finite()) {
            Some(value) => tried.logs.push(value.ln()),
            None => tried.lost = true,
        }
        Ok(())
    }

    /// Goes from a point to one of which no neighbour is better.
    fn descend(&mut self, start: Point) -> Step<(), O> {
        let longest = self.search.axes.iter().filter(|axis| axis.ordered).map(|axis| axis.values).max().unwrap_or(1);
        let mut step = (longest / 4).max(1);
        let mut base = start;
        let mut value = self.mean(&base)?;
        loop {
            let (mut next, mut better) = self.around(base.clone(), value, step)?;
            if better >= value {
                if step == 1 {
                    return Ok(());
                }
                step /= 2;
                continue;
            }
            // As far again in the direction that has helped, as long as that helps too.
            while better < value {
                let ahead = self.ahead(&base, &next);
                (base, value) = (next.clone(), better);
                if ahead == base {
                    break;
                }
                let there = self.mean(&ahead)?;
                let (point, found) = self.around(ahead, there, step)?;
                if found < better {
                    (next, better) = (point, found);
                }
            }
        }
    }

    /// The point that lies as far beyond `to` as that lies from `from`. On an axis without an order it is that of `to`.
    fn ahead(&self, from: &[usize], to: &[usize]) -> Point {
        let beyond = |(axis, (from, to)): (&SearchAxis, (&usize, &usize))| match axis.ordered {
            true => (2 * to).saturating_sub(*from).min(axis.values - 1),
            false => *to,
        };
        self.search.axes.iter().zip(from.iter().zip(to)).map(beyond).collect()
    }

    /// A step along each axis, in a drawn order; each that helps is kept.
    fn around(&mut self, mut point: Point, mut value: f64, step: usize) -> Step<(Point, f64), O> {
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

    /// Where a step along an axis leads.
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

    /// Runs again what noise does not tell from the best.
    fn race(&mut self) -> Step<(), O> {
        loop {
            let found = self.found();
            let near: Vec<&Tried> = match found.noise {
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

    /// What is known by now.
    fn found(&self) -> Found {
        let mut tried: Vec<Tried> = self.first.iter().map(|point| self.tried[point].clone()).collect();
        tried.sort_by(|a, b| {
            let value = |tried: &Tried| tried.mean().unwrap_or(f64::INFINITY);
            value(a).total_cmp(&value(b))
        });
        let known = || tried.iter().filter_map(|tried| Moments::of(&tried.logs));
        let squares: f64 = known().map(|moments| moments.squares).sum();
        let freedom: usize = known().map(|moments| moments.n - 1).sum();
        // Few repetitions say little of how much runs differ.
        let noise = (freedom >= SCOUTS).then(|| ((squares / freedom as f64).sqrt(), freedom));
        Found { tried, runs: self.runs, noise }
    }
}

#[cfg(test)]
mod tests;
