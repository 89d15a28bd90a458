//! Attention and its gradients on shapes that nobody chose: their kernels run on the double of AMD's libraries, and have to
//! compute what the CPU does.

use aorta::backend::host::Host;
use aorta::exec::LaunchMode;

use crate::common::{self, doubles};
use crate::random_shapes::{File, cases};

#[test]
fn attention_of_ragged_sequences() {
    let mut file = File::new(16);
    for case in 0..cases(6) {
        let dtype = file.pick(&["bf16", "f16", "f32", "f64", "bf16", "f16"]);
        let (size, value_size) = (file.pick(&[1, 7, 16, 40, 64]), file.pick(&[3, 16, 40]));
        let (sequences, shared, group) = (file.pick(&[1, 2, 9]), 1 + file.below(2), file.pick(&[1, 2]));
        let (queries, keys) = (file.pick(&[1, 40, 75]), file.pick(&[9, 64, 80]));
        let positions_first = file.below(2) == 0;
        let dims = |heads: u64, positions: u64, size: u64| match positions_first {
            true => [positions, heads, size],
            false => [heads, positions, size],
        };
        let heads = shared * group;
        let (q, k) = (file.tensor(dtype, &dims(heads, queries, size)), file.tensor(dtype, &dims(shared, keys, size)));
        let v = file.tensor(dtype, &dims(shared, keys, value_size));
        let [o, dy] = [dtype; 2].map(|dtype| file.tensor(dtype, &dims(heads, queries, value_size)));
        // Some ends do not ascend, and some lie outside of the tensors.
        let [index, kind] = [file.pick(&["i32", "i64"]), file.pick(&["i32", "i64"])];
        let (ends, key_ends) = (file.indices(index, &[sequences]), file.indices(kind, &[sequences]));
        let layout = if positions_first { ", layout: positions_first" } else { "" };
        let option =
            file.pick(&["", ", causal: true", ", causal: true, window: 7", ", scale: 0.3", ", algorithm: naive"]);
        file.add(&format!("r{case}: ragged_attention({q}, {k}, {v}, {ends}, {key_ends} -> {o}, _{option}{layout})"));
        let of_lse = match file.below(2) {
            0 => format!(", {}", file.tensor(if dtype == "f64" { "f64" } else { "f32" }, &[heads, queries])),
            _ => String::new(),
        };
        file.add(&format!(
            "ragged_attention_backward({q}, {k}, {v}, {o}, r{case}.lse, {dy}, {ends}, {key_ends}{of_lse}{option}{layout})"
        ));
    }
    file.check();
}

#[test]
fn attention_with_a_bias() {
    let mut file = File::new(17);
    for case in 0..cases(9) {
        let dtype = file.pick(&["bf16", "f16", "f32", "f64", "bf16", "f16"]);
        let sums = if dtype == "f64" { "f64" } else { "f32" };
        let (size, value_size) = (file.pick(&[1, 7, 16, 40, 64]), file.pick(&[3, 16, 40]));
        let (batch, shared, group) = (1 + file.below(2), 1 + file.below(2), file.pick(&[1, 2]));
        // One case has enough keys to be shared by blocks.
        let (queries, keys) = match case {
            0 => (1, 1100),
            _ => (file.pick(&[1, 5, 17, 70]), file.pick(&[1, 9, 64, 70])),
        };
        let positions_first = file.below(2) == 0;
        let dims = |heads: u64, positions: u64, size: u64| match positions_first {
            true => [batch, positions, heads, size],
            false => [batch, heads, positions, size],
        };
        let heads = shared * group;
        let (q, k) = (file.tensor(dtype, &dims(heads, queries, size)), file.tensor(dtype, &dims(shared, keys, size)));
        let v = file.tensor(dtype, &dims(shared, keys, value_size));
        let [o, dy] = [dtype; 2].map(|dtype| file.tensor(dtype, &dims(heads, queries, value_size)));
        let of_bias = file.pick(&[dtype, sums]);
        let bias = file.repeated(of_bias, &[batch, heads, queries, keys]);
        // A bias of -inf takes a key away, and some queries keep none.
        if file.below(2) == 0 {
            let least = file.pick(&["0.5", "-0.3"]);
            file.add(&format!("map(if {bias} > {least} {{ log({bias} * 0) }} else {{ {bias} * 3 }} -> {bias})"));
        }
        let layout = if positions_first { ", layout: positions_first" } else { "" };
        let option =
            file.pick(&["", ", causal: true", ", causal: true, window: 7", ", scale: 0.3", ", algorithm: naive"]);
        file.add(&format!("b{case}: attention({q}, {k}, {v}, {bias} -> {o}, _{option}{layout})"));
        let of_lse = match file.below(2) {
            0 => format!(", {}", file.tensor(sums, &[batch, heads, queries])),
            _ => String::new(),
        };
        let outputs = file.pick(&["", " -> _, _, _, _"]);
        file.add(&format!(
            "biased_attention_backward({q}, {k}, {v}, {o}, b{case}.lse, {dy}, {bias}{of_lse}{option}{layout}{outputs})"
        ));
    }
    file.check();
}

/// The elements of a buffer by name, as a run of the double wrote it with `--outputs`.
fn of_double(folder: &std::path::Path, name: &str) -> Vec<f32> {
    let file = std::fs::read(folder.join(format!("{name}.npy"))).unwrap_or_else(|error| panic!("{name}: {error}"));
    let begin = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[begin..].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// A query whose keys are all masked by the bias has zeros and an `lse` of -inf, and passes no gradients on: on the CPU, and by
/// each kind of kernel on the double.
#[test]
fn a_query_whose_keys_are_all_masked() {
    let Some(libraries) = doubles::cpu() else { return };
    // Tiles, tiles whose keys are shared by blocks, and plain kernels.
    let cases = [("bf16", 70, ""), ("f16", 1100, ""), ("f32", 70, ""), ("bf16", 70, ", algorithm: naive")];
    let (heads, queries, size) = (2, 3, 16);
    let (mut buffers, mut statements) = (String::new(), String::new());
    for (case, (dtype, keys, option)) in cases.into_iter().enumerate() {
        let row = format!("{heads}, {queries}, {size}");
        buffers += &format!(
            "buffer q{case}, dy{case}: {dtype}[{row}]\nbuffer k{case}, v{case}: {dtype}[{heads}, {keys}, {size}]\n\
             buffer bias{case}: {dtype}[{queries}, {keys}]\nbuffer lse{case}: f32[{heads}, {queries}]\n\
             buffer o{case}, dq{case}: f32[{row}]\nbuffer dk{case}, dv{case}: f32[{heads}, {keys}, {size}]\n\
             buffer ds{case}: f32[{heads}, {queries}, {keys}]\n"
        );
        let tensors = format!("q{case}, k{case}, v{case}");
        statements += &format!(
            "map(log(bias{case}[1] * 0) -> bias{case}[1])\n\
             a{case}: attention({tensors}, bias{case} -> _, lse{case}{option})\nmap(a{case}.o -> o{case})\n\
             b{case}: biased_attention_backward({tensors}, a{case}.o, a{case}.lse, dy{case}, bias{case}{option} \
             -> _, _, _, ds{case})\n\
             map(b{case}.dq -> dq{case})\nmap(b{case}.dk -> dk{case})\nmap(b{case}.dv -> dv{case})\n"
        );
    }
    let text = format!("{buffers}stream main\nstep {{\n  on main {{\n{statements}  }}\n}}\n");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, outputs) = (folder.path().join("masked.aorta"), folder.path().join("outputs"));
    std::fs::write(&path, &text).expect("a file of our own");
    let arguments = ["--effort", "sanity", "--outputs", outputs.to_str().expect("a plain path")];
    crate::hip::verify(libraries, path.to_str().expect("a plain path"), &arguments);
    let (program, plan) = common::planned(&text);
    let host = common::written(&program, &plan, &Host, None, LaunchMode::Stream, 1);
    let of_host = |name: &str| -> Vec<f32> {
        let contents = host.iter().find(|contents| contents.name == name).expect("it is written");
        contents.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    for (case, (dtype, keys, option)) in cases.into_iter().enumerate() {
        for (name, elements) in [("o", size), ("dq", size), ("ds", keys), ("lse", 1), ("dk", size), ("dv", size)] {
            let name = format!("{name}{case}");
            for values in [of_double(&outputs, &name), of_host(&name)] {
                let what = format!("{name} of {dtype}{option}");
                let finite = values.iter().filter(|value| value.is_finite()).count();
                let (masked, others): (Vec<_>, Vec<_>) = values
                    .chunks(elements)
                    .enumerate()
                    .partition(|(row, _)| !name.starts_with("dk") && !name.starts_with("dv") && row % queries == 1);
                let expected = if name.starts_with("lse") { f32::NEG_INFINITY } else { 0.0 };
                assert!(masked.iter().flat_map(|(_, row)| *row).all(|value| *value == expected), "{what}: {values:?}");
                assert!(others.iter().all(|(_, row)| row.iter().any(|value| *value != 0.0)), "{what}: {values:?}");
                let infinite = if name.starts_with("lse") { heads } else { 0 };
                assert_eq!(values.len() - finite, infinite, "{what}: {values:?}");
            }
        }
    }
}

#[test]
fn attention_over_pages() {
    let mut file = File::new(15);
    for case in 0..cases(7) {
        let dtype = file.pick(&["bf16", "f16", "f32", "f64", "bf16", "f16"]);
        let (size, value_size) = (file.pick(&[1, 7, 16, 40, 64]), file.pick(&[3, 16, 40]));
        let (sequences, shared, group) = (1 + file.below(3), 1 + file.below(2), file.pick(&[1, 2, 5]));
        // One case has enough keys to be shared by blocks.
        let (blocks, page, columns, queries) = match case {
            0 => (9, 64, 20, 1),
            _ => (1 + file.below(9), file.pick(&[1, 3, 16]), file.pick(&[1, 4, 7]), file.pick(&[1, 2, 33])),
        };
        let positions_first = file.below(2) == 0;
        let dims = |first: u64, heads: u64, positions: u64, size: u64| match positions_first {
            true => [first, positions, heads, size],
            false => [first, heads, positions, size],
        };
        let heads = shared * group;
        let q = file.tensor(dtype, &dims(sequences, heads, queries, size));
        let k = file.tensor(dtype, &dims(blocks, shared, page, size));
        let v = file.tensor(dtype, &dims(blocks, shared, page, value_size));
        let o = file.tensor(dtype, &dims(sequences, heads, queries, value_size));
        let [index, kind] = [file.pick(&["i32", "i64"]), file.pick(&["i32", "i64"])];
        // Some pages are not in the pool, and some lengths are negative or more than the pages hold.
        let pages = file.indices(index, &[sequences, columns]);
        file.add(&format!("map({pages} % {} -> {pages})", blocks + 1));
        let lengths = file.indices(kind, &[sequences]);
        if case == 0 {
            file.add(&format!("map({lengths} * 30 -> {lengths})"));
        }
        let layout = if positions_first { ", layout: positions_first" } else { "" };
        let option =
            file.pick(&["", ", causal: true", ", causal: true, window: 7", ", scale: 0.3", ", algorithm: naive"]);
        file.add(&format!("paged_attention({q}, {k}, {v}, {pages}, {lengths} -> {o}, _{option}{layout})"));
    }
    file.check();
}

#[test]
fn attention_of_heads_that_share_keys() {
    let mut file = File::new(14);
    // The first case has enough rows for the largest blocks, which is much for the double.
    let first = if std::env::var_os("AORTA_LONG").is_some() { 0 } else { 1 };
    for case in first..7 {
        let dtype = file.pick(&["bf16", "f16", "f32", "f64", "bf16", "f16"]);
        let (size, value_size) = (file.pick(&[1, 7, 16, 40, 64, 130]), file.pick(&[3, 16, 40, 64]));
        let (batch, shared, group) = (1 + file.below(2), 1 + file.below(2), file.pick(&[1, 2]));
        // One case has enough keys to be shared by blocks.
        let (batch, queries, keys, size, value_size) = match case {
            0 => (265, 65, 20, 16, 9),
            1 => (1, 1, 1100, 16, 16),
            _ => (batch, file.pick(&[1, 5, 17, 33]), file.pick(&[1, 9, 64, 70]), size, value_size),
        };
        let dtype = if case < 2 { "f16" } else { dtype };
        let (shared, group) = if case == 0 { (1, 1) } else { (shared, group) };
        let positions_first = file.below(2) == 0;
        let dims = |heads: u64, positions: u64, size: u64| match positions_first {
            true => [batch, positions, heads, size],
            false => [batch, heads, positions, size],
        };
        let heads = shared * group;
        let (q, k) = (file.tensor(dtype, &dims(heads, queries, size)), file.tensor(dtype, &dims(shared, keys, size)));
        let v = file.tensor(dtype, &dims(shared, keys, value_size));
        let [o, dy] = [dtype; 2].map(|dtype| file.tensor(dtype, &dims(heads, queries, value_size)));
        let layout = if positions_first { ", layout: positions_first" } else { "" };
        let option =
            file.pick(&["", ", causal: true", ", causal: true, window: 7", ", scale: 0.3", ", algorithm: naive"]);
        file.add(&format!("f{case}: attention({q}, {k}, {v} -> {o}, _{option}{layout})"));
        if case > 1 {
            let sums = file.tensor(if dtype == "f64" { "f64" } else { "f32" }, &[batch, heads, queries]);
            let of_lse = file.pick(&["", ", "]).replace(", ", &format!(", {sums}"));
            file.add(&format!("attention_backward({q}, {k}, {v}, {o}, f{case}.lse, {dy}{of_lse}{option}{layout})"));
        }
    }
    file.check();
}

/// Heads of 16-bit elements that are too wide for tiles, and other types, are computed by products of the library.
#[test]
fn attention_by_products() {
    let mut file = File::new(21);
    for case in 0..cases(8) {
        let dtype = file.pick(&["bf16", "f32", "f16", "f64"]);
        let (size, value_size) = (file.pick(&[257, 264, 320]), file.pick(&[9, 16, 300]));
        let (batch, shared, group) = (1 + file.below(2), 1 + file.below(2), file.pick(&[1, 2, 3]));
        let (queries, keys) = (file.pick(&[16, 17, 30]), file.pick(&[1, 16, 41]));
        let positions_first = file.below(2) == 0;
        let dims = |heads: u64, positions: u64, size: u64| match positions_first {
            true => [batch, positions, heads, size],
            false => [batch, heads, positions, size],
        };
        let heads = shared * group;
        let (q, k) = (file.tensor(dtype, &dims(heads, queries, size)), file.tensor(dtype, &dims(shared, keys, size)));
        let v = file.tensor(dtype, &dims(shared, keys, value_size));
        let [o, dy] = [dtype; 2].map(|dtype| file.tensor(dtype, &dims(heads, queries, value_size)));
        let sums = if dtype == "f64" { "f64" } else { "f32" };
        let layout = if positions_first { ", layout: positions_first" } else { "" };
        let option = file.pick(&["", ", causal: true", ", causal: true, window: 7", ", scale: 0.1"]);
        let of_lse = match file.below(2) {
            0 => format!(", {}", file.tensor(sums, &[batch, heads, queries])),
            _ => String::new(),
        };
        if file.below(2) == 0 {
            file.add(&format!("w{case}: attention({q}, {k}, {v} -> {o}, _{option}{layout})"));
            file.add(&format!("attention_backward({q}, {k}, {v}, {o}, w{case}.lse, {dy}{of_lse}{option}{layout})"));
            continue;
        }
        let of_bias = file.pick(&[dtype, sums]);
        let bias = file.repeated(of_bias, &[batch, heads, queries, keys]);
        let outputs = file.pick(&["", " -> _, _, _, _"]);
        file.add(&format!("w{case}: attention({q}, {k}, {v}, {bias} -> {o}, _{option}{layout})"));
        file.add(&format!(
            "biased_attention_backward({q}, {k}, {v}, {o}, w{case}.lse, {dy}, {bias}{of_lse}{option}{layout}{outputs})"
        ));
    }
    file.check();
}
