//! Transfers of rows whose number is known only at run time, such as tokens sent to experts. A tensor counts the rows
//! that go from each rank to each other rank.
//!
//! Every rank has the same matrix of counts, for example from an `all_gather`. It has one row for each sender, whose
//! columns are divided equally among the receivers. A sender's rows are ordered by column; received rows are ordered by
//! sender.

use crate::ops::kernels::kernel::{bounds, c_type, launch, param, u32_param, u64_param};
use crate::ops::launch::RowCounts;
use crate::ops::*;

/// The option that sends rows back to their senders, by the same counts.
pub const BACK: OptionSpec =
    OptionSpec::bool("back", false, "rows go back to the ranks that they came from by the same counts; needs `counts`");

/// Description of the implementation, for tables.
pub const IMPLEMENTATION: &str = "a kernel reads the counts on the device, and writes the rows to the other rank";

/// Threads per block of the kernel that sends rows.
const THREADS: u32 = 256;

/// Maximum number of blocks of that kernel: enough to saturate a link between devices.
const MAX_BLOCKS: u64 = 64;

/// Number of packs that a thread loads before it stores the first.
const UNROLL: u64 = 4;

/// The rows that one rank sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRows {
    /// First row in the sender's tensor.
    pub from: u64,
    /// First row in the receiver's tensor.
    pub to: u64,
    /// Number of rows.
    pub rows: u64,
}

impl RowCounts {
    /// Returns the row counts of an operation; `None` if no tensor counts its rows.
    pub fn of(spec: &Spec) -> Option<RowCounts> {
        let counts = spec.inputs.get(1)?;
        let (source, target) = (&spec.inputs[0], &spec.outputs[0]);
        Some(RowCounts {
            operand: 1,
            dtype: counts.dtype,
            ranks: spec.team.ranks,
            parts: counts.dims[1],
            back: spec.attrs.bool("back"),
            row: row(source),
            source: source.dims[0],
            target: target.dims[0],
        })
    }

    /// Number of elements of the matrix of counts.
    pub fn counts(&self) -> u64 {
        u64::from(self.ranks) * self.parts
    }

    /// Returns the rows that rank `from` sends to rank `to`. `count` returns the element of the matrix with a row-major
    /// index. Rows beyond the end of a tensor are left out.
    pub fn rows_between(&self, count: impl Fn(u64) -> i64, from: u32, to: u32) -> CountedRows {
        let (sender, receiver) = if self.back { (to, from) } else { (from, to) };
        let (sender, receiver) = (u64::from(sender), u64::from(receiver));
        let own = self.parts / u64::from(self.ranks);
        let at = |rank: u64, column: u64| u64::try_from(count(rank * self.parts + column)).unwrap_or(0);
        let sum = |rank: u64, columns: std::ops::Range<u64>| {
            columns.map(|column| at(rank, column)).fold(0, u64::saturating_add)
        };
        let share = receiver * own..(receiver + 1) * own;
        let sent_before = sum(sender, 0..share.start);
        let arrived_before = (0..sender).map(|rank| sum(rank, share.clone())).fold(0, u64::saturating_add);
        let (from, to) = if self.back { (arrived_before, sent_before) } else { (sent_before, arrived_before) };
        let (from, to) = (from.min(self.source), to.min(self.target));
        CountedRows { from, to, rows: sum(sender, share).min(self.source - from).min(self.target - to) }
    }

    /// Copies the rows that rank `from` sends to rank `to`, from the tensor `source` of the sender to the tensor
    /// `target` of the receiver.
    pub fn copy(&self, counts: &[f64], (from, source): (u32, &[f64]), (to, target): (u32, &mut [f64])) {
        let counted = self.rows_between(|place| counts[place as usize] as i64, from, to);
        let [begin, place, length] = [counted.from, counted.to, counted.rows].map(|rows| (rows * self.row) as usize);
        target[place..place + length].copy_from_slice(&source[begin..begin + length]);
    }

    /// Bytes that a rank sends to each other rank if all counts are equal and the rows fill the tensors.
    pub fn usual_bytes(&self, dtype: DType) -> u64 {
        self.source.min(self.target) * self.row * dtype.size() / u64::from(self.ranks)
    }
}

/// Number of elements of a row: of a slice at one index of the first dimension.
pub fn row(tensor: &Tensor) -> u64 {
    tensor.dims.iter().skip(1).product()
}

/// Returns true if the call counts its rows; an error if it has the option `back` without counts.
pub fn has_counts(call: &Call) -> Result<bool, OpError> {
    let counted = call.inputs.len() > 1;
    if !counted && call.attrs.bool("back") {
        let why = "nothing counts the rows".to_owned();
        let help = "write the counts of all ranks after the tensor: `(src, counts -> dst, back: true)`".to_owned();
        return Err(call.bad_option("back", why, help));
    }
    Ok(counted)
}

/// Returns the type and shape of the output of an operation whose second input counts rows; checks the operands.
pub fn infer(call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
    let (source, counts) = (&call.inputs[0], &call.inputs[1]);
    let is_whole = matches!(counts.tensor.dtype, DType::I32 | DType::I64);
    let Some(target) = call.outputs[0] else {
        return Err(call.no_output(match is_whole {
            true => "an output follows an arrow: `src -> dst`; with two inputs, `src, counts -> dst`, the second counts rows",
            false => "an output follows an arrow: `src -> dst`",
        }));
    };
    call.needs_dtype(counts, is_whole, "counts of type i32 or i64")?;
    for operand in [source, counts, &target] {
        if operand.tensor.space != Space::Device {
            let help = "counted rows move between `device` buffers: `copy` the data to the device first";
            return Err(call.bad_space(operand, help));
        }
        if !operand.tensor.contiguous() {
            let help = "counted rows and their counts have to be contiguous: copy the slice first";
            return Err(call.gaps(operand, help));
        }
    }
    let ranks = u64::from(call.team.ranks);
    let fits = counts.tensor.dims.len() == 2
        && counts.tensor.dims[0] == ranks
        && counts.tensor.dims[1] > 0
        && counts.tensor.dims[1].is_multiple_of(ranks);
    if !fits {
        let needs = format!(
            "counts of all ranks, `[{ranks}, parts]` with a multiple of {ranks} as `parts`, as `all_gather` makes them"
        );
        return Err(call.bad_shape(counts, needs));
    }
    call.needs_rank(0, 1, "to count rows of the first")?;
    let (from, to) = (&source.tensor, &target.tensor);
    if from.dtype != to.dtype || to.dims.is_empty() || row(from) != row(to) {
        return Err(call.bad_output(&target, format!("rows of {} {} each", row(from), from.dtype), to.to_string()));
    }
    Ok(vec![(to.dtype, to.dims)])
}

/// Returns the kernel that copies the rows for rank `to` from rank `from` to the other rank's memory. The kernel reads
/// the counts.
pub fn kernel(spec: &Spec, counted: &RowCounts, (from, to): (u32, u32)) -> Launch {
    let (source_tensor, target) = (&spec.inputs[0], &spec.outputs[0]);
    let bytes = counted.row * source_tensor.dtype.size();
    let aligned = |unit: &u64| {
        [source_tensor, target].iter().all(|tensor| u64::from(tensor.align).is_multiple_of(*unit))
            && bytes.is_multiple_of(*unit)
    };
    let unit = [16, 8, 4, 2].into_iter().find(aligned).unwrap_or(1);
    let (sender, receiver) = if counted.back { (to, from) } else { (from, to) };
    let params = [
        param("const Unit* source", Arg::Operand(0)),
        param("const I* counts", Arg::Operand(1)),
        param("Unit* target", Arg::Operand(2)),
        u32_param("sender", u64::from(sender)),
        u32_param("receiver", u64::from(receiver)),
        u32_param("parts", counted.parts),
        u32_param("own", counted.parts / u64::from(counted.ranks)),
        u64_param("row", bytes / unit),
        u64_param("source_rows", counted.source),
        u64_param("target_rows", counted.target),
    ];
    let before = format!(
        "{}#define BACK {}\n#define UNROLL {UNROLL}\ntypedef {} I;\ntypedef Pack<{}, {}> Unit;\n",
        bounds(THREADS),
        u32::from(counted.back),
        c_type(counted.dtype),
        if unit >= 4 { "u32" } else { "u8" },
        if unit >= 4 { unit / 4 } else { unit },
    );
    let blocks =
        (counted.usual_bytes(source_tensor.dtype) / unit).div_ceil(u64::from(THREADS) * UNROLL).clamp(1, MAX_BLOCKS);
    launch("counted_copy", &before, &params, BODY, blocks, THREADS)
}

const BODY: &str = r#"  __shared__ u64 sums[3];
  if (threadIdx.x < 3) sums[threadIdx.x] = 0;
  __syncthreads();
  // Number of rows of the sender for earlier receivers, for the receiver, and of earlier senders for the receiver.
  u64 mine[3] = {0, 0, 0};
  u32 first = receiver * own;
  auto count = [&](u32 rank, u32 column) -> u64 {
    I found = counts[(u64)rank * parts + column];
    return found < 0 ? 0 : (u64)found;
  };
  for (u32 j = threadIdx.x; j < first; j += blockDim.x) mine[0] += count(sender, j);
  for (u32 j = threadIdx.x; j < own; j += blockDim.x) mine[1] += count(sender, first + j);
  for (u32 j = threadIdx.x; j < sender * own; j += blockDim.x) mine[2] += count(j / own, first + j % own);
  for (int i = 0; i < 3; i++) if (mine[i] != 0) atomicAdd(&sums[i], mine[i]);
  __syncthreads();
  u64 from = BACK ? sums[2] : sums[0], to = BACK ? sums[0] : sums[2], rows = sums[1];
  from = from < source_rows ? from : source_rows;
  to = to < target_rows ? to : target_rows;
  rows = rows < source_rows - from ? rows : source_rows - from;
  rows = rows < target_rows - to ? rows : target_rows - to;
  const Unit* read = source + from * row;
  Unit* written = target + to * row;
  u64 all = rows * row, step = (u64)gridDim.x * blockDim.x;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += UNROLL * step) {
    Unit units[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++) if (at + i * step < all) units[i] = read[at + i * step];
#pragma unroll
    for (int i = 0; i < UNROLL; i++) if (at + i * step < all) written[at + i * step] = units[i];
  }
"#;
