//! Help for heads of declarations and blocks that could not be parsed.

use super::super::words::{is_word, lead};
use super::Rule;
use super::failure_point::{FailurePoint, help, leading_word};

/// Help for heads of declarations and blocks; `None` if this is no known mistake.
pub(super) fn head(place: &FailurePoint) -> Option<String> {
    let (next, name) = (place.rest.chars().next(), place.word_before());
    match (place.lead(), next) {
        ("on", Some('(')) if name != "on" => {
            let index = place.rest[1..].split(')').next().unwrap_or_default();
            match name {
                _ if index.contains(':') => {
                    Some(format!("a stream has its options where it is declared: `stream {name}({index})`"))
                }
                "after" => Some(format!("write labels without parentheses: `on s after {index} {{ … }}`")),
                _ => Some(format!("write the index of a member in brackets: `on {name}[{index}] {{ … }}`")),
            }
        }
        ("on", Some(c)) if ["on", "stream"].contains(&name) && (c.is_ascii_digit() || c == '"') => {
            help("streams have names: declare `stream s[2]`, and write `on s[0] { … }`")
        }
        ("on", Some(':')) if name == "on" => help("write `on s { … }`, without a colon"),
        (word @ ("for" | "on"), Some('(')) => {
            lead(word, false).map(|lead| format!("write `{}`, without parentheses", lead.form))
        }
        ("on", Some(c)) if place.rule == Rule::on_piece && place.expects("after") && is_word(c) => {
            Some(surplus_word(place))
        }
        ("if" | "for", _) if matches!(place.word(), "then" | "do") && place.rule != Rule::stmt_piece => {
            help("remove it: the block begins with `{`")
        }
        ("for", _) if place.expects("in") && place.word() == "of" => {
            Some(format!("write `{} in {} {{ … }}`", place.before, place.rest[2..].trim()))
        }
        ("for", Some(',')) => help("a loop has one variable: put a second `for` into it"),
        ("for", _) if matches!(place.word(), "step" | "by") => {
            help("a loop counts by one: count the turns, `for i in 0..ceil_div(n, 2)`, and use `2 * i`")
        }
        ("for", _) if place.expects("in") => help("write `for i in 0..4 { … }`"),
        ("kernel", Some(_))
            if place.inside() == Some('(') && (is_c_type(place.word_before()) || place.before.ends_with('*')) =>
        {
            help(
                "a tensor is written `x: f32[n]`, a number `a: f32`, and outputs follow an arrow: `(x: f32[n] -> y: f32[n])`",
            )
        }
        ("on", Some(',')) if place.expects("after") && place.rest[1..].trim_start().starts_with("after") => {
            help("write `on s after a { … }`, without a comma")
        }
        ("on", Some(',')) if place.expects("after") => help("a block runs on one stream: write an `on` for each"),
        ("meta", Some('(')) => help("write facts in braces: `meta { category: \"gemm\" }`"),
        ("mesh", None) if place.expects("=") && place.inside().is_none() => {
            Some(format!("give it a size: `{} = world`", place.before))
        }
        ("mesh", Some('[')) => help("a mesh has a name and a size for each dimension: `mesh dp = 2, tp = 4`"),
        ("buffer", Some(',')) if place.inside().is_none() && place.expects("in") && place.rest.contains(':') => {
            Some(format!(
                "write a `buffer` for each type, `buffer {}`, or the names of one type before its colon",
                place.rest[1..].trim()
            ))
        }
        (_, Some(',')) if place.rule == Rule::decl_piece && place.rest.len() == 1 && place.inside().is_none() => {
            help("remove it: nothing follows it")
        }
        ("buffer", _) if place.before.contains('<') => {
            help("sizes follow the element type in brackets: `buffer x: f32[4, 8]`")
        }
        ("buffer", Some(',')) if place.inside().is_none() && place.expects("in") => {
            Some(format!("the space of a buffer follows `in`, its contents `=`: `{} in pinned = zeros`", place.before))
        }
        ("buffer", None) if place.before.ends_with(',') => {
            let names = place.before.trim_end_matches(',');
            Some(format!("write a name after `,`, or the type: `{names}: f32[1024]`"))
        }
        ("on", None) if place.word_before() == "on" => help("write the stream: `on s { … }`"),
        ("step" | "setup" | "teardown", Some(c)) if place.expects("(") && is_word(c) => {
            Some(format!("remove it: a `{}` has no name", place.lead()))
        }
        ("draw", _) if place.expects("~") => help("write a distribution after `~`: `draw load[4] ~ uniform(1, 64)`"),
        ("draw", _) if place.before.ends_with('~') => help("name a distribution: `draw load[4] ~ uniform(1, 64)`"),
        ("stream", Some(')')) if place.inside() == Some('(') && !name.is_empty() => {
            let option = if name.starts_with(|c: char| c.is_ascii_digit()) { "units" } else { "priority" };
            Some(format!("an option has a name: `({option}: {name})`"))
        }
        ("stream", Some(_)) if place.before.ends_with('(') => {
            let value = place.rest.split([',', ')']).next().unwrap_or_default().trim();
            Some(format!("an option has a name: `(priority: {value})`"))
        }
        ("stream", Some(',')) if place.inside().is_none() => {
            help("declare each by itself, `stream a` and `stream b`, or a family: `stream s[2]`")
        }
        ("metric", _) if place.inside() == Some('[') && (place.expects("in") || place.before.ends_with('[')) => {
            help("a family has a figure for each value: `metric rate[i in 0..4] = busy(f[i])`")
        }
        ("metric", Some(',')) if place.inside() == Some('[') && !place.before.contains('=') => {
            help("a family has one variable: take a family for each value of the other")
        }
        ("param" | "let" | "metric", Some(_))
            if place.expects("=") && !place.word().is_empty() && !place.rest.contains('=') =>
        {
            Some(format!("write a value after `=`: `{} {name} = {}`", place.lead(), place.rest.trim_end()))
        }
        ("metric", Some(_)) if place.expects("=") && !place.word().is_empty() => {
            Some(format!("a name is one word: `metric {name}_{} = …`", place.word()))
        }
        ("param" | "let", Some(_)) if place.expects("=") && !place.word().is_empty() => {
            Some(format!("write `{} {} = …`: the value gives the type", place.lead(), place.word()))
        }
        ("param" | "let" | "metric", None) if place.expects("=") => {
            let value = if place.lead() == "metric" { "bytes / time" } else { "4" };
            Some(format!("give it a value: `{} {name} = {value}`", place.lead()))
        }
        // The order of C: `buffer f32 x[64]`.
        ("buffer", _) if place.expects(":") && !place.word().is_empty() && is_type(place.word_before()) => {
            let sizes = place.rest[place.word().len()..].trim();
            let sizes =
                if sizes.starts_with('[') && sizes.find(']') == Some(sizes.len() - 1) { sizes } else { "[1024]" };
            Some(format!(
                "write the type after the name and a colon: `buffer {}: {}{sizes}`",
                place.word(),
                place.word_before()
            ))
        }
        ("buffer", _) if place.expects(":") && place.inside().is_none() => {
            let ty = place.rest.split(" =").next().unwrap_or("").split(" in ").next().unwrap_or("").trim_end();
            let ty = if is_type(ty) { ty } else { "f32[1024]" };
            Some(format!("write its type after a colon: `{}: {ty}`", place.before))
        }
        ("param" | "let", Some(',')) if place.inside().is_none() && place.rest.contains('=') => {
            Some(format!("declare each by itself: `{} {}`", place.lead(), place.rest[1..].trim()))
        }
        ("param", Some(',')) if place.inside() == Some('(') && place.before.contains(" in (") => {
            help("write allowed values in brackets, `in [4, 8]`, or a range, `in 1..=8`")
        }
        ("param", Some(',')) if place.inside().is_none() && place.expects("*") => {
            help("write allowed values in brackets, `in [4, 8]`, and a single range without, `in 1..=8`")
        }
        ("param" | "let" | "metric" | "expect", Some(',')) if place.inside().is_none() => {
            help("remove it: declarations need no separator")
        }
        ("preset", _) if place.expects("{") => Some(format!("write `preset {name} {{ n = 4 }}`")),
        ("def", _) if place.expects("(") && place.inside().is_none() => {
            Some(format!("write `def {name}(x -> y) {{ … }}`"))
        }
        _ => None,
    }
}

/// Help for a word after the stream of a block.
fn surplus_word(place: &FailurePoint) -> String {
    let (before, word, rest) = (place.before, place.word(), place.rest.trim_end());
    let behind = rest[word.len()..].trim_start();
    match word {
        _ if before == "on stream" => format!("write `on {rest} {{ … }}`: the name of a stream suffices"),
        "wait" | "waits" | "depends" | "await" | "needs" if behind.starts_with(is_word) => {
            format!("write `{before} after {behind} {{ … }}`")
        }
        _ if word == place.word_before() => "remove it: a block names its stream once".to_owned(),
        _ if rest
            .split(',')
            .all(|name| name.trim().split('[').next().is_some_and(|name| name.chars().all(is_word))) =>
        {
            format!("remove `{rest}`, or write `{before} after {rest} {{ … }}` if the block waits for an operation")
        }
        _ => format!("remove `{rest}`: a block names its stream, and `after` the operations that it waits for"),
    }
}

/// True for a word that begins a parameter of a function in C.
fn is_c_type(word: &str) -> bool {
    ["const", "float", "double", "int", "long", "char", "unsigned", "half", "size_t", "void", "bool"].contains(&word)
}

/// True if a text is an element type, with or without sizes.
pub(super) fn is_type(text: &str) -> bool {
    let behind = text[leading_word(text).len()..].trim_end();
    let sizes = behind.is_empty() || (behind.starts_with('[') && behind.find(']') == Some(behind.len() - 1));
    crate::base::DType::from_name(leading_word(text)).is_some() && sizes
}
