//! Convolutions and attention: chooses between an engine of the vendor's library and generated kernels for each, by timing
//! both.
//!
//! The library compiles an engine of attention for each number of queries and keys, which takes 0.04 to 0.08 s (cuDNN 9.19,
//! H100). A workload whose lengths are drawn has hundreds of them. So only one use of each class is timed, the others take its
//! choice, and few engines are compiled for them.

use crate::base::{Nanos, counted};
use crate::exec::{ExecError, Fault, ImageOp};
use crate::ops::Kernel;

use super::api::{Api, Call};
use super::disk_cache;
use super::library_work::{EngineNumber, LibraryOperation, LibraryUse, LibraryWork};
use super::lower::{Calls, Context, Prepared};
use super::products::{Chooser, StoredChoice};
use super::runtime::Stream;
use super::trial::Trial;

impl StoredChoice {
    /// Encodes a choice for the cache on disk; `None` stands for the kernels.
    fn of_engine(engine: Option<EngineNumber>, time: Nanos) -> StoredChoice {
        let place = engine.map_or(0, |EngineNumber { form, number }| (u64::from(form) << 32) + u64::from(number) + 1);
        StoredChoice { place: place as usize, time }
    }

    /// The engine of a choice; `None` for the kernels.
    fn engine(self) -> Option<EngineNumber> {
        let code = (self.place as u64).checked_sub(1)?;
        Some(EngineNumber { form: (code >> 32) as u32, number: code as u32 })
    }
}

/// Maximum number of engines that are compiled for uses that take over the choice of another use. On an H100, cuDNN
/// 9.19 compiled 1025 of them in 46 s, on one thread as on 16.
const MAX_COMPILED: usize = 64;

impl<A: Api> Context<'_, A> {
    /// Adds the library's calls and the launches of the kernels that compute the same. Once one of the two is chosen,
    /// the calls of the other do nothing.
    pub fn add_library_work(
        &self,
        (work, kernels): (LibraryWork, &[Kernel]),
        op: &ImageOp,
        operands: &[u64],
        calls: &mut Calls<A>,
    ) -> Result<(), ExecError> {
        let (lane, workspace) = (op.lane, self.workspaces[op.lane as usize]);
        let stream = self.streams[lane as usize];
        let of_library = work.calls(operands);
        let number = calls.engine_operations.iter().position(|known| known.work == work).unwrap_or_else(|| {
            calls.engine_operations.push(LibraryOperation { work, kernels: kernels.to_vec(), uses: Vec::new() });
            calls.engine_operations.len() - 1
        });
        let operation = number as u32;
        for addresses in &of_library {
            let operands = calls.engine_operands.len() as u32;
            calls.engine_operands.push(addresses.clone());
            calls.calls.push(Prepared::Engine { operation, operands, workspace, stream });
        }
        let first = calls.alternatives.len() as u32;
        for kernel in kernels.iter().filter(|kernel| self.launches(kernel)) {
            let prepared = self.kernel(kernel, stream, (operands, workspace.0), &mut calls.args)?;
            calls.calls.push(Prepared::Alternative { operation, kernel: calls.alternatives.len() as u32 });
            calls.alternatives.push(prepared);
        }
        let uses = &mut calls.engine_operations[number].uses;
        if !uses.iter().any(|known| known.lane == lane) {
            uses.push(LibraryUse { calls: of_library, lane, kernels: (first, calls.alternatives.len() as u32) });
        }
        Ok(())
    }
}

/// An engine of the library; `None` if the kernels compute the operation.
type Chosen<A> = Option<<A as Api>::Engine>;

/// A class of work with the lanes of its uses. Engines are timed concurrently on all lanes of a use.
type Class = (LibraryWork, Vec<u32>);

impl<A: Api> Chooser<'_, A> {
    /// Chooses between the library's engines and generated kernels for each operation, and returns the choices with
    /// notes for the record. Calls `done` after each choice.
    pub fn choose_engines(
        &self,
        all: &[LibraryOperation],
        done: &dyn Fn(),
    ) -> Result<Vec<(Chosen<A>, String)>, ExecError> {
        let mut classes: Vec<(Class, Vec<usize>)> = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let class = (one.work.class(), one.uses.iter().map(|one| one.lane).collect());
            match classes.iter_mut().find(|(known, _)| *known == class) {
                Some((_, members)) => members.push(index),
                None => classes.push((class, vec![index])),
            }
        }
        let mut chosen: Vec<Option<(Chosen<A>, String)>> = all.iter().map(|_| None).collect();
        // Uses whose engine is to be compiled, with the note of their class.
        let mut followers: Vec<(usize, EngineNumber, String)> = Vec::new();
        for (_, members) in classes {
            let (first, others) = members.split_first().expect("a class has a member");
            let (mut found, mut note) = self.choose_engine(&all[*first])?;
            if !others.is_empty() {
                note += &format!("; likewise {} of similar sizes", counted(others.len(), "other use"));
            }
            if found.is_some() && self.candidates > 1 && followers.len() + others.len() > MAX_COMPILED {
                found = None;
                note += "; all of them are computed by the kernels of aorta, since compiling an engine for each takes too long";
            }
            match found.as_ref().map(A::engine_number) {
                Some(engine) => followers.extend(others.iter().map(|other| (*other, engine, note.clone()))),
                None => others.iter().for_each(|other| chosen[*other] = Some((None, note.clone()))),
            }
            chosen[*first] = Some((found, note));
            done();
        }
        for (index, engine, note) in followers {
            // An engine of the class that does not compute this use is no reason to fail.
            chosen[index] = Some(match self.compiled(&all[index], engine) {
                Ok(engine) => (Some(engine), note),
                Err(_) => self.choose_engine(&all[index])?,
            });
            done();
        }
        Ok(chosen.into_iter().map(|one| one.expect("each operation is in a class")).collect())
    }

    /// Chooses between the library's engines and generated kernels for one operation. Also returns a note for the
    /// record.
    fn choose_engine(&self, operation: &LibraryOperation) -> Result<(Chosen<A>, String), ExecError> {
        let LibraryOperation { work, kernels, uses } = operation;
        let what = work.describe();
        let Some(library) = self.api.engine_library() else {
            let (of, them) = match work {
                LibraryWork::Convolution { .. } => ("convolutions", "them"),
                LibraryWork::Attention(_) => ("attention", "it"),
            };
            return Ok((None, format!("{of}: kernels of aorta, since there is no library of {them}")));
        };
        let stored = match work {
            LibraryWork::Convolution { .. } => None,
            LibraryWork::Attention(fused) => self.kept.filter(|_| self.candidates > 1).map(|folder| {
                let lanes: Vec<u64> = uses.iter().map(|one| self.workspaces[one.lane as usize].1).collect();
                let (mut what, mut parts) = (format!("{fused:?} {lanes:?}"), vec![self.machine(), library]);
                for Kernel { source, grid, block, .. } in kernels {
                    what += &format!(" {grid:?} {block:?}");
                    parts.push(&source.text);
                }
                parts.push(&what);
                disk_cache::path(folder, &parts, "choice")
            }),
        };
        if let Some(choice) = stored.as_deref().and_then(StoredChoice::read) {
            let time = choice.time;
            match choice.engine() {
                None => return Ok((None, format!("{what}: kernels of aorta, {time} when they were chosen"))),
                Some(engine) => {
                    if let Ok(engine) = self.compiled(operation, engine) {
                        let note = format!("{what}: an engine of {library}, {time} when it was chosen");
                        return Ok((Some(engine), note));
                    }
                }
            }
        }
        let (term, workspace) = (work.term(), self.workspaces[uses[0].lane as usize].1);
        let found = match self.api.engines(work, workspace, self.candidates, None) {
            Ok(found) => found,
            Err(why) => return Ok((None, format!("{what}: kernels of aorta, since {library} has no {term}: {why}"))),
        };
        let issue = |engine: Option<&A::Engine>, number, stream| self.issue_use(operation, engine, number, stream);
        let lanes = uses.iter().map(|one| one.lane).collect();
        let fastest = self.fastest(&Trial { what, library, term, lanes, flops: work.flops(), issue: &issue }, found)?;
        if let Some(time) = fastest.time {
            let choice = StoredChoice::of_engine(fastest.candidate.as_ref().map(A::engine_number), time);
            disk_cache::store(stored.as_deref(), &choice.packed());
        }
        Ok((fastest.candidate, fastest.note))
    }

    /// Compiles an engine for an operation, and runs it once with the operands of the first use.
    fn compiled(&self, operation: &LibraryOperation, engine: EngineNumber) -> Call<A::Engine> {
        let lane = operation.uses[0].lane as usize;
        let mut found = self.api.engines(&operation.work, self.workspaces[lane].1, 1, Some(engine))?;
        let engine = found.pop().ok_or_else(|| Fault::new("engines", "the library has no engine"))?;
        self.issue_use(operation, Some(&engine), 0, self.streams[lane])?;
        self.api.synchronize()?;
        Ok(engine)
    }

    /// Issues one use of an operation by an engine, or by the kernels if `engine` is `None`.
    fn issue_use(
        &self,
        operation: &LibraryOperation,
        engine: Option<&A::Engine>,
        number: usize,
        stream: Stream,
    ) -> Call {
        let LibraryUse { calls, lane, kernels: (first, end) } = &operation.uses[number];
        let workspace = self.workspaces[*lane as usize];
        match engine {
            Some(engine) => calls.iter().try_for_each(|operands| {
                // SAFETY: the operands are the operation's own, in memory that nothing else uses now.
                unsafe { self.api.run_engine(engine, operands, workspace, stream) }
            }),
            None => self.alternatives[*first as usize..*end as usize]
                .iter()
                .try_for_each(|kernel| self.kernel(kernel, stream)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_keeps_its_engine() {
        for engine in
            [None, Some(EngineNumber { form: 0, number: 0 }), Some(EngineNumber { form: 1, number: u32::MAX - 1 })]
        {
            assert_eq!(StoredChoice::of_engine(engine, Nanos(7)).engine(), engine);
        }
    }
}
