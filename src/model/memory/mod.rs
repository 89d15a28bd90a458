//! Buffers, their contents, and the slices of memory that operations use.

pub(super) mod buckets;
pub(super) mod contents;
pub(super) mod grid;
pub(super) mod init;
pub(super) mod live_rows;
pub(super) mod local_buffer;
pub(super) mod parts;
pub(super) mod regions;
pub(super) mod scratch;
pub(super) mod slice;
pub(super) mod unwritten;
pub(super) mod views;
