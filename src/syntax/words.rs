//! The keywords and signs of the language, each defined once for the splitter, the parser, the formatter and the
//! messages. `grammar/aorta.pest` is the definition; the tests below check that both agree.

use super::grammar::Rule;

/// A keyword that begins a declaration or a statement.
#[derive(Debug)]
pub struct Lead {
    pub word: &'static str,
    pub keyword: Keyword,
    /// True if a block of statements follows.
    pub has_block: bool,
    /// The grammar rule of all of it, or of the head before its block.
    pub rule: Rule,
    /// Name of the declaration or statement in messages: `the condition`.
    pub what: &'static str,
    /// Example for help texts; empty for a declaration that this version does not support.
    pub form: &'static str,
}

/// Position at which a word is a keyword. Elsewhere it is a name, unless it is reserved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keyword {
    /// The beginning of a declaration or statement.
    Leading,
    /// Any position: no expression contains the word, so an unfinished expression ends before it.
    Everywhere,
    /// The beginning of a statement, before a name: `phase load {`. If an expression expects an operand here, the word
    /// ends it only if this sign follows the name.
    BeforeName(&'static str),
    /// The beginning of a statement, before a `{`.
    BeforeBlock,
}

const fn decl(word: &'static str, form: &'static str) -> Lead {
    let (rule, what) = (Rule::decl_piece, "the declaration");
    Lead { word, keyword: Keyword::Leading, has_block: false, rule, what, form }
}

const fn section(word: &'static str, form: &'static str) -> Lead {
    Lead { has_block: true, rule: Rule::step_piece, what: "the head", ..decl(word, form) }
}

const fn stmt(word: &'static str, keyword: Keyword, form: &'static str) -> Lead {
    Lead { word, keyword, has_block: false, rule: Rule::stmt_piece, what: "the statement", form }
}

const fn block(word: &'static str, keyword: Keyword, rule: Rule, what: &'static str, form: &'static str) -> Lead {
    Lead { word, keyword, has_block: true, rule, what, form }
}

/// Declarations, which are at the top level of a file.
const DECLARATION_LEADS: [Lead; 17] = [
    decl("meta", "meta { category: \"gemm\" }"),
    decl("param", "param n = 4"),
    Lead { keyword: Keyword::Everywhere, ..decl("let", "let n = 4") },
    decl("preset", "preset small { n = 4 }"),
    decl("stream", "stream s"),
    decl("buffer", "buffer x: f32[1024]"),
    decl("mesh", "mesh dp = 2"),
    decl("kernel", "kernel k(x: f32[n] -> y: f32[n]) { … }"),
    Lead { rule: Rule::def_piece, what: "the head of the `def`", ..section("def", "def f(x -> y) { … }") },
    decl("use", "use \"blocks.aorta\""),
    decl("draw", "draw load[4] ~ uniform(1, 64)"),
    decl("require", "require world > 1"),
    section("setup", ""),
    section("step", "step { … }"),
    section("teardown", ""),
    decl("metric", "metric rate = bytes / time"),
    decl("expect", "expect time > 0s"),
];

/// Statements, which are in blocks, except operations.
const STATEMENT_LEADS: [Lead; 7] = [
    block("for", Keyword::Everywhere, Rule::for_piece, "the head of the loop", "for i in 0..4 { … }"),
    block("if", Keyword::Leading, Rule::if_piece, "the condition", "if n > 1 { … }"),
    block("on", Keyword::Everywhere, Rule::on_piece, "the head of the block", "on s { … }"),
    stmt("let", Keyword::Everywhere, "let n = 4"),
    block("phase", Keyword::BeforeName("{"), Rule::phase_piece, "the head of the phase", "phase load { … }"),
    block("group", Keyword::BeforeBlock, Rule::group_piece, "the head of the group", "group { … }"),
    stmt("buffer", Keyword::BeforeName(":"), "buffer x: f32[1024]"),
];

/// An operation: the statement without a keyword, which begins with its name or label.
pub const OPERATION: Lead = stmt("", Keyword::Leading, "nop()");

/// Role of a word inside a declaration or statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WordRole {
    /// The word is a value itself.
    Value,
    /// The word precedes a value.
    Before,
    /// A value or a block precedes the word, and another one follows.
    Between,
    /// A value precedes the word, which begins a clause about the value: `when n > 1`.
    Clause,
    /// The word precedes a name, which it declares.
    Declares,
}

/// Words with a meaning inside declarations and statements. All but the last are reserved.
const INNER: [(&str, WordRole); 16] = [
    ("after", WordRole::Clause),
    ("and", WordRole::Between),
    ("at", WordRole::Clause),
    ("else", WordRole::Between),
    ("false", WordRole::Value),
    ("for", WordRole::Declares),
    ("if", WordRole::Before),
    ("in", WordRole::Clause),
    ("let", WordRole::Declares),
    ("not", WordRole::Before),
    ("on", WordRole::Before),
    ("or", WordRole::Between),
    ("over", WordRole::Clause),
    ("true", WordRole::Value),
    ("when", WordRole::Clause),
    ("like", WordRole::Before),
];

/// Words that begin a declaration.
pub const DECLARATIONS: [&str; 17] = words(&DECLARATION_LEADS);

/// Words that begin a statement other than an operation.
pub const STATEMENTS: [&str; 7] = words(&STATEMENT_LEADS);

const fn words<const N: usize>(leads: &[Lead; N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut index = 0;
    while index < N {
        words[index] = leads[index].word;
        index += 1;
    }
    words
}

/// Words that cannot be names.
pub const RESERVED: [&str; 15] = {
    let mut words = [""; 15];
    let mut index = 0;
    while index < words.len() {
        words[index] = INNER[index].0;
        index += 1;
    }
    words
};

/// Operators and separators. A sign comes before its own prefixes. The parser rejects a lone `!` with a help.
pub const SIGNS: [&str; 20] =
    ["..=", "..", "->", "==", "!=", "<=", ">=", "=", "!", "<", ">", "+", "-", "*", "/", "%", ".", ",", ":", "~"];

/// Opening brackets, each with its closing one.
pub const BRACKETS: [(u8, u8); 3] = [(b'(', b')'), (b'[', b']'), (b'{', b'}')];

/// The declarations (`top`) or the statements of a block.
pub fn leads(top: bool) -> &'static [Lead] {
    if top { &DECLARATION_LEADS } else { &STATEMENT_LEADS }
}

/// The declaration (`top`) or statement that begins with the word; `None` if there is none.
pub fn lead(word: &str, top: bool) -> Option<&'static Lead> {
    leads(top).iter().find(|lead| lead.word == word)
}

/// The role of a reserved word, or of `like`; `None` for other words.
pub fn role(word: &str) -> Option<WordRole> {
    INNER.iter().find(|(known, _)| *known == word).map(|(_, role)| *role)
}

/// True if a word can follow a value inside one piece.
pub fn continues(word: &str) -> bool {
    matches!(role(word), Some(WordRole::Between | WordRole::Clause))
}

/// True if a word cannot be a name.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// True if a value can end with the word: a name, or a word such as `true`.
pub fn ends_value(word: &str) -> bool {
    !is_reserved(word) || role(word) == Some(WordRole::Value)
}

/// The bracket that closes `open`.
pub fn closing(open: u8) -> u8 {
    BRACKETS.iter().find(|(opening, _)| *opening == open).map_or(b'}', |(_, closing)| *closing)
}

/// True if a name or a number can contain the character.
pub fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Words as a list for a message: `` `a`, `b` or `c` ``.
pub fn one_of(words: impl IntoIterator<Item = &'static str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, most)) if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::syntax::ast::BinaryOp;
    use crate::syntax::lex::{Slashes, lex};
    use crate::syntax::token::TokenKind;
    use crate::syntax::{SyntaxLimits, parse};

    const GRAMMAR: &str = include_str!("../../grammar/aorta.pest");

    /// The literals of each rule of the grammar, without quotes.
    fn literals() -> BTreeMap<&'static str, BTreeSet<String>> {
        let rules = GRAMMAR.lines().filter(|line| !line.starts_with("//"));
        let rules = rules.filter_map(|line| line.split_once('=').filter(|(_, body)| body.contains('{')));
        let literals = rules.map(|(name, body)| {
            let mut errors = Vec::new();
            let tokens = lex(body, 0, Slashes::Comment, &mut errors).tokens;
            let texts = tokens.iter().filter(|token| token.kind == TokenKind::Text).map(|token| token.text(body, 0));
            (name.trim(), texts.map(|text| text.trim_matches('"').to_owned()).collect())
        });
        literals.collect()
    }

    fn set<'a>(words: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        words.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn the_grammar_has_these_words_and_signs() {
        let literals = literals();
        assert_eq!(literals["reserved"], set(RESERVED));
        // The characters of comments, numbers and texts are not signs.
        let apart = ["WHITESPACE", "COMMENT", "doc", "number", "unit", "string", "idchar", "word", "operand_start"];
        let all = literals.iter().filter(|(rule, _)| !apart.contains(rule)).flat_map(|(_, literals)| literals);
        let (words, signs): (BTreeSet<String>, BTreeSet<String>) =
            all.cloned().partition(|literal| literal.chars().all(is_word));
        let inner = INNER.iter().map(|(word, _)| *word);
        // `prev` is a keyword only in a dependency, before a parenthesis, and `reference` only in a kernel, before a colon.
        assert_eq!(words, set(DECLARATIONS.into_iter().chain(STATEMENTS).chain(inner).chain(["prev", "reference"])));
        let brackets = BRACKETS.iter().flat_map(|(open, close)| [open, close]);
        let brackets: Vec<String> = brackets.map(|bracket| char::from(*bracket).to_string()).collect();
        let known = SIGNS.into_iter().filter(|sign| *sign != "!");
        assert_eq!(signs, set(known.chain(brackets.iter().map(String::as_str))));
    }

    #[test]
    fn the_grammar_has_these_operators() {
        let literals = literals();
        let infix = ["kw_or", "kw_and", "compare", "sum", "product"].map(|rule| &literals[rule]);
        let operators: BTreeSet<String> = infix.into_iter().flatten().filter(|sign| *sign != ">").cloned().collect();
        let ops = BinaryOp::NAMES.into_iter().filter(|op| *op != ">");
        assert_eq!(operators, set(ops));
    }

    #[test]
    fn reserved_words_alone_are_no_names() {
        let inner = INNER.iter().map(|(word, _)| *word);
        for word in DECLARATIONS.into_iter().chain(STATEMENTS).chain(inner) {
            let (_, errors) = parse(&format!("let {word} = 1"), 0, &SyntaxLimits::default());
            assert_eq!(errors.is_empty(), !is_reserved(word), "{word}: {errors:?}");
        }
    }

    #[test]
    fn the_first_sign_that_fits_is_the_longest() {
        for (place, sign) in SIGNS.iter().enumerate() {
            let shorter = SIGNS[..place].iter().find(|earlier| sign.starts_with(**earlier));
            assert_eq!(shorter, None, "{sign}");
        }
    }
}
