//! A hung iteration is reported when its time is over, not when it ends after all.

use aorta::backend::host::Host;
use aorta::base::Nanos;
use aorta::exec::{Control, ExecError, LaunchMode};

use crate::common::world::World;

/// The error of an iteration on the CPU that does not end within 20 ms.
fn hung(text: &str) -> ExecError {
    let world = World::new(text, 1, &Host);
    let mut ranks = world.open(&Host, Nanos(20_000_000)).expect("it can be prepared");
    ranks.iterate(LaunchMode::Stream, 0, 1, &Control::default()).expect_err("it does not end")
}

#[test]
fn a_hang_on_the_cpu_is_reported_and_abandoned() {
    // Waiting for these streams would take an hour, so the test only ends if nothing waits for them.
    let error = hung("stream s[2] step { for i in 0..360 { on s[0] { spin(10s) } } on s[1] { nop() } }");
    let ExecError::Hang { iteration: 0, exact: true, .. } = error else { panic!("{error}") };
}

#[test]
fn a_hang_of_the_setup_is_named() {
    let error = hung("setup { for i in 0..360 { spin(10s) } } step { nop() }");
    assert!(error.to_string().starts_with("the `setup` did not end within"), "{error}");
}
