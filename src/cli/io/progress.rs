//! A progress bar for long runs on a terminal. It reads a counter on a thread of its own, so the run never waits for
//! it.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::base::threads;
use crate::exec::Control;

/// Time before the bar appears.
const BAR_DELAY: Duration = Duration::from_millis(700);

/// Interval between redraws.
const REFRESH: Duration = Duration::from_millis(100);

/// A progress bar that disappears when dropped.
pub struct TransientBar {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TransientBar {
    /// Shows the iterations of a run.
    pub fn start(control: Arc<Control>, total: u64) -> TransientBar {
        TransientBar::counting(move || control.done.load(Ordering::Relaxed), total, "iterations")
    }

    /// Shows anything that is counted. `count` returns how many of `total` are done, and `what` names them.
    pub fn counting(count: impl Fn() -> u64 + Send + 'static, total: u64, what: &'static str) -> TransientBar {
        let ended = Arc::new(AtomicBool::new(false));
        let there = ended.clone();
        let draw = move || draw(&count, total, what, &there);
        // If the system refuses to create a thread, the run continues without a bar.
        let thread =
            std::io::stderr().is_terminal().then(|| threads::spawn(std::thread::Builder::new(), draw).ok()).flatten();
        TransientBar { ended, thread }
    }
}

fn draw(count: &impl Fn() -> u64, total: u64, what: &str, ended: &AtomicBool) {
    let mut waited = Duration::ZERO;
    while waited < BAR_DELAY {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(REFRESH);
        waited += REFRESH;
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} left"));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    while !ended.load(Ordering::Relaxed) {
        bar.set_position(count().min(total));
        std::thread::sleep(REFRESH);
    }
    bar.finish_and_clear();
}

impl Drop for TransientBar {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A failure of the bar does not matter.
            let _ = thread.join();
        }
    }
}
