//! `group { … }`: collectives that are issued as one operation.

use crate::base::{LabelId, OpId, PhaseId, SpecId, SrcSpan, StreamId, ViewId};
use crate::ops::{self, Operation, Spec};
use crate::syntax::ast::{Block, Call};

use super::call::Inputs;
use crate::model::analyzer::Analyzer;
use crate::model::error::{IN_PLACE, ModelError};
use crate::model::names::labels::LabelData;
use crate::model::program::OpKind;
use crate::model::values::value::Value;

/// Maximum number of operands of one operation, since launches store their index in a byte.
const OPERANDS: usize = 255;

/// A group whose collectives are being collected.
#[derive(Debug)]
pub(in crate::model) struct Batch {
    span: SrcSpan,
    parts: Vec<BatchedCollective>,
}

/// A collective of the batch with its location.
#[derive(Debug)]
struct BatchedCollective {
    spec: SpecId,
    inputs: Vec<(ViewId, SrcSpan)>,
    outputs: Vec<(ViewId, SrcSpan)>,
    stream: StreamId,
    /// Nesting of calls at the innermost `on` around the collective, as `Expansion` counts it.
    on_depth: u8,
    label: LabelId,
    labelled: bool,
    phase: PhaseId,
    span: SrcSpan,
}

impl<'a> Analyzer<'a> {
    /// Expands a group and makes one operation of its contents.
    pub(in crate::model) fn group(&mut self, body: &'a Block, span: SrcSpan) {
        if self.expansion.batch.is_some() {
            self.not_in_group("a group", "leave the inner `group` away: all in the outer one is issued together", span);
            return self.block(body);
        }
        self.expansion.batch = Some(Batch { span, parts: Vec::new() });
        self.block(body);
        if let Some(batch) = self.expansion.batch.take() {
            self.push_batch(&batch);
        }
    }

    /// Reports something that a `group` cannot contain. `what` is the subject of the message.
    pub(in crate::model) fn not_in_group(&mut self, what: &str, help: &'static str, at: SrcSpan) {
        self.error(ModelError::InGroup { what: what.to_owned(), help, at: at.into() });
    }

    /// True if an operation may be inside or outside of the open group as it is; reports an error otherwise.
    pub(super) fn fits_group(&mut self, operation: &dyn Operation, call: &Call) -> bool {
        let fits = self.expansion.batch.is_none() || operation.category() == ops::Category::Collective;
        if !fits {
            let help = "a group holds collectives, `send` and `recv`, which are issued together: move it out";
            self.not_in_group(&format!("`{}`", operation.name()), help, call.span);
        }
        fits
    }

    /// Number of the operation that the open group will become, for labels inside it.
    pub(super) fn ops_of_batch(&self) -> usize {
        usize::from(self.expansion.batch.as_ref().is_some_and(|batch| !batch.parts.is_empty()))
    }

    /// Adds a collective to the open group. `None` if it is not allowed there, which has been reported.
    pub(super) fn batch_part(
        &mut self,
        operation: &dyn Operation,
        call: &'a Call,
        spec: SpecId,
        operands: &Inputs,
    ) -> Option<()> {
        let inputs: Vec<(ViewId, SrcSpan)> =
            operands.views.iter().copied().zip(operands.spans.iter().copied()).collect();
        let spans = call.outputs.iter().map(|output| output.value.span).chain(std::iter::repeat(call.span));
        let outputs: Vec<(ViewId, SrcSpan)> = operands.written.iter().copied().zip(spans).collect();
        let stream = self.current_stream();
        let mut batch = self.expansion.batch.take()?;
        let good = self.fits_batch(&batch, &inputs, &outputs, (spec, stream), call);
        // Each part is compared with all parts before it, so long groups count as more turns.
        if good && self.room_for_operation(call.span) && self.room_for_turns(1 + batch.parts.len() / 8, call.span) {
            let op = OpId::from(self.expansion.step.ops.len());
            let label = self.open_label(call);
            let written = operation.signature().outputs.iter().zip(&outputs);
            let members = written.map(|(name, (view, _))| (*name, Value::Tensor { view: *view, family: 0 }));
            let members = members.collect::<Vec<_>>();
            batch.parts.push(BatchedCollective {
                spec,
                inputs,
                outputs,
                stream,
                on_depth: self.expansion.on_depth,
                label: label.unwrap_or(self.expansion.label),
                labelled: label.is_some(),
                phase: self.expansion.phase,
                span: call.span,
            });
            if let Some(label) = label {
                let members = members.into_iter().map(|(name, value)| (self.names.intern(name), value)).collect();
                self.close_label(call, label, LabelData::call(op.0..op.0 + 1, members));
            }
        }
        self.expansion.batch = Some(batch);
        good.then_some(())
    }

    /// True if a collective can be issued together with those before it; reports an error otherwise.
    fn fits_batch(
        &mut self,
        batch: &Batch,
        inputs: &[(ViewId, SrcSpan)],
        outputs: &[(ViewId, SrcSpan)],
        (spec, stream): (SpecId, StreamId),
        call: &Call,
    ) -> bool {
        let Some(first) = batch.parts.first() else { return true };
        let known: usize = batch.parts.iter().map(|part| part.inputs.len() + part.outputs.len()).sum();
        if stream != first.stream {
            let help = "all parts of a group are issued on one stream: write a group for each stream";
            self.not_in_group("an operation of another stream", help, call.span);
        } else if self.program.spec(spec).team != self.program.spec(first.spec).team {
            let help = "all parts of a group run over the same ranks: write a `group { … }` for each";
            self.not_in_group("a collective over other ranks", help, call.span);
        } else if known + inputs.len() + outputs.len() > OPERANDS {
            let help = "a group has at most 255 operands: make two groups of it";
            self.not_in_group("this many collectives", help, call.span);
        } else if let Some((output, other)) = self.shared(batch, inputs, outputs) {
            let memory = self.program.views.memory(output.0);
            let name = self.names.name(self.program.memory(memory).name).to_owned();
            let is_written = batch.parts.iter().any(|part| part.outputs.contains(&other));
            let error = match outputs.contains(&output) && is_written {
                true => {
                    let of = "group".to_owned();
                    ModelError::OutputTwice { name, of, first: other.1.into(), second: output.1.into() }
                }
                false => {
                    ModelError::Overlap { name, exception: IN_PLACE, output: output.1.into(), other: other.1.into() }
                }
            };
            self.error(error);
        } else {
            return true;
        }
        false
    }

    /// An output that overlaps memory accessed elsewhere in the group, where nothing orders the two accesses. `None` if
    /// there is none.
    fn shared(
        &self,
        batch: &Batch,
        inputs: &[(ViewId, SrcSpan)],
        outputs: &[(ViewId, SrcSpan)],
    ) -> Option<((ViewId, SrcSpan), (ViewId, SrcSpan))> {
        let views = &self.program.views;
        let meets = |writes: &[(ViewId, SrcSpan)], touches: &[(ViewId, SrcSpan)]| {
            let pairs = writes.iter().flat_map(|write| touches.iter().map(move |touch| (*write, *touch)));
            pairs.into_iter().find(|(write, touch)| views.overlap(write.0, touch.0))
        };
        batch.parts.iter().find_map(|part| {
            let written_here = meets(outputs, &part.inputs).or_else(|| meets(outputs, &part.outputs));
            written_here.or_else(|| meets(&part.outputs, inputs))
        })
    }

    /// Makes one operation of the parts. A single part stays a plain collective.
    fn push_batch(&mut self, batch: &Batch) {
        let Some(first) = batch.parts.first() else { return };
        let (spec, span) = match batch.parts.len() {
            1 => (first.spec, first.span),
            _ => {
                let specs: Vec<Spec> = batch.parts.iter().map(|part| self.program.spec(part.spec).clone()).collect();
                let spec = ops::Batch::of(specs, self.program.spec(first.spec).team);
                (SpecId::from(self.program.specs.insert_full(spec).0), batch.span)
            }
        };
        let views = |side: fn(&BatchedCollective) -> &[(ViewId, SrcSpan)]| -> Vec<ViewId> {
            batch.parts.iter().flat_map(|part| side(part).iter().map(|(view, _)| *view)).collect()
        };
        let (inputs, outputs) = (views(|part| &part.inputs), views(|part| &part.outputs));
        // In tables and metrics, the first label names the group.
        let label = batch.parts.iter().find(|part| part.labelled).unwrap_or(first).label;
        let outer = (self.expansion.stream, self.expansion.on_depth, self.expansion.phase);
        (self.expansion.stream, self.expansion.on_depth, self.expansion.phase) =
            (Some(first.stream), first.on_depth, first.phase);
        self.push_op(OpKind::Run(spec), span, Some(label), &inputs, &outputs);
        (self.expansion.stream, self.expansion.on_depth, self.expansion.phase) = outer;
    }
}
