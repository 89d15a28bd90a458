//! Times and scores in the form of KernelBench's scripts: files of baselines, results of evaluations, and `fast_p`, the share of
//! problems that are solved correctly and more than p times as fast as the baseline.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

use crate::base::json;
use crate::config::problem_number;

use crate::measure::record::times::Times;

/// The statistics of a problem, in ms with three significant digits, as KernelBench rounds them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProblemTimes {
    pub mean: f64,
    /// Population standard deviation: the sum of squares is divided by the number of trials.
    pub std: f64,
    pub min: f64,
    pub max: f64,
    pub num_trials: usize,
    /// The device's name.
    pub hardware: String,
    /// `NVIDIA` or `AMD`; `None` if the vendor is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// PyTorch's name of the device, such as `cuda:0`, which AMD's have too.
    pub device: String,
}

/// Three significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

impl ProblemTimes {
    /// The statistics of a run; `None` without samples. `device` is PyTorch's name.
    pub fn of(times: &Times, hardware: &str, gpu_type: Option<&str>, device: &str) -> Option<ProblemTimes> {
        let ms = |nanos: crate::base::Nanos| rounded(nanos.0 as f64 / 1e6);
        let count = times.n as f64;
        let std = times.std_ns.map_or(0.0, |std| std.0 as f64 * ((count - 1.0) / count).sqrt());
        Some(ProblemTimes {
            mean: ms(times.mean_ns?),
            std: rounded(std / 1e6),
            min: ms(times.min_ns?),
            max: ms(times.max_ns?),
            num_trials: times.n,
            hardware: hardware.to_owned(),
            gpu_type: gpu_type.map(str::to_owned),
            device: device.to_owned(),
        })
    }
}

/// The times of all problems of a mode: by level, such as `level1`, then by the problem's name.
pub type Timings = IndexMap<String, IndexMap<String, ProblemTimes>>;

/// The result of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProblemOutcome {
    /// The mean time in ms, above 0, of a correct result.
    Time(f64),
    /// Correct, without a time.
    Untimed,
    /// Not compiled, or not correct.
    Wrong,
}

/// A side of a comparison: results by level and by the problem's number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BaselineResults {
    pub levels: BTreeMap<u32, BTreeMap<u32, (String, ProblemOutcome)>>,
    /// Every device that the file names.
    pub hardware: Vec<String>,
    /// Entries that hold an error instead of times.
    pub errors: usize,
}

const FORM: &str = "expected {\"level1\": {\"19_ReLU.py\": {\"mean\": 1.5}}}, or results of an evaluation, \
                    {\"19\": [{\"sample_id\": 0, \"correctness\": true, \"runtime\": 1.5}]}";

impl BaselineResults {
    /// Reads a file of baselines, or `eval_results.json` of an evaluation, which does not name its level.
    ///
    /// # Errors
    ///
    /// The text is no JSON, or has another form; the message names the place.
    pub fn read(text: &[u8], level: Option<u32>) -> Result<BaselineResults, String> {
        let value: Value = json::read(text).map_err(|error| format!("it is no JSON: {}", json::fault(&error)))?;
        let Value::Object(entries) = value else { return Err(format!("it is {}; {FORM}", kind(&value))) };
        if entries.is_empty() {
            return Err(format!("it is empty; {FORM}"));
        }
        let levels = entries.keys().filter(|key| level_number(key).is_some()).count();
        if levels == entries.len() {
            return BaselineResults::baseline(&entries);
        }
        let numbers = entries.keys().filter(|key| key.parse::<u32>().is_ok()).count();
        if numbers == entries.len() {
            let level = level.ok_or("it holds an evaluation, which does not say of which level; add `--level 1`")?;
            return BaselineResults::evaluation(&entries, level);
        }
        let odd = entries.keys().find(|key| level_number(key).is_none() && key.parse::<u32>().is_err());
        let odd = odd.or_else(|| entries.keys().next()).expect("it is not empty");
        Err(format!("it has the entry {odd:?}, which is neither a level nor the number of a problem; {FORM}"))
    }

    fn baseline(levels: &serde_json::Map<String, Value>) -> Result<BaselineResults, String> {
        let mut results = BaselineResults::default();
        for (key, problems) in levels {
            let number = level_number(key).expect("the caller has checked it");
            let Value::Object(problems) = problems else {
                return Err(format!("{key} is {}; {FORM}", kind(problems)));
            };
            let level = results.levels.entry(number).or_default();
            for (name, entry) in problems {
                let place = format!("{key}, {name}");
                let Value::Object(entry) = entry else {
                    return Err(format!("{place}: it is {}, not the statistics of a problem", kind(entry)));
                };
                if entry.contains_key("error") && !entry.contains_key("mean") {
                    results.errors += 1;
                    continue;
                }
                let Some(problem) = problem_number(name) else {
                    return Err(format!("{place}: a problem's name begins with its number, as in 19_ReLU.py"));
                };
                let mean = time(entry.get("mean"), &format!("{place}, mean"))?;
                if let Some(Value::String(hardware)) = entry.get("hardware")
                    && !results.hardware.contains(hardware)
                {
                    results.hardware.push(hardware.clone());
                }
                if let Some((other, _)) = level.insert(problem, (name.clone(), ProblemOutcome::Time(mean))) {
                    return Err(format!("{place}: {other} has the same number"));
                }
            }
        }
        Ok(results)
    }

    /// Reads the first sample of each problem, as KernelBench's own analysis does.
    fn evaluation(problems: &serde_json::Map<String, Value>, level: u32) -> Result<BaselineResults, String> {
        let mut results = BaselineResults::default();
        let of_level = results.levels.entry(level).or_default();
        for (key, samples) in problems {
            let problem = key.parse().expect("the caller has checked it");
            // Earlier versions have one result in place of a list.
            let samples = match samples {
                Value::Array(samples) => samples.as_slice(),
                other => std::slice::from_ref(other),
            };
            let mut first = None;
            for sample in samples {
                let Value::Object(sample) = sample else {
                    return Err(format!("problem {key}: a sample is {}, not a result", kind(sample)));
                };
                if sample.get("sample_id").is_some_and(|id| id.as_u64() != Some(0)) {
                    continue;
                }
                if first.replace(sample).is_some() {
                    return Err(format!("problem {key}: two samples have the `sample_id` 0"));
                }
            }
            let Some(sample) = first else { continue };
            let correct = match sample.get("correctness") {
                Some(Value::Bool(correct)) => *correct,
                other => {
                    let found = other.map_or("absent", kind);
                    return Err(format!("problem {key}, correctness: it is {found}, expected true or false"));
                }
            };
            let outcome = match (correct, sample.get("runtime")) {
                (false, _) => ProblemOutcome::Wrong,
                // KernelBench writes -1 where it has not measured.
                (true, None | Some(Value::Null)) => ProblemOutcome::Untimed,
                (true, Some(Value::Number(runtime))) if runtime.as_f64().is_some_and(|runtime| runtime <= 0.0) => {
                    ProblemOutcome::Untimed
                }
                (true, runtime) => ProblemOutcome::Time(time(runtime, &format!("problem {key}, runtime"))?),
            };
            if of_level.insert(problem, (format!("problem {problem}"), outcome)).is_some() {
                return Err(format!("problem {problem} is there twice"));
            }
        }
        Ok(results)
    }
}

/// A time in ms: a finite number above 0.
fn time(value: Option<&Value>, place: &str) -> Result<f64, String> {
    let number = value.and_then(Value::as_f64).filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| {
        let found = value.map_or("absent".to_owned(), |value| match value {
            Value::Number(number) => number.to_string(),
            other => kind(other).to_owned(),
        });
        format!("{place}: it is {found}, expected a time in ms above 0")
    })
}

/// The number in `level1`; `None` for another text.
fn level_number(key: &str) -> Option<u32> {
    key.strip_prefix("level")?.parse().ok()
}

/// Describes the type of a JSON value, such as `a number`.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A problem of the baseline beside its result.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredProblem {
    /// The baseline's name of the problem.
    pub name: String,
    /// Mean time of the baseline in ms.
    pub baseline: f64,
    /// Result of the problem; `None` if the results lack it.
    pub outcome: Option<ProblemOutcome>,
}

impl ScoredProblem {
    /// The baseline's time over that of a correct result; `None` without a time.
    pub fn speedup(&self) -> Option<f64> {
        match self.outcome {
            Some(ProblemOutcome::Time(time)) => Some(self.baseline / time),
            _ => None,
        }
    }
}

/// The scores of a level.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    pub level: u32,
    /// Every problem of the baseline, by number.
    pub problems: Vec<ScoredProblem>,
    /// Results of problems that the baseline lacks, which count nowhere.
    pub without_baseline: usize,
}

impl Scores {
    /// The scores of every level of the baseline that the results have too.
    pub fn of(baseline: &BaselineResults, results: &BaselineResults) -> Vec<Scores> {
        let mut scores = Vec::new();
        for (&level, base) in &baseline.levels {
            let Some(of_level) = results.levels.get(&level) else { continue };
            let mut problems = Vec::new();
            for (number, (name, outcome)) in base {
                // An evaluation with times can serve as a baseline.
                let ProblemOutcome::Time(baseline) = *outcome else { continue };
                let outcome = of_level.get(number).map(|(_, outcome)| *outcome);
                problems.push(ScoredProblem { name: name.clone(), baseline, outcome });
            }
            let without_baseline = of_level.keys().filter(|number| !base.contains_key(number)).count();
            scores.push(Scores { level, problems, without_baseline });
        }
        scores
    }

    /// The share of all problems whose result is correct and more than `p` times as fast as the baseline; 0 without problems.
    pub fn fast(&self, p: f64) -> f64 {
        let fast = self.problems.iter().filter(|problem| problem.speedup().is_some_and(|speedup| speedup > p));
        fast.count() as f64 / self.problems.len().max(1) as f64
    }

    /// Geometric mean of the speed-ups of correct results; `None` if there is none.
    pub fn geometric_mean(&self) -> Option<f64> {
        let logs: Vec<f64> = self.problems.iter().filter_map(ScoredProblem::speedup).map(f64::ln).collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn baseline(times: &[f64]) -> Value {
        let problems: serde_json::Map<String, Value> =
            (1..).zip(times).map(|(number, time)| (format!("{number}_x.py"), json!({ "mean": time }))).collect();
        json!({ "level1": problems })
    }

    fn read(value: &Value) -> Result<BaselineResults, String> {
        BaselineResults::read(value.to_string().as_bytes(), Some(1))
    }

    proptest! {
        /// The scores match the definition, whether the results are an evaluation or another baseline.
        #[test]
        fn scores_are_those_of_the_definition(
            drawn in prop::collection::vec((0.001f64..100.0, 0.001f64..100.0, any::<bool>(), any::<bool>()), 1..20),
        ) {
            let times: Vec<f64> = drawn.iter().map(|(base, ..)| *base).collect();
            let base = read(&baseline(&times)).unwrap();
            let samples: serde_json::Map<String, Value> = (1..)
                .zip(&drawn)
                .filter(|(_, (.., present))| *present)
                .map(|(number, (_, time, correct, _))| {
                    let other = json!({ "sample_id": 1, "correctness": true, "runtime": 1e-9 });
                    let first = json!({ "sample_id": 0, "correctness": correct, "runtime": time });
                    (number.to_string(), json!([other, first]))
                })
                .collect();
            prop_assume!(!samples.is_empty());
            let scores = &Scores::of(&base, &read(&Value::Object(samples)).unwrap())[0];
            let correct: Vec<f64> = drawn.iter().filter(|(_, _, correct, present)| *correct && *present).map(|(base, time, ..)| base / time).collect();
            for p in [0.0, 0.5, 1.0, 2.0] {
                let fast = correct.iter().filter(|speedup| **speedup > p).count() as f64 / drawn.len() as f64;
                prop_assert_eq!(scores.fast(p), fast);
            }
            let product = correct.iter().product::<f64>().powf(1.0 / correct.len() as f64);
            match scores.geometric_mean() {
                Some(mean) => prop_assert!((mean / product - 1.0).abs() < 1e-9),
                None => prop_assert!(correct.is_empty()),
            }
            // A baseline is exactly as fast as itself, so it is never faster.
            let own = &Scores::of(&base, &base)[0];
            prop_assert_eq!((own.fast(0.0), own.fast(1.0)), (1.0, 0.0));
        }

        /// No text makes the reader panic, and every refusal has a reason.
        #[test]
        fn any_json_is_read_or_refused(text in r#"[\[\]{}":,0-9a-z\-. ]{0,40}"#, level in prop::option::of(1u32..3)) {
            if let Err(why) = BaselineResults::read(text.as_bytes(), level) {
                prop_assert!(!why.is_empty());
            }
        }

        /// If one value of a valid file changes, the file is read, or refused with the place of the value.
        #[test]
        fn a_changed_value_is_refused_with_its_place(which in 0usize..8) {
            let values = [json!(null), json!(-1.0), json!(0), json!("1.5"), json!([]), json!({}), json!(true), json!(1e308)];
            let file = json!({ "level1": { "1_x.py": { "mean": values[which], "std": "?" } } });
            match read(&file) {
                Ok(_) => prop_assert_eq!(which, 7),
                Err(why) => prop_assert!(why.contains("level1, 1_x.py, mean"), "{}", why),
            }
        }
    }

    #[test]
    fn mistakes_say_where_and_what_is_expected() {
        let why = |text: &str, level| BaselineResults::read(text.as_bytes(), level).unwrap_err();
        for (text, part) in [
            ("", "it is no JSON"),
            ("[1]", "it is a list"),
            ("{}", "it is empty"),
            (r#"{"level1": 3}"#, "level1 is a number"),
            (r#"{"level1": {"1_x.py": 3}}"#, "level1, 1_x.py: it is a number"),
            (r#"{"level1": {"x.py": {"mean": 1}}}"#, "begins with its number"),
            (r#"{"level1": {"1_x.py": {"mean": 1}, "1_y.py": {"mean": 1}}}"#, "the same number"),
            (r#"{"level1": {}, "other": {}}"#, "the entry \"other\""),
            (r#"{"1": [{"sample_id": 0, "correctness": 1}]}"#, "expected true or false"),
            (r#"{"1": [{"sample_id": 0, "correctness": true, "runtime": "1"}]}"#, "problem 1, runtime: it is a text"),
            (r#"{"1": [{"sample_id": 0, "correctness": true}, {"sample_id": 0, "correctness": true}]}"#, "two samples"),
            (r#"{"1": [3]}"#, "a sample is a number"),
        ] {
            assert!(why(text, Some(1)).contains(part), "{text}: {}", why(text, Some(1)));
        }
        assert!(why(r#"{"1": []}"#, None).contains("--level"));
        assert!(why(&"[".repeat(100_000), None).contains("no JSON"));
    }

    #[test]
    fn outcomes_without_a_time_count_as_not_fast() {
        let base = read(&baseline(&[1.0, 1.0, 1.0, 1.0])).unwrap();
        let found = json!({
            "1": [{ "sample_id": 0, "correctness": true, "runtime": -1.0 }],
            "2": [{ "sample_id": 0, "correctness": false, "runtime": 0.1 }],
            "3": { "sample_id": 0, "correctness": true, "runtime": 0.5 },
            "9": [{ "sample_id": 0, "correctness": true, "runtime": 0.1 }],
        });
        let scores = &Scores::of(&base, &read(&found).unwrap())[0];
        assert_eq!((scores.fast(0.0), scores.fast(1.0), scores.fast(2.0)), (0.25, 0.25, 0.0));
        assert_eq!((scores.geometric_mean(), scores.without_baseline), (Some(2.0), 1));
    }

    #[test]
    fn statistics_are_rounded_as_by_kernelbench() {
        let samples = [1_234_567, 1_334_567].map(crate::base::Nanos);
        let times = ProblemTimes::of(&Times::of(&samples), "GPU", Some("AMD"), "cuda:0").unwrap();
        let of = |value: f64| value.to_string();
        assert_eq!([times.mean, times.std, times.min, times.max].map(of), ["1.28", "0.05", "1.23", "1.33"]);
        assert_eq!(ProblemTimes::of(&Times::default(), "GPU", None, "cpu"), None);
    }
}
