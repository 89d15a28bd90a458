//! How a workload is found: a path is that file, a bare name is a shipped workload.

use super::sandbox::Sandbox;

/// Which workload `check` finds for a name.
#[track_caller]
fn found(sandbox: &Sandbox, name: &str) -> String {
    sandbox.good(&["check", name])
}

#[test]
fn bare_names_come_from_the_library() {
    let sandbox = Sandbox::new();
    for name in ["moe", "moe.aorta", "distributed/moe", "distributed/moe.aorta"] {
        assert_eq!(found(&sandbox, name), "moe.aorta: good: 78 operations on 16 streams\n", "{name}");
    }
    let record = sandbox.record(&["moe", "--preset", "tiny"]);
    assert_eq!(record["workload"]["origin"], "library");
}

#[test]
fn near_misses_get_a_suggestion() {
    let sandbox = Sandbox::new();
    let cases = [
        ("moee", "help: did you mean `moe`?"),
        ("MOE.aorta", "help: did you mean `moe`?"),
        ("tiny_kernel_stres", "help: did you mean `tiny_kernel_stress`?"),
        ("distributed/mo", "help: did you mean `moe`?"),
        ("nothing_like_it", "help: `aorta list` shows the shipped workloads"),
        ("", "help: `aorta list` shows the shipped workloads"),
    ];
    for (name, help) in cases {
        for command in ["exec", "check", "show", "plan"] {
            let output = sandbox.run(&[command, name]);
            assert_eq!(output.code, Some(2), "{command} {name}");
            assert!(output.stderr.contains("aorta::cli::unknown_workload"), "{command} {name}: {}", output.stderr);
            assert!(output.stderr.contains(help), "{command} {name}: {}", output.stderr);
        }
    }
}

#[test]
fn files_beside_are_suggested() {
    let sandbox = Sandbox::new();
    sandbox.write("net.aorta", "step { nop() }");
    sandbox.write("runs/first.ron", "(workload: \"../net.aorta\", backend: sim, effort: quick)");
    std::fs::create_dir(sandbox.path("far")).expect("a folder can be made");
    sandbox.good(&["bundle", "runs/first.ron", "-o", "far/first.aortab"]);
    let cases = [
        ("exec", "net", "did you mean `net.aorta`?"),
        ("exec", "nte.aorta", "did you mean `net.aorta`?"),
        ("check", "runs/frist.ron", "did you mean `runs/first.ron`?"),
        ("exec", "far/first", "did you mean `far/first.aortab`?"),
        ("exec", "far/first.aortab/nte.aorta", "far/first.aortab has no part `nte.aorta`"),
        ("show", "far/first.aortab/nte.aorta", "did you mean `net.aorta`?"),
    ];
    for (command, name, says) in cases {
        let output = sandbox.run(&[command, name]);
        let said = output.stderr.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert!(output.code == Some(2) && said.contains(says), "{command} {name}: {}", output.stderr);
    }
}

#[test]
fn a_file_of_that_name_comes_first() {
    let sandbox = Sandbox::new();
    sandbox.write("moe", "step { nop() nop() }");
    sandbox.write("moe.aorta", "step { nop() nop() nop() }");
    sandbox.write("distributed/moe.aorta", "step { nop() nop() nop() nop() }");
    for (name, operations) in [("moe", 2), ("moe.aorta", 3), ("./moe.aorta", 3), ("distributed/moe.aorta", 4)] {
        let said = found(&sandbox, name);
        assert!(said.starts_with(&format!("{name}: good: {operations} operations")), "{said}");
    }
    // No file has this name, but the library has it.
    assert!(found(&sandbox, "distributed/moe").starts_with("moe.aorta: good: 78 operations"));
    let record = sandbox.record(&["moe.aorta"]);
    assert_eq!(record["workload"]["origin"], "moe.aorta");
}

#[test]
fn a_folder_of_that_name_hides_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("moe/inside", "");
    sandbox.write("distributed/moe/inside", "");
    for name in ["moe", "distributed/moe"] {
        assert_eq!(found(&sandbox, name), "moe.aorta: good: 78 operations on 16 streams\n", "{name}");
    }
    for name in ["./moe", "distributed"] {
        assert!(sandbox.run(&["check", name]).stderr.contains("it is a folder"), "{name}");
    }
}

#[test]
fn a_path_is_never_the_library() {
    let sandbox = Sandbox::new();
    for name in ["./moe", "./moe.aorta", "other/moe.aorta", "/moe.aorta"] {
        assert_eq!(sandbox.run(&["check", name]).code, Some(2), "{name}");
    }
}

/// An output never replaces a file that the command reads.
#[test]
fn inputs_are_not_overwritten() {
    let sandbox = Sandbox::new();
    sandbox.write("net.aorta", "step { nop() }");
    sandbox.write("net.ron", "(workload: \"net.aorta\", backend: sim, effort: sanity)");
    sandbox.good(&["exec", "net.ron", "--json", "net.json"]);
    for (command, input, option, output) in [
        ("exec", "net.aorta", "--json", "net.aorta"),
        ("exec", "net.ron", "--json", "net.ron"),
        ("exec", "net.ron", "--html", "./net.aorta"),
        ("exec", "net.json", "--csv", "net.json"),
        ("report", "net.json", "--html", "net.json"),
    ] {
        let before = sandbox.read(output);
        let run = sandbox.run(&[command, input, option, output]);
        assert_eq!(run.code, Some(2), "{command} {input} {option} {output}: {}", run.stderr);
        assert!(run.stderr.contains("this command reads it"), "{}", run.stderr);
        assert_eq!(sandbox.read(output), before);
    }
}
