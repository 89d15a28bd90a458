//! A kernel's text to code: a shared object, behind a mark and its length, since whoever loads it is told no length.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{ARCHITECTURE, SHARED, UNITS, WAVE};
use crate::fault;

const PRELUDE: &str = include_str!("prelude.h");

/// Names of a kernel's text and of its object within a folder of their own.
const SOURCE: &str = "kernel.cpp";
const OBJECT: &str = "kernel.so";

/// The first bytes of compiled code.
pub const MARK: &[u8; 8] = b"hipdbl01";

/// A program of hiprtc.
#[derive(Default)]
pub struct Program {
    pub text: String,
    pub log: String,
    pub code: Vec<u8>,
}

/// hiprtc's numbers.
pub const INVALID_OPTION: i32 = 5;
pub const COMPILATION: i32 = 6;
pub const INTERNAL: i32 = 11;

/// The names of the kernels in a text: what stands before the first parenthesis behind `__global__`, attributes aside.
fn kernels(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for part in text.split("__global__").skip(1) {
        let mut rest = part;
        while let Some(open) = rest.find('(') {
            let before = rest[..open].trim_end();
            let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
            let name = &before[start..];
            if name != "__launch_bounds__" && name != "__attribute__" {
                // A kernel may be declared before it is defined.
                if !found.contains(&name) {
                    found.push(name);
                }
                break;
            }
            rest = &rest[open + 1..];
        }
    }
    found
}

/// Gives dynamic shared memory its size, the most that a block may have: `extern __shared__ float tile[];`.
fn with_dynamic_shared(text: &str) -> String {
    let mut parts = text.split("extern __shared__");
    let mut sized = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (declared, rest) = part.split_once("[]").unwrap_or((part, ""));
        sized += &format!("__shared__{declared}[{SHARED}]{rest}");
    }
    sized
}

fn compiler() -> Option<PathBuf> {
    let given = std::env::var_os("HIP_DOUBLE_CXX").map(PathBuf::from);
    given.or_else(|| {
        let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
        let names = ["g++", "clang++", "c++"];
        names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
    })
}

/// Compiles a program; an error is hiprtc's number, and the log says more.
pub fn compile(program: &mut Program, options: &[String]) -> Result<(), i32> {
    for option in options {
        let architecture = option.strip_prefix("--offload-arch=").or(option.strip_prefix("--gpu-architecture="));
        if let Some(architecture) = architecture
            && architecture.split(':').next() != Some(ARCHITECTURE)
        {
            program.log = format!("the HIP double compiles for {ARCHITECTURE} alone, not for {architecture}");
            return Err(INVALID_OPTION);
        }
    }
    let names = kernels(&program.text);
    if fault::strikes("compile", names.first().copied().unwrap_or_default()) {
        program.log = "kernel.hip:1:1: error: HIP_DOUBLE_FAULT makes this compilation fail".to_owned();
        return Err(COMPILATION);
    }
    let Some(compiler) = compiler() else {
        program.log = "the HIP double needs a C++ compiler: g++ or clang++ on PATH, or HIP_DOUBLE_CXX".to_owned();
        return Err(INTERNAL);
    };
    let entries: String = names.iter().map(|name| format!("HIP_DOUBLE_KERNEL({name})\n")).collect();
    let text = with_dynamic_shared(&program.text);
    // As a compiler for an architecture with matrix units.
    let matrix = if std::env::var_os("HIP_DOUBLE_MATRIX").is_some() { "#define __gfx90a__ 1\n" } else { "" };
    let whole =
        format!("{matrix}#define HIP_DOUBLE_WAVE {WAVE}\n#define HIP_DOUBLE_UNITS {UNITS}\n{PRELUDE}{text}\n{entries}");
    match built(&compiler, &whole) {
        Ok(object) => {
            program.code = [MARK.as_slice(), &(object.len() as u64).to_le_bytes(), &object].concat();
            Ok(())
        }
        Err(log) => {
            program.log = log;
            Err(COMPILATION)
        }
    }
}

/// Compiles a text, or takes its object from the folder `HIP_DOUBLE_OBJECTS`, where each object lies beside its text. The
/// tests of this repository share one, since many of them compile the same kernels.
fn built(compiler: &Path, text: &str) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| format!("the HIP double's folder of objects: {error}");
    let Some(objects) = std::env::var_os("HIP_DOUBLE_OBJECTS").map(PathBuf::from) else {
        let folder = std::env::temp_dir().join(unique());
        let built = build(compiler, &folder, text);
        let _ = std::fs::remove_dir_all(&folder);
        return built;
    };
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let known = objects.join(format!("{:016x}", hasher.finish()));
    if std::fs::read_to_string(known.join(SOURCE)).is_ok_and(|known| known == text) {
        return std::fs::read(known.join(OBJECT)).map_err(told);
    }
    std::fs::create_dir_all(&objects).map_err(told)?;
    let folder = objects.join(unique());
    let built = build(compiler, &folder, text);
    // Complete, or not there: another process may look for it now, or may have put it there.
    if built.is_err() || std::fs::rename(&folder, known).is_err() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    built
}

fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("hip-double-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn build(compiler: &Path, folder: &Path, text: &str) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let (source, object) = (folder.join(SOURCE), folder.join(OBJECT));
    std::fs::create_dir(folder).and_then(|()| std::fs::write(&source, text)).map_err(told)?;
    let ran = Command::new(compiler)
        .args(["-x", "c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti", "-w"])
        .args(["-fvisibility=hidden", "-pipe", "-nostdlib"])
        .args(["-ffp-contract=off", "-fno-strict-aliasing", "-fno-stack-protector", "-fno-threadsafe-statics"])
        .arg("-o")
        .args([&object, &source])
        // The program that loads the kernel has the functions of libm, as Rust's programs do. Naming the library doubles the time of the link.
        .arg("-lgcc")
        .output()
        .map_err(|error| format!("{}: {error}", compiler.display()))?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
    }
    std::fs::read(&object).map_err(told)
}
