//! Derives how many rows of data operations work on where a tensor determines it, such as the tokens of a mixture of experts.

use rustc_hash::FxHashMap;

use crate::base::{DType, MemoryId, SpecId, ViewId};
use crate::ops::{LiveRows, RowFact, Spec, Tensor};

use crate::model::program::{OpKind, Program};

/// Facts about the contents of memories at a point of an iteration.
#[derive(Default)]
struct Facts {
    /// Facts about memories, each for the shape in which the rows were written.
    written: FxHashMap<MemoryId, (Tensor, RowFact)>,
    /// Single elements that hold a number of the file, at most [`MAX_NUMBERS`] of each memory.
    numbers: FxHashMap<MemoryId, Vec<(ViewId, u64)>>,
}

/// Maximum number of elements of a memory whose numbers are kept: as many as `grouped_gemm` has groups.
const MAX_NUMBERS: usize = 1024;

impl Facts {
    /// The fact about a slice; `None` if nothing is known.
    fn of(&self, view: ViewId, program: &Program) -> Option<RowFact> {
        let (memory, tensor) = (program.views.memory(view), program.views.tensor(view));
        if let Some((shape, fact)) = self.written.get(&memory) {
            let rows = |tensor: &Tensor| tensor.dims.first().copied();
            return (rows(shape) == rows(tensor)).then_some(*fact);
        }
        let numbers = self.numbers.get(&memory)?.iter().filter(|(element, _)| program.views.overlap(*element, view));
        let (count, sum) = numbers.fold((0, 0), |(count, sum): (u64, u64), (_, number)| (count + 1, sum + number));
        (count == tensor.elements()).then_some(RowFact::Counts(LiveRows { rows: sum, exact: true }))
    }

    /// Notes that an operation wrote a slice.
    fn write(&mut self, view: ViewId, fact: Option<RowFact>, number: Option<u64>, program: &Program) {
        let (memory, tensor) = (program.views.memory(view), program.views.tensor(view));
        match fact {
            Some(fact) => _ = self.written.insert(memory, (*tensor, fact)),
            None => _ = self.written.remove(&memory),
        }
        if let Some(numbers) = self.numbers.get_mut(&memory) {
            numbers.retain(|(element, _)| !program.views.overlap(*element, view));
        }
        if let Some(number) = number.filter(|_| tensor.elements() == 1) {
            let numbers = self.numbers.entry(memory).or_default();
            if numbers.len() < MAX_NUMBERS {
                numbers.push((view, number));
            }
        }
    }
}

/// The number that a `fill` writes if it can count rows; `None` for any other operation.
fn filled(spec: &Spec) -> Option<u64> {
    let is_whole = |tensor: &Tensor| matches!(tensor.dtype, DType::I32 | DType::I64);
    if spec.operation.name() != "fill" || !spec.outputs.iter().all(is_whole) {
        return None;
    }
    let value = spec.attrs.number("value");
    (value >= 0.0 && value < u32::MAX.into() && value.fract() == 0.0).then_some(value as u64)
}

impl Program {
    /// Sets [`Spec::live`] of all operations. The numbers follow from the operations before each one, in the order of the text.
    pub fn derive_live_rows(&mut self) {
        let counts = |spec: &Spec| matches!(spec.operation.name(), "permute" | "grouped_gemm" | "all_to_all" | "copy");
        if !self.specs.iter().any(counts) {
            return;
        }
        for slot in 0..self.cycle.len() {
            let mut facts = Facts::default();
            for op in self.cycle[slot].ids() {
                let OpKind::Run(id) = self.cycle[slot].op(op).kind else { continue };
                let step = &self.cycle[slot];
                let known: Vec<Option<RowFact>> = step.inputs(op).iter().map(|view| facts.of(*view, self)).collect();
                let spec = self.spec(id);
                let live = spec.operation.live_rows(spec, &known);
                let (mut found, number) = (live.outputs.into_iter(), filled(spec));
                for view in step.outputs(op) {
                    facts.write(*view, found.next().flatten(), number, self);
                }
                if live.works_on != spec.live {
                    let spec = Spec { live: live.works_on, ..spec.clone() };
                    let id = SpecId::from(self.specs.insert_full(spec).0);
                    self.cycle[slot].ops[op.index()].kind = OpKind::Run(id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model;

    /// Numbers of rows that data determines, by operation, with `~` for assumptions.
    fn live(world: u32, text: &str) -> String {
        let options = model::AnalysisOptions { world, ..model::AnalysisOptions::default() };
        let mut program = model::analyze_text(text, &options).expect("the text is valid");
        program.derive_live_rows();
        let ops = program.cycle[0].ops.iter().filter_map(|op| {
            let spec = program.op_spec(op)?;
            let live = spec.live?;
            let about = if live.exact { "" } else { "~" };
            Some(format!("{} {about}{}, {} FLOP", spec.operation.name(), live.rows, spec.cost().flops))
        });
        ops.collect::<Vec<_>>().join("\n")
    }

    /// Rows for the experts of a rank: each rank sends 64, and a rank has room for all of them.
    const EXPERTS: &str = "
        buffer x: bf16[32, 16]
        buffer gate: bf16[16, 2 * world]
        buffer w: bf16[2, 16, 8]
        buffer counts: i32[world, 2 * world]
        buffer inbox: bf16[64 * world, 16]
        buffer own: i32[64 * world]
        step {
          scores: gemm(x, gate)
          best: top_k(scores, k: 2)
          sent: permute(x, best.indices, experts: 2 * world)
          order: sort(view(best.indices, [64]))
          all_gather(sent.counts -> counts)
          fill(-1 -> own)
          all_to_all(order.values, counts -> own)
          all_to_all(sent.y, counts -> inbox)
          map(own % 2 -> own)
          arrived: permute(inbox, own, experts: 2)
          ends: cumsum(arrived.counts)
          up: grouped_gemm(arrived.y, w, ends)
          back: unpermute(up, arrived.places)
        }";

    #[test]
    fn rows_follow_from_the_operations_that_produce_them() {
        // A single rank sends all rows to itself, so each buffer is full.
        assert_eq!(live(1, EXPERTS), "");
        // If the ranks exchange equally many rows, 64 of the 256 rows of a buffer hold data.
        let flops = 2 * 64 * 16 * 8;
        assert_eq!(
            live(4, EXPERTS),
            format!("permute ~64, 0 FLOP\ngrouped_gemm ~64, {flops} FLOP\nunpermute ~64, {} FLOP", 64 * 8)
        );
    }

    #[test]
    fn counts_of_the_file_are_known() {
        let counted = |fills: &str| {
            live(
                1,
                &format!(
                    "buffer x: bf16[64, 16]
                     buffer w: bf16[2, 16, 8]
                     buffer counts[3]: i32[2]
                     step {{ {fills} ends: cumsum(counts[1])  grouped_gemm(x, w, ends -> _) }}"
                ),
            )
        };
        let flops = |rows: u64| 2 * rows * 16 * 8;
        let both = "fill(9 -> counts[0][0]) fill(20 -> counts[1][0]) fill(5 -> counts[1][1])";
        assert_eq!(counted(both), format!("grouped_gemm 25, {} FLOP", flops(25)));
        // The second number is not known, or is overwritten.
        assert_eq!(counted("fill(20 -> counts[1][0])"), format!("grouped_gemm ~64, {} FLOP", flops(64)));
        let overwritten = format!("{both} map(counts[1] + 1 -> counts[1])");
        assert_eq!(counted(&overwritten), format!("grouped_gemm ~64, {} FLOP", flops(64)));
    }

    #[test]
    fn ends_of_unknown_origin_leave_the_number_open() {
        let ends = |write: &str| {
            live(
                1,
                &format!(
                    "buffer x: bf16[64, 16]
                     buffer w: bf16[4, 16, 8]
                     buffer ends: i32[4] = ones
                     step {{ {write} up: grouped_gemm(x, w, ends) }}"
                ),
            )
        };
        assert_eq!(ends(""), format!("grouped_gemm ~64, {} FLOP", 2 * 64 * 16 * 8));
        assert!(ends("map(ends + 1 -> ends)").starts_with("grouped_gemm ~64"));
        // The ends of 40 choices end at 40, in a buffer with more rows.
        let permuted = "buffer x: bf16[64, 16]
            buffer w: bf16[4, 16, 8]
            buffer y: bf16[64, 16]
            buffer choices: i32[40] = ones
            step {
              sorted: permute(x[0..40], choices, experts: 4)
              ends: cumsum(sorted.counts)
              grouped_gemm(y, w, ends)
            }";
        assert_eq!(live(1, permuted), format!("grouped_gemm 40, {} FLOP", 2 * 40 * 16 * 8));
    }
}
