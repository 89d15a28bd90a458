//! Definitions that hide an operation.

use crate::ops;
use crate::syntax::ast::{Ast, DeclKind};

use super::ModelWarning;

/// Finds definitions of the file that have the name of an operation. Those of modules are called with the name of the module.
pub(super) fn operations(ast: &Ast, warnings: &mut Vec<ModelWarning>) {
    for decl in &ast.decls {
        let DeclKind::Def { name, .. } = &decl.kind else { continue };
        let text = ast.names.name(name.symbol);
        if ops::find(text).is_some() {
            warnings.push(ModelWarning::HiddenOperation { name: text.to_owned(), at: name.span.into() });
        }
    }
}
