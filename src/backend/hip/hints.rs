//! Explains why a run finds no AMD GPU, or a different one than expected: the kernel driver, the files that the
//! libraries open, and environment variables that hide devices.

use std::io::ErrorKind;
use std::path::Path;

/// Environment variables that select devices, in the order in which the libraries apply them. Each numbers the devices
/// that the variable before it has left visible.
const SELECTING: [&str; 4] =
    ["ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"];

/// Environment variable that makes the libraries treat a device as a different architecture.
const OVERRIDE: &str = "HSA_OVERRIDE_GFX_VERSION";

/// The situation for which hints are requested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HintTopic {
    /// No device was found: hints on everything that may hide one.
    NoDevice,
    /// Devices were found: hints on settings that change them.
    Devices,
}

/// Returns hints, each with a remedy. `root` is the root of the file system, `/` except in tests; `variable` returns
/// the value of an environment variable.
pub fn hints(root: &Path, search: HintTopic, variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut hints = Vec::new();
    let gpus = gpus(root);
    if search == HintTopic::NoDevice {
        hints.extend(driver(root, gpus));
        hints.extend(files(root));
    }
    let known = (gpus > 0).then_some(gpus);
    hints.extend(SELECTING.iter().filter_map(|name| selection(name, &variable(name)?, known, search)));
    hints.extend(variable(OVERRIDE).filter(|value| !value.is_empty()).map(|value| {
        format!(
            "{OVERRIDE}={value}: the libraries take the device for that one, and code for it may fail or be slow; unset it \
             unless the device is unknown to them"
        )
    }));
    hints
}

/// True if the kernel has AMD's driver.
pub fn has_driver(root: &Path) -> bool {
    root.join("sys/module/amdgpu").exists()
}

/// Number of GPUs that the kernel's driver offers for computation.
fn gpus(root: &Path) -> usize {
    let nodes = std::fs::read_dir(root.join("sys/class/kfd/kfd/topology/nodes"));
    let properties = nodes.into_iter().flatten().flatten().map(|node| {
        let text = std::fs::read_to_string(node.path().join("properties")).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("simd_count ")?.trim().parse::<u64>().ok());
        count.unwrap_or(0)
    });
    properties.filter(|count| *count > 0).count()
}

/// Returns a hint about the kernel driver: that it is missing, that it offers no GPU, or how many GPUs it offers.
fn driver(root: &Path, gpus: usize) -> Option<String> {
    if !has_driver(root) {
        return Some("the kernel's driver is not loaded (no /sys/module/amdgpu): `sudo modprobe amdgpu`".to_owned());
    }
    if gpus == 0 {
        return Some(
            "the kernel's driver offers no GPU for computation: `sudo dmesg | grep amdgpu` says why".to_owned(),
        );
    }
    let gpus = crate::base::counted(gpus, "GPU");
    Some(format!(
        "the kernel's driver offers {gpus} for computation: the reasons why the libraries do not see them \
                  follow"
    ))
}

/// A hint about a device file that the libraries cannot open for reading and writing; `None` if they can open all of
/// them.
fn files(root: &Path) -> Option<String> {
    let kfd = root.join("dev/kfd");
    let error = std::fs::OpenOptions::new().read(true).write(true).open(&kfd).err()?;
    Some(match error.kind() {
        ErrorKind::NotFound => {
            "there is no /dev/kfd: load the driver; a container needs `--device /dev/kfd --device /dev/dri`".to_owned()
        }
        ErrorKind::PermissionDenied => {
            let group = group(root, &kfd).unwrap_or_else(|| "render".to_owned());
            format!(
                "you do not have permission to open /dev/kfd, which belongs to the group `{group}`: `sudo usermod -aG \
                 render,video $USER`, \
                 then log in again; a container needs `--group-add {group}`"
            )
        }
        _ => format!("/dev/kfd does not open: {error}"),
    })
}

/// The group that owns a file, by name, or by number if it has no name; `None` if the file cannot be examined.
fn group(root: &Path, file: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let number = std::fs::metadata(file).ok()?.gid().to_string();
    let groups = std::fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    let name = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    Some(name.unwrap_or(number))
}

/// A hint about a variable that selects devices; `None` if the variable does not hide any.
fn selection(name: &str, value: &str, gpus: Option<usize>, search: HintTopic) -> Option<String> {
    let value = value.trim();
    if value.is_empty() {
        return Some(format!("{name} is empty, which hides every device: unset it"));
    }
    let numbers: Option<Vec<i64>> = value.split(',').map(|part| part.trim().parse().ok()).collect();
    // A device may also be selected by its UUID.
    let Some(numbers) = numbers else {
        return Some(format!("{name}={value} chooses among the devices"));
    };
    let missing = |number: &&i64| **number < 0 || gpus.is_some_and(|gpus| **number >= gpus as i64);
    match (numbers.iter().find(missing), gpus) {
        (Some(number), Some(gpus)) => Some(format!(
            "{name}={value}: there is no device {number}, since the driver offers {}, counted from 0; all devices \
             after it in the list are hidden too",
            crate::base::counted(gpus, "GPU")
        )),
        (Some(number), None) => {
            Some(format!("{name}={value}: {number} is not a device, and hides all devices after it in the list"))
        }
        (None, _) if search == HintTopic::NoDevice => Some(format!("{name}={value} chooses among the devices")),
        (None, Some(gpus)) if numbers.len() < gpus => Some(format!(
            "{name}={value}: {} of {} are visible, in this order",
            numbers.len(),
            crate::base::counted(gpus, "GPU")
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Creates the files of a machine with `gpus` GPUs.
    fn machine(gpus: usize) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/module/amdgpu/version", "6.10.5\n");
        write(root.path(), "sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 96\nsimd_count 0\n");
        for gpu in 1..=gpus {
            write(root.path(), &format!("sys/class/kfd/kfd/topology/nodes/{gpu}/properties"), "simd_count 1216\n");
        }
        write(root.path(), "dev/kfd", "");
        root
    }

    fn hints_of(root: &Path, search: HintTopic, variables: &[(&str, &str)]) -> String {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        hints(root, search, variable).join("\n")
    }

    #[test]
    fn a_missing_driver_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let hints = hints_of(root.path(), HintTopic::NoDevice, &[]);
        assert!(
            hints.contains("modprobe amdgpu") && hints.contains("no /dev/kfd") && hints.contains("--device"),
            "{hints}"
        );
    }

    #[test]
    fn variables_that_hide_devices_are_reported() {
        let root = machine(2);
        let nothing = |variables| hints_of(root.path(), HintTopic::NoDevice, variables);
        assert!(nothing(&[("HIP_VISIBLE_DEVICES", "")]).contains("HIP_VISIBLE_DEVICES is empty"));
        let wrong = nothing(&[("ROCR_VISIBLE_DEVICES", "2")]);
        assert!(wrong.contains("there is no device 2, since the driver offers 2 GPUs"), "{wrong}");
        assert!(nothing(&[("HIP_VISIBLE_DEVICES", "-1")]).contains("there is no device -1"));
        assert!(nothing(&[("ROCR_VISIBLE_DEVICES", "GPU-1234")]).contains("chooses among the devices"));
        let some = |variables| hints_of(root.path(), HintTopic::Devices, variables);
        assert_eq!(some(&[]), "", "nothing is wrong");
        assert_eq!(some(&[("HIP_VISIBLE_DEVICES", "1,0")]), "", "all of them");
        assert!(some(&[("HIP_VISIBLE_DEVICES", "1")]).contains("1 of 2 GPUs are visible"));
        assert!(some(&[(OVERRIDE, "11.0.0")]).contains("HSA_OVERRIDE_GFX_VERSION=11.0.0"));
    }

    #[test]
    fn the_group_of_a_file_has_a_name() {
        let root = machine(1);
        let number = group(root.path(), &root.path().join("dev/kfd")).unwrap();
        assert!(number.parse::<u32>().is_ok(), "no name is known: {number}");
        write(root.path(), "etc/group", &format!("root:x:99999:\nrender:x:{number}:me\n"));
        assert_eq!(group(root.path(), &root.path().join("dev/kfd")).as_deref(), Some("render"));
    }

    #[test]
    fn a_driver_without_a_gpu_is_reported() {
        let root = machine(0);
        let nothing = hints_of(root.path(), HintTopic::NoDevice, &[]);
        assert!(nothing.contains("offers no GPU for computation"), "{nothing}");
        // A file that cannot be opened is simulated by a missing one.
        std::fs::remove_file(root.path().join("dev/kfd")).unwrap();
        std::fs::create_dir(root.path().join("dev/kfd")).unwrap();
        let nothing = hints_of(root.path(), HintTopic::NoDevice, &[]);
        assert!(nothing.contains("/dev/kfd does not open"), "{nothing}");
    }
}
