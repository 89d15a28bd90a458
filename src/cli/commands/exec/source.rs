//! The files of a run, with a scenario that repeats it, for its record.

use std::path::Path;

use super::args::ExecArgs;
use crate::cli::inputs::load::{self, FileKind, Loaded};
use crate::config::{PROJECT_FILE, Scenario, Settings, is_allowed_variable};
use crate::measure::record::SourceFiles;

/// Name of the scenario that repeats a run.
const SCENARIO: &str = "run.ron";

/// The files of a run that `args` and `settings` describe.
pub(super) fn of(args: &ExecArgs, settings: &Settings, loaded: &Loaded) -> SourceFiles {
    let mut parts: Vec<(String, Vec<u8>)> =
        loaded.files.parts.iter().map(|(name, bytes)| (name.clone(), bytes.to_vec())).collect();
    let mut scenario = scenario(args, settings, loaded);
    // Files that the scenario names move beside it.
    let named = [
        ("profile.ron", FileKind::Profile, &mut scenario.profile),
        ("topology.ron", FileKind::Topology, &mut scenario.topology),
        ("expected.ron", FileKind::Expected, &mut scenario.expected),
    ];
    for (name, kind, file) in named {
        let Some(path) = file.as_mut().filter(|path| path.ends_with(".ron")) else { continue };
        // The run has read the file, so it can only be missing if it was removed since; the record then lacks it.
        let text = load::read(Path::new(&*path), kind);
        parts.extend(text.ok().map(|text| (name.to_owned(), text.into_bytes())));
        *path = name.to_owned();
    }
    parts.extend(loaded.files.project().map(|text| (PROJECT_FILE.to_owned(), text.into_bytes())));
    parts.insert(0, (SCENARIO.to_owned(), scenario.to_ron().into_bytes()));
    SourceFiles::new(SCENARIO, parts.iter().map(|(name, bytes)| (name.clone(), bytes.as_slice())))
}

/// The scenario with the values of the arguments and the settings. The index of the device is left out, since it
/// identifies another device on another machine.
fn scenario(args: &ExecArgs, settings: &Settings, loaded: &Loaded) -> Scenario {
    let pair = |pair: &String| pair.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.to_owned()));
    let given = args.scenario.as_deref().cloned().unwrap_or_default();
    let world = loaded.compiled.ranks.len() as u32;
    let mut changed = settings.changed();
    let mut take = |name: &str| {
        let at = changed.iter().position(|(changed, _)| *changed == name)?;
        Some(changed.remove(at).1)
    };
    let (profile, topology) = (take("profile"), take("topology"));
    let allowed = |(name, value): &(String, String)| is_allowed_variable(name, value);
    Scenario {
        workload: loaded.files.workload.clone(),
        preset: args.workload.preset.clone(),
        params: args.workload.set.iter().filter_map(pair).collect(),
        streams: args.workload.streams,
        sync: args.workload.sync,
        cycle: args.workload.cycle,
        fuse: args.workload.fuse,
        environment: args.env.iter().filter_map(pair).filter(allowed).collect(),
        backend: args.backend,
        profile,
        topology,
        ranks: Some(world).filter(|_| args.emulate.is_none() && (world > 1 || loaded.compiled.may_communicate())),
        emulate: args.emulate,
        rank: args.emulate.map(|_| args.rank),
        verify: args.verify,
        settings: changed.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        expected: args.expected.path().map(str::to_owned),
        description: given.description,
        authors: given.authors,
        licence: given.licence,
        limits: given.limits,
        ..Scenario::default()
    }
}
