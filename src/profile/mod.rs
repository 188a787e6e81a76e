//! What every site has cost: counters, the layouts seen, and snapshots of them.

mod graphs;
mod mode;
mod registry;
mod site;
mod snapshot;

pub use graphs::{
    CopyKind, GraphFigures, capture_begun, capture_ended, copy_captured, graph_figures, released, replayed, updated,
};
pub use mode::{Mode, ModeError, set_mode, timing};
pub use registry::{reset, site, sites};
pub use site::{Counters, LayoutCount, Outcome, Site};
pub use snapshot::{LayoutFigures, Process, SCHEMA, SiteFigures, Snapshot, SnapshotError, VERSION, snapshot, start};
