//! `aorta devices`: lists the devices and libraries that a run can use.

use std::path::Path;

use clap::Args;
use miette::Diagnostic;

use crate::backend::cuda::{self, Cuda};
use crate::backend::gpu::{Api, Gpu, NoDriver};
use crate::backend::hip::hints::HintTopic;
use crate::backend::hip::{self, Hip};
use crate::backend::host::Host;
use crate::base::Bytes;
use crate::config::{Profile, Settings};
use crate::exec::{Backend, ExecError, QueueMapping, Timer};

use crate::cli::io::output;
use crate::cli::{CliResult, DONE, backends, environment};

#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Show everything known about each device and this machine
    #[arg(long)]
    long: bool,
    /// Find by experiment which of N streams share a hardware queue
    #[arg(long, value_name = "STREAMS", num_args = 0..=1, value_parser = clap::value_parser!(u32).range(1..=64))]
    queues: Option<Option<u32>>,
}

/// Facts shown in the first line of a device, if it has them.
const KIND: [&str; 3] = ["architecture", "compute_partition", "memory_partition"];

pub fn run(args: &DevicesArgs) -> CliResult {
    let mut text = String::from("CUDA devices (--backend cuda --device N)\n");
    cuda_devices(&mut text, args);
    text += "\nHIP devices (--backend hip --device N)\n";
    hip_devices(&mut text, args);
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

/// Lists what a record contains about the machine.
fn machine(text: &mut String) {
    let environment = environment::describe(&[], &[]);
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

/// Measures the overhead of timing on a device.
fn timer<A: Api>(text: &mut String, gpu: &Gpu<A>) {
    match gpu.timer(Settings::default().timeout) {
        Ok(timer) => {
            for (name, value) in timer.iter().flat_map(Timer::facts) {
                *text += &format!("     {name:26}  {value}\n");
            }
        }
        Err(error) => *text += &format!("     its timer could not be measured: {error}\n"),
    }
}

/// Lists which streams share a hardware queue: by the vendor's rule and by experiment.
fn queues<A: Api>(text: &mut String, gpu: &Gpu<A>, streams: Option<u32>) {
    match gpu.queues(streams) {
        Ok(queues) => {
            let streams: usize = queues.predicted.iter().map(Vec::len).sum();
            *text += &format!("     queues of {streams} streams of normal priority, counted from 0\n");
            *text += &format!("       predicted  {}\n", QueueMapping::text(&queues.predicted));
            *text += &format!("       probed     {}: {}\n", QueueMapping::text(&queues.probed), queues.verdict());
            *text += &format!("       at once    {}\n", queues.at_once());
        }
        Err(error) => *text += &format!("     its queues could not be probed: {error}\n"),
    }
}

fn cuda_devices(text: &mut String, args: &DevicesArgs) {
    let paths = environment::library_paths();
    let count = match cuda::find(&paths) {
        Ok(count) => count,
        Err(why) => return none(text, &why),
    };
    let queues = environment::queues("nvidia").map(|(_, count)| count);
    let open = |index| Cuda::open(paths.clone(), index, queues);
    list(text, args, count, "multiprocessors", open, Cuda::libraries);
}

fn hip_devices(text: &mut String, args: &DevicesArgs) {
    let paths = environment::rocm_paths();
    let count = match hip::find(&paths) {
        Ok(count) => count,
        Err(why) => {
            none(text, &why);
            let advised = match why {
                // Without AMD's kernel driver, advice about HIP would be noise.
                NoDriver::Absent(_) => hip::hints::has_driver(Path::new("/")),
                NoDriver::NoDevice(_) => true,
                NoDriver::Fails(_) => false,
            };
            if advised {
                hints(text, HintTopic::NoDevice);
            }
            return;
        }
    };
    hints(text, HintTopic::Devices);
    let queues = environment::queues("amd").map(|(_, count)| count);
    let open = |index| Hip::open(paths.clone(), index, queues);
    list(text, args, count, "compute units", open, Hip::libraries);
}

/// Lists hints about hidden devices, or devices treated as another architecture.
fn hints(text: &mut String, search: HintTopic) {
    for hint in hip::hints::hints(Path::new("/"), search, environment::variable) {
        *text += &format!("  {hint}\n");
    }
}

fn none(text: &mut String, why: &NoDriver) {
    *text += &format!("  none: {why}\n");
}

/// Lists each device, then the libraries that a run may need.
fn list<A: Api>(
    text: &mut String,
    args: &DevicesArgs,
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
                let kind: String = KIND
                    .iter()
                    .flat_map(|name| info.facts.iter().find(|(known, _)| known == name))
                    .map(|(_, value)| format!(", {value}"))
                    .collect();
                *text += &format!("  {index}  {}, {many} {units}, {memory}{kind}\n", info.name);
                if args.long {
                    for (name, value) in &info.facts {
                        *text += &format!("     {name:26}  {value}\n");
                    }
                }
                found = libraries(&api);
                let gpu = Gpu::new(vec![api], backends::kernel_cache());
                if args.long {
                    timer(text, &gpu);
                }
                if let Some(streams) = args.queues {
                    queues(text, &gpu, streams);
                }
            }
        }
    }
    for (name, library) in found {
        match library {
            Ok(version) => *text += &format!("  {name}: {version}\n"),
            Err(error) => {
                *text += &format!("  {name}: {error}\n");
                *text += &error.help().map(|help| format!("    {help}\n")).unwrap_or_default();
            }
        }
    }
}
