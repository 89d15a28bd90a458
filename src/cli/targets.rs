//! Targets of options: `--streams 4` and `--set streams=2`, or `--launch graph` and `--config launch=stream`, set the same;
//! `--json a` and `--csv a` write the same file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::error::InputError;
use crate::base::shell;
use crate::measure::cases::NAMED_OPTIONS;

/// The name of what an option sets. `option` is its long name without dashes.
pub fn target(option: &str, value: &str) -> String {
    let name = value.split_once('=').map_or(value, |(name, _)| name).trim();
    match option {
        "config" => name.replace('_', "-"),
        "set" if name == "streams" => name.to_owned(),
        "set" | "env" => format!("{option} {name}"),
        _ => option.to_owned(),
    }
}

/// True if one of the words, each an option with its value, sets the same as the option.
pub fn is_set(words: &[String], option: &str, value: &str) -> bool {
    words.iter().any(|word| target_of(std::slice::from_ref(word)).is_some_and(|known| known == target(option, value)))
}

/// Returns the words of a command line without the options whose targets the words of `other` set.
pub fn without(words: &[String], other: &[String]) -> Vec<String> {
    let replaced: BTreeSet<String> = options(other).filter_map(target_of).collect();
    let kept = options(words).filter(|option| target_of(option).is_none_or(|target| !replaced.contains(&target)));
    kept.flatten().cloned().collect()
}

/// Splits words into options with their values: `--gate auto` is two words, `--gate=auto` one.
fn options(words: &[String]) -> impl Iterator<Item = &[String]> {
    words.chunk_by(|option, value| option.starts_with("--") && !option.contains('=') && !value.starts_with("--"))
}

/// The target of an option's words; `None` for a word that is no option.
fn target_of(words: &[String]) -> Option<String> {
    let option = words.first()?.strip_prefix("--")?;
    let value = words.get(1).map_or("", String::as_str);
    let (option, value) = option.split_once('=').unwrap_or((option, value));
    Some(target(option, value))
}

/// True if a name and `=` precede the value of an option, which can be given several times.
fn is_named([option, _]: &[String; 2]) -> bool {
    NAMED_OPTIONS.contains(&option.trim_start_matches("--"))
}

/// The value of an option, without a name before it.
fn value(words: &[String; 2]) -> &str {
    let [_, text] = words;
    text.split_once('=').filter(|_| is_named(words)).map_or(text.as_str(), |(_, value)| value).trim()
}

/// Options whose value is the path of a file that the command writes.
const FILES: [&str; 5] = ["--json", "--csv", "--html", "--output", "--trace"];

/// Fails if two options of a command write the same regular file: only one of the contents would remain.
fn check_files(typed: &[(usize, [String; 2])]) -> Result<(), InputError> {
    let mut written: Vec<(PathBuf, &str)> = Vec::new();
    for (_, [option, text]) in typed.iter().filter(|(_, [option, _])| FILES.contains(&option.as_str())) {
        let path = std::path::absolute(text).unwrap_or_else(|_| text.into());
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let path = folder.zip(path.file_name()).map_or_else(|| path.clone(), |(folder, name)| folder.join(name));
        // Several texts can be printed, or thrown away.
        if path.exists() && !path.is_file() {
            continue;
        }
        if let Some((_, first)) = written.iter().find(|(other, _)| *other == path) {
            let why = format!("`{first}` writes the same file, and only one of them would remain");
            return Err(InputError::bad_value(&format!("`{option}`"), text, &why, "name a file for each"));
        }
        written.push((path, option));
    }
    Ok(())
}

/// Fails if two options of a command set the same to different values, of which only one would apply, or write the same
/// file.
pub fn check(matches: &ArgMatches) -> Result<(), InputError> {
    let mut typed: Vec<(usize, [String; 2])> = Vec::new();
    for id in matches.ids().map(|id| id.as_str()) {
        let is_typed = matches.value_source(id) == Some(ValueSource::CommandLine);
        let values = matches.try_get_raw(id).ok().flatten().filter(|_| is_typed);
        let Some((places, values)) = matches.indices_of(id).zip(values) else { continue };
        let words = |text: &OsStr| [format!("--{}", id.replace('_', "-")), text.to_string_lossy().into_owned()];
        typed.extend(places.zip(values.map(words)));
    }
    typed.sort();
    check_files(&typed)?;
    for (index, (_, last)) in typed.iter().enumerate() {
        // The parser refuses other options that are given twice, unless all of their values count.
        let is_other = |(_, first): &&(usize, [String; 2])| {
            (is_named(first) || is_named(last)) && target_of(first) == target_of(last) && value(first) != value(last)
        };
        let Some((_, first)) = typed[..index].iter().find(is_other) else { continue };
        let [option, text] = last;
        let known: Vec<&str> = value(first).split(',').collect();
        let added = value(last).split(',').filter(|value| !known.contains(value));
        let values: Vec<&str> = [first[1].as_str()].into_iter().chain(added).collect();
        let list = shell::command([&first[0], &values.join(",")]);
        let help = match first[0] == *option {
            true => format!("leave one of them out; `aorta sweep` runs both: `{list}`"),
            false => "leave one of them out".to_owned(),
        };
        let why = format!("`{}` sets the same to another value", shell::command(first));
        return Err(InputError::bad_value(&format!("`{option}`"), text, &why, &help));
    }
    Ok(())
}
