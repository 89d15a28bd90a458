//! Analyzes declarations of streams and buffers, and the options of the step; reports what this version does not
//! support.

use crate::base::{DType, Dims, MemoryId, Space, SrcSpan, suggest};
use crate::ops::init::Init;
use crate::syntax::ast::*;
use crate::syntax::written;

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::limits;
use super::memory::parts::BufferAttributes;
use super::names::declared::declared_names;
use super::names::unknown;
use super::program::*;
use super::streams::stream_options::{ByMember, Streams};
use super::values::draws::DrawCall;
use super::values::value::Value;

/// The kind of a family's members.
#[derive(Clone, Copy)]
pub(super) enum FamilyOf {
    Streams,
    Buffers,
}

impl<'a> Analyzer<'a> {
    /// Analyzes a declaration. The blocks of the file are expanded later.
    pub(super) fn declaration(&mut self, decl: &'a Decl) {
        match &decl.kind {
            DeclKind::Param { name, default, allowed } => self.parameter(*name, default, allowed.as_ref()),
            DeclKind::Let(Binding { name, value }) => {
                let value = self.eval(value);
                self.declare(*name, value);
            }
            DeclKind::Stream { name, count, options } => self.stream(*name, count, options),
            DeclKind::Buffer(buffer) => self.buffer(buffer),
            DeclKind::Meta(settings) => self.meta(settings, decl.span),
            DeclKind::Step { options, .. } => self.step_options(options),
            DeclKind::Mesh(factors) => self.mesh(factors, decl.span),
            DeclKind::Kernel { .. } => self.kernel(decl),
            DeclKind::Use { .. } => declared_names(decl).iter().for_each(|name| self.declare(*name, Value::Module)),
            DeclKind::Draw { name, dims, distribution, args, options } => {
                let call = DrawCall { distribution: *distribution, args, options, span: decl.span };
                self.draw(*name, dims, &call);
            }
            DeclKind::Require { condition, message } => self.require(condition, message.as_deref()),
            // The linker of modules has reported the reason.
            DeclKind::Unlinked(name) => self.scopes.declare(name.symbol, Value::Unknown),
            // `Analyzer::steps` expands the blocks once all declarations are known.
            DeclKind::Setup(_) | DeclKind::Teardown(_) => {}
            DeclKind::Preset { .. } | DeclKind::Def { .. } | DeclKind::Metric { .. } | DeclKind::Expect { .. } => {}
        }
    }

    fn meta(&mut self, settings: &[Setting], span: SrcSpan) {
        match self.meta {
            Some(first) => self.error(ModelError::Second { what: "meta", at: span.into(), first: first.into() }),
            None => self.meta = Some(span),
        }
        const KNOWN: [&str; 7] = ["language", "version", "category", "tags", "authors", "licence", "priority"];
        self.options_are_known("meta", settings, &KNOWN);
        for setting in settings {
            match self.names.name(setting.key.symbol) {
                "language" => self.language(&setting.value),
                _ => self.description(&setting.value),
            }
        }
    }

    /// Evaluates a field of `meta`. A word without quotes is probably a text.
    fn description(&mut self, value: &Expr) {
        match value.as_name() {
            Some(symbol) if self.scopes.get(symbol).is_none() => {
                let name = self.names.name(symbol).to_owned();
                let help = Some(format!("write a text between quotes: `\"{name}\"`"));
                self.error(ModelError::UnknownName { name, at: value.span.into(), help });
            }
            _ => drop(self.eval(value)),
        }
    }

    /// Checks the language version that a file demands. The parser has refused newer ones.
    fn language(&mut self, value: &Expr) {
        if !matches!(value.kind, ExprKind::Int(1..)) {
            self.error(ModelError::BadSize {
                what: "the version of the language".to_owned(),
                value: written(value, &self.names),
                at: value.span.into(),
                help: "write a whole number: `language: 1`",
            });
        }
    }

    /// Reports the option `name`, which `of` does not have. `known` are the options that it has.
    pub(super) fn unknown_option(&mut self, of: &str, name: String, known: &[&str], at: SrcSpan) {
        let help = Some(unknown::option_help(of, &name, known));
        self.error(ModelError::UnknownOption { of: of.to_owned(), name, at: at.into(), help });
    }

    /// Evaluates an expression that must be one of `words`. `None` after an error, which has been reported.
    pub(super) fn word_of(&mut self, expr: &Expr, words: &'static [&'static str]) -> Option<&'static str> {
        self.word_or_help(expr, words, None)
    }

    /// Evaluates one of `words`; `help` is for a word that resembles none of them. `None` after an error, which has been reported.
    pub(super) fn word_or_help(
        &mut self,
        expr: &Expr,
        words: &'static [&'static str],
        help: Option<String>,
    ) -> Option<&'static str> {
        let expr = self.chosen(expr)?;
        // A name of a declaration that equals one of the words means the word, unless the declaration is a word itself.
        let is_word = |symbol| match self.scopes.get(symbol) {
            Some(Value::Word(_) | Value::DType(_)) => false,
            Some(_) => words.contains(&self.names.name(symbol)),
            None => true,
        };
        let text = match expr.as_name() {
            Some(symbol) if is_word(symbol) => self.names.name(symbol).to_owned(),
            _ => match self.eval(expr) {
                Value::Word(word) => self.names.name(word).to_owned(),
                // The name of an element type may be a word here.
                Value::DType(dtype) => dtype.name().to_owned(),
                other => return self.wrong_type(&format!("one of {}", suggest::listed(words)), &other, expr.span),
            },
        };
        let found = words.iter().copied().find(|word| *word == text);
        if found.is_none() {
            self.error(ModelError::WrongType {
                expected: format!("one of {}", suggest::listed(words)),
                found: format!("`{text}`"),
                at: expr.span.into(),
                help: unknown::word_help(&text, words).or(help),
            });
        }
        found
    }

    fn step_options(&mut self, options: &[Setting]) {
        let mut depth = None;
        self.options_are_known("step", options, &["sync", "depth", "order", "races"]);
        for setting in options {
            let value = &setting.value;
            match self.names.name(setting.key.symbol) {
                "sync" => {
                    let help =
                        "with `end`, iterations overlap; with `iteration`, each begins after the end of the one before";
                    if let Some(word) = self.word_or_help(value, &["iteration", "end"], Some(help.to_owned())) {
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
                _ => {}
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

    /// Returns the sizes of a family, which must be whole numbers of at least 1. `None` after an error, which has been reported.
    pub(super) fn family(&mut self, count: &[Expr], of: FamilyOf, name: Name) -> Option<Dims> {
        let mut dims = Dims::new();
        for expr in count {
            let size = self.eval_whole(expr)?;
            let (what, limit, help) = match of {
                FamilyOf::Streams => {
                    ("streams", limits::STREAMS, "a program has at most 4096 streams: write 1 to 4096")
                }
                FamilyOf::Buffers => (
                    "buffers",
                    limits::BUFFERS,
                    "write 1 to 16777216; for more, use a dimension of the type: `buffer x: f32[n, 4]`",
                ),
            };
            let name = || self.names.name(name.symbol).to_owned();
            let (what, value, help) = if size < 1 {
                let help = "a family has at least one member: write 1 or more";
                (format!("the number of {what} `{}`", name()), size.to_string(), help)
            } else if size as u64 > limit {
                (format!("the number of {what} `{}`", name()), size.to_string(), help)
            } else if dims.push(size as u64).is_none() {
                let help = "a family and its type have at most 8 dimensions together: leave some out";
                (format!("the number of indices of `{}`", name()), count.len().to_string(), help)
            } else {
                continue;
            };
            return self.fail(ModelError::BadSize { what, value, at: expr.span.into(), help });
        }
        Some(dims)
    }

    fn stream(&mut self, name: Name, count: &[Expr], options: &[Setting]) {
        let dims = self.family(count, FamilyOf::Streams, name);
        let members = dims.as_ref().and_then(|dims| dims.elements());
        let streams = Streams { name, members: members.filter(|_| !count.is_empty()) };
        let (mut priority, mut units) = (ByMember::All(Priority::Normal), ByMember::All(None));
        let mut queue = ByMember::All(None);
        let threads = self.host_threads(options);
        self.options_are_known("stream", options, &["priority", "units", "queue", "kind", "threads"]);
        for setting in options {
            match self.names.name(setting.key.symbol) {
                // The length of a list cannot be checked if the number of members is wrong.
                "priority" | "units" | "queue" if members.is_none() => {}
                "priority" => priority = self.priorities(setting, streams),
                "units" => units = self.units_by_member(setting, streams),
                "queue" => queue = self.queues(setting, streams),
                _ => {}
            }
        }
        let too_many = members.is_some_and(|members| self.program.streams.len() as u64 + members > limits::STREAMS);
        if count.len() > 1 || too_many {
            let (what, value) = match count.len() > 1 {
                true => ("the number of indices of a stream family".to_owned(), count.len().to_string()),
                false => {
                    let all = self.program.streams.len() as u64 + members.unwrap_or(0);
                    ("the number of all streams".to_owned(), format!("{all}, with those above"))
                }
            };
            let at = count.first().map_or(name.span, |first| first.span);
            let help = match count.len() > 1 {
                true => "streams have one index: write the product, `stream s[a * b]`, and pick `s[i * b + j]`",
                false => "a program has at most 4096 streams: declare fewer",
            };
            self.error(ModelError::BadSize { what, value, at: at.into(), help });
        }
        let value = match members {
            Some(members) if members <= limits::STREAMS && !too_many && count.len() <= 1 => {
                let first = self.program.streams.len() as u32;
                let text = self.names.name(name.symbol);
                let is_family = !count.is_empty();
                for member in 0..members as u32 {
                    self.program.streams.push(Stream {
                        name: if is_family { format!("{text}[{member}]") } else { text.to_owned() },
                        family: name.symbol,
                        member: is_family.then_some(member),
                        priority: priority.get(member),
                        units: units.get(member),
                        queue: queue.get(member),
                        threads,
                        span: name.span,
                    });
                }
                let count = is_family.then_some(members as u32);
                Value::Stream { first, count, family: name.symbol }
            }
            _ => Value::Unknown,
        };
        self.declare(name, value);
    }

    fn buffer(&mut self, buffer: &Buffer) {
        let space = self.space(buffer.space.as_ref());
        let ty = self.buffer_type(buffer);
        for family in &buffer.families {
            let number = self.program.memories.len() as u64 + 1;
            let init = match &buffer.init {
                None => Some(Init::Random { seed: number, deviation: 1.0 }),
                Some(expr) => ty.as_ref().and_then(|ty| self.init(expr, ty)),
            };
            let count = self.family(&family.count, FamilyOf::Buffers, family.name);
            let value = match (&ty, init, count) {
                (Some(ty), Some(init), Some(count)) => {
                    let kind = MemoryKind::Buffer(init);
                    self.add_buffer(family.name, BufferAttributes { kind, space, count }, ty)
                }
                _ => Value::Unknown,
            };
            self.declare(family.name, value);
        }
    }

    /// Creates the memory of a buffer or a family of buffers, and returns the value of its name.
    pub(super) fn add_family(
        &mut self,
        name: Name,
        kind: MemoryKind,
        space: Space,
        count: Dims,
        (dtype, dims): (DType, Dims),
    ) -> Value {
        let sizes: Vec<u64> = count.iter().chain(dims.iter()).copied().collect();
        let Some(all) = Dims::from_slice(&sizes).filter(|all| all.elements().is_some_and(|n| n < 1 << 57)) else {
            return self.fail_value(ModelError::BadSize {
                what: "the shape with that of the family".to_owned(),
                value: format!("{sizes:?}"),
                at: name.span.into(),
                help: "at most 8 dimensions and 2^57 elements",
            });
        };
        let bytes = all.elements().and_then(|elements| elements.checked_mul(dtype.size())).unwrap_or(u64::MAX);
        if bytes > self.options.max_memory && kind != MemoryKind::Scratch {
            let what = format!("`{}`", self.names.name(name.symbol));
            return self.fail_value(self.too_much_memory(what, bytes, String::new(), name.span));
        }
        let family = count.len() as u8;
        let shape = self.program.shapes.intern(dtype, all);
        let memory = self.add_memory(Memory { name: name.symbol, kind, space, family, shape, span: name.span });
        Value::Tensor { view: self.all_of(memory), family }
    }

    /// Adds a memory to the program, and returns its number.
    pub(super) fn add_memory(&mut self, memory: Memory) -> MemoryId {
        self.program.memories.push(memory);
        MemoryId::from(self.program.memories.len() - 1)
    }

    /// Evaluates the memory space after `in`; the device's if it is left out or unknown, which is reported.
    pub(super) fn space(&mut self, space: Option<&Name>) -> Space {
        let Some(name) = space else { return Space::Device };
        let text = self.names.name(name.symbol).to_owned();
        if Space::from_name(&text).is_none() {
            let spaces = Space::NAMES;
            self.error(ModelError::WrongType {
                expected: format!("one of {}", suggest::listed(&spaces)),
                found: format!("`{text}`"),
                at: name.span.into(),
                help: unknown::word_help(&text, &spaces),
            });
        }
        Space::from_name(&text).unwrap_or(Space::Device)
    }

    /// Evaluates a tensor type, such as `f32[n]`. A bare element type is a tensor without dimensions. `None` after an error, which
    /// has been reported.
    pub(super) fn tensor_type(&mut self, expr: &Expr) -> Option<(DType, Dims)> {
        match self.eval(expr) {
            Value::Type(dtype, dims) => Some((dtype, *dims)),
            Value::DType(dtype) => Some((dtype, Dims::new())),
            Value::Unknown => None,
            other => self.wrong_type("a tensor type, such as `f32[n]`", &other, expr.span),
        }
    }
}
