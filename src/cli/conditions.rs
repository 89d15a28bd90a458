//! Under which conditions iterations are measured: options of `exec` that stand over the settings.

use clap::{Args, ValueEnum};

use crate::config::{CacheSetting, DataSetting, GateSetting, Settings};
use crate::ops::init::Init;

#[derive(Clone, Copy, Debug, Args)]
pub struct ConditionArgs {
    /// Whether iterations are held until the host has issued them
    #[arg(long, value_name = "WHEN")]
    gate: Option<GateArg>,
    /// How iterations find the device's caches
    #[arg(long, value_name = "STATE")]
    cache: Option<CacheArg>,
    /// What floats hold at the beginning where the file says `random`
    #[arg(long, value_name = "WHAT")]
    data: Option<DataArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GateArg {
    /// Where they can be
    Auto,
    /// Never: their times contain the host's
    Off,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CacheArg {
    /// As the iteration before left them
    Hot,
    /// Emptied before each iteration, outside of its time
    Cold,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DataArg {
    /// Bell-shaped values, as the file says
    Normal,
    Zeros,
    Ones,
    /// 0, 1, 2, …
    Iota,
}

/// What holds, with the settings where the command line says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub gate: GateSetting,
    pub cache: CacheSetting,
    pub data: DataSetting,
}

impl ConditionArgs {
    pub fn over(self, settings: &Settings) -> Conditions {
        Conditions {
            gate: match self.gate {
                None => settings.gate,
                Some(GateArg::Auto) => GateSetting::Auto,
                Some(GateArg::Off) => GateSetting::Off,
            },
            cache: match self.cache {
                None => settings.cache,
                Some(CacheArg::Hot) => CacheSetting::Hot,
                Some(CacheArg::Cold) => CacheSetting::Cold,
            },
            data: match self.data {
                None => settings.data,
                Some(DataArg::Normal) => DataSetting::Normal,
                Some(DataArg::Zeros) => DataSetting::Zeros,
                Some(DataArg::Ones) => DataSetting::Ones,
                Some(DataArg::Iota) => DataSetting::Iota,
            },
        }
    }
}

impl Conditions {
    /// What takes the place of random values.
    pub fn contents(&self) -> Option<Init> {
        match self.data {
            DataSetting::Normal => None,
            DataSetting::Zeros => Some(Init::Zeros),
            DataSetting::Ones => Some(Init::Ones),
            DataSetting::Iota => Some(Init::Iota),
        }
    }
}
