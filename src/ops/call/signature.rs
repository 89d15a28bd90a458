//! Signatures of operations: name, category, inputs, outputs and options.

use crate::base::named::named;
use crate::ops::{Attr, Attrs, Operation, OptionSpec, Preset};

/// Maximum number of inputs of an operation that accepts any number of tensors.
const MAX_TENSORS: usize = 64;

/// The syntax of an operation's calls, and the operation's row in the documentation's tables.
#[derive(Debug)]
pub struct Signature {
    pub name: &'static str,
    /// A one-line description for the documentation, without a final full stop.
    pub summary: &'static str,
    pub category: Category,
    pub inputs: &'static [Input],
    /// Names of the outputs, in order. A call can leave out trailing outputs, or write `_` for one: they become scratch
    /// memory.
    pub outputs: &'static [&'static str],
    pub options: &'static [OptionSpec],
}

/// Defines [`Operation::signature`] by the fields of the [`Signature`].
macro_rules! signature {
    ($($fields:tt)*) => {
        fn signature(&self) -> &'static Signature {
            const { &Signature { $($fields)* } }
        }
    };
}

pub(in crate::ops) use signature;

impl Signature {
    /// Returns the options of a call that no text contains, in signature order: those in `given`, and the defaults of
    /// all others.
    pub fn attrs(&self, given: &[(&'static str, Attr)]) -> Attrs {
        let scalars = self.inputs.iter().filter_map(|input| match input {
            Input::Scalar(option) => Some(option),
            _ => None,
        });
        let mut attrs = Attrs::default();
        for option in scalars.chain(self.options) {
            let value = given.iter().find(|(name, _)| *name == option.name).map(|(_, value)| value.clone());
            attrs.push(option.name, value.unwrap_or_else(|| option.default.value()), None);
        }
        attrs
    }

    /// Values of the fields that the signatures of operations without operands, such as `nop()`, and of internal
    /// operations leave at their defaults.
    pub const NOTHING: Signature =
        Signature { name: "", summary: "", category: Category::Synthetic, inputs: &[], outputs: &[], options: &[] };

    /// Minimum number of inputs that a call must have.
    pub fn least(&self) -> usize {
        self.inputs.iter().filter(|input| !matches!(input, Input::Optional(_))).count()
    }

    /// Maximum number of inputs that a call may have.
    pub fn most(&self) -> usize {
        match self.inputs {
            [.., Input::Expressions] => self.outputs.len(),
            [.., Input::Tensors(_)] => MAX_TENSORS,
            inputs => inputs.len(),
        }
    }

    /// Returns the definition of the input at a position, counted from 0; `None` if calls cannot have that many inputs.
    pub fn input(&self, place: usize) -> Option<&'static Input> {
        let last = self.inputs.last().filter(|_| self.repeats() && place < self.most());
        self.inputs.get(place).or(last)
    }

    /// True if the last input can be repeated.
    fn repeats(&self) -> bool {
        matches!(self.inputs, [.., Input::Expressions | Input::Tensors(_)])
    }
}

named! {
    /// The kind of work of an operation. Reports sum times by category.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Category {
        Matrix = "matrix",
        Elementwise = "elementwise",
        RowWise = "row-wise",
        Movement = "movement",
        Copy = "copy",
        Collective = "collective",
        Synthetic = "synthetic",
        /// A kernel that the file declares.
        Kernel = "kernel",
        /// A position in a stream at which nothing runs: `signal`, `wait`, `sync`.
        Marker = "marker",
    }
}

impl Category {
    /// True if kernels access all operands.
    pub fn needs_device(self) -> bool {
        matches!(self, Category::Matrix | Category::Elementwise | Category::RowWise | Category::Movement)
    }
}

/// A property that most operations lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// An output may be the same slice as an input.
    InPlace,
    /// Input and output may overlap if the smaller one is the part of the larger one that belongs to this rank.
    OwnPart,
    /// A host stream can run the operation, on threads of the CPU.
    OnHost,
    /// Only host streams can run the operation.
    HostOnly,
    /// Fusion may replace the inputs by an elementwise expression.
    TakesExpression,
    /// The output may be in the memory of another rank, as in `copy(x -> y at 1)`.
    WritesToPeers,
}

/// Definition of one input: a position before the arrow of a call.
#[derive(Debug)]
pub enum Input {
    Tensor(&'static str),
    /// A tensor that a call can omit. Follows all required inputs.
    Optional(&'static str),
    /// At least one tensor. Follows all other inputs.
    Tensors(&'static str),
    /// A value that is known before the run, given by position.
    Scalar(OptionSpec),
    /// An elementwise expression. The tensors that it names become the inputs of the operation.
    Expression,
    /// At least one elementwise expression, with an output each. The tensors that they name become the inputs.
    Expressions,
}

/// Returns the syntax of a call for messages, such as `gemm(a, b -> c, transpose_a:, …)`.
pub fn usage(operation: &dyn Operation) -> String {
    let signature = operation.signature();
    let mut parts: Vec<String> = signature
        .inputs
        .iter()
        .map(|input| match input {
            Input::Tensor(name) => (*name).to_owned(),
            Input::Optional(name) => format!("[{name}]"),
            Input::Scalar(option) => option.name.to_owned(),
            Input::Expression => "expression".to_owned(),
            Input::Expressions => "expression, …".to_owned(),
            Input::Tensors(name) => format!("{name}, …"),
        })
        .collect();
    parts.extend(signature.options.iter().map(|option| match option.default {
        Preset::Required => format!("{}: …", option.name),
        _ => format!("[{}:]", option.name),
    }));
    let arrow = match signature.outputs {
        [] => String::new(),
        [first, _, ..] if signature.repeats() => format!(" -> {first}, …"),
        outputs => format!(" -> {}", outputs.join(", ")),
    };
    format!("{}({}{arrow})", operation.name(), parts.join(", "))
}
