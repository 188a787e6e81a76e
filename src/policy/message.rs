//! What the library says: the warning about a copy, the text of a refusal, and who listens.

use std::sync::{PoisonError, RwLock};

use crate::contract::{Contract, Row};
use crate::profile::{self, CopyKind, Outcome, Site};

use super::decide::Tensor;
use super::directives::Policy;
use super::execution::Execution;
use super::scope;

/// Takes what is said: a level (10 debug, 20 info, 30 warning, 40 error, as in Python's logging), the first lines, and the
/// last lines. Between the two a listener that knows where it was called from may put that place.
pub type Speaker = Box<dyn Fn(u8, &str, &str) + Send + Sync>;

static SPEAKER: RwLock<Option<&'static Speaker>> = RwLock::new(None);

/// Sets who listens, in place of the one before; `None`: nobody.
pub fn set_speaker(speaker: Option<Speaker>) {
    // Leaked, since another thread may be inside the old one; a process sets it once or twice.
    let speaker = speaker.map(|speaker| &*Box::leak(Box::new(speaker)));
    *SPEAKER.write().unwrap_or_else(PoisonError::into_inner) = speaker;
}

/// Says it to the listener and as a tracing event. No lock is held while the listener runs.
pub fn speak(level: u8, head: &str, tail: &str) {
    match level {
        40.. => tracing::error!(target: "infini_rearrange", "{head}{tail}"),
        30.. => tracing::warn!(target: "infini_rearrange", "{head}{tail}"),
        20.. => tracing::info!(target: "infini_rearrange", "{head}{tail}"),
        _ => tracing::debug!(target: "infini_rearrange", "{head}{tail}"),
    }
    let speaker = *SPEAKER.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(speaker) = speaker {
        speaker(level, head, tail);
    }
}

/// Bytes for people: decimal units, as storage and bandwidth figures have them.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// "layout  bf16 [4096, 16, 64] strides [3072, 192, 1] offset 128: columns 128..192 of rows of 192"
fn layout_line(tensor: &Tensor<'_>) -> String {
    match tensor.layout() {
        Some(layout) => format!("  layout  {}: {}", layout.describe(tensor.dtype_name()), layout.diagnosis()),
        None => format!("  layout  {} {:?} strides {:?}", tensor.dtype_name(), tensor.shape, tensor.strides),
    }
}

fn avoid_line(site: &Site, tensor: &Tensor<'_>, said: Option<&str>) -> String {
    let remedy = || tensor.layout().map(|layout| layout.diagnosis().remedy());
    let avoid = said.or(site.advice()).map(str::to_owned).or_else(remedy);
    avoid.map(|text| format!("  avoid   {text}")).unwrap_or_default()
}

/// The site of a copy that its caller named so, or did not name.
pub fn copy_site(name: &str) -> &str {
    if name.is_empty() { "infini.rearrange" } else { name }
}

/// A copy was made at a site, or captured: counts it, keeps its layout, and says so where the policy is `warn`. The copy of
/// an update is the captured one once more, and nothing is said or counted.
pub fn copied(site_name: &str, tensor: &Tensor<'_>, execution: Execution) {
    let named = !site_name.is_empty();
    let site = profile::site(copy_site(site_name));
    if tensor.bytes() == 0 {
        // Nothing was launched.
        if execution.counts() {
            site.count_contiguous();
        }
        return;
    }
    match execution {
        Execution::Eager => site.count_copied(tensor.bytes()),
        Execution::Captured(graph) => profile::copy_captured(graph, site, CopyKind::Made, tensor.bytes()),
        Execution::Update => return,
    }
    // Without a site the copy is what the caller asked for: nothing to warn about.
    let policy = if named { scope::policy_at(site).0 } else { Policy::Auto };
    let note = Note { captured: matches!(execution, Execution::Captured(_)), ..Note::default() };
    observed(site, tensor, Outcome::Copied, policy, &note);
}

/// So many bytes were copied back into the caller's layout, or that was captured.
pub fn copied_back(site: &'static Site, bytes: u64, execution: Execution) {
    match execution {
        Execution::Eager => site.count_copied_back(bytes),
        Execution::Captured(graph) => profile::copy_captured(graph, site, CopyKind::Made, bytes),
        Execution::Update => {}
    }
}

/// What a row adds to a message.
#[derive(Debug, Default)]
pub(super) struct Note {
    avoid: Option<String>,
    /// Said once under `auto` too: a cache that is not contiguous is worth knowing of, whatever the operator does with it.
    once: bool,
    /// The copy runs at every replay of a graph.
    captured: bool,
}

impl Note {
    pub(super) fn of(row: &Row) -> Self {
        Note { avoid: row.avoid.clone(), once: row.contract == Contract::Cache, captured: false }
    }
}

/// Keeps the layout met at a site; under `warn` says so when the layout class has been met 1, 2, 4, 8, … times.
pub(super) fn observed(site: &'static Site, tensor: &Tensor<'_>, outcome: Outcome, policy: Policy, note: &Note) {
    let Some(layout) = tensor.layout() else { return };
    let seen = site.note_layout(tensor.dtype_name(), &layout, outcome);
    let once = note.once && policy == Policy::Auto && seen == 1;
    if !once && (policy != Policy::Warn || !seen.is_power_of_two()) {
        return;
    }
    let bytes = human(tensor.bytes());
    let what = match outcome {
        Outcome::Copied if note.captured => {
            format!("needs a contiguous tensor; captured into a graph: copies {bytes} at every replay")
        }
        Outcome::Copied => format!("needs a contiguous tensor; copied {bytes}"),
        Outcome::Hidden => format!("is not contiguous; the operator itself copies {bytes} at every call (hidden copy)"),
        _ => format!("is not contiguous and is passed on as it is ({bytes} are not copied)"),
    };
    let times = if seen > 1 { format!(" (call {seen} with this layout)") } else { String::new() };
    let head = format!("{} {what}{times}\n{}", site.name(), layout_line(tensor));
    speak(30, &head, &avoid_line(site, tensor, note.avoid.as_deref()));
}

/// One tensor that a call is refused for.
pub(super) struct Refused(String);

impl Refused {
    pub(super) fn new(site: &Site, tensor: &Tensor<'_>, row: &Row, reason: &str, directive: &str) -> Self {
        let avoid = avoid_line(site, tensor, row.avoid.as_deref());
        Refused(format!(
            "{} is not contiguous: refused, since {reason}\n{}\n{avoid}\n  policy  {directive}; contract {} \
             (the operator by itself: {})",
            site.name(),
            layout_line(tensor),
            row.contract,
            row.unmet,
        ))
    }
}

pub(super) fn refusal(refused: &[Refused]) -> String {
    refused.iter().map(|one| one.0.as_str()).collect::<Vec<_>>().join("\n")
}
