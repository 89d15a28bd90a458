//! Numbers that stand for things: after `model`, nothing is looked up by name.

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
    /// A stream as the program declares it (a member of a family is one).
    StreamId,
    /// A stretch of memory that the program names or implies: a buffer with all its family, a bare input, a scratch.
    MemoryId,
    /// A slice of a memory; equal slices have equal ids.
    ViewId,
    /// An operation with its options and the shapes of its operands; equal ones have equal ids.
    SpecId,
    /// An operation of one iteration, in the order of the text.
    OpId,
    /// A label at one place and loop turn.
    LabelId,
    /// A phase at one place and loop turn.
    PhaseId,
    /// A turn of a loop, or a call, at one place; 0 is the step itself.
    TurnId,
    /// A group of ranks; 0 is all of them.
    GroupId,
    /// A real stream of a schedule: a row of the timeline.
    LaneId,
    /// An event of a schedule.
    EventId,
}
