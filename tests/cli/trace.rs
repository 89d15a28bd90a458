//! The trace of an iteration: what Perfetto needs to draw lanes, operations and arrows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::sandbox::Sandbox;

/// The trace's events, and the record of the same run.
fn traced(arguments: &str) -> (Vec<Value>, Value) {
    let sandbox = Sandbox::new();
    let always = ["exec", "--json", "a.json", "--trace", "a.trace", "--effort", "quick"];
    sandbox.good(&always.into_iter().chain(arguments.split_whitespace()).collect::<Vec<_>>());
    let trace = sandbox.json("a.trace");
    (trace["traceEvents"].as_array().expect("a list").clone(), sandbox.json("a.json"))
}

/// The events of one kind.
fn of<'a>(events: &'a [Value], phase: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == phase).collect()
}

/// A variant's lane.
fn lane(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().expect("a process"), event["tid"].as_u64().expect("a thread"))
}

fn number(event: &Value, key: &str) -> f64 {
    event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"))
}

const RUNS: [&str; 3] = [
    "moe --preset tiny --backend sim --launch both",
    "sdma_overlap --preset tiny --backend sim",
    "moe --preset tiny --backend host --launch both",
];

#[test]
fn a_lane_for_each_stream() {
    for run in RUNS {
        let (events, record) = traced(run);
        let variants = record["variants"].as_array().expect("a list").len();
        let streams = record["program"]["lanes"].as_array().expect("a list");
        let names = of(&events, "M").into_iter().filter(|event| event["name"] == "thread_name");
        let names: BTreeMap<(u64, u64), &str> =
            names.map(|event| (lane(event), event["args"]["name"].as_str().expect("a name"))).collect();
        let (paths, lanes): (Vec<_>, Vec<_>) = names.iter().partition(|(_, name)| **name == "critical path");
        assert_eq!((paths.len(), lanes.len()), (variants, variants * streams.len()), "{run}");
        for ((_, thread), name) in lanes {
            let number = thread & 0xffff;
            let stream = streams[number as usize]["name"].as_str().expect("a name");
            assert_eq!(*name, format!("stream {number}: {stream}"), "{run}");
        }
        // Viewers know a thread by its number alone.
        let threads: BTreeSet<u64> = names.keys().map(|(_, thread)| *thread).collect();
        assert_eq!(threads.len(), names.len(), "{run}: {names:?}");
        for event in of(&events, "X").into_iter().chain(of(&events, "s")).chain(of(&events, "f")) {
            assert!(names.contains_key(&lane(event)), "{event} is in no lane");
        }
        let processes = of(&events, "M").into_iter().filter(|event| event["name"] == "process_name").count();
        assert_eq!(processes, variants, "{run}");
    }
}

#[test]
fn operations_have_a_place_in_time() {
    for run in RUNS {
        let (events, record) = traced(run);
        let is_path = |event: &&Value| event["cat"] == "critical_path";
        let (path, spans): (Vec<&Value>, Vec<&Value>) = of(&events, "X").into_iter().partition(is_path);
        assert!(!path.is_empty(), "{run}");
        let observed = record["variants"].as_array().expect("a list").iter();
        let observed: usize = observed.map(|variant| variant["ranks"][0]["trace"].as_array().map_or(0, Vec::len)).sum();
        assert!(observed > 0 && spans.len() == observed, "{run}: {} of {observed}", spans.len());
        for span in &spans {
            assert!(number(span, "ts") >= 0.0 && number(span, "dur") >= 0.0, "{span}");
            assert!(span["name"].as_str().is_some_and(|name| !name.is_empty()), "{span}");
            let expected = match span["args"]["operation"].as_str() {
                Some("copy") => "gpu_memcpy",
                Some("memset") => "gpu_memset",
                _ => "kernel",
            };
            assert_eq!(span["cat"], expected, "{span}");
            assert_eq!(span["args"]["stream"], lane(span).1 & 0xffff, "{span}");
        }
        // A stream runs one operation after the other.
        let mut lanes: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
        for span in spans {
            let times = (number(span, "ts"), number(span, "ts") + number(span, "dur"));
            lanes.entry(lane(span)).or_default().push(times);
        }
        for (lane, mut times) in lanes {
            times.sort_by(|a, b| a.0.total_cmp(&b.0));
            let apart = times.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 0.001);
            assert!(apart, "{run}: operations of {lane:?} overlap: {times:?}");
        }
    }
}

#[test]
fn arrows_come_in_pairs() {
    for run in RUNS {
        let (events, record) = traced(run);
        let starts: BTreeMap<u64, &Value> =
            of(&events, "s").into_iter().map(|event| (event["id"].as_u64().expect("an id"), event)).collect();
        let ends: BTreeMap<u64, &Value> =
            of(&events, "f").into_iter().map(|event| (event["id"].as_u64().expect("an id"), event)).collect();
        assert_eq!(starts.len(), of(&events, "s").len(), "{run}: an id is used twice");
        assert_eq!(starts.keys().collect::<BTreeSet<_>>(), ends.keys().collect(), "{run}");
        for (id, start) in &starts {
            let end = ends[id];
            assert_eq!((&start["cat"], &start["name"]), (&end["cat"], &end["name"]));
            assert_eq!(end["bp"], "e");
            assert_eq!(start["pid"], end["pid"], "{run}: an arrow leads to another variant");
            assert_ne!(start["tid"], end["tid"], "{run}: streams keep their own order");
            assert!(number(start, "ts") <= number(end, "ts"), "{run}: {start} {end}");
            for event in [start, &end] {
                let within = of(&events, "X").into_iter().any(|span| {
                    let begin = number(span, "ts");
                    let time = number(event, "ts");
                    lane(span) == lane(event) && begin <= time && time <= begin + number(span, "dur")
                });
                assert!(within, "{run}: {event} belongs to no operation");
            }
        }
        assert_eq!(starts.len(), dependencies(&record), "{run}");
    }
}

/// Number of dependencies between lanes, over all variants.
fn dependencies(record: &Value) -> usize {
    let variants = record["variants"].as_array().expect("a list").iter();
    let of_variant = |variant: &Value| {
        let rank = &variant["ranks"][0];
        let ran: BTreeSet<_> =
            rank["trace"].as_array().expect("a list").iter().map(|span| span["id"].as_u64()).collect();
        let operations = rank["operations"].as_array().expect("a list");
        let other_lane = |operation: &Value, before: &Value| {
            let earlier = &operations[before.as_u64().expect("an id") as usize];
            earlier["lane"] != operation["lane"] && ran.contains(&before.as_u64())
        };
        let waits = operations.iter().filter(|operation| ran.contains(&operation["id"].as_u64())).map(|operation| {
            let after = operation["after"].as_array().expect("a list");
            after.iter().filter(|before| other_lane(operation, before)).count()
        });
        waits.sum::<usize>()
    };
    variants.map(of_variant).sum()
}

/// A folder has a file for each launch mode and rank, whose names tell communication, copies and computation apart as
/// HolisticTraceAnalysis does.
#[test]
fn a_folder_has_a_file_for_each_rank() {
    let sandbox = Sandbox::new();
    let arguments = "exec disaggregated --preset tiny --backend sim --ranks 2 --launch both --effort quick \
                     --json a.json --trace traces/";
    sandbox.good(&arguments.split_whitespace().collect::<Vec<_>>());
    let record = sandbox.json("a.json");
    for variant in record["variants"].as_array().expect("a list") {
        for rank in variant["ranks"].as_array().expect("a list") {
            let file = format!("traces/{}/rank{}.json", variant["launch"].as_str().expect("a mode"), rank["rank"]);
            let text = sandbox.read(&file);
            // HolisticTraceAnalysis takes the first line that has a rank in this form.
            let found = text.lines().find_map(|line| line.split_once("\"rank\": ")).expect("a rank").1;
            assert!(found.starts_with(&format!("{},", rank["rank"])), "{file}: {found}");
            let trace: Value = serde_json::from_str(&text).expect("JSON");
            let events = trace["traceEvents"].as_array().expect("a list");
            let spans = of(events, "X");
            assert_eq!(spans.len(), rank["trace"].as_array().expect("a list").len(), "{file}");
            for span in spans {
                let id = span["args"]["correlation"].as_u64().expect("a number") as usize;
                let operation = &rank["operations"][id];
                let (label, name) =
                    (operation["name"].as_str().expect("a name"), span["name"].as_str().expect("a name"));
                let kind = match operation["operation"].as_str() {
                    Some("copy") => "Memcpy ",
                    Some("memset") => "Memset",
                    _ if operation["category"] == "collective" => "ncclDevKernel_",
                    _ => label,
                };
                assert!(name.starts_with(kind) && name.ends_with(label), "{file}: {name} of {label}");
            }
        }
    }
    let output = sandbox.run(&["report", "a.json", "--trace", "x.foo"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("end it with `.json`, `.pftrace`, or `/`"), "{}", output.stderr);
    sandbox.good(&["report", "a.json", "--trace", "again/"]);
    assert_eq!(sandbox.read("again/graph/rank1.json"), sandbox.read("traces/graph/rank1.json"));
}
