//! hipRTC, HIP's run-time compiler.
//!
//! Every version that was tested crashes the process if it is asked for an unknown architecture. Therefore the
//! architecture is looked up in the compiler's own list first.

use std::ffi::{CStr, c_char};

use crate::backend::gpu::rtc::{Compiler, Names};
use crate::backend::libraries::{NotOpened, OpenedLibrary, SearchPaths, functions};
use crate::exec::ExecError;
use crate::ops::{KernelSource, NotCompiled};

use super::driver::versioned;

static NAMES: Names = Names {
    version: "hiprtcVersion",
    create_program: "hiprtcCreateProgram",
    destroy_program: "hiprtcDestroyProgram",
    compile_program: "hiprtcCompileProgram",
    get_log_size: "hiprtcGetProgramLogSize",
    get_log: "hiprtcGetProgramLog",
    get_code_size: "hiprtcGetCodeSize",
    get_code: "hiprtcGetCode",
};

functions! {
    /// The code object manager (`libamd_comgr`), which hipRTC compiles with.
    Manager {
        count = amd_comgr_get_isa_count(*mut usize);
        name = amd_comgr_get_isa_name(usize, *mut *const c_char);
    }
}

/// Architectures that every compiler from 5.7 on supports. Used if a compiler's own list is not available.
const ALWAYS_SUPPORTED: [&str; 8] =
    ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1102"];

/// The opened compiler.
pub struct Hiprtc {
    compiler: Compiler,
    /// Architectures that the compiler supports.
    pub architectures: Vec<String>,
}

/// The name of an architecture, without the features that follow its first colon.
fn name(architecture: &str) -> &str {
    architecture.split(':').next().unwrap_or_default()
}

fn missing(why: NotOpened) -> ExecError {
    super::missing("hipRTC (libhiprtc)", "to compile kernels", "hip-runtime-amd", why)
}

impl Hiprtc {
    /// Opens the compiler, preferably of the runtime's major version `major`. Before 6.0, the runtime's own library can
    /// contain it. `device` is the architecture of a device that the runtime supports; the compiler then supports it as
    /// well.
    pub fn open(paths: &SearchPaths, major: Option<u32>, device: Option<&str>) -> Result<Hiprtc, ExecError> {
        let beside = paths.open(&versioned("libhiprtc", major));
        let opened = match beside {
            Ok(opened) => opened,
            Err(NotOpened::Absent) => paths.open(&versioned("libamdhip64", major)).map_err(missing)?,
            Err(broken) => return Err(missing(broken)),
        };
        let compiler = Compiler::open(&opened, &NAMES, missing)?;
        // A compiler without a list has the runtime's version, so it supports the runtime's device.
        let unsaid = || ALWAYS_SUPPORTED.into_iter().chain(device.map(name)).map(str::to_owned).collect();
        let architectures = known(paths).unwrap_or_else(unsaid);
        Ok(Hiprtc { compiler, architectures })
    }

    /// The library's path, or the name under which the loader found it.
    pub fn path(&self) -> &'static str {
        self.compiler.path
    }

    /// Major and minor version, such as `6.4`.
    pub fn version(&self) -> String {
        self.compiler.version_text()
    }

    /// True if the compiler supports an architecture, such as `gfx942:sramecc+:xnack-`.
    pub fn knows(&self, architecture: &str) -> bool {
        self.architectures.iter().any(|known| known == name(architecture))
    }

    /// Compiles to machine code for `architecture`. The error is the compiler's log.
    pub fn compile(&self, source: &KernelSource, architecture: &str) -> Result<Vec<u8>, NotCompiled> {
        if !self.knows(architecture) {
            return Err(NotCompiled::NoCompiler(format!(
                "hipRTC {} does not support {architecture}; it supports {}",
                self.version(),
                self.architectures.join(", ")
            )));
        }
        let options = [format!("--offload-arch={architecture}"), "-std=c++17".to_owned()];
        self.compiler.compile(source, "hip", &options)
    }
}

/// Architectures that the code object manager supports; `None` if it returns no list.
fn known(paths: &SearchPaths) -> Option<Vec<String>> {
    let names = ["libamd_comgr.so.4", "libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so"].map(str::to_owned);
    let opened: OpenedLibrary = paths.open(&names).ok()?;
    let manager = Manager::load(&opened).ok()?;
    let mut count = 0;
    // SAFETY: the output pointer is valid for the call.
    if unsafe { (manager.count)(&mut count) } != 0 {
        return None;
    }
    let mut found = Vec::new();
    for index in 0..count {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the output pointer is valid for the call; the text, if any, is a constant of the library.
        let name = unsafe {
            match (manager.name)(index, &mut name) {
                0 if !name.is_null() => CStr::from_ptr(name).to_string_lossy().into_owned(),
                _ => continue,
            }
        };
        // The name has the form `amdgcn-amd-amdhsa--gfx942`.
        found.extend(name.rsplit_once("--").map(|(_, architecture)| architecture.to_owned()));
    }
    (!found.is_empty()).then_some(found)
}
