//! The whole HIP backend on the double of AMD's libraries that runs on the CPU: every shipped file and every operation
//! give the CPU's results, as streams and as a graph, and each fault is reported and ends the run. This does not show
//! the behaviour of an AMD GPU.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::common::doubles::{self, RESULTS_ONLY};
use crate::common::folder::Folder;
use crate::common::{effort, programs, shipped};

/// Time after which a run counts as hung: it is killed, and the test fails.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Folder of compiled kernels, shared by all tests of this file.
pub const KERNELS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/doubles/kernels");

/// The result of a program.
pub struct Output {
    pub code: Option<i32>,
    /// Output of both streams.
    pub printed: String,
}

/// Runs the program on the double with a fault, or an empty text for none.
pub fn run(libraries: &Path, fault: &str, arguments: &[&str]) -> Output {
    run_with(libraries, &[("HIP_DOUBLE_FAULT", fault)], arguments)
}

/// Runs the program on the double with these environment variables, for few iterations: one with `--effort sanity`.
pub fn run_with(libraries: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let append = std::fs::OpenOptions::new().append(true).open(file.path()).expect("a file of our own");
    let mut command = Command::new(env!("CARGO_BIN_EXE_aorta"));
    let few: &[&str] = if arguments.contains(&"sanity") { &[] } else { &["--warmup", "1", "--iterations", "2"] };
    command
        .args(["exec", "--backend", "hip", "--allow-kernels", "--verify"])
        .args(few)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("AORTA_LIBRARY_PATH", libraries)
        .env("XDG_CACHE_HOME", KERNELS)
        .envs(environment.iter().copied())
        .env("COLUMNS", "1000")
        .stdin(Stdio::null())
        .stdout(append.try_clone().expect("a file of our own"))
        .stderr(append);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().expect("the program runs");
    let code = finished(&mut child, arguments);
    assert!(is_group_gone(child.id()), "{arguments:?} leaves a process behind");
    Output { code, printed: std::fs::read_to_string(file.path()).expect("a file of our own") }
}

/// Waits for the end of a run, and kills it after a time limit.
pub fn finished(child: &mut Child, arguments: &[&str]) -> Option<i32> {
    let start = Instant::now();
    loop {
        match child.try_wait().expect("a child of our own") {
            Some(status) => return status.code(),
            None if start.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{arguments:?} does not end");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// True if all processes of a group have ended. A compiler started by a killed program may take a moment.
fn is_group_gone(group: u32) -> bool {
    let group = group.to_string();
    let is_of_group = |stat: &str| {
        // The name may contain anything; the first field after it is the state, the third the group.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.first() != Some(&"Z") && fields.get(2) == Some(&group.as_str())
    };
    let is_there = || {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
        stats.any(|stat| is_of_group(&stat))
    };
    (0..6000).any(|_| {
        let gone = !is_there();
        if !gone {
            std::thread::sleep(Duration::from_millis(10));
        }
        gone
    })
}

/// Checks that a file's results are those of the CPU, as streams and as a graph.
pub fn verify(libraries: &Path, file: &str, arguments: &[&str]) {
    verify_with(libraries, &[], file, arguments);
}

/// Verifies with these variables, and returns the program's output.
pub fn verify_with(libraries: &Path, environment: &[(&str, &str)], file: &str, arguments: &[&str]) -> String {
    let output = run_with(libraries, environment, &[&[file, "--launch", "both"], arguments].concat());
    verified(file, arguments, output)
}

/// Checks that a run has verified all outputs, as streams and as a graph. Returns its output.
fn verified(file: &str, arguments: &[&str], Output { code, printed }: Output) -> String {
    // Expectations about times have no meaning here, and may fail.
    let expected = if printed.contains("\nfailed (as ") { 1 } else { 0 };
    assert_eq!(code, Some(expected), "{file}, {arguments:?}:\n{printed}");
    for launch in ["as streams", "as a graph"] {
        all_outputs_agree(file, launch, &printed);
    }
    printed
}

/// Checks that a run has verified all outputs in a launch mode.
pub fn all_outputs_agree(file: &str, launch: &str, printed: &str) {
    let line = printed.lines().find(|line| line.starts_with(&format!("verified against the CPU, {launch}:")));
    let line = line.unwrap_or_else(|| panic!("{file} is not verified {launch}:\n{printed}"));
    let words: Vec<&str> = line.rsplit(": ").next().unwrap_or_default().split(' ').collect();
    assert_eq!(words.first(), words.get(2), "{file}: {line}");
}

/// The kernels of attention and of convolutions as a compiler for an architecture with matrix units has them.
#[test]
fn products_in_registers_on_matrix_units() {
    let Some(libraries) = doubles::cpu_in_turn() else { return };
    let folder = Folder::new();
    let text = "
        buffer q: f16[1, 4, 20, 48]
        buffer k: f16[1, 2, 70, 48]
        buffer v: f16[1, 2, 70, 33]
        buffer dy: f16[1, 4, 20, 33]
        buffer x: bf16[40, 16]
        buffer image: f16[2, 20, 7, 9]
        buffer filters: f16[40, 20, 3, 3]
        buffer maps: f16[2, 40, 7, 9]
        stream main
        step {
          on main {
            a: attention(q, k, v, causal: true)
            attention_backward(q, k, v, a.o, a.lse, dy, causal: true)
            attention(x, x, x)
            attention(x[0..3], x, x)
            conv(image, filters, padding: 1 -> maps)
            conv(maps, filters, padding: 1, transposed: true)
            conv_weights(image, maps, size: 3, padding: 1)
          }
        }";
    // Kernels that were compiled without matrix units have the same text.
    let cache = folder.path("cache");
    let environment = [("HIP_DOUBLE_MATRIX", "1"), ("XDG_CACHE_HOME", &cache)];
    verify_with(libraries, &environment, &folder.write("units.aorta", text), &RESULTS_ONLY);
}

#[test]
fn every_shipped_file_agrees_with_the_cpu() {
    let Some(libraries) = doubles::cpu_in_turn() else { return };
    for file in effort::chosen(shipped::all()) {
        verify(libraries, &file.path, &["--preset", "tiny", "--cycle", "2"]);
    }
}

/// Files with collectives, on two devices. The test above runs most of them on one.
#[test]
fn ranks_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let is_taken = |file: &String| file.contains("collectives") || file.contains("distributed");
    for file in effort::chosen(shipped::all().into_iter().map(|file| file.path).filter(is_taken)) {
        verify(libraries, &file, &["--preset", "tiny", "--ranks", "2"]);
    }
}

/// The same ranks under two names: their collectives are one sequence.
#[test]
fn groups_of_the_same_ranks_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let text = "mesh dp = world\nmesh a = 1, b = world\nstream s\nbuffer x, y: f32[64]\nstep { on s {\n  \
                all_reduce(x -> y)\n  all_reduce(y -> x) over dp\n  all_reduce(x -> y, op: max) over [a, b]\n} }\n";
    verify(libraries, &folder.write("groups.aorta", text), &["--ranks", "2"]);
}

/// The library connects ranks at its first collective. With graphs only, that is inside a capture.
#[test]
fn ranks_connect_inside_of_a_capture() {
    let Some(libraries) = doubles::cpu() else { return };
    let output = run(libraries, "", &["all_reduce", "--preset", "tiny", "--launch", "graph", "--ranks", "2"]);
    let printed = verified("all_reduce", &["--launch", "graph"], output);
    assert!(!printed.contains("no graph could be made"), "{printed}");
}

/// Copies to other ranks, by the runtime and by a kernel, with one and with several iterations under way; and through
/// host memory, if no kernel can copy.
#[test]
fn copies_to_other_ranks_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let write = |via: &str, options: &str| {
        folder.write("peers.aorta", programs::PEERS.replace("VIA", via).replace("step", &format!("step{options}")))
    };
    for (via, options, ranks) in [("dma", "", "3"), ("kernel", "(sync: end, depth: 3)", "2")] {
        let file = write(via, options);
        let printed = verify_with(libraries, &[("HIP_DOUBLE_DEVICES", "3")], &file, &["--ranks", ranks]);
        assert!(printed.contains("copies to rank 1: direct, from device to device"), "{printed}");
    }
    let file = write("dma", "");
    let printed = verify_with(libraries, &[("HIP_DOUBLE_APART", "1")], &file, &["--ranks", "2"]);
    assert!(printed.contains("copies to rank 1: staged through the host"), "{printed}");
    write("kernel", "");
    let apart = run_with(libraries, &[("HIP_DOUBLE_APART", "1")], &[&file, "--ranks", "2"]);
    assert_eq!(apart.code, Some(4), "{}", apart.printed);
    assert!(apart.printed.contains("cannot access the memory of rank"), "{}", apart.printed);
}

/// Consecutive copies share a synchronization if none of them needs what another brings.
#[test]
fn copies_in_a_row_share_a_meeting() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    // Three iterations under way have separate memory and flags.
    for (options, turns) in [("", 1), ("(sync: end, depth: 3)", 3)] {
        let file = folder.write("rows.aorta", programs::ROWS.replace("step", &format!("step{options}")));
        let printed = verify_with(libraries, &[("HIP_DOUBLE_DEVICES", "2")], &file, &["--ranks", "2"]);
        for (rank, shared) in [(0, 2), (1, 3)] {
            let note =
                format!("rank {rank}: copies from other ranks: {} of {} directly follow", shared * turns, 5 * turns);
            assert!(printed.contains(&note), "{note}: {printed}");
        }
    }
    // Copies through host memory synchronize one by one.
    let file = folder.write("rows.aorta", programs::ROWS.replace(", via: kernel", ""));
    let printed = verify_with(libraries, &[("HIP_DOUBLE_APART", "1")], &file, &["--ranks", "2"]);
    assert!(!printed.contains("copies from other ranks:"), "{printed}");
}

/// Runs two ranks, each in a process of its own with its fault.
pub fn in_two_processes(libraries: &Path, fault: [&str; 2], arguments: &[&str]) -> (Output, Output) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let port = 9_000 + (std::process::id() % 200) as u16 * 20 + NEXT.fetch_add(1, Ordering::Relaxed);
    let of = |rank: &str| {
        let port = port.to_string();
        let launcher = [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")];
        let place = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port), ("HIP_DOUBLE_DEVICES", "2")];
        let fault = [("HIP_DOUBLE_FAULT", fault[usize::from(rank == "1")])];
        run_with(libraries, &[&launcher[..], &place, &fault].concat(), arguments)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| of("1"));
        let first = of("0");
        (first, other.join().expect("it does not panic"))
    })
}

/// Copies between ranks in separate processes whose devices can access each other's memory; if a rank cannot open
/// another's memory, all end.
#[test]
fn copies_to_other_processes_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let run = |text: String, fault: [&str; 2]| {
        let file = folder.write("processes.aorta", text);
        in_two_processes(libraries, fault, &[&file, "--launch", "both"])
    };
    let texts = [programs::PEERS.replace("VIA", "dma"), programs::ROWS.to_owned()];
    for (text, overlapping) in texts.iter().zip([false, true]) {
        let text = if overlapping { text.replace("step", "step(sync: end, depth: 3)") } else { text.clone() };
        let (first, other) = run(text, ["", ""]);
        assert_eq!((other.code, other.printed.as_str()), (Some(0), ""));
        let printed = verified("processes.aorta", &[], first);
        assert!(printed.contains("copies to rank 1: direct, from device to device, in its process"), "{printed}");
        assert!(printed.contains("share their synchronization"), "{printed}");
    }
    let (first, other) = run(texts[0].clone(), ["", "import"]);
    assert_eq!((first.code, other.code), (Some(4), Some(4)), "{}", first.printed);
    assert!(first.printed.contains("the memory of rank 0 is not open to other processes"), "{}", first.printed);
}

#[test]
fn every_operation_agrees_with_the_cpu() {
    let Some(libraries) = doubles::cpu_in_turn().filter(|_| effort::is_in_turn(3, 1)) else { return };
    // Each type takes a compilation of every kernel. The others are in `.ci/long`, and run on GPUs.
    let dtypes: &[&str] = match effort::is_long() {
        true => &["f64", "f32", "f16", "bf16"],
        false => &["bf16"],
    };
    // Collectives need two ranks, which compute everything else twice: every third run of this test has them.
    let ranks = if effort::is_long() || (effort::turn() / 3).is_multiple_of(3) { "2" } else { "1" };
    for dtype in dtypes {
        let set = format!("dtype={dtype}");
        let more = ["--set", &set, "--ranks", ranks];
        verify(libraries, "tests/workloads/operations.aorta", &[&RESULTS_ONLY[..], &more].concat());
    }
}

/// Rows that tensors count go by the library as streams only, since the host reads the counts.
#[test]
fn counted_rows_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let file = "tests/workloads/counted.aorta";
    for ranks in ["1", "2"] {
        let Output { code, printed } =
            run_with(libraries, &[], &[file, "--launch", "stream", "--effort", "sanity", "--ranks", ranks]);
        assert_eq!(code, Some(0), "{printed}");
        all_outputs_agree(file, "as streams", &printed);
    }
}

/// Shapes for which kernels are made in different ways, and the operations that gradients consist of.
#[test]
fn sorts_rows_and_gradients_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu_in_turn() else { return };
    let gradients = effort::is_long().then_some(("gradients", "f32"));
    for (file, dtype) in
        effort::chosen([("scatter", "f64"), ("rows", "bf16"), ("row_gradients", "bf16")]).chain(gradients)
    {
        let set = format!("dtype={dtype}");
        let file = format!("tests/workloads/{file}.aorta");
        verify(libraries, &file, &[&RESULTS_ONLY[..], &["--set", &set]].concat());
    }
}

/// Lists longer than one launch writes, families, types of every size, and memory of the host.
#[test]
fn listed_numbers_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let text = "
        let long = 0..150
        buffer a: i64[150] = long
        buffer b[3]: bf16[2, 2] = [[1, 2.5], [-3, 0.1]]
        buffer c: u8[5] = [255, 0, 1, 2, 3]
        buffer d: f16[1000] = 0.3
        buffer e[2]: f64[75, 2] = view_of
        buffer f: f32[66] in pinned = rev(0..66)
        buffer g: e4m3[3] = [448, -0.3, 1e-4]
        buffer sums: f64[7]
        step {
          sum(a * a -> sums[0])
          sum(b * 2 -> sums[1])
          sum(c * 2 -> sums[2])
          sum(d * 2 -> sums[3])
          sum(e * e -> sums[4])
          sum(f * f -> sums[5])
          sum(g * 3 -> sums[6])
        }";
    let pairs: Vec<String> = (0..75).map(|row| format!("[{row}.5, {}]", row * row)).collect();
    let text = text.replace("view_of", &format!("[{}]", pairs.join(", ")));
    verify_with(libraries, &[], &folder.write("listed.aorta", text), &RESULTS_ONLY);
}

/// Without hipBLASLt, rocBLAS computes the products.
#[test]
fn products_of_the_other_library_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["libamdhip64.so", "libhiprtc.so", "libamd_comgr.so", "librccl.so", "librocblas.so"] {
        std::os::unix::fs::symlink(libraries.join("libamdhip64.so"), folder.path().join(name))
            .expect("a link of our own");
    }
    verify(folder.path(), "workloads/latency/large_gemm_only.aorta", &["--preset", "tiny"]);
    // The products of the file with all operations: the library makes no difference to the others.
    let (declarations, step) = include_str!("workloads/operations.aorta").split_once("step {").expect("it has a step");
    // `sign` and `narrow` are 8-bit matrices, of which this library has no products.
    let takes =
        |line: &&str| line.trim_start().starts_with("gemm(") && !line.contains("sign") && !line.contains("narrow");
    let products: Vec<&str> = step.lines().filter(takes).collect();
    assert!(products.len() >= 4, "only {products:?}");
    let file = folder.path().join("products.aorta");
    let text = format!("{declarations}step {{\n  on main {{\n{}\n  }}\n}}\n", products.join("\n"));
    std::fs::write(&file, text).expect("a file of our own");
    let file = file.to_str().expect("a plain path");
    verify(folder.path(), file, &[&RESULTS_ONLY[..], &["--set", "dtype=f64"]].concat());
}

/// Many products whose sizes differ little share the algorithm of the one that is timed.
#[test]
fn products_of_similar_sizes_share_an_algorithm() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sizes.aorta");
    let text = "
        buffer x: f32[70, 24]
        buffer w: f32[24, 8]
        buffer y: f32[70, 8]
        stream main
        step { on main { for rows in 1..=70 { gemm(x[0..rows], w -> y[0..rows]) } } }";
    std::fs::write(&path, text).expect("a file of our own");
    let arguments = ["--observe", "off", "--config", "keep_algorithms=false"];
    let printed = verify_with(libraries, &[], &path.display().to_string(), &arguments);
    // 65 to 70 rows are up to 72, the next multiple of an eighth of 64.
    let note = "product [65, 24] × [24, 8] f32: algorithm";
    let line = printed.lines().find(|line| line.contains(note)).unwrap_or_else(|| panic!("{printed}"));
    assert!(line.ends_with("; likewise 5 other products of similar sizes"), "{line}");
    assert!(!printed.contains("product [70, 24]"), "{printed}");
    // Few sizes up to 8 are in a class of their own.
    assert!(printed.contains("product [7, 24] × [24, 8] f32: algorithm"), "{printed}");
}

pub const FILE: &str = "examples/03-dependencies.aorta";

/// Runs a file with a fault. Returns the program's output.
fn printed(fault: &str, arguments: &[&str], expected: i32) -> Option<String> {
    let output = run(doubles::cpu()?, fault, &[&[FILE, "--preset", "tiny"], arguments].concat());
    assert_eq!(output.code, Some(expected), "{fault}:\n{}", output.printed);
    Some(output.printed)
}

#[test]
fn the_report_says_what_ran() {
    let folder = Folder::new();
    let Some(_) = printed("", &["--json", &folder.path("record.json")], 0) else { return };
    let record = folder.read("record.json");
    assert!(record.contains("HIP double on a CPU, not an AMD GPU"), "{record}");
}

#[test]
fn a_failed_allocation_is_reported() {
    let Some(printed) = printed("alloc:1", &[], 4) else { return };
    assert!(printed.contains("aorta::exec::out_of_memory"), "{printed}");
    assert!(printed.contains("`hipMalloc` returned 2"), "{printed}");
}

#[test]
fn a_failed_compilation_is_reported() {
    let Some(libraries) = doubles::cpu() else { return };
    // Failed compilations are not cached. A fault occurs only if no other test has compiled this kernel.
    let folder = Folder::new();
    let text = "stream s\nbuffer x: f32[77]\nstep {\n  on s { y: map(tanh(x) * cos(x) + sin(x) / (2 + x * x)) }\n}\n";
    let output = run(libraries, "compile:map", &[&folder.write("own.aorta", text)]);
    assert_eq!(output.code, Some(4), "{}", output.printed);
    assert!(output.printed.contains("HIP_DOUBLE_FAULT makes this compilation fail"), "{}", output.printed);
}

/// Kernels that were compiled before another one failed are in the cache.
#[test]
fn each_compiled_kernel_is_kept_at_once() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let text =
        "stream s\nbuffer x, y: f32[70, 7]\nstep {\n  on s {\n    softmax(x -> y)\n    map(tanh(x) -> x)\n  }\n}\n";
    let cache = folder.path("cache");
    let environment = [("HIP_DOUBLE_FAULT", "compile:map"), ("XDG_CACHE_HOME", &cache)];
    let output = run_with(libraries, &environment, &[&folder.write("own.aorta", text)]);
    assert_eq!(output.code, Some(4), "{}", output.printed);
    assert!(output.printed.contains("HIP_DOUBLE_FAULT makes this compilation fail"), "{}", output.printed);
    let kernels = std::fs::read_dir(cache + "/aorta/kernels").expect("the cache of kernels");
    let kept = kernels.filter_map(Result::ok).filter(|file| file.path().extension().is_some_and(|end| end == "bin"));
    assert!(kept.count() > 0, "the other kernels are kept");
}

#[test]
fn a_launch_that_fails_points_at_its_operation() {
    let Some(printed) = printed("launch:map", &[], 4) else { return };
    assert!(printed.contains("`hipModuleLaunchKernel` returned 701 (out of resources), in this map"), "{printed}");
    assert!(printed.contains("03-dependencies.aorta:"), "{printed}");
}

#[test]
fn an_asynchronous_error_is_reported() {
    let Some(printed) = printed("late:map", &[], 4) else { return };
    // Which call returns the error depends on the host's progress.
    assert!(printed.contains("_fault") && printed.contains("returned 700 (an illegal memory access"), "{printed}");
}

#[test]
fn a_kernel_that_hangs_is_left_behind() {
    let Some(printed) = printed("hang:map", &["--config", "timeout=300ms"], 4) else { return };
    assert!(printed.contains("aorta::exec::hang") && printed.contains("streams that are still busy"), "{printed}");
}

/// From a record: whether it is complete, and for each launch mode the number of measured iterations.
fn figures(record: &str) -> (bool, Vec<(String, u64)>) {
    let record = std::fs::read_to_string(record).expect("the record was written");
    let record: serde_json::Value = serde_json::from_str(&record).expect("a record is JSON");
    let variants = record["variants"].as_array().expect("a list").iter();
    let figures = |variant: &serde_json::Value| {
        (variant["launch"].as_str().expect("a name").to_owned(), variant["time"]["n"].as_u64().expect("a number"))
    };
    (record["complete"].as_bool().expect("a flag"), variants.map(figures).collect())
}

/// The program exits by itself, with the earlier measurements.
#[test]
fn a_call_that_never_returns_leaves_the_figures() {
    if !effort::is_due() {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.json");
    // An iteration launches three kernels, and the headline has three iterations.
    let printed = printed("stuck:map:12", &["--config", "timeout=300ms", "--json", &record], 4);
    let Some(printed) = printed else { return };
    assert!(printed.contains("aorta::exec::no_return") && printed.contains("2 iterations, incomplete"), "{printed}");
    assert_eq!(figures(&record), (false, vec![("stream".to_owned(), 2)]));
}

/// A dead process ends the other, which is inside a call, with its earlier measurements if there are any.
#[test]
fn a_process_that_is_gone_leaves_the_figures_of_the_other() {
    let Some(libraries) = doubles::cpu_in_turn() else { return };
    let folder = Folder::new();
    let file = folder.write("two.aorta", "buffer x: f32[64]\nstep { map(x * 0.5 + rank -> x) }\n");
    let record = folder.path("record.json");
    let run = |fault: [&str; 2]| {
        let (first, other) = in_two_processes(libraries, fault, &[&file, "--json", &record]);
        assert_eq!((first.code, other.code), (Some(4), None), "{}", first.printed);
        assert!(first.printed.contains("rank 1 was lost: its process ended"), "{}", first.printed);
    };
    run(["stuck", "dies"]);
    assert!(!Path::new(&record).exists(), "nothing was measured before kernels fill the memory");
    run(["stuck:map:4", "dies:map:4"]);
    assert_eq!(figures(&record), (false, vec![("stream".to_owned(), 2)]));
}

/// After the runs: the measurement of the timer, with its kernels.
#[test]
fn a_device_that_does_not_answer_is_reported() {
    if !effort::is_due() {
        return;
    }
    let Some(printed) = printed("hang:nop", &["--effort", "quick", "--config", "timeout=1s"], 4) else { return };
    assert!(printed.contains("an empty kernel does not complete"), "{printed}");
}

#[test]
fn a_failed_timer_is_reported() {
    // The run itself allocates pinned memory twice, for its gates and its stamps; the timer follows.
    let Some(printed) = printed("pinned:3", &["--effort", "quick"], 0) else { return };
    assert!(printed.contains("The overhead of timing could not be measured"), "{printed}");
    assert!(printed.contains("`hipHostMalloc` returned 2"), "{printed}");
}

#[test]
fn a_capture_that_fails_goes_on_as_streams() {
    let Some(printed) = printed("capture", &["--launch", "graph"], 0) else { return };
    assert!(
        printed.contains("no graph could be made") && printed.contains("`hipStreamEndCapture` returned 901"),
        "{printed}"
    );
}

#[test]
fn an_operation_that_no_graph_takes_is_named() {
    let Some(printed) = printed("uncapturable:map", &["--launch", "graph"], 0) else { return };
    let line = printed.lines().find(|line| line.contains("no graph could be made")).unwrap_or_default();
    assert!(
        line.contains("returned 900") && line.contains("in this map") && line.contains("--launch stream"),
        "{printed}"
    );
}

#[test]
fn a_missing_device_is_reported() {
    let Some(libraries) = doubles::cpu() else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_aorta"))
        .args(["exec", "--backend", "hip", FILE])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("AORTA_LIBRARY_PATH", libraries)
        .env("HIP_DOUBLE_DEVICES", "0")
        .output()
        .expect("the program runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("aorta::exec::no_device"), "{printed}");
}
