//! Gradients of 8-bit floats. Programs are evaluated without rounding, so a conversion to 8 bits passes its value on, and
//! differences are those of the dequantized program: the gradients that a straight-through conversion has by definition.

use aorta::base::random::hash;
use aorta::model::{self, AnalysisOptions};
use aorta::ops::CATALOGUE;
use aorta::syntax::{self, SyntaxLimits};

use super::cases::{Draw, cases};
use super::{Case, Contents, Function, PLAIN, evaluate, initial, judge, judge_differences, memory};
use crate::common::{self, effort};

/// A product of 8-bit matrices of drawn shapes, types and options.
struct Product {
    has_scales: bool,
    /// Whether there is a scale for each row of `a` and each column of `b`.
    by_rows: bool,
    options: &'static str,
}

impl Product {
    fn case(&self, seed: u64) -> Case {
        let mut draw = Draw { seed, next: 0 };
        let d = &mut draw;
        let (m, k, n) = (d.size() + 1, d.size() + 1, d.size() + 1);
        let [turned_a, turned_b] = [(); 2].map(|()| d.below(2) == 0);
        let lead = if self.by_rows || d.below(2) == 0 { Vec::new() } else { vec![d.size()] };
        let b_has_lead = d.below(2) == 0;
        // Gates are left out: their reference rounds the sums, as they are stored, to `f32`.
        let epilogue = d.pick(&["none", "none", "relu", "gelu", "silu"]);
        let matrix = |with_lead: bool, rows: u64, columns: u64, turned: bool| {
            let own = if turned { vec![columns, rows] } else { vec![rows, columns] };
            [if with_lead { lead.clone() } else { Vec::new() }, own].concat()
        };
        let mut inputs = vec![matrix(true, m, k, turned_a), matrix(b_has_lead, k, n, turned_b)];
        let mut types = vec![d.pick(&["e4m3", "e5m2"]), d.pick(&["e4m3", "e5m2"])];
        if self.has_scales {
            inputs.extend(if self.by_rows { [vec![m], vec![n]] } else { [vec![1], vec![1]] });
            types.extend(["f32"; 2]);
        }
        // Sums of products of few bits may be zero, where `relu` has no derivative. A bias moves them away.
        if d.below(2) == 0 || epilogue == "relu" {
            inputs.push(vec![n]);
            types.push("f32");
        }
        let operands = (0..inputs.len()).map(|index| format!("${index}")).collect::<Vec<_>>().join(", ");
        let name = if self.has_scales { "scaled_gemm" } else { "gemm" };
        let statement = format!(
            "f: {name}({operands} -> @0, transpose_a: {turned_a}, transpose_b: {turned_b}, epilogue: {epilogue})"
        );
        let outputs = vec![matrix(true, m, n, false)];
        let (statement, types, options) = (&*statement, Some(&*types), self.options);
        Function { statement, inputs, outputs, types, options, ..PLAIN }.case(seed)
    }
}

/// A product with scales, for the list of all operations.
pub(super) fn scaled_product(seed: u64) -> Case {
    Product { has_scales: true, by_rows: seed.is_multiple_of(2), options: "" }.case(seed)
}

#[test]
fn products_have_the_gradients_of_dequantized_matrices() {
    let forms = [(false, false), (true, false), (true, true)];
    for seed in effort::chosen(0..8) {
        for (place, (has_scales, by_rows)) in forms.into_iter().enumerate() {
            judge(&Product { has_scales, by_rows, options: "" }.case(hash(seed, place as u64)));
        }
    }
}

/// Without rounding, products with quantized gradients have the same results as those without.
#[test]
fn quantized_gradients_are_scaled_back() {
    for seed in effort::chosen(0..8) {
        for (place, has_scales) in [false, true].into_iter().enumerate() {
            for options in [", quantize: e5m2", ", quantize: e4m3"] {
                let case = Product { has_scales, by_rows: false, options }.case(hash(seed, place as u64));
                judge_differences(&case, Contents::Drawn);
            }
        }
    }
}

/// Returns the contents of a buffer after one iteration without rounding.
fn contents(text: &str, buffer: &str) -> Vec<f64> {
    let (program, _) = common::planned(text);
    let programs = [program];
    let mut world = initial(&programs, Contents::Stored);
    evaluate(&programs, &mut world);
    world[0].swap_remove(memory(&programs[0], buffer).index())
}

/// A scale has its gradient also where the matrix needs none, and where the scale is zero.
#[test]
fn scales_have_gradients_of_their_own() {
    let text = |product: &str| {
        format!(
            "buffer a: e4m3[8, 32] = random(1)\nbuffer b: e4m3[32, 16] = random(2)\nbuffer sb: f32[1] = random(3)\n\
                 buffer p: f32[1] = random(4)\nbuffer dp: f32[1]\nbuffer dy: f32[8, 16] = random(5)\n\
                 def product(p -> y) {{\n  s: map(p * 2 -> f32[1])\n{product}\n}}\n\
                 step {{\n  f: product(p -> f32[8, 16])\n  grad(f, dy -> dp)\n}}\n"
        )
    };
    let scaled = contents(&text("  scaled_gemm(a, b, s, sb -> y)"), "dp")[0];
    let written = text("  x: map(a * s -> f32[8, 32])\n  w: map(b * sb -> f32[32, 16])\n  gemm(x, w -> y)");
    let expected = contents(&written, "dp")[0];
    assert!(expected != 0.0 && (scaled - expected).abs() <= 1e-9 * (1.0 + expected.abs()), "{scaled}, not {expected}");
    let zero = "buffer a: e4m3[8, 32] = random(1)\nbuffer b: e4m3[32, 16] = random(2)\nbuffer sa: f32[1] = zeros\nbuffer sb: f32[1] = random(3)\n\
                buffer dsa: f32[1]\nbuffer dy: f32[8, 16] = random(5)\n\
                def product(sa -> y) {\n  scaled_gemm(a, b, sa, sb -> y)\n}\n\
                step {\n  f: product(sa -> f32[8, 16])\n  grad(f, dy -> dsa)\n}\n";
    let found = contents(zero, "dsa")[0];
    assert!(found.is_finite() && found != 0.0, "{found}");
}

/// Checks that a buffer has the same contents, other than zeros, after both texts.
fn assert_alike(buffer: &str, text: &str, expected: &str) {
    let [found, wanted] = [text, expected].map(|text| contents(text, buffer));
    assert!(wanted.iter().any(|value| *value != 0.0));
    for (place, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        let close = (found - wanted).abs() <= 1e-9 * (1.0 + wanted.abs());
        assert!(close, "{buffer}[{place}]: {found}, not {wanted}\n{text}\n{expected}");
    }
}

/// Scales of blocks have the gradients that the written multiplication by them has.
#[test]
fn scales_of_blocks() {
    for [turned_a, turned_b] in [[false, false], [false, true], [true, false], [true, true]] {
        let (a, of_a, scale_a) = match turned_a {
            false => ("[4, 256]", "[4, 2, 128]", "view(turned_a, [4, 2, 1])"),
            true => ("[256, 4]", "[2, 128, 4]", "view(sa, [2, 1, 4])"),
        };
        let (b, of_b, scale_b) = match turned_b {
            false => ("[256, 128]", "[2, 128, 1, 128]", "view(sb_turned, [2, 1, 1, 1])"),
            true => ("[128, 256]", "[1, 128, 2, 128]", "view(sb, [1, 1, 2, 1])"),
        };
        let text = |product: &str| {
            format!(
                "buffer a: e4m3{a} = random(1)\nbuffer b: e4m3{b} = random(2)\n\
                 buffer sa: f32[2, 4] = random(3)\nbuffer wide: f32[1, 4] = random(4)\n\
                 buffer dy: f32[4, 128] = random(5)\nbuffer da: f32{a}\nbuffer db: f32{b}\n\
                 buffer dsa: f32[2, 4]\nbuffer dsb: f32[1, 2]\n\
                 def product(a, b, sa, sb -> y) {{\n{product}\n}}\n\
                 step {{\n  f: product(a, b, sa, wide[.., 0..2] -> f32[4, 128])\n  grad(f, dy -> da, db, dsa, dsb)\n}}\n"
            )
        };
        let turns = format!("transpose_a: {turned_a}, transpose_b: {turned_b}");
        let scaled = text(&format!("  scaled_gemm(a, b, sa, sb, {turns} -> y)"));
        let written = text(&format!(
            "  turned_a: transpose(sa)\n  sb_turned: transpose(sb)\n  \
             x: map(view(a, {of_a}) * {scale_a} -> f32{of_a})\n  w: map(view(b, {of_b}) * {scale_b} -> f32{of_b})\n  \
             gemm(view(x, {a}), view(w, {b}), {turns} -> y)"
        ));
        for buffer in ["da", "db", "dsa", "dsb"] {
            assert_alike(buffer, &scaled, &written);
        }
    }
}

/// The norm of a sum of 8-bit tensors has the gradients of an addition and a norm. Its reference rounds the sum, as it is stored, before
/// the norm, so that differences would vanish. Here the residual is zero, and rounding changes nothing.
#[test]
fn norms_of_sums() {
    for (name, more, gradients) in [("rms_norm", "", ""), ("layer_norm", ", bias", ", dbias")] {
        for seed in effort::chosen(0..4) {
            let text = |body: &str| {
                format!(
                    "buffer x: e4m3[4, 24] = random({seed})\nbuffer residual: e4m3[4, 24] = zeros\n\
                     buffer weight: e4m3[24] = random({})\nbuffer bias: e4m3[24] = random({})\n\
                     buffer dy: f32[4, 24] = random({})\nbuffer dtotal: f32[4, 24] = random({})\n\
                     buffer dx, dresidual: f32[4, 24]\nbuffer dweight, dbias: f32[24]\n\
                     def norm(x, residual, weight{more} -> y, total) {{\n{body}\n}}\n\
                     step {{\n  f: norm(x, residual, weight{more} -> e4m3[4, 24], e4m3[4, 24])\n  \
                     grad(f, dy, dtotal -> dx, dresidual, dweight{gradients})\n}}\n",
                    seed + 10,
                    seed + 20,
                    seed + 30,
                    seed + 40,
                )
            };
            let added = text(&format!("  add_{name}(x, residual, weight{more} -> y, total)"));
            let written = text(&format!("  map(x + residual -> total)\n  {name}(total, weight{more} -> y)"));
            let buffers = ["dx", "dresidual", "dweight", gradients.trim_start_matches(", ")];
            for buffer in buffers.into_iter().filter(|buffer| !buffer.is_empty()) {
                assert_alike(buffer, &added, &written);
            }
        }
    }
}

/// An operation that accepts 8-bit floats has gradients of them, in `f32`, or a reason why it has none.
#[test]
fn operations_on_8_bits() {
    if !effort::is_due() {
        return;
    }
    // The references of these operations round the sum, which is an output, before they normalize it, so that differences of `x` vanish.
    // `norms_of_sums` checks their gradients instead.
    const WITHOUT_DIFFERENCES: [&str; 2] = ["add_rms_norm", "add_layer_norm"];
    let mut checked = 0;
    for operation in CATALOGUE.iter().filter(|operation| !WITHOUT_DIFFERENCES.contains(&operation.name())) {
        let found = (0..2).filter_map(|seed| cases(operation.name(), hash(seed, 78)));
        for mut case in found.filter(|case| case.ranks == 1) {
            for (parts, narrow) in [(&case.inputs, "x"), (&case.outputs, "y")] {
                for (part, _) in parts {
                    let (own, gradient) = (part.buffer.clone(), format!("d{}", part.buffer));
                    assert!(own.starts_with(narrow));
                    for (buffer, dtype) in [(own, "e4m3"), (gradient, "f32")] {
                        case.text =
                            case.text.replace(&format!("buffer {buffer}: f64"), &format!("buffer {buffer}: {dtype}"));
                    }
                }
            }
            let options = AnalysisOptions::default();
            let without = case.text.lines().filter(|line| !line.trim_start().starts_with("grad(")).collect::<Vec<_>>();
            let (ast, errors) = syntax::parse(&without.join("\n"), 0, &SyntaxLimits::default());
            assert!(errors.is_empty(), "{errors:?}");
            if model::analyze(&ast, &options).is_err() {
                continue;
            }
            judge_differences(&case, Contents::Drawn);
            checked += 1;
        }
    }
    assert!(checked >= 30, "{checked} uses of operations accept 8-bit floats");
}
