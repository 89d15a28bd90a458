//! Cases: the runs of `aorta exec` that a sweep, a search or a suite needs, each in a process of its own.
//!
//! Every case is a process of its own, whether or not its environment differs. A device that has failed does not work
//! again in the process that saw it fail, memory that ran out may stay taken, a call that hangs does not come back: none
//! of that reaches the next case. Variables of drivers are read once in a process, so they just work. It costs the start
//! of a process: milliseconds on the simulator, opening the device on a GPU.

pub mod journal;
mod progress;
mod run;

use std::collections::VecDeque;
use std::path::PathBuf;

use indexmap::IndexMap;

use crate::measure::cases::{Case, Header, Status};

use super::child::Interrupt;
use super::error::{CliError, InputError};
use super::{launcher, output};
use journal::Journal;
use progress::Progress;

/// A case before it has run.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its values in words: `streams=2, d_model=64`. No two of one file are called alike.
    pub name: String,
    /// By the name of the axis.
    pub values: IndexMap<String, String>,
    /// The arguments of its `aorta exec`, or how it ends without one, and why.
    pub fate: Result<Vec<String>, (Status, String)>,
}

impl Planned {
    /// The case without a run.
    pub fn without(&self, status: Status, why: &str) -> Case {
        Case::without(&self.name, &self.values, 0.0, status, why.to_owned())
    }

    /// Runs the case; `None` where this program was interrupted.
    pub fn run(&self, interrupt: &Interrupt) -> Result<Option<Case>, CliError> {
        match &self.fate {
            Ok(arguments) => run::run(self, arguments, interrupt),
            Err((status, why)) => Ok(Some(self.without(*status, why))),
        }
    }
}

/// Fails where a launcher has started this program: what runs cases starts its processes itself.
pub fn alone(command: &str) -> Result<(), InputError> {
    let Some(launcher) = launcher::here()? else { return Ok(()) };
    Err(InputError::Launcher {
        why: format!("`aorta {command}` was started by {}, and starts a process for each case itself", launcher.name),
        help: format!("start `aorta {command}` by itself; `--ranks N` runs N ranks in one process"),
    })
}

/// Runs cases one after the other. A case that the file has already is taken from there; any other is appended to it.
pub struct Runner {
    journal: Journal,
    /// The cases that the file has, by name, the oldest first.
    known: IndexMap<String, VecDeque<Case>>,
    progress: Progress,
    pub interrupt: Interrupt,
    /// Somebody has named the file.
    named: bool,
}

impl Runner {
    /// Opens the file of `total` cases: the one that was `named`, else `own`, else none.
    pub fn open(
        named: Option<&PathBuf>,
        own: Option<PathBuf>,
        header: &Header,
        resume: bool,
        total: usize,
    ) -> Result<Runner, CliError> {
        let opened = journal::open(named.cloned().or(own), named.is_some(), header, resume)?;
        if opened.torn {
            output::eprint("The file ends in the middle of a line, of a case that was cut short: it runs again.\n");
        }
        let mut known: IndexMap<String, VecDeque<Case>> = IndexMap::new();
        for case in opened.cases {
            known.entry(case.name.clone()).or_default().push_back(case);
        }
        let (journal, progress, named) = (opened.journal, Progress::start(total), named.is_some());
        Ok(Runner { journal, known, progress, interrupt: Interrupt::watch(), named })
    }

    /// Keeps of each name the last case of the file, where it does not have to run again.
    pub fn keep(&mut self, keep: impl Fn(&Case) -> bool) {
        self.known.values_mut().for_each(|cases| drop(cases.drain(..cases.len() - 1)));
        self.known.retain(|_, cases| cases.iter().all(&keep));
        self.progress.know(self.known.values().flatten());
    }

    /// The last case of that name that the file has.
    pub fn known(&self, name: &str) -> Option<&Case> {
        self.known.get(name)?.back()
    }

    /// The case that the file has, else what `run` gives; `None` where this program was interrupted.
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

    /// Says where the cases are, and how an interrupted command goes on.
    pub fn farewell(self) {
        drop(self.progress);
        match &self.journal.path {
            Some(_) if self.interrupt.stopped() => {
                output::eprint("Interrupted: the same command with `--resume` goes on.\n");
            }
            Some(path) if !self.named => {
                output::eprint(&format!("Every case with its record is in {}\n", path.display()));
            }
            _ => {}
        }
    }
}
