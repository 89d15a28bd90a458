//! Runs a comparison: alternating blocks of both sides, then each side alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cli::io::progress::TransientBar;
use crate::cli::processes::blocks::WarmedUp;
use crate::cli::processes::child::Interrupt;
use crate::exec::Control;
use crate::measure::BlockResult;
use crate::measure::ab::{self, AbBlockRecord, AbRecord, AbSideRecord, BlockMode, SCHEMA};
use crate::measure::pace::Pace;
use crate::measure::paired::{self, AbSide, BLOCKS_PER_ROUND, BLOCKS_PER_SIDE};

use super::process::{Failure, SideProcess};
use super::side::SideArgs;

/// Iterations of the first block, which determines how long they take and is discarded.
const PROBE: u64 = 10;

/// Target duration of a block.
const BLOCK: Duration = Duration::from_millis(20);

/// Minimum and maximum iterations of a block, if their number is not given.
const ITERATIONS: (u64, u64) = (10, 100);

/// Maximum rounds if each block needs a process of its own.
const FRESH_ROUNDS: usize = 8;

/// The sides of a comparison, and its length.
pub struct AbPlan {
    pub sides: [SideArgs; 2],
    pub rounds: usize,
    /// Iterations of a block; `None` to derive them from their duration.
    pub iterations: Option<u64>,
    pub seed: u64,
    /// True if each block has a process of its own.
    pub fresh: bool,
    /// True if each side is also run alone.
    pub apart: bool,
}

/// A completed comparison.
pub struct CompletedAb {
    pub record: AbRecord,
    /// Text that each side printed on standard error.
    pub stderr: [String; 2],
}

/// A comparison in progress.
struct AbRun<'a> {
    plan: &'a AbPlan,
    interrupt: &'a Interrupt,
    /// The process of each side that stays on the device; `None` if the side gets a new process for each block.
    processes: [Option<SideProcess>; 2],
    blocks: Vec<AbBlockRecord>,
    /// Iterations of a block.
    iterations: u64,
    /// Estimated duration of an iteration of each side.
    expected: [Duration; 2],
    stderr: [String; 2],
    done: Arc<Control>,
}

/// Runs the comparison. An interrupted one keeps its complete rounds.
pub fn run(plan: &AbPlan, interrupt: &Interrupt) -> Result<CompletedAb, Failure> {
    let started = jiff::Timestamp::now().to_string();
    let mut run = AbRun::new(plan, interrupt);
    let (mut ready, mut why_fresh) = run.open()?;
    let mut warnings = Vec::new();
    let ungated;
    if let Some(why) = pacing_warning(&ready) {
        ungated = AbPlan { sides: plan.sides.clone().map(SideArgs::ungated), ..*plan };
        // The processes must end before new ones begin.
        run.finish_all()?;
        run = AbRun::new(&ungated, interrupt);
        (ready, why_fresh) = run.open()?;
        warnings.push(why);
    }
    let plan = run.plan;
    let (way, rounds) = match run.processes {
        [Some(_), Some(_)] => (BlockMode::Interleaved, plan.rounds),
        // Separate processes are slow, so the number of rounds is limited unless the user asked for them.
        _ if !plan.fresh => (BlockMode::Fresh, plan.rounds.min(FRESH_ROUNDS)),
        _ => (BlockMode::Fresh, plan.rounds),
    };
    let complete = match run.measure(&ready, way, rounds) {
        Ok(()) => true,
        Err(Failure::Interrupted) if !run.blocks.is_empty() => false,
        Err(failure) => return Err(failure),
    };
    run.finish_all()?;
    let [a, b] = ready;
    let record = AbRecord {
        schema: SCHEMA.to_owned(),
        aorta: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        complete,
        seed: plan.seed,
        rounds,
        iterations: run.iterations,
        way,
        why_fresh,
        a: side(&plan.sides[0], a),
        b: side(&plan.sides[1], b),
        blocks: run.blocks,
        result: None,
        warnings,
    };
    Ok(CompletedAb { record, stderr: run.stderr })
}

/// A warning if one side is gated and the other cannot be; `None` if both are measured alike.
fn pacing_warning(ready: &[WarmedUp; 2]) -> Option<String> {
    let mixed = Pace::of(ready.iter().map(|ready| ready.gated)) == Pace::Host;
    let (gated, free) = if ready[0].gated == Some(true) { ("a", "b") } else { ("b", "a") };
    mixed.then(|| {
        format!(
            "{free} cannot be gated, so {gated} was not gated either: the times of both are host-paced, and the host \
             may limit them instead of the device"
        )
    })
}

fn side(args: &SideArgs, ready: WarmedUp) -> AbSideRecord {
    let WarmedUp { record, launch, period, warmup, notes, .. } = ready;
    AbSideRecord { arguments: args.arguments.clone(), launch, period, warmup, run: record, notes }
}

impl<'a> AbRun<'a> {
    fn new(plan: &'a AbPlan, interrupt: &'a Interrupt) -> AbRun<'a> {
        AbRun {
            plan,
            interrupt,
            processes: [None, None],
            blocks: Vec::new(),
            iterations: 0,
            expected: [Duration::ZERO; 2],
            stderr: Default::default(),
            done: Arc::default(),
        }
    }

    fn start(&mut self, side: AbSide) -> Result<WarmedUp, Failure> {
        let (process, ready) = SideProcess::start(&self.plan.sides[side as usize], self.interrupt)?;
        self.processes[side as usize] = Some(process);
        Ok(ready)
    }

    /// Ends the process of a side after its `teardown`. Keeps the text of the side's first process.
    fn finish(&mut self, side: AbSide) -> Result<(), Failure> {
        let Some(process) = self.processes[side as usize].take() else { return Ok(()) };
        let stderr = process.finish(self.interrupt)?;
        if self.stderr[side as usize].is_empty() {
            self.stderr[side as usize] = stderr;
        }
        Ok(())
    }

    fn finish_all(&mut self) -> Result<(), Failure> {
        self.finish(AbSide::A)?;
        self.finish(AbSide::B)
    }

    /// Starts both sides. If B fails concurrently with A but not alone, the device does not fit both: then only B keeps running,
    /// and the reason is returned.
    fn open(&mut self) -> Result<([WarmedUp; 2], Option<String>), Failure> {
        let a = self.start(AbSide::A)?;
        let mut why = None;
        if !self.plan.fresh {
            match self.start(AbSide::B) {
                Ok(b) => return Ok(([a, b], None)),
                Err(Failure::Ended { message, error, .. }) if error.code() > 2 => {
                    why = Some(message.unwrap_or_else(|| error.to_string()));
                }
                Err(other) => return Err(other),
            }
        }
        self.finish(AbSide::A)?;
        let b = self.start(AbSide::B)?;
        Ok(([a, b], why))
    }

    /// Measures all blocks: alternating, and then each side alone if requested.
    fn measure(&mut self, ready: &[WarmedUp; 2], way: BlockMode, rounds: usize) -> Result<(), Failure> {
        for side in [AbSide::B, AbSide::A] {
            // A side without a running process is assumed to take as long as the other.
            self.expected[side as usize] = match &self.processes[side as usize] {
                Some(_) => {
                    let probe = self.block(side, PROBE)?;
                    let time = ab::level(&probe.time_ns, ready[side as usize].period).unwrap_or(0.0).max(1.0);
                    Duration::from_nanos(time as u64)
                }
                None => self.expected[AbSide::B as usize],
            };
        }
        self.iterations = self.plan.iterations.unwrap_or_else(|| self.fitting(ready));
        if way == BlockMode::Fresh {
            self.finish(AbSide::B)?;
        }
        let apart = self.plan.apart && way == BlockMode::Interleaved;
        let blocks = rounds * BLOCKS_PER_ROUND * if apart { 2 } else { 1 };
        let _progress = TransientBar::start(self.done.clone(), blocks as u64 * self.iterations);
        for round in 0..rounds {
            for side in paired::order(self.plan.seed, round) {
                self.keep(side, Some(round))?;
            }
        }
        if apart {
            self.finish_all()?;
            for side in [AbSide::A, AbSide::B] {
                self.start(side)?;
                for _ in 0..rounds * BLOCKS_PER_SIDE {
                    self.keep(side, None)?;
                }
                self.finish(side)?;
            }
        }
        Ok(())
    }

    /// Measures and keeps a block of a side. `round` is `None` if the side runs alone.
    fn keep(&mut self, side: AbSide, round: Option<usize>) -> Result<(), Failure> {
        let fresh = self.processes[side as usize].is_none();
        if fresh {
            self.start(side)?;
        }
        let block = self.block(side, self.iterations)?;
        if fresh {
            self.finish(side)?;
        }
        self.done.done.fetch_add(self.iterations, Ordering::Relaxed);
        self.blocks.push(AbBlockRecord { side, round, block });
        Ok(())
    }

    /// Measures a block in the side's running process.
    fn block(&mut self, side: AbSide, iterations: u64) -> Result<BlockResult, Failure> {
        let expected = self.expected[side as usize] * u32::try_from(iterations).unwrap_or(u32::MAX);
        let process = self.processes[side as usize].as_mut().expect("the side has a running process");
        process.block(iterations, expected, self.interrupt)
    }

    /// Number of iterations that fill a block's target duration on the slower side; the minimum if times do not vary.
    fn fitting(&self, ready: &[WarmedUp; 2]) -> u64 {
        let (fewest, most) = ITERATIONS;
        if ready.iter().all(|ready| ready.record.simulated) {
            return fewest;
        }
        let longest = self.expected[0].max(self.expected[1]).as_nanos().max(1);
        ((BLOCK.as_nanos() / longest) as u64).clamp(fewest, most)
    }
}
