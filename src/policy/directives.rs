//! INFINI_CONTIGUITY: a list of directives in the manner of RUST_LOG.
//!
//! `warn` alone is the default for all sites; `pattern=policy` speaks of the sites that the glob matches. Of several that
//! match, the most specific wins: an exact name before a glob, more literal characters before fewer, later before earlier.

use thiserror::Error;

use crate::contract::glob_matches;

/// What to do where a contract is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Copy.
    Auto,
    /// Copy and say so.
    Warn,
    /// Refuse.
    Strict,
    /// Count only.
    Off,
}

impl Policy {
    /// The words a policy is written with.
    pub const WORDS: &'static str = "auto, auto-contiguous, warn, strict, off";

    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "auto" | "auto-contiguous" => Policy::Auto,
            "warn" => Policy::Warn,
            "strict" => Policy::Strict,
            "off" => Policy::Off,
            _ => return None,
        })
    }
}

/// A directive that cannot be understood. Columns count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DirectiveError {
    /// A word that is not a policy.
    #[error(
        "\"{word}\" at column {column} of \"{text}\" is not a policy; allowed: {}, or SITE=POLICY such \
         as npu_mrope.query=warn",
        Policy::WORDS
    )]
    NotAPolicy {
        /// What was given.
        word: String,
        /// Where it starts.
        column: usize,
        /// The whole text.
        text: String,
    },
    /// A pattern that is empty or holds what no site name has.
    #[error(
        "\"{pattern}\" at column {column} of \"{text}\" is not a site pattern; allowed: an operator or \
         operator.argument of letters, digits, '_', '.', '-', ':' and '/', with * and ? as wildcards"
    )]
    NotAPattern {
        /// What was given.
        pattern: String,
        /// Where it starts.
        column: usize,
        /// The whole text.
        text: String,
    },
    /// Nothing between two commas.
    #[error("nothing between commas at column {column} of \"{text}\"; remove the comma")]
    Empty {
        /// Where a directive was expected.
        column: usize,
        /// The whole text.
        text: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Directive {
    /// `None`: the default.
    pattern: Option<String>,
    policy: Policy,
    text: String,
}

impl Directive {
    /// How specific the directive is about `site`; `None` where it does not match. Ordered: the default, globs by literal
    /// characters, the exact name.
    fn specificity(&self, site: &str) -> Option<(u8, usize)> {
        let Some(pattern) = &self.pattern else { return Some((0, 0)) };
        if pattern == site {
            return Some((2, 0));
        }
        let literal = pattern.chars().filter(|c| !matches!(c, '*' | '?')).count();
        if glob_matches(pattern, site) {
            return Some((1, literal));
        }
        // An operator alone stands for all its arguments: `npu_mrope` is `npu_mrope.*`, whose dot is literal too.
        let (operator, _) = site.rsplit_once('.')?;
        glob_matches(pattern, operator).then_some((1, literal + 1))
    }
}

/// A parsed list of directives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directives {
    directives: Vec<Directive>,
}

impl Directives {
    /// Parses a comma-separated list; empty means `auto` everywhere.
    ///
    /// # Errors
    /// A word that is not a policy, a pattern that is none, or an empty directive, with its column.
    pub fn parse(text: &str) -> Result<Self, DirectiveError> {
        let mut directives = Vec::new();
        if text.trim().is_empty() {
            return Ok(Directives { directives });
        }
        let mut start = 0;
        for part in text.split(',') {
            // Columns are characters, offsets are bytes.
            let column_of = |offset: usize| text[..start + offset].chars().count() + 1;
            let lead = part.len() - part.trim_start().len();
            let word = part.trim();
            if word.is_empty() {
                return Err(DirectiveError::Empty { column: column_of(0), text: text.to_owned() });
            }
            let (pattern, policy, offset) = match word.split_once('=') {
                None => (None, word, 0),
                Some((pattern, policy)) => {
                    let space = policy.len() - policy.trim_start().len();
                    (Some(pattern.trim()), policy.trim(), pattern.len() + 1 + space)
                }
            };
            let pattern = pattern.map(|pattern| parse_pattern(pattern, column_of(lead), text)).transpose()?;
            let policy = Policy::parse(policy).ok_or_else(|| DirectiveError::NotAPolicy {
                word: policy.to_owned(),
                column: column_of(lead + offset),
                text: text.to_owned(),
            })?;
            directives.push(Directive { pattern, policy, text: word.to_owned() });
            start += part.len() + 1;
        }
        Ok(Directives { directives })
    }

    /// Whether there is no directive at all.
    pub fn is_empty(&self) -> bool {
        self.directives.is_empty()
    }

    /// The policy at a site and the directive that says so; `auto` by `default` where none does.
    pub fn policy_for(&self, site: &str) -> (Policy, &str) {
        self.policy_for_opt(site).unwrap_or((Policy::Auto, "auto"))
    }

    /// As [`Directives::policy_for`], `None` where no directive speaks of the site.
    pub fn policy_for_opt(&self, site: &str) -> Option<(Policy, &str)> {
        // max_by_key keeps the last of equals, which is the later directive.
        let matching = self.directives.iter().filter_map(|directive| Some((directive.specificity(site)?, directive)));
        matching.max_by_key(|(specificity, _)| *specificity).map(|(_, best)| (best.policy, best.text.as_str()))
    }
}

fn parse_pattern(pattern: &str, column: usize, text: &str) -> Result<String, DirectiveError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-:/*?".contains(c);
    let site = pattern.strip_prefix("npu::").unwrap_or(pattern);
    if site.is_empty() || !pattern.chars().all(allowed) {
        return Err(DirectiveError::NotAPattern { pattern: pattern.to_owned(), column, text: text.to_owned() });
    }
    Ok(site.to_owned())
}
