//! Tiles of blocks that copy by tensor maps.

use crate::ops::kernels::occupancy::UNIT_REGISTERS;

/// Number of terms of a stage; also the extent of a box of a tensor map in both directions, in elements.
pub const DEPTH: u64 = 64;

/// Blocks that copy by tensor maps: number of threads that multiply; number of further threads, one of which copies;
/// registers of a thread of each kind. Blocks whose further threads are a warpgroup move registers from these to the
/// threads that multiply.
const GROUPS_OF_THREADS: [(u64, u64, [u64; 2]); 3] =
    [(128, 32, [248, 248]), (256, 128, [224, 56]), (384, 128, [152, 56])];

/// Maximum number of columns of a tile: that of a `wgmma` instruction.
const MAX_COLUMNS: u64 = 256;

/// Number of registers of a thread for other values than its sums.
const OTHER_REGISTERS: u64 = 28;

/// Returns the rows and columns of the tiles that blocks copy by tensor maps, and of their clusters.
///
/// Columns of `b` that lie along the depth are copied in any multiple of 32, others in multiples of a box.
pub fn mapped_tiles(turned_b: bool) -> impl Iterator<Item = (u64, u64, [u64; 2])> {
    let step = if turned_b { DEPTH / 2 } else { DEPTH };
    let rows = (1..=4).map(|boxes| boxes * DEPTH);
    let tiles =
        rows.flat_map(move |rows| (DEPTH..=MAX_COLUMNS).step_by(step as usize).map(move |columns| (rows, columns)));
    let fits = |&(rows, columns): &(u64, u64)| {
        let (threads, copiers, [registers, _]) = tile_threads(rows);
        // The compiler needs the registers of an instruction, of 64 rows, in each thread of the block.
        let of_instruction = DEPTH * columns / 128 + OTHER_REGISTERS;
        of_instruction <= UNIT_REGISTERS / (threads + copiers)
            && rows * columns / threads + OTHER_REGISTERS <= registers
    };
    let clusters = |(rows, columns): (u64, u64)| {
        let count = if rows.min(columns) >= 2 * DEPTH { 3 } else { 1 };
        [[1, 1], [2, 1], [1, 2]].into_iter().take(count).map(move |cluster| (rows, columns, cluster))
    };
    tiles.filter(fits).flat_map(clusters)
}

/// Returns the threads of a block for tiles of this many rows: a warpgroup multiplies 64 or 128 of them.
pub fn tile_threads(rows: u64) -> (u64, u64, [u64; 2]) {
    GROUPS_OF_THREADS[match rows {
        DEPTH => 0,
        192 => 2,
        _ => 1,
    }]
}

/// Returns the maximum number of warps that share the rows of a tile on devices without `wgmma`. All warps have equal parts, of pairs
/// of 16 columns, also if a warp has twice the threads.
pub fn row_warps(rows: u64, columns: u64, warps: u64) -> u64 {
    let divides = |count: u64| {
        [warps, warps / 2].into_iter().all(|warps| {
            let of_rows = count.min(warps);
            warps.is_multiple_of(of_rows)
                && (rows / 16).is_multiple_of(of_rows)
                && (columns / 32).is_multiple_of(warps / of_rows)
        })
    };
    (2..=warps).find(|&count| divides(count)).unwrap_or(1)
}
