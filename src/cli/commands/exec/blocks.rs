//! `aorta exec --blocks`: a run started by `aorta ab`. It warms up, then measures a block of iterations for each request on
//! its standard input, and runs the `teardown` when it is asked to.

use std::io::BufRead;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::backend;
use crate::base::{json, threads};
use crate::config::LaunchSetting;
use crate::exec::{self, ExecError, LaunchMode};
use crate::measure::{Measured, WarmSessionOptions};

use super::measuring::RunContext;
use crate::cli::error::{CliError, InputError};
use crate::cli::io::output;
use crate::cli::processes::blocks::{BlockMessage, BlockRequest, WarmedUp};
use crate::cli::{CliResult, DONE, INTERRUPTED};

/// Time allowed for a run to end after its standard input has ended.
const GRACE: Duration = Duration::from_secs(10);

impl RunContext<'_> {
    /// Warms up, reports that, and measures blocks until standard input ends.
    pub(super) fn measure_blocks(&self) -> CliResult {
        let mode = launch_of_side(self.settings.launch)?;
        let asked = self.requests()?;
        let schedules = self.schedules();
        let first = self.emulated.map_or(0, |(_, rank)| rank);
        let ranks = exec::RankSchedule::all(first, &self.loaded.compiled.ranks, &schedules);
        let options = WarmSessionOptions {
            ranks: &ranks,
            backend: self.chosen.backend.as_ref(),
            mode,
            options: self.exec_options(),
            warmup: self.settings.plan(self.settings.effort).warmup,
            control: &self.control,
        };
        let failed = |error| self.failed(error);
        let started = jiff::Timestamp::now().to_string();
        let mut session = options.open().map_err(failed)?;
        let measured = Measured { variants: Vec::new(), warnings: Vec::new(), interruption: None, failure: None };
        answer(&BlockMessage::Ready(Box::new(WarmedUp {
            record: self.assemble(&schedules, self.plan_facts(&schedules), measured, started, self.timer()),
            launch: mode.name().to_owned(),
            period: session.slots(),
            gated: session.gated(),
            warmup: session.warmup,
            timeout: self.settings.timeout,
            notes: session.notes(),
        })));
        for request in asked {
            answer(&match request {
                BlockRequest::Block(iterations) => BlockMessage::Block(session.block(iterations).map_err(failed)?),
                BlockRequest::TearDown => session.tear_down().map(|()| BlockMessage::TornDown).map_err(failed)?,
            });
        }
        Ok(if self.control.stopped() { INTERRUPTED } else { DONE })
    }

    /// Reads requests from standard input on a thread of its own. The end of the input also stops a block in progress.
    fn requests(&self) -> Result<Receiver<BlockRequest>, ExecError> {
        let (send, receive) = mpsc::channel();
        let control = self.control.clone();
        let listen = move || {
            for line in std::io::stdin().lock().lines() {
                // An error, or a line that is no request, counts as the end.
                let Some(request) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { break };
                if send.send(request).is_err() {
                    return;
                }
            }
            drop(send);
            control.stop.store(true, Ordering::Relaxed);
            std::thread::sleep(GRACE);
            backend::leave(INTERRUPTED);
        };
        let thread = threads::spawn(std::thread::Builder::new(), listen);
        thread.map(|_| receive).map_err(|error| ExecError::no_thread("to read standard input", &error))
    }
}

/// Sends the error that ends this run to `aorta ab`.
pub(super) fn failed(error: &CliError) {
    answer(&BlockMessage::Failed { message: error.text() });
}

fn answer(message: &BlockMessage) {
    output::print(&json::line(message));
}

/// Returns the launch mode of a side of `aorta ab`. Fails for `both`.
pub fn launch_of_side(launch: LaunchSetting) -> Result<LaunchMode, InputError> {
    match launch {
        LaunchSetting::Stream => Ok(LaunchMode::Stream),
        LaunchSetting::Graph => Ok(LaunchMode::Graph),
        LaunchSetting::Both => {
            let help = "write `--launch stream` or `--launch graph`; `--a \"--launch stream\" --b \"--launch graph\"` \
                        compares the two";
            Err(InputError::bad_value("`--launch`", "both", "a side of a comparison is measured in one way", help))
        }
    }
}
