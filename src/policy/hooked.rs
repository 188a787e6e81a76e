//! Operators the hook is attached to, with everything about them that a call must not look up again.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use thiserror::Error;

use crate::ascend;
use crate::contract::{Argument, Operator, Platform, Row};
use crate::profile::Site;

use super::message::speak;
use super::settings::{SettingsError, settings};
use super::sites;

/// An operator that cannot be attached to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The environment is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No contract names the operator.
    #[error(
        "no contract names the operator {operator}; name its arguments in a TOML file and set INFINI_CONTRACTS to it \
         (docs/contracts.md): three lines are enough"
    )]
    NoContract {
        /// The operator's qualified name.
        operator: String,
    },
    /// More tensor arguments than a call can describe.
    #[error("the contracts of {operator} cover {slots} arguments; at most 64 are possible")]
    TooManyArguments {
        /// The operator's qualified name.
        operator: String,
        /// How many were named.
        slots: usize,
    },
}

/// The rows of one slot on one platform: see [`crate::contract::ResolvedArgument`].
#[derive(Debug)]
pub(super) struct SlotRows {
    /// Slots whose presence decides between the rows; `None` for an argument that this overload does not have.
    presence: Vec<Option<usize>>,
    rows: Vec<Row>,
}

impl SlotRows {
    /// The row that holds when the slots of `given` are given; `None` for a slot without a contract.
    pub(super) fn row(&self, given: u64) -> Option<&Row> {
        let bit = |slot: &Option<usize>| slot.map_or(0, |slot| (given >> slot & 1) as usize);
        let index = self.presence.iter().enumerate().fold(0, |index, (i, slot)| index | bit(slot) << i);
        self.rows.get(index)
    }
}

/// An argument that has a contract, or that a condition looks at.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) site: &'static Site,
    pub(super) site_number: u32,
    argument: Option<Argument>,
}

impl Slot {
    /// False for an argument that only conditions look at.
    pub(super) fn has_contract(&self) -> bool {
        self.argument.is_some()
    }
}

/// One overload of an operator, ready to decide about calls.
#[derive(Debug)]
pub struct HookedOperator {
    name: String,
    site: String,
    /// Asks for sizes only (`…_get_max_workspace`): its tensors are neither read nor written.
    query: bool,
    slots: Vec<Slot>,
    positions: Vec<u32>,
    on_machine: OnceLock<Vec<SlotRows>>,
    anywhere: OnceLock<Vec<SlotRows>>,
}

impl HookedOperator {
    fn new(name: &str, operator: &Operator, schema: &[&str]) -> Result<Self, AttachError> {
        let mut names: Vec<&str> = operator.arguments.iter().map(Argument::name).collect();
        for row in operator.arguments.iter().flat_map(Argument::rows) {
            names.extend(row.present.as_deref().into_iter().chain(row.absent.as_deref()));
        }
        let mut slots: Vec<Slot> = Vec::new();
        let mut positions = Vec::new();
        for name in names {
            let Some(position) = schema.iter().position(|argument| *argument == name) else {
                continue; // an overload may lack an argument (`out`)
            };
            if slots.iter().any(|slot| slot.name == name) {
                continue;
            }
            let number = sites::intern(&format!("{}.{name}", operator.site));
            let site = sites::site(number).expect("a number just given has a site");
            let argument = operator.argument(name).cloned();
            if let Some(avoid) = argument.as_ref().and_then(Argument::avoid) {
                site.advise(avoid);
            }
            slots.push(Slot { name: name.to_owned(), site, site_number: number, argument });
            positions.push(position as u32);
        }
        if slots.len() > 64 {
            return Err(AttachError::TooManyArguments { operator: name.to_owned(), slots: slots.len() });
        }
        Ok(HookedOperator {
            name: name.to_owned(),
            site: operator.site.clone(),
            query: name.ends_with("_get_max_workspace"),
            slots,
            positions,
            on_machine: OnceLock::new(),
            anywhere: OnceLock::new(),
        })
    }

    /// The operator's name as sites have it.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Whether the operator only asks for sizes.
    pub fn is_query(&self) -> bool {
        self.query
    }

    /// Position in the schema of each slot.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    pub(super) fn slot(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)
    }

    /// The rows of each slot, resolved for this machine or, off the NPU, for an unknown one.
    pub(super) fn rows(&self, on_npu: bool) -> &[SlotRows] {
        if on_npu {
            self.on_machine.get_or_init(|| self.resolve(ascend::machine()))
        } else {
            self.anywhere.get_or_init(|| self.resolve(&Platform::default()))
        }
    }

    fn resolve(&self, platform: &Platform) -> Vec<SlotRows> {
        let resolve = |slot: &Slot| {
            let Some(argument) = &slot.argument else { return SlotRows { presence: Vec::new(), rows: Vec::new() } };
            let resolved = argument.resolve(platform);
            let slot_of = |name: &String| self.slots.iter().position(|slot| slot.name == *name);
            SlotRows { presence: resolved.presence().iter().map(slot_of).collect(), rows: resolved.rows().to_vec() }
        };
        self.slots.iter().map(resolve).collect()
    }
}

/// What to say about arguments that the contracts of an operator name and none of its overloads has.
pub fn unknown_arguments(name: &str, has: &[String]) -> Option<String> {
    let operator = settings().ok()?.contracts.find(name)?;
    if operator.name != name {
        return None; // covered by `also`: it may have fewer arguments
    }
    let conditions = |argument: &Argument| -> Vec<String> {
        argument.rows().iter().flat_map(|row| [row.present.clone(), row.absent.clone()]).flatten().collect()
    };
    let named = operator.arguments.iter().flat_map(|argument| {
        std::iter::once(argument.name().to_owned()).chain(conditions(argument)).collect::<Vec<_>>()
    });
    let unknown: BTreeSet<String> = named.filter(|argument| !has.contains(argument)).collect();
    if unknown.is_empty() {
        return None;
    }
    let list = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>().join(", ");
    Some(format!(
        "the contracts of {name} name {}, which it does not have and which therefore mean nothing; it has {}",
        list(&mut unknown.iter()),
        list(&mut has.iter().collect::<BTreeSet<_>>().into_iter())
    ))
}

/// Says, once for each, which operators of the user's own file are not registered. Those of the shipped table need not be:
/// releases of torch_npu differ in what they have.
pub fn not_registered(names: &[String]) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Ok(settings) = settings() else { return };
    let missing: Vec<&str> = {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        let new = |name: &&String| settings.own.contains(name) && said.insert((*name).clone());
        names.iter().filter(new).map(String::as_str).collect()
    };
    if !missing.is_empty() {
        let text = format!(
            "INFINI_CONTRACTS names operators that are not registered: {}; import the package that defines them before \
             install(), or correct the names",
            missing.join(", ")
        );
        speak(30, &text, "");
    }
}

static HOOKED: RwLock<Vec<&'static HookedOperator>> = RwLock::new(Vec::new());

/// Qualified names of the operators that have contracts.
pub fn targets() -> Result<Vec<String>, SettingsError> {
    let contracts = &settings()?.contracts;
    Ok(contracts.operators().iter().flat_map(|operator| operator.names().map(str::to_owned)).collect())
}

/// Prepares one overload of the operator `name`, whose schema has these arguments. The same again gives the same number.
pub fn attach(name: &str, schema: &[&str]) -> Result<u32, AttachError> {
    let contracts = &settings()?.contracts;
    let operator = contracts.find(name).ok_or_else(|| AttachError::NoContract { operator: name.to_owned() })?;
    let hooked = HookedOperator::new(name, operator, schema)?;
    let mut all = HOOKED.write().unwrap_or_else(PoisonError::into_inner);
    let same = |known: &&HookedOperator| known.name == hooked.name && known.positions == hooked.positions;
    if let Some(known) = all.iter().position(same) {
        return Ok(known as u32);
    }
    all.push(Box::leak(Box::new(hooked)));
    Ok(all.len() as u32 - 1)
}

/// The operator of a number that [`attach`] gave.
pub fn hooked(number: u32) -> Option<&'static HookedOperator> {
    HOOKED.read().unwrap_or_else(PoisonError::into_inner).get(number as usize).copied()
}
