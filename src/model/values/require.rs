//! `require`: conditions on parameters and ranks that hold before a run.

use crate::syntax::ast::{BinaryOp, Expr, ExprKind};
use crate::syntax::{walk, written};

use super::value::Value;
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;

impl Analyzer<'_> {
    /// Reports a condition that is false, with the message that the file gives for it.
    pub(in crate::model) fn require(&mut self, condition: &Expr, message: Option<&str>) {
        if self.eval_bool(condition) != Some(false) {
            return;
        }
        let message = match message {
            Some(message) => crate::base::visible::one_line(message).into_owned(),
            None => "a requirement of the file".to_owned(),
        };
        let (reason, help) = (self.reason(condition), self.require_help(condition));
        self.error(ModelError::Requirement { message, reason, at: condition.span.into(), help });
    }

    /// The values that make a condition false: `world % 2` is 1.
    fn reason(&mut self, condition: &Expr) -> String {
        match &condition.kind {
            ExprKind::Binary { op: BinaryOp::And, left, right } => match self.eval_bool(left) {
                Some(false) => self.reason(left),
                _ => self.reason(right),
            },
            ExprKind::Binary { op, left, right } if *op != BinaryOp::Or => {
                let mut known = Vec::new();
                for side in [left, right] {
                    let value = self.eval(side);
                    let text = value.text(&self.names);
                    let name = written(side, &self.names);
                    if name != text && !matches!(value, Value::List(_)) {
                        known.push(format!("`{name}` is {text}"));
                    }
                }
                known.join(", ")
            }
            _ => "this is false".to_owned(),
        }
    }

    /// The option that could make a condition true.
    fn require_help(&self, condition: &Expr) -> String {
        let mut ranks = false;
        let mut param = None;
        walk::expr(condition, &mut |part| {
            let Some(symbol) = part.as_name() else { return };
            ranks |= symbol == self.builtins.world || symbol == self.builtins.rank;
            if param.is_none() && self.ast.params().any(|name| name.symbol == symbol) {
                param = Some(self.names.name(symbol));
            }
        });
        match (param, ranks) {
            (Some(param), true) => format!("set a parameter, or the number of ranks: `--set {param}=…` or `--ranks N`"),
            (Some(param), false) => format!("set a parameter that it names: `--set {param}=…`"),
            (None, true) => "choose the number of ranks: `--ranks N`".to_owned(),
            (None, false) => "change the values that the condition names".to_owned(),
        }
    }
}
