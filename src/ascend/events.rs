//! Events, which measure device time.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::cann::loaded;

/// Nanoseconds of device time between two events that are complete; `None` where CANN cannot tell. Asks CANN, which does
/// not wait for complete events. Never while a graph is being captured: CANN refuses, and the capture is lost.
///
/// # Safety
/// Both are live handles of `aclrtCreateEvent…` whose last recording is complete.
pub unsafe fn elapsed_ns(start: *mut c_void, end: *mut c_void) -> Option<u64> {
    /// aclrtEventElapsedTime: milliseconds.
    type Elapsed = unsafe extern "C" fn(*mut f32, *mut c_void, *mut c_void) -> c_int;
    static ELAPSED: OnceLock<Option<Elapsed>> = OnceLock::new();
    let elapsed = (*ELAPSED.get_or_init(|| {
        let library = loaded("libascendcl.so")?;
        // SAFETY: the signature is that of acl/acl_rt.h. The library stays: torch_npu needs it until the process ends.
        unsafe { library.get::<Elapsed>(b"aclrtEventElapsedTime\0").ok().map(|function| *function) }
    }))?;
    let mut milliseconds = 0f32;
    // SAFETY: the out-pointer is ours, the events are as promised by the caller.
    let status = unsafe { elapsed(&raw mut milliseconds, start, end) };
    (status == 0 && milliseconds >= 0.0).then(|| (f64::from(milliseconds) * 1e6) as u64)
}
