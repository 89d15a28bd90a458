//! Stages of files as snapshots: tree, program, graph, plan, schedule, a simulated iteration, and a run's report.
//! [`FULL`] files have all of them, the other shipped files the plan and the schedule, in which a change of an earlier
//! stage shows. Files use their tiny presets if they have one.

use std::collections::BTreeSet;
use std::process::Command as Process;

use aorta::backend::sim::Sim;
use aorta::config::Profile;
use aorta::exec::{Backend, Control, LaunchMode, Observation, Trace};
use aorta::model::Program;
use aorta::ops::{CATALOGUE, Category};
use aorta::report::dump;
use aorta::schedule::ScheduleOptions;
use aorta::syntax;

use crate::common;
use crate::common::constructs::{self, Constructs};
use crate::common::effort;
use crate::common::shipped::{self, Shipped};

/// Files with snapshots of every stage. Together they use every construct of the language.
const FULL: [&str; 5] = [
    // Definitions, families of labels, phases, a collective whose result is read two layers later.
    "workloads/training/fsdp_overlap.aorta",
    // Routing, slices that an index selects, streams by number.
    "workloads/distributed/moe.aorta",
    // Branches in definitions, scratch buffers, dependencies by hand, a long chain.
    "workloads/inference/speculative_decode.aorta",
    // Spaces of memory, copies in both directions, parameters that are words.
    "workloads/copies/sdma_overlap.aorta",
    // The rest: meshes, groups, iterations that overlap and differ, dependencies on the previous one, expectations.
    "tests/workloads/constructs.aorta",
];

fn full() -> [Shipped; 5] {
    FULL.map(shipped::at)
}

/// All shipped files, and [`FULL`] ones that are not shipped.
fn all() -> Vec<Shipped> {
    let mut files = shipped::all();
    let further = full().into_iter().filter(|file| !file.path.starts_with("workloads/"));
    files.extend(further);
    files
}

#[test]
fn the_full_files_use_every_construct() {
    let (mut constructs, mut categories) = (Constructs::default(), BTreeSet::new());
    for file in full() {
        constructs.add(&file.text, &file.ast());
        categories.extend(constructs::operations(&program(&file).0).map(|operation| operation.category()));
    }
    assert_eq!(constructs.missing(), Vec::<&str>::new());
    let declared = [Category::Kernel];
    assert_eq!(categories, CATALOGUE.iter().map(|operation| operation.category()).chain(declared).collect());
    let missing =
        ["signal", "wait", "sync", "host_sync", "prev"].into_iter().filter(|word| !constructs.words.contains(*word));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// The program's output for a file.
fn printed(command: &[&str], file: &Shipped) -> String {
    let tiny = file.presets().iter().any(|preset| preset == "tiny");
    let output = Process::new(env!("CARGO_BIN_EXE_aorta"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // The user's settings must not have an effect.
        .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
        .arg(command[0])
        .arg(&file.path)
        .args(&command[1..])
        .args(if tiny { &["--preset", "tiny"][..] } else { &[] })
        .args(["--cycle", "2"])
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {}\n{errors}", file.path, output.status);
    String::from_utf8(output.stdout).expect("it prints text")
}

/// A file with its program at the same size.
fn program(file: &Shipped) -> (Program, aorta::plan::Plan) {
    let tiny = file.presets().into_iter().find(|preset| preset == "tiny");
    file.program(tiny.as_deref(), &[])
}

#[test]
fn trees() {
    for file in full() {
        insta::assert_snapshot!(format!("ast_{}", file.stem()), syntax::tree(&file.ast()));
    }
}

#[test]
fn models() {
    for file in full() {
        insta::assert_snapshot!(format!("model_{}", file.stem()), dump::model(&program(&file).0));
    }
}

#[test]
fn graphs() {
    for file in full() {
        let (program, plan) = program(&file);
        insta::assert_snapshot!(format!("graph_{}", file.stem()), dump::plan(&program, &plan));
    }
}

#[test]
fn plans() {
    for file in effort::due(all()) {
        insta::assert_snapshot!(format!("plan_{}", file.stem()), printed(&["plan"], &file));
    }
}

#[test]
fn schedules() {
    for file in effort::due(all()) {
        let (program, plan) = program(&file);
        let sim = Sim::new(Profile::named("h200").expect("embedded"));
        let schedule = common::placed(&program, &plan, &sim, &ScheduleOptions::default());
        insta::assert_snapshot!(format!("schedule_{}", file.stem()), dump::schedule(&program, &schedule));
    }
}

#[test]
fn traces() {
    for file in full() {
        let (program, plan) = program(&file);
        let sim = Sim::new(Profile::named("h200").expect("embedded"));
        let schedule = common::placed(&program, &plan, &sim, &ScheduleOptions::default());
        let mut session = common::session(&program, &plan, &schedule, &sim);
        session.capture().expect("the simulator captures");
        let traces = [LaunchMode::Stream, LaunchMode::Graph].map(|mode| {
            let traces = session
                .observe(Observation::once(mode, program.cycle.len()), &Control::default())
                .expect("the simulator does not fail");
            traces.into_iter().next().expect("one was asked for")
        });
        let [streams, graph] = &traces;
        let order = |trace: &Trace| trace.spans.iter().map(|span| (span.op, span.lane)).collect::<Vec<_>>();
        assert_eq!(order(streams), order(graph), "both have one order");
        insta::assert_snapshot!(
            format!("trace_{}", file.stem()),
            dump::trace(&program, &schedule, &sim.device().name, streams, graph)
        );
    }
}

#[test]
fn tables() {
    for file in full() {
        let command = ["exec", "--backend", "sim", "--effort", "quick", "--launch", "both"];
        insta::assert_snapshot!(format!("table_{}", file.stem()), printed(&command, &file));
    }
}
