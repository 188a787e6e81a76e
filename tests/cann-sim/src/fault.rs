//! Counting calls by name, and making a chosen one fail.
//!
//! `CANN_SIM_FAULT` and [`set`] take `function:N:code`, separated by commas. The Nth call (from 1, counted from when the
//! fault was set) returns the code; `N+` means every call from the Nth on, `N-M` a range. A name with `.task` behind it
//! (`aclnnInplaceCopy.task`) fails on the device instead: the call succeeds and the next synchronize reports the code.

use crate::error::fail;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    function: String,
    first: u64,
    last: u64,
    code: i32,
    seen: u64,
}

#[derive(Default)]
struct State {
    calls: HashMap<String, u64>,
    faults: Vec<Fault>,
}

fn state() -> MutexGuard<'static, State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    let mutex = STATE.get_or_init(|| {
        let faults = match std::env::var("CANN_SIM_FAULT") {
            Err(_) => Vec::new(),
            Ok(spec) => parse(&spec).unwrap_or_else(|problem| {
                eprintln!("cann-sim: CANN_SIM_FAULT: {problem}");
                std::process::abort();
            }),
        };
        Mutex::new(State { calls: HashMap::new(), faults })
    });
    // A poisoned lock only says that another thread panicked; counters stay usable.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn parse(spec: &str) -> Result<Vec<Fault>, String> {
    spec.split(',').map(str::trim).filter(|s| !s.is_empty()).map(parse_one).collect()
}

fn parse_one(text: &str) -> Result<Fault, String> {
    let wrong = || format!("`{text}` is not function:N:code, where N is a call (3), `3+` or `3-5`, counted from 1");
    let mut parts = text.split(':');
    let (Some(function), Some(calls), Some(code), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(wrong());
    };
    let number = |s: &str| s.parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(wrong);
    let (first, last) = if let Some(first) = calls.strip_suffix('+') {
        (number(first)?, u64::MAX)
    } else if let Some((first, last)) = calls.split_once('-') {
        (number(first)?, number(last)?)
    } else {
        (number(calls)?, number(calls)?)
    };
    let code = code.parse().map_err(|_| wrong())?;
    if function.is_empty() || last < first {
        return Err(wrong());
    }
    Ok(Fault { function: function.into(), first, last, code, seen: 0 })
}

/// Replaces the faults by those of `spec`; an empty text means none.
///
/// # Errors
/// What is wrong with the text; the faults are then left as they were.
pub fn set(spec: &str) -> Result<(), String> {
    let faults = parse(spec)?;
    state().faults = faults;
    Ok(())
}

/// Forgets counts and faults.
pub fn reset() {
    *state() = State::default();
}

/// How often `function` has been called.
pub fn calls(function: &str) -> u64 {
    state().calls.get(function).copied().unwrap_or(0)
}

/// Counts a call and says which code it must fail with, if a fault was set for it.
pub fn hit(function: &str) -> Option<i32> {
    let mut state = state();
    match state.calls.get_mut(function) {
        Some(n) => *n += 1,
        None => {
            state.calls.insert(function.into(), 1);
        }
    }
    let mut code = None;
    for fault in state.faults.iter_mut().filter(|f| f.function == function) {
        fault.seen += 1;
        if (fault.first..=fault.last).contains(&fault.seen) {
            code = Some(fault.code);
        }
    }
    code
}

/// Counts a call of the C interface; `Err` is the code that it must return at once.
///
/// # Errors
/// The injected code; its text is set for `aclGetRecentErrMsg`.
pub fn enter(function: &str) -> Result<(), i32> {
    match hit(function) {
        None => Ok(()),
        Some(code) => Err(fail(code, "EZ9999", format!("{function} failed with {code}: injected fault"))),
    }
}
