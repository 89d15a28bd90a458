//! Kernels that write a contiguous output in packs of 16 bytes, from rows of the input that can begin at any address.
//!
//! Each thread writes whole packs for any length of rows: a pack can hold elements of several rows, and rows can have
//! any alignment.

use super::kernel::{self, BLOCK, Parameter, bounds, c_type, geometry_param, index_type, param, u64_param};
use super::occupancy::{LINE, SECTOR, sectors_of};
use super::ragged::RAGGED;
use super::walk::{self, ENOUGH_BLOCKS};
use crate::base::Dims;
use crate::ops::{Arg, Geometry, Launch, Spec, Tensor, layout};

/// Division among threads of an output whose rows are copies of input rows.
#[derive(Clone, Copy, Debug)]
pub struct RowDivision {
    /// Number of elements of the output.
    total: u64,
    /// Number of elements of a row.
    length: u64,
    /// Number of elements in 16 bytes, which a thread writes at once.
    pack: u64,
    /// Accesses by which threads read the elements.
    reads: RowReads,
}

/// Instructions of a thread per pack that it reads of a row: of small elements, and of others.
const PER_HELD: [f64; 2] = [70.0, 35.0];
/// Instructions of a thread per single element.
const PER_ELEMENT: f64 = 12.0;
/// Other instructions of a thread.
const PER_THREAD: f64 = 40.0;
/// Instructions per dimension for the address of a row, by a division.
const PER_DIMENSION: f64 = 20.0;

/// Accesses by which the threads of a [`RowDivision`] read elements.
#[derive(Clone, Copy, Debug)]
pub enum RowReads {
    /// A thread reads packs of at most two rows, and writes one pack.
    Packs,
    /// A thread reads single elements, all of them for the one pack that it writes.
    Elements,
    /// A thread reads and writes single elements. Those of neighbouring threads are neighbours, so that a warp accesses few cache lines.
    Spread,
}

/// Kernel text that returns the address of the input row for an output row.
pub struct RowText<'a> {
    /// Kernel parameters that `text` uses, with their arguments.
    pub params: Vec<Parameter>,
    /// Statements that return the address of row number `which` as a `const E*`. They set `inside` to false if no input
    /// row belongs to the row, which is then all zeros.
    pub text: &'a str,
}

impl RowDivision {
    /// Returns the division of an output into rows of `length` elements, which are contiguous in the input too. `None` if
    /// the output has gaps or is not aligned to 16 bytes.
    pub fn of(y: &Tensor, length: u64, reads: RowReads) -> Option<RowDivision> {
        if !y.contiguous() || y.align < 16 || length == 0 {
            return None;
        }
        let (total, pack) = (y.elements(), 16 / y.dtype.size());
        Some(RowDivision { total, length, pack, reads })
    }

    pub fn blocks(&self) -> u64 {
        self.total.div_ceil(self.pack * u64::from(BLOCK)).max(1)
    }

    /// Number of rows whose elements a thread reads one after the other.
    pub fn rows_of_a_thread(&self) -> u64 {
        match self.reads {
            RowReads::Packs => 2,
            RowReads::Elements => 1 + self.pack.div_ceil(self.length),
            RowReads::Spread => 1,
        }
    }

    /// Number of instructions of all threads, which take `per_row` to find a row.
    pub fn instructions(&self, per_row: f64) -> f64 {
        let (pack, rows) = (self.pack as f64, self.rows_of_a_thread() as f64);
        let of_a_thread = match self.reads {
            RowReads::Packs => rows * (per_row + PER_HELD[usize::from(self.pack <= 4)]),
            RowReads::Elements => rows * per_row + PER_ELEMENT * pack,
            RowReads::Spread => (per_row + PER_ELEMENT) * pack,
        };
        (of_a_thread + PER_THREAD) * (self.total as f64 / pack)
    }

    /// Returns the kernel with this name; `output` and `input` are operand numbers.
    pub fn launch(&self, name: &str, spec: &Spec, (output, input): (u8, u8), row: RowText) -> Launch {
        let dtype = c_type(spec.outputs[0].dtype);
        let mut params = vec![
            param(format!("{dtype}* __restrict__ y"), Arg::Operand(output)),
            param(format!("const {dtype}* __restrict__ x"), Arg::Operand(input)),
            u64_param("total_elements", self.total),
        ];
        params.extend(row.params);
        let before = format!(
            "{}typedef {} Place;\ntypedef {dtype} E;\n#define V {}\n#define LENGTH {}\n{RAGGED}",
            bounds(BLOCK),
            index_type(self.total + self.pack * u64::from(BLOCK)),
            self.pack,
            self.length,
        );
        let (places, packs) = match self.reads {
            RowReads::Packs => (PLACES, PACKS),
            RowReads::Elements => (PLACES, SINGLE),
            RowReads::Spread => ("", SPREAD),
        };
        let text = row.text;
        let body = format!("{places}  auto row = [&](Place which, bool& inside) -> const E* {{\n{text}  }};\n{packs}");
        kernel::launch(name, &before, &params, &body, self.blocks(), BLOCK)
    }
}

/// A copy to a contiguous output by a [`RowDivision`].
pub struct MovedRows {
    division: RowDivision,
    /// The rows, with the strides of the input.
    outer: Geometry,
}

impl MovedRows {
    /// Returns the copy of operand 0 to operand 1 with these strides, if packs of one tensor are unaligned in the other. `None` if the output
    /// has gaps, is small, or if the elementwise kernel moves aligned packs as well.
    pub fn of(spec: &Spec, dims: Dims, strides: &[Dims; 2]) -> Option<MovedRows> {
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let all = layout::by_output(dims, strides);
        let (last, lead) = match (all.dims.split_last(), all.strides[1].last()) {
            (Some((&last, lead)), Some(1)) => (last, lead.len()),
            (_, Some(_)) => (1, all.dims.len()),
            _ => return None,
        };
        let outer = Geometry { dims: all.dims.part(..lead), strides: vec![all.strides[1].part(..lead)] };
        let pack = 16 / y.dtype.size();
        let begins = x.align >= 16 && outer.strides[0].iter().all(|stride| stride.is_multiple_of(pack));
        let walks = begins && (lead == 0 || last.is_multiple_of(pack));
        // A walk moves single elements of a small output as fast.
        if walks || last == 1 || y.elements() < pack * u64::from(BLOCK) * ENOUGH_BLOCKS {
            return None;
        }
        let is_near = outer.strides[0].last().is_some_and(|stride| stride * y.dtype.size() < LINE);
        let reads = match last < pack {
            true if is_near => RowReads::Spread,
            true => RowReads::Elements,
            false => RowReads::Packs,
        };
        Some(MovedRows { division: RowDivision::of(y, last, reads)?, outer })
    }

    /// Work of the kernel.
    pub fn work(&self, spec: &Spec) -> walk::Work {
        let y = &spec.outputs[0];
        let (length, bytes) = (self.division.length, self.division.length * y.dtype.size());
        // Neighbouring rows share sectors.
        let apart = self.outer.strides[0]
            .last()
            .map_or(f64::INFINITY, |stride| (stride * y.dtype.size()) as f64 / SECTOR as f64);
        let read = (self.division.total / length) as f64 * sectors_of(bytes).min(apart);
        // Bytes in the host's memory cross its link.
        let [read, written] = [(&spec.inputs[0], read), (y, (y.bytes() / SECTOR) as f64)]
            .map(|(tensor, sectors)| if tensor.space.in_host() { 0.0 } else { sectors });
        walk::Work {
            sectors: read + written,
            instructions: self.division.instructions(PER_DIMENSION * self.outer.dims.len() as f64),
            blocks: self.division.blocks(),
        }
    }

    /// Returns the kernel with this name.
    pub fn launch(&self, name: &str, spec: &Spec) -> Launch {
        let (params, text) = match self.division.reads {
            RowReads::Packs => {
                (vec![geometry_param("outer", &self.outer)], "    return x + outer.offset(which, 0);\n".to_owned())
            }
            RowReads::Elements | RowReads::Spread => (Vec::new(), constant_rows(&self.outer)),
        };
        self.division.launch(name, spec, (1, 0), RowText { params, text: &text })
    }
}

/// Returns kernel text that finds an input row by divisions by constants. A pack of short rows needs several divisions,
/// which are slow if the divisor is a kernel argument.
fn constant_rows(outer: &Geometry) -> String {
    let axes = outer.dims.iter().zip(outer.strides[0].iter()).enumerate().rev();
    let of_axis = |(axis, (size, stride)): (usize, (&u64, &u64))| match axis {
        0 => format!("    at += (i64)rest * {stride};\n"),
        _ => format!(
            "    next = rest / (Place){size}, at += (i64)(rest - next * (Place){size}) * {stride}, rest = next;\n"
        ),
    };
    let text: String = axes.map(of_axis).collect();
    format!("    Place rest = which, next;\n    i64 at = 0;\n{text}    return x + at;\n")
}

const PLACES: &str = r#"  const Place length = LENGTH, total = (Place)total_elements;
  const Place e = (Place)GLOBAL_INDEX * V, which = e / length;
  if (e >= total) return;
"#;

/// Kernel text that reads the elements of at most two rows in packs.
const PACKS: &str = r#"  const Place left = length - (e - which * length);
  const bool ends = left < V && e + left < total;
  Held<E> held[2] = {};
  bool inside = true;
  const E* from = row(which, inside);
  if (inside) held[0] = read_row(from, (i64)(length - left), (i64)length);
  if (ends) {
    inside = true;
    from = row(which + 1, inside);
    if (inside) held[1] = read_row(from, -(i64)left, (i64)length);
  }
  Pack<E, V> v = held[0].elements();
  if (ends) {
    const Pack<E, V> rest = held[1].elements();
#pragma unroll
    for (int c = 0; c < V; c++) if (c >= left) v.at[c] = rest.at[c];
  }
  put_row(y, (i64)e, (i64)total, v);
"#;

/// Kernel text that reads the elements of any number of rows one by one; the elements of a thread are a block apart.
const SPREAD: &str = r#"  const Place length = LENGTH, total = (Place)total_elements, begin = (Place)blockIdx.x * (blockDim.x * V) + threadIdx.x;
  E held[V] = {};
#pragma unroll
  for (u32 v = 0; v < V; v++) {
    const Place e = begin + v * blockDim.x, which = e / length;
    if (e >= total) continue;
    bool inside = true;
    const E* from = row(which, inside);
    if (inside) held[v] = from[e - which * length];
  }
#pragma unroll
  for (u32 v = 0; v < V; v++) if (begin + v * blockDim.x < total) y[begin + v * blockDim.x] = held[v];
"#;

/// Kernel text that reads the elements of any number of rows one by one, for a pack of the output.
const SINGLE: &str = r#"  Place at = which, column = e - which * length;
  Pack<E, V> v = {};
  bool inside = true;
  const E* from = row(at, inside);
#pragma unroll
  for (int c = 0; c < V; c++) {
    if (e + c >= total) continue;
    if (column == length) {
      column = 0;
      inside = true;
      from = row(++at, inside);
    }
    if (inside) v.at[c] = from[column];
    column++;
  }
  put_row(y, (i64)e, (i64)total, v);
"#;
