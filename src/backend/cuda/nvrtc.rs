//! NVRTC, CUDA's run-time compiler.

use crate::backend::gpu::rtc::{Compiler, Names};
use crate::backend::libraries::SearchPaths;
use crate::exec::ExecError;
use crate::ops::{KernelSource, NotCompiled};

static NAMES: Names = Names {
    version: "nvrtcVersion",
    create_program: "nvrtcCreateProgram",
    destroy_program: "nvrtcDestroyProgram",
    compile_program: "nvrtcCompileProgram",
    get_log_size: "nvrtcGetProgramLogSize",
    get_log: "nvrtcGetProgramLog",
    get_code_size: "nvrtcGetCUBINSize",
    get_code: "nvrtcGetCUBIN",
};

/// The opened compiler.
pub struct Nvrtc(Compiler);

impl Nvrtc {
    /// Opens the compiler, preferably of the driver's major version.
    pub fn open(paths: &SearchPaths, driver_major: i32) -> Result<Nvrtc, ExecError> {
        let missing =
            |why| super::missing("NVRTC (libnvrtc)", "to compile kernels", why, "pip install nvidia-cuda-nvrtc");
        let opened = paths.open(&super::versioned("libnvrtc.so", driver_major)).map_err(missing)?;
        opened.open_beside("libnvrtc-builtins.so");
        Compiler::open(&opened, &NAMES, missing).map(Nvrtc)
    }

    /// Major and minor version, such as `13.0`.
    pub fn version(&self) -> String {
        self.0.version_text()
    }

    /// The library's path, or the name under which the loader found it.
    pub fn path(&self) -> &'static str {
        self.0.path
    }

    /// Compiles to machine code for `architecture`, such as `sm_90`. The error is the compiler's log.
    pub fn compile(&self, source: &KernelSource, architecture: &str) -> Result<Vec<u8>, NotCompiled> {
        self.0.compile(source, "cu", &[format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()])
    }
}
