//! Collectives and copies between ranks on the CPU, computed by the operations' reference implementations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};

use crate::base::computing::compute;
use crate::base::threads::{lock, unpoisoned};
use crate::exec::Comm;
use crate::ops::{self, Collective, CollectiveKind, Peer, RankMember, Sent, Spec};

/// The communicators of all ranks of the process, and the copies between ranks.
#[derive(Debug, Default)]
pub struct CommStates {
    comms: Mutex<BTreeMap<Comm, Arc<CommState>>>,
    pub crossings: Arc<CopiesInFlight>,
}

/// Direction of a copy between ranks: number of the copy, sender, receiver.
type CopyDirection = (u32, u32, u32);

/// Data of copies between ranks that was sent and not yet received.
#[derive(Debug, Default)]
pub struct CopiesInFlight {
    sent: Mutex<BTreeMap<CopyDirection, VecDeque<Arriving>>>,
    changed: Condvar,
}

/// Sent values, and the index of their first element in the receiver's tensor.
type Arriving = (usize, Vec<f64>);

impl CopiesInFlight {
    /// Carries out the rank's part in a copy between ranks: sends `inputs`, and stores the received values in `outputs`.
    /// Blocks until the other ranks have sent.
    pub fn pass(&self, crossing: u32, peer: &Peer, inputs: &[Vec<f64>], outputs: &mut [Vec<f64>]) {
        let mut sent = lock(&self.sent);
        if let (Some(Sent { to, counted, .. }), Some(values)) = (&peer.sends, inputs.first()) {
            let arriving = match counted {
                None => (0, values.clone()),
                Some(counted) => {
                    let counts = &inputs[usize::from(counted.operand)];
                    let part = counted.rows_between(|place| counts[place as usize] as i64, peer.rank, *to);
                    let [from, place, length] =
                        [part.from, part.to, part.rows].map(|rows| (rows * counted.row) as usize);
                    (place, values[from..from + length].to_vec())
                }
            };
            sent.entry((crossing, peer.rank, *to)).or_default().push_back(arriving);
            self.changed.notify_all();
        }
        for (&from, output) in peer.from.iter().zip(outputs) {
            let (place, values) = loop {
                if let Some(values) = sent.get_mut(&(crossing, from, peer.rank)).and_then(VecDeque::pop_front) {
                    break values;
                }
                sent = unpoisoned(self.changed.wait(sent));
            };
            output[place..place + values.len()].copy_from_slice(&values);
        }
    }
}

impl CommStates {
    /// The state of a communicator, which its ranks share. Created at the first call.
    pub fn of(&self, comm: &Comm) -> Arc<CommState> {
        let mut comms = lock(&self.comms);
        comms.entry(comm.clone()).or_insert_with(|| Arc::new(CommState::new(comm.ranks.len()))).clone()
    }
}

/// A communicator: the place where its ranks meet for a collective.
#[derive(Debug)]
pub struct CommState {
    state: Mutex<ExchangeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ExchangeState {
    /// Contribution of each rank to the current collective; `None` until the rank has arrived.
    shares: Vec<Option<Share>>,
    /// Number of ranks that have not fetched their results of the current collective.
    to_fetch: usize,
    /// Data of sends that was not yet received, by sender and receiver, in order.
    sent: BTreeMap<(u32, u32), VecDeque<Vec<f64>>>,
    /// True if ranks have arrived with different collectives, so that the current collective never completes.
    mismatched: bool,
    /// True once a rank has failed: ranks do not wait any more, and results are meaningless.
    broken: bool,
}

/// Contribution of a rank to a collective.
#[derive(Debug)]
struct Share {
    spec: Arc<Spec>,
    collectives: Vec<Collective>,
    inputs: Vec<Vec<f64>>,
    outputs: Vec<Vec<f64>>,
}

impl CommState {
    fn new(ranks: usize) -> CommState {
        let state = ExchangeState {
            shares: (0..ranks).map(|_| None).collect(),
            to_fetch: 0,
            sent: BTreeMap::new(),
            ..ExchangeState::default()
        };
        CommState { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// True if all ranks have arrived with collectives that are not the same.
    pub fn is_mismatched(&self) -> bool {
        let state = lock(&self.state);
        state.mismatched && state.shares.iter().all(Option::is_some)
    }

    /// Makes all ranks that wait here continue, now and later, without correct results.
    pub fn abort(&self) {
        lock(&self.state).broken = true;
        self.changed.notify_all();
    }

    /// Takes part in an operation, as one rank. `outputs` holds the previous contents of the outputs, and receives the
    /// results. Blocks until the other ranks have taken part, or until [`CommState::abort`].
    pub fn take_part(
        &self,
        rank: u32,
        spec: &Arc<Spec>,
        collectives: &[Collective],
        inputs: &[Vec<f64>],
        outputs: &mut [Vec<f64>],
    ) {
        // Sends precede receives, so that two ranks that exchange data do not deadlock. The other end of a transfer may belong to another
        // operation than this one.
        self.send(rank, collectives, inputs);
        if !collectives.iter().all(Collective::is_transfer) {
            self.exchange(rank, spec, collectives, inputs, outputs);
        }
        self.receive(rank, collectives, inputs, outputs);
    }

    fn send(&self, rank: u32, collectives: &[Collective], inputs: &[Vec<f64>]) {
        let mut state = lock(&self.state);
        for one in collectives {
            if let (CollectiveKind::Send, Some(source)) = (one.kind, one.source) {
                state.sent.entry((rank, one.peer)).or_default().push_back(inputs[usize::from(source)].clone());
            }
        }
        self.changed.notify_all();
    }

    fn receive(&self, rank: u32, collectives: &[Collective], inputs: &[Vec<f64>], outputs: &mut [Vec<f64>]) {
        let mut state = lock(&self.state);
        for one in collectives {
            let (CollectiveKind::Recv, Some(target)) = (one.kind, one.target) else { continue };
            let values = loop {
                if state.broken {
                    return;
                }
                if let Some(values) = state.sent.get_mut(&(one.peer, rank)).and_then(VecDeque::pop_front) {
                    break values;
                }
                state = unpoisoned(self.changed.wait(state));
            };
            outputs[usize::from(target) - inputs.len()] = values;
        }
    }

    fn exchange(
        &self,
        rank: u32,
        spec: &Arc<Spec>,
        collectives: &[Collective],
        inputs: &[Vec<f64>],
        outputs: &mut [Vec<f64>],
    ) {
        let rank = rank as usize;
        // The previous collective must be finished by all ranks.
        let state = lock(&self.state);
        let waited = self.changed.wait_while(state, |state| state.to_fetch > 0 && !state.broken);
        let mut state = unpoisoned(waited);
        if state.broken {
            return;
        }
        state.mismatched |=
            state.shares.iter().flatten().any(|share| !Collective::meet(&share.collectives, collectives));
        let (spec, collectives) = (spec.clone(), collectives.to_vec());
        state.shares[rank] = Some(Share { spec, collectives, inputs: inputs.to_vec(), outputs: outputs.to_vec() });
        if state.shares.iter().all(Option::is_some) && !state.mismatched {
            let mut members: Vec<RankMember> = state
                .shares
                .iter_mut()
                .flatten()
                .map(|share| RankMember { spec: &share.spec, inputs: &share.inputs, outputs: &mut share.outputs })
                .collect();
            compute(|| ops::joint_operation(&members).exchange(&mut members));
            state.to_fetch = state.shares.len();
            self.changed.notify_all();
        } else {
            let waited = self.changed.wait_while(state, |state| state.to_fetch == 0 && !state.broken);
            state = unpoisoned(waited);
            if state.broken {
                return;
            }
        }
        if let Some(share) = state.shares[rank].take() {
            for (output, result) in outputs.iter_mut().zip(share.outputs) {
                *output = result;
            }
        }
        state.to_fetch -= 1;
        if state.to_fetch == 0 {
            self.changed.notify_all();
        }
    }
}
