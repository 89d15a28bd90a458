//! Bundles: a scenario or a workload with every file that it needs, in one text that a `diff` can read.
//!
//! ```text
//! aorta bundle 1
//! aorta: 0.1.0
//! language: 1
//! runs: moe.ron
//! licence: MIT
//! hash: 9f86d081…
//!
//! == moe.ron text 2c26b46b…
//! |(workload: "net.aorta")
//! == net.aorta text fcde2b2e…
//! |step { nop() }
//! ```
//!
//! The lines of a part begin with `|`, so that an edit cannot end it. A part that does not end in a line feed has `\`
//! behind its last line. The bytes of a part that is not text are written in hexadecimal digits. `hash` covers the
//! lines above it and the names and hashes of all parts; bundles of older versions lack it.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use crate::base::{hex, visible};
use crate::config::ConfigError;

/// The first line of a bundle.
const HEAD: &str = "aorta bundle 1";

/// Beginning of the first line of a bundle of any version.
const ANY_HEAD: &str = "aorta bundle ";

/// Largest number of parts in a bundle.
const MAX_PARTS: usize = 1024;

/// Longest name of a part, in bytes.
const MAX_NAME: usize = 200;

/// Bytes in a line of hexadecimal digits.
const HEX_LINE: usize = 40;

/// A scenario or a workload with every file that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    /// Version of aorta that wrote the bundle.
    pub aorta: String,
    /// Version of the language of the bundle's files.
    pub language: i64,
    /// Name of the part that runs: a scenario or a workload.
    pub runs: String,
    /// The plan of the workload when it was bundled; `None` if it was not planned.
    pub plan: Option<BundledPlan>,
    /// Terms under which others may use the bundle; `None` if the author names none.
    pub licence: Option<String>,
    /// Name of the part with the record of a run; `None` without one.
    pub record: Option<String>,
    /// The parts by name: a path below the bundle, with `/` between folders.
    pub parts: IndexMap<String, BundledFile>,
    /// True if the lines before the first part, or the names of the parts, differ from what was bundled.
    pub is_header_changed: bool,
}

/// The plan of a bundle's program, by which a receiver sees that nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundledPlan {
    /// SHA-256 of the plan of all ranks, in hexadecimal, as in a record.
    pub hash: String,
    /// The simulated device that the workload was planned for.
    pub device: String,
}

/// A part of a bundle: the contents of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundledFile {
    pub bytes: Vec<u8>,
    /// SHA-256 of the bytes when the part was bundled, in hexadecimal.
    pub sha256: String,
}

impl BundledFile {
    pub fn new(bytes: Vec<u8>) -> BundledFile {
        let sha256 = hex(Sha256::digest(&bytes));
        BundledFile { bytes, sha256 }
    }

    /// True if the part differs from its bundled version.
    pub fn is_changed(&self) -> bool {
        hex(Sha256::digest(&self.bytes)) != self.sha256
    }
}

/// Fails unless a part can have this name: a path below the bundle, without `..`, hidden files and hidden characters.
/// The error completes "the name of a part".
pub fn part_name(name: &str) -> Result<(), &'static str> {
    match () {
        () if name.is_empty() || name.len() > MAX_NAME => Err("has 1 to 200 bytes"),
        () if name.contains(|c: char| visible::is_hidden(c) || matches!(c, '\n' | '\t' | '\\' | ':')) => {
            Err("has no control characters, no `\\` and no `:`")
        }
        () if name.split('/').any(|part| part.is_empty() || part.starts_with('.')) => {
            Err("is a path below the bundle, without `..`, hidden files and empty folders")
        }
        () if name.trim() != name => Err("does not begin or end with a space"),
        () => Ok(()),
    }
}

impl Bundle {
    /// The lines before the first part, except their hash.
    fn header(&self) -> String {
        let mut text = format!("{HEAD}\naorta: {}\nlanguage: {}\nruns: {}\n", self.aorta, self.language, self.runs);
        let plan = self.plan.as_ref().map(|plan| format!("{} on {}", plan.hash, plan.device));
        for (name, value) in [("plan", &plan), ("licence", &self.licence), ("record", &self.record)] {
            text.extend(value.iter().map(|value| format!("{name}: {}\n", visible::one_line(value))));
        }
        text
    }

    /// SHA-256 of the header, and of the names and hashes of all parts, in hexadecimal.
    fn header_hash(&self) -> String {
        let mut digest = Sha256::new_with_prefix(self.header());
        self.parts.iter().for_each(|(name, part)| digest.update(format!("{} {name}\n", part.sha256)));
        hex(digest.finalize())
    }

    pub fn to_text(&self) -> String {
        let mut text = format!("{}hash: {}\n", self.header(), self.header_hash());
        for (name, part) in &self.parts {
            match std::str::from_utf8(&part.bytes) {
                Ok(contents) => {
                    text += &format!("\n== {name} text {}\n", part.sha256);
                    contents.split_inclusive('\n').for_each(|line| text += &format!("|{line}"));
                    if !contents.is_empty() && !contents.ends_with('\n') {
                        text += "\n\\\n";
                    }
                }
                Err(_) => {
                    text += &format!("\n== {name} hex {}\n", part.sha256);
                    part.bytes.chunks(HEX_LINE).for_each(|line| text += &format!("|{}\n", hex(line)));
                }
            }
        }
        text
    }

    /// Parses a bundle. `file` is its name in messages. Changed parts are no error: [`Bundle::changed`] lists them.
    ///
    /// # Errors
    ///
    /// [`ConfigError::BadBundle`] names the first invalid line.
    pub fn parse(file: &str, text: &str) -> Result<Bundle, ConfigError> {
        let read = Reader::default().read(text.strip_prefix('\u{feff}').unwrap_or(text));
        read.map_err(|(line, why)| {
            let help = other_format(text).map(|(_, _, help)| help).unwrap_or_else(|| {
                "`aorta bundle FILE -o PATH` writes a bundle; docs/sharing.md describes its lines".to_owned()
            });
            ConfigError::BadBundle { file: file.to_owned(), line, why, help }
        })
    }

    /// True if a text begins as a bundle of any version does.
    pub fn recognizes(text: &str) -> bool {
        text.trim_start_matches('\u{feff}').starts_with(ANY_HEAD)
    }

    /// Fails unless the names of all parts and of the one that runs are valid. The error names the first invalid one.
    pub fn check(&self) -> Result<(), String> {
        let mut known: BTreeMap<String, &str> = BTreeMap::new();
        if self.parts.len() > MAX_PARTS {
            return Err(format!("it has {} parts, and {MAX_PARTS} are allowed", self.parts.len()));
        }
        for name in self.parts.keys() {
            part_name(name).map_err(|why| format!("the name of a part {why}, and {name:?} is one"))?;
            // Some file systems do not distinguish names that differ only in case.
            if let Some(other) = known.insert(name.to_lowercase(), name) {
                return Err(format!("the parts `{other}` and `{name}` have one name"));
            }
        }
        for name in known.keys() {
            let folders = name.match_indices('/').map(|(end, _)| &name[..end]);
            if let Some(file) = folders.into_iter().find_map(|folder| known.get(folder)) {
                return Err(format!("the part `{file}` is a file and a folder"));
            }
        }
        let named = [Some(&self.runs), self.record.as_ref()];
        match named.into_iter().flatten().find(|name| !self.parts.contains_key(*name)) {
            Some(name) => Err(format!("it has no part `{name}`")),
            None => Ok(()),
        }
    }

    /// Names of the parts that differ from their bundled versions.
    pub fn changed(&self) -> Vec<&str> {
        self.parts.iter().filter(|(_, part)| part.is_changed()).map(|(name, _)| name.as_str()).collect()
    }
}

/// Recognizes a text that is no bundle, such as a scenario or a record. Returns the line to show, a description of the text
/// and a help; `None` for an unknown text.
fn other_format(text: &str) -> Option<(usize, &'static str, String)> {
    let text = text.trim_start_matches('\u{feff}');
    let head =
        (1..).zip(text.lines()).find(|(_, line)| line.trim_start_matches(['>', ' ', '\t']).starts_with(ANY_HEAD));
    if let Some((line, found)) = head {
        return match found.starts_with(ANY_HEAD) {
            true if line == 1 => None,
            true => Some((line, "the bundle begins here, behind other text", "remove the lines before it".to_owned())),
            false => {
                let help = "save the bundle as a file of its own, without signs before its lines".to_owned();
                Some((line, "a mail or an editor has put signs before the lines of the bundle", help))
            }
        };
    }
    let (what, ending) = match text.trim_start() {
        "" => return Some((1, "the file is empty", "copy the bundle again".to_owned())),
        text if text.starts_with('(') => ("it is a scenario or another RON text", ".ron"),
        text if text.starts_with('{') => ("it is JSON, such as the record of a run", ".json"),
        text if text.contains("step {") => ("it is the text of a workload", ".aorta"),
        _ => return None,
    };
    Some((1, what, format!("give it a name that ends in `{ending}`; `aorta bundle` makes a bundle of it")))
}

/// Reads the lines of a bundle. An error is the number of a line and a description of the mistake.
#[derive(Default)]
struct Reader {
    bundle: Bundle,
    /// The part of the last line: its name, and whether its lines are hexadecimal digits; `None` before the first part.
    part: Option<(String, bool)>,
    /// True after the line `\`, which ends the part.
    ended: bool,
    /// The hash that the header states; `None` in bundles of older versions.
    hash: Option<String>,
}

impl Reader {
    fn read(mut self, text: &str) -> Result<Bundle, (usize, String)> {
        // A mail program or version control may have changed all line ends. The first line shows this, and the hashes
        // of the parts show whether the contents are the same.
        let is_converted = text.split_inclusive('\n').next().is_some_and(|first| first.ends_with("\r\n"));
        let restored = is_converted.then(|| text.replace("\r\n", "\n"));
        let text = restored.as_deref().unwrap_or(text);
        let mut lines = (1..).zip(text.split_inclusive('\n'));
        match lines.next().map(|(_, line)| line.trim_end()) {
            Some(HEAD) => {}
            Some(other) if other.starts_with(ANY_HEAD) => {
                return Err((1, format!("it is a bundle of another version, and this one reads `{HEAD}`")));
            }
            _ => {
                let unknown = || (1, format!("a bundle begins with the line `{HEAD}`"));
                return Err(other_format(text).map_or_else(unknown, |(line, what, _)| (line, what.to_owned())));
            }
        }
        let mut last = 1;
        for (number, line) in lines {
            last = number;
            self.line(line).map_err(|why| (number, why))?;
        }
        self.bundle.check().map_err(|why| (last, why))?;
        self.bundle.is_header_changed = self.hash.is_some_and(|hash| hash != self.bundle.header_hash());
        Ok(self.bundle)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let bare = line.strip_suffix('\n').unwrap_or(line);
        match bare.split_at_checked(1) {
            Some(("|", contents)) => self.contents(contents),
            Some(("\\", "")) => self.end(),
            _ if bare.trim_end().is_empty() => Ok(()),
            _ => match bare.trim_end().strip_prefix("== ") {
                Some(head) => self.part(head),
                None if self.part.is_none() => self.fact(bare.trim_end()),
                None => Err("a line of a part begins with `|`".to_owned()),
            },
        }
    }

    /// Reads a line before the first part: `NAME: VALUE`.
    fn fact(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = line.split_once(':').ok_or("it is no `name: value`, and no part has begun")?;
        let value = value.trim().to_owned();
        let bundle = &mut self.bundle;
        match name {
            "aorta" => bundle.aorta = value,
            "language" => bundle.language = value.parse().map_err(|_| "the version of the language is a number")?,
            "runs" => bundle.runs = value,
            "licence" => bundle.licence = Some(value),
            "record" => bundle.record = Some(value),
            "hash" => self.hash = Some(value),
            "plan" => {
                let (hash, device) = value.split_once(" on ").ok_or("a plan is `HASH on DEVICE`")?;
                bundle.plan = Some(BundledPlan { hash: hash.to_owned(), device: device.to_owned() });
            }
            _ => {
                return Err(format!(
                    "there is no field `{name}`, only aorta, language, runs, plan, licence, record and hash"
                ));
            }
        }
        Ok(())
    }

    /// The first line of a part: `NAME text HASH`, or `NAME hex HASH`.
    fn part(&mut self, head: &str) -> Result<(), String> {
        let mut words = head.rsplitn(3, ' ');
        let (Some(sha256), Some(form @ ("text" | "hex")), Some(name)) = (words.next(), words.next(), words.next())
        else {
            return Err("a part begins with `== NAME text HASH`, or `hex` in place of `text`".to_owned());
        };
        part_name(name).map_err(|why| format!("the name of a part {why}"))?;
        if self.bundle.parts.len() >= MAX_PARTS {
            return Err(format!("a bundle has at most {MAX_PARTS} parts"));
        }
        let part = BundledFile { bytes: Vec::new(), sha256: sha256.to_owned() };
        if self.bundle.parts.insert(name.to_owned(), part).is_some() {
            return Err(format!("the part `{name}` is there twice"));
        }
        (self.part, self.ended) = (Some((name.to_owned(), form == "hex")), false);
        Ok(())
    }

    /// A line of the contents, without `|`.
    fn contents(&mut self, line: &str) -> Result<(), String> {
        let Some((name, is_hex)) = &self.part else { return Err("no part has begun".to_owned()) };
        if self.ended {
            return Err(format!("the part `{name}` has ended above, with `\\`"));
        }
        let Some(part) = self.bundle.parts.get_mut(name) else { return Ok(()) };
        match is_hex {
            false => part.bytes.extend(line.bytes().chain([b'\n'])),
            true => part.bytes.extend(unhex(line.trim_end()).ok_or("it has other characters than hexadecimal digits")?),
        }
        Ok(())
    }

    /// Reads the line `\`, which says that the part does not end in a line feed.
    fn end(&mut self) -> Result<(), String> {
        let part = self.part.as_ref().and_then(|(name, _)| self.bundle.parts.get_mut(name));
        let ends = part.is_some_and(|part| part.bytes.pop() == Some(b'\n'));
        self.ended = true;
        if ends { Ok(()) } else { Err("no line is before it".to_owned()) }
    }
}

/// The bytes of hexadecimal digits; `None` for other characters.
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}
