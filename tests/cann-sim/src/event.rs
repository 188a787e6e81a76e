//! Events: what recording, waiting and resetting mean, inside and outside of captures.

use crate::capture::{self, Captured, Waited};
use crate::error::{SimError, code};
use crate::mark::Mark;
use crate::signal::Signal;
use crate::{groups, stream};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

/// Flag of events that carry a state from outside of a graph into it.
pub const EXTERNAL: u32 = 0x20;

/// The last recording of an ordinary event.
#[derive(Clone, Default)]
enum Last {
    #[default]
    Never,
    Outside(Arc<Mark>),
    Inside(Captured),
}

#[derive(Clone, Default)]
struct Event {
    /// The state of an external event.
    external: Option<Arc<Mark>>,
    last: Last,
}

#[derive(Default)]
struct Events {
    next: usize,
    live: HashMap<usize, Event>,
}

static EVENTS: Mutex<Option<Events>> = Mutex::new(None);

fn with<R>(act: impl FnOnce(&mut Events) -> R) -> R {
    let mut events: MutexGuard<'_, _> = EVENTS.lock().unwrap_or_else(|e| e.into_inner());
    act(events.get_or_insert_default())
}

/// Creates an event with the flags of the interface.
pub fn create(flags: u32) -> *mut c_void {
    let external = (flags & EXTERNAL != 0).then(Arc::default);
    with(|events| {
        events.next += 1;
        let handle = events.next * 64;
        events.live.insert(handle, Event { external, last: Last::Never });
        handle as *mut c_void
    })
}

/// Destroys an event; recordings under way still happen.
///
/// # Errors
/// 107017 for a handle that is not a live event.
pub fn destroy(handle: *mut c_void) -> Result<(), SimError> {
    find(handle)?;
    with(|events| events.live.remove(&(handle as usize)));
    Ok(())
}

fn find(handle: *mut c_void) -> Result<Event, SimError> {
    with(|events| events.live.get(&(handle as usize)).cloned()).ok_or_else(|| {
        SimError::new(code::RT_INVALID_HANDLE, format!("{handle:?} is not an event, or it was destroyed"))
    })
}

/// Checks that an event lives.
///
/// # Errors
/// 107017 if it does not.
pub fn check(handle: *mut c_void) -> Result<(), SimError> {
    find(handle).map(|_| ())
}

/// Records an event behind what is queued on a stream, or in the graph that the stream captures.
///
/// # Errors
/// 107017, 107003 for dead handles; what captures and task groups forbid.
pub fn record(handle: *mut c_void, on: *mut c_void) -> Result<(), SimError> {
    let event = find(handle)?;
    let stream = stream::get(on)?;
    groups::forbid(on as usize, "aclrtRecordEvent")?;
    if let Some(mark) = event.external {
        let signal = Signal::Event(mark);
        if !capture::set(on as usize, "aclrtRecordEvent", &signal)? {
            stream.set(signal);
        }
        return Ok(());
    }
    let last = match capture::record(on as usize)? {
        Some(captured) => Last::Inside(captured),
        None => Last::Outside(stream.record()),
    };
    with(|events| {
        if let Some(event) = events.live.get_mut(&(handle as usize)) {
            event.last = last;
        }
    });
    Ok(())
}

/// Makes a stream, or the graph that it captures, wait for an event. An ordinary event that was never recorded is not
/// waited for.
///
/// # Errors
/// 107017, 107003 for dead handles; what captures and task groups forbid.
pub fn wait(on: *mut c_void, handle: *mut c_void) -> Result<(), SimError> {
    let event = find(handle)?;
    let stream = stream::get(on)?;
    groups::forbid(on as usize, "aclrtStreamWaitEvent")?;
    if let Some(mark) = event.external {
        let signal = Signal::Event(mark);
        if !capture::wait_for_signal(on as usize, "aclrtStreamWaitEvent", &signal)? {
            stream.wait_for_signal(signal);
        }
        return Ok(());
    }
    let waited = match &event.last {
        Last::Never => Waited::Nothing,
        Last::Outside(_) => Waited::Outside,
        Last::Inside(captured) => Waited::Inside(captured),
    };
    if !capture::wait(on as usize, waited)?
        && let Last::Outside(mark) = event.last
    {
        stream.wait_for(mark);
    }
    Ok(())
}

/// Writes a word of device memory in the stream's order, or in the graph that the stream captures.
///
/// # Errors
/// 107003 for a dead stream; what captures and task groups forbid.
pub fn write_word(on: *mut c_void, signal: Signal) -> Result<(), SimError> {
    let stream = stream::get(on)?;
    groups::forbid(on as usize, "aclrtValueWrite")?;
    if !capture::set(on as usize, "aclrtValueWrite", &signal)? {
        stream.set(signal);
    }
    Ok(())
}

/// Makes a stream, or the graph that it captures, wait for a word of device memory.
///
/// # Errors
/// 107003 for a dead stream; what captures and task groups forbid.
pub fn wait_for_word(on: *mut c_void, signal: Signal) -> Result<(), SimError> {
    let stream = stream::get(on)?;
    groups::forbid(on as usize, "aclrtValueWait")?;
    if !capture::wait_for_signal(on as usize, "aclrtValueWait", &signal)? {
        stream.wait_for_signal(signal);
    }
    Ok(())
}

/// Resets an external event in the stream's order, or in the graph that the stream captures. An ordinary event keeps
/// its last recording, so that an event that is reset by a waiting stream can still be timed.
///
/// # Errors
/// 107017, 107003 for dead handles; what captures and task groups forbid.
pub fn reset(handle: *mut c_void, on: *mut c_void) -> Result<(), SimError> {
    let event = find(handle)?;
    let stream = stream::get(on)?;
    groups::forbid(on as usize, "aclrtResetEvent")?;
    if let Some(mark) = event.external
        && !capture::clear(on as usize, &mark)?
    {
        stream.clear(mark);
    }
    Ok(())
}

/// The last recording, for the host to look at: `None` if there is none.
///
/// # Errors
/// 107017 for a dead handle, 107028 for an event that was recorded in a capture (which is thereby spoiled), 207000 for an
/// external event.
fn recording(name: &str, handle: *mut c_void) -> Result<Option<Arc<Mark>>, SimError> {
    let event = find(handle)?;
    if event.external.is_some() {
        let text = "the host cannot query, time or wait for an external event";
        return Err(SimError::new(code::RT_FEATURE_NOT_SUPPORT, text));
    }
    match event.last {
        Last::Never => Ok(None),
        Last::Outside(mark) => Ok(Some(mark)),
        Last::Inside(captured) => Err(capture::forbid_event(name, &captured)),
    }
}

/// Blocks the host until an event is complete.
///
/// # Errors
/// As of [`recording`].
pub fn synchronize(handle: *mut c_void) -> Result<(), SimError> {
    if let Some(mark) = recording("aclrtSynchronizeEvent", handle)? {
        mark.wait();
    }
    Ok(())
}

/// Whether an event is complete; one that was never recorded is.
///
/// # Errors
/// As of [`recording`].
pub fn is_complete(name: &str, handle: *mut c_void) -> Result<bool, SimError> {
    Ok(recording(name, handle)?.is_none_or(|mark| mark.time().is_some()))
}

/// Simulated nanoseconds at which an event was complete.
///
/// # Errors
/// As of [`recording`]; 107000 for an event that was not recorded or is not complete.
pub fn time(name: &str, handle: *mut c_void) -> Result<u64, SimError> {
    recording(name, handle)?.and_then(|mark| mark.time()).ok_or_else(|| {
        SimError::new(code::RT_PARAM_INVALID, format!("event {handle:?} was not recorded, or is not complete"))
    })
}
