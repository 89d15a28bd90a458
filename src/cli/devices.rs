//! `aorta devices`.

use clap::Args;

use crate::backend::cuda::{self, Cuda};
use crate::backend::gpu::{Api, Gpu};
use crate::backend::host::Host;
use crate::base::Bytes;
use crate::config::Profile;
use crate::exec::{Backend, Timer};

use super::{CliResult, DONE, environment, output};

#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Everything that is known of each device, and of this machine
    #[arg(long)]
    long: bool,
}

pub fn run(args: &DevicesArgs) -> CliResult {
    let mut text = String::from("CUDA devices (--backend cuda --device N)\n");
    cuda_devices(&mut text, args.long);
    text += "\nHIP devices\n  none: this version runs on CUDA only\n";
    let host = Host.device();
    let cores = host.units.map(|units| format!(", {units} cores")).unwrap_or_default();
    text += &format!("\nCPU (--backend host)\n  the reference result of every operation{cores}\n");
    text += "\nSimulated devices (--backend sim --config profile=NAME)\n";
    for name in Profile::names() {
        let profile = Profile::named(name)?;
        text += &format!("  {name:8}  {}\n", profile.name);
    }
    if args.long {
        machine(&mut text);
    }
    output::print(&text);
    Ok(DONE)
}

/// What a record says of the machine.
fn machine(text: &mut String) {
    let environment = environment::describe(&[]);
    *text += "\nThis machine\n";
    let mut line = |name: &str, value: &str| *text += &format!("  {name:14}  {value}\n");
    line("system", &environment.os);
    line("cpu", &environment.cpu);
    line("cpus", &environment.cpus.to_string());
    if let Some(bytes) = environment.memory_bytes {
        line("memory", &Bytes(bytes).to_string());
    }
    for (name, value) in environment.facts.iter().chain(&environment.variables) {
        line(name, value);
    }
}

/// What timing costs on a device.
fn timer(text: &mut String, gpu: &Gpu<Cuda>) {
    match gpu.timer() {
        Ok(timer) => {
            for (name, value) in timer.iter().flat_map(Timer::facts) {
                *text += &format!("     {name:26}  {value}\n");
            }
        }
        Err(error) => *text += &format!("     its timer could not be measured: {error}\n"),
    }
}

fn cuda_devices(text: &mut String, long: bool) {
    let paths = environment::library_paths();
    let count = match cuda::find(&paths) {
        cuda::Found::Nothing(why) => {
            *text += &format!("  none: {why}\n");
            return;
        }
        cuda::Found::Broken(error) => {
            *text += &format!("  none: {error}\n");
            return;
        }
        cuda::Found::Devices(count) => count,
    };
    let mut libraries = Vec::new();
    let connections = environment::queues("nvidia").map(|(_, count)| count);
    for index in 0..count {
        match Cuda::open(paths.clone(), index, connections) {
            Err(error) => *text += &format!("  {index}  {error}\n"),
            Ok(cuda) => {
                let info = cuda.device();
                let memory = info.memory_bytes.map(|bytes| Bytes(bytes).to_string()).unwrap_or_default();
                let units = info.units.unwrap_or(0);
                *text += &format!("  {index}  {}, {units} multiprocessors, {memory}\n", info.name);
                if long {
                    for (name, value) in &info.facts {
                        *text += &format!("     {name:26}  {value}\n");
                    }
                }
                libraries = cuda.libraries();
                if long {
                    timer(text, &Gpu::new(vec![cuda], environment::cache_folder()));
                }
            }
        }
    }
    for (name, found) in libraries {
        match found {
            Ok(version) => *text += &format!("  {name}: {version}\n"),
            Err(error) => *text += &format!("  {name}: {error}\n"),
        }
    }
}
