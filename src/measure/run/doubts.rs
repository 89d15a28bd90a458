//! Warnings about a series of times, and whether times are steady enough to compare with other runs.

use crate::base::Nanos;
use crate::model::{Figure, FigureExpr, Program};
use crate::ops::expression::Binary;

use super::warmup::relative_to_slot;
use crate::measure::record::{MetricRecord, RunRecord, Times, Variant, WarmupRecord, launched, slots};
use crate::measure::statistics::quantile::effective;
use crate::measure::statistics::series::{self, Modes};

/// Coefficient of variation above which a warning is given.
const NOISE: f64 = 0.10;

/// Coefficient of variation of simulated times above which a warning is given; they have no noise.
const PATTERN: f64 = 0.01;

/// Share of independent samples below which a warning is given.
const FEW: f64 = 1.0 / 3.0;

/// Maximum width of the median's interval in a steady run, as a share of the median.
const WIDTH: f64 = 0.10;

/// Maximum drift from the first to the last third of a steady run, and maximum distance of two modes, as a share of the
/// median.
const STEADY: f64 = 0.05;

/// Warnings about shares of the iteration's time above 100 % that add up spans of sets.
pub fn spans_as_shares(name: &str, program: &Program, metrics: &[MetricRecord]) -> Vec<String> {
    let is_time = |expr: &FigureExpr, of_set: bool| match expr {
        FigureExpr::Figure { figure: Figure::Time, set, .. } => set.is_some() == of_set,
        _ => false,
    };
    let adds_spans = |expr: &FigureExpr| match expr {
        FigureExpr::Binary(Binary::Divide, over, under) => {
            is_time(under, false) && over.leaves().into_iter().any(|leaf| is_time(leaf, true))
        }
        _ => false,
    };
    let is_above_one =
        |metric: &MetricRecord| metric.text.ends_with(" %") && metric.value.is_some_and(|value| value > 1.0);
    let shares =
        metrics.iter().zip(&program.metrics).filter(|(share, metric)| is_above_one(share) && adds_spans(&metric.value));
    shares
        .map(|(share, _)| {
            format!(
                "{name}: `{}` is above 100 %, since `time(set)` is the span from the set's first start to its last end, with \
                 everything in between; `busy(a, b)` is the time in which operations of the sets run",
                share.name
            )
        })
        .collect()
}

/// Warnings about the times of a program with `slots` slots. Times are compared within their slot: differences between
/// slots come from the program.
pub fn of(name: &str, times: &Times, warmup: &WarmupRecord, slots: usize) -> Vec<String> {
    let mut doubts = Vec::new();
    let floats: Vec<f64> = times.samples_ns.iter().map(|time| time.0 as f64).collect();
    if let Some(variation) = slots::variation(&floats, slots).filter(|variation| *variation > NOISE) {
        let reference = if slots > 1 { "the mean of their slot" } else { "their mean" };
        doubts.push(format!(
            "{name}: the times vary by {:.0} % of {reference} (standard deviation; usual is at most {:.0} %): smaller differences \
             between runs are not significant; let nothing else use the device, fix its clock, or measure more `--iterations`",
            variation * 100.0,
            NOISE * 100.0
        ));
    }
    if let (Some(false), Some(trend)) = (warmup.settled, warmup.trend) {
        doubts.push(format!(
            "{name}: after {} iterations to warm up, the times still {} by {:.1} %: the device had not settled, \
             and more `--warmup` may help",
            warmup.iterations,
            rose_or_fell(trend),
            trend.abs() * 100.0
        ));
    }
    let samples = relative_to_slot(&times.samples_ns, slots);
    if let Some(trend) = series::trend(&samples) {
        doubts.push(format!(
            "{name}: the times {} by {:.1} % from the first third to the last: the device heats up, slows down, or is \
             shared; the median depends on how long was measured",
            rose_or_fell(trend),
            trend.abs() * 100.0
        ));
    }
    if let Some(modes) = series::modes(&samples) {
        doubts.push(two_modes_warning(name, modes, times));
    }
    let independent = effective(&samples, 50.0);
    if independent < FEW * samples.len() as f64 {
        doubts.push(format!(
            "{name}: consecutive iterations are correlated: {} of them carry as much information as {} independent \
             ones",
            samples.len(),
            independent.max(1.0) as usize
        ));
    }
    doubts
}

/// Warnings about simulated times of a program with `slots` slots: if they differ between iterations of a slot, and if they exceed the
/// timeout, which ends no simulation.
pub fn simulated(name: &str, times: &Times, slots: usize, timeout: Nanos) -> Vec<String> {
    let floats: Vec<f64> = times.samples_ns.iter().map(|time| time.0 as f64).collect();
    let variation = slots::variation(&floats, slots).filter(|variation| *variation > PATTERN).map(|variation| {
        format!(
            "{name}: the simulated times vary by {:.0} % (standard deviation): iterations that wait for the host or for each other \
             repeat a pattern; the median depends on the number of `--iterations`, the mean hardly does",
            variation * 100.0
        )
    });
    let longest = times.max_ns.filter(|longest| *longest > timeout).map(|longest| {
        format!("{name}: an iteration takes {longest}: on a GPU, the run would end after `--timeout` {timeout}")
    });
    variation.into_iter().chain(longest).collect()
}

/// Reason why the first unsteady variant of a record is unsteady; `None` if none is, or if it cannot be judged: a simulation,
/// or a single iteration.
pub fn unsteady(record: &RunRecord) -> Option<String> {
    if record.simulated || !record.measurement {
        return None;
    }
    let slots = record.program.cycle;
    let doubt =
        |variant: &Variant| Some(format!("{}: {}", launched(&variant.launch), why_unsteady(&variant.time, slots)?));
    record.variants.iter().find_map(doubt)
}

/// Reason why the times of a program with `slots` slots are unsteady; `None` if they are steady.
fn why_unsteady(time: &Times, slots: usize) -> Option<String> {
    let median = time.p50_ns.filter(|median| median.0 > 0)?.0 as f64;
    let samples = relative_to_slot(&time.samples_ns, slots);
    if let Some(trend) = series::trend(&samples).filter(|trend| trend.abs() > STEADY) {
        return Some(format!("the times {} by {:.0} % while measuring", rose_or_fell(trend), trend.abs() * 100.0));
    }
    if let Some(modes) = series::modes(&samples).filter(|modes| modes.high - modes.low > STEADY) {
        return Some(format!("the times fall into two groups, {:.0} % apart", (modes.high - modes.low) * 100.0));
    }
    let width = (time.p50_high_ns?.0 - time.p50_low_ns?.0) as f64 / median;
    (width > WIDTH).then(|| format!("the median is known only to {:.0} %", width * 100.0))
}

fn rose_or_fell(trend: f64) -> &'static str {
    if trend > 0.0 { "rose" } else { "fell" }
}

fn two_modes_warning(name: &str, modes: Modes, times: &Times) -> String {
    let median = times.p50_ns.map_or(0.0, |median| median.0 as f64);
    let around = |share: f64| Nanos::rounded(share * median);
    format!(
        "{name}: the times fall into two groups, around {} and around {} ({:.0} % of them): a clock or a queue may \
         switch, and the median describes one group only",
        around(modes.low),
        around(modes.high),
        modes.upper * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLED: WarmupRecord = WarmupRecord { iterations: 12, trend: None, settled: Some(true), first_ns: None };

    fn doubts(samples: impl Iterator<Item = i64>, warmup: &WarmupRecord) -> String {
        of("stream", &Times::of(&samples.map(Nanos).collect::<Vec<_>>()), warmup, 1).join("\n")
    }

    #[test]
    fn a_steady_series_raises_none() {
        assert_eq!(doubts((0..100).map(|index| 1000 + index * 37 % 7), &SETTLED), "");
    }

    #[test]
    fn simulated_times_that_alternate_are_a_pattern() {
        let times = |spread: i64| Times::of(&(0..12).map(|index| Nanos(5000 + index % 2 * spread)).collect::<Vec<_>>());
        let told = |spread, slots, timeout| simulated("graph", &times(spread), slots, Nanos(timeout)).join("\n");
        let pattern = told(800, 1, 5800);
        assert!(
            pattern.starts_with("graph: the simulated times vary by 8 % (standard deviation): iterations"),
            "{pattern}"
        );
        assert_eq!(told(800, 2, 5800), "", "slots differ by the program");
        assert_eq!(told(40, 1, 5800), "");
        assert!(told(800, 2, 5799).contains("would end after `--timeout` 5.799 µs"), "{}", told(800, 2, 5799));
    }

    #[test]
    fn work_that_differs_is_no_noise() {
        let slots = [100_000, 400_000, 2_000_000];
        let times = |noise: &dyn Fn(i64) -> i64| -> Times {
            let time = |index: i64| Nanos(slots[index as usize % 3] * (1000 + noise(index)) / 1000);
            Times::of_slots(&(0..90).map(time).collect::<Vec<_>>(), 3, 0)
        };
        assert_eq!(of("stream", &times(&|index| index * 37 % 7), &SETTLED, 3), Vec::<String>::new());
        let told = of("stream", &times(&|index| index * 37 % 7 * 60), &SETTLED, 3).join("\n");
        assert!(
            told.starts_with("stream: the times vary by 10 % of the mean of their slot (standard deviation; usual is"),
            "{told}"
        );
        let told = of("stream", &times(&|index| index * 2), &SETTLED, 3).join("\n");
        assert!(told.contains("the times rose by 11.0 % from the first third to the last"), "{told}");
    }

    #[test]
    fn each_doubt_has_a_sentence() {
        let unsettled = WarmupRecord { iterations: 102, trend: Some(-0.0312), settled: Some(false), first_ns: None };
        let told = doubts((0..10).map(|_| 1000), &unsettled);
        assert!(told.starts_with("stream: after 102 iterations to warm up, the times still fell by 3.1 %"), "{told}");
        let told = doubts((0..40).map(|index| 1000 + 5 * index), &SETTLED);
        let trend = "stream: the times rose by 12.3 % from the first third to the last";
        assert!(
            told.starts_with(trend) && told.contains("40 of them carry as much information as 1 independent"),
            "{told}"
        );
        let flips = doubts((0..60).map(|index| 20_000 + 9_000 * (index * 11 % 3 / 2)), &SETTLED);
        assert!(flips.contains("two groups, around 20.00 µs and around 29.00 µs (33 % of them)"), "{flips}");
        assert!(flips.contains("vary by 19 %"), "{flips}");
    }

    fn unsteady_of(samples: impl Iterator<Item = i64>) -> Option<String> {
        why_unsteady(&Times::of(&samples.map(Nanos).collect::<Vec<_>>()), 1)
    }

    #[test]
    fn unsteady_times_are_reported() {
        // Mixes the order, so that neighbours are not correlated.
        let mixed = |index: i64| index * 37 % 100;
        assert_eq!(unsteady_of((0..100).map(|index| 1000 + mixed(index) / 10)), None);
        let drift = unsteady_of((0..100).map(|index| 1000 + 2 * index)).unwrap();
        assert!(drift.starts_with("the times rose by 12 %"), "{drift}");
        assert_eq!(unsteady_of((0..100).map(|index| 10_000 + 2 * index)), None, "a drift of 1 % is none that matters");
        let groups = unsteady_of((0..100).map(|index| 1000 + 300 * (mixed(index) / 50))).unwrap();
        assert_eq!(groups, "the times fall into two groups, 26 % apart");
        let wide = unsteady_of((0..20).map(|index| 1000 + 40 * (index * 7 % 20))).unwrap();
        assert!(wide.starts_with("the median is known only to "), "{wide}");
        assert_eq!(unsteady_of(std::iter::empty()), None);
        assert_eq!(unsteady_of([1000, 5000, 1000].into_iter()), None, "three samples have no interval");
    }
}
