//! A clock that jumps by an hour during a run.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::Nanos;
use aorta::config::Profile;
use aorta::exec::Backend;
use serde_json::Value;

use crate::common::altered::Altered;
use crate::common::failing::measured;

const FILE: &str = "\
stream s
stream t
buffer x, y: f32[64]
step {
  on s { map(x * 2 -> x) all_reduce(x -> y) }
  on t { copy(y -> x) }
}
";

const HOUR: i64 = 3_600_000_000_000;

/// A clock that jumps by `by` at its `turn`-th query: what was stamped before has a time of before.
fn jump(turn: u64, by: i64) -> impl Fn(Nanos) -> Nanos + Send + Sync + 'static {
    let (looks, moment) = (AtomicU64::new(0), AtomicI64::new(i64::MAX));
    move |time| {
        if looks.fetch_add(1, Ordering::SeqCst) == turn {
            moment.store(time.0, Ordering::SeqCst);
        }
        Nanos(time.0 + if time.0 >= moment.load(Ordering::SeqCst) { by } else { 0 })
    }
}

/// Adds `by` to a single time.
fn blip(turn: u64, by: i64) -> impl Fn(Nanos) -> Nanos + Send + Sync + 'static {
    let looks = AtomicU64::new(0);
    move |time| Nanos(time.0 + if looks.fetch_add(1, Ordering::Relaxed) == turn { by } else { 0 })
}

/// Every duration in a record in ns, with its key. Points in time are left out, since they count from an arbitrary
/// moment.
fn times(value: &Value, key: &str, out: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) if key.ends_with("_ns") => {
            out.push((key.to_owned(), number.as_f64().unwrap_or(f64::NAN)))
        }
        Value::Array(items) => items.iter().for_each(|item| times(item, key, out)),
        Value::Object(fields) => {
            fields.iter().filter(|(key, _)| *key != "at_ns").for_each(|(key, item)| times(item, key, out))
        }
        _ => {}
    }
}

/// No duration is near an hour, unless the run ends with an error, which keeps the correct times before it.
#[test]
fn a_clock_that_jumps_leaves_no_wrong_time() {
    if !crate::common::effort::is_due() {
        return;
    }
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let backends: [&dyn Backend; 2] = [&Host, &sim];
    let turns = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 72, 89, 144, 233, 377, 610, 987];
    let mut failed = 0;
    for (backend, by) in backends.into_iter().flat_map(|backend| [(backend, HOUR), (backend, -HOUR)]) {
        for turn in turns {
            let of_host = Altered::with_host_clock(backend, jump(turn, by));
            let of_device = Altered::with_stamps(backend, blip(turn, by));
            for (clock, altered) in [("host", of_host), ("device", of_device)] {
                let name = format!("{} by {by} ns, {clock}, look {turn}", backend.name());
                let Ok(measured) = measured(FILE, 2, &altered) else {
                    failed += 1;
                    continue;
                };
                failed += u32::from(measured.failure.is_some());
                let record = serde_json::to_value(&measured.variants).expect("plain data");
                let mut found = Vec::new();
                times(&record, "", &mut found);
                found.retain(|(_, time)| time.abs() > HOUR as f64 / 1000.0);
                assert!(found.is_empty(), "{name}: {found:?}, {:?}", measured.failure);
            }
        }
    }
    assert!(failed > 0, "some jump is noticed");
}
