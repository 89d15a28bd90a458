//! Finds slices of a program that have elements in common.

use crate::base::{MemoryId, ViewId};
use crate::model::{Extent, Program, Views};

/// For each slice, the slices that overlap it.
#[derive(Debug)]
pub struct Regions {
    starts: Vec<u32>,
    neighbours: Vec<Neighbour>,
}

/// An overlapping slice: its number, and in the lowest bit whether it lies completely inside the other.
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

    /// Whether that slice lies completely inside the other.
    pub fn covered(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Maximum number of stored pairs, about a hundred megabytes.
pub const MAX_PAIRS: usize = 1 << 23;

impl Regions {
    /// Returns the overlaps of all slices, or the memory that has too many.
    pub fn new(program: &Program) -> Result<Regions, MemoryId> {
        let views = &program.views;
        let mut pairs: Vec<(ViewId, ViewId)> = Vec::new();
        let (ends, ordered) = by_memory(program);
        for memory in (0..ends.len()).map(MemoryId::from) {
            let start = memory.index().checked_sub(1).map_or(0, |before| ends[before] as usize);
            let group = &ordered[start..ends[memory.index()] as usize];
            if group.len() > 1 && !overlapping(program, group.to_vec(), &mut pairs) {
                return Err(memory);
            }
        }
        drop(ordered);
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

    /// Slices that overlap this one.
    pub fn of(&self, view: ViewId) -> &[Neighbour] {
        &self.neighbours[self.starts[view.index()] as usize..self.starts[view.index() + 1] as usize]
    }
}

/// Slices ordered by memory, and the end of each memory's slices.
fn by_memory(program: &Program) -> (Vec<u32>, Vec<ViewId>) {
    let views = || (0..program.views.len()).map(ViewId::from);
    let mut ends = vec![0u32; program.memories.len()];
    for view in views() {
        ends[program.views.memory(view).index()] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        (*end, sum) = (sum, sum + *end);
    }
    let mut ordered = vec![ViewId(0); program.views.len()];
    for view in views() {
        let end = &mut ends[program.views.memory(view).index()];
        ordered[*end as usize] = view;
        *end += 1;
    }
    (ends, ordered)
}

/// Interval of a slice along one dimension, or in memory order.
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

/// Begin and end of a slice on an axis, and its id.
type Placed = (u64, u64, ViewId);

/// Slices of a group sorted along an axis, and their density there.
fn placed(views: &Views, strides: &[u64], group: &[ViewId], axis: Option<usize>) -> (f64, Vec<Placed>) {
    let mut placed: Vec<Placed> = group
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

/// Ends of the maximal runs of slices that are connected by overlaps on the axis.
fn parts(placed: &[Placed]) -> Vec<usize> {
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

/// Finds the overlapping pairs among the slices of one memory. Divides them along each axis into separate parts until
/// they cannot be divided further: tiles of a matrix separate by rows and then by columns. Then sweeps along the axis
/// with the lowest density. False if there are too many pairs.
fn overlapping(program: &Program, group: Vec<ViewId>, pairs: &mut Vec<(ViewId, ViewId)>) -> bool {
    let Some(&first) = group.first() else { return true };
    let strides = program.layout(program.views.memory(first)).dims.contiguous_strides();
    let rank = strides.len();
    let mut open = vec![(group, 0)];
    while let Some((group, cuts)) = open.pop() {
        let mut sweep: Option<(f64, Vec<Placed>)> = None;
        let mut apart = false;
        for axis in std::iter::once(None).chain((0..rank).map(Some)) {
            let (density, placed) = placed(&program.views, &strides, &group, axis);
            let ends = parts(&placed);
            // Limit the number of cuts, and with it the time.
            if ends.len() > 1 && cuts <= rank {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                let several = starts.zip(&ends).map(|(start, &end)| &placed[start..end]).filter(|part| part.len() > 1);
                open.extend(several.map(|part| (part.iter().map(|slice| slice.2).collect(), cuts + 1)));
                apart = true;
                break;
            }
            if sweep.as_ref().is_none_or(|(least, _)| density < *least) {
                sweep = Some((density, placed));
            }
        }
        let sweep = sweep.filter(|_| !apart).map_or(Vec::new(), |(_, placed)| placed);
        if !swept(program, &sweep, pairs) {
            return false;
        }
    }
    true
}

/// Adds the overlapping pairs among slices that are sorted along an axis.
fn swept(program: &Program, placed: &[Placed], pairs: &mut Vec<(ViewId, ViewId)>) -> bool {
    let mut open: Vec<(u64, ViewId)> = Vec::new();
    for &(start, end, view) in placed {
        open.retain(|(other_end, _)| *other_end > start);
        pairs.extend(open.iter().map(|&(_, other)| (view, other)).filter(|&(a, b)| program.views.overlap(a, b)));
        if pairs.len() > MAX_PAIRS {
            return false;
        }
        open.push((end, view));
    }
    true
}

fn covers(views: &Views, outer: ViewId, inner: ViewId) -> bool {
    views.extents(outer).iter().zip(views.extents(inner)).all(|(outer, inner)| outer.contains(*inner))
}
