//! What an operator's arguments demand of the layouts they are given.
//!
//! A [`Contract`] is the demand, a [`Row`] a contract together with the SoC, the CANN version and the other arguments it
//! holds for, an [`Argument`] the ordered rows of one tensor argument. [`Contracts`] reads them: the shipped table
//! (`contracts.toml`), what was probed on a machine, and the user's own file all have the same form.

mod argument;
#[expect(clippy::module_inception, reason = "the type Contract lives in the file named after it")]
mod contract;
mod contracts;
mod error;
mod glob;
mod platform;
mod reader;
mod resolve;
mod version;

pub use argument::{Argument, ArgumentError, Operator, Row};
pub use contract::{Contract, ContractParseError, Unmet};
pub use contracts::Contracts;
pub use error::ContractError;
pub use glob::glob_matches;
pub use platform::Platform;
pub use resolve::ResolvedArgument;
pub use version::{Version, VersionError, VersionRange};
