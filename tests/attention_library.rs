//! Uses of attention that are offered to a vendor's library, and as which tensors.

use std::sync::Arc;

use aorta::base::{DType, Dims, Space};
use aorta::ops::{AttentionForm, Attr, FusedAttention, Launch, QuerySums, Spec, Tensor};

fn tensor(dtype: DType, sizes: &[u64]) -> Tensor {
    let dims = Dims::from_slice(sizes).expect("few dimensions");
    Tensor { dtype, dims, strides: dims.contiguous_strides(), space: Space::Device, align: 16 }
}

/// The use that the library is offered for a call; `None` if the kernels compute it alone.
fn offered(options: &[(&'static str, Attr)], inputs: Vec<Tensor>) -> Option<Arc<FusedAttention>> {
    let (name, outputs) = if inputs.len() > 4 { ("attention_backward", 3) } else { ("attention", 2) };
    offered_by(name, outputs, options, inputs)
}

/// The use of this operation that the library is offered.
fn offered_by(
    name: &'static str,
    outputs: usize,
    options: &[(&'static str, Attr)],
    inputs: Vec<Tensor>,
) -> Option<Arc<FusedAttention>> {
    let spec = Spec::of_use(name, options, inputs, &vec![None; outputs]).expect("a use of attention");
    let launches = spec.launch();
    assert!(launches.iter().map(|launch| launch.kernels().len()).sum::<usize>() > 0, "kernels stand in");
    match launches.first() {
        Some(Launch::Attention(fused, _)) => Some(fused.clone()),
        _ => None,
    }
}

fn forward(dtype: DType, q: &[u64], k: &[u64]) -> Vec<Tensor> {
    vec![tensor(dtype, q), tensor(dtype, k), tensor(dtype, k)]
}

#[test]
fn operands_have_batch_heads_positions_and_elements() {
    let layout = [("layout", Attr::Word("positions_first")), ("causal", Attr::Bool(true)), ("window", Attr::Int(9))];
    let fused = offered(&layout, forward(DType::BF16, &[2, 70, 6, 64], &[2, 90, 3, 64])).expect("it is offered");
    let shape = |place: usize| (fused.tensor(place).dims.to_vec(), fused.tensor(place).strides.to_vec());
    assert_eq!(shape(0), (vec![2, 6, 70, 64], vec![70 * 6 * 64, 64, 6 * 64, 1]));
    assert_eq!(shape(1), (vec![2, 3, 90, 64], vec![90 * 3 * 64, 64, 3 * 64, 1]));
    assert_eq!(shape(4), (vec![2, 6, 70, 1], vec![6 * 70, 70, 1, 1]), "a number for each query");
    assert_eq!((fused.form, fused.causal, fused.window), (AttentionForm::Forward, true, 9));
    assert_eq!(fused.scale, 0.125);
    assert_eq!(fused.operands.iter().map(|(operand, _)| *operand).collect::<Vec<u8>>(), [0, 1, 2, 3, 4]);
    // Two dimensions are one head, and a window of all keys is none.
    let all = [("causal", Attr::Bool(true)), ("window", Attr::Int(40))];
    let fused = offered(&all, forward(DType::F16, &[30, 16], &[40, 16])).expect("it is offered");
    assert_eq!((fused.tensor(0).dims.to_vec(), fused.window), (vec![1, 1, 30, 16], 0));
    // Five dimensions whose first two lie one behind the other are one batch.
    let fused = offered(&[], forward(DType::F16, &[2, 3, 4, 8, 16], &[2, 3, 4, 8, 16])).expect("it is offered");
    assert_eq!(fused.tensor(0).dims.to_vec(), [6, 4, 8, 16]);
}

#[test]
fn what_no_library_computes_is_not_offered() {
    let usual = || forward(DType::BF16, &[1, 4, 32, 64], &[1, 4, 48, 64]);
    assert!(offered(&[], usual()).is_some());
    for algorithm in ["fused", "naive"] {
        assert!(offered(&[("algorithm", Attr::Word(algorithm))], usual()).is_none(), "{algorithm}");
    }
    assert!(offered(&[], forward(DType::F32, &[1, 4, 32, 64], &[1, 4, 48, 64])).is_none(), "other types");
    assert!(offered(&[], forward(DType::F16, &[1, 4, 32, 60], &[1, 4, 48, 60])).is_none(), "rows of half packs");
    let causal = [("causal", Attr::Bool(true))];
    let more = forward(DType::F16, &[1, 4, 49, 64], &[1, 4, 48, 64]);
    assert!(offered(&causal, more.clone()).is_none(), "queries before the first key");
    assert!(offered(&[], more).is_some());
    let mut shifted = usual();
    shifted[1].align = 2;
    assert!(offered(&[], shifted).is_none(), "keys that begin anywhere");
    let mut apart = forward(DType::F16, &[2, 3, 4, 8, 16], &[2, 3, 4, 8, 16]);
    apart[0].strides.set(0, 4096);
    assert!(offered(&[], apart).is_none(), "a batch of two strides");
    let mut turned = usual();
    turned[2].strides = Dims::from_slice(&[48 * 4 * 64, 48 * 64, 1, 48]).expect("four");
    assert!(offered(&[], turned).is_none(), "elements that are no neighbours");
}

#[test]
fn a_bias_is_offered_as_the_library_takes_it() {
    let with = |dtype: DType, bias: &[u64]| {
        let mut inputs = forward(DType::BF16, &[2, 4, 32, 64], &[2, 4, 48, 64]);
        inputs.push(tensor(dtype, bias));
        inputs
    };
    let taken = [
        (&[2, 4, 32, 48][..], vec![2, 4, 32, 48]),
        (&[4, 32, 48], vec![1, 4, 32, 48]),
        (&[2, 1, 32, 48], vec![2, 1, 32, 48]),
        (&[32, 48], vec![1, 1, 32, 48]),
    ];
    for (bias, dims) in taken {
        let fused = offered(&[], with(DType::BF16, bias)).expect("it is offered");
        let place = fused.bias().expect("it has a bias");
        let found = fused.tensor(place);
        assert_eq!((found.dims.to_vec(), found.dims.contiguous_strides()), (dims, found.strides), "{bias:?}");
        assert_eq!(fused.operands.iter().map(|(operand, _)| *operand).collect::<Vec<u8>>(), [0, 1, 2, 4, 5, 3]);
    }
    for bias in [&[2, 4, 1, 48][..], &[48], &[32, 1], &[]] {
        assert!(offered(&[], with(DType::BF16, bias)).is_none(), "{bias:?} is broadcast along queries or keys");
    }
    assert!(offered(&[], with(DType::F32, &[32, 48])).is_none(), "another type");
    let mut apart = with(DType::BF16, &[32, 48]);
    apart[3].strides.set(0, 49);
    assert!(offered(&[], apart).is_some(), "rows may begin anywhere");
}

#[test]
fn similar_lengths_are_of_one_class() {
    let class = |options: &[(&'static str, Attr)], q: &[u64], k: &[u64]| {
        offered(options, forward(DType::BF16, q, k)).expect("it is offered").class()
    };
    let decode = |keys: u64| class(&[], &[2, 8, 1, 64], &[2, 4, keys, 64]);
    assert_eq!(decode(513), decode(1000));
    assert_eq!(decode(1000), decode(1024));
    assert_ne!(decode(1024), decode(1025), "a power of two ends a class");
    assert_ne!(decode(512), class(&[], &[2, 8, 2, 64], &[2, 4, 512, 64]), "another number of queries");
    assert_ne!(decode(512), class(&[], &[2, 4, 1, 64], &[2, 4, 512, 64]), "another number of heads");
    let positions_first = [("layout", Attr::Word("positions_first"))];
    assert_ne!(decode(512), class(&positions_first, &[2, 1, 8, 64], &[2, 512, 4, 64]), "another order in memory");
    let prefill = |options: &[(&'static str, Attr)]| class(options, &[1, 2, 300, 64], &[1, 2, 300, 64]);
    assert_ne!(prefill(&[]), prefill(&[("causal", Attr::Bool(true))]), "another mask");
    // The rows of a bias grow with the keys.
    let biased = |keys: u64| {
        let mut inputs = forward(DType::BF16, &[1, 2, 32, 64], &[1, 2, keys, 64]);
        inputs.push(tensor(DType::BF16, &[32, keys]));
        offered(&[], inputs).expect("it is offered").class()
    };
    assert_eq!(biased(520), biased(1000));
}

#[test]
fn gradients_of_large_batches_are_several_calls() {
    let inputs = |batch: u64, positions: u64| {
        let (heads, rows) = ([batch, 8, positions, 64], [batch, 8, positions]);
        let of = |sizes: &[u64]| tensor(DType::BF16, sizes);
        vec![of(&heads), of(&heads), of(&heads), of(&heads), tensor(DType::F32, &rows), of(&heads)]
    };
    let small = offered(&[], inputs(6, 256)).expect("it is offered");
    assert_eq!((small.form, small.operands.len()), (AttentionForm::Backward, 9));
    assert_eq!(small.calls(QuerySums::Stored).parts, [1, 1]);
    // The slopes of 8 heads of 8192 positions, 2 bytes for each score, are 1 GiB.
    let large = offered(&[], inputs(6, 8192)).expect("it is offered");
    let calls = large.calls(QuerySums::Stored);
    assert_eq!(calls.parts, [2, 2], "12 heads are fewer than 2 GiB, 16 are more with what lies beside the slopes");
    assert!((1 << 30..2 << 30).contains(&large.scratch()), "{}", large.scratch());
    assert_eq!(calls.piece.tensor(0).dims[..2], [3, 4]);
    assert_eq!(calls.steps[0], [3 * 8 * 8192 * 64 * 2, 4 * 8192 * 64 * 2], "bytes between the queries of two calls");
    assert_eq!(calls.steps[4], [3 * 8 * 8192 * 4, 4 * 8192 * 4]);
    // Sums of the gradients of queries in any order need memory in f32, but none for the slopes.
    assert_eq!(large.calls(QuerySums::Atomic).parts, [1, 1]);
    let unordered = [("deterministic", Attr::Bool(false))];
    let any_order = offered(&unordered, inputs(6, 256)).expect("it is offered");
    assert_eq!((small.deterministic, any_order.deterministic), (true, false));
    assert_eq!(any_order.scratch(), small.scratch(), "the slopes are larger than the sums");
    // Parts of an odd number of samples have some of the heads, in each order in memory.
    let positions_first = |layout: &'static str, sizes: [usize; 4]| {
        let dims = |last: u64| sizes.map(|axis| [7, 8, 4232, last][axis]);
        let of = || tensor(DType::F16, &dims(128));
        let all = vec![of(), of(), of(), of(), tensor(DType::F32, &[7, 8, 4232]), of()];
        offered(&[("layout", Attr::Word(layout))], all).expect("it is offered").calls(QuerySums::Stored)
    };
    let [heads, positions] = [("heads_first", [0, 1, 2, 3]), ("positions_first", [0, 2, 1, 3])]
        .map(|(layout, sizes)| positions_first(layout, sizes));
    assert_eq!((heads.parts, positions.parts), ([1, 2], [1, 2]));
    assert_eq!((heads.steps[0][1], positions.steps[0][1]), (4 * 4232 * 128 * 2, 4 * 128 * 2));
    assert_eq!(positions.steps[4], [7 * 8 * 4232 * 4, 4 * 4232 * 4]);
    let forward = offered(&unordered, forward(DType::BF16, &[1, 4, 32, 64], &[1, 4, 48, 64])).expect("it is offered");
    assert!(forward.deterministic, "results have one order");
    // Libraries have no gradient of the logarithms.
    let mut with_lse = inputs(1, 256);
    with_lse.push(with_lse[4]);
    assert!(offered(&[], with_lse).is_none());
    // Calls share a bias that is broadcast, and divide another one. They have all heads of a sample, or some heads of a single one: the copy
    // of `lse` is contiguous.
    for (bias, dims, steps) in [
        (&[8192, 8192][..], [1, 1, 8192, 8192], [0, 0]),
        (&[6, 1, 8192, 8192], [1, 1, 8192, 8192], [1 << 27, 0]),
        (&[6, 8, 8192, 8192], [1, 8, 8192, 8192], [1 << 30, 1 << 30]),
    ] {
        let mut all = inputs(6, 8192);
        all.push(tensor(DType::BF16, bias));
        let biased = offered_by("biased_attention_backward", 3, &[], all.clone()).expect("it is offered");
        let place = biased.bias().expect("it has a bias");
        let calls = biased.calls(QuerySums::Stored);
        assert_eq!((biased.form, calls.parts, place), (AttentionForm::Backward, [6, 1], 9));
        assert_eq!(
            biased.operands.iter().map(|(operand, _)| *operand).collect::<Vec<u8>>(),
            [0, 1, 2, 3, 4, 5, 7, 8, 9, 6]
        );
        assert!(offered_by("biased_attention_backward", 4, &[], all).is_none(), "gradients of the biased scores");
        assert_eq!((calls.piece.tensor(place).dims.to_vec(), calls.steps[place]), (dims.to_vec(), steps), "{bias:?}");
    }
}
