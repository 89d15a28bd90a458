//! cuDNN's functions for graphs of operations, its status codes, and its numbers of element types.

use std::ffi::{c_char, c_int, c_void};

use crate::backend::gpu::Call;
use crate::backend::libraries::{OpenedLibrary, functions};
use crate::base::DType;
use crate::exec::{ExecError, Fault};

/// The library's handle, bound to a device and a stream.
pub type Handle = *mut c_void;
/// A descriptor of the library, such as of a tensor, an operation, an engine or a graph.
pub type Desc = *mut c_void;

functions! {
    /// Functions of the library.
    Functions {
        create = cudnnBackendCreateDescriptor(c_int, *mut Desc);
        destroy = cudnnBackendDestroyDescriptor(Desc);
        set = cudnnBackendSetAttribute(Desc, c_int, c_int, i64, *const c_void);
        get = cudnnBackendGetAttribute(Desc, c_int, c_int, i64, *mut i64, *mut c_void);
        finalize = cudnnBackendFinalize(Desc);
        execute = cudnnBackendExecute(Handle, Desc, Desc);
    }
}

/// Functions that describe and execute graphs.
pub struct GraphApi {
    pub functions: Functions,
    /// Returns a text about the calling thread's last error; `None` before cuDNN 9.
    last_error: Option<unsafe extern "C" fn(*mut c_char, usize)>,
}

impl GraphApi {
    /// Resolves the functions of the opened library.
    pub fn load(opened: &OpenedLibrary) -> Result<GraphApi, ExecError> {
        let functions = Functions::load(opened)?;
        // SAFETY: the type is that of the vendor's header.
        let last_error = unsafe { opened.find("cudnnGetLastErrorString") };
        Ok(GraphApi { functions, last_error })
    }

    /// Returns a fault with the library's last error if a call's status is not 0.
    #[inline]
    pub fn check(&self, call: &'static str, code: c_int) -> Call {
        if code == 0 { Ok(()) } else { Err(self.fault(call, code)) }
    }

    #[cold]
    fn fault(&self, call: &'static str, code: c_int) -> Box<Fault> {
        let mut text = [0u8; 512];
        if let Some(last_error) = self.last_error {
            // SAFETY: the buffer has the stated size.
            unsafe { last_error(text.as_mut_ptr().cast(), text.len()) };
        }
        let end = text.iter().position(|byte| *byte == 0 || *byte == b'\n').unwrap_or(text.len());
        let text = String::from_utf8_lossy(&text[..end]);
        let message = if text.is_empty() { status(code).to_owned() } else { format!("{}: {text}", status(code)) };
        Box::new(Fault { call, code: i64::from(code), message, late: false })
    }
}

/// Describes a status code in words.
pub fn status(code: c_int) -> &'static str {
    match code {
        // Versions before 9 have the smaller numbers.
        3 | 2000..3000 => "a parameter is invalid",
        9 | 3000..4000 => "not supported",
        4 | 4000..5000 => "an internal error",
        8 | 5000..6000 => "the execution failed",
        _ => "see cudnnStatus_t",
    }
}

/// The library's number of an element type (`cudnnDataType_t`). Types without a number get that of `f32`.
pub fn element(dtype: DType) -> c_int {
    match dtype {
        DType::F64 => 1,
        DType::F16 => 2,
        DType::BF16 => 9,
        _ => 0,
    }
}
