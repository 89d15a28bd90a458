//! The generated parts of the book match the code: the tables of the language, of operations, workloads, metrics, settings,
//! scenarios and commands, each between `<!-- generated: NAME -->` and `<!-- end -->`, and the book's summary.
//! `AORTA_DOCS=write cargo test --test suite reference::` writes them.

mod book;
mod commands;
mod operations;
mod workloads;

use std::path::Path;
use std::process::Command;

use aorta::base::{Bytes, DType, units};
use aorta::config::{FIELDS, SETTINGS, Settings};
use aorta::measure::definitions::{DEFINITIONS, Definition};
use aorta::model::{Statistic, limits};
use aorta::syntax::{DECLARATIONS, RESERVED, STATEMENTS};

fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&head.map(str::to_owned)) + &line(&head.map(|_| "---".to_owned()));
    rows.into_iter().for_each(|row| text += &line(&row));
    text.replace("|  |", "| |")
}

fn code<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn words() -> String {
    let row = |what: &str, words: &[&str]| [what.to_owned(), code(words.iter().copied())];
    table(
        ["", "words"],
        [
            row("reserved", &RESERVED),
            row("begin a declaration", &DECLARATIONS),
            row("begin a statement, besides names", &STATEMENTS),
        ],
    )
}

fn types() -> String {
    table(
        ["type", "bytes", "holds"],
        DType::ALL.map(|dtype| {
            let holds = match (dtype.is_float(), dtype == DType::U8) {
                (true, _) => format!("floats; rounds to 1 part in 2^{}", -dtype.epsilon().log2()),
                (false, true) => "whole numbers from 0".to_owned(),
                (false, false) => "whole numbers".to_owned(),
            };
            [format!("`{}`", dtype.name()), dtype.size().to_string(), holds]
        }),
    )
}

/// Units of one dimension, those that are powers of 1024 apart.
fn units() -> String {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for unit in units::UNITS {
        let binary = if unit.name.contains("iB") { ", binary" } else { "" };
        let of = if unit.name == "%" { "a share".to_owned() } else { unit.dimension.describe() + binary };
        match rows.iter_mut().find(|(known, _)| *known == of) {
            Some((_, names)) => names.push(unit.name),
            None => rows.push((of, vec![unit.name])),
        }
    }
    table(["of", "units"], rows.into_iter().map(|(of, names)| [of, code(names)]))
}

fn statistics() -> String {
    code(Statistic::NAMES) + "\n"
}

/// The figures that a file may ask for.
fn figures() -> String {
    let asked = DEFINITIONS.iter().filter(|definition| !definition.usage.is_empty());
    table(["figure", "is"], asked.map(|definition| [definition.usage.to_owned(), definition.summary.to_owned()]))
}

/// Definitions in full, of figures for files or of those for reports.
fn definitions(asked: bool) -> String {
    let wanted = DEFINITIONS.iter().filter(|definition| definition.usage.is_empty() != asked);
    let section = |definition: &Definition| {
        let usage = if definition.usage.is_empty() { "" } else { "Written " };
        let usage = format!("{usage}{}{}", definition.usage, if usage.is_empty() { "" } else { ". " });
        let summary = definition.summary;
        let first = summary.chars().next().expect("a summary has words").to_uppercase().to_string();
        let unit = if definition.unit == "1" { "none, a ratio" } else { definition.unit };
        format!(
            "### `{}`\n\n{first}{}. {usage}\n\n- Formula: {}\n- Unit: {unit}\n- Samples: {}\n- Good for: {}\n- Traps: {}\n",
            definition.name,
            &summary[first.len()..],
            definition.formula,
            definition.samples,
            definition.good_for,
            definition.traps,
        )
        .replace(" \n", "\n")
    };
    wanted.map(section).collect::<Vec<_>>().join("\n")
}

fn limits() -> String {
    let settings = Settings::layered(None, &[]).expect("the defaults are good");
    let row = |what: &str, limit: String, by: &str| {
        let by = if by.is_empty() { String::new() } else { format!("`--config {by}=`") };
        [what.to_owned(), limit, by]
    };
    let operations = settings.max_operations;
    table(
        ["what", "limit", "raised by"],
        [
            row("bytes of a file", Bytes(settings.max_file_bytes as u64).to_string(), "max_file_bytes"),
            row("nesting of brackets", settings.max_nesting.to_string(), "max_nesting"),
            row("operations of an iteration, or of all slots of a cycle", operations.to_string(), "max_operations"),
            row("turns of one loop", operations.to_string(), "max_operations"),
            row("turns of all loops", (operations * limits::TURNS_PER_OPERATION).to_string(), "max_operations"),
            row("memory of a rank", settings.max_memory.to_string(), "max_memory"),
            row("streams", limits::STREAMS.to_string(), ""),
            row("buffers of a family, along one index", limits::BUFFERS.to_string(), ""),
            row("slots of a cycle", limits::CYCLE.to_string(), ""),
            row("nesting of calls", limits::CALLS.to_string(), ""),
            row("values in a list", limits::LIST.to_string(), ""),
            row("nesting of lists", limits::LIST_DEPTH.to_string(), ""),
            row("values in all lists", limits::MEMBERS.to_string(), ""),
            row("figures in all families of metrics", limits::FIGURES.to_string(), ""),
            row("tensors in one `map`", limits::INPUTS.to_string(), ""),
        ],
    )
}

/// Every setting, with the flag of `aorta exec` that has its name.
fn settings() -> String {
    let help = Command::new(env!("CARGO_BIN_EXE_aorta")).args(["exec", "--help"]).output().expect("the binary starts");
    let help = String::from_utf8(help.stdout).expect("the help is text");
    table(
        ["setting", "default", "flag", "what it says"],
        SETTINGS.iter().map(|setting| {
            let flag = format!("--{}", setting.name);
            let has_flag = help.split_whitespace().any(|word| word == flag);
            let number = setting.default.parse::<u64>().is_ok();
            let default = if number { setting.default.to_owned() } else { code([setting.default]) };
            let range = setting.range.as_ref().map(|range| format!("; {} to {}", range.start(), range.end()));
            let words = (!setting.words.is_empty()).then(|| format!("; {}", code(setting.words.iter().copied())));
            let what = [Some(setting.help.trim().to_owned()), range, words].into_iter().flatten().collect();
            [code([setting.name]), default, if has_flag { code([flag.as_str()]) } else { String::new() }, what]
        }),
    )
}

/// Every field of a scenario, with the argument that it stands for: of `aorta exec`, or of the named commands.
fn scenario() -> String {
    table(
        ["field", "value", "option that overrides it", "what it says"],
        FIELDS.iter().map(|field| {
            let words = code(field.words.iter().copied());
            let form = if field.words.is_empty() { field.form.to_owned() } else { words };
            let option = field.option.trim_end_matches('=').replacen('=', " ", 1);
            let commands: Vec<String> = field.commands.iter().map(|command| format!("aorta {command}")).collect();
            let of = if field.commands == ["exec"] {
                String::new()
            } else {
                format!(" of {}", code(commands.iter().map(String::as_str)))
            };
            let option = if option.is_empty() { String::new() } else { code([option.as_str()]) + &of };
            [code([field.name]), form, option, field.help.trim().to_owned()]
        }),
    )
}

#[test]
fn tables_are_what_the_code_says() {
    check("docs/start/05-sharing-a-scenario.md", &[("scenario", scenario())]);
    check("docs/settings.md", &[("settings", settings())]);
    check(
        "docs/language-reference.md",
        &[
            ("words", words()),
            ("types", types()),
            ("units", units()),
            ("figures", figures()),
            ("statistics", statistics()),
            ("limits", limits()),
        ],
    );
}

#[test]
fn operations_are_what_the_catalogue_says() {
    let mut tables = vec![("operations", operations::summary())];
    tables.extend(operations::sections());
    check("docs/operations.md", &tables);
}

#[test]
fn commands_are_those_of_the_command_line() {
    check("docs/commands.md", &[("shared", commands::shared()), ("commands", commands::commands())]);
}

#[test]
fn workloads_are_those_that_are_shipped() {
    check("docs/workloads.md", &[("catalogue", workloads::catalogue())]);
}

#[test]
fn definitions_are_what_the_code_says() {
    check("docs/metrics.md", &[("figures of files", definitions(true)), ("figures of reports", definitions(false))]);
}

/// Compares what a page has between its marks with what the code says, or writes it anew.
fn check(file: &str, tables: &[(&str, String)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let page = std::fs::read_to_string(&path).expect("the reference is there");
    let mut written = page.clone();
    for (name, table) in tables {
        let mark = format!("<!-- generated: {name} -->\n");
        let (before, rest) = written.split_once(&mark).unwrap_or_else(|| panic!("{file} lacks {mark}"));
        let (_, after) = rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{mark} has no end"));
        written = format!("{before}{mark}\n{table}\n<!-- end -->{after}");
    }
    assert_eq!(page.matches("<!-- generated: ").count(), tables.len(), "{file}: each table is one of these");
    if std::env::var("AORTA_DOCS").is_ok_and(|mode| mode == "write") {
        std::fs::write(&path, &written).expect("the pages are the repository's own");
    } else {
        let differs = page.lines().zip(written.lines()).find(|(page, code)| page != code);
        assert!(
            page == written,
            "{file} and the code differ, here first: {differs:?}\n\
             AORTA_DOCS=write cargo test --test suite reference:: writes the tables anew"
        );
    }
}
