//! Finds reads of uninitialized scratch memory. Declared buffers are filled before the run, and the operation that
//! creates an output without a name writes it; but a `buffer` of a block is undefined until an operation writes it.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{MemoryId, OpId, ViewId};

use super::regions::{Region, without};
use super::views::Extent;
use crate::model::error::ModelError;
use crate::model::program::{MemoryKind, Program, Step};

/// Maximum number of slice comparisons for one file. Beyond it a read counts as initialized, to avoid false errors.
const MAX_COMPARISONS: usize = 1 << 24;

/// Help for an operation that reads an output, which its call gives as a type.
const OUTPUT_HELP: &str = "an output that is a type is new memory, and this operation reads it, as with `accumulate: true`: write a \
                           buffer instead that has contents";

/// Help for a read of a `buffer` of a block, or of an output that a `def` declares.
const BUFFER_HELP: &str = "a `buffer` of a block, and an output whose type a `def` declares, are uninitialized at the beginning: let an \
                           operation above write it, `-> …`; a buffer can also be declared with `= zeros`, or outside of the \
                           step, where it is filled before the run";

/// Every read of scratch memory that has not been written completely earlier in the iteration, or in one of the
/// `blocks` around the iterations.
pub(in crate::model) fn reads<'a>(
    program: &'a Program,
    blocks: impl Iterator<Item = &'a Step>,
    name: impl Fn(MemoryId) -> String,
) -> Vec<ModelError> {
    let mut errors = Vec::new();
    let mut left = MAX_COMPARISONS;
    let mut written =
        Written { program, iteration: 0, whole: vec![0; program.memories.len()], parts: FxHashMap::default() };
    for step in program.cycle.iter().chain(blocks) {
        written.begin();
        for op in step.ids() {
            if let Some((view, missing)) = written.missing(step, op, &mut left) {
                let memory = program.views.memory(view);
                let name = match program.views.grid(memory) {
                    Some(grid) => format!("view({}, {grid})", name(memory)),
                    None => name(memory),
                };
                let (declared, at) = (program.memory(memory).span, step.op(op).span);
                let is_output = (at.start..at.start + at.len).contains(&declared.start);
                let help = if is_output { OUTPUT_HELP } else { BUFFER_HELP };
                errors.push(ModelError::Unwritten { name, missing: text(&missing), help, at: at.into() });
            }
            step.outputs(op).iter().for_each(|&view| written.write(view));
        }
    }
    errors
}

/// A region in source form, such as `[0..4, 2]`.
fn text(region: &[Extent]) -> String {
    let items: Vec<String> = region
        .iter()
        .map(|extent| match extent.len {
            1 => extent.start.to_string(),
            _ => format!("{}..{}", extent.start, extent.end()),
        })
        .collect();
    format!("[{}]", items.join(", "))
}

/// The slices that an iteration has written so far.
struct Written<'a> {
    program: &'a Program,
    /// The iteration, counted from 1.
    iteration: u32,
    /// For each memory, the last iteration that has written all of it.
    whole: Vec<u32>,
    /// Slices written to memories that no single operation has written completely.
    parts: FxHashMap<MemoryId, (FxHashSet<ViewId>, Vec<ViewId>)>,
}

impl Written<'_> {
    fn begin(&mut self) {
        self.iteration += 1;
        self.parts.clear();
    }

    /// True for scratch memory that may be partially written.
    fn is_open(&self, memory: MemoryId) -> bool {
        self.program.memory(memory).kind == MemoryKind::Scratch && self.whole[memory.index()] != self.iteration
    }

    fn write(&mut self, view: ViewId) {
        let memory = self.program.views.memory(view);
        if !self.is_open(memory) {
            return;
        }
        let dims = self.program.layout(memory).dims;
        if self.program.views.covers_all(view, &dims) {
            self.whole[memory.index()] = self.iteration;
            self.parts.remove(&memory);
        } else {
            let (set, list) = self.parts.entry(memory).or_default();
            if set.insert(view) {
                list.push(view);
            }
        }
    }

    /// The first slice that the operation reads with an unwritten part, and that part; `None` if all inputs are written.
    fn missing(&self, step: &Step, op: OpId, left: &mut usize) -> Option<(ViewId, Region)> {
        step.inputs(op).iter().find_map(|&view| {
            let memory = self.program.views.memory(view);
            self.is_open(memory).then(|| self.uninitialized_part(view, memory, left)).flatten().map(|hole| (view, hole))
        })
    }

    fn uninitialized_part(&self, view: ViewId, memory: MemoryId, left: &mut usize) -> Option<Region> {
        let wanted: Region = self.program.views.extents(view).to_vec();
        let Some((set, list)) = self.parts.get(&memory) else { return Some(wanted) };
        if set.contains(&view) {
            return None;
        }
        let mut open = vec![wanted];
        for &part in list {
            let part = self.program.views.extents(part);
            *left = left.checked_sub(open.len())?;
            open = open.into_iter().flat_map(|region| without(region, part)).collect();
            if open.is_empty() {
                return None;
            }
        }
        open.into_iter().next()
    }
}
