//! What is read from the environment.

use std::path::PathBuf;

use indexmap::IndexMap;

use crate::backend::SearchPaths;
use crate::measure::record::Environment;

/// Prefixes of variables that drivers and libraries read.
const PREFIXES: [&str; 9] = ["CUDA_", "NCCL_", "CUBLAS", "HSA_", "HIP_", "GPU_", "ROC_", "RCCL_", "NVIDIA_"];

/// The user's own settings.
pub fn config_file() -> Option<PathBuf> {
    let base = match std::env::var_os("XDG_CONFIG_HOME").filter(|value| !value.is_empty()) {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".config"),
    };
    Some(base.join("aorta").join("config.ron"))
}

fn folders(name: &str) -> Vec<PathBuf> {
    let Some(value) = std::env::var_os(name) else { return Vec::new() };
    std::env::split_paths(&value).filter(|folder| !folder.as_os_str().is_empty()).collect()
}

/// Where compiled kernels are kept; nothing where there is no home.
pub fn cache_folder() -> Option<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    Some(base.join("aorta").join("kernels"))
}

/// Where NVIDIA's installers, containers and Python wheels put libraries. AORTA_LIBRARY_PATH comes before all.
pub fn library_paths() -> SearchPaths {
    let mut toolkits: Vec<PathBuf> = Vec::new();
    for root in ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].iter().flat_map(|name| folders(name)) {
        toolkits.extend([root.join("lib64"), root.join("lib"), root.join("targets/x86_64-linux/lib")]);
    }
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/local")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    installed
        .retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("cuda")));
    // The newest first, behind the one that is called just `cuda`.
    installed.sort();
    installed.reverse();
    installed.sort_by_key(|path| path.file_name().is_none_or(|name| name != "cuda"));
    for root in installed {
        toolkits.extend([root.join("lib64"), root.join("targets/x86_64-linux/lib")]);
    }
    for folder in ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"] {
        toolkits.push(PathBuf::from(folder));
    }
    SearchPaths { first: folders("AORTA_LIBRARY_PATH"), toolkits, packages: site_packages() }
}

/// The `site-packages` of the environments that are active, of the Pythons on the path, and of the user.
fn site_packages() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().flat_map(|name| folders(name)).collect();
    for folder in folders("PATH") {
        if folder.join("python3").exists() || folder.join("python").exists() {
            prefixes.extend(folder.parent().map(PathBuf::from));
        }
    }
    if let Some(home) = std::env::var_os("HOME") {
        prefixes.push(PathBuf::from(home).join(".local"));
    }
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
    sites.retain(|site| site.join("nvidia").is_dir());
    let mut known = std::collections::BTreeSet::new();
    sites.retain(|site| known.insert(site.clone()));
    sites
}

/// The variable that sets how many hardware queues a vendor's driver uses, and what it says, if it says anything that
/// the driver would take.
pub fn queues(vendor: &str) -> Option<(&'static str, u32)> {
    let variable = if vendor == "amd" { "GPU_MAX_HW_QUEUES" } else { "CUDA_DEVICE_MAX_CONNECTIONS" };
    let count = std::env::var(variable).ok()?.trim().parse().ok()?;
    (1..=32).contains(&count).then_some((variable, count))
}

/// What the machine is, and what its drivers are told.
pub fn describe() -> Environment {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')))
        .map(|(_, name)| name.trim().to_owned())
        .unwrap_or_default();
    let variables: IndexMap<String, String> = {
        let mut found: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
            .filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            .collect();
        found.sort();
        found.into_iter().collect()
    };
    Environment {
        host: read("/proc/sys/kernel/hostname").trim().to_owned(),
        os: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()).trim().to_owned(),
        cpu,
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        variables,
    }
}
