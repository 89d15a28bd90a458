//! The shipped modules, embedded in the binary: `use std.transformer`.

use super::modules::ModuleText;

/// Each shipped module: its name without `std.`, and its text.
pub const STANDARD: [(&str, &str); 6] = [
    ("experts", include_str!("../../std/experts.aorta")),
    ("layers", include_str!("../../std/layers.aorta")),
    ("optimizer", include_str!("../../std/optimizer.aorta")),
    ("pipeline", include_str!("../../std/pipeline.aorta")),
    ("ring", include_str!("../../std/ring.aorta")),
    ("transformer", include_str!("../../std/transformer.aorta")),
];

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
        None => {
            let known: Vec<String> = STANDARD.iter().map(|(known, _)| format!("`std.{known}`")).collect();
            Err(format!("the shipped ones are {}", known.join(", ")))
        }
    })
}
