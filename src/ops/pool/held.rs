//! Gradients of maxima of planes that fit shared memory: a block reads its planes once, at full width, finds the maximum of each window
//! there, and writes the gradients.

use super::kernel::{FEW_THREADS, Kernels, PACK, Task};
use super::*;
use crate::ops::kernels::kernel::{bounds, param, u32_param};
use crate::ops::kernels::occupancy::{LARGEST_BLOCK, UNITS, WARP};

/// Maximum number of bytes of a block's planes. With the places, they fit the shared memory that a kernel has without an option
/// of the launch.
const MAX_PLANES: u64 = 40 << 10;
/// Maximum number of bytes of the places of a block's maxima.
const MAX_PLACES: u64 = 7 << 10;

/// Number of bytes of planes of a block, if planes are small and there are enough for some blocks per SM.
const BLOCK_BYTES: u64 = 16 << 10;

/// Minimum number of planes: each occupies a block.
const MIN_PLANES: u64 = UNITS / 4;

/// Maximum number of neighbouring elements that a thread reads in one step.
const MAX_RUN: u64 = 8;

/// Size in bytes of a place in shared memory.
const PLACE: u64 = 4;

impl Kernels {
    /// The planes that a block holds; `None` if they do not fit, or if single threads that compute the gradients of cells, or several
    /// threads that read the whole packs of a window, are as fast.
    pub(super) fn held(&self) -> Option<HeldPlanes> {
        let is_worth = match self.grid.is_partition() {
            true => self.windows() >= FEW_THREADS,
            false => 2 * self.grid.windows() <= self.grid.elements() && !self.gathers(),
        };
        HeldPlanes::of(self).filter(|_| is_worth)
    }
}

/// The planes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPlanes {
    planes: u64,
    pub threads: u64,
    /// Number of threads of a window.
    lanes: u64,
    /// Number of neighbouring elements of a row of a window that a thread reads in one step.
    run: u64,
}

impl HeldPlanes {
    /// Returns the division; `None` if planes are large, few, or not contiguous.
    pub fn of(kernels: &Kernels) -> Option<HeldPlanes> {
        let Kernels { spec, shape, grid, .. } = kernels;
        let (elements, windows) = (grid.elements(), grid.windows());
        let bytes = elements * spec.inputs[0].dtype.size();
        let is_flat = spec.inputs[0].contiguous() && spec.outputs[0].contiguous();
        let fits = bytes <= MAX_PLANES && windows * PLACE <= MAX_PLACES;
        if !shape.is_max || !is_flat || !fits || shape.planes < MIN_PLANES {
            return None;
        }
        let most = (BLOCK_BYTES / bytes).min(MAX_PLACES / PLACE / windows).min(shape.planes / (4 * UNITS));
        let planes = most.max(1);
        // A thread reads about two packs.
        let threads = (planes * bytes / PACK / 2).next_power_of_two().clamp(4 * WARP, LARGEST_BLOCK);
        let run = grid.window_row().min(MAX_RUN);
        let runs = grid.window() / grid.window_row() * grid.window_row().div_ceil(run);
        let lanes = 1 << (threads / (planes * windows)).min(runs).clamp(1, WARP).ilog2();
        // Few windows would leave most threads idle.
        let is_busy = 4 * planes * windows * lanes >= threads;
        is_busy.then_some(HeldPlanes { planes, threads, lanes, run })
    }

    pub fn blocks(&self, kernels: &Kernels) -> u64 {
        kernels.shape.planes.div_ceil(self.planes)
    }

    pub fn launch(&self, kernels: &Kernels) -> Launch {
        let operand = |declaration: &str, operand| param(declaration, Arg::Operand(operand));
        let params = [
            u32_param("planes", kernels.shape.planes),
            param("const Steps sy", kernels.steps(1)),
            operand("const T* x", 0),
            operand("const T* y", 1),
            operand("T* dx", 2),
        ];
        let pack = PACK / kernels.spec.inputs[0].dtype.size();
        let room = (self.planes * kernels.grid.elements() + 2 * pack).div_ceil(pack);
        let numbers = [
            ("THREADS", self.threads),
            ("OWN_PLANES", self.planes),
            ("WINDOW_LANES", self.lanes),
            ("RUN", self.run),
            ("WHOLE_PACK", pack),
            ("ROOM", room),
        ];
        let numbers: String = numbers.iter().map(|(name, value)| format!("#define {name} {value}u\n")).collect();
        let before = format!("{}{}{numbers}", bounds(self.threads as u32), kernels.definitions(Task::Held));
        let body =
            [HELD, text::ADD_ALIKE, "  if (leads) store<C>(to[own_plane * ELEMENTS + found[index]], sum);\n  }\n"]
                .concat();
        crate::ops::kernels::kernel::launch(
            "pool_backward",
            &before,
            &params,
            &body,
            self.blocks(kernels),
            self.threads as u32,
        )
    }
}

/// Kernel text: a block reads its planes, writes zeros to all gradients, finds the places of maxima, and adds up their gradients.
const HELD: &str = r#"  __shared__ Pack<T, WHOLE_PACK> packs[ROOM];
  __shared__ u32 found[OWN_PLANES * Y(0) * Y(1) * Y(2)];
  const u32 ELEMENTS = X(0) * X(1) * X(2), WINDOWS_OF_PLANE = Y(0) * Y(1) * Y(2), t = threadIdx.x;
  const u32 first_plane = blockIdx.x * OWN_PLANES;
  const u32 live = planes - first_plane < OWN_PLANES ? planes - first_plane : OWN_PLANES;
  const i32 length = (i32)(live * ELEMENTS);
  const T* from = x + (u64)first_plane * ELEMENTS;
  T* to = dx + (u64)first_plane * ELEMENTS;
  // Packs are aligned, so the first and the last one may contain elements outside.
  const i32 lead = (i32)((u64)from / sizeof(T) % WHOLE_PACK), lead_to = (i32)((u64)to / sizeof(T) % WHOLE_PACK);
#pragma unroll 4
  for (i32 i = (i32)t; i * (i32)WHOLE_PACK < lead + length; i += THREADS) packs[i] = *(const Pack<T, WHOLE_PACK>*)(from - lead + i * (i32)WHOLE_PACK);
#pragma unroll 4
  for (i32 i = (i32)t * (i32)WHOLE_PACK - lead_to; i < length; i += THREADS * WHOLE_PACK) {
    const Pack<T, WHOLE_PACK> zeros = {};
    if (i >= 0 && i + (i32)WHOLE_PACK <= length) {
      *(Pack<T, WHOLE_PACK>*)(to + i) = zeros;
      continue;
    }
    for (i32 v = 0; v < (i32)WHOLE_PACK; v++) if (i + v >= 0 && i + v < length) to[i + v] = zeros.at[v];
  }
  __syncthreads();
  const T* elements = packs[0].at + lead;
  const u32 lane = t % WINDOW_LANES, RUNS = (ROWS(2) + RUN - 1) / RUN;
  for (u32 base = 0; base < OWN_PLANES * WINDOWS_OF_PLANE; base += THREADS / WINDOW_LANES) {
    const u32 index = base + t / WINDOW_LANES, own_plane = index / WINDOWS_OF_PLANE;
    const bool exists = own_plane < live;
    u32 window[3];
    split(index % WINDOWS_OF_PLANE, Y(1), Y(2), window);
    const Range range = range_of(window);
    Best best = nothing();
    for (u32 e = lane; exists && e < ROWS(0) * ROWS(1) * RUNS; e += WINDOW_LANES) {
      u32 own[3];
      split(e, ROWS(1), RUNS, own);
      const u32 at[3] = {range.from[0] + own[0] * DILATION(0), range.from[1] + own[1] * DILATION(1), range.from[2] + own[2] * RUN * DILATION(2)};
      if (at[0] >= range.to[0] || at[1] >= range.to[1]) continue;
      const u32 place = (at[0] * X(1) + at[1]) * X(2) + at[2];
#pragma unroll
      for (u32 v = 0; v < RUN; v++) {
        if (at[2] + v * DILATION(2) >= range.to[2]) break;
        best.join_later(load<C>(elements[own_plane * ELEMENTS + place + v * DILATION(2)]), place + v * DILATION(2));
      }
    }
#pragma unroll
    for (int mask = WINDOW_LANES / 2; mask > 0; mask /= 2) best.join(SHUFFLE_XOR(best.value, mask), SHUFFLE_XOR(best.place, mask));
    if (exists && lane == 0) found[index] = best.place;
  }
  __syncthreads();
  for (u32 index = t; index < live * WINDOWS_OF_PLANE; index += THREADS) {
    const u32 own_plane = index / WINDOWS_OF_PLANE, first_window = 0;
    u32 window[3], own[3];
    split(index % WINDOWS_OF_PLANE, Y(1), Y(2), window);
    split(found[index], X(1), X(2), own);
    const u32* own_places = found + own_plane * WINDOWS_OF_PLANE;
    const T* gradients = y + plane_at(first_plane + own_plane, sy);
    auto gradient_of = [&](const u32 (&at)[3], u32) { return load<C>(gradients[OFFSET(SY, at)]); };
"#;
