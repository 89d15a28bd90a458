//! Memory of operands that are no buffers: inputs and outputs given as types, and outputs without a name.

use crate::base::{DType, Dims, MemoryId, Space, SpecId, SrcSpan, Symbol, ViewId};
use crate::ops::Operation;
use crate::ops::init::Init;
use crate::syntax::ast::Call;

use crate::model::analyzer::Analyzer;
use crate::model::program::{Memory, MemoryKind};

impl Analyzer<'_> {
    /// Memory of an input given as a type: separate for each location and loop turn, the same in each iteration.
    pub(in crate::model) fn bare(&mut self, dtype: DType, dims: Dims, name: Symbol, span: SrcSpan) -> ViewId {
        let shape = self.program.shapes.intern(dtype, dims);
        let place = self.expansion.bare.entry(span).or_default();
        let turn = place.turn;
        place.turn += 1;
        if let Some(&memory) = place.memories.get(turn)
            && self.program.memory(memory).shape == shape
        {
            return self.all_of(memory);
        }
        let seed = self.program.memories.len() as u64 + 1;
        let kind = MemoryKind::Bare(Init::Random { seed, deviation: 1.0 });
        let memory = self.add_memory(Memory { name, kind, space: Space::Device, family: 0, shape, span });
        let memories = &mut self.expansion.bare.entry(span).or_default().memories;
        match memories.get_mut(turn) {
            Some(known) => *known = memory,
            None => memories.push(memory),
        }
        self.all_of(memory)
    }

    /// Memory of an output without a name; named after the label, or else after the operation.
    pub(in crate::model) fn scratch(
        &mut self,
        operation: &dyn Operation,
        spec: SpecId,
        index: usize,
        call: &Call,
    ) -> ViewId {
        let outputs = &self.program.spec(spec).outputs;
        let (tensor, several) = (outputs[index], outputs.len() > 1);
        let output = operation.signature().outputs[index];
        let name = self.scratch_name(call, operation.name(), output, several);
        self.add_scratch((tensor.dtype, tensor.dims), name, call.span)
    }

    /// Scratch memory of an output that is given as a type; named after the label, or else after what is called, and after the
    /// output if it is one of `several`.
    pub(in crate::model) fn typed_scratch(
        &mut self,
        ty: (DType, Dims),
        span: SrcSpan,
        call: &Call,
        output: &str,
        several: bool,
    ) -> ViewId {
        let callee = call.callee.last().map_or(output, |callee| self.names.name(callee.symbol)).to_owned();
        let name = self.scratch_name(call, &callee, output, several);
        self.add_scratch(ty, name, span)
    }

    /// Adds the output's name to typed scratch at `span` if it is the only named one of several results of an operation.
    pub(in crate::model) fn name_typed_scratch(
        &mut self,
        view: ViewId,
        span: SrcSpan,
        (operation, spec): (&dyn Operation, SpecId),
        call: &Call,
    ) {
        let memory = self.program.views.memory(view);
        let Memory { kind, span: declared, .. } = self.program.memory(memory);
        let is_typed = matches!(kind, MemoryKind::Scratch) && *declared == span;
        if is_typed && call.outputs.len() == 1 && self.program.spec(spec).outputs.len() > 1 {
            let output = operation.signature().outputs[0];
            self.program.memories[memory.index()].name = self.scratch_name(call, operation.name(), output, true);
        }
    }

    fn scratch_name(&mut self, call: &Call, callee: &str, output: &str, several: bool) -> Symbol {
        let label = call.label.as_ref().map(|label| label.name.symbol);
        let name = label.unwrap_or_else(|| self.names.intern(callee));
        if !several {
            return name;
        }
        let text = format!("{}.{output}", self.names.name(name));
        self.names.intern(&text)
    }

    fn add_scratch(&mut self, (dtype, dims): (DType, Dims), name: Symbol, span: SrcSpan) -> ViewId {
        let shape = self.program.shapes.intern(dtype, dims);
        let kind = MemoryKind::Scratch;
        let memory = self.add_memory(Memory { name, kind, space: Space::Device, family: 0, shape, span });
        self.all_of(memory)
    }

    /// Returns the slice that covers a whole memory.
    pub(in crate::model) fn all_of(&mut self, memory: MemoryId) -> ViewId {
        let layout = self.program.layout(memory);
        self.program.views.whole(memory, &layout)
    }
}
