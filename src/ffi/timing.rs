//! Device time of sampled copies: when to take it, and what it came to.

use super::{FfiError, guard};
use crate::{ascend, policy, profile};

/// Looked at before every copy: reads one number, and cannot panic.
pub(super) fn timing() -> bool {
    profile::timing() != 0
}

/// 0 if the next copy at this site is not one to time, else what [`copy_timed`] wants.
pub(super) fn times_next(site: &str) -> Result<u32, FfiError> {
    guard(|| {
        let name = policy::copy_site(site);
        Ok(if profile::site(name).times_next() { policy::intern(name) + 1 } else { 0 })
    })
}

/// Takes the time between two events that are complete.
///
/// # Safety
/// `start` and `end` are live aclrtEvent handles, recorded and complete.
pub(super) unsafe fn copy_timed(timed: u32, bytes: u64, start: usize, end: usize) -> Result<(), FfiError> {
    guard(|| {
        // SAFETY: as promised by the caller.
        let ns = unsafe { ascend::elapsed_ns(start as *mut _, end as *mut _) };
        if let (Some(ns), Some(site)) = (ns, timed.checked_sub(1).and_then(policy::site)) {
            site.count_timed(bytes, ns);
        }
        Ok(())
    })
}
