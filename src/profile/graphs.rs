//! Captured graphs: what each replay moves, site by site.
//!
//! A call that is captured runs later, at every replay, and then nothing of ours runs on the host. So the copies are noted
//! per graph while it is captured, and each replay counts them again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::Site;
use super::mode::counting;

/// Whose copy a replay makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// Ours.
    Made,
    /// The operator's own, inside.
    Hidden,
}

#[derive(Debug)]
struct Captured {
    site: &'static Site,
    kind: CopyKind,
    copies: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Graph {
    captured: Mutex<Vec<Captured>>,
}

impl Graph {
    fn captured(&self) -> MutexGuard<'_, Vec<Captured>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Graphs of the process since the start or the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GraphFigures {
    /// Graphs captured.
    pub captured: u64,
    /// Of all graphs ever captured, those that can still be replayed.
    pub live: u64,
    /// Replays of all of them.
    pub replays: u64,
    /// Task groups updated.
    pub updates: u64,
}

static GRAPHS: RwLock<BTreeMap<u64, Arc<Graph>>> = RwLock::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);
static CAPTURED: AtomicU64 = AtomicU64::new(0);
static REPLAYS: AtomicU64 = AtomicU64::new(0);
static UPDATES: AtomicU64 = AtomicU64::new(0);

fn find(graph: u64) -> Option<Arc<Graph>> {
    GRAPHS.read().unwrap_or_else(PoisonError::into_inner).get(&graph).cloned()
}

fn add(counter: &AtomicU64, amount: u64) {
    if counting() {
        counter.fetch_add(amount, Relaxed);
    }
}

/// A capture has begun; the number of its graph, never 0 and never given again.
pub fn capture_begun() -> u64 {
    let graph = NEXT.fetch_add(1, Relaxed);
    GRAPHS.write().unwrap_or_else(PoisonError::into_inner).insert(graph, Arc::default());
    graph
}

/// A copy of so many bytes was captured into a graph.
pub fn copy_captured(graph: u64, site: &'static Site, kind: CopyKind, bytes: u64) {
    let Some(graph) = find(graph) else { return };
    let mut captured = graph.captured();
    match captured.iter_mut().find(|known| std::ptr::eq(known.site, site) && known.kind == kind) {
        Some(known) => {
            known.copies += 1;
            known.bytes += bytes;
        }
        None => captured.push(Captured { site, kind, copies: 1, bytes }),
    }
}

/// The capture has ended and the graph can be replayed: only now its copies count as captured.
pub fn capture_ended(graph: u64) {
    let Some(graph) = find(graph) else { return };
    add(&CAPTURED, 1);
    for captured in graph.captured().iter().filter(|captured| captured.kind == CopyKind::Made) {
        captured.site.count_captured(captured.copies);
    }
}

/// A graph was replayed once. Does nothing for a graph that was released.
pub fn replayed(graph: u64) {
    let Some(graph) = find(graph) else { return };
    add(&REPLAYS, 1);
    for captured in graph.captured().iter() {
        match captured.kind {
            CopyKind::Made => captured.site.count_replayed(captured.copies, captured.bytes),
            CopyKind::Hidden => captured.site.count_hidden_replayed(captured.copies, captured.bytes),
        }
    }
}

/// A task group was updated.
pub fn updated() {
    add(&UPDATES, 1);
}

/// A graph is gone, or its capture failed.
pub fn released(graph: u64) {
    GRAPHS.write().unwrap_or_else(PoisonError::into_inner).remove(&graph);
}

/// The figures of all graphs.
pub fn graph_figures() -> GraphFigures {
    GraphFigures {
        captured: CAPTURED.load(Relaxed),
        live: GRAPHS.read().unwrap_or_else(PoisonError::into_inner).len() as u64,
        replays: REPLAYS.load(Relaxed),
        updates: UPDATES.load(Relaxed),
    }
}

pub(super) fn reset() {
    for counter in [&CAPTURED, &REPLAYS, &UPDATES] {
        counter.store(0, Relaxed);
    }
}
