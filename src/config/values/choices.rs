//! Settings whose value is one of a few words. Files, `--config` and the flags of the same name accept the same words;
//! in files, with or without quotes.

use clap::ValueEnum;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::base::named::named;

use super::field::optional;
use super::value::as_written;
use super::words;

/// Defines an enum whose values are words, with a help text for each, as a type of settings and of fields of scenarios.
macro_rules! choices {
    ($($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $help:literal])* $value:ident = $word:literal,)+ })+) => {$(
        named! {
            $(#[doc = $about])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
            pub enum $name {
                $($(#[doc = $help])* #[value(name = $word)] $value = $word,)+
            }
        }

        as_written!($name, &$name::NAMES, word => word.name().to_owned());
        optional!($name, "word");

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let word = words::one(deserializer)?;
                Self::from_name(&word).ok_or_else(|| D::Error::unknown_variant(&word, &Self::NAMES))
            }
        }
    )+};
}

choices! {
    /// How long a run measures.
    Effort {
        /// One iteration, no measurement
        Sanity = "sanity",
        /// 10 warm-up and 5 measured iterations
        Quick = "quick",
        /// 10 warm-up and 100 measured iterations
        Full = "full",
    }

    /// The backend of a run.
    BackendSetting {
        /// CUDA or HIP if its driver is installed, otherwise the simulator
        Auto = "auto",
        /// An NVIDIA GPU
        Cuda = "cuda",
        /// An AMD GPU
        Hip = "hip",
        /// The CPU: the reference result of every operation
        Host = "host",
        /// A simulated GPU
        Sim = "sim",
    }

    /// How operations are launched.
    LaunchSetting {
        /// Each operation by its own calls
        Stream = "stream",
        /// A whole iteration as one graph launch
        Graph = "graph",
        /// First as streams, then as a graph, side by side in the report
        Both = "both",
    }

    /// The order in which the cases of a sweep run.
    CaseOrder {
        /// A fixed shuffled order, so that a device that slows down causes no trend along an axis
        Shuffled = "shuffled",
        /// The order of the table
        Given = "given",
    }

    /// How iterations follow each other.
    SyncSetting {
        /// Each iteration starts after the previous one has completed
        Iteration = "iteration",
        /// Only streams and data order iterations
        End = "end",
    }

    /// Use of the gate, which holds each iteration until the host has issued it.
    GateSetting {
        /// Whenever possible
        Auto = "auto",
        /// Never: times include the host's
        Off = "off",
    }

    /// How single operations are timed in observed iterations.
    ObserveSetting {
        /// By the vendor's records where they are available, else by events
        Auto = "auto",
        /// By the vendor's records of kernels and copies; by events where there are none
        Vendor = "vendor",
        /// By an event before and after each operation
        Events = "events",
        /// Not at all
        Off = "off",
    }

    /// State of the device's caches at the start of an iteration.
    CacheSetting {
        /// As the iteration before left them
        Hot = "hot",
        /// Flushed before each iteration, outside of its time
        Cold = "cold",
    }

    /// Initial values of floats where a file says `random`.
    DataSetting {
        /// Normally distributed values, as the file says
        Normal = "normal",
        Zeros = "zeros",
        Ones = "ones",
        /// 0, 1, 2, …
        Iota = "iota",
    }
}
