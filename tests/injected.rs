//! Every call of a vendor's library fails once, on the double of AMD's libraries: the run ends with a documented exit
//! code and a message, or continues with correct results. With `AORTA_LONG`, as in `.ci/long`, each call of each
//! function fails; otherwise the first and the last of each function.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

use crate::common::folder::Folder;
use crate::common::{doubles, effort, parallel, programs};
use crate::hip::{in_two_processes, run_with};

/// Matrix products, generated kernels, collectives, both kinds of copies to another rank, a host stream that shares memory
/// with the device, and a block before the iterations.
const FILE: &str = "\
stream s
stream t
stream h(kind: host, threads: 2)
buffer x: f32[64, 64]
buffer y: f32[64, 64] = zeros
buffer z: f32[64, 64] = zeros
buffer p: f32[64, 64] in pinned
buffer m: f32[64, 64] in managed
setup { on h { fill(1 -> p) } }
step {
  on h { map(p * 0.25 + m -> m) }
  on s { map(x * 0.5 + rank -> x) gemm(x, x -> y) all_reduce(y -> z) map(m * 0.5 -> m) copy(m -> p) }
  on t { copy(x -> y at (rank + 1) % world, via: kernel) copy(z -> x at (rank + 1) % world) }
}
";

/// Number of calls of one function above which a long run tests only some.
const MOST: u64 = 64;

/// Outcome of a run. A run that waits until its time limit has neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The call did not matter, or was replaced by another one; the results are correct.
    WentOn,
    /// Exit code 3 or 4, with a message.
    Told,
}

/// The arguments of a run, and the folder that it uses.
fn arguments<'a>(file: &'a str, launch: &'a str) -> Vec<&'a str> {
    vec![file, "--launch", launch, "--ranks", "2", "--config", "timeout=10s"]
}

/// How often each function is called in a run without a fault. A kernel that is not in the folder `cache` is compiled, and
/// an algorithm that is not there chosen by timing.
fn counted(libraries: &Path, folder: &Folder, arguments: &[&str], cache: &str) -> BTreeMap<String, u64> {
    let path = folder.path("calls");
    let environment = [("HIP_DOUBLE_CALLS", path.as_str()), ("HIP_DOUBLE_DEVICES", "2"), ("XDG_CACHE_HOME", cache)];
    let output = run_with(libraries, &environment, arguments);
    assert_eq!(output.code, Some(0), "{}", output.printed);
    let calls = folder.read("calls");
    let one = |line: &str| {
        let (function, count) = line.split_once(' ')?;
        Some((function.to_owned(), count.parse().ok()?))
    };
    calls.lines().filter_map(one).collect()
}

/// Which calls of a function fail, one in each run.
fn turns(count: u64) -> Vec<u64> {
    let mut turns: Vec<u64> = match effort::is_long() {
        true => (1..=count.min(MOST)).chain([count / 2, count]).collect(),
        false => effort::chosen([1, count]).collect(),
    };
    turns.retain(|turn| *turn > 0);
    turns.sort_unstable();
    turns.dedup();
    turns
}

/// Runs with one fault. `cache` is the folder of compiled kernels; `None` for an empty one. The error describes an invalid end
/// of the run.
fn outcome(
    libraries: &Path,
    (function, turn): (&str, u64),
    arguments: &[&str],
    cache: Option<&str>,
) -> Result<Outcome, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (empty, temporary) = (path("cache"), path("temporary"));
    fs::create_dir(&temporary).expect("a folder of our own");
    let fault = format!("call:{function}:{turn}");
    let environment = [
        ("HIP_DOUBLE_FAULT", fault.as_str()),
        ("HIP_DOUBLE_DEVICES", "2"),
        ("TMPDIR", temporary.as_str()),
        ("XDG_CACHE_HOME", cache.unwrap_or(&empty)),
    ];
    let json = path("record.json");
    let output = run_with(libraries, &environment, &[arguments, &["--json", &json]].concat());
    let printed = &output.printed;
    let wrong = |what: &str| Err(format!("{fault}: {what}, exit code {:?}\n{printed}", output.code));
    if printed.contains("panicked") {
        return wrong("a panic");
    }
    // The call that fails returns at once, so nothing may wait for it.
    if ["aorta::exec::hang", "aorta::exec::no_return"].iter().any(|code| printed.contains(code)) {
        return wrong("a hang");
    }
    // The double's compiler is a program. What it compiles for more than two seconds after another rank has failed is
    // left behind.
    let is_compiler_s = |name: &str| name.starts_with("hip-double-") || name.starts_with("cc");
    let entries = fs::read_dir(&temporary).expect("a folder of our own").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| !(cache.is_none() && is_compiler_s(name))).collect();
    if !left.is_empty() {
        return wrong(&format!("{left:?} is left behind"));
    }
    // Measurements are printed and written, unless there are none.
    let record: Option<Value> = fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok());
    // The head of the table: `100 iterations`. Messages about hangs speak of iterations too.
    let is_head = |line: &str| line.starts_with(|first: char| first.is_ascii_digit()) && line.contains(" iterations");
    let is_printed = printed.lines().any(is_head);
    if record.is_some() != is_printed {
        return wrong("the report is printed and no record written, or the other way round");
    }
    if output.code == Some(4) && record.is_some_and(|record| record["complete"] != false) {
        return wrong("the record of a run that failed is complete");
    }
    if printed.contains(", in this ") && !printed.contains("all.aorta:") {
        return wrong("the place of the operation is not told");
    }
    match output.code {
        Some(0) => {
            let verified: Vec<&str> =
                printed.lines().filter(|line| line.starts_with("verified against the CPU")).collect();
            let all = |line: &&str| {
                let words: Vec<&str> = line.rsplit(": ").next().unwrap_or_default().split(' ').collect();
                words.first() == words.get(2)
            };
            match !verified.is_empty() && verified.iter().all(all) {
                true => Ok(Outcome::WentOn),
                false => wrong("success without right results"),
            }
        }
        Some(3 | 4) if !printed.contains("aorta::exec::") => wrong("no message"),
        Some(4) if !printed.contains("rank") && !printed.contains(function) => {
            wrong("neither rank nor operation is told")
        }
        Some(3 | 4) => Ok(Outcome::Told),
        _ => wrong("an exit code that no page describes"),
    }
}

/// Makes the calls fail that `wants` selects, and reports all invalid ends at once.
fn each_fails_once(launch: &str, wants: impl Fn(&str) -> bool) {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let file = folder.write("all.aorta", FILE);
    let arguments = arguments(&file, launch);
    let cache = folder.path("cache");
    let first = counted(libraries, &folder, &arguments, &cache);
    let later = counted(libraries, &folder, &arguments, &cache);
    // Functions that only a first run calls get an empty cache.
    let only_first: BTreeMap<_, _> = first
        .iter()
        .filter(|(function, _)| !later.contains_key(*function))
        .map(|(name, n)| (name.clone(), *n))
        .collect();
    let cases: Vec<(&str, u64, Option<&str>)> = [(&only_first, None), (&later, Some(cache.as_str()))]
        .into_iter()
        .flat_map(|(calls, cache)| calls.iter().map(move |(function, count)| (function, *count, cache)))
        .filter(|(function, ..)| wants(function))
        .flat_map(|(function, count, cache)| turns(count).into_iter().map(move |turn| (function.as_str(), turn, cache)))
        .collect();
    assert!(!cases.is_empty(), "{first:?}");
    let table: Mutex<BTreeMap<&str, BTreeMap<Outcome, u32>>> = Mutex::default();
    let wrong: Vec<String> = parallel::map(&cases, |&(function, turn, cache)| {
        let outcome = outcome(libraries, (function, turn), &arguments, cache);
        let mut table = table.lock().expect("no case panics with it");
        let outcome = outcome.map(|outcome| *table.entry(function).or_default().entry(outcome).or_default() += 1);
        outcome.err()
    })
    .into_iter()
    .flatten()
    .collect();
    for (function, outcomes) in table.into_inner().expect("no case panics with it") {
        println!("{function}: {outcomes:?} of {} calls", later.get(function).unwrap_or_else(|| &first[function]));
    }
    assert!(wrong.is_empty(), "{} of {} cases end wrongly:\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
}

/// True for a function of the runtime.
fn runtime(function: &str) -> bool {
    function.starts_with("hip") && !function.starts_with("hiprtc") && !function.starts_with("hipblas")
}

#[test]
fn every_call_of_the_runtime_fails_once() {
    if !effort::is_due() {
        return;
    }
    each_fails_once("stream", runtime);
}

#[test]
fn every_call_that_makes_a_graph_fails_once() {
    if !effort::is_due() {
        return;
    }
    each_fails_once("graph", |function| {
        // The last two are first called in a capture, and a rank on which they fail captures fewer collectives than the other.
        ["hipGraph", "hipStreamBeginCapture", "hipStreamEndCapture", "hipStreamWaitEvent", "ncclAllReduce"]
            .iter()
            .any(|prefix| function.starts_with(prefix))
    });
}

#[test]
fn every_call_of_the_other_libraries_fails_once() {
    if !effort::is_due() {
        return;
    }
    each_fails_once("stream", |function| !runtime(function));
}

/// A call in each phase of a rank: opening, compiling, allocating, connecting, warm-up, measuring, observing and
/// reading.
const PHASES: [&str; 12] = [
    "hipInit",
    "hipSetDevice",
    "hipStreamCreateWithPriority",
    "hipModuleLoadData",
    "hipMalloc",
    "hipIpcGetMemHandle",
    "hipIpcOpenMemHandle",
    "hipModuleLaunchKernel",
    "hipModuleLaunchKernel:40",
    "hipModuleLaunchKernel:120",
    "hipMemcpyDtoHAsync",
    "hipEventRecord:300",
];

/// Each phase, with either rank.
fn phases() -> Vec<(usize, &'static str)> {
    PHASES.into_iter().flat_map(|phase| [(0, phase), (1, phase)]).collect()
}

/// Runs two processes, one of them with a fault in the phase of each case, and passes the rank with the fault, the phase and
/// the outputs of both to `judge`. `at_once` cases run on each processor.
fn in_each_phase(
    kind: &str,
    cases: &[(usize, &'static str)],
    at_once: usize,
    judge: impl Fn(usize, &str, &crate::hip::Output, &crate::hip::Output) + Sync,
) {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let file = folder.write("peers.aorta", programs::PEERS.replace("VIA", "dma"));
    let hit: Vec<bool> = parallel::map_on(at_once, cases, |&(rank, phase)| {
        let fault = format!("{kind}:{phase}");
        let faults = if rank == 0 { [fault.as_str(), ""] } else { ["", fault.as_str()] };
        let arguments = [&file, "--config", "timeout=2s", "--config", "rendezvous=10s", "--config", "stall=5s"];
        let (first, other) = in_two_processes(libraries, faults, &arguments);
        // A function that is called less often in this run has no fault.
        let went_well = (first.code, other.code) == (Some(0), Some(0));
        if !went_well {
            judge(rank, phase, &first, &other);
        }
        !went_well
    });
    let phases: Vec<_> = cases.iter().zip(hit).filter(|(_, hit)| !hit).map(|(case, _)| case).collect();
    assert!(phases.len() <= 4 && phases.len() < cases.len(), "there is no such call: {phases:?}");
}

#[test]
fn a_rank_that_is_killed_in_any_phase_ends_the_other() {
    in_each_phase("kill", &phases(), 1, |rank, phase, first, other| {
        let (killed, left) = if rank == 0 { (first, other) } else { (other, first) };
        let left_rank = 1 - rank;
        assert_eq!(killed.code, None, "{phase}: {}", killed.printed);
        assert_eq!(left.code, Some(4), "{phase}: {}", left.printed);
        let gone = [format!("rank {rank} was lost"), format!("rank {rank} started, but ended")];
        // The other rank notices a process that dies while its memory is being opened.
        let expected = [
            &gone[..],
            &[format!("the memory of rank {rank} is not open"), format!("the memory of rank {left_rank} is not open")],
        ]
        .concat();
        assert!(expected.iter().any(|text| left.printed.contains(text)), "rank {rank}, {phase}: {}", left.printed);
    });
}

#[test]
fn a_rank_whose_call_never_returns_ends_all() {
    if !effort::is_due() {
        return;
    }
    // Each process ends only once its timeout has passed. The test above takes every phase.
    let cases: Vec<_> = effort::chosen(phases()).collect();
    in_each_phase("halt", &cases, 3, |rank, phase, first, other| {
        let codes = (first.code, other.code);
        assert_eq!(codes, (Some(4), Some(4)), "rank {rank}, {phase}: {}\n{}", first.printed, other.printed);
        let both = format!("{}{}", first.printed, other.printed);
        assert!(both.contains("aorta::exec::") && both.contains("rank "), "rank {rank}, {phase}: {both}");
    });
}
