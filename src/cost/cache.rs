//! Models which bytes an operation finds in the device's last-level cache, if operations run in the order of launches.
//!
//! Replaces whole pages, the least recently used first, and knows for each page which of its blocks were used, so that a
//! small neighbour in the same page does not bring the others in. A range larger than the cache leaves nothing in it.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::config::Profile;
use crate::ops::Spec;

use super::{cache_room, fits_cache};

/// Page size in bytes: large compared with what a kernel of a small workload accesses, small compared with a cache.
const PAGE: u64 = 64 << 10;

/// Block size in bytes: a page has 64 blocks, one for each bit of a mask.
const BLOCK: u64 = PAGE / 64;

/// Resolution of cached shares: eighths, so that similar operations can share a result.
pub const WHOLE: u8 = 8;

/// Maximum number of page accesses of a program; above it, the cache is not modelled page by page.
const MAX_ACCESSES: u64 = 1 << 25;

#[derive(Debug, Default)]
struct Cache {
    capacity: usize,
    /// For each resident page, the time of its last use and a mask of its resident blocks.
    used: FxHashMap<u64, (u64, u64)>,
    /// Uses in order; entries that a later use has superseded are skipped.
    order: VecDeque<(u64, u64)>,
    clock: u64,
}

impl Cache {
    /// Uses some blocks of a page, given as a mask, and returns the number of those that were resident.
    fn touch(&mut self, page: u64, blocks: u64) -> u32 {
        self.clock += 1;
        let entry = self.used.entry(page).or_default();
        let hits = (entry.1 & blocks).count_ones();
        *entry = (self.clock, entry.1 | blocks);
        self.order.push_back((page, self.clock));
        while self.used.len() > self.capacity {
            let Some((page, time)) = self.order.pop_front() else { break };
            if self.used.get(&page).is_some_and(|(last, _)| *last == time) {
                self.used.remove(&page);
            }
        }
        if self.order.len() > 8 * self.capacity {
            let used = &self.used;
            self.order.retain(|(page, time)| used.get(page).is_some_and(|(last, _)| last == time));
        }
        hits
    }

    fn clear(&mut self) {
        self.used.clear();
        self.order.clear();
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
        let blocks = offset / BLOCK..(offset + bytes).div_ceil(BLOCK);
        let mut hits = 0;
        for page in pages {
            let first = blocks.start.max(page * 64) - page * 64;
            let end = blocks.end.min((page + 1) * 64) - page * 64;
            hits += u64::from(self.touch(page, (u64::MAX >> (64 - (end - first))) << first));
        }
        (u128::from(bytes) * u128::from(hits) / u128::from(blocks.end - blocks.start)) as u64
    }
}

/// One execution of an operation, as the cache sees it.
pub struct Access<'a> {
    pub spec: &'a Spec,
    /// For each operand, inputs first, its offset in device memory; `None` if it is elsewhere.
    pub offsets: Vec<Option<u64>>,
    /// True if the cache is flushed before it.
    pub cold: bool,
}

/// For each access, the share of its bytes in device memory that the cache serves, in eighths, in the steady state.
/// `accesses` returns the same sequence each time it is called.
pub fn shares<'a, I: Iterator<Item = Access<'a>>>(accesses: impl Fn() -> I, profile: &Profile) -> Vec<u8> {
    let capacity = (cache_room(profile) as u64 / PAGE).max(1) as usize;
    let bytes = |access: &Access| operands(access).map(|(_, bytes)| bytes).collect::<Vec<_>>();
    let touched =
        accesses().flat_map(|access| bytes(&access)).map(|bytes| (bytes / PAGE + 1).min(capacity as u64)).sum::<u64>();
    // For accesses without operands on the device, or if there are too many: the share when nothing else runs in
    // between.
    let otherwise = |access: &Access| if fits_cache(access.spec, profile) { WHOLE } else { 0 };
    if touched > MAX_ACCESSES {
        return accesses().map(|access| otherwise(&access)).collect();
    }
    let mut cache = Cache { capacity, ..Cache::default() };
    let mut shares = Vec::new();
    // The first round fills the cache, the second is the steady state.
    for _ in 0..2 {
        shares.clear();
        for access in accesses() {
            if access.cold {
                cache.clear();
            }
            let (mut all, mut found) = (0, 0);
            for (offset, bytes) in operands(&access) {
                all += bytes;
                found += cache.touch_range(offset, bytes);
            }
            shares.push(match all {
                0 => otherwise(&access),
                all => (found * u64::from(WHOLE) / all) as u8,
            });
        }
    }
    shares
}

/// Operands in device memory: offset and bytes.
fn operands(access: &Access) -> impl Iterator<Item = (u64, u64)> {
    let tensors = access.spec.inputs.iter().chain(&access.spec.outputs);
    tensors.zip(&access.offsets).filter_map(|(tensor, offset)| Some(((*offset)?, tensor.bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(pages: usize) -> Cache {
        Cache { capacity: pages, ..Cache::default() }
    }

    #[test]
    fn keeps_what_fits() {
        let mut cache = cache(4);
        assert_eq!(cache.touch_range(0, 4 * PAGE), 0);
        assert_eq!(cache.touch_range(0, 4 * PAGE), 4 * PAGE);
        // One page more than fits, used in turn: each is evicted before its next use.
        assert_eq!(cache.touch_range(4 * PAGE, PAGE), 0);
        assert_eq!(cache.touch_range(0, PAGE), 0);
        assert_eq!(cache.touch_range(3 * PAGE, PAGE), PAGE);
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
    fn a_range_larger_than_the_cache_leaves_nothing() {
        let mut cache = cache(4);
        cache.touch_range(0, PAGE);
        assert_eq!(cache.touch_range(10 * PAGE, 5 * PAGE), 0);
        assert_eq!(cache.touch_range(0, PAGE), 0);
    }

    #[test]
    fn the_order_of_uses_stays_short() {
        let mut cache = cache(4);
        for turn in 0..10_000 {
            assert_eq!(cache.touch(turn % 4, 1), u32::from(turn >= 4));
        }
        assert!(cache.order.len() <= 8 * 4 + 1);
    }
}
