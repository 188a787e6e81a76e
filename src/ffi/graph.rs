//! Captured graphs, as far as figures go; what they keep alive is C++'s business.

use super::{FfiError, guard};
use crate::profile;

pub(super) fn graph_begun() -> Result<u64, FfiError> {
    guard(|| Ok(profile::capture_begun()))
}

pub(super) fn graph_ended(graph: u64) -> Result<(), FfiError> {
    guard(|| {
        profile::capture_ended(graph);
        Ok(())
    })
}

pub(super) fn graph_replayed(graph: u64) -> Result<(), FfiError> {
    guard(|| {
        profile::replayed(graph);
        Ok(())
    })
}

pub(super) fn graph_updated() -> Result<(), FfiError> {
    guard(|| {
        profile::updated();
        Ok(())
    })
}

pub(super) fn graph_released(graph: u64) -> Result<(), FfiError> {
    guard(|| {
        profile::released(graph);
        Ok(())
    })
}
