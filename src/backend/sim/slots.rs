//! A container that gives its items numbers. It reuses the smallest free number first, so that the numbers in use
//! depend on the present items alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Items by number.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    items: Vec<Option<T>>,
    free: BinaryHeap<Reverse<u32>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { items: Vec::new(), free: BinaryHeap::new() }
    }
}

impl<T> Slots<T> {
    /// Adds an item, and returns its number.
    pub fn add(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(Reverse(number)) => {
                self.items[number as usize] = Some(item);
                number
            }
            None => {
                self.items.push(Some(item));
                self.items.len() as u32 - 1
            }
        }
    }

    /// Removes and returns an item; `None` if no item has this number.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let item = self.items.get_mut(number as usize)?.take()?;
        self.free.push(Reverse(number));
        Some(item)
    }

    /// Returns an item; `None` if no item has this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.items.get(number as usize)?.as_ref()
    }

    /// Returns an item for changes; `None` if no item has this number.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.items.get_mut(number as usize)?.as_mut()
    }

    /// The items with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.items).filter_map(|(number, item)| Some((number, item.as_ref()?)))
    }
}
