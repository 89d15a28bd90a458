//! Commands on the programs of many ranks.

use crate::sandbox::{Sandbox, workloads};

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

/// With every preset, on one rank and on several, and with nothing to warn of.
#[test]
fn every_shipped_workload_goes_together() {
    let sandbox = Sandbox::new();
    for path in workloads("workloads") {
        let text = std::fs::read_to_string(&path).expect("a workload is text");
        let presets = text.lines().filter_map(|line| line.strip_prefix("preset ")?.split_whitespace().next());
        for preset in std::iter::once(None).chain(presets.map(Some)) {
            let file = path.display().to_string();
            let mut command = vec!["check", "--strict", file.as_str(), "--ranks", "1,2,8"];
            command.extend(preset.iter().flat_map(|preset| ["--preset", preset]));
            let checked = sandbox.good(&command);
            assert!(checked.ends_with(" on each of 8 ranks\n"), "{command:?}: {checked}");
        }
    }
}
