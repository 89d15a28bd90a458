//! Generated kernels compile with NVRTC, which needs no GPU: a share of the kernels that together have every line of any, each for one
//! architecture, or every kernel for each with `AORTA_LONG`.

use std::path::PathBuf;

use aorta::backend::SearchPaths;
use aorta::backend::cuda::Nvrtc;
use aorta::ops::KernelSource;

use crate::common;

/// The compiler; `None` if there is none, which CI refuses.
pub fn nvrtc() -> Option<Nvrtc> {
    let folders = std::env::var_os("AORTA_LIBRARY_PATH").map(|paths| std::env::split_paths(&paths).collect());
    let folders: Vec<PathBuf> = folders.unwrap_or_default();
    let paths = SearchPaths { first: folders, ..SearchPaths::default() };
    match Nvrtc::open(&paths, 13) {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "CI installs NVRTC: {error}");
            println!("skipped: {error}; AORTA_LIBRARY_PATH names the folder of libnvrtc.so");
            None
        }
    }
}

#[test]
fn every_kernel_compiles() {
    let Some(nvrtc) = nvrtc() else { return };
    let architectures = ["sm_80", "sm_90", "sm_90a"];
    let (is_long, turn) = (common::effort::is_long(), common::effort::turn());
    let sources = common::effort::chosen(common::kernels::covering_lines().into_values());
    let sources: Vec<(usize, KernelSource)> = sources.enumerate().collect();
    println!("{} kernels", sources.len());
    common::parallel::map(&sources, |(number, source)| {
        let mine = architectures.iter().enumerate().filter(|(place, _)| is_long || (number + turn) % 3 == *place);
        for (_, architecture) in mine {
            let code = nvrtc.compile(source, architecture);
            let code = code.unwrap_or_else(|log| panic!("{} for {architecture}:\n{log}\n{}", source.name, source.text));
            assert!(code.starts_with(b"\x7fELF"), "{} is machine code", source.name);
        }
    });
}
