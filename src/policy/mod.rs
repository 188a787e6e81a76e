//! What to do where a contract is not met: directives, scopes, and the decision for one operator call.

mod decide;
pub mod directives;
mod dtype;
mod execution;
mod hooked;
mod message;
mod scope;
mod settings;
mod sites;

pub use decide::{
    Action, Decision, Refusal, Tensor, Verdict, count_contiguous, decide, decide_contiguous, decide_traced,
};
pub use directives::{DirectiveError, Directives, Policy};
pub use dtype::dtype_name;
pub use execution::Execution;
pub use hooked::{AttachError, HookedOperator, attach, hooked, not_registered, targets, unknown_arguments};
pub use message::{Speaker, copied, copied_back, copy_site, set_speaker, speak};
pub use scope::{ScopeError, active, pop, push};
pub use settings::{SettingsError, contracts, settings};
pub use sites::{intern, site};
