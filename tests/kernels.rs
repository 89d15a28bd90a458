//! Every generated kernel compiles with NVRTC, which needs no GPU.

use std::path::PathBuf;

use aorta::backend::SearchPaths;
use aorta::backend::cuda::Nvrtc;
use aorta::ops::Source;

use crate::common;

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
    let sources: Vec<Source> = common::kernels::all(true).into_values().collect();
    println!("{} kernels", sources.len());
    common::parallel::map(&sources, |source| {
        for architecture in ["sm_80", "sm_90"] {
            let code = nvrtc.compile(source, architecture);
            let code = code.unwrap_or_else(|log| panic!("{} for {architecture}:\n{log}\n{}", source.name, source.text));
            assert!(code.starts_with(b"\x7fELF"), "{} is machine code", source.name);
        }
    });
}
