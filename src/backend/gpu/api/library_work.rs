//! Operations that can be computed in several ways: by a vendor's library, by generated kernels, or by matrix products.

use std::sync::Arc;

use crate::ops::{AttentionForm, Conv, ConvForm, FusedAttention, Kernel, KernelWays};

/// An operation that can be computed in several ways.
#[derive(Clone, Debug, PartialEq)]
pub enum LibraryWork {
    /// A convolution, which the vendor's library can compute.
    Convolution {
        whole: Arc<Conv>,
        /// The convolution of a single call of the library: with some of the samples, if there are many.
        piece: Box<Conv>,
    },
    /// Attention, which the vendor's library can compute.
    Attention(Arc<FusedAttention>),
    /// An operation that only generated kernels compute, in several ways.
    Kernels(Arc<KernelWays>),
}

/// An operation of an image that can be computed in several ways, with all uses that differ in the operands' addresses only.
#[derive(Debug)]
pub struct LibraryOperation {
    pub work: LibraryWork,
    /// Kernels that compute the same without products, with the operands of the first use.
    pub kernels: Vec<Kernel>,
    /// Names of the ways without the library, for notes.
    pub own: Vec<String>,
    /// The first use on each lane that has one.
    pub uses: Vec<LibraryUse>,
}

/// A use of such an operation on one lane.
#[derive(Debug)]
pub struct LibraryUse {
    /// For each call of the library, the addresses of the operands, in the order of `Api::run_engine`.
    pub calls: Vec<Arc<[u64]>>,
    pub lane: u32,
    /// For each way without the library, first and end index in `Calls::alternatives` of its kernels and matrix products.
    pub own: Vec<(u32, u32)>,
    /// Address of the operand whose contents a trial sets; `None` if the time does not depend on contents.
    pub sizing: Option<u64>,
}

/// Number by which the vendor's library identifies an engine of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineNumber {
    /// Index of the form of the graph by which the library computes attention, among the vendor's forms.
    pub form: u32,
    /// The library's number of the engine.
    pub number: u32,
}

impl LibraryWork {
    /// Returns the work of a convolution, which the library may compute in several calls.
    pub fn convolution(whole: &Arc<Conv>) -> LibraryWork {
        LibraryWork::Convolution { whole: whole.clone(), piece: Box::new(whole.pieces().0) }
    }

    /// Returns for each call of the library the addresses of its operands, from those of the operation.
    pub fn calls(&self, operands: &[u64]) -> Vec<Arc<[u64]>> {
        let address = |operand: u8| operands[usize::from(operand)];
        match self {
            LibraryWork::Convolution { whole, .. } => {
                let bytes = whole.tensors.map(|tensor| tensor.bytes() / tensor.dims[0]);
                let [x, w, y] = whole.operands.map(address);
                let bias = whole.bias.map_or(0, address);
                let at = |start: u64| Arc::from([x + start * bytes[0], w, y + start * bytes[2], bias]);
                whole.pieces().1.into_iter().map(at).collect()
            }
            LibraryWork::Attention(fused) => {
                vec![fused.operands.iter().map(|(operand, _)| address(*operand)).collect()]
            }
            LibraryWork::Kernels(_) => Vec::new(),
        }
    }

    /// Returns work with the size of the class: engines and kernels compute all work of a class about equally fast.
    pub fn class(&self) -> LibraryWork {
        match self {
            LibraryWork::Convolution { .. } | LibraryWork::Kernels(_) => self.clone(),
            LibraryWork::Attention(fused) => LibraryWork::Attention(Arc::new(fused.class())),
        }
    }

    /// Number of floating-point operations.
    pub fn flops(&self) -> f64 {
        match self {
            LibraryWork::Convolution { whole, .. } => {
                let [_, w, y] = &whole.tensors;
                2.0 * y.elements() as f64 / y.dims[1] as f64 * w.elements() as f64
            }
            LibraryWork::Attention(fused) => fused.flops(),
            LibraryWork::Kernels(ways) => ways.flops,
        }
    }

    /// Plural and pronoun, for notes, of work that a vendor's library can compute; `None` if only kernels compute it.
    pub fn in_library(&self) -> Option<(&'static str, &'static str)> {
        match self {
            LibraryWork::Convolution { .. } => Some(("convolutions", "them")),
            LibraryWork::Attention(_) => Some(("attention", "it")),
            LibraryWork::Kernels(_) => None,
        }
    }

    /// The library's term for a way to compute the work.
    pub fn term(&self) -> &'static str {
        match self {
            LibraryWork::Convolution { .. } | LibraryWork::Kernels(_) => "algorithm",
            LibraryWork::Attention(_) => "engine",
        }
    }

    /// Describes the work in notes.
    pub fn describe(&self) -> String {
        match self {
            LibraryWork::Convolution { whole, .. } => describe_convolution(whole),
            LibraryWork::Attention(fused) => describe_attention(fused),
            LibraryWork::Kernels(ways) => ways.what.clone(),
        }
    }
}

fn describe_convolution(conv: &Conv) -> String {
    let [x, w, y] = &conv.tensors;
    let order = if conv.deterministic { "" } else { ", not deterministic" };
    let dtype = format!("{}{order}", conv.arithmetic.name());
    match conv.form {
        ConvForm::Forward => format!("convolution {} with {} {dtype}", x.dims, w.dims),
        ConvForm::Transposed => format!("convolution {} with {}, transposed, {dtype}", y.dims, w.dims),
        ConvForm::Weights => format!("convolution of weights {} from {} {dtype}", w.dims, x.dims),
    }
}

fn describe_attention(attention: &FusedAttention) -> String {
    let [q, k] = [0, 1].map(|place| attention.tensor(place));
    let name = match attention.form {
        AttentionForm::Forward => "attention",
        AttentionForm::Backward => "gradients of attention",
    };
    let mask = match (attention.causal, attention.window) {
        (false, _) => String::new(),
        (true, 0) => ", causal".to_owned(),
        (true, window) => format!(", causal, window {window}"),
    };
    let bias = attention.bias().map_or(String::new(), |place| format!(", bias {}", attention.tensor(place).dims));
    let sums = if attention.deterministic { "" } else { ", not deterministic" };
    format!("{name} {} over {} heads of {} keys {}{mask}{bias}{sums}", q.dims, k.dims[1], k.dims[2], q.dtype)
}
