//! Every shipped file has a description, runs on the simulator without options, and gives the same results on the CPU
//! however it is run.

use std::collections::BTreeMap;

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::{SourceMap, Space};
use aorta::config::{EffortPlan, Profile};
use aorta::exec::{Control, LaunchMode, RankSchedule};
use aorta::measure::{self, Measured, Request};
use aorta::model::{self, Program};
use aorta::plan::Plan;
use aorta::schedule::{self, Schedule};
use aorta::syntax::ast::{DeclKind, ExprKind};

use crate::common;
use crate::common::constructs::Constructs;
use crate::common::effort;
use crate::common::parallel;
use crate::common::shipped::{self, Shipped};

/// Values of `param streams`; for files without it, real streams at most.
const STREAMS: [u32; 4] = [1, 4, 16, 64];

const RANKS: [u32; 3] = [1, 8, 64];

/// Operations of all ranks up to which a preset is simulated. Others are planned and scheduled.
const SIMULATED: usize = 600;

/// The same for the smallest preset, by every number of ranks and streams. `.ci/long` simulates all.
const TINY_SIMULATED: usize = 12_000;

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
        if file.path.starts_with("workloads/") {
            let about = ast.about.join(" ");
            for part in ["What to look at: ", "It stands for "] {
                assert!(about.contains(part), "{}: `//!` has no sentence that begins with {part}", file.path);
            }
        }
        for decl in &ast.decls {
            if let DeclKind::Param { name, .. } = &decl.kind {
                let name = ast.names.name(name.symbol);
                let known = PLAIN.contains(&name);
                assert!(known || !decl.docs.is_empty(), "{}: `param {name}` has no `///`", file.path);
            }
        }
    }
}

/// Every construct is in a file that runs on the CPU, in the simulator, on the double of AMD's libraries and on a GPU.
#[test]
fn shipped_files_use_every_construct() {
    let mut constructs = Constructs::default();
    for file in shipped::all() {
        constructs.add(&file.text, &file.ast());
    }
    assert_eq!(constructs.missing(), [""; 0], "words, expressions and operators");
    let missing = |all: &[&'static str]| -> Vec<&str> {
        all.iter().copied().filter(|name| !constructs.words.contains(*name)).collect()
    };
    assert_eq!(missing(&model::DISTRIBUTIONS.map(|(name, _)| name)), [""; 0], "distributions");
    assert_eq!(missing(&Space::NAMES), [""; 0], "spaces of memory");
    let host = ["spin", "copy", "fill", "cast", "map", "adamw", "sgd", "read", "direct", "host_sync"];
    assert_eq!(missing(&host), [""; 0], "host streams");
    let kernel = ["grid", "block", "shared", "flops", "bytes", "time", "source", "file", "entry", "args", "reference"];
    assert_eq!(missing(&kernel), [""; 0], "fields of kernels");
    let streams = ["priority", "units", "queue", "kind", "host", "threads"];
    assert_eq!(missing(&streams), [""; 0], "options of streams");
    let others = [
        "use",
        "parts",
        "std",
        "grad",
        "accumulate",
        "seed",
        "like",
        "zeros",
        "ones",
        "iota",
        "random",
        "language",
        "signal",
        "wait",
        "sync",
        "prev",
        "depth",
        "group",
        "view",
        "iteration",
        "send",
        "recv",
        "rev",
    ];
    assert_eq!(missing(&others), [""; 0], "other words");
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

/// The ranks of a program as they are measured.
fn measure_all(programs: &[(&Program, &Plan)], streams: Option<u32>) -> Measured {
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let options = schedule::ScheduleOptions { streams, ..schedule::ScheduleOptions::default() };
    let place = |(program, plan): &(&Program, &Plan)| common::placed(program, plan, &sim, &options);
    let schedules: Vec<Schedule> = programs.iter().map(place).collect();
    let ranks: Vec<RankSchedule> = (0..)
        .zip(programs.iter().zip(&schedules))
        .map(|(number, ((program, plan), schedule))| RankSchedule { number, program, plan, schedule })
        .collect();
    // With the device's limits, so that none of the simulator's figures is refused.
    let profile = Profile::named("h200").expect("embedded");
    // Deviations need two samples, also those of the slots of a cycle.
    let slots = schedules.iter().map(|schedule| schedule.period.len() as u32).max().unwrap_or(1);
    let request = Request {
        ranks: &ranks,
        plans: &[],
        backend: &sim,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        effort: EffortPlan { warmup: 0, iterations: 2 * slots },
        observed_iterations: 1,
        exec: common::exec_options(),
        control: &Control::default(),
        profile: Some(&profile),
        sources: &SourceMap::new(),
        keep: &|_| {},
        shares: std::cell::OnceCell::new(),
    };
    measure::measure(&request).unwrap_or_else(|error| panic!("{error}"))
}

/// Every figure is there, every expectation held, and every operation started when what it waits for had ended.
fn check_measured(measured: &Measured, what: &str) {
    assert!(measured.is_complete(), "{what}");
    let launches: Vec<&str> = measured.variants.iter().map(|variant| variant.launch.as_str()).collect();
    // The host reads the numbers of rows that are data, so no graph contains their exchange.
    let reads_counts = |warning: &String| {
        warning.starts_with("no graph could be made") && warning.contains("must read the row counts")
    };
    let has_graph = !measured.warnings.iter().any(reads_counts);
    assert_eq!(launches, ["stream", "graph"][..1 + usize::from(has_graph)], "{what}: {:?}", measured.warnings);
    for variant in &measured.variants {
        let time = variant.time.p50_ns.expect("an iteration was measured");
        assert!(time.0 > 0, "{what}");
        for metric in &variant.metrics {
            // A single rank has no network, which is reported.
            let note = metric.note.as_deref().unwrap_or_default();
            if metric.value.is_none() && note.contains("moves data between ranks") {
                continue;
            }
            // Nor do its collectives take time if their results are in place.
            if metric.value.is_none() && note.contains("take no time") && variant.ranks.len() == 1 {
                continue;
            }
            // An interval needs more iterations than these.
            if metric.value.is_none() && note.contains("independent samples") {
                continue;
            }
            // A preset may leave a stream without work on every rank.
            if metric.value.is_none() && note.contains("no operation that ran") {
                continue;
            }
            let value = metric.value.unwrap_or_else(|| panic!("{what}: {} has no value: {note}", metric.name));
            assert!(value.is_finite(), "{what}: {} is {value}", metric.name);
        }
        for expectation in &variant.expectations {
            assert_ne!(expectation.verdict, "failed", "{what}");
        }
        let rank = &variant.ranks[0];
        // Transfers and collectives of several ranks end where the last rank has come.
        if variant.ranks.len() > 1 {
            continue;
        }
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

/// Whether diagnostics refuse the number of ranks or streams, or a size that needs more ranks.
fn refused(errors: &str) -> bool {
    ["aorta::model::requirement", "aorta::model::not_allowed", "aorta::model::too_much_memory"]
        .iter()
        .any(|code| errors.contains(code))
}

/// Compiles a file for some ranks and streams, and simulates it if it has at most so many operations; `None` if the file
/// refuses the ranks or the streams.
fn try_run(file: &Shipped, preset: Option<&str>, world: u32, streams: Option<u32>, most: usize) -> Option<()> {
    let what = format!("{}, {preset:?}, {world} ranks, streams: {streams:?}", file.path);
    let range = file.streams();
    let text = streams.map(|streams| streams.to_string());
    let set: Vec<(&str, &str)> = match (&range, &text) {
        (Some(_), Some(text)) => vec![("streams", text)],
        _ => Vec::new(),
    };
    let compiled = match shipped::compile(&file.path, &file.text, preset, &set, world) {
        Ok(compiled) => compiled,
        Err(errors) => {
            assert!(refused(&errors), "{what}:\n{errors}");
            let outside = range.zip(streams).is_some_and(|(range, streams)| !range.contains(&i64::from(streams)));
            assert!(world > 1 || streams.is_none() || outside, "{what} is within the range:\n{errors}");
            return None;
        }
    };
    let programs: Vec<(&Program, &Plan)> = compiled.ranks.iter().map(|rank| (&*rank.program, &*rank.plan)).collect();
    let operations: usize =
        programs.iter().flat_map(|(program, _)| &program.cycle).map(|step| step.ids().count()).sum();
    // A file without the parameter has real streams of that number at most.
    let real = if range.is_none() { streams } else { None };
    if operations <= most {
        check_measured(&measure_all(&programs, real), &what);
    } else {
        let sim = Sim::new(Profile::named("h200").expect("embedded"));
        common::placed(
            programs[0].0,
            programs[0].1,
            &sim,
            &schedule::ScheduleOptions { streams: real, ..Default::default() },
        );
    }
    Some(())
}

/// Runs a file with its defaults and with each preset, and the smallest one by many streams and on many ranks.
fn simulate(file: &Shipped) {
    let presets = file.presets();
    for preset in std::iter::once(None).chain(presets.iter().map(|preset| Some(preset.as_str()))) {
        // A preset for several ranks refuses one.
        let found = RANKS.into_iter().find_map(|world| try_run(file, preset, world, None, SIMULATED));
        assert!(found.is_some(), "{}, {preset:?} runs on some number of ranks", file.path);
    }
    let tiny = presets.iter().find(|preset| *preset == "tiny").map(String::as_str);
    let long = effort::is_long();
    let most = if long { usize::MAX } else { TINY_SIMULATED };
    // Several ranks are 8 or 64 in turn; only `.ci/long` takes both, and every number of streams on several ranks.
    let [one, several @ ..] = RANKS;
    for world in std::iter::once(one).chain(effort::chosen(several)) {
        let of_rank: Vec<u32> = match world {
            _ if long => STREAMS.to_vec(),
            1 => effort::chosen(STREAMS).collect(),
            8 => vec![4],
            _ => Vec::new(),
        };
        for streams in of_rank {
            try_run(file, tiny, world, Some(streams), most);
        }
        try_run(file, tiny, world, None, most);
    }
}

#[test]
fn workloads_run_on_the_simulator() {
    let files: Vec<Shipped> = shipped::all().into_iter().filter(|file| file.path.starts_with("workloads/")).collect();
    let files: Vec<Shipped> = effort::chosen(files).collect();
    parallel::map(&files, simulate);
}

/// A file's own metrics on the simulated device, by name.
fn figures(name: &str, set: &[(&str, &str)]) -> BTreeMap<String, f64> {
    let (program, plan) = shipped::named(name).program(None, set);
    let measured = measure_all(&[(&program, &plan)], None);
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
    let sizes = [("layers", "4"), ("vocab", "1000"), ("seq", "1024")];
    let exposed =
        |prefetch| figures("fsdp_overlap", &[&sizes[..], &[("prefetch", prefetch)]].concat())["exposed_gather"];
    let (none, one, two) = (exposed("0"), exposed("1"), exposed("2"));
    assert!(one < 0.5 * none, "one layer ahead: {one} of {none}");
    assert!(two <= one, "two layers ahead: {two} of {one}");
}

#[test]
fn examples_run_on_the_simulator() {
    let files = shipped::all().into_iter().filter(|file| file.path.starts_with("examples/"));
    effort::chosen(files).for_each(|file| simulate(&file));
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

/// The backward pass by hand gives what the operation does, whose gradients other tests compare with differences.
#[test]
fn both_forms_of_attention_compute_the_same() {
    let file = shipped::named("attention");
    for (batch, seq, size) in [("1", "1", "1"), ("2", "12", "8"), ("3", "17", "5")] {
        let results = |form| {
            let set = [("form", form), ("dtype", "f32"), ("batch", batch), ("seq", seq), ("d_model", size)];
            let (program, plan) = file.small(&set);
            let written = common::written(&program, &plan, &Host, None, LaunchMode::Stream, 2);
            let values = |contents: &common::Contents| -> Vec<f64> {
                let element = contents.dtype.size() as usize;
                contents.bytes.chunks_exact(element).map(|bytes| contents.dtype.load(bytes)).collect()
            };
            written.iter().map(|contents| (contents.name.clone(), values(contents))).collect::<BTreeMap<_, _>>()
        };
        let (naive, fused) = (results("naive"), results("fused"));
        for name in ["o", "dq", "dk", "dv"] {
            assert_eq!(naive[name].len(), fused[name].len());
            for (by_hand, expected) in naive[name].iter().zip(&fused[name]) {
                let error = (by_hand - expected).abs();
                assert!(error < 1e-5, "{name} of {batch} × {seq} × {size}: {by_hand} beside {expected}");
            }
        }
    }
}

#[test]
fn results_on_the_cpu_do_not_depend_on_streams() {
    let files: Vec<Shipped> = effort::chosen(shipped::all()).collect();
    parallel::map(&files, |file| check_results(file, &[]));
}

#[test]
fn every_choice_computes_on_the_cpu() {
    let mut choices: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    let mut choose = |name, set: &[(&'static str, &'static str)]| choices.push((name, set.to_vec()));
    for direction in ["d2h", "h2d", "both", "peer"] {
        for via in ["dma", "kernel", "auto"] {
            choose("sdma_overlap", &[("direction", direction), ("via", via)]);
        }
    }
    for via in ["dma", "kernel", "auto"] {
        choose("size_sweep", &[("via", via)]);
        choose("engines", &[("via", via)]);
    }
    for mode in ["both", "compute_only", "comms_only"] {
        for collective in ["real", "simulated"] {
            choose("comms_compute_overlap", &[("mode", mode), ("collective", collective)]);
        }
    }
    for set in [("prefetch", "0"), ("prefetch", "2"), ("sharding", "none"), ("sharding", "hybrid")] {
        choose("fsdp_overlap", &[set]);
    }
    choose("pipeline_1f1b", &[("backward", "split")]);
    choose("context_parallel", &[("exchange", "all_to_all")]);
    choose("prefill_decode", &[("mode", "fused")]);
    choose("kv_offload", &[("via", "dma")]);
    choose("disaggregated", &[("transfer", "late")]);
    for form in ["eager", "like_aorta"] {
        choose("compiled_regions", &[("form", form)]);
    }
    choose("attention", &[("form", "naive")]);
    for pass in ["forward", "backward"] {
        choose("transformer", &[("pass", pass), ("dtype", "f32")]);
    }
    for name in [
        "graph_subgraphs",
        "fsdp_tp",
        "activation_ckpt",
        "grad_accum",
        "continuous_batch",
        "rag_pipeline",
        "async_dataload",
    ] {
        choose(name, &[("like_aorta", "true")]);
    }
    choose("zero_offload", &[("like_aorta", "true"), ("ahead", "3")]);
    for (cached, acceptance) in [("true", "0.0"), ("true", "0.99"), ("false", "0.7")] {
        choose("speculative_decode", &[("cached", cached), ("acceptance", acceptance)]);
    }
    let two_matrices = ("gated", "false");
    for set in [
        &[("skew", "1.0")][..],
        &[two_matrices],
        &[("form", "grouped")],
        &[("form", "grouped"), two_matrices],
        &[("form", "like_aorta"), two_matrices],
    ] {
        choose("moe", set);
    }
    choose("hetero_kernels", &[("pattern", "batched"), ("tiny_priority", "low")]);
    choose("tiny_kernel_stress", &[("order", "by_stream")]);
    for compute in ["f32", "tf32"] {
        choose("large_gemm_only", &[("dtype", "f32"), ("compute", compute)]);
    }
    let choices: Vec<_> = effort::chosen(choices).collect();
    parallel::map(&choices, |(name, set)| check_results(&shipped::named(name), set));
}
