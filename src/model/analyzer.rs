//! The state of an analysis, and the order in which declarations are analyzed.

use std::mem::discriminant;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{Around, Bytes, DType, GroupId, Interner, MemoryId, SrcSpan, Symbol, lcm};
use crate::syntax::ast::*;

use super::AnalysisOptions;
use super::calls::kernel::DeclaredKernel;
use super::check;
use super::error::{LimitError, ModelError};
use super::expand::Expansion;
use super::mistakes::{Mistake, Mistakes};
use super::names::declared;
use super::names::declared::DeclaredSets;
use super::names::scopes::Scopes;
use super::program::*;
use super::ranks::group::{Factor, Group};
use super::values::drawn::Draw;
use super::values::value::Value;

/// Names that are defined in every file.
pub(super) struct Builtins {
    pub rank: Symbol,
    pub world: Symbol,
    pub iteration: Symbol,
    pub unwanted: Symbol,
    pub main: Symbol,
}

/// Dependence of the program on the iteration's number.
#[derive(Debug)]
pub(super) struct CycleUse {
    /// True if the number itself is used, so that all iterations may differ.
    pub all: bool,
    /// Least common multiple of the divisors in `iteration % n`.
    modulus: u64,
}

impl CycleUse {
    /// A program that repeats after this many iterations.
    fn multiple_of(iterations: u64) -> Self {
        CycleUse { all: false, modulus: iterations.max(1) }
    }

    /// Notes that the program uses the iteration's number modulo `modulus`.
    pub fn add(&mut self, modulus: i64) {
        self.modulus = lcm(self.modulus, modulus.unsigned_abs()).unwrap_or(u64::MAX);
    }

    /// Number of iterations after which everything repeats if the number itself is used.
    pub fn longest_cycle(&self, base: u64) -> u64 {
        CycleUse { all: true, modulus: self.modulus }.cycle(base)
    }

    /// Number of iterations after which everything repeats: a multiple of all divisors, and at least `base` if the
    /// number itself is used.
    pub fn cycle(&self, base: u64) -> u64 {
        match self.all {
            false => self.modulus,
            true => base.max(1).checked_next_multiple_of(self.modulus).unwrap_or(u64::MAX),
        }
    }
}

/// State of the analysis of a file for one rank.
pub(super) struct Analyzer<'a> {
    pub ast: &'a Ast,
    pub options: &'a AnalysisOptions,
    pub names: Interner,
    pub builtins: Builtins,
    pub scopes: Scopes,
    /// Words that a parameter lists as values. Expressions can use them everywhere, and they evaluate to themselves.
    pub words: FxHashSet<Symbol>,
    /// Names of all families of labels in the file.
    pub label_families: FxHashSet<Symbol>,
    pub program: Program,
    pub defs: FxHashMap<Symbol, &'a Decl>,
    /// Declared kernels; `None` for those with a mistake.
    pub kernels: FxHashMap<Symbol, Option<Rc<DeclaredKernel<'a>>>>,
    /// Groups of several factors of a mesh, by the groups of these factors in their order.
    pub products: FxHashMap<Vec<GroupId>, GroupId>,
    /// The iteration that is being expanded; `None` outside of the step.
    pub iteration: Option<i64>,
    pub cycle_use: CycleUse,
    /// The operations of `setup` and `teardown`.
    pub around: Around<Step>,
    pub draws: Vec<Draw>,
    /// Number of slots of the cycle; `None` before the step is analyzed, and if it has mistakes.
    pub slots: Option<usize>,
    pub expansion: Expansion<'a>,
    /// Index of each metric declared so far.
    pub metrics: FxHashMap<Symbol, usize>,
    /// Families of metrics declared so far: for each member, the text of its value and its index.
    pub metric_families: FxHashMap<Symbol, Vec<(String, usize)>>,
    /// Labels, and phases, that a figure can select, by name.
    pub sets: (DeclaredSets, DeclaredSets),
    /// Number of list members evaluated so far.
    pub members: usize,
    /// Location of `meta`; `None` before it.
    pub meta: Option<SrcSpan>,
    pub mistakes: Mistakes,
    /// Locations of names that were already reported, which suppresses follow-up errors.
    pub bad_names: FxHashSet<usize>,
}

impl<'a> Analyzer<'a> {
    pub fn new(ast: &'a Ast, options: &'a AnalysisOptions) -> Self {
        let mut names = ast.names.clone();
        let builtins = Builtins {
            rank: names.intern("rank"),
            world: names.intern("world"),
            iteration: names.intern("iteration"),
            unwanted: names.intern("_"),
            main: names.intern("main"),
        };
        // The first of several definitions with a name counts.
        let defs = ast.decls.iter().rev().filter_map(|decl| match &decl.kind {
            DeclKind::Def { name, .. } => Some((name.symbol, decl)),
            _ => None,
        });
        let world = Factor { size: options.world.max(1), stride: 1 };
        let program = Program {
            rank: options.rank,
            world: options.world,
            groups: vec![Group::new("world".to_owned(), &[world], options.rank, SrcSpan::default())],
            labels: vec![Label::default()],
            phases: vec![Label::default()],
            ..Program::default()
        };
        Analyzer {
            ast,
            options,
            builtins,
            scopes: Scopes::new(),
            words: parameter_words(ast, &names),
            label_families: declared::label_families(ast),
            program,
            defs: defs.collect(),
            kernels: FxHashMap::default(),
            products: FxHashMap::default(),
            iteration: None,
            cycle_use: CycleUse::multiple_of(options.cycle_multiple),
            around: Around::default(),
            draws: Vec::new(),
            slots: None,
            expansion: Expansion::default(),
            metrics: FxHashMap::default(),
            metric_families: FxHashMap::default(),
            sets: Default::default(),
            members: 0,
            meta: None,
            mistakes: Mistakes::default(),
            bad_names: FxHashSet::default(),
            names,
        }
    }

    /// Adds an error, unless the same one was already found at this location, for example in an earlier turn of a loop.
    pub fn error(&mut self, error: impl Into<ModelError>) {
        let error = error.into();
        if matches!(error, ModelError::UnknownName { .. } | ModelError::NotAllowed { .. })
            && self.bad_names.contains(&error.offset())
        {
            return;
        }
        let at = error.location();
        if self.mistakes.add(error, self.expansion.call) {
            let circumstances = self.circumstances(at);
            self.mistakes.found_in(circumstances);
        }
    }

    /// Reports an error and returns `None`.
    pub fn fail<T>(&mut self, error: impl Into<ModelError>) -> Option<T> {
        self.error(error);
        None
    }

    /// Reports an error and returns [`Value::Unknown`].
    pub fn fail_value(&mut self, error: impl Into<ModelError>) -> Value {
        self.error(error);
        Value::Unknown
    }

    /// Declares a name. If something of the same kind has the name already, it keeps it; if something else has it, the name
    /// becomes unknown, so that uses of either are not reported.
    pub fn declare(&mut self, name: Name, value: Value) {
        if !self.bad_names.contains(&(name.span.start as usize)) {
            return self.scopes.declare(name.symbol, value);
        }
        let is_of_same_kind = |first: &Value| discriminant(first) == discriminant(&value);
        if !self.scopes.get(name.symbol).is_some_and(is_of_same_kind) {
            self.scopes.declare(name.symbol, Value::Unknown);
        }
    }

    /// True if another error would be reported; otherwise its text need not be prepared.
    pub fn has_room_for_errors(&self) -> bool {
        !self.mistakes.is_full()
    }

    /// True if an error has been found.
    pub fn failed(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// Analyzes the whole file.
    pub fn run(mut self) -> Result<Program, Vec<Mistake>> {
        let found = check::names(self.ast, &self.names, &self.words);
        let names: FxHashSet<usize> = found.iter().map(ModelError::offset).collect();
        found.into_iter().for_each(|error| self.error(error));
        self.bad_names = names;
        self.parameters();
        let independent = self.mistakes.len();
        for decl in &self.ast.decls {
            self.declaration(decl);
        }
        if self.mistakes.has_requirement() {
            let conditions = self.ast.decls.iter().filter_map(|decl| match &decl.kind {
                DeclKind::Require { condition, .. } => Some(condition.span),
                _ => None,
            });
            let conditions: Vec<SrcSpan> = conditions.collect();
            self.mistakes.keep_requirements(independent, &conditions);
            return Err(self.mistakes.sorted());
        }
        self.signatures();
        self.steps();
        self.slots = self.mistakes.is_empty().then_some(self.program.cycle.len());
        self.figures();
        if self.mistakes.is_empty() {
            let name = |memory: MemoryId| self.names.name(self.program.memory(memory).name).to_owned();
            let unwritten =
                super::memory::unwritten::reads(&self.program, self.around.iter().map(|(_, block)| block), name);
            unwritten.into_iter().for_each(|error| self.error(error));
            self.check_memory();
        }
        if self.mistakes.is_empty() {
            let mut program = self.program;
            program.names = self.names;
            program.memories.shrink_to_fit();
            program.labels.shrink_to_fit();
            // The tables are copied for the blocks without the operations of the cycle.
            let cycle = std::mem::take(&mut program.cycle);
            program.around = self.around.map(|block| Arc::new(program.once(block).finish()));
            program.cycle = cycle;
            return Ok(program.finish());
        }
        Err(self.mistakes.sorted())
    }

    /// Names that an unknown name may be a misspelling of.
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

    /// Checks declared buffers and bare inputs against the memory limit. Scratch memory is shared and counted when it
    /// is laid out.
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
        let largest = format!("the largest: {}; ", largest.join(", "));
        self.error(self.too_much_memory("the program".to_owned(), total, largest, at));
    }

    /// Returns the error for a buffer or a program, `what`, of `total` bytes; a program names its largest buffers.
    pub fn too_much_memory(&self, what: String, total: u64, largest: String, at: SrcSpan) -> ModelError {
        let [total, limit] = [total, self.options.max_memory].map(|bytes| Bytes(bytes).to_string());
        LimitError::TooMuchMemory { what, total, limit, largest, at: at.into() }.into()
    }
}

/// The words that parameters list as their values.
fn parameter_words(ast: &Ast, names: &Interner) -> FxHashSet<Symbol> {
    let declared: FxHashSet<Symbol> = ast
        .decls
        .iter()
        .filter_map(|decl| match &decl.kind {
            DeclKind::Param { name, .. } | DeclKind::Let(Binding { name, .. }) => Some(name.symbol),
            _ => None,
        })
        .collect();
    ast.decls
        .iter()
        .filter_map(|decl| match &decl.kind {
            DeclKind::Param { allowed: Some(Expr { kind: ExprKind::List(items), .. }), .. } => Some(items),
            _ => None,
        })
        .flatten()
        .filter_map(Expr::as_name)
        .filter(|&symbol| DType::from_name(names.name(symbol)).is_none() && !declared.contains(&symbol))
        .collect()
}
