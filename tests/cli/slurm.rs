//! Slurm itself, with the daemon of a node on each of two hosts: the batch scripts of docs/cluster.md, as they stand there.

use super::hosts::on_hosts;
use super::sandbox::{Sandbox, project};
use crate::common::effort;

/// Keeps what ends outside of the two hosts apart from the rest of this machine, and ends all of it with the script.
const APART: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// Runs on the first host: ranks on both nodes, ranks of which one node dies, and an array of which one node dies.
const SCRIPT: &str = r#"
. ./slurm.sh
install -Dm600 <(head -c 24 /dev/urandom | base64) $XDG_CONFIG_HOME/aorta/secret
two="--ntasks-per-node=2 --gpus-per-node=2"

export MORE="--preset tiny --backend host --effort sanity --verify"
job=$(sbatch --parsable $two ranks.sbatch)
over $job
mv moe-$job.json ranks.json
mv slurm-$job.out ranks.out

export MORE="--preset tiny --backend host --iterations 1000000"
job=$(sbatch --parsable $two --no-requeue ranks.sbatch)
busy() { awk '$2 == "(aorta)" && $14 + $15 > 50 { found = 1 } END { exit !found }' /proc/[0-9]*/stat 2> /dev/null; }
await 600 busy
crash
over $job
mv moe-$job.json killed.json
mv slurm-$job.out killed.out

node gpu02
await 600 idle
export MORE="--backend host --iterations 1500" # long enough that the node dies during a case
job=$(sbatch --parsable --exclusive sweep.sbatch)
part() { squeue --noheader --job $job --states R --format '%K %N' | sed -n 's/ gpu02$//p'; }
begun() { [ -n "$(part)" ] && [ "$(wc -l < cases-$(part).jsonl)" -gt 1 ]; }
await 600 begun 2> /dev/null
killed=$(part)
crash
over $job
scontrol --oneliner show job $job | grep -o 'ArrayTaskId=[0-9]* \|Restarts=[0-9]*\|JobState=[A-Z]*' > states
echo $killed > part
"#;

/// A batch script of the page.
fn batch(name: &str) -> String {
    let page = std::fs::read_to_string(project().join("docs/cluster.md")).expect("the page is there");
    let (_, block) = page.split_once(&format!("```bash file={name}\n")).expect("the page has the script");
    block.split("```").next().unwrap_or_default().to_owned()
}

#[test]
fn slurm_runs_the_scripts_of_the_page() {
    if !(effort::is_due() && effort::is_in_turn(3, 0)) {
        return;
    }
    let sandbox = Sandbox::new();
    for name in ["ranks.sbatch", "sweep.sbatch"] {
        sandbox.write(name, batch(name));
    }
    sandbox.write("slurm.sh", std::fs::read(project().join("tests/cli/slurm.sh")).expect("it is there"));
    let Some(output) = on_hosts(&sandbox, &APART, SCRIPT) else { return };
    if output.stdout.starts_with("skipped") {
        return println!("{}", output.stdout);
    }
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""), "{}", output.stderr);
    let record = sandbox.json("ranks.json");
    let facts = &record["environment"]["facts"];
    assert_eq!((&facts["launcher"], &facts["hosts"]), (&"Slurm".into(), &"gpu01, gpu02".into()));
    assert_eq!(record["settings"]["ranks"], 4);
    assert_eq!(record["verification"]["held"], true, "{}", sandbox.read("ranks.out"));
    // Rank 0 keeps what was measured, and says which rank is gone.
    assert_eq!(sandbox.json("killed.json")["complete"], false);
    let said = sandbox.read("killed.out");
    assert!(said.contains("aorta::exec::lost_rank") && said.contains("was lost: its process ended"), "{said}");
    // The part of the node that died was submitted again, and went on.
    let states = sandbox.read("states");
    assert_eq!(states.matches("JobState=COMPLETED").count(), 3, "{states}");
    let part = sandbox.read("part").trim().to_owned();
    let killed = states.split("ArrayTaskId=").find(|state| state.starts_with(&part)).unwrap_or_default();
    assert!(killed.contains("Restarts=1"), "part {part}: {states}");
    let files = ["cases-1.jsonl", "cases-2.jsonl", "cases-3.jsonl"];
    let joined = sandbox.good(&[&["report"], &files[..]].concat());
    assert!(joined.contains("8 cases") && !joined.contains("Missing"), "{joined}");
    let cases: usize = files.iter().map(|file| sandbox.read(file).lines().skip(1).count()).sum();
    assert_eq!(cases, 8, "no case ran twice");
}
