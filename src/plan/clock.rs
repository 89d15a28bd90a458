//! A vector clock: for each queue, the number of operations that are known to be complete.

use std::rc::Rc;

/// Queues per chunk.
const WIDTH: usize = 32;

/// A vector clock: a number for each queue. Clocks share equal chunks of [`WIDTH`] queues: copying a clock is free, and
/// with hundreds of queues only the chunks that differ take memory.
#[derive(Clone, Debug)]
pub struct VectorClock {
    chunks: Rc<[Rc<[u32]>]>,
}

impl VectorClock {
    /// Returns a clock that knows of no completed operation.
    pub fn new(queues: usize) -> Self {
        let chunk = |first: usize| Rc::from(vec![0; WIDTH.min(queues - first)]);
        VectorClock { chunks: (0..queues).step_by(WIDTH).map(chunk).collect() }
    }

    /// Number of completed operations of a queue.
    pub fn get(&self, queue: u32) -> u32 {
        self.chunks[queue as usize / WIDTH][queue as usize % WIDTH]
    }

    /// Returns the number of completed operations of each queue, in the order of the queues.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().copied())
    }

    /// Notes that the first `number` operations of a queue are complete.
    pub fn raise(&mut self, queue: u32, number: u32) {
        if self.get(queue) < number {
            let chunk = &mut Rc::make_mut(&mut self.chunks)[queue as usize / WIDTH];
            Rc::make_mut(chunk)[queue as usize % WIDTH] = number;
        }
    }

    /// Takes over everything that another clock knows: the larger number for each queue.
    pub fn join(&mut self, other: &VectorClock) {
        if Rc::ptr_eq(&self.chunks, &other.chunks) {
            return;
        }
        let chunks = Rc::make_mut(&mut self.chunks);
        for (own, other) in chunks.iter_mut().zip(other.chunks.iter()) {
            if Rc::ptr_eq(own, other) {
                continue;
            }
            let (mut less, mut more) = (false, false);
            for (own, other) in own.iter().zip(other.iter()) {
                less |= own < other;
                more |= own > other;
            }
            match (less, more) {
                (true, false) => *own = Rc::clone(other),
                (true, true) => {
                    for (own, other) in Rc::make_mut(own).iter_mut().zip(other.iter()) {
                        *own = (*own).max(*other);
                    }
                }
                (false, _) => {}
            }
        }
    }
}

impl From<&[u32]> for VectorClock {
    fn from(numbers: &[u32]) -> Self {
        VectorClock { chunks: numbers.chunks(WIDTH).map(Rc::from).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_takes_the_larger_of_each_and_changes_no_copy() {
        let low: Vec<u32> = (0..100).collect();
        let high: Vec<u32> = (0..100).map(|queue| if queue < 70 { 2 * queue } else { 3 }).collect();
        let mut clock = VectorClock::from(low.as_slice());
        let copy = clock.clone();
        clock.join(&VectorClock::from(high.as_slice()));
        let expected: Vec<u32> = low.iter().zip(&high).map(|(low, high)| *low.max(high)).collect();
        assert_eq!(clock.iter().collect::<Vec<_>>(), expected);
        clock.raise(99, 500);
        clock.raise(98, 1);
        assert_eq!((clock.get(99), clock.get(98)), (500, 98));
        assert_eq!(copy.iter().collect::<Vec<_>>(), low);
    }
}
