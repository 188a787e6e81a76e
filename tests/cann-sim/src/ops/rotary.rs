//! The rotary operators: true results, each reading its inputs as that operator does.

use super::fia_reading::{Reading, rotary_in_place, undeclared};
use super::glue::{Prepared, refused};
use super::rotary_cached::{Latent, Sections, norm_and_cache, with_cache};
use super::rotary_math::{Mode, broadcast, rotate, rotate_by_matrix};
use crate::clock::Cost;
use crate::error::SimError;
use crate::operators;
use crate::tensor::Tensor;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

type Text = *const c_char;

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: Text) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(super) fn width(tensor: &Tensor) -> Result<usize, SimError> {
    match tensor.shape.last() {
        Some(&width) if width > 0 => Ok(width as usize),
        _ => refused(format!("{} has no last dimension to turn", tensor.describe())),
    }
}

fn mode_of(number: i64) -> Result<Mode, SimError> {
    Mode::from_number(number).map_or_else(|| refused(format!("mode {number}; 0 half, 1 interleave, 2 quarter, 3")), Ok)
}

/// All heads of `x` turned by cos and sin that broadcast to it.
pub(super) fn turn(mode: Mode, x: &[f32], shape: &[i64], trig: &Trig, width: usize) -> Result<Vec<f32>, SimError> {
    let (cos, sin) = trig.read(shape)?;
    let matrix = trig.matrix.as_ref().map(Tensor::read_f32).transpose()?;
    let mut out = vec![0.0; x.len()];
    let heads = x.chunks_exact(width).zip(cos.chunks_exact(width)).zip(sin.chunks_exact(width));
    for (((x, cos), sin), out) in heads.zip(out.chunks_exact_mut(width)) {
        match &matrix {
            Some(matrix) => rotate_by_matrix(x, cos, sin, matrix, out),
            None => rotate(mode, x, cos, sin, out),
        }
    }
    Ok(out)
}

/// cos and sin, and a matrix in place of a mode.
#[derive(Clone)]
pub(super) struct Trig {
    pub cos: Tensor,
    pub sin: Tensor,
    pub matrix: Option<Tensor>,
}

impl Trig {
    /// Checks the shapes; the tensors may not be read yet.
    pub fn check(&self, x: &Tensor, mode: Mode) -> Result<(), SimError> {
        if !width(x)?.is_multiple_of(mode.pairs_in()) {
            return refused(format!("the last size of {} must be a multiple of {}", x.describe(), mode.pairs_in()));
        }
        for tensor in [&self.cos, &self.sin] {
            broadcast(&x.shape, &tensor.shape).or_else(refused)?;
        }
        let width = *x.shape.last().unwrap_or(&0);
        match &self.matrix {
            Some(matrix) if matrix.shape != [width, width] => {
                refused(format!("rotate {} must be [{width}, {width}]", matrix.describe()))
            }
            _ => Ok(()),
        }
    }

    fn read(&self, shape: &[i64]) -> Result<(Vec<f32>, Vec<f32>), SimError> {
        let spread = |tensor: &Tensor| -> Result<Vec<f32>, SimError> {
            let values = tensor.read_f32()?;
            let positions = broadcast(shape, &tensor.shape).or_else(refused)?;
            Ok(positions.into_iter().map(|at| values[at]).collect())
        };
        Ok((spread(&self.cos)?, spread(&self.sin)?))
    }
}

pub(super) fn auto(inputs: &[&Tensor], outputs: &[&Tensor]) -> Cost {
    let cost = inputs.iter().fold(Cost::default(), |cost, tensor| cost.touching(tensor).hidden_copy(tensor));
    outputs.iter().fold(cost, |cost, tensor| cost.touching(tensor))
}

/// RotaryPositionEmbedding: AutoContiguous.
fn embed(x: Tensor, trig: Trig, mode: Mode, out: Tensor) -> Prepared {
    trig.check(&x, mode)?;
    let width = width(&x)?;
    let cost = auto(&[&x, &trig.cos, &trig.sin], &[&out]);
    Ok((cost, Arc::new(move || out.write_f32(&turn(mode, &x.read_f32()?, &x.shape, &trig, width)?))))
}

/// ApplyRotaryPosEmb: query and key are inputs and outputs.
fn apply(query: Tensor, key: Tensor, trig: Trig, mode: Mode) -> Prepared {
    if rotary_in_place() == Reading::Refuses {
        for (name, tensor) in [("query", &query), ("key", &key), ("cos", &trig.cos), ("sin", &trig.sin)] {
            if !tensor.is_contiguous() {
                return Err(undeclared(name));
            }
        }
    }
    trig.check(&query, mode)?;
    trig.check(&key, mode)?;
    let width = width(&query)?;
    if *key.shape.last().unwrap_or(&0) != width as i64 {
        return refused(format!("query {} and key {} must be equally wide", query.describe(), key.describe()));
    }
    let cost = auto(&[&query, &key, &trig.cos, &trig.sin], &[&query, &key]);
    Ok((
        cost,
        Arc::new(move || {
            for tensor in [&query, &key] {
                tensor.write_f32(&turn(mode, &tensor.read_f32()?, &tensor.shape, &trig, width)?)?;
            }
            Ok(())
        }),
    ))
}

operators! {
    aclnnRotaryPositionEmbedding, aclnnRotaryPositionEmbeddingGetWorkspaceSize(x: T, cos: T, sin: T, mode: i64, out: T) {
        embed(x, Trig { cos, sin, matrix: None }, mode_of(mode)?, out)
    }
    aclnnRotaryPositionEmbeddingV2, aclnnRotaryPositionEmbeddingV2GetWorkspaceSize(
        x: T, cos: T, sin: T, mode: i64, rotate: MaybeT, out: T,
    ) {
        embed(x, Trig { cos, sin, matrix: rotate }, mode_of(mode)?, out)
    }
    aclnnApplyRotaryPosEmb, aclnnApplyRotaryPosEmbGetWorkspaceSize(query: T, key: T, cos: T, sin: T, layout: i64) {
        let _ = layout;
        apply(query, key, Trig { cos, sin, matrix: None }, Mode::Half)
    }
    aclnnApplyRotaryPosEmbV2, aclnnApplyRotaryPosEmbV2GetWorkspaceSize(
        query: T, key: T, cos: T, sin: T, layout: i64, mode: Text,
    ) {
        let _ = layout;
        // SAFETY: torch_npu passes a C string or null.
        let name = unsafe { text(mode) };
        let mode = Mode::from_name(if name.is_empty() { "half" } else { &name });
        let Some(mode) = mode else { return refused(format!("rotaryMode \"{name}\"; half, interleave, quarter")) };
        apply(query, key, Trig { cos, sin, matrix: None }, mode)
    }
    aclnnInterleaveRope, aclnnInterleaveRopeGetWorkspaceSize(x: T, cos: T, sin: T, out: T) {
        embed(x, Trig { cos, sin, matrix: None }, Mode::InterleaveHalf, out)
    }
    aclnnRopeWithSinCosCache, aclnnRopeWithSinCosCacheGetWorkspaceSize(
        positions: T, query: T, key: T, cache: T, sections: IA, head: i64, neox: bool, query_out: T, key_out: T,
    ) {
        with_cache([positions, query, key, cache], Sections::new(sections, head, neox), [query_out, key_out])
    }
    aclnnRopeWithSinCosCacheV2, aclnnRopeWithSinCosCacheV2GetWorkspaceSize(
        positions: T, query: T, key: T, cache: T, sections: IA, head: i64, neox: bool, cache_mode: i64, query_out: T,
        key_out: T,
    ) {
        if cache_mode != 0 {
            return refused(format!("cacheMode {cache_mode} is not simulated, use 0"));
        }
        with_cache([positions, query, key, cache], Sections::new(sections, head, neox), [query_out, key_out])
    }
    aclnnKvRmsNormRopeCache, aclnnKvRmsNormRopeCacheGetWorkspaceSize(
        kv: T, gamma: T, cos: T, sin: T, index: T, k_cache: T, ckv_cache: T, k_scale: MaybeT, c_scale: MaybeT,
        k_offset: MaybeT, c_offset: MaybeT, epsilon: f64, mode: Text, with_outputs: bool, k_out: MaybeT, c_out: MaybeT,
    ) {
        if [&k_scale, &c_scale, &k_offset, &c_offset].iter().any(|quantization| quantization.is_some()) {
            return refused("quantized caches are not simulated");
        }
        let outputs = match (with_outputs, k_out, c_out) {
            (true, Some(k), Some(c)) => Some([k, c]),
            _ => None,
        };
        // SAFETY: torch_npu passes a C string or null.
        let mode = unsafe { text(mode) };
        let trig = Trig { cos, sin, matrix: None };
        norm_and_cache(Latent { kv, gamma, trig, index, k_cache, ckv_cache }, epsilon, &mode, outputs)
    }
}
