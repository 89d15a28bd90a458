//! On a GPU: every operation, every shipped file and random programs give the CPU's results, as streams and as a graph, and
//! faults are reported.
//! Without a GPU, each test prints that it skips.

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod device;
mod faults;
mod ranks;
mod results;

use std::sync::{Mutex, MutexGuard, PoisonError};

use aorta::backend::cuda::{self, Cuda};
use aorta::backend::gpu::{Gpu, NoDriver};
use aorta::exec::{Backend, Control, LaunchMode};
use aorta::measure;
use aorta::model::Program;
use aorta::plan::Plan;

/// The tests share a device, and a device cannot be synchronized while another thread captures a graph on it.
static DEVICE: Mutex<()> = Mutex::new(());

/// Waits until no other test uses a device.
fn alone() -> MutexGuard<'static, ()> {
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first GPU, for one test at a time; `None` with a message if there is none.
fn gpu(kernels: &tempfile::TempDir) -> Option<(Gpu<Cuda>, MutexGuard<'static, ()>)> {
    let alone = alone();
    let paths = aorta::cli::library_paths();
    match cuda::find(&paths) {
        Err(why @ (NoDriver::Absent(_) | NoDriver::NoDevice(_))) => {
            println!("skipped: {why}");
            None
        }
        Err(NoDriver::Fails(error)) => panic!("the CUDA driver is there and does not work: {error}"),
        Ok(_) => {
            let cuda = Cuda::open(paths, 0, None).unwrap_or_else(|error| panic!("{error}"));
            Some((Gpu::new(vec![cuda], Some(kernels.path().to_owned())), alone))
        }
    }
}

/// The GPUs with these numbers, one for each rank, like [`gpu`]; a GPU may serve several ranks.
fn gpus(kernels: &tempfile::TempDir, devices: &[u32]) -> Option<(Gpu<Cuda>, MutexGuard<'static, ()>)> {
    let (one, alone) = gpu(kernels)?;
    drop(one);
    let paths = aorta::cli::library_paths();
    let most = devices.iter().max().copied().unwrap_or(0);
    if !matches!(cuda::find(&paths), Ok(found) if found > most) {
        println!("skipped: there are no {} GPUs", most + 1);
        return None;
    }
    let open = |&index: &u32| Cuda::open(paths.clone(), index, None).unwrap_or_else(|error| panic!("{error}"));
    Some((Gpu::new(devices.iter().map(open).collect(), Some(kernels.path().to_owned())), alone))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn verify(name: &str, (program, plan): &(Program, Plan), gpu: &dyn Backend) {
    verify_ranks(name, &[(program.rank, program, plan)], gpu);
}

fn verify_ranks(name: &str, ranks: &[(u32, &Program, &Plan)], gpu: &dyn Backend) {
    let question = measure::VerifyRequest {
        ranks,
        backend: gpu,
        streams: None,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        options: common::exec_options(),
        control: &Control::default(),
    };
    let verification = measure::verify(&question).unwrap_or_else(|error| panic!("{name}: {error}"));
    let verification = verification.expect("nobody stopped it");
    assert_eq!(verification.record.variants.len(), 2, "{name}: {:?}", verification.warnings);
    for variant in &verification.record.variants {
        assert!(variant.witnessed.is_some(), "{name}, {}: no witness", variant.launch);
        assert!(variant.missed.is_empty(), "{name}, {}: {:?}", variant.launch, variant.missed);
        for output in &variant.outputs {
            assert!(output.held, "{name}, {}: {} is off by {}", variant.launch, output.name, output.error);
        }
    }
}
