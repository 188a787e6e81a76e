//! The side that C++ calls. No policy, no layout arithmetic: conversions, and a guard at every entry.

mod admin;
mod bridge;
mod copy;
mod graph;
mod hook;
mod timing;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bridge::generated::TensorArg;

use crate::policy::{self, Tensor};

/// An error on its way to C++, where it becomes an exception with this text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct FfiError(String);

impl FfiError {
    fn new(error: impl std::fmt::Display) -> Self {
        FfiError(error.to_string())
    }
}

/// Runs the body of an entry; a panic becomes an error with its text.
fn guard<T>(body: impl FnOnce() -> Result<T, FfiError>) -> Result<T, FfiError> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no text".to_owned());
        Err(FfiError(format!("infini_rearrange: internal error ({text}); please report it")))
    })
}

/// When what C++ tells of runs.
fn how(execution: bridge::generated::Execution) -> policy::Execution {
    match execution {
        bridge::generated::Execution { update: true, .. } => policy::Execution::Update,
        bridge::generated::Execution { graph: 0, .. } => policy::Execution::Eager,
        bridge::generated::Execution { graph, .. } => policy::Execution::Captured(graph),
    }
}

/// The tensor behind an argument.
///
/// # Safety
/// `sizes` and `strides` point to `ndim` values each that outlive `'a`, or `ndim` is 0.
unsafe fn tensor<'a>(argument: &TensorArg) -> Tensor<'a> {
    let list = |pointer: *const i64| match argument.ndim {
        0 => &[][..],
        // SAFETY: as promised by the caller.
        ndim => unsafe { std::slice::from_raw_parts(pointer, ndim as usize) },
    };
    Tensor {
        slot: argument.slot,
        shape: list(argument.sizes),
        strides: list(argument.strides),
        offset: argument.offset,
        element_size: argument.element_size,
        dtype: argument.dtype,
        on_npu: argument.on_npu,
    }
}
