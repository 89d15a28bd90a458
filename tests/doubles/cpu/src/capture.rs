//! Captures: streams whose work becomes nodes of a graph.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use crate::graph::{Graph, Node};
use crate::status::{
    CAPTURE_INVALIDATED, CAPTURE_UNJOINED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD, Done,
};
use crate::stream::{Stream, Task};

/// `hipStreamCaptureMode`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

pub struct Capture {
    mode: Mode,
    thread: ThreadId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: Vec<Node>,
    /// Each stream that takes part, the first being where it began, with the nodes that its next one comes behind.
    lanes: Vec<(Arc<Stream>, Vec<usize>)>,
    invalid: bool,
    ended: bool,
}

/// Captures that have not ended.
static OPEN: Mutex<Vec<Weak<Capture>>> = Mutex::new(Vec::new());

/// Refuses a call that no capture allows, and breaks the captures that this call may break.
pub fn forbid() -> Done {
    let open: Vec<_> = OPEN.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
    let mut broken = false;
    for capture in open {
        let concerned = match capture.mode {
            Mode::Global => true,
            Mode::ThreadLocal => capture.thread == thread::current().id(),
            Mode::Relaxed => false,
        };
        if concerned {
            capture.invalidate();
            broken = true;
        }
    }
    if broken { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

impl Capture {
    pub fn begin(stream: &Arc<Stream>, mode: Mode) {
        let lanes = vec![(stream.clone(), Vec::new())];
        let state = Mutex::new(State { lanes, ..State::default() });
        let capture = Arc::new(Capture { mode, thread: thread::current().id(), state });
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&capture));
        stream.set_capture(Some(capture));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn invalidate(&self) {
        self.state().invalid = true;
    }

    pub fn invalid(&self) -> bool {
        self.state().invalid
    }

    pub fn ended(&self) -> bool {
        self.state().ended
    }

    fn valid(&self) -> Done<MutexGuard<'_, State>> {
        let state = self.state();
        if state.invalid { Err(CAPTURE_INVALIDATED) } else { Ok(state) }
    }

    pub fn add(&self, stream: &Arc<Stream>, task: Task) -> Done {
        let mut state = self.valid()?;
        let number = state.nodes.len();
        let lane = state.lane(stream)?;
        let after = std::mem::replace(&mut state.lanes[lane].1, vec![number]);
        state.nodes.push(Node { task, after, lane, device: stream.device });
        Ok(())
    }

    /// The nodes that precede an event recorded on the stream.
    pub fn tail(&self, stream: &Arc<Stream>) -> Done<Vec<usize>> {
        let state = self.valid()?;
        let lane = state.lane(stream)?;
        Ok(state.lanes[lane].1.clone())
    }

    /// Lets the stream's next node come behind these; a stream that is not yet part of the capture becomes one.
    pub fn join(self: &Arc<Self>, stream: &Arc<Stream>, nodes: &[usize]) -> Done {
        let mut state = self.valid()?;
        let lane = state.lane(stream).unwrap_or_else(|_| {
            stream.set_capture(Some(self.clone()));
            state.lanes.push((stream.clone(), Vec::new()));
            state.lanes.len() - 1
        });
        let tail = &mut state.lanes[lane].1;
        tail.extend(nodes);
        tail.sort_unstable();
        tail.dedup();
        Ok(())
    }

    pub fn end(&self, stream: &Arc<Stream>) -> Done<Graph> {
        let mut state = self.state();
        if !Arc::ptr_eq(&state.lanes[0].0, stream) {
            state.invalid = true;
            return Err(CAPTURE_UNMATCHED);
        }
        if self.mode != Mode::Relaxed && self.thread != thread::current().id() {
            return Err(CAPTURE_WRONG_THREAD);
        }
        state.ended = true;
        for (stream, _) in &state.lanes {
            stream.set_capture(None);
        }
        // An event may still tell of it.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|capture| !std::ptr::eq(capture.as_ptr(), self));
        drop(open);
        if state.invalid {
            return Err(CAPTURE_INVALIDATED);
        }
        if !state.joined() {
            return Err(CAPTURE_UNJOINED);
        }
        Ok(Graph { lanes: state.lanes.len(), nodes: std::mem::take(&mut state.nodes) })
    }
}

impl State {
    fn lane(&self, stream: &Arc<Stream>) -> Done<usize> {
        self.lanes.iter().position(|(known, _)| Arc::ptr_eq(known, stream)).ok_or(CAPTURE_UNMATCHED)
    }

    /// True if the first stream has joined all others.
    fn joined(&self) -> bool {
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        let mut next: Vec<usize> = self.lanes[0].1.clone();
        while let Some(node) = next.pop() {
            if seen.insert(node) {
                next.extend(&self.nodes[node].after);
            }
        }
        self.lanes.iter().flat_map(|(_, tail)| tail).all(|node| seen.contains(node))
    }
}
