//! The blocks of a launch, and how long they take if neither the bandwidth of memories nor links limit them.
//!
//! Three things bound a block: the rate of its arithmetic, the rate at which its unit issues instructions, and what each of its
//! threads does one after the other. A thread requests a few bytes at a time, waits for them, and computes with them, so a
//! kernel with few threads reads slowly however fast the memory is.

use crate::config::Profile;
use crate::ops::{self, Cost, Launch, Shared, Spec};

/// Instructions of a thread for its place and addresses. Those of the first wave of blocks are part of a kernel's floor.
const OF_A_THREAD: f64 = 40.0;

/// Cycles from one instruction of a thread to the next one that needs its result.
const CYCLES: f64 = 4.0;

/// Lanes of an SM or compute unit that the peak of the vector units counts, with two operations in a cycle each.
const LANES: f64 = 128.0;

/// Bytes that a thread requests before it waits, if the operation does not say: four packs of 16 bytes.
const AHEAD: f64 = 64.0;

/// The blocks of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub blocks: u64,
    /// Part of an SM or compute unit that a block occupies, in units of 1/32.
    pub share: u32,
    /// Threads of a block; `None` where a library or a file decides how they work.
    threads: Option<u64>,
}

impl Grid {
    /// The blocks of a launch of this operation.
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

    /// Number of blocks that a device holds at once.
    fn room(&self, profile: &Profile) -> f64 {
        profile.units.value() * self.fit()
    }

    /// Number of blocks that an SM or compute unit holds at once.
    fn fit(&self) -> f64 {
        f64::from((Cost::WHOLE_UNIT / self.share).max(1))
    }

    /// The part of the device that the blocks occupy, from 0 to 1.
    pub fn filled(&self, profile: &Profile) -> f64 {
        (self.blocks as f64 / self.room(profile)).min(1.0)
    }

    /// Duration of a block in ns. `part` is the share of the operation's work that the launch does; `peak` is the rate of the
    /// arithmetic on the whole device, in operations per second.
    pub fn block_time(&self, cost: &Cost, part: f64, peak: f64, profile: &Profile) -> f64 {
        if let Some(time) = cost.hold {
            return time.0 as f64;
        }
        let blocks = self.blocks as f64;
        let beside = profile.units.value() * f64::from(Cost::WHOLE_UNIT) / f64::from(self.share);
        let arithmetic = cost.flops.max(cost.tiling.flops) * part / blocks * beside / peak * 1e9;
        let threads = self.threads.filter(|_| cost.matrix.is_none()).map(|threads| threads as f64);
        let instructions = match threads {
            Some(threads) => (cost.instructions * part).max(OF_A_THREAD * threads * blocks),
            None => cost.instructions * part,
        };
        let issue = self.issue_time(instructions / blocks, cost.special * part / blocks, profile);
        let alone = threads.map_or(0.0, |threads| {
            let instructions = instructions / blocks / threads - OF_A_THREAD;
            self.accesses(cost, part, threads, profile) * profile.access_latency.value() + serial(instructions, profile)
        });
        arithmetic.max(issue).max(alone)
    }

    /// Time in ns to issue a block's instructions while as many blocks share its unit as there are.
    ///
    /// Special-function units overlap with the others, and their instructions are issued too, so the longer time counts.
    /// The sum of both peaks would exceed measurements: 132 µs instead of 118 for a chain of maps
    /// (docs/measurements/2026-11-21-beside-others.md).
    fn issue_time(&self, instructions: f64, special: f64, profile: &Profile) -> f64 {
        // The peak counts a fused multiply-add as two operations, but it is one instruction.
        let issued = instructions / (profile.peak["vector"].value() / 2.0 * profile.vector_efficiency.value());
        let special = special / profile.peak["special"].value();
        let units = profile.units.value();
        let beside = (self.blocks as f64 / units).ceil().clamp(1.0, self.fit());
        issued.max(special) * units * beside * 1e9
    }

    /// Number of times that a thread waits for memory. The first access of a kernel is not part of it, since no other wave of
    /// blocks overlaps with that one: the kernel's floor has its latency.
    fn accesses(&self, cost: &Cost, part: f64, threads: f64, profile: &Profile) -> f64 {
        let blocks = self.blocks as f64;
        let bytes = (cost.read + cost.reread).device as f64 * part / (blocks * threads);
        if bytes == 0.0 {
            return 0.0;
        }
        let ahead = if cost.ahead > 0 { cost.ahead as f64 } else { AHEAD };
        let waves = (blocks / self.room(profile)).max(1.0);
        f64::from(cost.dependent) + (bytes / ahead).max(1.0) - 1.0 / waves
    }
}

/// Time in ns of a thread's instructions, each of which needs the result of the one before.
fn serial(instructions: f64, profile: &Profile) -> f64 {
    let clock = profile.peak["vector"].value() / (2.0 * LANES * profile.units.value());
    instructions.max(0.0) * CYCLES / clock * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Traffic;

    /// Accesses for which each thread waits, of blocks of 256 threads that read so many bytes, `ahead` of them at once.
    fn accesses(blocks: u64, ahead: u64, bytes: u64) -> f64 {
        let profile = Profile::named("h200").expect("embedded");
        let cost = Cost { read: Traffic { device: bytes, host: 0 }, ahead, ..Cost::default() };
        Grid { blocks, share: 4, threads: Some(256) }.accesses(&cost, 1.0, 256.0, &profile)
    }

    #[test]
    fn few_threads_wait_often() {
        assert_eq!(accesses(1, 8, 256 * 8 * 300), 299.0);
        assert_eq!(accesses(1, 64, 256 * 8 * 320), 39.0);
        assert_eq!(accesses(1, 64, 0), 0.0);
    }

    #[test]
    fn all_waves_but_the_first_wait_for_their_first_access() {
        let blocks = 4 * 132 * 8;
        assert_eq!(accesses(blocks, 16, blocks * 256 * 16), 0.75);
    }
}
