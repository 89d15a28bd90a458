//! Divides a reduction among the threads of a kernel.

use super::super::layout::{halves, packs_of_rows};
use super::staged::StagedRows;
use super::*;
use crate::ops::kernels::kernel::BLOCK;
use crate::ops::kernels::occupancy::{
    BUSY_BLOCKS, DEFAULT_SHARED, LARGEST_BLOCK, MOVED_AT_ONCE, RESIDENT_BLOCKS, UNIT_THREADS, UNITS, WARP, share,
};

/// Number of threads that suffice to use all of the memory's bandwidth: half of the resident threads of the device.
const ENOUGH_THREADS: u64 = RESIDENT_BLOCKS / 2 * BLOCK as u64;

/// Maximum number of pieces that a thread loads before it uses them.
const UNDER_WAY: u64 = 8;
/// Minimum number of steps per thread for which a second launch saves time.
const MANY_STEPS: u64 = 16;

/// Maximum number of packs of results per thread. Where alignment permits only narrow packs, a warp with several reads
/// longer contiguous ranges: of 256 bytes instead of 128 from rows of odd length in `f32`, which takes 0.8 of the time
/// on an H100.
const HELD: u64 = 4;

/// Number of positions of a thread with several packs for each idle position of a pack that they may add.
const IDLE: u64 = 8;

/// Maximum number of loads in flight of a thread with several packs of results, so that a block reads few rows at a
/// time.
const LOADS: u64 = 16;

/// Number of registers of a thread for elements that are being loaded.
const REGISTERS: u64 = 64;

/// Number of blocks that are resident at the same time if a thread has 64 registers.
const ONE_WAVE: u64 = RESIDENT_BLOCKS / 2;

/// Number of resident threads per SM if a thread has 64 registers.
const RESIDENT_THREADS: u64 = UNIT_THREADS / 2;

/// Number of bytes in flight, of all threads together, above which the bandwidth does not rise.
const ENOUGH_UNDER_WAY: u64 = UNITS * (48 << 10);

/// Maximum number of bytes that one of few blocks of the largest size reads in a single launch; otherwise, there are
/// two launches.
const LARGE_BLOCK_BYTES: u64 = 64 << 10;

/// Minimum size in bytes of an input whose rows are joined, so that its packs have 16 bytes.
const LARGE_INPUT: u64 = 8 << 20;
/// Maximum number of partial results of each result if rows are joined.
const MAX_PARTIAL: u64 = 1024;

/// Minimum number of terms per thread if enough threads remain: with fewer, exchanging values costs more than it saves.
const TERMS_OF_A_THREAD: u64 = 16;

/// Minimum number of steps per thread and part.
const STEPS_OF_A_PART: u64 = 2;

/// Maximum number of steps per thread for which the number of threads of a result is reduced, if the other results
/// occupy all SMs.
const MAX_STEPS: u64 = 64;

/// Length in bytes of rows of terms below which threads read across rows, if there are many rows and results.
const LONG_ROW: u64 = 64;

/// Bytes of a thread's accumulators that leave few of 64 registers for loads and addresses.
const MANY_ACCUMULATORS: u64 = 96;

/// Instructions per piece that a thread reads.
const PER_PIECE: f64 = 7.0;
/// Further instructions per piece if a thread compares its number with that of all pieces, and for each further dimension in which its
/// place is.
const PER_CHECK: f64 = 6.0;
const PER_DIVISION: f64 = 25.0;
/// Instructions per thread, apart from those for pieces, and for each step of the tree that joins the values of threads. These and the ones
/// before are counts in code for sm_90a by NVRTC 13.0.
const PER_THREAD: f64 = 50.0;
const PER_STEP: f64 = 5.0;

/// The terms that neighbouring threads read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// Neighbouring terms of the same result.
    Terms,
    /// Terms of neighbouring results. A pack holds one term of each of several results.
    Results,
}

/// Returns the number of parts into which the terms of each of `blocks` blocks are divided if a thread takes this many
/// steps: 1 if the blocks fill the device, or if the steps are too few for a second launch. A part has at least `least`
/// steps.
pub fn parts(blocks: u64, steps: u64, least: u64) -> u64 {
    match blocks < RESIDENT_BLOCKS && steps >= MANY_STEPS {
        true => (2 * RESIDENT_BLOCKS).div_ceil(blocks).min(steps / least).max(1),
        false => 1,
    }
}

/// Number of blocks of this many threads that an SM runs at the same time, if a thread has between 64 and 128 registers, or 128 and 256 if
/// its accumulators of this many bytes need most of 64.
fn resident(blocks: u64, threads: u64, accumulators: u64) -> u64 {
    let few = if accumulators > MANY_ACCUMULATORS { 2 } else { 1 };
    let most = (RESIDENT_THREADS / threads / few).max(1);
    blocks.div_ceil(UNITS).clamp(most.div_ceil(2), most)
}

/// Results of the last launch: the only one, or the one that combines parts.
#[derive(Debug)]
pub struct Last {
    /// Geometry of the results: strides of the output and of each input.
    pub kept: Geometry,
    /// Number of results.
    pub results: u64,
    /// Number of partial results that are combined to a result; 1 if there is a single launch.
    pub parts: u64,
    /// Terms that belong to no part, which the last launch adds.
    pub left: LeftOver,
}

/// Terms of each result that the first launch leaves to the last one: rows of the input after the last joined row.
#[derive(Debug, Default)]
pub struct LeftOver {
    /// Index of the first of these terms.
    pub first: u64,
    /// Number of these terms; 0 if there are none.
    pub count: u64,
}

/// Returns the number of rows that are joined to one: the fewest whose packs have 16 bytes. `None` if packs of a single
/// row have at least 8 bytes, if the input is small or not contiguous, and for `argmax` and `argmin`, which return
/// positions of rows.
fn joined_rows(spec: &Spec, kept: &Geometry, reduced: &Geometry, function: Function) -> Option<u64> {
    let [x] = &*spec.inputs else { return None };
    let (&[terms], &[results]) = (&*reduced.dims, &*kept.dims) else { return None };
    let widest = 16 / x.dtype.size();
    let rows = widest >> results.trailing_zeros().min(widest.ilog2());
    let is_flat = *reduced.strides[1] == [results] && *kept.strides[1] == [1] && x.align >= 16;
    let is_place = matches!(function, Function::ArgMax | Function::ArgMin);
    // A second launch costs more than it saves if packs of a row have 8 bytes, or if there are few terms.
    let is_worth = rows > 2 && terms >= MANY_STEPS * rows && x.bytes() >= LARGE_INPUT;
    (is_flat && !is_place && is_worth).then_some(rows)
}

/// Division of a reduction among threads.
#[derive(Debug)]
pub struct Split {
    /// Geometry of the results: strides of the output and of each input.
    pub kept: Geometry,
    /// Geometry of the terms of a result.
    pub reduced: Geometry,
    /// Number of results of the first launch.
    pub results: u64,
    /// Number of terms per result.
    pub terms: u64,
    /// The terms that neighbouring threads read.
    pub along: Along,
    /// Number of elements that a thread computes together, a piece: terms, or terms of neighbouring results.
    pub pack: u64,
    /// True if the terms of a result are contiguous but unaligned, so that threads read aligned packs of 16 bytes and
    /// leave out elements of other results.
    pub ragged: bool,
    /// For each input, the number of contiguous elements that one instruction loads.
    pub widths: Vec<u64>,
    /// Number of neighbouring results that one instruction stores.
    pub written: u64,
    /// Stride within a pack of the output and of each input, in elements.
    pub steps: Vec<u64>,
    /// Number of threads of a block that share a result, or a pack of results.
    pub threads: u64,
    /// Number of results, or of packs of results, that the threads of a block compute at the same time.
    pub beside: u64,
    /// Number of packs of results per thread, `beside` packs apart.
    pub held: u64,
    /// Bytes of a thread's accumulators.
    pub accumulators: u64,
    /// Number of pieces that a thread loads before it uses them.
    pub under_way: u64,
    /// Number of parts into which the terms of a result are divided among blocks; a second launch combines their
    /// results.
    pub parts: u64,
    /// Results of the last launch.
    pub last: Last,
    /// Staging of short rows in shared memory; `None` if threads read rows directly. With it, no kernel has the division
    /// that the fields above describe.
    pub staged: Option<StagedRows>,
}

/// A step of the tree that combines rows of accumulators, as a part of an exchange of a block: a barrier and a load of shared memory take 29 of
/// the 105 ns of an exchange on an H100, whose other part are shuffles.
const TREE_STEP: f64 = 0.28;

impl Split {
    /// Returns the division for these operands and a kernel that computes `function` in the type `compute`.
    pub fn of(spec: &Spec, extent: &Extent, compute: DType, function: Function) -> Split {
        let [kept, reduced] = [false, true].map(|reduced| extent.walk(spec, reduced));
        if let Some(rows) = joined_rows(spec, &kept, &reduced, function) {
            let mut split = Split::of_joined(spec, rows, compute, function);
            let count = extent.terms() % rows;
            let left = LeftOver { first: extent.terms() - count, count };
            split.last = Last { kept, results: extent.results(), parts: split.parts * rows, left };
            return split;
        }
        let (results, terms) = (extent.results(), extent.terms());
        let row = reduced.dims.last().copied().unwrap_or(1);
        let widest = spec.inputs.iter().map(|input| input.dtype.size()).max().unwrap_or(1);
        // If results have many short rows of terms, threads read across rows.
        let across = row * widest < LONG_ROW && terms / row >= 8 && results >= 16;
        let along = match extent.reduces_innermost() && !across {
            true => Along::Terms,
            false => Along::Results,
        };
        let (inner, other) = if along == Along::Terms { (&reduced, &kept) } else { (&kept, &reduced) };
        let steps: Vec<u64> = inner.strides.iter().map(|strides| strides.last().copied().unwrap_or(0)).collect();
        let neighbours = |input: usize| steps[input + 1] == 1;
        // Whether every piece of this many elements is aligned to its size.
        let begins = |operand: usize, tensor: &Tensor, pack: u64| {
            let outer = &inner.strides[operand][..inner.dims.len().saturating_sub(1)];
            u64::from(tensor.align).is_multiple_of(pack * tensor.dtype.size())
                && outer.iter().chain(other.strides[operand].iter()).all(|stride| stride.is_multiple_of(pack))
        };
        let width = |input: usize, pack: u64| {
            let tensor = &spec.inputs[input];
            let fits = |piece: &u64| piece * tensor.dtype.size() <= 16 && begins(input + 1, tensor, *piece);
            if neighbours(input) { halves(pack).find(fits).unwrap_or(1) } else { 1 }
        };
        // The largest operand determines the direction.
        let largest = (0..spec.inputs.len())
            .filter(|&input| neighbours(input))
            .max_by_key(|&input| (spec.inputs[input].bytes(), std::cmp::Reverse(input)));
        let length = inner.dims.last().copied().unwrap_or(1);
        // The last pack of a row may be partial if all terms are one row; results are in whole packs.
        let whole = |pack: u64| length.is_multiple_of(pack) || (along == Along::Terms && reduced.dims.len() == 1);
        let most = |input: usize| {
            let most = 16 / spec.inputs[input].dtype.size();
            if compute == DType::F64 { most.min(4) } else { most.min(8) }
        };
        let pack = largest.map_or(1, |input| {
            let good = |pack: &u64| *pack <= length && whole(*pack) && width(input, *pack) == *pack;
            halves(most(input)).find(good).unwrap_or(1)
        });
        // Long unaligned rows are read in aligned packs, if the kernel's only input allows it.
        let suits = |input: usize| {
            pack < most(input)
                && most(input) * spec.inputs[input].dtype.size() == 16
                && terms >= 2 * most(input)
                && (0..spec.inputs.len()).all(|other| other == input || steps[other + 1] == 0)
        };
        let ragged = along == Along::Terms && reduced.dims.len() == 1 && largest.is_some_and(suits);
        let staged = largest
            .filter(|_| along == Along::Terms)
            .and_then(|input| StagedRows::of(spec, &kept, &reduced, input, pack));
        let pack = largest.filter(|_| ragged).map_or(pack, most);
        let widths: Vec<u64> = (0..spec.inputs.len()).map(|input| width(input, pack)).collect();

        let output = &spec.outputs[0];
        let fits = |piece: &u64| piece * output.dtype.size() <= 16 && begins(0, output, *piece);
        let written = match along == Along::Results && steps[0] == 1 {
            true => halves(pack).find(fits).unwrap_or(1),
            false => 1,
        };

        let (pieces, groups) = match along {
            Along::Terms => (packs_of_rows(terms, pack, ragged), results),
            Along::Results => (terms, results / pack),
        };
        let bytes = largest.map_or(1, |input| spec.inputs[input].dtype.size());
        let (threads, beside) = match along {
            Along::Terms => {
                let mut threads = pieces.div_ceil(4).next_power_of_two().min(u64::from(BLOCK));
                // If there are few results, each gets more threads. A single launch of larger blocks is preferred if
                // their threads can load everything at once.
                let reads = pieces.saturating_mul(spec.inputs.len() as u64);
                let most = if reads <= UNDER_WAY / 2 * LARGEST_BLOCK { LARGEST_BLOCK } else { u64::from(BLOCK) };
                let is_enough = |threads: u64| groups * threads >= ENOUGH_THREADS;
                while threads > WARP && terms < threads * TERMS_OF_A_THREAD && is_enough(threads / 2) {
                    threads /= 2;
                }
                while threads < most && 2 * threads < pieces && !is_enough(threads) {
                    threads *= 2;
                }
                (threads, (u64::from(BLOCK) / threads).max(1))
            }
            Along::Results => {
                // If the next term is nearer than the next row of results, the threads of a warp read several terms: because
                // a row is shorter than memory moves at once, or because each thread still has many steps.
                let is_nearer = |input: usize| {
                    let next = kept.strides[input + 1].iter().rev().nth(1);
                    let is_next =
                        next.is_some_and(|next| reduced.strides[input + 1].last().is_some_and(|term| term < next));
                    let has_many = pieces >= MANY_STEPS * u64::from(BLOCK) / WARP;
                    is_next && (length * spec.inputs[input].dtype.size() < MOVED_AT_ONCE || has_many)
                };
                let beside = if largest.is_some_and(is_nearer) { length.div_ceil(pack) } else { groups };
                let least = beside.next_power_of_two().min(WARP);
                let is_few = largest.is_some()
                    && groups.div_ceil(least) < BUSY_BLOCKS
                    && pieces * least * pack * bytes <= LARGE_BLOCK_BYTES;
                let shared = |block: u64| block * pack * function.accumulator_size(compute);
                let fits = |block: &u64| is_few && *block > u64::from(BLOCK) && shared(*block) <= DEFAULT_SHARED;
                let block = halves(LARGEST_BLOCK).find(fits).unwrap_or(u64::from(BLOCK));
                let mut threads = pieces.div_ceil(4).next_power_of_two().min(block / least);
                // If there are many results, each gets fewer threads: exchanging values costs more than it saves.
                let is_full = |threads: u64| groups * threads >= UNITS * UNIT_THREADS;
                while threads > 1 && is_full(threads / 2) && 2 * pieces <= MAX_STEPS * threads {
                    threads /= 2;
                }
                (threads, (u64::from(BLOCK).max(least * threads) / threads).min(groups))
            }
        };
        let steps_of_a_thread = pieces.div_ceil(threads);
        let blocks = |held: u64| groups.div_ceil(beside * held);
        let is_exponential =
            along == Along::Results && matches!(function, Function::LogSumExp | Function::LogSumExpAndSum);
        let is_large = along == Along::Results && threads * beside > u64::from(BLOCK);
        let inputs = spec.inputs.len() as u64;
        let ahead = |held: u64| {
            // Threads of the largest blocks have half as many registers, and exponentials of several terms need as many as these.
            let loads = if held > 1 {
                LOADS / held
            } else {
                REGISTERS / if is_large || is_exponential { 2 * pack } else { pack }
            };
            UNDER_WAY.min(loads / inputs).max(1)
        };
        let loads_enough =
            |blocks: u64, held: u64| blocks * threads * beside * ahead(held) * held * pack * bytes >= ENOUGH_UNDER_WAY;
        // Blocks that are all resident at the same time end at about the same time.
        let is_enough = |held: u64| {
            let (blocks, idle) = (blocks(held), blocks(held).next_multiple_of(UNITS) - blocks(held));
            let is_one_wave = blocks <= ONE_WAVE && (blocks >= BUSY_BLOCKS || idle <= blocks / IDLE);
            is_one_wave && loads_enough(blocks, held)
        };
        let parts = |held: u64| {
            if is_large || (along == Along::Results && is_enough(held)) {
                return 1;
            }
            let parts = self::parts(blocks(held), steps_of_a_thread, STEPS_OF_A_PART);
            let of_one_wave = ONE_WAVE / blocks(held);
            let is_one_wave =
                along == Along::Results && of_one_wave > 1 && loads_enough(blocks(held) * of_one_wave, held);
            if is_one_wave { parts.min(of_one_wave) } else { parts }
        };
        let held = match (along, largest) {
            (Along::Results, Some(input)) if !is_large => {
                // Several packs must cause no second launch, and leave many steps to each part and few threads idle.
                let fits = |held: &u64| {
                    let own = parts(*held);
                    let side_by_side = |held: u64| groups.next_multiple_of(beside * held);
                    let is_full = side_by_side(*held) - side_by_side(1) <= side_by_side(1) / IDLE;
                    is_full && (own == 1 || parts(1) > 1) && steps_of_a_thread / own >= MANY_STEPS
                };
                halves((most(input) / pack).min(HELD)).find(fits).unwrap_or(1)
            }
            _ => 1,
        };
        let parts = parts(held);
        let steps_of_a_part = pieces.div_ceil(threads * parts);
        // With 64 registers, a thread with eight results has room for half as many loads, as has one with several sums of each result.
        let results_of_a_thread = if along == Along::Results { pack * held } else { 1 };
        let accumulators = results_of_a_thread * function.accumulator_size(compute);
        let is_full =
            resident(blocks(held) * parts, threads * beside, accumulators) == RESIDENT_THREADS / (threads * beside);
        let has_many = held == 1 && (is_full || matches!(function, Function::Sums(_)));
        let ahead = match along == Along::Results && has_many {
            true => ahead(held).min(REGISTERS / (2 * pack) / inputs).max(1),
            false => ahead(held),
        };
        let under_way = steps_of_a_part.div_ceil(steps_of_a_part.div_ceil(ahead).max(1));
        let last = Last { kept: kept.clone(), results, parts, left: LeftOver::default() };
        Split {
            kept,
            reduced,
            results,
            terms,
            along,
            pack,
            ragged,
            widths,
            written,
            steps,
            threads,
            beside,
            held,
            accumulators,
            under_way,
            parts,
            last,
            staged,
        }
    }

    /// Returns the division for an input whose rows each consist of `rows` consecutive rows of this one.
    fn of_joined(spec: &Spec, rows: u64, compute: DType, function: Function) -> Split {
        let (x, y) = (spec.inputs[0], spec.outputs[0]);
        let length = rows * y.elements();
        let tensor = |tensor: Tensor, sizes: &[u64]| Tensor {
            space: tensor.space,
            align: tensor.align,
            ..Tensor::packed(tensor.dtype, sizes)
        };
        let x = tensor(x, &[x.elements() / length, length]);
        let spec = Spec { inputs: vec![x], outputs: vec![tensor(y, &[length])], ..spec.clone() };
        let split = Split::of(&spec, &Extent::along(x.dims, 0), compute, function);
        Split { parts: split.parts.min(MAX_PARTIAL / rows), ..split }
    }

    /// True if terms have several dimensions or a stride above 1, so that their offset has to be calculated.
    pub fn walks(&self) -> bool {
        self.reduced.dims.len() > 1 || (1..self.reduced.strides.len()).any(|operand| self.stride(operand) > 1)
    }

    /// Stride of the innermost dimension of the terms in the output or an input, in elements.
    pub fn stride(&self, operand: usize) -> u64 {
        self.reduced.strides[operand].last().copied().unwrap_or(0)
    }

    /// Number of pieces per result, or per pack of results. A thread loads one piece at a time.
    pub fn pieces(&self) -> u64 {
        if self.along == Along::Terms { packs_of_rows(self.terms, self.pack, self.ragged) } else { self.terms }
    }

    /// Number of results, or of packs of results.
    pub fn groups(&self) -> u64 {
        if self.along == Along::Terms { self.results } else { self.results / self.pack }
    }

    /// Number of pieces per part.
    pub fn span(&self) -> u64 {
        self.pieces().div_ceil(self.parts)
    }

    /// Number of threads per block.
    pub fn block(&self) -> u64 {
        self.threads * self.beside
    }

    /// Number of blocks of the first launch.
    pub fn blocks(&self) -> u64 {
        self.groups().div_ceil(self.beside * self.held) * self.parts
    }

    /// Number of blocks of the first launch that an SM runs at the same time. The compiler limits the registers of a
    /// thread so that this number of blocks fits. Without such a limit, it would delay loads to use fewer registers.
    pub fn resident(&self) -> u64 {
        resident(self.blocks(), self.block(), self.accumulators)
    }

    /// Returns the shape of the second launch: number of results that a block computes, of threads per result, and of
    /// blocks.
    pub fn second(&self) -> (u64, u64, u64) {
        let all = self.last.results.next_power_of_two();
        let threads = self.last.parts.next_power_of_two().min(u64::from(BLOCK) / all.min(8));
        let beside = (u64::from(BLOCK) / threads).min(all);
        (beside, threads, self.last.results.div_ceil(beside))
    }

    /// Number of exchanges by which this many threads of a block combine the accumulators of a result.
    fn exchanges(&self, threads: u64) -> f64 {
        match self.along {
            Along::Terms => f64::from(u32::from(threads > WARP)),
            Along::Results => TREE_STEP * f64::from(threads.ilog2()),
        }
    }

    /// Returns the cost of each launch of the reduction of an expression.
    pub fn launch_costs(&self, spec: &Spec, expression: &Expression, function: Function) -> Vec<Cost> {
        let elements = (self.results * self.terms) as f64;
        let (own, special) = match function {
            Function::Sum | Function::Mean | Function::Prod => (2.0, 0.0),
            Function::Sums(count) => (2.0 * f64::from(count), 0.0),
            Function::Max | Function::Min => (4.0, 0.0),
            Function::ArgMax | Function::ArgMin => (7.0, 0.0),
            // A pack of terms of one result has one maximum.
            Function::LogSumExp | Function::LogSumExpAndSum if self.along == Along::Terms => (9.0, 1.0),
            // Terms that a thread loads together have one maximum.
            Function::LogSumExp | Function::LogSumExpAndSum => {
                let rounds = 1.0 / self.under_way.max(1) as f64;
                (6.0 + 12.0 * rounds, 1.0 + rounds)
            }
        };
        let sums = if let Function::Sums(count) = function { f64::from(count) } else { 1.0 };
        if let Some(rows) = &self.staged {
            return vec![rows.cost(spec, expression, [own, special], sums)];
        }
        let partials = Traffic::of(Space::Device, self.last.results * self.last.parts * 4 * sums as u64);
        let is_whole = self.last.parts == 1;
        let checks = if self.span().is_multiple_of(self.threads * self.under_way.max(1)) { 0.0 } else { PER_CHECK };
        let [kept, reduced] = [&self.kept, &self.reduced].map(|one| one.dims.len().saturating_sub(1) as f64);
        let per_piece = PER_PIECE + checks + PER_DIVISION * reduced;
        let per_thread = PER_THREAD + 2.0 * PER_DIVISION * kept;
        let first = Cost {
            instructions: (f64::from(expression.instructions()) + own) * elements
                + per_piece * elements / self.pack as f64
                + (per_thread + (PER_STEP + own) * f64::from(self.threads.ilog2()))
                    * (self.blocks() * self.block()) as f64,
            special: (f64::from(expression.special()) + special) * elements,
            written: if is_whole { Spec::bytes_of(&spec.outputs) } else { partials },
            blocks: self.blocks(),
            share: share(self.block()),
            waits: (self.span().div_ceil(self.threads).div_ceil(self.under_way.max(1)).max(1) - 1) as f64,
            exchanges: self.exchanges(self.threads),
            ..spec.streaming_cost((f64::from(expression.flops()) + sums) * elements, 1)
        };
        if is_whole {
            return vec![first];
        }
        let (beside, threads, blocks) = self.second();
        let second = Cost {
            instructions: own * (self.last.results * self.last.parts) as f64
                + (per_thread + (PER_STEP + own) * f64::from(threads.ilog2())) * (blocks * beside * threads) as f64,
            read: partials,
            written: Spec::bytes_of(&spec.outputs),
            blocks,
            share: share(beside * threads),
            exchanges: TREE_STEP * f64::from(threads.ilog2()),
            ..Cost::default()
        };
        vec![first, second]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maxima of columns fill the device with 528 blocks, and those of fewer rows with 378, so that an SM has three blocks.
    #[test]
    fn threads_of_a_full_device_load_fewer_packs_of_eight() {
        let split = |dtype, dims: &[u64], axis: usize| {
            let kept: Vec<u64> = (0..dims.len()).filter(|&other| other != axis).map(|other| dims[other]).collect();
            let (x, y) = (Tensor::packed(dtype, dims), Tensor::packed(dtype, &kept));
            let spec = Spec::new(&Reduce(Function::Max), Attrs::default(), vec![x], vec![y]);
            let split = Split::of(&spec, &Extent::along(x.dims, axis), DType::F32, Function::Max);
            (split.pack, split.blocks(), split.resident(), split.under_way)
        };
        assert_eq!(split(DType::BF16, &[11, 8, 25_920, 16], 2), (8, 528, 4, 4));
        assert_eq!(split(DType::F16, &[568, 48_296], 0), (8, 378, 3, 8));
        assert_eq!(split(DType::F32, &[300, 400, 640], 1), (4, 1500, 4, 8));
    }
}
