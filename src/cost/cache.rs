//! Models which bytes an operation finds in the device's last-level cache, if operations run one after the other.
//!
//! Replaces whole pages, the least recently used first, and records for each page which of its blocks were used, so that a
//! small neighbour in the same page does not load the others. A range larger than the cache leaves nothing in it.

use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::config::Profile;
use crate::ops::Spec;

use super::fits_cache;

/// Page size in bytes: large compared with the data of a small kernel, small compared with a cache.
const PAGE: u64 = 64 << 10;

/// Block size in bytes: a page has 64 blocks, one for each bit of a mask.
const BLOCK: u64 = PAGE / 64;

/// Sizes of the three modelled caches, as parts of the real cache's size; the share of hits is the mean of the three. The sets of the real
/// cache fill unevenly, and each size stands for a third of the sets. Measured on an H100 with 50 MB: maps, copies
/// and norms in graphs of twenty calls run at the rate of the cache up to 20 MB, and at that of memory from 50 MB on
/// (docs/measurements/2026-11-26-simulator.md).
const ROOMS: [f64; 3] = [0.48, 0.66, 0.84];

/// Resolution of cached shares: eighths, so that similar operations can share a result.
pub const WHOLE: u8 = 8;

/// Maximum number of page accesses of a program; above it, the cache is not modelled page by page.
const MAX_ACCESSES: u64 = 1 << 25;

/// Number of pages whose entries are stored together, so that a range of pages needs few lookups.
const TOGETHER: u64 = 64;

/// The time of a page's last use and a mask of its resident blocks, which is 0 for a page that is not resident.
type PageUse = (u64, u64);

/// Neighbouring pages, of which at least one is resident.
#[derive(Debug)]
struct Neighbours {
    resident: usize,
    pages: [PageUse; TOGETHER as usize],
}

/// A cache of pages, which replaces the page that was used the longest time ago.
#[derive(Debug, Default)]
struct Cache {
    /// Maximum number of resident pages.
    capacity: usize,
    /// Number of resident pages.
    resident: usize,
    /// Positions in `neighbours`, by a page's number divided by [`TOGETHER`].
    position: FxHashMap<u64, usize>,
    neighbours: Vec<Neighbours>,
    /// Positions in `neighbours` without a resident page.
    free: Vec<usize>,
    /// Ranges of pages with the time of their use, in order; pages that a later use has superseded are skipped.
    order: VecDeque<(Range<u64>, u64)>,
    /// The time: the number of accesses so far.
    clock: u64,
}

impl Cache {
    /// Returns the position of the neighbours with this number; creates them if they have no resident page.
    fn position(&mut self, number: u64) -> usize {
        *self.position.entry(number).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.neighbours.push(Neighbours { resident: 0, pages: [(0, 0); TOGETHER as usize] });
                self.neighbours.len() - 1
            })
        })
    }

    /// True if the page was last used at this time, and is resident.
    fn is_of(&self, page: u64, time: u64) -> bool {
        let Some(position) = self.position.get(&(page / TOGETHER)) else { return false };
        let (last, blocks) = self.neighbours[*position].pages[(page % TOGETHER) as usize];
        blocks != 0 && last == time
    }

    fn remove(&mut self, page: u64) {
        let number = page / TOGETHER;
        let Some(&position) = self.position.get(&number) else { return };
        let neighbours = &mut self.neighbours[position];
        neighbours.pages[(page % TOGETHER) as usize] = (0, 0);
        neighbours.resident -= 1;
        self.resident -= 1;
        if neighbours.resident == 0 {
            self.position.remove(&number);
            self.free.push(position);
        }
    }

    /// Removes the pages that were not used for the longest time, until as many are resident as fit.
    fn evict(&mut self) {
        while self.resident > self.capacity {
            let Some((pages, time)) = self.order.front_mut() else { break };
            let time = *time;
            match pages.next() {
                Some(page) if self.is_of(page, time) => self.remove(page),
                Some(_) => {}
                None => drop(self.order.pop_front()),
            }
        }
    }

    fn clear(&mut self) {
        let Cache { capacity, clock, .. } = *self;
        *self = Cache { capacity, clock, ..Cache::default() };
    }

    /// Uses a range, and returns the number of its bytes that were resident.
    fn touch_range(&mut self, offset: u64, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let pages = offset / PAGE..(offset + bytes).div_ceil(PAGE);
        let count = pages.end - pages.start;
        if count > self.capacity as u64 {
            self.clear();
            return 0;
        }
        self.clock += 1;
        self.order.push_back((pages.clone(), self.clock));
        let blocks = offset / BLOCK..(offset + bytes).div_ceil(BLOCK);
        let mut hits = 0;
        let mut from = pages.start;
        while from < pages.end {
            let number = from / TOGETHER;
            let to = pages.end.min((number + 1) * TOGETHER);
            let position = self.position(number);
            for page in from..to {
                let first = blocks.start.max(page * 64) - page * 64;
                let end = blocks.end.min((page + 1) * 64) - page * 64;
                let mask = (u64::MAX >> (64 - (end - first))) << first;
                let neighbours = &mut self.neighbours[position];
                let entry = &mut neighbours.pages[(page % TOGETHER) as usize];
                if entry.1 == 0 {
                    neighbours.resident += 1;
                    self.resident += 1;
                }
                hits += u64::from((entry.1 & mask).count_ones());
                *entry = (self.clock, entry.1 | mask);
                // The pages of this range fit, so older ones are removed and the position stays.
                self.evict();
            }
            from = to;
        }
        self.shorten();
        (u128::from(bytes) * u128::from(hits) / u128::from(blocks.end - blocks.start)) as u64
    }

    /// Removes entries of `order` whose pages have all been evicted or used again, once there are many entries.
    fn shorten(&mut self) {
        if self.order.len() <= 8 * self.capacity {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        order.retain_mut(|(pages, time)| {
            let is_left = |page: &u64| self.is_of(*page, *time);
            let first = pages.clone().find(is_left);
            let last = pages.clone().rev().find(is_left);
            *pages = first.zip(last).map_or(0..0, |(first, last)| first..last + 1);
            !pages.is_empty()
        });
        self.order = order;
    }
}

/// An operation's accesses to memory in one execution, as the model of the cache needs them.
pub struct OperationAccesses<'a> {
    pub spec: &'a Spec,
    /// For each operand, inputs first, its offset in device memory; `None` if it is elsewhere.
    pub offsets: Vec<Option<u64>>,
    /// True if the cache is flushed before the operation.
    pub cold: bool,
}

/// For each operation, the share of its bytes in device memory that the cache serves, in eighths, in the steady state.
/// `access` returns the accesses of the operation with a number; `order` has the numbers of all operations in the order in which they
/// access memory.
pub fn shares<'a>(order: &[u32], access: impl Fn(u32) -> OperationAccesses<'a>, profile: &Profile) -> Vec<u8> {
    let in_order = shares_in_order(|| order.iter().map(|&number| access(number)), profile);
    let mut shares = vec![0; order.len()];
    order.iter().zip(in_order).for_each(|(&number, share)| shares[number as usize] = share);
    shares
}

/// Number of different bytes in device memory that operations access. An operand counts as if it had no gaps.
pub fn working_set<'a>(accesses: impl Iterator<Item = OperationAccesses<'a>>) -> u64 {
    let ranges =
        accesses.flat_map(|access| operands(&access).map(|(offset, bytes)| offset..offset + bytes).collect::<Vec<_>>());
    union(ranges.collect())
}

/// Number of different bytes in ranges, which may overlap.
fn union(mut ranges: Vec<Range<u64>>) -> u64 {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut counted = 0;
    let mut bytes = 0;
    for Range { start, end } in ranges {
        bytes += end.saturating_sub(start.max(counted));
        counted = counted.max(end);
    }
    bytes
}

/// The shares of [`shares`], one for each access. `accesses` returns the same sequence each time it is called.
fn shares_in_order<'a, I: Iterator<Item = OperationAccesses<'a>>>(
    accesses: impl Fn() -> I,
    profile: &Profile,
) -> Vec<u8> {
    let capacities = ROOMS.map(|room| ((room * profile.cache.value()) as u64 / PAGE).max(1) as usize);
    let capacity = capacities[ROOMS.len() - 1];
    let bytes = |access: &OperationAccesses| operands(access).map(|(_, bytes)| bytes).collect::<Vec<_>>();
    let touched =
        accesses().flat_map(|access| bytes(&access)).map(|bytes| (bytes / PAGE + 1).min(capacity as u64)).sum::<u64>();
    // For accesses without operands on the device, or if there are too many: the share when nothing else runs in
    // between.
    let otherwise = |access: &OperationAccesses| if fits_cache(access.spec, profile) { WHOLE } else { 0 };
    if touched > MAX_ACCESSES {
        return accesses().map(|access| otherwise(&access)).collect();
    }
    shares_of(&accesses, otherwise, capacities.map(|capacity| Cache { capacity, ..Cache::default() }))
}

/// The mean of the shares of [`shares_in_order`] with each of these caches, which are empty.
///
/// A single pass over the accesses serves every cache, because finding the operands of an access takes as long as looking up their pages.
fn shares_of<'a, I: Iterator<Item = OperationAccesses<'a>>>(
    accesses: impl Fn() -> I,
    otherwise: impl Fn(&OperationAccesses) -> u8,
    mut caches: [Cache; ROOMS.len()],
) -> Vec<u8> {
    let mut shares = Vec::new();
    // The first pass fills the caches, the second is the steady state.
    for _ in 0..2 {
        shares.clear();
        for access in accesses() {
            if access.cold {
                caches.iter_mut().for_each(Cache::clear);
            }
            let (mut all, mut found) = (0, [0; ROOMS.len()]);
            for (offset, bytes) in operands(&access) {
                all += bytes;
                for (found, cache) in found.iter_mut().zip(&mut caches) {
                    *found += cache.touch_range(offset, bytes);
                }
            }
            shares.push(match all {
                0 => otherwise(&access),
                all => {
                    (found.iter().map(|found| found * u64::from(WHOLE) / all).sum::<u64>() / ROOMS.len() as u64) as u8
                }
            });
        }
    }
    shares
}

/// Operands in device memory: offset and number of bytes that the operation accesses. An operation that selects elements of its largest
/// input reads a part of it.
fn operands(access: &OperationAccesses) -> impl Iterator<Item = (u64, u64)> {
    let Spec { inputs, outputs, .. } = access.spec;
    let on_device = |place: &usize| access.offsets[*place].is_some();
    let all: u64 = (0..inputs.len()).filter(on_device).map(|place| inputs[place].bytes()).sum();
    let largest = (0..inputs.len()).filter(on_device).max_by_key(|&place| inputs[place].bytes());
    let unread = match access.spec.cost().read.device {
        0 => 0,
        read => all.saturating_sub(read),
    };
    inputs.iter().chain(outputs).zip(&access.offsets).enumerate().filter_map(move |(place, (tensor, offset))| {
        let unread = if Some(place) == largest { unread } else { 0 };
        Some(((*offset)?, tensor.bytes().saturating_sub(unread)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(pages: usize) -> Cache {
        Cache { capacity: pages, ..Cache::default() }
    }

    #[test]
    fn a_small_neighbour_in_the_page_brings_nothing_in() {
        let mut cache = cache(4);
        assert_eq!(cache.touch_range(0, 2), 0);
        assert_eq!(cache.touch_range(BLOCK, PAGE - BLOCK), 0);
        assert_eq!(cache.touch_range(0, PAGE), PAGE);
        assert_eq!(cache.touch_range(PAGE - 2, 4), 2);
    }

    #[test]
    fn bytes_of_overlapping_ranges_count_once() {
        assert_eq!(union(vec![4..8, 0..8, 0..4, 6..12, 20..21]), 13);
    }

    proptest::proptest! {
        /// The cache behaves as defined: it keeps pages in the order of their last use, and evicts the oldest.
        #[test]
        fn hits_are_those_of_the_definition(uses in proptest::collection::vec((0u64..160 * 64, 1u64..9 * 64), 1..200)) {
            let mut cache = cache(6);
            let mut resident: Vec<(u64, u64)> = Vec::new();
            for (first, count) in uses {
                let end = first + count;
                let mut hits = 0;
                if end.div_ceil(64) - first / 64 > 6 {
                    resident.clear();
                } else {
                    for page in first / 64..end.div_ceil(64) {
                        let mask = (first.max(page * 64)..end.min(page * 64 + 64)).fold(0, |mask, block| mask | 1 << (block % 64));
                        let at = resident.iter().position(|(known, _)| *known == page);
                        let before = at.map_or(0, |at| resident.remove(at).1);
                        hits += u64::from((before & mask).count_ones());
                        resident.push((page, before | mask));
                        if resident.len() > 6 {
                            resident.remove(0);
                        }
                    }
                }
                proptest::prop_assert_eq!(cache.touch_range(first * BLOCK, count * BLOCK), hits * BLOCK);
                proptest::prop_assert!(cache.order.len() <= 8 * 6 && cache.neighbours.len() <= 7);
            }
        }
    }
}
