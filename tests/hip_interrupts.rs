//! Runs on the double that are interrupted before they have results.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::doubles;
use crate::hip::{FILE, KERNELS, PATIENCE, finished};

/// While kernels are being compiled, no iteration has begun: the first signal ends the run.
#[test]
fn a_run_can_be_ended_before_its_first_iteration() {
    use std::os::unix::fs::PermissionsExt;

    let Some(libraries) = doubles::cpu() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [compiler, begun] = ["compiler", "begun"].map(|name| folder.path().join(name));
    // The script runs as long as its folder exists.
    let script = "#!/bin/sh\n: > \"${0%/*}/begun\"\nwhile [ -e \"$0\" ]; do sleep 0.1; done\n";
    std::fs::write(&compiler, script).expect("a file of our own");
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).expect("a file of our own");
    let arguments = ["exec", "--backend", "hip", FILE];
    let mut child = Command::new(env!("CARGO_BIN_EXE_aorta"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("AORTA_LIBRARY_PATH", libraries)
        .env("XDG_CACHE_HOME", folder.path())
        .env("HIP_DOUBLE_CXX", &compiler)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let start = Instant::now();
    while !begun.exists() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("`kill` is there");
    assert!(kill.success() && begun.exists());
    assert_eq!(finished(&mut child, &arguments), Some(130));
    let told = std::io::read_to_string(child.stderr.take().expect("standard error is piped")).expect("it is text");
    let words: Vec<&str> = told.trim_end().split(' ').collect();
    let [
        ..,
        "interrupted",
        "while",
        "compiling",
        _,
        "kernels,",
        "of",
        "which",
        "0",
        "were",
        "done;",
        "nothing",
        "was",
        "measured",
    ] = words[..]
    else {
        panic!("{told}");
    };
    assert_eq!(told.matches("interrupted").count(), 1, "{told}");
}

/// A run whose first iteration does not end has no results; an interruption says so.
#[test]
fn an_interrupted_first_iteration_has_no_results() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("stuck.aorta"), "step { spin(1us) }").expect("a file of our own");
    let arguments = ["exec", "--backend", "hip", "--launch", "stream", "--timeout", "1000s", "stuck.aorta"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_aorta"))
        .args(arguments)
        .current_dir(folder.path())
        .env("AORTA_LIBRARY_PATH", libraries)
        .env("XDG_CACHE_HOME", KERNELS)
        .env("HIP_DOUBLE_FAULT", "stuck:1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    // Without a report from the program, only time tells that it is in the iteration.
    std::thread::sleep(Duration::from_secs(2));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("`kill` is there");
    assert!(kill.success());
    assert_eq!(finished(&mut child, &arguments), Some(130));
    let told = std::io::read_to_string(child.stderr.take().expect("standard error is piped")).expect("it is text");
    assert!(told.contains("interrupted"), "{told}");
    assert!(told.ends_with("; nothing was measured\n"), "{told}");
}
