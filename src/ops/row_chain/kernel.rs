//! The kernel of a chain. The threads of a row hold it in registers; for a row that is too long, the expression before
//! the core is computed twice. A thread issues its loads before it uses the first value: loads between branches would
//! wait for each other.

use super::super::layout::{broadcast_strides, collapse};
use super::super::norms::HELPERS;
use super::*;
use crate::ops::kernels::cluster::CLUSTER;
use crate::ops::kernels::kernel::{
    HELD_PACK, Parameter, bounds, c_type, geometry_param, i64_param, index_type, kernel, param, u32_param, u64_param,
};
use crate::ops::kernels::occupancy::{LARGEST_BLOCK, LARGEST_CLUSTER, UNIT_THREADS, UNITS, WARP, share_with};
use crate::ops::kernels::ragged::RAGGED;
use crate::ops::kernels::rows::{HELD, MIN_PACKS, OTHER_REGISTERS, Rows, Sharing, common_pack, is_shifted, threads_of};

/// Maximum number of registers per thread for the elements that a kernel loads at a time.
const UNDER_WAY: u64 = 32;

/// Largest number of bytes of a pack.
pub const PACK_BYTES: u64 = 16;

/// Maximum size in bytes of elements of rows that may begin inside a pack. Loads of single larger ones need few instructions.
const SHIFTED_SIZE: u64 = 4;

/// Division of rows among threads.
pub struct ChainPartition {
    /// Rows of the outputs, then of the inputs, which are broadcast if smaller.
    pub rows: Rows,
    /// For each input, the number of elements per load.
    widths: Vec<u64>,
    /// Division of the part of a row that a block has.
    pub sharing: Sharing,
    /// Number of blocks of a row, which form a cluster.
    pub cluster: u64,
    /// Number of values of a row that the blocks of a cluster exchange.
    exchanged: u64,
    segments: Option<Segments>,
    /// True if rows may begin inside a pack. Then the first and the last pack of a row are partial.
    shifted: bool,
}

/// Parts of rows whose elements are not equally far apart.
struct Segments {
    /// Number of elements of a part.
    length: u64,
    /// For each tensor, outputs first, the distance in elements of two parts.
    apart: Vec<u64>,
}

/// A kernel function generated from an expression.
pub struct KernelFunction {
    pub text: String,
    name: String,
    /// Inputs of the expression that are its arguments. In a chain, 0 is the core's result, [`BEFORE`] the core's operand.
    pub inputs: Vec<usize>,
    /// Prefix of the kernel parameters that hold the function's constants.
    prefix: String,
    /// Values of the constants, in the order of the parameters.
    constants: Vec<f64>,
}

impl KernelFunction {
    /// The function of an expression. `inputs` are the arguments, by their numbers in the expression that it is a part of.
    pub fn of(expression: &Expression, name: &str, prefix: &str, inputs: Vec<usize>) -> KernelFunction {
        let text = expression.c_function("__device__ inline", name, inputs.len());
        let (name, prefix) = (name.to_owned(), prefix.to_owned());
        KernelFunction { text, name, inputs, prefix, constants: expression.constants().to_vec() }
    }

    /// Returns the call with these arguments. The function assigns its outputs to `targets`, or returns the only one.
    pub fn call(&self, argument: impl Fn(usize) -> String, targets: &[String]) -> String {
        let constants = (0..self.constants.len()).map(|place| format!("{}{place}", self.prefix));
        let all = self.inputs.iter().map(|&number| argument(number)).chain(constants).chain(targets.iter().cloned());
        format!("{}({})", self.name, all.collect::<Vec<_>>().join(", "))
    }
}

/// Instructions of a thread for its place: a count in code for sm_90a by NVRTC 13.0.
const PER_PLACE: f64 = 40.0;
/// Instructions of a thread per access, from the same code.
const PER_ACCESS: f64 = 4.0;

/// Number of the input that represents the core's operand; larger than any input number of a spec.
const BEFORE: usize = u8::MAX as usize;

impl ChainPartition {
    pub fn of(spec: &Spec) -> ChainPartition {
        ChainPartition::holding(spec, if compute_type(spec) == DType::F64 { 16 } else { 32 }, None)
    }

    /// Returns the division for threads that hold at most `most` elements of each tensor in registers, in packs of `shifted` elements if
    /// rows may begin inside a pack. Outputs with one value for each row follow the others.
    pub fn holding(spec: &Spec, most: u64, shifted: Option<u64>) -> ChainPartition {
        let views = views(spec);
        let rows = Rows::of(&spec.outputs.iter().chain(&views).collect::<Vec<_>>());
        ChainPartition::divided(spec, (rows, None), &views, (most, shifted))
    }

    /// Number of elements of the packs in which threads access rows that may begin inside a pack; `None` if packs divide the rows, if rows are
    /// short, or if they do not fill the device: partial packs delay each row, but save instructions of all.
    pub fn shifted_pack(spec: &Spec) -> Option<u64> {
        let dims = spec.outputs[0].dims;
        let all: Vec<&Tensor> = spec.outputs.iter().chain(&spec.inputs).filter(|tensor| tensor.dims == dims).collect();
        let (elements, length, size) = (spec.outputs[0].elements(), *dims.last()?, spec.outputs[0].dtype.size());
        let pack = PACK_BYTES / size;
        let fills = elements >= UNITS * length && elements >= UNITS * UNIT_THREADS * pack;
        let is_long =
            length >= 2 * WARP * pack && size <= SHIFTED_SIZE && all.iter().all(|tensor| tensor.dtype.size() == size);
        (fills && is_long && common_pack(&all) == 1 && is_shifted(&all, pack)).then_some(pack)
    }

    /// Returns the division in which a row extends along the dimension `outer` and the last one, `inner`.
    pub fn in_parts(spec: &Spec, [outer, inner]: [usize; 2], most: u64) -> ChainPartition {
        let (views, dims) = (views(spec), spec.outputs[0].dims);
        let strides =
            |axis: usize| spec.outputs.iter().chain(&views).map(move |tensor| tensor.strides[axis]).collect::<Vec<_>>();
        let others = |all: &Dims| -> Dims {
            (0..all.len()).filter(|axis| ![outer, inner].contains(axis)).map(|axis| all[axis]).collect()
        };
        let kept: Vec<Dims> = spec.outputs.iter().chain(&views).map(|tensor| others(&tensor.strides)).collect();
        let (parts, length) = (dims[outer], dims[inner]);
        let rows = Rows {
            geometry: collapse(others(&dims), &kept),
            count: others(&dims).iter().product(),
            length: parts * length,
            steps: strides(if length > 1 { inner } else { outer }),
        };
        let has_parts = parts > 1 && length > 1;
        let segments = has_parts.then(|| Segments { length, apart: strides(outer) });
        ChainPartition::divided(spec, (rows, segments), &views, (most, None))
    }

    fn divided(
        spec: &Spec,
        (rows, segments): (Rows, Option<Segments>),
        views: &[Tensor],
        (most, shifted): (u64, Option<u64>),
    ) -> ChainPartition {
        let dims = spec.outputs[0].dims;
        let of_elements: Vec<&Tensor> = spec.outputs.iter().filter(|output| output.dims == dims).collect();
        let pack = shifted.unwrap_or_else(|| common_pack(&of_elements));
        let width = |(view, input): (&Tensor, &Tensor)| match shifted {
            Some(pack) if input.dims == dims => pack,
            Some(_) => 1,
            None => common_pack(&[view]).min(pack),
        };
        let widths = views.iter().zip(&spec.inputs).map(width).collect();
        let shifted = shifted.is_some();
        let all = rows.length.div_ceil(pack);
        let room = UNITS * UNIT_THREADS / rows.count.max(1);
        let threads = threads_of(all, [pack, spec.outputs[0].dtype.size(), most], room);
        let sharing = match threads < WARP {
            true => Sharing { pack, packs: all.div_ceil(threads), threads, whole: true },
            false => Sharing::of(&Rows { length: reach(&rows, pack, shifted), ..rows.clone() }, pack, most),
        };
        ChainPartition { rows, widths, sharing, cluster: 1, exchanged: 0, segments, shifted }
    }

    /// Gives a row the fewest blocks whose registers hold it, and more if SMs would be idle. An exchange takes about as long as an SM's
    /// accesses to [`MIN_PACKS`] packs of 16 bytes of each thread of a large block; more than two blocks wait at the same barrier, so that a
    /// pack of each thread suffices. The blocks exchange this many values, and elements have `size` bytes. A row that no cluster holds keeps
    /// one block; so do rows of single elements that suffice for all SMs, since instructions bound their time, and larger blocks wait for each
    /// other.
    pub fn in_clusters(mut self, most: u64, exchanged: u64, size: u64) -> ChainPartition {
        let (count, pack) = (self.rows.count, self.sharing.pack);
        let length = reach(&self.rows, pack, self.shifted);
        let holds = |blocks: &u64| length <= blocks * LARGEST_BLOCK * most;
        let packs = |blocks: u64| (length * size).div_ceil(blocks * LARGEST_BLOCK * PACK_BYTES);
        let idle = |blocks: u64| 2 * blocks * count <= UNITS && packs(blocks) >= if blocks > 1 { 2 } else { MIN_PACKS };
        let enough = [1, 2, 4].into_iter().find(|blocks| holds(blocks) && !idle(*blocks)).unwrap_or(LARGEST_CLUSTER);
        if enough > 1 && holds(&enough) && (pack > 1 || count < UNITS) {
            let parts = Rows { count: count * enough, length: length.div_ceil(enough), ..self.rows.clone() };
            (self.sharing, self.cluster, self.exchanged) = (Sharing::of(&parts, pack, most), enough, exchanged);
        }
        self
    }

    /// True if threads hold whole rows, or there are enough rows for all SMs.
    pub fn keeps_busy(&self) -> bool {
        self.sharing.whole || self.rows.count >= UNITS
    }

    /// Returns the number of blocks of all rows.
    fn blocks(&self) -> u64 {
        self.rows.count.div_ceil(self.sharing.block_rows()).max(1) * self.cluster
    }

    /// Returns text of the first element of a block's first piece of a row.
    pub fn begin(&self) -> &'static str {
        if self.cluster > 1 { "part * (T * K * V)" } else { "0" }
    }

    pub fn cost(&self, spec: &Spec, flops: f64) -> Cost {
        let Sharing { pack, packs, threads, whole } = self.sharing;
        let pieces = self.rows.length.div_ceil(threads * packs * pack * self.cluster).max(1);
        let again = |again: bool| if again { Spec::bytes_of(&spec.inputs) } else { Traffic::NONE };
        let of_rows: Vec<usize> =
            (0..spec.inputs.len()).filter(|&input| spec.inputs[input].dims == spec.outputs[0].dims).collect();
        Cost {
            reread: again(!self.sharing.whole),
            waits: if whole { 0.0 } else { (2 * pieces - 2) as f64 },
            blocks: self.blocks(),
            share: share_with(
                self.sharing.block(),
                OTHER_REGISTERS + self.registers(spec, &of_rows) * self.sharing.packs,
            ),
            ..spec.streaming_cost(flops, 1)
        }
    }

    /// Instructions with which all threads find their places, and access and convert the elements of rows.
    pub fn access_instructions(&self, spec: &Spec) -> f64 {
        let dims = spec.outputs[0].dims;
        let sharing = &self.sharing;
        let of_access = |tensor: &Tensor| PER_ACCESS + if tensor.dtype.size() == 2 { sharing.pack as f64 } else { 0.0 };
        let tensors = spec.inputs.iter().chain(&spec.outputs).filter(|tensor| tensor.dims == dims);
        let packs = self.rows.length.div_ceil(sharing.pack).div_ceil(sharing.threads * self.cluster);
        let of_thread = PER_PLACE + packs as f64 * tensors.map(of_access).sum::<f64>();
        (self.blocks() * sharing.block()) as f64 * of_thread
    }

    pub fn launch(&self, core: Core, name: &str, spec: &Spec) -> Launch {
        let expression = spec.expression.as_deref().expect("fusion makes chains with an expression");
        let functions = functions(expression);
        let option = match core {
            Core::Softmax => Some("scale"),
            Core::RmsNorm | Core::LayerNorm => Some("eps"),
            Core::Sum | Core::Mean => None,
        };
        let work = self.work(core, spec, &functions);
        Launch::Kernel(self.kernel(name, spec, (option, core == Core::LayerNorm), &functions, &work))
    }

    /// Returns the kernel that calls these functions in `work`, which begins where pointers to the thread's row are known. If blocks share
    /// rows, they are clusters, on devices that have them.
    pub fn kernel(
        &self,
        name: &str,
        spec: &Spec,
        (option, is_centred): (Option<&str>, bool),
        functions: &[KernelFunction],
        work: &str,
    ) -> Kernel {
        let ChainPartition { rows, sharing, cluster, .. } = self;
        let params = self.parameters(option, spec, functions);
        let segment = self.segments.as_ref().map_or(0, |segments| segments.length);
        let whole = sharing.threads * sharing.pack * sharing.packs * cluster;
        let bounds = match cluster {
            1 => bounds(sharing.block() as u32),
            _ => format!("#define THREADS {}\n#define CLUSTER_BLOCKS {cluster}\n{CLUSTER}", sharing.threads),
        };
        let definitions = format!(
            "{bounds}typedef {} C;\n#define SEGMENT {segment}u\n#define T {}\n#define V {}\n#define K {}\n#define BLOCK {}\n#define EVEN {}\n#define SHIFTED {}\n#define CENTRED {}\n\
             {}{HELD_PACK}{HELPERS}{SOFTMAX}{}",
            c_type(compute_type(spec)),
            sharing.threads,
            sharing.pack,
            sharing.packs,
            sharing.block(),
            !self.shifted && rows.length.is_multiple_of(whole),
            u32::from(self.shifted),
            u32::from(is_centred),
            if self.shifted { format!("#define RAGGED 1\n{RAGGED}") } else { String::new() },
            functions.iter().map(|function| function.text.as_str()).collect::<String>(),
        );
        let body = self.pointers(spec) + work;
        kernel(name, &definitions, &params, &body, self.blocks(), sharing.block() as u32)
    }

    /// Returns the kernel's parameters. `option` is that of the core.
    fn parameters(&self, option: Option<&str>, spec: &Spec, functions: &[KernelFunction]) -> Vec<Parameter> {
        let ChainPartition { rows, .. } = self;
        let compute = compute_type(spec);
        let mut all = Vec::new();
        for (place, tensor) in spec.inputs.iter().chain(&spec.outputs).enumerate() {
            let constant = if place < spec.inputs.len() { "const " } else { "" };
            all.push(param(format!("{constant}{}* m{place}", c_type(tensor.dtype)), Arg::Operand(place as u8)));
        }
        let steps = rows.steps.iter().enumerate().filter(|(_, step)| **step > 1);
        all.extend(steps.map(|(tensor, step)| i64_param(&format!("step{tensor}"), *step)));
        let apart = self.segments.iter().flat_map(|segments| segments.apart.iter().enumerate());
        all.extend(apart.map(|(tensor, apart)| i64_param(&format!("apart{tensor}"), *apart)));
        let real = |value: f64| Arg::real(compute, value);
        all.extend(option.map(|option| (format!("C {option}"), real(spec.attrs.number(option)))));
        for KernelFunction { prefix, constants, .. } in functions {
            let constants = constants.iter().enumerate();
            all.extend(constants.map(|(place, value)| (format!("C {prefix}{place}"), real(*value))));
        }
        all.extend([geometry_param("g", &rows.geometry), u64_param("rows", rows.count), u32_param("n", rows.length)]);
        let totals = Arg::Workspace(rows.count * self.cluster * self.exchanged * compute.size());
        all.extend((self.cluster > 1).then(|| param("C* totals", totals)));
        all
    }

    /// Returns text that computes the address of a thread's row in each tensor, and reads inputs with one value per
    /// row.
    fn pointers(&self, spec: &Spec) -> String {
        let index = index_type(self.rows.count);
        let place = match self.cluster {
            1 => "u64 row = (u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T;",
            _ => "u32 part = blockIdx.x % CLUSTER_BLOCKS;\n  u64 row = blockIdx.x / CLUSTER_BLOCKS;",
        };
        let mut text = format!(
            "  u32 lane = threadIdx.x % T;\n  {place}\n  bool live = row < rows;\n  {index} at = ({index})(live ? row : 0);\n"
        );
        for (place, tensor) in spec.inputs.iter().chain(&spec.outputs).enumerate() {
            // Outputs come first in the geometry.
            let (constant, which) = match place < spec.inputs.len() {
                true => ("const ", spec.outputs.len() + place),
                false => ("", place - spec.inputs.len()),
            };
            text += &format!("  {constant}{}* a{place} = m{place} + g.offset(at, {which});\n", c_type(tensor.dtype));
            if place < spec.inputs.len() && self.is_scalar(spec, place) {
                text += &format!("  C s{place} = load<C>(*a{place});\n");
            }
        }
        if !self.shifted {
            return text + "  const u32 lead = 0;\n";
        }
        // Number of elements between the first pack and the row. Positions count from the pack.
        let dims = spec.outputs[0].dims;
        let tensors = spec.inputs.iter().chain(&spec.outputs).enumerate();
        let whole: Vec<usize> = tensors.filter(|(_, tensor)| tensor.dims == dims).map(|(place, _)| place).collect();
        let first = whole[0];
        text += &format!("  const u32 lead = (u32)((u64)a{first} / sizeof(*a{first}) % V);\n  n += lead;\n");
        text + &whole.iter().map(|place| format!("  a{place} -= lead;\n")).collect::<String>()
    }

    /// Distance of two parts of a row of this input, in elements.
    fn apart(&self, spec: &Spec, input: usize) -> u64 {
        self.segments.as_ref().map_or(0, |segments| segments.apart[spec.outputs.len() + input])
    }

    /// True if an input has one value for each row.
    pub fn is_scalar(&self, spec: &Spec, input: usize) -> bool {
        self.rows.steps[spec.outputs.len() + input] == 0 && self.apart(spec, input) == 0
    }

    /// True if an input has one value for each part of a row.
    pub fn is_of_part(&self, spec: &Spec, input: usize) -> bool {
        self.rows.steps[spec.outputs.len() + input] == 0 && self.apart(spec, input) > 0
    }

    /// True if the registers of a row's threads hold these inputs.
    pub fn is_held(&self, spec: &Spec, inputs: &[usize]) -> bool {
        self.sharing.whole && self.registers(spec, inputs) * self.sharing.packs <= HELD
    }

    /// Returns the inputs that a thread loads for a function: those with an element or a value per column.
    fn loaded(&self, spec: &Spec, function: &KernelFunction) -> Vec<usize> {
        let inputs = function.inputs.iter().filter(|&&number| number != 0 && number != BEFORE).map(|number| number - 1);
        inputs.filter(|&input| !self.is_scalar(spec, input)).collect()
    }

    /// Returns the number of registers that a pack of each of these inputs takes.
    pub fn registers(&self, spec: &Spec, inputs: &[usize]) -> u64 {
        let of = |&input: &usize| match self.is_of_part(spec, input) {
            true => spec.inputs[input].dtype.size().div_ceil(4),
            false => self.sharing.registers(self.widths[input], spec.inputs[input].dtype),
        };
        inputs.iter().map(of).sum()
    }

    /// Returns the number of packs of these inputs that a thread loads at a time.
    fn batch(&self, spec: &Spec, inputs: &[usize]) -> u64 {
        let packs = self.sharing.packs;
        let most = (UNDER_WAY / self.registers(spec, inputs).max(1)).clamp(1, packs);
        packs.div_ceil(packs.div_ceil(most))
    }

    /// Returns text that loads `count` packs of each input, from pack `first` on.
    pub fn loads(&self, spec: &Spec, inputs: &[usize], count: &str) -> String {
        if inputs.is_empty() {
            return String::new();
        }
        let (mut declared, mut read) = (String::new(), String::new());
        for &input in inputs {
            let (dtype, width) = (c_type(spec.inputs[input].dtype), self.widths[input]);
            let tensor = spec.outputs.len() + input;
            if self.is_of_part(spec, input) {
                declared += &format!("{dtype} p{input}[{count}] = {{}}; ");
                read += &format!("p{input}[b] = a{input}[(i64)((u32)j / SEGMENT) * apart{tensor}]; ");
                continue;
            }
            declared += &format!("HeldPack<{dtype}, {width}> p{input}[{count}][V / {width}] = {{}}; ");
            let at = self.pack(tensor, input);
            let is_column = self.shifted && spec.inputs[input].dims != spec.outputs[0].dims;
            let (function, bounds) = if is_column { ("fetch_row", "lead, n, ") } else { ("fetch", "") };
            read += &format!("{function}({at}, {bounds}p{input}[b]); ");
        }
        format!("{declared}\n    EACH_OF({count}) if (INSIDE(start)) {{ {read}}}\n    ")
    }

    /// Returns the arguments by which a kernel accesses the pack at `j` of a row of a tensor, outputs first in `tensor`, inputs first in
    /// `operand`.
    pub fn pack(&self, tensor: usize, operand: usize) -> String {
        let step = self.step(tensor);
        match &self.segments {
            Some(segments) if segments.apart[tensor] != segments.length * self.rows.steps[tensor] => {
                format!("a{operand} + (i64)((u32)j / SEGMENT) * apart{tensor}, {step}, (u32)j % SEGMENT")
            }
            _ => format!("a{operand}, {step}, j"),
        }
    }

    /// Returns the stride of a tensor along a row as text. The compiler folds a stride of 1.
    fn step(&self, tensor: usize) -> String {
        if self.rows.steps[tensor] == 1 { "1".to_owned() } else { format!("step{tensor}") }
    }

    /// Returns the call of a function for element `i` of a pack. `result` is the core's result; the function assigns
    /// its outputs to `targets`.
    fn call(&self, spec: &Spec, function: &KernelFunction, result: &str, targets: &[String]) -> String {
        let argument = |number: usize| match number {
            0 => result.to_owned(),
            BEFORE => "v[k][i]".to_owned(),
            _ if self.is_scalar(spec, number - 1) => format!("s{}", number - 1),
            _ => format!("element(p{}[b], i)", number - 1),
        };
        function.call(argument, targets)
    }

    /// Returns text that loads these inputs in batches of packs, each followed by `work`, which receives the size of a batch.
    pub fn in_batches(&self, spec: &Spec, inputs: &[usize], work: &dyn Fn(&str) -> String) -> String {
        let count = self.batch(spec, inputs).to_string();
        let loads = self.loads(spec, inputs, &count);
        format!(
            "_Pragma(\"unroll\") for (u32 first = 0; first < K; first += {count}) {{\n    {loads}{}  }}\n",
            work(&count)
        )
    }

    /// Returns text that computes the rows.
    fn work(&self, core: Core, spec: &Spec, [before, behind]: &[KernelFunction; 2]) -> String {
        let (inputs, outputs, whole) = (spec.inputs.len(), spec.outputs.len(), self.sharing.whole);
        // Exponentials replace their arguments in the registers, unless the arguments are needed again.
        let keeps = behind.inputs.contains(&BEFORE);
        let (part, joined, result) = match core {
            Core::Softmax if whole && keeps => (SUM_AGAIN, "", "f_exp(v[k][i] * scale - top) * share"),
            Core::Softmax if whole => (SUM, "", "v[k][i] * share"),
            Core::Softmax => (PEAK, SHARE, "f_exp(v[k][i] * scale - top) * share"),
            Core::RmsNorm | Core::LayerNorm if whole => (ROW, FACTOR, "(v[k][i] - all.mean) * factor"),
            Core::RmsNorm | Core::LayerNorm => (PART, JOIN, "(v[k][i] - all.mean) * factor"),
            Core::Sum => (ADD, TOTAL, "total"),
            Core::Mean => (ADD, TOTAL, "total / C(n)"),
        };
        let begin = match core {
            Core::Softmax => "  Peak all;\n",
            Core::RmsNorm | Core::LayerNorm => "  Part all = {0, 0, 0};\n",
            Core::Sum | Core::Mean => "  C all = 0;\n",
        };
        let targets: Vec<String> = (0..outputs).map(|output| format!("o{output}[i]")).collect();
        let assigned = match &*targets {
            [only] => format!("{only} = {}", self.call(spec, behind, result, &[])),
            _ => self.call(spec, behind, result, &targets),
        };
        let declared: String = (0..outputs).map(|output| format!("C o{output}[V]; ")).collect();
        let write = |output: usize| format!("write({}, o{output}); ", self.pack(output, inputs + output));
        let writes: String = (0..outputs).map(write).collect();
        // Elements outside of the row are computed too, from zeros: a branch would separate the work of two packs.
        let fill =
            |count: &str| format!("EACH_OF({count}) {{ EACH v[k][i] = {}; }}\n", self.call(spec, before, "", &[]));
        let finish = |count: &str| {
            format!("EACH_OF({count}) {{ {declared}EACH {assigned}; if (INSIDE(start)) {{ {writes}}} }}\n")
        };
        let [early, late] = [before, behind].map(|function| self.loaded(spec, function));
        let both: Vec<usize> =
            early.iter().chain(late.iter().filter(|input| !early.contains(input))).copied().collect();
        let in_batches = |inputs: &[usize], work: &dyn Fn(&str) -> String| self.in_batches(spec, inputs, work);
        let leave = "  if (!live) return;\n";
        if self.is_held(spec, &both) {
            let loads = self.loads(spec, &both, "K");
            let start = "  const u32 start = 0, first = 0;\n  ";
            let [filled, finished] = [fill("K"), finish("K")];
            return format!("  C v[K][V];\n{begin}{start}{loads}{filled}{part}{joined}{leave}  {finished}");
        }
        let [filled, finished] = [in_batches(&early, &fill), in_batches(&late, &finish)];
        match whole {
            true => format!("  C v[K][V];\n{begin}  const u32 start = 0;\n  {filled}{part}{joined}{leave}  {finished}"),
            false => {
                let pieces = "  for (u32 start = 0; start < n; start += T * K * V) {\n    ";
                let second = format!("{pieces}{filled}    {finished}  }}\n");
                format!("  C v[K][V];\n{begin}{pieces}{filled}{part}  }}\n{joined}{leave}{second}")
            }
        }
    }
}

/// Number of elements from the pack in which a row starts to the one in which it ends.
fn reach(rows: &Rows, pack: u64, shifted: bool) -> u64 {
    rows.length + if shifted { pack - 1 } else { 0 }
}

/// Returns the inputs, broadcast to the first output.
fn views(spec: &Spec) -> Vec<Tensor> {
    let dims = spec.outputs[0].dims;
    let view = |input: &Tensor| Tensor { dims, strides: broadcast_strides(input, dims), ..*input };
    spec.inputs.iter().map(view).collect()
}

/// Returns the functions before and after the core. If the second one needs the core's operand, it reads the stored
/// value instead of computing it again.
fn functions(expression: &Expression) -> [KernelFunction; 2] {
    let (before, numbers) = expression.part(&expression.outputs()[..1]);
    let mut behind = Expression::default();
    let own = expression.outputs()[0];
    let mut places: Vec<u16> = Vec::with_capacity(expression.nodes().len());
    let full = "fusion limits the nodes";
    for (number, node) in expression.nodes().iter().enumerate() {
        let place = match *node {
            _ if number == usize::from(own) => behind.push(ExprNode::Input(BEFORE as u8)),
            ExprNode::Constant(constant) => behind.push_constant(expression.constants()[usize::from(constant)]),
            node => behind.push(node.with_operands(|operand| places[usize::from(operand)])),
        };
        places.push(place.expect(full));
    }
    let results: Vec<u16> = expression.outputs()[1..].iter().map(|&node| places[usize::from(node)]).collect();
    let (behind, behind_numbers) = behind.part(&results);
    [KernelFunction::of(&before, "before", "b", numbers), KernelFunction::of(&behind, "behind", "c", behind_numbers)]
}

/// Kernel text: the packs of a batch, the largest element of a row, and the sum of exponentials relative to it.
const SOFTMAX: &str = r#"
// Packs `first` to `first + count` of a thread.
#define EACH_OF(count) \
  _Pragma("unroll") for (u32 b = 0; b < count; b++) \
    if (u32 k = first + b; k < K)
#define LOWEST (-C(INFINITE))
struct Top { C value = LOWEST; };
struct Peak { C top = LOWEST, sum = 0; };
__device__ inline Top shuffled(Top a, int mask) { a.value = SHUFFLE_XOR(a.value, mask); return a; }
__device__ inline Peak shuffled(Peak a, int mask) {
  a.top = SHUFFLE_XOR(a.top, mask);
  a.sum = SHUFFLE_XOR(a.sum, mask);
  return a;
}
struct Larger { __device__ Top operator()(Top a, Top b) const { return b.value > a.value ? b : a; } };
struct Beside {
  __device__ Peak operator()(Peak a, Peak b) const {
    Peak all;
    all.top = b.top > a.top ? b.top : a.top;
    all.sum = (a.top > LOWEST ? a.sum * f_exp(a.top - all.top) : a.sum) + (b.top > LOWEST ? b.sum * f_exp(b.top - all.top) : b.sum);
    return all;
  }
};
"#;

/// Kernel text: the softmax of a row in registers.
const SUM: &str = r#"  Top largest;
  EACH_PACK(0) { EACH if (v[k][i] * scale > largest.value) largest.value = v[k][i] * scale; }
  C top = across(largest, Larger()).value, sum = 0;
  EACH_HELD { EACH v[k][i] = f_exp(v[k][i] * scale - top); }
  EACH_PACK(0) { EACH sum += v[k][i]; }
  C share = C(1) / across(sum, Sum());
"#;

/// Kernel text: the softmax of a row in registers if the arguments of the exponentials are needed again.
const SUM_AGAIN: &str = r#"  Top largest;
  EACH_PACK(0) { EACH if (v[k][i] * scale > largest.value) largest.value = v[k][i] * scale; }
  C top = across(largest, Larger()).value, sum = 0;
  EACH_HELD {
    C e[V];
    EACH e[i] = f_exp(v[k][i] * scale - top);
    if (INSIDE(0)) { EACH sum += e[i]; }
  }
  C share = C(1) / across(sum, Sum());
"#;

/// Kernel text: a piece of a longer row. The sum is rescaled whenever a larger element is found.
const PEAK: &str = r#"    C most = all.top;
    EACH_PACK(start) { EACH if (v[k][i] * scale > most) most = v[k][i] * scale; }
    if (most > all.top) { all.sum *= f_exp(all.top - most); all.top = most; }
    if (most > LOWEST) { EACH_PACK(start) { EACH all.sum += f_exp(v[k][i] * scale - most); } }
    else { EACH_PACK(start) { EACH all.sum += v[k][i] * scale == LOWEST ? C(0) : v[k][i] * scale; } }
"#;

const SHARE: &str = r#"  all = across(all, Beside());
  C top = all.top, share = C(1) / all.sum;
"#;

/// Kernel text: the norm of a row in registers, and of a piece of a longer row.
const ROW: &str = "  all = of_row(v, n, lane);\n";
const FACTOR: &str = "  C factor = f_rsqrt(all.squares / C(n) + eps);\n";
const PART: &str = "    all = join(all, part_of(v, start, n, lane));\n";
const JOIN: &str = "  all = across(all, Join());\n  C factor = f_rsqrt(all.squares / C(n) + eps);\n";

/// Kernel text: the sum of a row or of a piece of it.
const ADD: &str = "  EACH_PACK(start) { EACH all += v[k][i]; }\n";
const TOTAL: &str = "  C total = across(all, Sum());\n";
