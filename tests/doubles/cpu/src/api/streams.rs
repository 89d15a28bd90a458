//! Streams, and the beginning and end of captures.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use crate::capture::{Capture, Mode};
use crate::device;
use crate::event::EVENTS;
use crate::fault;
use crate::graph::GRAPHS;
use crate::profiler::Work;
use crate::status::{CAPTURE_UNMATCHED, INVALID_VALUE, NOT_READY, NOT_SUPPORTED};
use crate::stream::{STREAMS, Stream, Task};

use super::{hip, unsupported};

type Handle = *mut c_void;

/// True if masks are stored and returned. They have no effect.
fn masks() -> bool {
    std::env::var_os("HIP_DOUBLE_MASKS").is_some_and(|value| value == "1")
}

hip! {
    fn hipStreamCreate(to: *mut Handle) {
        device::get(device::current())?.check()?;
        to.write(STREAMS.add(Stream::start(device::current(), 0)));
        Ok(())
    }
    fn hipStreamCreateWithFlags(to: *mut Handle, flags: c_uint) {
        if flags > 1 { return Err(INVALID_VALUE) }
        device::get(device::current())?.check()?;
        to.write(STREAMS.add(Stream::start(device::current(), 0)));
        Ok(())
    }
    fn hipStreamCreateWithPriority(to: *mut Handle, flags: c_uint, _priority: c_int) {
        if flags > 1 { return Err(INVALID_VALUE) }
        device::get(device::current())?.check()?;
        // A priority outside of the range is brought into it, and the range is one number.
        to.write(STREAMS.add(Stream::start(device::current(), 0)));
        Ok(())
    }
    fn hipStreamGetPriority(stream: Handle, priority: *mut c_int) {
        priority.write(STREAMS.get(stream)?.priority);
        Ok(())
    }
    fn hipStreamGetDevice(stream: Handle, index: *mut c_int) {
        index.write(STREAMS.get(stream)?.device);
        Ok(())
    }
    fn hipStreamDestroy(stream: Handle) {
        STREAMS.remove(stream)?.close();
        Ok(())
    }
    fn hipStreamQuery(stream: Handle) {
        let stream = STREAMS.get(stream)?;
        let idle = stream.idle()?;
        device::get(stream.device)?.check()?;
        if idle { Ok(()) } else { Err(NOT_READY) }
    }
    fn hipStreamSynchronize(stream: Handle) { STREAMS.get(stream)?.synchronize() }
    fn hipStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) {
        let stream = STREAMS.get(stream)?;
        device::get(stream.device)?.check()?;
        stream.wait(&*EVENTS.get(event)?)
    }
    fn hipExtStreamCreateWithCUMask(to: *mut Handle, words: c_uint, mask: *const c_uint) {
        if !masks() { return Err(NOT_SUPPORTED) }
        if words == 0 || mask.is_null() { return Err(INVALID_VALUE) }
        device::get(device::current())?.check()?;
        let mask = std::slice::from_raw_parts(mask, words as usize).to_vec();
        to.write(STREAMS.add(Stream::with_mask(device::current(), 0, mask)));
        Ok(())
    }
    fn hipExtStreamGetCUMask(stream: Handle, words: c_uint, mask: *mut c_uint) {
        if !masks() { return Err(NOT_SUPPORTED) }
        let stream = STREAMS.get(stream)?;
        let all = [(1u32 << device::UNITS) - 1];
        let own = if stream.mask.is_empty() { &all[..] } else { &stream.mask };
        if (words as usize) < own.len() { return Err(INVALID_VALUE) }
        mask.copy_from_nonoverlapping(own.as_ptr(), own.len());
        Ok(())
    }
    fn hipLaunchHostFunc(stream: Handle, function: unsafe extern "C" fn(*mut c_void), told: *mut c_void) {
        let stream = STREAMS.get(stream)?;
        device::get(stream.device)?.check()?;
        let told = told as usize;
        stream.issue(Task::of(Work::Host, move || {
            // SAFETY: whoever launched it said that it may be called so.
            unsafe { function(told as *mut c_void) };
            Ok(())
        }))
    }
    fn hipStreamBeginCapture(stream: Handle, mode: c_int) {
        let stream = STREAMS.get(stream)?;
        device::get(stream.device)?.check()?;
        let mode = match mode {
            0 => Mode::Global,
            1 => Mode::ThreadLocal,
            2 => Mode::Relaxed,
            _ => return Err(INVALID_VALUE),
        };
        if stream.capture().is_some() { return Err(CAPTURE_UNMATCHED) }
        Capture::begin(&stream, mode);
        Ok(())
    }
    fn hipStreamEndCapture(stream: Handle, graph: *mut Handle) {
        let stream = STREAMS.get(stream)?;
        graph.write(std::ptr::null_mut());
        let capture = stream.capture().ok_or(CAPTURE_UNMATCHED)?;
        // A capture that cannot be ended is over all the same.
        if fault::strikes("capture", "") | fault::strikes("call", "hipStreamEndCapture") { capture.invalidate() }
        let ended = capture.end(&stream)?;
        device::get(stream.device)?.check()?;
        graph.write(GRAPHS.add(Arc::new(ended)));
        Ok(())
    }
    fn hipStreamIsCapturing(stream: Handle, status: *mut c_int) {
        let capture = STREAMS.get(stream)?.capture();
        status.write(match capture {
            None => 0,
            Some(capture) if capture.invalid() => 2,
            Some(_) => 1,
        });
        Ok(())
    }
}

unsupported! {
    hipStreamAddCallback hipStreamWriteValue32
    hipStreamWaitValue32 hipThreadExchangeStreamCaptureMode hipStreamGetCaptureInfo_v2 hipStreamUpdateCaptureDependencies hipStreamBeginCaptureToGraph
}
