//! The nodes on which fusion works.

use std::sync::Arc;

use crate::base::{OpId, StreamId, ViewId};
use crate::model::{Op, OpKind, Program, Replacement, Rewritten, Step};
use crate::ops::Spec;

/// An operation of the step, or several that have been fused.
#[derive(Clone, Debug)]
pub struct FusionNode {
    /// The operations of the step, in the order of the text.
    pub members: Vec<OpId>,
    pub kind: OpKind,
    pub stream: StreamId,
    pub inputs: Vec<ViewId>,
    pub outputs: Vec<ViewId>,
    /// The spec of the fused operation; `None` for an unchanged operation of the step.
    pub joined: Option<Arc<Spec>>,
    /// True if the operation has become part of another node.
    pub is_gone: bool,
}

impl FusionNode {
    /// The node of a single operation.
    pub fn of(step: &Step, op: OpId) -> FusionNode {
        let Op { kind, stream, .. } = *step.op(op);
        let (inputs, outputs) = (step.inputs(op).to_vec(), step.outputs(op).to_vec());
        FusionNode { members: vec![op], kind, stream, inputs, outputs, joined: None, is_gone: false }
    }

    /// The spec; `None` for a marker.
    pub fn spec<'a>(&'a self, program: &'a Program) -> Option<&'a Spec> {
        match (&self.joined, self.kind) {
            (Some(joined), _) => Some(joined),
            (None, OpKind::Run(spec)) => Some(program.spec(spec)),
            (None, _) => None,
        }
    }

    /// Converts the node to the form that `Program::rewritten` takes.
    pub fn rewritten(self) -> Rewritten {
        let FusionNode { members, inputs, outputs, joined, .. } = self;
        let replacement = joined.map(|spec| Replacement { spec: Arc::unwrap_or_clone(spec), inputs, outputs });
        Rewritten { members, replacement }
    }
}
