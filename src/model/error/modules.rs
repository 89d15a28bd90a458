//! Errors in the modules that a file uses.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// An error in the use of a module.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum ModuleError {
    #[error("there is no module `{path}`: {why}")]
    #[diagnostic(
        code(aorta::model::unknown_module),
        help(
            "write a path from the folder of this file to one in the workload's folder or below it, or in its project, \
             such as `use \"lib/blocks.aorta\"`, or a shipped module, `use std.transformer`"
        )
    )]
    UnknownModule {
        path: String,
        why: String,
        #[label("used here")]
        at: SourceSpan,
    },

    #[error("`{path}` uses itself")]
    #[diagnostic(
        code(aorta::model::module_cycle),
        help("move the definitions that both files need into a third one, which both use")
    )]
    ModuleCycle {
        path: String,
        #[label("this module is already being read")]
        at: SourceSpan,
    },

    #[error("the module `{module}` has a declaration that a module cannot have")]
    #[diagnostic(
        code(aorta::model::module_content),
        help(
            "a module holds `def`, `kernel`, `let`, `use` and `meta`: pass values that differ between uses as arguments of the `def`"
        )
    )]
    ModuleContent {
        module: String,
        #[label("declared here")]
        at: SourceSpan,
    },
}
