//! Properties of the reports of edited or invented records and files of cases, and how choices become an edit.

use aorta::base::visible;
use aorta::measure::RunRecord;
use aorta::measure::cases::Cases;
use aorta::measure::compare::{CompareOptions, RunSet, Thresholds, compare};
use aorta::report::page::{self, Page};
use aorta::report::picture::{self, Gallery};
use aorta::report::{self, PageContent};
use serde_json::Value;

/// A text that would begin a line of a report if its line feed were printed.
pub const PLANTED: &str = "x\n  PLANTED\u{1b}[2J";

/// Panics if a line of a report begins with the planted text, or with an escape sequence.
fn inspect(shown: &str) {
    for line in visible::without_workflow_commands(shown).lines() {
        assert!(!line.trim_start_matches(|letter: char| !letter.is_alphanumeric()).starts_with("PLANTED"), "{line}");
        assert!(!line.contains(visible::is_hidden) && !line.trim_start().starts_with("::"), "{line:?}");
    }
}

/// Reads a record and formats it in every form. Checks that this does not panic, however the record was edited, and
/// that no text of the record begins a line. Returns whether it was read.
pub fn show(text: &str) -> bool {
    let read = match RunRecord::from_json(text) {
        Ok(record) => {
            every_form(&[report::run(&record, None), report::top(&record, None, 5), report::expected(&record)]);
            inspect(&report::csv(&record));
            inspect(&report::chrome_trace(&record));
            let records = std::slice::from_ref(&record);
            show_page(&PageContent::runs(records));
            picture::iterations(records)
                .iter()
                .flat_map(Gallery::files)
                .for_each(|(_, one)| inspect(&picture::svg(one)));
            every_form(&[report::timeline(&record, 80)]);
            report::pftrace(&record);
            let again =
                RunRecord::from_json(&record.to_json()).expect("a record that was read can be written and read");
            assert_eq!(record.to_json(), again.to_json());
            true
        }
        Err(why) => {
            assert!(!why.is_empty());
            false
        }
    };
    compared(text);
    read
}

/// Like [`show`], for a file of cases.
pub fn show_cases(text: &str) -> bool {
    let Ok(Some(read)) = Cases::parse(text.as_bytes()) else { return false };
    let latest = read.latest();
    inspect(&report::cases_csv(&read.header, &latest));
    let suite = report::SuiteReport { header: &read.header, description: "", planned: latest.len(), cases: latest };
    every_form(&[report::suite(&suite), report::sweep(&read.header, &suite.cases, None)]);
    read.cases
        .iter()
        .filter_map(|case| case.record.as_deref())
        .for_each(|record| every_form(&[report::run(record, None)]));
    let page = report::sweep(&read.header, &read.latest(), None);
    show_page(&PageContent::cases(&read.header, &read.latest(), page));
    compared(text);
    true
}

/// Shows a page's data and its pictures.
fn show_page(view: &PageContent) {
    inspect(&view.data());
    view.galleries().iter().flat_map(Gallery::files).for_each(|(_, one)| inspect(&picture::svg(one)));
}

fn compared(text: &str) {
    let mut side = RunSet::new("a");
    if side.add("a.json", text).is_err() || side.is_empty() {
        return;
    }
    let options = CompareOptions {
        thresholds: Thresholds::default(),
        metrics: Vec::new(),
        better: Default::default(),
        fail_on: Vec::new(),
        between_runs: None,
        operations: true,
    };
    let comparison = compare(&side, &[side.clone()], &options);
    inspect(&aorta::base::json::document(&comparison));
    every_form(&report::compare::compare(&comparison));
}

fn every_form(pages: &[Page]) {
    for form in [page::text, page::markdown, page::latex, page::junit] {
        inspect(&form(pages));
    }
    // Its lines are intended commands of GitHub's workflows.
    let shown = page::github(pages);
    assert!(shown.lines().all(|line| line.starts_with("::")), "{shown}");
}

/// The value with one change for every four bytes: two choose the location, one the kind of change, one its size.
pub fn edited(mut value: Value, choices: &[u8]) -> Value {
    for choice in choices.chunks_exact(4) {
        let mut count = 0;
        visit(&mut value, &mut |_| count += 1);
        let chosen = usize::from(u16::from_le_bytes([choice[0], choice[1]])) * count.max(1) / (1 << 16);
        let mut index = 0;
        visit(&mut value, &mut |place| {
            if index == chosen {
                edit(place, choice[2], choice[3]);
            }
            index += 1;
        });
    }
    value
}

fn visit(value: &mut Value, see: &mut impl FnMut(&mut Value)) {
    see(value);
    match value {
        Value::Array(all) => all.iter_mut().for_each(|inner| visit(inner, see)),
        Value::Object(all) => all.values_mut().for_each(|inner| visit(inner, see)),
        _ => {}
    }
}

fn edit(value: &mut Value, kind: u8, size: u8) {
    let whole = [0, 1, -1, 2, 7, 4096, 1 << 31, 1 << 32, 1 << 53, i64::MAX, i64::MIN, i64::MIN + 1];
    let size = usize::from(size);
    match (value, kind % 8) {
        (Value::Array(all), 0..=2) => all.truncate(size % (all.len() + 1)),
        (Value::Array(all), 3..=5) => {
            if let Some(last) = all.last().cloned() {
                all.extend(vec![last; size % 4 + 1]);
            }
        }
        (Value::Array(all), _) => all.reverse(),
        (Value::Object(all), 0..=3) => {
            if let Some(key) = all.keys().nth(size % all.len().max(1)).cloned() {
                all.remove(&key);
            }
        }
        (Value::Object(all), 4) => {
            if let Some((_, value)) =
                all.keys().nth(size % all.len().max(1)).cloned().and_then(|key| all.remove_entry(&key))
            {
                all.insert(PLANTED.to_owned(), value);
            }
        }
        (Value::Object(_), _) => {}
        (Value::String(text), 0..=5) => {
            *text = ["", "\u{1b}[2J\n::error::", "NaN", "|", "-1", "µ", PLANTED][size % 7].repeat(size / 7 % 3 + 1)
        }
        (Value::Number(_), 6) => {}
        (value @ Value::Number(_), 5) => *value = [0.0, -0.5, 1e308, -1e308, 1e-308, 0.5][size % 6].into(),
        (value @ Value::Number(_), 4) => *value = u64::MAX.into(),
        (value @ Value::Number(_), _) => *value = whole[size % whole.len()].into(),
        (value, 7) => *value = Value::Null,
        (value @ Value::Null, _) => *value = size.into(),
        (value, _) => *value = Value::Bool(size % 2 == 0),
    }
}
