//! aclnnInplaceCopy and aclnnCast: any layout to any layout.

use super::glue::{Prepared, broadcast, convertible};
use crate::clock::Cost;
use crate::error::SimError;
use crate::operators;
use crate::tensor::Tensor;
use std::sync::Arc;

/// Copies `src` to `dst` of the same shape, converting if the types differ. Everything is read before anything is
/// written, so that overlapping views give what one would expect.
///
/// # Errors
/// As of reading and writing tensors.
pub fn copy(dst: &Tensor, src: &Tensor) -> Result<(), SimError> {
    if dst.dtype == src.dtype { dst.write_bytes(&src.read_bytes()?) } else { dst.write_values(src.read_values()?) }
}

fn prepare_copy(dst: Tensor, src: Tensor) -> Prepared {
    convertible(src.dtype, dst.dtype)?;
    let wide = broadcast(&src, &dst)?;
    let mut cost = Cost::of(&[&dst, &wide]);
    // Contiguous, Cast and ViewCopy are steps of their own, with a buffer between them.
    if (!src.is_contiguous() || src.dtype != dst.dtype) && !dst.is_contiguous() {
        cost.workspace += dst.bytes();
    }
    Ok((cost, Arc::new(move || copy(&dst, &wide))))
}

operators! {
    aclnnInplaceCopy, aclnnInplaceCopyGetWorkspaceSize(dst: T, src: T) { prepare_copy(dst, src) }
    // `out` has the type `dtype` already.
    aclnnCast, aclnnCastGetWorkspaceSize(src: T, dtype: i32, out: T) {
        let _ = dtype;
        prepare_copy(out, src)
    }
}
