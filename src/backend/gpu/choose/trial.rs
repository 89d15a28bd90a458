//! Times the candidates of a vendor's library, and the ways without the library that compute the same, to use the fastest.

use std::time::{Duration, Instant};

use crate::backend::gpu::api::runtime::Stream;
use crate::backend::gpu::api::{Api, Call};
use crate::base::Nanos;
use crate::exec::ExecError;

use super::final_choice::{self, NEAR};
use super::products::Chooser;

/// Time after which no further candidate is timed, provided that some candidate or another way has run.
const TRIAL_BUDGET: Duration = Duration::from_secs(3);

/// Maximum time for candidates that turn out to be too slow to be timed. Once it is spent, no further candidate is
/// tried.
const SLOW_BUDGET: Duration = Duration::from_millis(700);

/// A candidate is not timed if one run takes more than this multiple of the fastest time so far, plus [`HOST_TIME`]. Some
/// engines of libraries issue thousands of launches, whose capture takes seconds.
const MAX_RATIO: u32 = 4;

/// Time that the host may take to issue one run and to wait for it, besides the run itself.
const HOST_TIME: Duration = Duration::from_millis(1);

/// A way to compute an operation; `C` is a candidate of the vendor's library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way<C> {
    /// Kernels or matrix products, by their number among the ways without the library.
    Own(usize),
    Candidate(C),
}

/// An operation that can be computed in several ways.
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
    /// Names of the ways without the library, for notes. The first one is used if nothing is timed.
    pub own: &'a [String],
    /// Issues one run on a stream. The number is the index in `lanes` of the lane whose operands are used.
    pub issue: &'a dyn Fn(Way<&C>, usize, Stream) -> Call,
}

/// The result of a trial.
pub struct TrialResult<C> {
    /// The fastest way.
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

    /// Returns the fastest of the candidates and the ways without the library. Skips ways that fail, and returns an error only if all
    /// fail.
    ///
    /// If a setting permits one candidate only, takes the first candidate that runs, without timing it, or the first other way.
    pub fn fastest<C>(&self, trial: &Trial<C>, candidates: Vec<C>) -> Result<TrialResult<C>, ExecError> {
        let Trial { what, library, term, lanes, flops, own, issue } = trial;
        let count = candidates.len();
        if self.candidates == 1 || (count == 0 && own.len() == 1) {
            let candidate = candidates.into_iter().find(|candidate| self.runs(trial, candidate).is_ok());
            let by = match candidate {
                Some(_) => format!("the first {term} of {library} that runs, not timed"),
                None if count == 0 => format!("{}, since {library} has no {term}", own[0]),
                None => format!("{}, since no {term} of {library} runs", own[0]),
            };
            let way = candidate.map_or(Way::Own(0), Way::Candidate);
            return Ok(TrialResult { way, time: None, note: format!("{what}: {by}") });
        }
        let time = |by: Way<&C>| self.time_lanes(lanes, *flops, &|number, stream| issue(by, number, stream));
        let (began, mut wasted) = (Instant::now(), Duration::ZERO);
        let mut failure = None;
        // Each way with its first time. Candidates far slower than others are dropped, since they hold memory.
        let mut timed: Vec<(Nanos, Entrant<C>)> = Vec::new();
        for number in 0..own.len() {
            match time(Way::Own(number)) {
                Ok(time) => timed.push((time, Entrant { place: number, way: Way::Own(number) })),
                Err(fault) => failure = failure.or(Some(fault)),
            }
        }
        let mut fails = count > 0;
        for (place, candidate) in candidates.into_iter().enumerate() {
            let least = timed.iter().map(|(time, _)| *time).min();
            if least.is_some() && (began.elapsed() > TRIAL_BUDGET || wasted > SLOW_BUDGET) {
                break;
            }
            let limit = least.map(|least| MAX_RATIO * least.duration() + HOST_TIME);
            let Ok(once) = self.once(trial, &candidate) else { continue };
            if limit.is_some_and(|limit| once > limit) {
                wasted += 2 * once;
                continue;
            }
            if let Ok(time) = time(Way::Candidate(&candidate)) {
                fails = false;
                timed.push((time, Entrant { place, way: Way::Candidate(candidate) }));
                let best = timed.iter().filter(|(_, entrant)| entrant.is_candidate()).map(|(time, _)| *time).min();
                let limit = NEAR * best.map_or(0.0, |best| best.0 as f64);
                timed.retain(|(time, entrant)| !entrant.is_candidate() || time.0 as f64 <= limit);
            }
        }
        let first = timed.iter().enumerate().map(|(index, (time, _))| (index, *time)).collect();
        let finals = self.time_again(lanes, first, &|index, number, stream| {
            let by = match &timed[index].1.way {
                Way::Own(number) => Way::Own(*number),
                Way::Candidate(candidate) => Way::Candidate(candidate),
            };
            issue(by, number, stream)
        });
        let Some((chosen, least)) = final_choice::best(&finals) else {
            let fault = failure.map_or_else(|| format!("nothing computes {what}"), |fault| fault.to_string());
            return Err(ExecError::Device { fault, help: None });
        };
        let time_of = |index: usize| {
            let again = finals.iter().find(|(number, _)| *number == index);
            again.map_or(timed[index].0, |(_, time)| *time)
        };
        let name = |entrant: &Entrant<C>| match entrant.way {
            Way::Own(number) => own[number].clone(),
            Way::Candidate(_) => format!("{term} {} of {count} of {library}", entrant.place + 1),
        };
        let mut note = format!("{what}: {}, {least}", name(&timed[chosen].1));
        // The other ways without the library, and the best candidate unless one is chosen.
        let others = (0..timed.len()).filter(|&index| index != chosen);
        let (candidates, mut others): (Vec<usize>, Vec<usize>) =
            others.partition(|&index| timed[index].1.is_candidate());
        let best = candidates.into_iter().min_by_key(|&index| time_of(index));
        others.extend(best.filter(|_| !timed[chosen].1.is_candidate()));
        others.sort_by_key(|&index| time_of(index));
        for index in others {
            let name = match &timed[index].1 {
                entrant if entrant.is_candidate() => format!("the best of {count} of {library}"),
                entrant => name(entrant),
            };
            note += &format!("; {name} {}", time_of(index));
        }
        if fails {
            note += &format!("; each of {count} of {library} fails or takes far longer");
        }
        let way = timed.swap_remove(chosen).1.way;
        Ok(TrialResult { way, time: Some(least), note })
    }
}

/// A way of a trial.
struct Entrant<C> {
    /// Number of the way among the candidates, or among the ways without the library.
    place: usize,
    way: Way<C>,
}

impl<C> Entrant<C> {
    fn is_candidate(&self) -> bool {
        matches!(self.way, Way::Candidate(_))
    }
}
