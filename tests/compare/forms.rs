//! Every form of one comparison, as snapshots.

use aorta::base::json;
use aorta::measure::compare::{Comparison, FailOn, compare};
use aorta::report::{compare as report, page};

use super::fixtures::{Fixture, cases, samples};
use super::{compared, options, side};

/// A sweep of three cases beside one of three others, with something of everything.
fn sweeps() -> Comparison {
    let base = |median: f64| Ok(Fixture::with_time(median as u64, median));
    let other = |median: f64, hidden: f64| {
        let fixture = Fixture::with_time(median as u64, median);
        Ok(Fixture { driver: "560.10", hidden, variables: vec![("NCCL_ALGO", "Ring")], ..fixture })
    };
    let before = cases(&[("1", base(4e5)), ("2", base(2e5)), ("4", base(1e5))]);
    let after = cases(&[("2", other(2.1e5, 0.75)), ("1", other(4e5, 0.5)), ("4", Err("it needs 200 GiB | more"))]);
    let mut options = options();
    options.fail_on = vec![FailOn::Worse, FailOn::Missing];
    options.between_runs = None;
    compare(&side("before", &[before]), &[side("after", &[after])], &options)
}

#[test]
fn the_forms_of_a_comparison_of_sweeps() {
    let comparison = sweeps();
    insta::assert_snapshot!("table", page::text(&report::compare(&comparison)));
    insta::assert_snapshot!("markdown", page::markdown(&report::compare(&comparison)));
    insta::assert_snapshot!("latex", page::latex(&report::compare(&comparison)));
    insta::assert_snapshot!("junit", page::junit(&report::compare(&comparison)));
    insta::assert_snapshot!("github", page::github(&report::compare(&comparison)));
    insta::assert_snapshot!("json", json::document(&comparison));
}

#[test]
fn json_is_read_back() {
    let text = json::document(&sweeps());
    let read: Comparison = serde_json::from_str(&text).expect("what was written");
    assert_eq!(json::document(&read), text);
    assert_eq!(page::text(&report::compare(&read)), page::text(&report::compare(&sweeps())));
}

#[test]
fn across_vendors_operations_are_set_beside_their_peaks() {
    let fixture = |backend, device, operations| Fixture { backend, device, operations, ..Fixture::default() };
    let nvidia = fixture(
        "cuda",
        "NVIDIA H200",
        vec![("f[0].up", 1_000, Some(600)), ("f[1].up", 1_000, Some(600)), ("act", 500, Some(50))],
    );
    let amd = fixture(
        "hip",
        "AMD Instinct MI300X",
        vec![("f[0].up", 900, Some(450)), ("f[1].up", 1_000, Some(450)), ("act", 700, None)],
    );
    let comparison = compared(&[nvidia.text()], &[amd.text()]);
    insta::assert_snapshot!("vendors", page::text(&report::compare(&comparison)));
}

#[test]
fn a_simulation_beside_a_measurement_says_so_on_each_row() {
    let simulated = Fixture { simulated: true, samples: samples(9, 30, 1e5, 0.0), ..Fixture::default() };
    let comparison = compared(&[simulated.text()], &[Fixture::default().text()]);
    insta::assert_snapshot!("simulated", page::text(&report::compare(&comparison)));
    let markdown = page::markdown(&report::compare(&comparison));
    let rows =
        markdown.lines().filter(|line| line.starts_with("| ") && line.contains(" % |") && !line.contains("| metric |"));
    assert!(
        rows.clone().count() > 4 && rows.clone().all(|line| line.ends_with("simulated against measured |")),
        "{markdown}"
    );
}
