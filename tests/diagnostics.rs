//! Snapshots of every diagnostic. A case is a file with mistakes in the folder of its phase; its snapshot, beside it,
//! has the file and the output of `aorta check`. A first line `// arguments: …` is passed to the command.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use aorta::base::SourceMap;
use aorta::render::{self, Style};
use aorta::syntax::{self, SyntaxLimits};

/// Source files with the codes of each phase.
const ERRORS: [&str; 18] = [
    "src/syntax/error.rs",
    "src/syntax/slashes.rs",
    "src/model/error.rs",
    "src/model/error/gradients.rs",
    "src/model/error/host_streams.rs",
    "src/model/error/kernels.rs",
    "src/model/error/limits.rs",
    "src/model/error/modules.rs",
    "src/model/error/peers.rs",
    "src/model/error/slices.rs",
    "src/model/error/structure.rs",
    "src/model/error/traces.rs",
    "src/model/lint/mod.rs",
    "src/ops/call/error.rs",
    "src/plan/error.rs",
    "src/plan/lint.rs",
    "src/schedule/advice/mod.rs",
    "src/schedule/lint.rs",
];

/// Maximum number of characters of a case that are shown.
const SHOWN: usize = 2500;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of all phases with this extension, sorted.
fn files(ending: &str) -> Vec<PathBuf> {
    let folder = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).expect("the folder can be listed");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let phases = folder(&project().join("tests/diagnostics"));
    let mut files: Vec<PathBuf> = phases.iter().filter(|path| path.is_dir()).flat_map(|path| folder(path)).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == ending));
    files.sort();
    files
}

/// The command's output for a case, as text or as JSON.
fn said(case: &Path, text: &str, format: &str) -> String {
    let arguments = text.lines().next().and_then(|line| line.strip_prefix("// arguments: ")).unwrap_or_default();
    let output = Command::new(env!("CARGO_BIN_EXE_aorta"))
        .current_dir(case.parent().expect("a case lies in a folder"))
        // The user's settings must not have an effect.
        .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
        .arg("check")
        .arg(case.file_name().expect("a case has a name"))
        .args(arguments.split_whitespace())
        .args(["--diagnostics", format])
        .output()
        .expect("the program starts");
    // A file with warnings only is valid.
    assert!(matches!(output.status.code(), Some(0 | 2)), "{}: {}", case.display(), output.status);
    let said = if format == "json" { output.stdout } else { output.stderr };
    assert!(!said.is_empty(), "{} is there for what is said of it", case.display());
    String::from_utf8(said).expect("messages are text")
}

/// Compares with the snapshot beside a case.
fn check(case: &Path, text: &str, said: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(case.parent().expect("a case lies in a folder"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let name = case.file_stem().and_then(|name| name.to_str()).expect("cases have plain names");
    let shown: String = text.chars().take(SHOWN).collect();
    settings.bind(|| insta::assert_snapshot!(name, format!("{shown}\n{said}")));
}

#[test]
fn cases() {
    for case in crate::common::effort::due(files("aorta")) {
        let text = fs::read_to_string(&case).expect("a case is a readable file");
        check(&case, &text, &said(&case, &text, "text"));
    }
}

/// A text that cannot be parsed has no other source of advice.
#[test]
fn every_syntax_error_has_a_help() {
    if !crate::common::effort::is_due() {
        return;
    }
    for case in files("aorta") {
        let text = fs::read_to_string(&case).expect("a case is a readable file");
        for line in said(&case, &text, "json").lines() {
            let told: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
            let code = told["code"].as_str().expect("each has a code");
            assert!(!code.starts_with("aorta::syntax::") || told["help"].is_string(), "{}: {line}", case.display());
        }
    }
}

/// The command refuses a large file before it is parsed; users of the library get the limit's error.
#[test]
fn a_text_that_is_too_large_for_the_library() {
    let text = "step { nop() }\n";
    let (_, errors) = syntax::parse(text, 0, &SyntaxLimits { file_bytes: 10, ..SyntaxLimits::default() });
    let said: String = errors.iter().map(|error| render::text(error, &SourceMap::new(), Style::default())).collect();
    check(&project().join("tests/diagnostics/syntax/file_too_large.aorta"), text, &said);
}

#[test]
fn every_code_has_a_case() {
    let snapshots: Vec<String> = files("snap").iter().map(|file| fs::read_to_string(file).expect("readable")).collect();
    let told: BTreeSet<&str> =
        snapshots.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("aorta::")).collect();
    let texts = ERRORS.map(|file| fs::read_to_string(project().join(file)).expect("readable"));
    let codes: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| text.split("code(").skip(1))
        .map(|rest| &rest[..rest.find(')').expect("a code is closed")])
        .filter(|code| code.starts_with("aorta::"))
        .collect();
    assert!(codes.len() > 60, "the codes are found: {codes:?}");
    let missing: Vec<&&str> = codes.difference(&told).collect();
    assert!(missing.is_empty(), "no case in tests/diagnostics shows {missing:?}");
}

#[test]
fn every_snapshot_has_a_case() {
    let cases: BTreeSet<PathBuf> = files("aorta").into_iter().collect();
    let left: Vec<PathBuf> =
        files("snap").into_iter().filter(|file| !cases.contains(&file.with_extension("aorta"))).collect();
    assert_eq!(left, [project().join("tests/diagnostics/syntax/file_too_large.snap")], "made by a test of its own");
}
