//! Environments as launchers set them.

use super::*;

/// Id of the parent process.
const PARENT: u32 = 4711;

/// Parses an environment of `NAME=value` words.
fn found(words: &str) -> Result<Option<Launcher>, String> {
    let get = |name: &str| {
        let pairs = words.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned()).next()
    };
    find(&get, PARENT).map_err(|error| {
        let InputError::Launcher { why, help } = error else { panic!("{error}") };
        format!("{why}; {help}")
    })
}

/// Summarizes the launcher, rank, world size, local rank, address and port.
fn place(words: &str) -> String {
    let Some(launcher) = found(words).unwrap_or_else(|error| panic!("{words}: {error}")) else {
        return "none".to_owned();
    };
    let Launcher { name, rank, world, local_rank, address, port, .. } = launcher;
    format!("{name}: {rank} of {world}, {local_rank} here, at {address}:{port}")
}

const TORCHRUN: &str = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=29500 \
                        TORCHELASTIC_RUN_ID=none";

#[test]
fn torchrun() {
    assert_eq!(place(TORCHRUN), "torchrun: 3 of 4, 1 here, at node0:29500");
    // The agent listens on the port itself.
    let agent = format!("{TORCHRUN} TORCHELASTIC_USE_AGENT_STORE=True");
    assert_eq!(place(&agent), "torchrun: 3 of 4, 1 here, at node0:29501");
    let none = format!("{TORCHRUN} TORCHELASTIC_USE_AGENT_STORE=False");
    assert_eq!(place(&none), "torchrun: 3 of 4, 1 here, at node0:29500");
    // Inside a Slurm step with one process on each host.
    let nested = format!("{TORCHRUN} SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0");
    assert_eq!(place(&nested), "torchrun: 3 of 4, 1 here, at node0:29500");
    // Set by hand, as frameworks are started without a launcher.
    let hand = "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.0.0.1 MASTER_PORT=12345";
    assert_eq!(place(hand), "torchrun: 0 of 2, 0 here, at 10.0.0.1:12345");
}

const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1234567890";

#[test]
fn open_mpi() {
    let here = place(OPEN_MPI);
    assert!(here.starts_with("Open MPI: 1 of 2, 1 here, at 127.0.0.1:"), "{here}");
    // The port depends on the job and not on the rank.
    assert_ne!(place(&OPEN_MPI.replace("1234567890", "1234567891")), here);
    assert_eq!(place(&OPEN_MPI.replace("_RANK=1", "_RANK=0")), here.replace("1 of 2, 1 here", "0 of 2, 0 here"));
    // The user's values take precedence.
    let given = format!("{OPEN_MPI} MASTER_ADDR=gpu01 MASTER_PORT=1025");
    assert_eq!(place(&given), "Open MPI: 1 of 2, 1 here, at gpu01:1025");
    // With several hosts the user must give rank 0's address.
    let two = OPEN_MPI.replace("OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1");
    let two = two.replace("OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_RANK=0");
    assert!(found(&two).unwrap_err().contains("MASTER_ADDR, the host of rank 0, is not set"));
    assert!(place(&format!("{two} MASTER_ADDR=gpu01")).starts_with("Open MPI: 1 of 2, 0 here, at gpu01:"));
}

#[test]
fn mpich() {
    let words = "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2";
    let here = place(words);
    assert!(here.starts_with("MPICH: 0 of 2, 0 here, at 127.0.0.1:"), "{here}");
    // Without a job name, the parent process's id serves as the name.
    let job = found(words).unwrap().unwrap().job;
    assert!(job.contains("of process 4711"), "{job}");
    // On several hosts, such a name would not be unique.
    let two = "PMI_RANK=0 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 MASTER_ADDR=gpu01";
    assert!(found(two).unwrap_err().contains("MASTER_PORT, a free port of that host, is not set"));
    assert_eq!(place(&format!("{two} MASTER_PORT=2000")), "MPICH: 0 of 4, 0 here, at gpu01:2000");
}

const STEP: &str = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=8 \
                    SLURM_LOCALID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=gpu[03-04]";

#[test]
fn slurm() {
    let here = place(STEP);
    assert!(here.starts_with("Slurm: 5 of 8, 1 here, at gpu03:"), "{here}");
    assert_ne!(place(&STEP.replace("SLURM_STEP_ID=0", "SLURM_STEP_ID=1")), here);
    assert_ne!(place(&STEP.replace("SLURM_JOB_ID=77", "SLURM_JOB_ID=78")), here);
    let one = place(&STEP.replace("SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_NODES=1"));
    assert_eq!(one, here.replace("gpu03", "127.0.0.1"));
    assert_eq!(place(&format!("{STEP} MASTER_ADDR=a MASTER_PORT=9")), "Slurm: 5 of 8, 1 here, at a:9");
    let unknown = STEP.replace(" SLURM_STEP_NODELIST=gpu[03-04]", " SLURM_LAUNCH_NODE_IPADDR=10.1.1.1");
    assert_eq!(place(&unknown), here.replace("gpu03", "10.1.1.1"));
    // With `--mpi=pmi2`, Slurm sets MPICH's variables too, and its own take precedence.
    assert_eq!(place(&format!("{STEP} PMI_RANK=5 PMI_SIZE=8")), here);
    // MPICH's own launcher, started by Slurm once on each of two hosts.
    let hydra = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 PMI_RANK=5 \
                 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4 MASTER_ADDR=a MASTER_PORT=9";
    assert_eq!(place(hydra), "MPICH: 5 of 8, 1 here, at a:9");
}

#[test]
fn a_shell_of_slurm_is_no_launch() {
    let salloc = "SLURM_JOB_ID=77 SLURM_NTASKS=8 SLURM_JOB_NODELIST=gpu[03-04]";
    let sbatch = "SLURM_JOB_ID=77 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_LOCALID=0";
    let shell = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=8";
    for words in ["", "MASTER_ADDR=node0 MASTER_PORT=29500", salloc, sbatch, shell, "WORLD_SIZE=8 LOCAL_RANK=0"] {
        assert_eq!(place(words), "none", "{words}");
    }
}

#[test]
fn lists_of_hosts() {
    let cases = [
        ("gpu7", Some("gpu7")),
        ("gpu7,gpu8", Some("gpu7")),
        ("gpu[01-04,7]", Some("gpu01")),
        ("gpu[7,01-04],login", Some("gpu7")),
        ("gpu-[9-12].cluster", Some("gpu-9.cluster")),
        ("r[1-2]n[03-04],x", Some("r1n03")),
        ("", None),
        (",a", None),
        ("gpu[01", None),
    ];
    for (list, host) in cases {
        assert_eq!(first_host(list).as_deref(), host, "{list}");
    }
}

/// An incomplete or contradictory set of variables names the wrong variable.
#[test]
fn contradictory_variables_are_errors() {
    let cases = [
        ("RANK=0", "WORLD_SIZE is not set; set it, or `unset RANK`"),
        ("TORCHELASTIC_RUN_ID=x", "RANK is not set; set it, or `unset TORCHELASTIC_RUN_ID`"),
        ("RANK=0 WORLD_SIZE=2", "LOCAL_RANK is not set"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", "MASTER_ADDR, the host of rank 0, is not set"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", "MASTER_PORT, a free port of that host, is not set"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT is 0"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=70000", "MASTER_PORT is `70000`"),
        ("RANK=two WORLD_SIZE=2 LOCAL_RANK=0", "RANK is `two`, and a whole number is expected"),
        ("RANK=-1 WORLD_SIZE=2 LOCAL_RANK=0", "RANK is `-1`"),
        ("RANK=2 WORLD_SIZE=2 LOCAL_RANK=0", "RANK is 2, and WORLD_SIZE is 2: ranks go from 0 to 1"),
        ("RANK=0 WORLD_SIZE=0 LOCAL_RANK=0", "WORLD_SIZE is 0, and a run has between 1 and 1024 ranks"),
        ("RANK=0 WORLD_SIZE=4000000000 LOCAL_RANK=0", "WORLD_SIZE is 4000000000"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is 2, and LOCAL_WORLD_SIZE is 2"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE is 3, and WORLD_SIZE only 2"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=5", "LOCAL_RANK is 5, and WORLD_SIZE is 2"),
        ("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"),
        ("SLURM_STEP_ID=0 SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=0", "SLURM_PROCID is 9"),
        ("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=8", "SLURM_LOCALID is not set"),
    ];
    for (words, told) in cases {
        let error = found(words).expect_err(words);
        assert!(error.contains(told), "{words}: {error}");
    }
}
