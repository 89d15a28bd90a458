//! `aorta explain model`: its counts beside those worked out by hand.

use aorta::base::random;
use serde_json::Value;

use super::sandbox::Sandbox;

/// A size between two ends, by a seed and a counter.
fn pick(seed: u64, counter: &mut u64, low: u64, high: u64) -> u64 {
    *counter += 1;
    low + random::hash(seed, *counter) % (high - low + 1)
}

struct Sizes {
    layers: u64,
    heads: u64,
    kv_heads: u64,
    size: u64,
    ffn: u64,
    experts: u64,
    vocab: u64,
    seq: u64,
    batch: u64,
    dtype: &'static str,
}

impl Sizes {
    fn random(seed: u64) -> Sizes {
        let mut counter = 0;
        let mut pick = |low, high| pick(seed, &mut counter, low, high);
        let kv_heads = pick(1, 6);
        Sizes {
            layers: pick(1, 90),
            heads: kv_heads * pick(1, 4),
            kv_heads,
            size: 2 * pick(8, 64),
            ffn: pick(1, 5000),
            experts: if seed % 3 == 2 { 1 << pick(1, 5) } else { 1 },
            vocab: pick(2, 50000),
            seq: pick(1, 5000),
            batch: pick(1, 9),
            dtype: ["bf16", "f16", "f32"][pick(0, 2) as usize],
        }
    }

    fn hidden(&self) -> u64 {
        self.heads * self.size
    }

    fn explained(&self, sandbox: &Sandbox, more: &[&str]) -> Value {
        let values = [
            ("layers", self.layers),
            ("hidden", self.hidden()),
            ("heads", self.heads),
            ("kv-heads", self.kv_heads),
            ("ffn", self.ffn),
            ("experts", self.experts),
            ("vocab", self.vocab),
            ("seq", self.seq),
            ("batch", self.batch),
        ];
        let mut arguments: Vec<String> =
            ["explain", "model", "--format", "json", "--dtype", self.dtype].map(str::to_owned).to_vec();
        arguments.extend(values.iter().map(|(name, value)| format!("--{name}={value}")));
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        serde_json::from_str(&sandbox.good(&arguments)).expect("JSON")
    }
}

fn flops(part: &Value, pass: &str) -> f64 {
    part[pass]["flops"].as_f64().expect("a number")
}

#[test]
fn counts_are_those_worked_out_by_hand() {
    let sandbox = Sandbox::new();
    for seed in 0..12 {
        let sizes = Sizes::random(seed);
        let told = sizes.explained(&sandbox, &[]);
        let Sizes { layers, heads, kv_heads, size, ffn, experts, vocab, seq, batch, .. } = sizes;
        let (hidden, tokens) = (sizes.hidden(), batch * seq);
        let projections = hidden * (heads + 2 * kv_heads) * size + heads * size * hidden;
        // One gated network with three matrices, or a router and experts with two each, of which a token takes two.
        let (networks, router) =
            if experts == 1 { (3 * hidden * ffn, 0) } else { (experts * 2 * hidden * ffn, hidden * experts) };
        let rows = if experts == 1 { batch * seq } else { experts * (batch * seq * 2).div_ceil(experts) };
        let layer = projections + networks + router + 2 * hidden;
        let all = layers * layer + 2 * vocab * hidden + hidden;
        assert_eq!(told["model"]["parameters"], all, "seed {seed}");
        assert_eq!(told["layer"]["attention projections"]["parameters"], projections, "seed {seed}");
        assert_eq!(told["once"]["embedding"]["parameters"], vocab * hidden, "seed {seed}");
        let bytes = if sizes.dtype == "f32" { 4 } else { 2 };
        assert_eq!(told["kv_bytes_per_token"], 2 * layers * kv_heads * size * bytes, "seed {seed}");

        // Products are exact: backward has two for each forward.
        let tokens = tokens as f64;
        for (part, weights) in [("attention projections", projections), ("logits", vocab * hidden)] {
            let part = if part == "logits" { &told["once"][part] } else { &told["layer"][part] };
            let forward = 2.0 * tokens * weights as f64;
            assert_eq!(
                (flops(part, "forward"), flops(part, "backward")),
                (forward, 2.0 * forward),
                "seed {seed}: {part}"
            );
        }
        // The network has an activation too, of some operations for each of its elements.
        let part = &told["layer"]["feed-forward network"];
        assert_eq!(part["parameters"], networks, "seed {seed}");
        let products = rows as f64 * (networks / experts) as f64;
        for (pass, times, most) in [("forward", 2.0, 40.0), ("backward", 4.0, 80.0)] {
            let rest = flops(part, pass) - times * products;
            assert!((0.0..=most * (rows * ffn) as f64).contains(&rest), "seed {seed}: {pass} {rest}");
        }
        // A causal query sees half of the keys: two products for each pair forward; backward five by the library, or seven by
        // kernels that compute two of them again; and an exponential or two.
        let pairs = (batch * heads * seq * (seq + 1) / 2) as f64;
        let part = &told["layer"]["attention"];
        let elements = tokens * hidden as f64;
        let passes: [(&str, &[f64], f64); 2] = [("forward", &[4.0], 16.0), ("backward", &[10.0, 14.0], 40.0)];
        for (pass, products, more) in passes {
            let counted = flops(part, pass);
            let rest = |each: &f64| counted - each * size as f64 * pairs;
            let fits = products.iter().any(|each| (0.0..=more * (pairs + elements)).contains(&rest(each)));
            assert!(fits, "seed {seed}: {pass} {counted} of {pairs} pairs");
        }
        // The rule 6 × parameters × tokens, without the embedding, which multiplies nothing; attention and elementwise
        // work come on top.
        if experts > 1 {
            continue;
        }
        let rule = 6.0 * (all - vocab * hidden) as f64 * tokens;
        let step = flops(&told["model"], "forward") + flops(&told["model"], "backward");
        let attention = layers as f64 * (18.0 * size as f64 + 16.0) * pairs;
        let elementwise = tokens
            * (layers as f64 * (100.0 * hidden as f64 + 60.0 * ffn as f64)
                + 100.0 * hidden as f64
                + 20.0 * vocab as f64);
        let least = rule - 6.0 * tokens * ((2 * layers + 1) * hidden) as f64;
        assert!(step >= least && step <= rule + attention + elementwise, "seed {seed}: {step} beside {rule}");
    }
}

#[test]
fn costs_grow_with_the_layers_and_have_a_bound_on_a_device() {
    let sandbox = Sandbox::new();
    let one = Sizes { layers: 1, ..Sizes::random(3) };
    let two = Sizes { layers: 2, ..Sizes::random(3) };
    let (told, twice) =
        (one.explained(&sandbox, &["--device", "h200"]), two.explained(&sandbox, &["--device", "mi300x"]));
    assert_eq!(told["layer"]["norms"]["forward"]["flops"], twice["layer"]["norms"]["forward"]["flops"]);
    let once: f64 = told["once"].as_object().unwrap().values().map(|part| flops(part, "forward")).sum();
    let [first, second] = [&told, &twice].map(|told| flops(&told["model"], "forward") - once);
    assert!((second / first - 2.0).abs() < 1e-9, "{first} {second}");
    for told in [&told, &twice] {
        let device = &told["device"];
        let [flops, bytes, balance] =
            ["flops_per_second", "bytes_per_second", "balance"].map(|name| device[name].as_f64().expect("a number"));
        assert!((flops / bytes - balance).abs() < 1e-9);
        for part in told["layer"].as_object().unwrap().values() {
            let work = &part["forward"];
            let least = work["bytes"].as_f64().unwrap() / bytes * 1e9;
            // The optimizer has no part of the forward pass.
            assert_eq!(work["least_ns"].is_null(), least == 0.0, "{part}");
            assert!(work["least_ns"].as_f64().unwrap_or(0.0) >= least * 0.999, "{part}");
        }
    }
}

#[test]
fn sizes_that_make_no_model_are_explained() {
    let sandbox = Sandbox::new();
    let base = ["explain", "model", "--layers", "2", "--hidden", "256", "--seq", "64"];
    for (more, why) in [
        (vec!["--heads", "3"], "a head has an even part of the width"),
        (vec!["--heads", "8", "--kv-heads", "3"], "each of them is shared by as many of the 8 heads"),
        (vec!["--device", "h20"], "did you mean `h200`?"),
        (vec!["--dtype", "i8"], "possible values: bf16, f16, f32"),
    ] {
        let output = sandbox.run(&[&base[..], &more].concat());
        assert_eq!(output.code, Some(2), "{more:?}: {}", output.stderr);
        assert!(output.stderr.contains(why), "{more:?}: {}", output.stderr);
    }
    // The largest sizes overflow nothing, and the error names what the user wrote.
    let large = [
        "--layers=65536",
        "--hidden=16777216",
        "--seq=16777216",
        "--ffn=16777216",
        "--vocab=16777216",
        "--batch=4096",
        "--heads=256",
    ];
    let output = sandbox.run(&[&["explain", "model"][..], &large].concat());
    assert_eq!(output.code, Some(2), "{output:?}");
    for part in ["hidden 16777216", "past 2^57", "give a smaller `--hidden`"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    assert!(!output.stderr.contains("transformer.aorta"), "{}", output.stderr);
}
