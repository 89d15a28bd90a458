//! What processes of a run send to each other, by the program's own sources: the library is built without it.

#[path = "../../src/backend/rendezvous/frame.rs"]
pub mod frame;
#[path = "../../src/backend/rendezvous/seal.rs"]
pub mod seal;
