//! cuBLASLt's function names and constants, for [`blas`].

use std::ffi::c_int;

use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtMatmulDescAttributes_t as DescField,
    cublasLtMatmulPreferenceAttributes_t as PreferenceField, cublasLtMatrixLayoutAttribute_t as LayoutField,
    cublasLtReductionScheme_t as Scheme,
};

use crate::backend::gpu::blas::{self, Dialect, Names, Setting};
use crate::backend::libraries::SearchPaths;
use crate::exec::ExecError;
use crate::ops::{self, Arithmetic, Gemm};

/// cuBLASLt, whose algorithm descriptor has eight 64-bit words.
pub type CublasLt = blas::BlasLt<8>;
/// A matrix product with a chosen algorithm of cuBLASLt.
pub type Product = blas::PlannedProduct<8>;

static DIALECT: Dialect = Dialect {
    names: Names {
        create: "cublasLtCreate",
        desc_create: "cublasLtMatmulDescCreate",
        desc_destroy: "cublasLtMatmulDescDestroy",
        desc_set: "cublasLtMatmulDescSetAttribute",
        layout_create: "cublasLtMatrixLayoutCreate",
        layout_destroy: "cublasLtMatrixLayoutDestroy",
        layout_set: "cublasLtMatrixLayoutSetAttribute",
        preference_create: "cublasLtMatmulPreferenceCreate",
        preference_destroy: "cublasLtMatmulPreferenceDestroy",
        preference_set: "cublasLtMatmulPreferenceSetAttribute",
        heuristic: "cublasLtMatmulAlgoGetHeuristic",
        matmul: "cublasLtMatmul",
    },
    status,
    arithmetic,
    operations: [0, 1],
    transposes: [DescField::CUBLASLT_MATMUL_DESC_TRANSA as c_int, DescField::CUBLASLT_MATMUL_DESC_TRANSB as c_int],
    batch: [
        LayoutField::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT as c_int,
        LayoutField::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET as c_int,
    ],
    epilogue: [
        DescField::CUBLASLT_MATMUL_DESC_EPILOGUE as c_int,
        DescField::CUBLASLT_MATMUL_DESC_BIAS_POINTER as c_int,
        DescField::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE as c_int,
    ],
    scales: [
        DescField::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER as c_int,
        DescField::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER as c_int,
    ],
    // CUBLASLT_MATMUL_DESC_A_SCALE_MODE and CUBLASLT_MATMUL_DESC_B_SCALE_MODE, from cuBLAS 12.8 on.
    scale_modes: [31, 32],
    preferences,
    queries_without_workspace: true,
};

fn status(code: c_int) -> &'static str {
    match code {
        1 => "the library is not initialised",
        3 => "an allocation failed",
        7 => "a value is invalid",
        8 => "the device lacks a feature",
        13 => "the execution failed",
        14 => "an internal error",
        15 => "not supported",
        _ => "see cublasStatus_t",
    }
}

fn arithmetic(arithmetic: Arithmetic) -> c_int {
    (match arithmetic {
        Arithmetic::F64 => Compute::CUBLAS_COMPUTE_64F,
        Arithmetic::I8 => Compute::CUBLAS_COMPUTE_32I,
        Arithmetic::Tf32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => Compute::CUBLAS_COMPUTE_32F,
    }) as c_int
}

fn preferences(gemm: &Gemm, workspace: u64) -> Vec<Setting> {
    use PreferenceField as Field;
    let mut all = vec![(Field::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace.to_le_bytes().to_vec())];
    // With split-k, several blocks each compute a partial sum. Keep the partial sums in the compute type: rounded to a
    // 16-bit result type, some products with one or two rows were wrong by 10 %.
    let schemes = match () {
        () if ops::loses_terms(gemm) => Some(Scheme::CUBLASLT_REDUCTION_SCHEME_NONE),
        () if gemm.c.dtype.size() < 4 => Some(Scheme::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE),
        () => None,
    };
    all.extend(
        schemes
            .map(|scheme| (Field::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (scheme as u32).to_le_bytes().to_vec())),
    );
    // The library is column-major, so A and B are swapped.
    let aligns = [
        (Field::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, gemm.b.align),
        (Field::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, gemm.a.align),
        (Field::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, gemm.c.align),
        (Field::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, gemm.c.align),
    ];
    all.extend(aligns.map(|(field, align)| (field, u32::from(align).to_le_bytes().to_vec())));
    all.into_iter().map(|(field, value)| (field as c_int, value)).collect()
}

/// Opens the library, preferably of the driver's major version.
pub fn open(paths: &SearchPaths, driver_major: i32) -> Result<CublasLt, ExecError> {
    let names = super::versioned("libcublasLt.so", driver_major);
    let opened = paths.open(&names).map_err(|why| {
        super::missing("cuBLASLt (libcublasLt)", "for matrix products", why, "pip install nvidia-cublas")
    })?;
    let mut library = CublasLt::open(&opened, &DIALECT)?;
    // SAFETY: the function has no parameters and returns a number.
    let version =
        unsafe { opened.find::<unsafe extern "C" fn() -> usize>("cublasLtGetVersion") }.map_or(0, |version| {
            // SAFETY: as above.
            unsafe { version() }
        });
    library.version = version.to_string();
    Ok(library)
}
