//! Copies to other ranks: their results, their dependencies, and their durations on the simulator.

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::{MemoryId, Nanos};
use aorta::config::Profile;
use aorta::exec::{self, Backend, Control, LaunchMode, Observation, RankSchedule, Ranks};
use aorta::measure;
use aorta::model::{self, AnalysisOptions, MemoryKind, ModelError, PeerError, Program};
use aorta::plan::{self, Plan};
use aorta::schedule::{self, Schedule};
use proptest::prelude::*;

use crate::common;

/// The programs of all ranks of a world, with what arrives on each.
fn linked(text: &str, world: u32) -> Result<Vec<Program>, Vec<ModelError>> {
    let program = |rank| {
        let options = AnalysisOptions { rank, world, ..AnalysisOptions::default() };
        common::analyze_with(text, &options).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
    };
    let mut programs: Vec<Program> = (0..world).map(program).collect();
    model::link(&mut programs).map(|()| programs)
}

struct World {
    programs: Vec<Program>,
    plans: Vec<Plan>,
    schedules: Vec<Schedule>,
}

impl World {
    fn new(text: &str, world: u32, streams: Option<u32>, backend: &dyn Backend) -> World {
        let programs = linked(text, world).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
        let plans: Vec<Plan> = programs.iter().map(|program| plan::build(program).expect("nothing races")).collect();
        let options = schedule::ScheduleOptions { streams, ..schedule::ScheduleOptions::default() };
        let place = |(program, plan)| schedule::place(program, plan, backend.topology(), &options);
        let schedules = programs.iter().zip(&plans).map(place).collect();
        World { programs, plans, schedules }
    }

    fn ranks(&self) -> Vec<RankSchedule<'_>> {
        let ranks = self.programs.iter().zip(&self.plans).zip(&self.schedules);
        ranks.map(|((program, plan), schedule)| RankSchedule::new(program, plan, schedule)).collect()
    }

    fn open(&self, backend: &dyn Backend) -> Ranks {
        exec::prepare_ranks(&self.ranks(), backend, &common::exec_options()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A buffer's values on each rank, after some iterations.
    fn results(&self, mode: LaunchMode, iterations: u64, name: &str) -> Vec<Vec<f64>> {
        let mut open = self.open(&Host);
        open.capture(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
        open.iterate(mode, 0, iterations, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
        let read = |(index, program): (usize, &Program)| {
            let memories = (0..program.memories.len()).map(MemoryId::from);
            let named = |id: &MemoryId| {
                let memory = program.memory(*id);
                matches!(memory.kind, MemoryKind::Buffer(_)) && program.names.name(memory.name) == name
            };
            let memory = memories.into_iter().find(named).expect("the program has the buffer");
            let bytes = open.read(index, memory).expect("it can be read").expect("the CPU has memory");
            let dtype = program.layout(memory).dtype;
            bytes.chunks_exact(dtype.size() as usize).map(|element| dtype.load(element)).collect()
        };
        self.programs.iter().enumerate().map(read).collect()
    }
}

/// The contents of a buffer on each rank after an iteration, as streams and as a graph.
fn results(text: &str, world: u32, name: &str) -> Vec<Vec<f64>> {
    let world = World::new(text, world, None, &Host);
    let found = [LaunchMode::Stream, LaunchMode::Graph].map(|mode| world.results(mode, 1, name));
    assert_eq!(found[0], found[1], "{text}");
    found.into_iter().next().expect("there are two")
}

fn text(step: &str) -> String {
    format!(
        "stream s\nstream t\nbuffer x: f32[4] = zeros\nbuffer y: f32[4] = zeros\nbuffer z: f32[4, 4] = zeros\n\
         step {{ on s {{ fill(rank + 1 -> x) }} {step} }}"
    )
}

#[test]
fn sent_data_arrives() {
    let ring = results(&text("on t { copy(x -> y at (rank + 1) % world) }"), 3, "y");
    assert_eq!(ring, [[3.0; 4], [1.0; 4], [2.0; 4]]);
    let chain = results(&text("on t { copy(x -> y at rank + 1 when rank + 1 < world) }"), 3, "y");
    assert_eq!(chain, [[0.0; 4], [1.0; 4], [2.0; 4]]);
    let gathered = results(&text("on t { copy(x -> z[rank] at 1) }"), 3, "z");
    assert_eq!(gathered[1], [[1.0; 4], [2.0; 4], [3.0; 4], [0.0; 4]].concat());
    assert_eq!([&gathered[0], &gathered[2]], [&[0.0; 16], &[0.0; 16]]);
    let here = results(&text("on t { copy(x -> y at rank) }"), 3, "y");
    assert_eq!(here, [[1.0; 4], [2.0; 4], [3.0; 4]]);
    let alone = results(&text("on t { copy(x -> y at (rank + 1) % world) }"), 1, "y");
    assert_eq!(alone, [[1.0; 4]]);
    let columns = results(&text("on t { copy(x[0..2] -> z[1..3, rank] at (rank + 1) % world) }"), 2, "z");
    let at = |places: [usize; 2], value: f64| {
        let mut all = vec![0.0; 16];
        places.iter().for_each(|place| all[*place] = value);
        all
    };
    assert_eq!(columns, [at([5, 9], 2.0), at([4, 8], 1.0)]);
}

/// Operations before and after a copy are ordered with the received data, on any stream.
#[test]
fn received_data_is_ordered_by_program_order() {
    let text = text(
        "on s { fill(9 -> y) } on t { copy(x -> y at (rank + 1) % world) } on s { map(y * 10 -> y) } \
         on t { spin(2ms) copy(y -> z[0] at (rank + 1) % world) } on s { fill(5 -> y) }",
    );
    assert_eq!(results(&text, 2, "z")[0][..4], [10.0; 4]);
    assert_eq!(results(&text, 2, "y"), [[5.0; 4]; 2]);
}

#[test]
fn other_streams_may_meet() {
    let text = text("on r[rank] { copy(x -> y at (rank + 1) % world) }").replace("stream t", "stream r[2]");
    assert_eq!(results(&text, 2, "y"), [[2.0; 4], [1.0; 4]]);
}

#[test]
fn mistakes_between_ranks_are_found() {
    let errors = |step: &str, world| linked(&text(step), world).map(|_| ()).expect_err(step);
    let absent = errors("if rank == 0 { copy(x -> y at 1) }", 2);
    assert!(
        matches!(absent.as_slice(), [ModelError::Peer(PeerError::Absent { sender: 0, receiver: 1, .. })]),
        "{absent:?}"
    );
    let turns = errors("for i in 0..2 - rank { copy(x -> y at (rank + 1) % world) }", 2);
    assert!(
        matches!(turns.as_slice(), [ModelError::Peer(PeerError::Absent { sender: 0, receiver: 1, .. })]),
        "{turns:?}"
    );
    let both = errors("copy(x -> y at 0)", 3);
    assert!(matches!(both.as_slice(), [ModelError::Peer(PeerError::Clash { .. })]), "{both:?}");
    let while_sent = errors("copy(x -> x at (rank + 1) % world)", 2);
    assert!(matches!(while_sent.as_slice(), [ModelError::Peer(PeerError::Clash { .. })]), "{while_sent:?}");
    let parts = linked(&text("copy(z[rank] -> z[rank] at (rank + 1) % world)"), 3);
    assert!(parts.is_ok(), "each rank sends another part than it gets");
}

// --- Random programs ------------------------------------------------------------------------------------------

/// Rows of each buffer.
const ROWS: usize = 4;

const WORLD: usize = 3;

/// A statement on a stream: from a row of one buffer to one of the other.
#[derive(Clone, Debug)]
struct Statement {
    stream: usize,
    /// From `a` to `b`, else from `b` to `a`.
    forth: bool,
    from: usize,
    to: usize,
    /// Distance of the receiving rank, and whether rank 0 sends nothing; `None` for a computation.
    peer: Option<(usize, bool)>,
}

fn statement() -> impl Strategy<Value = Statement> {
    let peer = prop::option::weighted(0.5, (0..WORLD, any::<bool>()));
    (0..3usize, any::<bool>(), 0..ROWS, 0..ROWS, peer).prop_map(|(stream, forth, from, to, peer)| Statement {
        stream,
        forth,
        from,
        to,
        peer,
    })
}

impl Statement {
    fn text(&self) -> String {
        let (source, target) = if self.forth { ("a", "b") } else { ("b", "a") };
        let (stream, from, to) = (self.stream, self.from, self.to);
        let call = match self.peer {
            None => format!("map(max({source}[{from}], {target}[{to}]) + rank + 1 -> {target}[{to}])"),
            Some((on, silent)) => {
                let when = if silent { " when rank > 0" } else { "" };
                format!("copy({source}[{from}] -> {target}[{to}] at (rank + {on}) % world{when})")
            }
        };
        format!("  on s[{stream}] {{ {call} }}\n")
    }

    /// Executes the statement by definition, on all ranks at once.
    fn run(&self, memory: &mut [[[f64; ROWS]; 2]; WORLD]) {
        let (source, target) = if self.forth { (0, 1) } else { (1, 0) };
        let before = *memory;
        for rank in 0..WORLD {
            let sent = before[rank][source][self.from];
            match self.peer {
                None => memory[rank][target][self.to] = sent.max(before[rank][target][self.to]) + rank as f64 + 1.0,
                Some((_, true)) if rank == 0 => {}
                Some((on, _)) => memory[(rank + on) % WORLD][target][self.to] = sent,
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::effort::due_draws(48)))]
    #[test]
    fn random_programs_leave_what_their_text_says(
        statements in prop::collection::vec(statement(), 1..24),
        options in prop_oneof![Just(""), Just("(sync: end, depth: 2)")],
        streams in prop_oneof![Just(None), Just(Some(1)), Just(Some(2))],
    ) {
        let body: String = statements.iter().map(Statement::text).collect();
        let text = format!(
            "stream s[3]\nbuffer a: f32[{ROWS}, 2] = zeros\nbuffer b: f32[{ROWS}, 2] = zeros\n\
             step{options} {{\n  on s[0] {{ map(a[0] + rank -> a[0]) }}\n{body}}}\n"
        );
        let mut memory = [[[0.0; ROWS]; 2]; WORLD];
        for _ in 0..3 {
            for (rank, memory) in memory.iter_mut().enumerate() {
                memory[0][0] += rank as f64;
            }
            statements.iter().for_each(|statement| statement.run(&mut memory));
        }
        let world = World::new(&text, WORLD as u32, streams, &Host);
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            for (buffer, name) in ["a", "b"].into_iter().enumerate() {
                let expected: Vec<Vec<f64>> =
                    memory.iter().map(|rank| rank[buffer].iter().flat_map(|&value| [value; 2]).collect()).collect();
                prop_assert_eq!(world.results(mode, 3, name), expected, "{} of {}\n{}", name, mode.name(), text);
            }
        }
    }
}

#[test]
fn every_edge_of_ranks_that_copy_holds() {
    let text = text(
        "on t { copy(x -> y at (rank + 1) % world) } on s { map(y + 1 -> x) } on t { copy(x -> z[rank] at 0) } \
         on s { map(z[0] -> y) }",
    );
    let world = World::new(&text, 3, None, &Host);
    let witness = exec::witness(&world.ranks(), &Host, &common::exec_options());
    let mut witness = witness.unwrap_or_else(|error| panic!("{error}"));
    assert!(witness.edges() > 9, "{}", witness.edges());
    witness.ranks.iterate(LaunchMode::Stream, 0, 3, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    for rank in 0..3 {
        let missed = witness.missed(rank).unwrap_or_else(|error| panic!("{error}")).expect("the CPU has memory");
        assert_eq!(missed, [], "rank {rank}");
    }
}

/// The same property as for GPUs.
#[test]
fn copies_of_every_kind_agree_with_themselves() {
    for via in ["dma", "kernel", "auto"] {
        let ranks = common::planned_ranks(&common::programs::PEERS.replace("VIA", via), 3);
        let checked: Vec<plan::RankPlan> = common::planned_ranks(&common::programs::PEERS.replace("VIA", via), 3)
            .into_iter()
            .map(|(program, plan)| plan::RankPlan { program: program.into(), plan: plan.into() })
            .collect();
        plan::ranks::check(&checked).unwrap_or_else(|errors| panic!("{errors:?}"));
        let ranks: Vec<(u32, &Program, &Plan)> =
            (0..).zip(&ranks).map(|(rank, (program, plan))| (rank, program, plan)).collect();
        let question = measure::VerifyRequest {
            ranks: &ranks,
            backend: &Host,
            streams: None,
            modes: &[LaunchMode::Stream, LaunchMode::Graph],
            options: common::exec_options(),
            control: &Control::default(),
        };
        let verification = measure::verify(&question).unwrap_or_else(|error| panic!("{error}"));
        for variant in verification.expect("nobody stopped it").record.variants {
            assert!(variant.missed.is_empty(), "{via}, {}: {:?}", variant.launch, variant.missed);
            assert!(variant.outputs.iter().all(|output| output.held), "{via}, {}", variant.launch);
        }
    }
}

#[test]
fn ranks_of_other_processes_are_not_reached() {
    let world = World::new(&text("copy(x -> y at (rank + 1) % world)"), 2, None, &Host);
    let result = exec::prepare_ranks(&world.ranks()[..1], &Host, &common::exec_options());
    let error = result.err().expect("rank 1 is not there");
    assert!(error.to_string().contains("rank 1, which runs in another process"), "{error}");
}

// --- The simulator --------------------------------------------------------------------------------------------

/// Duration of an iteration on each of the simulated devices, in ns.
fn simulated(step: &str, world: u32, mode: LaunchMode) -> Vec<i64> {
    let text = format!(
        "stream s\nstream t\nstream u\nbuffer x, y: f32[16777216]\nbuffer z: f32[{world}, 1048576]\nstep {{ {step} }}"
    );
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let world = World::new(&text, world, None, &sim);
    let mut open = world.open(&sim);
    open.capture(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let samples = open.iterate(mode, 2, 3, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    samples.ranks.iter().map(|samples| samples.time[2].0).collect()
}

/// 64 MiB over 370 GB/s.
const LINK: i64 = 181_375;

/// Two flags that are waited for.
const MEETING: i64 = 16_000;

#[test]
fn a_simulated_copy_takes_as_long_as_its_link() {
    for mode in [LaunchMode::Stream, LaunchMode::Graph] {
        for time in simulated("on s { copy(x -> y at (rank + 1) % world) }", 2, mode) {
            assert!((LINK + MEETING..LINK + MEETING + 20_000).contains(&time), "{}", Nanos(time));
        }
        let two = "on s { copy(x[0..8388608] -> y[0..8388608] at (rank + 1) % world) } \
                   on t { copy(x[8388608..16777216] -> y[8388608..16777216] at (rank + 1) % world) }";
        for time in simulated(two, 2, mode) {
            let whole = LINK..LINK + MEETING + 20_000;
            assert!(whole.contains(&time), "halves share the link: {}", Nanos(time));
        }
    }
}

#[test]
fn a_simulated_copy_waits_for_who_gets_it() {
    for mode in [LaunchMode::Stream, LaunchMode::Graph] {
        let late = "on s { if rank == 1 { spin(1ms) } else { nop() } copy(x -> y at 1 when rank == 0) }";
        let times = simulated(late, 2, mode);
        assert!(times.iter().all(|&time| (1_000_000 + LINK..1_030_000 + LINK).contains(&time)), "{times:?}");
        // A rank that only receives waits for the sender; other streams continue.
        let beside = "on t { copy(x -> y at 1 when rank == 0) } on u { spin(100us) }";
        let times = simulated(beside, 3, mode);
        assert!(times[2] < 130_000 && times[1] > LINK, "{times:?}");
    }
}

/// A rank that neither sends nor receives has the operation in its observed iteration, with a time of its own.
#[test]
fn a_rank_without_a_part_in_a_copy_is_observed() {
    for (step, worlds) in [
        ("on s { copy(x -> y at 1 when rank == 0) map(y + 1 -> x) }", 2..5),
        ("on s { copy(x -> y at (rank + 1) % world when world > 1) nop() }", 1..4),
    ] {
        for (mode, world) in worlds.flat_map(|world| [LaunchMode::Stream, LaunchMode::Graph].map(|mode| (mode, world)))
        {
            let text = format!("stream s\nbuffer x, y: f32[64]\nstep {{ {step} }}");
            let sim = Sim::new(Profile::named("h200").expect("embedded"));
            let ranks = World::new(&text, world, None, &sim);
            let mut open = ranks.open(&sim);
            open.capture(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
            let observed = open.observe(Observation::once(mode, 1), &Control::default());
            let observed = observed.unwrap_or_else(|error| panic!("{step} on {world} ranks: {error}"));
            assert!(observed.iter().all(|traces| traces[0].spans.len() == 2), "{step} on {world} ranks");
        }
    }
}

#[test]
fn simulated_copies_in_a_row_share_a_meeting() {
    for mode in [LaunchMode::Stream, LaunchMode::Graph] {
        let time = |step: &str| simulated(&format!("on s {{ {step} }}"), 2, mode)[1];
        let copy = "copy(x[0..16384] -> y[0..16384] at 1 when rank == 0)";
        let (one, ten) = (time(copy), time(&format!("for i in 0..10 {{ {copy} }}")));
        assert!((MEETING..MEETING + 6_000).contains(&one), "{}", Nanos(one));
        assert!(ten < one + 9 * 5_000, "a meeting for all: {} and {}", Nanos(one), Nanos(ten));
        let apart = time(&format!("{copy} nop() {copy}"));
        assert!(apart > 2 * MEETING, "something stands between them: {}", Nanos(apart));
    }
}

/// A rank with little to issue does not count the time of another rank's host.
#[test]
fn simulated_gates_open_together() {
    let step = "for i in 0..100 { on t { if rank == 0 { nop() } } } \
                on s { copy(x[0..16384] -> y[0..16384] at 1 when rank == 0) }";
    let times = simulated(step, 2, LaunchMode::Stream);
    assert!((MEETING..MEETING + 10_000).contains(&times[1]), "{times:?}");
    // An iteration that is too long for the gate starts by itself, and no rank waits for it forever, even if it cannot
    // be issued completely before the others continue.
    for step in [
        "for i in 0..600 { on t { if rank == 0 { nop() } } } all_reduce(x -> x)",
        "on t { all_reduce(x -> x) } for i in 0..3000 { on t { if rank == 0 { nop() } } }",
    ] {
        let times = simulated(step, 3, LaunchMode::Stream);
        assert!(times.iter().all(|&time| time > LINK), "{times:?}");
    }
}

#[test]
fn simulated_copies_are_the_same_every_time() {
    let step = "on s { copy(x -> y at (rank + 1) % world) } on t { copy(y[0..1048576] -> z[rank] at rank / 4 * 4) }";
    let first = simulated(step, 8, LaunchMode::Stream);
    assert_eq!(first.len(), 8);
    for _ in 0..3 {
        assert_eq!(simulated(step, 8, LaunchMode::Stream), first);
    }
}

#[test]
fn a_copy_by_a_kernel_holds_units() {
    // All compute units are occupied at first, so a kernel waits and an engine does not.
    let text = |via: &str| {
        format!("on s {{ spin(100us, units: 132) }} on t {{ copy(x -> y at (rank + 1) % world, via: {via}) }}")
    };
    let time = |via| simulated(&text(via), 2, LaunchMode::Stream)[0];
    let (dma, kernel) = (time("dma"), time("kernel"));
    assert!(dma < LINK + 30_000 && kernel > LINK + 95_000, "{dma} and {kernel}");
    assert_eq!(time("auto"), dma, "the runtime copies between devices by an engine");
}
