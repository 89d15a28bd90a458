//! From text to schedule: time and memory of each stage, over programs of many kinds, of 10⁴, 10⁵ and 10⁶ operations;
//! and how long `aorta check` takes for each shipped file, as a process.
//!
//! `cargo bench --bench language` prints the tables and fails where a limit is missed: 2 s for a million operations,
//! 500 bytes an operation, time that grows with the number of operations, 20 ms for a shipped file. Words behind `--`
//! pick the kinds whose name contains one of them; `--file PATH` measures one run of a file of your own.
//!
//! Each run is a process of its own. Its times are those of the processor, which other work on the machine disturbs
//! the least; the stages run one after the other on one core. Shown is the run whose time is the median.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aorta::base::SourceMap;
use aorta::schedule::Topology;
use aorta::{model, plan, schedule, syntax};

/// For each operation of a million: 2 s in all.
const MAX_NANOS: f64 = 2000.0;
/// Live bytes at the most, for each operation.
const MAX_BYTES: f64 = 500.0;
/// How much longer an operation may take among 10⁶ than among 10⁴: the tables of 10⁴ fit in the processor's cache and
/// those of 10⁶ do not, which costs about that, and a quadratic part would cost a hundred times as much.
const MAX_GROWTH: f64 = 3.0;
/// `aorta check` of a shipped file.
const MAX_CHECK: Duration = Duration::from_millis(20);

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];

/// Programs by kind: a name, declarations, options of the step, the body of a loop over `i`, operations of a turn.
struct Kind {
    name: &'static str,
    declarations: &'static str,
    options: &'static str,
    body: &'static str,
    operations: usize,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "one stream",
        declarations: "stream s  buffer x: f32[4096]",
        options: "",
        body: "on s { map(x * 2 -> x) }",
        operations: 1,
    },
    Kind {
        name: "16 streams, no data",
        declarations: "stream s[16]",
        options: "",
        body: "on s[i % 16] { nop() }",
        operations: 1,
    },
    Kind {
        name: "8 streams, hazards",
        declarations: "stream s[8]  buffer x: f32[7, 4096]",
        options: "",
        body: "on s[i % 8] { map(x[i % 7] * 2 -> x[(i + 1) % 7]) }",
        operations: 1,
    },
    Kind {
        name: "64 streams, hazards",
        declarations: "stream s[64]  buffer x: f32[63, 4096]",
        options: "",
        body: "on s[i % 64] { map(x[i % 63] * 2 -> x[(i + 1) % 63]) }",
        operations: 1,
    },
    Kind {
        name: "512 streams, hazards",
        declarations: "stream s[512]  buffer x: f32[511, 4096]",
        options: "",
        body: "on s[i % 512] { map(x[i % 511] * 2 -> x[(i + 7) % 511]) }",
        operations: 1,
    },
    Kind {
        name: "slices",
        declarations: "stream s[8]  buffer x, y: f32[65536, 64]",
        options: "",
        body: "let a = i * 16 % 65536  on s[i % 8] { map(x[a..a + 16] + 1 -> y[a..a + 16]) }",
        operations: 1,
    },
    Kind {
        name: "halos",
        declarations: "stream s[8]  buffer x[2]: f32[65536, 64]",
        options: "",
        body: "let a = i * 16 % 65504  on s[i % 8] { map(x[i % 2][a..a + 32] + 1 -> x[(i + 1) % 2][a..a + 32]) }",
        operations: 1,
    },
    Kind {
        name: "chunks and a whole",
        declarations: "stream s[4]  buffer x, y: f32[64, 4096]",
        options: "",
        body: "on s[i % 4] { map(y[i % 64] + 1 -> x[i % 64])  map(x + 1 -> y) }",
        operations: 2,
    },
    Kind {
        name: "labels, after",
        declarations: "stream s[16]",
        options: "",
        body: "on s[i % 16] after f[i - 1] when i > 0 { f[i]: nop() }",
        operations: 1,
    },
    Kind {
        name: "scratch",
        declarations: "stream s[8]  buffer x, y: f32[16, 4096]",
        options: "",
        body: "on s[i % 8] { a: map(x[i % 16] * 2)  b: map(a + 1)  map(a + b -> y[i % 16]) }",
        operations: 3,
    },
    Kind {
        name: "scratch across streams",
        declarations: "stream s[8]  buffer x: f32[16, 4096]",
        options: "",
        body: "on s[i % 8] { a: map(x[i % 16] * 2) } on s[(i + 1) % 8] { map(a + 1) }",
        operations: 2,
    },
    Kind {
        name: "bare inputs",
        declarations: "stream s[8]",
        options: "",
        body: "on s[i % 8] { gemm(f32[64, 64], f32[64, 64]) }",
        operations: 1,
    },
    Kind {
        name: "a def in a loop",
        declarations: "stream s[8]  buffer w: f32[64, 64]  buffer x: f32[8, 64, 64]\n\
                       def layer(x, w -> y) { up: gemm(x, w)  act: map(gelu(up))  gemm(act, w -> y) }",
        options: "",
        body: "on s[i % 8] { f: layer(x[i % 8], w -> x[(i + 1) % 8]) }",
        operations: 3,
    },
    Kind {
        name: "forward and back",
        declarations: "stream s[64]  buffer w: f32[64, 64]",
        options: "",
        // Each of the first half is read by one of the second, in reverse: everything is saved until then.
        body: "if i < turns / 2 { on s[i % 64] { if i == 0 { f[i]: map(w) } else { f[i]: gemm(f[i - 1], w) } } } \
               else { on s[(i * 7 + 3) % 64] { map(f[turns - 1 - i] + 1) } }",
        operations: 1,
    },
    Kind {
        name: "order: declared",
        declarations: "stream s[16]  buffer x: f32[16, 4096]",
        options: "(order: declared)",
        body: "on s[i % 16] after f[i - 1] when i > 0 { f[i]: map(x[i % 16] + x[(i + 1) % 16] -> x[i % 16]) }",
        operations: 1,
    },
    Kind {
        name: "sync: end",
        declarations: "stream s[8]  buffer x: f32[7, 4096]",
        options: "(sync: end, depth: 2)",
        body: "on s[i % 8] { map(x[i % 7] * 2 -> x[(i + 1) % 7]) }",
        operations: 1,
    },
    Kind {
        name: "a cycle of 8",
        declarations: "stream s[8]  buffer x: f32[8, 4096]",
        options: "",
        body: "for j in 0..if i % 8 == iteration % 8 { 8 } else { 0 } { on s[j] { map(x[j] * 2 -> x[(j + 1) % 8]) } }",
        operations: 8,
    },
    Kind {
        name: "one writer, 512 readers",
        declarations: "stream w  stream s[512]  buffer x: f32[4096]  buffer y: f32[512, 4096]",
        options: "",
        body: "on w { map(x * 2 -> x) } for j in 0..512 { on s[j] { map(x + 1 -> y[j]) } }",
        operations: 513,
    },
    Kind {
        name: "a shared weight",
        declarations: "stream s[512]  buffer w: f32[4096]  buffer y: f32[512, 4096]",
        options: "",
        body: "on s[i % 512] { map(w + 1 -> y[i % 512]) }",
        operations: 1,
    },
    Kind {
        name: "sync() on 512 streams",
        declarations: "stream s[512]",
        options: "",
        body: "for j in 0..512 { on s[j] { nop() } } sync()",
        operations: 513,
    },
    Kind {
        name: "sync() each turn",
        declarations: "stream s[512]",
        options: "",
        body: "on s[i % 512] { nop() } sync()",
        operations: 2,
    },
    Kind {
        name: "signal, wait",
        declarations: "stream s[16]",
        options: "",
        body: "on s[i % 16] { e: signal() } on s[(i + 1) % 16] { wait(e) nop() }",
        operations: 3,
    },
    Kind {
        name: "as many buffers",
        declarations: "stream s[8]  buffer x[turns]: f32[16]",
        options: "",
        body: "on s[i % 8] { map(if i == 0 { x[0] } else { x[i - 1] } + 1 -> x[i]) }",
        operations: 1,
    },
    Kind {
        name: "tiles",
        declarations: "stream s[8]  buffer x: f32[1000, 1000, 4, 4]",
        options: "",
        body: "let r = i % 1000  let c = floor_div(i, 1000) % 1000  \
               on s[i % 8] { map(x[r, c, 0..2, 0..2] + 1 -> x[r, c, 2..4, 2..4]) }",
        operations: 1,
    },
];

/// The system's allocator, which counts live bytes and their peak.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory but two atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The system grows large stretches by their pages, without a copy beside them.
        match size.checked_sub(layout.size()) {
            Some(more) => grown(more),
            None => _ = LIVE.fetch_sub(layout.size() - size, Ordering::Relaxed),
        }
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The processor's time that this process has taken.
#[cfg(target_os = "linux")]
fn clock() -> Duration {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanos: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const PROCESS: i32 = 2;
    let mut time = Time { seconds: 0, nanos: 0 };
    // SAFETY: the C library writes one `timespec`, which is two 64-bit numbers on the systems that this runs on.
    let failed = unsafe { clock_gettime(PROCESS, &mut time) };
    assert_eq!(failed, 0, "the clock exists");
    Duration::new(time.seconds as u64, time.nanos as u32)
}

/// Elsewhere, the time on the wall.
#[cfg(not(target_os = "linux"))]
fn clock() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// The most memory that this process has had, in bytes; 0 where the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// What one run from text to schedule took.
#[derive(Clone, Copy, Debug)]
struct Run {
    operations: u64,
    /// Nanoseconds: parse, analyze, plan, place.
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

impl Kind {
    fn text(&self, operations: usize) -> String {
        let turns = operations.div_ceil(self.operations);
        format!(
            "let turns = {turns}\n{}\nstep{} {{ for i in 0..turns {{ {} }} }}\n",
            self.declarations, self.options, self.body
        )
    }
}

fn run(text: &str) -> Run {
    let mut sources = SourceMap::new();
    let base = sources.add("bench.aorta", text).expect("the text is small");
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = clock();
    let (ast, errors) = syntax::parse(text, base, &syntax::Limits::default());
    assert!(errors.is_empty(), "{errors:?}");
    let parsed = clock();
    let program =
        model::analyze(&ast, &model::Options::default()).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    let analyzed = clock();
    let plan = plan::build(&program).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    let planned = clock();
    let topology = Topology { queues: 32, by_priority: false };
    let schedule = schedule::place(&program, &plan, topology, &schedule::Options::default());
    let placed = clock();
    let bytes = (PEAK.load(Ordering::Relaxed) - before) as u64;
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
