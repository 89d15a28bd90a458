//! Gradients of maxima of windows that lie side by side in the same rows: a block reads these rows at full width, keeps the maximum of each
//! column, joins the columns of each window, and writes the gradients.

use super::kernel::{AHEAD, Kernels, PACK, Task};
use super::*;
use crate::ops::kernels::cluster::CLUSTER;
use crate::ops::kernels::kernel::{bounds, param};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, LARGEST_CLUSTER, UNITS, WARP};

/// Maximum size in bytes of the maxima of columns, which are in shared memory.
const MAX_COLUMNS: u64 = 40 << 10;

/// Maximum number of windows side by side.
const MAX_WINDOWS: u64 = 1 << 9;

/// Minimum number of rows of a window. The results of columns are written to shared memory once for all rows.
const MIN_ROWS: u64 = 2 * AHEAD;

/// Minimum size in bytes of a pack: smaller accesses take more instructions than threads of single windows need.
const MIN_PACK: u64 = 4;

/// Maximum number of threads of a block.
const LARGEST: u64 = 512;

/// Minimum size in bytes of a band of windows that contain each element once: a block then reads for longer than it joins columns.
const MIN_BYTES: u64 = LARGEST * AHEAD * PACK;

impl Kernels {
    /// The bands of rows that blocks read, if windows divide the planes into them. If each element belongs to one window, threads of single
    /// windows write all gradients, and are as fast unless they read and write parts of packs.
    pub(super) fn bands(&self) -> Option<Bands> {
        let is_worth = |bands: &Bands| {
            !self.grid.is_partition()
                || (bands.bytes(self) >= MIN_BYTES
                    && 4 * bands.blocks() >= 3 * UNITS
                    && (!self.has_whole_packs() || self.leads(2)))
        };
        Bands::of(self).filter(is_worth)
    }
}

/// The division of planes into bands: the rows of windows side by side, and of no other windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bands {
    /// Number of bands.
    count: u64,
    /// Number of parts of a band, for each of which there is a block: a power of two. The blocks of a band are a cluster, on devices that
    /// have clusters.
    parts: u64,
    pub threads: u64,
    /// Number of elements of a pack of a row.
    pub pack: u64,
    /// Number of packs that a thread reads at once.
    ahead: u64,
    /// Number of rows that threads read at the same time.
    groups: u64,
    /// Number of rows of a band.
    rows: u64,
    /// Number of threads that join the columns of a window.
    lanes: u64,
}

impl Bands {
    /// Returns the division; `None` if windows share rows with windows above or below, if windows have few or
    /// unaligned rows, or if the maxima of columns do not fit shared memory.
    pub fn of(kernels: &Kernels) -> Option<Bands> {
        let Kernels { spec, shape, grid, .. } = kernels;
        if spec.inputs.len() < 2 {
            return None;
        }
        let is_flat = [0, 2].iter().all(|&operand| grid.strides[operand][2] == 1);
        let is_apart = grid.steps.is_some_and(|[.., dilation]| dilation[2] > 1);
        let divides = (0..2).all(|axis| grid.divides(axis));
        let y = grid.y[2];
        if !shape.is_max || !is_flat || is_apart || !divides || !(2..=MAX_WINDOWS).contains(&y) {
            return None;
        }
        let size = spec.inputs[0].dtype.size();
        let pack = kernels.even_pack(0).min(kernels.even_pack(2));
        let [first, second, _] = grid.window_rows();
        let (rows, packs) = (first * second, grid.x[2] / pack);
        let count = shape.planes * grid.y[0] * grid.y[1];
        if rows < MIN_ROWS || pack * size < MIN_PACK {
            return None;
        }
        // Narrow packs are as many bytes on the way as wide ones.
        let ahead = AHEAD * (PACK / (pack * size)).min(AHEAD);
        // Threads read all packs of a band at once, unless there are too many.
        let most = (rows * packs).div_ceil(ahead).next_power_of_two().clamp(4 * WARP, LARGEST);
        let step = LARGEST * ahead;
        // The blocks of whole bands end together if they fill the device a whole number of times.
        let is_even = count >= BUSY_BLOCKS || 4 * count >= 3 * count.div_ceil(UNITS) * UNITS;
        let is_enough = |parts: &u64| is_even || count * parts >= 8 * UNITS || rows * packs < 2 * parts * step;
        let parts = [1, 2, 4].into_iter().find(is_enough).unwrap_or(LARGEST_CLUSTER);
        let groups = (most / packs).clamp(1, rows / parts);
        let threads = if packs < most { (groups * packs).next_multiple_of(WARP).max(4 * WARP) } else { most };
        let best = 2 * spec.inputs[0].dtype.compute().size();
        let fits = groups * grid.x[2] * best <= MAX_COLUMNS;
        let joined = groups * grid.window_row();
        let lanes = 1 << (threads / y).min(joined).clamp(1, WARP).ilog2();
        fits.then_some(Bands { count, parts, threads, pack, ahead, groups, rows, lanes })
    }

    /// Size of a band in bytes.
    fn bytes(&self, kernels: &Kernels) -> u64 {
        self.rows * kernels.grid.x[2] * kernels.spec.inputs[0].dtype.size()
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.count * self.parts
    }

    /// Number of columns of all bands that a block joins to windows.
    pub fn columns(&self, kernels: &Kernels) -> u64 {
        self.blocks() * self.groups * kernels.grid.x[2]
    }

    /// Returns the kernel, and the kernel that joins the parts of bands on devices without clusters.
    pub fn launches(&self, kernels: &Kernels) -> Vec<Launch> {
        let joins = (self.parts > 1).then(|| self.launch(kernels, true));
        std::iter::once(self.launch(kernels, false)).chain(joins).collect()
    }

    fn launch(&self, kernels: &Kernels, joins: bool) -> Launch {
        let operand = |declaration: &str, operand| param(declaration, Arg::Operand(operand));
        let best = 2 * kernels.spec.inputs[0].dtype.compute().size();
        let mut params = vec![
            param("const Steps sx", kernels.steps(0)),
            param("const Steps sy", kernels.steps(1)),
            param("const Steps so", kernels.steps(2)),
            operand("const T* x", 0),
            operand("const T* y", 1),
            operand("T* dx", 2),
        ];
        if self.parts > 1 {
            params.push(param("Best* partial", Arg::Workspace(self.parts * kernels.windows() * best)));
        }
        let numbers = [
            ("THREADS", self.threads),
            ("BAND_PARTS", self.parts),
            ("BAND_PACK", self.pack),
            ("BAND_ROWS", self.rows),
            ("BAND_AHEAD", self.ahead),
            ("GROUPS", self.groups),
            ("WINDOW_LANES", self.lanes),
        ];
        let numbers: String = numbers.iter().map(|(name, value)| format!("#define {name} {value}u\n")).collect();
        let is_cluster = self.parts > 1 && !joins;
        let cluster = match is_cluster {
            true => format!("#define CLUSTER_BLOCKS {}\n{CLUSTER}", self.parts),
            false => bounds(self.threads as u32),
        };
        let before = format!("{}{numbers}{cluster}", kernels.definitions(Task::Bands));
        let write = [GRADIENTS, text::ADD_ALIKE, text::STORE_SUM, "  }\n"].concat();
        let body = match (joins, is_cluster) {
            (true, _) => ["  const u32 block = blockIdx.x;\n", BAND, JOIN_PARTS, &write].concat(),
            (_, true) => [
                PART,
                BAND,
                READ,
                "#if CLUSTER > 1\n  cluster_barrier();\n  if (part > 0) return;\n",
                JOIN_PARTS,
                &write,
                "#endif\n",
            ]
            .concat(),
            _ => [PART, BAND, READ, &write].concat(),
        };
        let (name, blocks) = if joins { ("pool_backward_join", self.count) } else { ("pool_backward", self.blocks()) };
        let kernel = crate::ops::kernels::kernel::kernel(name, &before, &params, &body, blocks, self.threads as u32);
        Launch::Kernel(Kernel { without_clusters: joins, ..kernel })
    }
}

/// Kernel text: the band and the part of a block.
const PART: &str = "  const u32 block = blockIdx.x / BAND_PARTS, part = blockIdx.x % BAND_PARTS;\n";

/// Kernel text: the place of a band. The gradients of its windows are read before the long wait for its elements.
const BAND: &str = r#"  __shared__ u32 found[Y(2)];
  __shared__ T held_gradients[Y(2)];
  const u32 t = threadIdx.x, plane = block / (Y(0) * Y(1)), first_window = block % (Y(0) * Y(1)) * Y(2);
  u32 window[3] = {block % (Y(0) * Y(1)) / Y(1), block % Y(1), 0};
  for (window[2] = t; window[2] < Y(2); window[2] += THREADS) held_gradients[window[2]] = y[plane_at(plane, sy) + OFFSET(SY, window)];
"#;

/// Kernel text: a block reads the rows of a part of a band, writes zeros to their gradients, and finds the maximum of each window.
const READ: &str = r#"  typedef Pack<T, BAND_PACK> RowPack;
  const u32 PACKS_OF_ROW = X(2) / BAND_PACK;
  __shared__ Best columns[GROUPS * X(2)];
  const u32 first_row = part * (BAND_ROWS / BAND_PARTS) + (part < BAND_ROWS % BAND_PARTS ? part : BAND_ROWS % BAND_PARTS);
  const u32 last_row = first_row + BAND_ROWS / BAND_PARTS + (part < BAND_ROWS % BAND_PARTS);
  const Range band = range_of(window);
  const T* from = x + plane_at(plane, sx);
  T* to = dx + plane_at(plane, so);
  auto place_of_row = [&](u32 row, u32 (&at)[3]) {
    const u32 own = ROWS(0) == 1 ? 0 : row / ROWS(1);
    at[0] = band.from[0] + own, at[1] = band.from[1] + row - own * ROWS(1);
  };
  for (u32 own = t; own < GROUPS * PACKS_OF_ROW; own += THREADS) {
    const u32 group = own / PACKS_OF_ROW;
    u32 at[3] = {0, 0, own % PACKS_OF_ROW * BAND_PACK};
    // The first element of each column, until another one is larger.
    C values[BAND_PACK];
    u32 rows[BAND_PACK];
#pragma unroll
    for (u32 v = 0; v < BAND_PACK; v++) values[v] = -C(INFINITE), rows[v] = first_row + group;
    for (u32 base = first_row + group; base < last_row; base += BAND_AHEAD * GROUPS) {
      RowPack packs[BAND_AHEAD];
#pragma unroll
      for (u32 u = 0; u < BAND_AHEAD; u++) {
        const u32 row = base + u * GROUPS;
        place_of_row(row, at);
        if (row < last_row) packs[u] = *(const RowPack*)(from + OFFSET(SX, at));
      }
#pragma unroll
      for (u32 u = 0; u < BAND_AHEAD; u++) {
        const u32 row = base + u * GROUPS;
        place_of_row(row, at);
        const RowPack zeros = {};
        if (row < last_row) *(RowPack*)(to + OFFSET(SD, at)) = zeros;
      }
#pragma unroll
      for (u32 u = 0; u < BAND_AHEAD; u++) {
        const u32 row = base + u * GROUPS;
        if (row >= last_row) continue;
#pragma unroll
        for (u32 v = 0; v < BAND_PACK; v++) {
          const C other = load<C>(packs[u].at[v]);
          if (!(other <= values[v]) && values[v] == values[v]) values[v] = other, rows[v] = row;
        }
      }
    }
#pragma unroll
    for (u32 v = 0; v < BAND_PACK; v++) {
      u32 place[3];
      place_of_row(rows[v], place);
      columns[group * X(2) + at[2] + v] = {values[v], (place[0] * X(1) + place[1]) * X(2) + at[2] + v};
    }
  }
  __syncthreads();
  for (u32 base = 0; base < Y(2); base += THREADS / WINDOW_LANES) {
    window[2] = base + t / WINDOW_LANES;
    const bool exists = window[2] < Y(2);
    const Range range = range_of(window);
    Best best = nothing();
    for (u32 e = t % WINDOW_LANES; exists && e < GROUPS * ROWS(2); e += WINDOW_LANES) {
      const u32 group = e / ROWS(2), column = range.from[2] + e - group * ROWS(2);
      if (column < range.to[2]) best.join(columns[group * X(2) + column].value, columns[group * X(2) + column].place);
    }
#pragma unroll
    for (int mask = WINDOW_LANES / 2; mask > 0; mask /= 2) best.join(SHUFFLE_XOR(best.value, mask), SHUFFLE_XOR(best.place, mask));
    if (!exists || t % WINDOW_LANES > 0) continue;
#if BAND_PARTS > 1
    partial[(block * Y(2) + window[2]) * (u64)BAND_PARTS + part] = best;
#else
    found[window[2]] = best.place;
#endif
  }
"#;

/// Kernel text: a block joins the maxima of the parts of a band.
const JOIN_PARTS: &str = r#"  for (u32 index = t; index < Y(2); index += THREADS) {
    Best best = nothing();
#pragma unroll
    for (u32 p = 0; p < BAND_PARTS; p++) {
      const Best other = partial[(block * Y(2) + index) * (u64)BAND_PARTS + p];
      best.join(other.value, other.place);
    }
    found[index] = best.place;
  }
"#;

/// Kernel text: a block writes the gradients of the windows of a band.
const GRADIENTS: &str = r#"  __syncthreads();
  auto gradient_of = [&](const u32 (&)[3], u32 number) { return load<C>(held_gradients[number - first_window]); };
  const u32* own_places = found;
  for (window[2] = t; window[2] < Y(2); window[2] += THREADS) {
    u32 own[3];
    split(found[window[2]], X(1), X(2), own);
"#;
