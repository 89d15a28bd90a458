//! Presets that give a parameter a list of values: each list becomes an axis.

use crate::base::SourceMap;
use crate::cli::error::InputError;
use crate::cli::targets;
use crate::measure::cases::Axis;
use crate::syntax::Ast;
use crate::syntax::ast::ExprKind;

use super::axes::{SweepOptions, add_value};

/// Adds the lists of a preset before the other axes, in their order. Values on the command line take precedence.
pub fn lists(ast: &Ast, sources: &SourceMap, preset: &str, options: &mut SweepOptions) -> Result<(), InputError> {
    let given = |options: &SweepOptions, name: &str| {
        targets::is_set(&options.fixed, "set", name) || options.axes.iter().any(|axis| axis.name == name)
    };
    let mut index = 0;
    let chosen = ast.presets().filter(|(name, _)| ast.names.name(name.symbol) == preset);
    for binding in chosen.flat_map(|(_, values)| values) {
        let name = ast.names.name(binding.name.symbol);
        let ExprKind::List(items) = &binding.value.kind else { continue };
        if given(options, name) {
            continue;
        }
        let mut axis = Axis { option: "set".to_owned(), name: name.to_owned(), values: Vec::new() };
        for item in items {
            add_value(&mut axis, sources.text(item.span))?;
        }
        match axis.values.as_slice() {
            // An empty list is a mistake in the file, reported when a case is checked.
            [] => {}
            [only] => options.fixed.push(format!("--set={name}={only}")),
            _ => {
                options.axes.insert(index, axis);
                index += 1;
            }
        }
    }
    Ok(())
}
