//! Every generated kernel compiles: with NVRTC, for which no GPU is needed.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;

use aorta::backend::SearchPaths;
use aorta::backend::cuda::Nvrtc;
use aorta::backend::gpu::gate;
use aorta::model::{MemoryKind, Options, Setting};
use aorta::ops::{Launch, Source, witness};

/// Every kernel of the file with all operations, for one element type.
fn kernels(dtype: &str, sources: &mut BTreeMap<String, Source>) {
    let text =
        include_str!("workloads/operations.aorta").replace("param dtype = f32", &format!("param dtype = {dtype}"));
    let program = common::analyze_with(&text, &Options { set: Vec::<Setting>::new(), ..Options::default() })
        .unwrap_or_else(|errors| panic!("{errors}"));
    let mut add = |source: &Source| {
        sources.insert(format!("{}\n{}", source.name, source.text), source.clone());
    };
    for spec in &program.specs {
        for launch in spec.launch() {
            if let Launch::Kernel(kernel) = launch {
                add(&kernel.source);
            }
        }
    }
    for memory in &program.memories {
        if let MemoryKind::Buffer(init) | MemoryKind::Bare(init) = memory.kind
            && let Some(kernel) = init.kernel(program.shapes.get(memory.shape).0, 1000)
        {
            add(&kernel.source);
        }
    }
}

#[test]
fn every_kernel_compiles() {
    let folders = std::env::var_os("AORTA_LIBRARY_PATH").map(|paths| std::env::split_paths(&paths).collect());
    let folders: Vec<PathBuf> = folders.unwrap_or_default();
    let paths = SearchPaths { first: folders, ..SearchPaths::default() };
    let nvrtc = match Nvrtc::open(&paths, 13) {
        Ok(nvrtc) => nvrtc,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "CI installs NVRTC: {error}");
            println!("skipped: {error}; AORTA_LIBRARY_PATH names the folder of libnvrtc.so");
            return;
        }
    };
    let mut sources = BTreeMap::new();
    for dtype in ["f64", "f32", "f16", "bf16"] {
        kernels(dtype, &mut sources);
    }
    for spec in [witness::mark(), witness::check(0)] {
        for launch in spec.launch() {
            let Launch::Kernel(kernel) = launch else { panic!("a witness is a kernel") };
            sources.insert(kernel.source.name.clone(), (*kernel.source).clone());
        }
    }
    let gate = gate::source();
    sources.insert(gate.name.clone(), (*gate).clone());
    println!("{} kernels", sources.len());
    for source in sources.values() {
        for architecture in ["sm_80", "sm_90"] {
            let code = nvrtc.compile(source, architecture);
            let code = code.unwrap_or_else(|log| panic!("{} for {architecture}:\n{log}\n{}", source.name, source.text));
            assert!(code.starts_with(b"\x7fELF"), "{} is machine code", source.name);
        }
    }
}
