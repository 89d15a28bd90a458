//! Errors in the names, types and values of a file. Errors about slices and limits are enums of their own, included
//! here.

mod gradients;
mod host_streams;
mod kernels;
mod limits;
mod modules;
mod peers;
mod slices;
mod structure;
mod traces;

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

use crate::base::SrcSpan;
use crate::ops::{self, OpError};

pub use gradients::GradientError;
pub use host_streams::HostStreamError;
pub use kernels::KernelError;
pub use limits::LimitError;
pub use modules::ModuleError;
pub use peers::PeerError;
pub use slices::SliceError;
pub use structure::StructureError;
pub use traces::TraceError;

/// An error in the names, types or values of a file.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum ModelError {
    // --- Names ----------------------------------------------------------------------------------------------
    #[error("there is no `{name}` here")]
    #[diagnostic(code(aorta::model::unknown_name))]
    UnknownName {
        name: String,
        #[label("not known here")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("`{name}` is declared below")]
    #[diagnostic(code(aorta::model::declared_below), help("{help}"))]
    DeclaredBelow {
        name: String,
        help: String,
        #[label("used here")]
        at: SourceSpan,
        #[label("declared here")]
        declared: SourceSpan,
    },

    #[error("`{name}` is already defined")]
    #[diagnostic(code(aorta::model::redefined), help("{help}"))]
    Redefined {
        name: String,
        help: String,
        #[label("{} meaning", if at.offset() < first.offset() { "first" } else { "second" })]
        at: SourceSpan,
        #[label("{} meaning", if at.offset() < first.offset() { "second" } else { "first" })]
        first: SourceSpan,
    },

    #[error("`{name}` is a name of the language")]
    #[diagnostic(code(aorta::model::builtin_name), help("choose another name, such as `my_{name}`"))]
    BuiltinName {
        name: String,
        #[label("`{name}` {meaning}")]
        at: SourceSpan,
        meaning: &'static str,
    },

    #[error("there is no operation or `def` `{name}`")]
    #[diagnostic(code(aorta::model::unknown_operation))]
    UnknownOperation {
        name: String,
        #[label("not known")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("there is no function `{name}`{of}")]
    #[diagnostic(code(aorta::model::unknown_function))]
    UnknownFunction {
        name: String,
        /// The kind of value that the function was called with, such as ` of figures`; empty if it does not matter.
        of: &'static str,
        #[label("not known")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("`{of}` has no option `{name}`")]
    #[diagnostic(code(aorta::model::unknown_option))]
    UnknownOption {
        of: String,
        name: String,
        #[label("not an option of `{of}`")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("`{name}` is given twice")]
    #[diagnostic(code(aorta::model::given_twice), help("remove one of them"))]
    GivenTwice {
        name: String,
        #[label("second")]
        at: SourceSpan,
        #[label("first")]
        first: SourceSpan,
    },

    #[error("there is no parameter `{name}`")]
    #[diagnostic(code(aorta::model::unknown_parameter))]
    UnknownParameter {
        name: String,
        #[label("not a `param` of the file")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("there is no preset `{name}`")]
    #[diagnostic(code(aorta::model::unknown_preset))]
    UnknownPreset {
        name: String,
        #[help]
        help: Option<String>,
    },

    #[error("`{name}` has no `{member}`")]
    #[diagnostic(code(aorta::model::unknown_member))]
    UnknownMember {
        name: String,
        member: String,
        #[label("no such member")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    // --- Types ----------------------------------------------------------------------------------------------
    #[error("expected {expected}, found {found}")]
    #[diagnostic(code(aorta::model::wrong_type))]
    WrongType {
        expected: String,
        found: String,
        #[label("this is {found}")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("`{op}` cannot combine {left} and {right}")]
    #[diagnostic(code(aorta::model::units_differ), help("{help}"))]
    UnitsDiffer {
        op: &'static str,
        help: String,
        left: String,
        #[label("{left}")]
        left_at: SourceSpan,
        right: String,
        #[label("{right}")]
        right_at: SourceSpan,
    },

    #[error("expected a whole number, found {value}")]
    #[diagnostic(code(aorta::model::not_whole), help("{help}"))]
    NotWhole {
        value: String,
        #[label("is {value}")]
        at: SourceSpan,
        #[label("this division leaves a remainder")]
        division: Option<SourceSpan>,
        help: &'static str,
    },

    #[error("division by zero")]
    #[diagnostic(
        code(aorta::model::division_by_zero),
        help("choose another value, or leave the case out: `if n == 0 {{ 0 }} else {{ a / n }}`")
    )]
    DivisionByZero {
        #[label("this is 0")]
        at: SourceSpan,
    },

    #[error("the result is too large")]
    #[diagnostic(code(aorta::model::overflow), help("integers go up to 9223372036854775807; `1e20` is a float"))]
    Overflow {
        #[label("exceeds the largest number")]
        at: SourceSpan,
    },

    #[error("`{function}` takes {expected}, and {found} given")]
    #[diagnostic(code(aorta::model::argument_count))]
    ArgumentCount {
        function: String,
        expected: String,
        found: String,
        #[label("expected {expected}")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("`{op}` needs the option `{option}`, {kind}")]
    #[diagnostic(code(aorta::model::missing_option), help("it is `{usage}`; `{option}`: {doc}"))]
    MissingOption {
        op: &'static str,
        option: &'static str,
        kind: String,
        doc: &'static str,
        usage: String,
        #[label("`{option}` is not given")]
        at: SourceSpan,
    },

    #[error(transparent)]
    #[diagnostic(transparent)]
    Slice(#[from] SliceError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Gradient(#[from] GradientError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Kernel(#[from] KernelError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Structure(#[from] StructureError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Trace(#[from] TraceError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    HostStream(#[from] HostStreamError),

    // --- Declarations ---------------------------------------------------------------------------------------
    #[error("`{name}` cannot be {value}")]
    #[diagnostic(code(aorta::model::not_allowed), help("{help}"))]
    NotAllowed {
        name: String,
        value: String,
        #[label("this is {value}")]
        at: SourceSpan,
        #[label("allowed: {allowed}")]
        declared: SourceSpan,
        allowed: String,
        help: String,
    },

    #[error("{what} is {value}")]
    #[diagnostic(code(aorta::model::bad_size), help("{help}"))]
    BadSize {
        what: String,
        value: String,
        #[label("is {value}")]
        at: SourceSpan,
        help: &'static str,
    },

    #[error("not met: {message}")]
    #[diagnostic(code(aorta::model::requirement), help("{help}"))]
    Requirement {
        message: String,
        /// The reason why the condition is false, such as `world % 2` is 1.
        reason: String,
        #[label("{reason}")]
        at: SourceSpan,
        help: String,
    },

    #[error("`{name}` has no value outside of the step")]
    #[diagnostic(
        code(aorta::model::outside_step),
        help("it differs from iteration to iteration: use it inside `step {{ … }}`{more}")
    )]
    OutsideStep {
        name: String,
        /// A further part of the help; empty for none.
        more: &'static str,
        #[label("used outside of the step")]
        at: SourceSpan,
    },

    #[error("the file has no `step`")]
    #[diagnostic(
        code(aorta::model::no_step),
        help(
            "`step {{ … }}` holds the operations of one iteration; a whole file may be:\nbuffer x: f32[1024]\nstep {{ \
             map(x * 2 -> x) }}"
        )
    )]
    NoStep {
        #[label("a `step` was expected by the end of the file")]
        at: SourceSpan,
    },

    #[error("the step has no operation")]
    #[diagnostic(code(aorta::model::nothing_to_run), help("{help}"))]
    NothingToRun {
        #[label("nothing in here is run")]
        at: SourceSpan,
        help: &'static str,
    },

    #[error("there is more than one `{what}`")]
    #[diagnostic(code(aorta::model::second), help("merge them into one"))]
    Second {
        what: &'static str,
        #[label("second")]
        at: SourceSpan,
        #[label("first")]
        first: SourceSpan,
    },

    #[error("`{name}` has one value in a run, and this is a list")]
    #[diagnostic(
        code(aorta::model::list_of_values),
        help(
            "`aorta sweep FILE` runs one value after the other: of a preset's list with `--preset`, of others with \
             `--set {name}=1,2`; for a list that nobody sets, write `let` in place of `param`"
        )
    )]
    ListOfValues {
        name: String,
        #[label("several values")]
        at: SourceSpan,
    },

    #[error("the mesh does not fit {world}")]
    #[diagnostic(
        code(aorta::model::mesh),
        help(
            "its factors have to multiply to the number of ranks: {give}, or let a factor follow from the \
             others, `mesh dp = world / 4, tp = 4`"
        )
    )]
    Mesh {
        /// The number of ranks.
        world: String,
        why: String,
        /// The change of the text that fixes the error.
        give: String,
        #[label("{why}")]
        at: SourceSpan,
    },

    // --- Statements -----------------------------------------------------------------------------------------
    #[error("`{name}` calls itself")]
    #[diagnostic(
        code(aorta::model::recursion),
        help(
            "{}", match hides_operation(name) {
                Some(operation) => format!("the `def` hides the operation `{operation}`: give the `def` another name"),
                None => "a `def` is expanded in place of its call, and recursion would never end: write a loop, \
                         `for i in 0..n { … }`".to_owned(),
            }
        )
    )]
    Recursion {
        name: String,
        #[label("this call leads back to `{name}`")]
        at: SourceSpan,
    },

    #[error("`{name}` is read before anything is written to it")]
    #[diagnostic(
        code(aorta::model::read_before_write),
        help(
            "write it above: let an operation end with `-> {name}`; to write a view or a slice of it, give it a type in the head of \
             the `def`: `-> {name}: f32[4, 8]`"
        )
    )]
    ReadBeforeWrite {
        name: String,
        #[label("nothing has written it yet")]
        at: SourceSpan,
    },

    #[error("this reads `{name}{missing}`, which nothing has written")]
    #[diagnostic(code(aorta::model::unwritten), help("{help}"))]
    Unwritten {
        name: String,
        missing: String,
        help: &'static str,
        #[label("the contents that it reads there are undefined")]
        at: SourceSpan,
    },

    #[error("`{name}` is declared in a block, and cannot {wants}")]
    #[diagnostic(code(aorta::model::local_buffer), help("{help}"))]
    LocalBuffer {
        name: String,
        /// The request of the declaration: another space, or initial contents.
        wants: String,
        why: &'static str,
        help: String,
        #[label("{why}")]
        at: SourceSpan,
    },

    #[error("the label `{name}` exists already")]
    #[diagnostic(code(aorta::model::label_twice), help("{help}"))]
    LabelTwice {
        name: String,
        help: &'static str,
        #[label("second")]
        at: SourceSpan,
        #[label("first")]
        first: SourceSpan,
    },

    #[error("there is no label `{name}{index}` yet")]
    #[diagnostic(code(aorta::model::no_member), help("{help}"))]
    NoMember {
        name: String,
        index: String,
        help: String,
        #[label("not known here")]
        at: SourceSpan,
    },

    #[error("`{name}` is an output: one operation cannot read and write it here")]
    #[diagnostic(code(aorta::model::overlapping_operands), help("write to another buffer; {exception}"))]
    Overlap {
        name: String,
        /// Last part of the help: the operations that can write what they read, or the reason why this one cannot.
        exception: &'static str,
        #[label("written here")]
        output: SourceSpan,
        #[label("the same memory")]
        other: SourceSpan,
    },

    #[error("`{name}` cannot hold two outputs of `{of}`")]
    #[diagnostic(
        code(aorta::model::overlapping_operands),
        help("give each output memory of its own, or write `_` in place of the one that you do not want")
    )]
    OutputTwice {
        name: String,
        /// The operation, kernel or definition.
        of: String,
        #[label("written here")]
        first: SourceSpan,
        #[label("and here, in the same memory")]
        second: SourceSpan,
    },

    #[error("`{name}` does not run over a group of ranks")]
    #[diagnostic(code(aorta::model::no_group), help("{help}"))]
    NoGroup {
        name: String,
        help: String,
        #[label("only a collective runs over a group")]
        at: SourceSpan,
    },

    #[error("{what} is not allowed in a `group`")]
    #[diagnostic(code(aorta::model::in_group), help("{help}"))]
    InGroup {
        what: String,
        help: &'static str,
        #[label("cannot be issued with the rest")]
        at: SourceSpan,
    },

    #[error("an operation cannot write to `{name}`")]
    #[diagnostic(code(aorta::model::written_type), help("{help}"))]
    WrittenType {
        name: String,
        why: &'static str,
        help: String,
        #[label("{why}")]
        at: SourceSpan,
    },

    #[error(transparent)]
    #[diagnostic(transparent)]
    Operation(#[from] OpError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Limit(#[from] LimitError),

    #[error(transparent)]
    #[diagnostic(transparent)]
    Peer(#[from] PeerError),

    // --- Figures --------------------------------------------------------------------------------------------
    #[error("`{name}` is no figure")]
    #[diagnostic(code(aorta::model::unknown_figure))]
    UnknownFigure {
        name: String,
        #[label("not known")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("`{name}` has no slot {slot}")]
    #[diagnostic(code(aorta::model::slot_out_of_range), help("{help}"))]
    SlotOutOfRange {
        name: String,
        slot: i64,
        slots: String,
        help: String,
        #[label("{slots}")]
        at: SourceSpan,
    },

    #[error("`{name}` has no slots")]
    #[diagnostic(code(aorta::model::no_slots), help("leave the slot out"))]
    NoSlots {
        name: String,
        #[label("has one value for all iterations")]
        at: SourceSpan,
    },

    #[error("this metric is {found}, and its unit `{unit}` is for {of}")]
    #[diagnostic(
        code(aorta::model::metric_unit),
        help("write a unit that fits, or leave it out to print the unit of the expression")
    )]
    MetricUnit {
        found: String,
        unit: &'static str,
        of: String,
        #[label("this is {found}")]
        at: SourceSpan,
    },

    #[error("`{name}` is not a stream, label or phase")]
    #[diagnostic(code(aorta::model::unknown_set), help("{help}"))]
    UnknownSet {
        name: String,
        #[label("no operations have this name")]
        at: SourceSpan,
        help: String,
    },
}

/// Operations that can write what they read.
pub(super) const IN_PLACE: &str = "elementwise operations and some collectives may write the very slice that they read";

impl ModelError {
    /// Returns the error for a call with a wrong number of arguments or outputs, `given`.
    pub(super) fn argument_count(
        function: impl Into<String>,
        expected: impl Into<String>,
        given: usize,
        at: SrcSpan,
        help: impl Into<String>,
    ) -> ModelError {
        let (function, expected, help) = (function.into(), expected.into(), Some(help.into()));
        let found = match given {
            0 => "none is".to_owned(),
            1 => "1 is".to_owned(),
            given => format!("{given} are"),
        };
        ModelError::ArgumentCount { function, expected, found, at: at.into(), help }
    }

    /// Location as an offset, for sorting.
    pub fn offset(&self) -> usize {
        self.location().start as usize
    }

    /// Location of the first label; the start of the text if there is none.
    pub fn location(&self) -> SrcSpan {
        let first = self.labels().and_then(|mut labels| labels.next());
        first.map_or_else(SrcSpan::default, |label| SrcSpan::new(label.offset(), label.offset() + label.len()))
    }
}

/// The operation that a definition of this name hides; `None` if there is none. The name may have its module before a point.
fn hides_operation(name: &str) -> Option<&str> {
    name.rsplit('.').next().filter(|name| ops::find(name).is_some())
}
