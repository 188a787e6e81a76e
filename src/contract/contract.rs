//! What an argument demands, and what its operator does with a layout that is not contiguous.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What an operator's argument demands of the layout it is given.
///
/// Dims of size 1 never matter, and a tensor without elements is always contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contract {
    /// The layout must be contiguous.
    Contiguous,
    /// Only the stride of dim 0 may differ from that of a contiguous tensor; the inner dims are contiguous.
    Rows,
    /// The strides of the first `n` dims (`n` ≥ 1) are free; the dims inside are contiguous.
    Outer(usize),
    /// The operator copes with every layout, perhaps at the cost of a copy inside.
    Any,
    /// Read and written in place: copy in, run, copy back.
    InOut,
    /// Written, perhaps only in part: copy in, run into the copy, copy back.
    Out,
    /// A paged or private-format cache: never copied, under no policy.
    Cache,
}

impl Contract {
    /// The words a contract is written with.
    pub const WORDS: &'static str = "contiguous, rows, outer(N) with N from 1, any, inout, out, cache";

    /// Whether the contract names a demand on strides alone (not `inout`, `out`, `cache`).
    pub fn is_layout(self) -> bool {
        matches!(self, Contract::Contiguous | Contract::Rows | Contract::Outer(_) | Contract::Any)
    }

    /// How strict a demand on strides is: the smaller, the stricter.
    pub(super) fn freedom(self) -> usize {
        match self {
            Contract::Contiguous | Contract::InOut | Contract::Out | Contract::Cache => 0,
            Contract::Rows => 1,
            Contract::Outer(n) => n.saturating_add(1),
            Contract::Any => usize::MAX,
        }
    }

    /// How much care the argument needs apart from its strides: plain, written, written and read, never copied.
    pub(super) fn care(self) -> u8 {
        match self {
            Contract::Contiguous | Contract::Rows | Contract::Outer(_) | Contract::Any => 0,
            Contract::Out => 1,
            Contract::InOut => 2,
            Contract::Cache => 3,
        }
    }
}

/// A word that is not a contract.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{text}\" is not a contract; allowed: {}", Contract::WORDS)]
#[non_exhaustive]
pub struct ContractParseError {
    /// What was given.
    pub text: String,
}

impl FromStr for Contract {
    type Err = ContractParseError;

    fn from_str(text: &str) -> Result<Self, ContractParseError> {
        let outer = || {
            let n: usize = text.strip_prefix("outer(")?.strip_suffix(')')?.trim().parse().ok()?;
            (n >= 1).then_some(Contract::Outer(n))
        };
        Ok(match text {
            "contiguous" => Contract::Contiguous,
            "rows" => Contract::Rows,
            "any" => Contract::Any,
            "inout" => Contract::InOut,
            "out" => Contract::Out,
            "cache" => Contract::Cache,
            _ => outer().ok_or_else(|| ContractParseError { text: text.to_owned() })?,
        })
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contract::Contiguous => f.write_str("contiguous"),
            Contract::Rows => f.write_str("rows"),
            Contract::Outer(n) => write!(f, "outer({n})"),
            Contract::Any => f.write_str("any"),
            Contract::InOut => f.write_str("inout"),
            Contract::Out => f.write_str("out"),
            Contract::Cache => f.write_str("cache"),
        }
    }
}

/// What the operator itself does with a layout that is not contiguous (for `rows`, `outer(n)`: with one outside those).
///
/// Ordered from harmless to harmful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unmet {
    /// Copes natively, at no cost.
    Reads,
    /// Makes a hidden copy inside (AutoContiguous).
    Copies,
    /// Not known.
    Unknown,
    /// Raises an error.
    Refuses,
    /// Computes with the wrong elements, silently.
    Misreads,
}

impl Unmet {
    /// The words an `unmet` is written with.
    pub const WORDS: &'static str = "reads, copies, unknown, refuses, misreads";

    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "reads" => Unmet::Reads,
            "copies" => Unmet::Copies,
            "unknown" => Unmet::Unknown,
            "refuses" => Unmet::Refuses,
            "misreads" => Unmet::Misreads,
            _ => return None,
        })
    }

    /// Whether the result is right anyway: the operator reads or copies.
    pub fn copes(self) -> bool {
        self <= Unmet::Copies
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unmet::Reads => "reads",
            Unmet::Copies => "copies",
            Unmet::Unknown => "unknown",
            Unmet::Refuses => "refuses",
            Unmet::Misreads => "misreads",
        })
    }
}
