//! Reads the environment: the user's folders, variables of vendors' libraries, and facts about the machine.

use std::path::PathBuf;

use indexmap::IndexMap;

use crate::backend::{SearchPaths, user_id};
use crate::config::{MAX_QUEUES, queues_variable};
use crate::measure::record::Environment;

/// Prefixes of the variables that drivers and libraries read. A record contains them.
const PREFIXES: [&str; 18] = [
    "CUDA_",
    "CUBLAS",
    "NCCL_",
    "NVIDIA_",
    "NVTX_",
    "HIP_",
    "HIPBLASLT_",
    "HSA_",
    "GPU_",
    "ROC_",
    "ROCR_",
    "ROCM_",
    "ROCBLAS_",
    "RCCL_",
    "AMD_",
    "DEBUG_HIP_",
    "DEBUG_CLR_",
    "OMP_",
];

/// Longest path of a folder, in bytes, in which a socket can be created.
const LONGEST_FOLDER: usize = 64;

/// Settings of the kernel that affect measurements, by their name in the record.
const SWITCHES: [(&str, &str); 4] = [
    ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("numa_balancing", "/proc/sys/kernel/numa_balancing"),
    ("huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("smt", "/sys/devices/system/cpu/smt/control"),
];

/// The user's home folder; `None` if `HOME` is unset or a relative path, which would point into the current project.
fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// A folder of the XDG Base Directory Specification: the variable's value, or its default below the home folder. The
/// specification says to ignore relative paths.
fn base_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute());
    named.or_else(|| Some(home()?.join(below_home)))
}

/// The user's settings file; `None` without a home folder.
pub fn config_file() -> Option<PathBuf> {
    Some(base_folder("XDG_CONFIG_HOME", ".config")?.join("aorta").join("config.ron"))
}

/// The file with the secret of this user's runs; `None` without a home folder.
pub fn secret_file() -> Option<PathBuf> {
    config_file().map(|file| file.with_file_name("secret"))
}

/// The folder where a user's ranks connect on one host, the same for all processes of a run.
pub fn runtime_folder() -> PathBuf {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let base = base.filter(|base| base.is_absolute() && base.is_dir() && base.as_os_str().len() < LONGEST_FOLDER);
    base.map_or_else(|| PathBuf::from(format!("/tmp/aorta-{}", user_id())), |base| base.join("aorta"))
}

fn folders(name: &str) -> Vec<PathBuf> {
    let Some(value) = std::env::var_os(name) else { return Vec::new() };
    std::env::split_paths(&value).filter(|folder| !folder.as_os_str().is_empty()).collect()
}

/// The folder of compiled kernels; `None` without a home folder.
pub fn cache_folder() -> Option<PathBuf> {
    Some(base_folder("XDG_CACHE_HOME", ".cache")?.join("aorta").join("kernels"))
}

/// The folder of sweeps without a named file; `None` without a home folder.
pub fn state_folder() -> Option<PathBuf> {
    Some(base_folder("XDG_STATE_HOME", ".local/state")?.join("aorta"))
}

/// Folders where NVIDIA's installers, containers and Python wheels put libraries. AORTA_LIBRARY_PATH comes first.
pub fn library_paths() -> SearchPaths {
    let mut toolkits: Vec<PathBuf> = Vec::new();
    for root in ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].iter().flat_map(|name| folders(name)) {
        toolkits.extend([root.join("lib64"), root.join("lib"), root.join("targets/x86_64-linux/lib")]);
    }
    for root in installed("/usr/local", "cuda") {
        toolkits.extend(["lib64", "targets/x86_64-linux/lib", "extras/CUPTI/lib64"].map(|folder| root.join(folder)));
    }
    let of_system = ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
    toolkits.extend(of_system.map(PathBuf::from));
    let packages = python_packages().into_iter().filter(|site| site.join("nvidia").is_dir()).collect();
    SearchPaths { first: folders("AORTA_LIBRARY_PATH"), toolkits, packages }
}

/// Entries of a folder whose names begin with that of a toolkit: first the one without a version, then the newest.
fn installed(folder: &str, toolkit: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
    let mut installed: Vec<PathBuf> = entries.unwrap_or_default();
    installed
        .retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(toolkit)));
    installed.sort();
    installed.reverse();
    installed.sort_by_key(|path| path.file_name().is_none_or(|name| name != toolkit));
    installed
}

/// Folders where AMD's installers, containers and Python wheels put libraries. AORTA_LIBRARY_PATH comes first.
pub fn rocm_paths() -> SearchPaths {
    let mut toolkits: Vec<PathBuf> = Vec::new();
    let mut roots: Vec<PathBuf> =
        ["ROCM_PATH", "ROCM_HOME", "HIP_PATH"].iter().flat_map(|name| folders(name)).collect();
    roots.extend(installed("/opt", "rocm"));
    for root in roots {
        toolkits.extend([root.join("lib"), root.join("lib64")]);
    }
    // The wheels of ROCm itself, and PyTorch's, which contain the libraries too.
    for site in python_packages() {
        toolkits.extend(["_rocm_sdk_core/lib", "_rocm_sdk_libraries/lib", "torch/lib"].map(|inner| site.join(inner)));
    }
    toolkits.extend(["/usr/lib/x86_64-linux-gnu", "/usr/lib64"].map(PathBuf::from));
    toolkits.retain(|folder| folder.is_dir());
    SearchPaths { first: folders("AORTA_LIBRARY_PATH"), toolkits, packages: Vec::new() }
}

/// The `site-packages` folders of active environments, of the Pythons on PATH, and of the user.
fn python_packages() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().flat_map(|name| folders(name)).collect();
    for folder in folders("PATH") {
        if folder.join("python3").exists() || folder.join("python").exists() {
            prefixes.extend(folder.parent().map(PathBuf::from));
        }
    }
    prefixes.extend(home().map(|home| home.join(".local")));
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut sites = Vec::new();
    for prefix in prefixes {
        let Ok(entries) = std::fs::read_dir(prefix.join("lib")) else { continue };
        let mut versions: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        versions.sort();
        for version in versions.into_iter().rev() {
            let python =
                version.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python3"));
            if python {
                sites.extend([version.join("site-packages"), version.join("dist-packages")]);
            }
        }
    }
    let mut known = std::collections::BTreeSet::new();
    sites.retain(|site| known.insert(site.clone()));
    sites
}

/// The variable that sets the number of hardware queues of a vendor's driver, and its value; `None` if it is unset or
/// invalid.
pub fn queues(vendor: &str) -> Option<(&'static str, u32)> {
    queues_in(vendor, variable).ok().flatten()
}

/// The variable that [`queues`] returns, where `value` returns the values of variables; `None` if the variable is unset.
///
/// # Errors
///
/// Returns the variable and its value if it is not a number from 1 to 32.
pub fn queues_in(
    vendor: &str,
    value: impl Fn(&str) -> Option<String>,
) -> Result<Option<(&'static str, u32)>, (&'static str, String)> {
    let variable = queues_variable(vendor);
    let Some(text) = value(variable).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    match text.trim().parse() {
        Ok(count) if (1..=MAX_QUEUES as u32).contains(&count) => Ok(Some((variable, count))),
        _ => Err((variable, text)),
    }
}

/// The value of a variable; `None` if it is unset or not Unicode.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The file that GitHub shows on the page of a job as its summary; `None` outside of GitHub's workflows.
pub fn job_summary() -> Option<PathBuf> {
    std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The library that an NVIDIA profiler injects for ranges; `None` without such a profiler.
pub fn nvtx_injection() -> Option<PathBuf> {
    std::env::var_os("NVTX_INJECTION64_PATH").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The path of a program on PATH; `None` if no folder has it.
pub fn program(name: &str) -> Option<PathBuf> {
    folders("PATH").into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The name of a variable that makes every driver call synchronous; `None` if none is set.
pub fn blocking_calls() -> Option<&'static str> {
    let names = ["CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY"];
    let set = |name: &&str| std::env::var(name).is_ok_and(|value| !matches!(value.trim(), "" | "0"));
    names.into_iter().find(set)
}

/// The word in brackets of a kernel setting such as `always [madvise] never`, otherwise the whole text.
fn chosen(text: &str) -> &str {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text, |(word, _)| word)
}

/// The host name.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Describes the machine and its drivers' settings for the record.
///
/// `further` are facts that the caller provides. `set` are the variables given to this run, which are recorded whatever
/// their names.
pub fn describe(further: &[(String, String)], set: &[String]) -> Environment {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')))
        .map(|(_, name)| name.trim().to_owned())
        .unwrap_or_default();
    let memory_bytes = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| kib * 1024);
    let mut facts: IndexMap<String, String> = SWITCHES
        .iter()
        .map(|(name, path)| ((*name).to_owned(), chosen(read(path).trim()).to_owned()))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    if processors > 0 {
        facts.insert("processors".to_owned(), processors.to_string());
    }
    let nodes = std::fs::read_dir("/sys/devices/system/node").map_or(0, |entries| {
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok())).count()
    });
    if nodes > 0 {
        facts.insert("numa_nodes".to_owned(), nodes.to_string());
    }
    facts.extend(further.iter().cloned());
    let given: Vec<&str> = set.iter().filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
    let is_recorded = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || given.contains(&name);
    let mut variables: IndexMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| is_recorded(name))
        .collect();
    variables.sort_unstable_keys();
    Environment {
        host: host(),
        os: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()).trim().to_owned(),
        cpu,
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        memory_bytes,
        facts,
        variables,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_says_what_is_chosen() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("0"), "0");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn every_variable_that_a_file_may_set_is_recorded() {
        for name in crate::config::allowed_variables() {
            assert!(PREFIXES.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        }
    }

    #[test]
    fn the_machine_is_described() {
        let environment = describe(&[], &[]);
        assert!(environment.cpus > 0);
        assert!(environment.memory_bytes.is_none_or(|bytes| bytes > 1 << 20), "{:?}", environment.memory_bytes);
        assert!(environment.facts.values().all(|value| !value.is_empty() && !value.contains('\n')));
    }
}
