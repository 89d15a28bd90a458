//! `--emulate N`: runs one rank of N on one device, with kernels in place of collectives.

use crate::backend::emulate::Emulated;
use crate::config::Settings;
use crate::measure::record::RankWork;

use crate::cli::backends::{self, OpenedBackend};
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::load::Loaded;

/// Reduces a program loaded for a world to one rank.
pub fn only(mut loaded: Loaded, rank: u32, world: u32) -> Result<Loaded, CliError> {
    if rank >= world {
        let (why, help) = (format!("ranks go from 0 to {}", world - 1), "write `--rank 0`, or a larger `--emulate`");
        return Err(InputError::bad_value("`--rank`", &rank.to_string(), &why, help).into());
    }
    loaded.world = RankWork::of_world(&loaded.compiled.ranks);
    loaded.compiled.keep_rank(rank as usize);
    Ok(loaded)
}

/// The error if a launcher has started several processes, since emulation needs only one.
pub fn launched(world: u32) -> InputError {
    let help = "start `aorta exec` by itself for `--emulate`, or leave it out here";
    let why = "a launcher has started a process for each rank";
    InputError::bad_value("`--emulate`", &world.to_string(), why, help)
}

/// Wraps the backend so that kernels replace operations between ranks.
pub fn with(chosen: OpenedBackend, settings: &Settings) -> Result<OpenedBackend, CliError> {
    if chosen.backend.name() == "host" {
        let why = "`--emulate` occupies compute units, and the CPU has none";
        let help = "use `--backend cuda` or `sim`; on the CPU, `--ranks N` runs all ranks";
        return Err(InputError::bad_value("`--backend`", "host", why, help).into());
    }
    let device = chosen.backend.device();
    let profile = match backends::known(&device, settings)? {
        Some(profile) => profile,
        None => backends::profile(settings)?,
    };
    Ok(OpenedBackend { backend: Box::new(Emulated::new(chosen.backend, profile)), why: chosen.why })
}
