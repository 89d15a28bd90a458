//! `aorta bundle` and `aorta unbundle`: one text with a scenario and every file that it needs, and a folder of it.

use std::path::{Component, Path, PathBuf};

use clap::Args;
use indexmap::IndexMap;

use crate::base::{counted, visible};
use crate::config::{Bundle, BundledFile, BundledPlan, PROJECT_FILE, Project, Scenario};
use crate::measure::RunRecord;
use crate::report::dump;
use crate::schedule::Topology;
use crate::syntax::LANGUAGE;

use super::exec::{self, ExecArgs};
use super::forwarded_options::exec_args;
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::load::{self, FileKind, Loaded};
use crate::cli::inputs::{container, library, project};
use crate::cli::io::files::folder_of;
use crate::cli::io::output;
use crate::cli::{CliResult, ConfigArgs, DONE, backends};

/// Largest size of a part, in bytes.
const MAX_PART: u64 = 1 << 22;

/// Folder of shipped workloads in a bundle.
const LIBRARY: &str = "library";

/// Name of the record in a bundle.
const RECORD: &str = "record.json";

#[derive(Debug, Args)]
pub struct BundleArgs {
    /// A scenario (`.ron`), a workload, or the record of a run (`.json`)
    file: String,
    /// The bundle to write; the name of FILE with `.aortab` by default
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Add the record of a run of FILE, for `aorta compare` and `aorta report`
    #[arg(long, value_name = "RECORD")]
    record: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, Args)]
pub struct UnbundleArgs {
    /// A bundle (`.aortab`), or a record with its text (`.json`)
    file: PathBuf,
    /// The folder to write, which must be new or empty; the name of FILE without its extension by default
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

pub fn bundle(args: BundleArgs) -> CliResult {
    let path = match &args.output {
        Some(path) if container::is_bundle(&path.display().to_string()) => path.clone(),
        Some(path) => {
            let help = "write `-o moe.aortab`";
            let why = "the name of a bundle ends in `.aortab`";
            return Err(InputError::bad_value("`--output`", &path.display().to_string(), why, help).into());
        }
        None => Path::new(Path::new(&args.file).file_name().unwrap_or_default()).with_extension(container::BUNDLE),
    };
    output::check_file(&path)?;
    // The record whose text is bundled belongs to it.
    let own = || Some(PathBuf::from(&args.file)).filter(|_| args.file.ends_with(".json"));
    let record = args.record.clone().or_else(own).map(|path| Ok::<_, InputError>((container::record(&path)?, path)));
    let bundle = gather(&args, record.transpose()?)?;
    let held_record = bundle.record.is_none() && path.is_file() && container::record(&path).is_ok();
    output::write_file(&path, bundle.to_text().as_bytes())?;
    let path = path.display();
    if held_record {
        output::eprint(&format!("Replaced {path}, which held a record; add `--record RECORD` to keep one.\n"));
    }
    let (parts, plan) = (counted(bundle.parts.len(), "file"), bundle.plan.as_ref().map_or("", |plan| &plan.hash[..12]));
    output::print(&format!(
        "Wrote {path}: {parts}, plan {plan}. `aorta show {path}` lists them, `aorta exec {path}` runs it.\n"
    ));
    Ok(DONE)
}

/// The files of a bundle while they are collected: contents by path.
#[derive(Default)]
struct CollectedFiles {
    files: IndexMap<PathBuf, Vec<u8>>,
}

impl CollectedFiles {
    fn add(&mut self, path: &Path, bytes: Vec<u8>) -> Result<PathBuf, InputError> {
        let unreadable = |why: String| InputError::unreadable(path, why, None);
        if bytes.len() as u64 > MAX_PART {
            return Err(unreadable(format!("a bundle holds files of at most {MAX_PART} bytes")));
        }
        let place = container::location(path).map_err(unreadable)?;
        self.files.insert(place.clone(), bytes);
        Ok(place)
    }
}

/// Collects everything that a file needs.
fn gather(args: &BundleArgs, record: Option<(RunRecord, PathBuf)>) -> Result<Bundle, CliError> {
    let file = project::resolve(&args.file)?;
    let config = args.config.config.iter().map(|pair| format!("--config={pair}"));
    let words: Vec<String> = [file.clone(), "--backend=sim".to_owned()].into_iter().chain(config).collect();
    let exec = exec_args(&words).map_err(|mistake| mistake.of("the file", &file))?;
    let (settled, settings) = exec::resolve_args(ExecArgs { config: args.config.clone(), ..exec })?;
    let scenario = settled.scenario.as_deref().cloned();
    let loaded = exec::compile(&settled, &settings)?;
    exec::check_scenario(&file, &settled, &loaded)?;
    let profile = backends::profile_for(&settings, &settled.env)?;
    let schedules = loaded.compiled.schedules(Topology::of(&profile));
    let hash = dump::plan_hash(&loaded.compiled.ranks, &schedules);

    let mut collected = CollectedFiles::default();
    let workload = workload(&settled.file, &loaded, &mut collected)?;
    let mut runs = workload.clone();
    // A module beside the workload's folder needs a project as well.
    let mut needs_project = loaded.files.project().is_some();
    let mut highest = None;
    if let Some(scenario) = &scenario {
        let path = Path::new(&file);
        let text = load::read(path, FileKind::Scenario)?;
        needs_project |= is_by_name(path, &text, scenario)?;
        let climbs = named_files(&Scenario::parse(&file, &text)?).map(parent_folders).max().unwrap_or(0);
        runs = collected.add(path, text.into_bytes())?;
        highest = runs.parent().and_then(|folder| folder.ancestors().nth(climbs)).map(Path::to_owned);
        for (kind, file) in [
            (FileKind::Profile, &scenario.profile),
            (FileKind::Topology, &scenario.topology),
            (FileKind::Expected, &scenario.expected),
        ] {
            if let Some(file) = file.as_ref().filter(|file| file.ends_with(".ron")) {
                let text = load::read(Path::new(file), kind)?;
                collected.add(Path::new(file), text.into_bytes())?;
            }
        }
    }
    // The author's project describes the files, whichever folders the bundle needs.
    let project = needs_project.then(|| described(&settled.file)).transpose()?;
    let mut parts = parts(collected, &workload, &mut runs, highest, project);
    let record = match record {
        Some((record, path)) => {
            check_record((&record, &path), &file, &settled, &loaded)?;
            Some(recorded(record, &mut parts))
        }
        None => None,
    };
    parts.sort_unstable_keys();
    let bundle = Bundle {
        aorta: env!("CARGO_PKG_VERSION").to_owned(),
        language: LANGUAGE,
        runs: runs.display().to_string(),
        plan: Some(BundledPlan { hash, device: profile.name }),
        licence: scenario.and_then(|scenario| scenario.licence),
        record,
        parts,
        is_header_changed: false,
    };
    let why = bundle.check();
    why.map_err(|why| InputError::unreadable(file, format!("it cannot be bundled: {why}"), None))?;
    Ok(bundle)
}

/// Adds a workload with the files that it uses, and returns its place. A shipped workload gets one in a folder of its
/// own beside everything else.
fn workload(file: &str, loaded: &Loaded, collected: &mut CollectedFiles) -> Result<PathBuf, InputError> {
    let is_shipped = loaded.origin == load::LIBRARY;
    let folder = match is_shipped {
        true => PathBuf::from(LIBRARY),
        false => {
            container::location(Path::new(file)).map_err(|why| InputError::unreadable(file, why, None))?;
            loaded.files.folder.clone()
        }
    };
    for (name, bytes) in &loaded.files.parts {
        collected.files.insert(folder.join(name), bytes.to_vec());
    }
    for (name, data) in &loaded.files.data {
        let unreadable = |why: String| InputError::unreadable(name, why, None);
        if data.bytes > MAX_PART {
            return Err(unreadable(format!("a bundle holds files of at most {MAX_PART} bytes")));
        }
        let mut bytes = vec![0; data.bytes as usize];
        (data.read)(&data.path, 0, &mut bytes).map_err(unreadable)?;
        collected.files.insert(folder.join(name), bytes);
    }
    Ok(folder.join(&loaded.files.workload))
}

/// The paths and names in a scenario that mean files.
fn named_files(scenario: &Scenario) -> impl Iterator<Item = &str> {
    let others = [&scenario.profile, &scenario.topology, &scenario.expected];
    others.into_iter().flatten().map(String::as_str).chain([scenario.workload.as_str()])
}

/// Number of parent folders to which a relative path climbs: 1 for `../nets/net.aorta`.
fn parent_folders(path: &str) -> usize {
    let (mut depth, mut lowest) = (0i64, 0i64);
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
        lowest = lowest.min(depth);
    }
    lowest.unsigned_abs() as usize
}

/// True if a scenario names its workload without a path, so that a bundle needs a project with a library.
fn is_by_name(path: &Path, text: &str, read: &Scenario) -> Result<bool, CliError> {
    let written = Scenario::parse(&path.display().to_string(), text)?.workload;
    let folder = path.parent().unwrap_or(Path::new(""));
    let found = Path::new(&read.workload);
    if library::find(&written).is_some() && written == read.workload {
        return Ok(true);
    }
    let same = |other: &Path| container::location(other).ok() == container::location(found).ok();
    if same(&folder.join(&written)) {
        return Ok(false);
    }
    let by_name = project::find(&written, folder_of(path))?;
    match by_name.is_some_and(|file| same(&file)) {
        true => Ok(true),
        false => Err(InputError::bad_value(
            &format!("`workload` of {}", path.display()),
            &written,
            "the path begins in the folder of this command, which no bundle has",
            "name the workload by a path that begins in the scenario's folder",
        )
        .into()),
    }
}

/// The parts of a bundle: paths relative to the nearest common parent of all files and of `highest`, the highest folder
/// that the scenario's paths pass through. `runs` becomes the name of its part. `project`, if they need one, gets the
/// workload's folder as its library.
fn parts(
    collected: CollectedFiles,
    workload: &Path,
    runs: &mut PathBuf,
    highest: Option<PathBuf>,
    project: Option<Project>,
) -> IndexMap<String, BundledFile> {
    let is_shipped = workload.starts_with(LIBRARY);
    let own = collected.files.keys().filter(|path| !(is_shipped && path.starts_with(LIBRARY)));
    let folders = own.filter_map(|path| path.parent().map(Path::to_owned)).chain(highest);
    let root = folders.reduce(|a, b| common(&a, &b));
    let root = root.unwrap_or_else(|| workload.parent().map(Path::to_owned).unwrap_or_default());
    let below = |path: &Path| path.strip_prefix(&root).unwrap_or(path).to_owned();
    *runs = below(runs);
    let name = |path: &Path| container::normal(&below(path)).unwrap_or_default();
    let mut parts: IndexMap<String, BundledFile> =
        collected.files.iter().map(|(path, bytes)| (name(path), BundledFile::new(bytes.clone()))).collect();
    if let Some(project) = project {
        let library = vec![below(workload).parent().and_then(container::normal).unwrap_or_default()];
        let text = Project { library, ..project }.to_ron();
        parts.insert(PROJECT_FILE.to_owned(), BundledFile::new(text.into_bytes()));
    }
    parts
}

/// The project of a workload, without its library; the default without one.
fn described(file: &str) -> Result<Project, InputError> {
    let project = project::read(folder_of(Path::new(file)))?.unwrap_or_default();
    Ok(Project { library: Vec::new(), ..project })
}

/// The folder that two have in common.
fn common(a: &Path, b: &Path) -> PathBuf {
    a.components().zip(b.components()).take_while(|(a, b)| a == b).map(|(part, _)| part).collect()
}

/// Fails unless a record is of the program that is bundled: of its text, its parameters, and everything else that decides what
/// runs. `file` is the file that is bundled.
fn check_record(
    (record, path): (&RunRecord, &Path),
    file: &str,
    args: &ExecArgs,
    loaded: &Loaded,
) -> Result<(), InputError> {
    let workload = loaded.workload();
    let bad = |why: &str, help: &str| InputError::bad_value("`--record`", &path.display().to_string(), why, help);
    if record.workload.sha256 != workload.sha256 {
        let stem = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        let why = match stem(&record.workload.name) == stem(&workload.name) {
            true => format!("the text of {} has changed since that run", workload.name),
            false => format!("it is a run of {}, and {file} runs {}", record.workload.name, workload.name),
        };
        return Err(bad(&why, &format!("run what is bundled: `aorta exec {file} --json PATH`")));
    }
    let shown = |value: Option<String>| value.unwrap_or_else(|| "absent".to_owned());
    let param =
        |name: &String| (name.clone(), record.workload.params.get(name).cloned(), workload.params.get(name).cloned());
    let mut compared: Vec<(String, Option<String>, Option<String>)> = workload.params.keys().map(param).collect();
    let fused = |is: bool| Some(is.to_string());
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    compared.push(("streams".to_owned(), number(record.settings.streams), number(loaded.compiled.max_streams)));
    compared.push(("fuse".to_owned(), fused(record.fusion.is_some()), fused(args.workload.fuse)));
    if args.emulate.is_some() || record.emulated.is_some() {
        compared.push(("emulate".to_owned(), number(record.emulated), number(args.emulate)));
    } else if args.ranks.is_some() {
        compared.push(("ranks".to_owned(), Some(record.settings.ranks.to_string()), number(args.ranks)));
    }
    let differs = compared.into_iter().filter(|(_, a, b)| a != b);
    let differs: Vec<String> =
        differs.map(|(name, a, b)| format!("`{name}` is {} there and {} in {file}", shown(a), shown(b))).collect();
    let help =
        format!("run what is bundled: `aorta exec {file} --json PATH`; or bundle the record, with its own values");
    if differs.is_empty() { Ok(()) } else { Err(bad(&differs.join(", "), &help)) }
}

/// Adds the record of a run. Returns the part's name.
fn recorded(record: RunRecord, parts: &mut IndexMap<String, BundledFile>) -> String {
    let record = RunRecord { source: None, ..record };
    parts.insert(RECORD.to_owned(), BundledFile::new(visible::visible(&record.to_json()).as_bytes().to_vec()));
    RECORD.to_owned()
}

pub fn unbundle(args: UnbundleArgs) -> CliResult {
    let bundle = container::unchecked(&args.file)?;
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from(args.file.file_stem().unwrap_or_default()));
    let is_free = match std::fs::read_dir(&folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound && folder.symlink_metadata().is_err(),
    };
    if !is_free {
        let help = "name a new folder: `-o FOLDER`";
        return Err(InputError::unwritable(folder, "there is something already", Some(help)).into());
    }
    for name in bundle.changed() {
        output::eprint(&format!("`{name}` was changed after it was bundled.\n"));
    }
    if bundle.is_header_changed {
        output::eprint("The header or the names of the files were changed after they were bundled.\n");
    }
    for (name, part) in &bundle.parts {
        let path = folder.join(name);
        output::make_folder(path.parent().unwrap_or(&folder))?;
        output::write_file(&path, &part.bytes)?;
    }
    let (parts, folder) = (counted(bundle.parts.len(), "file"), folder.display());
    let record = bundle.record.as_ref().map(|record| format!(" --record {folder}/{record}")).unwrap_or_default();
    let runs = &bundle.runs;
    output::print(&format!(
        "Wrote {parts} to {folder}. `aorta exec {folder}/{runs}` runs it, `aorta bundle {folder}/{runs}{record}` bundles it again.\n"
    ));
    Ok(DONE)
}

/// Describes a bundle or the files in a record, for a user who decides whether to run it.
pub fn describe(file: &str) -> Result<String, CliError> {
    let bundle = container::unchecked(Path::new(file))?;
    let mut rows = vec![("runs", bundle.runs.clone())];
    rows.push(("written by", format!("aorta {}, language {}", bundle.aorta, bundle.language)));
    rows.extend(bundle.licence.iter().map(|licence| ("licence", licence.clone())));
    rows.extend(bundle.plan.iter().map(|plan| ("plan", format!("{} on {}", plan.hash, plan.device))));
    rows.extend(bundle.record.iter().map(|record| ("record", record.clone())));
    if bundle.is_header_changed {
        rows.push(("changed", "these lines or the names of the files, after they were bundled".to_owned()));
    }
    let lines = rows.iter().map(|(name, value)| format!("  {name:10}  {}\n", visible::one_line(value)));
    let mut text = format!("{file}\n{}\nFiles\n", lines.collect::<String>());
    let width = bundle.parts.keys().map(|name| name.len()).max().unwrap_or(0);
    for (name, part) in &bundle.parts {
        let changed = if part.is_changed() { "  changed after it was bundled" } else { "" };
        text += &format!(
            "  {name:width$}  {:>7} bytes  {}{changed}\n",
            part.bytes.len(),
            &part.sha256.get(..12).unwrap_or_default()
        );
    }
    Ok(text)
}
