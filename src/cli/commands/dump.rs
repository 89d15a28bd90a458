//! `aorta dump`: prints a compilation stage as plain text.

use clap::{Args, ValueEnum};

use crate::backend::sim::Sim;
use crate::compile::RankCount;
use crate::config::Profile;
use crate::exec::{self, Backend, Control, LaunchMode, Observation, Trace};
use crate::report::dump;
use crate::schedule::Topology;
use crate::syntax;

use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::load;
use crate::cli::io::{diagnostics, output};
use crate::cli::{CliResult, ConfigArgs, DONE, WorkloadArgs, backends};

#[derive(Debug, Args)]
pub struct DumpArgs {
    /// The stage to print
    stage: DumpStage,
    /// The file, or the name of a shipped workload
    file: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Compilation stages, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DumpStage {
    /// The text as a tree
    Ast,
    /// The evaluated program: streams, memories, operations with their slices
    Model,
    /// Dependencies between operations
    Plan,
    /// Real streams, the order of launches, events, memory layout
    Schedule,
    /// One simulated iteration, operation by operation, as streams and as a graph
    Trace,
}

pub fn run(args: DumpArgs) -> CliResult {
    let (settled, settings) = super::exec::target(&args.file, &args.workload, &args.config)?;
    let text = load::find(&settled.file, &settings)?;
    // A file whose names or types are wrong still has a tree.
    if args.stage == DumpStage::Ast {
        let parsed = load::parse(&text, &settings)?;
        output::print(&syntax::tree(&parsed.ast));
        return diagnostics::syntax_errors(parsed).map(|()| DONE);
    }
    let loaded = load::load(&text, &settled.workload, &settings, RankCount::Exactly(1))?;
    let program = loaded.compiled.program();
    let profile = backends::profile(&settings)?;
    let compiled = &loaded.compiled;
    let place = |profile: &Profile| compiled.place(&compiled.ranks[0], Topology::of(profile));
    let dumped = match args.stage {
        DumpStage::Ast | DumpStage::Model => dump::model(program),
        DumpStage::Plan => dump::plan(program, loaded.compiled.plan()),
        DumpStage::Schedule => dump::schedule(program, &place(&profile)),
        DumpStage::Trace => {
            let schedule = place(&profile);
            let backend = Sim::new(profile);
            let traces = traces(&loaded, &schedule, &backend, &exec::SessionOptions::of(&settings))?;
            let [streams, graph] = &traces;
            dump::trace(program, &schedule, &backend.device().name, streams, graph)
        }
    };
    output::print(&dumped);
    Ok(DONE)
}

/// Simulates one iteration as streams and as a graph.
fn traces(
    loaded: &load::Loaded,
    schedule: &crate::schedule::Schedule,
    backend: &Sim,
    options: &exec::SessionOptions,
) -> Result<[Trace; 2], CliError> {
    let failed = |error| CliError::Exec { error, sources: loaded.compiled.sources.clone() };
    let own = &loaded.compiled.ranks[0];
    let rank = exec::RankSchedule::new(&own.program, &own.plan, schedule);
    let mut session = exec::prepare(rank, backend, options).map_err(failed)?;
    session.capture().map_err(failed)?;
    let mut observe = |mode| {
        let observation = Observation::once(mode, loaded.compiled.program().cycle.len());
        let traces = session.observe(observation, &Control::default()).map_err(failed)?;
        let most = options.observed_operations;
        traces.into_iter().next().ok_or_else(|| CliError::from(InputError::TooManyToObserve { most }))
    };
    Ok([observe(LaunchMode::Stream)?, observe(LaunchMode::Graph)?])
}
