//! Finds pairs of slices that have elements in common.

use std::cmp::Ordering;

use crate::base::{MemoryId, ViewId};
use crate::model::{Extent, Program, Views};

/// For each slice, the overlapping slices with which accesses can conflict.
#[derive(Debug)]
pub struct Regions {
    starts: Vec<u32>,
    neighbours: Vec<Neighbour>,
}

/// An overlapping slice: its number, and in the lowest bit whether it lies completely inside the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour(u32);

impl Neighbour {
    fn new(view: ViewId, covered: bool) -> Self {
        Neighbour(view.0 << 1 | u32::from(covered))
    }

    /// The overlapping slice.
    pub fn view(self) -> ViewId {
        ViewId(self.0 >> 1)
    }

    /// True if the overlapping slice lies completely inside the slice that it overlaps.
    pub fn covered(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Maximum number of stored pairs, which take about a hundred megabytes.
pub const MAX_PAIRS: usize = 1 << 23;

impl Regions {
    /// Finds the overlaps among the slices that operations of `program` access, if an operation writes at least one of
    /// the pair. With `by_slot`, only between slices that operations of the same slot access. The error is a memory
    /// with too many overlaps.
    pub fn new(program: &Program, by_slot: bool) -> Result<Regions, MemoryId> {
        let views = &program.views;
        let mut search = OverlapSearch { program, uses: SliceUses::new(program, by_slot), pairs: Vec::new() };
        let (ends, ordered) = by_memory(program, &search.uses);
        for memory in (0..ends.len()).map(MemoryId::from) {
            let start = memory.index().checked_sub(1).map_or(0, |before| ends[before] as usize);
            if !search.memory(&ordered[start..ends[memory.index()] as usize]) {
                return Err(memory);
            }
        }
        drop(ordered);
        let pairs = search.pairs;
        // Counting sort of the pairs by slice.
        let mut starts = vec![0u32; views.len() + 1];
        for (a, b) in &pairs {
            starts[a.index() + 1] += 1;
            starts[b.index() + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut ends = starts.clone();
        let mut neighbours = vec![Neighbour(0); 2 * pairs.len()];
        let mut put = |view: ViewId, other: ViewId| {
            let end = &mut ends[view.index()];
            neighbours[*end as usize] = Neighbour::new(other, covers(views, view, other));
            *end += 1;
        };
        for (a, b) in pairs {
            put(a, b);
            put(b, a);
        }
        for view in 0..views.len() {
            neighbours[starts[view] as usize..starts[view + 1] as usize].sort_unstable();
        }
        Ok(Regions { starts, neighbours })
    }

    /// Returns the slices that overlap `view`.
    pub fn of(&self, view: ViewId) -> &[Neighbour] {
        &self.neighbours[self.starts[view.index()] as usize..self.starts[view.index() + 1] as usize]
    }
}

/// Accesses of a program's operations to its slices.
struct SliceUses {
    /// For each slice, the access of all operations together.
    access: Vec<AccessMode>,
    /// For each slice, the index in `slots` of its first slot; empty if all slots count as one.
    starts: Vec<u32>,
    /// The slots of each slice, in ascending order.
    slots: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessMode {
    None,
    Read,
    Written,
}

impl SliceUses {
    fn new(program: &Program, by_slot: bool) -> SliceUses {
        let count = program.views.len();
        let mut uses = SliceUses { access: vec![AccessMode::None; count], starts: Vec::new(), slots: Vec::new() };
        for (_, view, writes) in operands(program) {
            let access = &mut uses.access[view.index()];
            match *access {
                _ if writes => *access = AccessMode::Written,
                AccessMode::None => *access = AccessMode::Read,
                AccessMode::Read | AccessMode::Written => {}
            }
        }
        if by_slot && program.cycle.len() > 1 {
            uses.find_slots(program);
        }
        uses
    }

    fn find_slots(&mut self, program: &Program) {
        // Calls `found` once for each slice and slot.
        let each = |found: &mut dyn FnMut(ViewId, u32)| {
            let mut last = vec![u32::MAX; program.views.len()];
            for (slot, view, _) in operands(program) {
                if std::mem::replace(&mut last[view.index()], slot) != slot {
                    found(view, slot);
                }
            }
        };
        self.starts = vec![0; program.views.len() + 1];
        each(&mut |view, _| self.starts[view.index() + 1] += 1);
        for index in 1..self.starts.len() {
            self.starts[index] += self.starts[index - 1];
        }
        let mut ends = self.starts.clone();
        self.slots = vec![0; *ends.last().unwrap_or(&0) as usize];
        each(&mut |view, slot| {
            let end = &mut ends[view.index()];
            self.slots[*end as usize] = slot;
            *end += 1;
        });
    }

    fn is_used(&self, view: ViewId) -> bool {
        self.access[view.index()] != AccessMode::None
    }

    fn is_written(&self, view: ViewId) -> bool {
        self.access[view.index()] == AccessMode::Written
    }

    /// The slots whose operations access a slice; empty if all slots count as one.
    fn slots(&self, view: ViewId) -> &[u32] {
        match self.starts.get(view.index()..view.index() + 2) {
            Some(&[start, end]) => &self.slots[start as usize..end as usize],
            _ => &[],
        }
    }

    /// The first slot whose operations access both slices; `None` if there is none, and if all slots count as one.
    fn first_slot(&self, a: ViewId, b: ViewId) -> Option<u32> {
        let (mut a, mut b) = (self.slots(a), self.slots(b));
        while let (Some((first, after)), Some((second, behind))) = (a.split_first(), b.split_first()) {
            match first.cmp(second) {
                Ordering::Equal => return Some(*first),
                Ordering::Less => a = after,
                Ordering::Greater => b = behind,
            }
        }
        None
    }
}

/// Returns slot, slice, and whether it is written, for each operand of the cycle.
fn operands(program: &Program) -> impl Iterator<Item = (u32, ViewId, bool)> {
    (0..).zip(&program.cycle).flat_map(|(slot, step)| {
        step.ids().flat_map(move |op| step.operands(op).map(move |(view, writes)| (slot, view, writes)))
    })
}

/// Returns the accessed slices, ordered by memory, and for each memory the end of its slices in that list.
fn by_memory(program: &Program, uses: &SliceUses) -> (Vec<u32>, Vec<ViewId>) {
    let views = || (0..program.views.len()).map(ViewId::from).filter(|view| uses.is_used(*view));
    let mut ends = vec![0u32; program.memories.len()];
    for view in views() {
        ends[program.views.memory(view).index()] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        (*end, sum) = (sum, sum + *end);
    }
    let mut ordered = vec![ViewId(0); sum as usize];
    for view in views() {
        let end = &mut ends[program.views.memory(view).index()];
        ordered[*end as usize] = view;
        *end += 1;
    }
    (ends, ordered)
}

/// First and end position of a slice along a dimension, or in memory order if `axis` is `None`.
fn stretch(extents: &[Extent], strides: &[u64], axis: Option<usize>) -> (u64, u64) {
    match axis {
        Some(axis) => (extents[axis].start, extents[axis].end()),
        None => {
            let start: u64 = extents.iter().zip(strides).map(|(extent, stride)| extent.start * stride).sum();
            let span: u64 = extents.iter().zip(strides).map(|(extent, stride)| (extent.len - 1) * stride).sum();
            (start, start + span + 1)
        }
    }
}

/// First and end position of a slice on an axis, and the slice.
type PlacedSlice = (u64, u64, ViewId);

/// Returns the slices of a group, sorted by their first position on an axis, and the mean number of slices at a
/// position.
fn placed(views: &Views, strides: &[u64], group: &[ViewId], axis: Option<usize>) -> (f64, Vec<PlacedSlice>) {
    let mut placed: Vec<PlacedSlice> = group
        .iter()
        .map(|&view| {
            let (start, end) = stretch(views.extents(view), strides, axis);
            (start, end, view)
        })
        .collect();
    placed.sort_unstable_by_key(|slice| slice.0);
    let low = placed.first().map_or(0, |first| first.0);
    let high = placed.iter().map(|slice| slice.1).max().unwrap_or(1);
    let filled: f64 = placed.iter().map(|slice| (slice.1 - slice.0) as f64).sum();
    (filled / (high - low) as f64, placed)
}

/// Divides sorted slices into runs of which none overlaps another on the axis. Returns the end index of each run.
fn parts(placed: &[PlacedSlice]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut reach = 0;
    for (index, &(start, end, _)) in placed.iter().enumerate() {
        if index > 0 && start >= reach {
            ends.push(index);
        }
        reach = reach.max(end);
    }
    ends.push(placed.len());
    ends
}

/// The search for pairs of slices that overlap.
struct OverlapSearch<'a> {
    program: &'a Program,
    uses: SliceUses,
    pairs: Vec<(ViewId, ViewId)>,
}

impl OverlapSearch<'_> {
    /// Finds the overlapping pairs among the slices of one memory. Returns false if there are too many.
    fn memory(&mut self, group: &[ViewId]) -> bool {
        if !self.can_conflict(group.iter().copied()) {
            return true;
        }
        if self.uses.starts.is_empty() {
            return self.overlapping(group.to_vec(), None);
        }
        let slots = |&view| self.uses.slots(view).iter().map(move |&slot| (slot, view));
        let mut by_slot: Vec<(u32, ViewId)> = group.iter().flat_map(slots).collect();
        // Stable, so that slots with the same slices have them in the same order.
        by_slot.sort_by_key(|(slot, _)| *slot);
        let views = |group: &[(u32, ViewId)]| -> Vec<ViewId> { group.iter().map(|(_, view)| *view).collect() };
        let mut previous = Vec::new();
        by_slot.chunk_by(|a, b| a.0 == b.0).all(|group| {
            let group = (group[0].0, views(group));
            let is_new = group.1 != previous && self.can_conflict(group.1.iter().copied());
            previous.clone_from(&group.1);
            !is_new || self.overlapping(group.1, Some(group.0))
        })
    }

    /// True if there are several slices, at least one of which is written.
    fn can_conflict(&self, mut views: impl ExactSizeIterator<Item = ViewId>) -> bool {
        views.len() > 1 && views.any(|view| self.uses.is_written(view))
    }

    /// Finds the overlapping pairs among slices of one memory, in one slot or in all. Divides the slices along each
    /// axis into runs that do not overlap, until no axis divides them further: tiles of a matrix separate by rows, then
    /// by columns. Then sweeps along the axis with the lowest density. Returns false if there are too many pairs.
    fn overlapping(&mut self, group: Vec<ViewId>, slot: Option<u32>) -> bool {
        let Some(&first) = group.first() else { return true };
        let views = &self.program.views;
        let memory = views.memory(first);
        let grid = views.grid(memory).unwrap_or_else(|| self.program.layout(memory).dims);
        let strides = grid.contiguous_strides();
        let rank = strides.len();
        let mut open = vec![(group, 0)];
        while let Some((group, cuts)) = open.pop() {
            let mut sweep: Option<(f64, Vec<PlacedSlice>)> = None;
            let mut apart = false;
            for axis in std::iter::once(None).chain((0..rank).map(Some)) {
                let (density, placed) = placed(views, &strides, &group, axis);
                let ends = parts(&placed);
                // Limit the number of cuts, and with it the time.
                if ends.len() > 1 && cuts <= rank {
                    let starts = std::iter::once(0).chain(ends.iter().copied());
                    let several = starts
                        .zip(&ends)
                        .map(|(start, &end)| &placed[start..end])
                        .filter(|part| self.can_conflict(part.iter().map(|slice| slice.2)));
                    open.extend(several.map(|part| (part.iter().map(|slice| slice.2).collect(), cuts + 1)));
                    apart = true;
                    break;
                }
                if sweep.as_ref().is_none_or(|(least, _)| density < *least) {
                    sweep = Some((density, placed));
                }
            }
            let sweep = sweep.filter(|_| !apart).map_or(Vec::new(), |(_, placed)| placed);
            if !self.swept(&sweep, slot) {
                return false;
            }
        }
        true
    }

    /// Adds the overlapping pairs among slices that are sorted along an axis. A pair in several slots is added in the
    /// first only.
    fn swept(&mut self, placed: &[PlacedSlice], slot: Option<u32>) -> bool {
        let OverlapSearch { program, uses, pairs } = self;
        let mut read: Vec<(u64, ViewId)> = Vec::new();
        let mut written: Vec<(u64, ViewId)> = Vec::new();
        for &(start, end, view) in placed {
            let mut meet = |open: &mut Vec<(u64, ViewId)>| {
                open.retain(|(other_end, _)| *other_end > start);
                let others = open.iter().map(|&(_, other)| other);
                let overlapping = others.filter(|&other| {
                    program.views.overlap(view, other) && (slot.is_none() || uses.first_slot(view, other) == slot)
                });
                pairs.extend(overlapping.map(|other| (view, other)));
            };
            meet(&mut written);
            match uses.is_written(view) {
                true => {
                    meet(&mut read);
                    written.push((end, view));
                }
                false => read.push((end, view)),
            }
            if pairs.len() > MAX_PAIRS {
                return false;
            }
        }
        true
    }
}

fn covers(views: &Views, outer: ViewId, inner: ViewId) -> bool {
    views.extents(outer).iter().zip(views.extents(inner)).all(|(outer, inner)| outer.contains(*inner))
}
