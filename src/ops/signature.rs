//! Signatures of operations: inputs, outputs and options.

use super::{Attr, Attrs, Operation, OptionSpec, Preset};

/// The most tensors that an operation takes which takes any number.
const MOST_TENSORS: usize = 64;

/// The inputs, outputs and options of an operation.
#[derive(Debug)]
pub struct Signature {
    pub inputs: &'static [Input],
    /// Names of the outputs; the first may be left without.
    pub outputs: &'static [&'static str],
    pub options: &'static [OptionSpec],
}

impl Signature {
    /// The options of a use that no text has: those given, and the defaults of all others, in the order of the signature.
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

    /// The signature of operations without operands, such as `nop()`, and of those that no text can name.
    pub const NOTHING: Signature = Signature { inputs: &[], outputs: &[], options: &[] };

    /// The fewest inputs that a use may have.
    pub fn least(&self) -> usize {
        self.inputs.iter().filter(|input| !matches!(input, Input::Optional(_))).count()
    }

    /// The most inputs that a use may have.
    pub fn most(&self) -> usize {
        match self.inputs {
            [.., Input::Expressions] => self.outputs.len(),
            [.., Input::Tensors(_)] => MOST_TENSORS,
            inputs => inputs.len(),
        }
    }

    /// Returns the input at a place between the parentheses, counted from 0.
    pub fn input(&self, place: usize) -> Option<&'static Input> {
        let last = self.inputs.last().filter(|_| self.repeats() && place < self.most());
        self.inputs.get(place).or(last)
    }

    /// Whether the last input may be given several times.
    fn repeats(&self) -> bool {
        matches!(self.inputs, [.., Input::Expressions | Input::Tensors(_)])
    }
}

/// One place before the arrow.
#[derive(Debug)]
pub enum Input {
    Tensor(&'static str),
    /// A tensor that may be left away, behind all others.
    Optional(&'static str),
    /// One or more tensors, behind all others.
    Tensors(&'static str),
    /// A value that is known before the run.
    Scalar(OptionSpec),
    /// An elementwise expression; the tensors that it names are the inputs.
    Expression,
    /// One or more elementwise expressions, an output for each; the tensors that they name are the inputs.
    Expressions,
}

/// `gemm(a, b -> c, transpose_a:, …)`: an operation as it is used.
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
        Preset::Required => format!("{}:", option.name),
        _ => format!("[{}:]", option.name),
    }));
    let arrow = match signature.outputs {
        [] => String::new(),
        [first, _, ..] if signature.repeats() => format!(" -> {first}, …"),
        outputs => format!(" -> {}", outputs.join(", ")),
    };
    format!("{}({}{arrow})", operation.name(), parts.join(", "))
}
