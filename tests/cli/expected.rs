//! Verdicts on normal figures in a report, from a record with known figures.

use serde_json::{Value, json};

use super::sandbox::Sandbox;

macro_rules! snapshot {
    ($name:literal, $text:expr) => {
        insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
            insta::assert_snapshot!($name, $text);
        });
    };
}

/// A record of copies as a GPU would have made it: the simulator's figures, said to be measured, with all copies from the
/// host four times as slow.
fn measured(sandbox: &Sandbox) -> Value {
    let mut record = sandbox.record(&["size_sweep", "--effort", "quick", "--set", "repeat=1"]);
    record["simulated"] = json!(false);
    record["device"]["name"] = json!("NVIDIA H200");
    record["device"]["facts"]["pcie_width"] = json!("4");
    record["device"]["facts"]["max_pcie_width"] = json!("16");
    record
}

fn slowed(mut record: Value) -> Value {
    for operation in record["variants"][0]["ranks"][0]["operations"].as_array_mut().expect("a list") {
        if operation["direction"] == "h2d" {
            operation["time_ns"] = json!(4 * operation["time_ns"].as_i64().expect("a time"));
        }
    }
    record
}

fn report(sandbox: &Sandbox, record: &Value, more: &[&str]) -> String {
    sandbox.write("measured.json", record.to_string());
    sandbox.good(&[&["report", "measured.json"], more].concat())
}

#[test]
fn a_normal_run_has_one_line() {
    let sandbox = Sandbox::new();
    let record = measured(&sandbox);
    // A record that has no verdicts is shown as it is.
    assert!(!report(&sandbox, &record, &[]).contains("normal"));
    let listed = report(&sandbox, &record, &["--expected"]);
    assert!(listed.contains("\nIs it normal? 7 of 7 figures known of NVIDIA H200 are\n\n"), "{listed}");
    let (_, list) = listed.split_once("Figures and their normal ranges").expect("the list stands behind the report");
    snapshot!("expected_normal", format!("Figures beside{list}"));
}

#[test]
fn slow_figures_list_what_to_check() {
    let sandbox = Sandbox::new();
    let page = report(&sandbox, &slowed(measured(&sandbox)), &["--expected"]);
    let begin = page.find("Is it normal?").expect("a section");
    let end = page.find("Figures and their normal ranges").expect("a list behind it");
    snapshot!("expected_slower", &page[begin..end]);
}

/// A simulated record, or one of another device, has no verdicts.
#[test]
fn unknown_figures_get_no_verdict() {
    let sandbox = Sandbox::new();
    let why = |arguments: &[&str]| {
        let said = sandbox.good(arguments);
        let is_why = |line: &&str| line.starts_with("no verdict: no normal ranges");
        said.lines().find(is_why).unwrap_or_else(|| panic!("no line says why:\n{said}")).to_owned()
    };
    let exec = ["exec", "moe", "--preset", "tiny", "--expected"];
    let with = |more: &[&'static str]| [&exec[..], more].concat();
    assert_eq!(
        why(&with(&["--backend", "sim", "--effort", "quick"])),
        "no verdict: no normal ranges are known for NVIDIA H200 (simulated)"
    );
    assert!(
        why(&with(&["--backend", "host", "--effort", "quick"]))
            .starts_with("no verdict: no normal ranges are known for ")
    );
    let plain = sandbox.good(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--effort", "quick"]);
    assert!(!plain.contains("normal") && !plain.contains("no verdict"), "{plain}");
}

#[test]
fn own_ranges_judge_in_place_of_the_shipped_ones() {
    let sandbox = Sandbox::new();
    let own = r#"(
        devices: ["NVIDIA H200"],
        sources: {"us": measured("our wiki, 2026-11")},
        ranges: [(
            name: "copies of 64 MiB and more",
            figure: bandwidth,
            operation: "copy",
            direction: h2d,
            bytes: (from: "64MiB"),
            normal: (from: "100GB/s"),
            seen: "we have never seen it",
            source: "us",
        )],
    )"#;
    sandbox.write("own.ron", own);
    let page = report(&sandbox, &measured(&sandbox), &["--expected=own.ron"]);
    let (_, list) = page.split_once("Figures and their normal ranges").expect("a list");
    snapshot!("expected_own", format!("Figures beside{list}"));
    // Ranges for another device do not apply.
    sandbox.write("own.ron", own.replace("NVIDIA H200", "AMD Instinct MI300X"));
    let page = report(&sandbox, &measured(&sandbox), &["--expected=own.ron"]);
    assert!(page.ends_with("no verdict: own.ron is about AMD Instinct MI300X, and this was NVIDIA H200\n"), "{page}");
}

/// A measured run has verdicts by the user's own ranges, in its record too.
#[test]
fn a_run_notes_its_verdicts() {
    let sandbox = Sandbox::new();
    sandbox
        .write("small.aorta", "buffer x: f32[4096] = random(1)\nstep { map(x + 1 -> x) }\nmetric rate = bandwidth\n");
    sandbox.good(&["exec", "small.aorta", "--backend", "host", "--effort", "quick", "--json", "a.json"]);
    let device = sandbox.json("a.json")["device"]["name"].clone();
    let own = format!(
        "(devices: [{device}], sources: {{\"us\": measured(\"here\")}}, ranges: [\n\
         (name: \"any rate\", figure: metric, workload: \"small\", metric: \"rate\", normal: (from: \"1B/s\"), \
         seen: \"more\", source: \"us\"),\n\
         (name: \"no rate\", figure: metric, workload: \"small\", metric: \"rate\", normal: (to: \"1B/s\"), \
         seen: \"less\", source: \"us\"),\n])"
    );
    sandbox.write("own.ron", own);
    let run =
        ["exec", "small.aorta", "--backend", "host", "--effort", "quick", "--json", "b.json", "--expected=own.ron"];
    sandbox.good(&run);
    let verdicts = sandbox.json("b.json")["expected"].clone();
    let told: Vec<_> = verdicts.as_array().expect("a list").iter().map(|one| [&one["name"], &one["verdict"]]).collect();
    assert_eq!(told, [["any rate", "normal"], ["no rate", "faster"]]);
    assert_eq!(sandbox.json("a.json").get("expected"), None);
}

#[test]
fn mistakes_in_ranges_are_reported() {
    let sandbox = Sandbox::new();
    let record = sandbox.record(&["moe", "--preset", "tiny", "--effort", "sanity"]);
    sandbox.write("a.json", record.to_string());
    let range = |fields: &str| {
        format!("(devices: [\"X\"], sources: {{\"us\": measured(\"here\")}}, ranges: [\n  (name: \"r\", {fields}),\n])")
    };
    let good = "figure: bandwidth, normal: (from: \"1GB/s\"), seen: \"it\", source: \"us\"";
    let cases = [
        range(&good.replace("source: \"us\"", "source: \"uss\"")),
        range(&good.replace("source: \"us\"", "sauce: \"us\"")),
        range(&good.replace("figure: bandwidth", "figure: bandwith")),
        range(&good.replace("from: \"1GB/s\"", "")),
        range(&good.replace("1GB/s", "1 gigabyte")),
        range(&good.replace("1GB/s", "1GiB")),
        range(&good.replace("\"1GB/s\"", "\"2GB/s\", to: \"1GB/s\"")),
        range(&good.replace("figure: bandwidth", "bytes: (from: \"1ms\"), figure: bandwidth")),
        range(&good.replace("figure: bandwidth", "figure: metric")),
        range(&good.replace("figure: bandwidth", "direction: sideways, figure: bandwidth")),
        "(devices: [\"X\"]".to_owned(),
    ];
    let mut told = String::new();
    for text in cases {
        sandbox.write("own.ron", &text);
        let output = sandbox.run(&["report", "a.json", "--expected=own.ron"]);
        assert_eq!(output.code, Some(2), "{text}: {}", output.stderr);
        told += &format!("{text}\n{}\n", output.stderr);
    }
    sandbox.write("own.ron", range(good));
    sandbox.good(&["report", "a.json", "--expected=own.ron"]);
    snapshot!("expected_mistakes", told);
}
