//! Registers and shared memory of kernels, as compiled code states them, and the simulator's use of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use aorta::base::random::hash;
use aorta::ops::{KernelSource, Resources};
use proptest::prelude::*;

use crate::kernels::nvrtc;

/// A section of a file in the making: its name, its type, its address and its bytes.
type Section<'a> = (&'a str, u32, u64, Vec<u8>);

const BITS: u32 = 1;
const SYMBOLS: u32 = 2;
const NAMES: u32 = 3;
const NO_BITS: u32 = 8;

/// An ELF file with these sections behind the empty one. The second one has the names of symbols, the last one those of
/// sections.
fn elf(machine: u16, flags: u32, sections: &[Section]) -> Vec<u8> {
    let names: String = sections.iter().map(|(name, ..)| format!("{name}\0")).chain([".names\0".to_owned()]).collect();
    let names = format!("\0{names}").into_bytes();
    let last: Section = (".names", NAMES, 0, names.clone());
    let mut file = vec![0; 64];
    let mut headers = vec![0; 64];
    let mut name = 1u32;
    for (section, kind, address, bytes) in sections.iter().chain([&last]) {
        let mut header = [0; 64];
        let mut put = |at: usize, value: u64, size: usize| {
            header[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        };
        put(0, name.into(), 4);
        put(4, (*kind).into(), 4);
        put(16, *address, 8);
        put(24, file.len() as u64, 8);
        put(32, bytes.len() as u64, 8);
        put(40, 2, 4);
        headers.extend(header);
        name += section.len() as u32 + 1;
        if *kind != NO_BITS {
            file.extend(bytes);
        }
    }
    let start = file.len() as u64;
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let mut put = |at: usize, value: u64, size: usize| {
        file[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    };
    put(18, machine.into(), 2);
    put(40, start, 8);
    put(48, flags.into(), 4);
    put(58, 64, 2);
    put(60, sections.len() as u64 + 2, 2);
    put(62, sections.len() as u64 + 1, 2);
    file.extend(headers);
    file
}

/// Two symbols, the first without a name, the second the kernel's with this address; and their names.
fn symbols(name: &str, address: u64) -> (Vec<u8>, Vec<u8>) {
    let mut entries = vec![0; 48];
    entries[24] = 1;
    entries[32..40].copy_from_slice(&address.to_le_bytes());
    (entries, format!("\0{name}\0").into_bytes())
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// NVIDIA's code of the kernel `k`.
fn cubin(registers: u32, shared: usize) -> Vec<u8> {
    let (entries, names) = symbols("k", 0);
    // An entry of four bytes, one for another kernel, an attribute of another kind, and the kernel's.
    let mut info = vec![1, 0x2f, 0, 0];
    let sized = |attribute: u8, values: &[u32]| [vec![4, attribute, 8, 0], words(values)].concat();
    info.extend(sized(0x2f, &[0, 7]));
    info.extend(sized(0x11, &[1, 96]));
    info.extend(sized(0x2f, &[1, registers]));
    let sections = [
        (".symtab", SYMBOLS, 0, entries),
        (".strtab", NAMES, 0, names),
        (".nv.info", BITS, 0, info),
        (".nv.shared.k", NO_BITS, 0, vec![0; shared]),
    ];
    elf(190, 0x5a, &sections)
}

/// AMD's code of the kernel `k` for gfx942.
fn hsaco(registers: u32, shared: u32) -> Vec<u8> {
    let (entries, names) = symbols("k.kd", 0x540);
    let mut rodata = vec![0; 0x40];
    let mut descriptor = [0; 16];
    (descriptor[0], descriptor[12]) = (shared, 0xffc0 | (registers / 8 - 1));
    rodata.extend(words(&descriptor));
    let sections = [(".symtab", SYMBOLS, 0, entries), (".strtab", NAMES, 0, names), (".rodata", BITS, 0x500, rodata)];
    elf(224, 0x54c, &sections)
}

fn found(code: &[u8]) -> Option<(u32, u32)> {
    Resources::of(code, "k").map(|found| (found.registers, found.shared))
}

#[test]
fn code_says_its_resources() {
    assert_eq!(found(&cubin(72, 2048)), Some((72, 2048)));
    assert_eq!(found(&hsaco(104, 16384)), Some((104, 16384)));
    assert_eq!(Resources::of(&cubin(72, 0), "other"), None);
    assert_eq!(found(b".version 8.0\n.target sm_90\n"), None);
    assert_eq!(found(&elf(62, 0, &[])), None, "the CPU's");
}

/// Blocks that fit a compute unit, by hand: a unit of NVIDIA's has 65536 registers, which warps get in groups of 256, and four
/// warps at a time; one of AMD's has 131072.
#[test]
fn the_scarcest_resource_limits_the_blocks() {
    let fit =
        |code: &[u8], threads, dynamic| 32 / Resources::of(code, "k").expect("it is there").share(threads, dynamic);
    assert_eq!(fit(&cubin(32, 0), 256, 0), 8, "threads: 2048 / 256");
    assert_eq!(fit(&cubin(64, 0), 256, 0), 4, "registers: 65536 / (8 warps of 64 * 32)");
    assert_eq!(fit(&cubin(255, 0), 256, 0), 1, "registers: 65536 / (8 warps of 8192)");
    assert_eq!(fit(&cubin(128, 0), 32, 0), 4, "registers of four warps: 65536 / (4 * 4096)");
    assert_eq!(fit(&cubin(16, 57 << 10), 64, 0), 4, "shared memory: 228 / 57");
    assert_eq!(fit(&cubin(16, 57 << 10), 64, 57 << 10), 2, "with as much dynamic memory");
    assert_eq!(fit(&hsaco(64, 0), 256, 0), 8, "threads: 2048 / 256");
    assert_eq!(fit(&hsaco(128, 0), 256, 0), 4, "registers: 131072 / (4 waves of 128 * 64)");
}

proptest! {
    /// Broken files have no resources, or some; reading them ends without a panic.
    #[test]
    fn broken_code_is_refused(seed in any::<u64>(), amd in any::<bool>(), changes in 1..8u64, cut in 0..2u64) {
        let mut code = if amd { hsaco(104, 512) } else { cubin(72, 2048) };
        for change in 0..changes {
            let at = hash(seed, 2 * change) as usize % code.len();
            code[at] = hash(seed, 2 * change + 1) as u8;
        }
        code.truncate(code.len() - cut as usize * (hash(seed, 99) as usize % code.len()));
        Resources::of(&code, if amd { "k" } else { "" });
        found(&code);
    }
}

const HEAD: &str = "\
kernel k(x: f32[n] -> y: f32[n]) { grid: 132, block: 256, time: 100us, FIELD }
stream s[2]
buffer x: f32[33792]
buffer y[2]: f32[33792]
step { for i in 0..2 { on s[i] { k(x -> y[i]) } } }
";

/// Runs a file on the simulator. Returns the time of an iteration in ns, and what is printed.
fn simulated(folder: &Path, text: &str, arguments: &[&str]) -> (u64, String) {
    let (code, printed) = run(folder, text, arguments);
    assert_eq!(code, Some(0), "{printed}");
    let record = folder.join("record.json");
    let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(record).expect("a record")).expect("JSON");
    (record["variants"][0]["time"]["p50_ns"].as_f64().expect("a time") as u64, printed)
}

/// Simulates a file; returns the exit code and what was printed.
fn run(folder: &Path, text: &str, arguments: &[&str]) -> (Option<i32>, String) {
    fs::create_dir_all(folder).expect("a folder");
    let (path, record) = (folder.join("kernels.aorta"), folder.join("record.json"));
    fs::write(&path, text).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_aorta"));
    command.args(["exec", "--backend", "sim", "--effort", "sanity", "--json"]).arg(&record).arg(&path).args(arguments);
    let out = command.env("XDG_CONFIG_HOME", folder).output().expect("it runs");
    let printed = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code(), printed)
}

/// A kernel that no device can run is an error in the simulator too.
#[test]
fn the_simulator_refuses_kernels_that_cannot_run() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refused_kernels");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("k.cubin"), cubin(32, 0)).expect("a file");
    let text = HEAD.replace("FIELD", "shared: 300KiB, file: \"k.cubin\"");
    let (code, printed) = run(&folder, &text, &[]);
    assert_eq!(code, Some(4), "{printed}");
    assert!(printed.contains("cannot be launched: a block needs 307200 bytes of shared"), "{printed}");
    if nvrtc().is_none() {
        return;
    }
    let code = "extern \"C\" __global__ void k(const float* x, float* y, long long n) { y[0] = unknown_name; }";
    let text = HEAD.replace("FIELD", &format!("source: \"\"\"{code}\"\"\""));
    let (code, printed) = run(&folder, &text, &["--allow-kernels"]);
    assert_eq!(code, Some(4), "{printed}");
    assert!(printed.contains("identifier \"unknown_name\" is undefined"), "{printed}");
}

/// Two kernels share the units where their registers fit them both, and run one after the other where they do not.
#[test]
fn the_simulator_uses_the_resources_of_code_in_a_file() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel_resources");
    fs::create_dir_all(&folder).expect("a folder");
    let text = HEAD.replace("FIELD", "file: \"k.cubin\"");
    let mut times = Vec::new();
    for (registers, fit) in [(32, "8 blocks"), (255, "1 block")] {
        fs::write(folder.join("k.cubin"), cubin(registers, 0)).expect("a file");
        let (time, printed) = simulated(&folder, &text, &[]);
        let note = format!(
            "its compiled code takes {registers} registers a thread and 0 B of shared memory a block: {fit} of"
        );
        assert!(printed.contains(&note), "{printed}");
        times.push(time);
    }
    assert!((100_000..120_000).contains(&times[0]) && (200_000..220_000).contains(&times[1]), "{times:?}");
}

/// Waves of blocks share a kernel's `time`, so that it lasts as long for any grid and on any device.
#[test]
fn a_declared_time_covers_all_blocks() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel_time");
    let text = "\
kernel k(x: f32[n] -> y: f32[n]) { grid: GRID, block: 320, time: 50us, source: \"\"\"void k();\"\"\" }
buffer x, y: f32[1024]
step { k(x -> y) }
";
    for profile in ["h200", "mi300x"] {
        let profiled = format!("profile={profile}");
        let time = |grid: &str| simulated(&folder, &text.replace("GRID", grid), &["--config", &profiled]).0;
        let times = ["1", "792", "793", "1900", "105600"].map(time);
        assert!(times.iter().all(|time| time.abs_diff(times[0]) <= 10), "{profile}: {times:?}");
        assert!((50_000..55_000).contains(&times[0]), "{profile}: {times:?}");
    }
}

/// The code of a text is compiled with permission alone; without it, the report says what is assumed.
#[test]
fn the_simulator_says_what_it_assumes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel_assumptions");
    let code = "extern \\\"C\\\" __global__ void __launch_bounds__(256, 1) k(const float* x, float* y, long long n) { \
                __shared__ float tile[300]; tile[threadIdx.x] = x[threadIdx.x]; __syncthreads(); \
                y[threadIdx.x] = tile[(threadIdx.x + 7) % 256]; }";
    let text = HEAD.replace("FIELD", &format!("source: \"\"\"{}\"\"\"", code.replace("\\\"", "\"")));
    let (_, printed) = simulated(&folder, &text, &[]);
    assert!(
        printed.contains("its source is compiled with `--allow-kernels` alone: without them, 8 blocks of 256"),
        "{printed}"
    );
    let (_, printed) = simulated(&folder, &text.replace("time: 100us, ", ""), &[]);
    assert!(printed.contains("it declares neither `bytes` nor `time`, so"), "{printed}");
    let Some(nvrtc) = nvrtc() else { return };
    let source = KernelSource { name: "k".to_owned(), text: code.replace("\\\"", "\""), code: None };
    let code = nvrtc.compile(&source, "sm_90").expect("it compiles");
    let found = Resources::of(&code, "k").expect("its tables are read");
    // 1 KiB of a block's shared memory is the system's.
    assert_eq!(found.shared, 1200 + 1024);
    assert!((8..=64).contains(&found.registers), "{found:?}");
    let (_, printed) = simulated(&folder, &text, &["--allow-kernels"]);
    assert!(printed.contains(&format!("its compiled code takes {} registers", found.registers)), "{printed}");
}
