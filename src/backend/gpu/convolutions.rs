//! Chooses between an algorithm of the vendor's library and generated kernels for each convolution, by timing both like
//! matrix products.

use crate::base::Nanos;
use crate::exec::ExecError;
use crate::ops::{Conv, ConvForm};

use super::api::{Api, Call};
use super::lower::{ConvUse, Convolution};
use super::products::Chooser;
use super::runtime::Stream;

/// An algorithm of the library; `None` if the kernels compute the convolution.
type Chosen<A> = Option<<A as Api>::Convolution>;

impl<A: Api> Chooser<'_, A> {
    /// Chooses between the library's algorithms and our kernels, and returns a note on the choice for the record.
    pub fn choose_convolution(&self, convolution: &Convolution) -> Result<(Chosen<A>, String), ExecError> {
        let what = describe(&convolution.conv);
        let Some(library) = self.api.convolution_library() else {
            return Ok((None, "convolutions: kernels of aorta, since there is no library of them".to_owned()));
        };
        let workspace = self.workspaces[convolution.uses[0].lane as usize].1;
        // A library without an algorithm may return an error.
        let found = self.api.convolutions(&convolution.piece, workspace, self.candidates).unwrap_or_default();
        let count = found.len();
        if count == 0 {
            return Ok((None, format!("convolution {what}: kernels of aorta, since {library} has no algorithm")));
        }
        if self.candidates == 1 {
            let first = found.into_iter().next();
            return Ok((first, format!("convolution {what}: algorithm 1 of {library}, which was not timed")));
        }
        let own = self.time_convolution(convolution, None);
        let mut best: Option<(Nanos, usize, A::Convolution)> = None;
        for (place, candidate) in found.into_iter().enumerate() {
            // An algorithm that fails is skipped: the kernels remain.
            if let Ok(time) = self.time_convolution(convolution, Some(&candidate))
                && best.as_ref().is_none_or(|(least, ..)| time < *least)
            {
                best = Some((time, place, candidate));
            }
        }
        let fault = |fault: Box<crate::exec::Fault>| ExecError::Device { fault: fault.to_string(), help: None };
        Ok(match (own, best) {
            (Ok(own), Some((time, place, algorithm))) if time < own => {
                let of = format!("algorithm {} of {count} of {library}", place + 1);
                (Some(algorithm), format!("convolution {what}: {of}, {time}; kernels of aorta {own}"))
            }
            (Ok(own), Some((time, ..))) => {
                (None, format!("convolution {what}: kernels of aorta, {own}; the best of {count} of {library} {time}"))
            }
            (Ok(own), None) => {
                (None, format!("convolution {what}: kernels of aorta, {own}; {library} computes none of {count}"))
            }
            (Err(_), Some((time, place, algorithm))) => {
                let of = format!("algorithm {} of {count} of {library}", place + 1);
                (Some(algorithm), format!("convolution {what}: {of}, {time}"))
            }
            (Err(error), None) => return Err(fault(error)),
        })
    }

    /// Median time of one convolution when it runs on each of its streams concurrently, by an algorithm or by the kernels.
    fn time_convolution(&self, convolution: &Convolution, algorithm: Option<&A::Convolution>) -> Call<Nanos> {
        let lanes: Vec<u32> = convolution.uses.iter().map(|one| one.lane).collect();
        let [_, w, y] = &convolution.conv.tensors;
        let flops = 2.0 * y.elements() as f64 / y.dims[1] as f64 * w.elements() as f64;
        self.time_lanes(&lanes, flops, &|number, stream| {
            let ConvUse { ref pieces, lane, kernels } = convolution.uses[number];
            match algorithm {
                Some(algorithm) => pieces.iter().try_for_each(|&operands| {
                    // SAFETY: the operands are the operation's own, in memory that nothing else uses now.
                    unsafe { self.api.convolve(algorithm, operands, self.workspaces[lane as usize], stream) }
                }),
                None => self.kernels(kernels, stream),
            }
        })
    }

    /// Issues a range of the kernels in `alternatives`.
    pub fn kernels(&self, (first, last): (u32, u32), stream: Stream) -> Call {
        self.alternatives[first as usize..last as usize].iter().try_for_each(|kernel| self.kernel(kernel, stream))
    }
}

fn describe(conv: &Conv) -> String {
    let [x, w, y] = &conv.tensors;
    let dtype = conv.arithmetic.name();
    match conv.form {
        ConvForm::Forward => format!("{} with {} {dtype}", x.dims, w.dims),
        ConvForm::Transposed => format!("{} with {}, transposed, {dtype}", y.dims, w.dims),
        ConvForm::Weights => format!("of weights {} from {} {dtype}", w.dims, x.dims),
    }
}
