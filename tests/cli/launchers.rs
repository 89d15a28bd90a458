//! The binary in several processes, with the environment variables of launchers.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use aorta::backend::cuda;

use super::exit_codes::{times_are_told, wait_until_under_way};
use super::sandbox::{Output, Sandbox, finish};

/// Each rank has different work, and all take part in the last operation.
const STAIRS: &str = "\
buffer x: f32[64]
step {
  for i in 0..rank { map(x + 1 -> x) }
  all_reduce(x -> x)
}
";

/// A free port followed by free ones, since tests run concurrently.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 14_000 + (std::process::id() % 20) as u16 * 640;
    first + NEXT.fetch_add(1, Ordering::Relaxed) * 20
}

/// The variables that torchrun sets for a rank; its agent listens on the previous port.
fn torchrun(rank: usize, world: usize, port: u16) -> Vec<(String, String)> {
    let (rank, world) = (rank.to_string(), world.to_string());
    variables(&[
        ("RANK", &rank),
        ("WORLD_SIZE", &world),
        ("LOCAL_RANK", &rank),
        ("LOCAL_WORLD_SIZE", &world),
        ("MASTER_ADDR", "localhost"),
        ("MASTER_PORT", &(port - 1).to_string()),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("OMP_NUM_THREADS", "1"),
    ])
}

/// The variables that Open MPI sets.
fn open_mpi(rank: usize, world: usize, port: u16) -> Vec<(String, String)> {
    let (rank, world) = (rank.to_string(), world.to_string());
    variables(&[
        ("OMPI_COMM_WORLD_RANK", &rank),
        ("OMPI_COMM_WORLD_SIZE", &world),
        ("OMPI_COMM_WORLD_LOCAL_RANK", &rank),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", &world),
        ("PMIX_NAMESPACE", &format!("prterun-{port}@1")),
        ("PMIX_RANK", &rank),
    ])
}

/// The variables that Slurm sets for a step in a batch job.
fn slurm(rank: usize, world: usize, port: u16) -> Vec<(String, String)> {
    let (rank, world) = (rank.to_string(), world.to_string());
    variables(&[
        ("SLURM_JOB_ID", &port.to_string()),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", &rank),
        ("SLURM_LOCALID", &rank),
        ("SLURM_NTASKS", &world),
        ("SLURM_STEP_NUM_TASKS", &world),
        ("SLURM_STEP_NUM_NODES", "1"),
        ("SLURM_STEP_NODELIST", "gpu01"),
        ("SLURM_LAUNCH_NODE_IPADDR", "192.0.2.1"),
    ])
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

type Variables = fn(usize, usize, u16) -> Vec<(String, String)>;

/// Starts a process for each list of arguments, as a launcher does.
fn start(sandbox: &Sandbox, launcher: Variables, arguments: &[Vec<&str>]) -> Vec<Child> {
    let (world, port) = (arguments.len(), port());
    let command = |(rank, arguments): (usize, &Vec<&str>)| {
        let mut command = sandbox.command(arguments);
        command.envs(launcher(rank, world, port)).spawn().expect("the binary starts")
    };
    arguments.iter().enumerate().map(command).collect()
}

fn launch(sandbox: &Sandbox, launcher: Variables, arguments: &[Vec<&str>]) -> Vec<Output> {
    start(sandbox, launcher, arguments).into_iter().map(finish).collect()
}

/// The same command on each of some ranks.
fn launch_same(sandbox: &Sandbox, launcher: Variables, world: usize, arguments: &[&str]) -> Vec<Output> {
    launch(sandbox, launcher, &vec![arguments.to_vec(); world])
}

/// Checks that all exit with that code, and that only rank 0 has printed anything.
#[track_caller]
fn assert_first_tells(outputs: &[Output], code: i32) {
    for (rank, output) in outputs.iter().enumerate() {
        assert_eq!(output.code, Some(code), "rank {rank}: {}", output.stderr);
        if rank > 0 {
            assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""), "rank {rank}");
        }
    }
}

#[test]
fn every_launcher_gives_what_one_process_does() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let arguments = ["exec", "stairs.aorta", "--backend", "sim", "--effort", "quick"];
    let whole = sandbox.good(&[&arguments[..], &["--ranks", "3"]].concat());
    for launcher in [torchrun, open_mpi, slurm] {
        let outputs = launch_same(&sandbox, launcher, 3, &arguments);
        assert_first_tells(&outputs, 0);
        assert_eq!(outputs[0].stdout, whole);
        assert_eq!(outputs[0].stderr, "");
    }
    // Giving the actual number of ranks is allowed.
    assert_first_tells(&launch_same(&sandbox, torchrun, 3, &[&arguments[..], &["--ranks", "3"]].concat()), 0);
}

#[test]
fn the_record_tells_how_it_was_launched() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let arguments = ["exec", "stairs.aorta", "--backend", "sim", "--effort", "sanity", "--json", "record.json"];
    assert_first_tells(&launch_same(&sandbox, slurm, 2, &arguments), 0);
    let record = sandbox.json("record.json");
    let environment = &record["environment"];
    assert_eq!(environment["facts"]["launcher"], "Slurm");
    assert_eq!(environment["facts"]["processes"], "2");
    assert_eq!(environment["facts"]["hosts"], environment["host"]);
    assert_eq!(record["settings"]["ranks"], 2);
    assert_eq!(sandbox.listing(), ["record.json", "stairs.aorta"]);
}

#[test]
fn the_cpu_computes_all_ranks_in_the_first_process() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let arguments = ["exec", "stairs.aorta", "--backend", "host", "--effort", "sanity", "--verify", "--outputs", "out"];
    assert_first_tells(&launch_same(&sandbox, open_mpi, 2, &arguments), 0);
    assert!(sandbox.path("out/rank0/x.npy").is_file() && sandbox.path("out/rank1/x.npy").is_file());
}

#[test]
fn a_world_of_one_is_no_different() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let arguments = ["exec", "stairs.aorta", "--backend", "sim", "--effort", "quick"];
    let alone = sandbox.good(&arguments);
    for launcher in [torchrun, open_mpi, slurm] {
        let outputs = launch_same(&sandbox, launcher, 1, &arguments);
        assert_first_tells(&outputs, 0);
        assert_eq!(outputs[0].stdout, alone);
    }
}

#[test]
fn variables_of_the_driver_are_set_before_ranks_meet() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let arguments = ["exec", "stairs.aorta", "--backend", "sim", "--effort", "sanity", "--json", "record.json"];
    let arguments = [&arguments[..], &["--env", "NCCL_DEBUG=WARN"]].concat();
    assert_first_tells(&launch_same(&sandbox, torchrun, 2, &arguments), 0);
    assert_eq!(sandbox.json("record.json")["environment"]["variables"]["NCCL_DEBUG"], "WARN");
}

#[test]
fn exit_codes_agree() {
    let sandbox = Sandbox::new();
    sandbox.write("slow.aorta", "buffer x: f32[64]\nstep { all_reduce(x -> x) }\nmetric t = time\nexpect t < 1ns\n");
    let outputs = launch_same(&sandbox, slurm, 2, &["exec", "slow.aorta", "--backend", "sim", "--effort", "quick"]);
    assert_first_tells(&outputs, 1);
    sandbox.write("stairs.aorta", STAIRS);
    let unwritable = ["exec", "stairs.aorta", "--backend", "sim", "--json", "no/folder.json"];
    let outputs = launch_same(&sandbox, torchrun, 2, &unwritable);
    assert_first_tells(&outputs, 2);
    assert!(outputs[0].stderr.contains("aorta::cli::unwritable"), "{}", outputs[0].stderr);
}

#[test]
fn a_mistake_of_all_ranks_is_reported_once() {
    let sandbox = Sandbox::new();
    sandbox.write("wrong.aorta", "step { map(y -> x) }");
    let outputs = launch_same(&sandbox, torchrun, 3, &["exec", "wrong.aorta"]);
    assert_first_tells(&outputs, 2);
    assert_eq!(outputs[0].stderr.matches("aorta::model::unknown_name").count(), 2, "{}", outputs[0].stderr);
    let outputs = launch_same(&sandbox, open_mpi, 2, &["exec", "wrong.aorta", "--config", "in_flight=99"]);
    assert_first_tells(&outputs, 2);
    assert!(outputs[0].stderr.contains("`in_flight` cannot be 99"), "{}", outputs[0].stderr);
}

#[test]
fn a_mistake_of_one_rank_is_reported_by_it() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let good = vec!["exec", "stairs.aorta", "--backend", "sim"];
    let outputs = launch(&sandbox, slurm, &[good.clone(), vec!["exec", "missing.aorta"], good]);
    assert!(outputs.iter().all(|output| output.code == Some(2) && output.stdout.is_empty()), "{outputs:?}");
    assert!(outputs[1].stderr.contains("missing.aorta"), "{}", outputs[1].stderr);
    assert_eq!(outputs[0].stderr.clone() + &outputs[2].stderr, "");
}

#[test]
fn ranks_that_would_run_something_else_are_named() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS.replace("buffer x: f32[64]", "param n = 64\nbuffer x: f32[n]"));
    sandbox.write("other.aorta", STAIRS.replace("+ 1", "+ 2"));
    let good = vec!["exec", "stairs.aorta", "--backend", "sim"];
    let cases = [
        (vec!["exec", "other.aorta", "--backend", "sim"], "another file"),
        (vec!["exec", "stairs.aorta", "--backend", "sim", "--sync", "end"], "other values of its parameters"),
        (vec!["exec", "stairs.aorta", "--backend", "sim", "--set", "n=32"], "`n=32`"),
        (vec!["exec", "stairs.aorta", "--backend", "host"], "another backend"),
        (vec!["exec", "stairs.aorta", "--backend", "sim", "--launch", "graph"], "other settings"),
    ];
    for (other, told) in cases {
        let outputs = launch(&sandbox, torchrun, &[good.clone(), good.clone(), other]);
        assert_first_tells(&outputs, 2);
        let said = &outputs[0].stderr;
        assert!(said.contains("aorta::cli::ranks_differ") && said.contains("the ranks do not run the same: rank 2 on"));
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn ranks_are_as_many_as_processes() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let outputs = launch_same(&sandbox, open_mpi, 2, &["exec", "stairs.aorta", "--backend", "sim", "--ranks", "4"]);
    assert_first_tells(&outputs, 2);
    let said = &outputs[0].stderr;
    assert!(said.contains("aorta::cli::launcher") && said.contains("`--ranks 4` was requested"), "{said}");
    // With incomplete launcher variables nothing starts.
    let mut command = sandbox.command(&["exec", "stairs.aorta"]);
    let output = finish(command.env("RANK", "0").spawn().expect("the binary starts"));
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("WORLD_SIZE is not set"), "{}", output.stderr);
}

#[test]
fn missing_ranks_are_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let alone = |rank: usize| {
        let mut command = sandbox.command(&["exec", "stairs.aorta", "--config", "rendezvous=200ms"]);
        finish(command.envs(torchrun(rank, 3, port())).spawn().expect("the binary starts"))
    };
    let (first, other) = (alone(0), alone(1));
    assert_eq!((first.code, other.code), (Some(4), Some(4)));
    assert!(first.stderr.contains("ranks 1, 2 of 3 did not connect within 200ms"), "{}", first.stderr);
    assert!(other.stderr.contains("rank 1 did not find rank 0 on this host"), "{}", other.stderr);
}

/// The CPU may compute one operation for longer than the limit for ranks without progress: the computation itself
/// counts as progress.
#[test]
fn a_rank_that_computes_is_waited_for() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "product.aorta",
        "buffer w: f32[1024, 1024]\nbuffer x: f32[4]\nstep {\n  if rank == 0 { gemm(w, w) }\n  all_reduce(x -> x)\n}\n",
    );
    let arguments = ["exec", "product.aorta", "--backend", "host", "--effort", "sanity", "--config", "stall=1s"];
    let outputs = launch_same(&sandbox, torchrun, 2, &arguments);
    assert_first_tells(&outputs, 0);
}

fn kill(child: &Child, signal: &str) {
    let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("`kill` is there");
    assert!(killed.success());
}

/// Starts three ranks of a long run, which is under way in the first.
fn long(sandbox: &Sandbox) -> Vec<Child> {
    let arguments = "exec moe --preset tiny --backend host --iterations 1000000 --json a.json";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut children = start(sandbox, torchrun, &vec![arguments; 3]);
    wait_until_under_way(&mut children[0]);
    children
}

#[test]
fn a_rank_that_is_killed_ends_the_others() {
    if !times_are_told() {
        return;
    }
    for killed in [0, 2] {
        let sandbox = Sandbox::new();
        let children = long(&sandbox);
        kill(&children[killed], "-KILL");
        let outputs: Vec<Output> = children.into_iter().map(finish).collect();
        assert_eq!(outputs[killed].code, None);
        let told = format!("rank {killed} was lost: its process ended");
        for (rank, output) in outputs.iter().enumerate().filter(|(rank, _)| *rank != killed) {
            assert_eq!(output.code, Some(4), "rank {rank}: {}", output.stderr);
            // Rank 0 says it for all, where it can.
            assert_eq!(output.stderr.contains(&told), killed == 0 || rank == 0, "rank {rank}: {}", output.stderr);
        }
        if killed != 0 {
            let record = sandbox.json("a.json");
            assert_eq!(record["complete"], false);
            assert!(record["variants"][0]["time"]["n"].as_u64().is_some_and(|samples| samples > 0), "{record}");
            assert!(outputs[0].stdout.contains(", incomplete "), "{}", outputs[0].stdout);
        }
    }
}

#[test]
fn an_interrupt_ends_all() {
    if !times_are_told() {
        return;
    }
    for signal in ["-INT", "-TERM"] {
        let sandbox = Sandbox::new();
        let children = long(&sandbox);
        for child in &children {
            kill(child, signal);
            // As a launcher passes on what the terminal has told already.
            kill(child, signal);
        }
        let outputs: Vec<Output> = children.into_iter().map(finish).collect();
        assert_first_tells(&outputs, 130);
        assert!(outputs[0].stdout.contains("interrupted"), "{}", outputs[0].stdout);
    }
}

/// Hang-ups ignored by `nohup` stay ignored; otherwise they act like Ctrl-C.
#[test]
fn hang_ups_are_as_they_were() {
    if !times_are_told() {
        return;
    }
    let sandbox = Sandbox::new();
    let arguments = ["exec", "moe", "--preset", "tiny", "--backend", "host", "--iterations", "1000000"];
    // A test that runs under `nohup` itself starts programs that ignore hang-ups.
    if !ignores_hang_ups(std::process::id()) {
        let mut child = sandbox.command(&arguments).spawn().expect("the binary starts");
        wait_until_under_way(&mut child);
        kill(&child, "-HUP");
        assert_eq!(finish(child).code, Some(130));
    }
    let mut command = Command::new("nohup");
    let own = sandbox.command(&arguments);
    command.arg(own.get_program()).args(own.get_args()).current_dir(sandbox.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("`nohup` is there");
    wait_until_under_way(&mut child);
    assert!(ignores_hang_ups(child.id()), "nohup protects it");
    kill(&child, "-INT");
    assert_eq!(finish(child).code, Some(130));
}

/// Whether a process ignores SIGHUP, the first signal of the mask that Linux lists.
fn ignores_hang_ups(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("signals are listed").trim();
    u64::from_str_radix(ignored, 16).expect("a mask") & 1 == 1
}

/// True if there are at least `needed` GPUs; otherwise prints that the test skips.
fn gpus(needed: u32) -> bool {
    let count = cuda::find(&aorta::cli::library_paths()).unwrap_or_default();
    if count < needed {
        println!("skipped: it takes {needed} GPUs, and {count} are here");
    }
    count >= needed
}

#[test]
fn two_gpus_run_in_two_processes() {
    if !gpus(2) {
        return;
    }
    let sandbox = Sandbox::new();
    let arguments = ["exec", "all_reduce", "--set", "size=1MiB", "--set", "repeat=1", "--backend", "cuda"];
    let more = ["--launch", "both", "--effort", "quick", "--verify", "--json", "record.json", "--outputs", "out"];
    for launcher in [torchrun, open_mpi, slurm] {
        let outputs = launch_same(&sandbox, launcher, 2, &[&arguments[..], &more[..]].concat());
        assert_first_tells(&outputs, 0);
        let record = sandbox.json("record.json");
        assert_eq!(record["verification"]["held"], true);
        assert_eq!(record["settings"]["ranks"], 2);
        for variant in record["variants"].as_array().expect("variants") {
            let ranks = variant["ranks"].as_array().expect("ranks");
            assert_eq!(ranks.len(), 2);
            assert!(
                ranks.iter().all(|rank| rank["time"]["n"] == 5 && rank["operations"][0]["count"] == 1),
                "{ranks:?}"
            );
        }
        assert!(sandbox.path("out/rank0").is_dir() && sandbox.path("out/rank1").is_dir());
    }
}

#[test]
fn a_gpu_is_one_rank_s() {
    if !gpus(1) {
        return;
    }
    let sandbox = Sandbox::new();
    let arguments = ["exec", "moe", "--preset", "tiny", "--backend", "cuda", "--device", "0"];
    let outputs = launch_same(&sandbox, torchrun, 2, &arguments);
    assert_first_tells(&outputs, 3);
    assert!(outputs[0].stderr.contains("ranks 0 and 1 on"), "{}", outputs[0].stderr);
    assert!(outputs[0].stderr.contains("use the same GPU"), "{}", outputs[0].stderr);
}

/// A process that is killed, wherever the other is: in a library that waits for it, or in a collective.
#[test]
fn a_rank_that_is_killed_ends_the_other_on_its_gpu() {
    if !gpus(2) || !times_are_told() {
        return;
    }
    for killed in 0..2 {
        let sandbox = Sandbox::new();
        let arguments = ["exec", "all_reduce", "--backend", "cuda", "--iterations", "1000000"];
        let mut children = start(&sandbox, torchrun, &vec![arguments.to_vec(); 2]);
        wait_until_under_way(&mut children[1 - killed]);
        kill(&children[killed], "-KILL");
        let outputs: Vec<Output> = children.into_iter().map(finish).collect();
        let left = &outputs[1 - killed];
        assert_eq!(left.code, Some(4), "{}", left.stderr);
        let told = format!("rank {killed} was lost: its process ended");
        assert!(left.stderr.contains(&told) || left.stdout.contains(&told), "{}{}", left.stdout, left.stderr);
    }
}

/// Open MPI itself, where it is installed.
#[test]
fn mpirun_starts_ranks() {
    let sandbox = Sandbox::new();
    sandbox.write("stairs.aorta", STAIRS);
    let arguments = ["exec", "stairs.aorta", "--backend", "sim", "--effort", "quick"];
    let whole = sandbox.good(&[&arguments[..], &["--ranks", "2"]].concat());
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "-n", "2", env!("CARGO_BIN_EXE_aorta")]).args(arguments);
    command.current_dir(sandbox.path("")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // mpirun refuses to run as root by default, which is usual in containers.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    match command.spawn() {
        Ok(child) => {
            let output = finish(child);
            assert_eq!(output.code, Some(0), "{}", output.stderr);
            assert_eq!(output.stdout, whole);
        }
        Err(error) => println!("skipped: there is no `mpirun` here: {error}"),
    }
}
