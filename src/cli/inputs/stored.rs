//! Reads the results that commands have written: records, A/B comparisons, and cases of sweeps and suites.

use std::path::Path;

use crate::base::json;
use crate::measure::RunRecord;
use crate::measure::ab::AbRecord;
use crate::measure::cases::Cases;

use super::{container, load};
use crate::cli::error::InputError;

/// The results in a file.
pub enum Stored {
    /// The record of a run, or that of a bundle.
    Run(Box<RunRecord>),
    Ab(Box<AbRecord>),
    Cases(Box<Cases>),
}

/// Reads the results in a file of any kind.
pub fn read(path: &Path) -> Result<Stored, InputError> {
    if container::is_bundle(&path.display().to_string()) {
        return Ok(Stored::Run(Box::new(container::record(path)?)));
    }
    let text = load::read(path, load::FileKind::Record)?;
    let no_record = |why| InputError::NoRecord { name: path.display().to_string(), why };
    match () {
        () if Cases::recognizes(text.as_bytes()) => parsed(path, &text).map(|cases| Stored::Cases(Box::new(cases))),
        () if AbRecord::recognizes(&text) => {
            AbRecord::from_json(&text).map(|ab| Stored::Ab(Box::new(ab))).map_err(no_record)
        }
        () => RunRecord::from_json(&text).map(|run| Stored::Run(Box::new(run))).map_err(no_record),
    }
}

/// Reads a file of cases.
pub fn cases(path: &Path) -> Result<Cases, InputError> {
    let text = load::read(path, load::FileKind::Record)?;
    if json::schema(&text).is_some_and(|schema| schema.starts_with("aorta.run/")) {
        let (name, why) = (path.display().to_string(), "it is the record of a run".to_owned());
        return Err(InputError::NoCases { name, why, is_record: true });
    }
    parsed(path, &text)
}

fn parsed(path: &Path, text: &str) -> Result<Cases, InputError> {
    let read = Cases::parse(text.as_bytes()).and_then(|read| read.ok_or("its first line is incomplete".to_owned()));
    read.map_err(|why| InputError::NoCases { name: path.display().to_string(), why, is_record: false })
}
