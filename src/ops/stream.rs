//! Kernels that write a contiguous output in packs of 16 bytes, from input rows at any address.
//!
//! Each thread writes whole packs for any length of rows: a pack can hold elements of several rows, and rows can have
//! any alignment.

use super::kernel::{BLOCK, Parameter, bounds, c_type, geometry_param, index_type, param, u64_param};
use super::occupancy::RESIDENT_BLOCKS;
use super::ragged::RAGGED;
use super::*;

/// Number of bytes that a thread reads before it writes, if the output is large enough.
const UNDER_WAY: u64 = 64;

/// Number of blocks that keeps a device busy. An output with fewer packs gets a thread for each element.
const ENOUGH_BLOCKS: u64 = 256;

/// The division among threads of an output whose rows are rows of the input.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Number of elements of the output.
    total: u64,
    /// Number of elements of a row.
    length: u64,
    /// Number of elements in 16 bytes, which a thread writes at once.
    pack: u64,
    /// Number of packs per thread.
    each: u64,
}

/// Kernel text that finds the input row of an output row.
pub struct RowText<'a> {
    /// Kernel parameters that `text` uses, with their arguments.
    pub params: Vec<Parameter>,
    /// Statements that return the address of row `which` as a `const E*`. They set `inside` to false if the row is all zeros and has
    /// no input.
    pub text: &'a str,
}

impl Stream {
    /// Returns the division of an output whose rows have `length` elements, contiguous in the input too; `None` if the output has
    /// gaps or is not aligned to 16 bytes.
    pub fn of(y: &Tensor, length: u64) -> Option<Stream> {
        if !y.contiguous() || y.align < 16 || length == 0 {
            return None;
        }
        let (total, pack) = (y.elements(), 16 / y.dtype.size());
        // Each pack is read as two.
        let most = UNDER_WAY / 32;
        let spare = total / (pack * u64::from(BLOCK) * RESIDENT_BLOCKS);
        Some(Stream { total, length, pack, each: spare.clamp(1, most) })
    }

    pub fn blocks(&self) -> u64 {
        self.total.div_ceil(self.pack * self.each * u64::from(BLOCK)).max(1)
    }

    /// Returns the kernel with this name; `output` and `input` are operand numbers.
    pub fn launch(&self, name: &str, spec: &Spec, (output, input): (u8, u8), row: RowText) -> Launch {
        let dtype = c_type(spec.outputs[0].dtype);
        let mut params = vec![
            param(format!("{dtype}* __restrict__ y"), Arg::Operand(output)),
            param(format!("const {dtype}* __restrict__ x"), Arg::Operand(input)),
            u64_param("total_elements", self.total),
            u64_param("row_length", self.length),
        ];
        params.extend(row.params);
        let before = format!(
            "{}typedef {} Place;\ntypedef {dtype} E;\n#define V {}\n#define U {}\n{RAGGED}",
            bounds(BLOCK),
            index_type(self.total + self.pack * self.each * u64::from(BLOCK)),
            self.pack,
            self.each,
        );
        let packs = if self.length >= self.pack { LONG_ROWS } else { SHORT_ROWS };
        let text = row.text;
        let body = format!("{PLACES}  auto row = [&](Place which, bool& inside) -> const E* {{\n{text}  }};\n{packs}");
        kernel::launch(name, &before, &params, &body, self.blocks(), BLOCK)
    }
}

/// Returns the kernel that copies operand 0 to operand 1 with these strides, if packs of one are unaligned in the other. `None` if
/// the output has gaps, or if an elementwise walk can move packs too.
pub fn moved(name: &str, spec: &Spec, dims: Dims, strides: &[Dims; 2]) -> Option<Launch> {
    let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
    let all = walk::by_output(dims, strides);
    let (last, lead) = match (all.dims.split_last(), all.strides[1].last()) {
        (Some((&last, lead)), Some(1)) => (last, lead.len()),
        (_, Some(_)) => (1, all.dims.len()),
        _ => return None,
    };
    let part = |dims: &Dims| Dims::from_slice(&dims[..lead]).unwrap_or_default();
    let outer = Geometry { dims: part(&all.dims), strides: vec![part(&all.strides[1])] };
    let pack = 16 / y.dtype.size();
    let begins = x.align >= 16 && outer.strides[0].iter().all(|stride| stride.is_multiple_of(pack));
    let walks = begins && (lead == 0 || last.is_multiple_of(pack));
    // An elementwise walk moves single elements as fast.
    if walks || last == 1 || y.elements() < pack * u64::from(BLOCK) * ENOUGH_BLOCKS {
        return None;
    }
    let stream = Stream::of(y, last)?;
    let (params, text) = match last < pack {
        true => (Vec::new(), constant_rows(&outer)),
        false => (vec![geometry_param("outer", &outer)], "    return x + outer.offset(which, 0);\n".to_owned()),
    };
    Some(stream.launch(name, spec, (1, 0), RowText { params, text: &text }))
}

/// Returns text that finds a row of the input by divisions by constants. A pack of short rows takes several divisions, which are slow if
/// the divisor is an argument.
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

const PLACES: &str = r#"  const Place length = (Place)row_length, total = (Place)total_elements;
  const Place first = (Place)blockIdx.x * (256 * U) + threadIdx.x;
"#;

/// Kernel text for packs with elements of at most two rows.
const LONG_ROWS: &str = r#"  Pack<E, V> v[U];
  Held<E> held[U][2];
  Place left[U];
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    Place e = (first + u * 256) * V, which = e / length;
    left[u] = length - (e - which * length);
    held[u][0] = held[u][1] = Held<E>();
    if (e >= total) continue;
    bool inside = true;
    const E* from = row(which, inside);
    if (inside) held[u][0] = read_row(from, (i64)(length - left[u]), (i64)length);
    if (left[u] >= V || e + left[u] >= total) continue;
    inside = true;
    from = row(which + 1, inside);
    if (inside) held[u][1] = read_row(from, -(i64)left[u], (i64)length);
  }
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    v[u] = held[u][0].elements();
    if (left[u] >= V) continue;
    Pack<E, V> rest = held[u][1].elements();
#pragma unroll
    for (int c = 0; c < V; c++) if (c >= left[u]) v[u].at[c] = rest.at[c];
  }
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    Place e = (first + u * 256) * V;
    if (e < total) put_row(y, (i64)e, (i64)total, v[u]);
  }
"#;

/// Kernel text for packs with elements of several rows.
const SHORT_ROWS: &str = r#"#pragma unroll
  for (u32 u = 0; u < U; u++) {
    Place e = (first + u * 256) * V, which = e / length, column = e - which * length;
    if (e >= total) continue;
    Pack<E, V> v = {};
    bool inside = true;
    const E* from = row(which, inside);
#pragma unroll
    for (int c = 0; c < V; c++) {
      if (e + c >= total) continue;
      if (column == length) {
        column = 0;
        inside = true;
        from = row(++which, inside);
      }
      if (inside) v.at[c] = from[column];
      column++;
    }
    put_row(y, (i64)e, (i64)total, v);
  }
"#;
