//! The plans of a suite's cases, one line each.

use crate::base::{Bytes, Flops, counted};

use super::super::page::{ABSENT, Page, Section, Table};
use super::PlanDocument;

/// A page with the plan of each case in a line; a case without a plan has the reason. `name` is that of the suite.
pub fn cases(name: &str, cases: &[(String, Result<PlanDocument, String>)]) -> Page {
    let header =
        ["case", "operations", "streams", "arithmetic", "moved", "serial time", "critical path", "memory", "advice"];
    let mut table = Table::new(header);
    let mut notes = Vec::new();
    for (case, planned) in cases {
        let Ok(plan) = planned else {
            notes.extend(planned.as_ref().err().map(|why| format!("{case}: {why}")));
            table.row([vec![case.clone()], vec![ABSENT.to_owned(); header.len() - 1]].concat());
            continue;
        };
        let slots = plan.iterations.len().max(1);
        let sum = |of: &dyn Fn(&super::Iteration) -> f64| plan.iterations.iter().map(of).sum::<f64>() / slots as f64;
        let nanos = |time: f64| crate::base::Nanos::rounded(time).to_string();
        table.row([
            case.clone(),
            (plan.operations() / slots).to_string(),
            plan.lanes.len().to_string(),
            Flops(sum(&|slot| slot.flops)).to_string(),
            Bytes(sum(&|slot| slot.bytes as f64).round() as u64).to_string(),
            nanos(sum(&|slot| slot.critical_path.sum_ns.0 as f64)),
            nanos(sum(&|slot| slot.critical_path.length_ns.0 as f64)),
            plan.memory.device.to_string(),
            if plan.advice.is_empty() { ABSENT.to_owned() } else { plan.advice.len().to_string() },
        ]);
    }
    let device = cases.iter().find_map(|(_, planned)| planned.as_ref().ok()).map(|plan| plan.modelled_on.clone());
    let title = format!("{name}: the plans of {}", counted(cases.len(), "case"));
    let device = device.map(|device| format!("times are modelled on an {device}: nothing was measured"));
    let section = Section { title, lines: device.into_iter().collect(), table: Some(table), notes };
    Page { command: "aorta plan", name: name.to_owned(), sections: vec![section], ..Page::default() }
}
