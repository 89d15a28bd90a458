//! Units of metrics that resemble a unit of the language.

use crate::base::suggest;
use crate::base::units::{self, Dimension, UNITS, Unit};
use crate::model::program::Program;

use super::ModelWarning;

/// Names of units in other tools.
const OTHER_NAMES: [(&[&str], &str); 4] = [
    (&["sec", "secs", "second", "seconds"], "s"),
    (&["msec", "msecs", "millis", "milliseconds"], "ms"),
    (&["usec", "usecs", "micros", "microseconds", "µs", "μs"], "us"),
    (&["nsec", "nsecs", "nanos", "nanoseconds"], "ns"),
];

/// Finds metrics with a unit given as text that resembles a unit of the language with the same dimension.
pub(super) fn as_text(program: &Program, warnings: &mut Vec<ModelWarning>) {
    for metric in &program.metrics {
        let Some(text) = metric.unit.as_deref().filter(|text| units::unit(text).is_none()) else { continue };
        if metric.dimension == Dimension::NONE {
            continue;
        }
        if let Some(near) = near(text, metric.dimension) {
            warnings.push(ModelWarning::UnitAsText { unit: text.to_owned(), near, at: metric.span.into() });
        }
    }
}

fn near(text: &str, dimension: Dimension) -> Option<&'static str> {
    let fits = |unit: &&'static Unit| dimension == unit.dimension;
    // `GBps`, `GB/sec`, `TFLOPS`.
    let rate =
        ["ps", "/sec", "S", "s"].into_iter().find_map(|end| units::unit(&format!("{}/s", text.strip_suffix(end)?)));
    let named = OTHER_NAMES.iter().find(|(names, _)| names.contains(&text)).and_then(|(_, name)| units::unit(name));
    if let Some(unit) = rate.or(named).filter(fits) {
        return Some(unit.name);
    }
    suggest::nearest(text, UNITS.iter().filter(fits).map(|unit| unit.name))
}
