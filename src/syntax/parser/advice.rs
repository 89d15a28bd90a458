//! Help for code that could not be parsed: recognizes common mistakes and says what to type.

use super::super::other_languages;
use super::super::words::{self, WordRole, is_word, lead};
use super::Rule;
use super::failure_point::{FailurePoint, help, leading_word};
use super::heads::{head, is_type};
use super::names::{joined, numbered};
use super::ranges::slice;
use super::reported::NO_NAME;

/// A help for the mistake; `None` if it is not recognized. The first function that recognizes it wins.
pub(super) fn advice(place: &FailurePoint) -> Option<String> {
    let subjects = [
        reserved, joined, number, slice, arrow, equals, colon, operator, head, choice, comma, numbered, missing, stray,
    ];
    subjects.iter().find_map(|subject| subject(place))
}

/// True if a text is a name with indices and fields.
fn is_path(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| is_word(c) || "[]. ,".contains(c))
}

/// True if a text begins with a word and its parentheses.
fn is_word_call(text: &str) -> bool {
    let word = leading_word(text);
    !word.is_empty() && text[word.len()..].starts_with('(')
}

fn reserved(place: &FailurePoint) -> Option<String> {
    let no_name = |word: &str| Some(format!("`{word}` {NO_NAME}: write another, such as `my_{word}`"));
    let word = place.word();
    if place.rule == Rule::stmt_piece && place.before.ends_with(':') && lead(word, false).is_some() {
        return help("a label names one operation: `phase load { … }` names a block");
    }
    if word == "and" && place.lead() == "on" {
        return help("labels have commas between them: `on s after a, b { … }`");
    }
    if word == "when" && place.rule == Rule::stmt_piece && place.inside() == Some('(') && place.after_value() {
        return help("`when` follows the rank of a copy: `copy(x -> y at 1 when rank == 0)`");
    }
    if word == "else" && place.before.is_empty() {
        return help("an `else` follows the block of an `if`: `if n > 1 { … } else { … }`");
    }
    // A clause such as `at` follows a value; where a value begins, or before the colon of a label, it is meant as a name.
    let after = place.rest[word.len()..].trim_start();
    let index = after.strip_prefix('[').and_then(|index| index.split_once(']'));
    let is_label = index.map_or(after, |(_, after)| after).starts_with(':');
    let begins_value = place.before == "let" || !(place.before.is_empty() || place.after_value());
    if words::role(word) == Some(WordRole::Clause) && (is_label || begins_value) {
        return no_name(word);
    }
    match word {
        "on" if place.rule == Rule::expr_piece => help("a condition is `true` or `false`: write `true`"),
        "at" if place.rule == Rule::stmt_piece => {
            help("write the other rank after the output: `copy(x -> y at rank + 1)`")
        }
        "over" if place.rule == Rule::stmt_piece => {
            let group = Some(leading_word(after)).filter(|group| !group.is_empty()).unwrap_or("dp");
            Some(format!("write the group after the parentheses: `all_reduce(x -> x) over {group}`"))
        }
        "after" if place.rule == Rule::stmt_piece => help("`after` follows a stream: `on s after a { … }`"),
        "in" if place.rule == Rule::if_piece || place.lead() == "not" => {
            help("a condition has no `in`: write `n == 1 or n == 2`")
        }
        "in" if place.lead() == "param" && place.expects("=") => {
            let name = place.word_before();
            let allowed = place.rest.split('=').next().unwrap_or("").trim_end();
            let default = place.rest.split_once('=').map_or("4", |(_, default)| default.trim());
            Some(format!("write the default before `in`: `param {name} = {default} {allowed}`"))
        }
        "in" if place.lead() == "metric" && place.expects("\"") => {
            help("write the unit after the expression, in quotes: `metric rate = bytes / time \"GB/s\"`")
        }
        "on" if place.lead() == "step" => help("`on s { … }` belongs inside the step: `step { on s { … } }`"),
        "for" if place.inside() == Some('[') && place.expects("*") => {
            help("operators work on all members of a list: `[0, 1, 2] * 2`; a loop belongs in the step")
        }
        "in" if place.lead() == "buffer" && place.inside() == Some('[') && !place.before.contains(':') => {
            help("the members of a family share one type, and have an index from 0: `buffer w[2]: f32[8]`")
        }
        "in" if place.lead() == "buffer" && place.expects("*") => {
            help("write the space before `=`: `buffer x: f32[8] in pinned = zeros`")
        }
        "else" | "if" | "for" | "on" | "let" if !place.before.ends_with(word) && place.expects("*") => None,
        word if words::is_reserved(word) => no_name(word),
        _ => None,
    }
}

fn number(place: &FailurePoint) -> Option<String> {
    // In a file, the lexer has reported such a character; a value of `--set` is parsed without it.
    if let Some(character) = place.rest.chars().next().and_then(other_languages::replacement) {
        return help(character);
    }
    let digits = leading_word(place.rest.get(1..).unwrap_or(""));
    let begins_with_digit = digits.starts_with(|c: char| c.is_ascii_digit());
    let unit = place.word();
    if place.after_digit() && crate::base::units::unit(unit).is_some() {
        let number = place.word_before();
        let per_second = if place.rest[unit.len()..].starts_with("/s") { "/s" } else { "" };
        return Some(format!("write a unit directly after its number: `{number}{unit}{per_second}`"));
    }
    if place.before.ends_with('%')
        && place.rest.starts_with('%')
        && place.rest[1..].trim_start().starts_with(|c: char| c.is_ascii_digit())
    {
        return help("a remainder has one sign: `5 % 2`");
    }
    if let Some(number) =
        place.before.strip_suffix(" %").filter(|number| number.ends_with(|c: char| c.is_ascii_digit()))
    {
        let number = &number[number.trim_end_matches(|c: char| is_word(c) || c == '.').len()..];
        return Some(format!("write a unit directly after its number: `{number}%`"));
    }
    if place.lead() == "buffer" && place.inside() == Some('[') && place.before.ends_with('x') {
        return help("sizes have commas between them: `f32[4, 8]`");
    }
    if place.after_digit() && place.rest.starts_with(',') && digits.len() == 3 && begins_with_digit {
        return Some(format!("digits are grouped by `_`: `{}_{digits}`", place.word_before()));
    }
    if place.rest.starts_with('.') && begins_with_digit && !place.before.ends_with('.') {
        return Some(format!("a number begins with a digit: `0.{digits}`"));
    }
    let whole = place.before.strip_suffix('.').filter(|whole| whole.ends_with(|c: char| c.is_ascii_digit()));
    if let Some(whole) = whole.filter(|_| !place.rest.starts_with('.')) {
        let kept = whole.trim_end_matches(is_word);
        return Some(format!("a point has digits on both sides: `{}.0`", &whole[kept.len()..]));
    }
    (place.word_before() == "0x" || place.word_before() == "0b")
        .then(|| "numbers are decimal: `16`, not `0x10`".to_owned())
}

fn arrow(place: &FailurePoint) -> Option<String> {
    if !place.rest.starts_with("->") {
        return None;
    }
    match place.rule {
        Rule::def_piece => help("write outputs inside the parentheses: `def f(x -> y) { … }`"),
        Rule::stmt_piece if place.inside().is_none() => {
            let output = place.rest[2..].trim();
            let call = place.before.strip_suffix(')').filter(|_| is_path(output));
            Some(match call {
                Some(call) => format!("write outputs inside the parentheses: `{call} -> {output})`"),
                None => "write outputs inside the parentheses: `copy(x -> y)`".to_owned(),
            })
        }
        _ => None,
    }
}

fn equals(place: &FailurePoint) -> Option<String> {
    if !place.rest.starts_with('=') {
        return None;
    }
    let (before, lead) = (place.before, place.lead());
    if place.rule == Rule::def_piece {
        return help("an argument has no value of its own: each call gives one, `f(4)`");
    }
    if before.ends_with("==") {
        return help("values are compared by `==`");
    }
    if place.rest.starts_with("=<") {
        return help("write `<=`");
    }
    if place.rest.starts_with("=>") {
        return help(if place.inside() == Some('(') {
            "an arrow is written `->`: `copy(x -> y)`"
        } else {
            "write `>=`"
        });
    }
    if matches!(place.inside(), Some('(' | '{')) && place.expects(":") {
        let value = place.rest[1..].split([',', ')', '}', '(', '[']).next().unwrap_or_default();
        let value = value.split("->").next().unwrap_or_default().trim();
        let value = match value {
            "" => "…",
            "True" => "true",
            "False" => "false",
            value => value,
        };
        let inputs = if place.rule == Rule::stmt_piece { "; inputs have no names" } else { "" };
        return Some(format!("an option has a colon: `{}: {value}`{inputs}", place.word_before()));
    }
    if before.ends_with(['+', '-', '*', '/']) && place.rule == Rule::stmt_piece && place.inside().is_some() {
        return help("remove it: an operation writes to what follows its arrow, `map(x + 1 -> x)`");
    }
    if before.ends_with(['+', '-', '*', '/']) && matches!(lead, "let" | "param") {
        return help("a value never changes: give the new one a name of its own, `let m = n + 1`");
    }
    match lead {
        "let" if before == "let" => help("write a name after `let`: `let n = 4`"),
        "stream" if before != "stream" => Some(format!("write options in parentheses: `{before}(priority: high)`")),
        "for" => help("write `for i in 0..4 { … }`"),
        "buffer" => {
            help("write the type after a colon, and the initial contents after `=`: `buffer x: f32[8] = zeros`")
        }
        _ if place.rule == Rule::stmt_piece && place.inside().is_none() => {
            let call = place.rest[1..].trim();
            Some(match call.strip_suffix(')') {
                Some(inside) if is_word_call(call) && !call.contains("->") => {
                    format!(
                        "write `{lead}: {call}` to give a result a name, `{inside} -> {lead})` to write to a buffer"
                    )
                }
                _ if is_increment(call, lead) => counted(call, lead),
                _ => format!(
                    "write `map(x + 1 -> {lead})` to write to a buffer; a number never changes: give the new one a name of \
                     its own, `let m = n + 1`"
                ),
            })
        }
        _ if place.expects("==") => help("values are compared by `==`"),
        _ => None,
    }
}

/// True for `i + 1` and `i - 1`, where `name` is `i`.
fn is_increment(sum: &str, name: &str) -> bool {
    let step = sum.strip_prefix(name).map(str::trim_start).and_then(|rest| rest.strip_prefix(['+', '-']));
    step.is_some_and(|step| step.trim_start().parse::<u64>().is_ok())
}

/// Help for a number that a statement increases.
fn counted(sum: &str, name: &str) -> String {
    format!(
        "a number never changes: a loop counts, `for {name} in 0..n {{ … }}`, and `let m = {sum}` names another number; \
         `map({sum} -> {name})` changes a buffer"
    )
}

fn colon(place: &FailurePoint) -> Option<String> {
    if !place.rest.starts_with(':') {
        return None;
    }
    let name = place.word_before();
    match place.lead() {
        _ if place.rule == Rule::stmt_piece
            && place.before.ends_with(':')
            && place.is_joined
            && !place.rest[1..].contains(':') =>
        {
            let module = place.before.trim_end_matches(':');
            Some(format!("a point precedes the name in a module: `{module}.{}`", place.rest[1..].trim_end()))
        }
        lead if place.rule == Rule::stmt_piece && place.inside().is_none() && lead != "let" => {
            help("an operation has one label")
        }
        "mesh" if place.expects("=") => {
            Some(format!("a mesh has `=`: `{} ={}`", place.before, place.rest[1..].replace(':', " =")))
        }
        "param" if place.before.contains(" in ") => {
            let (first, last) = (place.before.rsplit(' ').next().unwrap_or_default(), place.rest[1..].trim());
            Some(format!("a range of allowed values is written `in {first}..={last}`"))
        }
        _ if place.inside() == Some('(') && place.expects(",") => Some(match place.callee() {
            Some(callee) if place.rule == Rule::stmt_piece => format!(
                "the arguments of a function have no names: remove `{name}:`; an operation is written above, with a label: \
                 `t: {callee}(…)`"
            ),
            _ => format!("the arguments of a function have no names: remove `{name}:`"),
        }),
        "preset" if place.inside().is_none() => {
            Some(format!("write `preset {name} {{{} }}`", place.rest[1..].trim_end().trim_end_matches('}')))
        }
        "meta" if place.inside().is_none() => help("remove the colon: `meta { category: \"gemm\" }`"),
        "stream" if place.inside().is_none() => {
            Some(format!("write options in parentheses: `{}(priority: high)`", place.before))
        }
        "use" => Some(format!(
            "a point stands between the names: `{}.{}`",
            place.before,
            place.rest.trim_matches([':', ' '])
        )),
        "buffer" if place.before.contains(" in ") => {
            help("a buffer is on the device of its rank: `in device`, the default")
        }
        "param" | "let" if place.before.contains('=') => {
            Some(format!("the value gives the type: remove `{}`", place.rest.trim_end()))
        }
        "preset" => Some(format!("a preset has `=`: `{name} = …`")),
        "param" | "let" | "metric" => {
            let value = place.rest.split_once('=').map_or(&place.rest[1..], |(_, value)| value);
            let value = value.trim_start().lines().next().unwrap_or_default().trim_end();
            Some(format!("write the value after `=`; it determines the type: `{} {name} = {value}`", place.lead()))
        }
        _ => None,
    }
}

fn operator(place: &FailurePoint) -> Option<String> {
    let (before, rest) = (place.before, place.rest);
    match rest.chars().next()? {
        '!' => help("a condition is negated by `not`"),
        '>' if before.ends_with('<') => help("write `!=`"),
        '*' if before.ends_with('*') => help("a power is `pow(x, 2)`"),
        '<' if rest.starts_with("<<<") => {
            let (kernel, call) = (place.word_before(), rest.split_once(">>>").map_or("(x -> y)", |(_, call)| call));
            Some(format!("write `{kernel}{}`: the declaration of the kernel has its `grid` and `block`", call.trim()))
        }
        '<' | '>' if before.ends_with(rest.get(..1)?) => help("a power of two is `pow(2, 20)`"),
        '+' | '-' | '*' | '/' if rest[1..].starts_with('=') && place.rule == Rule::stmt_piece => {
            let name = place.word_before();
            let value = rest[2..].trim();
            let value = if value.is_empty() || value.contains('\n') { "1" } else { value };
            let sum = format!("{name} {} {value}", &rest[..1]);
            Some(match is_increment(&sum, name) {
                true => counted(&sum, name),
                false => format!(
                    "an operation writes to memory: `map({sum} -> {name})`; a number never changes: give the new one a name of \
                     its own, `let m = {sum}`"
                ),
            })
        }
        '+' if place.expects_value() => help("remove it: a number has no sign `+`"),
        _ => None,
    }
}

fn choice(place: &FailurePoint) -> Option<String> {
    const CHOICE: &str = "write a choice between values as `if c { a } else { b }`";
    if place.word() == "if" && place.expects("when") {
        return help("the condition of a copy to another rank follows `when`: `copy(x -> y at 1 when rank == 0)`");
    }
    if place.word() == "if" && place.expects("*") {
        return Some(CHOICE.to_owned());
    }
    let inside = place.rule != Rule::if_piece && place.before.split(|c| !is_word(c)).any(|word| word == "if");
    (inside && (place.expects("else") || place.expects("{"))).then(|| CHOICE.to_owned())
}

/// Help for two values in a row, which a comma or an arrow should separate; `None` if this is another mistake.
fn comma(place: &FailurePoint) -> Option<String> {
    let next = place.rest.chars().next()?;
    if !place.expects(",") || !(is_word(next) || next == '"') {
        return None;
    }
    let behind = place.rest[place.word().len()..].trim_start();
    let word = place.word();
    match place.inside()? {
        '(' if word == "to" && place.rule == Rule::stmt_piece && place.before.contains("->") => {
            help("the other rank follows `at`: `copy(x -> y at 1)`")
        }
        _ if next == '"' && place.word_before() == "f" => {
            help("a label is written without quotes, with its index: `layer[0]`")
        }
        _ if place.word_before() == "lambda" => help("an expression needs no `lambda`: `map(x + 1 -> y)`"),
        _ if place.word_before() == "phase" && !word.is_empty() => {
            Some(format!("a phase goes by its name alone: write `{word}`"))
        }
        _ if !word.is_empty() && behind.starts_with([':', '=']) => Some(format!("write a comma before `{word}`")),
        '(' if place.rule == Rule::stmt_piece => {
            help("write a comma between inputs, `x, y`, or an arrow before an output, `x -> y`")
        }
        _ => help("write a comma between the two"),
    }
}

/// Help for a missing token; `None` if none is known to be missing.
fn missing(place: &FailurePoint) -> Option<String> {
    let at_end = place.rest.is_empty();
    let behind = place.before.rsplit(char::is_whitespace).next().unwrap_or("");
    if matches!(place.inside(), Some('(' | '{')) && place.tokens == [":"] {
        return Some(format!("an option has a colon and a value: `{}: …`", place.word_before()));
    }
    // The parser treated a declaration as a part of the expression above it.
    let begun = place.word_before();
    if place.expects("*") && lead(begun, true).is_some() && begun != place.lead() {
        return Some(format!("`{begun}` begins a declaration: the text before it is not complete"));
    }
    match place.rule {
        Rule::if_piece if at_end && behind == "if" => help("write a condition: `if n > 1 { … }`"),
        Rule::stmt_piece if lead(place.before, false).is_some_and(|lead| lead.has_block) => {
            lead(place.before, false).map(|lead| format!("write `{}`", lead.form))
        }
        Rule::stmt_piece if place.rest.starts_with('{') && lead(place.lead(), true).is_some() => {
            Some(format!("a `{}` is declared outside of the step: move it out", place.lead()))
        }
        Rule::stmt_piece if place.rest.starts_with('{') && place.word_before() == "group" => help(
            "a `group` has no label of its own: label an operation inside, `group { swap: send(x, to: 1)  … }`; the first \
             label stands for the whole",
        ),
        Rule::stmt_piece if place.rest.starts_with('{') && other_languages::statement(place.lead()).is_some() => {
            other_languages::statement(place.lead()).map(str::to_owned)
        }
        Rule::stmt_piece if place.rest.starts_with('{') => Some(format!(
            "`{}` opens no block; a statement that does begins with {}",
            place.lead(),
            words::one_of(words::leads(false).iter().filter(|lead| lead.has_block).map(|lead| lead.word))
        )),
        Rule::stmt_piece if place.expects("(") && other_languages::statement(place.word_before()).is_some() => {
            other_languages::statement(place.word_before()).map(str::to_owned)
        }
        Rule::stmt_piece if place.expects("(") && statement_of_python(place).is_some() => statement_of_python(place),
        Rule::stmt_piece if place.expects("(") && place.rest.starts_with('[') && place.before.contains(':') => {
            let rest = place.rest.trim_end();
            if !rest.contains('\n') && !after_brackets(rest).is_empty() {
                return Some(computed(place.before, rest));
            }
            let first_line = rest.lines().next().unwrap_or_default().trim_end_matches([' ', ',']);
            let slice = format!("{}{first_line}", place.word_before());
            if is_type(&slice) {
                let name = place.before.split(':').next().unwrap_or_default().trim_end();
                return Some(format!("memory is declared by `buffer`: `buffer {name}: {slice}`"));
            }
            Some(format!(
                "an operation has parentheses: `copy({slice} -> y)` copies a slice, which other operations read in place"
            ))
        }
        Rule::stmt_piece if place.rest.starts_with(',') && place.expects("(") && names_of_outputs(place).is_some() => {
            names_of_outputs(place)
        }
        Rule::stmt_piece
            if place.expects("(")
                && !place.expects_value()
                && place.word_before().starts_with(|c: char| !c.is_ascii_digit()) =>
        {
            Some(format!("an operation has parentheses: `{}(…)`", place.word_before()))
        }
        _ if place.expects("*") && place.rest.starts_with('"') && matches!(place.lead(), "param" | "let") => {
            let text = place.rest[1..].split('"').next().unwrap_or_default();
            Some(format!("describe a declaration in a line above it: `/// {text}`"))
        }
        _ if place.expects("*") && place.rest.starts_with(|c| is_word(c) || c == '"') => {
            help("the text before it is complete: remove it, or write an operator between the two")
        }
        Rule::stmt_piece if at_end && place.before.ends_with(':') => {
            Some(format!("write an operation after the label: `{} nop()`", place.before))
        }
        _ if at_end && behind.is_empty() => help("write a value, such as `4`"),
        _ if at_end && place.expects_value() => Some(format!("write a value after `{behind}`")),
        _ if place.before == place.lead() && place.expects("a..z") && !place.expects_value() => {
            Some(format!("write a name after `{}`", place.lead()))
        }
        _ => None,
    }
}

/// Help for a statement of one line that calls no operation: an arrow to the left, a formatted text, or arithmetic. `None` for
/// another one.
fn statement_of_python(place: &FailurePoint) -> Option<String> {
    if place.inside().is_some() || place.rest.contains('\n') {
        return None;
    }
    let (before, rest) = (place.before, place.rest.trim_end());
    if let Some(call) = rest.strip_prefix("<-").and_then(|call| call.trim().strip_suffix(')')) {
        return Some(format!("an arrow points to the output: `{call} -> {before})`"));
    }
    match rest.chars().next()? {
        '"' => help("a label is a name, with an index in a family: `layer[i]: …`"),
        '+' | '-' | '*' | '/' => Some(computed(before, rest)),
        _ => None,
    }
}

/// Text after the brackets that a text begins with; empty if they do not close.
fn after_brackets(text: &str) -> &str {
    let mut depth = 0;
    let close = text.find(|sign: char| {
        depth += i32::from(sign == '[') - i32::from(sign == ']');
        depth == 0
    });
    close.map_or("", |close| text[close..].strip_prefix(']').unwrap_or_default().trim_start())
}

/// Help for arithmetic in the place of a call, which may follow a label. `rest` is the text after `before`.
fn computed(before: &str, rest: &str) -> String {
    let (label, before) = match before.split_once(':') {
        Some((label, before)) => (format!("{}: ", label.trim_end()), before.trim_start()),
        None => (String::new(), before),
    };
    let space = if rest.starts_with('[') { "" } else { " " };
    let arrow = if rest.contains("->") || !label.is_empty() { "" } else { " -> y" };
    format!("`map` computes an expression: `{label}map({before}{space}{rest}{arrow})`")
}

/// Help for an unexpected token, if no other help applies; `None` for an unknown mistake.
fn stray(place: &FailurePoint) -> Option<String> {
    let found = place.found;
    if place.lead() == "buffer" && found == "~" {
        return help(
            "the values of a buffer follow `=`: `= random(1)`; `draw n ~ uniform(1, 8)` is a number for each iteration",
        );
    }
    if place.before == "use" && found == "{" {
        return help("a file is used as a whole: `use \"lib.aorta\"`, and then `lib.name(…)`");
    }
    if place.lead() == "require" && found == "," {
        return help("write the message after the condition: `require n > 4 \"n is above 4\"`");
    }
    if found == "," && place.inside() == Some('(') && place.callee().is_none() {
        let (open, items) = (place.before.rfind('(')? + 1, place.rest.split(')').next()?);
        return Some(format!("a list has brackets: `[{}{items}]`", place.before[open..].trim_start()));
    }
    if place.lead() == "on" && found == "->" && place.inside().is_none() {
        return help(
            "a block runs on one stream: `on a { f: nop() }`, and `on b after f { … }` for a block on another that waits for `f`",
        );
    }
    if found == "," && place.before.split_whitespace().rev().nth(1) == Some("over") {
        return Some(format!("write several factors of a mesh in brackets: `over [{}, …]`", place.word_before()));
    }
    if place.word_before() == "over" && !found.is_empty() {
        return help("a group is a factor of the mesh: `mesh dp = world / 4, tp = 4`, and `over tp`");
    }
    if found == "{" && place.word_before() == "in" {
        let values = place.rest[1..].split('}').next().unwrap_or("").trim();
        return Some(format!("write allowed values in brackets: `in [{values}]`"));
    }
    if found == "]"
        && place.before.ends_with('[')
        && is_type(place.before[..place.before.len() - 1].rsplit(' ').next()?)
    {
        return help("a tensor without dimensions is its element type alone: `f32`");
    }
    if place.inside() == Some('(')
        && let Some(before) = place.before.strip_suffix(':')
    {
        let option = &before[before.trim_end_matches(is_word).len()..];
        return Some(format!("write a value after `{option}:`"));
    }
    let name = place.expects("a..z");
    match place.tokens {
        _ if found.is_empty() => None,
        _ if place.rule == Rule::stmt_piece && found == "," && place.inside().is_none() => {
            help("remove it: statements need no separator")
        }
        [only] if !name && !["over", "at", "like"].contains(&only.as_str()) && !only.contains("..") => {
            Some(format!("write `{only}` before `{found}`"))
        }
        _ if place.expects_value() && place.before.ends_with(['+', '-', '*', '/', '%']) => {
            Some(format!("write a value after `{}`", &place.before[place.before.len() - 1..]))
        }
        _ if place.expects_value() => Some(format!("write a value before `{found}`, or remove what is too much")),
        _ if name && !place.expects("0..9") => {
            Some(format!("write a name before `{found}`, or remove what is too much"))
        }
        _ => Some(format!("remove `{found}`, or look for what is missing before it")),
    }
}

/// Help for a statement that begins with several names, such as `a, b: top_k(x, k: 2)`; `None` for any other.
fn names_of_outputs(place: &FailurePoint) -> Option<String> {
    let end = place.rest.find([':', '='])?;
    let (names, call) = (place.rest[..end].trim(), place.rest[end + 1..].trim());
    let are_names = names.chars().all(|c| is_word(c) || c == ',' || c == ' ');
    (are_names && call.ends_with(')') && !call.contains('\n')).then(|| {
        format!(
            "one label stands for all outputs: write `r: {call}`, and read them as members of `r`, such as `r.values`"
        )
    })
}
