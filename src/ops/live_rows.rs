//! Rows that hold data, where other data determines their number: tokens of a mixture of experts, in buffers with room for more.
//!
//! Kernels read these numbers on the device. Costs and figures need them before the run, so they are derived from the operations that
//! produce them: a `permute` counts all choices, and an exchange by counts is assumed to be balanced over the ranks.

use super::{Spec, Tensor};

/// Number of rows that hold data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LiveRows {
    pub rows: u64,
    /// True if the number is the same for all data; false if it is an assumption.
    pub exact: bool,
}

/// A fact about the contents of a tensor that is known before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFact {
    /// Number of rows, along the first dimension, that hold data.
    Holds(LiveRows),
    /// Sum of the elements, which count the rows of groups.
    Counts(LiveRows),
    /// The last element, where the elements are the ends of groups.
    Ends(LiveRows),
}

/// Numbers of rows with data of an operation, derived from those of its inputs.
#[derive(Clone, Debug, Default)]
pub struct LiveOperation {
    /// Rows that the operation works on; `None` if the shapes of its operands determine them.
    pub works_on: Option<LiveRows>,
    /// Facts about the outputs, by their order; missing ones are unknown.
    pub outputs: Vec<Option<RowFact>>,
}

impl LiveOperation {
    /// Numbers for an operation whose rows follow from the same rows of its first inputs, such as a `map`. `inputs` is the number of
    /// these inputs.
    pub fn of_rows(spec: &Spec, facts: &[Option<RowFact>], inputs: usize) -> LiveOperation {
        let output = |tensor: &Tensor| {
            let alike = |input: &usize| first(&spec.inputs[*input]) == first(tensor);
            (0..inputs).filter(alike).find_map(|input| held(facts, input)).and_then(|live| holding(tensor, live))
        };
        LiveOperation { works_on: None, outputs: spec.outputs.iter().map(output).collect() }
    }

    /// Numbers for rows that move from `source` to `targets` by the counts in a tensor: a rank receives as many as it sends, as if all
    /// ranks sent equally many.
    pub fn exchanged(source: &Tensor, facts: &[Option<RowFact>], targets: &[Tensor], ranks: u32) -> LiveOperation {
        let sent = held(facts, 0).unwrap_or(LiveRows { rows: first(source), exact: true });
        let live = LiveRows { exact: sent.exact && ranks == 1, ..sent };
        LiveOperation { works_on: None, outputs: targets.iter().map(|target| holding(target, live)).collect() }
    }
}

/// Size of the first dimension; 1 for a single element.
fn first(tensor: &Tensor) -> u64 {
    tensor.dims.first().copied().unwrap_or(1)
}

/// The rows of an input that hold data, by the facts about all inputs; `None` if all are assumed to.
pub fn held(facts: &[Option<RowFact>], input: usize) -> Option<LiveRows> {
    match facts.get(input) {
        Some(Some(RowFact::Holds(live))) => Some(*live),
        _ => None,
    }
}

/// The fact that this many rows of a tensor hold data; `None` if all of them certainly do.
pub fn holding(tensor: &Tensor, live: LiveRows) -> Option<RowFact> {
    let all = first(tensor);
    let live = LiveRows { rows: live.rows.min(all), ..live };
    (live != LiveRows { rows: all, exact: true }).then_some(RowFact::Holds(live))
}
