//! Streams.

use super::device::milliseconds;
use super::{put, status};
use crate::clock::Cost;
use crate::error::{SimError, code};
use crate::stream::{self, Stream};
use crate::{accepted, acl, capture};
use std::ffi::c_void;
use std::sync::Arc;

fn on(handle: *mut c_void, act: impl FnOnce(&Stream) -> i32) -> i32 {
    match stream::find(handle) {
        Ok(stream) => act(&stream),
        Err(code) => code,
    }
}

/// The host cannot look at a stream that captures.
fn seen_by_host(name: &str, handle: *mut c_void, act: impl FnOnce(&Stream) -> i32) -> i32 {
    on(handle, |stream| match capture::forbid_on(handle as usize, name, code::RT_STREAM_CAPTURED) {
        Ok(()) => act(stream),
        Err(error) => status(name, Err(error)),
    })
}

fn destroy(name: &str, handle: *mut c_void) -> i32 {
    if handle.is_null() {
        return status(name, Err(SimError::new(code::RT_PARAM_INVALID, "the stream is null")));
    }
    seen_by_host(name, handle, |_| stream::destroy(handle).err().unwrap_or(code::SUCCESS))
}

acl! {
    /// Creates a stream.
    fn aclrtCreateStream(out: *mut *mut c_void) {
        // SAFETY: the interface promises a pointer to write to.
        unsafe { put("aclrtCreateStream", out, stream::create()) }
    }

    /// Creates a stream; priority and flags change nothing here.
    fn aclrtCreateStreamWithConfig(out: *mut *mut c_void, _priority: u32, _flags: u32) {
        // SAFETY: as above.
        unsafe { put("aclrtCreateStreamWithConfig", out, stream::create()) }
    }

    /// Destroys a stream once it has run what is queued.
    fn aclrtDestroyStream(handle: *mut c_void) { destroy("aclrtDestroyStream", handle) }

    /// As aclrtDestroyStream.
    fn aclrtDestroyStreamForce(handle: *mut c_void) { destroy("aclrtDestroyStreamForce", handle) }

    /// Waits for a stream; a failed task's error comes out here.
    fn aclrtSynchronizeStream(handle: *mut c_void) {
        seen_by_host("aclrtSynchronizeStream", handle, |s| status("aclrtSynchronizeStream", s.synchronize(None)))
    }

    /// The same, at most so many milliseconds.
    fn aclrtSynchronizeStreamWithTimeout(handle: *mut c_void, timeout: i32) {
        seen_by_host("aclrtSynchronizeStreamWithTimeout", handle, |s| status("aclrtSynchronizeStreamWithTimeout", s.synchronize(milliseconds(timeout))))
    }

    /// 0 if a stream has nothing left to do, 1 if it has.
    fn aclrtStreamQuery(handle: *mut c_void, out: *mut i32) {
        // SAFETY: as above.
        seen_by_host("aclrtStreamQuery", handle, |s| unsafe { put("aclrtStreamQuery", out, (!s.is_idle()).into()) })
    }

    /// A stream's number.
    fn aclrtStreamGetId(handle: *mut c_void, out: *mut i32) {
        // SAFETY: as above.
        on(handle, |s| unsafe { put("aclrtStreamGetId", out, s.id) })
    }

    /// Overflow detection is off.
    fn aclrtGetStreamOverflowSwitch(_handle: *mut c_void, out: *mut u32) {
        // SAFETY: as above.
        unsafe { put("aclrtGetStreamOverflowSwitch", out, 0) }
    }

    /// Calls a host function in the stream's order.
    fn aclrtLaunchHostFunc(handle: *mut c_void, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) {
        submit_host("aclrtLaunchHostFunc", handle, function, data)
    }

    /// Calls a host function in the stream's order, on the stream's worker (no report thread is needed).
    fn aclrtLaunchCallback(function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void, _block: i32, handle: *mut c_void) {
        submit_host("aclrtLaunchCallback", handle, function, data)
    }

    /// Nothing is ever reported: callbacks run on the workers. Waits a little, as callers loop over it.
    fn aclrtProcessReport(timeout: i32) {
        std::thread::sleep(milliseconds(timeout.clamp(0, 100)).unwrap_or_default());
        code::SUCCESS
    }
}

fn submit_host(
    name: &'static str,
    handle: *mut c_void,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> i32 {
    let Some(function) = function else {
        return crate::error::fail(code::RT_PARAM_INVALID, "EE1001", format!("{name}: the function is null"));
    };
    let data = data as usize;
    let work = move || {
        // SAFETY: the interface makes the caller answer for the function and its data.
        unsafe { function(data as *mut c_void) };
        Ok(())
    };
    stream::submit(handle, name, Cost::default(), Arc::new(work))
}

accepted!(
    aclrtSubscribeReport,
    aclrtUnSubscribeReport,
    aclrtSetStreamFailureMode,
    aclrtSetStreamOverflowSwitch,
    aclrtSetStreamAttribute,
    aclrtSetStreamResLimit,
    aclrtResetStreamResLimit,
);
