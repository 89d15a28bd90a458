//! A declarative workload language for GPU streams, and its executor.
//!
//! A text travels along a line of plain data. Each arrow is one public function, and each type holds what all passes
//! before have checked. [`compile()`] does the first line for every rank:
//!
//! ```text
//! text ─ syntax::parse ─▶ Ast ─ model::analyze ─▶ Program ─ plan::build ─▶ Plan
//!      ─ schedule::place ─▶ Schedule ─ exec::prepare ─▶ Session ─ iterate, observe ─▶ Samples, Trace
//!      ─ measure::measure ─▶ Variant, in a RunRecord ─ report::run ─▶ Page ─ report::page::text ─▶ text
//! ```
//!
//! The outside world enters in three places: files and arguments in [`cli`], the number of hardware queues in
//! [`schedule::place`], the device behind [`exec::Backend`]. A program and its plan are the same on every machine.
//!
//! A whole run, from the text to the report:
//!
//! ```
//! use aorta::backend::sim::Sim;
//! use aorta::config::{Profile, Settings};
//! use aorta::exec::{Backend, Control, RankSchedule};
//! use aorta::measure::{self, Request, RunRecord};
//! use aorta::{compile, report};
//!
//! let text = "buffer x: f32[1024]  step { map(x * 2 -> x) }";
//! let compiled = aorta::compile("double.aorta", text, &compile::CompileOptions::default())?;
//!
//! let settings = Settings::layered(None, &["effort=quick".to_owned(), "launch=both".to_owned()])?;
//! let backend = Sim::new(Profile::named("h200")?);
//! let schedules = compiled.schedules(backend.topology());
//! let ranks = RankSchedule::all(0, &compiled.ranks, &schedules);
//! let control = Control::default();
//! let measured = measure::measure(&Request::new(&ranks, &backend, &compiled.sources, &settings, &control))?;
//!
//! let record = RunRecord::new(&compiled, &schedules, &backend, &settings, measured);
//! print!("{}", report::page::text(&[report::run(&record, None)]));
//! # assert_eq!(record.variants.len(), 2);
//! # assert!(record.complete && record.measurement);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/architecture.md` lists which module may use which, and explains how to add an operation, a backend or a
//! diagnostic.
#![deny(unsafe_code)]
pub mod backend;
pub mod base;
pub mod cli;
pub mod compile;
pub mod config;
pub mod cost;
pub mod exec;
pub mod fuse;
pub mod measure;
pub mod model;
pub mod ops;
pub mod plan;
pub mod render;
pub mod report;
pub mod schedule;
pub mod syntax;

pub use compile::compile;
