//! Communication with the processes that run the other ranks: between two phases, the processes exchange results and
//! agree on the next phase.
//!
//! No function here runs while iterations are measured. Backends implement the transport.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::Bytes;
use crate::exec::ExecError;

/// Maximum bytes of a message or an answer. A process whose message is longer fails.
pub const MAX_MESSAGE: usize = 1 << 30;

/// A link to the processes of the other ranks. Each process has one rank.
pub trait RankProcesses: Send + Sync {
    /// The rank of this process.
    fn rank(&self) -> u32;

    /// Number of processes.
    fn world(&self) -> u32;

    /// Gathers a message of each process on rank 0 and sends rank 0's answer to all. Only rank 0 calls `answer`, with
    /// the messages in the order of ranks. `what` names this step of the run. Every process gets an answer, or every
    /// one gets an error. A message with `failed` interrupts processes that are still working. A message has at most
    /// [`MAX_MESSAGE`] bytes.
    fn consult(
        &self,
        what: &str,
        message: &[u8],
        failed: bool,
        answer: &mut dyn FnMut(Vec<Vec<u8>>) -> Vec<u8>,
    ) -> Result<Vec<u8>, ExecError>;

    /// The error of a process that was lost; `None` while all are connected.
    fn lost(&self) -> Option<ExecError>;

    /// Sets `flag` as soon as another process fails or is lost; `None` ends that.
    fn watch(&self, flag: Option<Arc<AtomicBool>>);
}

/// Gathers a value of each process, in the order of ranks. All processes get all values.
pub fn gather<T: Serialize + DeserializeOwned>(
    processes: &dyn RankProcesses,
    what: &str,
    own: &T,
) -> Result<Vec<T>, ExecError> {
    gather_with(processes, what, own, false)
}

fn gather_with<T: Serialize + DeserializeOwned>(
    processes: &dyn RankProcesses,
    what: &str,
    own: &T,
    failed: bool,
) -> Result<Vec<T>, ExecError> {
    let parts = gather_bytes(processes, what, &bytes(own), failed)?;
    (0..).zip(parts).map(|(rank, part)| read(rank, what, &part)).collect()
}

/// Gathers bytes of each process, in the order of ranks.
fn gather_bytes(
    processes: &dyn RankProcesses,
    what: &str,
    message: &[u8],
    failed: bool,
) -> Result<Vec<Vec<u8>>, ExecError> {
    let all = processes.consult(what, message, failed, &mut |parts| joined(&parts))?;
    let parts = split_parts(&all).filter(|parts| parts.len() == processes.world() as usize);
    parts.ok_or_else(|| ExecError::LostRank { rank: 0, why: "its message is malformed".to_owned() })
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data can be written")
}

/// Parses the message of a rank.
fn read<T: DeserializeOwned>(rank: u32, what: &str, message: &[u8]) -> Result<T, ExecError> {
    let wrong = |error| ExecError::LostRank { rank, why: format!("its message about {what} is malformed: {error}") };
    serde_json::from_slice(message).map_err(wrong)
}

/// Concatenates messages, each with its length, into one.
fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
    for part in parts {
        all.extend((part.len() as u32).to_le_bytes());
        all.extend(part);
    }
    all
}

/// Splits a message made by [`joined`]; `None` if it is malformed.
fn split_parts(mut all: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while !all.is_empty() {
        let (length, rest) = all.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        parts.push(part.to_vec());
        all = rest;
    }
    Some(parts)
}

/// Gathers the result of a phase from each process. If it failed on one process, all of them return that error; the
/// first error that is not a consequence of another wins. Without other processes, returns the local result alone.
pub fn agree<T: Serialize + DeserializeOwned>(
    processes: Option<&dyn RankProcesses>,
    what: &str,
    own: Result<T, ExecError>,
) -> Result<Vec<T>, ExecError> {
    let Some(processes) = processes else { return own.map(|value| vec![value]) };
    match (gather_with(processes, what, &own, own.is_err()), own) {
        (Ok(all), _) => merged(all, &(0..processes.world()).collect::<Vec<_>>()),
        (Err(lost), own) => Err(instead(own, lost)),
    }
}

/// Returns the error for a lost connection, or the local error if there is one, since it has more details.
fn instead<T>(own: Result<T, ExecError>, lost: ExecError) -> ExecError {
    own.err().filter(|error| !matches!(error, ExecError::Ended)).unwrap_or(lost)
}

/// Sends the result of a phase to rank 0 and rank 0's summary of all results to all processes. Like [`agree`], but for
/// large values. Returns the summary and the values: of all ranks on rank 0, only its own on other ranks.
pub(super) fn report<T: Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
    processes: Option<&dyn RankProcesses>,
    what: &str,
    own: Result<T, ExecError>,
    answer: impl Fn(&[T]) -> A,
) -> Result<(A, Vec<Option<T>>), ExecError> {
    let Some(processes) = processes else {
        return own.map(|value| (answer(std::slice::from_ref(&value)), vec![Some(value)]));
    };
    let mut message = bytes(&own);
    let mut own = own;
    if message.len() > MAX_MESSAGE {
        let fault = format!(
            "its {what} take {}, and a message holds {} at most",
            Bytes(message.len() as u64),
            Bytes(MAX_MESSAGE as u64)
        );
        own = Err(ExecError::Device { fault, help: Some("lower the setting `observed_iterations`".to_owned()) });
        message = bytes(&own);
    }
    let ranks: Vec<u32> = (0..processes.world()).collect();
    let mut all = Vec::new();
    let replied = processes.consult(what, &message, own.is_err(), &mut |parts| {
        let results = ranks.iter().zip(&parts).map(|(&rank, part)| read::<Result<T, ExecError>>(rank, what, part));
        let results = results.map(|result| result.and_then(|result| result)).collect();
        let merged = merged(results, &ranks);
        let reply = merged.as_ref().map(|values| answer(values)).map_err(ExecError::clone);
        all = merged.unwrap_or_default();
        bytes(&reply)
    });
    let reply = replied.and_then(|reply| read::<Result<A, ExecError>>(0, what, &reply));
    match (reply, own) {
        (Ok(Err(error)), _) => Err(error),
        (Err(lost), own) => Err(instead(own, lost)),
        (Ok(Ok(_)), Err(error)) => Err(error),
        (Ok(Ok(answer)), Ok(own)) => {
            let mut known: Vec<Option<T>> = all.into_iter().map(Some).collect();
            if known.is_empty() {
                known.resize_with(ranks.len(), || None);
                known[processes.rank() as usize] = Some(own);
            }
            Ok((answer, known))
        }
    }
}

/// Maximum bytes that all processes together send in one step.
const PIECE: usize = 1 << 26;

/// Gathers bytes of any length from each process, in the order of ranks, piece by piece.
pub fn share(processes: Option<&dyn RankProcesses>, what: &str, own: Vec<u8>) -> Result<Vec<Vec<u8>>, ExecError> {
    let Some(processes) = processes else { return Ok(vec![own]) };
    let lengths: Vec<usize> = gather(processes, what, &own.len())?;
    let mut all: Vec<Vec<u8>> = lengths.iter().map(|_| Vec::new()).collect();
    let piece = (PIECE / lengths.len().max(1)).max(1);
    for start in (0..lengths.iter().copied().max().unwrap_or(0)).step_by(piece) {
        let part = &own[start.min(own.len())..(start + piece).min(own.len())];
        let parts = gather_bytes(processes, what, part, false)?;
        all.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
    }
    Ok(all)
}

/// Returns the values of all ranks, or the first error that is not a consequence of another rank's failure.
pub(super) fn merged<T>(results: Vec<Result<T, ExecError>>, ranks: &[u32]) -> Result<Vec<T>, ExecError> {
    let mut values = Vec::with_capacity(results.len());
    let mut failure: Option<ExecError> = None;
    for (result, &rank) in results.into_iter().zip(ranks) {
        match result {
            Ok(value) => values.push(value),
            Err(ExecError::Ended) => failure = failure.or(Some(ExecError::Ended)),
            Err(error) if matches!(failure, None | Some(ExecError::Ended)) => failure = Some(error.on_rank(rank)),
            Err(_) => {}
        }
    }
    failure.map_or(Ok(values), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_again() {
        let parts = vec![vec![1, 2], Vec::new(), vec![3]];
        assert_eq!(split_parts(&joined(&parts)), Some(parts));
        assert_eq!(split_parts(&[1, 0, 0]), None);
        assert_eq!(split_parts(&[9, 0, 0, 0, 1]), None);
    }
}
