//! The section of a report about hardware counters of chosen operations.

use crate::base::Bytes;
use crate::exec::counters::Count;
use crate::measure::record::RunRecord;

use super::page::{Section, Table};

/// A table with a row for each operation and quantity; `None` if nothing was counted.
pub(super) fn section(record: &RunRecord) -> Option<Section> {
    if record.counters.is_empty() {
        return None;
    }
    let mut table = Table::new(["operation", "counted", "value", "metric"]).left(1).left(3);
    for counted in &record.counters {
        for counter in &counted.counters {
            table.row([counted.name.clone(), counter.text.clone(), value(counter), counter.metric.clone()]);
        }
    }
    let passes = record.counters.iter().map(|counted| counted.passes).max().unwrap_or(0);
    let runs = if passes == 1 { "once".to_owned() } else { format!("up to {passes} times") };
    Some(Section {
        title: "Hardware counters, each operation alone in a run of its own".to_owned(),
        table: Some(table),
        notes: vec![format!("each operation ran {runs} for this, after all before it in the text had completed")],
        ..Section::default()
    })
}

fn value(counter: &Count) -> String {
    match counter.unit.as_str() {
        "B" if counter.value >= 0.0 => Bytes(counter.value.round() as u64).to_string(),
        unit => format!("{:.1} {unit}", counter.value),
    }
}
