//! Generates files of the language from choices: valid files, and valid files with a few changes. They use every
//! declaration, statement, operation and metric of the language, which `tests/fuzzing.rs` checks.

mod altered;
mod choices;
pub mod files;
mod kernels;
mod metrics;
mod operations;
mod products;
mod statements;
mod tensors;
mod values;
mod windows;

use choices::Choices;
use operations::{FLOATS, TYPES, tensor_type};
use tensors::Tensor;

/// Maximum nesting of statements.
const MAX_DEPTH: usize = 5;

/// Bytes of text after which nothing more is added.
const MAX_TEXT: usize = 3000;

/// Approximate number of operations of an iteration after which nothing more is repeated.
const MAX_OPERATIONS: u64 = 128;

/// Generates the file that `bytes` choose. One choice in two is a valid file, the other has a few changes.
pub fn text(bytes: &[u8]) -> String {
    let mut choices = Choices(bytes);
    match choices.below(2) {
        0 => valid(choices.0),
        _ => {
            let (changes, rest) = choices.0.split_at(choices.0.len().min(24));
            altered::altered(&valid(rest), &mut Choices(changes))
        }
    }
}

/// Generates a valid file.
pub fn valid(bytes: &[u8]) -> String {
    let mut maker = Generator { choices: Choices(bytes), ..Generator::default() };
    maker.file();
    maker.text
}

/// A definition that can be called.
#[derive(Clone, Debug)]
struct Def {
    name: String,
    /// Element type and sizes of its tensor inputs, which its output has too.
    inputs: Vec<(&'static str, Vec<u64>)>,
    takes_whole: bool,
    takes_stream: bool,
}

#[derive(Default)]
struct Generator<'a> {
    choices: Choices<'a>,
    text: String,
    /// Number of names generated so far.
    numbers: usize,
    /// Names of whole numbers, each with its minimum and maximum.
    wholes: Vec<(String, u64, u64)>,
    /// Draws, which have values in the step alone: each with its minimum and maximum.
    draws: Vec<(String, u64, u64)>,
    /// Streams and families of streams, each with its number of members.
    streams: Vec<(String, u64)>,
    tensors: Vec<Tensor>,
    /// Labels of earlier operations in this scope.
    labels: Vec<String>,
    /// Labels of the step outside of loops, branches and calls, which `prev` and metrics can name.
    always: Vec<String>,
    /// Number of open scopes inside the step.
    scopes: usize,
    defs: Vec<Def>,
    /// Declared kernels, each with the element type of its tensors.
    kernels: Vec<(String, &'static str)>,
    /// The module that the file uses, as it is written.
    module: Option<&'static str>,
    /// Factors of the meshes, and lists of them.
    mesh: Vec<&'static str>,
    dtype: &'static str,
    has_mode: bool,
    in_step: bool,
    /// Number of enclosing blocks that only some ranks execute.
    apart: usize,
    /// Number of enclosing statements that must be equal on every rank.
    together: usize,
    /// How often a statement at this point is executed in an iteration.
    times: u64,
    operations: u64,
}

impl Generator<'_> {
    fn fresh(&mut self, prefix: &str) -> String {
        self.numbers += 1;
        format!("{prefix}{}", self.numbers)
    }

    fn add(&mut self, text: &str) {
        self.text += text;
        self.text += self.choices.pick(&["\n", "\n", " // a comment\n", "\n\n"]);
    }

    fn file(&mut self) {
        self.dtype = self.choices.pick(&FLOATS);
        if self.choices.once_in(2) {
            self.text += "//! A generated file.\n\n";
        }
        if self.choices.once_in(2) {
            let field = self.choices.pick(&[
                "tags: [\"fuzz\"]",
                "version: 1",
                "language: 1",
                "authors: [\"a\"]",
                "licence: \"MIT\"",
                "priority: 2,",
            ]);
            self.add(&format!("meta {{ category: \"fuzz\", {field} }}"));
        }
        if self.choices.once_in(4) {
            self.module();
        }
        self.add(&format!("param dtype = {}", self.dtype));
        self.streams();
        self.buffers();
        while self.text.len() < MAX_TEXT / 3 && !self.choices.once_in(4) && !self.choices.0.is_empty() {
            self.declaration();
        }
        if self.choices.once_in(8) {
            self.once("setup");
        }
        self.step();
        if self.choices.once_in(8) {
            self.once("teardown");
        }
        self.metrics();
    }

    fn streams(&mut self) {
        let priority = self.choices.pick(&[
            "",
            "(priority: high)",
            "(priority: normal)",
            "(priority: low)",
            "(priority: -1)",
            "(queue: 2)",
        ]);
        self.add(&format!("stream a{priority}"));
        self.streams.push(("a".to_owned(), 1));
        let count = self.choices.pick(&[4, 1, 2, 3]);
        let units = match self.choices.below(6) {
            0 => "(units: 16)".to_owned(),
            1 => "(units: 25%,)".to_owned(),
            2 => "(priority: low, units: 8)".to_owned(),
            3 => {
                let each: Vec<&str> = (0..count).map(|_| self.choices.pick(&["high", "low", "normal", "2"])).collect();
                format!("(priority: [{}])", each.join(", "))
            }
            _ => String::new(),
        };
        let size = self.whole(count);
        self.add(&format!("stream s[{size}]{units}"));
        self.streams.push(("s".to_owned(), count));
    }

    fn buffers(&mut self) {
        self.buffer("x, y, z", self.dtype, &[8, 16], "device", None);
        self.buffer("p, q", self.dtype, &[16, 8], "device", None);
        while self.choices.once_in(2) && self.text.len() < MAX_TEXT / 4 {
            let dtype = self.choices.pick(&TYPES);
            let dims = self.choices.pick(&[&[8, 16][..], &[16], &[4, 8], &[2, 8, 16], &[8]]);
            let space = self.choices.pick(&["device", "pinned", "host", "managed", "device"]);
            let count = self.choices.pick(&[None, Some(2), None, Some(3)]);
            let name = self.fresh("b");
            self.buffer(&name, dtype, dims, space, count);
        }
        if self.choices.once_in(3) {
            self.parts();
        }
    }

    /// Declares a buffer with parts of one type, or of two, and perhaps one like it.
    fn parts(&mut self) {
        let (name, dtype) = (self.fresh("b"), self.dtype);
        let other = self.choices.pick(&[dtype, dtype, "i64"]);
        let init = self.choices.pick(&["", " in device", " = ones", " = zeros"]);
        self.add(&format!("buffer {name} {{ up: dtype[8, 16], down: {other}[16, 8] }}{init}"));
        let mut names = vec![name.clone()];
        if self.choices.once_in(2) {
            let like = self.fresh("b");
            let init = self.choices.pick(&["", " = iota"]);
            self.add(&format!("buffer {like} like {name}{init}"));
            names.push(like);
        }
        for name in names {
            self.numbers += 1;
            let memory = self.numbers;
            let tensor = |part: &str, dtype: &'static str, dims: &[u64]| {
                let (name, dims) = (format!("{name}{part}"), dims.to_vec());
                Tensor { name, dtype, dims, space: "device", gaps: false, memory, writable: true, declared: false }
            };
            let mut tensors = vec![tensor(".up", dtype, &[8, 16]), tensor(".down", other, &[16, 8])];
            if dtype == other {
                tensors.push(tensor("", dtype, &[256]));
            }
            self.tensors.append(&mut tensors);
        }
    }

    /// Declares buffers; `names` are separated by commas.
    fn buffer(&mut self, names: &str, dtype: &'static str, dims: &[u64], space: &'static str, count: Option<u64>) {
        let sizes: Vec<String> = dims.iter().map(|size| self.whole(*size)).collect();
        let element = if dtype == self.dtype { "dtype" } else { dtype };
        let place =
            if space == "device" { self.choices.pick(&["", " in device"]).to_owned() } else { format!(" in {space}") };
        let inits = ["", " = zeros", " = ones", " = iota", " = 2", " = random(3)", " = random(2, 0.5)", "listed"];
        let init = match self.choices.pick(&inits) {
            "listed" => format!(" = {}", listed(dims)),
            init => init.to_owned(),
        };
        let family = match count {
            Some(count) => format!("[{}]", self.whole(count)),
            None => String::new(),
        };
        let comma = self.choices.pick(&["", ","]);
        self.add(&format!("buffer {names}{family}: {element}[{}{comma}]{place}{init}", sizes.join(", ")));
        for name in names.split(", ") {
            self.numbers += 1;
            let memory = self.numbers;
            let name = if count.is_some() { format!("{name}[1]") } else { name.to_owned() };
            let dims = dims.to_vec();
            self.tensors.push(Tensor { name, dtype, dims, space, gaps: false, memory, writable: true, declared: true });
        }
    }

    fn declaration(&mut self) {
        if self.choices.once_in(4) {
            self.text += "/// About the next.\n";
        }
        match self.choices.below(13) {
            10 => self.draw(),
            12 => self.kernel(),
            11 => {
                let (value, message) = (self.choices.below(9) as u64, self.choices.pick(&["", " \"as it is\""]));
                let written = self.whole(value);
                self.add(&format!("require {written} == {value}{message}"));
            }
            0 | 1 => {
                let (name, value) = (self.fresh("n"), self.choices.below(8) as u64 + 1);
                let allowed = self.choices.pick(&["", " in 1..=64", " in 0..65", " in [1, 2, 3, 4, 5, 6, 7, 8]"]);
                self.add(&format!("param {name} = {value}{allowed}"));
                self.wholes.push((name, value, value));
            }
            2 if !self.has_mode => {
                self.add("param mode = fast in [slow, fast]");
                self.has_mode = true;
            }
            3 => {
                let (name, value) = (self.fresh("c"), self.choices.below(16) as u64);
                let written = self.whole(value);
                self.add(&format!("let {name} = {written}"));
                self.wholes.push((name, value, value));
            }
            4 if self.mesh.is_empty() => {
                let (text, factors) = self.choices.pick(&[
                    ("mesh dp = world", &["dp"][..]),
                    ("mesh dp = world, tp = 1", &["dp", "tp"]),
                    ("mesh dp = 1, tp = world", &["dp", "tp", "[dp, tp]", "[tp, dp]"]),
                    ("mesh dp = world mesh tp = 1, pp = world", &["dp", "tp", "[tp, pp]"]),
                ]);
                self.add(text);
                self.mesh = factors.to_vec();
            }
            5 => match self.wholes.iter().rev().find(|(name, ..)| name.starts_with('n')).cloned() {
                Some((parameter, ..)) => {
                    let name = self.fresh("tiny");
                    let values = self.choices.pick(&["2", "[1, 2]", "1,"]);
                    self.add(&format!("preset {name} {{ {parameter} = {values} }}"));
                }
                None => {
                    let name = self.fresh("none");
                    self.add(&format!("preset {name} {{}}"));
                }
            },
            6 | 7 => self.def(),
            _ => {
                let (name, value) = (self.fresh("v"), self.any_value());
                self.add(&format!("let {name} = {value}"));
            }
        }
    }

    fn draw(&mut self) {
        let name = self.fresh("r");
        let high = self.choices.below(7) as u64 + 1;
        let seed = self.choices.pick(&["", ", seed: 7", ", seed: 1,"]);
        let weights = self.choices.pick(&["[3, 1]", "[0, 0.5]", "[1, 0]"]);
        let (dims, text, value, low, high) = match self.choices.below(9) {
            0 => ("", format!("uniform(1, {high}{seed})"), name.clone(), 1, high),
            1 => ("[2]", format!("binomial({high}, 0.3{seed})"), format!("{name}[1]"), 0, high),
            2 => ("[2, 2]", format!("zipf(1.1, {high}{seed})"), format!("{name}[0][1]"), 0, high - 1),
            3 => ("", format!("choice([1, {high}], {weights}{seed})"), name.clone(), 1, high),
            4 => ("[2]", format!("multinomial({high}, {weights}{seed})"), format!("{name}[0]"), 0, high),
            5 => ("", format!("geometric(0.5{seed})"), format!("min({name}, {high})"), 0, high),
            6 => ("", format!("poisson(2.5{seed})"), format!("min({name}, {high})"), 0, high),
            7 => {
                let column = self.choices.pick(&["prompt", "output"]);
                let text = format!("trace(\"lengths.csv\", column: \"{column}\"{seed})");
                ("[2]", text, format!("min({name}[1], {high})"), 0, high)
            }
            _ => ("[3]", format!("lognormal(1, 0.5{seed})"), format!("min(floor({name}[2]), {high})"), 0, high),
        };
        self.add(&format!("draw {name}{dims} ~ {text}"));
        self.draws.push((value, low, high));
    }

    fn def(&mut self) {
        let name = self.fresh("d");
        let dims = self.choices.pick(&[&[8, 16][..], &[16, 8]]).to_vec();
        let count = self.choices.below(2) + 1;
        let typed = self.choices.once_in(2);
        let takes_whole = self.choices.once_in(2);
        let takes_stream = self.choices.once_in(2);
        let mut arguments = Vec::new();
        let hidden = (std::mem::take(&mut self.tensors), std::mem::take(&mut self.labels));
        let (streams, wholes) = (self.streams.len(), self.wholes.len());
        for argument in ["i", "j"].into_iter().take(count) {
            let ty = if typed { format!(": {}", tensor_type(self.dtype, &dims)) } else { String::new() };
            arguments.push(format!("{argument}{ty}"));
            self.numbers += 1;
            let (name, dims, memory) = (argument.to_owned(), dims.clone(), self.numbers);
            let dtype = self.dtype;
            let tensor =
                Tensor { name, dtype, dims, space: "device", gaps: true, memory, writable: false, declared: false };
            self.tensors.push(tensor);
        }
        if takes_whole {
            arguments.push("k".to_owned());
            self.wholes.push(("k".to_owned(), 0, 3));
        }
        if takes_stream {
            arguments.push("st".to_owned());
            self.streams.push(("st".to_owned(), 1));
        }
        self.add(&format!("def {name}({} -> o) {{", arguments.join(", ")));
        // Any rank can call it, from anywhere.
        self.in_step = true;
        self.apart += 1;
        self.times = 4;
        self.scope(2);
        self.apart -= 1;
        self.in_step = false;
        self.add("map(i * 0.5 -> o)");
        self.add("}");
        (self.tensors, self.labels) = hidden;
        self.streams.truncate(streams);
        self.wholes.truncate(wholes);
        let inputs = vec![(self.dtype, dims); count];
        self.defs.push(Def { name, inputs, takes_whole, takes_stream });
    }

    /// A block around the iterations. Definitions may use `iteration`, so it calls none.
    fn once(&mut self, word: &str) {
        let (defs, labels) = (std::mem::take(&mut self.defs), std::mem::take(&mut self.labels));
        let always = std::mem::take(&mut self.always);
        self.times = 1;
        self.add(&format!("{word} {{"));
        self.scope(0);
        self.add("}");
        (self.defs, self.labels, self.always) = (defs, labels, always);
    }

    fn step(&mut self) {
        let options = self.choices.pick(&[
            "",
            "(sync: end)",
            "(sync: iteration)",
            "(sync: end, depth: 3)",
            "(order: data)",
            "(order: declared, races: allow)",
            "(order: declared, sync: end, depth: 2, races: allow,)",
            "(order: declared, races: forbid)",
        ]);
        let on_host = self.choices.once_in(4);
        if on_host {
            self.add(
                "stream h(kind: host, threads: 2)\nbuffer hp, hm: f32[8, 16] in pinned\nbuffer hq: f32[8, 16] in managed\n\
                 buffer hh: f16[8, 16] in host",
            );
        }
        self.in_step = true;
        self.times = 1;
        self.add(&format!("step{options} {{"));
        if on_host {
            let last = self.choices.pick(&[
                "copy(hq -> hp)",
                "cast(hq -> hh)",
                "spin(1us)",
                "fill(1 -> hq[0..4])",
                "read(\"data.bin\", offset: 64B -> hp)",
                "read(\"data.bin\", direct: true -> hh[0..2])",
                "sgd(hq, momentum: 0.9 -> hp, hm)",
                "adamw(hq[0], lr: 1e-3 -> hp[1], hp[2], hm[0])",
            ]);
            self.add(&format!("on h {{ map(hp * 0.5 -> hq) {last} }}"));
        }
        self.add("first: nop()");
        self.labels.push("first".to_owned());
        self.always.push("first".to_owned());
        let wholes = self.wholes.len();
        self.wholes.append(&mut self.draws);
        self.statements(0);
        self.wholes.truncate(wholes);
        self.add("}");
        self.in_step = false;
    }
}

/// A list with a number for each element of a tensor; one number for a tensor of more than 16 elements.
fn listed(dims: &[u64]) -> String {
    if dims.iter().product::<u64>() > 16 {
        return "1".to_owned();
    }
    match dims {
        [] => "1".to_owned(),
        [1] => "[1]".to_owned(),
        [size] => format!("0..{size}"),
        [size, rest @ ..] => format!("[{}]", vec![listed(rest); *size as usize].join(", ")),
    }
}
