//! Tests the documentation: its commands print what it says, its files check, its links lead somewhere, and its
//! reference is complete.
//!
//! The words after a fence in README.md and docs/ say what a block is:
//! - `console`: lines `$ command`, each with its output below. A line `...` stands for any number of lines, `[..]` for
//!   any text within one. The commands of a page run in order in a folder of their own. Words `NAME=value` before a
//!   command are its variables. A launcher before it is simulated by the harness, which sets the launcher's variables.
//! - `aorta`: a file that must pass `aorta check`; with `wrong`, one that must not; with `fragment`, a piece of one;
//!   with `ranks=N`, on that many ranks.
//! - with `file=NAME`, in any language: a file for the commands below it on the same page.
//! - `rust from=FILE`: lines of that file of the project.
//!
//! A picture, `![simulated: …](pictures/NAME.svg)`, is a file that the commands of its page write. All pictures are of simulated
//! runs, which are the same on every machine.
//!
//! `AORTA_DOCS=write cargo test --test suite docs::` writes the current output into the pages. Read the difference
//! before keeping it.

mod comparison;
mod shell;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use aorta::base::{DType, units};
use aorta::model::{Figure, Statistic};
use aorta::ops::expression::{Binary, Unary};
use aorta::ops::{self, Input};

use comparison::{agrees, mended, tidy};
use shell::{Shell, has_driver};

use crate::common::folder::{ends_in, files_below};
use crate::common::{effort, parallel};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page that is executed. `docs/measurements` describes runs on devices that this machine lacks.
fn pages() -> Vec<PathBuf> {
    let mut pages = files_below(&root().join("docs"), |folder| !folder.ends_with("measurements"));
    pages.retain(|path| ends_in(path, "md"));
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page(name: &str) -> String {
    read(&root().join(name))
}

/// A page's path relative to the project.
fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

// --- Blocks -----------------------------------------------------------------------------------------------------

/// A part of a page: a fenced block, or the text between two.
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

// --- Execution ------------------------------------------------------------------------------------------------------

/// Runs a command and compares its output with the page. The error has the difference, and the page's corrected text if
/// there is one.
fn compare(command: &str, expected: &[String], shell: &mut Shell) -> Result<(), (String, Option<Vec<String>>)> {
    let mut expected = expected.to_vec();
    if has_driver() {
        expected.retain(|line| !line.starts_with("No GPU found"));
    }
    let output = shell.run(command);
    // A page that shows no output still requires that the command succeeds.
    let hidden_failure = expected == ["..."] && shell.code != 0;
    let actual = tidy(output.unwrap_or_default().lines());
    if agrees(&expected, &actual) && !hidden_failure {
        return Ok(());
    }
    let (says, prints) = (expected.join("\n"), actual.join("\n"));
    let difference = format!("$ {command}\n--- the page says\n{says}\n--- it prints\n{prints}\n");
    Err((difference, mended(&expected, &actual).filter(|_| !hidden_failure)))
}

/// Runs the commands of a `console` block. With `write`, corrects `lines` as far as possible; returns the remaining
/// differences.
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

/// Checks an `aorta` block as its fence says.
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
    let pages = pages();
    // A plain `cargo test` has no time for all of them.
    let pages = if write { pages } else { effort::due(pages).collect() };
    let wrong = parallel::map(&pages, |path| check_page(path, write)).concat();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Runs a page's blocks. Returns its errors, or corrects the page.
fn check_page(path: &Path, write: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let text = read(path);
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
                wrong.push(format!("{}: {why}", name(path)));
            }
        } else if info == ["console"] {
            commands += lines.iter().filter(|line| line.starts_with("$ ")).count();
            let failures = console(lines, &mut shell, write);
            wrong.extend(failures.into_iter().map(|failure| format!("{}: {failure}", name(path))));
        }
    }
    println!("{}: {commands} commands", name(path));
    for (description, target) in pictures(&parts) {
        let stored = path.parent().expect("pages lie in folders").join(&target);
        wrong.extend(
            picture(&stored, &description, &shell, write).map(|why| format!("{}: {target}: {why}", name(path))),
        );
    }
    if write {
        fs::write(path, text_of(&parts)).expect("the pages are the repository's own");
    }
    wrong
}

/// The pictures of a page, with their descriptions and targets.
fn pictures(parts: &[Part]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in parts {
        let Part::Prose(lines) = part else { continue };
        for rest in lines.iter().flat_map(|line| line.split("![").skip(1)) {
            let (description, rest) = rest.split_once("](").expect("a picture has a target");
            let (target, _) = rest.split_once(')').expect("a target ends");
            found.push((description.to_owned(), target.to_owned()));
        }
    }
    found
}

/// Compares a picture with the file of that name that the page's commands wrote, or stores that file. Returns the error.
fn picture(stored: &Path, description: &str, shell: &Shell, write: bool) -> Option<String> {
    let Ok(made) = fs::read_to_string(shell.folder.path().join(stored.file_name()?)) else {
        return Some("no command of the page writes it".to_owned());
    };
    if !made.contains("simulated") || !description.starts_with("simulated: ") {
        return Some("the picture, or its description on the page, does not say that it is simulated".to_owned());
    }
    if write {
        fs::create_dir_all(stored.parent()?).expect("the pages are the repository's own");
        fs::write(stored, &made).expect("the pages are the repository's own");
    }
    let same = fs::read_to_string(stored).is_ok_and(|stored| stored == made);
    (!same).then(|| "it differs from what the page's commands write".to_owned())
}

/// A miniature page: lines that are added, removed or changed beside a `...` do not affect the others.
#[test]
fn a_gap_removes_no_line() {
    let page = |shown: &str| format!("```console\n$ cat list\n{shown}\n```\n");
    let printed = "head\nfirst\n1\n2\n3\nlast\nfoot";
    // The page before and after.
    let cases = [
        ("head\nfirst\n...\nfoot", "head\nfirst\n...\nfoot"),
        ("first\n...\nlast", "head\nfirst\n...\nlast\nfoot"),
        ("head\ngone\nfirst\n...\nlast\ngone\nfoot", "head\nfirst\n...\nlast\nfoot"),
        ("head\nf[..]t\n\n...\nl[..]t", "head\nf[..]t\n1\n...\nl[..]t\nfoot"),
        ("head\nchanged\n...\nchanged\nfoot", "head\nfirst\n...\nlast\nfoot"),
        ("head\n...\nchanged", "head\n...\nfoot"),
        ("...\nlast", "...\nlast\nfoot"),
        ("first\n...", "head\nfirst\n..."),
    ];
    for (before, after) in cases {
        let mut shell = Shell::new();
        fs::write(shell.folder.path().join("list"), printed).expect("the folder is new");
        let mut parts = parts(&page(before));
        for part in &mut parts {
            let Part::Block { lines, .. } = part else { continue };
            assert!(console(lines, &mut shell, true).is_empty(), "{before}");
        }
        assert_eq!(text_of(&parts), page(after), "{before}");
    }
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

/// The anchors of a page's headings.
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

/// Fails if a page does not name everything in `code` style.
fn names_all<'a>(page_name: &str, text: &str, what: &str, wanted: impl IntoIterator<Item = &'a str>) {
    let lacks: Vec<&str> = wanted.into_iter().filter(|wanted| !text.contains(&format!("`{wanted}`"))).collect();
    assert!(lacks.is_empty(), "{page_name} does not name these {what}: {}", lacks.join(", "));
}

/// The keys of a RON text, including nested structures.
fn keys(ron: &str) -> BTreeSet<&str> {
    let lines = ron.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let keys = lines.filter_map(|line| line.split_once(':')).map(|(key, _)| key);
    keys.filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_')).collect()
}

#[test]
fn operations_are_documented() {
    let text = page("docs/operations.md");
    for operation in ops::CATALOGUE {
        let heading = format!("## `{}`", operation.name());
        let Some((_, section)) = text.split_once(&format!("\n{heading}\n")) else {
            panic!("docs/operations.md has no section {heading}");
        };
        // The text, without the table that is made of the signature.
        let section = section.split("<!-- generated: ").next().unwrap_or(section);
        let section = section.split("\n#").next().unwrap_or(section);
        let signature = operation.signature();
        let inputs = signature.inputs.iter().filter_map(|input| match input {
            Input::Tensor(name) | Input::Optional(name) | Input::Tensors(name) => Some(*name),
            Input::Scalar(option) => Some(option.name),
            Input::Expression | Input::Expressions => None,
        });
        names_all(&heading, section, "inputs", inputs);
        names_all(&heading, section, "outputs", signature.outputs.iter().copied());
        names_all(&heading, section, "options", signature.options.iter().map(|option| option.name));
        assert!(section.contains("Cost: "), "{heading} does not say what it costs");
    }
}

/// A block `rust from=FILE` has lines of that file, in their order; `// …` stands for any number of lines.
#[test]
fn code_is_that_of_the_source() {
    let mut quoted = 0;
    for path in pages() {
        for part in parts(&read(&path)) {
            let Part::Block { info, lines } = part else { continue };
            let Some(file) = info.strip_prefix("rust from=") else { continue };
            quoted += 1;
            let source = page(file);
            let mut source = source.as_str();
            for piece in lines.join("\n").split("// …") {
                let piece = piece.trim();
                let Some((_, rest)) = source.split_once(piece) else {
                    panic!("{}: {file} does not have these lines, or in another order:\n{piece}", path.display());
                };
                source = rest;
            }
        }
    }
    assert!(quoted > 0, "a page quotes the source");
}

#[test]
fn language_is_documented() {
    let file = "docs/language.md or docs/language-reference.md";
    let text = page("docs/language.md") + &page("docs/language-reference.md");
    names_all(file, &text, "reserved words", aorta::syntax::RESERVED);
    names_all(file, &text, "element types", DType::NAMES);
    names_all(file, &text, "units", units::UNITS.iter().map(|unit| unit.name));
    names_all(file, &text, "figures", Figure::NAMES);
    names_all(file, &text, "statistics", Statistic::NAMES);
}

#[test]
fn functions_are_documented() {
    let (file, text) = ("docs/operations.md", page("docs/operations.md"));
    let unary = Unary::ALL.iter().map(|function| function.name()).filter(|name| Unary::from_name(name).is_some());
    names_all(file, &text, "functions", unary);
    let binary = Binary::ALL.iter().map(|function| function.name()).filter(|name| Binary::from_name(name).is_some());
    names_all(file, &text, "functions", binary);
}

#[test]
fn profiles_are_documented() {
    names_all(
        "docs/method.md",
        &page("docs/method.md"),
        "figures of a profile",
        keys(&page("config/devices/h200.ron")),
    );
}

#[test]
fn scenarios_are_documented() {
    let fields = aorta::config::FIELDS.iter().map(|field| field.name);
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
    // The generated list of options describes none of them.
    let book: String =
        pages().iter().filter(|path| !path.ends_with("docs/commands.md")).map(|path| read(path)).collect();
    for command in commands.iter().filter(|command| *command != "help") {
        assert!(text.contains(&format!("`aorta {command}")), "README.md does not name `aorta {command}`");
        let help = shell.aorta(&[command.clone(), "--help".to_owned()]);
        let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split_whitespace().next());
        for flag in flags {
            // An optional value is in brackets: `--expected[=<PATH>]`.
            let flag = flag.split(['[', '=']).next().unwrap_or(flag);
            assert!(book.contains(&format!("--{flag}")), "no page tells of `aorta {command} --{flag}`");
        }
    }
}

/// Adds every field name of a JSON value, except keys of maps that a run fills.
fn fields(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                if !["params", "facts", "variables", "parts"].contains(&name.as_str()) {
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
    // Every kind of edge, so that every field occurs.
    let text = "stream a stream b buffer x: f32[8]\nstep { on a { l: map(x + 1 -> x) e: signal() }
        on b after l { nop() wait(e) map(x + 1 -> x) } on a { sync() } }";
    fs::write(shell.folder.path().join("all.aorta"), text).expect("the folder is new");
    shell.run("aorta plan all.aorta --format json > plan.json").expect("it is run");
    let plan = serde_json::from_str(&read(&shell.folder.path().join("plan.json"))).expect("a plan is JSON");
    let mut names = BTreeSet::new();
    fields(&plan, &mut names);
    // Planned operations are documented with the record's.
    let text = page("docs/plan.md") + &page("docs/record.md");
    names_all("docs/plan.md", &text, "fields", names.iter().map(String::as_str));
}

#[test]
fn record_is_documented() {
    let mut shell = Shell::new();
    // Serial times, expectations and a verification, so that every part of a record occurs.
    let text = "buffer x: f32[8]\nstep { h: map(x + 1) map(h * 2 -> x) i: cast(x, to: i32) map(i * 0.5 -> x) }\n\
        metric gain = speedup\nexpect time > 0s\n";
    fs::write(shell.folder.path().join("all.aorta"), text).expect("the folder is new");
    let command = "aorta exec all.aorta --backend host --fuse --verify --effort quick --json run.json --csv run.csv";
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
    // The columns of the three times are documented as `time.*` with the statistics.
    let columns: BTreeSet<&str> = columns.map(|column| column.split('.').next_back().unwrap_or(column)).collect();
    names_all("docs/record.md", &text, "columns", columns);
}
