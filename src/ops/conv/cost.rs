//! The cost of a convolution: that of a library's kernels, of products, or of our own kernels, whichever takes the least time on an H100.

use super::super::launch::Gemm;
use super::super::matrix::product_cost;
use super::kernel::{FEW_ROWS, Method, Split, Tiles, splits};
use super::products::Products;
use super::*;
use crate::ops::kernels::occupancy::{
    BANDWIDTH, INSTRUCTIONS, LAUNCH, MATRIX_OPERATIONS, SECTOR, UNITS, VECTOR_OPERATIONS, WARP, lines_of, share,
    share_with,
};

/// Instructions of a thread that gathers a pack of neighbouring elements of a tile. It computes the place of a kernel
/// element by divisions (`PER_TAP`), and the places of the first and the last gathered element (`PER_ENDS`). The place
/// of each element of the pack follows from these (`PER_RUN`), or is computed and checked (`PER_CHECKED`).
const PER_TAP: f64 = 40.0;
const PER_ENDS: f64 = 40.0;
const PER_RUN: f64 = 3.0;
const PER_CHECKED: f64 = 27.0;

/// Instructions per element of the factor that a thread loads by itself for a tile.
const PER_FACTOR: f64 = 8.0;

/// Instructions per gathered element of a thread that computes a column.
const PER_ELEMENT: f64 = 10.0;

/// Instructions of a thread that computes a column, for its position.
const PER_COLUMN: f64 = 145.0;
/// Instructions of such a thread for each product.
const PER_PRODUCT: f64 = 3.0;

/// Instructions of a thread that sums up weights, per place. This and the following are counts in code for sm_90a by NVRTC 13.0.
const PER_PLACE: f64 = 60.0;
/// Instructions of such a thread per gathered element.
const PER_GATHERED: f64 = 8.0;
/// Instructions of such a thread per element of the other factor.
const PER_ROW: f64 = 7.0;
/// Instructions of such a thread to convert an element of 16 bits.
const PER_CONVERSION: f64 = 1.0;

/// Rows and columns of a tile of the library's kernels.
const TILE: u64 = 64;
/// Depth of a step of such a tile.
const STEP: u64 = 32;
/// Minimum depth of a block if blocks share the depth.
const MIN_DEPTH: u64 = 512;

/// Bytes of channels that the library's kernels read at once.
const CHANNELS_BYTES: u64 = 16;

/// Speed of a library's convolutions with matrix units of one type.
struct Library {
    /// Operations per ns of the matrix units in products, on an H100.
    units: f64,
    /// Rate of the library's kernels, as a share of `units`.
    rate: f64,
    /// Depth for which a tile takes as long as its first loads and its writes.
    tile_depth: f64,
}

const LIBRARY_16: Library = Library { units: MATRIX_OPERATIONS, rate: 0.42, tile_depth: 100.0 };
const LIBRARY_TF32: Library = Library { units: 370e3, rate: 0.58, tile_depth: 40.0 };

impl Library {
    /// Returns the library's kernels for an arithmetic of matrix units; `None` for any other arithmetic.
    fn of(arithmetic: Arithmetic) -> Option<Library> {
        match arithmetic {
            Arithmetic::F16 | Arithmetic::BF16 => Some(LIBRARY_16),
            Arithmetic::Tf32 => Some(LIBRARY_TF32),
            _ => None,
        }
    }
}

/// Rate of products whose rows do not begin at multiples of 16 bytes, as a share of others.
const UNALIGNED_RATE: f64 = 0.14;

/// Kernels that convert the layout, of both factors and of the result; and one that clears the result or a workspace.
const CONVERSIONS: u64 = 4;

/// Bytes of an element of a conversion: elements of 16 bits take as long as those of 32.
const CONVERTED_BYTES: u64 = 4;

/// Steps that blocks of the library load ahead.
const STAGES: f64 = 1.5;

/// Instructions per thread and sum of weights, to add those of other threads.
const PER_SUM: f64 = 20.0;

/// Bytes per ns of the cache of an H100.
const CACHE_BANDWIDTH: f64 = 7600.0;

/// Time in ns for which a step of a block waits.
const STEP_TIME: f64 = 300.0;
/// Time in ns of an instruction of a thread.
const INSTRUCTION: f64 = 1.1;

/// Registers of a thread of tiles of the matrix units.
const UNITS_REGISTERS: u64 = 128;
/// Registers of a thread of tiles of the vector units.
const VECTOR_REGISTERS: u64 = 80;

/// Registers of other threads besides their sums and operands: kernels with 3 to 96 of these have 28 to 128 registers on an H100.
const OTHER_REGISTERS: u64 = 28;

/// Exchanges among the threads of a block in each step: before and after it computes places and copies elements; and before and after it
/// copies elements.
const LINE_EXCHANGES: u64 = 3;
const FOLD_EXCHANGES: u64 = 2;

/// Instructions of a thread for its place in a tile.
const PER_TILE: f64 = 300.0;
/// Instructions of a thread per result of the tile.
const PER_RESULT: f64 = 40.0;

/// Instructions per product of a thread that computes a column of a transposed convolution, which divides places by the stride.
const PER_TURNED: f64 = 14.0;

/// Instructions that an SM issues in a cycle, for each thread of a warp.
const PER_CYCLE: f64 = 4.0;

/// Instructions that an SM could issue while its 32 units for loads and stores execute one of a warp: of words, and of packs of 16 bytes, of
/// which shared memory serves those of eight threads in a cycle.
const PER_LOAD: f64 = 3.0;
const PER_PACK: f64 = 15.0;

/// Returns the cost of the fastest way.
pub fn cost(spec: &Spec) -> Cost {
    let (mut best, mut least) = own(spec);
    for (cost, time) in library(spec).into_iter().chain(by_products(spec)) {
        if time < least {
            (best, least) = (cost, time);
        }
    }
    best
}

/// Returns the cost of our kernels, and their time in ns on an H100.
fn own(spec: &Spec) -> (Cost, f64) {
    let splits = splits(spec);
    let (mut instructions, mut conflicts, mut matrix, mut blocks, mut bytes, mut padded) = (0.0, 0.0, None, 0, 0, 0.0);
    let (mut waits, mut independent, mut exchanges, mut launches) = (0.0, 0.0, 0, 0);
    for split in &splits {
        let (own, units) = instructions_of(split, spec);
        instructions += own;
        conflicts += loads_of(split, spec);
        independent += independent_of(split);
        padded += if units.is_some() { padded_flops(split) } else { 0.0 };
        matrix = matrix.or(units);
        blocks += split.blocks(spec).max(1);
        bytes += split.parts(spec);
        launches += if split.splits > 1 || matches!(split.method, Method::Fold(_)) { 2 } else { 1 };
        exchanges += match &split.method {
            Method::Tiles(tiles) => split.share.div_ceil(tiles.step),
            Method::Lines(lines) => LINE_EXCHANGES * lines.steps(),
            Method::Fold(fold) => FOLD_EXCHANGES * fold.steps(),
            Method::Few(few) => few.exchanges(&split.shape),
            Method::Depthwise(_) | Method::Direct => 0,
        };
        waits += match &split.method {
            Method::Tiles(tiles) => split.share.div_ceil(tiles.step) as f64,
            Method::Few(few) => few.waits(&split.shape),
            Method::Lines(lines) => lines.waits() as f64,
            Method::Fold(fold) => fold.waits(&split.shape) as f64,
            Method::Depthwise(depthwise) => depthwise.waits(),
            Method::Direct if split.shape.form == Form::Weights => split.share.div_ceil(THREADS) as f64,
            Method::Direct => split.shape.gathered() as f64,
        };
    }
    // A kernel computes a single phase, so `waits` and `exchanges` are means over the phases.
    let (waits, exchanges) = (waits / splits.len().max(1) as f64, exchanges / splits.len().max(1) as u64);
    let parts = Traffic::of(Space::Device, bytes);
    // Each phase writes a part of the elements of a sector.
    let shape = Shape::of(spec);
    let Shape { stride, form, .. } = shape;
    let apart = stride.last().copied().unwrap_or(1).min(if splits.len() > 1 { 8 } else { 1 });
    let output = &spec.outputs[0];
    let cost = Cost {
        flops: shape.flops(),
        instructions,
        independent,
        conflicts,
        read: read(spec, &shape) + parts,
        written: Spec::bytes_of(&spec.outputs) + parts,
        reread: Traffic::of(output.space, if form == Form::Transposed { output.bytes() * (apart - 1) } else { 0 }),
        waits,
        exchanges: exchanges as f64,
        blocks,
        share: splits.iter().map(|split| share_of(split, spec)).max().unwrap_or(1),
        matrix,
        tiling: Tiling { flops: padded, further: launches - 1, ..Tiling::default() },
        ..Cost::default()
    };
    let moved = (cost.bytes() + cost.reread.total()) as f64 / BANDWIDTH;
    let waves = (blocks as f64 * f64::from(cost.share) / (UNITS * u64::from(Cost::WHOLE_UNIT)) as f64).ceil();
    let of_block = (instructions - independent) / (blocks * THREADS) as f64 * INSTRUCTION + waits * STEP_TIME;
    let chain = of_block * waves;
    (
        cost,
        ((instructions + conflicts) / INSTRUCTIONS).max(padded / LIBRARY_16.units).max(moved).max(chain)
            + launches as f64 * LAUNCH,
    )
}

/// Returns the cost of the library's kernels for matrix units, and their time in ns on an H100; `None` if the types have none.
///
/// The kernels read and write tensors whose channels come last, so that others copy the operands before and after.
fn library(spec: &Spec) -> Option<(Cost, f64)> {
    let arithmetic = arithmetic(spec);
    let library = Library::of(arithmetic)?;
    let shape = Shape::of(spec);
    // Operands of plain products need no other layout. Gradients of weights add up over the positions of all samples, which lie apart
    // from each other.
    if products::is_product(&shape) && (shape.form != Form::Weights || shape.samples == 1) {
        return Some(product(spec, &shape, &library));
    }
    let Library { rate, tile_depth, .. } = library;
    let (rows, columns, depth) = shape.product();
    let channels = shape.gathered();
    let pack = CHANNELS_BYTES / spec.inputs[0].dtype.size();
    let packed = channels.next_multiple_of(pack) as f64 / channels as f64;
    // A transposed convolution with a stride multiplies by zeros between the elements of its input. The library skips these products.
    let gaps = if shape.form == Form::Transposed { shape.stride.iter().product::<u64>() as f64 } else { 1.0 };
    let depth = depth as f64 * packed / gaps;
    let tiles = rows.div_ceil(TILE) * columns.div_ceil(TILE) * shape.groups;
    // Blocks share the depth of a product only for gradients of weights.
    let parts = match shape.form {
        Form::Weights => (UNITS / tiles.max(1)).min(depth as u64 / MIN_DEPTH).max(1),
        Form::Forward | Form::Transposed => 1,
    };
    let padded = 2.0 * (tiles * TILE * TILE) as f64 * (depth + tile_depth) / rate;
    // A block waits for each step if no other block on its SM computes meanwhile.
    let steps = if tiles * parts <= UNITS { (depth / parts as f64 / STEP as f64 / STAGES).ceil() } else { 0.0 };
    // Tiles have up to four times as many rows or columns if enough of them remain. A tile loads the terms of its rows and of its
    // columns, but nothing for those beyond the product's edge.
    let wide = [4, 2].into_iter().find(|wide| tiles / wide >= UNITS).unwrap_or(1) as f64;
    let [of_rows, of_columns] = [rows, columns].map(|lines| lines as f64 / lines.div_ceil(TILE).max(1) as f64);
    let lines = of_rows.max(of_columns) + of_rows.min(of_columns) / wide;
    let loaded = (tiles * spec.inputs[0].dtype.size()) as f64 * lines * depth;
    let [x, _, y] = shape.form.operands(spec).map(|operand| spec.operand(operand));
    // The bias is added by a kernel of its own.
    let bias = u64::from(spec.inputs.len() > 2);
    let elements = x.elements() + y.elements() * (1 + bias);
    let (further, converted) = (CONVERSIONS + bias, elements * CONVERTED_BYTES);
    let cost = Cost {
        flops: shape.flops(),
        read: Spec::bytes_of(&spec.inputs),
        written: Spec::bytes_of(&spec.outputs),
        waits: steps,
        sectors: loaded / SECTOR as f64,
        blocks: (tiles * parts).max(1),
        share: Cost::WHOLE_UNIT,
        matrix: Some(arithmetic),
        tiling: Tiling { flops: padded, shares_depth: parts > 1, further, converted, ..Tiling::default() },
        ..Cost::default()
    };
    let moved = (cost.bytes() as f64 / BANDWIDTH).max(loaded / CACHE_BANDWIDTH);
    let computed = (padded / library.units).max(moved).max(steps * STEP_TIME);
    let join = if parts > 1 { 2.0 * LAUNCH } else { 0.0 };
    let conversions = 2.0 * converted as f64 / BANDWIDTH + further as f64 * LAUNCH;
    Some((cost, computed + conversions + LAUNCH + join))
}

/// Returns the cost of a convolution of single elements as products with the kernels before and after them, and its time in ns on an H100;
/// `None` for any other convolution.
fn by_products(spec: &Spec) -> Option<(Cost, f64)> {
    let shape = Shape::of(spec);
    let arithmetic = arithmetic(spec);
    let units = match Library::of(arithmetic) {
        Some(library) => library.units,
        None if arithmetic == Arithmetic::F32 => VECTOR_OPERATIONS,
        None => return None,
    };
    let Products { gemms, copy, parts, spread } = Products::of(spec)?;
    let dtype = spec.inputs[0].dtype;
    let values = shape.samples * shape.inputs * shape.y.iter().product::<u64>();
    let moved = if copy.is_some() || spread.is_some() { values * dtype.size() } else { 0 };
    let summed = parts.map_or(0, |parts| parts * shape.outputs * shape.inputs * dtype.compute().size());
    let scratch = Traffic::of(Space::Device, 2 * (moved + summed));
    let kernels = [copy.is_some(), parts.is_some(), spread.is_some()].map(u64::from).iter().sum::<u64>();
    let further = kernels + gemms.len() as u64 - 1;
    let (costs, times): (Vec<Cost>, Vec<f64>) = gemms.iter().map(|gemm| timed(spec, gemm, units)).unzip();
    let cost: Cost = costs.into_iter().sum();
    let tiling = Tiling { further: cost.tiling.further + further, ..cost.tiling };
    let cost = Cost { read: read(spec, &shape), written: Spec::bytes_of(&spec.outputs), scratch, tiling, ..cost };
    let time = times.iter().sum::<f64>() + scratch.total() as f64 / BANDWIDTH + kernels as f64 * LAUNCH;
    Some((cost, time))
}

/// Bytes of the inputs that the device's memory moves.
fn read(spec: &Spec, shape: &Shape) -> Traffic {
    let gathered = spec.operand(shape.form.operands(spec)[0]);
    let unread = gathered.bytes() as f64 * (1.0 - shape.moved(gathered.dtype.size()));
    let mut read = Spec::bytes_of(&spec.inputs);
    if !gathered.space.in_host() {
        read.device -= unread as u64;
    }
    read
}

/// Returns the cost of a convolution of single elements as a product for each sample, and its time in ns on an H100.
fn product(spec: &Spec, shape: &Shape, library: &Library) -> (Cost, f64) {
    let mut product = products::product(spec, shape);
    let rounded = timed(spec, &product, library.units);
    if product.arithmetic != Arithmetic::Tf32 {
        return rounded;
    }
    // A library that may round factors need not.
    product.arithmetic = Arithmetic::F32;
    let exact = timed(spec, &product, VECTOR_OPERATIONS);
    if exact.1 < rounded.1 { exact } else { rounded }
}

/// Returns the cost of the library's product with the operands of a convolution, and its time in ns on an H100, whose units execute this
/// many operations per ns in products.
fn timed(spec: &Spec, product: &Gemm, units: f64) -> (Cost, f64) {
    let cost = product_cost(product);
    let cost = Cost { read: Spec::bytes_of(&spec.inputs), written: Spec::bytes_of(&spec.outputs), ..cost };
    let rate = if cost.tiling.unaligned > 0 { UNALIGNED_RATE } else { 1.0 };
    let computed = cost.tiling.flops / units / rate;
    let join = if cost.tiling.shares_depth { 2.0 * LAUNCH } else { 0.0 };
    (cost, computed.max(cost.bytes() as f64 / BANDWIDTH) + LAUNCH + join)
}

/// Part of an SM that a block of our kernels occupies.
fn share_of(split: &Split, spec: &Spec) -> u32 {
    let held = match &split.method {
        Method::Tiles(tiles) if tiles.units => return share_with(THREADS, UNITS_REGISTERS),
        Method::Tiles(_) => return share_with(THREADS, VECTOR_REGISTERS),
        Method::Few(few) => few.held(&split.shape),
        Method::Lines(lines) => lines.held(&split.shape),
        Method::Fold(fold) => fold.held(),
        Method::Direct if split.shape.form == Form::Weights => {
            let (rows, columns) = split.thread_weights(spec);
            rows * columns + rows + columns
        }
        Method::Depthwise(_) | Method::Direct => return share(THREADS),
    };
    share_with(THREADS, OTHER_REGISTERS + held * spec.inputs[0].dtype.compute().size() / 4)
}

/// Number of operations of matrix units for whole tiles of our kernels.
fn padded_flops(split: &Split) -> f64 {
    let (rows, columns, depth) = split.shape.product();
    let Method::Tiles(tiles) = &split.method else { return 0.0 };
    2.0 * (rows.next_multiple_of(tiles.rows) * columns.next_multiple_of(tiles.columns)) as f64
        * (split.shape.groups * depth.next_multiple_of(tiles.step)) as f64
}

/// Instructions that SMs could issue while their units for loads and stores execute the loads of all threads without tiles, whose other loads
/// their steps wait for. Threads that load several elements before they multiply them leave the schedulers to others, so that only the time
/// beyond their instructions counts.
fn loads_of(split: &Split, spec: &Spec) -> f64 {
    let shape = &split.shape;
    let (rows, columns, depth) = shape.product();
    match &split.method {
        Method::Few(few) => {
            let size = spec.inputs[0].dtype.size();
            (PER_CYCLE * few.loaded_lines(shape, size) - few.instructions(shape, size)).max(0.0)
        }
        Method::Lines(lines) => PER_PACK * lines.loads(shape),
        Method::Fold(fold) => PER_LOAD * fold.loads(shape),
        // Neighbouring threads load elements a pack apart.
        Method::Tiles(tiles) => {
            let existing = rows as f64 / rows.next_multiple_of(tiles.rows) as f64;
            PER_PACK * existing * factor_loads(split, spec, tiles)
        }
        Method::Depthwise(_) => 0.0,
        Method::Direct if shape.form == Form::Weights => {
            let size = spec.inputs[0].dtype.size();
            let [own_rows, own_columns] = split.thread_weights(spec).into();
            let length = shape.y.last().copied().unwrap_or(1);
            let gathered = shape.lines_of_warp(length, 1, size) / own_rows as f64;
            let of_rows = lines_of((WARP - 1) * size) / own_columns as f64;
            let lines = padded_products(split, spec) * (gathered + of_rows);
            (PER_CYCLE * lines - instructions_of(split, spec).0).max(0.0)
        }
        Method::Direct => PER_LOAD * (shape.groups * columns * depth * (1 + rows.min(FEW_ROWS))) as f64,
    }
}

/// Number of multiplications of threads that sum up weights. The last threads have as many rows and columns as others.
fn padded_products(split: &Split, spec: &Spec) -> f64 {
    let (rows, columns, depth) = split.shape.product();
    let (own_rows, own_columns) = split.thread_weights(spec);
    let weights = rows.next_multiple_of(own_rows) * columns.next_multiple_of(own_columns);
    (split.shape.groups * weights) as f64 * depth as f64
}

/// Number of multiplications of all threads that hold several sums in registers, each of which waits for the last of its own sum alone.
fn independent_of(split: &Split) -> f64 {
    match &split.method {
        Method::Few(_) | Method::Depthwise(_) => split.shape.flops() / 2.0,
        Method::Lines(lines) => lines.products(&split.shape),
        Method::Fold(fold) => fold.products(&split.shape),
        Method::Tiles(_) | Method::Direct => 0.0,
    }
}

/// Number of loads of single elements of the factor by all threads, for tiles. Only threads of a convolution whose rows of weights are aligned
/// load packs.
fn factor_loads(split: &Split, spec: &Spec, tiles: &Tiles) -> f64 {
    let shape = &split.shape;
    let (rows, columns, depth) = shape.product();
    let [_, has_packs] = split.factor_rows(spec, tiles);
    let of_a_tile = rows.next_multiple_of(tiles.rows) * depth.next_multiple_of(tiles.step);
    if has_packs { 0.0 } else { (shape.groups * columns.div_ceil(tiles.columns) * of_a_tile) as f64 }
}

/// Instructions per gathered element of a tile.
///
/// Threads load a pack from one row of positions without checks if all of its elements exist, and otherwise one by one. A warp with threads
/// of both kinds, as at the borders of a tensor, executes both. Threads outside of the product, whose share of the tile is not `existing`,
/// check each element.
fn gathered_instructions(shape: &Shape, pack: u64, existing: f64) -> f64 {
    let of_pack = |instructions: f64| instructions / pack as f64;
    let turned = shape.form == Form::Transposed;
    let is_apart = turned && shape.stride.last().is_some_and(|&stride| stride > 1);
    let never_runs = is_apart || shape.position_dims().last().is_none_or(|&length| length < pack);
    let has_borders = turned || shape.padding.iter().any(|&size| size > 0);
    let run = of_pack(PER_TAP + PER_ENDS) + PER_RUN;
    match (never_runs, has_borders) {
        (true, _) => of_pack(PER_TAP) + PER_CHECKED,
        (false, true) => run + PER_CHECKED,
        (false, false) => existing * run + (1.0 - existing) * (of_pack(PER_TAP + PER_ENDS) + PER_CHECKED),
    }
}

/// Share of the gathered elements of tiles that belong to the product.
fn existing_share(shape: &Shape, tiles: &Tiles) -> f64 {
    let (_, columns, depth) = shape.product();
    [(columns, tiles.columns), (depth, tiles.step)]
        .map(|(size, tile)| size as f64 / size.next_multiple_of(tile) as f64)
        .iter()
        .product()
}

/// Returns the number of instructions of all threads, and the arithmetic of the matrix units if they are used.
fn instructions_of(split: &Split, spec: &Spec) -> (f64, Option<Arithmetic>) {
    let shape = &split.shape;
    let (rows, columns, depth) = shape.product();
    match &split.method {
        Method::Few(few) => (few.instructions(shape, spec.inputs[0].dtype.size()), None),
        Method::Lines(lines) => (lines.instructions(shape), None),
        Method::Fold(fold) => (fold.instructions(shape), None),
        Method::Depthwise(depthwise) => (depthwise.instructions(), None),
        Method::Tiles(tiles) => {
            // Whole tiles are gathered and multiplied.
            let [rows, columns, depth] = [(rows, tiles.rows), (columns, tiles.columns), (depth, tiles.step)]
                .map(|(size, tile)| size.next_multiple_of(tile) as f64);
            let products = shape.groups as f64 * rows * columns * depth;
            let existing = existing_share(shape, tiles);
            let gathers = gathered_instructions(shape, tiles.pack, existing) * products / tiles.rows as f64;
            let of_a_thread = PER_TILE + PER_RESULT * (tiles.rows * tiles.columns / THREADS) as f64;
            let of_tiles = (split.blocks(spec) * THREADS) as f64 * of_a_thread;
            let all = gathers + PER_FACTOR * factor_loads(split, spec, tiles) + of_tiles;
            if tiles.units { (all, Some(arithmetic(spec))) } else { (products + all, None) }
        }
        Method::Direct if shape.form == Form::Weights => {
            let [own_rows, own_columns] = <[u64; 2]>::from(split.thread_weights(spec)).map(|count| count as f64);
            let sums = split.blocks(spec) as f64 * THREADS as f64 * own_rows * own_columns * PER_SUM;
            let conversion = if spec.inputs[0].dtype.size() < 4 { PER_CONVERSION } else { 0.0 };
            let gathered = (PER_GATHERED + conversion) / own_rows;
            let of_rows = (PER_ROW + conversion) / own_columns;
            let of_a_product = 1.0 + gathered + of_rows + PER_PLACE / (own_rows * own_columns);
            (sums + padded_products(split, spec) * of_a_product, None)
        }
        Method::Direct => {
            let threads = (shape.groups * columns) as f64;
            let each = if shape.form == Form::Transposed { PER_TURNED } else { PER_ELEMENT };
            // A library has kernels for 16-bit elements of single channels.
            let each = if rows * shape.gathered() == 1 && spec.inputs[0].dtype.size() == 2 { each / 2.0 } else { each };
            (threads * (PER_COLUMN + depth as f64 * (each + PER_PRODUCT * rows.min(FEW_ROWS) as f64)), None)
        }
    }
}
