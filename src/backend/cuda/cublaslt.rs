//! cuBLASLt: matrix products, their algorithms chosen at preparation.

use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::Arc;

use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtHandle_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as DescField, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t as PreferenceField, cublasLtMatrixLayout_t,
    cublasLtMatrixLayoutAttribute_t as LayoutField, cublasLtReductionScheme_t, cudaDataType_t as DataType,
};
use cudarc::driver::sys::CUstream;

use crate::backend::libraries::{SearchPaths, functions};
use crate::base::DType;
use crate::exec::{ExecError, Fault};
use crate::ops::{Arithmetic, Gemm, Matrix};

/// What the library proposes. Its status is a number here: a newer library may have others than a header knows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proposal {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

functions! {
    /// cuBLASLt's functions.
    Table {
        create = "cublasLtCreate"(*mut cublasLtHandle_t);
        desc_create = "cublasLtMatmulDescCreate"(*mut cublasLtMatmulDesc_t, c_int, c_int);
        desc_destroy = "cublasLtMatmulDescDestroy"(cublasLtMatmulDesc_t);
        desc_set = "cublasLtMatmulDescSetAttribute"(cublasLtMatmulDesc_t, c_int, *const c_void, usize);
        layout_create = "cublasLtMatrixLayoutCreate"(*mut cublasLtMatrixLayout_t, c_int, u64, u64, i64);
        layout_destroy = "cublasLtMatrixLayoutDestroy"(cublasLtMatrixLayout_t);
        layout_set = "cublasLtMatrixLayoutSetAttribute"(cublasLtMatrixLayout_t, c_int, *const c_void, usize);
        preference_create = "cublasLtMatmulPreferenceCreate"(*mut cublasLtMatmulPreference_t);
        preference_destroy = "cublasLtMatmulPreferenceDestroy"(cublasLtMatmulPreference_t);
        preference_set = "cublasLtMatmulPreferenceSetAttribute"(
            cublasLtMatmulPreference_t, c_int, *const c_void, usize,
        );
        heuristic = "cublasLtMatmulAlgoGetHeuristic"(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int, *mut Proposal,
            *mut c_int,
        );
        matmul = "cublasLtMatmul"(
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void, cublasLtMatrixLayout_t,
            *const c_void, cublasLtMatrixLayout_t, *const c_void, *const c_void, cublasLtMatrixLayout_t,
            *mut c_void, cublasLtMatrixLayout_t, *const [u64; 8], *mut c_void, usize, CUstream,
        );
    }
    optional {
    }
}

/// The library, open, with a handle on the device that was current.
pub struct CublasLt {
    table: Table,
    handle: cublasLtHandle_t,
    pub version: usize,
    pub path: &'static str,
}

// SAFETY: the library documents its handle as usable from any thread.
unsafe impl Send for CublasLt {}
// SAFETY: as above; calls with one handle from several threads are allowed.
unsafe impl Sync for CublasLt {}

/// Descriptions of a product's operands.
struct Layouts {
    library: Arc<CublasLt>,
    desc: cublasLtMatmulDesc_t,
    /// In the library's order: its first operand is our second.
    a: cublasLtMatrixLayout_t,
    b: cublasLtMatrixLayout_t,
    c: cublasLtMatrixLayout_t,
}

impl Drop for Layouts {
    fn drop(&mut self) {
        let table = &self.library.table;
        // SAFETY: each was made by the library, or is null, which it takes for nothing to destroy.
        unsafe {
            for layout in [self.a, self.b, self.c] {
                if !layout.is_null() {
                    (table.layout_destroy)(layout);
                }
            }
            if !self.desc.is_null() {
                (table.desc_destroy)(self.desc);
            }
        }
    }
}

/// A product with an algorithm.
pub struct Product {
    layouts: Rc<Layouts>,
    algorithm: [u64; 8],
    workspace: usize,
    /// 1 and 0 in the type that the library scales in.
    one: [u8; 8],
    zero: [u8; 8],
}

fn check(call: &'static str, code: c_int) -> Result<(), Box<Fault>> {
    if code == 0 { Ok(()) } else { Err(fault(call, code)) }
}

#[cold]
fn fault(call: &'static str, code: c_int) -> Box<Fault> {
    let message = match code {
        1 => "the library is not initialised",
        3 => "an allocation failed",
        7 => "a value is invalid",
        8 => "the device lacks a feature",
        13 => "the execution failed",
        14 => "an internal error",
        15 => "not supported",
        _ => "see cublasStatus_t",
    };
    Box::new(Fault { call, code: i64::from(code), message: message.to_owned(), late: false })
}

fn data_type(dtype: DType) -> c_int {
    (match dtype {
        DType::F64 => DataType::CUDA_R_64F,
        DType::F16 => DataType::CUDA_R_16F,
        DType::BF16 => DataType::CUDA_R_16BF,
        _ => DataType::CUDA_R_32F,
    }) as c_int
}

impl CublasLt {
    /// Opens the library, of the driver's major version if there are several.
    pub fn open(paths: &SearchPaths, driver_major: i32) -> Result<CublasLt, ExecError> {
        let names = super::versioned("libcublasLt.so", driver_major);
        let opened = paths.open(&names).map_err(|why| {
            super::missing("cuBLASLt (libcublasLt)", "for matrix products", why, "pip install nvidia-cublas")
        })?;
        let table = Table::load(&opened)?;
        let mut handle: cublasLtHandle_t = std::ptr::null_mut();
        // SAFETY: the place is valid for the call.
        let code = unsafe { (table.create)(&mut handle) };
        check("cublasLtCreate", code).map_err(|fault| ExecError::Device { fault: fault.to_string(), help: None })?;
        // SAFETY: the function takes nothing and returns a number.
        let version =
            unsafe { opened.find::<unsafe extern "C" fn() -> usize>("cublasLtGetVersion") }.map_or(0, |version| {
                // SAFETY: as above.
                unsafe { version() }
            });
        Ok(CublasLt { table, handle, version, path: opened.path })
    }

    /// The algorithms that the library proposes, its best guess first. It is asked twice, with the workspace and for
    /// what needs none: where there is a workspace, it proposes to split small products into parts, and does not know
    /// that adding them up takes longer (a product of [32, 4096] × [4096, 4096] takes 9.3 µs so on an H200, else 7.6).
    pub fn products(
        library: &Arc<CublasLt>,
        gemm: &Gemm,
        workspace: u64,
        wanted: u32,
    ) -> Result<Vec<Product>, Box<Fault>> {
        let layouts = Rc::new(Layouts::new(library, gemm)?);
        let mut with = library.proposals(&layouts, gemm, workspace, wanted)?.into_iter();
        // That nothing goes without is no failure.
        let without = if wanted > 1 { library.proposals(&layouts, gemm, 0, wanted).ok() } else { None };
        let mut without = without.unwrap_or_default().into_iter();
        let mut one = [0; 8];
        match gemm.arithmetic {
            Arithmetic::F64 => one = 1f64.to_le_bytes(),
            _ => one[..4].copy_from_slice(&1f32.to_le_bytes()),
        }
        let mut products: Vec<Product> = Vec::new();
        // Both lists in turn, so that the best guesses of both are among those that are timed.
        loop {
            let pair = [with.next(), without.next()];
            if pair.iter().all(Option::is_none) || products.len() >= wanted.max(1) as usize {
                break;
            }
            for proposal in pair.into_iter().flatten().filter(|proposal| proposal.state == 0) {
                if products.iter().all(|product| product.algorithm != proposal.algorithm) {
                    products.push(Product {
                        layouts: layouts.clone(),
                        algorithm: proposal.algorithm,
                        workspace: proposal.workspace,
                        one,
                        zero: [0; 8],
                    });
                }
            }
        }
        products.truncate(wanted.max(1) as usize);
        Ok(products)
    }

    fn proposals(
        &self,
        layouts: &Layouts,
        gemm: &Gemm,
        workspace: u64,
        wanted: u32,
    ) -> Result<Vec<Proposal>, Box<Fault>> {
        let none = Proposal { algorithm: [0; 8], workspace: 0, state: -1, waves: 0.0, reserved: [0; 4] };
        let mut proposals = vec![none; wanted.max(1) as usize];
        let mut found = 0;
        let mut preference: cublasLtMatmulPreference_t = std::ptr::null_mut();
        let table = &self.table;
        // SAFETY: every place is valid for its call and of the size that is told; the preference is destroyed once.
        unsafe {
            check("cublasLtMatmulPreferenceCreate", (table.preference_create)(&mut preference))?;
            let set = |field: PreferenceField, value: &[u8]| {
                let code = (table.preference_set)(preference, field as c_int, value.as_ptr().cast(), value.len());
                check("cublasLtMatmulPreferenceSetAttribute", code)
            };
            let mut result = set(PreferenceField::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace.to_le_bytes());
            // Where several blocks share a sum, parts of it are kept as precise as sums are, and not rounded to a result of
            // 16 bits: some products of one row or two were off by a tenth.
            if gemm.c.dtype.size() < 4 {
                let scheme = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
                result = result.and_then(|()| {
                    set(PreferenceField::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme.to_le_bytes())
                });
            }
            // The library's first operand is our second.
            for (field, align) in [
                (PreferenceField::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, gemm.b.align),
                (PreferenceField::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, gemm.a.align),
                (PreferenceField::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, gemm.c.align),
                (PreferenceField::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, gemm.c.align),
            ] {
                result = result.and_then(|()| set(field, &u32::from(align).to_le_bytes()));
            }
            let result = result.and_then(|()| {
                let code = (table.heuristic)(
                    self.handle,
                    layouts.desc,
                    layouts.a,
                    layouts.b,
                    layouts.c,
                    layouts.c,
                    preference,
                    proposals.len() as c_int,
                    proposals.as_mut_ptr(),
                    &mut found,
                );
                check("cublasLtMatmulAlgoGetHeuristic", code)
            });
            (table.preference_destroy)(preference);
            result?;
        }
        proposals.truncate(found.max(0) as usize);
        Ok(proposals)
    }

    /// Launches a product.
    ///
    /// # Safety
    /// The addresses are device memory that holds the operands, the workspace has at least the size that is told, and
    /// the stream is alive.
    pub unsafe fn multiply(
        &self,
        product: &Product,
        operands: [u64; 3],
        workspace: (u64, u64),
        stream: CUstream,
    ) -> Result<(), Box<Fault>> {
        let [a, b, c] = operands;
        let layouts = &product.layouts;
        let size = product.workspace.min(workspace.1 as usize);
        // SAFETY: the caller vouches for memory and stream; scalars and algorithm live in the product.
        let code = unsafe {
            (self.table.matmul)(
                self.handle,
                layouts.desc,
                product.one.as_ptr().cast(),
                b as *const c_void,
                layouts.a,
                a as *const c_void,
                layouts.b,
                product.zero.as_ptr().cast(),
                c as *const c_void,
                layouts.c,
                c as *mut c_void,
                layouts.c,
                &product.algorithm,
                workspace.0 as *mut c_void,
                size,
                stream,
            )
        };
        check("cublasLtMatmul", code)
    }
}

impl Layouts {
    /// The library thinks in columns: a row-major matrix is its transpose, and `c = a b` is `cᵀ = bᵀ aᵀ`. So the operands
    /// change places, and nothing is transposed that was not.
    fn new(library: &Arc<CublasLt>, gemm: &Gemm) -> Result<Layouts, Box<Fault>> {
        let mut layouts = Layouts {
            library: library.clone(),
            desc: std::ptr::null_mut(),
            a: std::ptr::null_mut(),
            b: std::ptr::null_mut(),
            c: std::ptr::null_mut(),
        };
        let table = &library.table;
        let (compute, scale) = match gemm.arithmetic {
            Arithmetic::F64 => (Compute::CUBLAS_COMPUTE_64F, DataType::CUDA_R_64F),
            Arithmetic::Tf32 => (Compute::CUBLAS_COMPUTE_32F_FAST_TF32, DataType::CUDA_R_32F),
            _ => (Compute::CUBLAS_COMPUTE_32F, DataType::CUDA_R_32F),
        };
        // SAFETY: every place is valid for its call and of the size that is told.
        unsafe {
            let code = (table.desc_create)(&mut layouts.desc, compute as c_int, scale as c_int);
            check("cublasLtMatmulDescCreate", code)?;
            for (field, matrix) in
                [(DescField::CUBLASLT_MATMUL_DESC_TRANSA, &gemm.b), (DescField::CUBLASLT_MATMUL_DESC_TRANSB, &gemm.a)]
            {
                let operation = c_int::from(matrix.transposed);
                let code =
                    (table.desc_set)(layouts.desc, field as c_int, (&raw const operation).cast(), size_of::<c_int>());
                check("cublasLtMatmulDescSetAttribute", code)?;
            }
            layouts.a = layout(table, &gemm.b, (gemm.k, gemm.n), gemm.batch)?;
            layouts.b = layout(table, &gemm.a, (gemm.m, gemm.k), gemm.batch)?;
            layouts.c = layout(table, &gemm.c, (gemm.m, gemm.n), gemm.batch)?;
        }
        Ok(layouts)
    }
}

/// The layout of a row-major matrix whose product takes it as `rows` × `columns`.
///
/// # Safety
/// The table is the library's.
unsafe fn layout(
    table: &Table,
    matrix: &Matrix,
    (rows, columns): (u64, u64),
    batch: u64,
) -> Result<cublasLtMatrixLayout_t, Box<Fault>> {
    let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
    let mut layout: cublasLtMatrixLayout_t = std::ptr::null_mut();
    let dtype = data_type(matrix.dtype);
    // SAFETY: every place is valid for its call and of the size that is told.
    unsafe {
        let code = (table.layout_create)(&mut layout, dtype, columns, rows, matrix.row as i64);
        check("cublasLtMatrixLayoutCreate", code)?;
        if batch > 1 {
            let count = batch as i32;
            let step = matrix.batch as i64;
            let count_code = (table.layout_set)(
                layout,
                LayoutField::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT as c_int,
                (&raw const count).cast(),
                size_of::<i32>(),
            );
            let step_code = (table.layout_set)(
                layout,
                LayoutField::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET as c_int,
                (&raw const step).cast(),
                size_of::<i64>(),
            );
            check("cublasLtMatrixLayoutSetAttribute", count_code.max(step_code))?;
        }
    }
    Ok(layout)
}
