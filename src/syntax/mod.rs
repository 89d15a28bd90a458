//! Text to tree. Takes `&str`; knows no file system, no device and no settings but its limits.

pub mod ast;
mod brackets;
mod error;
mod format;
mod grammar;
mod habits;
mod lex;
mod lost;
mod parser;
mod slashes;
mod split;
mod tree;
pub mod walk;
mod words;

pub use ast::Ast;
pub use error::SyntaxError;
pub use format::{Formatted, format};
pub use lost::declared;
pub use parser::{Edit, Reparsed, parse, parse_expr, reparse};
pub use slashes::{SyntaxWarning, lint};
pub use tree::{tree, written};
pub use words::{DECLARATIONS, RESERVED, STATEMENTS};

/// How large and how deep a file may be, so that none exhausts memory or the stack.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a file.
    pub file_bytes: usize,
    /// Brackets inside one another.
    pub nesting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { file_bytes: 4 << 20, nesting: 64 }
    }
}
