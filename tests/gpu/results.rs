//! Every operation, every shipped file and random programs give the CPU's results.

use aorta::backend::host::Host;
use aorta::base::DType;
use aorta::exec::{Backend, LaunchMode};
use aorta::measure;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::common::{self, programs, shipped};
use crate::{folder, gpu, verify};

#[test]
fn every_operation_agrees_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let files = [
        ("operations.aorta", include_str!("../workloads/operations.aorta")),
        ("scatter.aorta", include_str!("../workloads/scatter.aorta")),
        ("rows.aorta", include_str!("../workloads/rows.aorta")),
        ("gradients.aorta", include_str!("../workloads/gradients.aorta")),
        ("row_gradients.aorta", include_str!("../workloads/row_gradients.aorta")),
    ];
    for (file, text) in files {
        for dtype in ["f64", "f32", "f16", "bf16"] {
            let analyzed = shipped::analyze(file, text, None, &[("dtype", dtype)]);
            verify(&format!("{file} in {dtype}"), &analyzed.unwrap_or_else(|errors| panic!("{errors}")), &gpu);
        }
    }
}

/// Operations on tensors large enough for vectorized access, of random sizes, with broadcasts and gaps: declarations
/// and calls, with `#` for the number of each.
fn large() -> impl Strategy<Value = (String, String)> {
    let dtype = prop::sample::select(vec!["f64", "f32", "f16", "bf16", "i32", "u8", "i8"]);
    let dims = prop::collection::vec(prop_oneof![1..20u64, 1..700u64, Just(8u64), Just(64)], 1..5);
    // The last dimension is as long as needed for some hundred thousand elements.
    let dims = (dims, 1..4_000_000u64).prop_map(|(mut dims, elements): (Vec<u64>, u64)| {
        let place = dims.len() / 2;
        dims[place] = 1;
        let others: u64 = dims.iter().product::<u64>();
        dims[place] = (elements / others).max(1);
        dims
    });
    let more = (0..4usize, any::<prop::sample::Index>(), 0..9u64, any::<u64>());
    (dtype, prop::sample::select(vec!["f32", "f64", "u8", "bf16"]), dims.clone(), more).prop_map(
        |(dtype, other, dims, (kind, axis, extra, order))| {
            let axis = axis.index(dims.len());
            let put = |index: usize, size: u64| {
                let mut dims = dims.clone();
                dims[index] = size;
                dims
            };
            match kind {
                0 => {
                    let mut axes: Vec<usize> = (0..dims.len()).collect();
                    axes.rotate_left(axis);
                    let last = axes.len() - 1;
                    axes.swap(order as usize % (last + 1), last);
                    let turned: Vec<u64> = axes.iter().map(|&axis| dims[axis]).collect();
                    let call = match dims.len() {
                        1 => "copy(x# -> y#, via: kernel)".to_owned(),
                        _ => format!("transpose(x# -> y#, dims: {axes:?})"),
                    };
                    (format!("buffer x#: {dtype}{dims:?}\nbuffer y#: {dtype}{turned:?}\n"), call)
                }
                1 => {
                    let one = put(axis, 1);
                    let call = "map(x# + b# * 2 -> y#)".to_owned();
                    (format!("buffer x#: {dtype}{dims:?}\nbuffer b#: {other}{one:?}\nbuffer y#: f32{dims:?}\n"), call)
                }
                2 => {
                    let wide = put(axis, dims[axis] + extra);
                    let slice = |index: usize| match index == axis {
                        true => format!("{extra}..{}", dims[axis] + extra),
                        false => "..".to_owned(),
                    };
                    let slices: Vec<String> = (0..dims.len()).map(slice).collect();
                    let call = format!("copy(x#[{}] -> y#, via: kernel)", slices.join(", "));
                    (format!("buffer x#: {dtype}{wide:?}\nbuffer y#: {dtype}{dims:?}\n"), call)
                }
                _ => (format!("buffer x#: {dtype}{dims:?}\nbuffer y#: {other}{dims:?}\n"), "cast(x# -> y#)".to_owned()),
            }
        },
    )
}

#[test]
fn walks_over_large_tensors_agree_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let operations = prop::collection::vec(large(), 20).new_tree(&mut runner).expect("operations").current();
        let of = |part: fn(&(String, String)) -> &String| {
            let numbered = |(number, one)| part(one).replace('#', &format!("{number}"));
            operations.iter().enumerate().map(numbered).collect::<Vec<_>>()
        };
        let text = format!("{}step {{ {} }}\n", of(|(declared, _)| declared).concat(), of(|(_, call)| call).join("\n"));
        let analyzed = shipped::analyze("large.aorta", &text, None, &[]);
        verify(&text, &analyzed.unwrap_or_else(|errors| panic!("{errors}\n{text}")), &gpu);
    }
}

#[test]
fn every_shipped_file_agrees_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    for file in shipped::all() {
        verify(&file.path, &file.small(&[]), &gpu);
    }
}

#[test]
fn random_programs_compute_the_same_however_they_run() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let mut runner = TestRunner::deterministic();
    for _ in 0..16 {
        let statements = programs::statements(6, 40).new_tree(&mut runner).expect("a program").current();
        for options in ["", "(sync: end, depth: 3)"] {
            let text = programs::text(&statements, 6, options);
            let (program, plan) = common::planned(&text);
            let run =
                |backend: &dyn Backend, streams, mode| common::results(&program, &plan, backend, streams, mode, 6);
            let serial = run(&gpu, Some(1), LaunchMode::Stream);
            assert_eq!(run(&gpu, None, LaunchMode::Stream), serial, "all streams\n{text}");
            assert_eq!(run(&gpu, Some(2), LaunchMode::Stream), serial, "two streams\n{text}");
            assert_eq!(run(&gpu, None, LaunchMode::Graph), serial, "as a graph\n{text}");
            for (actual, expected) in serial.iter().zip(&run(&Host, None, LaunchMode::Stream)) {
                let compared = measure::compare(DType::F32, 16, actual, expected, 1e-5);
                assert!(compared.error <= compared.bound, "off by {}\n{text}", compared.error);
            }
        }
    }
}
