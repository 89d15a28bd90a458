//! The last accesses to each slice: its last writer, and its readers since then.

use crate::base::{OpId, StreamId, ViewId};
use crate::model::{MemoryKind, Program};

use super::graph::Hazard;
use super::last_accesses::LastAccesses;
use super::regions::Regions;

/// An access to a slice by an operation of an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    pub at: IssuedOp,
    pub stream: StreamId,
    pub view: ViewId,
}

/// An operation of an iteration. The derived order is that of issue. Iterations are numbered over the whole walk, and
/// not within the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IssuedOp {
    /// Number of the iteration, counted from 1; 0 stands for a time before all iterations.
    number: u32,
    pub op: OpId,
}

impl IssuedOp {
    /// A value before every operation.
    const NEVER: IssuedOp = IssuedOp { number: 0, op: OpId(0) };

    /// Returns an operation of an iteration, which is counted from 0.
    pub fn new(iteration: u32, op: OpId) -> IssuedOp {
        IssuedOp { number: iteration + 1, op }
    }

    /// Number of the iteration, counted from 0.
    pub fn iteration(self) -> u32 {
        self.number - 1
    }
}

/// The accesses of the iterations that may be under way. A write replaces all earlier accesses to the slice, since it
/// has waited for them.
pub struct Accesses<'a> {
    program: &'a Program,
    regions: &'a Regions,
    writers: Vec<(IssuedOp, StreamId)>,
    /// For each slice, the last reader on each stream since the last write.
    readers: LastAccesses<IssuedOp>,
    /// Slices that have a writer or a reader.
    touched: Vec<ViewId>,
}

impl<'a> Accesses<'a> {
    pub fn new(program: &'a Program, regions: &'a Regions) -> Self {
        let count = program.views.len();
        Accesses {
            program,
            regions,
            writers: vec![(IssuedOp::NEVER, StreamId(0)); count],
            readers: LastAccesses::new(count),
            touched: Vec::new(),
        }
    }

    /// Ends an iteration. Removes all accesses if `all` is true; otherwise only those to scratch memory, of which each
    /// iteration has its own copy.
    pub fn end_iteration(&mut self, all: bool) {
        let program = self.program;
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|&view| {
            let kept = !all && program.memory(program.views.memory(view)).kind != MemoryKind::Scratch;
            if !kept {
                self.forget(view);
            }
            kept
        });
        self.touched = touched;
    }

    fn forget(&mut self, view: ViewId) {
        self.writers[view.index()].0 = IssuedOp::NEVER;
        if !self.readers.is_empty(view.0) {
            self.readers.clear(view.0);
        }
    }

    /// Appends to `found` the accesses that an access through `view` must follow, each with its hazard: all accesses to
    /// the slice itself, and those to overlapping slices that are later. Earlier ones are implied: the slice's own
    /// writer has waited for all accesses before it, and earlier reads of the same stream have waited for the writers
    /// before them.
    pub fn conflicts(&self, view: ViewId, stream: StreamId, writes: bool, found: &mut Vec<(Access, Hazard)>) {
        self.found_on(view, writes, (IssuedOp::NEVER, IssuedOp::NEVER), found);
        let neighbours = self.regions.of(view);
        if neighbours.is_empty() {
            return;
        }
        let written = self.writers[view.index()].0;
        let read = self.readers.get(view.0, stream.0).unwrap_or(IssuedOp::NEVER);
        for neighbour in neighbours {
            self.found_on(neighbour.view(), writes, (written.max(read), written), found);
        }
    }

    /// Appends the writer of a slice if it is later than `since.0`; if the access is a write, also the readers later
    /// than `since.1`.
    fn found_on(&self, view: ViewId, writes: bool, since: (IssuedOp, IssuedOp), found: &mut Vec<(Access, Hazard)>) {
        let (at, stream) = self.writers[view.index()];
        if at > since.0 {
            let hazard = if writes { Hazard::WriteAfterWrite } else { Hazard::ReadAfterWrite };
            found.push((Access { at, stream, view }, hazard));
        }
        if writes && !self.readers.is_empty(view.0) {
            let readers = self.readers.of(view.0).filter(|(_, at)| *at > since.1);
            found.extend(
                readers.map(|(stream, at)| (Access { at, stream: StreamId(stream), view }, Hazard::WriteAfterRead)),
            );
        }
    }

    /// Records an access. A write replaces all earlier accesses to the slice, and to slices that lie completely inside
    /// it.
    pub fn note(&mut self, access: Access, writes: bool) {
        match writes {
            true => self.write(access),
            false => {
                self.touch(access.view);
                self.readers.note(access.view.0, access.stream.0, access.at);
            }
        }
    }

    fn write(&mut self, access: Access) {
        self.touch(access.view);
        self.readers.clear(access.view.0);
        self.writers[access.view.index()] = (access.at, access.stream);
        let regions = self.regions;
        for neighbour in regions.of(access.view).iter().filter(|neighbour| neighbour.covered()) {
            self.forget(neighbour.view());
        }
    }

    fn touch(&mut self, view: ViewId) {
        if self.writers[view.index()].0 == IssuedOp::NEVER && self.readers.is_empty(view.0) {
            self.touched.push(view);
        }
    }
}
