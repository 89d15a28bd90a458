//! Convolutions and attention: chooses between an engine of the vendor's library, generated kernels and, for some convolutions, matrix
//! products for each, by timing all of them.
//!
//! The library compiles an engine of attention for each number of queries and keys, which takes 0.04 to 0.08 s (cuDNN 9.19,
//! H100). A workload whose lengths are drawn has hundreds of them. So only one use of each class is timed, the others take its
//! choice, and few engines are compiled for them.

use crate::base::{Nanos, counted};
use crate::exec::{ExecError, Fault, ImageOp};
use crate::ops::{Kernel, Launch};

use super::api::{Api, Call};
use super::disk_cache;
use super::library_work::{EngineNumber, LibraryOperation, LibraryUse, LibraryWork};
use super::lower::{Calls, Context, Prepared, Products};
use super::products::{Chooser, StoredChoice};
use super::runtime::Stream;
use super::trial::{Trial, TrialResult, Way};

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
    /// Adds the calls of a launch that the library computes, and those of the kernels and products that compute the same; false for any
    /// other launch. Once one way is chosen, the calls of the others do nothing.
    pub fn add_library_work(
        &self,
        launch: &Launch,
        op: &ImageOp,
        operands: &[u64],
        calls: &mut Calls<A>,
        products: &mut Products,
    ) -> Result<bool, ExecError> {
        let (work, kernels, by_products) = match launch {
            Launch::Conv(conv, kernels, products) => (LibraryWork::convolution(conv), kernels, products.as_deref()),
            Launch::Attention(fused, kernels) => (LibraryWork::Attention(fused.clone()), kernels, None),
            _ => return Ok(false),
        };
        let (first, before) =
            by_products.map_or((kernels.len(), 0), |products| (products.first_kernel, products.kernels_before));
        let (alone, of_products) = kernels.split_at(first);
        let (before, after) = of_products.split_at(before);
        let (lane, workspace) = (op.lane, self.workspaces[op.lane as usize]);
        let stream = self.streams[lane as usize];
        let of_library = work.calls(operands);
        let number = calls.engine_operations.iter().position(|known| known.work == work).unwrap_or_else(|| {
            let (kernels, has_products) = (alone.to_vec(), by_products.is_some());
            calls.engine_operations.push(LibraryOperation { work, kernels, has_products, uses: Vec::new() });
            calls.engine_operations.len() - 1
        });
        let operation = number as u32;
        for addresses in &of_library {
            let operands = calls.engine_operands.len() as u32;
            calls.engine_operands.push(addresses.clone());
            calls.calls.push(Prepared::Engine { operation, operands, workspace, stream });
        }
        let mut prepared = |kernels: &[Kernel]| -> Result<Vec<Prepared>, ExecError> {
            let launched = kernels.iter().filter(|kernel| self.launches(kernel));
            launched.map(|kernel| self.kernel(kernel, stream, (operands, workspace.0), &mut calls.args)).collect()
        };
        let (alone, before, after) = (prepared(alone)?, prepared(before)?, prepared(after)?);
        let gemms = by_products.map_or(&[][..], |by_products| &by_products.gemms);
        let gemms: Vec<_> = gemms.iter().map(|gemm| self.multiply(gemm, op, operands, calls, products).1).collect();
        let kernels = calls.add_alternatives(operation, false, alone);
        let products = calls.add_alternatives(operation, true, [before, gemms, after].concat());
        let uses = &mut calls.engine_operations[number].uses;
        if !uses.iter().any(|known| known.lane == lane) {
            uses.push(LibraryUse { calls: of_library, lane, kernels, products });
        }
        Ok(true)
    }
}

/// The way that computes an operation, and the engine if the library does.
type Chosen<A> = Way<<A as Api>::Engine>;

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
            if matches!(found, Way::Candidate(_)) && followers.len() + others.len() > MAX_COMPILED {
                found = Way::Kernels;
                note += "; all of them are computed by the kernels of aorta, since compiling an engine for each takes too long";
            }
            let mut choose = |way: fn() -> Chosen<A>| {
                others.iter().for_each(|other| chosen[*other] = Some((way(), note.clone())));
            };
            match &found {
                Way::Kernels => choose(|| Way::Kernels),
                Way::Products => choose(|| Way::Products),
                Way::Candidate(engine) => {
                    let engine = A::engine_number(engine);
                    followers.extend(others.iter().map(|other| (*other, engine, note.clone())));
                }
            }
            chosen[*first] = Some((found, note));
            done();
        }
        for (index, engine, note) in followers {
            // An engine of the class that does not compute this use is no reason to fail.
            chosen[index] = Some(match self.compiled(&all[index], engine) {
                Ok(engine) => (Way::Candidate(engine), note),
                Err(_) => self.choose_engine(&all[index])?,
            });
            done();
        }
        Ok(chosen.into_iter().map(|one| one.expect("each operation is in a class")).collect())
    }

    /// Chooses between the library's engines, generated kernels and matrix products for one operation. Also returns a note for
    /// the record.
    fn choose_engine(&self, operation: &LibraryOperation) -> Result<(Chosen<A>, String), ExecError> {
        let LibraryOperation { work, kernels, has_products, uses } = operation;
        let has_products = *has_products && self.candidates > 1;
        let (what, library) = (work.describe(), self.api.engine_library());
        if library.is_none() && !has_products {
            let (of, them) = match work {
                LibraryWork::Convolution { .. } => ("convolutions", "them"),
                LibraryWork::Attention(_) => ("attention", "it"),
            };
            return Ok((Way::Kernels, format!("{of}: kernels of aorta, since there is no library of {them}")));
        }
        let library = library.unwrap_or_default();
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
                None => return Ok((Way::Kernels, format!("{what}: kernels of aorta, {time} when they were chosen"))),
                Some(engine) => {
                    if let Ok(engine) = self.compiled(operation, engine) {
                        let note = format!("{what}: an engine of {library}, {time} when it was chosen");
                        return Ok((Way::Candidate(engine), note));
                    }
                }
            }
        }
        let (term, workspace) = (work.term(), self.workspaces[uses[0].lane as usize].1);
        let (found, lacking) = match self.api.engines(work, workspace, self.candidates, None) {
            Ok(found) => (found, None),
            Err(why) if has_products => (Vec::new(), Some(why)),
            Err(why) => {
                let note = format!("{what}: kernels of aorta, since {library} has no {term}: {why}");
                return Ok((Way::Kernels, note));
            }
        };
        let issue = |way: Way<&A::Engine>, number, stream| self.issue_use(operation, way, number, stream);
        let (lanes, flops) = (uses.iter().map(|one| one.lane).collect(), work.flops());
        let trial = Trial { what, library, term, lanes, flops, has_products, issue: &issue };
        let TrialResult { way, time, mut note } = self.fastest(&trial, found)?;
        if let Some(why) = lacking.filter(|_| !library.is_empty()) {
            note += &format!("; {library} has no {term}: {why}");
        }
        // Only choices of attention are stored, which has no products.
        if let Some(time) = time {
            let engine = if let Way::Candidate(engine) = &way { Some(A::engine_number(engine)) } else { None };
            disk_cache::store(stored.as_deref(), &StoredChoice::of_engine(engine, time).packed());
        }
        Ok((way, note))
    }

    /// Compiles an engine for an operation, and runs it once with the operands of the first use.
    fn compiled(&self, operation: &LibraryOperation, engine: EngineNumber) -> Call<A::Engine> {
        let lane = operation.uses[0].lane as usize;
        let mut found = self.api.engines(&operation.work, self.workspaces[lane].1, 1, Some(engine))?;
        let engine = found.pop().ok_or_else(|| Fault::new("engines", "the library has no engine"))?;
        self.issue_use(operation, Way::Candidate(&engine), 0, self.streams[lane])?;
        self.api.synchronize()?;
        Ok(engine)
    }

    /// Issues one use of an operation.
    fn issue_use(&self, operation: &LibraryOperation, way: Way<&A::Engine>, number: usize, stream: Stream) -> Call {
        let LibraryUse { calls, lane, kernels, products } = &operation.uses[number];
        let workspace = self.workspaces[*lane as usize];
        let (first, end) = match way {
            Way::Kernels => *kernels,
            Way::Products => *products,
            Way::Candidate(engine) => {
                return calls.iter().try_for_each(|operands| {
                    // SAFETY: the operands are the operation's own, in memory that nothing else uses now.
                    unsafe { self.api.run_engine(engine, operands, workspace, stream) }
                });
            }
        };
        let calls = &self.alternatives[first as usize..end as usize];
        calls.iter().try_for_each(|call| self.alternative(call, stream))
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
