//! The property of `--fuse`: a program computes with it what it computes without, and is verified.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

use aorta::backend::host::Host;
use aorta::base::MemoryId;
use aorta::compile::{self, Compiled, RankCount};
use aorta::exec::{self, Control, LaunchMode, RankSchedule};
use aorta::measure::{self, VerifyRequest};
use aorta::model::MemoryKind;
use aorta::schedule;

use super::generator::{self, Chains, Rule};
use crate::common;

fn compiled(text: &str, ranks: u32, fuse: bool) -> Result<Compiled, String> {
    common::compile(
        "t.aorta",
        text,
        &compile::CompileOptions { fuse, ranks: RankCount::Exactly(ranks), ..Default::default() },
    )
}

/// The elements of every buffer of every rank after some iterations on the CPU, by rank and name.
fn left(compiled: &Compiled, iterations: u64) -> BTreeMap<(u32, String), Vec<f64>> {
    let place = |rank: &aorta::plan::RankPlan| {
        common::placed(
            &rank.program,
            &rank.plan,
            &Host,
            &schedule::ScheduleOptions { streams: None, share_scratch: true },
        )
    };
    let schedules: Vec<_> = compiled.ranks.iter().map(place).collect();
    let ranks = RankSchedule::all(0, &compiled.ranks, &schedules);
    let mut open =
        exec::prepare_ranks(&ranks, &Host, &common::exec_options()).unwrap_or_else(|error| panic!("{error}"));
    open.iterate(LaunchMode::Stream, 0, iterations, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut all = BTreeMap::new();
    for (index, rank) in ranks.iter().enumerate() {
        for memory in (0..rank.program.memories.len()).map(MemoryId::from) {
            let info = rank.program.memory(memory);
            if matches!(info.kind, MemoryKind::Buffer(_)) {
                let bytes = open.read(index, memory).unwrap_or_else(|error| panic!("{error}")).expect("the CPU has it");
                let dtype = rank.program.layout(memory).dtype;
                let values = bytes.chunks_exact(dtype.size() as usize).map(|element| dtype.load(element)).collect();
                all.insert((rank.number, rank.program.names.name(info.name).to_owned()), values);
            }
        }
    }
    all
}

/// The difference that a rule allows, of the largest element of a buffer.
fn bound(rule: Rule, dtype: &str) -> f64 {
    match rule {
        Rule::Exact => 0.0,
        Rule::Close => 1e-9,
        Rule::Rounded if dtype.contains("bf16") => 0.2,
        Rule::Rounded => 0.03,
    }
}

/// The number of operations that went; an error says what differs. `None` for a text that is no program.
fn check(chains: &Chains, text: &str) -> Option<Result<usize, String>> {
    let plain = compiled(text, chains.ranks, false).ok()?;
    let merged = match compiled(text, chains.ranks, true) {
        Ok(merged) => merged,
        Err(errors) => return Some(Err(format!("it does not compile with `--fuse`: {errors}"))),
    };
    let work = || -> Result<usize, String> {
        if !merged.is_fused() {
            return Ok(0);
        }
        let (before, after) = (left(&plain, 2), left(&merged, 2));
        for (key, values) in &before {
            let size = values.iter().map(|value| value.abs()).filter(|value| value.is_finite()).fold(0.125, f64::max);
            for (index, (a, b)) in values.iter().zip(&after[key]).enumerate() {
                let is_alike = a.to_bits() == b.to_bits()
                    || (a.is_nan() && b.is_nan())
                    || (a - b).abs() <= bound(chains.rule, text) * size;
                if !is_alike {
                    return Err(format!("{}[{index}] of rank {} is {a}, and {b} with `--fuse`", key.1, key.0));
                }
            }
        }
        let ranks: Vec<_> =
            (0..).zip(&merged.ranks).map(|(number, rank)| (number, &*rank.program, &*rank.plan)).collect();
        let question = VerifyRequest {
            ranks: &ranks,
            backend: &Host,
            streams: None,
            modes: &[LaunchMode::Stream],
            options: common::exec_options(),
            control: &Control::default(),
        };
        let verified = measure::verify(&question).map_err(|error| error.to_string())?.expect("nobody stops it");
        match verified.record.held {
            true => Ok(merged.fused.iter().map(|fusion| super::operations_saved(fusion)).sum()),
            false => Err(format!("it is not verified: {:#?}", verified.record.mistakes)),
        }
    };
    Some(panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("it panics".to_owned())))
}

/// The program of a seed without the statements that are invalid where they stand.
fn valid(seed: u64) -> Chains {
    let mut chains = generator::chains(seed);
    let (ranks, all) = (chains.ranks, std::mem::take(&mut chains.statements));
    if compiled(&chains.with(&all), ranks, false).is_ok() {
        chains.statements = all;
        return chains;
    }
    for statement in all {
        chains.statements.push(statement);
        if compiled(&chains.text(), ranks, false).is_err() {
            chains.statements.pop();
        }
    }
    chains
}

/// Leaves out statements as long as the program fails.
fn smallest(mut chains: Chains) -> Chains {
    let mut place = 0;
    while place < chains.statements.len() {
        let mut fewer = chains.statements.clone();
        fewer.remove(place);
        match check(&chains, &chains.with(&fewer)) {
            Some(Err(_)) => (chains.statements, place) = (fewer, 0),
            _ => place += 1,
        }
    }
    chains
}

#[test]
fn random_programs_compute_the_same_with_fusion() {
    let first = std::env::var("AORTA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let count = if common::effort::is_long() { 5000 } else { 100 };
    let seeds: Vec<u64> = (first..first + count).collect();
    let results = common::parallel::map(&seeds, |&seed| {
        let chains = valid(seed);
        let statements = chains.statements.len();
        (statements, check(&chains, &chains.text()).expect("it is valid").map_err(|_| seed))
    });
    let failed: Vec<u64> = results.iter().filter_map(|(_, result)| result.as_ref().err().copied()).collect();
    let shown = failed.iter().take(4).map(|&seed| {
        let chains = smallest(valid(seed));
        let why = check(&chains, &chains.text()).and_then(Result::err).unwrap_or_default();
        format!("seed {seed}, {:?}, {} ranks: {why}\n{}", chains.rule, chains.ranks, chains.text())
    });
    let shown: Vec<String> = shown.collect();
    assert!(failed.is_empty(), "{} of {count} fail: {failed:?}\n{}", failed.len(), shown.join("\n"));
    let saved: usize = results.iter().filter_map(|(_, result)| result.as_ref().ok()).sum();
    let statements: usize = results.iter().map(|(statements, _)| statements).sum();
    assert!(saved as u64 > count / 2 && statements as u64 > 4 * count, "{saved} of {statements} operations went");
}
