//! The operations of a chain.

use aorta::base::DType;

use super::{Chain, ELEMENTS, FLOATS, SIZES, STREAMS, TYPES, Tensor, list};

impl Chain {
    /// Writes a random operation, unless no tensor fits it.
    pub(super) fn operation(&mut self) {
        match self.random.below(28) {
            0..=7 => self.map(),
            8 => self.cast(),
            9 => self.fill(),
            10 | 11 => self.softmax(),
            12 => self.top_k(),
            13..=16 => self.gemm(),
            17 => self.transpose(),
            18 => self.gather(),
            19 | 20 => self.scatter(),
            21 => self.route(),
            22 => self.copy(),
            23 | 24 => self.reduction(),
            25 => self.norm(),
            26 => self.loss(),
            _ if self.ranks > 1 => self.collective(),
            _ => self.map(),
        }
    }

    fn map(&mut self) {
        let Some(x) = self.pick(|_| true) else { return };
        let mut inputs = vec![x.clone()];
        for _ in 0..self.random.below(3) {
            let same = self.pick(|tensor| tensor.dims == x.dims);
            inputs.push(match self.random.below(3) {
                0 => same.unwrap_or_else(|| x.clone()),
                1 => {
                    let dtype = self.dtype();
                    let tensor = self.buffer(dtype, &x.dims.clone());
                    self.tensors.push(tensor.clone());
                    tensor
                }
                // Some dimensions are broadcast, or leading ones are missing.
                _ => {
                    let skipped = self.random.below(x.rank());
                    let mut dims: Vec<u64> = x.dims[skipped..].to_vec();
                    dims.iter_mut().for_each(|size| *size = if self.random.once_in(2) { 1 } else { *size });
                    let dtype = self.random.of(&FLOATS);
                    self.buffer(dtype, &dims)
                }
            });
        }
        let texts: Vec<String> = inputs.iter().map(|input| input.text.clone()).collect();
        let depth = self.random.between(1, 3);
        // The first tensor determines the shape, so it is always used.
        let rest = self.expression(&texts, depth);
        let operator = self.random.of(&["+", "-", "*"]);
        let expression = match self.random.once_in(4) {
            true => self.cancelling(&texts),
            false => format!("{} {operator} ({rest})", texts[0]),
        };
        let used: Vec<&Tensor> = inputs.iter().filter(|input| expression.contains(&input.text)).collect();
        let dtype = used.iter().map(|input| input.dtype).reduce(DType::promote).unwrap_or(x.dtype);
        // In place, if the only use of the buffer is the slice that is written.
        let whole = x.whole && used.iter().all(|input| input.text == x.text || base(input) != x.text);
        let to = match whole && self.random.once_in(4) {
            true => Some(x.clone()),
            false => {
                let dtype = if self.random.once_in(3) { self.dtype() } else { dtype };
                self.place(dtype, &x.dims)
            }
        };
        self.emit(&format!("map({expression}"), "", dtype, &x.dims, to);
    }

    /// An expression whose result is small compared with its terms, or that depends on a small difference.
    fn cancelling(&mut self, texts: &[String]) -> String {
        let x = &texts[0];
        let y = texts.last().expect("there is an input");
        let pattern = self.random.of(&[
            "exp(X) - 1",
            "(X + 1000) - 1000",
            "1 - cos(X)",
            "log(X * X + 1)",
            "sqrt(X * X + 1) - 1",
            "sigmoid(X) - 0.5",
            "X - Y",
            "(X - Y) / (X + Y)",
            "gelu(-abs(X) * 3)",
            "pow(abs(X) + 1, 3) - 1",
            "tanh(X) - X",
            "floor(X * 4) / 4",
            "X % 0.7 + Y",
            "if X > Y { X } else { -Y }",
            "(X + Y) - X",
            "silu(X) - X * 0.5",
            "erf(X) - erf(Y)",
            "round(X * 3.3 + Y)",
            "if exp(X) - 1 > X { Y } else { X }",
            "rsqrt(X * X + 1) * X",
            "max(X * 0.3, Y * 0.3) - X * 0.3",
            "ceil(log2(abs(X) + 1))",
        ]);
        pattern.replace('X', x).replace('Y', y)
    }

    fn expression(&mut self, texts: &[String], depth: u64) -> String {
        let leaf = self.random.of(texts);
        if depth == 0 {
            return leaf;
        }
        let x = self.expression(texts, depth - 1);
        match self.random.below(5) {
            0 => {
                let function = self.random.of(&[
                    "abs", "ceil", "cos", "erf", "exp", "floor", "gelu", "log", "log2", "relu", "round", "rsqrt",
                    "sigmoid", "silu", "sin", "sqrt", "tanh",
                ]);
                format!("{function}({x})")
            }
            1 => {
                let constant = self.random.of(&["0.5", "3", "1000", "0.001", "0.1", "7"]);
                let operator = self.random.of(&["+", "-", "*", "/", "%"]);
                format!("({x} {operator} {constant})")
            }
            2 => {
                let function = self.random.of(&["max", "min", "pow"]);
                let x = if function == "pow" { format!("abs({x})") } else { x };
                format!("{function}({x}, {leaf})")
            }
            3 => {
                let comparison = self.random.of(&["<", "<=", ">", ">=", "==", "!="]);
                format!("(if {x} {comparison} {leaf} {{ {x} }} else {{ {leaf} * 2 }})")
            }
            _ => {
                let operator = self.random.of(&["+", "-", "*", "/"]);
                format!("({x} {operator} {leaf})")
            }
        }
    }

    fn cast(&mut self) {
        let Some(x) = self.pick(|_| true) else { return };
        let dtype = self.random.of(&TYPES);
        match self.place(dtype, &x.dims) {
            None => self.emit(&format!("cast({}", x.text), &format!(", to: {dtype}"), dtype, &x.dims, None),
            to => self.emit(&format!("cast({}", x.text), "", dtype, &x.dims, to),
        }
    }

    fn fill(&mut self) {
        let (dtype, dims) = (self.dtype(), self.dims());
        let to = self.place(dtype, &dims).unwrap_or_else(|| self.target(dtype, &dims));
        let value = self.random.of(&["0.1", "3", "-2.75", "1000.3", "1e-5", "254.7"]);
        let call = if to.whole && self.random.once_in(3) { "memset(63".to_owned() } else { format!("fill({value}") };
        self.emit(&call, "", dtype, &dims, Some(to));
    }

    fn softmax(&mut self) {
        let Some(x) = self.pick(|tensor| tensor.dtype.is_float()) else { return };
        let options = self.random.of(&["", "", ", scale: 0.5", ", scale: 0.3", ", scale: 20"]);
        let to = self.place(x.dtype, &x.dims);
        self.emit(&format!("softmax({}", x.text), options, x.dtype, &x.dims, to);
    }

    /// A reduction over one dimension, or a scan along it.
    fn reduction(&mut self) {
        let Some(x) = self.pick(|tensor| tensor.rank() >= 2) else { return };
        let axis = self.random.below(x.rank());
        let function = self.random.of(&[
            "sum",
            "mean",
            "prod",
            "max",
            "min",
            "argmax",
            "argmin",
            "logsumexp",
            "cumsum",
            "cumprod",
        ]);
        let float = if x.dtype.is_float() { x.dtype } else { DType::F32 };
        if function.starts_with("cum") {
            let to = self.target(float, &x.dims);
            return self.emit(&format!("{function}({}", x.text), &format!(", dim: {axis}"), float, &x.dims, Some(to));
        }
        let mut dims = x.dims.clone();
        let keepdim = self.random.once_in(3);
        let options = if keepdim { ", keepdim: true" } else { "" };
        match keepdim {
            true => dims[axis] = 1,
            false => drop(dims.remove(axis)),
        }
        let expression = self.random.of(&["X", "X * X", "X - 1", "abs(X)"]).replace('X', &x.text);
        let dtype = if function.starts_with("arg") { DType::I32 } else { float };
        let to = self.target(dtype, &dims);
        self.emit(&format!("{function}({expression}"), &format!(", dims: [{axis}]{options}"), dtype, &dims, Some(to));
    }

    fn norm(&mut self) {
        let Some(x) = self.pick(|tensor| tensor.dtype.is_float()) else { return };
        let name = self.random.of(&["rms_norm", "layer_norm"]);
        let dtype = self.random.of(&FLOATS);
        let weight = self.random.once_in(2).then(|| self.buffer(dtype, &[x.last()]));
        let weight = weight.map_or(String::new(), |weight| format!(", {}", weight.text));
        let to = self.place(x.dtype, &x.dims);
        self.emit(&format!("{name}({}{weight}", x.text), "", x.dtype, &x.dims, to);
    }

    fn loss(&mut self) {
        let Some(x) = self.pick(|tensor| tensor.dtype.is_float() && tensor.rank() >= 2) else { return };
        if self.random.once_in(2) {
            let rows = x.dims[..x.rank() - 1].to_vec();
            let targets = self.indices(&rows);
            let options = self.random.of(&["", ", label_smoothing: 0.1"]);
            let to = self.place(x.dtype, &rows);
            return self.emit(&format!("cross_entropy({}, {}", x.text, targets.text), options, x.dtype, &rows, to);
        }
        let name = self.random.of(&["mse", "l1", "huber", "hinge"]);
        let target = self.buffer(x.dtype, &x.dims);
        let to = self.place(x.dtype, &x.dims);
        let call = format!("{name}({}, {}", x.text, target.text);
        self.emit(&call, ", reduction: none", x.dtype, &x.dims, to);
    }

    fn top_k(&mut self) {
        let Some(x) = self.pick(|_| true) else { return };
        let k = self.random.between(1, x.last().min(40));
        let (label, stream) = (self.label(), self.random.below(STREAMS));
        self.steps += &format!("  on s[{stream}] {{ {label}: top_k({}, k: {k}) }}\n", x.text);
        let mut dims = x.dims.clone();
        *dims.last_mut().expect("it has rows") = k;
        for (output, dtype) in [("values", x.dtype), ("indices", DType::I32)] {
            let text = format!("{label}.{output}");
            self.tensors.push(Tensor { text, dtype, dims: dims.clone(), whole: false, near: true });
        }
    }

    fn gemm(&mut self) {
        // Rows must be contiguous: whole tensors, and slices of leading dimensions.
        let rows = |tensor: &Tensor| {
            tensor.dtype.is_float() && tensor.rank() >= 2 && !tensor.text.contains(']')
                || (tensor.dtype.is_float()
                    && tensor.rank() >= 2
                    && tensor.text.contains("[..")
                    && !tensor.text.contains('%'))
        };
        let large = self.random.once_in(8);
        let picked = if large { None } else { self.pick(rows) };
        let (transpose_a, transpose_b) = (self.random.once_in(3), self.random.once_in(3));
        let a = picked.filter(contiguous_rows).unwrap_or_else(|| {
            let dtype = self.random.of(&FLOATS);
            let (m, k) = match large {
                true => (self.random.between(1, 4), self.random.between(100, 3000)),
                false => (self.random.of(&SIZES), self.random.of(&SIZES)),
            };
            let dims = if transpose_a { [k, m] } else { [m, k] };
            self.buffer(dtype, &dims)
        });
        let rank = a.rank();
        let (mut m, mut k) = (a.dims[rank - 2], a.dims[rank - 1]);
        if transpose_a {
            std::mem::swap(&mut m, &mut k);
        }
        let n = if large { self.random.between(1, 8) } else { self.random.of(&SIZES) };
        let mut dims = if transpose_b { vec![n, k] } else { vec![k, n] };
        let mut lead: Vec<u64> = a.dims[..rank - 2].to_vec();
        if self.random.once_in(2) {
            dims = [lead.clone(), dims].concat();
        } else if lead.is_empty() && self.random.once_in(3) {
            lead = vec![self.random.between(1, 3)];
            dims = [lead.clone(), dims].concat();
        }
        let known = dims.clone();
        let same = self.pick(|tensor| tensor.dtype == a.dtype && tensor.dims == known);
        let b = match same.filter(contiguous_rows) {
            Some(b) if self.random.once_in(2) => b,
            _ => self.buffer(a.dtype, &dims),
        };
        let mut options = String::new();
        for (name, set) in [("transpose_a", transpose_a), ("transpose_b", transpose_b)] {
            options += &if set { format!(", {name}: true") } else { String::new() };
        }
        if a.dtype == DType::F32 && self.random.once_in(3) {
            options += ", compute: tf32";
        }
        let shape = [lead, vec![m, n]].concat();
        let wide = matches!(a.dtype, DType::F16 | DType::BF16) && self.random.once_in(3);
        let dtype = if wide { DType::F32 } else { a.dtype };
        let to = match self.place(dtype, &shape) {
            None if wide => Some(self.target(dtype, &shape)),
            // The rows of a result must be contiguous.
            to => to,
        };
        self.emit(&format!("gemm({}, {}", a.text, b.text), &options, dtype, &shape, to);
    }

    fn transpose(&mut self) {
        let Some(x) = self.pick(|tensor| tensor.rank() >= 2) else { return };
        let rank = x.rank();
        let mut order: Vec<usize> = (0..rank).collect();
        let options = match rank > 2 && self.random.once_in(2) {
            true => {
                order.rotate_left(1);
                format!(", dims: [{}]", list(&order))
            }
            false => {
                order.swap(rank - 1, rank - 2);
                String::new()
            }
        };
        let dims: Vec<u64> = order.iter().map(|&axis| x.dims[axis]).collect();
        let to = self.place(x.dtype, &dims);
        self.emit(&format!("transpose({}", x.text), &options, x.dtype, &dims, to);
    }

    /// Whole numbers from 0 to 99, or consecutive ones.
    fn indices(&mut self, dims: &[u64]) -> Tensor {
        let init = if self.random.once_in(3) { " = iota" } else { "" };
        self.declare(DType::I32, dims, "", init)
    }

    fn gather(&mut self) {
        let Some(x) = self.pick(|_| true) else { return };
        let room = (ELEMENTS * x.dims[0] / x.elements()).max(1);
        let count = self.random.between(1, room.min(40));
        let i = match self.pick(|tensor| tensor.dtype == DType::I32 && tensor.rank() == 1 && tensor.elements() <= room)
        {
            Some(i) if self.random.once_in(2) => i,
            _ => self.indices(&[count]),
        };
        let dims = [i.dims.clone(), x.dims[1..].to_vec()].concat();
        let to = self.place(x.dtype, &dims);
        self.emit(&format!("gather({}, {}", x.text, i.text), "", x.dtype, &dims, to);
    }

    fn scatter(&mut self) {
        let Some(x) = self.pick(|tensor| tensor.elements() <= ELEMENTS) else { return };
        let lead = vec![x.dims[0]];
        let i = self.indices(&lead);
        // Few rows, so that each gets many terms.
        let rows = self.random.of(&[1, 3, 20, 99]).min((ELEMENTS * x.dims[0] / x.elements()).max(1));
        let weights = self.random.once_in(2).then(|| {
            let dtype = self.random.of(&FLOATS);
            self.buffer(dtype, &lead)
        });
        let dims = [vec![rows], x.dims[1..].to_vec()].concat();
        let to = self.place(x.dtype, &dims).unwrap_or_else(|| self.target(x.dtype, &dims));
        let weights = weights.map_or(String::new(), |weights| format!(", {}", weights.text));
        let options = self.random.of(&["", ", combine: add", ", combine: add"]);
        self.emit(&format!("scatter({}, {}{weights}", x.text, i.text), options, x.dtype, &dims, Some(to));
    }

    fn route(&mut self) {
        let found = self.pick(|tensor| tensor.dtype.is_float() && tensor.rank() == 2 && tensor.last() <= 64);
        let Some(probs) = found else { return };
        let (tokens, experts) = (probs.dims[0], probs.dims[1]);
        let k = self.random.between(1, experts.min(12));
        let capacity = self.random.between(1, tokens.clamp(1, 40));
        let normalize = self.random.of(&["", ", normalize: true"]);
        let (label, stream) = (self.label(), self.random.below(STREAMS));
        self.steps += &format!(
            "  on s[{stream}] {{ {label}: route({}, k: {k}, capacity: {capacity}{normalize}) }}\n",
            probs.text
        );
        let slots = vec![experts, capacity];
        for (output, dtype, dims) in [
            ("slots", DType::I32, slots.clone()),
            ("weights", probs.dtype, slots),
            ("dropped", DType::I32, vec![experts]),
        ] {
            self.tensors.push(Tensor { text: format!("{label}.{output}"), dtype, dims, whole: false, near: true });
        }
    }

    fn copy(&mut self) {
        let Some(x) = self.pick(|tensor| tensor.near && !tensor.text.contains(']')) else { return };
        let space = self.random.of(&["", " in pinned"]);
        let to = self.declare(x.dtype, &x.dims, space, " = zeros");
        let via = self.random.of(&["", ", via: dma", ", via: kernel"]);
        self.emit(&format!("copy({}", x.text), via, x.dtype, &x.dims, Some(to));
    }

    fn collective(&mut self) {
        let ranks = self.ranks;
        let found = self.pick(|tensor| tensor.near && !tensor.text.contains(']') && tensor.elements() % ranks == 0);
        let Some(x) = found else { return };
        let reductions: &[&str] = match x.dtype.is_float() {
            true => &["", ", op: mean", ", op: max", ", op: min", ", op: product"],
            false => &["", ", op: max", ", op: min", ", op: product"],
        };
        let elements = x.elements();
        let (call, options, count) = match self.random.below(6) {
            0 | 1 => ("all_reduce", self.random.of(reductions), elements),
            2 => ("reduce_scatter", self.random.of(reductions), elements / ranks),
            3 => ("all_gather", "", elements * ranks),
            4 => ("all_to_all", "", elements),
            _ => ("reduce", self.random.of(reductions), elements),
        };
        let to = self.target(x.dtype, &[count]);
        self.emit(&format!("{call}({}", x.text), options, x.dtype, &[count], Some(to));
    }
}

/// The buffer that contains a tensor.
fn base(tensor: &Tensor) -> &str {
    tensor.text.split('[').next().unwrap_or_default()
}

/// True if the elements of each row are contiguous: the last dimension is sliced by a range at most.
fn contiguous_rows(tensor: &Tensor) -> bool {
    match tensor.text.strip_suffix(']') {
        None => true,
        Some(text) => text.rsplit(", ").next().is_some_and(|last| last.contains("..")),
    }
}
