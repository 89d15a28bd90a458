//! Times the candidates of a vendor's library, and the generated kernels and matrix products that compute the same, to use the fastest.

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

/// A way to compute a convolution or attention; `C` is a candidate of the vendor's library.
#[derive(Clone, Copy)]
pub enum Way<C> {
    Kernels,
    Products,
    Candidate(C),
}

/// An operation that a library or generated kernels can compute.
pub struct Trial<'a, C> {
    /// Description of the operation for notes.
    pub what: String,
    /// Name of the library for notes; empty without a library.
    pub library: &'a str,
    /// The library's term for a candidate, for notes, such as `engine`.
    pub term: &'static str,
    /// Lanes that have the operation; it is timed on all of them concurrently.
    pub lanes: Vec<u32>,
    /// Number of floating-point operations of one run on one lane.
    pub flops: f64,
    /// Whether matrix products can compute the operation.
    pub has_products: bool,
    /// Issues one run on a stream. The number is the index in `lanes` of the lane whose operands are used.
    pub issue: &'a dyn Fn(Way<&C>, usize, Stream) -> Call,
}

/// The result of a trial.
pub struct TrialResult<C> {
    /// The fastest way; the kernels if nothing else runs.
    pub way: Way<C>,
    /// The measured time; `None` if nothing was timed.
    pub time: Option<Nanos>,
    /// Note on the choice for the record.
    pub note: String,
}

impl<A: Api> Chooser<'_, A> {
    /// Runs a candidate once. The first run may load code, which is not allowed during a capture.
    pub fn runs<C>(&self, trial: &Trial<C>, candidate: &C) -> Call {
        (trial.issue)(Way::Candidate(candidate), 0, self.streams[trial.lanes[0] as usize])?;
        self.api.synchronize()
    }

    /// Returns the time for the host of one run of a candidate, after an untimed run, which may load code.
    fn once<C>(&self, trial: &Trial<C>, candidate: &C) -> Call<Duration> {
        self.runs(trial, candidate)?;
        let began = Instant::now();
        self.runs(trial, candidate)?;
        Ok(began.elapsed())
    }

    /// Returns the fastest of the candidates, the kernels and the matrix products. Skips ways that fail, and returns an error only if
    /// all fail.
    ///
    /// If a setting permits one candidate only, takes the first candidate that runs, without timing it, and no matrix products.
    pub fn fastest<C>(&self, trial: &Trial<C>, candidates: Vec<C>) -> Result<TrialResult<C>, ExecError> {
        let Trial { what, library, term, lanes, flops, has_products, issue } = trial;
        let count = candidates.len();
        if self.candidates == 1 || (count == 0 && !has_products) {
            let candidate = candidates.into_iter().find(|candidate| self.runs(trial, candidate).is_ok());
            let by = match candidate {
                Some(_) => format!("the first {term} of {library} that runs, not timed"),
                None if count == 0 => format!("kernels of aorta, since {library} has no {term}"),
                None => format!("kernels of aorta, since no {term} of {library} runs"),
            };
            let way = candidate.map_or(Way::Kernels, Way::Candidate);
            return Ok(TrialResult { way, time: None, note: format!("{what}: {by}") });
        }
        let time = |by: Way<&C>| self.time_lanes(lanes, *flops, &|number, stream| issue(by, number, stream));
        let (began, mut wasted) = (Instant::now(), Duration::ZERO);
        let own = time(Way::Kernels);
        let products = if *has_products { time(Way::Products).ok() } else { None };
        let mut best: Option<(Nanos, usize, C)> = None;
        for (place, candidate) in candidates.into_iter().enumerate() {
            let least = best.iter().map(|&(least, ..)| least).chain(own.as_ref().ok().copied()).chain(products).min();
            if least.is_some() && (began.elapsed() > TRIAL_BUDGET || wasted > SLOW_BUDGET) {
                break;
            }
            let limit = least.map(|least| MAX_RATIO * least.duration() + HOST_TIME);
            let Ok(once) = self.once(trial, &candidate) else { continue };
            if limit.is_some_and(|limit| once > limit) {
                wasted += 2 * once;
                continue;
            }
            if let Ok(time) = time(Way::Candidate(&candidate))
                && best.as_ref().is_none_or(|(least, ..)| time < *least)
            {
                best = Some((time, place, candidate));
            }
        }
        let failed = best.is_none() && count > 0;
        // The time of each way, and its names in notes: as the chosen way and as another one.
        let mut ways: Vec<(Nanos, [String; 2], Way<C>)> = Vec::new();
        let both = |name: &str| [name.to_owned(), name.to_owned()];
        ways.extend(own.as_ref().ok().map(|&time| (time, both("kernels of aorta"), Way::Kernels)));
        ways.extend(products.map(|time| (time, both("matrix products"), Way::Products)));
        ways.extend(best.map(|(time, place, candidate)| {
            let chosen = format!("{term} {} of {count} of {library}", place + 1);
            (time, [chosen, format!("the best of {count} of {library}")], Way::Candidate(candidate))
        }));
        ways.sort_by_key(|(time, ..)| *time);
        let mut ways = ways.into_iter();
        let Some((time, [chosen, _], way)) = ways.next() else {
            let fault = own.err().map_or_else(|| format!("nothing computes {what}"), |fault| fault.to_string());
            return Err(ExecError::Device { fault, help: None });
        };
        let mut note = format!("{what}: {chosen}, {time}");
        for (time, [_, other], _) in ways {
            note += &format!("; {other} {time}");
        }
        if failed {
            note += &format!("; each of {count} of {library} fails or takes far longer");
        }
        Ok(TrialResult { way, time: Some(time), note })
    }
}
