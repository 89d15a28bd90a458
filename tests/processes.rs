//! Ranks in separate processes take the same decisions and have the same results. Here each is a thread with only its
//! own rank and a connection, running the same code as a process.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use aorta::backend::host::Host;
use aorta::backend::rendezvous::{JoinOptions, Rendezvous, Transport};
use aorta::backend::sim::Sim;
use aorta::base::{Nanos, SourceMap};
use aorta::config::{EffortPlan, Profile};
use aorta::exec::{
    self, Backend, Control, DeviceInfo, Driver, ExecError, Health, Image, LaunchMode, Observation, RankProcesses,
    Sensors,
};
use aorta::measure::{self, Measured};
use aorta::model::{AnalysisOptions, Program};
use aorta::plan::{self, Plan};
use aorta::schedule::Topology;

use crate::common;
use crate::common::mock::{Mock, Script};

/// A backend that runs one rank of a world.
struct OneOf<'a> {
    backend: &'a dyn Backend,
    peers: Arc<dyn RankProcesses>,
}

impl Backend for OneOf<'_> {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn device(&self) -> DeviceInfo {
        self.backend.device()
    }

    fn topology(&self) -> Topology {
        self.backend.topology()
    }

    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        assert_eq!(images.len(), 1, "a process opens its own rank");
        assert_eq!(images[0].rank, self.peers.rank());
        self.backend.open(images)
    }

    fn processes(&self) -> Option<Arc<dyn RankProcesses>> {
        Some(self.peers.clone())
    }
}

/// Programs for all ranks; ranks with higher numbers have more work.
fn world(text: &str, ranks: u32) -> Vec<(Program, Plan)> {
    let of = |rank| {
        let options = AnalysisOptions { rank, world: ranks, ..AnalysisOptions::default() };
        let program = common::analyze_with(text, &options).unwrap_or_else(|errors| panic!("{errors}"));
        let plan = plan::build(&program).unwrap_or_else(|errors| panic!("{errors:?}"));
        (program, plan)
    };
    (0..ranks).map(of).collect()
}

const STAIRS: &str = "\
buffer x: f32[65536]
stream s[2]
step {
  for i in 0..rank + 1 { on s[0] { map(x + 1 -> x) } }
  on s[1] { busy: spin(10us) }
}
metric together = overlap(busy, s[0])
metric faster = speedup
expect faster > 1
";

fn measured(world: &[(Program, Plan)], backend: &dyn Backend, control: &Control) -> Result<Measured, ExecError> {
    measured_within(Nanos(20_000_000_000), world, backend, control, &|_| {})
}

/// Measures with a time limit for iterations. `keep` gets the partial results between phases.
fn measured_within(
    timeout: Nanos,
    world: &[(Program, Plan)],
    backend: &dyn Backend,
    control: &Control,
    keep: &dyn Fn(Measured),
) -> Result<Measured, ExecError> {
    let schedules = common::world::schedules(world, backend);
    measure::measure(&measure::Request {
        plans: &[],
        ranks: &common::world::ranks(world, &schedules),
        backend,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        effort: EffortPlan { warmup: 12, iterations: 5 },
        observed_iterations: 2,
        exec: exec::SessionOptions { timeout, ..common::exec_options() },
        control,
        profile: None,
        sources: &SourceMap::new(),
        keep,
        shares: std::cell::OnceCell::new(),
    })
}

/// Runs `work` in each process of a world.
fn in_each<T: Send>(ranks: u32, work: impl Fn(u32, Arc<Rendezvous>) -> T + Sync) -> Vec<T> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    thread::scope(|scope| {
        let start = |rank: u32| {
            let work = &work;
            scope.spawn(move || {
                let place = JoinOptions {
                    rank,
                    world: ranks,
                    transport: Transport::Host { folder: folder.join("run"), advice: String::new() },
                    job: "a test".to_owned(),
                    timeout: Duration::from_secs(30),
                    stall: Duration::from_secs(600),
                };
                let peers = Rendezvous::join(&place, Box::new(|_| {})).unwrap_or_else(|error| panic!("{error}"));
                let peers = Arc::new(peers);
                let done = work(rank, peers.clone());
                peers.leave(None);
                done
            })
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panic!("a rank panicked"))).collect()
    })
}

/// Results that all processes of a run have in common.
fn common_text(measured: &Result<Measured, ExecError>) -> String {
    match measured {
        Ok(measured) => {
            let known = |variant: &measure::record::Variant| {
                let measure::record::Variant { launch, time, issue, ungated, serial, warmup, health, .. } = variant;
                format!("{launch}: {time:#?} {issue:#?} {ungated:#?} {serial:#?} {warmup:#?} {health:#?}\n")
            };
            let known: String = measured.variants.iter().map(known).collect();
            known + &format!("complete: {}", measured.is_complete())
        }
        Err(error) => error.to_string(),
    }
}

/// Without the starts of iterations, since each simulator has its own clock here.
fn text(mut measured: Result<Measured, ExecError>) -> String {
    let variants = measured.iter_mut().flat_map(|measured| &mut measured.variants);
    variants.flat_map(|variant| &mut variant.ranks).for_each(|rank| rank.origins.clear());
    format!("{measured:#?}")
}

/// Rank 0 has the results of a single process with all ranks. The others have everything that decides how the run
/// continues, and the operations of their own rank.
#[test]
fn rank_0_gathers_what_a_single_process_measures() {
    let world = world(STAIRS, 3);
    let sim = || Sim::new(Profile::named("h200").expect("a shipped profile"));
    let whole = measured(&world, &sim(), &Control::default());
    let common = common_text(&whole);
    assert!(common.contains("complete: true"), "{common}");
    let operations = |measured: &Result<Measured, ExecError>, rank: usize| {
        let measured = measured.as_ref().expect("nothing fails");
        let of = measured.variants.iter().map(|variant| &variant.ranks[rank].operations);
        of.map(|operations| format!("{operations:#?}")).collect::<String>()
    };
    let own: Vec<String> = (0..3).map(|rank| operations(&whole, rank)).collect();
    let whole = text(whole);
    let told = in_each(3, |_, peers| {
        let sim = sim();
        measured(&world, &OneOf { backend: &sim, peers }, &Control::default())
    });
    for (rank, one) in told.into_iter().enumerate() {
        assert_eq!(common_text(&one), common, "rank {rank}");
        assert_eq!(operations(&one, rank), own[rank], "rank {rank}");
        if rank == 0 {
            assert_eq!(text(one), whole);
        }
    }
}

/// A mock for each rank, with the rank's script.
fn with_mocks(ranks: u32, script: impl Fn(u32, &Arc<Control>) -> Script + Sync) -> Vec<Result<Measured, ExecError>> {
    let world = world(STAIRS, ranks);
    in_each(ranks, |rank, peers| {
        let control = Arc::new(Control::default());
        let mock = Mock::new(script(rank, &control));
        measured(&world, &OneOf { backend: &mock, peers }, &control)
    })
}

#[test]
fn a_graph_that_one_cannot_make_none_has() {
    let all = with_mocks(3, |rank, _| Script { refuses_capture: rank == 1, ..Script::default() });
    for measured in all {
        let measured = measured.expect("streams are left");
        let launches: Vec<&str> = measured.variants.iter().map(|variant| variant.launch.as_str()).collect();
        assert_eq!(launches, ["stream"]);
        assert!(measured.is_complete());
        let told = "no graph could be made, so the run continued as streams: rank 1: `endCapture` returned 901";
        assert!(measured.warnings.iter().any(|warning| warning.starts_with(told)), "{:?}", measured.warnings);
    }
}

#[test]
fn a_launch_that_fails_on_one_ends_all_with_its_message() {
    let all = with_mocks(3, |rank, _| Script { faulty: Some(1).filter(|_| rank == 2), ..Script::default() });
    for measured in all {
        let error = measured.expect_err("nothing was measured").to_string();
        assert_eq!(error, "rank 2: `launchKernel` returned 700 (illegal address), in this map");
    }
}

/// Mocks that record nothing, since some wait for long.
fn with_hanging_mocks(timeout: Nanos, script: impl Fn(u32) -> Script + Sync) -> Vec<ExecError> {
    let world = world(STAIRS, 2);
    in_each(2, |rank, peers| {
        let mut mock = Mock::silent();
        mock.script = script(rank);
        let backend = OneOf { backend: &mock, peers };
        let measured = measured_within(timeout, &world, &backend, &Control::default(), &|_| {});
        measured.expect_err("nothing was measured")
    })
}

#[test]
fn a_hang_on_one_rank_ends_all() {
    let errors = with_hanging_mocks(Nanos(2_000_000), |rank| Script { hangs: rank == 0, ..Script::default() });
    for error in errors {
        assert!(matches!(&error, ExecError::Hang { help, .. } if help.starts_with("rank 0: ")), "{error:?}");
    }
}

/// When one rank fails, the others, which would wait for their devices forever, are woken.
#[test]
fn a_rank_that_waits_for_its_device_is_woken() {
    for failing in 0..2 {
        let errors = with_hanging_mocks(Nanos(i64::MAX / 2), |rank| match rank == failing {
            true => Script { faulty: Some(0), ..Script::default() },
            false => Script { hangs: true, ..Script::default() },
        });
        for error in errors {
            assert!(error.to_string().starts_with(&format!("rank {failing}: `launchKernel` returned 700")), "{error}");
        }
    }
}

/// A rank whose call does not return is abandoned when another process has died. Earlier measurements have been
/// reported.
#[test]
fn a_thread_that_waits_for_a_dead_rank_is_abandoned() {
    let world = world(STAIRS, 2);
    let left = Mutex::new(Vec::new());
    in_each(2, |rank, peers| {
        let (control, kept) = (Control::default(), Arc::new(Mutex::new(Vec::new())));
        let keep = |measured: Measured| {
            let figures = measured.variants.iter().map(|variant| (variant.launch.clone(), variant.time.n));
            *kept.lock().expect("no test panics with it") = figures.collect();
            if rank == 1 {
                peers.leave(Some("it had enough"));
            }
        };
        // The first stamp around an operation, which is set after the headline was measured.
        let stays = Some((0, "stamp t512 on s[0]"));
        let mock = Mock::new(Script { stays, stays_for_good: true, ..Script::default() });
        let (heard, let_go) = (Arc::new(Mutex::new(None)), mock.let_go());
        let hear = heard.clone();
        control.on_unresponsive(move |error| {
            *hear.lock().expect("no test panics with it") = Some(error.clone());
            // A real process would end here.
            let_go();
        });
        let backend = OneOf { backend: &mock, peers: peers.clone() };
        let limit = Nanos(i64::MAX / 2);
        let _ = measured_within(limit, &world, &backend, &control, &keep);
        if let Some(error) = heard.lock().expect("no test panics with it").take() {
            let kept = kept.lock().expect("no test panics with it").clone();
            left.lock().expect("no test panics with it").push((error, kept));
        }
    });
    let left = left.into_inner().expect("no test panics with it");
    let [(error, kept)]: &[(ExecError, Vec<_>)] = &left[..] else { panic!("{left:?}") };
    assert_eq!(error.to_string(), "rank 1 was lost: it had enough");
    assert_eq!(kept[..], [("stream".to_owned(), 5)]);
}

/// Observed operations go only to rank 0, in several messages if there are many.
#[test]
fn observed_iterations_go_to_the_first_rank() {
    const OPERATIONS: usize = 20_000;
    const ITERATIONS: u64 = 20;
    let world = world("stream s\nstep { for i in 0..20000 { on s { nop() } } }", 2);
    let counts = in_each(2, |_, peers| {
        let mock = Mock::silent();
        let backend = OneOf { backend: &mock, peers };
        let schedules = common::world::schedules(&world, &backend);
        let ranks = common::world::ranks(&world, &schedules);
        let mut ranks = exec::prepare_ranks(&ranks, &backend, &common::exec_options()).expect("nothing fails");
        let traces = ranks
            .observe(Observation { times: ITERATIONS, ..Observation::once(LaunchMode::Stream, 1) }, &Control::default())
            .expect("nothing fails");
        let spans = traces.iter().map(|traces| traces.iter().map(|trace| trace.spans.len()).sum());
        spans.collect::<Vec<usize>>()
    });
    let all = OPERATIONS * ITERATIONS as usize;
    assert_eq!(counts, [[all, all], [0, all]]);
}

#[test]
fn insufficient_memory_is_reported_before_devices_are_opened() {
    let all =
        with_mocks(3, |rank, _| Script { memory_bytes: Some(1 << 10).filter(|_| rank == 1), ..Script::default() });
    for measured in all {
        assert!(matches!(measured, Err(ExecError::OutOfMemory { .. })), "{measured:?}");
    }
}

#[test]
fn every_device_s_health_is_in_the_record() {
    let sensors =
        |celsius| Sensors { celsius: Some(celsius), reasons: vec!["power cap".to_owned()], ..Sensors::default() };
    let health = |celsius| Health { sensors: sensors(celsius), ..Health::default() };
    let all = with_mocks(2, |rank, _| Script { health: vec![health(40 + rank)], ..Script::default() });
    for measured in all {
        let measured = measured.expect("nothing fails");
        let told: Vec<_> = measured.variants[0].health.iter().map(|health| health.celsius).collect();
        assert_eq!(told, [Some(40), Some(41), Some(40), Some(41)]);
        assert_eq!(measured.variants[0].health[0].reasons, ["power cap"]);
    }
}

/// Only one rank is interrupted: all stop at the next point between two phases.
#[test]
fn an_interrupt_of_one_stops_all_at_the_same_place() {
    let interrupts = [("stamp t3 on s[0]", 0), ("stamp t1 on s[0]", 2), ("end capture on s[0]", 1)];
    for interrupt in interrupts {
        for interrupted in 0..2 {
            let all = with_mocks(2, |rank, control| Script {
                interrupt: Some((control.clone(), interrupt.0, interrupt.1)).filter(|_| rank == interrupted),
                ..Script::default()
            });
            let complete = all.iter().any(|measured| measured.as_ref().is_ok_and(|measured| measured.is_complete()));
            assert!(!complete, "{interrupt:?} on rank {interrupted}");
            let texts: Vec<String> = all.iter().map(common_text).collect();
            assert_eq!(texts[0], texts[1], "{interrupt:?} on rank {interrupted}");
        }
    }
}

#[test]
fn every_rank_is_verified_by_its_own_process() {
    let world = world("buffer x: f32[64]\nstep { map(x + rank -> x) }", 3);
    let ranks: Vec<(u32, &Program, &Plan)> =
        (0..).zip(&world).map(|(number, (program, plan))| (number, program, plan)).collect();
    let verified = |backend: &dyn Backend| {
        let verification = measure::verify(&measure::VerifyRequest {
            ranks: &ranks,
            backend,
            streams: None,
            modes: &[LaunchMode::Stream, LaunchMode::Graph],
            options: common::exec_options(),
            control: &Control::default(),
        });
        format!("{:#?}", verification.expect("nothing fails").expect("nobody stopped it"))
    };
    let whole = verified(&Host);
    assert!(whole.contains("x on rank 2") && whole.contains("held: true"), "{whole}");
    let told = in_each(3, |_, peers| verified(&OneOf { backend: &Host, peers }));
    for one in told {
        assert_eq!(one, whole);
    }
}

#[test]
fn a_process_reads_the_buffers_of_its_own_rank() {
    let world = world("buffer x: f32[4]\nstep { fill(rank -> x) }", 2);
    let told: Vec<Vec<Vec<Vec<u8>>>> = in_each(2, |_, peers| {
        let backend = OneOf { backend: &Host, peers };
        let schedules = common::world::schedules(&world, &backend);
        let ranks = common::world::ranks(&world, &schedules);
        let buffers = measure::buffers(&ranks, &backend, &common::exec_options(), &Control::default());
        let buffers = buffers.expect("nothing fails").expect("nobody stopped it");
        buffers.into_iter().map(|buffers| buffers.into_iter().map(|(_, bytes)| bytes).collect()).collect()
    });
    let filled = |value: f32| vec![value.to_le_bytes().repeat(4)];
    let expected: [Vec<Vec<Vec<u8>>>; 2] = [vec![filled(0.0), vec![]], vec![vec![], filled(1.0)]];
    assert_eq!(told, expected);
}
