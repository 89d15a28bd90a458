//! From text to schedule: time and memory of each stage, over programs of many kinds, of 10⁴, 10⁵ and 10⁶ operations;
//! and how long `aorta check` takes for each shipped file, as a process.
//!
//! `cargo bench --bench language` prints the tables and fails where a limit is missed: 2 s for a million operations,
//! 500 bytes an operation, time that grows with the number of operations, 20 ms for a shipped file. Words behind `--`
//! pick the kinds whose name contains one of them; `--file PATH` measures one run of a file of your own.
//!
//! Each run is a process of its own. Its times are those of the processor, which other work on the machine disturbs
//! the least; the stages run one after the other on one core. Shown is the run whose time is the median.

mod machine;
mod programs;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use aorta::schedule::Topology;
use aorta::{compile, model, plan, schedule, syntax};
use machine::{clock, live, peak, resident};
use programs::{KINDS, Kind};

/// For each operation of a million: 2 s in all.
const MAX_NANOS: f64 = 2000.0;
/// Live bytes at the most, for each operation.
const MAX_BYTES: f64 = 500.0;
/// How much longer an operation may take among 10⁶ than among 10⁴: the tables of 10⁴ fit in the processor's cache and
/// those of 10⁶ do not, which costs up to about a half; a part that is quadratic would cost a hundred times as much.
const MAX_GROWTH: f64 = 2.0;
/// `aorta check` of a shipped file.
const MAX_CHECK: Duration = Duration::from_millis(20);

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];

/// Resources that one run from text to schedule took.
#[derive(Clone, Copy, Debug)]
struct Run {
    operations: u64,
    /// Nanoseconds: parse and link, analyze, plan, place.
    stages: [u64; 4],
    /// Live bytes at the most, those of the text left out.
    bytes: u64,
    /// Resident bytes of the process at the most.
    resident: u64,
}

impl Run {
    fn total(&self) -> u64 {
        self.stages.iter().sum()
    }
}

fn run(text: &str) -> Run {
    let before = live();
    let start = clock();
    let limits = syntax::SyntaxLimits::default();
    let linked = compile::parse("bench.aorta", text, &limits, &compile::no_files).expect("the text is small");
    assert!(linked.errors.is_empty(), "{:?}", linked.errors);
    let parsed = clock();
    let program = model::analyze(&linked.ast, &model::AnalysisOptions::default())
        .unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    let analyzed = clock();
    let plan = plan::build(&program).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    let planned = clock();
    let topology = Topology { queues: 32, by_priority: false, limits_units: false };
    let schedule = schedule::place(&program, &plan, topology, &schedule::ScheduleOptions::default());
    let placed = clock();
    let bytes = (peak() - before) as u64;
    let operations = program.cycle.iter().map(|step| step.ops.len() as u64).sum();
    std::hint::black_box(&schedule);
    let stages = [parsed - start, analyzed - parsed, planned - analyzed, placed - planned];
    Run { operations, stages: stages.map(|time| time.as_nanos() as u64), bytes, resident: resident() }
}

/// What a process for one run does: prints its figures.
fn child(name: &str, operations: usize) {
    let kind = KINDS.iter().find(|kind| kind.name == name).expect("the parent knows the names");
    let Run { operations, stages: [parse, analyze, plan, place], bytes, resident } = run(&kind.text(operations));
    println!("{operations} {parse} {analyze} {plan} {place} {bytes} {resident}");
}

/// Several runs, each in a process of its own; the one whose time is the median.
fn median(kind: &Kind, operations: usize, runs: usize) -> Run {
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut all: Vec<Run> = (0..runs)
        .map(|_| {
            let output = Command::new(&program).args(["--run", kind.name, &operations.to_string()]).output();
            let output = output.expect("it can be started");
            let text = String::from_utf8_lossy(&output.stdout);
            let figures: Vec<u64> = text.split_whitespace().map_while(|figure| figure.parse().ok()).collect();
            match figures[..] {
                [operations, parse, analyze, plan, place, bytes, resident] => {
                    Run { operations, stages: [parse, analyze, plan, place], bytes, resident }
                }
                _ => panic!("{}: {text}{}", kind.name, String::from_utf8_lossy(&output.stderr)),
            }
        })
        .collect();
    all.sort_by_key(Run::total);
    all[runs / 2]
}

/// Prints the lines of a kind, and returns what it misses.
fn measure(kind: &Kind) -> Vec<String> {
    let mut missed = Vec::new();
    let mut each = Vec::new();
    for size in SIZES {
        let run = median(kind, size, if size < 1_000_000 { 7 } else { 3 });
        let per_operation = |figure: u64| figure as f64 / run.operations as f64;
        let [parse, analyze, plan, place] = run.stages.map(per_operation);
        let (total, bytes, resident) = (per_operation(run.total()), per_operation(run.bytes), run.resident >> 20);
        println!(
            "{:<24} {:>8} {parse:>6.0} {analyze:>8.0} {plan:>6.0} {place:>6.0} {total:>6.0} {:>7.3} {bytes:>6.0} {resident:>5}",
            kind.name,
            run.operations,
            run.total() as f64 * 1e-9
        );
        if size == SIZES[2] && total > MAX_NANOS {
            missed.push(format!("{}: {total:.0} ns an operation", kind.name));
        }
        if size == SIZES[2] && bytes > MAX_BYTES {
            missed.push(format!("{}: {bytes:.0} bytes an operation", kind.name));
        }
        each.push(total);
    }
    let growth = each[each.len() - 1] / each[0];
    if growth > MAX_GROWTH {
        missed.push(format!("{}: an operation among 10⁶ takes {growth:.1} times as long as among 10⁴", kind.name));
    }
    missed
}

/// The files below a folder of the repository.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Prints how long `aorta check` takes for each shipped file, and returns what it misses.
fn check_shipped() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut missed = Vec::new();
    for path in [files(&root.join("workloads")), files(&root.join("examples"))].concat() {
        let mut times: Vec<Duration> = (0..21)
            .map(|_| {
                let start = Instant::now();
                let check =
                    Command::new(env!("CARGO_BIN_EXE_aorta")).arg("check").arg(&path).stdout(Stdio::null()).status();
                assert!(check.is_ok_and(|status| status.success()), "`aorta check {}` succeeds", path.display());
                start.elapsed()
            })
            .collect();
        times.sort();
        let (least, time) = (times[0], times[times.len() / 2]);
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        println!("{name:<44} {:>7.2} {:>7.2}", least.as_secs_f64() * 1e3, time.as_secs_f64() * 1e3);
        // The least, since a busy machine lengthens the others.
        if least > MAX_CHECK {
            missed.push(format!("check {name}: {least:?}"));
        }
    }
    missed
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, operations] = &arguments[..]
        && flag == "--run"
    {
        child(name, operations.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    if let [flag, path, ..] = &arguments[..]
        && flag == "--file"
    {
        let run = run(&std::fs::read_to_string(path).expect("the file can be read"));
        println!("{run:?}");
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    println!(
        "Nanoseconds of each stage for an operation, all of them, seconds in all, live bytes for an operation at the \
         most,\nMiB of the process at the most.\n"
    );
    println!(
        "{:<24} {:>8} {:>6} {:>8} {:>6} {:>6} {:>6} {:>7} {:>6} {:>5}",
        "program", "ops", "parse", "analyze", "plan", "place", "ns", "s", "bytes", "MiB"
    );
    let mut missed = Vec::new();
    for kind in KINDS.iter().filter(|kind| wanted(kind.name)) {
        missed.extend(measure(kind));
    }
    if wanted("check") {
        println!(
            "\nMilliseconds of `aorta check`, the start of the process included: the least and the median of 21.\n"
        );
        missed.extend(check_shipped());
    }
    for line in &missed {
        println!("missed: {line}");
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
