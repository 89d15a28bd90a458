//! Waits of copies for a copy engine that copies of other streams occupy.

use std::collections::BTreeMap;

use crate::cost::{self, floor};
use crate::exec::Trace;

use super::subject::Peaks;

/// For each span of an iteration, the moment until which earlier copies occupied all engines of its direction; `None` for the first
/// copies, for other operations, and without a device profile.
pub fn occupied_until(peaks: Option<&Peaks>, trace: &Trace) -> Vec<Option<i64>> {
    let Some(Peaks { program, profile, .. }) = peaks else { return Vec::new() };
    let step = &program.cycle[trace.step];
    let mut order: Vec<usize> = (0..trace.spans.len()).collect();
    order.sort_by_key(|&at| trace.spans[at].start);
    let mut until = vec![None; trace.spans.len()];
    // Ends of the copies of each direction, the latest first.
    let mut ends: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for at in order {
        let span = &trace.spans[at];
        let copy = program.op_spec(step.op(span.op)).and_then(floor::link_bytes);
        let Some((direction, _)) = copy else { continue };
        let ends = ends.entry(direction.name()).or_default();
        let engines = cost::engines(direction, profile).engines.value() as usize;
        until[at] = engines.checked_sub(1).and_then(|last| ends.get(last).copied());
        let place = ends.partition_point(|end| *end > span.end.0);
        ends.insert(place, span.end.0);
    }
    until
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Profile, SourcedFigure};
    use crate::measure::tests::{planned, trace};

    #[test]
    fn copies_of_one_direction_wait_for_each_other() {
        let (program, _) = planned(
            "stream s[4]
             buffer h[3]: f32[4] in pinned
             buffer d[3]: f32[4]
             step {
               for i in 0..3 { on s[i] { copy(h[i] -> d[i]) } }
               on s[3] { copy(d[0] -> h[0])  map(d[1] * 2 -> d[1]) }
             }",
        );
        let observed = trace(1000, &[(0, 0, 300), (1, 620, 900), (2, 300, 610), (3, 300, 500), (3, 910, 950)]);
        let until = |engines: f64| {
            let mut profile = Profile::named("h200").unwrap();
            profile.host_to_device.engines = SourcedFigure(engines, "test".to_owned());
            let peaks = Peaks { program: &program, rank: 0, profile: &profile, cached: &[] };
            occupied_until(Some(&peaks), &observed)
        };
        assert_eq!(until(1.0), [None, Some(610), Some(300), None, None]);
        assert_eq!(until(2.0), [None, Some(300), None, None, None]);
    }
}
