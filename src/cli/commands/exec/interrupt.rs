//! Handles Ctrl-C, and the signals by which launchers and shells end processes.

use std::sync::{Arc, OnceLock, mpsc};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::backend::{self, preserving_ignored_hangup};
use crate::cli::INTERRUPTED;
use crate::cli::io::output;
use crate::exec::Control;

/// Time after a first signal within which a launcher may repeat it.
const REPEAT_WINDOW: Duration = Duration::from_secs(2);

/// Time allowed for a run to notice the first signal, and for a message to be written.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(250);

/// Maximum time that an interrupted run takes to report its measurements.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The message of an interrupted run that has no results: `how` is what [`Control::interruption`] returns.
pub(super) fn without_results(how: &str) -> String {
    format!("{how}; nothing was measured\n")
}

/// Prints a message to standard error before the process ends. Standard error may be a full pipe, or locked by a thread that
/// writes to one, so a thread of its own writes the message, and a limited time is allowed for it.
pub(super) fn print_in_time(message: String) {
    let (written, end) = mpsc::channel::<()>();
    let write = move || {
        output::eprint(&message);
        drop(written);
    };
    if Builder::new().spawn(write).is_ok() {
        let _ = end.recv_timeout(NOTICE_TIMEOUT);
    }
}

/// The reaction of this process to signals.
pub(super) struct Interrupts {
    control: Arc<Control>,
    /// True if this process prints.
    leads: bool,
    /// True if a launcher has started this process.
    launched: bool,
    /// Reports partial results and ends the process; empty until there can be results.
    give_up: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Interrupts {
    /// Installs the signal handler. The first Ctrl-C or SIGTERM ends the run after the current iteration. If no iteration
    /// has begun, there is nothing to keep: a message says what was under way, such as compiling kernels, and the process
    /// ends at once. A second signal ends it at once.
    ///
    /// In a `launched` process, the first signal always waits for the other processes, which would otherwise report this
    /// one's end as an error. A launcher may forward a signal that the terminal has already sent, so only a later one
    /// counts as the second.
    pub fn watch(control: &Arc<Control>, leads: bool, launched: bool) -> Arc<Interrupts> {
        let interrupts = Arc::new(Interrupts { control: control.clone(), leads, launched, give_up: OnceLock::new() });
        let mut first: Option<Instant> = None;
        let seen = interrupts.clone();
        // The handler runs on a thread of its own, not in the context of the signal.
        let handler = move || {
            match first {
                None => seen.clone().first(),
                Some(first) if seen.launched && first.elapsed() <= REPEAT_WINDOW => {}
                Some(_) => backend::leave(INTERRUPTED),
            }
            first.get_or_insert_with(Instant::now);
        };
        // Without a handler, Ctrl-C ends the program at once.
        preserving_ignored_hangup(|| drop(ctrlc::set_handler(handler)));
        interrupts
    }

    /// Sets the function that ends an interrupted run shortly after the signal if it does not end by itself, for example
    /// because it computes a verification's reference or writes a long report. The first call counts.
    pub fn give_up_by(&self, give_up: impl Fn() + Send + Sync + 'static) {
        let _ = self.give_up.set(Box::new(give_up));
    }

    /// Reacts to the first signal.
    fn first(self: Arc<Self>) {
        self.control.interrupt();
        if self.launched {
            return;
        }
        if !self.control.begun() {
            self.leave_without_results();
        }
        let end = move || {
            std::thread::sleep(NOTICE_TIMEOUT);
            if self.control.has_seen_stop() {
                std::thread::sleep(REPORT_TIMEOUT);
            }
            self.give_up.get().into_iter().for_each(|give_up| give_up());
        };
        // Without a thread, the run ends the next time it checks for an interruption.
        let _ = Builder::new().name("interrupt".to_owned()).spawn(end);
    }

    /// Says what was under way, and ends the process.
    fn leave_without_results(&self) -> ! {
        if self.leads {
            print_in_time(without_results(&self.control.interruption()));
        }
        backend::leave(INTERRUPTED)
    }
}
