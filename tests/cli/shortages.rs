//! A system that refuses threads and memory: the run fails with its exit code and says what was missing.

use std::process::Command;

use super::sandbox::{Output, Sandbox};

/// Runs the binary under limits that a shell sets, such as `ulimit -v 200000`.
pub fn limited(sandbox: &Sandbox, limit: &str, arguments: &[&str]) -> Output {
    limited_by(Command::new("bash"), sandbox, limit, arguments)
}

/// Runs the binary under limits set by a command that starts a shell.
fn limited_by(mut command: Command, sandbox: &Sandbox, limit: &str, arguments: &[&str]) -> Output {
    command.args(["-c", &format!("{limit} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_aorta")]).args(arguments);
    sandbox.run_command(command)
}

/// Size of the program's file in KiB: at least as much as the loader maps of it.
fn program_kib() -> u64 {
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_aorta")).expect("cargo built it");
    program.len() / 1024
}

/// Size in KiB of what the loader maps of the program: its segments, without symbols and debug information. If the program is no ELF file of 64
/// bits, its whole size.
fn mapped_kib() -> u64 {
    let program = std::fs::read(env!("CARGO_BIN_EXE_aorta")).expect("cargo built it");
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return program.len() as u64 / 1024;
    }
    let number = |at: usize, size: usize| {
        program[at..at + size].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    // Fields of the header, and of a program header: <https://refspecs.linuxfoundation.org/elf/gabi4+/ch5.pheader.html>.
    let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let headers = (0..count).map(|index| (first + index * size) as usize);
    let loaded = headers.filter(|&header| number(header, 4) == 1);
    loaded.map(|header| number(header + 16, 8) + number(header + 40, 8)).max().unwrap_or_default() / 1024
}

#[test]
fn little_address_space_suffices_for_a_small_file() {
    let sandbox = Sandbox::new();
    for backend in ["sim", "host"] {
        let arguments = ["exec", "moe", "--preset", "tiny", "--backend", backend, "--effort", "sanity"];
        let output = limited(&sandbox, &format!("ulimit -v {}", program_kib() + 160_000), &arguments);
        assert_eq!(output.code, Some(0), "{backend}: {}", output.stderr);
    }
}

/// From no memory at all to enough: every run succeeds, or fails with exit code 4 and says what was missing.
#[test]
fn each_limit_of_memory_is_reported_or_sufficient() {
    if !crate::common::effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    let arguments = ["exec", "moe", "--preset", "tiny", "--backend", "host", "--effort", "sanity", "--ranks", "4"];
    let codes = (16..=96).step_by(8).map(|mebibytes| {
        let limit = program_kib() + mebibytes * 1024;
        let output = limited(&sandbox, &format!("ulimit -v {limit}"), &arguments);
        // Without room for the program or for the state of its first thread, the system's loader and its C library end it.
        let loader = output.code == Some(127) || output.stderr.starts_with("Fatal glibc error");
        let told = output.stderr.contains("aorta::exec::shortage") || output.stderr.contains("out_of_memory");
        let short = output.code == Some(4) && told;
        assert!(loader || short || output.code == Some(0), "{mebibytes} MiB: {:?} {}", output.code, output.stderr);
        output.code
    });
    let codes: Vec<_> = codes.collect();
    assert!(codes.contains(&Some(4)), "some limit is too low: {codes:?}");
}

#[test]
fn a_failed_allocation_of_a_vector_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("many.aorta", "buffer x: f32[4]\nstep { for i in 0..1000000 { map(x + 1 -> x) } }");
    // Without address space for the arena of a second thread, glibc maps each small allocation by itself, which takes half a
    // minute on a busy machine before the vector fails to grow.
    let limit = format!("export MALLOC_ARENA_MAX=1 && ulimit -v {}", mapped_kib() + 24_000);
    let output = limited(&sandbox, &limit, &["check", "many.aorta"]);
    assert_eq!(output.code, Some(4), "{}", output.stderr);
    assert!(output.stderr.contains("the system is out of memory"), "{}", output.stderr);
}

/// A shell of a user without other processes; `None` if this user cannot start one. The limit counts all threads of a
/// user, and does not apply to root.
fn shell_of_another_user() -> Option<Command> {
    let another = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups", "bash"]);
        command
    };
    let tried = another().args(["-c", "test -x \"$0\"", env!("CARGO_BIN_EXE_aorta")]).status();
    tried.is_ok_and(|status| status.success()).then(another)
}

/// From one thread to enough: a rank that has its thread does not wait for one that has none.
#[test]
fn refused_threads_are_reported() {
    if shell_of_another_user().is_none() {
        println!("skipped: no other user can be taken here");
        return;
    }
    let sandbox = Sandbox::new();
    for (backend, threads) in ["sim", "host"].into_iter().flat_map(|backend| (1..=9).map(move |n| (backend, n))) {
        let shell = shell_of_another_user().expect("it was there a moment ago");
        let arguments = ["exec", "all_reduce", "--preset", "tiny", "--backend", backend, "--ranks", "3"];
        let output = limited_by(shell, &sandbox, &format!("ulimit -u {threads}"), &arguments);
        let told = output.code == Some(4) && output.stderr.contains("the system provides no thread");
        assert!(told || threads > 4 && output.code == Some(0), "{backend}, {threads} threads: {}", output.stderr);
    }
}
