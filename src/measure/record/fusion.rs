//! The operations that `--fuse` merged, and those that it did not.

use serde::{Deserialize, Serialize};

use crate::base::{Bytes, SrcSpan, counted};
use crate::compile::Compiled;
use crate::fuse::Fusion;

/// The result of fusing a program's operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FusionRecord {
    /// Operations that replace several others.
    pub merged: Vec<MergedRecord>,
    /// Pairs of operations that were not fused.
    pub broken: Vec<BrokenRecord>,
    /// Reason why the program ran without merged operations; `None` if it ran with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// An operation that replaces several others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergedRecord {
    /// Label of the operation, such as `f[3].up+act`.
    pub name: String,
    /// Name of the operation, such as `map`.
    pub operation: String,
    /// The kinds of the operations that it replaces, in the order of the text.
    pub replaces: Vec<String>,
    /// Source location of the last operation that was replaced.
    pub place: String,
    /// Bytes that each merge saves from being moved to and from memory.
    pub bytes_saved: u64,
    /// Number of equal merges, in other turns of a loop or in other slots.
    pub count: usize,
}

/// A pair of operations that was not fused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrokenRecord {
    pub first: String,
    pub second: String,
    /// Source location of the second operation.
    pub place: String,
    pub why: String,
    /// Number of equal pairs, in other turns of a loop or in other slots.
    pub count: usize,
}

impl FusionRecord {
    /// Creates the record of a fusion. `place` describes a source location.
    pub fn of(fusion: &Fusion, place: &dyn Fn(SrcSpan) -> String) -> FusionRecord {
        let merged = fusion.merged.iter().map(|one| MergedRecord {
            name: one.name.clone(),
            operation: one.operation.to_owned(),
            replaces: one.members.iter().map(|member| member.operation.clone()).collect(),
            place: one.members.last().map(|member| place(member.span)).unwrap_or_default(),
            bytes_saved: one.bytes_saved,
            count: one.count,
        });
        let broken = fusion.unfused.iter().map(|one| BrokenRecord {
            first: one.first.name.clone(),
            second: one.second.name.clone(),
            place: place(one.second.span),
            why: one.why.text(place),
            count: one.count,
        });
        FusionRecord { merged: merged.collect(), broken: broken.collect(), refused: None }
    }

    /// The result of `--fuse` for a rank; `None` without the option.
    pub fn of_rank(compiled: &Compiled, rank: usize) -> Option<FusionRecord> {
        let record = FusionRecord::of(compiled.fused.get(rank)?, &|span| compiled.sources.place(span));
        Some(FusionRecord { refused: compiled.refused.clone(), ..record })
    }

    /// The result in a line.
    pub fn summary(&self) -> String {
        if let Some(why) = &self.refused {
            return format!("not fused: {why}");
        }
        let made: usize = self.merged.iter().map(|one| one.count).sum();
        let replaced: usize = self.merged.iter().map(|one| one.count * one.replaces.len()).sum();
        let saved: u64 = self.merged.iter().map(|one| one.count as u64 * one.bytes_saved).sum();
        match made {
            0 => "fused: no operation could be merged with another".to_owned(),
            _ => format!("fused: {} in place of {replaced}, {} less moved", counted(made, "operation"), Bytes(saved)),
        }
    }

    /// Lines about everything that was merged, and about chains that were not. If nothing was merged, one line with the
    /// reason.
    pub fn lines(&self) -> Vec<String> {
        let times = |count: usize| if count > 1 { format!(" ({count} times)") } else { String::new() };
        let mut lines = vec![self.summary()];
        if self.refused.is_some() {
            return lines;
        }
        lines.extend(self.merged.iter().map(|one| {
            let (replaced, saved) = (one.replaces.join(" + "), Bytes(one.bytes_saved));
            format!("  {}: {} for {replaced}, {saved} less moved{}", one.name, one.operation, times(one.count))
        }));
        if !self.broken.is_empty() {
            lines.push("not fused:".to_owned());
        }
        let broken = |one: &BrokenRecord| {
            format!("  {} -> {} at {}: {}{}", one.first, one.second, one.place, one.why, times(one.count))
        };
        lines.extend(self.broken.iter().map(broken));
        lines
    }
}
