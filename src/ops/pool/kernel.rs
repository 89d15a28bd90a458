//! The kernels of pools.

use super::super::layout::{halves, packs_of_rows};
use super::grid::{Grid, PerAxis, each};
use super::*;
use super::{cluster, columns};
use crate::ops::kernels::cluster::CLUSTER;
use crate::ops::kernels::kernel::{BLOCK, Parameter, bounds, c_type, index_type, kernel, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{UNITS, WARP};

/// Maximum number of elements that a thread reads at once, of the windows of all its planes.
pub(super) const AT_ONCE: u64 = 32;

/// Maximum number of windows of an element whose gradients a thread reads at once.
pub(super) const FEW_WINDOWS: u64 = 4;

/// Number of threads with which each SM has some warps, so that one computes while the others wait for memory.
pub(super) const FEW_THREADS: u64 = UNITS * 8 * WARP;

/// Number of packs that a thread of a shared window reads in one step; a part of a window has no fewer.
pub(super) const AHEAD: u64 = 4;

/// Maximum number of elements of a cell, which a thread writes.
const LARGEST_CELL: u64 = 64;

/// Maximum number of elements of a cell of which a thread gathers gradients if windows have no elements in common. Neighbouring threads
/// write larger cells far apart, and threads of single elements or of packs of zeros write neighbouring elements.
const LARGEST_DISJOINT: u64 = 16;

/// Maximum number of elements of a window of which a thread gathers gradients.
const LARGEST_WINDOW: u64 = 125;

/// Number of the indices among the operands of a kernel.
const INDICES: u8 = 3;

/// Size in bytes of the largest pack, which one instruction reads.
pub(super) const PACK: u64 = 16;

/// A kernel of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Computes the results of windows.
    Forward,
    /// Computes the maxima of windows, and their indices.
    Indices,
    /// Finds the place of the maximum of each window, stored in the workspace.
    Places,
    /// Finds the places, and writes zeros to all gradients.
    PlacesAndZeros,
    /// Writes the gradients of the elements that are maxima, after `PlacesAndZeros`.
    Scatter,
    /// Computes the gradients of elements.
    Backward,
    /// Computes the gradients of cells, which are as many elements as the stride along each dimension.
    Gather,
    /// Finds the maximum of each window, and computes the gradients of the elements up to the next window. For windows without
    /// overlap.
    Cells,
    /// Finds the maximum of each window, and computes the gradients of its elements. For large windows that contain each element
    /// once.
    Spread,
    /// Computes the gradients of planes that a block holds.
    Held,
    /// Computes the gradients of bands of rows.
    Bands,
    /// Writes zeros, and the gradients of the elements with the indices that the call gives.
    Fill,
}

impl Task {
    /// True if a kernel finds a result or a place for each window.
    pub(super) fn finds(self) -> bool {
        matches!(self, Task::Forward | Task::Indices | Task::Places | Task::PlacesAndZeros)
    }

    /// True if a kernel writes or reads the places of maxima: indices that the call gives, or places in the workspace.
    fn uses_places(self) -> bool {
        matches!(
            self,
            Task::Indices
                | Task::Places
                | Task::PlacesAndZeros
                | Task::Backward
                | Task::Gather
                | Task::Scatter
                | Task::Fill
        )
    }
}

/// Generates the kernels of a pool.
pub struct Kernels {
    /// The call without its indices.
    pub(super) spec: Spec,
    pub(super) shape: Shape,
    pub(super) grid: Grid,
    /// The indices of maxima, which a gradient reads and a pool writes; `None` if the call does not name them.
    pub(super) indices: Option<Tensor>,
}

impl Kernels {
    pub fn of(spec: &Spec) -> Self {
        let indices = spec.inputs.get(2).or(spec.outputs.get(1)).copied();
        let mut spec = spec.clone();
        spec.inputs.truncate(2);
        spec.outputs.truncate(1);
        let shape = Shape::of(&spec);
        let grid = Grid::of(&spec, &shape);
        Kernels { spec, shape, grid, indices }
    }

    /// Returns the kernel of a pool.
    pub fn forward(&self) -> Task {
        if self.indices.is_some() { Task::Indices } else { Task::Forward }
    }

    /// Returns the kernels of a gradient, in order.
    pub fn gradient(&self) -> Vec<Task> {
        if !self.shape.is_max {
            vec![if self.gathers() { Task::Gather } else { Task::Backward }]
        } else if self.indices.is_some() {
            vec![if self.gathers() {
                Task::Gather
            } else if self.has_few_windows() {
                Task::Fill
            } else {
                Task::Backward
            }]
        } else if self.has_cells() {
            vec![Task::Cells]
        } else if self.held().is_some() {
            vec![Task::Held]
        } else if self.bands().is_some() {
            vec![Task::Bands]
        } else if self.grid.is_partition() && self.threads(Task::Spread) > 1 {
            vec![Task::Spread]
        } else if self.gathers() {
            vec![Task::Places, Task::Gather]
        } else if self.has_few_windows() {
            vec![Task::PlacesAndZeros, Task::Scatter]
        } else {
            vec![Task::Places, Task::Backward]
        }
    }

    /// True if most gradients are zero, since an element in two at most is a maximum.
    pub(super) fn has_few_windows(&self) -> bool {
        2 * self.grid.windows() <= self.grid.elements()
    }

    /// True if a thread computes the gradients of a cell from the windows that contain its elements.
    pub(super) fn gathers(&self) -> bool {
        let Some([size, stride, _, dilation]) = self.grid.steps else { return false };
        let counts = [self.grid.gathered(1)[1], size, stride].map(|sizes| sizes.iter().product::<u64>());
        let largest = if self.grid.is_disjoint() { LARGEST_DISJOINT } else { LARGEST_CELL };
        let limits = [AT_ONCE, LARGEST_WINDOW, largest];
        // A window with a place of its own in a byte, as `is_relative` decides.
        let has_places = !self.shape.is_max || self.indices.is_some() || self.is_relative();
        dilation == [1; 3] && has_places && counts.iter().zip(limits).all(|(count, limit)| *count <= limit)
    }

    /// True if a thread computes the gradients of the elements of a window and of those up to the next one.
    fn has_cells(&self) -> bool {
        let small = |[_, stride, ..]: [PerAxis; 4]| stride.iter().product::<u64>() <= LARGEST_CELL;
        self.grid.is_disjoint() && self.grid.window() <= AT_ONCE && self.grid.steps.is_some_and(small)
    }

    /// Number of elements of a pack that a thread of a shared window reads at once.
    pub(super) fn pack(&self) -> u64 {
        let is_apart = self.grid.steps.is_some_and(|[.., dilation]| dilation[2] > 1);
        // The gradients have the input's strides or none.
        let has_gaps = self.grid.strides[0][2] > 1 || self.grid.strides[2][2] > 1;
        if is_apart || has_gaps {
            return 1;
        }
        let element = self.spec.inputs[0].dtype.size();
        1 << (PACK / element).min(self.grid.window_row()).ilog2()
    }

    /// True if rows of an operand, the input or its gradient, begin with a pack of this many elements.
    fn is_aligned(&self, operand: usize, pack: u64) -> bool {
        let tensor = self.spec.operand(operand);
        let mut strides = tensor.strides[..2].iter().chain(&self.grid.strides[operand][..2]);
        u64::from(tensor.align).is_multiple_of(pack * tensor.dtype.size())
            && strides.all(|stride| stride.is_multiple_of(pack))
    }

    /// True if a row of a window can begin within a pack of the operand, the input or its gradient.
    pub(super) fn leads(&self, operand: usize) -> bool {
        let pack = self.pack();
        let begins = match self.grid.steps {
            Some([_, stride, padding, _]) => padding[2] == 0 && (stride[2].is_multiple_of(pack) || self.grid.y[2] == 1),
            None => self.grid.covers(2),
        };
        !(begins && self.is_aligned(operand, pack))
    }

    /// Number of elements with the same gradient that a thread writes at once: part of a row that the same windows contain.
    pub(super) fn alike(&self, task: Task) -> u64 {
        let is_alike = task == Task::Backward && !self.shape.is_max && self.grid.covers(2);
        if is_alike && self.grid.strides[2][2] == 1 { self.even_pack(2) } else { 1 }
    }

    /// Number of elements of the largest packs of which rows of an operand, the input or its gradient, consist.
    pub(super) fn even_pack(&self, operand: usize) -> u64 {
        let largest = PACK / self.spec.inputs[0].dtype.size();
        let fits = |pack: &u64| self.grid.x[2].is_multiple_of(*pack) && self.is_aligned(operand, *pack);
        halves(largest).find(fits).unwrap_or(1)
    }

    /// True if rows of windows consist of whole packs of the input.
    pub(super) fn has_whole_packs(&self) -> bool {
        let Grid { x, y, steps, .. } = self.grid;
        let length = match steps {
            Some([size, _, padding, _]) if padding[2] == 0 => size[2],
            _ if y[2] == 1 => x[2],
            _ => return false,
        };
        !self.leads(0) && length.is_multiple_of(self.pack())
    }

    /// Maximum number of packs of a row of a window.
    fn row_packs(&self) -> u64 {
        let leads = self.leads(0) || self.spec.outputs.len() + self.spec.inputs.len() > 2 && self.leads(2);
        packs_of_rows(self.grid.window_row(), self.pack(), leads)
    }

    /// Maximum number of packs of a window.
    pub(super) fn window_packs(&self) -> u64 {
        self.grid.window() / self.grid.window_row() * self.row_packs()
    }

    /// Number of windows of all planes.
    pub(super) fn windows(&self) -> u64 {
        self.shape.planes * self.grid.windows()
    }

    /// True if the place of a maximum is its number in the window, which fits a byte, instead of that in the plane.
    pub(super) fn is_relative(&self) -> bool {
        let is_dilated = |[.., dilation]: [PerAxis; 4]| dilation.iter().any(|&distance| distance > 1);
        self.indices.is_none() && self.is_unrolled(Task::Places) && !self.grid.steps.is_some_and(is_dilated)
    }

    /// Type of the places of maxima.
    pub(super) fn place(&self) -> DType {
        if self.is_relative() { DType::U8 } else { DType::I32 }
    }

    /// Returns the strides of samples and channels as an argument.
    pub(super) fn steps(&self, operand: usize) -> Arg {
        Arg::Words(self.spec.operand(operand).strides[..2].to_vec())
    }

    /// Returns the parameter of the indices that the call gives.
    pub(super) fn indices_param(&self) -> Parameter {
        param("Place* places", Arg::Operand(INDICES))
    }

    /// True if samples and channels of each operand are one dimension.
    fn is_folded(&self) -> bool {
        let operands = self.spec.inputs.iter().chain(&self.spec.outputs);
        operands.map(|tensor| tensor.strides).all(|strides| strides[0] == self.shape.channels * strides[1])
    }

    /// Returns the kernels of a task, with the operands of the call.
    pub fn launches(&self, task: Task) -> Vec<Launch> {
        let launches = self.launches_without_indices(task);
        if self.indices.is_none() {
            return launches;
        }
        // The kernels have the indices last, and the call has them before the gradient, or after the results of a pool.
        launches.into_iter().map(|launch| launch.with_operands(&[0, 1, INDICES, 2])).collect()
    }

    /// Returns the kernel of a task, and the kernel that joins the parts of windows if there are any. The indices are operand
    /// [`INDICES`].
    fn launches_without_indices(&self, task: Task) -> Vec<Launch> {
        if task == Task::Fill {
            return vec![self.fill().launch(self)];
        }
        if let (Task::Held, Some(held)) = (task, self.held()) {
            return vec![held.launch(self)];
        }
        if let (Task::Bands, Some(bands)) = (task, self.bands()) {
            return bands.launches(self);
        }
        let joins = (self.parts(task) > 1).then(|| self.launch(task, true));
        std::iter::once(self.launch(task, false)).chain(joins).collect()
    }

    /// Size in bytes of the places in the workspace, and of the results of parts after them.
    fn workspace(&self, task: Task) -> (u64, u64) {
        let places = task.uses_places() && self.shape.is_max && self.indices.is_none();
        let places = if places { self.place().size() * self.windows() } else { 0 };
        let each = 2 * self.spec.inputs[0].dtype.compute().size();
        let parts = self.parts(task);
        (places.next_multiple_of(each), if parts > 1 { parts * self.windows() * each } else { 0 })
    }

    /// True if a thread writes the last dimension of a cell at once.
    fn is_packed(&self, task: Task) -> bool {
        let Some([_, stride, padding, _]) = self.grid.steps else { return false };
        let (wide, output) = (stride[2], self.spec.outputs[0]);
        let strides = output.strides.iter().rev().skip(1);
        [2, 4, 8].contains(&wide)
            && wide * output.dtype.size() <= 16
            && (padding[2] == 0 || task == Task::Gather)
            && self.grid.x[2].is_multiple_of(wide)
            && self.grid.strides[2][2] == 1
            && strides.copied().all(|stride| stride.is_multiple_of(wide))
            && u64::from(output.align).is_multiple_of(wide * output.dtype.size())
    }

    /// Returns the macro definitions that the kernel texts use.
    pub(super) fn definitions(&self, task: Task) -> String {
        let Kernels { spec, shape, grid, .. } = self;
        let dtype = spec.inputs[0].dtype;
        let [size, stride, padding, dilation] = grid.steps.unwrap_or([[1; 3], [1; 3], [0; 3], [1; 3]]);
        // Upper bounds of the products from which the ranges of adaptive windows are computed.
        let bounds = grid.x.iter().zip(grid.y).map(|(x, y)| x * y + x + y).max().unwrap_or(0);
        let extents =
            grid.strides.iter().zip([grid.x, grid.y, grid.x]).map(|(strides, sizes)| {
                strides.iter().zip(sizes).map(|(stride, size)| stride * (size - 1)).sum::<u64>()
            });
        let (_, threads) = self.division(task);
        // A warp or more writes the elements at the ends of rows that are no whole packs, and fewer threads their own.
        let is_spread = task == Task::Spread && self.threads(task) >= WARP && self.pack() > 1;
        let has_edges = is_spread && (!self.has_whole_packs() || self.leads(2));
        let is_relative = self.is_relative() && !matches!(task, Task::Held | Task::Bands);
        let types = [
            ("T", c_type(dtype)),
            ("C", c_type(dtype.compute())),
            ("Index", index_type(threads + u64::from(BLOCK))),
            ("Wide", index_type(bounds)),
            ("Offset", index_type(extents.max().unwrap_or(0))),
            ("Place", if is_relative { "u8" } else { "u32" }),
        ];
        let gives = spec.inputs.len() > 1;
        let numbers = [
            ("MAX", u64::from(shape.is_max)),
            ("ADAPTIVE", u64::from(grid.steps.is_none())),
            ("WHOLE_DIVISOR", u64::from(grid.steps.is_some() && (shape.counts_padding || padding == [0; 3]))),
            ("FOLDED", u64::from(self.is_folded())),
            ("CHANNELS", if self.is_folded() { 1 } else { shape.channels }),
            ("LANES", self.threads(task)),
            ("PARTS", self.parts(task)),
            ("PLANES", self.planes(task)),
            ("TALL", if task == Task::Gather { 1 } else { self.tall(task) }),
            ("AHEAD", AHEAD),
            ("FEW_WINDOWS", FEW_WINDOWS),
            ("V", self.pack()),
            ("PACKS", self.row_packs()),
            ("WHOLE", u64::from(self.has_whole_packs())),
            ("ORDERED", u64::from(task != Task::Forward && dtype.compute() == DType::F32)),
            ("RESULTS", u64::from(matches!(task, Task::Forward | Task::Indices))),
            ("ALIKE", self.alike(task)),
            ("LEADS_X", u64::from(self.leads(0))),
            ("LEADS_D", u64::from(gives && self.leads(2))),
            (
                "ZERO_PACK",
                if gives && spec.outputs[0].contiguous() && spec.outputs[0].align >= 16 {
                    PACK / dtype.size()
                } else {
                    1
                },
            ),
            ("BLOCK", self.block(task)),
            ("SPREADS", u64::from(task == Task::Spread)),
            ("EDGES", u64::from(has_edges)),
            ("HALVES", u64::from(shape.is_max && dtype.size() == 2 && self.pack() > 1)),
            (
                "PLACES",
                u64::from(!matches!(task, Task::Forward | Task::Backward | Task::Gather | Task::Scatter | Task::Fill)),
            ),
            ("RELATIVE", u64::from(is_relative)),
            ("UNROLLED", u64::from(self.is_unrolled(task))),
            ("PACKED", u64::from(self.is_packed(task))),
        ];
        let pair = format!("#define PAIR \"{}x2\"\n", c_type(dtype));
        let types: String = types.iter().map(|(name, own)| format!("typedef {own} {name};\n")).collect();
        let numbers: String = numbers.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        let tall = self.tall(task);
        let [gathered, most, next] = grid.gathered(tall);
        let (cells, most) = match task {
            Task::Gather => (gathered, most),
            Task::Cells => (grid.cells(), grid.most()),
            _ => ([grid.y[0], grid.y[1].div_ceil(tall), grid.y[2]], grid.most()),
        };
        let cell = if task == Task::Gather { [stride[0], stride[1] * tall, stride[2]] } else { stride };
        let covers = [0, 1, 2].map(|axis| u64::from(grid.covers(axis)));
        let [of_x, of_y, of_d] = grid.strides;
        let sizes = [
            each("X", grid.x, "u"),
            each("Y", grid.y, "u"),
            each("CELLS", cells, "u"),
            each("CELL", cell, "u"),
            each("COVERS", covers, ""),
            each("MOST", most, "u"),
            each("NEXT", next, "u"),
            self.columns(task).map_or(String::new(), |columns| columns.definitions()),
            each("ROWS", grid.window_rows(), "u"),
            each("SIZE", size, "u"),
            each("STRIDE", stride, "u"),
            each("PADDING", padding, "u"),
            each("DILATION", dilation, "u"),
            each("SX", of_x, ""),
            each("SY", of_y, ""),
            each("SD", of_d, ""),
        ];
        format!("{types}{numbers}{pair}{}{}", sizes.concat(), text::WINDOWS)
    }

    /// Returns a kernel of a task: the one that joins the parts of windows if `joins`.
    fn launch(&self, task: Task, joins: bool) -> Launch {
        let (lanes, parts) = (self.threads(task), self.parts(task));
        let (groups, threads) = self.division(task);
        let mut params = vec![
            u64_param("count", threads / lanes / parts),
            u32_param("planes", self.shape.planes),
            u32_param("groups", groups),
            param("const Steps sx", self.steps(0)),
            param("const Steps sy", self.steps(1)),
        ];
        let operands: &[(&str, u8)] = match task {
            Task::Forward | Task::Indices => &[("const T* x", 0), ("T* y", 1)],
            Task::Places => &[("const T* x", 0)],
            Task::PlacesAndZeros => &[("const T* x", 0), ("T* dx", 2)],
            Task::Backward | Task::Gather | Task::Scatter => &[("const T* y", 1), ("T* dx", 2)],
            Task::Cells | Task::Spread | Task::Held | Task::Bands | Task::Fill => {
                &[("const T* x", 0), ("const T* y", 1), ("T* dx", 2)]
            }
        };
        params.extend(operands.iter().map(|(declaration, operand)| param(*declaration, Arg::Operand(*operand))));
        let (places, of_parts) = self.workspace(task);
        let gives = task.uses_places() && self.indices.is_some();
        if gives {
            params.push(self.indices_param());
        }
        if (task.uses_places() && !gives) || parts > 1 {
            let declaration = if gives { "char* workspace" } else { "Place* places" };
            params.push(param(declaration, Arg::Workspace(places + of_parts)));
        }
        if parts > 1 {
            params.push(u64_param("partial_at", places));
        }
        if !matches!(task, Task::Forward | Task::Indices | Task::Places) {
            params.push(param("const Steps so", self.steps(2)));
        }
        let partial = match gives {
            true => "  Best* partial = (Best*)(workspace + partial_at);\n",
            false => "  Best* partial = (Best*)((char*)places + partial_at);\n",
        };
        let (shared, join) = (text::SHARED, text::JOIN);
        let body = match task {
            Task::Backward => elements_text::BACKWARD.to_owned(),
            Task::Gather => elements_text::GATHER.to_owned(),
            Task::Scatter => [text::SCATTER, text::ADD_ALIKE, text::STORE_SUM].concat(),
            Task::Cells => [text::PER_THREAD, text::STORE_CELL].concat(),
            Task::Spread if joins => [partial, text::FINISH, join, text::STORE_GRADIENT].concat(),
            Task::Spread if self.clusters(task) => {
                [partial, shared, join, text::STORE_PART, cluster::JOIN_CLUSTER, text::STORE_GRADIENT, "#endif\n"]
                    .concat()
            }
            Task::Spread if parts > 1 => [partial, shared, join, text::STORE_PART].concat(),
            Task::Spread => [shared, join, text::AFTER_ZEROS, text::STORE_GRADIENT].concat(),
            _ if joins => [partial, text::FINISH, join, text::STORE].concat(),
            _ if self.columns(task).is_some() => columns::JOINED.to_owned(),
            _ if parts > 1 => [partial, shared, join, text::STORE_PART].concat(),
            _ if lanes > 1 => [shared, join, text::STORE].concat(),
            _ => [text::PER_THREAD, text::STORE_OF_A_THREAD].concat(),
        };
        let zeros = if task == Task::PlacesAndZeros && !joins { text::ZERO } else { "" };
        let name = match (task, joins) {
            (Task::Forward | Task::Indices, false) => "pool",
            (Task::Forward | Task::Indices, true) => "pool_join",
            (Task::Places | Task::PlacesAndZeros, false) => "pool_places",
            (Task::Places | Task::PlacesAndZeros, true) => "pool_places_join",
            (Task::Spread, true) => "pool_backward_join",
            _ => "pool_backward",
        };
        let block = self.block(task);
        let blocks = if joins { self.windows() } else { threads.div_ceil(block) };
        let own = match task {
            Task::Gather | Task::Cells => text::ELEMENTS,
            _ if self.columns(task).is_some() => columns::COLUMN,
            _ => "",
        };
        let cluster = match self.clusters(task) && !joins {
            true => format!("#define CLUSTER_BLOCKS {parts}\n#define THREADS {block}\n{}", CLUSTER),
            false if block > u64::from(BLOCK) => bounds(block as u32),
            false => String::new(),
        };
        let before = self.definitions(task) + own + &cluster;
        let without_clusters = joins && self.clusters(task);
        let all = zeros.to_owned() + &body;
        Launch::Kernel(Kernel { without_clusters, ..kernel(name, &before, &params, &all, blocks, block as u32) })
    }
}
