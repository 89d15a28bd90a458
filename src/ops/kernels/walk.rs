//! Elementwise kernels: how their threads iterate over the elements of inputs and outputs.
//!
//! Dimensions are sorted by the first output's strides and merged where every operand allows it. The innermost
//! dimension is divided into tiles, each processed by a few neighbouring threads. The expensive step, computing the
//! address of a tile in each operand, is thus shared by about 16 bytes of data per thread, so that broadcasts and gaps
//! of any kind cost little.

pub use super::elementwise_task::{ElementSource, Operand, Task, task};
use super::kernel::{self, BLOCK, Parameter, c_type, compute_type, geometry_param, index_type, param, u64_param};
use super::occupancy::{LINE, SECTOR, WARP};
use super::philox;
use crate::base::{DType, Dims};
use crate::ops::layout::{by_output, halves};
use crate::ops::{Arg, Expression, Geometry, Launch, Spec};

/// Number of blocks that must remain if threads get larger packs, or more of them: several per SM of a large device.
/// More blocks gain nothing.
pub const ENOUGH_BLOCKS: u64 = 256;

/// Number of bytes of the narrowest operand that a thread should have in a tile.
const NARROWEST: u64 = 16;
/// Maximum number of bytes of the widest operand per pack.
const WIDEST: u64 = 32;

/// Maximum number of packs per thread and tile.
const PACKS: u64 = 8;
/// Maximum number of packs of 16 one-byte elements per thread of a kernel without inputs, whose threads spend most instructions on
/// converting a value to all elements of a pack.
const CONVERTED: u64 = 4;
/// Maximum number of elements per thread and tile if those of an input are apart: more of them spread the accesses of the resident threads
/// over more pages of memory.
const APART: u64 = 2;

/// Maximum number of bytes that a thread loads before it computes, which registers hold.
const MAX_LOADED: u64 = 256;

/// Instructions of a thread to find its position in a tile.
const PER_THREAD: f64 = 20.0;
/// Instructions of a thread to find its position along another dimension, by a division.
const PER_DIVISION: f64 = 20.0;
/// Instructions of a thread for the offset of an operand along such a dimension.
const PER_OFFSET: f64 = 3.0;

/// Instructions per pack to find its position.
const PER_PACK: f64 = 4.0;
/// Instructions per access to memory.
const PER_ACCESS: f64 = 3.0;

/// Access of a thread to an operand along the innermost dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperandAccess {
    /// A single element for all positions, broadcast.
    Repeated,
    /// Contiguous elements, of which this number can be loaded or stored by one instruction.
    Neighbours(u64),
    /// Elements with a stride other than 0 and 1.
    Apart,
}

/// Division of a task among threads. Operands are numbered with the outputs first, then the inputs.
#[derive(Debug)]
struct Walk {
    /// Number of outputs, which are the first operands.
    outputs: usize,
    /// The dimensions without the innermost one, with the strides of each operand.
    outer: Geometry,
    /// Size of the innermost dimension.
    length: u64,
    /// Access pattern of each operand along the innermost dimension.
    steps: Vec<OperandAccess>,
    /// Stride of each operand along the innermost dimension, in elements.
    distances: Vec<u64>,
    /// Elements per pack: contiguous elements of the outputs that a thread computes together.
    pack: u64,
    /// Packs per thread and tile.
    each: u64,
    /// Threads per tile; a power of two.
    threads: u64,
}

impl Walk {
    fn of(task: &Task) -> Walk {
        let operands: Vec<&Operand> = task.outputs.iter().chain(&task.inputs).collect();
        let outputs = task.outputs.len();
        let strides: Vec<Dims> = operands.iter().map(|operand| operand.strides).collect();
        let geometry = by_output(task.dims, &strides);
        let rank = geometry.dims.len();
        let elements: u64 = task.dims.iter().product();
        let length = geometry.dims.last().copied().unwrap_or(1);
        let lead = |dims: &Dims| dims.part(..rank.saturating_sub(1));
        let outer = Geometry { dims: lead(&geometry.dims), strides: geometry.strides.iter().map(lead).collect() };
        let inner = |operand: usize| geometry.strides[operand].last().copied().unwrap_or(1);
        let size = |operand: usize| operands[operand].size();
        let neighbours: Vec<usize> = (0..operands.len()).filter(|&operand| inner(operand) == 1).collect();
        let narrowest = neighbours.iter().map(|&operand| size(operand)).min().unwrap_or(1);
        let widest = neighbours.iter().map(|&operand| size(operand)).max().unwrap_or(1);
        // Whether every pack of this many elements is aligned to its size.
        let begins = |operand: usize, pack: u64| {
            u64::from(operands[operand].tensor.align).is_multiple_of(pack * size(operand))
                && outer.strides[operand].iter().all(|stride| stride.is_multiple_of(pack))
        };
        let enough = |pack: u64| elements >= pack * u64::from(BLOCK) * ENOUGH_BLOCKS;
        // Each output is written by one store per pack, since several interleaved stores would write a memory sector
        // repeatedly.
        let stored = |output: usize| 16 / size(output);
        let most = (0..outputs).map(stored).fold((NARROWEST / narrowest).min(WIDEST / widest), u64::min).max(1);
        // Outputs are written in whole packs; inputs may be read in smaller pieces.
        let along = (0..outputs).all(|output| inner(output) == 1);
        // Elements that are apart are in cache lines of their own, or share them with their neighbours. Neighbouring threads access
        // neighbouring lines at the same time; the elements of a pack would be accessed one after the other.
        let is_apart = (outputs..operands.len()).any(|input| inner(input) > 1);
        let is_packed = along && !is_apart;
        let fits = |pack: &u64| *pack == 1 || (is_packed && *pack <= length && enough(*pack));
        let widths = |operand: usize, pack: u64| {
            let piece = |piece: &u64| piece * size(operand) <= 16 && begins(operand, *piece);
            halves(pack).find(piece).unwrap_or(1)
        };
        let whole = |pack: u64| (0..outputs).all(|output| pack.min(stored(output)) == widths(output, pack));
        let pack = halves(most).filter(fits).find(|&pack| whole(pack)).unwrap_or(1);
        let steps = (0..operands.len()).map(|operand| match inner(operand) {
            _ if geometry.dims.is_empty() && operand >= outputs => OperandAccess::Repeated,
            0 => OperandAccess::Repeated,
            1 => OperandAccess::Neighbours(widths(operand, pack)),
            _ => OperandAccess::Apart,
        });
        let distances = (0..operands.len()).map(inner).collect();
        let bytes = pack * narrowest;
        let read: u64 = (outputs..operands.len()).filter(|&input| inner(input) > 0).map(size).sum();
        let fits = |each: &u64| enough(each * pack) && each * pack * read <= MAX_LOADED;
        let packs = if is_apart { APART } else { PACKS };
        let converts = outputs == operands.len() && narrowest == 1;
        let most = match bytes >= NARROWEST {
            true if converts => (1..=CONVERTED).rev().find(fits).unwrap_or(1),
            true => 1,
            false => (1..=packs).rev().find(fits).unwrap_or(1),
        };
        let (threads, each) = tile(length.div_ceil(pack), bytes, most);
        Walk { outputs, steps: steps.collect(), distances, outer, length, pack, each, threads }
    }

    /// True if the kernel's text uses the innermost stride of an operand.
    fn apart(&self, operand: usize) -> bool {
        match self.steps[operand] {
            OperandAccess::Neighbours(_) => false,
            OperandAccess::Repeated => operand < self.outputs,
            OperandAccess::Apart => true,
        }
    }

    /// Elements per tile.
    fn tile(&self) -> u64 {
        self.threads * self.each * self.pack
    }

    /// Number of sectors of device memory that warps access. Neighbouring threads may share a sector. The accesses of a
    /// single thread may not, since each of them is an instruction of its own. The L1 cache serves an operand that is
    /// read again along a dimension.
    fn sectors(&self, operands: &[&Operand]) -> f64 {
        let (along, tiles) = self.tiles();
        let elements = self.length as f64 * self.outer.dims.iter().product::<u64>() as f64;
        // Number of accesses of all threads to an operand, and the share of them that partial tiles need.
        let (accesses, used) = ((tiles * self.each) as f64, elements / (tiles * self.tile()) as f64);
        let of_operand = |(place, operand): (usize, &&Operand)| {
            if matches!(operand.origin, ElementSource::Mask { .. }) || operand.tensor.space.in_host() {
                return 0.0;
            }
            let size = operand.size();
            let strides = &self.outer.strides[place];
            let repeats = self.outer.dims.iter().zip(strides.iter()).filter(|(_, stride)| **stride == 0);
            let sectors = match self.steps[place] {
                OperandAccess::Repeated => 0.0,
                OperandAccess::Apart => {
                    let part = |distance: u64| (distance * size) as f64 / SECTOR as f64;
                    // The threads of a warp access elements of several tiles, which can be neighbours.
                    let next =
                        strides.last().map_or(1.0, |&stride| part(stride).max(self.threads as f64 / WARP as f64));
                    elements * part(self.distances[place]).min(next).min(1.0)
                }
                OperandAccess::Neighbours(width) => {
                    let (piece, apart, span) = (width * size, self.pack * size, self.threads * self.pack * size);
                    let covered =
                        if apart > SECTOR { self.threads * piece.div_ceil(SECTOR) } else { span.div_ceil(SECTOR) };
                    // A tile smaller than a sector shares it with the next tile, if that is near.
                    let next = if along > 1 { span } else { strides.last().map_or(span, |stride| stride * size) };
                    let shared =
                        if span < SECTOR { next.clamp(1, SECTOR) as f64 / SECTOR as f64 } else { covered as f64 };
                    accesses * (self.pack / width) as f64 * shared * used
                }
            };
            sectors / repeats.map(|(size, _)| size).product::<u64>() as f64
        };
        operands.iter().enumerate().map(of_operand).sum()
    }

    /// Number of instructions of all threads for positions, addresses, loads and stores.
    fn instructions(&self) -> f64 {
        let (dims, operands) = (self.outer.dims.len() as f64, self.steps.len() as f64);
        let accesses = self.steps.iter().map(|step| match step {
            OperandAccess::Repeated => 1.0 / self.each as f64,
            OperandAccess::Neighbours(width) => self.pack as f64 / *width as f64,
            OperandAccess::Apart => self.pack as f64,
        });
        let of_a_thread = PER_THREAD + dims * (PER_DIVISION + PER_OFFSET * operands);
        let of_packs = self.each as f64 * (PER_PACK + PER_ACCESS * accesses.sum::<f64>());
        (self.tiles().1 * self.threads) as f64 * (of_a_thread + of_packs)
    }

    /// Number of tiles along the innermost dimension, and number of all tiles.
    fn tiles(&self) -> (u64, u64) {
        let along = self.length.div_ceil(self.tile());
        (along, along * self.outer.dims.iter().product::<u64>())
    }
}

/// Divides a row of `packs` packs of `bytes` bytes into tiles. Returns the threads per tile, and the packs per thread,
/// which are `most` at most.
fn tile(packs: u64, bytes: u64, most: u64) -> (u64, u64) {
    // A single thread moves such a short row at full speed.
    if packs <= most && packs * bytes <= 2 * NARROWEST {
        return (1, packs.max(1));
    }
    let least = (SECTOR / bytes).clamp(1, u64::from(BLOCK)).min(packs.next_power_of_two());
    let threads = std::iter::successors(Some(u64::from(BLOCK)), |threads| Some(threads / 2));
    let threads = threads.take_while(|&threads| threads >= least);
    let all: Vec<(u64, u64)> = threads.flat_map(|threads| (1..=most).map(move |each| (threads, each))).collect();
    // Utilization of the threads of a tile, in per cent.
    let busy = |&(threads, each): &(u64, u64)| 100 * packs / (packs.div_ceil(threads * each) * threads * each);
    let best = all.iter().map(busy).max().unwrap_or(0);
    // Larger tiles need fewer address computations.
    let good = all.into_iter().filter(|split| busy(split) + 8 >= best);
    good.max_by_key(|(threads, each)| (threads * each, *threads)).unwrap_or((u64::from(BLOCK), 1))
}

/// Returns the kernel that evaluates an expression for each element of the first output. `strides` has the strides of
/// the output, then those of each input, along the dimensions `dims`.
pub fn launch(name: &str, expression: &Expression, dims: Dims, strides: &[Dims], spec: &Spec) -> Launch {
    launch_all(name, &[task(expression, dims, strides, spec)], compute_type(spec))
}

/// True if each access of a warp of the kernel for a task moves less than a cache line, since rows begin at any address. Such an access also
/// takes parts of sectors at both ends.
pub fn moves_parts_of_lines(task: &Task) -> bool {
    let walk = Walk::of(task);
    let widest = task.outputs.iter().map(Operand::size).max().unwrap_or(1);
    walk.pack == 1 && WARP * widest < LINE
}

/// Average number of elements of a thread of the kernel for a task.
pub fn elements_of_a_thread(task: &Task) -> f64 {
    let walk = Walk::of(task);
    walk.length as f64 / (walk.tiles().0 * walk.threads) as f64
}

/// True if a thread of the kernel for a task writes a whole row by several stores. Each store of a warp then accesses the sectors of all its
/// rows again.
pub fn rewrites_sectors(task: &Task) -> bool {
    let walk = Walk::of(task);
    walk.threads == 1 && walk.each > 1
}

/// Work of the kernels for some tasks, without the instructions of their expressions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Number of sectors of device memory that warps access.
    pub sectors: f64,
    /// Number of instructions of all threads for positions, addresses, loads and stores.
    pub instructions: f64,
    /// Number of thread blocks.
    pub blocks: u64,
}

/// Returns the work of the kernels of these tasks.
pub fn work(tasks: &[Task]) -> Work {
    tasks.iter().fold(Work::default(), |all, task| {
        let operands: Vec<&Operand> = task.outputs.iter().chain(&task.inputs).collect();
        let walk = Walk::of(task);
        Work {
            sectors: all.sectors + walk.sectors(&operands),
            instructions: all.instructions + walk.instructions(),
            blocks: all.blocks + (walk.tiles().1 * walk.threads).div_ceil(u64::from(BLOCK)).max(1),
        }
    })
}

/// Maximum size in bytes of a kernel's arguments that all devices support.
const ARGUMENTS: usize = 4096;

/// Returns as few kernels as the limit of arguments permits for several tasks with the same compute type.
pub fn launches(name: &str, tasks: &[Task], compute: DType) -> Vec<Launch> {
    let mut launches = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (place, task) in tasks.iter().enumerate() {
        let own = TaskText::of(task, compute).bytes();
        if bytes + own > ARGUMENTS && place > begin {
            launches.push(launch_all(name, &tasks[begin..place], compute));
            (begin, bytes) = (place, 0);
        }
        bytes += own;
    }
    launches.push(launch_all(name, &tasks[begin..], compute));
    launches
}

/// Returns one kernel that executes several tasks with the same compute type.
pub fn launch_all(name: &str, tasks: &[Task], compute: DType) -> Launch {
    let parts: Vec<TaskText> = tasks.iter().map(|task| TaskText::of(task, compute)).collect();
    let before = format!("typedef {} C;\n{}", c_type(compute), if is_masked(tasks) { philox::TEXT } else { "" });
    let (before, params, body) = match &*parts {
        [part] => (before + &part.function, part.params(""), format!("  u64 block = blockIdx.x;\n{}", part.body)),
        parts => {
            let (mut text, mut body, mut params) = (before, String::new(), Vec::new());
            body += "  u64 block = blockIdx.x;\n";
            for (number, part) in parts.iter().enumerate() {
                let (own, _): (Vec<String>, Vec<Arg>) = part.params("").into_iter().unzip();
                let TaskText { function, body: part_body, .. } = part;
                text += &format!(
                    "struct Part{number} {{\n{function}__device__ static inline void run(u64 block, {}) {{\n{part_body}}}\n}};\n",
                    own.join(", ")
                );
                let given: Vec<String> = part.params.iter().map(|(_, name, _)| format!("{name}_{number}")).collect();
                body += &format!(
                    "  if (block < blocks_{number}) return Part{number}::run(block, {});\n  block -= blocks_{number};\n",
                    given.join(", ")
                );
                params.extend(part.params(&format!("_{number}")));
                params.push(u64_param(&format!("blocks_{number}"), part.blocks));
            }
            (text, params, body)
        }
    };
    let blocks = parts.iter().map(|part| part.blocks).sum();
    kernel::launch(name, &before, &params, &body, blocks, BLOCK)
}

fn is_masked(tasks: &[Task]) -> bool {
    tasks.iter().flat_map(|task| &task.inputs).any(|input| matches!(input.origin, ElementSource::Mask { .. }))
}

/// Returns kernel text of the function `compute`, which evaluates the expression of a task for one element.
pub fn compute_text(task: &Task) -> String {
    task.expression.c_function("__device__ static inline", "compute", task.inputs.len())
}

/// The kernel text of a task. The variable `block` is the number of the block within the task.
struct TaskText {
    /// The function `compute`, which evaluates the expression for one element.
    function: String,
    /// Type, name and argument of each parameter.
    params: Vec<(String, String, Arg)>,
    body: String,
    blocks: u64,
}

impl TaskText {
    /// Upper bound on the size in bytes of the arguments, including the number of blocks.
    fn bytes(&self) -> usize {
        let bytes = |arg: &Arg| if let Arg::Words(words) = arg { 8 * words.len() } else { 8 };
        8 + self.params.iter().map(|(.., arg)| bytes(arg)).sum::<usize>()
    }

    /// Returns the parameters, with `suffix` at the end of their names.
    fn params(&self, suffix: &str) -> Vec<Parameter> {
        self.params.iter().map(|(kind, name, arg)| param(format!("{kind} {name}{suffix}"), arg.clone())).collect()
    }

    fn of(task: &Task, compute: DType) -> TaskText {
        let walk = Walk::of(task);
        let (along, tiles) = walk.tiles();
        let Walk { pack, each, threads, .. } = walk;
        let (expression, outputs, count) = (task.expression, task.outputs.len(), task.inputs.len());
        let operands = || task.outputs.iter().chain(&task.inputs).enumerate();
        let name = |operand: usize| match operand.checked_sub(outputs) {
            None if outputs == 1 => "out".to_owned(),
            None => format!("out{operand}"),
            Some(input) => format!("a{input}"),
        };
        let constants = expression.constants();

        let mut params = Vec::new();
        let mut param = |kind: &str, name: String, arg: Arg| params.push((kind.to_owned(), name, arg));
        for (operand, Operand { origin, tensor, .. }) in operands() {
            let address = match *origin {
                ElementSource::Memory(place) => Arg::Operand(place),
                ElementSource::Workspace(offset) => Arg::WorkspaceAt { offset, bytes: offset + tensor.reach() },
                ElementSource::Mask { seed, least } => {
                    param("Keys", format!("keys{}", operand - outputs), Arg::Words(philox::keys(seed).to_vec()));
                    param("u32", format!("least{}", operand - outputs), Arg::U32(least));
                    continue;
                }
            };
            let constant = if operand < outputs { "" } else { "const " };
            param(&format!("{constant}{}*", c_type(tensor.dtype)), name(operand), address);
        }
        for (index, &value) in constants.iter().enumerate() {
            let arg = Arg::real(compute, value);
            param("C", format!("c{index}"), arg);
        }
        let (declaration, words) = geometry_param("g", &walk.outer);
        param(declaration.trim_end_matches(" g"), "g".to_owned(), words);
        for (name, value) in [("n", walk.length), ("along", along), ("tiles", tiles)] {
            param("u64", name.to_owned(), Arg::U64(value));
        }
        for (operand, distance) in walk.distances.iter().enumerate().filter(|(operand, _)| walk.apart(*operand)) {
            param("u64", format!("step{operand}"), Arg::U64(*distance));
        }
        for (operand, Operand { start, .. }) in operands().filter(|(_, operand)| operand.start > 0) {
            param("u64", format!("start{operand}"), Arg::U64(*start));
        }

        let drawn = |input: usize| matches!(task.inputs[input].origin, ElementSource::Mask { .. });
        // An input element, indexed from the start of its row.
        let element = |input: usize, place: &str| match drawn(input) {
            true => format!("kept(keys{input}, least{input}, a{input} + {place})"),
            false => format!("a{input}[{place}]"),
        };
        // An expression that only copies an element preserves its bits.
        let moves =
            expression.is_identity() && !drawn(0) && task.inputs[0].tensor.dtype == task.outputs[0].tensor.dtype;
        // Stores the outputs of element `v` of the pack at `j`. `packed` elements have been loaded before.
        let store = |to: &dyn Fn(usize) -> String, packed: bool| {
            let value = |i: usize| match walk.steps[outputs + i] {
                OperandAccess::Repeated => format!("b{i}"),
                OperandAccess::Neighbours(width) if packed => format!("p{i}[e][v / {width}].at[v % {width}]"),
                OperandAccess::Neighbours(_) => element(i, "j + v"),
                OperandAccess::Apart => format!("p{i}[e]"),
            };
            if moves {
                return format!("{} = {}", to(0), value(0));
            }
            let constants = (0..constants.len()).map(|i| format!("c{i}"));
            let values = (0..count).map(|i| if drawn(i) { value(i) } else { format!("load<C>({})", value(i)) });
            let values = values.chain(constants);
            if outputs == 1 {
                return format!("store<C>({}, compute({}))", to(0), values.collect::<Vec<_>>().join(", "));
            }
            let results: Vec<String> = (0..outputs).map(|output| format!("r{output}")).collect();
            let stores: String = (0..outputs).map(|output| format!(" store<C>({}, r{output});", to(output))).collect();
            let values: Vec<String> = values.chain(results.iter().cloned()).collect();
            format!("{{ C {}; compute({});{stores} }}", results.join(", "), values.join(", "))
        };

        let index = index_type(tiles + u64::from(BLOCK));
        // Index type for positions in a row, up to the end of the last tile.
        let place = index_type(walk.length + walk.tile());
        let mut body = format!(
            "  {index} tile = ({index})((block * blockDim.x + threadIdx.x) / {threads});\n  if (tile >= tiles) return;\n  \
             {place} first = threadIdx.x % {threads} * {pack};\n"
        );
        if walk.outer.dims.is_empty() {
            body += &format!("  first += ({place})tile * {};\n", walk.tile());
        } else if along > 1 {
            body += &format!(
                "  {index} row = tile / ({index})along;\n  first += ({place})(tile - row * ({index})along) * {};\n",
                walk.tile()
            );
        } else {
            body += &format!("  {index} row = tile;\n");
        }
        (0..count).filter(|&i| drawn(i)).for_each(|i| body += &format!("  u64 a{i} = 0;\n"));
        for (operand, _) in operands().filter(|(_, operand)| operand.start > 0) {
            body += &format!("  {} += start{operand};\n", name(operand));
        }
        if !walk.outer.dims.is_empty() {
            body += &format!("  i64 at[{}];\n  g.offsets(row, at);\n", outputs + count);
            (0..outputs + count).for_each(|operand| body += &format!("  {} += at[{operand}];\n", name(operand)));
        }
        for i in 0..count {
            let kind = c_type(task.inputs[i].tensor.dtype);
            match walk.steps[outputs + i] {
                OperandAccess::Repeated => body += &format!("  {kind} b{i} = {};\n", element(i, "0")),
                OperandAccess::Neighbours(width) => {
                    body += &format!("  Pack<{kind}, {width}> p{i}[{each}][{}];\n", pack / width)
                }
                OperandAccess::Apart => body += &format!("  {kind} p{i}[{each}];\n"),
            }
        }
        // A thread issues all loads before it uses the first value.
        let begin = format!(
            "#pragma unroll\n  for (int e = 0; e < {each}; e++) {{\n    {place} j = first + e * {};\n",
            threads * pack
        );
        let reads: String = (0..count)
            .filter_map(|i| match walk.steps[outputs + i] {
                OperandAccess::Neighbours(width) => {
                    let from = match drawn(i) {
                        true => format!("all_kept<{width}>(keys{i}, least{i}, a{i} + j + k * {width})"),
                        false => {
                            let kind = c_type(task.inputs[i].tensor.dtype);
                            format!("*(const Pack<{kind}, {width}>*)(a{i} + j + k * {width})")
                        }
                    };
                    let pieces = pack / width;
                    Some(format!("#pragma unroll\n      for (int k = 0; k < {pieces}; k++) p{i}[e][k] = {from};\n"))
                }
                OperandAccess::Apart => {
                    Some(format!("      p{i}[e] = {};\n", element(i, &format!("(u64)j * step{}", outputs + i))))
                }
                OperandAccess::Repeated => None,
            })
            .collect();
        if !reads.is_empty() {
            body += &format!("{begin}    if (j + {pack} <= n) {{\n{reads}    }}\n  }}\n");
        }
        let width = |output: usize| match walk.steps[output] {
            OperandAccess::Neighbours(width) => Some(width),
            _ => None,
        };
        let write = match pack {
            1 => {
                let to = |output: usize| match width(output) {
                    Some(_) => format!("{}[j]", name(output)),
                    None => format!("{}[(u64)j * step{output}]", name(output)),
                };
                format!("      const int v = 0;\n      {};\n", store(&to, true))
            }
            _ => {
                let width = |output: usize| width(output).expect("outputs that are written in packs have neighbours");
                let kind = |output: usize| c_type(task.outputs[output].tensor.dtype);
                let each_output = |text: &dyn Fn(usize) -> String| (0..outputs).map(text).collect::<String>();
                format!(
                    "{}#pragma unroll\n      for (int v = 0; v < {pack}; v++) {};\n{}",
                    each_output(&|o| format!("      Pack<{}, {}> q{o}[{}];\n", kind(o), width(o), pack / width(o))),
                    store(&|o| format!("q{o}[v / {width}].at[v % {width}]", width = width(o)), true),
                    each_output(&|o| format!(
                        "#pragma unroll\n      for (int k = 0; k < {}; k++) *(Pack<{}, {width}>*)({} + j + k * {width}) = q{o}[k];\n",
                        pack / width(o),
                        kind(o),
                        name(o),
                        width = width(o)
                    ))
                )
            }
        };
        let rest = match pack {
            1 => String::new(),
            _ => format!(
                " else {{\n      for (int v = 0; v < {pack} && j + v < n; v++) {};\n    }}",
                store(&|output| format!("{}[j + v]", name(output)), false)
            ),
        };
        body += &format!("{begin}    if (j + {pack} <= n) {{\n{write}    }}{rest}\n  }}\n");
        let blocks = tiles.div_ceil(u64::from(BLOCK) / threads).max(1);
        TaskText { function: compute_text(task), params, body, blocks }
    }
}
