//! The double, opened as a backend opens it.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

use aorta::ops::{Arg, Kernel, KernelSource};
use libloading::Library;

use super::doubles;

pub type Stream = *mut c_void;
pub type Event = *mut c_void;
pub type Graph = *mut c_void;
pub type Function = *mut c_void;

/// Declares the functions that tests call, each resolved by its name.
macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "names and prototypes are the vendor's")]
        impl Hip {
            $(
                pub fn $name(&self, $($arg: $type),*) -> c_int {
                    // SAFETY: the type is that of the vendor's header, and tests keep to what it says.
                    unsafe {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        let function = self.0.get::<unsafe extern "C" fn($($type),*) -> c_int>(name);
                        function.expect(stringify!($name))($($arg),*)
                    }
                }
            )*
        }
    };
}

/// The library stays open, since its threads keep running.
pub struct Hip(&'static Library);

functions! {
    hipInit(flags: c_uint);
    hipSetDevice(index: c_int);
    hipDeviceGetName(name: *mut c_char, size: c_int, index: c_int);
    hipDeviceSynchronize();
    hipGetLastError();
    hipMalloc(to: *mut *mut c_void, bytes: usize);
    hipFree(address: *mut c_void);
    hipHostMalloc(to: *mut *mut c_void, bytes: usize, flags: c_uint);
    hipMemcpyHtoDAsync(to: *mut c_void, from: *const c_void, bytes: usize, stream: Stream);
    hipMemcpyDtoHAsync(to: *mut c_void, from: *mut c_void, bytes: usize, stream: Stream);
    hipMemcpyDtoDAsync(to: *mut c_void, from: *mut c_void, bytes: usize, stream: Stream);
    hipMemcpy2DAsync(
        to: *mut c_void, target_pitch: usize, from: *const c_void, source_pitch: usize, width: usize, height: usize,
        kind: c_uint, stream: Stream
    );
    hipMemsetAsync(to: *mut c_void, value: c_int, bytes: usize, stream: Stream);
    hipStreamCreateWithPriority(to: *mut Stream, flags: c_uint, priority: c_int);
    hipStreamDestroy(stream: Stream);
    hipStreamQuery(stream: Stream);
    hipStreamSynchronize(stream: Stream);
    hipStreamWaitEvent(stream: Stream, event: Event, flags: c_uint);
    hipStreamBeginCapture(stream: Stream, mode: c_uint);
    hipStreamEndCapture(stream: Stream, graph: *mut Graph);
    hipExtStreamCreateWithCUMask(to: *mut Stream, words: u32, mask: *const u32);
    hipEventCreateWithFlags(to: *mut Event, flags: c_uint);
    hipEventRecord(event: Event, stream: Stream);
    hipEventQuery(event: Event);
    hipEventElapsedTime(milliseconds: *mut f32, from: Event, to: Event);
    hipModuleLoadData(to: *mut *mut c_void, image: *const c_void);
    hipModuleGetFunction(to: *mut Function, module: *mut c_void, name: *const c_char);
    hipModuleLaunchKernel(
        function: Function, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Stream, params: *mut *mut c_void, extra: *mut *mut c_void
    );
    hipGraphInstantiateWithFlags(to: *mut Graph, graph: Graph, flags: u64);
    hipGraphLaunch(exec: Graph, stream: Stream);
    hiprtcVersion(major: *mut c_int, minor: *mut c_int);
    hiprtcCreateProgram(
        to: *mut *mut c_void, source: *const c_char, name: *const c_char, headers: c_int, texts: *const *const c_char,
        names: *const *const c_char
    );
    hiprtcCompileProgram(program: *mut c_void, count: c_int, options: *const *const c_char);
    hiprtcGetProgramLogSize(program: *mut c_void, size: *mut usize);
    hiprtcGetProgramLog(program: *mut c_void, log: *mut c_char);
    hiprtcGetCodeSize(program: *mut c_void, size: *mut usize);
    hiprtcGetCode(program: *mut c_void, code: *mut c_char);
    hiprtcDestroyProgram(program: *mut *mut c_void);
    ncclGetUniqueId(id: *mut [u8; 128]);
    ncclCommInitRank(to: *mut *mut c_void, ranks: c_int, id: [u8; 128], rank: c_int);
    ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, element: c_int, op: c_int, comm: *mut c_void, stream: Stream
    );
    ncclSend(from: *const c_void, count: usize, element: c_int, peer: c_int, comm: *mut c_void, stream: Stream);
    ncclRecv(to: *mut c_void, count: usize, element: c_int, peer: c_int, comm: *mut c_void, stream: Stream);
    ncclGroupStart();
    ncclGroupEnd();
}

/// Checks that a call has succeeded.
#[track_caller]
pub fn good(code: c_int) {
    assert_eq!(code, 0);
}

impl Hip {
    /// Opens the double; `None` with a message if it cannot be built.
    pub fn open() -> Option<Hip> {
        let hip = Hip::load_from(doubles::cpu()?);
        good(hip.hipInit(0));
        Some(hip)
    }

    /// The double in a folder, as it is before anything is called.
    pub fn load_from(folder: &Path) -> Hip {
        // SAFETY: the library is one of this repository.
        let library = unsafe { Library::new(folder.join("libamdhip64.so")) };
        Hip(Box::leak(Box::new(library.unwrap_or_else(|error| panic!("{error}")))))
    }

    pub fn stream(&self) -> Stream {
        let mut stream = std::ptr::null_mut();
        good(self.hipStreamCreateWithPriority(&mut stream, 1, 0));
        stream
    }

    pub fn event(&self) -> Event {
        let mut event = std::ptr::null_mut();
        good(self.hipEventCreateWithFlags(&mut event, 0));
        event
    }

    pub fn memory(&self, bytes: usize) -> *mut c_void {
        let mut address = std::ptr::null_mut();
        good(self.hipMalloc(&mut address, bytes));
        address
    }

    pub fn pinned(&self, bytes: usize) -> *mut c_void {
        let mut address = std::ptr::null_mut();
        good(self.hipHostMalloc(&mut address, bytes, 0));
        address
    }

    /// The code of a kernel, or the compiler's log.
    pub fn compile(&self, source: &KernelSource, architecture: &str) -> Result<Vec<u8>, String> {
        let text = CString::new(source.text.as_str()).expect("a text without NUL");
        let option = CString::new(format!("--offload-arch={architecture}")).expect("a text without NUL");
        let options = [option.as_ptr()];
        let (mut program, mut size) = (std::ptr::null_mut(), 0);
        let none = std::ptr::null();
        good(self.hiprtcCreateProgram(&mut program, text.as_ptr(), c"kernel".as_ptr(), 0, none, none));
        let compiled = match self.hiprtcCompileProgram(program, 1, options.as_ptr()) {
            0 => {
                good(self.hiprtcGetCodeSize(program, &mut size));
                let mut code = vec![0u8; size];
                good(self.hiprtcGetCode(program, code.as_mut_ptr().cast()));
                Ok(code)
            }
            _ => {
                good(self.hiprtcGetProgramLogSize(program, &mut size));
                let mut log = vec![0u8; size];
                good(self.hiprtcGetProgramLog(program, log.as_mut_ptr().cast()));
                Err(String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned())
            }
        };
        good(self.hiprtcDestroyProgram(&mut program));
        compiled
    }

    pub fn load(&self, source: &KernelSource) -> Function {
        let code = self.compile(source, "gfx000").unwrap_or_else(|log| panic!("{}:\n{log}", source.name));
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        good(self.hipModuleLoadData(&mut module, code.as_ptr().cast()));
        let name = CString::new(source.name.as_str()).expect("a name without NUL");
        good(self.hipModuleGetFunction(&mut function, module, name.as_ptr()));
        function
    }

    /// Launches a kernel of the program; what the call returned.
    pub fn launch(&self, function: Function, kernel: &Kernel, operands: &[*mut c_void], stream: Stream) -> c_int {
        let mut values: Vec<Vec<u64>> = kernel.args.iter().map(|arg| words(arg, operands)).collect();
        let mut params: Vec<*mut c_void> = values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        let ([x, y, z], [i, j, k]) = (kernel.grid.map(|blocks| blocks as u32), kernel.block);
        let extra = std::ptr::null_mut();
        self.hipModuleLaunchKernel(function, x, y, z, i, j, k, 0, stream, params.as_mut_ptr(), extra)
    }
}

fn words(arg: &Arg, operands: &[*mut c_void]) -> Vec<u64> {
    match arg {
        Arg::Operand(index) => vec![operands[*index as usize] as u64],
        Arg::U32(value) => vec![u64::from(*value)],
        Arg::U64(value) => vec![*value],
        Arg::F32(value) => vec![u64::from(value.to_bits())],
        Arg::F64(value) => vec![value.to_bits()],
        // The device's clock has a hundred ticks in a microsecond.
        Arg::Ticks(time) => vec![time.0 as u64 / 10],
        Arg::Words(words) => words.clone(),
        Arg::Workspace(_) | Arg::WorkspaceAt { .. } | Arg::TensorMap(_) => {
            unreachable!("no kernel of these tests has a workspace or a tensor map")
        }
    }
}
