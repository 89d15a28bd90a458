//! Why operations stay apart.

use crate::base::SrcSpan;
use crate::ops::fused::Apart;

/// Why two operations stay apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// An operation between them, in the way of both.
    Between { operation: String, stream: Option<String>, span: SrcSpan },
    /// The two operations run on different streams, whose names these are.
    Streams(String, String),
    /// Another operation uses the value between them.
    Used { value: String, user: String, span: SrcSpan },
    /// The value between them is that of a buffer, which keeps it.
    Kept(String),
    /// The first has a result that nothing reads: work that the file asks for all the same.
    Unread(String),
    /// The two operations use the same memory as different slices, such as `x` and `x[0..8]`, and one of them writes it.
    /// Holds the slice that is written.
    Overlap(String),
    /// Both write the same memory; a merged operation writes its outputs in no particular order.
    Overwritten(String),
    /// A metric or an expectation counts one of them alone.
    Metric(String),
    /// No operation of the catalogue does the work of both, whatever their shapes.
    Kinds(String, String),
    /// More operations lie between them than are looked through.
    Far(usize),
    /// An operation does the work of both in other cases, but not in this one.
    Apart(Apart),
}

impl Reason {
    /// The reason in words. `place` describes a location of the text.
    pub fn text(&self, place: &dyn Fn(SrcSpan) -> String) -> String {
        match self {
            Reason::Between { operation, stream: Some(stream), span } => {
                format!("broken by `{operation}` on stream `{stream}` at {}", place(*span))
            }
            Reason::Between { operation, stream: None, span } => format!("broken by `{operation}` at {}", place(*span)),
            Reason::Streams(first, second) => format!("they are on the streams `{first}` and `{second}`"),
            Reason::Used { value, user, span } => format!("`{value}` is also used by `{user}` at {}", place(*span)),
            Reason::Kept(value) => format!("`{value}` is a buffer, which keeps its value"),
            Reason::Unread(value) => format!("`{value}` is a result that nothing reads, and is computed all the same"),
            Reason::Overlap(value) => format!("one writes a part of `{value}` that the other uses as another slice"),
            Reason::Overwritten(value) => {
                format!("both write `{value}`, and one operation would store one over the other")
            }
            Reason::Kinds(first, second) => format!("no operation does the work of `{first}` and `{second}`"),
            Reason::Metric(set) => format!("a metric or an expectation names `{set}`, which has one of them only"),
            Reason::Far(count) => format!("more than {count} operations lie between them"),
            Reason::Apart(apart) => apart_text(*apart),
        }
    }
}

fn apart_text(apart: Apart) -> String {
    match apart {
        Apart::Rounded(dtype) => format!("the value between them is {dtype}, which rounds it to fewer values"),
        Apart::Compute(first, second) => format!("they compute in {first} and {second}"),
        Apart::Shape => "they go over different shapes".to_owned(),
        Apart::Large => "one kernel would have too many inputs, outputs or steps".to_owned(),
        Apart::Rows => "its rows are few and so long that several blocks share one".to_owned(),
        Apart::Library => "no library computes this with a product".to_owned(),
    }
}
