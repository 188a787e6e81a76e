//! How the fused attention and rotary operators take inputs that are not contiguous: a matter of SoC and CANN version.

use crate::config::{soc, version};
use crate::error::{SimError, code};
use crate::tensor::Tensor;

/// What an operator does with a strided input that it declares to be its own business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// AutoContiguous: a hidden copy.
    Copies,
    /// IgnoreContiguous with a check behind it.
    Refuses,
    /// IgnoreContiguous without one: read as if row-major.
    Misreads,
}

/// What FusedInferAttentionScore does with key, value, key_rope and their scales here.
pub fn fused_attention() -> Reading {
    let version = version();
    match (version.major, version.minor, version.pre) {
        // A build of A2 and A3 between two releases had the change too; the simulation takes that one.
        (9, 1, true) => Reading::Misreads,
        (9, 1, false) if soc().starts_with("Ascend950") => Reading::Refuses,
        _ => Reading::Copies,
    }
}

/// What ApplyRotaryPosEmb does with a strided queryRef or keyRef. An assumption of the simulation: up to 9.0 it copies in
/// and back, from 9.1 on it refuses.
pub fn rotary_in_place() -> Reading {
    let version = version();
    if (version.major, version.minor) < (9, 1) { Reading::Copies } else { Reading::Refuses }
}

/// The elements that a kernel reads which takes the tensor for row-major: same shape, same offset.
///
/// What lies behind the storage is not the tensor's: on hardware anything, here zeros.
pub fn misread(tensor: &Tensor) -> Result<Vec<f32>, SimError> {
    read_flat(tensor, tensor.offset, tensor.numel())
}

/// `count` elements in a row from `start` (elements from the storage's first byte), zeros outside the storage.
pub fn read_flat(tensor: &Tensor, start: i64, count: usize) -> Result<Vec<f32>, SimError> {
    let storage: i64 = tensor.storage_dims.iter().product();
    let available = (storage - start).clamp(0, count as i64);
    let mut flat = tensor.clone();
    (flat.shape, flat.strides, flat.offset) = (vec![available], vec![1], start);
    let mut values = if available > 0 { flat.read_f32()? } else { Vec::new() };
    values.resize(count, 0.0);
    Ok(values)
}

/// The documented refusal, EZ0037.
pub fn not_contiguous(parameter: &str, operator: &str, reason: &str) -> SimError {
    SimError::new(
        code::NNOP_INVALID,
        format!("EZ0037: Parameter {parameter} of {operator} is invalid. Reason: {reason}."),
    )
}

/// The documented refusal of operators that declare nothing, EZ1009.
pub fn undeclared(parameter: &str) -> SimError {
    SimError::new(
        code::NNOP_INVALID,
        format!(
            "EZ1009: Parameter {parameter} of the operator is a non-contiguous tensor. A processing policy must be \
             configured through the AutoContiguous() or IgnoreContiguous() API of the OpDef class"
        ),
    )
}
