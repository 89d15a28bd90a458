//! The command line as users see it: what a command prints, what it writes, and its exit code.

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
