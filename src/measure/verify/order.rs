//! Verifies at run time that operations wait for their dependencies.

use crate::base::OpId;
use crate::exec::{self, CheckedDependency, ExecError, LaunchMode, RankSchedule};

use super::VerifyRequest;
use super::record::VariantVerification;

/// Runs the ranks on their schedules with marks and checks around each operation; false if the run was stopped.
pub fn witness(
    request: &VerifyRequest,
    ranks: &[RankSchedule],
    variants: &mut [VariantVerification],
) -> Result<bool, ExecError> {
    let VerifyRequest { backend, ref options, control, .. } = *request;
    let mut witness = exec::witness(ranks, backend, options)?;
    // Two full periods, so that each iteration follows others.
    let period = ranks.iter().map(|rank| rank.schedule.period.len()).max().unwrap_or(0) as u64;
    for variant in variants {
        let mode = if variant.launch == LaunchMode::Graph.name() { LaunchMode::Graph } else { LaunchMode::Stream };
        // With its marks an iteration may be too large for a graph; then it is skipped.
        if mode == LaunchMode::Graph && witness.ranks.capture(control).is_err() {
            continue;
        }
        witness.ranks.reset(control)?;
        if witness.ranks.iterate(mode, 0, 2 * period + 1, control)?.slowest.stopped {
            return Ok(false);
        }
        let checked = checked_dependencies(ranks, &mut witness);
        for (witnessed, missed) in witness.ranks.agree("witnessed edges", checked)? {
            if let Some(edges) = witnessed {
                variant.witnessed = Some(variant.witnessed.unwrap_or(0) + edges);
            }
            variant.missed.extend(missed);
        }
    }
    Ok(true)
}

/// Number of dependencies that this process checked, if it could, and those that were violated, in words.
fn checked_dependencies(
    ranks: &[RankSchedule],
    witness: &mut exec::Witness,
) -> Result<(Option<u64>, Vec<String>), ExecError> {
    let (mut witnessed, mut all) = (None, Vec::new());
    for index in witness.ranks.own() {
        let RankSchedule { number, program, .. } = ranks[index];
        let Some(missed) = witness.missed(index)? else { continue };
        witnessed = Some(witness.edges() as u64);
        let name = |(step, op): (usize, OpId)| program.op_text(program.cycle[step].op(op));
        let describe = |(edge, count): &(CheckedDependency, u32)| {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            let at = if ranks.len() == 1 { String::new() } else { format!(" on rank {number}") };
            format!("`{}` began {times} before `{}` was done{at}", name(edge.to), name(edge.from))
        };
        all.extend(missed.iter().map(describe));
    }
    Ok((witnessed, all))
}
