//! Collectives, sends and receives.
//!
//! An entry describes the part of one rank. `plan` checks that the parts of all ranks match.

mod all_to_all;
mod batch;
mod bus;
mod gather;
mod reduce;
mod transfer;

pub use all_to_all::AllToAll;
pub use batch::{Batch, BatchMember, parts};
pub use bus::{BusBytes, assumes_size, bus_bytes, has_unknown_size, moves_between_ranks, moves_unknown_size};
pub use gather::Copying;
pub use reduce::Reducing;
pub use transfer::{Barrier, Transfer};

use crate::base::{MAX_RANKS, counted};

use super::*;

/// Range of the options `root`, `to` and `from`. Whether the rank exists depends on the group.
const MEMBER: OptionType = OptionType::Int(0, i64::MAX);

/// Returns the signature of a collective with one input and one output.
const fn signature(name: &'static str, summary: &'static str, options: &'static [OptionSpec]) -> Signature {
    let inputs = &[Input::Tensor("src")];
    Signature { name, summary, category: Category::Collective, inputs, outputs: &["dst"], options }
}

/// Returns an error unless operands are contiguous memory of the device, as communication libraries require.
fn needs_contiguous_device_memory(call: &Call) -> Result<(), OpError> {
    for operand in call.inputs.iter().chain(call.outputs.iter().flatten()) {
        if operand.tensor.space != Space::Device {
            return Err(call.bad_space(operand, "collectives work on `device` memory; `copy` brings the rest over"));
        }
        if !operand.tensor.contiguous() {
            let help = "collectives move contiguous memory: copy the slice first, or order the buffer's dimensions \
                        so that the slice is one piece";
            return Err(call.gaps(operand, help));
        }
    }
    Ok(())
}

/// A tensor's type and shape for messages, with the number of its elements unless the shape is that number.
pub(super) fn in_elements(tensor: &Tensor) -> String {
    match tensor.dims.len() {
        1 => tensor.to_string(),
        _ => format!("{tensor}, which has {}", counted(tensor.elements() as usize, "element")),
    }
}

/// Type and shape of the output: a named output may have any shape with `count` elements of `dtype`; otherwise the
/// shape is `dims`.
fn flat_output(call: &Call, dtype: DType, count: u64, dims: Option<Dims>) -> Result<Vec<(DType, Dims)>, OpError> {
    match (call.outputs[0], dims) {
        (Some(given), _) if given.tensor.dtype != dtype || given.tensor.elements() != count => {
            let (own, ranks) = (call.inputs[0].tensor.elements(), u64::from(call.team.ranks));
            let from = match ranks {
                2.. if own.checked_mul(ranks) == Some(count) => format!(", {own} from each of {ranks} ranks"),
                2.. if count.checked_mul(ranks) == Some(own) => format!(", one of {ranks} parts for each rank"),
                _ => String::new(),
            };
            Err(call.bad_output(
                &given,
                format!("{} of {dtype}{from}", counted(count as usize, "element")),
                in_elements(&given.tensor),
            ))
        }
        (Some(given), _) => Ok(vec![(dtype, given.tensor.dims)]),
        (None, Some(dims)) => Ok(vec![(dtype, dims)]),
        (None, None) => {
            Err(call.no_output("the shape of the output does not follow from the input: write the output, `-> y`"))
        }
    }
}

/// Help for a rank that a world of one rank does not have.
pub fn more_ranks(number: i64) -> String {
    match number {
        1..MAX_RANKS => format!("check or run it on more: `--ranks {}`", number + 1),
        _ => "ranks count from 0".to_owned(),
    }
}

/// Returns the number of a rank in the group, from an option.
fn member(call: &Call, option: &'static str) -> Result<u32, OpError> {
    let (number, ranks) = (call.attrs.int(option), call.team.ranks);
    if let Ok(number) = u32::try_from(number)
        && number < ranks
    {
        return Ok(number);
    }
    let (why, help) = match ranks {
        1 => ("there is one rank, 0".to_owned(), more_ranks(number)),
        _ => (
            format!("the group has {ranks} ranks, 0 to {}", ranks - 1),
            "a group numbers its own ranks from 0; `%` wraps: `(rank + 1) % world`".to_owned(),
        ),
    };
    Err(call.bad_option(option, format!("{number} is not a rank: {why}"), help))
}

/// Returns the fields that all collectives of a rank share; the caller sets the others.
fn entry(spec: &Spec, kind: CollectiveKind) -> Collective {
    let source = spec.inputs.first();
    let target = spec.outputs.first();
    let tensor = source.or(target);
    Collective {
        kind,
        group: spec.team.group,
        ranks: spec.team.ranks,
        rank: spec.team.rank,
        source: source.map(|_| 0),
        target: target.map(|_| spec.inputs.len() as u8),
        dtype: tensor.map_or(DType::U8, |tensor| tensor.dtype),
        count: tensor.map_or(0, Tensor::elements),
        reduction: Reduction::Sum,
        peer: 0,
        parts: None,
        counted: None,
    }
}

fn launched(collective: Collective) -> Vec<Launch> {
    vec![Launch::Collective([collective].into())]
}

/// The bytes that cross the rank's link; in a group of one rank, those that it reads and writes.
fn traffic(spec: &Spec) -> Cost {
    if spec.team.ranks < 2 {
        return local_traffic(spec);
    }
    let BusBytes { sent, received } = bus_bytes(spec).unwrap_or_default();
    Cost { sent: sent.round() as u64, received: received.round() as u64, ..Cost::default() }
}

/// The bytes that a rank reads and writes in its own memory.
fn local_traffic(spec: &Spec) -> Cost {
    let (read, written) = (Spec::bytes_of(&spec.inputs), Spec::bytes_of(&spec.outputs));
    Cost { read, written, ..Cost::default() }
}

/// Copies the common length of both slices, whose agreement has been checked.
fn copy(from: &[f64], to: &mut [f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}
