//! What Ctrl-C does, and a launcher or a shell that ends its processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::keeping_hang_ups;
use crate::cli::INTERRUPTED;
use crate::exec::Control;

/// How long after a first signal a launcher may send another of the same meaning.
const PASSED_ON: Duration = Duration::from_secs(2);

/// The first Ctrl-C, or SIGTERM, ends the run after the iteration under way, the second at once. A launcher passes on what a terminal
/// may have told its processes already: of what is `launched`, only a later one is the second.
pub(super) fn watch(control: &Arc<Control>, launched: bool) {
    let control = control.clone();
    let mut first: Option<Instant> = None;
    let handler = move || {
        control.stop.store(true, Ordering::Relaxed);
        if first.is_some_and(|first| !launched || first.elapsed() > PASSED_ON) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        first.get_or_insert_with(Instant::now);
    };
    // Without a handler, Ctrl-C ends the program as it always does.
    keeping_hang_ups(|| drop(ctrlc::set_handler(handler)));
}
