//! Events: recorded on a stream, waited for by streams or by the host, and timed by the simulated clock.

use super::{put, status};
use crate::error::{SimError, code};
use crate::signal::Signal;
use crate::{acl, event};
use std::ffi::c_void;

/// Writes what was found out, or reports why it was not.
///
/// # Safety
/// `out` is null or can be written to.
unsafe fn answer<T>(name: &str, out: *mut T, found: Result<T, SimError>) -> i32 {
    match found {
        // SAFETY: the caller's promise.
        Ok(value) => unsafe { put(name, out, value) },
        Err(error) => status(name, Err(error)),
    }
}

fn elapsed(start: *mut c_void, end: *mut c_void) -> Result<f32, SimError> {
    let name = "aclrtEventElapsedTime";
    let ns = event::time(name, end)? as i64 - event::time(name, start)? as i64;
    Ok((ns as f64 / 1e6) as f32)
}

acl! {
    /// Creates an event.
    fn aclrtCreateEvent(out: *mut *mut c_void) {
        // SAFETY: the interface promises a pointer to write to.
        unsafe { put("aclrtCreateEvent", out, event::create(0)) }
    }

    /// Creates an event. Every ordinary event can be timed; of the flags only `ACL_EVENT_EXTERNAL` changes something.
    fn aclrtCreateEventWithFlag(out: *mut *mut c_void, flags: u32) {
        // SAFETY: as above.
        unsafe { put("aclrtCreateEventWithFlag", out, event::create(flags)) }
    }

    /// As aclrtCreateEventWithFlag.
    fn aclrtCreateEventExWithFlag(out: *mut *mut c_void, flags: u32) {
        // SAFETY: as above.
        unsafe { put("aclrtCreateEventExWithFlag", out, event::create(flags)) }
    }

    /// Destroys an event; recordings under way still happen.
    fn aclrtDestroyEvent(handle: *mut c_void) { status("aclrtDestroyEvent", event::destroy(handle)) }

    /// Records an event behind what is queued on a stream.
    fn aclrtRecordEvent(handle: *mut c_void, on: *mut c_void) { status("aclrtRecordEvent", event::record(handle, on)) }

    /// Resets an external event in the stream's order.
    fn aclrtResetEvent(handle: *mut c_void, on: *mut c_void) { status("aclrtResetEvent", event::reset(handle, on)) }

    /// Makes a stream wait for an event.
    fn aclrtStreamWaitEvent(on: *mut c_void, handle: *mut c_void) { status("aclrtStreamWaitEvent", event::wait(on, handle)) }

    /// Writes a word of device memory in the stream's order; the flag must be 0.
    fn aclrtValueWrite(address: *mut c_void, value: u64, flag: u32, on: *mut c_void) {
        let signal = if flag == 0 {
            Signal::word(address as usize, value, 0)
        } else {
            Err(SimError::new(code::RT_PARAM_INVALID, format!("flag {flag}; only 0 is allowed")))
        };
        status("aclrtValueWrite", signal.and_then(|signal| event::write_word(on, signal)))
    }

    /// Makes a stream wait until a word of device memory compares with a value as the flag says.
    fn aclrtValueWait(address: *mut c_void, value: u64, flag: u32, on: *mut c_void) {
        let signal = Signal::word(address as usize, value, flag);
        status("aclrtValueWait", signal.and_then(|signal| event::wait_for_word(on, signal)))
    }

    /// Blocks the host until an event is complete.
    fn aclrtSynchronizeEvent(handle: *mut c_void) { status("aclrtSynchronizeEvent", event::synchronize(handle)) }

    /// 1 complete, 0 not yet.
    fn aclrtQueryEventStatus(handle: *mut c_void, out: *mut i32) {
        let complete = event::is_complete("aclrtQueryEventStatus", handle);
        // SAFETY: as above.
        unsafe { answer("aclrtQueryEventStatus", out, complete.map(i32::from)) }
    }

    /// 0 complete, 1 not yet.
    fn aclrtQueryEventWaitStatus(handle: *mut c_void, out: *mut i32) {
        let complete = event::is_complete("aclrtQueryEventWaitStatus", handle);
        // SAFETY: as above.
        unsafe { answer("aclrtQueryEventWaitStatus", out, complete.map(|c| i32::from(!c))) }
    }

    /// Simulated milliseconds between two complete events.
    fn aclrtEventElapsedTime(out: *mut f32, start: *mut c_void, end: *mut c_void) {
        // SAFETY: as above.
        unsafe { answer("aclrtEventElapsedTime", out, elapsed(start, end)) }
    }

    /// Simulated microseconds at which an event was complete.
    fn aclrtEventGetTimestamp(handle: *mut c_void, out: *mut u64) {
        let time = event::time("aclrtEventGetTimestamp", handle);
        // SAFETY: as above.
        unsafe { answer("aclrtEventGetTimestamp", out, time.map(|ns| ns / 1000)) }
    }

    /// An event's number.
    fn aclrtGetEventId(handle: *mut c_void, out: *mut u32) {
        if let Err(error) = event::check(handle) {
            return status("aclrtGetEventId", Err(error));
        }
        // SAFETY: as above.
        unsafe { put("aclrtGetEventId", out, (handle as usize / 64) as u32) }
    }
}
