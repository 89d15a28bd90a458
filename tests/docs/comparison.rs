//! Compares a command's output with a page, and computes the corrected page.

/// Lines without trailing blanks, and without empty lines at the end.
pub fn tidy<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// True if a line matches the page; `[..]` stands for any text.
fn fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once("[..]") {
        None => pattern == line,
        Some((before, behind)) => line
            .strip_prefix(before)
            .is_some_and(|rest| rest.char_indices().any(|(at, _)| fits(behind, &rest[at..])) || fits(behind, "")),
    }
}

/// True if output matches the page; a line `...` stands for any number of lines.
pub fn agrees(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((gap, rest)) if gap == "..." => (0..=actual.len()).any(|skipped| agrees(rest, &actual[skipped..])),
        Some((line, rest)) => actual.first().is_some_and(|first| fits(line, first)) && agrees(rest, &actual[1..]),
    }
}

/// The corrected text of a page: the output itself, but lines with `[..]` that still match are kept, and so is one
/// `...` between the same lines. `None` if there are several `...`, or if fewer lines are printed than surround it.
pub fn mended(expected: &[String], actual: &[String]) -> Option<Vec<String>> {
    let gaps: Vec<usize> = (0..expected.len()).filter(|&at| expected[at] == "...").collect();
    match gaps[..] {
        [] => Some(written(expected, actual).collect()),
        [gap] => {
            let (above, below) = (&expected[..gap], &expected[gap + 1..]);
            let reversed = |lines: &[String]| lines.iter().rev().cloned().collect::<Vec<_>>();
            let head = up_to_gap(above, actual);
            let tail = up_to_gap(&reversed(below), &reversed(actual));
            let tail = actual.len().checked_sub(tail).filter(|tail| *tail >= head)?;
            let (head, tail) = (written(above, &actual[..head]), written(below, &actual[tail..]));
            Some(head.chain(["...".to_owned()]).chain(tail).collect())
        }
        _ => None,
    }
}

/// Number of printed lines on one side of a `...`, counted from that side's end of the output. It is determined by the
/// page's line nearest to the `...` that is still printed, so that added or removed lines move it and are not swallowed
/// by the `...`. Of several equal printed lines, the one that has moved least counts. Lines between it and the `...`
/// have changed one by one as far as known.
fn up_to_gap(page: &[String], printed: &[String]) -> usize {
    // Empty lines are too similar to match.
    let mut nearest_first = page.iter().enumerate().rev().filter(|(_, line)| !line.is_empty());
    let moved = nearest_first.find_map(|(at, line)| {
        let places = (0..printed.len()).filter(|&place| fits(line, &printed[place]));
        places.min_by_key(|place| place.abs_diff(at)).map(|place| place + page.len() - at)
    });
    moved.unwrap_or(page.len())
}

/// Printed lines in the form of the page: a matching line with `[..]` is kept.
fn written<'a>(page: &'a [String], printed: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let fitting = |line: &String| page.iter().find(|page| page.contains("[..]") && fits(page, line)).cloned();
    printed.iter().map(move |line| fitting(line).unwrap_or_else(|| line.clone()))
}

#[test]
fn comparisons_find_differences() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let output = lines("one\ntwo 2\nthree");
    for page in ["one\ntwo 2\nthree", "one\n...", "...\nthree", "one\n...\ntwo [..]\n...", "[..]e\ntwo [..]2\nt[..]e"] {
        assert!(agrees(&lines(page), &output), "{page}");
    }
    for page in ["one\ntwo 2", "one\ntwo 3\nthree", "...\ntwo 2", "one\ntwo [..]3\nthree", "two 2\n..."] {
        assert!(!agrees(&lines(page), &output), "{page}");
    }
    assert_eq!(mended(&lines("on[..]\n...\nfour"), &output), Some(lines("on[..]\n...\nthree")));
}
