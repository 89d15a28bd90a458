//! Specs: operations with their shapes and options, but without the slices that they work on. The shape rule runs once
//! for each distinct spec.

use std::num::NonZeroU32;
use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::base::{Bytes, GroupId, SpecId, SrcSpan, ViewId};
use crate::ops::{self, Attrs, Category, Collective, Expression, Launch, OpError, Operand, Operation, Spec, Team};
use crate::syntax::ast::Call;

use super::call::{Inputs, Output};
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;

/// Known specs, by a key of all values that they depend on.
#[derive(Debug, Default)]
pub(in crate::model) struct Specs {
    attrs: IndexSet<Attrs, FxBuildHasher>,
    expressions: IndexSet<Arc<Expression>, FxBuildHasher>,
    table: FxHashMap<Box<[u32]>, SpecId>,
    /// A reused buffer for a key.
    key: Vec<u32>,
}

/// Bytes of an output below which the outputs of the maximum number of operations can be summed without overflow.
const SUMMED: u64 = 1 << 41;

impl Analyzer<'_> {
    /// Returns the spec of a call. Runs the shape rule if the spec is new; `None` if that fails, which has been reported.
    pub(in crate::model) fn spec(
        &mut self,
        place: usize,
        call: &Call,
        inputs: &Inputs,
        (attrs, team): (&Attrs, Team),
        outputs: &[Output],
    ) -> Option<SpecId> {
        let threads = self.current_threads();
        let known = &mut self.expansion.specs;
        let attrs_key = match known.attrs.get_index_of(attrs) {
            Some(index) => index,
            None => known.attrs.insert_full(attrs.clone()).0,
        };
        let expression = inputs.has_expression.then_some(&inputs.lowering.expression);
        let expression = expression.map(|expression| match known.expressions.get_full(expression) {
            Some((index, shared)) => (index as u32, shared.clone()),
            None => {
                let shared = Arc::new(expression.clone());
                (known.expressions.insert_full(shared.clone()).0 as u32, shared)
            }
        });
        let expression_key = expression.as_ref().map_or(u32::MAX, |(index, _)| *index);
        let mut key = std::mem::take(&mut known.key);
        key.clear();
        let threads_key = threads.map_or(0, NonZeroU32::get);
        let count = inputs.views.len() as u32;
        key.extend([place as u32, team.group.0, attrs_key as u32, expression_key, threads_key, count]);
        key.extend(inputs.views.iter().map(|&view| self.program.views.tensor_key(view)));
        key.extend(outputs.iter().map(|output| match output {
            Output::Given(view, _) => self.program.views.tensor_key(*view),
            _ => u32::MAX,
        }));
        let spec = self.expansion.specs.table.get(key.as_slice()).copied().or_else(|| {
            let expression = expression.map(|(_, expression)| expression);
            let question = (attrs, expression, team, threads);
            let inferred = self.infer(ops::CATALOGUE[place], call, inputs, question, outputs);
            let spec = inferred.map_err(|error| self.error(*error)).ok()?;
            self.program.by_rank |= depends_on_rank(&spec);
            let id = SpecId::from(self.program.specs.insert_full(spec).0);
            self.expansion.specs.table.insert(key.as_slice().into(), id);
            Some(id)
        });
        self.expansion.specs.key = key;
        spec
    }

    /// Names of the groups for which a collective would have the given output, for a message; `None` if no group fits.
    fn fitting_groups(&self, question: &ops::Call) -> Option<String> {
        let groups = (1..self.program.groups.len()).map(GroupId::from);
        let fitting = groups.filter(|&group| {
            let question = ops::Call { team: self.team(group), ..*question };
            question.operation.category() == Category::Collective && question.infer().is_ok()
        });
        let fitting: Vec<String> =
            fitting.map(|group| format!("`over {}`", self.program.groups[group.index()].name)).collect();
        (!fitting.is_empty()).then(|| fitting.join(" or "))
    }

    /// The spec of a call by the operation's rule of shapes, or the mistake in it.
    pub(in crate::model) fn infer(
        &self,
        operation: &'static dyn Operation,
        call: &Call,
        inputs: &Inputs,
        (attrs, expression, team, threads): (&Attrs, Option<Arc<Expression>>, Team, Option<NonZeroU32>),
        outputs: &[Output],
    ) -> Result<Spec, Box<ModelError>> {
        let real = |view: ViewId| *self.program.views.tensor(view);
        let operand = |view: ViewId, span: SrcSpan| {
            let tensor = if threads.is_some() { ops::on_device(real(view)) } else { real(view) };
            Operand { tensor, span }
        };
        let input_operands: Vec<Operand> =
            inputs.views.iter().zip(&inputs.spans).map(|(&view, &span)| operand(view, span)).collect();
        let output_operands: Vec<Option<Operand>> = outputs
            .iter()
            .map(|output| match output {
                Output::Given(view, span) => Some(operand(*view, *span)),
                _ => None,
            })
            .collect();
        let question = ops::Call {
            operation,
            span: call.span,
            inputs: &input_operands,
            outputs: &output_operands,
            attrs,
            expression: expression.as_deref(),
            team,
        };
        let types = match question.infer() {
            Ok(types) => types,
            Err(mut error) => {
                if let OpError::Output { over, .. } = &mut error
                    && call.over.is_none()
                {
                    *over = self.fitting_groups(&question);
                }
                return Err(Box::new(error.into()));
            }
        };
        for (given, (dtype, dims)) in outputs.iter().zip(&types) {
            // The declaration of a named output reports a size above the limit of memory.
            let limit = match given {
                Output::Given(..) => SUMMED,
                _ => self.options.max_memory.min(SUMMED),
            };
            let bytes = dims.elements().and_then(|elements| elements.checked_mul(dtype.size()));
            if bytes.is_none_or(|bytes| bytes > limit) {
                return Err(Box::new(ModelError::BadSize {
                    what: format!("the result of `{}`", operation.name()),
                    value: format!("{dtype}{dims}, more than {}", Bytes(limit)),
                    at: call.span.into(),
                    help: "lower a dimension of its inputs, or raise the limit: --config max_memory=…",
                }));
            }
        }
        let outputs = outputs
            .iter()
            .zip(types)
            .map(|(given, (dtype, dims))| match given {
                Output::Given(view, _) => real(*view),
                _ => ops::Tensor::packed(dtype, &dims),
            })
            .collect();
        let inputs = inputs.views.iter().map(|&view| real(view)).collect();
        Ok(Spec { expression, team, threads, ..Spec::new(operation, attrs.clone(), inputs, outputs) })
    }
}

/// True if a collective differs between ranks although its text is the same.
pub(in crate::model) fn depends_on_rank(spec: &Spec) -> bool {
    let own = |entry: &Collective| entry.is_transfer() || entry.parts.is_some();
    spec.operation.category() == Category::Collective && spec.launch().iter().flat_map(Launch::collectives).any(own)
}
