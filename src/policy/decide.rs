//! The decision for one operator call: one look at every tensor that has a contract.
//!
//! The usual call has contiguous tensors only, so that case compares strides, counts, and allocates nothing.

use crate::contract::{Contract, Row, Unmet};
use crate::layout::{Contiguity, Layout, contiguity, rows_ok};
use crate::profile::{self, CopyKind, Outcome, Site};

use super::directives::Policy;
use super::execution::Execution;
use super::hooked::{HookedOperator, Slot};
use super::message::{self, Note, Refused};
use super::settings::settings;
use super::{dtype, scope, sites};

/// A tensor of the call. Shape, strides and offset in elements, element size in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Which slot of the operator it is given for.
    pub slot: u32,
    /// Its shape.
    pub shape: &'a [i64],
    /// Its strides, in elements.
    pub strides: &'a [i64],
    /// Its offset in the storage, in elements.
    pub offset: i64,
    /// Bytes of an element.
    pub element_size: u32,
    /// c10::ScalarType.
    pub dtype: i8,
    /// Whether it is on the NPU.
    pub on_npu: bool,
}

impl Tensor<'_> {
    /// Bytes of the elements, once each.
    pub fn bytes(&self) -> u64 {
        let elements = self.shape.iter().map(|size| *size as u64).fold(1u64, u64::saturating_mul);
        elements.saturating_mul(u64::from(self.element_size))
    }

    /// The validated layout; `None` for one that no tensor can have.
    pub fn layout(&self) -> Option<Layout> {
        let shape: Vec<usize> = self.shape.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<_>>()?;
        let strides: Vec<isize> = self.strides.iter().map(|stride| *stride as isize).collect();
        Layout::new(&shape, &strides, self.offset as isize, self.element_size as usize).ok()
    }

    pub(super) fn dtype_name(&self) -> &'static str {
        dtype::dtype_name(self.dtype)
    }
}

/// What to do with one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Hand it on as it is.
    Pass,
    /// Hand on a view with canonical strides: it is contiguous in memory.
    Restride,
    /// Hand on a contiguous copy.
    Copy,
    /// Hand on a contiguous copy and copy it back after the call.
    CopyInOut,
    /// Hand on an uninitialized contiguous tensor: only its shape is looked at.
    Placeholder,
}

/// An action, and the number of the site it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// See [`super::sites`].
    pub site: u32,
}

/// Whether there is anything to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every tensor passes.
    Pass,
    /// At least one decision is not [`Action::Pass`].
    Act,
}

/// Why a call must not run; the text names operator, argument, layout, diagnosis, remedy and directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The whole text.
    pub message: String,
}

/// Decides about one call of `operator`. Nothing has been launched when this returns, and on a refusal nothing must be.
///
/// # Panics
/// If there are fewer decisions than tensors.
pub fn decide(
    operator: &HookedOperator,
    tensors: &[Tensor<'_>],
    execution: Execution,
    decisions: &mut [Decision],
) -> Result<Verdict, Refusal> {
    let counted = execution.counts() && !operator.is_query();
    let mut call = Call { operator, execution, counted, given: 0, name: None, refused: Vec::new() };
    let mut unmet = false;
    for tensor in tensors {
        call.given |= 1u64.checked_shl(tensor.slot).unwrap_or(0);
    }
    for (tensor, decision) in tensors.iter().zip(decisions.iter_mut()) {
        match contiguity(tensor.shape, tensor.strides) {
            Contiguity::Contiguous => decision.action = Action::Pass,
            Contiguity::SizeOneStrides => decision.action = Action::Restride,
            Contiguity::Outer(_) => {
                unmet = true;
                break;
            }
        }
    }
    if !unmet && !scope::named() {
        let mut verdict = Verdict::Pass;
        for (tensor, decision) in tensors.iter().zip(decisions.iter()) {
            if decision.action != Action::Pass {
                verdict = Verdict::Act;
            }
            if let (Some(slot), true) = (operator.slot(tensor.slot), counted)
                && slot.has_contract()
            {
                slot.site.count_contiguous();
            }
        }
        return Ok(verdict);
    }
    call.decide(tensors, decisions)
}

struct Call<'a> {
    operator: &'a HookedOperator,
    execution: Execution,
    /// False for a call that is not one of its own: a query, or an update.
    counted: bool,
    given: u64,
    name: Option<String>,
    refused: Vec<Refused>,
}

/// What to do about one tensor, before anything is counted or said.
enum Step {
    Do(Action),
    /// The operator copies by itself. With what there is to say about it.
    Hidden(Note),
    /// The demand is not met, and the tensor is handed on all the same.
    PassUnmet(Note),
    Refuse(&'static str),
}

impl Call<'_> {
    fn decide(&mut self, tensors: &[Tensor<'_>], decisions: &mut [Decision]) -> Result<Verdict, Refusal> {
        self.name = scope::name();
        let mut steps = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            steps.push(self.step(tensor));
        }
        if !self.refused.is_empty() {
            return Err(Refusal { message: message::refusal(&self.refused) });
        }
        let mut verdict = Verdict::Pass;
        for ((tensor, decision), step) in tensors.iter().zip(decisions.iter_mut()).zip(steps) {
            let Some(slot) = self.operator.slot(tensor.slot) else { continue };
            let (site, number) = self.site(slot);
            let action = self.settle(tensor, slot, site, step);
            *decision = Decision { action, site: number };
            if action != Action::Pass {
                verdict = Verdict::Act;
            }
        }
        Ok(verdict)
    }

    /// The site that counts: the operator's own, or the one a named scope gives.
    fn site(&self, slot: &Slot) -> (&'static Site, u32) {
        let Some(name) = &self.name else { return (slot.site, slot.site_number) };
        let number = sites::intern(&format!("{name}.{}", slot.name));
        let site = sites::site(number).unwrap_or(slot.site);
        site.stand_for(slot.site);
        (site, number)
    }

    fn step(&mut self, tensor: &Tensor<'_>) -> Step {
        let outer = match contiguity(tensor.shape, tensor.strides) {
            Contiguity::Contiguous => return Step::Do(Action::Pass),
            Contiguity::SizeOneStrides => return Step::Do(Action::Restride),
            Contiguity::Outer(outer) => outer,
        };
        let Some(slot) = self.operator.slot(tensor.slot) else { return Step::Do(Action::Pass) };
        let rows = &self.operator.rows(tensor.on_npu)[tensor.slot as usize];
        let Some(row) = rows.row(self.given) else { return Step::Do(Action::Pass) };
        if row.contract != Contract::Any && accepts(row.demand(), tensor, outer) {
            return Step::Do(Action::Pass);
        }
        let (site, _) = self.site(slot);
        let (policy, directive) = self.policy(site);
        let step = unmet_step(row, policy, tensor);
        if let Step::Refuse(reason) = step {
            let refused = Refused::new(site, tensor, row, reason, &directive);
            self.refused.push(refused);
            if self.counted {
                count_refused(site, tensor);
            }
        }
        step
    }

    /// A named scope's own site speaks first, then the operator's.
    fn policy(&self, site: &'static Site) -> (Policy, String) {
        scope::policy_at(site)
    }

    fn settle(&self, tensor: &Tensor<'_>, slot: &Slot, site: &'static Site, step: Step) -> Action {
        match step {
            Step::Do(action @ (Action::Pass | Action::Restride)) => {
                if self.counted && slot.has_contract() {
                    site.count_contiguous();
                }
                action
            }
            // Only the shapes are looked at, so that a copy would be made for nothing.
            Step::Do(_) if self.operator.is_query() => Action::Placeholder,
            // The copy itself counts, and speaks: see message::copied.
            Step::Do(action) => {
                if self.counted {
                    site.count_call();
                }
                action
            }
            Step::Hidden(_) | Step::PassUnmet(_) if !self.counted => Action::Pass,
            Step::Hidden(note) => {
                match self.execution {
                    Execution::Captured(graph) => {
                        site.count_call();
                        profile::copy_captured(graph, site, CopyKind::Hidden, tensor.bytes());
                    }
                    _ => site.count_hidden(tensor.bytes()),
                }
                message::observed(site, tensor, Outcome::Hidden, self.policy(site).0, &note);
                Action::Pass
            }
            Step::PassUnmet(note) => {
                site.count_passed();
                message::observed(site, tensor, Outcome::Passed, self.policy(site).0, &note);
                Action::Pass
            }
            Step::Refuse(_) => Action::Pass,
        }
    }
}

fn count_refused(site: &'static Site, tensor: &Tensor<'_>) {
    site.count_refused();
    if let Some(layout) = tensor.layout() {
        site.note_layout(tensor.dtype_name(), &layout, Outcome::Refused);
    }
}

/// Whether a layout whose first `outer` dims are strided meets the demand.
fn accepts(demand: Contract, tensor: &Tensor<'_>, outer: usize) -> bool {
    match demand {
        Contract::Rows => outer <= 1 && rows_ok(tensor.shape, tensor.strides, 1),
        Contract::Outer(n) => outer <= n && rows_ok(tensor.shape, tensor.strides, n),
        Contract::Any => true,
        _ => false,
    }
}

/// What a policy makes of a demand that is not met.
fn unmet_step(row: &Row, policy: Policy, tensor: &Tensor<'_>) -> Step {
    let copying = |action| match policy {
        Policy::Auto | Policy::Warn => Step::Do(action),
        Policy::Strict => Step::Refuse("the policy is strict"),
        Policy::Off => Step::PassUnmet(Note::of(row)),
    };
    match row.contract {
        Contract::Any if row.unmet == Unmet::Reads => Step::Do(Action::Pass),
        Contract::Any => match policy {
            Policy::Strict => Step::Refuse("the policy is strict, and the operator makes a hidden copy"),
            _ => Step::Hidden(Note::of(row)),
        },
        Contract::Contiguous | Contract::Rows | Contract::Outer(_) => copying(Action::Copy),
        Contract::InOut | Contract::Out => {
            let writable = tensor.layout().is_some_and(|layout| !layout.may_self_overlap());
            if !writable && policy != Policy::Off {
                return Step::Refuse("the operator writes it, and its elements may overlap in memory");
            }
            // An operator need not write every element of `out`: what it leaves alone must come back as it was.
            copying(Action::CopyInOut)
        }
        Contract::Cache => match policy {
            Policy::Off => Step::PassUnmet(Note::of(row)),
            Policy::Strict => Step::Refuse("the policy is strict; a cache is never copied"),
            Policy::Auto | Policy::Warn if row.unmet == Unmet::Misreads => {
                Step::Refuse("the operator is known to misread it, and a cache is never copied")
            }
            Policy::Auto | Policy::Warn if row.unmet == Unmet::Copies => Step::Hidden(Note::of(row)),
            Policy::Auto | Policy::Warn => Step::PassUnmet(Note::of(row)),
        },
    }
}

fn named(site_name: &str) -> &str {
    if site_name.is_empty() { "infini.contiguous" } else { site_name }
}

/// Counts `infini::contiguous(x, site)` of a tensor that is known to be contiguous: what [`decide_contiguous`] comes to,
/// without looking at the layout again.
pub fn count_contiguous(site_name: &str) {
    profile::site(named(site_name)).count_contiguous();
}

/// Decides for `infini::contiguous(x, site)`. `Pass` hands x on, `Act` copies.
///
/// A site that names an argument with a contract (`npu_mrope.query`) is held to that contract, without knowing of other
/// arguments; any other site wants a contiguous tensor.
pub fn decide_contiguous(site_name: &str, tensor: &Tensor<'_>) -> Result<Verdict, Refusal> {
    let site_name = named(site_name);
    let site = profile::site(site_name);
    let outer = match contiguity(tensor.shape, tensor.strides) {
        Contiguity::Contiguous | Contiguity::SizeOneStrides => {
            site.count_contiguous();
            return Ok(Verdict::Pass);
        }
        Contiguity::Outer(outer) => outer,
    };
    let row = site_row(site_name, tensor.on_npu);
    if let Some(avoid) = &row.avoid {
        site.advise(avoid);
    }
    if accepts(row.demand(), tensor, outer) || row.contract == Contract::Any {
        site.count_contiguous();
        return Ok(Verdict::Pass);
    }
    let (policy, directive) = scope::policy_for(site_name);
    match unmet_step(&row, policy, tensor) {
        Step::Do(_) => {
            site.count_call();
            Ok(Verdict::Act)
        }
        Step::Hidden(note) | Step::PassUnmet(note) => {
            site.count_passed();
            message::observed(site, tensor, Outcome::Passed, policy, &note);
            Ok(Verdict::Pass)
        }
        Step::Refuse(reason) => {
            count_refused(site, tensor);
            let refused = Refused::new(site, tensor, &row, reason, &directive);
            Err(Refusal { message: message::refusal(&[refused]) })
        }
    }
}

/// Decides for `infini::contiguous(x, site)` of a strided x while a program is being traced.
///
/// Only the site is known then; a `cache` or `any` argument is handed on, everything else goes by the policy of the moment.
pub fn decide_traced(site_name: &str) -> Result<Verdict, Refusal> {
    let site_name = named(site_name);
    if matches!(site_row(site_name, false).contract, Contract::Cache | Contract::Any) {
        return Ok(Verdict::Pass);
    }
    match scope::policy_for(site_name) {
        (Policy::Auto | Policy::Warn, _) => Ok(Verdict::Act),
        (Policy::Off, _) => Ok(Verdict::Pass),
        (Policy::Strict, directive) => Err(Refusal {
            message: format!(
                "{site_name} is not contiguous in the program being traced: refused, since the policy is strict\n  \
                 policy  {directive}"
            ),
        }),
    }
}

fn site_row(site_name: &str, on_npu: bool) -> Row {
    let known = || {
        let (operator, argument) = site_name.rsplit_once('.')?;
        let contracts = &settings().ok()?.contracts;
        let operator = contracts.operators().iter().find(|known| known.site == operator)?;
        let unknown = crate::contract::Platform::default();
        let platform = if on_npu { crate::ascend::machine() } else { &unknown };
        let resolved = operator.argument(argument)?.resolve(platform);
        Some(resolved.row(&|_| false).clone())
    };
    known().unwrap_or_else(|| Row::new(Contract::Contiguous))
}
