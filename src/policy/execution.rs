//! When what is decided about will run.

/// How a call will be executed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Execution {
    /// Now, once.
    #[default]
    Eager,
    /// It is being captured: it runs at every replay of the graph of this number ([`crate::profile::capture_begun`]).
    Captured(u64),
    /// It re-issues a captured call to update its task group. It was counted and spoken of when it was captured.
    Update,
}

impl Execution {
    /// Whether the call is a new one to be counted and spoken of.
    pub(super) fn counts(self) -> bool {
        self != Execution::Update
    }
}
