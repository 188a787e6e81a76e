//! What every site has cost: counters, the layouts seen, and snapshots of them.

mod mode;
mod registry;
mod site;
mod snapshot;

pub use mode::{Mode, ModeError, set_mode};
pub use registry::{reset, site, sites};
pub use site::{Counters, LayoutCount, Outcome, Site};
pub use snapshot::{LayoutFigures, Process, SCHEMA, SiteFigures, Snapshot, SnapshotError, VERSION, snapshot, start};
