//! Rates over one traced iteration: occupied compute units, bytes per second of the running operations, and number
//! of running copies.
//!
//! An operation contributes its mean rate while it runs or transfers. Rates are therefore means over operations, also
//! in measured runs, and not samples of a device's counters. Only the simulator reports occupied compute units.

use crate::base::Nanos;
use crate::measure::record::{OperationRecord, RankRecord};
use crate::report::quantity::quantity;

/// A value over the iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    pub name: &'static str,
    /// Unit of the values: `B/s`, or empty for a number.
    pub unit: &'static str,
    /// Time of each change of the value, and the new value. The last value is 0.
    pub points: Vec<(Nanos, f64)>,
}

impl Rate {
    /// The name with the unit, such as `memory of the device (B/s)`.
    pub fn title(&self) -> String {
        if self.unit.is_empty() { self.name.to_owned() } else { format!("{} ({})", self.name, self.unit) }
    }

    /// A value with its unit.
    pub fn text(&self, value: f64) -> String {
        quantity(value, self.unit)
    }

    /// The mean in each of equal steps of time from 0 up to `most` ns.
    pub fn means(&self, steps: usize, most: f64) -> Vec<f64> {
        let step = most / steps as f64;
        let mut sums = vec![0.0; steps];
        let ends = self.points.iter().skip(1).map(|(at, _)| at.0 as f64).chain([most]);
        for ((from, value), to) in self.points.iter().zip(ends) {
            let from = (from.0 as f64).max(0.0);
            let mut index = (from / step) as usize;
            while *value > 0.0 && index < steps && (index as f64) * step < to {
                let overlap = to.min((index + 1) as f64 * step) - from.max(index as f64 * step);
                sums[index] += value * overlap.max(0.0);
                index += 1;
            }
        }
        sums.into_iter().map(|sum| sum / step).collect()
    }
}

/// Name of a rate, and the function that returns an operation's bytes for it.
type RateBytes = (&'static str, fn(&OperationRecord) -> f64);

/// The rates in bytes per second, each with its name.
const BYTES: [RateBytes; 3] = [
    ("memory of the device", |operation| if crosses(operation) { 0.0 } else { operation.bytes as f64 }),
    ("link to the host", |operation| match operation.direction.as_deref() {
        Some("h2d" | "d2h") => operation.bytes as f64,
        _ => 0.0,
    }),
    ("links between ranks", |operation| operation.bus_bytes.unwrap_or(0.0)),
];

/// True for a copy over a link and for an operation between ranks.
fn crosses(operation: &OperationRecord) -> bool {
    operation.bus_bytes.is_some() || matches!(operation.direction.as_deref(), Some("h2d" | "d2h" | "peer"))
}

/// The rates of a rank's traced iteration that are not 0 throughout.
pub fn rates(rank: &RankRecord, shift: Nanos) -> Vec<Rate> {
    let units = rank.occupied.iter().map(|occupied| (occupied.at_ns + shift, occupied.units)).collect();
    let units = Rate { name: "occupied compute units", unit: "", points: units };
    let of_bytes = BYTES.into_iter().map(|named| bytes_per_second(rank, shift, named));
    let all = std::iter::once(units).chain(of_bytes).chain([copies(rank, shift)]);
    all.filter(|rate| rate.points.iter().any(|(_, value)| *value > 0.0)).collect()
}

fn bytes_per_second(rank: &RankRecord, shift: Nanos, (name, bytes): RateBytes) -> Rate {
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
    Rate { name, unit: "B/s", points: sums(changes) }
}

/// The number of copies to and from a device that engines perform at the same time. Within a device, kernels copy.
fn copies(rank: &RankRecord, shift: Nanos) -> Rate {
    let crosses = |operation: &OperationRecord| operation.direction.as_ref().is_some_and(|way| way != "d2d");
    let by_engine = rank.trace.iter().filter(|span| crosses(&rank.operations[span.id as usize]));
    let changes = by_engine.flat_map(|span| [(span.start_ns + shift, 1.0), (span.end_ns + shift, -1.0)]);
    Rate { name: "copies by copy engines", unit: "", points: sums(changes.collect()) }
}

/// The sum after each moment with changes.
fn sums(mut changes: Vec<(Nanos, f64)>) -> Vec<(Nanos, f64)> {
    changes.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut points: Vec<(Nanos, f64)> = Vec::new();
    let (mut sum, mut most) = (0.0, 0.0f64);
    for (at, change) in changes {
        sum += change;
        most = most.max(sum);
        // Rounding errors keep the sum from ending at exactly 0.
        let value = if sum < most * 1e-9 { 0.0 } else { sum };
        match points.last_mut().filter(|last| last.0 == at) {
            Some(last) => last.1 = value,
            None => points.push((at, value)),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::{OccupiedRecord, SpanRecord};

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
            occupied: vec![
                OccupiedRecord { at_ns: Nanos(0), units: 1.5 },
                OccupiedRecord { at_ns: Nanos(250), units: 0.0 },
            ],
            ..RankRecord::default()
        };
        let rates = rates(&rank, Nanos(10));
        assert_eq!(
            rates.iter().map(|rate| rate.name).collect::<Vec<_>>(),
            ["occupied compute units", "memory of the device", "links between ranks"]
        );
        assert_eq!(rates[0].points, [(Nanos(10), 1.5), (Nanos(260), 0.0)]);
        let rounded = |rate: &Rate| -> Vec<(i64, f64)> {
            rate.points.iter().map(|(at, value)| (at.0, (value / 1e6).round())).collect()
        };
        assert_eq!(rounded(&rates[1]), [(10, 1000.0), (60, 3000.0), (110, 2000.0), (260, 0.0)]);
        assert_eq!(rounded(&rates[2]), [(60, 1000.0), (110, 0.0)]);
    }

    #[test]
    fn copies_by_engines_are_counted() {
        let copy = OperationRecord { direction: Some("h2d".to_owned()), bytes: 8, ..OperationRecord::default() };
        let span = |id: u32, start: i64, end: i64| SpanRecord { id, start_ns: Nanos(start), end_ns: Nanos(end) };
        let rank = RankRecord {
            operations: vec![copy.clone(), copy, OperationRecord::default()],
            trace: vec![span(0, 0, 100), span(1, 50, 150), span(2, 0, 400)],
            ..RankRecord::default()
        };
        let rates = rates(&rank, Nanos(0));
        let copies = rates.last().expect("there are copies");
        let expected = [(0, 1.0), (50, 2.0), (100, 1.0), (150, 0.0)].map(|(at, value)| (Nanos(at), value));
        assert_eq!((copies.name, &copies.points[..]), ("copies by copy engines", &expected[..]));
        assert_eq!(copies.means(2, 200.0), [1.5, 0.5]);
    }
}
