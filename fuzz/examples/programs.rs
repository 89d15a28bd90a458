//! Checks the properties of the targets `text` and `plan` on generated files, without coverage as a guide:
//! `cargo run --profile fuzz --example programs -- FIRST COUNT`, in `fuzz`.
//!
//! File number N is the same in every run of one version. Prints each file that fails by its number, and at the end how many
//! files it has checked. With one number alone, prints the file.

use std::panic::catch_unwind;
use std::time::Instant;

use aorta::base::random::hash;
use aorta_fuzz::grammar::files;
use aorta_fuzz::{grammar, properties};

/// Files between two lines of progress.
const BETWEEN: u64 = 1000;

/// Bytes of choices, determined by the number.
fn choices(number: u64) -> Vec<u8> {
    let length = 40 + hash(1, number) % 600;
    (0..length).map(|index| hash(number + 2, index) as u8).collect()
}

/// True if `aorta check` would accept the file on one rank.
fn is_accepted(text: &str) -> bool {
    let options = aorta::compile::CompileOptions { find: &files::find, ..Default::default() };
    aorta::compile("generated.aorta", text, &options).is_ok()
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let (first, count) = match numbers[..] {
        [first, count] => (first, count),
        [number] => return print!("{}", grammar::text(&choices(number))),
        _ => panic!("usage: programs FIRST COUNT, or programs NUMBER"),
    };
    let (began, mut accepted, mut failed) = (Instant::now(), 0, 0);
    for number in first..first + count {
        let text = grammar::text(&choices(number));
        let kept = catch_unwind(|| properties::text_and_plan(&text));
        if kept.is_err() {
            failed += 1;
            println!("file {number} fails");
        }
        accepted += u64::from(number % 16 == 0 && is_accepted(&text));
        let done = number + 1 - first;
        if done.is_multiple_of(BETWEEN) || done == count {
            let sampled = (first..=number).filter(|number| number % 16 == 0).count();
            let seconds = began.elapsed().as_secs();
            println!("{done} files from {first} on, {failed} fail, {accepted} of {sampled} are valid, {seconds} s");
        }
    }
}
