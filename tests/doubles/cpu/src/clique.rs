//! The ranks of a communicator: threads of one process that meet at each collective. The last to come does the work of
//! all, since until then nobody may touch any of the memory.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::element::Element;

/// `ncclRedOp_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    Sum,
    Product,
    Max,
    Min,
    Mean,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    AllReduce(Reduction),
    /// `count` is what each rank gives.
    AllGather,
    /// `count` is what each rank gets.
    ReduceScatter(Reduction),
    Broadcast(usize),
    Reduce(Reduction, usize),
    /// `count` is what goes from one rank to another.
    AllToAll,
    /// One side of a transfer, with the other's rank.
    Send(usize),
    Recv(usize),
}

/// A rank's part of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub kind: Kind,
    pub element: Element,
    pub count: usize,
    pub source: usize,
    pub target: usize,
}

/// Which collective of a communicator: the same number on every rank. A transfer is numbered by its two sides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub pair: Option<(usize, usize)>,
    /// In the order in which they were issued.
    pub issued: u64,
    /// How often this collective has run before, since a graph repeats it.
    pub round: u64,
}

struct Meeting {
    parts: Vec<Option<Part>>,
    done: bool,
    left: usize,
}

#[derive(Default)]
struct State {
    meetings: HashMap<Key, Meeting>,
    aborted: bool,
}

pub struct Clique {
    pub ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A collective that makes no sense, or was given up.
pub struct Broken;

impl Clique {
    pub fn new(ranks: usize) -> Arc<Clique> {
        Arc::new(Clique { ranks, state: Mutex::default(), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn abort(&self) {
        self.state().aborted = true;
        self.changed.notify_all();
    }

    /// Comes with a part, without waiting.
    pub fn bring(&self, key: Key, rank: usize, part: Part) -> Result<(), Broken> {
        let size = if key.pair.is_some() { 2 } else { self.ranks };
        let place = match key.pair {
            Some((from, _)) => usize::from(rank != from || part.kind == Kind::Recv(rank)),
            None => rank,
        };
        let mut state = self.state();
        let meeting =
            state.meetings.entry(key).or_insert_with(|| Meeting { parts: vec![None; size], done: false, left: size });
        meeting.parts[place] = Some(part);
        let parts: Option<Vec<Part>> = meeting.parts.iter().copied().collect();
        if let Some(parts) = parts {
            // SAFETY: every rank has come, and waits until this is done.
            unsafe { perform(&parts)? };
            meeting.done = true;
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits until all have come.
    pub fn part(&self, key: Key) -> Result<(), Broken> {
        let open = |state: &mut State| !state.aborted && !state.meetings[&key].done;
        let waited = self.changed.wait_while(self.state(), open);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(meeting) = state.meetings.get_mut(&key).filter(|meeting| meeting.done) else { return Err(Broken) };
        meeting.left -= 1;
        if meeting.left == 0 {
            state.meetings.remove(&key);
        }
        Ok(())
    }
}

/// # Safety
/// All memory of the parts is there, and nobody uses it.
unsafe fn perform(parts: &[Part]) -> Result<(), Broken> {
    let first = parts[0];
    let Part { element, count, .. } = first;
    if let (Kind::Send(_), Kind::Recv(_)) = (first.kind, parts[parts.len() - 1].kind) {
        let received = parts[1];
        if received.count != count || received.element != element {
            return Err(Broken);
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { move_bytes(first.source, received.target, count * element.size()) };
        return Ok(());
    }
    let alike = |part: &Part| part.kind == first.kind && part.count == count && part.element == element;
    if !parts.iter().all(alike) {
        return Err(Broken);
    }
    let ranks = parts.len();
    // Everything is read before anything is written: a rank may work in place.
    // SAFETY: the caller vouches for the memory.
    unsafe {
        match first.kind {
            Kind::AllReduce(reduction) => {
                let sums = reduce(parts, 0, count, reduction);
                parts.iter().for_each(|part| write(part, &sums));
            }
            Kind::Reduce(reduction, root) => {
                let sums = reduce(parts, 0, count, reduction);
                write(parts.get(root).ok_or(Broken)?, &sums);
            }
            Kind::ReduceScatter(reduction) => {
                let sums: Vec<_> = (0..ranks).map(|rank| reduce(parts, rank * count, count, reduction)).collect();
                parts.iter().zip(&sums).for_each(|(part, sums)| write(part, sums));
            }
            Kind::AllGather => {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| read(part, count)).collect();
                parts.iter().for_each(|part| write_bytes(part.target, &bytes));
            }
            Kind::Broadcast(root) => {
                let bytes = read(parts.get(root).ok_or(Broken)?, count);
                parts.iter().for_each(|part| write_bytes(part.target, &bytes));
            }
            Kind::AllToAll => {
                let sent: Vec<Vec<u8>> = parts.iter().map(|part| read(part, count * ranks)).collect();
                let size = count * element.size();
                for (rank, part) in parts.iter().enumerate() {
                    let bytes: Vec<u8> =
                        sent.iter().flat_map(|sent| sent[rank * size..(rank + 1) * size].iter().copied()).collect();
                    write_bytes(part.target, &bytes);
                }
            }
            Kind::Send(_) | Kind::Recv(_) => return Err(Broken),
        }
    }
    Ok(())
}

/// # Safety
/// As for [`perform`].
unsafe fn reduce(parts: &[Part], from: usize, count: usize, reduction: Reduction) -> Vec<f64> {
    let element = parts[0].element;
    let one = |index: usize| {
        // SAFETY: the caller vouches for the memory.
        let mut values = parts.iter().map(|part| unsafe { element.load(part.source, from + index) });
        let first = values.next().unwrap_or(0.0);
        let all = values.fold(first, |a, b| match reduction {
            Reduction::Sum | Reduction::Mean => a + b,
            Reduction::Product => a * b,
            Reduction::Max => a.max(b),
            Reduction::Min => a.min(b),
        });
        match reduction {
            Reduction::Mean if element.whole() => (all / parts.len() as f64).trunc(),
            Reduction::Mean => all / parts.len() as f64,
            _ => all,
        }
    };
    (0..count).map(one).collect()
}

/// # Safety
/// As for [`perform`].
unsafe fn write(part: &Part, values: &[f64]) {
    for (index, &value) in values.iter().enumerate() {
        // SAFETY: the caller vouches for the memory.
        unsafe { part.element.store(part.target, index, value) };
    }
}

/// # Safety
/// As for [`perform`].
unsafe fn read(part: &Part, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * part.element.size()];
    // SAFETY: the caller vouches for the memory.
    unsafe { move_bytes(part.source, bytes.as_mut_ptr() as usize, bytes.len()) };
    bytes
}

/// # Safety
/// As for [`perform`].
unsafe fn write_bytes(target: usize, bytes: &[u8]) {
    // SAFETY: the caller vouches for the memory.
    unsafe { move_bytes(bytes.as_ptr() as usize, target, bytes.len()) };
}

/// # Safety
/// As for [`perform`].
unsafe fn move_bytes(from: usize, to: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller vouches for the memory.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    }
}
