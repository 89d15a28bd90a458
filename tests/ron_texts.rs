//! Texts in RON: exactly the mistakes that were made are reported, each at its line, and no text makes a reader panic.

use aorta::config::{ConfigError, Expected, Profile, Project, Scenario, Settings, SuiteFile};
use miette::Diagnostic;
use proptest::prelude::*;

/// Fields of a scenario: valid, and with a mistake.
const FIELDS: [(&str, &str); 25] = [
    ("workload: \"moe\"", "workload: 3"),
    ("effort: quick", "efort: quick"),
    ("streams: 2", "streams: \"2\""),
    ("params: {tokens: 8, \"dtype\": bf16}", "set: {tokens: 8}"),
    ("settings: {in_flight: 3}", "settings: {in_flight: 99}"),
    ("environment: {NCCL_DEBUG: WARN}", "environment: {LD_PRELOAD: \"x\"}"),
    ("limits: {time: (to: \"5us\")}", "limits: {time: (to: \"5parsec\", from: \"1us\")}"),
    ("timeout: \"9s\"", "timeout: 9s"),
    ("gate: \"off\" /* a, b */", "gate: of"),
    ("axes: {streams: [1, 2]}", "axes: {streams: (1, 2)}"),
    ("sync: end // a comment, with a comma", "sync: start // a comment, with a comma"),
    ("fail_on: [\"worse\"]", "fail-on: [\"worse\"]"),
    ("verify: true", "verify: yes"),
    ("authors: [\"A (b), c\", \"D\"]", "authors: [\"A (b), c\", D]"),
    ("warmup: 3", "warmup: 1.5"),
    ("cycle: 2", "fuse: false, fuse: true"),
    // In the punctuation: each is corrected in a copy of the text, and hides nothing.
    ("launch: both", "launch both"),
    ("rounds: 4", "rounds = 4"),
    ("seed: 4", ", seed: 4"),
    ("licence: \"MIT\"", "\"licence\": \"MIT\""),
    ("threshold: \"3%\"", "threshold: '3%'"),
    ("no_apart: true", "no_apart:"),
    ("skip_invalid: true", "skip_invalid:"),
    ("fresh: true, zip: true", "fresh: true zip: true"),
    ("sides: {a: \"--launch graph\"}", "sides: {a: \"--launch graph\"]"),
];

/// The lines of a text on which mistakes are reported; `None` if there are none.
fn lines<T>(read: Result<T, ConfigError>) -> Option<Vec<usize>> {
    match read {
        Ok(_) => None,
        Err(ConfigError::File(mistakes)) => {
            let line = |mistake: &dyn Diagnostic| {
                let label = mistake.labels().and_then(|mut labels| labels.next()).expect("it has a label");
                let place = mistakes.sources().locate(label.offset() as u32).expect("its place lies in the text");
                place.line
            };
            Some(mistakes.all().map(line).collect())
        }
        Err(error) => panic!("{error}"),
    }
}

/// A text in which signs are inserted, or removed where there is none, at places that follow from numbers.
fn edited(mut text: String, edits: impl IntoIterator<Item = (u32, &'static str)>) -> String {
    for (at, edit) in edits {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let Some(&at) = places.get(at as usize % places.len().max(1)) else { break };
        match edit {
            "" => drop(text.remove(at)),
            edit => text.insert_str(at, edit),
        }
    }
    text
}

proptest! {
    #![proptest_config(crate::common::properties(256))]

    #[test]
    fn each_mistake_is_reported_at_its_line(
        order in Just((0..FIELDS.len()).collect::<Vec<_>>()).prop_shuffle(),
        wrong in prop::collection::vec(any::<bool>(), FIELDS.len()),
        trailing in any::<bool>(),
    ) {
        let mut text = "(".to_owned();
        let mut expected = Vec::new();
        for (place, &field) in order.iter().enumerate() {
            let (good, bad) = FIELDS[field];
            let line = if wrong[field] { bad } else { good };
            let (value, comment) = line.split_once(" //").map_or((line, String::new()), |(value, comment)| (value, format!(" //{comment}")));
            let comma = if trailing || place + 1 < order.len() { "," } else { "" };
            text += &format!("\n  {value}{comma}{comment}");
            if wrong[field] {
                expected.push(place + 2);
            }
        }
        text += "\n)";
        let found = lines(Scenario::parse("a.ron", &text)).unwrap_or_default();
        prop_assert_eq!(found, expected, "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(
        file in 0usize..6,
        edits in prop::collection::vec((any::<u32>(), prop::sample::select(vec!["", "(", ")", "[", "]", "{", "}", ",", ":", "\"", "//", "/*", "'", "#", "é", "x", "1", "\n"])), 1..6),
    ) {
        let texts = [
            FIELDS.map(|(good, _)| format!("{good}\n,")).concat(),
            include_str!("../config/suites/p0.ron").chars().take(3000).collect(),
            "library: [\".\"], description: \"d\"".to_owned(),
            "in_flight: 3, quick: (warmup: 1, iterations: 2), timeout: \"5s\"".to_owned(),
            include_str!("../config/expected/h200.ron").chars().take(2000).collect(),
            include_str!("../config/devices/h200.ron").chars().take(2000).collect(),
        ];
        let text = edited(format!("({})", texts[file]), edits);
        lines(Scenario::parse("a.ron", &text));
        lines(SuiteFile::parse("a.ron", &text));
        lines(Project::parse("a.ron", &text));
        lines(Settings::layered(Some(("a.ron", text.as_str())), &[]));
        lines(Expected::parse("a.ron", &text));
        lines(Profile::parse("a.ron", &text));
    }
}

/// A bracket that closes one of those that a correction adds behind the text is no mistake of the text.
#[test]
fn mistakes_lie_in_the_text() {
    let text = include_str!("../config/expected/h200.ron").chars().take(2000).collect::<String>();
    let edits = [(644587554, "("), (19772735, "["), (702279756, "("), (2345095435, "}"), (2875688321, "\n")];
    let found = lines(Expected::parse("a.ron", &edited(format!("({text})"), edits)));
    assert!(found.is_some_and(|lines| lines.len() > 2));
}

#[test]
fn deep_brackets_are_refused() {
    for open in ["(", "[", "{", "(a: ", "(cases: [", "(workload: \"moe\", params: {n: "] {
        let text = open.repeat(100_000);
        assert!(Scenario::parse("a.ron", &text).is_err() && SuiteFile::parse("a.ron", &text).is_err(), "{open}");
        let closed = format!("(workload: \"moe\", params: {{n: {}{}}})", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Scenario::parse("a.ron", &closed).is_err());
    }
}
