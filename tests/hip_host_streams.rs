//! Host streams beside the HIP backend, on the double that runs on the CPU.

use proptest::strategy::{Strategy, ValueTree};

use crate::common::folder::Folder;
use crate::common::{doubles, effort, programs};
use crate::hip::{run, verify, verify_with};
use crate::host_streams;

/// Every operation of host streams, on slices with gaps and on a file, with one and with several iterations under way.
#[test]
fn host_streams_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu_in_turn() else { return };
    let file = "tests/workloads/host.aorta";
    let ways = [&["--set", "threads=1"][..], &["--set", "threads=3", "--sync", "end"], &["--ranks", "2"]];
    for arguments in effort::chosen(ways) {
        verify_with(libraries, &[("HIP_DOUBLE_DEVICES", "2")], file, arguments);
    }
}

/// A graph reads pageable memory when it is launched: what a host stream writes there comes too late for a copy of it, so
/// the run goes on as streams.
#[test]
fn no_graph_copies_what_a_host_stream_writes_to_pageable_memory() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let text = "stream loader(kind: host)\nstream s\nbuffer p: f32[64] in host\nbuffer x: f32[64]\n\
                step { on loader { fill(1 -> p) } on s { copy(p -> x) } }\n";
    let run_as_graph = |text: &str| {
        let output = run(libraries, "", &[&folder.write("handed-on.aorta", text), "--launch", "graph"]);
        assert!(output.code.is_some_and(|code| code <= 1), "{}", output.printed);
        output.printed
    };
    let printed = run_as_graph(text);
    assert!(printed.contains("a graph copies memory in `host` when it is launched"), "{printed}");
    let printed = run_as_graph(&text.replace("in host", "in pinned"));
    assert!(!printed.contains("no graph could be made"), "{printed}");
}

/// Random programs with host streams.
#[test]
fn random_host_streams_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for options in ["", "(sync: end, depth: 2)", "(sync: end, depth: 3)"] {
        let statements = programs::statements(host_streams::STREAMS, 16);
        let drawn = statements.new_tree(&mut runner).expect("a program can be drawn").current();
        verify(libraries, &folder.write("random.aorta", host_streams::text(&drawn, options)), &[]);
    }
}

/// Work of the CPU that takes longer than an iteration may: the message says which, and the threads end with the run.
#[test]
fn a_host_stream_that_hangs_is_named() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let text = "stream loader(kind: host, threads: 2)\nstream s\nbuffer p: f32[64] in pinned\nbuffer x: f32[64]\n\
                step { on loader { spin(5s) fill(1 -> p) } on s { copy(p -> x) } }\n";
    let file = folder.write("slow.aorta", text);
    for launch in ["stream", "graph"] {
        let output = run(libraries, "", &[&file, "--config", "timeout=300ms", "--launch", launch]);
        assert_eq!(output.code, Some(4), "{}", output.printed);
        assert!(
            output.printed.contains("aorta::exec::hang") && output.printed.contains("loader"),
            "{}",
            output.printed
        );
    }
}
