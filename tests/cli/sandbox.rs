//! A folder for each test, in which the binary runs without any files of the user.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::folder::{ends_in, files_below};

/// Time after which a command counts as hung: it is killed, and the test fails. No command comes near it, however busy the
/// machine is.
const PATIENCE: Duration = Duration::from_secs(600);

/// Interval at which a running command is polled.
const GLANCE: Duration = Duration::from_millis(2);

/// A temporary folder that is the command's current folder; its home is another one.
pub struct Sandbox {
    folder: tempfile::TempDir,
    home: tempfile::TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub struct Output {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        let folder = || tempfile::tempdir().expect("a temporary folder can be made");
        Sandbox { folder: folder(), home: folder() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and creates its folders.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder can be made");
        std::fs::write(path, contents).expect("a file can be written");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The user's configuration folder.
    pub fn config_folder(&self) -> PathBuf {
        self.home.path().join("config/aorta")
    }

    /// Writes the user's settings.
    pub fn write_config(&self, text: &str) {
        let folder = self.config_folder();
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        std::fs::write(folder.join("config.ron"), text).expect("a file can be written");
    }

    /// The names of all files in the folder, including hidden ones, sorted.
    pub fn listing(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).expect("the folder is there");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The binary in this folder. Its environment contains only the paths to programs and libraries.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aorta"));
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        for name in ["PATH", "LD_LIBRARY_PATH", "AORTA_LIBRARY_PATH"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("TERM", "xterm-256color").env("HOME", self.home.path());
        command.env("XDG_CONFIG_HOME", self.home.path().join("config"));
        command.env("XDG_CACHE_HOME", self.home.path().join("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the binary. Checks that it does not panic, and writes no colours, since the output is not a terminal.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        finish(self.command(arguments).spawn().expect("the binary starts"))
    }

    /// Runs a command that starts the binary, in this folder and with the binary's environment.
    pub fn run_command(&self, mut command: Command) -> Output {
        let model = self.command::<&str>(&[]);
        command.env_clear().envs(model.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("the command is there"))
    }

    /// Runs the binary, which must succeed. Returns its output.
    #[track_caller]
    pub fn good<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    }

    /// Runs a workload on the simulator with further arguments, and returns the record.
    #[track_caller]
    pub fn record(&self, arguments: &[&str]) -> Value {
        self.good(&[&["exec"], arguments, &["--backend", "sim", "--json", "record.json"]].concat());
        self.json("record.json")
    }
}

/// Waits for the end of a command and returns its output.
pub fn finish(child: Child) -> Output {
    finish_within(child, PATIENCE)
}

/// Waits for the end of a command, which must come within this time, and returns its output: nothing of a stream that is not
/// piped.
pub fn finish_within(mut child: Child, patience: Duration) -> Output {
    let (stdout, stderr) = (child.stdout.take().map(reader), child.stderr.take().map(reader));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if begun.elapsed() > patience {
            // It may have ended just now.
            let _ = child.kill();
            panic!("the command still runs after {patience:?}");
        }
        std::thread::sleep(GLANCE);
    };
    let text = |thread: Option<std::thread::JoinHandle<String>>| {
        thread.map(|thread| thread.join().expect("what is printed is text")).unwrap_or_default()
    };
    let output = Output { code: status.code(), stdout: text(stdout), stderr: text(stderr) };
    assert_ne!(output.code, Some(101), "a bug: {}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    for printed in [&output.stdout, &output.stderr] {
        assert!(!printed.contains('\x1b'), "an escape sequence in {printed:?}");
    }
    output
}

fn reader(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("what is printed is text");
        text
    })
}

/// The project's folder.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every workload in one of the project's folders, sorted.
pub fn workloads(folder: &str) -> Vec<PathBuf> {
    let mut found = files_below(&project().join(folder), |_| true);
    found.retain(|path| ends_in(path, "aorta"));
    assert!(!found.is_empty(), "{folder} holds no workload");
    found
}

/// True if this machine has no CUDA driver.
pub fn no_cuda(sandbox: &Sandbox) -> bool {
    sandbox.good(&["devices"]).starts_with("CUDA devices (--backend cuda --device N)\n  none:")
}
