//! Timestamps inside graphs, for vendors whose events have none there: a one-thread kernel writes the device's clock to
//! host memory, before and after each operation.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::gpu::api::runtime::{Function, Stream};
use crate::backend::gpu::api::{Api, Call};
use crate::base::Nanos;
use crate::ops::{KernelSource, kernel};

/// The kernel that writes the device's clock.
pub fn source() -> Arc<KernelSource> {
    let body = "  *(volatile u64*)cell = WHOLE_CLOCK();\n  __threadfence_system();\n";
    kernel::source("stamp", "", &["u64* cell".to_owned()], body)
}

/// The memory to which kernels write timestamps, made once: a cell for each stamp, and one for the start of a graph.
pub struct Stamps {
    function: Function,
    /// Address of the cells in pinned memory, the same on host and device.
    cells: u64,
    /// Argument of each cell's kernel.
    values: Vec<u64>,
    /// Pointers to the values.
    pointers: Vec<*mut c_void>,
    /// Stamps set in the capture under way.
    captured: Vec<u32>,
    /// Graphs that contain stamps.
    graphs: Vec<(u32, Vec<u32>)>,
    /// For each stamp, true if a graph set it last, false if an event did.
    in_graph: Vec<bool>,
    ticks_per_second: u64,
}

impl Stamps {
    /// Allocates the cells of `count` stamps.
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

    /// Number of the cell for the start of a graph.
    fn origin(&self) -> u32 {
        self.values.len() as u32 - 1
    }

    fn write<A: Api>(&mut self, api: &A, cell: u32, stream: Stream) -> Call {
        let args = self.pointers.as_mut_ptr().wrapping_add(cell as usize);
        // SAFETY: the kernel takes one 64-bit value, which the pointer points to.
        unsafe { api.launch(self.function, [1; 3], [1; 3], 0, stream, args) }
    }

    /// Adds the kernel of a stamp to the capture under way.
    pub fn capture<A: Api>(&mut self, api: &A, stamp: u32, stream: Stream) -> Call {
        self.captured.push(stamp);
        self.write(api, stamp, stream)
    }

    /// Assigns the stamps of the capture that has ended to its graph; `graph` is `None` if the capture failed.
    pub fn captured(&mut self, graph: Option<u32>) {
        let stamps = std::mem::take(&mut self.captured);
        if let Some(graph) = graph.filter(|_| !stamps.is_empty()) {
            self.graphs.push((graph, stamps));
        }
    }

    /// Launches the kernel that writes the start of a graph, if the graph contains stamps. Called before each launch of
    /// a graph.
    pub fn launch<A: Api>(&mut self, api: &A, graph: u32, stream: Stream) -> Call {
        let Some((_, stamps)) = self.graphs.iter().find(|(known, _)| *known == graph) else { return Ok(()) };
        for &stamp in stamps {
            self.in_graph[stamp as usize] = true;
        }
        self.write(api, self.origin(), stream)
    }

    /// Notes that an event, and not a graph, has set a stamp last.
    #[inline]
    pub fn by_event(&mut self, stamp: u32) {
        self.in_graph[stamp as usize] = false;
    }

    fn read(&self, cell: u32) -> u64 {
        let address = self.cells as usize + 8 * cell as usize;
        // SAFETY: the cell lies in the stamps' memory, which lives as long as they do; the host reads it atomically.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Acquire)
    }

    /// Time between two stamps; `None` if no graph set the second one. If an event set the first one, the start of the
    /// graph, which follows that event directly, takes its place.
    pub fn elapsed(&self, from: u32, to: u32) -> Option<Nanos> {
        if !self.in_graph[to as usize] {
            return None;
        }
        let from = if self.in_graph[from as usize] { from } else { self.origin() };
        let ticks = i128::from(self.read(to)) - i128::from(self.read(from));
        Some(Nanos((ticks * 1_000_000_000 / i128::from(self.ticks_per_second)) as i64))
    }

    /// Frees the stamps' memory.
    ///
    /// # Safety
    ///
    /// No graph is running.
    pub unsafe fn free<A: Api>(self, api: &A) {
        // SAFETY: the caller guarantees that no graph uses the memory.
        unsafe { api.free_pinned(self.cells) };
    }
}
