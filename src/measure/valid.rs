//! Reads a record and validates it: the file may have been edited, truncated or fabricated.
//!
//! Reports use numbers of the record as indices, summands and counts. Each is checked once here, so that reports can
//! rely on them.

use std::fmt::Display;

use serde::Deserialize;

use crate::base::{Nanos, json};
use crate::config::MAX_CYCLE;

use super::ab::{self, AbRecord};
use super::record::{
    AnalysisRecord, CollectiveRecord, OperationRecord, RankRecord, RunRecord, SCHEMA, TimeSplitRecord, Times, Variant,
    VerificationRecord,
};

/// The error names the field and the reason.
type Checked = Result<(), String>;

impl RunRecord {
    /// Parses a record. The error describes what is wrong with the text.
    pub fn from_json(text: &str) -> Result<RunRecord, String> {
        #[derive(Deserialize)]
        #[serde(expecting = "a record")]
        struct Head {
            schema: Option<String>,
        }
        if text.trim().is_empty() {
            return Err("it is empty".to_owned());
        }
        let head: Head =
            json::read(text.as_bytes()).map_err(|error| format!("it is no JSON of a run: {}", json::fault(&error)))?;
        match head.schema.as_deref() {
            Some(SCHEMA) => {
                let record =
                    json::read(text.as_bytes()).map_err(|error| format!("it is damaged: {}", json::fault(&error)))?;
                check(&record).map_err(|why| format!("it is damaged: {why}"))?;
                Ok(record)
            }
            Some(other) => Err(format!("it has the schema `{other}`, and this version reads `{SCHEMA}`")),
            None => Err("it has no `schema`: it is not a record of this program".to_owned()),
        }
    }
}

impl AbRecord {
    /// True for JSON with the schema of a comparison, of any version.
    pub fn recognizes(text: &str) -> bool {
        schema(text).is_some_and(|schema| schema.starts_with("aorta.ab/"))
    }

    /// Parses the record of a comparison. The error describes what is wrong with the text.
    pub fn from_json(text: &str) -> Result<AbRecord, String> {
        if let Some(other) = schema(text).filter(|schema| schema != ab::SCHEMA) {
            return Err(format!("it has the schema `{other}`, and this version reads `{}`", ab::SCHEMA));
        }
        let record: AbRecord =
            json::read(text.as_bytes()).map_err(|error| format!("it is damaged: {}", json::fault(&error)))?;
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

/// The schema that a text names; `None` if it is no JSON, or names none.
fn schema(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    serde_json::from_slice(text.as_bytes()).ok().map(|head: Head| head.schema)
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
    if let Some(skew) = &variant.skew {
        let times = [("begin_ns", skew.begin_ns), ("begin_error_ns", skew.begin_error_ns)];
        Bounds::of(1).times(&format!("{at}.skew"), times)?;
    }
    let balance = variant.skew.iter().flat_map(|skew| &skew.balance);
    for balance in balance {
        let behind = balance.behind.as_ref();
        let times = [
            ("busy_ns", balance.busy_ns),
            ("others_busy_ns", balance.others_busy_ns),
            ("behind.time_ns", behind.map(|behind| behind.time_ns)),
            ("behind.others_ns", behind.map(|behind| behind.others_ns)),
        ];
        Bounds::of(1).times(&format!("{at}.skew.balance"), times)?;
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
    below(times.first_slot as u64, cycle, &format!("{at}.first_slot"), "slots in `program.cycle`")?;
    let bounds = Bounds::of(samples);
    bounds.times(at, times.statistics())?;
    for (index, sample) in times.samples_ns.iter().enumerate() {
        bounds.time(*sample, || format!("{at}.samples_ns[{index}]"))?;
    }
    for (index, slot) in times.slots.iter().enumerate() {
        let all = [
            ("p50_ns", slot.p50_ns),
            ("p50_low_ns", slot.p50_low_ns),
            ("p50_high_ns", slot.p50_high_ns),
            ("min_ns", slot.min_ns),
            ("max_ns", slot.max_ns),
        ];
        bounds.times(&format!("{at}.slots[{index}]"), all)?;
    }
    Ok(())
}

fn check_rank(rank: &RankRecord, cycle: usize, at: &str) -> Checked {
    check_times(&rank.time, cycle, &format!("{at}.time"))?;
    below(rank.slot as u64, cycle, &format!("{at}.slot"), "slots in `program.cycle`")?;
    let operations = rank.operations.len();
    let known = |id: u32, field: String| below(id, operations, &field, "operations");
    let bounds = Bounds::of(operations + rank.trace.len());
    for (index, operation) in rank.operations.iter().enumerate() {
        let at = format!("{at}.operations[{index}]");
        require(operation.id as usize == index, format!("{at}.id"), operation.id, || {
            "operations are numbered in their order, from 0".to_owned()
        })?;
        for (place, &before) in operation.after.iter().enumerate() {
            known(before, format!("{at}.after[{place}]"))?;
        }
        check_operation(operation, &bounds, &at)?;
    }
    for (index, span) in rank.trace.iter().enumerate() {
        let at = format!("{at}.trace[{index}]");
        known(span.id, format!("{at}.id"))?;
        bounds.times(&at, [("start_ns", Some(span.start_ns)), ("end_ns", Some(span.end_ns))])?;
    }
    for (index, occupied) in rank.occupied.iter().enumerate() {
        let at = format!("{at}.occupied[{index}]");
        bounds.times(&at, [("at_ns", Some(occupied.at_ns))])?;
        require(occupied.units >= 0.0, format!("{at}.units"), occupied.units, || "it is negative".to_owned())?;
    }
    for (index, origin) in rank.origins.iter().enumerate() {
        let at = format!("{at}.origins[{index}]");
        Bounds::of(1).times(&at, [("at_ns", Some(origin.at)), ("error_ns", Some(origin.error))])?;
    }
    for (index, arrival) in rank.collectives.iter().enumerate() {
        let at = format!("{at}.collectives[{index}]");
        known(arrival.id, format!("{at}.id"))?;
        same_length(arrival.ends_ns.len(), arrival.starts_ns.len(), &format!("{at}.ends_ns"), "starts_ns")?;
        for (name, times) in [("starts_ns", &arrival.starts_ns), ("ends_ns", &arrival.ends_ns)] {
            for (place, time) in times.iter().enumerate() {
                bounds.time(*time, || format!("{at}.{name}[{place}]"))?;
            }
        }
    }
    match &rank.analysis {
        Some(analysis) => check_analysis(analysis, operations, &bounds, &format!("{at}.analysis")),
        None => Ok(()),
    }
}

fn check_operation(operation: &OperationRecord, bounds: &Bounds, at: &str) -> Checked {
    require(operation.flops >= 0.0, format!("{at}.flops"), operation.flops, || "it is negative".to_owned())?;
    require(operation.bytes <= bounds.bytes, format!("{at}.bytes"), operation.bytes, || {
        "the sum over all operations does not fit into 64 bits".to_owned()
    })?;
    let all = [
        ("time_ns", operation.time_ns),
        ("transfer_ns", operation.transfer_ns),
        ("wait_ns", operation.wait_ns),
        ("start_ns", operation.start_ns),
        ("alone_ns", operation.alone_ns),
        ("slack_ns", operation.slack_ns),
        ("ideal_ns", operation.ideal_ns),
    ];
    bounds.times(at, all)?;
    for (place, launch) in operation.launches.iter().enumerate() {
        let times = [("after_ns", Some(launch.after_ns)), ("time_ns", Some(launch.time_ns))];
        bounds.times(&format!("{at}.launches[{place}]"), times)?;
    }
    Ok(())
}

fn check_split(split: &TimeSplitRecord, operations: usize, bounds: &Bounds, at: &str) -> Checked {
    for (place, &id) in split.chain.iter().enumerate() {
        below(id, operations, &format!("{at}.chain[{place}]"), "operations")?;
    }
    bounds.times(at, [("time_ns", Some(split.time_ns))])?;
    bounds.times(at, split.parts())
}

fn check_analysis(analysis: &AnalysisRecord, operations: usize, bounds: &Bounds, at: &str) -> Checked {
    check_split(&analysis.split, operations, bounds, &format!("{at}.split"))?;
    for (place, phase) in analysis.phases.iter().enumerate() {
        check_split(&phase.split, operations, bounds, &format!("{at}.phases[{place}].split"))?;
    }
    for (place, &id) in analysis.critical_path.operations.iter().enumerate() {
        below(id, operations, &format!("{at}.critical_path.operations[{place}]"), "operations")?;
    }
    for (place, wait) in analysis.queue_waits.iter().enumerate() {
        let at = format!("{at}.queue_waits[{place}]");
        below(wait.operation, operations, &format!("{at}.operation"), "operations")?;
        below(wait.behind, operations, &format!("{at}.behind"), "operations")?;
        bounds.times(&at, [("time_ns", Some(wait.time_ns))])?;
    }
    let path = &analysis.critical_path;
    let lengths = [("length_ns", Some(path.length_ns)), ("running_ns", path.running_ns)];
    bounds.times(&format!("{at}.critical_path"), lengths)?;
    bounds.times(at, [("tail_ns", analysis.tail_ns)])?;
    for (index, bound) in analysis.bounds.iter().enumerate() {
        let all = [("chain_ns", Some(bound.chain_ns)), ("ideal_ns", Some(bound.ideal_ns))];
        bounds.times(&format!("{at}.bounds[{index}]"), all)?;
    }
    if let Some(totals) = &analysis.totals {
        let all = [
            ("busy_ns", Some(totals.busy_ns)),
            ("transfer_ns", Some(totals.transfer_ns)),
            ("wait_ns", Some(totals.wait_ns)),
        ];
        bounds.times(&format!("{at}.totals"), all)?;
    }
    for (lane, busy) in analysis.lanes_busy_ns.iter().enumerate() {
        bounds.time(*busy, || format!("{at}.lanes_busy_ns[{lane}]"))?;
    }
    for (index, category) in analysis.categories.iter().enumerate() {
        let all = [
            ("busy_ns", Some(category.busy_ns)),
            ("exposed_ns", category.exposed_ns),
            ("transfer_ns", category.transfer_ns),
            ("wait_ns", category.wait_ns),
            ("chain_ns", Some(category.chain_ns)),
            ("stretch_ns", category.stretch_ns),
        ];
        bounds.times(&format!("{at}.categories[{index}]"), all)?;
    }
    Ok(())
}

fn check_collective(collective: &CollectiveRecord, at: &str) -> Checked {
    let ranks = collective.ranks.len();
    same_length(collective.ids.len(), ranks, &format!("{at}.ids"), "ranks")?;
    same_length(collective.wait_ns.len(), ranks, &format!("{at}.wait_ns"), "ranks")?;
    // Reports add them up over all collectives of an iteration.
    let bounds = Bounds::of(1 << 20);
    for (place, wait) in collective.wait_ns.iter().enumerate() {
        bounds.time(*wait, || format!("{at}.wait_ns[{place}]"))?;
    }
    bounds.times(at, [("transfer_ns", Some(collective.transfer_ns)), ("skew_ns", collective.skew_ns)])?;
    let last = collective.last.as_ref();
    let late = [("late_ns", last.map(|last| last.late_ns)), ("error_ns", last.map(|last| last.error_ns))];
    bounds.times(&format!("{at}.last"), late)
}

/// Largest values of which a given number can be added up without overflow.
struct Bounds {
    time: i64,
    bytes: u64,
}

impl Bounds {
    fn of(count: usize) -> Bounds {
        let count = count as u64 + 1;
        // A quarter: reports take differences of two and add an offset.
        Bounds { time: i64::MAX / 4 / i64::try_from(count).unwrap_or(i64::MAX), bytes: u64::MAX / count }
    }

    fn time(&self, time: Nanos, at: impl FnOnce() -> String) -> Checked {
        match time.0.checked_abs().is_some_and(|size| size <= self.time) {
            true => Ok(()),
            false => Err(format!("`{}` is {}, and no run takes as many nanoseconds", at(), time.0)),
        }
    }

    fn times<const N: usize>(&self, at: &str, all: [(&str, Option<Nanos>); N]) -> Checked {
        all.into_iter().try_for_each(|(name, time)| match time {
            Some(time) => self.time(time, || format!("{at}.{name}")),
            None => Ok(()),
        })
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
