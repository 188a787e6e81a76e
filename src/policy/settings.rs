//! What the environment says, read once: INFINI_CONTIGUITY, INFINI_CONTRACTS, INFINI_PROFILE.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use thiserror::Error;

use crate::contract::{ContractError, Contracts};
use crate::profile::{self, Mode, ModeError};

use super::directives::{DirectiveError, Directives};

/// A setting of the environment that cannot be used. The process keeps what it had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// INFINI_CONTIGUITY does not parse.
    #[error("INFINI_CONTIGUITY: {0}")]
    Directives(#[from] DirectiveError),
    /// The file named by INFINI_CONTRACTS cannot be read or does not parse.
    #[error("INFINI_CONTRACTS: {0}")]
    Contracts(#[from] ContractError),
    /// INFINI_PROFILE is not a mode.
    #[error("{0}")]
    Profile(#[from] ModeError),
}

/// The directives and contracts of this process.
#[derive(Debug)]
pub struct Settings {
    /// From INFINI_CONTIGUITY; unset means `auto`.
    pub directives: Directives,
    /// The shipped table, with the user's file over it.
    pub contracts: Contracts,
    /// Qualified names of the operators that the user's own file covers.
    pub own: Vec<String>,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The settings, read at the first call. An error leaves them unread: the next call tries again.
pub fn settings() -> Result<&'static Settings, SettingsError> {
    static READING: Mutex<()> = Mutex::new(());
    if let Some(settings) = SETTINGS.get() {
        return Ok(settings);
    }
    let _one_at_a_time = READING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(settings) = SETTINGS.get() {
        return Ok(settings);
    }
    let directives = Directives::parse(&std::env::var("INFINI_CONTIGUITY").unwrap_or_default())?;
    let mode: Mode = std::env::var("INFINI_PROFILE").unwrap_or_default().parse()?;
    let mut contracts = Contracts::shipped().clone();
    let mut own = Vec::new();
    if let Some(path) = std::env::var_os("INFINI_CONTRACTS").filter(|path| !path.is_empty()) {
        let file = Contracts::default().merged_with(Path::new(&path))?;
        own = file.operators().iter().flat_map(|operator| operator.names().map(str::to_owned)).collect();
        contracts = contracts.merged_with(Path::new(&path))?;
    }
    profile::set_mode(mode);
    profile::start();
    Ok(SETTINGS.get_or_init(|| Settings { directives, contracts, own }))
}

/// The contracts of this process.
pub fn contracts() -> Result<&'static Contracts, SettingsError> {
    Ok(&settings()?.contracts)
}
