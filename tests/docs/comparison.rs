//! Whether a command prints what a page says, and what the page has to say where it does not.

/// Lines without the blanks at their ends, and without the empty ones at the end of all.
pub fn tidy<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Whether a line is what the page says; `[..]` stands for any text.
fn fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once("[..]") {
        None => pattern == line,
        Some((before, behind)) => line
            .strip_prefix(before)
            .is_some_and(|rest| rest.char_indices().any(|(at, _)| fits(behind, &rest[at..])) || fits(behind, "")),
    }
}

/// Whether output is what the page says; a line `...` stands for any number of lines.
pub fn agrees(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((gap, rest)) if gap == "..." => (0..=actual.len()).any(|skipped| agrees(rest, &actual[skipped..])),
        Some((line, rest)) => actual.first().is_some_and(|first| fits(line, first)) && agrees(rest, &actual[1..]),
    }
}

/// What a page should say: the output itself, but lines with `[..]` that still fit stay, and so does one `...`, between
/// the lines that it stood between. Nothing where it has several, or where fewer lines are printed than would stand
/// around it.
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

/// How many printed lines belong on one side of a `...`, both counted from that side's end of the output. The line of
/// the page that is nearest to the `...` and still printed tells: a line that has come or gone moves it, and must not
/// push it into the `...`. Of several that are printed alike, it is the one that has moved least. What stood between
/// it and the `...` has changed, line by line as far as one can know.
fn up_to_gap(page: &[String], printed: &[String]) -> usize {
    // Empty lines are too alike to tell anything.
    let mut nearest_first = page.iter().enumerate().rev().filter(|(_, line)| !line.is_empty());
    let moved = nearest_first.find_map(|(at, line)| {
        let places = (0..printed.len()).filter(|&place| fits(line, &printed[place]));
        places.min_by_key(|place| place.abs_diff(at)).map(|place| place + page.len() - at)
    });
    moved.unwrap_or(page.len())
}

/// Printed lines as a page has them: where one of its lines with `[..]` fits, that one.
fn written<'a>(page: &'a [String], printed: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let fitting = |line: &String| page.iter().find(|page| page.contains("[..]") && fits(page, line)).cloned();
    printed.iter().map(move |line| fitting(line).unwrap_or_else(|| line.clone()))
}

#[test]
fn comparisons_tell_differences() {
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
