//! Bundles: what is written is read, and no text makes the reader panic. Bundles come from other people.

use aorta::config::{Bundle, BundledFile, BundledPlan, part_name};
use proptest::prelude::*;

/// Lines that mean something in a bundle, and some that do not.
const LINES: [&str; 14] = [
    "aorta bundle 1",
    "aorta bundle 2",
    "aorta: 0.1.0",
    "language: 1",
    "runs: a.ron",
    "plan: 00 on h200",
    "record: a.ron",
    "== a.ron text 00",
    "== b/c.bin hex 00",
    "== ../a.ron text 00",
    "|(workload: \"moe\")",
    "|00ff",
    "\\",
    "",
];

fn name() -> impl Strategy<Value = String> {
    let one = "[a-zA-Z0-9_é][a-zA-Z0-9_. é-]{0,6}[a-z]";
    prop::collection::vec(one, 1..4).prop_map(|parts| parts.join("/"))
}

fn contents() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec(prop::sample::select(&LINES[..]), 0..6);
    prop_oneof![
        lines.prop_map(|lines| lines.join("\n").into_bytes()),
        "[\\PC\n\r\t|=\\\\]{0,60}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..200),
    ]
}

/// A bundle with drawn parts; its first part runs.
fn bundle() -> impl Strategy<Value = Bundle> {
    let parts = prop::collection::btree_map(name(), contents(), 1..6);
    let plan = prop::option::of("[0-9a-f]{64}");
    (parts, plan, prop::option::of("[A-Z]{1,8}"), any::<bool>()).prop_map(|(parts, plan, licence, recorded)| {
        let first = parts.keys().next().cloned().unwrap_or_default();
        Bundle {
            aorta: "0.1.0".to_owned(),
            language: 1,
            runs: first.clone(),
            plan: plan.map(|hash| BundledPlan { hash, device: "h200".to_owned() }),
            licence,
            record: recorded.then_some(first),
            parts: parts.into_iter().map(|(name, bytes)| (name, BundledFile::new(bytes))).collect(),
            is_header_changed: false,
        }
    })
}

proptest! {
    #![proptest_config(crate::common::properties(512))]

    #[test]
    fn what_is_written_is_read(bundle in bundle()) {
        prop_assume!(bundle.check().is_ok());
        let read = Bundle::parse("a.aortab", &bundle.to_text()).expect("a written bundle is valid");
        prop_assert_eq!(&read, &bundle);
        prop_assert!(read.changed().is_empty());
        // Programs that carry texts may change the ends of all lines.
        let converted = Bundle::parse("a.aortab", &bundle.to_text().replace('\n', "\r\n")).expect("it is as valid");
        let has_own = bundle.parts.values().any(|part| part.bytes.contains(&b'\r'));
        prop_assert!(has_own || converted == bundle);
    }

    /// A changed line never goes unnoticed: it is an error, or the part that has it is named.
    #[test]
    fn a_change_of_contents_is_noticed(bundle in bundle(), line in 0usize..200, text in "[ -~]{0,20}") {
        prop_assume!(bundle.check().is_ok());
        let written = bundle.to_text();
        let contents: Vec<usize> = written.lines().enumerate().filter(|(_, line)| line.starts_with('|')).map(|(at, _)| at).collect();
        prop_assume!(!contents.is_empty());
        let at = contents[line % contents.len()];
        let edited: Vec<String> = written.lines().enumerate().map(|(number, line)| {
            if number == at { format!("|{text}") } else { line.to_owned() }
        }).collect();
        let edited = edited.join("\n") + "\n";
        prop_assume!(edited != written);
        if let Ok(read) = Bundle::parse("a.aortab", &edited) {
            // Other digits can mean the same byte.
            prop_assert!(read.parts == bundle.parts || !read.changed().is_empty(), "{edited}");
        }
    }

    /// A changed line before the first part never goes unnoticed either, nor does the name of a part.
    #[test]
    fn a_change_of_the_header_is_noticed(bundle in bundle(), line in 0usize..20, text in "[ -~]{0,20}") {
        prop_assume!(bundle.check().is_ok());
        let written = bundle.to_text();
        let is_covered = |line: &str| !line.is_empty() && !line.starts_with(['|', '\\']) && !line.starts_with("hash: ");
        let header: Vec<usize> = written.lines().enumerate().filter(|(_, line)| is_covered(line)).map(|(at, _)| at).collect();
        let at = header[line % header.len()];
        let edited: Vec<&str> = written.lines().enumerate().map(|(number, line)| if number == at { text.as_str() } else { line }).collect();
        let edited = edited.join("\n") + "\n";
        if let Ok(read) = Bundle::parse("a.aortab", &edited) {
            prop_assert!(read == bundle || read.is_header_changed || !read.changed().is_empty(), "{edited}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec(prop_oneof![
        prop::sample::select(&LINES[..]).prop_map(str::to_owned),
        "\\PC{0,12}",
    ], 0..12), headed in any::<bool>()) {
        let head = if headed { "aorta bundle 1\nruns: a.ron\n" } else { "" };
        check(&format!("{head}{}", lines.join("\n")));
    }

    /// A valid bundle with some bytes replaced.
    #[test]
    fn a_mutated_bundle_is_read_or_refused(bundle in bundle(), edits in prop::collection::vec(any::<(u16, u8)>(), 1..8)) {
        let mut bytes = bundle.to_text().into_bytes();
        for (at, byte) in edits {
            let at = usize::from(at) % bytes.len();
            match byte % 4 {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, byte),
                _ => bytes[at] = byte,
            }
            if bytes.is_empty() {
                break;
            }
        }
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn the_name_of_a_part_stays_in_its_folder(name in "[a-z./\\\\:\n -]{0,12}") {
        if part_name(&name).is_ok() {
            let path = std::path::Path::new(&name);
            let normal = |part: std::path::Component| matches!(part, std::path::Component::Normal(_));
            prop_assert!(path.components().all(normal) && !name.contains("//"), "{name:?}");
        }
    }
}

proptest! {
    #![proptest_config(crate::common::properties(256))]

    /// Contents that are edited without their hashes: exactly the parts that differ are named.
    #[test]
    fn changed_parts_are_named(bundle in bundle(), edits in prop::collection::vec((any::<u16>(), contents()), 1..4)) {
        prop_assume!(bundle.check().is_ok());
        let mut edited = bundle.clone();
        for (at, bytes) in edits {
            let at = usize::from(at) % edited.parts.len();
            edited.parts[at].bytes = bytes;
        }
        let read = Bundle::parse("a.aortab", &edited.to_text()).expect("an edited bundle can be read");
        let differs = |name: &&String| read.parts[*name].bytes != bundle.parts[*name].bytes;
        let expected: Vec<&String> = bundle.parts.keys().filter(differs).collect();
        prop_assert_eq!(read.changed().into_iter().map(str::to_owned).collect::<Vec<_>>(), expected.into_iter().cloned().collect::<Vec<_>>());
    }
}

/// Reads a text. What is read is written and read again as the same.
fn check(text: &str) {
    match Bundle::parse("a.aortab", text) {
        Ok(bundle) => {
            assert!(bundle.check().is_ok());
            let again = Bundle::parse("a.aortab", &bundle.to_text()).expect("what was read can be written");
            assert_eq!((&again.runs, again.parts.len()), (&bundle.runs, bundle.parts.len()));
            assert!(again.parts.iter().zip(&bundle.parts).all(|(a, b)| a.1.bytes == b.1.bytes), "{text}");
        }
        Err(error) => assert!(error.to_string().starts_with("a.aortab, line "), "{error}"),
    }
}

#[test]
fn mistakes_name_their_line() {
    let wrong = [
        ("", "line 1: the file is empty"),
        ("some text\n", "line 1: a bundle begins with the line `aorta bundle 1`"),
        ("(workload: \"moe\")\n", "line 1: it is a scenario or another RON text"),
        ("Hello,\naorta bundle 1\n", "line 2: the bundle begins here, behind other text"),
        ("aorta bundle 7\n", "line 1: it is a bundle of another version, and this one reads `aorta bundle 1`"),
        ("aorta bundle 1\ncolour: red\n", "line 2: there is no field `colour`"),
        ("aorta bundle 1\nruns: a\n== ../a text 00\n", "line 3: the name of a part is a path below the bundle"),
        ("aorta bundle 1\nruns: a\n== /a text 00\n", "line 3: the name of a part is a path below the bundle"),
        ("aorta bundle 1\nruns: a\n== a text 00\n== a text 00\n", "line 4: the part `a` is there twice"),
        ("aorta bundle 1\nruns: a\n== a text 00\n== A text 00\n", "line 4: the parts `a` and `A` have one name"),
        ("aorta bundle 1\nruns: a\n== a text 00\n== a/b text 00\n", "line 4: the part `a` is a file and a folder"),
        ("aorta bundle 1\nruns: b\n== a text 00\n", "line 3: it has no part `b`"),
        ("aorta bundle 1\nruns: a\n== a hex 00\n|0g\n", "line 4: it has other characters than hexadecimal digits"),
        ("aorta bundle 1\nruns: a\n== a text 00\nx\n", "line 4: a line of a part begins with `|`"),
        ("aorta bundle 1\nruns: a\n== a text 00\n|x\n\\\n|y\n", "line 6: the part `a` has ended above"),
    ];
    for (text, says) in wrong {
        let error = Bundle::parse("a.aortab", text).expect_err(text).to_string();
        assert!(error.starts_with(&format!("a.aortab, {says}")), "{text:?}: {error}");
    }
}
