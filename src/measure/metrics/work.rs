//! Arithmetic operations and moved bytes of a program, by the cost model.

use crate::model::{OpKind, OpSet, Program, Step};
use crate::ops::{BusBytes, Spec};

/// Bytes moved by operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct MovedBytes {
    /// Bytes moved within the rank, and between the rank and its host.
    here: f64,
    /// Bytes moved between ranks. Links are bidirectional, so the larger direction counts.
    across: BusBytes,
}

impl MovedBytes {
    /// Bytes that an operation must move.
    pub fn of(spec: &Spec) -> MovedBytes {
        let cost = spec.cost();
        let across = BusBytes { sent: cost.sent as f64, received: cost.received as f64 };
        MovedBytes { here: (cost.read + cost.written).total() as f64, across }
    }

    /// Bytes between ranks only.
    pub fn across(across: BusBytes) -> MovedBytes {
        MovedBytes { here: 0.0, across }
    }

    /// Returns the sum of both.
    pub fn and(self, other: MovedBytes) -> MovedBytes {
        MovedBytes { here: self.here + other.here, across: self.across + other.across }
    }

    pub fn bytes(self) -> f64 {
        self.here + self.across.larger()
    }
}

/// Arithmetic operations and bytes of an iteration of a slot, of all operations or of a set.
pub fn work(program: &Program, step: &Step, set: Option<&OpSet>) -> (f64, f64) {
    let (mut flops, mut moved) = (0.0, MovedBytes::default());
    for op in &step.ops {
        if let OpKind::Run(spec) = op.kind
            && set.is_none_or(|set| set.contains(program, op))
        {
            let spec = program.spec(spec);
            flops += spec.cost().flops;
            moved = moved.and(MovedBytes::of(spec));
        }
    }
    (flops, moved.bytes())
}

/// Arithmetic operations and bytes of an iteration, averaged over slots.
pub fn totals(program: &Program) -> (f64, f64) {
    let slots = program.cycle.len().max(1) as f64;
    let each = program.cycle.iter().map(|step| work(program, step, None));
    let sum = each.fold((0.0, 0.0), |sum, work| (sum.0 + work.0, sum.1 + work.1));
    (sum.0 / slots, sum.1 / slots)
}
