//! `aorta compare`: what it reads, what it writes, and when its exit code is 1.

use serde_json::Value;

use super::sandbox::{Output, Sandbox};

/// Simulated runs of one small file: the same work, on one stream and on two.
fn runs() -> Sandbox {
    let sandbox = Sandbox::new();
    let text = "param streams = 2\nstream s[streams]\nbuffer x: f32[4]\n\
                step { for i in 0..4 { on s[i % streams] { spin(20us) } } on s[0] { memset(0 -> x) } }\n";
    sandbox.write("work.aorta", text);
    for streams in ["1", "2"] {
        run(&sandbox, streams, &format!("{streams}.json"));
    }
    sandbox
}

fn run(sandbox: &Sandbox, streams: &str, json: &str) {
    sandbox.good(&["exec", "work.aorta", "--backend", "sim", "--streams", streams, "--json", json]);
}

fn compare(sandbox: &Sandbox, arguments: &str) -> Output {
    sandbox.run(&[&["compare"], &arguments.split_whitespace().collect::<Vec<_>>()[..]].concat())
}

#[test]
fn the_exit_code_says_what_was_found() {
    let sandbox = runs();
    for (arguments, code) in [
        ("1.json 1.json", 0),
        // Faster, and slower.
        ("1.json 2.json", 0),
        ("2.json 1.json", 1),
        ("2.json 1.json --format junit", 1),
        ("2.json 2.json 1.json", 1),
        ("2.json 1.json --fail-on never", 0),
        ("2.json 1.json --fail-on missing,cannot-tell", 0),
        ("2.json 1.json --metric throughput", 1),
        ("2.json 1.json --metric memory", 0),
        // Nearly twice the time.
        ("2.json 1.json --threshold 50%", 1),
        ("2.json 1.json --metric time --threshold 99.9%", 0),
        ("2.json 1.json --metric time --threshold 99.9% --threshold time.p95=50%", 1),
    ] {
        let output = compare(&sandbox, arguments);
        assert_eq!(output.code, Some(code), "{arguments}: {}{}", output.stdout, output.stderr);
    }
}

/// A metric in another unit has no row, and a line says why.
#[test]
fn a_metric_in_another_unit_is_not_compared() {
    let sandbox = Sandbox::new();
    for (side, unit) in [("a", "tokens/s"), ("b", "images/s")] {
        let text = format!("step {{ spin(20us) }}\nmetric speed = 8 / time \"{unit}\"\nmetric mine = time\n");
        sandbox.write("work.aorta", &text);
        sandbox.good(&["exec", "work.aorta", "--backend", "sim", "--json", &format!("{side}.json")]);
    }
    let told = compare(&sandbox, "a.json b.json").stdout;
    let said = "doubtful: `speed` is not compared, since its unit differs: `tokens/s` and `images/s`\n";
    assert!(told.contains(said), "{told}");
    assert!(told.contains("\nmine ") && !told.contains("\nspeed "), "{told}");
    assert!(!compare(&sandbox, "a.json a.json").stdout.contains("unit"));
}

/// A share has its unit of the report, and operations have the numbers of both sides.
#[test]
fn shares_and_counts_are_shown() {
    let sandbox = Sandbox::new();
    let text =
        "param n = 2\nstep { for i in 0..n { a: spin(20us) }  spin(20us) }\nmetric share = busy(a) / time \"%\"\n";
    sandbox.write("work.aorta", text);
    for n in ["2", "4"] {
        let set = format!("n={n}");
        sandbox.good(&["exec", "work.aorta", "--backend", "sim", "--set", &set, "--json", &format!("{n}.json")]);
    }
    let told = compare(&sandbox, "2.json 4.json --operations").stdout;
    let line = |name: &str| told.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{told}"));
    assert_eq!(line("share").matches(" %").count(), 4, "{told}");
    assert!(line("a ").contains(" 2 -> 4 ") && line("spin").contains(" 1 "), "{told}");
    assert!(line("a ").ends_with("+100.00 %"), "{told}");
}

#[test]
fn a_missing_case_fails_where_that_is_asked_for() {
    let sandbox = runs();
    std::fs::create_dir(sandbox.path("both")).expect("made");
    for name in ["1.json", "2.json"] {
        sandbox.write(&format!("both/{name}"), sandbox.read(name));
    }
    let output = compare(&sandbox, "both 1.json");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("only in both: work streams=2, as streams"), "{}", output.stdout);
    assert_eq!(compare(&sandbox, "both 1.json --fail-on worse,missing").code, Some(1));
    assert_eq!(compare(&sandbox, "1.json both --fail-on worse,missing").code, Some(0));
}

#[test]
fn folders_and_commas_are_runs_of_a_side() {
    let sandbox = runs();
    for name in ["a/1.json", "a/2.json", "a/notes.txt"] {
        sandbox.write(name, sandbox.read("1.json"));
    }
    run(&sandbox, "1", "with,comma.json");
    let output = compare(&sandbox, "a with,comma.json");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("base: a: 1 case, 2 runs\nother: with,comma.json: 1 case\n"), "{}", output.stdout);
    let output = compare(&sandbox, "1.json,a/1.json 1.json");
    assert!(output.stdout.starts_with("base: 1.json,a/1.json: 1 case, 2 runs\n"), "{}", output.stdout);
}

#[test]
fn a_form_goes_to_a_file_and_the_table_to_the_terminal() {
    let sandbox = runs();
    let output = compare(&sandbox, "2.json 1.json --format json --output out.json");
    assert_eq!(output.code, Some(1));
    assert!(output.stdout.starts_with("base: 2.json: 1 case\n"), "{}", output.stdout);
    let written = sandbox.json("out.json");
    assert_eq!((&written["schema"], &written["fail_on"]), (&"aorta.compare/1".into(), &serde_json::json!(["worse"])));
    let printed: Value = serde_json::from_str(&compare(&sandbox, "2.json 1.json --format json").stdout).expect("JSON");
    assert_eq!(printed, written);
    let output = compare(&sandbox, "2.json 1.json --output no/such/folder.json");
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""));
}

#[test]
fn files_that_are_not_runs_are_reported() {
    let sandbox = runs();
    sandbox.write("torn.json", &sandbox.read("1.json")[..500]);
    sandbox.write("list.json", "[1, 2]");
    sandbox.write("results.json", "{\"latency_ms\": {}, \"throughput\": {}, \"iteration_times_ms\": 3}");
    std::fs::create_dir(sandbox.path("empty")).expect("made");
    sandbox.write("other.aorta", "step { spin(2us) }\n");
    sandbox.good(&["exec", "other.aorta", "--backend", "sim", "--json", "other.json"]);
    for (arguments, says) in [
        ("1.json torn.json", "torn.json has nothing to compare: it is no JSON of a run"),
        ("1.json list.json", "list.json has nothing to compare"),
        ("1.json results.json", "results.json has nothing to compare: it looks like AORTA's results, and is damaged"),
        ("1.json empty", "empty has nothing to compare: the folder has no file that ends in .json"),
        ("1.json no.json", "a record, a file of cases or a folder of them is expected"),
        ("1.json ,", "`,` has nothing to compare: it names no file"),
        ("1.json", "required arguments were not provided"),
        ("1.json 2.json --threshold 3", "a share is between 0 and 1"),
        ("1.json 2.json --between-runs 200%", "a share is between 0 and 1"),
        ("1.json 2.json --between-runs much", "write `--between-runs 3%`"),
        ("1.json 2.json --threshold tme=3%", "no metric of this name exists on both sides"),
        ("1.json 2.json --metric tme", "memory.device"),
        ("1.json 2.json --better gain", "it is not of the form `METRIC=higher`"),
        ("1.json 2.json --fail-on never,worse", "it cannot be combined with other conditions"),
    ] {
        let output = compare(&sandbox, arguments);
        assert_eq!(output.code, Some(2), "{arguments}: {}{}", output.stdout, output.stderr);
        let said = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.replace("│ ", "").contains(says), "{arguments}: {}", output.stderr);
    }
    let output = compare(&sandbox, "1.json other.json");
    assert_eq!(output.code, Some(2));
    assert!(
        output.stdout.contains("only in 1.json: work, as streams\nonly in other.json: other, as streams\n"),
        "{}",
        output.stdout
    );
    assert!(output.stderr.contains("1.json and other.json have no case in common"), "{}", output.stderr);
}
