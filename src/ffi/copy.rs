//! Copies that C++ wants planned or run.

use super::bridge::generated::{Execution, SimplifiedCopy, TensorArg};
use super::{FfiError, guard, how, tensor};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::{host, policy};

fn layout(argument: &TensorArg) -> Result<Layout, FfiError> {
    // SAFETY: every entry below demands live pointers of its caller.
    let tensor = unsafe { tensor(argument) };
    let shape: Vec<usize> = tensor.shape.iter().map(|size| *size as usize).collect();
    let strides: Vec<isize> = tensor.strides.iter().map(|stride| *stride as isize).collect();
    Layout::new(&shape, &strides, tensor.offset as isize, tensor.element_size as usize).map_err(FfiError::new)
}

fn plan(dst: &TensorArg, src: &TensorArg) -> Result<Plan, FfiError> {
    Plan::new(&layout(dst)?, &layout(src)?).map_err(FfiError::new)
}

/// # Safety
/// The arguments' pointers are live, the bases are those of storages that hold the layouts, and nobody else writes what
/// is read or touches what is written.
pub(super) unsafe fn copy_on_host(
    dst: &TensorArg,
    dst_base: *mut u8,
    src: &TensorArg,
    src_base: *const u8,
) -> Result<(), FfiError> {
    guard(|| {
        let plan = plan(dst, src)?;
        // SAFETY: torch keeps a view inside its storage, and the caller promises the rest.
        unsafe { host::run(&plan, dst_base, src_base) };
        Ok(())
    })
}

/// # Safety
/// The arguments' pointers are live.
pub(super) unsafe fn simplify_copy(dst: &TensorArg, src: &TensorArg) -> Result<SimplifiedCopy, FfiError> {
    guard(|| {
        let simple = plan(dst, src)?.simplified();
        Ok(SimplifiedCopy {
            shape: simple.shape,
            dst_strides: simple.dst_strides,
            src_strides: simple.src_strides,
            dst_offset: simple.dst_offset,
            src_offset: simple.src_offset,
        })
    })
}

/// Refuses a destination that overlaps itself or the source; the bases are the addresses of the storages.
///
/// # Safety
/// The arguments' pointers are live.
pub(super) unsafe fn check_out(
    dst: &TensorArg,
    dst_base: usize,
    src: &TensorArg,
    src_base: usize,
) -> Result<(), FfiError> {
    guard(|| {
        let (dst, src) = (layout(dst)?, layout(src)?);
        let plan = Plan::new(&dst, &src).map_err(|error| FfiError(format!("infini::rearrange: out: {error}")))?;
        if plan.may_alias(dst_base, src_base) {
            return Err(FfiError(format!(
                "infini::rearrange: out and self share memory: {} and {} overlap or cannot be told apart; write to a \
                 tensor of its own",
                dst.describe("out"),
                src.describe("self"),
            )));
        }
        Ok(())
    })
}

/// # Safety
/// The argument's pointers are live.
pub(super) unsafe fn copied(site: &str, argument: &TensorArg, execution: Execution) -> Result<(), FfiError> {
    guard(|| {
        // SAFETY: as promised by the caller.
        policy::copied(site, &unsafe { tensor(argument) }, how(execution));
        Ok(())
    })
}
