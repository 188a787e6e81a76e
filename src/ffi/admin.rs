//! What the Python package asks through private operators.

use std::ffi::{CString, c_char};
use std::path::Path;

use serde_json::json;

use super::bridge::generated::TensorArg;
use super::{FfiError, guard, tensor};
use crate::{ascend, policy, profile};

pub(super) fn configure() -> Result<(), FfiError> {
    guard(|| policy::settings().map(|_| ()).map_err(FfiError::new))
}

pub(super) fn scope_push(directives: &str, name: &str, activate: bool) -> Result<i64, FfiError> {
    guard(|| policy::push(directives, name, activate).map_err(FfiError::new))
}

pub(super) fn scope_pop(token: i64) -> Result<(), FfiError> {
    guard(|| policy::pop(token).map_err(FfiError::new))
}

/// Looked at in every hooked call: reads one thread-local number, and cannot panic.
pub(super) fn scope_active() -> bool {
    policy::active()
}

/// # Safety
/// The argument's pointers are live.
pub(super) unsafe fn explain(argument: &TensorArg) -> Result<String, FfiError> {
    guard(|| {
        // SAFETY: as promised by the caller.
        let tensor = unsafe { tensor(argument) };
        let layout = tensor.layout().ok_or_else(|| FfiError("the tensor has no valid layout".to_owned()))?;
        let dtype = policy::dtype_name(tensor.dtype);
        let diagnosis = layout.diagnosis();
        Ok(json!({
            "dtype": dtype,
            "shape": layout.shape(),
            "strides": layout.strides(),
            "offset": layout.offset(),
            "bytes": tensor.bytes(),
            "contiguous": layout.is_contiguous(),
            "layout": layout.describe(dtype),
            "diagnosis": diagnosis.to_string(),
            "remedy": diagnosis.remedy(),
        })
        .to_string())
    })
}

pub(super) fn profile_json() -> Result<String, FfiError> {
    guard(|| profile::snapshot().to_json().map_err(FfiError::new))
}

pub(super) fn profile_reset() -> Result<(), FfiError> {
    guard(|| {
        profile::reset();
        Ok(())
    })
}

pub(super) fn profile_save(path: &str) -> Result<(), FfiError> {
    guard(|| profile::snapshot().save(Path::new(path)).map_err(FfiError::new))
}

pub(super) fn doctor_json() -> Result<String, FfiError> {
    guard(|| {
        let settings = policy::settings().map_err(FfiError::new)?;
        let machine = ascend::machine();
        let operators: Vec<_> = settings
            .contracts
            .operators()
            .iter()
            .map(|operator| {
                let arguments: Vec<_> = operator
                    .arguments
                    .iter()
                    .map(|argument| {
                        let resolved = argument.resolve(machine);
                        let rows: Vec<_> = resolved
                            .rows()
                            .iter()
                            .enumerate()
                            .map(|(given, row)| {
                                let names = resolved.presence().iter().enumerate();
                                let (present, absent): (Vec<_>, Vec<_>) = names.partition(|(i, _)| given >> i & 1 == 1);
                                let names = |some: Vec<(usize, &String)>| -> Vec<String> {
                                    some.into_iter().map(|(_, name)| name.clone()).collect()
                                };
                                json!({
                                    "contract": row.contract.to_string(),
                                    "unmet": row.unmet.to_string(),
                                    "present": names(present),
                                    "absent": names(absent),
                                    "note": row.note,
                                    "source": row.source,
                                })
                            })
                            .collect();
                        json!({"argument": argument.name(), "rows": rows})
                    })
                    .collect();
                json!({"operator": operator.name, "also": operator.also, "arguments": arguments})
            })
            .collect();
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "torch": env!("INFINI_BUILT_FOR_TORCH"),
            "torch_npu": option_env!("INFINI_BUILT_FOR_TORCH_NPU").filter(|version| !version.is_empty()),
            "soc": machine.soc,
            "cann": machine.cann.as_ref().map(ToString::to_string),
            "contracts": operators,
        })
        .to_string())
    })
}

/// A listener in Python: `void (uint8_t level, const char *head, const char *tail)`, 0 for none.
pub(super) fn set_log_callback(address: i64) -> Result<(), FfiError> {
    guard(|| {
        type Callback = extern "C" fn(u8, *const c_char, *const c_char);
        if address == 0 {
            policy::set_speaker(None);
            return Ok(());
        }
        // SAFETY: the Python package passes the address of a ctypes callback of this type, and keeps it alive.
        let callback = unsafe { std::mem::transmute::<usize, Callback>(address as usize) };
        policy::set_speaker(Some(Box::new(move |level, head, tail| {
            let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
            callback(level, text(head).as_ptr(), text(tail).as_ptr());
        })));
        Ok(())
    })
}

pub(super) fn say(level: u8, message: &str) -> Result<(), FfiError> {
    guard(|| {
        policy::speak(level, message, "");
        Ok(())
    })
}
