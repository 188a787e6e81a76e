//! Policies that hold for a scope of one thread: the Python context manager, and `wrap`.

use std::cell::{Cell, RefCell};

use thiserror::Error;

use crate::profile::Site;

use super::directives::{DirectiveError, Directives, Policy};
use super::settings::settings;

/// A scope that cannot be opened or closed.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeError {
    /// The directives of the scope do not parse.
    #[error("policy: {0}")]
    Directives(#[from] DirectiveError),
    /// A scope was closed that is not the innermost of its thread.
    #[error(
        "policy scope {token} is not the innermost of this thread (that is {innermost:?}); close scopes in the order \
         opposite to opening, on the thread that opened them"
    )]
    NotInnermost {
        /// The scope that was to be closed.
        token: i64,
        /// The scope that is open innermost, if any.
        innermost: Option<i64>,
    },
}

struct Scope {
    token: i64,
    directives: Directives,
    name: String,
    activate: bool,
}

thread_local! {
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
    /// How many open scopes ask for hooks that are otherwise asleep. Apart from `SCOPES`, because every call looks.
    static ACTIVATING: Cell<u32> = const { Cell::new(0) };
    static NEXT: Cell<i64> = const { Cell::new(1) };
}

/// Opens a scope on this thread. `name` (may be empty) names the sites inside; `activate` wakes hooks that are attached
/// but not installed. Returns the token that [`pop`] wants.
pub fn push(directives: &str, name: &str, activate: bool) -> Result<i64, ScopeError> {
    let directives = Directives::parse(directives)?;
    let token = NEXT.replace(NEXT.get() + 1);
    SCOPES.with_borrow_mut(|scopes| scopes.push(Scope { token, directives, name: name.to_owned(), activate }));
    ACTIVATING.set(ACTIVATING.get() + u32::from(activate));
    Ok(token)
}

/// Closes the innermost scope.
pub fn pop(token: i64) -> Result<(), ScopeError> {
    SCOPES.with_borrow_mut(|scopes| match scopes.last() {
        Some(innermost) if innermost.token == token => {
            ACTIVATING.set(ACTIVATING.get() - u32::from(innermost.activate));
            scopes.pop();
            Ok(())
        }
        innermost => Err(ScopeError::NotInnermost { token, innermost: innermost.map(|scope| scope.token) }),
    })
}

/// Whether a scope of this thread wakes hooks that are attached but not installed.
pub fn active() -> bool {
    ACTIVATING.get() > 0
}

/// The name that the innermost named scope gives to sites.
pub(super) fn name() -> Option<String> {
    SCOPES.with_borrow(|scopes| scopes.iter().rev().map(|scope| &scope.name).find(|name| !name.is_empty()).cloned())
}

/// Whether an open scope names sites.
pub(super) fn named() -> bool {
    SCOPES.with_borrow(|scopes| scopes.iter().any(|scope| !scope.name.is_empty()))
}

/// Whether a directive names this site, rather than being a default.
pub(super) fn names(site: &str) -> bool {
    let specific = |directive: &str| directive.contains('=');
    let scoped = SCOPES.with_borrow(|scopes| {
        scopes.iter().any(|scope| scope.directives.policy_for_opt(site).is_some_and(|(_, text)| specific(text)))
    });
    scoped || settings().is_ok_and(|settings| specific(settings.directives.policy_for(site).1))
}

/// The policy at a site, where a site named by a scope that no directive speaks of goes by the operator's own.
pub(super) fn policy_at(site: &Site) -> (Policy, String) {
    match site.stands_for() {
        Some(own) if !names(site.name()) => policy_for(own.name()),
        _ => policy_for(site.name()),
    }
}

/// The policy at a site and the directive that says so: the innermost scope that speaks of it, else the environment.
pub(super) fn policy_for(site: &str) -> (Policy, String) {
    let scoped = SCOPES.with_borrow(|scopes| {
        scopes.iter().rev().find_map(|scope| {
            let (policy, directive) = scope.directives.policy_for_opt(site)?;
            Some((policy, format!("policy(\"{directive}\")")))
        })
    });
    scoped.unwrap_or_else(|| match settings() {
        Ok(settings) if settings.directives.is_empty() => {
            (Policy::Auto, "auto, since INFINI_CONTIGUITY is unset".to_owned())
        }
        Ok(settings) => {
            let (policy, directive) = settings.directives.policy_for(site);
            (policy, format!("INFINI_CONTIGUITY=\"{directive}\""))
        }
        Err(_) => (Policy::Auto, "the default".to_owned()),
    })
}
