//! Checks the programs of all ranks against each other: collectives must match, and ranks must not wait for each other
//! in a cycle.
//!
//! Simulates each rank's operations in the order of its plan; a collective completes when all participants have
//! arrived. An operation that never completes is a deadlock.

mod calls;
mod pairs;
mod progress;
mod stuck;

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::base::{LaneId, OnceBlock};
use crate::model::Program;

use super::{Plan, PlanError};
use calls::Tables;
pub use pairs::{Pair, pairs};
use progress::RankSimulation;

/// Program and plan of one rank. Ranks with equal programs share both.
#[derive(Clone, Debug)]
pub struct RankPlan {
    pub program: Arc<Program>,
    pub plan: Arc<Plan>,
}

impl RankPlan {
    /// The program and plan of a block around the iterations; `None` if the file has no such block.
    pub fn block(&self, which: OnceBlock) -> Option<RankPlan> {
        let (program, plan) = (self.program.around.get(which)?.clone(), self.plan.around.get(which)?.clone());
        Some(RankPlan { program, plan })
    }

    /// True if the other rank has the same program.
    pub fn shares_with(&self, other: &RankPlan) -> bool {
        Arc::ptr_eq(&self.program, &other.program)
    }
}

/// Checks the ranks of a world, given in the order of their numbers: members of a group must issue the same collectives
/// in the same order, sends must match receives, and there must be no deadlock.
pub fn check(ranks: &[RankPlan]) -> Result<(), Vec<PlanError>> {
    for which in OnceBlock::ALL {
        let blocks: Vec<RankPlan> = ranks.iter().filter_map(|rank| rank.block(which)).collect();
        check_cycles(&blocks)?;
    }
    check_cycles(ranks)
}

/// True if all ranks complete if each runs all operations of an iteration on one stream, in the order of the text. The ranks have
/// passed [`check`].
pub fn complete_on_one_stream(ranks: &[RankPlan]) -> bool {
    let lanes = |rank: &RankPlan| vec![LaneId(0); rank.program.streams.len()];
    let ends = |progress: &RankSimulation| progress.under_way().is_empty();
    on_lanes(ranks, ranks.iter().map(lanes).collect(), ends).unwrap_or(true)
}

/// The error for ranks that wait for each other since streams share real streams, in a block around the iterations or in an
/// iteration; `None` if all complete. `lanes_of` returns the real stream of each stream of a rank, which runs the operations of a
/// block or an iteration in the order of the text. The ranks have passed [`check`].
pub fn deadlock_on_lanes(ranks: &[RankPlan], lanes_of: impl Fn(&RankPlan) -> Vec<LaneId>) -> Option<PlanError> {
    let is_shared = |lanes: &Vec<LaneId>| lanes.iter().collect::<FxHashSet<_>>().len() < lanes.len();
    let deadlock = |ranks: &[RankPlan]| {
        let lanes: Vec<Vec<LaneId>> = ranks.iter().map(&lanes_of).collect();
        let error = lanes.iter().any(is_shared).then(|| on_lanes(ranks, lanes, stuck::explain));
        error.flatten().flatten()
    };
    let block = |which| deadlock(&ranks.iter().filter_map(|rank| rank.block(which)).collect::<Vec<_>>());
    OnceBlock::ALL.into_iter().find_map(block).or_else(|| deadlock(ranks))
}

/// Simulates the ranks on these real streams, and returns what `result` finds at the end; `None` if no rank waits for another
/// in a different order.
fn on_lanes<T>(ranks: &[RankPlan], lanes: Vec<Vec<LaneId>>, result: impl FnOnce(&RankSimulation) -> T) -> Option<T> {
    let mut tables = Tables::new(ranks);
    if !may_block(ranks, &tables) {
        return None;
    }
    tables.connect(ranks);
    let mut progress = RankSimulation::new(ranks, &tables, lanes);
    progress.run();
    Some(result(&progress))
}

/// True if ranks may wait for each other for ever. Equal programs issue equal collectives in the same order.
fn may_block(ranks: &[RankPlan], tables: &Tables) -> bool {
    let all_share = ranks.iter().all(|rank| rank.shares_with(&ranks[0]));
    tables.have_collectives() && (!all_share || tables.have_transfers())
}

fn check_cycles(ranks: &[RankPlan]) -> Result<(), Vec<PlanError>> {
    let mut tables = Tables::new(ranks);
    if !may_block(ranks, &tables) {
        return Ok(());
    }
    if let Some(error) = other_mesh(ranks) {
        return Err(vec![error]);
    }
    tables.connect(ranks);
    let mut progress = RankSimulation::new(ranks, &tables, Vec::new());
    progress.run();
    let differing = progress.differing.iter();
    let errors: Vec<PlanError> = differing.map(|&(first, second)| stuck::differ(&progress, first, second)).collect();
    match errors.is_empty() {
        false => Err(errors),
        true => stuck::explain(&progress).map_or(Ok(()), |error| Err(vec![error])),
    }
}

/// The error for ranks whose meshes factor the world differently; `None` if all meshes are equal.
fn other_mesh(ranks: &[RankPlan]) -> Option<PlanError> {
    let factors = |rank: &RankPlan| -> Vec<(String, u32)> {
        let single = rank.program.groups.iter().filter(|group| group.factors.len() == 1);
        single.map(|group| (group.name.clone(), group.size())).collect()
    };
    let text = |factors: &[(String, u32)]| -> String {
        let factors: Vec<String> = factors[1..].iter().map(|(name, size)| format!("{name} = {size}")).collect();
        format!("`mesh {}`", factors.join(", "))
    };
    let first = factors(&ranks[0]);
    let (number, other) = ranks.iter().enumerate().find(|(_, rank)| factors(rank) != first)?;
    let group = other.program.groups.get(1).or(ranks[0].program.groups.get(1))?;
    Some(PlanError::Differ {
        first: 0,
        second: number as u32,
        what: "the mesh",
        at: group.span.into(),
        here: format!("rank 0: {}; rank {number}: {}", text(&first), text(&factors(other))),
        second_at: None,
        there: String::new(),
        help: "the factors of a mesh may not depend on `rank`".to_owned(),
        calls: Vec::new(),
    })
}
