//! Output and formats of `check`, and the commands around it: `explain`, `new`, `completions`, `show`.

use serde_json::Value;

use super::sandbox::{Sandbox, project, workloads};

const WARNED: &str = "\
stream a
stream s[3]
buffer x, unused: f32[8]
step {
  on a { h: map(x + 1 -> x) }
  on s[0] after h { map(x * 2) }
}
";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// The codes in JSON lines, in order.
fn codes(text: &str) -> Vec<String> {
    lines(text).iter().map(|line| line["code"].as_str().expect("each has a code").to_owned()).collect()
}

#[test]
fn warnings_do_not_fail_unless_they_are_asked_to() {
    let sandbox = Sandbox::new();
    sandbox.write("w.aorta", WARNED);
    let output = sandbox.run(&["check", "w.aorta"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(output.stdout, "w.aorta: good: 2 operations on 4 streams\n");
    assert!(output.stderr.ends_with("3 warnings, 1 piece of advice\n"), "{}", output.stderr);
    assert_eq!(sandbox.run(&["check", "w.aorta", "--strict"]).code, Some(1));
    sandbox.write("advice.aorta", "stream s[2] step { on s[0] { nop() } }");
    assert_eq!(sandbox.run(&["check", "advice.aorta", "--strict"]).code, Some(0), "advice is no warning");
    let run = sandbox.run(&["exec", "w.aorta", "--backend", "sim"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), "3 warnings: `aorta check w.aorta` shows them.\n"));
}

#[test]
fn programs_read_json() {
    let sandbox = Sandbox::new();
    sandbox.write("w.aorta", WARNED);
    let output = sandbox.run(&["check", "w.aorta", "--diagnostics", "json"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let wanted = ["model::idle_streams", "model::unused", "plan::redundant_after", "model::unread_result"];
    assert_eq!(codes(&output.stdout), wanted.map(|code| format!("aorta::{code}")));
    let label = &lines(&output.stdout)[1]["labels"][0];
    let place = ["line", "column", "end_line", "end_column", "offset", "length"].map(|key| label[key].as_u64());
    let offset = WARNED.find("unused").expect("it is there") as u64;
    assert_eq!(place, [3, 11, 3, 17, offset, 6].map(Some));
    assert_eq!(label["file"], "w.aorta");
    // Errors of every kind: in a file, in arguments and in settings.
    sandbox.write("e.aorta", "step { nopp() }");
    for (arguments, code) in [
        (&["check", "e.aorta"][..], "model::unknown_operation"),
        (&["exec", "e.aorta"], "model::unknown_operation"),
        (&["plan", "none.aorta"], "cli::unknown_workload"),
        (&["check", "moe", "--config", "x=1"], "config::unknown_setting"),
        (&["exec", "moe", "--backend", "hip"], "exec::no_device"),
        (&["explain", "nothing"], "cli::unknown_code"),
    ] {
        let output = sandbox.run(&[arguments, &["--diagnostics", "json"]].concat());
        assert_eq!(codes(&output.stdout), [format!("aorta::{code}")], "{arguments:?}: {output:?}");
        assert_eq!(output.stderr, "");
    }
    // A valid file has no output.
    assert_eq!(sandbox.good(&["check", "moe", "--diagnostics", "json"]), "");
}

#[test]
fn github_shows_a_line_each() {
    let sandbox = Sandbox::new();
    sandbox.write("w.aorta", WARNED);
    sandbox.write("e.aorta", "step {\n  map(f32[4] + 1us)\n}");
    let warned = sandbox.good(&["check", "w.aorta", "--diagnostics", "github"]);
    insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
        insta::assert_snapshot!("check_github", warned);
    });
    assert_eq!(warned.lines().count(), 4, "one line each");
    let wrong = sandbox.run(&["check", "e.aorta", "--diagnostics", "github"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stdout.starts_with("::error file=e.aorta,line=2,endLine=2,col="), "{}", wrong.stdout);
}

/// `aorta plan` has the warnings of `aorta check --profile`, but not its advice, beside its own page.
#[test]
fn a_plan_warns_of_what_a_device_lacks() {
    let sandbox = Sandbox::new();
    let text = |dtype: &str| {
        format!("buffer scale: f32[1]\nstep {{ scaled_gemm({dtype}[64, 64], {dtype}[64, 64], scale, scale -> _) }}")
    };
    for (profile, dtype, warned) in
        [("mi300x", "e4m3", true), ("h200", "e4m3", false), ("h200", "e5m2", true), ("mi355x", "e5m2", false)]
    {
        sandbox.write("narrow.aorta", text(dtype));
        let output = sandbox.run(&["plan", "narrow.aorta", "--config", &format!("profile={profile}")]);
        assert_eq!(
            (output.code, output.stderr.contains("aorta::schedule::missing_format")),
            (Some(0), warned),
            "{output:?}"
        );
        assert!(output.stderr.is_empty() != warned && output.stdout.contains("1 operation"), "{output:?}");
    }
}

/// Every iteration changes the lengths of sequences: no rate and no share of a peak follows from the room for them.
#[test]
fn lengths_in_a_tensor_leave_rates_unknown() {
    let sandbox = Sandbox::new();
    let text = "buffer q: bf16[4, 8, 1, 64]\nbuffer pool: bf16[2, 64, 8, 16, 64]\nbuffer pages: i32[4, 16] = iota\n\
        buffer lengths: i32[4] = iota\nstep { map(lengths % 7 + 1 -> lengths)  p: paged_attention(q, pool[0], pool[1], pages, lengths -> _) }\nmetric rate = bandwidth(p)";
    sandbox.write("pages.aorta", text);
    let report = sandbox.good(&["exec", "pages.aorta", "--backend", "sim", "--effort", "quick"]);
    assert!(!report.contains("of peak bandwidth"), "{report}");
    assert!(report.contains("how many rows or keys of `p` hold data") && report.contains("rate: no value"), "{report}");
    let row = report.lines().find(|line| line.starts_with("p ")).expect("the operation has a row");
    assert!(row.trim_end().ends_with('–'), "{row}");
}

/// The words of options are no names of the file.
#[test]
fn words_beside_declarations() {
    let sandbox = Sandbox::new();
    let text = "stream low(priority: low)\nstream high(priority: high)\nstream other(priority: low)\nlet relu = 2\n\
        buffer mean: f32[4, 4, 4, 4]\nparam gelu = silu in [silu, relu]\nstep {\n  on low {\n    pool(mean, mode: mean, size: 2 -> _)\n    \
        gemm(f32[relu, 4], f32[4, 4], epilogue: relu -> _)\n    first: gemm(f32[4, 4], f32[4, 4], epilogue: gelu)\n    \
        second: map(first + 0)\n    map(second * 2 -> mean[0, 0])\n  }\n  on high { nop() }\n  on other { nop() }\n}\n";
    sandbox.write("words.aorta", text);
    let dump = sandbox.good(&["plan", "words.aorta"]);
    let priority = |stream: &str| {
        dump.lines().find(|line| line.starts_with(&format!("{stream} ")) && !line.contains('#')).map(str::to_owned)
    };
    for (stream, level) in [("low", "low"), ("high", "high"), ("other", "low")] {
        let line = priority(stream).expect("a stream has a line");
        assert_eq!(line.split_whitespace().nth(1), Some(level), "{line}");
    }
    sandbox.write("wrong.aorta", "buffer mean: f32[4, 4, 4, 4]\nstep { pool(mean, mode: men, size: 2 -> _) }");
    assert_eq!(sandbox.run(&["check", "wrong.aorta"]).code, Some(2));
}

#[test]
fn a_profile_says_what_a_device_makes_of_it() {
    let sandbox = Sandbox::new();
    let text = "param n = 12\nstream s[n]\nbuffer x[n]: f32[1024]\nstep { for i in 0..n { on s[i] { map(x[i] * 2 -> x[i]) } } }";
    sandbox.write("many.aorta", text);
    let told = |arguments: &[&str]| {
        let output = sandbox.run(&[&["check", "many.aorta", "--diagnostics", "json"], arguments].concat());
        (output.code, codes(&output.stdout))
    };
    let device = ["aorta::schedule::shared_queues".to_owned(), "aorta::schedule::launch_bound".to_owned()];
    assert_eq!(told(&[]), (Some(0), Vec::new()));
    assert_eq!(told(&["--profile", "h200"]), (Some(0), device.to_vec()));
    let [queues, launches] = device.clone();
    let amd = vec![queues, "aorta::schedule::graph_branches".to_owned(), launches];
    assert_eq!(told(&["--profile", "mi300x"]), (Some(0), amd));
    assert_eq!(told(&["--profile", "h200", "--set", "n=8"]).1, device[1..]);
    assert_eq!(told(&["--profile", "h20"]), (Some(2), vec!["aorta::config::unknown_profile".to_owned()]));
    // All 150 GB are in use at once: more than an H200 has, and less than the program's limit.
    sandbox.write("large.aorta", "buffer x: f32[25000000000] step { h: map(x + 1) map(h - 1 -> x) }");
    let output = sandbox.run(&["check", "large.aorta", "--profile", "h200"]);
    assert_eq!(output.code, Some(2));
    for part in ["aorta::schedule::too_much_memory", "186.3 GiB of device memory at its peak", "x 93.13 GiB"] {
        assert!(output.stderr.contains(part), "{part} is not in\n{}", output.stderr);
    }
    sandbox.good(&["check", "large.aorta"]);
    let lower = sandbox.run(&["check", "large.aorta", "--config", "max_memory=100GiB"]);
    assert!(lower.stderr.contains("and allowed are 100 GiB"), "{}", lower.stderr);
}

#[test]
fn every_code_is_explained() {
    let sandbox = Sandbox::new();
    let list = sandbox.good(&["explain"]);
    let mut phase = "";
    let mut pages = 0;
    let (codes, figures) = list.split_once("\nmetric\n").expect("figures stand behind the codes");
    for line in codes.lines() {
        if let Some(name) = line.strip_prefix("aorta::") {
            phase = name;
        } else if let Some(entry) = line.strip_prefix("  ") {
            let name = entry.split(' ').next().expect("a line begins with the name");
            let page = sandbox.good(&["explain", &format!("aorta::{phase}::{name}")]);
            assert!(page.starts_with(&format!("`aorta::{phase}::{name}`\n\n")), "{page}");
            assert!(!page.contains("```") && !page.contains("\n# "), "marks are left out: {page}");
            pages += 1;
        }
    }
    assert!(pages > 8, "{list}");
    for entry in figures.lines().filter_map(|line| line.strip_prefix("  ")) {
        let name = entry.split(' ').next().expect("a line begins with the name");
        let text = sandbox.good(&["explain", "metric", name]);
        assert!(text.starts_with(&format!("{name}: ")) && text.contains("\n  formula   "), "{text}");
    }
    assert!(sandbox.good(&["explain", "metric"]).ends_with(figures), "the figures by themselves");
    let described = sandbox.good(&["explain", "operation", "gemm"]);
    assert!(described.starts_with("gemm(a, b, [bias], ") && described.contains("\n  transpose_b "), "{described}");
    assert!(sandbox.good(&["explain", "operation"]).contains("\n  gemm "));
    let unknown = sandbox.run(&["explain", "gemm"]);
    assert!(unknown.stderr.contains("`aorta explain operation gemm`"), "{}", unknown.stderr);
    let unknown = sandbox.run(&["explain", "operation", "matmul"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("no operation `matmul`"), "{}", unknown.stderr);
    let unknown = sandbox.run(&["explain", "metric", "overlp"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("did you mean `metric overlap`?"), "{}", unknown.stderr);
    let elsewhere = sandbox.run(&["explain", "metric", "mfu"]);
    assert!(elsewhere.stderr.contains("write `flops / time / device.flops`"), "{}", elsewhere.stderr);
    let two = sandbox.run(&["explain", "race", "time"]);
    assert!(two.code == Some(2) && two.stderr.contains("`aorta explain metric time`"), "{}", two.stderr);
    let setting = sandbox.run(&["explain", "setting", "timeout"]);
    assert!(setting.code == Some(2) && !setting.stderr.contains("metric timeout"), "{}", setting.stderr);
    let three = sandbox.run(&["explain", "operation", "gemm", "foo"]);
    assert!(three.code == Some(2) && three.stderr.contains("`foo` is too much"), "{}", three.stderr);
    assert_eq!(sandbox.good(&["explain", "race"]), sandbox.good(&["explain", "plan::race"]));
    let unknown = sandbox.run(&["explain", "rase"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("did you mean `race`?"), "{}", unknown.stderr);
    let several = sandbox.run(&["explain", "bad_value"]);
    let says = "there are `cli::bad_value` and `config::bad_value`: take one of them";
    assert!(several.code == Some(2) && several.stderr.contains(says), "{}", several.stderr);
}

#[test]
fn new_files_are_good() {
    let sandbox = Sandbox::new();
    let said = sandbox.good(&["new", "mine"]);
    assert!(said.contains("Wrote mine.aorta."), "{said}");
    let spaced = sandbox.good(&["new", "my file"]);
    assert!(spaced.contains("`aorta show 'my file.aorta'`"), "{spaced}");
    let settings = sandbox.run(&["check", "moe", "--config-file", "mine.aorta"]);
    assert!(settings.code == Some(2) && settings.stderr.contains("it is a workload"), "{}", settings.stderr);
    let topology = sandbox.run(&["exec", "moe", "--backend", "sim", "--config", "topology=nvl72"]);
    assert!(topology.code == Some(2) && topology.stderr.contains("`auto`"), "{}", topology.stderr);
    assert_eq!(sandbox.good(&["check", "mine.aorta", "--strict"]), "mine.aorta: good: 3 operations on 2 streams\n");
    sandbox.good(&["exec", "mine.aorta", "--backend", "host", "--preset", "tiny", "--verify"]);
    sandbox.good(&["new", "copy.aorta", "--from", "moe"]);
    let moe = std::fs::read_to_string(project().join("workloads/distributed/moe.aorta")).expect("it is shipped");
    assert_eq!(sandbox.read("copy.aorta"), moe);
    // Nothing is overwritten, and nothing is created from an unknown workload.
    let again = sandbox.run(&["new", "mine.aorta", "--from", "moe"]);
    assert!(again.code == Some(2) && again.stderr.contains("the file already exists"), "{}", again.stderr);
    let unknown = sandbox.run(&["new", "other", "--from", "moo"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("did you mean `moe`?"), "{}", unknown.stderr);
    assert_eq!(sandbox.listing(), ["copy.aorta", "mine.aorta", "my file.aorta"]);
}

/// A type after the arrow of an operation, a definition, a gradient or a kernel is scratch memory of this type.
#[test]
fn types_of_outputs_are_scratch() {
    let sandbox = Sandbox::new();
    let text = r#"
buffer x, dy: bf16[8, 8]
buffer w: bf16[8, 8] = random(1, 0.1)
buffer y: f32[8, 8]
kernel twice(x: f32[n, m] -> y: f32[n, m]) {
  grid: 1,
  block: 64,
  source: """
extern "C" __global__ void twice(const float* x, float* y, long long n, long long m) {
  for (long long i = threadIdx.x; i < n * m; i += 64) y[i] = 2 * x[i];
}
""",
  reference: map(2 * x),
}
def layer(x, w -> y) {
  h: gemm(x, w -> f32[8, 8])
  map(tanh(h) -> y)
}
step {
  f: layer(x, w -> f32[8, 8])
  g: grad(f, 1 -> f32[8, 8], f32[8, 8])
  best: top_k(g.w, k: 2 -> f32[8, 2], i32[8, 2])
  k: twice(f -> f32[8, 8])
  s: map(g.x + best.indices[.., 0..1] + k, dy -> f32[8, 8], f32[8, 8])
  map(s.y + s.y2 + best.values[.., 0..1] -> y)
}
"#;
    sandbox.write("typed.aorta", text);
    assert_eq!(sandbox.good(&["check", "typed.aorta", "--strict"]), "typed.aorta: good: 10 operations on 1 stream\n");
    let plan = sandbox.good(&["plan", "typed.aorta"]);
    for scratch in
        ["output of h", "output of f", "output of g.x", "output of g.w", "output of best.indices", "output of s.y2"]
    {
        assert!(plan.contains(scratch), "{scratch}: {plan}");
    }
    sandbox.good(&["exec", "typed.aorta", "--backend", "host", "--effort", "sanity", "--verify"]);
}

#[test]
fn shells_complete() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = sandbox.good(&["completions", shell]);
        for word in ["exec", "completions", "--diagnostics", "--preset"] {
            assert!(script.contains(word.trim_start_matches("--")), "{shell}: {word}");
        }
    }
    let bash =
        std::process::Command::new("bash").args(["-n", "/dev/stdin"]).stdin(std::process::Stdio::piped()).spawn();
    let Ok(mut bash) = bash else { return println!("skipped: this machine has no bash to read the script with") };
    use std::io::Write as _;
    let script = sandbox.good(&["completions", "bash"]);
    bash.stdin.take().expect("piped").write_all(script.as_bytes()).expect("bash reads");
    assert!(bash.wait().expect("it ends").success(), "bash can read the script");
}

/// Bash asks for names at each completion. A name in which a shell would run something is left out.
#[test]
fn bash_completes_names_of_the_project() {
    let sandbox = Sandbox::new();
    sandbox.write("aorta.ron", "(library: [\"lib\"])");
    let step = "step { nop() }\n";
    sandbox.write("lib/attn_mine.aorta", step);
    sandbox.write("lib/$(touch hit).aorta", step);
    sandbox.write("lib/night.ron", "(name: \"night\", cases: [(workload: \"moe\")])");
    let files = sandbox.good(&["completions", "--names", "files"]);
    let suites = sandbox.good(&["completions", "--names", "suites"]);
    assert!(files.contains("attn_mine\n") && files.contains("moe\n") && !files.contains("night"), "{files}");
    assert!(suites.contains("night\n") && suites.contains("smoke\n") && !suites.contains("attn"), "{suites}");
    assert!(!files.contains('$'), "{files}");

    sandbox.write("aorta.bash", sandbox.good(&["completions", "bash"]));
    let complete = |words: &str| {
        let script = format!(
            "source aorta.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _aorta_named aorta \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let binary = std::path::Path::new(env!("CARGO_BIN_EXE_aorta")).parent().expect("a folder");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let mut bash = std::process::Command::new("bash");
        let bash = bash.args(["-c", &script]).current_dir(sandbox.path("."));
        let output = bash.env("PATH", path).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(found) = complete("aorta exec attn") else { return println!("skipped: this machine has no bash") };
    assert_eq!(found, "attn_mine");
    assert_eq!(complete("aorta suite nig").as_deref(), Some("night"));
    assert!(complete("aorta check ''").is_some_and(|found| found.contains("moe") && !found.contains("touch")));
    assert!(!sandbox.listing().contains(&"hit".to_owned()));
}

#[test]
fn show_has_whole_expressions_and_sentences() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "w.aorta",
        "//! Two lines make\n//! one sentence. This is the next.\nparam n = (4 + 2) * (3 - 1)\n\
         stream s[(n + 1) - n](priority: -(1 + 1))\nbuffer x: f32[(n + 2) * n]\n\
         step { on s[0] { a: map(x * 2 -> x) } }\nmetric m = (time + time(a)) / 2\nexpect (m > 1us) and not (m > 1s)\n",
    );
    let shown = sandbox.good(&["show", "w.aorta"]);
    for whole in [
        "n = (4 + 2) * (3 - 1)\n",
        "s[(n + 1) - n]  priority: -(1 + 1)\n",
        "f32[(n + 2) * n]\n",
        "(time + time(a)) / 2\n",
        "(m > 1us) and not (m > 1s)\n",
    ] {
        assert!(shown.contains(whole), "{whole:?} is not in\n{shown}");
    }
    let run = sandbox.good(&["exec", "w.aorta", "--backend", "sim"]);
    assert!(run.starts_with("w.aorta: Two lines make one sentence.\n"), "{run}");
}

#[test]
fn show_knows_every_name_of_every_file() {
    use aorta::syntax::ast::DeclKind::*;
    let sandbox = Sandbox::new();
    for path in workloads("workloads").into_iter().chain(workloads("examples")) {
        let text = std::fs::read_to_string(&path).expect("it is shipped");
        let shown = sandbox.good(&["show".as_ref(), path.as_os_str()]);
        let (ast, _) = aorta::syntax::parse(&text, 0, &aorta::syntax::SyntaxLimits::default());
        for decl in &ast.decls {
            let names: Vec<_> = match &decl.kind {
                Param { name, .. } | Preset { name, .. } | Stream { name, .. } | Def { name, .. } => vec![*name],
                Metric { name, .. } => vec![*name],
                Buffer(buffer) => buffer.families.iter().map(|family| family.name).collect(),
                _ => Vec::new(),
            };
            for name in names {
                let name = ast.names.name(name.symbol);
                assert!(shown.contains(name), "{}: `{name}` is not in\n{shown}", path.display());
            }
            for doc in &decl.docs {
                assert!(shown.contains(doc.as_str()), "{}: {doc:?} is not in\n{shown}", path.display());
            }
        }
    }
    // The valid part of a broken file.
    sandbox.write("broken.aorta", "//! About it.\nparam n = 4\nbuffer x: f32[n\nstep { nop() }\n");
    let output = sandbox.run(&["show", "broken.aorta"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stdout.contains("About it.") && output.stdout.contains("n = 4"), "{}", output.stdout);
    assert!(output.stderr.contains("aorta::syntax::unclosed_bracket"), "{}", output.stderr);
}

/// Operations outside of any `on` run on a declared `main`, which is then used.
#[test]
fn a_declared_main_is_used() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "stream main(priority: high)\nbuffer x: f32[8]\nstep { map(x + 1 -> x) }\n");
    sandbox.good(&["check", "--strict", "a.aorta"]);
}

/// JSON names the numbers of ranks with a mistake if several are checked.
#[test]
fn json_names_the_numbers_of_ranks() {
    let sandbox = Sandbox::new();
    let step = "if world == 2 { map(y[5] -> x[0]) } if world > 3 { map(y[7] -> x[0]) } map(x + 1 -> x)";
    sandbox.write("a.aorta", format!("buffer x, y: f32[4]\nstep {{ {step} }}\n"));
    let ranks = |ranks: &str| -> Vec<serde_json::Value> {
        let output = sandbox.run(&["check", "a.aorta", "--ranks", ranks, "--diagnostics", "json"]);
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        let objects =
            output.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
        objects.map(|object| object["ranks"].clone()).collect()
    };
    assert_eq!(ranks("1,2,3,4,5"), [serde_json::json!([2]), serde_json::json!([4, 5])]);
    assert_eq!(ranks("4"), [serde_json::Value::Null]);
}

/// The three ranks wait for each other on two real streams alone.
#[test]
fn shared_streams_without_a_deadlock_are_good() {
    let sandbox = Sandbox::new();
    sandbox.write("three.aorta", include_str!("../diagnostics/plan/deadlock_of_three_ranks.aorta"));
    let check = |streams: &str| sandbox.run(&["check", "three.aorta", "--ranks", "3", "--streams", streams]).code;
    assert_eq!(["1", "2", "3"].map(check), [Some(2), Some(2), Some(0)]);
}
