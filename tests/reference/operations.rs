//! The tables of docs/operations.md: how each operation is written, its options, the element types that it takes, what an
//! example costs and how fast it was measured.

use std::path::Path;

use aorta::base::units::Flops;
use aorta::base::{Bytes, DType};
use aorta::compile;
use aorta::compile::{ModuleText, RankCount};
use aorta::model::OpKind;
use aorta::ops::{self, Cost, DataFile, Operation, Preset};

use super::{code, table};
use crate::common;

/// A use of each operation.
const EXAMPLES: &str = include_str!("../workloads/examples.aorta");

/// Measured speeds: operations, their form, page, date, device, seeds, and the figures of each seed.
const SPEEDS: &str = include_str!("../../docs/measurements/operations.csv");

/// The table of all operations.
pub fn summary() -> String {
    let row = |operation: &&'static dyn Operation| {
        let name = operation.name();
        [
            format!("[`{name}`](#{name})"),
            operation.signature().summary.to_owned(),
            operation.category().name().to_owned(),
        ]
    };
    table(["operation", "does", "category"], ops::CATALOGUE.iter().map(row))
}

/// The page's rows of each operation, by its name.
pub fn sections() -> Vec<(&'static str, String)> {
    let costs = costs(EXAMPLES);
    let section = |operation: &&'static dyn Operation| {
        let name = operation.name();
        let (statement, example) = example(name);
        let (_, cost) =
            costs.iter().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("no example of {name}"));
        let types = types(statement);
        let mut rows = vec![
            ["written".to_owned(), format!("`{}`", ops::usage(*operation))],
            ["category".to_owned(), operation.category().name().to_owned()],
        ];
        if !types.is_empty() {
            rows.push(["element types".to_owned(), types]);
        }
        rows.push(["example".to_owned(), format!("`{}`: {}", typed(&example), shown(cost))]);
        rows.extend(speeds(name));
        let options = options(*operation);
        (name, table(["property", "value"], rows) + if options.is_empty() { "" } else { "\n" } + &options)
    };
    ops::CATALOGUE.iter().map(section).collect()
}

/// The options of an operation as a table; an empty text if it has none.
fn options(operation: &dyn Operation) -> String {
    let options = operation.signature().options;
    if options.is_empty() {
        return String::new();
    }
    let rows = options.iter().map(|option| {
        let default = match option.default {
            Preset::Required => "required".to_owned(),
            Preset::Absent => String::new(),
            Preset::Int(value) => format!("`{value}`"),
            Preset::Number(value) => format!("`{value}`"),
            Preset::Bool(value) => format!("`{value}`"),
            Preset::Word(word) => format!("`{word}`"),
        };
        [format!("`{}`", option.name), option.kind.describe(), default, option.doc.to_owned()]
    });
    table(["option", "type", "default", "meaning"], rows)
}

/// The statement of the examples that uses an operation, and the call itself on one line.
fn example(name: &str) -> (&'static str, String) {
    let at = EXAMPLES.find(&format!(" {name}(")).map(|at| at + 1);
    let at = at.unwrap_or_else(|| panic!("tests/workloads/examples.aorta has no use of `{name}`"));
    let mut depth = 0;
    let end = EXAMPLES[at..].char_indices().find(|(_, letter)| {
        depth += i32::from(*letter == '(') - i32::from(*letter == ')');
        *letter == ')' && depth == 0
    });
    let (end, _) = end.expect("the file parses");
    let call = EXAMPLES[at..=at + end].split_whitespace().collect::<Vec<_>>().join(" ");
    let first = EXAMPLES[..at].rfind('\n').map_or(0, |at| at + 1);
    let last = EXAMPLES[at + end..].find('\n').map_or(EXAMPLES.len(), |more| at + end + more);
    (&EXAMPLES[first..last], call.replace("( ", "(").replace(", )", ")"))
}

/// A call with the types of its buffers in place of their names.
fn typed(call: &str) -> String {
    let declared = EXAMPLES.lines().filter_map(|line| line.strip_prefix("buffer ")?.split_once(": "));
    let types: Vec<(&str, &str)> = declared
        .flat_map(|(names, dtype)| names.split(", ").map(move |name| (name, dtype.trim_end_matches(" in pinned"))))
        .collect();
    let of = |word: &str| {
        types.iter().find(|(name, _)| *name == word).map_or(word.to_owned(), |(_, dtype)| (*dtype).to_owned())
    };
    let (mut text, mut word) = (String::new(), String::new());
    for letter in call.chars() {
        if letter.is_alphanumeric() || letter == '_' {
            word.push(letter);
        } else {
            text += &of(&std::mem::take(&mut word));
            text.push(letter);
        }
    }
    text.replace("dtype", "bf16")
}

/// Any file with data, as long as an example may need; nothing reads it.
fn any_file(path: &str, _: Option<&str>) -> Result<ModuleText, String> {
    let file = DataFile { path: path.into(), bytes: 1 << 40, read: |_, _, _| Err("it is an example".to_owned()) };
    Ok(ModuleText { data: Some(file.into()), ..ModuleText::text(path.to_owned(), String::new()) })
}

/// Cost of each operation of a file on two ranks.
fn costs(text: &str) -> Vec<(&'static str, Cost)> {
    let options =
        compile::CompileOptions { ranks: RankCount::Exactly(2), find: &any_file, ..compile::CompileOptions::default() };
    let compiled = common::compile("examples.aorta", text, &options).unwrap_or_else(|errors| panic!("{errors}"));
    let mut costs = Vec::new();
    for rank in &compiled.ranks {
        let step = &rank.program.cycle[0];
        costs.extend(
            step.ids()
                .filter_map(|op| match step.op(op).kind {
                    OpKind::Run(spec) => Some(rank.program.spec(spec)),
                    _ => None,
                })
                .map(|spec| (spec.operation.name(), spec.cost())),
        );
    }
    costs
}

/// The types that can stand in place of `dtype` in a statement of the examples; an empty text if it has no tensor of it.
fn types(statement: &str) -> String {
    let header = EXAMPLES.split("step {").next().expect("a text has a first part");
    let fits = |dtype: &DType| {
        let header = header.replace("param dtype = bf16", &format!("param dtype = {}", dtype.name()));
        let text = format!("{header}step {{\n  on s {{\n{statement}\n  }}\n}}\n");
        let options = compile::CompileOptions {
            ranks: RankCount::Exactly(2),
            find: &any_file,
            ..compile::CompileOptions::default()
        };
        common::compile("examples.aorta", &text, &options).is_ok()
    };
    let buffers = header.lines().filter(|line| line.contains(": dtype["));
    let mut buffers = buffers.filter_map(|line| line.strip_prefix("buffer ")?.split(':').next());
    let has_tensor = statement.contains("dtype[")
        || buffers.any(|name| statement.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == name));
    if has_tensor {
        code(DType::ALL.iter().filter(|dtype| fits(dtype)).map(|dtype| dtype.name()))
    } else {
        String::new()
    }
}

fn shown(cost: &Cost) -> String {
    let mut parts = Vec::new();
    if cost.flops > 0.0 {
        parts.push(Flops(cost.flops).to_string());
    }
    let bytes = [
        (cost.read.total(), "read"),
        (cost.written.total(), "written"),
        (cost.sent, "sent"),
        (cost.received, "received"),
    ];
    parts.extend(bytes.iter().filter(|(bytes, _)| *bytes > 0).map(|(bytes, what)| format!("{} {what}", Bytes(*bytes))));
    if cost.blocks > 0 {
        parts.push(format!("{} thread block{}", cost.blocks, if cost.blocks == 1 { "" } else { "s" }));
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// The rows of an operation's measured speeds: one for each form that was measured.
fn speeds(name: &str) -> Vec<[String; 2]> {
    let rows = SPEEDS.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let own = rows.filter(|row| row[0].split(' ').any(|operation| operation == name));
    let mut found: Vec<[String; 2]> = own.map(|row| [named(row[1]), speed(name, &row)]).collect();
    found.sort();
    if found.is_empty() {
        found.push([named(""), "not measured".to_owned()]);
    }
    found
}

/// The name of a row with the speed of a form of an operation.
fn named(form: &str) -> String {
    if form.is_empty() { "speed".to_owned() } else { format!("speed, {form}") }
}

/// A measured speed of an operation, with its page. The page has to have the figures.
fn speed(name: &str, row: &[&str]) -> String {
    let [_, _, page, date, device, seeds, median, tenth, worst] = *row else {
        panic!("a row has nine fields: {row:?}")
    };
    let each = |field: &str| field.replace(' ', ", ");
    let figures = format!("| {} | {} | {} |", each(median), each(tenth), each(worst));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/measurements").join(page);
    let text = std::fs::read_to_string(path).expect("the page is there");
    assert!(text.contains(&figures), "docs/measurements/{page} has no row {figures} of `{name}`");
    format!(
        "median {}; worst tenth {}; worst {} ({device}, [{date}](measurements/{page}), {} {})",
        each(median),
        each(tenth),
        each(worst),
        if seeds.contains(' ') { "seeds" } else { "seed" },
        each(seeds)
    )
}
