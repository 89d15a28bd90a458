//! Commands on programs of several ranks.

use super::sandbox::{Output, Sandbox, workloads};
use crate::common::effort;

/// Each rank computes as often as its number says, and all end with a collective.
const STAIRS: &str = "\
buffer x: f32[64]
step {
  for i in 0..rank { map(x + 1 -> x) }
  all_reduce(x -> x)
}
";

#[test]
fn worlds_are_checked_one_after_the_other() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let said = sandbox.good(&["check", "stairs.aorta", "--ranks", "1,3"]);
    let expected = "stairs.aorta: good: 1 operation on 1 stream\n\
                    stairs.aorta: good: 1 to 3 operations on 1 stream on each of 3 ranks\n";
    assert_eq!(said, expected);
    assert_eq!(sandbox.run(&["check", "stairs.aorta", "--ranks", "0"]).code, Some(2));
}

/// Each mistake is shown once, with all numbers of ranks that lead to it. A division that a failed requirement excludes is no mistake.
#[test]
fn worlds_with_mistakes_do_not_stop_the_check() {
    let sandbox = Sandbox::new();
    let text = "require world % 2 == 0 \"pairs\"\nlet half = world / 2\nbuffer x: f32[2, 4]\n\
                step { map(x[half - 1] + 1 -> x[0]) all_reduce(x -> x) }";
    sandbox.write("pairs.aorta", text);
    let output = sandbox.run(&["check", "pairs.aorta", "--ranks", "1,2,3,4,6"]);
    assert_eq!(output.code, Some(2));
    let good = |ranks| format!("pairs.aorta: good: 2 operations on 1 stream on each of {ranks} ranks\n");
    assert_eq!(output.stdout, good(2) + &good(4));
    assert_eq!(output.stderr.matches("× not met: pairs").count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("\n1 error with 1 and 3 ranks\n"), "{}", output.stderr);
    assert!(output.stderr.ends_with("\n1 error with 6 ranks\n"), "{}", output.stderr);
    assert!(!output.stderr.contains("not_whole"), "{}", output.stderr);
}

#[test]
fn any_rank_has_its_plan() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let plan = sandbox.good(&["plan", "stairs.aorta", "--ranks", "4", "--rank", "3"]);
    assert!(plan.contains("\n4 operations, "), "{plan}");
    let other = sandbox.run(&["plan", "stairs.aorta", "--ranks", "4", "--rank", "4"]);
    assert_eq!(other.code, Some(2));
    assert!(other.stderr.contains("ranks go from 0 to 3"), "{}", other.stderr);
}

/// A mistake of another rank is reported with its number.
#[test]
fn mistakes_of_another_rank_say_whose_they_are() {
    let sandbox = Sandbox::new();
    sandbox.write("far.aorta", "buffer x: f32[4]\nstep { map(x[rank] + 1 -> x[rank]) all_reduce(x -> x) }");
    assert_eq!(sandbox.run(&["check", "far.aorta", "--ranks", "4"]).code, Some(0));
    let output = sandbox.run(&["check", "far.aorta", "--ranks", "8"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("which has 4 there, on rank 4 of 8"), "{}", output.stderr);
}

/// Rank 2 has more work before the first collective; no rank has more before the second.
const LATE: &str = "\
stream work
stream comm
buffer x: f32[65536]
buffer all: f32[world, 16]
step {
  on work {
    if rank == 2 { extra: spin(30us) }
    square: map(x * x -> x)
  }
  on comm {
    sum: all_reduce(x -> x)
    parts: all_gather(x[0..16] -> all)
  }
}
";

#[test]
fn the_rank_that_others_wait_for_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("late.aorta", LATE);
    let arguments = "exec late.aorta --backend sim --ranks 3 --launch both --json a.json --trace a.trace";
    let table = sandbox.good(&arguments.split(' ').collect::<Vec<_>>());
    insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
        insta::assert_snapshot!("ranks_table", table);
    });
    let record = sandbox.json("a.json");
    for variant in record["variants"].as_array().expect("a list") {
        assert_eq!(variant["skew"]["straggler"], 2);
        let [sum, parts] = variant["skew"]["collectives"].as_array().expect("a list").as_slice() else {
            panic!("two collectives: {}", variant["skew"]);
        };
        assert_eq!(
            (&sum["last"]["rank"], &sum["last"]["times"], &sum["wait_ns"][2]),
            (&2.into(), &5.into(), &0.into())
        );
        assert!(parts["last"].is_null(), "{parts}");
    }

    // A line for each span, on the common clock.
    let trace = sandbox.json("a.trace");
    let events = trace["traceEvents"].as_array().expect("a list");
    let arrows = |phase| events.iter().filter(move |event| event["ph"] == phase && event["cat"] == "between ranks");
    for (start, end) in arrows("s").zip(arrows("f")) {
        assert_eq!((&start["id"], &start["ts"]), (&end["id"], &end["ts"]));
        assert_ne!(start["pid"], end["pid"]);
    }
    let from: Vec<u64> = arrows("s").filter_map(|start| start["pid"].as_u64()).collect();
    // Two collectives of each variant; rank 2, the third process of each, comes last to the first of them.
    assert_eq!((from.len(), &from[..2], &from[4..6]), (8, &[3, 3][..], &[6, 6][..]), "{from:?}");
    let events = trace["traceEvents"].as_array().expect("a list").iter();
    let mut lines: Vec<String> = Vec::new();
    for event in events {
        match event["ph"].as_str() {
            Some("M") if event["name"] == "process_name" => lines.push(format!("{}", event["args"]["name"])),
            Some("X") if event["cat"] != "between ranks" => {
                lines.push(format!("  {} {} + {}", event["name"], event["ts"], event["dur"]))
            }
            _ => {}
        }
    }
    insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
        insta::assert_snapshot!("ranks_trace", lines.join("\n"));
    });
}

#[test]
fn equal_ranks_have_no_straggler() {
    let sandbox = Sandbox::new();
    sandbox.write("equal.aorta", LATE.replace("rank == 2", "rank < 3"));
    let arguments = "exec equal.aorta --backend sim --ranks 3 --launch both --effort quick --json a.json";
    let table = sandbox.good(&arguments.split(' ').collect::<Vec<_>>());
    assert!(!table.contains("slowest rank"), "{table}");
    for variant in sandbox.json("a.json")["variants"].as_array().expect("a list") {
        let skew = &variant["skew"];
        assert!(skew["straggler"].is_null() && skew["collectives"][0]["last"].is_null(), "{skew}");
        assert_eq!(skew["collectives"][0]["skew_ns"], 0);
    }
}

/// No file has warnings on the numbers of ranks that it allows. The other presets compile in `workloads`.
#[test]
fn every_shipped_workload_goes_together() {
    let sandbox = Sandbox::new();
    for path in effort::chosen(workloads("workloads")) {
        for preset in [None, Some("tiny")] {
            let file = path.display().to_string();
            let mut allowed = 0;
            for ranks in ["1", "2", "8"] {
                let mut command = vec!["check", "--strict", file.as_str(), "--ranks", ranks];
                command.extend(preset.iter().flat_map(|preset| ["--preset", preset]));
                let Output { code, stderr, .. } = sandbox.run(&command);
                match code {
                    Some(0) => allowed += 1,
                    _ => assert!(stderr.contains("aorta::model::requirement"), "{command:?}: {stderr}"),
                }
            }
            assert!(allowed > 0 || preset.is_some(), "{file}: none of these numbers of ranks is allowed");
        }
    }
}

#[test]
fn a_device_stands_for_a_rank_of_many() {
    let sandbox = Sandbox::new();
    let text = "buffer x: f32[1024]\nstep { all_reduce(x -> x) if rank == 3 { nop() } }\n";
    sandbox.write("sums.aorta", text);
    let run = |arguments: &[&str]| {
        let arguments = [&["exec", "sums.aorta", "--effort", "sanity"], arguments].concat();
        sandbox.run(&arguments)
    };
    let arguments = [
        "--backend",
        "sim",
        "--emulate",
        "4",
        "--rank",
        "3",
        "--json",
        "r.json",
        "--csv",
        "r.csv",
        "--trace",
        "t.json",
    ];
    let said = run(&arguments);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("2 operations on 1 stream of rank 3 of 4, emulated"), "{}", said.stdout);
    assert!(said.stdout.contains("as streams, simulated, emulated"), "{}", said.stdout);
    let record = sandbox.json("r.json");
    assert_eq!((record["emulated"].as_u64(), record["variants"][0]["ranks"][0]["rank"].as_u64()), (Some(4), Some(3)));
    assert!(sandbox.read("r.csv").contains(",true,4,"));
    assert_eq!(sandbox.json("t.json")["aorta"]["emulated"], 4);
    assert!(run(&["--backend", "sim"]).stdout.contains("as streams, simulated\n"), "no mark where nothing is emulated");
    for (arguments, why) in [
        (&["--emulate", "4", "--backend", "host"][..], "the CPU has none"),
        (&["--emulate", "4", "--backend", "sim", "--verify"], "an emulated collective computes none"),
        (&["--emulate", "4", "--backend", "sim", "--outputs", "o"], "an emulated collective computes none"),
        (&["--emulate", "4", "--backend", "sim", "--rank", "4"], "ranks go from 0 to 3"),
        (&["--emulate", "4", "--ranks", "4"], "cannot be used with"),
        (&["--rank", "1"], "--emulate"),
    ] {
        let said = run(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.stdout);
        assert!(said.stderr.contains(why), "{arguments:?}: {}", said.stderr);
    }
}

/// A file needs several ranks only because of operations that it contains with the given parameters.
#[test]
fn copies_to_other_ranks_show_in_a_plan() {
    let sandbox = Sandbox::new();
    let text =
        "param far = true\nbuffer x, y: f32[4]\nstep {\n  if far { copy(x -> y at (rank + 1) % world) }\n  nop()\n}\n";
    sandbox.write("ring.aorta", text);
    let plan = sandbox.good(&["plan", "ring.aorta", "--ranks", "3", "--rank", "1"]);
    assert!(plan.contains("copy(x -> y at 2; rank 0 -> y)"), "{plan}");
    let json: serde_json::Value =
        serde_json::from_str(&sandbox.good(&["plan", "ring.aorta", "--ranks", "3", "--format", "json"])).expect("JSON");
    let peer = &json["iterations"][0]["operations"][0]["peer"];
    assert_eq!((peer["to"][0].as_u64(), peer["from"][0].as_u64()), (Some(1), Some(2)), "{peer}");
    let other = sandbox.run(&["plan", "--diff", "ring.aorta", "ring.aorta", "--ranks", "3"]);
    assert_eq!(other.code, Some(0), "{}", other.stdout);
    let alone = sandbox.good(&["plan", "ring.aorta"]);
    assert!(alone.contains("copy(x -> y)"), "{alone}");
}

/// Without a number of ranks and without GPUs, a note says that there could be more.
#[test]
fn a_default_of_one_rank_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("sum.aorta", "buffer x: f32[64]\nstep { all_reduce(x -> x) }");
    sandbox.write("alone.aorta", "buffer x: f32[64]\nstep { map(x + 1 -> x) }");
    sandbox.write("ring.aorta", "buffer x: f32[64]\nbuffer y: f32[64]\nstep { copy(x -> y at (rank + 1) % world) }");
    let said = "No GPUs to count, so the file runs as one rank: `--ranks N` gives more.\n";
    for backend in ["sim", "host"] {
        let told = |file: &str, more: &[&str]| {
            sandbox.run(&[&["exec", file, "--backend", backend, "--effort", "sanity"], more].concat()).stderr
        };
        assert_eq!(told("sum.aorta", &[]), said);
        assert_eq!(told("ring.aorta", &[]), said);
        assert_eq!(told("sum.aorta", &["--ranks", "1"]), "");
        assert_eq!(told("sum.aorta", &["--ranks", "2"]), "");
        assert_eq!(told("alone.aorta", &[]), "");
    }
}

/// A record repeats its number of ranks, also of a file that only copies to other ranks.
#[test]
fn a_record_of_copies_has_its_number_of_ranks() {
    let sandbox = Sandbox::new();
    sandbox.write("ring.aorta", "buffer x, y: f32[4]\nstep { copy(x -> y at (rank + 1) % world) }");
    sandbox.good(&["exec", "ring.aorta", "--backend", "sim", "--effort", "quick", "--json", "a.json"]);
    let record = sandbox.json("a.json");
    let scenario = record["source"]["parts"]["run.ron"].as_str().expect("the record has its scenario");
    assert!(scenario.contains("ranks: 1"), "{scenario}");
}

/// A report shows the first rank, or the requested one.
#[test]
fn a_report_shows_the_rank_that_is_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.write("late.aorta", LATE);
    sandbox.good(&["exec", "late.aorta", "--backend", "sim", "--ranks", "3", "--json", "a.json"]);
    let first = sandbox.good(&["report", "a.json"]);
    assert!(
        first.contains("The rest of this report is about rank 0.") && !first.contains("extra       spin"),
        "{first}"
    );
    let third = sandbox.good(&["report", "a.json", "--rank", "2", "--top", "1"]);
    assert!(third.contains("The rest of this report is about rank 2.") && third.contains("extra      spin"), "{third}");
    assert!(third.contains("extra: the file sets its work or its duration"), "{third}");
    let none = sandbox.run(&["report", "a.json", "--rank", "3"]);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("the ranks are 0 to 2"), "{}", none.stderr);
}

/// Operations are grouped by label and location, and show their sizes.
#[test]
fn operations_are_distinguished_by_size_and_location() {
    let sandbox = Sandbox::new();
    let text = "\
def product(n) { gemm(bf16[n, 4096], bf16[4096, 64]) }
step {
  product(4096)
  product(8192)
  gemm(bf16[512, 2048], bf16[2048, 1024])
  for i in 0..3 { f[i]: gemm(bf16[8, 256, 128], bf16[8, 128, 64]) }
}
";
    sandbox.write("sizes.aorta", text);
    let table = sandbox.good(&["exec", "sizes.aorta", "--backend", "sim", "--effort", "quick"]);
    let row =
        |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
    assert!(row("gemm at 1:18").contains("gemm (2 sizes)"), "{table}");
    assert!(row("gemm at 5:3").contains("gemm 512×1024×2048 bf16"), "{table}");
    assert!(row("f ").contains("gemm 8 × 256×64×128 bf16      3"), "{table}");
}

/// Ranks without an operation of a metric are left out of it, and the others are counted.
#[test]
fn figures_of_ranks_with_different_roles() {
    let sandbox = Sandbox::new();
    // Each metric uses the one before twice: more than could be evaluated one use after the other.
    let chain: String = (1..64).map(|n| format!("metric sum{n} = sum{} / 2 + sum{} / 2\n", n - 1, n - 1)).collect();
    let text = format!(
        "stream s
stream t
step {{
  if rank == 1 {{
    on s {{ first: spin(2us) }}
  }} else {{
    on s {{ second: spin(4us) }}
    on t {{ third: spin(8us) }}
  }}
}}
metric of_one = time(first)
metric of_others = time(second)
metric shared = overlap(second, third)
metric of_none = time(first) + time(second)
metric of_all = time
metric sum0 = time(first)
{chain}
expect time(second) < time(third)
expect time(first) > 1s when time(first) > 1us
expect time(first) < time(second)
"
    );
    sandbox.write("a.aorta", &text);
    let output = sandbox.run(&["exec", "a.aorta", "--backend", "sim", "--ranks", "3", "--json", "a.json"]);
    assert_eq!(output.code, Some(1), "{}{}", output.stdout, output.stderr);
    let record = sandbox.json("a.json");
    let metrics = record["variants"][0]["metrics"].as_array().expect("a list");
    let of = |name: &str| {
        let metric = metrics.iter().find(|metric| metric["name"] == name).expect("it is evaluated");
        (metric["value"].as_f64().map(|value| (value * 1e9).round()), metric["ranks"].as_u64())
    };
    let of_one = of("of_one");
    assert!(of_one.0.is_some_and(|time| (2000.0..4000.0).contains(&time)) && of_one.1 == Some(1), "{of_one:?}");
    let of_others = of("of_others");
    assert!(
        of_others.0.is_some_and(|time| (4000.0..8000.0).contains(&time)) && of_others.1 == Some(2),
        "{of_others:?}"
    );
    assert_eq!(of("shared").1, Some(2));
    assert_eq!(of("of_none"), (None, None));
    assert!(of("of_all").0.is_some() && of("of_all").1.is_none());
    assert_eq!(of("sum63").1, Some(1));
    let note = "of_one: from 1 of 3 ranks, since the others have none of its operations";
    assert!(output.stdout.contains(note), "{}", output.stdout);
    let verdicts = record["variants"][0]["expectations"].as_array().expect("a list");
    let verdicts: Vec<_> = verdicts.iter().filter_map(|expectation| expectation["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["held", "failed", "failed"]);
}

/// Observed iterations of this file overlap less; the warning says whose effect it quotes.
#[test]
fn the_warning_of_observed_iterations_names_its_rank() {
    let sandbox = Sandbox::new();
    let text = "stream loader(kind: host, threads: 4)\nstream compute\nbuffer tokens: i32[2, 65536] in pinned = iota\n\
                buffer ready: bf16[2, 65536] in pinned\nbuffer x: bf16[65536]\nbuffer y: f32[65536]\n\
                step(sync: end, depth: 2) {\n  let turn = iteration % 2\n  on loader { cast(tokens[turn] -> ready[turn]) }\n  \
                on compute {\n    copy(ready[turn] -> x)\n    map(tanh(x) * 0.5 -> y)\n  }\n}\n";
    sandbox.write("loader.aorta", text);
    let run = ["exec", "loader.aorta", "--backend", "sim", "--effort", "sanity"];
    let alone = sandbox.good(&run);
    assert!(alone.contains("\nwarning: as streams: observed iterations take "), "{alone}");
    let both = sandbox.good(&[&run[..], &["--ranks", "2"]].concat());
    let warning = both.lines().find(|line| line.contains("observed iterations take ") && line.starts_with("warning"));
    let named = warning.is_some_and(|line| line.starts_with("warning: as streams, rank ") && !line.contains("rank 2"));
    assert!(named, "{both}");
}

/// Ranks whose cycles differ, and ranks on which the slices of a copy do not exist because they send nothing.
#[test]
fn copies_reach_ranks_that_send_nothing() {
    let sandbox = Sandbox::new();
    let files = [
        "buffer a, b: f32[8]\nstep { copy(a -> b at 1 when rank == 0 and iteration % 2 == 0) map(b + 1 -> a) }\n",
        "buffer a, b: f32[8]\nbuffer d: f32[3, 8]\nstep {\n  copy(a -> b at 1 when rank == 0)\n  \
         if rank == 1 { map(b + 1 -> d[iteration % 3]) }\n}\n",
        "buffer a: f32[2, 8]\nbuffer b: f32[1, 8]\nstep { copy(b[rank] -> a[rank + 1] at 1 when rank == 0) map(a * 2 -> a) }\n",
    ];
    for text in files {
        sandbox.write("a.aorta", text);
        let run = ["exec", "a.aorta", "--ranks", "2", "--backend", "host", "--verify", "--effort", "sanity"];
        let printed = sandbox.good(&run);
        assert!(printed.contains("verified against the CPU"), "{text}{printed}");
    }
    let text = "buffer a, b: f32[8]\nstep {\n  copy(a -> b at 1 when rank == 0 and iteration % 64 == 1)\n  \
                if rank == 1 { g[iteration % 63]: nop() }\n  if rank == 2 { f[iteration % 61]: nop() }\n}\n";
    sandbox.write("a.aorta", text);
    let Output { code, stderr, .. } = sandbox.run(&["check", "a.aorta", "--ranks", "3"]);
    assert!(code == Some(2) && stderr.contains("ranks with cycles of 61, 63, 64 iterations"), "{stderr}");
    let mistakes = [
        ("copy(b -> c[rank * 2] at 1 - rank)", "on rank 1 of 2"),
        ("copy(a -> b at 1 when rank == 5, foo: 3)", "aorta::model::unknown_option"),
        ("gemm(a, a -> b at 1 when rank == 5)", "aorta::model::peer_operand"),
        ("group { copy(a -> b at 1 when rank == 5) }", "aorta::model::in_group"),
        ("copy(a -> c at 1 when rank == 5)", "aorta::ops::output"),
        ("nop() copy(a -> b at 1 when rank == 5) map(b -> a)", "aorta::model::too_many_operations"),
    ];
    for (statement, expected) in mistakes {
        sandbox.write("a.aorta", format!("buffer a, b: f32[8]\nbuffer c: f32[2, 8]\nstep {{ {statement} }}\n"));
        let most = if statement.starts_with("nop") { "max_operations=1" } else { "max_operations=9" };
        let Output { code, stderr, .. } = sandbox.run(&["check", "a.aorta", "--ranks", "2", "--config", most]);
        assert!(code == Some(2) && stderr.contains(expected), "{statement}: {stderr}");
    }
}

/// Workload whose rank `big` multiplies large matrices, and each other rank small ones. Rank 0 sends to rank 1.
const UNEVEN: &str = "\
param big = 0
param split = false
buffer a, b: bf16[2048, 2048]
buffer c, d: bf16[64, 64]
step {
  if split { gemm(a[rank * 1024..(rank + 1) * 1024], a -> b[rank * 1024..(rank + 1) * 1024]) }
  else { if rank == big { gemm(a, a -> b) } else { gemm(c, c -> d) } }
  if rank == 0 { send(d, to: 1) }
  if rank == 1 { recv(-> d, from: 0) }
}
metric bus = bus_bandwidth
";

/// The place of the large product changes no sum: rates, scaling and `ab` count the work of all ranks.
#[test]
fn work_is_that_of_all_ranks() {
    let sandbox = Sandbox::new();
    sandbox.write("uneven.aorta", UNEVEN);
    let run = |arguments: &str| {
        let words = format!("{arguments} --backend sim");
        sandbox.good(&words.split_whitespace().collect::<Vec<_>>())
    };
    let swept = run("sweep uneven.aorta --effort quick --ranks 4 --set big=0,1 --json big.jsonl");
    assert!(swept.contains("the work stays ("), "{swept}");
    assert_eq!(swept.matches(" 100 %").count(), 2, "{swept}");
    let scaled = run("sweep uneven.aorta --effort quick --set big=0 --ranks 2,4,8 --json ranks.jsonl");
    assert!(scaled.contains("strong scaling"), "{scaled}");
    let searched = run(
        "sweep uneven.aorta --effort quick --search --budget 4 --ranks 2 --set big=0,1 --set split=true,false --json s.jsonl",
    );
    assert!(searched.lines().any(|line| line.starts_with("1 ") && line.contains("true")), "{searched}");
    let ab = run("ab uneven.aorta --ranks 4 --rounds 6 --no-apart --a=--set=big=0 --b=--set=big=1");
    assert!(!ab.contains("different work"), "{ab}");
    // A record of an older version has the work of its first rank alone.
    let old = sandbox.read("big.jsonl");
    let lines = old.lines().map(|line| {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        if let Some(program) = line.pointer_mut("/record/program").and_then(serde_json::Value::as_object_mut) {
            program.remove("ranks");
        }
        format!("{line}\n")
    });
    sandbox.write("old.jsonl", lines.collect::<String>());
    let old = sandbox.good(&["report", "old.jsonl"]);
    assert!(old.contains("the work is not known, and iterations may differ") && !old.contains("FLOP/s"), "{old}");
}

/// The page and the CSV describe the rank whose time is the headline, and the page the range over all ranks.
#[test]
fn figures_of_one_line_are_of_one_rank() {
    let sandbox = Sandbox::new();
    sandbox.write("uneven.aorta", UNEVEN);
    let words = "exec uneven.aorta --ranks 4 --set big=3 --backend sim --effort quick --json r.json --csv r.csv";
    let page = sandbox.good(&words.split_whitespace().collect::<Vec<_>>());
    assert!(page.contains("1 to 2 operations on 1 stream of each of 4 ranks"), "{page}");
    assert!(page.contains("524.3 kFLOP to 17.18 GFLOP"), "{page}");
    assert!(page.contains("bus: from 2 of 4 ranks"), "{page}");
    let csv = sandbox.read("r.csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let cell = |name: &str| rows[1][rows[0].iter().position(|column| *column == name).expect("a column")];
    let number = |name: &str| cell(name).parse::<f64>().expect("a number");
    assert_eq!((cell("rank"), number("flops")), ("3", 2.0 * 2048f64.powi(3)));
    let record = sandbox.json("r.json");
    let rank = &record["variants"][0]["ranks"][3];
    assert_eq!(Some(number("time.p50_ns")), rank["time"]["p50_ns"].as_f64());
    assert_eq!(Some(number("peak.flops")), rank["analysis"]["peak"]["flops"].as_f64());
    let share = format!("of peak arithmetic{:>35.0} %", 100.0 * number("peak.flops"));
    for other in [&page, &sandbox.good(&["report", "r.json", "--rank", "1"])] {
        let line = other.lines().find(|line| line.starts_with("of peak arithmetic")).expect("a share");
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), share.split_whitespace().collect::<Vec<_>>());
    }
}

/// Operations of several streams share a link in a run of all ranks, and not in an emulated one: its rate has no value.
#[test]
fn an_emulated_rank_has_no_rate_beyond_its_link() {
    let sandbox = Sandbox::new();
    let text = "param k = 1\nstream s[k]\nbuffer x[k]: f32[16777216]\n\
                step { for i in 0..k { on s[i] { all_reduce(x[i] -> x[i]) } } }\nmetric bus = bus_bandwidth\n";
    sandbox.write("sums.aorta", text);
    let run = |k: &str| {
        let words = ["exec", "sums.aorta", "--emulate", "8", "--backend", "sim", "--effort", "quick", "--set", k];
        sandbox.good(&words)
    };
    assert!(run("k=1").lines().any(|line| line.starts_with("bus ") && line.ends_with("GB/s")));
    let shared = run("k=4");
    assert!(shared.contains("bus: no value, since it is refused"), "{shared}");
    assert!(!shared.contains("TB/s"), "{shared}");
}
