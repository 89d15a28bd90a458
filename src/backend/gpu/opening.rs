//! Ranks of one process that prepare themselves side by side, and wait for each other as they do: a rank that fails, or
//! does not come, is not waited for without end.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::backend::collective::IdExchange;
use crate::base::{Nanos, parallel};
use crate::exec::{Driver, ExecError};

/// From one look at how far they have come to the next.
const LOOK: Duration = Duration::from_millis(100);

/// How long the others may take to end when one has failed.
const GRACE: Duration = Duration::from_secs(2);

type Made = Result<Box<dyn Driver>, ExecError>;

/// Makes the drivers of all ranks, each on a thread of its own. A thread that is inside the library, which waits for a
/// rank that never comes, cannot be ended: it is left behind.
pub fn together<F>(makers: Vec<F>, meeting: &Arc<IdExchange>, timeout: Nanos) -> Result<Vec<Box<dyn Driver>>, ExecError>
where
    F: FnOnce() -> Made + Send + 'static,
{
    let (send, made) = channel();
    let mut told = vec![false; makers.len()];
    let mut drivers: Vec<Option<Box<dyn Driver>>> = makers.iter().map(|_| None).collect();
    for (index, make) in makers.into_iter().enumerate() {
        let (send, alive) = (send.clone(), Alive(meeting.clone()));
        let make = move || {
            let made = make();
            drop(alive);
            // Nobody may be there any more to take it.
            let _ = send.send((index, made));
        };
        let spawned = std::thread::Builder::new().name(format!("rank {index} opens")).spawn(make);
        if let Err(error) = spawned {
            meeting.fail();
            return Err(ExecError::no_thread(&format!("for rank {index}"), &error));
        }
    }
    drop(send);
    let timeout = Duration::from_nanos(timeout.0.max(0) as u64);
    let (mut seen, mut since) = (meeting.count(), Instant::now());
    let mut failure: Option<ExecError> = None;
    while drivers.iter().any(Option::is_none) {
        match made.recv_timeout(LOOK) {
            Ok((index, Ok(driver))) => {
                drivers[index] = Some(driver);
                told[index] = true;
            }
            Ok((index, Err(error))) => {
                told[index] = true;
                // What ended because another had failed tells nothing.
                failure = failure.filter(|known| !matches!(known, ExecError::Ended)).or(Some(error));
                since = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let waited = since.elapsed();
        match (&failure, meeting.count()) {
            (Some(_), _) if waited > GRACE => break,
            (Some(_), _) => {}
            (None, count) if count != seen => (seen, since) = (count, Instant::now()),
            (None, _) => {
                if let Some(who) = meeting.waiting().filter(|_| waited > timeout) {
                    failure = Some(ExecError::NoMeeting { timeout: Nanos(timeout.as_nanos() as i64).to_string(), who });
                    break;
                }
            }
        }
    }
    let complete = drivers.iter().all(Option::is_some) && failure.is_none();
    if !complete {
        // What there is of others is ended, and waits for nothing.
        meeting.fail();
        parallel::side_by_side(drivers.iter_mut().flatten(), |driver| driver.abandon());
        let silent = told.iter().position(|told| !told).unwrap_or(0) as u32;
        let died = ExecError::Died { rank: silent, why: "its thread ended while it prepared itself".to_owned() };
        return Err(failure.filter(|error| !matches!(error, ExecError::Ended)).unwrap_or(died));
    }
    Ok(drivers.into_iter().flatten().collect())
}

/// Held by a rank that prepares itself: when it goes, also by a panic, the others hear of it.
struct Alive(Arc<IdExchange>);

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}
