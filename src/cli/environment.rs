//! What is read from the environment.

use std::path::PathBuf;

use indexmap::IndexMap;

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
