//! Streams: their options, and streams of the host.

pub(super) mod host_streams;
pub(super) mod stream_options;
pub(super) mod units;
