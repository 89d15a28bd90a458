//! Model of how the vendors' libraries divide a product among blocks.
//!
//! Compared with 300 random products on an H200, times from this model are off by a factor of 1.4 on average
//! (docs/measurements/2026-11-23-unseen-shapes.md).

use super::*;
use crate::ops::kernels::occupancy::UNITS;

/// Numbers of rows and of columns of the tiles that libraries choose from, for aligned factors of at most 16 bits. Of divisions that
/// take as long, libraries choose the largest tiles, which load their factors least often.
const TILES: [u64; 3] = [256, 128, 64];
/// Numbers of rows and of columns of the tiles for other factors.
const SMALL_TILES: [u64; 3] = [128, 64, 32];
/// Rows of a block of the kernel that multiplies a matrix and a vector.
const VECTOR_ROWS: u64 = 64;
/// Terms of the depth that a block of that kernel loads at once.
const VECTOR_TERMS: f64 = 256.0;
/// Depth from which on blocks share it: 1024 to 4096 terms take 0.57 ns each with 128 results, further ones 0.2 ns
/// (docs/measurements/2026-11-29-queues-and-graphs.md).
const VECTOR_DEPTH: u64 = 4096;
/// Largest number of results of a tile, whose sums fill half of an SM's registers.
const LARGEST_TILE: u64 = 256 * 128;

/// Rows and columns of a tile with scaling factors of rows and columns or of blocks: even a few tiles take as long as if all had this
/// size.
const SCALED_TILE: u64 = 128;
/// Depth of a step of a tile with scaling factors.
const SCALED_STEP: u64 = 128;
/// Depth for which a tile with scaling factors takes as long as its first loads, its factors and its stores: 1.3 µs of 2.8 µs with 512
/// terms, and of 14 µs with 4096 (measured on an H100).
const SCALED_DEPTH: u64 = 400;
/// Depth per block if blocks share the depth of a tile with factors of blocks: two blocks share 6144 and 7168 terms, three 8192 and
/// 10240, and four 12288; one block takes 5120 (measured on an H100).
const SCALED_PART: u64 = 3072;
/// Multiple in which the library divides such a depth.
const SCALED_SHARED_STEP: u64 = 512;

/// Time of a tile of a nearly idle device, as a fraction of its time if all SMs multiply, which power then limits: a term of the depth
/// takes 2.2 ns with up to eight tiles of 128 × 128 in 8 bits, and 3.1 ns if all SMs have tiles. With factors of blocks, which the
/// library applies to the sums of each step, it takes 2.55 ns (measured on an H100).
const ALONE: f64 = 0.71;
const ALONE_IN_BLOCKS: f64 = 0.82;

/// Minimum depth per block if blocks share the depth, because there are fewer tiles than SMs.
const MIN_DEPTH: u64 = 64;
/// Maximum number of blocks that share the depth of a tile.
const MAX_PARTS: u64 = 64;
/// As [`MAX_PARTS`], without matrix units: products of few tiles take as long as a batch of 32 parts whose sums a kernel adds up
/// (docs/measurements/2026-11-28-sizes-of-groups.md).
const MAX_WIDE_PARTS: u64 = 32;

/// Maximum number of blocks that an SM processes at the same time.
const RESIDENT_BLOCKS: u64 = 4;

/// Number of results of a tile whose products take as long as the latency of a term of the depth, in a block that has
/// an SM to itself, with matrix units: 64 terms take 110 ns with 16 bits (measured on an H100).
const LATENCY: f64 = 4800.0;
/// As [`LATENCY`], with `tf32`: 192 terms take 1.3 µs in a tile of 64 × 64, as in tiles of 128 × 64
/// (docs/measurements/2026-11-29-queues-and-graphs.md).
const TF32_LATENCY: f64 = 9000.0;
/// As [`LATENCY`], without matrix units: 8 terms take 250 ns with `f32` (measured on an H100).
const WIDE_LATENCY: f64 = 5800.0;

/// As [`LATENCY`], per row and column of a tile, of kernels for rows of any alignment, which load elements one by one:
/// a term takes 10 ns for tiles of 32 × 32, and 25 ns for 64 × 64.
const UNALIGNED_LATENCY: f64 = 64.0;

/// Number of products of a row and a column of a tile that take as long as loading a term of one row or column. Without matrix units, a
/// term is loaded from shared memory; with rows of any alignment, element by element: a term of tiles of 64 × 64 takes an SM 16 to 18 ns,
/// however many blocks it has (measured on an H100).
const PER_LOADED: f64 = 50.0;

/// Number of terms of the depth that take as long as the first loads and the last stores of a block of a kernel for
/// rows of any alignment.
const DEPTH_OF_BLOCK: u64 = 64;

/// Operations of an SM of an H100 per ns with matrix units in 16 bits.
const OPERATIONS: f64 = 5500.0;
/// Operations of an SM of an H100 per ns without matrix units.
const WIDE_OPERATIONS: f64 = 390.0;
/// Fraction of [`OPERATIONS`] that kernels for rows of any alignment reach.
const UNALIGNED: f64 = 0.14;
/// Rate of kernels that load [`PAIR`] bytes or more, as a multiple of that of kernels that load less: only the former copy to shared
/// memory without registers (measured on an H100: 140 to 225 instead of 55 to 120 TFLOP/s with 16 bits, 120 to 137 with `tf32`).
const PAIRED: f64 = 2.0;
/// Number of bytes that an instruction copies to shared memory at least.
const PAIR: u64 = 4;
/// Time in ns of adding the sums of blocks that share the depth.
const JOIN: f64 = 3000.0;
/// Bytes per ns at which the cache accepts and serves these sums.
const JOIN_BANDWIDTH: f64 = 7600.0;

/// Time in ns until a block has its first operands.
const FIRST_ACCESS: f64 = 350.0;

/// Bytes that the device reads from its memory, or writes, per ns.
const BANDWIDTH: f64 = 2500.0;
/// Fraction of [`BANDWIDTH`] at which kernels for rows of any alignment read the factors.
const UNALIGNED_BANDWIDTH: f64 = 0.6;

/// Division of a product among blocks.
struct Division {
    /// Number of blocks.
    blocks: u64,
    /// Operations of all blocks, plus those that would take the time that padding and latencies take.
    flops: f64,
    /// Number of blocks that share the depth of a tile.
    parts: u64,
}

impl Division {
    /// The fastest division of `batch` products of m × n × k, and the estimated time of its blocks in ns. `pack` is the number of elements that kernels for rows of any alignment load
    /// at once; `None` if rows are aligned. `size` is that of an element in bytes, and `may_share` tells whether blocks may share the depth.
    fn of(
        (m, n, k, batch): (u64, u64, u64, u64),
        is_wide: bool,
        pack: Option<u64>,
        size: u64,
        may_share: bool,
    ) -> (f64, Division) {
        let is_unaligned = pack.is_some();
        let tiles: &[u64] = if is_wide || is_unaligned { &SMALL_TILES } else { &TILES };
        let rate = if is_wide {
            WIDE_OPERATIONS
        } else if is_unaligned {
            OPERATIONS * UNALIGNED
        } else {
            // Matrix units multiply as many bytes of each type.
            OPERATIONS * 2.0 / size as f64
        };
        let is_paired = pack.is_some_and(|pack| pack * size >= PAIR);
        let of_division = |rows: u64, columns: u64, parts: u64| {
            let blocks = (m.div_ceil(rows) * n.div_ceil(columns) * batch).max(1) * parts;
            let beside = blocks.div_ceil(UNITS).min(RESIDENT_BLOCKS) as f64;
            let sides = (rows + columns) as f64;
            let (loads, latency) = match (is_wide, is_unaligned) {
                (true, _) => (PER_LOADED * sides, WIDE_LATENCY),
                (false, true) => (PER_LOADED * sides / pack.unwrap_or(1) as f64, UNALIGNED_LATENCY * sides),
                (false, false) => (0.0, if size == 4 { TF32_LATENCY } else { LATENCY }),
            };
            let products = (rows * columns) as f64 / if is_paired { PAIRED } else { 1.0 };
            let area = products.max(loads).max(latency / beside);
            let depth = k.div_ceil(parts) + if is_unaligned { DEPTH_OF_BLOCK } else { 0 };
            let of_block = 2.0 * area * depth as f64;
            let division = Division { blocks, flops: of_block * blocks as f64, parts };
            let joined = parts_bytes((m, n, batch), &division) as f64 / JOIN_BANDWIDTH;
            let time = blocks.div_ceil(UNITS) as f64 * (of_block / rate).max(FIRST_ACCESS)
                + if parts > 1 { JOIN + joined } else { 0.0 };
            (time, division)
        };
        let shapes = tiles.iter().flat_map(|&rows| tiles.iter().map(move |&columns| (rows, columns)));
        let shapes = shapes.filter(|(rows, columns)| rows * columns <= LARGEST_TILE);
        // Without matrix units, measured times of batches agree with whole depths (docs/measurements/2026-11-28-evening-operations.md).
        let can_share = may_share && !(is_wide && batch > 1);
        let max_parts = if is_wide { MAX_WIDE_PARTS } else { MAX_PARTS };
        let most = if can_share { (k / MIN_DEPTH).clamp(1, max_parts) } else { 1 };
        let all = shapes.flat_map(|(rows, columns)| {
            let tiles = (m.div_ceil(rows) * n.div_ceil(columns) * batch).max(1);
            let parts = (1..=RESIDENT_BLOCKS).map(move |waves| (waves * UNITS / tiles).clamp(1, most));
            [1].into_iter().chain(parts).map(move |parts| of_division(rows, columns, parts))
        });
        all.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are tiles")
    }

    /// The division with scaling factors of rows and columns or of blocks, and the estimated time of its blocks in ns. A block has one tile
    /// after the other.
    fn scaled((m, n, k, batch): (u64, u64, u64, u64), form: ScaleForm) -> (f64, Division) {
        let tiles = (m.div_ceil(SCALED_TILE) * n.div_ceil(SCALED_TILE) * batch).max(1);
        let (parts, alone) = match form {
            ScaleForm::Blocks if k < 2 * SCALED_PART => (1, ALONE_IN_BLOCKS),
            ScaleForm::Blocks => {
                let parts = (k + SCALED_PART / 2) / SCALED_PART;
                (parts.min(UNITS / tiles).max(1), ALONE_IN_BLOCKS)
            }
            ScaleForm::Tensor | ScaleForm::RowsAndColumns => (1, ALONE),
        };
        let step = if parts > 1 { SCALED_SHARED_STEP } else { SCALED_STEP };
        let depth = k.div_ceil(parts).next_multiple_of(step) + SCALED_DEPTH;
        let (blocks, of_block) = (tiles * parts, 2.0 * (SCALED_TILE * SCALED_TILE * depth) as f64);
        let of_block = of_block * slowed(blocks, alone);
        let time = blocks.div_ceil(UNITS) as f64 * of_block / (2.0 * OPERATIONS);
        (time, Division { blocks, flops: of_block * blocks as f64, parts })
    }
}

/// Alignment of rows in bytes that the fast kernels require of the factors and of the result (NVIDIA, "Matrix Multiplication Background User's Guide").
pub const ALIGNMENT: u64 = 16;

/// True if the library multiplies a matrix and a vector, by a kernel without matrix units, which reads rows of any alignment.
fn is_vector(gemm: &Gemm, spec: &Spec) -> bool {
    let (m, n, ..) = sizes(spec);
    let is_alone = spec.inputs[0].dtype.size() > 2 || library_epilogue(spec).is_none();
    let has_rows = || has_aligned_rows(&spec.inputs[usize::from(m <= n)]);
    matches!(gemm, Gemm::Plain) && m.min(n) <= 1 && (is_alone || !has_rows())
}

/// Number of loads for which a block waits, one after the other.
pub fn waits(gemm: &Gemm, spec: &Spec) -> f64 {
    let (_, _, k, _) = sizes(spec);
    if is_vector(gemm, spec) { k.min(VECTOR_DEPTH) as f64 / VECTOR_TERMS } else { 0.0 }
}

/// Returns the number of blocks of a product, and how they divide it.
pub fn tiling(gemm: &Gemm, spec: &Spec) -> (u64, Tiling) {
    let (m, n, k, batch) = sizes(spec);
    let flops = |rows: u64, columns: u64| 2.0 * rows as f64 * columns as f64 * k as f64 * batch as f64;
    let is_narrow = spec.inputs[0].dtype.size() <= 2;
    if is_vector(gemm, spec) {
        let blocks = (m.max(n).div_ceil(VECTOR_ROWS) * batch).max(UNITS);
        return (blocks, Tiling { flops: flops(m, n), ..Tiling::default() });
    }
    let scaled = scales(spec).map(|scales| scales.form).filter(|form| *form != ScaleForm::Tensor);
    let products = products(spec);
    let by_units = is_narrow || arithmetic(spec) == Arithmetic::Tf32;
    let pack = if by_units { products.first().and_then(pack_of) } else { None };
    let operands = spec.inputs[..2].iter().chain(&spec.outputs);
    let unaligned: u64 = if pack.is_some() { operands.map(Tensor::bytes).sum() } else { 0 };
    let division = match scaled {
        Some(form) => Division::scaled((m, n, k, batch), form).1,
        None => {
            let may_share = !products.iter().any(loses_terms);
            let size = if is_narrow || pack.is_some() { 2 } else { 4 };
            Division::of((m, n, k, batch), !is_narrow && is_vectorized(spec), pack, size, may_share).1
        }
    };
    // Loads and latencies of rows of any alignment take as long as with 16 bits, in which matrix units have twice the rate of `tf32`.
    let rate = if pack.is_some() && !is_narrow { 0.5 } else { 1.0 };
    let tiling = Tiling {
        flops: rate * division.flops,
        shares_depth: division.parts > 1,
        unaligned,
        converted: parts_bytes((m, n, batch), &division) / 2,
        ..Tiling::default()
    };
    (division.blocks, tiling)
}

/// Number of elements that the library's kernels for rows of any alignment load at once; `None` if its fast kernels
/// compute the product. Fast kernels load and store packs along rows in memory, so the length of rows must be a
/// multiple of a pack, too.
pub fn pack_of(gemm: &launch::Gemm) -> Option<u64> {
    let launch::Gemm { m, n, k, .. } = *gemm;
    let starts_at = |matrix: &launch::Matrix, (rows, columns): (u64, u64), alignment: u64| {
        let (bytes, length) = (matrix.dtype.size(), if matrix.transposed { rows } else { columns });
        u64::from(matrix.align).is_multiple_of(alignment)
            && [matrix.row, matrix.batch, length].iter().all(|stride| (stride * bytes).is_multiple_of(alignment))
    };
    let matrices = [(&gemm.a, (m, k)), (&gemm.b, (k, n)), (&gemm.c, (m, n))];
    let all_begin_at = |alignment| matrices.iter().all(|(matrix, sides)| starts_at(matrix, *sides, alignment));
    let size = gemm.a.dtype.size();
    let pack = || [4, 2].into_iter().find(|pack| all_begin_at(pack * size)).unwrap_or(1);
    (!all_begin_at(ALIGNMENT)).then(pack)
}

/// Mean time of a block of a launch with this many, relative to its time if all SMs multiply. The last wave occupies a part of them.
/// `alone` is the relative time of a block that has the device to itself.
fn slowed(blocks: u64, alone: f64) -> f64 {
    let last = match blocks % UNITS {
        0 => UNITS,
        last => last,
    };
    let waves = blocks.div_ceil(UNITS) as f64;
    (waves - (1.0 - alone) * (1.0 - last as f64 / UNITS as f64)) / waves
}

/// True if vector units multiply.
fn is_vectorized(spec: &Spec) -> bool {
    matches!(arithmetic(spec), Arithmetic::F32 | Arithmetic::F64)
}

/// Bytes that are written and read for the sums of blocks that share the depth; 0 if no blocks do.
fn parts_bytes((m, n, batch): (u64, u64, u64), division: &Division) -> u64 {
    if division.parts > 1 { 8 * m * n * batch * division.parts } else { 0 }
}

/// True if each row of a matrix begins at a multiple of [`ALIGNMENT`].
pub fn has_aligned_rows(tensor: &Tensor) -> bool {
    let lead = &tensor.strides[..tensor.dims.len() - 1];
    u64::from(tensor.align).is_multiple_of(ALIGNMENT)
        && lead.iter().all(|stride| (stride * tensor.dtype.size()).is_multiple_of(ALIGNMENT))
}

/// Returns the estimated time in ns of a plain product of the library.
pub fn product_time(gemm: &launch::Gemm) -> f64 {
    let (time, cost) = divided(gemm);
    let unaligned = cost.tiling.unaligned as f64 * (1.0 / UNALIGNED_BANDWIDTH - 1.0);
    time.max(((cost.read + cost.written).total() as f64 + unaligned) / BANDWIDTH)
}

/// Returns the cost of a plain product of the library as a launch of another operation.
pub fn product_cost(gemm: &launch::Gemm) -> Cost {
    divided(gemm).1
}

/// True if cuBLASLt may leave out the last terms of a sum if blocks share the depth: it does so for some depths of 16-bit types that are not
/// multiples of 8, if the rows of both factors begin at multiples of 16 bytes. PyTorch's results on an H200 lack the same terms
/// (docs/measurements/2026-11-28-lost-terms.md). The cost of a product assumes it for all devices, since costs do not know the vendor.
pub fn loses_terms(gemm: &launch::Gemm) -> bool {
    let is_aligned = |matrix: &launch::Matrix| {
        u64::from(matrix.align) >= ALIGNMENT && (matrix.row * matrix.dtype.size()).is_multiple_of(ALIGNMENT)
    };
    gemm.a.dtype.size() == 2 && !gemm.k.is_multiple_of(8) && [&gemm.a, &gemm.b].into_iter().all(is_aligned)
}

/// Returns the estimated time in ns of the blocks of a plain product of the library, and its cost.
fn divided(gemm: &launch::Gemm) -> (f64, Cost) {
    let launch::Gemm { m, n, k, batch, .. } = *gemm;
    let flops = |rows: u64, columns: u64| 2.0 * rows as f64 * columns as f64 * k as f64 * batch as f64;
    let size = gemm.a.dtype.size();
    let elements = [m * k, k * n, m * n].map(|elements| elements * batch);
    let bytes = |index: usize, matrix: &launch::Matrix| elements[index] * matrix.dtype.size();
    let factors = [(0, &gemm.a), (1, &gemm.b)];
    let is_narrow = size <= 2 || gemm.arithmetic == Arithmetic::Tf32;
    let pack = if is_narrow { pack_of(gemm) } else { None };
    let read = factors.into_iter().map(|(index, matrix)| bytes(index, matrix)).sum();
    let is_wide = matches!(gemm.arithmetic, Arithmetic::F32 | Arithmetic::F64);
    let (time, division) = match gemm.scales {
        Some(Scales { form: form @ (ScaleForm::RowsAndColumns | ScaleForm::Blocks), .. }) => {
            Division::scaled((m, n, k, batch), form)
        }
        _ => Division::of((m, n, k, batch), is_wide, pack, size, !loses_terms(gemm)),
    };
    let cost = Cost {
        flops: flops(m, n),
        read: Traffic::of(Space::Device, read),
        written: Traffic::of(Space::Device, bytes(2, &gemm.c)),
        blocks: division.blocks,
        share: Cost::WHOLE_UNIT,
        matrix: Some(gemm.arithmetic),
        tiling: Tiling {
            flops: division.flops,
            shares_depth: division.parts > 1,
            unaligned: if pack.is_some() { read } else { 0 },
            converted: parts_bytes((m, n, batch), &division) / 2,
            ..Tiling::default()
        },
        ..Cost::default()
    };
    (time, cost)
}

/// Effective rows and columns of the part of a large product within which blocks share the operands that they read, by
/// clusters and caches: estimated from products of 1856, 5760 and 6336 rows from pinned memory on an H200
/// (docs/measurements/2026-11-22-shared-links.md).
const LARGE_TILE: u64 = 384;

/// Bytes that blocks read although another block has read them before. Device memory's cache serves these; the host's
/// memory has no cache on the device, so each column of tiles reads its matrix over the link (measured on an H200: a
/// product of 5760 × 5760 from pinned memory takes 15 times as long as its bytes,
/// docs/measurements/2026-11-22-shared-links.md).
pub fn reread(spec: &Spec, m: u64, n: u64) -> Traffic {
    let again = |tensor: &Tensor, across: u64| {
        let host = Traffic::of(tensor.space, tensor.bytes()).host;
        Traffic { device: 0, host: host * (across.div_ceil(LARGE_TILE) - 1) }
    };
    again(&spec.inputs[0], n.max(1)) + again(&spec.inputs[1], m.max(1))
}
