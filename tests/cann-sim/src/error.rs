//! Error codes, and the text behind the last one of each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

/// Codes of the acl and aclnn interfaces that the simulation returns.
pub mod code {
    #![allow(missing_docs)]
    pub const SUCCESS: i32 = 0;
    pub const INVALID_PARAM: i32 = 100_000;
    pub const REPEAT_INITIALIZE: i32 = 100_002;
    pub const OP_NOT_FOUND: i32 = 100_024;
    pub const RT_PARAM_INVALID: i32 = 107_000;
    pub const RT_INVALID_DEVICE: i32 = 107_001;
    pub const RT_CONTEXT_NULL: i32 = 107_002;
    pub const RT_STREAM_CONTEXT: i32 = 107_003;
    pub const RT_FILE_OPEN: i32 = 107_009;
    pub const RT_INVALID_HANDLE: i32 = 107_017;
    pub const RT_WAIT_TIMEOUT: i32 = 107_019;
    pub const RT_STREAM_SYNC_TIMEOUT: i32 = 107_020;
    pub const RT_CAPTURE_DEPENDENCY: i32 = 107_024;
    pub const RT_STREAM_UNJOINED: i32 = 107_025;
    pub const RT_MODEL_CAPTURED: i32 = 107_026;
    pub const RT_STREAM_CAPTURED: i32 = 107_027;
    pub const RT_EVENT_CAPTURED: i32 = 107_028;
    pub const RT_STREAM_NOT_CAPTURED: i32 = 107_029;
    pub const RT_CAPTURE_MODE_NOT_SUPPORT: i32 = 107_030;
    pub const RT_STREAM_CAPTURE_IMPLICIT: i32 = 107_031;
    pub const STREAM_CAPTURE_CONFLICT: i32 = 107_032;
    pub const STREAM_TASK_GROUP_STATUS: i32 = 107_033;
    pub const STREAM_TASK_GROUP_INTR: i32 = 107_034;
    pub const RT_STREAM_CAPTURE_UNMATCHED: i32 = 107_036;
    pub const RT_STREAM_CAPTURE_WRONG_THREAD: i32 = 107_038;
    pub const RT_MODEL_UPDATE_FAILED: i32 = 107_040;
    pub const RT_CAPTURE_MODE_BLOCK_ASYNC: i32 = 107_041;
    pub const NNOP_NULL: i32 = 161_001;
    pub const NNOP_INVALID: i32 = 161_002;
    pub const RT_MEMORY_ALLOCATION: i32 = 207_001;
    pub const RT_FEATURE_NOT_SUPPORT: i32 = 207_000;
    pub const RT_INTERNAL: i32 = 507_000;
    pub const RT_VECTOR_CORE_EXCEPTION: i32 = 507_035;
    pub const RT_DRV_INTERNAL: i32 = 507_899;
    pub const RT_STREAM_CAPTURE_INVALIDATED: i32 = 507_903;
}

/// A failure inside the simulated device: the code that synchronizing will return, and what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimError {
    /// acl error code.
    pub code: i32,
    /// What was given, what is allowed.
    pub text: String,
}

impl SimError {
    /// An error with a code and its text.
    pub fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl std::fmt::Display for SimError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (code {})", self.text, self.code)
    }
}

impl std::error::Error for SimError {}

thread_local! {
    static RECENT: RefCell<Option<CString>> = const { RefCell::new(None) };
    // The pointer handed out by the last aclGetRecentErrMsg of this thread must stay readable after the message is taken.
    static HANDED_OUT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Remembers the text of a failed call for `aclGetRecentErrMsg` of this thread, and returns `code`.
/// `ez` is CANN's own code such as "EZ0037".
pub fn fail(code: i32, ez: &str, text: String) -> i32 {
    let text = format!("{ez}: {text}\n").replace('\0', " ");
    RECENT.with(|r| *r.borrow_mut() = CString::new(text).ok());
    code
}

/// The code for the caller of `name`; an error's text is set for `aclGetRecentErrMsg`.
pub fn report(name: &str, result: Result<(), SimError>) -> i32 {
    match result {
        Ok(()) => code::SUCCESS,
        Err(e) => fail(e.code, "EE9999", format!("{name}: {}", e.text)),
    }
}

/// The text of the last failed call of this thread, which is thereby taken; null if there is none.
pub fn take_recent() -> *const c_char {
    match RECENT.with(|r| r.borrow_mut().take()) {
        None => std::ptr::null(),
        Some(text) => HANDED_OUT.with(|h| h.borrow_mut().insert(text).as_ptr()),
    }
}
