//! On a GPU: every operation, every shipped file and random programs give the CPU's results, as streams and as a graph.
//! Without a GPU, each test prints that it skips.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use aorta::backend::cuda::{self, Cuda};
use aorta::backend::gpu::Gpu;
use aorta::backend::host::Host;
use aorta::base::{DType, Nanos, SourceMap};
use aorta::exec::{self, Backend, Control, LaunchMode, Observation, Session};
use aorta::measure;
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::schedule;
use common::{programs, shipped};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// The tests share a device, and a device cannot be synchronized while another thread captures a graph on it.
static DEVICE: Mutex<()> = Mutex::new(());

/// The first GPU, for one test at a time; `None` with a message if there is none.
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

/// The GPUs with these numbers, one for each rank, like [`gpu`]; a GPU may serve several ranks.
fn gpus(kernels: &tempfile::TempDir, devices: &[u32]) -> Option<(Gpu<Cuda>, MutexGuard<'static, ()>)> {
    let (one, alone) = gpu(kernels)?;
    drop(one);
    let paths = aorta::cli::library_paths();
    let most = devices.iter().max().copied().unwrap_or(0);
    if !matches!(cuda::find(&paths), cuda::Found::Devices(found) if found > most) {
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

#[test]
fn every_operation_agrees_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let files = [
        ("operations.aorta", include_str!("workloads/operations.aorta")),
        ("scatter.aorta", include_str!("workloads/scatter.aorta")),
        ("rows.aorta", include_str!("workloads/rows.aorta")),
        ("gradients.aorta", include_str!("workloads/gradients.aorta")),
    ];
    for (file, text) in files {
        for dtype in ["f64", "f32", "f16", "bf16"] {
            let analyzed = shipped::analyze(file, text, None, &[("dtype", dtype)]);
            verify(&format!("{file} in {dtype}"), &analyzed.unwrap_or_else(|errors| panic!("{errors}")), &gpu);
        }
    }
}

/// Operations on tensors large enough for vectorized access, of random sizes, with broadcasts and gaps: declarations
/// and calls, with `#` for the number of each.
fn large() -> impl Strategy<Value = (String, String)> {
    let dtype = prop::sample::select(vec!["f64", "f32", "f16", "bf16", "i32", "u8", "i8"]);
    let dims = prop::collection::vec(prop_oneof![1..20u64, 1..700u64, Just(8u64), Just(64)], 1..5);
    // The last dimension is as long as needed for some hundred thousand elements.
    let dims = (dims, 1..4_000_000u64).prop_map(|(mut dims, elements): (Vec<u64>, u64)| {
        let place = dims.len() / 2;
        dims[place] = 1;
        let others: u64 = dims.iter().product::<u64>();
        dims[place] = (elements / others).max(1);
        dims
    });
    let more = (0..4usize, any::<prop::sample::Index>(), 0..9u64, any::<u64>());
    (dtype, prop::sample::select(vec!["f32", "f64", "u8", "bf16"]), dims.clone(), more).prop_map(
        |(dtype, other, dims, (kind, axis, extra, order))| {
            let axis = axis.index(dims.len());
            let put = |index: usize, size: u64| {
                let mut dims = dims.clone();
                dims[index] = size;
                dims
            };
            match kind {
                0 => {
                    let mut axes: Vec<usize> = (0..dims.len()).collect();
                    axes.rotate_left(axis);
                    let last = axes.len() - 1;
                    axes.swap(order as usize % (last + 1), last);
                    let turned: Vec<u64> = axes.iter().map(|&axis| dims[axis]).collect();
                    let call = match dims.len() {
                        1 => "copy(x# -> y#, via: kernel)".to_owned(),
                        _ => format!("transpose(x# -> y#, dims: {axes:?})"),
                    };
                    (format!("buffer x#: {dtype}{dims:?}\nbuffer y#: {dtype}{turned:?}\n"), call)
                }
                1 => {
                    let one = put(axis, 1);
                    let call = "map(x# + b# * 2 -> y#)".to_owned();
                    (format!("buffer x#: {dtype}{dims:?}\nbuffer b#: {other}{one:?}\nbuffer y#: f32{dims:?}\n"), call)
                }
                2 => {
                    let wide = put(axis, dims[axis] + extra);
                    let slice = |index: usize| match index == axis {
                        true => format!("{extra}..{}", dims[axis] + extra),
                        false => "..".to_owned(),
                    };
                    let slices: Vec<String> = (0..dims.len()).map(slice).collect();
                    let call = format!("copy(x#[{}] -> y#, via: kernel)", slices.join(", "));
                    (format!("buffer x#: {dtype}{wide:?}\nbuffer y#: {dtype}{dims:?}\n"), call)
                }
                _ => (format!("buffer x#: {dtype}{dims:?}\nbuffer y#: {other}{dims:?}\n"), "cast(x# -> y#)".to_owned()),
            }
        },
    )
}

#[test]
fn walks_over_large_tensors_agree_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let operations = prop::collection::vec(large(), 20).new_tree(&mut runner).expect("operations").current();
        let of = |part: fn(&(String, String)) -> &String| {
            let numbered = |(number, one)| part(one).replace('#', &format!("{number}"));
            operations.iter().enumerate().map(numbered).collect::<Vec<_>>()
        };
        let text = format!("{}step {{ {} }}\n", of(|(declared, _)| declared).concat(), of(|(_, call)| call).join("\n"));
        let analyzed = shipped::analyze("large.aorta", &text, None, &[]);
        verify(&text, &analyzed.unwrap_or_else(|errors| panic!("{errors}\n{text}")), &gpu);
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

/// Sixteen streams of tiny kernels: the host is slower than the device.
const TINY: &str = "\
stream s[16]
step { for i in 0..64 { on s[i % 16] { nop() } } }
";

#[test]
fn a_gate_makes_the_time_the_device_s() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let (program, plan) = common::planned(TINY);
    let schedule = common::placed(&program, &plan, &gpu, &schedule::Options::default());
    let mut session = common::session(&program, &schedule, &gpu);
    assert_eq!(session.gate_refused(), None);
    let run = |session: &mut Session| {
        let samples = session.iterate(LaunchMode::Stream, 10, 50, &Control::default());
        samples.unwrap_or_else(|error| panic!("{error}"))
    };
    let held = run(&mut session);
    assert_eq!((held.gated, held.ungated, held.time.len()), (true, 0, 50), "no gate opened by itself");
    session.set_gate(false);
    let issued = run(&mut session);
    assert!(!issued.gated);
    let median = |times: &[Nanos]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times[times.len() / 2]
    };
    println!("held {}, as issued {}", median(&held.time), median(&issued.time));
    // Times are printed for the reader; tests do not check them.
    assert!(held.time.iter().chain(&issued.time).all(|time| time.0 > 0));
}

#[test]
fn iterations_that_do_not_fit_run_ungated() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let (program, plan) = common::planned("stream a\nstep { on a { for i in 0..3000 { nop() } } }\n");
    let schedule = common::placed(&program, &plan, &gpu, &schedule::Options::default());
    let mut session = common::session(&program, &schedule, &gpu);
    assert!(session.gate_refused().is_some_and(|why| why.contains("3")), "{:?}", session.gate_refused());
    let samples = session.iterate(LaunchMode::Stream, 1, 3, &Control::default());
    let samples = samples.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((samples.gated, samples.time.len()), (false, 3));
}

#[test]
fn a_gate_that_nobody_opens_opens_by_itself() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    // More than fits into any queue: the host waits for the device, which waits for the gate.
    let (program, plan) = common::planned("stream a\nstep { on a { for i in 0..20000 { nop() } } }\n");
    let schedule = common::placed(&program, &plan, &gpu, &schedule::Options::default());
    let options = exec::Options { gate_depth: 1 << 20, ..common::exec_options() };
    let mut session = exec::prepare(&program, &schedule, &gpu, &options).unwrap_or_else(|error| panic!("{error}"));
    let samples = session.iterate(LaunchMode::Stream, 1, 6, &Control::default());
    let samples = samples.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((samples.gated, samples.ungated), (true, 6), "three by themselves, and no more are held");
}

#[test]
fn device_health_is_recorded() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let facts = gpu.device().facts;
    println!("{facts:#?}");
    let fact = |name: &str| facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert!(fact("uuid").is_some_and(|uuid| uuid.starts_with("GPU-") && uuid.len() == 40), "{:?}", fact("uuid"));
    if fact("driver").is_none() {
        println!("skipped: no libnvidia-ml.so.1");
        return;
    }
    for name in ["clock_mhz", "max_clock_mhz", "power_watts", "power_limit_watts", "celsius", "max_pcie_width"] {
        let value = fact(name).and_then(|value| value.parse::<u32>().ok());
        assert!(value.is_some_and(|value| value > 0), "{name}: {:?}", fact(name));
    }
}

#[test]
fn the_timer_s_cost_is_known() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let timer = gpu.timer().unwrap_or_else(|error| panic!("{error}")).expect("a GPU has one");
    println!("{timer:?}");
    assert!(timer.resolution.0 > 0 && timer.resolution <= timer.null_kernel, "{timer:?}");
    assert!(timer.empty <= timer.null_kernel, "a kernel takes longer than none: {timer:?}");
}

/// Streams that share a hardware queue are found by experiment: each stream is in one queue.
#[test]
fn streams_of_a_queue_are_found() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    for streams in [1, 6, 17] {
        let queues = gpu.queues(Some(streams)).unwrap_or_else(|error| panic!("{error}"));
        println!("{streams} streams: {:?}, {}; at once: {}", queues.probed, queues.verdict(), queues.at_once());
        let mut all = queues.probed.concat();
        all.sort_unstable();
        assert_eq!(all, (0..streams).collect::<Vec<u32>>());
        assert_eq!(queues.predicted.len(), streams.min(8) as usize, "8 connections");
        assert!((1..=streams).contains(&queues.at_once), "{queues:?}");
    }
}

/// A stream restricted to a part of the device gives the same results, and a note says whether the restriction has an
/// effect.
#[test]
fn streams_with_units_agree_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let text = "stream a(units: 25%)\nstream b(units: 16, priority: high)\nbuffer x: f32[4096]\nstep {\n  on a { p: map(x + 1) \
                }\n  on b { q: map(x + 2) }\n  on a { map(p + q) }\n}\n";
    let planned = common::planned(text);
    verify("units", &planned, &gpu);
    let schedule = common::placed(&planned.0, &planned.1, &gpu, &schedule::Options::default());
    let session = common::session(&planned.0, &schedule, &gpu);
    let notes = session.notes();
    assert!(notes.iter().any(|note| note.contains("stream a") && note.contains("25 % of the units")), "{notes:?}");
}

#[test]
fn caches_can_be_emptied() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let text = "stream a\nbuffer x, y: f32[1048576]\nstep { on a { map(x + 1 -> y) } }\n";
    let (program, plan) = common::planned(text);
    let schedule = common::placed(&program, &plan, &gpu, &schedule::Options::default());
    for cold in [false, true] {
        let options = exec::Options { cold, ..common::exec_options() };
        let mut session = exec::prepare(&program, &schedule, &gpu, &options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(session.is_cold(), cold);
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            session.capture().unwrap_or_else(|error| panic!("{error}"));
            let samples = session.iterate(mode, 5, 21, &Control::default());
            let mut times = samples.unwrap_or_else(|error| panic!("{error}")).time;
            times.sort_unstable();
            println!("{} cold {cold}: {}", mode.name(), times[times.len() / 2]);
        }
    }
}

#[test]
fn a_wait_that_is_not_there_is_missed() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let text = "\
stream a
stream b
buffer x, y: f32[4]
step {
  on a { spin(20ms) }
  on a { fill(1 -> x) }
  on b { map(x + 1 -> y) }
}
";
    let (program, plan) = common::planned(text);
    let whole = common::placed(&program, &plan, &gpu, &schedule::Options::default());
    let mut broken = common::placed(&program, &plan, &gpu, &schedule::Options::default());
    for step in &mut broken.period {
        step.commands.retain(|command| !matches!(command, schedule::Command::Wait { .. }));
    }
    for (schedule, held) in [(whole, true), (broken, false)] {
        let witness = exec::witness(
            &[exec::Rank { number: 0, program: &program, schedule: &schedule }],
            &[&plan],
            &gpu,
            &common::exec_options(),
        );
        let mut witness = witness.unwrap_or_else(|error| panic!("{error}"));
        witness.ranks.capture(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            witness.ranks.reset(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
            let samples = witness.ranks.iterate(mode, 0, 3, &Control::default());
            samples.unwrap_or_else(|error| panic!("{error}"));
            let missed = witness.missed(0).unwrap_or_else(|error| panic!("{error}")).expect("a GPU has memory");
            assert_eq!(missed.is_empty(), held, "{}: {missed:?}", mode.name());
        }
    }
}

/// Rank 1 has more work before the collective.
const LATE: &str = "\
stream work
stream comm
buffer x: f32[262144]
step {
  on work {
    if rank == 1 { extra: spin(300us) }
    square: map(x * 0.5 -> x)
  }
  on comm { sum: all_reduce(x -> x) }
}
";

/// Two ranks without collectives can share a device, so one GPU is sufficient.
#[test]
fn a_device_s_clock_is_found_on_the_host_s() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpus(&kernels, &[0, 0]) else { return };
    let programs = common::planned_ranks("stream a\nstep { on a { for i in 0..16 { nop() } } }\n", 2);
    let place = |(program, plan): &(Program, Plan)| common::placed(program, plan, &gpu, &schedule::Options::default());
    let schedules: Vec<_> = programs.iter().map(place).collect();
    let ranks = programs.iter().zip(&schedules);
    let ranks: Vec<exec::Rank> =
        ranks.map(|((program, _), schedule)| exec::Rank { number: program.rank, program, schedule }).collect();
    let options = exec::Options { gate_depth: 512, ..common::exec_options() };
    let mut ranks = exec::prepare_ranks(&ranks, &gpu, &options).unwrap_or_else(|error| panic!("{error}"));
    // Only as streams: one rank cannot capture while another synchronizes the shared device.
    let traces = ranks
        .observe(LaunchMode::Stream, Observation { times: 5, ..Observation::once(1) }, &Control::default())
        .unwrap_or_else(|error| panic!("{error}"));
    for (rank, traces) in traces.iter().enumerate() {
        let origins: Option<Vec<exec::Moment>> = traces.iter().map(|trace| trace.origin).collect();
        let origins = origins.expect("no look contradicts another");
        println!("rank {rank}: {origins:?}");
        // An iteration begins after the end of the one before.
        for (pair, trace) in origins.windows(2).zip(traces) {
            let (end, error) = (pair[0].at + trace.time, pair[0].error + pair[1].error);
            assert!(pair[1].at + error >= end, "{pair:?} and {}", trace.time);
        }
    }
}

#[test]
fn the_rank_that_others_wait_for_is_named() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpus(&kernels, &[0, 1]) else { return };
    for text in [LATE.to_owned(), LATE.replace("rank == 1", "rank > 1")] {
        let programs = common::planned_ranks(&text, 2);
        let place =
            |(program, plan): &(Program, Plan)| common::placed(program, plan, &gpu, &schedule::Options::default());
        let schedules: Vec<_> = programs.iter().map(place).collect();
        let ranks = programs.iter().zip(&schedules).map(|((program, plan), schedule)| measure::RankRequest {
            number: program.rank,
            program,
            plan,
            schedule,
        });
        let ranks: Vec<measure::RankRequest> = ranks.collect();
        let measured = measure::measure(&measure::Request {
            ranks: &ranks,
            backend: &gpu,
            modes: &[LaunchMode::Stream, LaunchMode::Graph],
            effort: aorta::config::EffortPlan { warmup: 10, iterations: 100 },
            observed_iterations: 20,
            exec: exec::Options { gate_depth: 512, ..common::exec_options() },
            control: &Control::default(),
            profile: None,
            sources: &SourceMap::new(),
            keep: &|_| {},
        });
        let measured = measured.unwrap_or_else(|error| panic!("{error}"));
        for variant in &measured.variants {
            let skew = variant.skew.as_ref().expect("the ranks meet");
            println!("{}: {skew:#?}\n{:#?}", variant.launch, variant.blocks);
            // With equal ranks, chance or the machine may delay one, so this is only printed.
            if text == LATE {
                assert_eq!(skew.straggler, Some(1), "{}: {skew:?}", variant.launch);
            }
        }
    }
}

/// Whether an engine or a kernel makes a copy is inferred before a run. NVIDIA's GPUs copy large pinned memory by
/// engines. Copies by our own kernels are not listed.
#[test]
fn the_maker_of_a_copy_is_inferred() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let text = "\
stream s
buffer x, y: u8[67108864]
buffer h, g: u8[67108864] in pinned
step {
  on s {
    copy(h -> x)
    copy(x -> g, via: dma)
    copy(h[0..4096] -> y[0..4096])
    copy(x -> y)
    copy(x -> y, via: kernel)
  }
}
";
    let (program, plan) = common::planned(text);
    let schedule = common::placed(&program, &plan, &gpu, &schedule::Options::default());
    let notes = common::session(&program, &schedule, &gpu).notes();
    let told: Vec<&String> = notes.iter().filter(|note| note.contains("inferred from")).collect();
    println!("{told:#?}");
    let line = |way: &str| told.iter().find(|note| note.contains(way)).unwrap_or_else(|| panic!("{way}: {notes:?}"));
    assert!(line("copies to the device:").contains("an engine (4 KiB to 64 MiB)"));
    assert!(line("copies to the host, `via: dma`:").contains("an engine (64 MiB)"));
    assert_eq!(line("copies within the device:").matches("64 MiB").count(), 1);
    assert_eq!(told.len(), 3);
}

/// NCCL connects ranks at its first collective. With graphs only, that is inside a capture. Connections persist within
/// a process, so each run has its own.
#[test]
fn ranks_connect_inside_of_a_capture() {
    let kernels = folder();
    let Some((_, _alone)) = gpus(&kernels, &[0, 1]) else { return };
    for file in ["all_reduce", "all_to_all"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_aorta"))
            .args(["exec", file, "--preset", "tiny", "--backend", "cuda", "--ranks", "2", "--launch", "graph"])
            .output()
            .expect("the binary starts");
        let told = [output.stdout, output.stderr].map(|told| String::from_utf8_lossy(&told).into_owned()).concat();
        assert!(output.status.success() && !told.contains("no graph could be made"), "{file}: {told}");
    }
}

/// Runs a text on two ranks: verified, then with many iterations under way, where a flag raised too early or too late
/// causes a hang. Returns the notes.
fn two_ranks(text: &str, gpu: &dyn Backend) -> Vec<String> {
    let ranks = common::planned_ranks(text, 2);
    let ranks: Vec<(u32, &Program, &Plan)> =
        (0..).zip(&ranks).map(|(rank, (program, plan))| (rank, program, plan)).collect();
    verify_ranks(text, &ranks, gpu);
    let schedules: Vec<schedule::Schedule> = ranks
        .iter()
        .map(|(_, program, plan)| schedule::place(program, plan, gpu.topology(), &schedule::Options::default()))
        .collect();
    let both = ranks.iter().zip(&schedules);
    let both: Vec<exec::Rank> =
        both.map(|(&(number, program, _), schedule)| exec::Rank { number, program, schedule }).collect();
    let mut open =
        exec::prepare_ranks(&both, gpu, &common::exec_options()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let notes = open.notes().unwrap_or_else(|error| panic!("{text}: {error}"));
    println!("{notes:?}");
    open.capture(&Control::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
    for mode in [LaunchMode::Stream, LaunchMode::Graph, LaunchMode::Stream] {
        let samples = open.iterate(mode, 20, 500, &Control::default());
        let samples = samples.unwrap_or_else(|error| panic!("{text}, {}: {error}", mode.name()));
        assert_eq!(samples.slowest.time.len(), 500);
        let observed = open.observe(mode, Observation { times: 5, ..Observation::once(1) }, &Control::default());
        observed.unwrap_or_else(|error| panic!("{text}, {}, observed: {error}", mode.name()));
    }
    notes
}

#[test]
fn copies_to_other_ranks_agree_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpus(&kernels, &[0, 1]) else { return };
    for via in ["dma", "kernel"] {
        for options in ["", "(sync: end, depth: 3)"] {
            let text = programs::PEERS.replace("VIA", via).replace("step", &format!("step{options}"));
            let notes = two_ranks(&text, &gpu);
            assert!(notes.iter().any(|note| note.contains("copies to rank")), "{notes:?}");
            // Overlapping iterations are not gated, so nothing is inferred.
            let inferred =
                notes.iter().any(|note| note.contains("copies to another device") && note.contains("an engine"));
            assert_eq!(inferred, options.is_empty(), "{notes:?}");
        }
    }
}

/// Consecutive copies share a synchronization if none of them needs what another brings.
#[test]
fn copies_in_a_row_share_a_meeting() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpus(&kernels, &[0, 1]) else { return };
    for (options, turns) in [("", 1), ("(sync: end, depth: 3)", 3)] {
        let notes = two_ranks(&programs::ROWS.replace("step", &format!("step{options}")), &gpu);
        for (rank, shared) in [(0, 2), (1, 3)] {
            let wanted =
                format!("rank {rank}: copies from other ranks: {} of {} directly follow", shared * turns, 5 * turns);
            assert!(notes.iter().any(|note| note.starts_with(&wanted)), "{wanted}: {notes:?}");
        }
    }
}

/// Copies also reach a rank in another process.
#[test]
fn copies_to_other_processes_agree_with_the_cpu() {
    let kernels = folder();
    let Some((_, _alone)) = gpus(&kernels, &[0, 1]) else { return };
    let file = kernels.path().join("processes.aorta");
    for (text, port) in [(programs::PEERS.replace("VIA", "dma"), 9811), (programs::ROWS.to_owned(), 9813)] {
        std::fs::write(&file, text).expect("a file can be written");
        let start = |rank: &str| {
            std::process::Command::new(env!("CARGO_BIN_EXE_aorta"))
                .args(["exec", "--backend", "cuda", "--launch", "both", "--verify"])
                .arg(&file)
                .envs([("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")])
                .envs([("MASTER_ADDR", "127.0.0.1".to_owned()), ("MASTER_PORT", port.to_string())])
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .expect("the binary starts")
        };
        let processes = ["0", "1"].map(start);
        let outputs = processes.map(|process| process.wait_with_output().expect("it ends"));
        let told: String = outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect();
        println!("{told}{}", String::from_utf8_lossy(&outputs[0].stderr));
        assert!(outputs.iter().all(|output| output.status.success()));
        assert!(told.contains("copies to rank 1: direct, from device to device, in its process"));
        assert_eq!(told.matches("verified against the CPU, as").count(), 2);
    }
}

/// Runs `aorta ab` on the first GPU. Returns its output and its exit code.
fn ab(folder: &tempfile::TempDir, text: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let file = folder.path().join("ab.aorta");
    std::fs::write(&file, text).expect("a file can be written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_aorta"))
        .args(["ab", "ab.aorta", "--backend", "cuda", "--device", "0"])
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("the binary starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{}", said.concat());
    (said.concat(), output.status.code())
}

/// A run compared with itself is the same, and one whose chains overlap is better. Both sides are on the device at
/// once.
#[test]
fn variants_take_turns_on_the_device() {
    let folder = folder();
    let Some((gpu, _alone)) = gpu(&folder) else { return };
    drop(gpu);
    let chains = "param streams = 2\nstream s[streams]\nstep { for i in 0..4 { on s[i % streams] { spin(50us) } } }";
    let (itself, code) = ab(&folder, chains, &["--launch", "graph", "--fail-on", "worse,cannot-tell"]);
    assert!(code == Some(0) && itself.contains("Same: "), "{itself}");
    assert!(itself.contains("In turn and apart agree."), "{itself}");
    let (overlapped, _) = ab(&folder, chains, &["--a", "--streams 1"]);
    assert!(overlapped.contains("b is better: an iteration takes 5"), "{overlapped}");
    let graphs = ab(&folder, chains, &["--a", "--launch stream", "--b", "--launch graph", "--rounds", "6"]).0;
    assert!(graphs.contains("\na on ") && graphs.contains("as a graph"), "{graphs}");
    // One side has another environment variable for the driver.
    let (queues, code) = ab(&folder, chains, &["--b", "--env CUDA_DEVICE_MAX_CONNECTIONS=1", "--rounds", "6"]);
    assert_eq!(code, Some(0), "{queues}");
}

/// Two sides that do not fit on the device at once alternate as separate processes.
#[test]
fn sides_that_do_not_fit_at_once_alternate_as_separate_processes() {
    let folder = folder();
    let Some((gpu, _alone)) = gpu(&folder) else { return };
    let memory = gpu.device().memory_bytes.expect("a GPU says how much it has");
    drop(gpu);
    // Each needs six tenths of the memory.
    let rows = memory * 6 / 10 / (4 << 20);
    let text =
        format!("buffer x: f32[{rows}, 1048576]\nbuffer y: f32[4096]\nstep {{ map(y + 1 -> y)  map(x[0] -> x[1]) }}");
    let (said, code) = ab(&folder, &text, &["--rounds", "6", "--config", "max_memory=1TiB"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("since b did not start beside a: "), "{said}");
}

/// Runs `aorta sweep` on the GPU, prints its output, and returns the lines of its file after the header.
fn sweep(folder: &tempfile::TempDir, arguments: &[&str]) -> Vec<serde_json::Value> {
    let file = folder.path().join("chains.aorta");
    std::fs::write(&file, CHAINS).expect("a file can be written");
    let cases = folder.path().join("cases.jsonl");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_aorta"))
        .args(["sweep", &file.display().to_string(), "--backend", "cuda", "--json", &cases.display().to_string()])
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the binary starts");
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{printed}{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let text = std::fs::read_to_string(cases).expect("the sweep has a file");
    let lines = text.lines().skip(1).map(|line| serde_json::from_str(line).expect("each line is JSON"));
    let cases: Vec<serde_json::Value> = lines.collect();
    for case in &cases {
        assert!(["done", "unstable"].contains(&case["status"].as_str().expect("a word")), "{}", case["reason"]);
        let record = &case["record"];
        assert_eq!((&record["simulated"], &record["complete"]), (&false.into(), &true.into()));
        assert!(record["variants"][0]["time"]["p50_ns"].as_u64().is_some_and(|median| median > 1000));
    }
    cases
}

/// Eight chains of small kernels that use little of the device, on any number of streams.
const CHAINS: &str = "\
param streams = 8 in 1..=8
stream s[streams]
step { for i in 0..8 { on s[i % streams] { for turn in 0..4 { spin(20us, units: 1) } } } }
";

#[test]
fn a_sweep_over_streams_finds_that_chains_go_side_by_side() {
    let folder = folder();
    let Some((gpu, _alone)) = gpu(&folder) else { return };
    drop(gpu);
    let cases = sweep(&folder, &["--streams", "1,2,4,8", "--env", "CUDA_DEVICE_MAX_CONNECTIONS=8"]);
    let median = |streams: &str| {
        let case = cases.iter().find(|case| case["values"]["streams"] == streams).expect("each value is a case");
        case["record"]["variants"][0]["time"]["p50_ns"].as_f64().expect("a time")
    };
    assert_eq!(cases.len(), 4);
    // One stream takes 640 µs, eight 80 µs.
    assert!(median("1") > 1.5 * median("2"), "{} {}", median("1"), median("2"));
    assert!(median("1") > 4.0 * median("8"), "{} {}", median("1"), median("8"));
}

#[test]
fn a_sweep_over_a_variable_gives_each_process_its_own() {
    let folder = folder();
    let Some((gpu, _alone)) = gpu(&folder) else { return };
    drop(gpu);
    let cases = sweep(&folder, &["--env", "CUDA_DEVICE_MAX_CONNECTIONS=1,8,32", "--launch", "stream"]);
    assert_eq!(cases.len(), 3);
    for case in &cases {
        let value = case["values"]["CUDA_DEVICE_MAX_CONNECTIONS"].as_str().expect("a value");
        assert_eq!(case["record"]["environment"]["variables"]["CUDA_DEVICE_MAX_CONNECTIONS"], value);
        let lanes = case["record"]["program"]["lanes"].as_array().expect("a list");
        let queues: std::collections::BTreeSet<u64> = lanes.iter().filter_map(|lane| lane["queue"].as_u64()).collect();
        let expected: usize = if value == "1" { 1 } else { 8 };
        assert_eq!(queues.len(), expected, "{value} connections");
    }
}

/// The program: where it was built, or beside this test if both were copied to another machine.
fn program() -> std::path::PathBuf {
    let built = std::path::PathBuf::from(env!("CARGO_BIN_EXE_aorta"));
    let own = std::env::current_exe().expect("a test is a program");
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("aorta"));
    std::iter::once(built).chain(beside).find(|path| path.is_file()).expect("the program was built with its tests")
}

/// Runs a suite on the first GPU, prints its page, and returns its cases.
fn suite(arguments: &[&str]) -> Vec<aorta::measure::cases::Case> {
    let folder = folder();
    let file = folder.path().join("cases.jsonl");
    let mut command = std::process::Command::new(program());
    command.arg("suite").args(arguments).args(["--backend", "cuda", "--device", "0", "--json"]).arg(&file);
    let output = command.output().expect("the program starts");
    println!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "aorta suite {arguments:?}");
    let bytes = std::fs::read(&file).expect("a file of cases");
    aorta::measure::cases::Cases::parse(&bytes).expect("whole lines").expect("a header").cases
}

/// Whether figures are normal is only printed, since a machine may be slow. An H200 must have known ranges.
#[test]
fn suites_run_and_report_normal_figures() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let h200 = gpu.device().name == "NVIDIA H200";
    // The cases are separate processes and need the memory.
    drop(gpu);
    let all = suite(&["P0", "--effort", "sanity"]);
    assert!(all.len() >= 18 && all.iter().all(|case| case.status.is_measured()), "all of them ran");
    suite(&["smoke"]);
    let quick = [
        suite(&["P0", "--effort", "quick", "--only", "8 streams"]),
        suite(&["copies", "--effort", "quick", "--only", "size_sweep"]),
    ];
    for case in quick.iter().flatten() {
        let record = case.record.as_ref().expect("it was measured");
        for figure in &record.expected {
            let (value, normal) = (&figure.text, &figure.normal);
            println!(
                "{}: {}, {}: {value}, normal is {normal}: {}",
                case.name, figure.name, figure.launch, figure.verdict
            );
            figure.check.iter().for_each(|check| println!("  check first: {check}"));
        }
        assert!(!h200 || !record.expected.is_empty(), "{}: nothing is known of it", case.name);
    }
}
