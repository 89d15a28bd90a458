//! The binary: everything is in the library.

use std::process::ExitCode;

use aorta::backend::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    aorta::backend::end_threads_without_memory();
    aorta::cli::run()
}
