//! Training of the transformer of `fsdp_overlap` compared with a forward pass in double precision, in code that shares
//! nothing with the operations: gradients are its finite differences, over the data of all ranks. Sharded training is
//! compared with training of whole weights.

use aorta::backend::host::Host;
use aorta::base::MemoryId;
use aorta::compile::Compiled;
use aorta::exec::{self, Backend, Control, LaunchMode, RankSchedule, Ranks};
use aorta::model::MemoryKind;
use aorta::schedule::Schedule;

use crate::common;
use crate::common::shipped;

const LAYERS: usize = 2;
const HIDDEN: usize = 8;
const HEADS: usize = 2;
const KV_HEADS: usize = 1;
const FFN: usize = 6;
const VOCAB: usize = 101;
const SEQ: usize = 4;
const BATCH: usize = 2;
const SIZE: usize = HIDDEN / HEADS;
const QKV: usize = (HEADS + 2 * KV_HEADS) * SIZE;

/// A run of the file on some ranks, after some steps.
struct Run {
    compiled: Compiled,
    ranks: Vec<Vec<(String, Vec<f64>)>>,
}

impl Run {
    fn new(world: u32, steps: u64, set: &[(&str, &str)]) -> Run {
        let sizes = [
            ("layers", LAYERS),
            ("hidden", HIDDEN),
            ("heads", HEADS),
            ("kv_heads", KV_HEADS),
            ("ffn", FFN),
            ("vocab", VOCAB),
            ("seq", SEQ),
            ("batch", BATCH),
        ];
        let sizes = sizes.map(|(name, value)| (name, value.to_string()));
        let mut all: Vec<(&str, &str)> = sizes.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.extend([("dtype", "f32"), ("host", "1"), ("clip", "1000000000.0")]);
        all.extend(set);
        let text = shipped::named("fsdp_overlap").text;
        // Weights that are large enough for each part of a layer to matter.
        assert!(text.contains(", 0.02)"), "the file has small weights");
        let text = text.replace(", 0.02)", ", 0.4)");
        let compiled = shipped::compile("fsdp_overlap.aorta", &text, None, &all, world);
        let compiled = compiled.unwrap_or_else(|errors| panic!("{errors}"));
        let schedules = compiled.schedules(Host.topology());
        let mut opened = open(&compiled, &schedules);
        opened.iterate(LaunchMode::Stream, 0, steps, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
        let ranks = (0..world as usize).map(|rank| contents(&compiled, &mut opened, rank)).collect();
        drop(opened);
        Run { compiled, ranks }
    }

    /// All buffers of that name on a rank, one behind the other.
    fn read(&self, rank: usize, name: &str) -> Vec<f64> {
        let found: Vec<&Vec<f64>> =
            self.ranks[rank].iter().filter(|(held, _)| held == name).map(|(_, values)| values).collect();
        assert!(!found.is_empty(), "the file has a buffer {name}");
        found.into_iter().flatten().copied().collect()
    }

    fn world(&self) -> usize {
        self.compiled.ranks.len()
    }
}

fn open(compiled: &Compiled, schedules: &[Schedule]) -> Ranks {
    let ranks = RankSchedule::all(0, &compiled.ranks, schedules);
    exec::prepare_ranks(&ranks, &Host, &common::exec_options()).unwrap_or_else(|error| panic!("{error}"))
}

fn contents(compiled: &Compiled, ranks: &mut Ranks, rank: usize) -> Vec<(String, Vec<f64>)> {
    let program = &compiled.ranks[rank].program;
    let buffers = (0..program.memories.len())
        .map(MemoryId::from)
        .filter(|id| matches!(program.memory(*id).kind, MemoryKind::Buffer(_)));
    let read = |id: MemoryId| {
        let dtype = program.layout(id).dtype;
        let bytes = ranks.read(rank, id).unwrap_or_else(|error| panic!("{error}")).expect("it has memory");
        let values = bytes.chunks_exact(dtype.size() as usize).map(|element| dtype.load(element)).collect();
        (program.names.name(program.memory(id).name).to_owned(), values)
    };
    buffers.map(read).collect()
}

/// `row` times the matrix with `columns` columns that begins at `matrix[0]`.
fn times(row: &[f64], matrix: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).map(|c| row.iter().zip(matrix.chunks(columns)).map(|(x, line)| x * line[c]).sum()).collect()
}

fn norm(row: &[f64], weight: &[f64]) -> Vec<f64> {
    let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    row.iter().zip(weight).map(|(x, w)| x / (square + 1e-6).sqrt() * w).collect()
}

/// A head's vector at a position, rotated.
fn rotated(x: &[f64], position: usize) -> Vec<f64> {
    let half = SIZE / 2;
    let turn = |j: usize| {
        let angle = position as f64 * 10000f64.powf(-2.0 * j as f64 / SIZE as f64);
        (angle.cos(), angle.sin())
    };
    let first = (0..half).map(|j| x[j] * turn(j).0 - x[j + half] * turn(j).1);
    let second = (0..half).map(|j| x[j + half] * turn(j).0 + x[j] * turn(j).1);
    first.chain(second).collect()
}

/// The parts of a layer's weights: norm, qkv, out, norm, gate, up, down.
fn parts(w: &[f64]) -> [&[f64]; 7] {
    let sizes = [HIDDEN, HIDDEN * QKV, HIDDEN * HIDDEN, HIDDEN, HIDDEN * FFN, HIDDEN * FFN, FFN * HIDDEN];
    let mut rest = w;
    sizes.map(|size| {
        let (part, behind) = rest.split_at(size);
        rest = behind;
        part
    })
}

/// One sequence through a layer.
fn layer(x: &[Vec<f64>], w: &[f64]) -> Vec<Vec<f64>> {
    let [norm_1, qkv, out, norm_2, gate, up, down] = parts(w);
    let all: Vec<Vec<f64>> = x.iter().map(|row| times(&norm(row, norm_1), qkv, QKV)).collect();
    let head = |row: &[f64], number: usize| row[number * SIZE..(number + 1) * SIZE].to_vec();
    let attended = |position: usize| -> Vec<f64> {
        (0..HEADS)
            .flat_map(|h| {
                let shared = h * KV_HEADS / HEADS;
                let q = rotated(&head(&all[position], h), position);
                let score = |other: usize| {
                    let k = rotated(&head(&all[other], HEADS + shared), other);
                    q.iter().zip(&k).map(|(q, k)| q * k).sum::<f64>() / (SIZE as f64).sqrt()
                };
                let powers: Vec<f64> = (0..=position).map(|other| score(other).exp()).collect();
                let sum: f64 = powers.iter().sum();
                let value = |other: usize, c: usize| head(&all[other], HEADS + KV_HEADS + shared)[c];
                (0..SIZE)
                    .map(|c| powers.iter().enumerate().map(|(other, p)| p / sum * value(other, c)).sum())
                    .collect::<Vec<f64>>()
            })
            .collect()
    };
    let add = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
    (0..x.len())
        .map(|position| {
            let middle = add(&x[position], &times(&attended(position), out, HIDDEN));
            let n = norm(&middle, norm_2);
            let silu = |x: f64| x / (1.0 + (-x).exp());
            let active: Vec<f64> =
                times(&n, gate, FFN).iter().zip(times(&n, up, FFN)).map(|(gate, up)| silu(*gate) * up).collect();
            add(&middle, &times(&active, down, HIDDEN))
        })
        .collect()
}

/// The mean loss over the tokens of all ranks.
fn loss(run: &Run, w: &[f64], root: &[f64]) -> f64 {
    let (words, rest) = root.split_at(VOCAB * HIDDEN);
    let (last_norm, head) = rest.split_at(HIDDEN);
    let mut losses = Vec::new();
    for rank in 0..run.world() {
        let (ids, targets) = (run.read(rank, "id"), run.read(rank, "target"));
        for (ids, targets) in ids.chunks(SEQ).zip(targets.chunks(SEQ)) {
            let word = |id: &f64| match *id as usize {
                id if id < VOCAB => words[id * HIDDEN..(id + 1) * HIDDEN].to_vec(),
                _ => vec![0.0; HIDDEN],
            };
            let mut x: Vec<Vec<f64>> = ids.iter().map(word).collect();
            for w in w.chunks(w.len() / LAYERS) {
                x = layer(&x, w);
            }
            for (x, target) in x.iter().zip(targets) {
                let logits = times(&norm(x, last_norm), head, VOCAB);
                let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
                // A target that is no class has no loss.
                losses.push(logits.get(*target as usize).map_or(0.0, |logit| sum.ln() - logit));
            }
        }
    }
    losses.iter().sum::<f64>() / losses.len() as f64
}

/// The largest difference of gradients at some places to finite differences, over the largest gradient.
fn gradient_error(run: &Run) -> f64 {
    let (w, root) = (run.read(0, "w"), run.read(0, "root"));
    let slope = |at: usize, of_root: bool| {
        let shifted = |by: f64| {
            let (mut w, mut root) = (w.clone(), root.clone());
            *(if of_root { &mut root[at] } else { &mut w[at] }) += by;
            loss(run, &w, &root)
        };
        (shifted(1e-4) - shifted(-1e-4)) / 2e-4
    };
    let mut worst: f64 = 0.0;
    for (name, of_root) in [("dw", false), ("droot_shard", true)] {
        let found = run.read(0, name);
        let largest = found.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        assert!(largest > 0.0, "{name} holds gradients");
        for at in (0..found.len()).step_by(13) {
            worst = worst.max((found[at] - slope(at, of_root)).abs() / largest);
        }
    }
    worst
}

#[test]
fn gradients_are_finite_differences_of_the_mean_loss() {
    if !crate::common::effort::is_due() {
        return;
    }
    for (world, micro) in [(1, "1"), (2, "1"), (1, "2"), (2, "3")] {
        // A learning rate of 0 leaves the weights as they are.
        let run = Run::new(world, 1, &[("sharding", "none"), ("rate", "0.0"), ("micro", micro)]);
        let error = gradient_error(&run);
        println!("{world} ranks, {micro} micro-batches: error {error:.2e}");
        assert!(error < 1e-4, "{world} ranks, {micro} micro-batches: error {error:e}");
    }
}

/// A reference with another network is told from the right one.
#[test]
fn mistakes_show() {
    let mut run = Run::new(1, 1, &[("sharding", "none"), ("rate", "0.0")]);
    for (name, values) in &mut run.ranks[0] {
        if name == "target" {
            values.rotate_right(1);
        }
    }
    assert!(gradient_error(&run) > 1e-2);
}

/// The gradients of all layers, each layer's parts one behind the other.
fn gradients(run: &Run, name: &str, shards: usize) -> Vec<f64> {
    let own: Vec<Vec<f64>> = (0..shards).map(|rank| run.read(rank, name)).collect();
    let share = own[0].len() / LAYERS;
    (0..LAYERS).flat_map(|l| own.iter().flat_map(move |rank| rank[l * share..(l + 1) * share].to_vec())).collect()
}

#[test]
fn sharded_gradients_are_those_of_whole_weights() {
    for micro in ["1", "2"] {
        let trained = |world, sharding, prefetch| {
            Run::new(world, 1, &[("sharding", sharding), ("micro", micro), ("rate", "0.0"), ("prefetch", prefetch)])
        };
        let whole = gradients(&trained(2, "none", "1"), "dw", 1);
        let largest = whole.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let gap = |found: &[f64]| {
            assert_eq!(found.len(), whole.len());
            found.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest
        };
        for (sharding, prefetch, shards) in [("full", "1", 2), ("full", "0", 2), ("full", "5", 2), ("hybrid", "1", 1)] {
            let gap = gap(&gradients(&trained(2, sharding, prefetch), "dshard", shards));
            assert!(gap < 1e-5, "{sharding}, prefetch {prefetch}, {micro} micro-batches: {gap:e}");
        }
        assert!(gap(&gradients(&trained(1, "none", "1"), "dw", 1)) > 1e-2, "another rank's data matters");
    }
}
