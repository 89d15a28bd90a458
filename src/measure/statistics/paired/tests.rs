//! Verdicts of comparisons on simulated machines with a known effect. The book quotes these figures.

use super::*;
use crate::measure::effort;
use crate::measure::statistics::noise::Random;

/// The page that quotes these figures.
const BOOK: &str = include_str!("../../../../docs/ab.md");

/// A simulated machine: returns the time of a block that takes 100 without noise, given the block's number and a state.
type Machine = fn(&mut Random, usize, &mut f64) -> f64;

/// Kinds of noise, each of about 2 %: independent, linear drift, warm-up, two modes that change at random, two modes
/// that last for ten blocks, rare large outliers, autocorrelated neighbours.
const MACHINES: [(&str, Machine); 7] = [
    ("normal, 2 %", |random, _, _| 100.0 + 2.0 * random.normal()),
    ("the same, on a machine that drifts by 1 % a block", |random, at, _| 100.0 + at as f64 + 2.0 * random.normal()),
    ("the same, on a machine that warms up", |random, at, _| {
        100.0 + 40.0 * (-(at as f64) / 10.0).exp() + 2.0 * random.normal()
    }),
    ("two modes, 4 % apart", |random, _, _| if random.uniform() < 0.5 { 100.0 } else { 104.0 }),
    ("two modes, 6 % apart, that stay for ten blocks", |random, _, mode| {
        if random.uniform() < 0.1 {
            *mode = 6.0 - *mode;
        }
        100.0 + *mode + random.normal()
    }),
    ("one block in 25 takes 60 % more", |random, _, _| {
        100.0 + random.normal() + if random.uniform() < 0.04 { 60.0 } else { 0.0 }
    }),
    ("blocks resemble their neighbours (correlation 0.9)", |random, _, last| {
        *last = 0.9 * *last + random.normal();
        100.0 + *last
    }),
];

/// Returns the blocks of both sides in their random order. B takes `effect` times as long.
fn measured(random: &mut Random, machine: Machine, rounds: usize, effect: f64, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let (mut a, mut b, mut state) = (Vec::new(), Vec::new(), 0.0);
    for round in 0..rounds {
        for (place, side) in order(seed, round).into_iter().enumerate() {
            let time = machine(random, round * BLOCKS_PER_ROUND + place, &mut state);
            match side {
                AbSide::A => a.push(time),
                AbSide::B => b.push(time * effect),
            }
        }
    }
    (a, b)
}

/// Number of comparisons for estimating a small share, and a large one.
const MANY: u64 = 2000;
const SOME: u64 = 500;

/// The share of comparisons that satisfy a condition.
fn share(
    tries: u64,
    machine: Machine,
    rounds: usize,
    effect: f64,
    threshold: f64,
    holds: impl Fn(&Paired) -> bool,
) -> f64 {
    let mut random = Random(0);
    let held = (0..tries).filter(|&seed| {
        let (a, b) = measured(&mut random, machine, rounds, effect, seed);
        holds(&paired(&a, &b, threshold, seed).unwrap())
    });
    held.count() as f64 / tries as f64
}

fn differs(paired: &Paired) -> bool {
    matches!(paired.verdict, Verdict::Better | Verdict::Worse)
}

/// The threshold is 0, so the interval alone must limit false alarms.
#[test]
fn a_side_compared_with_itself_seldom_differs() {
    for (name, machine) in effort::chosen(MACHINES) {
        let rates = [8, 16].map(|rounds| {
            let rate = share(MANY, machine, rounds, 1.0, 0.0, differs);
            // The estimate of a share from 2000 comparisons is uncertain by one hundredth.
            assert!(rate <= ALARMS + 0.01, "{name}, {rounds} rounds: {rate} of the alarms are false");
            format!("{:.1} %", 100.0 * rate)
        });
        let row = format!("| {name} | {} |", rates.join(" | "));
        assert!(BOOK.contains(&row), "the book does not have: {row}");
    }
}

#[test]
fn the_interval_contains_the_effect() {
    for (name, machine) in effort::chosen(MACHINES) {
        let held = share(SOME, machine, 16, 1.1, 0.03, |paired| {
            paired.interval.is_some_and(|(low, high)| (low..=high).contains(&1.1))
        });
        assert!(held >= 0.94, "{name}: {held}");
    }
}

/// Power: how often a difference is found with the noise of a block and the threshold of 3 %.
#[test]
fn a_difference_is_found() {
    let noisy: [(&str, Machine, f64, f64); 5] = [
        ("1 % | 5 % more", |random, _, _| 100.0 + random.normal(), 1.05, 0.99),
        ("2 % | 5 % more", |random, _, _| 100.0 + 2.0 * random.normal(), 1.05, 0.95),
        ("5 % | 5 % more", |random, _, _| 100.0 + 5.0 * random.normal(), 1.05, 0.80),
        ("5 % | 10 % more", |random, _, _| 100.0 + 5.0 * random.normal(), 1.10, 0.99),
        ("1 %, drifting by 1 % a block | 5 % more", |random, at, _| 100.0 + at as f64 + random.normal(), 1.05, 0.95),
    ];
    for (name, machine, effect, least) in noisy {
        let found = share(SOME, machine, 16, effect, 0.03, |paired| paired.verdict == Verdict::Worse);
        let told = if found == 1.0 { "always".to_owned() } else { format!("{:.0} %", 100.0 * found) };
        assert!(BOOK.contains(&format!("| {name} | {told} |")), "the book does not have: {name} | {told}");
        assert!(found >= least, "{name}: found in {found}");
        let turned = share(SOME, machine, 16, 1.0 / effect, 0.03, |paired| paired.verdict == Verdict::Better);
        assert!(turned >= least - 0.02, "{name}, the other way round: found in {turned}");
    }
    let same = share(
        SOME,
        |random, _, _| 100.0 + 2.0 * random.normal(),
        16,
        1.0,
        0.03,
        |paired| paired.verdict == Verdict::Same,
    );
    assert!(same >= 0.99, "{same}");
}

/// A linear drift that would appear as a difference of 16 % if the sides were measured one after the other.
#[test]
fn linear_drift_cancels() {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..16 {
        for (place, side) in order(3, round).into_iter().enumerate() {
            let time = (0.005 * (round * BLOCKS_PER_ROUND + place) as f64).exp();
            if side == AbSide::A { a.push(time) } else { b.push(time) }
        }
    }
    let paired = paired(&a, &b, 0.03, 3).unwrap();
    assert!((paired.ratio - 1.0).abs() < 1e-12, "{paired:?}");
    assert_eq!(paired.verdict, Verdict::Same);
}

#[test]
fn constant_blocks_give_exact_intervals() {
    let same = paired(&[5.0; 32], &[5.0; 32], 0.03, 1).unwrap();
    assert_eq!((same.ratio, same.interval, same.verdict), (1.0, Some((1.0, 1.0)), Verdict::Same));
    assert_eq!((same.itself.alarms, same.itself.comparisons), (0, 256));
    let half = paired(&[8.0; 32], &[4.0; 32], 0.03, 1).unwrap();
    assert_eq!((half.ratio, half.verdict), (0.5, Verdict::Better));
}

/// With a periodic pattern, a side differs from itself in one order of four, so no verdict on B is possible.
#[test]
fn a_side_that_differs_from_itself_gets_no_verdict() {
    let wild = [100.0, 130.0, 130.0, 100.0].repeat(3);
    let twice: Vec<f64> = wild.iter().map(|time| time * 2.0).collect();
    let judged = paired(&wild, &twice, 0.03, 1).unwrap();
    assert_eq!((judged.itself.comparisons, judged.itself.alarms, judged.itself.widened), (8, 2, WIDEST));
    assert_eq!((judged.ratio, judged.verdict), (2.0, Verdict::CannotTell));
    // With more rounds, that order is one of many.
    let (wild, twice) = (wild.repeat(3), twice.repeat(3));
    assert_eq!(paired(&wild, &twice, 0.03, 1).unwrap().verdict, Verdict::Worse);
}

#[test]
fn few_blocks_give_no_verdict() {
    assert_eq!(paired(&[1.0], &[1.0], 0.03, 1), None);
    assert_eq!(paired(&[1.0, 0.0], &[1.0, 1.0], 0.03, 1), None);
    let one = paired(&[1.0, 1.0], &[2.0, 2.0], 0.03, 1).unwrap();
    assert_eq!((one.ratio, one.interval, one.verdict), (2.0, None, Verdict::CannotTell));
    // An unfinished round does not count.
    assert_eq!(paired(&[1.0, 1.0, 9.0], &[2.0, 2.0], 0.03, 1).map(|paired| paired.rounds), Some(1));
    let five = paired(&[1.0; 10], &[2.0; 10], 0.03, 1).unwrap();
    assert_eq!(five.verdict, Verdict::CannotTell);
}

#[test]
fn orders_are_drawn_evenly() {
    let first = (0..1000).filter(|&round| order(7, round)[0] == AbSide::A).count();
    assert!((450..550).contains(&first), "{first}");
    assert_eq!(orders(3, 1).len(), 4);
    assert_eq!(orders(64, 1).len(), 512);
    let turned = orders(64, 1).iter().filter(|order| order.sign(40) < 0.0).count();
    assert!((200..312).contains(&turned), "{turned}");
}

/// Models four streams of tiny kernels on an H200: each process is in one of two states, 3.7 % apart, for its whole
/// life.
#[test]
fn processes_that_differ_are_no_difference_of_programs() {
    let level = |slow: bool, index: usize| (if slow { 50.12 } else { 48.34 }) * (1.0 + 0.0005 * (index % 3) as f64);
    let side = |slow: bool, times: f64| (0..32).map(|index| times * level(slow, index)).collect::<Vec<f64>>();
    let alike = paired(&side(true, 1.0), &side(false, 1.0), 0.03, 1).unwrap();
    assert_eq!(alike.verdict, Verdict::Better, "the rounds alone say so: {alike:?}");
    assert_eq!(alike.verdict_of_processes(0.015), Verdict::CannotTell);
    // A larger difference is detected, and so is equality where processes hardly differ.
    let slower = paired(&side(false, 1.0), &side(false, 1.06), 0.03, 1).unwrap();
    assert_eq!(slower.verdict_of_processes(0.015), Verdict::Worse);
    let same = paired(&side(false, 1.0), &side(false, 1.001), 0.03, 1).unwrap();
    assert_eq!(
        (same.verdict_of_processes(0.005), same.verdict_of_processes(0.015)),
        (Verdict::Same, Verdict::CannotTell)
    );
}
