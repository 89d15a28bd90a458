//! Convolutions by cuDNN: graphs of one operation, whose engines are chosen during preparation. Only engines that sum the
//! products of the definition are used, without transforms (FFT, Winograd), and without atomics unless the order may vary.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::backend::gpu::Call;
use crate::backend::gpu::blas::check;
use crate::backend::gpu::runtime::Stream;
use crate::base::Dims;
use crate::ops::{Arithmetic, Conv, ConvForm, Tensor};

use super::cudnn::Cudnn;
use super::cudnn_api::{Desc, element, status};
use super::cudnn_graph::{ConvolutionSteps, Element, EngineNote, EnginePlan, EngineSearch, Graph, GraphTensor};

/// Number of configurations of engines that are timed for each algorithm that a setting requests. With 24
/// configurations instead of 8, four of 21 random convolutions took 0.86 to 0.94 of the time on an H100. Timing one
/// takes about 10 ms.
const CONFIGURATIONS: u32 = 3;

/// Place of the bias among the addresses of a convolution.
const BIAS: usize = 3;

/// A convolution by one configuration of an engine of the library.
pub struct EngineConvolution {
    plan: EnginePlan,
    /// The addition of the bias to the result; `None` without a bias.
    bias: Option<Arc<Bias>>,
}

/// The addition of one number per channel to the result of a convolution.
struct Bias {
    library: Arc<Cudnn>,
    /// Descriptor of the bias.
    bias: Desc,
    /// Descriptor of the result.
    result: Desc,
    /// Index of the result among the tensors `x`, `w` and `y`.
    place: usize,
    /// The factor 1 in the type of the sums, as bytes.
    one: [u8; 8],
}

// SAFETY: descriptors may be used from any thread, one at a time, as the library's handle.
unsafe impl Send for Bias {}
// SAFETY: finished descriptors are only read.
unsafe impl Sync for Bias {}

impl Drop for Bias {
    fn drop(&mut self) {
        for descriptor in [self.bias, self.result].into_iter().filter(|descriptor| !descriptor.is_null()) {
            // SAFETY: the library made it, and nothing that uses it is left.
            unsafe { (self.library.table.tensor_destroy)(descriptor) };
        }
    }
}

/// Returns the dimensions and strides of a tensor for the library, which has at least two spatial dimensions: a single
/// one becomes two, of which the first has size 1.
fn layout(tensor: &Tensor) -> [Vec<u64>; 2] {
    let [mut dims, mut strides] = [tensor.dims, tensor.strides].map(|sizes| sizes.to_vec());
    if dims.len() == 3 {
        strides.insert(2, dims[2] * strides[2]);
        dims.insert(2, 1);
    }
    [dims, strides]
}

/// Returns an option for each spatial dimension of the library.
fn spatial(sizes: Dims, absent: i64) -> Vec<i64> {
    let given = sizes.iter().map(|&size| size as i64);
    if sizes.len() == 1 { [absent].into_iter().chain(given).collect() } else { given.collect() }
}

/// Returns the properties of engines that must not compute this convolution.
fn excluded(conv: &Conv) -> Vec<EngineNote> {
    let arithmetic = conv.arithmetic;
    let mut all = vec![EngineNote::Fft, EngineNote::Winograd, EngineNote::ReducedSums];
    all.extend(conv.deterministic.then_some(EngineNote::Nondeterministic));
    if matches!(arithmetic, Arithmetic::F32 | Arithmetic::Tf32 | Arithmetic::F64) {
        all.push(EngineNote::DownConverts);
    }
    // Matrix units round `f32` inputs to `tf32`.
    if arithmetic == Arithmetic::F32 {
        all.push(EngineNote::MatrixUnits);
    }
    all
}

impl Cudnn {
    /// Returns the convolution by the configurations of engines that the library proposes, the most promising first: a
    /// single one if `wanted` is 1, otherwise at most [`CONFIGURATIONS`] times `wanted`.
    pub fn convolutions(library: &Arc<Self>, conv: &Conv, workspace: u64, wanted: u32) -> Call<Vec<EngineConvolution>> {
        let sum = if conv.arithmetic == Arithmetic::F64 { Element::F64 } else { Element::F32 };
        let mut graph = Graph::new(library);
        let mut operand = |tensor: &Tensor| -> Call<GraphTensor> {
            let [dims, strides] = layout(tensor);
            graph.aligned_operand((&dims, &strides), Element::of(tensor.dtype), tensor.align)
        };
        let [x, w, y] = &conv.tensors;
        let tensors = [operand(x)?, operand(w)?, operand(y)?];
        let steps = ConvolutionSteps {
            stride: spatial(conv.stride, 1),
            padding: spatial(conv.padding, 0),
            dilation: spatial(conv.dilation, 1),
            sum,
        };
        graph.convolve(conv.form, tensors, &steps)?;
        let search = EngineSearch {
            workspace,
            wanted: if wanted > 1 { wanted * CONFIGURATIONS } else { 1 } as usize,
            excluded: &excluded(conv),
            engine: None,
            exhaustive: true,
        };
        let bias = conv.bias.map(|_| Bias::new(library, conv)).transpose()?.map(Arc::new);
        let plans = graph.plans(&search)?;
        Ok(plans.into_iter().map(|plan| EngineConvolution { plan, bias: bias.clone() }).collect())
    }

    /// Creates the descriptor of a tensor.
    fn describe(&self, tensor: &Tensor, descriptor: &mut Desc) -> Call {
        let [dims, strides] =
            layout(tensor).map(|sizes| -> Vec<c_int> { sizes.iter().map(|&size| size as c_int).collect() });
        let count = dims.len() as c_int;
        // SAFETY: every pointer is valid for its call, and the lists have the stated length.
        unsafe {
            check("cudnnCreateTensorDescriptor", (self.table.tensor_create)(descriptor), status)?;
            let code =
                (self.table.tensor_set)(*descriptor, element(tensor.dtype), count, dims.as_ptr(), strides.as_ptr());
            check("cudnnSetTensorNdDescriptor", code, status)
        }
    }
}

impl Bias {
    fn new(library: &Arc<Cudnn>, conv: &Conv) -> Call<Bias> {
        let mut one = [0; 8];
        match conv.arithmetic {
            Arithmetic::F64 => one = 1f64.to_le_bytes(),
            _ => one[..4].copy_from_slice(&1f32.to_le_bytes()),
        }
        let none = std::ptr::null_mut();
        let place = if conv.form == ConvForm::Transposed { 0 } else { 2 };
        let mut all = Bias { library: library.clone(), bias: none, result: none, place, one };
        let result = conv.tensors[place];
        let mut bias = result;
        for axis in (0..bias.dims.len()).filter(|&axis| axis != 1) {
            bias.dims.set(axis, 1);
        }
        bias.strides = bias.dims.contiguous_strides();
        library.describe(&result, &mut all.result)?;
        library.describe(&bias, &mut all.bias)?;
        Ok(all)
    }

    /// # Safety
    ///
    /// The addresses are device memory that holds the operands, and the library's handle is bound to a stream that is alive.
    unsafe fn add(&self, addresses: &[u64]) -> Call {
        let (Cudnn { table, handle, .. }, one) = (&*self.library, self.one.as_ptr().cast());
        let (result, bias) = (addresses[self.place] as *mut c_void, addresses[BIAS] as *const c_void);
        // SAFETY: the caller vouches for memory and stream; the descriptors and the factor live in `self`.
        let code = unsafe { (table.add)(*handle, one, self.bias, bias, one, self.result, result) };
        check("cudnnAddTensor", code, status)
    }
}

impl EngineConvolution {
    /// Launches the convolution, and the addition of the bias if there is one. The addresses are those of `x`, `w`, `y` and bias.
    ///
    /// # Safety
    ///
    /// The addresses are device memory that holds the operands, the workspace has at least the size with which the engine was
    /// chosen, and the stream is alive.
    #[inline]
    pub unsafe fn convolve(&self, addresses: &[u64], workspace: u64, stream: Stream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        unsafe {
            self.plan.execute(&addresses[..BIAS], workspace, stream)?;
            self.bias.as_ref().map_or(Ok(()), |bias| bias.add(addresses))
        }
    }
}
