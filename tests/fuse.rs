//! `--fuse`: what is merged and what is not, and that results stay.

mod generator;
mod random;

use std::collections::BTreeMap;

use aorta::backend::host::Host;
use aorta::base::MemoryId;
use aorta::base::random::hash;
use aorta::compile::{self, Compiled};
use aorta::exec::{Control, LaunchMode};
use aorta::fuse;
use aorta::measure::record::FusionRecord;
use aorta::measure::{self, VerifyRequest};
use aorta::model::{MemoryKind, Program};
use aorta::plan::{self, Plan};
use aorta::schedule;
use proptest::prelude::*;

use crate::common;
use crate::common::draws::Draws;
use crate::common::folder::Folder;
use crate::common::{doubles, programs};
use crate::hip;

fn fused(text: &str) -> Compiled {
    let options = compile::CompileOptions { fuse: true, ..compile::CompileOptions::default() };
    common::compile("t.aorta", text, &options).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

/// Number of operations that fusion has removed from a program.
fn operations_saved(fusion: &fuse::Fusion) -> usize {
    fusion.merged.iter().map(|one| (one.members.len() - 1) * one.count).sum()
}

/// The lines of `aorta plan --fuse` about fusion, without the first.
fn told(text: &str) -> Vec<String> {
    let compiled = fused(text);
    let record = FusionRecord::of(&compiled.fused[0], &|span| compiled.sources.place(span));
    record.lines().into_iter().skip(1).map(|line| line.trim().to_owned()).collect()
}

/// A step of one stream with operations on `f32[64, 128]`.
fn on_s(step: &str) -> String {
    format!(
        "stream s\nstream t\nbuffer x, y, z, r: f32[64, 128]\nbuffer b: f32[128]  buffer total: f32\nbuffer w: f32[128, 128]\nstep {{ {step} }}\n"
    )
}

#[test]
fn chains_are_merged() {
    let cases: &[(&str, &[&str])] = &[
        (
            "on s { h: map(x * 2) g: map(h + b) o: map(relu(g) -> y) }",
            &["h+g+o: map for map + map + map, 128 KiB less moved"],
        ),
        // A diamond.
        (
            "on s { h: map(x * 2) g: map(h + 1) k: map(h - 1) o: map(g * k -> y) }",
            &["h+g+k+o: map for map + map + map + map, 224 KiB less moved"],
        ),
        // A buffer keeps its value, and is an output of the whole.
        ("on s { h: map(x * 2 -> y) g: map(y + 1 -> z) }", &["h+g: map for map + map, 32 KiB less moved"]),
        // Updates in place.
        ("on s { h: map(x * 2 -> x) g: map(x + 1 -> x) }", &["h+g: map for map + map, 64 KiB less moved"]),
        (
            "on s { a: map(x + r -> x) n: rms_norm(x, b -> x) }",
            &["a+n: fused_rms_norm for map + rms_norm, 64 KiB less moved"],
        ),
        ("on s { h: map(x * x) g: sum(h + b, dims: [1]) }", &["h+g: sum for map + sum, 64 KiB less moved"]),
        ("on s { p: gemm(x, w) a: map(relu(p + b) -> y) }", &["p+a: gemm for gemm + map, 64 KiB less moved"]),
        (
            "on s { p: gemm(x, w) a: map(p + b) c: map(max(a, 0) -> y) }",
            &["p+a+c: gemm for gemm + map + map, 128 KiB less moved"],
        ),
        ("on s { p: gemm(x, w) a: map(y + p -> y) }", &["p+a: gemm for gemm + map, 64 KiB less moved"]),
        ("on s { q: transpose(w) p: gemm(x, q -> y) }", &["q+p: gemm for transpose + gemm, 128 KiB less moved"]),
        // The sum is not stored, unless something else reads it.
        (
            "on s { a: map(x + r) n: rms_norm(a, b -> y) }",
            &["a+n: fused_rms_norm for map + rms_norm, 64 KiB less moved"],
        ),
        (
            "on s { a: map(x + r -> z) n: layer_norm(a, b, b) o: map(n * 2 -> y) }",
            &["a+n+o: fused_layer_norm for map + layer_norm + map, 96 KiB less moved"],
        ),
        (
            "on s { a: map(x * 2) n: softmax(a) o: map(n * r + a -> y) }",
            &["a+n+o: fused_softmax for map + softmax + map, 160 KiB less moved"],
        ),
        (
            "on s { a: map(x * r) n: sum(a, dims: [1], keepdim: true) o: map(x * (r - n) -> y) }",
            &["a+n+o: fused_sum for map + sum + map, 128.5 KiB less moved"],
        ),
        // Another stream waits for the whole.
        (
            "on s { h: map(x * 2) g: map(h + 1 -> y) } on t after g { map(r + 1 -> z) }",
            &["h+g: map for map + map, 64 KiB less moved"],
        ),
        // The first moves to the second, over work that has nothing to do with it.
        (
            "on s { h: map(x * 2) o: gemm(r, w -> z) g: map(h + 1 -> y) }",
            &["h+g: map for map + map, 64 KiB less moved"],
        ),
    ];
    for (step, expected) in cases {
        assert_eq!(told(&on_s(step)), *expected, "{step}");
    }
}

#[test]
fn chains_that_stay_apart_say_why() {
    let cases: &[(&str, &str)] = &[
        (
            "on s { h: map(x * 2) } on t { o: map(h + 1 -> x) } on s { g: map(h + x -> y) }",
            "h -> o at t.aorta:6:41: they are on the streams `s` and `t` | o -> g at t.aorta:6:69: they are on the streams `t` and `s` | \
             h -> g at t.aorta:6:69: broken by `o` on stream `t` at t.aorta:6:41",
        ),
        (
            "on s { h: map(x * 2) } on t { g: map(h + 1 -> y) }",
            "h -> g at t.aorta:6:41: they are on the streams `s` and `t`",
        ),
        (
            "on s { h: map(x * 2) sync() g: map(h + 1 -> y) }",
            "h -> g at t.aorta:6:39: broken by `sync` on stream `s` at t.aorta:6:29",
        ),
        ("on s { h: map(x * 2) sum(h, dims: [0] -> b) }", ""),
        (
            "on s { h: map(x * 2 -> y) g: sum(y, dims: [1]) }",
            "h -> g at t.aorta:6:37: the merged operation would have to store the buffer `y` too, which it cannot",
        ),
        (
            "on s { h: cast(x, to: i32) g: map(h + 1 -> y) }",
            "h -> g at t.aorta:6:38: the value between them is i32, which rounds it to fewer values",
        ),
        ("on s { h: cast(x, to: f64) g: map(h + 1.5 -> y) }", "h -> g at t.aorta:6:38: they compute in f64 and f32"),
        (
            "on s { p: gemm(x, w) g: map(tanh(p) -> y) }",
            "p -> g at t.aorta:6:32: a product takes only a bias, `relu`, `gelu`, `gelu_tanh` or `silu`, and a sum with \
             its output",
        ),
        (
            "on s { h: map(x * 2 -> x) g: map(x[0..32] + 1 -> y[0..32]) }",
            "h -> g at t.aorta:6:37: one writes a part of `x` that the other uses as another slice",
        ),
        // Each element of a sum of constants counts once for each element that they fill.
        (
            "on s { n: sum(x, dims: [1], keepdim: true) g: map(x - n -> y) o: cumsum(n, dim: 0) }",
            "n -> g at t.aorta:6:54: `output of n` is also used by `o` at t.aorta:6:73 | \
             n -> o at t.aorta:6:73: no operation does the work of `sum` and `cumsum`",
        ),
        (
            "on s { n: softmax(x) g: sum(n * n, dims: [1]) }",
            "n -> g at t.aorta:6:32: no operation does the work of `softmax` and `sum`",
        ),
        ("on s { h: fill(0.5 -> y) g: sum(y + b -> total) }", "h -> g at t.aorta:6:36: they go over different shapes"),
        (
            "on s { h: map(x * 2) g: cumsum(h, dim: 1 -> y) }",
            "h -> g at t.aorta:6:32: no operation does the work of `map` and `cumsum`",
        ),
        // `k` runs once `o` is complete, because `h` waits for it on the same stream.
        (
            "on t { o: spin(2us) } on s after o { h: map(x * 2) } on s { k: cumsum(r, dim: 1 -> z) g: map(h + z -> y) }",
            "k -> g at t.aorta:6:97: no operation does the work of `cumsum` and `map` | \
             h -> g at t.aorta:6:97: broken by `k` on stream `s` at t.aorta:6:71",
        ),
    ];
    for (step, expected) in cases {
        let told = told(&on_s(step)).join(" | ");
        assert_eq!(told.strip_prefix("not fused: | ").unwrap_or_default(), *expected, "{step}: {told}");
    }
    let metric = on_s("on s { h: map(x * 2) g: map(h + 1 -> y) }") + "metric own = time(h)\n";
    assert!(told(&metric).join(" ").contains("a metric or an expectation names `h`"), "{:?}", told(&metric));
}

/// Copies that move elements to other places, and places of a wide type.
#[test]
fn few_long_rows_stay_apart() {
    let told = told("buffer x, y: f32[2, 100000]\nstep { h: map(x * 2) g: softmax(h -> y) }\n").join(" | ");
    assert!(told.ends_with(": its rows are few and so long that several blocks share one"), "{told}");
}

#[test]
fn copies_keep_their_places() {
    let text = |step: &str| {
        format!(
            "stream s\nbuffer pool: f32[2, 8] = random(1)\nbuffer y: f32[2, 8]\nbuffer x: f32[2, 1] = iota\nbuffer z, q: f32[2, 2]\n\
             buffer best: i64[2]\nbuffer k: i64[2] = iota\nstep {{ on s {{ {step} }} }}\n"
        )
    };
    let list = text("c: copy(pool, indices: [1, 0]) m: map(c * 2 -> y)");
    assert_eq!(check_alike(&list, 1, 0.0), 0);
    let turned = text("c: map(0 * x -> q[.., 0..1]) buffer h: f32[1, 2] copy(x -> h) m: map(h + z -> q)");
    assert_eq!(check_alike(&turned, 1, 0.0), 0);
    assert_eq!(check_alike(&text("c: copy(pool) m: map(c * 2 -> y)"), 1, 0.0), 1);
    // A kernel that finds places computes in the type of the values.
    assert_eq!(check_alike(&text("c: map(pool * 2) m: argmax(c, dims: [1] -> best)"), 1, 0.0), 1);
}

/// A merged operation that waits for the answer to what its own rank sends would never begin: no rank merges any.
#[test]
fn ranks_that_would_wait_in_a_circle_merge_nothing() {
    let text = "stream s\nstream t\nstream u\nbuffer x, a, y, q: f32[64]\nstep {\n\
                if rank == 0 {\n\
                on t { recv(-> y, from: 1) }\n\
                on s { h: map(x * 2 -> a) }\n\
                on u { send(a, to: 1) }\n\
                on s { g: map(a + y -> q) }\n\
                } else { on u { recv(-> a, from: 0) } on t { send(a, to: 0) k: map(x * 2) l: map(k + a -> q) } } }\n";
    let options = compile::CompileOptions {
        fuse: true,
        ranks: compile::RankCount::Exactly(2),
        ..compile::CompileOptions::default()
    };
    let compiled = common::compile("t.aorta", text, &options).unwrap_or_else(|errors| panic!("{errors}"));
    let record = FusionRecord::of_rank(&compiled, 1).expect("it was asked for");
    assert_eq!(
        record.lines(),
        ["not fused: with merged operations, rank 0 and rank 1 wait for each other, at t.aorta:7:8"]
    );
    assert!(!compiled.is_fused());
    let operations = |rank: usize| compiled.ranks[rank].program.cycle[0].ops.len();
    assert_eq!([operations(0), operations(1)], [4, 4]);
}

/// The bytes of every buffer after some iterations on the CPU, by name.
fn left(program: &Program, plan: &Plan, iterations: u64) -> BTreeMap<String, Vec<f64>> {
    let schedule =
        common::placed(program, plan, &Host, &schedule::ScheduleOptions { streams: None, share_scratch: true });
    let mut session = common::session(program, plan, &schedule, &Host);
    session.iterate(LaunchMode::Stream, 0, iterations, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let buffers = (0..program.memories.len()).map(MemoryId::from);
    let buffers = buffers.filter(|memory| matches!(program.memory(*memory).kind, MemoryKind::Buffer(_)));
    let named = |memory: MemoryId| program.names.name(program.memory(memory).name).to_owned();
    buffers.map(|memory| (named(memory), common::elements(&mut session, program, memory))).collect()
}

/// Fuses a program and checks that buffers are left alike, within `bound` of the largest element of a buffer. Returns the
/// number of operations that went.
fn check_alike(text: &str, iterations: u64, bound: f64) -> usize {
    let (program, plan) = common::planned(text);
    let (rewritten, fusion) = fuse::fuse(program.clone());
    let again = plan::build(&rewritten).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
    let (before, after) = (left(&program, &plan, iterations), left(&rewritten, &again, iterations));
    for (name, values) in &before {
        let size = values.iter().map(|value| value.abs()).fold(1e-3, f64::max);
        let pairs = values.iter().zip(&after[name]);
        for (index, (a, b)) in pairs.enumerate().filter(|(_, (a, b))| a.to_bits() != b.to_bits()) {
            assert!((a - b).abs() <= bound * size, "{name}[{index}] is {a}, and {b} after fusion\n{text}\n{fusion:#?}");
        }
    }
    operations_saved(&fusion)
}

proptest! {
    #![proptest_config(crate::common::properties(60))]

    #[test]
    fn overlapping_slices_on_many_streams_stay_alike(statements in programs::statements(3, 24)) {
        check_alike(&programs::text(&statements, 3, ""), 2, 1e-4);
    }

    #[test]
    fn overlapping_iterations_stay_alike(statements in programs::statements(2, 20), depth in 1..4u32) {
        check_alike(&programs::text(&statements, 2, &format!("(sync: end, depth: {depth})")), 3, 1e-4);
    }

    #[test]
    fn iterations_in_turns_stay_alike(turns in programs::turns(2, 10)) {
        check_alike(&programs::turns_text(&turns, 2, ""), 5, 1e-4);
    }

    #[test]
    fn declared_orders_stay(text in programs::declared(3, 16, Just("(order: declared)".to_owned()))) {
        let Ok(compiled) = common::compile("t.aorta", &text, &compile::CompileOptions::default()) else { return Ok(()) };
        let (program, _) = common::take_rank(compiled);
        let (rewritten, _) = fuse::fuse(program);
        prop_assert!(plan::build(&rewritten).is_ok(), "{}", text);
        check_alike(&text, 2, 1e-4);
    }
}

/// A random program of chains of one type: elementwise expressions with broadcasts, products, norms and reductions.
fn chains(seed: u64, dtype: &str) -> String {
    let mut count = 0;
    let mut draw = |limit: usize| {
        count += 1;
        (hash(seed, count) % limit as u64) as usize
    };
    let streams = 1 + draw(2);
    let mut text = format!(
        "stream s[{streams}]\nbuffer a, b, c, d: {dtype}[16, 32]\nbuffer v: {dtype}[32]\nbuffer u: {dtype}[16, 1]\n\
         buffer w: {dtype}[32, 32]\nbuffer m: {dtype}[32]\nstep {{\n"
    );
    // Values of the step, by shape.
    let mut full: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
    let others = ["v", "u", "0.5", "a[3]"];
    for number in 0..3 + draw(12) {
        let recent = |draw: &mut dyn FnMut(usize) -> usize, all: &[String]| {
            let from = if draw(3) == 0 { 0 } else { all.len().saturating_sub(3) };
            all[from + draw(all.len() - from)].clone()
        };
        let (x, y) = (recent(&mut draw, &full), recent(&mut draw, &full));
        let other = others[draw(others.len())];
        // An output is no slice that the operation reads, or the same one where it can work in place.
        let (kind, buffer) = (draw(15), ["a", "b", "c", "d"][draw(4)]);
        let is_read = (matches!(kind, 5 | 11) && x == buffer) || (other == "a[3]" && buffer == "a");
        let target = if draw(4) == 0 && !is_read { format!(" -> {buffer}") } else { String::new() };
        let operation = match kind {
            0 => format!("map(tanh({x}) + {other}{target})"),
            1 => format!("map(0.5 * {x} - 0.25 * {y}{target})"),
            2 => format!("map(relu({x}) * {other}{target})"),
            3 => format!("map(if {x} > {y} {{ {x} }} else {{ 0.5 }}{target})"),
            4 => format!("map(sigmoid({x}) * {y}{target})"),
            5 => format!("gemm({x}, w{target})"),
            6 => format!("map({x} + v{target})"),
            7 => format!("map(max({x}, 0){target})"),
            8 => format!("rms_norm({x}, v{target})"),
            9 => format!("map({x} + {y}{target})"),
            10 => format!("sum({x} * 0.1, dims: [0] -> m)"),
            11 => format!("softmax({x}{target})"),
            12 => format!("layer_norm({x}, v, v{target})"),
            // The output repeats the expression.
            13 => format!("map({other} * 2 - 0.5 -> {})", if other == "a[3]" { "b" } else { buffer }),
            _ => format!("cast({x}, to: {dtype})"),
        };
        let is_full = !operation.starts_with("sum") && kind != 13;
        text += &format!("  on s[{}] {{ t{number}: {operation} }}\n", draw(streams));
        if is_full && target.is_empty() {
            full.push(format!("t{number}"));
        }
    }
    text + "}\n"
}

fn seeds() -> std::ops::Range<u64> {
    0..if common::effort::is_long() { 2000 } else { common::effort::draws(150).into() }
}

#[test]
fn random_chains_stay_alike() {
    let saved: usize = seeds().map(|seed| check_alike(&chains(seed, "f64"), 2, 1e-9)).sum();
    assert!(2 * saved > seeds().count(), "{saved} operations were merged");
}

#[test]
fn random_chains_are_verified() {
    for seed in seeds().take(60) {
        let dtype = ["f32", "bf16", "f16"][seed as usize % 3];
        let text = chains(seed + 5000, dtype);
        let compiled = fused(&text);
        let rank = &compiled.ranks[0];
        let question = VerifyRequest {
            ranks: &[(0, &*rank.program, &*rank.plan)],
            backend: &Host,
            streams: None,
            modes: &[LaunchMode::Stream],
            options: common::exec_options(),
            control: &Control::default(),
        };
        let verified = measure::verify(&question).unwrap_or_else(|error| panic!("{error}")).expect("nobody stops it");
        assert!(verified.record.held, "{text}\n{:#?}", verified.record.mistakes);
    }
}

#[test]
fn kernels_of_random_chains_compile() {
    let Some(nvrtc) = crate::kernels::nvrtc() else { return };
    let mut sources = BTreeMap::new();
    for seed in seeds().take(common::effort::draws(40) as usize) {
        let dtype = ["f32", "bf16", "f16", "f64"][seed as usize % 4];
        let compiled = fused(&chains(seed + 9000, dtype));
        for launch in compiled.program().specs.iter().flat_map(|spec| spec.launch()) {
            let kernels = launch.kernels().iter().map(|kernel| (kernel.source.text.clone(), kernel.source.clone()));
            sources.extend(kernels.collect::<Vec<_>>());
        }
    }
    let sources: Vec<_> = sources.into_values().collect();
    common::parallel::map(&sources, |source| {
        let code = nvrtc.compile(source, "sm_90a");
        code.unwrap_or_else(|log| panic!("{}:\n{log}\n{}", source.name, source.text));
    });
}

/// Fused kernels, as a compiler of AMD's makes them, compute what their references say.
#[test]
fn random_chains_agree_with_the_cpu_on_the_double() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    for seed in seeds().take(3) {
        let text = chains(seed + 7000, ["bf16", "f32", "f16"][seed as usize % 3]);
        let file = folder.write(&format!("chain{seed}.aorta"), text);
        hip::verify(libraries, &file, &[&doubles::RESULTS_ONLY[..], &["--fuse"]].concat());
    }
}

/// Chains along rows of drawn lengths: short, odd, and longer than registers hold.
#[test]
fn chains_along_rows_of_any_length_agree_with_the_cpu_on_the_double() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    for (seed, dtype) in common::effort::chosen((0..).zip(["f32", "bf16", "f16", "f64"])) {
        let mut draws = Draws::new(seed + 300);
        let mut draw = |limit: u64| draws.below(limit);
        let (mut buffers, mut step) = (String::new(), String::new());
        for case in 0..5 {
            // The longest is more than the registers of a block hold, and needs as many rows as there are units.
            let length = match case {
                4 if dtype == "f64" => 16_392,
                0 => 1 + draw(40),
                1 | 2 => 8 * (1 + draw(300)),
                _ => 1 + draw(3000),
            };
            let rows = if length > 16_384 { 132 } else { 1 + draw(9) };
            let full = format!("{dtype}[{rows}, {length}]");
            buffers += &format!(
                "buffer x{case}, r{case}, s{case}, y{case}, z{case}: {full}\nbuffer w{case}: {dtype}[{length}]\n\
                 buffer c{case}: {dtype}[{rows}, 1]\n"
            );
            let before = ["tanh(x#) + r#", "x# * w# + r#", "s# - c# * r# + x#", "x# * 0.5"][draw(4) as usize];
            let core = [
                "softmax(h#)",
                "softmax(h#, scale: 0.5)",
                "rms_norm(h#, w#)",
                "layer_norm(h#, w#, w#)",
                "sum(h# * r#, dims: [-1], keepdim: true)",
                "mean(h#, dims: [1], keepdim: true)",
            ];
            let core = core[draw(6) as usize];
            let behind = ["n# * s# + w#", "relu(n#) + h# * s#", "n# * c# + s#", "n# + x#"][draw(4) as usize];
            let kept = if draw(2) == 0 { " -> z#" } else { "" };
            let chain = format!("  h#: map({before}{kept})\n  n#: {core}\n  map({behind} -> y#)\n");
            step += &chain.replace('#', &case.to_string());
        }
        let text = format!("{buffers}step {{\n{step}}}\n");
        let merged: usize = fused(&text).fused[0].merged.iter().map(|one| one.count).sum();
        assert_eq!(merged, 5, "{text}");
        let file = folder.write(&format!("rows{seed}.aorta"), text);
        hip::verify(libraries, &file, &[&doubles::RESULTS_ONLY[..], &["--fuse"]].concat());
    }
}

/// A merged kernel that does not compile leaves the program as it was, and the record says so.
#[test]
fn a_kernel_that_does_not_compile_is_not_merged() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let text = "stream s\nbuffer x: f16[77]\nbuffer w, v: f32[77]\nstep {\n  \
                on s { g: cast(x, to: f32) update: sgd(g -> w, v, momentum: 0.77, nesterov: true) }\n}\n";
    let (file, record) = (folder.write("own.aorta", text), folder.path("record.json"));
    let output = hip::run(libraries, "compile:map", &[&file, "--fuse", "--json", &record]);
    assert_eq!(output.code, Some(0), "{}", output.printed);
    assert!(
        output.printed.contains("The run continues without merged operations: the kernel of this map"),
        "{}",
        output.printed
    );
    assert!(output.printed.contains("not fused: the kernel of this map does not compile"), "{}", output.printed);
    let record = folder.read("record.json");
    assert!(record.contains("\"refused\": \"the kernel of this map does not compile, at"), "{record}");
}

/// The option goes through scenarios and records to every command that runs something.
#[test]
fn the_option_travels() {
    let folder = Folder::new();
    let text = "stream s\nbuffer x, y: f32[64]\nstep { on s { h: map(x * 2) g: map(h + 1 -> y) } }\n";
    let file = folder.write("w.aorta", text);
    let scenario = folder.write("s.ron", "(workload: \"w.aorta\", backend: \"sim\", fuse: true)\n");
    let suite = "(description: \"d\", effort: sanity, cases: [(workload: \"w.aorta\", fuse: true)])\n";
    let suite = folder.write("suite.ron", suite);
    let aorta = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_aorta")).args(arguments).output();
        let output = output.expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {text}");
        text
    };
    let [record, again, cases] = ["a.json", "b.json", "c.json"].map(|name| folder.path(name));
    let sanity = ["--effort", "sanity"];
    let fused = "fused: 1 operation in place of 2, 512 B less moved";
    let runs: [&[&str]; 2] = [&["exec", &file, "--backend", "sim", "--fuse"], &["exec", &scenario, "--json", &record]];
    for arguments in runs {
        let told = aorta(&[arguments, &sanity].concat());
        assert!(told.contains(fused), "{arguments:?}: {told}");
    }
    let told = aorta(&["exec", &record, "--json", &again]);
    assert!(told.contains(fused), "{told}");
    assert!(aorta(&["plan", &scenario]).contains("h+g: map for map + map"));
    assert!(aorta(&["suite", &suite, "--dry-run", "--backend", "sim"]).contains("--fuse"));
    aorta(
        &[&["sweep", &file, "--streams", "1,2", "--fuse", "--backend", "sim", "--json", &cases], &sanity[..]].concat(),
    );
    assert!(folder.read("c.json").contains("h+g"));
    aorta(&["ab", &file, "--backend", "sim", "--b", "--fuse", "--rounds", "6", "--no-apart"]);
}
