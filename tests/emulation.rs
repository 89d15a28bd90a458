//! Emulation of one rank of many on one device: collectives take the time from the table and occupy compute units.

use aorta::backend::emulate::Emulated;
use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::Nanos;
use aorta::config::Profile;
use aorta::cost;
use aorta::exec::{self, Backend, Control, LaunchMode, RankSchedule};
use aorta::model::Program;
use aorta::ops::Launch;
use aorta::plan::Plan;
use aorta::schedule;

use crate::common;

fn profile() -> Profile {
    Profile::named("h200").expect("embedded")
}

fn emulated(backend: impl Backend + 'static) -> Emulated {
    Emulated::new(Box::new(backend), profile())
}

/// Duration of an iteration on one rank of a world, in ns.
fn time(rank: &(Program, Plan), backend: &dyn Backend, mode: LaunchMode) -> i64 {
    times(std::slice::from_ref(rank), backend, mode)[0]
}

/// Duration of an iteration on each of some ranks, in ns.
fn times(ranks: &[(Program, Plan)], backend: &dyn Backend, mode: LaunchMode) -> Vec<i64> {
    let options = schedule::ScheduleOptions::default();
    let place = |(program, plan): &(Program, Plan)| schedule::place(program, plan, backend.topology(), &options);
    let schedules: Vec<_> = ranks.iter().map(place).collect();
    let mut of_ranks = Vec::new();
    for ((program, plan), schedule) in ranks.iter().zip(&schedules) {
        of_ranks.push(RankSchedule { number: program.rank, ..RankSchedule::new(program, plan, schedule) });
    }
    let open = exec::prepare_ranks(&of_ranks, backend, &common::exec_options());
    let mut open = open.unwrap_or_else(|error| panic!("{error}"));
    open.capture(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let samples = open.iterate(mode, 1, 3, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    samples.ranks.iter().map(|rank| rank.time[2].0).collect()
}

/// The table's time of a program's collectives, one after the other.
fn told(program: &Program) -> f64 {
    let links = profile().topology;
    let of = |launch: &Launch| match launch {
        Launch::Collective(all) => {
            let ranks: Vec<u32> = program.groups[all[0].group.index()].members_with(program.rank).collect();
            all.iter().map(|one| cost::exchange(one, &ranks, &links)).fold(0.0, f64::max)
        }
        _ => 0.0,
    };
    let ops = program.cycle[0].ops.iter().filter_map(|op| program.op_spec(op));
    ops.flat_map(|spec| spec.launch()).map(|launch| of(&launch)).sum()
}

#[test]
fn collectives_take_the_time_of_the_table() {
    let text = "\
mesh dp = world / 2, tp = 2
buffer x: f32[4194304]
buffer y: f32[8388608]
step {
  all_reduce(x -> x)
  all_gather(x -> y) over tp
  group { send(x, to: (dp.rank + 1) % dp.size) over dp recv(-> y[0..4194304], from: (dp.rank - 1) % dp.size) over dp }
  barrier()
}
";
    for world in [4, 8, 16] {
        for rank in common::planned_ranks(text, world).iter().take(3) {
            let expected = told(&rank.0) as i64;
            for mode in [LaunchMode::Stream, LaunchMode::Graph] {
                let took = time(rank, &emulated(Sim::new(profile())), mode);
                // The launch times of four kernels come on top.
                assert!((expected..expected + 25_000).contains(&took), "{world}: {} is told", Nanos(expected));
            }
        }
    }
}

/// Transfers of one operation share the links of their rank as in a run of all ranks.
#[test]
fn an_operation_shares_its_links_with_itself() {
    let star = |k: u32| {
        format!(
            "buffer x: f32[4194304]\nbuffer y: f32[{k}, 4194304]\nstep {{ group {{ for i in 1..{k} + 1 {{ \
             send(x, to: (rank + i) % world) recv(-> y[i - 1], from: (rank - i) % world) }} }} }}"
        )
    };
    let ring = "buffer x, y: f32[4194304]\nstep { copy(x -> y at (rank + 1) % world, via: dma) }".to_owned();
    let cases = (1..8).map(|k| (star(k), 8)).chain([2, 8, 16].map(|world| (ring.clone(), world)));
    for (text, world) in cases {
        let ranks = common::planned_ranks(&text, world);
        let real = times(&ranks, &Sim::new(profile()), LaunchMode::Stream)[0] as f64;
        let alone = time(&ranks[0], &emulated(Sim::new(profile())), LaunchMode::Stream) as f64;
        // An emulated copy does not wait for the flags of other ranks.
        let real = if text == ring { real - 2.0 * profile().topology.flag.value() } else { real };
        assert!((0.9 * real..1.1 * real).contains(&alone), "{text}: {alone} ns, with all ranks {real} ns");
    }
}

#[test]
fn an_emulated_collective_holds_units() {
    // The table says 16 units: with fewer free ones, the kernel needs two waves. A copy engine needs no unit.
    let took = |units: u32, call: &str| {
        let text = format!(
            "stream a\nstream b\nbuffer x, y: f32[1048576]\n\
             step {{ on a {{ spin(100us, units: {units}) }} on b {{ for i in 0..12 {{ {call} }} }} }}"
        );
        let ranks = common::planned_ranks(&text, 4);
        time(&ranks[1], &emulated(Sim::new(profile())), LaunchMode::Stream)
    };
    let grows = |call: &str| took(132 - 12, call) - took(132 - 16, call);
    assert!(grows("all_reduce(x -> x)") > 20_000);
    assert!(grows("copy(x -> y at (rank + 1) % world, via: kernel)") > 5_000);
    assert_eq!(grows("copy(x -> y at (rank + 1) % world, via: dma)"), 0);
}

#[test]
fn a_rank_by_itself_waits_for_nobody() {
    let text = "buffer x, y: f32[64]\nstep { all_reduce(x -> x) copy(x -> y at (rank + 1) % world) }";
    let ranks = common::planned_ranks(text, 8);
    assert!(time(&ranks[7], &emulated(Sim::new(profile())), LaunchMode::Stream) > 0);
    // The CPU sleeps as long; a run that would report this time is refused.
    assert!(time(&ranks[7], &emulated(Host), LaunchMode::Stream) > 0);
}
