//! Settings that are one of a few words. Files, `--config` and the flags of the same name take the same words.

use clap::ValueEnum;
use serde::Deserialize;

/// Defines an enum whose values are words, with the help of each.
macro_rules! choices {
    ($($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $help:literal])* $value:ident = $word:literal,)+ })+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
        pub enum $name {
            $($(#[doc = $help])* #[serde(rename = $word)] #[value(name = $word)] $value,)+
        }

        impl $name {
            /// Every word, in the order of the values.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word, as files and options write it.
            pub fn name(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }
    )+};
}

choices! {
    /// How long a run measures.
    Effort {
        /// One iteration, no measurement
        Sanity = "sanity",
        /// 10 iterations to warm up and 5 measured
        Quick = "quick",
        /// As many and 100
        Full = "full",
    }

    /// How operations reach the device.
    LaunchSetting {
        /// Each by a call of its own
        Stream = "stream",
        /// All of an iteration by one call
        Graph = "graph",
        /// One after the other, side by side in the report
        Both = "both",
    }

    /// Whether iterations are held until the host has issued them.
    GateSetting {
        /// Where they can be
        Auto = "auto",
        /// Never: their times contain the host's
        Off = "off",
    }

    /// How iterations find the device's caches.
    CacheSetting {
        /// As the iteration before left them
        Hot = "hot",
        /// Emptied before each iteration, outside of its time
        Cold = "cold",
    }

    /// What floats hold at the beginning where a file says `random`.
    DataSetting {
        /// Bell-shaped values, as the file says
        Normal = "normal",
        Zeros = "zeros",
        Ones = "ones",
        /// 0, 1, 2, …
        Iota = "iota",
    }
}
