//! Operations on drawn shapes: their kernels compute on the double of AMD's libraries what the CPU does.

use std::fmt::Write as _;
use std::path::Path;

use crate::common::doubles::{self, RESULTS_ONLY};
use crate::common::draws::Draws;
use crate::common::effort;
use crate::common::folder::Folder;
use crate::hip::{Output, all_outputs_agree, run_with, verify};

pub const FLOATS: [&str; 4] = ["f32", "bf16", "f16", "f64"];

/// Number of cases that a test draws where `AORTA_LONG` draws `all`: a C++ compiler makes the kernels of each.
pub fn cases(all: u32) -> u32 {
    effort::draws(all)
}

/// Maximum number of elements of a buffer that is larger than the slice of it that an operation takes.
const LARGEST: u64 = 2_000_000;

/// A file in the making, with a source of random choices.
pub struct File {
    draws: Draws,
    pub buffers: String,
    statements: String,
    /// Number of buffers so far.
    pub count: usize,
}

impl File {
    pub fn new(seed: u64) -> File {
        File { draws: Draws::new(seed), buffers: String::new(), statements: String::new(), count: 0 }
    }

    /// A number from 0 to below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draws.below(limit)
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        self.draws.pick(all)
    }

    /// One to four sizes, of about `elements` together; often one of them is 1.
    fn dims(&mut self, elements: u64) -> Vec<u64> {
        let rank = 1 + self.below(4);
        let mut left = elements;
        let mut dims: Vec<u64> = (1..rank)
            .map(|_| {
                let size = self.pick(&[1, 2, 3, 5, 8, 17, 64]).min(left.max(1));
                left /= size;
                size
            })
            .collect();
        dims.push(left.max(1));
        let turn = self.below(rank) as usize;
        dims.rotate_left(turn);
        dims
    }

    /// A buffer, or a slice of a larger one, of these sizes.
    pub fn tensor(&mut self, dtype: &str, dims: &[u64]) -> String {
        let name = format!("x{}", self.count);
        self.count += 1;
        if self.below(2) == 0 {
            let _ = writeln!(self.buffers, "buffer {name}: {dtype}{dims:?}");
            return name;
        }
        let mut elements: u64 = dims.iter().product();
        let (sizes, ranges): (Vec<u64>, Vec<String>) = dims
            .iter()
            .map(|&size| {
                let [before, after] = if self.below(3) == 0 { [self.below(9), self.below(9)] } else { [0, 0] };
                let whole = before + size + after;
                if whole == size || elements / size * whole > LARGEST {
                    return (size, "..".to_owned());
                }
                elements = elements / size * whole;
                (whole, format!("{before}..{}", before + size))
            })
            .unzip();
        let _ = writeln!(self.buffers, "buffer {name}: {dtype}{sizes:?}");
        format!("{name}[{}]", ranges.join(", "))
    }

    /// A tensor that repeats along some of these dimensions.
    pub fn repeated(&mut self, dtype: &str, dims: &[u64]) -> String {
        let mut own: Vec<u64> = dims.iter().map(|&size| if self.below(3) == 0 { 1 } else { size }).collect();
        let missing = if self.below(3) == 0 { self.below(own.len() as u64) as usize } else { 0 };
        own.drain(..missing);
        self.tensor(dtype, &own)
    }

    fn elements(&mut self) -> u64 {
        self.pick(&[1, 7, 96, 1000, 4099, 140_000, 300_000])
    }

    pub fn add(&mut self, statement: &str) {
        let _ = writeln!(self.statements, "    {statement}");
    }

    /// Whole numbers from -10 to below 90, as indices of type `dtype`.
    pub fn indices(&mut self, dtype: &str, dims: &[u64]) -> String {
        let (raw, indices) = (format!("r{}", self.count), format!("at{}", self.count));
        self.count += 1;
        let _ = writeln!(self.buffers, "buffer {raw}: i32{dims:?}\nbuffer {indices}: {dtype}{dims:?}");
        self.add(&format!("map({raw} - 10 -> {indices})"));
        indices
    }

    /// Runs the file on the double and compares its results with the CPU's.
    #[track_caller]
    pub fn check(&self) {
        let Some(libraries) = doubles::cpu_in_turn() else { return };
        let folder = Folder::new();
        let text = format!("{}stream main\nstep {{\n  on main {{\n{}  }}\n}}\n", self.buffers, self.statements);
        println!("{text}");
        verify_drawn(libraries, &folder.write("shapes.aorta", text), &RESULTS_ONLY);
    }
}

/// Checks a file of drawn shapes: its results as streams are those of the CPU. Its graph launches the same kernels again, which only a
/// long run compares. `hip::every_operation_agrees_with_the_cpu` launches every operation by a graph.
pub fn verify_drawn(libraries: &Path, file: &str, arguments: &[&str]) {
    if effort::is_long() {
        return verify(libraries, file, arguments);
    }
    let Output { code, printed } = run_with(libraries, &[], &[&[file, "--launch", "stream"], arguments].concat());
    assert_eq!(code, Some(0), "{file}, {arguments:?}:\n{printed}");
    all_outputs_agree(file, "as streams", &printed);
}

#[test]
fn map_with_several_outputs() {
    let mut file = File::new(1);
    for _ in 0..cases(14) {
        let elements = file.elements();
        let dims = file.dims(elements);
        let kinds = [FLOATS.as_slice(), &["i32", "u8", "i8"]].concat();
        let [a, b] = [file.pick(&kinds), file.pick(&FLOATS)];
        // The outputs may be larger than every input.
        let is_whole = file.below(3) > 0;
        let x = if is_whole { file.tensor(a, &dims) } else { file.repeated(a, &dims) };
        let y = file.repeated(b, &dims);
        let outputs: Vec<String> = (0..2 + file.below(3))
            .map(|_| file.pick(&kinds))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|dtype| file.tensor(dtype, &dims))
            .collect();
        let expressions = [format!("{x} + {y}"), format!("{x} - {y}"), format!("max({x}, 0.5)"), "3".to_owned()];
        let outputs = if is_whole && file.below(4) == 0 { [vec![x], outputs[1..].to_vec()].concat() } else { outputs };
        file.add(&format!("map({} -> {})", expressions[..outputs.len()].join(", "), outputs.join(", ")));
    }
    file.check();
}

#[test]
fn gather_scatter_and_embedding_by_either_index() {
    let mut file = File::new(2);
    for _ in 0..cases(8) {
        let dtype = file.pick(&FLOATS);
        let index = file.pick(&["i32", "i64", "i64"]);
        let (rows, elements) = (1 + file.below(100), file.pick(&[1, 3, 64, 400, 3000]));
        let (picks, inner) = (file.dims(elements), file.dims(37));
        let (picks, inner) = (&picks[..picks.len().min(3)], &inner[..inner.len().min(3)]);
        let indices = file.indices(index, picks);
        let (table, spread) = ([&[rows], inner].concat(), [picks, inner].concat());
        let (x, y) = (file.tensor(dtype, &table), file.tensor(dtype, &spread));
        file.add(&format!("gather({x}, {indices} -> {y})"));
        let z = file.tensor(dtype, &table);
        let combine = file.pick(&["set", "add"]);
        file.add(&format!("scatter({y}, {indices}, combine: {combine} -> {z})"));
        let (width, flat) = (1 + file.below(70), [picks, &[0]].concat());
        let mut flat = flat;
        *flat.last_mut().expect("a list of at least one") = width;
        let (x, y) = (file.tensor(dtype, &[rows, width]), file.tensor(dtype, &flat));
        file.add(&format!("embedding({x}, {indices} -> {y})"));
    }
    file.check();
}

/// A few rows of many and many rows of few, by indices that can name any of them, or a few of many, and some that do not exist.
#[test]
fn scatter_into_any_number_of_rows() {
    let mut file = File::new(21);
    // The number of indices, of elements of a row, of rows, and of rows that indices name.
    for (count, inner, rows, named) in effort::chosen([
        (1, 761, 315, 315),
        (3000, 7, 9000, 9000),
        (2300, 40, 9000, 9000),
        (700, 300, 40, 40),
        (9000, 8, 300, 300),
        (20_000, 19, 2500, 2500),
        (30_000, 3, 20_000, 20_000),
        (40_000, 2, 100_000, 100_000),
        (20_000, 70, 3000, 7),
        // Seven popular rows, each wider than a warp.
        (9000, 280, 2500, 7),
        // A single popular row, whose terms a block lists in several rounds.
        (20_000, 12, 2000, 1),
        (140_000, 1, 50_000, 2000),
        // Blocks find few terms, or far more than expected.
        (4000, 11, 3000, 3000),
        (3000, 60, 700, 2),
        // A block has all terms and lists them twice; then terms of few rows, of several packs each.
        (7000, 2, 3000, 2),
        (100, 58, 1500, 3),
        (70_000, 2, 5, 5),
        (90_000, 9, 1000, 1000),
        (140_000, 1, 1400, 3),
        // So many bytes that positions are sorted first: most rows have no term, or few rows have most terms. Rows begin anywhere.
        (700, 2301, 4000, 900),
        (17_000, 1003, 900, 30),
    ]) {
        let dtype = file.pick(&FLOATS);
        let index = file.pick(&["i32", "i64"]);
        let [a, b, c] = ["a", "b", "c"].map(|name| format!("{name}{}", file.count));
        let at = file.tensor(index, &[count]);
        let _ = writeln!(file.buffers, "buffer {a}: i32[{count}]\nbuffer {b}: i32[{count}]\nbuffer {c}: i32[{count}]");
        file.add(&format!("map(({a} * 10000 + {b} * 100 + {c}) % {} - 2 -> {at})", named + 5));
        let (x, y) = (file.tensor(dtype, &[count, inner]), file.tensor(dtype, &[rows, inner]));
        let weights = if file.below(2) == 0 { format!(", {}", file.tensor(dtype, &[count])) } else { String::new() };
        let combine = if named < rows { "add" } else { file.pick(&["set", "add", "add"]) };
        file.add(&format!("scatter({x}, {at}{weights}, combine: {combine} -> {y})"));
    }
    file.check();
}

/// Rows so short that a thread computes elements of several: an input with the output's strides, and one that is broadcast or has gaps.
#[test]
fn maps_over_short_rows() {
    let mut file = File::new(71);
    for _ in 0..cases(6) {
        let dtype = file.pick(&["f32", "bf16", "f16", "u8"]);
        let length = file.pick(&[2, 3, 5, 9, 17, 27]);
        let dims = [270_000 / length + file.below(5), length];
        let (other, part) = file.pick(&[([1, 1], ""), ([0, 1], ""), ([1, 0], ""), ([3, 1], "[0..1]"), ([0, 0], "")]);
        let sizes = [if other[0] == 0 { dims[0] } else { other[0] }, if other[1] == 0 { dims[1] + 3 } else { dims[1] }];
        let part = if other[1] == 0 { format!("[.., 1..{}]", length + 1) } else { part.to_owned() };
        let (a, b, y) = (file.tensor(dtype, &dims), file.tensor("f32", &sizes), file.tensor(dtype, &dims));
        file.add(&format!("map({a} * 2 + {b}{part} -> {y})"));
    }
    // Rows of several dimensions: inputs that are repeated along any of them, and slices of one.
    for _ in 0..cases(8) {
        let dtype = file.pick(&["f32", "bf16", "f16", "u8", "f64"]);
        let inner = [0; 3].map(|_| file.pick(&[1, 2, 3, 4, 7, 9]));
        let [a, b, c] = inner;
        let dims = [270_000 / (a * b * c) + file.below(5), a, b, c];
        let repeated: Vec<u64> = dims.iter().map(|&size| if file.below(2) == 0 { 1 } else { size }).collect();
        let (b, c) = (file.tensor("i32", &repeated), file.tensor("i32", &dims[2..]));
        let wide = [dims[0], dims[1], dims[2] + 2, dims[3]];
        let (a, x, y) = (file.tensor(dtype, &dims), file.tensor("f32", &wide), file.tensor(dtype, &dims));
        file.add(&format!("map(if {c} <= {b} {{ {a} }} else {{ {x}[.., .., 1..{}, ..] }} -> {y})", dims[2] + 1));
    }
    file.check();
}

#[test]
fn rows_by_expert_and_back() {
    let mut file = File::new(13);
    for _ in 0..cases(8) {
        let dtype = file.pick(&FLOATS);
        let (rows, each, experts) = (file.pick(&[1, 5, 300, 3000]), 1 + file.below(3), 1 + file.below(120));
        // Several blocks share a row where there are few and they are long.
        let inner = file.dims(if rows < 300 { 1501 } else { 23 });
        let inner = &inner[..inner.len().min(2)];
        let shape = if each == 1 { vec![rows] } else { vec![rows, each] };
        let kind = file.pick(&["i32", "i64"]);
        let choices = file.indices(kind, &shape);
        let x = file.tensor(dtype, &[&[rows], inner].concat());
        let [y, z] = [rows * each, rows].map(|rows| file.tensor(dtype, &[&[rows], inner].concat()));
        let places = file.tensor("i32", &shape);
        file.add(&format!("permute({x}, {choices}, experts: {experts} -> {y}, {places}, _)"));
        let weights = if file.below(2) == 0 { format!(", {}", file.tensor(dtype, &shape)) } else { String::new() };
        file.add(&format!("unpermute({y}, {places}{weights} -> {z})"));
    }
    file.check();
}

#[test]
fn routes_of_any_form() {
    let mut file = File::new(14);
    for _ in 0..cases(8) {
        let [size, groups, tokens] = [file.pick(&[1, 2, 3, 8, 33]), file.pick(&[1, 2, 3, 8, 32]), 1 + file.below(70)];
        let (dtype, experts) = (file.pick(&FLOATS), size * groups);
        let probs = file.tensor(dtype, &[tokens, experts]);
        let bias = match file.below(2) {
            0 => {
                let dtype = file.pick(&FLOATS);
                format!(", {}", file.tensor(dtype, &[experts]))
            }
            _ => String::new(),
        };
        let group_k = file.below(groups + 1);
        let eligible = if group_k == 0 { experts } else { group_k * size };
        let (k, capacity) = (1 + file.below(eligible.min(20)), 1 + file.below(tokens));
        let scores = file.pick(&["given", "softmax", "sigmoid"]);
        let group_score = if size > 1 { file.pick(&["best", "best_two"]) } else { "best" };
        let normalize = file.pick(&["true", "false"]);
        file.add(&format!(
            "route({probs}{bias}, k: {k}, capacity: {capacity}, normalize: {normalize}, scores: {scores}, \
             groups: {groups}, group_k: {group_k}, group_score: {group_score})"
        ));
    }
    file.check();
}

#[test]
fn concat_of_any_number_along_any_dimension() {
    let mut file = File::new(3);
    for _ in 0..cases(10) {
        let dtype = file.pick(&["f32", "bf16", "f64", "i64", "i32", "u8"]);
        let elements = file.elements();
        let dims = file.dims(elements);
        let axis = file.below(dims.len() as u64) as usize;
        let (mut all, mut inputs) = (dims.clone(), Vec::new());
        all[axis] = 0;
        // More than eight take a second kernel.
        for _ in 0..file.pick(&[1, 2, 2, 3, 11]) {
            let mut own = dims.clone();
            own[axis] = 1 + file.below(2 * own[axis].min(500));
            all[axis] += own[axis];
            inputs.push(file.tensor(dtype, &own));
        }
        let y = file.tensor(dtype, &all);
        let dim = if file.below(2) == 0 { axis as i64 } else { axis as i64 - dims.len() as i64 };
        file.add(&format!("concat({}, dim: {dim} -> {y})", inputs.join(", ")));
    }
    file.check();
}

#[test]
fn pages_by_a_list() {
    let mut file = File::new(49);
    for _ in 0..cases(12) {
        let dtype = file.pick(&FLOATS);
        let elements = file.elements();
        let mut dims = file.dims(elements);
        let from = file.tensor(dtype, &dims);
        let numbers: Vec<u64> = (0..1 + file.below(9)).map(|_| file.below(dims[0])).collect();
        dims[0] = numbers.len() as u64;
        let to = file.tensor(dtype, &dims);
        let via = file.pick(&["auto", "kernel"]);
        file.add(&format!("copy({from}, indices: {numbers:?}, via: {via} -> {to})"));
    }
    file.check();
}

#[test]
fn pad_on_any_side() {
    let mut file = File::new(4);
    for case in 0..cases(12) {
        let dtype = if case == 0 { "i8" } else { file.pick(&["f32", "bf16", "f16", "f64", "i64", "i32", "i8"]) };
        let elements = file.elements();
        let dims = if case == 0 { vec![2, 45_001, 3] } else { file.dims(elements) };
        let [before, after] = [0, 1].map(|_| dims.iter().map(|_| file.pick(&[0, 0, 1, 3, 8])).collect::<Vec<u64>>());
        let all: Vec<u64> = (0..dims.len()).map(|axis| before[axis] + dims[axis] + after[axis]).collect();
        let (x, y) = (file.tensor(dtype, &dims), file.tensor(dtype, &all));
        let value = file.pick(&["", ", value: 1", ", value: -7"]);
        file.add(&format!("pad({x}, before: {before:?}, after: {after:?}{value} -> {y})"));
    }
    // Rows shorter than a word, and than a pack, in tensors that are large enough for parts in shared memory.
    let short = [("i8", [3, 90_001, 3], [0, 1, 1], [0, 0, 2]), ("bf16", [3, 90_001, 1], [0, 0, 3], [0, 0, 6])];
    for (dtype, dims, before, after) in effort::chosen(short) {
        let all = [0, 1, 2].map(|axis: usize| before[axis] + dims[axis] + after[axis]);
        let (x, y) = (file.tensor(dtype, &dims), file.tensor(dtype, &all));
        file.add(&format!("pad({x}, before: {before:?}, after: {after:?} -> {y})"));
    }
    file.check();
}

#[test]
fn triad_of_any_size() {
    let mut file = File::new(5);
    for bytes in [4, 1000, 65_537, 3_000_000] {
        file.add(&format!("triad({bytes}B)"));
    }
    file.check();
}

#[test]
fn rope_with_angles_of_any_shape() {
    let mut file = File::new(6);
    for _ in 0..cases(12) {
        let dtype = file.pick(&FLOATS);
        let elements = file.elements();
        let mut half = file.dims(elements);
        let angle = file.pick(&FLOATS);
        let (cos, sin) = (file.repeated(angle, &half), file.repeated(angle, &half));
        *half.last_mut().expect("a list of at least one") *= 2;
        let x = file.tensor(dtype, &half);
        let y = if file.below(3) == 0 { x.clone() } else { file.tensor(dtype, &half) };
        file.add(&format!("rope({x}, {cos}, {sin} -> {y})"));
    }
    file.check();
}

#[test]
fn sorted_rows_of_any_length() {
    let mut file = File::new(10);
    for length in effort::chosen([1, 2, 3, 33, 512, 1000, 2048, 2049, 4096, 5000, 9001, 20_000]) {
        let dtype = file.pick(&["f32", "bf16", "f16", "f64", "i64", "i32", "i8", "u8"]);
        let rows = if length < 1000 { file.pick(&[1, 5, 300]) } else { file.pick(&[1, 3]) };
        let x = file.tensor(dtype, &[rows, length]);
        let places = file.pick(&["i32", "i64"]);
        let (y, indices) = (file.tensor(dtype, &[rows, length]), file.tensor(places, &[rows, length]));
        let descending = file.below(2) == 0;
        file.add(&format!("sort({x}, descending: {descending} -> {y}, {indices})"));
    }
    file.check();
}

#[test]
fn norms_of_any_number_of_tensors() {
    let mut file = File::new(12);
    for count in [1, 2, 3, 20, 64] {
        let gradients: Vec<String> = (0..count)
            .map(|_| {
                let (dtype, elements) = (file.pick(&FLOATS), file.pick(&[1, 7, 4099, 20_000]));
                let (begin, name) = (file.below(4), format!("g{}", file.count));
                file.count += 1;
                let _ = writeln!(file.buffers, "buffer {name}: {dtype}[{}]", begin + elements);
                format!("{name}[{begin}..{}]", begin + elements)
            })
            .collect();
        file.add(&format!("grad_norm({})", gradients.join(", ")));
    }
    file.check();
}

#[test]
fn channels_and_distances_of_any_shape() {
    let mut file = File::new(11);
    for _ in 0..cases(10) {
        let [a, b] = [file.pick(&FLOATS), file.pick(&FLOATS)];
        let elements = file.pick(&[7, 96, 1000, 4099, 70_000]);
        let mut dims = file.dims(elements);
        let x = file.tensor(a, &dims);
        let dim = file.below(dims.len() as u64);
        let (y, z) = (file.repeated(b, &dims), file.repeated(b, &dims));
        file.add(&format!("cosine_similarity({x}, {y}, dim: {dim})"));
        let (p, swap) = (1 + file.below(2), file.below(2) == 0);
        file.add(&format!("triplet({x}, {y}, {z}, p: {p}, swap: {swap})"));
        if dims.len() == 1 {
            dims.push(1 + file.below(40));
        }
        let (x, channels) = (file.tensor(a, &dims), dims[1]);
        let parameters: Vec<String> = (0..file.below(3)).map(|_| file.tensor(b, &[channels])).collect();
        let inputs = [vec![x.clone()], parameters].concat().join(", ");
        let y = if file.below(3) == 0 { x } else { file.tensor(b, &dims) };
        file.add(&format!("batch_norm({inputs} -> {y}, _, _)"));
    }
    // Channels that no block holds, of which packs hold elements of two.
    for _ in 0..cases(4) {
        let [a, b] = [file.pick(&FLOATS), file.pick(&FLOATS)];
        let dims = [3, 2, 16_400 + file.below(40)];
        let (x, y, weight) = (file.tensor(a, &dims), file.tensor(b, &dims), file.tensor(b, &[2]));
        file.add(&format!("batch_norm({x}, {weight} -> {y}, _, _)"));
    }
    // So many samples that each thread has columns of its own.
    let [a, b] = [file.pick(&FLOATS), file.pick(&FLOATS)];
    let dims = [24_000 + file.below(40), 9 + file.below(4), 11];
    let (x, y, weight) = (file.tensor(a, &dims), file.tensor(b, &dims), file.tensor(b, &dims[1..2]));
    file.add(&format!("batch_norm({x}, {weight} -> {y}, _, _)"));
    file.check();
}

#[test]
fn dropout_by_seed() {
    let mut file = File::new(7);
    for seed in 0..14 {
        let [a, b] = [file.pick(&FLOATS), file.pick(&FLOATS)];
        let elements = file.elements();
        let dims = file.dims(elements);
        let x = file.tensor(a, &dims);
        let y = if file.below(3) == 0 { x.clone() } else { file.tensor(b, &dims) };
        let p = file.pick(&["0", "0.1", "50%", "0.999", "1"]);
        file.add(&format!("dropout({x}, p: {p}, seed: {seed} * 4294967297 -> {y})"));
    }
    file.check();
}

#[test]
fn optimizers_of_any_type() {
    let mut file = File::new(8);
    for step in 1..9 {
        let [gradient, weight, moment] = [0, 1, 2].map(|_| file.pick(&FLOATS));
        let elements = file.elements();
        let dims = file.dims(elements);
        let [g, w, m, v] = [gradient, weight, moment, moment].map(|dtype| file.tensor(dtype, &dims));
        // A moment of squares is not negative.
        file.add(&format!("map(abs({v}) -> {v})"));
        file.add(&format!("adamw({g} -> {w}, {m}, {v}, lr: 0.01, beta1: 0.8, weight_decay: 0.1, step: {step})"));
        let decay = file.below(2);
        file.add(&format!("sgd({g} -> {w}, lr: 0.1, weight_decay: {decay})"));
        let nesterov = file.below(2) == 0;
        file.add(&format!("sgd({g} -> {w}, {m}, momentum: 0.9, dampening: 0.1, nesterov: {nesterov})"));
    }
    file.check();
}

/// A thread reduces a whole row of those that its block stages in shared memory: alone, with an element of another input for each row, and
/// with the target of a loss. Rows of one element are mapped.
#[test]
fn reductions_of_many_short_rows() {
    let mut file = File::new(31);
    let calls = [
        ("bf16", 7, "cross_entropy(X, T -> Y)"),
        ("f32", 18, "cross_entropy(X, T -> Y, label_smoothing: 0.1, ignore_index: 3)"),
        ("f16", 33, "logsumexp(X * 2 -> Y, dims: [1])"),
        ("f64", 3, "mean(X * Z -> Y, dims: [1])"),
        ("u8", 13, "sum(X + 1 -> Y, dims: [1])"),
        ("bf16", 6, "argmin(X -> I, dims: [-1])"),
        ("f16", 5, "cosine_similarity(X, X -> Y)"),
        ("f16", 1, "logsumexp(X * Z -> Y, dims: [1])"),
    ];
    for (dtype, terms, call) in effort::chosen(calls) {
        let rows = 270_336 + file.below(300);
        let count = file.count;
        file.count += 1;
        let _ = writeln!(
            file.buffers,
            "buffer s{count}: {dtype}[{rows}, {terms}]\nbuffer t{count}, i{count}: i32[{rows}]\nbuffer z{count}: f32[{rows}, 1]\n\
             buffer y{count}: f32[{rows}]"
        );
        let name = |text: String, (from, to): (char, &str)| text.replace(from, &format!("{to}{count}"));
        let names = [('X', "s"), ('T', "t"), ('Y', "y"), ('Z', "z"), ('I', "i")];
        file.add(&names.into_iter().fold(call.to_owned(), name));
    }
    file.check();
}

/// Dimensions of a tensor and of its parts are merged and split, as inputs and as outputs.
#[test]
fn views_of_tensors_and_slices() {
    let mut file = File::new(9);
    for _ in 0..cases(12) {
        let dtype = file.pick(&FLOATS);
        let [a, b, c] = [2, 3, 2].map(|least| least + file.below(9));
        let (x, y) = (file.tensor(dtype, &[a, b, 2 * c]), format!("y{}", file.count));
        let _ = writeln!(file.buffers, "buffer {y}: {dtype}[{a}, {b}, {}]", 2 * c);
        // The last dimension is split, whatever gaps there are; all of a buffer without any are merged.
        file.add(&format!("map(view({x}, [{a}, {b}, 2, {c}]) * 2 -> view({y}, [{a}, {b}, 2, {c}]))"));
        file.add(&format!("softmax(view({y}, [{a} * {b}, {c} * 2]))"));
        file.add(&format!("map(view({y}, [{}]) + 1 -> view({y}, [{}]))", 2 * a * b * c, 2 * a * b * c));
        file.add(&format!("gemm(view({y}[1], [{b}, {}]), {dtype}[{}, 5])", 2 * c, 2 * c));
        file.add(&format!("map(view({y}[.., 1..3], [{a}, {}]) - 1 -> view({y}[.., 1..3], [{a}, {}]))", 4 * c, 4 * c));
    }
    file.check();
}

/// Rows in registers of parts of a warp, of several warps, in chunks, in pieces, and staged in shared memory.
#[test]
fn softmax_and_scans_of_any_length() {
    let mut file = File::new(13);
    let rows = [
        (300_000, 3),
        (5, 1),
        (300, 61),
        (40, 196),
        (30, 1001),
        (3, 4097),
        (9, 5002),
        (2, 33_000),
        (1, 70_001),
        (67, 32_801),
    ];
    for (rows, length) in effort::chosen(rows) {
        let dtype = file.pick(&FLOATS);
        let (x, y) = (file.tensor(dtype, &[rows, length]), file.tensor(dtype, &[rows, length]));
        let scale = file.pick(&["1", "0.125"]);
        file.add(&format!("softmax({x}, scale: {scale} -> {y})"));
    }
    for (rows, length) in effort::chosen([(3, 1000), (2, 40_001), (1, 131_072), (3, 65_536), (16, 9_979)]) {
        let dtype = file.pick(&FLOATS);
        let (x, y) = (file.tensor(dtype, &[rows, length]), file.tensor(dtype, &[rows, length]));
        let reverse = file.below(2) == 0;
        file.add(&format!("cumsum({x}, reverse: {reverse} -> {y})"));
    }
    // Narrow rows, whose columns are scanned through shared memory.
    for (dtype, dims) in effort::chosen([("f32", [5000, 3]), ("bf16", [9001, 5]), ("f64", [4001, 3])]) {
        let (x, y) = (file.tensor(dtype, &dims), file.tensor(dtype, &dims));
        let reverse = file.below(2) == 0;
        file.add(&format!("cumsum({x}, dim: 0, reverse: {reverse} -> {y})"));
    }
    file.check();
}
