//! Divides the windows, elements and planes of a pool among the threads of its kernels.

use super::columns::{Columns, LARGE};
use super::grid::Grid;
use super::kernel::{AHEAD, AT_ONCE, FEW_THREADS, FEW_WINDOWS, Kernels, Task};
use super::*;
use crate::ops::kernels::kernel::BLOCK;
use crate::ops::kernels::occupancy::{LARGEST_CLUSTER, UNIT_THREADS, UNITS, WARP};

/// Maximum number of elements of a window of which a thread reads all, one after the other.
const SMALL: u64 = 8;

/// Maximum number of packs of a window that a warp reads. A block reads a larger window, and a smaller one if too few windows exist to
/// fill the device with warps.
const LARGER: u64 = 1024;

/// Maximum number of elements that a thread reads for neighbouring windows, or of gradients and places for neighbouring cells.
const LARGEST_REGION: u64 = 40;

/// Maximum number of planes in which a thread computes the same position.
const MAX_PLANES: u64 = 8;

/// Maximum distance in bytes of a thread's windows to those of its neighbours, added up over all planes: half of the first cache of an
/// SM of compute capability 9.0, divided by its threads.
const CACHED: u64 = 64;

/// Number of threads among which planes are divided: half of those that can be resident.
const ENOUGH_THREADS: u64 = UNITS * UNIT_THREADS / 2;

/// Number of threads of four rounds of blocks, of which an SM runs three at the same time: the registers of packs leave
/// no room for more.
const MANY_THREADS: u64 = 4 * 3 * UNITS * BLOCK as u64;

/// Number of threads of a block whose window occupies an SM by itself.
const LARGER_BLOCK: u64 = 512;

/// Number of steps of 256 threads up to which the blocks of one cluster read a window, however few windows there are.
const MANY_STEPS: u64 = 128;

impl Kernels {
    /// Columns whose elements the blocks of a task's kernel combine first; `None` if its blocks combine none.
    pub(super) fn columns(&self, task: Task) -> Option<Columns> {
        if !task.finds() || self.grid.strides[0][2] != 1 {
            return None;
        }
        let element = self.spec.inputs[0].dtype.size();
        Columns::of(&self.grid, self.shape.planes, self.even_pack(0), element, task == Task::Forward)
    }

    /// Number of threads of a block.
    pub(super) fn block(&self, task: Task) -> u64 {
        if task == Task::Held {
            return self.held().map_or(1, |held| held.threads);
        }
        if task == Task::Bands {
            return self.bands().map_or(1, |bands| bands.threads);
        }
        self.columns(task).map_or(self.threads(task).max(u64::from(BLOCK)), |columns| columns.threads())
    }

    /// Number of threads of a block, or of a part of one, for each window; and number of blocks of a window, whose results the blocks of a
    /// cluster or a second kernel join. The number depends on the shape alone, so every device adds in the same order.
    fn shares(&self, task: Task) -> (u64, u64) {
        let (packs, windows) = (self.window_packs(), self.windows());
        let Grid { y, steps, .. } = self.grid;
        // Threads of small windows read neighbouring elements, unless a window has whole rows, and all of them at once, unless windows
        // differ in size.
        let least = match (steps, task) {
            (None, _) => SMALL,
            (_, Task::Forward) if y[2] == 1 => AT_ONCE,
            (_, Task::Spread) => AT_ONCE,
            _ => LARGE,
        };
        if self.grid.window() <= least || (task != Task::Spread && self.has_short_rows()) {
            return (1, 1);
        }
        let steps = packs / u64::from(BLOCK);
        let joined = match task {
            // If windows are fewer and larger, more blocks read a window than a cluster has.
            Task::Spread if windows >= UNITS / LARGEST_CLUSTER || steps <= MANY_STEPS => self.cluster_blocks(),
            // Packs occupy so many registers that only half of the usual number of blocks is resident.
            Task::Spread => parts(windows.div_ceil(2), steps, AHEAD),
            _ => parts(windows, steps, AHEAD),
        };
        // A window that a single block reads has more threads, if there are no more windows than SMs.
        if task == Task::Spread && joined == 1 && windows <= UNITS && packs >= 2 * LARGER_BLOCK {
            return (LARGER_BLOCK, 1);
        }
        let lanes = match task {
            Task::Spread => {
                // The fewest threads that read a window in four steps, if there are many windows, or in one step. In
                // the last blocks of many, idle SMs cost little.
                let enough = |lanes: &u64| {
                    let threads = windows * lanes;
                    (packs <= lanes * 4 * AHEAD && threads >= MANY_THREADS)
                        || (packs <= lanes * AHEAD && threads >= 2 * FEW_THREADS)
                };
                let lanes = [2, 4, 8, 16, 32, 64, 128].into_iter().find(enough).unwrap_or(u64::from(BLOCK));
                lanes.min(packs.next_power_of_two()).max(2)
            }
            // The fewest threads that read a window in two steps, if that is enough threads for the device.
            _ => {
                let enough = |lanes: &u64| packs <= lanes * 2 * AHEAD && windows * lanes >= FEW_THREADS;
                let fits_warp = packs <= LARGER && (packs <= AHEAD * WARP || windows * WARP >= UNITS * UNIT_THREADS);
                let larger = match task {
                    Task::Forward if fits_warp => WARP,
                    Task::Forward => u64::from(BLOCK),
                    // Enough threads to read a window in one step, so that a thread waits for memory once.
                    _ => [WARP, 64, 128].into_iter().find(|lanes| packs <= lanes * AHEAD).unwrap_or(u64::from(BLOCK)),
                };
                [2, 4, 8, 16].into_iter().find(enough).unwrap_or(larger)
            }
        };
        (lanes, if lanes < u64::from(BLOCK) { 1 } else { joined })
    }

    /// Number of blocks of a window that are a cluster: as many as give each SM up to two blocks. A cluster starts only when there is room
    /// for all of its blocks.
    fn cluster_blocks(&self) -> u64 {
        let windows = self.windows();
        let most = if 2 * windows <= UNITS { LARGEST_CLUSTER } else { 1 };
        let blocks = 1 << (2 * UNITS / windows).clamp(1, most).ilog2();
        if self.window_packs() >= blocks * u64::from(BLOCK) { blocks } else { 1 }
    }

    /// True if rows of windows are shorter than a warp, and there are enough windows to occupy the device with one
    /// thread each. Then threads of neighbouring windows read neighbouring elements, which several threads of one
    /// window would not.
    fn has_short_rows(&self) -> bool {
        self.grid.window_row() < WARP && self.windows() >= UNITS * UNIT_THREADS
    }

    /// Number of positions in a plane that threads compute, and number of elements that a thread reads for a position.
    pub(super) fn positions(&self, task: Task) -> (u64, u64) {
        match task {
            Task::Held | Task::Bands => (self.grid.windows(), self.grid.window()),
            Task::Forward | Task::Indices | Task::Places | Task::PlacesAndZeros | Task::Spread => {
                let tall = self.tall(task);
                let windows = self.grid.y[0] * self.grid.y[1].div_ceil(tall) * self.grid.y[2];
                (windows, self.region(task, tall))
            }
            Task::Scatter | Task::Fill => (self.grid.windows(), self.grid.most().iter().product()),
            Task::Cells => (self.grid.cells().iter().product(), self.grid.window()),
            // Gradients and places, for maxima.
            Task::Gather => {
                let tall = self.tall(task);
                (self.grid.gathered(tall)[0].iter().product(), self.region(task, tall))
            }
            Task::Backward => {
                let windows: u64 = self.grid.most().iter().product();
                (self.grid.elements() / self.alike(task), windows * if self.shape.is_max { 2 } else { 1 })
            }
        }
    }

    /// Number of windows, or of cells, along the second dimension that a thread computes from elements that they share.
    pub(super) fn tall(&self, task: Task) -> u64 {
        let Some([size, stride, _, dilation]) = self.grid.steps else { return 1 };
        let shares = stride[1] < size[1] && dilation == [1; 3] && self.grid.window() <= 2 * AT_ONCE;
        if !(task.finds() || task == Task::Gather) || !shares || self.threads(task) > 1 || self.columns(task).is_some()
        {
            return 1;
        }
        // Cells of a larger stride share fewer windows.
        if task == Task::Gather && stride[1] > 1 {
            return 1;
        }
        // Elements of neighbouring windows are all read at once.
        let fits = |tall: &u64| {
            self.region(task, *tall) <= LARGEST_REGION
                && *tall <= self.grid.y[1]
                && self.windows() / tall >= ENOUGH_THREADS
        };
        [4, 2].into_iter().find(fits).unwrap_or(1)
    }

    /// Number of elements that a thread reads for this many windows or cells along the second dimension.
    fn region(&self, task: Task, tall: u64) -> u64 {
        match (task, self.grid.steps) {
            (Task::Gather, _) => {
                let windows: u64 = self.grid.gathered(tall)[1].iter().product();
                windows * if self.shape.is_max { 2 } else { 1 }
            }
            (_, Some([size, stride, ..])) if tall > 1 => size[0] * ((tall - 1) * stride[1] + size[1]) * size[2],
            _ => self.grid.window(),
        }
    }

    /// True if a thread reads all elements of a position at once, in loops of constant length.
    pub(super) fn is_unrolled(&self, task: Task) -> bool {
        let has_loops = matches!(task, Task::Backward | Task::Scatter | Task::Held | Task::Bands | Task::Fill)
            || self.grid.steps.is_none()
            || self.threads(task) > 1;
        !has_loops && self.positions(task).1 <= 2 * AT_ONCE
    }

    /// Number of threads for a position.
    pub(super) fn threads(&self, task: Task) -> u64 {
        if self.shares_windows(task) { self.shares(task).0 } else { 1 }
    }

    /// True if several threads may read a window.
    fn shares_windows(&self, task: Task) -> bool {
        (task.finds() || task == Task::Spread) && self.columns(task).is_none()
    }

    /// Number of planes in which a thread computes the same position, as long as enough threads remain.
    pub(super) fn planes(&self, task: Task) -> u64 {
        let (positions, elements) = self.positions(task);
        if self.threads(task) > 1 || matches!(task, Task::Scatter | Task::Held | Task::Bands | Task::Fill) {
            return 1;
        }
        let spare = (positions * self.shape.planes / ENOUGH_THREADS).clamp(1, MAX_PLANES);
        // Rows of the planes' windows stay in the first cache until their last element is read.
        let distance = self.grid.x[2].div_ceil(self.grid.y[2]) * self.spec.inputs[0].dtype.size();
        let cached =
            if matches!(task, Task::Backward | Task::Gather) { MAX_PLANES } else { (CACHED / distance).max(1) };
        let most = match task {
            _ if self.is_unrolled(task) => AT_ONCE / elements.min(AT_ONCE),
            // A thread finds the divisors of its windows once for all planes, and loads all gradients at once.
            Task::Backward if !self.shape.is_max && elements <= FEW_WINDOWS => AT_ONCE / elements,
            _ => AHEAD,
        };
        // A power of two.
        1 << spare.min(most).min(cached).min(self.shape.planes).ilog2()
    }

    /// Number of parts of a window, for each of which there is a block.
    pub(super) fn parts(&self, task: Task) -> u64 {
        if self.shares_windows(task) { self.shares(task).1 } else { 1 }
    }

    /// True if the blocks of a window's parts are a cluster, which joins their results on devices that have clusters.
    pub(super) fn clusters(&self, task: Task) -> bool {
        let parts = self.parts(task);
        task == Task::Spread && (2..=LARGEST_CLUSTER).contains(&parts) && parts.is_power_of_two()
    }

    /// Number of groups into which the planes are divided, of which a thread computes a plane each; and number of threads of a
    /// kernel.
    pub(super) fn division(&self, task: Task) -> (u64, u64) {
        if let (Task::Held, Some(held)) = (task, self.held()) {
            return (1, held.blocks(self) * held.threads);
        }
        if let (Task::Bands, Some(bands)) = (task, self.bands()) {
            return (1, bands.blocks() * bands.threads);
        }
        if task == Task::Fill {
            return (1, self.fill().blocks(self) * u64::from(BLOCK));
        }
        let groups = self.shape.planes.div_ceil(self.planes(task));
        if let Some(columns) = self.columns(task) {
            return (groups, columns.blocks() * columns.threads());
        }
        (groups, groups * self.positions(task).0 * self.threads(task) * self.parts(task))
    }
}
