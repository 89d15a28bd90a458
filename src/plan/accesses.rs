//! Who touched each slice last: the writer, and the readers since then.

use crate::base::{OpId, StreamId, ViewId};
use crate::model::{MemoryKind, Program};

use super::graph::Hazard;
use super::latest::Latest;
use super::regions::Regions;

/// An operation of an iteration that touched a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    pub at: At,
    pub stream: StreamId,
    pub view: ViewId,
}

/// An operation of an iteration, in the order of issue. Iterations are counted over the whole walk, not in the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub iteration: u32,
    pub op: OpId,
}

/// What nothing has written.
const NOBODY: At = At { iteration: u32::MAX, op: OpId(u32::MAX) };

/// The accesses of the iterations that may be under way. A write stands for everything before it, since it waited for
/// that.
pub struct Accesses<'a> {
    program: &'a Program,
    regions: &'a Regions,
    writers: Vec<(At, StreamId)>,
    /// The readers of a slice since its last write, one for each stream.
    readers: Latest<At>,
    /// Slices that have a writer or readers.
    touched: Vec<ViewId>,
}

impl<'a> Accesses<'a> {
    pub fn new(program: &'a Program, regions: &'a Regions) -> Self {
        let count = program.views.len();
        Accesses {
            program,
            regions,
            writers: vec![(NOBODY, StreamId(0)); count],
            readers: Latest::new(count),
            touched: Vec::new(),
        }
    }

    /// Forgets scratch memory, which each iteration under way has for its own, or everything.
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
        self.writers[view.index()].0 = NOBODY;
        self.readers.clear(view.0);
    }

    /// Everything that an access through `view` has to come after, with the reason.
    pub fn conflicts(&self, view: ViewId, writes: bool, found: &mut Vec<(Access, Hazard)>) {
        let neighbours = self.regions.of(view).iter().map(|neighbour| neighbour.view());
        for other in std::iter::once(view).chain(neighbours) {
            let (at, stream) = self.writers[other.index()];
            if at != NOBODY {
                let hazard = if writes { Hazard::WriteAfterWrite } else { Hazard::ReadAfterWrite };
                found.push((Access { at, stream, view: other }, hazard));
            }
            if writes {
                for (stream, at) in self.readers.of(other.0) {
                    found.push((Access { at, stream: StreamId(stream), view: other }, Hazard::WriteAfterRead));
                }
            }
        }
    }

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
        if self.writers[view.index()].0 == NOBODY && self.readers.is_empty(view.0) {
            self.touched.push(view);
        }
    }
}
