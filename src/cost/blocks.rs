//! Time of a kernel's blocks: instructions, latencies, and bytes that a unit moves.

use crate::config::Profile;
use crate::ops::{self, Cost, Kernel, Launch};

/// How a launch divides its work.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub(super) blocks: u64,
    /// Part of a compute unit that a block occupies, in 1/32.
    pub(super) share: u32,
    /// Number of threads of a block; `None` if it is not known, as for a library's kernel.
    threads: Option<u64>,
}

impl Grid {
    pub(super) fn unknown(cost: &Cost) -> Grid {
        Grid { blocks: cost.blocks.max(1), share: cost.share.max(1), threads: None }
    }

    pub(super) fn of(launch: &Launch, cost: &Cost) -> Grid {
        let of_block = |kernel: &Kernel| kernel.block.iter().copied().map(u64::from).product::<u64>();
        let kernel = match launch {
            Launch::Kernel(kernel) => kernel,
            // The cost of a convolution counts the blocks of all its kernels together, so the blocks of each are unknown.
            Launch::Conv(_, kernels, _) => {
                return Grid { threads: kernels.first().map(of_block), ..Grid::unknown(cost) };
            }
            _ => return Grid::unknown(cost),
        };
        let threads = of_block(kernel);
        Grid {
            blocks: kernel.grid.iter().product::<u64>().max(1),
            share: cost.share.max(ops::share(threads)),
            threads: Some(threads),
        }
    }

    /// Number of blocks that fit on a compute unit.
    fn fit(self) -> f64 {
        f64::from(Cost::WHOLE_UNIT) / f64::from(self.share)
    }

    /// Number of waves of blocks on the whole device.
    pub(super) fn waves(self, profile: &Profile) -> f64 {
        (self.blocks as f64 / (self.fit().max(1.0) * profile.units.value())).ceil().max(1.0)
    }
}

/// Mean time in ns of a wave of blocks. The first times are those of a block's operations, and of the memory for the bytes of all blocks.
///
/// The last wave may have fewer blocks, which share their units with fewer others.
pub(super) fn wave_time(
    cost: &Cost,
    grid: Grid,
    cached: f64,
    [arithmetic, memory]: [f64; 2],
    profile: &Profile,
) -> f64 {
    let (units, waves) = (profile.units.value(), grid.waves(profile));
    let time = |blocks: f64| {
        let beside = (blocks / units).ceil().clamp(1.0, grid.fit().max(1.0));
        block_time(
            cost,
            grid,
            cached,
            [arithmetic, memory * (blocks / grid.blocks as f64).min(1.0 / waves)],
            beside,
            profile,
        )
    };
    let last = grid.blocks as f64 - (waves - 1.0) * grid.fit().max(1.0) * units;
    ((waves - 1.0) * time(grid.blocks as f64) + time(last)) / waves
}

/// Time in ns of a block beside this many of its launch on the same unit, itself included. The first times are those of its operations, and of
/// the memory for the bytes of all blocks that run at the same time.
fn block_time(
    cost: &Cost,
    grid: Grid,
    cached: f64,
    [arithmetic, memory]: [f64; 2],
    beside: f64,
    profile: &Profile,
) -> f64 {
    let others = issue_time(cost, grid, beside, profile)
        .max(unit_time(cost, grid, profile) * beside)
        .max(if beside > 1.0 { profile.block_start.value() * beside } else { 0.0 })
        .max(thread_time(cost, grid, cached, profile));
    // Blocks on one unit hide each other's latencies, but not those of one block.
    let alone = if cost.alternates {
        let together = if cost.rate_alone { beside } else { 1.0 };
        alternating_time(cost, grid, together, arithmetic, profile)
            + dependent_time(cost, grid, profile)
            + latency_time(cost, grid, cached, profile)
    } else if cost.exchanges > 0.0 {
        exchanging_time(cost, grid, cached, unit_time(cost, grid, profile).max(memory), beside, profile)
    } else {
        0.0
    };
    (arithmetic * beside).max(others).max(alone)
}

/// Time in ns of a block, beside this many on its unit, whose threads exchange what they have read and write after that. The memory moves the
/// bytes of the blocks that run at the same time in `moved` ns.
///
/// Warps whose bytes come first execute instructions while those of others come, so that about half of the shorter time is hidden. Other
/// blocks on the unit hide more, and so do later waves: only the blocks of the first one begin together.
fn exchanging_time(cost: &Cost, grid: Grid, cached: f64, moved: f64, beside: f64, profile: &Profile) -> f64 {
    let (latency, dependent) = (latency_time(cost, grid, cached, profile), dependent_time(cost, grid, profile));
    let issued = |blocks: f64| issue_time(cost, grid, blocks, profile).max(dependent);
    let (all, own) = (issued(beside), issued(1.0));
    let together = moved.max(all) + (moved.min(all) / 2.0 / beside + latency) / grid.waves(profile);
    let moved = moved / beside;
    together.max(moved.max(own) + moved.min(own) / 2.0 + latency)
}

/// Time in ns in which a block issues its instructions, beside this many blocks of the launch on the same unit.
///
/// Special-function units overlap with the others, and their instructions are issued too, so the longer time counts.
/// The sum of both peaks would exceed measurements: 132 µs instead of 118 for a chain of maps
/// (docs/measurements/2026-11-21-beside-others.md).
pub(super) fn issue_time(cost: &Cost, grid: Grid, beside: f64, profile: &Profile) -> f64 {
    // The peak counts a fused multiply-add as two operations, but it is one instruction.
    let rate = profile.peak["vector"].value() / 2.0 * profile.vector_efficiency.value();
    let issued = (cost.instructions + cost.conflicts) / rate;
    let special = cost.special / profile.peak["special"].value();
    issued.max(special) * profile.units.value() * beside / grid.blocks as f64 * 1e9
}

/// Time in ns of this many blocks on a unit that multiply for `multiplied` ns each and execute their instructions in turn.
///
/// The matrix units of a compute unit and its schedulers each serve one block after the other, so that one block multiplies while another
/// executes instructions. Blocks begin together: the first has no product of another to overlap with, nor the last its instructions.
/// A single block overlaps nothing.
fn alternating_time(cost: &Cost, grid: Grid, beside: f64, multiplied: f64, profile: &Profile) -> f64 {
    let issued = issue_time(cost, grid, 1.0, profile);
    beside * multiplied.max(issued) + multiplied.min(issued)
}

/// Time in ns of a block that has a unit to itself: its instructions and [`latency_time`]. A warp issues while others wait for their
/// instructions, unless all stay in step: if they exchange values after several rounds of accesses.
fn thread_time(cost: &Cost, grid: Grid, cached: f64, profile: &Profile) -> f64 {
    let issued = issue_time(cost, grid, 1.0, profile);
    let dependent = dependent_time(cost, grid, profile);
    let is_in_step = cost.waits > 0.0 && cost.exchanges > 0.0;
    let executed = if is_in_step { issued + dependent } else { issued.max(dependent) };
    executed + latency_time(cost, grid, cached, profile)
}

/// Time in ns of a thread's instructions that wait for the ones before them.
fn dependent_time(cost: &Cost, grid: Grid, profile: &Profile) -> f64 {
    let dependent = cost.instructions - cost.independent;
    grid.threads.map_or(0.0, |threads| dependent / (grid.blocks * threads) as f64) * profile.instruction_latency.value()
}

/// Latencies of a block in ns besides those of instructions: accesses to memory, exchanges between threads and waits for other blocks
/// follow one after the other.
fn latency_time(cost: &Cost, grid: Grid, cached: f64, profile: &Profile) -> f64 {
    // The first access of the first blocks is part of the launch's latency.
    let first = if grid.blocks as f64 > grid.fit() * profile.units.value() { 1.0 } else { 0.0 };
    let wait = cached * profile.cache_wait.value() + (1.0 - cached) * profile.memory_wait.value();
    // The blocks of a cluster write values to the cache, wait for each other, and read them.
    let join = 2.0 * profile.cache_wait.value() + profile.block_exchange.value();
    (cost.waits + first) * wait
        + cost.exchanges * profile.block_exchange.value()
        + cost.handoffs * profile.block_handoff.value()
        + cost.cluster_handoffs * join
}

/// Time in ns in which a unit moves the bytes of a block of a kernel without matrix units.
fn unit_time(cost: &Cost, grid: Grid, profile: &Profile) -> f64 {
    if cost.matrix.is_some() {
        return 0.0;
    }
    let time = |bytes: u64, rate: f64| if rate > 0.0 { bytes as f64 / rate * 1e9 } else { 0.0 };
    let read = time((cost.read + cost.reread).device, profile.unit_reads.value());
    (read + time(cost.written.device, profile.unit_writes.value())) / grid.blocks as f64
}
