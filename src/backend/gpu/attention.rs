//! Chooses between an engine of the vendor's library and generated kernels for each attention, by timing both.
//!
//! The library compiles an engine for each number of queries and keys, which takes 0.04 to 0.08 s (cuDNN 9.19, H100). A
//! workload whose lengths are drawn has hundreds of them. So only one use of each class is timed, the others take its choice,
//! and few engines are compiled for them.

use std::sync::Arc;

use crate::base::{Nanos, counted};
use crate::exec::{ExecError, Fault, ImageOp};
use crate::ops::{AttentionForm, FusedAttention, Kernel};

use super::api::{Api, Call};
use super::attended::{AttentionUse, Engine, ImageAttention};
use super::disk_cache;
use super::lower::{Calls, Context, Prepared};
use super::products::{Chooser, StoredChoice};
use super::runtime::Stream;
use super::trial::Trial;

impl Engine {
    /// Encodes a choice for the cache on disk; `None` stands for the kernels.
    fn choice(engine: Option<Engine>, time: Nanos) -> StoredChoice {
        let place = engine.map_or(0, |Engine { form, number }| (u64::from(form) << 32) + u64::from(number) + 1);
        StoredChoice { place: place as usize, time }
    }

    fn of_choice(choice: StoredChoice) -> Option<Engine> {
        let code = (choice.place as u64).checked_sub(1)?;
        Some(Engine { form: (code >> 32) as u32, number: code as u32 })
    }
}

/// Maximum number of engines that are compiled for uses that take over the choice of another use. On an H100, cuDNN
/// 9.19 compiled 1025 of them in 46 s, on one thread as on 16.
const MAX_COMPILED: usize = 64;

impl<A: Api> Context<'_, A> {
    /// Adds the library's call and the launches of the kernels that compute the same. Once one of the two is chosen,
    /// the calls of the other do nothing.
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
            calls.attentions.push(ImageAttention {
                attention: fused.clone(),
                kernels: kernels.to_vec(),
                uses: Vec::new(),
            });
            calls.attentions.len() - 1
        });
        let addresses: Arc<[u64]> = fused.operands.iter().map(|(operand, _)| operands[usize::from(*operand)]).collect();
        let attention = number as u32;
        calls.attended.push(addresses.clone());
        calls.calls.push(Prepared::Attend { attention, operands: calls.attended.len() as u32 - 1, workspace, stream });
        let first = calls.alternatives.len() as u32;
        for kernel in kernels.iter().filter(|kernel| self.launches(kernel)) {
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

/// A class of attention with the lanes of its uses. Engines are timed concurrently on all lanes of a use.
type Class = (FusedAttention, Vec<u32>);

impl<A: Api> Chooser<'_, A> {
    /// Chooses between the library's engines and generated kernels for each attention, and returns the choices with
    /// notes for the record. Calls `done` after each choice.
    pub fn choose_attentions(
        &self,
        all: &[ImageAttention],
        done: &dyn Fn(),
    ) -> Result<Vec<(Chosen<A>, String)>, ExecError> {
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
        for (index, engine, note) in followers {
            // An engine of the class that does not compute this use is no reason to fail.
            chosen[index] = Some(match self.compiled(&all[index], engine) {
                Ok(engine) => (Some(engine), note),
                Err(_) => self.choose_attention(&all[index])?,
            });
            done();
        }
        Ok(chosen.into_iter().map(|one| one.expect("each attention is in a class")).collect())
    }

    /// Chooses between the library's engines and generated kernels for one attention. Also returns a note for the
    /// record.
    fn choose_attention(&self, attention: &ImageAttention) -> Result<(Chosen<A>, String), ExecError> {
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
        if let Some(choice) = kept.as_deref().and_then(StoredChoice::read) {
            let time = choice.time;
            match Engine::of_choice(choice) {
                None => return Ok((None, format!("{what}: kernels of aorta, {time} when they were chosen"))),
                Some(engine) => {
                    if let Ok(engine) = self.compiled(attention, engine) {
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
        let issue =
            |engine: Option<&A::Attention>, number, stream| self.issue_attention(attention, engine, number, stream);
        let trial = Trial {
            what,
            library,
            term: "engine",
            lanes: attention.uses.iter().map(|one| one.lane).collect(),
            flops: attention.attention.flops() * attention.attention.calls as f64,
            issue: &issue,
        };
        let fastest = self.fastest(&trial, found)?;
        if let Some(time) = fastest.time {
            let choice = Engine::choice(fastest.candidate.as_ref().map(A::engine), time);
            disk_cache::store(kept.as_deref(), &choice.packed());
        }
        Ok((fastest.candidate, fastest.note))
    }

    /// Compiles an engine for an attention, and runs it once with the operands of the first use.
    fn compiled(&self, attention: &ImageAttention, engine: Engine) -> Call<A::Attention> {
        let workspace = self.workspaces[attention.uses[0].lane as usize].1;
        let mut found = self.api.attentions(&attention.attention, workspace, 1, Some(engine))?;
        let engine = found.pop().ok_or_else(|| Fault::new("attentions", "the library has no engine"))?;
        let stream = self.streams[attention.uses[0].lane as usize];
        self.issue_attention(attention, Some(&engine), 0, stream)?;
        self.api.synchronize()?;
        Ok(engine)
    }

    /// Issues one use of an attention by an engine, or by the kernels if `engine` is `None`.
    fn issue_attention(
        &self,
        attention: &ImageAttention,
        engine: Option<&A::Attention>,
        number: usize,
        stream: Stream,
    ) -> Call {
        let AttentionUse { ref operands, lane, kernels } = attention.uses[number];
        match engine {
            // SAFETY: the operands are the operation's own, in memory that nothing else uses now.
            Some(engine) => unsafe { self.api.attend(engine, operands, self.workspaces[lane as usize], stream) },
            None => self.kernels(kernels, stream),
        }
    }
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
