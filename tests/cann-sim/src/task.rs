//! One piece of work for the device: an operator, a copy, a call of a host function.

use crate::clock::{Cost, LAUNCH_NS};
use crate::error::{SimError, code};
use crate::{executor, fault, log};
use std::sync::Arc;

/// What a task does. It can be run again, as replaying a captured task does.
pub type Work = Arc<dyn Fn() -> Result<(), SimError> + Send + Sync>;

/// What sort of task it is. Task groups hold operators only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The second phase of an aclnn operator.
    Operator,
    /// A copy, a fill, a host function.
    Other,
}

/// A piece of work with its name and its cost.
#[derive(Clone)]
pub struct Task {
    /// The C function that issued it.
    pub name: &'static str,
    /// What sort of task it is.
    pub kind: Kind,
    /// What it takes.
    pub cost: Cost,
    /// What it does.
    pub work: Work,
}

impl Task {
    /// Runs the task on the stream with number `stream`, beginning at `start` simulated nanoseconds; gives the time at its
    /// end. Faults set for `<name>.task` apply.
    pub fn run(&self, stream: i32, start: u64) -> (u64, Result<(), SimError>) {
        let name = self.name;
        log::line(|| format!("stream={stream} {name} {}", self.cost.what));
        let result = match fault::hit(&format!("{name}.task")) {
            Some(code) => Err(SimError::new(code, "injected fault")),
            None => std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.work)())).unwrap_or_else(|_| {
                Err(SimError::new(code::RT_INTERNAL, "the simulation itself failed (panic); see stderr"))
            }),
        };
        executor::count_hidden_copies(&self.cost);
        let result = result.map_err(|e| SimError::new(e.code, format!("{name} on stream {stream}: {}", e.text)));
        if let Err(error) = &result {
            log::line(|| format!("stream={stream} failed {error}"));
        }
        (start + self.cost.ns().max(LAUNCH_NS), result)
    }
}
