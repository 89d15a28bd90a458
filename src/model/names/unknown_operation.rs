//! Help for operations that do not exist.

use crate::base::{Interner, SrcSpan, suggest};
use crate::ops;
use crate::syntax::ast::Call;
use crate::syntax::written;

use super::callee::{GRADIENT, MARKERS};
use super::foreign_calls;
use super::shipped;
use crate::model::error::ModelError;

/// Modules of other tools that hold operations.
const MODULES: [&str; 9] = ["torch", "F", "nn", "np", "cp", "dist", "jnp", "tl", "ops"];

/// Maximum number of the file's definitions that are listed.
const MAX_SHOWN: usize = 20;

/// The declaration that the name before the dot of a call refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Receiver {
    /// The call has no dot, or the name is not declared.
    None,
    Stream,
    /// A buffer, a label or another value.
    Value,
}

/// The error for a call of an unknown operation. `defs` are the file's definitions.
pub(in crate::model) fn unknown_operation(
    call: &Call,
    names: &Interner,
    defs: &[&str],
    receiver: Receiver,
) -> ModelError {
    let parts: Vec<&str> = call.callee.iter().map(|part| names.name(part.symbol)).collect();
    let last = parts.last().copied().unwrap_or_default();
    let plain = foreign_calls::without_origin(last);
    let value = (receiver == Receiver::Value).then(|| parts[0]);
    let known = ops::CATALOGUE.iter().map(|operation| operation.name()).chain(MARKERS).chain([GRADIENT]);
    let all = known.chain(defs.iter().copied());
    let help = if receiver == Receiver::Stream && all.clone().any(|name| name == last) {
        format!(
            "write operations in a block of their stream: `on {} {{ {} }}`",
            parts[0],
            written_as(last, call, names)
        )
    } else if parts.len() > 1 && all.clone().any(|name| name == last) {
        match MODULES.contains(&parts[0]) {
            true => format!("leave out what precedes the dot: `{}`", written_as(last, call, names)),
            false => {
                let call = written_as(last, call, names).replacen('(', &format!("({}, ", parts[0]), 1);
                format!("operations are no methods: `{}`", call.replace(", )", ")").replace(",  ->", " ->"))
            }
        }
    } else if let Some(def) = defs.iter().find(|def| def.rsplit_once('.').is_some_and(|(_, name)| name == last)) {
        format!("did you mean `{def}`?")
    } else if let Some(help) = foreign_calls::help(last, value, call, names) {
        help
    } else if let Some(help) = shipped(&parts) {
        help
    } else if let Some(near) = suggest::nearest(last, all.clone()).or_else(|| suggest::nearest(&plain, all)) {
        format!("did you mean `{near}`?")
    } else {
        // A long list would not help.
        let own = match defs.len() {
            1..=MAX_SHOWN => format!("; this file defines {}", suggest::listed(defs)),
            _ => String::new(),
        };
        format!("`aorta explain operation` lists all operations{own}")
    };
    let at = call.callee.iter().map(|part| part.span).reduce(SrcSpan::to).unwrap_or(call.span);
    ModelError::UnknownOperation { name: parts.join("."), at: at.into(), help: Some(help) }
}

/// Help for a definition of a shipped module that the file does not import; `None` if there is none.
fn shipped(parts: &[&str]) -> Option<String> {
    let module = shipped::defining(parts.last()?)?;
    match parts {
        [_] => Some(format!(
            "`std.{module}` has it: write `{module}.{}(…)`, with `use std.{module}` at the top of the file",
            parts[0]
        )),
        [before, _] if *before == module => Some(format!("write `use std.{module}` at the top of the file")),
        _ => None,
    }
}

/// A call of an operation with the inputs, options and outputs of another.
fn written_as(name: &str, call: &Call, names: &Interner) -> String {
    let inputs = call.inputs.iter().map(|arg| written(&arg.value, names));
    let options = call
        .options
        .iter()
        .map(|option| format!("{}: {}", names.name(option.key.symbol), written(&option.value, names)));
    let arguments: Vec<String> = inputs.chain(options).collect();
    format!("{name}({}{})", arguments.join(", "), foreign_calls::arrow(call, names))
}
