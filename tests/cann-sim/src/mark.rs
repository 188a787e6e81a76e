//! What a recorded event is to the device: something that is passed at some time, and can be waited for.

use crate::error::{SimError, code};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Not passed (`None`), or the simulated time at which a stream passed it. An ordinary event has a new mark for each
/// recording. An external event has one for its whole life, which is the state that waits see and resets clear.
#[derive(Default)]
pub struct Mark {
    time: Mutex<Option<u64>>,
    passed: Condvar,
}

impl Mark {
    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        self.time.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Simulated nanoseconds at which it was passed, if it was.
    pub fn time(&self) -> Option<u64> {
        *self.lock()
    }

    /// Blocks until it is passed.
    pub fn wait(&self) -> u64 {
        let mut time = self.lock();
        loop {
            match *time {
                Some(ns) => return ns,
                None => time = self.passed.wait(time).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }

    /// Blocks until it is passed, at most `limit`.
    ///
    /// # Errors
    /// 107019 when the limit is over.
    pub fn wait_at_most(&self, limit: Duration) -> Result<u64, SimError> {
        let start = Instant::now();
        let mut time = self.lock();
        loop {
            if let Some(ns) = *time {
                return Ok(ns);
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                let text = format!(
                    "an external event was not recorded within {limit:?}; each wait needs a record of its own \
                     (CANN_SIM_TIMEOUT sets the limit, in seconds)"
                );
                return Err(SimError::new(code::RT_WAIT_TIMEOUT, text));
            }
            time = self.passed.wait_timeout(time, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    /// Passes it at `ns`.
    pub fn pass(&self, ns: u64) {
        *self.lock() = Some(ns);
        self.passed.notify_all();
    }

    /// Makes it not passed again.
    pub fn clear(&self) {
        *self.lock() = None;
    }
}
