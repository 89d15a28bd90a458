//! Edited records: a field that contradicts others is reported by name, and nothing makes a report panic or adds lines
//! to it.

use std::collections::{BTreeMap, BTreeSet};

use aorta::measure::RunRecord;
use aorta::measure::cases::Cases;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cli::sandbox::Sandbox;
use crate::common::effort::{self, draws};
use crate::common::records;

/// A record of two ranks and both launch modes, and one of a program whose iterations differ.
fn seeds() -> Vec<Value> {
    let sandbox = Sandbox::new();
    sandbox.write(
        "cycle.aorta",
        "buffer x: f32[64] = ones\nstep { a: if iteration % 2 == 1 { spun: spin(2us) } else { map(x -> x, \"x + 1\") } }\n\
         metric work = time(spun)",
    );
    let wide = "moe --preset tiny --launch both --ranks 2 --effort quick";
    let mut seeds = vec![sandbox.record(&wide.split_whitespace().collect::<Vec<_>>())];
    sandbox.write(
        "slots.aorta",
        "step { if iteration % 2 == 1 { spun: spin(2us) } else { nop() } }\nmetric work = time(spun)",
    );
    seeds.push(sandbox.record(&["slots.aorta", "--effort", "quick"]));
    seeds.push(verified(&sandbox));
    seeds
}

/// A record with results that were compared.
fn verified(sandbox: &Sandbox) -> Value {
    let command = "exec moe --preset tiny --backend host --verify --effort quick --json verified.json";
    sandbox.good(&command.split_whitespace().collect::<Vec<_>>());
    sandbox.json("verified.json")
}

/// A file of two cases.
fn journal() -> Vec<Value> {
    let sandbox = Sandbox::new();
    let sweep = "sweep moe --preset tiny --backend sim --effort quick --set tokens=16,32 --json s.jsonl";
    sandbox.good(&sweep.split_whitespace().collect::<Vec<_>>());
    sandbox.read("s.jsonl").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn an_edited_record_makes_no_report_panic() {
    let seeds = seeds();
    assert!(seeds.iter().all(|seed| records::show(&seed.to_string())), "a record of this version is read");
    let choices = (0..seeds.len(), prop::collection::vec(any::<[u8; 4]>(), 1..5));
    let mut read = 0u32;
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(draws(750))
    });
    let result = runner.run(&choices, |(seed, choices)| {
        let text = records::edited(seeds[seed].clone(), choices.as_flattened()).to_string();
        let shown = std::panic::catch_unwind(|| records::show(&text));
        prop_assert!(shown.is_ok(), "a panic of {choices:?}");
        READ.with(|read| read.set(read.get() + u32::from(shown.unwrap_or(false))));
        Ok(())
    });
    READ.with(|kept| read += kept.get());
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(read > draws(150), "only {read} edited records were read: the edits are too coarse");
}

/// Every location of a text or of a field's name, once for each kind of location: all members of a list are one kind.
fn texts(value: &Value, place: &str, kind: &str, found: &mut BTreeMap<String, String>) {
    match value {
        Value::String(_) => drop(found.entry(kind.to_owned()).or_insert_with(|| place.to_owned())),
        Value::Array(all) => {
            let members = all.iter().enumerate();
            members.for_each(|(index, inner)| texts(inner, &format!("{place}/{index}"), &format!("{kind}/-"), found));
        }
        Value::Object(all) => {
            for (key, inner) in all {
                let key = key.replace('~', "~0").replace('/', "~1");
                texts(inner, &format!("{place}/{key}"), &format!("{kind}/{key}"), found);
            }
        }
        _ => {}
    }
}

/// No text of a record can begin a line in a report of any form.
#[test]
fn no_text_of_a_record_makes_a_line_of_a_report() {
    if !effort::is_due() {
        return;
    }
    let (mut read, mut kinds) = (0, BTreeSet::new());
    // Takes the last record that has a kind of location: it is small.
    for seed in seeds().into_iter().rev() {
        let mut found = BTreeMap::new();
        texts(&seed, "", "", &mut found);
        found.retain(|kind, _| kinds.insert(kind.clone()) || effort::is_long());
        for place in found.values() {
            let mut record = seed.clone();
            let text = record.pointer_mut(place).expect("it was found there");
            *text = json!(format!("{}{}", text.as_str().unwrap_or_default(), records::PLANTED));
            read += u32::from(records::show(&record.to_string()));
            // The field's name, for fields with arbitrary names, such as parameters.
            let (parent, name) = place.rsplit_once('/').expect("texts stand in fields");
            if let Some(Value::Object(fields)) = seed.clone().pointer_mut(parent) {
                let mut record = seed.clone();
                let value = fields.remove(name).expect("it was found there");
                record.pointer_mut(parent).expect("it was found there")[records::PLANTED] = value;
                records::show(&record.to_string());
            }
        }
    }
    assert!(read > 50, "only {read} records were read");
    for line in 0..2 {
        let lines = journal();
        let mut found = BTreeMap::new();
        texts(&lines[line], "", "", &mut found);
        for place in found.values().filter(|place| !place.starts_with("/record")) {
            let mut lines = lines.clone();
            let text = lines[line].pointer_mut(place).expect("it was found there");
            *text = json!(format!("{}{}", text.as_str().unwrap_or_default(), records::PLANTED));
            records::show_cases(&lines.iter().map(|line| line.to_string() + "\n").collect::<String>());
        }
    }
}

#[test]
fn an_edited_journal_makes_no_report_panic() {
    let lines = journal();
    let text = |lines: &[Value]| lines.iter().map(|line| line.to_string() + "\n").collect::<String>();
    assert!(records::show_cases(&text(&lines)));
    let choices = (0..lines.len(), prop::collection::vec(any::<[u8; 4]>(), 1..4));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(draws(500))
    });
    let result = runner.run(&choices, |(line, choices)| {
        let mut lines = lines.clone();
        lines[line] = records::edited(lines[line].take(), choices.as_flattened());
        let text = text(&lines);
        prop_assert!(std::panic::catch_unwind(|| records::show_cases(&text)).is_ok(), "a panic of {choices:?}");
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

thread_local! {
    /// Number of edited records that were still accepted.
    static READ: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[test]
fn a_contradiction_names_the_field() {
    if !effort::is_due() {
        return;
    }
    let seed = seeds().remove(0);
    let edits: [(&str, Value, &str); 12] = [
        ("/variants/0/ranks/1/trace/3/id", json!(4_000_000), "variants[0].ranks[1].trace[3].id"),
        ("/variants/0/ranks/0/operations/2/id", json!(7), "variants[0].ranks[0].operations[2].id"),
        ("/variants/0/ranks/0/operations/2/after", json!([9999]), "variants[0].ranks[0].operations[2].after[0]"),
        ("/variants/1/ranks/0/operations/0/lane", json!(99), "variants[1].ranks[0].operations[0].lane"),
        ("/variants/0/ranks/0/analysis/split/chain", json!([9999]), "variants[0].ranks[0].analysis.split.chain[0]"),
        ("/variants/0/skew/collectives/0/ids", json!([]), "variants[0].skew.collectives[0].ids"),
        ("/variants/0/skew/collectives/0/wait_ns", json!([1]), "variants[0].skew.collectives[0].wait_ns"),
        ("/variants/0/ranks/0/operations/0/time_ns", json!(i64::MIN), "variants[0].ranks[0].operations[0].time_ns"),
        ("/variants/0/ranks/0/operations/0/bytes", json!(u64::MAX), "variants[0].ranks[0].operations[0].bytes"),
        ("/variants/0/time/p50_ns", json!(i64::MAX), "variants[0].time.p50_ns"),
        ("/program/cycle", json!(1_000_000_000), "program.cycle"),
        ("/program/cycle", json!(0), "program.cycle"),
    ];
    let sandbox = Sandbox::new();
    for (place, value, field) in edits {
        let mut record = seed.clone();
        *record.pointer_mut(place).unwrap_or_else(|| panic!("there is no {place}")) = value;
        let why = RunRecord::from_json(&record.to_string()).expect_err(place);
        assert!(why.starts_with(&format!("it is damaged: `{field}` ")), "{place}: {why}");
        sandbox.write("r.json", record.to_string());
        for command in
            [&["report", "r.json"][..], &["report", "r.json", "--trace", "t"], &["compare", "r.json", "r.json"]]
        {
            let output = sandbox.run(command);
            assert_eq!(output.code, Some(2), "{command:?} of {place}: {output:?}");
        }
    }
    let seed = verified(&sandbox);
    let edits = [
        ("/verification/operations/0/by_vectors", json!(1u64 << 40), "verification.operations[0].by_vectors"),
        ("/verification/operations/0/undecided", json!(1u64 << 60), "verification.operations[0].undecided"),
        ("/verification/operations/1/count", json!(u64::MAX), "verification.operations[1].count"),
        ("/verification/operations", json!([]), "verification.mistakes"),
    ];
    let mistake = json!({ "operation": "up", "launch": "stream", "iteration": 0, "output": "up", "element": [0],
        "actual": "1.0", "expected": "0.0", "allowed": 0.1, "error": 10.0 });
    for (place, value, field) in edits {
        let mut record = seed.clone();
        record["verification"]["mistakes"] = json!([mistake]);
        *record.pointer_mut(place).unwrap_or_else(|| panic!("there is no {place}")) = value;
        let why = RunRecord::from_json(&record.to_string()).expect_err(place);
        assert!(why.starts_with(&format!("it is damaged: `{field}` ")), "{place}: {why}");
    }
    // In a file of cases, with its line.
    let mut lines = journal();
    *lines[2].pointer_mut("/record/variants/0/ranks/0/trace/0/id").expect("it is there") = json!(77);
    let text: String = lines.iter().map(|line| line.to_string() + "\n").collect();
    let why = Cases::parse(text.as_bytes()).expect_err("a number of no operation");
    assert!(why.starts_with("line 3 is damaged: in `record`, `variants[0].ranks[0].trace[0].id` is 77"), "{why}");
}

/// Records without time, and with an infinite amount of work.
#[test]
fn values_that_are_not_numbers_have_no_rate() {
    for time in [0, 1] {
        let mut record = seeds().remove(0);
        let operations = record.pointer_mut("/variants/0/ranks/0/operations").and_then(Value::as_array_mut);
        for operation in operations.expect("a list") {
            operation["time_ns"] = json!(time);
            operation["flops"] = json!(1e308);
        }
        record["program"]["flops"] = json!(1.7e308);
        let record = RunRecord::from_json(&record.to_string()).expect("it is whole");
        let shown =
            aorta::report::page::text(&[aorta::report::run(&record, None), aorta::report::top(&record, None, 9)]);
        let is_number = |word: &str| !["inf", "-inf", "NaN"].contains(&word);
        assert!(shown.split_whitespace().all(is_number), "{shown}");
    }
}
