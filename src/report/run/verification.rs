//! The results of verification.

use crate::base::counted;
use crate::measure::record::{OutputVerification, RunRecord, VariantVerification, VerificationRecord, WrongLaunch};
use crate::ops::MISSES;
use crate::report::page::Section;
use crate::report::variant::launched;

/// Maximum number of mistakes and of violated dependencies that are shown.
const SHOWN: usize = 16;

/// The verification of a record; `None` if there was none.
pub fn section(record: &RunRecord) -> Option<Section> {
    let verification = record.verification.as_ref()?;
    let variants = verification.variants.iter().flat_map(|variant| outputs(verification, variant));
    Some(Section {
        lines: operations(verification, record.settings.backend == "host").into_iter().chain(variants).collect(),
        ..Section::default()
    })
}

/// Results of comparing each operation alone; `is_host` if the CPU ran them.
fn operations(verification: &VerificationRecord, is_host: bool) -> Vec<String> {
    let VerificationRecord { operations, mistakes, unread, taken, .. } = verification;
    let all: u64 = operations.iter().map(|operation| operation.count).sum();
    let taken = (*taken > 0).then(|| {
        let taken = counted(*taken as usize, "operation");
        format!("  {taken} not compared: a kernel without a `reference` is not checked")
    });
    if all == 0 {
        return taken.into_iter().collect();
    }
    let passed = all - mistakes.len() as u64;
    let mut lines = vec![format!(
        "verified against the CPU, each operation alone: {passed} of {} agree",
        counted(all as usize, "operation")
    )];
    let worst = operations.iter().max_by(|a, b| a.error.total_cmp(&b.error));
    lines.extend(worst.filter(|worst| mistakes.is_empty() && worst.error > 0.0).map(|worst| {
        let share = (100.0 * worst.error).max(1.0);
        format!("  the largest error is {share:.0} % of the bound for rounding errors ({})", worst.operation)
    }));
    lines.extend(operations.iter().filter(|operation| operation.by_vectors > 0).map(|operation| {
        format!(
            "  {} of {} {}: by random vectors, which miss an error of 10 times the bound once in {:.0}",
            operation.by_vectors,
            operation.count,
            operation.operation,
            1.0 / MISSES
        )
    }));
    lines.extend(operations.iter().filter(|operation| operation.undecided > 0).map(|operation| {
        let elements = counted(operation.elements as usize, "element");
        format!(
            "  {} of {elements} of {}: not compared, rounding decides them",
            operation.undecided, operation.operation
        )
    }));
    // The CPU has no code of a declared kernel: it computes the reference.
    let references = operations.iter().filter(|operation| is_host && operation.declared);
    lines.extend(references.map(|operation| {
        format!(
            "  {} of {}: computed by its `reference`, since the CPU cannot run the kernel; verify it on a GPU",
            operation.count, operation.operation
        )
    }));
    lines.extend((*unread > 0).then(|| {
        let unread = counted(*unread as usize, "operation");
        format!("  {unread} not compared: their results are overwritten before anything reads them")
    }));
    lines.extend(taken);
    lines.extend(mistakes.iter().take(SHOWN).map(mistake));
    lines
}

fn mistake(mistake: &WrongLaunch) -> String {
    let rank = mistake.rank.map_or(String::new(), |rank| format!(" on rank {rank}"));
    let part = mistake.block.clone().unwrap_or_else(|| format!("iteration {}", mistake.iteration));
    let WrongLaunch { operation, element, output, actual, expected, allowed, .. } = mistake;
    format!(
        "  `{operation}`{rank}, {part}: element {element:?} of {output} is {actual}, and {expected} ± \
         {allowed:.1e} is right"
    )
}

/// The outputs of consecutive iterations, and whether operations waited for each other.
fn outputs(verification: &VerificationRecord, variant: &VariantVerification) -> Vec<String> {
    let failed: Vec<_> = variant.outputs.iter().filter(|output| !output.held).collect();
    let mut lines = vec![format!(
        "verified against the CPU, {}: {} of {} outputs agree after {} iterations",
        launched(&variant.launch),
        variant.outputs.len() - failed.len(),
        variant.outputs.len(),
        verification.iterations,
    )];
    let other = variant.outputs.iter().filter(|output| output.held && output.error > 0.0).count();
    lines.extend((other > 0).then(|| {
        let other = counted(other, "output");
        format!("  {other} with different bits each time: the device does not compute reproducibly")
    }));
    lines.extend(variant.witnessed.map(|witnessed| {
        let edges = counted(witnessed as usize, "edge");
        match variant.missed.len() {
            0 => format!("  {edges} witnessed: no operation began before its dependencies were complete"),
            missed => format!("  {missed} of {edges} did not hold"),
        }
    }));
    lines.extend(variant.missed.iter().take(SHOWN).map(|missed| format!("  {missed}")));
    let wrong = |output: &&OutputVerification| {
        let OutputVerification { name, shape, error, bound, .. } = output;
        format!("  {name} {shape}: relative error {error:.2e}, and {bound:.2e} is allowed")
    };
    lines.extend(failed.iter().map(wrong));
    lines
}
