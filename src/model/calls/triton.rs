//! The metadata that Triton keeps beside a compiled kernel in its cache: the launch that the code expects.

use serde::Deserialize;
use serde_json::Value;

use crate::base::json;

use crate::model::limits::{BLOCK_THREADS, MAX_SHARED_MEMORY};

/// The launch of a kernel that Triton has compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::model) struct TritonLaunch {
    /// The function's name.
    pub entry: String,
    /// Threads of a block, all of them along x.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
    /// The device that the code is for, such as `cuda 90` or `hip gfx942`.
    pub target: String,
}

/// The fields of the file that a launch needs. Fields with a default are missing in older versions or for one vendor.
#[derive(Deserialize)]
struct Metadata {
    name: String,
    num_warps: u32,
    #[serde(default = "one")]
    num_ctas: u32,
    shared: u32,
    target: Target,
    #[serde(default)]
    global_scratch_size: u64,
    #[serde(default)]
    profile_scratch_size: u64,
    #[serde(default)]
    launch_cooperative_grid: bool,
    /// Layouts of the tensor descriptors that the host makes for a launch.
    #[serde(default)]
    tensordesc_meta: Vec<Value>,
}

#[derive(Deserialize)]
struct Target {
    backend: String,
    /// A number for CUDA, a name for HIP.
    arch: Value,
    warp_size: u32,
}

fn one() -> u32 {
    1
}

/// Reads the metadata of Triton 3. The error is the problem of the kernel, and the remedy.
pub(in crate::model) fn launch(text: &str) -> Result<TritonLaunch, (String, &'static str)> {
    let metadata: Metadata = json::read(text.as_bytes()).map_err(|error| {
        let help = "name the `.json` file next to the code in a folder of Triton's cache, of Triton 3 or later";
        (format!("has no metadata of Triton in its file: {error}"), help)
    })?;
    let Metadata { num_warps, num_ctas, shared, ref target, .. } = metadata;
    if num_ctas != 1 {
        let help = "compile it with `num_ctas=1`";
        return Err((format!("is launched in clusters of {num_ctas} blocks, which is not supported"), help));
    }
    if metadata.launch_cooperative_grid {
        return Err(("needs a cooperative launch, which is not supported".to_owned(), "compile it without"));
    }
    if !metadata.tensordesc_meta.is_empty() {
        let help = "give it pointers in place of descriptors";
        return Err(("takes tensor descriptors that the host makes, which is not supported".to_owned(), help));
    }
    for (what, bytes) in [("global", metadata.global_scratch_size), ("profile", metadata.profile_scratch_size)] {
        if bytes > 0 {
            let why = format!("needs {bytes} bytes of Triton's {what} scratch memory for each block");
            return Err((why, "compile it without tensor descriptors and without the profiler"));
        }
    }
    let threads = num_warps.saturating_mul(target.warp_size);
    if !(1..=BLOCK_THREADS).contains(&threads) {
        let why =
            format!("has {num_warps} warps of {} threads, and a block has 1 to {BLOCK_THREADS}", target.warp_size);
        return Err((why, "compile it with fewer: `num_warps=8`"));
    }
    if shared > MAX_SHARED_MEMORY {
        let help = "compile it for smaller tiles or fewer stages";
        return Err((format!("needs {shared} bytes of shared memory for each block, more than any device has"), help));
    }
    let arch = match &target.arch {
        Value::String(name) => name.clone(),
        other => other.to_string(),
    };
    let target = format!("{} {arch}", target.backend);
    Ok(TritonLaunch { entry: metadata.name, threads, shared, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(changed: &str) -> String {
        format!(
            r#"{{"name": "add", "num_warps": 4, "shared": 2048, {changed}
                "target": {{"backend": "cuda", "arch": 90, "warp_size": 32}}, "num_stages": 3}}"#
        )
    }

    #[test]
    fn metadata_gives_the_launch() {
        let target = "cuda 90".to_owned();
        let expected = TritonLaunch { entry: "add".to_owned(), threads: 128, shared: 2048, target };
        assert_eq!(launch(&entry("")), Ok(expected));
        let hip = r#"{"name": "add", "num_warps": 8, "num_ctas": 1, "shared": 0, "waves_per_eu": 0,
            "target": {"backend": "hip", "arch": "gfx942", "warp_size": 64}}"#;
        let target = "hip gfx942".to_owned();
        assert_eq!(launch(hip), Ok(TritonLaunch { entry: "add".to_owned(), threads: 512, shared: 0, target }));
    }

    #[test]
    fn unsupported_launches_are_refused() {
        for (changed, told) in [
            ("\"num_ctas\": 2,", "clusters"),
            ("\"launch_cooperative_grid\": true,", "cooperative"),
            ("\"global_scratch_size\": 8,", "global scratch"),
            ("\"profile_scratch_size\": 1,", "profile scratch"),
            ("\"tensordesc_meta\": [{\"swizzle\": 1}],", "descriptors"),
        ] {
            let (why, _) = launch(&entry(changed)).expect_err(changed);
            assert!(why.contains(told), "{why}");
        }
        for text in
            ["", "[]", "{}", "{\"name\": 3}", &entry("\"num_warps\": 3, "), &entry("").replace("4,", "4000000000,")]
        {
            launch(text).expect_err(text);
        }
    }
}
