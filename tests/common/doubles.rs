//! The double of AMD's libraries that runs on the CPU: built where a test wants it, under the names of the libraries.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The names that one file serves under.
const NAMES: [&str; 5] = ["libamdhip64.so", "libhiprtc.so", "libamd_comgr.so", "libhipblaslt.so", "librccl.so"];

/// The folder with the libraries in it; nothing where they cannot be had, said on the way. CI has to have them.
pub fn cpu() -> Option<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match FOLDER.get_or_init(build) {
        Ok(folder) => Some(folder),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "CI runs the doubles: {why}");
            println!("skipped: {why}");
            None
        }
    }
}

fn build() -> Result<PathBuf, String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err("the double's fibers are written for x86-64 and Linux".to_owned());
    }
    if !["g++", "clang++", "c++"].iter().any(|name| on_path(name)) {
        return Err("the double compiles kernels with g++ or clang++, and there is none on PATH".to_owned());
    }
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doubles");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles/cpu/Cargo.toml");
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
    // Tests run side by side: each makes links of its own.
    let links = root.join(format!("links-{}", std::process::id()));
    std::fs::create_dir_all(&links).map_err(|error| format!("{}: {error}", links.display()))?;
    let library = root.join("debug/libhip_double_cpu.so");
    for name in NAMES {
        link(&library, &links.join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(links)
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    let _ = std::fs::remove_file(to);
    std::os::unix::fs::symlink(from, to)
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> std::io::Result<()> {
    Ok(())
}

fn on_path(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}
