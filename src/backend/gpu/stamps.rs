//! Times from inside of a graph, where a vendor's events have none there: a kernel of one thread writes the device's
//! clock into the host's memory, before and behind each operation.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::Nanos;
use crate::ops::{Source, kernel};

use super::api::{Api, Call};
use super::runtime::{Function, Stream};

/// The kernel: it looks at the device's clock.
pub fn source() -> Arc<Source> {
    let body = "  *(volatile u64*)cell = WHOLE_CLOCK();\n  __threadfence_system();\n";
    kernel::source("stamp", "", &["u64* cell".to_owned()], body)
}

/// The cells of a driver's stamps, made once: one for each stamp, and one for the beginning of a graph.
pub struct Stamps {
    function: Function,
    /// Pinned, so at the same address for both sides.
    cells: u64,
    /// The argument of each cell's kernel, and pointers to them.
    values: Vec<u64>,
    pointers: Vec<*mut c_void>,
    /// The stamps of the capture under way.
    captured: Vec<u32>,
    /// Graphs with stamps in them.
    graphs: Vec<(u32, Vec<u32>)>,
    /// For each stamp, whether a graph has set it last, and not an event.
    in_graph: Vec<bool>,
    ticks_per_second: u64,
}

impl Stamps {
    pub fn new<A: Api>(api: &A, function: Function, count: u32) -> Call<Self> {
        let cells = api.allocate_pinned(8 * (u64::from(count) + 1))?;
        let mut values: Vec<u64> = (0..=u64::from(count)).map(|cell| cells + 8 * cell).collect();
        let base = values.as_mut_ptr();
        let pointers = (0..values.len()).map(|index| base.wrapping_add(index).cast()).collect();
        Ok(Stamps {
            function,
            cells,
            values,
            pointers,
            captured: Vec::new(),
            graphs: Vec::new(),
            in_graph: vec![false; count as usize],
            ticks_per_second: api.ticks(Nanos(1_000_000_000)).max(1),
        })
    }

    /// The cell for the beginning of a graph.
    fn origin(&self) -> u32 {
        self.values.len() as u32 - 1
    }

    fn write<A: Api>(&mut self, api: &A, cell: u32, stream: Stream) -> Call {
        let args = self.pointers.as_mut_ptr().wrapping_add(cell as usize);
        // SAFETY: the kernel takes one value of 64 bits, which lies where the pointer says.
        unsafe { api.launch(self.function, 1, 1, 0, stream, args) }
    }

    /// Sets a stamp from inside of the capture under way.
    pub fn capture<A: Api>(&mut self, api: &A, stamp: u32, stream: Stream) -> Call {
        self.captured.push(stamp);
        self.write(api, stamp, stream)
    }

    /// The capture gave this graph, or none.
    pub fn captured(&mut self, graph: Option<u32>) {
        let stamps = std::mem::take(&mut self.captured);
        if let Some(graph) = graph.filter(|_| !stamps.is_empty()) {
            self.graphs.push((graph, stamps));
        }
    }

    /// A graph is about to be launched: where it has stamps, they are told from here.
    pub fn launch<A: Api>(&mut self, api: &A, graph: u32, stream: Stream) -> Call {
        let Some((_, stamps)) = self.graphs.iter().find(|(known, _)| *known == graph) else { return Ok(()) };
        for &stamp in stamps {
            self.in_graph[stamp as usize] = true;
        }
        self.write(api, self.origin(), stream)
    }

    /// An event sets this stamp.
    #[inline]
    pub fn by_event(&mut self, stamp: u32) {
        self.in_graph[stamp as usize] = false;
    }

    fn read(&self, cell: u32) -> u64 {
        let address = self.cells as usize + 8 * cell as usize;
        // SAFETY: the cell lies in the memory of the stamps, which lives as long as they do; the host reads it as a whole.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Acquire)
    }

    /// The time between two stamps that have been reached, where the second was set by a graph. An event before the
    /// graph stands for the graph's beginning: the kernel that stamps that comes directly behind it.
    pub fn elapsed(&self, from: u32, to: u32) -> Option<Nanos> {
        if !self.in_graph[to as usize] {
            return None;
        }
        let from = if self.in_graph[from as usize] { from } else { self.origin() };
        let ticks = i128::from(self.read(to)) - i128::from(self.read(from));
        Some(Nanos((ticks * 1_000_000_000 / i128::from(self.ticks_per_second)) as i64))
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No graph is under way.
    pub unsafe fn free<A: Api>(self, api: &A) {
        // SAFETY: the caller says so.
        unsafe { api.free_pinned(self.cells) };
    }
}
