//! Host streams: their options, and the operations that can run on them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::{Space, SrcSpan, ViewId, suggest};
use crate::ops::{self, Attr, DataFile, Operation, Property};
use crate::syntax::ast::{Call, Setting};

use crate::model::analyzer::Analyzer;
use crate::model::calls::call::{Inputs, Output};
use crate::model::error::{HostStreamError, ModelError};

/// The files with data that a workload reads, by the path as written, or why they cannot be read.
pub type DataFiles = BTreeMap<String, Result<Arc<DataFile>, String>>;

/// Maximum number of threads of a host stream.
const THREADS: i64 = 1024;

impl Analyzer<'_> {
    /// The number of threads of a stream, from its `kind` and `threads`; `None` if it is a stream of the device.
    pub(in crate::model) fn host_threads(&mut self, options: &[Setting]) -> Option<NonZeroU32> {
        let option = |wanted: &str| options.iter().find(|option| self.names.name(option.key.symbol) == wanted);
        let (kind, threads) = (option("kind"), option("threads"));
        let of_device = ["priority", "units", "queue"].map(option).into_iter().flatten().next();
        let on_host = match kind {
            Some(kind) => self.word_of(&kind.value, &["gpu", "host"])? == "host",
            None => false,
        };
        let misplaced = if on_host { of_device } else { threads };
        if let Some(option) = misplaced {
            let name = self.names.name(option.key.symbol).to_owned();
            let (kind, help) = match on_host {
                true => (
                    "a host stream",
                    "threads of the CPU have neither priority nor compute units nor queues here: leave it out",
                ),
                false => ("a stream of the device", "write `kind: host` before it, or leave it out"),
            };
            self.error(HostStreamError::Option { name, kind, help, at: option.key.span.into() });
        }
        if !on_host {
            return None;
        }
        let count = match threads {
            Some(threads) => match self.eval_whole(&threads.value)? {
                count @ 1..=THREADS => count,
                count => {
                    self.error(ModelError::BadSize {
                        what: "the number of threads".to_owned(),
                        value: count.to_string(),
                        at: threads.value.span.into(),
                        help: "write 1 to 1024 threads",
                    });
                    return NonZeroU32::new(1);
                }
            },
            None => 1,
        };
        NonZeroU32::new(count as u32)
    }

    /// Number of threads of the current stream; `None` for a stream of the device.
    pub(in crate::model) fn current_threads(&mut self) -> Option<NonZeroU32> {
        let stream = self.current_stream();
        self.program.streams[stream.index()].threads
    }

    /// Checks that the current stream can run a call of this name, if it is a host stream.
    pub(in crate::model) fn fits_host_stream(&mut self, name: &'static str, runs_on_host: bool, call: &Call) -> bool {
        if self.current_threads().is_none() {
            return true;
        }
        let of_device = |option: &&Setting| matches!(self.names.name(option.key.symbol), "units" | "via");
        if let Some(option) = call.options.iter().find(of_device).filter(|_| runs_on_host) {
            let error = HostStreamError::Option {
                name: self.names.name(option.key.symbol).to_owned(),
                kind: "an operation on a host stream",
                help: "compute units and copy engines are parts of the device: leave it out",
                at: option.key.span.into(),
            };
            self.error(error);
            return false;
        }
        let elsewhere = call.outputs.iter().find_map(|output| output.at.as_ref()).map(|at| at.rank.span);
        let at = match (runs_on_host, elsewhere) {
            (true, None) => return true,
            (true, Some(elsewhere)) => elsewhere,
            (false, _) => call.span,
        };
        let what = if runs_on_host { format!("`{name}` to another rank") } else { format!("`{name}`") };
        let stream = self.current_stream();
        let stream = self.program.streams[stream.index()].name.clone();
        let known = suggest::listed(&ops::host_operations());
        self.error(HostStreamError::Operation { what, stream, known, at: at.into() });
        false
    }

    /// Checks that a stream of the device is not given an operation that only threads of the CPU can run.
    pub(in crate::model) fn fits_device_stream(&mut self, operation: &dyn Operation, call: &Call) -> bool {
        if !operation.has(Property::HostOnly) || self.current_threads().is_some() {
            return true;
        }
        self.error(HostStreamError::HostOnly { op: operation.name(), at: call.span.into() });
        false
    }

    /// Returns the file at a path that an option names; `None` after an error, which has been reported.
    pub(in crate::model) fn data_file(&mut self, path: &str, at: SrcSpan) -> Option<Attr> {
        let why = match self.options.files.get(path) {
            Some(Ok(file)) => return Some(Attr::File(file.clone())),
            Some(Err(why)) => why.clone(),
            // Files are located before any value is computed.
            None => "its path is computed, or given by no file".to_owned(),
        };
        self.fail(HostStreamError::DataFile { path: path.to_owned(), why, at: at.into() })
    }

    /// Checks that CPU threads can access every operand, if the current stream is a host stream.
    pub(in crate::model) fn host_reaches(
        &mut self,
        operation: &dyn Operation,
        call: &Call,
        inputs: &Inputs,
        outputs: &[Output],
    ) -> bool {
        if self.current_threads().is_none() {
            return true;
        }
        let mut operands: Vec<(ViewId, SrcSpan)> =
            inputs.views.iter().copied().zip(inputs.spans.iter().copied()).collect();
        for output in outputs {
            match output {
                Output::Given(view, span) => operands.push((*view, *span)),
                Output::None | Output::Cell(_) => {
                    let op = operation.name();
                    self.error(HostStreamError::Output { op, at: call.span.into() });
                    return false;
                }
            }
        }
        let on_device = |view: ViewId| {
            let memory = self.program.memory(self.program.views.memory(view));
            (memory.space == Space::Device).then_some(memory.name)
        };
        let Some((name, at)) = operands.into_iter().find_map(|(view, at)| Some((on_device(view)?, at))) else {
            return true;
        };
        let (op, name) = (operation.name(), self.names.name(name).to_owned());
        self.error(HostStreamError::Operand { op, name, at: at.into() });
        false
    }
}
