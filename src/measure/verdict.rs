//! What an iteration waits for most, in words, and what usually helps.

use crate::base::Nanos;

use super::record::{CategoryRecord, SplitRecord};

/// The share of an iteration from which on a tail is told.
const TAIL: f64 = 0.25;

/// Parts of an iteration that are less than this share of it make no verdict.
const LITTLE: f64 = 0.25;

/// The verdict and what usually helps. `tail` is the time at the end in which only one stream has
/// work left.
pub fn verdict(split: &SplitRecord, categories: &[CategoryRecord], tail: Nanos) -> (String, String) {
    let mut parts: Vec<(&str, Nanos)> =
        categories.iter().map(|category| (category.category.as_str(), category.chain_ns)).collect();
    parts.extend([
        ("launch", split.launch_ns),
        ("queue", split.queue_ns),
        ("dependency", split.dependency_ns),
        ("idle", split.idle_ns),
    ]);
    let whole = split.time_ns.0.max(1) as f64;
    // Of equal parts, the first.
    let largest = parts.iter().rev().max_by_key(|(_, time)| *time).copied();
    let Some((part, time)) = largest.filter(|(_, time)| time.0 > 0) else {
        return ("nothing ran".to_owned(), String::new());
    };
    let share = time.0 as f64 / whole;
    let (name, what, help) = words(part);
    let name = if share < LITTLE { "balanced, no part is large" } else { name };
    let mut verdict = format!(
        "{name}: {what} is {:.0} % of what the iteration waits for ({time} of {})",
        share * 100.0,
        split.time_ns
    );
    // Where waiting decides, the end waits too.
    let works = categories.iter().any(|category| category.category == part);
    if works && tail.0 as f64 > TAIL * whole {
        verdict +=
            &format!("; for the last {:.0} % only one stream has work left: a tail", 100.0 * tail.0 as f64 / whole);
    }
    (verdict, help.to_owned())
}

/// The name of a bound, what is meant, and what usually helps.
fn words(part: &str) -> (&'static str, &'static str, &'static str) {
    match part {
        "launch" => (
            "host-bound",
            "waiting for the host",
            "`--launch graph` issues an iteration by one call; fewer and larger operations need fewer calls",
        ),
        "queue" => (
            "queue-bound",
            "waiting behind other streams on a hardware queue",
            "fewer streams, or more queues: `--env CUDA_DEVICE_MAX_CONNECTIONS=32`; issue independent operations first",
        ),
        "dependency" => (
            "launch-bound",
            "the time between one operation and the next",
            "operations are short beside what starts them: fuse them, or give each more to do; `--launch graph` \
             shortens the way from one to the next",
        ),
        "idle" => (
            "bound by its ends",
            "beginning and ending the iteration",
            "the iteration is short beside its stamps: give it more to do, or overlap iterations by `sync: end`",
        ),
        "matrix" => (
            "GEMM-bound",
            "matrix multiplication",
            "a smaller type, shapes that fill all units, and less beside it that takes units away",
        ),
        "copy" => (
            "copy-bound",
            "copying",
            "pinned memory in place of the host's, larger pieces, and computation that needs other data meanwhile",
        ),
        "collective" => (
            "bound by exposed communication",
            "communication",
            "start it earlier, in pieces, on a stream of its own, with computation that needs other data meanwhile",
        ),
        "movement" => (
            "bound by data movement",
            "moving data within the device",
            "let the operation before write in the order that the one behind reads, so that the move is not needed",
        ),
        "synthetic" => ("bound by synthetic work", "synthetic work", "it lasts as long as the file says"),
        "row-wise" => (
            "bound by row-wise operations",
            "row-wise work",
            "each element is read and written again: a smaller type, and fewer passes over the data",
        ),
        _ => (
            "bound by elementwise operations",
            "elementwise work",
            "each element is read and written again: join neighbouring `map`s into one, or take a smaller type",
        ),
    }
}

/// What usually helps an operation of a category.
pub fn help(category: &str) -> &'static str {
    words(category).2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn category(name: &str, chain: i64) -> CategoryRecord {
        CategoryRecord {
            category: name.to_owned(),
            operations: 1,
            busy_ns: Nanos(chain),
            exposed_ns: None,
            chain_ns: Nanos(chain),
        }
    }

    #[test]
    fn the_largest_part_of_the_chain_decides() {
        let split = SplitRecord {
            time_ns: Nanos(1000),
            operations_ns: Nanos(700),
            dependency_ns: Nanos(200),
            idle_ns: Nanos(100),
            ..SplitRecord::default()
        };
        let said = |categories: &[CategoryRecord], tail| verdict(&split, categories, Nanos(tail)).0;
        assert_eq!(
            said(&[category("matrix", 600), category("copy", 100)], 0),
            "GEMM-bound: matrix multiplication is 60 % of what the iteration waits for (600 ns of 1.000 µs)"
        );
        assert!(said(&[category("copy", 400), category("matrix", 300)], 0).starts_with("copy-bound"));
        assert!(said(&[category("collective", 700)], 0).starts_with("bound by exposed communication"));
        assert!(said(&[category("matrix", 150)], 0).starts_with("balanced, no part is large: the time between"));
        assert!(
            said(&[category("matrix", 700)], 300).ends_with("for the last 30 % only one stream has work left: a tail")
        );
        let host = SplitRecord { time_ns: Nanos(100), launch_ns: Nanos(80), ..SplitRecord::default() };
        assert!(verdict(&host, &[category("copy", 20)], Nanos(0)).0.starts_with("host-bound: waiting for the host"));
        assert_eq!(verdict(&SplitRecord::default(), &[], Nanos(0)).0, "nothing ran");
    }
}
