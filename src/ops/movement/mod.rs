//! Operations that move elements and leave their values as they are, except for `scatter`.

pub(super) mod concat;
pub(super) mod copies;
pub(super) mod counted;
pub(super) mod embedding;
pub(super) mod gather;
pub(super) mod pad;
pub(super) mod padded_chunks;
pub(super) mod pages;
pub(super) mod peers;
pub(super) mod permute;
pub(super) mod read;
pub(super) mod transpose;
