//! Every shipped file has a description, runs on the simulator without options, and gives the same results on the CPU
//! however it is run.

use std::collections::BTreeMap;

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::SourceMap;
use aorta::config::{EffortPlan, Profile};
use aorta::exec::{Control, LaunchMode};
use aorta::measure::{self, Measured, RankRequest, Request};
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::schedule;
use aorta::syntax::ast::{DeclKind, ExprKind};

use crate::common;
use crate::common::shipped::{self, Shipped};

/// Values of `param streams`.
const STREAMS: [u32; 3] = [4, 8, 16];

/// Real streams at most, for files that say themselves how many they have.
const CEILINGS: [u32; 3] = [1, 2, 4];

/// Parameters whose name says what they are; every other one is explained.
const PLAIN: [&str; 17] = [
    "compute",
    "direction",
    "dtype",
    "elements",
    "ffn",
    "hidden",
    "k",
    "layers",
    "m",
    "n",
    "parts",
    "rows",
    "size",
    "streams",
    "tiny_priority",
    "top_k",
    "width",
];

#[test]
fn files_say_what_they_are() {
    for file in shipped::all() {
        let ast = file.ast();
        let summary = ast.about.first().unwrap_or_else(|| panic!("{} begins with `//!`", file.path));
        assert!(summary.ends_with(['.', '?']), "{}: the first line is a sentence: {summary}", file.path);
        for decl in &ast.decls {
            if let DeclKind::Param { name, .. } = &decl.kind {
                let name = ast.names.name(name.symbol);
                let known = PLAIN.contains(&name);
                assert!(known || !decl.docs.is_empty(), "{}: `param {name}` has no `///`", file.path);
            }
        }
    }
}

#[test]
fn workloads_are_filed_under_their_category() {
    for file in shipped::all().iter().filter(|file| file.path.starts_with("workloads/")) {
        let ast = file.ast();
        let meta: BTreeMap<&str, &ExprKind> = ast
            .decls
            .iter()
            .filter_map(|decl| match &decl.kind {
                DeclKind::Meta(settings) => Some(settings),
                _ => None,
            })
            .flatten()
            .map(|setting| (ast.names.name(setting.key.symbol), &setting.value.kind))
            .collect();
        let Some(ExprKind::Text(category)) = meta.get("category") else {
            panic!("{} has no `category` in `meta`", file.path);
        };
        assert_eq!(format!("workloads/{category}/{}.aorta", file.stem()), file.path);
        let Some(ExprKind::List(tags)) = meta.get("tags") else { panic!("{} has no `tags` in `meta`", file.path) };
        assert!(!tags.is_empty(), "{} has a tag", file.path);
        assert!(file.presets().contains(&"tiny".to_owned()), "{} has a `preset tiny`", file.path);
        let figures = ast.decls.iter().filter(|decl| matches!(decl.kind, DeclKind::Metric { .. }));
        assert!(figures.count() > 0, "{} has a figure of its own", file.path);
    }
}

fn measured(program: &Program, plan: &Plan, streams: Option<u32>) -> Measured {
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let options = schedule::Options { streams, ..schedule::Options::default() };
    let schedule = common::placed(program, plan, &sim, &options);
    // With the device's limits, so that none of the simulator's figures is refused.
    let profile = Profile::named("h200").expect("embedded");
    let request = Request {
        ranks: &[RankRequest { number: 0, program, plan, schedule: &schedule }],
        backend: &sim,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        effort: EffortPlan { warmup: 0, iterations: 1 },
        observed_iterations: 1,
        exec: common::exec_options(),
        control: &Control::default(),
        profile: Some(&profile),
        sources: &SourceMap::new(),
        keep: &|_| {},
    };
    measure::measure(&request).unwrap_or_else(|error| panic!("{error}"))
}

/// Every figure is there, every expectation held, and every operation started when what it waits for had ended.
fn check_measured(measured: &Measured, what: &str) {
    assert!(measured.complete, "{what}");
    let launches: Vec<&str> = measured.variants.iter().map(|variant| variant.launch.as_str()).collect();
    assert_eq!(launches, ["stream", "graph"], "{what}");
    for variant in &measured.variants {
        let time = variant.time.p50_ns.expect("an iteration was measured");
        assert!(time.0 > 0, "{what}");
        for metric in &variant.metrics {
            // A single rank has no network, which is reported.
            let note = metric.note.as_deref().unwrap_or_default();
            if metric.value.is_none() && note.contains("moves data between ranks") {
                continue;
            }
            let value = metric.value.unwrap_or_else(|| panic!("{what}: {} has no value: {note}", metric.name));
            assert!(value.is_finite(), "{what}: {} is {value}", metric.name);
        }
        for expectation in &variant.expectations {
            assert_ne!(expectation.verdict, "failed", "{what}");
        }
        let rank = &variant.ranks[0];
        let spans: BTreeMap<u32, _> = rank.trace.iter().map(|span| (span.id, *span)).collect();
        // A marker, such as `sync`, takes no time that could be observed.
        for operation in rank.operations.iter().filter(|operation| operation.category != "marker") {
            assert!(spans.contains_key(&operation.id), "{what}: {} was observed", operation.name);
        }
        for span in &rank.trace {
            assert!(span.start_ns <= span.end_ns, "{what}: {span:?}");
            for before in &rank.operations[span.id as usize].after {
                let Some(before) = spans.get(before) else { continue };
                assert!(before.end_ns <= span.start_ns, "{what}: {before:?} and then {span:?}");
            }
        }
    }
}

/// Runs a file with its defaults and with each preset, by as many streams as it can have.
fn simulate(file: &Shipped) {
    let presets = file.presets();
    for preset in std::iter::once(None).chain(presets.iter().map(|preset| Some(preset.as_str()))) {
        let (program, plan) = file.program(preset, &[]);
        let what = format!("{}, {preset:?}", file.path);
        check_measured(&measured(&program, &plan, None), &what);
        let Some(range) = file.streams() else {
            for ceiling in CEILINGS {
                let what = format!("{what}, at most {ceiling} streams");
                check_measured(&measured(&program, &plan, Some(ceiling)), &what);
            }
            continue;
        };
        for streams in STREAMS {
            let what = format!("{what}, {streams} streams");
            match file.analyze(preset, &[("streams", &streams.to_string())]) {
                Ok((program, plan)) => check_measured(&measured(&program, &plan, None), &what),
                Err(errors) => assert!(!range.contains(&i64::from(streams)), "{what}:\n{errors}"),
            }
        }
    }
}

#[test]
fn workloads_run_on_the_simulator() {
    shipped::all().iter().filter(|file| file.path.starts_with("workloads/")).for_each(simulate);
}

/// A file's own metrics on the simulated device, by name.
fn figures(name: &str, set: &[(&str, &str)]) -> BTreeMap<String, f64> {
    let (program, plan) = shipped::named(name).program(None, set);
    let measured = measured(&program, &plan, None);
    let metrics = &measured.variants[0].metrics;
    metrics.iter().filter_map(|metric| Some((metric.name.clone(), metric.value?))).collect()
}

/// The simulated device is known, so what the files find out about it is known too.
#[test]
fn figures_say_what_the_device_is_like() {
    // One engine for each direction, whatever the number of streams.
    for streams in ["2", "4", "7"] {
        let found = figures("engines", &[("streams", streams)]);
        for direction in ["h2d_at_once", "d2h_at_once"] {
            assert!((found[direction] - 1.0).abs() < 0.01, "{streams} streams: {found:?}");
        }
        // Both directions together reach 0.88 of twice the one; an odd number leaves one direction with a copy more.
        let together = 2.0 * 97.8 / (55.3 + 55.4);
        let expected = if streams == "7" { 7.0 / (6.0 / together + 1.0) } else { together };
        assert!((found["both_at_once"] - expected).abs() < 0.01, "{streams} streams: {found:?}");
    }
    // Large copies reach the link's rate, small ones do not, and more bytes are never slower.
    let found = figures("size_sweep", &[]);
    let rates = ["4KiB", "64KiB", "1MiB", "16MiB", "256MiB"].map(|size| found[&format!("h2d_rate[{size}]")]);
    assert!(rates.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
    assert!(rates[0] < 0.1 * rates[4] && rates[3] > 0.9 * rates[4], "{found:?}");
    // A hop costs something, wherever the chain goes on.
    for streams in ["2", "64"] {
        let found = figures("queue_switch", &[("streams", streams)]);
        assert!(found["switch_cost"] > 0.0 && found["switch_cost"] < found["kernel_on_one_stream"], "{found:?}");
    }
}

#[test]
fn layers_gathered_ahead_hide_their_gathers() {
    let exposed = |prefetch: &str| figures("fsdp_overlap", &[("prefetch", prefetch)])["exposed_gather"];
    let (none, one, two) = (exposed("0"), exposed("1"), exposed("2"));
    assert!(one < 0.2 * none, "one layer ahead: {one} of {none}");
    assert!(two <= one, "two layers ahead: {two} of {one}");
}

#[test]
fn examples_run_on_the_simulator() {
    shipped::all().iter().filter(|file| file.path.starts_with("examples/")).for_each(simulate);
}

/// Everything that a program writes on the CPU in some iterations, however it is run.
fn check_results(file: &Shipped, set: &[(&str, &str)]) {
    let what = format!("{}, {set:?}", file.path);
    let (program, plan) = file.small(set);
    let results = |streams, mode| common::written(&program, &plan, &Host, streams, mode, 3);
    let serial = results(Some(1), LaunchMode::Stream);
    assert!(!serial.is_empty(), "{what}: something is written");
    for contents in &serial {
        let values: Vec<f64> = contents
            .bytes
            .chunks_exact(contents.dtype.size() as usize)
            .map(|element| contents.dtype.load(element))
            .collect();
        assert!(values.iter().all(|value| value.is_finite()), "{what}: {} holds {values:?}", contents.name);
        // For integers, zero may be the correct result: nothing was dropped.
        let empty = contents.dtype.is_float() && values.iter().all(|value| *value == 0.0);
        assert!(!empty, "{what}: {} holds nothing but zeros", contents.name);
    }
    for streams in [None, Some(2)] {
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            assert_eq!(results(streams, mode), serial, "{what}: {streams:?} streams, {mode:?}");
        }
    }
}

#[test]
fn results_on_the_cpu_do_not_depend_on_streams() {
    for file in shipped::all() {
        check_results(&file, &[]);
    }
}

#[test]
fn every_choice_computes_on_the_cpu() {
    let copies = shipped::named("sdma_overlap");
    for direction in ["d2h", "h2d", "both", "peer"] {
        for via in ["dma", "kernel", "auto"] {
            check_results(&copies, &[("direction", direction), ("via", via)]);
        }
    }
    for via in ["dma", "kernel", "auto"] {
        check_results(&shipped::named("size_sweep"), &[("via", via)]);
        check_results(&shipped::named("engines"), &[("via", via)]);
    }
    let beside = shipped::named("comms_compute_overlap");
    for mode in ["both", "compute_only", "comms_only"] {
        for collective in ["real", "simulated"] {
            check_results(&beside, &[("mode", mode), ("collective", collective)]);
        }
    }
    for prefetch in ["0", "2"] {
        check_results(&shipped::named("fsdp_overlap"), &[("prefetch", prefetch)]);
    }
    for (cached, accepted) in [("true", "0"), ("true", "3"), ("false", "1")] {
        check_results(&shipped::named("speculative_decode"), &[("cached", cached), ("accepted", accepted)]);
    }
    check_results(&shipped::named("hetero_kernels"), &[("pattern", "batched"), ("tiny_priority", "low")]);
    check_results(&shipped::named("tiny_kernel_stress"), &[("order", "by_stream")]);
    for compute in ["f32", "tf32"] {
        check_results(&shipped::named("large_gemm_only"), &[("dtype", "f32"), ("compute", compute)]);
    }
}
