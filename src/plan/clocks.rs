//! Vector clocks over queues: the operations that are known to be complete when an operation starts.
//!
//! A queue runs its operations in order, so a clock holds for each queue the number of its operations that are
//! complete. Used on the program's streams to find races, and on a schedule's lanes to find the necessary waits.

use std::collections::VecDeque;

use super::clock::VectorClock;

/// A position in a queue: after its `number`-th operation, counted from 1.
///
/// If `marker` is not 0, nothing runs at this position, such as at a `signal`. It represents the operations that are
/// known to be complete there: the operations before it, on its queue and on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePosition {
    pub queue: u32,
    pub number: u32,
    pub marker: u32,
}

/// The clocks of all queues. Operations are added in the order of issue.
#[derive(Debug)]
pub struct Clocks {
    queues: Vec<Queue>,
}

/// A queue at its current end.
#[derive(Debug)]
struct Queue {
    /// Operations of other queues that are complete when the last operation of this queue ends. `length` counts its
    /// own.
    clock: VectorClock,
    /// Number of operations of the queue.
    length: u32,
    /// Number of markers of the queue.
    markers: u32,
    /// Clocks after those operations for which later operations wait, by the operation's number.
    operations: SavedClocks,
    /// Clocks at those markers for which later operations wait, by the marker's number.
    at_markers: SavedClocks,
}

/// The clock at a position.
#[derive(Debug)]
struct Saved {
    clock: VectorClock,
    /// Number of operations of the position's own queue that are complete there.
    length: u32,
    /// Number of later operations that are going to wait for this position.
    uses: u32,
}

/// Saved clocks of a queue, from the first position that is still needed on.
#[derive(Debug, Default)]
struct SavedClocks {
    first: u32,
    saved: VecDeque<Option<Saved>>,
}

impl SavedClocks {
    fn get(&self, number: u32) -> Option<&Saved> {
        self.saved.get(number.checked_sub(self.first)? as usize)?.as_ref()
    }

    fn push(&mut self, number: u32, saved: Option<Saved>) {
        if self.saved.is_empty() {
            self.first = number;
        }
        if saved.is_some() || !self.saved.is_empty() {
            self.saved.push_back(saved);
        }
    }

    /// Removes one use of a position, and the positions at the front that have no uses.
    fn release(&mut self, number: u32) {
        let Some(index) = number.checked_sub(self.first) else { return };
        let Some(slot) = self.saved.get_mut(index as usize) else { return };
        if let Some(saved) = slot {
            saved.uses -= 1;
            if saved.uses == 0 {
                *slot = None;
            }
        }
        while let Some(None) = self.saved.front() {
            self.saved.pop_front();
            self.first += 1;
        }
    }
}

impl Clocks {
    pub fn new(queues: usize) -> Self {
        let clock = VectorClock::new(queues);
        let queue = || Queue {
            clock: clock.clone(),
            length: 0,
            markers: 0,
            operations: SavedClocks::default(),
            at_markers: SavedClocks::default(),
        };
        Clocks { queues: (0..queues).map(|_| queue()).collect() }
    }

    /// True if everything that is complete at `place` is known to be complete before the next operation of `queue`.
    pub fn knows(&self, queue: u32, place: QueuePosition) -> bool {
        if queue == place.queue {
            return true;
        }
        let known = &self.queues[queue as usize].clock;
        if known.get(place.queue) < place.number {
            return false;
        }
        match self.queues[place.queue as usize].saved(place).filter(|_| place.marker != 0) {
            Some(saved) => (0..)
                .zip(known.iter().zip(saved.clock.iter()))
                .all(|(of, (known, needed))| of == queue || known >= needed),
            // A released marker has no further waiters, so the answer does not matter.
            None => true,
        }
    }

    /// True if a wait for `by` implies a wait for `place`. The clock at `by` must still be saved.
    pub fn implies(&self, by: QueuePosition, place: QueuePosition) -> bool {
        let known = match self.queues[by.queue as usize].saved(by) {
            Some(saved) if by.queue != place.queue => saved.clock.get(place.queue),
            Some(_) | None if by.queue == place.queue => by.number,
            _ => 0,
        };
        known >= place.number
    }

    /// Number of operations that are complete at `place`, whose clock must still be saved. A position that implies
    /// another one has a larger number; equivalent positions have equal numbers.
    pub fn weight(&self, place: QueuePosition) -> u64 {
        match self.queues[place.queue as usize].saved(place) {
            Some(saved) => {
                let all: u64 = saved.clock.iter().map(u64::from).sum();
                all - u64::from(saved.clock.get(place.queue)) + u64::from(saved.length)
            }
            None => u64::from(place.number),
        }
    }

    /// Makes the next operation of `queue` wait for `place`, and removes one use of that position.
    pub fn wait(&mut self, queue: u32, place: QueuePosition) {
        // A queue's clock always includes its own operations.
        if let Ok([own, other]) = self.queues.get_disjoint_mut([queue as usize, place.queue as usize]) {
            if let Some(saved) = other.saved(place) {
                own.clock.join(&saved.clock);
            }
            own.clock.raise(place.queue, place.number);
        }
        self.release(place);
    }

    /// Removes one use of `place`: an operation does not wait for it after all.
    pub fn release(&mut self, place: QueuePosition) {
        let queue = &mut self.queues[place.queue as usize];
        match place.marker {
            0 => queue.operations.release(place.number),
            marker => queue.at_markers.release(marker),
        }
    }

    /// Adds an operation to `queue` and returns its position. The clock there is kept until it was used `uses` times.
    pub fn push(&mut self, queue: u32, uses: u32) -> QueuePosition {
        let own = &mut self.queues[queue as usize];
        own.length += 1;
        let saved = own.save(uses);
        own.operations.push(own.length, saved);
        QueuePosition { queue, number: own.length, marker: 0 }
    }

    /// Adds a marker to `queue`, a position at which nothing runs, and returns it. The clock there is kept until it was
    /// used `uses` times.
    pub fn push_marker(&mut self, queue: u32, uses: u32) -> QueuePosition {
        let own = &mut self.queues[queue as usize];
        own.markers += 1;
        let saved = own.save(uses);
        own.at_markers.push(own.markers, saved);
        QueuePosition { queue, number: own.length, marker: own.markers }
    }

    /// Notes for all queues that the first `places[q]` operations of each queue `q` are complete.
    pub fn complete(&mut self, places: &[u32]) {
        let complete = VectorClock::from(places);
        for queue in &mut self.queues {
            queue.clock.join(&complete);
        }
    }

    /// Returns the number of operations of each queue.
    pub fn lengths(&self) -> Vec<u32> {
        self.queues.iter().map(|queue| queue.length).collect()
    }
}

impl Queue {
    fn saved(&self, place: QueuePosition) -> Option<&Saved> {
        match place.marker {
            0 => self.operations.get(place.number),
            marker => self.at_markers.get(marker),
        }
    }

    fn save(&self, uses: u32) -> Option<Saved> {
        (uses > 0).then(|| Saved { clock: self.clock.clone(), length: self.length, uses })
    }
}
