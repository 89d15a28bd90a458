//! The state of an analysis, and the declarations.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::units::Dimension;
use crate::base::{Bytes, DType, Dims, Interner, MemoryId, Space, SrcSpan, Symbol, suggest};
use crate::ops::init::Init;
use crate::syntax::ast::*;

use super::error::ModelError;
use super::expand::Expansion;
use super::program::*;
use super::scopes::Scopes;
use super::value::{Number, Scalar, Value};
use super::{Options, check};

/// Errors shown of one file: what comes after is noise.
const MAX_ERRORS: usize = 100;

/// Names that every file knows.
pub(super) struct Builtins {
    pub rank: Symbol,
    pub world: Symbol,
    pub iteration: Symbol,
    pub unwanted: Symbol,
    pub main: Symbol,
}

/// How the program depends on the iteration.
#[derive(Debug, Default)]
pub(super) struct CycleUse {
    /// The number itself was used.
    pub all: bool,
    /// The least common multiple of what it was divided by for a remainder.
    modulus: Option<u64>,
}

impl CycleUse {
    pub fn add(&mut self, modulus: i64) {
        let (known, modulus) = (self.modulus.unwrap_or(1), modulus.unsigned_abs());
        self.modulus = (known / gcd(known, modulus)).checked_mul(modulus).or(Some(u64::MAX));
    }

    /// Iterations after which everything repeats: what remainders need, or `base` rounded up to a multiple of that.
    pub fn cycle(&self, base: u64) -> u64 {
        let modulus = self.modulus.unwrap_or(1);
        match self.all {
            false => modulus,
            true => base.max(1).checked_next_multiple_of(modulus).unwrap_or(u64::MAX),
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(super) struct Analyzer<'a> {
    pub ast: &'a Ast,
    pub options: &'a Options,
    pub names: Interner,
    pub builtins: Builtins,
    pub scopes: Scopes,
    /// Words that some parameter lists: known everywhere, and worth themselves.
    pub words: FxHashSet<Symbol>,
    pub program: Program,
    pub defs: FxHashMap<Symbol, &'a Decl>,
    /// The iteration that is being expanded; nothing outside of the step.
    pub iteration: Option<i64>,
    pub cycle_use: CycleUse,
    pub expansion: Expansion<'a>,
    errors: Vec<ModelError>,
    seen: FxHashSet<(std::mem::Discriminant<ModelError>, usize)>,
}

impl<'a> Analyzer<'a> {
    pub fn new(ast: &'a Ast, options: &'a Options) -> Self {
        let mut names = ast.names.clone();
        let builtins = Builtins {
            rank: names.intern("rank"),
            world: names.intern("world"),
            iteration: names.intern("iteration"),
            unwanted: names.intern("_"),
            main: names.intern("main"),
        };
        let defs = ast.decls.iter().filter_map(|decl| match &decl.kind {
            DeclKind::Def { name, .. } => Some((name.symbol, decl)),
            _ => None,
        });
        let program = Program {
            rank: options.rank,
            world: options.world,
            params: Vec::new(),
            names: Interner::default(),
            streams: Vec::new(),
            memories: Vec::new(),
            shapes: Shapes::default(),
            views: super::views::Views::default(),
            specs: indexmap::IndexSet::default(),
            labels: vec![Label::default()],
            phases: vec![Label::default()],
            step: StepOptions { sync: Sync::Iteration, depth: 1, declared_order: false, allow_races: false },
            cycle: Vec::new(),
            metrics: Vec::new(),
            expectations: Vec::new(),
        };
        Analyzer {
            ast,
            options,
            builtins,
            scopes: Scopes::new(),
            words: words_of(ast, &names),
            program,
            defs: defs.collect(),
            iteration: None,
            cycle_use: CycleUse::default(),
            expansion: Expansion::default(),
            errors: Vec::new(),
            seen: FxHashSet::default(),
            names,
        }
    }

    /// Notes an error, unless the same mistake at the same place has been noted (a loop meets it in every turn).
    pub fn error(&mut self, error: ModelError) {
        let key = (std::mem::discriminant(&error), error.offset());
        if self.errors.len() < MAX_ERRORS && self.seen.insert(key) {
            self.errors.push(error);
        }
    }

    pub fn failed(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Works through the whole file.
    pub fn run(mut self) -> Result<Program, Vec<ModelError>> {
        let found = check::names(self.ast, &self.names, &self.words);
        found.into_iter().for_each(|error| self.error(error));
        self.parameters();
        for decl in &self.ast.decls {
            self.declaration(decl);
        }
        self.steps();
        self.figures();
        if self.errors.is_empty() {
            self.check_memory();
        }
        if self.errors.is_empty() {
            self.program.names = self.names;
            return Ok(self.program);
        }
        self.errors.sort_by_key(ModelError::offset);
        Err(self.errors)
    }

    // --- Parameters -------------------------------------------------------------------------------------------

    /// Gives each parameter its value: from the caller, else from the preset, else its default.
    fn parameters(&mut self) {
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
        let param_names: Vec<String> =
            params.iter().map(|param| self.names.name(param.symbol).to_owned()).collect();
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

    fn parameter(&mut self, name: Name, default: &Expr, allowed: Option<&'a Expr>) {
        let words = match allowed {
            Some(Expr { kind: ExprKind::List(items), .. }) => items.iter().filter_map(Expr::as_name).collect(),
            _ => Vec::new(),
        };
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
            let allowed_text = self.source_text(allowed);
            self.error(ModelError::NotAllowed {
                name: self.names.name(name.symbol).to_owned(),
                value: value.text(&self.names),
                at: at.into(),
                declared: allowed.span.into(),
                allowed: allowed_text,
            });
        }
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

    // --- Other declarations -----------------------------------------------------------------------------------

    fn declaration(&mut self, decl: &'a Decl) {
        match &decl.kind {
            DeclKind::Param { name, default, allowed } => self.parameter(*name, default, allowed.as_ref()),
            DeclKind::Let(Binding { name, value }) => {
                let value = self.eval(value);
                self.scopes.declare(name.symbol, value);
            }
            DeclKind::Stream { name, count, options } => self.stream(*name, count, options),
            DeclKind::Buffer(buffer) => self.buffer(buffer),
            DeclKind::Meta(settings) => self.meta(settings),
            DeclKind::Step { options, .. } => self.step_options(options),
            DeclKind::Mesh(_) => self.not_yet("`mesh`", "it comes with runs on several GPUs", decl.span),
            DeclKind::Kernel { .. } => self.not_yet("`kernel`", "`map(…)` makes a kernel of any expression", decl.span),
            DeclKind::Use { .. } => self.not_yet("`use`", "write the `def` into this file", decl.span),
            DeclKind::Draw { .. } => self.not_yet("`draw`", "make the number a `param`", decl.span),
            DeclKind::Setup(_) | DeclKind::Teardown(_) => {
                let help = "buffers are filled before the run: `buffer x: f32[4] = zeros`";
                self.not_yet("`setup` and `teardown`", help, decl.span);
            }
            DeclKind::Preset { .. } | DeclKind::Def { .. } | DeclKind::Metric { .. } | DeclKind::Expect { .. } => {}
        }
    }

    pub fn not_yet(&mut self, what: &str, help: &str, at: SrcSpan) {
        self.error(ModelError::NotYet { what: what.to_owned(), help: help.to_owned(), at: at.into() });
    }

    fn meta(&mut self, settings: &[Setting]) {
        const KNOWN: [&str; 6] = ["version", "category", "tags", "authors", "licence", "priority"];
        for setting in settings {
            let key = self.names.name(setting.key.symbol).to_owned();
            if !KNOWN.contains(&key.as_str()) {
                self.unknown_option("meta", key, &KNOWN, setting.key.span);
            }
            self.eval(&setting.value);
        }
    }

    pub fn unknown_option(&mut self, of: &str, name: String, known: &[&str], at: SrcSpan) {
        let help = suggest::did_you_mean(&name, known.iter().copied())
            .or_else(|| known.is_empty().then(|| format!("`{of}` has no options")));
        self.error(ModelError::UnknownOption { of: of.to_owned(), name, at: at.into(), help });
    }

    /// One of some words, written as such or worth one.
    fn word_of(&mut self, expr: &Expr, words: &'static [&'static str]) -> Option<&'static str> {
        let text = match expr.as_name() {
            Some(symbol) if self.scopes.get(symbol).is_none() => self.names.name(symbol).to_owned(),
            _ => match self.eval(expr) {
                Value::Word(word) => self.names.name(word).to_owned(),
                other => return self.wrong_type(&format!("one of {}", suggest::listed(words)), &other, expr.span),
            },
        };
        let found = words.iter().copied().find(|word| *word == text);
        if found.is_none() {
            self.error(ModelError::WrongType {
                expected: format!("one of {}", suggest::listed(words)),
                found: format!("`{text}`"),
                at: expr.span.into(),
                help: suggest::nearest(&text, words.iter().copied()).map(|near| format!("did you mean `{near}`?")),
            });
        }
        found
    }

    fn step_options(&mut self, options: &[Setting]) {
        let mut depth = None;
        for setting in options {
            let key = self.names.name(setting.key.symbol).to_owned();
            let value = &setting.value;
            match key.as_str() {
                "sync" => {
                    if let Some(word) = self.word_of(value, &["iteration", "end"]) {
                        self.program.step.sync = if word == "end" { Sync::End } else { Sync::Iteration };
                    }
                }
                "order" => {
                    if let Some(word) = self.word_of(value, &["data", "declared"]) {
                        self.program.step.declared_order = word == "declared";
                    }
                }
                "races" => {
                    if let Some(word) = self.word_of(value, &["forbid", "allow"]) {
                        self.program.step.allow_races = word == "allow";
                    }
                }
                "depth" => match self.eval_whole(value) {
                    Some(given @ 1..=64) => depth = Some(given as u32),
                    Some(given) => self.error(ModelError::BadSize {
                        what: "the depth".to_owned(),
                        value: given.to_string(),
                        at: value.span.into(),
                        help: "1 to 64 iterations may be under way",
                    }),
                    None => {}
                },
                _ => self.unknown_option("step", key, &["sync", "depth", "order", "races"], setting.key.span),
            }
        }
        if let Some(sync) = self.options.sync {
            self.program.step.sync = sync;
        }
        self.program.step.depth = match self.program.step.sync {
            Sync::Iteration => 1,
            Sync::End => depth.unwrap_or(2),
        };
    }

    /// The sizes of a family, all of them whole and from 1 on.
    pub fn family(&mut self, count: &[Expr], what: &str, name: Name) -> Option<Dims> {
        let mut dims = Dims::new();
        for expr in count {
            let size = self.eval_whole(expr)?;
            if !(1..=1 << 24).contains(&size) {
                let name = self.names.name(name.symbol).to_owned();
                self.error(ModelError::BadSize {
                    what: format!("the number of {what} `{name}`"),
                    value: size.to_string(),
                    at: expr.span.into(),
                    help: "a family has at least one member",
                });
                return None;
            }
            dims.push(size as u64)?;
        }
        Some(dims)
    }

    fn stream(&mut self, name: Name, count: &[Expr], options: &[Setting]) {
        const MAX_STREAMS: u64 = 4096;
        let mut priority = Priority::Normal;
        for setting in options {
            let key = self.names.name(setting.key.symbol).to_owned();
            match key.as_str() {
                "priority" => priority = self.priority(&setting.value),
                "units" | "queue" | "kind" => {
                    self.not_yet(&format!("`{key}` of a stream"), "leave it away", setting.key.span);
                }
                _ => self.unknown_option("stream", key, &["priority"], setting.key.span),
            }
        }
        let dims = self.family(count, "streams", name);
        let members = dims.as_ref().and_then(|dims| dims.elements());
        let too_many = members.is_some_and(|members| self.program.streams.len() as u64 + members > MAX_STREAMS);
        if count.len() > 1 || too_many {
            let (what, value) = match count.len() > 1 {
                true => ("the number of dimensions of a stream family".to_owned(), count.len().to_string()),
                false => ("the number of streams".to_owned(), members.unwrap_or(0).to_string()),
            };
            let at = count.first().map_or(name.span, |first| first.span);
            let help = "a stream family has one dimension and a program at most 4096 streams";
            self.error(ModelError::BadSize { what, value, at: at.into(), help });
        }
        let value = match members {
            Some(members) if members <= MAX_STREAMS && !too_many && count.len() <= 1 => {
                let first = self.program.streams.len() as u32;
                let text = self.names.name(name.symbol);
                let is_family = !count.is_empty();
                for member in 0..members as u32 {
                    self.program.streams.push(Stream {
                        name: if is_family { format!("{text}[{member}]") } else { text.to_owned() },
                        family: name.symbol,
                        member: is_family.then_some(member),
                        priority,
                        span: name.span,
                    });
                }
                let count = is_family.then_some(members as u32);
                Value::Stream { first, count, family: name.symbol }
            }
            _ => Value::Unknown,
        };
        self.scopes.declare(name.symbol, value);
    }

    fn priority(&mut self, expr: &Expr) -> Priority {
        if let Some(symbol) = expr.as_name()
            && self.scopes.get(symbol).is_none()
        {
            return match self.word_of(expr, &["high", "normal", "low"]) {
                Some("high") => Priority::High,
                Some("low") => Priority::Low,
                _ => Priority::Normal,
            };
        }
        match self.eval(expr) {
            Value::Word(word) => match self.names.name(word) {
                "high" => Priority::High,
                "low" => Priority::Low,
                "normal" => Priority::Normal,
                _ => {
                    self.wrong_type::<()>("`high`, `normal`, `low` or a number", &Value::Word(word), expr.span);
                    Priority::Normal
                }
            },
            Value::Number(number) if number.dimension == Dimension::NONE => {
                let level = self.whole(number, expr.span).unwrap_or(0);
                Priority::Level(level.clamp(-1000, 1000) as i32)
            }
            other => {
                self.wrong_type::<()>("`high`, `normal`, `low` or a number", &other, expr.span);
                Priority::Normal
            }
        }
    }

    fn buffer(&mut self, buffer: &Buffer) {
        let space = self.space(buffer.space.as_ref());
        let ty = match &buffer.layout {
            Layout::Tensor(expr) => self.tensor_type(expr),
            Layout::Like(expr) => {
                self.not_yet("`like`", "write the type again", expr.span);
                None
            }
            Layout::Parts(parts) => {
                let at = parts.first().map_or(buffer.families[0].name.span, |part| part.0.span);
                self.not_yet("a buffer with parts", "declare a buffer for each", at);
                None
            }
        };
        for family in &buffer.families {
            let number = self.program.memories.len() as u64 + 1;
            let init = match &buffer.init {
                None => Some(Init::Random { seed: number, deviation: 1.0 }),
                Some(expr) => self.init(expr),
            };
            let count = self.family(&family.count, "buffers", family.name);
            let value = match (ty, init, count) {
                (Some(ty), Some(init), Some(count)) => {
                    self.add_family(family.name, MemoryKind::Buffer(init), space, count, ty)
                }
                _ => Value::Unknown,
            };
            self.scopes.declare(family.name.symbol, value);
        }
    }

    /// Memory for a buffer or a family of them, and the value of its name.
    pub fn add_family(
        &mut self,
        name: Name,
        kind: MemoryKind,
        space: Space,
        count: Dims,
        (dtype, dims): (DType, Dims),
    ) -> Value {
        let sizes: Vec<u64> = count.iter().chain(dims.iter()).copied().collect();
        let Some(all) = Dims::from_slice(&sizes).filter(|all| all.elements().is_some_and(|n| n < 1 << 57)) else {
            self.error(ModelError::BadSize {
                what: "the shape with that of the family".to_owned(),
                value: format!("{sizes:?}"),
                at: name.span.into(),
                help: "at most 8 dimensions and 2^57 elements",
            });
            return Value::Unknown;
        };
        let family = count.len() as u8;
        let shape = self.program.shapes.intern(dtype, all);
        let memory = self.add_memory(Memory { name: name.symbol, kind, space, family, shape, span: name.span });
        Value::Tensor { view: self.all_of(memory), family }
    }

    pub fn add_memory(&mut self, memory: Memory) -> MemoryId {
        self.program.memories.push(memory);
        MemoryId::from(self.program.memories.len() - 1)
    }

    fn space(&mut self, space: Option<&Name>) -> Space {
        let Some(name) = space else { return Space::Device };
        let text = self.names.name(name.symbol).to_owned();
        if text == "managed" {
            self.not_yet("`managed` memory", "declare the buffer in `device` or `pinned` and copy", name.span);
        } else if Space::from_name(&text).is_none() {
            let spaces = Space::ALL.map(Space::name);
            self.error(ModelError::WrongType {
                expected: format!("one of {}", suggest::listed(&spaces)),
                found: format!("`{text}`"),
                at: name.span.into(),
                help: suggest::nearest(&text, spaces).map(|near| format!("did you mean `{near}`?")),
            });
        }
        Space::from_name(&text).unwrap_or(Space::Device)
    }

    /// A tensor type, such as `f32[n]`; a bare element type is a tensor without dimensions.
    pub fn tensor_type(&mut self, expr: &Expr) -> Option<(DType, Dims)> {
        match self.eval(expr) {
            Value::Type(dtype, dims) => Some((dtype, dims)),
            Value::DType(dtype) => Some((dtype, Dims::new())),
            Value::Unknown => None,
            other => self.wrong_type("a tensor type, such as `f32[n]`", &other, expr.span),
        }
    }

    fn init(&mut self, expr: &Expr) -> Option<Init> {
        let known = ["random(seed)", "zeros", "ones", "iota"];
        let word = match &expr.kind {
            ExprKind::Name(symbol) => self.names.name(*symbol).to_owned(),
            ExprKind::Call { callee, args } if self.names.name(callee.symbol) == "random" => {
                return self.random(args, expr.span);
            }
            ExprKind::Call { callee, .. } => self.names.name(callee.symbol).to_owned(),
            _ => String::new(),
        };
        match word.as_str() {
            "zeros" => Some(Init::Zeros),
            "ones" => Some(Init::Ones),
            "iota" => Some(Init::Iota),
            "random" => self.random(&[], expr.span),
            _ => {
                self.error(ModelError::WrongType {
                    expected: format!("one of {}", suggest::listed(&known)),
                    found: if word.is_empty() { "an expression".to_owned() } else { format!("`{word}`") },
                    at: expr.span.into(),
                    help: suggest::nearest(&word, ["random", "zeros", "ones", "iota"])
                        .map(|near| format!("did you mean `{near}`?")),
                });
                None
            }
        }
    }

    /// `random(seed)` or `random(seed, deviation)`.
    fn random(&mut self, args: &[Expr], span: SrcSpan) -> Option<Init> {
        let (seed, deviation) = match args {
            [seed] => (self.eval_whole(seed)?, 1.0),
            [seed, deviation] => {
                let seed = self.eval_whole(seed)?;
                match self.eval(deviation) {
                    Value::Number(number) if number.dimension == Dimension::NONE => (seed, number.value.float()),
                    other => return self.wrong_type("a plain number", &other, deviation.span),
                }
            }
            _ => {
                self.error(ModelError::ArgumentCount {
                    function: "random".to_owned(),
                    expected: "a seed, and a standard deviation if that is not 1,".to_owned(),
                    found: format!("{} are", args.len()),
                    at: span.into(),
                    help: Some("write `random(1)` or `random(1, 0.02)`".to_owned()),
                });
                return None;
            }
        };
        Some(Init::Random { seed: seed as u64, deviation })
    }

    /// Names that could have been meant where one is unknown.
    pub fn known_names(&self) -> Vec<String> {
        let mut names: Vec<String> = (0..self.names.len() as u32)
            .map(Symbol)
            .filter(|&symbol| self.scopes.get(symbol).is_some() || self.words.contains(&symbol))
            .map(|symbol| self.names.name(symbol).to_owned())
            .collect();
        names.extend(["rank", "world", "iteration"].map(str::to_owned));
        names.extend(DType::ALL.map(|dtype| dtype.name().to_owned()));
        names
    }

    /// Declared and bare memory has to fit the limit; scratch is shared and counted when it is placed.
    fn check_memory(&mut self) {
        let mut sizes: Vec<(u64, MemoryId)> = (0..self.program.memories.len())
            .map(MemoryId::from)
            .filter(|&id| self.program.memory(id).kind != MemoryKind::Scratch)
            .map(|id| (self.program.memory_bytes(id), id))
            .collect();
        let total: u64 = sizes.iter().fold(0, |sum, (bytes, _)| sum.saturating_add(*bytes));
        if total <= self.options.max_memory {
            return;
        }
        sizes.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
        let largest: Vec<String> = sizes
            .iter()
            .take(3)
            .map(|&(bytes, id)| format!("{} {}", self.names.name(self.program.memory(id).name), Bytes(bytes)))
            .collect();
        let at = self.program.memory(sizes[0].1).span;
        self.error(ModelError::TooMuchMemory {
            total: Bytes(total).to_string(),
            limit: Bytes(self.options.max_memory).to_string(),
            largest: largest.join(", "),
            at: at.into(),
        });
    }
}

/// The words that parameters list as their values.
fn words_of(ast: &Ast, names: &Interner) -> FxHashSet<Symbol> {
    let declared = |symbol: Symbol| {
        ast.decls.iter().any(|decl| match &decl.kind {
            DeclKind::Param { name, .. } | DeclKind::Let(Binding { name, .. }) => name.symbol == symbol,
            _ => false,
        })
    };
    ast.decls
        .iter()
        .filter_map(|decl| match &decl.kind {
            DeclKind::Param { allowed: Some(Expr { kind: ExprKind::List(items), .. }), .. } => Some(items),
            _ => None,
        })
        .flatten()
        .filter_map(Expr::as_name)
        .filter(|&symbol| DType::from_name(names.name(symbol)).is_none() && !declared(symbol))
        .collect()
}
