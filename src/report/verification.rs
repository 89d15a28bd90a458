//! What a verification found, as text.

use std::fmt::Write as _;

use crate::base::counted;
use crate::measure::record::{RunRecord, VariantVerification, VerificationRecord};
use crate::ops::MISSES;

/// Mistakes and missed edges that are shown.
const SHOWN: usize = 16;

/// Writes what a record says of verification; nothing where there was none.
pub fn write(record: &RunRecord, out: &mut String) {
    let Some(verification) = &record.verification else { return };
    operations(verification, out);
    for variant in &verification.variants {
        outputs(verification, variant, out);
    }
    out.push('\n');
}

/// Operations compared one by one.
fn operations(verification: &VerificationRecord, out: &mut String) {
    let VerificationRecord { operations, mistakes, unread, .. } = verification;
    let all: u64 = operations.iter().map(|of| of.count).sum();
    if all == 0 {
        return;
    }
    let held = all - mistakes.len() as u64;
    let _ =
        writeln!(out, "verified against the CPU, one by one: {held} of {} agree", counted(all as usize, "operation"));
    let worst = operations.iter().max_by(|a, b| a.error.total_cmp(&b.error));
    if let Some(worst) = worst.filter(|worst| mistakes.is_empty() && worst.error > 0.0) {
        let share = (100.0 * worst.error).max(1.0);
        let _ = writeln!(out, "  the largest error is {share:.0} % of what rounding explains ({})", worst.operation);
    }
    for of in operations.iter().filter(|of| of.by_vectors > 0) {
        let _ = writeln!(
            out,
            "  {} of {} {}: by random vectors, which miss an error of 10 times what is allowed once in {:.0}",
            of.by_vectors,
            of.count,
            of.operation,
            1.0 / MISSES
        );
    }
    for of in operations.iter().filter(|of| of.undecided > 0) {
        let elements = counted(of.elements as usize, "element");
        let _ =
            writeln!(out, "  {} of {elements} of {}: not compared, rounding decides them", of.undecided, of.operation);
    }
    if *unread > 0 {
        let unread = counted(*unread as usize, "operation");
        let _ = writeln!(out, "  {unread} not compared: what they leave is overwritten before anything reads it");
    }
    for mistake in mistakes.iter().take(SHOWN) {
        let rank = mistake.rank.map_or(String::new(), |rank| format!(" on rank {rank}"));
        let _ = writeln!(
            out,
            "  `{}`{rank}, iteration {}: element {:?} of {} is {}, and {} ± {:.1e} is right",
            mistake.operation,
            mistake.iteration,
            mistake.element,
            mistake.output,
            mistake.actual,
            mistake.expected,
            mistake.allowed
        );
    }
}

/// What iterations behind each other left, and whether operations waited for each other.
fn outputs(verification: &VerificationRecord, variant: &VariantVerification, out: &mut String) {
    let failed: Vec<_> = variant.outputs.iter().filter(|output| !output.held).collect();
    let _ = writeln!(
        out,
        "verified against the CPU, {}: {} of {} outputs agree after {} iterations",
        if variant.launch == "graph" { "as a graph" } else { "as streams" },
        variant.outputs.len() - failed.len(),
        variant.outputs.len(),
        verification.iterations,
    );
    let other = variant.outputs.iter().filter(|output| output.held && output.error > 0.0).count();
    if other > 0 {
        let other = counted(other, "output");
        let _ = writeln!(out, "  {other} with other bits each time: the device does not compute the same twice");
    }
    if let Some(witnessed) = variant.witnessed {
        let edges = counted(witnessed as usize, "edge");
        let _ = match variant.missed.len() {
            0 => writeln!(out, "  {edges} witnessed: nothing began before what it waits for was done"),
            missed => writeln!(out, "  {missed} of {edges} did not hold"),
        };
    }
    for missed in variant.missed.iter().take(SHOWN) {
        let _ = writeln!(out, "  {missed}");
    }
    for output in failed {
        let _ = writeln!(
            out,
            "  {} {}: relative error {:.2e}, and {:.2e} is allowed",
            output.name, output.shape, output.error, output.bound
        );
    }
}
