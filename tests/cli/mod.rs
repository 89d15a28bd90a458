//! The binary as people meet it: what a command prints, what it writes, and which exit code it ends with.

mod ab;
mod checking;
mod commands;
mod compare;
mod exit_codes;
mod expected;
mod fmt;
mod hosts;
mod launchers;
mod mistakes;
mod names;
mod outputs;
mod ranks;
pub mod sandbox;
mod search;
mod secret;
mod settings;
mod shortages;
mod suggested;
mod suite;
mod trace;
mod trust;
