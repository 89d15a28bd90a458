//! Advice from the plan, in the reports of runs and in plans.

use crate::measure::record::{AdviceRecord, RunRecord};
use crate::report::page::Section;
use crate::schedule::often;

/// Number of findings that the report of a run shows.
const SHOWN: usize = 3;

/// The lines of a finding: its source location, its approximate gain, and the change to make.
pub fn lines(advice: &AdviceRecord) -> [String; 3] {
    let place = advice.places.first().map(|place| format!("{place}: ")).unwrap_or_default();
    [
        format!("{place}{}{}", advice.message, often(advice.times)),
        format!("  {}{}", advice.gain, advice.gain.also().map(|also| format!(", {also}")).unwrap_or_default()),
        format!("  {}", advice.help),
    ]
}

/// The findings with the largest gains; `None` if there are none.
pub fn section(record: &RunRecord) -> Option<Section> {
    let all = &record.program.advice;
    let hidden = all.len().saturating_sub(SHOWN);
    let more = (hidden > 0).then(|| format!("{hidden} more: `aorta plan` shows all of them"));
    (!all.is_empty()).then(|| Section {
        title: "Advice from the plan, before anything was measured".to_owned(),
        lines: all.iter().take(SHOWN).flat_map(lines).chain(more).collect(),
        ..Section::default()
    })
}
