//! A hung iteration is reported when its time is over, not when it ends after all.

use aorta::backend::host::Host;
use aorta::base::Nanos;
use aorta::exec::{self, Control, ExecError, LaunchMode};
use aorta::schedule;

use crate::common;

#[test]
fn a_hang_on_the_cpu_is_reported_and_abandoned() {
    // Waiting for these streams would take an hour, so the test only ends if nothing waits for them.
    let (program, plan) =
        common::planned("stream s[2] step { for i in 0..360 { on s[0] { spin(10s) } } on s[1] { nop() } }");
    let schedule = common::placed(&program, &plan, &Host, &schedule::ScheduleOptions::default());
    let options = exec::SessionOptions { timeout: Nanos(20_000_000), ..common::exec_options() };
    let mut session = exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &Host, &options)
        .expect("it can be prepared");
    let error = session.iterate(LaunchMode::Stream, 0, 1, &Control::default()).expect_err("it does not end");
    let ExecError::Hang { iteration: 0, exact: true, .. } = error else { panic!("{error}") };
    drop(session);
}

#[test]
fn a_hang_of_the_setup_is_named() {
    let (program, plan) = common::planned("setup { for i in 0..360 { spin(10s) } } step { nop() }");
    let schedule = common::placed(&program, &plan, &Host, &schedule::ScheduleOptions::default());
    let options = exec::SessionOptions { timeout: Nanos(20_000_000), ..common::exec_options() };
    let mut session = exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &Host, &options)
        .expect("it can be prepared");
    let error = session.iterate(LaunchMode::Stream, 0, 1, &Control::default()).expect_err("it does not end");
    assert!(error.to_string().starts_with("the `setup` did not end within"), "{error}");
}
