//! The results that reparsing an edited text must give.

use aorta::base::Symbol;
use aorta::syntax::{self, Ast, Edit, SyntaxError, SyntaxLimits};

/// Replaces `removed` bytes at `at` by `inserted`. Both ends of the range are moved to character boundaries.
pub fn edit(text: &mut String, at: usize, removed: usize, inserted: &str) -> Edit {
    let boundary = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (start, end) = (boundary(at), boundary(at.saturating_add(removed)));
    text.replace_range(start..end, inserted);
    Edit { range: start..end, len: inserted.len() }
}

/// Reparses a text after an edit, and checks that the tree, the locations and the errors are those of parsing it as a
/// whole. `before` is the tree of the text before the edit. Returns the new tree, or the two results that differ.
pub fn reparse(before: Ast, edit: &Edit, text: &str, base: u32) -> Result<Ast, String> {
    let limits = SyntaxLimits::default();
    let again = syntax::reparse(before, edit, text, base, &limits);
    let (whole, errors) = syntax::parse(text, base, &limits);
    let (found, expected) = (shown(&again.ast, &again.errors), shown(&whole, &errors));
    if found == expected { Ok(again.ast) } else { Err(format!("{found}\nand as a whole\n{expected}")) }
}

/// Everything in a tree, with names in place of symbols, whose numbers may differ.
fn shown(ast: &Ast, errors: &[SyntaxError]) -> String {
    let Ast { about, decls, names, comments, unparsed } = ast;
    let shown = format!("{about:?} {decls:?} {comments:?} {unparsed:?} {errors:?}");
    let mut parts = shown.split("Symbol(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        // A text of the file may have the same word.
        let number = part.split_once(')').and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
        match number {
            Some((number, rest)) => text + names.name(Symbol(number)) + rest,
            None => text + "Symbol(" + part,
        }
    })
}
