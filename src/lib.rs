//! A declarative workload language for GPU streams, and its executor.
//!
//! A text travels along a line of plain data. Each arrow is one public function, each type is what all passes before
//! have checked:
//!
//! ```text
//! text ─ syntax::parse ─▶ Ast ─ model::analyze ─▶ Program ─ plan::build ─▶ Plan
//!      ─ schedule::place ─▶ Schedule ─ exec::prepare ─▶ Session ─ iterate, observe ─▶ Samples, Trace
//!      ─ measure::measure ─▶ Variant, in a RunRecord ─ report::{table, csv, chrome_trace} ─▶ text
//! ```
//!
//! The outside world enters in three places: files and arguments in [`cli`], the number of hardware queues in
//! [`schedule::place`], the device behind [`exec::Backend`]. A program and its plan are the same on every machine.
//!
//! ```
//! use aorta::backend::sim::Sim;
//! use aorta::base::Nanos;
//! use aorta::config::{EffortPlan, Profile};
//! use aorta::exec::{self, Backend, Control, LaunchMode};
//! use aorta::{measure, model, plan, schedule, syntax};
//!
//! let text = "buffer x: f32[1024]  step { map(x * 2 -> x) }";
//! let (ast, errors) = syntax::parse(text, 0, &syntax::Limits::default());
//! assert!(errors.is_empty());
//! let program = model::analyze(&ast, &model::Options::default()).expect("names, types and shapes are right");
//! let plan = plan::build(&program).expect("no race");
//!
//! let backend = Sim::new(Profile::named("h200")?);
//! let schedule = schedule::place(&program, &plan, backend.topology(), &schedule::Options::default());
//! let measured = measure::measure(&measure::Request {
//!     ranks: &[measure::RankRequest { number: 0, program: &program, plan: &plan, schedule: &schedule }],
//!     backend: &backend,
//!     modes: &[LaunchMode::Stream, LaunchMode::Graph],
//!     effort: EffortPlan { warmup: 3, iterations: 5 },
//!     observed_iterations: 1,
//!     exec: exec::Options {
//!         in_flight: 2,
//!         timeout: Nanos(1_000_000_000),
//!         gemm_candidates: 1,
//!         observed_operations: 100,
//!         gate_depth: 512,
//!         cold: false,
//!         contents: None,
//!     },
//!     control: &Control::default(),
//!     profile: None,
//!     expectations: Vec::new(),
//!     places: &|_| String::new(),
//!     keep: &|_| {},
//! })?;
//! for variant in &measured.variants {
//!     println!("as {}: {}", variant.launch, variant.time.p50_ns.expect("five samples have a median"));
//! }
//! # assert_eq!(measured.variants.len(), 2);
//! # assert!(measured.complete);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/architecture.md` tells which module may use which, and how to add an operation, a backend or a diagnostic.
#![deny(unsafe_code)]
pub mod backend;
pub mod base;
pub mod cli;
pub mod config;
pub mod cost;
pub mod exec;
pub mod measure;
pub mod model;
pub mod ops;
pub mod plan;
pub mod render;
pub mod report;
pub mod schedule;
pub mod syntax;
