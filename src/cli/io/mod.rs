//! Input and output: the only files that read the disk and write to the terminal.

pub(super) mod diagnostics;
pub(super) mod files;
pub(super) mod output;
pub(super) mod outputs;
pub(super) mod ownership;
pub(super) mod progress;
