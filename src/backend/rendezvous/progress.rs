//! Progress of ranks, carried by heartbeats, which distinguishes a rank that works from one that is stuck.

use std::time::{Duration, Instant};

use crate::base::threads::lock;

use super::frame::{Frame, FrameKind};
use super::{ConnectionState, RendezvousState};

/// Progress of another rank by its latest heartbeat.
pub(super) struct HeartbeatProgress {
    /// Number of the rank's next step, counted from 0.
    step_number: u64,
    /// Progress counter of the rank's process.
    work: u64,
    /// True if the rank waits for others.
    waiting: bool,
    /// Name of the rank's last step; empty before the first.
    step: String,
    /// Time at which one of the other fields last changed.
    since: Instant,
}

impl RendezvousState {
    /// Begins this process's next step, whose name is `what`. Returns its number.
    pub(super) fn enter(&self, what: &str) -> u64 {
        let mut state = lock(&self.state);
        let step_number = state.step_number;
        state.step_number += 1;
        what.clone_into(&mut state.step);
        state.waiting = true;
        step_number
    }

    /// Returns a heartbeat: the number of the next step, the name of the last one, whether this rank waits, and its
    /// progress counter.
    pub(super) fn heartbeat(&self, state: &ConnectionState) -> Frame {
        let work = self.work.get().map_or(0, |work| work());
        let mut bytes = vec![u8::from(state.waiting)];
        bytes.extend(work.to_le_bytes());
        Frame::new(FrameKind::Heartbeat, self.rank, state.step_number).with_text(&state.step).with_bytes(bytes)
    }

    /// Processes a heartbeat that another rank has sent.
    pub(super) fn note_heartbeat(&self, from: u32, heartbeat: &Frame) {
        let Some((waiting, work)) = heartbeat.bytes.split_first_chunk::<1>() else { return };
        let Ok(work) = work.try_into().map(u64::from_le_bytes) else { return };
        let waiting = waiting[0] != 0;
        let mut state = lock(&self.state);
        let known = state.progress.get(&from).map(|known| (known.step_number, known.work, known.waiting));
        // Rank 0, while it waits, supervises the others itself, so it does not count as stuck.
        let is_changed = known != Some((heartbeat.step_number, work, waiting)) || (from == 0 && waiting);
        if is_changed {
            let (step_number, step, since) = (heartbeat.step_number, heartbeat.text.clone(), Instant::now());
            state.progress.insert(from, HeartbeatProgress { step_number, work, waiting, step, since });
        }
    }

    /// Returns the reason to stop waiting for rank `from` at a step, if the waiting began at `since`; `None` while the
    /// rank makes progress or may still do so.
    pub(super) fn stalled(&self, state: &ConnectionState, from: u32, what: &str, since: Instant) -> Option<String> {
        let known = state.progress.get(&from);
        let still = known.map_or(since, |known| known.since.max(since)).elapsed();
        if still < self.stall {
            return None;
        }
        let place = known.map(|known| known.step.as_str()).filter(|place| !place.is_empty());
        let place = place.map_or("since it began".to_owned(), |place| format!("since its {place}"));
        Some(format!(
            "it is alive and has made no progress for {} {place}, while other ranks wait for it in the phase \
             `{what}`; `--config stall=…` changes how long that may take",
            seconds(self.stall)
        ))
    }
}

/// Formats a duration in whole seconds, or exactly if it is short.
fn seconds(time: Duration) -> String {
    if time.as_secs() > 0 { format!("{} s", time.as_secs()) } else { format!("{time:?}") }
}
