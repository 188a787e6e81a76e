//! What lets the outside tell a running graph something: external events, and words of device memory that one stream
//! writes and another waits for (`aclrtValueWrite`, `aclrtValueWait`). torch_npu's `ExternalEvent` is either, depending
//! on what CANN offers.

use crate::config;
use crate::error::{SimError, code};
use crate::mark::Mark;
use crate::{log, memory};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How a word of memory is compared with the value that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The word is at least the value, counting around.
    AtLeast,
    /// The word is the value.
    Equal,
    /// The word has one of the value's bits.
    And,
    /// Some bit is set neither in the word nor in the value.
    Nor,
}

impl Comparison {
    /// The comparison with the interface's number.
    pub fn of(flag: u32) -> Option<Self> {
        [Self::AtLeast, Self::Equal, Self::And, Self::Nor].get(flag as usize).copied()
    }

    fn holds(self, word: u64, value: u64) -> bool {
        match self {
            Self::AtLeast => word.wrapping_sub(value) as i64 >= 0,
            Self::Equal => word == value,
            Self::And => word & value != 0,
            Self::Nor => !(word | value) != 0,
        }
    }
}

/// Something that is set by one stream and waited for by another.
#[derive(Clone)]
pub enum Signal {
    /// The state of an external event.
    Event(Arc<Mark>),
    /// A word of device memory.
    Word {
        /// Device address, a multiple of 8.
        address: usize,
        /// What is written, or waited for.
        value: u64,
        /// How to compare when waiting.
        comparison: Comparison,
    },
}

// Simulated time of the last write to each word.
static WRITTEN: Mutex<Option<HashMap<usize, u64>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();
// Words can change by copies too, which nobody is told of.
const GLANCE: Duration = Duration::from_millis(2);

fn written() -> MutexGuard<'static, Option<HashMap<usize, u64>>> {
    WRITTEN.lock().unwrap_or_else(|e| e.into_inner())
}

fn word(address: usize) -> Result<*mut u64, SimError> {
    memory::access(address, 8).map(|pointer| pointer.cast())
}

impl Signal {
    /// A word of memory for `aclrtValueWrite` or `aclrtValueWait`.
    ///
    /// # Errors
    /// 107000 for an address that is not a multiple of 8 and for an unknown comparison.
    pub fn word(address: usize, value: u64, flag: u32) -> Result<Self, SimError> {
        let Some(comparison) = Comparison::of(flag) else {
            let text = format!("flag {flag}; 0 (at least), 1 (equal), 2 (and) and 3 (nor) are allowed");
            return Err(SimError::new(code::RT_PARAM_INVALID, text));
        };
        if address == 0 || !address.is_multiple_of(8) {
            let text = format!("address {address:#x}; a multiple of 8 that is not 0 is allowed");
            return Err(SimError::new(code::RT_PARAM_INVALID, text));
        }
        Ok(Self::Word { address, value, comparison })
    }

    /// What it is, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Event(_) => "external event".into(),
            Self::Word { address, value, comparison } => format!("word {address:#x} {comparison:?} {value}"),
        }
    }

    /// Sets the signal at `time` simulated nanoseconds.
    ///
    /// # Errors
    /// 507899 if the word is not in live memory.
    pub fn set(&self, time: u64) -> Result<(), SimError> {
        match self {
            Self::Event(mark) => mark.pass(time),
            Self::Word { address, value, .. } => {
                let mut times = written();
                // SAFETY: eight aligned bytes that were just found live.
                unsafe { word(*address)?.write_volatile(*value) };
                times.get_or_insert_default().insert(*address, time);
                CHANGED.notify_all();
                log::line(|| format!("value {address:#x} = {value}"));
            }
        }
        Ok(())
    }

    /// Blocks until the signal is set, at most as long as `CANN_SIM_TIMEOUT` says; gives the simulated time at which that
    /// happened.
    ///
    /// # Errors
    /// 107019 when the limit is over, 507899 if the word is not in live memory.
    pub fn wait(&self) -> Result<u64, SimError> {
        let limit = config::timeout();
        let (address, value, comparison) = match self {
            Self::Event(mark) => return mark.wait_at_most(limit),
            Self::Word { address, value, comparison } => (*address, *value, *comparison),
        };
        let start = Instant::now();
        let mut times = written();
        loop {
            // SAFETY: eight aligned bytes that were just found live.
            let now = unsafe { word(address)?.read_volatile() };
            if comparison.holds(now, value) {
                return Ok(times.get_or_insert_default().get(&address).copied().unwrap_or(0));
            }
            if start.elapsed() > limit {
                let text = format!(
                    "the word at {address:#x} did not become {comparison:?} {value} within {limit:?}, it is {now}; each \
                     wait needs a write (a record of the external event) of its own (CANN_SIM_TIMEOUT sets the limit)"
                );
                return Err(SimError::new(code::RT_WAIT_TIMEOUT, text));
            }
            times = CHANGED.wait_timeout(times, GLANCE).unwrap_or_else(|e| e.into_inner()).0;
        }
    }
}
