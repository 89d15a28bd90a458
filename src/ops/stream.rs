//! Kernels that write an output without gaps from one end to the other, in packs of 16 bytes, from rows that lie anywhere.
//!
//! A pack may have elements of two rows or of more, and rows may begin anywhere in memory: each thread writes whole packs,
//! whatever the length of rows is.

use crate::base::Dims;

use super::kernel::{BLOCK, bounds, c_type, geometry_param, geometry_words, index_type, source};
use super::occupancy::RESIDENT_BLOCKS;
use super::ragged::RAGGED;
use super::*;

/// Bytes that a thread reads before it writes, where there are enough of them.
const UNDER_WAY: u64 = 64;

/// Blocks from which on threads with a pack each keep a device busy; fewer elements have a thread each.
const ENOUGH_BLOCKS: u64 = 256;

/// How threads write an output as rows of one length, each of which is a row of an input.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Elements of the output.
    total: u64,
    /// Elements of a row.
    length: u64,
    /// Elements of 16 bytes, which a thread writes as one.
    pack: u64,
    /// No pack has elements of two rows, and each begins at a multiple of its size in the input too.
    aligned: bool,
    /// Packs of a thread.
    each: u64,
}

/// The row of the input for a row of the output.
pub struct RowText<'a> {
    /// Parameters of the kernel that `text` uses, and their arguments.
    pub params: Vec<(String, Arg)>,
    /// Statements that return where row `which` begins, a `const E*`. They set `inside` to false for a row that has no
    /// elements of the input, and is zero.
    pub text: &'a str,
}

impl Stream {
    /// Returns the division of an output whose rows have `length` elements, side by side in the input too. `None` where the
    /// output has gaps, or begins between two packs.
    pub fn of(y: &Tensor, length: u64, aligned: bool) -> Option<Stream> {
        if !y.contiguous() || y.align < 16 || length == 0 {
            return None;
        }
        let (total, pack) = (y.elements(), 16 / y.dtype.size());
        let most = if aligned { UNDER_WAY / 16 } else { UNDER_WAY / 32 };
        let spare = total / (pack * u64::from(BLOCK) * RESIDENT_BLOCKS);
        Some(Stream { total, length, pack, aligned, each: spare.clamp(1, most) })
    }

    pub fn blocks(&self) -> u64 {
        self.total.div_ceil(self.pack * self.each * u64::from(BLOCK)).max(1)
    }

    /// The kernel of that name; `output` and `input` are the numbers of the operands.
    pub fn launch(&self, name: &str, spec: &Spec, (output, input): (u8, u8), row: RowText) -> Launch {
        let dtype = c_type(spec.outputs[0].dtype);
        let mut bound = vec![
            (format!("{dtype}* __restrict__ y"), Arg::Operand(output)),
            (format!("const {dtype}* __restrict__ x"), Arg::Operand(input)),
            ("u64 total_elements".to_owned(), Arg::U64(self.total)),
            ("u64 row_length".to_owned(), Arg::U64(self.length)),
        ];
        bound.extend(row.params);
        let (params, args): (Vec<String>, Vec<Arg>) = bound.into_iter().unzip();
        let before = format!(
            "{}typedef {} Place;\ntypedef {dtype} E;\n#define V {}\n#define U {}\n#define ALIGNED {}\n{RAGGED}",
            bounds(BLOCK),
            index_type(self.total + self.pack * self.each * u64::from(BLOCK)),
            self.pack,
            self.each,
            u32::from(self.aligned),
        );
        let packs = if self.length >= self.pack { LONG_ROWS } else { SHORT_ROWS };
        let text = row.text;
        let body = format!("{PLACES}  auto row = [&](Place which, bool& inside) -> const E* {{\n{text}  }};\n{packs}");
        Launch::Kernel(Kernel {
            source: source(name, &before, &params, &body),
            grid: Kernel::along_x(self.blocks()),
            block: Kernel::along_x(BLOCK),
            shared: Shared::Bytes(0),
            args,
        })
    }
}

/// The kernel that copies elements of operand 0 to operand 1, which are walked by these strides, where packs of one lie
/// between packs of the other. `None` where the output has gaps, or a walk moves packs as well.
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
    // A walk finds single elements as fast.
    if walks || last == 1 || y.elements() < pack * u64::from(BLOCK) * ENOUGH_BLOCKS {
        return None;
    }
    let params = vec![(geometry_param(&outer).replace(" g", " outer"), Arg::Words(geometry_words(&outer)))];
    let row = RowText { params, text: "    return x + outer.offset(which, 0);\n" };
    Some(Stream::of(y, last, false)?.launch(name, spec, (1, 0), row))
}

const PLACES: &str = r#"  const Place length = (Place)row_length, total = (Place)total_elements;
  const Place first = (Place)blockIdx.x * (256 * U) + threadIdx.x;
"#;

/// A pack has elements of one row, or of two.
const LONG_ROWS: &str = r#"  Pack<E, V> v[U];
#if ALIGNED
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    Place e = (first + u * 256) * V, which = e / length;
    v[u] = Pack<E, V>();
    if (e >= total) continue;
    bool inside = true;
    const E* from = row(which, inside);
    if (inside) v[u] = *(const Pack<E, V>*)(from + (e - which * length));
  }
#else
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
#endif
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    Place e = (first + u * 256) * V;
    if (e < total) put_row(y, (i64)e, (i64)total, v[u]);
  }
"#;

/// A pack has elements of several rows.
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
