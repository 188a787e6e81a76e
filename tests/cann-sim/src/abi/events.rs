//! Events: recorded on a stream, waited for by streams or by the host, and timed by the simulated clock.

use super::put;
use crate::acl;
use crate::error::{code, fail};
use crate::stream::{self, Mark};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Default)]
struct Event {
    mark: Option<Arc<Mark>>,
}

static EVENTS: Mutex<Option<(usize, HashMap<usize, Event>)>> = Mutex::new(None);

fn events() -> MutexGuard<'static, Option<(usize, HashMap<usize, Event>)>> {
    EVENTS.lock().unwrap_or_else(|e| e.into_inner())
}

fn create() -> *mut c_void {
    let mut events = events();
    let (next, map) = events.get_or_insert_default();
    *next += 1;
    let handle = *next * 64;
    map.insert(handle, Event::default());
    handle as *mut c_void
}

fn find(name: &str, handle: *mut c_void) -> Result<Event, i32> {
    let found = events().get_or_insert_default().1.get(&(handle as usize)).cloned();
    found.ok_or_else(|| {
        fail(code::RT_INVALID_HANDLE, "EE1001", format!("{name}: {handle:?} is not an event, or it was destroyed"))
    })
}

fn on(name: &str, handle: *mut c_void, act: impl FnOnce(Event) -> i32) -> i32 {
    match find(name, handle) {
        Ok(event) => act(event),
        Err(code) => code,
    }
}

fn passed(event: &Event) -> bool {
    event.mark.as_ref().is_none_or(|m| m.time().is_some())
}

fn time(name: &str, handle: *mut c_void) -> Result<u64, i32> {
    let event = find(name, handle)?;
    event.mark.as_ref().and_then(|m| m.time()).ok_or_else(|| {
        fail(code::RT_PARAM_INVALID, "EE1001", format!("{name}: event {handle:?} was not recorded, or is not complete"))
    })
}

acl! {
    /// Creates an event.
    fn aclrtCreateEvent(out: *mut *mut c_void) {
        // SAFETY: the interface promises a pointer to write to.
        unsafe { put("aclrtCreateEvent", out, create()) }
    }

    /// Creates an event; every event can be timed, whatever the flags.
    fn aclrtCreateEventWithFlag(out: *mut *mut c_void, _flags: u32) {
        // SAFETY: as above.
        unsafe { put("aclrtCreateEventWithFlag", out, create()) }
    }

    /// Creates an event.
    fn aclrtCreateEventExWithFlag(out: *mut *mut c_void, _flags: u32) {
        // SAFETY: as above.
        unsafe { put("aclrtCreateEventExWithFlag", out, create()) }
    }

    /// Destroys an event; recordings under way still happen.
    fn aclrtDestroyEvent(handle: *mut c_void) {
        on("aclrtDestroyEvent", handle, |_| {
            events().get_or_insert_default().1.remove(&(handle as usize));
            code::SUCCESS
        })
    }

    /// Records an event behind what is queued on a stream.
    fn aclrtRecordEvent(handle: *mut c_void, on_stream: *mut c_void) {
        on("aclrtRecordEvent", handle, |_| match stream::find(on_stream) {
            Err(code) => code,
            Ok(stream) => {
                let mark = stream.record();
                if let Some(event) = events().get_or_insert_default().1.get_mut(&(handle as usize)) {
                    event.mark = Some(mark);
                }
                code::SUCCESS
            }
        })
    }

    /// Makes an event unrecorded again.
    fn aclrtResetEvent(handle: *mut c_void, _stream: *mut c_void) {
        // The last recording stays known, so that an event that is reset by a waiting stream can still be timed.
        on("aclrtResetEvent", handle, |_| code::SUCCESS)
    }

    /// Makes a stream wait for an event's last recording; an event never recorded is not waited for.
    fn aclrtStreamWaitEvent(on_stream: *mut c_void, handle: *mut c_void) {
        on("aclrtStreamWaitEvent", handle, |event| match stream::find(on_stream) {
            Err(code) => code,
            Ok(stream) => {
                if let Some(mark) = event.mark {
                    stream.wait_for(mark);
                }
                code::SUCCESS
            }
        })
    }

    /// Blocks the host until an event is complete.
    fn aclrtSynchronizeEvent(handle: *mut c_void) {
        on("aclrtSynchronizeEvent", handle, |event| {
            if let Some(mark) = event.mark {
                mark.wait();
            }
            code::SUCCESS
        })
    }

    /// 1 complete, 0 not yet.
    fn aclrtQueryEventStatus(handle: *mut c_void, out: *mut i32) {
        // SAFETY: as above.
        on("aclrtQueryEventStatus", handle, |e| unsafe { put("aclrtQueryEventStatus", out, passed(&e).into()) })
    }

    /// 0 complete, 1 not yet.
    fn aclrtQueryEventWaitStatus(handle: *mut c_void, out: *mut i32) {
        // SAFETY: as above.
        on("aclrtQueryEventWaitStatus", handle, |e| unsafe { put("aclrtQueryEventWaitStatus", out, (!passed(&e)).into()) })
    }

    /// Simulated milliseconds between two complete events.
    fn aclrtEventElapsedTime(out: *mut f32, start: *mut c_void, end: *mut c_void) {
        match (time("aclrtEventElapsedTime", start), time("aclrtEventElapsedTime", end)) {
            (Err(code), _) | (_, Err(code)) => code,
            (Ok(start), Ok(end)) => {
                let ns = end as i64 - start as i64;
                // SAFETY: as above.
                unsafe { put("aclrtEventElapsedTime", out, (ns as f64 / 1e6) as f32) }
            }
        }
    }

    /// Simulated microseconds at which an event was complete.
    fn aclrtEventGetTimestamp(handle: *mut c_void, out: *mut u64) {
        match time("aclrtEventGetTimestamp", handle) {
            Err(code) => code,
            // SAFETY: as above.
            Ok(ns) => unsafe { put("aclrtEventGetTimestamp", out, ns / 1000) },
        }
    }

    /// An event's number.
    fn aclrtGetEventId(handle: *mut c_void, out: *mut u32) {
        // SAFETY: as above.
        on("aclrtGetEventId", handle, |_| unsafe { put("aclrtGetEventId", out, (handle as usize / 64) as u32) })
    }
}
