//! Chooses between an engine of the vendor's library and generated kernels for each attention, by timing both.
//!
//! The library compiles an engine for each number of queries and keys, which takes 0.04 to 0.08 s (cuDNN 9.19, H100). A workload whose
//! lengths are drawn has hundreds of them. So only one use of each class is timed, the others take its choice, and few
//! engines are compiled for them.

use std::sync::Arc;

use crate::base::{Nanos, counted, parallel};
use crate::exec::{ExecError, Fault, ImageOp};
use crate::ops::{AttentionForm, FusedAttention, Kernel};

use super::api::{Api, Call};
use super::attended::{Attention, AttentionUse, Engine};
use super::disk_cache;
use super::lower::{Calls, Context, Prepared};
use super::products::{Choice, Chooser};
use super::runtime::Stream;

impl Engine {
    /// The choice of an engine as it is kept on disk; `None` means the kernels.
    fn choice(engine: Option<Engine>, time: Nanos) -> Choice {
        let place = engine.map_or(0, |Engine { form, number }| (u64::from(form) << 32) + u64::from(number) + 1);
        Choice { place: place as usize, time }
    }

    fn of_choice(choice: Choice) -> Option<Engine> {
        let code = (choice.place as u64).checked_sub(1)?;
        Some(Engine { form: (code >> 32) as u32, number: code as u32 })
    }
}

/// Maximum number of engines that are compiled for uses that take the choice of another. On an H100, cuDNN 9.19 compiled 1025 of
/// them on 16 threads in 46 s.
const MAX_COMPILED: usize = 64;

/// Number of threads that compile engines. Each has a handle of the library.
const COMPILERS: usize = 16;

impl<A: Api> Context<'_, A> {
    /// Adds the library's call and the launches of the kernels. After the choice, the calls that are not chosen do
    /// nothing.
    pub fn attend(
        &self,
        (fused, kernels): (&Arc<FusedAttention>, &[Kernel]),
        op: &ImageOp,
        operands: &[u64],
        calls: &mut Calls<A>,
    ) -> Result<(), ExecError> {
        let (lane, workspace) = (op.lane, self.workspaces[op.lane as usize]);
        let stream = self.streams[lane as usize];
        let number = calls.attentions.iter().position(|known| known.attention == *fused).unwrap_or_else(|| {
            calls.attentions.push(Attention { attention: fused.clone(), kernels: kernels.to_vec(), uses: Vec::new() });
            calls.attentions.len() - 1
        });
        let addresses: Arc<[u64]> = fused.operands.iter().map(|(operand, _)| operands[usize::from(*operand)]).collect();
        let attention = number as u32;
        calls.attended.push(addresses.clone());
        calls.calls.push(Prepared::Attend { attention, operands: calls.attended.len() as u32 - 1, workspace, stream });
        let first = calls.alternatives.len() as u32;
        for kernel in kernels {
            let prepared = self.kernel(kernel, stream, (operands, workspace.0), &mut calls.args)?;
            calls.calls.push(Prepared::OwnAttention { attention, kernel: calls.alternatives.len() as u32 });
            calls.alternatives.push(prepared);
        }
        let uses = &mut calls.attentions[number].uses;
        if !uses.iter().any(|known| known.lane == lane) {
            uses.push(AttentionUse { operands: addresses, lane, kernels: (first, calls.alternatives.len() as u32) });
        }
        Ok(())
    }
}

/// An engine of the library; `None` if the kernels compute the attention.
type Chosen<A> = Option<<A as Api>::Attention>;

/// A class of attention and its lanes, since engines are timed concurrently on all lanes of a use.
type Class = (FusedAttention, Vec<u32>);

impl<A: Api> Chooser<'_, A> {
    /// Chooses between the library's engines and our kernels for each attention, and returns notes on the choices for the
    /// record. Calls `done` after each choice.
    pub fn choose_attentions(&self, all: &[Attention], done: &dyn Fn()) -> Result<Vec<(Chosen<A>, String)>, ExecError> {
        let mut classes: Vec<(Class, Vec<usize>)> = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let class = (one.attention.class(), one.uses.iter().map(|one| one.lane).collect());
            match classes.iter_mut().find(|(known, _)| *known == class) {
                Some((_, members)) => members.push(index),
                None => classes.push((class, vec![index])),
            }
        }
        let mut chosen: Vec<Option<(Chosen<A>, String)>> = all.iter().map(|_| None).collect();
        // Uses whose engine is to be compiled, with the note of their class.
        let mut followers: Vec<(usize, Engine, String)> = Vec::new();
        for (_, members) in classes {
            let (first, others) = members.split_first().expect("a class has a member");
            let (mut found, mut note) = self.choose_attention(&all[*first])?;
            if !others.is_empty() {
                note += &format!("; likewise {} of similar sizes", counted(others.len(), "other use"));
            }
            if found.is_some() && self.candidates > 1 && followers.len() + others.len() > MAX_COMPILED {
                found = None;
                note += "; all of them are computed by the kernels of aorta, since compiling an engine for each takes too long";
            }
            match found.as_ref().map(A::engine) {
                Some(engine) => followers.extend(others.iter().map(|other| (*other, engine, note.clone()))),
                None => others.iter().for_each(|other| chosen[*other] = Some((None, note.clone()))),
            }
            chosen[*first] = Some((found, note));
            done();
        }
        let (api, workspaces) = (self.api, self.workspaces);
        let compiled = parallel::map_on(COMPILERS, followers.len(), |number| {
            let (index, engine, _) = followers[number];
            api.make_current().and_then(|()| compile(api, workspaces, &all[index], engine))
        });
        for ((index, _, note), compiled) in followers.into_iter().zip(compiled) {
            let attention = &all[index];
            // An engine of the class that does not compute this use is no reason to fail.
            chosen[index] =
                Some(match compiled.and_then(|engine| self.try_engine(attention, &engine).map(|()| engine)) {
                    Ok(engine) => (Some(engine), note),
                    Err(_) => self.choose_attention(attention)?,
                });
            done();
        }
        Ok(chosen.into_iter().map(|one| one.expect("each attention is in a class")).collect())
    }

    /// Chooses between the library's engines and our kernels for one attention.
    fn choose_attention(&self, attention: &Attention) -> Result<(Chosen<A>, String), ExecError> {
        let what = describe(&attention.attention);
        let Some(library) = self.api.convolution_library() else {
            return Ok((None, "attention: kernels of aorta, since there is no library of it".to_owned()));
        };
        let kept = self.kept.filter(|_| self.candidates > 1).map(|folder| {
            let lanes: Vec<u64> = attention.uses.iter().map(|one| self.workspaces[one.lane as usize].1).collect();
            let (mut what, mut parts) = (format!("{:?} {lanes:?}", attention.attention), vec![self.machine(), library]);
            for Kernel { source, grid, block, .. } in &attention.kernels {
                what += &format!(" {grid:?} {block:?}");
                parts.push(&source.text);
            }
            parts.push(&what);
            disk_cache::path(folder, &parts, "choice")
        });
        if let Some(choice) = kept.as_deref().and_then(Choice::read) {
            let time = choice.time;
            match Engine::of_choice(choice) {
                None => return Ok((None, format!("{what}: kernels of aorta, {time} when they were chosen"))),
                Some(engine) => {
                    let compiled = compile(self.api, self.workspaces, attention, engine);
                    if let Ok(engine) = compiled.and_then(|one| self.try_engine(attention, &one).map(|()| one)) {
                        let note = format!("{what}: an engine of {library}, {time} when it was chosen");
                        return Ok((Some(engine), note));
                    }
                }
            }
        }
        let workspace = self.workspaces[attention.uses[0].lane as usize].1;
        let found = match self.api.attentions(&attention.attention, workspace, self.candidates, None) {
            Ok(found) => found,
            Err(why) => return Ok((None, format!("{what}: kernels of aorta, since {library} has no engine: {why}"))),
        };
        let count = found.len();
        if count == 0 {
            return Ok((None, format!("{what}: kernels of aorta, since {library} has no engine")));
        }
        if self.candidates == 1 {
            let first = found.into_iter().find(|engine| self.try_engine(attention, engine).is_ok());
            let by = match first {
                Some(_) => format!("the first engine of {library} that runs, not timed"),
                None => format!("kernels of aorta, since no engine of {library} runs"),
            };
            return Ok((first, format!("{what}: {by}")));
        }
        let own = self.time_attention(attention, None);
        let mut best: Option<(Nanos, usize, A::Attention)> = None;
        for (place, candidate) in found.into_iter().enumerate() {
            // An engine that fails is skipped: the kernels remain.
            if self.try_engine(attention, &candidate).is_ok()
                && let Ok(time) = self.time_attention(attention, Some(&candidate))
                && best.as_ref().is_none_or(|(least, ..)| time < *least)
            {
                best = Some((time, place, candidate));
            }
        }
        let engine = best.as_ref().map(|(time, _, engine)| (*time, Some(A::engine(engine))));
        let fastest = engine.into_iter().chain(own.as_ref().ok().map(|time| (*time, None))).min_by_key(|one| one.0);
        if let Some((time, engine)) = fastest {
            disk_cache::store(kept.as_deref(), &Engine::choice(engine, time).packed());
        }
        Ok(match (own, best) {
            (Ok(own), Some((time, place, engine))) if time < own => {
                let of = format!("engine {} of {count} of {library}", place + 1);
                (Some(engine), format!("{what}: {of}, {time}; kernels of aorta {own}"))
            }
            (Ok(own), Some((time, ..))) => {
                (None, format!("{what}: kernels of aorta, {own}; the best of {count} of {library} {time}"))
            }
            (Ok(own), None) => (None, format!("{what}: kernels of aorta, {own}; {library} computes none of {count}")),
            (Err(_), Some((time, place, engine))) => {
                (Some(engine), format!("{what}: engine {} of {count} of {library}, {time}", place + 1))
            }
            (Err(fault), None) => return Err(ExecError::Device { fault: fault.to_string(), help: None }),
        })
    }

    /// Runs an engine once. The first run may load code, which is not allowed during a capture.
    fn try_engine(&self, attention: &Attention, engine: &A::Attention) -> Call {
        let AttentionUse { ref operands, lane, .. } = attention.uses[0];
        let (stream, workspace) = (self.streams[lane as usize], self.workspaces[lane as usize]);
        // SAFETY: the operands are the operation's own, in memory that nothing else uses now.
        unsafe { self.api.attend(engine, operands, workspace, stream)? };
        self.api.synchronize()
    }

    /// Median time of one attention when it runs on each of its streams concurrently, by an engine or by the kernels.
    fn time_attention(&self, attention: &Attention, engine: Option<&A::Attention>) -> Call<Nanos> {
        let lanes: Vec<u32> = attention.uses.iter().map(|one| one.lane).collect();
        let flops = attention.attention.flops() * attention.attention.calls as f64;
        self.time_lanes(&lanes, flops, &|number, stream: Stream| {
            let AttentionUse { ref operands, lane, kernels } = attention.uses[number];
            match engine {
                // SAFETY: the operands are the operation's own, in memory that nothing else uses now.
                Some(engine) => unsafe { self.api.attend(engine, operands, self.workspaces[lane as usize], stream) },
                None => self.kernels(kernels, stream),
            }
        })
    }
}

/// Compiles an engine for an attention.
fn compile<A: Api>(api: &A, workspaces: &[(u64, u64)], attention: &Attention, engine: Engine) -> Call<A::Attention> {
    let workspace = workspaces[attention.uses[0].lane as usize].1;
    let mut found = api.attentions(&attention.attention, workspace, 1, Some(engine))?;
    found.pop().ok_or_else(|| Fault::new("attentions", "the library has no engine"))
}

fn describe(attention: &FusedAttention) -> String {
    let [q, k] = [0, 1].map(|place| attention.tensor(place));
    let name = match attention.form {
        AttentionForm::Forward => "attention",
        AttentionForm::Backward => "gradients of attention",
    };
    let mut batch = q.dims;
    batch.set(0, q.dims[0] * attention.calls);
    let mask = match (attention.causal, attention.window) {
        (false, _) => String::new(),
        (true, 0) => ", causal".to_owned(),
        (true, window) => format!(", causal, window {window}"),
    };
    let bias = attention.bias().map_or(String::new(), |place| format!(", bias {}", attention.tensor(place).dims));
    let sums = if attention.deterministic { "" } else { ", not deterministic" };
    format!("{name} {batch} over {} heads of {} keys {}{mask}{bias}{sums}", k.dims[1], k.dims[2], q.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_keeps_its_engine() {
        for engine in [None, Some(Engine { form: 0, number: 0 }), Some(Engine { form: 1, number: u32::MAX - 1 })] {
            assert_eq!(Engine::of_choice(Engine::choice(engine, Nanos(7))), engine);
        }
    }
}
