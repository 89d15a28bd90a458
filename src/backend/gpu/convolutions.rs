//! Chooses between an algorithm of the vendor's library and generated kernels for each convolution, by timing both like
//! matrix products.

use crate::exec::ExecError;
use crate::ops::{Conv, ConvForm};

use super::api::{Api, Call};
use super::lower::{ConvUse, ImageConvolution};
use super::products::Chooser;
use super::runtime::Stream;
use super::trial::Trial;

/// An algorithm of the library; `None` if the kernels compute the convolution.
type Chosen<A> = Option<<A as Api>::Convolution>;

impl<A: Api> Chooser<'_, A> {
    /// Chooses between the library's algorithms and generated kernels. Also returns a note on the choice for the
    /// record.
    pub fn choose_convolution(&self, convolution: &ImageConvolution) -> Result<(Chosen<A>, String), ExecError> {
        let Some(library) = self.api.convolution_library() else {
            return Ok((None, "convolutions: kernels of aorta, since there is no library of them".to_owned()));
        };
        let workspace = self.workspaces[convolution.uses[0].lane as usize].1;
        // A library without an algorithm may return an error.
        let found = self.api.convolutions(&convolution.piece, workspace, self.candidates).unwrap_or_default();
        let [_, w, y] = &convolution.conv.tensors;
        let trial = Trial {
            what: format!("convolution {}", describe(&convolution.conv)),
            library,
            term: "algorithm",
            lanes: convolution.uses.iter().map(|one| one.lane).collect(),
            flops: 2.0 * y.elements() as f64 / y.dims[1] as f64 * w.elements() as f64,
            issue: &|algorithm: Option<&A::Convolution>, number, stream| {
                let ConvUse { ref pieces, lane, kernels } = convolution.uses[number];
                match algorithm {
                    Some(algorithm) => pieces.iter().try_for_each(|&operands| {
                        // SAFETY: the operands are the operation's own, in memory that nothing else uses now.
                        unsafe { self.api.convolve(algorithm, operands, self.workspaces[lane as usize], stream) }
                    }),
                    None => self.kernels(kernels, stream),
                }
            },
        };
        self.fastest(&trial, found).map(|fastest| (fastest.candidate, fastest.note))
    }

    /// Issues the kernels with indices `first..last` in [`Chooser::alternatives`].
    pub fn kernels(&self, (first, last): (u32, u32), stream: Stream) -> Call {
        self.alternatives[first as usize..last as usize].iter().try_for_each(|kernel| self.kernel(kernel, stream))
    }
}

fn describe(conv: &Conv) -> String {
    let [x, w, y] = &conv.tensors;
    let order = if conv.deterministic { "" } else { ", not deterministic" };
    let dtype = format!("{}{order}", conv.arithmetic.name());
    match conv.form {
        ConvForm::Forward => format!("{} with {} {dtype}", x.dims, w.dims),
        ConvForm::Transposed => format!("{} with {}, transposed, {dtype}", y.dims, w.dims),
        ConvForm::Weights => format!("of weights {} from {} {dtype}", w.dims, x.dims),
    }
}
