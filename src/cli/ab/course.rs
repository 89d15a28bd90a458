//! The course of a comparison: both sides in turn, then each by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cli::blocks::Ready;
use crate::cli::case::Interrupt;
use crate::cli::progress::Progress;
use crate::exec::Control;
use crate::measure::Block;
use crate::measure::ab::{self, AbRecord, BlockRecord, SCHEMA, SideRecord, Way};
use crate::measure::pace::Pace;
use crate::measure::paired::{self, OF_A_SIDE, ROUND, Side};

use super::child::{Failure, Standing};
use super::side::SideArgs;

/// Iterations by which it is found out how long they take. They are thrown away.
const PROBE: u64 = 10;

/// How long a block is to take.
const BLOCK: Duration = Duration::from_millis(20);

/// Iterations of a block, where nobody says how many.
const ITERATIONS: (u64, u64) = (10, 100);

/// Rounds at most where each block needs a process of its own.
const FRESH_ROUNDS: usize = 8;

/// What is to be compared, and how long.
pub struct Plan {
    pub sides: [SideArgs; 2],
    pub rounds: usize,
    /// Of a block; nothing where it follows from how long they take.
    pub iterations: Option<u64>,
    pub seed: u64,
    /// Each block has a process of its own.
    pub fresh: bool,
    /// Each side is also run by itself.
    pub apart: bool,
}

/// A comparison under way.
struct Course<'a> {
    plan: &'a Plan,
    interrupt: &'a Interrupt,
    blocks: Vec<BlockRecord>,
    iterations: u64,
    /// How long a block of each side should take.
    expected: [Duration; 2],
    /// What the sides have said to people.
    said: [String; 2],
    done: Arc<Control>,
}

/// What the course gave.
pub struct Done {
    pub record: AbRecord,
    /// What the sides have said to people.
    pub said: [String; 2],
}

/// Runs the comparison. One that is interrupted keeps the rounds that it has.
pub fn run(plan: &Plan, interrupt: &Interrupt) -> Result<Done, Failure> {
    let started = jiff::Timestamp::now().to_string();
    let mut course = Course::new(plan, interrupt);
    let mut opened = course.open()?;
    let mut warnings = Vec::new();
    let free;
    if let Some(why) = unlike(&opened.1) {
        // Both sides end before others begin.
        drop(opened);
        free = plan.ungated();
        course = Course::new(&free, interrupt);
        opened = course.open()?;
        warnings.push(why);
    }
    let plan = course.plan;
    let (standing, ready, why_fresh) = opened;
    let (way, rounds) = match &standing {
        Both(..) => (Way::Interleaved, plan.rounds),
        // Where it is not what was asked for, it need not take hours.
        Last(_) if !plan.fresh => (Way::Fresh, plan.rounds.min(FRESH_ROUNDS)),
        Last(_) => (Way::Fresh, plan.rounds),
    };
    let finished = match standing {
        Both(a, b) => course.both_turns(a, b, &ready, rounds),
        Last(b) => course.fresh_turns(b, &ready, rounds),
    };
    let finished = finished.and_then(|()| match plan.apart && way == Way::Interleaved {
        true => course.apart(rounds),
        false => Ok(()),
    });
    let complete = match finished {
        Ok(()) => true,
        Err(Failure::Interrupted) if !course.blocks.is_empty() => false,
        Err(failure) => return Err(failure),
    };
    let [a, b] = ready;
    let record = AbRecord {
        schema: SCHEMA.to_owned(),
        aorta: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        complete,
        seed: plan.seed,
        rounds,
        iterations: course.iterations,
        way,
        why_fresh,
        a: side(&plan.sides[0], a),
        b: side(&plan.sides[1], b),
        blocks: course.blocks,
        result: None,
        warnings,
    };
    Ok(Done { record, said: course.said })
}

/// Says that one side is held at the gate and the other cannot be; nothing where both are measured alike.
fn unlike(ready: &[Ready; 2]) -> Option<String> {
    let mixed = Pace::of(ready.iter().map(|ready| ready.held)) == Pace::Host;
    let (held, free) = if ready[0].held == Some(true) { ("a", "b") } else { ("b", "a") };
    mixed.then(|| {
        format!(
            "{free} is not held at the gate, so {held} was not either: the times of both are host-paced, and may be those of \
             the host in place of the device"
        )
    })
}

impl Plan {
    /// The same without the gate.
    fn ungated(&self) -> Plan {
        Plan { sides: self.sides.clone().map(SideArgs::ungated), ..*self }
    }
}

fn side(args: &SideArgs, ready: Ready) -> SideRecord {
    let Ready { record, launch, period, warmup, notes, .. } = ready;
    SideRecord { arguments: args.arguments.clone(), launch, period, warmup, run: record, notes }
}

/// The sides that stand on the device: both, or the second, where they shall not both or cannot.
enum Stands {
    Both(Standing, Standing),
    Last(Standing),
}
use Stands::{Both, Last};

impl<'a> Course<'a> {
    fn new(plan: &'a Plan, interrupt: &'a Interrupt) -> Course<'a> {
        Course {
            plan,
            interrupt,
            blocks: Vec::new(),
            iterations: 0,
            expected: [Duration::ZERO; 2],
            said: [String::new(), String::new()],
            done: Arc::default(),
        }
    }

    fn start(&self, side: usize) -> Result<(Standing, Ready), Failure> {
        Standing::start(&self.plan.sides[side], self.interrupt)
    }

    /// Starts both sides, and says what they are. Where the second fails beside the first and not by itself, the device
    /// does not take both, and why not comes along.
    fn open(&mut self) -> Result<(Stands, [Ready; 2], Option<String>), Failure> {
        let (a, ready_a) = self.start(0)?;
        let mut why = None;
        if !self.plan.fresh {
            match self.start(1) {
                Ok((b, ready_b)) => return Ok((Both(a, b), [ready_a, ready_b], None)),
                Err(Failure::Ended { said, error }) if error.code() > 2 => {
                    why = Some(message(&said).unwrap_or_else(|| error.to_string()));
                }
                Err(other) => return Err(other),
            }
        }
        self.said[0] = a.finish();
        let (b, ready_b) = self.start(1)?;
        Ok((Last(b), [ready_a, ready_b], why))
    }

    /// Lets both sides take turns, while both stand on the device, and ends them.
    fn both_turns(&mut self, a: Standing, b: Standing, ready: &[Ready; 2], rounds: usize) -> Result<(), Failure> {
        let mut standing = [a, b];
        let finished = self.turns(&mut standing, ready, rounds);
        self.said = standing.map(Standing::finish);
        finished
    }

    fn turns(&mut self, standing: &mut [Standing; 2], ready: &[Ready; 2], rounds: usize) -> Result<(), Failure> {
        for side in [Side::A, Side::B] {
            let probe = standing[side as usize].block(PROBE, Duration::ZERO, self.interrupt)?;
            self.expect(side, &probe, &ready[side as usize]);
        }
        self.settle_iterations(ready);
        let _progress = self.progress(rounds * ROUND + if self.plan.apart { rounds * ROUND } else { 0 });
        for round in 0..rounds {
            for side in paired::order(self.plan.seed, round) {
                let expected = self.expected(side);
                let block = standing[side as usize].block(self.iterations, expected, self.interrupt)?;
                self.keep(side, Some(round), block);
            }
        }
        Ok(())
    }

    /// Lets both sides take turns, each block in a process of its own. One of the second stands already.
    fn fresh_turns(&mut self, mut last: Standing, ready: &[Ready; 2], rounds: usize) -> Result<(), Failure> {
        let probe = last.block(PROBE, Duration::ZERO, self.interrupt)?;
        self.expect(Side::B, &probe, &ready[1]);
        self.said[1] = last.finish();
        // The other side takes about as long, as far as anybody knows.
        self.expected[0] = self.expected[1];
        self.settle_iterations(ready);
        let _progress = self.progress(rounds * ROUND);
        for round in 0..rounds {
            for side in paired::order(self.plan.seed, round) {
                let (mut standing, _) = self.start(side as usize)?;
                let block = standing.block(self.iterations, self.expected(side), self.interrupt)?;
                standing.finish();
                self.keep(side, Some(round), block);
            }
        }
        Ok(())
    }

    /// Runs each side by itself, one after the other, as long as both together.
    fn apart(&mut self, rounds: usize) -> Result<(), Failure> {
        let _progress = self.progress(2 * rounds * ROUND);
        for side in [Side::A, Side::B] {
            let (mut standing, _) = self.start(side as usize)?;
            for _ in 0..rounds * OF_A_SIDE {
                let block = standing.block(self.iterations, self.expected(side), self.interrupt)?;
                self.keep(side, None, block);
            }
            standing.finish();
        }
        Ok(())
    }

    fn keep(&mut self, side: Side, round: Option<usize>, block: Block) {
        self.done.done.fetch_add(self.iterations, Ordering::Relaxed);
        self.blocks.push(BlockRecord { side, round, block });
    }

    /// How long an iteration of a side takes, from a first block.
    fn expect(&mut self, side: Side, probe: &Block, ready: &Ready) {
        let time = ab::level(&probe.time_ns, ready.period).unwrap_or(0.0).max(1.0);
        self.expected[side as usize] = Duration::from_nanos(time as u64);
    }

    fn expected(&self, side: Side) -> Duration {
        self.expected[side as usize] * u32::try_from(self.iterations).unwrap_or(u32::MAX)
    }

    /// As many iterations for a block as take about its time on the slower side; few where nothing varies.
    fn settle_iterations(&mut self, ready: &[Ready; 2]) {
        let (fewest, most) = ITERATIONS;
        let longest = self.expected[0].max(self.expected[1]).as_nanos().max(1);
        let fitting = (BLOCK.as_nanos() / longest) as u64;
        let simulated = ready.iter().all(|ready| ready.record.simulated);
        let fitting = if simulated { fewest } else { fitting.clamp(fewest, most) };
        self.iterations = self.plan.iterations.unwrap_or(fitting);
    }

    fn progress(&self, blocks: usize) -> Progress {
        Progress::start(self.done.clone(), blocks as u64 * self.iterations)
    }
}

/// The message of a diagnostic, as it is printed for people.
fn message(said: &str) -> Option<String> {
    said.lines().find_map(|line| line.trim().strip_prefix("× ")).map(str::to_owned)
}
