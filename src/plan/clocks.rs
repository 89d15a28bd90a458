//! Vector clocks over queues: what is known to be complete when an operation starts.
//!
//! A queue runs its operations in order, so "the first n operations of queue q are complete" says everything about q.
//! A clock holds such an n for each queue. Used on the program's streams to find races, and on a schedule's lanes to
//! find which waits are needed.

use rustc_hash::FxHashMap;

/// A place in a queue: behind its `number`-th operation, counted from 1.
///
/// Where `mark` is not 0, it is a place at which nothing runs, such as that of a `signal`, and stands for what is known
/// there: the operations before it, on its queue and on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub queue: u32,
    pub number: u32,
    pub mark: u32,
}

/// The clocks of all queues, walked in the order of issue.
#[derive(Debug)]
pub struct Clocks {
    /// For each queue, what is known behind its last operation.
    queues: Vec<Box<[u32]>>,
    /// For each queue, the marks behind its last operation.
    marks: Vec<u32>,
    /// What was known behind operations that something will still wait for.
    saved: FxHashMap<Place, Saved>,
}

#[derive(Debug)]
struct Saved {
    clock: Box<[u32]>,
    uses: u32,
}

impl Clocks {
    pub fn new(queues: usize) -> Self {
        Clocks { queues: vec![vec![0; queues].into(); queues], marks: vec![0; queues], saved: FxHashMap::default() }
    }

    /// Whether the next operation of `queue` starts only after everything that `place` stands for.
    pub fn knows(&self, queue: u32, place: Place) -> bool {
        self.covers(&self.queues[queue as usize], place)
    }

    /// Whether waiting for `by` implies waiting for `place`; both have to be saved.
    pub fn implies(&self, by: Place, place: Place) -> bool {
        self.saved.get(&by).is_some_and(|saved| self.covers(&saved.clock, place))
    }

    fn covers(&self, clock: &[u32], place: Place) -> bool {
        match (place.mark, self.saved.get(&place)) {
            (0, _) => clock[place.queue as usize] >= place.number,
            (_, Some(saved)) => clock.iter().zip(&saved.clock).all(|(known, needed)| known >= needed),
            // Whoever asked for it last has let it go: nobody can ask again.
            (_, None) => true,
        }
    }

    /// The next operation of `queue` waits for the one at `place`.
    pub fn wait(&mut self, queue: u32, place: Place) {
        let own = &mut self.queues[queue as usize];
        match self.saved.get_mut(&place) {
            Some(saved) => {
                for (known, other) in own.iter_mut().zip(&saved.clock) {
                    *known = (*known).max(*other);
                }
                saved.uses -= 1;
                if saved.uses == 0 {
                    self.saved.remove(&place);
                }
            }
            None => own[place.queue as usize] = own[place.queue as usize].max(place.number),
        }
    }

    /// An operation that was to wait for `place` does not have to: one use fewer.
    pub fn release(&mut self, place: Place) {
        if let Some(saved) = self.saved.get_mut(&place) {
            saved.uses -= 1;
            if saved.uses == 0 {
                self.saved.remove(&place);
            }
        }
    }

    /// Adds an operation to `queue`; its clock is kept until `uses` operations have waited for it.
    pub fn push(&mut self, queue: u32, uses: u32) -> Place {
        let own = &mut self.queues[queue as usize];
        own[queue as usize] += 1;
        self.marks[queue as usize] = 0;
        let place = Place { queue, number: own[queue as usize], mark: 0 };
        if uses > 0 {
            self.saved.insert(place, Saved { clock: own.clone(), uses });
        }
        place
    }

    /// Adds a place at which nothing runs.
    pub fn mark(&mut self, queue: u32, uses: u32) -> Place {
        let own = &self.queues[queue as usize];
        self.marks[queue as usize] += 1;
        let place = Place { queue, number: own[queue as usize], mark: self.marks[queue as usize] };
        if uses > 0 {
            self.saved.insert(place, Saved { clock: own.clone(), uses });
        }
        place
    }

    /// Every queue knows that the operations up to these places are complete.
    pub fn complete(&mut self, places: &[u32]) {
        for queue in &mut self.queues {
            for (known, done) in queue.iter_mut().zip(places) {
                *known = (*known).max(*done);
            }
        }
    }

    /// For each queue, how many operations it has.
    pub fn lengths(&self) -> Vec<u32> {
        self.queues.iter().enumerate().map(|(index, queue)| queue[index]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_travels_along_waits() {
        let mut clocks = Clocks::new(3);
        let a = clocks.push(0, 1);
        clocks.wait(1, a);
        let b = clocks.push(1, 1);
        assert!(clocks.knows(1, a));
        assert!(!clocks.knows(2, a));
        clocks.wait(2, b);
        assert!(clocks.knows(2, a), "b came after a");
    }

    #[test]
    fn a_mark_stands_for_what_is_before_it() {
        let mut clocks = Clocks::new(3);
        let nothing = clocks.mark(0, 2);
        assert!(clocks.knows(1, nothing), "there is nothing to wait for");
        let a = clocks.push(0, 1);
        clocks.wait(1, a);
        let mark = clocks.mark(1, 2);
        assert!(!clocks.knows(2, mark));
        clocks.wait(2, mark);
        assert!(clocks.knows(2, mark) && clocks.knows(2, a));
    }
}
