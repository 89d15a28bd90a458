//! Every call of a driver fails once, on the CPU and on the simulator: nothing panics or hangs, what fails is told with
//! its rank and its place in the file, and what was measured before is kept. `.ci/long` sets `AORTA_LONG`, with which
//! each of up to 100 calls of a name fails; else the first, the one in the middle and the last do.

use std::collections::BTreeMap;

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::{Nanos, SourceMap};
use aorta::config::{EffortPlan, Profile};
use aorta::exec::{self, Backend, Control, ExecError, LaunchMode, Rank};
use aorta::measure::{self, Measured, RankRequest};
use aorta::render::{self, Style};
use aorta::schedule;

use crate::common;
use crate::common::altered::{Altered, Calls, TOLD};
use crate::common::mock::{Mock, Script};
use crate::common::world::World;

const FILE: &str = "\
stream s
stream t
buffer x, y: f32[64]
step {
  on s { map(x * 2 -> x) all_reduce(x -> y) }
  on t { copy(y -> x) }
}
";

const RANKS: u32 = 2;

const ITERATIONS: usize = 8;

fn sim() -> Sim {
    Sim::new(Profile::named("h200").expect("embedded"))
}

fn options() -> exec::Options {
    exec::Options { timeout: Nanos(20_000_000_000), gate_depth: 512, ..common::exec_options() }
}

/// Measures a file as streams and as a graph.
pub fn measured(text: &str, ranks: u32, backend: &dyn Backend) -> Result<Measured, ExecError> {
    let planned = common::planned_ranks(text, ranks);
    let schedules: Vec<_> = planned
        .iter()
        .map(|(program, plan)| schedule::place(program, plan, backend.topology(), &schedule::Options::default()))
        .collect();
    let ranks: Vec<RankRequest> = (0..)
        .zip(planned.iter().zip(&schedules))
        .map(|(number, ((program, plan), schedule))| RankRequest { number, program, plan, schedule })
        .collect();
    measure::measure(&measure::Request {
        ranks: &ranks,
        backend,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        effort: EffortPlan { warmup: 2, iterations: ITERATIONS as u32 },
        observed_iterations: 2,
        exec: options(),
        control: &Control::default(),
        profile: None,
        expectations: Vec::new(),
        places: &|_| String::new(),
        keep: &|_| {},
    })
}

/// Measures, and computes what is in the buffers. Returns all that is said of the run, and the error if it fails.
fn run(backend: &dyn Backend) -> (String, Option<ExecError>) {
    let measured = match measured(FILE, RANKS, backend) {
        Ok(measured) => measured,
        Err(error) => return (String::new(), Some(error)),
    };
    let notes = measured.variants.iter().flat_map(|variant| &variant.notes);
    let said = measured.warnings.iter().chain(notes).cloned().collect::<Vec<_>>().join("\n");
    if measured.failure.is_some() {
        return (said, measured.failure);
    }
    let world = World::new(FILE, RANKS, backend);
    let both = world.programs.iter().zip(&world.schedules);
    let ranks: Vec<Rank> = both.map(|(program, schedule)| Rank { number: program.rank, program, schedule }).collect();
    (said, measure::buffers(&ranks, backend, &options(), &Control::default()).err())
}

/// What a person sees of an error.
fn shown(error: &ExecError) -> String {
    let mut sources = SourceMap::new();
    sources.add("test.aorta", FILE).expect("a test is small");
    render::text(error, &sources, Style::default())
}

/// Which calls of a name fail, one in each run.
fn turns(count: u64) -> Vec<u64> {
    let mut turns = match std::env::var_os("AORTA_LONG") {
        Some(_) => (1..=count.min(100)).chain([count]).collect(),
        None => vec![1, count.div_ceil(2), count],
    };
    turns.dedup();
    turns
}

/// Calls whose failure says nothing of the run: they are made of one that is given up anyway.
const ASIDE: [&str; 1] = ["idle"];

/// Says what is wrong with how a run ends in which a call fails; `Ok` with whether it went on.
fn judge(backend: &dyn Backend, call: &'static str, turn: u64) -> Result<&'static str, String> {
    let calls = Calls::failing(call, turn);
    let (said, error) = run(&Altered::with_calls(backend, calls.clone()));
    let told = error.as_ref().map(shown);
    let wrong = |what: &str| {
        Err(format!("{}, {call} {turn}: {what}\n{said}\n{}", backend.name(), told.clone().unwrap_or_default()))
    };
    match &told {
        None if !calls.has_failed() => Ok("not reached"),
        None if said.contains(TOLD) || ASIDE.contains(&call) => Ok("went on, and says so"),
        None => wrong("nobody says that it failed"),
        Some(told) if !told.contains(TOLD) || !told.contains(call) => wrong("the call is not named"),
        Some(told) if !told.contains("rank ") && call != "open" => wrong("the rank is not named"),
        Some(told) if call == "launch" && !told.contains("test.aorta:") => wrong("the place is not named"),
        Some(_) => Ok("told"),
    }
}

#[test]
fn every_call_of_a_driver_fails_once() {
    let sim = sim();
    let backends: [&dyn Backend; 2] = [&Host, &sim];
    let mut wrong = Vec::new();
    for backend in backends {
        let calls = Calls::counted();
        let (_, error) = run(&Altered::with_calls(backend, calls.clone()));
        assert!(error.is_none(), "{error:?}");
        for (call, count) in calls.made() {
            let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
            for turn in turns(count) {
                match judge(backend, call, turn) {
                    Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                    Err(why) => wrong.push(why),
                }
            }
            println!("{}: {call}: {outcomes:?} of {count} calls", backend.name());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// An operation is launched once in each iteration, so the number of the launch that fails says how many were complete.
#[test]
fn samples_before_a_failure_are_kept() {
    let text = "buffer x: f32[64]\nstep(sync: iteration) { map(x * 2 -> x) }";
    for turn in 0..2 + ITERATIONS as u32 {
        let mock = Mock::new(Script { fails: Some(("launch #0 map on main", turn)), ..Script::default() });
        let result = measured(text, 1, &mock);
        let before = (turn as usize).saturating_sub(2).min(ITERATIONS);
        match result {
            // The host is up to two iterations ahead of what is complete.
            Err(_) => assert!(before <= 2, "launch {turn}"),
            Ok(measured) => {
                let n = measured.variants[0].time.n;
                assert!(n > 0 && n <= before && (n + 2 >= before), "launch {turn}: {n} of {before} are kept");
                assert!(measured.failure.is_some() && !measured.complete, "launch {turn}");
            }
        }
    }
}
