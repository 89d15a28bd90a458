//! The page of a run: its data are those of the record, names do no harm in it, it stays small, and a browser shows it.
//! [`pictures`](crate::pictures) has the other pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use aorta::base::random::hash;
use aorta::base::visible::{is_hidden, visible};
use aorta::measure::RunRecord;
use aorta::measure::record::SourceFiles;
use aorta::report::PageContent;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cli::sandbox::{Sandbox, finish};

/// Runs whose records hold everything that a page shows: several ranks, both launch modes, collectives, copies, phases.
const RUNS: [&[&str]; 4] = [
    &["moe", "--preset", "tiny", "--ranks", "2", "--launch", "both"],
    &["fsdp_overlap", "--preset", "tiny", "--ranks", "2"],
    &["sdma_overlap", "--preset", "tiny"],
    &["speculative_decode", "--preset", "tiny", "--launch", "graph"],
];

/// The record of a run on the simulator.
fn simulated(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    sandbox.record(&[arguments, &["--effort", "quick", "--iterations", "4"]].concat())
}

fn read(record: &Value) -> RunRecord {
    RunRecord::from_json(&record.to_string()).expect("a record of ours")
}

fn data(record: &Value) -> Value {
    serde_json::from_str(&PageContent::runs(&[read(record)]).data()).expect("JSON")
}

fn view(records: &[RunRecord]) -> String {
    PageContent::runs(records).html()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// Numbers whose column holds the difference to the number before.
fn sums(column: &Value) -> Vec<i64> {
    let mut sum = 0;
    let add = |step: &Value| {
        sum += step.as_i64().expect("a whole number");
        sum
    };
    list(column).iter().map(add).collect()
}

/// A text of a column; null where the record has none.
fn text<'a>(texts: &'a Value, index: &Value) -> &'a Value {
    index.as_u64().map_or(&Value::Null, |index| &texts[index as usize])
}

/// The ranks of all variants.
fn ranks(run: &Value) -> Vec<&Value> {
    list(&run["variants"]).iter().flat_map(|variant| list(&variant["ranks"])).collect()
}

#[test]
fn the_data_have_every_operation_and_span() {
    let sandbox = Sandbox::new();
    for arguments in crate::common::effort::due(RUNS) {
        let record = simulated(&sandbox, arguments);
        let data = data(&record);
        let run = &data["runs"][0];
        let (of_record, of_page) = (ranks(&record), ranks(run));
        assert_eq!(of_record.len(), of_page.len());
        for (record, page) in of_record.into_iter().zip(of_page) {
            let columns = &page["operations"];
            let mut after = list(&columns["after_distance"]).iter();
            let names = sums(&columns["name"]);
            for (id, operation) in list(&record["operations"]).iter().enumerate() {
                assert_eq!(run["texts"][names[id] as usize], operation["name"]);
                for name in ["operation", "category", "phase", "stream", "place", "shape", "bound", "refused"] {
                    let expected = operation.get(name).unwrap_or(&Value::Null);
                    assert_eq!(text(&run["texts"], &columns[name][id]), expected, "{name} of {operation}");
                }
                for name in ["lane", "flops", "bytes", "bus_bytes"].iter().chain(&TIMES) {
                    let expected = operation.get(*name).unwrap_or(&Value::Null);
                    assert_eq!(&columns[*name][id], expected, "{name} of {operation}");
                }
                let count = columns["after_count"][id].as_u64().expect("a count") as usize;
                let before: Vec<i64> = after
                    .by_ref()
                    .take(count)
                    .map(|distance| id as i64 - distance.as_i64().expect("a whole number"))
                    .collect();
                assert_eq!(json!(before), operation["after"], "{operation}");
            }
            assert_eq!(after.next(), None);
            let spans: BTreeSet<[i64; 3]> = spans(page).into_iter().collect();
            let expected = list(&record["trace"])
                .iter()
                .map(|span| ["id", "start_ns", "end_ns"].map(|name| span[name].as_i64().expect("a whole number")));
            assert_eq!(spans, expected.collect(), "{arguments:?}");
        }
        let sources = list(&run["sources"]);
        let own = sources.iter().find(|source| source["name"] == record["workload"]["name"]);
        let text = sandbox.good(&["show", "--source", arguments[0]]);
        assert_eq!(own.expect("the file's own text")["lines"], json!(text.lines().collect::<Vec<_>>()));
    }
}

const TIMES: [&str; 5] = ["time_ns", "transfer_ns", "alone_ns", "slack_ns", "ideal_ns"];

/// Number, start and end of each span of a rank, in the order of their starts.
fn spans(rank: &Value) -> Vec<[i64; 3]> {
    let trace = &rank["trace"];
    let times = list(&trace["time_ns"]).iter().map(|time| time.as_i64().expect("a whole number"));
    let starts = sums(&trace["id"]).into_iter().zip(sums(&trace["start_ns"]));
    starts.zip(times).map(|((id, start), time)| [id, start, start + time]).collect()
}

#[test]
fn spans_of_a_stream_do_not_overlap() {
    let sandbox = Sandbox::new();
    for arguments in crate::common::effort::due(RUNS) {
        let data = data(&simulated(&sandbox, arguments));
        for rank in ranks(&data["runs"][0]) {
            let lanes = list(&rank["operations"]["lane"]);
            let mut ends = vec![i64::MIN; lanes.len()];
            for [id, start, end] in spans(rank) {
                let lane = lanes[id as usize].as_u64().expect("a number") as usize;
                assert!(ends[lane] <= start && start <= end, "{arguments:?}: operation {id} begins at {start}");
                ends[lane] = end;
            }
        }
    }
}

#[test]
fn the_data_of_a_run() {
    let sandbox = Sandbox::new();
    let file = "//! Two streams that meet.\nstream a\nstream b\nbuffer x: f32[64]\nbuffer y: f32[64]\n\
                step {\n  phase fill {\n    on a { map(x + 1 -> x) }\n    on b { map(y + 1 -> y) }\n  }\n\
                  on a { sum: map(x + y -> x) }\n}\n";
    sandbox.write("meet.aorta", file);
    let mut data = data(&simulated(&sandbox, &["meet.aorta"]));
    data["runs"][0]["started"] = json!("[..]");
    data["runs"][0]["device"] = json!("[..]");
    data["galleries"] = json!(list(&data["galleries"]).iter().map(|gallery| &gallery["name"]).collect::<Vec<_>>());
    let mut text = String::new();
    write_short(&data, 0, &mut text);
    insta::assert_snapshot!("view_data", text);
}

/// JSON with lists of plain values on one line.
fn write_short(value: &Value, depth: usize, out: &mut String) {
    let begin = |out: &mut String| *out += &format!("\n{}", "  ".repeat(depth + 1));
    match value {
        Value::Object(all) if !all.is_empty() => {
            for (name, value) in all {
                begin(out);
                *out += &format!("{name}: ");
                write_short(value, depth + 1, out);
            }
        }
        Value::Array(all) if all.iter().any(|value| value.is_object() || value.is_array()) => {
            for value in all {
                begin(out);
                *out += "-";
                write_short(value, depth + 1, out);
            }
        }
        plain => *out += &plain.to_string(),
    }
}

/// Names that would end an element, begin one, or be taken for a part of the page.
pub const HOSTILE: [&str; 4] = [
    "</script><script>alert('hostile')</script>",
    "<img src=x onerror=alert('hostile')>",
    "</noscript>{{program}}{{data}}\u{202e}\u{1b}[2J",
    "\"><svg onload=alert('hostile')>]]>-->",
];

/// A record in which every text that a file or a machine chooses is hostile.
fn hostile(sandbox: &Sandbox) -> Value {
    let mut record = simulated(sandbox, RUNS[0]);
    let mut number = 0;
    let mut next = || {
        number += 1;
        json!(HOSTILE[number % HOSTILE.len()])
    };
    for path in ["/workload/name", "/workload/summary", "/device/name", "/warnings", "/started", "/aorta"] {
        let place = record.pointer_mut(path).expect("it is there");
        *place = if place.is_array() { json!([next()]) } else { next() };
    }
    for lane in record["program"]["lanes"].as_array_mut().expect("a list") {
        lane["name"] = next();
    }
    for rank in 0..2 {
        let rank = &mut record["variants"][0]["ranks"][rank];
        rank["analysis"]["verdict"] = next();
        rank["analysis"]["help"] = next();
        for operation in rank["operations"].as_array_mut().expect("a list") {
            for name in ["name", "operation", "category", "phase", "stream", "shape", "bound"] {
                operation[name] = next();
            }
            operation["place"] = json!(format!("{}:1:1", HOSTILE[0]));
        }
    }
    record["variants"][0]["metrics"][0]["name"] = next();
    record["variants"][0]["metrics"][0]["text"] = next();
    let text = HOSTILE.join("\n");
    let source = SourceFiles::new(HOSTILE[0], [(HOSTILE[0].to_owned(), text.as_bytes())]);
    record["source"] = serde_json::to_value(source).expect("JSON");
    record
}

/// The content of the only element that begins and ends so.
#[track_caller]
fn between<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let parts: Vec<&str> = page.split(begin).collect();
    assert_eq!(parts.len(), 2, "`{begin}` comes once");
    parts[1].split_once(end).expect("it ends").0
}

#[test]
fn names_do_no_harm() {
    let page = view(&[read(&hostile(&Sandbox::new()))]);
    for tag in ["<script", "<style", "<noscript", "</noscript", "<title", "<meta http-equiv"] {
        let expected = if tag == "<script" { 2 } else { 1 };
        assert_eq!(page.matches(tag).count(), expected, "{tag}");
    }
    assert!(!page.contains("<img") && !page.contains("<svg onload"), "{page}");
    // The policy allows this program and this style, and nothing else.
    let hash = |text: &str| {
        let page = view_hash(text);
        assert!(page.len() == 44 && page.ends_with('='), "{page}");
        format!("'sha256-{page}'")
    };
    let policy = between(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    let program = between(&page, "<script type=\"module\">", "</script>");
    let style = between(&page, "<style>", "</style>");
    assert_eq!(
        policy,
        format!(
            "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
            hash(program),
            hash(style)
        )
    );
    let data = between(&page, "id=\"data\">", "</script>");
    assert!(data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)));
    // The program makes no HTML of texts, fetches nothing, and has no hidden character that writing would replace.
    for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "http:", "https:"]
    {
        let allowed = if word == "http:" { 1 } else { 0 };
        assert_eq!(program.matches(word).count(), allowed, "{word}: only the name of SVG is an address");
    }
    assert!(!(program.to_owned() + style).contains(is_hidden));
}

/// SHA-256 in base64, computed bit by bit.
fn view_hash(text: &str) -> String {
    let bits: Vec<u8> =
        Sha256::digest(text).iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let letters = bits.chunks(6).map(|group| {
        let value = group.iter().fold(0, |value, bit| value * 2 + bit) << (6 - group.len());
        let letters = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']);
        letters.clone().nth(usize::from(value)).expect("6 bits")
    });
    letters.collect::<String>() + "="
}

/// A record of many operations whose times differ as measured ones do.
fn large(sandbox: &Sandbox, count: usize) -> RunRecord {
    let mut record = read(&simulated(sandbox, RUNS[0]));
    record.variants.truncate(1);
    let rank = &mut record.variants[0].ranks[0];
    let (operations, trace) = (rank.operations.clone(), rank.trace.clone());
    let period = operations.len();
    let length = trace.iter().map(|span| span.end_ns.0).max().expect("there are spans");
    rank.operations.clear();
    rank.trace.clear();
    for id in 0..count {
        let (turn, kind) = (id / period, id % period);
        // A few percent, drawn for each figure.
        let noise = |time: i64, draw: u64| time + (hash(draw, id as u64) % (time as u64 / 20 + 2)) as i64;
        let mut operation = operations[kind].clone();
        operation.alone_ns = operation.time_ns;
        operation.id = id as u32;
        operation.name = format!("{}[{turn}]", operation.name);
        operation.after.iter_mut().for_each(|before| *before += (turn * period) as u32);
        for (draw, time) in
            [&mut operation.time_ns, &mut operation.alone_ns, &mut operation.slack_ns].into_iter().enumerate()
        {
            time.iter_mut().for_each(|time| time.0 = noise(time.0, draw as u64));
        }
        rank.operations.push(operation);
        let mut span = trace[kind];
        span.id = id as u32;
        let time = span.end_ns.0 - span.start_ns.0;
        span.start_ns.0 += turn as i64 * length + noise(time, 3) - time;
        span.end_ns.0 = span.start_ns.0 + noise(time, 4);
        rank.trace.push(span);
    }
    record
}

#[test]
fn a_large_page_stays_small() {
    if !crate::common::effort::is_due() {
        return;
    }
    let record = large(&Sandbox::new(), 100_000);
    let page = view(&[record]);
    assert!(page.len() < 1_500_000, "a page of 10⁵ operations has {} bytes", page.len());
}

#[test]
fn a_record_without_sources_is_shown() {
    let sandbox = Sandbox::new();
    let mut record = simulated(&sandbox, RUNS[2]);
    let all = record.as_object_mut().expect("an object");
    assert!(all.shift_remove("source").is_some());
    assert_eq!(data(&record)["runs"][0]["sources"], json!([]));
}

#[test]
fn a_record_gives_the_page_of_its_run() {
    let sandbox = Sandbox::new();
    let exec = ["exec", "moe", "--preset", "tiny", "--backend", "sim", "--effort", "quick"];
    sandbox.good(&[&exec[..], &["--json", "a.json", "--html", "a.html"]].concat());
    assert_eq!(sandbox.good(&["view", "a.json", "-o", "b.html"]), "");
    assert!(sandbox.read("a.html") == sandbox.read("b.html"));
    sandbox.good(&["view", "a.json", "a.json", "--output", "both.html"]);
    let title = sandbox.read("both.html");
    assert_eq!(between(&title, "<title>", "</title>"), "moe.aorta, simulated | moe.aorta, simulated");
}

/// Without a browser, the path of the page is all the same printed.
#[test]
fn a_machine_without_a_browser_has_the_page() {
    let sandbox = Sandbox::new();
    simulated(&sandbox, RUNS[2]);
    let mut command = sandbox.command(&["view", "record.json"]);
    let output = finish(command.env("PATH", "").env("TMPDIR", sandbox.path("")).spawn().expect("the binary starts"));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("opens no browser here"), "{}", output.stderr);
    let page = std::fs::read_to_string(output.stdout.trim_end()).expect("it is there");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
}

#[test]
fn a_file_of_cases_is_shown_alone() {
    let sandbox = Sandbox::new();
    let sweep = ["sweep", "moe", "--preset", "tiny", "--backend", "sim", "--effort", "quick", "--set", "tokens=16,32"];
    sandbox.good(&[&sweep[..], &["--json", "cases.jsonl"]].concat());
    let output = sandbox.run(&["view", "cases.jsonl", "cases.jsonl", "-o", "a.html"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("this is a file of several runs"), "{}", output.stderr);
    assert!(!sandbox.path("a.html").exists());
}

/// The program and the folder of modules that the browser needs; `None` where either is missing.
pub fn browser() -> Option<(PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH")?;
    let chromium = std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|file| file.is_file())?;
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/browser/node_modules");
    modules.join("puppeteer-core").is_dir().then_some((chromium, modules))
}

/// Opens a page in a browser, uses every control, and returns what happened; `None` without a browser. Fails if the page
/// reports an error, loads anything, or is not accessible.
#[track_caller]
pub fn used(sandbox: &Sandbox, name: &str, page: &str) -> Option<Value> {
    let Some((chromium, modules)) = browser() else {
        println!("skipped: there is no `chromium`, or no puppeteer-core below target/browser");
        return None;
    };
    // As it is written to a file.
    sandbox.write("page.html", visible(page).as_bytes());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/view/page.cjs");
    let output = Command::new("node")
        .arg(script)
        .args([&chromium, &sandbox.path("page.html")])
        .env("NODE_PATH", &modules)
        .output()
        .expect("node starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for field in ["errors", "requests", "violations"] {
        assert_eq!(seen[field], json!([]), "{name}: {field}");
    }
    assert_eq!(seen["elements"], 0, "{name}");
    let text = seen["text"].as_str().expect("a text");
    assert!(["simulated", "modelled"].iter().any(|mark| text.contains(mark)), "{name}: {text}");
    assert!(!text.contains('\u{202e}'), "{name}: {text}");
    Some(seen)
}

/// Compares the canvases of a page with the stored ones, cell by cell, each with its mean colour. Letters and the edges of
/// shapes differ between versions of a browser, so a few cells may differ. `AORTA_PICTURES=write` stores them.
#[track_caller]
pub fn compare_cells(name: &str, seen: &Value) {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/view/{name}.cells"));
    let canvas = |rows: &Value| list(rows).iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
    let own = list(&seen["cells"]).iter().map(canvas).collect::<Vec<_>>().join("\n\n") + "\n";
    if std::env::var_os("AORTA_PICTURES").is_some_and(|value| value == "write") {
        std::fs::write(&stored, &own).expect("the pictures are the repository's own");
    }
    let expected = std::fs::read_to_string(&stored).unwrap_or_default();
    let cells = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (before, now) = (cells(&expected), cells(&own));
    assert_eq!(before.len(), now.len(), "{name}: the page has other canvases than {}", stored.display());
    let parts = |cell: &str| cell.chars().map(|part| part.to_digit(16).expect("a digit")).collect::<Vec<_>>();
    let apart = |(a, b): (&String, &String)| parts(a).iter().zip(parts(b)).any(|(a, b)| a.abs_diff(b) > 4);
    let differ = before.iter().zip(&now).filter(|pair| apart(*pair)).count();
    assert!(
        differ * 100 <= now.len(),
        "{name}: {differ} of {} cells differ from {}; look at the page, then store it by AORTA_PICTURES=write",
        now.len(),
        stored.display()
    );
}

/// Every control is used, in a page of a run and in one with hostile names.
#[test]
fn a_browser_shows_the_page() {
    let sandbox = Sandbox::new();
    let run = simulated(&sandbox, RUNS[0]);
    let mut bare = run.clone();
    bare["variants"] = json!([]);
    for (name, record) in [("run", &run), ("hostile", &hostile(&sandbox)), ("bare", &bare)] {
        let Some(seen) = used(&sandbox, name, &view(&[read(record)])) else { return };
        let text = seen["text"].as_str().expect("a text");
        if name == "bare" {
            assert!(text.contains("lacks a traced iteration"), "{text}");
            continue;
        }
        // Bars of several kinds, letters, lines.
        assert!(seen["colors"].as_u64().is_some_and(|colors| colors > 20), "{name}: {}", seen["colors"]);
        assert!(
            seen["selected"].as_str().is_some_and(|text| text.contains("median time")),
            "{name}: {}",
            seen["selected"]
        );
        assert_eq!(seen["found"], "0 operations found", "{name}");
        if name == "run" {
            compare_cells("run", &seen);
        }
        assert_eq!(list(&seen["source"]).len(), 1, "{name}: the line of the selected operation is marked");
    }
}
