//! rocBLAS, for matrix products that hipBLASLt does not support. It chooses its algorithm at run time.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::backend::gpu::blas::{self, Scalars};
use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Addresses, Call};
use crate::backend::libraries::{SearchPaths, functions};
use crate::base::DType;
use crate::exec::ExecError;
use crate::ops::{Gemm, Matrix};

use super::driver::versioned;

type RocHandle = *mut c_void;

functions! {
    /// rocBLAS's functions.
    Table {
        create = rocblas_create_handle(*mut RocHandle);
        set_stream = rocblas_set_stream(RocHandle, Stream);
        set_workspace = rocblas_set_workspace(RocHandle, *mut c_void, usize);
        multiply = rocblas_gemm_strided_batched_ex(
            RocHandle, c_int, c_int, i32, i32, i32, *const c_void, *const c_void, c_int, i32, i64, *const c_void, c_int,
            i32, i64, *const c_void, *const c_void, c_int, i32, i64, *mut c_void, c_int, i32, i64, i32, c_int, c_int,
            i32, u32,
        );
    }
}

/// The opened library, with a handle on the device that was current.
pub struct RocBlas {
    table: Table,
    handle: RocHandle,
    pub path: &'static str,
}

// SAFETY: any thread may use a handle, one at a time, and only the thread of the device's rank does.
unsafe impl Send for RocBlas {}
// SAFETY: as above.
unsafe impl Sync for RocBlas {}

/// A matrix in the form that the library expects: type, leading dimension, stride between the matrices of a batch (both
/// in elements), and whether it is transposed.
#[derive(Clone, Copy)]
struct MatrixOperand {
    dtype: c_int,
    row: i32,
    batch: i64,
    operation: c_int,
}

/// A product, ready to be launched.
pub struct PreparedProduct {
    library: Arc<RocBlas>,
    /// Rows, columns and depth in the library's column-major order, and the batch size.
    sizes: [i32; 4],
    /// Operands in the library's column-major order, so the first two are swapped.
    operands: [MatrixOperand; 3],
    compute: c_int,
    scalars: Scalars,
}

fn status(code: c_int) -> &'static str {
    match code {
        1 => "the handle is invalid",
        2 => "not implemented",
        3 => "a pointer is invalid",
        4 => "a size is invalid",
        5 => "an allocation failed",
        6 => "an internal error",
        11 => "a value is invalid",
        13 => "not for this architecture",
        _ => "see rocblas_status",
    }
}

#[inline]
fn check(call: &'static str, code: c_int) -> Call {
    blas::check(call, code, status)
}

/// The library's number of an element type.
fn number(dtype: DType) -> c_int {
    match dtype {
        DType::F16 => 150,
        DType::F64 => 152,
        DType::BF16 => 168,
        _ => 151,
    }
}

fn operand(matrix: &Matrix) -> Option<MatrixOperand> {
    let operation = if matrix.transposed { 112 } else { 111 };
    let (row, batch) = (i32::try_from(matrix.row).ok()?, i64::try_from(matrix.batch).ok()?);
    Some(MatrixOperand { dtype: number(matrix.dtype), row, batch, operation })
}

impl RocBlas {
    /// Opens the library and creates a handle on the current device.
    pub fn open(paths: &SearchPaths) -> Result<RocBlas, ExecError> {
        let opened = paths.open(&versioned("librocblas", None)).map_err(|why| {
            super::missing("hipBLASLt (libhipblaslt) or rocBLAS (librocblas)", "for matrix products", "hipblaslt", why)
        })?;
        let table = Table::load(&opened)?;
        let mut handle: RocHandle = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (table.create)(&mut handle) };
        check("rocblas_create_handle", code).map_err(ExecError::device)?;
        Ok(RocBlas { table, handle, path: opened.path })
    }

    /// Prepares a product; `None` if a size exceeds the library's 32-bit integers.
    ///
    /// The library is column-major. A row-major matrix is its transpose there, and `c = a b` becomes `cᵀ = bᵀ aᵀ`. So
    /// the operands are swapped and no transposition is added.
    pub fn product(library: &Arc<RocBlas>, gemm: &Gemm) -> Option<PreparedProduct> {
        let size = |size: u64| i32::try_from(size).ok();
        Some(PreparedProduct {
            library: library.clone(),
            sizes: [size(gemm.n)?, size(gemm.m)?, size(gemm.k)?, size(gemm.batch)?],
            operands: [operand(&gemm.b)?, operand(&gemm.a)?, operand(&gemm.c)?],
            compute: number(blas::scale_type(gemm.arithmetic)),
            scalars: Scalars::of(gemm),
        })
    }
}

impl PreparedProduct {
    /// Launches the product.
    ///
    /// # Safety
    ///
    /// The addresses are device memory that holds the operands, the workspace has the stated size, the stream is alive,
    /// and no other thread uses the library's handle.
    pub unsafe fn multiply(&self, at: Addresses, workspace: (u64, u64), stream: Stream) -> Call {
        let PreparedProduct { library, sizes: [m, n, k, count], operands: [a, b, c], .. } = self;
        let RocBlas { table, handle, .. } = library.as_ref();
        let (first, second, result) = (at.b as *const c_void, at.a as *const c_void, at.c as *mut c_void);
        let (alpha, beta) = (self.scalars.alpha.as_ptr().cast(), self.scalars.beta.as_ptr().cast());
        let (standard, solution, flags) = (0, 0, 0);
        // SAFETY: the caller vouches for memory and stream; the scalars live in the product.
        unsafe {
            check("rocblas_set_stream", (table.set_stream)(*handle, stream))?;
            let code = (table.set_workspace)(*handle, workspace.0 as *mut c_void, workspace.1 as usize);
            check("rocblas_set_workspace", code)?;
            let code = (table.multiply)(
                *handle,
                a.operation,
                b.operation,
                *m,
                *n,
                *k,
                alpha,
                first,
                a.dtype,
                a.row,
                a.batch,
                second,
                b.dtype,
                b.row,
                b.batch,
                beta,
                result.cast_const(),
                c.dtype,
                c.row,
                c.batch,
                result,
                c.dtype,
                c.row,
                c.batch,
                *count,
                self.compute,
                standard,
                solution,
                flags,
            );
            check("rocblas_gemm_strided_batched_ex", code)
        }
    }
}
