//! How many operations the simulator runs in a second on one core: streams and graph, over programs of four kinds.
//!
//! `cargo bench --bench simulator`. Prints the best of five runs of each; the simulator works on one thread, and runs each
//! iteration, also one that is equal to the one before.

use std::time::Instant;

use aorta::backend::sim::Sim;
use aorta::compile;
use aorta::config::{Profile, Settings};
use aorta::exec::{self, Backend, Control, LaunchMode};

const KINDS: [(&str, &str); 4] = [
    ("launches", "on s[i % 16] { nop() }"),
    ("kernels with waits", "on s[i % 16] { map(x[i % 15] * 2 -> x[(i + 1) % 15]) }"),
    ("large kernels", "on s[i % 4] { gemm(bf16[2048, 2048], bf16[2048, 2048]) }"),
    (
        "kernels and copies",
        "on s[i % 15] { map(x[i % 15] * 2 -> x[i % 15]) } on s[15] { copy(x[i % 15] -> up[i % 15]) }",
    ),
];

fn main() {
    println!("{:<20} {:>8} {:>10} {:>16}", "program", "launch", "operations", "operations/s");
    for (name, body) in KINDS {
        for count in [10_000, 100_000] {
            let text = format!(
                "stream s[16]\nbuffer x: f32[16, 4096]\nbuffer up: f32[16, 4096] in pinned\n\
                 step {{ for i in 0..{count} {{ {body} }} }}\n"
            );
            for mode in [LaunchMode::Stream, LaunchMode::Graph] {
                let (operations, rate) = rate(&text, mode);
                println!("{name:<20} {:>8} {operations:>10} {rate:>16.0}", mode.name());
            }
        }
    }
}

/// Operations of an iteration, and how many the simulator runs in a second.
fn rate(text: &str, mode: LaunchMode) -> (usize, f64) {
    let compiled =
        aorta::compile("bench.aorta", text, &compile::CompileOptions::default()).expect("the program is right");
    let sim = Sim::new(Profile::named("h200").expect("embedded")).each_iteration();
    let (program, schedules) = (compiled.program(), compiled.schedules(sim.topology()));
    let options = exec::SessionOptions {
        observed_operations: 0,
        gate_depth: 0,
        ..exec::SessionOptions::of(&Settings::default())
    };
    let mut session = exec::prepare(exec::RankSchedule::all(0, &compiled.ranks, &schedules)[0], &sim, &options)
        .expect("the simulator opens");
    if mode == LaunchMode::Graph {
        session.capture().expect("the simulator captures");
    }
    let operations = program.cycle[0].ops.len();
    let iterations = (1_000_000 / operations).max(1) as u64;
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            session.iterate(mode, 0, iterations, &Control::default()).expect("the simulator runs");
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    (operations, operations as f64 * iterations as f64 / best)
}
