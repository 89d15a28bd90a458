//! Counts hardware events of chosen operations, in a run of its own: the operations of an iteration run one after the other,
//! and the device counts while a chosen one runs.

use crate::base::OpId;
use crate::exec::run::session::device;
use crate::exec::{Control, ExecError, LaunchMode, Ranks, Session};

use super::counters::{CountedOperation, Counters};

/// Maximum number of times that an operation runs until all of its metrics are counted.
const MAX_PASSES: u64 = 64;

impl Ranks {
    /// Counts hardware events of the chosen operations of the first slot. The program must have a single rank. Counts fewer if
    /// the run is stopped. The inner error is the reason in words why the device cannot count.
    pub fn count(
        &mut self,
        chosen: &[OpId],
        control: &Control,
    ) -> Result<Result<Vec<CountedOperation>, String>, ExecError> {
        let count = |session: &mut Session| {
            let counted = session.count(chosen, control);
            counted.map_err(|error| session.explained(error, 0, control))
        };
        let (_, counted) = self.each_or_none("counters", control, count, |_| ())?;
        Ok(counted.into_iter().flatten().next().unwrap_or_else(|| Ok(Vec::new())))
    }
}

impl Session {
    fn count(
        &mut self,
        chosen: &[OpId],
        control: &Control,
    ) -> Result<Result<Vec<CountedOperation>, String>, ExecError> {
        self.set_up(control)?;
        self.begin();
        let period = self.period() as u64;
        // Libraries load code when an operation first runs, which is not to be counted.
        let mut iteration = 0;
        while iteration < period {
            if !self.step_alone(&mut iteration, None, control)? {
                return Ok(Ok(Vec::new()));
            }
        }
        let mut counters = match self.driver.counters() {
            Ok(counters) => counters,
            Err(why) => return Ok(Err(why)),
        };
        let mut counted = Vec::new();
        for &op in chosen {
            let mut pass = CountingPass { op, counters: counters.as_mut(), complete: Ok(false) };
            let mut passes = 0;
            while pass.complete == Ok(false) {
                if passes == MAX_PASSES {
                    return Ok(Err(format!(
                        "the operation ran {MAX_PASSES} times, and the vendor's library asks for more to count every metric"
                    )));
                }
                // Only the first iteration of a period has the operations that were chosen.
                let is_first = iteration.is_multiple_of(period);
                passes += u64::from(is_first);
                if !self.step_alone(&mut iteration, is_first.then_some(&mut pass), control)? {
                    return Ok(Ok(counted));
                }
            }
            let counts = match pass.complete.and_then(|_| counters.values()) {
                Ok(counts) => counts,
                Err(why) => return Ok(Err(why)),
            };
            counted.push(CountedOperation { op, passes, counts });
        }
        Ok(Ok(counted))
    }

    /// Issues an iteration, each operation when the one before it has completed, and counts while that of `pass` runs. Returns
    /// false if the run was stopped.
    fn step_alone(
        &mut self,
        iteration: &mut u64,
        mut pass: Option<&mut CountingPass>,
        control: &Control,
    ) -> Result<bool, ExecError> {
        if !self.stopping.may_begin(*iteration, control.stopped()) {
            return Ok(false);
        }
        let outline = self.lowered.outline.clone();
        let mut ids = outline.period[self.index(*iteration)].ops.iter();
        self.issue_by(*iteration, |session, op, _| {
            let id = ids.next().copied();
            let mut counts = pass.as_deref_mut().filter(|pass| Some(pass.op) == id);
            session.driver.synchronize().map_err(device)?;
            counts.iter_mut().for_each(|pass| pass.begin());
            session.progress.begin_operation(op);
            session.driver.launch(op).map_err(device)?;
            session.driver.synchronize().map_err(device)?;
            counts.iter_mut().for_each(|pass| pass.end());
            Ok(())
        })?;
        let retired = self.retire(LaunchMode::Stream, *iteration, control)?;
        *iteration += 1;
        Ok(retired.is_some())
    }
}

/// The passes of an operation.
struct CountingPass<'a> {
    op: OpId,
    counters: &'a mut dyn Counters,
    /// True if all passes are complete; an error with the reason in words if they cannot be counted.
    complete: Result<bool, String>,
}

impl CountingPass<'_> {
    fn begin(&mut self) {
        self.complete = self.counters.begin().map(|()| false);
    }

    fn end(&mut self) {
        if self.complete.is_ok() {
            self.complete = self.counters.end();
        }
    }
}
