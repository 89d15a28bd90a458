//! Every mistake has its message: each case is a file with mistakes, its snapshot the file and what is said of it.

mod common;

use aorta::base::SourceMap;
use aorta::model::{self, Options};
use aorta::plan;
use aorta::render::{self, Style};
use aorta::syntax::{self, Limits};

/// Everything that is said of a text, by all phases that get to see it.
fn messages(name: &str, text: &str) -> String {
    let mut sources = SourceMap::new();
    let base = sources.add(name, text).expect("a case is small");
    let (ast, errors) = syntax::parse(text, base, &Limits::default());
    let show = |diagnostic: &dyn miette::Diagnostic| render::text(diagnostic, &sources, Style::default());
    if !errors.is_empty() {
        // Of a text that cannot be read, nothing else tells what to type.
        let helpless = errors.iter().find(|error| miette::Diagnostic::help(*error).is_none());
        assert!(helpless.is_none(), "{name}: this has no help: {helpless:?}");
        return errors.iter().map(|error| show(error)).collect();
    }
    let program = match model::analyze(&ast, &Options { max_operations: 10_000, ..Options::default() }) {
        Ok(program) => program,
        Err(errors) => return errors.iter().map(|error| show(error)).collect(),
    };
    match plan::build(&program) {
        Ok(_) => "good\n".to_owned(),
        Err(errors) => errors.iter().map(|error| show(error)).collect(),
    }
}

#[test]
fn cases() {
    insta::glob!("diagnostics/*/*.aorta", |path: &Path| {
        let text = std::fs::read_to_string(path).expect("a case is a readable file");
        let name = path.file_name().and_then(|name| name.to_str()).expect("cases have plain names");
        let shown = messages(name, &text);
        assert_ne!(shown, "good\n", "{name} is there for its mistakes");
        insta::assert_snapshot!(format!("{}\n{shown}", text.chars().take(2000).collect::<String>()));
    });
}
