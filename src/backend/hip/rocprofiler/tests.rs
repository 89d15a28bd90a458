//! AMD's own library and header, where they are installed. The double in `tests/doubles` shows the rest.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// ROCm's folder.
fn rocm() -> PathBuf {
    std::env::var_os("ROCM_PATH").map_or_else(|| PathBuf::from("/opt/rocm"), PathBuf::from)
}

#[test]
fn every_function_is_in_amds_library() {
    let paths = SearchPaths { toolkits: vec![rocm().join("lib")], ..SearchPaths::default() };
    match paths.open(&NAMES.map(str::to_owned)) {
        Err(why) => println!("skipped: rocprofiler-sdk, which is not installed: {why:?}"),
        Ok(opened) => assert!(Table::load(&opened).is_ok(), "{} has every function", opened.path),
    }
}

/// The offsets, checked by a C compiler against AMD's header.
#[test]
fn layouts_are_those_of_amds_header() {
    let include = rocm().join("include");
    if !include.join("rocprofiler-sdk/buffer_tracing.h").is_file() {
        println!("skipped: the headers of rocprofiler-sdk, which are not in {}", include.display());
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("layouts.c");
    std::fs::write(&file, asserted()).expect("a file of our own");
    let compiled = compile(&file, &include);
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

fn compile(file: &Path, include: &Path) -> std::process::Output {
    let mut compiler = Command::new("cc");
    compiler.args(["-fsyntax-only", "-D__HIP_PLATFORM_AMD__", "-I"]).arg(include).arg(file);
    compiler.output().expect("a C compiler, which ROCm needs too")
}

/// A C program that compiles if the header has the layouts of this module.
fn asserted() -> String {
    let dispatch = "rocprofiler_buffer_tracing_kernel_dispatch_record_t";
    let copy = "rocprofiler_buffer_tracing_memory_copy_record_t";
    let mut text =
        "#include <stddef.h>\n#include <rocprofiler-sdk/buffer.h>\n#include <rocprofiler-sdk/buffer_tracing.h>\n\
                    #include <rocprofiler-sdk/registration.h>\n"
            .to_owned();
    let mut same = |what: &str, value: usize| text += &format!("_Static_assert({what} == {value}, \"{what}\");\n");
    for record in [dispatch, copy] {
        same(&format!("offsetof({record}, correlation_id.external)"), EXTERNAL);
        same(&format!("offsetof({record}, start_timestamp)"), START);
        same(&format!("offsetof({record}, end_timestamp)"), END);
    }
    same(&format!("offsetof({dispatch}, dispatch_info.queue_id)"), QUEUE);
    same(&format!("offsetof({dispatch}, dispatch_info.group_segment_size)"), GROUP_SEGMENT);
    same(&format!("offsetof({dispatch}, dispatch_info.workgroup_size)"), WORKGROUP);
    same(&format!("offsetof({dispatch}, dispatch_info.grid_size)"), GRID);
    same("offsetof(rocprofiler_record_header_t, payload)", std::mem::offset_of!(Header, payload));
    same("sizeof(rocprofiler_record_header_t)", size_of::<Header>());
    same("sizeof(rocprofiler_tool_configure_result_t)", size_of::<ConfigureResult>());
    same("sizeof(rocprofiler_client_id_t)", size_of::<ClientId>());
    same("ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH", KERNEL_DISPATCH as usize);
    same("ROCPROFILER_BUFFER_TRACING_MEMORY_COPY", MEMORY_COPY as usize);
    same("ROCPROFILER_BUFFER_CATEGORY_TRACING", TRACING as usize);
    same("ROCPROFILER_BUFFER_POLICY_LOSSLESS", LOSSLESS as usize);
    same("ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED", CONFIGURATION_LOCKED as usize);
    same("ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED", PERMISSION_DENIED as usize);
    text
}
