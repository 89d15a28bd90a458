//! `aorta list`: lists the shipped workloads.

use crate::syntax;

use super::{CliResult, DONE, library, output};

pub fn run() -> CliResult {
    let mut text = String::new();
    let shipped = library::all();
    let width = shipped.iter().map(|shipped| shipped.stem.len()).max().unwrap_or(0);
    let mut category = String::new();
    for shipped in &shipped {
        let (ast, _) = syntax::parse(shipped.text, 0, &syntax::Limits::default());
        let own_category = ast.category().unwrap_or_else(|| "other".to_owned());
        if own_category != category {
            if !category.is_empty() {
                text.push('\n');
            }
            text += &format!("{own_category}\n");
            category = own_category;
        }
        text += &format!("  {:width$}  {}\n", shipped.stem, ast.summary());
    }
    text += "\n`aorta show NAME` tells more of one, `aorta exec NAME` runs it.\n";
    output::print(&text);
    Ok(DONE)
}
