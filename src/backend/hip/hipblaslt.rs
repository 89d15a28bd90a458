//! hipBLASLt's function names and constants, for `gpu::blas`.

use std::ffi::c_int;

use crate::backend::gpu::blas::{self, Dialect, Handle, Names, Setting};
use crate::backend::libraries::{NotOpened, SearchPaths, functions};
use crate::exec::ExecError;
use crate::ops::{Arithmetic, Gemm};

/// hipBLASLt, whose algorithm descriptor has three 64-bit words.
pub type HipblasLt = blas::BlasLt<3>;
/// A matrix product with a chosen algorithm of hipBLASLt.
pub type Product = blas::PlannedProduct<3>;

/// Oldest supported version, 0.6, which is part of ROCm 6.0. Earlier versions have other numbers for element and
/// compute types.
const OLDEST: c_int = 600;

static DIALECT: Dialect = Dialect {
    names: Names {
        create: "hipblasLtCreate",
        desc_create: "hipblasLtMatmulDescCreate",
        desc_destroy: "hipblasLtMatmulDescDestroy",
        desc_set: "hipblasLtMatmulDescSetAttribute",
        layout_create: "hipblasLtMatrixLayoutCreate",
        layout_destroy: "hipblasLtMatrixLayoutDestroy",
        layout_set: "hipblasLtMatrixLayoutSetAttribute",
        preference_create: "hipblasLtMatmulPreferenceCreate",
        preference_destroy: "hipblasLtMatmulPreferenceDestroy",
        preference_set: "hipblasLtMatmulPreferenceSetAttribute",
        heuristic: "hipblasLtMatmulAlgoGetHeuristic",
        matmul: "hipblasLtMatmul",
    },
    status,
    arithmetic,
    // HIPBLAS_OP_N and HIPBLAS_OP_T.
    operations: [111, 112],
    // HIPBLASLT_MATMUL_DESC_TRANSA and HIPBLASLT_MATMUL_DESC_TRANSB.
    transposes: [0, 1],
    // HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT and HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET.
    batch: [0, 1],
    // HIPBLASLT_MATMUL_DESC_EPILOGUE, HIPBLASLT_MATMUL_DESC_BIAS_POINTER and HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE.
    epilogue: [2, 3, 4],
    // HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER and HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER, and their modes.
    scales: [5, 6],
    scale_modes: [31, 32],
    preferences,
    queries_without_workspace: false,
};

functions! {
    /// The version function, which has another signature than cuBLASLt's.
    Versions {
        version = hipblasLtGetVersion(Handle, *mut c_int);
    }
}

fn status(code: c_int) -> &'static str {
    match code {
        1 => "the library is not initialised",
        2 => "an allocation failed",
        3 => "a value is invalid",
        5 => "the execution failed",
        6 => "an internal error",
        7 => "not supported",
        8 => "not for this architecture",
        _ => "see hipblasStatus_t",
    }
}

/// Returns the value of a type of arithmetic in `hipblasComputeType_t`.
fn arithmetic(arithmetic: Arithmetic) -> c_int {
    match arithmetic {
        Arithmetic::F64 => 7,
        Arithmetic::Tf32 => 6,
        Arithmetic::I8 => 9,
        _ => 2,
    }
}

fn preferences(_: &Gemm, workspace: u64) -> Vec<Setting> {
    /// HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES.
    const WORKSPACE: c_int = 1;
    vec![(WORKSPACE, workspace.to_le_bytes().to_vec())]
}

/// Formats a version, such as `1.1.0`.
fn text(version: c_int) -> String {
    format!("{}.{}.{}", version / 100_000, version / 100 % 1000, version % 100)
}

/// Opens the library with a handle on the current device.
pub fn open(paths: &SearchPaths) -> Result<HipblasLt, ExecError> {
    let names = ["libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"].map(str::to_owned);
    let missing = |why| super::missing("hipBLASLt (libhipblaslt)", "for matrix products", "hipblaslt", why);
    let opened = paths.open(&names).map_err(missing)?;
    let versions = Versions::load(&opened)?;
    let mut library = HipblasLt::open(&opened, &DIALECT)?;
    let mut version = 0;
    // SAFETY: the handle is the library's, and the output pointer is valid for the call.
    let code = unsafe { (versions.version)(library.handle, &mut version) };
    blas::check("hipblasLtGetVersion", code, status).map_err(ExecError::device)?;
    if version < OLDEST {
        return Err(missing(NotOpened::Broken(format!("version {} is older than 0.6", text(version)))));
    }
    library.version = text(version);
    Ok(library)
}
