//! Options of a `grad`.

use crate::base::{DType, counted};
use crate::ops::OpError;
use crate::syntax::ast::ExprKind;
use crate::syntax::ast::{Call, Expr};

use super::super::analyzer::Analyzer;
use crate::model::names::callee::GRADIENT;
use crate::model::values::value::Value;

/// Options of a `grad`.
pub(super) struct GradientOptions {
    /// Outputs to whose contents gradients are added.
    pub accumulate: Accumulate,
    /// Type to which gradients are rounded before products with 8-bit factors; `None` leaves them as they are.
    pub quantize: Option<DType>,
}

/// For each output, true if its gradient is added to the contents instead of replacing them.
pub(super) enum Accumulate {
    /// The same value for all outputs.
    All(bool),
    /// A value for each output of the `grad`.
    Each(Vec<bool>),
}

impl Accumulate {
    /// The value for the output with this number, or for those that are not given.
    pub fn of(&self, output: usize) -> bool {
        match self {
            Accumulate::All(value) => *value,
            Accumulate::Each(values) => values.get(output).copied().unwrap_or(false),
        }
    }
}

impl Analyzer<'_> {
    /// Evaluates the options; `None` after an error.
    pub(super) fn gradient_options(&mut self, call: &Call) -> Option<GradientOptions> {
        let mut options = GradientOptions { accumulate: Accumulate::All(false), quantize: None };
        if !self.options_are_known(GRADIENT, &call.options, &["accumulate", "quantize"]) {
            return None;
        }
        for setting in &call.options {
            match self.names.name(setting.key.symbol) {
                "accumulate" => options.accumulate = self.accumulate(call, &setting.value)?,
                "quantize" => {
                    let help =
                        "`quantize`: 8-bit type to which gradients are rounded before products with 8-bit matrices"
                            .to_owned();
                    let word = self.word_or_help(&setting.value, &["none", "e4m3", "e5m2"], Some(help))?;
                    options.quantize = DType::from_name(word);
                }
                _ => unreachable!("other options have been refused"),
            }
        }
        Some(options)
    }

    /// Evaluates `accumulate`: one value for all outputs of the call, or a list with one for each.
    fn accumulate(&mut self, call: &Call, expr: &Expr) -> Option<Accumulate> {
        let expected = "`true` or `false`, or a list with one of them for each output";
        let items = match self.eval(expr) {
            Value::Unknown => return None,
            Value::Bool(value) => return Some(Accumulate::All(value)),
            Value::List(items) => items,
            other => return self.wrong_type(expected, &other, expr.span),
        };
        let mut values = Vec::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            // A list can also be a name.
            let span = if let ExprKind::List(parts) = &expr.kind { parts[place].span } else { expr.span };
            match item {
                Value::Bool(value) => values.push(*value),
                other => return self.wrong_type("`true` or `false`", other, span),
            }
        }
        if values.len() != call.outputs.len() {
            let (outputs, given) = (counted(call.outputs.len(), "output"), counted(values.len(), "value"));
            let why = format!("it has {given} for {outputs}");
            let help = match call.outputs.is_empty() {
                true => "name the outputs: `grad(f, 1, accumulate: [true, false] -> dx, dw)`",
                false => "write one value for all outputs, or a list with one for each, also for `_`",
            };
            let help = help.into();
            let at = expr.span.into();
            return self.fail(OpError::Option { op: GRADIENT, option: "accumulate", why, help, at });
        }
        Some(Accumulate::Each(values))
    }
}
