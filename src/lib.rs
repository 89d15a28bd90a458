//! aorta
#![deny(unsafe_code)]
pub mod base;
pub mod model;
pub mod ops;
pub mod syntax;
