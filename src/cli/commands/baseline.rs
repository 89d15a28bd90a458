//! `aorta baseline`: runs KernelBench's problems as the cases of a suite, and writes their times as its scripts read them.

mod args;

use std::path::Path;

use clap::ValueEnum;

use crate::base::{counted, json};
use crate::config::{LaunchSetting, Level, SuiteCase, SuiteFile};
use crate::measure::cases::Case;
use crate::measure::kernelbench::{ProblemTimes, Timings};
use crate::measure::record::RunRecord;

use super::forwarded_options::ForwardedArgs;
use super::scenario;
use super::suite::{self, SuiteArgs};
use crate::cli::CliResult;
use crate::cli::error::{CliError, InputError};
use crate::cli::io::output;

pub use args::BaselineArgs;
use args::Mode;

pub fn run(args: BaselineArgs) -> CliResult {
    if let Some(name) = &args.hardware {
        check_folder(name)?;
    }
    let levels = args.levels()?;
    let modes = args.modes();
    let variables = args.scenario.as_deref().map(scenario::read).transpose()?.unwrap_or_default().environment;
    let same = args.options(variables.iter().map(|(name, value)| ("env", format!("{name}={value}"))));
    let suite = SuiteFile {
        description: "KernelBench's problems".to_owned(),
        cases: levels.iter().flat_map(|level| cases(level, &modes)).collect(),
        name: "baseline".to_owned(),
        ..SuiteFile::default()
    };
    let (hardware, folder, is_test) = (args.hardware.clone(), args.folder.clone(), args.is_test());
    let arguments = SuiteArgs {
        name: Some(suite.name.clone()),
        only: None,
        strict: false,
        partition: None,
        run: args.run,
        same: ForwardedArgs::new(same),
    };
    suite::run_suite(suite, String::new(), arguments, |ended| {
        modes.iter().try_for_each(|&mode| {
            let ran = |case: &&&Case| mode_of(&case.name) == Some(mode);
            let timings = timings(&ended.iter().filter(ran).copied().collect::<Vec<_>>());
            write(&timings, mode, hardware.as_deref(), &folder, is_test)
        })
    })
}

/// The cases of a level's problems in these modes. A case's name is the level, the problem's name and the mode.
fn cases(level: &Level, modes: &[Mode]) -> Vec<SuiteCase> {
    let of_problem = |problem: &crate::config::Problem| {
        let case = |&mode: &Mode| {
            let name = format!("level{}/{}, {}", level.number, problem.name, word(mode));
            match mode {
                Mode::Eager => problem.case(name, LaunchSetting::Stream),
                Mode::Compiled => SuiteCase { fuse: true, ..problem.case(name, LaunchSetting::Graph) },
            }
        };
        modes.iter().map(case).collect::<Vec<_>>()
    };
    level.problems.iter().flat_map(of_problem).collect()
}

fn word(mode: Mode) -> String {
    mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The mode in the name of a case; `None` if it names no mode.
fn mode_of(case: &str) -> Option<Mode> {
    let (_, mode) = case.rsplit_once(", ")?;
    Mode::value_variants().iter().copied().find(|known| word(*known) == mode)
}

/// Times of the problems, by level and name, from the cases that have a measured record.
fn timings(cases: &[&Case]) -> Timings {
    let mut timings = Timings::new();
    for case in cases {
        let (level, problem) = case.name.split_once('/').unwrap_or_default();
        let Some((problem, _)) = problem.rsplit_once(", ") else { continue };
        if let Some(times) = case.record.as_deref().filter(|record| record.measurement).and_then(times) {
            timings.entry(level.to_owned()).or_default().insert(problem.to_owned(), times);
        }
    }
    timings
}

/// The times of a run, with the device as PyTorch names it; `None` without measured times.
fn times(record: &RunRecord) -> Option<ProblemTimes> {
    let variant = record.variants.first()?;
    let (gpu_type, device) = match record.settings.backend.as_str() {
        "cuda" => (Some("NVIDIA"), "cuda:0"),
        "hip" => (Some("AMD"), "cuda:0"),
        other => (None, other),
    };
    ProblemTimes::of(&variant.time, &record.device.name, gpu_type, device)
}

/// Writes the file of a mode into the folder of this machine. Writes none without times.
fn write(timings: &Timings, mode: Mode, hardware: Option<&str>, folder: &Path, is_test: bool) -> Result<(), CliError> {
    let Some(first) = timings.values().flat_map(|problems| problems.values()).next() else { return Ok(()) };
    let folder = folder.join(hardware.map_or_else(|| folder_name(&first.hardware), str::to_owned));
    output::make_folder(&folder)?;
    let test = if is_test { "_test" } else { "" };
    let path = folder.join(format!("baseline_time_aorta_{}{test}.json", word(mode)));
    output::write_text(&path, &json::document(timings))?;
    output::eprint(&format!(
        "{} times of {} are in {}\n",
        word(mode),
        counted(count(timings), "problem"),
        path.display()
    ));
    Ok(())
}

fn count(timings: &Timings) -> usize {
    timings.values().map(|problems| problems.len()).sum()
}

/// The name of a device as that of a folder: `NVIDIA_H200`.
fn folder_name(device: &str) -> String {
    let words = device.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

/// Fails unless the name is that of one folder.
fn check_folder(name: &str) -> Result<(), InputError> {
    match name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
        true => Err(InputError::bad_value(
            "`--hardware`",
            name,
            "it is not the name of a folder",
            "write `--hardware H200`",
        )),
        false => Ok(()),
    }
}
