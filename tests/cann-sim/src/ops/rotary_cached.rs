//! The rotary operators with a cache at one of their ends: RopeWithSinCosCache, KvRmsNormRopeCache.

use super::fia_reading::read_flat;
use super::glue::{Prepared, refused};
use super::rotary::{Trig, auto, turn, width};
use super::rotary_math::{Mode, rms_norm, rotate};
use crate::error::SimError;
use crate::tensor::Tensor;
use std::sync::Arc;

/// What RopeWithSinCosCache needs besides its tensors.
pub(super) struct Sections {
    /// How many frequencies take their position from each row of positions; empty for one row.
    sizes: Vec<i64>,
    /// Width of a head.
    head: usize,
    mode: Mode,
}

impl Sections {
    pub fn new(sizes: Vec<i64>, head: i64, neox: bool) -> Self {
        // Sections of zero are the way to say that there are none.
        let sizes = if sizes.iter().all(|size| *size == 0) { Vec::new() } else { sizes };
        Sections { sizes, head: head.max(0) as usize, mode: if neox { Mode::Half } else { Mode::Interleave } }
    }
}

/// RopeWithSinCosCache: of query and key only stride(0) is looked at.
pub(super) fn with_cache(
    [positions, query, key, cache]: [Tensor; 4],
    mut sections: Sections,
    [query_out, key_out]: [Tensor; 2],
) -> Prepared {
    // One row of positions is plain rope whatever the sections say: without any, torch_npu hands over three stray numbers.
    if positions.shape.len() == 1 {
        sections.sizes.clear();
    }
    let head = sections.head;
    let turned = width(&cache)?;
    if head == 0 || turned > head || turned % 2 != 0 {
        return refused(format!("a cache of width {turned} does not fit heads of {head}"));
    }
    if !sections.sizes.is_empty() && sections.sizes.iter().sum::<i64>() != turned as i64 / 2 {
        return refused(format!("mropeSection {:?} must add up to half of {turned}", sections.sizes));
    }
    let rows = sections.sizes.len().max(1);
    if positions.numel() != rows * *query.shape.first().unwrap_or(&0) as usize {
        let of = if rows == 1 { "[tokens]".to_owned() } else { format!("[{rows}, tokens]") };
        return refused(format!("positions {} must be {of} for query {}", positions.describe(), query.describe()));
    }
    for tensor in [&query, &key] {
        if tensor.shape.len() != 2 || tensor.shape[0] != query.shape[0] || tensor.shape[1] % head as i64 != 0 {
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
pub(super) struct Latent {
    pub kv: Tensor,
    pub gamma: Tensor,
    pub trig: Trig,
    pub index: Tensor,
    pub k_cache: Tensor,
    pub ckv_cache: Tensor,
}

/// KvRmsNormRopeCache: the latent part is normed, the rest turned, and both go to their caches at `index`.
pub(super) fn norm_and_cache(latent: Latent, epsilon: f64, mode: &str, outputs: Option<[Tensor; 2]>) -> Prepared {
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
    let four = [&latent.kv, &latent.k_cache, &latent.ckv_cache].iter().all(|tensor| tensor.shape.len() == 4);
    if !four || latent.kv.shape[1] != 1 || latent.k_cache.shape[..3] != latent.ckv_cache.shape[..3] {
        return refused(format!(
            "kv {} must be [batch, 1, length, width], and the caches {} and {} alike but for the width",
            latent.kv.describe(),
            latent.k_cache.describe(),
            latent.ckv_cache.describe()
        ));
    }
    let (wide, norm, rope) = (width(&latent.kv)?, latent.gamma.numel(), width(&latent.trig.cos)?);
    if wide != norm + rope || width(&latent.k_cache)? != rope || width(&latent.ckv_cache)? != norm {
        return refused(format!("kv of width {wide} must be gamma's {norm} and cos's {rope}; the caches as wide"));
    }
    let tokens = latent.kv.numel() / wide;
    if latent.index.numel() != tokens {
        return refused(format!("index {} must hold {tokens} values, one per token", latent.index.describe()));
    }
    let mut turned = latent.kv.clone();
    turned.shape[3] = rope as i64;
    latent.trig.check(&turned, Mode::InterleaveHalf)?;
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
            let (length, places) = (latent.kv.shape[2].max(1) as usize, latent.k_cache.shape[2].max(1) as usize);
            for (cache, rows, width) in [(&latent.k_cache, &keys, rope), (&latent.ckv_cache, &normed, norm)] {
                for (token, row) in rows.chunks_exact(width).enumerate() {
                    // A negative index leaves the token out.
                    let slot = index.get(token).copied().unwrap_or(-1);
                    let Ok(slot) = usize::try_from(slot) else { continue };
                    // Norm: a position within the sequence's own part; paged: a slot of the whole cache.
                    let lines = cache.numel() / width;
                    let (first, limit) = if paged { (0, lines) } else { (token / length * places, places) };
                    if slot >= limit || first + slot >= lines {
                        return refused(format!("index {slot} of token {token} is not in {}", cache.describe()));
                    }
                    let mut line = cache.clone();
                    line.offset += ((first + slot) * width) as i64;
                    (line.shape, line.strides) = (vec![width as i64], vec![1]);
                    line.write_f32(row)?;
                }
            }
            if let Some([k_out, c_out]) = &outputs {
                k_out.write_f32(&keys)?;
                c_out.write_f32(&normed)?;
            }
            Ok(())
        }),
    ))
}
