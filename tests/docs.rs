//! The documentation is true: its commands print what it says, its files check, its links lead somewhere, and its
//! reference names everything that there is.
//!
//! The words behind a fence in README.md and docs/ say what a block is:
//! - `console`: lines `$ command`, each with what it prints below. A line `...` stands for any number of lines, `[..]`
//!   for any text within one. The commands of a page run one after the other in a folder of their own. Words
//!   `NAME=value` before a command are its variables. A launcher before it is played by the harness, which sets what
//!   that launcher would.
//! - `aorta`: a file that has to pass `aorta check`; with `wrong`, one that must not; with `fragment`, a piece of one;
//!   with `ranks=N`, on that many ranks.
//! - with `file=NAME`, in any language: a file for the commands below it on the same page.
//!
//! `AORTA_DOCS=write cargo test --test docs` puts what the commands print now into the pages. Read the difference
//! before keeping it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use aorta::base::{DType, units};
use aorta::model::{Figure, Statistic};
use aorta::ops::expression::{Binary, Unary};
use aorta::ops::{self, Input};

/// Commands that are shown and not run: they change the machine, or take the whole test with them.
const SHOWN: [&str; 6] = ["cargo build", "cargo clippy", "cargo fmt", "cargo install", "cargo test", "git clone"];

/// What every page's folder has of the repository.
const LENT: [&str; 3] = ["config", "examples", "workloads"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page that is executed. `docs/measurements` tells of runs on devices that this machine lacks.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the book is a folder").flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "measurements") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page(name: &str) -> String {
    read(&root().join(name))
}

/// A page's path as people know it.
fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

// --- Blocks -----------------------------------------------------------------------------------------------------

/// A stretch of a page: a fenced block, or what lies between two.
enum Part {
    Prose(Vec<String>),
    Block { info: String, lines: Vec<String> },
}

fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut lines = text.lines().map(str::to_owned);
    let mut prose = Vec::new();
    while let Some(line) = lines.next() {
        match line.strip_prefix("```") {
            None => prose.push(line),
            Some(info) => {
                parts.push(Part::Prose(std::mem::take(&mut prose)));
                let lines = lines.by_ref().take_while(|line| line != "```").collect();
                parts.push(Part::Block { info: info.to_owned(), lines });
            }
        }
    }
    parts.push(Part::Prose(prose));
    parts
}

fn text_of(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Prose(lines) => lines.iter().for_each(|line| text += &format!("{line}\n")),
            Part::Block { info, lines } => {
                text += &format!("```{info}\n");
                lines.iter().for_each(|line| text += &format!("{line}\n"));
                text += "```\n";
            }
        }
    }
    text
}

// --- Commands ---------------------------------------------------------------------------------------------------

/// A page's folder, and the state that a shell would keep.
struct Shell {
    folder: tempfile::TempDir,
    home: tempfile::TempDir,
    /// The last command's exit code: `$?`.
    code: i32,
}

impl Shell {
    fn new() -> Shell {
        let temporary = || tempfile::tempdir().expect("the system has room for temporary files");
        let (folder, home) = (temporary(), temporary());
        for name in LENT {
            std::os::unix::fs::symlink(root().join(name), folder.path().join(name)).expect("a new folder is empty");
        }
        Shell { folder, home, code: 0 }
    }

    /// What the program prints, on either stream in the order in which it does.
    fn aorta(&mut self, args: &[String]) -> String {
        self.processes(args, vec![Vec::new()])
    }

    /// What the program prints in several processes, each with variables of its own. The exit code is the first's.
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

    /// Puts what a command prints into a file, as a shell does.
    fn redirect(&mut self, args: &[String], file: &str) -> String {
        let printed = self.aorta(args);
        assert_eq!(self.code, 0, "{printed}");
        fs::write(self.folder.path().join(file), printed).expect("the page's folder can be written");
        String::new()
    }

    /// What a command prints; nothing for one that is only shown.
    fn run(&mut self, command: &str) -> Option<String> {
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

    /// What a launcher's processes print; `names` are those of the variables for the rank, how many there are, and the
    /// same on this host.
    fn launched(&mut self, count: &str, names: &str, args: &[String]) -> String {
        let world: usize = count.parse().expect("a page starts a number of processes");
        let variables = |rank: usize| {
            let values = [rank, world, rank, world].map(|value| value.to_string());
            let own = names.split(' ').map(str::to_owned).zip(values);
            // Pages run beside each other: the port is this page's.
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

    /// On a machine with a GPU, what the pages show of one without is run on the simulator by name.
    fn simulated(&self, args: &[String]) -> Vec<String> {
        let mut args = args.to_vec();
        let chosen = args.iter().any(|arg| arg.starts_with("--backend"));
        if args.first().is_some_and(|command| command == "exec") && !chosen && has_driver() {
            args.extend(["--backend", "sim"].map(str::to_owned));
        }
        args
    }
}

/// Opens a file a second time such that both writers add to its end.
trait ReopenForAppend {
    fn reopen_for_append(&self) -> fs::File;
}

impl ReopenForAppend for tempfile::NamedTempFile {
    fn reopen_for_append(&self) -> fs::File {
        fs::OpenOptions::new().append(true).open(self.path()).expect("the file was just made")
    }
}

/// Whether `--backend auto` would take a GPU here.
fn has_driver() -> bool {
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

/// A command's words; those between quotes are one.
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

// --- Comparison -------------------------------------------------------------------------------------------------

/// Lines without the blanks at their ends, and without the empty ones at the end of all.
fn tidy<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Whether a line is what the page says; `[..]` stands for any text.
fn fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once("[..]") {
        None => pattern == line,
        Some((before, behind)) => line
            .strip_prefix(before)
            .is_some_and(|rest| rest.char_indices().any(|(at, _)| fits(behind, &rest[at..])) || fits(behind, "")),
    }
}

/// Whether output is what the page says; a line `...` stands for any number of lines.
fn agrees(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((gap, rest)) if gap == "..." => (0..=actual.len()).any(|skipped| agrees(rest, &actual[skipped..])),
        Some((line, rest)) => actual.first().is_some_and(|first| fits(line, first)) && agrees(rest, &actual[1..]),
    }
}

/// What a page should say: the output itself, but lines with `[..]` that still fit stay, and one `...` stays between as
/// many lines as before. Nothing where it has several.
fn mended(expected: &[String], actual: &[String]) -> Option<Vec<String>> {
    let patterns: Vec<&String> = expected.iter().filter(|line| line.contains("[..]")).collect();
    let kept = |line: &String| patterns.iter().copied().find(|pattern| fits(pattern, line)).unwrap_or(line).clone();
    let gaps: Vec<usize> = (0..expected.len()).filter(|&at| expected[at] == "...").collect();
    match gaps[..] {
        [] => Some(actual.iter().map(kept).collect()),
        [gap] => {
            let tail = actual.len().checked_sub(expected.len() - gap - 1).filter(|tail| *tail >= gap)?;
            let (head, tail) = (actual[..gap].iter().map(kept), actual[tail..].iter().map(kept));
            Some(head.chain(["...".to_owned()]).chain(tail).collect())
        }
        _ => None,
    }
}

/// Runs a command. Where it does not print what the page says: the difference, and what the page could say instead.
fn compare(command: &str, expected: &[String], shell: &mut Shell) -> Result<(), (String, Option<Vec<String>>)> {
    let mut expected = expected.to_vec();
    if has_driver() {
        expected.retain(|line| !line.starts_with("No GPU found"));
    }
    let output = shell.run(command);
    // A page that shows nothing of an output still says that the command succeeds.
    let hidden_failure = expected == ["..."] && shell.code != 0;
    let actual = tidy(output.unwrap_or_default().lines());
    if agrees(&expected, &actual) && !hidden_failure {
        return Ok(());
    }
    let (says, prints) = (expected.join("\n"), actual.join("\n"));
    let difference = format!("$ {command}\n--- the page says\n{says}\n--- it prints\n{prints}\n");
    Err((difference, mended(&expected, &actual).filter(|_| !hidden_failure)))
}

/// Runs the commands of a `console` block. With `write`, what can be mended is, in `lines`; the rest is returned.
fn console(lines: &mut Vec<String>, shell: &mut Shell, write: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(command) = lines[at].strip_prefix("$ ").map(str::to_owned) else {
            panic!("a console block begins with a command, not with `{}`", lines[at]);
        };
        let end = (at + 1..lines.len()).find(|&line| lines[line].starts_with("$ ")).unwrap_or(lines.len());
        let expected = tidy(lines[at + 1..end].iter().map(String::as_str));
        let last = at + 1 + expected.len();
        at = end;
        match compare(&command, &expected, shell) {
            Ok(()) => {}
            Err((_, Some(instead))) if write => {
                at = at + instead.len() - expected.len();
                lines.splice(last - expected.len()..last, instead);
            }
            Err((difference, _)) => wrong.push(difference),
        }
    }
    wrong
}

/// Whether an `aorta` block is what its fence says it is.
fn checks(info: &[&str], path: &str, shell: &mut Shell) -> Result<(), String> {
    let ranks = info.iter().find_map(|word| word.strip_prefix("ranks=")).unwrap_or("1");
    let output = shell.aorta(&["check", path, "--ranks", ranks].map(str::to_owned));
    match (info.contains(&"wrong"), shell.code) {
        (false, 0) | (true, 2) => Ok(()),
        (true, code) => Err(format!("a file that is shown as wrong passes `aorta check` (exit code {code})\n{output}")),
        (false, _) => Err(format!("a file does not pass `aorta check`\n{output}")),
    }
}

#[test]
fn pages_are_true() {
    let write = std::env::var("AORTA_DOCS").is_ok_and(|mode| mode == "write");
    assert!(!(write && has_driver()), "the pages show a machine without a GPU: write them on one");
    let mut wrong = Vec::new();
    for path in pages() {
        let text = read(&path);
        let mut shell = Shell::new();
        let mut parts = parts(&text);
        let mut commands = 0;
        for part in &mut parts {
            let Part::Block { info, lines } = part else { continue };
            let info: Vec<&str> = info.split_whitespace().collect();
            let file = info.iter().find_map(|word| word.strip_prefix("file="));
            let is_file = file.is_some() || (info.first() == Some(&"aorta") && !info.contains(&"fragment"));
            if is_file {
                let file = file.unwrap_or("block.aorta");
                fs::write(shell.folder.path().join(file), lines.join("\n") + "\n").expect("the folder is new");
                if info.first() == Some(&"aorta")
                    && let Err(why) = checks(&info, file, &mut shell)
                {
                    wrong.push(format!("{}: {why}", name(&path)));
                }
            } else if info == ["console"] {
                commands += lines.iter().filter(|line| line.starts_with("$ ")).count();
                let failures = console(lines, &mut shell, write);
                wrong.extend(failures.into_iter().map(|failure| format!("{}: {failure}", name(&path))));
            }
        }
        println!("{}: {commands} commands", name(&path));
        if write {
            fs::write(&path, text_of(&parts)).expect("the pages are the repository's own");
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn comparisons_tell_differences() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let output = lines("one\ntwo 2\nthree");
    for page in ["one\ntwo 2\nthree", "one\n...", "...\nthree", "one\n...\ntwo [..]\n...", "[..]e\ntwo [..]2\nt[..]e"] {
        assert!(agrees(&lines(page), &output), "{page}");
    }
    for page in ["one\ntwo 2", "one\ntwo 3\nthree", "...\ntwo 2", "one\ntwo [..]3\nthree", "two 2\n..."] {
        assert!(!agrees(&lines(page), &output), "{page}");
    }
    assert_eq!(mended(&lines("on[..]\n...\nfour"), &output), Some(lines("on[..]\n...\nthree")));
    assert_eq!(words("aorta exec --set 'name=\"a b\"'  x"), ["aorta", "exec", "--set", "name=\"a b\"", "x"]);
}

// --- Links ------------------------------------------------------------------------------------------------------

/// The targets of a page's links.
fn links(parts: &[Part]) -> Vec<String> {
    let mut links = Vec::new();
    for part in parts {
        let Part::Prose(lines) = part else { continue };
        for line in lines {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            links.extend(targets.map(|(target, _)| target.to_owned()));
        }
    }
    links
}

/// The names under which a page's headings are reached.
fn anchors(parts: &[Part]) -> BTreeSet<String> {
    let prose = parts.iter().filter_map(|part| match part {
        Part::Prose(lines) => Some(lines),
        Part::Block { .. } => None,
    });
    let headings = prose.flatten().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let own = ["CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    let mut wrong = Vec::new();
    for path in pages().into_iter().chain(own) {
        for link in links(&parts(&read(&path))) {
            if link.starts_with("http://") || link.starts_with("https://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().expect("pages lie in folders").join(file),
            };
            let there = target.exists() && (anchor.is_empty() || anchors(&parts(&read(&target))).contains(anchor));
            if !there {
                wrong.push(format!("{}: {link}", name(&path)));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

// --- Completeness -----------------------------------------------------------------------------------------------

/// Fails when a page does not name everything in `code` style.
fn names_all<'a>(page_name: &str, text: &str, what: &str, wanted: impl IntoIterator<Item = &'a str>) {
    let lacks: Vec<&str> = wanted.into_iter().filter(|wanted| !text.contains(&format!("`{wanted}`"))).collect();
    assert!(lacks.is_empty(), "{page_name} does not name these {what}: {}", lacks.join(", "));
}

/// The keys of a RON text, those of inner structures too.
fn keys(ron: &str) -> BTreeSet<&str> {
    let lines = ron.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let keys = lines.filter_map(|line| line.split_once(':')).map(|(key, _)| key);
    keys.filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_')).collect()
}

#[test]
fn operations_are_documented() {
    let text = page("docs/language.md");
    for operation in ops::CATALOGUE {
        let heading = format!("### `{}`", operation.name());
        let Some((_, section)) = text.split_once(&format!("\n{heading}\n")) else {
            panic!("docs/language.md has no section {heading}");
        };
        let section = section.split("\n#").next().unwrap_or(section);
        let signature = operation.signature();
        let inputs = signature.inputs.iter().filter_map(|input| match input {
            Input::Tensor(name) | Input::Optional(name) => Some(*name),
            Input::Scalar(option) => Some(option.name),
            Input::Expression => None,
        });
        names_all(&heading, section, "inputs", inputs);
        names_all(&heading, section, "outputs", signature.outputs.iter().copied());
        names_all(&heading, section, "options", signature.options.iter().map(|option| option.name));
        assert!(section.contains("Cost: "), "{heading} does not say what it costs");
    }
}

#[test]
fn language_is_documented() {
    let (file, text) = ("docs/language.md", page("docs/language.md"));
    names_all(file, &text, "reserved words", aorta::syntax::RESERVED);
    names_all(file, &text, "element types", DType::ALL.map(DType::name));
    names_all(file, &text, "units", units::UNITS.iter().map(|unit| unit.name));
    names_all(file, &text, "figures", Figure::ALL.map(Figure::name));
    names_all(file, &text, "statistics", Statistic::ALL.map(Statistic::name));
    let unary = Unary::ALL.iter().map(|function| function.name()).filter(|name| Unary::from_name(name).is_some());
    names_all(file, &text, "functions", unary);
    let binary = Binary::ALL.iter().map(|function| function.name()).filter(|name| Binary::from_name(name).is_some());
    names_all(file, &text, "functions", binary);
}

#[test]
fn settings_are_documented() {
    names_all("docs/settings.md", &page("docs/settings.md"), "settings", keys(&page("config/defaults.ron")));
    names_all(
        "docs/method.md",
        &page("docs/method.md"),
        "figures of a profile",
        keys(&page("config/devices/h200.ron")),
    );
}

#[test]
fn scenarios_are_documented() {
    // The message about a field that does not exist lists those that do.
    let error = aorta::config::Scenario::parse("a.ron", "(colour: 3)").expect_err("there is no such field").to_string();
    let (_, list) = error.split_once("expected one of").expect("the message lists the fields");
    let fields: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    assert!(fields.contains(&"workload"), "{error}");
    let file = "docs/start/05-sharing-a-scenario.md";
    names_all(file, &page(file), "fields", fields);
}

#[test]
fn commands_are_documented() {
    let mut shell = Shell::new();
    let help = shell.aorta(&["--help".to_owned()]);
    let (_, rest) = help.split_once("Commands:\n").expect("the help lists commands");
    let commands = rest.lines().take_while(|line| !line.is_empty());
    let commands: Vec<String> = commands.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(commands.contains(&"exec".to_owned()), "{commands:?}");
    let text = page("README.md");
    let book: String = pages().iter().map(|path| read(path)).collect();
    for command in commands.iter().filter(|command| *command != "help") {
        assert!(text.contains(&format!("`aorta {command}")), "README.md does not name `aorta {command}`");
        let help = shell.aorta(&[command.clone(), "--help".to_owned()]);
        let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split_whitespace().next());
        for flag in flags {
            // A value that may be left away stands in brackets: `--expected[=<PATH>]`.
            let flag = flag.split(['[', '=']).next().unwrap_or(flag);
            assert!(book.contains(&format!("--{flag}")), "no page tells of `aorta {command} --{flag}`");
        }
    }
}

/// Every name of a field in a JSON value; the names in maps that a run fills are not the schema's.
fn fields(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                if !["params", "facts", "variables"].contains(&name.as_str()) {
                    fields(value, found);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        _ => {}
    }
}

#[test]
fn plans_are_documented() {
    let mut shell = Shell::new();
    // Every kind of edge, so that every field is there.
    let text = "stream a stream b buffer x: f32[8]\nstep { on a { l: map(x + 1 -> x) e: signal() }
        on b after l { nop() wait(e) map(x + 1 -> x) } on a { sync() } }";
    fs::write(shell.folder.path().join("all.aorta"), text).expect("the folder is new");
    shell.run("aorta plan all.aorta --format json > plan.json").expect("it is run");
    let plan = serde_json::from_str(&read(&shell.folder.path().join("plan.json"))).expect("a plan is JSON");
    let mut names = BTreeSet::new();
    fields(&plan, &mut names);
    // What was planned is told as in a record.
    let text = page("docs/plan.md") + &page("docs/record.md");
    names_all("docs/plan.md", &text, "fields", names.iter().map(String::as_str));
}

#[test]
fn record_is_documented() {
    let mut shell = Shell::new();
    // Serial times, expectations and a verification, so that every part of a record is there.
    let text = "buffer x: f32[8]\nstep { map(x + 1 -> x) }\nmetric gain = speedup\nexpect time > 0s\n";
    fs::write(shell.folder.path().join("all.aorta"), text).expect("the folder is new");
    let command = "aorta exec all.aorta --backend host --verify --effort quick --json run.json --csv run.csv";
    shell.run(command).expect("it is run");
    assert_eq!(shell.code, 0);
    let record = serde_json::from_str(&read(&shell.folder.path().join("run.json"))).expect("a record is JSON");
    let mut names = BTreeSet::new();
    fields(&record, &mut names);
    let text = page("docs/record.md");
    names_all("docs/record.md", &text, "fields", names.iter().map(String::as_str));
    let csv = read(&shell.folder.path().join("run.csv"));
    let header = csv.lines().next().expect("a table has a header");
    let columns = header.split(',').filter(|column| !column.starts_with("metric.") && !column.starts_with("param."));
    // The columns of the three times are documented as `time.*` and the statistics.
    let columns: BTreeSet<&str> = columns.map(|column| column.split('.').next_back().unwrap_or(column)).collect();
    names_all("docs/record.md", &text, "columns", columns);
}
