//! aclnnInplaceCopy and aclnnCast: any layout to any layout.

use crate::clock::Cost;
use crate::dtype::DType;
use crate::error::{SimError, code};
use crate::executor::{fail, prepare, tensor};
use crate::tensor::Tensor;
use crate::{acl, launches};
use std::ffi::c_void;

/// Dimensions that aclnn operators take at most.
pub const MAX_DIMS: usize = 8;

/// Copies `src` to `dst` of the same shape, converting if the types differ. Everything is read before anything is
/// written, so that overlapping views give what one would expect.
///
/// # Errors
/// As of reading and writing tensors.
pub fn copy(dst: &Tensor, src: &Tensor) -> Result<(), SimError> {
    if dst.dtype == src.dtype {
        dst.write_bytes(&src.read_bytes()?)
    } else {
        dst.write_values(src.read_values()?)
    }
}

fn check(name: &str, tensors: &[&Tensor]) -> Result<(), i32> {
    for t in tensors {
        if t.shape.len() > MAX_DIMS {
            let text = format!("{name}: {} has {} dimensions; at most {MAX_DIMS} are allowed", t.describe(), t.shape.len());
            return Err(fail(code::NNOP_INVALID, "EZ1001", text));
        }
    }
    Ok(())
}

fn convertible(name: &str, from: DType, to: DType) -> Result<(), i32> {
    if from == to || (from != DType::HIFLOAT8 && to != DType::HIFLOAT8) {
        return Ok(());
    }
    Err(fail(code::NNOP_INVALID, "EZ1001", format!("{name}: {} to {} is not simulated", from.name(), to.name())))
}

fn prepare_copy(name: &'static str, dst: Tensor, src: Tensor, ws: *mut u64, exec: *mut *mut c_void) -> Result<i32, i32> {
    check(name, &[&dst, &src])?;
    convertible(name, src.dtype, dst.dtype)?;
    let wide = src.broadcast_to(&dst.shape).ok_or_else(|| {
        let text = format!("{name}: {} does not broadcast to {}", src.describe(), dst.describe());
        fail(code::NNOP_INVALID, "EZ1001", text)
    })?;
    let mut cost = Cost::of(&[&dst, &wide]);
    // Contiguous, Cast and ViewCopy are steps of their own, with a buffer between them.
    if (!src.is_contiguous() || src.dtype != dst.dtype) && !dst.is_contiguous() {
        cost.workspace += dst.bytes();
    }
    Ok(prepare(name, ws, exec, cost, move || copy(&dst, &wide)))
}

fn null(name: &str) -> i32 {
    fail(code::NNOP_NULL, "EZ1001", format!("{name}: a tensor is null"))
}

acl! {
    /// Copies `src` into `dst`, broadcasting and converting.
    fn aclnnInplaceCopyGetWorkspaceSize(dst: *mut c_void, src: *const c_void, ws: *mut u64, exec: *mut *mut c_void) {
        // SAFETY: the interface promises live handles or null.
        let (Some(dst), Some(src)) = (unsafe { (tensor(dst), tensor(src)) }) else { return null("aclnnInplaceCopy") };
        prepare_copy("aclnnInplaceCopy", dst, src, ws, exec).unwrap_or_else(|code| code)
    }

    /// Converts into `out`, which has the type `dtype` already.
    fn aclnnCastGetWorkspaceSize(src: *const c_void, _dtype: i32, out: *mut c_void, ws: *mut u64, exec: *mut *mut c_void) {
        // SAFETY: as above.
        let (Some(dst), Some(src)) = (unsafe { (tensor(out), tensor(src)) }) else { return null("aclnnCast") };
        prepare_copy("aclnnCast", dst, src, ws, exec).unwrap_or_else(|code| code)
    }
}

launches!(aclnnInplaceCopy, aclnnCast);
