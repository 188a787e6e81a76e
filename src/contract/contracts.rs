//! The table of contracts: shipped, and with a user's file over it.

use std::path::Path;
use std::sync::OnceLock;

use super::{ContractError, Operator, reader};

/// Operators and their contracts, in the order of the files they come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contracts {
    operators: Vec<Operator>,
}

impl Contracts {
    /// The contracts that come with the crate.
    pub fn shipped() -> &'static Contracts {
        static SHIPPED: OnceLock<Contracts> = OnceLock::new();
        SHIPPED.get_or_init(|| match Contracts::parse(include_str!("contracts.toml"), "contracts.toml") {
            Ok(contracts) => contracts,
            // The text is part of the crate and a test reads it; without it nothing would be covered, which is still
            // better than ending the process that loads this library.
            Err(error) => {
                tracing::error!(%error, "the shipped contracts cannot be read");
                Contracts::default()
            }
        })
    }

    /// Reads contracts from TOML; `file` is the name that errors use.
    ///
    /// # Errors
    /// The text is not TOML, or holds anything but contracts; the position and the allowed words are named.
    pub fn parse(text: &str, file: &str) -> Result<Contracts, ContractError> {
        Ok(Contracts::default().with(reader::read(text, file)?))
    }

    /// These contracts with those of the file at `path` over them.
    ///
    /// An operator of the file replaces the whole operator of the same name; where it says no `also`, the names that the
    /// replaced one covered stay covered. A name that the file gives to one operator by `also` is taken from the others, also
    /// where it had contracts of its own, unless the file gives it a section of its own.
    ///
    /// # Errors
    /// The file cannot be read, or as in [`Contracts::parse`].
    pub fn merged_with(&self, path: &Path) -> Result<Contracts, ContractError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ContractError::Read { path: path.to_owned(), source })?;
        self.merged_with_text(&text, &path.display().to_string())
    }

    /// As [`Contracts::merged_with`], from a text; `file` is the name that errors use.
    ///
    /// # Errors
    /// As in [`Contracts::parse`].
    pub fn merged_with_text(&self, text: &str, file: &str) -> Result<Contracts, ContractError> {
        Ok(self.clone().with(reader::read(text, file)?))
    }

    fn with(mut self, read: Vec<reader::Entry>) -> Self {
        // A section of its own says more than being named by another, wherever the two stand in the file.
        let own: Vec<String> = read.iter().map(|entry| entry.operator.name.clone()).collect();
        for reader::Entry { mut operator, says_also } in read {
            let mut covered: Vec<String> = operator.also.drain(..).filter(|name| !own.contains(name)).collect();
            let replaced = |known: &Operator| covered.contains(&known.name);
            let inherited: Vec<String> =
                self.operators.iter().filter(|known| replaced(known)).flat_map(|known| known.also.clone()).collect();
            self.operators.retain(|known| !replaced(known));
            covered.extend(inherited);
            let place = self.operators.iter().position(|known| known.name == operator.name);
            if let (Some(place), false) = (place, says_also) {
                covered.append(&mut self.operators[place].also);
            }
            for name in covered {
                if !own.contains(&name) && !operator.also.contains(&name) {
                    operator.also.push(name);
                }
            }
            for known in &mut self.operators {
                known.also.retain(|name| *name != operator.name && !operator.also.contains(name));
            }
            match place {
                Some(place) => self.operators[place] = operator,
                None => self.operators.push(operator),
            }
        }
        self
    }

    /// The operators, in order.
    pub fn operators(&self) -> &[Operator] {
        &self.operators
    }

    /// The operator whose contracts hold for this qualified name (`npu::npu_mrope`), be it its own or one of `also`.
    pub fn find(&self, qualified: &str) -> Option<&Operator> {
        // A name of its own wins over being named by another.
        self.operators
            .iter()
            .find(|operator| operator.name == qualified)
            .or_else(|| self.operators.iter().find(|operator| operator.also.iter().any(|name| name == qualified)))
    }
}
