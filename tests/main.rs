//! All tests but those that have to be a program of their own: so they are compiled and linked once. A module for each
//! subject; `cargo test --test suite cli::` runs those of one.

mod common;

mod attackers;
mod cli;
mod clocks;
mod compare;
mod diagnostics;
mod differential;
mod docs;
mod double;
mod emulation;
mod errors;
mod exchange;
mod execution;
mod faults;
mod format;
mod fsdp_reference;
mod golden;
mod hang;
mod hip;
mod hip_devices;
mod kernels;
mod layers;
mod lints;
mod moe_reference;
mod peers;
mod plan_formats;
mod processes;
mod ranks;
mod reference;
mod remedies;
mod rendezvous;
mod robustness;
mod rocm;
mod schedules;
mod sessions;
mod simulation;
mod slots;
mod speculative_reference;
mod stopping;
mod sweep;
mod syntax;
mod waiting;
mod witness;
mod workloads;
