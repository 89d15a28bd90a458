//! Hardware counters of chosen operations and the compute units that their kernels report, in runs of their own.

use crate::base::OpId;
use crate::exec::{self, ExecError};
use crate::model::{OpKind, Program};
use crate::schedule::launches_nothing;

use crate::measure::record::{CountersRecord, plain_name};
use crate::measure::request::Request;

/// Maximum number of counted operations. If more have the name, the first ones in the iteration are counted.
const MAX_COUNTED: usize = 8;

/// Returns the operations of the first slot that have a name: the label with or without its indices, or the operation's own
/// name, such as `gemm`. At most 8.
pub fn chosen(program: &Program, name: &str) -> Vec<OpId> {
    let step = &program.cycle[0];
    let is_named = |op: &OpId| {
        let info = step.op(*op);
        let text = program.op_text(info);
        let names = [text.as_str(), &plain_name(&text), program.op_name(info)];
        matches!(info.kind, OpKind::Run(_)) && names.contains(&name)
    };
    step.ids().filter(is_named).take(MAX_COUNTED).collect()
}

/// Returns the names by which [`chosen`] finds operations, without those that have an index, in alphabetical order.
pub fn names(program: &Program) -> Vec<String> {
    let step = &program.cycle[0];
    let runs = step.ids().map(|op| step.op(op)).filter(|op| matches!(op.kind, OpKind::Run(_)));
    let mut names: Vec<String> =
        runs.flat_map(|op| [plain_name(&program.op_text(op)), program.op_name(op).to_owned()]).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Counts while each of the operations runs alone, and lets their kernels report compute units in a second run; both launch
/// on streams. An operation that launches nothing has no counts. Also returns the reason in words if the device cannot count.
/// Returns fewer records if the run is stopped.
pub fn count(request: &Request, chosen: &[OpId]) -> Result<(Vec<CountersRecord>, Option<String>), ExecError> {
    let first = request.first();
    if request.ranks.len() > 1 {
        let why = "operations of several ranks wait for each other, so that none can run alone";
        return Ok((Vec::new(), Some(why.to_owned())));
    }
    let launching: Vec<OpId> =
        chosen.iter().copied().filter(|op| !launches_nothing(first.program, &first.program.cycle[0], *op)).collect();
    if launching.is_empty() {
        let why = "it launches nothing on the device, as a collective of one rank whose result is in place";
        return Ok((Vec::new(), Some(why.to_owned())));
    }
    let counted = request.open()?.count(&launching, request.control)?;
    let units = exec::unit_reports(*first, request.backend, &request.exec, &launching, request.control)?;
    let mut units = units.into_iter();
    let (counted, why) = match counted {
        Ok(counted) => (counted, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let reached = if why.is_some() { launching.len() } else { counted.len() };
    let is_reached = |op: &OpId| launching.iter().position(|other| other == op).is_none_or(|place| place < reached);
    let mut counted = counted.into_iter();
    let record = |op: &OpId| {
        let launches = launching.contains(op);
        let known = if launches { counted.next() } else { None };
        let (passes, counts) = known.map_or((0, Vec::new()), |counted| (counted.passes, counted.counts));
        let units = if launches { units.next() } else { None };
        let name = first.program.op_text(first.program.cycle[0].op(*op));
        CountersRecord { id: op.0, name, passes, counts, units: units.unwrap_or_default() }
    };
    Ok((chosen.iter().filter(|op| is_reached(op)).map(record).collect(), why))
}
