//! Parses a text into a syntax tree. Takes `&str`, and does not depend on files, devices or settings except its limits.

pub mod ast;
mod brackets;
mod error;
mod format;
mod grammar;
mod lex;
mod lint;
mod other_languages;
mod parser;
mod slashes;
mod split;
mod token;
mod tree;
mod unparsed;
pub mod walk;
mod words;

pub use ast::Ast;
pub use error::SyntaxError;
pub use format::{Formatted, format};
pub use lint::{SyntaxWarning, lint};
pub use parser::{Edit, Reparsed, loop_with_step, parse, parse_expr, parse_module, reparse};
pub use tree::{tree, written};
pub use unparsed::declared;
pub use words::{DECLARATIONS, RESERVED, STATEMENTS};

/// Version of the language that this crate implements. A file can demand a version with `meta { language: 1 }`.
pub const LANGUAGE: i64 = 1;

/// Limits of a file, which prevent exhaustion of memory and stack.
#[derive(Clone, Copy, Debug)]
pub struct SyntaxLimits {
    /// Maximum size of a file in bytes.
    pub file_bytes: usize,
    /// Maximum nesting of brackets.
    pub nesting: usize,
}

impl Default for SyntaxLimits {
    fn default() -> Self {
        SyntaxLimits { file_bytes: 4 << 20, nesting: 64 }
    }
}
