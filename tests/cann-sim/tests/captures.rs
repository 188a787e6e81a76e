//! Capturing, replaying, forking and joining through the C functions.

mod support;

use cann_sim::abi::captures::*;
use cann_sim::abi::inspect::cann_sim_clock_ns;
use cann_sim::abi::streams::*;
use cann_sim::clock::LAUNCH_NS;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;

#[test]
fn a_captured_task_runs_with_each_replay_and_not_before() {
    let _alone = alone();
    let (s, other, trace) = (stream(), stream(), Trace::default());
    assert_eq!(info(s), (0, null_mut()));
    begin(s, GLOBAL);
    let (status, to_be) = info(s);
    assert_eq!(status, 1);
    for number in 1..=3 {
        assert_eq!(trace.launch(s, number), 0);
    }
    assert_eq!(cann_sim_graph_tasks(to_be), 3);
    assert_eq!(cann_sim_capturing(), 1);
    let graph = end(s);
    assert_eq!((graph, info(s).0, cann_sim_capturing()), (to_be, 0, 0));
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), []);
    let before = cann_sim_replays();
    replay(graph, s);
    replay(graph, other);
    assert_eq!((synchronize(s), synchronize(other)), (0, 0));
    let mut ran = trace.take();
    ran.sort();
    assert_eq!(ran, [1, 1, 2, 2, 3, 3]);
    assert_eq!(cann_sim_replays(), before + 2);
    assert_eq!((cann_sim_graph_tasks(graph), cann_sim_graph_tasks(null_mut())), (3, 3));
}

#[test]
fn a_replay_comes_behind_what_its_stream_has_queued() {
    let _alone = alone();
    let (s, trace) = (stream(), Trace::default());
    begin(s, GLOBAL);
    trace.launch(s, 2);
    let graph = end(s);
    trace.launch(s, 1);
    replay(graph, s);
    trace.launch(s, 3);
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), [1, 2, 3]);
}

#[test]
fn a_host_function_is_recorded_like_other_work() {
    let _alone = alone();
    let (s, calls) = (stream(), AtomicU64::new(0));
    begin(s, GLOBAL);
    let data = (&raw const calls).cast_mut().cast();
    assert_eq!(unsafe { aclrtLaunchHostFunc(s, Some(count), data) }, 0);
    let graph = end(s);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    replay(graph, s);
    replay(graph, s);
    assert_eq!(synchronize(s), 0);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_stream_joins_by_an_event_and_its_branch_takes_its_time_beside_the_other() {
    let _alone = alone();
    let (a, b, trace) = (stream(), stream(), Trace::default());
    begin(a, GLOBAL);
    trace.launch(a, 1);
    join(a, b);
    assert_eq!(info(b), info(a));
    trace.launch_as("aclnnSlow", b, 2, 6_000_000);
    trace.launch_as("aclnnSlow", a, 3, 2_000_000);
    join(b, a);
    trace.launch(a, 4);
    let graph = end(a);
    assert_eq!(info(b).0, 0);
    assert_eq!(trace.take(), []);
    let on = stream();
    replay(graph, on);
    assert_eq!(synchronize(on), 0);
    assert_eq!(trace.take(), [1, 2, 3, 4]);
    // 1, the slower of 2 and 3, 4; not all of them one after the other.
    assert_eq!(cann_sim_clock_ns(on), 3 * LAUNCH_NS + 6_000);
}

#[test]
fn a_branch_may_be_joined_by_way_of_another_one() {
    let _alone = alone();
    let (a, b, c, trace) = (stream(), stream(), stream(), Trace::default());
    begin(a, GLOBAL);
    join(a, b);
    join(b, c);
    trace.launch(c, 1);
    join(c, b);
    join(b, a);
    let graph = end(a);
    replay(graph, a);
    assert_eq!(synchronize(a), 0);
    assert_eq!(trace.take(), [1]);
}

#[test]
fn a_branch_that_is_not_joined_back_gives_no_graph() {
    let _alone = alone();
    let (a, b, trace) = (stream(), stream(), Trace::default());
    begin(a, GLOBAL);
    join(a, b);
    trace.launch(b, 1);
    assert_eq!(try_end(a), (107_025, null_mut()));
    // Both are usable again, and what was recorded is gone.
    trace.launch(b, 2);
    assert_eq!((synchronize(a), synchronize(b)), (0, 0));
    assert_eq!(trace.take(), [2]);
}

#[test]
fn work_behind_the_join_makes_a_branch_loose_again() {
    let _alone = alone();
    let (a, b, trace) = (stream(), stream(), Trace::default());
    begin(a, GLOBAL);
    join(a, b);
    join(b, a);
    trace.launch(b, 1);
    assert_eq!(try_end(a).0, 107_025);
}

#[test]
fn beginning_and_ending_where_it_does_not_fit_is_refused() {
    let _alone = alone();
    let (a, b, trace) = (stream(), stream(), Trace::default());
    assert_eq!(try_end(a), (107_029, null_mut()));
    assert_eq!(unsafe { aclmdlRICaptureBegin(null_mut(), GLOBAL) }, 107_000);
    assert_eq!(unsafe { aclmdlRICaptureBegin(a, 3) }, 107_000);
    assert_eq!(unsafe { aclmdlRICaptureBegin(64 as Handle, GLOBAL) }, 107_003);
    begin(a, GLOBAL);
    assert_eq!(unsafe { aclmdlRICaptureBegin(a, GLOBAL) }, 107_027);
    join(a, b);
    assert_eq!(unsafe { aclmdlRICaptureBegin(b, GLOBAL) }, 107_027);
    assert_eq!(try_end(b), (107_036, null_mut()));
    join(b, a);
    trace.launch(a, 1);
    // None of it has spoiled the capture.
    let graph = end(a);
    replay(graph, a);
    assert_eq!(synchronize(a), 0);
    assert_eq!(trace.take(), [1]);
}

#[test]
fn only_a_relaxed_capture_may_end_in_another_thread() {
    let _alone = alone();
    for (mode, expected) in [(GLOBAL, 107_038), (THREAD_LOCAL, 107_038), (RELAXED, 0)] {
        let s = stream();
        begin(s, mode);
        let address = s as usize;
        let (code, graph) = std::thread::spawn(move || {
            let (code, graph) = try_end(address as Handle);
            (code, graph as usize)
        })
        .join()
        .unwrap();
        assert_eq!((code, graph == 0), (expected, expected != 0), "mode {mode}");
        assert_eq!(info(s).0, 0, "mode {mode}");
    }
}

#[test]
fn two_graphs_live_side_by_side_and_die_apart() {
    let _alone = alone();
    let (s, trace) = (stream(), Trace::default());
    let graphs = [1, 2].map(|number| {
        begin(s, GLOBAL);
        trace.launch(s, number);
        end(s)
    });
    assert_ne!(graphs[0], graphs[1]);
    assert_eq!(unsafe { aclmdlRIDestroy(graphs[0]) }, 0);
    assert_eq!(unsafe { aclmdlRIExecuteAsync(graphs[0], s) }, 107_017);
    assert_eq!(unsafe { aclmdlRIDestroy(graphs[0]) }, 107_017);
    replay(graphs[1], s);
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), [2]);
}

#[test]
fn a_graph_that_is_destroyed_while_it_waits_to_run_still_runs() {
    let _alone = alone();
    let (s, trace) = (stream(), Trace::default());
    begin(s, GLOBAL);
    trace.launch(s, 1);
    let graph = end(s);
    for _ in 0..20 {
        replay(graph, s);
    }
    assert_eq!(unsafe { aclmdlRIDestroy(graph) }, 0);
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), [1; 20]);
}

#[test]
fn two_captures_at_once_keep_their_work_apart() {
    let _alone = alone();
    let (a, b, trace) = (stream(), stream(), Trace::default());
    begin(a, RELAXED);
    begin(b, RELAXED);
    trace.launch(a, 1);
    trace.launch(b, 2);
    let (of_a, of_b) = (end(a), end(b));
    replay(of_b, a);
    replay(of_a, a);
    assert_eq!(synchronize(a), 0);
    assert_eq!(trace.take(), [2, 1]);
}

#[test]
fn a_graph_cannot_be_used_before_its_capture_has_ended() {
    let _alone = alone();
    let (a, b) = (stream(), stream());
    begin(a, GLOBAL);
    let (_, to_be) = info(a);
    assert_eq!(unsafe { aclmdlRIExecuteAsync(to_be, b) }, 107_026);
    assert_eq!(unsafe { aclmdlRIDestroy(to_be) }, 107_026);
    end(a);
}

#[test]
fn a_task_that_fails_in_a_replay_stops_it_and_comes_out_of_synchronize() {
    let _alone = alone();
    let (s, trace) = (stream(), Trace::default());
    begin(s, GLOBAL);
    trace.launch(s, 1);
    trace.launch_as("aclnnFaulty", s, 2, 0);
    trace.launch(s, 3);
    let graph = end(s);
    cann_sim::fault::set("aclnnFaulty.task:2:507035").unwrap();
    replay(graph, s);
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), [1, 2, 3]);
    replay(graph, s);
    assert_eq!(synchronize(s), 507_035);
    assert_eq!(trace.take(), [1]);
    cann_sim::fault::set("").unwrap();
    replay(graph, s);
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), [1, 2, 3]);
}

#[test]
fn a_printed_graph_names_its_tasks() {
    let _alone = alone();
    let (s, trace) = (stream(), Trace::default());
    begin(s, GLOBAL);
    trace.launch_as("aclnnSeen", s, 1, 0);
    let graph = end(s);
    let path = std::env::temp_dir().join(format!("cann-sim-graph-{}.json", std::process::id()));
    let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    assert_eq!(unsafe { aclmdlRIDebugJsonPrint(graph, text.as_ptr(), 0) }, 0);
    let printed = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(printed.contains("aclnnSeen"), "{printed}");
    assert_eq!(unsafe { aclmdlRIDebugJsonPrint(graph, c"/no/such/folder/graph.json".as_ptr(), 0) }, 107_009);
}
