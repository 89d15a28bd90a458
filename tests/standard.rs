//! Definitions of the shipped modules on the CPU, against the operations that they stand for.

use aorta::backend::host::Host;
use aorta::base::MemoryId;
use aorta::compile::{CompileOptions, RankCount};
use aorta::exec::{self, Backend, Control, LaunchMode};
use aorta::schedule::{self, Schedule};

use crate::common;

/// The elements of a buffer on each rank after two iterations.
fn values(text: &str, world: u32, name: &str) -> Vec<Vec<f64>> {
    let options = CompileOptions { ranks: RankCount::Exactly(world), ..CompileOptions::default() };
    let compiled = common::compile("test.aorta", text, &options).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    let place = |rank: &aorta::plan::RankPlan| {
        schedule::place(&rank.program, &rank.plan, Host.topology(), &schedule::ScheduleOptions::default())
    };
    let schedules: Vec<Schedule> = compiled.ranks.iter().map(place).collect();
    let ranks = exec::RankSchedule::all(0, &compiled.ranks, &schedules);
    let opened = exec::prepare_ranks(&ranks, &Host, &common::exec_options());
    let mut opened = opened.unwrap_or_else(|error| panic!("{text}\n{error}"));
    opened.iterate(LaunchMode::Stream, 0, 2, &Control::default()).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let read = |(index, rank): (usize, &exec::RankSchedule)| {
        let program = rank.program;
        let named = |id: &MemoryId| program.names.name(program.memory(*id).name) == name;
        let memory = (0..program.memories.len()).map(MemoryId::from).find(named).expect("the file declares it");
        let bytes = opened.read(index, memory).expect("it can be read").expect("the CPU has memory");
        let dtype = program.layout(memory).dtype;
        bytes.chunks_exact(dtype.size() as usize).map(|element| dtype.load(element)).collect()
    };
    ranks.iter().enumerate().map(read).collect()
}

#[test]
fn a_ring_gathers_what_a_collective_gathers() {
    for (world, mesh, group) in [(1, "mesh a = 1", "a"), (4, "mesh a = 4", "a"), (6, "mesh a = 2, b = 3", "b")] {
        let size = if world == 6 { 3 } else { world };
        let text = |call: &str| {
            format!(
                "use std.ring\n{mesh}\nbuffer x: bf16[3, 5]\nbuffer y: bf16[{size}, 3, 5] = zeros\n\
                 step {{ map(x * 0.5 + rank -> x)  {call} }}\n"
            )
        };
        let ring = values(&text(&format!("ring.gather(x, {group} -> y)")), world, "y");
        assert_eq!(ring, values(&text(&format!("all_gather(x -> y) over {group}")), world, "y"), "{mesh}");
    }
}

/// Parts of the keys on three ranks give what one rank computes with all of them.
#[test]
fn ring_attention_is_exact() {
    let text = "
        use std.ring
        mesh cp = 3
        buffer q, o, part: f32[6, 5, 8] = random(1)
        buffer own: f32[2, 2, 5, 8] = random(2)
        buffer kv, all_kv: f32[3, 2, 2, 5, 8] = zeros
        buffer l, part_l: f32[6, 5, 1]
        buffer all_q: f32[3, 6, 5, 8]
        buffer whole: f32[6, 15, 8]
        buffer gap: f32[6, 5, 8]
        step {
          map(q * (cp.rank + 1) * 0.7 -> q)
          map(own + 0.3 * cp.rank -> kv[cp.rank])
          ring.causal_attention(q, kv, 6, 5, part, part_l, cp -> o, l)
          all_gather(q -> all_q) over cp
          all_gather(kv[cp.rank] -> all_kv) over cp
          tq: transpose(all_q, dims: [1, 0, 2, 3])
          tkv: transpose(all_kv, dims: [1, 2, 0, 3, 4])
          attention(view(tq, [6, 15, 8]), view(tkv[0], [2, 15, 8]), view(tkv[1], [2, 15, 8]), causal: true -> whole)
          map(abs(o - whole[.., 5 * cp.rank..5 * cp.rank + 5, ..]) -> gap)
        }";
    for rank in values(text, 3, "gap") {
        assert!(rank.iter().all(|gap| *gap < 1e-6), "{rank:?}");
    }
    let largest = values(text, 3, "o").concat().into_iter().fold(0.0, |top: f64, value| top.max(value.abs()));
    assert!(largest > 0.1, "{largest}");
}

/// Each stage adds its number, and the backward half comes by the same stages.
#[test]
fn a_pipeline_passes_all_stages() {
    let text = "
        use std.pipeline
        mesh pp = 3, dp = 2
        buffer x, dx: f32[4] = zeros
        step {
          pipeline.receive_forward(pp -> x)
          map(x + 1 -> x)
          pipeline.send_forward(x, pp)
          map(x * 10 -> dx)
          pipeline.receive_backward(pp -> dx)
          map(dx + 1 -> dx)
          pipeline.send_backward(dx, pp)
          if pp.rank == 0 { fill(0 -> x) }
        }";
    let forward: Vec<f64> = values(text, 6, "x").iter().map(|rank| rank[0]).collect();
    assert_eq!(forward, [0.0, 0.0, 2.0, 2.0, 3.0, 3.0]);
    let backward: Vec<f64> = values(text, 6, "dx").iter().map(|rank| rank[3]).collect();
    assert_eq!(backward, [33.0, 33.0, 32.0, 32.0, 31.0, 31.0]);
}

#[test]
fn a_sharded_optimizer_does_what_one_rank_does() {
    let text = |step: &str, state: u32| {
        format!(
            "use std.optimizer\nmesh dp = world / 2, other = 2\nbuffer w {{ a: f32[3, 4], b: f32[12] }} = random(3)\n\
             buffer g like w = random(5)\nbuffer m, v: f32[{state}] = zeros\nbuffer norm: f32\nstep {{ {step} }}\n"
        )
    };
    let whole = values(&text("adamw(g -> w, m, v, lr: 0.1)", 24), 6, "w");
    // The gradients are the same on all ranks, and so is their mean.
    let same = "broadcast(g -> g, root: 0)  broadcast(w -> w, root: 0)  ";
    let expected = values(&text(&format!("{same}adamw(g -> w, m, v, lr: 0.1)"), 24), 6, "w");
    let sharded = values(&text(&format!("{same}optimizer.sharded_adamw(g, 8, 0.1, dp -> w, m, v)"), 8), 6, "w");
    let near = |a: &[Vec<f64>], b: &[Vec<f64>], bound: f64| {
        a.iter().flatten().zip(b.iter().flatten()).all(|(a, b)| (a - b).abs() <= bound)
    };
    assert!(near(&expected, &sharded, 1e-5), "{expected:?}\n{sharded:?}");
    assert!(!near(&expected, &whole, 1e-3), "ranks have gradients of their own");
    // A limit above the norm changes nothing; one below it does, by the definition.
    let clipped = |limit: &str| {
        values(&text(&format!("optimizer.clipped_adamw(g, {limit}, 0.1 -> w, m, v, norm)"), 24), 1 + 1, "w")
    };
    let plain = values(&text("adamw(g -> w, m, v, lr: 0.1)", 24), 2, "w");
    assert!(near(&clipped("1000"), &plain, 1e-6));
    let by_hand =
        values(&text("n: grad_norm(g)  c: map(g * 0.5 / (n + 1e-6))  adamw(c -> w, m, v, lr: 0.1)", 24), 2, "w");
    assert!(near(&clipped("0.5"), &by_hand, 1e-6) && !near(&clipped("0.5"), &plain, 1e-9));
}

#[test]
fn experts_of_all_ranks_do_what_those_of_one_do() {
    let buffers = |experts: u32| {
        format!(
            "buffer x, y: f32[10, 8] = random(1)\nbuffer w_gate: f32[8, 4] = random(2)\n\
             buffer up: f32[4, 8, 6] = random(3)\nbuffer down: f32[4, 6, 8] = random(4)\n\
             buffer own_up: f32[{experts}, 8, 6]\nbuffer own_down: f32[{experts}, 6, 8]\n"
        )
    };
    let local = format!("use std.experts\n{}step {{ experts.local(x, w_gate, up, down, 2, 7 -> y) }}\n", buffers(4));
    let expected = values(&local, 1, "y");
    for world in [1, 2, 4] {
        let count = 4 / world;
        let text = format!(
            "use std.experts\nmesh ep = world\n{}step {{\n  broadcast(x -> x, root: 0) broadcast(w_gate -> w_gate, root: 0) \
             broadcast(up -> up, root: 0) broadcast(down -> down, root: 0)\n  let first = rank * {count}\n  \
             copy(up[first..first + {count}] -> own_up)  copy(down[first..first + {count}] -> own_down)\n  \
             experts.spread(x, w_gate, own_up, own_down, 2, 7, f32, {count}, 8, ep -> y)\n}}\n",
            buffers(count)
        );
        let found = values(&text, world, "y");
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-4;
        let alike = found.iter().all(|rank| rank.iter().zip(&expected[0]).all(near));
        assert!(alike, "{world} ranks: {found:?}\n{expected:?}");
        assert!(expected[0].iter().any(|value| value.abs() > 0.1), "experts compute something");
    }
}

/// Experts without a capacity give the same on one rank as spread over several, which send rows by counts.
#[test]
fn dropless_experts_of_all_ranks_do_what_those_of_one_do() {
    let text = |world: u32| {
        let count = 4 / world;
        format!(
            "use std.experts\nmesh ep = world\nbuffer x, y: f32[10, 8] = random(1)\nbuffer w_gate: f32[8, 4] = random(2)\n\
             buffer up: f32[4, 8, 6] = random(3)\nbuffer down: f32[4, 6, 8] = random(4)\n\
             buffer own_up: f32[{count}, 8, 6]\nbuffer own_down: f32[{count}, 6, 8]\nstep {{\n  \
             broadcast(x -> x, root: 0) broadcast(w_gate -> w_gate, root: 0) \
             broadcast(up -> up, root: 0) broadcast(down -> down, root: 0)\n  let first = rank * {count}\n  \
             copy(up[first..first + {count}] -> own_up)  copy(down[first..first + {count}] -> own_down)\n  \
             experts.dropless(x, w_gate, own_up, own_down, 2, 20, 20 * world, f32, {count}, 8, ep -> y)\n}}\n"
        )
    };
    let expected = values(&text(1), 1, "y").swap_remove(0);
    assert!(expected.iter().any(|value| value.abs() > 0.1), "experts compute something");
    for world in [2, 4] {
        for rank in values(&text(world), world, "y") {
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-4;
            assert!(rank.iter().zip(&expected).all(near), "{world} ranks: {rank:?}\n{expected:?}");
        }
    }
}
