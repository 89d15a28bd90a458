//! Parameters: their values from the caller, the preset or their defaults, with checks.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{DType, SrcSpan, Symbol, shell, suggest};
use crate::syntax::ast::*;
use crate::syntax::{walk, written};

use super::value::{Number, Scalar, Value};
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;

impl<'a> Analyzer<'a> {
    /// Evaluates each parameter: from the caller, otherwise from the preset, otherwise from its default.
    pub(in crate::model) fn parameters(&mut self) {
        let ast = self.ast;
        let params: Vec<Name> = ast.params().collect();
        let symbols: FxHashSet<Symbol> = params.iter().map(|param| param.symbol).collect();
        let known = |symbol: Symbol| symbols.contains(&symbol);
        let param_names: Vec<String> = params.iter().map(|param| self.names.name(param.symbol).to_owned()).collect();
        let mut given: FxHashMap<Symbol, &'a Expr> = FxHashMap::default();
        let mut presets: FxHashMap<Symbol, SrcSpan> = FxHashMap::default();
        for (name, values) in ast.presets() {
            if let Some(first) = presets.insert(name.symbol, name.span) {
                let text = format!("preset {}", self.names.name(name.symbol));
                self.error(ModelError::GivenTwice { name: text, at: name.span.into(), first: first.into() });
            }
            let chosen = self.options.preset.as_deref() == Some(self.names.name(name.symbol));
            let mut first: FxHashMap<Symbol, SrcSpan> = FxHashMap::default();
            for Binding { name, value } in values {
                let text = self.names.name(name.symbol).to_owned();
                if let Some(first) = first.insert(name.symbol, name.span) {
                    self.error(ModelError::GivenTwice { name: text, at: name.span.into(), first: first.into() });
                } else if !known(name.symbol) && self.has_room_for_errors() {
                    let help = suggest::did_you_mean(&text, param_names.iter().map(String::as_str)).or_else(|| {
                        Some(format!("declare it above: `param {text} = {}`", written(value, &self.names)))
                    });
                    self.error(ModelError::UnknownParameter { name: text, at: name.span.into(), help });
                } else {
                    self.expansion.presets.entry(name.symbol).or_default().push(value);
                    if chosen {
                        given.insert(name.symbol, value);
                    }
                }
            }
        }
        if let Some(preset) = &self.options.preset {
            let presets: Vec<&str> = ast.presets().map(|(name, _)| self.names.name(name.symbol)).collect();
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

    /// Declares a parameter with the value that the caller has set, or with its default. Checks the value against
    /// `allowed`.
    pub(in crate::model) fn parameter(&mut self, name: Name, default: &Expr, allowed: Option<&'a Expr>) {
        let words = self.listed_words(allowed);
        let given = self.expansion.given.get(&name.symbol).copied();
        let at = given.unwrap_or(default).span;
        for expr in [Some(default), given].into_iter().flatten() {
            if let Some(word) = self.unlisted_word(expr, &words) {
                let value = self.names.name(word).to_owned();
                self.not_allowed(name, value, expr.span, allowed);
                self.scopes.declare(name.symbol, Value::Unknown);
                return;
            }
        }
        let default_value = self.eval_word(default, &words);
        if let Some(word) = given.and_then(|given| self.unknown_word(given, &default_value)) {
            self.of_another_kind(name, word, (at, default.span), &default_value);
            self.scopes.declare(name.symbol, Value::Unknown);
            return;
        }
        self.presets_of(name, (&default_value, default.span), allowed, &words, given);
        let mut value = default_value.clone();
        if let Some(given) = given {
            value = self.eval_word(given, &words);
            value = self.converted(&default_value, value, name, &words, (at, default.span));
        }
        if let Value::List(_) = value {
            self.error(ModelError::ListOfValues { name: self.names.name(name.symbol).to_owned(), at: at.into() });
            value = Value::Unknown;
        } else if let Some(allowed) = allowed
            && !self.check_allowed(name, &value, at, allowed, &words)
        {
            // Errors that follow from an invalid value would not be helpful.
            value = Value::Unknown;
        }
        if !matches!(value, Value::Unknown) {
            let text = value.text(&self.names);
            self.program.params.push((self.names.name(name.symbol).to_owned(), text));
        }
        self.declare(name, value);
    }

    /// Checks the values that presets give a parameter, selected or not. A value that depends on other names is only
    /// checked if its preset is selected.
    fn presets_of(
        &mut self,
        name: Name,
        (default, declared): (&Value, SrcSpan),
        allowed: Option<&'a Expr>,
        words: &[Symbol],
        given: Option<&'a Expr>,
    ) {
        let values = self.expansion.presets.remove(&name.symbol).unwrap_or_default();
        if allowed.is_some_and(|allowed| !self.is_constant(allowed)) {
            return;
        }
        for value in values {
            if given.is_some_and(|given| std::ptr::eq(given, value)) || !self.is_constant(value) {
                continue;
            }
            if let Some(word) = self.unlisted_word(value, words) {
                let text = self.names.name(word).to_owned();
                self.not_allowed(name, text, value.span, allowed);
                continue;
            }
            let worth = self.eval_word(value, words);
            let worth = self.converted(default, worth, name, words, (value.span, declared));
            if let Some(allowed) = allowed.filter(|_| !matches!(worth, Value::Unknown | Value::List(_))) {
                self.check_allowed(name, &worth, value.span, allowed, words);
            }
        }
    }

    /// True if the value of an expression does not depend on declarations.
    fn is_constant(&self, expr: &Expr) -> bool {
        let mut constant = true;
        walk::expr(expr, &mut |part| constant &= part.as_name().is_none_or(|name| self.scopes.get(name).is_none()));
        constant
    }

    /// The words in a list of allowed values. Element types stay element types.
    fn listed_words(&self, allowed: Option<&Expr>) -> Vec<Symbol> {
        match allowed {
            Some(Expr { kind: ExprKind::List(items), .. }) => {
                items.iter().filter_map(Expr::as_name).filter(|symbol| self.words.contains(symbol)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the word of an expression that is a bare, unlisted word; `None` for other expressions, or without listed words.
    fn unlisted_word(&self, expr: &Expr, words: &[Symbol]) -> Option<Symbol> {
        expr.as_name().filter(|symbol| {
            !words.is_empty()
                && !words.contains(symbol)
                && self.scopes.get(*symbol).is_none()
                && DType::from_name(self.names.name(*symbol)).is_none()
        })
    }

    /// A word without a meaning that the caller sets a parameter to whose default is a number or a text; `None` for other values.
    fn unknown_word(&self, given: &Expr, default: &Value) -> Option<String> {
        let is_set = self.options.set.iter().any(|setting| std::ptr::eq(&setting.value, given));
        let word = given.as_name().filter(|word| is_set && self.scopes.get(*word).is_none())?;
        matches!(default, Value::Number(_) | Value::Text(_)).then(|| self.names.name(word).to_owned())
    }

    /// Evaluates an expression that may be a listed word.
    fn eval_word(&mut self, expr: &Expr, words: &[Symbol]) -> Value {
        match expr.as_name() {
            Some(symbol) if self.scopes.get(symbol).is_none() && words.contains(&symbol) => Value::Word(symbol),
            _ => self.eval(expr),
        }
    }

    /// Converts the value to the parameter's type, which its default determines.
    fn converted(
        &mut self,
        default: &Value,
        value: Value,
        name: Name,
        words: &[Symbol],
        (at, declared): (SrcSpan, SrcSpan),
    ) -> Value {
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
            // A list may contain both.
            (Value::Word(_), Value::DType(_)) | (Value::DType(_), Value::Word(_)) if !words.is_empty() => value,
            _ => {
                let value = value.describe(&self.names);
                self.of_another_kind(name, value, (at, declared), default);
                Value::Unknown
            }
        }
    }

    /// Reports a value that is not of the kind of the parameter's default.
    fn of_another_kind(&mut self, name: Name, value: String, (at, declared): (SrcSpan, SrcSpan), default: &Value) {
        let allowed = match default {
            Value::Number(number) => number.dimension.describe(),
            Value::Bool(_) => "`true` or `false`".to_owned(),
            Value::DType(_) => "an element type".to_owned(),
            other => other.describe(&self.names),
        };
        let example = match default {
            Value::Number(number) => number.dimension.example(),
            _ => None,
        };
        let example = example.map(|example| format!(", such as `{example}`")).unwrap_or_default();
        let text = self.names.name(name.symbol).to_owned();
        let help = match default {
            Value::Text(_) => {
                let quoted = format!("{text}={:?}", value.trim_start_matches("the number ").trim_matches('`'));
                format!("write a text in quotes: `{}`", shell::command(["--set", &quoted]))
            }
            _ => format!("the default determines the kind of value: give a value of that kind{example}"),
        };
        let (at, declared) = (at.into(), declared.into());
        self.error(ModelError::NotAllowed { name: text, value, at, declared, allowed, help });
    }

    /// True if the value is allowed; reports an error otherwise.
    fn check_allowed(&mut self, name: Name, value: &Value, at: SrcSpan, allowed: &Expr, words: &[Symbol]) -> bool {
        if let ExprKind::List(items) = &allowed.kind
            && let Some(range) = items.iter().find(|item| matches!(item.kind, ExprKind::Range { .. }))
        {
            self.error(ModelError::WrongType {
                expected: "a value".to_owned(),
                found: "a range".to_owned(),
                at: range.span.into(),
                help: Some(format!("write a single range without brackets: `in {}`", written(range, &self.names))),
            });
            return false;
        }
        let fits = match &allowed.kind {
            ExprKind::Range { from, to, inclusive } => {
                let (low, high) = (self.eval(from), self.eval(to));
                if let (Value::Number(value), Value::Number(low)) = (value, &low)
                    && value.dimension != low.dimension
                {
                    self.not_allowed(name, value.text(), at, Some(allowed));
                    return false;
                }
                let spans = (at, allowed.span);
                let bound = low.clone();
                let above = self.binary(BinaryOp::GreaterEqual, value.clone(), low, spans, at);
                let op = if *inclusive { BinaryOp::LessEqual } else { BinaryOp::Less };
                let below = self.binary(op, value.clone(), high.clone(), spans, at);
                if let (Value::Number(low), Value::Number(top)) = (&bound, &high)
                    && low.dimension == top.dimension
                    && matches!(self.binary(BinaryOp::Greater, bound, high, spans, at), Value::Bool(true))
                {
                    self.error(ModelError::WrongType {
                        expected: "a range with a value".to_owned(),
                        found: "an empty one".to_owned(),
                        at: allowed.span.into(),
                        help: Some(format!(
                            "the smaller end comes first: `in {}..={}`",
                            written(to, &self.names),
                            written(from, &self.names)
                        )),
                    });
                    return false;
                }
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
        fits
    }

    fn not_allowed(&mut self, name: Name, value: String, at: SrcSpan, allowed: Option<&Expr>) {
        let text = allowed.map(|allowed| self.source_text(allowed)).unwrap_or_default();
        let help = match suggest::nearest(&value, text.split(", ")) {
            Some(near) => format!("did you mean `{near}`? Or widen the values after `in`"),
            None => "write a value that is allowed, or widen the values after `in`".to_owned(),
        };
        self.error(ModelError::NotAllowed {
            name: self.names.name(name.symbol).to_owned(),
            value,
            at: at.into(),
            declared: allowed.map_or(at, |allowed| allowed.span).into(),
            allowed: text,
            help,
        });
    }

    /// The source form of a range or list, for messages.
    fn source_text(&mut self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Range { from, to, inclusive } => {
                let (from, to) = (self.eval(from), self.eval(to));
                let dots = if *inclusive { "..=" } else { ".." };
                format!("{}{dots}{}", from.text(&self.names), to.text(&self.names))
            }
            ExprKind::List(items) => {
                let words = self.listed_words(Some(expr));
                let items: Vec<String> =
                    items.iter().map(|item| self.eval_word(item, &words).text(&self.names)).collect();
                items.join(", ")
            }
            _ => self.eval(expr).text(&self.names),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{AnalysisOptions, analyze_text};

    /// The errors of the file with its preset `p`.
    fn mistakes(text: &str) -> Vec<String> {
        let options = AnalysisOptions { preset: Some("p".to_owned()), ..AnalysisOptions::default() };
        let errors = analyze_text(text, &options).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_may_hold_element_types_beside_words() {
        let file = |value: &str| {
            mistakes(&format!(
                "param t = f16 in [f16, bf16]  param c = auto in [auto, f32]  preset p {{ {value} }}
                 buffer x: t[4]  step {{ if c == f32 {{ map(x + 1) }} else {{ nop() }} }}"
            ))
        };
        assert_eq!(file("t = bf16, c = f32"), [""; 0]);
        assert_eq!(file("t = auto"), ["`t` cannot be the word `auto`"]);
        assert_eq!(file("c = f16"), ["`c` cannot be f16"]);
        assert_eq!(file("c = fast"), ["`c` cannot be fast"]);
    }
}
