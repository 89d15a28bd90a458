//! Chooses between an engine of the vendor's library and generated kernels for each attention, by timing both.

use std::sync::Arc;

use crate::base::Nanos;
use crate::exec::{ExecError, ImageOp};
use crate::ops::{AttentionForm, FusedAttention, Kernel};

use super::api::{Api, Call};
use super::lower::{Attention, AttentionUse, Calls, Context, Prepared};
use super::products::Chooser;
use super::runtime::Stream;

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
            calls.attentions.push(Attention { attention: fused.clone(), uses: Vec::new() });
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

impl<A: Api> Chooser<'_, A> {
    /// Chooses between the library's engines and our kernels, and returns a note on the choice for the record.
    pub fn choose_attention(&self, attention: &Attention) -> Result<(Chosen<A>, String), ExecError> {
        let what = describe(&attention.attention);
        let Some(library) = self.api.convolution_library() else {
            return Ok((None, "attention: kernels of aorta, since there is no library of it".to_owned()));
        };
        let workspace = self.workspaces[attention.uses[0].lane as usize].1;
        let found = match self.api.attentions(&attention.attention, workspace, self.candidates) {
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
