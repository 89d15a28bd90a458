//! Pages of sweeps, suites, comparisons and plans, their pictures as SVG files, traces in Perfetto's format, and the
//! timeline in a terminal.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use sha2::{Digest, Sha256};

use crate::cli::sandbox::Sandbox;
use crate::common::effort;
use crate::view::{HOSTILE, compare_cells, used};

/// Options of small simulated runs.
const SMALL: [&str; 6] = ["--preset", "tiny", "--backend", "sim", "--effort", "quick"];

fn run(sandbox: &Sandbox, command: &str, arguments: &[&str]) -> String {
    sandbox.good(&[&[command], arguments, &SMALL[..]].concat())
}

/// A sweep over two axes, with its page.
fn sweep(sandbox: &Sandbox) -> String {
    let axes = ["moe", "--streams", "3,4,8", "--set", "tokens=16,32"];
    run(sandbox, "sweep", &[&axes[..], &["--json", "cases.jsonl", "--html", "page.html"]].concat());
    sandbox.read("page.html")
}

/// An A/B comparison with its page.
fn ab(sandbox: &Sandbox) -> String {
    let sides = ["ab", "moe", "--a", "--streams 3", "--b", "--streams 8", "--rounds", "6", "--iterations", "4"];
    let same = ["--preset", "tiny", "--backend", "sim", "--json", "ab.json", "--html", "page.html"];
    sandbox.good(&[&sides[..], &same[..]].concat());
    sandbox.read("page.html")
}

fn plan(sandbox: &Sandbox) -> String {
    sandbox.good(&["plan", "fsdp_overlap", "--preset", "tiny", "--ranks", "2", "--html", "page.html"]);
    sandbox.read("page.html")
}

/// Two runs of the same workload.
fn two(sandbox: &Sandbox) -> String {
    for (streams, file) in [("3", "a.json"), ("8", "b.json")] {
        run(sandbox, "exec", &["moe", "--streams", streams, "--json", file]);
    }
    sandbox.good(&["view", "a.json", "b.json", "--output", "page.html"]);
    sandbox.read("page.html")
}

#[test]
fn a_file_gives_the_page_of_its_command() {
    let sandbox = Sandbox::new();
    let pages = [(sweep(&sandbox), "cases.jsonl"), (ab(&sandbox), "ab.json")];
    for (page, file) in pages {
        sandbox.good(&["view", file, "--output", "again.html"]);
        assert!(sandbox.read("again.html") == page, "{file}");
        assert!(page.contains("simulated</title>"), "{file}");
        assert!(page.len() < 300_000, "{file}: {}", page.len());
    }
}

/// Every control of a page is used: of one with canvases and of one without, in turn.
#[test]
fn a_browser_shows_the_other_pages() {
    let sandbox = Sandbox::new();
    fn compare(sandbox: &Sandbox) -> String {
        two(sandbox);
        let arguments = ["compare", "a.json", "b.json", "--operations", "--fail-on", "never", "--html", "page.html"];
        sandbox.good(&arguments);
        sandbox.read("page.html")
    }
    type Page = (&'static str, fn(&Sandbox) -> String, &'static str);
    let canvases: [Page; 2] = [("sweep", sweep, "median time over tokens"), ("ab", ab, "The blocks of a and b")];
    let others: [Page; 3] = [
        ("plan", plan, "operations by stream"),
        ("two", two, "operations of both sides"),
        ("compare", compare, "operations of both sides"),
    ];
    for (name, page, picture) in effort::chosen(canvases).chain(effort::chosen(others)) {
        let Some(seen) = used(&sandbox, name, &page(&sandbox)) else { return };
        let pictures = seen["pictures"].to_string();
        assert!(pictures.contains(picture), "{name}: {pictures}");
        if name == "sweep" {
            // The last option of each choice has another picture.
            assert_ne!(seen["pictures"], seen["chosen"]);
        }
        if ["sweep", "ab"].contains(&name) {
            let read = seen["read"][0].as_str().expect("keys read a point");
            assert!(read.contains(" µs"), "{name}: {read}");
            compare_cells(name, &seen);
        }
    }
}

/// Only pages with curves contain uPlot, with its licence. Its files are those of the package, whose hashes the README has.
#[test]
fn curves_bring_their_library() {
    let sandbox = Sandbox::new();
    for (page, has_curves) in [(sweep(&sandbox), true), (ab(&sandbox), true), (plan(&sandbox), false)] {
        for text in ["Copyright (c) 2022 Leon Sorokin", "var uPlot="] {
            assert_eq!(page.contains(text), has_curves, "{text}");
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/uplot");
    let readme = fs::read_to_string(folder.join("README.md")).expect("it is there");
    let files = readme.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        Some((*cells.get(1)?, *cells.get(3).filter(|hash| hash.len() == 64)?))
    });
    let files: Vec<(&str, &str)> = files.collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for (file, hash) in files {
        let bytes = fs::read(folder.join(file)).expect("it is there");
        let own: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(own, hash, "{file}");
    }
}

/// The cases of a sweep in which every text that a file chooses is hostile.
#[test]
fn hostile_names_do_no_harm_in_a_sweep() {
    let sandbox = Sandbox::new();
    sweep(&sandbox);
    let mut lines: Vec<Value> =
        sandbox.read("cases.jsonl").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    lines[0]["name"] = json!(HOSTILE[0]);
    lines[0]["axes"][1]["name"] = json!(HOSTILE[1]);
    for case in &mut lines[1..] {
        let tokens = case["values"]["tokens"].clone();
        case["values"].as_object_mut().expect("an object").shift_remove("tokens");
        case["values"][HOSTILE[1]] = json!(format!("{}{}", HOSTILE[2], tokens.as_str().expect("a text")));
        case["record"]["variants"][0]["metrics"][0]["name"] = json!(HOSTILE[3]);
        case["record"]["workload"]["name"] = json!(HOSTILE[0]);
    }
    let text: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    sandbox.write("hostile.jsonl", text.concat());
    sandbox.good(&["view", "hostile.jsonl", "--output", "hostile.html"]);
    let page = sandbox.read("hostile.html");
    assert!(!page.contains("<img") && !page.contains("<svg onload"), "{page}");
    sandbox.good(&["report", "hostile.jsonl", "--svg", "hostile"]);
    for file in sandbox.listing().iter().filter(|file| file.ends_with(".svg")) {
        let name = file.rsplit('/').next().expect("a name");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)), "{name}");
        check_xml(&sandbox.read(file));
    }
    used(&sandbox, "hostile", &page);
}

/// Fails unless the text is XML in which only elements of SVG without scripts occur, each closed.
#[track_caller]
fn check_xml(text: &str) {
    const KNOWN: [&str; 9] = ["svg", "title", "style", "rect", "line", "circle", "path", "text", "?xml"];
    let mut open = Vec::new();
    for piece in text.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name");
        assert!(KNOWN.contains(&name), "{name} in {text}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{text}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// The pictures of a small simulated run, as files.
#[test]
fn pictures_of_a_run() {
    let sandbox = Sandbox::new();
    let file = "//! Two streams that meet.\nstream a\nstream b\nbuffer x: f32[64]\nbuffer y: f32[64]\n\
                step {\n  on a { map(x + 1 -> x) }\n  on b { map(y + 1 -> y) }\n  on a { sum: map(x + y -> x) }\n}\n";
    sandbox.write("meet.aorta", file);
    sandbox.record(&["meet.aorta", "--effort", "quick", "--iterations", "4"]);
    let printed = sandbox.good(&["report", "record.json", "--svg", "run"]);
    let files: Vec<&str> = printed.lines().filter(|line| line.ends_with(".svg")).collect();
    for file in &files {
        check_xml(&sandbox.read(file));
    }
    let timeline = sandbox.read("run-timeline.svg");
    insta::assert_snapshot!("picture_timeline", format!("{}\n\n{timeline}", files.join("\n")));
}

/// Operations of both launch modes lie on one axis, and readings of the device are drawn over the measured iterations.
#[test]
fn pictures_of_launch_modes_and_of_readings() {
    let sandbox = Sandbox::new();
    run(&sandbox, "exec", &["sdma_overlap", "--launch", "both", "--json", "run.json"]);
    let mut record = sandbox.json("run.json");
    let reading = |clock: u32, power: u32| {
        json!({
            "clock_mhz": clock, "max_clock_mhz": 1980, "power_watts": power, "power_limit_watts": 700, "celsius": 50, "reasons": [],
        })
    };
    let variant = &mut record["variants"][0];
    variant["health"] = json!([reading(1980, 120), reading(1455, 700)]);
    variant["blocks"] = json!([
        { "first": 0, "iterations": 3, "health": [reading(1980, 300)], "throttled": null },
        { "first": 3, "iterations": 2, "health": [reading(1455, 700)], "throttled": "power cap" },
    ]);
    // The graph's operations take longer by a known time.
    for operation in record["variants"][1]["ranks"][0]["operations"].as_array_mut().expect("a list") {
        let time = operation["time_ns"].as_u64().expect("a time");
        operation["time_ns"] = json!(time + 7);
    }
    sandbox.write("read.json", record.to_string());
    sandbox.good(&["report", "read.json", "--svg", "read"]);
    let modes = sandbox.read("read-modes.svg");
    check_xml(&modes);
    assert!(modes.contains("as streams, simulated") && modes.contains("as a graph, simulated"), "{modes}");
    assert!(modes.contains(">+7 ns<"), "{modes}");
    let health = sandbox.read("read-health.svg");
    check_xml(&health);
    for text in ["clock: 1455 to 1980 of 1980 MHz", "power: 120 to 700 of 700 W", "temperature: 50 °C"] {
        assert!(health.contains(text), "{text} in {health}");
    }
    // Three readings of each of three figures, and a throttled block in each.
    assert_eq!(health.matches("<circle").count(), 9, "{health}");
    assert_eq!(health.matches("power cap").count(), 3, "{health}");
}

/// The names of the files of a sweep's curves, and one of them.
#[test]
fn pictures_of_a_sweep() {
    let sandbox = Sandbox::new();
    sweep(&sandbox);
    let printed = sandbox.good(&["report", "cases.jsonl", "--svg", "sweep"]);
    let files: Vec<&str> = printed.lines().filter(|line| line.ends_with(".svg")).collect();
    assert!(files.len() >= 8, "{files:?}");
    for file in &files {
        check_xml(&sandbox.read(file));
    }
    let rate = files.iter().find(|file| file.contains("rate-streams-tokens")).expect("a curve for each value");
    let rate = sandbox.read(rate);
    // Two lines with three points each, their best values, and ideal scaling.
    assert_eq!(rate.matches("<circle class=\"fill-part-").count(), 6, "{rate}");
    assert_eq!(rate.matches("<circle class=\"outline\"").count(), 2, "{rate}");
    assert_eq!(rate.matches("ideal scaling").count(), 1, "{rate}");
    assert!(rate.contains("simulated") && rate.contains("tokens = 16"), "{rate}");
}

#[test]
fn the_timeline_fits_the_terminal() {
    let sandbox = Sandbox::new();
    let text = run(&sandbox, "exec", &["fsdp_overlap", "--ranks", "2", "--timeline"]);
    let (_, timeline) = text.split_once("One iteration as streams, simulated").expect("a timeline");
    for line in timeline.lines() {
        assert!(line.chars().count() <= 80 && !line.contains('\u{1b}'), "{line}");
    }
    insta::assert_snapshot!("timeline_in_letters", timeline);
}

/// A field of a message of protocol buffers.
#[derive(Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Decodes a message into its fields.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a number ends");
            value |= u64::from(first & 0x7f) << shift;
            *bytes = rest;
            if first & 0x80 == 0 {
                return value;
            }
        }
        unreachable!("a number has an end")
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(number.try_into().expect("eight bytes")))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(content)
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, field));
    }
    all
}

/// The only field of that number.
fn field<'a, 'b>(message: &'b [(u64, Field<'a>)], number: u64) -> Option<&'b Field<'a>> {
    message.iter().find(|(own, _)| *own == number).map(|(_, field)| field)
}

/// The trace in Perfetto's format has the slices, counters and arrows of the one in JSON.
#[test]
fn both_formats_of_a_trace_say_the_same() {
    let sandbox = Sandbox::new();
    for (file, ranks) in [("moe", "2"), ("sdma_overlap", "1")] {
        run(&sandbox, "exec", &[file, "--ranks", ranks, "--launch", "both", "--json", "run.json"]);
        sandbox.good(&["report", "run.json", "--trace", "run.pftrace"]);
        sandbox.good(&["report", "run.json", "--trace", "trace.json"]);
        let bytes = std::fs::read(sandbox.path("run.pftrace")).expect("it is there");
        let mut last = 0;
        let (mut slices, mut open): (BTreeMap<String, usize>, BTreeMap<u64, i64>) = (BTreeMap::new(), BTreeMap::new());
        let (mut counts, mut tracks, mut flows) = ([0usize; 5], 0, [0usize; 2]);
        for (number, packet) in fields(&bytes) {
            let Field::Bytes(packet) = packet else { panic!("a packet is a message") };
            assert_eq!(number, 1);
            let packet = fields(packet);
            tracks += usize::from(field(&packet, 60).is_some());
            let Some(Field::Bytes(event)) = field(&packet, 11) else { continue };
            let Some(Field::Number(at)) = field(&packet, 8) else { panic!("an event has a time") };
            assert!(*at >= last, "events are sorted");
            last = *at;
            let event = fields(event);
            let (Some(Field::Number(kind)), Some(Field::Number(track))) = (field(&event, 9), field(&event, 11)) else {
                panic!("an event has a kind and a track")
            };
            counts[*kind as usize] += 1;
            // Operations of a track do not overlap; moments of arrows lie within them.
            let depth = open.entry(*track).or_default();
            *depth += match kind {
                1 => 1,
                2 => -1,
                _ => 0,
            };
            assert!((0..=2).contains(depth), "{file}: {event:?}");
            if let (1, Some(Field::Bytes(name))) = (kind, field(&event, 23)) {
                *slices.entry(String::from_utf8_lossy(name).into_owned()).or_default() += 1;
            }
            for (index, number) in [47, 48].into_iter().enumerate() {
                flows[index] += event.iter().filter(|(own, _)| *own == number).count();
            }
        }
        let json = sandbox.json("trace.json");
        let events = json["traceEvents"].as_array().expect("a list");
        let count = |kind: &str| events.iter().filter(|event| event["ph"] == kind).count();
        let mut expected: BTreeMap<String, usize> = BTreeMap::new();
        for event in events.iter().filter(|event| event["ph"] == "X") {
            *expected.entry(event["name"].as_str().expect("a name").to_owned()).or_default() += 1;
        }
        assert_eq!(slices, expected, "{file}");
        assert_eq!((counts[1], counts[2], counts[4]), (count("X"), count("X"), count("C")), "{file}");
        assert!(count("C") > 0 && (count("s") > 0 || ranks == "1"), "{file}");
        assert_eq!(flows, [count("s"), count("f")], "{file}");
        assert!(events.iter().any(|event| event["cat"] == "critical_path"), "{file}");
        assert!(tracks >= 3, "{file}");
    }
}
