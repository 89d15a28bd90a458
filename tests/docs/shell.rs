//! A small shell for the commands of a page, run in a folder of the page's own.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::{read, root};

/// Commands that are shown and not run, because they change the machine or take the whole test with them.
const SHOWN: [&str; 6] = ["cargo build", "cargo clippy", "cargo fmt", "cargo install", "cargo test", "git clone"];

/// Folders of the repository that every page's folder links to.
const LENT: [&str; 3] = ["config", "examples", "workloads"];

/// A page's folder, and the state that a shell would keep.
pub struct Shell {
    pub folder: tempfile::TempDir,
    home: tempfile::TempDir,
    /// The last command's exit code: `$?`.
    pub code: i32,
}

impl Shell {
    pub fn new() -> Shell {
        let temporary = || tempfile::tempdir().expect("the system has room for temporary files");
        let (folder, home) = (temporary(), temporary());
        for name in LENT {
            std::os::unix::fs::symlink(root().join(name), folder.path().join(name)).expect("a new folder is empty");
        }
        Shell { folder, home, code: 0 }
    }

    /// The program's output on both streams, in order.
    pub fn aorta(&mut self, args: &[String]) -> String {
        self.processes(args, vec![Vec::new()])
    }

    /// The output of the program in several processes, each with its own variables. The exit code is the first
    /// process's.
    fn processes(&mut self, args: &[String], variables: Vec<Vec<(String, String)>>) -> String {
        let output = tempfile::NamedTempFile::new().expect("the system has room for temporary files");
        let writer = || Stdio::from(output.reopen_for_append());
        let start = |variables| {
            Command::new(env!("CARGO_BIN_EXE_aorta"))
                .args(args)
                .current_dir(self.folder.path())
                .env_clear()
                .env("HOME", self.home.path())
                .envs::<Vec<(String, String)>, _, _>(variables)
                .stdin(Stdio::null())
                .stdout(writer())
                .stderr(writer())
                .spawn()
                .expect("the binary was built for this test")
        };
        let children: Vec<_> = variables.into_iter().map(start).collect();
        let ended = children.into_iter().map(|mut child| child.wait().expect("a child can be waited for").code());
        self.code = ended.collect::<Vec<_>>()[0].unwrap_or(-1);
        read(output.path())
    }

    /// Redirects a command's output to a file.
    fn redirect(&mut self, args: &[String], file: &str) -> String {
        let printed = self.aorta(args);
        assert_eq!(self.code, 0, "{printed}");
        fs::write(self.folder.path().join(file), printed).expect("the page's folder can be written");
        String::new()
    }

    /// A command's output; `None` for one that is only shown.
    pub fn run(&mut self, command: &str) -> Option<String> {
        if SHOWN.iter().any(|shown| command.starts_with(shown)) {
            return None;
        }
        let all = words(command);
        let plain: Vec<&str> = all.iter().map(String::as_str).collect();
        match plain.as_slice() {
            ["aorta", .., ">", file] => Some(self.redirect(&all[1..all.len() - 2], file)),
            ["aorta", ..] => Some(self.aorta(&self.simulated(&all[1..]))),
            ["torchrun", "--nproc-per-node", count, "--no-python", "aorta", ..] => {
                Some(self.launched(count, "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE", &all[5..]))
            }
            ["mpirun", "-n", count, "aorta", ..] => {
                let names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"].map(|name| format!("OMPI_COMM_WORLD_{name}"));
                Some(self.launched(count, &names.join(" "), &all[4..]))
            }
            ["srun", "-n", count, "aorta", ..] => {
                Some(self.launched(count, "SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_STEP_NUM_TASKS", &all[4..]))
            }
            [first, ..] if first.contains('=') => {
                let (set, rest) = all.split_at(all.iter().take_while(|word| word.contains('=')).count());
                let pairs = set.iter().filter_map(|word| word.split_once('='));
                let set = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                assert_eq!(rest.first().map(String::as_str), Some("aorta"), "`{command}`");
                Some(self.processes(&self.simulated(&rest[1..]), vec![set]))
            }
            ["cargo", "run", "--release", "--", ..] => Some(self.aorta(&self.simulated(&all[4..]))),
            ["cat", file] => Some(read(&self.folder.path().join(file))),
            ["echo", "$?"] => Some(format!("{}\n", self.code)),
            _ => panic!("`{command}` is no command that this test knows"),
        }
    }

    /// The output of a launcher's processes. `names` are the variables for the rank, the number of ranks, and the same
    /// on this host.
    fn launched(&mut self, count: &str, names: &str, args: &[String]) -> String {
        let world: usize = count.parse().expect("a page starts a number of processes");
        let variables = |rank: usize| {
            let values = [rank, world, rank, world].map(|value| value.to_string());
            let own = names.split(' ').map(str::to_owned).zip(values);
            // Pages run concurrently, so each needs its own port.
            let job = self.folder.path().display().to_string();
            let port = 4_000 + job.bytes().fold(0u32, |sum, byte| (sum * 31 + u32::from(byte)) % 900);
            let common = [
                ("MASTER_ADDR", "127.0.0.1".to_owned()),
                ("MASTER_PORT", port.to_string()),
                ("PMIX_NAMESPACE", job.clone()),
                ("SLURM_JOB_ID", "1".to_owned()),
                ("SLURM_STEP_ID", "0".to_owned()),
            ];
            own.chain(common.map(|(name, value)| (name.to_owned(), value))).collect()
        };
        self.processes(&self.simulated(args), (0..world).map(variables).collect())
    }

    /// On a machine with a GPU, adds `--backend sim` where the pages show a machine without one.
    fn simulated(&self, args: &[String]) -> Vec<String> {
        let mut args = args.to_vec();
        let chosen = args.iter().any(|arg| arg.starts_with("--backend"));
        if args.first().is_some_and(|command| command == "exec") && !chosen && has_driver() {
            args.extend(["--backend", "sim"].map(str::to_owned));
        }
        args
    }
}

/// Opens a file a second time so that both writers append.
trait ReopenForAppend {
    fn reopen_for_append(&self) -> fs::File;
}

impl ReopenForAppend for tempfile::NamedTempFile {
    fn reopen_for_append(&self) -> fs::File {
        fs::OpenOptions::new().append(true).open(self.path()).expect("the file was just made")
    }
}

/// True if `--backend auto` would use a GPU here.
pub fn has_driver() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = !Shell::new()
            .aorta(&["devices".to_owned()])
            .starts_with("CUDA devices (--backend cuda --device N)\n  none:");
        if found {
            println!(
                "this machine has a GPU: `exec` runs with `--backend sim`, and the line that says why is left out"
            );
        }
        found
    })
}

/// Splits a command into words; quoted text is one word.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None;
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_with(String::new);
            }
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_with(String::new).push(c),
        }
    }
    assert!(quote.is_none(), "`{command}` has a quote without an end");
    words.extend(word);
    words
}

#[test]
fn quotes_hold_words_together() {
    assert_eq!(words("aorta exec --set 'name=\"a b\"'  x"), ["aorta", "exec", "--set", "name=\"a b\"", "x"]);
}
