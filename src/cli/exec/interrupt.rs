//! Handles Ctrl-C, and the signals by which launchers and shells end processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::{self, preserving_ignored_hangup};
use crate::cli::INTERRUPTED;
use crate::exec::Control;

/// Time after a first signal within which a launcher may repeat it.
const REPEAT_WINDOW: Duration = Duration::from_secs(2);

/// Time allowed for a run to notice the first signal.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(250);

/// Maximum time that an interrupted run takes to report its measurements.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Installs the signal handler. The first Ctrl-C or SIGTERM ends the run after the current iteration, or at once if
/// none has begun: kernels may still be compiling, and there is nothing to keep. If the run is elsewhere, for example
/// in a verification's reference or in a long report, `give_up` ends it shortly after. A second signal ends it at once.
///
/// In a `launched` process, the first signal always waits for the other processes, which would otherwise report this
/// one's end as an error. A launcher may forward a signal that the terminal has already sent, so only a later one
/// counts as the second.
pub(super) fn watch(control: &Arc<Control>, launched: bool, give_up: impl Fn() + Clone + Send + 'static) {
    let control = control.clone();
    let mut first: Option<Instant> = None;
    let handler = move || {
        let waits = match first {
            None => launched || control.begun(),
            Some(first) => launched && first.elapsed() <= REPEAT_WINDOW,
        };
        if !waits {
            backend::leave(INTERRUPTED);
        }
        control.stop.store(true, Ordering::Relaxed);
        if first.is_none() && !launched {
            let (give_up, control) = (give_up.clone(), control.clone());
            let end = move || {
                std::thread::sleep(NOTICE_TIMEOUT);
                if control.has_seen_stop() {
                    std::thread::sleep(REPORT_TIMEOUT);
                }
                give_up();
            };
            // Without a thread, the run ends the next time it checks for an interruption.
            let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(end);
        }
        first.get_or_insert_with(Instant::now);
    };
    // Without a handler, Ctrl-C ends the program at once.
    preserving_ignored_hangup(|| drop(ctrlc::set_handler(handler)));
}
