//! Recognizes files that are given to a command that runs a workload, and are something else.

use std::path::Path;

use crate::config::{Bundle, RonKind};

use super::container::{self, BUNDLE};
use crate::cli::error::InputError;
use crate::measure::ab::AbRecord;
use crate::measure::cases::Cases;

/// Fails if a text that the user wants to run is something else: a suite, ranges, the record in a bundle, or a file with the wrong
/// ending. `path` is its name.
///
/// # Errors
///
/// Names what the text is, and what to type.
pub fn check_runs(path: &str, text: &str) -> Result<(), InputError> {
    let is_ron = path.ends_with(".ron");
    let kind = if is_ron { RonKind::of(text) } else { RonKind::Scenario };
    let renamed = |what, ending: &str| {
        let target = Path::new(path).with_extension(ending);
        Some((what, format!("rename it: `mv {path} {}`", target.display())))
    };
    let begins = text.trim_start_matches('\u{feff}').trim_start();
    let found = match kind {
        _ if Bundle::recognizes(text) => renamed("it is a bundle, whose name ends in `.aortab`", BUNDLE),
        RonKind::Suite => Some((
            "it is a suite, and runs several workloads",
            format!("`aorta suite {path}` runs its cases; one of them alone is a scenario: `(workload: \"moe\")`"),
        )),
        RonKind::Ranges => {
            Some(("it has normal ranges, and names no workload", format!("add it to a run: `--expected={path}`")))
        }
        RonKind::Profile => Some(("it is a device profile", format!("simulate the device: `--config profile={path}`"))),
        RonKind::Topology => {
            Some(("it has the links of simulated devices", format!("add it to a run: `--config topology={path}`")))
        }
        RonKind::Project => Some(("it is a project", "`aorta list` names the files of its library".to_owned())),
        RonKind::Scenario if is_ron => None,
        RonKind::Scenario if Cases::recognizes(text.as_bytes()) || AbRecord::recognizes(text) => {
            Some(("it has the results of several runs", format!("`aorta report {path}` shows them")))
        }
        RonKind::Scenario if begins.starts_with('{') && begins.contains("\"aorta.run/") => {
            match container::inside(Path::new(path))? {
                Some(inside) => {
                    let bundle = inside.container.display();
                    let help = format!(
                        "`aorta exec {bundle}` runs what the bundle holds, `aorta report {bundle}` shows the record"
                    );
                    Some(("it is the record of a run, without the text", help))
                }
                None => renamed("it is the record of a run, whose name ends in `.json`", "json"),
            }
        }
        RonKind::Scenario if begins.starts_with('(') && begins.contains("workload:") => {
            renamed("it is a scenario, whose name ends in `.ron`", "ron")
        }
        RonKind::Scenario => None,
    };
    found.map_or(Ok(()), |(why, help)| Err(InputError::bad_value("the file to run", path, why, &help)))
}
