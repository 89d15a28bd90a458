//! The other processes that run ranks of the same world, where there are any: what each of them says between two
//! phases, so that all of them take the same decisions.
//!
//! Nothing here happens while iterations are measured. How processes reach each other is a backend's business.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::base::Bytes;

use super::error::ExecError;

/// Bytes that a process says, or rank 0 answers, at one place at most. A process that would have to say more fails.
pub const MOST: usize = 1 << 30;

/// A link to the processes that run the other ranks, one rank each.
pub trait Peers: Send + Sync {
    /// The rank of this process.
    fn rank(&self) -> u32;

    /// How many processes there are, each with a rank.
    fn world(&self) -> u32;

    /// Brings what each process says at one place of its run, which `what` names, to rank 0, and rank 0's answer to all.
    /// Only there `answer` is called, with what was said in the order of the ranks. All processes come here, or all get
    /// an error. One that says `failed` wakes those that are still under way. Nobody says more than [`MOST`] bytes.
    fn consult(
        &self,
        what: &str,
        said: &[u8],
        failed: bool,
        answer: &mut dyn FnMut(Vec<Vec<u8>>) -> Vec<u8>,
    ) -> Result<Vec<u8>, ExecError>;

    /// The error of a process that is gone; `None` while all are there.
    fn lost(&self) -> Option<ExecError>;

    /// From now on, sets the flag as soon as another process has failed or is gone; no flag from then on, for `None`.
    fn watch(&self, flag: Option<Arc<AtomicBool>>);
}

/// Brings together a value of each process, in the order of the ranks.
pub fn gather<T: Serialize + DeserializeOwned>(peers: &dyn Peers, what: &str, own: &T) -> Result<Vec<T>, ExecError> {
    gather_with(peers, what, own, false)
}

fn gather_with<T: Serialize + DeserializeOwned>(
    peers: &dyn Peers,
    what: &str,
    own: &T,
    failed: bool,
) -> Result<Vec<T>, ExecError> {
    let parts = gather_bytes(peers, what, &bytes(own), failed)?;
    (0..).zip(parts).map(|(rank, part)| read(rank, what, &part)).collect()
}

/// Brings together what each process says, in the order of the ranks.
fn gather_bytes(peers: &dyn Peers, what: &str, said: &[u8], failed: bool) -> Result<Vec<Vec<u8>>, ExecError> {
    let all = peers.consult(what, said, failed, &mut |parts| joined(&parts))?;
    let parts = parted(&all).filter(|parts| parts.len() == peers.world() as usize);
    parts.ok_or_else(|| ExecError::LostRank { rank: 0, why: "what it sent cannot be understood".to_owned() })
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data can be written")
}

/// Reads what a rank said.
fn read<T: DeserializeOwned>(rank: u32, what: &str, said: &[u8]) -> Result<T, ExecError> {
    let wrong = |error| ExecError::LostRank { rank, why: format!("what it said of its {what} is no such: {error}") };
    serde_json::from_slice(said).map_err(wrong)
}

/// Several texts of bytes as one.
fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
    for part in parts {
        all.extend((part.len() as u32).to_le_bytes());
        all.extend(part);
    }
    all
}

/// The parts of what [`joined`] made; `None` of what it did not make.
fn parted(mut all: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while !all.is_empty() {
        let (length, rest) = all.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        parts.push(part.to_vec());
        all = rest;
    }
    Some(parts)
}

/// Brings together how something went on each process. Where it failed on one, it failed on all, with the error of the
/// first that has one of its own. Without others it is what went on here.
pub fn agree<T: Serialize + DeserializeOwned>(
    peers: Option<&dyn Peers>,
    what: &str,
    own: Result<T, ExecError>,
) -> Result<Vec<T>, ExecError> {
    let Some(peers) = peers else { return own.map(|value| vec![value]) };
    match (gather_with(peers, what, &own, own.is_err()), own) {
        (Ok(all), _) => merged(all, &(0..peers.world()).collect::<Vec<_>>()),
        (Err(lost), own) => Err(instead(own, lost)),
    }
}

/// The error where others are lost: what happened here says more than that.
fn instead<T>(own: Result<T, ExecError>, lost: ExecError) -> ExecError {
    own.err().filter(|error| !matches!(error, ExecError::Ended)).unwrap_or(lost)
}

/// Brings how something went on each process to rank 0 alone, and what rank 0 makes of it to all: as [`agree`], for values
/// that are large. Returns what rank 0 made of them, and the values of all ranks as far as they are known here: on
/// rank 0 all, elsewhere the own one.
pub(super) fn report<T: Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
    peers: Option<&dyn Peers>,
    what: &str,
    own: Result<T, ExecError>,
    answer: impl Fn(&[T]) -> A,
) -> Result<(A, Vec<Option<T>>), ExecError> {
    let Some(peers) = peers else { return own.map(|value| (answer(std::slice::from_ref(&value)), vec![Some(value)])) };
    let mut said = bytes(&own);
    let mut own = own;
    if said.len() > MOST {
        let fault = format!("its {what} take {}, and {} can be told", Bytes(said.len() as u64), Bytes(MOST as u64));
        own = Err(ExecError::Device { fault, help: Some("lower the setting `observed_iterations`".to_owned()) });
        said = bytes(&own);
    }
    let ranks: Vec<u32> = (0..peers.world()).collect();
    let mut all = Vec::new();
    let replied = peers.consult(what, &said, own.is_err(), &mut |parts| {
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
                known[peers.rank() as usize] = Some(own);
            }
            Ok((answer, known))
        }
    }
}

/// Bytes that all processes together send at once, at most.
const PIECE: usize = 1 << 26;

/// Brings together bytes of each process, in the order of the ranks, piece by piece.
pub fn share(peers: Option<&dyn Peers>, what: &str, own: Vec<u8>) -> Result<Vec<Vec<u8>>, ExecError> {
    let Some(peers) = peers else { return Ok(vec![own]) };
    let lengths: Vec<usize> = gather(peers, what, &own.len())?;
    let mut all: Vec<Vec<u8>> = lengths.iter().map(|_| Vec::new()).collect();
    let piece = (PIECE / lengths.len().max(1)).max(1);
    for start in (0..lengths.iter().copied().max().unwrap_or(0)).step_by(piece) {
        let part = &own[start.min(own.len())..(start + piece).min(own.len())];
        let parts = gather_bytes(peers, what, part, false)?;
        all.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
    }
    Ok(all)
}

/// What all ranks gave, or the first failure that tells something: what ended because another had failed does not.
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

/// A text that the program has as a constant.
pub type Constant = &'static str;

/// Reads a text that another process has as a constant. There are few: each is kept, once.
pub(super) fn constant<'de, D: Deserializer<'de>>(from: D) -> Result<Constant, D::Error> {
    String::deserialize(from).map(kept)
}

/// The same for several.
pub(super) fn constants<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Constant>, D::Error> {
    Vec::<String>::deserialize(from).map(|texts| texts.into_iter().map(kept).collect())
}

fn kept(text: String) -> Constant {
    static KNOWN: Mutex<BTreeSet<Constant>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match known.get(text.as_str()) {
        Some(constant) => constant,
        None => {
            let constant: Constant = Box::leak(text.into_boxed_str());
            known.insert(constant);
            constant
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_again() {
        let parts = vec![vec![1, 2], Vec::new(), vec![3]];
        assert_eq!(parted(&joined(&parts)), Some(parts));
        assert_eq!(parted(&[1, 0, 0]), None);
        assert_eq!(parted(&[9, 0, 0, 0, 1]), None);
    }
}
