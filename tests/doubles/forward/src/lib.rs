//! A double of AMD's HIP libraries that forwards to NVIDIA's: the driver, NVRTC, NCCL and cuBLASLt. A HIP backend runs on
//! it with real streams, copies, graphs and collectives, and nothing that it shows is a figure of an AMD GPU.
//!
//! One file serves under all names: `libamdhip64.so`, `libhiprtc.so`, `librccl.so` and `libhipblaslt.so` are links to it.
//! NVIDIA's libraries are looked for in the folders of `HIP_DOUBLE_CUDA` and of `AORTA_LIBRARY_PATH`, then where the
//! loader looks, then in `/usr/local/cuda`.
//!
//! # Safety
//! Each exported function is called as the vendor's header says, and hands on what it got: places for results are valid,
//! texts end with NUL, handles are alive, addresses have the room that is told.

mod blaslt;
mod cuda;
mod device;
mod library;
mod rccl;
mod rtc;
mod runtime;
