//! Kernels that write an output without gaps from one end to the other, in packs of 16 bytes, from rows that lie anywhere.
//!
//! A pack may have elements of two rows or of more, and rows may begin anywhere in memory: each thread writes whole packs,
//! whatever the length of rows is.

use crate::base::{DType, Dims};

use super::kernel::{BLOCK, bounds, c_type, geometry_param, geometry_words, index_type, source};
use super::occupancy::RESIDENT_BLOCKS;
use super::ragged::RAGGED;
use super::*;

/// Bytes that a thread reads before it writes, where there are enough of them.
const UNDER_WAY: u64 = 64;

/// How threads write an output as rows of one length, each of which is a row of an input, perhaps with a border.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Elements of the output.
    total: u64,
    /// Elements of a row of the output, and those of them that come before and from a row of the input.
    length: u64,
    before: u64,
    inner: u64,
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
    /// Statements that return where row `which` begins, an `const E*`. They set `inside` to false for a row that has no
    /// elements of the input.
    pub text: &'a str,
    /// The value of all other elements; without one they are zero.
    pub value: Option<f64>,
}

impl Stream {
    /// Returns the division of an output whose rows of `length` elements have, behind `before` others, `inner` elements of an
    /// input, side by side. `None` where the output has gaps, or begins between two packs.
    pub fn of(y: &Tensor, [length, before, inner]: [u64; 3], aligned: bool) -> Option<Stream> {
        if !y.contiguous() || y.align < 16 || length == 0 {
            return None;
        }
        let (total, pack) = (y.elements(), 16 / y.dtype.size());
        let most = if aligned { UNDER_WAY / 16 } else { UNDER_WAY / 32 };
        let spare = total / (pack * u64::from(BLOCK) * RESIDENT_BLOCKS);
        Some(Stream { total, length, before, inner, pack, aligned, each: spare.clamp(1, most) })
    }

    pub fn blocks(&self) -> u64 {
        self.total.div_ceil(self.pack * self.each * u64::from(BLOCK)).max(1)
    }

    /// The kernel of that name; `output` and `input` are the numbers of the operands, and `compute` the type of the value.
    pub fn launch(&self, name: &str, spec: &Spec, (output, input): (u8, u8), compute: DType, row: RowText) -> Launch {
        let dtype = c_type(spec.outputs[0].dtype);
        let mut bound = vec![
            (format!("{dtype}* __restrict__ y"), Arg::Operand(output)),
            (format!("const {dtype}* __restrict__ x"), Arg::Operand(input)),
            ("u64 total_elements".to_owned(), Arg::U64(self.total)),
            ("u64 row_length".to_owned(), Arg::U64(self.length)),
            ("u64 row_begin".to_owned(), Arg::U64(self.before)),
            ("u64 row_inner".to_owned(), Arg::U64(self.inner)),
        ];
        bound.extend(row.params);
        let mut fill = "  E fill = {};\n".to_owned();
        if let Some(value) = row.value {
            bound.push(("C value".to_owned(), Arg::real(compute, value)));
            fill = "  E fill;\n  store<C>(fill, value);\n".to_owned();
        }
        let (params, args): (Vec<String>, Vec<Arg>) = bound.into_iter().unzip();
        let before = format!(
            "{}typedef {} Place;\ntypedef {dtype} E;\ntypedef {} C;\n#define V {}\n#define U {}\n#define ALIGNED {}\n#define PADDED {}\n{RAGGED}",
            bounds(BLOCK),
            index_type(self.total + self.pack * self.each * u64::from(BLOCK)),
            c_type(compute),
            self.pack,
            self.each,
            u32::from(self.aligned),
            u32::from(self.before > 0 || self.inner < self.length || row.value.is_some()),
        );
        let packs = if self.length >= self.pack { LONG_ROWS } else { SHORT_ROWS };
        let text = row.text;
        let body =
            format!("{PLACES}{fill}  auto row = [&](Place which, bool& inside) -> const E* {{\n{text}  }};\n{packs}");
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
    if begins && (lead == 0 || last.is_multiple_of(pack)) {
        return None;
    }
    let params = vec![(geometry_param(&outer).replace(" g", " outer"), Arg::Words(geometry_words(&outer)))];
    let row = RowText { params, text: "    return x + outer.offset(which, 0);\n", value: None };
    Some(Stream::of(y, [last, 0, last], false)?.launch(name, spec, (1, 0), DType::F32, row))
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
#pragma unroll
    for (int c = 0; c < V; c++) v[u].at[c] = fill;
    if (e >= total) continue;
    bool inside = true;
    i64 j = (i64)(e - which * length) - (i64)row_begin;
    const E* from = row(which, inside);
    if (inside && j >= 0 && j < (i64)row_inner) v[u] = *(const Pack<E, V>*)(from + j);
  }
#else
  Held<E> held[U][2];
  Place left[U];
  bool inside[U][2];
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    Place e = (first + u * 256) * V, which = e / length;
    left[u] = length - (e - which * length);
    held[u][0] = held[u][1] = Held<E>();
    inside[u][0] = inside[u][1] = true;
    if (e >= total) continue;
    const E* from = row(which, inside[u][0]);
    if (inside[u][0]) held[u][0] = read_row(from, (i64)(length - left[u]) - (i64)row_begin, (i64)row_inner);
    if (left[u] >= V || e + left[u] >= total) continue;
    from = row(which + 1, inside[u][1]);
    if (inside[u][1]) held[u][1] = read_row(from, -(i64)left[u] - (i64)row_begin, (i64)row_inner);
  }
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    v[u] = held[u][0].elements();
    if (left[u] < V) {
      Pack<E, V> rest = held[u][1].elements();
#pragma unroll
      for (int c = 0; c < V; c++) if (c >= left[u]) v[u].at[c] = rest.at[c];
    }
    if (!PADDED) continue;
#pragma unroll
    for (int c = 0; c < V; c++) {
      bool next = c >= left[u];
      i64 j = (next ? (i64)c - (i64)left[u] : (i64)(length - left[u]) + c) - (i64)row_begin;
      if (!inside[u][next] || j < 0 || j >= (i64)row_inner) v[u].at[c] = fill;
    }
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
    Pack<E, V> v;
    bool inside = true;
    const E* from = row(which, inside);
#pragma unroll
    for (int c = 0; c < V; c++) {
      v.at[c] = fill;
      if (e + c >= total) continue;
      if (column == length) {
        column = 0;
        inside = true;
        from = row(++which, inside);
      }
      i64 j = (i64)column - (i64)row_begin;
      if (inside && j >= 0 && j < (i64)row_inner) v.at[c] = from[j];
      column++;
    }
    put_row(y, (i64)e, (i64)total, v);
  }
"#;
