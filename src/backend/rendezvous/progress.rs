//! How far each rank is: heartbeats carry it, so that a rank that is alive and stuck is told from one that works.

use std::time::{Duration, Instant};

use super::frame::{Frame, FrameKind};
use super::{Shared, State};

/// How far another rank is, as its last heartbeat says.
pub(super) struct Progress {
    /// The place that it comes to next, counted from 0.
    turn: u64,
    /// Its count of what it has done.
    work: u64,
    /// It waits for others.
    waiting: bool,
    /// The last place that it came to; empty before the first.
    place: String,
    /// The moment when any of this changed last.
    since: Instant,
}

impl Shared {
    /// This process comes to its next place. Returns the number of that.
    pub(super) fn enter(&self, what: &str) -> u64 {
        let mut state = self.state();
        let turn = state.turn;
        state.turn += 1;
        what.clone_into(&mut state.place);
        state.waiting = true;
        turn
    }

    /// A heartbeat: the number of the next place, the name of the last, and then whether this rank waits, and its work.
    pub(super) fn heartbeat(&self, state: &State) -> Frame {
        let work = self.work.get().map_or(0, |work| work());
        let mut bytes = vec![u8::from(state.waiting)];
        bytes.extend(work.to_le_bytes());
        Frame::new(FrameKind::Alive, self.rank, state.turn).with_text(&state.place).with_bytes(bytes)
    }

    /// Takes the heartbeat of another rank.
    pub(super) fn note_heartbeat(&self, from: u32, alive: &Frame) {
        let Some((waiting, work)) = alive.bytes.split_first_chunk::<1>() else { return };
        let Ok(work) = work.try_into().map(u64::from_le_bytes) else { return };
        let waiting = waiting[0] != 0;
        let mut state = self.state();
        let known = state.progress.get(&from).map(|known| (known.turn, known.work, known.waiting));
        // As long as rank 0 waits for others, it sees to it that none of them is waited for without end.
        let is_changed = known != Some((alive.turn, work, waiting)) || (from == 0 && waiting);
        if is_changed {
            let (turn, place, since) = (alive.turn, alive.text.clone(), Instant::now());
            state.progress.insert(from, Progress { turn, work, waiting, place, since });
        }
    }

    /// Why a rank is waited for no longer at a place, where this one has waited from a moment on; `None` while the other
    /// makes progress, or may.
    pub(super) fn stalled(&self, state: &State, from: u32, what: &str, since: Instant) -> Option<String> {
        let known = state.progress.get(&from);
        let still = known.map_or(since, |known| known.since.max(since)).elapsed();
        if still < self.stall {
            return None;
        }
        let place = known.map(|known| known.place.as_str()).filter(|place| !place.is_empty());
        let place = place.map_or("since it began".to_owned(), |place| format!("since its {place}"));
        Some(format!(
            "it is alive and has made no progress for {} {place}, while others wait for it at their {what}; `--config \
             stall=…` changes how long that may take",
            seconds(self.stall)
        ))
    }
}

/// A time in whole seconds, or as precise as it is where it is short.
fn seconds(time: Duration) -> String {
    if time.as_secs() > 0 { format!("{} s", time.as_secs()) } else { format!("{time:?}") }
}
