//! What captures forbid to everybody else: which calls, to which threads, and what that does to the captures.

use super::{Captured, DEFAULT_STREAM, State, under_way, with};
use crate::capture::recording::Capture;
use crate::error::{SimError, code};
use std::cell::Cell;

/// What a capture forbids to threads that do unsafe things, such as copying synchronously.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forbids them to all threads.
    Global,
    /// Forbids them to the thread that captures.
    ThreadLocal,
    /// Forbids nothing.
    Relaxed,
}

impl Mode {
    /// The mode with the interface's number.
    pub fn of(number: i32) -> Option<Self> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed].get(usize::try_from(number).ok()?).copied()
    }
}

thread_local! {
    static EXCHANGED: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets the mode of the calling thread and gives the one before.
pub fn exchange_mode(mode: Mode) -> Mode {
    EXCHANGED.replace(mode)
}

/// Refuses a call that unsafe modes forbid, and spoils the captures that forbid it.
///
/// # Errors
/// `code` if a capture in global mode is under way, or the thread itself captures in thread-local mode; the calling
/// thread's own mode ([`exchange_mode`]) may allow it all the same.
pub fn forbid_unsafe(name: &str, code: i32) -> Result<(), SimError> {
    if under_way() == 0 || EXCHANGED.get() == Mode::Relaxed {
        return Ok(());
    }
    let me = std::thread::current().id();
    let forbids = |capture: &Capture| match EXCHANGED.get() {
        Mode::Global => capture.mode == Mode::Global || (capture.mode == Mode::ThreadLocal && capture.thread == me),
        Mode::ThreadLocal => capture.mode != Mode::Relaxed && capture.thread == me,
        Mode::Relaxed => false,
    };
    with(|state| {
        let text = format!("{name} is not allowed while a stream captures, unless in relaxed mode");
        state.refuse_all(code, &text, forbids)
    })
}

/// Refuses a call that no capture on the device allows, and spoils all of them.
///
/// # Errors
/// `code` if any capture is under way.
pub fn forbid(name: &str, code: i32) -> Result<(), SimError> {
    if under_way() == 0 {
        return Ok(());
    }
    with(|state| state.refuse_all(code, &format!("{name} is not allowed while a stream captures"), |_| true))
}

/// Refuses a call on a capturing stream, and spoils its capture. The default stream captures with none, and with all.
///
/// # Errors
/// `code` if the stream captures.
pub fn forbid_on(stream: usize, name: &str, code: i32) -> Result<(), SimError> {
    if under_way() == 0 {
        return Ok(());
    }
    with(|state| match state.members.get(&stream) {
        Some((id, _)) => {
            let id = *id;
            let text = format!("{name} is not allowed on a stream that captures");
            state.refuse_all(code, &text, |capture| capture.id == id)
        }
        None => state.forbid_default(stream, name),
    })
}

/// Refuses a look at an event that was recorded in a capture, and spoils the capture if it is still under way.
pub fn forbid_event(name: &str, captured: &Captured) -> SimError {
    let text = format!("{name}: the event was last recorded in a capture; nobody outside can see it");
    with(|state| match state.captures.get_mut(&captured.capture) {
        Some(capture) => capture.refuse(code::RT_EVENT_CAPTURED, &text),
        None => SimError::new(code::RT_EVENT_CAPTURED, text),
    })
}

impl State {
    pub(super) fn forbid_default(&mut self, stream: usize, name: &str) -> Result<(), SimError> {
        if stream != DEFAULT_STREAM {
            return Ok(());
        }
        let text = format!("{name}: the default stream cannot be used while a stream captures");
        self.refuse_all(code::RT_STREAM_CAPTURE_IMPLICIT, &text, |_| true)
    }

    pub(super) fn refuse_all(&mut self, code: i32, text: &str, of: impl Fn(&Capture) -> bool) -> Result<(), SimError> {
        let mut refused = Ok(());
        for capture in self.captures.values_mut().filter(|c| of(c)) {
            refused = Err(capture.refuse(code, text));
        }
        refused
    }
}
