//! Waiting and transfer times of ranks in programs in which one rank is late by design. `invariants` has the properties
//! of every program.

use proptest::prelude::*;

use aorta::backend::sim::Sim;
use aorta::base::SourceMap;
use aorta::config::{EffortPlan, Profile};
use aorta::exec::{Control, LaunchMode};
use aorta::measure::record::{OperationRecord, RankRecord, SkewRecord, Variant};
use aorta::measure::{self, Request};

use crate::common;
use crate::common::world::World;

/// The rank's variant of a text on that many ranks, as streams.
fn variant(text: &str, ranks: u32) -> Variant {
    let profile = Profile::named("h200").expect("embedded");
    let sim = Sim::new(profile.clone());
    let world = World::new(text, ranks, &sim);
    // Operations are identified by their locations.
    let mut sources = SourceMap::new();
    sources.add("test.aorta", text).expect("a test is small");
    let request = Request {
        plans: &[],
        ranks: &world.ranks(),
        backend: &sim,
        modes: &[LaunchMode::Stream],
        effort: EffortPlan { warmup: 3, iterations: 5 },
        observed_iterations: 4,
        exec: common::exec_options(),
        control: &Control::default(),
        profile: Some(&profile),
        keep: &|_| {},
        shares: std::cell::OnceCell::new(),
        sources: &sources,
    };
    let mut measured = measure::measure(&request).unwrap_or_else(|error| panic!("{text}: {error}"));
    measured.variants.remove(0)
}

fn skew(variant: &Variant) -> &SkewRecord {
    variant.skew.as_ref().expect("ranks meet")
}

fn operation<'a>(rank: &'a RankRecord, name: &str) -> &'a OperationRecord {
    rank.operations.iter().find(|operation| operation.name == name).unwrap_or_else(|| panic!("{name} is there"))
}

proptest! {
    #![proptest_config(crate::common::properties(64))]

    /// However late a rank is, the others' transfer times stay the same.
    #[test]
    fn a_late_rank_changes_the_waiting_and_not_the_transfer(
        late in 1u32..2000,
        size in 1u64..64,
        way in 0..WAYS.len(),
    ) {
        let text = |late: u32| together(WAYS[way], late, size << 18);
        let (even, uneven) = (variant(&text(0), 2), variant(&text(late), 2));
        let (even, waits) = (operation(&even.ranks[0], "meet"), operation(&uneven.ranks[0], "meet"));
        prop_assert_eq!(even.transfer_ns, waits.transfer_ns, "{}", text(late));
        let more = waits.wait_ns.expect("known") - even.wait_ns.expect("known");
        let wanted = i64::from(late) * 1000;
        prop_assert!((more.0 - wanted).abs() <= 5_000, "{} beside {} µs\n{}", more, late, text(late));
        let rank = operation(&uneven.ranks[1], "meet");
        prop_assert!(rank.wait_ns.expect("known").0 <= 5_000, "{}", text(late));
    }
}

/// Operations between two ranks, for rank 0 and for rank 1.
const WAYS: [(&str, &str); 5] = [
    ("meet: send(x, to: 1)", "meet: recv(from: 0 -> y)"),
    ("meet: recv(from: 1 -> y)", "meet: send(x, to: 0)"),
    ("group { meet: send(x, to: 1)  recv(from: 1 -> y) }", "group { meet: send(x, to: 0)  recv(from: 0 -> y) }"),
    ("meet: all_reduce(x -> y)", "meet: all_reduce(x -> y)"),
    ("meet: copy(x -> y at 1 - rank)", "meet: copy(x -> y at 1 - rank)"),
];

/// Two ranks with a common operation, which rank 1 reaches `late` microseconds later.
fn together((first, second): (&str, &str), late: u32, elements: u64) -> String {
    let work = if late == 0 { String::new() } else { format!("work: spin({late}us)") };
    let meet =
        if first == second { first.to_owned() } else { format!("if rank == 0 {{ {first} }} else {{ {second} }}") };
    format!(
        "stream a\nbuffer x, y: f32[{elements}]\nstep {{\n  on a {{\n    barrier()\n    if rank == 1 {{ {work} }}\n    \
         {meet}\n  }}\n}}\n"
    )
}

#[test]
fn a_rank_that_works_longer_is_named_with_the_operation() {
    let text = "stream a\nbuffer x, y: f32[1048576]\nstep { on a {
        even: spin(300us)
        if rank == 2 { more: spin(500us) }
        sum: all_reduce(x -> y)
    } }\n";
    let variant = variant(text, 4);
    let balance = skew(&variant).balance.as_ref().expect("ranks wait");
    assert_eq!((balance.kind.as_str(), &balance.ranks[..]), ("imbalance", &[2][..]));
    assert_eq!(balance.behind.as_ref().expect("there is one").name, "more");
    assert!(balance.least_waiting < 0.01 && balance.most_waiting > 0.5, "{balance:?}");
    let said = |rank: usize| variant.ranks[rank].analysis.as_ref().expect("observed").verdict.clone();
    assert!(said(0).starts_with("imbalance: ") && said(0).contains("mostly for rank 2"), "{}", said(0));
    assert!(said(2).starts_with("bound by synthetic work"), "{}", said(2));
}

/// Kernels that overlap with a waiting operation are counted with their time alone; others are not.
#[test]
fn kernels_beside_waiting_are_counted() {
    let text = |late: u32| {
        format!(
            "stream a\nstream b\nbuffer x, y: f32[1024]\nbuffer z: f32[2097152]\nstep {{
              if rank == 0 {{
                on a {{ meet: recv(from: 1 -> x) }}
                on b {{ for i in 0..3 {{ work: map(z + 1 -> z) }} }}
                on a {{ apart: map(z + 1 -> z) }}
              }} else {{ on a {{ late: spin({late}us)  send(y, to: 0) }} }}
            }}\n"
        )
    };
    let beside = |late: u32| {
        let variant = variant(&text(late), 2);
        variant.ranks[0].analysis.as_ref().expect("observed").beside_waiting
    };
    let waits = beside(5000).expect("three kernels run beside the wait");
    assert_eq!(waits.operations, 3.0);
    assert!((0.99..2.0).contains(&waits.stretch), "{waits:?}");
    assert!(beside(1).is_none_or(|few| few.operations < 3.0), "{:?}", beside(1));
}

/// A collective that waits for compute units has not begun.
#[test]
fn waiting_for_units_is_no_transfer() {
    let transfer = |held: &str| {
        let text = format!(
            "stream a\nstream b\nbuffer x: f32[1048576]\nstep {{
              on a {{ for i in 0..{held} {{ spin(200us, units: 132) }} }}
              on b {{ meet: all_reduce(x -> x) }}
            }}\n"
        );
        operation(&variant(&text, 4).ranks[0], "meet").transfer_ns
    };
    assert_eq!(transfer("1"), transfer("0"));
}

#[test]
fn stages_that_wait_in_turn_are_a_pipeline_bubble() {
    let text = "stream a\nbuffer x, y: f32[1048576]\nstep { on a {
        for i in 0..2 {
          if rank > 0 { ahead: recv(from: rank - 1 -> x) }
          forward: spin(100us)
          if rank < 3 { send(x, to: rank + 1) }
        }
        for i in 0..2 {
          if rank < 3 { back: recv(from: rank + 1 -> y) }
          backward: spin(200us)
          if rank > 0 { send(y, to: rank - 1) }
        }
    } }\n";
    let variant = variant(text, 4);
    let balance = skew(&variant).balance.as_ref().expect("ranks wait");
    assert_eq!((balance.kind.as_str(), &balance.ranks[..]), ("pipeline bubble", &[][..]), "{balance:?}");
    // Three of nine turns are pipeline bubble, or more with hand-over between stages.
    assert!(balance.least_waiting > 0.3, "{balance:?}");
}

#[test]
fn a_ring_pass_has_one_bandwidth_however_it_is_written() {
    let text = "stream a\nbuffer x, y, z: f32[67108864]\nstep { on a {
        group { message: send(x, to: (rank + 1) % world)  recv(from: (rank + world - 1) % world -> y) }
        pass: copy(x -> z at (rank + 1) % world)
    } }\nmetric by_message = bus_bandwidth(message)\nmetric by_copy = bus_bandwidth(pass)\n\
    metric plain = bandwidth(pass)\n";
    let value = |variant: &Variant, name: &str| {
        variant.metrics.iter().find(|metric| metric.name == name).and_then(|metric| metric.value).expect("it has one")
    };
    for ranks in [2, 4, 8] {
        let variant = variant(text, ranks);
        let (message, copy) = (value(&variant, "by_message"), value(&variant, "by_copy"));
        assert!((message / copy - 1.0).abs() < 0.1, "{message} and {copy}");
        assert_eq!(copy, value(&variant, "plain"), "it has to move what crosses the link, once");
    }
}

#[test]
fn a_verdict_names_the_resource() {
    let verdict = |operation: &str| {
        let text = format!(
            "stream a\nbuffer h: f32[33554432] in pinned\nbuffer d: f32[33554432]\nstep {{ on a {{ {operation} }} }}\n"
        );
        variant(&text, 1).ranks[0].analysis.as_ref().expect("observed").verdict.clone()
    };
    for (operation, wanted) in [
        ("gemm(bf16[8192, 8192], bf16[8192, 8192])", "bound by bf16 matrix arithmetic: "),
        ("gemm(bf16[16, 8192], bf16[8192, 65536])", "bound by memory bandwidth: "),
        ("copy(h -> d)", "bound by the host link (host to device): "),
        ("copy(d -> h)", "bound by the host link (device to host): "),
    ] {
        let verdict = verdict(operation);
        assert!(verdict.starts_with(wanted), "{operation}: {verdict}");
    }
}
