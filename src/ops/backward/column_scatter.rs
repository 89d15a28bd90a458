//! Zeros with elements at columns that are distinct in each row: the gradient of `sort` and `top_k`. Only gradients create this operation; no
//! file can name it.
//!
//! A block collects a tile in shared memory and writes it as a whole. A tile has several rows, or a part of one, for which the block reads
//! all indices of the row. If an SM moves fewer bytes, a sector for each element, threads store elements one by one instead.

use crate::ops::kernels::kernel::{BLOCK, Parameter, bounds, geometry_param, index_type, launch, param, u64_param};
use crate::ops::kernels::occupancy::{DEFAULT_SHARED, SECTOR, UNITS, share};
use crate::ops::kernels::rows::Rows;
use crate::ops::*;

/// Sizes of a tile in bytes: one that leaves room for as many blocks as an SM can run, and the largest that needs no attribute.
const TILE_BYTES: [u64; 2] = [16 << 10, DEFAULT_SHARED];

/// Minimum number of elements of a tile that is a part of a row.
const LEAST_TILE: u64 = 1024;

/// Number of blocks per SM up to which tiles get fewer rows.
const BLOCKS_PER_UNIT: u64 = 4;

/// Bytes of a pack that a thread writes.
const PACK_BYTES: u64 = 16;

/// Instructions per index that a thread compares; an estimate.
const PER_INDEX: f64 = 14.0;
/// Instructions per pack of a tile; an estimate.
const PER_PACK: f64 = 16.0;

/// `column_scatter(x, columns)`: element `j` of a row of `x` goes to column `columns[j]` of the row of the output.
pub struct ColumnScatter;

/// The only operation of this type.
pub static COLUMN_SCATTER: ColumnScatter = ColumnScatter;

/// Division of the output among blocks.
struct Tiles {
    /// Rows of the output, of the elements and of their columns.
    rows: Rows,
    /// Number of elements of a row of `x`.
    count: u64,
    /// Size of an element in bytes.
    size: u64,
    /// Number of rows of a tile. A tile of several rows has all columns.
    tile_rows: u64,
    /// Number of columns of a tile.
    columns: u64,
    /// True if blocks write packs, which are aligned and divide the tiles.
    is_packed: bool,
    /// True if threads store elements one by one instead.
    is_direct: bool,
}

impl Tiles {
    fn of(spec: &Spec) -> Tiles {
        let [x, columns] = [&spec.inputs[0], &spec.inputs[1]];
        let y = &spec.outputs[0];
        let rows = Rows::of(&[y, x, columns]);
        let (length, size) = (rows.length.max(1), y.dtype.size());
        let count = x.dims[x.dims.len() - 1];
        // Bytes of the indices that all blocks of a row read, for tiles of this many columns.
        let read = |tile: u64| length.div_ceil(tile) * count * columns.dtype.size();
        let [small, large] = TILE_BYTES.map(|bytes| bytes / size);
        let mut tile = if length <= small || read(small) <= length * size { small } else { large };
        let zeros = if count < length { length * size } else { 0 };
        while length > LEAST_TILE
            && tile > LEAST_TILE
            && rows.count * length.div_ceil(tile) < UNITS
            && read(tile / 2) <= length * size
        {
            tile /= 2;
        }
        // Bytes that the busiest SM moves: few tiles leave most SMs idle.
        let of_unit = |bytes: u64, blocks: u64| rows.count * bytes / blocks.clamp(1, UNITS);
        let by_tiles = of_unit(read(tile), rows.count * length.div_ceil(tile));
        let by_elements = of_unit(count * SECTOR + zeros, (rows.count * count).div_ceil(u64::from(BLOCK)));
        let is_direct = length > tile && by_tiles > by_elements;
        let tile_rows = match length <= tile {
            // A multiple of 16 rows consists of packs.
            true => match (tile / length).min(rows.count.div_ceil(UNITS * BLOCKS_PER_UNIT)).max(1) {
                few @ ..16 => few,
                many => many / 16 * 16,
            },
            false => 1,
        };
        let columns = length.min(tile);
        let divides = |elements: u64| (elements * size).is_multiple_of(PACK_BYTES);
        let is_packed = y.contiguous()
            && u64::from(y.align) >= PACK_BYTES
            && divides(tile_rows * columns)
            && (columns == length || divides(length));
        Tiles { rows, count, size, tile_rows, columns, is_packed, is_direct }
    }

    /// Number of tiles of a row.
    fn chunks(&self) -> u64 {
        self.rows.length.div_ceil(self.columns)
    }

    /// True if some elements of the output stay zero.
    fn has_zeros(&self) -> bool {
        self.count < self.rows.length
    }

    /// Number of blocks of the kernel of tiles.
    fn tiles(&self) -> u64 {
        self.rows.count.div_ceil(self.tile_rows).max(1) * self.chunks()
    }
}

impl Operation for ColumnScatter {
    signature! {
        name: "column_scatter",
        summary: "zeros with elements at columns that are distinct in each row",
        category: Category::Movement,
        inputs: &[Input::Tensor("x"), Input::Tensor("columns")],
        outputs: &["y"],
        options: &[],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rows()?;
        let [x, columns] = [0, 1].map(|input| call.inputs[input].tensor);
        call.needs_indices(&call.inputs[1])?;
        let Some(output) = call.outputs[0] else {
            return Err(call.no_output("the number of columns does not follow from the indices"));
        };
        let (last, y) = (x.dims.len() - 1, output.tensor.dims);
        if x.dims != columns.dims || y.len() != x.dims.len() || y[..last] != x.dims[..last] {
            let (has, found) = (format!("this is {x}"), format!("this is {columns}"));
            return Err(call.differs(0, has, 1, found, "each element has a column, and each row a row of the result"));
        }
        Ok(vec![call.output(0, x.dtype, y)?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let tiles = Tiles::of(spec);
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let (elements, of_output) = (x.elements() as f64, y.elements() as f64);
        let written = Spec::bytes_of(&spec.outputs);
        if tiles.is_direct {
            let plain = Cost { share: share(u64::from(BLOCK)), ..Cost::default() };
            let blocks = |elements: u64| elements.div_ceil(u64::from(BLOCK)).max(1);
            let zeros = Cost { written, instructions: PER_PACK * of_output, blocks: blocks(y.elements()), ..plain };
            let stores = Cost {
                read: Spec::bytes_of(&spec.inputs),
                written: Traffic::of(y.space, x.bytes()),
                sectors: elements + Spec::bytes_of(&spec.inputs).total() as f64 / SECTOR as f64,
                instructions: PER_INDEX * elements,
                blocks: blocks(x.elements()),
                ..plain
            };
            return if tiles.has_zeros() { vec![zeros, stores] } else { vec![stores] };
        }
        let chunks = tiles.chunks() as f64;
        let pack = if tiles.is_packed { PACK_BYTES / tiles.size } else { 1 } as f64;
        let columns = Traffic::of(spec.inputs[1].space, spec.inputs[1].bytes() * (tiles.chunks() - 1));
        vec![Cost {
            instructions: PER_INDEX * elements * chunks + PER_PACK * of_output / pack,
            reread: columns,
            blocks: tiles.tiles(),
            share: share(u64::from(BLOCK)),
            ..spec.streaming_cost(0.0, 1)
        }]
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let Tiles { rows, count, .. } = Tiles::of(spec);
        let (length, count) = (rows.length as usize, count as usize);
        outputs[0].fill(0.0);
        let rows = inputs[0].chunks(count.max(1)).zip(inputs[1].chunks(count.max(1)));
        for (to, (elements, columns)) in outputs[0].chunks_mut(length.max(1)).zip(rows) {
            for (&element, &column) in elements.iter().zip(columns) {
                if let Some(place) = to.get_mut(column as usize) {
                    *place = element;
                }
            }
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (spec.outputs[0].dims.len() > 1).then(|| Pieces::Rows(vec![true, true]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let tiles = Tiles::of(spec);
        let Tiles { rows, count, size, tile_rows, columns, is_packed, .. } = &tiles;
        let word = match size {
            1 => "u8",
            2 => "unsigned short",
            4 => "u32",
            _ => "u64",
        };
        let step = |tensor: usize| rows.steps[tensor];
        let params: Vec<Parameter> = vec![
            param("Word* y", Arg::Operand(2)),
            param("const Word* x", Arg::Operand(0)),
            param(format!("const {}* columns", kernel::c_type(spec.inputs[1].dtype)), Arg::Operand(1)),
            geometry_param("g", &rows.geometry),
            u64_param("rows", rows.count),
        ];
        let before = format!(
            "{}typedef {word} Word;\ntypedef {} Index;\n#define BLOCK {BLOCK}u\n#define ROWS {tile_rows}u\n#define LENGTH {}u\n#define COUNT {count}u\n\
             #define COLUMNS {columns}u\n#define CHUNKS {}u\n#define HAS_ZEROS {}\n#define PACKED {}\n#define Y(j) ((i64)(j) * {})\n\
             #define X(j) ((i64)(j) * {})\n#define AT(j) ((i64)(j) * {})\n",
            bounds(BLOCK),
            index_type(rows.count * rows.length.max(*count) + u64::from(BLOCK)),
            rows.length,
            tiles.chunks(),
            tiles.has_zeros(),
            is_packed,
            step(0),
            step(1),
            step(2),
        );
        if tiles.is_direct {
            let kernel = |name: &str, body: &str, elements: u64| {
                launch(name, &before, &params, body, elements.div_ceil(u64::from(BLOCK)).max(1), BLOCK)
            };
            let stores = kernel("column_scatter", STORE, rows.count * count);
            let zeros = tiles.has_zeros().then(|| kernel("column_zeros", ZEROS, rows.count * rows.length));
            return zeros.into_iter().chain([stores]).collect();
        }
        vec![launch("column_scatter", &before, &params, TILE, tiles.tiles(), BLOCK)]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::column_scatter(rule)
    }
}

/// Kernel text of a tile.
const TILE: &str = r#"  typedef Pack<u32, 4> Packed;
  __shared__ Packed room[(ROWS * COLUMNS * sizeof(Word) + 15) / 16];
  Word* tile = (Word*)room;
  const u32 begin = CHUNKS > 1 ? blockIdx.x % CHUNKS * COLUMNS : 0;
  const u32 width = LENGTH - begin < COLUMNS ? LENGTH - begin : COLUMNS;
  const Index first = (Index)(blockIdx.x / CHUNKS) * ROWS;
  const u32 here = rows - first < ROWS ? (u32)(rows - first) : ROWS;
  if (HAS_ZEROS) {
    for (u32 i = threadIdx.x; i < sizeof(room) / 16; i += BLOCK) room[i] = Packed{};
    __syncthreads();
  }
  // A thread loads several indices before it uses the first one.
  const u32 U = 4, all = here * COUNT;
  for (u32 base = threadIdx.x; base < all; base += U * BLOCK) {
    u32 column[U];
    Word value[U];
#pragma unroll
    for (u32 u = 0; u < U; u++) {
      const u32 i = base + u * BLOCK, row = i / COUNT, j = i % COUNT;
      column[u] = ~0u;
      if (i >= all) continue;
      column[u] = (u32)columns[g.offset(first + row, 2) + AT(j)] - begin;
      if (CHUNKS == 1) value[u] = x[g.offset(first + row, 1) + X(j)];
    }
#pragma unroll
    for (u32 u = 0; u < U; u++) {
      const u32 i = base + u * BLOCK, row = i / COUNT, j = i % COUNT;
      if (column[u] < width) tile[row * COLUMNS + column[u]] = CHUNKS == 1 ? value[u] : x[g.offset(first + row, 1) + X(j)];
    }
  }
  __syncthreads();
  if (PACKED) {
    const u32 OF_PACK = 16 / sizeof(Word), count = (here - 1) * COLUMNS + width;
    Word* to = y + (u64)first * LENGTH + begin;
    for (u32 i = threadIdx.x; i * OF_PACK < count; i += BLOCK) {
      if ((i + 1) * OF_PACK <= count) ((Packed*)to)[i] = room[i];
      else for (u32 e = i * OF_PACK; e < count; e++) to[e] = tile[e];
    }
    return;
  }
  for (u32 i = threadIdx.x; i < here * COLUMNS; i += BLOCK) {
    const u32 row = i / COLUMNS, column = i % COLUMNS;
    if (column < width) y[g.offset(first + row, 0) + Y(begin + column)] = tile[i];
  }
"#;

/// Kernel text: a thread stores an element at its column.
const STORE: &str = r#"  const Index i = (Index)GLOBAL_INDEX, row = i / COUNT, j = i % COUNT;
  if (row >= (Index)rows) return;
  const u32 column = (u32)columns[g.offset(row, 2) + AT(j)];
  if (column < LENGTH) y[g.offset(row, 0) + Y(column)] = x[g.offset(row, 1) + X(j)];
"#;

/// Kernel text: a thread stores a zero.
const ZEROS: &str = r#"  const Index i = (Index)GLOBAL_INDEX, row = i / LENGTH, j = i % LENGTH;
  if (row < (Index)rows) y[g.offset(row, 0) + Y(j)] = 0;
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tiles(dtype: DType, rows: u64, length: u64, count: u64) -> Tiles {
        let [x, columns] = [dtype, DType::I32].map(|dtype| Tensor::packed(dtype, &[rows, count]));
        let y = Tensor::packed(dtype, &[rows, length]);
        Tiles::of(&Spec::new(&COLUMN_SCATTER, Attrs::default(), vec![x, columns], vec![y]))
    }

    proptest! {
        /// Tiles cover the output, fit shared memory, and a tile of several rows has all columns.
        #[test]
        fn tiles_cover_the_output(
            rows in 1..100_000u64,
            length in prop_oneof![1..100u64, 1..400_000u64],
            share in 0.0..1.0f64,
            dtype in prop::sample::select(vec![DType::F64, DType::F32, DType::BF16]),
        ) {
            let tiles = tiles(dtype, rows, length, ((length as f64 * share) as u64).max(1));
            prop_assert!(tiles.tile_rows * tiles.columns * tiles.size <= DEFAULT_SHARED);
            prop_assert!(tiles.tile_rows == 1 || tiles.columns == length);
            prop_assert!(tiles.tiles() * tiles.tile_rows * tiles.columns >= rows * length);
        }
    }

    #[test]
    fn long_sorted_rows_are_stored_one_by_one() {
        assert!(tiles(DType::F32, 16, 1 << 20, 1 << 20).is_direct);
        // Blocks read few indices again and again.
        assert!(!tiles(DType::F32, 16, 1 << 20, 8).is_direct);
        assert!(!tiles(DType::F32, 1000, 4096, 4096).is_direct);
    }
}
