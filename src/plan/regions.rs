//! Which slices of a program have elements in common.

use crate::base::{MemoryId, ViewId};
use crate::model::{Program, Views};

/// For each slice the others that overlap it.
#[derive(Debug)]
pub struct Regions {
    starts: Vec<u32>,
    neighbours: Vec<Neighbour>,
}

/// A slice that overlaps another.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    pub view: ViewId,
    /// It lies inside the other as a whole.
    pub covered: bool,
}

/// Pairs of overlapping slices that are kept at most: a few hundred megabytes.
pub const MAX_PAIRS: usize = 1 << 23;

impl Regions {
    /// The overlaps of all slices, or the memory at which there are too many.
    pub fn new(program: &Program) -> Result<Regions, MemoryId> {
        let views = &program.views;
        let mut by_memory: Vec<(MemoryId, ViewId)> =
            (0..views.len()).map(ViewId::from).map(|view| (views.memory(view), view)).collect();
        by_memory.sort_unstable();
        let mut pairs: Vec<(ViewId, Neighbour)> = Vec::new();
        for group in by_memory.chunk_by(|a, b| a.0 == b.0) {
            let memory = group[0].0;
            let group: Vec<ViewId> = group.iter().map(|(_, view)| *view).collect();
            if !overlapping(program, &group, &mut pairs) {
                return Err(memory);
            }
        }
        pairs.sort_unstable_by_key(|(view, neighbour)| (*view, neighbour.view));
        let mut starts = vec![0u32; views.len() + 1];
        for (view, _) in &pairs {
            starts[view.index() + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        Ok(Regions { starts, neighbours: pairs.into_iter().map(|(_, neighbour)| neighbour).collect() })
    }

    /// The other slices that overlap this one.
    pub fn of(&self, view: ViewId) -> &[Neighbour] {
        &self.neighbours[self.starts[view.index()] as usize..self.starts[view.index() + 1] as usize]
    }
}

/// A stretch along which slices are compared: one dimension, or the order of the elements in memory.
fn stretch(program: &Program, view: ViewId, axis: Option<usize>) -> (u64, u64) {
    let extents = program.views.extents(view);
    match axis {
        Some(axis) => (extents[axis].start, extents[axis].end()),
        None => {
            let strides = program.layout(program.views.memory(view)).dims.contiguous_strides();
            let start: u64 = extents.iter().zip(strides.iter()).map(|(e, stride)| e.start * stride).sum();
            let last: u64 = extents.iter().zip(strides.iter()).map(|(e, stride)| (e.end() - 1) * stride).sum();
            (start, last + 1)
        }
    }
}

/// Slices with their stretches, and how densely these fill the whole.
type Sweep = (f64, Vec<(u64, u64, ViewId)>);

/// Finds the overlapping pairs among the slices of one memory. They are swept along the stretch in which they are the
/// shortest, so that slices which lie apart cost nothing. False when there are too many.
fn overlapping(program: &Program, group: &[ViewId], pairs: &mut Vec<(ViewId, Neighbour)>) -> bool {
    let [first, _, ..] = group else { return true };
    let rank = program.views.extents(*first).len();
    let mut best: Option<Sweep> = None;
    for axis in std::iter::once(None).chain((0..rank).map(Some)) {
        let mut stretches: Vec<(u64, u64, ViewId)> = group
            .iter()
            .map(|&view| {
                let (start, end) = stretch(program, view, axis);
                (start, end, view)
            })
            .collect();
        let low = stretches.iter().map(|s| s.0).min().unwrap_or(0);
        let high = stretches.iter().map(|s| s.1).max().unwrap_or(1);
        let filled: f64 = stretches.iter().map(|s| (s.1 - s.0) as f64).sum();
        let density = filled / (high - low) as f64;
        if best.as_ref().is_none_or(|(least, _)| density < *least) {
            stretches.sort_unstable();
            best = Some((density, stretches));
        }
        if density <= 1.0 {
            break;
        }
    }
    let Some((_, stretches)) = best else { return true };
    let mut open: Vec<(u64, ViewId)> = Vec::new();
    for (start, end, view) in stretches {
        open.retain(|(other_end, _)| *other_end > start);
        for &(_, other) in &open {
            if program.views.overlap(view, other) {
                pairs.push((view, Neighbour { view: other, covered: covers(&program.views, view, other) }));
                pairs.push((other, Neighbour { view, covered: covers(&program.views, other, view) }));
            }
        }
        if pairs.len() > 2 * MAX_PAIRS {
            return false;
        }
        open.push((end, view));
    }
    true
}

fn covers(views: &Views, outer: ViewId, inner: ViewId) -> bool {
    views.extents(outer).iter().zip(views.extents(inner)).all(|(outer, inner)| outer.contains(*inner))
}
