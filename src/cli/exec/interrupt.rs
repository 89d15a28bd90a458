//! What Ctrl-C does, and a launcher or a shell that ends its processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::{self, keeping_hang_ups};
use crate::cli::INTERRUPTED;
use crate::exec::Control;

/// How long after a first signal a launcher may send another of the same meaning.
const PASSED_ON: Duration = Duration::from_secs(2);

/// How long after a first signal a run may take to notice that it has to end.
const PATIENCE: Duration = Duration::from_millis(400);

/// How long a run that has noticed may take to tell what it has measured.
const TELLS: Duration = Duration::from_secs(10);

/// The first Ctrl-C, or SIGTERM, ends the run after the iteration under way, and at once while none has begun: kernels may
/// still be compiled, and there is nothing to keep. A run that is somewhere else, as in the reference of a verification,
/// or in a long report, is ended after a moment by `give_up`. The second signal ends it at once.
///
/// Of what is `launched`, the first waits for the others always: processes end together, and one that was gone before them
/// would be their error. And as a launcher passes on what a terminal may have told its processes already, only a later one
/// is the second.
pub(super) fn watch(control: &Arc<Control>, launched: bool, give_up: impl Fn() + Clone + Send + 'static) {
    let control = control.clone();
    let mut first: Option<Instant> = None;
    let handler = move || {
        let waits = match first {
            None => launched || control.begun(),
            Some(first) => launched && first.elapsed() <= PASSED_ON,
        };
        if !waits {
            backend::leave(INTERRUPTED);
        }
        control.stop.store(true, Ordering::Relaxed);
        if first.is_none() && !launched {
            let (give_up, control) = (give_up.clone(), control.clone());
            let end = move || {
                std::thread::sleep(PATIENCE);
                if control.noticed() {
                    std::thread::sleep(TELLS);
                }
                give_up();
            };
            // Without a thread, the run ends when it looks whether it was stopped.
            let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(end);
        }
        first.get_or_insert_with(Instant::now);
    };
    // Without a handler, Ctrl-C ends the program as it always does.
    keeping_hang_ups(|| drop(ctrlc::set_handler(handler)));
}
