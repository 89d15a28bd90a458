//! The sections of a report about hardware counters of chosen operations and the compute units that ran their blocks.

use std::collections::BTreeSet;

use crate::base::Bytes;
use crate::exec::counters::{CounterValue, UnitBlocks};
use crate::measure::record::{CountersRecord, RunRecord};
use crate::report::page::{ABSENT, Section, Table};

/// The sections of a record, none without `--counters`.
pub(super) fn sections(record: &RunRecord) -> impl Iterator<Item = Section> {
    [counters(&record.counters), units(record)].into_iter().flatten()
}

/// A table with a row for each operation and quantity; `None` if nothing was counted.
fn counters(records: &[CountersRecord]) -> Option<Section> {
    let passes = records.iter().map(|counted| counted.passes).max().filter(|passes| *passes > 0)?;
    let mut table = Table::new(["operation", "counted", "value", "metric"]).left(1).left(3);
    let mut refused = BTreeSet::new();
    for counted in records {
        for count in &counted.counts {
            table.row([counted.name.clone(), count.text.clone(), value(count), count.metric.clone()]);
            refused.extend(count.value.is_none().then_some(&*count.text));
        }
    }
    let times = if passes == 1 { "once".to_owned() } else { format!("up to {passes} times") };
    let mut notes = vec![format!(
        "each operation ran alone for this, {times}, after everything before it in the text had completed"
    )];
    if !refused.is_empty() {
        let refused = refused.into_iter().collect::<Vec<_>>().join(", ");
        notes.push(format!(
            "{ABSENT}: the library refuses this metric for single operations on this device ({refused})"
        ));
    }
    Some(Section { title: "Hardware counters".to_owned(), table: Some(table), notes, ..Section::default() })
}

fn value(count: &CounterValue) -> String {
    match (count.value, count.unit.as_str()) {
        (None, _) => ABSENT.to_owned(),
        (Some(bytes), "B") if bytes >= 0.0 => Bytes(bytes.round() as u64).to_string(),
        (Some(value), unit) => format!("{value:.1} {unit}"),
    }
}

/// A table with a row for each operation; `None` if no operation reported its compute units.
fn units(record: &RunRecord) -> Option<Section> {
    if record.counters.iter().all(|counted| counted.units.is_empty()) {
        return None;
    }
    let unit = if record.settings.backend == "cuda" { "SM" } else { "compute unit" };
    let [units, of_unit] = [format!("{unit}s"), format!("blocks of one {unit}")];
    let mut table = Table::new(["operation", &units, "blocks", &of_unit, "numbers"]).left(4);
    for counted in &record.counters {
        table.row(row(&counted.name, &counted.units, record.device.units));
    }
    let mut notes = vec![format!(
        "the first thread of each block of the kernels that aorta generates reported its {unit}, in one iteration of a \
         further run on streams"
    )];
    if record.counters.iter().any(|counted| counted.units.is_empty()) {
        notes.push(format!("{ABSENT}: libraries, copies and the kernels of a file do not report"));
    }
    let title = format!("{} that ran the blocks", if unit == "SM" { "SMs" } else { "Compute units" });
    Some(Section { title, table: Some(table), notes, ..Section::default() })
}

/// The number of units and of blocks, the fewest and most blocks of a unit, and the units' numbers.
fn row(name: &str, units: &[UnitBlocks], all: Option<u32>) -> [String; 5] {
    let blocks = || units.iter().map(|unit| unit.blocks);
    let (Some(fewest), Some(most)) = (blocks().min(), blocks().max()) else {
        return [name, ABSENT, ABSENT, ABSENT, ABSENT].map(str::to_owned);
    };
    let used = match all {
        Some(all) => format!("{} of {all}", units.len()),
        None => units.len().to_string(),
    };
    let each = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
    let total = blocks().map(u64::from).sum::<u64>().to_string();
    [name.to_owned(), used, total, each, ranges(units)]
}

/// Formats the units' numbers as ranges, such as `0–15, 32`.
fn ranges(units: &[UnitBlocks]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for UnitBlocks { unit, .. } in units {
        match ranges.last_mut() {
            Some((_, last)) if unit.checked_sub(1) == Some(*last) => *last = *unit,
            _ => ranges.push((*unit, *unit)),
        }
    }
    let mut texts: Vec<String> = ranges
        .iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}–{last}") })
        .collect();
    if texts.len() > SHOWN {
        texts.truncate(SHOWN);
        texts.push("…".to_owned());
    }
    texts.join(", ")
}

/// Maximum number of ranges of unit numbers that are shown.
const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ranges() {
        let units =
            |numbers: &[u32]| numbers.iter().map(|&unit| UnitBlocks { unit, blocks: unit + 1 }).collect::<Vec<_>>();
        assert_eq!(row("f", &units(&[0, 1, 2, 7]), Some(8)), ["f", "4 of 8", "14", "1 to 8", "0–2, 7"]);
        assert_eq!(ranges(&units(&[0, 2, 4, 6, 8, 10, 12, 14, 16])), "0, 2, 4, 6, 8, 10, 12, 14, …");
        assert_eq!(row("f", &[], None)[1], ABSENT);
    }
}
