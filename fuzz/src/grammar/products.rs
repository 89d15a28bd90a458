//! Generates calls of matrix products and attention.

use super::Generator;
use super::operations::{FLOATS, Use, tensor_type};
use super::tensors::Tensor;

impl Generator<'_> {
    /// Attention of heads that share keys, or its gradients.
    fn attention(&mut self) -> Use {
        let dtype = self.choices.pick(&FLOATS);
        let sums = if dtype == "f64" { "f64" } else { "f32" };
        let [queries, keys] = [0, 0].map(|_| self.choices.pick(&[3, 1, 8]));
        let turned = self.choices.once_in(3);
        let dims = |heads: u64, positions: u64, size: u64| match turned {
            true => [positions, heads, size],
            false => [heads, positions, size],
        };
        let (q, k, v) = (dims(4, queries, 8), dims(2, keys, 8), dims(2, keys, 5));
        let (o, rows) = (dims(4, queries, 5), [4, queries]);
        let [all_q, all_k, all_v, all_o] = [&q, &k, &v, &o].map(|dims| tensor_type(dtype, dims));
        let option = self.choices.pick(&[
            "",
            ", causal: true",
            ", causal: true, window: 2, deterministic: false",
            ", scale: 0.5",
            ", softcap: 0.5",
            ", algorithm: naive",
            ", algorithm: fused",
        ]);
        let option = if turned { format!("{option}, layout: positions_first") } else { option.to_owned() };
        if self.choices.once_in(4) {
            let (blocks, columns) = (self.choices.pick(&[1, 5]), self.choices.pick(&[1, 3]));
            let pool = |dims: &[u64; 3]| tensor_type(dtype, &[&[blocks], dims.as_slice()].concat());
            let (pages, lengths) = (tensor_type("i32", &[2, columns]), tensor_type("i64", &[2]));
            let sequences = |dims: &[u64]| [&[2], dims].concat();
            let (k, v, q) = (pool(&k), pool(&v), tensor_type(dtype, &sequences(&q)));
            let text = format!("paged_attention({q}, {k}, {v}, {pages}, {lengths}{option})");
            return Use { text, scratch: vec![(".o", dtype, sequences(&o)), (".lse", sums, sequences(&rows))] };
        }
        if self.choices.once_in(4) {
            let (ends, key_ends) = (tensor_type("i32", &[3]), tensor_type("i64", &[3]));
            if self.choices.once_in(2) {
                let text = format!("ragged_attention({all_q}, {all_k}, {all_v}, {ends}, {key_ends}{option})");
                return Use { text, scratch: vec![(".o", dtype, o.to_vec()), (".lse", sums, rows.to_vec())] };
            }
            let rows = tensor_type(sums, &rows);
            let text = format!(
                "ragged_attention_backward({all_q}, {all_k}, {all_v}, {all_o}, {rows}, {all_o}, {ends}, {key_ends}{option})"
            );
            let scratch = vec![(".dq", dtype, q.to_vec()), (".dk", dtype, k.to_vec()), (".dv", dtype, v.to_vec())];
            return Use { text, scratch };
        }
        let bias = match self.choices.once_in(3) {
            true => {
                let forms: [&[u64]; 5] =
                    [&[4, queries, keys], &[4, 1, keys], &[queries, keys], &[keys], &[1, queries, 1]];
                let dims = self.choices.pick(&forms);
                format!(", {}", tensor_type(self.choices.pick(&[dtype, sums]), dims))
            }
            false => String::new(),
        };
        if self.choices.once_in(2) {
            let text = format!("attention({all_q}, {all_k}, {all_v}{bias}{option})");
            return Use { text, scratch: vec![(".o", dtype, o.to_vec()), (".lse", sums, rows.to_vec())] };
        }
        let rows = tensor_type(sums, &rows);
        let of_lse = if self.choices.once_in(2) { format!(", {rows}") } else { String::new() };
        let name = if bias.is_empty() { "attention_backward" } else { "biased_attention_backward" };
        let text = format!("{name}({all_q}, {all_k}, {all_v}, {all_o}, {rows}, {all_o}{bias}{of_lse}{option})");
        let scratch = vec![(".dq", dtype, q.to_vec()), (".dk", dtype, k.to_vec()), (".dv", dtype, v.to_vec())];
        Use { text, scratch }
    }

    fn scaled_gemm(&mut self) -> Use {
        let (m, n, k) = (self.choices.pick(&[1, 8, 3]), self.choices.pick(&[16, 5]), self.choices.pick(&[16, 32]));
        if self.choices.once_in(4) {
            let text =
                format!("gemm({}, {}, transpose_b: true)", tensor_type("i8", &[m, k]), tensor_type("i8", &[n, k]));
            return Use { text, scratch: vec![("", "i32", vec![m, n])] };
        }
        let [a, b] = [(); 2].map(|()| self.choices.pick(&["e4m3", "e5m2"]));
        let (scale_a, scale_b) = if self.choices.once_in(2) { (1, 1) } else { (m, n) };
        let text = format!(
            "scaled_gemm({}, {}, {}, {}, transpose_b: true)",
            tensor_type(a, &[m, k]),
            tensor_type(b, &[n, k]),
            tensor_type("f32", &[scale_a]),
            tensor_type("f32", &[scale_b])
        );
        Use { text, scratch: vec![("", "bf16", vec![m, n])] }
    }

    /// Groups of rows, each with a matrix, or groups of the depth.
    fn grouped_gemm(&mut self) -> Use {
        let dtype = self.choices.pick(&FLOATS);
        let [rows, depth] = [0, 0].map(|_| self.choices.pick(&[8, 3, 33]));
        let (groups, index) = (self.choices.pick(&[2, 1, 5]), self.choices.pick(&["i32", "i64"]));
        let ends = tensor_type(index, &[groups]);
        if self.choices.once_in(3) {
            let (a, b) = (tensor_type(dtype, &[rows, depth]), tensor_type(dtype, &[rows, 8]));
            let text = format!("grouped_gemm({a}, {b}, {ends}, transpose_a: true)");
            return Use { text, scratch: vec![("", dtype, vec![groups, depth, 8])] };
        }
        let turned = self.choices.once_in(2);
        let epilogue = self.choices.pick(&["", ", epilogue: silu", ", epilogue: gelu_tanh"]);
        let (sizes, option) = if turned { ([8, depth], ", transpose_b: true") } else { ([depth, 8], "") };
        let (a, b) = (tensor_type(dtype, &[rows, depth]), tensor_type(dtype, &[&[groups], &sizes[..]].concat()));
        Use {
            text: format!("grouped_gemm({a}, {b}, {ends}{option}{epilogue})"),
            scratch: vec![("", dtype, vec![rows, 8])],
        }
    }

    pub fn gemm(&mut self) -> Use {
        if self.choices.once_in(4) {
            return self.attention();
        }
        if self.choices.once_in(8) {
            return self.scaled_gemm();
        }
        if self.choices.once_in(4) {
            return self.windows();
        }
        if self.choices.once_in(8) {
            return self.grouped_gemm();
        }
        let a = self.operand(&FLOATS, |a| a.space != "host" && !a.gaps && a.dims.len() == 2);
        let [m, k] = a.dims[..] else { return Use::new("nop()".to_owned()) };
        let n = self.choices.pick(&[8, 4, 16]);
        let turned = self.choices.once_in(2);
        let sizes = if turned { [n, k] } else { [k, n] };
        let b = self.operand(&[a.dtype], |b| b.space != "host" && !b.gaps && b.dims == sizes);
        let other = b.clone();
        let b = if b.dims == sizes { b.name } else { tensor_type(a.dtype, &sizes) };
        let option = self.choices.pick(&["", ", transpose_a: false", ", compute: f32", ", compute: auto"]);
        let option = if a.dtype == "f32" && self.choices.once_in(4) { ", compute: tf32" } else { option };
        let bias = if self.choices.once_in(4) { format!(", {}", tensor_type(a.dtype, &[n])) } else { String::new() };
        let epilogue = self.choices.pick(&[
            "",
            "",
            ", epilogue: relu",
            ", epilogue: gelu",
            ", epilogue: gelu_tanh",
            ", epilogue: silu",
        ]);
        let turn = if turned { ", transpose_b: true" } else { "" };
        if self.choices.once_in(8) {
            let like = Tensor { dims: vec![m, n], ..a.clone() };
            if let Some(c) = self.written(&like, &[&a, &other]) {
                return Use::new(format!("gemm({}, {b}{bias} -> {c}{turn}{epilogue}, accumulate: true)", a.name));
            }
        }
        let b = format!("{b}{bias}{turn}{option}{epilogue}");
        if self.choices.once_in(8) {
            let text = format!(
                "gemm({}, {}, transpose_a: true)",
                tensor_type(a.dtype, &[2, 3, 5]),
                tensor_type(a.dtype, &[2, 3, n])
            );
            return Use { text, scratch: vec![("", a.dtype, vec![2, 5, n])] };
        }
        Use { text: format!("gemm({}, {b})", a.name), scratch: vec![("", a.dtype, vec![m, n])] }
    }
}
