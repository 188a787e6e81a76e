//! CANN versions and ranges of them.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A version or a version range that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VersionError {
    /// Not a version.
    #[error(
        "\"{text}\" is not a version; allowed: numbers with an optional pre-release, such as 8.5.0, 9.1.0.pre, \
         9.1.0-beta.1, 8.1.RC1"
    )]
    Version {
        /// What was given.
        text: String,
    },
    /// Not a range of versions.
    #[error(
        "\"{part}\" in \"{text}\" is not a condition on a version; allowed: *, VERSION, VERSION-* (any pre-release of it), \
         or comma-separated >=, >, <, <= VERSION, such as \">=8.5,<9.1\""
    )]
    Range {
        /// The whole range as given.
        text: String,
        /// The condition that cannot be read.
        part: String,
    },
}

/// A CANN version: numbers, and a pre-release suffix if there is one.
///
/// The order is total. Missing numbers count as 0 (`9.1` equals `9.1.0`). Every pre-release sorts before the plain version
/// with the same numbers, whatever its label; pre-releases of the same numbers sort by label, then by their numbers.
#[derive(Debug, Clone)]
pub struct Version {
    text: String,
    /// Without trailing zeros, so that equal versions have equal numbers.
    numbers: Vec<u64>,
    /// None for a release. Letters in lower case, digits by value.
    pre: Option<Vec<Piece>>,
}

/// A run of digits or of letters in a pre-release suffix. Digits sort before letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Piece {
    Number(u64),
    Label(String),
}

impl Version {
    /// Whether this is a pre-release (`9.1.0.pre`, `8.1.RC1`, …).
    pub fn is_prerelease(&self) -> bool {
        self.pre.is_some()
    }

    /// What the order compares: numbers, then release after pre-release, then the suffix.
    fn key(&self) -> (&[u64], bool, Option<&[Piece]>) {
        (&self.numbers, self.pre.is_none(), self.pre.as_deref())
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let bad = || VersionError::Version { text: text.to_owned() };
        let mut numbers = Vec::new();
        let mut pre: Option<Vec<Piece>> = None;
        for part in text.split(['.', '-']) {
            if part.is_empty() || !part.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return Err(bad());
            }
            match &mut pre {
                // Once a label was seen, everything after it belongs to the pre-release: 9.1.0-beta.1.
                Some(pieces) => split_pieces(part, pieces).ok_or_else(bad)?,
                None if part.bytes().all(|b| b.is_ascii_digit()) => numbers.push(part.parse().map_err(|_| bad())?),
                None => {
                    if numbers.is_empty() || part.as_bytes()[0].is_ascii_digit() {
                        return Err(bad());
                    }
                    let mut pieces = Vec::new();
                    split_pieces(part, &mut pieces).ok_or_else(bad)?;
                    pre = Some(pieces);
                }
            }
        }
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        Ok(Version { text: text.to_owned(), numbers, pre })
    }
}

/// Cuts "RC1" into the label "rc" and the number 1; None where a number is too long.
fn split_pieces(part: &str, into: &mut Vec<Piece>) -> Option<()> {
    let mut rest = part;
    while let Some(first) = rest.bytes().next() {
        let digits = first.is_ascii_digit();
        let end = rest.bytes().position(|b| b.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(end);
        into.push(if digits { Piece::Number(run.parse().ok()?) } else { Piece::Label(run.to_ascii_lowercase()) });
        rest = tail;
    }
    Some(())
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Version {}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for Version {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A condition on a version: `*`, `9.1.0`, `9.1.0-*` (any pre-release of 9.1.0), or `>=8.5,<9.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRange {
    conditions: Vec<(Comparison, Version)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    PrereleaseOf,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longer operators first, so that ">=" is not read as ">".
const OPERATORS: [(&str, Comparison); 5] = [
    (">=", Comparison::GreaterOrEqual),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    ("<", Comparison::Less),
    ("=", Comparison::Equal),
];

impl VersionRange {
    /// Whether this is `*`, which holds for every version.
    pub fn is_any(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether `version` fulfils every condition of the range.
    pub fn contains(&self, version: &Version) -> bool {
        self.conditions.iter().all(|(comparison, bound)| match comparison {
            Comparison::Equal => version == bound,
            Comparison::PrereleaseOf => version.is_prerelease() && version.numbers == bound.numbers,
            Comparison::Less => version < bound,
            Comparison::LessOrEqual => version <= bound,
            Comparison::Greater => version > bound,
            Comparison::GreaterOrEqual => version >= bound,
        })
    }
}

impl FromStr for VersionRange {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        if text.trim() == "*" {
            return Ok(VersionRange { conditions: Vec::new() });
        }
        let condition = |part: &str| {
            let part = part.trim();
            if let Some(release) = part.strip_suffix("-*") {
                let release: Version = release.parse().ok()?;
                return (!release.is_prerelease()).then_some((Comparison::PrereleaseOf, release));
            }
            let (comparison, bound) = OPERATORS
                .iter()
                .find_map(|(sign, comparison)| Some((*comparison, part.strip_prefix(sign)?.trim_start())))
                .unwrap_or((Comparison::Equal, part));
            Some((comparison, bound.parse().ok()?))
        };
        let conditions = text
            .split(',')
            .map(|part| {
                condition(part)
                    .ok_or_else(|| VersionError::Range { text: text.to_owned(), part: part.trim().to_owned() })
            })
            .collect::<Result<_, _>>()?;
        Ok(VersionRange { conditions })
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.conditions.is_empty() {
            return f.write_str("*");
        }
        for (i, (comparison, bound)) in self.conditions.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match comparison {
                Comparison::Equal => write!(f, "{comma}{bound}")?,
                Comparison::PrereleaseOf => write!(f, "{comma}{bound}-*")?,
                other => {
                    let sign = OPERATORS.iter().find(|(_, c)| c == other).map_or("", |(sign, _)| sign);
                    write!(f, "{comma}{sign}{bound}")?;
                }
            }
        }
        Ok(())
    }
}
