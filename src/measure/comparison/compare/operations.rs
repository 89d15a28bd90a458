//! Operations of a case on both sides, matched by name and source location.

use indexmap::IndexMap;

use super::OperationRow;
use super::matching::MatchedCase;
use super::point::ComparedRun;
use crate::measure::record::plain_name;

/// Operations of one name on one side.
#[derive(Clone, Debug, Default)]
struct OperationSum {
    /// Source location of the first of these operations.
    place: String,
    count: usize,
    time: f64,
    /// Sum of the operations' ideal times in seconds; `None` if one of them has no ideal time.
    ideal: Option<f64>,
    /// Resource that bounds the last operation; `None` if unknown.
    bound: Option<String>,
}

/// Name, operation, and source location without folders: on another machine, or in a bundle, a file has another folder.
/// The location is empty if the texts differ.
type Name = (String, String, String);

/// Rows of both sides, longest time on the base first.
pub fn rows(case: &MatchedCase) -> Vec<OperationRow> {
    let same_text = case.is_same_text();
    let [base, other] = [&case.base, &case.other].map(|points| sums(points, same_text));
    let mut names: Vec<&Name> = base.keys().collect();
    names.extend(other.keys().filter(|name| !base.contains_key(*name)));
    let row = |name: &Name| {
        let (base, other) = (base.get(name), other.get(name));
        OperationRow {
            name: name.0.clone(),
            operation: name.1.clone(),
            place: base.or(other).map_or_else(String::new, |sum| sum.place.clone()),
            count: base.or(other).map_or(0, |sum| sum.count),
            other_count: other.map(|sum| sum.count).filter(|count| base.is_some_and(|sum| sum.count != *count)),
            base: base.map(|sum| sum.time),
            other: other.map(|sum| sum.time),
            base_share: base.and_then(share),
            other_share: other.and_then(share),
            base_bound: base.and_then(|sum| sum.bound.clone()),
            other_bound: other.and_then(|sum| sum.bound.clone()),
        }
    };
    let mut rows: Vec<OperationRow> = names.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.base.unwrap_or(0.0).total_cmp(&a.base.unwrap_or(0.0)));
    rows
}

fn share(sum: &OperationSum) -> Option<f64> {
    sum.ideal.filter(|_| sum.time > 0.0).map(|ideal| ideal / sum.time)
}

/// Sums per operation name, averaged over runs.
fn sums(points: &[&ComparedRun], with_place: bool) -> IndexMap<Name, OperationSum> {
    let mut sums: IndexMap<Name, OperationSum> = IndexMap::new();
    let runs = points.len().max(1) as f64;
    for (run, point) in points.iter().enumerate() {
        for operation in &point.operations {
            let place = if with_place { operation.place.as_str() } else { "" };
            let in_file = place.rsplit('/').next().unwrap_or(place).to_owned();
            let name = (plain_name(&operation.name), operation.operation.clone(), in_file);
            let sum = sums.entry(name).or_insert_with(|| OperationSum {
                place: place.to_owned(),
                ideal: Some(0.0),
                ..OperationSum::default()
            });
            sum.count += usize::from(run == 0);
            sum.time += operation.time / runs;
            sum.bound.clone_from(&operation.bound);
            sum.ideal = sum.ideal.zip(operation.ideal).map(|(sum, ideal)| sum + ideal / runs);
        }
    }
    sums
}
