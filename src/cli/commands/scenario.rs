//! Reads scenarios, and reports all of their mistakes, whichever command reads them.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::{ConfigError, Field, Links, Mistakes, Profile, Scenario};

use super::ab::{self, AbArgs};
use super::exec::{ExecArgs, parsed};
use super::sweep::{self, SweepArgs};
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::{container, file_access, library, load, project, wrong_kind};
use crate::cli::io::files::folder_of;

/// Reads a scenario, and finds the files that it names.
///
/// # Errors
///
/// The scenario has mistakes, or names a file out of its reach.
pub fn read(path: &Path) -> Result<Scenario, CliError> {
    let name = path.display().to_string();
    let text = load::read(path, load::FileKind::Scenario)?;
    wrong_kind::check_runs(&name, &text)?;
    let (scenario, mut mistakes) = Scenario::read(&name, &text);
    let Some(mut scenario) = scenario else { return Err(ConfigError::from(mistakes).into()) };
    check_arguments::<ExecArgs>("exec", &name, &scenario, &mut mistakes);
    check_arguments::<SweepArgs>("sweep", &name, &scenario, &mut mistakes);
    check_arguments::<AbArgs>("ab", &name, &scenario, &mut mistakes);
    sweep::check_axes(&name, &scenario, &mut mistakes);
    ab::check_sides(&name, &scenario, &mut mistakes);
    check_names(&scenario, &mut mistakes);
    find_files(path, &mut scenario, &mut mistakes);
    mistakes.finish()?;
    Ok(scenario)
}

/// The scenario that the argument `file` names, with its path; `None` for other files.
///
/// # Errors
///
/// Fails if the scenario cannot be read or has mistakes, as [`read`] does.
pub fn named(file: &str) -> Result<Option<(String, Scenario)>, CliError> {
    let file = project::resolve(file)?;
    match file.ends_with(".ron") {
        true => read(Path::new(&file)).map(|scenario| Some((file, scenario))),
        false => Ok(None),
    }
}

/// The options of `command`, `sweep` or `ab`, that a scenario gives, as they would be typed. `own` are those of its axes or
/// sides.
pub fn words(command: &str, own: Vec<String>, scenario: &Scenario) -> Vec<String> {
    // An option that several commands have, such as a seed, may be for another one.
    let is_own = |field: &Field| field.commands == [command] || !own.is_empty();
    let options: Vec<String> = scenario
        .arguments(command)
        .into_iter()
        .filter(|(field, _)| is_own(field))
        .flat_map(|(_, words)| words)
        .collect();
    [own, options].concat()
}

/// Reports names of devices and topologies that do not exist, and numbers that no run can have.
fn check_names(scenario: &Scenario, mistakes: &mut Mistakes) {
    let name = |name: &Option<String>| name.clone().filter(|name| !name.ends_with(".ron"));
    if let Some(Err(error)) = name(&scenario.profile).map(|name| Profile::named(&name)) {
        mistakes.add(&["profile"], error);
    }
    if let Some(Err(error)) = name(&scenario.topology).map(|name| Links::named(&name)) {
        mistakes.add(&["topology"], error);
    }
    if scenario.streams == Some(0) {
        let help = "write `streams: 1`, or leave it out";
        mistakes.add(&["streams"], InputError::bad_value("`streams`", "0", "a run needs a stream", help));
    }
    if let (Some(rank), Some(world)) = (scenario.rank, scenario.emulate)
        && rank >= world
    {
        let why = format!("ranks go from 0 to {}", world - 1);
        let help = "write `rank: 0`, or a larger `emulate`";
        mistakes.add(&["rank"], InputError::bad_value("`rank`", &rank.to_string(), &why, help));
    }
}

/// Replaces the names of files by paths that lead to them from the current folder.
fn find_files(path: &Path, scenario: &mut Scenario, mistakes: &mut Mistakes) {
    if !scenario.workload.is_empty() {
        match workload(path, &scenario.workload) {
            Ok(found) if !is_known(&found) => {
                mistakes.add(&["workload"], library::unknown_in(folder_of(path), &scenario.workload));
            }
            Ok(found) => scenario.workload = found,
            Err(error) => mistakes.add(&["workload"], error),
        }
    }
    let files = [
        ("profile", &mut scenario.profile),
        ("topology", &mut scenario.topology),
        ("expected", &mut scenario.expected),
    ];
    for (what, file) in files {
        if let Some(file) = file.as_mut().filter(|file| file.ends_with(".ron")) {
            let found = beside(path, file).unwrap_or_else(|| PathBuf::from(&*file));
            match file_access::check(path, &found, what) {
                Ok(()) => *file = found.display().to_string(),
                Err(error) => mistakes.add(&[what], error),
            }
        }
    }
}

/// True if a name that [`workload`] returned belongs to a file or a shipped workload.
fn is_known(name: &str) -> bool {
    name == load::STANDARD_INPUT
        || project::is_there(name)
        || container::is_file(Path::new(name))
        || library::find(name).is_some()
}

/// A file that a scenario names by a path relative to itself; `None` if there is none.
fn beside(scenario: &Path, name: &str) -> Option<PathBuf> {
    scenario.parent().map(|folder| folder.join(name)).filter(|file| container::is_file(file))
}

/// The `FILE` argument for a workload that a scenario or a suite names: a file beside it, a workload of its project or a
/// shipped one, or any other file within its reach.
pub fn workload(by: &Path, name: &str) -> Result<String, InputError> {
    let found = match beside(by, name) {
        Some(file) => file,
        None => match project::find(name, folder_of(by))? {
            Some(file) => file,
            None if library::find(name).is_some() => return Ok(name.to_owned()),
            None => PathBuf::from(name),
        },
    };
    file_access::check(by, &found, "workload")?;
    Ok(found.display().to_string())
}

/// The arguments of a command, such as `sweep`, that the scenario at `path` gives.
///
/// # Errors
///
/// The command does not accept a value.
pub fn arguments<A: Args>(command: &'static str, path: &str, scenario: &Scenario) -> Result<A, InputError> {
    let words: Vec<String> = scenario.arguments(command).into_iter().flat_map(|(_, words)| words).collect();
    // Keeps a path that begins with `-` from being read as an option.
    let file = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    parsed(command, &[vec![file], words].concat()).map_err(|mistake| mistake.of("the scenario", path))
}

/// Reports the fields whose values a command does not accept.
fn check_arguments<A: Args>(command: &'static str, path: &str, scenario: &Scenario, mistakes: &mut Mistakes) {
    let Err(all) = arguments::<A>(command, path, scenario) else { return };
    // A rank is only valid with the world that it belongs to.
    let given = || scenario.arguments(command).into_iter().filter(|(_, words)| !words.is_empty());
    for (field, words) in given().filter(|(field, _)| field.name != "rank") {
        let all = [vec!["file".to_owned()], words.clone()].concat();
        if parsed::<A>(command, &all).is_ok() {
            continue;
        }
        for word in words {
            let value = word.strip_prefix(field.option).unwrap_or_default().to_owned();
            if let Err(mistake) = parsed::<A>(command, &["file".to_owned(), word]) {
                mistakes.add(&[field.name], mistake.of(&format!("`{}`", field.name), &value));
            }
        }
    }
    // Fields that are valid alone and exclude each other. Other mistakes come first, since they may be the reason.
    if mistakes.count() == 0 {
        mistakes.add(&[], all);
    }
}
