//! Mistakes in files that teams share, each with its place and with what to type. A case is the text that a user writes.

use super::sandbox::Sandbox;

const NET: &str = "//! A net.\nparam n = 64 in [16, 32, 64]\npreset large { n = 64 }\n\
    buffer x: f32[n, n] = random(1)\nstep { f: map(x * 2 -> x) }\n\
    metric rate = n / time \"rows/s\"\nmetric copied = bandwidth\nmetric share = 0.5 \"%\"\n";

fn folder() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("net.aorta", NET);
    sandbox
}

/// Runs a command that must fail as for bad input. Returns what it prints, on one line.
#[track_caller]
fn said(sandbox: &Sandbox, command: &str) -> String {
    let output = sandbox.run(&command.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.code, Some(2), "{command}: {output:?}");
    output.stderr.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn refused(sandbox: &Sandbox, command: &str, text: &str, says: &[&str]) {
    let said = said(sandbox, command);
    for says in says {
        assert!(said.contains(says), "{text}: `{says}` is not in {said}");
    }
    assert!(!said.contains("Expected opening") && !said.contains("expected one of"), "{text}: {said}");
}

/// Each case is the third line of a scenario.
#[test]
fn a_wrong_value_is_underlined_in_the_scenario() {
    let sandbox = folder();
    let cases: [(&str, &[&str]); 29] = [
        ("params: {nn: 3}", &["no parameter `nn`", "a.ron:3:12", "did you mean `n`?"]),
        ("params: {n: 300}", &["`n` cannot be 300", "a.ron:3:15", "allowed: 16, 32, 64"]),
        ("params: {n: \"2 * m\"}", &["there is no `m` here", "a.ron:3:20"]),
        ("params: {n: \"2 *\"}", &["aorta::syntax::unexpected_token", "a.ron:3:"]),
        ("preset: \"larg\"", &["no preset `larg`", "a.ron:3:12", "did you mean `large`?"]),
        ("streams: 0", &["`streams` cannot be `0`", "a.ron:3:12"]),
        ("ranks: 0", &["`ranks` cannot be `0`", "write a number from 1 to 1024", "a.ron:3:10"]),
        ("profile: \"h20\"", &["no device profile `h20`", "a.ron:3:12", "did you mean `h200`?"]),
        ("topology: \"hgx\"", &["no topology `hgx`", "a.ron:3:13"]),
        ("emulate: 2, rank: 5", &["`rank` cannot be `5`", "a.ron:3:21", "ranks go from 0 to 1"]),
        ("limits: {rate: (from: 1)}", &["the limit `rate`", "it is in rows/s", "\"1M rows/s\"", "a.ron:3:18"]),
        ("limits: {copied: (to: 5)}", &["the limit `copied`", "it is in B/s", "\"1GB/s\""]),
        ("limits: {time: (to: 5)}", &["it is a time", "\"5ms\"", "a.ron:3:18"]),
        ("limits: {share: (to: 5)}", &["the limit `share`", "`at most 5`: it is in %", "\"5%\"", "a.ron:3:19"]),
        ("limits: {copied: (to: \"5%\")}", &["the limit `copied`", "`at most 5 %`: it is in B/s", "\"1GB/s\""]),
        ("limits: {rat: (from: \"1 rows/s\")}", &["a limit cannot be `rat`", "did you mean `rate`?"]),
        ("axes: {\"set nn\": [1, 2]}", &["no parameter of that name", "a.ron:3:20", "did you mean `n`?"]),
        ("axes: {preset: [\"large\", \"larg\"]}", &["no preset of that name", "a.ron:3:28", "did you mean `large`?"]),
        ("axes: {launch: [\"stream\", \"grph\"]}", &["`launch` cannot be `grph`", "'graph'", "a.ron:3:29"]),
        (
            "axes: {\"set n\": [16, 300]}",
            &["`n` cannot be 300", "a.ron:3:24", "can have `--set=n=300`", "--skip-invalid"],
        ),
        ("axes: {\"set n\": \"16, 2 *\"}", &["aorta::syntax::", "a.ron:3:2"]),
        ("axes: {set: [1, 2]}", &["it has no name of what varies", "{\"set NAME\": [1, 2]}"]),
        ("axes: {\"streams n\": [1, 2]}", &["`streams` has no name behind it"]),
        ("axes: {\"set n\": [1, 2]}", &["none of the 2 cases can run"]),
        (
            "axes: {\"set n\": [16, 32], \"config in_flight\": [1, 2, 3]}, zip: true",
            &["goes through all axes together"],
        ),
        ("axes: {\"set n\": [16, 32]}, sort: \"speed\"", &["`--sort` cannot be `speed`", "no column has this name"]),
        ("sides: {b: \"--set nn=3\"}", &["the side `b`", "there is no parameter `nn`", "a.ron:3:14"]),
        ("sides: {b: \"--preset larg\"}", &["the side `b`", "there is no preset `larg`"]),
        ("expected: \"normal.ron\"", &["a range cannot be `rat`", "normal.ron:4:69", "did you mean `rate`?"]),
    ];
    let ranges = "(\n  devices: [\"A\"], sources: {\"us\": measured(\"here\")},\n  ranges: [\n    \
        (name: \"r\", figure: metric, workload: \"net\", seen: \"1\", metric: \"rat\", source: \"us\", normal: (from: \"1 rows/s\")),\n  ],\n)\n";
    sandbox.write("normal.ron", ranges);
    for (line, says) in cases {
        sandbox.write("a.ron", format!("(\n  workload: \"net.aorta\",\n  {line},\n)\n"));
        refused(&sandbox, "check a.ron", line, says);
        refused(&sandbox, "bundle a.ron", line, says);
    }
    assert!(!sandbox.path("a.aortab").exists());
    // Every file is checked, also behind a wrong one.
    sandbox.write("a.ron", "(workload: \"net.aorta\", preset: \"larg\")");
    let both = sandbox.run(&["check", "a.ron", "net.aorta"]);
    assert!(both.code == Some(2) && both.stdout.contains("net.aorta: good"), "{both:?}");
    // Ranges are checked by themselves too, if their workload lies beside them.
    refused(&sandbox, "check normal.ron", ranges, &["a range cannot be `rat`", "did you mean `rate`?"]);
    sandbox.write("normal.ron", ranges.replace("\"rat\"", "\"rate\"").replace("1 rows/s", "1ms"));
    refused(&sandbox, "check normal.ron", ranges, &["the range `rate`", "it is in rows/s"]);
    sandbox.write("normal.ron", ranges.replace("\"net\"", "\"elsewhere\""));
    let good = sandbox.good(&["check", "normal.ron"]);
    assert!(good.contains("not checked: metrics of `elsewhere`"), "{good}");
    // A value of the command line has no line in the file.
    sandbox.write("a.ron", "(workload: \"net.aorta\", params: {n: 16})");
    refused(&sandbox, "check a.ron --set n=3", "--set n=3", &["`n` cannot be 3", "--set n:1:1"]);
}

/// Each case is the first case of a suite, on its fourth line.
#[test]
fn wrong_cases_of_a_suite_are_underlined() {
    let sandbox = folder();
    let cases: [(&str, &[&str]); 14] = [
        ("workload: \"nte.aorta\"", &["no shipped workload `nte.aorta`", "s.ron:4:16", "did you mean `net.aorta`?"]),
        ("workload: \"net.aorta\", preset: \"larg\"", &["no preset `larg`", "s.ron:4:38"]),
        ("workload: \"net.aorta\", params: {nn: 3}", &["no parameter `nn`", "s.ron:4:38"]),
        ("workload: \"net.aorta\", params: {n: 300}", &["`n` cannot be 300", "s.ron:4:41"]),
        ("workload: \"net.aorta\", limits: {rat: (from: 1)}", &["a limit cannot be `rat`", "s.ron:4:43"]),
        ("workload: \"net.aorta\", limits: {rate: (from: 1)}", &["the limit `rate`", "it is in rows/s"]),
        ("workload: \"net.aorta\", limits: {time: (to: 1)}", &["it is a time", "s.ron:4:44"]),
        (
            "workload: \"net.aorta\", axes: [(name: \"n\", param: \"nn\", values: [1, 2])]",
            &["no parameter `nn`", "s.ron:4:56", "did you mean `n`?"],
        ),
        (
            "workload: \"net.aorta\", axes: [(name: \"n\", param: \"n\", values: [16, 99])]",
            &["`n` cannot be 99", "s.ron:4:73"],
        ),
        (
            "workload: \"net.aorta\", axes: [(name: \"n\", cases: {\"a\": (), \"b\": (params: {n: 99})})]",
            &["`n` cannot be 99", "s.ron:4:83"],
        ),
        (
            "workload: \"net.aorta\", preset: \"large\", axes: [(name: \"n\", cases: {\"a\": (preset: \"larg\")})]",
            &["no preset `larg`", "s.ron:4:88"],
        ),
        (
            "workload: \"net.aorta\", axes: [(name: \"n\", cases: {\"a\": (limits: {time: (to: 1)})})]",
            &["it is a time", "s.ron:4:77"],
        ),
        (
            "workload: \"net.aorta\", axes: [(name: \"n\", cases: {\"a\": (ranks: 1), \"b\": (ranks: 0)})]",
            &["it is 1 at least", "s.ron:4:86"],
        ),
        (
            "workload: \"net.aorta\", axes: [(name: \"n\", cases: {\"a\": (limits: {rat: (to: 1)})})]",
            &["a limit cannot be `rat`", "s.ron:4:76"],
        ),
    ];
    for (case, says) in cases {
        let text = format!(
            "(\n  description: \"d\",\n  cases: [\n    ({case}),\n    (workload: \"net.aorta\", preset: \"lage\"),\n  ],\n)\n"
        );
        sandbox.write("s.ron", text);
        for command in ["check s.ron", "show s.ron"] {
            refused(&sandbox, command, case, says);
        }
    }
    refused(&sandbox, "check s.ron", "the second case", &["no preset `lage`", "s.ron:5:38"]);
}

/// Each case is a whole file, or the third line of one.
#[test]
fn punctuation_says_what_to_type() {
    let sandbox = folder();
    let lines: [(&str, &[&str]); 31] = [
        ("preset: \"large\",,", &["there is no value before this `,`", "a.ron:3:19", "help: remove it"]),
        ("preset: \"large\" launch: both", &["a `,` is missing behind `\"large\"`", "write `preset: \"large\",`"]),
        ("authors: [\"A\" \"B\"]", &["a `,` is missing behind `\"A\"`", "a.ron:3:13"]),
        ("launch both", &["a `:` is missing between `launch` and its value", "write `launch: both`"]),
        ("launch = both", &["a `:` is missing", "a.ron:3:10"]),
        ("preset=\"large\"", &["a `:` is missing", "write `preset: \"large\"`"]),
        ("params {n: 16}", &["a `:` is missing between `params` and its value", "write `params: …`"]),
        ("launch:", &["`launch` has no value", "or remove `launch`"]),
        ("preset: 'large'", &["a text needs double quotes", "write `\"large\"`"]),
        ("\"preset\": \"large\"", &["the name of a field has no quotes", "write `preset`"]),
        ("effort: \"quick", &["the text has no closing quote", "write `\"quick\"`", "a.ron:3:11"]),
        ("# a comment", &["`#` begins no comment", "a comment begins with `//`"]),
        ("/* a comment", &["the comment has no end"]),
        ("params: {n: 16]", &["`]` does not close the `{` of line 3", "write `}`"]),
        ("limits: {time: (to: \"5us\"}", &["this `(` is not closed", "write `)` before the `}` of line 3"]),
        (
            "limits: {time: (to: \"5us\"}, effort: quik",
            &["this `(` is not closed", "write `)` before the `}` of line 3", "`quik`", "a.ron:3:39"],
        ),
        (
            "limits: {time: (to: \"5us\"),\n  effort: quik,\n  rank: 2.5",
            &["this `{` is not closed", "write `}` before the `effort` of line 4", "`quik`", "a.ron:4:11", "a.ron:5:9"],
        ),
        (
            "axes: {\"set n\": [16, 32,\n    \"streams\": [1, 2]},\n  effort: quik",
            &["this `[` is not closed", "write `]` before the `}` of line 4", "`quik`", "a.ron:5:11"],
        ),
        (
            "authors: [\"A\", \"B\",\n  limits: {time: (to: \"5us\")},\n  effort: quik",
            &["this `[` is not closed", "write `]` before the `limits` of line 4", "`quik`", "a.ron:5:11"],
        ),
        ("limits: {time: \"..5us\"}", &["a range is expected", "`time: (to: \"5us\")`"]),
        ("limits: {time: \"5us\"}", &["a range is expected", "`time: (from: \"5us\")` or `time: (to: \"5us\")`"]),
        ("limits: {time: {to: \"5us\"}}", &["a range is expected", "write `time: (to: \"5us\")`"]),
        ("limits: [time]", &["names with their values are expected", "`limits: {time: (to: \"5us\")}`"]),
        ("params: \"n=16\"", &["names with their values are expected", "write `params: {n: 16}`"]),
        ("params: (n: 16)", &["write `params: {n: 16}`"]),
        ("sides: [\"a\"]", &["write it as `sides: {b: \"--launch graph\"}`"]),
        ("authors: \"me\"", &["a list is expected", "write `authors: [\"me\"]`"]),
        ("streams: [1, 2]", &["several values are an axis of a sweep: `axes: {streams: [1, 2]}`"]),
        ("verify: yes", &["write `verify: true`"]),
        (
            "json: \"x\"",
            &["there is no field `json`", "`--json` stays on the command line: a scenario writes no files"],
        ),
        ("in_flight: 3", &["there is no field `in_flight`", "write `settings: {in_flight: …}`: it is a setting"]),
    ];
    for (line, says) in lines {
        sandbox.write("a.ron", format!("(\n  workload: \"net.aorta\",\n  {line}\n)\n"));
        refused(&sandbox, "check a.ron", line, says);
    }
    let files: [(&str, &[&str]); 11] = [
        (
            "workload: \"net.aorta\"",
            &["the fields of a file need `(` and `)` around them", "write `(` before `workload`"],
        ),
        ("{workload: \"nett.aorta\"}", &["write `(` and `)` instead of `{` and `}`", "nett.aorta"]),
        ("{\"workload\": 3}", &["instead of `{` and `}`", "write `workload`", "a text in quotes is expected"]),
        ("", &["fields between `(` and `)` are expected"]),
        ("(workload: \"nett.aorta\"", &["this `(` is not closed", "write `)` at the end of the file", "nett.aorta"]),
        ("(workload: \"nett.aorta\"))", &["`)` closes nothing", "remove it"]),
        ("(workload: \"nett.aorta\"),", &["a file has no `,` behind its fields"]),
        ("(workload: \"net.aorta\") mine, 3 }", &["text follows the bracket that ends the file", "a.ron:1:25"]),
        ("(workload: \"net.aorta\")\nmore: (3", &["text follows the bracket that ends the file", "a.ron:2:1"]),
        ("(workload: \"nett.aorta\"]", &["`]` does not close the `(` of line 1", "write `)`"]),
        ("(colour: 3, workload: \"net.aorta\")", &["the most similar are ", "lists the fields of a scenario"]),
    ];
    for (text, says) in files {
        sandbox.write("a.ron", text);
        refused(&sandbox, "check a.ron", text, says);
    }
    // A byte-order mark is no mistake.
    sandbox.write("a.ron", "\u{feff}(workload: \"net.aorta\", effort: quick)");
    sandbox.good(&["exec", "a.ron", "--backend", "sim"]);
}

#[test]
fn files_that_do_not_run_say_what_they_are() {
    let sandbox = folder();
    sandbox.write("run.ron", "(workload: \"net.aorta\", backend: \"sim\", effort: quick)");
    sandbox.good(&["exec", "run.ron", "--json", "run.json"]);
    sandbox.good(&["bundle", "run.ron", "--record", "run.json"]);
    sandbox.write("s.ron", "(description: \"d\", cases: [(workload: \"net.aorta\")])");
    sandbox.write("normal.ron", "(devices: [\"A\"], sources: {}, ranges: [])");
    sandbox.write("project.ron", "(library: [\".\"])");
    let device = super::sandbox::project().join("config/devices/h200.ron");
    sandbox.write("device.ron", std::fs::read(device).expect("the profile is there"));
    sandbox.write("bundle.ron", sandbox.read("run.aortab"));
    sandbox.write("bundle.txt", sandbox.read("run.aortab"));
    sandbox.write("scenario.txt", sandbox.read("run.ron"));
    sandbox.write("record.txt", sandbox.read("run.json"));
    let cases: [(&str, &[&str]); 10] = [
        ("s.ron", &["it is a suite", "`aorta suite s.ron` runs its cases"]),
        ("smoke", &["it is a suite: `aorta suite smoke`"]),
        ("normal.ron", &["it has normal ranges", "`--expected=normal.ron`"]),
        ("project.ron", &["it is a project", "`aorta list`"]),
        ("device.ron", &["it is a device profile", "`--config profile=device.ron`"]),
        ("bundle.ron", &["it is a bundle", "`mv bundle.ron bundle.aortab`"]),
        ("bundle.txt", &["it is a bundle", "`mv bundle.txt bundle.aortab`"]),
        ("scenario.txt", &["it is a scenario", "`mv scenario.txt scenario.ron`"]),
        ("record.txt", &["it is the record of a run", "`mv record.txt record.json`"]),
        (
            "run.aortab/record.json",
            &["it is the record of a run", "`aorta exec run.aortab`", "`aorta report run.aortab`"],
        ),
    ];
    for (file, says) in cases {
        for command in ["exec", "bundle", "sweep --streams 1,2"] {
            refused(&sandbox, &format!("{command} {file}"), file, says);
        }
    }
    refused(&sandbox, "unbundle rnu.aortab", "rnu.aortab", &["did you mean `run.aortab`?"]);
    refused(&sandbox, "new x --from run.aortab", "run.aortab", &["`aorta unbundle run.aortab`"]);
    for command in
        ["report run.aortab/record.json", "compare run.aortab run.aortab/record.json", "show run.aortab/record.json"]
    {
        sandbox.good(&command.split_whitespace().collect::<Vec<_>>());
    }
}

#[test]
fn a_text_that_is_no_bundle_says_what_it_is() {
    let sandbox = folder();
    sandbox.write(
        "run.ron",
        "(description: \"What it is\", authors: [\"A\", \"B\"], licence: \"MIT\", workload: \"net.aorta\")",
    );
    sandbox.good(&["bundle", "run.ron"]);
    let bundle = sandbox.read("run.aortab");
    sandbox.good(&["exec", "net.aorta", "--backend", "sim", "--effort", "quick", "--json", "run.json"]);
    let quoted: String = bundle.lines().map(|line| format!("> {line}\n")).collect();
    let texts: [(String, &[&str]); 7] = [
        (NET.to_owned(), &["it is the text of a workload", "ends in `.aorta`"]),
        (sandbox.read("run.ron"), &["it is a scenario", "ends in `.ron`"]),
        (sandbox.read("run.json"), &["it is JSON, such as the record of a run", "ends in `.json`"]),
        (String::new(), &["the file is empty"]),
        (format!("From us\n\n{bundle}"), &["line 3: the bundle begins here", "remove the lines before it"]),
        (quoted, &["signs before the lines of the bundle"]),
        ("hello\n".to_owned(), &["a bundle begins with the line `aorta bundle 1`"]),
    ];
    for (text, says) in texts {
        sandbox.write("x.aortab", &text);
        for command in ["exec", "show", "unbundle"] {
            refused(&sandbox, &format!("{command} x.aortab"), &text, says);
        }
    }
    let utf16: Vec<u8> = [vec![0xff, 0xfe], bundle.encode_utf16().flat_map(u16::to_le_bytes).collect()].concat();
    let bytes: [(&[u8], &[&str]); 4] = [
        (b"\x1f\x8b\x08\x00\x00", &["it is compressed by gzip", "`gunzip`"]),
        (b"PK\x03\x04\x00", &["it is a ZIP archive"]),
        (&utf16, &["its text is in UTF-16", "save it as UTF-8"]),
        (b"\xff\x00\xfd", &["it is not text"]),
    ];
    for (bytes, says) in bytes {
        sandbox.write("x.aortab", bytes);
        refused(&sandbox, "show x.aortab", "bytes", says);
    }
    sandbox.write("x.aortab", format!("\u{feff}{bundle}"));
    let shown = sandbox.good(&["show", "x.aortab"]);
    for row in ["  about     What it is", "  authors   A, B", "  licence   MIT"] {
        assert!(shown.lines().any(|line| line == row), "{row} is not in {shown}");
    }
}

/// A header is covered by a hash; bundles of older versions have none.
#[test]
fn a_changed_header_is_noticed() {
    let sandbox = folder();
    sandbox.write("run.ron", "(licence: \"MIT\", workload: \"net.aorta\", effort: quick, backend: \"sim\")");
    sandbox.good(&["bundle", "run.ron"]);
    let bundle = sandbox.read("run.aortab");
    let changes = [
        ("licence: MIT", "licence: GPL"),
        ("licence: MIT\n", ""),
        ("runs: run.ron", "runs: net.aorta"),
        ("plan: ", "plan: 00"),
        ("== net.aorta ", "== nets.aorta "),
        ("language: 1", "language: 0"),
    ];
    for (from, to) in changes {
        assert!(bundle.contains(from), "{from}");
        sandbox.write("x.aortab", bundle.replacen(from, to, 1));
        for command in ["exec x.aortab", "check x.aortab"] {
            refused(&sandbox, command, from, &["aorta::config::changed_part", "in its header"]);
        }
        let shown = sandbox.run(&["show", "x.aortab"]).stdout;
        assert!(shown.contains("  changed     these lines"), "{from}: {shown}");
    }
    let old: String =
        bundle.lines().filter(|line| !line.starts_with("hash: ")).map(|line| format!("{line}\n")).collect();
    assert_ne!(old, bundle);
    sandbox.write("old.aortab", old);
    sandbox.good(&["exec", "old.aortab"]);
}

#[test]
fn a_record_of_another_program_is_refused() {
    let sandbox = folder();
    sandbox.write("run.ron", "(workload: \"net.aorta\", params: {n: 32}, backend: \"sim\", effort: quick)");
    sandbox.write("wide.ron", "(workload: \"moe\", preset: \"tiny\", backend: \"sim\", effort: quick, ranks: 2)");
    sandbox.write("other/net.aorta", NET.replace("x * 2", "x * 3"));
    let cases: [(&str, &str, &[&str]); 7] = [
        ("run.ron", "run.ron --set n=16", &["`n` is 16 there and 32 in run.ron", "`aorta exec run.ron --json PATH`"]),
        ("run.ron", "run.ron --streams 1", &["`streams` is 1 there and absent in run.ron"]),
        ("run.ron", "run.ron --fuse", &["`fuse` is true there and false in run.ron"]),
        ("run.ron", "moe --preset tiny", &["it is a run of moe.aorta, and run.ron runs net.aorta"]),
        ("run.ron", "other/net.aorta", &["the text of net.aorta has changed since that run"]),
        ("net.aorta", "run.ron", &["`n` is 32 there and 64 in net.aorta"]),
        ("wide.ron", "wide.ron --ranks 1", &["`ranks` is 1 there and 2 in wide.ron"]),
    ];
    for (bundled, run, says) in cases {
        let command = format!("exec {run} --backend sim --effort quick --json r.json");
        sandbox.good(&command.split_whitespace().collect::<Vec<_>>());
        refused(&sandbox, &format!("bundle {bundled} --record r.json -o x.aortab"), run, says);
        assert!(!sandbox.path("x.aortab").exists(), "{run}");
    }
    // Options that decide how long and where is measured are the record's own.
    for options in ["--effort full", "--config profile=mi300x", "--launch graph"] {
        let command = format!("exec run.ron {options} --json r.json");
        sandbox.good(&command.split_whitespace().collect::<Vec<_>>());
        sandbox.good(&["bundle", "run.ron", "--record", "r.json"]);
    }
}

/// Partitions of a bundle and of its folder are parts of one sweep, and reports of them are the same.
#[test]
fn partitions_of_a_bundle_and_of_its_folder_belong_together() {
    let sandbox = folder();
    sandbox.write(
        "sweep.ron",
        "(workload: \"net.aorta\", backend: \"sim\", effort: quick, axes: {\"set n\": [16, 32, 64]})",
    );
    sandbox.good(&["bundle", "sweep.ron"]);
    sandbox.good(&["unbundle", "sweep.aortab", "-o", "ours"]);
    for (file, name) in [("sweep.aortab", "bundle"), ("ours/sweep.ron", "folder")] {
        for part in ["1", "2"] {
            let (partition, json) = (format!("{part}/2"), format!("{name}{part}.jsonl"));
            sandbox.good(&["sweep", file, "--partition", &partition, "--json", &json]);
        }
    }
    // The first line names the workload as the user did.
    let page = |files: [&str; 2]| sandbox.good(&["report", files[0], files[1]]).replace("ours/net", "net");
    let whole = page(["bundle1.jsonl", "bundle2.jsonl"]);
    assert!(whole.starts_with("net.aorta: 3 cases"), "{whole}");
    for files in
        [["folder1.jsonl", "folder2.jsonl"], ["bundle1.jsonl", "folder2.jsonl"], ["folder1.jsonl", "bundle2.jsonl"]]
    {
        assert_eq!(page(files), whole, "{files:?}");
    }
    let compared = sandbox.good(&["compare", "bundle1.jsonl,bundle2.jsonl", "folder1.jsonl,folder2.jsonl"]);
    assert!(!compared.contains("only in") && compared.contains("n=64"), "{compared}");
}
