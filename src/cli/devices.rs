//! `aorta devices`.

use clap::Args;

use crate::backend::cuda::{self, Cuda};
use crate::backend::gpu::{Api, Gpu};
use crate::backend::hip::{self, Hip};
use crate::backend::host::Host;
use crate::base::Bytes;
use crate::config::Profile;
use crate::exec::{Backend, ExecError, Timer};

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
    text += "\nHIP devices (--backend hip --device N)\n";
    hip_devices(&mut text, args.long);
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
fn timer<A: Api>(text: &mut String, gpu: &Gpu<A>) {
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
        cuda::Found::Devices(count) => count,
        cuda::Found::Nothing(why) => return none(text, &why),
        cuda::Found::Broken(error) => return none(text, &error),
    };
    let queues = environment::queues("nvidia").map(|(_, count)| count);
    let open = |index| Cuda::open(paths.clone(), index, queues);
    list(text, long, count, "multiprocessors", open, Cuda::libraries);
}

fn hip_devices(text: &mut String, long: bool) {
    let paths = environment::rocm_paths();
    let count = match hip::find(&paths) {
        hip::Found::Devices(count) => count,
        hip::Found::Absent(why) => return none(text, &why),
        hip::Found::Nothing(why) => return none(text, &why),
        hip::Found::Broken(error) => return none(text, &error),
    };
    let queues = environment::queues("amd").map(|(_, count)| count);
    let open = |index| Hip::open(paths.clone(), index, queues);
    list(text, long, count, "compute units", open, Hip::libraries);
}

fn none(text: &mut String, why: &dyn std::fmt::Display) {
    *text += &format!("  none: {why}\n");
}

/// Each device, then the libraries that a run may need.
fn list<A: Api>(
    text: &mut String,
    long: bool,
    count: u32,
    units: &str,
    open: impl Fn(u32) -> Result<A, ExecError>,
    libraries: impl Fn(&A) -> Vec<(&'static str, Result<String, ExecError>)>,
) {
    let mut found = Vec::new();
    for index in 0..count {
        match open(index) {
            Err(error) => *text += &format!("  {index}  {error}\n"),
            Ok(api) => {
                let info = api.device();
                let memory = info.memory_bytes.map(|bytes| Bytes(bytes).to_string()).unwrap_or_default();
                let many = info.units.unwrap_or(0);
                *text += &format!("  {index}  {}, {many} {units}, {memory}\n", info.name);
                if long {
                    for (name, value) in &info.facts {
                        *text += &format!("     {name:26}  {value}\n");
                    }
                }
                found = libraries(&api);
                if long {
                    timer(text, &Gpu::new(vec![api], environment::cache_folder()));
                }
            }
        }
    }
    for (name, library) in found {
        match library {
            Ok(version) => *text += &format!("  {name}: {version}\n"),
            Err(error) => *text += &format!("  {name}: {error}\n"),
        }
    }
}
