//! Attention and its gradients on shapes that nobody chose: their kernels run on the double of AMD's libraries, and have to
//! compute what the CPU does.

use aorta::backend::host::Host;
use aorta::exec::LaunchMode;

use crate::common::folder::Folder;
use crate::common::{self, doubles, effort};
use crate::random_shapes::{File, cases};

/// Options that attention has in any form.
const OPTIONS: [&str; 6] =
    ["", ", causal: true", ", causal: true, window: 7", ", scale: 0.3", ", algorithm: naive", ", softcap: 0.7"];

const DTYPES: [&str; 6] = ["bf16", "f16", "f32", "f64", "bf16", "f16"];

/// Sizes of an attention.
struct Sizes<'a> {
    /// Dimensions before those of heads and positions: of queries, and of keys.
    lead: [&'a [u64]; 2],
    /// Number of heads of the keys, and of heads of the queries for each of them.
    heads: [u64; 2],
    /// Number of queries and of keys.
    positions: [u64; 2],
    /// Size of a head of queries and keys, and of values.
    widths: [u64; 2],
}

/// An attention on drawn tensors.
struct Attention {
    dtype: &'static str,
    /// Queries, keys and values, and the result, as an operation names them.
    inputs: String,
    o: String,
    /// Dimensions of the result, and of the values for each row.
    result: Vec<u64>,
    rows: Vec<u64>,
    options: String,
}

impl Attention {
    fn draw(file: &mut File, dtype: &'static str, sizes: &Sizes, options: &[&str]) -> Attention {
        let positions_first = file.below(2) == 0;
        let dims = |lead: &[u64], heads: u64, positions: u64, size: u64| match positions_first {
            true => [lead, &[positions, heads, size]].concat(),
            false => [lead, &[heads, positions, size]].concat(),
        };
        let Sizes { lead: [lead, lead_of_keys], heads: [shared, group], positions: [queries, keys], widths } = *sizes;
        let result = dims(lead, shared * group, queries, widths[1]);
        let q = file.tensor(dtype, &dims(lead, shared * group, queries, widths[0]));
        let [k, v] = widths.map(|width| file.tensor(dtype, &dims(lead_of_keys, shared, keys, width)));
        let layout = if positions_first { ", layout: positions_first" } else { "" };
        Attention {
            dtype,
            inputs: format!("{q}, {k}, {v}"),
            o: file.tensor(dtype, &result),
            result,
            rows: [lead, &[shared * group, queries]].concat(),
            options: format!("{}{layout}", file.pick(options)),
        }
    }

    /// Element type of sums.
    fn sums(&self) -> &'static str {
        if self.dtype == "f64" { "f64" } else { "f32" }
    }

    /// Adds the forward operation with a label. The text `more` is the inputs after the values.
    fn forward(&self, file: &mut File, label: &str, operation: &str, more: &str) {
        let Attention { inputs, o, options, .. } = self;
        file.add(&format!("{label}: {operation}({inputs}{more} -> {o}, _{options})"));
    }

    /// Adds the operation of gradients, for the result of the forward operation with this label.
    fn backward(&self, file: &mut File, label: &str, operation: &str, more: &str, outputs: &str) {
        let Attention { inputs, o, options, .. } = self;
        let dy = file.tensor(self.dtype, &self.result);
        let of_lse = match file.below(2) {
            0 => format!(", {}", file.tensor(self.sums(), &self.rows)),
            _ => String::new(),
        };
        file.add(&format!("{operation}({inputs}, {o}, {label}.lse, {dy}{more}{of_lse}{options}{outputs})"));
    }

    /// Draws a bias.
    fn bias(&self, file: &mut File, keys: u64) -> String {
        let dtype = file.pick(&[self.dtype, self.sums()]);
        file.repeated(dtype, &[&self.rows[..], &[keys]].concat())
    }

    /// Adds attention with a bias and its gradients.
    fn with_bias(&self, file: &mut File, label: &str, bias: &str) {
        let (bias, outputs) = (format!(", {bias}"), file.pick(&["", " -> _, _, _, _"]));
        self.forward(file, label, "attention", &bias);
        self.backward(file, label, "biased_attention_backward", &bias, outputs);
    }
}

#[test]
fn attention_of_ragged_sequences() {
    let mut file = File::new(16);
    for case in 0..cases(7) {
        let dtype = if case == 0 { "bf16" } else { file.pick(&DTYPES) };
        let sequences = file.pick(&[1, 2, 9, 70]);
        let heads = [1 + file.below(2), file.pick(&[1, 2])];
        let positions = [file.pick(&[1, 40, 75]), file.pick(&[9, 64, 80])];
        let widths = [file.pick(&[1, 7, 16, 40, 64]), file.pick(&[3, 16, 40])];
        // Blocks of the gradients of keys share the queries of the first case.
        let (sequences, heads, positions) =
            if case == 0 { (2, [1, 4], [200, 60]) } else { (sequences, heads, positions) };
        let sizes = Sizes { lead: [&[], &[]], heads, positions, widths };
        let attention = Attention::draw(&mut file, dtype, &sizes, &OPTIONS);
        // Some ends do not ascend, and some lie outside of the tensors.
        let [index, kind] = [file.pick(&["i32", "i64"]), file.pick(&["i32", "i64"])];
        let (ends, key_ends) = (file.indices(index, &[sequences]), file.indices(kind, &[sequences]));
        let (label, ends) = (format!("r{case}"), format!(", {ends}, {key_ends}"));
        attention.forward(&mut file, &label, "ragged_attention", &ends);
        attention.backward(&mut file, &label, "ragged_attention_backward", &ends, "");
    }
    file.check();
}

#[test]
fn attention_with_a_bias() {
    let mut file = File::new(17);
    for case in 0..cases(9) {
        let dtype = file.pick(&DTYPES);
        let batch = 1 + file.below(2);
        // One case has enough keys to be shared by blocks.
        let positions = match case {
            0 => [1, 1100],
            _ => [file.pick(&[1, 5, 17, 70]), file.pick(&[1, 9, 64, 70])],
        };
        let heads = [1 + file.below(2), file.pick(&[1, 2])];
        let widths = [file.pick(&[1, 7, 16, 40, 64]), file.pick(&[3, 16, 40])];
        let sizes = Sizes { lead: [&[batch], &[batch]], heads, positions, widths };
        let attention = Attention::draw(&mut file, dtype, &sizes, &OPTIONS);
        let bias = attention.bias(&mut file, positions[1]);
        // A bias of -inf takes a key away, and some queries keep none.
        if file.below(2) == 0 {
            let least = file.pick(&["0.5", "-0.3"]);
            file.add(&format!("map(if {bias} > {least} {{ log({bias} * 0) }} else {{ {bias} * 3 }} -> {bias})"));
        }
        attention.with_bias(&mut file, &format!("b{case}"), &bias);
    }
    file.check();
}

/// The elements of a buffer by name, as a run of the double wrote it with `--outputs`.
fn of_double(folder: &str, name: &str) -> Vec<f32> {
    let file = std::fs::read(format!("{folder}/{name}.npy")).unwrap_or_else(|error| panic!("{name}: {error}"));
    let begin = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[begin..].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// A query whose keys are all masked by the bias has zeros and an `lse` of -inf, and passes no gradients on: on the CPU, and by
/// each kind of kernel on the double.
#[test]
fn a_query_whose_keys_are_all_masked() {
    let Some(libraries) = doubles::cpu_in_turn() else { return };
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
    let folder = Folder::new();
    let (file, outputs) = (folder.write("masked.aorta", &text), folder.path("outputs"));
    let arguments = [&doubles::RESULTS_ONLY[..], &["--outputs", &outputs]].concat();
    crate::random_shapes::verify_drawn(libraries, &file, &arguments);
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
        let dtype = file.pick(&DTYPES);
        let sequences = 1 + file.below(3);
        // One case has enough keys to be shared by blocks.
        let (blocks, page, columns, queries) = match case {
            0 => (9, 64, 20, 1),
            1 => (5, 16, 7, 2),
            _ => (1 + file.below(9), file.pick(&[1, 3, 16]), file.pick(&[1, 4, 7]), file.pick(&[1, 2, 33])),
        };
        let heads = [1 + file.below(2), file.pick(&[1, 2, 5])];
        let widths = [file.pick(&[1, 7, 16, 40, 64]), file.pick(&[3, 16, 40])];
        // Warps divide the columns of one case.
        let (dtype, heads, widths) = if case == 1 { ("bf16", [1, 5], [300, 264]) } else { (dtype, heads, widths) };
        let sizes = Sizes { lead: [&[sequences], &[blocks]], heads, positions: [queries, page], widths };
        let attention = Attention::draw(&mut file, dtype, &sizes, &OPTIONS);
        let [index, kind] = [file.pick(&["i32", "i64"]), file.pick(&["i32", "i64"])];
        // Some pages are not in the pool, and some lengths are negative or more than the pages hold.
        let pages = file.indices(index, &[sequences, columns]);
        file.add(&format!("map({pages} % {} -> {pages})", blocks + 1));
        let lengths = file.indices(kind, &[sequences]);
        if case == 0 {
            file.add(&format!("map({lengths} * 30 -> {lengths})"));
        }
        attention.forward(&mut file, &format!("p{case}"), "paged_attention", &format!(", {pages}, {lengths}"));
    }
    file.check();
}

#[test]
fn attention_of_heads_that_share_keys() {
    if !effort::is_due() {
        return;
    }
    let mut file = File::new(14);
    // The first case has enough rows for the largest blocks, which is much for the double.
    let first = if effort::is_long() { 0 } else { 1 };
    for case in first..8 {
        let dtype = if case < 2 || case == 7 { "f16" } else { file.pick(&DTYPES) };
        let batch = if case == 0 { 265 } else { 1 + file.below(2) };
        let heads = [1 + file.below(2), file.pick(&[1, 2])];
        let positions = [file.pick(&[1, 5, 17, 33]), file.pick(&[1, 9, 64, 70])];
        let widths = [file.pick(&[1, 7, 16, 40, 64, 130]), file.pick(&[3, 16, 40, 64])];
        let (heads, positions, widths) = match case {
            0 => ([1, 1], [65, 20], [16, 9]),
            // Enough keys to be shared by blocks.
            1 => (heads, [1, 1100], [16, 16]),
            // Enough queries to be shared by the blocks of the gradients of keys.
            7 => ([1, 4], [130, 40], [16, 9]),
            _ => (heads, positions, widths),
        };
        let sizes = Sizes { lead: [&[batch], &[batch]], heads, positions, widths };
        let attention = Attention::draw(&mut file, dtype, &sizes, &OPTIONS);
        let label = format!("f{case}");
        attention.forward(&mut file, &label, "attention", "");
        if case > 1 {
            attention.backward(&mut file, &label, "attention_backward", "", "");
        }
    }
    file.check();
}

/// Wide heads and types without tiles are computed by products of the library, or by a kernel with `fused`.
#[test]
fn attention_by_products() {
    let mut file = File::new(21);
    for case in 0..cases(8) {
        let dtype = file.pick(&["bf16", "f32", "f16", "f64"]);
        let batch = 1 + file.below(2);
        let heads = [1 + file.below(2), file.pick(&[1, 2, 3])];
        let positions = [file.pick(&[16, 17, 30]), file.pick(&[1, 16, 41])];
        let widths = [file.pick(&[257, 264, 320]), file.pick(&[9, 16, 300])];
        let sizes = Sizes { lead: [&[batch], &[batch]], heads, positions, widths };
        let options = ["", ", causal: true", ", causal: true, window: 7", ", scale: 0.1", ", algorithm: fused"];
        let attention = Attention::draw(&mut file, dtype, &sizes, &options);
        let label = format!("w{case}");
        if file.below(2) == 0 {
            attention.forward(&mut file, &label, "attention", "");
            attention.backward(&mut file, &label, "attention_backward", "", "");
        } else {
            let bias = attention.bias(&mut file, positions[1]);
            attention.with_bias(&mut file, &label, &bias);
        }
    }
    file.check();
}
