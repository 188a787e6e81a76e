//! The machine that contracts are resolved for.

use super::Version;

/// SoC and CANN version of a machine; `None` is "not known", which is never laxer than any value it could have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Platform {
    /// The SoC name as CANN reports it, such as `Ascend910B1` or `Ascend950PR_9599`.
    pub soc: Option<String>,
    /// The version of the CANN toolkit in use.
    pub cann: Option<Version>,
}
