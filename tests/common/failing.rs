//! Runs in which one call of a driver fails, and checks of how they end.

use aorta::base::{Nanos, SourceMap};
use aorta::config::EffortPlan;
use aorta::exec::{self, Backend, Control, ExecError, LaunchMode};
use aorta::measure::{self, Measured};

use super::altered::{Altered, Calls, TOLD};
use super::effort;
use super::world::{self, World};

/// An operation for each kind of driver call, two streams that wait for each other, and a host stream that both wait for.
const FILE: &str = "\
stream s
stream t
stream h(kind: host)
buffer x, y: f32[64]
buffer p: f32[64] in pinned
step {
  on h { map(p * 0.5 + 1 -> p) }
  on s { map(x * 2 + p -> x) all_reduce(x -> y) }
  on t { copy(y -> x) copy(x -> p) }
}
";

/// Measured iterations of a run.
pub const ITERATIONS: usize = 8;

fn options() -> exec::SessionOptions {
    exec::SessionOptions { timeout: Nanos(20_000_000_000), gate_depth: 512, ..super::exec_options() }
}

/// Measures a file as streams and as a graph.
pub fn measured(text: &str, ranks: u32, backend: &dyn Backend) -> Result<Measured, ExecError> {
    let planned = super::planned_ranks(text, ranks);
    let schedules = world::schedules(&planned, backend);
    measure::measure(&measure::Request {
        plans: &[],
        ranks: &world::ranks(&planned, &schedules),
        backend,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        effort: EffortPlan { warmup: 2, iterations: ITERATIONS as u32 },
        observed_iterations: 2,
        exec: options(),
        control: &Control::default(),
        profile: None,
        sources: &SourceMap::new(),
        keep: &|_| {},
    })
}

/// Measures, and verifies the buffers. Returns all messages of the run, and the error if it fails.
pub fn run(ranks: u32, backend: &dyn Backend) -> (String, Option<ExecError>) {
    let measured = match measured(FILE, ranks, backend) {
        Ok(measured) => measured,
        Err(error) => return (String::new(), Some(error)),
    };
    let notes = measured.variants.iter().flat_map(|variant| &variant.notes);
    let said = measured.warnings.iter().chain(notes).cloned().collect::<Vec<_>>().join("\n");
    if measured.failure.is_some() {
        return (said, measured.failure);
    }
    let world = World::new(FILE, ranks, backend);
    (said, measure::buffers(&world.ranks(), backend, &options(), &Control::default()).err())
}

/// Which calls of a name fail, one in each run.
pub fn turns(count: u64) -> Vec<u64> {
    let mut turns = match effort::is_long() {
        true => (1..=count.min(100)).chain([count]).collect(),
        false => vec![1, count],
    };
    turns.dedup();
    turns
}

/// Calls whose failure is not visible, because it occurs on a thread that is being abandoned.
const ASIDE: [&str; 1] = ["idle"];

/// Checks how a run ends in which a call fails. `Ok` describes whether it continued.
pub fn judge(ranks: u32, backend: &dyn Backend, call: &'static str, turn: u64) -> Result<&'static str, String> {
    let calls = Calls::failing(call, turn);
    let (said, error) = run(ranks, &Altered::with_calls(backend, calls.clone()));
    let told = error.as_ref().map(|error| super::shown(FILE, error));
    let wrong = |what: &str| {
        Err(format!("{}, {call} {turn}: {what}\n{said}\n{}", backend.name(), told.clone().unwrap_or_default()))
    };
    match &told {
        None if !calls.has_failed() => Ok("not reached"),
        None if said.contains(TOLD) || ASIDE.contains(&call) => Ok("went on, and says so"),
        None => wrong("nobody says that it failed"),
        Some(told) if !told.contains(TOLD) || !told.contains(call) => wrong("the call is not named"),
        Some(told) if ranks > 1 && !told.contains("rank ") && call != "open" => wrong("the rank is not named"),
        Some(told) if call == "launch" && !told.contains("test.aorta:") => wrong("the place is not named"),
        Some(_) => Ok("told"),
    }
}
