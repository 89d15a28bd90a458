//! Tests of tilings.

use super::super::product_of;
use super::*;
use crate::ops::kernels::occupancy::UNIT_REGISTERS;

/// The threads of every tile have equal parts of it, and its copies are boxes that tensor maps can describe.
#[test]
fn tiles_divide_among_threads_and_boxes() {
    for turned in [false, true] {
        for (rows, columns, cluster) in mapped_tiles(turned) {
            let (threads, copiers, registers) = tile_threads(rows);
            assert!(threads * registers[0] + copiers * registers[1] <= UNIT_REGISTERS);
            assert!(rows.is_multiple_of(threads / 2), "each warpgroup multiplies whole instructions of 64 rows");
            let row_warps = row_warps(rows, columns, threads / WARP);
            for lanes in [WARP, 2 * WARP] {
                let warps = threads / lanes;
                let of_rows = row_warps.min(warps);
                assert!(warps.is_multiple_of(of_rows) && rows.is_multiple_of(16 * of_rows));
                assert!(columns.is_multiple_of(32 * (warps / of_rows)), "{rows} x {columns}");
            }
            let stages = STAGES_BYTES / (2 * DEPTH * (rows + columns));
            assert!(stages >= 3 && 2 * 8 * stages <= BARRIERS, "{rows} x {columns}");
            for (length, blocks, along_depth) in [(rows, cluster[1], true), (columns, cluster[0], turned)] {
                let [_, count] = extent(length, blocks, along_depth);
                assert!(count <= 256 && count.is_multiple_of(8), "copies begin at swizzled rows");
                assert!(along_depth || length.is_multiple_of(DEPTH), "{rows} x {columns}");
            }
        }
    }
}

/// The stages that a kernel has hold the sums that its blocks exchange. The kernel computes them in the same way.
#[test]
fn stages_hold_exchanged_sums() {
    let mut exchanging = 0;
    for groups in [1, 159, 316] {
        let chosen = Tiling::of(&product_of(true, [&[1 << 20, 960], &[1 << 20, 256]], groups));
        let tiles = [false, true].into_iter().flat_map(mapped_tiles);
        for ((rows, columns, _), depth_parts) in tiles.flat_map(|tile| [2, 4, 8].map(|parts| (tile, parts))) {
            let (threads, stage) = (tile_threads(rows).0, 2 * DEPTH * (rows + columns));
            let stages = STAGES_BYTES / stage;
            let cluster = Some([1, 1]);
            let tiling =
                Tiling { rows, columns, threads, stages, depth_parts, cluster, splits: false, ..chosen.clone() };
            exchanging += u32::from(tiling.can_exchange());
            for results in [WARP_RESULTS, tiling.rooms() * BOX_RESULTS] {
                let others = tiling.table() + threads / 32 * results + BARRIERS;
                let held = (((227 << 10) - others) / stage).min(stages) * stage;
                let fits = tiling.received() <= held;
                assert!(!tiling.can_exchange() || fits, "{rows} x {columns}, {depth_parts} parts, {groups} groups");
            }
        }
    }
    assert!(exchanging > 100, "{exchanging}");
}

/// Blocks of a cluster divide the depth of few tiles with many steps, but not that of many tiles.
#[test]
fn few_deep_tiles_are_divided() {
    for ([depth, rows, columns], divides) in
        [([2304, 64, 64], true), ([4096, 192, 128], true), ([9056, 960, 256], true), ([4096, 8192, 8192], false)]
    {
        let tiling = Tiling::of(&product_of(true, [&[depth, rows], &[depth, columns]], 1));
        assert_eq!(tiling.depth_parts > 1, divides, "{depth}, {rows} x {columns}: {} parts", tiling.depth_parts);
    }
}
