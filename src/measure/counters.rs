//! Hardware counters of chosen operations, in a run of their own.

use crate::base::OpId;
use crate::exec::ExecError;
use crate::exec::counters::Counted;
use crate::model::Program;

use super::record::CountersRecord;
use super::request::Request;

/// Most operations of a run that are counted: those with the first numbers.
const MOST: usize = 8;

/// Returns the operations of the first slot that have a name: that of a label, with or without its index, or of an operation
/// such as `gemm`.
pub fn chosen(program: &Program, name: &str) -> Vec<OpId> {
    let step = &program.cycle[0];
    let is_named = |op: &OpId| {
        let info = step.op(*op);
        let text = program.op_text(info);
        text == name || super::compare::plain_name(&text) == name || program.op_name(info) == name
    };
    step.ids().filter(is_named).take(MOST).collect()
}

/// Counts while each of the operations runs alone, as streams. The inner error says in words why the device cannot.
pub fn count(request: &Request, chosen: &[OpId]) -> Result<Result<Vec<CountersRecord>, String>, ExecError> {
    let program = request.first().program;
    let mut session = request.open()?;
    let counted = match session.count(chosen, request.control)? {
        Ok(counted) => counted,
        Err(why) => return Ok(Err(why)),
    };
    let record = |counted: &Counted| CountersRecord {
        id: counted.op.0,
        name: program.op_text(program.cycle[0].op(counted.op)),
        passes: counted.passes,
        counters: counted.counts.clone(),
    };
    Ok(Ok(counted.iter().map(record).collect()))
}
