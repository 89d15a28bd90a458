//! Definitions that chain several operations, by seed, and some that are written down.

use aorta::backend::host::Host;
use aorta::base::random::hash;
use aorta::exec::LaunchMode;

use super::{Case, Function, PLAIN, Part, judge};
use crate::common::effort;

/// A definition of some operations on matrices of one shape, each of which reads some of those above it.
fn chain(seed: u64) -> Case {
    let mut next = 0;
    let mut draw = |limit: u64| {
        next += 1;
        hash(seed, next) % limit
    };
    let (rows, columns) = (2 + draw(3), 1 + draw(4));
    let mut tensors = vec!["x".to_owned(), "v".to_owned()];
    let mut body = String::new();
    for step in 0..3 + draw(6) {
        let count = tensors.len() as u64;
        let [a, b] = [(); 2].map(|()| tensors[draw(count) as usize].clone());
        let name = format!("t{step}");
        body += &match draw(9) {
            0 => format!("  {name}: gemm({a}, w)\n"),
            1 => format!("  {name}: softmax({a}, scale: 0.5)\n"),
            2 => format!("  {name}: layer_norm({a}, bias, eps: 0.1)\n"),
            3 => format!("  s{step}: mean({a} * {b}, dims: [1], keepdim: true)\n  {name}: map(s{step} * {a} + {b})\n"),
            4 => format!(
                "  buffer {name}: f64[{rows}, {columns}]\n  map({a}[1..{rows}] * {b}[1..{rows}] -> {name}[1..{rows}])\n  \
                 map(sin({a}[0]) + {b}[1] -> {name}[0])\n"
            ),
            5 => format!("  {name}: transpose(view({a}, [{columns}, {rows}]))\n"),
            6 => format!(
                "  buffer {name}: f64[{rows}, {columns}]\n  map({a} * 0.5 -> {name})\n  map({name} + {b} -> {name})\n"
            ),
            7 => format!("  {name}: map(gelu({a}) * bias + {b})\n"),
            _ => format!(
                "  c{step}: concat({a}, {b}, dim: 1)\n  {name}: map(c{step}[.., 0..{columns}] - tanh(c{step}[.., {columns}..{}]))\n",
                2 * columns
            ),
        };
        tensors.push(name);
    }
    let last = &tensors[tensors.len() - 1];
    let other = &tensors[draw(tensors.len() as u64) as usize];
    let more = format!(
        "def chain(x, v, w, bias -> y, z) {{\n{body}  u: gemm(v, w)\n  map({last} * 2 - {other} + u * bias + x -> y)\n  sum({last} * v, dims: [0] -> z)\n}}\n"
    );
    let function = Function {
        more: &more,
        statement: "f: chain($0, $1, $2, $3 -> @0, @1)",
        inputs: vec![vec![rows, columns], vec![rows, columns], vec![columns, columns], vec![columns]],
        outputs: vec![vec![rows, columns], vec![columns]],
        gaps: false,
        ..PLAIN
    };
    function.case(seed)
}

#[test]
fn chains_have_the_gradients_of_their_operations() {
    let mut failed = Vec::new();
    for seed in effort::chosen(0..40) {
        let case = chain(seed);
        if std::panic::catch_unwind(|| judge(&case)).is_err() {
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

fn judge_def(more: &str, inputs: &[&[u64]], outputs: &[&[u64]], init: &str) {
    let list =
        |sign: char, count: usize| (0..count).map(|index| format!("{sign}{index}")).collect::<Vec<_>>().join(", ");
    let statement = format!("f: g({} -> {})", list('$', inputs.len()), list('@', outputs.len()));
    let owned = |all: &[&[u64]]| all.iter().map(|dims| dims.to_vec()).collect();
    let (inputs, outputs) = (owned(inputs), owned(outputs));
    judge(&Function { more, statement: &statement, inputs, outputs, gaps: false, init, ..PLAIN }.case(1));
}

/// A transformer block with a loss behind it.
#[test]
fn transformer_block() {
    if !effort::is_due() {
        return;
    }
    let text = "
buffer targets: i32[6]
buffer numbers: i32[6] = iota
buffer cos, sin: f64[3, 2] = random(3)

def g(x, ln1, w_qkv, w_out, ln2, w_up, w_down, w_classes -> loss) {
  map(numbers * 2 % 5 -> targets)
  a: rms_norm(x, ln1, eps: 0.01)
  qkv: gemm(a, w_qkv)
  heads: transpose(view(qkv, [2, 3, 3, 2, 4]), dims: [2, 0, 3, 1, 4])
  q: rope(heads[0], cos, sin)
  k: rope(heads[1], cos, sin)
  scores: gemm(q, k, transpose_b: true)
  probs: softmax(scores, scale: 0.5)
  mixed: gemm(probs, heads[2])
  joined: transpose(mixed, dims: [0, 2, 1, 3])
  proj: gemm(view(joined, [6, 8]), w_out)
  dropped: dropout(proj, p: 0.2, seed: 3)
  n: add_rms_norm(dropped, x, ln2, eps: 0.01)
  up: gemm(n.y, w_up)
  act: map(up[.., 0..5] * silu(up[.., 5..10]))
  down: gemm(act, w_down)
  last: map(down + n.total)
  logits: gemm(last, w_classes)
  c: cross_entropy(logits, targets, label_smoothing: 0.1)
  mean(c -> loss)
}
";
    let inputs: &[&[u64]] = &[&[6, 8], &[8], &[8, 24], &[8, 8], &[8], &[8, 10], &[5, 8], &[8, 5]];
    judge_def(text, inputs, &[&[]], " = random(5, 0.5)");
}

/// Products in which some factors are zero, though they depend on an input.
#[test]
fn products_with_zeros() {
    for (zeros, dims) in [(3, [4, 5]), (2, [3, 7]), (1, [2, 3]), (4, [3, 4])] {
        let [rows, columns] = dims;
        for product in ["prod(e, dims: [1] -> y)", "prod(e -> y)", "cumprod(e, dim: 1 -> y)", "cumprod(e, dim: 0 -> y)"]
        {
            let text = format!(
                "buffer alike: f64[{rows}, {columns}] = random(9)\nbuffer number: f64[{rows}, {columns}] = iota\n\
                 def g(x -> y) {{\n  e: map(x - if number % {zeros} == 0 {{ alike }} else {{ 0 }})\n  {product}\n}}\n"
            );
            let output: &[u64] = match product {
                "prod(e -> y)" => &[],
                "prod(e, dims: [1] -> y)" => &[rows],
                _ => &[rows, columns],
            };
            judge_def(&text, &[&[rows, columns]], &[output], " = random(9)");
        }
    }
}

/// A loop carries a value in slices of one buffer, and adds to it in place.
#[test]
fn loops_and_slices() {
    let text = "
def g(x, w -> y) {
  buffer h: f64[4, 3, 2]
  map(x * 2 -> h[0])
  for i in 1..4 {
    p[i]: gemm(h[i - 1], w)
    map(tanh(p[i]) + h[0] -> h[i])
    map(h[i] + x -> h[i])
  }
  buffer r: f64[3, 2]
  map(h[3] * x -> r)
  map(r - h[1] -> r)
  sum(h * h, dims: [0, 1] -> y[0])
  sum(r, dims: [0] -> y[1])
}
";
    judge_def(text, &[&[3, 2], &[2, 2]], &[&[2, 2]], " = random(4, 0.5)");
}

/// The gradient of a gradient, which is made of ordinary operations too.
#[test]
fn second_derivatives() {
    let text = "
def h(x, w -> y) {
  up: gemm(x, w)
  map(sin(up) * up -> y)
}
def g(x, w, dy -> dx, dw) {
  f: h(x, w)
  grad(f, dy -> dx, dw)
}
";
    judge_def(text, &[&[3, 4], &[4, 2], &[3, 2]], &[&[3, 4], &[4, 2]], " = random(4, 0.5)");
}

/// Gradients of operations that only gradients make: sums of rows and of channels, several sums, losses of rows, and elements at columns.
#[test]
fn second_derivatives_of_rows() {
    let text = "
buffer targets: i32[3] = iota
buffer bias: f64[4] = iota
def loss(x, dy -> dx) {
  f: cross_entropy(x, targets, label_smoothing: 0.1)
  grad(f, dy -> dx)
}
def norm(x, w, dy -> dx, dw, db) {
  f: layer_norm(x, w, bias, eps: 0.1)
  grad(f, dy -> dx, dw, db)
}
def channels(x, w, dy -> dx, dw, db) {
  f: batch_norm(x, w, bias, eps: 0.1)
  grad(f, dy, 0, 0 -> dx, dw, db)
}
def largest(x -> y) {
  c: map(x * x * x)
  top_k(c, k: 2 -> y, _)
}
def best(x, dy -> dx) {
  f: largest(x -> _)
  grad(f, dy -> dx)
}
";
    let (one, init): (&[u64], &str) = (&[4], " = random(4, 0.5)");
    let of = |name: &str| text.replace(&format!("def {name}("), "def g(");
    judge_def(&of("loss"), &[&[3, 4], &[3]], &[&[3, 4]], init);
    judge_def(&of("norm"), &[&[3, 4], one, &[3, 4]], &[&[3, 4], one, one], init);
    for dims in [&[3, 4][..], &[1, 4, 3], &[2, 4, 3]] {
        judge_def(&of("channels"), &[dims, one, dims], &[dims, one, one], init);
    }
    judge_def(&of("best"), &[&[3, 4], &[3, 2]], &[&[3, 4]], init);
}

/// Gradients of two calls are added up in the same tensors, and numbers stand for gradients that are alike everywhere.
#[test]
fn accumulated_gradients() {
    let text = "
buffer x: f64[4, 3] = random(1)
buffer w: f64[3, 2] = random(2)
buffer y, z: f64[4, 2]
buffer dx, dx_of_y, halves, quarters: f64[4, 3]
buffer dw, dw_of_y: f32[3, 2]
step {
  a: gemm(x, w -> y)
  b: gemm(x, w -> z)
  grad(a, 0.5 -> dx, dw)
  grad(b, 0.25 -> dx, dw, accumulate: true)
  grad(b, 0.25 -> dx, _, accumulate: [true, false])
  grad(a, 0.25 -> quarters, dw, accumulate: [false, true])
  map(quarters * 4 -> quarters)
  grad(a, 1 -> dx_of_y, dw_of_y)
  c: grad(a, 0.5)
  map(c.a * 2 -> halves)
}
";
    let program = crate::common::analyze(text).unwrap_or_else(|errors| panic!("{errors}"));
    let mut world = super::initial(std::slice::from_ref(&program), super::Contents::Stored);
    super::evaluate(std::slice::from_ref(&program), &mut world);
    let at = |name: &str| &world[0][super::memory(&program, name).index()];
    for (sum, once) in [("dx", "dx_of_y"), ("dw", "dw_of_y"), ("halves", "dx_of_y"), ("quarters", "dx_of_y")] {
        assert!(at(once).iter().any(|value| *value != 0.0));
        let close = at(sum).iter().zip(at(once)).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(close, "{:?} and {:?}", at(sum), at(once));
    }
}

/// The gradient of a record, assembled from those of its parts, is computed in its destination: nothing copies it there. The
/// products of its parts accumulate there too.
#[test]
fn gradients_of_records_are_computed_in_place() {
    for seed in 0..12 {
        let size = |place: u64, most: u64| 1 + hash(seed, place) % most;
        let (rows, inner, layers) = (1 + size(1, 4), size(2, 3), size(3, 3));
        let (layer, goal) = (hash(seed, 4) % layers, hash(seed, 5) % 2);
        let text = format!(
            "buffer w[{layers}] {{ a: f64[{inner}, 3], b: f64[3, {inner}], bias: f64[{inner}] }} = random(1)\n\
             buffer dw[2] like w[0]\n\
             buffer sum like w[0] = zeros\n\
             buffer x, y, dx: f64[{rows}, {inner}] = random(2)\n\
             def g(x, w -> y) {{\n  h: gemm(x, w.a)\n  o: gemm(h, w.b)\n  map(o + w.bias -> y)\n}}\n\
             step {{\n  f: g(x, w[{layer}] -> y)\n  b: grad(f, 1 -> dx, dw[{goal}])\n\
             grad(f, 1 -> _, sum, accumulate: [false, true])\n\
             grad(f, 1 -> _, sum, accumulate: [false, true])\n}}\n"
        );
        let program = crate::common::analyze(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let step = &program.cycle[0];
        let [target, sum] = ["dw", "sum"].map(|name| super::memory(&program, name));
        let written = |operation: &str, target| -> u64 {
            step.ids()
                .filter(|op| program.op_spec(step.op(*op)).is_some_and(|spec| spec.operation.name() == operation))
                .flat_map(|op| step.outputs(op))
                .filter(|view| program.views.memory(**view) == target)
                .map(|view| program.views.tensor(*view).elements())
                .sum()
        };
        assert_eq!(written("map", target), 0, "{text}");
        assert_eq!((written("gemm", sum), written("map", sum)), (12 * inner, 2 * inner), "{text}");
        let mut world = super::initial(std::slice::from_ref(&program), super::Contents::Stored);
        super::evaluate(std::slice::from_ref(&program), &mut world);
        let length = (7 * inner) as usize;
        let found = &world[0][target.index()][goal as usize * length..][..length];
        assert!(found.iter().all(|value| *value != 0.0), "{found:?}\n{text}");
        let mut twice = world[0][sum.index()].iter().zip(found);
        assert!(twice.all(|(sum, once)| (sum - 2.0 * once).abs() < 1e-12), "{text}");
        // The sum of the gradients of a bias is the number of rows.
        let bias = &found[length - inner as usize..];
        assert!(bias.iter().all(|value| *value == rows as f64), "{bias:?}\n{text}");
    }
}

/// Layers whose weights are divided among ranks, and gathered anew for the gradients.
#[test]
fn weights_of_several_ranks() {
    let sharded = Function {
        more: "
def g(x, shard -> y) {
  w: all_gather(shard)
  h: gemm(x, w)
  act: map(tanh(h))
  total: all_reduce(act, op: mean)
  parts: reduce_scatter(total)
  all_to_all(view(act, [3, 2]) -> y)
  map(y + parts -> y)
}
",
        statement: "f: g($0, $1 -> @0)",
        inputs: vec![vec![3, 6], vec![2, 2]],
        outputs: vec![vec![3, 2]],
        gaps: false,
        ranks: 3,
        ..PLAIN
    };
    judge(&sharded.case(3));
    let anew = Function {
        more: "buffer shard: f64[2, 2] = random(7)\nbuffer w: f64[6, 2]\n",
        statement: "all_gather(shard -> w)  f: gemm($0, w -> @0)  fill(0 -> w)  all_gather(shard -> w)",
        inputs: vec![vec![3, 6]],
        outputs: vec![vec![3, 2]],
        gaps: false,
        ranks: 3,
        ..PLAIN
    };
    judge(&anew.case(3));
}

/// `copy … at` has no gradient. The gradients of the parts before and after it, with a copy of the gradient back to the
/// sender in between, are those of the whole.
#[test]
fn a_copy_to_another_rank_by_hand() {
    let text = |forward: &str, back: &str| {
        format!(
            "
buffer x: f64[2, 3]
buffer inbox, dx, d_inbox, d_sent, y: f64[2, 3] = zeros
buffer dy: f64[2, 3]
def front(x -> sent) {{ map(tanh(x) * (rank + 2) -> sent) }}
def rear(inbox, x -> y) {{ map(inbox * inbox + x * x -> y) }}
step {{
  a: front(x)
  copy(a.sent -> inbox at {forward})
  b: rear(inbox, x -> y)
  grad(b, dy -> d_inbox, dx)
  copy(d_inbox -> d_sent at {back})
  grad(a, d_sent -> dx, accumulate: true)
}}
"
        )
    };
    let ring = ["(rank + 1) % world", "(rank + world - 1) % world"];
    // The first rank of a pipeline receives nothing, and the last one gets no gradient back.
    let pipeline = ["rank + 1 when rank + 1 < world", "rank - 1 when rank > 0"];
    for [forward, back] in [ring, pipeline] {
        for ranks in [2, 3] {
            let pair =
                |a: &str, b: &str| vec![(Part::new(a, "f64", &[2, 3], None), Part::new(b, "f64", &[2, 3], None))];
            judge(&Case { text: text(forward, back), inputs: pair("x", "dx"), outputs: pair("y", "dy"), ranks });
        }
    }
}

/// Gradients of `cross_entropy` do not lose precision where one class is nearly certain, whatever the size of the logits.
#[test]
fn a_class_that_is_nearly_certain() {
    for (top, gap) in [(1000.0f64, 10.0f64), (30.0, 14.0), (10.0, 10.0), (-500.0, 12.0)] {
        let text = format!(
            "buffer x: f32[1, 2] = [[{top:.1}, {:.1}]]\nbuffer target: i64[1] = zeros\nbuffer dx: f32[1, 2]\n\
             step {{\n  f: cross_entropy(x, target)\n  grad(f, 1 -> dx)\n}}\n",
            top - gap
        );
        let (program, plan) = crate::common::planned(&text);
        let found = crate::common::written(&program, &plan, &Host, None, LaunchMode::Stream, 1);
        let dx = found.iter().find(|contents| contents.name == "dx").expect("it is written");
        let [first, second] = [0, 4].map(|at| dx.dtype.load(&dx.bytes[at..at + 4]));
        let other: f64 = (-gap).exp() / (1.0 + (-gap).exp());
        assert!((second - other).abs() <= 1e-5 * other, "{second}, not {other}\n{text}");
        // A probability near 1 is rounded by half a unit of its last place.
        assert!((first + other).abs() <= 1e-7, "{first}, not {}\n{text}", -other);
    }
}
