//! What several test files need.

#![allow(dead_code, reason = "each test file uses a part")]

use aorta::base::SourceMap;
use aorta::model::{self, Options, Program};
use aorta::plan::{self, Plan};
use aorta::render::{self, Style};
use aorta::syntax::{self, Limits};

/// Works a text out, or gives all its diagnostics as people see them.
pub fn analyze_with(text: &str, options: &Options) -> Result<Program, String> {
    let mut sources = SourceMap::new();
    let base = sources.add("test.aorta", text).expect("a test is small");
    let (ast, errors) = syntax::parse(text, base, &Limits::default());
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| render::text(error, &sources, Style::default())).collect());
    }
    model::analyze(&ast, options)
        .map_err(|errors| errors.iter().map(|error| render::text(error, &sources, Style::default())).collect())
}

pub fn analyze(text: &str) -> Result<Program, String> {
    analyze_with(text, &Options::default())
}

/// The program and plan of a text that has no mistakes.
pub fn planned(text: &str) -> (Program, Plan) {
    let program = analyze(text).unwrap_or_else(|errors| panic!("{errors}"));
    let plan = plan::build(&program).unwrap_or_else(|errors| panic!("{errors:?}"));
    (program, plan)
}
