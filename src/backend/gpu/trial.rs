//! Times the candidates of a vendor's library and the generated kernels that compute the same, to use the fastest.

use std::time::{Duration, Instant};

use crate::base::Nanos;
use crate::exec::ExecError;

use super::api::{Api, Call};
use super::products::Chooser;
use super::runtime::Stream;

/// Time after which no further candidate is timed, provided that some candidate or the kernels have run.
const TRIAL_BUDGET: Duration = Duration::from_secs(3);

/// Time spent on candidates that were not timed because they are far slower; after it, no further candidate is tried.
const SLOW_BUDGET: Duration = Duration::from_millis(700);

/// A candidate is not timed if one run takes more than this multiple of the fastest time so far, plus [`HOST_TIME`]. Some
/// engines of libraries issue thousands of launches, whose capture takes seconds.
const MAX_RATIO: u32 = 4;

/// Time that the host may take to issue one run and to wait for it, besides the run itself.
const HOST_TIME: Duration = Duration::from_millis(1);

/// An operation that a library or generated kernels can compute.
pub struct Trial<'a, C> {
    /// Description of the operation for notes.
    pub what: String,
    /// Name of the library for notes.
    pub library: &'a str,
    /// The library's term for a candidate, for notes, such as `engine`.
    pub term: &'static str,
    /// Lanes that have the operation; it is timed on all of them concurrently.
    pub lanes: Vec<u32>,
    /// Number of floating-point operations of one run on one lane.
    pub flops: f64,
    /// Issues one run on a stream, by a candidate, or by the kernels if it is `None`. The number is the index in
    /// `lanes` of the lane whose operands are used.
    pub issue: &'a dyn Fn(Option<&C>, usize, Stream) -> Call,
}

/// The result of a trial.
pub struct TrialResult<C> {
    /// The fastest candidate; `None` if the kernels are faster or no candidate runs.
    pub candidate: Option<C>,
    /// The measured time; `None` if nothing was timed.
    pub time: Option<Nanos>,
    /// Note on the choice for the record.
    pub note: String,
}

impl<A: Api> Chooser<'_, A> {
    /// Runs a candidate once. The first run may load code, which is not allowed during a capture.
    pub fn runs<C>(&self, trial: &Trial<C>, candidate: &C) -> Call {
        (trial.issue)(Some(candidate), 0, self.streams[trial.lanes[0] as usize])?;
        self.api.synchronize()
    }

    /// Returns the time for the host of one run of a candidate, after an untimed run, which may load code.
    fn once<C>(&self, trial: &Trial<C>, candidate: &C) -> Call<Duration> {
        self.runs(trial, candidate)?;
        let began = Instant::now();
        self.runs(trial, candidate)?;
        Ok(began.elapsed())
    }

    /// Returns the fastest of the candidates and the kernels. A candidate that fails is skipped; an error if the
    /// kernels fail too.
    ///
    /// If a setting permits one candidate only, takes the first candidate that runs, without timing it.
    pub fn fastest<C>(&self, trial: &Trial<C>, candidates: Vec<C>) -> Result<TrialResult<C>, ExecError> {
        let Trial { what, library, term, lanes, flops, issue } = trial;
        let count = candidates.len();
        if count == 0 {
            let note = format!("{what}: kernels of aorta, since {library} has no {term}");
            return Ok(TrialResult { candidate: None, time: None, note });
        }
        if self.candidates == 1 {
            let candidate = candidates.into_iter().find(|candidate| self.runs(trial, candidate).is_ok());
            let by = match candidate {
                Some(_) => format!("the first {term} of {library} that runs, not timed"),
                None => format!("kernels of aorta, since no {term} of {library} runs"),
            };
            return Ok(TrialResult { candidate, time: None, note: format!("{what}: {by}") });
        }
        let time = |by: Option<&C>| self.time_lanes(lanes, *flops, &|number, stream| issue(by, number, stream));
        let (began, mut wasted) = (Instant::now(), Duration::ZERO);
        let own = time(None);
        let mut best: Option<(Nanos, usize, C)> = None;
        for (place, candidate) in candidates.into_iter().enumerate() {
            let least = best.iter().map(|&(least, ..)| least).chain(own.as_ref().ok().copied()).min();
            if least.is_some() && (began.elapsed() > TRIAL_BUDGET || wasted > SLOW_BUDGET) {
                break;
            }
            let limit = least.map(|least| MAX_RATIO * least.duration() + HOST_TIME);
            let Ok(once) = self.once(trial, &candidate) else { continue };
            if limit.is_some_and(|limit| once > limit) {
                wasted += 2 * once;
                continue;
            }
            if let Ok(time) = time(Some(&candidate))
                && best.as_ref().is_none_or(|(least, ..)| time < *least)
            {
                best = Some((time, place, candidate));
            }
        }
        let (candidate, time, by) = match (own, best) {
            (Ok(own), Some((time, place, candidate))) if time < own => {
                let by = format!("{term} {} of {count} of {library}, {time}; kernels of aorta {own}", place + 1);
                (Some(candidate), time, by)
            }
            (Ok(own), Some((time, ..))) => {
                (None, own, format!("kernels of aorta, {own}; the best of {count} of {library} {time}"))
            }
            (Ok(own), None) => {
                (None, own, format!("kernels of aorta, {own}; each of {count} of {library} fails or takes far longer"))
            }
            (Err(_), Some((time, place, candidate))) => {
                (Some(candidate), time, format!("{term} {} of {count} of {library}, {time}", place + 1))
            }
            (Err(fault), None) => return Err(ExecError::Device { fault: fault.to_string(), help: None }),
        };
        Ok(TrialResult { candidate, time: Some(time), note: format!("{what}: {by}") })
    }
}
