//! INFINI_PROFILE: whether anything is kept.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use thiserror::Error;

/// How much is kept about calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Counters and layouts.
    #[default]
    Count,
    /// Nothing.
    Off,
}

/// A value of INFINI_PROFILE that is not a mode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("INFINI_PROFILE: \"{text}\" is not a mode; allowed: count, off")]
#[non_exhaustive]
pub struct ModeError {
    /// What was given.
    pub text: String,
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        match text.trim() {
            "" | "count" => Ok(Mode::Count),
            "off" => Ok(Mode::Off),
            other => Err(ModeError { text: other.to_owned() }),
        }
    }
}

static COUNTING: AtomicBool = AtomicBool::new(true);

/// Sets what is kept from now on.
pub fn set_mode(mode: Mode) {
    COUNTING.store(mode == Mode::Count, Relaxed);
}

/// Whether counters count.
pub(super) fn counting() -> bool {
    COUNTING.load(Relaxed)
}
