//! Ranks on two hosts: network namespaces with names and addresses of their own, where the system permits them.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::sandbox::{Output, Sandbox, finish_within, project};

/// Time after which a script counts as hung. Slurm takes its own time to notice that a node is gone.
const PATIENCE: Duration = Duration::from_secs(1200);

const SUM: &str = "buffer x: f32[64]\nstep { for i in 0..rank { map(x + 1 -> x) } all_reduce(x -> x) }\n";

/// The beginning of every script: starts a rank by hand, with its output and exit code in files.
const HAND: &str = "
export WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=gpu01 MASTER_PORT=29500
rank() {
  export RANK=$1 AORTA_SECRET=$2
  shift 2
  where=; [ $RANK = 0 ] || where=on
  code=0; $where \"$AORTA\" exec sum.aorta --backend host --effort sanity --verify \"$@\" > out$RANK 2> err$RANK || code=$?
  echo $code > code$RANK
}
";

/// The flags with which this system permits namespaces, `more` among them; `None` with a message if it does not.
fn namespaces(more: &[&'static str]) -> Option<Vec<&'static str>> {
    let ways: [&[&str]; 2] =
        [&["--net", "--uts", "--mount"], &["--user", "--map-root-user", "--net", "--uts", "--mount"]];
    let tried = "hostname gpu01 && ip link add near type veth peer name far && mount --bind /etc/hosts /etc/hosts";
    let mut why = String::new();
    for way in ways {
        let way = [way, more].concat();
        match Command::new("unshare").args(&way).args(["sh", "-c", tried]).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Some(way),
            Ok(output) => why = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => why = format!("`unshare`: {error}"),
        }
    }
    println!("skipped: there are no network namespaces here: {why}");
    None
}

/// Runs a script that starts ranks by hand on the first of two hosts.
fn hosts(script: &str) -> Option<(Sandbox, Output)> {
    let sandbox = Sandbox::new();
    sandbox.write("sum.aorta", SUM);
    let output = on_hosts(&sandbox, &[], &format!("{HAND}\n{script}"))?;
    Some((sandbox, output))
}

/// Runs a script on the first of two hosts, in a folder and with more flags for `unshare`; `None` with a message where there
/// are no namespaces.
pub fn on_hosts(sandbox: &Sandbox, more: &[&'static str], script: &str) -> Option<Output> {
    let way = namespaces(more)?;
    sandbox.write("script", script);
    let aorta = sandbox.command(&["exec"]);
    let mut command = Command::new("unshare");
    command.args(way).arg("bash").arg(project().join("tests/cli/hosts.sh")).arg("./script");
    command.current_dir(sandbox.path("")).env("AORTA", aorta.get_program());
    command.envs(aorta.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(finish_within(command.spawn().expect("`unshare` was there"), PATIENCE))
}

/// The exit codes of both ranks.
fn codes(sandbox: &Sandbox) -> [String; 2] {
    ["code0", "code1"].map(|name| sandbox.read(name).trim().to_owned())
}

#[test]
fn ranks_of_two_hosts_meet_by_a_secret() {
    let script = "
        rank 0 'a secret of both hosts' --json record.json & rank 1 'a secret of both hosts' --json record.json
        wait %?rank";
    let Some((sandbox, output)) = hosts(script) else { return };
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(codes(&sandbox), ["0", "0"], "{}{}", sandbox.read("err0"), sandbox.read("err1"));
    assert!(sandbox.read("out0").contains("verified against the CPU"), "{}", sandbox.read("out0"));
    assert_eq!(sandbox.read("out1"), "");
    let record = sandbox.json("record.json");
    assert_eq!(record["environment"]["facts"]["hosts"], "gpu01, gpu02");
    assert_eq!(record["verification"]["held"], true);
}

#[test]
fn ranks_of_two_hosts_with_different_secrets_do_not_meet() {
    let script = "
        rank 0 'a secret of one host' --config rendezvous=2s & rank 1 'a secret of another host' --config rendezvous=2s
        wait %?rank";
    let Some((sandbox, output)) = hosts(script) else { return };
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(codes(&sandbox), ["4", "4"]);
    let [first, other] = ["err0", "err1"].map(|name| sandbox.read(name));
    let words = |text: &str| text.replace("│", "").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&first).contains("from 10.77.0.2 did not prove that they know the secret"), "{first}");
    assert!(words(&other).contains("the process that listens at 10.77.0.1:29500 does not know the secret"), "{other}");
}

/// Rank 0 listens at the address that ranks are told, and nowhere else.
#[test]
fn rank_0_listens_at_one_interface() {
    let script = "
        rank 0 'a secret of both hosts' &
        reach() { on bash -c \"echo > /dev/tcp/$1/29500\" 2> /dev/null; }
        until reach 10.77.0.1; do sleep 0.01; done
        reach 10.77.1.1 && echo reached
        rank 1 'a secret of both hosts'
        wait %?rank";
    let Some((sandbox, output)) = hosts(script) else { return };
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""), "{}", output.stderr);
    assert_eq!(codes(&sandbox), ["0", "0"], "{}{}", sandbox.read("err0"), sandbox.read("err1"));
}

/// Checks that a script starts both ranks by a launcher, of that name in the record. It prints `skipped` if the launcher is absent.
fn assert_launches(script: &str, launcher: &str) {
    let Some((sandbox, output)) = hosts(script) else { return };
    if output.stdout.starts_with("skipped") {
        return println!("{}", output.stdout);
    }
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let record = sandbox.json("record.json");
    assert_eq!(record["environment"]["facts"]["hosts"], "gpu01, gpu02");
    assert_eq!(record["environment"]["facts"]["launcher"], launcher);
    assert_eq!(record["verification"]["held"], true);
}

/// Open MPI itself, which starts a rank on each host.
#[test]
fn mpirun_starts_ranks_on_two_hosts() {
    let script = "
        command -v mpirun > /dev/null || { echo 'skipped: there is no `mpirun` here'; exit; }
        export AORTA_SECRET='a secret of both hosts' OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        unset WORLD_SIZE LOCAL_RANK MASTER_PORT
        mpirun --mca plm_rsh_agent $PWD/agent --host gpu01,gpu02 -n 2 -x AORTA_SECRET -x MASTER_ADDR \\
          \"$AORTA\" exec $PWD/sum.aorta --backend host --effort sanity --verify --json record.json";
    assert_launches(script, "Open MPI");
}

/// PyTorch's launcher itself: an agent on each host.
#[test]
fn torchrun_starts_ranks_on_two_hosts() {
    let script = "
        command -v torchrun > /dev/null || { echo 'skipped: there is no `torchrun` here'; exit; }
        export AORTA_SECRET='a secret of both hosts'
        unset WORLD_SIZE LOCAL_RANK
        agent() {
          $2 torchrun --nnodes 2 --nproc-per-node 1 --node-rank $1 --master-addr gpu01 --master-port 29500 --no-python \\
            \"$AORTA\" exec sum.aorta --backend host --effort sanity --verify --json record.json
        }
        agent 1 on & agent 0
        wait %?agent";
    assert_launches(script, "torchrun");
}
