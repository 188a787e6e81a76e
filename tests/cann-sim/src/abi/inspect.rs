//! What tests ask of the simulation itself; none of it is part of CANN.

use super::guard;
use crate::{clock, executor, fault, stream};
use std::ffi::{c_char, c_void};

/// Replaces the injected faults; see `fault.rs` for the text. 0, or 1 if the text is wrong (the reason goes to stderr).
///
/// # Safety
/// `spec` is null (no faults) or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cann_sim_fault(spec: *const c_char) -> i32 {
    guard("cann_sim_fault", || {
        // SAFETY: the caller's promise.
        let spec = if spec.is_null() { String::new() } else { unsafe { super::device::text_of(spec) } };
        match fault::set(&spec) {
            Ok(()) => 0,
            Err(problem) => {
                eprintln!("cann-sim: cann_sim_fault: {problem}");
                1
            }
        }
    })
}

/// Calls so far of a function of the C interface; the two phases of an operator count apart.
///
/// # Safety
/// `function` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cann_sim_calls(function: *const c_char) -> u64 {
    let mut calls = 0;
    guard("cann_sim_calls", || {
        // SAFETY: the caller's promise.
        calls = fault::calls(&unsafe { super::device::text_of(function) });
        0
    });
    calls
}

/// Forgets call counts, faults and hidden copies. Clocks, memory and streams stay.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_reset() {
    guard("cann_sim_reset", || {
        fault::reset();
        executor::reset_hidden_copies();
        0
    });
}

/// Simulated nanoseconds of a stream (of what it has run so far); for null the furthest of all streams.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_clock_ns(handle: *mut c_void) -> u64 {
    let mut ns = 0;
    guard("cann_sim_clock_ns", || {
        ns = if handle.is_null() {
            stream::all().iter().map(|s| s.time()).max().unwrap_or(0)
        } else {
            stream::find(handle).map_or(0, |s| s.time())
        };
        0
    });
    ns
}

/// Hidden copies launched so far: what AutoContiguous copied inside operators.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_hidden_copies() -> u64 {
    executor::hidden_copies().0
}

/// Bytes of those copies.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_hidden_copy_bytes() -> u64 {
    executor::hidden_copies().1
}

/// Nanoseconds that a launch costs at least on the simulated clock.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_launch_ns() -> u64 {
    clock::LAUNCH_NS
}
