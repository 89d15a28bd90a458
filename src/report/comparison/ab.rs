//! The report of an A/B comparison.

use crate::base::{Bytes, Flops, Nanos, counted, shell};
use crate::measure::ab::{AbRecord, AbResult, AbSideRecord, BlockMode};
use crate::measure::effect::Verdict;
use crate::measure::paired::{ALARMS, MIN_ROUNDS, Paired};
use crate::measure::rate::{self, RateUnit};
use crate::report::page::{Page, Section, Table, cell};
use crate::report::quantity::{change, changes};
use crate::report::run::device;
use crate::report::variant::{launched, marks};

/// The page of an A/B comparison.
pub fn ab(record: &AbRecord) -> Page {
    let mut page = Page { command: "aorta ab", name: "b against a".to_owned(), ..Page::default() };
    page.lines("", header(record));
    page.summary = match &record.result {
        Some(judged) => {
            let notes = self_difference(&judged.turns).into_iter().chain(method_agreement(record, judged)).collect();
            page.sections.push(Section { table: Some(table(record, judged)), notes, ..Section::default() });
            sentence(record, judged)
        }
        None => "No round is complete, so there is no verdict.".to_owned(),
    };
    page.warnings = differences(record);
    page.warnings.extend(record.warnings.iter().cloned());
    page
}

fn header(record: &AbRecord) -> Vec<String> {
    let sides = [("a", &record.a), ("b", &record.b)];
    let mut lines =
        sides.map(|(name, side)| format!("{name}: aorta exec {}", shell::command(&side.arguments))).to_vec();
    let (a, b) = (place(&record.a), place(&record.b));
    lines.push(if a == b { format!("on {a}") } else { format!("a on {a}; b on {b}") });
    let rounds = record.result.as_ref().map_or(0, |result| result.turns.rounds);
    let cut = if record.complete { "" } else { "; it was interrupted" };
    lines.push(format!(
        "{rounds} of {} rounds, each A B B A or B A A B, {} a block, {} and {} to warm up{cut}",
        record.rounds,
        counted(record.iterations as usize, "iteration"),
        record.a.warmup.iterations,
        record.b.warmup.iterations,
    ));
    lines
}

fn place(side: &AbSideRecord) -> String {
    let run = &side.run;
    let ranks = if run.settings.ranks > 1 { format!("{} ranks, each on ", run.settings.ranks) } else { String::new() };
    format!("{ranks}{}, {}", device(run), launched(&side.launch))
}

fn table(record: &AbRecord, judged: &AbResult) -> Table {
    let (a, b) = (marks(&record.a.run), marks(&record.b.run));
    let (both, a, b) = if a == b { (a, "", "") } else { ("", a, b) };
    let first = format!("{}{both}", judged.work.map_or_else(|| "an iteration".to_owned(), work));
    let (a, b) = (format!("a{a}"), format!("b{b}"));
    let mut table = Table::new([&first, &a, &b, "b against a", "95 % interval", "verdict"]).left(5);
    let mut row = |name: &str, a: f64, b: f64, ratio: f64, interval: Option<(f64, f64)>, verdict: Verdict| {
        let time = |time: f64| Nanos::rounded(time).to_string();
        let verdict = name_of(verdict).to_owned();
        table.row([name.to_owned(), time(a), time(b), change(ratio), cell(interval.map(changes)), verdict]);
    };
    let turns = &judged.turns;
    let how = if record.way == BlockMode::Fresh { "interleaved, fresh" } else { "interleaved" };
    row(how, turns.a, turns.b, turns.ratio, turns.interval, judged.verdict);
    if let Some(apart) = &judged.apart {
        row("separate", apart.base, apart.other, apart.ratio, apart.interval, apart.verdict);
    }
    table
}

/// The amount of work for which the times of both sides are compared.
fn work((unit, amount): (RateUnit, f64)) -> String {
    match unit {
        RateUnit::Flops => Flops(amount).to_string(),
        RateUnit::Bytes => Bytes(amount as u64).to_string(),
        RateUnit::Iterations => "an iteration".to_owned(),
    }
}

fn name_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "b is better",
        Verdict::Same => "same",
        Verdict::Worse => "b is worse",
        Verdict::CannotTell => "cannot tell",
    }
}

fn percent(share: f64) -> String {
    format!("{} %", (1000.0 * share).round() / 10.0)
}

/// The verdict in a sentence, or why there is none.
fn sentence(record: &AbRecord, judged: &AbResult) -> String {
    let turns = &judged.turns;
    let threshold = percent(turns.threshold);
    let what = if judged.work.is_some() { "the same work" } else { "an iteration" };
    match judged.verdict {
        Verdict::Better => format!("b is better: {what} takes {} of a's time.", share(turns.ratio)),
        Verdict::Worse => format!("b is worse: {what} takes {} of a's time.", share(turns.ratio)),
        Verdict::Same => format!("Same: any difference is smaller than the threshold of {threshold}."),
        Verdict::CannotTell if !record.unseen_kernels().is_empty() => {
            let kernels: Vec<String> = record.unseen_kernels().iter().map(|name| format!("`{name}`")).collect();
            format!(
                "Cannot tell: the simulator does not read the code of {}, whose times follow from the grid and from the operands, \
                 `bytes` or `time`. Compare them on a GPU.",
                kernels.join(" and ")
            )
        }
        Verdict::CannotTell if turns.verdict != Verdict::CannotTell => format!(
            "Cannot tell: each side is one process, and processes of one program differ too; a standard deviation of \
             {} is assumed. `--fresh` runs each block in its own process, and measures it.",
            percent(judged.between_runs.unwrap_or_default())
        ),
        Verdict::CannotTell if turns.rounds < MIN_ROUNDS => {
            format!("Cannot tell: {} are too few, at least {MIN_ROUNDS} are needed.", counted(turns.rounds, "round"))
        }
        Verdict::CannotTell if turns.itself.too_many() => format!(
            "Cannot tell: comparing a side with itself finds a difference in {} of the comparisons, and {} are \
             allowed: the machine is too noisy.",
            percent(turns.itself.rate()),
            percent(ALARMS)
        ),
        Verdict::CannotTell => format!(
            "Cannot tell: the interval contains both differences that matter ({threshold} and more) and differences that \
             do not. `--rounds {}` would halve it.",
            record.rounds.saturating_mul(4)
        ),
    }
}

fn share(ratio: f64) -> String {
    if ratio < 10.0 { format!("{:.1} %", 100.0 * ratio) } else { format!("{ratio:.1} times") }
}

/// A sentence on how often a side differs from itself; `None` if no comparison was possible.
fn self_difference(turns: &Paired) -> Option<String> {
    let alarms = &turns.itself;
    let widened = match alarms.widened > 1.0 {
        true => format!(" with the interval widened by a factor of {:.2}", alarms.widened),
        false => String::new(),
    };
    let found = format!(
        "A against A and B against B: {} of {} comparisons ({}) find a difference{widened}; {} may.",
        alarms.alarms,
        alarms.comparisons,
        percent(alarms.rate()),
        percent(ALARMS),
    );
    (alarms.comparisons > 0).then_some(found)
}

/// Compares the results of alternating and of separate measurement.
fn method_agreement(record: &AbRecord, judged: &AbResult) -> Vec<String> {
    let mut lines = Vec::new();
    if record.way == BlockMode::Fresh {
        let why = record.why_fresh.as_ref().map(|why| format!(", since b did not start while a was running: {why}"));
        lines.push(format!(
            "Each block ran in its own process{}. Set-up and warm-up lie between blocks, and the interval includes \
             differences between processes.",
            why.unwrap_or_default()
        ));
    }
    let Some(apart) = &judged.apart else { return lines };
    let (in_turn, apart) = (change(judged.turns.ratio), change(apart.ratio));
    match judged.agree {
        Some(true) => lines.push("Interleaved and separate measurements agree.".to_owned()),
        Some(false) => {
            lines.push(format!(
                "Interleaved and separate measurements disagree: {in_turn} and {apart}. The usual reasons:"
            ));
            lines.extend(REASONS.map(str::to_owned));
        }
        None => lines.push("It is not known whether interleaved and separate measurements agree.".to_owned()),
    }
    lines
}

/// Possible reasons for a disagreement of the two methods, with a remedy each.
const REASONS: [&str; 4] = [
    "  - interleaved, a side begins with the caches, clocks and power that the other side left; separately, with its \
     own;",
    "  - interleaved, both sides hold their memory at the same time, at other addresses;",
    "  - separately, drift of the machine between the sides counts as a difference; interleaved, it cancels out.",
    "If the sides will run separately, compare separate runs, several of each.",
];

/// Differences between the sides that make a comparison of times incomplete.
fn differences(record: &AbRecord) -> Vec<String> {
    let mut notes = Vec::new();
    if record.a.arguments == record.b.arguments {
        notes.push(
            "a and b are the same run, so any difference is noise: `--a` and `--b` say how the sides differ".to_owned(),
        );
    }
    if record.a.run.simulated != record.b.run.simulated {
        let (simulated, measured) = if record.a.run.simulated { ("a", "b") } else { ("b", "a") };
        notes.push(format!(
            "{simulated} is simulated and {measured} is measured, so that their difference includes the error of the \
             simulator: `--backend` of both sides gives them the same"
        ));
    }
    let is_by_work = record.result.as_ref().is_some_and(|result| result.work.is_some());
    let totals = rate::totals(&record.a.run).zip(rate::totals(&record.b.run));
    if let Some(((a, _), (b, _))) = totals.filter(|(a, b)| a.0 != b.0) {
        let (a, b) = (Flops(a), Flops(b));
        let what = if is_by_work { "" } else { ": their times are of different work" };
        notes.push(format!("an iteration of a computes {a}, one of b {b}{what}"));
    }
    if let Some(((_, a), (_, b))) = totals.filter(|(a, b)| a.1 != b.1) {
        let (a, b) = (Bytes(a), Bytes(b));
        notes.push(format!("an iteration of a moves {a}, one of b {b}"));
    }
    for (name, side) in [("a", &record.a), ("b", &record.b)] {
        notes.extend(side.run.warnings.iter().chain(&side.notes).map(|note| format!("{name}: {note}")));
    }
    notes
}
