//! Data movement within a device: `gather`.

use crate::ops::call::error;
use crate::ops::kernels::kernel::{BLOCK, bounds, c_type, geometry_param, index_type, launch, param, u64_param};
use crate::ops::kernels::occupancy::{CACHE, RESIDENT_BLOCKS, SECTOR, UNIT_CACHE, sectors_of};
use crate::ops::kernels::ragged::{MAX_COLUMN, RAGGED};
use crate::ops::kernels::row_groups::RowGroups;
use crate::ops::kernels::stream::{RowDivision, RowReads, RowText};
use crate::ops::layout::{collapse, halves, packs_of_rows};
use crate::ops::*;

/// Merges the dimensions after the first `skip_a` of one tensor, which are those after the first `skip_b` of the other,
/// with the strides of both tensors.
fn tail_geometry(a: &Tensor, skip_a: usize, b: &Tensor, skip_b: usize) -> Geometry {
    collapse(a.dims.part(skip_a..), &[a.strides.part(skip_a..), b.strides.part(skip_b..)])
}

/// Merges the first `count` dimensions, which two tensors share, with the strides of both.
pub(in crate::ops) fn head_geometry(a: &Tensor, b: &Tensor, count: usize) -> Geometry {
    collapse(a.dims.part(..count), &[a.strides.part(..count), b.strides.part(..count)])
}

/// `gather(x, i)`.
pub struct Gather;

impl Operation for Gather {
    signature! {
        name: "gather",
        summary: "selects rows of `x` by index; an index out of range, such as -1, gives zeros",
        category: Category::Movement,
        inputs: &[Input::Tensor("x"), Input::Tensor("i")],
        outputs: &["y"],
        options: &[],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rank(0, 1, "whose first is picked from")?;
        let (x, i) = (&call.inputs[0].tensor, &call.inputs[1]);
        call.needs_indices(i)?;
        let sizes: Vec<u64> = i.tensor.dims.iter().chain(&x.dims[1..]).copied().collect();
        let dims = Dims::from_slice(&sizes).ok_or_else(|| OpError::Rank {
            op: call.operation.name(),
            needs: format!("a result of at most {} dimensions", Dims::MAX),
            found: x.to_string(),
            help: error::OTHER_DIMENSIONS,
            at: call.span.into(),
        })?;
        Ok(vec![call.output(0, x.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        // If there are more indices than rows, some rows are selected several times.
        let (count, bytes) = (spec.inputs[1].elements(), spec.outputs[0].bytes());
        let once = bytes / count.max(1) * count.min(spec.inputs[0].dims[0]);
        let rows = |bytes| Traffic::of(spec.inputs[0].space, bytes);
        let columns = Columns::of(&spec.outputs[0], spec.inputs[1].dims.len(), &spec.inputs[0], 1);
        // A thread loads an index, and then elements of the row that it selects.
        let (blocks, instructions, waits) = match (stream(spec, &columns), row_groups(spec, &columns)) {
            (Some(stream), _) => (stream.blocks(), stream.instructions(PER_INDEX), stream.rows_of_a_thread()),
            (None, Some(groups)) => (groups.blocks(), groups.instructions(), 1),
            (None, None) => (row_packs(spec, &columns).blocks(), 0.0, 1),
        };
        Cost {
            read: rows(once) + Spec::bytes_of(&spec.inputs[1..]),
            // Device memory delivers a row once: accesses to a cache overlap with those to memory.
            reread: Traffic { device: 0, ..rows(bytes - once) },
            written: Spec::bytes_of(&spec.outputs),
            sectors: count as f64 * sectors_of(bytes / count.max(1))
                + ((bytes + spec.inputs[1].bytes()) / SECTOR) as f64,
            blocks,
            instructions,
            share: 4,
            waits: waits as f64,
            ..Cost::default()
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let rows = spec.inputs[0].dims[0];
        let inner = (spec.inputs[0].elements() / rows) as usize;
        for (out, &index) in outputs[0].chunks_mut(inner.max(1)).zip(inputs[1]) {
            if index >= 0.0 && index < rows as f64 {
                out.copy_from_slice(&inputs[0][index as usize * inner..][..inner]);
            } else {
                out.fill(0.0);
            }
        }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let lead = i.dims.len();
        let columns = Columns::of(y, lead, x, 1);
        let outer = head_geometry(y, i, lead);
        if let Some(stream) = stream(spec, &columns) {
            let row = RowText {
                params: vec![
                    param(format!("const {}* __restrict__ i", c_type(i.dtype)), Arg::Operand(1)),
                    geometry_param("outer", &outer),
                    u64_param("rows", x.dims[0]),
                    u64_param("sx", x.strides[0]),
                ],
                text: INDEXED,
            };
            return vec![stream.launch("gather", spec, (2, 0), row)];
        }
        let dtype = c_type(x.dtype);
        let params = [
            param("E* __restrict__ y", Arg::Operand(2)),
            param("const E* __restrict__ x", Arg::Operand(0)),
            param(format!("const {}* __restrict__ i", c_type(i.dtype)), Arg::Operand(1)),
            geometry_param("outer", &outer),
            geometry_param("inner", &columns.geometry),
            u64_param("count", i.elements()),
            u64_param("rows", x.dims[0]),
            u64_param("sx", x.strides[0]),
            u64_param("n", columns.length),
        ];
        // The cache cannot hold the output until it is read: it keeps the rows of `x` instead, which may be selected again.
        let cached = if y.bytes() > CACHE { "#define CACHED \".cs\"\n" } else { "" };
        if let Some(groups) = row_groups(spec, &columns) {
            let before = format!("typedef {dtype} E;\n{cached}{}", groups.text(groups.threads()));
            return vec![launch("gather", &before, &params, GATHER_ROWS, groups.blocks(), BLOCK)];
        }
        let packs = row_packs(spec, &columns);
        let before = format!("typedef {dtype} E;\n{cached}{}", packs.text(&columns));
        vec![launch("gather", &before, &params, GATHER, packs.blocks(), BLOCK)]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::gather(rule)
    }
}

/// Kernel text: a thread copies packs of rows. It loads the index of each, then the packs, and then stores them.
const GATHER: &str = r#"  const Place begin = (Place)blockIdx.x * (256 * U) + threadIdx.x;
  E* to[U];
  Column columns[U];
  i64 indices[U];
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    const Place own = begin + u * 256, row = own / PACKS;
    if (row >= (Place)count) {
      indices[u] = -2;
      continue;
    }
    i64 at[2];
    outer.offsets(row, at);
    to[u] = y + at[0];
    columns[u] = (Column)(own - row * PACKS) * V - (Column)LEAD(to[u]);
    const i64 index = (i64)i[at[1]];
    indices[u] = index >= 0 && (u64)index < rows ? index : -1;
  }
  Raw held[U];
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    held[u] = Raw();
    if (indices[u] >= 0) held[u] = READ_ROW(x + indices[u] * (i64)sx, columns[u]);
  }
#pragma unroll
  for (u32 u = 0; u < U; u++) if (indices[u] > -2) PUT(to[u], columns[u], ELEMENTS(held[u]));
"#;

/// Kernel text: a group of threads copies a chunk of the row that an index selects.
const GATHER_ROWS: &str = r#"  const Place group = (Place)(GLOBAL_INDEX / LANES), row = group / CHUNKS;
  if (row >= (Place)count) return;
  i64 at[2];
  outer.offsets(row, at);
  const i64 index = (i64)i[at[1]];
  const bool exists = index >= 0 && (u64)index < rows;
  copy_row(y + at[0], x + (exists ? index : 0) * (i64)sx, exists, (u32)n, (u32)(group - row * CHUNKS), threadIdx.x % LANES);
"#;

/// Instructions of a thread that finds the row selected by an index.
const PER_INDEX: f64 = 30.0;

/// Kernel text that finds the row selected by an index.
const INDEXED: &str = "    i64 index = (i64)i[outer.offset(which, 1)];\n    inside = index >= 0 && (u64)index < rows;\n    \
                       return x + (inside ? index : 0) * (i64)sx;\n";

/// Returns the division of the selected rows into packs.
fn row_packs(spec: &Spec, columns: &Columns) -> RowPacks {
    let (pack, ragged) = columns.packs(spec.outputs[0].dtype);
    RowPacks::of(spec.inputs[1].elements(), columns.length, pack, ragged, PACKS_OF_A_THREAD)
}

/// Returns the division of the selected rows among groups of threads, if rows may begin inside a pack.
fn row_groups(spec: &Spec, columns: &Columns) -> Option<RowGroups> {
    match columns.packs(spec.outputs[0].dtype) {
        (pack, true) => RowGroups::of(spec.inputs[1].elements(), columns.length, pack),
        _ => None,
    }
}

/// Returns the division of an output that is written from one end to the other. `None` if the output has gaps, if rows
/// are long, or if packs divide the rows of both tensors. Also `None` for short rows of a tensor that the first-level cache cannot hold: a thread
/// reads the elements of a row one after the other, and the cache would load the row for each of them.
fn stream(spec: &Spec, columns: &Columns) -> Option<RowDivision> {
    let y = &spec.outputs[0];
    let alike = columns.pack == columns.written && columns.pack == columns.read;
    let is_whole = alike && (columns.pack == columns.length || columns.pack * y.dtype.size() == 16);
    let pack = 16 / y.dtype.size();
    if !columns.flat() || is_whole || columns.length >= LONG_ROW * pack * pack {
        return None;
    }
    // Reading a pack of large elements takes as many loads as reading the elements one by one.
    let is_single = columns.length < pack || pack <= 4;
    if is_single && spec.inputs[0].bytes() > UNIT_CACHE {
        return None;
    }
    RowDivision::of(y, columns.length, if is_single { RowReads::Elements } else { RowReads::Packs })
}

/// Division among threads of the elements of a row: the part of input and output that belongs to one index.
pub(in crate::ops) struct Columns {
    /// Shape of a row, with the strides of the output and of the input.
    pub geometry: Geometry,
    /// Number of elements of a row.
    pub length: u64,
    /// Number of neighbouring elements that a thread processes together.
    pub pack: u64,
    /// Number of elements that one instruction writes.
    written: u64,
    /// Number of elements that one instruction reads.
    read: u64,
    /// Number of threads that share the elements; a power of two.
    pub threads: u64,
}

impl Columns {
    /// Returns the division for rows that consist of the dimensions after the first `skip_y` of the output and `skip_x`
    /// of the input.
    pub fn of(y: &Tensor, skip_y: usize, x: &Tensor, skip_x: usize) -> Columns {
        let geometry = tail_geometry(y, skip_y, x, skip_x);
        let length: u64 = y.dims[skip_y..].iter().product();
        let flat = geometry.strides.iter().all(|strides| matches!(&**strides, [] | [1]));
        let widest = if flat { 16 / x.dtype.size() } else { 1 };
        let aligned = |tensor: &Tensor, skip: usize, width: u64| {
            u64::from(tensor.align).is_multiple_of(width * tensor.dtype.size())
                && tensor.strides[..skip].iter().all(|stride| stride.is_multiple_of(width))
        };
        let pack = widest_pack(widest, |width| length.is_multiple_of(width));
        let threads = length.div_ceil(pack).next_power_of_two().min(u64::from(BLOCK));
        Columns {
            length,
            pack,
            written: widest_pack(pack, |width| aligned(y, skip_y, width)),
            read: widest_pack(pack, |width| aligned(x, skip_x, width)),
            threads,
            geometry,
        }
    }

    /// Returns the number of elements of a pack, and whether rows may begin inside a pack. Packs have 16 bytes if rows
    /// are contiguous in both tensors and have at least two packs.
    pub fn packs(&self, dtype: DType) -> (u64, bool) {
        let widest = 16 / dtype.size();
        let aligned = self.pack == self.written && self.pack == self.read;
        match self.flat() && self.length >= 2 * widest && !(aligned && self.pack == widest) {
            true => (widest, true),
            false => (self.pack, false),
        }
    }

    /// True if rows are contiguous in both tensors.
    fn flat(&self) -> bool {
        self.geometry.strides.iter().all(|strides| matches!(&**strides, [] | [1]))
    }

    /// Returns kernel text for the packs of [`Columns::packs`], where `n` is the length of a row. `FETCH(row, j)` loads
    /// the pack at element `j`, `PUT(row, j, v)` stores it, and `LEAD(row)` is the number of elements from the start of
    /// the row's first pack to the start of the row. `READ_ROW(row, j)` only issues the loads of a pack, as a `Raw`
    /// value with elements of type `E`, and `ELEMENTS(raw)` waits for them, so that several packs can be in flight.
    pub fn text_of_packs(&self, pack: u64, ragged: bool) -> String {
        if ragged {
            return format!(
                "{}typedef {} Column;\n#define V {pack}\n{RAGGED}#define FETCH(row, j) fetch_row(row, (Column)(j), (Column)n)\n\
                 #define PUT(row, j, v) put_row(row, (Column)(j), (Column)n, v)\n#define LEAD(row) (i64)lead_of(row)\n\
                 #define Raw Held<E>\n#define READ_ROW(row, j) read_row(row, (Column)(j), (Column)n)\n#define ELEMENTS(raw) (raw).elements()\n",
                bounds(BLOCK),
                if self.length < MAX_COLUMN { "i32" } else { "i64" }
            );
        }
        let text = self.text_without_lanes();
        format!(
            "typedef i64 Column;\n{text}#define FETCH(row, j) fetch(row + COLUMN(j, 1))\n#define PUT(row, j, v) put(row + COLUMN(j, 0), v)\n#define LEAD(row) 0\n\
             #define Raw Pack<E, V>\n#define READ_ROW(row, j) FETCH(row, j)\n#define ELEMENTS(raw) (raw)\n"
        )
    }

    /// Returns kernel text that loads and stores packs of `V` elements. `COLUMN(j, which)` is the offset of element `j`
    /// in the output (`which` is 0) or the input (1).
    pub fn text(&self) -> String {
        format!("#define LANES {}\n{}", self.threads, self.text_without_lanes())
    }

    fn text_without_lanes(&self) -> String {
        let index = index_type(self.length);
        let place = match self.flat() {
            true => "(j)".to_owned(),
            false => format!("inner.offset(({index})(j), which)"),
        };
        format!(
            "{}#define V {}\n#define WRITTEN {}\n#define READ {}\n#define COLUMN(j, which) {place}\n{PACKS}",
            bounds(BLOCK),
            self.pack,
            self.written,
            self.read,
        )
    }
}

/// Number of packs of 16 bytes per row, divided by the number of elements per pack, from which on threads process packs
/// of a row. The partial packs at both ends of a shorter row, which take one store per element, would outweigh the
/// others.
const LONG_ROW: u64 = 2;

/// Maximum number of packs per thread, if all threads have one. Their loads are in flight at the same time.
pub(in crate::ops) const PACKS_OF_A_THREAD: u64 = 2;

/// Division of rows among threads by packs. Neighbouring threads process neighbouring packs, and go on in the next row,
/// so that rows of any length keep all threads busy.
pub(in crate::ops) struct RowPacks {
    /// Number of elements per pack.
    pub pack: u64,
    /// True if rows may begin inside a pack.
    pub ragged: bool,
    /// Number of packs per row.
    of_row: u64,
    /// Number of packs of all rows.
    pub count: u64,
    /// Number of packs per thread.
    each: u64,
}

impl RowPacks {
    /// Returns the division of rows of `length` elements. A thread has at most `most` packs.
    pub fn of(rows: u64, length: u64, pack: u64, ragged: bool, most: u64) -> RowPacks {
        let of_row = packs_of_rows(length, pack, ragged).max(1);
        let count = rows * of_row;
        let each = (count / (RESIDENT_BLOCKS * u64::from(BLOCK))).clamp(1, most);
        RowPacks { pack, ragged, of_row, count, each }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.count.div_ceil(self.each * u64::from(BLOCK)).max(1)
    }

    /// Returns kernel text that defines the number of packs of a row, `PACKS`, and of a thread, `U`; the type of pack
    /// numbers, `Place`; and everything that [`Columns::text_of_packs`] defines.
    pub fn text(&self, columns: &Columns) -> String {
        format!(
            "typedef {} Place;\n#define PACKS {}\n#define U {}\n{}",
            index_type(self.count + self.each * u64::from(BLOCK)),
            self.of_row,
            self.each,
            columns.text_of_packs(self.pack, self.ragged)
        )
    }
}

/// Returns the largest of `most`, `most / 2`, `most / 4`, … for which `fits` is true; 1 if there is none.
fn widest_pack(most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    halves(most).find(|&width| fits(width)).unwrap_or(1)
}

/// Kernel text that loads and stores `V` elements with as few instructions as the alignment of each side allows.
const PACKS: &str = r#"
template <typename P> __device__ inline void put_pack(P* to, const P& v) {
#if defined(CACHED) && defined(__CUDA_ARCH__)
  if (sizeof(P) == 16) {
    union Words { P pack; u32 w[4]; __device__ Words() {} } all;
    all.pack = v;
    asm volatile("st.global" CACHED ".v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(all.w[0]), "r"(all.w[1]), "r"(all.w[2]), "r"(all.w[3]) : "memory");
    return;
  }
#endif
  *to = v;
}
template <typename T> __device__ inline Pack<T, V> fetch(const T* from) {
  Pack<T, V> v;
#pragma unroll
  for (int i = 0; i < V; i += READ) {
    Pack<T, READ> piece = *(const Pack<T, READ>*)(from + i);
#pragma unroll
    for (int c = 0; c < READ; c++) v.at[i + c] = piece.at[c];
  }
  return v;
}
template <typename T> __device__ inline void put(T* to, const Pack<T, V>& v) {
#pragma unroll
  for (int i = 0; i < V; i += WRITTEN) {
    Pack<T, WRITTEN> piece;
#pragma unroll
    for (int c = 0; c < WRITTEN; c++) piece.at[c] = v.at[i + c];
    put_pack((Pack<T, WRITTEN>*)(to + i), piece);
  }
}
"#;
