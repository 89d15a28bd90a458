//! Builds the doubles of AMD's libraries on demand, under the libraries' names.

#![allow(dead_code, reason = "each test file uses a part")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Arguments of a run that verifies results: it measures one iteration, and observes none.
pub const RESULTS_ONLY: [&str; 4] = ["--effort", "sanity", "--observe", "off"];

/// The names of the libraries that one file implements.
const NAMES: [&str; 7] = [
    "libamdhip64.so",
    "libhiprtc.so",
    "libamd_comgr.so",
    "libhipblaslt.so",
    "librccl.so",
    "librocm_smi64.so",
    "librocprofiler-sdk.so.1",
];

/// The folder of the double that runs on the CPU; `None` with a message if it cannot be built.
pub fn cpu() -> Option<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    had(FOLDER.get_or_init(|| {
        if !["g++", "clang++", "c++"].iter().any(|name| on_path(name)) {
            return Err("the double compiles kernels with g++ or clang++, and there is none on PATH".to_owned());
        }
        build("cpu")
    }))
}

/// The folder of [`cpu`], for a test that takes long; `None` also if a plain `cargo test` leaves it out ([`super::effort::is_due`]).
#[track_caller]
pub fn cpu_in_turn() -> Option<&'static Path> {
    if super::effort::is_due() { cpu() } else { None }
}

/// The folder of the double that forwards to NVIDIA's libraries, which are not needed to build it; `None` with a
/// message if it cannot be built.
pub fn forward() -> Option<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    had(FOLDER.get_or_init(|| build("forward")))
}

/// CI must be able to build them.
fn had(folder: &'static Result<PathBuf, String>) -> Option<&'static Path> {
    match folder {
        Ok(folder) => Some(folder),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "CI runs the doubles: {why}");
            println!("skipped: {why}");
            None
        }
    }
}

fn build(double: &str) -> Result<PathBuf, String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err("the doubles are written for x86-64 and Linux".to_owned());
    }
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doubles");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles").join(double).join("Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let built = Command::new(cargo)
        .args(["build", "--locked", "--quiet", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&root)
        .output()
        .map_err(|error| format!("cargo does not run: {error}"))?;
    if !built.status.success() {
        return Err(format!("the double does not build:\n{}", String::from_utf8_lossy(&built.stderr)));
    }
    let links = root.join(double);
    std::fs::create_dir_all(&links).map_err(|error| format!("{}: {error}", links.display()))?;
    // Relative, so that a build folder can be moved.
    let library = Path::new("../debug").join(format!("libhip_double_{double}.so"));
    for name in NAMES {
        link(&library, &links.join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(links)
}

/// Another test may have made the link in the meantime. A link with another target is from a checkout that has moved.
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::os::unix::fs::symlink(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => match std::fs::read_link(to)? == from {
            true => Ok(()),
            false => {
                std::fs::remove_file(to)?;
                std::os::unix::fs::symlink(from, to)
            }
        },
        made => made,
    }
}

fn on_path(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}
