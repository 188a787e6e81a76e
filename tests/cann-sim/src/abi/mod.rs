//! The C interface: libascendcl, and the object half of libopapi.

pub mod captures;
pub mod device;
pub mod events;
pub mod groups;
pub mod inspect;
pub mod legacy;
pub mod memory;
pub mod objects;
pub mod profiling;
pub mod streams;

use crate::error::{code, fail};

pub use crate::error::report as status;

/// Runs the body of a C function; a panic inside becomes an error code instead of crossing the boundary.
pub fn guard(name: &str, body: impl FnOnce() -> i32) -> i32 {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|_| {
        fail(code::RT_INTERNAL, "EZ9999", format!("{name}: the simulation itself failed (panic); see stderr"))
    })
}

/// Declares C functions that return an acl code. Each call is counted, can be made to fail, and cannot panic outward.
#[macro_export]
macro_rules! acl {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The interface's own terms: pointers are null where allowed, or valid for what the function does with them.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            $crate::abi::guard(stringify!($name), move || {
                if let Err(code) = $crate::fault::enter(stringify!($name)) {
                    return code;
                }
                $body
            })
        }
    )*};
}

/// Declares C functions that do nothing and succeed: settings that the simulation has no use for.
#[macro_export]
macro_rules! accepted {
    ($($name:ident),* $(,)?) => {$(
        /// Accepted and ignored.
        ///
        /// # Safety
        /// None of the arguments is looked at.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> i32 {
            match $crate::fault::enter(stringify!($name)) {
                Ok(()) => 0,
                Err(code) => code,
            }
        }
    )*};
}

/// Writes `value` through an out-pointer, or fails with 107000 for null.
///
/// # Safety
/// `to` is null or can be written to.
pub unsafe fn put<T>(name: &str, to: *mut T, value: T) -> i32 {
    if to.is_null() {
        return fail(code::RT_PARAM_INVALID, "EE1001", format!("{name}: the out-pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    code::SUCCESS
}
