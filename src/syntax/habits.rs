//! Habits from other languages, and what they are here. Texts for helps; nothing here decides what is right.

/// Words that begin a declaration elsewhere.
const DECLARATIONS: [(&[&str], &str); 11] = [
    (
        &["var", "val", "const", "auto", "define", "set"],
        "write `let n = 4`, or `param n = 4` for what a caller may set",
    ),
    (&["int", "float", "bool", "string"], "write `param n = 4` or `let n = 4`: the value gives the type"),
    (&["arg", "args", "option", "input", "parameter", "params"], "write `param n = 4`"),
    (&["fn", "func", "function", "fun", "proc", "macro"], "write `def f(x -> y) { … }`"),
    (&["tensor", "array", "matrix", "alloc", "malloc", "memory"], "write `buffer x: f32[1024]`"),
    (&["queue", "lane", "thread"], "write `stream s`"),
    (&["main", "run", "program", "loop", "begin"], "write `step { … }`: it holds the operations of one iteration"),
    (&["assert", "require", "check"], "write `expect time > 0s`"),
    (&["measure", "report", "print", "output"], "write `metric rate = bytes / time`"),
    (&["import", "include", "from", "mod", "package"], "a workload is one file in this version"),
    (&["else", "elif", "while"], "statements stand inside `step { … }`"),
];

/// Words that begin a statement elsewhere.
const STATEMENTS: [(&[&str], &str); 6] = [
    (&["elif", "elsif", "elseif", "elseIf"], "write `else if`"),
    (&["while", "do", "loop", "repeat", "foreach"], "write `for i in 0..n { … }`: how often is known before the run"),
    (&["var", "val", "const", "auto", "int", "float", "set"], "write `let n = 4`"),
    (&["return", "yield"], "an output is written, not returned: `def f(x -> y) { map(x + 1 -> y) }`"),
    (&["with", "using", "async", "launch", "spawn"], "write `on s { … }` to run operations on a stream"),
    (
        &["break", "continue", "goto"],
        "leave turns out by `if`, or shorten the range: every turn is known before the run",
    ),
];

/// Units that are spelled in another way here.
const UNITS: [(&[&str], &str); 8] = [
    (&["e", "E"], "an exponent has digits: `1e3`"),
    (&["sec", "secs", "second", "seconds"], "write `s`"),
    (&["msec", "millis"], "write `ms`"),
    (&["usec", "micros", "u"], "write `us`"),
    (&["nsec", "nanos", "n"], "write `ns`"),
    (
        &["k", "K", "M", "G", "T"],
        "a plain number has no unit: write `1_000` or `1e3`; sizes are `KiB`, `MiB`, `KB`, `MB`",
    ),
    (&["min", "h", "hour"], "write it in seconds: `60s`"),
    (&["Gb", "Mb", "Kb", "kb", "gb", "mb", "Gbps", "Mbps"], "there are bytes and no bits: `MB`, `MiB`, `GB/s`"),
];

/// Characters with a spelling of their own here.
const CHARACTERS: [(&str, &str); 13] = [
    ("#", "a comment begins with `//`"),
    (";", "remove it: nothing has to be ended"),
    ("'", "a text stands between double quotes: `\"text\"`"),
    ("`", "a text stands between double quotes: `\"text\"`"),
    ("“”„‘’", "a text stands between straight double quotes: `\"text\"`"),
    ("?", "a choice is written `if c { a } else { b }`"),
    ("^", "a power is `pow(x, 2)`"),
    ("@", "a matrix product is `gemm(a, b)`"),
    ("→", "an arrow is written `->`"),
    ("×·", "write `*`"),
    ("–—−", "write `-`"),
    ("µμ", "a microsecond is written `us`"),
    ("…", "a range is written `0..n`"),
];

/// What to write in place of a word that begins a declaration in some other language.
pub(super) fn declaration(word: &str) -> Option<&'static str> {
    among(&DECLARATIONS, word)
}

/// What to write in place of a word that begins a statement in some other language.
pub(super) fn statement(word: &str) -> Option<&'static str> {
    among(&STATEMENTS, word)
}

/// What to write in place of a unit of other tools.
pub(super) fn unit(unit: &str) -> Option<&'static str> {
    among(&UNITS, unit)
}

/// What to write in place of a character that the language does not use.
pub(super) fn character(character: char) -> &'static str {
    let known = CHARACTERS.iter().find(|(characters, _)| characters.contains(character));
    match (known, character) {
        (Some((_, help)), _) => help,
        (None, '≤') => "write `<=`",
        (None, '≥') => "write `>=`",
        (None, '≠') => "write `!=`",
        (None, '\u{a0}' | '\u{feff}' | '\u{200b}'..='\u{200d}') => {
            "an invisible character: remove it, or write a space"
        }
        (None, _) => "the language is written in ASCII; any text may stand in comments and \"quotes\"",
    }
}

fn among(habits: &[(&[&str], &'static str)], word: &str) -> Option<&'static str> {
    habits.iter().find(|(words, _)| words.contains(&word)).map(|(_, help)| *help)
}
