//! `aorta list`.

use crate::base::visible;
use crate::syntax;
use crate::syntax::ast::{DeclKind, ExprKind};

use super::{CliResult, DONE, library, output};

pub fn run() -> CliResult {
    let mut text = String::new();
    let shipped = library::all();
    let width = shipped.iter().map(|shipped| shipped.stem.len()).max().unwrap_or(0);
    let mut category = String::new();
    for shipped in &shipped {
        let (ast, _) = syntax::parse(shipped.text, 0, &syntax::Limits::default());
        let own = category_of(&ast).unwrap_or_else(|| "other".to_owned());
        if own != category {
            if !category.is_empty() {
                text.push('\n');
            }
            text += &format!("{own}\n");
            category = own;
        }
        text += &format!("  {:width$}  {}\n", shipped.stem, ast.summary());
    }
    text += "\n`aorta show NAME` tells more of one, `aorta exec NAME` runs it.\n";
    output::print(&text);
    Ok(DONE)
}

/// What the file's `meta` calls its category.
pub fn category_of(ast: &syntax::Ast) -> Option<String> {
    ast.decls.iter().find_map(|decl| match &decl.kind {
        DeclKind::Meta(settings) => settings.iter().find_map(|setting| match &setting.value.kind {
            ExprKind::Text(text) if ast.names.name(setting.key.symbol) == "category" => {
                Some(visible::one_line(text).into_owned())
            }
            _ => None,
        }),
        _ => None,
    })
}
