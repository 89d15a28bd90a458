//! Faults on GPUs: a hang, an asynchronous fault, a missing rank, a failing one. Each runs in a process of its own,
//! since a failed device does not work again within the same process. Everything that hangs here ends by itself, by the
//! device's clock or with the process.

use std::process::Command;

use aorta::backend::cuda::{self, Cuda};
use aorta::backend::gpu::{Gpu, NoDriver};
use aorta::base::Nanos;
use aorta::exec::{self, Backend, Control, DeviceInfo, Diagnosis, Driver, ExecError, Image, LaunchMode};
use aorta::schedule::Topology;

use super::alone;
use super::common::altered::{Altered, Calls};
use super::common::failing::{judge, run};
use super::common::folder::Folder;
use super::common::world::World;
use super::common::{program, shown};

/// Set in the process that executes the test's body.
const INSIDE: &str = "AORTA_TEST_INSIDE";

/// The first `count` GPUs; `None` with a message if there are fewer.
fn gpus(count: u32) -> Option<Gpu<Cuda>> {
    let paths = aorta::cli::library_paths();
    match cuda::find(&paths) {
        Err(why @ (NoDriver::Absent(_) | NoDriver::NoDevice(_))) => {
            println!("skipped: {why}");
            None
        }
        Err(NoDriver::Fails(error)) => panic!("the CUDA driver is there and does not work: {error}"),
        Ok(there) if there < count => {
            println!("skipped: {there} GPUs, and {count} are needed");
            None
        }
        Ok(_) => {
            let open = |index| Cuda::open(paths.clone(), index, None).unwrap_or_else(|error| panic!("{error}"));
            Some(Gpu::new((0..count).map(open).collect(), None))
        }
    }
}

/// Runs the test of that name in a process of its own, and returns its output. In that process, returns `None`.
fn apart(name: &str) -> Option<String> {
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let _alone = alone();
    let tests = std::env::current_exe().expect("a test is a program");
    let name = format!("faults::{name}");
    let output = Command::new(tests).args([&name, "--exact", "--nocapture"]).env(INSIDE, "1").output();
    let output = output.expect("the test starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    Some(printed)
}

/// Ends the process without synchronizing the device, as the program does.
fn leave() -> ! {
    aorta::backend::leave(0)
}

fn opened(world: &World, backend: &dyn Backend) -> Result<exec::Ranks, ExecError> {
    world.open(backend, Nanos(2_000_000_000))
}

/// Failures are injected above the driver, so the device stays intact and one process can run all of them.
#[test]
fn every_call_of_a_driver_fails_once() {
    let Some(printed) = apart("every_call_of_a_driver_fails_once") else {
        let Some(gpu) = gpus(1) else { leave() };
        let calls = Calls::counted();
        let (_, error) = run(1, &Altered::with_calls(&gpu, calls.clone()));
        assert!(error.is_none(), "{error:?}");
        for (call, count) in calls.made() {
            match judge(1, &gpu, call, count.div_ceil(2)) {
                Ok(outcome) => println!("{call}: {outcome}, of {count} calls"),
                Err(why) => println!("wrong: {why}"),
            }
        }
        leave();
    };
    assert!(!printed.contains("wrong: "), "{printed}");
    assert!(printed.contains("skipped") || printed.contains("launch: told"));
}

#[test]
fn a_hang_ends_the_program_and_is_found_by_another_run() {
    let _alone = alone();
    if gpus(1).is_none() {
        return;
    }
    let folder = Folder::new();
    let text = "stream a\nstream b\nbuffer x, y: f32[4]\nstep {\n  on a { nop() }\n  on a { spin(10s) }\n  \
                on a { fill(1 -> x) }\n  on b { map(x + 1 -> y) }\n}\n";
    let file = folder.write("slow.aorta", text);
    for launch in ["stream", "graph"] {
        let mut command = Command::new(program());
        command.arg("exec").arg(&file).args(["--backend", "cuda", "--effort", "sanity", "--timeout", "2s"]);
        let output = command.args(["--launch", launch]).output().expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{launch}:\n{said}");
        assert_eq!(output.status.code(), Some(4));
        assert!(said.contains("Running it once more"), "it is not known at once");
        assert!(said.contains("a is in this spin"), "it is found");
        assert!(said.contains("b has not begun this map, and waits for a fill on a"), "what waits says for what");
    }
}

/// A backend that moves one operand of every image far outside of its memory.
struct Astray<'a>(&'a dyn Backend, usize);

impl Backend for Astray<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn device(&self) -> DeviceInfo {
        self.0.device()
    }

    fn topology(&self) -> Topology {
        self.0.topology()
    }

    fn open(&self, mut images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        images.iter_mut().for_each(|image| image.addresses[self.1].offset += 1 << 45);
        self.0.open(images)
    }
}

/// The operands of the first two operations precede those of the third.
const ASTRAY: &str = "\
stream a
stream b
buffer x, y, z: f32[1024]
step {
  on a { map(x + 1 -> y) }
  on b { fill(1 -> z) }
  on a { map(y + z -> x) }
}
";

#[test]
fn an_address_outside_of_memory_is_reported_late() {
    let Some(printed) = apart("an_address_outside_of_memory_is_reported_late") else {
        let Some(gpu) = gpus(1) else { leave() };
        let world = World::new(ASTRAY, 1, &gpu);
        let mut open = opened(&world, &Astray(&gpu, 2)).unwrap_or_else(|error| panic!("{error}"));
        let error = open.iterate(LaunchMode::Stream, 0, 3, &Control::default()).expect_err("the fill goes astray");
        println!("{}", shown(ASTRAY, &error));
        leave();
    };
    assert!(printed.contains("skipped") || printed.contains("aorta::exec::late_fault"));
}

#[test]
fn an_address_outside_of_memory_is_found() {
    let Some(printed) = apart("an_address_outside_of_memory_is_found") else {
        let Some(gpu) = gpus(1) else { leave() };
        let world = World::new(ASTRAY, 1, &gpu);
        let mut open = opened(&world, &Astray(&gpu, 2)).unwrap_or_else(|error| panic!("{error}"));
        let error = open.diagnose(Diagnosis::Fault, &Control::default()).expect_err("the fill goes astray");
        println!("{}", shown(ASTRAY, &error));
        leave();
    };
    assert!(printed.contains("skipped") || printed.contains("in this fill"));
}

/// Rank 1 reaches the collective only in every other iteration.
const ABSENT: &str = "\
buffer x: f32[1024]
step {
  map(x + 1 -> x)
  if rank == 0 or iteration % 2 == 1 { all_reduce(x -> x) }
}
";

#[test]
fn a_rank_that_does_not_come_to_a_collective_is_named() {
    let Some(printed) = apart("a_rank_that_does_not_come_to_a_collective_is_named") else {
        let Some(gpu) = gpus(2) else { leave() };
        let world = World::new(ABSENT, 2, &gpu);
        let mut open = opened(&world, &gpu).unwrap_or_else(|error| panic!("{error}"));
        let error = open.iterate(LaunchMode::Stream, 0, 1, &Control::default()).expect_err("rank 1 does not come");
        println!("{}", shown(ABSENT, &error));
        drop(open);
        // The communicators are aborted, and with them their kernels, so the devices can be used again.
        let mut open = opened(&world, &gpu).unwrap_or_else(|error| panic!("{error}"));
        let error = open.diagnose(Diagnosis::Hang, &Control::default()).expect_err("rank 1 does not come");
        println!("{}", shown(ABSENT, &error));
        leave();
    };
    // The library connects the ranks in the first call, which then does not return.
    let first = ["aorta::exec::hang", "aorta::exec::no_return"].iter().filter_map(|code| printed.find(code)).min();
    let last = printed.rfind("aorta::exec::hang");
    assert!(printed.contains("skipped") || first.zip(last).is_some_and(|(first, last)| first < last), "{printed}");
    assert!(printed.contains("skipped") || printed.contains("in this all_reduce over ranks 0 and 1: rank 1 has not"));
}

#[test]
fn a_rank_that_makes_no_communicator_is_named() {
    let text = "buffer x: f32[1024]\nstep { map(x + 1 -> x) if rank == 0 { all_reduce(x -> x) } }\n";
    let Some(printed) = apart("a_rank_that_makes_no_communicator_is_named") else {
        let Some(gpu) = gpus(2) else { leave() };
        let error = opened(&World::new(text, 2, &gpu), &gpu).err().expect("rank 1 does not come");
        println!("{}", shown(text, &error));
        leave();
    };
    assert!(printed.contains("skipped") || printed.contains("aorta::exec::no_meeting"));
}

#[test]
fn a_rank_that_fails_ends_one_that_waits_for_it_on_the_device() {
    let text = "buffer x: f32[1024]\nstep { if rank == 1 { nop() } all_reduce(x -> x) }\n";
    let Some(printed) = apart("a_rank_that_fails_ends_one_that_waits_for_it_on_the_device") else {
        let Some(gpu) = gpus(2) else { leave() };
        let failing = Altered::failing(&gpu);
        let mut open = opened(&World::new(text, 2, &gpu), &failing).unwrap_or_else(|error| panic!("{error}"));
        let error = open.iterate(LaunchMode::Stream, 0, 3, &Control::default()).expect_err("rank 1 fails");
        println!("{}", shown(text, &error));
        leave();
    };
    assert!(printed.contains("skipped") || printed.contains("rank 1: `launch`: told to fail"));
}
