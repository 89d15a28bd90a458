//! The report of a comparison with a baseline of KernelBench: speed-ups and `fast_p`, for people and as JSON.

use crate::base::{counted, json};
use crate::measure::kernelbench::{BaselineResults, ProblemOutcome, ScoredProblem, Scores};
use crate::report::page::{ABSENT, Page, Section, Table};

/// The speed-up factors `p` that KernelBench's analysis lists.
const FACTORS: [f64; 6] = [0.0, 0.5, 0.8, 1.0, 1.5, 2.0];

/// The factors that the summary of a level names.
const SUMMARY_FACTORS: [f64; 3] = [0.0, 1.0, 2.0];

/// Two sides with their names.
pub struct FastP<'a> {
    pub base: (&'a str, &'a BaselineResults),
    pub other: (&'a str, &'a BaselineResults),
    pub scores: &'a [Scores],
}

/// The page: a table of problems for each level, and the scores below it.
pub fn page(of: &FastP) -> Page {
    let lines =
        [("baseline", &of.base), ("results", &of.other)].map(|(what, (name, results))| side(what, name, results));
    let mut page = Page {
        command: "aorta compare --fast-p",
        name: format!("{} against {}", of.other.0, of.base.0),
        ..Page::default()
    };
    page.sections.push(Section { lines: lines.to_vec(), ..Section::default() });
    page.sections.extend(of.scores.iter().map(level));
    let (base, other) = (&of.base.1.hardware, &of.other.1.hardware);
    if !base.is_empty() && !other.is_empty() && base != other {
        page.warnings.push("the sides ran on different hardware, so a speed-up is also that of the device".to_owned());
    }
    page
}

fn side(what: &str, name: &str, results: &BaselineResults) -> String {
    let on = if results.hardware.is_empty() { String::new() } else { format!(", {}", results.hardware.join(", ")) };
    let failed = match results.errors {
        0 => String::new(),
        count => format!("; {} without times, left out", counted(count, "problem")),
    };
    format!("{what}: {name}{on}{failed}")
}

fn level(scores: &Scores) -> Section {
    let mut table = Table::new(["problem", "baseline", "result", "speed-up"]);
    for problem in &scores.problems {
        let result = match problem.outcome {
            Some(ProblemOutcome::Time(time)) => ms(time),
            Some(ProblemOutcome::Untimed) => "no time".to_owned(),
            Some(ProblemOutcome::Wrong) => "wrong".to_owned(),
            None => "absent".to_owned(),
        };
        let speedup = problem.speedup().map_or_else(|| ABSENT.to_owned(), |speedup| format!("{speedup:.2}"));
        table.row([problem.name.clone(), ms(problem.baseline), result, speedup]);
    }
    let with = scores.problems.iter().filter(|problem| problem.outcome.is_some()).count();
    let timed = scores.problems.iter().filter_map(ScoredProblem::speedup).count();
    let fast = SUMMARY_FACTORS.map(|p| format!("fast_{p} {:.1} %", 100.0 * scores.fast(p)));
    let mean = scores.geometric_mean().map(|mean| format!("geometric mean of the speed-ups {mean:.3}, over {timed}"));
    let unknown = match scores.without_baseline {
        0 => None,
        count => Some(format!("{} without a baseline: left out", counted(count, "result"))),
    };
    let problems = counted(scores.problems.len(), "problem");
    Section {
        title: format!("level {}: {problems}, {with} with a result", scores.level),
        table: Some(table),
        notes: [Some(fast.join(", ")), mean, unknown].into_iter().flatten().collect(),
        ..Section::default()
    }
}

fn ms(time: f64) -> String {
    format!("{time} ms")
}

/// The scores as JSON, with the names of KernelBench's analysis.
pub fn json(of: &FastP) -> String {
    let level = |scores: &Scores| {
        let problems: Vec<serde_json::Value> = scores
            .problems
            .iter()
            .map(|problem| {
                let result = match problem.outcome {
                    Some(ProblemOutcome::Time(time)) => Some(time),
                    _ => None,
                };
                let correct = matches!(problem.outcome, Some(ProblemOutcome::Time(_) | ProblemOutcome::Untimed));
                serde_json::json!({
                    "name": problem.name,
                    "baseline_ms": problem.baseline,
                    "result_ms": result,
                    "correct": correct,
                    "speedup": problem.speedup(),
                })
            })
            .collect();
        let fast: serde_json::Map<String, serde_json::Value> =
            FACTORS.iter().map(|&p| (format!("{p:.1}"), scores.fast(p).into())).collect();
        let value = serde_json::json!({
            "total_count": scores.problems.len(),
            "geo_mean_speedup": scores.geometric_mean(),
            "fast_p": fast,
            "problems": problems,
        });
        (format!("level{}", scores.level), value)
    };
    let levels: serde_json::Map<String, serde_json::Value> = of.scores.iter().map(level).collect();
    let document = serde_json::json!({ "baseline": of.base.0, "results": of.other.0, "levels": levels });
    json::document(&document)
}
