//! Every call of a driver fails once, on the CPU and on the simulator: nothing panics or hangs, the failure is reported
//! with its rank and location, and earlier measurements are kept. With `AORTA_LONG`, as in `.ci/long`, each of up to
//! 100 calls of a name fails; otherwise the first and the last.

use std::collections::BTreeMap;

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::config::Profile;
use aorta::exec::Backend;

use crate::common::altered::{Altered, Calls};
use crate::common::failing::{ITERATIONS, judge, measured, run, turns};
use crate::common::mock::{Mock, Script};

const RANKS: u32 = 2;

fn sim() -> Sim {
    Sim::new(Profile::named("h200").expect("embedded"))
}

#[test]
fn every_call_of_a_driver_fails_once() {
    let sim = sim();
    let backends: [&dyn Backend; 2] = [&Host, &sim];
    let mut wrong = Vec::new();
    for backend in backends {
        let calls = Calls::counted();
        let (_, error) = run(RANKS, &Altered::with_calls(backend, calls.clone()));
        assert!(error.is_none(), "{error:?}");
        for (call, count) in calls.made() {
            let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
            for turn in turns(count) {
                match judge(RANKS, backend, call, turn) {
                    Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                    Err(why) => wrong.push(why),
                }
            }
            println!("{}: {call}: {outcomes:?} of {count} calls", backend.name());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// An operation is launched once in each iteration, so the number of the launch that fails says how many were complete.
#[test]
fn samples_before_a_failure_are_kept() {
    let text = "buffer x: f32[64]\nstep(sync: iteration) { map(x * 2 -> x) }";
    for turn in 0..2 + ITERATIONS as u32 {
        let mock = Mock::new(Script { fails: Some(("launch #0 map on main", turn)), ..Script::default() });
        let result = measured(text, 1, &mock);
        let before = (turn as usize).saturating_sub(2).min(ITERATIONS);
        match result {
            // The host is up to two iterations ahead of what is complete.
            Err(_) => assert!(before <= 2, "launch {turn}"),
            Ok(measured) => {
                let n = measured.variants[0].time.n;
                assert!(n > 0 && n <= before && (n + 2 >= before), "launch {turn}: {n} of {before} are kept");
                assert!(measured.failure.is_some() && !measured.is_complete(), "launch {turn}");
            }
        }
    }
}
