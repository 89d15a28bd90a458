//! The vendors' libraries of timestamps, without a GPU: each function that the backends call is there, and records have
//! the layouts that they read. `.ci/run` fetches NVIDIA's libraries and headers. AMD's are looked at where ROCm is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

use crate::common::folder::Folder;

const CUPTI: &str = include_str!("../src/backend/cuda/cupti.rs");
const COUNTERS: &str = include_str!("../src/backend/cuda/counters.rs");
const ROCPROFILER: &str = include_str!("../src/backend/hip/rocprofiler.rs");

/// Names of the functions in a table of a source, which begin with `prefix`.
fn functions<'a>(source: &'a str, prefix: &str) -> Vec<&'a str> {
    let named = |line: &'a str| line.split_once(" = ")?.1.split_once('(').map(|(name, _)| name);
    let is_name = |name: &&str| name.starts_with(prefix) && !name.contains(':');
    let names: Vec<&str> = source.lines().filter_map(named).filter(is_name).collect();
    assert!(!names.is_empty(), "the source has a table of functions {prefix}…");
    names
}

/// The value of a constant of a source.
fn constant(source: &str, name: &str) -> usize {
    let value = source.lines().find_map(|line| line.strip_prefix(&format!("const {name}: "))?.split_once(" = "));
    let value = value.and_then(|(_, value)| value.trim_end_matches(';').parse().ok());
    value.unwrap_or_else(|| panic!("no constant {name}"))
}

/// Offsets of the call's number, the node and the channel in the records of CUPTI's kinds, from the source.
fn offsets(kinds: &str) -> [usize; 3] {
    let line = CUPTI.lines().find_map(|line| line.trim().strip_prefix(&format!("{kinds} => Some((")));
    let numbers = line.expect("the kind has offsets").trim_end_matches(")),");
    let numbers: Vec<usize> = numbers.split(", ").map(|number| number.parse().expect("a number")).collect();
    numbers.try_into().expect("three offsets")
}

/// Folders of NVIDIA's libraries and headers, by the major version of CUDA.
fn fetched() -> Vec<(u32, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cupti");
    let versions = [(12, "12/nvidia/cuda_cupti"), (13, "13/nvidia/cu13")];
    let folder = |(major, path): (u32, &str)| {
        let folder = root.join(path);
        if folder.join("include").is_dir() {
            return Some((major, folder));
        }
        assert!(std::env::var_os("CI").is_none(), "CI fetches CUPTI: {}", folder.display());
        println!("skipped: CUPTI {major}: `pip install --target target/cupti/{major}` brings it, as .ci/run does");
        None
    };
    versions.into_iter().filter_map(folder).collect()
}

/// Kinds of CUPTI's records, by their constants and by their structures, with the sizes for CUDA 12 and 13.
const RECORDS: [(&str, &str, [&str; 2], [usize; 2]); 4] = [
    ("CONCURRENT_KERNEL", "CONCURRENT_KERNEL", ["CUpti_ActivityKernel9", "CUpti_ActivityKernel10"], [208, 216]),
    ("MEMCPY", "MEMCPY | MEMSET", ["CUpti_ActivityMemcpy6"; 2], [96; 2]),
    ("MEMSET", "MEMCPY | MEMSET", ["CUpti_ActivityMemset4"; 2], [88; 2]),
    ("MEMCPY_PEER", "MEMCPY_PEER", ["CUpti_ActivityMemcpyPtoP4"; 2], [96; 2]),
];

/// NVIDIA's library steps from record to record without a GPU, which shows the sizes of its version.
#[test]
fn cupti_has_every_function_and_these_sizes() {
    for (major, folder) in fetched() {
        let path = folder.join(format!("lib/libcupti.so.{major}"));
        // SAFETY: the library is NVIDIA's, and nothing of it runs when it is loaded.
        let library =
            unsafe { Library::new(path.clone()) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // The library does not survive being closed.
        let library: &Library = Box::leak(Box::new(library));
        let names = [functions(CUPTI, "cupti"), functions(COUNTERS, "cupti")].concat();
        assert!(names.len() > 32, "the tables are found: {names:?}");
        for name in names {
            // SAFETY: nothing is called.
            let found = unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) };
            assert!(found.is_ok(), "{} has no {name}", path.display());
        }
        type Next = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> i32;
        // SAFETY: the type is that of the header.
        let next = unsafe { library.get::<Next>("cuptiActivityGetNextRecord".as_bytes()) }.expect("found above");
        for (kind, _, _, sizes) in RECORDS {
            let (number, size) = (constant(CUPTI, kind), sizes[usize::from(major == 13)]);
            let mut buffer = vec![0u64; 512];
            buffer[0] = number as u64;
            buffer[size / 8] = number as u64;
            let mut record: *mut u8 = std::ptr::null_mut();
            let (start, mut places) = (buffer.as_mut_ptr().cast::<u8>(), Vec::new());
            // SAFETY: the buffer holds two records of that kind.
            while unsafe { next(start, 2 * size, &mut record) } == 0 {
                places.push(record as usize - start as usize);
            }
            assert_eq!(places, [0, size], "records of {kind} of CUPTI {major}");
        }
    }
}

/// Checks by a C compiler that a text with static assertions compiles; a message where there is no compiler.
fn compiles(text: &str, include: &[&Path]) {
    let folder = Folder::new();
    let file = folder.write("layouts.c", text);
    let mut compiler = Command::new("cc");
    compiler.args(["-fsyntax-only", "-w", "-D__HIP_PLATFORM_AMD__"]);
    include.iter().for_each(|folder| {
        compiler.arg("-I").arg(folder);
    });
    match compiler.arg(&file).output() {
        Err(error) => println!("skipped: a C compiler, which looks at the vendors' headers: {error}"),
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn same(text: &mut String, what: &str, value: usize) {
    *text += &format!("_Static_assert({what} == {value}, \"{what}\");\n");
}

/// The offsets against NVIDIA's headers. Stand-ins take the place of the headers that these include.
#[test]
fn cupti_has_the_layouts_that_are_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["builtin_types.h", "cuda_stdint.h"] {
        std::fs::write(folder.path().join(name), "").expect("a file of our own");
    }
    let handles = "CUcontext CUstream CUgraph CUgraphExec CUgraphNode CUmodule CUfunction CUevent CUarray";
    let numbers =
        "CUdevice CUgraphNodeType CUresult CUstreamAttrID CUstreamAttrValue CUaccessPolicyWindow CUdevice_attribute";
    let mut types =
        "#pragma once\n#include <stdint.h>\n#include <stddef.h>\ntypedef struct { char bytes[16]; } CUuuid;\n\
                     typedef unsigned long long CUdeviceptr;\n"
            .to_owned();
    handles.split(' ').for_each(|name| types += &format!("typedef void* {name};\n"));
    numbers.split(' ').for_each(|name| types += &format!("typedef int {name};\n"));
    std::fs::write(folder.path().join("cuda.h"), types).expect("a file of our own");
    for (major, version) in fetched() {
        let index = usize::from(major == 13);
        let mut text = "#include <cupti_activity.h>\n#include <cupti_callbacks.h>\n".to_owned();
        for (kind, arm, names, sizes) in RECORDS {
            let (record, [call, node, channel]) = (names[index], offsets(arm));
            let (start, end) = (constant(CUPTI, "START"), constant(CUPTI, "END"));
            let fields = [
                ("start", start),
                ("end", end),
                ("correlationId", call),
                ("graphNodeId", node),
                ("channelID", channel),
            ];
            fields.iter().for_each(|(field, at)| same(&mut text, &format!("offsetof({record}, {field})"), *at));
            same(&mut text, &format!("sizeof({record})"), sizes[index]);
            let name = if kind == "MEMCPY_PEER" { "MEMCPY2" } else { kind };
            same(&mut text, &format!("CUPTI_ACTIVITY_KIND_{name}"), constant(CUPTI, kind));
        }
        let fields = [
            ("registersPerThread", "REGISTERS"),
            ("gridX", "GRID"),
            ("blockX", "BLOCK"),
            ("staticSharedMemory", "STATIC_SHARED"),
            ("dynamicSharedMemory", "DYNAMIC_SHARED"),
            ("sharedMemoryExecuted", "SHARED_EXECUTED"),
            ("name", "NAME"),
        ];
        for (field, name) in fields {
            same(&mut text, &format!("offsetof({}, {field})", RECORDS[0].2[index]), constant(CUPTI, name));
        }
        let others = [
            ("CUpti_CallbackData, correlationId", "CALL_CORRELATION"),
            ("CUpti_ResourceData, resourceDescriptor", "RESOURCE_DESCRIPTOR"),
            ("CUpti_GraphData, node", "GRAPH_NODE"),
            ("CUpti_GraphData, originalNode", "ORIGINAL_NODE"),
        ];
        others.iter().for_each(|(field, name)| same(&mut text, &format!("offsetof({field})"), constant(CUPTI, name)));
        compiles(&text, &[folder.path(), &version.join("include")]);
    }
}

/// Parameters of the range profiler's calls, by their name in the source: the structure of the header, and its last field.
const PARAMETERS: [(&str, &str, &str); 17] = [
    ("Initialize", "CUpti_Profiler_Initialize_Params", "pPriv"),
    ("ChipName", "CUpti_Device_GetChipName_Params", "pChipName"),
    ("Availability", "CUpti_Profiler_GetCounterAvailability_Params", "pCounterAvailabilityImage"),
    ("HostInitialize", "CUpti_Profiler_Host_Initialize_Params", "pHostObject"),
    ("Host", "CUpti_Profiler_Host_Deinitialize_Params", "pHostObject"),
    ("AddMetrics", "CUpti_Profiler_Host_ConfigAddMetrics_Params", "numMetrics"),
    ("ConfigSize", "CUpti_Profiler_Host_GetConfigImageSize_Params", "configImageSize"),
    ("Config", "CUpti_Profiler_Host_GetConfigImage_Params", "pConfigImage"),
    ("Evaluate", "CUpti_Profiler_Host_EvaluateToGpuValues_Params", "pMetricValues"),
    ("Enable", "CUpti_RangeProfiler_Enable_Params", "pRangeProfilerObject"),
    ("Profiler", "CUpti_RangeProfiler_Start_Params", "pRangeProfilerObject"),
    ("DataSize", "CUpti_RangeProfiler_GetCounterDataSize_Params", "counterDataSize"),
    ("InitializeData", "CUpti_RangeProfiler_CounterDataImage_Initialize_Params", "pCounterData"),
    ("SetConfig", "CUpti_RangeProfiler_SetConfig_Params", "targetNestingLevel"),
    ("Push", "CUpti_RangeProfiler_PushRange_Params", "pRangeName"),
    ("Stop", "CUpti_RangeProfiler_Stop_Params", "isAllPassSubmitted"),
    ("Decode", "CUpti_RangeProfiler_DecodeData_Params", "numOfRangeDropped"),
];

/// Types of the fields of a structure of the source, in their order.
fn fields(name: &str) -> Vec<&'static str> {
    let (_, text) = COUNTERS.split_once(&format!("\n    {name} {{")).unwrap_or_else(|| panic!("no parameters {name}"));
    let (text, _) = text.split_once('}').expect("a structure ends");
    let types = text.split([',', ';']).filter_map(|field| field.split_once(": ")).map(|(_, kind)| kind.trim());
    ["usize", "pointer"].into_iter().chain(types).collect()
}

/// The range profiler expects the size of each structure up to the end of its last field.
#[test]
fn parameters_of_counters_have_the_sizes_of_the_header() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in [
        ("string", ""),
        ("cupti_result.h", "#pragma once\n#define CUPTIAPI\ntypedef int CUptiResult;\n"),
        (
            "cuda.h",
            "#pragma once\n#include <stdint.h>\n#include <stddef.h>\ntypedef void* CUcontext;\ntypedef int CUdevice;\n",
        ),
    ] {
        std::fs::write(folder.path().join(name), text).expect("a file of our own");
    }
    for (_, version) in fetched() {
        let headers = ["cuda", "cupti_target", "cupti_profiler_host", "cupti_range_profiler"];
        let mut text: String = headers.iter().map(|header| format!("#include <{header}.h>\n")).collect();
        for (name, structure, last) in PARAMETERS {
            let (mut end, mut last_size) = (0usize, 0);
            for kind in fields(name) {
                last_size = match kind {
                    // The end of a structure without fields of its own.
                    "[u8" => continue,
                    "u8" => 1,
                    "u16" => 2,
                    "i32" | "u32" => 4,
                    _ => 8,
                };
                end = end.next_multiple_of(last_size) + last_size;
            }
            same(&mut text, &format!("{structure}_STRUCT_SIZE"), end);
            same(&mut text, &format!("offsetof({structure}, {last})"), end - last_size);
        }
        for (constant_of_header, name) in [("CUPTI_UserRange", "USER_RANGES"), ("CUPTI_UserReplay", "USER_REPLAY")] {
            same(&mut text, constant_of_header, constant(COUNTERS, name));
        }
        compiles(&text, &[folder.path(), &version.join("include")]);
    }
}

/// NVIDIA's library says without a GPU which metrics a chip has. It loads others by name, so one version of it is asked.
#[test]
fn hopper_has_the_metrics() {
    let Some((_, folder)) = fetched().pop() else { return };
    let open = |name: &str| {
        let path = folder.join("lib").join(name);
        // SAFETY: the libraries are NVIDIA's, and nothing of them runs when they are loaded.
        let library = unsafe { Library::new(&path) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let library: &Library = Box::leak(Box::new(library));
        library
    };
    open("libnvperf_host.so");
    let library = open("libcupti.so.13");
    type Call = unsafe extern "C" fn(*mut usize) -> i32;
    let call = |name: &str, words: &mut [usize]| {
        words[0] = 8 * words.len();
        // SAFETY: the parameters of these functions are words, of which the first is their size.
        unsafe { library.get::<Call>(name.as_bytes()).expect("the table has it")(words.as_mut_ptr()) }
    };
    let added = |metric: &str| {
        let name = std::ffi::CString::new(metric).expect("no NUL");
        let names = [name.as_ptr()];
        let mut host = [0, 0, 0, c"GH100".as_ptr() as usize, 0, 0];
        assert_eq!(call("cuptiProfilerHostInitialize", &mut host), 0);
        let code = call("cuptiProfilerHostConfigAddMetrics", &mut [0, 0, host[5], names.as_ptr() as usize, 1]);
        call("cuptiProfilerHostDeinitialize", &mut [0, 0, host[5]]);
        code
    };
    let quoted = COUNTERS.lines().filter(|line| line.contains("metrics: &[")).flat_map(|line| line.split('"'));
    let metrics: Vec<&str> = quoted.filter(|word| word.contains("__")).collect();
    assert_eq!(metrics.len(), 10, "{metrics:?}");
    metrics.iter().for_each(|metric| assert_eq!(added(metric), 0, "{metric}"));
    assert_ne!(added("sm__no_such_metric.sum"), 0);
}

/// AMD's library and header, where ROCm is installed.
#[test]
fn rocprofiler_has_every_function_and_the_layouts() {
    let rocm = std::env::var_os("ROCM_PATH").map_or_else(|| PathBuf::from("/opt/rocm"), PathBuf::from);
    let path = rocm.join("lib/librocprofiler-sdk.so.1");
    if !path.is_file() {
        println!("skipped: rocprofiler-sdk, which is not in {}", rocm.display());
        return;
    }
    // SAFETY: the library is AMD's, and starts nothing when it is loaded.
    let library = unsafe { Library::new(path.clone()) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // The library does not survive being closed.
    let library: &Library = Box::leak(Box::new(library));
    for name in functions(ROCPROFILER, "rocprofiler_") {
        // SAFETY: nothing is called.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) };
        assert!(found.is_ok(), "{} has no {name}", path.display());
    }
    let include = rocm.join("include");
    if !include.join("rocprofiler-sdk/buffer_tracing.h").is_file() {
        println!("skipped: the headers of rocprofiler-sdk, which are not in {}", include.display());
        return;
    }
    let (dispatch, copy) =
        ("rocprofiler_buffer_tracing_kernel_dispatch_record_t", "rocprofiler_buffer_tracing_memory_copy_record_t");
    let mut text =
        "#include <stddef.h>\n#include <rocprofiler-sdk/buffer.h>\n#include <rocprofiler-sdk/buffer_tracing.h>\n"
            .to_owned();
    for record in [dispatch, copy] {
        for (field, name) in
            [("correlation_id.external", "EXTERNAL"), ("start_timestamp", "START"), ("end_timestamp", "END")]
        {
            same(&mut text, &format!("offsetof({record}, {field})"), constant(ROCPROFILER, name));
        }
    }
    let fields = [
        ("queue_id", "QUEUE"),
        ("group_segment_size", "GROUP_SEGMENT"),
        ("workgroup_size", "WORKGROUP"),
        ("grid_size", "GRID"),
    ];
    for (field, name) in fields {
        same(&mut text, &format!("offsetof({dispatch}, dispatch_info.{field})"), constant(ROCPROFILER, name));
    }
    let numbers = [
        ("ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH", "KERNEL_DISPATCH"),
        ("ROCPROFILER_BUFFER_TRACING_MEMORY_COPY", "MEMORY_COPY"),
        ("ROCPROFILER_BUFFER_CATEGORY_TRACING", "TRACING"),
        ("ROCPROFILER_BUFFER_POLICY_LOSSLESS", "LOSSLESS"),
        ("ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED", "CONFIGURATION_LOCKED"),
        ("ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED", "PERMISSION_DENIED"),
    ];
    numbers.iter().for_each(|(theirs, own)| same(&mut text, theirs, constant(ROCPROFILER, own)));
    compiles(&text, &[&include]);
}
