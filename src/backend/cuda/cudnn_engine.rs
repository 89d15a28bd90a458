//! Engines of cuDNN: one compiled graph for a convolution or attention.

use std::sync::Arc;

use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Call, EngineNumber, LibraryWork};

use super::cudnn::Cudnn;
use super::cudnn_attention::EngineAttention;
use super::cudnn_convolution::EngineConvolution;

/// A convolution or attention by one engine of the library.
pub enum CudnnEngine {
    Convolution(EngineConvolution),
    Attention(EngineAttention),
}

impl CudnnEngine {
    /// The number of the engine of attention; 0 for a convolution.
    pub fn number(&self) -> EngineNumber {
        match self {
            CudnnEngine::Convolution(_) => EngineNumber { form: 0, number: 0 },
            CudnnEngine::Attention(attention) => attention.engine,
        }
    }

    /// Launches the engine.
    ///
    /// # Safety
    ///
    /// As for [`EngineConvolution::convolve`] and [`EngineAttention::attend`].
    #[inline]
    pub unsafe fn run(&self, operands: &[u64], workspace: u64, stream: Stream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        unsafe {
            match self {
                CudnnEngine::Convolution(convolution) => convolution.convolve(operands, workspace, stream),
                CudnnEngine::Attention(attention) => attention.attend(operands, workspace, stream),
            }
        }
    }
}

impl Cudnn {
    /// Returns the engines that the library proposes: [`Cudnn::convolutions`] or [`Cudnn::attentions`].
    pub fn engines(
        library: &Arc<Cudnn>,
        work: &LibraryWork,
        workspace: u64,
        (wanted, engine): (u32, Option<EngineNumber>),
    ) -> Call<Vec<CudnnEngine>> {
        Ok(match work {
            LibraryWork::Convolution { piece, .. } => Cudnn::convolutions(library, piece, workspace, wanted)?
                .into_iter()
                .map(CudnnEngine::Convolution)
                .collect(),
            LibraryWork::Attention(fused) => Cudnn::attentions(library, fused, workspace, (wanted, engine))?
                .into_iter()
                .map(CudnnEngine::Attention)
                .collect(),
            LibraryWork::Kernels(_) => Vec::new(),
        })
    }
}
