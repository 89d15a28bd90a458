//! The work of an operation, from which the simulator and the advice derive its time.

use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use super::{Arithmetic, Nanos, Space};

/// The work of one execution of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Arithmetic operations; a fused multiply-add counts as two.
    pub flops: f64,
    /// Instructions of the vector units, or 0 if unknown. An exponential takes several.
    pub instructions: f64,
    /// Instructions, included in `instructions`, that do not wait for earlier instructions, such as additions of products to separate
    /// sums.
    pub independent: f64,
    /// Instructions that an SM could issue while its shared memory serves conflicting accesses of a warp, and while other units
    /// that warps share are busy.
    pub conflicts: f64,
    /// Instructions of the special-function units, included in `instructions`: base-2 exponentials, reciprocals, square
    /// roots.
    pub special: f64,
    /// Minimum of bytes read and written. A copy between host and device counts its bytes once, as traffic of the host.
    pub read: Traffic,
    pub written: Traffic,
    /// Bytes sent to and received from other ranks by collectives, sends, receives and copies between ranks. `read` and `written`
    /// do not include them.
    pub sent: u64,
    pub received: u64,
    /// Bytes that kernels read more than once.
    pub reread: Traffic,
    /// Bytes of intermediate results that the algorithm writes to memory and reads back, counted in both directions.
    pub scratch: Traffic,
    /// Bytes of device memory that kernels move besides: gaps of tensors, together with their elements, and elements that an earlier launch
    /// has read if the cache is too small for them.
    pub moved: u64,
    /// Number of sectors of [`SECTOR`](super::SECTOR) bytes that warps access in the last-level cache; 0 if they access
    /// sectors as a whole.
    pub sectors: f64,
    /// Number of accesses to memory after the first for which a thread waits, one after the other.
    pub waits: f64,
    /// Number of exchanges of values among all threads of a block, one after the other: shuffles, shared memory and a barrier.
    pub exchanges: f64,
    /// Number of times that a block waits for values that other blocks of its launch compute, one after the other: totals that they publish
    /// in memory.
    pub handoffs: f64,
    /// Number of times that the blocks of a cluster exchange values through memory, at a barrier.
    pub cluster_handoffs: f64,
    /// Number of thread blocks; 0 if the operation uses no SM or compute unit.
    pub blocks: u64,
    /// Part of an SM or compute unit that a block occupies, in units of 1/32.
    pub share: u32,
    /// Type of arithmetic of the matrix units; `None` if they are not used.
    pub matrix: Option<Arithmetic>,
    /// True if a block multiplies and executes `instructions` in turn; false if both overlap. Attention, for example, needs the scores
    /// of a tile for the exponentials, and the exponentials for its second product.
    pub alternates: bool,
    /// True if the rate of the products is that of one block on an SM or compute unit, so that several blocks also wait for each other's
    /// products and instructions; false if the rate includes this. Only for work that `alternates`.
    pub rate_alone: bool,
    /// Tiles of a matrix product in the vendor's library; the default for other work.
    pub tiling: Tiling,
    /// A fixed duration, independent of the device; `None` for work whose duration depends on the device.
    pub hold: Option<Hold>,
}

impl Cost {
    /// The value of `share` for a block that occupies a whole SM or compute unit.
    pub const WHOLE_UNIT: u32 = 32;

    /// Minimum of bytes moved, in all memories. Links between ranks are full duplex, so the larger of sent and received
    /// bytes counts.
    pub fn bytes(&self) -> u64 {
        self.read.total() + self.written.total() + self.sent.max(self.received)
    }

    /// The cost of each of this many launches that do equal parts of the work.
    pub fn each_of(self, launches: u64) -> Cost {
        let parts = launches as f64;
        let each = |bytes: Traffic| Traffic { device: bytes.device / launches, host: bytes.host / launches };
        Cost {
            flops: self.flops / parts,
            instructions: self.instructions / parts,
            independent: self.independent / parts,
            conflicts: self.conflicts / parts,
            special: self.special / parts,
            read: each(self.read),
            written: each(self.written),
            sent: self.sent / launches,
            received: self.received / launches,
            reread: each(self.reread),
            scratch: each(self.scratch),
            moved: self.moved / launches,
            sectors: self.sectors / parts,
            waits: self.waits / parts,
            exchanges: self.exchanges / parts,
            handoffs: self.handoffs / parts,
            cluster_handoffs: self.cluster_handoffs / parts,
            blocks: self.blocks.div_ceil(launches),
            tiling: Tiling { flops: self.tiling.flops / parts, ..self.tiling },
            ..self
        }
    }
}

/// A fixed duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Duration of each block.
    Block(Nanos),
    /// Duration of the kernel on a whole device, whatever its number of blocks.
    Kernel(Nanos),
}

/// The cost of launches that follow each other.
impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), |a, b| Cost {
            flops: a.flops + b.flops,
            instructions: a.instructions + b.instructions,
            independent: a.independent + b.independent,
            conflicts: a.conflicts + b.conflicts,
            special: a.special + b.special,
            read: a.read + b.read,
            written: a.written + b.written,
            sent: a.sent + b.sent,
            received: a.received + b.received,
            reread: a.reread + b.reread,
            scratch: a.scratch + b.scratch,
            moved: a.moved + b.moved,
            sectors: a.sectors + b.sectors,
            waits: a.waits + b.waits,
            exchanges: a.exchanges + b.exchanges,
            handoffs: a.handoffs + b.handoffs,
            cluster_handoffs: a.cluster_handoffs + b.cluster_handoffs,
            blocks: a.blocks + b.blocks,
            share: a.share.max(b.share),
            matrix: a.matrix.or(b.matrix),
            alternates: a.alternates || b.alternates,
            rate_alone: a.rate_alone || b.rate_alone,
            tiling: Tiling {
                flops: a.tiling.flops + b.tiling.flops,
                shares_depth: a.tiling.shares_depth || b.tiling.shares_depth,
                unaligned: a.tiling.unaligned + b.tiling.unaligned,
                further: a.tiling.further + b.tiling.further,
                converted: a.tiling.converted + b.tiling.converted,
                stores: a.tiling.stores || b.tiling.stores,
            },
            hold: a.hold.max(b.hold),
        })
    }
}

/// The cost of a spec, computed once: reports, limits and the simulator ask for it again in each iteration.
///
/// A copy of a spec does not inherit it, since the copy may be changed, and it plays no part in comparisons of specs.
#[derive(Default)]
pub struct KnownCost(OnceLock<Cost>);

impl KnownCost {
    /// Returns the cost, which `compute` returns at the first call.
    pub(super) fn get_or_compute(&self, compute: impl FnOnce() -> Cost) -> Cost {
        *self.0.get_or_init(compute)
    }
}

impl Clone for KnownCost {
    fn clone(&self) -> KnownCost {
        KnownCost::default()
    }
}

impl PartialEq for KnownCost {
    fn eq(&self, _: &KnownCost) -> bool {
        true
    }
}

impl Eq for KnownCost {}

impl Hash for KnownCost {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The division by which a vendor's library computes a matrix product.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tiling {
    /// Arithmetic operations including the padding of partial tiles and results that nothing uses; 0 if unknown.
    pub flops: f64,
    /// True if several blocks divide the k dimension of a tile among them (split-k) and a reduction adds their partial sums.
    pub shares_depth: bool,
    /// Bytes of operands that a library's kernels for unaligned rows move slowly; 0 if all rows are aligned.
    pub unaligned: u64,
    /// Number of further kernels, which run before and after the product.
    pub further: u64,
    /// Bytes of operands that the further kernels copy to another layout.
    pub converted: u64,
    /// True if `flops` contain the time in which blocks store results, as of blocks that compute one tile after the other.
    pub stores: bool,
}

/// Numbers of bytes by memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes in the device's memory.
    pub device: u64,
    /// Bytes in the host's memory, which a device accesses over its link.
    pub host: u64,
}

impl Traffic {
    /// Traffic of no bytes.
    pub const NONE: Traffic = Traffic { device: 0, host: 0 };

    pub fn of(space: Space, bytes: u64) -> Traffic {
        match space.in_host() {
            false => Traffic { device: bytes, host: 0 },
            true => Traffic { device: 0, host: bytes },
        }
    }

    /// Number of bytes in all memories.
    pub fn total(self) -> u64 {
        self.device + self.host
    }
}

impl std::ops::Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic { device: self.device + other.device, host: self.host + other.host }
    }
}

impl std::iter::Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(parts: I) -> Traffic {
        parts.fold(Traffic::NONE, std::ops::Add::add)
    }
}
