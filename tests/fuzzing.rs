//! The fuzz targets without their fuzzer: stored inputs and changed ones keep the properties. The generator of inputs makes files that
//! are mostly valid, and that use the whole language together.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::path::Path;
use std::process::Command;

use aorta::base::random::hash;
use aorta::base::{DType, Space, units};
use aorta::compile::{self, Parsed, RankCount};
use aorta::model::{self, AnalysisOptions, Figure, Program, Statistic};
use aorta::ops::CATALOGUE;
use aorta::syntax::{self, SyntaxLimits};

use crate::common::constructs::{self, Constructs};
use crate::common::effort::{chosen, draws, turn};
use crate::common::{invariants, oracle, parallel, records as reports, reparsed};

#[path = "../fuzz/src/grammar/mod.rs"]
mod grammar;
#[path = "../fuzz/src/properties.rs"]
#[allow(dead_code, reason = "the fuzz targets use the rest")]
mod properties;
#[path = "../fuzz/src/records.rs"]
mod records;
#[path = "../fuzz/src/targets.rs"]
mod targets;
#[path = "../fuzz/src/wire.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod wire;

/// Number of generated files.
const FILES: u32 = 1000;

/// Bytes of choices, determined by the number.
fn choices(number: u64) -> Vec<u8> {
    let length = 40 + hash(1, number) % 600;
    (0..length).map(|index| hash(number + 2, index) as u8).collect()
}

/// The program of one rank; `None` if the text has mistakes.
fn program(text: &str) -> Option<Program> {
    let parsed = compile::parse("generated.aorta", text, &SyntaxLimits::default(), &grammar::files::find).ok()?;
    let Parsed { ast, errors, traces, files, .. } = parsed;
    let options = AnalysisOptions { cycle: 4, max_operations: 4000, traces, files, ..AnalysisOptions::default() };
    errors.is_empty().then(|| model::analyze(&ast, &options).ok())?
}

/// True if three ranks of the program match.
fn fits_together(text: &str) -> bool {
    let (ranks, default) = (RankCount::Exactly(3), compile::CompileOptions::default());
    let find = &grammar::files::find;
    let options = compile::CompileOptions { ranks, cycle: 4, max_operations: 4000, find, ..default };
    aorta::compile("generated.aorta", text, &options).is_ok()
}

/// Half of the generated files are meant to be valid. Nearly all of them are, on one rank and on three; most of the
/// other half, which was changed, are not.
#[test]
fn more_than_half_of_the_generated_files_are_accepted() {
    if !crate::common::effort::is_due() {
        return;
    }
    let (mut valid, mut together, mut any) = (0, 0, 0);
    let files = u64::from(draws(FILES).max(200));
    for number in 0..files {
        let text = grammar::valid(&choices(number));
        let accepted = program(&text).is_some();
        valid += u64::from(accepted);
        together += u64::from(accepted && fits_together(&text));
        any += u64::from(program(&grammar::text(&choices(number))).is_some());
    }
    println!("of {files}: {valid} valid, {together} on three ranks; {any} of all inputs");
    assert!(valid * 100 >= files * 97, "{valid} of {files} are valid");
    assert!(together * 100 >= files * 85, "{together} of {files} are good for three ranks");
    assert!(any * 2 >= files, "{any} of {files} inputs are accepted");
}

#[test]
fn generated_files_use_the_whole_language() {
    if !crate::common::effort::is_due() {
        return;
    }
    let (mut constructs, mut operations) = (Constructs::default(), BTreeSet::new());
    for number in 0..u64::from(FILES) {
        let text = grammar::valid(&choices(number));
        let Some(program) = program(&text) else { continue };
        let (ast, _) = syntax::parse(&text, 0, &SyntaxLimits::default());
        constructs.add(&text, &ast);
        operations.extend(constructs::operations(&program).map(|operation| operation.name()));
        if number % 50 == 49 && unused(&constructs, &operations).is_empty() {
            println!("{} files use all of it", number + 1);
            break;
        }
    }
    assert_eq!(unused(&constructs, &operations), BTreeMap::new());
}

/// Parts of the language that no text and no program uses, by kind.
fn unused(constructs: &Constructs, operations: &BTreeSet<&str>) -> BTreeMap<&'static str, Vec<String>> {
    let found = &constructs.words;
    let missing = |all: &[&str], found: &dyn Fn(&str) -> bool| -> Vec<String> {
        all.iter().filter(|name| !found(name)).map(|name| (*name).to_owned()).collect()
    };
    let in_text = |all: &[&str]| missing(all, &|name| name.split('.').all(|part| found.contains(part)));
    let names: Vec<&str> = CATALOGUE.iter().map(|operation| operation.name()).collect();
    // These are inside groups, which are operations of their own.
    let is_inside = |name: &str| ["send", "recv"].contains(&name) && found.contains(name);
    let options = CATALOGUE.iter().flat_map(|operation| operation.signature().options).map(|option| option.name);
    let units: Vec<&str> = units::UNITS.iter().map(|unit| unit.name).collect();
    let others = [
        "signal",
        "use",
        "parts",
        "transformer",
        "optimizer",
        "grad",
        "accumulate",
        "wait",
        "sync",
        "host_sync",
        "prev",
        "iteration",
        "end",
        "depth",
        "order",
        "races",
        "allow",
        "forbid",
        "data",
        "declared",
        "priority",
        "units",
        "high",
        "normal",
        "low",
        "zeros",
        "ones",
        "iota",
        "random",
        "category",
        "language",
        "seed",
        "tags",
        "version",
        "authors",
        "licence",
        "rank",
        "world",
        "size",
        "slot",
    ];
    let kinds = [
        ("operations", missing(&names, &|name| operations.contains(name) || is_inside(name))),
        ("options", in_text(&options.collect::<Vec<_>>())),
        ("units", missing(&units, &|name| constructs.units.contains(name))),
        ("figures", in_text(&Figure::NAMES)),
        ("statistics", in_text(&Statistic::NAMES)),
        ("element types", in_text(&DType::NAMES)),
        ("spaces", in_text(&Space::NAMES)),
        ("functions", in_text(model::FUNCTIONS)),
        ("distributions", in_text(&model::DISTRIBUTIONS.map(|(name, _)| name))),
        ("words, expressions and operators", constructs.missing().into_iter().map(str::to_owned).collect()),
        ("other words", in_text(&others)),
    ];
    kinds.into_iter().filter(|(_, names)| !names.is_empty()).collect()
}

#[test]
fn generated_files_keep_the_properties_of_the_fuzz_targets() {
    for number in 0..u64::from(draws(150)) {
        let text = grammar::text(&choices(u64::from(FILES) + number));
        properties::text_and_plan(&text);
    }
}

#[test]
fn frames_of_any_bytes_keep_their_property() {
    for number in 0..u64::from(FILES) {
        properties::frames(&choices(number));
    }
}

/// Stored inputs of a target: the fewest that reach all the code that fuzzing has reached.
fn stored(target: &str) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/corpus/{target}.tar.gz"));
    let tar = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status();
    assert!(tar.expect("tar is installed").success());
    let files = std::fs::read_dir(folder.path()).expect("the folder is there");
    let mut files: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a readable file")).collect()
}

/// An input in which one to four bytes are replaced, inserted or removed, or that ends early.
fn changed(input: &[u8], seed: u64) -> Vec<u8> {
    let mut input = input.to_vec();
    for change in 0..1 + hash(seed, 0) % 4 {
        let draw = |index| hash(seed, 1 + 4 * change + index);
        let place = draw(0) as usize % (input.len() + 1);
        match draw(1) % 8 {
            0 => input.truncate(place),
            1 | 2 => input.insert(place, draw(2) as u8),
            3 | 4 if place < input.len() => drop(input.remove(place)),
            _ if place < input.len() => input[place] = draw(2) as u8,
            _ => {}
        }
    }
    input
}

/// In each revision, the changes are others.
#[test]
fn stored_inputs_and_changed_ones_keep_the_properties_of_the_fuzz_targets() {
    if !crate::common::effort::is_due() {
        return;
    }
    let mut inputs: Vec<(targets::Target, Vec<u8>)> = Vec::new();
    let turn = turn() as u64;
    for target in targets::TARGETS {
        for (number, input) in chosen((0..).zip(stored(target.0))) {
            inputs.push((target, changed(&input, hash(turn, number))));
            inputs.push((target, input));
        }
    }
    println!("{} inputs", inputs.len());
    parallel::map(&inputs, |((name, check), input)| {
        let kept = panic::catch_unwind(|| check(input));
        assert!(kept.is_ok(), "target {name}, input \"{}\"", input.escape_ascii());
    });
}
