//! The mixture-of-experts workload compared with a dense implementation: every expert for every token, in double
//! precision, from the same weights, in code that shares nothing with the operations.

use aorta::backend::host::Host;
use aorta::base::{DType, MemoryId};
use aorta::exec::{Control, LaunchMode, Session};
use aorta::model::Program;
use aorta::schedule;

use crate::common;
use crate::common::shipped;

/// A size of the layer, by the names of the file's parameters.
#[derive(Clone, Copy, Debug)]
struct Size {
    dtype: DType,
    streams: usize,
    experts: usize,
    tokens: usize,
    hidden: usize,
    ffn: usize,
    top_k: usize,
    chunks: usize,
}

/// The file's `preset tiny`.
const TINY: Size =
    Size { dtype: DType::BF16, streams: 4, experts: 2, tokens: 16, hidden: 8, ffn: 32, top_k: 2, chunks: 2 };

/// Few enough slots that some choices are dropped.
const CROWDED: Size =
    Size { dtype: DType::F32, streams: 5, experts: 4, tokens: 36, hidden: 12, ffn: 20, top_k: 2, chunks: 3 };

/// Sizes that have no factor in common.
const ODD: Size =
    Size { dtype: DType::F32, streams: 3, experts: 5, tokens: 21, hidden: 7, ffn: 9, top_k: 3, chunks: 1 };

/// The layer's weights, inputs and routing options.
#[derive(Clone, Debug)]
struct Layer {
    size: Size,
    /// Capacity of an expert for each chunk.
    slots: usize,
    x: Vec<f64>,
    gate: Vec<f64>,
    up: Vec<f64>,
    down: Vec<f64>,
    /// True if an expert's output is weighted by its probability.
    weighted: bool,
}

/// The expected results of the layer.
#[derive(Debug)]
struct Outcome {
    y: Vec<f64>,
    /// Choices, by chunk and expert, that found no slot.
    dropped: Vec<usize>,
    /// For each token, the experts that processed it, with their weights.
    served: Vec<Vec<(usize, f64)>>,
}

/// The approximation of GELU by `tanh`.
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

/// A value as the type stores it.
fn stored(dtype: DType, value: f64) -> f64 {
    let mut bytes = [0; 8];
    dtype.store(value, &mut bytes);
    dtype.load(&bytes)
}

/// `row` times the matrix with `columns` columns that begins at `matrix[0]`.
fn times(row: &[f64], matrix: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).map(|c| row.iter().zip(matrix.chunks(columns)).map(|(x, line)| x * line[c]).sum()).collect()
}

impl Layer {
    /// The outputs of all experts for a token.
    fn experts(&self, token: &[f64]) -> Vec<Vec<f64>> {
        let Size { experts, hidden, ffn, .. } = self.size;
        let expert = |e: usize| {
            let wide: Vec<f64> = times(token, &self.up[e * hidden * ffn..], ffn).into_iter().map(gelu).collect();
            times(&wide, &self.down[e * ffn * hidden..], hidden)
        };
        (0..experts).map(expert).collect()
    }

    /// The probability of each expert. Rounded as stored, so that the choice of experts does not depend on rounding;
    /// everything else is exact.
    fn probabilities(&self, token: &[f64]) -> Vec<f64> {
        let dtype = self.size.dtype;
        let scores = times(token, &self.gate, self.size.experts);
        let scores: Vec<f64> = scores.into_iter().map(|score| stored(dtype, score)).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(|power| stored(dtype, power / sum)).collect()
    }

    /// For each chunk, tokens in order take places of the experts with the highest probabilities.
    fn run(&self) -> Outcome {
        let Size { experts, tokens, hidden, top_k, chunks, .. } = self.size;
        let mut outcome = Outcome { y: vec![0.0; tokens * hidden], dropped: Vec::new(), served: Vec::new() };
        let mut taken = vec![0; experts];
        for (t, token) in self.x.chunks(hidden).enumerate() {
            if t % (tokens / chunks) == 0 && t > 0 {
                outcome.dropped.extend(taken.drain(..).map(|taken: usize| taken.saturating_sub(self.slots)));
                taken = vec![0; experts];
            }
            let probabilities = self.probabilities(token);
            let mut ranking: Vec<usize> = (0..experts).collect();
            // A stable sort: of equal ones the first comes first.
            ranking.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
            let outputs = self.experts(token);
            let mut served = Vec::new();
            for &e in &ranking[..top_k] {
                taken[e] += 1;
                if taken[e] <= self.slots {
                    let weight = if self.weighted { probabilities[e] } else { 1.0 };
                    for (y, output) in outcome.y[t * hidden..].iter_mut().zip(&outputs[e]) {
                        *y += weight * output;
                    }
                    served.push((e, weight));
                }
            }
            outcome.served.push(served);
        }
        outcome.dropped.extend(taken.into_iter().map(|taken| taken.saturating_sub(self.slots)));
        outcome
    }
}

/// The numbers of dropped choices that `route` counted, by chunk and expert.
fn dropped(session: &mut Session, program: &Program) -> Vec<usize> {
    let step = &program.cycle[0];
    let routes = step.ids().filter(|&op| program.op_name(step.op(op)) == "route");
    let memories: Vec<MemoryId> = routes.map(|op| program.views.memory(step.outputs(op)[2])).collect();
    memories
        .into_iter()
        .flat_map(|memory| common::elements(session, program, memory))
        .map(|count| count as usize)
        .collect()
}

/// The results of a text on the CPU at a size: its `y`, its dropped choices, and the layer to compare them with.
fn computed(source: &str, size: Size) -> (Vec<f64>, Vec<usize>, Layer) {
    let text = |value: usize| value.to_string();
    let set = [
        ("dtype", size.dtype.name().to_owned()),
        ("streams", text(size.streams)),
        ("experts", text(size.experts)),
        ("tokens", text(size.tokens)),
        ("hidden", text(size.hidden)),
        ("ffn", text(size.ffn)),
        ("top_k", text(size.top_k)),
        ("chunks", text(size.chunks)),
        ("gated", "false".to_owned()),
    ];
    let set: Vec<(&str, &str)> = set.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (program, plan) = shipped::analyze("moe.aorta", source, None, &set).unwrap_or_else(|errors| panic!("{errors}"));
    // Scratch does not share addresses, so that the routing can be read at the end.
    let options = schedule::ScheduleOptions { streams: None, share_scratch: false };
    let schedule = common::placed(&program, &plan, &Host, &options);
    let mut session = common::session(&program, &plan, &schedule, &Host);
    session.iterate(LaunchMode::Stream, 0, 2, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut buffer = |name: &str| common::buffer(&mut session, &program, name);
    let layer = Layer {
        size,
        slots: (size.tokens / size.chunks * size.top_k).div_ceil(size.experts),
        x: buffer("x"),
        gate: buffer("w_router"),
        up: buffer("w_up"),
        down: buffer("w_down"),
        weighted: true,
    };
    (buffer("y"), dropped(&mut session, &program), layer)
}

/// The largest error of a token's row, over the norm of an average row.
fn error(actual: &[f64], expected: &[f64], hidden: usize) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let norm = |row: &mut dyn Iterator<Item = f64>| row.map(|value| value * value).sum::<f64>().sqrt();
    let rows = expected.len() / hidden;
    let average = norm(&mut expected.iter().copied()) / (rows as f64).sqrt();
    let errors = actual.chunks(hidden).zip(expected.chunks(hidden));
    let errors = errors.map(|(actual, expected)| norm(&mut actual.iter().zip(expected).map(|(a, e)| a - e)));
    // Not `f64::max`, which would drop a NaN.
    errors.fold(0.0, |most, error| if error <= most { most } else { error }) / average
}

/// Bound on rounding errors: each of the few operations in a row rounds its result once.
fn bound(dtype: DType) -> f64 {
    4.0 * dtype.epsilon()
}

fn check(size: Size) -> Outcome {
    check_text(&shipped::named("moe").text, size)
}

fn check_text(text: &str, size: Size) -> Outcome {
    let (y, dropped, layer) = computed(text, size);
    let expected = layer.run();
    assert_eq!(dropped, expected.dropped, "dropped choices at {size:?}");
    let error = error(&y, &expected.y, size.hidden);
    println!("{size:?}: error {error:.2e}, bound {:.2e}", bound(size.dtype));
    assert!(error <= bound(size.dtype), "{size:?}: error {error:e}, bound {:e}", bound(size.dtype));
    expected
}

#[test]
fn tiny_is_the_dense_layer() {
    let (program, _) = shipped::named("moe").program(Some("tiny"), &[]);
    let value = |name: &str| &program.params.iter().find(|(param, _)| param == name).expect("a parameter").1;
    for (name, expected) in [("experts", 2), ("tokens", 16), ("hidden", 8), ("ffn", 32), ("top_k", 2), ("chunks", 2)] {
        assert_eq!(*value(name), expected.to_string(), "TINY is the file's preset");
    }
    check(TINY);
    check(Size { dtype: DType::F32, ..TINY });
}

#[test]
fn crowded_experts_drop_what_comes_last() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let outcome = check(Size { dtype, ..CROWDED });
        assert!(outcome.dropped.iter().sum::<usize>() > 0, "some choices are dropped: {outcome:?}");
        assert!(outcome.dropped.contains(&0), "and some experts have room: {outcome:?}");
        let both = outcome.served.iter().filter(|served| served.len() == 2);
        assert!(both.count() > 0, "some tokens go to two experts: {outcome:?}");
        let weights: Vec<f64> = outcome.served.iter().flatten().map(|(_, weight)| *weight).collect();
        assert!(weights.iter().any(|weight| (weight - weights[0]).abs() > 0.1), "weights differ: {weights:?}");
        let experts: std::collections::BTreeSet<usize> = outcome.served.iter().flatten().map(|(e, _)| *e).collect();
        assert_eq!(experts.len(), CROWDED.experts, "every expert has work");
    }
}

#[test]
fn odd_sizes_are_the_dense_layer() {
    for dtype in [DType::F32, DType::BF16] {
        check(Size { dtype, ..ODD });
    }
}

#[test]
fn nothing_is_dropped_when_every_token_takes_every_expert() {
    let size = Size { experts: 3, top_k: 3, ..CROWDED };
    let outcome = check(size);
    assert_eq!(outcome.dropped, vec![0; 9]);
}

#[test]
fn of_equal_experts_the_first_are_chosen() {
    let text = shipped::named("moe").text;
    let gate = "w_router: dtype[hidden, all]";
    assert!(text.contains(gate), "the file declares {gate}");
    let outcome = check_text(&text.replace(gate, &format!("{gate} = zeros")), CROWDED);
    // 12 tokens of a chunk want experts 0 and 1, which take 6 each.
    assert_eq!(outcome.dropped, [6, 6, 0, 0].repeat(3));
}

/// The comparison finds a layer with one mistake, even with the coarsest type.
#[test]
fn mistakes_show() {
    for dtype in [DType::F32, DType::BF16] {
        let size = Size { dtype, ..CROWDED };
        let (y, dropped, layer) = computed(&shipped::named("moe").text, size);
        let rotated = |weights: &[f64]| {
            let mut weights = weights.to_vec();
            weights.rotate_left(size.hidden * size.ffn);
            weights
        };
        let fewer = Size { top_k: size.top_k - 1, ..size };
        let whole = Size { chunks: 1, ..size };
        let wrong = [
            ("another expert's first matrix", Layer { up: rotated(&layer.up), ..layer.clone() }),
            ("another expert's second matrix", Layer { down: rotated(&layer.down), ..layer.clone() }),
            ("no weights", Layer { weighted: false, ..layer.clone() }),
            ("one expert for each token", Layer { size: fewer, ..layer.clone() }),
            ("one slot more", Layer { slots: layer.slots + 1, ..layer.clone() }),
            ("one slot less", Layer { slots: layer.slots - 1, ..layer.clone() }),
            ("capacity for the batch, not the chunk", Layer { size: whole, ..layer.clone() }),
        ];
        assert_eq!(dropped, layer.run().dropped);
        for (mistake, layer) in wrong {
            let error = error(&y, &layer.run().y, size.hidden);
            assert!(error > 2.0 * bound(dtype), "{dtype}, {mistake}: error {error:e}");
        }
    }
}
