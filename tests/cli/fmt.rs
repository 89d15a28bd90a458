//! `aorta fmt`.

use std::io::Write;
use std::process::Stdio;

use super::sandbox::{Output, Sandbox, finish};

const UGLY: &str = "param  a=3 // three\nstep{nop( )}\n";
const NICE: &str = "param a = 3  // three\nstep { nop() }\n";

/// Runs the binary on what it is given at standard input.
fn piped(sandbox: &Sandbox, arguments: &[&str], input: &str) -> Output {
    let mut child = sandbox.command(arguments).stdin(Stdio::piped()).spawn().expect("the binary starts");
    // With invalid arguments, the command ends without reading its input.
    match child.stdin.take().expect("piped").write_all(input.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.expect("the binary reads"),
    }
    finish(child)
}

#[test]
fn files_change_in_place() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", UGLY);
    sandbox.write("b.aorta", NICE);
    assert_eq!(sandbox.good(&["fmt", "a.aorta", "b.aorta"]), "a.aorta\n", "the names of those that changed");
    assert_eq!([sandbox.read("a.aorta"), sandbox.read("b.aorta")], [NICE, NICE]);
    assert_eq!(sandbox.good(&["fmt", "a.aorta", "b.aorta"]), "");
    assert_eq!(sandbox.listing(), ["a.aorta", "b.aorta"], "nothing else is left");
}

#[test]
fn a_check_shows_and_changes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", format!("{UGLY}\nmetric m=time\n"));
    sandbox.write("b.aorta", NICE);
    let output = sandbox.run(&["fmt", "--check", "a.aorta", "b.aorta"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), ""));
    let difference = "\
--- a.aorta
+++ a.aorta (formatted)
@@ -1,4 +1,4 @@
-param  a=3 // three
-step{nop( )}
+param a = 3  // three
+step { nop() }
 
-metric m=time
+metric m = time
";
    assert_eq!(output.stdout, difference);
    assert!(sandbox.read("a.aorta").starts_with(UGLY));
    let output = sandbox.run(&["fmt", "--check", "b.aorta"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn a_folder_is_all_of_its_files() {
    let sandbox = Sandbox::new();
    for name in ["in/b.aorta", "in/deep/er/a.aorta", "in/.hidden.aorta", "in/notes.txt", "elsewhere/c.aorta"] {
        sandbox.write(name, UGLY);
    }
    {
        std::os::unix::fs::symlink("../elsewhere", sandbox.path("in/linked")).expect("a link can be made");
        std::os::unix::fs::symlink("../elsewhere/c.aorta", sandbox.path("in/c.aorta")).expect("a link can be made");
    }
    assert_eq!(sandbox.good(&["fmt", "in"]), "in/.hidden.aorta\nin/b.aorta\nin/deep/er/a.aorta\n");
    for name in ["in/notes.txt", "elsewhere/c.aorta"] {
        assert_eq!(sandbox.read(name), UGLY, "{name}");
    }
    std::fs::create_dir(sandbox.path("empty")).expect("a folder can be made");
    let output = sandbox.run(&["fmt", "empty", "elsewhere"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), "elsewhere/c.aorta\n"));
    assert!(output.stderr.contains("empty cannot be read: the folder holds no file"), "{}", output.stderr);
}

#[test]
fn whole_parts_of_a_broken_file_are_formatted() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "\n\nlet  a=(1 2)\nstep{nop( )}\n");
    let output = sandbox.run(&["fmt", "a.aorta"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), "a.aorta\n"));
    assert_eq!(sandbox.read("a.aorta"), "let  a=(1 2)\nstep { nop() }\n");
    assert!(output.stderr.contains("[a.aorta:1:"), "places are those of the file as it is now: {}", output.stderr);
    let again = sandbox.run(&["fmt", "--check", "a.aorta"]);
    assert_eq!((again.code, again.stdout.as_str(), &again.stderr), (Some(2), "", &output.stderr));
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let sandbox = Sandbox::new();
    sandbox.write("first.aorta", "step {");
    sandbox.write("good.aorta", UGLY);
    sandbox.write("bytes.aorta", b"step \xff");
    let output = sandbox.run(&["fmt", "first.aorta", "none.aorta", "bytes.aorta", "good.aorta"]);
    assert_eq!((output.code, sandbox.read("good.aorta").as_str()), (Some(2), NICE));
    for says in ["first.aorta:1:6", "none.aorta cannot be read: there is no such file", "bytes.aorta cannot be read"] {
        assert!(output.stderr.contains(says), "{says:?} is not in\n{}", output.stderr);
    }
    assert_eq!(std::fs::read(sandbox.path("bytes.aorta")).expect("it is still there"), b"step \xff");
}

#[test]
fn standard_input_goes_to_standard_output() {
    let sandbox = Sandbox::new();
    let output = piped(&sandbox, &["fmt", "-"], UGLY);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), NICE, ""));
    let output = piped(&sandbox, &["fmt", "-"], "");
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""));
    let output = piped(&sandbox, &["fmt", "--check", "-"], UGLY);
    assert_eq!(output.code, Some(1));
    assert!(output.stdout.starts_with("--- standard input\n+++ standard input (formatted)\n"), "{}", output.stdout);
    let output = piped(&sandbox, &["fmt", "-"], "let  a=\nlet  b=1");
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), "let  a=\nlet b = 1\n"));
    assert!(output.stderr.contains("[standard input:1:"), "{}", output.stderr);
    sandbox.write("a.aorta", UGLY);
    let output = piped(&sandbox, &["fmt", "-", "a.aorta"], UGLY);
    assert_eq!((output.code, output.stdout.as_str(), sandbox.read("a.aorta").as_str()), (Some(2), "", UGLY));
    assert!(output.stderr.contains("standard input must be the only file"), "{}", output.stderr);
}

#[test]
fn limits_are_those_of_every_command() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "let  a=((((1))))\n");
    let output = sandbox.run(&["fmt", "a.aorta", "--config", "max_nesting=3"]);
    assert_eq!((output.code, sandbox.read("a.aorta").as_str()), (Some(2), "let  a=((((1))))\n"));
    assert!(output.stderr.contains("aorta::syntax::too_deep"), "{}", output.stderr);
    let output = sandbox.run(&["fmt", "a.aorta", "--config", "max_file_bytes=8"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("larger than 8 bytes"), "{}", output.stderr);
}

#[test]
fn a_file_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    let mode = |name: &str| std::fs::metadata(sandbox.path(name)).expect("it is there").permissions().mode() & 0o777;
    let set = |name: &str, mode: u32| {
        std::fs::set_permissions(sandbox.path(name), PermissionsExt::from_mode(mode)).expect("it is our own");
    };
    sandbox.write("a.aorta", UGLY);
    set("a.aorta", 0o750);
    std::os::unix::fs::symlink("a.aorta", sandbox.path("link.aorta")).expect("a link can be made");
    sandbox.good(&["fmt", "link.aorta"]);
    assert_eq!((mode("a.aorta"), sandbox.read("a.aorta").as_str()), (0o750, NICE));
    assert!(sandbox.path("link.aorta").is_symlink(), "a link stays one");
    sandbox.write("fixed.aorta", UGLY);
    set("fixed.aorta", 0o444);
    let output = sandbox.run(&["fmt", "fixed.aorta"]);
    assert_eq!((output.code, sandbox.read("fixed.aorta").as_str()), (Some(2), UGLY));
    assert!(output.stderr.contains("fixed.aorta cannot be written: it is read-only"), "{}", output.stderr);
}
