//! rocBLAS, as far as matrix products go.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::blas::{Function, Matrix, Product};
use crate::device;
use crate::element::Element;
use crate::handles::Handles;
use crate::stream::{STREAMS, Task};

type Handle = *mut c_void;

/// `rocblas_status`.
const SUCCESS: c_int = 0;
const INVALID_HANDLE: c_int = 1;
const NOT_IMPLEMENTED: c_int = 2;
const INVALID_SIZE: c_int = 4;
const INTERNAL: c_int = 6;

/// `rocblas_operation_transpose`.
const TRANSPOSE: c_int = 112;

/// Each handle has a stream.
static LIBRARIES: Handles<Mutex<usize>> = Handles::new();

fn element(number: c_int) -> Option<Element> {
    match number {
        150 => Some(Element::F16),
        151 => Some(Element::F32),
        152 => Some(Element::F64),
        168 => Some(Element::BF16),
        _ => None,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocblas_create_handle(to: *mut Handle) -> c_int {
    crate::api::counted!(rocblas_create_handle);
    // SAFETY: the output pointer is valid for the call.
    unsafe { to.write(LIBRARIES.add(Arc::new(Mutex::new(0)))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn rocblas_destroy_handle(library: Handle) -> c_int {
    crate::api::counted!(rocblas_destroy_handle);
    if LIBRARIES.remove(library).is_ok() { SUCCESS } else { INVALID_HANDLE }
}

#[unsafe(no_mangle)]
pub extern "C" fn rocblas_set_stream(library: Handle, stream: Handle) -> c_int {
    crate::api::counted!(rocblas_set_stream);
    let Ok(library) = LIBRARIES.get(library) else { return INVALID_HANDLE };
    *library.lock().unwrap_or_else(PoisonError::into_inner) = stream as usize;
    SUCCESS
}

/// The workspace is not used.
#[unsafe(no_mangle)]
pub extern "C" fn rocblas_set_workspace(library: Handle, _address: *mut c_void, _bytes: usize) -> c_int {
    crate::api::counted!(rocblas_set_workspace);
    if LIBRARIES.get(library).is_ok() { SUCCESS } else { INVALID_HANDLE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocblas_gemm_strided_batched_ex(
    library: Handle,
    operation_a: c_int,
    operation_b: c_int,
    m: i32,
    n: i32,
    k: i32,
    alpha: *const c_void,
    a: *const c_void,
    a_type: c_int,
    a_leading: i32,
    a_stride: i64,
    b: *const c_void,
    b_type: c_int,
    b_leading: i32,
    b_stride: i64,
    beta: *const c_void,
    c: *const c_void,
    c_type: c_int,
    c_leading: i32,
    c_stride: i64,
    d: *mut c_void,
    d_type: c_int,
    d_leading: i32,
    d_stride: i64,
    batch: i32,
    compute: c_int,
    _algorithm: c_int,
    _solution: i32,
    _flags: u32,
) -> c_int {
    crate::api::counted!(rocblas_gemm_strided_batched_ex);
    let Ok(library) = LIBRARIES.get(library) else { return INVALID_HANDLE };
    let stream = *library.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(stream) = STREAMS.get(stream as Handle) else { return INVALID_HANDLE };
    if m < 0 || n < 0 || k < 0 || batch < 0 || [a_leading, b_leading, c_leading, d_leading].iter().any(|&at| at < 1) {
        return INVALID_SIZE;
    }
    let matrix = |address: usize, number, leading, stride, operation| {
        let transposed = operation == TRANSPOSE;
        Some(Matrix { address, element: element(number)?, leading: leading as usize, stride, transposed })
    };
    let operands = (
        matrix(a as usize, a_type, a_leading, a_stride, operation_a),
        matrix(b as usize, b_type, b_leading, b_stride, operation_b),
        matrix(c as usize, c_type, c_leading, c_stride, 0),
        matrix(d as usize, d_type, d_leading, d_stride, 0),
        element(compute),
    );
    let (Some(a), Some(b), Some(c), Some(d), Some(compute @ (Element::F32 | Element::F64))) = operands else {
        return NOT_IMPLEMENTED;
    };
    // SAFETY: scalars are of the type that is computed in.
    let (alpha, beta) = unsafe { (compute.load(alpha as usize, 0), compute.load(beta as usize, 0)) };
    let (m, n, k, batch) = (m as usize, n as usize, k as usize, batch as usize);
    let product = Product {
        m,
        n,
        k,
        batch,
        alpha,
        beta,
        a,
        b,
        c,
        d,
        double: compute == Element::F64,
        bias: 0,
        scales: [0; 2],
        each: false,
        function: Function::Identity,
    };
    let task = Task::new(move || {
        // SAFETY: whoever issued the product vouched for its operands.
        unsafe { product.run() };
        Ok(())
    });
    let usable = device::get(stream.device).and_then(|device| device.check());
    if usable.and_then(|()| stream.issue(task)).is_ok() { SUCCESS } else { INTERNAL }
}
