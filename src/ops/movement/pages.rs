//! Copies of listed pages: `copy(pool, indices: [7, 2, 3] -> kv)`.
//!
//! A page is the part of a tensor at one index of its first dimension. Pages that are consecutive in the list and in
//! the source form a run, which is copied as one slice.

use super::gather::Columns;
use crate::ops::kernels::kernel::{BLOCK, c_type, geometry_param, kernel, param, u64_param};
use crate::ops::kernels::occupancy::{UNIT_THREADS, UNITS};
use crate::ops::layout::packs_of_rows;
use crate::ops::*;

/// The option that holds the list.
pub const INDICES: OptionSpec = OptionSpec::absent(
    "indices",
    OptionType::List,
    "the pages to copy: indices of the first dimension of `src`, one for each of `dst`",
);

/// Maximum number of pages of a copy, since each may need a call of the runtime.
const MAX_PAGES: usize = 4096;

/// Maximum size in bytes of the list of pages that a launch receives by value. Kernel arguments are limited to 4 KiB.
const LIST: usize = 3 << 10;
/// Minimum size in bytes of the list in a kernel, so that lists of different lengths share kernels.
const MIN_LIST: usize = 128;

/// A run of consecutive pages: the slices of source and target, and their offsets in bytes.
pub struct PageRun {
    pub source: Tensor,
    pub target: Tensor,
    pub source_offset: u64,
    pub target_offset: u64,
}

/// The list of page indices of a copy; `None` for a copy without a list.
pub fn indices(attrs: &Attrs) -> Option<&[i64]> {
    attrs.axes("indices")
}

/// Checks the list, and returns the shape of the copied pages.
pub fn infer(call: &Call, list: &[i64]) -> Result<Dims, OpError> {
    call.needs_rank(0, 1, "whose first counts pages")?;
    let dims = call.inputs[0].tensor.dims;
    let help = format!("write from 1 to {MAX_PAGES} numbers from 0 to {}; `gather` takes any number", dims[0] - 1);
    if !(1..=MAX_PAGES).contains(&list.len()) {
        return Err(call.bad_option("indices", format!("the list has {} numbers", list.len()), help));
    }
    let outside = |index: &i64| u64::try_from(*index).map_or(true, |index| index >= dims[0]);
    if let Some(index) = list.iter().copied().find(|index| outside(index)) {
        return Err(call.bad_option("indices", format!("`src` has {} pages, and no page {index}", dims[0]), help));
    }
    let mut dims = dims;
    dims.set(0, list.len() as u64);
    Ok(dims)
}

/// Returns the runs of consecutive pages of a checked list, in order.
pub fn runs(list: &[i64], source: &Tensor, target: &Tensor) -> Vec<PageRun> {
    let mut runs = Vec::new();
    let mut first = 0;
    for run in list.chunk_by(|before, next| before + 1 == *next) {
        let part = |tensor: &Tensor, from: u64| {
            let mut dims = tensor.dims;
            dims.set(0, run.len() as u64);
            let offset = from * tensor.strides[0] * tensor.dtype.size();
            let align = (u64::from(tensor.align) | offset).trailing_zeros().min(4);
            (Tensor { dims, align: 1 << align, ..*tensor }, offset)
        };
        let (source, source_offset) = part(source, run[0] as u64);
        let (target, target_offset) = part(target, first);
        runs.push(PageRun { source, target, source_offset, target_offset });
        first += run.len() as u64;
    }
    runs
}

/// Kernel text that defines `IN_PLACE`, for a parameter that is read at an index known at run time only. Without it, NVRTC copies a
/// list of 128 bytes to the memory of each thread.
const IN_PLACE: &str = r#"
#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define IN_PLACE
#else
#define IN_PLACE __grid_constant__
#endif
"#;

/// Returns the kernels that copy the pages of a checked list.
pub fn kernels(list: &[i64], x: &Tensor, y: &Tensor) -> Vec<Launch> {
    let columns = Columns::of(y, 1, x, 1);
    let dtype = c_type(x.dtype);
    // The address of an unaligned pack takes more instructions, which only pays off if there are many packs.
    let is_large = y.bytes() >= UNITS * UNIT_THREADS * 2;
    let (pack, ragged) = if is_large { columns.packs(x.dtype) } else { (columns.pack, false) };
    // Short numbers, so that one launch copies as many pages as possible.
    let (number, size) = match x.dims[0] {
        pages if pages <= 1 << 16 => ("unsigned short", 2),
        pages if pages <= 1 << 32 => ("u32", 4),
        _ => ("u64", 8),
    };
    let most = (list.len() * size).next_power_of_two().clamp(MIN_LIST, LIST) / size;
    let before = format!(
        "{}{IN_PLACE}struct alignas(8) Pages {{ {number} at[{most}]; }};\n",
        columns.text_of_packs(pack, ragged)
    );
    let body = format!(
        r#"  const {dtype}* from = x + (u64)pages.at[blockIdx.y] * sx;
  {dtype}* to = y + (first + blockIdx.y) * sy;
  for (i64 j = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * V - LEAD(to); j < (i64)n; j += (i64)gridDim.x * blockDim.x * V)
    PUT(to, j, FETCH(from, j));
"#
    );
    let across = packs_of_rows(columns.length, pack, ragged).div_ceil(u64::from(BLOCK)).clamp(1, 1 << 16);
    let launch = |(number, list): (usize, &[i64])| {
        // The numbers lie in a word from the lowest bits on, as in memory.
        let shifted = |word: u64| word.checked_shl(8 * size as u32).unwrap_or(0);
        let word = |numbers: &[i64]| numbers.iter().rev().fold(0, |word, &number| shifted(word) | number as u64);
        let mut at: Vec<u64> = list.chunks(8 / size).map(word).collect();
        at.resize(most * size / 8, 0);
        let params = [
            param(format!("{dtype}* __restrict__ y"), Arg::Operand(1)),
            param(format!("const {dtype}* __restrict__ x"), Arg::Operand(0)),
            param("const IN_PLACE Pages pages", Arg::Words(at)),
            geometry_param("inner", &columns.geometry),
            u64_param("first", (number * most) as u64),
            u64_param("sx", x.strides[0]),
            u64_param("sy", y.strides[0]),
            u64_param("n", columns.length),
        ];
        let grid = [across, list.len() as u64, 1];
        Launch::Kernel(Kernel { grid, ..kernel("pages", &before, &params, &body, 1, BLOCK) })
    };
    list.chunks(most).enumerate().map(launch).collect()
}

/// Copies the pages of a checked list between contiguous tensors.
pub fn copy(list: &[i64], from: &[f64], to: &mut [f64]) {
    let page = to.len() / list.len();
    for (to, &index) in to.chunks_mut(page.max(1)).zip(list) {
        to.copy_from_slice(&from[index as usize * page..][..page]);
    }
}
