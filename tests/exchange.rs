//! Several ranks in one process: results of collectives on the CPU, and their durations on the simulator.

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::MemoryId;
use aorta::base::random::hash;
use aorta::config::Profile;
use aorta::exec::{Backend, Control, ExecError, LaunchMode, Ranks};
use aorta::model::{MemoryKind, Program};
use aorta::plan::Plan;

use crate::common;
use crate::common::mock::{Mock, Script};
use crate::common::world::World;

fn open(world: &World, backend: &dyn Backend) -> Ranks {
    world.open(backend, common::exec_options().timeout).unwrap_or_else(|error| panic!("{error}"))
}

impl World {
    /// A buffer's values on each rank.
    fn read(&self, ranks: &mut Ranks, name: &str) -> Vec<Vec<f64>> {
        let read = |(index, (program, _)): (usize, &(Program, Plan))| {
            let memory = (0..program.memories.len())
                .map(MemoryId::from)
                .find(|&id| {
                    let memory = program.memory(id);
                    matches!(memory.kind, MemoryKind::Buffer(_)) && program.names.name(memory.name) == name
                })
                .expect("the program has the buffer");
            let dtype = program.layout(memory).dtype;
            let bytes = ranks.read(index, memory).expect("it can be read").expect("the backend has memory");
            bytes.chunks_exact(dtype.size() as usize).map(|element| dtype.load(element)).collect()
        };
        self.ranks.iter().enumerate().map(read).collect()
    }
}

/// The contents of a buffer on each rank after two iterations, which must be equal as streams and as graphs.
fn results(text: &str, world: u32, name: &str) -> Vec<Vec<f64>> {
    let ranks = World::new(text, world, &Host);
    let control = Control::default();
    let mut found = Vec::new();
    for mode in [LaunchMode::Stream, LaunchMode::Graph] {
        let mut open = open(&ranks, &Host);
        open.capture(&control).unwrap_or_else(|error| panic!("{error}"));
        open.iterate(mode, 0, 2, &control).unwrap_or_else(|error| panic!("{error}"));
        found.push(ranks.read(&mut open, name));
    }
    assert_eq!(found[0], found[1], "a graph leaves what streams leave");
    found.swap_remove(0)
}

#[test]
fn every_collective_leaves_what_it_should() {
    let text = |step: &str| {
        format!(
            "buffer x: f32[6] = iota\nbuffer y: f32[6] = zeros\nbuffer z: f32[2] = zeros\nbuffer w: f32[18] = zeros\nstep {{\n  a: map(x * 10 + rank)\n  {step}\n}}\n"
        )
    };
    let of = |rank: i32| (0..6).map(|i| f64::from(10 * i + rank)).collect::<Vec<f64>>();
    let sums: Vec<f64> = (0..6).map(|i| f64::from(30 * i + 3)).collect();
    assert_eq!(results(&text("all_reduce(a -> y)"), 3, "y"), vec![sums.clone(); 3]);
    let of_ranks = |combine: fn([f64; 3]) -> f64| (0..6).map(|i| combine([0, 1, 2].map(|rank| of(rank)[i]))).collect();
    let reductions: [(&str, Vec<f64>); 4] = [
        ("mean", of_ranks(|[a, b, c]| (a + b + c) / 3.0)),
        ("min", of_ranks(|[a, b, c]| a.min(b).min(c))),
        ("max", of_ranks(|[a, b, c]| a.max(b).max(c))),
        ("product", of_ranks(|[a, b, c]| a * b * c)),
    ];
    for (op, expected) in reductions {
        assert_eq!(results(&text(&format!("all_reduce(a -> y, op: {op})")), 3, "y"), vec![expected; 3], "{op}");
    }
    let scattered: Vec<Vec<f64>> = sums.chunks(2).map(<[f64]>::to_vec).collect();
    assert_eq!(results(&text("reduce_scatter(a -> z)"), 3, "z"), scattered);
    let all: Vec<f64> = (0..3).flat_map(of).collect();
    assert_eq!(results(&text("all_gather(a -> w)"), 3, "w"), vec![all; 3]);
    assert_eq!(results(&text("broadcast(a -> y, root: 1)"), 3, "y"), vec![of(1); 3]);
    let turned: Vec<Vec<f64>> =
        (0..3).map(|to| (0..3).flat_map(|from| of(from)[2 * to..2 * to + 2].to_vec()).collect()).collect();
    assert_eq!(results(&text("all_to_all(a -> y)"), 3, "y"), turned);
    let zeros = vec![0.0; 6];
    let reduced = vec![zeros.clone(), zeros, sums];
    assert_eq!(results(&text("reduce(a -> y, root: 2)"), 3, "y"), reduced);
}

/// Elements behind those that arrive keep their contents.
#[test]
fn an_uneven_exchange_counts_what_goes_where() {
    let exchanged = |counts: &str| {
        let text = format!(
            "buffer x: f32[4] = iota\nbuffer y: f32[6] = zeros\n\
             step {{\n  a: map(x * 10 + rank)\n  fill(-1 -> y)\n  all_to_all(a -> y, counts: {counts})\n}}\n"
        );
        results(&text, 3, "y")
    };
    let rows =
        [[0.0, 2.0, 12.0, 22.0, -1.0, -1.0], [10.0, 20.0, 1.0, -1.0, -1.0, -1.0], [11.0, 32.0, -1.0, -1.0, -1.0, -1.0]];
    assert_eq!(exchanged("[[1, 2, 0], [0, 1, 1], [3, 0, 1]]"), rows);
    // A single list holds for each sender.
    let alike = [[0.0, 1.0, 2.0, -1.0, -1.0, -1.0], [-1.0; 6], [10.0, 20.0, 11.0, 21.0, 12.0, 22.0]];
    assert_eq!(exchanged("[1, 0, 2]"), alike);
}

/// Each rank sends a message to the next one, in a ring, and another one up to the last rank; all take part in an `all_reduce`.
#[test]
fn a_group_exchanges_all_its_parts() {
    let text = "
        buffer z: f32[4] = iota
        buffer x: f32[4]
        buffer y: f32[3] = zeros
        step {
          map(z * 10 + rank -> x)
          group {
            send(x[2..3], to: (rank + 1) % world)
            all_reduce(x[3..4] -> y[2..3])
            recv(-> y[0..1], from: (rank + 2) % world)
            if rank + 1 < world { send(x[1..2], to: rank + 1) }
            if rank > 0 { recv(-> y[1..2], from: rank - 1) }
          }
        }";
    assert_eq!(results(text, 3, "y"), [[22.0, 0.0, 93.0], [20.0, 10.0, 93.0], [21.0, 11.0, 93.0]]);
    assert!(simulated(text, 3).iter().all(|time| *time > 0));
    // On the last rank, the group has a single call.
    let text = "
        buffer x: f32[2] = iota
        buffer y: f32[2] = zeros
        step {
          map(x * 0 + rank + 1 -> x)
          group {
            if rank == 0 { send(x[0..1], to: 1) }
            if rank == 1 { recv(-> y[0..1], from: 0) }
            all_reduce(x[1..2] -> y[1..2])
          }
        }";
    assert_eq!(results(text, 3, "y"), [[0.0, 6.0], [1.0, 6.0], [0.0, 6.0]]);
    assert!(simulated(text, 3).iter().all(|time| *time > 0));
    // The other end of a transfer may stand outside of the group.
    let (group, alone) = ("group { all_reduce(x -> y) send(x, to: 1) }", "all_reduce(x -> y) recv(-> z, from: 0)");
    let (turned, inside) = ("all_reduce(x -> y) send(x, to: 1)", "group { all_reduce(x -> y) recv(-> z, from: 0) }");
    for (first, second) in [(group, alone), (turned, inside)] {
        let text = format!(
            "buffer x: f32[2] = iota\nbuffer y, z: f32[2] = zeros\nstep {{ if rank == 0 {{ {first} }} if rank == 1 {{ {second} }} }}"
        );
        assert_eq!(results(&text, 2, "z"), [[0.0, 0.0], [0.0, 1.0]], "{text}");
    }
}

/// Rows that a tensor counts go where the definition says, by a collective and by copies, and come back.
#[test]
fn counted_rows_arrive_and_come_back() {
    for (seed, world, own) in [(1, 1, 3), (2, 2, 1), (3, 3, 2), (4, 4, 1)] {
        let parts = u64::from(world) * own;
        let count = |rank: u64, part: u64| hash(seed, rank * parts + part) % 5;
        // Each rank counts its own rows, and all ranks get all counts.
        let (rows, room) = (4 * parts, 4 * parts * u64::from(world));
        let list = |rank: u64| (0..parts).map(|part| count(rank, part).to_string()).collect::<Vec<_>>().join(", ");
        let lists: Vec<String> = (0..u64::from(world)).map(|rank| format!("[{}]", list(rank))).collect();
        let text = |there: &str, back: &str| {
            format!(
                "let counted = [{}]\nbuffer x: f32[{rows}, 2] = iota\nbuffer own: i32[{parts}] = zeros\n\
                 buffer counts: i32[{world}, {parts}] = zeros\nbuffer inbox: f32[{room}, 2] = zeros\n\
                 buffer y: f32[{rows}, 2] = zeros\nstream main\nstep {{ on main {{\n  map(x + rank * 1000 -> view(y, [{rows}, 2]))\n  \
                 fill(0 -> inbox)\n  for part in 0..{parts} {{ fill(counted[rank][part] -> own[part..part + 1]) }}\n  \
                 all_gather(own -> counts)\n  {there}\n  fill(0 -> y)\n  {back}\n}} }}\n",
                lists.join(", ")
            )
        };
        let forms = [
            ("all_to_all(y, counts -> inbox)", "all_to_all(inbox, counts -> y, back: true)"),
            (
                "for turn in 0..world { copy(y, counts -> inbox at (rank + turn) % world) }",
                "for turn in 0..world { copy(inbox, counts -> y at (rank + turn) % world, back: true) }",
            ),
        ];
        let value = |rank: u64, row: u64, column: u64| (rank * 1000 + 2 * row + column) as f64;
        let ranks = 0..u64::from(world);
        let pairs = |rank: u64, rows: std::ops::Range<u64>| {
            rows.flat_map(move |row| [value(rank, row, 0), value(rank, row, 1)])
        };
        let arrived = |to: u64| {
            let of = |from: u64| {
                let before = |part: u64| (0..part).map(|part| count(from, part)).sum::<u64>();
                pairs(from, before(to * own)..before((to + 1) * own))
            };
            let mut all: Vec<f64> = ranks.clone().flat_map(of).collect();
            all.resize(2 * room as usize, 0.0);
            all
        };
        let returned = |rank: u64| {
            let mut all: Vec<f64> = pairs(rank, 0..(0..parts).map(|part| count(rank, part)).sum()).collect();
            all.resize(2 * rows as usize, 0.0);
            all
        };
        for (there, back) in forms {
            let text = text(there, back);
            let expected: Vec<Vec<f64>> = ranks.clone().map(arrived).collect();
            assert_eq!(results(&text, world, "inbox"), expected, "{text}");
            let expected: Vec<Vec<f64>> = ranks.clone().map(returned).collect();
            assert_eq!(results(&text, world, "y"), expected, "{text}");
        }
    }
}

#[test]
fn ranks_begin_with_data_of_their_own() {
    let found =
        results("buffer x: f32[64]\nbuffer y: f32[64]\nstep { copy(x -> y) all_reduce(y -> y, op: max) }\n", 2, "x");
    assert_ne!(found[0], found[1]);
}

/// Duration of an iteration on the slowest rank of simulated devices, in ns.
fn simulated(text: &str, world: u32) -> Vec<i64> {
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let ranks = World::new(text, world, &sim);
    let control = Control::default();
    let mut open = open(&ranks, &sim);
    let samples = open.iterate(LaunchMode::Stream, 2, 3, &control).unwrap_or_else(|error| panic!("{error}"));
    samples.ranks.iter().map(|samples| samples.time[2].0).collect()
}

#[test]
fn a_collective_begins_with_the_last_rank() {
    let text =
        |spin: &str| format!("buffer x: f32[1048576]\nstep {{ if rank == 1 {{ spin({spin}) }} all_reduce(x -> x) }}\n");
    let (even, late) = (simulated(&text("1us"), 2), simulated(&text("1ms"), 2));
    assert!(late[0] > even[0] + 900_000, "rank 0 waits for rank 1: {even:?} and {late:?}");
    // 4 MiB over two ranks take 35.3 µs by the table.
    assert!((35_300..60_000).contains(&even[0]), "{even:?}");
}

#[test]
fn simulated_ranks_are_the_same_every_time() {
    let text = "buffer x: f32[1 << 0]\n".replace("1 << 0", "65536")
        + "stream a\nstream b\nstep { on a { spin(10us) all_reduce(x -> x) } on b { if rank % 2 == 0 { spin(30us) } nop() } }\n";
    let first = simulated(&text, 16);
    assert_eq!(first.len(), 16);
    for _ in 0..3 {
        assert_eq!(simulated(&text, 16), first);
    }
}

#[test]
fn a_simulated_collective_that_nobody_joins_is_found() {
    let text = "buffer x: f32[1024]\nstep { if rank == 0 { all_reduce(x -> x) } else { nop() } }\n";
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let ranks = World::new(text, 2, &sim);
    let result = open(&ranks, &sim).iterate(LaunchMode::Stream, 0, 1, &Control::default());
    assert!(matches!(result, Err(ExecError::Device { .. } | ExecError::Hang { .. })), "{result:?}");
}

#[test]
fn an_interrupted_run_ends_on_all_ranks() {
    let text = "buffer x: f32[1024]\nstep { all_reduce(x -> x) }\n";
    let ranks = World::new(text, 3, &Host);
    let control = Control::default();
    control.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let samples = open(&ranks, &Host).iterate(LaunchMode::Stream, 0, 1000, &control).unwrap_or_else(|e| panic!("{e}"));
    let counts: Vec<usize> = samples.ranks.iter().map(|samples| samples.time.len()).collect();
    assert!(
        samples.ranks.iter().all(|samples| samples.stopped) && counts.windows(2).all(|pair| pair[0] == pair[1]),
        "{counts:?}"
    );
}

#[test]
fn ranks_go_on_as_streams_when_their_captures_are_refused() {
    let mock = Mock::new(Script { refuses_capture: true, ..Script::default() });
    let ranks = World::new("buffer x: f32[8]\nstep { map(x + 1 -> x) }\n", 2, &mock);
    let control = Control::default();
    let mut open = open(&ranks, &mock);
    assert!(open.capture(&control).is_err());
    let samples = open.iterate(LaunchMode::Stream, 0, 3, &control).unwrap_or_else(|error| panic!("{error}"));
    assert!(samples.ranks.iter().all(|samples| samples.time.len() == 3), "{samples:?}");
}
