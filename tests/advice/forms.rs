//! Each kind of advice in drawn forms, with the text that follows it, and with what makes it wrong.

use proptest::prelude::*;

use super::{advice, advice_on, assert_close, of_code, results, simulated, uncached};

/// A text, the same text with the advice followed, and the code of that advice.
#[derive(Clone, Debug)]
struct Form {
    code: &'static str,
    /// With `SIZE` in place of a size.
    before: String,
    after: String,
    /// Sizes for the CPU and for the simulator.
    sizes: [u32; 2],
}

impl Form {
    fn text(&self, text: &str, size: u32) -> String {
        text.replace("SIZE", &size.to_string())
    }
}

/// Attention by products: where its factor is, whether it is masked, how its keys lie, and with how many leading
/// dimensions.
fn attention() -> impl Strategy<Value = Form> {
    (0..4u8, any::<bool>(), any::<bool>(), 0..3usize, 0.05..0.5f64).prop_map(|(factor, masked, turned, lead, scale)| {
        let scale = (scale * 64.0).round().max(4.0) / 64.0;
        let lead = ["8, ", "16, ", "2, 4, "][lead];
        let head = format!(
            "buffer q, k, v: bf16[{lead}SIZE, 64]\nbuffer o: f32[{lead}SIZE, 64]\n\
                 buffer key: f32[SIZE] = iota\nbuffer row: f32[SIZE, 1] = iota\nstep {{\n"
        );
        let mut body = String::new();
        let (mut queries, mut seen) = ("q".to_owned(), "scores".to_owned());
        let keys = if turned { "turned" } else { "k, transpose_b: true" };
        if turned {
            body += "  turned: transpose(k)\n";
        }
        if factor == 0 {
            body += &format!("  scaled: map(q * {scale})\n");
            queries = "scaled".to_owned();
        }
        body += &format!("  scores: gemm({queries}, {keys})\n");
        if factor == 1 {
            body += &format!("  factored: map(scores * {scale})\n");
            seen = "factored".to_owned();
        }
        if masked {
            body += &format!("  masked: map(if key <= row {{ {seen} }} else {{ -1e30 }})\n");
            seen = "masked".to_owned();
        }
        body += &format!("  wide: cast({seen}, to: f32)\n");
        let option = if factor == 2 { format!(", scale: {scale}") } else { String::new() };
        body += &format!("  probs: softmax(wide{option})\n");
        body += "  narrow: cast(probs, to: bf16)\n  gemm(narrow, v -> o)\n";
        let scale = if factor < 3 { scale } else { 1.0 };
        let causal = if masked { ", causal: true" } else { "" };
        let after = format!("{head}  attention(q, k, v{causal}, scale: {scale} -> o)\n}}\n");
        Form { code: "split_attention", before: format!("{head}{body}}}\n"), after, sizes: [12, 1024] }
    })
}

/// Casts: to a wider type for readers that take the narrower one, back and forth, and of values that never change.
fn casts() -> impl Strategy<Value = Form> {
    let head = "buffer x: bf16[SIZE, 64]\nbuffer w: bf16[64, 64]\nbuffer f: f32[64, 64]\nbuffer o: f32[SIZE, 64]\n";
    let forms = [
        ("wide: cast(x, to: f32)\n  map(wide * 2 -> o)", "map(x * 2 -> o)"),
        ("wide: cast(x, to: f32)\n  wider: cast(w, to: f32)\n  gemm(wide, wider -> o)", "gemm(x, w -> o)"),
        (
            "a: map(x + 1)\n  wide: cast(a, to: f32)\n  back: cast(wide, to: bf16)\n  gemm(back, w -> o)",
            "a: map(x + 1)\n  gemm(a, w -> o)",
        ),
        ("a: map(x + 1)\n  same: cast(a, to: bf16)\n  gemm(same, w -> o)", "a: map(x + 1)\n  gemm(a, w -> o)"),
        ("wide: cast(x, to: f32)\n  map(wide + wide * wide -> o)", "map(x + x * x -> o)"),
    ];
    let form = move |at: usize| {
        let [before, after] = [forms[at].0, forms[at].1].map(|body| format!("{head}step {{\n  {body}\n}}\n"));
        Form { code: "needless_cast", before, after, sizes: [8, 65536] }
    };
    let narrow = Form {
        code: "needless_cast",
        before: format!("{head}step {{\n  small: cast(f, to: bf16)\n  gemm(x, small -> o)\n}}\n"),
        after: format!(
            "{head}buffer small: bf16[64, 64]\nsetup {{ cast(f -> small) }}\nstep {{\n  gemm(x, small -> o)\n}}\n"
        ),
        sizes: [8, 256],
    };
    prop_oneof![5 => (0..5usize).prop_map(form), 1 => Just(narrow)]
}

/// Copies of a slice, in its own dimensions or in others, and transposes before products.
fn copies() -> impl Strategy<Value = Form> {
    let head = "buffer x: f32[4, SIZE, 64]\nbuffer w: f32[64, 64]\nbuffer o: f32[SIZE, 64]\nbuffer t: f32[SIZE, 64]\n";
    let forms = [
        ("copy(x[2] -> t)\n  map(t * 2 -> o)", "map(x[2] * 2 -> o)"),
        ("copy(x[1] -> t)\n  gemm(t, w -> o)", "gemm(x[1], w -> o)"),
        ("turned: transpose(w)\n  gemm(x[0], turned -> o)", "gemm(x[0], w, transpose_b: true -> o)"),
        ("turned: transpose(w)\n  gemm(x[0], turned, transpose_b: true -> o)", "gemm(x[0], w -> o)"),
        ("copy(x[3] -> t)\n  map(t + x[0] -> o)\n  map(o * 2 -> x[3])", "map(x[3] + x[0] -> o)\n  map(o * 2 -> x[3])"),
    ];
    (0..forms.len()).prop_map(move |at| {
        let [before, after] = [forms[at].0, forms[at].1].map(|body| format!("{head}step {{\n  {body}\n}}\n"));
        let large = if at == 2 || at == 3 { 64 } else { 16384 };
        Form { code: "needless_copy", before, after, sizes: [8, large] }
    })
}

/// Products of one matrix with two or three others, with biases or without.
fn products() -> impl Strategy<Value = Form> {
    (2..4usize, any::<bool>(), any::<bool>()).prop_map(|(count, bias, transposed)| {
        let names = &["a", "b", "c"][..count];
        let sizes = &[16, 16, 16][..count];
        let all: u32 = sizes.iter().sum();
        let weights = |columns: u32| if transposed { format!("[{columns}, 64]") } else { format!("[64, {columns}]") };
        let option = if transposed { ", transpose_b: true" } else { "" };
        let head = format!(
            "buffer x: f32[SIZE, 64]\nbuffer w: f32{}\nbuffer bias: f32[{all}]\nbuffer o: f32[SIZE, 16]\nstep {{\n",
            weights(all)
        );
        let (mut before, mut first) = (head.clone(), 0);
        for (name, size) in names.iter().zip(sizes) {
            let part = first..first + size;
            let slice = if transposed { format!("w[{part:?}]") } else { format!("w[.., {part:?}]") };
            let bias = if bias { format!(", bias[{part:?}]") } else { String::new() };
            before += &format!("  {name}: gemm(x, {slice}{bias}{option})\n");
            first += size;
        }
        let sum = |parts: Vec<String>| format!("  map({} -> o)\n}}\n", parts.join(" + "));
        before += &sum(names.iter().map(|name| format!("{name}[.., 0..16]")).collect());
        let bias = if bias { ", bias" } else { "" };
        let mut after = format!("{head}  all: gemm(x, w{bias}{option})\n");
        let starts = [0, 16, 32];
        after += &sum(starts[..count].iter().map(|start| format!("all[.., {start}..{}]", start + 16)).collect());
        Form { code: "joint_products", before, after, sizes: [8, 1024] }
    })
}

fn forms() -> impl Strategy<Value = Form> {
    prop_oneof![attention(), casts(), copies(), products()]
}

proptest! {
    #![proptest_config(crate::common::properties(48))]

    #[test]
    fn advice_can_be_followed(form in forms()) {
        let [small, large] = form.sizes;
        let (before, after) = (form.text(&form.before, small), form.text(&form.after, small));
        let what = format!("{before}\n{after}");
        let relative = if form.code == "split_attention" { 2e-2 } else { 1e-5 };
        assert_close(&results(&before, "o"), &results(&after, "o"), relative, &what);
        let (before, after) = (form.text(&form.before, large), form.text(&form.after, large));
        let all = advice(&before);
        let followed = of_code(&all, form.code);
        prop_assert_eq!(followed.len(), 1, "{}\n{:?}", &before, all);
        prop_assert!(of_code(&advice(&after), form.code).is_empty(), "{}", after);
        // On one stream an iteration is the sum of its operations and of the gaps between them.
        let device = uncached();
        let all = advice_on(&before, &device);
        let gain = &of_code(&all, form.code)[0].gain;
        let simulated = simulated(&before, &device) - simulated(&after, &device);
        prop_assert!((simulated - gain.most_ns.0 as f64).abs() < 3.0, "{}\n{:?}\n{}", before, gain, simulated);
    }
}

/// Changes of a text each of which makes the advice wrong.
fn spoiled(code: &str) -> Vec<(String, &'static str)> {
    let attention = |before: &str, between: &str, behind: &str| {
        format!(
            "stream a\nstream b\nbuffer q, k, v: bf16[8, 1024, 64]\nbuffer o, other: bf16[8, 1024, 64]\n\
             buffer key: f32[1024] = iota\nbuffer row: f32[1024, 1] = iota\nbuffer kept: bf16[8, 1024, 1024]\n\
             step {{\n  on a {{\n{before}  scores: gemm(q, k, transpose_b: true)\n{between}  probs: softmax(scores)\n  \
             gemm(probs, v -> o)\n{behind}  }}\n}}\n"
        )
    };
    let cast = |body: &str| {
        let head = "buffer x: bf16[4096, 64]\nbuffer w: f32[64, 64]\nbuffer o, p: f32[4096, 64]\n";
        format!("{head}step {{\n  map(x * 2 -> x)\n  map(w * 2 -> w)\n  {body}\n}}\n")
    };
    let copy = |body: &str| {
        let head =
            "stream a\nstream b\nbuffer x: f32[4, 4096, 64]\nbuffer w: f32[64, 64]\nbuffer o, t: f32[4096, 64]\n";
        format!("{head}step {{\n  {body}\n}}\n")
    };
    let product = |body: &str| {
        let head = "stream s\nstream r\nbuffer x: f32[1024, 64]\nbuffer u, w: f32[64, 16]\nbuffer o: f32[1024, 16]\n";
        format!("{head}step {{\n  {body}\n}}\n")
    };
    match code {
        "split_attention" => vec![
            (attention("", "", ""), ""),
            (attention("", "", "  map(probs * 2)\n"), "the weights have another reader"),
            (attention("", "", "  map(scores * 2)\n"), "the scores have another reader"),
            (attention("", "", "  map(probs[0..2] * 2)\n"), "a part of the weights has another reader"),
            (attention("", "  map(k * 2 -> k)\n", ""), "the keys change in between"),
            (attention("", "  map(scores + 1 -> scores)\n", ""), "something is added to the scores"),
            (attention("", "  map(scores * -1 -> scores)\n", ""), "a factor is negative"),
            (attention("", "  map(if key < row { scores } else { -1e30 } -> scores)\n", ""), "the mask is another"),
            (attention("", "  map(if row <= key { scores } else { -1e30 } -> scores)\n", ""), "the mask is turned"),
            (attention("", "", "").replace("-> o)", "-> q)"), "the result overwrites the queries"),
            (attention("", "", "").replace("gemm(probs, v", "gemm(probs, v, accumulate: true"), "sums go on"),
            (
                attention("", "", "")
                    .replace("  probs: softmax(scores)", "  }\n  on b { probs: softmax(scores) }\n  on a {"),
                "the softmax is on another stream",
            ),
            (
                attention("  map(kept[.., .., 0..64] * 2 -> o)\n", "", "").replace("_b: true)", "_b: true -> kept)"),
                "the next iteration reads the scores",
            ),
        ],
        "needless_cast" => vec![
            (cast("wide: cast(x, to: f32)\n  map(wide * 2 -> o)"), ""),
            (cast("wide: cast(x, to: f32)\n  gemm(wide, w -> o)"), "the product needs two of one type"),
            (cast("small: cast(w, to: bf16)\n  gemm(x, small -> o)"), "the cast rounds"),
            (cast("a: map(x * 2)\n  wide: cast(a, to: f64)\n  map(wide * 2 -> o)"), "the reader computes in f64"),
            (
                cast("a: map(x * 2)\n  wide: cast(a, to: f32)\n  b: map(wide * 2)\n  map(b + 1 -> o)"),
                "`b` is f32 by it",
            ),
        ],
        "needless_copy" => vec![
            (copy("copy(x[2] -> t)\n  map(t * 2 -> o)"), ""),
            (copy("copy(x[2] -> t)\n  map(x[2] * 2 -> x[2])\n  map(t * 2 -> o)"), "the original changes before"),
            (copy("copy(x[2] -> t)\n  map(t * 2 -> x[2])"), "the reader overwrites the original"),
        ],
        _ => vec![
            (product("a: gemm(x, u)\n  b: gemm(x, w)\n  map(a + b -> o)"), ""),
            (product("a: gemm(x, u)\n  map(x + 1 -> x)\n  b: gemm(x, w)\n  map(a + b -> o)"), "the matrix changes"),
            (product("a: gemm(x, u)\n  map(w + 1 -> w)\n  b: gemm(x, w)\n  map(a + b -> o)"), "a weight changes"),
            (
                product("on s { a: gemm(x, u) }\n  on r { b: gemm(x, w) }\n  on s { map(a + b -> o) }"),
                "they run side by side",
            ),
            (product("a: gemm(x, u, epilogue: relu)\n  b: gemm(x, w)\n  map(a + b -> o)"), "they differ"),
            (product("gemm(x, u -> o)\n  map(o + 1 -> o)\n  gemm(x, w -> o)"), "one result overwrites the other"),
        ],
    }
}

#[test]
fn what_spoils_an_advice_silences_it() {
    for code in ["split_attention", "needless_cast", "needless_copy", "joint_products"] {
        for (text, why) in spoiled(code) {
            let all = advice(&text);
            assert_eq!(of_code(&all, code).len(), usize::from(why.is_empty()), "{code}: {why}\n{text}\n{all:?}");
        }
    }
}
