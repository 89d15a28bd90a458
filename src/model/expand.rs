//! Expands statements: executes loops, branches, blocks and definitions, and emits operations in the order of the text.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{LabelId, MemoryId, OnceBlock, OpId, PhaseId, SrcSpan, StreamId, Symbol, TurnId, ViewId};
use crate::syntax::ast::*;
use crate::syntax::walk;

use super::analyzer::Analyzer;
use super::calls::batch::Batch;
use super::calls::call::Inputs;
use super::calls::specs::Specs;
use super::error::{LimitError, ModelError};
use super::gradient::Writers;
use super::limits::{CYCLE, TURNS_PER_OPERATION};
use super::names::callee::Callee;
use super::names::index::Index;
use super::names::labels::{self, LabelData, StepLabels};
use super::program::{After, Label, Priority, Step, Stream};
use super::turns::TurnOrigin;
use super::values::value::Value;

/// Factor by which turns count against the limit after an error.
const TURNS_AFTER_MISTAKE: usize = 64;

/// The state of an expansion, in addition to names.
#[derive(Debug, Default)]
pub(super) struct Expansion<'a> {
    /// Parameter values from the caller or the preset.
    pub given: FxHashMap<Symbol, &'a Expr>,
    /// For each parameter, the values that all presets give it.
    pub presets: FxHashMap<Symbol, Vec<&'a Expr>>,
    /// True while the statements of a block are expanded, in contrast to declarations.
    pub in_block: bool,
    pub step: Step,
    /// Labels of this step: those of `Program::labels` from `first_label` on.
    pub labels: Vec<LabelData>,
    pub first_label: usize,
    pub families: Vec<labels::Family>,
    /// For each label that something waits for, its last operation on each stream.
    pub last_of: FxHashMap<LabelId, Vec<OpId>>,
    /// Outputs of definitions without an argument at the call.
    pub outputs: Vec<OutputState>,
    /// Bare inputs by their location.
    pub bare: FxHashMap<SrcSpan, BareInput>,
    /// The stream of the innermost `on`; `None` outside of such blocks.
    pub stream: Option<StreamId>,
    /// Number of calls that were open at the innermost `on`; 0 outside of definitions.
    pub on_depth: u8,
    /// For each operation of this step up to the last that a definition has placed by an `on`, the `on_depth` of that
    /// block; 0 for the others.
    pub on_depths: Vec<u8>,
    pub label: LabelId,
    pub phase: PhaseId,
    /// The innermost open loop turn or call.
    pub turn: TurnId,
    /// The open `group { … }`; `None` outside of groups.
    pub batch: Option<Batch>,
    /// Dependencies of the open `on … after` blocks.
    pub after: Vec<BlockDependencies>,
    /// Dependencies `after prev(…)`, resolved once all iterations are expanded.
    pub previous: Vec<PreviousDependency>,
    /// Names that occur in some `prev(…)`.
    pub previous_names: FxHashSet<Symbol>,
    main: Option<StreamId>,
    /// Number of operations in the iterations before.
    before: usize,
    turns: usize,
    stopped: bool,
    /// The definitions whose calls are open, the outermost first.
    pub calls: Vec<Symbol>,
    /// Number of the innermost open call, from 1; 0 outside of calls.
    pub call: u32,
    /// Number of calls so far.
    pub called: u32,
    /// Number of calls so far that had a mistake, or read something that had.
    pub failed: u32,
    pub callees: FxHashMap<Symbol, Callee<'a>>,
    pub specs: Specs,
    /// Reused vectors for the operands of an operation.
    pub inputs: Inputs,
    /// The writes of this step's operations, collected when a `grad` needs them.
    pub writers: Writers,
    /// Memories with the contents 0, 1, 2, …, by the number of their shape.
    pub iotas: FxHashMap<u32, MemoryId>,
}

/// The memories of a bare input by turn, the same in each iteration.
#[derive(Debug, Default)]
pub(super) struct BareInput {
    pub memories: Vec<MemoryId>,
    /// Number of turns that the current iteration has reached.
    pub turn: usize,
}

/// State of an output of a definition.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutputState {
    /// No operation has written the output yet, so it has no memory.
    NotYet,
    /// The memory of the output.
    To(ViewId),
    /// The operation that writes the output has failed, so uses of the output are not reported.
    Failed,
}

/// Dependencies of an `on … after` block: added to the first operation on each of its streams.
#[derive(Debug)]
pub(super) struct BlockDependencies {
    pub ops: Vec<After>,
    /// Streams of the block whose first operation has the dependencies.
    pub done: FxHashSet<StreamId>,
}

/// A dependency on a label of the previous iteration.
#[derive(Debug)]
pub(super) struct PreviousDependency {
    pub step: usize,
    pub name: Symbol,
    /// The numbers in brackets after the name; `None` without brackets.
    pub index: Option<Index>,
    pub span: SrcSpan,
}

impl<'a> Analyzer<'a> {
    /// Expands the step for each slot of the cycle.
    pub(super) fn steps(&mut self) {
        let ast = self.ast;
        let mut steps = ast.decls.iter().filter_map(|decl| match &decl.kind {
            DeclKind::Step { body, .. } => Some((decl.span, body)),
            _ => None,
        });
        let Some((first, body)) = steps.next() else {
            // Points after the last declaration, since the file's length is not known here.
            let end = ast.decls.last().map_or(0, |decl| decl.span.end() as usize);
            self.error(ModelError::NoStep { at: (end, 0).into() });
            return;
        };
        for (span, _) in steps {
            self.error(ModelError::Second { what: "step", at: span.into(), first: first.into() });
        }
        let may_race = self.program.step.declared_order && !self.program.step.allow_races;
        if may_race || self.options.world > 1 {
            self.program.turns.keep();
        }
        self.expansion.previous_names = previous_names(ast);
        self.around.setup = self.once_block(OnceBlock::Setup);
        let mut labels = Vec::new();
        let mut iteration = 0;
        while iteration < self.cycle_use.cycle(self.options.cycle) {
            if iteration >= CYCLE {
                self.error(ModelError::BadSize {
                    what: "the number of iterations after which the step repeats".to_owned(),
                    value: format!("more than {CYCLE}"),
                    at: first.into(),
                    help: "take remainders of `iteration` by smaller numbers, or of numbers with common factors",
                });
                break;
            }
            labels.push(self.one_step(body, iteration));
            if self.failed() {
                break;
            }
            iteration += 1;
        }
        if !self.failed() && self.program.cycle.iter().all(|step| step.ops.is_empty()) {
            let help = if self.program.by_rank {
                "every rank needs an operation: call a collective outside of an `if` on `rank`, since all ranks of its group take part, \
                 and give a rank without work `nop()`; or check the condition or the range for these parameters"
            } else {
                "write one, such as `nop()`; if an `if` or a `for` contains one, check the condition or the range for these parameters"
            };
            self.error(ModelError::NothingToRun { at: first.into(), help });
        }
        if !self.failed() {
            self.resolve_previous(&labels);
        }
        self.around.teardown = self.once_block(OnceBlock::Teardown);
    }

    /// Expands the `setup` or the `teardown` of the file; `None` if it has none.
    fn once_block(&mut self, which: OnceBlock) -> Option<Step> {
        let ast = self.ast;
        let mut blocks = ast.decls.iter().filter_map(|decl| match (&decl.kind, which) {
            (DeclKind::Setup(body), OnceBlock::Setup) | (DeclKind::Teardown(body), OnceBlock::Teardown) => {
                Some((decl.span, body))
            }
            _ => None,
        });
        let (first, body) = blocks.next()?;
        for (span, _) in blocks {
            self.error(ModelError::Second { what: which.name(), at: span.into(), first: first.into() });
        }
        let (step, _) = self.expanded(body);
        Some(step)
    }

    /// Expands one iteration and returns the labels that `prev` can refer to in the next one.
    fn one_step(&mut self, body: &'a Block, iteration: u64) -> StepLabels {
        self.iteration = Some(iteration as i64);
        let (step, labels) = self.expanded(body);
        self.iteration = None;
        self.program.cycle.push(step);
        labels
    }

    /// Expands a block, and returns its operations and the labels that `prev` can refer to.
    fn expanded(&mut self, body: &'a Block) -> (Step, StepLabels) {
        let expansion = &mut self.expansion;
        expansion.in_block = true;
        expansion.step = Step::default();
        expansion.first_label = self.program.labels.len();
        expansion.labels.clear();
        expansion.families.clear();
        expansion.last_of.clear();
        expansion.outputs.clear();
        expansion.writers = Writers::default();
        expansion.on_depths.clear();
        expansion.bare.values_mut().for_each(|bare| bare.turn = 0);
        self.scopes.enter_frame();
        self.block(body);
        let names = self.scopes.leave_frame();
        self.expansion.in_block = false;
        let labels = self.step_labels(names);
        let mut step = std::mem::take(&mut self.expansion.step);
        self.expansion.before += step.ops.len();
        step.finish();
        (step, labels)
    }

    /// Expands the statements of a block, until the limit of operations or errors is reached.
    pub(super) fn block(&mut self, block: &'a Block) {
        for stmt in &block.stmts {
            if self.expansion.stopped {
                return;
            }
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        match &stmt.kind {
            StmtKind::Let(Binding { name, value }) => {
                let value = self.eval(value);
                self.declare(*name, value);
            }
            StmtKind::For { variable, over, body } => self.for_(*variable, over, body),
            StmtKind::If { arms, otherwise } => self.if_(stmt, arms, otherwise.as_ref()),
            StmtKind::On { stream, after, body } => self.on(stream, after, body),
            StmtKind::Phase { label, body } => {
                let index = self.label_index(label).unwrap_or_default();
                let outer = self.expansion.phase;
                self.program.phases.push(Label { name: Some(label.name.symbol), index, parent: LabelId(outer.0) });
                self.expansion.phase = PhaseId::from(self.program.phases.len() - 1);
                self.block(body);
                self.expansion.phase = outer;
            }
            StmtKind::Group { body } => self.group(body, stmt.span),
            StmtKind::Buffer(buffer) => self.local_buffer(buffer),
            StmtKind::Call(call) => self.call(call),
        }
    }

    fn for_(&mut self, variable: Name, over: &Expr, body: &'a Block) {
        let mut over_value = self.eval(over);
        if let Value::Range { from, to, .. } = over_value {
            let (turns, limit) = (to.saturating_sub(from).max(0), self.options.max_operations);
            if turns as u64 > limit as u64 {
                self.error(LimitError::RangeTooLong { turns, limit, at: over.span.into() });
                over_value = Value::Unknown;
            }
        }
        let values: Box<dyn Iterator<Item = Value>> = match over_value {
            Value::Range { from, to, reversed: false } => Box::new((from..to).map(Value::int)),
            Value::Range { from, to, reversed: true } => Box::new((from..to).rev().map(Value::int)),
            Value::List(items) => Box::new((0..items.len()).map(move |index| items[index].clone())),
            Value::Unknown => {
                // Expands the body once with an unknown variable, to find its errors.
                Box::new(std::iter::once(Value::Unknown))
            }
            other => {
                self.wrong_type::<()>("a range, such as `0..n`, or a list", &other, over.span);
                return self.declare_unknown(body);
            }
        };
        let outer = self.expansion.turn;
        for value in values {
            if !self.room_for_turns(1, over.span) {
                break;
            }
            let number = if let Value::Number(number) = &value { super::values::eval::plain(number) } else { None };
            let origin = TurnOrigin::Loop { span: over.span, variable: variable.symbol, value: number };
            self.expansion.turn = self.program.turns.enter(outer, origin);
            self.scopes.enter();
            self.declare(variable, value);
            self.block(body);
            self.scopes.close();
        }
        self.expansion.turn = outer;
    }

    fn if_(&mut self, stmt: &'a Stmt, arms: &'a [Arm], otherwise: Option<&'a Block>) {
        let mut taken = otherwise;
        for Arm { condition, body, .. } in arms {
            match self.eval_bool(condition) {
                Some(true) => {
                    taken = Some(body);
                    break;
                }
                Some(false) => {}
                // The condition is unknown, so no branch can be chosen.
                None => return stmt.blocks().into_iter().for_each(|block| self.declare_unknown(block)),
            }
        }
        let Some(taken) = taken else { return };
        self.scopes.enter();
        self.block(taken);
        // A label that every branch declares is visible after the statement.
        if otherwise.is_none() {
            return self.scopes.close();
        }
        let names = self.scopes.leave();
        for (name, value) in names {
            let everywhere = stmt.blocks().into_iter().all(|body| declares_label(body, name));
            if everywhere && matches!(value, Value::Label(_) | Value::Labels(_)) {
                self.scopes.declare(name, value);
            }
        }
    }

    /// Declares the names of a block without values, so that their uses are not reported.
    fn declare_unknown(&mut self, block: &'a Block) {
        walk::block(block, &mut |stmt| {
            if let StmtKind::Call(call) = &stmt.kind {
                self.declare_failed_call(call);
            }
        });
    }

    fn on(&mut self, stream: &Expr, after: &'a [Edge], body: &'a Block) {
        let outer = (self.expansion.stream, self.expansion.on_depth);
        match self.eval(stream) {
            Value::Stream { first, count: None, .. } => {
                self.expansion.stream = Some(StreamId(first));
                // At most `limits::CALLS` calls are open.
                self.expansion.on_depth = self.expansion.calls.len() as u8;
            }
            Value::Stream { count: Some(_), .. } => {
                let name = self.text_of(stream);
                self.error(ModelError::WrongType {
                    expected: "one stream".to_owned(),
                    found: "a family of streams".to_owned(),
                    at: stream.span.into(),
                    help: Some(format!("pick a member: `{name}[0]`")),
                });
            }
            other => {
                self.wrong_type::<()>("a stream", &other, stream.span);
            }
        }
        if let (Some(edge), true) = (after.first(), self.expansion.batch.is_some()) {
            let help = "a group waits as a whole: write `on s after f { group { … } }`";
            self.not_in_group("`after`", help, edge.label.span);
        }
        // The open group is not an operation yet, so nothing can wait for it.
        let ops = if self.expansion.batch.is_some() { Vec::new() } else { self.edges(after) };
        let waits = !ops.is_empty();
        if waits {
            self.expansion.after.push(BlockDependencies { ops, done: FxHashSet::default() });
        }
        self.block(body);
        if waits {
            self.expansion.after.pop();
        }
        (self.expansion.stream, self.expansion.on_depth) = outer;
    }

    /// The stream of the innermost `on`, or `main`.
    pub(super) fn current_stream(&mut self) -> StreamId {
        if let Some(stream) = self.expansion.stream {
            return stream;
        }
        if let Some(main) = self.expansion.main {
            return main;
        }
        let declared = self.program.streams.iter().position(|stream| stream.family == self.builtins.main);
        let main = declared.map(StreamId::from).unwrap_or_else(|| {
            self.program.streams.push(Stream {
                name: "main".to_owned(),
                family: self.builtins.main,
                member: None,
                priority: Priority::Normal,
                units: None,
                queue: None,
                threads: None,
                span: SrcSpan::default(),
            });
            StreamId::from(self.program.streams.len() - 1)
        });
        self.expansion.main = Some(main);
        main
    }

    /// Returns false and stops the expansion if there are too many operations.
    pub(super) fn room_for_operation(&mut self, span: SrcSpan) -> bool {
        let limit = self.options.max_operations;
        if self.expansion.step.ops.len() >= limit - self.expansion.before {
            let iterations = self.program.cycle.len() + 1;
            self.error(LimitError::TooManyOperations { limit, iterations, at: span.into() });
            self.expansion.stopped = true;
        }
        !self.expansion.stopped
    }

    /// Returns false and stops the expansion if there are too many loop turns and calls, with or without operations.
    /// After an error the limit is lower, since further turns would find the same error.
    pub(super) fn room_for_turns(&mut self, turns: usize, span: SrcSpan) -> bool {
        self.expansion.turns += if self.failed() { turns * TURNS_AFTER_MISTAKE } else { turns };
        let limit = self.options.max_operations.saturating_mul(TURNS_PER_OPERATION);
        if self.expansion.turns > limit && self.failed() {
            self.expansion.stopped = true;
        }
        if self.expansion.turns > limit && !self.expansion.stopped {
            let max_operations = self.options.max_operations;
            self.error(LimitError::TooManyTurns { limit, max_operations, at: span.into() });
            self.expansion.stopped = true;
        }
        !self.expansion.stopped
    }
}

/// True if a block declares a label of that name in its own scope.
fn declares_label(block: &Block, name: Symbol) -> bool {
    block.stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Call(call) => call.label.as_ref().is_some_and(|label| label.name.symbol == name),
        StmtKind::For { .. } | StmtKind::If { otherwise: None, .. } => false,
        _ => {
            let blocks = stmt.blocks();
            !blocks.is_empty() && blocks.into_iter().all(|body| declares_label(body, name))
        }
    })
}

/// The names that occur in a file's `prev(…)`.
fn previous_names(ast: &Ast) -> FxHashSet<Symbol> {
    let mut names = FxHashSet::default();
    walk::stmts(ast, &mut |stmt| {
        if let StmtKind::On { after, .. } = &stmt.kind {
            names.extend(after.iter().filter(|edge| edge.previous).filter_map(|edge| match &edge.label.kind {
                ExprKind::Index { base, .. } => base.as_name(),
                _ => edge.label.as_name(),
            }));
        }
    });
    names
}
