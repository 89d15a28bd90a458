//! On a GPU: every operation, every shipped file and random programs compute what the CPU does, as streams and as a
//! graph. Where there is no GPU each test says so and skips.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use aorta::backend::cuda::{self, Cuda};
use aorta::backend::gpu::Gpu;
use aorta::backend::host::Host;
use aorta::base::DType;
use aorta::exec::{Backend, Control, LaunchMode};
use aorta::measure;
use aorta::model::Program;
use aorta::plan::Plan;
use common::{programs, shipped};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// The tests share a device, and a device cannot be waited for while another thread captures a graph on it.
static DEVICE: Mutex<()> = Mutex::new(());

/// The first GPU, for one test alone; nothing where there is none, said on the way.
fn gpu(kernels: &tempfile::TempDir) -> Option<(Gpu<Cuda>, MutexGuard<'static, ()>)> {
    let alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let paths = aorta::cli::library_paths();
    match cuda::find(&paths) {
        cuda::Found::Nothing(why) => {
            println!("skipped: {why}");
            None
        }
        cuda::Found::Broken(error) => panic!("the CUDA driver is there and does not work: {error}"),
        cuda::Found::Devices(_) => {
            let cuda = Cuda::open(paths, 0, None).unwrap_or_else(|error| panic!("{error}"));
            Some((Gpu::new(vec![cuda], Some(kernels.path().to_owned())), alone))
        }
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn verify(name: &str, (program, plan): &(Program, Plan), gpu: &dyn Backend) {
    let question = measure::Question {
        program,
        plan,
        backend: gpu,
        reference: &Host,
        streams: None,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        options: common::exec_options(),
        control: &Control::default(),
    };
    let verification = measure::verify(&question).unwrap_or_else(|error| panic!("{name}: {error}"));
    let verification = verification.expect("nobody stopped it");
    assert_eq!(verification.record.variants.len(), 2, "{name}: {:?}", verification.warnings);
    for variant in &verification.record.variants {
        for output in &variant.outputs {
            assert!(output.held, "{name}, {}: {} is off by {}", variant.launch, output.name, output.error);
        }
    }
}

#[test]
fn every_operation_agrees_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let text = include_str!("workloads/operations.aorta");
    for dtype in ["f64", "f32", "f16", "bf16"] {
        let analyzed = shipped::analyze("operations.aorta", text, None, &[("dtype", dtype)]);
        verify(dtype, &analyzed.unwrap_or_else(|errors| panic!("{errors}")), &gpu);
    }
}

#[test]
fn every_shipped_file_agrees_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    for file in shipped::all() {
        verify(&file.path, &file.small(&[]), &gpu);
    }
}

#[test]
fn random_programs_compute_the_same_however_they_run() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let mut runner = TestRunner::deterministic();
    for _ in 0..16 {
        let statements = programs::statements(6, 40).new_tree(&mut runner).expect("a program").current();
        for options in ["", "(sync: end, depth: 3)"] {
            let text = programs::text(&statements, 6, options);
            let (program, plan) = common::planned(&text);
            let run =
                |backend: &dyn Backend, streams, mode| common::results(&program, &plan, backend, streams, mode, 6);
            let serial = run(&gpu, Some(1), LaunchMode::Stream);
            assert_eq!(run(&gpu, None, LaunchMode::Stream), serial, "all streams\n{text}");
            assert_eq!(run(&gpu, Some(2), LaunchMode::Stream), serial, "two streams\n{text}");
            assert_eq!(run(&gpu, None, LaunchMode::Graph), serial, "as a graph\n{text}");
            for (actual, expected) in serial.iter().zip(&run(&Host, None, LaunchMode::Stream)) {
                let compared = measure::compare(DType::F32, 16, actual, expected, 1e-5);
                assert!(compared.error <= compared.bound, "off by {}\n{text}", compared.error);
            }
        }
    }
}
