//! Helpers that several test files share.

#![allow(dead_code, reason = "the tests that are programs of their own use a part")]

pub mod altered;
pub mod calls;
pub mod constructs;
pub mod doubles;
pub mod draws;
pub mod effort;
pub mod failing;
pub mod folder;
pub mod invariants;
pub mod kernels;
pub mod mock;
pub mod oracle;
pub mod parallel;
pub mod programs;
pub mod records;
pub mod reparsed;
pub mod shipped;
pub mod world;
pub mod worlds;

use std::sync::Arc;

use aorta::base::{MemoryId, SourceMap};
use aorta::compile::{self, CompileError, Compiled};
use aorta::model::{self, AnalysisOptions, MemoryKind, Program};
use aorta::plan::{self, Plan, RankPlan};
use aorta::render::{self, Style};
use aorta::syntax::{self, SyntaxLimits};
use proptest::test_runner::Config as ProptestConfig;

/// The program: where it was built, or beside this test if both were copied to another machine.
pub fn program() -> std::path::PathBuf {
    let built = std::path::PathBuf::from(env!("CARGO_BIN_EXE_aorta"));
    let own = std::env::current_exe().expect("a test is a program");
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("aorta"));
    std::iter::once(built).chain(beside).find(|path| path.is_file()).expect("the program was built with its tests")
}

/// Configuration of a property that CI checks for so many random inputs. A failing input is not kept in a file.
pub fn properties(cases: u32) -> ProptestConfig {
    ProptestConfig { cases: effort::due_draws(cases), failure_persistence: None, ..ProptestConfig::default() }
}

/// Analyzes a text, or returns its diagnostics as text.
pub fn analyze_with(text: &str, options: &AnalysisOptions) -> Result<Program, String> {
    let mut sources = SourceMap::new();
    let base = sources.add("test.aorta", text).expect("a test is small");
    let (ast, errors) = syntax::parse(text, base, &SyntaxLimits::default());
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| render::text(error, &sources, Style::default())).collect());
    }
    model::analyze(&ast, options)
        .map_err(|errors| errors.iter().map(|error| render::text(error, &sources, Style::default())).collect())
}

/// An error of a run of a text, as a user sees it.
pub fn shown(text: &str, error: &ExecError) -> String {
    let mut sources = SourceMap::new();
    sources.add("test.aorta", text).expect("a test is small");
    render::text(error, &sources, Style::default())
}

pub fn analyze(text: &str) -> Result<Program, String> {
    analyze_with(text, &AnalysisOptions::default())
}

/// Compiles a text, or returns its diagnostics as text.
pub fn compile(name: &str, text: &str, options: &compile::CompileOptions) -> Result<Compiled, String> {
    aorta::compile(name, text, options).map_err(|error| match error {
        CompileError::Mistakes(mistakes) => {
            let shown =
                |one: &compile::BoxedDiagnostic| render::text(one.as_ref(), &mistakes.sources, Style::default());
            mistakes.all.iter().map(shown).collect()
        }
        error => error.to_string(),
    })
}

/// The program and plan of the only rank.
pub fn take_rank(mut compiled: Compiled) -> (Program, Plan) {
    assert_eq!(compiled.ranks.len(), 1);
    let RankPlan { program, plan } = compiled.ranks.remove(0);
    Arc::into_inner(program).zip(Arc::into_inner(plan)).expect("no other rank shares them")
}

/// The program and plan of a valid text.
pub fn planned(text: &str) -> (Program, Plan) {
    let compiled = compile("test.aorta", text, &compile::CompileOptions::default());
    take_rank(compiled.unwrap_or_else(|errors| panic!("{errors}")))
}

/// The programs and plans of all ranks of a world. Does not check that ranks match.
pub fn planned_ranks(text: &str, world: u32) -> Vec<(Program, Plan)> {
    let program = |rank| {
        let options = AnalysisOptions { rank, world, ..AnalysisOptions::default() };
        analyze_with(text, &options).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
    };
    let mut programs: Vec<Program> = (0..world).map(program).collect();
    model::link(&mut programs).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
    let planned = |program| {
        let plan = plan::build(&program).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
        (program, plan)
    };
    programs.into_iter().map(planned).collect()
}

use aorta::exec::{self, Backend, Control, ExecError, LaunchMode, Session};
use aorta::schedule::{self, Schedule};

/// AnalysisOptions that fit every test.
pub fn exec_options() -> exec::SessionOptions {
    exec::SessionOptions {
        in_flight: 2,
        timeout: aorta::base::Nanos(20_000_000_000),
        gemm_candidates: 1,
        keep_algorithms: false,
        observed_operations: 100_000,
        observe: aorta::config::ObserveSetting::Auto,
        gate_depth: 512,
        cold: false,
        contents: aorta::config::DataSetting::Normal,
    }
}

/// Schedules a program for a backend.
pub fn placed(program: &Program, plan: &Plan, backend: &dyn Backend, options: &schedule::ScheduleOptions) -> Schedule {
    schedule::place(program, plan, backend.topology(), options)
}

/// Opens a session on a backend.
pub fn session(program: &Program, plan: &Plan, schedule: &Schedule, backend: &dyn Backend) -> Session {
    exec::prepare(exec::RankSchedule::new(program, plan, schedule), backend, &exec_options())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The contents of every written memory after some iterations.
pub fn results(
    program: &Program,
    plan: &Plan,
    backend: &dyn Backend,
    streams: Option<u32>,
    mode: LaunchMode,
    iterations: u64,
) -> Vec<Vec<u8>> {
    let options = schedule::ScheduleOptions { streams, share_scratch: false };
    let schedule = placed(program, plan, backend, &options);
    let mut session = session(program, plan, &schedule, backend);
    if mode == LaunchMode::Graph {
        session.capture().unwrap_or_else(|error| panic!("{error}"));
    }
    session.iterate(mode, 0, iterations, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let buffers = (0..program.memories.len()).map(aorta::base::MemoryId::from);
    let buffers = buffers.filter(|&id| program.memory(id).kind != aorta::model::MemoryKind::Scratch);
    buffers.filter_map(|memory| session.read(memory).unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// A memory that the program writes, after some iterations.
#[derive(Debug, PartialEq)]
pub struct Contents {
    pub name: String,
    pub dtype: aorta::base::DType,
    pub bytes: Vec<u8>,
}

/// The contents of every written memory after some iterations, including scratch, which does not share addresses here.
pub fn written(
    program: &Program,
    plan: &Plan,
    backend: &dyn Backend,
    streams: Option<u32>,
    mode: LaunchMode,
    iterations: u64,
) -> Vec<Contents> {
    let options = schedule::ScheduleOptions { streams, share_scratch: false };
    let schedule = placed(program, plan, backend, &options);
    let mut session = session(program, plan, &schedule, backend);
    session.capture().unwrap_or_else(|error| panic!("{error}"));
    session.iterate(mode, 0, iterations, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    let steps = program.cycle.iter();
    let views = steps.flat_map(|step| step.ids().flat_map(|op| step.outputs(op).iter().copied()));
    let memories: std::collections::BTreeSet<_> = views.map(|view| program.views.memory(view)).collect();
    memories
        .into_iter()
        .map(|memory| {
            let info = program.memory(memory);
            let bytes = session.read(memory).unwrap_or_else(|error| panic!("{error}"));
            Contents {
                name: program.names.name(info.name).to_owned(),
                dtype: program.shapes.get(info.shape).0,
                bytes: bytes.expect("the backend has memory"),
            }
        })
        .collect()
}

/// The elements of a memory of a session of the CPU.
pub fn elements(session: &mut Session, program: &Program, memory: MemoryId) -> Vec<f64> {
    let dtype = program.layout(memory).dtype;
    let bytes = session.read(memory).unwrap_or_else(|error| panic!("{error}")).expect("the CPU has memory");
    bytes.chunks_exact(dtype.size() as usize).map(|element| dtype.load(element)).collect()
}

/// The elements of the buffer of that name, of a session of the CPU.
pub fn buffer(session: &mut Session, program: &Program, name: &str) -> Vec<f64> {
    let named = |&id: &MemoryId| {
        let memory = program.memory(id);
        matches!(memory.kind, MemoryKind::Buffer(_)) && program.names.name(memory.name) == name
    };
    let memory = (0..program.memories.len()).map(MemoryId::from).find(named);
    elements(session, program, memory.unwrap_or_else(|| panic!("the file has a buffer {name}")))
}
