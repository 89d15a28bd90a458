//! `setup` and `teardown`: each runs once, around the iterations, on all ranks and backends, and in no figure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use aorta::backend::host::Host;
use aorta::base::{MemoryId, Nanos};
use aorta::exec::{Control, LaunchMode, Ranks};

use crate::common::doubles;
use crate::common::world::World;
use crate::hip::verify;

const TIMEOUT: Nanos = Nanos(20_000_000_000);

/// The first element of a rank's buffer.
fn first(world: &World, ranks: &mut Ranks, rank: usize, name: &str) -> f32 {
    let (program, _) = &world.ranks[rank];
    let named = |id: &MemoryId| program.names.name(program.memory(*id).name) == name;
    let memory = (0..program.memories.len()).map(MemoryId::from).find(named).expect("the buffer");
    let bytes = ranks.read(rank, memory).expect("it can be read").expect("the host has memory");
    f32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("a file");
    path
}

#[test]
fn each_block_runs_once() {
    for sync in ["", "(sync: end, depth: 3)"] {
        let text = format!(
            "stream s\nbuffer x, y, z: f32[5] = zeros\n\
             setup {{ on s {{ buffer h: f32[5]  map(x + 1 -> h)  map(h * 3 -> x) }} }}\n\
             step{sync} {{ on s {{ map(y + x -> y) }} }}\n\
             teardown {{ map(z + y -> z) }}\n"
        );
        let (backend, control) = (Host, Control::default());
        let world = World::new(&text, 1, &backend);
        let mut ranks = world.open(&backend, TIMEOUT).expect("it opens");
        let values = |ranks: &mut Ranks| ["x", "y", "z"].map(|name| first(&world, ranks, 0, name));
        assert_eq!(values(&mut ranks), [0.0, 0.0, 0.0]);
        ranks.iterate(LaunchMode::Stream, 0, 3, &control).expect("it runs");
        assert_eq!(values(&mut ranks), [3.0, 9.0, 0.0]);
        ranks.capture(&control).expect("a graph");
        ranks.iterate(LaunchMode::Graph, 1, 1, &control).expect("it runs");
        assert_eq!(values(&mut ranks), [3.0, 15.0, 0.0]);
        ranks.tear_down(&control).expect("it runs");
        assert_eq!(values(&mut ranks), [3.0, 15.0, 15.0]);
        ranks.reset(&control).expect("it is reset");
        assert_eq!(values(&mut ranks), [0.0, 0.0, 0.0]);
        ranks.once(LaunchMode::Stream, 0, &control).expect("it runs");
        ranks.set_up(&control).expect("nothing is left to do");
        assert_eq!(values(&mut ranks), [3.0, 3.0, 0.0]);
    }
}

/// Collectives and copies between ranks, in blocks that do not do the same on all ranks.
const RANKS: &str = "stream s\nstream t\nbuffer x, y, w: f32[6] = zeros\n\
    setup {\n  if rank == 0 { on t { fill(7 -> w) } }\n  on s { broadcast(w -> w) over world }\n  \
    on t { copy(w -> y at (rank + 1) % world) }\n}\n\
    step { on s { map(x + y + rank -> x)  all_reduce(x -> x) over world } }\n\
    teardown { on s { all_reduce(x -> w) over world }  if rank == 1 { on t { map(y * 2 -> y) } } }\n";

#[test]
fn ranks_take_part_in_blocks() {
    let (backend, control) = (Host, Control::default());
    let world = World::new(RANKS, 3, &backend);
    let mut ranks = world.open(&backend, TIMEOUT).expect("it opens");
    ranks.iterate(LaunchMode::Stream, 0, 2, &control).expect("it runs");
    // Each iteration adds 7 and the number of the rank to each, and then they are summed.
    let once = 3.0 * 7.0 + 3.0;
    let twice = 3.0 * once + once;
    for rank in 0..3 {
        assert_eq!(["w", "y", "x"].map(|name| first(&world, &mut ranks, rank, name)), [7.0, 7.0, twice]);
    }
    ranks.tear_down(&control).expect("it runs");
    for rank in 0..3 {
        let y = if rank == 1 { 14.0 } else { 7.0 };
        assert_eq!(["w", "y", "x"].map(|name| first(&world, &mut ranks, rank, name)), [3.0 * twice, y, twice]);
    }
}

/// The operations of blocks are verified one by one, and a wrong figure of a block would show in the final contents.
#[test]
fn blocks_are_verified() {
    let path = file("ranks_of_blocks.aorta", RANKS);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aorta"));
        command.args(["exec", "--effort", "sanity"]).arg(&path).args(arguments);
        let out = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{text}");
        text
    };
    let text = run(&["--backend", "host", "--ranks", "3", "--verify"]);
    assert!(text.contains("agree"), "{text}");
    run(&["--backend", "sim", "--ranks", "3"]);
    let Some(libraries) = doubles::cpu() else { return };
    verify(libraries, &path.display().to_string(), &["--ranks", "2"]);
}

/// Each command whose runs are others' runs the blocks in each: a block that hangs ends it, and `hangs: none` does not.
#[test]
fn commands_run_the_blocks() {
    let text = "param hangs = none in [none, first, last]\nstream s\nbuffer x: f32[64]\n\
                setup { on s { if hangs == first { spin(5s) } else { all_reduce(x -> x) } } }\n\
                step { on s { map(x + 1 -> x) } }\n\
                teardown { on s { if hangs == last { spin(5s) } else { all_reduce(x -> x) } } }\n";
    let path = file("blocks_of_commands.aorta", text);
    let path = path.display().to_string();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aorta"));
        let out = command.args(arguments).env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR")).output().expect("it runs");
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr))
    };
    let sides = ["--rounds", "6", "--iterations", "2", "--no-apart", "--backend", "host", "--timeout", "400ms"];
    for more in [&["--ranks", "2"][..], &["--launch", "graph"], &["--fresh"]] {
        for (hangs, expected) in [("none", Some(0)), ("first", Some(4)), ("last", Some(4))] {
            // The blocks of side b alone hang.
            let (code, printed) =
                run(&[&["ab", &path, "--b", &format!("--set hangs={hangs}")], &sides[..], more].concat());
            assert_eq!(code, expected, "{more:?} {hangs}\n{printed}");
            let block = if hangs == "first" { "`setup`" } else { "`teardown`" };
            assert_eq!(
                printed.contains(&format!("the {block} did not end")),
                hangs != "none",
                "{more:?} {hangs}\n{printed}"
            );
        }
    }
    let axis = ["--set", "hangs=first,last,none", "--backend", "host", "--timeout", "400ms", "--effort", "sanity"];
    let (code, printed) = run(&[&["sweep", &path], &axis[..]].concat());
    assert_eq!(code, Some(4), "{printed}");
    assert!(
        ["`setup`", "`teardown`"].iter().all(|block| printed.contains(&format!("the {block} did not end"))),
        "{printed}"
    );
    assert!(printed.contains("1 done, 2 failed"), "{printed}");
}

/// The simulator takes as long for an iteration, with a setup and without.
#[test]
fn blocks_are_in_no_figure() {
    let step = "stream s\nbuffer x: f32[1000000]\nstep { on s { f: map(x + 1 -> x) } }\n";
    let blocks = "setup { map(x * 2 -> x) }\nteardown { on s { for i in 0..9 { map(x * 2 -> x) } } }\n";
    let figures = |text: &str| {
        let path = file("figures_of_blocks.aorta", text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_aorta"));
        let record = path.with_extension("json");
        command.args(["exec", "--backend", "sim", "--effort", "sanity"]).arg(path).arg("--json").arg(&record);
        let out = command.output().expect("it runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = fs::read_to_string(record).expect("a record");
        let record: serde_json::Value = serde_json::from_str(&text).expect("a record");
        record["variants"].clone()
    };
    assert_eq!(figures(step)[0]["time"], figures(&format!("{step}{blocks}"))[0]["time"]);
}
