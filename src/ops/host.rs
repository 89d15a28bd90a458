//! Operations on host streams, which threads of the CPU execute on host memory.
//!
//! Shapes, results and bytes are those of the same operations on a device. `Operation::infer` also checks that a
//! kernel or copy engine can access the operands; for host streams, it receives operands in `Space::Device` instead of
//! their actual space.

use crate::base::Space;

use super::catalogue::CATALOGUE;
use super::{Cost, Property, Spec, Tensor, Traffic};

/// Names of the operations that a host stream can run.
pub fn host_operations() -> Vec<&'static str> {
    CATALOGUE.iter().filter(|operation| operation.has(Property::OnHost)).map(|operation| operation.name()).collect()
}

/// Returns the tensor as if it were in the device's memory.
pub fn on_device(tensor: Tensor) -> Tensor {
    Tensor { space: Space::Device, ..tensor }
}

/// The cost of an operation on a host stream: the same bytes and arithmetic, and no compute unit.
pub(super) fn cost(spec: &Spec) -> Cost {
    let same = Spec {
        inputs: spec.inputs.iter().copied().map(on_device).collect(),
        outputs: spec.outputs.iter().copied().map(on_device).collect(),
        threads: None,
        ..spec.clone()
    };
    let Cost { flops, read, written, hold, .. } = same.cost();
    let host = |traffic: Traffic| Traffic { device: 0, host: traffic.total() };
    Cost { flops, read: host(read), written: host(written), hold, ..Cost::default() }
}
