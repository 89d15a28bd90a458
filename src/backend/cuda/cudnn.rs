//! Convolutions by cuDNN, whose algorithms are chosen during preparation. Only algorithms that sum the products of the
//! definition in a fixed order are used: neither transforms (FFT, Winograd) nor atomics.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::backend::gpu::blas::check;
use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Call, ConvAddresses};
use crate::backend::libraries::{SearchPaths, functions};
use crate::base::{DType, Dims};
use crate::exec::ExecError;
use crate::ops::{Arithmetic, Conv, ConvForm, Tensor};

use super::cudnn_api::{Desc, GraphApi, Handle, element, status};

functions! {
    /// Functions of the library.
    Table {
        create = "cudnnCreate"(*mut Handle);
        set_stream = "cudnnSetStream"(Handle, Stream);
        tensor_create = "cudnnCreateTensorDescriptor"(*mut Desc);
        tensor_set = "cudnnSetTensorNdDescriptor"(Desc, c_int, c_int, *const c_int, *const c_int);
        tensor_destroy = "cudnnDestroyTensorDescriptor"(Desc);
        filter_create = "cudnnCreateFilterDescriptor"(*mut Desc);
        filter_set = "cudnnSetFilterNdDescriptor"(Desc, c_int, c_int, c_int, *const c_int);
        filter_destroy = "cudnnDestroyFilterDescriptor"(Desc);
        conv_create = "cudnnCreateConvolutionDescriptor"(*mut Desc);
        conv_set = "cudnnSetConvolutionNdDescriptor"(
            Desc, c_int, *const c_int, *const c_int, *const c_int, c_int, c_int,
        );
        conv_groups = "cudnnSetConvolutionGroupCount"(Desc, c_int);
        conv_math = "cudnnSetConvolutionMathType"(Desc, c_int);
        conv_destroy = "cudnnDestroyConvolutionDescriptor"(Desc);
        find_forward = "cudnnGetConvolutionForwardAlgorithm_v7"(
            Handle, Desc, Desc, Desc, Desc, c_int, *mut c_int, *mut Proposal,
        );
        find_data = "cudnnGetConvolutionBackwardDataAlgorithm_v7"(
            Handle, Desc, Desc, Desc, Desc, c_int, *mut c_int, *mut Proposal,
        );
        find_weights = "cudnnGetConvolutionBackwardFilterAlgorithm_v7"(
            Handle, Desc, Desc, Desc, Desc, c_int, *mut c_int, *mut Proposal,
        );
        forward = "cudnnConvolutionForward"(
            Handle, *const c_void, Desc, *const c_void, Desc, *const c_void, Desc, c_int, *mut c_void, usize,
            *const c_void, Desc, *mut c_void,
        );
        data = "cudnnConvolutionBackwardData"(
            Handle, *const c_void, Desc, *const c_void, Desc, *const c_void, Desc, c_int, *mut c_void, usize,
            *const c_void, Desc, *mut c_void,
        );
        weights = "cudnnConvolutionBackwardFilter"(
            Handle, *const c_void, Desc, *const c_void, Desc, *const c_void, Desc, c_int, *mut c_void, usize,
            *const c_void, Desc, *mut c_void,
        );
        add = "cudnnAddTensor"(
            Handle, *const c_void, Desc, *const c_void, *const c_void, Desc, *mut c_void,
        );
    }
    optional {
    }
}

/// A proposal of the library: `cudnnConvolutionFwdAlgoPerf_t` or the structure with the same fields for the other
/// forms.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Proposal {
    algorithm: c_int,
    status: c_int,
    time: f32,
    workspace: usize,
    determinism: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

/// Maximum number of proposals of a query.
const PROPOSALS: usize = 16;

/// CUDNN_DETERMINISTIC.
const DETERMINISTIC: c_int = 1;

/// CUDNN_FMA_MATH: no matrix units, and so no rounding of `f32` inputs to `tf32`.
const FMA_MATH: c_int = 3;

/// CUDNN_CROSS_CORRELATION: kernels are not reversed.
const CROSS_CORRELATION: c_int = 1;

/// An open library, with a handle on the device that was current.
pub struct Cudnn {
    table: Table,
    /// Functions for graphs of operations.
    pub graphs: GraphApi,
    pub handle: Handle,
    pub version: String,
    /// The version as the library returns it, such as 91900 for 9.19.0.
    pub release: usize,
    pub path: &'static str,
}

// SAFETY: the library documents its handles as usable from any thread, each by one at a time.
unsafe impl Send for Cudnn {}
// SAFETY: the thread of its device's driver alone makes calls.
unsafe impl Sync for Cudnn {}

/// Descriptors of a convolution and its tensors.
struct Descriptors {
    library: Arc<Cudnn>,
    x: Desc,
    w: Desc,
    y: Desc,
    /// A number for each channel of the result.
    bias: Desc,
    conv: Desc,
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let table = &self.library.table;
        // SAFETY: each was made by the library or is null, which is left alone.
        unsafe {
            for tensor in [self.x, self.y, self.bias] {
                if !tensor.is_null() {
                    (table.tensor_destroy)(tensor);
                }
            }
            if !self.w.is_null() {
                (table.filter_destroy)(self.w);
            }
            if !self.conv.is_null() {
                (table.conv_destroy)(self.conv);
            }
        }
    }
}

/// A convolution with a chosen algorithm.
pub struct Convolution {
    descriptors: Descriptors,
    form: ConvForm,
    algorithm: c_int,
    workspace: usize,
    /// 1 and 0, in the type of sums.
    one: [u8; 8],
    zero: [u8; 8],
}

/// Whether an algorithm sums the products of the definition. Numbers are those of `cudnnConvolutionFwdAlgo_t` and of
/// the corresponding enumerations.
fn is_direct(form: ConvForm, algorithm: c_int) -> bool {
    match form {
        // Implicit and explicit matrix products, and the direct algorithm.
        ConvForm::Forward => (0..=3).contains(&algorithm),
        // Algorithm 0 and the weights' algorithm 3 use atomics.
        ConvForm::Transposed | ConvForm::Weights => algorithm == 1,
    }
}

/// Returns sizes or strides of four or five dimensions. The library represents a convolution over one dimension as one
/// over two.
fn sizes(dims: Dims, absent: u64) -> Vec<c_int> {
    let mut all: Vec<c_int> = dims.iter().map(|&size| size as c_int).collect();
    if all.len() == 3 {
        all.insert(2, absent as c_int);
    }
    all
}

/// Returns an option for each spatial dimension, at least two.
fn spatial(dims: Dims, absent: c_int) -> Vec<c_int> {
    let mut all: Vec<c_int> = dims.iter().map(|&size| size as c_int).collect();
    if all.len() == 1 {
        all.insert(0, absent);
    }
    all
}

impl Cudnn {
    /// Opens the newest library of version 9 or 8 that is found.
    pub fn open(paths: &SearchPaths) -> Result<Cudnn, ExecError> {
        let names = ["libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"].map(str::to_owned);
        let opened = paths.open_newest(&names).map_err(|why| {
            super::missing(
                "cuDNN (libcudnn)",
                "for faster convolutions and attention",
                why,
                "pip install nvidia-cudnn-cu13",
            )
        })?;
        let table = Table::load(&opened)?;
        let graphs = GraphApi::load(&opened)?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call.
        check("cudnnCreate", unsafe { (table.create)(&mut handle) }, status)
            .map_err(|fault| ExecError::Device { fault: fault.to_string(), help: None })?;
        // SAFETY: the function has no parameters and returns a number.
        let release = unsafe { opened.find::<unsafe extern "C" fn() -> usize>("cudnnGetVersion") }
            // SAFETY: as above.
            .map_or(0, |version| unsafe { version() });
        let version = format!("{}.{}.{}", release / 10_000, release / 100 % 100, release % 100);
        Ok(Cudnn { table, graphs, handle, version, release, path: opened.path })
    }

    /// Returns at most `wanted` algorithms that the library proposes, the most promising first.
    pub fn convolutions(library: &Arc<Self>, conv: &Conv, workspace: u64, wanted: u32) -> Call<Vec<Convolution>> {
        let exact = matches!(conv.arithmetic, Arithmetic::F32 | Arithmetic::F64);
        let mut all: Vec<Convolution> = Vec::new();
        let asked = Descriptors::new(library, conv, if exact { FMA_MATH } else { 1 })?;
        let mut seen = Vec::new();
        for proposal in asked.proposals(conv.form)? {
            let math = if exact { FMA_MATH } else { proposal.math };
            let fits = proposal.status == 0
                && proposal.determinism == DETERMINISTIC
                && proposal.workspace as u64 <= workspace
                && is_direct(conv.form, proposal.algorithm)
                && !seen.contains(&(proposal.algorithm, math));
            if !fits || all.len() >= wanted.max(1) as usize {
                continue;
            }
            seen.push((proposal.algorithm, math));
            let mut one = [0; 8];
            match conv.arithmetic {
                Arithmetic::F64 => one = 1f64.to_le_bytes(),
                _ => one[..4].copy_from_slice(&1f32.to_le_bytes()),
            }
            all.push(Convolution {
                descriptors: Descriptors::new(library, conv, math)?,
                form: conv.form,
                algorithm: proposal.algorithm,
                workspace: proposal.workspace,
                one,
                zero: [0; 8],
            });
        }
        Ok(all)
    }

    /// Binds the handle to a stream.
    ///
    ///
    /// # Safety
    ///
    /// The stream is alive.
    pub unsafe fn use_stream(&self, stream: Stream) -> Call {
        // SAFETY: the caller vouches for the stream.
        check("cudnnSetStream", unsafe { (self.table.set_stream)(self.handle, stream) }, status)
    }

    fn tensor(&self, tensor: &Tensor, desc: &mut Desc) -> Call {
        let (dims, strides) = (tensor.dims, tensor.strides);
        let row = dims[2] * strides[2];
        let (dims, strides) = (sizes(dims, 1), sizes(strides, row));
        let count = dims.len() as c_int;
        // SAFETY: every pointer is valid for its call, and the lists have the stated length.
        unsafe {
            check("cudnnCreateTensorDescriptor", (self.table.tensor_create)(desc), status)?;
            let code = (self.table.tensor_set)(*desc, element(tensor.dtype), count, dims.as_ptr(), strides.as_ptr());
            check("cudnnSetTensorNdDescriptor", code, status)
        }
    }
}

impl Descriptors {
    /// Creates the descriptors of a convolution with this `cudnnMathType_t`.
    fn new(library: &Arc<Cudnn>, conv: &Conv, math: c_int) -> Call<Self> {
        let none = std::ptr::null_mut();
        let mut all = Descriptors { library: library.clone(), x: none, w: none, y: none, bias: none, conv: none };
        let table = &library.table;
        let [x, w, y] = &conv.tensors;
        library.tensor(x, &mut all.x)?;
        library.tensor(y, &mut all.y)?;
        let result = if conv.form == ConvForm::Transposed { x } else { y };
        let mut bias = *result;
        for axis in (0..bias.dims.len()).filter(|&axis| axis != 1) {
            bias.dims.set(axis, 1);
        }
        bias.strides = bias.dims.contiguous_strides();
        library.tensor(&bias, &mut all.bias)?;
        let kernel = sizes(w.dims, 1);
        let (padding, stride, dilation) =
            (spatial(conv.padding, 0), spatial(conv.stride, 1), spatial(conv.dilation, 1));
        let sum = element(if x.dtype == DType::F64 { DType::F64 } else { DType::F32 });
        // SAFETY: every pointer is valid for its call, and the lists have the stated length.
        unsafe {
            check("cudnnCreateFilterDescriptor", (table.filter_create)(&mut all.w), status)?;
            // CUDNN_TENSOR_NCHW is 0.
            let code = (table.filter_set)(all.w, element(w.dtype), 0, kernel.len() as c_int, kernel.as_ptr());
            check("cudnnSetFilterNdDescriptor", code, status)?;
            check("cudnnCreateConvolutionDescriptor", (table.conv_create)(&mut all.conv), status)?;
            let code = (table.conv_set)(
                all.conv,
                padding.len() as c_int,
                padding.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                CROSS_CORRELATION,
                sum,
            );
            check("cudnnSetConvolutionNdDescriptor", code, status)?;
            let code = (table.conv_groups)(all.conv, conv.groups as c_int);
            check("cudnnSetConvolutionGroupCount", code, status)?;
            check("cudnnSetConvolutionMathType", (table.conv_math)(all.conv, math), status)?;
        }
        Ok(all)
    }

    /// Returns the library's proposals, the most promising first.
    fn proposals(&self, form: ConvForm) -> Call<Vec<Proposal>> {
        let Descriptors { library, x, w, y, conv, .. } = self;
        let (table, handle) = (&library.table, library.handle);
        let mut proposals = vec![Proposal::default(); PROPOSALS];
        let (mut found, most, to) = (0, PROPOSALS as c_int, proposals.as_mut_ptr());
        // SAFETY: the descriptors are alive, and the list has room for the stated number.
        let (call, code) = unsafe {
            match form {
                ConvForm::Forward => (
                    "cudnnGetConvolutionForwardAlgorithm_v7",
                    (table.find_forward)(handle, *x, *w, *conv, *y, most, &mut found, to),
                ),
                ConvForm::Transposed => (
                    "cudnnGetConvolutionBackwardDataAlgorithm_v7",
                    (table.find_data)(handle, *w, *y, *conv, *x, most, &mut found, to),
                ),
                ConvForm::Weights => (
                    "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
                    (table.find_weights)(handle, *x, *y, *conv, *w, most, &mut found, to),
                ),
            }
        };
        check(call, code, status)?;
        proposals.truncate(found.max(0) as usize);
        Ok(proposals)
    }
}

impl Convolution {
    /// Launches the convolution, and the addition of its bias.
    ///
    /// # Safety
    ///
    /// The addresses are device memory that holds the operands, the workspace has at least the stated size, and the
    /// stream is alive.
    #[inline]
    pub unsafe fn convolve(&self, addresses: ConvAddresses, workspace: (u64, u64), stream: Stream) -> Call {
        let Descriptors { library, x, w, y, conv, bias } = &self.descriptors;
        let (table, handle) = (&library.table, library.handle);
        let [at_x, at_w, at_y] = addresses.operands;
        let (one, zero) = (self.one.as_ptr().cast(), self.zero.as_ptr().cast());
        let (memory, size) = (workspace.0 as *mut c_void, self.workspace.min(workspace.1 as usize));
        let algorithm = self.algorithm;
        let [read_x, read_w, read_y] = [at_x, at_w, at_y].map(|at| at as *const c_void);
        let [to_x, to_w, to_y] = [at_x, at_w, at_y].map(|at| at as *mut c_void);
        // SAFETY: the caller vouches for memory and stream; descriptors and scalars live in the convolution.
        unsafe {
            check("cudnnSetStream", (table.set_stream)(handle, stream), status)?;
            match self.form {
                ConvForm::Forward => {
                    let code = (table.forward)(
                        handle, one, *x, read_x, *w, read_w, *conv, algorithm, memory, size, zero, *y, to_y,
                    );
                    check("cudnnConvolutionForward", code, status)?;
                }
                ConvForm::Transposed => {
                    let code = (table.data)(
                        handle, one, *w, read_w, *y, read_y, *conv, algorithm, memory, size, zero, *x, to_x,
                    );
                    check("cudnnConvolutionBackwardData", code, status)?;
                }
                ConvForm::Weights => {
                    let code = (table.weights)(
                        handle, one, *x, read_x, *y, read_y, *conv, algorithm, memory, size, zero, *w, to_w,
                    );
                    check("cudnnConvolutionBackwardFilter", code, status)?;
                }
            }
            if addresses.bias == 0 {
                return Ok(());
            }
            let (result, to) = if self.form == ConvForm::Transposed { (*x, to_x) } else { (*y, to_y) };
            let code = (table.add)(handle, one, *bias, addresses.bias as *const c_void, one, result, to);
            check("cudnnAddTensor", code, status)
        }
    }
}
