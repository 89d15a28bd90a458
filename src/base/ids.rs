//! Index types: after `model`, everything is identified by number instead of by name.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                $name(index as u32)
            }
        }
    )*};
}

id! {
    /// A stream of the program; each member of a family is one.
    StreamId,
    /// A memory of the program: a buffer with all its family, a bare input, or scratch.
    MemoryId,
    /// A slice of a memory. Equal slices have equal ids.
    ViewId,
    /// An operation with its options and operand shapes. Equal ones have equal ids.
    SpecId,
    /// An operation of one iteration, in the order of the text.
    OpId,
    /// A label at one source location and loop iteration.
    LabelId,
    /// A phase at one source location and loop iteration.
    PhaseId,
    /// A loop iteration or a call, at one source location; 0 is the step itself.
    TurnId,
    /// A group of ranks; 0 is all of them.
    GroupId,
    /// A real stream of a schedule: a row of the timeline.
    LaneId,
    /// An event of a schedule.
    EventId,
}

/// Maximum number of ranks of a world that is checked: each may have a program of its own.
pub const MAX_RANKS: i64 = 16384;
