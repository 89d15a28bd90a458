//! The blocks of a launch, and the duration of a block that waits for no bandwidth.
//!
//! Three things bound a block: the rate of its arithmetic, the rate at which its SM or compute unit issues instructions, and the
//! latency of a thread. A thread requests a few bytes, waits for them, and computes with them. A kernel with few threads
//! therefore reads slowly, however fast the memory is.

use crate::config::Profile;
use crate::ops::{self, Cost, Launch, Shared, Spec};

/// Minimum number of instructions of a thread, which compute its index and addresses and check bounds. The kernel's floor
/// includes the latency of these instructions in the first wave of blocks.
const OF_A_THREAD: f64 = 40.0;

/// Clock cycles from an instruction to the next one that needs its result: CUDA C++ Programming Guide, "Multiprocessor Level".
/// A SIMD of AMD's CDNA needs 4 cycles as well, for 64 threads on 16 lanes.
const CYCLES: f64 = 4.0;

/// Operations per clock cycle of an SM or compute unit at the peak `vector`: 128 fused multiply-adds (NVIDIA H100 and AMD CDNA 3
/// white papers).
const OPERATIONS_OF_A_CYCLE: f64 = 256.0;

/// Bytes that a thread requests before it waits, if an operation does not specify them. Assumed: four packs of 16 bytes.
const AHEAD: f64 = 64.0;

/// The blocks of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub blocks: u64,
    /// Part of an SM or compute unit that a block occupies, in units of 1/32.
    pub share: u32,
    /// Threads of a block; `None` if their work is unknown, as in kernels of libraries and users.
    threads: Option<u64>,
}

impl Grid {
    /// Returns the blocks of a launch of this operation.
    pub fn of(spec: &Spec, launch: &Launch, cost: &Cost) -> Grid {
        let by_cost = Grid { blocks: cost.blocks.max(1), share: cost.share.max(1), threads: None };
        match launch {
            Launch::Kernel(_) if ops::user_kernel(spec).is_some() || cost.hold.is_some() => by_cost,
            Launch::Kernel(kernel) => {
                let threads = kernel.block.iter().map(|&size| u64::from(size)).product::<u64>().max(1);
                let whole = u64::from(Cost::WHOLE_UNIT);
                let by_shared = match kernel.shared {
                    Shared::Bytes(bytes) | Shared::AtMost(bytes) => {
                        (u64::from(bytes) * whole).div_ceil(ops::UNIT_SHARED).min(whole) as u32
                    }
                    Shared::All => Cost::WHOLE_UNIT,
                };
                let share = ops::share(threads).max(by_shared).min(Cost::WHOLE_UNIT);
                Grid { blocks: kernel.grid.iter().product::<u64>().max(1), share, threads: Some(threads) }
            }
            _ => by_cost,
        }
    }

    /// Number of blocks that are resident on the device at once.
    fn resident(&self, profile: &Profile) -> f64 {
        profile.units.value() * self.resident_on_unit()
    }

    /// Number of blocks that are resident on an SM or compute unit at once.
    fn resident_on_unit(&self) -> f64 {
        f64::from((Cost::WHOLE_UNIT / self.share).max(1))
    }

    /// The part of the device that the blocks occupy, from 0 to 1.
    pub fn occupied(&self, profile: &Profile) -> f64 {
        (self.blocks as f64 / self.resident(profile)).min(1.0)
    }

    /// Returns the duration of a block in ns. `part` is the share of the operation's work that the launch does; `peak` is the
    /// rate of the arithmetic on the whole device, in operations per second.
    pub fn block_time(&self, cost: &Cost, part: f64, peak: f64, profile: &Profile) -> f64 {
        if let Some(time) = cost.hold {
            return time.0 as f64;
        }
        let blocks = self.blocks as f64;
        let resident = profile.units.value() * f64::from(Cost::WHOLE_UNIT) / f64::from(self.share);
        let arithmetic = cost.flops.max(cost.tiling.flops) * part / blocks * resident / peak * 1e9;
        let threads = self.threads.filter(|_| cost.matrix.is_none()).map(|threads| threads as f64);
        let instructions = match threads {
            Some(threads) => (cost.instructions * part).max(OF_A_THREAD * threads * blocks),
            None => cost.instructions * part,
        };
        let issue = self.issue_time(instructions / blocks, cost.special * part / blocks, profile);
        let latency = threads.map_or(0.0, |threads| {
            let instructions = instructions / blocks / threads - OF_A_THREAD;
            self.waits(cost, part, threads, profile) * profile.access_latency.value() + serial(instructions, profile)
        });
        arithmetic.max(issue).max(latency)
    }

    /// Time in ns to issue a block's instructions, while the other resident blocks issue theirs.
    ///
    /// Special-function units overlap with the others, and their instructions are issued too, so the longer time counts.
    /// The sum of both peaks would exceed measurements: 132 µs instead of 118 for a chain of maps
    /// (docs/measurements/2026-11-21-beside-others.md).
    fn issue_time(&self, instructions: f64, special: f64, profile: &Profile) -> f64 {
        // The peak counts a fused multiply-add as two operations, but it is one instruction.
        let issued = instructions / (profile.peak["vector"].value() / 2.0 * profile.vector_efficiency.value());
        let special = special / profile.peak["special"].value();
        let units = profile.units.value();
        let beside = (self.blocks as f64 / units).ceil().clamp(1.0, self.resident_on_unit());
        issued.max(special) * units * beside * 1e9
    }

    /// Number of times that a thread waits for memory, without the first time in the first wave of blocks, whose latency is part of
    /// the kernel's floor.
    fn waits(&self, cost: &Cost, part: f64, threads: f64, profile: &Profile) -> f64 {
        let blocks = self.blocks as f64;
        let bytes = (cost.read + cost.reread).device as f64 * part / (blocks * threads);
        if bytes == 0.0 {
            return 0.0;
        }
        let ahead = if cost.ahead > 0 { cost.ahead as f64 } else { AHEAD };
        let waves = (blocks / self.resident(profile)).max(1.0);
        f64::from(cost.dependent) + (bytes / ahead).max(1.0) - 1.0 / waves
    }
}

/// Time in ns of a thread's instructions, if each needs the result of the previous one.
fn serial(instructions: f64, profile: &Profile) -> f64 {
    let clock = profile.peak["vector"].value() / (OPERATIONS_OF_A_CYCLE * profile.units.value());
    instructions.max(0.0) * CYCLES / clock * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Traffic;

    /// Number of times that threads wait, in blocks of 256 threads that read this many bytes in all, `ahead` at once per thread.
    fn waits(blocks: u64, ahead: u64, bytes: u64) -> f64 {
        let profile = Profile::named("h200").expect("embedded");
        let cost = Cost { read: Traffic { device: bytes, host: 0 }, ahead, ..Cost::default() };
        Grid { blocks, share: 4, threads: Some(256) }.waits(&cost, 1.0, 256.0, &profile)
    }

    #[test]
    fn few_threads_wait_often() {
        assert_eq!(waits(1, 8, 256 * 8 * 300), 299.0);
        assert_eq!(waits(1, 64, 256 * 8 * 320), 39.0);
        assert_eq!(waits(1, 64, 0), 0.0);
    }

    #[test]
    fn all_waves_but_the_first_wait_for_their_first_access() {
        let blocks = 4 * 132 * 8;
        assert_eq!(waits(blocks, 16, blocks * 256 * 16), 0.75);
    }
}
