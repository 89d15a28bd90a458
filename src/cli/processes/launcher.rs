//! Reads the environment variables that a launcher sets for each process: torchrun, Open MPI, MPICH and its relatives,
//! Slurm.
//!
//! Depends only on the environment, so that a table can test it.

use crate::backend::rendezvous::is_loopback;

use crate::cli::error::InputError;

/// Maximum number of processes.
const MAX_WORLD: u32 = 1024;

/// Range of ports from which the job's name selects one, if none is given. It is below the ephemeral ports of operating
/// systems.
const PORTS: (u16, u16) = (12_000, 20_000);

/// The place of this process among those that a launcher has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The launcher's name: `torchrun`, `Open MPI`, …
    pub name: &'static str,
    pub rank: u32,
    pub world: u32,
    /// Number of this process among those of its host.
    pub local_rank: u32,
    /// Address of rank 0's host.
    pub address: String,
    /// First port on which rank 0 tries to listen.
    pub port: u16,
    /// Name of the run, the same in all its processes.
    pub job: String,
    /// True if all processes are on this host, as far as the launcher's variables show.
    pub one_host: bool,
}

struct LauncherVariables {
    name: &'static str,
    rank: &'static str,
    world: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_world: &'static [&'static str],
}

/// Launchers that set variables for their processes. If one runs inside another, the inner one counts.
const LAUNCHERS: [LauncherVariables; 4] = [
    LauncherVariables {
        name: "torchrun",
        rank: "RANK",
        world: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_world: &["LOCAL_WORLD_SIZE"],
    },
    LauncherVariables {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        world: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_world: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    LauncherVariables {
        name: "MPICH",
        rank: "PMI_RANK",
        world: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"],
        local_world: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
    },
    LauncherVariables {
        name: "Slurm",
        rank: "SLURM_PROCID",
        world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_world: &[],
    },
];

/// Reads environment variables.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// The value of a variable; `None` if it is unset or empty.
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, InputError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let expected = if name == "MASTER_PORT" { "a port from 1 to 65535" } else { "a whole number" };
        let wrong = || InputError::Launcher {
            why: format!("{name} is `{text}`, and {expected} is expected"),
            help: format!("a launcher sets it; `unset {name}` where none is meant"),
        };
        text.parse().map(Some).map_err(|_| wrong())
    }

    /// The first of several variables that is set, parsed; `None` if none is set.
    fn first<T: std::str::FromStr>(&self, names: &[&'static str]) -> Result<Option<T>, InputError> {
        for name in names {
            if let Some(value) = self.number(name)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

/// Finds the place that a launcher has given this process; `None` without a launcher. `parent` is the parent process's
/// id. An incomplete set of variables is an error.
pub fn find(get: &dyn Fn(&str) -> Option<String>, parent: u32) -> Result<Option<Launcher>, InputError> {
    let variables = Variables(get);
    let torch = variables.text("RANK").is_some() || variables.text("TORCHELASTIC_RUN_ID").is_some();
    // `srun` may set MPICH's variables in addition to its own. With MPICH's own launcher, Slurm has started that
    // launcher.
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

/// True if `srun` has started this process together with others. The shell of `salloc` or `sbatch` and a step with one task
/// have Slurm's variables too.
fn in_step(variables: &Variables) -> bool {
    let several = |name| variables.text(name).is_some_and(|count| count != "1");
    let step = variables.text("SLURM_STEP_ID").or_else(|| variables.text("SLURM_STEPID"));
    let tasks = match variables.text("SLURM_STEP_NUM_TASKS") {
        Some(_) => several("SLURM_STEP_NUM_TASKS"),
        None => several("SLURM_NTASKS"),
    };
    step.is_some() && variables.text("SLURM_PROCID").is_some() && tasks
}

fn place(names: &LauncherVariables, variables: &Variables, parent: u32) -> Result<Launcher, InputError> {
    let missing = |what: &str| InputError::Launcher {
        why: format!("{} seems to have started this process, but {what} is not set", names.name),
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
        // torchrun's agent listens on that port itself.
        (Some(port), named) if holds_port(variables) => (port.saturating_add(1), named),
        (Some(port), named) => (port, named),
        (None, Some(named)) => (derived(&named), Some(named)),
        // The parent process has started the others too.
        (None, None) if one_host => (derived(&parent.to_string()), Some(format!("of process {parent}"))),
        (None, None) => return Err(missing("MASTER_PORT, a free port of that host,")),
    };
    let job = format!("{}, {}, {address}:{port}", names.name, named.as_deref().unwrap_or("without a name"));
    let one_host = one_host || is_loopback(&address);
    Ok(Launcher { name: names.name, rank, world, local_rank, address, port, job, one_host })
}

/// Finds the launcher of this process, and its rank there, from the environment. `None` without a launcher.
pub fn detect() -> Result<Option<Launcher>, InputError> {
    find(&crate::cli::environment::variable, std::os::unix::process::parent_id())
}

/// Fails if the values contradict each other.
fn contradictions(
    names: &LauncherVariables,
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

/// The job's name; `None` if the launcher sets none that is equal on all hosts.
fn job(names: &LauncherVariables, variables: &Variables) -> Option<String> {
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

/// The host of rank 0: MASTER_ADDR, otherwise the launcher's value; `None` if neither is known.
fn address(names: &LauncherVariables, variables: &Variables, one_host: bool) -> Option<String> {
    let given = variables.text("MASTER_ADDR").or_else(|| one_host.then(|| "127.0.0.1".to_owned()));
    given.or_else(|| {
        let nodes = variables.text("SLURM_STEP_NODELIST").filter(|_| names.name == "Slurm");
        let known = nodes.and_then(|nodes| first_host(&nodes));
        known.or_else(|| variables.text("SLURM_LAUNCH_NODE_IPADDR").filter(|_| names.name == "Slurm"))
    })
}

/// True if torchrun's agent listens at MASTER_PORT.
fn holds_port(variables: &Variables) -> bool {
    variables.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// The port that follows from the job's name.
fn derived(job: &str) -> u16 {
    // FNV-1a: the same on every host and in every version.
    let hash = job
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    PORTS.0 + (hash % u64::from(PORTS.1)) as u16
}

/// The first host of a Slurm node list: `gpu01` of `gpu[01-04,7],login`, `r1n3` of `r[1-2]n[3-4]`.
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
