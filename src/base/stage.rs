//! The stages of a run, such as compiling kernels, for the message of a run that is interrupted.

use std::fmt;
use std::sync::Mutex;

use super::counted;
use super::threads::lock;

/// A stage that a thread of this process is in.
#[derive(Debug)]
struct Stage {
    number: u64,
    /// A verb and its object, such as `compiling`.
    doing: &'static str,
    steps: Option<StepCount>,
}

/// Progress of a stage whose steps are counted.
#[derive(Debug)]
struct StepCount {
    /// Name of a step, such as `kernel`.
    unit: &'static str,
    done: usize,
    all: usize,
}

#[derive(Debug)]
struct Stages {
    /// Stages under way, in the order in which they began.
    under_way: Vec<Stage>,
    begun: u64,
}

static STAGES: Mutex<Stages> = Mutex::new(Stages { under_way: Vec::new(), begun: 0 });

/// Handle of a stage, which lasts until the handle is dropped.
#[derive(Debug)]
#[must_use]
pub struct InStage(u64);

/// Begins a stage without counted steps: `enter("planning")`.
pub fn enter(doing: &'static str) -> InStage {
    begin(doing, None)
}

/// Begins a stage of `all` steps: `enter_counted("compiling", "kernel", 120)`.
pub fn enter_counted(doing: &'static str, unit: &'static str, all: usize) -> InStage {
    begin(doing, Some(StepCount { unit, done: 0, all }))
}

fn begin(doing: &'static str, steps: Option<StepCount>) -> InStage {
    let mut stages = lock(&STAGES);
    stages.begun += 1;
    let number = stages.begun;
    stages.under_way.push(Stage { number, doing, steps });
    InStage(number)
}

impl InStage {
    /// Counts a completed step.
    pub fn step(&self) {
        let mut stages = lock(&STAGES);
        let stage = stages.under_way.iter_mut().find(|stage| stage.number == self.0);
        if let Some(steps) = stage.and_then(|stage| stage.steps.as_mut()) {
            steps.done += 1;
        }
    }
}

impl Drop for InStage {
    fn drop(&mut self) {
        lock(&STAGES).under_way.retain(|stage| stage.number != self.0);
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.doing)?;
        let Some(StepCount { unit, done, all }) = &self.steps else { return Ok(()) };
        let was = if *done == 1 { "was" } else { "were" };
        write!(f, " {}, of which {done} {was} done", counted(*all, unit))
    }
}

/// The stage that began last, with its progress: `compiling 120 kernels, of which 37 were done`. `None` outside of all
/// stages.
pub fn describe() -> Option<String> {
    lock(&STAGES).under_way.last().map(Stage::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_described_until_it_ends() {
        // Other tests may be in stages of their own.
        let text =
            |stage: u64| lock(&STAGES).under_way.iter().find(|found| found.number == stage).map(Stage::to_string);
        let planning = enter("planning");
        assert_eq!(text(planning.0).as_deref(), Some("planning"));
        let kernels = enter_counted("compiling", "kernel", 3);
        let number = kernels.0;
        assert!(describe().is_some());
        assert_eq!(text(number).as_deref(), Some("compiling 3 kernels, of which 0 were done"));
        kernels.step();
        assert_eq!(text(number).as_deref(), Some("compiling 3 kernels, of which 1 was done"));
        drop(kernels);
        assert_eq!(text(number), None);
        assert!(text(planning.0).is_some());
    }
}
