//! Options of operations: their definitions and their values.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::equal_by::equal_by;
use crate::base::units::Dimension;
use crate::base::{DType, Dims, SrcSpan};

use crate::ops::Spec;
use crate::ops::user_kernel::UserKernel;

/// Definition of an option, or of a value that a call passes by position.
#[derive(Debug)]
pub struct OptionSpec {
    pub name: &'static str,
    pub kind: OptionType,
    pub default: Preset,
    /// A one-line description for the documentation.
    pub doc: &'static str,
}

impl OptionSpec {
    /// Returns the definition of an option that every call must give.
    pub const fn required(name: &'static str, kind: OptionType, doc: &'static str) -> OptionSpec {
        OptionSpec { name, kind, default: Preset::Required, doc }
    }

    /// Returns the definition of an option without a default: if a call omits it, the operation chooses a value.
    pub const fn absent(name: &'static str, kind: OptionType, doc: &'static str) -> OptionSpec {
        OptionSpec { name, kind, default: Preset::Absent, doc }
    }

    /// Returns the definition of an optional number without a unit.
    pub const fn number(name: &'static str, default: f64, doc: &'static str) -> OptionSpec {
        OptionSpec::quantity(name, Dimension::NONE, default, doc)
    }

    /// Returns the definition of an optional number of this dimension, such as a time.
    pub const fn quantity(name: &'static str, dimension: Dimension, default: f64, doc: &'static str) -> OptionSpec {
        OptionSpec { name, kind: OptionType::Number(dimension), default: Preset::Number(default), doc }
    }

    /// Returns the definition of an optional whole number from `least` to `most`, both included.
    pub const fn int(name: &'static str, least: i64, most: i64, default: i64, doc: &'static str) -> OptionSpec {
        OptionSpec { name, kind: OptionType::Int(least, most), default: Preset::Int(default), doc }
    }

    /// Returns the definition of optional whole numbers from `least` to `most`: one for all spatial dimensions, or one
    /// for each.
    pub const fn spatial(name: &'static str, least: i64, most: i64, default: i64, doc: &'static str) -> OptionSpec {
        OptionSpec { name, kind: OptionType::Spatial(least, most), default: Preset::Int(default), doc }
    }

    /// Returns the definition of an optional `true` or `false`.
    pub const fn bool(name: &'static str, default: bool, doc: &'static str) -> OptionSpec {
        OptionSpec { name, kind: OptionType::Bool, default: Preset::Bool(default), doc }
    }

    /// Returns the definition of an optional word of a list; the first word is the default.
    pub const fn word(name: &'static str, words: &'static [&'static str], doc: &'static str) -> OptionSpec {
        OptionSpec { name, kind: OptionType::Word(words), default: Preset::Word(words[0]), doc }
    }
}

/// Type of an option's value.
#[derive(Debug, PartialEq)]
pub enum OptionType {
    /// A whole number in a range, both ends included.
    Int(i64, i64),
    /// A number of this dimension, such as a time or a size.
    Number(Dimension),
    Bool,
    /// A word of this list.
    Word(&'static [&'static str]),
    /// A list of dimension indices.
    Axes,
    DType,
    /// A list of whole numbers, one for each dimension.
    Sizes,
    /// A list of whole numbers of any length; the operation checks the length.
    List,
    /// Whole numbers in a range, both ends included: a single one for all spatial dimensions, or a list with one for
    /// each.
    Spatial(i64, i64),
    /// Numbers of elements from each rank to each rank: one list per sender, or one list for all senders.
    Counts,
    /// The path of a data file, in quotes.
    File,
}

impl OptionType {
    /// Describes the expected value in a message.
    pub fn describe(&self) -> String {
        match self {
            OptionType::Int(min, i64::MAX) => format!("a whole number from {min}"),
            OptionType::Int(min, max) => format!("a whole number from {min} to {max}"),
            OptionType::Number(dimension) => dimension.describe(),
            OptionType::Bool => "`true` or `false`".to_owned(),
            OptionType::Word(words) => format!("one of {}", crate::base::suggest::listed(words)),
            OptionType::Axes => "a list of dimensions, such as `[1, 0]`".to_owned(),
            OptionType::Sizes => "a list of whole numbers, one for each dimension, such as `[0, 2]`".to_owned(),
            OptionType::List => "a list of whole numbers, such as `[3, 0]`".to_owned(),
            OptionType::Spatial(min, max) => {
                format!("a whole number from {min} to {max}, or a list with one for each spatial dimension")
            }
            OptionType::DType => "an element type, such as `f16`".to_owned(),
            OptionType::File => "the path of a file in quotes, such as `\"tokens.bin\"`".to_owned(),
            OptionType::Counts => {
                "whole numbers from 0, a list for each sender, such as `[[2, 1], [0, 3]]`, or one list".to_owned()
            }
        }
    }
}

/// Value of an option if a call omits it.
#[derive(Debug)]
pub enum Preset {
    /// The call is wrong: every call must give the option.
    Required,
    /// No value: the operation chooses.
    Absent,
    Int(i64),
    Number(f64),
    Bool(bool),
    Word(&'static str),
}

impl Preset {
    /// The default value; [`Attr::Absent`] if the option has none.
    pub fn value(&self) -> Attr {
        match self {
            Preset::Required | Preset::Absent => Attr::Absent,
            Preset::Int(value) => Attr::Int(*value),
            Preset::Number(value) => Attr::number(*value),
            Preset::Bool(value) => Attr::Bool(*value),
            Preset::Word(value) => Attr::Word(value),
        }
    }
}

/// A number that is compared and hashed by its bits, so that equal options have equal hashes.
#[derive(Clone, Copy)]
pub struct ExactNumber(f64);

equal_by!(ExactNumber, |number| number.0.to_bits());

impl fmt::Debug for ExactNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attr {
    Absent,
    Int(i64),
    Number(ExactNumber),
    Bool(bool),
    Word(&'static str),
    Axes(Vec<i64>),
    DType(DType),
    Counts(Arc<ElementCounts>),
    File(Arc<DataFile>),
    /// The members of a batch of collectives, as an internal option that no text can write.
    Batch(Arc<[Spec]>),
    /// A rank's part of a copy between ranks, as an internal option that no text can write.
    Crossing(Arc<Crossing>),
    /// A declared kernel, as an internal option that no text can write.
    UserKernel(Arc<UserKernel>),
}

/// A file that a workload reads. Files with equal path and size are equal.
#[derive(Clone)]
pub struct DataFile {
    /// Path with symbolic links resolved.
    pub path: PathBuf,
    /// Size in bytes at compilation.
    pub bytes: u64,
    /// Reads bytes of a file from an offset; returns the reason on failure.
    pub read: fn(&Path, u64, &mut [u8]) -> Result<(), String>,
}

equal_by!(DataFile, |file| (&file.path, file.bytes));

impl fmt::Debug for DataFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.path.file_name().unwrap_or_default())
    }
}

/// A rank's part of a copy between ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Crossing {
    /// Rank that receives this rank's data, and the copy, whose output is in that rank's memory; `None` if this rank
    /// sends nothing.
    pub sends: Option<(u32, Spec)>,
    /// Rank that writes each output.
    pub from: Vec<u32>,
}

impl Attr {
    /// Returns the value of an option of type [`OptionType::Number`].
    pub fn number(value: f64) -> Attr {
        Attr::Number(ExactNumber(value))
    }
}

/// Numbers of elements from each rank to each rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ElementCounts {
    /// A list for each sender, in rank order, with a number for each receiver.
    Rows(Vec<Vec<u64>>),
    /// A list with a number for each receiver, which applies to all senders.
    Each(Vec<u64>),
}

impl ElementCounts {
    /// Number of elements from one rank to another. Both are numbers in the group, already checked to be in range.
    pub fn get(&self, from: usize, to: usize) -> u64 {
        match self {
            ElementCounts::Rows(rows) => rows[from][to],
            ElementCounts::Each(row) => row[to],
        }
    }
}

/// The options of a call, including positional values, with their source locations.
#[derive(Clone, Default)]
pub struct Attrs {
    values: Vec<(&'static str, Attr, Option<SrcSpan>)>,
}

impl Attrs {
    /// Returns options that no text contains, so that they have no locations.
    pub fn of(options: impl IntoIterator<Item = (&'static str, Attr)>) -> Attrs {
        Attrs { values: options.into_iter().map(|(name, value)| (name, value, None)).collect() }
    }

    /// Adds an option; `span` is its location, or `None` if no text contains it.
    pub fn push(&mut self, name: &'static str, value: Attr, span: Option<SrcSpan>) {
        self.values.push((name, value, span));
    }

    /// Removes all options.
    pub fn clear(&mut self) {
        self.values.clear();
    }

    /// Returns the options with a different value for one of them.
    pub(in crate::ops) fn with(&self, name: &str, value: Attr) -> Attrs {
        let mut attrs = self.clone();
        if let Some(option) = attrs.values.iter_mut().find(|(candidate, ..)| *candidate == name) {
            option.1 = value;
        }
        attrs
    }

    /// Value of an option; `None` if the call has no option with this name.
    fn find(&self, name: &str) -> Option<&Attr> {
        self.values.iter().find(|(candidate, ..)| *candidate == name).map(|(_, value, _)| value)
    }

    /// Value of an option of the operation's own signature. Panics for any other name.
    fn get(&self, name: &str) -> &Attr {
        self.find(name).expect("an operation asks for options of its own signature, and the model fills in all of them")
    }

    /// The word of an option; `None` if the option has no value or is not a word, as may be the case in an invalid
    /// call.
    pub fn find_word(&self, name: &str) -> Option<&'static str> {
        match self.find(name)? {
            Attr::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Location of an option in the text; `None` if the text does not contain the option.
    pub(in crate::ops) fn span(&self, name: &str) -> Option<SrcSpan> {
        self.values.iter().find(|(candidate, ..)| *candidate == name)?.2
    }

    /// Value of an option of type [`OptionType::Int`] that has a default or is required. Panics for other types.
    pub fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Attr::Int(value) => *value,
            other => panic!("option `{name}` is checked to be a whole number, not {other:?}"),
        }
    }

    /// Value of an option of type [`OptionType::Number`] that has a default or is required. Panics for other types.
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Attr::Number(value) => value.0,
            other => panic!("option `{name}` is checked to be a number, not {other:?}"),
        }
    }

    /// Value of an option of type [`OptionType::Bool`]. Panics for other types.
    pub fn bool(&self, name: &str) -> bool {
        match self.get(name) {
            Attr::Bool(value) => *value,
            other => panic!("option `{name}` is checked to be a bool, not {other:?}"),
        }
    }

    /// Value of an option of type [`OptionType::Word`]. Panics for other types.
    pub fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Attr::Word(value) => value,
            other => panic!("option `{name}` is checked to be a word, not {other:?}"),
        }
    }

    /// Returns the value of an option of type [`OptionType::DType`]; `None` if it is absent.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        match self.get(name) {
            Attr::DType(value) => Some(*value),
            _ => None,
        }
    }

    /// Value of an option of type [`OptionType::Axes`], [`OptionType::Sizes`] or [`OptionType::List`]; `None` if
    /// absent.
    pub fn axes(&self, name: &str) -> Option<&[i64]> {
        match self.get(name) {
            Attr::Axes(value) => Some(value),
            _ => None,
        }
    }

    /// Value of an option of type [`OptionType::Spatial`] for `dims` spatial dimensions; `None` if it is absent or a
    /// list of another length.
    pub fn spatial(&self, name: &str, dims: usize) -> Option<Dims> {
        let sizes: Vec<u64> = match self.get(name) {
            Attr::Int(value) => vec![*value as u64; dims],
            Attr::Axes(values) => values.iter().map(|&value| value as u64).collect(),
            _ => return None,
        };
        Dims::from_slice(&sizes).filter(|sizes| sizes.len() == dims)
    }

    /// Returns the value of an option of type [`OptionType::Counts`]; `None` if it is absent.
    pub fn counts(&self, name: &str) -> Option<&ElementCounts> {
        match self.get(name) {
            Attr::Counts(value) => Some(value),
            _ => None,
        }
    }

    /// Value of an option of type [`OptionType::File`]; `None` if absent.
    pub fn file(&self, name: &str) -> Option<&Arc<DataFile>> {
        match self.get(name) {
            Attr::File(value) => Some(value),
            _ => None,
        }
    }

    /// The members of a batch; `None` for any other operation.
    pub(in crate::ops) fn batch(&self, name: &str) -> Option<&[Spec]> {
        match self.find(name)? {
            Attr::Batch(specs) => Some(specs),
            _ => None,
        }
    }

    /// Returns a rank's part of a copy between ranks; `None` for any other operation.
    pub(in crate::ops) fn crossing(&self, name: &str) -> Option<&Crossing> {
        match self.find(name)? {
            Attr::Crossing(crossing) => Some(crossing),
            _ => None,
        }
    }

    /// The declared kernel; `None` for any other operation.
    pub(in crate::ops) fn user_kernel(&self, name: &str) -> Option<&UserKernel> {
        match self.find(name)? {
            Attr::UserKernel(kernel) => Some(kernel),
            _ => None,
        }
    }
}

impl PartialEq for Attrs {
    fn eq(&self, other: &Self) -> bool {
        self.values.len() == other.values.len()
            && self.values.iter().zip(&other.values).all(|(a, b)| a.0 == b.0 && a.1 == b.1)
    }
}

impl Eq for Attrs {}

impl std::hash::Hash for Attrs {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.values.iter().for_each(|(_, value, _)| value.hash(state));
    }
}

impl fmt::Debug for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.values.iter().map(|(name, value, _)| (name, value))).finish()
    }
}
