//! The program, plan and schedule of one rank.

use crate::model::Program;
use crate::plan::{Plan, RankPlan};
use crate::schedule::Schedule;

/// A rank of a world: its program, plan and schedule.
#[derive(Clone, Copy, Debug)]
pub struct RankSchedule<'a> {
    /// Number of the rank in the world. Several ranks may share a program.
    pub number: u32,
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub schedule: &'a Schedule,
}

impl<'a> RankSchedule<'a> {
    /// The rank that the program was analyzed for.
    pub fn new(program: &'a Program, plan: &'a Plan, schedule: &'a Schedule) -> RankSchedule<'a> {
        RankSchedule { number: program.rank, program, plan, schedule }
    }

    /// The ranks from the number `first` on, each with its schedule.
    pub fn all(first: u32, ranks: &'a [RankPlan], schedules: &'a [Schedule]) -> Vec<RankSchedule<'a>> {
        let rank = |((number, rank), schedule): ((u32, &'a RankPlan), &'a Schedule)| RankSchedule {
            number,
            ..RankSchedule::new(&rank.program, &rank.plan, schedule)
        };
        (first..).zip(ranks).zip(schedules).map(rank).collect()
    }
}
