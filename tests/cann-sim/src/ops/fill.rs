//! Operators that make values out of nothing: constants, sequences, random numbers.

use super::glue::{Prepared, broadcast, work};
use crate::dtype::Value;
use crate::operators;
use crate::tensor::Tensor;

fn fill(out: Tensor, value: Value) -> Prepared {
    work(&[&out.clone()], move || out.write_values(std::iter::repeat_n(value, out.numel())))
}

fn generate(out: Tensor, at: impl Fn(u64) -> Value + Send + Sync + 'static) -> Prepared {
    work(&[&out.clone()], move || out.write_values((0..out.numel() as u64).map(&at)))
}

/// A well mixed 64-bit number for the `index`th draw: the same seed and offset always give the same numbers.
fn random(seed: u64, offset: u64, index: u64) -> u64 {
    let mut x =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset.rotate_left(32) ^ index.wrapping_mul(0xd134_2543_de82_ef95);
    for _ in 0..2 {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
    }
    x
}

/// In [0, 1).
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Standard normal, by Box and Muller.
fn normal(seed: u64, offset: u64, index: u64) -> f64 {
    let radius = (-2.0 * (1.0 - unit(random(seed, offset, 2 * index))).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(random(seed, offset, 2 * index + 1))).cos()
}

fn arithmetic(out: Tensor, start: Value, step: Value) -> Prepared {
    generate(out, move |i| match (start, step) {
        (Value::Int(start), Value::Int(step)) => Value::Int(start + step * i128::from(i)),
        _ => Value::Float(start.re() + step.re() * i as f64),
    })
}

fn integers(out: Tensor, from: i128, span: u128, seed: u64, offset: u64) -> Prepared {
    generate(out, move |i| Value::Int(from + (u128::from(random(seed, offset, i)) % span.max(1)) as i128))
}

operators! {
    aclnnInplaceZero, aclnnInplaceZeroGetWorkspaceSize(out: T) { fill(out, Value::Int(0)) }
    aclnnInplaceOne, aclnnInplaceOneGetWorkspaceSize(out: T) { fill(out, Value::Int(1)) }
    aclnnInplaceFillScalar, aclnnInplaceFillScalarGetWorkspaceSize(out: T, value: S) { fill(out, value.value) }
    aclnnInplaceFillTensor, aclnnInplaceFillTensorGetWorkspaceSize(out: T, value: T) {
        let wide = broadcast(&value, &out)?;
        work(&[&out.clone()], move || out.write_values(wide.read_values()?))
    }
    aclnnArange, aclnnArangeGetWorkspaceSize(start: S, end: S, step: S, out: T) {
        let _ = end;
        arithmetic(out, start.value, step.value)
    }
    aclnnLinspace, aclnnLinspaceGetWorkspaceSize(start: S, end: S, steps: i64, out: T) {
        let (start, end) = (start.value.re(), end.value.re());
        let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
        arithmetic(out, Value::Float(start), Value::Float(step))
    }
    aclnnEye, aclnnEyeGetWorkspaceSize(n: i64, m: i64, out: T) {
        let _ = n;
        let columns = m.max(1) as u64;
        generate(out, move |i| Value::Int((i / columns == i % columns).into()))
    }
    aclnnInplaceNormal, aclnnInplaceNormalGetWorkspaceSize(out: T, mean: f32, std: f32, seed: i64, offset: i64) {
        let (mean, std) = (f64::from(mean), f64::from(std));
        generate(out, move |i| Value::Float(mean + std * normal(seed as u64, offset as u64, i)))
    }
    aclnnInplaceUniform, aclnnInplaceUniformGetWorkspaceSize(out: T, from: f64, to: f64, seed: u64, offset: u64) {
        generate(out, move |i| Value::Float(from + (to - from) * unit(random(seed, offset, i))))
    }
    aclnnInplaceRandom, aclnnInplaceRandomGetWorkspaceSize(out: T, from: i64, to: i64, seed: i64, offset: i64) {
        integers(out, from.into(), (i128::from(to) - i128::from(from)).max(1) as u128, seed as u64, offset as u64)
    }
}
