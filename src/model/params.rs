//! Parameters: their values from the caller, the preset or their defaults, checked against what they may be.

use rustc_hash::FxHashMap;

use crate::base::{DType, SrcSpan, Symbol, suggest};
use crate::syntax::ast::*;

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::value::{Number, Scalar, Value};

impl<'a> Analyzer<'a> {
    /// Gives each parameter its value: from the caller, else from the preset, else its default.
    pub(super) fn parameters(&mut self) {
        let ast = self.ast;
        let params: Vec<Name> = ast
            .decls
            .iter()
            .filter_map(|decl| match decl.kind {
                DeclKind::Param { name, .. } => Some(name),
                _ => None,
            })
            .collect();
        let known = |symbol: Symbol| params.iter().any(|param| param.symbol == symbol);
        let param_names: Vec<String> = params.iter().map(|param| self.names.name(param.symbol).to_owned()).collect();
        let mut given: FxHashMap<Symbol, &'a Expr> = FxHashMap::default();
        for decl in &ast.decls {
            let DeclKind::Preset { name, values } = &decl.kind else { continue };
            let chosen = self.options.preset.as_deref() == Some(self.names.name(name.symbol));
            let mut first: FxHashMap<Symbol, SrcSpan> = FxHashMap::default();
            for Binding { name, value } in values {
                let text = self.names.name(name.symbol).to_owned();
                if let Some(first) = first.insert(name.symbol, name.span) {
                    self.error(ModelError::GivenTwice { name: text, at: name.span.into(), first: first.into() });
                } else if !known(name.symbol) {
                    let help = suggest::did_you_mean(&text, param_names.iter().map(String::as_str));
                    self.error(ModelError::UnknownParameter { name: text, at: name.span.into(), help });
                } else if chosen {
                    given.insert(name.symbol, value);
                }
            }
        }
        if let Some(preset) = &self.options.preset {
            let presets: Vec<&str> = ast
                .decls
                .iter()
                .filter_map(|decl| match &decl.kind {
                    DeclKind::Preset { name, .. } => Some(self.names.name(name.symbol)),
                    _ => None,
                })
                .collect();
            if !presets.contains(&preset.as_str()) {
                let help = suggest::did_you_mean(preset, presets.iter().copied())
                    .or_else(|| presets.is_empty().then(|| "the file has none".to_owned()));
                self.error(ModelError::UnknownPreset { name: preset.clone(), help });
            }
        }
        for setting in &self.options.set {
            let symbol = self.names.intern(&setting.name);
            if known(symbol) {
                given.insert(symbol, &setting.value);
            } else {
                let help = suggest::did_you_mean(&setting.name, param_names.iter().map(String::as_str))
                    .or_else(|| param_names.is_empty().then(|| "the file has no parameters".to_owned()));
                let name = setting.name.clone();
                self.error(ModelError::UnknownParameter { name, at: setting.span.into(), help });
            }
        }
        self.expansion.given = given;
    }

    pub(super) fn parameter(&mut self, name: Name, default: &Expr, allowed: Option<&'a Expr>) {
        let words = match allowed {
            Some(Expr { kind: ExprKind::List(items), .. }) => items.iter().filter_map(Expr::as_name).collect(),
            _ => Vec::new(),
        };
        let unknown_word = |analyzer: &Self, expr: &Expr| {
            expr.as_name()
                .filter(|symbol| !words.is_empty() && !words.contains(symbol) && analyzer.scopes.get(*symbol).is_none())
        };
        if let Some(word) =
            unknown_word(self, default).filter(|word| DType::from_name(self.names.name(*word)).is_none())
        {
            let value = self.names.name(word).to_owned();
            self.not_allowed(name, value, default.span, allowed);
            self.scopes.declare(name.symbol, Value::Unknown);
            return;
        }
        let default_value = self.eval_word(default, &words);
        let (value, at) = match self.expansion.given.get(&name.symbol).copied() {
            None => (default_value, default.span),
            Some(given) => {
                let value = self.eval_word(given, &words);
                (self.adopt(&default_value, value, name, given.span, default.span), given.span)
            }
        };
        if let Value::List(_) = value {
            self.error(ModelError::NotYet {
                what: "a list of values for a parameter".to_owned(),
                help: "it makes a sweep, which comes with a later version; give one value: --set name=value".to_owned(),
                at: at.into(),
            });
        } else if let Some(allowed) = allowed {
            self.check_allowed(name, &value, at, allowed, &words);
        }
        if !matches!(value, Value::Unknown) {
            let text = value.text(&self.names);
            self.program.params.push((self.names.name(name.symbol).to_owned(), text));
        }
        self.scopes.declare(name.symbol, value);
    }

    /// An expression that may be a bare word of the list.
    fn eval_word(&mut self, expr: &Expr, words: &[Symbol]) -> Value {
        match expr.as_name() {
            // Values on the command line have names of their own interner: compare by text.
            Some(symbol) if self.scopes.get(symbol).is_none() && words.contains(&symbol) => Value::Word(symbol),
            _ => self.eval(expr),
        }
    }

    /// The value as the parameter's type, which its default gives.
    fn adopt(&mut self, default: &Value, value: Value, name: Name, at: SrcSpan, declared: SrcSpan) -> Value {
        match (default, &value) {
            (Value::Unknown, _) | (_, Value::Unknown) | (_, Value::List(_)) => value,
            (Value::Number(a), Value::Number(b)) if a.dimension == b.dimension => match (a.value, b.value) {
                (Scalar::Float(_), Scalar::Int(whole)) => {
                    Value::Number(Number { value: Scalar::Float(whole as f64), ..*b })
                }
                (Scalar::Int(_), Scalar::Float(_)) => match self.whole(*b, at) {
                    Some(whole) => Value::Number(Number { value: Scalar::Int(whole), ..*b }),
                    None => Value::Unknown,
                },
                _ => value,
            },
            (Value::Bool(_), Value::Bool(_))
            | (Value::Text(_), Value::Text(_))
            | (Value::Word(_), Value::Word(_))
            | (Value::DType(_), Value::DType(_)) => value,
            _ => {
                let allowed = match default {
                    Value::Number(number) => number.dimension.describe(),
                    Value::Bool(_) => "`true` or `false`".to_owned(),
                    Value::DType(_) => "an element type".to_owned(),
                    other => other.describe(&self.names),
                };
                self.error(ModelError::NotAllowed {
                    name: self.names.name(name.symbol).to_owned(),
                    value: value.describe(&self.names),
                    at: at.into(),
                    declared: declared.into(),
                    allowed,
                });
                Value::Unknown
            }
        }
    }

    fn check_allowed(&mut self, name: Name, value: &Value, at: SrcSpan, allowed: &Expr, words: &[Symbol]) {
        let fits = match &allowed.kind {
            ExprKind::Range { from, to, inclusive } => {
                let (low, high) = (self.eval(from), self.eval(to));
                if let (Value::Number(value), Value::Number(low)) = (value, &low)
                    && value.dimension != low.dimension
                {
                    self.not_allowed(name, value.text(), at, Some(allowed));
                    return;
                }
                let spans = (at, allowed.span);
                let above = self.binary(BinaryOp::GreaterEqual, value.clone(), low, spans, at);
                let op = if *inclusive { BinaryOp::LessEqual } else { BinaryOp::Less };
                let below = self.binary(op, value.clone(), high, spans, at);
                !matches!((above, below), (Value::Bool(false), _) | (_, Value::Bool(false)))
            }
            ExprKind::List(items) => items.iter().any(|item| {
                let candidate = self.eval_word(item, words);
                let spans = (at, item.span);
                matches!(value, Value::Unknown)
                    || match (value, &candidate) {
                        (Value::Word(a), Value::Word(b)) => a == b,
                        (Value::Word(_), _) | (_, Value::Word(_)) => false,
                        _ => matches!(
                            self.binary(BinaryOp::Equal, value.clone(), candidate, spans, at),
                            Value::Bool(true) | Value::Unknown
                        ),
                    }
            }),
            _ => match self.eval(allowed) {
                Value::Range { from, to, .. } => match value {
                    Value::Number(number) => number.whole().is_some_and(|whole| (from..to).contains(&whole)),
                    _ => true,
                },
                other => self.wrong_type("a range or a list", &other, allowed.span).unwrap_or(true),
            },
        };
        if !fits {
            self.not_allowed(name, value.text(&self.names), at, Some(allowed));
        }
    }

    fn not_allowed(&mut self, name: Name, value: String, at: SrcSpan, allowed: Option<&Expr>) {
        let text = allowed.map(|allowed| self.source_text(allowed)).unwrap_or_default();
        self.error(ModelError::NotAllowed {
            name: self.names.name(name.symbol).to_owned(),
            value,
            at: at.into(),
            declared: allowed.map_or(at, |allowed| allowed.span).into(),
            allowed: text,
        });
    }

    /// A range or list as it would be written, for messages.
    fn source_text(&mut self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Range { from, to, inclusive } => {
                let (from, to) = (self.eval(from), self.eval(to));
                let dots = if *inclusive { "..=" } else { ".." };
                format!("{}{dots}{}", from.text(&self.names), to.text(&self.names))
            }
            ExprKind::List(items) => {
                let words: Vec<Symbol> = items.iter().filter_map(Expr::as_name).collect();
                let items: Vec<String> =
                    items.iter().map(|item| self.eval_word(item, &words).text(&self.names)).collect();
                items.join(", ")
            }
            _ => self.eval(expr).text(&self.names),
        }
    }
}
