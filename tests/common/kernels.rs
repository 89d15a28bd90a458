//! Every generated kernel: those of all operations for each element type, of buffers, and of the executor.

use std::collections::BTreeMap;

use aorta::backend::gpu;
use aorta::model::{MemoryKind, Options, Setting};
use aorta::ops::{Launch, Source, witness};

/// All kernels by name and source.
pub fn all() -> BTreeMap<String, Source> {
    let mut sources = BTreeMap::new();
    for dtype in ["f64", "f32", "f16", "bf16"] {
        of_operations(dtype, &mut sources);
    }
    for spec in [witness::mark(), witness::check(0)] {
        for launch in spec.launch() {
            let Launch::Kernel(kernel) = launch else { panic!("a witness is a kernel") };
            sources.insert(kernel.source.name.clone(), (*kernel.source).clone());
        }
    }
    for source in gpu::own_kernels() {
        sources.insert(source.name.clone(), (*source).clone());
    }
    sources
}

/// Adds every kernel of the file with all operations, for one element type; and of that with all gradients, whose kernels
/// are `map`s and reductions of other expressions: for one type in CI, for all with `AORTA_LONG`.
fn of_operations(dtype: &str, sources: &mut BTreeMap<String, Source>) {
    let mut files = vec![include_str!("../workloads/operations.aorta")];
    if dtype == "bf16" || std::env::var_os("AORTA_LONG").is_some() {
        files.push(include_str!("../workloads/gradients.aorta"));
    }
    for text in files {
        of_file(&text.replace("param dtype = f32", &format!("param dtype = {dtype}")), sources);
    }
}

/// Adds every kernel of a file.
fn of_file(text: &str, sources: &mut BTreeMap<String, Source>) {
    let program = super::analyze_with(text, &Options { set: Vec::<Setting>::new(), ..Options::default() })
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
