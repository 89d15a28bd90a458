//! Targets of options: `--streams 4` and `--set streams=2`, or `--launch graph` and `--config launch=stream`, set the same.

use std::collections::BTreeSet;

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

/// An option as the user has typed it.
struct TypedOption {
    /// Position in the command line.
    at: usize,
    option: String,
    text: String,
}

impl TypedOption {
    /// The value, without the name before it.
    fn value(&self) -> &str {
        let named = self.text.split_once('=').filter(|_| NAMED_OPTIONS.contains(&self.option.as_str()));
        named.map_or(self.text.as_str(), |(_, value)| value).trim()
    }

    fn command(&self, text: &str) -> String {
        shell::command([&format!("--{}", self.option), text])
    }
}

/// Fails if two options of a command set the same to different values: only one of them would apply.
pub fn check(matches: &ArgMatches) -> Result<(), InputError> {
    let mut typed: Vec<TypedOption> = Vec::new();
    for id in matches.ids().filter(|id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine)) {
        let (Ok(Some(values)), Some(places)) = (matches.try_get_raw(id.as_str()), matches.indices_of(id.as_str()))
        else {
            continue;
        };
        let option = id.as_str().replace('_', "-");
        typed.extend(places.zip(values).map(|(at, text)| TypedOption {
            at,
            option: option.clone(),
            text: text.to_string_lossy().into_owned(),
        }));
    }
    typed.sort_by_key(|option| option.at);
    for (index, last) in typed.iter().enumerate() {
        let is_other = |first: &&TypedOption| {
            // The parser refuses other options that are given twice, unless all of their values count.
            [*first, last].iter().any(|typed| NAMED_OPTIONS.contains(&typed.option.as_str()))
                && target(&first.option, &first.text) == target(&last.option, &last.text)
                && first.value() != last.value()
        };
        let Some(first) = typed[..index].iter().find(is_other) else { continue };
        let list = first.command(&format!("{},{}", first.text, last.value()));
        let help = match first.option == last.option {
            true => format!("leave one of them out; `aorta sweep` runs both: `{list}`"),
            false => "leave one of them out".to_owned(),
        };
        let why = format!("`{}` sets the same to another value", first.command(&first.text));
        return Err(InputError::bad_value(&format!("`--{}`", last.option), &last.text, &why, &help));
    }
    Ok(())
}
