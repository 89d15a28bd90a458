//! Rates over one traced iteration: what the running operations move each second.
//!
//! An operation counts with its mean rate while it runs, or transfers. So the values are means over operations, of
//! measured runs as of simulated ones, and no samples of a device's counters.

use crate::base::Nanos;
use crate::measure::record::{OperationRecord, RankRecord};

/// A rate over the iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    pub name: &'static str,
    /// When the rate changes, and its value from then on in bytes per second. Ends with 0.
    pub points: Vec<(Nanos, f64)>,
}

/// A counter with the bytes of an operation that count for it.
type Counted = (&'static str, fn(&OperationRecord) -> f64);

/// The counters, each with its name.
const COUNTERS: [Counted; 3] = [
    ("memory of the device", |operation| if crosses(operation) { 0.0 } else { operation.bytes as f64 }),
    ("link to the host", |operation| match operation.direction.as_deref() {
        Some("h2d" | "d2h") => operation.bytes as f64,
        _ => 0.0,
    }),
    ("links between ranks", |operation| operation.bus_bytes.unwrap_or(0.0)),
];

/// True for a copy over a link and for what ranks do together.
fn crosses(operation: &OperationRecord) -> bool {
    operation.bus_bytes.is_some() || matches!(operation.direction.as_deref(), Some("h2d" | "d2h" | "peer"))
}

/// The counters of a rank's traced iteration that are not 0 throughout.
pub fn counters(rank: &RankRecord, shift: Nanos) -> Vec<Counter> {
    let of = |(name, bytes): Counted| {
        let mut changes: Vec<(Nanos, f64)> = Vec::new();
        for span in &rank.trace {
            let operation = &rank.operations[span.id as usize];
            // An operation between ranks first waits for the others.
            let transfer = operation.transfer_ns.unwrap_or(span.end_ns - span.start_ns);
            let begin = span.start_ns.max(span.end_ns - transfer);
            let seconds = (span.end_ns - begin).seconds();
            let bytes = bytes(operation);
            if bytes > 0.0 && seconds > 0.0 {
                changes.extend([(begin + shift, bytes / seconds), (span.end_ns + shift, -bytes / seconds)]);
            }
        }
        changes.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        Counter { name, points: sums(&changes) }
    };
    COUNTERS.into_iter().map(of).filter(|counter| !counter.points.is_empty()).collect()
}

/// The sum after each moment with changes.
fn sums(changes: &[(Nanos, f64)]) -> Vec<(Nanos, f64)> {
    let mut points: Vec<(Nanos, f64)> = Vec::new();
    let (mut sum, mut most) = (0.0, 0.0f64);
    for (at, change) in changes {
        sum += change;
        most = most.max(sum);
        // A sum of differences does not end at 0 exactly.
        let value = if sum < most * 1e-9 { 0.0 } else { sum };
        match points.last_mut().filter(|last| last.0 == *at) {
            Some(last) => last.1 = value,
            None => points.push((*at, value)),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::SpanRecord;

    #[test]
    fn rates_add_up_where_operations_overlap() {
        let operation = |bytes: u64, transfer: Option<i64>| OperationRecord {
            bytes,
            transfer_ns: transfer.map(Nanos),
            bus_bytes: transfer.map(|_| 50.0),
            ..OperationRecord::default()
        };
        let span = |id: u32, start: i64, end: i64| SpanRecord { id, start_ns: Nanos(start), end_ns: Nanos(end) };
        let rank = RankRecord {
            operations: vec![operation(100, None), operation(400, None), operation(7, Some(50))],
            trace: vec![span(0, 0, 100), span(1, 50, 250), span(2, 0, 100)],
            ..RankRecord::default()
        };
        let counters = counters(&rank, Nanos(10));
        assert_eq!(
            counters.iter().map(|counter| counter.name).collect::<Vec<_>>(),
            ["memory of the device", "links between ranks"]
        );
        let rounded = |counter: &Counter| -> Vec<(i64, f64)> {
            counter.points.iter().map(|(at, value)| (at.0, (value / 1e6).round())).collect()
        };
        assert_eq!(rounded(&counters[0]), [(10, 1000.0), (60, 3000.0), (110, 2000.0), (260, 0.0)]);
        assert_eq!(rounded(&counters[1]), [(60, 1000.0), (110, 0.0)]);
    }
}
