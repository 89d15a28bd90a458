//! Digest of a simulation's state, independent of its time. Simulations with equal digests continue in the same way.
//!
//! Times are relative to the present, tasks to the oldest task that is kept, and stamps to the next iteration. State
//! that has no further effect is left out.

use std::hash::{DefaultHasher, Hasher};

use super::numbers::{TaskId, Time};

/// Numbering of one rank's stamps.
#[derive(Clone, Copy, Debug)]
pub struct StampBase {
    /// The machine's number of the rank's first stamp.
    pub first: u32,
    /// Number of stamps of iterations, which form a ring.
    pub ring: u32,
    /// Index of the first stamp of the rank's next iteration.
    pub next: u32,
}

/// A digest to which the parts of the state are added one by one.
pub struct Digest<'a> {
    hasher: DefaultHasher,
    now: Time,
    first: TaskId,
    /// Stamp bases by rank.
    stamps: &'a [StampBase],
}

impl<'a> Digest<'a> {
    /// Begins a digest at time `now`; `first` is the oldest task that is kept.
    pub fn new(now: Time, first: TaskId, stamps: &'a [StampBase]) -> Self {
        Digest { hasher: DefaultHasher::new(), now, first, stamps }
    }

    /// Returns the digest of everything added so far.
    pub fn finish(self) -> u64 {
        self.hasher.finish()
    }

    /// Adds an integer.
    pub fn word(&mut self, word: impl Into<u64>) {
        self.hasher.write_u64(word.into());
    }

    /// Adds integers, without their number.
    pub fn words(&mut self, words: impl IntoIterator<Item = impl Into<u64>>) {
        words.into_iter().for_each(|word| self.word(word));
    }

    /// Adds floating-point numbers, without their number.
    pub fn numbers(&mut self, numbers: impl IntoIterator<Item = f64>) {
        numbers.into_iter().for_each(|number| self.number(number));
    }

    /// Adds the length of a list.
    pub fn size(&mut self, size: usize) {
        self.word(size as u64);
    }

    /// Adds the bits of a floating-point number.
    pub fn number(&mut self, number: f64) {
        self.word(number.to_bits());
    }

    /// Adds a duration in ns.
    pub fn duration(&mut self, time: Time) {
        self.word(time as u64);
    }

    /// Adds a time, relative to the present.
    pub fn moment(&mut self, time: Time) {
        self.duration(time - self.now);
    }

    /// Adds the earliest time of an event; a time in the past equals the present.
    pub fn not_before(&mut self, time: Time) {
        self.duration((time - self.now).max(0));
    }

    /// Adds a task, relative to the oldest one that is kept.
    pub fn task(&mut self, task: TaskId) {
        // A task that is no longer kept has ended long ago, so all such tasks are equal.
        self.word(task.checked_sub(self.first).map_or(0, |place| place + 1));
    }

    /// Adds a list of tasks, with its length.
    pub fn tasks(&mut self, tasks: impl ExactSizeIterator<Item = TaskId>) {
        self.size(tasks.len());
        tasks.for_each(|task| self.task(task));
    }

    /// Adds a task; `None` and tasks that ended long ago are equal.
    pub fn maybe_task(&mut self, task: Option<TaskId>) {
        match task {
            None => self.word(0u64),
            Some(task) => self.task(task),
        }
    }

    /// Adds a stamp, relative to its rank's next iteration.
    pub fn stamp(&mut self, stamp: Option<u32>) {
        let Some(stamp) = stamp else { return self.word(0u64) };
        let (rank, base) = match self.stamps.iter().rposition(|base| base.first <= stamp) {
            Some(rank) => (rank, self.stamps[rank]),
            None => return self.word(stamp),
        };
        let of_rank = stamp - base.first;
        let position_in_ring =
            if of_rank < base.ring { (of_rank + base.ring - base.next) % base.ring } else { of_rank };
        self.word(1u64);
        self.size(rank);
        self.word(position_in_ring);
    }
}
