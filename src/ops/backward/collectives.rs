//! Gradients of collectives: their transposes, which combine the gradients of all ranks that a tensor contributed to.

use super::super::ElementCounts;
use super::*;

/// Reason for reductions whose transpose is not a collective.
const NO_SUM: NoRule = "sums and means of ranks have gradients, other values of `op` do not";

/// Factor of a reduction: 1 for a sum; for a mean, one divided by the number of ranks.
fn share(rule: &Backward) -> Result<f64, NoRule> {
    match rule.spec.attrs.word("op") {
        "sum" => Ok(1.0),
        "mean" => Ok(1.0 / f64::from(rule.spec.team.ranks)),
        _ => Err(NO_SUM),
    }
}

/// Sets the gradient of the only input to the result of a collective on the gradient of the output.
fn transposed(rule: &mut Backward, name: &str, options: &[(&'static str, Attr)], factor: f64) {
    let Some(gradient) = rule.gradient() else { return };
    let (tensor, team) = (rule.spec.inputs[0], rule.spec.team);
    let found = rule.tape.scratch(tensor.dtype, tensor.dims);
    rule.tape.write_in(team, name, options, &[gradient], &[found]);
    let found = rule.scaled(factor, found);
    rule.set(0, found);
}

/// `all_reduce`: the sum or the mean of the ranks' gradients.
pub fn all_reduce(rule: &mut Backward) -> Result<(), NoRule> {
    share(rule)?;
    let op = rule.spec.attrs.word("op");
    transposed(rule, "all_reduce", &[("op", Attr::Word(op))], 1.0);
    Ok(())
}

/// `all_gather`: this rank's part of the sum of all gradients.
pub fn all_gather(rule: &mut Backward) -> Result<(), NoRule> {
    transposed(rule, "reduce_scatter", &[], 1.0);
    Ok(())
}

/// `reduce_scatter`: the gradients of all parts, gathered.
pub fn reduce_scatter(rule: &mut Backward) -> Result<(), NoRule> {
    let factor = share(rule)?;
    transposed(rule, "all_gather", &[], factor);
    Ok(())
}

/// `reduce` to a root: the root's gradient.
pub fn reduce(rule: &mut Backward) -> Result<(), NoRule> {
    let factor = share(rule)?;
    let root = rule.spec.attrs.int("root");
    transposed(rule, "broadcast", &[("root", Attr::Int(root))], factor);
    Ok(())
}

/// `broadcast` from a root: the sum of all gradients on the root, nothing on other ranks.
pub fn broadcast(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (tensor, team) = (rule.spec.inputs[0], rule.spec.team);
    let found = rule.zeros(tensor.dtype, tensor.dims);
    let root = rule.spec.attrs.int("root");
    rule.tape.write_in(team, "reduce", &[("root", Attr::Int(root))], &[gradient], &[found]);
    rule.set(0, found);
    Ok(())
}

/// `all_to_all` and `copy` of rows that a tensor counts: the same operation brings the gradients back by the same counts.
pub fn counted(rule: &mut Backward, name: &str) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (tensor, team) = (rule.spec.inputs[0], rule.spec.team);
    // Rows that are not sent have a gradient of zero.
    let (found, counts) = (rule.zeros(tensor.dtype, tensor.dims), rule.input(1));
    let back = ("back", Attr::Bool(!rule.spec.attrs.bool("back")));
    rule.tape.write_in(team, name, &[back], &[gradient, counts], &[found]);
    rule.set(0, found);
    Ok(())
}

/// `all_to_all`: returns each part to its sender.
pub fn all_to_all(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (tensor, team) = (rule.spec.inputs[0], rule.spec.team);
    if rule.spec.inputs.len() > 1 {
        return counted(rule, "all_to_all");
    }
    let Some(counts) = rule.spec.attrs.counts("counts") else {
        transposed(rule, "all_to_all", &[], 1.0);
        return Ok(());
    };
    let ranks = 0..team.ranks as usize;
    let back = ranks.clone().map(|to| ranks.clone().map(|from| counts.get(from, to)).collect()).collect();
    // Rows that are not sent have a gradient of zero.
    let found = rule.zeros(tensor.dtype, tensor.dims);
    let counts = Attr::Counts(ElementCounts::Rows(back).into());
    rule.tape.write_in(team, "all_to_all", &[("counts", counts)], &[gradient], &[found]);
    rule.set(0, found);
    Ok(())
}

/// `send`: the receiver returns the gradient.
pub fn send(rule: &mut Backward) -> Result<(), NoRule> {
    let (tensor, team) = (rule.spec.inputs[0], rule.spec.team);
    let found = rule.tape.scratch(tensor.dtype, tensor.dims);
    let from = rule.spec.attrs.int("to");
    rule.tape.write_in(team, "recv", &[("from", Attr::Int(from))], &[], &[found]);
    rule.set(0, found);
    Ok(())
}

/// `recv`: returns the gradient, even if it is zero, since the sender waits for it.
pub fn recv(rule: &mut Backward) -> Result<(), NoRule> {
    let (tensor, team) = (rule.spec.outputs[0], rule.spec.team);
    let gradient = match rule.gradient() {
        Some(gradient) => rule.convert(gradient, tensor.dtype),
        None => rule.zeros(tensor.dtype, tensor.dims),
    };
    let to = rule.spec.attrs.int("from");
    rule.tape.write_in(team, "send", &[("to", Attr::Int(to))], &[gradient], &[]);
    Ok(())
}
