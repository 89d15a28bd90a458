//! Prepares the ranks of one process concurrently. A rank that fails or does not answer within a time limit ends the
//! preparation of all.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::backend::id_exchange::IdExchange;
use crate::base::{Nanos, parallel, threads};
use crate::exec::{Driver, ExecError};

/// Interval between two checks of the ranks' progress.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time allowed for the other ranks to end once one has failed.
const GRACE: Duration = Duration::from_secs(2);

type OpenedDriver = Result<Box<dyn Driver>, ExecError>;

/// Makes the drivers of all ranks, each on its own thread. A thread that blocks inside a library, waiting for a rank
/// that never comes, cannot be ended and is left behind.
pub fn together<F>(
    makers: Vec<F>,
    id_exchange: &Arc<IdExchange>,
    timeout: Nanos,
) -> Result<Vec<Box<dyn Driver>>, ExecError>
where
    F: FnOnce() -> OpenedDriver + Send + 'static,
{
    let (send, made) = channel();
    let mut answered = vec![false; makers.len()];
    let mut drivers: Vec<Option<Box<dyn Driver>>> = makers.iter().map(|_| None).collect();
    for (index, make) in makers.into_iter().enumerate() {
        let (send, guard) = (send.clone(), PreparationGuard(id_exchange.clone()));
        let make = move || {
            let made = make();
            drop(guard);
            // Sending fails if the receiver has given up; then nobody needs the result.
            let _ = send.send((index, made));
        };
        let builder = std::thread::Builder::new().name(format!("rank {index} opens"));
        let spawned = threads::spawn(builder, make);
        if let Err(error) = spawned {
            id_exchange.fail();
            return Err(ExecError::no_thread(&format!("for rank {index}"), &error));
        }
    }
    drop(send);
    let timeout = timeout.duration();
    let (mut seen, mut since) = (id_exchange.count(), Instant::now());
    let mut failure: Option<ExecError> = None;
    while drivers.iter().any(Option::is_none) {
        match made.recv_timeout(POLL_INTERVAL) {
            Ok((index, Ok(driver))) => {
                drivers[index] = Some(driver);
                answered[index] = true;
            }
            Ok((index, Err(error))) => {
                answered[index] = true;
                // A failure caused by another rank's failure adds no information.
                failure = failure.filter(|known| !matches!(known, ExecError::Ended)).or(Some(error));
                since = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let waited = since.elapsed();
        match (&failure, id_exchange.count()) {
            (Some(_), _) if waited > GRACE => break,
            (Some(_), _) => {}
            (None, count) if count != seen => (seen, since) = (count, Instant::now()),
            (None, _) => {
                if let Some(who) = id_exchange.waiting().filter(|_| waited > timeout) {
                    failure = Some(ExecError::NoMeeting { timeout: Nanos(timeout.as_nanos() as i64).to_string(), who });
                    break;
                }
            }
        }
    }
    let complete = drivers.iter().all(Option::is_some) && failure.is_none();
    if !complete {
        // Ends the preparation of the other ranks without waiting for them.
        id_exchange.fail();
        parallel::side_by_side(drivers.iter_mut().flatten(), |driver| driver.abandon());
        let silent = answered.iter().position(|answered| !answered).unwrap_or(0) as u32;
        let died = ExecError::Died { rank: silent, why: "its thread ended during preparation".to_owned() };
        return Err(failure.filter(|error| !matches!(error, ExecError::Ended)).unwrap_or(died));
    }
    Ok(drivers.into_iter().flatten().collect())
}

/// Held by a rank while it prepares. Dropping it, also by a panic, notifies the other ranks.
struct PreparationGuard(Arc<IdExchange>);

impl Drop for PreparationGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}
