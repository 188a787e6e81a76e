//! A replay that waits for what nobody records fails instead of hanging. The limit is read once per process.

mod support;

use cann_sim::abi::events::*;
use cann_sim::abi::memory::aclrtMalloc;
use std::ptr::null_mut;
use support::*;

#[test]
fn a_wait_for_what_never_comes_fails_after_the_limit() {
    // SAFETY: the only test of this process, and nothing of the simulation has run yet.
    unsafe { std::env::set_var("CANN_SIM_TIMEOUT", "0.2") };
    let (s, trace, ready) = (stream(), Trace::default(), event(EXTERNAL));
    begin(s, GLOBAL);
    assert_eq!(wait(s, ready), 0);
    trace.launch(s, 1);
    let graph = end(s);
    replay(graph, s);
    assert_eq!(synchronize(s), 107_019);
    assert_eq!(trace.take(), []);
    assert_eq!(record(ready, s), 0);
    replay(graph, s);
    assert_eq!(synchronize(s), 0);
    assert_eq!(trace.take(), [1]);

    let mut memory = null_mut();
    assert_eq!(unsafe { aclrtMalloc(&raw mut memory, 64, 0) }, 0);
    assert_eq!(unsafe { aclrtValueWait(memory, 1, 1, s) }, 0);
    assert_eq!(synchronize(s), 107_019);
}
