//! Several ranks: each rank's program, and whether all of them match.

use std::collections::VecDeque;
use std::sync::Arc;

use aorta::model::{self, AnalysisOptions, Program};
use aorta::plan::{self, PlanError, RankPlan};
use aorta::report::dump;
use aorta::syntax::{self, SyntaxLimits};
use proptest::prelude::*;

fn program(text: &str, rank: u32, world: u32) -> Program {
    let (ast, errors) = syntax::parse(text, 0, &SyntaxLimits::default());
    assert!(errors.is_empty(), "{text}\n{errors:?}");
    let options = AnalysisOptions { rank, world, ..AnalysisOptions::default() };
    model::analyze(&ast, &options).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"))
}

/// Every rank's program, none of them shared.
fn world(text: &str, world: u32) -> Vec<RankPlan> {
    let mut programs: Vec<Program> = (0..world).map(|rank| program(text, rank, world)).collect();
    model::link(&mut programs).expect("what is copied between ranks fits");
    let planned = |program| {
        let plan = plan::build(&program).expect("nothing races");
        RankPlan { program: Arc::new(program), plan: Arc::new(plan) }
    };
    programs.into_iter().map(planned).collect()
}

#[test]
fn a_rank_sees_its_own_groups() {
    let text = "\
mesh pp = 2, dp = world / 4, tp = 2
stream comm
buffer x: f32[8, 4]
buffer y: f32[4, 4]
step {
  on comm {
    all_reduce(x -> x, op: mean) over dp
    all_gather(x[2 * tp.rank..2 * tp.rank + 2] -> x[0..4]) over tp
    out: reduce_scatter(x) over pp
    group {
      there: send(y, to: (pp.rank + 1) % pp.size) over pp
      back: recv(-> x[0..4], from: (pp.rank - 1) % pp.size) over pp
    }
    all_to_all(x -> y, counts: [[1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0],
      [1, 0, 0, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 3],
      [0, 0, 3, 0, 0, 0, 0, 0]])
  }
  map(back + out -> y)
}
";
    plan::ranks::check(&world(text, 8)).expect("all go together");
    insta::assert_snapshot!(dump::model(&program(text, 5, 8)));
}

#[test]
fn a_program_says_whether_it_depends_on_its_rank() {
    let depends = |step: &str| {
        let text = format!("mesh dp = 2, tp = 2\nbuffer x: f32[8, 4]\nbuffer y: f32[8, 4]\nstep {{ {step} }}");
        program(&text, 1, 4).by_rank
    };
    assert!(!depends("all_reduce(x -> y) over tp broadcast(y -> y, root: world - 1)"));
    assert!(!depends("map(x * dp.size -> y)"));
    assert!(depends("map(x * rank -> y)"));
    assert!(depends("map(x * dp.rank -> y)"));
    assert!(depends("if false and rank == 0 { barrier() } else if rank == 0 { nop() } nop()"));
    assert!(depends("group { send(x, to: 0) over dp recv(-> y, from: 0) over dp }"));
    assert!(depends("all_to_all(x -> y, counts: [1, 1]) over tp"));
    assert!(depends("all_gather(x[4..8] -> x) over tp"));
}

/// `world` is a group where one is meant, and a number elsewhere: by its name and as an argument, also of a call inside.
#[test]
fn the_world_is_a_group_and_a_number() {
    let body = |group: &str| {
        format!(
            "share: reduce_scatter(x) over {group} \
             map(share * {group}.size + {group}.rank - {group}.size / 2 -> y) \
             all_gather(y -> x) over {group}"
        )
    };
    let head = "buffer x: f32[8, 4]\nbuffer y: f32[2, 4]\n";
    let by_name = format!("{head}step {{ {} all_reduce(y -> y) }}", body("world"));
    let by_argument = format!(
        "{head}def inner(g) {{ {} all_reduce(y -> y) over g }}\ndef outer(g) {{ inner(g) }}\nstep {{ outer(world) }}",
        body("g")
    );
    let by_number = "buffer x: f32[8, 4]\nbuffer y: f32[2, 4]\ndef scaled(n) { map(y * n -> y) for i in 0..n { nop() } }\n\
                     step { scaled(world) }";
    let operations = |text: &str| {
        let program = program(text, 1, 4);
        let step = &program.cycle[0];
        let specs = step.ids().map(|op| match step.op(op).kind {
            model::OpKind::Run(spec) => {
                let spec = program.spec(spec);
                let written = spec.expression.as_ref().map(|expression| format!("{expression:?}"));
                format!("{} {:?} {:?} {written:?}", spec.operation.name(), spec.team, spec.inputs)
            }
            _ => "other".to_owned(),
        });
        specs.collect::<Vec<_>>()
    };
    let expected = operations(&by_name);
    assert_eq!(expected.len(), 4);
    assert_eq!(expected, operations(&by_argument));
    plan::ranks::check(&world(&by_argument, 4)).expect("all go together");
    assert_eq!(operations(by_number).len(), 5);
}

/// A rank's own part differs between ranks.
#[test]
fn only_the_own_part_is_gathered_in_place() {
    let text = "buffer x: f32[8]\nstep { all_gather(x[0..4] -> x) }";
    let (ast, _) = syntax::parse(text, 0, &SyntaxLimits::default());
    let analyze = |rank| model::analyze(&ast, &AnalysisOptions { rank, world: 2, ..AnalysisOptions::default() });
    assert!(analyze(0).is_ok());
    let errors = analyze(1).expect_err("these elements are of rank 0");
    let [mistake] = errors.as_slice() else { panic!("{errors:?}") };
    assert!(matches!(mistake.error, model::ModelError::Overlap { .. }), "{mistake:?}");
}

#[test]
fn iterations_that_overlap_may_meet_across() {
    let text = |sync: &str| {
        format!(
            "buffer x, y: f32[8]\nstream a\nstream b\nstep(sync: {sync}) {{\n\
             on a {{ if rank == 0 and iteration % 2 == 1 {{ send(x, to: 1) }} nop() }}\n\
             on b {{ if rank == 1 and iteration % 2 == 0 {{ recv(-> y, from: 0) }} barrier() }} }}"
        )
    };
    // The streams have different names, so the ranks never match.
    let errors = plan::ranks::check(&world(&text("end"), 2)).expect_err("nobody receives on `a`");
    assert!(matches!(errors.as_slice(), [PlanError::Unmatched { .. }]), "{errors:?}");
    let meet = |sync: &str| plan::ranks::check(&world(&text(sync).replace("on b", "on a"), 2));
    assert!(meet("iteration").is_err());
}

/// An event between ranks, in an order that is valid for all.
#[derive(Clone, Debug)]
enum Event {
    /// On a stream, all ranks.
    All(usize),
    /// On a stream, from one rank to another.
    Transfer(usize, usize, usize),
}

/// One operation of one rank: its stream and the number of its event, which is also its size.
type Call = (usize, usize);

const RANKS: usize = 3;
const STREAMS: usize = 2;

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..STREAMS).prop_map(Event::All),
        (0..STREAMS, 0..RANKS, 1..RANKS).prop_map(|(stream, from, by)| Event::Transfer(
            stream,
            from,
            (from + by) % RANKS
        )),
    ]
}

/// The text of a world in which each rank makes its calls.
fn text(events: &[Event], calls: &[Vec<Call>]) -> String {
    let mut text = format!("buffer x, y: f32[{0}, {0}]\nstream s[{STREAMS}]\nstep {{\n  nop()\n", events.len() + 1);
    for (rank, calls) in calls.iter().enumerate() {
        text += &format!("  if rank == {rank} {{\n");
        for &(stream, number) in calls {
            // Each has memory of its own, so that only streams order them.
            let size = number + 1;
            let operation = match events[number] {
                Event::All(_) => format!("all_reduce(x[{number}, 0..{size}] -> y[{number}, 0..{size}])"),
                Event::Transfer(_, from, to) if from == rank => format!("send(x[{number}, 0..{size}], to: {to})"),
                Event::Transfer(_, from, _) => format!("recv(-> y[{number}, 0..{size}], from: {from})"),
            };
            text += &format!("    on s[{stream}] {{ {operation} }}\n");
        }
        text += "  }\n";
    }
    text + "}\n"
}

/// True if all calls complete, found by trying the first call of each stream.
fn go_together(events: &[Event], calls: &[Vec<Call>]) -> bool {
    let mut queues = vec![vec![VecDeque::new(); STREAMS]; RANKS];
    for (rank, calls) in calls.iter().enumerate() {
        calls.iter().for_each(|&(stream, number)| queues[rank][stream].push_back(number));
    }
    loop {
        let mut went = false;
        for stream in 0..STREAMS {
            let first: Vec<Option<usize>> = queues.iter().map(|queues| queues[stream].front().copied()).collect();
            if first.iter().all(|first| first.is_some_and(|number| matches!(events[number], Event::All(_)))) {
                if first.iter().any(|other| *other != first[0]) {
                    return false;
                }
                for queues in &mut queues {
                    queues[stream].pop_front();
                }
                went = true;
                continue;
            }
            for from in 0..RANKS {
                let Some(sent) = first[from] else { continue };
                let Event::Transfer(_, sender, to) = events[sent] else { continue };
                let Some(received) = first[to] else { continue };
                let Event::Transfer(_, source, target) = events[received] else { continue };
                if sender != from || source != from || target != to {
                    continue;
                }
                if sent != received {
                    return false;
                }
                queues[from][stream].pop_front();
                queues[to][stream].pop_front();
                went = true;
                break;
            }
        }
        if !went {
            return queues.iter().flatten().all(VecDeque::is_empty);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::effort::due_draws(300)))]

    /// Ranks that follow one order match; after a change of one rank, they match if the definition says so.
    #[test]
    fn ranks_are_judged_as_they_run(
        events in prop::collection::vec(event(), 1..8),
        rank in 0..RANKS,
        change in 0..4usize,
        place in 0..8usize,
    ) {
        let takes_part = |rank: usize, event: &Event| match *event {
            Event::All(_) => true,
            Event::Transfer(_, from, to) => from == rank || to == rank,
        };
        let mut calls: Vec<Vec<Call>> = (0..RANKS)
            .map(|rank| {
                let own = events.iter().enumerate().filter(|(_, event)| takes_part(rank, event));
                own.map(|(number, event)| match *event {
                    Event::All(stream) | Event::Transfer(stream, ..) => (stream, number),
                })
                .collect()
            })
            .collect();
        prop_assert!(go_together(&events, &calls));
        let own = &mut calls[rank];
        match change {
            0 if place + 1 < own.len() => own.swap(place, place + 1),
            1 if place < own.len() => drop(own.remove(place)),
            2 if place < own.len() => own[place].0 = (own[place].0 + 1) % STREAMS,
            _ => {}
        }
        let text = text(&events, &calls);
        let judged = plan::ranks::check(&world(&text, RANKS as u32));
        prop_assert_eq!(judged.is_ok(), go_together(&events, &calls), "{}\n{:?}", text, judged);
    }
}
