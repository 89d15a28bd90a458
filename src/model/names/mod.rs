//! Names of a file: their scopes, what they stand for, and help for names that do not exist.

pub(super) mod callee;
pub(super) mod declared;
pub(super) mod foreign_calls;
pub(super) mod index;
pub(super) mod labels;
pub(super) mod locals;
pub(super) mod scopes;
pub(super) mod sets;
pub(super) mod shipped;
pub(super) mod unknown;
pub(super) mod unknown_operation;
