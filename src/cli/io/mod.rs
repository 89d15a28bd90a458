//! Reads files of the disk, each within limits, and writes files and the text of the terminal.

pub(super) mod diagnostics;
pub(super) mod files;
pub(super) mod output;
pub(super) mod outputs;
pub(super) mod ownership;
pub(super) mod progress;
