//! Graph capture: nothing is ever being captured.

use super::put;
use crate::acl;
use crate::error::code;
use std::ffi::c_void;

acl! {
    /// Status 0: not capturing.
    fn aclmdlRICaptureGetInfo(_stream: *mut c_void, status: *mut i32, model: *mut *mut c_void) {
        // SAFETY: the interface promises pointers to write to, the second may be null.
        unsafe {
            if !model.is_null() {
                *model = std::ptr::null_mut();
            }
            put("aclmdlRICaptureGetInfo", status, 0)
        }
    }

    /// The mode goes unused, so exchanging it changes nothing.
    fn aclmdlRICaptureThreadExchangeMode(_mode: *mut i32) { code::SUCCESS }
}
