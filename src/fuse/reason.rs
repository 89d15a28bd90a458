//! The reasons why two operations are not fused.

use crate::base::SrcSpan;
use crate::ops::fused::NotFused;

/// Reason why two operations are not fused.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    /// An operation between the two, past which neither can be moved. `stream` is `None` if the program has a single stream.
    Between { operation: String, stream: Option<String>, span: SrcSpan },
    /// The operations run on different streams, whose names these are.
    Streams(String, String),
    /// Another operation also uses the value that the first passes to the second.
    Used { value: String, user: String, span: SrcSpan },
    /// The value is stored in this buffer, which the merged operation cannot write.
    Kept(String),
    /// No operation reads this result of the first, but it must be computed.
    Unread(String),
    /// The two operations use the same memory as different slices, such as `x` and `x[0..8]`, and one of them writes it.
    /// Holds the slice that is written.
    Overlap(String),
    /// Two operations write the same memory. One merged operation would write both results in no particular order.
    Overwritten(String),
    /// A metric or an expectation with this set of operations counts only one of them.
    Metric(String),
    /// The catalogue has no operation that does the work of both, for any shapes. Holds the names of both.
    Kinds(String, String),
    /// More than this number of operations are between them.
    Far(usize),
    /// The catalogue has an operation that does the work of both, but not in this case.
    NotFused(NotFused),
}

impl Obstacle {
    /// The reason in words. `place` describes a location of the text.
    pub fn text(&self, place: &dyn Fn(SrcSpan) -> String) -> String {
        match self {
            Obstacle::Between { operation, stream: Some(stream), span } => {
                format!("broken by `{operation}` on stream `{stream}` at {}", place(*span))
            }
            Obstacle::Between { operation, stream: None, span } => {
                format!("broken by `{operation}` at {}", place(*span))
            }
            Obstacle::Streams(first, second) => format!("they are on the streams `{first}` and `{second}`"),
            Obstacle::Used { value, user, span } => {
                format!("`{value}` is also used by `{user}` at {}", place(*span))
            }
            Obstacle::Kept(value) => {
                format!("the merged operation would have to store the buffer `{value}` too, which it cannot")
            }
            Obstacle::Unread(value) => {
                format!("`{value}` is a result that nothing reads, and is computed all the same")
            }
            Obstacle::Overlap(value) => {
                format!("one writes a part of `{value}` that the other uses as another slice")
            }
            Obstacle::Overwritten(value) => {
                format!("both write `{value}`, and one operation would store one over the other")
            }
            Obstacle::Kinds(first, second) => format!("no operation does the work of `{first}` and `{second}`"),
            Obstacle::Metric(set) => {
                format!("a metric or an expectation names `{set}`, which has one of them only")
            }
            Obstacle::Far(count) => format!("more than {count} operations are between them"),
            Obstacle::NotFused(apart) => apart_text(*apart),
        }
    }
}

fn apart_text(apart: NotFused) -> String {
    match apart {
        NotFused::Rounded(dtype) => format!("the value between them is {dtype}, which rounds it to fewer values"),
        NotFused::Compute(first, second) => format!("they compute in {first} and {second}"),
        NotFused::Shape => "they go over different shapes".to_owned(),
        NotFused::Large => "one kernel would have too many inputs, outputs or steps".to_owned(),
        NotFused::Rows => "its rows are few and so long that several blocks share one".to_owned(),
        NotFused::Library => "no library computes this with a product".to_owned(),
        NotFused::Epilogue => {
            "a product takes only a bias, `relu`, `gelu`, `gelu_tanh` or `silu`, and a sum with its output".to_owned()
        }
    }
}
