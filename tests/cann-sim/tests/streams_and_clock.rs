//! Streams run their tasks in order, wait for events of others, and keep simulated time.

use cann_sim::clock::{BURST_NS, Cost, LAUNCH_NS};
use cann_sim::error::SimError;
use cann_sim::stream::{create, destroy, find, submit};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn tasks_of_a_stream_run_in_the_order_of_their_submission() {
    let handle = create();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for i in 0..50 {
        let seen = seen.clone();
        let work = move || {
            seen.lock().unwrap().push(i);
            Ok(())
        };
        assert_eq!(submit(handle, "task", Cost::default(), Arc::new(work)), 0);
    }
    find(handle).unwrap().synchronize(None).unwrap();
    assert_eq!(*seen.lock().unwrap(), (0..50).collect::<Vec<_>>());
    destroy(handle).unwrap();
    assert!(find(handle).is_err());
}

#[test]
fn a_waiting_stream_runs_after_the_event_and_not_before_its_time() {
    let (first, second) = (create(), create());
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock().unwrap();
    let closed = gate.clone();
    let slow = move || {
        drop(closed.lock().unwrap());
        Ok(())
    };
    submit(first, "slow", Cost { bytes: 5_000_000, ..Cost::default() }, Arc::new(slow));
    let mark = find(first).unwrap().record();
    find(second).unwrap().wait_for(mark.clone());
    submit(second, "after", Cost::default(), Arc::new(|| Ok(())));
    let impatient = find(second).unwrap().synchronize(Some(Duration::from_millis(20)));
    assert_eq!(impatient.unwrap_err().code, 107_020);
    assert_eq!(mark.time(), None);
    drop(held);
    find(second).unwrap().synchronize(None).unwrap();
    assert_eq!(mark.time(), Some(LAUNCH_NS + 5_000));
    assert_eq!(find(second).unwrap().time(), LAUNCH_NS + 5_000 + LAUNCH_NS);
}

#[test]
fn an_error_comes_out_of_the_next_synchronize_once_and_stops_what_follows() {
    let handle = create();
    let ran = Arc::new(Mutex::new(0));
    submit(handle, "bad", Cost::default(), Arc::new(|| Err(SimError::new(507_035, "broken"))));
    let counter = ran.clone();
    let next = Arc::new(move || {
        *counter.lock().unwrap() += 1;
        Ok(())
    });
    submit(handle, "next", Cost::default(), next.clone());
    let stream = find(handle).unwrap();
    let error = stream.synchronize(None).unwrap_err();
    assert_eq!(error.code, 507_035);
    assert!(error.text.contains("bad") && error.text.contains("broken"), "{error}");
    assert_eq!(*ran.lock().unwrap(), 0);
    submit(handle, "next", Cost::default(), next);
    stream.synchronize(None).unwrap();
    assert_eq!(*ran.lock().unwrap(), 1);
}

#[test]
fn a_panic_inside_a_task_is_an_error_of_the_stream() {
    let handle = create();
    submit(handle, "panics", Cost::default(), Arc::new(|| panic!("on purpose")));
    assert_eq!(find(handle).unwrap().synchronize(None).unwrap_err().code, 507_000);
}

#[test]
fn strided_access_and_hidden_copies_cost_time() {
    let plain = Cost { bytes: 1_000_000, bursts: 1, ..Cost::default() };
    let strided = Cost { bursts: 1001, ..plain.clone() };
    assert_eq!(strided.ns() - plain.ns(), 1000 * BURST_NS);
    let hiding = Cost { hidden_copies: 1, hidden_bytes: 500_000, ..plain.clone() };
    assert_eq!(hiding.ns() - plain.ns(), LAUNCH_NS + 1000);
}
