//! Ranks: clocks, the rank that others wait for, and copies between them.

use aorta::base::SourceMap;
use aorta::exec::{self, Backend, Control, LaunchMode, Observation};
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::{measure, schedule};

use crate::common::{self, programs};
use crate::{folder, gpu, gpus, verify_ranks};

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
    let place =
        |(program, plan): &(Program, Plan)| common::placed(program, plan, &gpu, &schedule::ScheduleOptions::default());
    let schedules: Vec<_> = programs.iter().map(place).collect();
    let ranks = common::world::ranks(&programs, &schedules);
    let options = exec::SessionOptions { gate_depth: 512, ..common::exec_options() };
    let mut ranks = exec::prepare_ranks(&ranks, &gpu, &options).unwrap_or_else(|error| panic!("{error}"));
    // Only as streams: one rank cannot capture while another synchronizes the shared device.
    let traces = ranks
        .observe(Observation { times: 5, ..Observation::once(LaunchMode::Stream, 1) }, &Control::default())
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
        let place = |(program, plan): &(Program, Plan)| {
            common::placed(program, plan, &gpu, &schedule::ScheduleOptions::default())
        };
        let schedules: Vec<_> = programs.iter().map(place).collect();
        let ranks = common::world::ranks(&programs, &schedules);
        let measured = measure::measure(&measure::Request {
            plans: &[],
            ranks: &ranks,
            backend: &gpu,
            modes: &[LaunchMode::Stream, LaunchMode::Graph],
            effort: aorta::config::EffortPlan { warmup: 10, iterations: 100 },
            observed_iterations: 20,
            exec: exec::SessionOptions { gate_depth: 512, ..common::exec_options() },
            control: &Control::default(),
            profile: None,
            sources: &SourceMap::new(),
            keep: &|_| {},
            shares: std::cell::OnceCell::new(),
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
    copy(x -> y, via: dma)
    copy(x -> y, via: kernel)
  }
}
";
    let (program, plan) = common::planned(text);
    let schedule = common::placed(&program, &plan, &gpu, &schedule::ScheduleOptions::default());
    let notes = common::session(&program, &plan, &schedule, &gpu).infer_copy_units().expect("the copies can be tried");
    let told: Vec<&String> = notes.iter().filter(|note| note.contains("inferred from")).collect();
    println!("{told:#?}");
    let line = |way: &str| told.iter().find(|note| note.contains(way)).unwrap_or_else(|| panic!("{way}: {notes:?}"));
    assert!(line("copies to the device:").contains("an engine (4 KiB to 64 MiB)"));
    assert!(line("copies to the host, `via: dma`:").contains("an engine (64 MiB)"));
    assert_eq!(line("copies within the device, `via: dma`:").matches("64 MiB").count(), 1);
    assert_eq!(told.len(), 3);
}

/// NCCL connects ranks at its first collective. With graphs only, that is inside a capture. Connections persist within
/// a process, so each run has its own.
#[test]
fn ranks_connect_inside_of_a_capture() {
    let kernels = folder();
    let Some((_, _alone)) = gpus(&kernels, &[0, 1]) else { return };
    for file in ["all_reduce", "all_to_all"] {
        let output = std::process::Command::new(crate::common::program())
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
    let numbered: Vec<(u32, &Program, &Plan)> =
        (0..).zip(&ranks).map(|(rank, (program, plan))| (rank, program, plan)).collect();
    verify_ranks(text, &numbered, gpu);
    let schedules = common::world::schedules(&ranks, gpu);
    let mut open = exec::prepare_ranks(&common::world::ranks(&ranks, &schedules), gpu, &common::exec_options())
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut notes = open.notes().unwrap_or_else(|error| panic!("{text}: {error}"));
    open.capture(&Control::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
    for mode in [LaunchMode::Stream, LaunchMode::Graph, LaunchMode::Stream] {
        let samples = open.iterate(mode, 20, 500, &Control::default());
        let samples = samples.unwrap_or_else(|error| panic!("{text}, {}: {error}", mode.name()));
        assert_eq!(samples.slowest.time.len(), 500);
        let observed = open.observe(Observation { times: 5, ..Observation::once(mode, 1) }, &Control::default());
        observed.unwrap_or_else(|error| panic!("{text}, {}, observed: {error}", mode.name()));
    }
    notes.extend(open.infer_copy_units().unwrap_or_else(|error| panic!("{text}: {error}")));
    println!("{notes:?}");
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
            std::process::Command::new(crate::common::program())
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
