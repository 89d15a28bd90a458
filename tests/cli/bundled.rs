//! Drawn projects: a bundle, the folder of it and a bundle of that are the same, and the record of a run of it runs again
//! by the same plan.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::sandbox::Sandbox;

/// Lines of comments that could be mistaken for those of a bundle or a record, and characters that JSON escapes.
const COMMENTS: [&str; 6] =
    ["== net.aorta text 00", "|", "\\", "runs: other.ron", "\\n \\u{41} \"quoted\" µ 漢", "\ttab and \u{200b} hidden"];

/// A project: folders, how the scenario names its workload, and what the files hold.
#[derive(Clone, Debug)]
struct Project {
    scenario: &'static str,
    workload: &'static str,
    by_name: bool,
    /// True if the files that the workload uses are in another folder of the project.
    has_shared: bool,
    modules: usize,
    comments: Vec<usize>,
    ends_whole: bool,
    has_trace: bool,
    has_profile: bool,
    has_kernel: bool,
    size: u32,
    launch: &'static str,
}

fn project() -> impl Strategy<Value = Project> {
    let folder = prop::sample::select(vec!["", "a/", "a/b/", "nets/", "with space/"]);
    let launch = prop::sample::select(vec!["stream", "graph", "both"]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let comments = prop::collection::vec(0..COMMENTS.len(), 0..4);
    (folder.clone(), folder, flags, 0..4usize, comments, 1..40u32, launch).prop_map(
        |(
            scenario,
            workload,
            (by_name, has_shared, ends_whole, has_trace, has_profile, has_kernel),
            modules,
            comments,
            size,
            launch,
        )| {
            Project {
                scenario,
                workload,
                by_name,
                has_shared,
                modules,
                comments,
                ends_whole,
                has_trace,
                has_profile,
                has_kernel,
                size,
                launch,
            }
        },
    )
}

/// The description of a drawn project.
const DESCRIPTION: &str = "Nets of \"team\" A";

impl Project {
    /// The scenario's file.
    fn file(&self) -> String {
        format!("{}run.ron", self.scenario)
    }

    fn write(&self, sandbox: &Sandbox) {
        let comments: String = self.comments.iter().map(|comment| format!("// {}\n", COMMENTS[*comment])).collect();
        let end = if self.ends_whole { "\n" } else { "" };
        let folder = self.workload;
        let above = "../".repeat(folder.matches('/').count());
        // The folder of the files that the workload uses, and how it names that folder.
        let (shared, to) = if self.has_shared { ("lib/", format!("{above}lib/")) } else { (folder, String::new()) };
        // Modules in folders inside one another; each uses the next.
        let module = |number: usize| format!("{}m{number}.aorta", "deep/".repeat(number));
        for number in 0..self.modules {
            let next = number + 1;
            let (head, value) = match next < self.modules {
                true => (format!("use \"deep/m{next}.aorta\"\n"), format!("m{next}.value + 1")),
                false => (String::new(), "1".to_owned()),
            };
            sandbox.write(&format!("{shared}{}", module(number)), format!("{head}{comments}let value = {value}{end}"));
        }
        let (head, value) =
            if self.modules > 0 { (format!("use \"{to}m0.aorta\"\n"), "m0.value") } else { (String::new(), "1") };
        let (draw, times) = match self.has_trace {
            true => (format!("draw d[1] ~ trace(\"{to}d.csv\", column: \"d\")\n"), "d[0]"),
            false => (String::new(), "1"),
        };
        sandbox.write(&format!("{shared}d.csv"), format!("d\n1\n2{end}"));
        let code =
            "extern \"C\" __global__ void k(const float* a, float* b, long long m) { b[blockIdx.x] = a[blockIdx.x]; }";
        sandbox.write(&format!("{shared}deep/k.cu"), format!("{comments}{code}{end}"));
        let (kernel, call) = match self.has_kernel {
            true => (
                format!(
                    "kernel k(a: f32[m] -> b: f32[m]) {{ grid: m, block: 1, file: \"{to}deep/k.cu\", \
                     reference: map(a + 0) }}\n"
                ),
                "k(x -> z)",
            ),
            false => (String::new(), "copy(x -> z)"),
        };
        let text = format!(
            "{head}{comments}param n = 4\n{kernel}{draw}buffer x, z: f32[n * {value}] = ones\n\
             step {{ map(x + {value} -> x) {call} spin(1us * {times}) }}{end}"
        );
        sandbox.write(&format!("{folder}net.aorta"), text);
        let library = if folder.is_empty() { "." } else { folder };
        sandbox.write("aorta.ron", format!("(library: [{library:?}], description: {DESCRIPTION:?})"));
        let up = "../".repeat(self.scenario.matches('/').count());
        let workload = if self.by_name { "net".to_owned() } else { format!("{up}{folder}net.aorta") };
        let own = super::sandbox::project().join("config/devices/mi300x.ron");
        sandbox.write(&format!("{}own.ron", self.scenario), std::fs::read(own).expect("the profile is there"));
        let profile = if self.has_profile { "profile: \"own.ron\", " } else { "" };
        sandbox.write(
            &self.file(),
            format!(
                "(workload: {workload:?}, {profile}params: {{\"n\": \"{}\"}}, launch: {:?}, backend: \"sim\", cycle: 2, \
                 effort: quick){end}",
                self.size, self.launch
            ),
        );
    }
}

#[test]
fn drawn_projects_come_back() {
    let config = ProptestConfig { max_shrink_iters: 20, ..crate::common::properties(12) };
    let result = TestRunner::new(config).run(&project(), |project| {
        let sandbox = Sandbox::new();
        project.write(&sandbox);
        sandbox.good(&["exec", &project.file(), "--json", "before.json"]);
        sandbox.good(&["bundle", &project.file(), "-o", "a.aortab"]);
        sandbox.good(&["unbundle", "a.aortab", "-o", "copy"]);
        let text = sandbox.read("a.aortab");
        // A bundle that needs a project has the author's description.
        let has_project = text.lines().any(|line| line.starts_with("== aorta.ron "));
        prop_assert_eq!(text.contains(&format!("{DESCRIPTION:?}")), has_project, "{}", text);
        let runs = text.lines().find_map(|line| line.strip_prefix("runs: ")).expect("a bundle runs something");
        sandbox.good(&["bundle", &format!("copy/{runs}"), "-o", "b.aortab"]);
        prop_assert_eq!(&text, &sandbox.read("b.aortab"));
        let other = Sandbox::new();
        other.write("a.aortab", &text);
        other.write("before.json", sandbox.read("before.json"));
        other.good(&["exec", "a.aortab", "--json", "bundled.json"]);
        other.good(&["exec", "before.json", "--json", "again.json"]);
        // The record of a run of the bundle runs by itself, elsewhere.
        let third = Sandbox::new();
        third.write("bundled.json", other.read("bundled.json"));
        third.good(&["exec", "bundled.json", "--json", "again.json"]);
        other.write("third.json", third.read("again.json"));
        let before = sandbox.json("before.json");
        for file in ["bundled.json", "again.json", "third.json"] {
            let after = other.json(file);
            prop_assert_eq!(&before["program"]["plan"], &after["program"]["plan"], "{}", file);
            prop_assert_eq!(&before["workload"]["sha256"], &after["workload"]["sha256"], "{}", file);
            prop_assert_eq!(&before["device"]["name"], &after["device"]["name"], "{}", file);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// A workload uses the files of its project, and no others.
#[test]
fn a_workload_uses_the_files_of_its_project() {
    let sandbox = Sandbox::new();
    sandbox.write("team/aorta.ron", "(library: [\"nets\"])");
    sandbox.write("team/lib/m.aorta", "def twice(x -> y) { map(x * 2 -> y) }");
    sandbox.write("m.aorta", "def twice(x -> y) { map(x * 2 -> y) }");
    let cases = [
        ("../lib/m.aorta", None),
        ("../lib/n.aorta", Some("there is no such file")),
        ("../none/m.aorta", Some("it is outside of the workload's project")),
        ("../../m.aorta", Some("it is outside of the workload's project")),
        ("/m.aorta", Some("it is outside of the workload's folder")),
    ];
    for (path, why) in cases {
        let text = format!("use {path:?}\nbuffer x: f32[64]\nstep {{ m.twice(x -> x) }}\n");
        sandbox.write("team/nets/a.aorta", text);
        let output = sandbox.run(&["check", "team/nets/a.aorta"]);
        assert_eq!(output.code, Some(if why.is_some() { 2 } else { 0 }), "{path}: {}", output.stderr);
        assert!(why.is_none_or(|why| output.stderr.contains(why)), "{path}: {}", output.stderr);
    }
}
