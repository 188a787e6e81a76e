//! What the operators share: their arguments, and both of their C functions from one description.

use crate::clock::Cost;
use crate::dtype::DType;
use crate::error::{SimError, code};
use crate::executor;
use crate::handles::{self, Scalar};
use crate::stream::Work;
use crate::tensor::Tensor;
use std::ffi::c_void;
use std::sync::Arc;

/// Dimensions that aclnn operators take at most.
pub const MAX_DIMS: usize = 8;

/// What an operator comes to: its cost and its work, or why it is refused (161002 and the like).
pub type Prepared = Result<(Cost, Work), SimError>;

/// A refusal with 161002.
pub fn refused<T>(text: impl Into<String>) -> Result<T, SimError> {
    Err(SimError::new(code::NNOP_INVALID, text))
}

/// An operator whose cost is going over `touched` once.
pub fn work(touched: &[&Tensor], run: impl Fn() -> Result<(), SimError> + Send + Sync + 'static) -> Prepared {
    Ok((Cost::of(touched), Arc::new(run)))
}

fn null(argument: &str) -> SimError {
    SimError::new(code::NNOP_NULL, format!("{argument} must not be null"))
}

/// A tensor argument.
///
/// # Errors
/// 161001 for null, 161002 for more than eight dimensions.
///
/// # Safety
/// `handle` is null or live.
pub unsafe fn tensor_argument(argument: &str, handle: *const c_void) -> Result<Tensor, SimError> {
    // SAFETY: the caller's promise.
    let tensor = unsafe { handles::tensor(handle) }.ok_or_else(|| null(argument))?;
    if tensor.shape.len() > MAX_DIMS {
        let rank = tensor.shape.len();
        return refused(format!(
            "{argument} {} has {rank} dimensions; at most {MAX_DIMS} are allowed",
            tensor.describe()
        ));
    }
    Ok(tensor)
}

/// A scalar argument.
///
/// # Errors
/// 161001 for null.
///
/// # Safety
/// `handle` is null or live.
pub unsafe fn scalar_argument(argument: &str, handle: *const c_void) -> Result<Scalar, SimError> {
    // SAFETY: the caller's promise.
    unsafe { handles::scalar(handle) }.ok_or_else(|| null(argument))
}

/// Prepares what an operator came to; returns the code for the C function.
pub fn finish(name: &'static str, prepared: Prepared, workspace: *mut u64, out: *mut *mut c_void) -> i32 {
    match prepared {
        Ok((cost, run)) => executor::prepare(name, workspace, out, cost, move || run()),
        Err(e) => match e.text.split_once(": ") {
            // A documented text comes with a code of its own.
            Some((ez, text)) if ez.len() == 6 && ez.starts_with("EZ") => executor::fail(e.code, ez, text.to_owned()),
            _ => executor::fail(e.code, "EZ1001", format!("{name}: {}", e.text)),
        },
    }
}

/// A dimension counted from the front, of a tensor of `rank` dimensions.
///
/// # Errors
/// 161002 if there is no such dimension.
pub fn dimension(dim: i64, rank: usize) -> Result<usize, SimError> {
    let rank = rank.max(1) as i64;
    let at = if dim < 0 { dim + rank } else { dim };
    if (0..rank).contains(&at) { Ok(at as usize) } else { refused(format!("dimension {dim} of {rank}")) }
}

/// `tensor` seen with the shape of `out`.
///
/// # Errors
/// 161002 if it does not broadcast to it.
pub fn broadcast(tensor: &Tensor, out: &Tensor) -> Result<Tensor, SimError> {
    match tensor.broadcast_to(&out.shape) {
        Some(wide) => Ok(wide),
        None => refused(format!("{} does not broadcast to {}", tensor.describe(), out.describe())),
    }
}

/// Refuses types that have no values here.
///
/// # Errors
/// 161002.
pub fn convertible(from: DType, to: DType) -> Result<(), SimError> {
    if from == to || (from != DType::HIFLOAT8 && to != DType::HIFLOAT8) {
        return Ok(());
    }
    refused(format!("{} to {} is not simulated", from.name(), to.name()))
}

/// C type of an operator's argument.
#[macro_export]
macro_rules! argument_type {
    (T) => { *const std::ffi::c_void };
    (MaybeT) => { *const std::ffi::c_void };
    (TL) => { *const std::ffi::c_void };
    (S) => { *const std::ffi::c_void };
    (IA) => { *const std::ffi::c_void };
    ($plain:ident) => { $plain };
}

/// What an operator makes of an argument: tensors, scalars and lists are copied while preparing.
#[macro_export]
macro_rules! argument_value {
    (T, $arg:ident) => {
        $crate::ops::glue::tensor_argument(stringify!($arg), $arg)?
    };
    (MaybeT, $arg:ident) => {
        $crate::handles::tensor($arg)
    };
    (TL, $arg:ident) => {
        $crate::handles::tensor_list_with_gaps($arg)
    };
    (S, $arg:ident) => {
        $crate::ops::glue::scalar_argument(stringify!($arg), $arg)?
    };
    (IA, $arg:ident) => {
        $crate::handles::int_array($arg).unwrap_or_default()
    };
    ($plain:ident, $arg:ident) => {
        $arg
    };
}

/// Declares operators, both phases. Arguments in the interface's order: T tensor, MaybeT optional tensor, TL list of
/// tensors, S scalar, IA numbers, or a plain C type. The block gives a [`Prepared`].
#[macro_export]
macro_rules! operators {
    ($($name:ident, $first:ident ($($arg:ident: $kind:ident),* $(,)?) $body:block)*) => {$(
        /// First phase: checks the arguments and prepares the work.
        ///
        /// # Safety
        /// Handles are null or live; the out-pointers are null or can be written to.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $first(
            $($arg: $crate::argument_type!($kind),)*
            workspace: *mut u64,
            executor: *mut *mut std::ffi::c_void,
        ) -> i32 {
            $crate::abi::guard(stringify!($first), move || {
                let prepared = (move || -> $crate::ops::glue::Prepared {
                    // SAFETY: the caller's promise about handles.
                    #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
                    let ($($arg,)*) = unsafe { ($($crate::argument_value!($kind, $arg),)*) };
                    $body
                })();
                $crate::ops::glue::finish(stringify!($name), prepared, workspace, executor)
            })
        }

        $crate::launches!($name);
    )*};
}
