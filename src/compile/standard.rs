//! The shipped modules, embedded in the binary: `use std.transformer`.

use crate::base::suggest;
pub use crate::model::STANDARD;

use super::modules::ModuleText;

/// The shipped module of that name, such as `std.transformer`; `None` if the name is that of a file.
pub fn standard_module(path: &str) -> Option<Result<ModuleText, String>> {
    let name = path.strip_prefix("std.")?;
    // A path with a slash or an extension names a file, in a folder whose name begins with `std.`.
    if name.contains('/') || name.ends_with(".aorta") {
        return None;
    }
    let known = STANDARD.iter().find(|(known, _)| *known == name);
    Some(match known {
        Some((_, text)) => Ok(ModuleText::text(format!("std/{name}.aorta"), (*text).to_owned())),
        None => Err(match suggest::nearest(name, STANDARD.map(|(known, _)| known)) {
            Some(near) => format!("did you mean `std.{near}`?"),
            None => format!("the shipped ones are {}", STANDARD.map(|(known, _)| format!("`std.{known}`")).join(", ")),
        }),
    })
}
