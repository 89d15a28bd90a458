//! Reads a record and validates it: the file may have been edited, truncated or fabricated.
//!
//! Reports use numbers of the record as indices, summands and counts. Each is checked once here, so that reports can
//! rely on them.

use std::fmt::Display;

use serde_json::Value;

use crate::base::json;
use crate::config::MAX_CYCLE;

use super::ab::{self, AbRecord};
use crate::measure::record::{
    AnalysisRecord, CollectiveRecord, RankRecord, RunRecord, SCHEMA, TimeSplitRecord, Times, Variant,
    VerificationRecord,
};

/// The error names the field and the reason.
type Checked = Result<(), String>;

impl RunRecord {
    /// Parses a record. The error describes what is wrong with the text.
    pub fn from_json(text: &str) -> Result<RunRecord, String> {
        let record = json::versioned(text, SCHEMA, "run")?;
        check(&record).map_err(|why| format!("it is damaged: {why}"))?;
        Ok(record)
    }
}

impl AbRecord {
    /// True for JSON with the schema of a comparison, of any version.
    pub fn recognizes(text: &str) -> bool {
        json::schema(text).is_some_and(|schema| schema.starts_with("aorta.ab/"))
    }

    /// Parses the record of a comparison. The error describes what is wrong with the text.
    pub fn from_json(text: &str) -> Result<AbRecord, String> {
        let record: AbRecord = json::versioned(text, ab::SCHEMA, "comparison")?;
        for (name, side) in [("a", &record.a), ("b", &record.b)] {
            let period = side.period;
            require((1..=MAX_CYCLE as usize).contains(&period), format!("{name}.period"), period, || {
                format!("a cycle has 1 to {MAX_CYCLE} slots")
            })
            .and_then(|()| check(&side.run).map_err(|why| format!("{name}.run: {why}")))
            .map_err(|why| format!("it is damaged: {why}"))?;
        }
        Ok(record)
    }
}

/// Fails with the first field that is inconsistent with others, such as `variants[0].ranks[1].trace[3].id`.
pub fn check(record: &RunRecord) -> Checked {
    let program = &record.program;
    require((1..=MAX_CYCLE as usize).contains(&program.cycle), "program.cycle", program.cycle, || {
        format!("a cycle has 1 to {MAX_CYCLE} slots")
    })?;
    for (index, variant) in record.variants.iter().enumerate() {
        check_variant(record, variant, &format!("variants[{index}]"))?;
    }
    check_sizes(record)?;
    record.verification.as_ref().map_or(Ok(()), check_verification)
}

fn check_verification(verification: &VerificationRecord) -> Checked {
    let mut launches = 0u64;
    for (index, of) in verification.operations.iter().enumerate() {
        let at = format!("verification.operations[{index}]");
        let no_more = |part: u64, whole: u64, name: &str, of: &str| {
            require(part <= whole, format!("{at}.{name}"), part, || format!("`{of}` is {whole}"))
        };
        no_more(of.by_vectors, of.count, "by_vectors", "count")?;
        no_more(of.undecided, of.elements, "undecided", "elements")?;
        let sum = launches.checked_add(of.count);
        require(sum.is_some(), format!("{at}.count"), of.count, || "no run has as many launches".to_owned())?;
        launches = sum.unwrap_or(launches);
    }
    let mistakes = verification.mistakes.len();
    require(mistakes as u64 <= launches, "verification.mistakes", mistakes, || {
        format!("{launches} launches were compared")
    })?;
    for (index, variant) in verification.variants.iter().enumerate() {
        require(
            variant.witnessed.is_none_or(|edges| variant.missed.len() as u64 <= edges),
            format!("verification.variants[{index}].missed"),
            variant.missed.len(),
            || "more edges did not hold than were witnessed".to_owned(),
        )?;
    }
    Ok(())
}

fn check_variant(record: &RunRecord, variant: &Variant, at: &str) -> Checked {
    let cycle = record.program.cycle;
    let series = [
        ("time", Some(&variant.time)),
        ("issue", Some(&variant.issue)),
        ("ungated", variant.ungated.as_ref()),
        ("serial", variant.serial.as_ref()),
    ];
    for (name, times) in series {
        if let Some(times) = times {
            check_times(times, cycle, &format!("{at}.{name}"))?;
        }
    }
    for (index, metric) in variant.metrics.iter().enumerate() {
        slots(metric.slots.len(), cycle, &format!("{at}.metrics[{index}].slots"))?;
    }
    for (index, block) in variant.blocks.iter().enumerate() {
        let samples = variant.time.n;
        let fits = block.first.checked_add(block.iterations).is_some_and(|end| end <= samples);
        require(fits, format!("{at}.blocks[{index}].iterations"), block.iterations, || {
            format!("with `first` it ends behind the last of {samples} samples")
        })?;
    }
    for (index, rank) in variant.ranks.iter().enumerate() {
        let at = format!("{at}.ranks[{index}]");
        check_rank(rank, cycle, &at)?;
        // The program's lanes are those of the first rank. Ranks with other programs may have more.
        let lanes = record.program.lanes.len();
        if index == 0 && lanes > 0 {
            for (index, operation) in rank.operations.iter().enumerate() {
                let at = format!("{at}.operations[{index}].lane");
                below(operation.lane, lanes, &at, "lanes in `program.lanes`")?;
            }
        }
    }
    let collectives = variant.skew.iter().flat_map(|skew| &skew.collectives);
    for (index, collective) in collectives.enumerate() {
        check_collective(collective, &format!("{at}.skew.collectives[{index}]"))?;
    }
    Ok(())
}

fn check_times(times: &Times, cycle: usize, at: &str) -> Checked {
    let samples = times.samples_ns.len();
    require(samples == 0 || samples == times.n, format!("{at}.n"), times.n, || format!("it has {samples} samples"))?;
    slots(times.slots.len(), cycle, &format!("{at}.slots"))?;
    below(times.first_slot as u64, cycle, &format!("{at}.first_slot"), "slots in `program.cycle`")
}

fn check_rank(rank: &RankRecord, cycle: usize, at: &str) -> Checked {
    check_times(&rank.time, cycle, &format!("{at}.time"))?;
    below(rank.slot as u64, cycle, &format!("{at}.slot"), "slots in `program.cycle`")?;
    let operations = rank.operations.len();
    let known = |id: u32, field: String| below(id, operations, &field, "operations");
    // The sum over all operations fits into 64 bits.
    let most_bytes = u64::MAX / (operations as u64 + 1);
    for (index, operation) in rank.operations.iter().enumerate() {
        let at = format!("{at}.operations[{index}]");
        require(operation.id as usize == index, format!("{at}.id"), operation.id, || {
            "operations are numbered in their order, from 0".to_owned()
        })?;
        for (place, &before) in operation.after.iter().enumerate() {
            known(before, format!("{at}.after[{place}]"))?;
        }
        require(operation.flops >= 0.0, format!("{at}.flops"), operation.flops, || "it is negative".to_owned())?;
        require(operation.bytes <= most_bytes, format!("{at}.bytes"), operation.bytes, || {
            "the sum over all operations does not fit into 64 bits".to_owned()
        })?;
    }
    for (index, span) in rank.trace.iter().enumerate() {
        known(span.id, format!("{at}.trace[{index}].id"))?;
    }
    for (index, occupied) in rank.occupied.iter().enumerate() {
        let at = format!("{at}.occupied[{index}].units");
        require(occupied.units >= 0.0, at, occupied.units, || "it is negative".to_owned())?;
    }
    for (index, arrival) in rank.collectives.iter().enumerate() {
        let at = format!("{at}.collectives[{index}]");
        known(arrival.id, format!("{at}.id"))?;
        same_length(arrival.ends_ns.len(), arrival.starts_ns.len(), &format!("{at}.ends_ns"), "starts_ns")?;
    }
    match &rank.analysis {
        Some(analysis) => check_analysis(analysis, operations, &format!("{at}.analysis")),
        None => Ok(()),
    }
}

fn check_analysis(analysis: &AnalysisRecord, operations: usize, at: &str) -> Checked {
    check_split(&analysis.split, operations, &format!("{at}.split"))?;
    for (place, phase) in analysis.phases.iter().enumerate() {
        check_split(&phase.split, operations, &format!("{at}.phases[{place}].split"))?;
    }
    for (place, &id) in analysis.critical_path.operations.iter().enumerate() {
        below(id, operations, &format!("{at}.critical_path.operations[{place}]"), "operations")?;
    }
    for (place, wait) in analysis.queue_waits.iter().enumerate() {
        let at = format!("{at}.queue_waits[{place}]");
        below(wait.operation, operations, &format!("{at}.operation"), "operations")?;
        below(wait.behind, operations, &format!("{at}.behind"), "operations")?;
    }
    Ok(())
}

fn check_split(split: &TimeSplitRecord, operations: usize, at: &str) -> Checked {
    for (place, &id) in split.chain.iter().enumerate() {
        below(id, operations, &format!("{at}.chain[{place}]"), "operations")?;
    }
    Ok(())
}

fn check_collective(collective: &CollectiveRecord, at: &str) -> Checked {
    let ranks = collective.ranks.len();
    same_length(collective.ids.len(), ranks, &format!("{at}.ids"), "ranks")?;
    same_length(collective.wait_ns.len(), ranks, &format!("{at}.wait_ns"), "ranks")
}

/// Fails unless reports can add up all times of a variant. A moment of a host's clock, in `origins`, may be larger: reports
/// only take differences of two.
fn check_sizes(record: &RunRecord) -> Checked {
    // A quarter: reports take differences of two sums and add an offset.
    let most = i64::MAX as u64 / 4;
    record.variants.iter().enumerate().try_for_each(|(number, variant)| {
        let variant = serde_json::to_value(variant).map_err(|error| error.to_string())?;
        let mut count = 1;
        each_time(&variant, &mut String::new(), false, &mut |_, _| {
            count += 1;
            Ok(())
        })?;
        each_time(&variant, &mut format!("variants[{number}]"), false, &mut |at, time| {
            let most = if at.contains(".origins[") { most } else { most / count };
            match time.unsigned_abs() <= most {
                true => Ok(()),
                false => Err(format!("`{at}` is {time}, and no run takes as many nanoseconds")),
            }
        })
    })
}

/// Calls a function with the place and the value of each time: of each whole number whose key, or whose list's key, ends in
/// `_ns`.
fn each_time(value: &Value, at: &mut String, is_time: bool, visit: &mut dyn FnMut(&str, i64) -> Checked) -> Checked {
    let length = at.len();
    match value {
        Value::Number(number) if is_time => number.as_i64().map_or(Ok(()), |time| visit(at, time)),
        Value::Array(all) => all.iter().enumerate().try_for_each(|(index, item)| {
            at.push_str(&format!("[{index}]"));
            each_time(item, at, is_time, visit)?;
            at.truncate(length);
            Ok(())
        }),
        Value::Object(all) => all.iter().try_for_each(|(key, item)| {
            at.extend([".", key.as_str()]);
            each_time(item, at, key.ends_with("_ns"), visit)?;
            at.truncate(length);
            Ok(())
        }),
        _ => Ok(()),
    }
}

fn require(holds: bool, field: impl Display, value: impl Display, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(format!("`{field}` is {value}, and {}", why())) }
}

/// Fails unless a list of slots is empty or has one entry for each slot of the cycle.
fn slots(length: usize, cycle: usize, field: &str) -> Checked {
    match length == 0 || length == cycle {
        true => Ok(()),
        false => Err(format!("`{field}` has {length} entries, and `program.cycle` is {cycle}")),
    }
}

fn below(index: impl Into<u64>, count: usize, field: &str, of: &str) -> Checked {
    let index = index.into();
    match index < count as u64 {
        true => Ok(()),
        false => Err(format!("`{field}` is {index}, and there are {count} {of}, counted from 0")),
    }
}

fn same_length(length: usize, other: usize, field: &str, beside: &str) -> Checked {
    match length == other {
        true => Ok(()),
        false => Err(format!("`{field}` has {length} entries, and `{beside}` beside it has {other}")),
    }
}
