//! The other processes that run ranks of the same world, where there are any: what each of them says between two
//! phases, so that all of them take the same decisions.
//!
//! Nothing here happens while iterations are measured. How processes reach each other is a backend's business.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::error::ExecError;

/// A link to the processes that run the other ranks, one rank each.
pub trait Peers: Send + Sync {
    /// The rank of this process.
    fn rank(&self) -> u32;

    /// How many processes there are, each with a rank.
    fn world(&self) -> u32;

    /// Brings together what each process says at one place of its run, which `what` names: in the order of the ranks.
    /// All processes come here, or all get an error. One that says `failed` wakes those that are still under way.
    fn gather(&self, what: &str, said: &[u8], failed: bool) -> Result<Vec<Vec<u8>>, ExecError>;

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
    let said = serde_json::to_vec(own).expect("plain data can be written");
    let parts = peers.gather(what, &said, failed)?;
    let read = |(rank, part): (u32, Vec<u8>)| {
        let wrong =
            |error| ExecError::LostRank { rank, why: format!("what it said of its {what} is no such: {error}") };
        serde_json::from_slice(&part).map_err(wrong)
    };
    (0..).zip(parts).map(read).collect()
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
        // What happened here says more than that the others are gone.
        (Err(_), Err(error)) if !matches!(error, ExecError::Ended) => Err(error),
        (Err(lost), _) => Err(lost),
    }
}

/// Bytes that all processes together send at once.
const PIECE: usize = 1 << 26;

/// Brings together bytes of each process, in the order of the ranks, piece by piece.
pub fn share(peers: Option<&dyn Peers>, what: &str, own: Vec<u8>) -> Result<Vec<Vec<u8>>, ExecError> {
    let Some(peers) = peers else { return Ok(vec![own]) };
    let lengths: Vec<usize> = gather(peers, what, &own.len())?;
    let mut all: Vec<Vec<u8>> = lengths.iter().map(|_| Vec::new()).collect();
    let piece = PIECE / lengths.len().max(1);
    for start in (0..lengths.iter().copied().max().unwrap_or(0)).step_by(piece) {
        let part = &own[start.min(own.len())..(start + piece).min(own.len())];
        let parts = peers.gather(what, part, false)?;
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
