//! INFINI_PROFILE: whether anything is kept, and whether device time is measured.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use thiserror::Error;

/// How much is kept about calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Counters and layouts.
    #[default]
    Count,
    /// The same, and the device time of one copy in so many at each site.
    Time {
        /// At least 1.
        every: u32,
    },
    /// Nothing.
    Off,
}

/// A value of INFINI_PROFILE that is not a mode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("INFINI_PROFILE: \"{text}\" is not a mode; allowed: count, time, time:1/N (one copy in N), off")]
#[non_exhaustive]
pub struct ModeError {
    /// What was given.
    pub text: String,
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        let text = text.trim();
        match text {
            "" | "count" => return Ok(Mode::Count),
            "time" => return Ok(Mode::Time { every: 1 }),
            "off" => return Ok(Mode::Off),
            _ => {}
        }
        let every = text.strip_prefix("time:1/").and_then(|every| every.parse().ok()).filter(|every| *every > 0);
        every.map(|every| Mode::Time { every }).ok_or_else(|| ModeError { text: text.to_owned() })
    }
}

static COUNTING: AtomicBool = AtomicBool::new(true);
/// One copy in so many is timed; 0: none.
static EVERY: AtomicU32 = AtomicU32::new(0);

/// Sets what is kept from now on.
pub fn set_mode(mode: Mode) {
    COUNTING.store(mode != Mode::Off, Relaxed);
    EVERY.store(if let Mode::Time { every } = mode { every } else { 0 }, Relaxed);
}

/// Whether counters count.
pub(super) fn counting() -> bool {
    COUNTING.load(Relaxed)
}

/// One copy in how many is timed; 0: none.
pub fn timing() -> u32 {
    EVERY.load(Relaxed)
}
