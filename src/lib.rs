//! aorta
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
