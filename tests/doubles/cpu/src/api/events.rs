//! Events.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use crate::device;
use crate::event::{EVENTS, Event};
use crate::status::INVALID_VALUE;
use crate::stream::STREAMS;

use super::hip;

type Handle = *mut c_void;

const DISABLE_TIMING: c_uint = 2;
/// Blocking waits, no timing, and the three kinds of fences, between which nothing differs here.
const KNOWN: c_uint = 1 | DISABLE_TIMING | 0x2000_0000 | 0x4000_0000 | 0x8000_0000;

hip! {
    fn hipEventCreate(to: *mut Handle) {
        to.write(EVENTS.add(Arc::new(Event::new(device::current(), true))));
        Ok(())
    }
    fn hipEventCreateWithFlags(to: *mut Handle, flags: c_uint) {
        if flags & !KNOWN != 0 { return Err(INVALID_VALUE) }
        device::get(device::current())?.check()?;
        to.write(EVENTS.add(Arc::new(Event::new(device::current(), flags & DISABLE_TIMING == 0))));
        Ok(())
    }
    fn hipEventDestroy(event: Handle) { EVENTS.remove(event).map(|_| ()) }
    fn hipEventRecord(event: Handle, stream: Handle) {
        let stream = STREAMS.get(stream)?;
        device::get(stream.device)?.check()?;
        stream.record(&EVENTS.get(event)?, false)
    }
    fn hipEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        if flags > 1 { return Err(INVALID_VALUE) }
        let stream = STREAMS.get(stream)?;
        device::get(stream.device)?.check()?;
        stream.record(&EVENTS.get(event)?, flags == 1)
    }
    fn hipEventQuery(event: Handle) {
        let event = EVENTS.get(event)?;
        device::get(event.device)?.check()?;
        event.query()
    }
    fn hipEventSynchronize(event: Handle) {
        let event = EVENTS.get(event)?;
        event.wait()?;
        device::get(event.device)?.check()
    }
    fn hipEventElapsedTime(milliseconds: *mut f32, from: Handle, to: Handle) {
        if milliseconds.is_null() { return Err(INVALID_VALUE) }
        let (from, to) = (EVENTS.get(from)?, EVENTS.get(to)?);
        device::get(from.device)?.check()?;
        milliseconds.write(Event::elapsed(&from, &to)?);
        Ok(())
    }
}
