//! Parts of buffers, groups of several factors, and streams that are chosen or differ by member: each against the same
//! program in simpler words, or against the definition.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use aorta::backend::host::Host;
use aorta::exec::{Control, LaunchMode};
use aorta::model::{AnalysisOptions, Program, Stream};
use aorta::schedule::{self, Topology};

use crate::common;
use crate::common::doubles;
use crate::common::draws::Draws;
use crate::common::effort;
use crate::common::world::World;
use crate::hip::verify;

const TYPES: [&str; 10] = ["f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i64", "i32", "i8", "u8"];

/// A part of a buffer, and where it begins in it.
struct Part {
    dims: Vec<u64>,
    start: u64,
}

/// A slice of a part without gaps: in brackets, and as a view of the elements that definition gives it.
fn slice(draws: &mut Draws, member: &str, number: usize, part: &Part) -> (String, String) {
    let single = draws.below(part.dims.len() as u64 + 1) as usize;
    let mut items = Vec::new();
    let mut start = 0;
    let step = |axis: usize| part.dims[axis + 1..].iter().product::<u64>();
    for axis in 0..single {
        let place = draws.below(part.dims[axis]);
        start += place * step(axis);
        items.push(place.to_string());
    }
    let mut dims = part.dims[single..].to_vec();
    if single < part.dims.len() && draws.below(2) == 0 {
        let from = draws.below(part.dims[single]);
        let to = from + 1 + draws.below(part.dims[single] - from);
        start += from * step(single);
        dims[0] = to - from;
        items.push(format!("{from}..{to}"));
    }
    let brackets = if items.is_empty() { String::new() } else { format!("[{}]", items.join(", ")) };
    let (from, count) = (part.start + start, dims.iter().product::<u64>());
    (format!("w{member}.p{number}{brackets}"), format!("view(w{member}[{from}..{}], {dims:?})", from + count))
}

/// Two texts that do the same: one with parts, one with views of a buffer with one dimension.
fn with_parts(seed: u64) -> [String; 2] {
    let mut draws = Draws::new(seed);
    let dtype = TYPES[seed as usize % TYPES.len()];
    let mut parts = Vec::new();
    let mut start = 0;
    for _ in 0..1 + draws.below(4) {
        let dims: Vec<u64> = (0..1 + draws.below(3)).map(|_| draws.pick(&[1, 2, 3, 5, 8, 17])).collect();
        parts.push(Part { start, dims });
        start += parts[parts.len() - 1].dims.iter().product::<u64>();
    }
    let (family, members) = match draws.below(2) {
        0 => ("", vec![""]),
        _ => ("[2]", vec!["[0]", "[1]"]),
    };
    let types: Vec<String> =
        parts.iter().enumerate().map(|(number, part)| format!("p{number}: {dtype}{:?}", part.dims)).collect();
    let mut texts = [
        format!(
            "stream s[2]\nbuffer w{family} {{ {} }} = random({seed})\nbuffer v like w{}\n",
            types.join(", "),
            members[0]
        ),
        format!("stream s[2]\nbuffer w{family}: {dtype}[{start}] = random({seed})\nbuffer v: {dtype}[{start}]\n"),
    ];
    texts.iter_mut().for_each(|text| text.push_str("step {\n"));
    for _ in 0..8 {
        let (member, number, stream) = (draws.pick(&members), draws.below(parts.len() as u64), draws.below(2));
        let number = number as usize;
        let pair = slice(&mut draws, member, number, &parts[number]);
        let value = draws.below(100);
        let whole = draws.below(4) == 0;
        let copied = draws.below(2) == 0;
        for (text, operand) in texts.iter_mut().zip([pair.0, pair.1]) {
            let operation = match (whole, copied) {
                (true, true) => format!("copy(w{member} -> v)"),
                (true, false) => format!("fill({value} -> v)"),
                (false, true) => format!("map({operand} + 1 -> {operand})"),
                (false, false) => format!("fill({value} -> {operand})"),
            };
            writeln!(text, "  on s[{stream}] {{ {operation} }}").expect("a text takes all");
        }
    }
    texts.map(|text| text + "}\n")
}

fn results(text: &str, mode: LaunchMode) -> Vec<Vec<u8>> {
    let (program, plan) = common::planned(text);
    common::results(&program, &plan, &Host, None, mode, 3)
}

/// The dependencies of each operation.
fn dependencies(text: &str) -> Vec<Vec<u32>> {
    let (program, plan) = common::planned(text);
    let of = |op| plan.steps[0].incoming(op).map(|edge| edge.from.0).collect();
    program.cycle[0].ids().map(of).collect()
}

#[test]
fn parts_are_ranges_of_their_buffer() {
    let (mut gaps, seeds) = (0, u64::from(effort::due_draws(120)));
    for seed in 0..seeds {
        let [parts, views] = with_parts(seed);
        assert_eq!(dependencies(&parts), dependencies(&views), "{parts}{views}");
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            assert_eq!(results(&parts, mode), results(&views, mode), "{mode:?}\n{parts}{views}");
        }
        gaps += u64::from(parts.contains(".."));
    }
    assert!(gaps > seeds / 6, "slices with ranges are among them");
}

/// The names of parts in plans are those of the file.
#[test]
fn plans_name_parts_as_files_do() {
    for seed in 0..u64::from(effort::due_draws(120)) {
        let [text, _] = with_parts(seed);
        let (program, _) = common::planned(&text);
        for op in program.cycle[0].ids() {
            for &view in program.cycle[0].outputs(op) {
                let name = program.view_text(view);
                let again =
                    text.rsplit_once("}\n").expect("a step").0.to_owned() + &format!("  fill(0 -> {name})\n}}\n");
                let (same, _) = common::planned(&again);
                let last = same.cycle[0].ids().last().expect("an operation");
                let found = same.cycle[0].outputs(last)[0];
                assert_eq!(same.views.extents(found), program.views.extents(view), "{name}\n{text}");
            }
        }
    }
}

#[test]
fn gradients_of_parts_are_those_of_ranges() {
    let text = |buffers: &str, up: &str, down: &str| {
        format!(
            "buffer x, dy, dx: f32[5, 7]\n{buffers}\
             def net(x, w -> y) {{\n  u: gemm(x, {up})\n  a: map(gelu(u))\n  gemm(a, {down} -> y)\n}}\n\
             step {{\n  f: net(x, w)\n  grad(f, dy -> dx, dw)\n  map(w - 0.1 * dw -> w)\n}}\n"
        )
    };
    let parts =
        text("buffer w { up: f32[7, 3], down: f32[3, 7] } = random(4)\nbuffer dw like w = zeros\n", "w.up", "w.down");
    let views = text(
        "buffer w: f32[42] = random(4)\nbuffer dw: f32[42] = zeros\n",
        "view(w[0..21], [7, 3])",
        "view(w[21..42], [3, 7])",
    );
    assert_eq!(results(&parts, LaunchMode::Stream), results(&views, LaunchMode::Stream));
}

#[test]
fn parts_of_several_types_are_buffers() {
    let parts = "
        buffer w[2] { a: f32[4, 6], b: i32[3] } = random(1)
        buffer v like w = random(1)
        step { for i in 0..2 { copy(w[i].a[.., 2..4] -> v.a[.., i..i + 2])  copy(v.b[1..3] -> w[i].b[0..2]) } }";
    let buffers = "
        buffer wa[2]: f32[4, 6] = random(1)
        buffer wb[2]: i32[3] = random(1)
        buffer va: f32[4, 6] = random(1)
        buffer vb: i32[3] = random(1)
        step { for i in 0..2 { copy(wa[i][.., 2..4] -> va[.., i..i + 2])  copy(vb[1..3] -> wb[i][0..2]) } }";
    assert_eq!(results(parts, LaunchMode::Stream), results(buffers, LaunchMode::Stream));
}

/// The init of a buffer in a block is the operation that it stands for.
#[test]
fn an_init_of_scratch_is_a_fill() {
    let text = |declared: &str| {
        format!(
            "stream a\nstream b\nbuffer x: bf16[3, 5]\nbuffer y[2]: bf16[3, 5]\nstep {{\n  for i in 0..2 {{\n\
             {declared}    on b {{ map(t[1] + x + i -> t[0]) map(t[0] + p.n[1] -> y[i]) }}\n  }}\n}}\n"
        )
    };
    let inits = text("    on a { buffer t[2] like x = ones  buffer p { m: i8[3], n: bf16[3, 5] } = zeros }\n");
    let fills = text(
        "    on a { buffer t[2] like x  fill(1 -> t)  buffer p { m: i8[3], n: bf16[3, 5] }\n\
         fill(0 -> p.m)  fill(0 -> p.n) }\n",
    );
    assert_eq!(dependencies(&inits), dependencies(&fills));
    assert_eq!(results(&inits, LaunchMode::Stream), results(&fills, LaunchMode::Stream));
}

#[test]
fn like_repeats_a_type() {
    let text = "
        buffer x[3]: f32[2, 5]
        buffer a like x  buffer b like x[1]  buffer c[2] like x[0][.., 1..4] in pinned = ones
        buffer i: i64[7]
        step {
          f: map(i * 2)
          buffer d like f
          buffer e like x[0][1]
          fill(0 -> a)  copy(x[0] -> b)  copy(x[0][.., 0..3] -> c[1])  copy(i -> d)  copy(x[0][1] -> e)
        }";
    let (program, _) = common::planned(text);
    let shape = |name: &str| {
        let of_name = |memory: &&aorta::model::Memory| program.names.name(memory.name) == name;
        let memory = program.memories.iter().find(of_name).expect("declared");
        let (dtype, dims) = program.shapes.get(memory.shape);
        format!("{dtype}{dims} {}", memory.space.name())
    };
    let found = ["a", "b", "c", "d", "e"].map(shape);
    assert_eq!(
        found,
        ["f32[2, 5] device", "f32[2, 5] device", "f32[2, 2, 3] pinned", "i64[7] device", "f32[5] device"]
    );
}

/// The members of the group of some factors, by definition: the ranks with the same place in all other factors, in the
/// order of their places in these.
fn members(sizes: &[u32], list: &[usize], rank: u32) -> Vec<u32> {
    let place = |rank: u32, axis: usize| rank / sizes[axis + 1..].iter().product::<u32>() % sizes[axis];
    let others = |axis: &usize| !list.contains(axis);
    let alike = |other: &u32| (0..sizes.len()).filter(others).all(|axis| place(*other, axis) == place(rank, axis));
    let mut found: Vec<u32> = (0..sizes.iter().product()).filter(alike).collect();
    found.sort_by_key(|&other| list.iter().map(|&axis| place(other, axis)).collect::<Vec<_>>());
    found
}

#[test]
fn groups_of_several_factors_are_those_of_the_definition() {
    let lists: [&[usize]; 9] = [&[0], &[2], &[0, 1], &[1, 0], &[0, 2], &[2, 0], &[1, 2], &[0, 1, 2], &[2, 1, 0]];
    for sizes in [[2, 3, 2], [1, 2, 3], [4, 1, 2], [2, 2, 2]] {
        let world: u32 = sizes.iter().product();
        let [a, b, c] = sizes;
        for list in lists {
            let names: Vec<&str> = list.iter().map(|&axis| ["a", "b", "c"][axis]).collect();
            let count: u32 = list.iter().map(|&axis| sizes[axis]).product();
            let text = format!(
                "mesh a = {a}, b = {b}, c = {c}\nmesh all = world\nbuffer x: f32[1]\nbuffer y: f32[{count}]\n\
                 step {{ fill(rank -> x)  all_gather(x -> y) over [{}] }}\n",
                names.join(", ")
            );
            let world = World::new(&text, world, &Host);
            let mut ranks = world.open(&Host, common::exec_options().timeout).unwrap_or_else(|error| panic!("{error}"));
            ranks.iterate(LaunchMode::Stream, 0, 1, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
            for (rank, (program, _)) in world.ranks.iter().enumerate() {
                let memory = (0..program.memories.len())
                    .map(aorta::base::MemoryId::from)
                    .find(|&id| program.names.name(program.memory(id).name) == "y")
                    .expect("declared");
                let bytes = ranks.read(rank, memory).expect("it can be read").expect("the CPU has memory");
                let dtype = program.layout(memory).dtype;
                let found: Vec<u32> = bytes.chunks_exact(4).map(|element| dtype.load(element) as u32).collect();
                assert_eq!(found, members(&sizes, list, rank as u32), "rank {rank} of\n{text}");
            }
        }
    }
}

fn analyzed(text: &str, rank: u32, world: u32) -> Program {
    let options = AnalysisOptions { rank, world, ..AnalysisOptions::default() };
    common::analyze_with(text, &options).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

#[test]
fn a_list_gives_each_member_its_option() {
    for seed in 0..40 {
        let mut draws = Draws::new(seed);
        let count = 1 + draws.below(6);
        let priorities: Vec<&str> = (0..count).map(|_| draws.pick(&["high", "normal", "low", "-3", "2 - 1"])).collect();
        let units: Vec<&str> = (0..count).map(|_| draws.pick(&["2", "17", "25%", "8 * 4"])).collect();
        let family = format!(
            "stream s[{count}](priority: [{}], units: [{}])\nstep {{ on s[0] {{ nop() }} }}\n",
            priorities.join(", "),
            units.join(", ")
        );
        let mut single = String::new();
        for ((number, priority), units) in priorities.iter().enumerate().zip(&units) {
            writeln!(single, "stream s{number}(priority: {priority}, units: {units})").expect("a text takes all");
        }
        single += "step { on s0 { nop() } }\n";
        let options = |stream: &Stream| (stream.priority, stream.units);
        let found: Vec<_> = analyzed(&family, 0, 1).streams.iter().map(options).collect();
        let expected: Vec<_> = analyzed(&single, 0, 1).streams.iter().map(options).collect();
        assert_eq!(found, expected, "{family}{single}");
    }
}

/// A stream that is chosen is the stream of the branch that is taken.
#[test]
fn a_chosen_stream_is_that_of_its_branch() {
    let head = "stream a\nstream b[3]\nbuffer x: f32[8]\nstep {\n  for i in 0..6 {\n";
    let chosen = "    on if i % 2 == rank { a } else if i > 3 { b[i - 3] } else { b[0] } { map(x[i] + 1 -> x[i]) }\n";
    let named = "    let s = if i % 2 == rank { a } else if i > 3 { b[i - 3] } else { b[0] }\n    on s { map(x[i] + 1 -> x[i]) }\n";
    let branches = "    if i % 2 == rank { on a { map(x[i] + 1 -> x[i]) } }\n    else if i > 3 { on b[i - 3] { map(x[i] + 1 -> x[i]) } }\n    else { on b[0] { map(x[i] + 1 -> x[i]) } }\n";
    for rank in 0..2 {
        let streams = |body: &str| -> Vec<u32> {
            let program = analyzed(&format!("{head}{body}  }}\n}}\n"), rank, 2);
            program.cycle[0].ops.iter().map(|op| op.stream.0).collect()
        };
        assert_eq!(streams(chosen), streams(branches), "rank {rank}");
        assert_eq!(streams(named), streams(branches), "rank {rank}");
        assert_eq!(streams(chosen).len(), 6);
    }
}

/// Parts that begin at odd places are read and written by kernels as by the CPU.
#[test]
fn kernels_reach_parts() {
    let Some(libraries) = doubles::cpu() else { return };
    // Of `f32` and of `bf16`.
    for seed in [1, 3] {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("parts{seed}.aorta"));
        fs::write(&path, &with_parts(seed)[0]).expect("a file");
        verify(libraries, &path.display().to_string(), &[]);
    }
}

/// Equal numbers share a queue, and the streams behind one that asks go on from its queue.
#[test]
fn a_stream_gets_the_queue_that_it_asks_for() {
    let text = "stream a\nstream s[4](queue: [0, 0, 5, 3])\nstream b\nstream c\nbuffer x: f32[8, 33]\nstep {\n  \
                on a { map(x[0] + 1 -> x[0]) }\n  for i in 0..4 { on s[i] { map(x[i] * 2 -> x[i + 1]) } }\n  \
                on b { map(x[6] - x[1] -> x[6]) }\n  on c { map(x[7] - x[2] -> x[7]) }\n}\n";
    let program = analyzed(text, 0, 1);
    let plan = aorta::plan::build(&program).expect("no race");
    let queues = |queues: u32| -> Vec<u32> {
        let topology = Topology { queues, by_priority: false, limits_units: false };
        let placed = schedule::place(&program, &plan, topology, &schedule::ScheduleOptions::default());
        placed.lanes.iter().map(|lane| lane.queue).collect()
    };
    assert_eq!(queues(4), [0, 0, 0, 1, 3, 0, 1]);
    assert_eq!(queues(8), [0, 0, 0, 5, 3, 4, 5]);
    assert_eq!(queues(1), [0; 7]);
    let Some(libraries) = doubles::cpu() else { return };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("queues.aorta");
    fs::write(&path, text).expect("a file");
    verify(libraries, &path.display().to_string(), &[]);
}
