//! Shows the results of cases on standard error as they end: a line for each, and on a terminal the number of completed
//! cases.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::base::visible;
use crate::cli::io::output;
use crate::measure::cases::Case;

/// Interval between redraws while a case runs.
const REFRESH: Duration = Duration::from_millis(250);

/// Progress of a command that runs cases.
pub struct CaseProgress {
    total: usize,
    ended: usize,
    /// Duration of each case that was run, in seconds.
    took: Vec<f64>,
    /// The redrawn line; `None` if standard error is not a terminal.
    bar: Option<ProgressBar>,
}

impl CaseProgress {
    /// Starts to show the progress of this many cases.
    pub fn start(total: usize) -> CaseProgress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(REFRESH);
            bar
        });
        CaseProgress { total, ended: 0, took: Vec::new(), bar }
    }

    /// Counts cases whose results are in the file already.
    pub fn count_known<'a>(&mut self, cases: impl Iterator<Item = &'a Case>) {
        for case in cases {
            self.ended += 1;
            self.took.extend(Some(case.seconds).filter(|seconds| *seconds > 0.0));
        }
        self.bar.iter().for_each(|bar| bar.set_position(self.ended as u64));
    }

    /// Shows that a case runs.
    pub fn begin(&self, name: &str) {
        let Some(bar) = &self.bar else { return };
        let left = estimate(&self.took, self.total.saturating_sub(self.ended));
        let left = left.map(|seconds| format!(", about {} left", approximate(seconds))).unwrap_or_default();
        bar.set_message(visible::visible(&format!("{name}{left}")).into_owned());
    }

    /// Shows the result of a case.
    pub fn end(&mut self, case: &Case) {
        self.ended += 1;
        self.took.push(case.seconds);
        let line = format!("{} of {}: {}: {}\n", self.ended, self.total, case.name, summary(case));
        match &self.bar {
            Some(bar) => {
                // The line is printed above the one that is redrawn.
                bar.suspend(|| output::eprint(&line));
                bar.inc(1);
            }
            None => output::eprint(&line),
        }
    }

    /// Removes the redrawn line.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for CaseProgress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Summarizes a case's result in a few words.
fn summary(case: &Case) -> String {
    let median = case.record.as_ref().and_then(|record| record.variants.first()?.time.p50_ns);
    let simulated = case.record.as_ref().is_some_and(|record| record.simulated);
    let figure = median.map(|median| format!("{median}{}", if simulated { ", simulated" } else { "" }));
    let status = case.status.name();
    match (figure, &case.reason) {
        (Some(figure), None) => figure,
        (Some(figure), Some(reason)) => format!("{figure} ({status}: {reason})"),
        (None, Some(reason)) => format!("{status}: {reason}"),
        (None, None) => status.to_owned(),
    }
}

/// Estimated seconds for the remaining cases; `None` before the first case has run.
fn estimate(took: &[f64], left: usize) -> Option<f64> {
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    (!took.is_empty()).then_some(mean * left as f64)
}

/// Formats a duration roughly, such as `5 min`.
fn approximate(seconds: f64) -> String {
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
    fn the_remaining_time_is_estimated_from_completed_cases() {
        assert_eq!(estimate(&[], 4), None);
        assert_eq!(estimate(&[1.0, 3.0], 4), Some(8.0));
        assert_eq!(
            [0.2, 90.0, 91.0, 5400.0, 5401.0].map(approximate),
            ["1 s", "90 s", "2 min", "90 min", "1 h 30 min"]
        );
    }
}
