//! Pages as Markdown with pictures, as GitHub shows it on the page of a job. GitHub draws Mermaid; it shows no SVG that lies
//! in the text.

use std::fmt::Write;

use super::mermaid::quoted;
use super::{BarChart, Page, markdown};

/// Maximum number of bars in a chart: more have no room for their names.
const BARS: usize = 40;

/// Pixels for each bar.
const BAR: usize = 26;
/// Pixels for the title and the axis.
const FRAME: usize = 110;

/// Width of a chart in pixels.
const WIDTH: usize = 900;

/// Colours of bars and of the line, which contrast with a light and a dark page.
const COLORS: &str = "  themeVariables:\n    xyChart:\n      plotColorPalette: \"#3b8fd0, #d55e00\"\n";

/// Maximum number of characters in the name of a bar.
const NAME: usize = 48;

/// The pages in order, each in Markdown with its charts after it.
pub fn job_summary(pages: &[Page]) -> String {
    let charts =
        |page: &Page| page.charts.iter().filter(|chart| !chart.bars.is_empty()).map(mermaid).collect::<String>();
    pages.iter().map(|page| markdown(std::slice::from_ref(page)) + &charts(page)).collect::<Vec<_>>().join("\n")
}

/// A chart as a block of Mermaid, with horizontal bars and the value of each.
fn mermaid(chart: &BarChart) -> String {
    let bars = &chart.bars[..chart.bars.len().min(BARS)];
    let hidden = chart.bars.len() - bars.len();
    let more = if hidden > 0 { format!(", without {hidden} more") } else { String::new() };
    // Mermaid writes values into bars, which short ones have no room for.
    let names: Vec<String> =
        bars.iter().map(|(name, value)| quoted(&format!("{}: {}", short(name), decimal(*value)))).collect();
    let values: Vec<String> = bars.iter().map(|(_, value)| decimal(*value)).collect();
    let reference = chart.reference.unwrap_or(0.0);
    let most = bars.iter().map(|(_, value)| *value).fold(reference, f64::max);
    let mut text = String::from("\n```mermaid\n---\nconfig:\n  xyChart:\n");
    let _ = write!(text, "    width: {WIDTH}\n    height: {}\n{COLORS}", FRAME + BAR * bars.len());
    let _ = write!(text, "---\nxychart-beta horizontal\n  title {}\n", quoted(&format!("{}{more}", chart.title)));
    let _ = write!(text, "  x-axis [{}]\n  y-axis {} 0 --> {}\n", names.join(", "), quoted(&chart.axis), decimal(most));
    let _ = writeln!(text, "  bar [{}]", values.join(", "));
    if chart.reference.is_some() {
        let _ = writeln!(text, "  line [{}]", vec![decimal(reference); bars.len()].join(", "));
    }
    text + "```\n"
}

/// The name, or its beginning and its end, where cases of one suite differ.
fn short(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    match letters.len().checked_sub(NAME) {
        None | Some(0) => name.to_owned(),
        Some(excess) => {
            let (begin, end) = (&letters[..NAME / 2], &letters[NAME / 2 + excess + 1..]);
            begin.iter().chain(&['…']).chain(end).collect()
        }
    }
}

/// The number with about four significant digits and without an exponent, which Mermaid cannot read.
fn decimal(value: f64) -> String {
    let magnitude = value.abs().max(f64::MIN_POSITIVE).log10().floor();
    let places = if value == 0.0 { 0.0 } else { (3.0 - magnitude).clamp(0.0, 9.0) };
    format!("{value:.*}", places as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_middle() {
        assert_eq!(short("moe, streams = 3"), "moe, streams = 3");
        let long = format!("begin{}end", "-".repeat(80));
        let shown = short(&long);
        assert_eq!(shown.chars().count(), NAME);
        assert!(shown.starts_with("begin--") && shown.ends_with("--end"), "{shown}");
    }

    #[test]
    fn numbers_have_no_exponent() {
        for (value, text) in [(0.0, "0"), (362.26, "362.3"), (1e-7, "0.000000100"), (3e12, "3000000000000")] {
            assert_eq!(decimal(value), text);
        }
    }

    #[test]
    fn a_chart_has_a_bar_for_each_value() {
        let chart = BarChart {
            title: "median, simulated".to_owned(),
            axis: "µs".to_owned(),
            bars: vec![("a \"b\"".to_owned(), 2.5), ("c`".to_owned(), 4.0)],
            reference: Some(1.0),
        };
        let text = mermaid(&chart);
        assert!(text.starts_with("\n```mermaid\n---\n") && text.ends_with("```\n"), "{text}");
        for line in [
            "x-axis [\"a #34;b#34;: 2.500\", \"c#96;: 4.000\"]",
            "bar [2.500, 4.000]",
            "line [1.000, 1.000]",
            "y-axis \"µs\" 0 --> 4.000",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
