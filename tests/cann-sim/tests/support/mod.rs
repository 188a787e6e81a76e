//! Shorthand for driving the C functions.

#![allow(dead_code)]

use cann_sim::abi::captures::*;
use cann_sim::abi::events::*;
use cann_sim::abi::groups::*;
use cann_sim::abi::streams::*;
use cann_sim::clock::Cost;
use cann_sim::executor;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub type Handle = *mut c_void;

pub const GLOBAL: i32 = 0;
pub const THREAD_LOCAL: i32 = 1;
pub const RELAXED: i32 = 2;
pub const EXTERNAL: u32 = 0x20;

/// A capture changes what is allowed in the whole process, so these tests run one after the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

pub fn stream() -> Handle {
    let mut out = null_mut();
    assert_eq!(unsafe { aclrtCreateStream(&raw mut out) }, 0);
    out
}

pub fn event(flags: u32) -> Handle {
    let mut out = null_mut();
    assert_eq!(unsafe { aclrtCreateEventExWithFlag(&raw mut out, flags) }, 0);
    out
}

pub fn begin(on: Handle, mode: i32) {
    assert_eq!(unsafe { aclmdlRICaptureBegin(on, mode) }, 0);
}

/// The code and the graph.
pub fn try_end(on: Handle) -> (i32, Handle) {
    let mut graph = on;
    let code = unsafe { aclmdlRICaptureEnd(on, &raw mut graph) };
    (code, graph)
}

pub fn end(on: Handle) -> Handle {
    let (code, graph) = try_end(on);
    assert_eq!(code, 0);
    assert!(!graph.is_null());
    graph
}

pub fn info(on: Handle) -> (i32, Handle) {
    let (mut status, mut graph) = (-1, on);
    assert_eq!(unsafe { aclmdlRICaptureGetInfo(on, &raw mut status, &raw mut graph) }, 0);
    (status, graph)
}

pub fn replay(graph: Handle, on: Handle) {
    assert_eq!(unsafe { aclmdlRIExecuteAsync(graph, on) }, 0);
}

pub fn synchronize(on: Handle) -> i32 {
    unsafe { aclrtSynchronizeStream(on) }
}

pub fn record(event: Handle, on: Handle) -> i32 {
    unsafe { aclrtRecordEvent(event, on) }
}

pub fn wait(on: Handle, event: Handle) -> i32 {
    unsafe { aclrtStreamWaitEvent(on, event) }
}

pub fn group_begin(on: Handle) -> i32 {
    unsafe { aclmdlRICaptureTaskGrpBegin(on) }
}

pub fn group_end(on: Handle) -> (i32, Handle) {
    let mut group = on;
    let code = unsafe { aclmdlRICaptureTaskGrpEnd(on, &raw mut group) };
    (code, group)
}

/// A joining of two streams: what is issued on `to` from now on comes after what is on `from`.
pub fn join(from: Handle, to: Handle) {
    let event = event(0);
    assert_eq!(record(event, from), 0);
    assert_eq!(wait(to, event), 0);
}

/// What operators wrote down as they ran.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<u32>>>);

impl Trace {
    pub fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Launches an operator that writes `number` down.
    pub fn launch(&self, on: Handle, number: u32) -> i32 {
        self.launch_as("aclnnTrace", on, number, 0)
    }

    /// The same with a name and a cost in bytes.
    pub fn launch_as(&self, name: &'static str, on: Handle, number: u32, bytes: u64) -> i32 {
        let trace = self.0.clone();
        let (mut workspace, mut executor) = (0, null_mut());
        let cost = Cost { bytes, ..Cost::default() };
        let run = move || {
            trace.lock().unwrap().push(number);
            Ok(())
        };
        assert_eq!(executor::prepare(name, &raw mut workspace, &raw mut executor, cost, run), 0);
        executor::launch(name, executor, on)
    }
}

/// A host function for `aclrtLaunchHostFunc` that counts its calls in the `AtomicU64` that it is given.
pub unsafe extern "C" fn count(data: *mut c_void) {
    unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}
