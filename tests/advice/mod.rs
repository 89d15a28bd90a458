//! Advice from plans: found where it holds, absent where it does not, and followed automatically. A text that follows
//! it computes the same, and takes on the simulator at most as much less as the advice says.

mod forms;
mod random;

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::config::Profile;
use aorta::exec::{Backend, Control, LaunchMode};
use aorta::schedule::{self, PlanAdvice};

use crate::common;

/// The simulated device.
fn profile() -> Profile {
    Profile::named("h200").expect("embedded")
}

/// All advice about a text.
fn advice(text: &str) -> Vec<PlanAdvice> {
    let (program, plan) = common::planned(text);
    let sim = Sim::new(profile());
    let schedule = common::placed(&program, &plan, &sim, &schedule::Options::default());
    schedule::advise(&program, &plan, &schedule, &profile())
}

/// The advice of a code.
fn of_code<'a>(all: &'a [PlanAdvice], code: &str) -> Vec<&'a PlanAdvice> {
    all.iter().filter(|one| one.code.ends_with(&format!("::{code}"))).collect()
}

/// The elements of a buffer after two iterations on the CPU.
fn results(text: &str, buffer: &str) -> Vec<f64> {
    let (program, plan) = common::planned(text);
    let host = Host;
    let options = schedule::Options { share_scratch: false, ..schedule::Options::default() };
    let schedule = schedule::place(&program, &plan, host.topology(), &options);
    let mut session = common::session(&program, &schedule, &host);
    session.iterate(LaunchMode::Stream, 0, 2, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    common::buffer(&mut session, &program, buffer)
}

/// Fails unless the elements of two results are as close as their precision allows.
fn assert_close(before: &[f64], after: &[f64], relative: f64, what: &str) {
    assert_eq!(before.len(), after.len());
    let largest = before.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    for (a, b) in before.iter().zip(after) {
        assert!((a - b).abs() <= relative * largest, "{a} became {b}\n{what}");
    }
}
