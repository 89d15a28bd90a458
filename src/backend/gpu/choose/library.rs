//! Operations with several ways to compute them: chooses between engines of the vendor's library, generated kernels and matrix products
//! for convolutions and attention, and between tilings of grouped products, by timing all of them.
//!
//! The library compiles an engine of attention for each number of queries and keys, which takes 0.04 to 0.08 s (cuDNN 9.19,
//! H100). A workload whose lengths are drawn has hundreds of them. So only one use of each class is timed, the others take its
//! choice, and few engines are compiled for them.

use crate::backend::gpu::api::library_work::{EngineNumber, LibraryOperation, LibraryUse, LibraryWork};
use crate::backend::gpu::api::runtime::Stream;
use crate::backend::gpu::api::{Api, Call};
use crate::backend::gpu::prepare::disk_cache;
use crate::backend::gpu::prepare::lower::{Calls, Context, Prepared, Products};
use crate::base::{Nanos, counted};
use crate::exec::{ExecError, Fault, ImageOp};
use crate::ops::{CopyLaunch, Direction, Kernel, Launch};

use super::products::{Chooser, StoredChoice};
use super::trial::{Trial, TrialResult, Way};

impl StoredChoice {
    /// Encodes a choice for the cache on disk. Attention has one way without the library; choices of convolutions are not stored.
    fn of_way(way: &Way<EngineNumber>, time: Nanos) -> StoredChoice {
        let place = match way {
            Way::Own(number) => *number,
            Way::Candidate(EngineNumber { form, number }) => {
                ((u64::from(*form) << 32) + u64::from(*number) + 1) as usize
            }
        };
        StoredChoice { place, time }
    }

    /// The way of a choice for work that a library computes, or that has only kernels.
    fn way(self, by_library: bool) -> Way<EngineNumber> {
        match (self.place as u64).checked_sub(1).filter(|_| by_library) {
            Some(code) => Way::Candidate(EngineNumber { form: (code >> 32) as u32, number: code as u32 }),
            None => Way::Own(self.place),
        }
    }
}

/// Maximum number of engines that are compiled for uses that take over the choice of another use. On an H100, cuDNN
/// 9.19 compiled 1025 of them in 46 s, on one thread as on 16.
const MAX_COMPILED: usize = 64;

impl<A: Api> Context<'_, A> {
    /// Adds the calls of all ways to compute a launch that has several; returns false for any other launch. Once one way is chosen, the
    /// calls of the others do nothing.
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
            Launch::Ways(ways, kernels) => (LibraryWork::Kernels(ways.clone()), kernels, None),
            _ => return Ok(false),
        };
        let (first, before) =
            by_products.map_or((kernels.len(), 0), |products| (products.first_kernel, products.kernels_before));
        let (alone, of_products) = kernels.split_at(first);
        let (before, after) = of_products.split_at(before);
        // Names of the ways by kernels alone, each with the number of its kernels.
        let (ways, sizing): (Vec<(String, usize)>, Option<u64>) = match launch {
            Launch::Ways(ways, _) => {
                let each = ways.ways.iter().map(|way| (way.name.clone(), way.kernels));
                (each.collect(), Some(operands[usize::from(ways.contents.0)]))
            }
            _ => (vec![(OWN_KERNELS.to_owned(), alone.len())], None),
        };
        let (lane, workspace) = (op.lane, self.workspaces[op.lane as usize]);
        let stream = self.streams[lane as usize];
        let of_library = work.calls(operands);
        // The library's description of work determines its kernels.
        let is_same = |known: &LibraryOperation| known.work == work && (sizing.is_none() || known.kernels == alone);
        let number = calls.engine_operations.iter().position(is_same).unwrap_or_else(|| {
            let of_products = by_products.map(|_| "matrix products".to_owned());
            let own = ways.iter().map(|(name, _)| name.clone()).chain(of_products).collect();
            calls.engine_operations.push(LibraryOperation { work, kernels: alone.to_vec(), own, uses: Vec::new() });
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
        let (mut own, mut rest) = (Vec::new(), alone);
        for (_, count) in &ways {
            let (kernels, others) = rest.split_at(*count);
            own.push(prepared(kernels)?);
            rest = others;
        }
        let (before, after) = (prepared(before)?, prepared(after)?);
        if let Some(by_products) = by_products {
            let gemms = by_products.gemms.iter().map(|gemm| self.multiply(gemm, op, operands, calls, products).1);
            let gemms: Vec<Prepared> = gemms.collect();
            own.push([before, gemms, after].concat());
        }
        let own =
            (0..).zip(own).map(|(way, prepared)| calls.add_alternatives(operation, way, prepared)).collect::<Vec<_>>();
        let uses = &mut calls.engine_operations[number].uses;
        if !uses.iter().any(|known| known.lane == lane) {
            uses.push(LibraryUse { calls: of_library, lane, own, sizing });
        }
        Ok(true)
    }
}

/// Name of the way by kernels alone, for notes.
const OWN_KERNELS: &str = "kernels of aorta";

/// The way that computes an operation, and the engine if the library does.
type Chosen<A> = Way<<A as Api>::Engine>;

/// A class of work with the lanes of its uses. Engines are timed concurrently on all lanes of a use.
type Class = (LibraryWork, Vec<u32>);

impl<A: Api> Chooser<'_, A> {
    /// Chooses between the library's engines and the other ways for each operation, and returns the choices with notes for the record.
    /// Calls `done` after each choice.
    pub fn choose_engines(
        &self,
        all: &[LibraryOperation],
        done: &dyn Fn(),
    ) -> Result<Vec<(Chosen<A>, String)>, ExecError> {
        let mut classes: Vec<(Class, Vec<usize>)> = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let class = (one.work.class(), one.uses.iter().map(|one| one.lane).collect());
            // Sizes alone do not determine what kernels do: equal operations are one already.
            let is_shared = !matches!(one.work, LibraryWork::Kernels(_));
            match classes.iter_mut().find(|(known, _)| is_shared && *known == class) {
                Some((_, members)) => members.push(index),
                None => classes.push((class, vec![index])),
            }
        }
        let mut chosen: Vec<Option<(Chosen<A>, String)>> = all.iter().map(|_| None).collect();
        // Uses whose engine must be compiled, with the note of their class.
        let mut followers: Vec<(usize, EngineNumber, String)> = Vec::new();
        for (_, members) in classes {
            let (first, others) = members.split_first().expect("a class has a member");
            let (mut found, mut note) = self.choose_engine(&all[*first])?;
            if !others.is_empty() {
                note += &format!("; likewise {} of similar sizes", counted(others.len(), "other use"));
            }
            if matches!(found, Way::Candidate(_)) && followers.len() + others.len() > MAX_COMPILED {
                found = Way::Own(0);
                note += "; all of them are computed by the kernels of aorta, since compiling an engine for each takes too long";
            }
            match &found {
                Way::Own(way) => {
                    others.iter().for_each(|other| chosen[*other] = Some((Way::Own(*way), note.clone())));
                }
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

    /// Chooses between the library's engines and the other ways for one operation. Also returns a note for the record.
    fn choose_engine(&self, operation: &LibraryOperation) -> Result<(Chosen<A>, String), ExecError> {
        let LibraryOperation { work, kernels, own, uses } = operation;
        let own = if self.candidates > 1 { &own[..] } else { &own[..1] };
        let (in_library, what) = (work.in_library(), work.describe());
        let by_library = in_library.is_some();
        let library = self.api.engine_library().filter(|_| by_library);
        if let Some((of, them)) = in_library.filter(|_| library.is_none() && own.len() == 1) {
            return Ok((Way::Own(0), format!("{of}: {OWN_KERNELS}, since there is no library of {them}")));
        }
        let library = library.unwrap_or_default();
        // The times of kernels depend on their compiler.
        let compiler = if by_library { None } else { Some(self.api.compiler()?) };
        let described = match work {
            LibraryWork::Convolution { .. } => None,
            LibraryWork::Attention(fused) => Some(format!("{fused:?}")),
            LibraryWork::Kernels(ways) => Some(format!("{ways:?}")),
        };
        let stored = self.kept.filter(|_| self.candidates > 1).zip(described).map(|(folder, mut what)| {
            let lanes: Vec<u64> = uses.iter().map(|one| self.workspaces[one.lane as usize].1).collect();
            what += &format!(" {lanes:?}");
            let mut parts = vec![self.machine(), library];
            parts.extend(compiler.as_deref());
            for Kernel { source, grid, block, args, .. } in kernels {
                what += &format!(" {grid:?} {block:?}");
                if !by_library {
                    what += &format!(" {args:?}");
                }
                parts.push(&source.text);
            }
            parts.push(&what);
            disk_cache::path(folder, &parts, "choice")
        });
        if let Some(choice) = stored.as_deref().and_then(StoredChoice::read) {
            let time = choice.time;
            match choice.way(by_library) {
                Way::Own(way) => {
                    if let Some(name) = own.get(way) {
                        return Ok((Way::Own(way), format!("{what}: {name}, {time} when they were chosen")));
                    }
                }
                Way::Candidate(engine) => {
                    if let Ok(engine) = self.compiled(operation, engine) {
                        let note = format!("{what}: an engine of {library}, {time} when it was chosen");
                        return Ok((Way::Candidate(engine), note));
                    }
                }
            }
        }
        let (term, workspace) = (work.term(), self.workspaces[uses[0].lane as usize].1);
        let proposals = || match by_library {
            true => self.api.engines(work, workspace, self.candidates, None),
            false => Ok(Vec::new()),
        };
        let (found, lacking) = match proposals() {
            Ok(found) => (found, None),
            Err(why) if own.len() > 1 => (Vec::new(), Some(why)),
            Err(why) => {
                let note = format!("{what}: {OWN_KERNELS}, since {library} has no {term}: {why}");
                return Ok((Way::Own(0), note));
            }
        };
        if let LibraryWork::Kernels(ways) = work {
            uses.iter().try_for_each(|one| self.set_contents(one, &ways.contents.1)).map_err(ExecError::device)?;
        }
        let issue = |way: Way<&A::Engine>, number, stream| self.issue_use(operation, way, number, stream);
        let (lanes, flops) = (uses.iter().map(|one| one.lane).collect(), work.flops());
        let trial = Trial { what, library, term, lanes, flops, own, issue: &issue };
        let TrialResult { way, time, mut note } = self.fastest(&trial, found)?;
        if let Some(why) = lacking.filter(|_| !library.is_empty()) {
            note += &format!("; {library} has no {term}: {why}");
        }
        if let Some(time) = time {
            let number = match &way {
                Way::Own(way) => Way::Own(*way),
                Way::Candidate(engine) => Way::Candidate(A::engine_number(engine)),
            };
            disk_cache::store(stored.as_deref(), &StoredChoice::of_way(&number, time).packed());
        }
        Ok((way, note))
    }

    /// Writes the contents on which the time of an operation depends to its operand: the operations that compute them have not run.
    fn set_contents(&self, one: &LibraryUse, bytes: &[u8]) -> Call {
        let Some(address) = one.sizing else { return Ok(()) };
        let copy = CopyLaunch {
            source: 0,
            target: 0,
            source_offset: 0,
            target_offset: 0,
            direction: Direction::HostToDevice,
            pageable: true,
            engine: false,
            row_bytes: bytes.len() as u64,
            rows: 1,
            source_pitch: 0,
            target_pitch: 0,
        };
        // SAFETY: the operand is the operation's own and has these bytes; nothing uses its memory now, and the source lives until the copy
        // has ended.
        unsafe { self.api.copy(&copy, bytes.as_ptr() as u64, address, self.streams[one.lane as usize])? };
        self.api.synchronize()
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
        let LibraryUse { calls, lane, own, .. } = &operation.uses[number];
        let workspace = self.workspaces[*lane as usize];
        let (first, end) = match way {
            Way::Own(way) => own[way],
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
    fn a_choice_keeps_its_way() {
        let engine = |form, number| Way::Candidate(EngineNumber { form, number });
        for way in [Way::Own(0), engine(0, 0), engine(1, u32::MAX - 1)] {
            assert_eq!(StoredChoice::of_way(&way, Nanos(7)).way(true), way);
        }
        for way in [Way::Own(0), Way::Own(3)] {
            assert_eq!(StoredChoice::of_way(&way, Nanos(7)).way(false), way);
        }
    }
}
