//! No input makes the program panic: random bytes, random sequences of the language's words, and shipped files with
//! pieces removed, duplicated, exchanged or replaced, through every stage that they reach.

mod inputs;
mod large;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::catch_unwind;

use aorta::backend::sim::Sim;
use aorta::base::{Interner, SourceMap};
use aorta::config::{EffortPlan, Profile, Scenario, Settings};
use aorta::exec::{Control, LaunchMode, RankSchedule};
use aorta::measure::{self, Request};
use aorta::model::{self, AnalysisOptions};
use aorta::render::{self, Style};
use aorta::syntax::ast::DeclKind;
use aorta::syntax::{self, SyntaxLimits};
use aorta::{plan, schedule};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common;

use inputs::{changed_files, soup_of_pieces, token};

/// Number of operations of an iteration up to which it is simulated.
const SIMULATED: usize = 200;

/// The stage that a text reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Syntax errors.
    Syntax,
    /// Errors in its meaning.
    Model,
    /// A race.
    Plan,
    /// Scheduled, but too long to be simulated here.
    Schedule,
    /// It could not be run.
    Refused,
    Simulated,
}

/// Takes a text as far as possible. All of its diagnostics are formatted.
fn take_through(text: &str) -> Stage {
    let mut sources = SourceMap::new();
    let base = sources.add("test.aorta", text).expect("a test is small");
    let (ast, syntax_errors) = syntax::parse(text, base, &SyntaxLimits::default());
    let show = |error: &dyn miette::Diagnostic| {
        assert!(!render::text(error, &sources, Style::default()).is_empty());
    };
    syntax_errors.iter().for_each(|error| show(error));
    let tiny = ast.decls.iter().any(|decl| match &decl.kind {
        DeclKind::Preset { name, .. } => ast.names.name(name.symbol) == "tiny",
        _ => false,
    });
    let options = AnalysisOptions {
        preset: tiny.then(|| "tiny".to_owned()),
        cycle: 8,
        max_operations: 1000,
        max_memory: 1 << 26,
        ..AnalysisOptions::default()
    };
    // A text with syntax errors is analyzed too, as the program does, but goes no further.
    let analyzed = model::analyze(&ast, &options);
    if let Err(errors) = &analyzed {
        errors.iter().for_each(|error| show(error));
    }
    let program = match analyzed {
        _ if !syntax_errors.is_empty() => return Stage::Syntax,
        Ok(program) => program,
        Err(_) => return Stage::Model,
    };
    let plan = match plan::build(&program) {
        Ok(plan) => plan,
        Err(errors) => {
            errors.iter().for_each(|error| show(error));
            return Stage::Plan;
        }
    };
    if ["all_", "send", "recv", "barrier", " at "].iter().any(|word| text.contains(word)) {
        let rank = |rank| {
            model::analyze(
                &ast,
                &AnalysisOptions {
                    rank,
                    world: 2,
                    preset: None,
                    set: Vec::new(),
                    traces: Default::default(),
                    files: Default::default(),
                    ..options
                },
            )
            .ok()
        };
        let planned = |program| {
            let plan = plan::build(&program).ok()?;
            Some(plan::RankPlan { program: program.into(), plan: plan.into() })
        };
        let programs: Option<Vec<model::Program>> = [0, 1].into_iter().map(rank).collect();
        let linked = programs.and_then(|mut programs| match model::link(&mut programs) {
            Ok(()) => Some(programs),
            Err(errors) => {
                errors.iter().for_each(|error| show(error));
                None
            }
        });
        let ranks: Option<Vec<plan::RankPlan>> =
            linked.and_then(|programs| programs.into_iter().map(planned).collect());
        let judged = ranks.map_or(Ok(()), |ranks| plan::ranks::check(&ranks));
        judged.err().iter().flatten().for_each(|error| show(error));
    }
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let options = schedule::ScheduleOptions { streams: Some(12), ..schedule::ScheduleOptions::default() };
    let schedule = common::placed(&program, &plan, &sim, &options);
    if program.cycle.iter().map(|step| step.ops.len()).sum::<usize>() > SIMULATED {
        return Stage::Schedule;
    }
    let profile = Profile::named("h200").expect("embedded");
    let measured = measure::measure(&Request {
        plans: &[],
        ranks: &[RankSchedule::new(&program, &plan, &schedule)],
        backend: &sim,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        effort: EffortPlan { warmup: 0, iterations: 2 },
        observed_iterations: 1,
        exec: common::exec_options(),
        control: &Control::default(),
        profile: Some(&profile),
        sources: &sources,
        keep: &|_| {},
        shares: std::cell::OnceCell::new(),
    });
    match measured {
        Ok(_) => Stage::Simulated,
        Err(error) => {
            show(&error);
            Stage::Refused
        }
    }
}

/// Takes many texts through the stages, and counts which stage they reached.
fn take_many(cases: u32, texts: impl Strategy<Value = String>) -> BTreeMap<Stage, u32> {
    let reached = RefCell::new(BTreeMap::new());
    let outcome = TestRunner::new(common::properties(cases)).run(&texts, |text| {
        *reached.borrow_mut().entry(take_through(&text)).or_default() += 1;
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    println!("{:?}", reached.borrow());
    reached.into_inner()
}

#[test]
fn any_bytes() {
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    take_many(256, bytes.prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
}

#[test]
fn any_text() {
    take_many(256, ".{0,60}(\n.{0,60}){0,6}");
}

#[test]
fn any_words() {
    let separator = prop::sample::select(&[" ", "", "\n"][..]);
    let tokens = prop::collection::vec((token(), separator), 0..80);
    take_many(512, tokens.prop_map(|tokens| tokens.iter().flat_map(|(token, after)| [token, *after]).collect()));
}

#[test]
fn any_pieces() {
    let reached = take_many(512, soup_of_pieces());
    assert!(reached.contains_key(&Stage::Simulated), "some are programs: {reached:?}");
}

#[test]
fn files_with_changes() {
    if !crate::common::effort::is_due() {
        return;
    }
    let reached = take_many(512, changed_files());
    assert!(reached.contains_key(&Stage::Simulated), "some are still programs: {reached:?}");
    assert!(reached.contains_key(&Stage::Model) && reached.contains_key(&Stage::Syntax), "others not: {reached:?}");
}

proptest! {
    #![proptest_config(crate::common::properties(256))]

    /// Values of `--set name=`.
    #[test]
    fn any_value(tokens in prop::collection::vec(token(), 0..12)) {
        let text = tokens.concat();
        let mut sources = SourceMap::new();
        let base = sources.add("--set n", text.as_str()).expect("a test is small");
        if let Err(errors) = syntax::parse_expr(&text, base, &SyntaxLimits::default(), &mut Interner::default()) {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(!render::text(&error, &sources, Style::default()).is_empty());
            }
        }
    }

    /// Values of `--config`, in a settings file, and in a scenario.
    #[test]
    fn any_settings(
        key in "[a-z_]{0,8}|in_flight|timeout|effort|profile|max_memory|full",
        tokens in prop::collection::vec(token(), 0..6),
    ) {
        let text = tokens.concat();
        let _ = Settings::layered(None, &[format!("{key}={text}")]);
        let _ = Settings::layered(Some(("own.ron", &format!("({key}: {text})"))), &[]);
        let _ = Scenario::parse("own.ron", &format!("(workload: \"moe\", {key}: {text})"));
    }
}

/// Short texts that once made a stage panic, by what they show.
const CASES: [(&str, &str); 11] = [
    ("a step may be empty", "step { }"),
    ("a step may come to be empty", "step { if false { nop() } }"),
    ("a phase may be empty", "step { phase a { } }"),
    ("a slice backwards that begins outside", "buffer x: f32[4]\nstep { map(x[7..3] + 1) }"),
    ("a slice backwards that ends outside", "buffer x: f32[4]\nstep { map(x[2..-1] + 1) }"),
    ("a slice backwards in the middle", "buffer x: f32[8, 4, 96]\nstep { map(x[.., 7..3, ..] + 1) }"),
    ("an output larger than any memory", "step { gemm(f32[4294967296, 1], f32[1, 4294967296]) }"),
    (
        "a view of more elements than are counted",
        "stream s\nbuffer x: f32[4]\nstep { on s { let v = view(x, [9223372036854775807, 3, 5]) map(v -> v) } }",
    ),
    (
        "a view of more elements than 128 bits count",
        "stream s\nbuffer x: f32[4]\nlet n = 9223372036854775807\nstep { on s { map(view(x, [n, n, n, n]) -> x) } }",
    ),
    ("the least number divided by -1", "param n = floor_div(-9223372036854775807 - 1, -1)\nstep { nop() }"),
    ("the least duration in a message", "let t = -9223372036854775807 * 1ns - 1ns\nlet r = sqrt(t, 1)\nstep { nop() }"),
];

#[test]
fn cases() {
    let panicked: Vec<&str> =
        CASES.iter().filter(|(_, text)| catch_unwind(|| take_through(text)).is_err()).map(|(name, _)| *name).collect();
    assert!(panicked.is_empty(), "panics: {panicked:#?}");
}
