//! Files that a run writes: the record as JSON and CSV, tensors, and nothing that was not requested.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::sandbox::{Sandbox, project};

/// A run that writes everything, as streams and as a graph.
fn everything(sandbox: &Sandbox) -> String {
    let arguments = "exec moe --preset tiny --backend sim --launch both --json a.json --csv a.csv --trace a.trace";
    sandbox.good(&arguments.split_whitespace().collect::<Vec<_>>())
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The columns and rows of a CSV file. The reader refuses rows of unequal length.
fn rows(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let rows = reader.records().map(|row| row.expect("as long as the header").iter().map(str::to_owned).collect());
    (header, rows.collect())
}

#[test]
fn json_has_the_whole_run() {
    let sandbox = Sandbox::new();
    everything(&sandbox);
    let record = sandbox.json("a.json");
    assert_eq!(record["schema"], "aorta.run/1");
    assert_eq!(record["aorta"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&record["simulated"], &record["measurement"], &record["complete"]),
        (&true.into(), &true.into(), &true.into())
    );
    assert!(record["started"].as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')));
    assert!(record["environment"]["os"].as_str().is_some_and(|os| os.starts_with(std::env::consts::OS)));
    assert!(record["environment"]["cpus"].as_u64().is_some_and(|cpus| cpus > 0));
    let variants = record["variants"].as_array().expect("a list");
    let launches: Vec<_> = variants.iter().map(|variant| variant["launch"].as_str()).collect();
    assert_eq!(launches, [Some("stream"), Some("graph")]);
    for variant in variants {
        for times in [&variant["time"], &variant["issue"]] {
            assert!(times["p50_ns"].as_u64().is_some_and(|median| median > 0), "{times}");
            let samples = times["samples_ns"].as_array().expect("a list");
            assert_eq!(samples.len(), 100);
            assert!(samples.iter().all(Value::is_u64));
            let [least, most] = [samples.iter().map(Value::as_u64).min(), samples.iter().map(Value::as_u64).max()];
            assert_eq!([times["min_ns"].as_u64(), times["max_ns"].as_u64()], [least, most].map(Option::flatten));
        }
        let operations = variant["ranks"][0]["operations"].as_array().expect("a list");
        assert_eq!(record["program"]["operations"], operations.len());
        assert!(operations.iter().all(|operation| operation["time_ns"].is_u64()), "each was observed");
    }
}

#[test]
fn the_hash_is_that_of_the_file() {
    let sandbox = Sandbox::new();
    let shipped = std::fs::read(project().join("workloads/distributed/moe.aorta")).expect("the workload is there");
    assert_eq!(sandbox.record(&["moe", "--preset", "tiny"])["workload"]["sha256"], sha256(&shipped));
    let own = "// ä\r\nstep { nop() }";
    sandbox.write("own.aorta", own);
    assert_eq!(sandbox.record(&["own.aorta"])["workload"]["sha256"], sha256(own.as_bytes()));
}

#[test]
fn csv_has_a_row_for_each_variant() {
    let sandbox = Sandbox::new();
    everything(&sandbox);
    let (header, rows) = rows(&sandbox.read("a.csv"));
    let record = sandbox.json("a.json");
    let mut unique = header.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), header.len(), "two columns have one name: {header:?}");
    assert_eq!(rows.len(), 2);
    let column = |name: &str| header.iter().position(|column| column == name).unwrap_or_else(|| panic!("no {name}"));
    for (row, variant) in rows.iter().zip(record["variants"].as_array().expect("a list")) {
        assert_eq!(variant["launch"], row[column("launch")]);
        assert_eq!(variant["time"]["p50_ns"].to_string(), row[column("time.p50_ns")]);
        assert_eq!(variant["time"]["n"].to_string(), row[column("time.n")]);
        assert_eq!(row[column("param.streams")], "4");
        assert_eq!(record["workload"]["sha256"], row[column("sha256")]);
        let rate: f64 = row[column("metric.tokens_per_second")].parse().expect("a number");
        assert_eq!(variant["metrics"][0]["value"], rate);
    }
}

#[test]
fn every_output_says_that_it_is_simulated() {
    let sandbox = Sandbox::new();
    let printed = everything(&sandbox);
    let table_heads = printed.lines().filter(|line| line.contains("iterations ") || line.contains("(as streams"));
    assert!(
        table_heads.clone().count() >= 3 && table_heads.clone().all(|line| line.contains("simulated")),
        "{printed}"
    );
    assert_eq!(sandbox.json("a.json")["simulated"], true);
    let (header, rows) = rows(&sandbox.read("a.csv"));
    let column = header.iter().position(|column| column == "simulated").expect("a column");
    assert!(rows.iter().all(|row| row[column] == "true"));
    let trace = sandbox.json("a.trace");
    assert_eq!(trace["aorta"]["simulated"], true);
    assert!(trace["traceName"].as_str().is_some_and(|name| name.contains("simulated")));

    let arguments = "exec moe --preset tiny --backend host --effort sanity --json b.json --csv b.csv --trace b.trace";
    let printed = sandbox.good(&arguments.split_whitespace().collect::<Vec<_>>());
    assert!(!printed.contains("simulated"), "{printed}");
    assert_eq!(sandbox.json("b.json")["simulated"], false);
    assert_eq!(sandbox.json("b.trace")["aorta"]["simulated"], false);
    assert!(sandbox.read("b.csv").contains(",false,"));
}

#[test]
fn the_simulator_repeats_itself() {
    let (first, second) = (Sandbox::new(), Sandbox::new());
    assert_eq!(everything(&first), everything(&second));
    assert_eq!(first.read("a.csv"), second.read("a.csv"));
    assert_eq!(first.read("a.trace"), second.read("a.trace"));
    let without_time = |sandbox: &Sandbox| {
        let mut record = sandbox.json("a.json");
        record["started"].take();
        serde_json::to_string(&record).expect("a record is JSON")
    };
    assert_eq!(without_time(&first), without_time(&second));
}

#[test]
fn a_report_repeats_the_run() {
    let sandbox = Sandbox::new();
    for backend in ["sim", "host"] {
        let arguments =
            "exec hetero_kernels --preset tiny --launch both --effort quick --json a.json --csv a.csv --trace a.trace";
        let arguments: Vec<&str> = arguments.split_whitespace().chain(["--backend", backend]).collect();
        let printed = sandbox.good(&arguments);
        let reported = sandbox.good(&["report", "a.json", "--csv", "b.csv", "--trace", "b.trace"]);
        assert_eq!(reported, printed);
        assert_eq!(sandbox.read("b.csv"), sandbox.read("a.csv"));
        assert_eq!(sandbox.read("b.trace"), sandbox.read("a.trace"));
    }
}

/// The files of a run and of cases.
fn run_and_cases() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.good(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--json", "run.json"]);
    let sweep = "sweep moe --preset tiny --backend sim --effort quick --streams 4,8 --json cases.jsonl";
    sandbox.good(&sweep.split_whitespace().collect::<Vec<_>>());
    sandbox
}

#[test]
fn a_page_has_every_form() {
    let sandbox = run_and_cases();
    for file in ["run.json", "cases.jsonl"] {
        let table = sandbox.good(&["report", file]);
        for (form, begins, holds) in [
            ("markdown", "- ", "| ---: |"),
            ("latex", "% needs \\usepackage{booktabs}\n% ", "\\bottomrule"),
            ("junit", "<?xml", "<system-out>moe"),
            ("json", "{", "\"schema\""),
        ] {
            let text = sandbox.good(&["report", file, "--format", form]);
            assert!(text.starts_with(begins) && text.contains(holds), "{file}, {form}:\n{text}");
            // With a file for the page, the table goes to the terminal.
            assert_eq!(sandbox.good(&["report", file, "--format", form, "--output", "page"]), table);
            assert_eq!(sandbox.read("page"), text);
        }
    }
    // A record is written as it was read.
    let record: Value = serde_json::from_str(&sandbox.good(&["report", "run.json", "--format", "json"])).expect("JSON");
    assert_eq!(record, sandbox.json("run.json"));
}

#[test]
fn options_for_one_run_are_refused_for_several() {
    let sandbox = run_and_cases();
    for (option, value) in [("--trace", "t.json"), ("--json", "r.json"), ("--rank", "0"), ("--top", "3")] {
        let output = sandbox.run(&["report", "cases.jsonl", option, value]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{option}");
        assert!(output.stderr.contains("it has several runs"), "{}", output.stderr);
        assert!(!sandbox.path(value).exists(), "{value} was written");
    }
    assert_eq!(sandbox.run(&["report", "run.json", "--sort", "median"]).code, Some(2));
}

#[test]
fn failed_writes_leave_no_files() {
    let sandbox = Sandbox::new();
    sandbox.write("folder/inside", "kept");
    sandbox.write("file", "kept");
    let before = sandbox.listing();
    for flag in ["--json", "--csv", "--trace", "--html"] {
        for path in ["missing/a", "folder", "file/a", &"long".repeat(100)] {
            let output = sandbox.run(&["exec", "moe", "--preset", "tiny", "--backend", "sim", flag, path]);
            assert_eq!(output.code, Some(2), "{flag} {path}");
            assert!(output.stderr.contains("aorta::cli::unwritable"), "{}", output.stderr);
            // Long names are broken into lines.
            let said = output.stderr.replace("\n  │ ", "");
            assert!(said.contains(path) && !said.contains(".aorta-"), "{said}");
            assert_eq!(output.stdout, "", "the run began");
            assert_eq!(sandbox.listing(), before);
        }
    }
    for path in ["file", "file/a"] {
        let output = sandbox.run(&["exec", "moe", "--preset", "tiny", "--backend", "host", "--outputs", path]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""));
        assert!(output.stderr.contains("`file` is no folder"), "{}", output.stderr);
    }
    assert_eq!(
        (sandbox.listing(), sandbox.read("file"), sandbox.read("folder/inside")),
        (before, "kept".into(), "kept".into())
    );
}

/// A failed output does not prevent the others.
#[test]
fn the_other_outputs_are_still_written() {
    let sandbox = Sandbox::new();
    if !std::path::Path::new("/dev/full").exists() {
        println!("skipped: this system has no file that is always full");
        return;
    }
    let arguments = "exec moe --preset tiny --backend sim --json /dev/full --csv /dev/full --trace a.trace";
    let output = sandbox.run(&arguments.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.code, Some(4));
    assert!(output.stderr.contains("/dev/full cannot be written"), "{}", output.stderr);
    assert!(output.stdout.contains("Operations, each timed while the iteration runs"), "{}", output.stdout);
    assert_eq!(sandbox.json("a.trace")["aorta"]["simulated"], true);
}

#[test]
fn pipes_are_written_as_they_are() {
    let sandbox = Sandbox::new();
    let made = std::process::Command::new("mkfifo").arg(sandbox.path("pipe")).status();
    assert!(made.expect("`mkfifo` is there").success());
    let path = sandbox.path("pipe");
    // Opening the pipe waits for its writer.
    let reader = std::thread::spawn(move || std::fs::read_to_string(path));
    sandbox.good(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--json", "pipe"]);
    let text = reader.join().expect("no panic").expect("the pipe was written");
    assert!(text.starts_with('{') && text.ends_with("}\n"), "{text}");
    assert_eq!(sandbox.listing(), ["pipe"]);
}

#[test]
fn standard_output_takes_a_record_too() {
    let sandbox = Sandbox::new();
    let arguments = ["exec", "moe", "--preset", "tiny", "--backend", "sim", "--json", "/dev/stdout"];
    let piped = sandbox.good(&arguments);
    let (table, record) = piped.split_at(piped.find("{\n").expect("the record follows"));
    assert!(table.starts_with("moe.aorta: "), "{table}");
    assert!(serde_json::from_str::<Value>(record).is_ok(), "{record}");
    // If standard output is a file, earlier output is kept.
    let file = std::fs::File::create(sandbox.path("out")).expect("a file can be made");
    let status = sandbox.command(&arguments).stdout(file).status().expect("the binary starts");
    assert!(status.success());
    assert!(sandbox.read("out").starts_with(table) && sandbox.read("out").ends_with("}\n"));
    assert_eq!(sandbox.listing(), ["out"]);
}

#[test]
fn links_stay_links() {
    use std::os::unix::fs::symlink;
    let sandbox = Sandbox::new();
    sandbox.write("kept/a.json", "old");
    for (target, link) in [("kept/a.json", "a.json"), ("kept/b.csv", "b.csv"), ("round", "round")] {
        symlink(target, sandbox.path(link)).expect("a link can be made");
    }
    let arguments = ["exec", "moe", "--preset", "tiny", "--backend", "sim"];
    sandbox.good(&[&arguments[..], &["--json", "a.json", "--csv", "b.csv"]].concat());
    assert_eq!(sandbox.json("kept/a.json")["schema"], "aorta.run/1");
    assert!(sandbox.read("kept/b.csv").starts_with("workload,"));
    for link in ["a.json", "b.csv"] {
        assert!(sandbox.path(link).is_symlink(), "{link} was replaced");
    }
    let output = sandbox.run(&[&arguments[..], &["--json", "round"]].concat());
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("its links form a cycle"), "{}", output.stderr);
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let sandbox = Sandbox::new();
    sandbox.write("a.json", "x".repeat(1 << 20));
    everything(&sandbox);
    assert_eq!(sandbox.json("a.json")["schema"], "aorta.run/1");
    assert_eq!(sandbox.listing(), ["a.csv", "a.json", "a.trace"]);
}

#[test]
fn verification_compares_outputs() {
    let sandbox = Sandbox::new();
    sandbox.good(&[
        "exec",
        "moe",
        "--preset",
        "tiny",
        "--backend",
        "host",
        "--verify",
        "--effort",
        "sanity",
        "--json",
        "a.json",
    ]);
    let verification = &sandbox.json("a.json")["verification"];
    assert_eq!(verification["held"], true);
    let variants = verification["variants"].as_array().expect("a list");
    assert_eq!(variants.len(), 2, "as streams and as a graph");
    for variant in variants {
        let outputs = variant["outputs"].as_array().expect("a list");
        assert!(outputs.iter().any(|output| output["name"] == "y"), "{outputs:?}");
        assert!(outputs.iter().all(|output| output["error"] == 0.0), "the CPU differs from itself: {outputs:?}");
    }
}

#[test]
fn buffers_are_written_for_numpy() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "a.aorta",
        "buffer x: f32[2, 3] = iota\nbuffer y: f32[2, 3]\nbuffer z[2]: bf16[4] = ones\nbuffer i: i32[5] = zeros\n\
         step { map(x * 2 + 1 -> y) map(z[0] + 1 -> z[1]) fill(7 -> i) }",
    );
    sandbox.good(&["exec", "a.aorta", "--backend", "host", "--effort", "sanity", "--outputs", "out/deep"]);
    let folder = sandbox.path("out/deep");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let words =
        |bytes: &[u8]| bytes.chunks_exact(4).map(|word| word.try_into().expect("4 bytes")).collect::<Vec<[u8; 4]>>();
    let floats: Vec<f32> = words(&array(&read("y.npy"), "<f4", "(2,3,)")).into_iter().map(f32::from_le_bytes).collect();
    assert_eq!(floats, [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]);
    let integers: Vec<i32> = words(&array(&read("i.npy"), "<i4", "(5,)")).into_iter().map(i32::from_le_bytes).collect();
    assert_eq!(integers, [7; 5]);
    // NumPy has no bf16: the bits of 1.0 and of 2.0.
    let bits: Vec<u8> = [[0x80, 0x3f]; 4].concat().into_iter().chain([[0x00, 0x40]; 4].concat()).collect();
    assert_eq!(array(&read("z.bf16.npy"), "<u2", "(2,4,)"), bits);
    assert_eq!(array(&read("x.npy"), "<f4", "(2,3,)").len(), 24);
    assert_eq!(std::fs::read_dir(&folder).expect("the folder is there").count(), 4);
}

/// A number or a list as the initial contents of buffers, of parts, and of buffers in a block.
#[test]
fn buffers_begin_with_the_numbers_of_the_file() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "a.aorta",
        "let parents = [0, 0, 1, -1]\nbuffer p: i32[4] = parents\nbuffer m[2]: f32[2, 2] = [[1, 2.5], [rank - 3, 0.1]]\nbuffer one: u8[3] = world\n\
         buffer w { up: f32[2], down: f32[1] } = 0.5\nbuffer r: i32[2, 3] = [0..3, rev(4..7)]\nbuffer y: f32[2]\n\
         step { buffer inside: f32[2] = 0.25 map(inside + w.up -> y) }",
    );
    sandbox.good(&["exec", "a.aorta", "--backend", "host", "--effort", "sanity", "--outputs", "out"]);
    let words = |name: &str, descr: &str, shape: &str| -> Vec<[u8; 4]> {
        let file = std::fs::read(sandbox.path("out").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        array(&file, descr, shape).chunks_exact(4).map(|word| word.try_into().expect("4 bytes")).collect()
    };
    let floats = |name, shape| words(name, "<f4", shape).into_iter().map(f32::from_le_bytes).collect::<Vec<f32>>();
    let whole = |name, shape| words(name, "<i4", shape).into_iter().map(i32::from_le_bytes).collect::<Vec<i32>>();
    assert_eq!(whole("p.npy", "(4,)"), [0, 0, 1, -1]);
    assert_eq!(floats("m.npy", "(2,2,2,)"), [1.0, 2.5, -3.0, 0.1, 1.0, 2.5, -3.0, 0.1]);
    assert_eq!(floats("w.npy", "(3,)"), [0.5; 3]);
    assert_eq!(whole("r.npy", "(2,3,)"), [0, 1, 2, 6, 5, 4]);
    assert_eq!(floats("y.npy", "(2,)"), [0.75; 2]);
    let file = std::fs::read(sandbox.path("out/one.npy")).expect("it is written");
    assert_eq!(array(&file, "|u1", "(3,)"), [1; 3]);
}

/// The data of a NumPy file with this header.
#[track_caller]
fn array(file: &[u8], descr: &str, shape: &str) -> Vec<u8> {
    let Some((magic, rest)) = file.split_at_checked(8) else { panic!("{} bytes are no file", file.len()) };
    assert_eq!(magic, b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
    let (header, data) = rest[2..].split_at(length);
    assert_eq!((10 + length) % 64, 0, "the data is aligned");
    let header = std::str::from_utf8(header).expect("the header is text");
    let expected = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    assert_eq!(header.trim_end(), expected);
    assert!(header.ends_with('\n'));
    data.to_vec()
}

/// The size is determined before anything is printed.
#[test]
fn a_plan_that_is_too_long_prints_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "buffer x: f32[4]\nstep { for i in 0..100 { map(x + 1 -> x) } }");
    for format in ["text", "json", "dot", "mermaid"] {
        let plan = ["plan", "a.aorta", "--format", format];
        let length = sandbox.good(&plan).len();
        let limited = |bytes: usize| sandbox.run(&[&plan[..], &["--config", &format!("max_output={bytes}B")]].concat());
        assert_eq!(limited(length).code, Some(0), "{format}");
        let refused = limited(length - 1);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{format}");
        assert!(refused.stderr.contains("aorta::cli::too_much_output"), "{format}: {}", refused.stderr);
        assert!(refused.stderr.contains("--config max_output="), "{format}: {}", refused.stderr);
    }
}
