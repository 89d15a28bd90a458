//! Operations that reduce: their values by hand, and kernels of random shapes, slices, broadcasts and types against the CPU,
//! on the double of AMD's libraries.

use aorta::backend::host::Host;
use aorta::base::DType;
use aorta::base::random::hash;
use aorta::exec::LaunchMode;

use crate::common::effort::draws;
use crate::common::folder::Folder;
use crate::common::{self, doubles};
use crate::hip;

/// The elements of the last buffer, of type `dtype`, after a step on the CPU.
fn computed(dtype: DType, text: &str) -> Vec<f64> {
    let (program, plan) = common::planned(text);
    let buffers = common::results(&program, &plan, &Host, None, LaunchMode::Stream, 1);
    let last = buffers.last().expect("the file has a buffer");
    last.chunks(dtype.size() as usize).map(|element| dtype.load(element)).collect()
}

/// The result of a call on `x`, the numbers 0 to 23 in the shape [2, 3, 4], in a buffer `y` of that type and shape.
fn of_numbers(y: &str, call: &str) -> Vec<f64> {
    let dtype = DType::from_name(y.split('[').next().unwrap_or(y)).expect("a type");
    computed(dtype, &format!("buffer x: f64[2, 3, 4] = iota\nbuffer y: {y}\nstep {{ {call} }}"))
}

#[test]
fn sums_go_over_the_dimensions_that_are_named() {
    assert_eq!(of_numbers("f64", "sum(x -> y)"), [276.0]);
    assert_eq!(of_numbers("f64[2, 4]", "sum(x -> y, dims: [1])"), [12.0, 15.0, 18.0, 21.0, 48.0, 51.0, 54.0, 57.0]);
    assert_eq!(of_numbers("f64[3]", "sum(x -> y, dims: [0, 2])"), [60.0, 92.0, 124.0]);
    assert_eq!(of_numbers("f64[3]", "sum(x -> y, dims: [-1, -3])"), [60.0, 92.0, 124.0]);
    assert_eq!(of_numbers("f64[1, 3, 1]", "sum(x -> y, dims: [0, 2], keepdim: true)"), [60.0, 92.0, 124.0]);
    // The expression has the shape, not its tensors.
    assert_eq!(of_numbers("f64[4]", "sum(x[0, 0] * 0 + x[.., 0, 0..1] -> y, dims: [0])"), [12.0; 4]);
}

#[test]
fn each_function_has_its_value() {
    assert_eq!(of_numbers("f64[2]", "mean(x -> y, dims: [1, 2])"), [5.5, 17.5]);
    assert_eq!(of_numbers("f64[2]", "prod(x[.., 0, 1..4] -> y, dims: [1])"), [6.0, 13.0 * 14.0 * 15.0]);
    assert_eq!(of_numbers("f64[4]", "max(-x -> y, dims: [0, 1])"), [0.0, -1.0, -2.0, -3.0]);
    assert_eq!(of_numbers("f64[4]", "min(-x -> y, dims: [0, 1])"), [-20.0, -21.0, -22.0, -23.0]);
    let value = of_numbers("f64", "logsumexp(x * 0 + 1000 -> y)")[0];
    assert!((value - (1000.0 + 24f64.ln())).abs() < 1e-9, "{value}");
    assert_eq!(of_numbers("f64", "logsumexp(log(x * 0) -> y)"), [f64::NEG_INFINITY]);
    assert_eq!(of_numbers("f64", "logsumexp(0 - log(x) -> y)"), [f64::INFINITY]);
}

/// As in PyTorch: the first of equals, and NaN before every number, whichever end is sought.
#[test]
fn places_are_those_of_the_first() {
    assert_eq!(of_numbers("i32", "argmax(x * 0 -> y)"), [0.0]);
    assert_eq!(of_numbers("i32[2]", "argmax(x % 7 -> y, dims: [1, 2])"), [6.0, 1.0]);
    assert_eq!(of_numbers("i32[2]", "argmin(x % 7 -> y, dims: [2, 1])"), [0.0, 2.0]);
    // The logarithm of a negative number is none.
    for call in ["argmax(log(5 - x) -> y)", "argmin(log(5 - x) -> y)"] {
        assert_eq!(of_numbers("i32", call), [6.0], "{call}");
    }
    for call in ["max(log(5 - x) -> y)", "min(log(5 - x) -> y)", "sum(log(5 - x) -> y)"] {
        assert!(of_numbers("f64", call)[0].is_nan(), "{call}");
    }
}

/// Integers are added up exactly, and a result has the type of the expression where no other is given.
#[test]
fn types_follow_the_expression() {
    let text = "buffer x: u8[1000] = ones\nbuffer y: i32\nstep { s: sum(x * 255)\n map(s -> y) }";
    assert_eq!(computed(DType::I32, text), [255_000.0]);
    let text = "buffer x: i32[3] = iota\nbuffer y: f32\nstep { s: mean(x)\n map(s * 2 -> y) }";
    assert_eq!(computed(DType::F32, text), [2.0]);
}

/// The rows of a norm have the mean and the root of the mean square that they should have.
#[test]
fn norms_scale_rows() {
    let of = |call: &str| of_numbers("f64[2, 3, 4]", call);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let squares = |values: &[f64]| mean(&values.iter().map(|x| x * x).collect::<Vec<_>>());
    let y = of("rms_norm(x -> y, eps: 0)");
    assert!(y.chunks(4).all(|row| (squares(row) - 1.0).abs() < 1e-12), "{y:?}");
    let y = of("layer_norm(x -> y, eps: 0)");
    assert!(y.chunks(4).all(|row| mean(row).abs() < 1e-12 && (squares(row) - 1.0).abs() < 1e-12), "{y:?}");
    // A variance of 1.25, and three quarters added to it.
    let y = of("layer_norm(x, x[1, 0], x[0, 0] -> y, eps: 0.75)");
    let expected: Vec<f64> = [-1.5, -0.5, 0.5, 1.5]
        .iter()
        .zip(0..)
        .map(|(d, c)| d / 2f64.sqrt() * f64::from(12 + c) + f64::from(c))
        .collect();
    assert!(y.chunks(4).all(|row| row.iter().zip(&expected).all(|(y, e)| (y - e).abs() < 1e-9)), "{y:?}");
    // Groups of channels are rows, and channels have weights.
    let whole = of("layer_norm(x -> y)");
    assert_eq!(of("instance_norm(x -> y)"), whole);
    let weighted = of("instance_norm(x, x[1, 0, 1..4] -> y)");
    let expected: Vec<f64> = whole.iter().enumerate().map(|(place, y)| y * (13 + place / 4 % 3) as f64).collect();
    assert!(weighted.iter().zip(&expected).all(|(y, e)| (y - e).abs() < 1e-12), "{weighted:?}");
    let grouped = of("group_norm(x, groups: 1, eps: 0 -> y)");
    assert!(grouped.chunks(12).all(|row| mean(row).abs() < 1e-12 && (squares(row) - 1.0).abs() < 1e-12));
    let text = "buffer x: bf16[2, 300]\nbuffer r: bf16[2, 300]\nbuffer y: f64[2, 300]\nstep {\n\
                t: add_rms_norm(x, r)\n u: rms_norm(t.total)\n map(t.y - u -> y) }";
    assert_eq!(computed(DType::F64, text), [0.0; 600]);
}

/// Losses by their formulas; a row without a class to find has none.
#[test]
fn losses_are_those_of_their_formulas() {
    let of = |y: &str, call: &str| {
        let dtype = DType::from_name(y.split('[').next().unwrap_or(y)).expect("a type");
        let buffers = "buffer x: f64[2, 3] = iota\nbuffer c: i32[2] = iota";
        computed(dtype, &format!("{buffers}\nbuffer y: {y}\nstep {{ {call} }}"))
    };
    // 0, 1, 2 and 3, 4, 5: the logarithm of the sum is the largest and this.
    let above = (1.0 + (-1f64).exp() + (-2f64).exp()).ln();
    let near = |values: Vec<f64>, expected: [f64; 2]| {
        assert!(
            values.iter().zip(expected).all(|(value, e)| (value - e).abs() < 1e-12),
            "{values:?}, not {expected:?}"
        );
    };
    near(of("f64[2]", "cross_entropy(x, c -> y)"), [2.0 + above, 1.0 + above]);
    near(of("f64[2]", "cross_entropy(x, c -> y, ignore_index: 1)"), [2.0 + above, 0.0]);
    near(of("f64[2]", "cross_entropy(x, c -> y, label_smoothing: 0.5)"), [1.5 + above, 1.0 + above]);
    near(of("f64[2]", "cross_entropy(x[.., 0..1], c -> y)"), [0.0, 0.0]);
    assert_eq!(of("f64", "mse(x[0], x[1] -> y)"), [9.0]);
    assert_eq!(of("f64", "l1(x[0], x[1] -> y, reduction: sum)"), [9.0]);
    assert_eq!(of("f64[3]", "huber(x[0], x[1] -> y, delta: 2, reduction: none)"), [4.0; 3]);
    assert_eq!(of("f64[3]", "huber(x[0], x[1] -> y, delta: 4, reduction: none)"), [4.5; 3]);
    assert_eq!(of("f64[3]", "hinge(x[0], x[0] -> y, margin: 3, reduction: none)"), [3.0, 2.0, 0.0]);
    assert_eq!(of("f64[3]", "kl_div(x[1], x[0] -> y, reduction: none)"), [0.0, -4.0, 2.0 * (2f64.ln() - 5.0)]);
}

#[test]
fn scans_go_along_a_dimension() {
    let of = |call: &str| of_numbers("f64[2, 3, 4]", call);
    let y = of("cumsum(x -> y)");
    assert_eq!(y[..8], [0.0, 1.0, 3.0, 6.0, 4.0, 9.0, 15.0, 22.0]);
    let y = of("cumsum(x -> y, dim: 1)");
    assert_eq!(y[..12], [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 18.0, 21.0]);
    let y = of("cumprod(x -> y, dim: -3)");
    assert_eq!(y[12..16], [0.0, 13.0, 28.0, 45.0]);
    let text = "buffer x: u8[300] = ones\nbuffer y: i32[300]\nstep { s: cumsum(x)\n map(s -> y) }";
    assert_eq!(computed(DType::I32, text)[299], 300.0);
}

/// Random programs of one stream.
struct Random {
    seed: u64,
    count: u64,
    buffers: String,
    steps: String,
}

const TYPES: [&str; 7] = ["f32", "bf16", "f16", "f64", "i32", "u8", "i8"];
const FLOATS: [&str; 4] = ["f32", "bf16", "f16", "f64"];
const SIZES: [u64; 15] = [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64, 65, 100, 257];

/// Elements of a tensor at most.
const ELEMENTS: u64 = 30_000;

impl Random {
    fn new(seed: u64) -> Random {
        Random { seed, count: 0, buffers: String::new(), steps: String::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.count += 1;
        hash(self.seed, self.count) % bound.max(1)
    }

    fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A shape of up to four dimensions, one of them long now and then.
    fn dims(&mut self) -> Vec<u64> {
        let rank = 1 + self.below(4);
        let mut dims: Vec<u64> = Vec::new();
        for _ in 0..rank {
            let room = ELEMENTS / dims.iter().product::<u64>();
            let fits: Vec<u64> = SIZES.iter().copied().filter(|size| *size <= room).collect();
            dims.push(self.of(&fits));
        }
        if self.once_in(4) {
            let long = self.below(rank) as usize;
            dims.iter_mut().for_each(|size| *size = (*size).min(4));
            dims[long] = self.of(&[1000, 1024, 4099, 20_000]);
        }
        dims
    }

    /// A tensor of that shape: a buffer, or a slice of a larger one.
    fn tensor(&mut self, dtype: &str, dims: &[u64]) -> String {
        let name = format!("b{}", self.buffers.lines().count());
        let mut sizes = dims.to_vec();
        let mut index = String::new();
        if !dims.is_empty() && self.once_in(3) {
            let axis = self.below(dims.len() as u64) as usize;
            let from = self.below(9);
            sizes[axis] += from + self.below(9);
            let range = |place| if place == axis { format!("{from}..{}", from + dims[axis]) } else { "..".to_owned() };
            index = format!("[{}]", (0..dims.len()).map(range).collect::<Vec<_>>().join(", "));
        }
        let shape = if dims.is_empty() { String::new() } else { format!("{sizes:?}") };
        let init = self.of(&["", " = random(7, 0.01)", " = random(8, 30)"]);
        let init = if FLOATS.contains(&dtype) { init } else { "" };
        self.buffers += &format!("buffer {name}: {dtype}{shape}{init}\n");
        name + &index
    }

    fn step(&mut self, call: &str) {
        self.steps += &format!("  {call}\n");
    }

    /// ` -> y` of one of these types, or nothing.
    fn arrow(&mut self, types: &[&str], dims: &[u64]) -> String {
        if self.once_in(3) {
            return String::new();
        }
        let dtype = self.of(types);
        format!(" -> {}", self.tensor(dtype, dims))
    }

    fn reduction(&mut self) {
        let (dims, dtype) = (self.dims(), self.of(&TYPES));
        let x = self.tensor(dtype, &dims);
        let mut expression = x.clone();
        if self.once_in(2) {
            let mut other: Vec<u64> = dims.iter().map(|size| if self.once_in(3) { 1 } else { *size }).collect();
            other.drain(..self.below(dims.len() as u64) as usize);
            let dtype = self.of(&TYPES);
            let y = self.tensor(dtype, &other);
            let patterns = ["X * Y", "X + Y * 0.5", "exp(-abs(X)) - Y", "if X > Y { X } else { 2 }"];
            expression = self.of(&patterns).replace('X', &x).replace('Y', &y);
        }
        let function = self.of(&["sum", "mean", "prod", "max", "min", "argmax", "argmin", "logsumexp"]);
        let rank = dims.len();
        let mut reduced: Vec<bool> = (0..rank).map(|_| self.once_in(2)).collect();
        let mut axes: Vec<String> = Vec::new();
        for (axis, _) in reduced.iter().enumerate().filter(|(_, reduced)| **reduced) {
            axes.push(if self.once_in(2) { format!("{axis}") } else { format!("{}", axis as i64 - rank as i64) });
        }
        let mut options = format!(", dims: [{}]", axes.join(", "));
        if axes.is_empty() {
            options.clear();
            reduced.fill(true);
        }
        let keep = self.once_in(3);
        options += if keep { ", keepdim: true" } else { "" };
        let sizes = dims.iter().zip(&reduced);
        let result: Vec<u64> = match keep {
            true => sizes.map(|(size, reduced)| if *reduced { 1 } else { *size }).collect(),
            false => sizes.filter(|(_, reduced)| !**reduced).map(|(size, _)| *size).collect(),
        };
        let arrow = match function.starts_with("arg") {
            true => self.arrow(&["i32"], &result),
            false => self.arrow(&["f32", "f64", "bf16", "f16"], &result),
        };
        self.step(&format!("{function}({expression}{arrow}{options})"));
    }
}

impl Random {
    fn group_norm(&mut self, dtype: &str, dims: &[u64]) {
        let name = format!("b{}", self.buffers.lines().count());
        self.buffers += &format!("buffer {name}: {dtype}{dims:?}\n");
        let mut inputs = vec![name];
        for _ in 0..self.below(3) {
            let other = self.of(&FLOATS);
            inputs.push(self.tensor(other, &dims[1..2]));
        }
        let arrow = if self.once_in(2) { format!(" -> {}", inputs[0]) } else { String::new() };
        let divisors: Vec<u64> = (1..=dims[1]).filter(|groups| dims[1].is_multiple_of(*groups)).collect();
        let call = match self.once_in(2) {
            true => format!("instance_norm({}{arrow})", inputs.join(", ")),
            false => format!("group_norm({}{arrow}, groups: {})", inputs.join(", "), self.of(&divisors)),
        };
        self.step(&call);
    }

    fn norm(&mut self) {
        let name = self.of(&["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"]);
        let dtype = self.of(&FLOATS);
        let mut dims = self.dims();
        if self.once_in(8) {
            dims = vec![self.of(&[1, 2]), self.of(&[33_000, 40_001])];
        }
        if dims.len() >= 2 && self.once_in(3) {
            return self.group_norm(dtype, &dims);
        }
        let adds = name.starts_with("add");
        let mut inputs = vec![self.tensor(dtype, &dims)];
        if adds {
            inputs.push(self.tensor(dtype, &dims));
        }
        for _ in 0..self.below(if name.ends_with("layer_norm") { 3 } else { 2 }) {
            let other = self.of(&FLOATS);
            let of = if self.once_in(2) { other } else { dtype };
            inputs.push(self.tensor(of, &dims[dims.len() - 1..]));
        }
        let mut arrow = match self.below(3) {
            0 => format!(" -> {}", inputs[0]),
            _ => self.arrow(&[dtype, "f32"], &dims),
        };
        if adds && !arrow.is_empty() {
            arrow += &if self.once_in(2) { format!(", {}", inputs[1]) } else { ", _".to_owned() };
        }
        let eps = self.of(&["", ", eps: 0.1"]);
        self.step(&format!("{name}({}{arrow}{eps})", inputs.join(", ")));
    }
}

impl Random {
    fn loss(&mut self) {
        let (dtype, mut dims) = (self.of(&FLOATS), self.dims());
        let name = self.of(&["cross_entropy", "cross_entropy", "mse", "l1", "huber", "kl_div", "hinge"]);
        if name == "cross_entropy" && self.once_in(6) {
            dims = vec![2, self.of(&[40_001, 70_000])];
        }
        let x = self.tensor(dtype, &dims);
        if name == "cross_entropy" {
            let rows = dims[..dims.len() - 1].to_vec();
            let targets = self.tensor("i32", &rows);
            let arrow = self.arrow(&[dtype, "f32"], &rows);
            let options = self.of(&["", ", ignore_index: 3", ", label_smoothing: 0.1", ", label_smoothing: 1"]);
            return self.step(&format!("cross_entropy({x}, {targets}{arrow}{options})"));
        }
        let other = self.of(&FLOATS);
        let target = self.tensor(other, &dims);
        let options = match name {
            "huber" => self.of(&["", ", delta: 0.01"]),
            "hinge" => self.of(&["", ", margin: 0.1"]),
            _ => "",
        };
        let reduction = self.of(&["mean", "sum", "none"]);
        let result = if reduction == "none" { dims } else { Vec::new() };
        let arrow = self.arrow(&FLOATS, &result);
        self.step(&format!("{name}({x}, {target}{arrow}{options}, reduction: {reduction})"));
    }
}

impl Random {
    fn scan(&mut self) {
        let mut dims = self.dims();
        if self.once_in(4) {
            dims = self.of(&[&[1, 50_000][..], &[3, 20_001], &[5000, 3], &[2000, 2, 8]]).to_vec();
        }
        let (name, dtype) = (self.of(&["cumsum", "cumsum", "cumprod"]), self.of(&TYPES));
        let x = self.tensor(dtype, &dims);
        let arrow = self.arrow(&["f32", "f64", "bf16", dtype], &dims);
        let rank = dims.len() as i64;
        let dim = self.below(2 * rank as u64) as i64 - rank;
        let reverse = self.of(&["", ", reverse: true"]);
        self.step(&format!("{name}({x}{arrow}, dim: {dim}{reverse})"));
    }
}

/// Runs random programs on the double, which has to leave what the CPU leaves.
fn agrees(seeds: &[u64], fill: impl Fn(&mut Random)) {
    let Some(libraries) = doubles::cpu() else { return };
    for &seed in seeds {
        let mut random = Random::new(seed);
        fill(&mut random);
        let text = format!("stream s\n{}step {{ on s {{\n{}}} }}\n", random.buffers, random.steps);
        let folder = Folder::new();
        let file = folder.write("random.aorta", &text);
        let output = hip::run_with(libraries, &[], &[&[file.as_str()], &doubles::RESULTS_ONLY[..]].concat());
        assert_eq!(output.code, Some(0), "seed {seed}\n{text}\n{}", output.printed);
    }
}

#[test]
fn random_reductions_agree_with_the_cpu() {
    agrees(&[1, 2], |random| (0..draws(30)).for_each(|_| random.reduction()));
}

/// Over the first dimension of so many columns of odd length that a thread computes several of them.
#[test]
fn a_reduction_of_many_columns_agrees_with_the_cpu() {
    if !crate::common::effort::is_due() {
        return;
    }
    agrees(&[6], |random| {
        let (columns, terms) = (67_701 + 2 * random.below(100), 128 + random.below(3));
        let x = random.tensor("f32", &[terms, columns]);
        let function = random.of(&["sum", "mean", "max", "argmin", "logsumexp"]);
        random.step(&format!("{function}({x}, dims: [0])"));
    });
}

#[test]
fn random_norms_agree_with_the_cpu() {
    agrees(&[3], |random| (0..draws(40)).for_each(|_| random.norm()));
}

#[test]
fn random_losses_agree_with_the_cpu() {
    agrees(&[4], |random| (0..draws(40)).for_each(|_| random.loss()));
}

#[test]
fn random_scans_agree_with_the_cpu() {
    agrees(&[5], |random| (0..draws(40)).for_each(|_| random.scan()));
}
