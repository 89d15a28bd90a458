//! Commands on the programs of many ranks.

use crate::sandbox::Sandbox;

/// Each rank computes as often as its number says, and all meet in the end.
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

/// What only another rank does wrong is told with its number.
#[test]
fn mistakes_of_another_rank_say_whose_they_are() {
    let sandbox = Sandbox::new();
    sandbox.write("far.aorta", "buffer x: f32[4]\nstep { map(x[rank] + 1 -> x[rank]) all_reduce(x -> x) }");
    assert_eq!(sandbox.run(&["check", "far.aorta", "--ranks", "4"]).code, Some(0));
    let output = sandbox.run(&["check", "far.aorta", "--ranks", "8"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("which has 4 there, on rank 4 of 8"), "{}", output.stderr);
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

/// Only what a file does with the parameters that it gets takes more than one rank.
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
