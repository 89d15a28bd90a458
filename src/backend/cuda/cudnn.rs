//! The library cuDNN, and the handle with which graphs of its operations are compiled and executed.

use std::ffi::{c_int, c_void};

use crate::backend::gpu::Call;
use crate::backend::gpu::blas::check;
use crate::backend::gpu::runtime::Stream;
use crate::backend::libraries::{SearchPaths, functions};
use crate::exec::ExecError;

use super::cudnn_api::{Desc, GraphApi, Handle, status};

functions! {
    /// Functions of the library besides those for graphs.
    Table {
        create = cudnnCreate(*mut Handle);
        set_stream = cudnnSetStream(Handle, Stream);
        tensor_create = cudnnCreateTensorDescriptor(*mut Desc);
        tensor_set = cudnnSetTensorNdDescriptor(Desc, c_int, c_int, *const c_int, *const c_int);
        tensor_destroy = cudnnDestroyTensorDescriptor(Desc);
        add = cudnnAddTensor(
            Handle, *const c_void, Desc, *const c_void, *const c_void, Desc, *mut c_void,
        );
    }
}

/// The open library, with a handle for the device that was current.
pub struct Cudnn {
    pub table: Table,
    /// Functions for graphs of operations.
    pub graphs: GraphApi,
    /// The library's handle, by which all graphs are compiled and executed.
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

impl Cudnn {
    /// Opens the newest cuDNN of major version 9 or 8.
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

    /// Binds the handle to a stream.
    ///
    /// # Safety
    ///
    /// The stream is alive.
    pub unsafe fn use_stream(&self, stream: Stream) -> Call {
        // SAFETY: the caller vouches for the stream.
        check("cudnnSetStream", unsafe { (self.table.set_stream)(self.handle, stream) }, status)
    }
}
