//! hipBLASLt: matrix products, their algorithms chosen at preparation.

use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::libraries::{NotOpened, SearchPaths, functions};
use crate::base::DType;
use crate::exec::{ExecError, Fault};
use crate::ops::{Arithmetic, Gemm, Matrix};

use super::table::Stream;

type LtHandle = *mut c_void;
type Desc = *mut c_void;
type Layout = *mut c_void;
type Preference = *mut c_void;

/// Numbers of the library's header from 0.6, ROCm 6.0, on. Before, element types and arithmetic had others.
mod number {
    pub const OLDEST: i32 = 600;
    pub const R_32F: i32 = 0;
    pub const R_64F: i32 = 1;
    pub const R_16F: i32 = 2;
    pub const R_16BF: i32 = 14;
    pub const COMPUTE_32F: i32 = 2;
    pub const COMPUTE_32F_FAST_TF32: i32 = 6;
    pub const COMPUTE_64F: i32 = 7;
    pub const OPERATION_NONE: i32 = 111;
    pub const OPERATION_TRANSPOSE: i32 = 112;
    pub const DESC_TRANSPOSE_A: i32 = 0;
    pub const DESC_TRANSPOSE_B: i32 = 1;
    pub const LAYOUT_BATCH_COUNT: i32 = 0;
    pub const LAYOUT_BATCH_OFFSET: i32 = 1;
    pub const PREFERENCE_WORKSPACE: i32 = 1;
}

/// An algorithm, as the library knows it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Algorithm {
    data: [u64; 2],
    most_workspace: usize,
}

/// What the library proposes. Its status is a number here: a newer library may have others than a header knows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proposal {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

functions! {
    /// hipBLASLt's functions.
    Table {
        create = "hipblasLtCreate"(*mut LtHandle);
        version = "hipblasLtGetVersion"(LtHandle, *mut c_int);
        desc_create = "hipblasLtMatmulDescCreate"(*mut Desc, c_int, c_int);
        desc_destroy = "hipblasLtMatmulDescDestroy"(Desc);
        desc_set = "hipblasLtMatmulDescSetAttribute"(Desc, c_int, *const c_void, usize);
        layout_create = "hipblasLtMatrixLayoutCreate"(*mut Layout, c_int, u64, u64, i64);
        layout_destroy = "hipblasLtMatrixLayoutDestroy"(Layout);
        layout_set = "hipblasLtMatrixLayoutSetAttribute"(Layout, c_int, *const c_void, usize);
        preference_create = "hipblasLtMatmulPreferenceCreate"(*mut Preference);
        preference_destroy = "hipblasLtMatmulPreferenceDestroy"(Preference);
        preference_set = "hipblasLtMatmulPreferenceSetAttribute"(
            Preference, c_int, *const c_void, usize,
        );
        heuristic = "hipblasLtMatmulAlgoGetHeuristic"(
            LtHandle, Desc, Layout, Layout,
            Layout, Layout, Preference, c_int, *mut Proposal,
            *mut c_int,
        );
        matmul = "hipblasLtMatmul"(
            LtHandle, Desc, *const c_void, *const c_void, Layout,
            *const c_void, Layout, *const c_void, *const c_void, Layout,
            *mut c_void, Layout, *const Algorithm, *mut c_void, usize, Stream,
        );
    }
    optional {
    }
}

/// The library, open, with a handle on the device that was current.
pub struct HipblasLt {
    table: Table,
    handle: LtHandle,
    version: c_int,
    pub path: &'static str,
}

// SAFETY: the library documents its handle as usable from any thread.
unsafe impl Send for HipblasLt {}
// SAFETY: as above; calls with one handle from several threads are allowed.
unsafe impl Sync for HipblasLt {}

/// Descriptions of a product's operands.
struct Layouts {
    library: Arc<HipblasLt>,
    desc: Desc,
    /// In the library's order: its first operand is our second.
    a: Layout,
    b: Layout,
    c: Layout,
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
    algorithm: Algorithm,
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
        2 => "an allocation failed",
        3 => "a value is invalid",
        5 => "the execution failed",
        6 => "an internal error",
        7 => "not supported",
        8 => "not for this architecture",
        _ => "see hipblasStatus_t",
    };
    Box::new(Fault { call, code: i64::from(code), message: message.to_owned(), late: false })
}

fn text(version: c_int) -> String {
    format!("{}.{}.{}", version / 100_000, version / 100 % 1000, version % 100)
}

fn data_type(dtype: DType) -> c_int {
    match dtype {
        DType::F64 => number::R_64F,
        DType::F16 => number::R_16F,
        DType::BF16 => number::R_16BF,
        _ => number::R_32F,
    }
}

impl HipblasLt {
    /// Opens the library, with a handle on the device that is current.
    pub fn open(paths: &SearchPaths) -> Result<HipblasLt, ExecError> {
        let names = ["libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"].map(str::to_owned);
        let missing = |why| super::missing("hipBLASLt (libhipblaslt)", "for matrix products", "hipblaslt", why);
        let opened = paths.open(&names).map_err(missing)?;
        let table = Table::load(&opened)?;
        let mut handle: LtHandle = std::ptr::null_mut();
        let mut version = 0;
        // SAFETY: the places are valid for the calls.
        let checked = unsafe {
            check("hipblasLtCreate", (table.create)(&mut handle))
                .and_then(|()| check("hipblasLtGetVersion", (table.version)(handle, &mut version)))
        };
        checked.map_err(|fault| ExecError::Device { fault: fault.to_string(), help: None })?;
        if version < number::OLDEST {
            return Err(missing(NotOpened::Broken(format!("version {} is older than 0.6", text(version)))));
        }
        Ok(HipblasLt { table, handle, version, path: opened.path })
    }

    /// `1.1.0`.
    pub fn version(&self) -> String {
        text(self.version)
    }

    /// The algorithms that the library proposes, its best guess first.
    pub fn products(
        library: &Arc<HipblasLt>,
        gemm: &Gemm,
        workspace: u64,
        wanted: u32,
    ) -> Result<Vec<Product>, Box<Fault>> {
        let layouts = Rc::new(Layouts::new(library, gemm)?);
        let proposals = library.proposals(&layouts, workspace, wanted)?;
        let mut one = [0; 8];
        match gemm.arithmetic {
            Arithmetic::F64 => one = 1f64.to_le_bytes(),
            _ => one[..4].copy_from_slice(&1f32.to_le_bytes()),
        }
        Ok(proposals
            .into_iter()
            .filter(|proposal| proposal.state == 0)
            .map(|proposal| Product {
                layouts: layouts.clone(),
                algorithm: proposal.algorithm,
                workspace: proposal.workspace,
                one,
                zero: [0; 8],
            })
            .collect())
    }

    fn proposals(&self, layouts: &Layouts, workspace: u64, wanted: u32) -> Result<Vec<Proposal>, Box<Fault>> {
        let none = Proposal { algorithm: Algorithm::default(), workspace: 0, state: -1, waves: 0.0, reserved: [0; 4] };
        let mut proposals = vec![none; wanted.max(1) as usize];
        let mut found = 0;
        let mut preference: Preference = std::ptr::null_mut();
        let table = &self.table;
        // SAFETY: every place is valid for its call and of the size that is told; the preference is destroyed once.
        unsafe {
            check("hipblasLtMatmulPreferenceCreate", (table.preference_create)(&mut preference))?;
            let (field, value) = (number::PREFERENCE_WORKSPACE, (&raw const workspace).cast());
            let code = (table.preference_set)(preference, field, value, size_of::<u64>());
            let result = check("hipblasLtMatmulPreferenceSetAttribute", code);
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
                check("hipblasLtMatmulAlgoGetHeuristic", code)
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
        stream: Stream,
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
        check("hipblasLtMatmul", code)
    }
}

impl Layouts {
    /// The library thinks in columns: a row-major matrix is its transpose, and `c = a b` is `cᵀ = bᵀ aᵀ`. So the operands
    /// change places, and nothing is transposed that was not.
    fn new(library: &Arc<HipblasLt>, gemm: &Gemm) -> Result<Layouts, Box<Fault>> {
        let mut layouts = Layouts {
            library: library.clone(),
            desc: std::ptr::null_mut(),
            a: std::ptr::null_mut(),
            b: std::ptr::null_mut(),
            c: std::ptr::null_mut(),
        };
        let table = &library.table;
        let (compute, scale) = match gemm.arithmetic {
            Arithmetic::F64 => (number::COMPUTE_64F, number::R_64F),
            Arithmetic::Tf32 => (number::COMPUTE_32F_FAST_TF32, number::R_32F),
            _ => (number::COMPUTE_32F, number::R_32F),
        };
        // SAFETY: every place is valid for its call and of the size that is told.
        unsafe {
            let code = (table.desc_create)(&mut layouts.desc, compute, scale);
            check("hipblasLtMatmulDescCreate", code)?;
            for (field, matrix) in [(number::DESC_TRANSPOSE_A, &gemm.b), (number::DESC_TRANSPOSE_B, &gemm.a)] {
                let operation = if matrix.transposed { number::OPERATION_TRANSPOSE } else { number::OPERATION_NONE };
                let code = (table.desc_set)(layouts.desc, field, (&raw const operation).cast(), size_of::<c_int>());
                check("hipblasLtMatmulDescSetAttribute", code)?;
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
) -> Result<Layout, Box<Fault>> {
    let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
    let mut layout: Layout = std::ptr::null_mut();
    let dtype = data_type(matrix.dtype);
    // SAFETY: every place is valid for its call and of the size that is told.
    unsafe {
        let code = (table.layout_create)(&mut layout, dtype, columns, rows, matrix.row as i64);
        check("hipblasLtMatrixLayoutCreate", code)?;
        if batch > 1 {
            let count = batch as i32;
            let step = matrix.batch as i64;
            let count_code =
                (table.layout_set)(layout, number::LAYOUT_BATCH_COUNT, (&raw const count).cast(), size_of::<i32>());
            let step_code =
                (table.layout_set)(layout, number::LAYOUT_BATCH_OFFSET, (&raw const step).cast(), size_of::<i64>());
            check("hipblasLtMatrixLayoutSetAttribute", count_code.max(step_code))?;
        }
    }
    Ok(layout)
}
