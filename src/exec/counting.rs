//! Counts hardware events of chosen operations, in runs of their own: the operations of an iteration run one after the
//! other, and the device counts while a chosen one runs alone.

use crate::base::OpId;

use super::control::Control;
use super::counters::{Count, Counted, Counters, Metric};
use super::error::ExecError;
use super::image::Step;
use super::ranks::Ranks;
use super::session::{LaunchMode, Session, device};

/// Most times that an operation runs until all of its metrics are counted.
const MOST_PASSES: u64 = 64;

impl Ranks {
    /// Counts for each of some operations of the first iteration, on the only rank. The inner error says in words why the
    /// device cannot count.
    pub fn count(&mut self, chosen: &[OpId], control: &Control) -> Result<Result<Vec<Counted>, String>, ExecError> {
        if self.numbers.len() != 1 || self.sessions.len() != 1 {
            return Ok(Err("operations of several ranks wait for each other, so that none can run alone".to_owned()));
        }
        let count = |session: &mut Session| session.count(chosen, control);
        let (_, counted) = self.each_or_none("counters", control, count, |_| ())?;
        Ok(counted.into_iter().flatten().next().unwrap_or_else(|| Ok(Vec::new())))
    }
}

impl Session {
    fn count(&mut self, chosen: &[OpId], control: &Control) -> Result<Result<Vec<Counted>, String>, ExecError> {
        self.set_up(control)?;
        self.begin();
        let mut counters = match self.driver.counters() {
            Ok(counters) => counters,
            Err(why) => return Ok(Err(why)),
        };
        let mut counted = Vec::new();
        let mut iteration: u64 = 0;
        let period = self.period() as u64;
        for &op in chosen {
            let first = iteration;
            loop {
                // Only the first iteration of a period has the operations that were chosen.
                let wanted = iteration.is_multiple_of(period).then_some(op);
                let complete = match self.counting(iteration, wanted, counters.as_mut())? {
                    Ok(complete) => complete,
                    Err(why) => return Ok(Err(why)),
                };
                if self.retire(LaunchMode::Stream, iteration, control)?.is_none() {
                    return Ok(Ok(counted));
                }
                iteration += 1;
                if complete {
                    break;
                }
                if (iteration - first) / period > MOST_PASSES {
                    return Ok(Err(format!("the counts of {MOST_PASSES} passes are not complete")));
                }
            }
            let passes = (iteration - first).div_ceil(period);
            let values = match counters.values() {
                Ok(values) => values,
                Err(why) => return Ok(Err(why)),
            };
            let count = |(metric, value): (&Metric, f64)| Count {
                metric: metric.name.to_owned(),
                text: metric.text.to_owned(),
                unit: metric.unit.to_owned(),
                value,
            };
            counted.push(Counted { op, passes, counts: counters.metrics().iter().zip(values).map(count).collect() });
        }
        Ok(Ok(counted))
    }

    /// Issues an iteration, each operation when the one before it has completed. Counts while `chosen` runs, and returns true
    /// once its counts are complete.
    fn counting(
        &mut self,
        iteration: u64,
        chosen: Option<OpId>,
        counters: &mut dyn Counters,
    ) -> Result<Result<bool, String>, ExecError> {
        let index = self.index(iteration);
        let origin = self.origin(index);
        self.issued = iteration + 1;
        self.driver.stamp(Self::begin_stamp(iteration), origin).map_err(device)?;
        self.follow(index, origin, Self::begin_stamp(iteration))?;
        let outline = self.lowered.outline.clone();
        let step = &outline.period[index];
        let mut ids = step.ops.iter();
        let mut complete = Ok(false);
        for command in &step.commands {
            match *command {
                Step::Record { event, lane } => self.driver.record(event, lane).map_err(device)?,
                Step::Wait { event, lane, .. } => self.driver.wait(lane, event).map_err(device)?,
                Step::HostSync => self.driver.synchronize().map_err(device)?,
                Step::Launch { op, .. } => {
                    let counts = chosen.is_some() && ids.next().copied() == chosen && complete.is_ok();
                    self.driver.synchronize().map_err(device)?;
                    if counts {
                        complete = counters.begin().map(|()| false);
                    }
                    self.progress.begin_operation(op);
                    self.driver.launch(op).map_err(device)?;
                    self.driver.synchronize().map_err(device)?;
                    if counts && complete.is_ok() {
                        complete = counters.end();
                    }
                }
            }
        }
        self.progress.wait_for_device();
        self.join(index, origin)?;
        self.driver.stamp(Self::end_stamp(iteration), origin).map_err(device)?;
        Ok(complete)
    }
}
