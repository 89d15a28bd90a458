//! The range of figures over the slots of a program whose iterations differ.

use crate::base::Nanos;
use crate::measure::record::{OverSlots, RankRecord, RunRecord, Times, Variant};
use crate::report::page::{Section, Table};
use crate::report::variant::variant_name;

/// Relative difference up to which figures of slots count as equal, since equal slots differ by noise.
const EQUAL_WITHIN: f64 = 0.01;

/// Minimum, median and maximum over slots, for each figure whose slots differ, and for each variant.
pub fn sections(record: &RunRecord) -> Vec<Section> {
    let section = |variant: &Variant| {
        let mut table = Table::new(["figure", "min", "median", "max"]);
        for (name, OverSlots { min, median, max }) in rows(variant) {
            table.row([name, min, median, max]);
        }
        let title = format!("Over the {} slots of a round ({})", record.program.cycle, variant_name(record, variant));
        Section { title, table: Some(table), ..Section::default() }
    };
    let differing = record.variants.iter().filter(|variant| !rows(variant).is_empty());
    differing.map(section).collect()
}

fn rows(variant: &Variant) -> Vec<(String, OverSlots)> {
    let ungated = variant.ungated.as_ref().map(|times| ("ungated (host-paced)", times));
    let serial = variant.serial.as_ref().map(|times| ("on one stream", times));
    let series = [Some(("time", &variant.time)), ungated, serial];
    let times = series.into_iter().flatten().filter_map(|(name, times)| Some((name.to_owned(), over_slots(times)?)));
    let metrics = variant.metrics.iter().filter_map(|metric| {
        let values: Vec<f64> = metric.slots.iter().copied().flatten().collect();
        Some((metric.name.clone(), metric.over_slots.clone().filter(|_| differ(&values))?))
    });
    times.chain(metrics).collect()
}

/// The range of medians over slots; `None` if they do not differ.
fn over_slots(times: &Times) -> Option<OverSlots> {
    let mut medians: Vec<Nanos> = times.slots.iter().filter_map(|slot| slot.p50_ns).collect();
    let values: Vec<f64> = medians.iter().map(|time| time.0 as f64).collect();
    medians.sort_unstable();
    let (first, last) = (*medians.first()?, *medians.last()?);
    let n = medians.len();
    let median = Nanos((medians[(n - 1) / 2].0 + medians[n / 2].0) / 2);
    let [min, median, max] = [first, median, last].map(|time| time.to_string());
    differ(&values).then_some(OverSlots { min, median, max })
}

fn differ(values: &[f64]) -> bool {
    let (least, most) =
        values.iter().fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(*value), most.max(*value)));
    most - least > EQUAL_WITHIN * least.abs().max(most.abs())
}

/// The slot that a table shows, such as `, slot 2 of 3`; empty if all iterations are alike.
pub(super) fn of(record: &RunRecord, rank: &RankRecord) -> String {
    match record.program.cycle {
        0 | 1 => String::new(),
        slots => format!(", slot {} of {slots}", rank.slot),
    }
}
