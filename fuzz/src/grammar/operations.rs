//! Generates a valid call of each operation of the catalogue.

use super::Generator;
use super::tensors::Tensor;

pub const FLOATS: [&str; 4] = ["f32", "f16", "bf16", "f64"];
pub const TYPES: [&str; 10] = ["f32", "f16", "bf16", "i32", "f64", "i8", "u8", "i64", "e4m3", "e5m2"];

/// A call of an operation as text, without a label.
pub struct Use {
    pub text: String,
    /// Outputs in scratch memory: member name after the label, element type, sizes.
    pub scratch: Vec<(&'static str, &'static str, Vec<u64>)>,
}

impl Use {
    pub fn new(text: String) -> Use {
        Use { text, scratch: Vec::new() }
    }
}

/// Formats a tensor type, such as `f32[8, 16]`.
pub fn tensor_type(dtype: &str, dims: &[u64]) -> String {
    format!("{dtype}{dims:?}")
}

impl Generator<'_> {
    /// Generates an operation of one rank.
    pub fn alone(&mut self) -> Use {
        match self.choices.below(40) {
            0..=2 => self.map(),
            3 => self.cast(),
            4 | 5 => self.gemm(),
            6 => self.softmax(),
            7 => self.ordered(),
            8 => self.transpose(),
            9 => self.gather(),
            10 => self.scatter(),
            11 => self.route(),
            12..=14 => self.copy(),
            15 => self.memset(),
            16 => self.fill(),
            17 => {
                let time = self.quantity(0);
                let units = if self.choices.once_in(2) { format!(", units: {}", self.whole(2)) } else { String::new() };
                Use::new(format!("spin({time}{units})"))
            }
            18 => {
                let unit = self.choices.pick(&["", ", unit: matrix", ", unit: matrix, dtype: f16", ", unit: vector"]);
                let bytes = self.choices.pick(&["0B", "64MiB"]);
                Use::new(format!("work(flops: {}, bytes: {bytes}{unit})", self.quantity(3)))
            }
            19 => {
                let access = self.choices.pick(&["", ", stride: 128B", ", access: random", ", access: sequential"]);
                let held = self.choices.pick(&["", ", time: 10us", ", time: 5us, units: 4"]);
                Use::new(format!("work(bytes: {}{access}{held})", self.choices.pick(&["4KiB", "1MB"])))
            }
            20 => self.map_several(),
            21 => self.embedding(),
            22 => self.concat(),
            23 => self.pad(),
            24 => Use { text: "triad(64KiB)".to_owned(), scratch: vec![("", "f32", vec![16384])] },
            25 => self.rope(),
            26 => self.dropout(),
            27 | 28 => self.optimizer(),
            29 => self.view(),
            30 | 31 => self.reduction(),
            32 => self.norm(),
            33 | 34 => self.loss(),
            35 => self.scan(),
            36 | 37 => self.call_kernel(),
            _ => Use::new("nop()".to_owned()),
        }
    }

    /// Generates a collective.
    pub fn collective(&mut self) -> Use {
        self.together += 1;
        let over = self.group();
        let size = if over.is_empty() { "world".to_owned() } else { format!("{}.size", &over[6..]) };
        let op = format!("op: {}", self.choices.pick(&["sum", "mean", "min", "max", "product"]));
        let x = self.operand(&["f32", "f16", "bf16", "f64"], |x| x.space == "device" && !x.gaps);
        let wide = format!("f32[{size} * 4, 8]");
        let made = match self.choices.below(10) {
            0 => {
                let out = if x.writable && self.choices.once_in(2) {
                    format!(" -> {}", x.name)
                } else {
                    self.result(&x, &[&x])
                };
                format!("all_reduce({}, {op}{out})", x.name)
            }
            1 => format!("all_gather({})", x.name),
            2 => format!("reduce_scatter({wide}, {op})"),
            3 => format!("all_to_all({wide})"),
            4 if over.is_empty() => {
                let lists = "if world == 1 { [[1]] } else if world == 3 { [[1, 2, 1], [2, 1, 1], [1, 1, 2]] } else { [[1, 1], [1, 1]] }";
                format!("all_to_all({wide}, counts: {lists})")
            }
            5 => {
                let out = self.result(&x, &[&x]);
                format!("broadcast({}, root: {}{out})", x.name, self.choices.pick(&["0", &format!("{size} - 1")]))
            }
            6 => match self.written(&x, &[&x]) {
                Some(out) => format!("reduce({}, {op}, root: 0 -> {out})", x.name),
                None => format!("all_reduce({}, {op})", x.name),
            },
            7 => match self.written(&x, &[&x]) {
                Some(out) if self.choices.once_in(2) => {
                    let back = self.choices.pick(&["", ", back: true"]);
                    format!("all_to_all({}, i32[{size}, {size}]{back} -> {out})", x.name)
                }
                _ => "barrier()".to_owned(),
            },
            8 => match self.written(&x, &[&x]) {
                Some(out) if over.is_empty() => {
                    let (to, from) = ("(rank + 1) % world", "(rank - 1) % world");
                    format!("group {{ send({}, to: {to}) recv(-> {out}, from: {from}) }}", x.name)
                }
                _ => format!("group {{ all_reduce({}){over} barrier() {over} }}", x.name),
            },
            _ => self.copy_to_peer(),
        };
        self.together -= 1;
        let whole = made.starts_with("group") || made.starts_with("copy");
        Use::new(if whole { made } else { made + &over })
    }

    /// Generates ` over FACTOR`, or an empty text.
    fn group(&mut self) -> String {
        if self.mesh.is_empty() || self.choices.once_in(2) {
            return self.choices.pick(&["", " over world"]).to_owned();
        }
        format!(" over {}", self.choices.pick(&self.mesh.clone()))
    }

    fn copy_to_peer(&mut self) -> String {
        let x = self.operand(&TYPES, |x| x.space == "device");
        let there =
            self.tensors.iter().find(|y| y.declared && y.space == "device" && y.memory != x.memory && y.fits(&x));
        let Some(there) = there.map(|y| y.name.clone()) else { return "barrier()".to_owned() };
        let via = self.choices.pick(&["", ", via: dma", ", via: kernel"]);
        let (at, when) = self.choices.pick(&[
            ("(rank + 1) % world", ""),
            ("rank + 1", " when rank + 1 < world"),
            ("rank", ""),
            ("(rank - 1) % world", " when rank > 0"),
        ]);
        format!("copy({} -> {there} at {at}{when}{via})", x.name)
    }

    fn map(&mut self) -> Use {
        let x = self.operand(&TYPES, |x| x.space != "host");
        let dtype = x.dtype;
        let y = self
            .operand(&[dtype], |y| y.space != "host" && (y.dims == x.dims || y.dims[..] == x.dims[x.dims.len() - 1..]));
        let y = if y.dims == x.dims || y.dims[..] == x.dims[x.dims.len() - 1..] { y } else { x.clone() };
        let number = self.choices.pick(&["0.5", "2", "1e-3", "-1", "80%"]);
        let (a, b) = (&x.name, &y.name);
        let expression = match self.choices.below(14) {
            0 => format!("{a} * {number} + {b}"),
            1 => format!("{a} + {}", self.index(4)),
            2 => format!("gelu({a}) - tanh({b}) / 3"),
            3 => format!("if {a} > 0 and {b} <= 1 {{ {a} }} else {{ -{b} }}"),
            4 => format!("exp(-abs({a})) + log(abs({b}) + 1) + log2(abs({b}) + 1)"),
            5 => format!("sqrt(abs({a})) * rsqrt(abs({b}) + 1)"),
            6 => format!("sin({a}) * cos({b}) + erf({a}) + sigmoid({a}) * silu({b})"),
            7 => format!("max({a}, {b}) + min({a}, {number}) + relu({a})"),
            8 => format!("pow(abs({a}), 2) + floor({a}) + ceil({b}) + round({a})"),
            9 => format!("not ({a} == 0) or {b} != 1"),
            10 => format!("({a} % 2) / 3"),
            11 => format!("if {} {{ {a} }} else {{ {a} * 2 }} + {b}", self.condition()),
            12 => format!("{a} * (rank + 1) / world"),
            _ => format!("{a} * 1"),
        };
        let out = match self.choices.below(4) {
            1 if x.writable && x.memory != y.memory => format!(" -> {}", x.name),
            _ => self.result(&x, &[&x, &y]),
        };
        let scratch = if out.is_empty() { vec![("", dtype, x.dims)] } else { vec![] };
        Use { text: format!("map({expression}{out})"), scratch }
    }

    /// `map` with an output for each of several expressions.
    fn map_several(&mut self) -> Use {
        let x = self.operand(&TYPES, |x| x.space != "host");
        let (a, dtype) = (&x.name, x.dtype);
        let expressions = self.choices.pick(&["A + 1, A - 1", "A * 2, 3 - A, abs(A)"]).replace('A', a);
        let text = match self.written(&x, &[&x]) {
            Some(out) if self.choices.once_in(2) => format!("map({expressions} -> {out})"),
            _ => format!("map({expressions})"),
        };
        let scratch = match text.contains("->") {
            true => vec![(".y2", dtype, x.dims)],
            false => vec![(".y", dtype, x.dims.clone()), (".y2", dtype, x.dims)],
        };
        Use { text, scratch }
    }

    fn embedding(&mut self) -> Use {
        let kind = self.choices.pick(&["i32", "i64"]);
        let ids = self.operand(&[kind], |ids| ids.space != "host" && ids.dims.len() < 4);
        let dtype = self.choices.pick(&FLOATS);
        let table = tensor_type(dtype, &[50, 4]);
        let dims = [&ids.dims[..], &[4]].concat();
        Use { text: format!("embedding({table}, {})", ids.name), scratch: vec![("", dtype, dims)] }
    }

    fn concat(&mut self) -> Use {
        let x = self.operand(&TYPES, |x| x.space != "host" && !x.dims.is_empty());
        let (dim, axis) = if self.choices.once_in(2) { ("", 0) } else { (", dim: -1", x.dims.len() - 1) };
        let mut dims = x.dims.clone();
        dims[axis] *= 3;
        let text = format!("concat({x}, {x}, {x}{dim})", x = x.name);
        Use { text, scratch: vec![("", x.dtype, dims)] }
    }

    fn pad(&mut self) -> Use {
        let x = self.operand(&TYPES, |x| x.space != "host" && !x.dims.is_empty());
        let mut border = vec![0; x.dims.len()];
        let axis = self.choices.below(border.len());
        border[axis] = 2;
        let (side, value) = (self.choices.pick(&["before", "after"]), self.choices.pick(&["", ", value: -1"]));
        let dims: Vec<u64> = x.dims.iter().zip(&border).map(|(size, border)| size + border).collect();
        Use { text: format!("pad({}, {side}: {border:?}{value})", x.name), scratch: vec![("", x.dtype, dims)] }
    }

    fn rope(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && x.dims.last().is_some_and(|last| last % 2 == 0));
        let Some(last) = x.dims.last().filter(|last| *last % 2 == 0) else { return Use::new("nop()".to_owned()) };
        let angles = tensor_type("f32", &[last / 2]);
        let out = self.result(&x, &[&x]);
        let scratch = if out.is_empty() { vec![("", x.dtype, x.dims)] } else { vec![] };
        Use { text: format!("rope({}, {angles}, {angles}{out})", x.name), scratch }
    }

    fn dropout(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host");
        let options = self.choices.pick(&["", ", p: 0.1", ", p: 10%, seed: 7", ", seed: 1"]);
        let out = self.result(&x, &[&x]);
        let scratch = if out.is_empty() { vec![("", x.dtype, x.dims)] } else { vec![] };
        Use { text: format!("dropout({}{options}{out})", x.name), scratch }
    }

    /// An operation on a tensor in other dimensions.
    fn view(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && !x.gaps && !x.name.contains("view("));
        if x.is_bare() {
            // A view is of a tensor that has a name.
            return Use::new("nop()".to_owned());
        }
        let elements: u64 = x.dims.iter().product();
        // A whole view is a box, however the memory is sliced elsewhere.
        let (all, slice, sizes) = [
            (vec![elements], "", vec![elements]),
            (vec![1, elements], "", vec![1, elements]),
            (vec![elements, 1], "", vec![elements, 1]),
            (vec![1, elements], "[0]", vec![elements]),
            (vec![elements, 1], "[.., 0]", vec![elements]),
        ][self.choices.below(5)]
        .clone();
        let view = format!("view({}, {all:?}){slice}", x.name);
        match self.choices.once_in(2) && x.writable {
            true => Use::new(format!("map({view} * 2 -> {view})")),
            false => Use { text: format!("softmax({view})"), scratch: vec![("", x.dtype, sizes)] },
        }
    }

    /// A step of an optimizer, which updates declared buffers: they hold something.
    fn optimizer(&mut self) -> Use {
        let fits = |y: &Tensor| y.declared && y.writable && y.space != "host" && FLOATS.contains(&y.dtype);
        let Some(first) = self.tensors.iter().rev().find(|y| fits(y)).cloned() else {
            return Use::new("nop()".to_owned());
        };
        let mut all: Vec<Tensor> = vec![];
        for y in self.tensors.iter().filter(|y| fits(y) && y.dims == first.dims) {
            if all.iter().all(|known| known.memory != y.memory) {
                all.push(y.clone());
            }
        }
        let g = tensor_type(first.dtype, &first.dims);
        let names: Vec<&str> = all.iter().map(|y| y.name.as_str()).collect();
        Use::new(match &names[..] {
            [w, m, v, ..] => {
                let options = self.choices.pick(&[
                    "",
                    ", lr: 1e-4, step: 3",
                    ", beta1: 0.8, beta2: 0.99",
                    ", eps: 1e-6, weight_decay: 0.1",
                ]);
                format!("adamw({g}{options} -> {w}, {m}, {v})")
            }
            [w, v] => {
                let options = self.choices.pick(&["", ", nesterov: true", ", dampening: 0.1"]);
                format!("sgd({g}, momentum: 0.9{options} -> {w}, {v})")
            }
            _ => format!("sgd({g}, lr: 0.1, weight_decay: 0.1 -> {})", first.name),
        })
    }

    fn cast(&mut self) -> Use {
        let x = self.operand(&TYPES, |x| x.space != "host");
        let to = self.choices.pick(&TYPES);
        Use { text: format!("cast({}, to: {to})", x.name), scratch: vec![("", to, x.dims)] }
    }

    fn softmax(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host");
        let scale = self.choices.pick(&["", ", scale: 0.5", ", scale: 1 / sqrt(8)"]);
        let out = self.result(&x, &[&x]);
        let scratch = if out.is_empty() { vec![("", x.dtype, x.dims)] } else { vec![] };
        Use { text: format!("softmax({}{scale}{out})", x.name), scratch }
    }

    fn reduction(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && !x.dims.is_empty());
        if !x.gaps && self.choices.once_in(8) {
            return Use::new(format!("grad_norm({}, f32[7], bf16[3, 5])", x.name));
        }
        let functions = ["sum", "mean", "prod", "max", "min", "argmax", "argmin", "logsumexp"];
        let function = self.choices.pick(&functions);
        let keep = self.choices.once_in(3);
        let last = x.dims.len() - 1;
        let (axis, dims) = match self.choices.below(3) {
            0 => (None, String::new()),
            1 => (Some(0), ", dims: [0]".to_owned()),
            _ => (Some(last), ", dims: [-1]".to_owned()),
        };
        let is_reduced = |place: usize| axis.is_none_or(|axis| axis == place);
        let sizes = x.dims.iter().enumerate();
        let result: Vec<u64> = match keep {
            true => sizes.map(|(place, size)| if is_reduced(place) { 1 } else { *size }).collect(),
            false => sizes.filter(|(place, _)| !is_reduced(*place)).map(|(_, size)| *size).collect(),
        };
        let dtype = if function.starts_with("arg") { "i32" } else { x.dtype };
        let expression = self.choices.pick(&["X", "X * X", "abs(X) - 0.5"]).replace('X', &x.name);
        let keepdim = if keep { ", keepdim: true" } else { "" };
        let text = format!("{function}({expression}{dims}{keepdim})");
        // A single value has no dimensions to take parts of.
        let scratch = if result.is_empty() { vec![] } else { vec![("", dtype, result)] };
        Use { text, scratch }
    }

    fn norm(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && !x.dims.is_empty());
        if x.dims.len() >= 2 && !x.gaps && self.choices.once_in(2) {
            let name = self.choices.pick(&["group_norm", "instance_norm", "batch_norm"]);
            let groups = if name == "group_norm" { ", groups: 1" } else { "" };
            let weight = if self.choices.once_in(2) {
                format!(", {}", tensor_type("f32", &x.dims[1..2]))
            } else {
                String::new()
            };
            let statistics = if x.dtype == "f64" { "f64" } else { "f32" };
            let channels = vec![x.dims[1]];
            let scratch = match name {
                "batch_norm" => vec![
                    (".y", x.dtype, x.dims),
                    (".mean", statistics, channels.clone()),
                    (".variance", statistics, channels),
                ],
                _ => vec![("", x.dtype, x.dims)],
            };
            return Use { text: format!("{name}({}{weight}{groups})", x.name), scratch };
        }
        let name = self.choices.pick(&["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"]);
        let columns = tensor_type(x.dtype, &x.dims[x.dims.len() - 1..]);
        let adds = name.starts_with("add");
        let mut inputs = vec![x.name.clone()];
        if adds {
            inputs.push(tensor_type(x.dtype, &x.dims));
        }
        let more = if name.ends_with("layer_norm") { 3 } else { 2 };
        inputs.extend((0..self.choices.below(more)).map(|_| columns.clone()));
        let eps = self.choices.pick(&["", ", eps: 1e-5"]);
        let types: &[&'static str] = if adds { &[".y", ".total"] } else { &[""] };
        let scratch = types.iter().map(|output| (*output, x.dtype, x.dims.clone())).collect();
        Use { text: format!("{name}({}{eps})", inputs.join(", ")), scratch }
    }

    fn loss(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && x.dims.len() >= 2);
        if x.dims.len() < 2 {
            return Use::new("nop()".to_owned());
        }
        let names = ["cross_entropy", "mse", "l1", "huber", "kl_div", "hinge", "cosine_similarity", "triplet"];
        let name = self.choices.pick(&names);
        let rows = x.dims[..x.dims.len() - 1].to_vec();
        if name == "cosine_similarity" {
            let option = self.choices.pick(&["", ", eps: 1e-6", ", dim: -1"]);
            let text = format!("cosine_similarity({}, {}{option})", x.name, tensor_type(x.dtype, &x.dims));
            return Use { text, scratch: vec![("", x.dtype, rows)] };
        }
        if name == "triplet" {
            let option = self.choices.pick(&["", ", margin: 2", ", p: 1", ", swap: true", ", eps: 0"]);
            let other = tensor_type(x.dtype, &x.dims);
            let text = format!("triplet({}, {other}, {other}{option})", x.name);
            return Use { text, scratch: vec![("", x.dtype, rows)] };
        }
        if name == "cross_entropy" {
            let option =
                self.choices.pick(&["", ", ignore_index: 1", ", label_smoothing: 0.1", ", label_smoothing: 1"]);
            let text = format!("cross_entropy({}, {}{option})", x.name, tensor_type("i32", &rows));
            return Use { text, scratch: vec![("", x.dtype, rows)] };
        }
        let option = match name {
            "huber" => self.choices.pick(&["", ", delta: 0.5"]),
            "hinge" => self.choices.pick(&["", ", margin: 2"]),
            _ => "",
        };
        let (reduction, dims) = match self.choices.below(3) {
            0 => ("", vec![]),
            1 => (", reduction: sum", vec![]),
            _ => (", reduction: none", x.dims.clone()),
        };
        let text = format!("{name}({}, {}{option}{reduction})", x.name, tensor_type(x.dtype, &x.dims));
        let scratch = if dims.is_empty() { vec![] } else { vec![("", x.dtype, dims)] };
        Use { text, scratch }
    }

    fn scan(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && !x.dims.is_empty());
        let name = self.choices.pick(&["cumsum", "cumprod"]);
        let dim = self.choices.pick(&["", ", dim: 0", ", dim: -1", ", reverse: true"]);
        let out = self.result(&x, &[&x]);
        let scratch = if out.is_empty() { vec![("", x.dtype, x.dims)] } else { vec![] };
        Use { text: format!("{name}({}{dim}{out})", x.name), scratch }
    }

    fn ordered(&mut self) -> Use {
        if self.choices.once_in(2) {
            return self.top_k();
        }
        let x = self.operand(&TYPES, |x| x.space != "host" && !x.dims.is_empty());
        if x.dims.is_empty() {
            return Use::new("nop()".to_owned());
        }
        let option = self.choices.pick(&["", ", descending: true"]);
        let scratch = vec![(".values", x.dtype, x.dims.clone()), (".indices", "i32", x.dims)];
        Use { text: format!("sort({}{option})", x.name), scratch }
    }

    fn top_k(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && x.dims.last().is_some_and(|last| *last >= 4));
        let mut dims = x.dims.clone();
        let Some(last) = dims.last_mut().filter(|last| **last >= 4) else { return Use::new("nop()".to_owned()) };
        *last = 4;
        let text = format!("top_k({}, k: {})", x.name, self.whole(4));
        Use { text, scratch: vec![(".values", x.dtype, dims.clone()), (".indices", "i32", dims)] }
    }

    fn transpose(&mut self) -> Use {
        let x = self.operand(&TYPES, |x| x.space != "host" && x.dims.len() == 2);
        let [rows, columns] = x.dims[..] else { return Use::new("nop()".to_owned()) };
        let dims = self.choices.pick(&["", ", dims: [1, 0]"]);
        Use { text: format!("transpose({}{dims})", x.name), scratch: vec![("", x.dtype, vec![columns, rows])] }
    }

    fn gather(&mut self) -> Use {
        let x = self.operand(&TYPES, |x| x.space != "host" && !x.dims.is_empty());
        if !x.dims.is_empty() && self.choices.once_in(4) {
            let index = self.choices.pick(&["i32", "i64"]);
            if FLOATS.contains(&x.dtype) && self.choices.once_in(2) {
                let weights = self.choices.pick(&["", ", f32[5, 2]"]);
                let dims = [&[5], &x.dims[1..]].concat();
                let text = format!("unpermute({}, {}{weights})", x.name, tensor_type(index, &[5, 2]));
                return Use { text, scratch: vec![("", x.dtype, dims)] };
            }
            let choices = vec![x.dims[0], 2];
            let moved = [&[2 * x.dims[0]], &x.dims[1..]].concat();
            let text = format!("permute({}, {}, experts: 4)", x.name, tensor_type(index, &choices));
            let scratch = vec![(".y", x.dtype, moved), (".places", "i32", choices), (".counts", "i32", vec![4])];
            return Use { text, scratch };
        }
        let kind = self.choices.pick(&["i32", "i64"]);
        let i = self.operand(&[kind], |i| i.space != "host" && i.memory != x.memory);
        let dims: Vec<u64> = i.dims.iter().chain(&x.dims[1..]).copied().collect();
        Use { text: format!("gather({}, {})", x.name, i.name), scratch: vec![("", x.dtype, dims)] }
    }

    fn scatter(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && !x.dims.is_empty());
        let Some(out) = self.written(&x, &[&x]) else { return Use::new("nop()".to_owned()) };
        let rows = [x.dims[0]];
        let weight = if self.choices.once_in(3) { format!(", {}", tensor_type(x.dtype, &rows)) } else { String::new() };
        let combine = self.choices.pick(&["", ", combine: add", ", combine: set"]);
        let index = tensor_type(self.choices.pick(&["i32", "i64"]), &rows);
        Use::new(format!("scatter({}, {index}{weight}{combine} -> {out})", x.name))
    }

    fn route(&mut self) -> Use {
        let x = self.operand(&FLOATS, |x| x.space != "host" && x.dims.len() == 2);
        let [_, experts] = x.dims[..] else { return Use::new("nop()".to_owned()) };
        let normalize = self.choices.pick(&["", ", normalize: true", ", normalize: false"]);
        let bias =
            if self.choices.once_in(4) { format!(", {}", tensor_type("f32", &[experts])) } else { String::new() };
        let scores = self.choices.pick(&["", ", scores: softmax", ", scores: sigmoid"]);
        let groups = match experts >= 4 && experts.is_multiple_of(2) {
            true => self.choices.pick(&["", ", groups: 2", ", groups: 2, group_k: 1, group_score: best_two"]),
            false => "",
        };
        let text = format!(
            "route({}{bias}, k: {}, capacity: {}{normalize}{scores}{groups})",
            x.name,
            self.whole(2),
            self.whole(3)
        );
        let slots = vec![experts, 3];
        let scratch =
            vec![(".slots", "i32", slots.clone()), (".weights", x.dtype, slots), (".dropped", "i32", vec![experts])];
        Use { text, scratch }
    }

    fn copy(&mut self) -> Use {
        let x = self.operand(&TYPES, |_| true);
        let in_host = |y: &Tensor| matches!(y.space, "pinned" | "host");
        let there = |y: &Tensor| !in_host(y) || !in_host(&x);
        let out =
            self.tensors.iter().rev().find(|y| y.writable && y.memory != x.memory && y.fits(&x) && there(y)).cloned();
        let via = match &out {
            Some(y) if y.space == "host" || x.space == "host" => self.choices.pick(&["", ", via: auto"]),
            Some(y) if in_host(&x) || in_host(y) || (!x.gaps && !y.gaps) => {
                self.choices.pick(&["", ", via: dma", ", via: kernel", ", via: auto"])
            }
            _ => self.choices.pick(&["", ", via: kernel", ", via: auto"]),
        };
        if out.is_none() && !x.gaps && x.dims.first().is_some_and(|pages| *pages > 1) {
            let scratch = vec![("", x.dtype, [&[2], &x.dims[1..]].concat())];
            return Use { text: format!("copy({}, indices: [1, 0])", x.name), scratch };
        }
        match out {
            Some(y) => Use::new(format!("copy({}{via} -> {})", x.name, y.name)),
            None => Use { text: format!("copy({})", x.name), scratch: vec![("", x.dtype, x.dims)] },
        }
    }

    fn memset(&mut self) -> Use {
        match self.any_tensor(|x| x.writable && !x.gaps && x.space == "device") {
            Some(x) => Use::new(format!("memset({} -> {})", self.choices.pick(&["0", "255", "1 + 1"]), x.name)),
            None => Use::new("nop()".to_owned()),
        }
    }

    fn fill(&mut self) -> Use {
        match self.any_tensor(|x| x.writable && x.space != "host") {
            Some(x) => Use::new(format!("fill({} -> {})", self.choices.pick(&["0", "-3", "2 * 4"]), x.name)),
            None => Use::new("nop()".to_owned()),
        }
    }
}
