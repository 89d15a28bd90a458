//! AMD's own libraries on a machine without an AMD GPU: their runtime's functions resolve and it sees no device, their
//! compiler compiles every kernel, and their management library's structures are as we read them. `.ci/rocm` unpacks
//! them below `target/rocm`; without that, each test prints that it skips.
//!
//! The libraries may need a newer C library than this machine has. So the programs that load them run under the loader
//! that was unpacked beside them: the program itself, or this test's own binary.

use std::path::PathBuf;
use std::process::{Command, Output};

use aorta::backend::SearchPaths;
use aorta::backend::hip::Hiprtc;
use aorta::ops::KernelSource;

use crate::common;
use crate::common::folder::Folder;

/// Debian suites with AMD's packages, and the architectures for which their compilers are tested. CDNA's have waves of
/// 64 threads, gfx1100 of 32. They share a kernel of every third name. Successive revisions choose other names and kernels; with `AORTA_LONG`, each has all.
const SUITES: [(&str, &[&str]); 2] = [("stable", &["gfx90a", "gfx942", "gfx1100"]), ("testing", &["gfx950"])];

fn root(suite: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/rocm").join(suite);
    if root.join("complete").is_file() {
        return Some(root);
    }
    // The testing suite changes, and its packages may be impossible to unpack for a day.
    assert!(std::env::var_os("CI").is_none() || suite != "stable", "CI unpacks AMD's libraries: {}", root.display());
    println!("skipped: `.ci/rocm {suite} target/rocm/{suite}` unpacks AMD's libraries");
    None
}

/// Runs a program under the loader and with the libraries of a suite.
fn run(root: &std::path::Path, program: &std::path::Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu")).arg(program).args(arguments);
    for name in ["AORTA_LIBRARY_PATH", "LD_LIBRARY_PATH", "ROCM_PATH", "ROCM_HOME", "HIP_PATH"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command.output().unwrap_or_else(|error| panic!("{}: {error}", root.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The whole table resolves, and the runtime reports that there is no device. It does not crash, and no simulated
/// device appears.
#[test]
fn the_runtime_is_resolved_and_sees_no_device() {
    let aorta = PathBuf::from(env!("CARGO_BIN_EXE_aorta"));
    let mut versions = Vec::new();
    for (suite, _) in SUITES {
        let Some(root) = root(suite) else { continue };
        let home = tempfile::tempdir().expect("a temporary folder");
        let home = [("HOME", home.path().to_str().expect("a plain path"))];
        let shown = text(&run(&root, &aorta, &["devices"], &home).stdout);
        let line = shown.lines().skip_while(|line| !line.starts_with("HIP devices")).nth(1).unwrap_or_default();
        if !line.contains("sees no device") {
            println!("skipped: this machine has an AMD GPU\n{shown}");
            return;
        }
        println!("{suite}:{line}");
        assert!(line.starts_with("  none: the HIP runtime sees no device (HIP "), "{line}");
        let version = line.split_once("(HIP ").map(|(_, rest)| rest.split('.').next().unwrap_or_default().to_owned());
        versions.extend(version);
        // The function with a version suffix exists since 6.0.
        let table =
            if suite == "stable" { "without hipGetDevicePropertiesR0600)" } else { "functions of it are there)" };
        assert!(line.ends_with(table), "{line}");

        let named = run(&root, &aorta, &["exec", "moe", "--preset", "tiny", "--backend", "hip"], &home);
        let message = text(&named.stderr);
        assert_eq!(named.status.code(), Some(3), "{message}");
        assert!(message.contains("no HIP device: the HIP runtime sees no device"), "{message}");
        assert!(message.contains("/dev/kfd") && named.stdout.is_empty(), "{message}");
    }
    versions.dedup();
    assert!(versions.len() != 1 || root("testing").is_none(), "two major versions: {versions:?}");
}

/// The functions of AMD's management library resolve, and the fields of its structures have the offsets that we read,
/// according to a C compiler with AMD's header.
#[test]
fn the_management_library_is_as_it_is_read() {
    let myself = std::env::current_exe().expect("a test has a binary");
    for (suite, _) in SUITES {
        let Some(root) = root(suite) else { continue };
        let header = root.join("usr/include/rocm_smi/rocm_smi.h");
        if !header.is_file() {
            assert!(std::env::var_os("CI").is_none(), "CI unpacks AMD's management library: {}", header.display());
            println!("skipped: `.ci/rocm {suite} target/rocm/{suite}` unpacks AMD's management library too");
            continue;
        }
        let output = run(&root, &myself, &["rocm::management", "--exact", "--ignored", "--nocapture"], &[]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{suite}:\n{said}");
        said.lines().filter(|line| line.contains("librocm_smi64")).for_each(|line| println!("{suite}: {line}"));
        fields(&root);
    }
}

/// Runs with AMD's management library in the process.
#[test]
#[ignore = "`the_management_library_is_as_it_is_read` runs it, under the loader of AMD's libraries"]
fn management() {
    let found = aorta::backend::hip::smi_library(&SearchPaths::default());
    println!("{}", found.unwrap_or_else(|error| panic!("{error}")));
}

/// The words of structures that `backend/hip/smi.rs` reads, by its constants' names.
const FIELDS: [(&str, &str); 6] = [
    ("ACCUMULATED", "accumulation_counter"),
    ("BY_PROCHOT", "prochot_residency_acc"),
    ("BY_POWER", "ppt_residency_acc"),
    ("BY_TEMPERATURE", "socket_thm_residency_acc"),
    ("BY_REGULATOR", "vr_thm_residency_acc"),
    ("BY_MEMORY", "hbm_thm_residency_acc"),
];

fn fields(root: &std::path::Path) {
    let source = include_str!("../src/backend/hip/smi.rs");
    let header = std::fs::read_to_string(root.join("usr/include/rocm_smi/rocm_smi.h")).expect("it was unpacked");
    let constant = |name: &str| -> usize {
        let line =
            source.lines().find_map(|line| line.strip_prefix(&format!("const {name}: usize = "))?.strip_suffix(';'));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no constant {name}"))
    };
    let mut program =
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdbool.h>\n#include <rocm_smi/rocm_smi.h>\n".to_owned();
    let mut same = |what: &str, value: usize| program += &format!("_Static_assert({what} == {value}, \"{what}\");\n");
    same("offsetof(rsmi_frequencies_t, num_supported)", 4);
    same("offsetof(rsmi_frequencies_t, current)", 8);
    same("offsetof(rsmi_frequencies_t, frequency)", 16);
    same("offsetof(struct metrics_table_header_t, format_revision)", 2);
    same("offsetof(rsmi_gpu_metrics_t, common_header)", 0);
    // Counters came with 6.2: earlier structures end before them.
    let counted = header.contains("ppt_residency_acc;");
    for (name, field) in FIELDS.iter().filter(|_| counted) {
        same(&format!("offsetof(rsmi_gpu_metrics_t, {field})"), 8 * constant(name));
    }
    program += &format!("_Static_assert(sizeof(rsmi_gpu_metrics_t) <= {}, \"room\");\n", 8 * constant("METRICS_ROOM"));
    program += &format!("_Static_assert(sizeof(rsmi_frequencies_t) <= {}, \"room\");\n", 8 * constant("CLOCKS_ROOM"));
    let folder = Folder::new();
    let file = folder.write("fields.c", program);
    let include = root.join("usr/include");
    let mut compiler = Command::new("cc");
    // After the system's own, because the unpacked files include parts of a C library.
    compiler
        .arg("-fsyntax-only")
        .arg("-idirafter")
        .arg(&include)
        .arg("-idirafter")
        .arg(include.join("libdrm"))
        .arg(&file);
    match compiler.output() {
        Err(error) => println!("skipped: a C compiler, which looks at AMD's header: {error}"),
        Ok(output) => {
            assert!(output.status.success(), "{}", text(&output.stderr));
            println!("fields of {} are where they are read", if counted { "clocks and counters" } else { "clocks" });
        }
    }
}

/// Kernels, each compiled for one of the architectures by AMD's own compiler, which rejects an unknown one.
#[test]
fn every_kernel_compiles() {
    let myself = std::env::current_exe().expect("a test has a binary");
    let compile = |suite: &str, architecture: &str| {
        let Some(root) = root(suite) else { return };
        let arguments = ["rocm::inside", "--exact", "--ignored", "--nocapture"];
        let output = run(&root, &myself, &arguments, &[("AORTA_TEST_ARCHITECTURE", architecture)]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{suite}:\n{said}");
        said.lines().filter(|line| line.contains("kernels")).for_each(|line| println!("{suite}: {line}"));
    };
    // A process for each architecture, since the compiler serializes threads within a process.
    std::thread::scope(|scope| {
        for (suite, architectures) in SUITES {
            for architecture in architectures {
                scope.spawn(|| compile(suite, architecture));
            }
        }
    });
}

/// The kernels of attention with a bias, forward and backward, by AMD's own compiler for waves of 64 threads: a quarter of those
/// of 16 bits for each architecture, other quarters for the next revisions, or all of every type with `AORTA_LONG`.
#[test]
fn kernels_of_attention_with_a_bias_compile_for_waves_of_64() {
    let Some(root) = root("stable") else { return };
    let myself = std::env::current_exe().expect("a test has a binary");
    std::thread::scope(|scope| {
        for architecture in ["gfx90a", "gfx942"] {
            let (root, myself) = (&root, &myself);
            scope.spawn(move || {
                let arguments = ["rocm::biased", "--exact", "--ignored", "--nocapture"];
                let output = run(root, myself, &arguments, &[("AORTA_TEST_ARCHITECTURE", architecture)]);
                let said = text(&output.stdout) + &text(&output.stderr);
                assert!(output.status.success() && said.contains("1 passed"), "{architecture}:\n{said}");
                said.lines().filter(|line| line.contains(architecture)).for_each(|line| println!("{line}"));
            });
        }
    });
}

/// Runs with AMD's libraries in the process.
#[test]
#[ignore = "`kernels_of_attention_with_a_bias_compile_for_waves_of_64` runs it, under the loader of AMD's libraries"]
fn biased() {
    let architecture = std::env::var("AORTA_TEST_ARCHITECTURE").expect("set by the test that runs this one");
    let hiprtc = Hiprtc::open(&SearchPaths::default(), None, None).unwrap_or_else(|error| panic!("{error}"));
    let is_long = common::effort::is_long();
    let has_bias = |source: &KernelSource| source.text.contains("#define BIAS 1\n");
    let is_short =
        |source: &KernelSource| ["typedef bf16 T;", "typedef f16 T;"].iter().any(|line| source.text.contains(line));
    let is_candidate = |source: &KernelSource| has_bias(source) && (is_long || is_short(source));
    let mut sources: Vec<KernelSource> = common::kernels::all(false).into_values().filter(is_candidate).collect();
    if !is_long {
        // The other architecture takes others.
        let place = common::effort::turn() + 2 * usize::from(architecture == "gfx90a");
        let of_names = sources.chunk_by(|one, next| one.name == next.name);
        sources = of_names.flat_map(|all| all.iter().skip(place % 4 % all.len()).step_by(4)).cloned().collect();
    }
    let mut names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    println!("{} kernels with a bias for {architecture}: {}", sources.len(), names.join(", "));
    for name in ["attention", "attention_rows", "attention_backward_both"] {
        assert!(names.contains(&name), "{name} is compiled: {names:?}");
    }
    common::parallel::map(&sources, |source| {
        let code = hiprtc.compile(source, &architecture);
        let code = code.unwrap_or_else(|log| panic!("{} for {architecture}:\n{log}\n{}", source.name, source.text));
        assert!(!code.is_empty(), "{} is machine code", source.name);
    });
}

/// Runs with AMD's libraries in the process.
#[test]
#[ignore = "`every_kernel_compiles` runs it, under the loader of AMD's libraries"]
fn inside() {
    let architecture = std::env::var("AORTA_TEST_ARCHITECTURE").expect("set by the test that runs this one");
    let hiprtc = Hiprtc::open(&SearchPaths::default(), None, None).unwrap_or_else(|error| panic!("{error}"));
    let architectures: Vec<&str> = SUITES.iter().flat_map(|(_, names)| *names).copied().collect();
    let place = architectures.iter().position(|name| *name == architecture).expect("one of those above");
    let mut sources: Vec<KernelSource> = common::kernels::all(false).into_values().collect();
    if !common::effort::is_long() {
        let of_names = sources.chunk_by(|one, next| one.name == next.name);
        let turn = common::effort::turn();
        let one_each =
            common::effort::chosen(of_names.map(|sources| &sources[turn / common::effort::SIXTH % sources.len()]));
        sources = one_each.skip((place + turn) % architectures.len()).step_by(architectures.len()).cloned().collect();
    }
    println!("{} kernels by hipRTC {} for {architecture}", sources.len(), hiprtc.version());
    // Compiled on several threads, as in a run.
    common::parallel::map(&sources, |source| {
        let code = hiprtc.compile(source, &architecture);
        let code = code.unwrap_or_else(|log| panic!("{} for {architecture}:\n{log}\n{}", source.name, source.text));
        assert!(!code.is_empty(), "{} is machine code", source.name);
    });
    let unknown = hiprtc.compile(&sources[0], "gfx9999").expect_err("no such architecture").to_string();
    assert!(unknown.contains("does not support gfx9999; it supports ") && unknown.contains("gfx90a"), "{unknown}");
    let broken = KernelSource {
        name: "broken".to_owned(),
        text: "extern \"C\" __global__ void broken() { nothing; }".into(),
        code: None,
    };
    let log = hiprtc.compile(&broken, &architecture).expect_err("the text is wrong").to_string();
    assert!(log.contains("undeclared identifier"), "{log}");
}
