//! Matrix products by cuBLASLt or hipBLASLt, which have the same functions under different names. The algorithm of each
//! product is chosen during preparation.

use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::libraries::{OpenedLibrary, functions};
use crate::base::DType;
use crate::exec::{ExecError, Fault};
use crate::ops::{Activation, Arithmetic, Epilogue, Gemm, Matrix, ScaleForm};

use super::runtime::Stream;
use super::{Addresses, Call};

/// The library's handle, bound to a device.
pub type Handle = *mut c_void;
type Desc = *mut c_void;
type Layout = *mut c_void;
type Preference = *mut c_void;

functions! {
    /// Functions of the library.
    Table named by Names {
        create(*mut Handle);
        desc_create(*mut Desc, c_int, c_int);
        desc_destroy(Desc);
        desc_set(Desc, c_int, *const c_void, usize);
        layout_create(*mut Layout, c_int, u64, u64, i64);
        layout_destroy(Layout);
        layout_set(Layout, c_int, *const c_void, usize);
        preference_create(*mut Preference);
        preference_destroy(Preference);
        preference_set(Preference, c_int, *const c_void, usize);
        // The size of a result depends on the library's algorithm descriptor.
        heuristic(
            Handle, Desc, Layout, Layout, Layout, Layout, Preference, c_int, *mut c_void, *mut c_int,
        );
        matmul(
            Handle, Desc, *const c_void, *const c_void, Layout, *const c_void, Layout, *const c_void, *const c_void,
            Layout, *mut c_void, Layout, *const u64, *mut c_void, usize, Stream,
        );
    }
}

/// Number of an attribute, and its value as bytes.
pub type Setting = (c_int, Vec<u8>);

/// Differences between the libraries: function names and constants of their headers.
pub struct Dialect {
    pub names: Names,
    /// Describes a status code.
    pub status: fn(c_int) -> &'static str,
    /// The library's number of a compute type.
    pub arithmetic: fn(Arithmetic) -> c_int,
    /// Constants for an operand used as it is, and for a transposed one.
    pub operations: [c_int; 2],
    /// Attributes of a product for whether its first and its second operand are transposed.
    pub transposes: [c_int; 2],
    /// Attributes of a layout for the number of matrices in a batch and for the stride between them, in elements.
    pub batch: [c_int; 2],
    /// Attributes of a product for its epilogue, and for the address and the element type of its bias.
    pub epilogue: [c_int; 3],
    /// Attributes of a product for the addresses of the scaling factors of its first and its second operand.
    pub scales: [c_int; 2],
    /// Attributes of a product for the scope of these factors: the whole matrix, or a block of it.
    pub scale_modes: [c_int; 2],
    /// Preferences that are passed to the heuristic, for a workspace of this size in bytes.
    pub preferences: fn(&Gemm, u64) -> Vec<Setting>,
    /// True if the heuristic is queried a second time, for algorithms that need no workspace.
    pub queries_without_workspace: bool,
}

/// The number of an element type in `cudaDataType_t` and in `hipDataType`.
fn element(dtype: DType) -> c_int {
    match dtype {
        DType::F64 => 1,
        DType::F16 => 2,
        DType::BF16 => 14,
        DType::I8 => 3,
        DType::I32 => 10,
        // The formats of the Open Compute Project. MI300X has others, without a negative zero.
        DType::E4M3 => 28,
        DType::E5M2 => 29,
        _ => 0,
    }
}

/// A proposal of the heuristic; its algorithm descriptor has `WORDS` 64-bit words. The status is a plain number because
/// a newer library may return values that our header does not list.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proposal<const WORDS: usize> {
    algorithm: [u64; WORDS],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// An open library with a handle on the device that was current. Its algorithm descriptors have `WORDS` words of 64
/// bits.
pub struct BlasLt<const WORDS: usize> {
    dialect: &'static Dialect,
    table: Table,
    pub handle: Handle,
    pub version: String,
    pub path: &'static str,
}

// SAFETY: the libraries document their handle as usable from any thread.
unsafe impl<const WORDS: usize> Send for BlasLt<WORDS> {}
// SAFETY: as above; calls with one handle from several threads are allowed.
unsafe impl<const WORDS: usize> Sync for BlasLt<WORDS> {}

/// Descriptors of a product and of the layouts of its operands.
struct Layouts<const WORDS: usize> {
    library: Arc<BlasLt<WORDS>>,
    desc: Desc,
    /// Operands in the library's column-major order, so A and B are swapped.
    a: Layout,
    b: Layout,
    c: Layout,
}

impl<const WORDS: usize> Drop for Layouts<WORDS> {
    fn drop(&mut self) {
        let table = &self.library.table;
        // SAFETY: each was made by the library or is null, which the library ignores.
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

/// A matrix product with a chosen algorithm.
pub struct PlannedProduct<const WORDS: usize> {
    layouts: Rc<Layouts<WORDS>>,
    algorithm: [u64; WORDS],
    workspace: usize,
    scalars: Scalars,
}

/// The factors alpha and beta of `c = alpha * a * b + beta * c`, as bytes of the library's scale type.
pub struct Scalars {
    pub alpha: [u8; 8],
    pub beta: [u8; 8],
}

impl Scalars {
    pub fn of(gemm: &Gemm) -> Scalars {
        let mut one = [0; 8];
        match gemm.arithmetic {
            Arithmetic::F64 => one = 1f64.to_le_bytes(),
            Arithmetic::I8 => one[..4].copy_from_slice(&1i32.to_le_bytes()),
            _ => one[..4].copy_from_slice(&1f32.to_le_bytes()),
        }
        Scalars { alpha: one, beta: if gemm.accumulate { one } else { [0; 8] } }
    }
}

/// The number of an epilogue in `cublasLtEpilogue_t` and in `hipblasLtEpilogue_t`.
fn epilogue_number(epilogue: Epilogue) -> c_int {
    let function = match epilogue.function {
        Activation::Identity => 1,
        Activation::Relu => 2,
        Activation::GeluTanh => 32,
    };
    match (epilogue.bias, function) {
        (None, function) => function,
        (Some(_), 1) => 4,
        (Some(_), function) => function | 4,
    }
}

/// Type of the factors alpha and beta for a type of arithmetic.
pub fn scale_type(arithmetic: Arithmetic) -> DType {
    match arithmetic {
        Arithmetic::F64 => DType::F64,
        Arithmetic::I8 => DType::I32,
        _ => DType::F32,
    }
}

/// Returns a fault with the library's description if a call's status is not 0.
#[inline]
pub fn check(call: &'static str, code: c_int, status: fn(c_int) -> &'static str) -> Call {
    #[cold]
    fn fault(call: &'static str, code: c_int, message: &str) -> Box<Fault> {
        Box::new(Fault { call, code: i64::from(code), message: message.to_owned(), late: false })
    }
    if code == 0 { Ok(()) } else { Err(fault(call, code, status(code))) }
}

impl<const WORDS: usize> BlasLt<WORDS> {
    /// Resolves the library's functions and creates a handle on the current device. The caller sets the version.
    pub fn open(opened: &OpenedLibrary, dialect: &'static Dialect) -> Result<Self, ExecError> {
        let table = Table::load(opened, &dialect.names)?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (table.create)(&mut handle) };
        check(dialect.names.create, code, dialect.status).map_err(ExecError::device)?;
        Ok(BlasLt { dialect, table, handle, version: String::new(), path: opened.path })
    }

    #[inline]
    fn check(&self, call: &'static str, code: c_int) -> Call {
        check(call, code, self.dialect.status)
    }

    /// Returns at most `wanted` algorithms that the library proposes, the most promising first.
    ///
    /// With a workspace, cuBLASLt proposes to split small products along k and underestimates the cost of adding up the
    /// parts: [32, 4096] × [4096, 4096] takes 9.3 µs split and 7.6 µs unsplit on an H200. The second query therefore
    /// requests algorithms without a workspace.
    pub fn products(library: &Arc<Self>, gemm: &Gemm, workspace: u64, wanted: u32) -> Call<Vec<PlannedProduct<WORDS>>> {
        let layouts = Rc::new(Layouts::new(library, gemm)?);
        let mut with = library.proposals(&layouts, gemm, workspace, wanted)?.into_iter();
        // Some products need a workspace. The library then rejects the second query, and the first list is used alone.
        let again = library.dialect.queries_without_workspace && wanted > 1;
        let without = if again { library.proposals(&layouts, gemm, 0, wanted).ok() } else { None };
        let mut without = without.unwrap_or_default().into_iter();
        let mut products: Vec<PlannedProduct<WORDS>> = Vec::new();
        // Alternate between the two lists, so that the best proposals of each are among those that will be timed.
        loop {
            let pair = [with.next(), without.next()];
            if pair.iter().all(Option::is_none) || products.len() >= wanted.max(1) as usize {
                break;
            }
            for proposal in pair.into_iter().flatten().filter(|proposal| proposal.state == 0) {
                if products.iter().all(|product| product.algorithm != proposal.algorithm) {
                    products.push(PlannedProduct {
                        layouts: layouts.clone(),
                        algorithm: proposal.algorithm,
                        workspace: proposal.workspace,
                        scalars: Scalars::of(gemm),
                    });
                }
            }
        }
        products.truncate(wanted.max(1) as usize);
        Ok(products)
    }

    /// Sets an attribute of a product. `T` is the type that the library's header gives for it.
    fn set<T: Copy>(&self, desc: Desc, field: c_int, value: &T) -> Call {
        // SAFETY: the value is valid for the call and has the stated size; the description is alive.
        let code = unsafe { (self.table.desc_set)(desc, field, std::ptr::from_ref(value).cast(), size_of::<T>()) };
        self.check(self.table.names.desc_set, code)
    }

    /// Sets the addresses of the scaling factors of `a` and `b`. The library's first operand is `b`.
    fn set_scales(&self, desc: Desc, [a, b]: [u64; 2]) -> Call {
        let [first, second] = self.dialect.scales;
        self.set(desc, first, &b)?;
        self.set(desc, second, &a)
    }

    /// Returns at most `wanted` proposals of the heuristic that use at most `workspace` bytes of memory.
    fn proposals(
        &self,
        layouts: &Layouts<WORDS>,
        gemm: &Gemm,
        workspace: u64,
        wanted: u32,
    ) -> Call<Vec<Proposal<WORDS>>> {
        let none = Proposal { algorithm: [0; WORDS], workspace: 0, state: -1, waves: 0.0, reserved: [0; 4] };
        let mut proposals = vec![none; wanted.max(1) as usize];
        let mut found = 0;
        let mut preference: Preference = std::ptr::null_mut();
        let table = &self.table;
        // SAFETY: every pointer is valid for its call and has the stated size; the preference is destroyed once.
        unsafe {
            self.check(table.names.preference_create, (table.preference_create)(&mut preference))?;
            let set = (self.dialect.preferences)(gemm, workspace).iter().try_for_each(|(field, value)| {
                let code = (table.preference_set)(preference, *field, value.as_ptr().cast(), value.len());
                self.check(table.names.preference_set, code)
            });
            let result = set.and_then(|()| {
                let code = (table.heuristic)(
                    self.handle,
                    layouts.desc,
                    layouts.a,
                    layouts.b,
                    layouts.c,
                    layouts.c,
                    preference,
                    proposals.len() as c_int,
                    proposals.as_mut_ptr().cast(),
                    &mut found,
                );
                self.check(table.names.heuristic, code)
            });
            (table.preference_destroy)(preference);
            result?;
        }
        proposals.truncate(found.max(0) as usize);
        Ok(proposals)
    }

    /// Creates the layout of a matrix that is row-major in memory and that the product uses as `rows` × `columns`.
    fn layout(&self, matrix: &Matrix, (rows, columns): (u64, u64), batch: u64) -> Call<Layout> {
        let BlasLt { table, dialect, .. } = self;
        let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
        let mut layout: Layout = std::ptr::null_mut();
        let dtype = element(matrix.dtype);
        // SAFETY: every pointer is valid for its call and has the stated size.
        unsafe {
            let code = (table.layout_create)(&mut layout, dtype, columns, rows, matrix.row as i64);
            self.check(table.names.layout_create, code)?;
            if batch > 1 {
                let count = batch as i32;
                let step = matrix.batch as i64;
                let [count_field, step_field] = dialect.batch;
                let count_code = (table.layout_set)(layout, count_field, (&raw const count).cast(), size_of::<i32>());
                let step_code = (table.layout_set)(layout, step_field, (&raw const step).cast(), size_of::<i64>());
                self.check(table.names.layout_set, count_code.max(step_code))?;
            }
        }
        Ok(layout)
    }
}

impl<const WORDS: usize> PlannedProduct<WORDS> {
    /// True if two products, whose sizes may differ, are computed by the same algorithm.
    pub fn same_algorithm(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm
    }

    /// Launches the product.
    ///
    /// # Safety
    ///
    /// The addresses are device memory that holds the operands, the workspace has at least the stated size, and the
    /// stream is alive.
    #[inline]
    pub unsafe fn multiply(&self, operands: Addresses, workspace: (u64, u64), stream: Stream) -> Call {
        let Addresses { a, b, c, bias, scales } = operands;
        let PlannedProduct { layouts, scalars, .. } = self;
        let library = &layouts.library;
        if bias != 0 {
            let [_, pointer, _] = library.dialect.epilogue;
            library.set(layouts.desc, pointer, &bias)?;
        }
        if scales != [0; 2] {
            library.set_scales(layouts.desc, scales)?;
        }
        let size = self.workspace.min(workspace.1 as usize);
        // SAFETY: the caller vouches for memory and stream; scalars and algorithm live in the product.
        let code = unsafe {
            (library.table.matmul)(
                library.handle,
                layouts.desc,
                scalars.alpha.as_ptr().cast(),
                b as *const c_void,
                layouts.a,
                a as *const c_void,
                layouts.b,
                scalars.beta.as_ptr().cast(),
                c as *const c_void,
                layouts.c,
                c as *mut c_void,
                layouts.c,
                self.algorithm.as_ptr(),
                workspace.0 as *mut c_void,
                size,
                stream,
            )
        };
        library.check(library.table.names.matmul, code)
    }
}

impl<const WORDS: usize> Layouts<WORDS> {
    /// Creates the descriptors. The library is column-major: a row-major matrix is its transpose there, and `c = a b`
    /// becomes `cᵀ = bᵀ aᵀ`. So the operands are swapped, and no transposition is added.
    fn new(library: &Arc<BlasLt<WORDS>>, gemm: &Gemm) -> Call<Self> {
        let mut layouts = Layouts {
            library: library.clone(),
            desc: std::ptr::null_mut(),
            a: std::ptr::null_mut(),
            b: std::ptr::null_mut(),
            c: std::ptr::null_mut(),
        };
        let BlasLt { table, dialect, .. } = library.as_ref();
        let compute = (dialect.arithmetic)(gemm.arithmetic);
        let scale = element(scale_type(gemm.arithmetic));
        // SAFETY: every pointer is valid for its call and has the stated size.
        unsafe {
            let code = (table.desc_create)(&mut layouts.desc, compute, scale);
            library.check(table.names.desc_create, code)?;
        }
        for (field, matrix) in dialect.transposes.into_iter().zip([&gemm.b, &gemm.a]) {
            library.set(layouts.desc, field, &dialect.operations[usize::from(matrix.transposed)])?;
        }
        if let Some(epilogue) = gemm.epilogue {
            let [function, pointer, bias_type] = dialect.epilogue;
            library.set(layouts.desc, function, &epilogue_number(epilogue))?;
            if epilogue.bias.is_some() {
                library.set(layouts.desc, bias_type, &element(gemm.c.dtype))?;
                // Each launch sets its own address. The heuristic only checks whether there is one.
                library.set(layouts.desc, pointer, &16u64)?;
            }
        }
        if let Some(scales) = gemm.scales {
            // Each launch sets its own addresses. The heuristic only checks whether there are any.
            library.set_scales(layouts.desc, [16; 2])?;
            if scales.form != ScaleForm::Tensor {
                let modes = dialect.scale_modes.into_iter().zip(scale_modes(scales.form));
                modes.into_iter().try_for_each(|(field, mode)| library.set(layouts.desc, field, &mode))?;
            }
        }
        layouts.a = library.layout(&gemm.b, (gemm.k, gemm.n), gemm.batch)?;
        layouts.b = library.layout(&gemm.a, (gemm.m, gemm.k), gemm.batch)?;
        layouts.c = library.layout(&gemm.c, (gemm.m, gemm.n), gemm.batch)?;
        Ok(layouts)
    }
}

/// Modes of the scaling factors of the library's first and second operand, which are `b` and `a`: values of
/// `cublasLtMatmulMatrixScale_t` and `hipblasLtMatmulMatrixScale_t`. cuBLAS supports those of blocks from 12.9 on.
fn scale_modes(form: ScaleForm) -> [c_int; 2] {
    const SCALAR: c_int = 0;
    const OUTER_VECTOR: c_int = 3;
    const VECTOR_OF_128: c_int = 4;
    const BLOCK_OF_128: c_int = 5;
    match form {
        ScaleForm::Tensor => [SCALAR; 2],
        ScaleForm::RowsAndColumns => [OUTER_VECTOR; 2],
        ScaleForm::Blocks => [BLOCK_OF_128, VECTOR_OF_128],
    }
}
