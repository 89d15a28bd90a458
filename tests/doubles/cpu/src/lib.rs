//! A double of AMD's HIP libraries that runs on the CPU: streams are threads, kernels are compiled by the host's C++
//! compiler. It proves order of calls, lifetimes, error paths and prototypes, and nothing about an AMD GPU.
//!
//! One file serves under all names: `libamdhip64.so`, `libhiprtc.so`, `librccl.so`, `libhipblaslt.so`, `librocblas.so`,
//! `librocm_smi64.so` and `librocprofiler-sdk.so.1` are links to it, so that they share its state.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("fibers are written for x86-64, and code is loaded as Linux does");

mod api;
mod blas;
mod capture;
mod clique;
mod device;
mod element;
mod event;
mod fault;
mod graph;
mod handles;
mod hardware;
mod kernel;
mod memory;
mod number;
mod profiler;
mod status;
mod stream;
