//! NVIDIA's own library needs no GPU to say which metrics a chip has.

use std::path::Path;

use crate::backend::libraries::SearchPaths;

use super::*;

/// The sizes that NVIDIA's headers compute for these structures.
#[test]
fn parameters_have_the_sizes_of_the_header() {
    let sizes = [
        (Initialize::SIZE, 16),
        (ChipName::SIZE, 32),
        (Availability::SIZE, 40),
        (HostInitialize::SIZE, 48),
        (AddMetrics::SIZE, 40),
        (Evaluate::SIZE, 72),
        (DataSize::SIZE, 64),
        (SetConfig::SIZE, 90),
        (Stop::SIZE, 41),
    ];
    sizes.into_iter().for_each(|(own, theirs)| assert_eq!(own, theirs));
}

/// The metrics of Hopper, by CUPTI 13. A process cannot have two versions of the libraries that it loads by name.
#[test]
fn hopper_has_the_metrics() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cupti/13/nvidia/cu13/lib");
    if !library.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "CI fetches CUPTI: {}", library.display());
        println!("skipped: CUPTI: `pip install --target target/cupti/13 nvidia-cuda-cupti` brings it, as .ci/run does");
        return;
    }
    let paths = SearchPaths { first: vec![library], ..SearchPaths::default() };
    let opened = paths.open(&["libcupti.so.13".to_owned()]).expect("it loads");
    opened.open_beside(BESIDE);
    let table = Table::load(&opened).unwrap_or_else(|error| panic!("{}: {error}", opened.path));
    // The chip's counters without those of NVLink and PCIe, which not every chip counts in ranges.
    for metric in &METRICS[..5] {
        let mut host = HostInitialize { chip: c"GH100".as_ptr(), ..HostInitialize::new() };
        let name = CString::new(metric.name).expect("a constant without NUL");
        let names = [name.as_ptr()];
        // SAFETY: each structure is that of its call, and lives as long as the call.
        unsafe {
            assert_eq!((table.host_initialize)(&mut host), 0);
            let mut add = AddMetrics { host: host.host, names: names.as_ptr(), count: 1, ..AddMetrics::new() };
            assert_eq!((table.add_metrics)(&mut add), 0, "{}", metric.name);
            (table.host_deinitialize)(&mut Host { host: host.host, ..Host::new() });
        }
    }
}
