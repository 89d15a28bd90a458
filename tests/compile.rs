//! `aorta::compile`: from a text to the programs of all ranks, or to all of its diagnostics.

use std::num::NonZeroU32;

use aorta::compile::{CompileError, CompileOptions, Compiled, RankCount, first_offset};

use crate::common;

fn compiled(text: &str, options: &CompileOptions) -> Compiled {
    common::compile("a.aorta", text, options).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn a_file_has_several_ranks_only_if_they_do_something_together() {
    let ranks = |statement: &str| {
        let text = format!("buffer x, y: f32[8]\nstep {{ {statement} }}\n");
        let options = CompileOptions { ranks: RankCount::IfCommunicating(4), ..CompileOptions::default() };
        compiled(&text, &options).ranks.len()
    };
    assert_eq!(ranks("map(x + 1 -> y)"), 1);
    assert_eq!(ranks("all_reduce(x -> y)"), 4);
    assert_eq!(ranks("copy(x -> y at (rank + 1) % world)"), 4);
    // Only the analysis tells that nothing is copied.
    assert_eq!(ranks("if world > 9 { copy(x -> y at (rank + 1) % world) }  map(x + 1 -> y)"), 1);
}

#[test]
fn streams_are_a_parameter_of_the_file_or_a_limit() {
    let options = CompileOptions { streams: NonZeroU32::new(3), ..CompileOptions::default() };
    let step = "step { for i in 0..3 { on s[i] { nop() } } }\n";
    let own = compiled(&format!("param streams = 5 in 3..=8\nstream s[streams]\n{step}"), &options);
    assert_eq!((own.program().streams.len(), own.max_streams), (3, None));
    let other = compiled(&format!("stream s[5]\n{step}"), &options);
    assert_eq!((other.program().streams.len(), other.max_streams), (5, Some(3)));
}

#[test]
fn all_mistakes_come_at_once_in_the_order_of_the_text() {
    let text = "buffer x: f32[n]\nbuffer y: f32[8\nstep { map(x + z -> x) }\n";
    let set = vec![("m".to_owned(), "1 +".to_owned())];
    let Err(error) = aorta::compile("a.aorta", text, &CompileOptions { set, ..CompileOptions::default() }) else {
        panic!("it has mistakes")
    };
    let CompileError::Mistakes(mistakes) = error else { panic!("{error}") };
    let places: Vec<usize> = mistakes.all.iter().map(|one| first_offset(one.as_ref())).collect();
    assert!(places.len() >= 3 && places.is_sorted(), "{places:?}");
    assert!(places.iter().any(|place| *place > text.len()), "the value is a text of its own");
}
