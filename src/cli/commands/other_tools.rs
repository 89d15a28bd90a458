//! Commands, options and values of other tools, and what to type here.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::base::{shell, suggest};
use crate::config::Settings;
use crate::measure::cases::NAMED_OPTIONS;
use crate::syntax;

use super::sweep;
use crate::cli::Cli;
use crate::cli::inputs::{library, load};
use crate::cli::numbers::whole_number;

/// Commands of other tools, with the command here that does the same.
const OTHER_COMMANDS: [(&[&str], &str); 10] = [
    (&["run", "execute", "start", "launch", "bench", "benchmark", "measure", "time"], "exec FILE"),
    (&["sim", "simulate"], "exec FILE --backend sim"),
    (&["verify", "test"], "exec FILE --verify"),
    (&["validate", "lint", "build", "compile"], "check FILE"),
    (&["diff"], "compare RECORD.json NEW.json"),
    (&["format"], "fmt FILE"),
    (&["graph", "dag", "deps"], "plan FILE"),
    (&["trace", "timeline", "open"], "view RECORD.json"),
    (&["ls", "workloads"], "list"),
    (&["version"], "--version"),
];

/// Options of other tools, without their dashes, with the option here that does the same. A word in capitals is the value.
const OTHER_OPTIONS: [(&[&str], &str); 15] = [
    (
        &[
            "iters",
            "iter",
            "num-iters",
            "niters",
            "n-iters",
            "repeat",
            "repeats",
            "reps",
            "runs",
            "trials",
            "steps",
            "n",
            "i",
        ],
        "--iterations N",
    ),
    (&["warmups", "warmup-iters", "warmup-iterations", "num-warmup", "w"], "--warmup N"),
    (&["gpu", "gpu-id", "device-id", "cuda-device", "dev", "d"], "--device N"),
    (
        &[
            "gpus",
            "ngpus",
            "num-gpus",
            "n-gpus",
            "nproc",
            "nproc-per-node",
            "np",
            "world-size",
            "nranks",
            "num-ranks",
            "ntasks",
            "processes",
            "ngpu",
            "g",
        ],
        "--ranks N",
    ),
    (&["graph", "graphs", "cuda-graph", "cuda-graphs", "use-cuda-graph", "hip-graph", "cudagraph"], "--launch graph"),
    (&["no-graph", "eager", "no-cuda-graph"], "--launch stream"),
    (&["sim", "simulate", "simulator"], "--backend sim"),
    (&["cpu", "host"], "--backend host"),
    (&["cuda", "nvidia"], "--backend cuda"),
    (&["hip", "rocm", "amd"], "--backend hip"),
    (&["param", "parameter", "var", "define", "arg", "D", "p"], "--set NAME=VALUE"),
    (&["validate", "check", "correctness", "compare", "c"], "--verify"),
    (&["out", "outfile", "output-file", "log", "save", "export", "o"], "--json PATH"),
    // Commands whose only output is a page.
    (&["html"], "--output PATH"),
    (&["stream", "nstreams", "num-streams", "n-streams", "queues"], "--streams N"),
];

/// Options of other tools that no single option replaces, and what to do.
const OTHER_WAYS: [(&[&str], &str); 5] = [
    (
        &["profile", "nsys", "ncu", "rocprof"],
        "`--config profile=NAME` names the simulated device, such as `h200`, `mi300x` or a file of yours; \
         `aorta profile --with nsys FILE` runs a workload under a profiler",
    ),
    (
        &["dry-run", "plan"],
        "`aorta check FILE` checks without running, `aorta plan FILE` shows what would wait for what",
    ),
    (&["quiet", "silent", "q"], "`> /dev/null` drops what is printed; progress is shown on a terminal only"),
    (&["minbytes", "maxbytes", "stepfactor", "stepbytes", "b", "e", "f"], SIZES),
    (&["seed"], "the seed of random data is part of the file: `buffer x: f32[1024] = random(1)`"),
];

const SIZES: &str = "sizes are parameters of the file, which `aorta show FILE` lists; `aorta sweep FILE --set NAME=1KiB,1MiB` runs several";

/// Options that write a file, with the usual name of the file.
const FILES: [(&str, &str); 4] =
    [("--json", "run.json"), ("--csv", "run.csv"), ("--html", "run.html"), ("--trace", "trace.json")];

/// Number of values up to which a range is written as a list.
const MAX_LISTED: u64 = 16;

/// The tip for a command line that cannot be parsed; `None` if nothing better than the message is known. `words` are all words
/// of the command line, the name of the program first.
pub(in crate::cli) fn tip(error: &clap::Error, words: &[String]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    if error.kind() == ErrorKind::InvalidSubcommand {
        return command(context(ContextKind::InvalidSubcommand), words);
    }
    let (argument, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    if error.kind() == ErrorKind::UnknownArgument && !argument.starts_with('-') {
        return stray(argument, words);
    }
    if error.kind() == ErrorKind::UnknownArgument && argument.parse::<f64>().is_ok() {
        return negative(argument, words);
    }
    let argument = argument.split([' ', '=']).next()?;
    match error.kind() {
        ErrorKind::UnknownArgument => option(argument, words),
        ErrorKind::InvalidValue if value.is_empty() => {
            let (_, file) = FILES.iter().find(|(option, _)| *option == argument)?;
            Some(format!("it names the file to write: `{argument} {file}`"))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            as_sweep(argument, value, words).or_else(|| instead(argument, value))
        }
        _ => None,
    }
}

/// The tip for an unknown command: the command here that does the same, or `aorta exec` before the name of a workload.
fn command(word: &str, words: &[String]) -> Option<String> {
    let at = words.iter().position(|typed| typed == word)?;
    let behind = &words[at + 1..];
    let Some((_, command)) = OTHER_COMMANDS.iter().find(|(others, _)| others.contains(&word.to_lowercase().as_str()))
    else {
        let with_ending = format!("{word}.aorta");
        let workload = match Path::new(word).is_file() || library::find(word).is_some() {
            true => word,
            false => Some(with_ending.as_str()).filter(|file| Path::new(file).is_file())?,
        };
        return Some(format!(
            "a command comes before the file: `{}`",
            shell::command(["aorta", "exec", workload].into_iter().chain(behind.iter().map(String::as_str)))
        ));
    };
    let typed: Vec<&str> = command
        .split(' ')
        .flat_map(|part| match part {
            "FILE" => behind.iter().map(String::as_str).collect(),
            part => vec![part],
        })
        .collect();
    let complete = std::iter::once("aorta").chain(typed);
    let command = match Cli::try_parse_from(complete.clone()) {
        Ok(_) => shell::command(complete),
        Err(_) => format!("aorta {command}"),
    };
    Some(format!("did you mean `{command}`?"))
}

/// The tip for an unknown option.
fn option(argument: &str, words: &[String]) -> Option<String> {
    let is_short = !argument.starts_with("--");
    // clap reports `-n` for `-np`.
    let at = words.iter().position(|word| match is_short {
        true => word.starts_with(argument) && !word.starts_with("--"),
        false => word == argument || word.strip_prefix(argument).is_some_and(|rest| rest.starts_with('=')),
    })?;
    let (typed, joined) =
        words[at].split_once('=').map_or((words[at].as_str(), None), |(name, value)| (name, Some(value)));
    let name = typed.trim_start_matches('-').replace('_', "-");
    let following = words.get(at + 1).map(String::as_str).filter(|word| !word.starts_with('-'));
    let value = joined.or(following);
    let (command, file) = command_and_file(words)?;
    if let (Some(value), Some(file)) = (value, file.as_deref())
        && !is_short
        && let Some(param) = parameter(file, typed.trim_start_matches('-'))
    {
        return Some(format!(
            "`{param}` is a parameter of the file: `{}`",
            shell::command(["--set", &format!("{param}={value}")])
        ));
    }
    let known = |option: &str| command.get_arguments().any(|arg| arg.get_long() == option.strip_prefix("--"));
    if let Some((_, instead)) = OTHER_OPTIONS.iter().find(|(others, _)| others.contains(&name.as_str())) {
        let (option, placeholder) = instead.split_once(' ').unwrap_or((instead, ""));
        // A word in small letters is itself the value.
        let is_value = !placeholder.is_empty() && placeholder.chars().all(|c| !c.is_ascii_lowercase());
        let fits = |value: &&str| placeholder != "N" || value.parse::<u64>().is_ok();
        let typed = match value.filter(|_| is_value).filter(fits) {
            Some(value) => shell::command([option, value]),
            None => (*instead).to_owned(),
        };
        if known(option) {
            return Some(format!("did you mean `{typed}`?"));
        }
    }
    let other_way =
        OTHER_WAYS.iter().find(|(others, _)| others.contains(&name.as_str())).map(|(_, way)| (*way).to_owned());
    other_way.or_else(|| value_of(&command, &name)).or_else(|| of_another_command(&name))
}

/// The tip for a value in the place of its option, such as `--markdown`; `None` if no option of the command has it, or several do.
fn value_of(command: &clap::Command, name: &str) -> Option<String> {
    let has = |arg: &&clap::Arg| arg.get_possible_values().iter().any(|value| value.get_name() == name);
    let mut options =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).filter(has).filter_map(clap::Arg::get_long);
    let option = options.next().filter(|_| options.next().is_none())?;
    Some(format!("did you mean `--{option} {name}`?"))
}

/// The tip for an option that other commands have; `None` if none has it.
fn of_another_command(name: &str) -> Option<String> {
    let all = Cli::command();
    let has = |command: &&clap::Command| {
        command.get_arguments().any(|arg| arg.get_long() == Some(name) && !arg.is_hide_set())
    };
    let commands: Vec<String> =
        all.get_subcommands().filter(has).map(|command| format!("aorta {}", command.get_name())).collect();
    let names: Vec<&str> = commands.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| format!("`--{name}` is an option of {}", suggest::listed(&names)))
}

/// The tip for a negative number after an option, such as `--streams -1`.
fn negative(number: &str, words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word == number)?;
    let option = words.get(at.checked_sub(1)?).filter(|word| word.starts_with("--"))?;
    whole_number(option)
}

/// The tip for a word that belongs to no option: a pair without its option or with spaces, or values with spaces between them.
fn stray(word: &str, words: &[String]) -> Option<String> {
    let at = words.iter().position(|typed| typed == word)?;
    let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.contains(['/', '.']);
    let before = |count: usize| at.checked_sub(count).map(|place| words[place].as_str());
    let written =
        |option: &str, pair: &str| Some(format!("write it without spaces: `{}`", shell::command([option, pair])));
    let takes_pair = |option: &&str| option.strip_prefix("--").is_some_and(|name| NAMED_OPTIONS.contains(&name));
    if let (Some(option), Some(name)) = (before(2).filter(takes_pair), before(1)) {
        let value = if word == "=" { words.get(at + 1)? } else { word.trim_start_matches('=') };
        return written(option, &format!("{}={value}", name.trim_end_matches('=')));
    }
    if let Some((name, _)) = word.split_once('=').filter(|(name, _)| is_name(name)) {
        let option = if name.chars().any(|c| c.is_ascii_lowercase()) { "--set" } else { "--env" };
        return Some(format!("did you mean `{}`?", shell::command([option, word])));
    }
    let option = before(2).filter(|option| option.starts_with("--"))?;
    let is_value = |word: &&str| word.parse::<f64>().is_ok();
    before(1).filter(is_value)?;
    let list: Vec<&str> = words[at - 1..].iter().map(String::as_str).take_while(is_value).collect();
    let (command, _) = command_and_file(words)?;
    (list.len() > 1 && command.get_name() == "sweep")
        .then(|| format!("values have commas between them: `{option} {}`", list.join(",")))
}

/// The tip for several values of an option where a run takes one: the command line as a sweep. `None` if there is one value.
fn as_sweep(argument: &str, value: &str, words: &[String]) -> Option<String> {
    let list = listed(value).filter(|_| argument.strip_prefix("--").is_some_and(sweep::is_axis))?;
    let (command, file) = command_and_file(words)?;
    let place = words.iter().position(|word| word == command.get_name())?;
    let mut complete = words.to_vec();
    complete[place] = "sweep".to_owned();
    let typed = complete.iter().position(|word| word == argument).map(|at| at + 1);
    match typed {
        Some(at) => complete[at].clone_from(&list),
        None => {
            let at = complete.iter().position(|word| word.starts_with(argument))?;
            complete[at] = format!("{argument}={list}");
        }
    }
    complete[0] = "aorta".to_owned();
    // Options that a sweep does not have are left out.
    if Cli::try_parse_from(&complete).is_err() {
        complete = ["aorta", "sweep", file.as_deref().unwrap_or("FILE"), argument, &list].map(str::to_owned).to_vec();
    }
    let parsed = Cli::try_parse_from(&complete).is_ok();
    (parsed && command.get_name() == "exec")
        .then(|| format!("a run takes one value, and a sweep runs each: `{}`", shell::command(complete)))
}

/// Several values as a list with commas: of `1,2`, `[1,2]` and the range `1..4`. `None` for a single value.
fn listed(value: &str) -> Option<String> {
    let inside = value.trim_start_matches('[').trim_end_matches(']');
    let items: Vec<&str> = inside.split(',').map(str::trim).collect();
    if items.len() > 1 {
        return items.iter().all(|item| !item.is_empty()).then(|| items.join(","));
    }
    let (first, last) = inside.split_once("..").or_else(|| inside.split_once('-'))?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.trim_start_matches('=').parse().ok()?);
    let range = first < last && last - first < MAX_LISTED;
    range.then(|| (first..=last).map(|value| value.to_string()).collect::<Vec<_>>().join(","))
}

/// The tip for a value of another tool; `None` if the message is all that is known.
fn instead(argument: &str, value: &str) -> Option<String> {
    let value = value.to_lowercase();
    let tip = match argument {
        "--backend" if ["cpu", "reference"].contains(&value.as_str()) => "`--backend host` runs on the CPU",
        "--backend" if ["gpu", "nvidia", "amd", "rocm"].contains(&value.as_str()) => {
            "`--backend cuda` is an NVIDIA GPU, `--backend hip` an AMD GPU; `auto`, the default, takes what is there"
        }
        "--launch" if value.contains("graph") => "`--launch graph` launches an iteration as one graph",
        "--with" if ["nsight", "nvprof", "nsight-systems", "cuda"].contains(&value.as_str()) => {
            "`--with nsys` is Nsight Systems, `--with ncu` Nsight Compute"
        }
        "--device" => {
            "`--device` takes the number of a GPU, which `aorta devices` lists; \
             `--backend sim --config profile=h200` simulates one"
        }
        "--rounds" if value.parse::<u32>().is_ok() => "`--rounds 16` is the default; 6 rounds are the fewest",
        _ if value.parse::<f64>().is_err() => return whole_number(argument),
        _ => return None,
    };
    Some(tip.to_owned())
}

/// The command that the words call, such as `aorta exec`, as far as they can be parsed.
pub(in crate::cli) fn command_name(words: &[String]) -> String {
    command_and_file(words).map_or_else(|| "aorta".to_owned(), |(command, _)| format!("aorta {}", command.get_name()))
}

/// The command that the words call, and the file that they name, as far as they can be parsed. `None` without a command.
fn command_and_file(words: &[String]) -> Option<(clap::Command, Option<String>)> {
    let definition = Cli::command().ignore_errors(true);
    let matches = definition.clone().try_get_matches_from(words).ok()?;
    let (name, matches) = matches.subcommand()?;
    let file = matches.try_get_one::<String>("file").ok().flatten().cloned();
    Some((definition.find_subcommand(name)?.clone(), file))
}

/// The parameter of a file that an option names: `batch_size` for `--batch-size`. `None` if the file has none, or cannot be read.
fn parameter(file: &str, option: &str) -> Option<String> {
    let name = option.replace('-', "_");
    let text = if file == "-" { None } else { load::find(file, &Settings::default()).ok() }?;
    let (ast, _) = syntax::parse(&text.text, 0, &load::limits(&Settings::default()));
    let declared = ast.params().any(|param| ast.names.name(param.symbol) == name);
    declared.then_some(name)
}
