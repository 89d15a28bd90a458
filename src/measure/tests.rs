//! Metrics of constructed traces with known values.

use proptest::prelude::*;

use crate::base::{LaneId, Nanos, OpId};
use crate::config::Profile;
use crate::exec::{Samples, Span, Trace};
use crate::model::{self, FigureExpr, Program};
use crate::plan::{self, Plan};

use super::metrics::RankMetrics;
use super::metrics::device::DeviceProperties;
use super::metrics::evidence::{Evidence, Figures};
use super::observation::analysis;
use super::observation::plausible::DeviceLimits;
use super::observation::solo_durations::SoloDurations;
use super::observation::subject::Subject;
use super::observation::waiting::Iteration;

pub fn planned(text: &str) -> (Program, Plan) {
    planned_on(1, text)
}

/// The program and the plan of the first of several ranks.
fn planned_on(world: u32, text: &str) -> (Program, Plan) {
    let options = model::AnalysisOptions { world, ..model::AnalysisOptions::default() };
    let program = model::analyze_text(text, &options).expect("the text is valid");
    let plan = plan::build(&program).unwrap_or_else(|errors| panic!("{errors:?}"));
    (program, plan)
}

/// An iteration whose operations ran on these lanes from their starts to their ends.
pub fn trace(time: i64, spans: &[(u32, i64, i64)]) -> Trace {
    let span = |(op, &(lane, start, end)): (usize, &(u32, i64, i64))| Span {
        op: OpId::from(op),
        lane: LaneId(lane),
        start: Nanos(start),
        end: Nanos(end),
    };
    Trace { time: Nanos(time), spans: spans.iter().enumerate().map(span).collect(), ..Trace::default() }
}

/// Two maps in a row on one stream, a copy to the device and a map that reads it on the other.
const TWO: &str = "
stream a
stream b
buffer host: f32[1000] in pinned
buffer x, y, z: f32[1000]
step {
  on a { first: map(x + 1 -> x)  second: map(x * 2 -> x) }
  on b { load: copy(host -> y)  third: map(x + y -> z) }
}
";

/// Evaluates each metric of a text; the error is the reason why it has no value.
fn values(metrics: &str, traces: &[Trace], alone: &[Trace], limits: Option<&Profile>) -> String {
    let time = traces.iter().map(|trace| trace.time).collect();
    values_beside(metrics, traces, time, alone, limits)
}

/// Like [`values`], with times of measured iterations that differ from those of the observed ones.
fn values_beside(
    metrics: &str,
    traces: &[Trace],
    time: Vec<Nanos>,
    alone: &[Trace],
    limits: Option<&Profile>,
) -> String {
    evaluated(planned(&format!("{TWO}{metrics}")), traces, time, alone, limits)
}

fn evaluated(
    (program, plan): (Program, Plan),
    traces: &[Trace],
    time: Vec<Nanos>,
    alone: &[Trace],
    limits: Option<&Profile>,
) -> String {
    let alone = SoloDurations::of_serial(&alone.iter().map(Iteration::alone).collect::<Vec<_>>());
    let time = Samples { time, ..Samples::default() };
    let iterations: Vec<Iteration> = traces.iter().map(Iteration::alone).collect();
    let evidence = Evidence {
        program: &program,
        plan: &plan,
        slots: program.cycle.len(),
        time: &time,
        serial: None,
        beside_serial: &time,
        traces: &iterations,
        alone: Some(&alone),
        memory: 12_000,
        limits: DeviceLimits { profile: limits, emulated: None },
        device: DeviceProperties { units: Some(132), memory: Some(1_000_000), profile: limits },
        figures: Figures::default(),
    };
    let lines = super::metrics::of_ranks(&[RankMetrics::new(evidence)]).into_iter().map(|metric| {
        let note = metric.note.map(|note| format!(": {note}")).unwrap_or_default();
        format!("{} = {}{note}", metric.name, metric.text)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A trace in which `first` runs from 100 to 300, `second` from 310 to 500, `load` from 50 to 250, and `third` from 520
/// to 700.
fn observed() -> Trace {
    trace(800, &[(0, 100, 300), (0, 310, 500), (1, 50, 250), (1, 520, 700)])
}

#[test]
fn figures_of_sets() {
    let shown = values(
        "metric whole = time(a)
         metric busy_a = busy(a)
         metric busy_all = busy
         metric hidden = overlap(load, a)
         metric other_side = overlap(a, load)
         metric shown = exposed(load)
         metric shown_all = exposed
         metric shown_compute = exposed(a)
         metric between = gap(a)
         metric between_b = gap(b)
         metric waited = delay(second)
         metric waited_third = delay(third)
         metric none = delay(first)
         metric slower = stretch(a)
         metric longest = critical_path
         metric peak = memory.peak
         metric bus = bus_bandwidth(load)",
        &[observed()],
        &[trace(900, &[(0, 0, 100), (0, 100, 250), (0, 300, 500), (0, 500, 680)])],
        None,
    );
    insta::assert_snapshot!(shown, @r"
    whole = 400 ns
    busy_a = 390 ns
    busy_all = 620 ns
    hidden = 75 %
    other_side = 38.46 %
    shown = 50 ns
    shown_all = 50 ns
    shown_compute = 0 ns
    between = 10 ns
    between_b = 270 ns
    waited = 10 ns
    waited_third = 20 ns
    none = –: no operation of `first` has what it is measured from
    slower = 1.560
    longest = 570 ns
    peak = 11.72 KiB
    bus = –: none of these operations moves data between ranks
    ");
}

/// Observed iterations may take longer than measured ones. A share uses the times of the iterations in which its part
/// was observed.
#[test]
fn a_time_beside_observed_figures_is_of_the_same_iterations() {
    let metrics = "metric share = time(a) / time
         metric rest = time - busy
         metric of_median = time(a) / time.p50
         metric each = time
         metric through = time(a) / each
         metric rate = 1000 / time";
    insta::assert_snapshot!(values_beside(metrics, &[observed()], vec![Nanos(300)], &[], None), @r"
    share = 0.5000
    rest = 180 ns
    of_median = 1.333
    each = 300 ns
    through = 0.5000
    rate = 3.333 G/s
    ");
}

/// The second and the eighth of nine samples enclose the median with a probability of 96 %.
#[test]
fn the_ends_of_the_interval_of_the_median() {
    let metrics = "metric low = time.low\nmetric high = time.high\nmetric spread = time.high - time.low";
    let times = |samples: &[i64]| samples.iter().map(|sample| Nanos(*sample)).collect();
    let nine = times(&[500, 100, 900, 300, 700, 200, 800, 400, 600]);
    insta::assert_snapshot!(values_beside(metrics, &[observed()], nine, &[], None), @r"
    low = 200 ns
    high = 800 ns
    spread = 600 ns
    ");
    let five = times(&[300, 100, 500, 200, 400]);
    insta::assert_snapshot!(values_beside("metric low = time.low", &[observed()], five, &[], None), @"low = –: `low` needs 6 independent samples, and this run has 5");
}

#[test]
fn signs_are_kept() {
    let early = trace(800, &[(0, 100, 300), (0, 290, 500), (1, 50, 250), (1, 480, 700)]);
    insta::assert_snapshot!(values("metric g = gap(a)\nmetric d = delay(third)", &[early], &[], None), @r"
    g = -10 ns
    d = -20 ns
    ");
}

#[test]
fn samples_are_those_of_all_iterations() {
    let later = trace(900, &[(0, 100, 300), (0, 330, 500), (1, 50, 250), (1, 520, 700)]);
    let metrics = "metric n = gap(a).max\nmetric m = gap(a).min\nmetric alone = stretch(a)\nmetric both = gap / time";
    insta::assert_snapshot!(values(metrics, &[observed(), later], &[], None), @r"
    n = 30 ns
    m = 10 ns
    alone = –: no operation of `a` has what it is measured from
    both = 0.1765
    ");
}

#[test]
fn impossible_times_have_no_value() {
    let profile = Profile::named("h200").unwrap();
    // 4000 bytes take 72 ns over the link.
    let quick = trace(800, &[(0, 100, 300), (0, 310, 500), (1, 50, 70), (1, 520, 700)]);
    let metrics =
        "metric rate = bandwidth(load)\nmetric fine = bandwidth(a)\nmetric t = busy(load)\nmetric whole = time";
    insta::assert_snapshot!(values(metrics, &[quick], &[], Some(&profile)), @r"
    rate = –: it is refused: 20 ns is less than the 58 ns that the NVIDIA H200 needs at its peak
    fine = 41.03 GB/s
    t = –: it is refused: 20 ns is less than the 58 ns that the NVIDIA H200 needs at its peak
    whole = 800 ns
    ");
    // The whole iteration is shorter than its copy can take.
    let lost = trace(20, &[(0, 0, 5), (0, 5, 10), (1, 0, 10), (1, 10, 20)]);
    insta::assert_snapshot!(values("metric rate = flops / time", &[lost], &[], Some(&profile)), @"rate = –: it is refused: 20 ns is less than the 58 ns that the NVIDIA H200 needs at its peak");
}

#[test]
fn a_hot_cache_is_no_false_alarm() {
    let profile = Profile::named("h200").unwrap();
    // 12000 bytes in 2 ns are 6 TB/s: more than the memory's 4.8 TB/s, but possible for the cache.
    let hot = trace(800, &[(0, 100, 102), (0, 310, 312), (1, 50, 250), (1, 520, 522)]);
    insta::assert_snapshot!(values("metric rate = bandwidth(third)", &[hot], &[], Some(&profile)), @"rate = 6 TB/s");
}

#[test]
fn slack_and_utilization_of_sets() {
    // The longest chain is `first`, `second`, `third`: 570 ns. `load` may end as late as `second`.
    let metrics = "metric all = slack.max
         metric chain = slack(first, second, third).max
         metric load_slack = slack(load)
         metric used = utilization
         metric used_a = utilization(a)";
    insta::assert_snapshot!(values(metrics, &[observed()], &[], None), @r"
    all = 190 ns
    chain = 0 ns
    load_slack = 190 ns
    used = 77.50 %
    used_a = 48.75 %
    ");
}

#[test]
fn device_metrics() {
    let profile = Profile::named("h200").unwrap();
    let metrics = "metric units = device.units
         metric share = memory.peak / device.memory
         metric rate = device.bandwidth
         metric peak = device.flops
         metric mfu = flops / time / device.flops";
    insta::assert_snapshot!(values(metrics, &[observed()], &[], Some(&profile)), @r"
    units = 132
    share = 0.01200
    rate = 4.800 TB/s
    peak = 67 TFLOP/s
    mfu = 5.597e-5
    ");
    insta::assert_snapshot!(values(metrics, &[observed()], &[], None), @r"
    units = 132
    share = 0.01200
    rate = –: no profile describes this device
    peak = –: no profile describes this device
    mfu = –: no profile describes this device
    ");
}

proptest! {
    /// With overlapping iterations, an operation may run before its iteration begins. Metrics and the analysis assume that
    /// all iterations are equal, so they depend on the moments of an operation in an iteration only.
    #[test]
    fn overlapping_iterations_count_as_equal(earlier in prop::array::uniform4(0i64..4)) {
        let metrics = "metric hidden = overlap(load, a)
             metric other_side = overlap(a, load)
             metric shown = exposed(load)
             metric shown_all = exposed
             metric busy_a = busy(a)
             metric busy_all = busy
             metric used = utilization(a)
             metric rate = bandwidth(load, third)";
        let spans = [(0, 100, 300), (0, 310, 500), (1, 50, 250), (1, 520, 700)];
        let mut moved = spans;
        for ((_, start, end), earlier) in moved.iter_mut().zip(earlier) {
            (*start, *end) = (*start - 800 * earlier, *end - 800 * earlier);
        }
        let [apart, overlapping] = [trace(800, &spans), trace(800, &moved)];
        prop_assert_eq!(
            values(metrics, std::slice::from_ref(&overlapping), &[], None),
            values(metrics, std::slice::from_ref(&apart), &[], None)
        );
        let (program, plan) = planned(TWO);
        let analyzed = |trace: &Trace| {
            let iteration = Iteration::alone(trace);
            let analysis = analysis::analyze(&Subject {
                program: &program,
                plan: &plan,
                step: 0,
                iterations: &[&iteration],
                alone: None,
                host_bound: None,
                earlier: &[],
                queues: None,
                time: None,
                peaks: None,
            });
            let analysis = analysis.expect("an iteration was observed");
            let categories: Vec<_> =
                analysis.categories.iter().map(|of| (of.category.clone(), of.busy_ns, of.exposed_ns)).collect();
            (analysis.lanes_busy_ns, categories)
        };
        prop_assert_eq!(&analyzed(&overlapping).0, &[Nanos(390), Nanos(380)]);
        prop_assert_eq!(analyzed(&overlapping), analyzed(&apart));
    }
}

/// The rate of an exchange whose size a tensor determines is unknown, and so is that of a set with one. The bytes are those
/// that the model assumes: 256 KiB for each of the other ranks.
#[test]
fn a_size_that_a_tensor_determines_has_no_rate() {
    let text = "buffer x: bf16[512, 1024]
         buffer counts: i32[world, world]
         buffer inbox: bf16[512, 1024]
         buffer gathered: bf16[2048, 1024]
         step { g: all_gather(x -> gathered)  t: all_to_all(x, counts -> inbox) }
         metric bus = bus_bandwidth(t)
         metric all = bus_bandwidth
         metric of_set = bandwidth(g, t)
         metric whole = bandwidth
         metric known = bus_bandwidth(g)
         metric same = bandwidth(g)
         metric assumed = bytes(t)";
    let traced = || trace(30_000, &[(0, 0, 10_000), (0, 11_000, 30_000)]);
    let shown = |world| evaluated(planned_on(world, text), &[traced()], vec![Nanos(30_000)], &[], None);
    insta::assert_snapshot!(shown(4), @r"
    bus = –: a tensor determines the size of `all_to_all`, so its rate is unknown
    all = –: a tensor determines the size of `all_to_all`, so its rate is unknown
    of_set = –: a tensor determines the size of `all_to_all`, so its rate is unknown
    whole = –: a tensor determines the size of `all_to_all`, so its rate is unknown
    known = 314.6 GB/s
    same = 314.6 GB/s
    assumed = 768 KiB
    ");
}

/// Draws that only metrics use are taken over the same cycle as those that the step uses.
#[test]
fn a_draw_in_a_metric_is_the_mean_over_the_cycle() {
    let shown = |step: &str| {
        let text = format!(
            "draw n ~ binomial(4, 0.7)\nbuffer x: f32[1024]\nstep {{ {step} }}\nmetric tokens = n + 1\nmetric each = time / (n + 1)\n\
             expect n < 3\nexpect n < 5\n"
        );
        let (program, plan) = planned(&text);
        let holds = program.expectations.iter().map(|expects| match expects.condition {
            FigureExpr::Constant(value) => value,
            _ => f64::NAN,
        });
        assert_eq!(holds.collect::<Vec<_>>(), [0.0, 1.0], "a condition holds in every iteration");
        let slots = program.cycle.len();
        let traces: Vec<Trace> =
            (0..slots).map(|slot| Trace { step: slot, slot, ..trace(800, &[(0, 100, 300)]) }).collect();
        (slots, evaluated((program, plan), &traces, vec![Nanos(800); slots], &[], None))
    };
    let (unused, used) = (shown("map(x + 1 -> x)"), shown("map(x + n -> x)"));
    assert_eq!((unused.0, used.0), (1, 64));
    assert_eq!(unused.1, used.1);
    insta::assert_snapshot!(unused.1, @r"
    tokens = 3.859
    each = 207 ns
    ");
}
