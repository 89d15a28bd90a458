//! Each operation of the catalogue is in every list that exercises operations. `tests/fuzzing.rs` checks the grammar of
//! the fuzz targets, `tests/docs` the language's page.

use std::collections::BTreeSet;

use aorta::ops::{CATALOGUE, Category, Input, OptionSpec, OptionType, Property, host_operations};
use aorta::syntax::{DECLARATIONS, RESERVED, STATEMENTS};

/// The options of all operations, including their scalar inputs.
fn options() -> impl Iterator<Item = &'static OptionSpec> {
    CATALOGUE.iter().flat_map(|operation| {
        let signature = operation.signature();
        let scalars = signature.inputs.iter().filter_map(|input| match input {
            Input::Scalar(option) => Some(option),
            _ => None,
        });
        scalars.chain(signature.options)
    })
}

#[test]
fn the_fuzz_dictionary_has_the_words_of_the_language_and_of_every_operation() {
    let dictionary = include_str!("../fuzz/aorta.dict");
    let names = CATALOGUE.iter().map(|operation| operation.name());
    let named = CATALOGUE.iter().flat_map(|operation| operation.signature().options).map(|option| option.name);
    let choices = options().flat_map(|option| match option.kind {
        OptionType::Word(words) => words,
        _ => &[],
    });
    let language = DECLARATIONS.into_iter().chain(STATEMENTS).chain(RESERVED);
    let words = names.chain(named).chain(choices.copied()).chain(language);
    let lacks: BTreeSet<&str> = words.filter(|word| !dictionary.contains(&format!("\n\"{word}\"\n"))).collect();
    assert!(lacks.is_empty(), "fuzz/aorta.dict lacks {lacks:?}");
}

#[test]
fn the_gpu_benchmark_compares_every_operation_that_has_a_result() {
    let benchmark = concat!(
        include_str!("../benches/h200/operation_cases.py"),
        include_str!("../benches/h200/product_cases.py"),
        include_str!("../benches/h200/attention_cases.py"),
        include_str!("../benches/h200/window_cases.py")
    );
    // Synthetic operations work on data of their own.
    let results = CATALOGUE
        .iter()
        .filter(|operation| !operation.signature().outputs.is_empty() && operation.category() != Category::Synthetic)
        .filter(|operation| !operation.has(Property::HostOnly));
    let compared = |name: &str| benchmark.contains(&format!("\"{name}\"")) && benchmark.contains(&format!("{name}("));
    let lacks: Vec<&str> = results.map(|operation| operation.name()).filter(|name| !compared(name)).collect();
    assert!(lacks.is_empty(), "benches/h200/operation_cases.py compares no {lacks:?}");
}

#[test]
fn the_file_of_operations_uses_every_operation_of_one_rank() {
    let file = include_str!("workloads/operations.aorta");
    let alone = CATALOGUE.iter().filter(|operation| operation.category() != Category::Collective);
    let uses = |text: &str, name: &str| text.split(name).skip(1).any(|rest| rest.starts_with('('));
    let on_device = alone.filter(|operation| !operation.has(Property::HostOnly));
    let lacks: Vec<&str> = on_device.map(|operation| operation.name()).filter(|name| !uses(file, name)).collect();
    assert!(lacks.is_empty(), "tests/workloads/operations.aorta uses no {lacks:?}");
    let file = include_str!("workloads/host.aorta");
    let lacks: Vec<&str> = host_operations().into_iter().filter(|name| !uses(file, name)).collect();
    assert!(lacks.is_empty(), "tests/workloads/host.aorta uses no {lacks:?}");
}
