//! Share of their cases that tests take: all of them with `AORTA_LONG`, a sixth in `.ci/run`, which sets `CI`, and a twelfth in a plain
//! `cargo test`. Successive revisions take different cases of a list, so that CI takes each of them every sixth time.

use std::collections::BTreeSet;
use std::env;
use std::process::Command;
use std::sync::OnceLock;

/// CI takes one of this many cases.
const SIXTH: usize = 6;

/// A plain `cargo test` takes one of this many.
const TWELFTH: usize = 12;

/// True with `AORTA_LONG`: tests take every case, also those that `.ci/run` has no time for.
pub fn is_long() -> bool {
    env::var_os("AORTA_LONG").is_some()
}

/// False in a plain `cargo test`.
pub fn is_full() -> bool {
    is_long() || env::var_os("CI").is_some()
}

/// Number of cases of which one is taken.
fn share() -> usize {
    match (is_long(), is_full()) {
        (true, _) => 1,
        (false, true) => SIXTH,
        (false, false) => TWELFTH,
    }
}

/// Number of inputs that a test draws where `AORTA_LONG` draws `all`; at least one.
pub fn draws(all: u32) -> u32 {
    all.div_ceil(share() as u32)
}

/// Cases of a list that a test takes, in their order; at least one.
pub fn chosen<T>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let all: Vec<T> = all.into_iter().collect();
    let step = share().min(all.len()).max(1);
    all.into_iter().skip(turn() % step).step_by(step)
}

/// The members that have a feature which no member before them has, and one of `share` others, in their order. With `AORTA_LONG`,
/// all members.
pub fn covering<T, F: Ord>(all: impl IntoIterator<Item = T>, share: usize, features: impl Fn(&T) -> Vec<F>) -> Vec<T> {
    let (mut seen, mut others) = (BTreeSet::new(), turn());
    let mut is_taken = |one: &T| {
        let before = seen.len();
        seen.extend(features(one));
        others += usize::from(seen.len() == before);
        is_long() || seen.len() > before || others.is_multiple_of(share)
    };
    all.into_iter().filter(|one| is_taken(one)).collect()
}

/// Number that selects cases: `AORTA_TURN`, or the number of revisions up to this one, or 0 outside of a repository. Prints it, so that a
/// failed test names it.
pub fn turn() -> usize {
    static TURN: OnceLock<usize> = OnceLock::new();
    let counted = || {
        let revisions = ["-C", env!("CARGO_MANIFEST_DIR"), "rev-list", "--count", "HEAD"];
        let output = Command::new("git").args(revisions).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    let given = || env::var("AORTA_TURN").ok()?.parse().ok();
    let turn = *TURN.get_or_init(|| given().or_else(counted).unwrap_or(0));
    println!("AORTA_TURN={turn} takes the same cases again");
    turn
}
