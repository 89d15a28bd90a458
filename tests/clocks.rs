//! Ranks on one clock: the starts of observed iterations on the host's clock, whichever clocks their devices have.

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::Nanos;
use aorta::config::Profile;
use aorta::exec::{self, Backend, Control, LaunchMode, Observation, Trace};
use aorta::model::{AnalysisOptions, Program};

use crate::common;
use crate::common::mock::{Mock, STEP, Script};

/// Rank 1 has more work before the collective.
const LATE: &str = "\
buffer x, y: f32[1024]
step {
  if rank == 1 { for i in 0..4 { map(x + 1 -> x) } }
  all_reduce(x -> y)
}
";

/// The observed iterations of each rank.
fn observe(text: &str, world: u32, backend: &dyn Backend, gate_depth: u32) -> Vec<Vec<Trace>> {
    let program = |rank| {
        let options = AnalysisOptions { rank, world, ..AnalysisOptions::default() };
        common::analyze_with(text, &options).unwrap_or_else(|errors| panic!("{errors}"))
    };
    let planned = |program: Program| {
        let plan = aorta::plan::build(&program).unwrap_or_else(|errors| panic!("{errors:?}"));
        (program, plan)
    };
    let ranks: Vec<_> = (0..world).map(program).map(planned).collect();
    let schedules = common::world::schedules(&ranks, backend);
    let ranks = common::world::ranks(&ranks, &schedules);
    let options = exec::SessionOptions { gate_depth, ..common::exec_options() };
    let mut ranks = exec::prepare_ranks(&ranks, backend, &options).unwrap_or_else(|error| panic!("{error}"));
    ranks
        .observe(Observation { times: 3, ..Observation::once(LaunchMode::Stream, 1) }, &Control::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The stamps at the start of the observed iterations 1, 3 and 5; an unobserved one precedes each.
const BEGINS: [u32; 3] = [2, 6, 10];

#[test]
fn a_device_s_clock_is_found_on_the_host_s() {
    for (offset, ppm) in [(0, 0), (7, 50), (-123_456_789_012, -80), (5_000_000_000_001, 99)] {
        for gate_depth in [0, 512] {
            let script = Script { clock: Some((offset, ppm)), has_gates: true, ..Script::default() };
            let mock = Mock::new(script);
            let traces = observe(LATE, 2, &mock, gate_depth);
            let set = mock.set.lock().expect("no test panics with it");
            for (rank, traces) in (0..).zip(&traces) {
                let begins = set.iter().filter(|(of, stamp, _)| *of == rank && BEGINS.contains(stamp));
                let truths: Vec<i64> = begins.map(|&(_, _, host)| host).collect();
                assert_eq!((traces.len(), truths.len()), (3, 3));
                for (trace, truth) in traces.iter().zip(truths) {
                    let origin = trace.origin.expect("both clocks run evenly");
                    let wrong = (origin.at.0 - truth).abs();
                    assert!(wrong <= origin.error.0, "{wrong} ns off, {origin:?}, {offset} ns and {ppm} ppm");
                    // The host queries its clock every microsecond, and a stamp completes in between.
                    assert!(origin.error.0 <= 500 + 4 * STEP, "{origin:?}");
                }
            }
        }
    }
}

/// A clock that stands still cannot be aligned.
#[test]
fn an_implausible_clock_is_rejected() {
    let traces = observe(LATE, 2, &Mock::new(Script::default()), 0);
    assert!(traces.iter().flatten().all(|trace| trace.origin.is_none()));
}

#[test]
fn a_rank_alone_is_compared_with_nobody() {
    let mock = Mock::new(Script { clock: Some((0, 0)), ..Script::default() });
    assert!(observe(LATE, 1, &mock, 0).iter().flatten().all(|trace| trace.origin.is_none()));
}

/// The times at which the ranks leave the last operation of an iteration, with their uncertainty.
fn ends(traces: &[Vec<Trace>], at: usize) -> Vec<(Nanos, Nanos)> {
    let end = |traces: &Vec<Trace>| {
        let origin = traces[at].origin.expect("the clock is the host's");
        (origin.at + traces[at].spans.last().expect("it has operations").end, origin.error)
    };
    traces.iter().map(end).collect()
}

/// All devices of the simulator share one clock, and so do all threads of the CPU.
#[test]
fn a_device_without_a_clock_goes_by_the_host_s() {
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let traces = observe(LATE, 3, &sim, 512);
    for at in 0..3 {
        let ends = ends(&traces, at);
        assert!(ends.iter().all(|end| *end == (ends[0].0, Nanos(0))), "a collective ends on all at once: {ends:?}");
    }
    let traces = observe(LATE, 3, &Host, 0);
    for at in 0..3 {
        let starts = traces.iter().map(|of| of[at].origin.expect("the host's").at + of[at].spans.last().unwrap().start);
        let last = starts.max().expect("there are ranks");
        let ends = ends(&traces, at);
        assert!(ends.iter().all(|(end, _)| *end >= last), "none leaves before all have come: {last:?}, {ends:?}");
    }
}
