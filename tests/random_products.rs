//! Matrix products of drawn shapes and options: their kernels compute on the double of AMD's libraries what the CPU does.

use std::fmt::Write as _;

use crate::random_shapes::{FLOATS, File, cases};

#[test]
fn grouped_products_of_any_form() {
    let mut file = File::new(17);
    let is_long = crate::common::effort::is_long();
    for case in 0..cases(16) {
        let dtype = file.pick(&["bf16", "f16", "bf16", "f32", "f64"]);
        // Ends from -10 to below 90: some descend, and some are beyond the rows.
        let [groups, rows] = [file.pick(&[1, 3, 17]), file.pick(&[1, 37, 64, 90, 130])];
        let [depth, columns] = [file.pick(&[1, 8, 40, 72, 129]), file.pick(&[1, 3, 33, 64, 136])];
        let in_depth = file.below(2) == 0;
        // Tiles of many rows are for products that fill a device, which is much for the double.
        let (groups, rows, depth, columns) = match case {
            0 if is_long => (2, 4200, 24, 1040),
            _ if in_depth => (groups.min(3), rows, depth, columns),
            _ => (groups, rows, depth, columns),
        };
        let in_depth = in_depth && !(is_long && case == 0);
        let [turned_a, turned_b] = [(); 2].map(|()| file.below(2) == 0);
        let matrix = |rows: u64, columns: u64, turned: bool| if turned { [columns, rows] } else { [rows, columns] };
        let index = file.pick(&["i32", "i64"]);
        let ends = file.indices(index, &[groups]);
        let output = if file.below(3) == 0 && dtype.ends_with("16") { "f32" } else { dtype };
        let (a, b, c) = match in_depth {
            true => (
                file.tensor(dtype, &matrix(depth, rows, turned_a)),
                file.tensor(dtype, &matrix(rows, columns, turned_b)),
                file.tensor(output, &[groups, depth, columns]),
            ),
            false => (
                file.tensor(dtype, &matrix(rows, depth, turned_a)),
                file.tensor(dtype, &[&[groups], matrix(depth, columns, turned_b).as_slice()].concat()),
                file.tensor(output, &[rows, columns]),
            ),
        };
        let epilogue = file.pick(&["", "", ", epilogue: relu", ", epilogue: gelu", ", epilogue: gelu_tanh"]);
        let turns = format!("transpose_a: {turned_a}, transpose_b: {turned_b}");
        file.add(&format!("grouped_gemm({a}, {b}, {ends} -> {c}, {turns}{epilogue})"));
    }
    file.check();
}

/// Few tiles with a long depth, which blocks share.
#[test]
fn grouped_products_with_few_deep_tiles() {
    let mut file = File::new(18);
    for case in 0..cases(6) {
        let [short, columns] = [file.pick(&[7, 40, 130]), file.pick(&[33, 64, 130])];
        let long = 2000 + file.below(1500);
        add_long(&mut file, case % 2 == 0, [short, long, columns]);
    }
    file.check();
}

/// Many rows and up to four columns, of which one kernel reads the large matrix once: threads of groups of rows have several rows, and groups
/// of the depth share a matrix of more than 8 MiB.
#[test]
fn grouped_products_of_few_columns() {
    let mut file = File::new(19);
    for case in 0..cases(4) {
        let (in_depth, columns) = (case % 2 == 0, 1 + file.below(4));
        let (many, few) = (60_000 + file.below(9000), if in_depth { 72 + file.below(9) } else { 1 + file.below(60) });
        add_long(&mut file, in_depth, if in_depth { [few, many, columns] } else { [many, few, columns] });
    }
    file.check();
}

/// Adds a product `[rows, depth]` by `[depth, columns]` of 16-bit elements, whose groups divide the depth or the rows unevenly.
fn add_long(file: &mut File, in_depth: bool, [rows, depth, columns]: [u64; 3]) {
    let dtype = file.pick(&["bf16", "f16"]);
    let output = file.pick(&[dtype, "f32"]);
    let groups = file.pick(&[1, 3, 5]);
    let index = file.count;
    file.count += 1;
    let length = if in_depth { depth } else { rows };
    let _ = writeln!(file.buffers, "buffer n{index}: i32[{groups}] = iota\nbuffer e{index}: i32[{groups}]");
    let power = file.pick(&["1", "2", "0.3"]);
    file.add(&format!("map(floor({length} * pow((n{index} + 1) / {groups}, {power})) -> e{index})"));
    let [turned_a, turned_b] = [(); 2].map(|()| file.below(2) == 0);
    let matrix = |rows: u64, columns: u64, turned: bool| if turned { [columns, rows] } else { [rows, columns] };
    let a = file.tensor(dtype, &matrix(rows, depth, turned_a));
    let of_group = matrix(depth, columns, turned_b);
    let (b, c) = match in_depth {
        true => (file.tensor(dtype, &of_group), file.tensor(output, &[groups, rows, columns])),
        false => {
            (file.tensor(dtype, &[&[groups], of_group.as_slice()].concat()), file.tensor(output, &[rows, columns]))
        }
    };
    let epilogue = file.pick(&["", ", epilogue: silu"]);
    let turns = format!("transpose_a: {turned_a}, transpose_b: {turned_b}");
    file.add(&format!("grouped_gemm({a}, {b}, e{index} -> {c}, {turns}{epilogue})"));
}

/// Returns the argument for a bias of `n` elements, between which there may be gaps.
fn bias(file: &mut File, dtype: &str, n: u64) -> String {
    if file.below(2) == 0 {
        return format!(", {}", file.tensor(dtype, &[n]));
    }
    let name = format!("x{}", file.count);
    file.count += 1;
    let _ = writeln!(file.buffers, "buffer {name}: {dtype}[{n}, 3]");
    format!(", {name}[.., 1]")
}

/// Products that add to what their output holds, with a bias and a function of the sums: some by the library, some by a kernel.
#[test]
fn products_with_epilogues() {
    let mut file = File::new(17);
    for case in 0..cases(36) {
        let dtype = file.pick(&FLOATS);
        let out = if matches!(dtype, "f16" | "bf16") { file.pick(&[dtype, "f32"]) } else { dtype };
        // One kernel computes a product of few terms and many columns together with its epilogue.
        let (any, few_terms) = ([1, 2, 3, 7, 16, 33, 64, 97], case % 3 == 0);
        let (n, k) = if few_terms {
            (file.pick(&[65, 96, 259, 516, 602]), 1 + file.below(16))
        } else {
            (file.pick(&any), file.pick(&any))
        };
        let m = file.pick(&any);
        let lead: Vec<u64> = if file.below(3) == 0 { vec![1 + file.below(3), 1 + file.below(3)] } else { Vec::new() };
        // Rows may have gaps between them, and elements of a row may not.
        let matrix = |file: &mut File, dtype: &str, lead: &[u64], [rows, columns]: [u64; 2], turned: bool| {
            let (rows, columns) = if turned { (columns, rows) } else { (rows, columns) };
            let (name, more) = (format!("x{}", file.count), file.below(2) * (1 + file.below(9)));
            file.count += 1;
            let sizes = [lead, &[rows, columns + more]].concat();
            let _ = writeln!(file.buffers, "buffer {name}: {dtype}{sizes:?}");
            format!("{name}[{}..{columns}]", ".., ".repeat(sizes.len() - 1) + "0")
        };
        let function =
            file.pick(&["none", "relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh", "reglu"]);
        let is_gated = function.ends_with("glu") || function == "geglu_tanh";
        let (width, n) = (n, if is_gated { 2 * n } else { n });
        let shared = file.below(2) == 0;
        let [turned_a, turned_b] = [(); 2].map(|()| file.below(3) == 0);
        let (a, c) =
            (matrix(&mut file, dtype, &lead, [m, k], turned_a), matrix(&mut file, out, &lead, [m, width], false));
        let b = matrix(&mut file, dtype, if shared { &[] } else { &lead }, [k, n], turned_b);
        let bias = if file.below(3) > 0 { bias(&mut file, out, n) } else { String::new() };
        let accumulate = file.below(2) == 0 && !is_gated;
        let turns = format!("transpose_a: {turned_a}, transpose_b: {turned_b}");
        file.add(&format!("gemm({a}, {b}{bias} -> {c}, epilogue: {function}, accumulate: {accumulate}, {turns})"));
    }
    file.check();
}

/// Products with few rows or few columns and a large matrix, whose rows have any length, which generated kernels compute.
#[test]
fn thin_products() {
    let mut file = File::new(29);
    for _ in 0..cases(16) {
        let dtype = file.pick(&["f16", "bf16", "f32", "f32"]);
        let out = if dtype == "f32" { dtype } else { file.pick(&[dtype, "f32"]) };
        let thin = file.pick(&[1, 1, 2, 3, 4, 5, 8, 16]);
        let (wide, k) = file.pick(&[
            (61, 8704),
            (132, 4096),
            (2056, 272),
            (528, 1000),
            (5, 53_000),
            (77, 2049),
            (16, 7001),
            (1003, 33),
            (18, 3002),
            (2051, 8),
            (1030, 20),
        ]);
        let (m, n) = if file.below(2) == 0 { (thin, wide) } else { (wide, thin) };
        let [turned_a, turned_b] = [(); 2].map(|()| file.below(2) == 0);
        let lead: &[u64] = if file.below(4) == 0 { &[2] } else { &[] };
        let matrix = |rows: u64, columns: u64, turned: bool| {
            [lead, &if turned { [columns, rows] } else { [rows, columns] }].concat()
        };
        let (a, b) = (file.tensor(dtype, &matrix(m, k, turned_a)), file.tensor(dtype, &matrix(k, n, turned_b)));
        let c = file.tensor(out, &matrix(m, n, false));
        let bias = if file.below(2) == 0 { bias(&mut file, out, n) } else { String::new() };
        let function = file.pick(&["none", "relu", "gelu", "silu"]);
        let accumulate = file.below(2) == 0;
        let turns = format!("transpose_a: {turned_a}, transpose_b: {turned_b}");
        file.add(&format!("gemm({a}, {b}{bias} -> {c}, epilogue: {function}, accumulate: {accumulate}, {turns})"));
    }
    file.check();
}

/// Products of 8-bit matrices of any form; of floats with a factor for each matrix, or for each row and column.
#[test]
fn products_of_narrow_floats() {
    let mut file = File::new(23);
    for _ in 0..cases(12) {
        let [m, n] = [(); 2].map(|()| file.pick(&[1, 2, 7, 16, 33, 64]));
        let k = file.pick(&[1, 16, 31, 144, 300]);
        let (a, b) = file.pick(&[("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")]);
        let each = file.below(2) == 0;
        let (rows, columns) = if each { (m, n) } else { (1, 1) };
        let out = file.pick(&["bf16", "f16", "f32"]);
        let number = file.count;
        file.count += 1;
        let [turned_a, turned_b] = [(); 2].map(|()| file.below(2) == 0);
        let sides = |rows: u64, columns: u64, turned: bool| if turned { [columns, rows] } else { [rows, columns] };
        let (of_a, of_b) = (sides(m, k, turned_a), sides(k, n, turned_b));
        let turns = format!("transpose_a: {turned_a}, transpose_b: {turned_b}");
        let _ = writeln!(
            file.buffers,
            "buffer a{number}: {a}{of_a:?}\nbuffer b{number}: {b}{of_b:?}\nbuffer s{number}: f32[{rows}]\n\
             buffer t{number}: f32[{columns}]\nbuffer c{number}: {out}[{m}, {n}]"
        );
        let option = file.pick(&["", ", epilogue: relu", ", epilogue: silu", ", accumulate: true"]);
        file.add(&format!("scaled_gemm(a{number}, b{number}, s{number}, t{number} -> c{number}, {turns}{option})"));
        file.add(&format!("gemm(a{number}, b{number} -> c{number}, {turns})"));
        let _ = writeln!(
            file.buffers,
            "buffer p{number}: i8{of_a:?}\nbuffer q{number}: i8{of_b:?}\nbuffer r{number}: i32[{m}, {n}]"
        );
        let accumulate = file.below(2) == 0;
        file.add(&format!("gemm(p{number}, q{number} -> r{number}, {turns}, accumulate: {accumulate})"));
    }
    file.check();
}
