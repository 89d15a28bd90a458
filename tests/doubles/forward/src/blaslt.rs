//! `libhipblaslt`, handed on to cuBLASLt: the functions are alike, the numbers of attributes and types are not.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::library::{self, table};

type Handle = *mut c_void;

/// cuBLASLt's algorithm, which is larger than hipBLASLt's.
type CudaAlgorithm = [u64; 8];

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CudaProposal {
    algorithm: CudaAlgorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// hipBLASLt's algorithm. Here it holds a mark, and where cuBLASLt's lies.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Algorithm {
    mark: [u8; 8],
    address: usize,
    most_workspace: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proposal {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const MARK: &[u8; 8] = b"hipdblfw";
const NAMES: [&str; 3] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];

table! {
    /// cuBLASLt's functions.
    CublasLt, NAMES, {
        create = "cublasLtCreate"(*mut Handle);
        destroy = "cublasLtDestroy"(Handle);
        desc_create = "cublasLtMatmulDescCreate"(*mut Handle, c_int, c_int);
        desc_destroy = "cublasLtMatmulDescDestroy"(Handle);
        desc_set = "cublasLtMatmulDescSetAttribute"(Handle, c_int, *const c_void, usize);
        layout_create = "cublasLtMatrixLayoutCreate"(*mut Handle, c_int, u64, u64, i64);
        layout_destroy = "cublasLtMatrixLayoutDestroy"(Handle);
        layout_set = "cublasLtMatrixLayoutSetAttribute"(Handle, c_int, *const c_void, usize);
        layout_get = "cublasLtMatrixLayoutGetAttribute"(Handle, c_int, *mut c_void, usize, *mut usize);
        preference_create = "cublasLtMatmulPreferenceCreate"(*mut Handle);
        preference_destroy = "cublasLtMatmulPreferenceDestroy"(Handle);
        preference_set = "cublasLtMatmulPreferenceSetAttribute"(Handle, c_int, *const c_void, usize);
        heuristic = "cublasLtMatmulAlgoGetHeuristic"(
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut CudaProposal, *mut c_int,
        );
        matmul = "cublasLtMatmul"(
            Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void, *const c_void,
            Handle, *mut c_void, Handle, *const CudaAlgorithm, *mut c_void, usize, Handle,
        );
    }
}

/// `hipblasStatus_t`.
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 3;
const NOT_SUPPORTED: c_int = 7;

/// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`, behind which those of the other operands follow.
const MIN_ALIGNMENT_A: c_int = 5;

/// Bytes of a layout's elements.
///
/// # Safety
/// The layout is alive.
unsafe fn element_bytes(library: &CublasLt, layout: Handle) -> u32 {
    /// `CUBLASLT_MATRIX_LAYOUT_TYPE`.
    const TYPE: c_int = 0;
    let (mut element, mut written) = (0 as c_int, 0);
    // SAFETY: the output pointers are valid for the call, and of the size that is told.
    unsafe { (library.layout_get)(layout, TYPE, (&raw mut element).cast(), size_of::<c_int>(), &mut written) };
    match element {
        1 => 8,
        2 | 14 => 2,
        3 | 28 | 29 => 1,
        _ => 4,
    }
}

/// hipBLAS's status for cuBLAS's.
fn status(code: c_int) -> c_int {
    match code {
        0 => 0,
        1 => NOT_INITIALIZED,
        3 => 2,
        7 => INVALID_VALUE,
        8 => 8,
        11 => 4,
        13 => 5,
        14 => 6,
        15 => NOT_SUPPORTED,
        _ => 11,
    }
}

macro_rules! blas {
    ($(fn $name:ident($library:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                let Some($library) = CublasLt::get() else { return NOT_INITIALIZED };
                // SAFETY: the caller keeps to the header, as the crate says.
                unsafe { $body }
            }
        )*
    };
}

blas! {
    fn hipblasLtCreate(library, to: *mut Handle) { status((library.create)(to)) }
    fn hipblasLtDestroy(library, handle: Handle) { status((library.destroy)(handle)) }
    fn hipblasLtMatrixLayoutCreate(
        library, to: *mut Handle, element: c_int, rows: u64, columns: u64, leading: i64,
    ) {
        // f32, f64, f16, i8, i32, bf16, e4m3 and e5m2 have the same numbers in both.
        match element {
            0 | 1 | 2 | 3 | 10 | 14 | 28 | 29 => status((library.layout_create)(to, element, rows, columns, leading)),
            _ => NOT_SUPPORTED,
        }
    }
    fn hipblasLtMatrixLayoutDestroy(library, layout: Handle) { status((library.layout_destroy)(layout)) }
    fn hipblasLtMatrixLayoutSetAttribute(
        library, layout: Handle, attribute: c_int, value: *const c_void, size: usize,
    ) {
        // The count and the stride of a batch.
        match attribute {
            0 | 1 => status((library.layout_set)(layout, attribute + 5, value, size)),
            _ => NOT_SUPPORTED,
        }
    }
    fn hipblasLtMatmulDescCreate(library, to: *mut Handle, compute: c_int, scale: c_int) {
        let compute = match compute {
            2 => 68,
            6 => 77,
            7 => 70,
            9 => 72,
            _ => return NOT_SUPPORTED,
        };
        status((library.desc_create)(to, compute, scale))
    }
    fn hipblasLtMatmulDescDestroy(library, desc: Handle) { status((library.desc_destroy)(desc)) }
    fn hipblasLtMatmulDescSetAttribute(library, desc: Handle, attribute: c_int, value: *const c_void, size: usize) {
        // The epilogue with the address of its bias, whose numbers of types and functions are the same in both.
        match attribute {
            2 => return status((library.desc_set)(desc, 7, value, size)),
            3 => return status((library.desc_set)(desc, 8, value, size)),
            4 => return status((library.desc_set)(desc, 26, value, size)),
            // Factors of 8-bit matrices, and what they belong to.
            5 | 6 => return status((library.desc_set)(desc, attribute + 12, value, size)),
            31 | 32 => return status((library.desc_set)(desc, attribute, value, size)),
            _ => {}
        }
        if value.is_null() || size != size_of::<c_int>() || !matches!(attribute, 0 | 1) {
            return NOT_SUPPORTED;
        }
        // HIPBLAS_OP_N, _T and _C follow each other as CUBLAS_OP_N, _T and _C do.
        let operation = value.cast::<c_int>().read_unaligned() - 111;
        status((library.desc_set)(desc, attribute + 3, (&raw const operation).cast(), size))
    }
    fn hipblasLtMatmulPreferenceCreate(library, to: *mut Handle) {
        status((library.preference_create)(to))
    }
    fn hipblasLtMatmulPreferenceDestroy(library, preference: Handle) { status((library.preference_destroy)(preference)) }
    fn hipblasLtMatmulPreferenceSetAttribute(
        library, preference: Handle, attribute: c_int, value: *const c_void, size: usize,
    ) {
        // The workspace's size has the same number in both.
        match attribute {
            1 => status((library.preference_set)(preference, attribute, value, size)),
            _ => NOT_SUPPORTED,
        }
    }
    fn hipblasLtMatmulAlgoGetHeuristic(
        library, handle: Handle, desc: Handle, a: Handle, b: Handle, c: Handle, d: Handle, preference: Handle,
        wanted: c_int, proposals: *mut Proposal, found: *mut c_int,
    ) {
        let none = CudaProposal { algorithm: [0; 8], workspace: 0, state: -1, waves: 0.0, reserved: [0; 4] };
        let mut cuda = vec![none; wanted.max(1) as usize];
        // hipBLASLt is told nothing of alignment: an operand may lie wherever an element may.
        for (attribute, layout) in (MIN_ALIGNMENT_A..).zip([a, b, c, d]) {
            let bytes = element_bytes(library, layout);
            (library.preference_set)(preference, attribute, (&raw const bytes).cast(), size_of::<u32>());
        }
        let code = (library.heuristic)(handle, desc, a, b, c, d, preference, wanted, cuda.as_mut_ptr(), found);
        if code != 0 {
            return status(code);
        }
        for (index, from) in cuda.iter().take((*found).max(0) as usize).enumerate() {
            // A description may live as long as the process does, and so does what it stands for.
            let address = std::ptr::from_ref(Box::leak(Box::new(from.algorithm))) as usize;
            let algorithm = Algorithm { mark: *MARK, address, most_workspace: from.workspace };
            let CudaProposal { workspace, waves, .. } = *from;
            let proposal = Proposal { algorithm, workspace, state: status(from.state), waves, reserved: [0; 4] };
            proposals.add(index).write(proposal);
        }
        0
    }
    fn hipblasLtMatmul(
        library, handle: Handle, desc: Handle, alpha: *const c_void, a: *const c_void, a_layout: Handle,
        b: *const c_void, b_layout: Handle, beta: *const c_void, c: *const c_void, c_layout: Handle, d: *mut c_void,
        d_layout: Handle, algorithm: *const Algorithm, workspace: *mut c_void, bytes: usize, stream: Handle,
    ) {
        let algorithm = match algorithm.as_ref() {
            None => std::ptr::null(),
            Some(algorithm) if algorithm.mark == *MARK => algorithm.address as *const CudaAlgorithm,
            Some(_) => return INVALID_VALUE,
        };
        status((library.matmul)(
            handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace, bytes,
            stream,
        ))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtGetVersion(_handle: Handle, version: *mut c_int) -> c_int {
    type Version = unsafe extern "C" fn() -> usize;
    static FOUND: OnceLock<usize> = OnceLock::new();
    let find = || {
        // SAFETY: the type is that of the vendor's header, and the function takes nothing.
        let function = unsafe { library::open(&NAMES)?.get::<Version>(b"cublasLtGetVersion").ok().map(|found| *found) };
        // SAFETY: as above.
        function.map(|function| unsafe { function() })
    };
    let number = *FOUND.get_or_init(|| find().unwrap_or(0));
    // SAFETY: the output pointer is valid for the call.
    unsafe { version.write(number as c_int) };
    0
}
