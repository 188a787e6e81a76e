//! Task groups of a graph, and updating them.

use super::status;
use crate::acl;
use crate::error::{SimError, code, fail};
use crate::{capture, groups, stream};
use std::ffi::c_void;

fn begin(on: *mut c_void) -> Result<(), SimError> {
    stream::get(on)?;
    groups::forbid(on as usize, "aclmdlRICaptureTaskGrpBegin")?;
    capture::begin_group(on as usize)
}

acl! {
    /// Opens a task group on a capturing stream.
    fn aclmdlRICaptureTaskGrpBegin(on: *mut c_void) { status("aclmdlRICaptureTaskGrpBegin", begin(on)) }

    /// Closes it and gives its handle, null where that fails.
    fn aclmdlRICaptureTaskGrpEnd(on: *mut c_void, out: *mut *mut c_void) {
        if out.is_null() {
            return fail(code::RT_PARAM_INVALID, "EE1001", "aclmdlRICaptureTaskGrpEnd: the out-pointer is null".into());
        }
        let group = stream::get(on).and_then(|_| capture::end_group(on as usize));
        let handle = group.as_ref().map_or(std::ptr::null_mut(), |group| groups::handle(group));
        // SAFETY: not null; the interface promises that it can be written to.
        unsafe { out.write(handle) };
        status("aclmdlRICaptureTaskGrpEnd", group.map(|_| ()))
    }

    /// From now on operators launched on the stream are kept as new tasks of the group.
    fn aclmdlRICaptureTaskUpdateBegin(on: *mut c_void, handle: *mut c_void) {
        status("aclmdlRICaptureTaskUpdateBegin", groups::begin_update(on, handle))
    }

    /// Queues the replacement on the stream.
    fn aclmdlRICaptureTaskUpdateEnd(on: *mut c_void) {
        status("aclmdlRICaptureTaskUpdateEnd", groups::end_update(on))
    }
}
