//! The rotary operators: true results, each reading its inputs as that operator does.

use super::fia_reading::{Reading, read_flat, rotary_in_place, undeclared};
use super::glue::{Prepared, refused};
use super::rotary_math::{Mode, broadcast, rms_norm, rotate, rotate_by_matrix};
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

fn width(tensor: &Tensor) -> Result<usize, SimError> {
    match tensor.shape.last() {
        Some(&width) if width > 0 => Ok(width as usize),
        _ => refused(format!("{} has no last dimension to turn", tensor.describe())),
    }
}

fn mode_of(number: i64) -> Result<Mode, SimError> {
    Mode::from_number(number).map_or_else(|| refused(format!("mode {number}; 0 half, 1 interleave, 2 quarter, 3")), Ok)
}

/// All heads of `x` turned by cos and sin that broadcast to it.
fn turn(mode: Mode, x: &[f32], shape: &[i64], trig: &Trig, width: usize) -> Result<Vec<f32>, SimError> {
    let (cos, sin) = trig.read(shape)?;
    let mut out = vec![0.0; x.len()];
    let heads = x.chunks_exact(width).zip(cos.chunks_exact(width)).zip(sin.chunks_exact(width));
    for (((x, cos), sin), out) in heads.zip(out.chunks_exact_mut(width)) {
        match &trig.matrix {
            Some(matrix) => rotate_by_matrix(x, cos, sin, &matrix.read_f32()?, out),
            None => rotate(mode, x, cos, sin, out),
        }
    }
    Ok(out)
}

/// cos and sin, and a matrix in place of a mode.
#[derive(Clone)]
struct Trig {
    cos: Tensor,
    sin: Tensor,
    matrix: Option<Tensor>,
}

impl Trig {
    /// Checks the shapes; the tensors may not be read yet.
    fn check(&self, x: &Tensor, mode: Mode) -> Result<(), SimError> {
        if !width(x)?.is_multiple_of(mode.pairs_in()) {
            return refused(format!("the last size of {} must be a multiple of {}", x.describe(), mode.pairs_in()));
        }
        for tensor in [&self.cos, &self.sin] {
            broadcast(&x.shape, &tensor.shape).or_else(refused)?;
        }
        Ok(())
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

fn auto(inputs: &[&Tensor], outputs: &[&Tensor]) -> Cost {
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

/// What RopeWithSinCosCache needs besides its tensors.
struct Sections {
    sizes: Vec<i64>,
    head: usize,
    mode: Mode,
}

/// RopeWithSinCosCache: of query and key only stride(0) is looked at.
fn with_cache(
    [positions, query, key, cache]: [Tensor; 4],
    sections: Sections,
    [query_out, key_out]: [Tensor; 2],
) -> Prepared {
    let head = sections.head;
    let turned = width(&cache)?;
    if head == 0 || turned > head || turned % 2 != 0 {
        return refused(format!("a cache of width {turned} does not fit heads of {head}"));
    }
    for tensor in [&query, &key] {
        if tensor.shape.len() != 2 || tensor.shape[1] % head as i64 != 0 {
            return refused(format!("{} must be [tokens, heads * {head}]", tensor.describe()));
        }
    }
    let cost = auto(&[&positions, &cache], &[&query, &key, &query_out, &key_out]);
    Ok((
        cost,
        Arc::new(move || {
            let (places, table) = (positions.read_i64()?, cache.read_f32()?);
            for (tensor, out) in [(&query, &query_out), (&key, &key_out)] {
                let tokens = tensor.shape[0] as usize;
                let mut result = Vec::with_capacity(tensor.numel());
                for token in 0..tokens {
                    let start = tensor.offset + token as i64 * tensor.strides[0];
                    let row = read_flat(tensor, start, tensor.shape[1] as usize)?;
                    let (cos, sin) = angles(&places, &table, token, tokens, turned, &sections)?;
                    for x in row.chunks_exact(head) {
                        let mut y = x.to_vec();
                        rotate(sections.mode, &x[..turned], &cos, &sin, &mut y[..turned]);
                        result.extend(y);
                    }
                }
                out.write_f32(&result)?;
            }
            Ok(())
        }),
    ))
}

/// cos and sin of one token, each as wide as what is turned. With sections (mrope) the frequencies take their position from
/// one of three rows.
fn angles(
    places: &[i64],
    table: &[f32],
    token: usize,
    tokens: usize,
    turned: usize,
    sections: &Sections,
) -> Result<(Vec<f32>, Vec<f32>), SimError> {
    let half = turned / 2;
    let (mut cos, mut sin) = (vec![0.0; turned], vec![0.0; turned]);
    for frequency in 0..half {
        let mut below = 0;
        let row = sections.sizes.iter().position(|size| {
            below += size;
            (frequency as i64) < below
        });
        let place = places.get(row.unwrap_or(0) * tokens + token).copied().unwrap_or(-1);
        let line = usize::try_from(place).ok().filter(|at| (at + 1) * turned <= table.len());
        let Some(line) = line else { return refused(format!("position {place} of token {token} is not in the cache")) };
        let (c, s) = (table[line * turned + frequency], table[line * turned + half + frequency]);
        let (first, second) = match sections.mode {
            Mode::Interleave => (2 * frequency, 2 * frequency + 1),
            _ => (frequency, frequency + half),
        };
        (cos[first], cos[second], sin[first], sin[second]) = (c, c, s, s);
    }
    Ok((cos, sin))
}

/// The tensors of KvRmsNormRopeCache.
struct Latent {
    kv: Tensor,
    gamma: Tensor,
    trig: Trig,
    index: Tensor,
    k_cache: Tensor,
    ckv_cache: Tensor,
}

/// KvRmsNormRopeCache: the latent part is normed, the rest turned, and both go to their caches at `index`.
fn norm_and_cache(latent: Latent, epsilon: f64, mode: &str, outputs: Option<[Tensor; 2]>) -> Prepared {
    for (name, cache) in [("kCacheRef", &latent.k_cache), ("ckvCacheRef", &latent.ckv_cache)] {
        if !cache.is_contiguous() {
            return refused(format!("{name} {} is written in place and must be contiguous", cache.describe()));
        }
    }
    let paged = match mode {
        "" | "Norm" => false,
        "PA" | "PA_BNSD" => true,
        other => return refused(format!("cacheMode \"{other}\" is not simulated, use Norm, PA or PA_BNSD")),
    };
    let (wide, norm, rope) = (width(&latent.kv)?, latent.gamma.numel(), width(&latent.trig.cos)?);
    if wide != norm + rope || width(&latent.k_cache)? != rope || width(&latent.ckv_cache)? != norm {
        return refused(format!("kv of width {wide} must be gamma's {norm} and cos's {rope}; the caches as wide"));
    }
    let inputs = [&latent.kv, &latent.gamma, &latent.trig.cos, &latent.trig.sin, &latent.index];
    let cost = auto(&inputs, &[&latent.k_cache, &latent.ckv_cache]);
    Ok((
        cost,
        Arc::new(move || {
            let kv = latent.kv.read_f32()?;
            let gamma = latent.gamma.read_f32()?;
            let mut shape = latent.kv.shape.clone();
            *shape.last_mut().expect("a width was found") = rope as i64;
            let raw: Vec<f32> = kv.chunks_exact(wide).flat_map(|row| row[norm..].to_vec()).collect();
            let keys = turn(Mode::InterleaveHalf, &raw, &shape, &latent.trig, rope)?;
            let mut normed = vec![0.0; kv.len() / wide * norm];
            for (row, out) in kv.chunks_exact(wide).zip(normed.chunks_exact_mut(norm)) {
                rms_norm(&row[..norm], &gamma, epsilon as f32, out);
            }
            let index = latent.index.read_i64()?;
            let length = latent.kv.shape[latent.kv.shape.len() - 2].max(1) as usize;
            for (cache, rows, width) in [(&latent.k_cache, &keys, rope), (&latent.ckv_cache, &normed, norm)] {
                let mut held = cache.read_f32()?;
                for (token, row) in rows.chunks_exact(width).enumerate() {
                    let slot = index.get(token).copied().unwrap_or(-1);
                    let Ok(slot) = usize::try_from(slot) else { continue };
                    // Norm: a position within the sequence's own part; paged: a slot of the whole cache.
                    let per_sequence = cache.shape[cache.shape.len() - 2].max(1) as usize;
                    let line = if paged { slot } else { token / length * per_sequence + slot };
                    match held.get_mut(line * width..(line + 1) * width) {
                        Some(to) => to.copy_from_slice(row),
                        None => return refused(format!("index {slot} of token {token} is not in {}", cache.describe())),
                    }
                }
                cache.write_f32(&held)?;
            }
            if let Some([k_out, c_out]) = &outputs {
                k_out.write_f32(&keys)?;
                c_out.write_f32(&normed)?;
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
        let mode = if neox { Mode::Half } else { Mode::Interleave };
        // Sections of zero are the way to say that there are none.
        let sizes = if sections.iter().all(|size| *size == 0) { Vec::new() } else { sections };
        let sections = Sections { sizes, head: head.max(0) as usize, mode };
        with_cache([positions, query, key, cache], sections, [query_out, key_out])
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
