//! Advice from plans: found where it holds, absent where it does not, and followed automatically. A text that follows
//! it computes the same. On a device without a cache it takes as much less as the advice says: on one stream by the
//! simulator, on several by the modelled durations of the operations.

mod chains;
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

/// That device without a cache, so that no operation depends on what others left there.
fn uncached() -> Profile {
    let mut profile = profile();
    profile.cache.0 = 1.0;
    profile
}

/// All advice about a text on a device.
fn advice_on(text: &str, profile: &Profile) -> Vec<PlanAdvice> {
    let (program, plan) = common::planned(text);
    let sim = Sim::new(profile.clone());
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    schedule::advise(&program, &plan, &schedule, profile)
}

fn advice(text: &str) -> Vec<PlanAdvice> {
    advice_on(text, &profile())
}

/// The modelled times of all operations of an iteration on a device, in ns.
fn modelled(text: &str, profile: &Profile) -> f64 {
    let (program, plan) = common::planned(text);
    let sim = Sim::new(profile.clone());
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    schedule::durations(&program, &schedule, program.rank, profile).iter().flatten().sum()
}

/// The time of a gated iteration on a simulated device without the gaps between its operations, in ns. For programs of
/// one stream.
fn simulated(text: &str, profile: &Profile) -> f64 {
    let (program, plan) = common::planned(text);
    let gaps = program.cycle[0].ops.len() as f64 * profile.gap_same.value();
    let sim = Sim::new(profile.clone());
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    let mut session = common::session(&program, &plan, &schedule, &sim);
    let samples = session.iterate(LaunchMode::Stream, 1, 1, &Control::default());
    samples.unwrap_or_else(|error| panic!("{error}")).time[0].0 as f64 - gaps
}

/// The advice of a code.
fn of_code<'a>(all: &'a [PlanAdvice], code: &str) -> Vec<&'a PlanAdvice> {
    all.iter().filter(|one| one.code.ends_with(&format!("::{code}"))).collect()
}

/// The elements of a buffer after two iterations on the CPU.
fn results(text: &str, buffer: &str) -> Vec<f64> {
    let (program, plan) = common::planned(text);
    let host = Host;
    let options = schedule::ScheduleOptions { share_scratch: false, ..schedule::ScheduleOptions::default() };
    let schedule = schedule::place(&program, &plan, host.topology(), &options);
    let mut session = common::session(&program, &plan, &schedule, &host);
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

/// The joint products among the advice about a step with these products of `x`.
fn joint_products(products: &str) -> Vec<String> {
    let text = format!(
        "buffer x, w, v: bf16[512, 512]\nbuffer y: bf16[512, 512]\nstep {{\n{products}\n  map(a + b + c -> y)\n}}\n"
    );
    of_code(&advice(&text), "joint_products").into_iter().map(|one| one.help.clone()).collect()
}

/// A forward that is computed again for its gradients has each product twice.
#[test]
fn a_product_that_is_computed_again_is_not_joined_with_itself() {
    let none: [String; 0] = [];
    assert_eq!(joint_products("  a: gemm(x, w)\n  b: gemm(x, w)\n  c: gemm(x, w)"), none);
    let two = joint_products("  a: gemm(x, w)\n  b: gemm(x, v)\n  c: gemm(x, w)");
    assert_eq!(two, ["declare `w`, `v` as one buffer, side by side, multiply once, and read slices of the product"]);
}
