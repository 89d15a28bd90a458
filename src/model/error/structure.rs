//! Errors in the structure of a file's streams, buffers and groups.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

use crate::base::counted;

/// A family, a buffer with parts or a group of ranks that does not fit its use.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum StructureError {
    #[error("`{option}` has {}, and the family `{name}` has {members} streams", counted(*given, "value"))]
    #[diagnostic(
        code(aorta::model::member_count),
        help("give one value for all streams, `{option}: …`, or a list of {members}")
    )]
    MemberCount {
        option: String,
        name: String,
        given: usize,
        members: u64,
        #[label("{} for {members} streams", counted(*given, "value"))]
        at: SourceSpan,
    },

    #[error("`{option}` has a list of {given}, and `{name}` is a single stream")]
    #[diagnostic(
        code(aorta::model::member_count),
        help("write one value, `{option}: …`; a list is for a family, such as `stream {name}[{given}]`")
    )]
    MembersOfOne {
        option: String,
        name: String,
        given: usize,
        #[label("{} for one stream", counted(*given, "value"))]
        at: SourceSpan,
    },

    #[error("these groups do not combine: {why}")]
    #[diagnostic(code(aorta::model::group_list), help("{help}"))]
    GroupList {
        why: String,
        help: &'static str,
        #[label("a group of several factors")]
        at: SourceSpan,
    },

    #[error("the part `{name}` exists already")]
    #[diagnostic(code(aorta::model::part_twice), help("give each part a name of its own"))]
    PartTwice {
        name: String,
        #[label("second")]
        at: SourceSpan,
        #[label("first")]
        first: SourceSpan,
    },

    #[error("`{name}` is not a single tensor: its parts have several types")]
    #[diagnostic(
        code(aorta::model::no_whole),
        help("name a part: `{name}.{part}`; parts of one type are also one flat tensor together")
    )]
    NoWhole {
        name: String,
        part: String,
        #[label("all parts at once")]
        at: SourceSpan,
    },
}
