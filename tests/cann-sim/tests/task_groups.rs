//! Task groups, their updates, and external events, through the C functions.

mod support;

use cann_sim::abi::captures::*;
use cann_sim::abi::events::*;
use cann_sim::abi::groups::*;
use cann_sim::abi::memory::*;
use cann_sim::abi::streams::*;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;
use support::*;

fn update_begin(on: Handle, group: Handle) -> i32 {
    unsafe { aclmdlRICaptureTaskUpdateBegin(on, group) }
}

fn update_end(on: Handle) -> i32 {
    unsafe { aclmdlRICaptureTaskUpdateEnd(on) }
}

/// A graph of 1, a group of `group`, and 9; and the group.
fn graph_with_group(s: Handle, trace: &Trace, group: &[u32]) -> (Handle, Handle) {
    begin(s, GLOBAL);
    trace.launch(s, 1);
    assert_eq!(group_begin(s), 0);
    for &number in group {
        assert_eq!(trace.launch(s, number), 0);
    }
    let (code, handle) = group_end(s);
    assert_eq!(code, 0);
    assert!(!handle.is_null());
    trace.launch(s, 9);
    (end(s), handle)
}

fn run(graph: Handle, s: Handle, trace: &Trace) -> Vec<u32> {
    replay(graph, s);
    assert_eq!(synchronize(s), 0);
    trace.take()
}

#[test]
fn an_update_replaces_the_tasks_for_the_replays_behind_it() {
    let _alone = alone();
    let (s, updating, trace) = (stream(), stream(), Trace::default());
    let (graph, group) = graph_with_group(s, &trace, &[2, 3]);
    assert_eq!(cann_sim_graph_tasks(graph), 4);
    assert_eq!(run(graph, s, &trace), [1, 2, 3, 9]);
    assert_eq!(update_begin(updating, group), 0);
    assert_eq!((trace.launch(updating, 4), trace.launch(updating, 5)), (0, 0));
    assert_eq!(update_end(updating), 0);
    assert_eq!(synchronize(updating), 0);
    assert_eq!(trace.take(), [], "launches of an update do not run");
    assert_eq!(run(graph, s, &trace), [1, 4, 5, 9]);
    assert_eq!(run(graph, s, &trace), [1, 4, 5, 9]);
    // The updating stream is an ordinary one again.
    trace.launch(updating, 7);
    assert_eq!(synchronize(updating), 0);
    assert_eq!(trace.take(), [7]);
}

#[test]
fn an_update_that_does_not_match_leaves_the_group_as_it_was() {
    let _alone = alone();
    let (s, updating, trace) = (stream(), stream(), Trace::default());
    let (graph, group) = graph_with_group(s, &trace, &[2, 3]);
    type Launches = fn(&Trace, Handle);
    let wrong: [(&str, Launches); 4] = [
        ("none", |_, _| ()),
        ("too few", |t, u| assert_eq!(t.launch(u, 4), 0)),
        ("too many", |t, u| assert_eq!([4, 5, 6].map(|n| t.launch(u, n)), [0; 3])),
        ("another operator", |t, u| {
            assert_eq!((t.launch(u, 4), t.launch_as("aclnnOther", u, 5, 0)), (0, 0));
        }),
    ];
    for (what, launches) in wrong {
        assert_eq!(update_begin(updating, group), 0, "{what}");
        launches(&trace, updating);
        assert_eq!(update_end(updating), 107_040, "{what}");
        assert_eq!(synchronize(updating), 0, "{what}");
        assert_eq!(run(graph, s, &trace), [1, 2, 3, 9], "{what}");
    }
}

#[test]
fn only_operators_may_be_launched_in_an_update() {
    let _alone = alone();
    let (s, updating, trace) = (stream(), stream(), Trace::default());
    let (graph, group) = graph_with_group(s, &trace, &[2]);
    assert_eq!(update_begin(updating, group), 0);
    assert_eq!(record(event(0), updating), 107_033);
    trace.launch(updating, 4);
    assert_eq!(update_end(updating), 107_040);
    assert_eq!(run(graph, s, &trace), [1, 2, 9]);
}

#[test]
fn updates_begin_and_end_in_turn_and_not_on_a_capturing_stream() {
    let _alone = alone();
    let (s, a, b, trace) = (stream(), stream(), stream(), Trace::default());
    let (graph, group) = graph_with_group(s, &trace, &[2]);
    assert_eq!(update_end(a), 107_033);
    assert_eq!(update_begin(a, null_mut()), 107_000);
    assert_eq!(update_begin(a, 0x3f as Handle), 107_017);
    assert_eq!(update_begin(a, group), 0);
    assert_eq!(update_begin(a, group), 107_033);
    assert_eq!(update_begin(b, group), 107_033);
    assert_eq!(unsafe { aclmdlRICaptureBegin(a, GLOBAL) }, 107_033);
    assert_eq!(unsafe { aclmdlRIExecuteAsync(graph, a) }, 107_033);
    assert_eq!(update_end(a), 107_040);
    begin(b, GLOBAL);
    assert_eq!(update_begin(b, group), 107_027);
    end(b);
}

#[test]
fn a_group_dies_with_its_graph() {
    let _alone = alone();
    let (s, updating, trace) = (stream(), stream(), Trace::default());
    let (graph, group) = graph_with_group(s, &trace, &[2]);
    let (_, other) = graph_with_group(s, &trace, &[3]);
    assert_eq!(unsafe { aclmdlRIDestroy(graph) }, 0);
    assert_eq!(update_begin(updating, group), 107_017);
    assert_eq!(update_begin(updating, other), 0);
}

#[test]
fn groups_open_and_close_in_turn() {
    let _alone = alone();
    let (s, trace) = (stream(), Trace::default());
    assert_eq!(group_begin(s), 107_029);
    assert_eq!(group_end(s), (107_029, null_mut()));
    begin(s, GLOBAL);
    assert_eq!(group_end(s), (107_033, null_mut()));
    assert_eq!(group_begin(s), 0);
    assert_eq!(group_begin(s), 107_033);
    trace.launch(s, 1);
    let (code, group) = group_end(s);
    assert_eq!(code, 0);
    assert_eq!(update_begin(stream(), group), 107_026, "the capture has not ended");
    let graph = end(s);
    assert_eq!(run(graph, s, &trace), [1]);
}

#[test]
fn an_open_group_gives_no_graph() {
    let _alone = alone();
    let (s, trace) = (stream(), Trace::default());
    begin(s, GLOBAL);
    assert_eq!(group_begin(s), 0);
    trace.launch(s, 1);
    assert_eq!(try_end(s), (107_033, null_mut()));
    assert_eq!((info(s).0, synchronize(s)), (0, 0));
}

#[test]
fn anything_but_an_operator_spoils_a_group() {
    let _alone = alone();
    let mut memory = null_mut();
    assert_eq!(unsafe { aclrtMalloc(&raw mut memory, 64, 0) }, 0);
    let outside: [(&str, &dyn Fn(Handle) -> i32); 6] = [
        ("record", &|s| record(event(0), s)),
        ("fill", &|s| unsafe { aclrtMemsetAsync(memory, 64, 0, 64, s) }),
        ("copy", &|s| unsafe { aclrtMemcpyAsync(memory, 32, memory.byte_add(32), 32, 3, s) }),
        ("host function", &|s| unsafe { aclrtLaunchHostFunc(s, Some(count), (&raw const COUNTED).cast_mut().cast()) }),
        ("external event", &|s| wait(s, event(EXTERNAL))),
        ("word", &|s| unsafe { aclrtValueWrite(memory, 1, 0, s) }),
    ];
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    for (what, issue) in outside {
        let (s, trace) = (stream(), Trace::default());
        begin(s, GLOBAL);
        assert_eq!(group_begin(s), 0, "{what}");
        trace.launch(s, 1);
        assert_eq!(issue(s), 107_033, "{what}");
        assert_eq!(group_end(s), (107_033, null_mut()), "{what}");
        assert_eq!(info(s).0, 2, "{what}");
        assert_eq!(try_end(s), (507_903, null_mut()), "{what}");
    }
}

#[test]
fn work_on_another_stream_of_the_capture_interrupts_a_group() {
    let _alone = alone();
    let (a, b, trace) = (stream(), stream(), Trace::default());
    begin(a, GLOBAL);
    join(a, b);
    assert_eq!(group_begin(a), 0);
    assert_eq!(trace.launch(b, 1), 107_034);
    assert_eq!(group_end(a), (107_034, null_mut()));
    assert_eq!(try_end(a).0, 507_903);
}

/// torch_npu's order: wait, reset, group; each replay needs an update with a record behind it, before or after it.
#[test]
fn a_replay_waits_for_the_record_behind_its_update() {
    let _alone = alone();
    let (s, updating, trace, ready) = (stream(), stream(), Trace::default(), event(EXTERNAL));
    begin(s, GLOBAL);
    assert_eq!(wait(s, ready), 0);
    assert_eq!(unsafe { aclrtResetEvent(ready, s) }, 0);
    assert_eq!(group_begin(s), 0);
    trace.launch(s, 1);
    let (_, group) = group_end(s);
    let graph = end(s);
    let update = |number| {
        assert_eq!(update_begin(updating, group), 0);
        trace.launch(updating, number);
        assert_eq!(update_end(updating), 0);
        assert_eq!(record(ready, updating), 0);
    };
    update(2);
    replay(graph, s);
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), [2]);
    replay(graph, s);
    assert_eq!(unsafe { aclrtSynchronizeStreamWithTimeout(s, 50) }, 107_020, "the event was reset");
    assert_eq!(trace.take(), []);
    update(3);
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), [3]);
}

/// The same with a word of device memory, as torch_npu does it where CANN has `aclrtValueWait`.
#[test]
fn a_replay_waits_for_a_word_of_memory() {
    let _alone = alone();
    let (s, other, trace) = (stream(), stream(), Trace::default());
    let mut memory = null_mut();
    assert_eq!(unsafe { aclrtMalloc(&raw mut memory, 64, 0) }, 0);
    begin(s, GLOBAL);
    assert_eq!(unsafe { aclrtValueWait(memory, 1, 1, s) }, 0);
    assert_eq!(unsafe { aclrtValueWrite(memory, 0, 0, s) }, 0);
    trace.launch(s, 1);
    let graph = end(s);
    for _ in 0..2 {
        replay(graph, s);
        assert_eq!(unsafe { aclrtSynchronizeStreamWithTimeout(s, 50) }, 107_020);
        assert_eq!(trace.take(), []);
        assert_eq!(unsafe { aclrtValueWrite(memory, 1, 0, other) }, 0);
        assert_eq!(synchronize(s), 0);
        assert_eq!(trace.take(), [1]);
    }
    assert_eq!(unsafe { aclrtValueWait(memory.byte_add(4), 1, 1, s) }, 107_000);
    assert_eq!(unsafe { aclrtValueWait(memory, 1, 4, s) }, 107_000);
    assert_eq!(unsafe { aclrtValueWrite(memory, 1, 1, s) }, 107_000);
}

#[test]
fn the_host_cannot_look_at_an_external_event() {
    let _alone = alone();
    let (s, external) = (stream(), event(EXTERNAL));
    assert_eq!(record(external, s), 0);
    assert_eq!(unsafe { aclrtSynchronizeEvent(external) }, 207_000);
    assert_eq!(unsafe { aclrtQueryEventStatus(external, &mut { 0 }) }, 207_000);
}
