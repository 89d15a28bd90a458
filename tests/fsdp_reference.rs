//! Training with full sharding compared with the same training on whole layers: forward, loss, backward and gradient
//! descent in double precision, for the data of all ranks, in code that shares nothing with the operations.

use aorta::backend::host::Host;
use aorta::base::{DType, MemoryId};
use aorta::compile::Compiled;
use aorta::exec::{self, Backend, Control, LaunchMode, Rank, Ranks};
use aorta::model::MemoryKind;
use aorta::schedule::Schedule;

use crate::common;
use crate::common::shipped;

const WORLD: usize = 2;
const RATE: f64 = 0.02;

/// A size of the network, by the names of the file's parameters.
#[derive(Clone, Copy, Debug)]
struct Size {
    dtype: DType,
    layers: usize,
    hidden: usize,
    width: usize,
    tokens: usize,
    prefetch: usize,
}

/// Sizes that have few factors in common.
const SMALL: Size = Size { dtype: DType::F32, layers: 4, hidden: 6, width: 10, tokens: 5, prefetch: 1 };

/// The contents of a rank's buffers, actual or expected.
#[derive(Clone, Debug)]
struct Held {
    x: Vec<f64>,
    target: Vec<f64>,
    /// For each layer, the rank's part of the weights, as the optimizer has them and as they are sent, and of their
    /// gradients.
    master: Vec<Vec<f64>>,
    shard: Vec<Vec<f64>>,
    dshard: Vec<Vec<f64>>,
}

/// A mistake in the reference, to check that the comparison would find it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// Gradients are summed over ranks without dividing.
    Sum,
    /// The activation's derivative is left out.
    Linear,
    /// Gradients do not flow through the residual connection.
    NoResidual,
    /// Each rank takes the other's data.
    OtherData,
    /// The second step still uses the weights of the first.
    OldWeights,
    /// The gradients of the two matrices are exchanged.
    Exchanged,
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()))
}

/// The derivative of `gelu` as a finite difference, independent of the file's formula.
fn slope(x: f64) -> f64 {
    (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5
}

/// A value rounded to the type.
fn stored(dtype: DType, value: f64) -> f64 {
    let mut bytes = [0; 8];
    dtype.store(value, &mut bytes);
    dtype.load(&bytes)
}

/// Rows of numbers.
#[derive(Clone, Debug)]
struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn new(columns: usize, values: &[f64]) -> Matrix {
        Matrix { columns, values: values.to_vec() }
    }

    fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    fn transposed(&self) -> Matrix {
        let values = (0..self.columns).flat_map(|c| self.values.iter().skip(c).step_by(self.columns).copied());
        Matrix { columns: self.rows(), values: values.collect() }
    }

    fn times(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.columns, other.rows());
        let row = |row: &[f64], c: usize| -> f64 {
            row.iter().zip(other.values.chunks(other.columns)).map(|(x, line)| x * line[c]).sum()
        };
        let rows = self.values.chunks(self.columns);
        let values = rows.flat_map(|line| (0..other.columns).map(move |c| row(line, c)));
        Matrix { columns: other.columns, values: values.collect() }
    }

    fn map(&self, function: impl Fn(f64) -> f64) -> Matrix {
        Matrix { columns: self.columns, values: self.values.iter().map(|value| function(*value)).collect() }
    }

    fn with(&self, other: &Matrix, function: impl Fn(f64, f64) -> f64) -> Matrix {
        let values = self.values.iter().zip(&other.values).map(|(a, b)| function(*a, *b));
        Matrix { columns: self.columns, values: values.collect() }
    }
}

/// The gradients of every layer's weights, `[2, hidden, width]` each, by one rank's data.
fn gradients(size: Size, weights: &[Vec<f64>], x: &[f64], target: &[f64], mistake: Mistake) -> Vec<Vec<f64>> {
    let Size { hidden, width, tokens, .. } = size;
    let matrices: Vec<(Matrix, Matrix)> = weights
        .iter()
        .map(|layer| layer.split_at(hidden * width))
        .map(|(up, down)| (Matrix::new(width, up), Matrix::new(width, down)))
        .collect();
    let mut inputs = vec![Matrix::new(hidden, x)];
    let mut middles = Vec::new();
    for (up, down) in &matrices {
        let x = inputs.last().expect("there is the first");
        let middle = x.times(up);
        let y = x.with(&middle.map(gelu).times(&down.transposed()), |x, y| x + y);
        inputs.push(y);
        middles.push(middle);
    }
    let last = inputs.last().expect("there is the first");
    let mut dy = last.with(&Matrix::new(hidden, target), |y, target| (y - target) / tokens as f64);
    let mut found = Vec::new();
    for (layer, (up, down)) in matrices.iter().enumerate().rev() {
        let (x, middle) = (&inputs[layer], &middles[layer]);
        let ddown = dy.transposed().times(&middle.map(gelu));
        let bent = |d: f64, at: f64| if mistake == Mistake::Linear { d } else { d * slope(at) };
        let dmiddle = dy.times(down).with(middle, bent);
        let dup = x.transposed().times(&dmiddle);
        let through = dmiddle.times(&up.transposed());
        dy = through.with(&dy, |through, dy| if mistake == Mistake::NoResidual { through } else { through + dy });
        let (first, second) = if mistake == Mistake::Exchanged { (ddown, dup) } else { (dup, ddown) };
        found.push([first.values, second.values].concat());
    }
    found.reverse();
    found
}

/// The expected contents of all ranks after some steps.
fn trained(size: Size, ranks: &[Held], steps: usize, mistake: Mistake) -> Vec<Held> {
    let mut ranks = ranks.to_vec();
    if mistake == Mistake::OtherData {
        // Exchanging only the inputs: the mean over ranks does not change if inputs and targets are exchanged.
        let x = ranks[0].x.clone();
        ranks[0].x = std::mem::replace(&mut ranks[1].x, x);
    }
    let whole = |ranks: &[Held]| -> Vec<Vec<f64>> {
        (0..size.layers).map(|l| ranks.iter().flat_map(|rank| rank.shard[l].clone()).collect()).collect()
    };
    let first = whole(&ranks);
    for _ in 0..steps {
        let weights = if mistake == Mistake::OldWeights { first.clone() } else { whole(&ranks) };
        let all: Vec<Vec<Vec<f64>>> =
            ranks.iter().map(|rank| gradients(size, &weights, &rank.x, &rank.target, mistake)).collect();
        let each = 2 * size.hidden * size.width / WORLD;
        for (number, rank) in ranks.iter_mut().enumerate() {
            for l in 0..size.layers {
                for i in 0..each {
                    let sum: f64 = all.iter().map(|gradients| gradients[l][number * each + i]).sum();
                    let mean = if mistake == Mistake::Sum { sum } else { sum / WORLD as f64 };
                    rank.dshard[l][i] = mean;
                    rank.master[l][i] -= RATE * mean;
                    rank.shard[l][i] = stored(size.dtype, rank.master[l][i]);
                }
            }
        }
    }
    ranks
}

/// The file on the CPU, on two ranks.
struct Run {
    compiled: Compiled,
    schedules: Vec<Schedule>,
}

impl Run {
    fn new(size: Size) -> Run {
        let text = shipped::named("fsdp_overlap").text;
        let number = |value: usize| value.to_string();
        let set = [
            ("dtype", size.dtype.name().to_owned()),
            ("layers", number(size.layers)),
            ("hidden", number(size.hidden)),
            ("width", number(size.width)),
            ("tokens", number(size.tokens)),
            ("prefetch", number(size.prefetch)),
            ("rate", format!("{RATE:?}")),
        ];
        let set: Vec<(&str, &str)> = set.iter().map(|(name, value)| (*name, value.as_str())).collect();
        // Weights of about 1, so that no layer is nearly linear.
        assert!(text.contains("random(1, 0.005)"), "the file has small weights");
        let text = text.replace("random(1, 0.005)", "random(1, 0.5)");
        let compiled = shipped::compile("fsdp_overlap.aorta", &text, None, &set, WORLD as u32);
        let compiled = compiled.unwrap_or_else(|errors| panic!("{errors}"));
        let schedules = compiled.schedules(Host.topology());
        Run { compiled, schedules }
    }

    fn open(&self) -> Ranks {
        let ranks = (0..).zip(&self.compiled.ranks).zip(&self.schedules);
        let ranks: Vec<Rank> =
            ranks.map(|((number, rank), schedule)| Rank { number, program: &rank.program, schedule }).collect();
        exec::prepare_ranks(&ranks, &Host, &common::exec_options()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The members of a family of buffers on a rank, or the only buffer of that name.
    fn read(&self, ranks: &mut Ranks, rank: usize, name: &str) -> Vec<Vec<f64>> {
        let program = &self.compiled.ranks[rank].program;
        let named = |id: &MemoryId| {
            let memory = program.memory(*id);
            matches!(memory.kind, MemoryKind::Buffer(_)) && program.names.name(memory.name) == name
        };
        let found: Vec<MemoryId> = (0..program.memories.len()).map(MemoryId::from).filter(named).collect();
        assert!(!found.is_empty(), "the file has a buffer {name}");
        let read = |memory: MemoryId| {
            let dtype = program.layout(memory).dtype;
            let bytes = ranks.read(rank, memory).unwrap_or_else(|error| panic!("{error}")).expect("it has memory");
            bytes.chunks_exact(dtype.size() as usize).map(|element| dtype.load(element)).collect()
        };
        found.into_iter().map(read).collect()
    }

    fn held(&self, ranks: &mut Ranks, size: Size) -> Vec<Held> {
        let mut members = |rank, name| {
            let values = self.read(ranks, rank, name).concat();
            let each = values.len() / size.layers;
            values.chunks(each).map(<[f64]>::to_vec).collect::<Vec<_>>()
        };
        let (master, shard, dshard): (Vec<_>, Vec<_>, Vec<_>) =
            (0..WORLD).map(|rank| (members(rank, "master"), members(rank, "shard"), members(rank, "dshard"))).collect();
        let parts = master.into_iter().zip(shard).zip(dshard).enumerate();
        parts
            .map(|(rank, ((master, shard), dshard))| {
                let x = self.read(ranks, rank, "act").concat()[..size.tokens * size.hidden].to_vec();
                let target = self.read(ranks, rank, "target").concat();
                Held { x, target, master, shard, dshard }
            })
            .collect()
    }
}

/// The contents of all ranks at first, and after some steps.
fn computed(size: Size, steps: u64) -> (Vec<Held>, Vec<Held>) {
    let run = Run::new(size);
    let mut ranks = run.open();
    let before = run.held(&mut ranks, size);
    ranks.iterate(LaunchMode::Stream, 0, steps, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let after = run.held(&mut ranks, size);
    (before, after)
}

/// The largest error of gradients and weights, over the norm of a typical element.
fn error(actual: &[Held], expected: &[Held]) -> f64 {
    let compare = |of: fn(&Held) -> &Vec<Vec<f64>>| {
        let all = |ranks: &[Held]| -> Vec<f64> { ranks.iter().flat_map(|rank| of(rank).concat()).collect() };
        let (actual, expected) = (all(actual), all(expected));
        assert_eq!(actual.len(), expected.len());
        let typical = (expected.iter().map(|value| value * value).sum::<f64>() / expected.len() as f64).sqrt();
        let errors = actual.iter().zip(&expected).map(|(a, e)| (a - e).abs() / typical);
        // Not `f64::max`, which would drop a NaN.
        errors.fold(0.0, |most: f64, error| if error <= most { most } else { error })
    };
    let errors = [compare(|held| &held.dshard), compare(|held| &held.master), compare(|held| &held.shard)];
    errors.into_iter().fold(0.0, |most, error| if error <= most { most } else { error })
}

/// Bound on the rounding error of the worst element: sums of some dozen products, through four layers and back; a
/// second step starts from the first one's error.
fn bound(dtype: DType, steps: usize) -> f64 {
    48.0 * dtype.epsilon() * (steps * steps) as f64
}

fn check(size: Size, steps: usize) {
    let (before, after) = computed(size, steps as u64);
    let error = error(&after, &trained(size, &before, steps, Mistake::None));
    println!("{size:?}, {steps} steps: error {error:.2e}, bound {:.2e}", bound(size.dtype, steps));
    assert!(
        error <= bound(size.dtype, steps),
        "{size:?}, {steps} steps: error {error:e}, bound {:e}",
        bound(size.dtype, steps)
    );
}

#[test]
fn sharded_layers_train_as_whole_ones() {
    check(SMALL, 1);
    check(SMALL, 2);
    check(Size { layers: 1, ..SMALL }, 2);
    check(Size { dtype: DType::BF16, ..SMALL }, 1);
    check(Size { dtype: DType::F16, ..SMALL }, 1);
}

/// The results do not depend on the number of layers gathered in advance.
#[test]
fn prefetch_changes_no_result() {
    let results = [0, 1, 2, 8].map(|prefetch| format!("{:?}", computed(Size { prefetch, ..SMALL }, 2).1));
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn ranks_hold_different_parts_and_data() {
    let (before, after) = computed(SMALL, 1);
    assert_ne!(before[0].x, before[1].x);
    assert_ne!(before[0].shard, before[1].shard);
    assert_ne!(after[0].dshard, after[1].dshard);
    assert_eq!(before[0].shard.len(), SMALL.layers);
    assert_ne!(before[0].shard[0], before[0].shard[1]);
}

/// The comparison finds a step with one mistake.
#[test]
fn mistakes_show() {
    let (before, after) = computed(SMALL, 2);
    let mistakes = [
        Mistake::Sum,
        Mistake::Linear,
        Mistake::NoResidual,
        Mistake::OtherData,
        Mistake::OldWeights,
        Mistake::Exchanged,
    ];
    for mistake in mistakes {
        let error = error(&after, &trained(SMALL, &before, 2, mistake));
        assert!(error > 100.0 * bound(SMALL.dtype, 2), "{mistake:?}: error {error:e}");
    }
}
