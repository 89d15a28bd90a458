//! Uses of each operation on drawn shapes.

use aorta::base::random::hash;
use aorta::ops::CATALOGUE;

use super::{Case, ENDS, Function, PLAIN, WITHOUT, float8, judge};
use crate::common::effort;

/// Seeds for each operation.
const SEEDS: u64 = 6;

/// Sizes of a case, by seed: odd, one, and others.
pub(super) struct Draw {
    pub seed: u64,
    pub next: u64,
}

impl Draw {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next += 1;
        hash(self.seed, 1000 + self.next) % limit
    }

    pub fn size(&mut self) -> u64 {
        1 + self.below(5)
    }

    fn dims(&mut self, rank: u64) -> Vec<u64> {
        (0..rank).map(|_| self.size()).collect()
    }

    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// The same sizes, some of which are 1 or, from the first on, left out.
fn repeated(draw: &mut Draw, dims: &[u64]) -> Vec<u64> {
    let from = draw.below(dims.len() as u64 + 1) as usize;
    dims[from..].iter().map(|&size| if draw.below(2) == 0 { 1 } else { size }).collect()
}

/// Expressions of three tensors, of which all are smooth almost everywhere.
const EXPRESSIONS: &[&str] = &[
    "$0 * $1 + $2",
    "gelu($0 + $1) * sigmoid($2) - silu($1)",
    "exp($0 * 0.5) / (2 + cos($1)) - $2 * $2",
    "if $0 > $1 { $0 * $2 } else { tanh($1) - $2 }",
    "max($0, $1) * min($1, $2)",
    "abs($0) * sqrt(abs($1) + 1) + rsqrt($2 * $2 + 1)",
    "log($0 * $0 + 1) + log2($1 * $1 + 2) * erf($2)",
    "pow(abs($0) + 0.5, $1) + pow($2, 2) + pow($1, 3)",
    "sin($0) * relu($1) - (-$2) / (3 + $0 * $0)",
    "($0 + 20) % (abs($1) + 1.5) + floor($2) * $0 + $2",
    "$0 - $1 * $2 + ceil($1) + round($2) + $0 * 0",
];

/// Cases of an operation; `None` if there are none.
pub(super) fn cases(name: &str, seed: u64) -> Option<Case> {
    let mut draw = Draw { seed, next: 0 };
    let d = &mut draw;
    let rank = 1 + d.below(3);
    let dims = d.dims(rank);
    let rows = [vec![d.size(), d.size()], vec![d.size() + 1]].concat();
    let last = rows[rows.len() - 1];
    let text: String;
    let made = match name {
        "map" => {
            let [b, c] = [(); 2].map(|()| repeated(d, &dims));
            // The output may be larger than every input.
            let a = if d.below(3) == 0 { repeated(d, &dims) } else { dims.clone() };
            text = match d.below(3) {
                0 => format!("f: map({}, {} -> @0, @1)", d.pick(EXPRESSIONS), d.pick(EXPRESSIONS)),
                _ => format!("f: map({} + $0 + $1 + $2 -> @0)", d.pick(EXPRESSIONS)),
            };
            let outputs = vec![dims.clone(); 1 + usize::from(text.contains("@1"))];
            let order = first_uses(&text);
            return Some(
                Function { statement: &text, inputs: vec![a, b, c], outputs, order: Some(&order), ..PLAIN }.case(seed),
            );
        }
        "cast" => Function { statement: "f: cast($0 -> @0)", inputs: vec![dims.clone()], outputs: vec![dims], ..PLAIN },
        // Rows that a tensor counts: as many as both sides hold.
        "copy" if seed.is_multiple_of(3) => {
            let of = |rows: u64| [vec![rows], dims.clone()].concat();
            Function {
                more: "buffer c: i32[1, 2] = iota\n",
                statement: "map(c + 1 -> c)  f: copy($0, c -> @0)",
                inputs: vec![of(4)],
                outputs: vec![of(2 + seed % 3)],
                gaps: false,
                ..PLAIN
            }
        }
        "copy" => Function { statement: "f: copy($0 -> @0)", inputs: vec![dims.clone()], outputs: vec![dims], ..PLAIN },
        "dropout" => Function {
            statement: "f: dropout($0 -> @0, p: 0.3, seed: 7)",
            inputs: vec![dims.clone()],
            outputs: vec![dims],
            ..PLAIN
        },
        "gemm" => {
            let (m, n, k) = (d.size(), d.size(), d.size());
            let (lead_rank, turned_a, turned_b) = (d.below(3), d.below(2) == 1, d.below(2) == 1);
            let lead = d.dims(lead_rank);
            let (with_a, with_b) = [(true, true), (true, false), (false, true)][d.below(3) as usize];
            let matrix = |with: bool, a: u64, b: u64, turned: bool| {
                let own = if turned { vec![b, a] } else { vec![a, b] };
                [if with { lead.clone() } else { Vec::new() }, own].concat()
            };
            let epilogue = d.pick(&["none", "relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"]);
            // A gate takes half of the columns.
            let width = n;
            let n = if epilogue.ends_with("glu") { 2 * n } else { n };
            let has_bias = d.below(2) == 1;
            text = format!(
                "f: gemm($0, $1{} -> @0, transpose_a: {turned_a}, transpose_b: {turned_b}, epilogue: {epilogue})",
                if has_bias { ", $2" } else { "" }
            );
            let mut inputs = vec![matrix(with_a, m, k, turned_a), matrix(with_b, k, n, turned_b)];
            inputs.extend(has_bias.then(|| vec![n]));
            Function { statement: &text, inputs, outputs: vec![matrix(true, m, width, false)], ..PLAIN }
        }
        "scaled_gemm" => return Some(float8::scaled_product(seed)),
        "grouped_gemm" => {
            let (groups, rows, depth, columns) = (d.size(), d.size() + 1, d.size(), d.size());
            let [turned_a, turned_b, in_depth] = [(); 3].map(|()| d.below(2) == 1);
            let matrix =
                |rows: u64, columns: u64, turned: bool| if turned { vec![columns, rows] } else { vec![rows, columns] };
            let epilogue = d.pick(&["none", "relu", "gelu", "gelu_tanh", "silu", "swiglu"]);
            let width = columns;
            let columns = if epilogue.ends_with("glu") { 2 * columns } else { columns };
            // Ends that do not ascend, and some below the number of rows: the last rows are of no group.
            let more = format!("buffer i, ends: i32[{groups}] = iota\n");
            text = format!(
                "map(i * 3 % {} - 1 -> ends)  f: grouped_gemm($0, $1, ends -> @0, transpose_a: {turned_a}, transpose_b: {turned_b}, \
                 epilogue: {epilogue})",
                rows + 2
            );
            let (inputs, output) = match in_depth {
                true => {
                    (vec![matrix(depth, rows, turned_a), matrix(rows, columns, turned_b)], vec![groups, depth, width])
                }
                false => (
                    vec![matrix(rows, depth, turned_a), [vec![groups], matrix(depth, columns, turned_b)].concat()],
                    vec![rows, width],
                ),
            };
            return Some(Function { more: &more, statement: &text, inputs, outputs: vec![output], ..PLAIN }.case(seed));
        }
        "attention" => {
            let (batch, shared, group) = (d.below(2), d.size(), 1 + d.below(3));
            let (queries, size, value_size) = (d.size(), d.size(), d.size());
            // Each query sees a key: the logarithm of no sum has no differences.
            let keys = queries + d.below(4);
            let lead = d.dims(batch);
            let option = d.pick(&["", ", causal: true", ", causal: true, window: 2", ", scale: 0.7", ", softcap: 0.4"]);
            let layout = d.pick(&["", ", layout: positions_first"]);
            let tensor = |heads: u64, rows: u64, size: u64| match layout {
                "" => [lead.clone(), vec![heads, rows, size]].concat(),
                _ => [lead.clone(), vec![rows, heads, size]].concat(),
            };
            let heads = shared * group;
            let mut inputs =
                vec![tensor(heads, queries, size), tensor(shared, keys, size), tensor(shared, keys, value_size)];
            let scores = [lead.clone(), vec![heads, queries, keys]].concat();
            inputs.extend((d.below(2) == 0).then(|| repeated(d, &scores)));
            let bias = if inputs.len() > 3 { ", $3" } else { "" };
            text = format!("f: attention($0, $1, $2{bias} -> @0, @1{option}{layout})");
            let o = tensor(heads, queries, value_size);
            let lse = [lead.clone(), vec![heads, queries]].concat();
            Function { statement: &text, inputs, outputs: vec![o, lse], ..PLAIN }
        }
        "ragged_attention" => {
            let (shared, group, size, value_size) = (d.size(), 1 + d.below(3), d.size(), d.size());
            // Two sequences, each query of which sees a key: the logarithm of no sum has no differences.
            let [first, second] = [(); 2].map(|()| 1 + d.below(3));
            let (first_keys, second_keys) = (first + d.below(3), second + d.below(3));
            let (queries, keys) = (first + second, first_keys + second_keys);
            let option = d.pick(&["", ", causal: true", ", causal: true, window: 2", ", scale: 0.7", ", softcap: 0.4"]);
            let layout = d.pick(&["", ", layout: positions_first"]);
            let tensor = |heads: u64, rows: u64, size: u64| match layout {
                "" => vec![heads, rows, size],
                _ => vec![rows, heads, size],
            };
            let more = "buffer i, ends, key_ends: i32[2] = iota\n";
            text = format!(
                "map(i * {second} + {first} -> ends)  map(i * {second_keys} + {first_keys} -> key_ends)  \
                 f: ragged_attention($0, $1, $2, ends, key_ends -> @0, @1{option}{layout})"
            );
            let heads = shared * group;
            let inputs =
                vec![tensor(heads, queries, size), tensor(shared, keys, size), tensor(shared, keys, value_size)];
            let outputs = vec![tensor(heads, queries, value_size), vec![heads, queries]];
            return Some(Function { more, statement: &text, inputs, outputs, ..PLAIN }.case(seed));
        }
        "conv" | "conv_weights" => return Some(convolution(name, d).case(seed)),
        "pool" => {
            let rank = 1 + d.below(3);
            let lead = d.dims(2);
            let sizes = d.dims(rank);
            let mode = d.pick(&["max", "mean"]);
            let (option, windows) = match d.below(3) {
                0 => ("adaptive: true".to_owned(), d.dims(rank)),
                _ => {
                    let (size, stride) =
                        (sizes.iter().map(|&size| size.min(1 + d.below(3))).collect::<Vec<u64>>(), d.size());
                    let padding: Vec<u64> = size.iter().map(|&size| d.below(size / 2 + 1)).collect();
                    let fits = |axis: usize| 2 * (size[axis] - 1) < sizes[axis] + 2 * padding[axis] && sizes[axis] > 1;
                    let dilation = if mode == "max" && (0..sizes.len()).all(fits) { 1 + d.below(2) } else { 1 };
                    let span = |axis: usize| dilation * (size[axis] - 1) + 1;
                    let windows = |axis: usize| (sizes[axis] + 2 * padding[axis] - span(axis)) / stride + 1;
                    let counts = d.below(2) == 0;
                    let option = format!(
                        "size: {size:?}, stride: {stride}, padding: {padding:?}, dilation: {dilation}, count_padding: {counts}"
                    );
                    (option, (0..sizes.len()).map(windows).collect())
                }
            };
            let [inputs, outputs] = [sizes, windows].map(|sizes| vec![[lead.clone(), sizes].concat()]);
            let (more, indices) = match mode == "max" && d.below(2) == 0 {
                true => (format!("buffer places: i32{:?}\n", outputs[0]), ", places"),
                false => (String::new(), ""),
            };
            text = format!("f: pool($0 -> @0{indices}, mode: {mode}, {option})");
            return Some(Function { more: &more, statement: &text, inputs, outputs, ..PLAIN }.case(seed));
        }
        "softmax" => Function {
            statement: ["f: softmax($0 -> @0)", "f: softmax($0 -> @0, scale: 0.7)"][d.below(2) as usize],
            inputs: vec![rows.clone()],
            outputs: vec![rows],
            ..PLAIN
        },
        "transpose" => match d.below(2) {
            0 => Function {
                statement: "f: transpose($0 -> @0)",
                outputs: vec![vec![rows[0], rows[2], rows[1]]],
                inputs: vec![rows],
                ..PLAIN
            },
            _ => Function {
                statement: "f: transpose($0 -> @0, dims: [2, 0, 1])",
                outputs: vec![vec![rows[2], rows[0], rows[1]]],
                inputs: vec![rows],
                ..PLAIN
            },
        },
        "gather" => Function {
            more: "buffer i: i32[7] = iota\nbuffer j: i32[7]\n",
            statement: "map(i * 3 % 6 - 1 -> j)  f: gather($0, j -> @0)",
            inputs: vec![vec![4, dims[0]]],
            outputs: vec![vec![7, dims[0]]],
            ..PLAIN
        },
        "embedding" => Function {
            more: "buffer i, j: i64[2, 3] = iota\n",
            statement: "map(i * 3 % 5 - 1 -> j)  f: embedding($0, j -> @0)",
            inputs: vec![vec![3, dims[0]]],
            outputs: vec![vec![2, 3, dims[0]]],
            ..PLAIN
        },
        "scatter" => {
            let combine = d.pick(&["set", "add"]);
            let weighted = d.below(2) == 0;
            let tail = if d.below(2) == 0 { vec![dims[0]] } else { Vec::new() };
            text = format!(
                "map(i * 3 % 5 - 1 -> j)  f: scatter($0, j{} -> @0, combine: {combine})",
                if weighted { ", $1" } else { "" }
            );
            let inputs =
                [vec![[vec![2, 3], tail.clone()].concat()], if weighted { vec![vec![2, 3]] } else { Vec::new() }]
                    .concat();
            let order = if weighted { "$0, _, $1" } else { "$0" };
            Function {
                more: "buffer i, j: i32[2, 3] = iota\n",
                statement: &text,
                inputs,
                outputs: vec![[vec![5], tail].concat()],
                order: Some(order),
                ..PLAIN
            }
        }
        "route" => {
            let (capacity, normalize) = (1 + d.below(4), d.below(2) == 0);
            let scores = d.pick(&["given", "softmax", "sigmoid"]);
            let groups = if normalize { "" } else { d.pick(&["", ", groups: 3, group_k: 2"]) };
            text = format!(
                "f: route($0, k: 2, capacity: {capacity}, normalize: {normalize}, scores: {scores}{groups} \
                 -> slots, @0, dropped)"
            );
            routed(&text, capacity)
        }
        "top_k" => {
            let k = 1 + d.below(last);
            text = format!("buffer places: i32[{}, {}, {k}]\n", rows[0], rows[1]);
            let statement = format!("f: top_k($0, k: {k} -> @0, places)");
            let mut values = rows.clone();
            values[2] = k;
            return Some(
                Function { more: &text, statement: &statement, inputs: vec![rows], outputs: vec![values], ..PLAIN }
                    .case(seed),
            );
        }
        "sort" => {
            text = format!("buffer places: i32[{}, {}, {last}]\n", rows[0], rows[1]);
            let statement = format!("f: sort($0, descending: {} -> @0, places)", d.below(2) == 0);
            let (inputs, outputs) = (vec![rows.clone()], vec![rows]);
            return Some(Function { more: &text, statement: &statement, inputs, outputs, ..PLAIN }.case(seed));
        }
        "permute" | "unpermute" => {
            let (count, experts, k) = (1 + d.below(6), d.size(), 1 + d.below(3));
            let per_row = d.below(2) == 0;
            let choices = if per_row { vec![count] } else { vec![count, k] };
            let all: u64 = choices.iter().product();
            let tail = if d.below(2) == 0 { vec![last] } else { vec![rows[1], last] };
            // Some choices are of no expert.
            let more = format!(
                "buffer i, j, places: i32{choices:?} = iota\nbuffer counts: i32[{experts}]\nbuffer sorted: \
                 f64[{all}]\nbuffer data: f64[{count}]\n"
            );
            let chosen = format!("map(i * 5 % {} - 1 -> j)", experts + 1);
            let tensor = |rows: u64| [vec![rows], tail.clone()].concat();
            if name == "permute" {
                text = format!("{chosen}  f: permute($0, j, experts: {experts} -> @0, places, counts)");
                let (inputs, outputs) = (vec![tensor(count)], vec![tensor(all)]);
                return Some(Function { more: &more, statement: &text, inputs, outputs, ..PLAIN }.case(seed));
            }
            let weights = d.below(2) == 0;
            let first = format!("{chosen}  permute(data, j, experts: {experts} -> sorted, places, counts)");
            text = format!("{first}  f: unpermute($0, places{} -> @0)", if weights { ", $1" } else { "" });
            let inputs = [vec![tensor(all)], vec![choices; usize::from(weights)]].concat();
            let (order, outputs) = (weights.then_some("$0, _, $1"), vec![tensor(count)]);
            return Some(Function { more: &more, statement: &text, inputs, outputs, order, ..PLAIN }.case(seed));
        }
        "grad_norm" => Function {
            statement: "f: grad_norm($0, $1, $2 -> @0)",
            inputs: vec![rows, dims, vec![last]],
            outputs: vec![Vec::new()],
            gaps: false,
            ..PLAIN
        },
        "cosine_similarity" => {
            let (other, axis) = (repeated(d, &rows), d.below(3) as usize);
            text = format!("f: cosine_similarity($0, $1, dim: {axis}, eps: 0.01 -> @0)");
            let output = (0..3).filter(|other| *other != axis).map(|other| rows[other]).collect();
            Function { statement: &text, inputs: vec![rows, other], outputs: vec![output], ..PLAIN }
        }
        "triplet" => {
            let (p, swap) = (1 + d.below(2), d.below(2) == 0);
            text = format!("f: triplet($0, $1, $2, margin: 2, p: {p}, swap: {swap} -> @0)");
            let inputs = vec![rows.clone(), repeated(d, &rows), repeated(d, &rows)];
            Function { statement: &text, inputs, outputs: vec![rows[..2].to_vec()], ..PLAIN }
        }
        "batch_norm" => {
            let (channels, count) = (d.size(), d.below(3));
            let more: String = (0..count).map(|index| format!(", ${}", index + 1)).collect();
            text = format!("f: batch_norm($0{more}, eps: 0.01 -> @0, @1, @2)");
            let rank = d.below(3);
            let x = [vec![d.size() + 1, channels], d.dims(rank)].concat();
            let inputs = [vec![x.clone()], vec![vec![channels]; count as usize]].concat();
            Function { statement: &text, inputs, outputs: vec![x, vec![channels], vec![channels]], ..PLAIN }
        }
        "sum" | "mean" | "prod" | "max" | "min" | "logsumexp" => {
            let b = repeated(d, &rows);
            let (axes, keep) = (d.below(5), d.below(2) == 0);
            let reduced: &[usize] = [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]][axes as usize];
            let expression = d.pick(&["$0", "$0 * $1", "exp($1) + $0 * $0", "$1 + $0", "$1 * 2 + sin($0)"]);
            text = format!("f: {name}({expression} -> @0, dims: {reduced:?}, keepdim: {keep})");
            let mut output = rows.clone();
            reduced.iter().for_each(|&axis| output[axis] = 1);
            if !keep {
                output = (0..3).filter(|axis| !reduced.contains(axis)).map(|axis| rows[axis]).collect();
            }
            let two = text.contains("$1");
            let order = first_uses(&text);
            let inputs = if two { vec![rows, b] } else { vec![rows] };
            return Some(
                Function { statement: &text, inputs, outputs: vec![output], order: Some(&order), ..PLAIN }.case(seed),
            );
        }
        "rms_norm" | "layer_norm" | "add_rms_norm" | "add_layer_norm" => {
            let adds = name.starts_with("add_");
            let most = if name.ends_with("layer_norm") { 3 } else { 2 };
            let count = d.below(most);
            let first = if adds { "$0, $1" } else { "$0" };
            let more: String = (0..count).map(|index| format!(", ${}", index + 1 + u64::from(adds))).collect();
            let outputs = if adds { "@0, @1" } else { "@0" };
            text = format!("f: {name}({first}{more}, eps: 0.01 -> {outputs})");
            let each = 1 + usize::from(adds);
            let inputs = [vec![rows.clone(); each], vec![vec![last]; count as usize]].concat();
            Function { statement: &text, inputs, outputs: vec![rows; each], ..PLAIN }
        }
        "group_norm" | "instance_norm" => {
            let (channels, count) = (2 * d.size(), d.below(3));
            let more: String = (0..count).map(|index| format!(", ${}", index + 1)).collect();
            let groups = if name == "group_norm" { ", groups: 2" } else { "" };
            text = format!("f: {name}($0{more}{groups}, eps: 0.01 -> @0)");
            let x = [
                vec![d.size(), channels],
                {
                    let rank = d.below(3);
                    d.dims(rank)
                },
                vec![2],
            ]
            .concat();
            let inputs = [vec![x.clone()], vec![vec![channels]; count as usize]].concat();
            Function { statement: &text, inputs, outputs: vec![x], gaps: false, ..PLAIN }
        }
        "cross_entropy" => {
            text = format!(
                "map(i * 7 % {} - 1 -> t)  f: cross_entropy($0, t, ignore_index: 0, label_smoothing: {} -> @0)",
                last + 2,
                d.pick(&["0", "0.2"])
            );
            let more = format!("buffer i, t: i32[{}, {}] = iota\n", rows[0], rows[1]);
            let outputs = vec![rows[..2].to_vec()];
            return Some(Function { more: &more, statement: &text, inputs: vec![rows], outputs, ..PLAIN }.case(seed));
        }
        "mse" | "l1" | "huber" | "kl_div" | "hinge" => {
            let reduction = d.pick(&["mean", "sum", "none"]);
            text = format!("f: {name}($0, $1 -> @0, reduction: {reduction})");
            let output = if reduction == "none" { rows.clone() } else { Vec::new() };
            let init = if name == "kl_div" { " = ones" } else { "" };
            Function { statement: &text, inputs: vec![rows; 2], outputs: vec![output], init, ..PLAIN }
        }
        "cumsum" | "cumprod" => {
            text = format!("f: {name}($0, dim: {}, reverse: {} -> @0)", d.below(3), d.pick(&["false", "true"]));
            Function { statement: &text, inputs: vec![rows.clone()], outputs: vec![rows], ..PLAIN }
        }
        "concat" => {
            let axis = d.below(3) as usize;
            let mut other = rows.clone();
            other[axis] = d.size();
            let mut all = rows.clone();
            all[axis] += other[axis];
            text = format!("f: concat($0, $1, dim: {axis} -> @0)");
            Function { statement: &text, inputs: vec![rows, other], outputs: vec![all], ..PLAIN }
        }
        "pad" => {
            let (before, after) = (vec![d.below(3), d.below(2), d.below(3)], vec![d.below(2), d.below(3), d.below(2)]);
            text = format!("f: pad($0, before: {before:?}, after: {after:?}, value: 3 -> @0)");
            let all = (0..3).map(|axis| rows[axis] + before[axis] + after[axis]).collect();
            Function { statement: &text, inputs: vec![rows], outputs: vec![all], ..PLAIN }
        }
        "rope" => {
            let (x, half) = (vec![rows[0], rows[1], 2 * last], vec![rows[0], rows[1], last]);
            let angles = [(); 2].map(|()| repeated(d, &half));
            Function {
                statement: "f: rope($0, $1, $2 -> @0)",
                inputs: [vec![x.clone()], angles.to_vec()].concat(),
                outputs: vec![x],
                ..PLAIN
            }
        }
        _ => return collectives(name, seed, &dims),
    };
    Some(made.case(seed))
}

/// A convolution of any form.
fn convolution(name: &str, d: &mut Draw) -> Function<'static> {
    let (samples, groups, inputs, outputs) = (1 + d.below(2), 1 + d.below(2), 1 + d.below(3), 1 + d.below(3));
    let spatial = 1 + d.below(3);
    let transposed = name == "conv" && d.below(2) == 0;
    let [mut x, mut w, mut y] =
        [vec![samples, groups * inputs], vec![groups * outputs, inputs], vec![samples, groups * outputs]];
    let mut options = [const { Vec::new() }; 4];
    for _ in 0..spatial {
        let (kernel, dilation, stride) = (1 + d.below(3), 1 + d.below(2), 1 + d.below(3));
        let span = dilation * (kernel - 1) + 1;
        let padding = d.below(span.div_ceil(2));
        let size = (span + d.below(4)).saturating_sub(2 * padding).max(1);
        let windows = (size + 2 * padding - span) / stride + 1;
        x.push(size);
        w.push(kernel);
        y.push(windows);
        let added = size + 2 * padding - (windows - 1) * stride - span;
        for (list, value) in options.iter_mut().zip([stride, padding, dilation, added]) {
            list.push(value);
        }
    }
    let [stride, padding, dilation, added] = options;
    let options = format!("stride: {stride:?}, padding: {padding:?}, dilation: {dilation:?}, groups: {groups}");
    let (text, mut inputs, output) = match (name, transposed) {
        ("conv_weights", _) => {
            let size = w[2..].to_vec();
            (format!("f: conv_weights($0, $1 -> @0, size: {size:?}, {options})"), vec![x, y], w)
        }
        (_, true) => (
            format!("f: conv($0, $1BIAS -> @0, {options}, transposed: true, output_padding: {added:?})"),
            vec![y, w],
            x,
        ),
        _ => (format!("f: conv($0, $1BIAS -> @0, {options})"), vec![x, w], y),
    };
    let has_bias = name == "conv" && d.below(2) == 0;
    inputs.extend(has_bias.then(|| vec![output[1]]));
    let statement = text.replace("BIAS", if has_bias { ", $2" } else { "" });
    Function { statement: statement.leak(), inputs, outputs: vec![output], ..PLAIN }
}

/// The gradients in the order in which an expression names its inputs.
fn first_uses(text: &str) -> String {
    let mut found: Vec<&str> = Vec::new();
    for (at, _) in text.match_indices('$') {
        let one = &text[at..at + 2];
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found.join(", ")
}

/// The gradient of weights that `route` gives to the slots of three experts.
fn routed(text: &str, capacity: u64) -> Function<'_> {
    let more: &'static str = match capacity {
        1 => "buffer slots: i32[3, 1]\nbuffer dropped: i32[3]\n",
        2 => "buffer slots: i32[3, 2]\nbuffer dropped: i32[3]\n",
        3 => "buffer slots: i32[3, 3]\nbuffer dropped: i32[3]\n",
        _ => "buffer slots: i32[3, 4]\nbuffer dropped: i32[3]\n",
    };
    Function { more, statement: text, inputs: vec![vec![5, 3]], outputs: vec![vec![3, capacity]], gaps: false, ..PLAIN }
}

/// Collectives of three ranks.
fn collectives(name: &str, seed: u64, dims: &[u64]) -> Option<Case> {
    let own = dims.to_vec();
    let all = [vec![3], own.clone()].concat();
    let mean = if seed.is_multiple_of(2) { "sum" } else { "mean" };
    let text = match name {
        "all_reduce" => format!("f: all_reduce($0 -> @0, op: {mean})"),
        "all_gather" => "f: all_gather($0 -> @0)".to_owned(),
        "reduce_scatter" => format!("f: reduce_scatter($0 -> @0, op: {mean})"),
        "broadcast" => "f: broadcast($0 -> @0, root: 1)".to_owned(),
        "reduce" => format!("f: reduce($0 -> @0, op: {mean}, root: 2)"),
        "all_to_all" if seed.is_multiple_of(3) => {
            format!(
                "map((c * {} + 1) % 3 -> c)  f: all_to_all($0, c -> @0, back: {})",
                2 + seed % 5,
                seed.is_multiple_of(2)
            )
        }
        "all_to_all" if seed.is_multiple_of(2) => "f: all_to_all($0 -> @0)".to_owned(),
        "all_to_all" => "f: all_to_all($0 -> @0, counts: [[1, 0, 2], [0, 1, 1], [2, 1, 0]])".to_owned(),
        "send" | "recv" => "f: ring($0 -> @0)".to_owned(),
        _ => return None,
    };
    let (inputs, outputs) = match name {
        "all_gather" => (own, all),
        "reduce_scatter" => (all, own),
        // Some counts are more than one of the sides holds.
        "all_to_all" if text.contains("c ->") => ([vec![5], own.clone()].concat(), [vec![4], own.clone()].concat()),
        "all_to_all" => (all.clone(), all),
        _ => (own.clone(), own),
    };
    let more = match name {
        "send" | "recv" => {
            "def ring(x -> y) {\n  h: map(x * 2)\n  group {\n    send(h, to: (rank + 1) % world)\n    recv(-> y, from: (rank + 2) % world)\n  }\n}\n"
        }
        "all_to_all" => "buffer c: i32[3, 6] = iota\n",
        _ => "",
    };
    let function = Function {
        more,
        statement: &text,
        inputs: vec![inputs],
        outputs: vec![outputs],
        gaps: false,
        ranks: 3,
        ..PLAIN
    };
    Some(function.case(seed))
}

/// Each operation has gradients, and a case, or a reason why it has none.
#[test]
fn each_operation_has_gradients_or_a_reason() {
    for operation in CATALOGUE {
        let name = operation.name();
        let listed = WITHOUT.iter().any(|(without, _)| *without == name) || ENDS.contains(&name);
        assert_ne!(listed, cases(name, 0).is_some(), "`{name}` has cases, or is listed, and not both");
    }
}

#[test]
fn gradients_are_differences() {
    let mut failed = Vec::new();
    for operation in CATALOGUE {
        for seed in effort::chosen(0..SEEDS) {
            let Some(case) = cases(operation.name(), hash(seed, 77)) else { continue };
            if std::panic::catch_unwind(|| judge(&case)).is_err() {
                failed.push(format!("{} by seed {seed}", operation.name()));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
