//! The jobs and scripts of the book, as a machine without a GPU runs them: those of a team's gate, and an array of Slurm.

use std::process::{Command, Stdio};

use super::sandbox::{Sandbox, project};

/// A block of a page: the lines behind its first one, ```` ```… file=NAME ````.
fn block(page: &str, file: &str) -> String {
    let text = std::fs::read_to_string(project().join("docs").join(page)).expect("the page is there");
    let (_, rest) = text.split_once(&format!(" file={file}\n")).unwrap_or_else(|| panic!("{page} has no {file}"));
    rest.split_once("```").expect("the block ends").0.to_owned()
}

/// The commands of a job in YAML: single lines behind `run:` or `-`, and lines of a block.
fn commands(job: &str) -> Vec<String> {
    let words = |line: &str| line.trim().trim_start_matches("run: ").trim_start_matches("- ").to_owned();
    job.lines().map(words).filter(|line| line.starts_with("aorta ")).collect()
}

/// Runs a script with a shell that finds the binary. Returns its exit code and what it printed.
fn shell(sandbox: &Sandbox, script: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_aorta")).parent().expect("a binary lies in a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-e", "-c", script])
        .current_dir(sandbox.path("."))
        .env_clear()
        .envs([("PATH", path.as_str()), ("HOME", sandbox.config_folder().join("../..").to_str().expect("a path"))])
        .env("XDG_CONFIG_HOME", sandbox.config_folder().join(".."))
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("there is a shell");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), printed)
}

/// A checkout with a gate and its blessed cases.
fn checkout() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("gate.ron", block("team-gate.md", "gate.ron"));
    let (code, printed) = shell(&sandbox, "aorta suite gate.ron --json blessed.jsonl", &[]);
    assert_eq!(code, Some(0), "{printed}");
    sandbox
}

/// The gate passes on the same figures, fails on slower ones, and writes its reports in both cases.
fn holds_and_fails(job: &str, reports: &[&str]) {
    let commands = commands(&block("team-gate.md", job));
    assert!(commands.len() > 2, "{commands:?}");
    for slower in [false, true] {
        let sandbox = checkout();
        if slower {
            sandbox.write_config("(profile: \"mi300x\")");
        }
        let mut failed = Vec::new();
        for command in &commands {
            let (code, printed) = shell(&sandbox, command, &[("GITHUB_STEP_SUMMARY", "summary.md")]);
            assert!(matches!(code, Some(0 | 1)), "{command}: {printed}");
            failed.extend((code == Some(1)).then_some(command.as_str()));
        }
        match slower {
            false => assert_eq!(failed, [""; 0]),
            true => assert!(matches!(failed[..], [only] if only.starts_with("aorta compare ")), "{failed:?}"),
        }
        for report in reports {
            assert!(!sandbox.read(report).is_empty(), "{report}");
        }
    }
}

#[test]
fn the_job_for_github_holds_and_fails() {
    holds_and_fails("github.yml", &["cases.jsonl", "summary.md"]);
}

#[test]
fn the_job_for_gitlab_holds_and_fails() {
    holds_and_fails("gitlab.yml", &["cases.jsonl", "compare.xml", "report.md"]);
}

/// Each task of the array has the variables that Slurm gives to a script of `sbatch`. No Slurm runs here.
#[test]
fn the_array_of_the_cluster_page_runs_every_case() {
    let sandbox = Sandbox::new();
    let script = block("cluster.md", "sweep.sbatch");
    for task in ["1", "3", "2"] {
        let variables = [
            ("SLURM_ARRAY_TASK_ID", task),
            ("SLURM_ARRAY_TASK_COUNT", "3"),
            ("SLURM_SUBMIT_DIR", "."),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_PROCID", "0"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NTASKS", "1"),
        ];
        let (code, printed) = shell(&sandbox, &script, &variables);
        assert_eq!(code, Some(0), "{printed}");
        // A job that is submitted again has nothing to do.
        let again = shell(&sandbox, &script, &variables);
        assert_eq!(again.0, Some(0), "{}", again.1);
    }
    let (code, printed) = shell(&sandbox, "aorta report cases-*.jsonl", &[]);
    assert!(code == Some(0) && printed.contains("8 done") && !printed.contains("Missing"), "{printed}");
}
