//! Exchanges among three ranks, compared with results derived by hand.

use std::sync::Arc;

use crate::base::GroupId;

use super::*;

const RANKS: u32 = 3;

/// The spec of a rank with rows of values as operands.
fn spec(operation: &'static dyn Operation, rank: u32, attrs: Attrs, inputs: &[u64], outputs: &[u64]) -> Spec {
    let tensors = |sizes: &[u64]| sizes.iter().map(|&elements| Tensor::packed(DType::F32, &[elements])).collect();
    let team = Team { group: GroupId(0), ranks: RANKS, rank };
    Spec { team, ..Spec::new(operation, attrs, tensors(inputs), tensors(outputs)) }
}

/// Returns the first output of each rank after the exchange. Before it, all elements are -1.
fn exchanged(specs: &[Spec], inputs: &[Vec<Vec<f64>>]) -> Vec<Vec<Vec<f64>>> {
    let filled = |spec: &Spec| spec.outputs.iter().map(|output| vec![-1.0; output.elements() as usize]).collect();
    let mut outputs: Vec<Vec<Vec<f64>>> = specs.iter().map(filled).collect();
    let members = specs.iter().zip(inputs).zip(&mut outputs);
    let mut members: Vec<RankMember> =
        members.map(|((spec, inputs), outputs)| RankMember { spec, inputs, outputs }).collect();
    specs[0].operation.exchange(&mut members);
    outputs
}

/// The same operation on all ranks, with one input and one output.
fn alike(operation: &'static dyn Operation, options: Attrs, inputs: [&[f64]; 3], output: u64) -> Vec<Vec<f64>> {
    let specs: Vec<Spec> = (0..RANKS)
        .map(|rank| spec(operation, rank, options.clone(), &[inputs[rank as usize].len() as u64], &[output]))
        .collect();
    let inputs: Vec<Vec<Vec<f64>>> = inputs.iter().map(|input| vec![input.to_vec()]).collect();
    exchanged(&specs, &inputs).into_iter().map(|mut outputs| outputs.remove(0)).collect()
}

const VALUES: [&[f64]; 3] = [&[1.0, 2.0, 3.0], &[4.0, -5.0, 6.0], &[7.0, 9.0, 0.0]];

#[test]
fn all_reduce_gives_every_rank_the_same() {
    let of = |op| alike(&Reducing::AllReduce, Attrs::of([("op", Attr::Word(op))]), VALUES, 3);
    assert_eq!(of("sum"), vec![vec![12.0, 6.0, 9.0]; 3]);
    assert_eq!(of("mean"), vec![vec![4.0, 2.0, 3.0]; 3]);
    assert_eq!(of("min"), vec![vec![1.0, -5.0, 0.0]; 3]);
    assert_eq!(of("max"), vec![vec![7.0, 9.0, 6.0]; 3]);
    assert_eq!(of("product"), vec![vec![28.0, -90.0, 0.0]; 3]);
}

#[test]
fn all_to_all_counts_what_goes_where() {
    let rows = vec![vec![1, 2, 0], vec![0, 1, 1], vec![3, 0, 1]];
    let options = Attrs::of([("counts", Attr::Counts(Arc::new(ElementCounts::Rows(rows))))]);
    let inputs: [&[f64]; 3] = [&[1.0, 2.0, 3.0, 99.0], &[4.0, 5.0, 98.0, 97.0], &[6.0, 7.0, 8.0, 9.0]];
    // Elements after the last part stay unchanged.
    let expected = [[1.0, 6.0, 7.0, 8.0], [2.0, 3.0, 4.0, -1.0], [5.0, 9.0, -1.0, -1.0]];
    assert_eq!(alike(&AllToAll, options.clone(), inputs, 4), expected);
    let Launch::Collective(entries) = &spec(&AllToAll, 2, options, &[4], &[4]).launch()[0] else {
        panic!("a collective launches one")
    };
    let parts = entries[0].parts.as_ref().expect("it has counts");
    assert_eq!((&parts.sent[..], &parts.received[..]), (&[3, 0, 1][..], &[0, 1, 1][..]));
}

#[test]
fn one_list_of_counts_is_every_senders() {
    let options = Attrs::of([("counts", Attr::Counts(Arc::new(ElementCounts::Each(vec![1, 0, 2]))))]);
    let expected = [[1.0, 4.0, 7.0, -1.0, -1.0, -1.0], [-1.0; 6], [2.0, 3.0, -5.0, 6.0, 9.0, 0.0]];
    assert_eq!(alike(&AllToAll, options, VALUES, 6), expected);
}

/// A ring in a batch: each rank sends to the next one, receives from the previous one, and takes part in an
/// `all_reduce`.
#[test]
fn a_batch_exchanges_all_its_parts() {
    let batch = |rank: u32| {
        let to = Attrs::of([("to", Attr::Int(i64::from((rank + 1) % RANKS)))]);
        let from = Attrs::of([("from", Attr::Int(i64::from((rank + RANKS - 1) % RANKS)))]);
        let sum = Attrs::of([("op", Attr::Word("sum"))]);
        let parts = vec![
            spec(&Transfer::Send, rank, to, &[2], &[]),
            spec(&Reducing::AllReduce, rank, sum, &[1], &[1]),
            spec(&Transfer::Recv, rank, from, &[], &[2]),
        ];
        Batch::of(parts, Team { group: GroupId(0), ranks: RANKS, rank })
    };
    let specs: Vec<Spec> = (0..RANKS).map(batch).collect();
    let inputs: Vec<Vec<Vec<f64>>> =
        (0..3).map(f64::from).map(|rank| vec![vec![rank, 10.0 + rank], vec![rank + 1.0]]).collect();
    let outputs = exchanged(&specs, &inputs);
    assert_eq!(outputs[0], [vec![6.0], vec![2.0, 12.0]]);
    assert_eq!(outputs[1], [vec![6.0], vec![0.0, 10.0]]);
    assert_eq!(outputs[2], [vec![6.0], vec![1.0, 11.0]]);
    let Launch::Collective(entries) = &specs[1].launch()[0] else { panic!("a batch is one launch") };
    let operands: Vec<_> = entries.iter().map(|entry| (entry.kind, entry.source, entry.target, entry.peer)).collect();
    // The batch has two inputs, and then two outputs.
    let expected = [
        (CollectiveKind::Send, Some(0), None, 2),
        (CollectiveKind::AllReduce, Some(1), Some(2), 0),
        (CollectiveKind::Recv, None, Some(3), 0),
    ];
    assert_eq!(operands, expected);
}

#[test]
fn the_second_of_two_messages_stays_the_second() {
    let to = |rank: u32| Attrs::of([("to", Attr::Int(i64::from(rank)))]);
    let from = |rank: u32| Attrs::of([("from", Attr::Int(i64::from(rank)))]);
    let team = |rank| Team { group: GroupId(0), ranks: RANKS, rank };
    let sender = Batch::of(
        vec![spec(&Transfer::Send, 0, to(2), &[1], &[]), spec(&Transfer::Send, 0, to(2), &[1], &[])],
        team(0),
    );
    let receiver = Batch::of(
        vec![spec(&Transfer::Recv, 2, from(0), &[], &[1]), spec(&Transfer::Recv, 2, from(0), &[], &[1])],
        team(2),
    );
    let outputs = exchanged(&[sender, receiver], &[vec![vec![1.0], vec![2.0]], vec![]]);
    assert_eq!(outputs[1], [[1.0], [2.0]]);
}
