//! What is not allowed while capturing: each call gives its code, spoils the capture, and the stream is usable afterwards.

mod support;

use cann_sim::abi::captures::*;
use cann_sim::abi::device::*;
use cann_sim::abi::events::*;
use cann_sim::abi::legacy::aclopCompileAndExecute;
use cann_sim::abi::memory::*;
use cann_sim::abi::streams::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use support::*;

const H2D: i32 = 1;

fn device(bytes: usize) -> Handle {
    let mut out = null_mut();
    assert_eq!(unsafe { aclrtMalloc(&raw mut out, bytes, 0) }, 0);
    out
}

/// Captures, does something wrong, and sees that the capture is spoiled and a new one works.
fn spoils(what: &str, mode: i32, expected: i32, wrong: impl FnOnce(Handle) -> i32) {
    let (s, trace) = (stream(), Trace::default());
    begin(s, mode);
    assert_eq!(trace.launch(s, 1), 0, "{what}");
    assert_eq!(wrong(s), expected, "{what}");
    assert_eq!(info(s).0, 2, "{what}");
    assert_eq!(trace.launch(s, 2), 507_903, "{what}: later work");
    assert_eq!(try_end(s), (507_903, null_mut()), "{what}: ending");
    assert_eq!((info(s).0, synchronize(s)), (0, 0), "{what}: afterwards");
    assert_eq!(trace.take(), [], "{what}: nothing may have run");
    begin(s, mode);
    trace.launch(s, 3);
    let graph = end(s);
    replay(graph, s);
    assert_eq!(synchronize(s), 0, "{what}");
    assert_eq!(trace.take(), [3], "{what}: again");
}

/// Captures and does something that is allowed.
fn allows(what: &str, mode: i32, act: impl FnOnce(Handle) -> i32) {
    let s = stream();
    begin(s, mode);
    assert_eq!(act(s), 0, "{what}");
    assert_eq!(info(s).0, 1, "{what}");
    end(s);
}

#[test]
fn the_host_cannot_wait_for_what_is_captured_in_any_mode() {
    let _alone = alone();
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        spoils("synchronize stream", mode, 107_027, synchronize);
        spoils("with timeout", mode, 107_027, |s| unsafe { aclrtSynchronizeStreamWithTimeout(s, 10) });
        spoils("query stream", mode, 107_027, |s| unsafe { aclrtStreamQuery(s, &mut { 0 }) });
        spoils("synchronize device", mode, 107_027, |_| unsafe { aclrtSynchronizeDevice() });
        spoils("device with timeout", mode, 107_027, |_| unsafe { aclrtSynchronizeDeviceWithTimeout(10) });
        spoils("reset device", mode, 107_027, |_| unsafe { aclrtResetDevice(0) });
        spoils("destroy stream", mode, 107_027, |s| unsafe { aclrtDestroyStream(s) });
    }
}

#[test]
fn the_host_cannot_look_at_an_event_that_was_captured() {
    let _alone = alone();
    fn recorded(s: Handle) -> Handle {
        let event = event(0);
        assert_eq!(record(event, s), 0);
        event
    }
    for mode in [GLOBAL, RELAXED] {
        spoils("synchronize", mode, 107_028, |s| unsafe { aclrtSynchronizeEvent(recorded(s)) });
        spoils("query", mode, 107_028, |s| unsafe { aclrtQueryEventStatus(recorded(s), &mut { 0 }) });
        spoils("query wait", mode, 107_028, |s| unsafe { aclrtQueryEventWaitStatus(recorded(s), &mut { 0 }) });
        spoils("elapsed", mode, 107_028, |s| {
            let (a, b) = (recorded(s), recorded(s));
            unsafe { aclrtEventElapsedTime(&mut { 0.0 }, a, b) }
        });
    }
    // After the capture nobody knows when the event passes; a recording outside makes it an ordinary one again.
    let (s, other) = (stream(), stream());
    begin(s, GLOBAL);
    let event = recorded(s);
    end(s);
    assert_eq!(unsafe { aclrtSynchronizeEvent(event) }, 107_028);
    assert_eq!(wait(other, event), 107_028);
    assert_eq!(record(event, s), 0);
    assert_eq!(unsafe { aclrtSynchronizeEvent(event) }, 0);
    assert_eq!(wait(other, event), 0);
}

#[test]
fn other_streams_and_events_can_be_waited_for_while_one_captures() {
    let _alone = alone();
    let (other, outside) = (stream(), event(0));
    allows("synchronize", GLOBAL, |_| {
        assert_eq!(record(outside, other), 0);
        assert_eq!(unsafe { aclrtSynchronizeEvent(outside) }, 0);
        synchronize(other)
    });
}

#[test]
fn a_captured_wait_needs_a_captured_record() {
    let _alone = alone();
    let outside = event(0);
    assert_eq!(record(outside, stream()), 0);
    spoils("recorded outside", RELAXED, 107_024, |s| wait(s, outside));
    allows("never recorded", GLOBAL, |s| wait(s, event(0)));
    let earlier = event(0);
    let s = stream();
    begin(s, GLOBAL);
    assert_eq!(record(earlier, s), 0);
    end(s);
    spoils("of an earlier capture", GLOBAL, 107_024, |s| wait(s, earlier));
}

#[test]
fn two_captures_cannot_be_joined() {
    let _alone = alone();
    let (a, b, of_a) = (stream(), stream(), event(0));
    begin(a, RELAXED);
    begin(b, RELAXED);
    assert_eq!(record(of_a, a), 0);
    assert_eq!(wait(b, of_a), 107_032);
    assert_eq!((info(a).0, info(b).0), (2, 2));
    assert_eq!((try_end(a).0, try_end(b).0), (507_903, 507_903));
}

#[test]
fn the_default_stream_stays_out() {
    let _alone = alone();
    let trace = Trace::default();
    for mode in [GLOBAL, RELAXED] {
        spoils("work", mode, 107_031, |_| trace.launch(null_mut(), 1));
        spoils("record", mode, 107_031, |_| record(event(0), null_mut()));
        spoils("synchronize", mode, 107_031, |_| synchronize(null_mut()));
        spoils("joining", mode, 107_031, |s| {
            let event = event(0);
            assert_eq!(record(event, s), 0);
            wait(null_mut(), event)
        });
    }
    assert_eq!(trace.take(), []);
    assert_eq!((trace.launch(null_mut(), 1), synchronize(null_mut())), (0, 0));
}

#[test]
fn synchronous_copies_are_forbidden_to_whom_the_mode_says() {
    let _alone = alone();
    let memory = device(16);
    type Call = fn(Handle, Handle) -> i32;
    let unsafe_calls: [(&str, Call); 3] = [
        ("copy", |_, m| unsafe { aclrtMemcpy(m, 16, [0u8; 16].as_ptr().cast(), 16, H2D) }),
        ("fill", |_, m| unsafe { aclrtMemset(m, 16, 0, 16) }),
        ("rows", |_, m| unsafe { aclrtMemcpy2d(m, 8, [0u8; 16].as_ptr().cast(), 8, 4, 2, H2D) }),
    ];
    for (what, call) in unsafe_calls {
        spoils(what, GLOBAL, 107_030, |s| call(s, memory));
        spoils(what, THREAD_LOCAL, 107_030, |s| call(s, memory));
        allows(what, RELAXED, |s| call(s, memory));
        let address = memory as usize;
        let elsewhere = move |_| std::thread::spawn(move || call(null_mut(), address as Handle)).join().unwrap();
        spoils(what, GLOBAL, 107_030, elsewhere);
        allows(what, THREAD_LOCAL, elsewhere);
        // A thread that makes itself relaxed may.
        allows(what, GLOBAL, |s| {
            let mut mode = RELAXED;
            assert_eq!(unsafe { aclmdlRICaptureThreadExchangeMode(&raw mut mode) }, 0);
            let code = call(s, memory);
            assert_eq!((unsafe { aclmdlRICaptureThreadExchangeMode(&raw mut mode) }, mode), (0, RELAXED));
            code
        });
    }
    assert_eq!(unsafe { aclmdlRICaptureThreadExchangeMode(&mut { 7 }) }, 107_000);
}

#[test]
fn a_thread_that_makes_itself_thread_local_only_minds_its_own_captures() {
    let _alone = alone();
    let memory = device(16) as usize;
    let fill = move || {
        let mut mode = THREAD_LOCAL;
        assert_eq!(unsafe { aclmdlRICaptureThreadExchangeMode(&raw mut mode) }, 0);
        let code = unsafe { aclrtMemset(memory as Handle, 16, 0, 16) };
        assert_eq!((unsafe { aclmdlRICaptureThreadExchangeMode(&raw mut mode) }, mode), (0, THREAD_LOCAL));
        code
    };
    spoils("its own", GLOBAL, 107_030, |_| fill());
    allows("another's", GLOBAL, |_| std::thread::spawn(fill).join().unwrap());
}

#[test]
fn pageable_host_memory_cannot_be_copied_and_pinned_memory_can() {
    let _alone = alone();
    let memory = device(16);
    let bytes = [7u8; 16];
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        spoils("pageable in", mode, 107_041, |s| unsafe {
            aclrtMemcpyAsync(memory, 16, bytes.as_ptr().cast(), 16, H2D, s)
        });
        spoils("pageable rows", mode, 107_041, |s| unsafe {
            aclrtMemcpy2dAsync(memory, 8, bytes.as_ptr().cast(), 8, 4, 2, H2D, s)
        });
    }
    // On another stream it becomes a synchronous copy.
    let other = stream();
    let elsewhere = |_| unsafe { aclrtMemcpyAsync(memory, 16, bytes.as_ptr().cast(), 16, H2D, other) };
    spoils("pageable on another stream", GLOBAL, 107_041, elsewhere);
    allows("pageable on another stream", RELAXED, elsewhere);

    let (mut pinned, s) = (null_mut(), stream());
    assert_eq!(unsafe { aclrtMallocHost(&raw mut pinned, 16) }, 0);
    unsafe { pinned.cast::<[u8; 16]>().write([1; 16]) };
    begin(s, GLOBAL);
    assert_eq!(unsafe { aclrtMemcpyAsync(memory, 16, pinned, 16, H2D, s) }, 0);
    let graph = end(s);
    unsafe { pinned.cast::<[u8; 16]>().write([2; 16]) };
    replay(graph, s);
    assert_eq!(synchronize(s), 0);
    let mut back = [0u8; 16];
    assert_eq!(unsafe { aclrtMemcpy(back.as_mut_ptr().cast(), 16, memory, 16, 2) }, 0);
    assert_eq!(back, [2; 16]);
}

#[test]
fn a_legacy_operator_and_a_graph_cannot_be_captured() {
    let _alone = alone();
    spoils("legacy", RELAXED, 107_030, |s| unsafe {
        let (none, nothing) = (null::<c_void>(), null());
        aclopCompileAndExecute(c"Add".as_ptr(), 0, none, none, 0, none, none, none, 0, 0, nothing, s)
    });
    let s = stream();
    begin(s, GLOBAL);
    let inner = end(s);
    spoils("graph", RELAXED, 107_030, |s| unsafe { aclmdlRIExecuteAsync(inner, s) });
}

#[test]
fn allocating_is_allowed_as_torch_npu_does_it_without_changing_its_mode() {
    let _alone = alone();
    allows("malloc and free", GLOBAL, |_| unsafe { aclrtFree(device(16)) });
}

#[test]
fn a_replay_that_touches_freed_memory_fails() {
    let _alone = alone();
    let (s, memory) = (stream(), device(4096));
    begin(s, GLOBAL);
    assert_eq!(unsafe { aclrtMemsetAsync(memory, 4096, 1, 4096, s) }, 0);
    let graph = end(s);
    replay(graph, s);
    assert_eq!(synchronize(s), 0);
    assert_eq!(unsafe { aclrtFree(memory) }, 0);
    replay(graph, s);
    assert_eq!(synchronize(s), 507_899);
}

#[test]
fn memory_is_poisoned_on_request_and_when_it_is_used_again() {
    let _alone = alone();
    let read = |memory| {
        let mut back = [0u8; 8];
        assert_eq!(unsafe { aclrtMemcpy(back.as_mut_ptr().cast(), 8, memory, 8, 2) }, 0);
        back
    };
    let memory = device(512);
    assert_eq!(unsafe { aclrtMemset(memory, 512, 5, 512) }, 0);
    assert_eq!(read(memory), [5; 8]);
    assert_eq!(cann_sim_poison(memory, 512), 0);
    assert_eq!(read(memory), [0xCB; 8]);
    assert_eq!(unsafe { aclrtMemset(memory, 512, 5, 512) }, 0);
    assert_eq!(unsafe { aclrtFree(memory) }, 0);
    assert_eq!(cann_sim_poison(memory, 512), 507_899);
    let again = device(512);
    assert_eq!(again, memory, "the gap is used again, or this test shows nothing");
    assert_eq!(read(again), [0xCB; 8]);
}
