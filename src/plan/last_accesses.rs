//! The last access by each queue to each of many numbered items, as one linked list per item.

use rustc_hash::FxHashMap;

const NONE: u32 = u32::MAX;

/// Number of entries of a list that are searched one by one. A hash table finds the later entries.
const NEAR: usize = 8;

/// Last accesses to items, which are numbered from 0.
#[derive(Debug)]
pub struct LastAccesses<T> {
    /// For each item, the index of the first node of its list.
    first: Vec<u32>,
    nodes: Vec<ListNode<T>>,
    /// First node of the list of unused nodes.
    free: u32,
    /// Nodes after the first [`NEAR`] of their list, by item and queue.
    far: FxHashMap<(u32, u32), u32>,
}

/// The last access by a queue to an item.
#[derive(Debug)]
struct ListNode<T> {
    queue: u32,
    /// Index of the next node of the item's list, or [`NONE`].
    next: u32,
    access: T,
}

impl<T: Copy> LastAccesses<T> {
    /// Returns the lists of this many items, all empty.
    pub fn new(items: usize) -> Self {
        LastAccesses { first: vec![NONE; items], nodes: Vec::new(), free: NONE, far: FxHashMap::default() }
    }

    /// True if no queue has accessed an item.
    pub fn is_empty(&self, item: u32) -> bool {
        self.first[item as usize] == NONE
    }

    /// Returns the last access to an item by each queue.
    pub fn of(&self, item: u32) -> impl Iterator<Item = (u32, T)> {
        let mut at = self.first[item as usize];
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.next;
            Some((node.queue, node.access))
        })
    }

    /// The last access to an item by a queue; `None` if there is none.
    pub fn get(&self, item: u32, queue: u32) -> Option<T> {
        let mut near = self.of(item).take(NEAR + 1);
        if let Some((_, access)) = near.by_ref().take(NEAR).find(|(other, _)| *other == queue) {
            return Some(access);
        }
        // Short lists have no entries in the hash table.
        near.next()?;
        let far = self.far.get(&(item, queue))?;
        Some(self.nodes[*far as usize].access)
    }

    /// Sets the last access to an item by a queue.
    pub fn note(&mut self, item: u32, queue: u32, access: T) {
        let mut at = self.first[item as usize];
        let mut last = NONE;
        for _ in 0..NEAR {
            let Some(node) = self.nodes.get_mut(at as usize) else {
                self.first[item as usize] = self.add(queue, access, self.first[item as usize]);
                return;
            };
            if node.queue == queue {
                node.access = access;
                return;
            }
            (last, at) = (at, node.next);
        }
        if let Some(&known) = self.far.get(&(item, queue)) {
            self.nodes[known as usize].access = access;
            return;
        }
        let added = self.add(queue, access, at);
        self.nodes[last as usize].next = added;
        self.far.insert((item, queue), added);
    }

    fn add(&mut self, queue: u32, access: T, next: u32) -> u32 {
        let node = ListNode { queue, next, access };
        let at = self.free;
        match self.nodes.get_mut(at as usize) {
            Some(free) => {
                self.free = free.next;
                *free = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// Removes all accesses to an item.
    pub fn clear(&mut self, item: u32) {
        let mut at = std::mem::replace(&mut self.first[item as usize], NONE);
        let mut index = 0;
        while let Some(node) = self.nodes.get_mut(at as usize) {
            if index >= NEAR {
                self.far.remove(&(item, node.queue));
            }
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = at;
            at = next;
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(latest: &LastAccesses<u32>, item: u32) -> Vec<(u32, u32)> {
        let mut all: Vec<_> = latest.of(item).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn each_queue_has_one_access() {
        let queues = 3 * NEAR as u32;
        let mut latest = LastAccesses::new(2);
        for round in 0..3 {
            for queue in 0..queues {
                latest.note(1, queue, 100 * round + queue);
            }
            let expected: Vec<_> = (0..queues).map(|queue| (queue, 100 * round + queue)).collect();
            assert_eq!(sorted(&latest, 1), expected);
            assert!(expected.iter().all(|&(queue, access)| latest.get(1, queue) == Some(access)));
            assert_eq!((latest.get(1, queues), latest.get(0, 0)), (None, None));
        }
        assert!(latest.is_empty(0) && !latest.is_empty(1));
    }

    #[test]
    fn cleared_entries_are_reused() {
        let mut latest = LastAccesses::new(2);
        for round in 0..4 {
            for queue in 0..20 {
                latest.note(round % 2, queue, round);
            }
            assert_eq!(sorted(&latest, round % 2), (0..20).map(|queue| (queue, round)).collect::<Vec<_>>());
            latest.clear(round % 2);
            assert!(latest.is_empty(round % 2));
        }
        assert_eq!(latest.nodes.len(), 20);
        assert!(latest.far.is_empty());
    }
}
