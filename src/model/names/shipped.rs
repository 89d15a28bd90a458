//! The texts of the shipped modules, which messages name too.

/// Each shipped module: its name without `std.`, and its text.
pub const STANDARD: [(&str, &str); 6] = [
    ("experts", include_str!("../../../std/experts.aorta")),
    ("layers", include_str!("../../../std/layers.aorta")),
    ("optimizer", include_str!("../../../std/optimizer.aorta")),
    ("pipeline", include_str!("../../../std/pipeline.aorta")),
    ("ring", include_str!("../../../std/ring.aorta")),
    ("transformer", include_str!("../../../std/transformer.aorta")),
];

/// The shipped module that defines `name`; `None` if none does.
pub(in crate::model) fn defining(name: &str) -> Option<&'static str> {
    let definition = format!("\ndef {name}(");
    STANDARD.iter().find(|(_, text)| text.contains(&definition)).map(|(module, _)| *module)
}
