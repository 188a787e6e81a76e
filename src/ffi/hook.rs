//! The hook's questions.

use super::bridge::generated::{self as bridge, Attached, Decided, TensorArg, Verdict};
use super::{FfiError, guard, how, tensor};
use crate::policy::{self, Action};

/// Tensors that a call is decided on without allocating.
const INLINE: usize = 32;

pub(super) fn hook_targets() -> Result<Vec<String>, FfiError> {
    guard(|| policy::targets().map_err(FfiError::new))
}

pub(super) fn hook_attach(operator_name: &str, arguments: &[String]) -> Result<Attached, FfiError> {
    guard(|| {
        let names: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let id = policy::attach(operator_name, &names).map_err(FfiError::new)?;
        let operator = policy::hooked(id).ok_or_else(|| FfiError("no such operator".to_owned()))?;
        Ok(Attached { id, positions: operator.positions().to_vec() })
    })
}

pub(super) fn hook_unknown_arguments(operator_name: &str, arguments: &[String]) -> Result<String, FfiError> {
    guard(|| Ok(policy::unknown_arguments(operator_name, arguments).unwrap_or_default()))
}

pub(super) fn hook_not_registered(names: &[String]) -> Result<(), FfiError> {
    guard(|| {
        policy::not_registered(names);
        Ok(())
    })
}

/// # Safety
/// Every argument's pointers are those of a live tensor.
pub(super) unsafe fn hook_decide(
    id: u32,
    tensors: &[TensorArg],
    execution: bridge::Execution,
    decisions: &mut [bridge::Decision],
) -> Result<Decided, FfiError> {
    guard(|| {
        let operator = policy::hooked(id).ok_or_else(|| FfiError(format!("no hooked operator {id}")))?;
        let nothing = policy::Decision { action: Action::Pass, site: 0 };
        // SAFETY: as promised by the caller.
        let tensor_at = |index: usize| unsafe { tensor(&tensors[index]) };
        let count = tensors.len();
        let execution = how(execution);
        let verdict = if count <= INLINE && count > 0 {
            let all: [policy::Tensor<'_>; INLINE] = std::array::from_fn(|index| tensor_at(index.min(count - 1)));
            let mut decided = [nothing; INLINE];
            let verdict = policy::decide(operator, &all[..count], execution, &mut decided[..count]);
            hand_over(&decided[..count], decisions);
            verdict
        } else {
            let all: Vec<_> = (0..count).map(tensor_at).collect();
            let mut decided = vec![nothing; count];
            let verdict = policy::decide(operator, &all, execution, &mut decided);
            hand_over(&decided, decisions);
            verdict
        };
        Ok(answer(verdict))
    })
}

fn hand_over(decided: &[policy::Decision], decisions: &mut [bridge::Decision]) {
    for (from, to) in decided.iter().zip(decisions) {
        to.site = from.site;
        to.action = match from.action {
            Action::Pass => bridge::Action::Pass,
            Action::Restride => bridge::Action::Restride,
            Action::Copy => bridge::Action::Copy,
            Action::CopyInOut => bridge::Action::CopyInOut,
            Action::Placeholder => bridge::Action::Placeholder,
        };
    }
}

fn answer(verdict: Result<policy::Verdict, policy::Refusal>) -> Decided {
    match verdict {
        Ok(policy::Verdict::Pass) => Decided { verdict: Verdict::Pass, message: String::new() },
        Ok(policy::Verdict::Act) => Decided { verdict: Verdict::Act, message: String::new() },
        Err(refusal) => Decided { verdict: Verdict::Refuse, message: refusal.message },
    }
}

pub(super) fn hook_site(site: u32) -> Result<String, FfiError> {
    guard(|| policy::site(site).map(|site| site.name().to_owned()).ok_or_else(|| FfiError(format!("no site {site}"))))
}

pub(super) fn hook_copied_back(site: u32, bytes: u64, execution: bridge::Execution) -> Result<(), FfiError> {
    guard(|| {
        if let Some(site) = policy::site(site) {
            policy::copied_back(site, bytes, how(execution));
        }
        Ok(())
    })
}

/// # Safety
/// The argument's pointers are those of a live tensor.
pub(super) unsafe fn contiguous_decide(site: &str, argument: &TensorArg) -> Result<Decided, FfiError> {
    // SAFETY: as promised by the caller.
    guard(|| Ok(answer(policy::decide_contiguous(site, &unsafe { tensor(argument) }))))
}

pub(super) fn contiguous_passed(site: &str) -> Result<(), FfiError> {
    guard(|| {
        policy::count_contiguous(site);
        Ok(())
    })
}

pub(super) fn contiguous_traced(site: &str) -> Result<Decided, FfiError> {
    guard(|| Ok(answer(policy::decide_traced(site))))
}
