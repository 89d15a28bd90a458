//! What a launcher says to each of the processes that it starts: torchrun, Open MPI, MPICH and its relatives, Slurm.
//!
//! A function of the environment alone, so that a table can test it.

use crate::backend::rendezvous::is_loopback;

use super::error::InputError;

/// Processes at most.
const MAX_WORLD: u32 = 1024;

/// Where no port is known it is one of these, chosen by the job's name: below those that systems hand out.
const PORTS: (u16, u16) = (12_000, 20_000);

/// The place of this process among those that a launcher has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// `torchrun`, `Open MPI`, …
    pub name: &'static str,
    pub rank: u32,
    pub world: u32,
    /// The number among the processes of this host.
    pub local_rank: u32,
    /// The host of rank 0.
    pub address: String,
    /// The first port at which rank 0 may listen.
    pub port: u16,
    /// The name of the run, the same in all its processes.
    pub job: String,
    /// All processes are on this host, as far as this one can know.
    pub one_host: bool,
}

/// The variables of a launcher.
struct Names {
    name: &'static str,
    rank: &'static str,
    world: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_world: &'static [&'static str],
}

/// Those that set the variables of their processes; what one inside of another says counts.
const LAUNCHERS: [Names; 4] = [
    Names {
        name: "torchrun",
        rank: "RANK",
        world: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_world: &["LOCAL_WORLD_SIZE"],
    },
    Names {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        world: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_world: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    Names {
        name: "MPICH",
        rank: "PMI_RANK",
        world: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"],
        local_world: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
    },
    Names {
        name: "Slurm",
        rank: "SLURM_PROCID",
        world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_world: &[],
    },
];

/// Reads variables.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// The text of a variable; one that is empty is not set.
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, InputError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = || InputError::Launcher {
            why: format!("{name} is `{text}`, and a whole number is expected"),
            help: format!("a launcher sets it; `unset {name}` where none is meant"),
        };
        text.parse().map(Some).map_err(|_| wrong())
    }

    /// The first of several variables that is set.
    fn first<T: std::str::FromStr>(&self, names: &[&'static str]) -> Result<Option<T>, InputError> {
        for name in names {
            if let Some(value) = self.number(name)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

/// The place that a launcher has given this process, `parent` being the process that started it; nothing where no
/// launcher has. Half of what a launcher sets is an error.
pub fn find(get: &dyn Fn(&str) -> Option<String>, parent: u32) -> Result<Option<Launcher>, InputError> {
    let variables = Variables(get);
    let torch = variables.text("RANK").is_some() || variables.text("TORCHELASTIC_RUN_ID").is_some();
    // `srun` may set the variables of MPICH beside its own; with MPICH's own launcher, Slurm has started that one.
    let step = in_step(&variables);
    let both = step && variables.text("PMI_RANK").is_some();
    let same = variables.text("PMI_RANK") == variables.text("SLURM_PROCID")
        && variables.text("PMI_SIZE") == variables.text("SLURM_STEP_NUM_TASKS");
    let found = LAUNCHERS.iter().find(|names| match names.name {
        "torchrun" => torch,
        "MPICH" if both && same => false,
        "Slurm" => step,
        _ => variables.text(names.rank).is_some(),
    });
    found.map(|names| place(names, &variables, parent)).transpose()
}

/// Whether `srun` has started this process beside others: the shell of `salloc` or `sbatch`, and a step of one task, have
/// variables of Slurm too.
fn in_step(variables: &Variables) -> bool {
    let several = |name| variables.text(name).is_some_and(|count| count != "1");
    let step = variables.text("SLURM_STEP_ID").or_else(|| variables.text("SLURM_STEPID"));
    let tasks = match variables.text("SLURM_STEP_NUM_TASKS") {
        Some(_) => several("SLURM_STEP_NUM_TASKS"),
        None => several("SLURM_NTASKS"),
    };
    step.is_some() && variables.text("SLURM_PROCID").is_some() && tasks
}

fn place(names: &Names, variables: &Variables, parent: u32) -> Result<Launcher, InputError> {
    let missing = |what: &str| InputError::Launcher {
        why: format!("{} starts this process, it seems, and {what} is not set", names.name),
        help: format!(
            "set it, or `unset {}` where no launcher is meant; `torchrun`, `mpirun` and `srun` set all that is needed",
            if variables.text(names.rank).is_some() { names.rank } else { "TORCHELASTIC_RUN_ID" }
        ),
    };
    let rank: u32 = variables.number(names.rank)?.ok_or_else(|| missing(names.rank))?;
    let world: u32 = variables.first(names.world)?.ok_or_else(|| missing(names.world[0]))?;
    let local_rank: u32 = variables.first(names.local_rank)?.ok_or_else(|| missing(names.local_rank[0]))?;
    let local_world: Option<u32> = variables.first(names.local_world)?;
    contradictions(names, (rank, world), (local_rank, local_world), variables)?;
    let one_host = match names.name {
        "Slurm" => variables.first(&["SLURM_STEP_NUM_NODES", "SLURM_NNODES"])? == Some(1u32),
        _ => local_world == Some(world),
    };
    let named = job(names, variables);
    let address = address(names, variables, one_host).ok_or_else(|| missing("MASTER_ADDR, the host of rank 0,"))?;
    let given: Option<u16> = variables.number("MASTER_PORT")?;
    let (port, named) = match (given, named) {
        (Some(0), _) => {
            let why = "MASTER_PORT is 0, and no other rank could know which port that becomes".to_owned();
            return Err(InputError::Launcher { why, help: "write a port that is free, such as 29500".to_owned() });
        }
        // The agent listens at that port itself.
        (Some(port), named) if holds_port(variables) => (port.saturating_add(1), named),
        (Some(port), named) => (port, named),
        (None, Some(named)) => (derived(&named), Some(named)),
        // What started this process has started the others.
        (None, None) if one_host => (derived(&parent.to_string()), Some(format!("of process {parent}"))),
        (None, None) => return Err(missing("MASTER_PORT, a free port of that host,")),
    };
    let job = format!("{}, {}, {address}:{port}", names.name, named.as_deref().unwrap_or("without a name"));
    let one_host = one_host || is_loopback(&address);
    Ok(Launcher { name: names.name, rank, world, local_rank, address, port, job, one_host })
}

/// The place that a launcher has given this process.
pub fn here() -> Result<Option<Launcher>, InputError> {
    #[cfg(unix)]
    let parent = std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    let parent = 0;
    find(&super::environment::variable, parent)
}

/// What cannot be true together.
fn contradictions(
    names: &Names,
    (rank, world): (u32, u32),
    (local_rank, local_world): (u32, Option<u32>),
    variables: &Variables,
) -> Result<(), InputError> {
    let wrong = |why: String| {
        let help = format!("these are the variables of {}: start all processes by one launcher", names.name);
        Err(InputError::Launcher { why, help })
    };
    let size = names.world.iter().find(|name| variables.text(name).is_some()).unwrap_or(&names.world[0]);
    if world == 0 || world > MAX_WORLD {
        return wrong(format!("{size} is {world}, and a run has between 1 and {MAX_WORLD} ranks"));
    }
    if rank >= world {
        return wrong(format!("{} is {rank}, and {size} is {world}: ranks go from 0 to {}", names.rank, world - 1));
    }
    let local = |list: &[&'static str]| list.iter().find(|name| variables.text(name).is_some()).copied().unwrap_or("");
    let (own, most) = (local(names.local_rank), local(names.local_world));
    match local_world {
        Some(count) if count > world => wrong(format!("{most} is {count}, and {size} only {world}")),
        Some(count) if local_rank >= count => wrong(format!("{own} is {local_rank}, and {most} is {count}")),
        None if local_rank >= world => wrong(format!("{own} is {local_rank}, and {size} is {world}")),
        _ => Ok(()),
    }
}

/// The name of the job, where a launcher gives it one that all hosts know.
fn job(names: &Names, variables: &Variables) -> Option<String> {
    match names.name {
        "torchrun" => variables.text("TORCHELASTIC_RUN_ID"),
        "Slurm" => {
            let job = variables.text("SLURM_JOB_ID").or_else(|| variables.text("SLURM_JOBID"))?;
            let step = variables.text("SLURM_STEP_ID").or_else(|| variables.text("SLURM_STEPID"))?;
            Some(format!("{job}.{step}"))
        }
        _ => ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"].iter().find_map(|name| variables.text(name)),
    }
}

/// The host of rank 0: what a user says, else what a launcher does.
fn address(names: &Names, variables: &Variables, one_host: bool) -> Option<String> {
    let given = variables.text("MASTER_ADDR").or_else(|| one_host.then(|| "127.0.0.1".to_owned()));
    given.or_else(|| {
        let nodes = variables.text("SLURM_STEP_NODELIST").filter(|_| names.name == "Slurm");
        let known = nodes.and_then(|nodes| first_host(&nodes));
        known.or_else(|| variables.text("SLURM_LAUNCH_NODE_IPADDR").filter(|_| names.name == "Slurm"))
    })
}

/// Whether the agent of torchrun listens at MASTER_PORT.
fn holds_port(variables: &Variables) -> bool {
    variables.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// A port that all who know the job's name come to.
fn derived(job: &str) -> u16 {
    // FNV-1a: the same on every host and in every version.
    let hash = job
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    PORTS.0 + (hash % u64::from(PORTS.1)) as u16
}

/// The first host of a list of Slurm's: `gpu01` of `gpu[01-04,7],login`, `r1n3` of `r[1-2]n[3-4]`.
fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    while let Some(end) = rest.find(['[', ',']) {
        host += &rest[..end];
        if rest[end..].starts_with(',') {
            return Some(host).filter(|host| !host.is_empty());
        }
        let (range, behind) = rest[end + 1..].split_once(']')?;
        host += range.split(['-', ',']).next().unwrap_or_default();
        rest = behind;
    }
    host += rest;
    Some(host).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests;
