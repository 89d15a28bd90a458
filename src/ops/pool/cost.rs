//! The cost of the kernels of pools.

use super::kernel::{Kernels, PACK, Task};
use super::*;
use crate::ops::kernels::occupancy::share;

/// Instructions of a thread for its position. All constants are counts in code for sm_90a by NVRTC 13.0.
const PER_POSITION: f64 = 70.0;
/// Instructions of a thread for each plane.
const PER_PLANE: f64 = 14.0;
/// Instructions of a thread for each element of a position, in unrolled code.
const PER_ELEMENT: f64 = 4.0;
/// Instructions of a thread for each element of a position, in a loop.
const PER_STEP: f64 = 40.0;
/// Instructions of a thread for each element of a plane.
const PER_TERM: f64 = 4.0;

/// Instructions of a thread that shares a window; per pack that it reads, and per element of the pack. Packs at the edges of rows take
/// [`MASKED`] times as many to find a place.
const PER_SHARER: f64 = 190.0;
const PER_PACK: f64 = 12.0;
const PER_PACKED: f64 = 5.0;
const MASKED: f64 = 2.0;

/// Instructions per pack that is written.
const PER_WRITTEN: f64 = 10.0;
/// Instructions per element of a pack that is written.
const PER_GRADIENT: f64 = 2.0;

/// Instructions per pack of columns and per window of columns; per element of a column for a place, and per column of a window, for a place
/// and for a result.
const PER_COLUMN: f64 = 45.0;
const PER_WINDOW: f64 = 45.0;
const PER_PLACE: f64 = 8.0;
const PER_JOINED: [f64; 2] = [6.0, 2.0];

/// Instructions per element of a window in shared memory.
const PER_HELD: f64 = 12.0;

impl Kernels {
    /// Returns the cost of these kernels.
    pub fn cost(&self, tasks: &[Task]) -> Cost {
        let places = if tasks.len() > 1 { self.windows() * self.place().size() } else { 0 };
        let places = Traffic::of(Space::Device, places);
        let indices = Spec::bytes_of(self.indices.as_slice());
        let is_gradient = self.spec.inputs.len() > 1;
        // A gradient of means or with indices does not read the input of the pool.
        let (inputs, given) = match (is_gradient, self.indices.is_some()) {
            (true, true) => (&self.spec.inputs[1..], [indices, Traffic::NONE]),
            (true, false) if !self.shape.is_max => (&self.spec.inputs[1..], [Traffic::NONE; 2]),
            _ => (&self.spec.inputs[..], [Traffic::NONE, indices]),
        };
        let blocks = |&task: &Task| self.division(task).1.div_ceil(self.block(task));
        Cost {
            flops: self.windows() as f64 * self.grid.window() as f64,
            instructions: tasks.iter().map(|&task| self.instructions(task)).sum(),
            read: Spec::bytes_of(inputs) + given[0] + places,
            written: Spec::bytes_of(&self.spec.outputs) + given[1] + places,
            blocks: tasks.iter().map(blocks).max().unwrap_or(1).max(1),
            share: tasks.first().map_or(1, |&task| share(self.block(task))),
            ..Cost::default()
        }
    }

    /// Number of instructions of a kernel.
    fn instructions(&self, task: Task) -> f64 {
        let ((_, threads), elements) = (self.division(task), self.positions(task).1 as f64);
        let (threads, windows) = (threads as f64, self.windows() as f64);
        let all = (self.shape.planes * self.grid.elements()) as f64;
        let zeros = match task {
            Task::PlacesAndZeros => PER_WRITTEN * all / (PACK / self.spec.inputs[0].dtype.size()) as f64,
            _ => 0.0,
        };
        if task == Task::Held {
            let packs = all * self.spec.inputs[0].dtype.size() as f64 / PACK as f64;
            let of_a_window = PER_WINDOW + PER_HELD * self.grid.window() as f64;
            return threads * PER_POSITION + packs * (PER_PACK + PER_WRITTEN) + windows * of_a_window;
        }
        if task == Task::Fill {
            let packs = all * self.spec.inputs[0].dtype.size() as f64 / PACK as f64;
            let most: u64 = self.grid.most().iter().product();
            return threads * PER_POSITION + packs * PER_WRITTEN + windows * (PER_WINDOW + PER_STEP * most as f64);
        }
        let finds_places = matches!(task, Task::Indices | Task::Places | Task::PlacesAndZeros | Task::Spread);
        if let (Task::Bands, Some(bands)) = (task, self.bands()) {
            let of_a_pack = PER_PACK + PER_WRITTEN + PER_TERM * bands.pack as f64;
            let of_columns = PER_HELD * bands.columns(self) as f64;
            return threads * PER_POSITION + all / bands.pack as f64 * of_a_pack + of_columns + windows * PER_WINDOW;
        }
        if let (Some(joined), Some([size, ..])) = (self.columns(task), self.grid.steps) {
            let columns = (joined.blocks() * joined.columns()) as f64;
            let [of_place, of_result] = PER_JOINED;
            let (element, column) = if finds_places { (PER_PLACE, of_place) } else { (PER_TERM, of_result) };
            let of_a_column = PER_COLUMN / joined.pack as f64 + element * size[1] as f64;
            let of_a_window = PER_WINDOW + column * (size[0] * size[2]) as f64;
            return threads * PER_POSITION + columns * of_a_column + windows * of_a_window + zeros;
        }
        if self.threads(task) > 1 {
            let packs = windows * self.window_packs() as f64;
            let of_elements = PER_PACKED * self.pack() as f64;
            let masked = if finds_places && !self.has_whole_packs() { MASKED } else { 1.0 };
            let of_written = match task {
                Task::Spread => PER_WRITTEN + PER_GRADIENT * self.pack() as f64,
                _ => 0.0,
            };
            return threads * PER_SHARER + packs * ((PER_PACK + of_elements) * masked + of_written) + zeros;
        }
        let of_an_element = if self.is_unrolled(task) { PER_ELEMENT } else { PER_STEP };
        let of_a_plane = PER_PLANE + PER_TERM * elements;
        threads * (PER_POSITION + of_an_element * elements + self.planes(task) as f64 * of_a_plane) + zeros
    }
}
