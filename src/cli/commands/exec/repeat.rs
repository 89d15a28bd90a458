//! Compares a repeated run with the run of its record.

use std::path::Path;

use crate::cli::error::InputError;
use crate::cli::inputs::container;
use crate::measure::{RunRecord, compare};

/// Lists how a run differs from the one that the record at `before` describes.
pub(super) fn differences(before: &Path, after: &RunRecord) -> Result<String, InputError> {
    let name = before.display();
    let before = container::record(before)?;
    let mut text = format!("\nRepeats {name} of {}\n", before.started);
    text += match (&before.program.plan, &after.program.plan) {
        (Some(a), Some(b)) if a == b => "  the plan is the same\n",
        (Some(_), Some(_)) => "  the plan differs: `aorta plan --diff` shows how, once both run on the same device\n",
        _ => "",
    };
    let shown = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    for difference in compare::environment(&before, after) {
        text += &format!("  {}: {} → {}\n", difference.what, shown(difference.base), shown(difference.other));
    }
    text += &format!(
        "`aorta compare {name} NEW.json` compares the figures, with the record that `--json NEW.json` writes.\n"
    );
    Ok(text)
}
