//! aorta
#![deny(unsafe_code)]
pub mod base;
pub mod syntax;
