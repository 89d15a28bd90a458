//! Graphs of iterations, captured from the calls that issue them.

use std::collections::BTreeSet;

use crate::exec::observe::Timing;
use crate::exec::run::session::device;
use crate::exec::{ExecError, Session};

use super::image::ImageCommand;
use super::{CommandOutline, LoweredSchedule};

impl Session {
    /// Captures the graphs of the period. Fails if the device refuses a capture; the session can still launch streams.
    pub fn capture(&mut self) -> Result<(), ExecError> {
        if self.graphs.is_empty() {
            let mut graphs = Vec::with_capacity(self.lowered.outline.period.len());
            for index in 0..self.lowered.outline.period.len() {
                graphs.push(self.capture_step(index, None)?);
            }
            self.graphs = graphs;
        }
        Ok(())
    }

    /// Captures the graph of an iteration of the period and returns its number. `observed` is the method of timing
    /// operations; `None` for a graph that is not observed.
    pub(in crate::exec) fn capture_step(&mut self, index: usize, observed: Option<Timing>) -> Result<u32, ExecError> {
        let stamp_lane = self.stamp_lane(index);
        self.driver.begin_capture(stamp_lane).map_err(device)?;
        let issued = self.fork(index, stamp_lane).and_then(|()| self.commands(index, observed, true));
        let issued = issued.and_then(|()| self.join(index, stamp_lane));
        // A capture must be ended even if it failed.
        let graph = self.driver.end_capture(stamp_lane).map_err(device);
        let recorded = self.record_again(index);
        issued?;
        let graph = graph?;
        recorded.map(|()| graph)
    }

    /// Records the events of an iteration for which later iterations wait. This is needed because no stream can wait
    /// for an event that was last recorded in a capture, and iterations launched as streams may follow.
    fn record_again(&mut self, index: usize) -> Result<(), ExecError> {
        let Session { driver, lowered: LoweredSchedule { outline: CommandOutline { period, .. }, .. }, .. } = self;
        let commands = period.iter().flat_map(|step| &step.commands);
        let awaited: BTreeSet<u32> = commands
            .filter_map(|command| match command {
                ImageCommand::Wait { event, across: true, .. } => Some(*event),
                _ => None,
            })
            .collect();
        for command in &period[index].commands {
            if let ImageCommand::Record { event, lane } = *command
                && awaited.contains(&event)
            {
                driver.record(event, lane).map_err(device)?;
            }
        }
        Ok(())
    }
}
