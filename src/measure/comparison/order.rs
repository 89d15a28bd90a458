//! Sorts a sweep's cases for a table, by an axis, the time or a metric.

use std::cmp::Ordering;

use super::cases::{Case, CasesHeader};
use super::scaling::{self, CurvePoint, number};
use crate::measure::record::MetricRecord;
use crate::measure::record::pace::Pace;
use crate::measure::statistics::effect::Direction;

/// Sort keys that every sweep has.
const MEDIAN: &str = "median";
const RATE: &str = "rate";

/// A sort key, best first: the name of an axis, `median`, `rate`, or a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseOrder {
    name: String,
    /// True if the worst case comes first.
    reversed: bool,
}

/// Value that a case is sorted by. Cases without a value come last.
#[derive(Clone, Debug, PartialEq)]
enum SortKey {
    Number(f64),
    Text(String),
}

impl SortKey {
    fn compare(&self, other: &SortKey) -> Ordering {
        match (self, other) {
            (SortKey::Number(a), SortKey::Number(b)) => a.total_cmp(b),
            (SortKey::Text(a), SortKey::Text(b)) => a.cmp(b),
            (SortKey::Number(_), SortKey::Text(_)) => Ordering::Less,
            (SortKey::Text(_), SortKey::Number(_)) => Ordering::Greater,
        }
    }
}

/// A metric of a case's first variant; `None` if the case has none of that name.
pub fn metric<'a>(case: &'a Case, name: &str) -> Option<&'a MetricRecord> {
    let variant = case.record.as_ref()?.variants.first()?;
    variant.metrics.iter().find(|metric| metric.name == name)
}

impl CaseOrder {
    /// Parses `NAME`, or `-NAME` for the reverse order.
    pub fn new(text: &str) -> CaseOrder {
        let (name, reversed) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
        CaseOrder { name: name.trim().to_owned(), reversed }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Valid names for a sweep whose cases have these metrics.
    pub fn names<'a>(header: &'a CasesHeader, metrics: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        header.axes.iter().map(|axis| axis.name.as_str()).chain([MEDIAN, RATE]).chain(metrics).collect()
    }

    /// True if the key is a metric, not an axis or headline.
    pub fn is_metric(&self, header: &CasesHeader) -> bool {
        !CaseOrder::names(header, std::iter::empty()).contains(&self.name.as_str())
    }

    /// Returns the sorted cases. The sort is stable.
    pub fn sorted<'a>(&self, header: &CasesHeader, cases: &[&'a Case]) -> Vec<&'a Case> {
        let (pace, unit) = (scaling::pace(cases), scaling::unit(cases));
        let key = |case: &Case| -> Option<SortKey> {
            if header.axes.iter().any(|axis| axis.name == self.name) {
                let value = case.values.get(&self.name)?;
                return Some(number(value).map_or_else(|| SortKey::Text(value.clone()), SortKey::Number));
            }
            let number = match self.name.as_str() {
                MEDIAN => CurvePoint::of(case, "", pace)?.time.value,
                RATE => -CurvePoint::of(case, "", pace)?.rate(unit).value,
                name => {
                    let metric = metric(case, name).filter(|_| pace == Pace::Headline)?;
                    match metric.direction() {
                        Some(Direction::HigherIsBetter) => -metric.value?,
                        _ => metric.value?,
                    }
                }
            };
            Some(SortKey::Number(number))
        };
        let mut sorted: Vec<(Option<SortKey>, &Case)> = cases.iter().map(|case| (key(case), *case)).collect();
        sorted.sort_by(|(a, _), (b, _)| match (a, b) {
            (Some(a), Some(b)) if self.reversed => b.compare(a),
            (Some(a), Some(b)) => a.compare(b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        sorted.into_iter().map(|(_, case)| case).collect()
    }
}
