//! Speculative decoding compared with plain attention: each token attends to every earlier one, in double precision,
//! with the same weights and the same initial keys and values, in code that shares nothing with the operations.

use aorta::backend::host::Host;
use aorta::base::OpId;
use aorta::exec::{Control, LaunchMode};
use aorta::schedule;

use crate::common;
use crate::common::shipped;

/// Rounds that a size may have at most.
const ROUNDS: usize = 3;

/// A size of both models, by the names of the file's parameters, and the accepted tokens of each round.
#[derive(Clone, Copy, Debug)]
struct Size {
    draft: Shape,
    main: Shape,
    length: usize,
    accepted: [usize; ROUNDS],
    context: usize,
    rounds: usize,
    vocab: usize,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    layers: usize,
    hidden: usize,
    heads: usize,
}

const SMALL: Size = Size {
    draft: Shape { layers: 2, hidden: 6, heads: 2 },
    main: Shape { layers: 3, hidden: 12, heads: 3 },
    length: 4,
    accepted: [2, 0, 3],
    context: 6,
    rounds: ROUNDS,
    vocab: 110,
};

/// A mistake in the reference, to check that the comparison would find it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// Tokens that are checked together see those behind them.
    NoMask,
    /// Scores are not divided by the root of a head's size.
    NoScale,
    /// A head takes the next head's values.
    OtherHead,
    /// A round goes on one token too far.
    TooFar,
    /// The rejected tokens' keys stay.
    NotCleared,
    NoResidual,
}

#[derive(Clone, Debug)]
struct Model {
    shape: Shape,
    words: Vec<f64>,
    qkv: Vec<f64>,
    out: Vec<f64>,
    up: Vec<f64>,
    down: Vec<f64>,
    /// Keys and then values: layers × heads twice × places × the size of a head.
    kv: Vec<f64>,
    capacity: usize,
    mistake: Mistake,
}

/// `row` times the matrix with `columns` columns that begins at `matrix[0]`.
fn times(row: &[f64], matrix: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).map(|c| row.iter().zip(matrix.chunks(columns)).map(|(x, line)| x * line[c]).sum()).collect()
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()))
}

impl Model {
    /// Offset of the keys, or the values, of a head at a position.
    fn at(&self, layer: usize, head: usize, place: usize) -> usize {
        let Shape { hidden, heads, .. } = self.shape;
        ((layer * 2 * heads + head) * self.capacity + place) * (hidden / heads)
    }

    /// The scores of all words behind each of some tokens, the first of which stands at `from`.
    fn run(&mut self, tokens: &[usize], from: usize) -> Vec<Vec<f64>> {
        let Shape { layers, hidden, heads } = self.shape;
        let size = hidden / heads;
        let mut x: Vec<Vec<f64>> =
            tokens.iter().map(|token| self.words[token * hidden..(token + 1) * hidden].to_vec()).collect();
        for layer in 0..layers {
            let part = |head: usize| &self.qkv[(layer * 3 * heads + head) * hidden * size..];
            let mut kept = self.kv.clone();
            let normed: Vec<Vec<f64>> = x.iter().map(|x| norm(x)).collect();
            for (i, x) in normed.iter().enumerate() {
                for head in 0..2 * heads {
                    let at = self.at(layer, head, from + i);
                    kept[at..at + size].copy_from_slice(&times(x, part(heads + head), size));
                }
            }
            let queries: Vec<Vec<Vec<f64>>> =
                normed.iter().map(|x| (0..heads).map(|head| times(x, part(head), size)).collect()).collect();
            self.kv = kept;
            for (i, queries) in queries.iter().enumerate() {
                let sees = from + if self.mistake == Mistake::NoMask { tokens.len() } else { i + 1 };
                let joined: Vec<f64> =
                    queries.iter().enumerate().flat_map(|(h, q)| self.head(layer, h, q, sees)).collect();
                x[i] = self.rest(layer, &x[i], &joined);
            }
        }
        x.iter()
            .map(|x| norm(x))
            .map(|x| self.words.chunks(hidden).map(|word| word.iter().zip(&x).map(|(a, b)| a * b).sum()).collect())
            .collect()
    }

    /// The attention output of a head for the first `sees` positions.
    fn head(&self, layer: usize, head: usize, query: &[f64], sees: usize) -> Vec<f64> {
        let heads = self.shape.heads;
        let size = query.len();
        let scale = if self.mistake == Mistake::NoScale { 1.0 } else { 1.0 / (size as f64).sqrt() };
        let of = |head, place| &self.kv[self.at(layer, head, place)..][..size];
        let score = |place| scale * query.iter().zip(of(head, place)).map(|(q, k)| q * k).sum::<f64>();
        let powers: Vec<f64> = (0..sees).map(|place| f64::exp(score(place))).collect();
        let sum: f64 = powers.iter().sum();
        let from = heads + if self.mistake == Mistake::OtherHead { (head + 1) % heads } else { head };
        (0..size).map(|c| powers.iter().enumerate().map(|(place, p)| p / sum * of(from, place)[c]).sum()).collect()
    }

    /// A layer behind its attention.
    fn rest(&self, layer: usize, x: &[f64], joined: &[f64]) -> Vec<f64> {
        let hidden = self.shape.hidden;
        let part = |matrix: &[f64], size: usize| matrix[layer * size..(layer + 1) * size].to_vec();
        let residual = if self.mistake == Mistake::NoResidual { 0.0 } else { 1.0 };
        let add = |x: &[f64], y: Vec<f64>| -> Vec<f64> { x.iter().zip(y).map(|(x, y)| residual * x + y).collect() };
        let x = add(x, times(joined, &part(&self.out, hidden * hidden), hidden));
        let wide = times(&norm(&x), &part(&self.up, 4 * hidden * hidden), 4 * hidden);
        let active: Vec<f64> = wide.into_iter().map(gelu).collect();
        let narrow = times(&active, &part(&self.down, 4 * hidden * hidden), hidden);
        add(&x, narrow)
    }
}

/// Divides a row by the root of the mean of its squares.
fn norm(row: &[f64]) -> Vec<f64> {
    let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    row.iter().map(|x| x / (square + 1e-6).sqrt()).collect()
}

/// The place of the largest.
fn best(scores: &[f64]) -> usize {
    (0..scores.len()).fold(0, |best, i| if scores[i] > scores[best] { i } else { best })
}

/// The results of an iteration.
#[derive(Clone, Debug)]
struct Outcome {
    tokens: Vec<usize>,
    checked: Vec<usize>,
    agreed: Vec<usize>,
    /// The large model's scores of the last round, for the tokens that are judged.
    logits: Vec<Vec<f64>>,
    draft_kv: Vec<f64>,
    main_kv: Vec<f64>,
}

/// Rounds as the file says that they go.
fn decode(size: Size, mut draft: Model, mut main: Model, mut tokens: Vec<usize>) -> Outcome {
    let length = size.length;
    let mut outcome = None;
    let further = usize::from(main.mistake == Mistake::TooFar);
    for round in 0..size.rounds {
        let accepted = size.accepted[round];
        let before: usize = size.accepted[..round].iter().map(|accepted| accepted + 1 + further).sum();
        let now = size.context - 1 + before;
        for i in 0..length {
            let from = now + i;
            let scores = draft.run(&tokens[from..now + i + 1], from);
            tokens[now + i + 1] = best(scores.last().expect("a token went in"));
        }
        if accepted == length {
            draft.run(&tokens[now + length..now + length + 1], now + length);
        }
        let from = now;
        let scores = main.run(&tokens[from..now + length + 1], from);
        let judged = length + 1;
        let logits = scores[scores.len() - judged..].to_vec();
        let checked: Vec<usize> = logits.iter().map(|scores| best(scores)).collect();
        let agreed = (0..length).map(|i| usize::from(tokens[now + 1 + i] == checked[i])).collect();
        tokens[now + accepted + 1] = checked[accepted];
        if main.mistake != Mistake::NotCleared {
            let size = main.shape.hidden / main.shape.heads;
            for layer in 0..main.shape.layers {
                for head in 0..2 * main.shape.heads {
                    for place in now + accepted + 1..now + length + 1 {
                        let at = main.at(layer, head, place);
                        main.kv[at..at + size].fill(0.0);
                    }
                }
            }
        }
        let (draft_kv, main_kv) = (draft.kv.clone(), main.kv.clone());
        outcome = Some(Outcome { tokens: tokens.clone(), checked, agreed, logits, draft_kv, main_kv });
    }
    outcome.expect("there is a round")
}

fn whole(values: Vec<f64>) -> Vec<usize> {
    values.into_iter().map(|value| value as usize).collect()
}

/// The file's results on the CPU after one iteration, with both models and the text before it.
fn computed(size: Size) -> (Outcome, Model, Model, Vec<usize>) {
    let number = |value: usize| value.to_string();
    let set = [
        ("draft_layers", number(size.draft.layers)),
        ("draft_hidden", number(size.draft.hidden)),
        ("draft_heads", number(size.draft.heads)),
        ("main_layers", number(size.main.layers)),
        ("main_hidden", number(size.main.hidden)),
        ("main_heads", number(size.main.heads)),
        ("length", number(size.length)),
        ("context", number(size.context)),
        ("rounds", number(size.rounds)),
        ("vocab", number(size.vocab)),
        ("dtype", "f32".to_owned()),
    ];
    let set: Vec<(&str, &str)> = set.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // Weights that are large enough for each part of a layer to matter.
    let mut text = shipped::named("speculative_decode").text;
    for small in ["0.05)", "0.03)", "0.02)", "0.01)"] {
        assert!(text.contains(small), "the file has small weights");
        text = text.replace(small, "0.4)");
    }
    let drawn = "draw streak[rounds] ~ geometric(1 - acceptance)";
    assert!(text.contains(drawn), "the file draws how many tokens are accepted");
    text = text.replace(drawn, &format!("let streak = {:?}", &size.accepted[..size.rounds]));
    let (program, plan) =
        shipped::analyze("speculative_decode.aorta", &text, None, &set).unwrap_or_else(|e| panic!("{e}"));
    // Scratch is kept apart, so that scores can be read at the end.
    let options = schedule::ScheduleOptions { streams: None, share_scratch: false };
    let schedule = common::placed(&program, &plan, &Host, &options);
    let mut session = common::session(&program, &plan, &schedule, &Host);
    let mut of = |name: &str| common::buffer(&mut session, &program, name);
    let mut model = |shape: Shape, name: &str| Model {
        shape,
        words: of(&format!("{name}_words")),
        qkv: of(&format!("{name}_qkv")),
        out: of(&format!("{name}_out")),
        up: of(&format!("{name}_up")),
        down: of(&format!("{name}_down")),
        kv: of(&format!("{name}_kv")),
        capacity: size.context + size.rounds * (size.length + 1),
        mistake: Mistake::None,
    };
    let (draft, main) = (model(size.draft, "draft"), model(size.main, "main"));
    let tokens = whole(of("token"));
    session.iterate(LaunchMode::Stream, 0, 1, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let step = &program.cycle[0];
    let last: OpId =
        step.ids().filter(|&op| program.op_text(step.op(op)) == "logits").last().expect("words are scored");
    let logits = common::elements(&mut session, &program, program.views.memory(step.outputs(last)[0]));
    let judged = size.length + 1;
    let rows: Vec<Vec<f64>> = logits.chunks(size.vocab).map(<[f64]>::to_vec).collect();
    let mut of = |name: &str| common::buffer(&mut session, &program, name);
    let outcome = Outcome {
        tokens: whole(of("token")),
        checked: whole(of("checked")),
        agreed: whole(of("agreed")),
        logits: rows[rows.len() - judged..].to_vec(),
        draft_kv: of("draft_kv"),
        main_kv: of("main_kv"),
    };
    (outcome, draft, main, tokens)
}

/// The largest difference, over the norm of a typical element.
fn error(actual: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let typical = (expected.iter().map(|value| value * value).sum::<f64>() / expected.len() as f64).sqrt();
    let errors = actual.iter().zip(expected).map(|(a, e)| (a - e).abs() / typical);
    // Not `f64::max`, which would drop a NaN.
    errors.fold(0.0, |most: f64, error| if error <= most { most } else { error })
}

/// Bound on rounding errors in `f32`.
const BOUND: f64 = 1e-4;

fn check(size: Size) {
    let (actual, draft, main, tokens) = computed(size);
    let expected = decode(size, draft, main, tokens);
    assert_eq!(actual.tokens, expected.tokens, "{size:?}");
    assert_eq!(actual.checked, expected.checked, "{size:?}");
    assert_eq!(actual.agreed, expected.agreed, "{size:?}");
    let errors = [
        ("scores", error(&actual.logits.concat(), &expected.logits.concat())),
        ("the small model's keys and values", error(&actual.draft_kv, &expected.draft_kv)),
        ("the large model's keys and values", error(&actual.main_kv, &expected.main_kv)),
    ];
    for (what, error) in errors {
        println!("{size:?}, {what}: error {error:.2e}");
        assert!(error <= BOUND, "{size:?}, {what}: error {error:e}");
    }
}

#[test]
fn scores_are_those_of_plain_attention() {
    check(SMALL);
    check(Size { rounds: 1, ..SMALL });
    check(Size { length: 1, accepted: [0, 1, 0], ..SMALL });
    check(Size { context: 1, ..SMALL });
}

#[test]
fn any_number_of_tokens_is_accepted() {
    for accepted in 0..=SMALL.length {
        check(Size { accepted: [accepted; ROUNDS], ..SMALL });
    }
    check(Size { accepted: [4, 1, 4], ..SMALL });
}

/// A reference that is wrong in one thing is told from the right one.
#[test]
fn mistakes_show() {
    let (actual, draft, main, tokens) = computed(SMALL);
    for mistake in [
        Mistake::NoMask,
        Mistake::NoScale,
        Mistake::OtherHead,
        Mistake::TooFar,
        Mistake::NotCleared,
        Mistake::NoResidual,
    ] {
        let (draft, main) = (draft.clone(), Model { mistake, ..main.clone() });
        // Room for a round that goes on too far.
        let longer = [tokens.clone(), vec![0; SMALL.rounds]].concat();
        let expected = decode(SMALL, draft, main, longer);
        let scores = error(&actual.logits.concat(), &expected.logits.concat());
        let kept = error(&actual.main_kv, &expected.main_kv);
        assert!(scores.max(kept) > 100.0 * BOUND, "{mistake:?}: errors {scores:e} and {kept:e}");
    }
}
