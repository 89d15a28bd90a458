//! Full disks: a limit on the size of files makes each write fail at some byte. Every requested file is either complete
//! or reported as not written; no partial or temporary file remains.

use std::fs;
use std::path::Path;

use crate::cli::sandbox::{Output, Sandbox};
use crate::cli::shortages;

/// Runs the binary with a limit of `kibibytes` KiB for every file: a write beyond it fails as on a full disk.
fn limited(sandbox: &Sandbox, kibibytes: u64, arguments: &[&str]) -> Output {
    // The signal for this limit would end the process, which a full disk does not do.
    shortages::limited(sandbox, &format!("trap '' XFSZ; ulimit -f {kibibytes}"), arguments)
}

/// The sizes of all files below a folder, in KiB and rounded up.
fn sizes(folder: &Path) -> Vec<u64> {
    let entries = fs::read_dir(folder).expect("a folder of our own").flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { sizes(&path) } else { vec![size(&path)] }).collect()
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).expect("a file of our own").len().div_ceil(1024)
}

const FILES: [(&str, &str); 4] =
    [("--json", "a.json"), ("--csv", "a.csv"), ("--trace", "a.trace"), ("--html", "a.html")];

#[test]
fn a_full_disk_is_reported_for_every_file() {
    let run = ["exec", "moe", "--preset", "tiny", "--backend", "host", "--ranks", "1", "--effort", "quick"];
    let mut arguments = [&run[..], &["--outputs", "out"]].concat();
    arguments.extend(FILES.iter().flat_map(|(option, name)| [*option, *name]));
    let sandbox = Sandbox::new();
    sandbox.good(&arguments);
    let folder = sandbox.command(&arguments).get_current_dir().expect("a sandbox has a folder").to_owned();
    let mut limits = sizes(&folder);
    limits.extend([1, 2]);
    limits.sort_unstable();
    limits.dedup();
    let largest = limits.last().copied().expect("there are files");
    for limit in limits.into_iter().filter(|limit| *limit < largest) {
        let sandbox = Sandbox::new();
        let output = limited(&sandbox, limit, &arguments);
        assert_eq!(output.code, Some(4), "{limit} KiB: {}", output.stderr);
        assert!(output.stderr.contains("aorta::cli::output_lost"), "{limit} KiB: {}", output.stderr);
        assert!(output.stdout.contains("moe"), "{limit} KiB: the report is printed all the same: {}", output.stdout);
        for name in sandbox.listing() {
            let known = FILES.iter().any(|(_, file)| *file == name) || name == "out";
            assert!(known, "{limit} KiB: {name} is left behind");
        }
        if sandbox.listing().iter().any(|name| name == "a.json") {
            assert!(sandbox.json("a.json")["variants"][0]["time"]["n"].is_u64(), "{limit} KiB: the record is whole");
        }
    }
}

/// The journal of a sweep keeps the cases that it has, and the sweep goes on from there.
#[test]
fn a_sweep_on_a_disk_that_is_full_can_be_resumed() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "param n = 1\nbuffer x: f32[64]\nstep { for i in 0..n { map(x + 1 -> x) } }");
    let sweep =
        ["sweep", "a.aorta", "--set", "n=1,2,3,4,5,6", "--backend", "sim", "--effort", "sanity", "--json", "s.json"];
    let output = limited(&sandbox, 16, &sweep);
    assert!(matches!(output.code, Some(2 | 4)), "{:?}: {}", output.code, output.stderr);
    assert!(output.stderr.contains("aorta::cli::"), "{}", output.stderr);
    let resumed = sandbox.run(&[&sweep[..], &["--resume"]].concat());
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert_eq!(sandbox.read("s.json").lines().count(), 7, "the sweep, and its cases");
}
