//! A run that is stopped at any moment ends: ranks that exchange data, directly or through others, end after the same
//! iteration, and measurements are kept.

use std::sync::atomic::Ordering;
use std::thread;

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::config::Profile;
use aorta::exec::{self, Backend, Control, LaunchMode};
use proptest::prelude::*;

use crate::common::mock::{Mock, Script};
use crate::common::world::World;

/// More than any run here reaches.
const ITERATIONS: u64 = 1_000_000;

/// An exchange between ranks, by their numbers.
#[derive(Clone, Copy, Debug)]
enum Exchange {
    /// From one rank to another.
    Transfer(u32, u32),
    /// From one rank to another, as a copy.
    Copy(u32, u32),
    /// Each pair of ranks `2 n` and `2 n + 1`.
    Pairs,
    /// All even ranks, and all odd ones.
    Parity,
    /// Every rank.
    World,
}

#[derive(Clone, Debug)]
struct Case {
    /// Half of the ranks.
    half: u32,
    exchanges: Vec<Exchange>,
    /// For each rank how much it does by itself.
    work: Vec<u32>,
    mode: LaunchMode,
    in_flight: u32,
    /// Iterations of any rank after which the run is stopped.
    stop: u64,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    prop_oneof![
        4 => (0..8u32, 1..8u32).prop_map(|(from, by)| Exchange::Transfer(from, by)),
        2 => (0..8u32, 1..8u32).prop_map(|(from, by)| Exchange::Copy(from, by)),
        1 => Just(Exchange::Pairs),
        1 => Just(Exchange::Parity),
        1 => Just(Exchange::World),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let mode = prop_oneof![Just(LaunchMode::Stream), Just(LaunchMode::Graph)];
    let exchanges = prop::collection::vec(exchange(), 0..5);
    (1..4u32, exchanges, prop::collection::vec(0..12u32, 6), mode, 1..5u32, 0..60u64).prop_map(
        |(half, exchanges, work, mode, in_flight, stop)| {
            let world = 2 * half;
            // Two different ranks of this world.
            let pair = |from: u32, by: u32| (from % world, (from % world + 1 + by % (world - 1)) % world);
            let fitted = |exchange| match exchange {
                Exchange::Transfer(from, by) => Exchange::Transfer(pair(from, by).0, pair(from, by).1),
                Exchange::Copy(from, by) => Exchange::Copy(pair(from, by).0, pair(from, by).1),
                other => other,
            };
            let exchanges = exchanges.into_iter().map(fitted).collect();
            Case { half, exchanges, work, mode, in_flight, stop }
        },
    )
}

impl Case {
    fn world(&self) -> u32 {
        2 * self.half
    }

    /// All ranks go through the exchanges in one order, so that none waits in a circle.
    fn text(&self) -> String {
        let mut text =
            format!("mesh halves = {}, pairs = 2\nbuffer x, y: f32[64]\nbuffer z: f32[8, 64]\nstep {{\n", self.half);
        for (rank, work) in self.work.iter().enumerate() {
            text += &format!("  if rank == {rank} {{ nop() for i in 0..{work} {{ map(x + 1 -> x) }} }}\n");
        }
        for (place, exchange) in self.exchanges.iter().enumerate() {
            text += &match exchange {
                Exchange::Transfer(from, to) => format!(
                    "  if rank == {from} {{ send(x, to: {to}) }} else if rank == {to} {{ recv(-> y, from: {from}) }}\n"
                ),
                Exchange::Copy(from, to) => format!("  copy(x -> z[{place}] at {to} when rank == {from})\n"),
                Exchange::Pairs => "  all_reduce(x -> y) over pairs\n".to_owned(),
                Exchange::Parity => "  all_reduce(x -> y) over halves\n".to_owned(),
                Exchange::World => "  all_reduce(x -> y)\n".to_owned(),
            };
        }
        text + "}\n"
    }

    /// True if two ranks exchange data directly.
    fn meet(&self, a: u32, b: u32) -> bool {
        self.exchanges.iter().any(|exchange| match *exchange {
            Exchange::Transfer(from, to) | Exchange::Copy(from, to) => [(from, to), (to, from)].contains(&(a, b)),
            Exchange::Pairs => a / 2 == b / 2,
            Exchange::Parity => a % 2 == b % 2,
            Exchange::World => true,
        })
    }

    /// True if two ranks are connected, directly or through others.
    fn connected(&self, a: u32, b: u32) -> bool {
        let mut reached = vec![a];
        let mut next = 0;
        while next < reached.len() {
            let rank = reached[next];
            let new: Vec<u32> =
                (0..self.world()).filter(|&other| self.meet(rank, other) && !reached.contains(&other)).collect();
            reached.extend(new);
            next += 1;
        }
        reached.contains(&b)
    }

    /// Runs it, and stops it.
    fn check(&self, backend: &dyn Backend) -> Result<(), TestCaseError> {
        let world = World::new(&self.text(), self.world(), backend);
        let control = Control::default();
        let options = |options| exec::SessionOptions { in_flight: self.in_flight, ..options };
        let mut ranks = world.open_with(backend, options).unwrap_or_else(|error| panic!("{error}"));
        if self.mode == LaunchMode::Graph {
            ranks.capture(&control).unwrap_or_else(|error| panic!("{error}"));
        }
        let samples = thread::scope(|scope| {
            let stopper = scope.spawn(|| {
                while control.done.load(Ordering::Relaxed) < self.stop {
                    thread::yield_now();
                }
                control.stop.store(true, Ordering::Relaxed);
            });
            let samples = ranks.iterate(self.mode, 0, ITERATIONS, &control);
            // Also where the run has failed.
            control.done.store(u64::MAX, Ordering::Relaxed);
            stopper.join().expect("it only waits");
            samples
        });
        let samples = samples.map_err(|error| TestCaseError::fail(format!("{error}\n{}", self.text())))?;
        prop_assert!(samples.slowest.stopped);
        let counts: Vec<usize> = samples.ranks.iter().map(|samples| samples.time.len()).collect();
        for (a, b) in (0..self.world()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            if self.connected(a, b) {
                prop_assert_eq!(counts[a as usize], counts[b as usize], "ranks {} and {}, {:?}", a, b, counts);
            }
        }
        prop_assert_eq!(samples.slowest.time.len(), counts.iter().copied().min().unwrap_or(0));
        let done: usize = counts.iter().sum();
        prop_assert!(done as u64 >= self.stop, "{} iterations are kept of {}", done, self.stop);
        Ok(())
    }
}

proptest! {
    #![proptest_config(crate::common::properties(60))]

    #[test]
    fn connected_ranks_end_after_the_same_iteration(case in case()) {
        case.check(&Host)?;
    }

    #[test]
    fn simulated_ranks_end_after_the_same_iteration(case in case()) {
        case.check(&Sim::new(Profile::named("h200").expect("embedded")).each_iteration())?;
    }

    /// Ranks that are only synchronized by their gates.
    #[test]
    fn ranks_with_gates_end_after_the_same_iteration(case in case()) {
        let mut mock = Mock::silent();
        mock.script = Script { has_gates: true, ..Script::default() };
        case.check(&mock)?;
    }
}
