//! Share of their cases that tests take: all of them with `AORTA_LONG`, a sixth in `.ci/run`, which sets `CI`, and a twelfth in a plain
//! `cargo test`. A plain `cargo test` also takes a twelfth of many inputs that CI takes in full ([`due`], [`due_draws`]), and leaves out most
//! tests that take long ([`is_due`]). Successive revisions take different cases of a list, so that CI takes each of them every sixth time.

use std::collections::{BTreeMap, BinaryHeap};
use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

/// CI takes one of this many cases.
pub const SIXTH: usize = 6;

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

/// Options of the test program whose value is a word of its own.
const VALUED: [&str; 7] = ["--test-threads", "--skip", "--format", "--color", "--logfile", "--shuffle-seed", "-Z"];

/// True if the command names tests.
pub fn is_named() -> bool {
    let words: Vec<String> = env::args().collect();
    let has_value = |option: &str| VALUED.contains(&option);
    words.windows(2).any(|pair| !pair[1].starts_with('-') && !has_value(&pair[0]))
}

/// False in a plain `cargo test` for eleven of twelve revisions, others for each test. It is for tests that take long and have no
/// list of cases. A command that names tests runs them.
#[track_caller]
pub fn is_due() -> bool {
    let place = place((Location::caller().file(), thread::current().name()));
    let is_due = is_full() || is_named() || (place + turn()).is_multiple_of(TWELFTH);
    if !is_due {
        println!("skipped: `cargo test` takes this test in one of {TWELFTH} revisions, and if it is named");
    }
    is_due
}

/// In `.ci/run`, false for all but one of `share` revisions: a test with another `place`, which is below `share`, runs in another one. It is
/// for the dearest tests, so that no revision has all of them. [`is_due`] decides for a plain `cargo test`.
pub fn is_in_turn(share: usize, place: usize) -> bool {
    let is_taken = is_long() || !is_full() || is_named() || turn() % share == place;
    if !is_taken {
        println!("skipped: CI takes this test in one of {share} revisions, and if it is named");
    }
    is_taken
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
#[track_caller]
pub fn chosen<T>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    one_in(share(), all)
}

/// Number of inputs that a test draws where CI draws `all`: a twelfth in a plain `cargo test` that does not name the test; at least one.
pub fn due_draws(all: u32) -> u32 {
    all.div_ceil(due_share() as u32)
}

/// Cases of a list of which CI takes all, in their order: a twelfth in a plain `cargo test` that does not name the test; at least one.
#[track_caller]
pub fn due<T>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    one_in(due_share(), all)
}

/// Number of cases of which one is taken where CI takes all.
fn due_share() -> usize {
    if is_full() || is_named() { 1 } else { TWELFTH }
}

/// Returns every `share`-th case of a list, at least one. Each revision begins at another case, and so do tests of
/// different files: no revision gives the dearest case to all of them.
#[track_caller]
fn one_in<T>(share: usize, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let all: Vec<T> = all.into_iter().collect();
    let step = share.min(all.len()).max(1);
    let first = if step == 1 { 0 } else { (turn() + place(Location::caller().file())) % step };
    all.into_iter().skip(first).step_by(step)
}

/// A number below [`TWELFTH`] that differs between most inputs.
fn place(input: impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    hasher.finish() as usize % TWELFTH
}

/// Members that together have every feature, and one of `share` others, in their order. With `AORTA_LONG`, all members.
pub fn covering<T, F: Ord>(all: impl IntoIterator<Item = T>, share: usize, features: impl Fn(&T) -> Vec<F>) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    if is_long() {
        return all;
    }
    let mut numbers = BTreeMap::new();
    let numbered = |one| {
        let number = |feature| {
            let next = numbers.len();
            *numbers.entry(feature).or_insert(next)
        };
        let mut found: Vec<usize> = features(one).into_iter().map(number).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let features: Vec<Vec<usize>> = all.iter().map(numbered).collect();
    let (mut others, covers) = (turn(), cover(&features, numbers.len()));
    let mut is_taken = |place: usize| {
        others += usize::from(!covers[place]);
        covers[place] || others.is_multiple_of(share)
    };
    all.into_iter().enumerate().filter(|(place, _)| is_taken(*place)).map(|(_, one)| one).collect()
}

/// Returns which members a greedy cover takes, given the numbers of their features, which are below `count`: repeatedly the one with most
/// features that are not covered yet. Of members with equally many, successive revisions take different ones.
fn cover(features: &[Vec<usize>], count: usize) -> Vec<bool> {
    let (mut seen, mut covers) = (vec![false; count], vec![false; features.len()]);
    let turn = turn();
    let gain = |seen: &[bool], place: usize| {
        let new = features[place].iter().filter(|&&feature| !seen[feature]).count();
        (new, (place + turn) % features.len())
    };
    // The gain of a member shrinks with each one that is taken, so that the one in front is the best if its gain is unchanged.
    let mut ranked: BinaryHeap<_> = (0..features.len()).map(|place| (gain(&seen, place), place)).collect();
    while let Some((before, place)) = ranked.pop() {
        let now = gain(&seen, place);
        if now.0 > 0 && now == before {
            covers[place] = true;
            features[place].iter().for_each(|&feature| seen[feature] = true);
        } else if now.0 > 0 {
            ranked.push((now, place));
        }
    }
    covers
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
