//! Contract files that cannot be read.

use std::path::PathBuf;

use thiserror::Error;

/// Why a file of contracts was not accepted. Lines and columns count from 1; columns count characters.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The file cannot be read.
    #[error("contracts file {}: {source}; give a readable file, or unset INFINI_CONTRACTS", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{file}:{line}:{column}: not TOML: {message}")]
    Syntax {
        /// The file's name.
        file: String,
        /// Line of the mistake.
        line: usize,
        /// Column of the mistake.
        column: usize,
        /// What the TOML reader said.
        message: String,
    },
    /// The file is TOML, but not contracts.
    #[error("{file}:{line}:{column}: {found}; allowed: {allowed}")]
    Invalid {
        /// The file's name.
        file: String,
        /// Line of the mistake.
        line: usize,
        /// Column of the mistake.
        column: usize,
        /// What was found there.
        found: String,
        /// What could stand there.
        allowed: String,
    },
}
