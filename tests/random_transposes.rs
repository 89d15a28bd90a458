//! Transposes of drawn shapes: their kernels compute on the double of AMD's libraries what the CPU does.

use crate::common::effort;
use crate::random_shapes::{File, cases};

fn transpose<const N: usize>(file: &mut File, dtype: &str, dims: [u64; N], order: [usize; N]) {
    let (x, y) = (file.tensor(dtype, &dims), file.tensor(dtype, &order.map(|axis| dims[axis])));
    file.add(&format!("transpose({x} -> {y}, dims: {order:?})"));
}

/// Sides of any length, most of which no pack of 16 bytes divides.
#[test]
fn transpose_of_any_sides() {
    let mut file = File::new(23);
    for _ in 0..cases(24) {
        let dtype = file.pick(&["bf16", "f16", "u8", "f32", "f64"]);
        let dims = [0; 3].map(|_| file.pick(&[1, 2, 3, 5, 31, 64, 77, 130, 1001]));
        let order = file.pick(&[[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]);
        transpose(&mut file, dtype, dims, order);
    }
    // Few rows that are so long that threads hold columns, and few columns.
    for _ in 0..cases(8) {
        let dtype = file.pick(&["bf16", "f16", "u8", "f32", "f64"]);
        let (count, rows) = (file.pick(&[1, 1, 2, 4]), 2 + file.below(15));
        let length = 132_000 / (count * rows) + file.below(5);
        let dims = file.pick(&[[count, rows, length], [count, length, rows], [length, count, rows]]);
        let order = file.pick(&[[0, 2, 1], [2, 1, 0], [1, 2, 0], [2, 0, 1]]);
        transpose(&mut file, dtype, dims, order);
    }
    // Matrices that begin within a pack of the output.
    for (dtype, rows) in effort::chosen([("f32", 2), ("bf16", 4)]) {
        let dims = [3, rows, (21 << 20) / (3 * 8) + file.below(5)];
        let (x, y) = (file.tensor(dtype, &dims), file.tensor(dtype, &[3, dims[2], rows]));
        file.add(&format!("transpose({x} -> {y})"));
    }
    // Elements of one or two bytes in tensors that are large enough for tiles of words on all SMs.
    for _ in 0..cases(6) {
        let dtype = file.pick(&["bf16", "u8"]);
        let short = [0; 2].map(|_| file.pick(&[3, 8, 32, 77, 129]));
        let dims =
            [short[0], 1_100_000 * (1 + u64::from(dtype == "u8")) / (short[0] * short[1]) + file.below(5), short[1]];
        let order = file.pick(&[[1, 2, 0], [2, 0, 1], [2, 1, 0]]);
        transpose(&mut file, dtype, dims, order);
    }
    // Matrices of these elements that are so small that a block transposes several.
    for _ in 0..cases(4) {
        let dtype = file.pick(&["bf16", "u8"]);
        let [a, b, c] = [file.pick(&[16, 19, 29]), file.pick(&[1, 5]), file.pick(&[5, 16, 20])];
        let n = 1_100_000 * (1 + u64::from(dtype == "u8")) / (a * b * c) + file.below(5);
        let (dims, order) = ([n, a, b, c], file.pick(&[[0, 2, 3, 1], [3, 0, 2, 1]]));
        transpose(&mut file, dtype, dims, order);
    }
    // Sides of these elements that are shorter than a pack, beside which no other side is contiguous.
    for _ in 0..cases(6) {
        let dtype = file.pick(&["bf16", "u8"]);
        let [a, b, c] = [0; 3].map(|_| file.pick(&[2, 5, 7, 9, 16, 31]));
        let n = 600_000 * (1 + u64::from(dtype == "u8")) / (a * b * c) + file.below(5);
        let dims = file.pick(&[[n, a, b, c], [a, n, b, c]]);
        let order = file.pick(&[[3, 1, 0, 2], [0, 3, 2, 1], [1, 0, 3, 2], [3, 2, 1, 0]]);
        transpose(&mut file, dtype, dims, order);
    }
    file.check();
}
