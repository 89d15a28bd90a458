//! How much the tests compute.

/// True with `AORTA_LONG`, as in `.ci/long`: tests take every case that `.ci/run` has no time for.
pub fn is_long() -> bool {
    std::env::var_os("AORTA_LONG").is_some()
}

/// True in `.ci/run` and `.ci/long`, which set `CI`; false in a plain `cargo test`.
pub fn is_full() -> bool {
    is_long() || std::env::var_os("CI").is_some()
}

/// Number of inputs that a test draws: `all`, or a fifth of them in a plain `cargo test`, but at least one.
pub fn draws(all: usize) -> usize {
    if is_full() { all } else { all.div_ceil(5) }
}
