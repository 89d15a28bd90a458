//! Finds files of one folder that use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{self, Token};

/// Folders with a cycle that stays: the folder, its files and subfolders in the cycle, and the reason.
const KNOWN: [(&str, &str, &str); 10] = [
    (
        "backend::gpu::prepare",
        "copy_units kernels lower timer",
        "`kernels` compiles every kernel of a device, those of `copy_units` and `timer` too, which launch them",
    ),
    (
        "cli::commands",
        "ab exec forwarded_options scenario sweep",
        "`scenario` reports the mistakes of a file for all commands, each of which checks its own fields and reads by it",
    ),
    (
        "cli::commands::exec",
        "failure measuring multi_process prepare results",
        "a failed run starts the command again, with several processes as with one",
    ),
    (
        "config",
        "error ron run values",
        "a message about an unknown field names the option that it was confused with, from the table of fields",
    ),
    (
        "config::run",
        "scenario settings",
        "a scenario has settings, and a message about a setting names the field of a scenario",
    ),
    (
        "exec",
        "driver failure observe prepare ranks run",
        "the methods of `Session`: it holds the gate and what the watchdog reads, which drive it",
    ),
    ("exec::run", "gate session", "a session holds its gate, whose methods are those of the session"),
    (
        "model",
        "analyzer calls check declare expand gradient memory metrics names program ranks streams values",
        "the methods of `Analyzer`: expressions, calls and statements contain each other",
    ),
    (
        "ops",
        "attention backward catalogue collectives conv elementwise fused losses matrix movement norms pool reductions routing \
         row_chain scans scatter sorting",
        "an operation has its rule for gradients in `backward`, and a rule names operations of the catalogue, which lists all",
    ),
    ("ops::collectives", "batch transfer", "a batch is made of transfers, and a transfer is a batch of one"),
];

/// The modules and what each uses, from the files of the sources.
pub struct Uses {
    /// Each module with the resolved paths in it, without its tests.
    modules: BTreeMap<Vec<String>, Vec<Vec<String>>>,
    /// Each name that a module exports from another, with its path.
    exported: BTreeMap<Vec<String>, Vec<String>>,
}

impl Uses {
    /// Reads modules, each with its text.
    pub fn of<'a>(files: impl IntoIterator<Item = (Vec<String>, &'a str)>) -> Uses {
        let mut uses = Uses { modules: BTreeMap::new(), exported: BTreeMap::new() };
        let mut read = Vec::new();
        for (module, text) in files {
            let tokens = source::without_tests(source::tokens(text));
            let paths = source::paths(&tokens, &module, &[]).into_iter().map(|path| path.segments).collect();
            for path in source::exports(&tokens, &module) {
                let name = path.last().cloned().into_iter();
                uses.exported.insert(module.iter().cloned().chain(name).collect(), path);
            }
            uses.modules.insert(module.clone(), paths);
            read.push((module, tokens));
        }
        let found: Vec<_> = read.iter().map(|(module, tokens)| uses.behind_globs(module, tokens)).collect();
        for ((module, _), paths) in read.into_iter().zip(found) {
            uses.modules.entry(module).or_default().extend(paths);
        }
        uses
    }

    /// The paths that begin with a file of a folder from which a module imports everything: `matrix::Gemm` behind `use super::*`.
    fn behind_globs(&self, module: &[String], tokens: &[Token]) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for glob in &self.modules[module] {
            let Some((_, folder)) = glob.split_last().filter(|(last, _)| *last == "*") else { continue };
            let inside =
                self.modules.keys().filter(|other| other.len() == folder.len() + 1 && other.starts_with(folder));
            let files: Vec<&str> = inside.filter_map(|other| other.last()).map(String::as_str).collect();
            let paths = source::paths(tokens, module, &files).into_iter().filter(|path| !path.own);
            found.extend(paths.map(|path| [folder, &path.segments[..]].concat()));
        }
        found
    }

    /// The module that defines a name: the longest known one on its path, behind names that are exported again.
    fn defining(&self, path: &[String]) -> &[String] {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let longest = (1..=path.len()).rev().find(|&length| self.modules.contains_key(&path[..length]));
            let exported = (1..=path.len()).rev().find(|&length| self.exported.contains_key(&path[..length]));
            match exported.filter(|length| longest.is_none_or(|longest| *length > longest)) {
                Some(length) => path = [&self.exported[&path[..length]], &path[length..]].concat(),
                None => {
                    let known = longest.and_then(|length| self.modules.get_key_value(&path[..length]));
                    return known.map_or(&[], |(module, _)| module);
                }
            }
        }
        &[]
    }

    /// For each folder, its files and subfolders, each with those beside it that it uses.
    fn folders(&self) -> BTreeMap<String, BTreeMap<&str, BTreeSet<&str>>> {
        let mut folders: BTreeMap<String, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        for (module, paths) in &self.modules {
            for path in paths {
                let other = self.defining(path);
                let common = module.iter().zip(other).take_while(|(a, b)| a == b).count();
                if let (1.., Some(from), Some(to)) = (common, module.get(common), other.get(common)) {
                    folders.entry(module[..common].join("::")).or_default().entry(from).or_default().insert(to);
                }
            }
        }
        folders
    }

    /// Groups of files and subfolders that use each other in a circle, each with its folder, sorted.
    pub fn cycles(&self) -> BTreeSet<(String, String)> {
        let mut cycles = BTreeSet::new();
        for (folder, uses) in self.folders() {
            let reached: BTreeMap<&str, BTreeSet<&str>> =
                uses.keys().map(|from| (*from, reached(&uses, from))).collect();
            for (from, to) in &reached {
                let round = to.iter().filter(|to| reached.get(*to).is_some_and(|back| back.contains(from)));
                let round: Vec<&str> = round.copied().collect();
                if !round.is_empty() {
                    cycles.insert((folder.clone(), round.join(" ")));
                }
            }
        }
        cycles
    }
}

/// Everything that a file uses, directly or through others.
fn reached<'a>(uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        let next = uses.get(file).into_iter().flatten();
        open.extend(next.filter(|next| reached.insert(**next)));
    }
    reached
}

/// The cycles that stay, in the form of [`Uses::cycles`].
pub fn known() -> BTreeSet<(String, String)> {
    KNOWN.iter().map(|(folder, files, _)| ((*folder).to_owned(), (*files).to_owned())).collect()
}
