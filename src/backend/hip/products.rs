//! Matrix products by hipBLASLt, or by rocBLAS if hipBLASLt is missing or has no algorithm.

use std::sync::Arc;

use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Addresses, Call};
use crate::exec::ExecError;
use crate::ops::{Arithmetic, Gemm};

use super::Hip;
use super::hipblaslt::{self, HipblasLt};
use super::rocblas::{self, RocBlas};

/// A product that is ready to be launched by one of the two libraries.
pub enum Product {
    Lt(hipblaslt::Product),
    Roc(rocblas::PreparedProduct),
}

impl Hip {
    /// hipBLASLt, or the reason why it cannot be used.
    pub(super) fn hipblaslt(&self) -> Result<&Arc<HipblasLt>, ExecError> {
        let opened = self.hipblaslt.get_or_init(|| hipblaslt::open(&self.paths).map(Arc::new));
        opened.as_ref().map_err(Clone::clone)
    }

    /// rocBLAS, or the reason why it cannot be used.
    pub(super) fn rocblas(&self) -> Result<&Arc<RocBlas>, ExecError> {
        let opened = self.rocblas.get_or_init(|| RocBlas::open(&self.paths).map(Arc::new));
        opened.as_ref().map_err(Clone::clone)
    }

    /// Returns up to `wanted` algorithms for a product, the most promising first. rocBLAS has none for products with an
    /// epilogue or of 8-bit types.
    pub(super) fn algorithms(&self, gemm: &Gemm, workspace: u64, wanted: u32) -> Result<Vec<Product>, ExecError> {
        let why = match self.hipblaslt() {
            Ok(library) => match HipblasLt::products(library, gemm, workspace, wanted) {
                Ok(products) if !products.is_empty() => return Ok(products.into_iter().map(Product::Lt).collect()),
                Ok(_) => "hipBLASLt has no algorithm for it".to_owned(),
                Err(fault) => fault.to_string(),
            },
            Err(error) => error.to_string(),
        };
        if gemm.epilogue.is_some() || matches!(gemm.arithmetic, Arithmetic::F8 | Arithmetic::I8) {
            return Ok(Vec::new());
        }
        let library = self.rocblas()?;
        let arithmetic = if gemm.arithmetic == Arithmetic::Tf32 { ", in f32 instead of tf32" } else { "" };
        let Gemm { m, n, k, .. } = gemm;
        self.note(format!("product [{m}, {k}] × [{k}, {n}]: by rocBLAS{arithmetic}, since {why}"));
        Ok(RocBlas::product(library, gemm).map(Product::Roc).into_iter().collect())
    }
}

impl Product {
    /// True if two products, whose sizes may differ, are computed by the same algorithm.
    pub fn same_algorithm(&self, other: &Self) -> bool {
        match (self, other) {
            (Product::Lt(one), Product::Lt(other)) => one.same_algorithm(other),
            // rocBLAS chooses its algorithm itself.
            (Product::Roc(_), Product::Roc(_)) => true,
            _ => false,
        }
    }

    /// Launches the product.
    ///
    /// # Safety
    ///
    /// As for `Api::multiply`.
    #[inline]
    pub unsafe fn multiply(&self, operands: Addresses, workspace: (u64, u64), stream: Stream) -> Call {
        match self {
            // SAFETY: the caller vouches for memory and stream.
            Product::Lt(product) => unsafe { product.multiply(operands, workspace, stream) },
            // SAFETY: as above, and only this thread uses the device.
            Product::Roc(product) => unsafe { product.multiply(operands, workspace, stream) },
        }
    }
}
