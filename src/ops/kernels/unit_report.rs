//! Kernels that report on which compute units their blocks run.

use std::sync::Arc;

use super::kernel;
use crate::ops::{Arg, Kernel, KernelSource, Launch};

/// Number of counters of a report. Devices number their compute units below it; the numbers of AMD's have gaps.
pub const COUNTERS: u64 = 4096;

/// Kernel text that defines `UNIT_NUMBER()`, the number of the compute unit that runs the calling thread.
const UNIT_NUMBER: &str = r#"
#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define UNIT_NUMBER() __smid()
#else
__device__ inline u32 unit_number() { u32 number; asm volatile("mov.u32 %0, %%smid;" : "=r"(number)); return number; }
#define UNIT_NUMBER() unit_number()
#endif
"#;

/// Returns the launches of an operation with kernels that report: the first thread of each block increments the counter of
/// its compute unit, in an array of [`COUNTERS`] 32-bit integers. The array is the operand with the number `operand`. Returns
/// `None` if the operation has no generated kernel.
pub fn reporting(launches: &[Launch], operand: u8) -> Option<Vec<Launch>> {
    let mut launches = launches.to_vec();
    let kernels = launches.iter_mut().flat_map(|launch| launch.kernels_mut());
    let reports = kernels.map(|kernel| report(kernel, operand)).filter(|reports| *reports).count();
    (reports > 0).then_some(launches)
}

/// Makes a kernel report. Returns false, and changes nothing, if the kernel is not generated.
fn report(kernel: &mut Kernel, operand: u8) -> bool {
    let head = kernel::head(&kernel.source.name);
    let Some((before, rest)) = kernel.source.text.split_once(&head) else { return false };
    let Some((params, body)) = rest.split_once(kernel::BODY) else { return false };
    let separator = if params.is_empty() { "" } else { ", " };
    let begin = kernel::BODY;
    let statement = format!(
        "  if (threadIdx.x + threadIdx.y + threadIdx.z == 0u && UNIT_NUMBER() < {COUNTERS}u) \
         atomicAdd(unit_report + UNIT_NUMBER(), 1u);\n"
    );
    let text = format!("{before}{UNIT_NUMBER}{head}{params}{separator}u32* unit_report{begin}{statement}{body}");
    kernel.source = Arc::new(KernelSource { text, ..(*kernel.source).clone() });
    kernel.args.push(Arg::Operand(operand));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Shared;

    #[test]
    fn kernels_of_a_file_do_not_report() {
        let kernel = |text: &str| Kernel {
            source: Arc::new(KernelSource { name: "k".to_owned(), text: text.to_owned(), code: None }),
            grid: [1; 3],
            block: [1; 3],
            shared: Shared::Bytes(0),
            args: Vec::new(),
            without_clusters: false,
        };
        let own = kernel("extern \"C\" __global__ void k(float* x) {\n}\n");
        assert_eq!(reporting(&[Launch::Kernel(own)], 2), None);
        let generated = kernel::source("k", "", &[], "  f(g) {\n");
        let mut launches = reporting(&[Launch::Kernel(kernel(&generated.text))], 2).expect("it is generated");
        let [reports] = launches[0].kernels_mut() else { panic!("one kernel") };
        assert_eq!(reports.args, [Arg::Operand(2)]);
        assert!(reports.source.text.contains("void BOUNDS k(u32* unit_report) {\n  if (threadIdx"));
        assert!(reports.source.text.ends_with("  f(g) {\n}\n"));
    }
}
