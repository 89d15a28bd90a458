//! The messages between processes of a run, compiled from the program's own sources because the library does not export
//! them.

#[path = "../../src/backend/rendezvous/frame.rs"]
pub mod frame;
#[path = "../../src/backend/rendezvous/seal.rs"]
pub mod seal;
