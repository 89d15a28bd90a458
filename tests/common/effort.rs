//! How much the tests compute: `.ci/long` sets `AORTA_LONG`, and `.ci/run` sets `CI`. A plain `cargo test` sets neither, and takes a fifth
//! of the inputs of the tests that compute most.

/// A plain `cargo test` tries one of this many inputs of the largest tests; CI tries all.
const FIFTH: u32 = 5;

/// True with `AORTA_LONG`: tests take every case, also those that `.ci/run` has no time for.
pub fn is_long() -> bool {
    std::env::var_os("AORTA_LONG").is_some()
}

/// False in a plain `cargo test`.
pub fn is_full() -> bool {
    is_long() || std::env::var_os("CI").is_some()
}

/// The number of inputs that a test draws where `.ci/run` draws `all`; at least one.
pub fn draws(all: u32) -> u32 {
    if is_full() { all } else { all.div_ceil(FIFTH) }
}

/// The cases of a list that a test takes: all, or every fifth from the first on.
pub fn chosen<T>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    all.into_iter().step_by(if is_full() { 1 } else { FIFTH as usize })
}
