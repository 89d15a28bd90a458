//! Programs whose iterations differ: every slot is observed, the order of slots changes no figure, and a rate divides
//! work by the time in which it was done. Checked over random slots on the simulator, which has no noise.

use std::fmt::Write as _;

use proptest::prelude::*;

use aorta::backend::sim::Sim;
use aorta::base::SourceMap;
use aorta::config::{EffortPlan, Profile};
use aorta::exec::{self, Control, LaunchMode, RankSchedule};
use aorta::measure::record::{MetricRecord, Variant};
use aorta::measure::{self, Measured, Request};
use aorta::schedule;

use crate::common;

/// The operations of a slot, by label.
#[derive(Clone, Debug)]
struct Slot {
    f: Option<u32>,
    g: Option<u32>,
    work: Option<u32>,
    load: Option<u32>,
}

fn slot() -> impl Strategy<Value = Slot> {
    let long = || prop::option::weighted(0.7, 1u32..40);
    (long(), long(), long(), long(), 1u32..40).prop_map(|(f, g, work, load, always)| Slot {
        // A slot without operations has no time.
        f: if g.is_none() && work.is_none() && load.is_none() { Some(always) } else { f },
        g,
        work,
        load,
    })
}

/// Figures of all kinds: additive ones, quotients, and those of single operations.
const METRICS: &str = "
metric whole = time
metric worst = time.max
metric f_time = time(f)
metric f_busy = busy(f)
metric both = busy(f, g)
metric hidden = overlap(load, f)
metric shown = exposed(load)
metric between = gap
metric waited = delay.max
metric slower = stretch(f)
metric all_flops = flops
metric work_flops = flops(work)
metric all_bytes = bytes
metric rate = flops / time
metric work_rate = flops(work) / time(work)
metric part = flops(work) / time
metric load_rate = bandwidth(load)
metric moved = bandwidth
metric longest = critical_path
metric alone = serial_time
metric gain = speedup
metric room = slack(g).max
metric used = utilization(f)
metric share = time(f) / time
metric sum = share + used
metric tail = share.max
metric fixed = device.units
";

fn text(slots: &[Slot]) -> String {
    let mut text = String::from(
        "stream a\nstream b\nstream c\nbuffer source: u8[67108864] in pinned\nbuffer target: u8[67108864]\nstep {\n",
    );
    for (index, slot) in slots.iter().enumerate() {
        let _ = writeln!(text, "  if iteration % {} == {index} {{", slots.len());
        let mut add = |stream: &str, size: Option<u32>, op: &dyn Fn(u32) -> String| {
            let line = size.map(|size| format!("    on {stream} {{ {} }}\n", op(size)));
            text.push_str(&line.unwrap_or_default());
        };
        add("a", slot.f, &|size| format!("f: spin({}us)", 20 * size));
        add("b", slot.g, &|size| format!("g: spin({}us)", 15 * size));
        add("a", slot.work, &|size| format!("work: work(flops: {size}GFLOP)"));
        add("c", slot.load, &|size| {
            let bytes = size << 20;
            format!("load: copy(source[0..{bytes}] -> target[0..{bytes}])")
        });
        text.push_str("  }\n");
    }
    // Every label exists, even if no slot has drawn it.
    text + "  if false { on a { f: spin(1us)  work: work(flops: 1GFLOP) }  on b { g: spin(1us) }  \
            on c { load: copy(source -> target) } }\n}\n"
}

fn measured(text: &str, iterations: u32, observed_iterations: u32) -> Measured {
    let (program, plan) = common::planned(text);
    let profile = Profile::named("h200").expect("embedded");
    let sim = Sim::new(profile.clone());
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    let request = Request {
        plans: &[],
        ranks: &[RankSchedule::new(&program, &plan, &schedule)],
        backend: &sim,
        modes: &[LaunchMode::Stream],
        effort: EffortPlan { warmup: 3, iterations },
        observed_iterations,
        // The cache's contents after a slot would depend on the slot before.
        exec: exec::SessionOptions { cold: true, ..common::exec_options() },
        control: &Control::default(),
        profile: Some(&profile),
        keep: &|_| {},
        shares: std::cell::OnceCell::new(),
        sources: &SourceMap::new(),
    };
    measure::measure(&request).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn variant(text: &str) -> Variant {
    let mut measured = measured(text, 5, 2);
    assert_eq!(measured.variants.len(), 1);
    let noise: Vec<&String> =
        measured.warnings.iter().filter(|text| !text.contains("observed iterations take")).collect();
    assert!(noise.is_empty(), "{text}: the simulator has no noise: {noise:?}");
    measured.variants.remove(0)
}

fn metric<'a>(variant: &'a Variant, name: &str) -> &'a MetricRecord {
    variant.metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name} is declared"))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn alike(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => near(a, b),
        (a, b) => a == b,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

proptest! {
    #![proptest_config(crate::common::properties(48))]

    /// With the slots in another order, each slot has the same figures, and so has the round.
    #[test]
    fn the_order_of_slots_changes_no_figure(slots in prop::collection::vec(slot(), 1..6), seed in any::<u64>()) {
        let n = slots.len();
        let mut order: Vec<usize> = (0..n).collect();
        for at in (1..n).rev() {
            order.swap(at, (seed.rotate_left(at as u32) % (at as u64 + 1)) as usize);
        }
        let turned: Vec<Slot> = order.iter().map(|&slot| slots[slot].clone()).collect();
        let (here, there) = (text(&slots) + METRICS, text(&turned) + METRICS);
        let (a, b) = (variant(&here), variant(&there));
        prop_assert_eq!(a.time.p50_ns, b.time.p50_ns, "{}", here);
        for (one, other) in a.metrics.iter().zip(&b.metrics) {
            prop_assert!(alike(one.value, other.value), "{}: {} and {}\n{}{}", one.name, one.text, other.text, here, there);
            prop_assert_eq!(one.value.is_some(), one.note.is_none());
            for (index, &slot) in order.iter().enumerate().filter(|_| !one.slots.is_empty()) {
                prop_assert!(alike(one.slots[slot], other.slots[index]), "{} of slot {}\n{}", one.name, slot, here);
            }
        }
    }

    /// Times are means over slots; a rate is all the work over all the time, of the slots that have both.
    #[test]
    fn a_rate_divides_work_by_its_own_time(slots in prop::collection::vec(slot(), 2..6)) {
        let text = text(&slots) + METRICS;
        let variant = variant(&text);
        let value = |name: &str| metric(&variant, name).value;
        let of = |name: &str| -> Vec<f64> { metric(&variant, name).slots.iter().map(|value| value.unwrap_or(0.0)).collect() };
        for name in ["whole", "all_flops", "work_flops", "all_bytes", "longest"] {
            prop_assert!(near(value(name).unwrap(), mean(&of(name))), "{}\n{}", name, text);
        }
        prop_assert!(near(value("rate").unwrap(), mean(&of("all_flops")) / mean(&of("whole"))), "{}", text);
        prop_assert!(near(value("part").unwrap(), mean(&of("work_flops")) / mean(&of("whole"))), "{}", text);
        // Operations that some slots lack count only in the slots that have them.
        let with: Vec<usize> = (0..slots.len()).filter(|&slot| slots[slot].work.is_some()).collect();
        prop_assert_eq!(value("work_rate").is_some(), !with.is_empty());
        for (slot, rate) in metric(&variant, "work_rate").slots.iter().enumerate() {
            prop_assert_eq!(rate.is_some(), slots[slot].work.is_some());
        }
        let f: Vec<f64> = metric(&variant, "f_time").slots.iter().copied().flatten().collect();
        prop_assert!(value("f_time").is_none_or(|time| near(time, mean(&f))));
        prop_assert!(metric(&variant, "fixed").slots.is_empty());
        // No fraction of a peak exceeds 1.
        let peak = variant.ranks[0].analysis.as_ref().and_then(|analysis| analysis.peak.clone());
        prop_assert!(peak.is_some_and(|peak| peak.flops <= 1.0 && peak.bytes <= 1.0), "{}", text);
    }

    #[test]
    fn a_metric_names_a_slot(slots in prop::collection::vec(slot(), 2..6), pick in any::<prop::sample::Index>()) {
        let slot = pick.index(slots.len());
        let named = format!(
            "{METRICS}
             metric time_there = time.slot[{slot}]
             metric least_there = time.slot[{slot}].min
             metric flops_there = flops.slot[{slot}]
             metric rate_there = rate.slot[{slot}]
             metric busy_there = both.slot[{slot}].max
             metric rate_again = flops.slot[{slot}] / time.slot[{slot}]
            "
        );
        let variant = variant(&(text(&slots) + &named));
        let there = |name: &str| metric(&variant, name).slots[slot];
        let value = |name: &str| metric(&variant, name).value;
        prop_assert!(alike(value("time_there"), there("whole")));
        prop_assert!(alike(value("least_there"), there("whole")));
        prop_assert!(alike(value("flops_there"), there("all_flops")));
        prop_assert!(alike(value("rate_there"), there("rate")));
        prop_assert!(alike(value("rate_again"), there("rate")));
        prop_assert!(alike(value("busy_there"), there("both")));
        prop_assert!(metric(&variant, "time_there").slots.is_empty(), "it is of one slot");
    }
}

/// The analysis is of the slot with the longest time, wherever it is.
#[test]
fn the_longest_slot_is_looked_into() {
    for longest in 0..3 {
        let length = |slot: usize| if slot == longest { 900 } else { 100 };
        let slots: Vec<String> =
            (0..3).map(|slot| format!("if iteration % 3 == {slot} {{ f: spin({}us) }}", length(slot))).collect();
        let variant = variant(&format!("step {{ {} }}", slots.join("\n")));
        let rank = &variant.ranks[0];
        assert_eq!(rank.slot, longest);
        let time = rank.operations[0].time_ns.expect("it was observed");
        assert!((900_000..910_000).contains(&time.0), "{time}");
        assert_eq!(rank.trace.len(), 1);
    }
}

/// Measured iterations are whole rounds, and each slot has as many.
#[test]
fn whole_rounds_are_measured() {
    let text = "step { f: spin(if iteration % 7 == 3 { 40us } else { 20us }) }\nmetric m = time.slot[3]";
    for (asked, measured_iterations) in [(2, 7), (7, 7), (8, 14), (100, 105)] {
        let variant = measured(text, asked, 1).variants.remove(0);
        assert_eq!((variant.time.n, variant.time.slots.len()), (measured_iterations, 7));
        assert!(variant.time.slots.iter().all(|slot| slot.n == measured_iterations / 7));
        // The warm-up of three iterations ends in front of slot 3.
        assert_eq!(variant.time.first_slot, 3);
        assert_eq!(variant.time.samples_ns[0], variant.time.slots[3].p50_ns.expect("it was measured"));
    }
}

/// A single iteration is a quick look at the file: it does not run a whole round, and its figures are those of its
/// slot.
#[test]
fn a_look_takes_one_iteration() {
    let text = "step { f: work(flops: if iteration % 7 == 3 { 7GFLOP } else { 1GFLOP }) }
                metric rate = flops / time
                metric part = time(f)
                metric other = time.slot[4]";
    let variant = measured(text, 1, 1).variants.remove(0);
    assert_eq!((variant.time.n, variant.time.first_slot, variant.time.slots.len()), (1, 3, 0));
    let seconds = variant.time.p50_ns.expect("it was measured").seconds();
    assert!(metric(&variant, "rate").value.is_some_and(|rate| near(rate, 7e9 / seconds)));
    // The observed iteration is of slot 0.
    assert!(metric(&variant, "part").value.is_some_and(|part| part < seconds / 2.0));
    assert_eq!(metric(&variant, "other").value, None);
    assert_eq!(variant.ranks[0].slot, 0);
}

/// Two slots that never have the same operations have no common figure, and the report says what to write.
#[test]
fn figures_without_a_common_slot() {
    let text = "step { if iteration % 2 == 0 { f: spin(10us) } else { g: spin(30us) } }
                metric apart = time(f) / time(g)
                metric named = time(g).slot[1] / time(f).slot[0]
                metric absent = time(f).slot[1]";
    let variant = variant(text);
    let note = |name: &str| metric(&variant, name).note.clone().unwrap_or_default();
    assert!(note("apart").starts_with("no slot has all figures"), "{}", note("apart"));
    assert!(metric(&variant, "named").value.is_some_and(|ratio| (2.5..3.1).contains(&ratio)));
    assert_eq!(note("absent"), "slot 1 has no such figure");
}

/// If a cycle has more slots than are observed, the report says which were.
#[test]
fn a_long_cycle_is_observed_in_part() {
    let text = "step { f: spin(1us * (1 + iteration % 600)) }\nmetric m = time(f)";
    let variant = measured(text, 2, 5).variants.remove(0);
    let note = variant.notes.iter().find(|note| note.contains("slots were observed")).expect("it is noted");
    assert!(note.starts_with("300 of 600 slots were observed, slots 0, 2 and so on"), "{note}");
    let known = metric(&variant, "m").slots.iter().flatten().count();
    assert_eq!(known, 300);
}

/// The value of a draw is the number of elements that a `map` writes on each rank and in each slot. All ranks draw the
/// same; another seed draws other values; the name alone determines them without a seed.
#[test]
fn draws_are_equal_on_all_ranks_and_follow_their_seed() {
    const DRAWS: [(&str, &str, std::ops::RangeInclusive<u64>); 8] = [
        ("", "uniform(1, 40)", 1..=40),
        ("", "binomial(39, 0.3)", 0..=39),
        ("", "geometric(0.1)", 0..=400),
        ("", "poisson(7.5)", 0..=60),
        ("", "zipf(1.1, 40)", 0..=39),
        ("", "floor(lognormal(2, 0.5))", 0..=200),
        ("", "choice([3, 5, 8], [1, 0, 2])", 3..=8),
        ("[4]", "multinomial(40, [1, 2, 0, 5])", 0..=40),
    ];
    let sizes = |name: &str, (dims, text, _): &(&str, &str, _), seed: &str, rank: u32| -> Vec<u64> {
        let (outer, inner) = match text.strip_prefix("floor(") {
            Some(inner) => (format!("floor({name})"), inner.trim_end_matches(')').to_owned() + ")"),
            None if dims.is_empty() => (name.to_owned(), (*text).to_owned()),
            None => (format!("{name}[3]"), (*text).to_owned()),
        };
        let drawn = inner.strip_suffix(')').expect("a call");
        let text = format!("draw {name}{dims} ~ {drawn}{seed})\nstep {{ map(f32[{outer} + 1] * 2) }}\n");
        let (program, _) = common::planned_ranks(&text, rank + 1).pop().expect("a rank");
        let size = |step: &aorta::model::Step| match step.ops[0].kind {
            aorta::model::OpKind::Run(spec) => program.spec(spec).outputs[0].elements() - 1,
            _ => unreachable!("a fill runs"),
        };
        program.cycle.iter().map(size).collect()
    };
    for draw in &DRAWS {
        let first = sizes("d", draw, "", 0);
        assert_eq!(first.len(), 64, "{}", draw.1);
        assert!(first.iter().all(|size| draw.2.contains(size)), "{}: {first:?}", draw.1);
        assert!(first.iter().any(|size| *size != first[0]), "{}: {first:?}", draw.1);
        assert_eq!(first, sizes("d", draw, "", 2), "{}: another rank", draw.1);
        assert_ne!(first, sizes("e", draw, "", 0), "{}: another name", draw.1);
        let seeded = sizes("d", draw, ", seed: 3", 0);
        assert_ne!(first, seeded, "{}: a seed", draw.1);
        assert_eq!(seeded, sizes("e", draw, ", seed: 3", 1), "{}: a seed, another name", draw.1);
        assert_ne!(seeded, sizes("d", draw, ", seed: 4", 0), "{}: another seed", draw.1);
    }
}
