//! Which row of an argument holds on a platform.
//!
//! On a known platform it is the first row whose conditions hold. Where a condition cannot be decided, or no row holds,
//! the answer must be right whatever the truth is, so it is at least as strict as every row that could be the truth:
//! - walk the rows in order, leave out those that certainly do not hold, and stop at the first that certainly does, as it
//!   hides the rest; what was met on the way are the candidates;
//! - a walk that ends without a certain row could in truth match none: then every row is a candidate whose conditions on
//!   other arguments hold (and, if there is none of those either, every row);
//! - of several candidates take the one with the worst behaviour, the strictest contract deciding ties, and tighten its
//!   demand to that of every other candidate whose operator does not cope.
//!
//! Knowing more about the platform only ever removes candidates, hence an unknown platform is never laxer than a known one.

use std::borrow::Cow;

use super::{Argument, Contract, Platform, Row, glob_matches};

impl Row {
    /// Whether the conditions on SoC and CANN hold; None where one of them cannot be decided and none is false.
    fn platform_holds(&self, platform: &Platform) -> Option<bool> {
        let soc = match (&self.soc[..], &platform.soc) {
            ([], _) => Some(true),
            (globs, Some(soc)) => Some(globs.iter().any(|glob| glob_matches(glob, soc))),
            (_, None) => None,
        };
        let cann = match (&self.cann, &platform.cann) {
            (None, _) => Some(true),
            (Some(range), Some(cann)) => Some(range.contains(cann)),
            // "*" holds for whatever version it is.
            (Some(range), None) => range.is_any().then_some(true),
        };
        match (soc, cann) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }
}

/// The rows that could hold on `platform` for a call whose given arguments are those of `present`. Never empty.
fn candidates<'a>(rows: &'a [Row], platform: &Platform, present: &dyn Fn(&str) -> bool) -> Vec<&'a Row> {
    let fitting: Vec<&Row> = rows.iter().filter(|row| row.presence_holds(present)).collect();
    let mut found = Vec::new();
    for &row in &fitting {
        match row.platform_holds(platform) {
            Some(true) => {
                found.push(row);
                return found;
            }
            Some(false) => {}
            None => found.push(row),
        }
    }
    if fitting.is_empty() { rows.iter().collect() } else { fitting }
}

/// One row that is at least as strict as each of `candidates`.
fn strictest<'a>(candidates: &[&'a Row]) -> Cow<'a, Row> {
    let strictness = |row: &Row| (row.unmet, std::cmp::Reverse(row.demand().freedom()), row.contract.care());
    let mut worst = candidates[0];
    for &row in &candidates[1..] {
        // Not max_by_key: the first of equals is the one whose note and advice the file's author put first.
        if strictness(row) > strictness(worst) {
            worst = row;
        }
    }
    // Rows that cope need no demand of their own: nothing goes wrong where it is not met.
    let demand = candidates
        .iter()
        .filter(|row| !row.unmet.copes())
        .map(|row| row.demand())
        .chain([worst.demand()])
        .min_by_key(|demand| demand.freedom())
        .unwrap_or(Contract::Contiguous);
    let careful =
        candidates.iter().map(|row| row.contract).max_by_key(|contract| contract.care()).unwrap_or(worst.contract);
    let contract = if careful.is_layout() { demand } else { careful };
    let accepts = (!contract.is_layout() && demand != Contract::Contiguous).then_some(demand);
    if contract == worst.contract && demand == worst.demand() {
        return Cow::Borrowed(worst);
    }
    Cow::Owned(Row { contract, accepts, ..worst.clone() })
}

impl Argument {
    /// The row for a call on `platform`; `present` says whether an argument of the call is given (not None).
    ///
    /// The first row whose conditions all hold. Where that cannot be decided, or none holds, a row at least as strict as
    /// every one that could hold. Borrowed unless it had to be tightened.
    pub fn row(&self, platform: &Platform, present: &dyn Fn(&str) -> bool) -> Cow<'_, Row> {
        strictest(&candidates(self.rows(), platform, present))
    }

    /// The same for every call: see [`ResolvedArgument`].
    pub fn resolve(&self, platform: &Platform) -> ResolvedArgument {
        let presence: Vec<String> = self.presence().into_iter().map(str::to_owned).collect();
        let rows = (0..1usize << presence.len())
            .map(|given| {
                let present = |name: &str| presence.iter().position(|p| p == name).is_some_and(|i| given >> i & 1 == 1);
                self.row(platform, &present).into_owned()
            })
            .collect();
        ResolvedArgument { name: self.name().to_owned(), presence, rows }
    }
}

/// An argument's rows for one platform, one per combination of the arguments its conditions name.
///
/// Made once, so that a call only has to look which of those are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedArgument {
    name: String,
    presence: Vec<String>,
    rows: Vec<Row>,
}

impl ResolvedArgument {
    /// The argument's name in the operator's schema.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The other arguments that decide between the rows; empty for most.
    pub fn presence(&self) -> &[String] {
        &self.presence
    }

    /// `2^presence.len()` rows: bit `i` of a row's index is set where `presence()[i]` is given.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row for a call; `present` says whether an argument is given (not None).
    pub fn row(&self, present: &dyn Fn(&str) -> bool) -> &Row {
        let index =
            self.presence.iter().enumerate().fold(0, |index, (i, name)| index | usize::from(present(name)) << i);
        &self.rows[index]
    }
}
