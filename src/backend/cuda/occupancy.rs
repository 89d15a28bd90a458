//! Theoretical occupancy of a kernel: the share of an SM's threads that can be resident, given the kernel's registers,
//! shared memory and blocks.
//!
//! The rules are those of the CUDA C++ Programming Guide, "Compute Capabilities", for 7.0 and later. The driver
//! computes the occupancy only of functions that this process has loaded, but kernels of libraries are known only from
//! the vendor's records.

use crate::exec::KernelLaunch;

/// Threads of a warp.
const WARP: u32 = 32;

/// Granularity of the registers that are allocated for a warp.
const REGISTER_UNIT: u32 = 256;

/// Number of partitions of an SM, among which its registers and warps are divided.
const PARTITIONS: u32 = 4;

/// Granularity of a block's allocation of shared memory, in bytes.
const SHARED_UNIT: u32 = 128;

/// Resources of an SM.
#[derive(Clone, Copy, Debug)]
pub struct UnitLimits {
    pub threads: u32,
    pub blocks: u32,
    pub registers: u32,
    /// Maximum shared memory in bytes.
    pub shared_bytes: u32,
    /// Bytes of shared memory that the driver reserves in each block.
    pub reserved_bytes: u32,
}

/// Returns the theoretical occupancy, from 0 to 1; `None` if the record does not contain the number of registers.
pub fn theoretical(limits: &UnitLimits, kernel: &KernelLaunch) -> Option<f64> {
    let threads: u32 = kernel.block.iter().copied().try_fold(1u32, u32::checked_mul)?;
    let warps = threads.div_ceil(WARP).max(1);
    let most = limits.threads / WARP;
    let of_warp = (kernel.registers? * WARP).next_multiple_of(REGISTER_UNIT);
    let by_registers = match of_warp {
        0 => most,
        of_warp => limits.registers / PARTITIONS / of_warp * PARTITIONS,
    };
    let of_block = kernel.shared_bytes.checked_add(limits.reserved_bytes)?.checked_next_multiple_of(SHARED_UNIT)?;
    let shared = kernel.unit_shared_bytes.unwrap_or(limits.shared_bytes);
    let by_shared = shared.checked_div(of_block).unwrap_or(limits.blocks);
    let blocks = limits.blocks.min(most / warps).min(by_registers / warps).min(by_shared);
    (most > 0).then(|| f64::from(blocks * warps) / f64::from(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An SM of an H100.
    const H100: UnitLimits =
        UnitLimits { threads: 2048, blocks: 32, registers: 65536, shared_bytes: 228 << 10, reserved_bytes: 1 << 10 };

    fn kernel(threads: u32, registers: u32, shared_bytes: u32) -> KernelLaunch {
        let (block, registers) = ([threads, 1, 1], Some(registers));
        KernelLaunch { block, registers, shared_bytes, ..KernelLaunch::default() }
    }

    /// Each case is limited by a different resource. The values are those of NVIDIA's occupancy calculator.
    #[test]
    fn each_resource_limits() {
        let of =
            |threads, registers, shared| theoretical(&H100, &kernel(threads, registers, shared)).expect("registers");
        assert_eq!(of(256, 32, 0), 1.0, "threads");
        assert_eq!(of(32, 16, 0), 0.5, "32 blocks of one warp");
        assert_eq!(of(256, 40, 0), 0.75, "48 of 64 warps by 1280 registers each");
        assert_eq!(of(128, 168, 0), 0.1875, "12 warps by 5376 registers each");
        assert_eq!(of(128, 32, 100 << 10), 0.125, "two blocks of four warps");
        assert_eq!(of(1024, 64, 0), 0.5, "one block of 32 warps");
        let narrow = KernelLaunch { unit_shared_bytes: Some(100 << 10), ..kernel(128, 32, 48 << 10) };
        assert_eq!(theoretical(&H100, &narrow), Some(0.125), "two blocks by 100 KiB of the SM");
        assert_eq!(theoretical(&H100, &KernelLaunch { registers: None, ..kernel(128, 0, 0) }), None);
    }
}
