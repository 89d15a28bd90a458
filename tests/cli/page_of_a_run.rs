//! Lines of the page of a run that depend on how it ran.

use super::sandbox::Sandbox;

/// Runs a file on the simulator with these arguments and returns what is printed on both outputs.
fn run(sandbox: &Sandbox, arguments: &str) -> String {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let output = sandbox.run(&[&["exec"], &words[..], &["--backend", "sim", "--effort", "quick"]].concat());
    output.stdout + &output.stderr
}

/// Short kernels on many streams are bound by the rate at which the device starts them.
#[test]
fn a_graph_is_not_advised_to_a_graph() {
    let sandbox = Sandbox::new();
    let text = "stream s[32]\nbuffer x[32]: f32[65536]\n\
                step { for i in 0..32 { on s[i] { for r in 0..8 { map(x[i] * 2 -> x[i]) } } } }\n";
    sandbox.write("many.aorta", text);
    let as_graph = run(&sandbox, "many.aorta --launch graph --top 5");
    assert!(as_graph.contains("the whole: bound by the rate at which the device starts operations"), "{as_graph}");
    assert!(!as_graph.contains("`--launch graph`"), "{as_graph}");
    let text = "buffer x: f32[64]\nstep { for i in 0..64 { map(x * 2 -> x) } }\n";
    sandbox.write("small.aorta", text);
    let advice = "`--launch graph` launches it by one call";
    assert!(run(&sandbox, "small.aorta --gate off").contains(advice));
    assert!(!run(&sandbox, "small.aorta --gate off --launch both").contains(advice));
}

/// The host reads the numbers of rows, which it cannot do while a graph runs.
#[test]
fn counted_rows_are_in_no_simulated_graph() {
    let sandbox = Sandbox::new();
    let text = "buffer x, y: f32[64, 8]\nbuffer counts: i32[world, world] = [[16, 16], [16, 16]]\n\
                step { all_to_all(x, counts -> y) }\n";
    sandbox.write("rows.aorta", text);
    for launch in ["both", "graph"] {
        let told = run(&sandbox, &format!("rows.aorta --ranks 2 --launch {launch}"));
        assert!(told.contains("no graph could be made, so the run continued as streams"), "{launch}: {told}");
        assert!(!told.contains("as a graph, simulated"), "{launch}: {told}");
    }
}

#[test]
fn a_failed_expectation_has_the_unit_of_its_metric() {
    let sandbox = Sandbox::new();
    let text = "buffer x: f32[4096]\nstep { a: map(x * 2 -> x)  spin(3us) }\n\
                metric share = busy(a) / time \"%\"\nexpect share > 99%\n";
    sandbox.write("share.aorta", text);
    let told = run(&sandbox, "share.aorta");
    let failed = told.lines().find(|line| line.starts_with("failed")).unwrap_or_default();
    assert!(failed.contains("`share` is ") && failed.ends_with(" %"), "{told}");
}

/// Iterations that overlap find the caches as the previous ones left them, whatever is asked for.
#[test]
fn overlapping_iterations_have_the_bounds_of_warm_caches() {
    let sandbox = Sandbox::new();
    let text = "buffer x, y: f32[1048576]\nstep(sync: end) { m: map(x * 2 -> y) }\n";
    sandbox.write("over.aorta", text);
    let row = |cache: &str| {
        let told = run(&sandbox, &format!("over.aorta --cache {cache}"));
        told.lines().find(|line| line.starts_with("m ")).unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    assert_eq!(row("cold"), row("hot"));
}

#[test]
fn a_limit_that_is_not_checked_says_so() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "step { spin(2us) }\n");
    sandbox.write("l.ron", "(workload: \"a.aorta\", limits: {\"time\": (to: \"1ns\")})\n");
    let told = sandbox.good(&["exec", "l.ron", "--backend", "sim", "--effort", "sanity"]);
    assert!(told.contains("limit time: at most 1 ns (scenario): the run is no measurement"), "{told}");
    assert_eq!(sandbox.run(&["exec", "l.ron", "--backend", "sim", "--effort", "quick"]).code, Some(1));
    sandbox.write("l.ron", "(workload: \"a.aorta\", limits: {\"tiem\": (to: \"1ns\")})\n");
    let output = sandbox.run(&["exec", "l.ron", "--backend", "sim"]);
    assert_eq!(output.code, Some(2));
    assert!(
        output.stderr.contains("l.ron:1:40") && output.stderr.contains("did you mean `time`?"),
        "{}",
        output.stderr
    );
}

/// If a device limits the units of a stream, the units bound its operations, not contention. Alone, they run on all units.
#[test]
fn limited_units_are_no_contention() {
    let sandbox = Sandbox::new();
    let text = "stream little(units: 8)\nbuffer a, b: f32[67108864]\nstep { on little { m: map(a * 2 -> b) } }\n\
                metric slow = stretch(m)\n";
    sandbox.write("few.aorta", text);
    let amd = run(&sandbox, "few.aorta --config profile=mi300x --top 1");
    assert!(amd.contains("bound by the `units` of streams"), "{amd}");
    assert!(amd.contains("m: its stream may use only some compute units: more `units`"), "{amd}");
    assert!(!amd.contains("contention") && amd.contains("\nslow: no value"), "{amd}");
    // Older records of CUDA had the units that the stream requests.
    sandbox.write("old.aorta", text.replace("map(a * 2 -> b)", "cumsum(a -> b)"));
    sandbox.good(&["exec", "old.aorta", "--backend", "sim", "--effort", "quick", "--json", "r.json"]);
    let mut record = sandbox.json("r.json");
    record["program"]["lanes"][0]["units"] = "8 units".into();
    sandbox.write("r.json", record.to_string());
    let old = sandbox.good(&["report", "r.json", "--top", "1"]);
    assert!(old.contains("\nm: ") && !old.contains("more `units`"), "{old}");
    // CUDA cannot limit the stream, which is what the note says.
    let nvidia = run(&sandbox, "few.aorta");
    assert!(nvidia.contains("stream little requests 8 units but may use all of them"), "{nvidia}");
    assert!(!nvidia.contains("slow: no value") && !nvidia.contains("`units` of streams"), "{nvidia}");
}

#[test]
fn pages_and_synthetic_work_have_their_sizes() {
    let sandbox = Sandbox::new();
    let text = "buffer store: bf16[512, 64] in pinned\nbuffer pages: bf16[4, 64]\n\
                step { copy(store -> pages, indices: [0, 7, 9, 3])  work(flops: 2GFLOP, unit: matrix)  work(bytes: 1MiB) }\n";
    sandbox.write("sizes.aorta", text);
    let told = run(&sandbox, "sizes.aorta");
    for size in ["copy 4×64 bf16", "work 2 GFLOP bf16", "work 1 MiB"] {
        assert!(told.contains(size), "{size}: {told}");
    }
}

/// Reports name a label inside a call `one.part`, and so do figures.
#[test]
fn figures_select_labels_inside_calls() {
    let sandbox = Sandbox::new();
    let text = "buffer x: f32[1000]\ndef f(x -> y) { part: map(x + 1 -> y) }\n\
                step { one: f(x -> x)  for i in 0..2 { two[i]: f(x -> x) } }\n";
    let metrics = "metric first = flops(one.part)\nmetric second = flops(two[1].part)\nmetric pair = flops(two.part)\n\
                   metric all = flops(part)\nexpect time(one.part) < 1s\n";
    sandbox.write("parts.aorta", format!("{text}{metrics}"));
    sandbox.good(&["exec", "parts.aorta", "--backend", "sim", "--effort", "quick", "--json", "parts.json"]);
    let record = sandbox.json("parts.json");
    let values = record["variants"][0]["metrics"].as_array().expect("a list").iter().map(|metric| &metric["value"]);
    let values: Vec<f64> = values.map(|value| value.as_f64().expect("a number")).collect();
    assert_eq!(values, [1.0, 1.0, 2.0, 3.0].map(|calls| calls * values[0]));
    sandbox.write("parts.aorta", format!("stream s\n{text}metric bad = time(s.part)\n"));
    let output = sandbox.run(&["check", "parts.aorta"]);
    assert!(output.stderr.contains("`s.part` is not a stream, label or phase"), "{}", output.stderr);
}

/// Notes on options and metrics that say less than they seem to.
#[test]
fn what_misleads_has_a_note() {
    let sandbox = Sandbox::new();
    let text = "stream s[2]\nbuffer x[2]: f32[16777216]\nstep { for i in 0..4 { on s[i % 2] { a: map(x[i % 2] * 2 -> x[i % 2])  \
                b: map(x[i % 2] + 1 -> x[i % 2]) } } }\nmetric share = (time(a) + time(b)) / time \"%\"\n\
                metric running = busy(a, b) / time \"%\"\n";
    sandbox.write("spans.aorta", text);
    let told = run(&sandbox, "spans.aorta --cycle 3 --launch both");
    assert!(told.contains("as streams: `share` is above 100 %") && !told.contains("`running` is above"), "{told}");
    assert!(told.contains("`--cycle 3` has no effect"), "{told}");
    // A simulated graph takes as long in a process of its own.
    assert!(!told.contains("measured after the streams"), "{told}");
    let alone = run(&sandbox, "spans.aorta --launch graph");
    assert!(!alone.contains("has no effect"), "{alone}");
}
