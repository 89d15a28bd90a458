//! How far a sweep is: a line that changes on a terminal, else a line for each case, both on standard error.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::base::visible;
use crate::cli::output;
use crate::measure::cases::Case;

/// How often the line is drawn while a case runs.
const REFRESH: Duration = Duration::from_millis(250);

/// What is told while cases run.
pub struct Progress {
    total: usize,
    ended: Cell<usize>,
    /// How long each case took that was run, in seconds.
    took: RefCell<Vec<f64>>,
    /// On a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// `ended` cases of `total` are known, and those that were run took so many seconds.
    pub fn start(total: usize, ended: usize, took: Vec<f64>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_position(ended as u64);
            bar.enable_steady_tick(REFRESH);
            bar
        });
        Progress { total, ended: Cell::new(ended), took: RefCell::new(took), bar }
    }

    pub fn begin(&self, name: &str) {
        let Some(bar) = &self.bar else { return };
        let left = estimate(&self.took.borrow(), self.total - self.ended.get());
        let left = left.map(|seconds| format!(", about {} left", rough(seconds))).unwrap_or_default();
        bar.set_message(visible::visible(&format!("{name}{left}")).into_owned());
    }

    pub fn end(&self, case: &Case) {
        self.ended.set(self.ended.get() + 1);
        self.took.borrow_mut().push(case.seconds);
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => output::eprint(&format!("{} of {}: {}: {}\n", self.ended.get(), self.total, case.name, said(case))),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A case in a few words.
fn said(case: &Case) -> String {
    let median = case.record.as_ref().and_then(|record| record.variants.first()?.time.p50_ns);
    let simulated = case.record.as_ref().is_some_and(|record| record.simulated);
    let figure = median.map(|median| format!("{median}{}", if simulated { ", simulated" } else { "" }));
    let status = case.status.word();
    match (figure, &case.reason) {
        (Some(figure), None) => figure,
        (Some(figure), Some(reason)) => format!("{figure} ({status}: {reason})"),
        (None, Some(reason)) => format!("{status}: {reason}"),
        (None, None) => status.to_owned(),
    }
}

/// Seconds that so many cases will take, if they are like those that were run.
fn estimate(took: &[f64], left: usize) -> Option<f64> {
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    (!took.is_empty()).then_some(mean * left as f64)
}

/// A time as somebody says it who waits for it.
fn rough(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5400 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_by_what_was() {
        assert_eq!(estimate(&[], 4), None);
        assert_eq!(estimate(&[1.0, 3.0], 4), Some(8.0));
        assert_eq!([0.2, 90.0, 91.0, 5400.0, 5401.0].map(rough), ["1 s", "90 s", "2 min", "90 min", "1 h 30 min"]);
    }
}
