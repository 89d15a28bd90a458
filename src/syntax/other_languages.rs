//! Constructs of other languages, and what to write instead. Only used in help texts.

/// Words that begin a declaration in other languages.
const DECLARATIONS: [(&[&str], &str); 22] = [
    (
        &["var", "val", "const", "auto", "define", "set"],
        "write `let n = 4`, or `param n = 4` for what a caller may set",
    ),
    (&["int", "float", "bool", "string"], "write `param n = 4` or `let n = 4`: the value gives the type"),
    (&["arg", "args", "option", "input", "parameter", "params"], "write `param n = 4`"),
    (&["fn", "func", "function", "fun", "proc", "macro"], "write `def f(x -> y) { … }`"),
    (&["tensor", "array", "matrix", "alloc", "malloc", "memory"], "write `buffer x: f32[1024]`"),
    (&["queue", "lane", "thread", "cudaStream_t", "hipStream_t"], "write `stream s`"),
    (
        &["event", "cudaEvent_t", "hipEvent_t", "semaphore"],
        "an event is the label of an operation, or of a `signal()`: `e: signal()` in the step, and `wait(e)`",
    ),
    (&["graph"], "write the operations in `step { … }`: `aorta exec FILE --launch graph` launches them as a graph"),
    (&["class", "struct", "type"], "a file has parameters, buffers, streams and definitions: `def f(x -> y) { … }`"),
    (
        &["main", "run", "program", "loop", "begin", "workload", "workflow", "pipeline", "job", "benchmark"],
        "write `step { … }`: it holds the operations of one iteration",
    ),
    (
        &["assert", "check", "ensure"],
        "write `require n > 0 \"n is positive\"` of parameters and ranks, `expect time > 0s` of figures",
    ),
    (&["measure", "report", "print", "output"], "write `metric rate = bytes / time`"),
    (
        &["import", "include", "from", "mod", "package"],
        "write `use \"blocks.aorta\"` for a file with definitions, `use std.transformer` for a shipped module",
    ),
    (
        &["warmup", "iterations", "iters", "repeats", "effort"],
        "an option of the run: `aorta exec FILE --warmup 10 --iterations 100`",
    ),
    (&["else", "elif", "while"], "statements belong inside `step { … }`"),
    (
        &["name", "title", "description", "version", "author", "authors", "category", "tags"],
        "`//! text` at the top describes the file, and `meta { category: \"gemm\" }` has facts about it",
    ),
    (&["streams", "queues", "lanes"], "write `stream s`, or `stream s[4]` for a family of four"),
    (&["buffers", "tensors", "inputs", "outputs"], "write `buffer x: f32[1024]` for each"),
    (
        &["operations", "ops", "kernels", "steps", "tasks", "nodes"],
        "operations are the statements of `step { … }`: `step { y: map(x + 1) }`",
    ),
    (
        &["device", "devices", "gpu", "gpus", "backend", "ranks", "world_size"],
        "an option of the run: `aorta exec FILE --backend cuda --device 0`, or `--ranks 4`",
    ),
    (
        &["__global__", "__device__", "extern", "template", "void"],
        "`kernel k(x: f32[n] -> y: f32[n]) { … }` declares a kernel of your own; `aorta explain kernel_source` shows one",
    ),
    (&["async"], "operations on different streams run at the same time: `on s { … }` in the step"),
];

/// Words that begin a statement in other languages.
const STATEMENTS: [(&[&str], &str); 9] = [
    (&["elif", "elsif", "elseif", "elseIf"], "write `else if`"),
    (
        &["while", "do", "loop", "repeat", "foreach"],
        "write `for i in 0..n { … }`: the number of turns is known before the run",
    ),
    (&["var", "val", "const", "auto", "int", "float", "set"], "write `let n = 4`"),
    (&["return", "yield"], "an output is written, not returned: `def f(x -> y) { map(x + 1 -> y) }`"),
    (
        &["with", "using", "async", "await", "launch", "spawn", "parallel", "concurrent"],
        "write `on s { … }` to run operations on a stream",
    ),
    (&["switch", "match", "case", "unless"], "write `if n > 1 { … } else { … }`"),
    (&["pass", "end", "done"], "remove it: a block ends with `}`"),
    (
        &["try", "except", "catch", "finally", "raise", "throw"],
        "remove it: an operation that fails ends the run; `require n > 0 \"n is positive\"` checks parameters",
    ),
    (&["break", "continue", "goto"], "skip turns with `if`, or shorten the range: every turn is known before the run"),
];

/// Units with another spelling here.
const UNITS: [(&[&str], &str); 8] = [
    (&["e", "E"], "an exponent has digits: `1e3`"),
    (&["sec", "secs", "second", "seconds"], "write `s`"),
    (&["msec", "millis"], "write `ms`"),
    (&["usec", "micros", "u"], "write `us`"),
    (&["nsec", "nanos", "n"], "write `ns`"),
    (&["min", "h", "hour"], "write it in seconds: `60s`"),
    (&["f", "F", "f32", "f64", "l", "L"], "a number has no suffix for its type: remove it"),
    (&["x", "X", "times"], "a factor is a plain number: leave its unit out"),
];

/// Characters with another spelling here.
const CHARACTERS: [(&str, &str); 14] = [
    ("#", "a comment begins with `//`"),
    (";", "remove it: statements need no terminator"),
    ("'", "write text between double quotes: `\"text\"`"),
    ("`", "write text between double quotes: `\"text\"`"),
    ("“”„‘’", "write text between straight double quotes: `\"text\"`"),
    ("?", "a choice is written `if c { a } else { b }`"),
    ("^", "a power is `pow(x, 2)`"),
    ("@", "a matrix product is `gemm(a, b)`"),
    ("$", "a value from outside is a parameter: `param n = 4`, which `--set n=8` changes"),
    ("→", "an arrow is written `->`"),
    ("×·", "write `*`"),
    ("–—−", "write `-`"),
    ("µμ", "a microsecond is written `us`"),
    ("…", "a range is written `0..n`"),
];

/// The replacement of a word that begins a declaration in another language; `None` for an unknown word.
pub(super) fn declaration(word: &str) -> Option<&'static str> {
    among(&DECLARATIONS, word)
}

/// The replacement of a word that begins a statement in another language; `None` for an unknown word.
pub(super) fn statement(word: &str) -> Option<&'static str> {
    among(&STATEMENTS, word)
}

/// The replacement of a number with a unit of other tools; `None` for an unknown unit.
pub(super) fn unit(number: &str, unit: &str) -> Option<String> {
    const THOUSANDS: [(&[&str], u32); 4] = [(&["k", "K"], 3), (&["M"], 6), (&["G"], 9), (&["T"], 12)];
    const BITS: [(&[&str], &str); 4] = [
        (&["Gbps", "Gb/s", "Gbit/s"], "GB/s"),
        (&["Mbps", "Mb/s"], "MB/s"),
        (&["Gb", "gb"], "GB"),
        (&["Mb", "mb"], "MB"),
    ];
    if let Some((_, power)) = THOUSANDS.iter().find(|(units, _)| units.contains(&unit)) {
        let whole = number.parse::<u64>().ok().and_then(|whole| whole.checked_mul(10u64.pow(*power)));
        let number = whole.map_or_else(|| format!("{number}e{power}"), |whole| whole.to_string());
        return Some(format!("a plain number has no unit: write `{number}`; sizes have `KiB`, `MiB`, `KB`, `MB`"));
    }
    if let Some((_, bytes)) = BITS.iter().find(|(units, _)| units.contains(&unit))
        && let Ok(bits) = number.parse::<f64>()
    {
        return Some(format!("sizes are in bytes, not in bits: write `{}{bytes}`", bits / 8.0));
    }
    if let Some(flops) = ["MFLOP", "GFLOP", "TFLOP"].into_iter().find(|flops| unit.strip_prefix(flops) == Some("S")) {
        return Some(format!("write `{number}{flops}` for a number of operations, `{number}{flops}/s` for a rate"));
    }
    if let Some(flops) = ["MFLOP", "GFLOP", "TFLOP"].into_iter().find(|flops| flops[..2] == *unit) {
        return Some(format!("write `{number}{flops}`"));
    }
    among(&UNITS, unit).map(str::to_owned)
}

/// Help for a line that begins with `@`, as a decorator of Python does.
pub(super) const DECORATOR: &str = "remove the line: declarations and statements have no decorators";

/// Help for the head of a loop in C.
pub(super) const LOOP: &str = "a loop goes over a range: `for i in 0..n { … }`";

/// Letters of other alphabets that look like those of ASCII, which are at the same positions.
const LOOK_ALIKES: (&str, &str) =
    ("АВСЕНІЈКМОРЅТХаеіјорсухѕΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "ABCEHIJKMOPSTXaeijopcyxsABEZHIKMNOPTYXo");

/// The replacement of a character that the language does not use.
pub(super) fn character(character: char) -> String {
    let (others, letters) = LOOK_ALIKES;
    if let Some(letter) = others.chars().position(|other| other == character).and_then(|at| letters.chars().nth(at)) {
        return format!("this only looks like `{letter}`: it is a letter of another alphabet; write `{letter}`");
    }
    let help = match (replacement(character), character) {
        (Some(help), _) => help,
        (None, '≤') => "write `<=`",
        (None, '≥') => "write `>=`",
        (None, '≠') => "write `!=`",
        (None, '\u{a0}' | '\u{feff}' | '\u{200b}'..='\u{200d}') => {
            "an invisible character: remove it, or write a space"
        }
        (None, control) if control.is_ascii_control() => "a control character: remove it",
        (None, '\u{3001}' | '\u{3002}' | '\u{ff01}'..='\u{ff5e}') => {
            "a full-width character: write the one of ASCII, such as `:` or `,`"
        }
        (None, _) => "the language is written in ASCII; any text is allowed in comments and \"quotes\"",
    };
    help.to_owned()
}

/// Help for a character that has another spelling here; `None` for others.
pub(super) fn replacement(character: char) -> Option<&'static str> {
    CHARACTERS.iter().find(|(characters, _)| characters.contains(character)).map(|(_, help)| *help)
}

fn among(other_languages: &[(&[&str], &'static str)], word: &str) -> Option<&'static str> {
    other_languages.iter().find(|(words, _)| words.contains(&word)).map(|(_, help)| *help)
}
