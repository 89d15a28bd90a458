//! Sums along rows or channels, each of which may depend on those before it, and functions of an element and of the sums, in one pass.
//! Only gradients create these operations; no file can name them.

use std::ops::Range;

use super::kernel::{ChainPartition, KernelFunction, PACK_BYTES};
use super::*;
use crate::ops::expression::ball::{Ball, Precision};
use crate::ops::kernels::occupancy::{DEFAULT_SHARED, LINE, PER_LINE, SECTOR, UNITS, WARP, lines_of};
use crate::ops::kernels::rows::{HELD, common_pack};
use crate::ops::layout::halves;

/// Sums along rows. The first inputs of the spec's expression are the sums, the others are the spec's inputs. Its first outputs are
/// the terms of the sums, the others are the spec's outputs. Outputs with one value for each row follow those of the rows' shape.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RowSums {
    /// A row is the last dimension.
    Rows,
    /// A row is a channel of `[samples, channels, elements]`, over all samples.
    Channels,
    /// A row is a group of `[samples, groups, channels, elements]`. An output with an element for each channel is the sum of its terms over
    /// the channel.
    Groups,
}

/// Size of a register in bytes.
const REGISTER: u64 = 4;

/// Bytes of the sectors that an SM may access where channels have parts of sectors. It moves 64 bytes a cycle, so that these take about
/// 2 µs, less than the further launches of separate sums.
const SECTOR_BYTES: u64 = 256 << 10;

/// Returns the number of sums.
fn count(spec: &Spec) -> usize {
    spec.expression.as_deref().map_or(0, |expression| expression.outputs().len() - spec.outputs.len())
}

/// Returns groups of consecutive sums that do not depend on each other, in order.
fn levels(expression: &Expression, sums: usize) -> Vec<Range<usize>> {
    let mut levels: Vec<Range<usize>> = Vec::new();
    for sum in 0..sums {
        let read = expression.part(&expression.outputs()[sum..=sum]).1;
        match levels.last_mut() {
            Some(level) if !read.iter().any(|input| level.contains(input)) => level.end = sum + 1,
            _ => levels.push(sum..sum + 1),
        }
    }
    levels
}

/// Returns the number of cache lines that warps access for channels of several samples, beyond those of contiguous elements.
fn lines(spec: &Spec) -> f64 {
    let dims = spec.outputs[0].dims;
    let of_tensor = |tensor: &Tensor| {
        let size = tensor.dtype.size();
        lines_of((dims[2] - 1) * size) - (dims[2] * size) as f64 / LINE as f64
    };
    let segments = if dims[0] > 1 { dims[0] * dims[1] } else { 0 };
    segments as f64 * spec.inputs.iter().chain(&spec.outputs).filter(|one| one.dims == dims).map(of_tensor).sum::<f64>()
}

impl RowSums {
    /// True if a block or a cluster for each row keeps the device busy, and if the elements of a row are close together. Otherwise, separate
    /// reductions divide the rows better.
    pub fn suits(&self, spec: &Spec) -> bool {
        let partition = self.partition(spec);
        match self {
            RowSums::Rows => return partition.keeps_busy(),
            RowSums::Groups => {
                let loaded: Vec<usize> =
                    (0..spec.inputs.len()).filter(|&input| !partition.is_scalar(spec, input)).collect();
                return partition.is_held(spec, &loaded) && self.shared(spec, &partition) <= DEFAULT_SHARED;
            }
            RowSums::Channels => {}
        }
        let dims = spec.outputs[0].dims;
        let whole = |tensor: &&Tensor| tensor.dims == dims;
        // A sector for each run of neighbouring elements.
        let of_runs: u64 = spec
            .inputs
            .iter()
            .chain(&spec.outputs)
            .filter(whole)
            .map(|tensor| if dims[2] * tensor.dtype.size() < SECTOR { dims[0] * SECTOR } else { 0 })
            .sum();
        let at_once = UNITS * partition.sharing.block_rows();
        let rows = partition.rows.count.div_ceil(at_once) * partition.sharing.block_rows();
        partition.sharing.whole && rows * of_runs <= SECTOR_BYTES
    }

    /// Returns the division of rows whose threads hold the elements of all inputs, as far as registers suffice.
    fn partition(&self, spec: &Spec) -> ChainPartition {
        let dims = spec.outputs[0].dims;
        let is_row = |input: &&Tensor| match self {
            RowSums::Rows => input.dims.last() == dims.last(),
            RowSums::Channels | RowSums::Groups => input.dims == dims,
        };
        let shifted = if *self == RowSums::Rows { ChainPartition::shifted_pack(spec) } else { None };
        // A pack of one element takes a register.
        let is_single = |input: &Tensor| match shifted {
            Some(_) => input.dims != dims,
            None => *self != RowSums::Channels && common_pack(&[input]) == 1,
        };
        let bytes_of = |input: &Tensor| input.dtype.size().max(if is_single(input) { REGISTER } else { 0 });
        let bytes: u64 = spec.inputs.iter().filter(is_row).map(bytes_of).sum();
        let most = if compute_type(spec) == DType::F64 { 16 } else { 32 };
        // Packs divide powers of two, and a thread holds two at least.
        let size = spec.outputs[0].dtype.size();
        let held = 1 << (HELD * REGISTER / bytes.max(1)).max(1).ilog2();
        let most = held.min(most).max(2 * PACK_BYTES / size);
        let partition = match self {
            RowSums::Rows => ChainPartition::holding(spec, most, shifted),
            RowSums::Channels => return ChainPartition::in_parts(spec, [0, 2], most),
            RowSums::Groups => ChainPartition::in_parts(spec, [2, 3], most),
        };
        partition.in_clusters(most, self.exchanged(spec), size)
    }

    /// The dimensions along which a row of this many dimensions extends.
    fn axes(&self, rank: usize) -> Vec<usize> {
        match self {
            RowSums::Rows => vec![rank - 1],
            RowSums::Channels => vec![0, 2],
            RowSums::Groups => vec![2, 3],
        }
    }

    /// Returns the number of the row of an element. `dims` are those of all rows.
    fn row(&self, dims: Dims, index: usize) -> usize {
        let length = dims.last().map_or(1, |&length| length as usize);
        match self {
            RowSums::Rows => index / length,
            RowSums::Channels => index / length % dims[1] as usize,
            RowSums::Groups => index / (length * dims[2] as usize),
        }
    }

    /// Returns the outputs that are sums over channels.
    fn of_channels(&self, spec: &Spec) -> Range<usize> {
        let dims = spec.outputs[0].dims;
        let is_sum = |output: &&Tensor| *self == RowSums::Groups && output.dims[2..] == [dims[2], 1];
        let rows = spec.outputs.iter().filter(|output| output.dims == dims).count();
        rows..rows + spec.outputs.iter().filter(is_sum).count()
    }

    /// Returns the number of values of a row that the blocks of a cluster exchange.
    fn exchanged(&self, spec: &Spec) -> u64 {
        let each =
            self.of_channels(spec).len() as u64 * if *self == RowSums::Groups { spec.outputs[0].dims[2] } else { 0 };
        count(spec) as u64 + each
    }

    /// Returns the bytes of shared memory for the sums of packs, which are added up to sums over channels, and for sums across warps.
    fn shared(&self, spec: &Spec, partition: &ChainPartition) -> u64 {
        let OverChannel { channels, chunks, .. } = OverChannel::of(spec, partition);
        let of_row = partition.sharing.threads * partition.sharing.packs + channels * chunks;
        let sums = self.of_channels(spec).len() as u64 * partition.sharing.block_rows() * of_row;
        (sums + WARP) * compute_type(spec).size()
    }
}

impl Operation for RowSums {
    fn signature(&self) -> &'static Signature {
        const fn of(name: &'static str, summary: &'static str) -> Signature {
            let (inputs, outputs) = (&[Input::Expressions], &OUTPUTS);
            Signature { name, summary, category: Category::RowWise, inputs, outputs, options: &[] }
        }
        match self {
            RowSums::Rows => {
                const { &of("row_sums", "sums of rows, and functions of an element and of the sums of its row") }
            }
            RowSums::Channels => {
                const { &of("channel_sums", "sums of channels, and functions of an element and of the sums of its channel") }
            }
            RowSums::Groups => {
                const {
                    &of(
                        "group_sums",
                        "sums of groups and of their channels, and functions of an element and of the sums of its group",
                    )
                }
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        Ok(outputs_of_rows(call)?.iter().map(|output| (output.dtype, output.dims)).collect())
    }

    fn outputs(&self, _: &Attrs, _: usize, given: usize) -> usize {
        given.clamp(1, OUTPUTS.len())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let (elements, expression) = (spec.outputs[0].elements() as f64, spec.expression.as_deref());
        let partition = self.partition(spec);
        let (parts, sums) =
            ((partition.rows.count * partition.cluster) as f64, (count(spec) + self.of_channels(spec).len()) as f64);
        let each = |count: fn(&Expression) -> u32| expression.map_or(0.0, |one| f64::from(count(one)) * elements);
        let mut cost = partition.cost(spec, sums * elements + each(Expression::flops));
        let of_row = row_instructions(partition.sharing.threads);
        // Accesses, and the instructions for their places, do not wait for each other.
        cost.independent = partition.access_instructions(spec);
        cost.instructions =
            each(Expression::instructions) + sums * (PER_ELEMENT * elements + of_row * parts) + cost.independent;
        cost.special = each(Expression::special);
        let levels = expression.map_or(0, |one| levels(one, count(spec)).len()) as f64;
        cost.exchanges = if partition.sharing.threads > WARP { levels } else { 0.0 };
        cost.cluster_handoffs = if partition.cluster > 1 { levels } else { 0.0 };
        if *self == RowSums::Channels {
            cost.conflicts = PER_LINE * lines(spec);
        }
        cost
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let Some(expression) = spec.expression.as_deref() else { return Vec::new() };
        let (dims, sums, compute) = (spec.outputs[0].dims, count(spec), compute_type(spec));
        let (elements, precision) = (outputs[0].len(), Precision::of(compute));
        let length: u64 = self.axes(dims.len()).iter().map(|&axis| dims[axis]).product();
        let rows = elements / (length as usize).max(1);
        // The sums of each row that are known so far.
        let mut totals = vec![Ball::exact(0.0); rows * sums];
        let mut balls = Vec::new();
        let group = || Group { terms: Vec::new(), radii: Vec::new(), compute };
        for level in levels(expression, sums) {
            let mut groups: Vec<Group> = (0..rows * level.len()).map(|_| group()).collect();
            visit(dims, &spec.inputs, inputs, elements, |index, values| {
                let row = self.row(dims, index);
                let known = &totals[row * sums..][..sums];
                expression.propagate(precision, |input| input_of(input, known, values), &mut balls);
                for (sum, group) in level.clone().zip(&mut groups[row * level.len()..]) {
                    group.push(balls[usize::from(expression.outputs()[sum])]);
                }
            });
            for (place, group) in groups.iter().enumerate() {
                let value = Function::Sum.of(&group.terms);
                let sum = place / level.len() * sums + level.start + place % level.len();
                totals[sum] = Ball { value, radius: group.radius(Function::Sum, value) };
            }
        }
        let mut allowed: Vec<Vec<f64>> = outputs.iter().map(|output| vec![0.0; output.len()]).collect();
        let is_row: Vec<bool> = spec.outputs.iter().map(|output| output.dims == dims).collect();
        let (of_channels, each) = (self.of_channels(spec), *dims.last().expect("rows have a dimension") as usize);
        let mut channels: Vec<Vec<Group>> =
            of_channels.clone().map(|_| (0..elements / each).map(|_| group()).collect()).collect();
        visit(dims, &spec.inputs, inputs, elements, |index, values| {
            let row = self.row(dims, index);
            let known = &totals[row * sums..][..sums];
            expression.propagate(precision, |input| input_of(input, known, values), &mut balls);
            for (output, &node) in expression.outputs()[sums..].iter().enumerate() {
                let (ball, place) = (balls[usize::from(node)], if is_row[output] { index } else { row });
                match output.checked_sub(of_channels.start).and_then(|sum| channels.get_mut(sum)) {
                    Some(groups) => groups[index / each].push(ball),
                    None => (outputs[output][place], allowed[output][place]) = (ball.value, ball.radius),
                }
            }
        });
        for (output, groups) in of_channels.zip(&channels) {
            for (channel, group) in groups.iter().enumerate() {
                let value = Function::Sum.of(&group.terms);
                (outputs[output][channel], allowed[output][channel]) = (value, group.radius(Function::Sum, value));
            }
        }
        allowed.into_iter().map(Tolerance::Within).collect()
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        check::broadcast_rows(spec).filter(|_| spec.outputs[0].dims.len() > 1 && *self != RowSums::Channels)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let expression = spec.expression.as_deref().expect("gradients make sums with an expression");
        SumKernel::of(self, spec, expression).launches(self.name(), spec)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let (sums, axes) = (count(rule.spec), self.axes(rule.spec.outputs[0].dims.len()));
        backward::row_sums(rule, sums, &axes, self.of_channels(rule.spec))
    }
}

/// The value of an input of the expression: a sum, or an element of a tensor.
fn input_of(input: usize, sums: &[Ball], values: &[f64]) -> Ball {
    match sums.get(input) {
        Some(sum) => *sum,
        None => Ball::exact(values[input - sums.len()]),
    }
}

/// Calls `work` with the index of each element and the corresponding elements of all tensors.
fn visit(dims: Dims, tensors: &[Tensor], inputs: &[&[f64]], count: usize, mut work: impl FnMut(usize, &[f64])) {
    let mut elements = Vec::with_capacity(inputs.len());
    visit_groups(dims, tensors, inputs, count, |places, inputs| {
        for (place, index) in places.enumerate() {
            elements.clear();
            elements.extend(inputs.iter().map(|input| input[place]));
            work(index, &elements);
        }
    });
}

/// Number of packs of a channel that a thread adds up.
const PACKS_OF_A_THREAD: u64 = 8;

/// Division of the sums of packs among threads that add them up to sums over channels.
struct OverChannel {
    /// Number of channels of a row.
    channels: u64,
    /// Number of packs of a channel.
    packs: u64,
    /// Number of neighbouring threads of a chunk of a channel.
    lanes: u64,
    /// Number of chunks of a channel.
    chunks: u64,
}

impl OverChannel {
    fn of(spec: &Spec, partition: &ChainPartition) -> OverChannel {
        let dims = spec.outputs[0].dims;
        let (channels, packs) = (dims[2], dims[3] / partition.sharing.pack);
        let lanes = halves(WARP).find(|lanes| *lanes <= packs.min(partition.sharing.threads)).unwrap_or(1);
        OverChannel { channels, packs, lanes, chunks: packs.div_ceil(lanes * PACKS_OF_A_THREAD) }
    }
}

/// Text that loads the inputs of functions, followed by the given text for each batch of packs, which receives the size of the batch.
type Batches<'a> = dyn Fn(Range<usize>, &dyn Fn(&str) -> String) -> String + 'a;

/// The kernel of sums along rows. The threads of a row hold its elements in registers. If these do not suffice, each level of sums reads
/// the row again. Blocks that share a row write the sums of their parts, and wait at a barrier of their cluster for those of the others.
struct SumKernel {
    partition: ChainPartition,
    levels: Vec<Range<usize>>,
    /// A function for the term of each sum, one for the outputs of the rows' shape, and one for each other output.
    functions: Vec<KernelFunction>,
    sums: usize,
    /// Number of outputs of the rows' shape.
    rows: usize,
    /// Outputs that are sums over channels.
    of_channels: Range<usize>,
    /// Number of values of a row that blocks exchange.
    exchanged: u64,
}

impl SumKernel {
    fn of(operation: &RowSums, spec: &Spec, expression: &Expression) -> SumKernel {
        let sums = count(spec);
        let rows = spec.outputs.iter().filter(|output| output.dims == spec.outputs[0].dims).count();
        let outputs = expression.outputs();
        let parts = (0..sums).map(|sum| (&outputs[sum..=sum], format!("term{sum}"), format!("b{sum}_")));
        let parts = parts.chain([(&outputs[sums..sums + rows], "element_of".to_owned(), "c".to_owned())]);
        let more = (sums + rows..outputs.len())
            .map(|place| (&outputs[place..=place], format!("row{place}"), format!("r{place}_")));
        let functions = parts.chain(more).map(|(nodes, name, prefix)| {
            let (part, inputs) = expression.part(nodes);
            KernelFunction::of(&part, &name, &prefix, inputs)
        });
        let functions = functions.collect();
        let (partition, levels) = (operation.partition(spec), levels(expression, sums));
        let (of_channels, exchanged) = (operation.of_channels(spec), operation.exchanged(spec));
        SumKernel { partition, levels, functions, sums, rows, of_channels, exchanged }
    }

    /// Returns the inputs that a thread loads for functions: those with an element or a value per column.
    fn loaded(&self, spec: &Spec, functions: Range<usize>) -> Vec<usize> {
        let read = self.functions[functions].iter().flat_map(|function| &function.inputs);
        let mut inputs: Vec<usize> = read.filter_map(|&number| number.checked_sub(self.sums)).collect();
        inputs.retain(|&input| !self.partition.is_scalar(spec, input));
        inputs.sort_unstable();
        inputs.dedup();
        inputs
    }

    /// Returns the call of a function for element `i` of pack `b`.
    fn call(&self, spec: &Spec, function: usize, targets: &[String]) -> String {
        let argument = |number: usize| match number.checked_sub(self.sums) {
            None => format!("t{number}"),
            Some(input) if self.partition.is_scalar(spec, input) => format!("s{input}"),
            Some(input) if self.partition.is_of_part(spec, input) => format!("load<C>(p{input}[b])"),
            Some(input) => format!("element(p{input}[b], i)"),
        };
        self.functions[function].call(argument, targets)
    }

    /// Returns the kernel. If blocks share a row, devices without clusters have a kernel for each level of sums and one for the results.
    fn launches(&self, name: &str, spec: &Spec) -> Vec<Launch> {
        let (partition, sums, stages) = (&self.partition, self.sums, self.levels.len());
        let all = self.loaded(spec, 0..self.functions.len());
        let is_held = partition.is_held(spec, &all);
        let begin = partition.begin();
        let mut before: String = (0..sums).map(|sum| format!("  C t{sum} = 0;\n")).collect();
        if is_held {
            before += &format!("  const u32 start = {begin}, first = 0;\n  {}\n", partition.loads(spec, &all, "K"));
        }
        let pieces = |functions: Range<usize>, work: &dyn Fn(&str) -> String| match is_held {
            true => format!("  {}", work("K")),
            false => {
                let batches = partition.in_batches(spec, &self.loaded(spec, functions), work);
                let step = partition.cluster;
                format!("  for (u32 start = {begin}; start < n; start += {step} * T * K * V) {{\n    {batches}  }}\n")
            }
        };
        let kernel = |name: &str, work: &str| partition.kernel(name, spec, (None, false), &self.functions, work);
        let add = |level: &Range<usize>| self.add(spec, level, &pieces);
        let results = self.results(spec, &pieces);
        if partition.cluster == 1 {
            let work = self.levels.iter().map(add).collect::<String>() + &self.add_channels(spec, &pieces);
            return vec![Launch::Kernel(kernel(name, &(before + &work + "  if (!live) return;\n" + &results)))];
        }
        let stage = |stage: usize| match self.levels.get(stage) {
            Some(level) if stage + 1 == stages => add(level) + &self.publish(level) + &self.add_channels(spec, &pieces),
            Some(level) => add(level) + &self.publish(level),
            None => results.clone(),
        };
        let join = |level: &Range<usize>| self.join(level);
        let mut together = before.clone() + &stage(0) + "#if CLUSTER > 1\n";
        for (place, level) in self.levels.iter().enumerate() {
            together += &("  cluster_barrier();\n".to_owned() + &join(level) + &stage(place + 1));
        }
        let mut launches = vec![Launch::Kernel(kernel(name, &(together + "#endif\n")))];
        launches.extend((1..=stages).map(|place| {
            let joined: String = self.levels[..place].iter().map(join).collect();
            let one = kernel(&format!("{name}_{place}"), &(before.clone() + &joined + &stage(place)));
            Launch::Kernel(Kernel { without_clusters: true, ..one })
        }));
        launches
    }

    /// Returns text that adds the terms of a level's sums. `pieces` loads the inputs of functions, piece by piece.
    fn add(&self, spec: &Spec, level: &Range<usize>, pieces: &Batches) -> String {
        let add = |count: &str| {
            let terms: String = level.clone().map(|sum| format!("t{sum} += {}; ", self.call(spec, sum, &[]))).collect();
            format!("EACH_OF({count}) if (INSIDE(start)) {{ EACH_LIVE({terms}) }}\n")
        };
        let across = level.clone().map(|sum| format!("  t{sum} = across(t{sum}, Sum());\n"));
        pieces(level.clone(), &add) + &across.collect::<String>()
    }

    /// Returns text that writes a level's sums of a block's part of a row.
    fn publish(&self, level: &Range<usize>) -> String {
        let each = level.clone().map(|sum| format!("totals[(u64)blockIdx.x * {} + {sum}] = t{sum}; ", self.exchanged));
        format!("  if (lane == 0) {{ {}}}\n", each.collect::<String>())
    }

    /// Returns text that joins a level's sums of all parts of a row.
    fn join(&self, level: &Range<usize>) -> String {
        let each =
            level.clone().map(|sum| format!("  t{sum} = 0;\n  {}", self.total(&format!("t{sum}"), &sum.to_string())));
        each.collect()
    }

    /// Returns text that adds value `place` of all parts of a row to `target`.
    fn total(&self, target: &str, place: &str) -> String {
        format!(
            "_Pragma(\"unroll\") for (u32 other = 0; other < CLUSTER_BLOCKS; other++) \
             {target} += totals[(row * CLUSTER_BLOCKS + other) * {} + {place}];\n",
            self.exchanged
        )
    }

    /// Returns text that sums terms over channels, of which a pack has elements of one. A block that shares its row publishes the sums of
    /// its part. The terms depend on no sum of the last level.
    fn add_channels(&self, spec: &Spec, pieces: &Batches) -> String {
        let (partition, outputs) = (&self.partition, self.of_channels.clone());
        if outputs.is_empty() {
            return String::new();
        }
        let each = |text: &dyn Fn(usize, usize) -> String| {
            outputs.clone().enumerate().map(|(place, output)| text(place, output)).collect::<String>()
        };
        let functions = self.sums + 1..self.sums + 1 + outputs.len();
        let declared = each(&|place, _| format!("C u{place} = 0; "));
        let terms = each(&|place, _| format!("u{place} += {}; ", self.call(spec, functions.start + place, &[])));
        let kept = each(&|place, _| format!("taken[{place}][threadIdx.x / T][k * T + lane] = u{place}; "));
        let of_packs = pieces(functions.clone(), &|count| {
            format!("EACH_OF({count}) if (INSIDE(start)) {{ {declared}EACH {{ {terms}}} {kept}}}\n")
        });
        let OverChannel { channels, packs, lanes, chunks } = OverChannel::of(spec, partition);
        let taken = each(&|place, _| format!("u{place} += taken[{place}][threadIdx.x / T][e]; "));
        let exchanged = each(&|place, _| format!("u{place} += SHUFFLE_XOR(u{place}, mask); "));
        let stored = each(&|place, output| match partition.cluster {
            1 => self.store_channel(spec, output, &format!("u{place}")),
            _ => {
                let first = self.sums as u64 + place as u64 * channels;
                format!("totals[(u64)blockIdx.x * {} + {first} + own] = u{place}; ", self.exchanged)
            }
        });
        let kept_chunk = each(&|place, _| format!("chunk[{place}][threadIdx.x / T][own] = u{place}; "));
        let joined = each(&|place, _| format!("u{place} += chunk[{place}][threadIdx.x / T][own * {chunks} + e]; "));
        let (count, part) = (outputs.len(), if partition.cluster > 1 { "part" } else { "0" });
        let (kept_chunk, join) = match chunks {
            1 => (format!("if (live) {{ {stored}}}"), String::new()),
            _ => (
                kept_chunk,
                format!(
                    r#"  __syncthreads();
  for (u32 own = lane; live && own < {channels}; own += T) {{
    {declared}
#pragma unroll 4
    for (u32 e = 0; e < {chunks}; e++) {{ {joined}}}
    {stored}
  }}
"#
                ),
            ),
        };
        format!(
            r#"  __shared__ C taken[{count}][BLOCK / T][K * T], chunk[{count}][BLOCK / T][{all}];
  {of_packs}  __syncthreads();
  for (u32 begin = 0; begin < {all}; begin += T / {lanes}) {{
    const u32 own = begin + lane / {lanes};
    const i32 low = (i32)(own / {chunks} * {packs} - {part} * (K * T)), end = low + {packs}, high = end < (i32)(K * T) ? end : (i32)(K * T);
    i32 e = (low > 0 ? low : 0) + own % {chunks} * {lanes} + lane % {lanes};
    {declared}
    for (; own < {all} && e < high; e += {lanes} * {chunks}) {{ {taken}}}
#pragma unroll
    for (int mask = 1; mask < {lanes}; mask *= 2) {{ {exchanged}}}
    if (own < {all} && lane % {lanes} == 0) {{ {kept_chunk}}}
  }}
{join}"#,
            all = channels * chunks,
        )
    }

    /// Returns text that stores the sum over channel `own` in an output.
    fn store_channel(&self, spec: &Spec, output: usize, value: &str) -> String {
        format!("store<C>(a{}[own * apart{output}], {value}); ", spec.inputs.len() + output)
    }

    /// Returns text that writes the outputs of a row whose sums are known.
    fn results(&self, spec: &Spec, pieces: &Batches) -> String {
        let (partition, sums, rows, inputs) = (&self.partition, self.sums, self.rows, spec.inputs.len());
        let targets: Vec<String> = (0..rows).map(|output| format!("o{output}[i]")).collect();
        let assigned = match &*targets {
            [only] => format!("{only} = {}", self.call(spec, sums, &[])),
            _ => self.call(spec, sums, &targets),
        };
        let declared: String = (0..rows).map(|output| format!("C o{output}[V]; ")).collect();
        let write =
            |output: usize| format!("write_row({}, lead, n, o{output}); ", partition.pack(output, inputs + output));
        let writes: String = (0..rows).map(write).collect();
        let finish = |count: &str| {
            format!("EACH_OF({count}) {{ {declared}EACH {assigned}; if (INSIDE(start)) {{ {writes}}} }}\n")
        };
        let channels = spec.outputs[0].dims.iter().rev().nth(1).copied().unwrap_or(1);
        let of_channels = self.of_channels.clone().enumerate().filter(|_| partition.cluster > 1).map(|(place, output)| {
            let total = self.total("u", &format!("{} + own", sums as u64 + place as u64 * channels));
            let stored = self.store_channel(spec, output, "u");
            format!(
                "  for (u32 own = part * T + lane; own < {channels}; own += CLUSTER_BLOCKS * T) {{\n    C u = 0;\n    {total}    {stored}\n  }}\n"
            )
        });
        let of_row = (rows..spec.outputs.len()).enumerate().filter(|(_, output)| !self.of_channels.contains(output));
        let of_row = of_row.map(|(place, output)| {
            let value = self.call(spec, sums + 1 + place, &[]);
            let writer = if partition.cluster > 1 { "lane == 0 && part == 0" } else { "lane == 0" };
            format!("  if ({writer}) store<C>(*a{}, {value});\n", inputs + output)
        });
        of_channels.chain(of_row).collect::<String>() + &pieces(sums..sums + 1, &finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::expression::formula::formula;

    #[test]
    fn sums_that_depend_on_each_other_are_apart() {
        // The sums of x, of (x - sum)², and of x · y; then x · all of them.
        let expression = formula(|[a, b, c, x, y]| [x, (x - a).square(), x * y, x * a * b * c]);
        assert_eq!(levels(&expression, 3), [0..1, 1..3]);
    }
}
