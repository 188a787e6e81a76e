//! The figures of one site: lock-free counters, and the layouts that were met most often.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::layout::Layout;

use super::mode::{counting, timing};

/// What was done about a layout that did not meet the demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A contiguous copy was made.
    Copied,
    /// The operator made a copy inside.
    Hidden,
    /// It was handed on as it is.
    Passed,
    /// The call was refused.
    Refused,
}

/// The counters of a site at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Counters {
    /// Tensors seen.
    pub calls: u64,
    /// Tensors whose layout met the demand.
    pub contiguous: u64,
    /// Copies made.
    pub copied: u64,
    /// Copies made back into the caller's layout.
    pub copied_back: u64,
    /// Copies recorded in graphs; they run at replays.
    pub captured: u64,
    /// Copies that replays of graphs made.
    pub replayed: u64,
    /// Copies the operator made inside.
    pub hidden: u64,
    /// Calls refused.
    pub refused: u64,
    /// Tensors handed on although the demand was not met.
    pub passed: u64,
    /// Bytes of the copies made.
    pub bytes_copied: u64,
    /// Bytes copied back.
    pub bytes_copied_back: u64,
    /// Bytes of the copies that replays made.
    pub bytes_replayed: u64,
    /// Bytes of the hidden copies.
    pub bytes_hidden: u64,
    /// Copies whose device time was measured.
    pub timed: u64,
    /// Bytes of those.
    pub bytes_timed: u64,
    /// Their device time, in nanoseconds.
    pub ns_timed: u64,
}

/// A layout and how often it was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutCount {
    /// Short dtype name.
    pub dtype: &'static str,
    /// One layout of the class: the latest.
    pub layout: Layout,
    /// What was done about it.
    pub outcome: Outcome,
    /// How often; an upper bound once more than eight classes were met.
    pub count: u64,
}

/// How many layout classes a site remembers.
const CLASSES: usize = 8;

fn add(counter: &AtomicU64, amount: u64) {
    if counting() {
        counter.fetch_add(amount, Relaxed);
    }
}

/// A place where a tensor is needed.
#[derive(Debug, Default)]
pub struct Site {
    name: String,
    calls: AtomicU64,
    contiguous: AtomicU64,
    copied: AtomicU64,
    copied_back: AtomicU64,
    captured: AtomicU64,
    replayed: AtomicU64,
    hidden: AtomicU64,
    refused: AtomicU64,
    passed: AtomicU64,
    bytes_copied: AtomicU64,
    bytes_copied_back: AtomicU64,
    bytes_replayed: AtomicU64,
    bytes_hidden: AtomicU64,
    /// Copies that could have been timed.
    timeable: AtomicU64,
    timed: AtomicU64,
    bytes_timed: AtomicU64,
    ns_timed: AtomicU64,
    layouts: Mutex<Vec<LayoutCount>>,
    advice: OnceLock<String>,
    stands_for: OnceLock<&'static Site>,
}

impl Site {
    pub(super) fn new(name: &str) -> Self {
        Site { name: name.to_owned(), ..Site::default() }
    }

    /// `operator.argument`, or the name a caller gave.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operator's own site, for a site that a caller named.
    pub fn stands_for(&self) -> Option<&'static Site> {
        self.stands_for.get().copied()
    }

    /// Sets the operator's own site; the first one stays.
    pub fn stand_for(&self, own: &'static Site) {
        self.stands_for.get_or_init(|| own);
    }

    /// How a caller can avoid the copies at this site, where its contract says so; what a layout's diagnosis suggests is
    /// less specific.
    pub fn advice(&self) -> Option<&str> {
        self.advice.get().map(String::as_str)
    }

    /// Sets the advice; the first one stays.
    pub fn advise(&self, text: &str) {
        self.advice.get_or_init(|| text.to_owned());
    }

    /// A tensor met the demand. The one counter of the usual call: `calls` is counted with it at reading.
    pub fn count_contiguous(&self) {
        add(&self.contiguous, 1);
    }

    /// A tensor did not meet the demand and will be copied; the copy counts itself when it is made.
    pub fn count_call(&self) {
        add(&self.calls, 1);
    }

    /// A copy of so many bytes was made.
    pub fn count_copied(&self, bytes: u64) {
        add(&self.copied, 1);
        add(&self.bytes_copied, bytes);
    }

    /// So many bytes were copied back into the caller's layout.
    pub fn count_copied_back(&self, bytes: u64) {
        add(&self.copied_back, 1);
        add(&self.bytes_copied_back, bytes);
    }

    /// Whether the copy that is about to be made here is one to time: the first, and then one in as many as the mode says.
    pub fn times_next(&self) -> bool {
        match timing() {
            0 => false,
            every => self.timeable.fetch_add(1, Relaxed).is_multiple_of(u64::from(every)),
        }
    }

    /// A copy of so many bytes took so much device time.
    pub fn count_timed(&self, bytes: u64, ns: u64) {
        add(&self.timed, 1);
        add(&self.bytes_timed, bytes);
        add(&self.ns_timed, ns);
    }

    /// So many copies, or copies back, were recorded in a graph.
    pub(super) fn count_captured(&self, copies: u64) {
        add(&self.captured, copies);
    }

    /// A replay made so many copies, of so many bytes together.
    pub(super) fn count_replayed(&self, copies: u64, bytes: u64) {
        add(&self.replayed, copies);
        add(&self.bytes_replayed, bytes);
    }

    /// The operator copied inside while a graph was replayed.
    pub(super) fn count_hidden_replayed(&self, copies: u64, bytes: u64) {
        add(&self.hidden, copies);
        add(&self.bytes_hidden, bytes);
    }

    /// The operator copies so many bytes inside.
    pub fn count_hidden(&self, bytes: u64) {
        add(&self.calls, 1);
        add(&self.hidden, 1);
        add(&self.bytes_hidden, bytes);
    }

    /// The call was refused because of this tensor.
    pub fn count_refused(&self) {
        add(&self.calls, 1);
        add(&self.refused, 1);
    }

    /// The tensor was handed on although the demand was not met.
    pub fn count_passed(&self) {
        add(&self.calls, 1);
        add(&self.passed, 1);
    }

    /// Remembers a layout and returns how often its class has been met with this outcome.
    ///
    /// A class is a dtype, the shape without its first dim, and the strides: batches of different sizes are one class.
    /// Of more than eight classes the most frequent stay (space-saving: a newcomer takes the place and the count of the
    /// rarest, so that counts are upper bounds).
    pub fn note_layout(&self, dtype: &'static str, layout: &Layout, outcome: Outcome) -> u64 {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &LayoutCount| {
            known.dtype == dtype
                && known.outcome == outcome
                && known.layout.strides() == layout.strides()
                && known.layout.shape().get(1..) == layout.shape().get(1..)
        };
        if let Some(known) = layouts.iter_mut().find(|known| same(known)) {
            known.count += 1;
            if known.layout != *layout {
                known.layout = layout.clone();
            }
            return known.count;
        }
        let new = |count| LayoutCount { dtype, layout: layout.clone(), outcome, count };
        if layouts.len() < CLASSES {
            layouts.push(new(1));
            return 1;
        }
        let Some(rarest) = layouts.iter_mut().min_by_key(|known| known.count) else { return 1 };
        *rarest = new(rarest.count + 1);
        rarest.count
    }

    /// The layouts met, most frequent first.
    pub fn layouts(&self) -> Vec<LayoutCount> {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        layouts.sort_by_key(|known| std::cmp::Reverse(known.count));
        layouts
    }

    /// The counters now. They are read one after another: while calls run they may be apart by those calls.
    pub fn counters(&self) -> Counters {
        let contiguous = self.contiguous.load(Relaxed);
        Counters {
            calls: self.calls.load(Relaxed) + contiguous,
            contiguous,
            copied: self.copied.load(Relaxed),
            copied_back: self.copied_back.load(Relaxed),
            captured: self.captured.load(Relaxed),
            replayed: self.replayed.load(Relaxed),
            hidden: self.hidden.load(Relaxed),
            refused: self.refused.load(Relaxed),
            passed: self.passed.load(Relaxed),
            bytes_copied: self.bytes_copied.load(Relaxed),
            bytes_copied_back: self.bytes_copied_back.load(Relaxed),
            bytes_replayed: self.bytes_replayed.load(Relaxed),
            bytes_hidden: self.bytes_hidden.load(Relaxed),
            timed: self.timed.load(Relaxed),
            bytes_timed: self.bytes_timed.load(Relaxed),
            ns_timed: self.ns_timed.load(Relaxed),
        }
    }

    pub(super) fn reset(&self) {
        for counter in [
            &self.calls,
            &self.contiguous,
            &self.copied,
            &self.copied_back,
            &self.captured,
            &self.replayed,
            &self.hidden,
            &self.refused,
            &self.passed,
            &self.bytes_copied,
            &self.bytes_copied_back,
            &self.bytes_replayed,
            &self.bytes_hidden,
            &self.timeable,
            &self.timed,
            &self.bytes_timed,
            &self.ns_timed,
        ] {
            counter.store(0, Relaxed);
        }
        self.layouts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
