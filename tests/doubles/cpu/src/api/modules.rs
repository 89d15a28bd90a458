//! Modules, functions and launches.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::capture;
use crate::device::{self, SHARED};
use crate::fault;
use crate::kernel::{self, FUNCTIONS, Grid, MODULES, Module};
use crate::status::{CAPTURE_UNSUPPORTED, INVALID_VALUE, NOT_SUPPORTED};
use crate::stream::STREAMS;

use super::{hip, text, unsupported};

type Handle = *mut c_void;

/// `hipFunction_attribute`s.
const MAX_THREADS: c_int = 0;
const OWN_SHARED: c_int = 1;
const LOCAL: c_int = 3;
const REGISTERS: c_int = 4;
const MAX_DYNAMIC_SHARED: c_int = 8;

hip! {
    fn hipModuleLoadData(to: *mut Handle, image: *const c_void) {
        capture::forbid()?;
        device::get(device::current())?.check()?;
        to.write(MODULES.add(Arc::new(Module::load(image.cast())?)));
        Ok(())
    }
    fn hipModuleUnload(module: Handle) { MODULES.remove(module).map(|_| ()) }
    fn hipModuleGetFunction(to: *mut Handle, module: Handle, name: *const c_char) {
        let function = MODULES.get(module)?.function(&text(name))?;
        to.write(FUNCTIONS.add(Arc::new(function)));
        Ok(())
    }
    fn hipFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Handle) {
        FUNCTIONS.get(function)?;
        value.write(match attribute {
            MAX_THREADS => 1024,
            // Shared memory of a kernel's own is memory of the thread, and not counted.
            OWN_SHARED => 0,
            MAX_DYNAMIC_SHARED => SHARED,
            LOCAL => 0,
            REGISTERS => 32,
            _ => return Err(NOT_SUPPORTED),
        });
        Ok(())
    }
    fn hipFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) {
        FUNCTIONS.get(function)?;
        match attribute {
            MAX_DYNAMIC_SHARED if (0..=SHARED).contains(&value) => Ok(()),
            MAX_DYNAMIC_SHARED => Err(INVALID_VALUE),
            _ => Err(NOT_SUPPORTED),
        }
    }
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: Handle, _threads: c_int, _shared: usize,
    ) {
        FUNCTIONS.get(function)?;
        blocks.write(1);
        Ok(())
    }
    fn hipModuleLaunchKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        let (function, stream) = (FUNCTIONS.get(function)?, STREAMS.get(stream)?);
        device::get(stream.device)?.check()?;
        if !extra.is_null() { return Err(NOT_SUPPORTED) }
        if let Some(capture) = stream.capture()
            && fault::strikes("uncapturable", &function.name)
        {
            capture.invalidate();
            return Err(CAPTURE_UNSUPPORTED);
        }
        let grid = Grid { blocks: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        kernel::launch(&function, grid, &stream, params)
    }
}

unsupported! {
    hipModuleLaunchCooperativeKernel hipModuleGetGlobal hipModuleOccupancyMaxPotentialBlockSize hipModuleLoad
    hipModuleLoadDataEx
}
