//! Operators, their tensor arguments, and the rows that say what those demand.

use thiserror::Error;

use super::{Contract, Unmet, VersionRange};

/// A contract together with the conditions it holds under. All conditions must hold; an absent one always does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What the argument demands.
    pub contract: Contract,
    /// What the operator itself does with a layout that is not contiguous.
    pub unmet: Unmet,
    /// For `cache`, `inout` and `out`: the layouts the operator copes with natively. `None`: contiguous ones only.
    pub accepts: Option<Contract>,
    /// Globs over SoC names, one of which must match; empty: every SoC.
    pub soc: Vec<String>,
    /// The CANN versions the row holds for.
    pub cann: Option<VersionRange>,
    /// An argument of the same operator that must be given (not None).
    pub present: Option<String>,
    /// An argument of the same operator that must not be given.
    pub absent: Option<String>,
    /// What a reader of a report should know.
    pub note: Option<String>,
    /// How the caller can avoid the copy.
    pub avoid: Option<String>,
    /// What the row rests on.
    pub source: Option<String>,
}

impl Row {
    /// A row without conditions and texts. `unmet` is what `contract` implies: `copies` for `any`, otherwise `unknown`.
    pub fn new(contract: Contract) -> Self {
        let unmet = if contract == Contract::Any { Unmet::Copies } else { Unmet::Unknown };
        Row {
            contract,
            unmet,
            accepts: None,
            soc: Vec::new(),
            cann: None,
            present: None,
            absent: None,
            note: None,
            avoid: None,
            source: None,
        }
    }

    /// The demand on the strides: the contract itself, or for `cache`, `inout`, `out` what is accepted natively.
    ///
    /// Always one of `contiguous`, `rows`, `outer(n)`, `any`.
    pub fn demand(&self) -> Contract {
        if self.contract.is_layout() { self.contract } else { self.accepts.unwrap_or(Contract::Contiguous) }
    }

    /// Whether the conditions on other arguments hold; `present` says whether an argument is given.
    pub(super) fn presence_holds(&self, present: &dyn Fn(&str) -> bool) -> bool {
        self.present.as_deref().is_none_or(present) && !self.absent.as_deref().is_some_and(present)
    }
}

/// One tensor (or tensor list) argument and its rows, of which the first that holds counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    name: String,
    /// Never empty.
    rows: Vec<Row>,
}

/// Rows that make no argument.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// No rows at all.
    #[error("\"{name}\" has no rows; give at least one, such as {name} = \"contiguous\"")]
    NoRows {
        /// The argument.
        name: String,
    },
    /// The conditions name too many other arguments. Resolved rows are kept per combination of them.
    #[error(
        "the rows of \"{name}\" depend on {count} other arguments ({}); allowed: at most {}",
        names.join(", "),
        Argument::MAX_PRESENCE
    )]
    TooManyConditions {
        /// The argument.
        name: String,
        /// How many other arguments its conditions name.
        count: usize,
        /// Which ones.
        names: Vec<String>,
    },
}

impl Argument {
    /// How many other arguments the conditions of one argument may name.
    pub const MAX_PRESENCE: usize = 4;

    /// An argument with these rows, in order of precedence.
    ///
    /// # Errors
    /// There are no rows, or their conditions name more than [`Argument::MAX_PRESENCE`] other arguments.
    pub fn new(name: impl Into<String>, rows: Vec<Row>) -> Result<Self, ArgumentError> {
        let name = name.into();
        if rows.is_empty() {
            return Err(ArgumentError::NoRows { name });
        }
        let argument = Argument { name, rows };
        let names = argument.presence();
        if names.len() > Self::MAX_PRESENCE {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            return Err(ArgumentError::TooManyConditions { name: argument.name, count: names.len(), names });
        }
        Ok(argument)
    }

    /// The other arguments that conditions name, each once, in order of appearance.
    pub fn presence(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.rows.iter().flat_map(|row| row.present.iter().chain(&row.absent)) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// The argument's name in the operator's schema.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the caller can avoid the copy: the first row's word that has one. Rows that never copy do not count.
    pub fn avoid(&self) -> Option<&str> {
        self.rows.iter().filter(|row| row.contract != Contract::Cache).find_map(|row| row.avoid.as_deref())
    }

    /// The rows, in order of precedence; at least one.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

/// An operator and the contracts of its tensor arguments. Arguments that are not listed are left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Qualified name without overload: `npu::npu_mrope`.
    pub name: String,
    /// The name that sites use: without `npu::`, other namespaces kept.
    pub site: String,
    /// Qualified names of operators whose arguments have the same names and contracts.
    pub also: Vec<String>,
    /// The arguments, in the order of the file.
    pub arguments: Vec<Argument>,
}

impl Operator {
    /// The argument of this name.
    pub fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }

    /// Every qualified name the contracts hold for: the operator's own and those of `also`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.also.iter().map(String::as_str))
    }
}
