//! Modules: a file that uses them has the plan of the same file with the definitions written into it, and reads nothing
//! outside of its folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use aorta::compile::{CompileOptions, ModuleText, STANDARD, compile, no_files};
use aorta::report::dump;

/// A fresh folder with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("modules").join(name);
    let _ = fs::remove_dir_all(&root);
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    root
}

/// Standard output, or standard error if the command fails, of `aorta check w/main.aorta` in a folder.
fn check(root: &std::path::Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_aorta"))
        .current_dir(root)
        .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
        .args(["check", "w/main.aorta"])
        .output()
        .expect("the program starts");
    let said = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(said).expect("text"))
}

const MAIN: &str = "use \"parts/blocks.aorta\"\nbuffer n: f32[4]\nstep { c: blocks.twice(n, blocks.factor -> n) \
                    map(c.n + n -> n) }\n";
const BLOCKS: &str = "use \"deep/more.aorta\"\nlet factor = more.three\ndef once(x, f -> y) { map(x * f -> y) }\ndef \
                      twice(x, f -> y) { n: once(x, f)  once(n, factor -> y) }\n";
const MORE: &str = "let three = 3\n";

/// One file with everything that the others hold.
const WHOLE: &str = "let three = 3\nlet factor = three\nbuffer n: f32[4]\ndef once(x, f -> y) { map(x * f -> y) }\ndef \
                     twice(x, f -> y) { m: once(x, f)  once(m, factor -> y) }\nstep { c: twice(n, factor -> n)  map(c.m + n \
                     -> n) }\n";

#[test]
fn a_module_gives_what_its_text_would_give() {
    let find = |path: &str, by: Option<&str>| match (path, by) {
        ("parts/blocks.aorta", None) => Ok(ModuleText::text("blocks".to_owned(), BLOCKS.to_owned())),
        ("deep/more.aorta", Some("blocks")) => Ok(ModuleText::text("more".to_owned(), MORE.to_owned())),
        _ => Err(format!("{path} by {by:?}")),
    };
    let plan = |text: &str| {
        let compiled = compile("main.aorta", text, &CompileOptions { find: &find, ..CompileOptions::default() });
        let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
        (dump::plan(compiled.program(), compiled.plan()), compiled.sha256)
    };
    // Names of labels are all that differs.
    let named = |text: String| text.replace("c.n", "c.m").replace(".n ", ".m ").replace("blocks.", "");
    let ((linked, first), (whole, _)) = (plan(MAIN), plan(WHOLE));
    assert_eq!(named(linked), whole);
    let other = |path: &str, by: Option<&str>| {
        let found = find(path, by)?;
        Ok(ModuleText { text: found.text.replace("three = 3", "three = 4"), ..found })
    };
    let changed = compile("main.aorta", MAIN, &CompileOptions { find: &other, ..CompileOptions::default() });
    assert_ne!(changed.expect("it compiles").sha256, first, "the hash covers modules");
}

#[test]
fn files_are_found_from_the_folder_of_whoever_uses_them() {
    let files = [
        ("w/main.aorta", MAIN),
        ("w/parts/blocks.aorta", BLOCKS),
        ("w/parts/deep/more.aorta", MORE),
        ("more.aorta", ""),
    ];
    let (good, said) = check(&folder("found", &files));
    assert!(good, "{said}");
}

/// Paths that leave the folder of the workload, directly, through a link, or into a hidden folder.
#[test]
fn nothing_outside_of_the_folder_is_read() {
    let secret = "def twice(x, f -> y) { map(x * f -> y) }\nlet factor = 2\n";
    for (name, path) in [("above", "../secret.aorta"), ("hidden", ".git/secret.aorta"), ("linked", "linked.aorta")] {
        let main = MAIN.replace("parts/blocks.aorta", path).replace("blocks.", "secret.");
        let main = main.replace("secret.", if name == "linked" { "linked." } else { "secret." });
        let files = [("w/main.aorta", main.as_str()), ("w/.git/secret.aorta", secret), ("secret.aorta", secret)];
        let root = folder(name, &files);
        fs::write(root.join("w/main.aorta"), main).expect("a file");
        std::os::unix::fs::symlink("../secret.aorta", root.join("w/linked.aorta")).expect("a link");
        let (good, said) = check(&root);
        assert!(!good && said.contains("aorta::model::unknown_module"), "{name}: {said}");
    }
    let absolute = folder("absolute", &[("secret.aorta", secret)]);
    let main = MAIN.replace("parts/blocks.aorta", &absolute.join("secret.aorta").display().to_string());
    fs::create_dir_all(absolute.join("w")).expect("a folder");
    fs::write(absolute.join("w/main.aorta"), main.replace("blocks.", "secret.")).expect("a file");
    let (good, said) = check(&absolute);
    // Where lines of the message break depends on the length of the path.
    let words: Vec<&str> =
        said.split(|c: char| c.is_whitespace() || c == '│').filter(|word| !word.is_empty()).collect();
    assert!(!good && words.join(" ").contains("it is outside of"), "{said}");
}

/// Every definition of a shipped module is documented, and the module is in the language's form.
#[test]
fn shipped_modules_are_documented_and_formatted() {
    for (name, text) in STANDARD {
        let (ast, errors) = aorta::syntax::parse(text, 0, &aorta::syntax::SyntaxLimits::default());
        assert!(errors.is_empty() && !ast.about.is_empty(), "{name}: {errors:?}");
        assert!(ast.decls.iter().all(|decl| !decl.docs.is_empty()), "{name}: a declaration has no `///`");
        assert_eq!(aorta::syntax::format(text, &aorta::syntax::SyntaxLimits::default()).text, text, "{name}");
        let found = no_files(&format!("std.{name}"), None).expect("it is shipped");
        assert_eq!(found.text, text);
    }
}

/// The sizes that a draw of two values takes from a trace, by iteration: rows in order, the first after the last, the same
/// row of every column. The workload's hash covers the file, and a trace follows the rules of modules.
#[test]
fn a_trace_gives_rows_in_order() {
    let rows = |factor: u64| -> String {
        (0..7).map(|row| format!("{},{}\n", row * factor + 1, row * factor + 100)).collect::<String>()
    };
    let compiled = |column: &str, seed: &str, factor: u64| {
        let find = |path: &str, by: Option<&str>| match (path, by) {
            ("deep/t.csv", None) => Ok(ModuleText::text("t".to_owned(), "a,b\n".to_owned() + &rows(factor))),
            _ => Err("there is none".to_owned()),
        };
        let text = format!(
            "draw d[2] ~ trace(\"deep/t.csv\", column: \"{column}\"{seed})\nstep {{ map(f32[d[0]] * 2)  map(f32[d[1]] * 2) }}"
        );
        let compiled = compile("main.aorta", &text, &CompileOptions { find: &find, ..CompileOptions::default() });
        let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
        let program = compiled.program();
        let size = |op: &aorta::model::Op| program.op_spec(op).expect("a map runs").outputs[0].elements();
        let sizes: Vec<u64> = program.cycle.iter().flat_map(|step| step.ops.iter().map(size)).collect();
        (sizes, compiled.sha256)
    };
    let (first, hash) = compiled("a", "", 1);
    assert_eq!(first, (0..128).map(|index| index % 7 + 1).collect::<Vec<u64>>());
    assert_ne!(compiled("a", "", 2).1, hash, "the hash covers the trace");
    let starts: BTreeSet<u64> = (0..20)
        .map(|seed| {
            let seeded = |column: &str| compiled(column, &format!(", seed: {seed}"), 1).0;
            let (a, b) = (seeded("a"), seeded("b"));
            let start = a[0] - 1;
            assert_eq!(a, (0..128).map(|index| (start + index) % 7 + 1).collect::<Vec<u64>>(), "seed {seed}");
            assert!(a.iter().zip(&b).all(|(a, b)| a + 99 == *b), "seed {seed}: columns of the same row");
            start
        })
        .collect();
    assert!(starts.len() > 3, "seeds choose rows: {starts:?}");
}
