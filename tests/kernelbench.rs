//! KernelBench's problems: each is a program without a warning whose result has the shape of KernelBench's own module, and each
//! computes on the CPU in a small size. `benches/h200/kernelbench.py` compares the results with PyTorch's.

use std::collections::BTreeSet;

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::config::{Level, Problem, Profile};
use aorta::exec::LaunchMode;
use aorta::model::Program;
use aorta::schedule;

use crate::common::{self, doubles, effort, parallel, shipped};
use crate::hip;

/// Problems whose result is zero whatever their input: what a clamp leaves of numbers below it, and a number less its own mean.
const ZERO: [(u32, u32); 2] = [(2, 80), (2, 83)];

/// One in so many problems is compared with its kernels on the double, unless `AORTA_LONG` asks for all.
const EACH: usize = 25;

fn problems() -> Vec<(u32, Problem)> {
    let level = |number| Level::of(number).unwrap_or_else(|error| panic!("{error}"));
    let of_level = |number| level(number).problems.into_iter().map(move |problem| (number, problem));
    (1..=Level::COUNT).flat_map(of_level).collect()
}

/// The file of a problem.
fn file(problem: &Problem) -> String {
    format!("workloads/{}.aorta", problem.file())
}

fn pairs<'a>(params: impl IntoIterator<Item = (&'a String, &'a String)>) -> Vec<(&'a str, &'a str)> {
    params.into_iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// The sizes of a buffer.
fn dims(program: &Program, name: &str) -> Vec<u64> {
    let named = |memory: &&aorta::model::Memory| program.names.name(memory.name) == name;
    let memory = program.memories.iter().find(named).unwrap_or_else(|| panic!("there is a buffer {name}"));
    program.shapes.get(memory.shape).1.to_vec()
}

#[test]
fn results_have_the_shapes_of_kernelbench() {
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let due: Vec<(u32, Problem)> = effort::due(problems()).collect();
    parallel::map(&due, |(level, problem)| {
        let params = pairs(problem.set.iter().chain(&problem.sizes));
        let (program, plan) = shipped::at(&file(problem)).program(None, &params);
        assert_eq!(dims(&program, "y"), problem.output, "level {level}, {}", problem.name);
        common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    });
}

#[test]
fn each_problem_computes_on_the_cpu() {
    let due: Vec<(u32, Problem)> = effort::due(problems()).collect();
    let zero = parallel::map(&due, |(level, problem)| {
        let what = format!("level {level}, {}", problem.name);
        let (program, plan) = shipped::at(&file(problem)).program(Some("tiny"), &pairs(&problem.set));
        let contents = common::written(&program, &plan, &Host, None, LaunchMode::Stream, 1);
        let y = contents.iter().find(|memory| memory.name == "y").unwrap_or_else(|| panic!("{what} writes y"));
        let values: Vec<f64> =
            y.bytes.chunks_exact(y.dtype.size() as usize).map(|element| y.dtype.load(element)).collect();
        assert!(values.iter().all(|value| value.is_finite()), "{what}: {values:?}");
        values.iter().all(|value| *value == 0.0).then(|| (*level, problem.number()))
    });
    let expected: BTreeSet<(u32, u32)> =
        due.iter().map(|(level, problem)| (*level, problem.number())).filter(|which| ZERO.contains(which)).collect();
    assert_eq!(zero.into_iter().flatten().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn kernels_of_problems_agree_with_the_cpu() {
    let Some(libraries) = doubles::cpu() else { return };
    let each = if effort::is_long() { 1 } else { EACH };
    let chosen: Vec<(u32, Problem)> = problems().into_iter().step_by(each).collect();
    parallel::map(&chosen, |(level, problem)| {
        let set: Vec<String> = problem.set.iter().map(|(name, value)| format!("--set={name}={value}")).collect();
        let path = file(problem);
        let mut arguments = [&[path.as_str(), "--preset", "tiny"], &doubles::RESULTS_ONLY[..]].concat();
        arguments.extend(set.iter().map(String::as_str));
        let output = hip::run_with(libraries, &[], &arguments);
        assert_eq!(output.code, Some(0), "level {level}, {}: {}", problem.name, output.printed);
    });
}
