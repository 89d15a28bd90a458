//! The binary as people meet it: what a command prints, what it writes, and which exit code it ends with.

mod checking;
mod commands;
mod compare;
mod exit_codes;
mod fmt;
mod launchers;
mod mistakes;
mod names;
mod outputs;
mod ranks;
mod sandbox;
mod settings;
mod trace;
