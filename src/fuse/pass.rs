//! Fuses the operations of each step.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{OpId, ViewId};
use crate::model::{MemoryKind, Op, OpSet, Program, Rewritten};
use crate::ops::Property;
use crate::ops::fused::{self, Joined, NotFused, PairOperand, Related, traffic};

use super::between::FusionGraph;
use super::node::FusionNode;
use super::producers;
use super::reason::Obstacle;
use super::{FusedOperation, Fusion, FusionMember, UnfusedPair};

/// For each memory, the operations of the iterations that access it.
struct Uses {
    /// For each memory, the slots and operations that access it; empty for memory that keeps its value.
    accesses: Vec<Vec<(usize, OpId)>>,
}

pub fn run(program: Program) -> (Program, Fusion) {
    let (fusion, slots) = slots(&program);
    match fusion.merged.is_empty() {
        true => (program, fusion),
        false => (program.rewritten(&slots), fusion),
    }
}

/// The report of the fusion, and the operations of each slot afterwards.
pub fn slots(program: &Program) -> (Fusion, Vec<Vec<Rewritten>>) {
    let (mut fusion, mut slots) = (Fusion::default(), Vec::with_capacity(program.cycle.len()));
    let (uses, sets) = (Uses::of(program), program.sets());
    for slot in 0..program.cycle.len() {
        let mut pass =
            FusionPass { graph: FusionGraph::new(program, slot), slot, uses: &uses, sets: &sets, unfused: Vec::new() };
        pass.fuse_chains();
        pass.fuse_siblings();
        pass.fuse_remaining();
        pass.add_to(&mut fusion);
        let nodes = pass.graph.nodes.into_iter().filter(|node| !node.is_gone);
        slots.push(nodes.map(FusionNode::rewritten).collect());
    }
    (fusion, slots)
}

impl Uses {
    fn of(program: &Program) -> Uses {
        let mut accesses = vec![Vec::new(); program.memories.len()];
        for (slot, step) in program.cycle.iter().enumerate() {
            for op in step.ids() {
                for (view, _) in step.operands(op) {
                    let memory = program.views.memory(view);
                    if program.memory(memory).kind == MemoryKind::Scratch
                        && accesses[memory.index()].last() != Some(&(slot, op))
                    {
                        accesses[memory.index()].push((slot, op));
                    }
                }
            }
        }
        let blocks = program.around.iter().flat_map(|(_, block)| block.cycle.iter().map(move |step| (block, step)));
        for (block, step) in blocks {
            for view in step.ids().flat_map(|op| step.operands(op).map(|(view, _)| view)) {
                // No operation has this number, so the memory counts as used elsewhere and is kept.
                accesses[block.views.memory(view).index()].push((usize::MAX, OpId(0)));
            }
        }
        Uses { accesses }
    }
}

/// The fusion of the operations of one slot.
struct FusionPass<'a> {
    graph: FusionGraph<'a>,
    slot: usize,
    uses: &'a Uses,
    /// The sets of all metrics and expectations.
    sets: &'a [&'a OpSet],
    /// Pairs that are not fused, a writer and a reader, with the reason.
    unfused: Vec<(OpId, OpId, Obstacle)>,
}

impl FusionPass<'_> {
    /// Fuses each operation with those whose results it reads, in the order of the text.
    fn fuse_chains(&mut self) {
        // The operation that wrote a slice last.
        let mut writers: FxHashMap<ViewId, OpId> = FxHashMap::default();
        let step = self.graph.step;
        for op in step.ids() {
            let mut current = op.index();
            self.graph.nodes.push(FusionNode::of(step, op));
            self.graph.node_of.push(current);
            while let Some(joined) = self.fuse_with_writer(current, &writers) {
                current = joined;
            }
            writers.extend(step.outputs(op).iter().map(|view| (*view, op)));
        }
    }

    /// Fuses operations that read the same tensor. Called when no chain grows any more.
    fn fuse_siblings(&mut self) {
        // The operation that read a slice last.
        let mut readers: FxHashMap<ViewId, usize> = FxHashMap::default();
        for place in 0..self.graph.nodes.len() {
            if self.graph.nodes[place].is_gone {
                continue;
            }
            let known = self.graph.nodes[place].inputs.iter().filter_map(|view| readers.get(view));
            let mut before: Vec<usize> =
                known.map(|&node| self.graph.node_of[node]).filter(|&node| node < place).collect();
            before.sort_unstable();
            before.dedup();
            let beside = |first: &usize| {
                Some((*first, self.fused(*first, place, |related| fused::sharing_an_input(related).map(Ok))?.ok()?))
            };
            let found = before.iter().rev().find_map(beside);
            let mut current = place;
            if let Some((first, (joined, node))) = found {
                self.replace((first, place), joined, node);
                current = joined.index();
            }
            readers.extend(self.graph.nodes[current].inputs.iter().map(|view| (*view, current)));
        }
    }

    /// Fuses pairs that only became possible as chains grew, and collects the reasons for all pairs that are not fused.
    fn fuse_remaining(&mut self) {
        let pairs = producers::pairs(self.graph.program, self.graph.step);
        let mut is_joined = true;
        while std::mem::take(&mut is_joined) {
            self.unfused.clear();
            let mut known = FxHashSet::default();
            for &(first, second) in &pairs {
                let [a, b] = [first, second].map(|op| self.graph.node_of[op.index()]);
                // After a move the reader may precede the writer; then it does not read the result.
                if a >= b || !known.insert((a, b)) {
                    continue;
                }
                match self.writer_and_reader((a, b), [first, second]) {
                    Some(Ok((place, node))) => {
                        self.replace((a, b), place, node);
                        is_joined = true;
                    }
                    Some(Err(why)) => self.unfused.push((first, second, why)),
                    None => {}
                }
            }
        }
    }

    /// Fuses a node with one that reads its result. Returns the position and the fused node, or the reason why they cannot
    /// be fused. `None` if `operations`, the one that writes the result and the one that reads it, form no chain
    /// ([`fused::forms_chain`]).
    fn writer_and_reader(
        &self,
        (first, second): (usize, usize),
        operations: [OpId; 2],
    ) -> Option<Result<(OpId, FusionNode), Obstacle>> {
        let (program, step) = (self.graph.program, self.graph.step);
        let (a, b) = (&self.graph.nodes[first], &self.graph.nodes[second]);
        let specs = [a.spec(program)?, b.spec(program)?];
        if b.inputs.iter().any(|view| a.outputs.contains(view))
            && let Some(found) = self.fused(first, second, fused::joined)
        {
            return Some(found);
        }
        let originals = operations.map(|op| program.op_spec(step.op(op)));
        if !fused::forms_chain(originals[0]?, originals[1]?) {
            return None;
        }
        let is_cut = |view: &&ViewId| b.inputs.iter().any(|read| read != *view && program.views.overlap(*read, **view));
        let names = || Obstacle::Kinds(specs[0].name().to_owned(), specs[1].name().to_owned());
        let why = match a.outputs.iter().find(is_cut) {
            _ if a.stream != b.stream => self.different_streams(a, b),
            Some(view) => Obstacle::Overlap(program.view_text(*view)),
            None => names(),
        };
        Some(Err(why))
    }

    /// Replaces two nodes with a fused one at position `place`.
    fn replace(&mut self, (first, second): (usize, usize), place: OpId, node: FusionNode) {
        node.members.iter().for_each(|member| self.graph.node_of[member.index()] = place.index());
        (self.graph.nodes[first].is_gone, self.graph.nodes[second].is_gone) = (true, true);
        self.graph.nodes[place.index()] = node;
    }

    /// Fuses a node with one whose result it reads, and returns the position of the fused node; `None` if there is no such
    /// pair.
    fn fuse_with_writer(&mut self, current: usize, writers: &FxHashMap<ViewId, OpId>) -> Option<usize> {
        let inputs = self.graph.nodes[current].inputs.iter();
        let written = inputs.filter_map(|view| Some(self.graph.node_of[writers.get(view)?.index()]));
        let mut before: Vec<usize> = written.filter(|&node| node < current).collect();
        before.sort_unstable();
        before.dedup();
        for first in before.into_iter().rev() {
            if let Some(Ok((place, node))) = self.fused(first, current, fused::joined) {
                self.replace((first, current), place, node);
                return Some(place.index());
            }
        }
        None
    }

    /// The position and the fused node of two nodes, or the reason why they cannot be fused; `None` if `rule` has no
    /// operation for both.
    fn fused(
        &self,
        first: usize,
        second: usize,
        rule: impl Fn(&Related) -> Option<Result<Joined, NotFused>>,
    ) -> Option<Result<(OpId, FusionNode), Obstacle>> {
        let program = self.graph.program;
        let (a, b) = (&self.graph.nodes[first], &self.graph.nodes[second]);
        let mut members = [&*a.members, &b.members].concat();
        members.sort_unstable();
        let place_of = |view: &ViewId, all: &[ViewId]| all.iter().position(|other| other == view);
        let kept = |view: &ViewId| !b.outputs.contains(view) && self.reason_to_keep(*view, &members).is_some();
        let related = Related {
            first: a.spec(program)?,
            second: b.spec(program)?,
            passed: &b.inputs.iter().map(|view| place_of(view, &a.outputs)).collect::<Vec<_>>(),
            shared: &b.inputs.iter().map(|view| place_of(view, &a.inputs)).collect::<Vec<_>>(),
            kept: &a.outputs.iter().map(kept).collect::<Vec<_>>(),
        };
        let joined = rule(&related)?;
        Some(self.checked(a, b, &members, joined).and_then(|node| Ok((self.graph.place(first, second)?, node))))
    }

    /// The node that replaces two, or the reason why fusing them would change a result or a metric.
    fn checked(
        &self,
        a: &FusionNode,
        b: &FusionNode,
        members: &[OpId],
        joined: Result<Joined, NotFused>,
    ) -> Result<FusionNode, Obstacle> {
        let program = self.graph.program;
        if a.stream != b.stream {
            return Err(self.different_streams(a, b));
        }
        let Joined { spec, inputs, outputs } = joined.map_err(Obstacle::NotFused)?;
        let views = |all: Vec<PairOperand>, [first, second]: [&[ViewId]; 2]| -> Vec<ViewId> {
            let one = |from| match from {
                PairOperand::First(place) => first[place],
                PairOperand::Second(place) => second[place],
            };
            all.into_iter().map(one).collect()
        };
        let inputs = views(inputs, [&a.inputs, &b.inputs]);
        let outputs = views(outputs, [&a.outputs, &b.outputs]);
        let mut lost = a.outputs.iter().filter(|view| !outputs.contains(view) && !b.outputs.contains(view));
        if let Some(why) = lost.find_map(|view| self.reason_to_keep(*view, members)) {
            return Err(why);
        }
        let used = || a.inputs.iter().chain(&a.outputs).chain(&b.inputs).chain(&b.outputs);
        let is_cut = |output: &&ViewId| used().any(|view| view != *output && program.views.overlap(*view, **output));
        // Outputs that the operation updates are its last inputs.
        let updated = if spec.operation.updates(&spec.attrs) { outputs.len() } else { 0 };
        let read = &inputs[..inputs.len() - updated];
        let is_overwritten = |output: &&ViewId| !spec.operation.has(Property::InPlace) && read.contains(output);
        let mut written = a.outputs.iter().chain(&b.outputs);
        if let Some(output) = written.find(is_cut).or_else(|| outputs.iter().find(is_overwritten)) {
            return Err(Obstacle::Overlap(program.view_text(*output)));
        }
        let is_double =
            |place: &usize| outputs[..*place].iter().any(|view| program.views.overlap(*view, outputs[*place]));
        if let Some(place) = (0..outputs.len()).find(is_double) {
            return Err(Obstacle::Overwritten(program.view_text(outputs[place])));
        }
        if !inputs.ends_with(&outputs[..updated]) {
            return Err(Obstacle::NotFused(NotFused::Epilogue));
        }
        self.counted_alike(members)?;
        let (members, joined) = (members.to_vec(), Some(Arc::new(spec)));
        Ok(FusionNode { members, kind: b.kind, stream: b.stream, inputs, outputs, joined, is_gone: false })
    }

    fn different_streams(&self, a: &FusionNode, b: &FusionNode) -> Obstacle {
        let [a, b] = [a, b].map(|node| self.graph.program.streams[node.stream.index()].name.clone());
        Obstacle::Streams(a, b)
    }

    /// Reason why a slice must stay in memory although these operations are fused; `None` if nothing else uses it.
    fn reason_to_keep(&self, view: ViewId, members: &[OpId]) -> Option<Obstacle> {
        let (program, memory) = (self.graph.program, self.graph.program.views.memory(view));
        if program.memory(memory).kind != MemoryKind::Scratch {
            return Some(Obstacle::Kept(program.view_text(view)));
        }
        let uses = &self.uses.accesses[memory.index()];
        if uses.len() == 1 {
            return Some(Obstacle::Unread(program.view_text(view)));
        }
        let is_other = |(slot, op): &&(usize, OpId)| *slot != self.slot || members.binary_search(op).is_err();
        let &(slot, op) = uses.iter().find(is_other)?;
        let Some(step) = program.cycle.get(slot) else { return Some(Obstacle::Kept(program.view_text(view))) };
        let (value, info) = (program.view_text(view), step.op(op));
        Some(Obstacle::Used { value, user: program.op_text(info), span: info.span })
    }

    /// Fails if a metric counts some of these operations but not others.
    fn counted_alike(&self, members: &[OpId]) -> Result<(), Obstacle> {
        let program = self.graph.program;
        if self.sets.is_empty() {
            return Ok(());
        }
        let ops: Vec<Op> = members.iter().map(|member| *self.graph.step.op(*member)).collect();
        let all = program.enclosing(&ops);
        let differs = |set: &&&OpSet| {
            let expected = set.contains(program, &all);
            ops.iter().any(|op| set.contains(program, op) != expected)
        };
        match self.sets.iter().find(differs) {
            Some(set) => Err(Obstacle::Metric(set.text.clone())),
            None => Ok(()),
        }
    }

    fn member(&self, op: OpId) -> FusionMember {
        let (program, info) = (self.graph.program, self.graph.step.op(op));
        FusionMember { name: program.op_text(info), operation: program.op_name(info).to_owned(), span: info.span }
    }

    /// Adds the fused operations and the pairs that are not fused to the result.
    fn add_to(&self, fusion: &mut Fusion) {
        let program = self.graph.program;
        for node in self.graph.nodes.iter().filter(|node| !node.is_gone) {
            let Some(joined) = &node.joined else { continue };
            let ops: Vec<Op> = node.members.iter().map(|member| *self.graph.step.op(*member)).collect();
            let specs = ops.iter().filter_map(|op| program.op_spec(op));
            fusion.add(FusedOperation {
                name: program.name_of(&ops),
                operation: joined.operation.name(),
                members: node.members.iter().map(|member| self.member(*member)).collect(),
                bytes_saved: specs.map(traffic).sum::<u64>().saturating_sub(traffic(joined)),
                count: 1,
            });
        }
        for (first, second, why) in &self.unfused {
            let (first, second) = (self.member(*first), self.member(*second));
            fusion.add_unfused(UnfusedPair { first, second, why: why.clone(), count: 1 });
        }
    }
}
