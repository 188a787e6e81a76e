//! Fault injection: which call fails, with what. One test, because the counters belong to the whole process.

use cann_sim::fault::{calls, hit, reset, set};

#[test]
fn the_named_calls_fail_and_only_those() {
    reset();
    set("f:2:7, g:1+:8,h:2-3:9").unwrap();
    assert_eq!([hit("f"), hit("f"), hit("f")], [None, Some(7), None]);
    assert_eq!([hit("g"), hit("g")], [Some(8), Some(8)]);
    assert_eq!([hit("h"), hit("h"), hit("h"), hit("h")], [None, Some(9), Some(9), None]);
    assert_eq!((calls("f"), calls("h"), calls("other")), (3, 4, 0));

    // Calls count from when the fault was set.
    set("f:1:5").unwrap();
    assert_eq!(hit("f"), Some(5));

    for wrong in ["f", "f:0:1", "f:1:x", ":1:1", "f:3-2:1", "f:1:2:3"] {
        let problem = set(wrong).unwrap_err();
        assert!(problem.contains("function:N:code"), "{problem}");
    }
    assert_eq!(hit("f"), None);
    reset();
    assert_eq!(calls("f"), 0);
}
