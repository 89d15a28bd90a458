//! Input of metrics, and the samples of each basic figure by slot.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::exec::Samples;
use crate::model::{Figure, OpSet, Program};
use crate::ops::{self, Spec};
use crate::plan::Plan;

use super::device::DeviceProperties;
use super::work::{MovedBytes, work};
use crate::measure::observation::observed::{self, ObservedOperations};
use crate::measure::observation::plausible::DeviceLimits;
use crate::measure::observation::solo_durations::SoloDurations;
use crate::measure::observation::spans;
use crate::measure::observation::waiting::Iteration;
use crate::measure::record::slots;
use crate::measure::statistics::summary::Summary;

/// The measurements and facts from which the metrics of a variant on one rank are computed.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    /// Number of iterations after which the programs of all ranks repeat.
    pub slots: usize,
    pub time: &'a Samples,
    /// Samples of the run on one stream; `None` if there was none.
    pub serial: Option<&'a Samples>,
    /// Samples by which `speedup` divides those of the run on one stream. Both have the same pace: gated or host-paced.
    pub beside_serial: &'a Samples,
    /// The observed iterations.
    pub traces: &'a [Iteration<'a>],
    /// Durations of operations that run alone; `None` without a run on one stream.
    pub alone: Option<&'a SoloDurations>,
    /// Bytes of device memory in the layout.
    pub memory: u64,
    /// The device's limits.
    pub limits: DeviceLimits<'a>,
    pub device: DeviceProperties<'a>,
    /// Figures that were sampled so far, since metrics may use each many times.
    pub figures: Figures,
}

/// A sample as a quotient. Samples of several slots combine to the sum of numerators over the sum of denominators. A
/// plain amount has the denominator 1, so that amounts combine to their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quotient {
    /// Numerator and denominator.
    pub over: f64,
    pub under: f64,
}

impl Quotient {
    fn plain(over: f64) -> Quotient {
        Quotient { over, under: 1.0 }
    }
}

/// The samples of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureSamples {
    /// A number that does not depend on iterations.
    Constant(f64),
    /// For each slot a number that is known before the run.
    Known(Vec<f64>),
    /// For each slot the samples of its iterations, in order; empty for a slot without that figure.
    Iterations(Vec<Vec<Quotient>>),
    /// For each slot the samples of all operations in all of its iterations.
    Operations(Vec<Vec<f64>>),
}

/// Cached samples, by figure, set of operations, and whether they are of observed iterations only.
pub type Figures = RefCell<FxHashMap<(Figure, String, bool), Result<Rc<FigureSamples>, String>>>;

impl Evidence<'_> {
    /// Samples of a figure for a set of operations; cached. `observed` selects observed iterations, instead of all
    /// measured ones, for a figure of whole iterations.
    pub fn sampled(
        &self,
        figure: Figure,
        set: Option<&OpSet>,
        beside: Option<&OpSet>,
        observed: bool,
    ) -> Result<Rc<FigureSamples>, String> {
        let text = |set: Option<&OpSet>| set.map_or("", |set| set.text.as_str()).to_owned();
        let key = (figure, format!("{}|{}", text(set), text(beside)), observed);
        let known = self.figures.borrow().get(&key).cloned();
        known.unwrap_or_else(|| {
            let sampled = self.figure(figure, set, beside, observed).map(Rc::new);
            self.figures.borrow_mut().insert(key, sampled.clone());
            sampled
        })
    }

    /// Applies a function to the set's operations in each observed iteration. Skips iterations without any of them.
    fn observed<T>(
        &self,
        set: Option<&OpSet>,
        values: impl Fn(&ObservedOperations) -> Result<Vec<T>, String>,
    ) -> Result<Vec<Vec<T>>, String> {
        let mut samples: Vec<Vec<T>> = (0..self.slots).map(|_| Vec::new()).collect();
        let (mut ran, mut took_time) = (false, false);
        for iteration in self.traces {
            let observed = ObservedOperations::of(self.program, self.plan, iteration, set);
            if !observed.spans.is_empty() {
                ran = true;
                took_time |= observed.spans.iter().any(|span| span.end > span.start);
                samples[iteration.trace.slot].extend(values(&observed)?);
            }
        }
        let text = set.map_or("the iteration".to_owned(), |set| format!("`{}`", set.text));
        match (samples.iter().all(Vec::is_empty), ran, self.traces.is_empty()) {
            (false, ..) => Ok(samples),
            (true, _, true) => Err("no iteration was observed operation by operation".to_owned()),
            (true, true, _) if !took_time => Err(format!("the operations of {text} take no time")),
            (true, true, _) => Err(format!("no operation of {text} has what it is measured from")),
            (true, false, _) => Err(format!("no operation that ran belongs to {text}")),
        }
    }

    /// A quotient for each observed iteration; skips iterations without one.
    fn quotients(
        &self,
        set: Option<&OpSet>,
        value: impl Fn(&ObservedOperations) -> Option<Quotient>,
    ) -> Result<FigureSamples, String> {
        self.observed(set, |observed| Ok(value(observed).into_iter().collect())).map(FigureSamples::Iterations)
    }

    /// A time for each observed iteration in which the set does all its work. Fails if the set ran for too short a time for
    /// that work.
    fn worked(&self, set: Option<&OpSet>, value: impl Fn(&ObservedOperations) -> f64) -> Result<FigureSamples, String> {
        let samples = self.observed(set, |observed| {
            self.limits.check(spans::length(&observed.running_spans()), observed.specs())?;
            Ok(vec![Quotient::plain(value(observed))])
        });
        samples.map(FigureSamples::Iterations)
    }

    /// Rate of the bytes of a set, over the time in which any operation that moves some is working. An operation does
    /// not work while it waits for another rank. Fails if the bytes of an operation are unknown.
    fn rate(&self, set: Option<&OpSet>, bytes: impl Fn(&Spec) -> Option<MovedBytes>) -> Result<FigureSamples, String> {
        let samples = self.observed(set, |observed| {
            known_size(observed.specs())?;
            let moving = observed.only(|spec| bytes(spec).is_some());
            let working = moving.working();
            self.limits.check(spans::length(&working), moving.specs())?;
            let time = moving.within(&working);
            let total = moving.specs().filter_map(&bytes).fold(MovedBytes::default(), MovedBytes::and).bytes();
            Ok(if time > 0.0 { vec![Quotient { over: total, under: time }] } else { Vec::new() })
        });
        samples.map(FigureSamples::Iterations)
    }

    /// Iteration times of each slot in ns, limited to complete rounds.
    fn by_slot(&self, samples: &Samples) -> Vec<Vec<f64>> {
        let times: Vec<f64> = samples.time.iter().map(|time| time.0 as f64).collect();
        slots::by_slot(&times, self.slots, samples.first)
    }

    /// Times of the samples in ns, slot by slot. Fails if no device can be as fast.
    fn times(&self, samples: &Samples) -> Result<Vec<Vec<f64>>, String> {
        let times: Vec<f64> = samples.time.iter().map(|time| time.0 as f64).collect();
        let Some(summary) = Summary::of(&slots::rounds(&times, self.slots)) else {
            return Err("no iteration was measured".to_owned());
        };
        if times.len() >= self.slots {
            self.limits.check_round(self.program, summary.p50)?;
        }
        Ok(self.by_slot(samples))
    }

    fn serial(&self) -> Result<Vec<Vec<f64>>, String> {
        let samples = self.serial.map(|samples| self.by_slot(samples));
        samples
            .filter(|samples| samples.iter().any(|slot| !slot.is_empty()))
            .ok_or_else(|| "the serial run was not measured".to_owned())
    }

    /// Work of an iteration of each slot.
    fn works(&self, set: Option<&OpSet>, of: fn((f64, f64)) -> f64) -> Vec<f64> {
        let work_of_slots: Vec<f64> = self.program.cycle.iter().map(|step| of(work(self.program, step, set))).collect();
        (0..self.slots).map(|slot| work_of_slots[slot % work_of_slots.len()]).collect()
    }

    /// Times of the observed iterations of each slot, in ns.
    fn observed_times(&self) -> Vec<Vec<f64>> {
        let mut times = vec![Vec::new(); self.slots];
        for iteration in self.traces {
            times[iteration.trace.slot].push(iteration.trace.time.0 as f64);
        }
        times
    }

    fn figure(
        &self,
        figure: Figure,
        set: Option<&OpSet>,
        beside: Option<&OpSet>,
        observed: bool,
    ) -> Result<FigureSamples, String> {
        let times = || if observed { Ok(self.observed_times()) } else { self.times(self.time) };
        match (figure, set) {
            (Figure::Time, None) => Ok(plain(times()?)),
            (Figure::Time, Some(_)) => self.worked(set, |observed| observed.span()),
            (Figure::Busy, _) => self.worked(set, |observed| observed.busy()),
            (Figure::Overlap, _) => self.quotients(set, |observed| {
                let other = ObservedOperations::of(self.program, self.plan, observed.iteration, beside);
                let busy = observed.busy();
                (busy > 0.0).then(|| Quotient { over: observed.common(&other), under: busy })
            }),
            (Figure::Exposed, None) => self.quotients(None, |observed| {
                let moves = observed.only(|spec| !observed::computes(spec.operation.category()));
                Some(Quotient::plain(moves.exposed()))
            }),
            (Figure::Exposed, Some(_)) => self.quotients(set, |observed| Some(Quotient::plain(observed.exposed()))),
            (Figure::Gap, _) => self.observed(set, |observed| Ok(observed.gaps())).map(FigureSamples::Operations),
            (Figure::Delay, _) => self.observed(set, |observed| Ok(observed.delays())).map(FigureSamples::Operations),
            (Figure::Stretch, _) => {
                let alone = self.alone.ok_or("no operation was timed alone, on one stream")?;
                self.quotients(set, |observed| {
                    let (over, under) = observed.together_and_alone(alone)?;
                    (under > 0.0).then_some(Quotient { over, under })
                })
            }
            (Figure::Flops, set) => Ok(FigureSamples::Known(self.works(set, |(flops, _)| flops))),
            (Figure::Bytes, set) => Ok(FigureSamples::Known(self.works(set, |(_, bytes)| bytes))),
            (Figure::Bandwidth, None) => {
                let ops = self.program.cycle.iter().flat_map(|step| &step.ops);
                known_size(ops.filter_map(|op| self.program.op_spec(op)))?;
                let bytes = self.works(None, |(_, bytes)| bytes);
                let divided = |(times, over): (Vec<f64>, &f64)| {
                    times.into_iter().map(|under| Quotient { over: *over, under }).collect()
                };
                Ok(FigureSamples::Iterations(times()?.into_iter().zip(&bytes).map(divided).collect()))
            }
            (Figure::Bandwidth, Some(_)) => self.rate(set, |spec| Some(MovedBytes::of(spec))),
            (Figure::BusBandwidth, _) => {
                let bytes = |spec: &Spec| Some(MovedBytes::across(ops::bus_bytes(spec)?));
                let observed = |iteration| ObservedOperations::of(self.program, self.plan, iteration, set);
                if !self.traces.is_empty()
                    && !self.traces.iter().any(|one| observed(one).specs().any(ops::moves_between_ranks))
                {
                    return Err("none of these operations moves data between ranks".to_owned());
                }
                self.rate(set, bytes)
            }
            (Figure::CriticalPath, _) => {
                self.quotients(None, |observed| Some(Quotient::plain(observed.critical_path())))
            }
            (Figure::SerialTime, _) => Ok(plain(self.serial()?)),
            (Figure::Speedup, _) => {
                let median = |samples: &Vec<f64>| Summary::of(samples).map_or(f64::NAN, |summary| summary.p50);
                let divided = |(times, serial): (Vec<f64>, &Vec<f64>)| {
                    let over = median(serial);
                    times.into_iter().map(|under| Quotient { over, under }).collect()
                };
                let (serial, times) = (self.serial()?, self.times(self.beside_serial)?);
                Ok(FigureSamples::Iterations(times.into_iter().zip(&serial).map(divided).collect()))
            }
            (Figure::Slack, _) => self.observed(set, |observed| Ok(observed.slacks())).map(FigureSamples::Operations),
            (Figure::Utilization, _) => self.quotients(set, |observed| {
                let under = observed.iteration.trace.time.0 as f64;
                (under > 0.0).then(|| Quotient { over: observed.busy(), under })
            }),
            (Figure::MemoryPeak, _) => Ok(FigureSamples::Constant(self.memory as f64)),
            (Figure::DeviceUnits, _) => self.device.units().map(FigureSamples::Constant),
            (Figure::DeviceMemory, _) => self.device.memory().map(FigureSamples::Constant),
            (Figure::DeviceBandwidth, _) => self.device.bandwidth().map(FigureSamples::Constant),
            (Figure::DeviceFlops, _) => self.device.flops(self.program).map(FigureSamples::Constant),
        }
    }
}

/// Fails if a tensor determines how many bytes an operation moves between ranks.
fn known_size<'s>(specs: impl IntoIterator<Item = &'s Spec>) -> Result<(), String> {
    match specs.into_iter().find(|spec| ops::has_unknown_size(spec)) {
        Some(spec) => {
            Err(format!("a tensor determines the size of `{}`, so its rate is unknown", spec.operation.name()))
        }
        None => Ok(()),
    }
}

/// Wraps plain amounts as samples.
fn plain(samples: Vec<Vec<f64>>) -> FigureSamples {
    let quotients = |samples: Vec<f64>| samples.into_iter().map(Quotient::plain).collect();
    FigureSamples::Iterations(samples.into_iter().map(quotients).collect())
}
