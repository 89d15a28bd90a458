//! Runs the cases of a sweep, a search or a suite: one `aorta exec` each, in a process of its own.
//!
//! A process per case isolates failures: a failed device, exhausted memory or a call that hangs does not affect the
//! next case. Drivers read environment variables once per process, so cases can set them. The price is the start of a
//! process: milliseconds on the simulator, opening the device on a GPU.

pub mod journal;
mod progress;
mod run;

use std::collections::VecDeque;
use std::path::PathBuf;

use indexmap::IndexMap;

use crate::base::json;
use crate::measure::cases::{Case, CasesHeader, Status};
use crate::measure::order::CaseOrder;
use crate::report::page::Page;
use crate::report::{self, PageContent};

use super::child::Interrupt;
use super::launcher;
use crate::cli::error::{CliError, InputError};
use crate::cli::io::output;
use crate::cli::io::outputs::{FileOptions, PageArgs};
use crate::cli::{CHECK_FAILED, DONE, FAILED};
use journal::Journal;
use progress::CaseProgress;

/// Note of a command whose partition is empty.
pub const NO_CASE: &str = "There are fewer cases than partitions, and this one has none.\n";

/// A case that has not run yet.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCase {
    /// The values in words, such as `streams=2, d_model=64`. Unique within a file of cases.
    pub name: String,
    /// The value of each axis, by the axis's name.
    pub values: IndexMap<String, String>,
    /// The arguments of the case's `aorta exec`, or its status if it cannot run, and why.
    pub command: Result<Vec<String>, (Status, String)>,
}

impl PlannedCase {
    /// The result of a case that does not run.
    pub fn without(&self, status: Status, why: &str) -> Case {
        Case::without(&self.name, &self.values, 0.0, status, why.to_owned())
    }

    /// Runs the case; `None` if this program was interrupted.
    pub fn run(&self, interrupt: &Interrupt) -> Result<Option<Case>, CliError> {
        match &self.command {
            Ok(arguments) => run::run(self, arguments, interrupt),
            Err((status, why)) => Ok(Some(self.without(*status, why))),
        }
    }
}

/// Fails if a launcher has started this program, because commands that run cases start their own processes.
pub fn alone(command: &str) -> Result<(), InputError> {
    let Some(launcher) = launcher::detect()? else { return Ok(()) };
    Err(InputError::Launcher {
        why: format!("`aorta {command}` was started by {}, and starts a process for each case itself", launcher.name),
        help: format!("start `aorta {command}` without a launcher; `--ranks N` runs N ranks in one process"),
    })
}

/// Fails if a command that runs cases cannot run here, or cannot write its page and files.
pub fn check(command: &str, page: &PageArgs, files: &FileOptions) -> Result<(), InputError> {
    alone(command)?;
    page.check()?;
    files.check()
}

/// The exit code of cases that have all been run, of which one must have been measured. A failed case takes precedence over
/// one with a broken expectation.
pub fn exit_code(cases: &[Case], is_failed: impl Fn(Status) -> bool, is_broken: impl Fn(Status) -> bool) -> u8 {
    let mut statuses = cases.iter().map(|case| case.status);
    match statuses.clone().any(Status::is_measured) {
        true if statuses.clone().any(is_failed) => FAILED,
        true if statuses.any(is_broken) => CHECK_FAILED,
        true => DONE,
        false => FAILED,
    }
}

/// Prints the page of a sweep or a suite, and writes it and the rows of its cases to the files that were asked for. Rows
/// are in this order, or in that of the cases.
pub fn show(
    (header, cases): (&CasesHeader, &[&Case]),
    page: &Page,
    order: Option<&CaseOrder>,
    (form, files): (&PageArgs, &FileOptions),
) -> Result<(), InputError> {
    form.show(std::slice::from_ref(page), || json::line(header) + &cases.iter().map(json::line).collect::<String>())?;
    form.write_html(|| PageContent::cases(header, cases, page.clone()))?;
    let Some(path) = &files.csv else { return Ok(()) };
    let rows = order.map_or_else(|| cases.to_vec(), |order| order.sorted(header, cases));
    output::write_text(path, &report::cases_csv(header, &rows))
}

/// Runs cases one after the other. Takes a case from the file if it is there, and otherwise appends its result.
pub struct Runner {
    journal: Journal,
    /// Cases in the file, by name, the oldest first.
    known: IndexMap<String, VecDeque<Case>>,
    progress: CaseProgress,
    pub interrupt: Interrupt,
    /// True if the user has named the file.
    named: bool,
}

impl Runner {
    /// Opens the file for `total` cases: `named` if given, otherwise `own`; `None` for both keeps no file.
    pub fn open(
        named: Option<&PathBuf>,
        own: Option<PathBuf>,
        header: &CasesHeader,
        resume: bool,
        total: usize,
    ) -> Result<Runner, CliError> {
        let opened = journal::open(named.cloned().or(own), named.is_some(), header, resume)?;
        if opened.truncated {
            output::eprint("The last line of the file is incomplete: its case runs again.\n");
        }
        let mut known: IndexMap<String, VecDeque<Case>> = IndexMap::new();
        for case in opened.cases {
            known.entry(case.name.clone()).or_default().push_back(case);
        }
        let (journal, progress, named) = (opened.journal, CaseProgress::start(total), named.is_some());
        Ok(Runner { journal, known, progress, interrupt: Interrupt::watch(), named })
    }

    /// Reduces the known cases to the last one of each name, and drops those that must run again.
    pub fn keep(&mut self, keep: impl Fn(&Case) -> bool) {
        self.known.values_mut().for_each(|cases| drop(cases.drain(..cases.len() - 1)));
        self.known.retain(|_, cases| cases.iter().all(&keep));
        self.progress.count_known(self.known.values().flatten());
    }

    /// The last case of that name in the file; `None` if there is none.
    pub fn known(&self, name: &str) -> Option<&Case> {
        self.known.get(name)?.back()
    }

    /// Returns the case from the file, or runs it with `run`. `None` if this program was interrupted.
    pub fn case(
        &mut self,
        name: &str,
        run: impl FnOnce(&Interrupt) -> Result<Option<Case>, CliError>,
    ) -> Result<Option<Case>, CliError> {
        if let Some(case) = self.known.get_mut(name).and_then(VecDeque::pop_front) {
            return Ok(Some(case));
        }
        self.progress.begin(name);
        let Some(case) = run(&self.interrupt)? else { return Ok(None) };
        self.journal.append(&case)?;
        self.progress.end(&case);
        Ok(Some(case.light()))
    }

    /// Runs the cases in this order of their indices with `run`, which gets the index of a case. Returns the cases that have
    /// ended, now or earlier, in the order of `planned`, and whether all were run.
    pub fn all<'p>(
        &mut self,
        planned: impl IntoIterator<Item = &'p PlannedCase>,
        order: impl IntoIterator<Item = usize>,
        mut run: impl FnMut(usize, &Interrupt) -> Result<Option<Case>, CliError>,
    ) -> Result<(Vec<Case>, bool), CliError> {
        let names: Vec<&str> = planned.into_iter().map(|planned| planned.name.as_str()).collect();
        let mut ended: Vec<Option<Case>> = names.iter().map(|_| None).collect();
        let mut complete = true;
        for index in order {
            ended[index] = self.case(names[index], |interrupt| run(index, interrupt))?;
            if ended[index].is_none() {
                complete = false;
                break;
            }
        }
        self.clear_progress();
        let known = |(case, name): (Option<Case>, &str)| case.or_else(|| self.known(name).cloned());
        Ok((ended.into_iter().zip(names).filter_map(known).collect(), complete))
    }

    /// Removes the redrawn line of a terminal. Called before anything is printed on standard output.
    pub fn clear_progress(&mut self) {
        self.progress.clear();
    }

    /// Prints where the cases are stored, and how to resume an interrupted command.
    pub fn print_location(self) {
        drop(self.progress);
        match &self.journal.path {
            Some(_) if self.interrupt.stopped() => {
                output::eprint("Interrupted: the same command with `--resume` continues.\n");
            }
            Some(path) if !self.named => {
                output::eprint(&format!("Every case with its record is in {}\n", path.display()));
            }
            _ => {}
        }
    }
}
